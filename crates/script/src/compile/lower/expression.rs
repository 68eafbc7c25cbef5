//! Expressions that give values.

use super::{Key, Lower, Results, State};
use crate::compile::ir::{Condition, Failure, Operand, Operation};
use crate::compile::known::Known;
use crate::compile::slot::{Shape, Slot};
use crate::syntax::tree::{Binary, Expression, ExpressionKind, LocalId, Unary, Variable};

impl Lower<'_> {
    /// An expression's value.
    pub(super) fn expression(&mut self, expression: &Expression) -> Slot {
        self.line = expression.line;
        match &*expression.kind {
            ExpressionKind::Nil => Slot::nil(),
            ExpressionKind::Boolean(value) => Slot::boolean(i64::from(*value)),
            ExpressionKind::Integer(value) => Slot::integer(*value),
            ExpressionKind::Float(number) => {
                self.refuse(format!("{number}: there are no floats in the kernel"))
            }
            ExpressionKind::String(bytes) => Slot::text(bytes),
            ExpressionKind::Rest => self.refuse("'...'"),
            ExpressionKind::Function(function) => Slot::new(Shape::Known(Known::Function(*function)), []),
            ExpressionKind::Variable(variable) => self.variable(variable),
            ExpressionKind::Index(object, key) => {
                let [object, key] = self.both(object, key);
                self.line = expression.line;
                self.index(object, key)
            }
            ExpressionKind::Call(..) | ExpressionKind::Method(..) => {
                self.call(expression).values.into_iter().next().unwrap_or_else(Slot::nil)
            }
            ExpressionKind::One(inner) => self.expression(inner),
            ExpressionKind::Unary(Unary::Not, _)
            | ExpressionKind::Binary(
                Binary::Equal
                | Binary::NotEqual
                | Binary::Less
                | Binary::LessOrEqual
                | Binary::Greater
                | Binary::GreaterOrEqual,
                ..,
            ) => self.decided(expression),
            ExpressionKind::Binary(Binary::And, left, right) => self.and(left, right),
            ExpressionKind::Binary(Binary::Or, left, right) => self.or(left, right),
            ExpressionKind::Unary(operator, operand) => {
                let operand = self.expression(operand);
                self.line = expression.line;
                self.unary(*operator, operand)
            }
            ExpressionKind::Binary(operator, left, right) => self.binary(*operator, left, right),
            ExpressionKind::Table(_) => self.refuse("a table is made for each packet"),
        }
    }

    /// Values of a list: the last one may be a call that gives several.
    pub(super) fn values(&mut self, expressions: &[Expression]) -> Vec<Slot> {
        self.list(expressions).values
    }

    /// The same, with how many there are.
    pub(super) fn list(&mut self, expressions: &[Expression]) -> Results {
        let Some((last, others)) = expressions.split_last() else { return Results::default() };
        let mut values: Vec<_> = others.iter().map(|expression| self.expression(expression)).collect();
        let last = match &*last.kind {
            ExpressionKind::Call(..) | ExpressionKind::Method(..) => self.call(last),
            _ => self.expression(last).into(),
        };
        let least = values.len() + last.least;
        values.extend(last.values);
        Results { values, least }
    }

    /// Two integers.
    pub(super) fn operands(&mut self, left: &Expression, right: &Expression) -> [Operand; 2] {
        let slots = self.both(left, right);
        self.line = right.line;
        slots.map(|slot| self.integer(slot, "an operand"))
    }

    /// Two values, of which Lua needs both at once.
    pub(super) fn both(&mut self, left: &Expression, right: &Expression) -> [Slot; 2] {
        let [early, right] = [left, right].map(|one| self.expression(one));
        [self.late(left, early), right]
    }

    /// A value as it is after what came behind it: a local variable of the function itself is read where it is used, and
    /// something called meanwhile may have assigned to it.
    pub(super) fn late(&mut self, expression: &Expression, early: Slot) -> Slot {
        match &*expression.kind {
            ExpressionKind::Variable(Variable::Local(local)) if self.is_own(*local) => {
                self.expression(expression)
            }
            _ => early,
        }
    }

    fn is_own(&self, local: LocalId) -> bool {
        let function = self.functions.last().map(|inlined| inlined.function);
        Some(self.chunk.locals[local.0].function) == function
    }

    /// A condition as a value.
    fn decided(&mut self, expression: &Expression) -> Slot {
        let (then, otherwise) = self.condition(expression);
        let key = self.temporary();
        let states = [(then, 1), (otherwise, 0)].into_iter().filter_map(|(state, value)| {
            let mut state = state?;
            state.variables.insert(key.clone(), Slot::boolean(value));
            Some(state)
        });
        let states: Vec<_> = states.collect();
        self.join(states);
        self.take(&key)
    }

    /// `left and right`: the left value where it decides.
    fn and(&mut self, left: &Expression, right: &Expression) -> Slot {
        let value = self.expression(left);
        let (then, otherwise) = self.truth(&value);
        let key = self.temporary();
        let decided = otherwise.map(|mut state| {
            // What is not true and may not be false is nil.
            let value = match &value.shape {
                Shape::Optional(inner) if **inner != Shape::Boolean => Slot::nil(),
                Shape::Boolean => Slot::boolean(0),
                _ => value.clone(),
            };
            state.variables.insert(key.clone(), value);
            state
        });
        self.state = then;
        if self.state.is_some() {
            let value = self.expression(right);
            self.set(key.clone(), value);
        }
        let open = self.state.take();
        self.join(decided.into_iter().chain(open));
        self.take(&key)
    }

    /// `left or right`: the left value where it is true.
    fn or(&mut self, left: &Expression, right: &Expression) -> Slot {
        let key = self.temporary();
        let (decided, open) = self.true_value(left, &key);
        self.state = open;
        if self.state.is_some() {
            let value = self.expression(right);
            self.set(key.clone(), value);
        }
        let open = self.state.take();
        self.join(decided.into_iter().chain(open));
        self.take(&key)
    }

    /// Where an expression is true, with its value in a temporary, and where it is not. So `a and b or c` needs no value
    /// that is either false or b.
    fn true_value(&mut self, expression: &Expression, key: &Key) -> (Option<State>, Option<State>) {
        if let ExpressionKind::Binary(Binary::And, left, right) = &*expression.kind {
            let (then, first) = self.condition(left);
            self.state = then;
            let (then, second) = self.true_value(right, key);
            self.join(first.into_iter().chain(second));
            return (then, self.state.take());
        }
        let value = self.expression(expression);
        let (mut then, otherwise) = self.truth(&value);
        if let Some(state) = &mut then {
            let value = match value.shape {
                Shape::Boolean => Slot::boolean(1),
                _ => value.present(),
            };
            state.variables.insert(key.clone(), value);
        }
        (then, otherwise)
    }

    fn variable(&mut self, variable: &Variable) -> Slot {
        let Some(state) = &self.state else { return Slot::unclear() };
        if let Some(slot) = state.variables.get(&Key::from(variable)) {
            return slot.clone();
        }
        match variable {
            Variable::Global(name) if self.is_assigned(variable) => self.refuse(format!(
                "the global variable '{name}' lasts from packet to packet: make it local, or a table of the library"
            )),
            Variable::Global(name) => self.punt_global(name, self.top.global(name)),
            Variable::Local(local) => {
                let declared = &self.chunk.locals[local.0];
                let name = declared.name.clone();
                if declared.assigned && self.is_assigned(variable) {
                    let line = declared.line;
                    return self
                        .refuse(format!("'{name}' of line {line} lasts from packet to packet: it is assigned to"));
                }
                match self.top.local(*local) {
                    Some(known) => Slot::known(known),
                    None => self.refuse(format!(
                        "'{name}' of line {} is not in scope at the end of the file: what it is is not known",
                        declared.line
                    )),
                }
            }
        }
    }

    /// `object[key]`
    fn index(&mut self, object: Slot, key: Slot) -> Slot {
        let object = self.unwrap(object);
        match (&object.shape, &key.shape) {
            (Shape::Known(Known::Library(library)), Shape::Text(name)) => {
                Slot::known(self.top.field(library, &String::from_utf8_lossy(name)))
            }
            (Shape::Flow(shared), Shape::Text(name)) => self.flow_field(&shared.clone(), &object, name),
            (Shape::Bytes(_), _) if !self.is_present(&object) => Slot::unclear(),
            (Shape::Bytes(_), _) => {
                let place = self.integer(key, "the index");
                self.byte(&object, place)
            }
            (Shape::Known(Known::Table(entries)), _) => {
                let entries = entries.clone();
                self.punt_table();
                match key.shape {
                    Shape::PacketText(..) => self.text_lookup(&entries, &key),
                    _ => self.lookup(&entries, &key),
                }
            }
            (Shape::OneOf(_), _) => {
                self.each(&object, |lower, variant| lower.index(variant.clone(), key.clone()))
            }
            (Shape::Unclear, _) => {
                self.refuse_use("what is indexed");
                Slot::unclear()
            }
            (shape, _) => {
                let name = shape.name();
                self.refuse(format!("{name} is indexed"))
            }
        }
    }

    /// What a table of the top level has for a key.
    fn lookup(&mut self, entries: &[(Known, Known)], key: &Slot) -> Slot {
        let result = self.temporary();
        let mut states = Vec::new();
        for (known, value) in entries {
            if self.state.is_none() {
                break;
            }
            let equal = self.equal(&Slot::known(known.clone()), key);
            let (this, others) = self.branch(Condition::NotEqual, equal, 0.into());
            self.state = this;
            self.set(result.clone(), Slot::known(value.clone()));
            states.extend(self.state.take());
            self.state = others;
        }
        self.set(result.clone(), Slot::nil());
        states.extend(self.state.take());
        self.join(states);
        self.take(&result)
    }

    /// One byte of a byte array.
    fn byte(&mut self, bytes: &Slot, place: Operand) -> Slot {
        let at = self.within([bytes.parts[0], bytes.parts[1]], place, 1.into());
        Slot::integer(self.load(at, 1))
    }

    /// Where bytes of a part of the packet are in the packet, once it is sure that they are within it.
    pub(super) fn within(
        &mut self,
        [start, available]: [Operand; 2],
        offset: Operand,
        length: Operand,
    ) -> Operand {
        // Of numbers that are known, their sum says it.
        if let (Operand::Constant(known), Operand::Constant(more)) = (offset, length)
            && known >= 0
            && let Some(end) = known.checked_add(more)
        {
            self.fail_if(Condition::Below, available, end, Failure::OutsidePacket);
            return self.calculate(Operation::Add, start, offset);
        }
        if length == Operand::Constant(1) {
            let (inside, outside) = self.branch(Condition::Below, offset, available);
            self.state = outside;
            self.fail(Failure::OutsidePacket);
            self.state = inside;
            return self.calculate(Operation::Add, start, offset);
        }
        self.fail_if(Condition::Below, available, offset, Failure::OutsidePacket);
        let left = self.calculate(Operation::Subtract, available, offset);
        self.fail_if(Condition::Below, left, length, Failure::OutsidePacket);
        self.calculate(Operation::Add, start, offset)
    }
}

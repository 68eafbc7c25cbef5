//! Statements.

use super::write::Piece;
use super::{Key, Lower};
use crate::compile::slot::{Shape, Slot};
use crate::syntax::tree::{Block, Expression, ExpressionKind, Statement, StatementKind, Target};

impl Lower<'_> {
    /// Follows statements, as far as something leads to them.
    pub(super) fn block(&mut self, block: &Block) {
        for statement in block {
            if self.state.is_none() {
                return;
            }
            self.line = statement.line;
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match &statement.kind {
            StatementKind::Local(names, values) => {
                let mut values = self.values(values).into_iter();
                for name in names {
                    self.set(Key::Local(*name), values.next().unwrap_or_else(Slot::nil));
                }
            }
            StatementKind::Assign(targets, values) => self.assign(targets, values),
            StatementKind::Call(call) => drop(self.call(call)),
            StatementKind::Do(block) => self.block(block),
            StatementKind::If(arms, rest) => {
                let mut ends = Vec::new();
                for (condition, block) in arms {
                    let (then, otherwise) = self.condition(condition);
                    self.state = then;
                    self.block(block);
                    ends.extend(self.state.take());
                    self.state = otherwise;
                    if self.state.is_none() {
                        break;
                    }
                }
                self.block(rest);
                ends.extend(self.state.take());
                self.join(ends);
            }
            StatementKind::While(condition, body) => self.while_loop(condition, body),
            StatementKind::Repeat(body, condition) => self.repeat_loop(body, condition),
            StatementKind::For { variable, from, to, step, body } => {
                self.numeric_for(*variable, [Some(from), Some(to), step.as_ref()], body);
            }
            StatementKind::ForIn(..) => drop(self.refuse("'for … in': only loops over numbers are compiled")),
            StatementKind::Return(values) => {
                let results = self.list(values);
                if results.values.iter().any(|value| self.is_made_here(&value.shape)) {
                    self.refuse("a function that is made for each packet is returned");
                }
                if let (Some(state), Some(inlined)) = (self.state.take(), self.functions.last_mut()) {
                    inlined.returns.push((state, results));
                }
            }
            StatementKind::Break => {
                let breaks = self.functions.last_mut().and_then(|inlined| inlined.breaks.last_mut());
                if let (Some(state), Some(breaks)) = (self.state.take(), breaks) {
                    breaks.push(state);
                }
            }
            StatementKind::Goto(name) => {
                self.refuse(format!("'goto {name}'"));
                self.state = None;
            }
            StatementKind::Label => {}
        }
    }

    fn assign(&mut self, targets: &[Target], values: &[Expression]) {
        // Objects and keys go first. Lua leaves open in which order values are assigned; ours begins with the last.
        let mut places = Vec::new();
        for target in targets {
            places.push(match target {
                Target::Variable(variable) => {
                    self.punt_assigned(variable);
                    Err(Key::from(variable))
                }
                Target::Index(object, key) => Ok((self.expression(object), self.expression(key))),
            });
        }
        let mut values = self.values(values);
        values.resize_with(places.len(), Slot::nil);
        for (number, (place, target)) in places.iter_mut().zip(targets).enumerate() {
            let (Ok((object, key)), Target::Index(of, at)) = (place, target) else { continue };
            for (slot, expression) in [(object, of), (key, at)] {
                // One that is assigned to with it is as it was before.
                let is_target = |target: &Target| match (target, &*expression.kind) {
                    (Target::Variable(assigned), ExpressionKind::Variable(variable)) => assigned == variable,
                    _ => false,
                };
                if !targets[number..].iter().any(is_target) {
                    *slot = self.late(expression, slot.clone());
                }
            }
        }
        for (place, value) in places.into_iter().zip(values).rev() {
            match place {
                Err(_) if self.is_made_here(&value.shape) => {
                    self.refuse("a function that is made for each packet is assigned: say 'local function'");
                }
                Err(key) => self.set(key, value),
                Ok((object, key)) => self.assign_index(object, key, value),
            }
        }
    }

    fn assign_index(&mut self, object: Slot, key: Slot, value: Slot) {
        let object = self.unwrap(object);
        if let (Shape::Flow(shared), Shape::Text(name)) = (&object.shape, &key.shape) {
            return self.set_flow_field(shared, &object, name, value);
        }
        if !matches!(object.shape, Shape::Bytes(_)) {
            let name = object.shape.name();
            self.refuse(format!("a field of {name} is assigned to"));
            return;
        }
        if !self.is_present(&object) {
            return;
        }
        let place = self.integer(key, "the index");
        let value = self.integer(value, "the byte");
        self.fail_unless_byte(value);
        let at = self.within([object.parts[0], object.parts[1]], place, 1.into());
        self.write(at, &[Piece { bytes: 1, value }], false);
    }
}

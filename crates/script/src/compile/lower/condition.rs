//! Conditions: control flow, without values.

use super::field::{address, numbers};
use super::{Key, Lower, State};
use crate::compile::ir::{Condition, Operand, Operation};
use crate::compile::known::Known;
use crate::compile::slot::{Shape, Slot};
use crate::kind::{Kind, Value};
use crate::syntax::tree::{Binary, Expression, ExpressionKind, Unary};

impl Lower<'_> {
    /// Follows an expression as a condition: where it is true, and where not. We are on neither then.
    pub(super) fn condition(&mut self, expression: &Expression) -> (Option<State>, Option<State>) {
        self.line = expression.line;
        match &*expression.kind {
            ExpressionKind::Unary(Unary::Not, inner) => {
                let (then, otherwise) = self.condition(inner);
                (otherwise, then)
            }
            ExpressionKind::Binary(Binary::And, left, right) => {
                let (then, first) = self.condition(left);
                self.state = then;
                let (then, second) = self.condition(right);
                self.join(first.into_iter().chain(second));
                (then, self.state.take())
            }
            ExpressionKind::Binary(Binary::Or, left, right) => {
                let (first, otherwise) = self.condition(left);
                self.state = otherwise;
                let (second, otherwise) = self.condition(right);
                self.join(first.into_iter().chain(second));
                (self.state.take(), otherwise)
            }
            ExpressionKind::Binary(Binary::Equal, left, right) => self.equality(left, right),
            ExpressionKind::Binary(Binary::NotEqual, left, right) => {
                let (then, otherwise) = self.equality(left, right);
                (otherwise, then)
            }
            ExpressionKind::Binary(
                operator @ (Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual),
                left,
                right,
            ) => {
                let [left, right] = self.operands(left, right);
                let (condition, left, right) = match operator {
                    Binary::Less => (Condition::Less, left, right),
                    Binary::LessOrEqual => (Condition::LessOrEqual, left, right),
                    Binary::Greater => (Condition::Less, right, left),
                    _ => (Condition::LessOrEqual, right, left),
                };
                self.branch(condition, left, right)
            }
            ExpressionKind::Variable(variable) => {
                let slot = self.expression(expression);
                let (then, otherwise) = self.truth(&slot);
                self.narrow(&variable.into(), &slot, then, otherwise)
            }
            _ => {
                let slot = self.expression(expression);
                self.truth(&slot)
            }
        }
    }

    /// Where a value is neither nil nor false, and where it is.
    pub(super) fn truth(&mut self, slot: &Slot) -> (Option<State>, Option<State>) {
        match slot.truth() {
            Some(true) => (self.state.take(), None),
            Some(false) => (None, self.state.take()),
            None if slot.shape == Shape::Unclear => {
                self.refuse_use("the condition");
                self.branch(Condition::NotEqual, Operand::Constant(0), Operand::Constant(1))
            }
            None => {
                // Of what may be nil or false, only the one or the other is left.
                if slot.shape == Shape::Optional(Box::new(Shape::Boolean)) {
                    let both = self.calculate(Operation::And, slot.parts[0], slot.parts[1]);
                    return self.branch(Condition::NotEqual, both, 0.into());
                }
                self.branch(Condition::NotEqual, slot.parts[0], 0.into())
            }
        }
    }

    /// A variable that may be nil is not, where it was found true; and is, where not.
    fn narrow(
        &mut self,
        key: &Key,
        slot: &Slot,
        mut then: Option<State>,
        mut otherwise: Option<State>,
    ) -> (Option<State>, Option<State>) {
        if let Shape::Optional(inner) = &slot.shape {
            if let Some(variable) = then.as_mut().and_then(|state| state.variables.get_mut(key)) {
                *variable = slot.present();
            }
            if **inner != Shape::Boolean
                && let Some(variable) = otherwise.as_mut().and_then(|state| state.variables.get_mut(key))
            {
                *variable = Slot::nil();
            }
        }
        (then, otherwise)
    }

    /// `left == right`
    fn equality(&mut self, left: &Expression, right: &Expression) -> (Option<State>, Option<State>) {
        let [one, other] = self.both(left, right);
        // `x == nil`
        for (slot, nil, expression) in [(&one, &other, left), (&other, &one, right)] {
            if nil.shape == Shape::Nil && matches!(slot.shape, Shape::Optional(_)) {
                let (nil, present) = self.branch(Condition::Equal, slot.parts[0], 0.into());
                let ExpressionKind::Variable(variable) = &*expression.kind else { return (nil, present) };
                let (present, nil) = self.narrow(&variable.into(), slot, present, nil);
                return (nil, present);
            }
        }
        let equal = self.equal(&one, &other);
        self.branch(Condition::NotEqual, equal, 0.into())
    }

    /// 1 if two values are equal.
    pub(super) fn equal(&mut self, one: &Slot, other: &Slot) -> Operand {
        match (&one.shape, &other.shape) {
            (Shape::Unclear, _) | (_, Shape::Unclear) => self.refuse_use("what is compared"),
            (Shape::Optional(_), _) | (_, Shape::Optional(_)) => {
                // Both there and equal, or neither.
                let there = [&one, &other].map(|slot| match slot.shape {
                    Shape::Optional(_) => slot.parts[0],
                    _ => i64::from(slot.shape != Shape::Nil).into(),
                });
                let same = self.compare(Condition::Equal, there[0], there[1]);
                let equal = self.equal(&one.present(), &other.present());
                let absent = self.compare(Condition::Equal, there[0], 0);
                let either = self.calculate(Operation::Or, equal, absent);
                self.calculate(Operation::And, same, either)
            }
            (Shape::Integer | Shape::Boolean, _) if one.shape == other.shape => {
                self.compare(Condition::Equal, one.parts[0], other.parts[0])
            }
            (Shape::OneOf(_), _) => {
                let equal = self.each(one, |lower, one| Slot::integer(lower.equal(one, other)));
                equal.parts.first().copied().unwrap_or(Operand::Constant(0))
            }
            (_, Shape::OneOf(_)) => self.equal(other, one),
            (Shape::Address(kind), Shape::Address(_)) if one.shape == other.shape => {
                let equal = self.compare(Condition::Equal, one.parts[0], other.parts[0]);
                if *kind != Kind::Ipv6 {
                    return equal;
                }
                let rest = self.compare(Condition::Equal, one.parts[1], other.parts[1]);
                self.calculate(Operation::And, equal, rest)
            }
            // As strings: one that is not written as the address would be is never equal.
            (Shape::Address(kind), Shape::Text(text)) => match address(*kind, text) {
                Some(address) if kind.read(&address) == Value::Text(text.to_vec()) => {
                    let address = Slot::new(one.shape.clone(), numbers(&address));
                    self.equal(one, &address)
                }
                _ => 0.into(),
            },
            (Shape::Text(_), Shape::Address(_) | Shape::PacketText(..)) => self.equal(other, one),
            (Shape::PacketText(..), Shape::Text(known)) => self.is_text(one, known),
            (Shape::PacketText(..), Shape::PacketText(..) | Shape::Address(_))
            | (Shape::Address(_), Shape::PacketText(..)) => {
                self.refuse("a string of the packet is compared with another");
                Operand::Constant(0)
            }
            (
                Shape::Bytes(_) | Shape::View(_) | Shape::Field(..),
                Shape::Bytes(_) | Shape::View(_) | Shape::Field(..),
            ) => {
                self.refuse("two parts of the packet are compared");
                Operand::Constant(0)
            }
            (Shape::Flow(_), Shape::Flow(_)) | (Shape::Stream, Shape::Stream) => {
                let name = one.shape.name();
                self.refuse(format!("{name} is compared with another"));
                Operand::Constant(0)
            }
            // It may be equal to what looks different: a float to an integer, what has a metatable to anything.
            (Shape::Known(Known::Other(_)), known) | (known, Shape::Known(Known::Other(_)))
                if *known != Shape::Nil =>
            {
                let [one, other] = [&one.shape, &other.shape].map(Shape::name);
                self.refuse(format!("{one} is compared with {other}"));
                Operand::Constant(0)
            }
            (Shape::Known(known), shape) if one.shape == *shape && !is_one(known) => {
                let name = known.name();
                self.refuse(format!("{name} is compared with one that is the same or just like it"));
                Operand::Constant(0)
            }
            (one, other) => i64::from(one == other).into(),
        }
    }
}

/// Whether there is one thing only that looks like this: of all others there may be several, and each is another to Lua.
const fn is_one(known: &Known) -> bool {
    matches!(known, Known::Library(_) | Known::Protocol(_))
}

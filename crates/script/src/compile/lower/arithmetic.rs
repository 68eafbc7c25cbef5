//! Operators on integers, as Lua 5.4 has them (3.4.1, 3.4.2).

use super::Lower;
use crate::compile::ir::{Condition, Failure, Operand, Operation};
use crate::compile::known::Known;
use crate::compile::slot::{Shape, Slot};
use crate::kind::Kind;
use crate::syntax::tree::{Binary, Expression, Unary};

/// What an IPv4-mapped address has before the IPv4 address in its second half (RFC 4291 section 2.5.5.2).
pub(super) const MAPPED: i64 = 0xffff << 32;

impl Lower<'_> {
    pub(super) fn unary(&mut self, operator: Unary, operand: Slot) -> Slot {
        if operator == Unary::Length {
            let operand = self.unwrap(operand);
            return self.each(&operand, Lower::length);
        }
        let operand = self.integer(operand, "the operand");
        Slot::integer(match operator {
            Unary::Negate => self.calculate(Operation::Subtract, 0, operand),
            _ => self.calculate(Operation::Xor, operand, -1),
        })
    }

    fn length(&mut self, of: &Slot) -> Slot {
        match &of.shape {
            Shape::Text(bytes) => Slot::integer(bytes.len() as i64),
            Shape::PacketText(..) => Slot::integer(of.parts[1]),
            Shape::Bytes(_) | Shape::View(_) | Shape::Field(..) if !self.is_present(of) => Slot::unclear(),
            Shape::Bytes(_) | Shape::View(_) | Shape::Field(..) => match self.octets(of, None) {
                Some([_, length]) => Slot::integer(length),
                None => Slot::unclear(),
            },
            Shape::Known(Known::Table(entries)) => {
                self.punt_table();
                let has = |number| entries.iter().any(|(key, _)| *key == Known::Integer(number));
                let end = (1..).find(|number| !has(*number)).unwrap_or(1) - 1;
                let is_behind = |key: &Known| matches!(key, Known::Integer(number) if *number > end);
                if entries.iter().any(|(key, _)| is_behind(key)) {
                    // Lua may take any entry before a gap for the last one (3.4.7).
                    return self.refuse("the length of a table with gaps: it has no last entry");
                }
                Slot::integer(end)
            }
            Shape::Address(Kind::Mac) => Slot::integer(17),
            shape => {
                let name = shape.name();
                self.refuse(format!("the length of {name}"))
            }
        }
    }

    pub(super) fn binary(&mut self, operator: Binary, left: &Expression, right: &Expression) -> Slot {
        let line = self.line;
        if operator == Binary::Concatenate {
            let [left, right] = [left, right].map(|operand| self.expression(operand));
            self.line = line;
            return self.concatenate(&left, &right);
        }
        let [left, right] = self.operands(left, right);
        self.line = line;
        let simple = match operator {
            Binary::Add => Operation::Add,
            Binary::Subtract => Operation::Subtract,
            Binary::Multiply => Operation::Multiply,
            Binary::BitAnd => Operation::And,
            Binary::BitOr => Operation::Or,
            Binary::BitXor => Operation::Xor,
            Binary::ShiftLeft => return Slot::integer(self.shift(left, right)),
            Binary::ShiftRight => {
                let right = self.calculate(Operation::Subtract, 0, right);
                return Slot::integer(self.shift(left, right));
            }
            Binary::FloorDivide | Binary::Modulo => {
                return Slot::integer(self.divide(left, right, operator == Binary::Modulo));
            }
            _ => {
                return self.refuse(
                    "'/' and '^' give floats, and there are none in the kernel: '//' divides integers",
                );
            }
        };
        Slot::integer(self.calculate(simple, left, right))
    }

    fn concatenate(&mut self, left: &Slot, right: &Slot) -> Slot {
        let text = |slot: &Slot| match (&slot.shape, slot.parts.first()) {
            (Shape::Text(bytes), _) => Some(bytes.to_vec()),
            (Shape::Integer, Some(Operand::Constant(number))) => Some(number.to_string().into_bytes()),
            _ => None,
        };
        match (text(left), text(right)) {
            (Some(left), Some(right)) => Slot::text(&[left, right].concat()),
            (Some(prefix), None) if right.shape == Shape::Address(Kind::Ipv4) && prefix == b"::ffff:" => {
                let low = self.calculate(Operation::Or, right.parts[0], MAPPED);
                Slot::new(Shape::Address(Kind::Ipv6), [0.into(), low])
            }
            _ => self.refuse("strings are made for each packet"),
        }
    }

    /// `value << by`: negative is to the right, 64 and more leave nothing.
    fn shift(&mut self, value: Operand, by: Operand) -> Operand {
        let right = self.calculate(Operation::Subtract, 0, by);
        let one_way = |lower: &mut Self, operation, by: Operand| {
            let possible = lower.compare(Condition::Below, by, 64);
            let amount = lower.calculate(Operation::And, by, 63);
            let shifted = lower.calculate(operation, value, amount);
            let mask = lower.calculate(Operation::Subtract, 0, possible);
            lower.calculate(Operation::And, shifted, mask)
        };
        let left = one_way(self, Operation::ShiftLeft, by);
        // One of the two is nothing, unless both are the value itself.
        let right = one_way(self, Operation::ShiftRight, right);
        self.calculate(Operation::Or, left, right)
    }

    /// `left // right`, rounded down, or `left % right`, with the sign of the right one.
    fn divide(&mut self, left: Operand, right: Operand, remainder: bool) -> Operand {
        self.fail_if(Condition::Equal, right, 0, Failure::DivisionByZero);
        if let Operand::Constant(power) = right
            && power > 0
            && power & (power - 1) == 0
            && remainder
        {
            return self.calculate(Operation::And, left, power - 1);
        }
        if self.range(left).0 >= 0 && self.range(right).0 > 0 {
            return self.calculate(
                if remainder { Operation::Modulo } else { Operation::Divide },
                left,
                right,
            );
        }
        // The kernel divides without signs.
        let [(left_sign, left_size), (right_sign, right_size)] = [left, right].map(|operand| {
            let sign = self.calculate(Operation::ShiftRight, operand, 63);
            let sign = self.calculate(Operation::Subtract, 0, sign);
            (sign, self.signed(operand, sign))
        });
        let quotient = self.calculate(Operation::Divide, left_size, right_size);
        let rest = self.calculate(Operation::Modulo, left_size, right_size);
        let sign = self.calculate(Operation::Xor, left_sign, right_sign);
        let quotient = self.signed(quotient, sign);
        let inexact = self.compare(Condition::NotEqual, rest, 0);
        let down = self.calculate(Operation::And, inexact, sign);
        let quotient = self.calculate(Operation::Subtract, quotient, down);
        if !remainder {
            return quotient;
        }
        let product = self.calculate(Operation::Multiply, quotient, right);
        let rest = self.calculate(Operation::Subtract, left, product);
        if let Operand::Constant(right @ 1..) = right {
            self.within_all(rest, &[(0, right - 1)]);
        }
        rest
    }

    /// The negative, where the sign is -1; the number itself, where it is 0.
    fn signed(&mut self, number: Operand, sign: Operand) -> Operand {
        let flipped = self.calculate(Operation::Xor, number, sign);
        self.calculate(Operation::Subtract, flipped, sign)
    }
}

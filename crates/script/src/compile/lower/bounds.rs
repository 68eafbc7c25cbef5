//! What is known of the size of numbers, and access to a packet that has no link header, where that has to be known.

use super::Lower;
use crate::compile::ir::{Action, Operand, Operation, Value};

/// Length of the Ethernet header, a true one or one that is made up.
pub(super) const LINK: i64 = wire::ethernet::HEADER_LEN as i64;
/// Larger numbers are not kept account of: sums and products of smaller ones fit into 64 bits.
const LARGEST: i64 = 1 << 30;

/// What comes before a packet without a link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// It has one.
    There,
    /// It is made up: zeros and this EtherType.
    MadeUp(u16),
}

impl Lower<'_> {
    /// Bytes of the packet, where it is known that they are there.
    pub(super) fn load(&mut self, offset: impl Into<Operand>, bytes: u8) -> Operand {
        let offset = offset.into();
        let Link::MadeUp(ethertype) = self.link else { return self.emit(Action::Load { offset, bytes }) };
        let made_up = match offset {
            Operand::Constant(at @ 0..LINK) => at,
            offset if self.is_behind_link(offset) => return self.emit(Action::Load { offset, bytes }),
            _ => return self.refuse_place(),
        };
        let mut value = Operand::Constant(0);
        for at in made_up..(made_up + i64::from(bytes)).min(LINK) {
            let byte = match at {
                12 => ethertype >> 8,
                13 => ethertype & 0xff,
                _ => 0,
            };
            let high = self.calculate(Operation::ShiftLeft, value, 8);
            value = self.calculate(Operation::Or, high, i64::from(byte));
        }
        let rest = made_up + i64::from(bytes) - LINK;
        if rest > 0 {
            let low = self.emit(Action::Load { offset: LINK.into(), bytes: rest as u8 });
            let high = self.calculate(Operation::ShiftLeft, value, rest * 8);
            value = self.calculate(Operation::Or, high, low);
        }
        value
    }

    /// How much of a piece at this offset is in a link header that is made up, and so is not written.
    pub(super) fn made_up(&mut self, offset: Operand, bytes: u8) -> u8 {
        match (self.link, offset) {
            (Link::MadeUp(_), Operand::Constant(at @ 0..LINK)) => (LINK - at).min(i64::from(bytes)) as u8,
            (Link::MadeUp(_), offset) if !self.is_behind_link(offset) => {
                self.refuse_place();
                0
            }
            _ => 0,
        }
    }

    fn refuse_place(&mut self) -> Operand {
        self.refuse("where in the packet this is, is not known well enough without a link header");
        Operand::Constant(0)
    }

    fn is_behind_link(&self, offset: Operand) -> bool {
        self.bounds(offset).is_some_and(|(least, _)| least >= LINK)
    }

    /// Whether both are known to be small and not negative.
    pub(super) fn are_small(&self, left: Operand, right: Operand) -> bool {
        [left, right].into_iter().all(|operand| self.bounds(operand).is_some_and(|(least, _)| least >= 0))
    }

    /// The least and the greatest that a number can be.
    fn bounds(&self, operand: Operand) -> Option<(i64, i64)> {
        match operand {
            Operand::Constant(number) => (-LARGEST..=LARGEST).contains(&number).then_some((number, number)),
            Operand::Value(value) => self.bounds.get(&value).copied(),
        }
    }

    /// Notes what is known of the result of an instruction.
    pub(super) fn note_bounds(&mut self, result: Value, action: &Action) {
        let known = match *action {
            Action::Load { bytes: bytes @ 1..=3, .. } => Some((0, (1 << (8 * bytes)) - 1)),
            Action::Length => Some((if self.link == Link::There { 0 } else { LINK }, 1 << 24)),
            Action::Compare(..) => Some((0, 1)),
            Action::Calculate(Operation::And, _, Operand::Constant(mask @ 0..)) => Some((0, mask)),
            Action::Calculate(Operation::ShiftRight, _, Operand::Constant(63)) => Some((0, 1)),
            Action::Calculate(operation, left, right) => match (self.bounds(left), self.bounds(right)) {
                (Some((low, high)), Some((least, most))) => match operation {
                    Operation::Add => Some((low + least, high + most)),
                    Operation::Subtract => Some((low - most, high - least)),
                    Operation::Xor if low >= 0 && high <= 1 && least >= 0 && most <= 1 => Some((0, 1)),
                    Operation::Multiply if low >= 0 && least >= 0 => Some((low * least, high * most)),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        };
        self.bound(result, known);
    }

    /// Notes that a value is one of these.
    pub(super) fn bounds_of_all(&mut self, value: Value, of: &[Operand]) {
        let all: Option<Vec<_>> = of.iter().map(|operand| self.bounds(*operand)).collect();
        let hull = all.and_then(|all| {
            Some((all.iter().map(|(low, _)| *low).min()?, all.iter().map(|(_, high)| *high).max()?))
        });
        self.bound(value, hull);
    }

    fn bound(&mut self, value: Value, known: Option<(i64, i64)>) {
        if let Some((low, high)) = known.filter(|(low, high)| *low >= -LARGEST && *high <= LARGEST) {
            self.bounds.insert(value, (low, high));
        }
    }
}

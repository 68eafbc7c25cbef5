//! What is known of the size of numbers, and access to a packet that has no link header, where that has to be known.

use std::collections::BTreeMap;

use super::{LINK, Link, Lower, Range, State};
use crate::compile::attach_type::ADDRESSES;
use crate::compile::ir::{Action, Condition, Operand, Operation, Value};

/// Of larger numbers nothing is known after they were added: sums of smaller ones fit into 64 bits.
const LARGEST: i64 = 1 << 48;
/// Of what nothing is known.
pub(super) const ANY: Range = (i64::MIN, i64::MAX);
/// Values of which a state knows more than what they are everywhere.
const MOST_NARROWED: usize = 64;

impl Lower<'_> {
    /// Bytes of the packet, where it is known that they are there.
    pub(super) fn load(&mut self, offset: impl Into<Operand>, bytes: u8) -> Operand {
        let offset = offset.into();
        let ethertype = match self.link {
            Link::There => return self.emit(Action::Load { offset, bytes }),
            Link::Tagged => return self.load_around_tag(offset, bytes),
            Link::MadeUp(ethertype) => ethertype,
        };
        let made_up = match offset {
            Operand::Constant(..ADDRESSES) => return self.refuse_link("to read an address of"),
            Operand::Constant(at @ ADDRESSES..LINK) => at,
            offset if self.is_behind_link(offset) => return self.emit(Action::Load { offset, bytes }),
            _ => return self.refuse_place(),
        };
        let mut value = Operand::Constant(0);
        for at in made_up..(made_up + i64::from(bytes)).min(LINK) {
            let byte = if at == ADDRESSES { ethertype >> 8 } else { ethertype & 0xff };
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

    /// What may lie on both sides of a tag is read byte by byte.
    fn load_around_tag(&mut self, offset: Operand, bytes: u8) -> Operand {
        let is_apart = match offset {
            Operand::Constant(at) => at + i64::from(bytes) <= ADDRESSES || at >= ADDRESSES,
            offset => bytes == 1 || self.is_behind_link(offset),
        };
        if is_apart {
            return self.emit(Action::Load { offset, bytes });
        }
        let mut value = Operand::Constant(0);
        for number in 0..bytes {
            let at = self.calculate(Operation::Add, offset, i64::from(number));
            let byte = self.emit(Action::Load { offset: at, bytes: 1 });
            let high = self.calculate(Operation::ShiftLeft, value, 8);
            value = self.calculate(Operation::Or, high, byte);
        }
        value
    }

    /// Whether what begins at this offset can be written: not in a link header that is made up.
    pub(super) fn is_there(&mut self, offset: Operand) -> bool {
        let is_there = !matches!(self.link, Link::MadeUp(_)) || self.is_behind_link(offset);
        if !is_there {
            match offset {
                Operand::Constant(..LINK) => self.refuse_link("to write"),
                Operand::Constant(_) | Operand::Value(_) => self.refuse_place(),
            };
        }
        is_there
    }

    fn refuse_link(&mut self, what: &str) -> Operand {
        self.refuse(format!("packets come without a link header {what}"));
        Operand::Constant(0)
    }

    fn refuse_place(&mut self) -> Operand {
        self.refuse("where in the packet this is, is not known well enough without a link header");
        Operand::Constant(0)
    }

    fn is_behind_link(&self, offset: Operand) -> bool {
        self.bounds(offset).is_some_and(|(least, _)| least >= LINK)
    }

    /// Whether a mask of the lowest bits leaves a number what it is.
    pub(super) fn is_within(&self, operand: Operand, mask: i64) -> bool {
        let (least, most) = self.range(operand);
        least >= 0 && most <= mask && mask & mask.wrapping_add(1) == 0
    }

    /// Whether both are known to be small and not negative.
    pub(super) fn are_small(&self, left: Operand, right: Operand) -> bool {
        [left, right].into_iter().all(|operand| self.bounds(operand).is_some_and(|(least, _)| least >= 0))
    }

    /// The least and the greatest that a number can be here.
    pub(super) fn range(&self, operand: Operand) -> Range {
        self.range_in(self.state.as_ref(), operand)
    }

    pub(super) fn range_in(&self, state: Option<&State>, operand: Operand) -> Range {
        match operand {
            Operand::Constant(number) => (number, number),
            Operand::Value(value) => {
                let narrowed = state.and_then(|state| state.narrowed.get(&value));
                narrowed.or_else(|| self.ranges.get(&value)).copied().unwrap_or(ANY)
            }
        }
    }

    /// The same, if sums of such numbers are no larger than 64 bits.
    pub(super) fn bounds(&self, operand: Operand) -> Option<Range> {
        Some(self.range(operand)).filter(|(low, high)| *low >= -LARGEST && *high <= LARGEST)
    }

    /// What two numbers can be where a condition holds between them, or does not. None: that cannot be.
    pub(super) fn ranges_if(
        &self,
        condition: Condition,
        operands: [Operand; 2],
        holds: bool,
    ) -> Option<[Range; 2]> {
        if let [left, right] = operands
            && let Some(distance) = self.distance(left, right)
            && !may_hold(condition, distance, holds, operands.map(|operand| self.range(operand).0 >= 0))
        {
            return None;
        }
        let [left, right] = operands.map(|operand| self.range(operand));
        let ((low, high), (least, most)) = (left, right);
        let below = |number: i64| number.saturating_sub(1);
        let above = |number: i64| number.saturating_add(1);
        let ranges = match (condition, holds) {
            (Condition::Equal, true) | (Condition::NotEqual, false) => {
                let both = (low.max(least), high.min(most));
                [both, both]
            }
            (Condition::Equal, false) | (Condition::NotEqual, true) => {
                [without(left, right), without(right, left)]
            }
            (Condition::Less, true) => [(low, high.min(below(most))), (least.max(above(low)), most)],
            (Condition::Less, false) => [(low.max(least), high), (least, most.min(high))],
            (Condition::LessOrEqual, true) => [(low, high.min(most)), (least.max(low), most)],
            (Condition::LessOrEqual, false) => {
                [(low.max(above(least)), high), (least, most.min(below(high)))]
            }
            // Of two numbers of which neither is negative, as without "unsigned"; what is below one is none either.
            (Condition::Below, true) if least >= 0 => {
                [(low.max(0), high.min(below(most))), (least.max(above(low)), most)]
            }
            (Condition::Below, false) if least >= 0 && low >= 0 => {
                [(low.max(least), high), (least, most.min(high))]
            }
            (Condition::Below, _) => [left, right],
        };
        ranges.iter().all(|(low, high)| low <= high).then_some(ranges)
    }

    /// Notes what is known of the result of an instruction.
    pub(super) fn note_range(&mut self, result: Value, action: &Action) {
        let range = match *action {
            Action::Load { bytes: bytes @ 1..=7, .. } => Some((0, (1 << (8 * bytes)) - 1)),
            Action::Length => Some((if matches!(self.link, Link::MadeUp(_)) { LINK } else { 0 }, 1 << 24)),
            Action::Compare(..) => Some((0, 1)),
            Action::Tag => Some((0, (1 << 17) - 1)),
            Action::Random => Some((0, u32::MAX.into())),
            Action::Calculate(operation, left, right) => self.range_of(operation, left, right),
            _ => None,
        };
        if let Some(range) = range {
            self.ranges.insert(result, range);
        }
    }

    fn range_of(&self, operation: Operation, left: Operand, right: Operand) -> Option<Range> {
        // Of what is not negative, whatever its size.
        let positive = |operand| Some(self.range(operand)).filter(|(low, _)| *low >= 0);
        let by = match right {
            Operand::Constant(by) => Some(by),
            Operand::Value(_) => None,
        };
        match (operation, by) {
            (Operation::And, _) => {
                let most = [left, right].into_iter().filter_map(positive).map(|(_, high)| high).min()?;
                return Some((0, most));
            }
            (Operation::ShiftRight, Some(by @ 1..=63)) => {
                let (low, high) = positive(left).unwrap_or((0, -1));
                return Some(((low as u64 >> by) as i64, (high as u64 >> by) as i64));
            }
            (Operation::Divide, Some(by @ 1..)) => {
                return positive(left).map(|(low, high)| (low / by, high / by));
            }
            (Operation::Modulo, Some(by @ 1..)) => return Some((0, by - 1)),
            _ => {}
        }
        let ((low, high), (least, most)) = (self.bounds(left)?, self.bounds(right)?);
        match operation {
            Operation::Add => Some((low + least, high + most)),
            Operation::Subtract => Some((low - most, high - least)),
            Operation::Multiply => hull(
                [low, high]
                    .into_iter()
                    .flat_map(|one| [least, most].map(|other| i128::from(one) * i128::from(other))),
            ),
            Operation::ShiftLeft if low >= 0 && by.is_some_and(|by| by < 32) => {
                hull([low, high].into_iter().map(|one| i128::from(one) << least))
            }
            Operation::Or | Operation::Xor if low >= 0 && least >= 0 => {
                // No bit is set above the highest one of both.
                Some((0, i64::MAX >> (high | most).leading_zeros().saturating_sub(1)))
            }
            _ => None,
        }
    }

    /// Notes that a number that was just made lies within one of these.
    pub(super) fn within_all(&mut self, result: Operand, of: &[Range]) {
        if let (Operand::Value(value), Some(range)) = (result, of.iter().copied().reduce(around)) {
            self.ranges.insert(value, range);
        }
    }

    /// Notes that a value is one of these, each as it is in its state.
    pub(super) fn range_of_all<'s>(&mut self, value: Value, of: impl Iterator<Item = (&'s State, Operand)>) {
        let range = of.map(|(state, operand)| self.range_in(Some(state), operand)).reduce(around);
        if let Some(range) = range.filter(|range| *range != ANY) {
            self.ranges.insert(value, range);
        }
    }
}

impl State {
    /// Notes what a number is from here on.
    pub(super) fn narrow(&mut self, operand: Operand, range: Range) {
        let Operand::Value(value) = operand else { return };
        if self.narrowed.len() == MOST_NARROWED {
            self.forget_unreachable();
        }
        self.narrowed.insert(value, range);
    }

    /// Keeps what is known of values of variables only.
    pub(super) fn forget_unreachable(&mut self) {
        let parts = self.variables.values().flat_map(|slot| &slot.parts);
        let reachable = parts.filter_map(|part| match part {
            Operand::Value(value) => Some((*value, *self.narrowed.get(value)?)),
            Operand::Constant(_) => None,
        });
        self.narrowed = reachable.collect();
    }
}

/// What is known in all states where ways meet.
pub(super) fn common(states: &[State]) -> BTreeMap<Value, Range> {
    let Some((first, others)) = states.split_first() else { return BTreeMap::new() };
    let everywhere = first.narrowed.iter().filter_map(|(value, range)| {
        let range = others
            .iter()
            .try_fold(*range, |range, state| state.narrowed.get(value).map(|other| around(range, *other)));
        Some((*value, range?))
    });
    everywhere.collect()
}

/// Whether a condition can hold, or not, between numbers of which the first is so much more than the other. Of both,
/// whether they cannot be negative.
fn may_hold(condition: Condition, (low, high): Range, holds: bool, positive: [bool; 2]) -> bool {
    match (condition, holds) {
        (Condition::Below, _) if (low, high) != (0, 0) && positive.contains(&false) => true,
        (Condition::Less | Condition::Below, true) => low < 0,
        (Condition::Less | Condition::Below, false) => high >= 0,
        (Condition::LessOrEqual, true) => low <= 0,
        (Condition::LessOrEqual, false) => high > 0,
        (Condition::Equal, true) | (Condition::NotEqual, false) => low <= 0 && high >= 0,
        (Condition::Equal, false) | (Condition::NotEqual, true) => (low, high) != (0, 0),
    }
}

pub(super) fn around(one: Range, other: Range) -> Range {
    (one.0.min(other.0), one.1.max(other.1))
}

/// From the least to the greatest of these, if they are not too large.
fn hull(numbers: impl Iterator<Item = i128> + Clone) -> Option<Range> {
    let (low, high) = (numbers.clone().min()?, numbers.max()?);
    Some((i64::try_from(low).ok()?, i64::try_from(high).ok()?))
}

/// Without a number that is known, if that is at the edge.
fn without((low, high): Range, (least, most): Range) -> Range {
    let is = |edge| least == most && least == edge;
    (low.saturating_add(i64::from(is(low))), high.saturating_sub(i64::from(is(high))))
}

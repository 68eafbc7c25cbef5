//! Writing to the packet: checksums follow by difference (RFC 1624), as [`crate::checksum`] has it.

use super::{Key, LINK, Lower};
use crate::compile::ir::{Action, Condition, Operand, Operation};
use crate::compile::slot::{LAYOUT, Slot};
use wire::protocol;

/// Up to eight bytes that are written.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) bytes: u8,
    /// The number whose low bytes they are.
    pub(super) value: Operand,
}

impl Lower<'_> {
    /// Writes pieces one behind the other, where it is known that they fit. `safe`: the headers stay what they are.
    pub(super) fn write(&mut self, at: Operand, pieces: &[Piece], safe: bool) {
        if self.state.is_none() || pieces.is_empty() {
            return;
        }
        let layout = if self.ends_in_link(at, pieces) { vec![0.into(); LAYOUT] } else { self.layout() };
        let [header_from, header_to, pseudo_from, pseudo_to, body_from, body_to, field, udp, ..] = layout[..]
        else {
            return;
        };
        let mut places = Vec::new();
        let mut end = at;
        for piece in pieces {
            if !self.is_there(end) {
                return;
            }
            let old = self.load(end, piece.bytes);
            places.push((end, old, *piece));
            end = self.calculate(Operation::Add, end, i64::from(piece.bytes));
        }
        let Some((at, ..)) = places.first().copied() else { return };
        let line = self.line;
        let follows = self.temporary();
        self.set(follows.clone(), Slot::integer(0));
        let header_field = self.calculate(Operation::Add, header_from, 10);
        self.unless_over([header_from, header_field], [at, end], |lower| {
            lower.differing(&places, [header_from, header_to], |lower, difference| {
                lower.emit(Action::HeaderChecksum { offset: header_field, difference });
            });
        });
        self.line = line;
        self.unless_over([field; 2], [at, end], |lower| {
            for (range, pseudo) in [([pseudo_from, pseudo_to], 1), ([body_from, body_to], 0)] {
                lower.differing(&places, range, |lower, difference| {
                    lower.emit(Action::TransportChecksum {
                        offset: field,
                        difference,
                        pseudo: Operand::Constant(pseudo),
                        optional: udp,
                    });
                    if pseudo == 0 {
                        lower.set(follows.clone(), Slot::integer(1));
                    }
                });
            }
        });
        for (offset, _, Piece { bytes, value }) in places {
            self.emit(Action::Store { offset, bytes, value });
        }
        let has_followed = self.take(&follows);
        self.mend_sum_of_zeros(&has_followed, &layout);
        self.has_written();
        if !safe && let Some(state) = &mut self.state {
            state.variables.remove(&Key::Layout);
            state.variables.remove(&Key::Intact);
        }
    }

    /// Makes a checksum of zero 0xffff where it is that of zeros alone, as [`crate::checksum`] does.
    fn mend_sum_of_zeros(&mut self, has_followed: &Slot, layout: &[Operand]) {
        let ([has_followed], [_, _, _, _, from, to, field, _, _, number, ..]) =
            (&has_followed.parts[..], layout)
        else {
            return;
        };
        let mut others = Vec::new();
        self.leave_if(Condition::Equal, *has_followed, 0, &mut others);
        self.leave_if(Condition::NotEqual, *number, i64::from(protocol::ICMPV4), &mut others);
        for at in [*from, *field] {
            let word = self.emit(Action::Load { offset: at, bytes: 2 });
            self.leave_if(Condition::NotEqual, word, 0, &mut others);
        }
        let length = self.calculate(Operation::Subtract, *to, *from);
        let (short, long) = self.branch(Condition::Below, length, 8.into());
        self.state = long;
        let at = self.calculate(Operation::Add, *from, 4);
        let rest = self.emit(Action::Load { offset: at, bytes: 4 });
        self.leave_if(Condition::NotEqual, rest, 0, &mut others);
        let long = self.state.take();
        self.join(short.into_iter().chain(long));
        self.emit(Action::Store { offset: *field, bytes: 2, value: 0xffff.into() });
        let here = self.state.take();
        self.join(others.into_iter().chain(here));
    }

    /// Whether all of it is in the link header, which no checksum covers.
    fn ends_in_link(&mut self, at: Operand, pieces: &[Piece]) -> bool {
        let length: i64 = pieces.iter().map(|piece| i64::from(piece.bytes)).sum();
        let (least, most) = self.range(at);
        least >= 0 && most <= LINK - length
    }

    /// Does something unless the checksum there is itself written, or there is none, if `known` is zero.
    fn unless_over(
        &mut self,
        [known, field]: [Operand; 2],
        [at, end]: [Operand; 2],
        act: impl FnOnce(&mut Self),
    ) {
        let mut without = Vec::new();
        self.leave_if(Condition::Equal, known, 0, &mut without);
        let before = self.compare(Condition::LessOrEqual, end, field);
        let behind = self.calculate(Operation::Add, field, 2);
        let behind = self.compare(Condition::LessOrEqual, behind, at);
        let apart = self.calculate(Operation::Or, before, behind);
        self.leave_if(Condition::Equal, apart, 0, &mut without);
        if self.state.is_some() {
            act(self);
        }
        let here = self.state.take();
        self.join(without.into_iter().chain(here));
    }

    /// What is to be added to the sum over a range, if that changes.
    fn differing(
        &mut self,
        places: &[(Operand, Operand, Piece)],
        [from, to]: [Operand; 2],
        act: impl FnOnce(&mut Self, Operand),
    ) {
        let (mut same, keys) = (Vec::new(), [self.temporary(), self.temporary()]);
        let (first, (last, _, piece)) = (places[0].0, places[places.len() - 1]);
        let end = self.calculate(Operation::Add, last, i64::from(piece.bytes));
        if let Operand::Value(value) = to
            && self.anchors.contains_key(&value)
        {
            // Where it is there, more is known of it; and it begins nowhere only if it ends nowhere.
            self.leave_if(Condition::Equal, to, 0, &mut same);
            let (least, most) = self.range(from);
            if let Some(state) = &mut self.state {
                state.narrow(from, (least.max(1), most));
            }
        }
        self.leave_if(Condition::LessOrEqual, to, first, &mut same);
        self.leave_if(Condition::LessOrEqual, end, from, &mut same);
        // Mostly all of it is in the range; otherwise, masks take what is not.
        let mut partly = Vec::new();
        self.leave_if(Condition::Less, first, from, &mut partly);
        self.leave_if(Condition::Less, to, end, &mut partly);
        let whole = self.state.take();
        let mut ways = Vec::new();
        for (states, masked) in [(whole.into_iter().collect(), false), (partly, true)] {
            self.join(states);
            if self.state.is_none() {
                continue;
            }
            let mut sums = [Operand::Constant(0); 2];
            let mut before = 0;
            for (offset, old, piece) in places {
                let range = masked.then_some([from, to]);
                let mask = range.map(|range| self.mask(*offset, piece.bytes, range));
                for (sum, number) in sums.iter_mut().zip([*old, piece.value]) {
                    let number = match mask {
                        Some(mask) => self.calculate(Operation::And, number, mask),
                        None => number,
                    };
                    let words = self.words(number, piece.bytes);
                    // Behind an odd number of bytes each stands for the other half of a word: 2^8 exchanges them, modulo
                    // 0xffff.
                    let words = self.calculate(Operation::ShiftLeft, words, before % 2 * 8);
                    *sum = self.calculate(Operation::Add, *sum, words);
                }
                before += i64::from(piece.bytes);
            }
            for (key, sum) in keys.iter().zip(sums) {
                self.set(key.clone(), Slot::integer(sum));
            }
            ways.extend(self.state.take());
        }
        self.join(ways);
        let sums = keys.each_ref().map(|key| self.take(key).parts.first().copied());
        if let [Some(old), Some(new)] = sums {
            let [old, new] = [old, new].map(|sum| self.folded(sum));
            self.leave_if(Condition::Equal, old, new, &mut same);
            // At an odd offset each byte stands for the other half of a word.
            let distance = match self.distance(first, from) {
                Some((least, most)) if least == most => least.into(),
                _ => self.calculate(Operation::Subtract, first, from),
            };
            let odd = self.calculate(Operation::And, distance, 1);
            let (odd, even) = self.branch(Condition::NotEqual, odd, 0.into());
            self.state = odd;
            let swapped = [old, new].map(|sum| self.swapped(sum));
            let [old, new] = self.merge(&keys, swapped, even, [old, new]);
            let less = self.calculate(Operation::Xor, old, 0xffff);
            let difference = self.calculate(Operation::Add, less, new);
            if self.state.is_some() {
                act(self, difference);
            }
        }
        let here = self.state.take();
        self.join(same.into_iter().chain(here));
    }

    /// Ones where bytes of a piece are in a range.
    fn mask(&mut self, at: Operand, bytes: u8, [from, to]: [Operand; 2]) -> Operand {
        let ones = if bytes == 8 { -1 } else { (1 << (8 * bytes)) - 1 };
        let end = self.calculate(Operation::Add, at, i64::from(bytes));
        let mut mask = Operand::Constant(ones);
        for (outer, inner, operation) in [(from, at, Operation::ShiftRight), (end, to, Operation::ShiftLeft)]
        {
            let outside = self.calculate(Operation::Subtract, outer, inner);
            let some = self.compare(Condition::Less, 0, outside);
            let outside = self.calculate(Operation::Multiply, outside, some);
            let outside = self.select(Condition::Less, Operand::Constant(8), outside, [8.into(), outside]);
            // In two steps, as 64 bits at once are no shift.
            let half = self.calculate(Operation::Multiply, outside, 4);
            let shifted = self.calculate(operation, ones, half);
            let shifted = self.calculate(operation, shifted, half);
            mask = self.calculate(Operation::And, mask, shifted);
        }
        mask
    }

    /// A number that is the sum of the 16-bit words of a piece, modulo 0xffff; an odd last byte is the high half of one.
    /// It is zero only if all of them are.
    pub(super) fn words(&mut self, number: Operand, bytes: u8) -> Operand {
        let number = match bytes {
            8 => number,
            _ => self.calculate(Operation::And, number, (1_i64 << (8 * bytes)) - 1),
        };
        let number =
            if bytes.is_multiple_of(2) { number } else { self.calculate(Operation::ShiftLeft, number, 8) };
        if bytes <= 4 {
            return number;
        }
        let high = self.calculate(Operation::ShiftRight, number, 32);
        let low = self.calculate(Operation::And, number, 0xffff_ffff);
        self.calculate(Operation::Add, high, low)
    }

    /// The same as one word.
    pub(super) fn folded(&mut self, mut sum: Operand) -> Operand {
        let (least, mut most) = self.range(sum);
        if least < 0 {
            most = i64::MAX;
        }
        while most > 0xffff {
            let high = self.calculate(Operation::ShiftRight, sum, 16);
            let low = self.calculate(Operation::And, sum, 0xffff);
            sum = self.calculate(Operation::Add, high, low);
            // Of two words the sum has no more than one carry, and none with it.
            most = if most <= 0x1_fffe { 0xffff } else { (most >> 16) + 0xffff };
            self.within_all(sum, &[(0, most)]);
        }
        sum
    }

    fn swapped(&mut self, sum: Operand) -> Operand {
        let high = self.calculate(Operation::ShiftLeft, sum, 8);
        let high = self.calculate(Operation::And, high, 0xff00);
        let low = self.calculate(Operation::ShiftRight, sum, 8);
        self.calculate(Operation::Or, high, low)
    }
}

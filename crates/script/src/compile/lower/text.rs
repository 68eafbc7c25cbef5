//! Strings in the packet: compared with what is known, as keys of tables, in lower case, with dots. What they are searched for
//! is in [`super::search`].
//!
//! Such a string is where it stands in the packet. What is written later must not change it, so from then on it is refused.

use super::Lower;
use super::field::pieces;
use crate::compile::ir::{Condition, Failure, Operand, Operation};
use crate::compile::known::Known;
use crate::compile::slot::{Look, Shape, Slot, Written};

/// Bytes of a known string that one in the packet is compared with, at most.
pub(super) const LONGEST: usize = 64;
/// A string and what a table has for it.
type Entry<'a> = (&'a [u8], &'a Known);

/// The same byte eight times.
const BYTES: i64 = 0x0101_0101_0101_0101;

impl Lower<'_> {
    /// What is written from now on is not what was there before.
    pub(super) fn has_written(&mut self) {
        self.writes += 1;
        if let Some(state) = &mut self.state {
            state.written = Written(self.writes);
        }
    }

    /// The string that these bytes of the packet are.
    pub(super) fn text_at(&self, place: [Operand; 2]) -> Slot {
        let written = self.state.as_ref().map_or(Written(0), |state| state.written);
        Slot::new(Shape::PacketText(written, Look::default()), place)
    }

    /// `tostring(value)`: a string is itself, and octets are one as they are now.
    pub(super) fn text_of(&mut self, value: &Slot) -> Slot {
        match value.shape {
            Shape::Text(_) | Shape::PacketText(..) => value.clone(),
            Shape::Bytes(_) if self.is_present(value) => self.text_at([value.parts[0], value.parts[1]]),
            _ => {
                let name = value.shape.name();
                self.refuse(format!("'tostring' of {name} is not there in the kernel"))
            }
        }
    }

    /// `text:len()`
    pub(super) fn length_of_text(&mut self, text: &Slot) -> Slot {
        match &text.shape {
            Shape::Text(bytes) => Slot::integer(bytes.len() as i64),
            Shape::PacketText(..) => Slot::integer(text.parts[1]),
            shape => {
                let name = shape.name();
                self.refuse(format!("the length of {name}"))
            }
        }
    }

    /// `text:lower()`: of ASCII, as Lua has it.
    pub(super) fn lower_case(&mut self, text: &Slot) -> Slot {
        match &text.shape {
            Shape::Text(bytes) => Slot::text(&bytes.to_ascii_lowercase()),
            Shape::PacketText(written, look) => {
                let look = Look { lower: true, ..*look };
                Slot::new(Shape::PacketText(*written, look), text.parts.clone())
            }
            shape => {
                let name = shape.name();
                self.refuse(format!("{name} in lower case"))
            }
        }
    }

    /// 1 if a string of the packet is a known one.
    pub(super) fn is_text(&mut self, text: &Slot, known: &[u8]) -> Operand {
        let entry = [(Known::String(known.into()), Known::Boolean(true))];
        let found = self.text_lookup(&entry, text);
        match found.shape {
            Shape::Optional(_) => found.parts[0],
            shape => i64::from(shape == Shape::Boolean).into(),
        }
    }

    /// What a table of the top level has for a string of the packet: those of one length are looked at together.
    pub(super) fn text_lookup(&mut self, entries: &[(Known, Known)], text: &Slot) -> Slot {
        let (result, mut states) = (self.temporary(), Vec::new());
        let mut of_length: Vec<(usize, Vec<Entry<'_>>)> = Vec::new();
        for (key, value) in entries {
            let Known::String(key) = key else { continue };
            match of_length.iter_mut().find(|(length, _)| *length == key.len()) {
                Some((_, same)) => same.push((key, value)),
                None => of_length.push((key.len(), vec![(key, value)])),
            }
        }
        for (length, same) in of_length {
            if length > LONGEST {
                return self.refuse(format!("a string of the packet and one of more than {LONGEST} bytes"));
            }
            let (this, others) = self.branch(Condition::Equal, text.parts[1], (length as i64).into());
            self.state = this;
            let Some(words) = self.words_of(text, length) else { return Slot::unclear() };
            for (key, value) in same {
                let mut difference = Operand::Constant(0);
                for (word, known) in words.iter().zip(left_aligned(key)) {
                    let apart = self.calculate(Operation::Xor, *word, known);
                    difference = self.calculate(Operation::Or, difference, apart);
                }
                let (this, rest) = self.branch(Condition::Equal, difference, 0.into());
                self.state = this;
                self.set(result.clone(), Slot::known(value.clone()));
                states.extend(self.state.take());
                self.state = rest;
            }
            let rest = self.state.take();
            self.join(others.into_iter().chain(rest));
        }
        self.set(result.clone(), Slot::nil());
        states.extend(self.state.take());
        self.join(states);
        self.take(&result)
    }

    /// The bytes of a string or byte array, which are so many, in words of eight; the last one is filled up with zeros.
    pub(super) fn words_of(&mut self, text: &Slot, length: usize) -> Option<Vec<Operand>> {
        let look = self.usable(text)?;
        let words = pieces(length as i64).map(|(at, bytes)| {
            let offset = self.calculate(Operation::Add, text.parts[0], at);
            let word = self.load(offset, bytes);
            let word = self.calculate(Operation::ShiftLeft, word, 64 - 8 * i64::from(bytes));
            let mask = (0xff00_i64 >> bytes) & 0xff;
            self.look(look, word, text, at, mask.into())
        });
        Some(words.collect())
    }

    /// As a key of a table: the length, and as many words as the longest one has. One that is longer is an error.
    pub(super) fn text_key(&mut self, text: &Slot, longest: usize) -> Option<Vec<Operand>> {
        let look = self.usable(text)?;
        let [start, length] = [text.parts[0], text.parts[1]];
        self.fail_if(Condition::Below, longest as i64, length, Failure::WrongValue);
        if self.range(start).0 < 8 {
            self.refuse("a string at the very beginning of the packet is a key");
            return None;
        }
        let end = self.calculate(Operation::Add, start, length);
        let mut words = vec![length];
        for (at, _) in pieces(longest as i64) {
            let key = self.temporary();
            let mut ways = Vec::new();
            let (none, some) = self.branch(Condition::LessOrEqual, length, at.into());
            self.state = none;
            self.set(key.clone(), Slot::integer(0));
            ways.extend(self.state.take());
            self.state = some;
            let (part, whole) = self.branch(Condition::Less, length, (at + 8).into());
            self.state = whole;
            let offset = self.calculate(Operation::Add, start, at);
            let word = self.load(offset, 8);
            let word = self.look(look, word, text, at, 0xff.into());
            self.set(key.clone(), Slot::integer(word));
            ways.extend(self.state.take());
            self.state = part;
            // The eight bytes before its end: what is not its own goes.
            let offset = self.calculate(Operation::Subtract, end, 8);
            let word = self.load(offset, 8);
            let beyond = self.calculate(Operation::Subtract, at + 8, length);
            let bits = self.calculate(Operation::Multiply, beyond, 8);
            let word = self.calculate(Operation::ShiftLeft, word, bits);
            let mask = self.calculate(Operation::ShiftLeft, 0xff, beyond);
            let mask = self.calculate(Operation::And, mask, 0xff);
            let word = self.look(look, word, text, at, mask);
            self.set(key.clone(), Slot::integer(word));
            ways.extend(self.state.take());
            self.join(ways);
            words.push(self.take(&key).parts.first().copied()?);
        }
        Some(words)
    }

    /// How it differs from its octets, if these are still what they were.
    pub(super) fn usable(&mut self, text: &Slot) -> Option<Look> {
        let (written, look) = match text.shape {
            Shape::PacketText(written, look) => (written, look),
            Shape::Bytes(_) => return Some(Look::default()),
            _ => return None,
        };
        let now = self.state.as_ref().map(|state| state.written);
        if now.is_some_and(|now| now != written) {
            self.refuse("a string of the packet is used after something was written to the packet");
            return None;
        }
        Some(look)
    }

    /// Eight octets of a string from `at` on, as they are to look; dots are those that the mask has of eight bits.
    fn look(&mut self, look: Look, word: Operand, text: &Slot, at: i64, mask: Operand) -> Operand {
        let dots = text.parts.get(2 + at as usize / 64).copied().unwrap_or(Operand::Constant(0));
        let calculate = &mut |operation, left, right| self.calculate(operation, left, right);
        let mut word = word;
        if look.dotted {
            word = dotted(word, dots, 56 - at % 64, mask, calculate);
        }
        if look.lower { lowered(word, calculate) } else { word }
    }
}

/// What arithmetic is appended by.
type Calculate<'c> = &'c mut dyn FnMut(Operation, Operand, Operand) -> Operand;

/// Eight octets, with dots where eight bits say it, which are so far from the end of a number, and in the mask.
pub(super) fn dotted(
    word: Operand,
    dots: Operand,
    below: i64,
    mask: Operand,
    calculate: Calculate<'_>,
) -> Operand {
    let bits = calculate(Operation::ShiftRight, dots, below.into());
    let bits = calculate(Operation::And, bits, mask);
    // Each octet gets its bit, which then fills it.
    let bits = calculate(Operation::Multiply, bits, BYTES.into());
    let bits = calculate(Operation::And, bits, 0x8040_2010_0804_0201_u64.cast_signed().into());
    let seven = calculate(Operation::And, bits, (0x7f * BYTES).into());
    let carried = calculate(Operation::Add, seven, (0x7f * BYTES).into());
    let filled = calculate(Operation::Or, carried, bits);
    let filled = calculate(Operation::ShiftRight, filled, 7.into());
    let filled = calculate(Operation::And, filled, BYTES.into());
    let filled = calculate(Operation::Multiply, filled, 0xff.into());
    let others = calculate(Operation::Xor, filled, (-1).into());
    let others = calculate(Operation::And, word, others);
    let dots = calculate(Operation::And, filled, (i64::from(b'.') * BYTES).into());
    calculate(Operation::Or, others, dots)
}

/// Eight letters at once: those from A to Z have another bit then.
pub(super) fn lowered(word: Operand, calculate: Calculate<'_>) -> Operand {
    let seven_bits = calculate(Operation::And, word, (0x7f * BYTES).into());
    let [from_a, beyond_z] = [b'A', b'Z' + 1]
        .map(|letter| calculate(Operation::Add, seven_bits, ((0x80 - i64::from(letter)) * BYTES).into()));
    let letter = calculate(Operation::Xor, from_a, beyond_z);
    let ascii = calculate(Operation::Xor, word, (-1).into());
    let letter = calculate(Operation::And, letter, ascii);
    let letter = calculate(Operation::And, letter, ((0x80_u64.wrapping_mul(BYTES as u64)) as i64).into());
    let bits = calculate(Operation::ShiftRight, letter, 2.into());
    calculate(Operation::Or, word, bits)
}

/// A known string in words of eight bytes, filled up with zeros.
pub(super) fn left_aligned(text: &[u8]) -> Vec<Operand> {
    let word = |piece: &[u8]| {
        let mut octets = [0; 8];
        octets[..piece.len()].copy_from_slice(piece);
        Operand::Constant(i64::from_be_bytes(octets))
    };
    text.chunks(8).map(word).collect()
}

//! Parts of the packet.

use super::Lower;
use crate::compile::ir::{Action, Operand, Operation};
use crate::compile::slot::Slot;

/// Bytes that one `set` fills.
const LONGEST: i64 = 64;

impl Lower<'_> {
    /// Writes the same byte everywhere in a part of the packet.
    pub(super) fn fill(&mut self, part: &Slot, value: Operand) {
        let Operand::Constant(length @ 0..=LONGEST) = part.parts[1] else {
            self.refuse(format!("only parts of a length that is known, {LONGEST} bytes at most, are filled"));
            return;
        };
        let byte = self.calculate(Operation::And, value, 0xff);
        let wide = self.calculate(Operation::Multiply, byte, 0x0101_0101_0101_0101);
        let mut done = 0;
        while done < length {
            let bytes = (length - done).min(8);
            let offset = self.calculate(Operation::Add, part.parts[0], done);
            self.emit(Action::Store { offset, bytes: bytes as u8, value: wide });
            done += bytes;
        }
    }
}

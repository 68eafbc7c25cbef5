//! What a program notes of a packet that is followed, and how it tells its end.

use bpf::Register::{R0, R1, R2, R3, R7, R9, R10};
use bpf::{Condition, Size};

use super::{Emitter, FOUND};
use crate::compile::account::Log;

/// Places on the stack, from where a trace has its own.
const FAULT: i16 = 0;
const CHANGED: i16 = 8;
const PACKET: i16 = 16;

impl Emitter<'_> {
    /// Bytes of the stack that traces need: the number of the packet, zero if it is not followed; whether it was changed; the
    /// error, if that is how it ends.
    pub(super) const TRACE: i16 = 24;

    /// No packet is followed at its beginning.
    pub(super) fn start_tracing(&mut self) {
        let Some(trace) = self.trace else { return };
        for at in [FAULT, CHANGED, PACKET] {
            self.code.store_value(Size::Double, R10, trace.at + at, 0);
        }
    }

    /// Where the number of the packet is that a line is told of, if it is a line of a trace.
    pub(super) fn packet_slot(&self, line: usize) -> Option<i16> {
        let trace = self.trace.filter(|_| self.program.lines[line].is_of_trace())?;
        Some(trace.at + PACKET)
    }

    /// Follows the packet, if one is left: what was left is its number.
    pub(super) fn follow(&mut self) {
        let (Some(trace), Some(log)) = (self.trace, self.log_of_trace()) else { return };
        let end = self.code.label();
        self.entry(log.followed);
        self.code.jump_if(R0, Condition::Equal, 0, end);
        // Others need not be counted down from it; several that come at once bring it below zero.
        self.code.load(Size::Double, R1, R0, 0);
        self.code.jump_if(R1, Condition::SignedLess, 1, end);
        self.code.set(R1, -1);
        self.code.fetch_and_add(Size::Double, R0, 0, R1);
        self.code.jump_if(R1, Condition::SignedLess, 1, end);
        self.code.store(Size::Double, R10, trace.at + PACKET, R1);
        self.code.bind(end);
    }

    /// The packet is about to be changed.
    pub(super) fn note_change(&mut self) {
        if let Some(trace) = self.trace {
            self.code.store_value(Size::Double, R10, trace.at + CHANGED, 1);
        }
    }

    /// It ends with the error in R9.
    pub(super) fn note_fault(&mut self) {
        if let Some(trace) = self.trace {
            self.code.store(Size::Double, R10, trace.at + FAULT, R9);
        }
    }

    /// Tells the end of a packet that is followed. R7 has the place of the counter, R8 the result.
    pub(super) fn end_trace(&mut self) {
        let (Some(trace), Some(log)) = (self.trace, self.log_of_trace()) else { return };
        let end = self.code.label();
        self.code.load(Size::Double, R1, R10, trace.at + PACKET);
        self.code.jump_if(R1, Condition::Equal, 0, end);
        self.code.set_wide(R0, u64::from(log.program) << 32 | trace.end as u64);
        self.code.store(Size::Double, R10, FOUND, R0);
        self.code.store(Size::Double, R10, FOUND + 8, R1);
        self.code.store(Size::Double, R10, FOUND + 16, R7);
        for (place, at) in [(FOUND + 24, CHANGED), (FOUND + 32, FAULT)] {
            self.code.load(Size::Double, R1, R10, trace.at + at);
            self.code.store(Size::Double, R10, place, R1);
        }
        self.code.load_map(R1, &log.ring);
        self.code.copy(R2, R10);
        self.code.add(R2, i32::from(FOUND));
        self.code.set(R3, 40);
        self.output();
        self.code.bind(end);
    }

    fn log_of_trace(&self) -> Option<Log> {
        self.accounts?.log
    }
}

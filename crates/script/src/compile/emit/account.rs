//! What a program counts and logs, and how it ends its way with a packet.

use std::os::fd::RawFd;

use bpf::Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use bpf::{Condition, Helper, Operation, Size};

use super::{BEGUN, COUNTERS, Emitter, FOUND, Tails};
use crate::compile::account::{CAPTURES_A_SECOND, ERRORS, LOST, Log, SAMPLES};
use crate::compile::ir::{Failure, Operand};
use crate::compile::logging::{CAPTURED, LONGEST, OF_PACKET, ROOM};

/// Place of the packets that began: it says whose time is taken.
const SEEN: usize = ERRORS + 2;
/// The time of one of so many packets is taken, a power of two: asking for it takes as long as a short script.
const EVERY: i32 = 64;
/// Where a record is in the map that it is put together in, behind what captures have there.
const RECORD: i16 = 16;

impl Emitter<'_> {
    /// Finds the counters for the whole way, and says whether the time is taken.
    pub(super) fn start_counting(&mut self) {
        let Some(accounts) = self.accounts else { return };
        let [there, untimed] = [self.code.label(), self.code.label()];
        self.entry(accounts.counters);
        self.code.jump_if(R0, Condition::NotEqual, 0, there);
        // An array has all its entries: only the verifier has to be told.
        self.code.exit_with(self.results.pass);
        self.code.bind(there);
        self.code.store(Size::Double, R10, COUNTERS, R0);
        self.code.load(Size::Double, R7, R0, 8 * SEEN as i16);
        self.code.copy(R1, R7);
        self.code.add(R1, 1);
        self.code.store(Size::Double, R0, 8 * SEEN as i16, R1);
        self.code.and(R7, EVERY - 1);
        // The verifier follows the way that does not jump first, with a time that may be anything: that stands for the
        // other, too.
        self.code.set(R0, 0);
        self.code.jump_if(R7, Condition::NotEqual, 0, untimed);
        self.code.call(Helper::KtimeGetNs);
        self.code.bind(untimed);
        self.code.store(Size::Double, R10, BEGUN, R0);
    }

    /// Ends with this result, and counts it at a place of the counters.
    pub(super) fn leave(&mut self, place: usize, result: i32) {
        if self.accounts.is_none() {
            return self.code.exit_with(result);
        }
        self.code.set(R8, result);
        self.leave_with_r8(place);
    }

    /// Ends with the result in R8.
    pub(super) fn leave_with_r8(&mut self, place: usize) {
        let Some(tails) = self.tails() else {
            self.code.copy(R0, R8);
            return self.code.exit();
        };
        self.code.set(R7, 8 * place as i32);
        self.code.jump(tails.leave);
    }

    /// Ends with an error.
    pub(super) fn give_up(&mut self, failure: Failure, line: u32) {
        let result = self.results.error;
        if self.tails().is_none() {
            return self.code.exit_with(result);
        }
        let number =
            Failure::ALL.iter().position(|one| *one == failure).map_or(0, |number| number as u64 + 1);
        self.code.set_wide(R9, u64::from(line) << 8 | number);
        self.code.set(R7, 8 * ERRORS as i32);
        self.code.set(R8, result);
        let (code, tails) = (&mut self.code, &mut self.tails);
        if let Some(tails) = tails {
            let fail = *tails.fail.get_or_insert_with(|| code.label());
            code.jump(fail);
        }
    }

    fn tails(&mut self) -> Option<Tails> {
        self.accounts?;
        let code = &mut self.code;
        Some(*self.tails.get_or_insert_with(|| Tails { leave: code.label(), fail: None }))
    }

    /// What all ways end in. No value is needed any more, so the registers are free.
    pub(super) fn write_tails(&mut self) {
        let (Some(accounts), Some(tails)) = (self.accounts, self.tails) else { return };
        let untimed = self.code.label();
        if let Some(fail) = tails.fail {
            self.code.bind(fail);
            self.entry(accounts.fault);
            self.code.jump_if(R0, Condition::Equal, 0, tails.leave);
            self.code.store(Size::Double, R0, 0, R9);
            self.note_fault();
        }
        self.code.bind(tails.leave);
        self.end_trace();
        self.code.load(Size::Double, R0, R10, COUNTERS);
        // Within the value, whatever the verifier knows of it.
        self.code.and(R7, 0x38);
        self.code.calculate(Operation::Add, R0, R7);
        self.code.load(Size::Double, R1, R0, 0);
        self.code.add(R1, 1);
        self.code.store(Size::Double, R0, 0, R1);
        self.code.load(Size::Double, R7, R10, BEGUN);
        self.code.jump_if(R7, Condition::Equal, 0, untimed);
        self.code.call(Helper::KtimeGetNs);
        self.code.calculate(Operation::Subtract, R0, R7);
        self.code.load(Size::Double, R3, R10, COUNTERS);
        self.code.load(Size::Double, R1, R3, 8 * SAMPLES as i16);
        self.code.add(R1, 1);
        self.code.store(Size::Double, R3, 8 * SAMPLES as i16, R1);
        self.code.load(Size::Double, R1, R3, 8 * (SAMPLES as i16 + 1));
        self.code.add(R1, R0);
        self.code.store(Size::Double, R3, 8 * (SAMPLES as i16 + 1), R1);
        self.code.bind(untimed);
        self.code.copy(R0, R8);
        self.code.exit();
    }

    /// R0 = the only entry of a map.
    pub(super) fn entry(&mut self, map: RawFd) {
        self.code.store_value(Size::Word, R10, FOUND, 0);
        self.code.load_map(R1, &map);
        self.code.copy(R2, R10);
        self.code.add(R2, i32::from(FOUND));
        self.code.call(Helper::MapLookup);
    }

    /// Copies the packet into a record, as far as there is room, if anybody reads it; so many in a second at most.
    pub(super) fn capture(&mut self, name: usize) {
        const POINTER: i16 = FOUND + 8;
        const HEAD: i16 = 16;
        let Some(log) = self.accounts.and_then(|accounts| accounts.log) else { return };
        let [end, same_second, fits] = [(); 3].map(|()| self.code.label());
        let (most, second) = (CAPTURED as i32, 1_000_000_000);
        self.entry(log.scratch);
        self.code.jump_if(R0, Condition::Equal, 0, end);
        self.code.store(Size::Double, R10, POINTER, R0);
        self.code.call(Helper::KtimeGetNs);
        self.code.calculate(Operation::Divide, R0, second);
        self.code.load(Size::Double, R3, R10, POINTER);
        self.code.load(Size::Double, R1, R3, 0);
        self.code.jump_if(R0, Condition::Equal, R1, same_second);
        self.code.store(Size::Double, R3, 0, R0);
        self.code.store_value(Size::Double, R3, 8, 0);
        self.code.bind(same_second);
        self.code.load(Size::Double, R1, R3, 8);
        self.code.jump_if(R1, Condition::GreaterOrEqual, CAPTURES_A_SECOND, end);
        self.code.add(R1, 1);
        self.code.store(Size::Double, R3, 8, R1);
        self.code.set_wide(R0, u64::from(log.program) << 32 | u64::from(OF_PACKET | name as u32));
        self.code.store(Size::Double, R3, HEAD, R0);
        self.length(R0);
        self.code.store(Size::Double, R3, HEAD + 8, R0);
        // The verifier has to know that it is something, and fits.
        self.code.copy(R4, R0);
        self.code.jump_if(R4, Condition::LessOrEqual, most, fits);
        self.code.set(R4, most);
        self.code.bind(fits);
        // That of Linux 6.1 learns nothing from what is not equal to zero.
        self.code.jump_if(R4, Condition::Less, 1, end);
        self.code.store(Size::Double, R10, FOUND + 16, R4);
        self.code.copy(R1, R6);
        self.code.set(R2, 0);
        self.code.add(R3, i32::from(HEAD) + 16);
        self.code.call(Helper::SkbLoadBytes);
        self.code.jump_if(R0, Condition::NotEqual, 0, end);
        self.code.load_map(R1, &log.ring);
        self.code.load(Size::Double, R2, R10, POINTER);
        self.code.add(R2, i32::from(HEAD));
        self.code.load(Size::Double, R3, R10, FOUND + 16);
        self.code.add(R3, 16);
        self.output();
        self.code.bind(end);
    }

    /// The same with strings of the packet, which are behind the numbers, in so many octets each. It is put together where
    /// there is more room than on the stack.
    pub(super) fn log_strings(
        &mut self,
        log: Log,
        line: usize,
        numbers: &[Operand],
        strings: &[[Operand; 2]],
    ) {
        const POINTER: i16 = FOUND;
        let end = self.code.label();
        self.entry(log.scratch);
        self.code.jump_if(R0, Condition::Equal, 0, end);
        self.code.store(Size::Double, R10, POINTER, R0);
        self.code.copy(R3, R0);
        self.code.set_wide(R0, u64::from(log.program) << 32 | line as u64);
        self.code.store(Size::Double, R3, RECORD, R0);
        let mut at = RECORD + 8;
        if let Some(slot) = self.packet_slot(line) {
            self.code.load(Size::Double, R1, R10, slot);
            self.code.store(Size::Double, R3, at, R1);
            at += 8;
        }
        for number in numbers {
            let number = self.read(*number, R0);
            self.code.store(Size::Double, R3, at, number);
            at += 8;
        }
        for [start, length] in strings {
            let empty = self.code.label();
            // The verifier has to know that it is something, and fits.
            self.hidden(R4, *length);
            self.code.and(R4, LONGEST as i32);
            self.code.jump_if(R4, Condition::Less, 1, empty);
            self.code.load(Size::Double, R3, R10, POINTER);
            self.code.add(R3, i32::from(at));
            self.copy_to_pointer(*start);
            self.code.bind(empty);
            at += ROOM as i16;
        }
        self.code.load_map(R1, &log.ring);
        self.code.load(Size::Double, R2, R10, POINTER);
        self.code.add(R2, i32::from(RECORD));
        self.code.set(R3, i32::from(at - RECORD));
        self.output();
        self.code.bind(end);
    }

    /// Writes a record, if anybody reads it; one of a trace, if the packet is followed.
    pub(super) fn tell(&mut self, line: usize, numbers: &[Operand], strings: &[[Operand; 2]]) {
        let Some(log) = self.accounts.and_then(|accounts| accounts.log) else { return };
        let end = self.code.label();
        if let Some(slot) = self.packet_slot(line) {
            self.code.load(Size::Double, R1, R10, slot);
            self.code.jump_if(R1, Condition::Equal, 0, end);
        }
        match strings.is_empty() {
            true => self.log(log, line, numbers),
            false => self.log_strings(log, line, numbers, strings),
        }
        self.code.bind(end);
    }

    /// Writes a record without strings.
    pub(super) fn log(&mut self, log: Log, line: usize, numbers: &[Operand]) {
        self.code.set_wide(R0, u64::from(log.program) << 32 | line as u64);
        self.code.store(Size::Double, R10, FOUND, R0);
        let mut at = FOUND + 8;
        if let Some(slot) = self.packet_slot(line) {
            self.code.load(Size::Double, R1, R10, slot);
            self.code.store(Size::Double, R10, at, R1);
            at += 8;
        }
        for number in numbers {
            let number = self.read(*number, R0);
            self.code.store(Size::Double, R10, at, number);
            at += 8;
        }
        self.code.load_map(R1, &log.ring);
        self.code.copy(R2, R10);
        self.code.calculate(Operation::Add, R2, i32::from(FOUND));
        self.code.set(R3, i32::from(at - FOUND));
        self.output();
    }

    /// Gives a record to the ring: R1 to R3 say which. One that finds the ring full is lost, and counted.
    pub(super) fn output(&mut self) {
        let kept = self.code.label();
        self.code.set(R4, 0);
        self.code.call(Helper::RingBufferOutput);
        self.code.jump_if(R0, Condition::Equal, 0, kept);
        self.code.load(Size::Double, R1, R10, COUNTERS);
        self.code.load(Size::Double, R2, R1, 8 * LOST as i16);
        self.code.add(R2, 1);
        self.code.store(Size::Double, R1, 8 * LOST as i16, R2);
        self.code.bind(kept);
    }
}

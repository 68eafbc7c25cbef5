//! Records: entries of several numbers that are read and written as one.
//!
//! Programs that have the lock of a record's key have it for themselves. That does not keep the kernel from giving its place
//! to another entry, once it was deleted or evicted: its seal ([`shared::seal`]) says whether it is what was looked for.

use bpf::Register::{R0, R1, R2, R3, R10};
use bpf::{Condition, Helper, Operation, Size};

use super::{BUFFER, Emitter, KEY};
use crate::compile::ir::{Action, Operand};
use crate::compile::shared::{self, LOCK_SHIFT, MapPart};

/// How often an entry is looked for that is another one by the time that its lock is there.
const TRIES: i32 = 4;

impl Emitter<'_> {
    /// Bytes of the stack that records need: their lock, and how often one was looked for.
    pub(super) const RECORD: i16 = 16;

    /// Whether entries of a map are records.
    pub(in crate::compile) fn is_record(&self, map: usize) -> bool {
        self.program.maps[map].seal_place().is_some()
    }

    /// R0 = 1 if there is such a record, with which it does what is to be done, and otherwise 0. The key is in its place.
    pub(in crate::compile) fn record(&mut self, map: usize, key: &[Operand], action: &Action) {
        let (lock, tries) = (self.found - 8, self.found - 16);
        let [again, other, absent, end] = [(); 4].map(|()| self.code.label());
        self.code.set(R1, 0);
        for number in 0..key.len() {
            self.code.load(Size::Double, R2, R10, KEY + 8 * number as i16);
            self.code.calculate(Operation::Xor, R1, R2);
            self.code.set_wide(R2, shared::SEAL);
            self.code.calculate(Operation::Multiply, R1, R2);
        }
        self.code.shift_right(R1, LOCK_SHIFT);
        self.code.store(Size::Word, R10, lock, R1);
        self.call(self.locks(map), Helper::MapLookup, lock);
        self.code.jump_if(R0, Condition::Equal, 0, absent);
        self.code.store(Size::Double, R10, lock, R0);
        self.code.store_value(Size::Double, R10, tries, 0);

        self.code.bind(again);
        self.call(map, Helper::MapLookup, KEY);
        self.code.jump_if(R0, Condition::Equal, 0, absent);
        self.code.store(Size::Double, R10, BUFFER, R0);
        self.lock(lock, Helper::SpinLock);
        self.code.load(Size::Double, R3, R10, BUFFER);
        // What is read as a whole is read first, and then its seal: another entry may get the place at any moment.
        let whole = self.program.maps[map].seal_place().unwrap_or_default() / 8;
        let is_copied = matches!(action, Action::Lookup { words, .. } if 1 + usize::from(*words) == whole);
        let place = if is_copied {
            self.with_record(action);
            self.seal(map, key.len(), R10, self.found)
        } else {
            self.seal(map, key.len(), R3, 0)
        };
        self.code.load(Size::Double, R1, R3, place);
        self.code.jump_if(R0, Condition::NotEqual, R1, other);
        if !is_copied {
            self.with_record(action);
        }
        if !matches!(action, Action::Lookup { .. }) {
            self.seal(map, key.len(), R3, 0);
            self.code.store(Size::Double, R3, place, R0);
        }
        self.lock(lock, Helper::SpinUnlock);
        self.code.set(R0, 1);
        self.code.jump(end);

        self.code.bind(other);
        self.lock(lock, Helper::SpinUnlock);
        self.code.load(Size::Double, R1, R10, tries);
        self.code.add(R1, 1);
        self.code.store(Size::Double, R10, tries, R1);
        self.code.jump_if(R1, Condition::Less, TRIES, again);

        self.code.bind(absent);
        let words = match action {
            Action::Lookup { words, .. } => i16::from(*words),
            Action::Add { amounts, .. } => amounts.len() as i16,
            _ => -1,
        };
        for word in 0..=words {
            self.code.store_value(Size::Double, R10, self.found + 8 * word, 0);
        }
        self.code.set(R0, 0);
        self.code.bind(end);
    }

    /// What is done with the record at R3.
    fn with_record(&mut self, action: &Action) {
        match action {
            Action::Lookup { words, .. } => {
                for word in 0..=i16::from(*words) {
                    self.code.load(Size::Double, R1, R3, 8 * word);
                    self.code.store(Size::Double, R10, self.found + 8 * word, R1);
                }
            }
            Action::Add { amounts, now, .. } => {
                self.move_to(R1, *now);
                self.code.store(Size::Double, R3, 0, R1);
                self.code.store(Size::Double, R10, self.found, R1);
                for (number, amount) in amounts.iter().enumerate() {
                    let at = 8 * (1 + number as i16);
                    self.move_to(R1, *amount);
                    self.code.load(Size::Double, R2, R3, at);
                    self.code.calculate(Operation::Add, R1, R2);
                    self.code.store(Size::Double, R3, at, R1);
                    self.code.store(Size::Double, R10, self.found + at, R1);
                }
            }
            Action::Replace { value, .. } => {
                for (number, word) in value.iter().enumerate() {
                    self.move_to(R1, *word);
                    self.code.store(Size::Double, R3, 8 * number as i16, R1);
                }
            }
            _ => unreachable!("only of records"),
        }
    }

    /// R0 = the seal of the key in its place and of the record that begins so far from where a register points to. Where in it
    /// that stands.
    pub(in crate::compile) fn seal(
        &mut self,
        map: usize,
        key: usize,
        record: bpf::Register,
        from: i16,
    ) -> i16 {
        let place = self.program.maps[map].seal_place().unwrap_or_default() as i16;
        let key = (0..key as i16).map(|number| (R10, KEY + 8 * number));
        let value = (0..place / 8).map(|number| (record, from + 8 * number));
        self.code.set_wide(R2, shared::SEAL);
        self.code.set(R0, 0);
        for (base, at) in key.chain(value) {
            self.code.load(Size::Double, R1, base, at);
            self.code.calculate(Operation::Xor, R0, R1);
            self.code.calculate(Operation::Multiply, R0, R2);
            self.code.copy(R1, R0);
            self.code.shift_right(R1, shared::SEAL_SHIFT);
            self.code.calculate(Operation::Xor, R0, R1);
        }
        place
    }

    fn lock(&mut self, at: i16, helper: Helper) {
        self.code.load(Size::Double, R1, R10, at);
        self.code.call(helper);
    }

    fn locks(&self, map: usize) -> usize {
        let maps = &self.program.maps;
        let is_it = |one: &shared::Map| one.part == MapPart::Locks && one.shared == maps[map].shared;
        maps.iter().position(is_it).expect("a table of records has locks")
    }
}

//! Instructions for maps.

use bpf::Register::{R0, R1, R2, R3, R4, R10};
use bpf::{Condition, Helper, Operation, Size};

use super::emit::{Emitter, KEY};
use super::ir::{Action, Operand, Value};

/// Of bpf_map_update_elem, from linux/bpf.h: refuse what is there.
const NO_EXIST: i32 = 1;

impl Emitter<'_> {
    pub(super) fn map_action(&mut self, action: &Action, result: Value) {
        match action {
            Action::Lookup { map, key, .. }
            | Action::Add { map, key, .. }
            | Action::Replace { map, key, .. }
                if self.is_record(*map) =>
            {
                self.key(key);
                self.record(*map, key, action);
            }
            Action::Lookup { map, key, first, words } => {
                self.key(key);
                self.call(*map, Helper::MapLookup, KEY);
                let wanted = (0..i16::from(*words)).map(|word| (i16::from(*first) + word, 1 + word));
                self.found([(0, 0)].into_iter().chain(wanted));
            }
            Action::Add { map, key, amounts, now } => {
                self.key(key);
                self.call(*map, Helper::MapLookup, KEY);
                let absent = self.code.label();
                self.code.jump_if(R0, Condition::Equal, 0, absent);
                self.move_to(R1, *now);
                self.code.store(Size::Double, R0, 0, R1);
                self.code.store(Size::Double, R10, self.found, R1);
                self.move_to(R1, amounts[0]);
                self.code.copy(R2, R1);
                // The sum is that of this packet, also where others add at the same moment.
                self.code.fetch_and_add(Size::Double, R0, 8, R1);
                self.code.calculate(Operation::Add, R1, R2);
                self.code.store(Size::Double, R10, self.found + 8, R1);
                self.code.set(R0, 1);
                let end = self.code.label();
                self.code.jump(end);
                self.code.bind(absent);
                for word in 0..2 {
                    self.code.store_value(Size::Double, R10, self.found + 8 * word, 0);
                }
                self.code.bind(end);
            }
            Action::Put { map, key, word, value, now } => {
                self.key(key);
                self.call(*map, Helper::MapLookup, KEY);
                let absent = self.code.label();
                self.code.jump_if(R0, Condition::Equal, 0, absent);
                for (number, word) in [(*now, 0), (*value, i16::from(*word))] {
                    self.move_to(R1, number);
                    self.code.store(Size::Double, R0, 8 * word, R1);
                }
                self.code.set(R0, 1);
                self.code.bind(absent);
            }
            Action::Find { map, address } => {
                let bits = if address.len() == 1 { 32 } else { 128 };
                self.code.store_value(Size::Word, R10, KEY, bits);
                for (number, word) in address.iter().enumerate() {
                    self.move_to(R0, *word);
                    self.code.network_order(R0, bits.min(64));
                    let size = if bits == 32 { Size::Word } else { Size::Double };
                    // The key is packed: its octets follow the length, so it is written in halves.
                    if size == Size::Double {
                        let at = KEY + 4 + 8 * number as i16;
                        self.code.store(Size::Word, R10, at, R0);
                        self.code.shift_right(R0, 32);
                        self.code.store(Size::Word, R10, at + 4, R0);
                    } else {
                        self.code.store(Size::Word, R10, KEY + 4, R0);
                    }
                }
                self.call(*map, Helper::MapLookup, KEY);
                // There is no time before it.
                self.found([(0, 1)].into_iter());
            }
            Action::Value { word } => {
                self.code.load(Size::Double, R0, R10, self.found + 8 * i16::from(*word));
            }
            Action::Update { fresh, map, key, value } => {
                self.key(key);
                for (number, word) in value.iter().enumerate() {
                    self.move_to(R0, *word);
                    self.code.store(Size::Double, R10, self.written + 8 * number as i16, R0);
                }
                if self.is_record(*map) {
                    let place = self.seal(*map, key.len(), R10, self.written);
                    self.code.store(Size::Double, R10, self.written + place, R0);
                }
                self.code.copy(R3, R10);
                self.code.add(R3, i32::from(self.written));
                self.code.set(R4, if *fresh { NO_EXIST } else { 0 });
                self.call(*map, Helper::MapUpdate, KEY);
                self.succeeded();
            }
            Action::Delete { map, key } => {
                self.key(key);
                self.call(*map, Helper::MapDelete, KEY);
                self.succeeded();
            }
            Action::Count { map, place, amount } => {
                match *place {
                    Operand::Constant(place) => self.code.store_value(Size::Word, R10, KEY, place as i32),
                    place => {
                        self.move_to(R0, place);
                        self.code.store(Size::Word, R10, KEY, R0);
                    }
                }
                self.call(*map, Helper::MapLookup, KEY);
                let absent = self.code.label();
                self.code.jump_if(R0, Condition::Equal, 0, absent);
                self.move_to(R1, *amount);
                self.code.copy(R2, R1);
                self.code.fetch_and_add(Size::Double, R0, 0, R1);
                self.code.copy(R0, R1);
                self.code.calculate(Operation::Add, R0, R2);
                self.code.bind(absent);
            }
            _ => unreachable!("only of maps"),
        }
        self.write(result, R0);
    }

    fn key(&mut self, key: &[Operand]) {
        for (number, word) in key.iter().enumerate() {
            self.move_to(R0, *word);
            self.code.store(Size::Double, R10, KEY + 8 * number as i16, R0);
        }
    }

    pub(super) fn call(&mut self, map: usize, helper: Helper, key: i16) {
        self.code.copy(R2, R10);
        self.code.add(R2, i32::from(key));
        self.code.load_map(R1, &self.maps[map]);
        self.code.call(helper);
    }

    /// Takes numbers of what R0 points to, if anything, each from one place to another, and tells in R0 whether it does.
    fn found(&mut self, words: impl Iterator<Item = (i16, i16)> + Clone) {
        let [absent, end] = [self.code.label(), self.code.label()];
        self.code.jump_if(R0, Condition::Equal, 0, absent);
        for (from, to) in words.clone() {
            self.code.load(Size::Double, R1, R0, 8 * from);
            self.code.store(Size::Double, R10, self.found + 8 * to, R1);
        }
        self.code.set(R0, 1);
        self.code.jump(end);
        self.code.bind(absent);
        for (_, to) in words {
            self.code.store_value(Size::Double, R10, self.found + 8 * to, 0);
        }
        self.code.bind(end);
    }

    /// R0 = 1 if a helper returned 0, otherwise 0.
    fn succeeded(&mut self) {
        let end = self.code.label();
        self.code.copy(R1, R0);
        self.code.set(R0, 0);
        self.code.jump_if(R1, Condition::NotEqual, 0, end);
        self.code.calculate(Operation::Move, R0, 1);
        self.code.bind(end);
    }
}

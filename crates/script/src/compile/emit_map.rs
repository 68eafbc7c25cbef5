//! Instructions for maps.

use bpf::Register::{R0, R1, R2, R3, R4, R10};
use bpf::{Condition, Helper, Operation, Size};

use super::emit::{Emitter, FOUND, KEY};
use super::ir::{Action, Operand, Value};

impl Emitter<'_> {
    pub(super) fn map_action(&mut self, action: &Action, result: Value) {
        match action {
            Action::Lookup { map, key, words } => {
                self.key(key);
                self.call(*map, Helper::MapLookup, KEY);
                self.found(i16::from(*words) + 1, 0);
            }
            Action::Add { map, key, amount, now } => {
                self.key(key);
                self.call(*map, Helper::MapLookup, KEY);
                let absent = self.code.label();
                self.code.jump_if(R0, Condition::Equal, 0, absent);
                self.move_to(R1, *now);
                self.code.store(Size::Double, R0, 0, R1);
                self.move_to(R1, *amount);
                self.code.add_atomically(Size::Double, R0, 8, R1);
                self.code.bind(absent);
                self.found(2, 0);
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
                self.found(1, 1);
            }
            Action::Value { word } => self.code.load(Size::Double, R0, R10, FOUND + 8 * i16::from(*word)),
            Action::Update { map, key, value } => {
                self.key(key);
                for (number, word) in value.iter().enumerate() {
                    self.move_to(R0, *word);
                    self.code.store(Size::Double, R10, FOUND + 8 * number as i16, R0);
                }
                self.code.copy(R3, R10);
                self.code.add(R3, i32::from(FOUND));
                self.code.set(R4, 0);
                self.call(*map, Helper::MapUpdate, KEY);
                self.succeeded();
            }
            Action::Delete { map, key } => {
                self.key(key);
                self.call(*map, Helper::MapDelete, KEY);
                self.succeeded();
            }
            Action::Count { map, amount } => {
                self.code.store_value(Size::Word, R10, KEY, 0);
                self.call(*map, Helper::MapLookup, KEY);
                let absent = self.code.label();
                self.code.jump_if(R0, Condition::Equal, 0, absent);
                self.move_to(R1, *amount);
                self.code.add_atomically(Size::Double, R0, 0, R1);
                self.code.load(Size::Double, R0, R0, 0);
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

    fn call(&mut self, map: usize, helper: Helper, key: i16) {
        self.code.copy(R2, R10);
        self.code.add(R2, i32::from(key));
        self.code.load_map(R1, &self.maps[map]);
        self.code.call(helper);
    }

    /// Takes so many numbers of what R0 points to, if anything, and tells in R0 whether it does.
    fn found(&mut self, words: i16, first: i16) {
        let [absent, end] = [self.code.label(), self.code.label()];
        self.code.jump_if(R0, Condition::Equal, 0, absent);
        for word in 0..words {
            self.code.load(Size::Double, R1, R0, 8 * word);
            self.code.store(Size::Double, R10, FOUND + 8 * (first + word), R1);
        }
        self.code.set(R0, 1);
        self.code.jump(end);
        self.code.bind(absent);
        for word in first..first + words {
            self.code.store_value(Size::Double, R10, FOUND + 8 * word, 0);
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

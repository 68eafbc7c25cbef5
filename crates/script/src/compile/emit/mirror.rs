//! A copy of the packet leaves through another interface.

use bpf::Register::{R0, R1, R2, R3, R6, R10};
use bpf::{Condition, Helper, Size, context};

use super::{Emitter, FOUND};
use crate::compile::account::Mirrors;

impl Emitter<'_> {
    /// The copy has the mark of packets that scripts have made, so that it comes to none, at whichever interface it is
    /// seen again; the packet keeps its own.
    pub(super) fn mirror(&mut self, interface: usize) {
        const KEPT: i16 = FOUND + 8;
        let interfaces = match self.accounts.map(|accounts| accounts.mirrors) {
            None => return,
            Some(Mirrors::Told) => return self.capture(self.program.captures.len() + interface),
            Some(Mirrors::Sent(map)) => map,
        };
        let end = self.code.label();
        self.code.store_value(Size::Word, R10, FOUND, interface as i32);
        self.code.load_map(R1, &interfaces);
        self.code.copy(R2, R10);
        self.code.add(R2, i32::from(FOUND));
        self.code.call(Helper::MapLookup);
        self.code.jump_if(R0, Condition::Equal, 0, end);
        self.code.load(Size::Word, R2, R0, 0);
        self.code.jump_if(R2, Condition::Equal, 0, end);
        if let Some(mark) = self.results.unseen_mark {
            self.code.load(Size::Word, R0, R6, context::MARK);
            self.code.store(Size::Double, R10, KEPT, R0);
            self.code.set_wide(R0, mark.into());
            self.code.store(Size::Word, R6, context::MARK, R0);
        }
        self.code.copy(R1, R6);
        self.code.set(R3, 0);
        // It fails where the interface is gone by now, or down: then there is no copy.
        self.code.call(Helper::CloneRedirect);
        if self.results.unseen_mark.is_some() {
            self.code.load(Size::Double, R0, R10, KEPT);
            self.code.store(Size::Word, R6, context::MARK, R0);
        }
        self.code.bind(end);
    }
}

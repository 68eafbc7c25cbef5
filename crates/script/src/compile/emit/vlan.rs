//! VLAN tags, beside the packet and, at XDP, in the frame.

use super::Emitter;
use crate::compile::attach_type::AttachType;
use crate::compile::ir::{Failure, Operand, Value};
use crate::vlan::TAGS;
use bpf::Register::{R0, R1, R2, R3, R6};
use bpf::{Condition, Helper, Operation, Size, context};

impl Emitter<'_> {
    /// The tag, and bit 16 if there is one.
    pub(super) fn tag(&mut self, result: Value) {
        let code = &mut self.code;
        if *self.attach_type == AttachType::Xdp {
            self.tag_at_xdp();
        } else {
            code.load(Size::Word, R0, R6, context::VLAN_PRESENT);
            code.calculate(Operation::ShiftLeft, R0, 16);
            code.load(Size::Word, R1, R6, context::VLAN_TCI);
            code.calculate(Operation::Or, R0, R1);
            // The kernel has 0 or 1, and 16 bits: what the verifier cannot know.
            code.and(R0, 0x1_ffff);
        }
        self.write(result, R0);
    }

    pub(super) fn push_tag(&mut self, tag: Operand, line: u32) {
        let tagged = self.failure(Failure::Tagged, line);
        self.code.load(Size::Word, R0, R6, context::VLAN_PRESENT);
        self.code.jump_if(R0, Condition::NotEqual, 0, tagged);
        self.move_to(R3, tag);
        self.code.copy(R1, R6);
        self.code.set(R2, i32::from(TAGS[0].to_be()));
        self.code.call(Helper::SkbVlanPush);
        self.fail_if_error(line);
    }
}

//! How a program comes by packets, which depends on where it is attached: how it begins, and how it reads.

use bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R10};
use bpf::netfilter::{self, Layout};
use bpf::{Condition, Helper, Label, Operation, Size, context};
use wire::ethernet;

use super::{BUFFER, DYNPTR, Emitter};
use crate::compile::attach_type::{ADDRESSES, AttachType, Side};
use crate::compile::ir::{Failure, Operand};
use crate::vlan::{LARGEST, TAGS};

/// Octets of a VLAN tag.
const TAG: i32 = 4;
/// Its bits that say which VLAN.
const VLAN: u16 = LARGEST;
// At XDP there is no dynptr, so its place on the stack has these.
const LENGTH: i16 = DYNPTR;
const ETHERTYPE: i16 = BUFFER;

impl<'a> Emitter<'a> {
    /// By how much what is behind the addresses has moved.
    pub(super) const MOVED: i16 = DYNPTR + 8;

    /// R6 = what packets are read from; packets that are none of the script's pass.
    pub(super) fn begin(&mut self, attach_type: &'a AttachType) {
        match attach_type {
            AttachType::Interface { .. } => {
                self.code.copy(R6, R1);
                let Some(mark) = self.results.unseen_mark else { return };
                let unseen = self.code.label();
                self.pass_marked(context::MARK, mark, unseen);
                let seen = self.code.label();
                self.code.load(Size::Word, R0, R6, context::PROTOCOL);
                for kind in [ethernet::ETHERTYPE_IPV4, ethernet::ETHERTYPE_IPV6] {
                    self.code.jump_if(R0, Condition::Equal, i32::from(kind.to_be()), seen);
                }
                if self.before == 0 {
                    self.look_behind_tags(unseen);
                } else {
                    self.pass(unseen);
                }
                self.code.bind(seen);
            }
            AttachType::Xdp => self.begin_at_xdp(),
            AttachType::Netfilter { layout, interfaces } => {
                self.code.load(Size::Double, R7, R1, netfilter::STATE);
                self.code.load(Size::Double, R6, R1, netfilter::PACKET);
                let [seen, unseen] = [self.code.label(), self.code.label()];
                if let Some(mark) = self.results.unseen_mark {
                    self.pass_marked(layout.mark, mark, unseen);
                }
                for (side, name) in interfaces {
                    self.pass_others(layout, *side, name, unseen);
                }
                // The kernel refuses what nothing leads to.
                if self.results.unseen_mark.is_some() || !interfaces.is_empty() {
                    self.code.jump(seen);
                    self.pass(unseen);
                    self.code.bind(seen);
                }
                self.make_dynptr(layout);
            }
        }
    }

    /// Of what is not IP, which passes unseen, fails at what comes to be IP later. A packet with two tags, one beside it and one
    /// in the frame, is that of a VLAN within a VLAN, which has an interface of its own. But a tag of VLAN 0 is one of no
    /// VLAN: behind this place the kernel takes it off (`__netif_receive_skb_core`), and receives what the other tag leaves.
    /// R0 has the EtherType.
    fn look_behind_tags(&mut self, unseen: Label) {
        let [tagged, hidden] = [(); 2].map(|()| self.code.label());
        for kind in TAGS {
            self.code.jump_if(R0, Condition::Equal, i32::from(kind.to_be()), tagged);
        }
        self.code.jump(unseen);
        self.code.bind(tagged);
        self.code.load(Size::Word, R0, R6, context::VLAN_PRESENT);
        self.code.jump_if(R0, Condition::Equal, 0, unseen);
        self.code.load(Size::Word, R0, R6, context::VLAN_TCI);
        self.code.and(R0, i32::from(VLAN));
        self.code.jump_if(R0, Condition::Equal, 0, hidden);
        self.code.copy(R1, R6);
        self.code.set(R2, ethernet::HEADER_LEN as i32);
        self.code.copy(R3, R10);
        self.code.add(R3, i32::from(BUFFER));
        self.code.set(R4, 2);
        self.code.call(Helper::SkbLoadBytes);
        self.code.jump_if(R0, Condition::NotEqual, 0, unseen);
        self.code.load(Size::Half, R0, R10, BUFFER);
        self.code.and(R0, i32::from(VLAN.to_be()));
        self.code.jump_if(R0, Condition::Equal, 0, hidden);
        self.pass(unseen);
        self.fail_unseen(hidden);
    }

    /// Fails before the function has begun.
    fn fail_unseen(&mut self, label: Label) {
        let mut lines = self.program.blocks.iter().flat_map(|block| &block.code).map(|code| code.line);
        let line = lines.next().unwrap_or_default();
        self.code.bind(label);
        self.start_counting();
        self.start_tracing();
        self.give_up(Failure::PriorityTag, line);
    }

    /// It fails for flags alone, of which there are none.
    pub(super) fn make_dynptr(&mut self, layout: &Layout) {
        self.code.copy(R1, R6);
        self.code.set(R2, 0);
        self.code.copy(R3, R10);
        self.code.add(R3, i32::from(DYNPTR));
        self.code.call_kernel(layout.dynptr_from_skb);
    }

    /// The packet's length goes to the stack, and by how much what is behind the addresses has moved.
    fn begin_at_xdp(&mut self) {
        let [seen, tagged, twice, hidden, unseen] = [(); 5].map(|()| self.code.label());
        self.code.copy(R6, R1);
        self.code.call(Helper::XdpBufferLength);
        self.code.copy(R7, R0);
        self.code.set(R8, 0);
        for at in [ethernet::HEADER_LEN as i32 - 2, ethernet::HEADER_LEN as i32 - 2 + TAG] {
            self.code.set(R2, at);
            self.load_at_xdp(ETHERTYPE, 2);
            self.code.jump_if(R0, Condition::NotEqual, 0, unseen);
            self.code.load(Size::Half, R0, R10, ETHERTYPE);
            for kind in [ethernet::ETHERTYPE_IPV4, ethernet::ETHERTYPE_IPV6] {
                self.code.jump_if(R0, Condition::Equal, i32::from(kind.to_be()), seen);
            }
            let is_first = at == ethernet::HEADER_LEN as i32 - 2;
            for kind in TAGS {
                let to = if is_first { tagged } else { twice };
                self.code.jump_if(R0, Condition::Equal, i32::from(kind.to_be()), to);
            }
            self.code.jump(unseen);
            if is_first {
                self.code.bind(tagged);
                self.code.set(R8, TAG);
                self.code.add(R7, -TAG);
            }
        }
        // As at ingress: see `look_behind_tags`.
        self.code.bind(twice);
        for at in [ethernet::HEADER_LEN as i32, ethernet::HEADER_LEN as i32 + TAG] {
            self.code.set(R2, at);
            self.load_at_xdp(ETHERTYPE, 2);
            self.code.jump_if(R0, Condition::NotEqual, 0, unseen);
            self.code.load(Size::Half, R0, R10, ETHERTYPE);
            self.code.and(R0, i32::from(VLAN.to_be()));
            self.code.jump_if(R0, Condition::Equal, 0, hidden);
        }
        self.pass(unseen);
        self.fail_unseen(hidden);
        self.code.bind(seen);
        self.code.store(Size::Double, R10, LENGTH, R7);
        self.code.store(Size::Double, R10, Self::MOVED, R8);
    }

    /// R0 = the tag that is left out, and bit 16 if there is one.
    pub(super) fn tag_at_xdp(&mut self) {
        let end = self.code.label();
        self.code.load(Size::Double, R0, R10, Self::MOVED);
        self.code.jump_if(R0, Condition::Equal, 0, end);
        self.code.set(R2, ethernet::HEADER_LEN as i32);
        self.load_at_xdp(ETHERTYPE, 2);
        self.code.load(Size::Half, R0, R10, ETHERTYPE);
        self.code.network_order(R0, 16);
        self.code.calculate(Operation::Or, R0, 1 << 16);
        self.code.bind(end);
    }

    /// Copies so many bytes from the offset in R2 to a place on the stack; R0 is 0 unless they are not all there.
    fn load_at_xdp(&mut self, at: i16, bytes: u8) {
        self.code.copy(R1, R6);
        self.code.copy(R3, R10);
        self.code.add(R3, i32::from(at));
        self.code.set(R4, bytes.into());
        self.code.call(Helper::XdpLoadBytes);
    }

    /// R2 = where a byte of the packet is in the frame. Without a jump, as the verifier follows both ways of one.
    fn place_at_xdp(&mut self, offset: Operand) {
        self.move_to(R2, offset);
        match offset {
            Operand::Constant(at) if at < ADDRESSES => return,
            Operand::Constant(_) => self.code.load(Size::Double, R0, R10, Self::MOVED),
            Operand::Value(_) => {
                // All ones if it lies within the addresses, and nothing has moved.
                self.code.copy(R1, R2);
                self.code.add(R1, -(ADDRESSES as i32));
                self.code.calculate(Operation::SignedShiftRight, R1, 63);
                self.code.calculate(Operation::Xor, R1, -1);
                self.code.load(Size::Double, R0, R10, Self::MOVED);
                self.code.calculate(Operation::And, R0, R1);
            }
        }
        self.code.calculate(Operation::Add, R2, R0);
    }

    fn pass_marked(&mut self, at: i16, mark: u32, unseen: Label) {
        self.code.load(Size::Word, R0, R6, at);
        self.code.set_wide(R1, mark.into());
        self.code.jump_if(R0, Condition::Equal, R1, unseen);
    }

    /// Packets of an interface of another name, or of none. The state is in R7.
    fn pass_others(&mut self, layout: &Layout, side: Side, name: &str, unseen: Label) {
        let device = match side {
            Side::Incoming => layout.incoming,
            Side::Outgoing => layout.outgoing,
        };
        self.code.load(Size::Double, R1, R7, device);
        self.code.jump_if(R1, Condition::Equal, 0, unseen);
        // With the zero at its end. What is behind it in the kernel is not the name's.
        let mut wanted = name.as_bytes().to_vec();
        wanted.push(0);
        for (number, part) in wanted.chunks(8).enumerate() {
            let [mut value, mut mask] = [[0; 8]; 2];
            value[..part.len()].copy_from_slice(part);
            mask[..part.len()].fill(0xff);
            self.code.load(Size::Double, R0, R1, layout.name + 8 * number as i16);
            self.code.set_wide(R2, u64::from_ne_bytes(mask));
            self.code.calculate(Operation::And, R0, R2);
            self.code.set_wide(R2, u64::from_ne_bytes(value));
            self.code.jump_if(R0, Condition::NotEqual, R2, unseen);
        }
    }

    fn pass(&mut self, unseen: Label) {
        self.code.bind(unseen);
        self.code.exit_with(self.results.pass);
    }

    /// `to` = the packet's length, without a link header that is made up.
    pub(super) fn length(&mut self, to: bpf::Register) {
        let at = match self.attach_type {
            AttachType::Xdp => return self.code.load(Size::Double, to, R10, LENGTH),
            AttachType::Interface { .. } => context::LEN,
            AttachType::Netfilter { layout, .. } => layout.length,
        };
        self.code.load(Size::Word, to, R6, at);
    }

    /// Copies as many bytes of the packet as R4 says to where R3 points; R0 is 0 unless they are not all there.
    pub(super) fn copy_to_pointer(&mut self, offset: Operand) {
        match self.attach_type {
            AttachType::Interface { .. } => {
                self.offset(R2, offset);
                self.code.copy(R1, R6);
                self.code.call(Helper::SkbLoadBytes);
            }
            AttachType::Xdp => {
                self.place_at_xdp(offset);
                self.code.copy(R1, R6);
                self.code.call(Helper::XdpLoadBytes);
            }
            AttachType::Netfilter { .. } => {
                self.code.copy(R1, R3);
                self.code.copy(R2, R4);
                self.offset(R4, offset);
                self.code.copy(R3, R10);
                self.code.add(R3, i32::from(DYNPTR));
                self.code.set(R5, 0);
                self.code.call(Helper::DynptrRead);
            }
        }
    }

    /// Copies so many bytes of the packet to a place on the stack; R0 is 0 unless they are not all there.
    pub(super) fn copy_from_packet(&mut self, offset: Operand, at: i16, bytes: u8) {
        match self.attach_type {
            AttachType::Interface { .. } => {
                self.offset(R2, offset);
                self.code.copy(R1, R6);
                self.code.copy(R3, R10);
                self.code.add(R3, i32::from(at));
                self.code.set(R4, bytes.into());
                self.code.call(Helper::SkbLoadBytes);
            }
            AttachType::Xdp => {
                self.place_at_xdp(offset);
                self.load_at_xdp(at, bytes);
            }
            AttachType::Netfilter { .. } => {
                self.offset(R4, offset);
                self.code.copy(R1, R10);
                self.code.add(R1, i32::from(at));
                self.code.set(R2, bytes.into());
                self.code.copy(R3, R10);
                self.code.add(R3, i32::from(DYNPTR));
                self.code.set(R5, 0);
                self.code.call(Helper::DynptrRead);
            }
        }
    }
}

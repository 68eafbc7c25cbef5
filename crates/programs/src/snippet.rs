//! The layer that all programs are written on: what takes several instructions and means one thing.
//!
//! R6 is the context, in every program. A snippet uses R1 to R5 and leaves its result in R0.

use std::os::fd::AsRawFd;

use bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R10};
use bpf::{Assembler, Condition, Helper, Label, NEXT_HOP, Operation, Register, Size, context, verdict};

/// Bytes that an Ethernet header has.
pub(crate) const LINK_HEADER: i32 = 14;

/// Instructions for what programs do again and again.
pub(crate) trait Snippets {
    /// R0 = the value in the map of the key that lies there on the stack, or 0.
    fn look_up(&mut self, map: &impl AsRawFd, key: i16);

    /// Bytes of the packet, from its very beginning, to the stack; goes on at the label where it is too short.
    fn load_bytes(&mut self, from: i32, to: i16, length: i32, short: Label);

    /// Bytes of the stack over those of the packet, from its very beginning. R0 is 0 if that went well.
    fn store_bytes(&mut self, to: i32, from: i16, length: i32);

    /// Drops the packet unless R0 is 0: it has been changed already, and cannot be left to anybody.
    fn or_drop(&mut self);

    /// Room in front of all, of zeros. R0 is 0 if that went well.
    fn change_head(&mut self, length: i32);

    /// So many bytes more, or fewer, where `mode` says (`BPF_ADJ_ROOM_*`). R0 is 0 if that went well.
    fn adjust_room(&mut self, difference: i32, mode: i32, flags: i32);

    /// R1 = how many packets this is: the segments of a GSO packet, or 1.
    fn segments(&mut self);

    /// Adds R1 to a counter of the value that R0 points to; R2 is lost.
    fn count(&mut self, counter: i16);

    /// R1 = the sum of the IPv4 header without options that lies there on the stack, folded; R2 is lost.
    fn sum_ipv4_header(&mut self, header: i16);

    /// Ends: out of the interface whose index is in R1.
    fn redirect(&mut self);

    /// Ends: out of the interface whose index is in R1, to the next hop that R2 points to, of R3 bytes; with both zero
    /// the kernel looks for one.
    fn redirect_to_neighbor(&mut self);

    /// The same, to the next hop that lies there in the value that a register points to; where it is of zeros, the
    /// kernel looks for one.
    fn redirect_to_known_neighbor(&mut self, value: Register, next_hop: i16);

    /// Ends: into this host, as if it had come in by the interface whose index is in R1.
    fn redirect_into_host(&mut self);
}

impl Snippets for Assembler {
    fn look_up(&mut self, map: &impl AsRawFd, key: i16) {
        self.load_map(R1, map);
        self.copy(R2, R10);
        self.add(R2, i32::from(key));
        self.call(Helper::MapLookup);
    }

    fn load_bytes(&mut self, from: i32, to: i16, length: i32, short: Label) {
        self.copy(R1, R6);
        self.set(R2, from);
        self.copy(R3, R10);
        self.add(R3, i32::from(to));
        self.set(R4, length);
        self.call(Helper::SkbLoadBytes);
        self.jump_if(R0, Condition::NotEqual, 0, short);
    }

    fn store_bytes(&mut self, to: i32, from: i16, length: i32) {
        self.copy(R1, R6);
        self.set(R2, to);
        self.copy(R3, R10);
        self.add(R3, i32::from(from));
        self.set(R4, length);
        self.set(R5, 0);
        self.call(Helper::SkbStoreBytes);
    }

    fn or_drop(&mut self) {
        let well = self.label();
        self.jump_if(R0, Condition::Equal, 0, well);
        self.exit_with(verdict::DROP);
        self.bind(well);
    }

    fn change_head(&mut self, length: i32) {
        self.copy(R1, R6);
        self.set(R2, length);
        self.set(R3, 0);
        self.call(Helper::SkbChangeHead);
    }

    fn adjust_room(&mut self, difference: i32, mode: i32, flags: i32) {
        self.copy(R1, R6);
        self.set(R2, difference);
        self.set(R3, mode);
        self.set(R4, flags);
        self.call(Helper::SkbAdjustRoom);
    }

    fn segments(&mut self) {
        let some = self.label();
        self.load(Size::Word, R1, R6, context::GSO_SEGMENTS);
        self.jump_if(R1, Condition::NotEqual, 0, some);
        self.set(R1, 1);
        self.bind(some);
    }

    fn count(&mut self, counter: i16) {
        self.load(Size::Double, R2, R0, counter);
        self.add(R2, R1);
        self.store(Size::Double, R0, counter, R2);
    }

    fn sum_ipv4_header(&mut self, header: i16) {
        self.load(Size::Word, R1, R10, header);
        for word in 1..5 {
            self.load(Size::Word, R2, R10, header + 4 * word);
            self.add(R1, R2);
        }
        // 35 bits, to 32, to 17, to 16.
        for bits in [32, 16, 16] {
            self.copy(R2, R1);
            self.shift_right(R2, bits);
            match bits {
                32 => self.calculate_32(Operation::Move, R1, R1),
                _ => self.and(R1, 0xffff),
            }
            self.add(R1, R2);
        }
        let folded = self.label();
        self.jump_if(R1, Condition::Less, 0x1_0000, folded);
        self.add(R1, -0xffff);
        self.bind(folded);
    }

    fn redirect(&mut self) {
        self.set(R2, 0);
        self.call(Helper::Redirect);
        self.exit();
    }

    fn redirect_to_neighbor(&mut self) {
        self.set(R4, 0);
        self.call(Helper::RedirectNeighbor);
        self.exit();
    }

    fn redirect_to_known_neighbor(&mut self, value: Register, next_hop: i16) {
        let [lookup, redirect] = std::array::from_fn(|_| self.label());
        self.load(Size::Word, R2, value, next_hop);
        self.jump_if(R2, Condition::Equal, 0, lookup);
        self.copy(R2, value);
        self.add(R2, i32::from(next_hop));
        self.set(R3, NEXT_HOP as i32);
        self.jump(redirect);
        // A neighbor that is still to be resolved takes that: the packet waits with its route, and that which led to the
        // device would lose it.
        self.bind(lookup);
        self.set(R2, 0);
        self.set(R3, 0);
        self.bind(redirect);
        self.redirect_to_neighbor();
    }

    fn redirect_into_host(&mut self) {
        const INGRESS: i32 = 1;
        self.set(R2, INGRESS);
        self.call(Helper::Redirect);
        self.exit();
    }
}

//! The program at the external interface: takes the mask off, and gives the packet to the stack as one of the other tunnel.

use std::os::fd::AsRawFd;

use bpf::Register::{R0, R1, R2, R3, R5, R6, R7, R8, R10};
use bpf::Size::{Double, Word};
use bpf::{Assembler, Condition, Helper, verdict};

use super::chacha;
use super::layout::{LARGE, SAMPLE, TRAILER, Tables, at::incoming as at};
use super::packet::{Code, HEADER, LENGTH, PACKET, STATE, TRAILER as PLACE};
use super::turn::{self, state};
use crate::snippet::Snippets as _;

/// The program at the external interface, which has a link header of so many bytes. Packets go to the stack by the device
/// `tun`, as if they came out of the tunnel.
pub fn incoming(tables: &Tables<impl AsRawFd>, link: u8, tun: u32) -> Assembler {
    let tables = tables.descriptors();
    let mut code = Code { code: Assembler::default(), link: link.into() };
    let [leave, turn, block, replace] = std::array::from_fn(|_| code.code.label());
    code.begin(leave);
    code.code.jump_if(R7, Condition::LessOrEqual, SAMPLE, leave);
    code.look_up_flow(tables.incoming);
    code.code.jump_if(R0, Condition::Equal, 0, leave);
    code.code.copy(R8, R0);
    code.leave_tiny(leave);
    code.in_one_piece(leave);
    code.state(R8, at::KEY, at::ZERO, state::INCOMING);
    turn::run(&mut code.code, turn, STATE);
    code.drop_failed();
    code.code.load(Double, R1, R10, STATE + state::FLAGS);
    code.code.jump_if(R1, Condition::AnyBit, state::DAEMON, leave);

    code.code.load(Double, R1, R10, PACKET);
    code.code.store(Double, R10, HEADER, R1);
    code.code.set(R3, 0);
    code.code.store(Double, R10, LENGTH, R7);
    code.code.load(Double, R1, R10, STATE + state::FLAGS);
    code.code.and(R1, state::SMALL);
    code.code.jump_if(R1, Condition::Equal, 0, replace);
    code.take_trailer();
    code.code.bind(replace);
    code.correct(R8, at::ADDRESSES_DIFFERENCE, at::PORTS_DIFFERENCE);
    // What a device has summed up of a packet covers its IPv6 header: what was changed there and in the checksum comes to
    // nothing, and l4_csum_replace has reckoned with the one alone.
    code.code.copy(R1, R6);
    code.code.copy(R2, R3);
    code.code.call(Helper::ChecksumUpdate);
    code.replace(R8, at::ADDRESSES);
    code.make_shorter();
    code.code.load(Word, R1, R8, at::NUMBER);
    code.count(tables.counters, 16);
    code.code.set(R1, tun.cast_signed());
    code.code.redirect_into_host();

    code.code.bind(leave);
    code.code.exit_with(verdict::NEXT);
    turn::function(&mut code.code, turn, block);
    chacha::block(&mut code.code, block);
    code.code
}

impl Code {
    /// How long a small message is, behind which all else goes. R3 = what its length changes.
    fn take_trailer(&mut self) {
        let code = &mut self.code;
        let [fine, malformed] = std::array::from_fn(|_| code.label());
        code.load(Double, R1, R10, STATE + state::MARK);
        code.shift_right(R1, 48);
        code.network_order(R1, 16);
        code.store(Double, R10, LENGTH, R1);
        code.jump_if(R1, Condition::Equal, 0, malformed);
        code.jump_if(R1, Condition::GreaterOrEqual, LARGE, malformed);
        code.add(R1, TRAILER);
        code.jump_if(R1, Condition::LessOrEqual, R7, fine);
        code.bind(malformed);
        code.exit_with(verdict::DROP);
        code.bind(fine);
        self.end_of_message(Helper::SkbLoadBytes, TRAILER, PLACE, TRAILER);
        self.code.or_drop();
        // It leaves the sum that a device has made as it leaves the packet, and is still in the checksum.
        self.code.set(R5, 0);
        self.sum_trailer(true);
        self.code.copy(R1, R6);
        self.code.copy(R2, R0);
        self.code.call(Helper::ChecksumUpdate);
        self.code.load(Double, R5, R10, STATE + state::SUM);
        self.sum_trailer(false);
        self.code.store(Double, R10, STATE + state::SUM, R0);
        self.code.load(Double, R1, R10, LENGTH);
        self.state_payload_length();
        self.code.load(Double, R1, R10, LENGTH);
        self.code.copy(R2, R7);
        self.length_difference();
    }

    /// Takes off what is behind a small message.
    fn make_shorter(&mut self) {
        let same = self.code.label();
        self.code.load(Double, R1, R10, LENGTH);
        self.code.jump_if(R1, Condition::Equal, R7, same);
        self.code.copy(R7, R1);
        self.write_length();
        self.change_length();
        self.code.or_drop();
        self.code.bind(same);
    }
}

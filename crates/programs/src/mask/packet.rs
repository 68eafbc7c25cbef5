//! What both programs do with a packet: read it, have its messages masked, give it other addresses and ports.

use std::os::fd::RawFd;

use bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R10};
use bpf::{Assembler, Condition, Helper, Label, Operation, Register, Size, context};
use wire::protocol;

use Size::{Byte, Double, Half, Word};

use super::layout::{self, SAMPLE};
use super::turn::state;
use crate::snippet::Snippets as _;

// Places on the stack: the packet's first 48 bytes, the state of the loop, the header that the packet gets with its ports,
// what a small message has at its end.
pub(super) const PACKET: i16 = -48;
pub(super) const STATE: i16 = PACKET - state::LENGTH;
pub(super) const HEADER: i16 = STATE - 48;
pub(super) const TRAILER: i16 = HEADER - 24;
pub(super) const NUMBER: i16 = TRAILER - 8;
/// The length of the other tunnel's message, 8 bytes.
pub(super) const LENGTH: i16 = NUMBER - 8;

// Offsets from where an IPv6 header begins.
const PAYLOAD_LENGTH: i16 = 4;
const NEXT_HEADER: i16 = 6;
/// Addresses and ports, which lie side by side: what a flow is called.
pub(super) const SOURCE: i16 = 8;
const PORTS: i16 = 40;
const UDP_LENGTH: i16 = 44;
const CHECKSUM: i16 = 46;
/// Where a message begins.
pub(super) const MESSAGE: i16 = 48;
/// What is in front of it, but for the IPv6 header.
const UDP_HEADER: i32 = 8;

/// Of l4_csum_replace: the pseudo-header has changed; and a checksum of zero is none.
const PSEUDO_HEADER: i32 = 0x10;
const NOT_ZERO: i32 = 0x20;

/// A program in the making, at a device with a link header of so many bytes. R6 is the context, R7 the length of the UDP
/// payload.
pub(super) struct Code {
    pub(super) code: Assembler,
    pub(super) link: i32,
}

impl Code {
    /// Reads the headers of a whole UDP datagram over IPv6 without extension headers, or of a GSO packet of them.
    pub(super) fn begin(&mut self, leave: Label) {
        let link = self.link;
        let code = &mut self.code;
        code.copy(R6, R1);
        code.load(Word, R1, R6, context::PROTOCOL);
        code.jump_if(R1, Condition::NotEqual, i32::from(wire::ethernet::ETHERTYPE_IPV6.to_be()), leave);
        code.load_bytes(link, PACKET, MESSAGE.into(), leave);
        code.load(Byte, R1, R10, PACKET + NEXT_HEADER);
        code.jump_if(R1, Condition::NotEqual, i32::from(protocol::UDP), leave);
        // A checksum of zero is none, or one that is not made yet and happens to begin so: neither can be changed.
        code.load(Half, R1, R10, PACKET + CHECKSUM);
        code.jump_if(R1, Condition::Equal, 0, leave);
        code.load(Half, R7, R10, PACKET + PAYLOAD_LENGTH);
        code.network_order(R7, 16);
        code.load(Word, R1, R6, context::LEN);
        code.add(R1, -(link + i32::from(PORTS)));
        code.jump_if(R1, Condition::NotEqual, R7, leave);
        code.add(R7, -UDP_HEADER);
        code.jump_if(R7, Condition::SignedLess, 1, leave);
        let gso = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, Condition::NotEqual, 0, gso);
        // Where there is something behind the datagram it is no other tunnel's.
        code.load(Half, R1, R10, PACKET + UDP_LENGTH);
        code.network_order(R1, 16);
        code.add(R1, -UDP_HEADER);
        code.jump_if(R1, Condition::NotEqual, R7, leave);
        code.bind(gso);
    }

    /// R0 = the value of the packet's flow, or 0.
    pub(super) fn look_up_flow(&mut self, table: RawFd) {
        self.code.look_up(&table, PACKET + SOURCE);
    }

    /// Makes the state of the loop: the key is that of the value in `lane`, which has a zero there that the verifier does not
    /// know. Those before Linux 6.6 take what a loop's state begins with for what it is in every turn, and those before 6.8
    /// do not see that a turn depends on what it reads there: what they know they hold to be so always.
    pub(super) fn state(&mut self, lane: Register, key: i16, zero: i16, flags: i32) {
        let first = self.link + i32::from(MESSAGE);
        let code = &mut self.code;
        code.store(Double, R10, STATE + state::CONTEXT, R6);
        code.copy(R1, lane);
        code.add(R1, i32::from(key));
        code.store(Double, R10, STATE + state::KEY, R1);
        code.load(Word, R2, lane, zero);
        code.store(Double, R10, STATE + state::SUM, R2);
        code.store(Double, R10, STATE + state::MARK, R2);
        code.copy(R1, R2);
        code.add(R1, first);
        code.store(Double, R10, STATE + state::FIRST, R1);
        code.add(R1, R7);
        code.store(Double, R10, STATE + state::END, R1);
        // Added, without a way of its own for each: no bit is one that the verifier knows.
        code.add(R2, flags);
        code.load(Word, R3, R6, context::GSO_SIZE);
        code.copy(R1, R3);
        code.negate(R1);
        code.shift_right(R1, 63);
        code.copy(R4, R1);
        code.add(R4, -1);
        code.store(Double, R10, STATE + state::WHICH, R4);
        code.multiply(R1, state::GSO);
        code.add(R2, R1);
        code.store(Double, R10, STATE + state::FLAGS, R2);
        let gso = code.label();
        code.jump_if(R3, Condition::NotEqual, 0, gso);
        code.copy(R3, R7);
        code.bind(gso);
        code.store(Double, R10, STATE + state::SIZE, R3);
    }

    /// The packet lies in one piece, and may be changed as it lies.
    pub(super) fn in_one_piece(&mut self, leave: Label) {
        let code = &mut self.code;
        code.copy(R1, R6);
        code.load(Word, R2, R6, context::LEN);
        code.call(Helper::SkbPullData);
        code.jump_if(R0, Condition::NotEqual, 0, leave);
    }

    /// R3 = how the sum of what the checksum covers changes where a message of R2 bytes becomes one of R1 bytes; once for the
    /// pseudo-header, once for the length in the UDP header.
    pub(super) fn length_difference(&mut self) {
        let code = &mut self.code;
        for (length, into) in [(R1, R3), (R2, R4)] {
            code.copy(into, length);
            code.add(into, UDP_HEADER);
            code.network_order(into, 16);
        }
        code.calculate(Operation::Xor, R4, 0xffff);
        code.add(R3, R4);
    }

    /// Changes the checksum: by what the turns have summed up, the difference of the ports and that in R3, and then by that of
    /// the addresses and that in R3; or loses the packet. R3 = what the pseudo-header changed by.
    pub(super) fn correct(&mut self, lane: Register, addresses: i16, ports: i16) {
        let checksum = self.link + i32::from(CHECKSUM);
        let code = &mut self.code;
        let place = (R10, STATE + state::SUM);
        code.store(Double, R10, NUMBER, R3);
        for (base, at, more, flags) in
            [(place.0, place.1, Some(ports), NOT_ZERO), (lane, addresses, None, NOT_ZERO | PSEUDO_HEADER)]
        {
            code.load(Word, R4, base, at);
            if let Some(more) = more {
                code.load(Word, R1, lane, more);
                code.add(R4, R1);
            }
            code.load(Double, R1, R10, NUMBER);
            code.add(R4, R1);
            for _ in 0..2 {
                code.copy(R1, R4);
                code.shift_right(R1, 32);
                code.calculate_32(Operation::Move, R4, R4);
                code.add(R4, R1);
            }
            code.store(Double, R10, STATE + state::SUM, R4);
            code.copy(R1, R6);
            code.set(R2, checksum);
            code.set(R3, 0);
            code.set(R5, flags);
            code.call(Helper::L4ChecksumReplace);
            code.or_drop();
        }
        code.load(Double, R3, R10, STATE + state::SUM);
    }

    /// Writes addresses and ports of the value in `lane` behind what is in the header's first 8 bytes, and all of it to the
    /// packet.
    pub(super) fn replace(&mut self, lane: Register, addresses: i16) {
        let link = self.link;
        let code = &mut self.code;
        for part in 0..4 {
            code.load(Double, R1, lane, addresses + 8 * part);
            code.store(Double, R10, HEADER + SOURCE + 8 * part, R1);
        }
        code.load(Word, R1, lane, addresses + 32);
        code.store(Word, R10, HEADER + PORTS, R1);
        code.store_bytes(link, HEADER, 44);
        code.or_drop();
    }

    /// Writes to the UDP header how long the message is, as the IPv6 header on the stack says.
    pub(super) fn write_length(&mut self) {
        self.code.store_bytes(self.link + i32::from(UDP_LENGTH), HEADER + PAYLOAD_LENGTH, 2);
        self.code.or_drop();
    }

    /// So many bytes of the stack over those that the message ends with, R7 bytes from its beginning, or from the packet to the
    /// stack. R0 is 0 if that went well.
    pub(super) fn end_of_message(&mut self, helper: Helper, back: i32, place: i16, length: i32) {
        let message = self.link + i32::from(MESSAGE);
        let code = &mut self.code;
        code.copy(R1, R6);
        code.copy(R2, R7);
        code.add(R2, message - back);
        code.copy(R3, R10);
        code.add(R3, i32::from(place));
        code.set(R4, length);
        code.set(R5, 0);
        code.call(helper);
    }

    /// The packet becomes one with a message of R7 bytes. R0 is 0 if that went well.
    pub(super) fn change_length(&mut self) {
        let message = self.link + i32::from(MESSAGE);
        let code = &mut self.code;
        code.copy(R1, R6);
        code.copy(R2, R7);
        code.add(R2, message);
        code.set(R3, 0);
        code.call(Helper::SkbChangeTail);
    }

    /// R0 = the sum of the trailer, added to or taken from that in R5.
    pub(super) fn sum_trailer(&mut self, added: bool) {
        let code = &mut self.code;
        let [(pointer, length), (other, none)] =
            if added { [(R3, R4), (R1, R2)] } else { [(R1, R2), (R3, R4)] };
        code.copy(pointer, R10);
        code.add(pointer, i32::from(TRAILER));
        code.set(length, layout::TRAILER);
        code.set(other, 0);
        code.set(none, 0);
        code.call(Helper::ChecksumDiff);
        code.calculate_32(Operation::Move, R0, R0);
    }

    /// Goes on at the label where the messages of a GSO packet cannot be masked: one of them has nothing but a sample.
    pub(super) fn leave_tiny(&mut self, leave: Label) {
        let code = &mut self.code;
        let fine = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, Condition::Equal, 0, fine);
        code.jump_if(R1, Condition::LessOrEqual, SAMPLE, leave);
        code.copy(R2, R7);
        code.calculate(Operation::Modulo, R2, R1);
        code.jump_if(R2, Condition::Equal, 0, fine);
        code.jump_if(R2, Condition::LessOrEqual, SAMPLE, leave);
        code.bind(fine);
    }

    /// Loses the packet where the turns could not do what they should: it may be half masked.
    pub(super) fn drop_failed(&mut self) {
        let code = &mut self.code;
        code.load(Double, R0, R10, STATE + state::FLAGS);
        code.and(R0, state::FAILED);
        code.or_drop();
    }

    /// Counts a packet of R7 bytes of payload, or the segments of a GSO packet, for the flow whose number is in R1.
    pub(super) fn count(&mut self, table: RawFd, direction: i16) {
        let code = &mut self.code;
        code.store(Word, R10, NUMBER, R1);
        code.look_up(&table, NUMBER);
        let uncounted = code.label();
        code.jump_if(R0, Condition::Equal, 0, uncounted);
        code.segments();
        code.count(direction);
        code.copy(R1, R7);
        code.count(direction + 8);
        code.bind(uncounted);
    }

    /// Writes the payload length that belongs to a message of R1 bytes to the IPv6 header on the stack.
    pub(super) fn state_payload_length(&mut self) {
        let code = &mut self.code;
        code.add(R1, UDP_HEADER);
        code.network_order(R1, 16);
        code.store(Half, R10, HEADER + PAYLOAD_LENGTH, R1);
    }
}

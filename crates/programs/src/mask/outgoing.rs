//! The program at the TUN device: masks packets of the other tunnel, and sends them by a lane.

use std::os::fd::AsRawFd;

use bpf::Register::{R0, R1, R2, R3, R5, R6, R7, R8, R9, R10};
use bpf::Size::{Byte, Double, Half, Word};
use bpf::{Assembler, Condition, Helper, Label, Operation, context, verdict};

use super::chacha::{self, AREA, BLOCK};
use super::layout::{DRAWS, Descriptors, LARGE, MARK, MOMENT, NO_LANE, SAMPLE, TRAILER, Tables, at};
use super::packet::{Code, HEADER, LENGTH, MESSAGE, NUMBER, PACKET, STATE, TRAILER as PLACE};
use super::turn::{self, state};
use crate::snippet::{LINK_HEADER, Snippets as _};

/// Padding of small messages, at most: 62 bytes and one that makes their length even.
const PADDING: i32 = 62;
const HOP_LIMIT: i32 = 64;
/// The first byte of an IPv6 header: the version.
const VERSION: i32 = 0x60;
/// ECN in the second byte of an IPv6 header.
const ECN: i32 = 0x30;

/// The program at the TUN device, which has a link header of so many bytes.
pub fn outgoing(tables: &Tables<impl AsRawFd>, link: u8) -> Assembler {
    let tables = tables.descriptors();
    let mut code = Code { code: Assembler::default(), link: link.into() };
    let [leave, turn, block, chance, small, masked, large] = std::array::from_fn(|_| code.code.label());
    code.begin(leave);
    code.look_up_flow(tables.flows);
    code.code.jump_if(R0, Condition::Equal, 0, leave);
    code.code.copy(R9, R0);
    code.draw_lane(&tables, leave);
    code.fits(leave);
    code.leave_tiny(leave);
    code.in_one_piece(leave);

    code.code.store(Double, R10, LENGTH, R7);
    code.code.load(Word, R1, R6, context::GSO_SIZE);
    code.code.jump_if(R1, Condition::NotEqual, 0, large);
    code.code.jump_if(R7, Condition::Less, LARGE, small);
    code.code.bind(large);
    code.state(R8, at::KEY, at::ZERO, 0);
    code.code.jump(masked);
    code.code.bind(small);
    code.pad(&tables, chance, leave);
    code.state(R8, at::KEY, at::ZERO, state::SMALL);
    code.code.bind(masked);
    turn::run(&mut code.code, turn, STATE);
    code.drop_failed();

    code.head();
    code.finish_trailer();
    code.correct(R8, at::ADDRESSES_DIFFERENCE, at::PORTS_DIFFERENCE);
    code.replace(R8, at::ADDRESSES);
    code.write_new_length();
    code.code.load(Double, R7, R10, LENGTH);
    code.code.load(Word, R1, R9, at::NUMBER);
    code.count(tables.counters, 0);
    code.send();

    code.code.bind(leave);
    code.code.exit_with(verdict::NEXT);
    turn::function(&mut code.code, turn, block);
    chacha::block(&mut code.code, block);
    take_chance(&mut code.code, chance, block);
    code.code
}

impl Code {
    /// R8 = the lane that is drawn for this moment.
    fn draw_lane(&mut self, tables: &Descriptors, leave: Label) {
        let code = &mut self.code;
        code.call(Helper::KtimeGetCoarseNs);
        code.load(Word, R1, R9, at::EARLIER);
        code.add(R0, R1);
        code.shift_right(R0, MOMENT);
        code.and(R0, DRAWS as i32 - 1);
        code.shift_left(R0, 1);
        code.copy(R1, R9);
        code.add(R1, R0);
        code.load(Half, R1, R1, 0);
        code.jump_if(R1, Condition::Equal, i32::from(NO_LANE), leave);
        code.store(Word, R10, NUMBER, R1);
        code.look_up(&tables.lanes, NUMBER);
        code.jump_if(R0, Condition::Equal, 0, leave);
        code.copy(R8, R0);
        code.load(Word, R1, R8, at::INTERFACE);
        code.jump_if(R1, Condition::Equal, 0, leave);
    }

    /// Leaves what is too large for the lane, before or after it was masked.
    fn fits(&mut self, leave: Label) {
        let code = &mut self.code;
        let single = code.label();
        code.copy(R2, R7);
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, Condition::Equal, 0, single);
        code.copy(R2, R1);
        code.bind(single);
        code.add(R2, i32::from(MESSAGE));
        code.load(Word, R1, R8, at::MTU);
        code.jump_if(R2, Condition::Greater, R1, leave);
    }

    /// Makes a small message longer: padding of a length that is drawn, so that its own length is even, room for what says
    /// how long it was, and a sample. R7 = its new length.
    fn pad(&mut self, tables: &Descriptors, chance: Label, leave: Label) {
        let code = &mut self.code;
        code.copy(R1, R7);
        code.network_order(R1, 16);
        code.store_value(Double, R10, PLACE, 0);
        code.store(Half, R10, PLACE + 6, R1);
        code.store_value(Word, R10, NUMBER, 0);
        code.look_up(&tables.chance, NUMBER);
        code.jump_if(R0, Condition::Equal, 0, leave);
        code.copy(R1, R10);
        code.add(R1, i32::from(PLACE) + MARK);
        code.copy(R2, R0);
        code.call_function(chance);
        code.and(R0, PADDING);
        code.copy(R1, R7);
        code.and(R1, 1);
        code.calculate(Operation::Or, R0, R1);
        code.add(R7, R0);
        code.add(R7, TRAILER);
        self.change_length();
        self.code.jump_if(R0, Condition::NotEqual, 0, leave);
        self.end_of_message(Helper::SkbStoreBytes, SAMPLE, PLACE + MARK as i16, SAMPLE);
        self.code.or_drop();
    }

    /// The first 8 bytes of the outer header: the ECN field is the packet's, DSCP and flow label are zero.
    fn head(&mut self) {
        let code = &mut self.code;
        code.load(Byte, R1, R10, PACKET + 1);
        code.and(R1, ECN);
        code.shift_left(R1, 8);
        code.calculate(Operation::Or, R1, VERSION);
        code.store(Word, R10, HEADER, R1);
        code.store_value(Byte, R10, HEADER + 6, wire::protocol::UDP.into());
        code.store_value(Byte, R10, HEADER + 7, HOP_LIMIT);
        code.copy(R1, R7);
        self.state_payload_length();
    }

    /// Writes the trailer of a small message, and adds it to the sum. R3 = what its length changes.
    fn finish_trailer(&mut self) {
        let code = &mut self.code;
        let done = code.label();
        code.set(R3, 0);
        code.load(Double, R1, R10, STATE + state::FLAGS);
        code.and(R1, state::SMALL);
        code.jump_if(R1, Condition::Equal, 0, done);
        code.load(Double, R1, R10, STATE + state::MARK);
        code.load(Double, R2, R10, PLACE);
        code.calculate(Operation::Xor, R1, R2);
        code.store(Double, R10, PLACE, R1);
        self.end_of_message(Helper::SkbStoreBytes, TRAILER, PLACE, MARK);
        self.code.or_drop();
        self.code.load(Double, R5, R10, STATE + state::SUM);
        self.sum_trailer(true);
        self.code.store(Double, R10, STATE + state::SUM, R0);
        self.code.copy(R1, R7);
        self.code.load(Double, R2, R10, LENGTH);
        self.length_difference();
        self.code.bind(done);
    }

    /// Of a small message, which has become longer.
    fn write_new_length(&mut self) {
        let same = self.code.label();
        self.code.load(Double, R1, R10, LENGTH);
        self.code.jump_if(R1, Condition::Equal, R7, same);
        self.write_length();
        self.code.bind(same);
    }

    /// Sends the packet by the lane.
    fn send(&mut self) {
        if self.link == 0 {
            self.code.change_head(LINK_HEADER);
            self.code.or_drop();
        }
        self.code.load(Word, R1, R8, at::INTERFACE);
        self.code.redirect_to_known_neighbor(R8, at::NEIGHBOR);
    }
}

/// The function `chance(to, key)`: writes 16 bytes that nobody can tell from random ones, which are not the same again, and
/// returns four more. The kernel's own generator for programs is linear: who sees enough of it knows the rest.
fn take_chance(code: &mut Assembler, chance: Label, block: Label) {
    const STATE: i16 = -AREA;
    const STREAM: i16 = STATE + BLOCK;
    code.begin_function(chance);
    code.copy(R6, R1);
    chacha::constants(code, R10, STATE);
    for at in (0..32).step_by(8) {
        code.load(Double, R0, R2, at);
        code.store(Double, R10, STATE + chacha::KEY + at, R0);
    }
    code.call(Helper::KtimeGetNs);
    code.store(Double, R10, STATE + chacha::COUNTER, R0);
    code.call(Helper::GetPrandomU32);
    code.store(Word, R10, STATE + chacha::COUNTER + 8, R0);
    code.call(Helper::GetSmpProcessorId);
    code.store(Word, R10, STATE + chacha::COUNTER + 12, R0);
    code.copy(R1, R10);
    code.add(R1, i32::from(STATE));
    code.call_function(block);
    for at in [0, 8] {
        code.load(Double, R1, R10, STREAM + at);
        code.store(Double, R6, at, R1);
    }
    code.load(Word, R0, R10, STREAM + 16);
    code.exit();
}

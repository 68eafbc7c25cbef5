//! One turn of a loop over a packet: a block of keystream over a part of a message. A packet is one message, whose parts the turns
//! mask in order; but a GSO packet is as many as it has segments. A first loop masks what each of them begins with, which is
//! all for a large one; a second, where there are such, the other parts of small ones: four turns are each message's there,
//! since more than three further parts it cannot have.

use bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use bpf::{Assembler, Condition, Helper, Label, Operation, Register, Size::Double, Size::Word, context};

use super::chacha::{self, AREA, BLOCK};
use super::layout::{HEAD, LARGE, MARK, SAMPLE, TRAILER};

/// What the program tells the turns, and they tell it: 8 bytes each, on its stack.
pub(super) mod state {
    /// The packet's context.
    pub(in super::super) const CONTEXT: i16 = 0;
    /// The lane's key.
    pub(in super::super) const KEY: i16 = 8;
    /// Where the first message begins, from the packet's very beginning.
    pub(in super::super) const FIRST: i16 = 16;
    /// How long messages are; the last may be shorter.
    pub(in super::super) const SIZE: i16 = 24;
    /// Where the last one ends.
    pub(in super::super) const END: i16 = 32;
    /// How the sum of what the checksum covers changes.
    pub(in super::super) const SUM: i16 = 40;
    /// What the first block begins with.
    pub(in super::super) const MARK: i16 = 48;
    /// What is so, of the flags below.
    pub(in super::super) const FLAGS: i16 = 56;
    /// Of a turn's number n, which message it is about and which part of that: n >> (k & 62) and (n & k) + ((k + 1) >> 2). So k
    /// is -1 where there is one message, 0 in the first loop over many, and [`REST`] in the second.
    pub(in super::super) const WHICH: i16 = 64;
    /// Bytes of all.
    pub(in super::super) const LENGTH: i16 = 72;

    /// The packet comes from outside: whose it is has to be found out.
    pub(in super::super) const INCOMING: i32 = 1;
    /// A message that has a trailer.
    pub(in super::super) const SMALL: i32 = 2;
    /// Of many messages, whose checksums are made later.
    pub(in super::super) const GSO: i32 = 4;
    /// A datagram of the daemon's: nothing was changed.
    pub(in super::super) const DAEMON: i32 = 8;
    /// The packet cannot be changed, or not any further.
    pub(in super::super) const FAILED: i32 = 16;
    /// There are messages with further parts.
    pub(in super::super) const PARTS: i32 = 32;

    /// The parts from the second on, four turns for each message.
    pub(in super::super) const REST: i32 = 3;
}

/// Turns that a packet can take: four for each message, and one that says that there are no more.
const TURNS: i32 = 4 * 160;

// Places on a turn's stack: state and keystream, the part of the packet as it was and as it is, and what is to be kept.
const STATE: i16 = -AREA;
const STREAM: i16 = STATE + BLOCK;
const OLD: i16 = STATE - HEAD as i16;
const NEW: i16 = OLD - HEAD as i16;
const TURN: i16 = NEW - 8;
/// Which part of the message it is, from 0.
const PART: i16 = TURN - 8;

/// Runs the loops with the state that begins there on the stack. R1 to R5 and R0 are lost.
pub(super) fn run(code: &mut Assembler, turn: Label, state: i16) {
    let done = code.label();
    run_one(code, turn, state);
    code.load(Double, R1, R10, state + state::FLAGS);
    code.and(R1, state::FAILED | state::GSO | state::PARTS);
    code.jump_if(R1, Condition::NotEqual, state::GSO | state::PARTS, done);
    // It was zero, and the verifier does not know that.
    code.load(Double, R1, R10, state + state::WHICH);
    code.add(R1, state::REST);
    code.store(Double, R10, state + state::WHICH, R1);
    run_one(code, turn, state);
    code.bind(done);
}

fn run_one(code: &mut Assembler, turn: Label, state: i16) {
    code.set(R1, TURNS);
    code.load_function(R2, turn);
    code.copy(R3, R10);
    code.add(R3, i32::from(state));
    code.set(R4, 0);
    code.call(Helper::Loop);
}

/// The function `turn(number, state)`: 0, or 1 where there is no more to do.
pub(super) fn function(code: &mut Assembler, turn: Label, block: Label) {
    let [stop, next, needless, failed] = std::array::from_fn(|_| code.label());
    code.begin_function(turn);
    code.copy(R6, R2);
    code.store(Double, R10, TURN, R1);
    find_message(code, stop);
    skip_needless(code, needless);
    load_state(code, failed);
    code.copy(R1, R10);
    code.add(R1, i32::from(STATE));
    code.call_function(block);

    recognize(code, stop, failed);
    find_part(code, needless);
    lay_over(code, next, failed);
    code.bind(next);
    code.exit_with(0);
    // The only message has no further part; of many, another may have.
    code.bind(needless);
    code.load(Double, R0, R6, state::FLAGS);
    code.and(R0, state::GSO);
    code.jump_if(R0, Condition::NotEqual, 0, next);
    code.jump(stop);
    code.bind(failed);
    add_flag(code, state::FAILED);
    code.bind(stop);
    code.exit_with(1);
}

/// R7 = where the message of this turn begins, R8 = how long it is, R9 = where it ends; and which part of it is meant. With as few
/// branches as can be: the verifier follows the cipher anew for each way that leads there.
fn find_message(code: &mut Assembler, none: Label) {
    code.load(Double, R2, R6, state::WHICH);
    code.copy(R3, R2);
    code.add(R3, 1);
    code.shift_right(R3, 2);
    code.copy(R4, R1);
    code.calculate(Operation::And, R4, R2);
    code.add(R3, R4);
    code.store(Double, R10, PART, R3);
    code.and(R2, 62);
    code.calculate(Operation::ShiftRight, R1, R2);

    code.load(Double, R8, R6, state::SIZE);
    code.multiply(R1, R8);
    code.load(Double, R7, R6, state::FIRST);
    code.add(R7, R1);
    code.load(Double, R9, R6, state::END);
    code.jump_if(R7, Condition::GreaterOrEqual, R9, none);
    // What is left, or less.
    code.calculate(Operation::Subtract, R9, R7);
    smaller(code, R8, R9);
    code.copy(R9, R7);
    code.add(R9, R8);
}

/// The first becomes the smaller one of two small numbers. R1 and R2 are lost.
fn smaller(code: &mut Assembler, one: Register, other: Register) {
    code.copy(R1, other);
    code.calculate(Operation::Subtract, R1, one);
    code.copy(R2, R1);
    code.calculate(Operation::SignedShiftRight, R2, 63);
    code.calculate(Operation::And, R1, R2);
    code.add(one, R1);
}

/// Goes on there where the message has no such part: of a large one without a trailer only its head is masked.
fn skip_needless(code: &mut Assembler, needless: Label) {
    code.copy(R3, R8);
    code.add(R3, -LARGE);
    code.load(Double, R1, R6, state::FLAGS);
    code.and(R1, state::SMALL);
    code.negate(R1);
    code.calculate(Operation::Or, R3, R1);
    // All ones where it is small.
    code.calculate(Operation::SignedShiftRight, R3, 63);
    code.copy(R1, R8);
    code.add(R1, -HEAD);
    code.calculate(Operation::And, R3, R1);
    code.add(R3, HEAD);
    code.load(Double, R1, R10, PART);
    code.multiply(R1, HEAD);
    code.jump_if(R1, Condition::GreaterOrEqual, R3, needless);
}

/// Makes the state of the block: what the message ends with is its counter and its nonce.
fn load_state(code: &mut Assembler, failed: Label) {
    const COUNTER: i16 = STATE + chacha::COUNTER;
    chacha::constants(code, R10, STATE);
    code.load(Double, R1, R6, state::KEY);
    for at in (0..32).step_by(8) {
        code.load(Double, R0, R1, at);
        code.store(Double, R10, STATE + chacha::KEY + at, R0);
    }
    code.copy(R2, R9);
    code.add(R2, -SAMPLE);
    let [far, sampled] = std::array::from_fn(|_| code.label());
    point(code, SAMPLE, far, failed);
    for at in (0..SAMPLE as i16).step_by(8) {
        code.load(Double, R0, R1, at);
        code.store(Double, R10, COUNTER + at, R0);
    }
    code.jump(sampled);
    code.bind(far);
    load(code, COUNTER, SAMPLE);
    code.jump_if(R0, Condition::NotEqual, 0, failed);
    code.bind(sampled);
    code.load(Double, R1, R10, PART);
    // Its highest bit is no part of the counter, which does not wrap so.
    code.load(Word, R2, R10, COUNTER);
    code.calculate_32(Operation::And, R2, i32::MAX);
    code.calculate_32(Operation::Add, R2, R1);
    code.store(Word, R10, COUNTER, R2);
}

/// R1 = where the packet has what R2 counts from its beginning, of which so many bytes are there: it lies in one piece. R2 and R3
/// are lost, but at `far`: the end of the largest packets is beyond what the verifier lets be reached so. The bytes are read
/// and written as they lie: calls for that would take as long as the cipher.
fn point(code: &mut Assembler, length: i32, far: Label, failed: Label) {
    code.jump_if(R2, Condition::Greater, 0xffff - i32::from(BLOCK), far);
    code.load(Double, R3, R6, state::CONTEXT);
    code.load(Word, R1, R3, context::DATA);
    code.load(Word, R3, R3, context::DATA_END);
    code.add(R1, R2);
    code.copy(R2, R1);
    code.add(R2, length);
    code.jump_if(R2, Condition::Greater, R3, failed);
}

/// So many bytes of the packet, from where R2 says, to the stack.
fn load(code: &mut Assembler, to: i16, length: impl Into<bpf::Operand>) {
    code.load(Double, R1, R6, state::CONTEXT);
    code.copy(R3, R10);
    code.add(R3, i32::from(to));
    code.calculate(Operation::Move, R4, length);
    code.call(Helper::SkbLoadBytes);
}

/// The first block tells whose the packet is, before anything is changed: what it begins with is where the daemon's
/// datagrams begin, and hides what the trailer of a small message says.
fn recognize(code: &mut Assembler, stop: Label, failed: Label) {
    let [known, other] = std::array::from_fn(|_| code.label());
    code.load(Double, R1, R10, TURN);
    code.load(Double, R2, R10, PART);
    code.calculate(Operation::Or, R1, R2);
    code.jump_if(R1, Condition::NotEqual, 0, known);
    code.load(Double, R1, R10, STREAM);
    code.store(Double, R6, state::MARK, R1);
    code.load(Double, R1, R6, state::FLAGS);
    code.and(R1, state::INCOMING);
    code.jump_if(R1, Condition::Equal, 0, known);

    code.copy(R2, R7);
    load(code, OLD, MARK);
    code.jump_if(R0, Condition::NotEqual, 0, failed);
    code.load(Double, R1, R10, OLD);
    code.load(Double, R2, R10, STREAM);
    code.jump_if(R1, Condition::NotEqual, R2, other);
    add_flag(code, state::DAEMON);
    code.jump(stop);

    // A GSO packet has no small ones: its messages cannot become longer by themselves.
    code.bind(other);
    code.load(Double, R1, R6, state::FLAGS);
    code.and(R1, state::GSO);
    code.jump_if(R1, Condition::NotEqual, 0, known);
    code.jump_if(R8, Condition::LessOrEqual, TRAILER, known);
    code.copy(R2, R9);
    code.add(R2, -TRAILER);
    load(code, OLD, MARK);
    code.jump_if(R0, Condition::NotEqual, 0, failed);
    code.load(Double, R1, R10, OLD);
    code.load(Double, R2, R10, STREAM);
    code.calculate(Operation::Xor, R1, R2);
    code.store(Double, R6, state::MARK, R1);
    // Six bytes of zeros, and the length.
    code.shift_left(R1, 16);
    code.jump_if(R1, Condition::NotEqual, 0, known);
    add_flag(code, state::SMALL);
    code.bind(known);
}

/// Sets a flag, of which the verifier does not learn: the upper half of the turn's number is zero, which it cannot know.
fn add_flag(code: &mut Assembler, flag: i32) {
    code.load(Double, R2, R10, TURN);
    code.shift_right(R2, 32);
    code.load(Double, R1, R6, state::FLAGS);
    code.calculate(Operation::Or, R1, flag);
    code.add(R1, R2);
    code.store(Double, R6, state::FLAGS, R1);
}

/// R7 = where the part begins that this turn masks, R8 = how long it is.
fn find_part(code: &mut Assembler, none: Label) {
    let [small, found, short] = std::array::from_fn(|_| code.label());
    code.load(Double, R1, R6, state::FLAGS);
    code.and(R1, state::SMALL);
    code.jump_if(R1, Condition::NotEqual, 0, small);
    // All of a message but its sample, or the head of a large one.
    let not_large = code.label();
    code.jump_if(R8, Condition::Less, LARGE, not_large);
    code.set(R8, HEAD);
    code.jump(found);
    code.bind(not_large);
    code.add(R8, -SAMPLE);
    code.jump(found);
    code.bind(small);
    code.add(R8, -TRAILER);
    code.bind(found);

    code.load(Double, R1, R10, PART);
    code.multiply(R1, HEAD);
    code.add(R7, R1);
    code.calculate(Operation::Subtract, R8, R1);
    code.jump_if(R8, Condition::SignedLess, 1, none);
    code.jump_if(R8, Condition::LessOrEqual, HEAD, short);
    // Of many messages the second loop masks the rest.
    add_flag(code, state::PARTS);
    code.set(R8, HEAD);
    code.bind(short);
}

/// Masks R8 bytes from R7 on, or takes their mask off, which is the same.
fn lay_over(code: &mut Assembler, next: Label, failed: Label) {
    let [partial, single, sum] = std::array::from_fn(|_| code.label());
    code.jump_if(R8, Condition::NotEqual, HEAD, partial);
    code.copy(R2, R7);
    point(code, HEAD, partial, failed);
    code.load(Double, R0, R6, state::FLAGS);
    code.and(R0, state::GSO);
    code.jump_if(R0, Condition::Equal, 0, single);
    for at in (0..HEAD as i16).step_by(8) {
        code.load(Double, R0, R1, at);
        code.load(Double, R2, R10, STREAM + MARK as i16 + at);
        code.calculate(Operation::Xor, R2, R0);
        code.store(Double, R1, at, R2);
    }
    code.jump(next);
    code.bind(single);
    for at in (0..HEAD as i16).step_by(8) {
        code.load(Double, R0, R1, at);
        code.load(Double, R2, R10, STREAM + MARK as i16 + at);
        code.calculate(Operation::Xor, R2, R0);
        code.store(Double, R1, at, R2);
        code.store(Double, R10, OLD + at, R0);
        code.store(Double, R10, NEW + at, R2);
    }
    code.jump(sum);

    code.bind(partial);
    // What is behind a part counts as zeros in both sums.
    for at in (0..2 * HEAD as i16).step_by(8) {
        code.store_value(Double, R10, NEW + at, 0);
    }
    code.copy(R2, R7);
    load(code, OLD, R8);
    code.jump_if(R0, Condition::NotEqual, 0, failed);
    for at in (0..HEAD as i16).step_by(8) {
        code.load(Double, R1, R10, OLD + at);
        code.load(Double, R2, R10, STREAM + MARK as i16 + at);
        code.calculate(Operation::Xor, R1, R2);
        code.store(Double, R10, NEW + at, R1);
    }
    code.load(Double, R1, R6, state::CONTEXT);
    code.copy(R2, R7);
    code.copy(R3, R10);
    code.add(R3, i32::from(NEW));
    code.copy(R4, R8);
    code.set(R5, 0);
    code.call(Helper::SkbStoreBytes);
    code.jump_if(R0, Condition::NotEqual, 0, failed);

    code.load(Double, R1, R6, state::FLAGS);
    code.and(R1, state::GSO);
    code.jump_if(R1, Condition::NotEqual, 0, next);
    for at in (0..HEAD as i16).step_by(8) {
        code.store_value(Double, R10, NEW + at, 0);
    }
    code.copy(R2, R7);
    load(code, NEW, R8);
    code.jump_if(R0, Condition::NotEqual, 0, failed);
    code.bind(sum);
    for (pointer, length, part) in [(R1, R2, OLD), (R3, R4, NEW)] {
        code.copy(pointer, R10);
        code.add(pointer, i32::from(part));
        code.set(length, HEAD);
    }
    code.load(Double, R5, R6, state::SUM);
    code.call(Helper::ChecksumDiff);
    code.calculate_32(Operation::Move, R0, R0);
    code.store(Double, R6, state::SUM, R0);
}

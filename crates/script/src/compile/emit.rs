//! From the intermediate form to eBPF.
//!
//! R6 has the context throughout, R7 to R9 the values that are read most, R4 and R5 those that no call outlives, the stack
//! the others ([`super::allocate`]); R0 to R3, and all that calls take, are for the instruction at hand.

mod access;
mod account;
mod mirror;
mod record;
mod trace;
mod turns;
mod vlan;
mod ways;

use std::collections::HashMap;
use std::os::fd::RawFd;

use bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R10};
use bpf::{Assembler, Helper, Label, Register, Size, context};
use wire::ethernet;

use super::account::Accounts;
use super::allocate::{Location, TooManyValues, locations, used};
use super::attach_type::AttachType;
use super::ir::{Action, Condition, Failure, Instruction, Operand, Operation, Program, Value};

/// What a program's results mean where it is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Results {
    /// Of a verdict that lets the packet pass.
    pub pass: i32,
    /// Of one that drops it.
    pub drop: i32,
    /// Of an error of the script.
    pub error: i32,
    /// Mark of a packet with NF_QUEUE, which passes, for a rule that gives it to a queue. None: its mark stays.
    pub queue_mark: Option<u32>,
    /// Packets with this mark, and at an interface all that is not IP, pass unseen. None: all packets are the script's.
    pub unseen_mark: Option<u32>,
    /// Where the function cannot go on in the kernel, a packet passes with this mark, for a rule that gives it to the user
    /// tier. Its lower half is one bit of the script's own, and the upper half that of all scripts ([`PUNT_MASK`]); a
    /// mark with another upper half is replaced. None: what cannot be compiled is refused.
    pub punt_mark: Option<u32>,
}

/// An eBPF program, and where in the script its instructions come from.
#[derive(Debug)]
pub struct Assembled {
    /// Of the type that is attached there.
    pub code: bpf::Assembler,
    /// From which instruction on, which line.
    pub lines: Vec<(usize, u32)>,
}

/// The part of a mark by which it is known that its other bits say which scripts punt a packet.
pub const PUNT_MASK: u32 = 0xffff_0000;

/// The eight bytes on the stack through which packets are read and written, and differences of sums kept.
pub(super) const BUFFER: i16 = -8;
/// A zero that the verifier does not know: see [`Emitter::hidden`].
const ZERO: i16 = -16;
/// Odd and large: what is multiplied by it may be anything, as far as the verifier knows.
const SCATTER: u64 = 0x9e37_79b9_7f4a_7c15;
/// This processor's counters, and when a packet came whose time is taken: see [`super::account`].
pub(super) const COUNTERS: i16 = -24;
pub(super) const BEGUN: i16 = -32;
/// What the packet is read through at hooks of netfilter, 16 bytes; elsewhere what [`access`] has there.
pub(super) const DYNPTR: i16 = -48;
/// The key of an entry, 48 bytes.
pub(super) const KEY: i16 = -96;
/// 24 bytes, for what was found, or more ([`Emitter::found`]); what is to be written ends there, too.
pub(super) const FOUND: i16 = -120;
/// Bytes of the stack of a program and of what it calls.
const STACK: i16 = 512;
/// Bytes of the stack of a loop's body. Older kernels round them up to a multiple of 32.
const BODY: i16 = 96;
/// Words behind the state of a loop: what packets are read from, the zero that the verifier does not know, and what XDP has
/// for a [dynptr](DYNPTR).
const BEHIND: usize = 3;
/// Instructions at most: a jump reaches 32,767, and the kernel adds some of its own for each division and lookup, without
/// telling what was too far then (ENOMEM).
const LONGEST: usize = 26_000;
/// In nanoseconds.
const MILLISECOND: i32 = 1_000_000;

/// Of l4_csum_replace: a checksum of zero is none; the pseudo-header has changed.
const NOT_ZERO: i32 = 0x20;
const PSEUDO_HEADER: i32 = 0x10;
/// Of skb_adjust_room: where; segments of a GSO packet keep their size; what hardware has verified stays so (Linux 5.13).
const BEHIND_NETWORK_HEADER: i32 = 0;
const FIXED_GSO: i32 = 1;
const NO_CHECKSUM_RESET: i32 = 1 << 5;

/// Why there is no eBPF program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EmitError {
    /// The stack has 512 bytes.
    #[error("too many values are needed at once")]
    TooManyValues,
    /// See [`LONGEST`].
    #[error("the program is too long: more than {LONGEST} instructions of eBPF")]
    Oversized,
    /// Of eBPF.
    #[error("the program is too long: {0}")]
    TooLong(#[from] bpf::JumpTooLong),
}

impl From<TooManyValues> for EmitError {
    fn from(_: TooManyValues) -> Self {
        Self::TooManyValues
    }
}

/// Where programs that count go in the end.
#[derive(Clone, Copy)]
struct Tails {
    leave: Label,
    /// Once something can fail.
    fail: Option<Label>,
}

/// What is known of a packet that is followed.
#[derive(Clone, Copy)]
struct Trace {
    /// The line that it ends with.
    end: usize,
    /// Where on the stack it begins: see [`Emitter::TRACE`].
    at: i16,
}

/// The eBPF program for where it is attached.
pub(super) fn emit(
    program: &Program,
    results: Results,
    attach_type: &AttachType,
    maps: &[RawFd],
    accounts: Option<Accounts>,
) -> Result<Assembled, EmitError> {
    let (found, written) = (found(program), written(program));
    let is_record = program.maps.iter().any(|map| map.seal_place().is_some());
    let records = found - if is_record { Emitter::RECORD } else { 0 };
    let lowest = records.min(written);
    let trace = program.follows.map(|end| Trace { end, at: lowest - Emitter::TRACE });
    let mut emitter = Emitter {
        program,
        locations: locations(
            program,
            trace.map_or(lowest, |trace| trace.at) - 8,
            STACK - if program.bodies.is_empty() { 0 } else { BODY },
        )?,
        found,
        written,
        used: used(program),
        reached: vec![false; program.blocks.len()],
        stored: None,
        code: Assembler::default(),
        blocks: Vec::new(),
        failures: HashMap::new(),
        results,
        before: if attach_type.has_link() { 0 } else { ethernet::HEADER_LEN as i32 },
        attach_type,
        maps,
        lines: Vec::new(),
        accounts,
        tails: None,
        trace,
        punted: None,
        bodies: Vec::new(),
        is_body: false,
    };
    emitter.bodies = program.bodies.iter().map(|_| emitter.code.label()).collect();
    emitter.reached[0] = true;
    emitter.blocks = program.blocks.iter().map(|_| emitter.code.label()).collect();
    emitter.begin(attach_type);
    emitter.start_counting();
    emitter.start_tracing();
    emitter.length(R0);
    emitter.code.set_wide(R2, SCATTER);
    emitter.length(R1);
    emitter.code.calculate(bpf::Operation::Multiply, R0, R2);
    emitter.code.calculate(bpf::Operation::Multiply, R1, R2);
    emitter.code.calculate(bpf::Operation::Subtract, R0, R1);
    emitter.code.store(Size::Double, R10, ZERO, R0);
    emitter.all_blocks();
    emitter.failed();
    emitter.punted();
    emitter.write_tails();
    emitter.all_bodies()?;
    if emitter.code.len() > LONGEST {
        return Err(EmitError::Oversized);
    }
    emitter.code.instructions()?;
    Ok(Assembled { code: emitter.code, lines: emitter.lines })
}

pub(super) struct Emitter<'a> {
    program: &'a Program,
    locations: Vec<Option<Location>>,
    used: Vec<bool>,
    /// Blocks that something leads to: ways may be shorter than the intermediate form has them.
    reached: Vec<bool>,
    /// What was stored last, in how many instructions: where, and from which register.
    stored: Option<(usize, i16, Register)>,
    pub(super) code: Assembler,
    blocks: Vec<Label>,
    failures: HashMap<(u32, u32), (Failure, Label)>,
    pub(super) results: Results,
    /// Bytes that offsets count, and the packet does not have: a link header that is made up.
    before: i32,
    /// Where what was found in a map begins.
    pub(super) found: i16,
    /// Where what is to be written into a map begins. The values follow.
    pub(super) written: i16,
    pub(super) attach_type: &'a AttachType,
    /// Descriptors of the program's maps.
    pub(super) maps: &'a [RawFd],
    lines: Vec<(usize, u32)>,
    pub(super) accounts: Option<Accounts>,
    tails: Option<Tails>,
    /// Where it is noted that a packet is followed, if one may be.
    trace: Option<Trace>,
    /// Where packets end that are punted, once there is such a way.
    punted: Option<Label>,
    /// Where the bodies of loops begin.
    bodies: Vec<Label>,
    /// Whether this is one of them.
    is_body: bool,
}

impl Emitter<'_> {
    fn all_blocks(&mut self) {
        for (number, block) in self.program.blocks.iter().enumerate() {
            let Some(end) = block.end.as_ref().filter(|_| self.reached[number]) else { continue };
            self.code.bind(self.blocks[number]);
            for instruction in &block.code {
                self.instruction(instruction);
            }
            self.end(end, number);
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        let Instruction { line, result, action } = instruction;
        if action.is_pure() && !self.used[result.0 as usize] {
            return;
        }
        if !self.is_body && self.lines.last().is_none_or(|(_, last)| last != line) {
            self.lines.push((self.code.len(), *line));
        }
        if action.changes_packet() && !self.is_body {
            self.note_change();
        }
        match *action {
            Action::Calculate(operation, left, right) => self.calculate(*result, operation, left, right),
            Action::Compare(condition, left, right) => self.compare(*result, condition, left, right),
            Action::Length => {
                self.length(R0);
                self.code.add(R0, self.before);
                self.write(*result, R0);
            }
            Action::Random => {
                self.code.call(Helper::GetPrandomU32);
                self.write(*result, R0);
            }
            Action::Time => {
                self.code.call(Helper::KtimeGetNs);
                self.code.calculate(bpf::Operation::Divide, R0, MILLISECOND);
                self.write(*result, R0);
            }
            Action::Load { offset, bytes } => self.load(*result, offset, bytes, *line),
            Action::Store { offset, bytes, value } => self.store(offset, bytes, value, *line),
            Action::Lookup { .. }
            | Action::Value { .. }
            | Action::Update { .. }
            | Action::Replace { .. }
            | Action::Add { .. }
            | Action::Put { .. }
            | Action::Delete { .. }
            | Action::Find { .. }
            | Action::Count { .. } => self.map_action(action, *result),
            Action::Log { line, ref numbers, ref strings } => self.tell(line, numbers, strings),
            Action::Follow => self.follow(),
            Action::Loop { body, turns, ref state } => self.repeat(body, turns, state),
            Action::State { word } => self.state(*result, word),
            Action::SetState { word, value } => self.set_state(word, value),
            Action::Tag => self.tag(*result),
            Action::PushTag { tag } => self.push_tag(tag, *line),
            Action::PopTag => {
                self.code.copy(R1, R6);
                self.code.call(Helper::SkbVlanPop);
                self.fail_if_error(*line);
            }
            Action::Capture { name } => self.capture(name),
            Action::Mirror { interface } => self.mirror(interface),
            Action::PacketSum { difference } => {
                self.difference(difference);
                self.code.copy(R1, R6);
                self.code.copy(R2, R4);
                // It fails where nothing was summed up.
                self.code.call(Helper::ChecksumUpdate);
            }
            Action::Resize { count, .. } => {
                self.code.copy(R1, R6);
                self.code.set(R2, count as i32);
                self.code.set(R3, BEHIND_NETWORK_HEADER);
                self.code.set(R4, FIXED_GSO | NO_CHECKSUM_RESET);
                self.code.call(Helper::SkbAdjustRoom);
                let failed = self.failure(Failure::Resize, *line);
                self.code.jump_if(R0, bpf::Condition::NotEqual, 0, failed);
            }
            Action::HeaderChecksum { offset, difference } => {
                self.difference(difference);
                self.offset(R2, offset);
                self.code.copy(R1, R6);
                self.code.set(R3, 0);
                self.code.set(R5, 0);
                self.code.call(Helper::L3ChecksumReplace);
                self.fail_if_error(*line);
            }
            Action::TransportChecksum { offset, difference, pseudo, optional } => {
                self.difference(difference);
                self.code.store(Size::Double, R10, BUFFER, R4);
                self.code.set(R5, 0);
                for (operand, flag) in [(pseudo, PSEUDO_HEADER), (optional, NOT_ZERO)] {
                    let not = self.code.label();
                    let operand = self.read(operand, R0);
                    self.code.jump_if(operand, bpf::Condition::Equal, 0, not);
                    self.code.calculate(bpf::Operation::Or, R5, flag);
                    self.code.bind(not);
                }
                self.offset(R2, offset);
                self.code.copy(R1, R6);
                self.code.set(R3, 0);
                self.code.call(Helper::L4ChecksumReplace);
                self.fail_if_error(*line);
                self.complete_sum(pseudo);
            }
        }
    }

    /// Where hardware has summed up the packet (CHECKSUM_COMPLETE), the kernel takes a change of the pseudo-header for one of
    /// IPv4, where the checksum of the header makes up for the address, and adjusts the sum by that of the transport. In
    /// IPv6 this one makes up for the address, so the sum gets back what was taken. (Since Linux 6.16 a flag does it.)
    fn complete_sum(&mut self, pseudo: Operand) {
        if pseudo == Operand::Constant(0) {
            return;
        }
        let done = self.code.label();
        self.hidden(R1, pseudo);
        self.code.jump_if(R1, bpf::Condition::Equal, 0, done);
        self.code.load(Size::Word, R0, R6, context::PROTOCOL);
        let ipv6 = i32::from(ethernet::ETHERTYPE_IPV6.to_be());
        self.code.jump_if(R0, bpf::Condition::NotEqual, ipv6, done);
        self.code.copy(R1, R6);
        self.code.load(Size::Double, R2, R10, BUFFER);
        self.code.call(Helper::ChecksumUpdate);
        self.code.bind(done);
    }

    fn calculate(&mut self, result: Value, operation: Operation, left: Operand, right: Operand) {
        let operation = match operation {
            Operation::Add => bpf::Operation::Add,
            Operation::Subtract => bpf::Operation::Subtract,
            Operation::Multiply => bpf::Operation::Multiply,
            Operation::And => bpf::Operation::And,
            Operation::Or => bpf::Operation::Or,
            Operation::Xor => bpf::Operation::Xor,
            Operation::ShiftLeft => bpf::Operation::ShiftLeft,
            Operation::ShiftRight => bpf::Operation::ShiftRight,
            Operation::Divide => bpf::Operation::Divide,
            Operation::Modulo => bpf::Operation::Modulo,
        };
        let right = self.second(right, R1);
        // In place, unless the second operand is there.
        let to = match self.locations[result.0 as usize] {
            Some(Location::Register(register)) if right != bpf::Operand::Register(register) => register,
            _ => R0,
        };
        self.move_to(to, left);
        self.code.calculate(operation, to, right);
        self.write(result, to);
    }

    /// Without a jump: the verifier follows both ways of one, and with each comparison twice as many.
    fn compare(&mut self, result: Value, condition: Condition, left: Operand, right: Operand) {
        self.move_to(R0, left);
        self.move_to(R1, right);
        let code = &mut self.code;
        match condition {
            Condition::Equal | Condition::NotEqual => {
                // The top bit of d | -d is set unless d is zero.
                code.calculate(bpf::Operation::Xor, R0, R1);
                code.copy(R1, R0);
                code.negate(R1);
                code.calculate(bpf::Operation::Or, R0, R1);
                code.shift_right(R0, 63);
            }
            Condition::Less | Condition::LessOrEqual | Condition::Below => {
                if condition == Condition::LessOrEqual {
                    // left <= right unless right < left.
                    code.copy(R2, R0);
                    code.copy(R0, R1);
                    code.copy(R1, R2);
                }
                if condition != Condition::Below {
                    code.set_wide(R2, 1 << 63);
                    code.calculate(bpf::Operation::Xor, R0, R2);
                    code.calculate(bpf::Operation::Xor, R1, R2);
                }
                // The borrow of R0 - R1: (~a & b) | ((~a | b) & (a - b)), its top bit.
                code.copy(R2, R0);
                code.calculate(bpf::Operation::Subtract, R2, R1);
                code.calculate(bpf::Operation::Xor, R0, -1);
                code.copy(R3, R0);
                code.calculate(bpf::Operation::Or, R3, R1);
                code.calculate(bpf::Operation::And, R2, R3);
                code.calculate(bpf::Operation::And, R0, R1);
                code.calculate(bpf::Operation::Or, R0, R2);
                code.shift_right(R0, 63);
            }
        }
        if matches!(condition, Condition::Equal | Condition::LessOrEqual) {
            code.calculate(bpf::Operation::Xor, R0, 1);
        }
        self.write(result, R0);
    }

    // The packet

    fn load(&mut self, result: Value, offset: Operand, bytes: u8, line: u32) {
        let size = size_of(bytes);
        if size.is_none() {
            self.code.store_value(Size::Double, R10, BUFFER, 0);
        }
        // What has an odd size stands at the end of eight bytes of which the others are zero.
        let at = if size.is_some() { BUFFER } else { BUFFER + 8 - i16::from(bytes) };
        self.copy_from_packet(offset, at, bytes);
        self.fail_if_error(line);
        if !self.used[result.0 as usize] {
            return;
        }
        let size = size.unwrap_or(Size::Double);
        self.code.load(size, R0, R10, BUFFER);
        match size {
            Size::Byte => {}
            Size::Half => self.code.network_order(R0, 16),
            Size::Word => self.code.network_order(R0, 32),
            Size::Double => self.code.network_order(R0, 64),
        }
        self.write(result, R0);
    }

    fn store(&mut self, offset: Operand, bytes: u8, value: Operand, line: u32) {
        self.move_to(R0, value);
        self.code.network_order(R0, 64);
        self.code.store(Size::Double, R10, BUFFER, R0);
        self.offset(R2, offset);
        self.code.copy(R1, R6);
        self.code.copy(R3, R10);
        self.code.add(R3, i32::from(BUFFER + 8 - i16::from(bytes)));
        self.code.set(R4, bytes.into());
        self.code.set(R5, 0);
        self.code.call(Helper::SkbStoreBytes);
        self.fail_if_error(line);
    }

    /// R4 = a difference of sums of less than 33 bits, folded, in the order in which the kernel adds.
    fn difference(&mut self, difference: Operand) {
        self.move_to(R4, difference);
        for _ in 0..2 {
            self.code.copy(R0, R4);
            self.code.shift_right(R0, 16);
            self.code.and(R4, 0xffff);
            self.code.add(R4, R0);
        }
        self.code.network_order(R4, 16);
    }

    // Values

    fn location(&self, operand: Operand) -> Option<Location> {
        match operand {
            Operand::Value(value) => self.locations[value.0 as usize],
            Operand::Constant(_) => None,
        }
    }

    /// The register in which an operand is, or that it was loaded to.
    pub(super) fn read(&mut self, operand: Operand, spare: Register) -> Register {
        if let Some(Location::Register(register)) = self.location(operand) {
            return register;
        }
        self.move_to(spare, operand);
        spare
    }

    /// An operand as the second of an instruction.
    fn second(&mut self, operand: Operand, spare: Register) -> bpf::Operand {
        match operand {
            Operand::Constant(number) if i32::try_from(number).is_ok() => {
                bpf::Operand::Immediate(number as i32)
            }
            operand => bpf::Operand::Register(self.read(operand, spare)),
        }
    }

    /// An offset as the kernel has it.
    pub(super) fn offset(&mut self, to: Register, offset: Operand) {
        self.move_to(to, offset);
        if self.before > 0 {
            self.code.add(to, -self.before);
        }
    }

    pub(super) fn move_to(&mut self, to: Register, operand: Operand) {
        match operand {
            Operand::Constant(number) => match i32::try_from(number) {
                Ok(number) => self.code.set(to, number),
                Err(_) => self.code.set_wide(to, number as u64),
            },
            Operand::Value(value) => {
                let place = self.locations[value.0 as usize].expect("what is read has a place");
                self.load_location(to, place);
            }
        }
    }

    fn move_location(&mut self, to: Location, operand: Operand, is_known: bool) {
        // See [`turns`].
        let is_hidden = !is_known && !self.bodies.is_empty();
        match to {
            Location::Register(register) if is_hidden => self.hidden(register, operand),
            Location::Stack(_) if is_hidden => {
                self.hidden(R1, operand);
                self.store_location(to, R1);
            }
            Location::Register(register) => self.move_to(register, operand),
            Location::Stack(_) => {
                let from = self.read(operand, R0);
                self.store_location(to, from);
            }
        }
    }

    /// Loads what a way is chosen by, so that the verifier learns nothing of it.
    ///
    /// Where it knows which way is taken, it has to know the number wherever that came from, and follows all that comes
    /// behind a place where ways meet once for each number: twice as much with each such place. A number that it never
    /// needs to know it takes for any other there.
    fn hidden(&mut self, to: Register, operand: Operand) {
        self.move_to(to, operand);
        self.code.load(Size::Double, R0, R10, ZERO);
        self.code.add(to, R0);
    }

    fn load_location(&mut self, to: Register, place: Location) {
        match place {
            Location::Register(register) if register == to => {}
            Location::Register(register) => self.code.copy(to, register),
            Location::Stack(at) => match self.stored {
                // What was stored a moment ago is still in its register.
                Some((when, place, from))
                    if place == at && when == self.code.len() && self.code.goes_on() =>
                {
                    if from != to {
                        self.code.copy(to, from);
                    }
                }
                _ => self.code.load(Size::Double, to, R10, at),
            },
        }
    }

    fn store_location(&mut self, place: Location, from: Register) {
        match place {
            Location::Register(register) if register == from => {}
            Location::Register(register) => self.code.copy(register, from),
            Location::Stack(at) => {
                self.code.store(Size::Double, R10, at, from);
                self.stored = Some((self.code.len(), at, from));
            }
        }
    }

    pub(super) fn write(&mut self, value: Value, from: Register) {
        if let Some(place) = self.locations[value.0 as usize] {
            self.store_location(place, from);
        }
    }
}

/// Where on the stack the largest value that goes into a map begins.
fn written(program: &Program) -> i16 {
    let sizes =
        program.blocks.iter().flat_map(|block| &block.code).map(|instruction| match &instruction.action {
            // A record has its seal behind it.
            Action::Update { value, .. } => 8 * (1 + value.len()),
            _ => 0,
        });
    KEY - sizes.max().unwrap_or(0) as i16
}

fn found(program: &Program) -> i16 {
    let words =
        program.blocks.iter().flat_map(|block| &block.code).map(|instruction| match &instruction.action {
            Action::Lookup { words, .. } => usize::from(*words),
            Action::Add { amounts, .. } => amounts.len(),
            Action::Loop { state, .. } => state.len() + BEHIND - 1,
            _ => 0,
        });
    FOUND.min(KEY - 8 * (1 + words.max().unwrap_or(0) as i16))
}

fn size_of(bytes: u8) -> Option<Size> {
    match bytes {
        1 => Some(Size::Byte),
        2 => Some(Size::Half),
        4 => Some(Size::Word),
        8 => Some(Size::Double),
        _ => None,
    }
}

//! Instructions of BPF programs (Documentation/bpf/standardization/instruction-set.rst, as of Linux 5.1, and so of every
//! kernel that we run on).
//!
//! A program is written from its first instruction to its last. Jumps lead to labels, which may be bound before or after;
//! a jump backwards makes a loop, of which the verifier has to see that it ends.
//!
//! ```
//! use sidestep_bpf::{Assembler, Condition, Register, Size};
//!
//! // 1 for IPv6, 0 for all else: a program of type socket_filter or sched_cls.
//! let mut code = Assembler::default();
//! let other = code.label();
//! code.load(Size::Word, Register::R2, Register::R1, 16); // __sk_buff.protocol, in network byte order
//! code.set(Register::R0, 0);
//! code.jump_if(Register::R2, Condition::NotEqual, i32::from(0x86dd_u16.to_be()), other);
//! code.set(Register::R0, 1);
//! code.bind(other);
//! code.exit();
//! ```

use std::os::fd::AsRawFd;

use super::helper::Helper;

/// A jump is longer than the 32,767 instructions that it can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a jump is too long")]
pub struct JumpTooLong;

/// A register. R1 to R5 carry a call's arguments and are lost in it, R0 its result and in the end the program's; R6 to R9
/// are kept; R10 is the end of the stack, of which the 512 bytes below are the program's. At the beginning R1 is the
/// context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kernel's names")]
pub enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
    R10 = 10,
}

/// How much a load or store moves. What is loaded is the low end of the register, the rest zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// 1 byte.
    Byte = 0x10,
    /// 2 bytes.
    Half = 0x08,
    /// 4 bytes.
    Word = 0x00,
    /// 8 bytes.
    Double = 0x18,
}

/// What arithmetic does with its two operands. All of it is unsigned but for the shift that says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they say it themselves")]
pub enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    Multiply = 0x20,
    /// By zero: 0.
    Divide = 0x30,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    /// By zero: as it was.
    Modulo = 0x90,
    Xor = 0xa0,
    Move = 0xb0,
    SignedShiftRight = 0xc0,
}

/// When a jump is taken: register, condition, operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they say it themselves")]
pub enum Condition {
    Equal = 0x10,
    Greater = 0x20,
    GreaterOrEqual = 0x30,
    /// They have a bit in common.
    AnyBit = 0x40,
    NotEqual = 0x50,
    SignedGreater = 0x60,
    SignedGreaterOrEqual = 0x70,
    Less = 0xa0,
    LessOrEqual = 0xb0,
    SignedLess = 0xc0,
    SignedLessOrEqual = 0xd0,
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// What a register holds.
    Register(Register),
    /// A number, extended with its sign to 64 bits.
    Immediate(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Operand::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Self {
        Operand::Immediate(value)
    }
}

/// A field of the packet that a program of type `socket_filter` or `sched_cls` looks at; its offset counts from the link
/// header, which a TUN device does not have.
#[derive(Clone, Copy, Debug)]
pub enum PacketField {
    /// 1 byte.
    Byte(i32),
    /// 2 bytes.
    Half(i32),
    /// 4 bytes.
    Word(i32),
    /// 4 bytes where the register says.
    WordAt(Register),
}

/// A place in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

// Classes of instructions, and what goes with them.
const LOAD_IMMEDIATE: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE_IMMEDIATE: u8 = 0x62;
const STORE: u8 = 0x63;
const ALU_32: u8 = 0x04;
const ALU_64: u8 = 0x07;
const JUMP: u8 = 0x05;
const JUMP_32: u8 = 0x06;
const FROM_REGISTER: u8 = 0x08;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// A program in the making.
#[derive(Debug, Default)]
pub struct Assembler {
    code: Vec<[u8; 8]>,
    /// Where each label is, once it is bound.
    labels: Vec<Option<usize>>,
    /// Jumps and where they lead.
    jumps: Vec<(usize, Label)>,
    /// Where the last label was bound.
    bound: Option<usize>,
    /// Where functions begin.
    functions: Vec<usize>,
    /// Instructions that load the address of one, or call it.
    addresses: Vec<(usize, Label)>,
}

impl Assembler {
    // Arithmetic

    /// `to = value`
    pub fn set(&mut self, to: Register, value: i32) {
        self.calculate(Operation::Move, to, value);
    }

    /// `to = value`, of 64 bits.
    pub fn set_wide(&mut self, to: Register, value: u64) {
        self.push(LOAD_IMMEDIATE, to as u8, 0, 0, value as i32);
        self.push(0, 0, 0, 0, (value >> 32) as i32);
    }

    /// `to = from`
    pub fn copy(&mut self, to: Register, from: Register) {
        self.calculate(Operation::Move, to, from);
    }

    /// `to += operand`
    pub fn add(&mut self, to: Register, operand: impl Into<Operand>) {
        self.calculate(Operation::Add, to, operand);
    }

    /// `to &= operand`
    pub fn and(&mut self, to: Register, operand: impl Into<Operand>) {
        self.calculate(Operation::And, to, operand);
    }

    /// `to *= operand`
    pub fn multiply(&mut self, to: Register, operand: impl Into<Operand>) {
        self.calculate(Operation::Multiply, to, operand);
    }

    /// `to <<= bits`
    pub fn shift_left(&mut self, to: Register, bits: i32) {
        self.calculate(Operation::ShiftLeft, to, bits);
    }

    /// `to >>= bits`
    pub fn shift_right(&mut self, to: Register, bits: i32) {
        self.calculate(Operation::ShiftRight, to, bits);
    }

    /// `to = to OPERATION operand`, with 64 bits.
    pub fn calculate(&mut self, operation: Operation, to: Register, operand: impl Into<Operand>) {
        self.with_operand(ALU_64 | operation as u8, to, operand.into(), 0);
    }

    /// `to = to OPERATION operand`, with 32 bits; the upper half of the register becomes zero.
    pub fn calculate_32(&mut self, operation: Operation, to: Register, operand: impl Into<Operand>) {
        self.with_operand(ALU_32 | operation as u8, to, operand.into(), 0);
    }

    /// `to = -to`, with 64 bits.
    pub fn negate(&mut self, to: Register) {
        self.push(0x87, to as u8, 0, 0, 0);
    }

    /// The low 16, 32 or 64 bits from the order of this machine to that of the network, or back; the rest becomes zero.
    pub fn network_order(&mut self, to: Register, bits: i32) {
        self.push(0xdc, to as u8, 0, 0, bits);
    }

    // Memory

    /// `to = *(from + offset)`
    pub fn load(&mut self, size: Size, to: Register, from: Register, offset: i16) {
        self.push(LOAD | size as u8, to as u8, from as u8, offset, 0);
    }

    /// `*(to + offset) = from`
    pub fn store(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        self.push(STORE | size as u8, to as u8, from as u8, offset, 0);
    }

    /// `*(to + offset) = value`
    pub fn store_value(&mut self, size: Size, to: Register, offset: i16, value: i32) {
        self.push(STORE_IMMEDIATE | size as u8, to as u8, 0, offset, value);
    }

    /// `*(to + offset) += from`, of 4 or 8 bytes, whatever other processors do there.
    pub fn add_atomically(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        self.push(0xc3 | size as u8, to as u8, from as u8, offset, 0);
    }

    /// `from = *(to + offset)`, and `*(to + offset) += from` as it was before, at once, whatever other processors do: Linux
    /// 5.12.
    pub fn fetch_and_add(&mut self, size: Size, to: Register, offset: i16, from: Register) {
        const FETCH: i32 = 1;
        self.push(0xc3 | size as u8, to as u8, from as u8, offset, FETCH);
    }

    /// `to = map`, which must be open while the program is loaded.
    pub fn load_map(&mut self, to: Register, map: &impl AsRawFd) {
        const PSEUDO_MAP_FD: u8 = 1;
        self.push(LOAD_IMMEDIATE, to as u8, PSEUDO_MAP_FD, 0, map.as_raw_fd());
        self.push(0, 0, 0, 0, 0);
    }

    /// `to = function`, of this program, for a helper that calls it back.
    pub fn load_function(&mut self, to: Register, function: Label) {
        const PSEUDO_FUNC: u8 = 4;
        self.addresses.push((self.code.len(), function));
        self.push(LOAD_IMMEDIATE, to as u8, PSEUDO_FUNC, 0, 0);
        self.push(0, 0, 0, 0, 0);
    }

    /// `R0 = field`, as a number, of the packet whose context is in R6. R1 to R5 are lost. Beyond the packet's end the
    /// program ends with result 0.
    pub fn load_packet(&mut self, field: PacketField) {
        match field {
            PacketField::Byte(offset) => self.push(0x30, 0, 0, 0, offset),
            PacketField::Half(offset) => self.push(0x28, 0, 0, 0, offset),
            PacketField::Word(offset) => self.push(0x20, 0, 0, 0, offset),
            PacketField::WordAt(register) => self.push(0x40, 0, register as u8, 0, 0),
        }
    }

    // Where it goes on

    /// A label that is not bound yet.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The label is here. Each is bound once.
    pub fn bind(&mut self, label: Label) {
        let place = self.code.len();
        let before = self.labels[label.0].replace(place);
        assert!(before.is_none(), "a label has one place");
        self.bound = Some(place);
    }

    /// A function begins here, which is called, by the program or back by a helper. It has a stack of its own, and no other way
    /// leads into it.
    pub fn begin_function(&mut self, label: Label) {
        self.bind(label);
        self.functions.push(self.code.len());
    }

    /// The instructions at which functions begin.
    #[must_use]
    pub fn functions(&self) -> &[usize] {
        &self.functions
    }

    /// A label that is here: for jumps backwards.
    pub fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// Whether the next instruction follows the last one, whichever way the program comes to it.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.bound != Some(self.code.len())
    }

    /// Goes on at the label.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JUMP, 0, 0, 0, 0);
    }

    /// Goes on at the label if the condition holds, with 64 bits.
    pub fn jump_if(
        &mut self,
        register: Register,
        condition: Condition,
        operand: impl Into<Operand>,
        label: Label,
    ) {
        self.jumps.push((self.code.len(), label));
        self.with_operand(JUMP | condition as u8, register, operand.into(), 0);
    }

    /// Goes on at the label if the condition holds for the low 32 bits.
    pub fn jump_if_32(
        &mut self,
        register: Register,
        condition: Condition,
        operand: impl Into<Operand>,
        label: Label,
    ) {
        self.jumps.push((self.code.len(), label));
        self.with_operand(JUMP_32 | condition as u8, register, operand.into(), 0);
    }

    /// `R0 = helper(R1, …, R5)`. R1 to R5 are lost.
    pub fn call(&mut self, helper: Helper) {
        self.push(CALL, 0, 0, 0, helper as i32);
    }

    /// The same of a function of this program.
    pub fn call_function(&mut self, function: Label) {
        const PSEUDO_CALL: u8 = 1;
        self.addresses.push((self.code.len(), function));
        self.push(CALL, 0, PSEUDO_CALL, 0, 0);
    }

    /// The same of a function that is no helper (kfunc), by its number among the kernel's types (BTF). The program's licence
    /// must go with the GPL.
    pub fn call_kernel(&mut self, function: u32) {
        const PSEUDO_KFUNC_CALL: u8 = 2;
        self.push(CALL, 0, PSEUDO_KFUNC_CALL, 0, function.cast_signed());
    }

    /// Ends the program with the result in R0.
    pub fn exit(&mut self) {
        self.push(EXIT, 0, 0, 0, 0);
    }

    /// Ends the program with a result.
    pub fn exit_with(&mut self, result: impl Into<Operand>) {
        self.calculate(Operation::Move, Register::R0, result);
        self.exit();
    }

    /// Instructions so far; a 64-bit value and a map count for two.
    #[must_use]
    pub fn len(&self) -> usize {
        self.code.len()
    }

    /// Whether there is none yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.code.is_empty()
    }

    /// The instructions, with all jumps leading where their labels are.
    ///
    /// # Errors
    /// If a jump is too long.
    pub fn instructions(&self) -> Result<Vec<[u8; 8]>, JumpTooLong> {
        let mut code = self.code.clone();
        for (from, label) in &self.jumps {
            let to = self.labels[label.0].expect("each label that is jumped to is bound");
            // It counts from the instruction behind the jump.
            let distance = i16::try_from(to as isize - *from as isize - 1).map_err(|_| JumpTooLong)?;
            code[*from][2..4].copy_from_slice(&distance.to_ne_bytes());
        }
        for (from, label) in &self.addresses {
            let to = self.labels[label.0].expect("each function is bound");
            let distance = i32::try_from(to as isize - *from as isize - 1).map_err(|_| JumpTooLong)?;
            code[*from][4..].copy_from_slice(&distance.to_ne_bytes());
        }
        Ok(code)
    }

    fn with_operand(&mut self, code: u8, to: Register, operand: Operand, offset: i16) {
        match operand {
            Operand::Register(from) => self.push(code | FROM_REGISTER, to as u8, from as u8, offset, 0),
            Operand::Immediate(value) => self.push(code, to as u8, 0, offset, value),
        }
    }

    /// struct bpf_insn: code, two registers in a byte, offset, immediate value.
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        // Bit fields: the first one is the low half where integers are little-endian.
        let registers = if cfg!(target_endian = "little") { to | from << 4 } else { to << 4 | from };
        let (offset, value) = (offset.to_ne_bytes(), value.to_ne_bytes());
        self.code.push([code, registers, offset[0], offset[1], value[0], value[1], value[2], value[3]]);
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_labels_before_and_behind() {
        let mut code = Assembler::default();
        let (again, end) = (code.here(), code.label());
        code.load(Size::Word, Register::R2, Register::R1, 8);
        code.jump_if(Register::R2, Condition::NotEqual, 10, end);
        code.store(Size::Word, Register::R10, -4, Register::R2);
        code.jump_if(Register::R2, Condition::Less, Register::R3, again);
        code.bind(end);
        code.exit_with(1);
        assert_eq!(
            code.instructions().unwrap(),
            [
                [0x61, 0x12, 8, 0, 0, 0, 0, 0],
                [0x55, 0x02, 2, 0, 10, 0, 0, 0],
                [0x63, 0x2a, 0xfc, 0xff, 0, 0, 0, 0],
                [0xad, 0x32, 0xfc, 0xff, 0, 0, 0, 0],
                [0xb7, 0, 0, 0, 1, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    #[test]
    fn wide_values_take_two_instructions() {
        let mut code = Assembler::default();
        code.set_wide(Register::R4, 0x1122_3344_5566_7788);
        let expected = [[0x18, 4, 0, 0, 0x88, 0x77, 0x66, 0x55], [0, 0, 0, 0, 0x44, 0x33, 0x22, 0x11]];
        assert_eq!(code.instructions().unwrap(), expected);
    }

    #[test]
    fn functions_are_found_from_where_they_are_loaded() {
        let mut code = Assembler::default();
        let function = code.label();
        code.load_function(Register::R2, function);
        code.call_function(function);
        code.exit_with(0);
        code.begin_function(function);
        code.exit_with(1);
        let code_of = code.instructions().unwrap();
        assert_eq!(code_of[0], [0x18, 0x42, 0, 0, 4, 0, 0, 0], "from the instruction behind its first half");
        assert_eq!(code_of[2], [0x85, 0x10, 0, 0, 2, 0, 0, 0], "from the instruction behind it");
        assert_eq!(code.functions(), [5]);
    }

    #[test]
    fn a_jump_that_is_too_long_is_an_error() {
        let mut code = Assembler::default();
        let end = code.label();
        code.jump(end);
        for _ in 0..40_000 {
            code.set(Register::R0, 0);
        }
        code.bind(end);
        code.exit();
        assert_eq!(code.instructions(), Err(JumpTooLong));
    }
}

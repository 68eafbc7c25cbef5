//! Instructions of BPF programs, as few as we need (Documentation/bpf/standardization/instruction-set.rst).

use std::os::fd::AsRawFd as _;

use super::Map;

/// A register. R1 to R5 carry a call's arguments and are lost in it, R0 its result; R6 to R9 are kept; R10 is the end of
/// the stack, which grows downwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R10 = 10,
}

/// A field of the packet that a socket filter looks at; its offset counts from the IP header on a TUN device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PacketField {
    Byte(i32),
    Half(i32),
    Word(i32),
    /// Where the register says.
    WordAt(Register),
}

/// A jump whose end is not written yet: see [`Program::land`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Jump(usize);

/// A program in the making: it is written from the first instruction to the last, jumps lead forward.
#[derive(Debug, Default)]
pub(crate) struct Program {
    code: Vec<[u8; 8]>,
    /// Jumps whose distance is not known yet.
    to_end: Vec<Jump>,
}

impl Program {
    /// `to = value`
    pub(crate) fn set(&mut self, to: Register, value: i32) {
        self.push(0xb7, to as u8, 0, 0, value);
    }

    /// `to = from`
    pub(crate) fn copy(&mut self, to: Register, from: Register) {
        self.push(0xbf, to as u8, from as u8, 0, 0);
    }

    /// `to += value`
    pub(crate) fn add(&mut self, to: Register, value: i32) {
        self.push(0x07, to as u8, 0, 0, value);
    }

    /// `to = *(u32 *)(from + offset)`
    pub(crate) fn load(&mut self, to: Register, from: Register, offset: i16) {
        self.push(0x61, to as u8, from as u8, offset, 0);
    }

    /// `*(u32 *)(to + offset) = from`
    pub(crate) fn store(&mut self, to: Register, offset: i16, from: Register) {
        self.push(0x63, to as u8, from as u8, offset, 0);
    }

    /// `to = map`, which must be open while the program is loaded.
    pub(crate) fn load_map(&mut self, to: Register, map: &Map) {
        const PSEUDO_MAP_FD: u8 = 1;
        self.push(0x18, to as u8, PSEUDO_MAP_FD, 0, map.fd.as_raw_fd());
        self.push(0, 0, 0, 0, 0);
    }

    /// `to *= value`
    pub(crate) fn multiply(&mut self, to: Register, value: i32) {
        self.push(0x27, to as u8, 0, 0, value);
    }

    /// `to += from`
    pub(crate) fn add_register(&mut self, to: Register, from: Register) {
        self.push(0x0f, to as u8, from as u8, 0, 0);
    }

    /// `to &= value`
    pub(crate) fn and(&mut self, to: Register, value: i32) {
        self.push(0x57, to as u8, 0, 0, value);
    }

    /// `to >>= bits`
    pub(crate) fn shift_right(&mut self, to: Register, bits: i32) {
        self.push(0x77, to as u8, 0, 0, bits);
    }

    /// `R0 = field`, as a number, of the packet whose context is in R6. R1 to R5 are lost. Beyond the packet's end the
    /// program ends with result 0.
    pub(crate) fn load_packet(&mut self, field: PacketField) {
        match field {
            PacketField::Byte(offset) => self.push(0x30, 0, 0, 0, offset),
            PacketField::Half(offset) => self.push(0x28, 0, 0, 0, offset),
            PacketField::Word(offset) => self.push(0x20, 0, 0, 0, offset),
            PacketField::WordAt(register) => self.push(0x40, 0, register as u8, 0, 0),
        }
    }

    /// Jumps if the register equals the value.
    pub(crate) fn jump_if(&mut self, register: Register, value: i32) -> Jump {
        self.push(0x15, register as u8, 0, 0, value);
        Jump(self.code.len() - 1)
    }

    /// Jumps unless the register equals the value.
    pub(crate) fn jump_unless(&mut self, register: Register, value: i32) -> Jump {
        self.push(0x55, register as u8, 0, 0, value);
        Jump(self.code.len() - 1)
    }

    /// Jumps.
    pub(crate) fn jump(&mut self) -> Jump {
        self.push(0x05, 0, 0, 0, 0);
        Jump(self.code.len() - 1)
    }

    /// A jump leads to here.
    pub(crate) fn land(&mut self, Jump(at): Jump) {
        // It counts from the instruction behind it.
        let distance = (self.code.len() - at - 1) as i16;
        self.code[at][2..4].copy_from_slice(&distance.to_ne_bytes());
    }

    /// Calls the kernel's function of that number.
    pub(crate) fn call(&mut self, function: i32) {
        self.push(0x85, 0, 0, 0, function);
    }

    /// Goes to the end if the register equals the value.
    pub(crate) fn end_if(&mut self, register: Register, value: i32) {
        let jump = self.jump_if(register, value);
        self.to_end.push(jump);
    }

    /// Goes to the end unless the register equals the value.
    pub(crate) fn end_unless(&mut self, register: Register, value: i32) {
        let jump = self.jump_unless(register, value);
        self.to_end.push(jump);
    }

    /// The end: the program's result.
    pub(crate) fn end(mut self, result: i32) -> Self {
        for jump in std::mem::take(&mut self.to_end) {
            self.land(jump);
        }
        self.set(Register::R0, result);
        self.push(0x95, 0, 0, 0, 0);
        self
    }

    /// The end: the register is the program's result.
    pub(crate) fn end_with(mut self, result: Register) -> Self {
        self.copy(Register::R0, result);
        self.push(0x95, 0, 0, 0, 0);
        self
    }

    pub(super) fn instructions(&self) -> &[[u8; 8]] {
        &self.code
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
mod tests {
    use super::*;

    #[test]
    #[cfg(target_endian = "little")]
    fn jumps_lead_to_the_end() {
        let mut program = Program::default();
        program.load(Register::R2, Register::R1, 8);
        program.end_unless(Register::R2, 10);
        program.store(Register::R10, -4, Register::R2);
        let program = program.end(1);
        assert_eq!(
            program.instructions(),
            [
                [0x61, 0x12, 8, 0, 0, 0, 0, 0],
                [0x55, 0x02, 1, 0, 10, 0, 0, 0],
                [0x63, 0x2a, 0xfc, 0xff, 0, 0, 0, 0],
                [0xb7, 0, 0, 0, 1, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }
}

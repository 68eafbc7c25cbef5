//! The block function of ChaCha (RFC 8439 section 2.3) as a function of a program.
//!
//! It knows nothing of packets: 64 bytes of state become 64 bytes of keystream, in the same time whatever they are.

use bpf::Register::{R0, R1, R2, R3, R4, R6, R7, R8, R9};
use bpf::{Assembler, Label, Operation, Register, Size::Double, Size::Word};

use super::layout::ROUNDS;

/// Bytes of a block.
pub(super) const BLOCK: i16 = 64;
/// What the function needs: the state, and behind it the keystream that comes of it.
pub(super) const AREA: i16 = 2 * BLOCK;
/// Where the key is in the state, and the block counter with the nonce behind it.
pub(super) const KEY: i16 = 16;
pub(super) const COUNTER: i16 = 48;

/// "expand 32-byte k".
const CONSTANTS: [u64; 2] = [0x3320_646e_6170_7865, 0x6b20_6574_7962_2d32];

/// Writes the constants of a state that begins there.
pub(super) fn constants(code: &mut Assembler, base: Register, state: i16) {
    for (half, constant) in (0..).zip(CONSTANTS) {
        code.set_wide(R0, constant);
        code.store(Double, base, state + 8 * half, R0);
    }
}

/// The state's first row, which every quarter round needs, stays in registers.
const ROW: [Register; 4] = [R6, R7, R8, R9];

/// The function `block(area)`: R1 points to a state, with room behind it for the keystream. All other registers that a
/// call loses are lost.
pub(super) fn block(code: &mut Assembler, function: Label) {
    code.begin_function(function);
    for (at, word) in (0..).step_by(4).zip(ROW) {
        code.load(Word, word, R1, at);
    }
    for double in 0..ROUNDS / 2 {
        // The first column round reads the state, which stays.
        let from = if double == 0 { 0 } else { BLOCK };
        for (column, word) in (0..).zip(ROW) {
            quarter(code, from, word, [4 + column, 8 + column, 12 + column]);
        }
        for (diagonal, word) in (0..).zip(ROW) {
            let at = |row: i16| 4 * row + (diagonal + row) % 4;
            quarter(code, BLOCK, word, [at(1), at(2), at(3)]);
        }
    }
    for (at, word) in (0..).step_by(4).zip(ROW) {
        code.store(Word, R1, BLOCK + at, word);
    }
    for at in (0..BLOCK).step_by(4) {
        code.load(Word, R0, R1, at);
        code.load(Word, R2, R1, BLOCK + at);
        code.calculate_32(Operation::Add, R2, R0);
        code.store(Word, R1, BLOCK + at, R2);
    }
    code.exit_with(0);
}

/// A quarter round on a word of the first row and on these words, as they are there behind R1, to what becomes the keystream.
fn quarter(code: &mut Assembler, from: i16, a: Register, words: [i16; 3]) {
    const REGISTERS: [Register; 3] = [R2, R3, R4];
    for (register, word) in REGISTERS.into_iter().zip(words) {
        code.load(Word, register, R1, from + 4 * word);
    }
    let [b, c, d] = REGISTERS;
    for (sum, term, turned, bits) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
        code.calculate_32(Operation::Add, sum, term);
        code.calculate_32(Operation::Xor, turned, sum);
        code.calculate_32(Operation::Move, R0, turned);
        code.calculate_32(Operation::ShiftLeft, turned, bits);
        code.calculate_32(Operation::ShiftRight, R0, 32 - bits);
        code.calculate_32(Operation::Or, turned, R0);
    }
    for (register, word) in REGISTERS.into_iter().zip(words) {
        code.store(Word, R1, BLOCK + 4 * word, register);
    }
}

//! Runs a program of the intermediate form: what eBPF has to do with it, step by step. For tests, which compare the two
//! with each other and with the VM.

use super::ir::{Action, BlockId, End, Failure, Operand, Program, Target, calculate, holds};

/// What a program ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A verdict.
    Verdict(i64),
    /// An error, and where.
    Failed(Failure, u32),
}

/// Runs a program on a packet. Time and randomness are what they are given.
pub fn run(program: &Program, packet: &mut [u8], time: i64, mut random: impl FnMut() -> u32) -> Outcome {
    let mut values = vec![0_i64; program.values()];
    let mut block = BlockId(0);
    loop {
        let code = &program.blocks[block.0];
        for instruction in &code.code {
            let of = |operand: Operand| read(&values, operand);
            let result = match instruction.action {
                Action::Calculate(operation, left, right) => calculate(operation, of(left), of(right)),
                Action::Compare(condition, left, right) => i64::from(holds(condition, of(left), of(right))),
                Action::Length => packet.len() as i64,
                Action::Time => time,
                Action::Random => i64::from(random()),
                Action::Load { offset, bytes } => match part(packet, of(offset), bytes.into()) {
                    Some(part) => part.iter().fold(0, |value, byte| value << 8 | i64::from(*byte)),
                    None => return Outcome::Failed(Failure::OutsidePacket, instruction.line),
                },
                Action::Store { offset, bytes, value } => {
                    let value = of(value).to_be_bytes();
                    match part(packet, of(offset), bytes.into()) {
                        Some(part) => part.copy_from_slice(&value[8 - usize::from(bytes)..]),
                        None => return Outcome::Failed(Failure::OutsidePacket, instruction.line),
                    }
                    0
                }
                Action::HeaderChecksum { offset, difference } => {
                    adjust(packet, of(offset), of(difference), false);
                    0
                }
                Action::TransportChecksum { offset, difference, optional, .. } => {
                    adjust(packet, of(offset), of(difference), of(optional) != 0);
                    0
                }
            };
            values[instruction.result.0 as usize] = result;
        }
        let of = |operand: Operand| read(&values, operand);
        let target = match code.end.as_ref().expect("blocks that are reached have an end") {
            End::Jump(target) => target,
            End::Branch { condition, left, right, then, otherwise } => {
                if holds(*condition, of(*left), of(*right)) { then } else { otherwise }
            }
            End::Return(verdict) => return Outcome::Verdict(of(*verdict)),
            End::Fail(failure, line) => return Outcome::Failed(*failure, *line),
        };
        block = go(program, target, &mut values);
    }
}

fn go(program: &Program, target: &Target, values: &mut [i64]) -> BlockId {
    // All at once: arguments may be parameters of the same block.
    let arguments: Vec<_> = target.arguments.iter().map(|argument| read(values, *argument)).collect();
    for (parameter, argument) in program.blocks[target.block.0].parameters.iter().zip(arguments) {
        values[parameter.0 as usize] = argument;
    }
    target.block
}

fn read(values: &[i64], operand: Operand) -> i64 {
    match operand {
        Operand::Value(value) => values[value.0 as usize],
        Operand::Constant(number) => number,
    }
}

fn part(packet: &mut [u8], offset: i64, bytes: usize) -> Option<&mut [u8]> {
    packet.get_mut(usize::try_from(offset).ok()?..)?.get_mut(..bytes)
}

/// Adds to the sum that a checksum is the complement of (RFC 1624, equation 3).
fn adjust(packet: &mut [u8], offset: i64, difference: i64, optional: bool) {
    let Some(part) = part(packet, offset, 2) else { return };
    let old = u16::from_be_bytes([part[0], part[1]]);
    if optional && old == 0 {
        return;
    }
    let mut sum = u64::from(!old) + difference as u64;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let new = !(sum as u16);
    let new = if optional && new == 0 { 0xffff } else { new };
    part.copy_from_slice(&new.to_be_bytes());
}

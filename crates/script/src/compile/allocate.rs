//! Where values are kept: in registers, or on the stack.

use std::collections::BTreeSet;

use bpf::Register;

use super::ir::{Action, Operand, Program, Value};

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    /// In a register.
    Register(Register),
    /// On the stack, so many bytes from its end (negative).
    Stack(i16),
}

/// Registers that calls leave alone, but the one for the context.
const REGISTERS: [Register; 3] = [Register::R7, Register::R8, Register::R9];
/// Registers that calls do not leave alone, and the emitter does: for values that no call outlives.
const SCRATCH: [Register; 2] = [Register::R4, Register::R5];

/// Too many values are needed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooManyValues;

/// The locations of all values that are used, and which those are; a value has the same place all its life, which it shares
/// with others whose lives are over. Those on the stack are between `top` and as many bytes as it has; the rest is the
/// emitter's.
pub(super) fn locations(
    program: &Program,
    top: i16,
    stack: i16,
) -> Result<Vec<Option<Location>>, TooManyValues> {
    let lives = lives(program);
    let mut order: Vec<_> = (0..lives.len()).filter(|value| lives[*value].uses > 0).collect();
    order.sort_by_key(|value| lives[*value].from);

    let mut locations = vec![None; lives.len()];
    let mut registers: [Option<usize>; REGISTERS.len()] = [None; REGISTERS.len()];
    let mut scratch: [Option<usize>; SCRATCH.len()] = [None; SCRATCH.len()];
    let mut slots: Vec<Option<usize>> = vec![None; ((stack + top) / 8).max(0) as usize];
    for value in order {
        let from = lives[value].from;
        let free = |taken: &Option<usize>| taken.is_none_or(|other: usize| lives[other].to < from);
        if lives[value].is_short
            && let Some(number) = scratch.iter().position(free)
        {
            scratch[number] = Some(value);
            locations[value] = Some(Location::Register(SCRATCH[number]));
            continue;
        }
        if let Some(number) = registers.iter().position(free) {
            registers[number] = Some(value);
            locations[value] = Some(Location::Register(REGISTERS[number]));
            continue;
        }
        let slot = slots.iter().position(free).ok_or(TooManyValues)?;
        // Of those that want a register at once, the one that is used least is on the stack.
        let least =
            (0..REGISTERS.len()).min_by_key(|number| registers[*number].map_or(0, |other| lives[other].uses));
        if let Some(number) = least
            && let Some(other) = registers[number]
            && lives[other].uses < lives[value].uses
            // The other has been in the register from its beginning: the slot has to be free for all of that.
            && slots[slot].is_none_or(|before| lives[before].to < lives[other].from)
        {
            locations[other] = Some(Location::Stack(top - 8 * slot as i16));
            slots[slot] = Some(other);
            registers[number] = Some(value);
            locations[value] = Some(Location::Register(REGISTERS[number]));
            continue;
        }
        slots[slot] = Some(value);
        locations[value] = Some(Location::Stack(top - 8 * slot as i16));
    }
    Ok(locations)
}

/// From the instruction that makes a value to the last that reads it, in the order of the blocks.
#[derive(Clone, Copy)]
struct Life {
    from: usize,
    to: usize,
    uses: usize,
    /// It is made and read in one block, and between the two nothing is called.
    is_short: bool,
}

fn lives(program: &Program) -> Vec<Life> {
    let mut lives = vec![Life { from: usize::MAX, to: 0, uses: 0, is_short: false }; program.values()];
    // For what each block makes: the end of the block, or the first call behind it, as far as it may be read.
    let mut until = vec![0; program.values()];
    let used = used(program);
    let alive = alive_at_the_end(program, &used);
    let mut at = 0;
    for (number, block) in program.blocks.iter().enumerate() {
        let begin = at;
        let mut made = Vec::new();
        let mut lives_here = |value: Value, at: usize, use_of_it: bool| {
            let life = &mut lives[value.0 as usize];
            life.from = life.from.min(at);
            life.to = life.to.max(at);
            life.uses += usize::from(use_of_it);
        };
        for parameter in block.parameters.iter().filter(|value| used[value.0 as usize]) {
            lives_here(*parameter, begin, true);
        }
        for instruction in &block.code {
            at += 2;
            if instruction.action.is_pure() && !used[instruction.result.0 as usize] {
                continue;
            }
            instruction.action.operands().filter_map(value).for_each(|value| lives_here(value, at, true));
            // It may take the place of an operand that ends here only if it is written after that was read.
            if used[instruction.result.0 as usize] {
                lives_here(instruction.result, at + 1, true);
            }
            match instruction.action {
                Action::Calculate(..) | Action::Compare(..) | Action::Length => {}
                // A load reads its offset before it calls.
                Action::Load { .. } => made.drain(..).for_each(|value: Value| until[value.0 as usize] = at),
                _ => made.drain(..).for_each(|value: Value| until[value.0 as usize] = at - 1),
            }
            made.push(instruction.result);
        }
        at += 2;
        made.drain(..).for_each(|value: Value| until[value.0 as usize] = at);
        if let Some(end) = &block.end {
            end.operands().filter_map(value).filter(|value| used[value.0 as usize]).for_each(|value| {
                lives_here(value, at, true);
            });
        }
        for value in &alive[number] {
            lives_here(*value, begin, false);
            lives_here(*value, at, false);
        }
        at += 2;
    }
    for (life, until) in lives.iter_mut().zip(until) {
        life.is_short = life.to <= until;
    }
    lives
}

/// Values whose results matter: what has an effect reads them, or what matters does.
pub(super) fn used(program: &Program) -> Vec<bool> {
    // For each value what it is made of.
    let mut made_of: Vec<Vec<Operand>> = vec![Vec::new(); program.values()];
    let mut needed: Vec<Operand> = Vec::new();
    for block in &program.blocks {
        let Some(end) = &block.end else { continue };
        for instruction in &block.code {
            if instruction.action.is_pure() {
                made_of[instruction.result.0 as usize].extend(instruction.action.operands());
            } else {
                needed.extend(instruction.action.operands());
            }
        }
        needed.extend(end.conditions());
        for target in end.targets() {
            let parameters = &program.blocks[target.block.0].parameters;
            for (parameter, argument) in parameters.iter().zip(&target.arguments) {
                made_of[parameter.0 as usize].push(*argument);
            }
        }
    }
    let mut used = vec![false; program.values()];
    while let Some(operand) = needed.pop() {
        if let Some(value) = value(operand)
            && !std::mem::replace(&mut used[value.0 as usize], true)
        {
            needed.append(&mut made_of[value.0 as usize]);
        }
    }
    used
}

/// For each block, the values that are read after it.
fn alive_at_the_end(program: &Program, used: &[bool]) -> Vec<BTreeSet<Value>> {
    let mut begins: Vec<BTreeSet<Value>> = vec![BTreeSet::new(); program.blocks.len()];
    let mut ends = begins.clone();
    loop {
        let mut changed = false;
        for (number, block) in program.blocks.iter().enumerate().rev() {
            let Some(end) = &block.end else { continue };
            let mut alive: BTreeSet<Value> = BTreeSet::new();
            for target in end.targets() {
                let parameters = &program.blocks[target.block.0].parameters;
                alive.extend(begins[target.block.0].iter().filter(|value| !parameters.contains(value)));
            }
            ends[number].clone_from(&alive);
            alive.extend(end.operands().filter_map(value));
            for instruction in block.code.iter().rev() {
                alive.remove(&instruction.result);
                if !instruction.action.is_pure() || used[instruction.result.0 as usize] {
                    alive.extend(instruction.action.operands().filter_map(value));
                }
            }
            for parameter in &block.parameters {
                alive.remove(parameter);
            }
            alive.retain(|value| used[value.0 as usize]);
            if alive != begins[number] {
                begins[number] = alive;
                changed = true;
            }
        }
        if !changed {
            return ends;
        }
    }
}

fn value(operand: Operand) -> Option<Value> {
    match operand {
        Operand::Value(value) => Some(value),
        Operand::Constant(_) => None,
    }
}

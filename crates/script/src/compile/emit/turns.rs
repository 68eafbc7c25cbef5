//! Loops that a helper of the kernel runs: the verifier follows their bodies once, however many turns they take.
//!
//! A body is a function with a stack of its own. It is given the address of its state, which is where the program has what
//! was found in maps; behind the numbers is what a body needs to read packets. Older kernels (before Linux 6.6) take what the
//! state begins with for what it is in every turn, so the verifier must not know it. Those before Linux 6.3 follow all that
//! comes behind a place where ways meet once for each number that they know there, in programs with functions, also if it
//! decides nothing: so they know none ([`Emitter::hidden`]).

use std::collections::HashMap;

use bpf::Register::{R0, R1, R2, R3, R4, R6, R10};
use bpf::{Helper, Size};

use super::{BODY, COUNTERS, DYNPTR, Emitter, ZERO};
use crate::compile::allocate::{TooManyValues, locations, used};
use crate::compile::attach_type::AttachType;
use crate::compile::ir::{Action, Operand, Program, Value};

/// Where a body has the address of its state.
const STATE: i16 = COUNTERS;

impl Emitter<'_> {
    /// Runs a body so often.
    pub(super) fn repeat(&mut self, body: usize, turns: u32, state: &[Operand]) {
        let place = |number: usize| 8 * number as i16;
        for (number, operand) in state.iter().enumerate() {
            self.hidden(R1, *operand);
            self.code.store(Size::Double, R10, self.found + place(number), R1);
        }
        let behind = self.found + place(state.len());
        self.code.store(Size::Double, R10, behind, R6);
        let mut others = vec![ZERO];
        if *self.attach_type == AttachType::Xdp {
            others.push(Self::MOVED);
        }
        for (from, to) in others.into_iter().zip(1..) {
            self.code.load(Size::Double, R0, R10, from);
            self.code.store(Size::Double, R10, behind + place(to), R0);
        }
        self.code.set(R1, turns.cast_signed());
        self.code.load_function(R2, self.bodies[body]);
        self.code.copy(R3, R10);
        self.code.add(R3, i32::from(self.found));
        self.code.set(R4, 0);
        self.code.call(Helper::Loop);
    }

    /// The bodies of all loops.
    pub(super) fn all_bodies(&mut self) -> Result<(), TooManyValues> {
        for (number, body) in self.program.bodies.iter().enumerate() {
            self.code.begin_function(self.bodies[number]);
            let mut emitter = Emitter {
                program: body,
                locations: locations(body, DYNPTR - 8, BODY)?,
                used: used(body),
                reached: vec![false; body.blocks.len()],
                stored: None,
                code: std::mem::take(&mut self.code),
                blocks: Vec::new(),
                failures: HashMap::new(),
                lines: std::mem::take(&mut self.lines),
                maps: &[],
                accounts: None,
                tails: None,
                trace: None,
                punted: None,
                bodies: Vec::new(),
                is_body: true,
                found: self.found,
                written: self.written,
                results: self.results,
                before: self.before,
                attach_type: self.attach_type,
            };
            emitter.reached[0] = true;
            emitter.blocks = body.blocks.iter().map(|_| emitter.code.label()).collect();
            emitter.begin_turn(words(self.program, number));
            emitter.all_blocks();
            emitter.failed();
            (self.code, self.lines) = (emitter.code, emitter.lines);
        }
        Ok(())
    }

    /// Gets what is behind so many words of the state in R2.
    fn begin_turn(&mut self, words: usize) {
        let behind = 8 * words as i16;
        self.code.store(Size::Double, R10, STATE, R2);
        self.code.load(Size::Double, R6, R2, behind);
        self.code.load(Size::Double, R0, R2, behind + 8);
        self.code.store(Size::Double, R10, ZERO, R0);
        match self.attach_type {
            AttachType::Interface { .. } => {}
            AttachType::Xdp => {
                self.code.load(Size::Double, R0, R2, behind + 16);
                self.code.store(Size::Double, R10, Self::MOVED, R0);
            }
            AttachType::Netfilter { layout, .. } => self.make_dynptr(layout),
        }
    }

    pub(super) fn state(&mut self, result: Value, word: u8) {
        self.code.load(Size::Double, R3, R10, STATE);
        self.code.load(Size::Double, R0, R3, 8 * i16::from(word));
        self.write(result, R0);
    }

    pub(super) fn set_state(&mut self, word: u8, value: Operand) {
        self.code.load(Size::Double, R3, R10, STATE);
        self.hidden(R1, value);
        self.code.store(Size::Double, R3, 8 * i16::from(word), R1);
    }

    /// The end of a loop whose body could not read something.
    pub(super) fn leave_loop(&mut self) {
        self.set_state(0, Operand::Constant(-1));
        self.code.exit_with(1);
    }
}

/// Numbers in the state of a body: all that run it have as many.
fn words(program: &Program, body: usize) -> usize {
    let mut code = program.blocks.iter().flat_map(|block| &block.code);
    let state = code.find_map(|instruction| match &instruction.action {
        Action::Loop { body: this, state, .. } if *this == body => Some(state.len()),
        _ => None,
    });
    state.unwrap_or(0)
}

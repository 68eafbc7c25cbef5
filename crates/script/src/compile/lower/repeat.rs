//! Loops: turn after turn, as all kernels can follow that. How many there are at most has to be known; the packet may
//! decide when it is enough.

use super::{Key, Lower, State};
use crate::compile::ir::{Condition, Failure, Operand, Operation};
use crate::compile::slot::Slot;
use crate::syntax::tree::{Block, Expression, LocalId, Statement, StatementKind, Target, Variable};

/// Turns of one loop.
const MOST_TURNS: i128 = 256;

impl Lower<'_> {
    /// `for variable = from, to, step`, of integers.
    pub(super) fn numeric_for(&mut self, variable: LocalId, limits: [Option<&Expression>; 3], body: &Block) {
        let line = self.line;
        let [from, to, step] = limits.map(|limit| match limit {
            None => Operand::Constant(1),
            Some(limit) => {
                let slot = self.expression(limit);
                self.integer(slot, "a limit of the loop")
            }
        });
        self.line = line;
        let Operand::Constant(step) = step else {
            self.refuse("the step of the loop depends on the packet");
            return;
        };
        if step == 0 {
            return self.fail(Failure::StepIsZero);
        }
        let [(least, most), (low, high)] = [from, to].map(|limit| self.range(limit));
        let distance =
            if step > 0 { i128::from(high) - i128::from(least) } else { i128::from(most) - i128::from(low) };
        let turns = if distance < 0 { 0 } else { distance / i128::from(step).abs() + 1 };
        if turns > MOST_TURNS {
            return self.too_many_turns();
        }
        // Lua counts turns, so its variable never goes beyond the last integer (3.3.5); a sum would begin anew behind it.
        let last = i128::from(if step > 0 { most } else { least }) + (turns - 1) * i128::from(step);
        let next = i128::from(if step > 0 { high } else { low }) + i128::from(step);
        if [last, next].iter().all(|number| i64::try_from(*number).is_err()) {
            self.refuse("the variable of the loop may come to the end of the integers");
            return;
        }
        let mut left = Vec::new();
        self.functions.last_mut().expect("loops are in functions").breaks.push(Vec::new());
        for turn in 0..turns as i64 {
            if self.state.is_none() {
                break;
            }
            let number = self.calculate(Operation::Add, from, turn.wrapping_mul(step));
            let [lesser, greater] = if step > 0 { [to, number] } else { [number, to] };
            self.leave_if(Condition::Less, lesser, greater, &mut left);
            self.set(Key::Local(variable), Slot::integer(number));
            self.block(body);
        }
        let breaks = self.functions.last_mut().and_then(|inlined| inlined.breaks.pop()).unwrap_or_default();
        let ended = self.state.take();
        self.join(left.into_iter().chain(breaks).chain(ended));
    }

    /// `while condition do body end`
    pub(super) fn while_loop(&mut self, condition: &Expression, body: &Block) {
        self.turns(|lower| {
            let (then, otherwise) = lower.condition(condition);
            lower.state = then;
            lower.block(body);
            otherwise
        });
    }

    /// `repeat body until condition`
    pub(super) fn repeat_loop(&mut self, body: &Block, condition: &Expression) {
        self.turns(|lower| {
            lower.block(body);
            let (then, otherwise) = lower.condition(condition);
            lower.state = otherwise;
            then
        });
    }

    /// A loop of as many turns as it takes until nothing leads to the next one; each tells where it is left.
    fn turns(&mut self, mut turn: impl FnMut(&mut Self) -> Option<State>) {
        let line = self.line;
        self.functions.last_mut().expect("loops are in functions").breaks.push(Vec::new());
        let mut left = Vec::new();
        for _ in 0..MOST_TURNS {
            if self.state.is_none() {
                break;
            }
            left.extend(turn(self));
        }
        self.line = line;
        if self.state.is_some() {
            self.too_many_turns();
            // As if it ended here, for what comes behind it.
            left.extend(self.state.take());
        }
        let breaks = self.functions.last_mut().and_then(|inlined| inlined.breaks.pop()).unwrap_or_default();
        self.join(breaks.into_iter().chain(left));
    }

    fn too_many_turns(&mut self) {
        self.refuse(format!("the loop may take more than {MOST_TURNS} turns, as far as is known"));
    }

    /// Whether a function, and not only the top level, assigns to a variable.
    pub(super) fn is_assigned(&self, variable: &Variable) -> bool {
        let mut found = false;
        for function in &self.chunk.functions[1..] {
            statements(&function.body, &mut |statement| {
                let StatementKind::Assign(targets, _) = &statement.kind else { return };
                found |= targets
                    .iter()
                    .any(|target| matches!(target, Target::Variable(assigned) if assigned == variable));
            });
        }
        found
    }
}

/// All statements, also those within others.
fn statements(block: &Block, each: &mut impl FnMut(&Statement)) {
    for statement in block {
        each(statement);
        match &statement.kind {
            StatementKind::Do(body)
            | StatementKind::While(_, body)
            | StatementKind::Repeat(body, _)
            | StatementKind::For { body, .. }
            | StatementKind::ForIn(body) => statements(body, each),
            StatementKind::If(arms, rest) => {
                arms.iter().for_each(|(_, body)| statements(body, each));
                statements(rest, each);
            }
            _ => {}
        }
    }
}

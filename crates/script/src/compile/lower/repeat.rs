//! Loops: how many turns they take at most has to be known; the packet may decide when it is enough.
//!
//! A loop is followed turn after turn, with what is known in each. That is also what is compiled, unless it is long: then it
//! is compiled once, as [`super::roll`] does.

use super::roll::MOST_ROLLED;
use super::{Key, Lower, State};
use crate::compile::ir::{Condition, Failure, Operand, Operation};
use crate::compile::slot::Slot;
use crate::syntax::tree::{Block, Expression, LocalId, Statement, StatementKind, Target, Variable};

/// Turns of a loop that are followed one by one.
const MOST_TURNS: i64 = 256;
/// Values of the intermediate form in a loop that is compiled turn by turn: about as many as a program of eBPF can have.
const SHORT: usize = 5_900;
/// The same, of one that is not even tried to be.
const LONG: usize = 10_000;

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
        if turns > i128::from(MOST_ROLLED) {
            return self.too_many_turns(MOST_ROLLED);
        }
        // Lua counts turns, so its variable never goes beyond the last integer (3.3.5); a sum would begin anew behind it.
        let last = i128::from(if step > 0 { most } else { least }) + (turns - 1) * i128::from(step);
        let next = i128::from(if step > 0 { high } else { low }) + i128::from(step);
        if [last, next].iter().all(|number| i64::try_from(*number).is_err()) {
            self.refuse("the variable of the loop may come to the end of the integers");
            return;
        }
        let turns = turns as i64;
        self.turns(Some(turns), |lower, turn| {
            let mut left = Vec::new();
            let more = lower.calculate(Operation::Multiply, turn, step);
            let number = lower.calculate(Operation::Add, from, more);
            let [lesser, greater] = if step > 0 { [to, number] } else { [number, to] };
            lower.leave_if(Condition::Less, lesser, greater, &mut left);
            lower.set(Key::Local(variable), Slot::integer(number));
            lower.block(body);
            left
        });
    }

    /// `while condition do body end`
    pub(super) fn while_loop(&mut self, condition: &Expression, body: &Block) {
        self.turns(None, |lower, _| {
            let (then, otherwise) = lower.condition(condition);
            lower.state = then;
            lower.block(body);
            otherwise.into_iter().collect()
        });
    }

    /// `repeat body until condition`
    pub(super) fn repeat_loop(&mut self, body: &Block, condition: &Expression) {
        self.turns(None, |lower, _| {
            lower.block(body);
            let (then, otherwise) = lower.condition(condition);
            lower.state = otherwise;
            then.into_iter().collect()
        });
    }

    /// A loop of as many turns, or as it takes until nothing leads to the next one. Each is given its number, from 0 on, and
    /// tells where it leaves the loop.
    fn turns(&mut self, known: Option<i64>, mut turn: impl FnMut(&mut Self, Operand) -> Vec<State>) {
        if self.state.is_none() {
            return;
        }
        let before = self.clone();
        let size = |lower: &Self| lower.program.values() - before.program.values();
        let mut rolled = None;
        if let Some(turns) = known.filter(|turns| *turns > 1) {
            let is_rolled = self.roll(turns, &mut turn);
            let turn_by_turn = size(self).saturating_mul(turns as usize);
            if is_rolled && (turns > MOST_TURNS || turn_by_turn > LONG) {
                return;
            }
            let tags = self.tags.clone();
            let tried = std::mem::replace(self, Self { tags, ..before.clone() });
            rolled = is_rolled.then_some(tried);
        }
        if known.is_some_and(|turns| turns > MOST_TURNS) {
            return self.too_many_turns(MOST_TURNS);
        }
        let taken = self.unroll(known, &mut turn);
        let refused = self.refusals.len() > before.refusals.len();
        if size(self) <= SHORT && !refused {
            return;
        }
        if let (None, Some(taken), false) = (&rolled, taken, refused) {
            let tags = self.tags.clone();
            let unrolled = std::mem::replace(self, Self { tags, ..before.clone() });
            if self.roll(taken, &mut turn) {
                rolled = Some(std::mem::replace(self, unrolled));
            } else {
                *self = unrolled;
            }
        }
        if let Some(rolled) = rolled
            && (refused || size(&rolled) * 2 < size(self))
            && rolled.gives_up_no_more_than(self)
        {
            *self = rolled;
        }
    }

    /// Follows a loop turn after turn: how many it takes at most, if that is known.
    fn unroll(
        &mut self,
        known: Option<i64>,
        turn: &mut impl FnMut(&mut Self, Operand) -> Vec<State>,
    ) -> Option<i64> {
        let line = self.line;
        self.functions.last_mut().expect("loops are in functions").breaks.push(Vec::new());
        let (mut left, mut taken) = (Vec::new(), 0);
        while self.state.is_some() && taken < known.unwrap_or(MOST_TURNS) {
            left.extend(turn(self, taken.into()));
            taken += 1;
        }
        let is_known = known.is_some() || self.state.is_none();
        if !is_known {
            self.line = line;
            self.too_many_turns(MOST_TURNS);
        }
        // As if it ended here, for what comes behind it.
        left.extend(self.state.take());
        let breaks = self.functions.last_mut().and_then(|inlined| inlined.breaks.pop()).unwrap_or_default();
        self.join(breaks.into_iter().chain(left));
        is_known.then_some(taken)
    }

    /// Whether all that is refused or handed over here is so there, too.
    fn gives_up_no_more_than(&self, other: &Self) -> bool {
        let lists = |lower: &Self| [lower.refusals.clone(), lower.punts.clone().unwrap_or_default()];
        lists(self).iter().zip(lists(other)).all(|(own, others)| own.iter().all(|one| others.contains(one)))
    }

    fn too_many_turns(&mut self, most: i64) {
        self.refuse(format!("the loop may take more than {most} turns, as far as is known"));
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

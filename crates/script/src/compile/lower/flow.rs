//! Ways that part and meet.

use std::collections::BTreeSet;

use super::{Key, Lower, State, bounds};
use crate::compile::ir::{BlockId, Condition, End, Operand, Target, holds};
use crate::compile::slot::Slot;

impl Lower<'_> {
    /// Parts ways: where the condition holds, and where not. We are on neither.
    pub(super) fn branch(
        &mut self,
        condition: Condition,
        left: Operand,
        right: Operand,
    ) -> (Option<State>, Option<State>) {
        // A number that says whether a condition holds.
        if let (Operand::Value(value), Operand::Constant(0)) = (left, right)
            && let Some((inner, left, right)) = self.comparisons.get(&value).copied()
            && let Condition::Equal | Condition::NotEqual = condition
        {
            let (then, otherwise) = self.branch(inner, left, right);
            return if condition == Condition::NotEqual { (then, otherwise) } else { (otherwise, then) };
        }
        let ranges = [true, false].map(|holds| self.ranges_if(condition, [left, right], holds));
        let Some(state) = self.state.take() else { return (None, None) };
        if let (Operand::Constant(left), Operand::Constant(right)) = (left, right) {
            return if holds(condition, left, right) { (Some(state), None) } else { (None, Some(state)) };
        }
        let [if_so, if_not] = match ranges {
            [Some(if_so), Some(if_not)] => [if_so, if_not],
            [None, _] => return (None, Some(state)),
            [_, None] => return (Some(state), None),
        };
        let [then, otherwise] = [if_so, if_not].map(|ranges| {
            let mut there = State { block: self.program.block(), ..state.clone() };
            for (operand, range) in [left, right].into_iter().zip(ranges) {
                if range != self.range_in(Some(&state), operand) {
                    there.narrow(operand, range);
                }
            }
            there
        });
        let target = |state: &State| Target { block: state.block, arguments: Vec::new() };
        let end = End::Branch { condition, left, right, then: target(&then), otherwise: target(&otherwise) };
        self.program.blocks[state.block.0].end = Some(end);
        (Some(then), Some(otherwise))
    }

    /// Has ways meet, and goes on there. What not all of them know is forgotten.
    pub(super) fn join(&mut self, states: impl IntoIterator<Item = State>) {
        let mut states: Vec<_> = states.into_iter().collect();
        if states.len() < 2 {
            self.state = states.pop();
            return;
        }
        let block = self.program.block();
        let mut arguments = vec![Vec::new(); states.len()];
        let keys: BTreeSet<Key> = states[0].variables.keys().cloned().collect();
        self.meet_resized(&mut states);
        let mut joined = State {
            block,
            variables: Default::default(),
            narrowed: bounds::common(&states),
            written: states[0].written,
            resized: states[0].resized,
            changed: states.iter().filter_map(|state| state.changed).min(),
        };
        let written = joined.written;
        for key in keys {
            let slots: Option<Vec<&Slot>> = states.iter().map(|state| state.variables.get(&key)).collect();
            let Some(slots) = slots else { continue };
            let first = slots[0].shape.clone();
            let shape = slots[1..].iter().fold(first, |shape, slot| self.common(&shape, &slot.shape));
            let parts: Vec<_> = slots.iter().map(|slot| slot.parts_as(&shape)).collect();
            let mut common = Vec::new();
            for place in 0..shape.parts() {
                let given: Vec<Operand> = parts.iter().filter_map(|parts| parts[place]).collect();
                let same = given.iter().all(|operand| *operand == given[0]);
                // A value may not be there on a way where nobody looks at it; a number is everywhere.
                let everywhere =
                    given.len() == parts.len() || matches!(given.first(), Some(Operand::Constant(_)));
                if let Some(first) = given.first().filter(|_| same && everywhere) {
                    common.push(*first);
                    continue;
                }
                let parameter = self.program.parameter(block);
                let given =
                    states.iter().zip(&parts).filter_map(|(state, parts)| Some((state, parts[place]?)));
                self.range_of_all(parameter, given);
                common.push(parameter.into());
                for (arguments, parts) in arguments.iter_mut().zip(&parts) {
                    arguments.push(parts[place].unwrap_or(Operand::Constant(0)));
                }
            }
            joined.variables.insert(key, Slot::new(shape, common));
        }
        joined.forget_unreachable();
        joined.block = self.lead(&states, arguments, block);
        self.state = Some(joined);
        if states.iter().any(|state| state.written != written) {
            self.has_written();
        }
    }

    /// Leads ways to the block where they meet, those that bring the same along by one way: what it is is moved once. The
    /// block where they meet in the end, which is behind these.
    fn lead(&mut self, states: &[State], arguments: Vec<Vec<Operand>>, block: BlockId) -> BlockId {
        let mut ways: Vec<(Vec<Operand>, Vec<BlockId>)> = Vec::new();
        for (state, arguments) in states.iter().zip(arguments) {
            match ways.iter_mut().find(|(known, _)| *known == arguments) {
                Some((_, from)) => from.push(state.block),
                None => ways.push((arguments, vec![state.block])),
            }
        }
        let mut last = block;
        for (arguments, from) in &mut ways {
            if from.len() > 1 && !arguments.is_empty() {
                last = self.program.block();
                for from in std::mem::replace(from, vec![last]) {
                    let target = Target { block: last, arguments: Vec::new() };
                    self.program.blocks[from.0].end = Some(End::Jump(target));
                }
            }
        }
        if last != block {
            last = self.program.block();
            self.program.blocks[last.0].parameters =
                std::mem::take(&mut self.program.blocks[block.0].parameters);
        }
        for (arguments, from) in ways {
            for from in from {
                let target = Target { block: last, arguments: arguments.clone() };
                self.program.blocks[from.0].end = Some(End::Jump(target));
            }
        }
        last
    }

    /// A temporary in which the value goes with the state to where ways meet.
    pub(super) fn temporary(&mut self) -> Key {
        self.temporaries += 1;
        Key::Temporary(self.temporaries)
    }

    /// Takes a temporary's value.
    pub(super) fn take(&mut self, key: &Key) -> Slot {
        let slot = self.state.as_mut().and_then(|state| state.variables.remove(key));
        slot.unwrap_or_else(Slot::unclear)
    }

    /// Sets a variable.
    pub(super) fn set(&mut self, key: Key, slot: Slot) {
        if let Some(state) = &mut self.state {
            state.variables.insert(key, slot);
        }
    }
}

//! Loops that are compiled once, with a jump back.
//!
//! What a turn changes is a parameter of the block at which each turn begins. What that is, is found by trial: at first
//! nothing is; what is another thing at the end of a turn is a parameter in the next trial, until nothing else changes. The
//! verifier follows all turns, so it has to know the number of each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range as Span;

use super::bounds::{ANY, around};
use super::{Key, Lower, Range, State};
use crate::compile::ir::{Action, Condition, End, Operand, Operation, Target};
use crate::compile::slot::{Shape, Slot};

/// Turns of a loop.
pub(super) const MOST_ROLLED: i64 = 1024;
/// Trials; each finds at least one variable more that a turn changes, mostly all of them.
const MOST_TRIALS: usize = 12;
/// What the verifier follows with all turns: instructions of ours, so that it keeps within its million of eBPF, of which it
/// follows many more than once; and ways that it has yet to follow, of 8,192 (`BPF_COMPLEXITY_LIMIT_JMP_SEQ`).
const MOST_FOLLOWED: i64 = 20_000;
const MOST_WAYS: i64 = 4_000;

/// What a turn changes.
#[derive(Default)]
struct Carried {
    /// Variables, and what each is at the beginning of a turn.
    shapes: BTreeMap<Key, Shape>,
    /// What their parts can be.
    ranges: BTreeMap<(Key, usize), Range>,
    /// Variables that are no more.
    dropped: BTreeSet<Key>,
    /// Whether it writes to the packet.
    writes: bool,
    /// The line at which it changes the packet first.
    changed: Option<u32>,
}

impl Lower<'_> {
    /// Compiles a loop of so many turns once, if that can be done; if not, what is here now is to be thrown away.
    pub(super) fn roll(
        &mut self,
        turns: i64,
        turn: &mut impl FnMut(&mut Self, Operand) -> Vec<State>,
    ) -> bool {
        let before = self.clone();
        let mut carried = Carried::default();
        for _ in 0..MOST_TRIALS {
            let tags = self.tags.clone();
            *self = Self { tags, ..before.clone() };
            self.functions.last_mut().expect("loops are in functions").breaks.push(Vec::new());
            let Some((counter, header)) = self.enter_loop(&carried) else { return false };
            let begin = header.block.0;
            let (this, over) = self.branch(Condition::Less, counter, turns.into());
            self.state = this;
            let mut left = turn(self, counter);
            left.extend(over);
            let next = self.calculate(Operation::Add, counter, 1);
            let Some(end) = self.state.take() else { return false };
            if self.refusals.len() > before.refusals.len() {
                return false;
            }
            match self.learn(&mut carried, &header, &end) {
                None => return false,
                Some(true) => continue,
                Some(false) => {}
            }
            let mut arguments = vec![next];
            for (key, shape) in &carried.shapes {
                let parts = end.variables[key].parts_as(shape);
                arguments.extend(parts.into_iter().map(|part| part.unwrap_or(Operand::Constant(0))));
            }
            let target = Target { block: header.block, arguments };
            self.program.blocks[end.block.0].end = Some(End::Jump(target));
            let span = begin..self.program.blocks.len();
            if !self.can_be_followed(&span, turns) {
                return false;
            }
            self.loops.push((span, turns));
            let breaks =
                self.functions.last_mut().and_then(|inlined| inlined.breaks.pop()).unwrap_or_default();
            self.join(breaks.into_iter().chain(left));
            return true;
        }
        false
    }

    /// Leads to the block at which turns begin: the number of the turn, and what is known there.
    fn enter_loop(&mut self, carried: &Carried) -> Option<(Operand, State)> {
        let entry = self.state.take()?;
        let block = self.program.block();
        let counter = self.program.parameter(block);
        self.program.counters.insert(counter);
        self.ranges.insert(counter, (0, MOST_ROLLED));
        let mut header = State { block, ..entry.clone() };
        header.changed = header.changed.or(carried.changed);
        header.variables.retain(|key, _| !carried.dropped.contains(key));
        let mut arguments = vec![Operand::Constant(0)];
        for (key, shape) in &carried.shapes {
            let slot = header.variables.get_mut(key)?;
            let mut parts = Vec::new();
            for (place, part) in slot.parts_as(shape).into_iter().enumerate() {
                let parameter = self.program.parameter(block);
                if let Some(range) = carried.ranges.get(&(key.clone(), place)) {
                    self.ranges.insert(parameter, *range);
                }
                arguments.push(part.unwrap_or(Operand::Constant(0)));
                parts.push(parameter.into());
            }
            *slot = Slot::new(shape.clone(), parts);
        }
        self.program.blocks[entry.block.0].end = Some(End::Jump(Target { block, arguments }));
        self.state = Some(header);
        if carried.writes {
            self.has_written();
        }
        Some((counter.into(), self.state.clone()?))
    }

    /// Learns from a turn what it changes: whether that was not known. None: it cannot be carried to the next one.
    fn learn(&mut self, carried: &mut Carried, header: &State, end: &State) -> Option<bool> {
        if end.resized != header.resized {
            return None;
        }
        let mut is_new = false;
        if end.written != header.written && !carried.writes {
            (carried.writes, is_new) = (true, true);
        }
        if end.changed.is_some() && header.changed.is_none() {
            (carried.changed, is_new) = (end.changed, true);
        }
        for (key, slot) in &header.variables {
            let Some(last) = end.variables.get(key) else {
                is_new |= carried.dropped.insert(key.clone());
                carried.shapes.remove(key);
                continue;
            };
            let known = carried.shapes.get(key).cloned();
            if known.is_none() && last == slot {
                continue;
            }
            let shape = self.common(&slot.shape, &last.shape);
            // A string that was read in a turn before could be taken for one that nothing was written to since.
            if shape == Shape::Unclear || carried.writes && holds_text(&shape) {
                return None;
            }
            let is_other = known.as_ref() != Some(&shape);
            if is_other {
                carried.ranges.retain(|(carried, _), _| carried != key);
            }
            let [first, last] = [slot, last].map(|slot| slot.parts_as(&shape));
            for (place, (first, last)) in first.into_iter().zip(last).enumerate() {
                let Some(range) = last.map(|last| self.range_in(Some(end), last)) else { continue };
                let before = first.map(|first| self.range_in(Some(header), first));
                let both = before.map_or(range, |before| around(before, range));
                let place = (key.clone(), place);
                if is_other {
                    carried.ranges.insert(place, both);
                } else if before != Some(both) {
                    carried.ranges.insert(place, ANY);
                    is_new |= before != Some(ANY);
                }
            }
            if is_other {
                carried.shapes.insert(key.clone(), shape);
                is_new = true;
            }
        }
        Some(is_new)
    }

    /// Whether the verifier gets to the end of what there is, if these blocks take so many turns.
    fn can_be_followed(&self, span: &Span<usize>, turns: i64) -> bool {
        let (mut followed, mut ways) = (0_i64, 0_i64);
        for (number, block) in self.program.blocks.iter().enumerate() {
            let own = if span.contains(&number) { turns } else { 1 };
            let loops = self.loops.iter().filter(|(span, _)| span.contains(&number));
            let times = loops.fold(own, |times, (_, turns)| times.saturating_mul(*turns));
            let may_fail = |action: &Action| action.changes_packet() || matches!(action, Action::Load { .. });
            let fails = block.code.iter().filter(|instruction| may_fail(&instruction.action)).count();
            // Which way a number of turns goes, the verifier knows.
            let parts = i64::from(match &block.end {
                Some(End::Branch { left: Operand::Value(left), .. }) => !self.program.counters.contains(left),
                _ => false,
            });
            followed = followed.saturating_add(times.saturating_mul(block.code.len() as i64 + 1));
            ways = ways.saturating_add(times.saturating_mul(fails as i64 + parts));
        }
        followed <= MOST_FOLLOWED && ways <= MOST_WAYS
    }
}

/// Whether it may be a string that stands in the packet.
fn holds_text(shape: &Shape) -> bool {
    match shape {
        Shape::PacketText(..) => true,
        Shape::Optional(inner) => holds_text(inner),
        Shape::OneOf(shapes) => shapes.iter().any(|(_, shape)| holds_text(shape)),
        _ => false,
    }
}

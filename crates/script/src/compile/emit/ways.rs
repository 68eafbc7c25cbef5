//! Where blocks lead: jumps, what goes along, verdicts and errors.

use bpf::Register::{R0, R1, R2, R3, R4, R6, R8, R9};
use bpf::{Helper, Label, Size, context};

use super::super::account::PUNTED;
use super::super::allocate::Location;
use super::super::ir::{Condition, End, Failure, Operand, Target};
use super::super::matching::UNMATCHED;
use super::{AttachType, Emitter, PUNT_MASK};
use crate::vm::Verdict;

impl Emitter<'_> {
    pub(super) fn end(&mut self, end: &End, number: usize) {
        match end {
            End::Jump(target) => self.go_on(target, number),
            End::Branch { condition, left, right, then, otherwise } => {
                match left {
                    Operand::Value(value) if self.program.counters.contains(value) => self.move_to(R1, *left),
                    left => self.hidden(R1, *left),
                }
                let right = self.second(*right, R2);
                let [then, otherwise] = [then, otherwise].map(|target| self.destination(target));
                let (condition, inverted) = jumps(*condition);
                let (first, jump, last) = match (self.is_bare(then), self.is_bare(otherwise)) {
                    (true, true) if self.is_next(number, then) => (otherwise, inverted, then),
                    (false, true) => (otherwise, inverted, then),
                    _ => (then, condition, otherwise),
                };
                if self.is_bare(first) {
                    self.reached[first.block.0] = true;
                    self.code.jump_if(R1, jump, right, self.blocks[first.block.0]);
                    self.go_on(last, number);
                } else {
                    let holds = self.code.label();
                    self.code.jump_if(R1, jump, right, holds);
                    self.go_on(last, self.program.blocks.len());
                    self.code.bind(holds);
                    self.go_on(first, number);
                }
            }
            End::Return(is_over) if self.is_body => {
                self.move_to(R0, *is_over);
                self.code.exit();
            }
            End::Return(verdict) => self.verdict(*verdict),
            End::Redirect(interface) => self.redirect(*interface),
            End::Punt => {
                let code = &mut self.code;
                let label = *self.punted.get_or_insert_with(|| code.label());
                self.code.jump(label);
            }
            End::Fail(failure, line) => {
                let label = self.failure(*failure, *line);
                self.code.jump(label);
            }
        }
    }

    /// Goes on at a block: without a jump if that is the next one.
    fn go_on(&mut self, target: &Target, number: usize) {
        let target = self.destination(target);
        let block = &self.program.blocks[target.block.0];
        // A verdict that is known here needs no choice.
        if let (true, Some(End::Return(Operand::Value(verdict)))) = (block.code.is_empty(), &block.end)
            && let Some(place) = block.parameters.iter().position(|parameter| parameter == verdict)
            && let Some(Operand::Constant(verdict)) = target.arguments.get(place)
            && self.known_verdict(*verdict)
        {
            return;
        }
        self.arguments(target);
        if !self.is_next(number, target) {
            self.code.jump(self.blocks[target.block.0]);
        }
        self.reached[target.block.0] = true;
    }

    /// Whether a block is the next one behind this: all that lead to a block come before it.
    fn is_next(&self, number: usize, target: &Target) -> bool {
        let target = target.block.0;
        number < target && !self.reached[number + 1..target].contains(&true)
    }

    /// Where a way to a target leads: past blocks that only lead on. Where one moves something, others may come by there.
    fn destination<'b>(&self, mut target: &'b Target) -> &'b Target
    where
        Self: 'b,
    {
        loop {
            let block = &self.program.blocks[target.block.0];
            match &block.end {
                Some(End::Jump(next))
                    if block.code.is_empty() && block.parameters.is_empty() && self.is_bare(next) =>
                {
                    target = next;
                }
                _ => return target,
            }
        }
    }

    /// Whether it takes nothing but a jump to go there.
    fn is_bare(&self, target: &Target) -> bool {
        let parameters = &self.program.blocks[target.block.0].parameters;
        parameters.iter().zip(&target.arguments).all(|(parameter, argument)| {
            let place = self.locations[parameter.0 as usize];
            place.is_none() || self.location(*argument) == place
        })
    }

    /// NF_DROP and NF_STOLEN end a packet's way; what else is a verdict lets it pass; the rest is an error.
    fn verdict(&mut self, verdict: Operand) {
        let labels = Verdict::ALL.map(|_| self.code.label());
        self.hidden(R1, verdict);
        for (verdict, label) in Verdict::ALL.iter().zip(labels) {
            self.code.set_wide(R0, verdict.value() as u64);
            self.code.jump_if(R1, bpf::Condition::Equal, R0, label);
        }
        if self.results.unseen_mark.is_some() {
            let matched = self.code.label();
            self.code.set_wide(R0, UNMATCHED);
            self.code.jump_if(R1, bpf::Condition::NotEqual, R0, matched);
            self.code.exit_with(self.results.pass);
            self.code.bind(matched);
        }
        let line = self.lines.last().map_or(0, |(_, line)| *line);
        self.give_up(Failure::NoVerdict, line);
        for (place, label) in labels.into_iter().enumerate() {
            self.code.bind(label);
            self.leave_with(place);
        }
    }

    /// Leaves with a verdict; not if it is none.
    fn known_verdict(&mut self, number: i64) -> bool {
        if self.results.unseen_mark.is_some() && number as u64 == UNMATCHED {
            self.code.exit_with(self.results.pass);
            return true;
        }
        let place = Verdict::ALL.iter().position(|verdict| verdict.value() == number);
        place.inspect(|place| self.leave_with(*place)).is_some()
    }

    /// Leaves with the verdict of this place among all.
    fn leave_with(&mut self, place: usize) {
        let verdict = Verdict::ALL[place];
        if let (Verdict::Queue, Some(mark), AttachType::Interface { .. }) =
            (verdict, self.results.queue_mark, self.attach_type)
        {
            self.code.set(R1, mark.cast_signed());
            self.code.store(Size::Word, R6, context::MARK, R1);
        }
        let drops = matches!(verdict, Verdict::Drop | Verdict::Stolen);
        self.leave(place, if drops { self.results.drop } else { self.results.pass });
    }

    /// Gives the packet to the neighbor that the routes through an interface say. With the mark of packets that scripts
    /// have made, it comes to none again. No value is needed any more, so the registers are free.
    fn redirect(&mut self, interface: Operand) {
        let place = Verdict::ALL.iter().position(|verdict| *verdict == Verdict::Stolen).unwrap_or(0);
        self.move_to(R9, interface);
        if let Some(mark) = self.results.unseen_mark {
            self.code.set_wide(R0, mark.into());
            self.code.store(Size::Word, R6, context::MARK, R0);
        }
        let failed = self.code.label();
        if self.before > 0 {
            // The kernel takes the link header off, so there has to be one.
            self.code.copy(R1, R6);
            self.code.set(R2, self.before);
            self.code.set(R3, 0);
            self.code.call(Helper::SkbChangeHead);
            self.code.jump_if(R0, bpf::Condition::NotEqual, 0, failed);
        }
        self.code.copy(R1, R9);
        for argument in [R2, R3, R4] {
            self.code.set(argument, 0);
        }
        self.code.call(Helper::RedirectNeighbor);
        self.code.copy(R8, R0);
        self.leave_with_r8(place);
        if self.before > 0 {
            self.code.bind(failed);
            self.leave_with(place);
        }
    }

    /// The end of packets that the user tier has: a bit of their mark says whose it is, beside those of other scripts.
    pub(super) fn punted(&mut self) {
        let (Some(label), Some(mark)) = (self.punted, self.results.punt_mark) else { return };
        let others = self.code.label();
        self.code.bind(label);
        self.code.load(Size::Word, R0, R6, context::MARK);
        self.code.copy(R1, R0);
        self.code.and(R1, PUNT_MASK.cast_signed());
        self.code.set_wide(R2, (mark & PUNT_MASK).into());
        self.code.jump_if(R1, bpf::Condition::Equal, R2, others);
        self.code.set(R0, 0);
        self.code.bind(others);
        self.code.set_wide(R2, mark.into());
        self.code.calculate(bpf::Operation::Or, R0, R2);
        self.code.store(Size::Word, R6, context::MARK, R0);
        self.leave(PUNTED, self.results.pass);
    }

    pub(super) fn fail_if_error(&mut self, line: u32) {
        let label = self.failure(Failure::OutsidePacket, line);
        self.code.jump_if(R0, bpf::Condition::NotEqual, 0, label);
    }

    pub(super) fn failure(&mut self, failure: Failure, line: u32) -> Label {
        let code = &mut self.code;
        self.failures.entry((line, failure as u32)).or_insert_with(|| (failure, code.label())).1
    }

    /// The ends of packets that are given up.
    pub(super) fn failed(&mut self) {
        let mut failures: Vec<_> = std::mem::take(&mut self.failures).into_iter().collect();
        // The same script is always the same program.
        failures.sort_unstable_by_key(|(place, _)| *place);
        for ((line, _), (failure, label)) in failures {
            self.code.bind(label);
            if self.is_body {
                self.leave_loop();
            } else {
                self.give_up(failure, line);
            }
        }
    }

    /// Gives the parameters of a block their values, all at once.
    fn arguments(&mut self, target: &Target) {
        let parameters = &self.program.blocks[target.block.0].parameters;
        let mut moves: Vec<(Location, Operand)> = parameters
            .iter()
            .zip(&target.arguments)
            .filter_map(|(parameter, argument)| Some((self.locations[parameter.0 as usize]?, *argument)))
            .filter(|(to, argument)| self.location(*argument) != Some(*to))
            .collect();
        // What the verifier has to know.
        let counters = parameters.iter().filter(|parameter| self.program.counters.contains(parameter));
        let counters: Vec<_> = counters.filter_map(|value| self.locations[value.0 as usize]).collect();
        while !moves.is_empty() {
            // One whose place no other still reads.
            let free = (0..moves.len()).find(|number| {
                moves.iter().all(|(_, argument)| self.location(*argument) != Some(moves[*number].0))
            });
            if let Some(number) = free {
                let (to, argument) = moves.swap_remove(number);
                self.move_location(to, argument, counters.contains(&to));
                continue;
            }
            // They go round in a circle: what is in one place goes by way of R3, which nothing here uses.
            let (to, _) = moves[0];
            self.load_location(R3, to);
            let mut held = Vec::new();
            moves.retain(|(place, argument)| {
                let holds = self.location(*argument) == Some(to);
                if holds {
                    held.push(*place);
                }
                !holds
            });
            // Nobody reads it any more, so those that wait for it can go.
            while !moves.is_empty() {
                let free = (0..moves.len()).find(|number| {
                    moves.iter().all(|(_, argument)| self.location(*argument) != Some(moves[*number].0))
                });
                let Some(number) = free else { break };
                let (to, argument) = moves.swap_remove(number);
                self.move_location(to, argument, counters.contains(&to));
            }
            for place in held {
                self.store_location(place, R3);
            }
        }
    }
}

/// The condition, and that it does not hold.
fn jumps(condition: Condition) -> (bpf::Condition, bpf::Condition) {
    use bpf::Condition as Jump;
    match condition {
        Condition::Equal => (Jump::Equal, Jump::NotEqual),
        Condition::NotEqual => (Jump::NotEqual, Jump::Equal),
        Condition::Less => (Jump::SignedLess, Jump::SignedGreaterOrEqual),
        Condition::LessOrEqual => (Jump::SignedLessOrEqual, Jump::SignedGreater),
        Condition::Below => (Jump::Less, Jump::GreaterOrEqual),
    }
}

//! Which sockets have something to do: those that may have something to send, those that the caller has not looked at since
//! something happened to them, and those whose time comes. No other is visited.
//!
//! Sockets are numbers here. A number may be of another socket by the time it comes up again, or of none: to look at one for
//! nothing does no harm, and there is at most one entry for each number in each queue.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Instant;

/// Points in time that are no longer of use are tolerated up to this, or up to four for each socket.
const SLACK: usize = 64;

#[derive(Debug, Clone, Copy, Default)]
struct Mark {
    ready: bool,
    changed: bool,
    /// The one entry among the deadlines that counts.
    scheduled: Option<Instant>,
}

/// What is to be done, and when.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    marks: Vec<Mark>,
    ready: VecDeque<u32>,
    changed: VecDeque<u32>,
    /// The first one always counts.
    deadlines: BinaryHeap<Reverse<(Instant, u32)>>,
}

impl Agenda {
    /// It may have something to send.
    pub(super) fn ready(&mut self, index: u32) {
        let mark = self.mark(index);
        if !std::mem::replace(&mut mark.ready, true) {
            self.ready.push_back(index);
        }
    }

    /// The next that may have something to send.
    pub(super) fn next_ready(&mut self) -> Option<u32> {
        let index = self.ready.pop_front()?;
        self.mark(index).ready = false;
        Some(index)
    }

    /// Something has happened to it.
    pub(super) fn changed(&mut self, index: u32) {
        let mark = self.mark(index);
        if !std::mem::replace(&mut mark.changed, true) {
            self.changed.push_back(index);
        }
    }

    /// The next that something has happened to.
    pub(super) fn next_changed(&mut self) -> Option<u32> {
        let index = self.changed.pop_front()?;
        self.mark(index).changed = false;
        Some(index)
    }

    /// It wants to be visited then. An earlier visit that it has asked for stays, and finds nothing to do.
    pub(super) fn schedule(&mut self, index: u32, at: Option<Instant>) {
        let Some(at) = at else { return };
        let mark = self.mark(index);
        if mark.scheduled.is_some_and(|scheduled| scheduled <= at) {
            return;
        }
        mark.scheduled = Some(at);
        self.deadlines.push(Reverse((at, index)));
        if self.deadlines.len() > SLACK + 4 * self.marks.len() {
            let marks = &self.marks;
            self.deadlines.retain(|Reverse(entry)| counts(marks, entry));
        }
        self.prune();
    }

    /// The socket is gone.
    pub(super) fn forget(&mut self, index: u32) {
        self.mark(index).scheduled = None;
        self.prune();
    }

    /// When the next visit is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.peek().map(|Reverse((at, _))| *at)
    }

    /// The next whose time has come.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<u32> {
        let Reverse((at, index)) = *self.deadlines.peek()?;
        if at > now {
            return None;
        }
        self.deadlines.pop();
        self.mark(index).scheduled = None;
        self.prune();
        Some(index)
    }

    fn mark(&mut self, index: u32) -> &mut Mark {
        let index = index as usize;
        if index >= self.marks.len() {
            self.marks.resize(index + 1, Mark::default());
        }
        &mut self.marks[index]
    }

    fn prune(&mut self) {
        while self.deadlines.peek().is_some_and(|Reverse(first)| !counts(&self.marks, first)) {
            self.deadlines.pop();
        }
    }
}

fn counts(marks: &[Mark], (at, index): &(Instant, u32)) -> bool {
    marks.get(*index as usize).is_some_and(|mark| mark.scheduled == Some(*at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn what_is_ready_is_visited_once_and_in_turn() {
        let mut agenda = Agenda::default();
        for index in [3, 1, 3, 3] {
            agenda.ready(index);
        }
        assert_eq!(agenda.next_ready(), Some(3));
        agenda.ready(3);
        assert_eq!([agenda.next_ready(), agenda.next_ready(), agenda.next_ready()], [Some(1), Some(3), None]);
    }

    #[test]
    fn a_deadline_that_moves_a_million_times_takes_no_more_room() {
        let start = Instant::now();
        let mut agenda = Agenda::default();
        for step in 0..1_000_000 {
            let now = start + Duration::from_millis(step);
            agenda.schedule(0, Some(now + Duration::from_secs(300)));
            agenda.schedule(0, Some(now));
            assert_eq!(agenda.take_due(now), Some(0));
        }
        assert!(agenda.deadlines.len() <= SLACK + 4);
    }

    proptest! {
        #[test]
        fn nothing_is_visited_late(steps in proptest::collection::vec((0..5u32, 0..100u64), 0..100)) {
            let start = Instant::now();
            let mut agenda = Agenda::default();
            let mut wanted = [None; 5];
            for (index, after) in steps {
                let at = start + Duration::from_millis(after);
                if after % 7 == 0 {
                    agenda.forget(index);
                    wanted[index as usize] = None;
                } else {
                    agenda.schedule(index, Some(at));
                    let wanted = &mut wanted[index as usize];
                    *wanted = Some(wanted.map_or(at, |earlier: Instant| earlier.min(at)));
                }
                prop_assert_eq!(agenda.deadline(), wanted.iter().flatten().min().copied());
            }
            while let Some(index) = agenda.take_due(start + Duration::from_secs(1)) {
                prop_assert!(wanted[index as usize].take().is_some());
            }
            prop_assert_eq!(wanted, [None; 5]);
        }
    }
}

//! How the packet thread waits.

use std::time::{Duration, Instant};

use linux::event::{Events, Poller};
use mt6d::Time;

/// Work in a turn, as [`DataPath::work`](super::data::DataPath::work) has it, that is more than questions and answers.
const BULK: usize = 8 * 1024;
/// How long after such a turn nobody looks: acknowledgements of a bulk flow go back and forth, too.
const AFTER_BULK: Duration = Duration::from_millis(10);

/// Waits for events; where packets go back and forth in quick succession (questions and answers) without going to
/// sleep, if that is wanted. Falling asleep and being woken takes longer than many a packet does.
///
/// A stream in one direction is better off asleep: more of it comes at once. So is a bulk flow, which would have to do
/// without the processor that the looking takes.
pub(super) struct BusyPoll {
    /// How long to look before sleeping; zero for not at all.
    spin: Duration,
    /// Whether the last wait was so short that looking pays.
    dense: bool,
    /// Whether the last turn carried something in the other direction than the one before it.
    answered: bool,
    /// The direction of the last turn that carried something.
    outwards: bool,
    /// When there was a bulk flow.
    bulk: Time,
}

impl BusyPoll {
    pub(super) fn new(spin: Duration) -> Self {
        BusyPoll { spin, dense: false, answered: false, outwards: false, bulk: Time::default() }
    }

    /// A turn has received and sent so much.
    pub(super) fn turn(&mut self, received: usize, sent: usize, now: Time) {
        if received + sent >= BULK {
            self.bulk = now;
        }
        if received + sent > 0 {
            let outwards = sent > 0;
            let both = received > 0 && outwards;
            self.answered = (both || outwards != self.outwards) && now.since(self.bulk) > AFTER_BULK;
            self.outwards = outwards;
        }
    }

    /// Until there are events, or until the timeout if there is one.
    pub(super) fn wait(
        &mut self,
        poller: &Poller,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> linux::Result<()> {
        if self.spin.is_zero() || timeout.is_some_and(|timeout| timeout.is_zero()) {
            return poller.wait(events, timeout).map(drop);
        }
        let began = Instant::now();
        let spin = timeout.map_or(self.spin, |timeout| timeout.min(self.spin));
        while self.dense && self.answered && began.elapsed() < spin {
            if poller.wait(events, Some(Duration::ZERO))? > 0 {
                return Ok(());
            }
            // Whom we wait for may need this processor.
            std::thread::yield_now();
        }
        let came = poller.wait(events, timeout.map(|timeout| timeout.saturating_sub(began.elapsed())))?;
        self.dense = came > 0 && began.elapsed() <= self.spin;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether turns that received and sent so much, a millisecond apart, are followed by looking.
    fn answered(turns: &[(usize, usize)]) -> bool {
        let mut wait = BusyPoll::new(Duration::from_micros(50));
        for (number, (received, sent)) in (100..).zip(turns) {
            wait.turn(*received, *sent, Time::from_micros(number * 1_000));
        }
        wait.answered
    }

    #[test]
    fn questions_and_answers_are_waited_for_awake() {
        assert!(answered(&[(600, 0), (0, 600)]) && answered(&[(0, 600), (0, 0), (600, 0)]));
        assert!(answered(&[(600, 600)]), "both within one turn");
    }

    #[test]
    fn nobody_looks_for_more_of_a_stream() {
        assert!(!answered(&[(0, 600), (600, 0), (600, 0)]));
    }

    #[test]
    fn nobody_looks_for_acknowledgements_of_a_bulk_flow() {
        assert!(!answered(&[(60_000, 0), (0, 600), (600, 0)]));
        let quiet = [(0, 0); 20];
        assert!(answered(&[&[(60_000, 0)], &quiet[..], &[(600, 0), (0, 600)]].concat()), "long ago");
    }
}

//! What liveness remembers: when something is due, and what the peer said of itself (docs/protocol.md, "Liveness").

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::host_interface::HostInterface;
use crate::time::Time;

/// How often liveness is looked at: drawn, so that what is sent then has no phase. While something is unanswered more often.
pub(super) const TICK: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_millis(900);
pub(super) const ANXIOUS_TICK: RangeInclusive<Duration> =
    Duration::from_millis(300)..=Duration::from_millis(600);
/// When the first round trip is measured, and the mean time between two.
const FIRST_ROUND_TRIP: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(3);
pub(super) const ROUND_TRIP_EVERY: Duration = Duration::from_secs(10);
/// The peer says that an answer is overdue for this long, and says so again after a while, in which what we asked it was not
/// answered: ours do not arrive. Said once, that may be of an outage that is over.
pub(super) const UNHEARD: Duration = Duration::from_millis(2200);
const UNHEARD_AGAIN: Duration = Duration::from_millis(300);

/// When what is asked is due, and what the peer said of itself.
pub(super) struct Liveness {
    pub(super) next_tick: Time,
    pub(super) next_round_trip: Time,
    /// When the peer asked for a round trip last: who does has traffic, or keeps the session.
    pub(super) asked: Time,
    /// When somebody wanted to know whether the peer is there: the peer, which said that it keeps the session, or the operator.
    pub(super) watch: Option<Time>,
    /// When it said for the first time that it does not hear us, and whether it did so again.
    pub(super) unheard: Option<(Time, bool)>,
    /// When it was asked first of what it has not answered, and when it answered last.
    pub(super) question: Option<Time>,
    pub(super) answered: Option<Time>,
    /// Since when it has been heard again and again.
    pub(super) heard_since: Option<Time>,
    /// Which part of the time that it may an end sends nothing, before it sends just so that something is sent.
    pub(super) quiet: f64,
}

impl Liveness {
    pub(super) fn new(now: Time, host: &mut HostInterface) -> Self {
        Liveness {
            next_tick: now + host.pause(TICK),
            next_round_trip: now + host.pause(FIRST_ROUND_TRIP),
            asked: now,
            watch: None,
            unheard: None,
            question: None,
            answered: None,
            heard_since: None,
            quiet: host.half_or_more(),
        }
    }

    /// The peer asks, and says whether it does not hear us, and whether it keeps the session.
    pub(super) fn peer_asked(&mut self, unheard: bool, keeps: bool, now: Time) {
        self.asked = now;
        self.unheard = unheard.then(|| {
            let (first, again) = self.unheard.unwrap_or((now, false));
            (first, again || now.since(first) >= UNHEARD_AGAIN)
        });
        if keeps {
            self.watch = Some(now);
        }
    }

    /// It has answered: it hears us.
    pub(super) fn peer_answered(&mut self, now: Time) {
        (self.unheard, self.question, self.answered) = (None, None, Some(now));
    }
}

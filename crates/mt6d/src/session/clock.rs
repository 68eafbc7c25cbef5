//! The session clock that both ends share, and the round trips that keep it together.

use std::time::Duration;

use crate::time::Time;

/// Milliseconds since the responder sent its answer, as this end sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SessionClock {
    /// When it was zero, in microseconds of CLOCK_BOOTTIME.
    zero: i64,
}

/// An answer that took longer measures nothing.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest correction that one round trip makes, in microseconds, once a session runs.
const SLEW: i64 = 20_000;

impl SessionClock {
    pub(crate) fn starting(at: Time) -> Self {
        SessionClock { zero: at.micros() as i64 }
    }

    /// The session clock at `now`, in milliseconds.
    pub(crate) fn at(self, now: Time) -> i64 {
        (now.micros() as i64).saturating_sub(self.zero).div_euclid(1000)
    }

    /// When the session clock shows `ms`.
    pub(crate) fn time_of(self, ms: i64) -> Time {
        Time::from_micros(u64::try_from(ms.saturating_mul(1000).saturating_add(self.zero)).unwrap_or(0))
    }

    /// Moves towards the responder's clock, which showed `theirs` half a `round_trip` ago. `first`: at once and in
    /// full, as nothing has happened on this clock yet.
    pub(crate) fn adjust(&mut self, theirs: i64, round_trip: Duration, now: Time, first: bool) {
        let theirs_now = theirs.saturating_mul(1000).saturating_add(round_trip.as_micros() as i64 / 2);
        let ours_now = now.micros() as i64 - self.zero;
        let ahead = ours_now.saturating_sub(theirs_now);
        // Both clocks are told in whole milliseconds, which says nothing below two of them.
        let ahead = if ahead.unsigned_abs() < 2_000 { 0 } else { ahead };
        self.zero += if first { ahead.clamp(-5_000_000, 5_000_000) } else { (ahead / 4).clamp(-SLEW, SLEW) };
    }
}

/// Round-trip time, measured with control messages (smoothed as RFC 6298 does).
#[derive(Debug, Clone)]
pub(crate) struct RoundTrip {
    smoothed: Option<Duration>,
    /// Questions that wait for their answers, each with the session clock that it told and the answer repeats.
    asked: Vec<(i64, Time)>,
}

impl RoundTrip {
    pub(crate) fn new(first: Option<Duration>) -> Self {
        RoundTrip { smoothed: first, asked: Vec::new() }
    }

    /// The smoothed round trip; zero as long as none was measured.
    pub(crate) fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or_default()
    }

    /// The smoothed round trip, if one was measured.
    pub(crate) fn measured(&self) -> Option<Duration> {
        self.smoothed
    }

    /// A question leaves that tells this session clock.
    pub(crate) fn asked(&mut self, clock: i64, now: Time) {
        if self.asked.len() >= 8 {
            self.asked.remove(0);
        }
        self.asked.push((clock, now));
    }

    /// Its answer is here: how long it took.
    pub(crate) fn answered(&mut self, echo: i64, now: Time) -> Option<Duration> {
        let index = self.asked.iter().position(|(clock, _)| *clock == echo)?;
        let (_, sent) = self.asked.remove(index);
        if now.since(sent) > PATIENCE {
            return None;
        }
        let sample = now.since(sent);
        self.smoothed = Some(match self.smoothed {
            Some(smoothed) => smoothed * 7 / 8 + sample / 8,
            None => sample,
        });
        Some(sample)
    }

    /// Forgets the estimate made from the handshake, which counts retransmissions.
    pub(crate) fn restart(&mut self) {
        self.smoothed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_converge() {
        let responder = SessionClock::starting(Time::from_micros(1_000_000));
        let mut initiator = SessionClock::starting(Time::from_micros(400_000));
        let rtt = Duration::from_millis(30);
        let mut now = Time::from_micros(5_000_000);
        initiator.adjust(responder.at(now - rtt / 2), rtt, now, true);
        assert!((initiator.at(now) - responder.at(now)).abs() <= 2);
        initiator.zero += 100_000;
        for _ in 0..60 {
            now = now + Duration::from_secs(10);
            initiator.adjust(responder.at(now - rtt / 2), rtt, now, false);
        }
        assert!((initiator.at(now) - responder.at(now)).abs() <= 3);
        assert_eq!(responder.at(responder.time_of(1234)), 1234);
    }

    #[test]
    fn round_trips_are_smoothed() {
        let mut round_trip = RoundTrip::new(None);
        round_trip.asked(1, Time::from_micros(0));
        assert_eq!(round_trip.answered(2, Time::from_micros(5)), None);
        assert_eq!(round_trip.answered(1, Time::from_micros(8_000)), Some(Duration::from_millis(8)));
        assert_eq!(round_trip.answered(1, Time::from_micros(9_000)), None, "once");
        round_trip.asked(3, Time::from_micros(0));
        round_trip.answered(3, Time::from_micros(16_000));
        assert_eq!(round_trip.smoothed(), Duration::from_millis(9));
    }
}

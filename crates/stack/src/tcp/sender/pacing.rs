//! Pacing: a window leaves spread over its round trip, not in bursts that a shallow queue on the way drops. As Linux does it
//! by itself: a little faster than the window needs, in steps that a timer can keep.

use std::time::{Duration, Instant};

use super::{Recovery, Sender};

/// So much of the rate may leave at once. A window whose round trip is shorter is not paced at all.
const STEP: Duration = Duration::from_millis(1);
/// Segments that may be outstanding without pacing: what the initial window allows (RFC 6928).
const UNPACED_SEGMENTS: usize = 10;
/// How much faster than a window in each round trip, in percent: in slow start, whose window doubles, and after that.
const SLOW_START_PERCENT: u128 = 200;
const AVOIDANCE_PERCENT: u128 = 120;

impl Sender {
    /// When data may leave, if not now.
    pub(super) fn paced_until(&self, now: Instant) -> Option<Instant> {
        self.paced.filter(|next| *next > now + STEP && self.is_paced()).map(|next| next - STEP)
    }

    /// The most that may leave in one packet.
    pub(super) fn paced_most(&self, most: usize, unit: usize) -> usize {
        let (true, Some(rtt)) = (self.is_paced(), self.rtt.smoothed()) else { return most };
        let step =
            self.cubic.window() as u128 * self.pace_percent() / 100 * STEP.as_nanos() / rtt.as_nanos().max(1);
        let step = usize::try_from(step).unwrap_or(usize::MAX) / unit * unit;
        most.min(step.max(2 * unit))
    }

    /// So many bytes leave.
    pub(super) fn pace(&mut self, now: Instant, bytes: usize) {
        let Some(rtt) = self.rtt.smoothed().filter(|_| self.paces) else { return };
        let window = self.cubic.window().max(1) as u128;
        let nanos = rtt.as_nanos() * bytes as u128 * 100 / (window * self.pace_percent());
        let wait = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)).min(rtt);
        self.paced = Some(self.paced.map_or(now, |next| next.max(now)) + wait);
    }

    /// In fast recovery, what has arrived decides what leaves.
    fn is_paced(&self) -> bool {
        self.paces
            && !matches!(self.recovery, Recovery::Fast(_))
            && self.outstanding() >= UNPACED_SEGMENTS * self.mss()
    }

    fn pace_percent(&self) -> u128 {
        let in_slow_start = self.cubic.window() < self.cubic.ssthresh();
        if in_slow_start { SLOW_START_PERCENT } else { AVOIDANCE_PERCENT }
    }
}

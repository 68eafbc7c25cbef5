//! The round-trip time and the retransmission timeout that follows from it (RFC 6298).

use std::time::{Duration, Instant};

/// Before the first sample (RFC 6298 §2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// If the SYN was sent more than once, and nothing has been measured (RFC 6298 §5.7).
const INITIAL_RTO_AFTER_SYN_TIMEOUT: Duration = Duration::from_secs(3);
/// What a timeout is at least above the round-trip time. RFC 6298 §2.4 asks for a timeout of 1 s, for clocks that
/// ticked twice a second; 200 ms cover acknowledgements that are delayed, and are what hosts use today.
const MIN_MARGIN: Duration = Duration::from_millis(200);
/// RFC 6298 §2.5 allows no less.
const MAX_RTO: Duration = Duration::from_secs(60);
/// How far back the minimum looks (RFC 8985 §6.2 step 2): a path that became longer counts after twice that.
const MIN_WINDOW: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct RttEstimator {
    smoothed: Option<Duration>,
    variation: Duration,
    initial: Duration,
    /// How often the timeout has doubled since a round trip could be measured.
    backoff: u8,
    /// Timeouts in a row.
    timeouts: u8,
    /// There was a sample since the tail was last probed.
    is_fresh: bool,
    minimum: Minimum,
}

impl RttEstimator {
    pub(super) fn new() -> Self {
        Self {
            smoothed: None,
            variation: Duration::ZERO,
            initial: INITIAL_RTO,
            backoff: 0,
            timeouts: 0,
            is_fresh: false,
            minimum: Minimum::default(),
        }
    }

    /// A round trip that began with a segment sent once (Karn's rule is the caller's).
    pub(super) fn sample(&mut self, now: Instant, rtt: Duration) {
        self.minimum.sample(now, rtt);
        self.smooth(rtt);
    }

    /// A round trip that an echoed timestamp tells, also of what was sent again (RFC 7323 §4.1). Its clock is too coarse for
    /// the minimum.
    pub(super) fn sample_echo(&mut self, rtt: Duration) {
        if rtt <= MAX_RTO {
            self.smooth(rtt);
        }
    }

    fn smooth(&mut self, rtt: Duration) {
        self.backoff = 0;
        self.timeouts = 0;
        self.is_fresh = true;
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(rtt);
            self.variation = rtt / 2;
            return;
        };
        self.variation = (self.variation * 3 + smoothed.abs_diff(rtt)) / 4;
        self.smoothed = Some((smoothed * 7 + rtt) / 8);
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(super) fn minimum(&self) -> Option<Duration> {
        self.minimum.get()
    }

    /// The timeout, backed off.
    pub(super) fn rto(&self) -> Duration {
        let base = match self.smoothed {
            Some(smoothed) => smoothed + (self.variation * 4).max(MIN_MARGIN),
            None => self.initial,
        };
        base.saturating_mul(1 << self.backoff.min(16)).min(MAX_RTO)
    }

    pub(super) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    /// Nothing was lost, only waited for.
    pub(super) fn reset_backoff(&mut self) {
        self.backoff = 0;
    }

    /// The retransmission timer has fired.
    pub(super) fn timed_out(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
        self.back_off();
    }

    /// New data was acknowledged: the path works. The timeout stays what it is until a round trip was measured: if the
    /// path has become longer than it, all that is sent is sent twice, and none could be measured (Karn, MUST-18).
    pub(super) fn progressed(&mut self) {
        self.timeouts = 0;
    }

    /// Whether the tail may be probed: a probe makes acknowledgements ambiguous, and without samples between them a path that
    /// has become longer would never be found out (RFC 8985 §7.3).
    pub(super) fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// The tail is probed.
    pub(super) fn probed(&mut self) {
        self.is_fresh = false;
    }

    pub(super) fn timeouts(&self) -> u8 {
        self.timeouts
    }

    /// The SYN was sent more than once, so that its round trip cannot be known.
    pub(super) fn syn_timed_out(&mut self) {
        self.initial = INITIAL_RTO_AFTER_SYN_TIMEOUT;
        self.backoff = 0;
    }
}

/// The least of the last 30 to 60 seconds.
#[derive(Debug, Default)]
struct Minimum {
    current: Option<(Instant, Duration)>,
    previous: Option<Duration>,
}

impl Minimum {
    fn sample(&mut self, now: Instant, rtt: Duration) {
        self.current = match self.current {
            Some((since, least)) if now.saturating_duration_since(since) < MIN_WINDOW => {
                Some((since, least.min(rtt)))
            }
            old => {
                self.previous = old.map(|(_, least)| least);
                Some((now, rtt))
            }
        };
    }

    fn get(&self) -> Option<Duration> {
        let current = self.current.map(|(_, least)| least);
        current.into_iter().chain(self.previous).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn rfc_6298_section_2_the_first_sample_and_the_next() {
        let now = Instant::now();
        let mut rtt = RttEstimator::new();
        assert_eq!(rtt.rto(), Duration::from_secs(1));
        rtt.sample(now, 400 * MS);
        assert_eq!(rtt.rto(), 400 * MS + 4 * 200 * MS);
        rtt.sample(now, 800 * MS);
        // RTTVAR = 3/4 · 200 + 1/4 · 400, SRTT = 7/8 · 400 + 1/8 · 800
        assert_eq!(rtt.rto(), 450 * MS + 4 * 250 * MS);
    }

    #[test]
    fn rfc_6298_section_5_5_each_timeout_doubles_up_to_a_minute() {
        let mut rtt = RttEstimator::new();
        rtt.back_off();
        assert_eq!(rtt.rto(), Duration::from_secs(2));
        for _ in 0..300 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), Duration::from_secs(60));
        rtt.sample(Instant::now(), 10 * MS);
        assert_eq!(rtt.rto(), 210 * MS);
    }

    #[test]
    fn the_minimum_forgets() {
        let now = Instant::now();
        let mut rtt = RttEstimator::new();
        rtt.sample(now, 10 * MS);
        rtt.sample(now + Duration::from_secs(31), 50 * MS);
        assert_eq!(rtt.minimum(), Some(10 * MS));
        rtt.sample(now + Duration::from_secs(62), 60 * MS);
        assert_eq!(rtt.minimum(), Some(50 * MS));
    }
}

//! The congestion window: slow start with HyStart++, then CUBIC (RFC 9438).

use std::time::{Duration, Instant};

use super::hystart::{HyStart, Phase};
use super::sequence::SequenceNumber;

/// C, in segments per second cubed (RFC 9438 §5).
const C: f64 = 0.4;
/// β: what is left of the window after a loss (RFC 9438 §4.6).
const BETA: f64 = 0.7;
/// α of the Reno-friendly region (RFC 9438 §4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Segments of the initial window (RFC 6928).
const INITIAL_SEGMENTS: usize = 10;
/// Segments that one acknowledgement adds at most in slow start without pacing (L, RFC 9406 §4.3).
const SLOW_START_SEGMENTS: usize = 8;
/// In conservative slow start the window grows by this part of what is acknowledged (RFC 9406 §4.3).
const CSS_GROWTH_DIVISOR: usize = 4;
/// What 32-bit sequence numbers allow.
const MAX_WINDOW: usize = 1 << 30;

#[derive(Debug, Clone)]
pub(super) struct Cubic {
    mss: usize,
    window: usize,
    ssthresh: usize,
    /// In segments: W_max, K in seconds, W_est, cwnd_prior.
    w_max: f64,
    k: f64,
    w_est: f64,
    prior: f64,
    /// When congestion avoidance began.
    epoch: Option<Instant>,
    last_ack: Option<Instant>,
    /// Part of a byte that the window has grown by.
    remainder: f64,
    hystart: HyStart,
}

/// An acknowledgement of new data.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acked {
    pub(super) bytes: usize,
    pub(super) ack: SequenceNumber,
    pub(super) next: SequenceNumber,
    /// Of this acknowledgement, if it can be known.
    pub(super) rtt: Option<Duration>,
    pub(super) smoothed_rtt: Duration,
    /// Whether the window is what held sending back: otherwise it must not grow.
    pub(super) is_limited: bool,
}

impl Cubic {
    pub(super) fn new(mss: usize, next: SequenceNumber) -> Self {
        Self {
            mss,
            window: initial_window(mss),
            ssthresh: usize::MAX,
            w_max: 0.0,
            k: 0.0,
            w_est: 0.0,
            prior: 0.0,
            epoch: None,
            last_ack: None,
            remainder: 0.0,
            hystart: HyStart::new(next),
        }
    }

    /// The window in bytes.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    pub(super) fn ssthresh(&self) -> usize {
        self.ssthresh
    }

    pub(super) fn set_mss(&mut self, mss: usize) {
        self.mss = mss;
        self.window = self.window.max(mss);
    }

    /// The handshake lost packets: the initial window is one segment (RFC 6928 §2).
    pub(super) fn handshake_lost(&mut self) {
        self.window = self.mss;
    }

    /// What is sent during recovery is the caller's choice (PRR).
    pub(super) fn set_window(&mut self, window: usize) {
        self.window = window.max(self.mss);
    }

    /// Recovery ends: the window is the threshold, but what may leave at once is bounded (RFC 6582 §3.2 step 3). The rest
    /// is slow start, from what is outstanding.
    pub(super) fn recovered(&mut self, outstanding: usize) {
        self.window = self.ssthresh.min(outstanding.saturating_add(initial_window(self.mss)));
    }

    pub(super) fn acknowledged(&mut self, now: Instant, acked: &Acked) {
        let idle = self.last_ack.map(|last| now.saturating_duration_since(last));
        self.last_ack = Some(now);
        if self.window < self.ssthresh {
            let phase = if self.ssthresh == usize::MAX {
                self.hystart.acknowledged(acked.ack, acked.next, acked.rtt)
            } else {
                Phase::SlowStart
            };
            let growth = acked.bytes.min(SLOW_START_SEGMENTS * self.mss);
            let growth = match phase {
                Phase::SlowStart => growth,
                Phase::Conservative => growth / CSS_GROWTH_DIVISOR,
                Phase::CongestionAvoidance => {
                    self.ssthresh = self.window;
                    0
                }
            };
            if acked.is_limited {
                self.window = (self.window + growth).min(self.ssthresh).min(MAX_WINDOW);
            }
            return;
        }
        if acked.is_limited {
            self.avoid_congestion(now, acked);
        } else if let (Some(epoch), Some(idle)) = (&mut self.epoch, idle) {
            // Time without growth does not count (RFC 9438 §5.8).
            *epoch += idle;
        }
    }

    fn avoid_congestion(&mut self, now: Instant, acked: &Acked) {
        let window = self.window as f64 / self.mss as f64;
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.w_max = self.w_max.max(window);
            self.k = ((self.w_max - window) / C).cbrt();
            self.w_est = window;
            now
        });
        let t = now.saturating_duration_since(epoch).as_secs_f64();
        let cubic = |t: f64| C * (t - self.k).powi(3) + self.w_max;

        let alpha = if self.w_est >= self.prior { 1.0 } else { ALPHA };
        let segments = acked.bytes as f64 / self.mss as f64;
        self.w_est += alpha * segments / window;
        let grown = if cubic(t) < self.w_est {
            window.max(self.w_est)
        } else {
            let target = cubic(t + acked.smoothed_rtt.as_secs_f64()).clamp(window, 1.5 * window);
            window + (target - window) / window * segments
        };
        self.remainder += (grown - window) * self.mss as f64;
        // No faster than slow start, whatever the floats say.
        let bytes = (self.remainder as usize).min(acked.bytes);
        self.remainder = self.remainder.fract();
        self.window = (self.window + bytes).min(MAX_WINDOW);
    }

    /// Congestion: a loss, or a mark. `flight` bytes were outstanding.
    pub(super) fn reduce(&mut self, flight: usize) {
        let used = self.window.min(flight.max(2 * self.mss));
        let window = self.window as f64 / self.mss as f64;
        self.w_max = if window < self.w_max { window * (1.0 + BETA) / 2.0 } else { window };
        self.prior = window;
        self.epoch = None;
        self.remainder = 0.0;
        self.ssthresh = ((used as f64 * BETA) as usize).max(2 * self.mss);
    }

    /// The retransmission timer fired: back to one segment (RFC 5681 §3.1).
    pub(super) fn timed_out(&mut self, flight: usize, is_first: bool) {
        if is_first {
            self.reduce(flight);
        }
        // Congestion avoidance begins where it will be then, not at what was before (RFC 9438 §4.8).
        self.w_max = 0.0;
        self.window = self.mss;
    }

    /// Nothing was sent for a while: what is known of the path is old (RFC 5681 §4.1).
    pub(super) fn restart(&mut self) {
        self.window = self.window.min(initial_window(self.mss));
        self.epoch = None;
    }
}

fn initial_window(mss: usize) -> usize {
    (INITIAL_SEGMENTS * mss).min((2 * mss).max(14600))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: usize = 1000;

    fn acked(bytes: usize) -> Acked {
        let (ack, next) = (SequenceNumber(0), SequenceNumber(1));
        let smoothed_rtt = Duration::from_millis(100);
        Acked { bytes, ack, next, rtt: None, smoothed_rtt, is_limited: true }
    }

    #[test]
    fn rfc_6928_section_2_the_initial_window_is_ten_segments() {
        assert_eq!(Cubic::new(1220, SequenceNumber(0)).window(), 12200);
        assert_eq!(Cubic::new(1460, SequenceNumber(0)).window(), 14600);
        assert_eq!(Cubic::new(8940, SequenceNumber(0)).window(), 17880);
    }

    #[test]
    fn rfc_9438_section_4_6_a_loss_leaves_seven_tenths() {
        let mut cubic = Cubic::new(MSS, SequenceNumber(0));
        cubic.window = 100 * MSS;
        cubic.reduce(100 * MSS);
        cubic.recovered(usize::MAX);
        assert_eq!(cubic.window(), 70 * MSS);
        cubic.window = 2 * MSS;
        cubic.reduce(2 * MSS);
        assert_eq!(cubic.ssthresh(), 2 * MSS);
    }

    #[test]
    fn rfc_9438_section_4_2_the_window_is_back_after_k_seconds_and_flat_there() {
        let mut cubic = Cubic::new(MSS, SequenceNumber(0));
        cubic.window = 1000 * MSS;
        cubic.reduce(1000 * MSS);
        cubic.recovered(usize::MAX);
        let start = Instant::now();
        // K = cbrt(300 / 0.4) = 9.1 s
        let at = |seconds: f64| {
            let mut now = start;
            let mut cubic = cubic.clone();
            while now < start + Duration::from_secs_f64(seconds) {
                cubic.acknowledged(now, &acked(cubic.window()));
                now += Duration::from_millis(100);
            }
            cubic.window() / MSS
        };
        assert!((985..1001).contains(&at(9.1)), "{}", at(9.1));
        assert!((985..1010).contains(&at(10.0)), "{}", at(10.0));
        assert!(at(4.0) > 850, "most of it comes early: {}", at(4.0));
        assert!(at(16.0) > 1080, "then it looks for more: {}", at(16.0));
    }

    #[test]
    fn rfc_9438_section_4_3_over_short_paths_the_window_grows_no_slower_than_that_of_reno() {
        let mut cubic = Cubic::new(MSS, SequenceNumber(0));
        cubic.window = 100 * MSS;
        cubic.reduce(100 * MSS);
        cubic.recovered(usize::MAX);
        let start = Instant::now();
        let rtt = Duration::from_millis(1);
        let mut round = 0;
        let mut rounds = |cubic: &mut Cubic, rounds: u32| {
            for _ in 0..rounds {
                let smoothed_rtt = rtt;
                cubic.acknowledged(start + rtt * round, &Acked { smoothed_rtt, ..acked(cubic.window()) });
                round += 1;
            }
            cubic.window() / MSS
        };
        // α = 0.53 segments a round, until the window is what it was before the loss; then one.
        assert!((79..=82).contains(&rounds(&mut cubic, 20)));
        assert!((99..=102).contains(&rounds(&mut cubic, 38)));
        assert!((117..=124).contains(&rounds(&mut cubic, 20)));
    }

    #[test]
    fn rfc_9438_section_4_7_flows_that_lose_early_give_way() {
        let mut cubic = Cubic::new(MSS, SequenceNumber(0));
        cubic.window = 100 * MSS;
        cubic.reduce(100 * MSS);
        cubic.recovered(usize::MAX);
        cubic.reduce(70 * MSS);
        assert!((cubic.w_max - 59.5).abs() < 0.01);
    }

    #[test]
    fn rfc_9438_section_5_8_what_is_not_used_does_not_grow() {
        let mut cubic = Cubic::new(MSS, SequenceNumber(0));
        for ms in 0..1000 {
            let now = Instant::now() + Duration::from_millis(ms);
            cubic.acknowledged(now, &Acked { is_limited: false, ..acked(MSS) });
        }
        assert_eq!(cubic.window(), 10 * MSS);
    }

    #[test]
    fn rfc_9438_section_4_8_after_a_timeout_the_window_begins_at_what_it_has_come_to() {
        let mut cubic = Cubic::new(MSS, SequenceNumber(0));
        cubic.window = 1000 * MSS;
        cubic.timed_out(1000 * MSS, true);
        cubic.window = cubic.ssthresh;
        cubic.acknowledged(Instant::now(), &acked(MSS));
        assert_eq!((cubic.w_max, cubic.k), (700.0, 0.0));
    }

    #[test]
    fn rfc_5681_section_3_1_a_timeout_leaves_one_segment() {
        let mut cubic = Cubic::new(MSS, SequenceNumber(0));
        cubic.timed_out(10 * MSS, true);
        assert_eq!((cubic.window(), cubic.ssthresh()), (MSS, 7 * MSS));
        cubic.timed_out(MSS, false);
        assert_eq!(cubic.ssthresh(), 7 * MSS);
    }
}

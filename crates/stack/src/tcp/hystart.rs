//! HyStart++ (RFC 9406): slow start ends when the round-trip time grows, before the queue overflows.

use std::time::Duration;

use super::sequence::SequenceNumber;

const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u32 = 8;
const N_RTT_SAMPLE: u8 = 8;
const CSS_ROUNDS: u8 = 5;

#[derive(Debug, Clone)]
pub(super) struct HyStart {
    round_end: SequenceNumber,
    last_round: Option<Duration>,
    this_round: Option<Duration>,
    samples: u8,
    /// Conservative slow start: the RTT that it began with, and the rounds left.
    conservative: Option<(Duration, u8)>,
}

/// How slow start goes on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    SlowStart,
    Conservative,
    CongestionAvoidance,
}

impl HyStart {
    pub(super) fn new(next: SequenceNumber) -> Self {
        Self { round_end: next, last_round: None, this_round: None, samples: 0, conservative: None }
    }

    /// An acknowledgement up to `ack`, while `next` is to be sent next (RFC 9406 §4.2).
    pub(super) fn acknowledged(
        &mut self,
        ack: SequenceNumber,
        next: SequenceNumber,
        rtt: Option<Duration>,
    ) -> Phase {
        if ack >= self.round_end {
            self.round_end = next;
            self.last_round = self.this_round.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds -= 1;
                if *rounds == 0 {
                    return Phase::CongestionAvoidance;
                }
            }
        }
        let Some(rtt) = rtt else { return self.phase() };
        let least = self.this_round.map_or(rtt, |least| least.min(rtt));
        self.this_round = Some(least);
        self.samples = self.samples.saturating_add(1);
        if self.samples >= N_RTT_SAMPLE {
            match (self.conservative, self.last_round) {
                (Some((baseline, _)), _) if least < baseline => self.conservative = None,
                (None, Some(last)) => {
                    let threshold = (last / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                    if least >= last + threshold {
                        self.conservative = Some((least, CSS_ROUNDS));
                    }
                }
                _ => {}
            }
        }
        self.phase()
    }

    fn phase(&self) -> Phase {
        if self.conservative.is_some() { Phase::Conservative } else { Phase::SlowStart }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The phase after a round of ten acknowledgements with this RTT.
    fn round(hystart: &mut HyStart, n: u32, rtt: u64) -> Phase {
        let rtt = Some(Duration::from_millis(rtt));
        let next = SequenceNumber((n + 1) * 100);
        (0..10).map(|i| hystart.acknowledged(SequenceNumber(n * 100 + i), next, rtt)).last().unwrap()
    }

    #[test]
    fn rfc_9406_section_4_2_a_growing_rtt_slows_down_and_ends_slow_start_after_five_rounds() {
        let mut hystart = HyStart::new(SequenceNumber(0));
        assert_eq!(round(&mut hystart, 0, 40), Phase::SlowStart);
        assert_eq!(round(&mut hystart, 1, 44), Phase::SlowStart);
        assert_eq!(round(&mut hystart, 2, 52), Phase::Conservative);
        for n in 3..7 {
            assert_eq!(round(&mut hystart, n, 53), Phase::Conservative);
        }
        let end = hystart.acknowledged(SequenceNumber(700), SequenceNumber(800), None);
        assert_eq!(end, Phase::CongestionAvoidance);
    }

    #[test]
    fn rfc_9406_section_4_2_an_rtt_that_falls_again_resumes_slow_start() {
        let mut hystart = HyStart::new(SequenceNumber(0));
        round(&mut hystart, 0, 40);
        assert_eq!(round(&mut hystart, 1, 52), Phase::Conservative);
        assert_eq!(round(&mut hystart, 2, 41), Phase::SlowStart);
    }
}

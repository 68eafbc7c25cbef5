//! When a message is sent again (RFC 8415 section 15), and the values of section 7.6.

use std::time::{Duration, Instant};

/// How a kind of message is repeated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Time to the first repetition, about (IRT).
    pub first: Duration,
    /// The longest time between two (MRT).
    pub longest: Duration,
    /// How often it is sent at most (MRC).
    pub most: Option<u32>,
    /// The first interval is not shortened by chance, so that offers are waited for long enough (section 18.2.1).
    pub patient: bool,
}

pub(super) const SOLICIT: Limits =
    Limits { first: Duration::from_secs(1), longest: Duration::from_secs(3_600), most: None, patient: true };
pub(super) const REQUEST: Limits = Limits {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(30),
    most: Some(10),
    patient: false,
};
/// Renew and Rebind.
pub(super) const EXTEND: Limits =
    Limits { first: Duration::from_secs(10), longest: Duration::from_secs(600), most: None, patient: false };
/// A Rebind that confirms a lease: as a Confirm is repeated (section 18.2.12).
pub(super) const CONFIRM: Limits =
    Limits { first: Duration::from_secs(1), longest: Duration::from_secs(4), most: None, patient: false };

/// Where the repetition of a message stands.
#[derive(Debug)]
pub(super) struct Retransmission {
    limits: Limits,
    /// Nothing is sent from then on.
    end: Option<Instant>,
    sent: u32,
    interval: Duration,
    due: Instant,
}

impl Retransmission {
    /// The message is to be sent at once.
    pub(super) fn new(limits: Limits, end: Option<Instant>, now: Instant) -> Self {
        Retransmission { limits, end, sent: 0, interval: Duration::ZERO, due: now }
    }

    /// When there is something to do: send, or give up.
    pub(super) fn deadline(&self) -> Instant {
        self.end.map_or(self.due, |end| self.due.min(end))
    }

    /// How often it was sent.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether to send it now, at its deadline; no is for ever.
    pub(super) fn next(&mut self, now: Instant, random: u64) -> bool {
        let ended = self.end.is_some_and(|end| now >= end);
        if ended || self.limits.most.is_some_and(|most| self.sent >= most) {
            return false;
        }
        let base =
            if self.sent == 0 { self.limits.first } else { (self.interval * 2).min(self.limits.longest) };
        let deviation = base / 10;
        let patient = self.limits.patient && self.sent == 0;
        let (least, spread) = if patient { (base, deviation) } else { (base - deviation, deviation * 2) };
        self.interval = least + part(spread, random);
        self.sent += 1;
        self.due = now + self.interval;
        true
    }
}

/// A part of `whole`, evenly distributed as the low half of `random` is.
pub(super) fn part(whole: Duration, random: u64) -> Duration {
    whole.mul_f64(f64::from(random as u32) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(limits: Limits, end: Option<Duration>, random: u64) -> Vec<f64> {
        let start = Instant::now();
        let mut retransmission = Retransmission::new(limits, end.map(|end| start + end), start);
        let mut intervals = Vec::new();
        while intervals.len() < 20 {
            let now = retransmission.deadline();
            if !retransmission.next(now, random) {
                break;
            }
            intervals.push((retransmission.interval.as_secs_f64() * 10.0).round() / 10.0);
        }
        intervals
    }

    const MIDDLE: u64 = u32::MAX as u64 / 2;

    #[test]
    fn solicits_slow_down_to_one_an_hour() {
        let found = intervals(SOLICIT, None, 0);
        assert_eq!(found[..4], [1.0, 1.8, 3.2, 5.8]);
        assert_eq!(found[19], 3_240.0);
    }

    #[test]
    fn a_request_is_sent_ten_times() {
        let found = intervals(REQUEST, None, MIDDLE);
        assert_eq!(found, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0]);
    }

    #[test]
    fn a_rebind_after_a_restart_ends_after_ten_seconds() {
        assert_eq!(intervals(CONFIRM, Some(Duration::from_secs(10)), 0), [0.9, 1.6, 2.9, 3.6, 3.6]);
        assert_eq!(intervals(CONFIRM, Some(Duration::from_secs(10)), MIDDLE), [1.0, 2.0, 4.0, 4.0]);
    }
}

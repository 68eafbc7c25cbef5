//! When routers are asked for: soon after the start, and then ever more rarely, until one has answered (RFC 4861 §6.3.7,
//! RFC 7559).

use std::time::{Duration, Instant};

use crate::random::Random;

/// The first solicitation waits for a random part of this, so that hosts that start together do not all ask at once
/// (RFC 4861 §10).
const MAX_RTR_SOLICITATION_DELAY: Duration = Duration::from_secs(1);
/// Between the first two (RFC 7559 §2).
const INITIAL: Duration = Duration::from_secs(4);
/// The longest (RFC 7559 §2).
const LONGEST: Duration = Duration::from_secs(3600);

/// A search for routers.
#[derive(Debug, Default)]
pub struct Solicitation {
    next: Option<Instant>,
    pause: Option<Duration>,
}

impl Solicitation {
    /// Begins, if it has not.
    pub fn start(&mut self, now: Instant, random: &mut Random) {
        if self.next.is_none() {
            self.next = Some(now + random.between(Duration::ZERO, MAX_RTR_SOLICITATION_DELAY));
            self.pause = None;
        }
    }

    /// A router has answered.
    pub fn stop(&mut self) {
        self.next = None;
    }

    /// When to ask next.
    pub fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Whether to ask now. The times grow as RFC 8415 §15 has it.
    pub fn is_due(&mut self, now: Instant, random: &mut Random) -> bool {
        if self.next.is_none_or(|next| next > now) {
            return false;
        }
        let doubled = self.pause.map_or(INITIAL, |pause| pause * 2).min(LONGEST);
        // One tenth more or less, of the pause before; never below the doubled one, so that a router counts on it.
        let base = self.pause.unwrap_or(INITIAL).min(LONGEST);
        let pause = doubled - base / 10 + random.between(Duration::ZERO, base / 5);
        self.pause = Some(pause);
        self.next = Some(now + pause);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_7559_2_solicitations_become_rarer_up_to_once_an_hour_and_never_end() {
        let mut random = Random::new([1; 32]);
        let start = Instant::now();
        let mut search = Solicitation::default();
        search.start(start, &mut random);
        let first = search.deadline().unwrap();
        assert!(first <= start + MAX_RTR_SOLICITATION_DELAY);
        let mut now = first;
        let mut pauses = Vec::new();
        for _ in 0..20 {
            assert!(search.is_due(now, &mut random));
            let next = search.deadline().unwrap();
            pauses.push((next - now).as_secs_f64());
            now = next;
        }
        assert!((3.6..=4.4).contains(&pauses[0]), "{pauses:?}");
        for pair in pauses[..9].windows(2) {
            assert!((1.85..=2.15).contains(&(pair[1] / pair[0])), "{pauses:?}");
        }
        assert!(pauses[12..].iter().all(|pause| (3240.0..=3960.0).contains(pause)), "{pauses:?}");
        search.stop();
        assert_eq!(search.deadline(), None);
        assert!(!search.is_due(now, &mut random));
    }
}

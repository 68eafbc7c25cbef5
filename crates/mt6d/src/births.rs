//! When lanes are born and when they die (docs/protocol.md, "Lanes").
//!
//! Births are a Poisson process: when the next comes tells nothing of the lanes before it. Lives are drawn apart from that,
//! so no death marks a birth. Only a lane that would leave nobody alive before the next is born lives on until after that,
//! by a time that is drawn as well.

use crate::id::LaneId;
use crate::kdf::prf;

/// Gaps between births are cut at so many times their mean, by taking what is left over.
const LONGEST_GAP: u64 = 5;
/// Lives overlap by a quarter of the mean life, but no more than this, in milliseconds.
const LONGEST_OVERLAP: i64 = 10_000;
/// One, in the fixed point of [`exponential`].
const ONE: u64 = 1 << 16;
/// The natural logarithm of two, likewise.
const LN_2: u64 = 45_426;

/// A lane's time, on the session clock in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// Which lane.
    pub lane: LaneId,
    /// From when on it is in use; the first has always been.
    pub birth: i64,
    /// Until when.
    pub death: i64,
}

/// Draws the lanes of a session, one after the other.
#[derive(Clone)]
pub struct Births {
    key: [u8; 32],
    /// The mean life.
    interval: i64,
    /// The mean time from one birth to the next.
    gap: u64,
    next: LaneId,
    birth: i64,
    /// When all are dead that were drawn.
    last_death: i64,
}

impl Births {
    /// Of a session with this schedule key, whose lanes live for `interval_ms` and `lanes` at a time on average.
    pub fn new(key: [u8; 32], interval_ms: u64, lanes: u8) -> Self {
        let interval = i64::try_from(interval_ms).expect("intervals are at most an hour");
        assert!(interval_ms >= u64::from(lanes) && lanes >= 1, "an interval and at least one lane");
        Births {
            key,
            interval,
            gap: interval_ms / u64::from(lanes),
            next: LaneId::FIRST,
            birth: 0,
            last_death: 0,
        }
    }

    /// When the lane is born that [`Births::draw`] draws next.
    pub fn next_birth(&self) -> i64 {
        if self.next == LaneId::FIRST { i64::MIN } else { self.birth }
    }

    /// Draws the next lane.
    pub fn draw(&mut self) -> Life {
        let out = prf(&self.key, &[b"lane", &self.next.0.to_be_bytes()]);
        let draw = |at: usize| u64::from_be_bytes(out[at..at + 8].try_into().expect("eight bytes"));
        let life = self.interval / 2 + (draw(0) % self.interval as u64) as i64;
        let gap = self.gap * (exponential(draw(8)) % (LONGEST_GAP * ONE)) / ONE;
        let overlap = (self.interval / 4).min(LONGEST_OVERLAP);
        let margin = overlap + (draw(16) % self.interval as u64) as i64;

        let (lane, birth) = (self.next, self.next_birth());
        let mut death = self.birth.saturating_add(life);
        self.next = self.next.next();
        self.birth = self.birth.saturating_add(gap as i64);
        if death.max(self.last_death) < self.birth.saturating_add(overlap) {
            death = self.birth.saturating_add(margin);
        }
        self.last_death = self.last_death.max(death);
        Life { lane, birth, death }
    }
}

/// `-ln((x + 1) / 2^64)` in units of 2^-16, in integers alone: both ends must agree on every bit.
pub(crate) fn exponential(x: u64) -> u64 {
    let y = u128::from(x) + 1;
    let whole = y.ilog2();
    if whole == 64 {
        return 0;
    }
    // The fraction of the binary logarithm, a bit with each squaring.
    let mut mantissa = y << (63 - whole);
    let mut fraction = 0;
    for _ in 0..16 {
        mantissa = (mantissa * mantissa) >> 63;
        let bit = mantissa >> 64;
        mantissa >>= bit;
        fraction = (fraction << 1) | bit as u64;
    }
    (u64::from(64 - whole) * ONE - fraction) * LN_2 / ONE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All that are born until `until`.
    fn lives(key: [u8; 32], interval: u64, lanes: u8, until: i64) -> Vec<Life> {
        let mut births = Births::new(key, interval, lanes);
        std::iter::from_fn(|| Some(births.draw())).take_while(|life| life.birth <= until).collect()
    }

    #[test]
    fn the_exponential_is_one() {
        assert_eq!((exponential(u64::MAX), exponential(0)), (0, 64 * LN_2));
        for x in [1u64 << 63, 1 << 62, 0x1234_5678_9abc_def0, 3] {
            let exact = -((x as f64 + 1.0) / 2f64.powi(64)).ln() * ONE as f64;
            assert!((exponential(x) as f64 - exact).abs() < exact * 1e-4 + 1.0, "{x}: {exact}");
        }
    }

    #[test]
    fn as_many_are_alive_as_were_asked_for() {
        for (lanes, alive) in [(1, 1.7), (2, 2.5), (3, 3.4), (4, 4.3), (8, 8.4), (16, 16.7)] {
            let until = 20_000_000;
            let lives = lives([7; 32], 10_000, lanes, until);
            let sum: i64 = lives.iter().map(|l| l.death.min(until) - l.birth.max(0)).sum();
            let mean = sum as f64 / until as f64;
            assert!((mean - alive).abs() < 0.25, "{lanes}: {mean}");
        }
    }

    proptest! {
        #[test]
        fn one_at_least_is_alive_and_births_come_in_order(
            key: [u8; 32], interval in 1_000u64..100_000, lanes in 1u8..=16,
        ) {
            let until = interval as i64 * 100;
            let lives = lives(key, interval, lanes, until);
            let overlap = (interval as i64 / 4).min(LONGEST_OVERLAP);
            for (at, life) in lives.iter().enumerate().skip(1) {
                let earlier = &lives[..at];
                prop_assert!(earlier[at - 1].birth <= life.birth);
                let last = earlier.iter().map(|l| l.death).max().expect("the first");
                prop_assert!(last >= life.birth + overlap, "{life:?}: all others are dead");
                prop_assert!(life.death >= life.birth + interval as i64 / 2);
                let longest = LONGEST_GAP as i64 * (interval as i64 / i64::from(lanes)) + overlap + interval as i64;
                prop_assert!(life.death <= life.birth + longest.max(interval as i64 * 3 / 2), "{life:?}");
            }
        }
    }
}

//! The rates of an adaptive shape: each lane is given a class at its birth, and keeps it until its death.
//!
//! Of three lanes one, by chance, is given the class that demand asks for, and two are given any class, by chance alone. So who
//! compares two lanes compares in eight of nine cases at least one that knows nothing of the traffic, whatever that is. That
//! bounds what he learns (docs/protocol.md, "Shape").

use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;

use super::SIZE;
use super::budget::Budget;
use crate::config::Daily;
use crate::time::Time;

/// How many classes there are; each has four times the rate of the one below.
pub(crate) const CLASSES: usize = 3;
/// The middle class has so many times the rate that the half of the budget which comes in a day allows on average.
const MIDDLE: u64 = 2;
/// One of so many lanes is given the class that is asked for.
const ASKED: u64 = 3;
/// Of the others so many are given each class: without traffic a little less is spent than comes in.
const ANY: [u64; CLASSES] = [22, 9, 1];
/// The class that is asked for carries at least so many quarters of what was to be sent.
const HEADROOM: u64 = 6;
/// Demand is what is to be sent in a second, as a moving average of which an eighth is of the last one.
const SECOND: Duration = Duration::from_secs(1);
const AVERAGE: u64 = 8;

impl Daily {
    /// Bytes per day that an end sends on average which has nothing to carry.
    pub fn idle(self) -> u64 {
        let rate = |class: usize| MIDDLE as f64 * 4f64.powi(class as i32 - 1);
        let any: f64 = ANY.iter().enumerate().map(|(class, lanes)| *lanes as f64 * rate(class)).sum();
        let any = any / ANY.iter().sum::<u64>() as f64;
        let share = (rate(0) + (ASKED - 1) as f64 * any) / ASKED as f64;
        (self.bytes() as f64 / 2.0 * share) as u64
    }
}

/// Draws the classes.
pub(crate) struct Classes {
    budget: Arc<Budget>,
    rng: ChaCha20Rng,
    /// Datagrams that were to be sent since then.
    asked: u64,
    since: Time,
    /// Datagrams in [`AVERAGE`] seconds.
    demand: u64,
}

impl Classes {
    pub(crate) fn new(budget: Arc<Budget>, rng: ChaCha20Rng, now: Time) -> Self {
        Classes { budget, rng, asked: 0, since: now, demand: 0 }
    }

    /// A datagram is to be sent, whether or not there is room for it.
    pub(crate) fn ask(&mut self, datagrams: u64, now: Time) {
        self.pass(now);
        self.asked += datagrams;
    }

    /// The rate of all lanes together, in bytes per second, if all were of the class that a lane is given which is born now
    /// and lives for `life`. `alive`: lanes that are alive on average, in thousandths.
    pub(crate) fn draw(&mut self, alive: u64, life: Duration, now: Time) -> u64 {
        self.pass(now);
        let (which, any) = (self.rng.next_u64() % ASKED, self.rng.next_u64() % ANY.iter().sum::<u64>());
        let class = if which == 0 {
            self.wanted()
        } else {
            usize::from(any >= ANY[0]) + usize::from(any >= ANY[0] + ANY[1])
        };
        let cost = |class| self.rate(class) * life.as_millis() as u64 / alive;
        let class =
            (1..=class).rev().find(|class| self.budget.spend(cost(*class), now)).unwrap_or_else(|| {
                self.budget.owe(cost(0), now);
                0
            });
        self.rate(class)
    }

    /// The lowest class that carries what there is to send, or the highest.
    fn wanted(&self) -> usize {
        let bytes = self.demand * HEADROOM * u64::from(SIZE) / (4 * AVERAGE);
        (0..CLASSES - 1).find(|class| self.rate(*class) >= bytes).unwrap_or(CLASSES - 1)
    }

    /// The rate of the lowest class, in bytes per second of all lanes.
    pub(crate) fn lowest(&self) -> u64 {
        self.rate(0)
    }

    /// What is left of the budget, in bytes.
    pub(crate) fn budget_left(&self, now: Time) -> u64 {
        self.budget.left(now)
    }

    fn rate(&self, class: usize) -> u64 {
        (self.budget.mean_rate() * MIDDLE / 4) << (2 * class)
    }

    fn pass(&mut self, now: Time) {
        let mut seconds = 0;
        while now.since(self.since) >= SECOND && seconds < 60 {
            self.demand += std::mem::take(&mut self.asked);
            self.demand -= self.demand / AVERAGE;
            self.since = self.since + SECOND;
            seconds += 1;
        }
        if seconds == 60 {
            (self.demand, self.since) = (0, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    const LIFE: Duration = Duration::from_secs(10);
    const ALIVE: u64 = 3_000;

    fn at(s: u64) -> Time {
        Time::from_micros(1_000_000_000 + s * 1_000_000)
    }

    fn classes() -> Classes {
        let budget = Arc::new(Budget::new(Daily::default()));
        Classes::new(budget, ChaCha20Rng::from_seed([1; 32]), at(0))
    }

    /// What lanes were given that were born in this time, three in ten seconds, with so many datagrams in each second.
    fn rates(classes: &mut Classes, seconds: std::ops::Range<u64>, datagrams: u64) -> Vec<u64> {
        let mut rates = Vec::new();
        for second in seconds {
            classes.ask(datagrams, at(second));
            if second % 3 == 0 {
                rates.push(classes.draw(ALIVE, LIFE, at(second)));
            }
        }
        rates
    }

    #[test]
    fn classes_follow_demand_and_chance() {
        let mut classes = classes();
        let (lowest, highest) = (classes.rate(0), classes.rate(CLASSES - 1));
        let idle = rates(&mut classes, 0..3_000, 0);
        let share =
            |rates: &[u64], of| rates.iter().filter(|rate| **rate == of).count() as f64 / rates.len() as f64;
        let busy = rates(&mut classes, 3_000..6_000, 2_000);
        // One in three more than by chance alone.
        assert!(share(&idle, lowest) > 0.7 && share(&idle, highest) < 0.06, "{idle:?}");
        assert!((0.25..0.45).contains(&share(&busy, highest)), "{busy:?}");
        let after = rates(&mut classes, 6_100..9_100, 0);
        assert!(share(&after, lowest) > 0.7, "{after:?}");
    }

    /// The rates tell whether the middle class is asked for in no more lanes than these that heed it.
    #[test]
    fn two_of_three_lanes_know_nothing_of_the_traffic() {
        let mut classes = classes();
        let rates = [0, 100].map(|datagrams| {
            let begin = 10_000 * (datagrams + 1);
            rates(&mut classes, begin + 60..begin + 9_060, datagrams)
        });
        let all = [0, 1, 2].map(|class| classes.rate(class));
        let share =
            |of, rates: &[u64]| rates.iter().filter(|rate| **rate == of).count() as f64 / rates.len() as f64;
        let differ: f64 = all.iter().map(|of| (share(*of, &rates[0]) - share(*of, &rates[1])).abs()).sum();
        assert!((0.28..0.38).contains(&(differ / 2.0)), "{differ}");
    }

    #[test]
    fn a_budget_holds_whatever_is_asked_for() {
        let mut classes = classes();
        for day in 0..3 {
            let rates = rates(&mut classes, day * 86_400..(day + 1) * 86_400, 100_000);
            let bytes: u64 = rates.iter().map(|rate| rate * LIFE.as_secs() * 1_000 / ALIVE).sum();
            assert!(bytes <= Daily::default().bytes(), "{bytes}");
            assert!(bytes > Daily::default().bytes() / 3, "{bytes}");
        }
    }
}

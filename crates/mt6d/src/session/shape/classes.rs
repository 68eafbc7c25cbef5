//! The rates of an adaptive shape: each lane is given a class at its birth, and keeps it until its death.
//!
//! Demand shows in the classes of lanes that are born after it, and not at once: which class it is is a matter of chance,
//! too, so that lanes of one pair differ as lanes of others do.

use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;

use super::SIZE;
use super::budget::Budget;
use crate::time::Time;

/// How many classes there are; each has a quarter of the rate of the next.
pub(crate) const CLASSES: u32 = 4;
/// The highest class has so many times the rate that the half of the budget which comes in a day allows on average; so the
/// lowest takes a quarter of that.
const TOP: u64 = 16;
/// The class that is wanted carries at least so many times what was to be sent.
const HEADROOM: u64 = 2;
/// Demand is what was to be sent in a second; of that a tenth is forgotten in each that follows.
const SECOND: Duration = Duration::from_secs(1);

/// Draws the classes.
pub(crate) struct Classes {
    budget: Arc<Budget>,
    rng: ChaCha20Rng,
    /// Datagrams that were to be sent since then.
    asked: u64,
    since: Time,
    /// Datagrams per second.
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
        let wanted = self.demand.max(self.asked) * HEADROOM * u64::from(SIZE);
        let class = (0..CLASSES - 1).find(|class| self.rate(*class) >= wanted).unwrap_or(CLASSES - 1);
        // One in four is of the class above or below.
        let class = match self.rng.next_u64() % 8 {
            0 => class.saturating_sub(1),
            1 => (class + 1).min(CLASSES - 1),
            _ => class,
        };
        let cost = |class| self.rate(class) * life.as_millis() as u64 / alive;
        let class =
            (1..=class).rev().find(|class| self.budget.spend(cost(*class), now)).unwrap_or_else(|| {
                self.budget.owe(cost(0), now);
                0
            });
        self.rate(class)
    }

    /// The rate of the lowest class, in bytes per second of all lanes.
    pub(crate) fn lowest(&self) -> u64 {
        self.rate(0)
    }

    /// What is left of the budget, in bytes.
    pub(crate) fn budget_left(&self, now: Time) -> u64 {
        self.budget.left(now)
    }

    fn rate(&self, class: u32) -> u64 {
        (self.budget.mean_rate() * TOP) >> (2 * (CLASSES - 1 - class))
    }

    fn pass(&mut self, now: Time) {
        let mut seconds = 0;
        while now.since(self.since) >= SECOND && seconds < 60 {
            self.demand = (self.demand * 9 / 10).max(std::mem::take(&mut self.asked));
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
    use crate::config::Daily;

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
        let idle = rates(&mut classes, 0..300, 0);
        assert!(idle.iter().filter(|rate| **rate == lowest).count() > idle.len() * 3 / 4, "{idle:?}");
        assert!(idle.iter().any(|rate| *rate > lowest), "not even by chance");
        let busy = rates(&mut classes, 300..360, 2_000);
        assert!(busy.iter().filter(|rate| **rate == highest).count() > busy.len() / 2, "{busy:?}");
        let after = rates(&mut classes, 400..700, 0);
        assert!(after.iter().filter(|rate| **rate == lowest).count() > after.len() / 2, "{after:?}");
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

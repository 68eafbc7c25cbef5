//! A shape: what leaves, and when, has nothing to do with what there is to carry (docs/protocol.md, "Shape").
//!
//! Each lane has [`Slots`] from its birth to its death. In each slot one datagram of [`SIZE`] leaves: a control message, a
//! packet out of the [`Queue`], or nothing but padding. What of these it is changes neither its size nor its time, nor those
//! of any other: `the_wire_is_the_same_whatever_is_carried` runs sessions with and without traffic and compares.

mod budget;
mod classes;
mod delays;
mod queue;
mod slots;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::births::mean_alive;
use crate::config::{Rate, Shape};
use crate::control::Control;
use crate::host_interface::HostInterface;
use crate::time::Time;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

pub(crate) use budget::Budget;
use classes::Classes;
pub use delays::Delay;
use queue::Queue;
pub(crate) use queue::SIZE;
pub(super) use queue::{ROOM, is_expedited};
use slots::Slots;

/// Control messages that may wait, of either kind; the oldest make room, since what matters is sent again.
const CONTROLS: usize = 64;
/// What a session with a shape has.
pub(super) struct Shaping {
    shape: Shape,
    pace: Pace,
    /// How many lanes are alive on average, in thousandths.
    alive: u64,
    pub(super) slots: Slots,
    pub(super) queue: Queue,
    /// Control messages: those that leave at times of the session's own, and those that leave because of what is carried.
    /// The former come first: what is measured with them, and so when lanes are born, has nothing to do with what is carried.
    pub(super) controls: [VecDeque<Vec<u8>>; 2],
    pub(super) datagrams: u64,
    pub(super) padding: u64,
}

/// At which rate lanes send.
enum Pace {
    /// All at one.
    Constant(Rate),
    /// Each at one of its own.
    Adaptive(Box<Classes>),
}

/// What a shape does, as the status shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeStatus {
    /// What was agreed on.
    pub shape: Shape,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Those that carried nothing.
    pub padding: u64,
    /// Datagrams that wait.
    pub waiting: usize,
    /// How long packets have waited for a slot within the last minute; none if none have.
    pub delay: Option<Delay>,
    /// How much later than they were due slots were seen within the last minute; none if there were none.
    pub late: Option<Delay>,
    /// Slots so late that they were put off.
    pub put_off: u64,
    /// What is left of the budget now, in bytes, where there is one.
    pub budget: Option<u64>,
}

impl Shaping {
    /// As the terms want it; none if they want none. `budget` is what the peer has spent so far.
    pub(super) fn new(
        shape: Shape,
        lanes: u8,
        budget: &mut Option<Arc<Budget>>,
        now: Time,
        host: &mut HostInterface,
    ) -> Option<Self> {
        let mut seed = [0; 32];
        let (pace, rate) = match shape {
            Shape::None => return None,
            Shape::Constant(rate) => (Pace::Constant(rate), rate.bytes().into()),
            Shape::Adaptive(daily) => {
                let budget = budget.get_or_insert_with(|| Arc::new(Budget::new(daily))).clone();
                host.fresh().fill_bytes(&mut seed);
                let classes = Classes::new(budget, ChaCha20Rng::from_seed(seed), now);
                let rate = classes.lowest();
                (Pace::Adaptive(Box::new(classes)), rate)
            }
        };
        host.fresh().fill_bytes(&mut seed);
        Some(Shaping {
            shape,
            pace,
            alive: mean_alive(lanes),
            slots: Slots::new(seed, now),
            queue: Queue::new(rate, now),
            controls: Default::default(),
            datagrams: 0,
            padding: 0,
        })
    }

    /// What was to be sent since the last call counts as demand: to be called once a second or more often.
    pub(super) fn note_demand(&mut self, now: Time) {
        if let Pace::Adaptive(classes) = &mut self.pace {
            classes.ask(self.queue.asked(), now);
        }
    }

    /// Mean time between two slots of a lane that is born now and lives for `life`.
    pub(super) fn gap(&mut self, life: Duration, now: Time) -> Duration {
        let rate = match &mut self.pace {
            Pace::Constant(rate) => rate.bytes().into(),
            Pace::Adaptive(classes) => {
                let rate = classes.draw(self.alive, life, now);
                self.queue.set_rate(rate);
                rate
            }
        };
        // Of all lanes together, on average.
        Duration::from_micros(u64::from(SIZE) * self.alive * 1_000 / rate)
    }

    /// Mean time between two slots of all lanes, at the lowest rate.
    pub(super) fn longest_gap(&self) -> Duration {
        let rate = match &self.pace {
            Pace::Constant(rate) => rate.bytes().into(),
            Pace::Adaptive(classes) => classes.lowest(),
        };
        Duration::from_micros(u64::from(SIZE) * 1_000_000 / rate)
    }

    /// Keeps a control message until there is a slot.
    pub(super) fn control(&mut self, id: u32, message: &Control) {
        let is_of_traffic = matches!(message, Control::Context { .. } | Control::ContextKnown { .. });
        let controls = &mut self.controls[usize::from(is_of_traffic)];
        if controls.len() == CONTROLS {
            controls.pop_front();
        }
        let mut bytes = vec![0; message.length()];
        message.encode(id, &mut bytes);
        controls.push_back(bytes);
    }

    /// What it does.
    pub(super) fn status(&self, now: Time) -> ShapeStatus {
        ShapeStatus {
            shape: self.shape,
            datagrams: self.datagrams,
            padding: self.padding,
            waiting: self.queue.len(),
            delay: self.queue.delays.last_minute(now),
            late: self.slots.late.last_minute(now),
            put_off: self.slots.put_off,
            budget: match &self.pace {
                Pace::Constant(_) => None,
                Pace::Adaptive(classes) => Some(classes.budget_left(now)),
            },
        }
    }
}

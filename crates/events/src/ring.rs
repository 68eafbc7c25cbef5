//! The last events, for whoever asks.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use control::event::{Event, Events};

use crate::limit::Limits;

/// How many are kept.
pub const KEPT: usize = 1_000;

struct Ring {
    /// Names this run: when it began, in microseconds of Unix time.
    run: u64,
    last: u64,
    events: VecDeque<Event>,
    limits: Limits,
}

fn ring() -> MutexGuard<'static, Ring> {
    static RING: OnceLock<Mutex<Ring>> = OnceLock::new();
    let new = || {
        let run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        Mutex::new(Ring { run, last: 0, events: VecDeque::new(), limits: Limits::default() })
    };
    RING.get_or_init(new).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an event of this kind may pass now.
pub(crate) fn may_pass(event: &Event) -> bool {
    ring().limits.may_pass(event, Instant::now())
}

/// Keeps an event; it has a number then.
pub(crate) fn keep(mut event: Event) -> Event {
    let mut ring = ring();
    ring.last += 1;
    event.number = ring.last;
    let left_out = ring.limits.take_left_out(&event);
    if left_out > 0 {
        event.fields.insert("left_out".to_owned(), left_out.into());
    }
    if ring.events.len() == KEPT {
        ring.events.pop_front();
    }
    ring.events.push_back(event.clone());
    event
}

/// Those that came after the one with this number.
pub fn since(number: u64) -> Events {
    let ring = ring();
    let new = ring.events.iter().filter(|event| event.number > number);
    Events { run: ring.run, events: new.cloned().collect() }
}

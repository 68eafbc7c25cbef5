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
    /// Whether a thread waits for the time of what is held.
    is_waited_for: bool,
}

fn ring() -> MutexGuard<'static, Ring> {
    static RING: OnceLock<Mutex<Ring>> = OnceLock::new();
    let new = || {
        let run = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        Mutex::new(Ring {
            run,
            last: 0,
            events: VecDeque::new(),
            limits: Limits::default(),
            is_waited_for: false,
        })
    };
    RING.get_or_init(new).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether an event of this kind may pass now. If not, `release` gets it, or a newer one in its place, in a while.
pub(crate) fn may_pass(event: &Event, release: fn(Event, u64)) -> bool {
    let mut ring = ring();
    let may_pass = ring.limits.may_pass(event, Instant::now());
    if !may_pass && !std::mem::replace(&mut ring.is_waited_for, true) {
        // Only while something is held: it is confined as is the thread that this happened to.
        let thread = std::thread::Builder::new().name("held".into()).spawn(move || wait(release));
        ring.is_waited_for = thread.is_ok();
    }
    may_pass
}

fn wait(release: fn(Event, u64)) {
    loop {
        let now = Instant::now();
        let (due, next) = {
            let mut ring = ring();
            let (due, next) = ring.limits.due(now);
            ring.is_waited_for = next.is_some();
            (due, next)
        };
        due.into_iter().for_each(|(event, left_out)| release(event, left_out));
        let Some(next) = next else { return };
        std::thread::sleep(next.saturating_duration_since(now));
    }
}

/// All that is held, with how many were left out before each.
pub(crate) fn take_held() -> Vec<(Event, u64)> {
    ring().limits.all()
}

/// Keeps an event; it has a number then.
pub(crate) fn keep(mut event: Event) -> Event {
    let mut ring = ring();
    ring.last += 1;
    event.number = ring.last;
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

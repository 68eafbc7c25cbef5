//! Processor time: of one thread, in which all of the simulation runs.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, Sleep};

/// How far it is ahead of time at the most, beside what it does last.
const AHEAD: Duration = Duration::from_millis(20);

/// One processor, which does one thing after the other.
#[derive(Debug, Default)]
pub(crate) struct Processor {
    used: Cell<Duration>,
    /// Until when it is busy with what it was given.
    busy: Cell<Option<Instant>>,
}

impl Processor {
    /// How long it has worked.
    pub(crate) fn used(&self) -> Duration {
        self.used.get()
    }

    /// Until what it was given is done.
    pub(crate) async fn done(&self) {
        if let Some(until) = self.busy.get() {
            tokio::time::sleep_until(until).await;
        }
    }

    /// Until it is free.
    pub(crate) async fn free(&self) {
        while let Some(until) = self.busy.get().filter(|until| *until > Instant::now()) {
            tokio::time::sleep_until(until).await;
        }
    }

    fn note(&self, time: Duration) {
        self.used.set(self.used.get() + time);
        let now = Instant::now();
        self.busy.set(Some(self.busy.get().map_or(now, |until| until.max(now)) + time));
    }
}

/// What is done, with the time that it takes.
pub(crate) fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let begin = thread_time();
    let result = what();
    (result, thread_time().saturating_sub(begin))
}

fn thread_time() -> Duration {
    // A clock that every Linux has.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// A future whose work is done by a processor.
pub(crate) struct On<F> {
    processor: Rc<Processor>,
    future: Pin<Box<F>>,
    /// What it waits for if the processor is busy when it could go on.
    turn: Pin<Box<Sleep>>,
}

impl<F: Future> On<F> {
    pub(crate) fn new(processor: &Rc<Processor>, future: F) -> Self {
        let turn = Box::pin(tokio::time::sleep(Duration::ZERO));
        On { processor: Rc::clone(processor), future: Box::pin(future), turn }
    }
}

impl<F: Future> Future for On<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Of thousands that could go on at once, some milliseconds' worth do, and the others later: what they answer is not all
        // in memory at once.
        if let Some(until) = self.processor.busy.get().filter(|until| *until > Instant::now() + AHEAD) {
            self.turn.as_mut().reset(until);
            if self.turn.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        let (polled, time) = timed(|| self.future.as_mut().poll(context));
        self.processor.note(time);
        polled
    }
}

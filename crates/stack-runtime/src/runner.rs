//! The thread that owns the device.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use linux::event::{Events, Interest, Poller};
use stack::security::Security;

use crate::device::Device;
use crate::state::Shared;

/// Frames that are received, and that are sent, before the callers get their turn at the host.
const BATCH: usize = 64;
/// Batches that are sent after the end.
const LAST_BATCHES: usize = 64;
/// When a device that has no room is asked again.
const RETRY: Duration = Duration::from_millis(1);
const WAKER: u64 = 0;
const DEVICE: u64 = 1;

/// Runs until the stack stops or the device fails, and tells all who wait.
pub(crate) fn run<S: Security>(mut device: impl Device, poller: &Poller, shared: &Arc<Shared<S>>) {
    let ending = Ending(shared);
    let (kind, message) = match drive(&mut device, poller, shared) {
        Ok(()) => (io::ErrorKind::NotConnected, "the stack has been stopped".to_owned()),
        Err(error) => (error.kind(), format!("the device has failed: {error}")),
    };
    shared.lock().ended = Some((kind, message));
    drop(ending);
}

/// Adds what the thread sleeps on.
pub(crate) fn poller<S: Security>(device: &impl Device, shared: &Shared<S>) -> io::Result<Poller> {
    let poller = Poller::new().map_err(io::Error::other)?;
    poller.add(shared.waker(), WAKER, Interest::Readable).map_err(io::Error::other)?;
    device.register(&poller, DEVICE)?;
    Ok(poller)
}

/// Nobody waits for a thread that is gone, by a panic of a device either.
struct Ending<'a, S: Security>(&'a Shared<S>);

impl<S: Security> Drop for Ending<'_, S> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended.get_or_insert_with(|| (io::ErrorKind::Other, "the stack's thread has failed".to_owned()));
        let waiting = state.take_all();
        drop(state);
        waiting.wake();
    }
}

fn drive<S: Security>(device: &mut impl Device, poller: &Poller, shared: &Shared<S>) -> io::Result<()> {
    let mut events = Events::with_capacity(16);
    let mut received: Vec<Vec<u8>> = vec![Vec::new(); BATCH];
    let mut outgoing = Outgoing { frames: vec![Vec::new(); BATCH], waiting: 0..0 };
    let mut woken: Vec<Waker> = Vec::new();
    loop {
        let now = Instant::now();
        if device.deadline().is_some_and(|deadline| deadline <= now) {
            device.handle_timeout(now)?;
        }
        let mut count = 0;
        while count < BATCH && device.receive(now, &mut received[count])? {
            count += 1;
        }
        let mut state = shared.lock();
        if state.stops {
            // Connections that were closed with the last handle still say so, as far as there is room.
            for _ in 0..LAST_BATCHES {
                if !outgoing.send(device, now)? {
                    break;
                }
                outgoing.fill(|frame| state.host.poll_transmit(now, frame));
                if outgoing.waiting.is_empty() {
                    break;
                }
            }
            return device.flush(now);
        }
        state.asleep = false;
        for frame in &received[..count] {
            state.host.receive(now, frame);
        }
        if state.host.deadline().is_some_and(|deadline| deadline <= now) {
            state.host.handle_timeout(now);
        }
        state.take_woken(now, &mut woken);
        outgoing.fill(|frame| state.host.poll_transmit(now, frame));
        let deadline = state.host.deadline();
        let may_have_more = count == BATCH || outgoing.is_full();
        state.asleep = !may_have_more;
        drop(state);

        woken.drain(..).for_each(Waker::wake);
        let all_sent = outgoing.send(device, now)?;
        device.flush(now)?;
        let timeout = if may_have_more && all_sent {
            // Only to hear the waker, and give way to nobody.
            continue;
        } else if all_sent {
            let earliest = [deadline, device.deadline()].into_iter().flatten().min();
            earliest.map(|earliest| earliest.saturating_duration_since(Instant::now()))
        } else {
            Some(RETRY)
        };
        poller.wait(&mut events, timeout).map_err(io::Error::other)?;
        if events.iter().any(|event| event.token == WAKER) {
            shared.waker().drain();
        }
    }
}

/// Frames that the host has handed over, and the device is to send.
struct Outgoing {
    frames: Vec<Vec<u8>>,
    waiting: std::ops::Range<usize>,
}

impl Outgoing {
    /// Takes frames, if those before have all been sent.
    fn fill(&mut self, mut next: impl FnMut(&mut Vec<u8>) -> bool) {
        if !self.waiting.is_empty() {
            return;
        }
        self.waiting = 0..0;
        while self.waiting.end < BATCH && next(&mut self.frames[self.waiting.end]) {
            self.waiting.end += 1;
        }
    }

    fn is_full(&self) -> bool {
        self.waiting.len() == BATCH
    }

    /// Sends as many as there is room for; returns whether that is all.
    fn send(&mut self, device: &mut impl Device, now: Instant) -> io::Result<bool> {
        while let Some(next) = self.waiting.clone().next() {
            if !device.send(now, &self.frames[next])? {
                return Ok(false);
            }
            self.waiting.start += 1;
        }
        Ok(true)
    }
}

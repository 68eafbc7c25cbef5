//! The thread that owns the device.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use linux::event::{Events, Interest, Poller};
use stack::host::Host;
use stack::security::Security;
use wire::virtio_net;

use crate::device::Device;
use crate::state::Shared;

/// Frames that are received, and that are sent, before the callers get their turn at the host.
const BATCH: usize = 64;
/// Octets after which a batch is full as well: large packets are then still in the processor's cache when they are copied on,
/// and no caller waits for long.
const BATCH_OCTETS: usize = 256 * 1024;
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
    let offloads = device.offloads();
    let mut received = vec![(virtio_net::Header::NONE, Vec::new()); BATCH];
    let mut outgoing = Outgoing { frames: received.clone(), waiting: 0..0, is_full: false, offloads };
    let mut woken: Vec<Waker> = Vec::new();
    loop {
        let now = Instant::now();
        if device.deadline().is_some_and(|deadline| deadline <= now) {
            device.handle_timeout(now)?;
        }
        let (mut count, mut octets) = (0, 0);
        while !is_batch(count, octets) {
            let (header, frame) = &mut received[count];
            let Some(of_this) = device.receive_offloaded(now, frame)? else { break };
            *header = of_this;
            count += 1;
            octets += frame.len();
        }
        let mut state = shared.lock();
        if state.stops {
            // Connections that were closed with the last handle still say so, as far as there is room.
            for _ in 0..LAST_BATCHES {
                if !outgoing.send(device, now)? {
                    break;
                }
                outgoing.fill(now, &mut state.host);
                if outgoing.waiting.is_empty() {
                    break;
                }
            }
            return device.flush(now);
        }
        state.asleep = false;
        for (header, frame) in &mut received[..count] {
            if offloads {
                state.host.receive_offloaded(now, header, frame);
            } else {
                state.host.receive(now, frame);
            }
        }
        if state.host.deadline().is_some_and(|deadline| deadline <= now) {
            state.host.handle_timeout(now);
        }
        state.take_woken(now, &mut woken);
        outgoing.fill(now, &mut state.host);
        let deadline = state.host.deadline();
        let may_have_more = is_batch(count, octets) || outgoing.is_full;
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

fn is_batch(frames: usize, octets: usize) -> bool {
    frames == BATCH || octets >= BATCH_OCTETS
}

/// Frames that the host has handed over, and the device is to send.
struct Outgoing {
    frames: Vec<(virtio_net::Header, Vec<u8>)>,
    waiting: std::ops::Range<usize>,
    /// There may be more.
    is_full: bool,
    offloads: bool,
}

impl Outgoing {
    /// Takes frames, if those before have all been sent.
    fn fill<S: Security>(&mut self, now: Instant, host: &mut Host<S>) {
        if !self.waiting.is_empty() {
            return;
        }
        (self.waiting, self.is_full) = (0..0, false);
        let mut octets = 0;
        while !self.is_full {
            let (header, frame) = &mut self.frames[self.waiting.end];
            let next = if self.offloads {
                host.poll_transmit_offloaded(now, frame)
            } else {
                host.poll_transmit(now, frame).then_some(virtio_net::Header::NONE)
            };
            let Some(next) = next else { break };
            *header = next;
            self.waiting.end += 1;
            octets += frame.len();
            self.is_full = is_batch(self.waiting.end, octets);
        }
    }

    /// Sends as many as there is room for; returns whether that is all.
    fn send(&mut self, device: &mut impl Device, now: Instant) -> io::Result<bool> {
        while let Some(next) = self.waiting.clone().next() {
            let (header, frame) = &self.frames[next];
            if !device.send_offloaded(now, header, frame)? {
                return Ok(false);
            }
            self.waiting.start += 1;
        }
        Ok(true)
    }
}

//! Two devices in memory, connected to each other: no kernel, no privileges.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use linux::event::{Interest, Poller, Waker};
use stack::interface::Medium;
use wire::ethernet::MacAddress;

use super::Device;

/// Frames that wait at an end; there is no room for more.
const MAX_WAITING: usize = 1024;

/// One end.
#[derive(Debug)]
pub struct Pair {
    medium: Medium,
    mtu: usize,
    own: Arc<End>,
    other: Arc<End>,
}

/// What has been sent to an end.
#[derive(Debug)]
struct End {
    waiting: Mutex<Waiting>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

/// Two devices that carry Ethernet frames to each other.
///
/// # Errors
/// When there are no descriptors left.
pub fn pair(mtu: usize) -> io::Result<(Pair, Pair)> {
    let end = || -> io::Result<Arc<End>> {
        let waker = Waker::new().map_err(|error| error.source)?;
        Ok(Arc::new(End { waiting: Mutex::default(), waker }))
    };
    let (a, b) = (end()?, end()?);
    let mac = |last| Medium::Ethernet(MacAddress([2, 0, 0, 0, 0, last]));
    let first = Pair { medium: mac(1), mtu, own: Arc::clone(&a), other: Arc::clone(&b) };
    Ok((first, Pair { medium: mac(2), mtu, own: b, other: a }))
}

impl End {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for Pair {
    fn medium(&self) -> Medium {
        self.medium
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn receive(&mut self, _: Instant, frame: &mut Vec<u8>) -> io::Result<bool> {
        let mut waiting = self.own.lock();
        let Some(next) = waiting.frames.pop_front() else {
            self.own.waker.drain();
            return Ok(false);
        };
        waiting.spare.push(std::mem::replace(frame, next));
        Ok(true)
    }

    fn send(&mut self, _: Instant, frame: &[u8]) -> io::Result<bool> {
        let mut waiting = self.other.lock();
        if waiting.frames.len() >= MAX_WAITING {
            return Ok(false);
        }
        let mut buffer = waiting.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(frame);
        waiting.frames.push_back(buffer);
        if waiting.frames.len() == 1 {
            self.other.waker.wake();
        }
        Ok(true)
    }

    fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        poller.add(&self.own.waker, token, Interest::Readable).map_err(|error| error.source)
    }
}

//! What waits to be sent: frames in buffers that are used again.

use std::collections::VecDeque;

use wire::virtio_net;

/// Frames that wait: what the caller does not fetch is no reason to grow.
const MAX_WAITING: usize = 1024;
/// Buffers kept for later.
const MAX_SPARE: usize = 64;

#[derive(Default)]
pub(super) struct Outbox {
    waiting: VecDeque<(Vec<u8>, virtio_net::Header)>,
    spare: Vec<Vec<u8>>,
}

impl Outbox {
    /// A frame of these parts; returns whether there was room.
    pub(super) fn push<const N: usize>(&mut self, parts: [&[u8]; N]) -> bool {
        if self.waiting.len() >= MAX_WAITING {
            return false;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        for part in parts {
            frame.extend_from_slice(part);
        }
        self.waiting.push_back((frame, virtio_net::Header::NONE));
        true
    }

    /// A frame that is built already, of which the device may have something to do; its buffer is exchanged for another.
    /// Returns whether there was room.
    pub(super) fn take(&mut self, frame: &mut Vec<u8>, header: virtio_net::Header) -> bool {
        if self.waiting.len() >= MAX_WAITING {
            return false;
        }
        let other = self.spare.pop().unwrap_or_default();
        self.waiting.push_back((std::mem::replace(frame, other), header));
        true
    }

    /// Puts the next frame into `out`, whose buffer is kept in exchange; returns what the device has to do to it.
    pub(super) fn pop(&mut self, out: &mut Vec<u8>) -> Option<virtio_net::Header> {
        let (frame, header) = self.waiting.pop_front()?;
        let old = std::mem::replace(out, frame);
        if self.spare.len() < MAX_SPARE && old.capacity() > 0 {
            self.spare.push(old);
        }
        Some(header)
    }
}

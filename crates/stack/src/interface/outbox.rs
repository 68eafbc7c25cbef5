//! What waits to be sent: frames in buffers that are used again.

use std::collections::VecDeque;

/// Frames that wait: what the caller does not fetch is no reason to grow.
const MAX_WAITING: usize = 1024;
/// Buffers kept for later.
const MAX_SPARE: usize = 64;

#[derive(Default)]
pub(super) struct Outbox {
    waiting: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
}

impl Outbox {
    /// A frame of these parts; returns whether there was room.
    pub(super) fn push(&mut self, parts: [&[u8]; 2]) -> bool {
        if self.waiting.len() >= MAX_WAITING {
            return false;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        for part in parts {
            frame.extend_from_slice(part);
        }
        self.waiting.push_back(frame);
        true
    }

    /// Puts the next frame into `out`, whose buffer is kept in exchange.
    pub(super) fn pop(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(frame) = self.waiting.pop_front() else { return false };
        let old = std::mem::replace(out, frame);
        if self.spare.len() < MAX_SPARE && old.capacity() > 0 {
            self.spare.push(old);
        }
        true
    }
}

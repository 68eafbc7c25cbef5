//! Numbers of netfilter queues: for each script, one of TCP and one of all else for each thread.

use linux::queue::{Queue, Socket};

use super::rules::Queues;

/// The first number that we use; low ones are other programs'.
const FIRST: u16 = 21_000;
/// Packets that may wait in a queue.
const LENGTH: u32 = 4096;

/// Which numbers are in use: a slot has those of one script.
#[derive(Debug)]
pub(super) struct Slots {
    threads: u16,
    taken: Vec<bool>,
}

impl Slots {
    /// Of scripts with so many threads each.
    pub(super) fn new(threads: usize) -> Self {
        Self { threads: threads as u16, taken: Vec::new() }
    }

    /// A free slot, the lowest.
    pub(super) fn take(&mut self) -> usize {
        let slot = self.taken.iter().position(|taken| !taken).unwrap_or(self.taken.len());
        self.taken.resize(self.taken.len().max(slot + 1), false);
        self.taken[slot] = true;
        slot
    }

    /// Gives it back.
    pub(super) fn free(&mut self, slot: usize) {
        self.taken[slot] = false;
    }

    /// Its queues.
    pub(super) fn queues(&self, slot: usize) -> Queues {
        let first = FIRST.saturating_add((slot as u16).saturating_mul(2 * self.threads));
        let other = first.saturating_add(self.threads);
        Queues { tcp: first..=other - 1, other: other..=other.saturating_add(self.threads - 1) }
    }

    /// Listens on them: a socket for each thread.
    pub(super) fn listen(&self, slot: usize, fail_open: bool) -> linux::Result<Vec<Socket>> {
        let Queues { tcp, other } = self.queues(slot);
        let queue = |number, segmented| Queue { number, length: LENGTH, fail_open, segmented };
        tcp.zip(other).map(|(tcp, other)| Socket::open(&[queue(tcp, true), queue(other, false)])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_scripts_share_a_queue() {
        let mut slots = Slots::new(2);
        assert_eq!((slots.take(), slots.take()), (0, 1));
        assert_eq!(slots.queues(0), Queues { tcp: 21_000..=21_001, other: 21_002..=21_003 });
        assert_eq!(slots.queues(1).tcp, 21_004..=21_005);
        slots.free(0);
        assert_eq!((slots.take(), slots.take()), (0, 2));
    }
}

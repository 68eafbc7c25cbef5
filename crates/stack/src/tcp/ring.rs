//! A ring of bytes that grows: what a connection has to send, or has received.
//!
//! Bytes may be written behind a gap, as they arrive out of order; who writes so knows what is in the gap.

/// The least allocation, in bytes; larger ones are powers of two.
const LEAST_ALLOCATION: usize = 512;
/// An allocation of at most so many bytes is given back as soon as it is empty: many connections that carry little, each in
/// its turn, then share their memory. Larger ones are kept for what comes next, until [`Ring::release`].
const GIVEN_BACK: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Ring {
    /// A power of two long, or empty.
    storage: Box<[u8]>,
    /// Where the first byte is.
    head: usize,
    len: usize,
}

impl Ring {
    /// Bytes from the first to the end of the last one written, gaps included.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn capacity(&self) -> usize {
        self.storage.len()
    }

    /// Writes `bytes` at `offset` behind the first byte.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        if end > self.storage.len() {
            self.grow(end);
        }
        if bytes.is_empty() {
            return;
        }
        let at = self.place(offset);
        let first = bytes.len().min(self.storage.len() - at);
        let (bytes, wrapped) = bytes.split_at(first);
        self.storage[at..at + first].copy_from_slice(bytes);
        self.storage[..wrapped.len()].copy_from_slice(wrapped);
        self.len = self.len.max(end);
    }

    /// `len` bytes from `offset`, as far as there are so many, in one or two pieces.
    pub(super) fn slices(&self, offset: usize, len: usize) -> (&[u8], &[u8]) {
        let len = len.min(self.len.saturating_sub(offset));
        if len == 0 {
            return (&[], &[]);
        }
        let at = self.place(offset);
        let first = len.min(self.storage.len() - at);
        (&self.storage[at..at + first], &self.storage[..len - first])
    }

    /// Forgets the first `len` bytes.
    pub(super) fn consume(&mut self, len: usize) {
        let len = len.min(self.len);
        self.len -= len;
        if self.len > 0 {
            self.head = self.place(len);
        } else if self.storage.len() <= GIVEN_BACK {
            self.release();
        } else {
            self.head = 0;
        }
    }

    /// Gives the memory back, if there is nothing in it.
    pub(super) fn release(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        }
    }

    fn place(&self, offset: usize) -> usize {
        (self.head + offset) & (self.storage.len() - 1)
    }

    fn grow(&mut self, needed: usize) {
        let mut storage = vec![0; needed.next_power_of_two().max(LEAST_ALLOCATION)].into_boxed_slice();
        let (first, second) = self.slices(0, self.len);
        storage[..first.len()].copy_from_slice(first);
        storage[first.len()..self.len].copy_from_slice(second);
        self.storage = storage;
        self.head = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_as_a_queue(steps in proptest::collection::vec((any::<bool>(), 0usize..9000), 1..60)) {
            let (mut ring, mut model, mut next) = (Ring::default(), VecDeque::new(), 0u8);
            for (write, n) in steps {
                if write {
                    let bytes: Vec<u8> = (0..n).map(|_| { next = next.wrapping_add(1); next }).collect();
                    ring.write(ring.len(), &bytes);
                    model.extend(bytes);
                } else {
                    ring.consume(n);
                    model.drain(..n.min(model.len()));
                }
                prop_assert_eq!(ring.len(), model.len());
                let (a, b) = ring.slices(n / 2, n);
                let expected: Vec<u8> = model.iter().skip(n / 2).take(n).copied().collect();
                prop_assert_eq!([a, b].concat(), expected);
            }
        }
    }

    #[test]
    fn an_empty_ring_keeps_memory_only_where_it_was_large() {
        let mut ring = Ring::default();
        for (written, kept) in [(1, 0), (4096, 0), (4097, 8192), (1, 8192)] {
            ring.write(0, &vec![0; written]);
            ring.consume(written);
            assert_eq!(ring.capacity(), kept, "{written}");
        }
    }

    #[test]
    fn what_is_written_behind_a_gap_stays_there_while_the_ring_grows() {
        let mut ring = Ring::default();
        ring.write(0, &[1; 4000]);
        ring.consume(3000);
        ring.write(5000, &[3; 10]);
        ring.write(1000, &[2; 4000]);
        assert_eq!(ring.slices(4999, 11), (&[2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3][..], &[][..]));
        ring.consume(9999);
        ring.release();
        assert_eq!((ring.len(), ring.capacity()), (0, 0));
    }
}

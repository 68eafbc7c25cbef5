//! Datagrams on their way out, gathered so that the kernel takes many with one call (UDP_SEGMENT).

use std::net::SocketAddrV6;

use wire::ecn::Ecn;

use crate::id::EndpointId;

/// Longest batch: what the kernel takes with UDP_SEGMENT over IPv6.
const BATCH_BYTES: usize = 65_487;
/// Most datagrams in a batch: what all supported kernels take.
const BATCH_SEGMENTS: usize = 64;

/// Datagrams of one endpoint, all of `segment` bytes but the last, which may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// The endpoint to send from.
    pub endpoint: EndpointId,
    /// Where to, for endpoints that are not connected.
    pub to: Option<SocketAddrV6>,
    /// The ECN codepoint of the outer packets.
    pub ecn: Ecn,
    /// Length of each datagram, in bytes.
    pub segment: usize,
    start: usize,
    end: usize,
}

/// Datagrams to send. It keeps its memory when cleared, so that nothing is allocated per packet.
#[derive(Default)]
pub struct Outbox {
    buffer: Vec<u8>,
    used: usize,
    batches: Vec<Batch>,
    /// Batches, from the first, that take no more datagrams.
    sealed: usize,
}

impl Outbox {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Space for a datagram of `size` bytes, to be filled by the caller. What is in it before is arbitrary.
    pub fn datagram(
        &mut self,
        endpoint: EndpointId,
        to: Option<SocketAddrV6>,
        ecn: Ecn,
        size: usize,
    ) -> &mut [u8] {
        let start = self.used;
        self.used += size;
        if self.buffer.len() < self.used {
            self.buffer.resize(self.used.next_power_of_two(), 0);
        }
        match self.batches[self.sealed..].last_mut() {
            Some(last)
                if last.endpoint == endpoint
                    && last.to == to
                    && last.ecn == ecn
                    && size <= last.segment
                    && (last.end - last.start).is_multiple_of(last.segment)
                    && (last.end - last.start) / last.segment < BATCH_SEGMENTS
                    && last.end - last.start + size <= BATCH_BYTES =>
            {
                last.end += size;
            }
            _ => self.batches.push(Batch { endpoint, to, ecn, segment: size, start, end: start + size }),
        }
        &mut self.buffer[start..self.used]
    }

    /// The last datagram goes by itself: it may be lost for its size, and must not take others with it.
    pub(crate) fn isolate_last(&mut self, size: usize) {
        let Some(last) = self.batches.last_mut() else { return };
        let start = last.end - size;
        if start > last.start {
            let alone = Batch { segment: size, start, ..*last };
            last.end = start;
            self.batches.push(alone);
        }
        self.sealed = self.batches.len();
    }

    /// Takes back the datagram that was asked for last.
    pub(crate) fn cancel_last(&mut self, size: usize) {
        self.used -= size;
        if let Some(last) = self.batches.last_mut() {
            last.end -= size;
            if last.end == last.start {
                self.batches.pop();
            }
        }
    }

    /// The batches in order, each with its bytes.
    pub fn batches(&self) -> impl Iterator<Item = (&Batch, &[u8])> {
        self.batches.iter().map(|batch| (batch, &self.buffer[batch.start..batch.end]))
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// Bytes that wait to be sent.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Forgets all, keeps the memory.
    pub fn clear(&mut self) {
        (self.used, self.sealed) = (0, 0);
        self.batches.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sizes_batch_and_a_shorter_one_closes() {
        let mut outbox = Outbox::new();
        let id = EndpointId { slot: 1, serial: 0 };
        for (size, fill) in [(100, 1), (100, 2), (60, 3), (60, 4), (100, 5)] {
            outbox.datagram(id, None, Ecn::NotEct, size).fill(fill);
        }
        let batches: Vec<_> = outbox.batches().map(|(b, bytes)| (b.segment, bytes.len())).collect();
        assert_eq!(batches, [(100, 260), (60, 60), (100, 100)]);
        outbox.cancel_last(100);
        assert_eq!(outbox.batches().count(), 2);
        outbox.clear();
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_probe_goes_by_itself() {
        let mut outbox = Outbox::new();
        let id = EndpointId { slot: 1, serial: 0 };
        for probe in [false, true, false] {
            outbox.datagram(id, None, Ecn::NotEct, 100);
            if probe {
                outbox.isolate_last(100);
            }
        }
        assert_eq!(outbox.batches().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [100, 100, 100]);
    }

    #[test]
    fn a_batch_is_what_the_kernel_takes() {
        let mut outbox = Outbox::new();
        for _ in 0..200 {
            outbox.datagram(EndpointId { slot: 1, serial: 0 }, None, Ecn::NotEct, 1452);
        }
        for _ in 0..200 {
            outbox.datagram(EndpointId { slot: 2, serial: 0 }, None, Ecn::NotEct, 60);
        }
        for (batch, bytes) in outbox.batches() {
            assert!(bytes.len() <= BATCH_BYTES && bytes.len() / batch.segment <= BATCH_SEGMENTS);
        }
        assert_eq!(outbox.batches().map(|(b, bytes)| bytes.len() / b.segment).sum::<usize>(), 400);
    }
}

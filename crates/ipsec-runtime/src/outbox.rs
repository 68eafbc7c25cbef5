//! Datagrams on their way out, gathered so that the kernel takes many with one call (UDP_SEGMENT).

use std::net::{IpAddr, SocketAddr};

use linux::udp::{HostSocket, SendOutcome};

/// Longest batch: what the kernel takes with UDP_SEGMENT, over either version of IP.
const BATCH_BYTES: usize = 65_487;
/// Most datagrams in a batch: what all supported kernels take.
const BATCH_SEGMENTS: usize = 64;

/// Which socket sends, or has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// UDP, the port of IKE (500).
    Ike,
    /// UDP, the port that IKE shares with ESP (4500).
    Nat,
    /// Raw sockets: whole packets of AH, ESP, or ESP in UDP, from their IP header on.
    Raw,
}

/// The way of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Way {
    /// By which socket.
    pub via: Via,
    /// This end's address.
    pub local: IpAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// Datagrams of one way, all of `segment` bytes but the last, which may be shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// Their way.
    pub way: Way,
    /// Traffic class, or type of service, of the outer packets; those of raw sockets have their own.
    pub traffic_class: u8,
    /// Length of each datagram, in bytes.
    pub segment: usize,
    /// It is a single datagram, and longer than the way carries: the kernel is to cut it.
    pub in_fragments: bool,
    start: usize,
    end: usize,
}

impl Batch {
    /// Sends its bytes by a socket of UDP.
    ///
    /// # Errors
    /// Where the kernel does not take them.
    pub fn send(&self, bytes: &[u8], socket: &HostSocket) -> linux::Result<SendOutcome> {
        let Way { local, remote, .. } = self.way;
        if self.in_fragments {
            return socket.send_in_fragments(bytes, local, remote, self.traffic_class);
        }
        socket.send(bytes, self.segment, local, remote, self.traffic_class)
    }
}

/// Datagrams to send. It keeps its memory when cleared, so that nothing is allocated per packet.
#[derive(Debug, Default)]
pub struct Outbox {
    buffer: Vec<u8>,
    used: usize,
    batches: Vec<Batch>,
}

impl Outbox {
    /// Space for a datagram of `size` bytes, to be filled by the caller. What is in it before is arbitrary.
    pub(crate) fn datagram(&mut self, way: &Way, traffic_class: u8, size: usize) -> &mut [u8] {
        let start = self.used;
        self.used += size;
        if self.buffer.len() < self.used {
            self.buffer.resize(self.used.next_power_of_two(), 0);
        }
        match self.batches.last_mut() {
            Some(last)
                if !last.in_fragments
                    && last.way == *way
                    && last.traffic_class == traffic_class
                    && size <= last.segment
                    && (last.end - last.start).is_multiple_of(last.segment)
                    && (last.end - last.start) / last.segment < BATCH_SEGMENTS
                    && last.end - last.start + size <= BATCH_BYTES =>
            {
                last.end += size;
            }
            _ => self.batches.push(Batch {
                way: *way,
                traffic_class,
                segment: size,
                in_fragments: false,
                start,
                end: start + size,
            }),
        }
        &mut self.buffer[start..self.used]
    }

    /// The same for a datagram of UDP that the way does not carry in one piece.
    pub(crate) fn datagram_in_fragments(&mut self, way: &Way, traffic_class: u8, size: usize) -> &mut [u8] {
        let start = self.used;
        self.datagram(way, traffic_class, size);
        self.cancel_last(size);
        self.used += size;
        let end = self.used;
        self.batches.push(Batch { way: *way, traffic_class, segment: size, in_fragments: true, start, end });
        &mut self.buffer[start..end]
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
        self.used = 0;
        self.batches.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(port: u16) -> Way {
        let local = "2001:db8::1".parse().unwrap();
        Way { via: Via::Nat, local, remote: SocketAddr::new("2001:db8::2".parse().unwrap(), port) }
    }

    #[test]
    fn equal_sizes_batch_and_a_shorter_one_closes() {
        let mut outbox = Outbox::default();
        for (size, fill) in [(100, 1), (100, 2), (60, 3), (60, 4), (100, 5)] {
            outbox.datagram(&way(1), 0, size).fill(fill);
        }
        let batches: Vec<_> = outbox.batches().map(|(b, bytes)| (b.segment, bytes.len())).collect();
        assert_eq!(batches, [(100, 260), (60, 60), (100, 100)]);
        outbox.cancel_last(100);
        assert_eq!(outbox.batches().count(), 2);
        outbox.clear();
        assert!(outbox.is_empty());
    }

    #[test]
    fn a_batch_is_of_one_way_and_what_the_kernel_takes() {
        let mut outbox = Outbox::default();
        for number in 0..200 {
            outbox.datagram(&way(number / 100), 0, 1452);
        }
        for number in 0..200 {
            outbox.datagram(&way(7), (number % 2) as u8, 60);
        }
        for (batch, bytes) in outbox.batches() {
            assert!(bytes.len() <= BATCH_BYTES && bytes.len().div_ceil(batch.segment) <= BATCH_SEGMENTS);
        }
        assert_eq!(outbox.batches().map(|(b, bytes)| bytes.len() / b.segment).sum::<usize>(), 400);
    }
}

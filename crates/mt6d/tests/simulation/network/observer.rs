//! Who sees everything that crosses the network between the sites, and nothing of what is within.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv6Addr, SocketAddrV6};

use wire::ecn::Ecn;

/// IPv6 and UDP headers.
pub(crate) const HEADERS: usize = 48;

/// An outer datagram.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) at: u64,
    pub(crate) source: SocketAddrV6,
    pub(crate) destination: SocketAddrV6,
    pub(crate) ecn: Ecn,
    /// Of the IPv6 packet.
    pub(crate) length: usize,
    /// Empty unless the observer keeps them.
    pub(crate) payload: Vec<u8>,
}

#[derive(Default)]
pub(crate) struct Observer {
    /// Whether it keeps a list of what it saw.
    pub(crate) keeps: bool,
    /// Whether it keeps payloads too.
    pub(crate) keeps_payloads: bool,
    pub(crate) seen: Vec<Seen>,
    pub(crate) count: u64,
}

impl Observer {
    pub(crate) fn sees(&mut self, at: u64, from: SocketAddrV6, to: SocketAddrV6, ecn: Ecn, payload: &[u8]) {
        self.count += 1;
        if !self.keeps {
            return;
        }
        self.seen.push(Seen {
            at,
            source: from,
            destination: to,
            ecn,
            length: HEADERS + payload.len(),
            payload: if self.keeps_payloads { payload.to_vec() } else { Vec::new() },
        });
    }

    /// All sizes of outer packets, with their counts.
    pub(crate) fn sizes(&self) -> BTreeMap<usize, usize> {
        let mut sizes = BTreeMap::new();
        for seen in &self.seen {
            *sizes.entry(seen.length).or_default() += 1;
        }
        sizes
    }

    /// The endpoints that sent or received, each with those that it spoke with.
    pub(crate) fn endpoints(&self) -> HashMap<Ipv6Addr, Vec<(SocketAddrV6, SocketAddrV6)>> {
        let mut endpoints: HashMap<Ipv6Addr, Vec<_>> = HashMap::new();
        for seen in &self.seen {
            for pair in [(seen.source, seen.destination), (seen.destination, seen.source)] {
                let pairs = endpoints.entry(*pair.0.ip()).or_default();
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
        }
        endpoints
    }

    /// Fails if a byte position of the payloads, or a bit of one, tells anything.
    pub(crate) fn assert_payloads_look_random(&self) {
        const POSITIONS: usize = 64;
        let mut ones = [[0usize; 8]; POSITIONS];
        let mut values = vec![[0usize; 256]; POSITIONS];
        let mut counts = [0usize; POSITIONS];
        for seen in &self.seen {
            for (position, byte) in seen.payload.iter().take(POSITIONS).enumerate() {
                counts[position] += 1;
                values[position][usize::from(*byte)] += 1;
                for (bit, ones) in ones[position].iter_mut().enumerate() {
                    *ones += usize::from(byte >> bit & 1);
                }
            }
        }
        assert!(
            counts[POSITIONS - 1] > 4_000,
            "too few datagrams to say anything: {}",
            counts[POSITIONS - 1]
        );
        for position in 0..POSITIONS {
            let count = counts[position] as f64;
            for ones in ones[position] {
                // Six standard deviations.
                let off = (ones as f64 / count - 0.5).abs();
                assert!(off < 3.0 / count.sqrt(), "position {position}: a bit is set in {ones} of {count}");
            }
            let most = *values[position].iter().max().expect("256 of them") as f64;
            let expected = count / 256.0;
            assert!(
                most < expected + 8.0 * expected.sqrt(),
                "position {position}: a value occurs {most} times"
            );
        }
    }
}

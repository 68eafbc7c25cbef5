//! Numbers that an attacker off the path must not guess: initial sequence numbers (RFC 6528), the beginning of
//! timestamps (RFC 7323 §7.1), and ephemeral ports (RFC 6056).

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use siphasher::sip::SipHasher24;

use super::sequence::SequenceNumber;
use super::timestamps::TimestampClock;

/// Both ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

impl Flow {
    /// What the other end takes in a segment if it does not say so (RFC 9293 §3.7.1, MUST-15).
    pub(super) fn default_mss(&self) -> u16 {
        match self.remote.ip().to_canonical() {
            IpAddr::V4(_) => 536,
            IpAddr::V6(_) => 1220,
        }
    }
}

/// Chooses numbers by a keyed hash (SipHash-2-4) of the flow, so that they differ between flows, and grow within one.
#[derive(Clone)]
pub struct Secrets {
    hasher: SipHasher24,
    base: Instant,
}

/// What is hashed for: the same flow gives unrelated numbers for each.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(super) enum Purpose {
    SequenceNumber = 1,
    Timestamp = 2,
    Port = 3,
    Cookie = 4,
}

impl Secrets {
    /// `key` is 16 bytes of the best randomness there is, drawn once; `now` is when time begins.
    pub fn new(key: [u8; 16], now: Instant) -> Self {
        Self { hasher: SipHasher24::new_with_key(&key), base: now }
    }

    /// The initial sequence number: M + F(flow, key), where M counts each 4 µs (RFC 6528 §3).
    pub fn initial_sequence_number(&self, now: Instant, flow: &Flow) -> SequenceNumber {
        let ticks = self.elapsed(now).as_micros() / 4;
        SequenceNumber((ticks as u32).wrapping_add(self.hash(Purpose::SequenceNumber, flow, &[]) as u32))
    }

    /// A free port for a new flow to `remote`, from `first` to `last`: the search begins at a hash of both addresses
    /// plus a counter that the caller keeps (RFC 6056 §3.3.3). The local port of `flow` is ignored. `None` if
    /// all are taken.
    pub fn ephemeral_port(
        &self,
        flow: &Flow,
        first: u16,
        last: u16,
        counter: &mut u16,
        mut is_free: impl FnMut(u16) -> bool,
    ) -> Option<u16> {
        let count = u64::from(last.checked_sub(first)?) + 1;
        let mut flow = *flow;
        flow.local.set_port(0);
        let start = self.hash(Purpose::Port, &flow, &[]) >> 16;
        (0..count).find_map(|_| {
            let port = first + ((start + u64::from(*counter)) % count) as u16;
            *counter = counter.wrapping_add(1);
            is_free(port).then_some(port)
        })
    }

    /// The clock of a flow's timestamps, the same for each of its connections.
    pub(super) fn timestamp_clock(&self, flow: &Flow) -> TimestampClock {
        TimestampClock { base: self.base, offset: self.hash(Purpose::Timestamp, flow, &[]) as u32 }
    }

    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.base)
    }

    pub(super) fn hash(&self, purpose: Purpose, flow: &Flow, more: &[u8]) -> u64 {
        // Of fixed places, so that no two inputs look the same: purpose, family, addresses, ports, what is added.
        let mut input = [0; 64];
        input[0] = purpose as u8;
        for (end, at) in [(&flow.local, 2), (&flow.remote, 20)] {
            match end {
                SocketAddr::V4(v4) => input[at..at + 4].copy_from_slice(&v4.ip().octets()),
                SocketAddr::V6(v6) => {
                    input[1] = 1;
                    input[at..at + 16].copy_from_slice(&v6.ip().octets());
                }
            }
            input[at + 16..at + 18].copy_from_slice(&end.port().to_be_bytes());
        }
        let more = &more[..more.len().min(26)];
        input[38..38 + more.len()].copy_from_slice(more);
        self.hasher.hash(&input)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> Flow {
        Flow {
            local: "[2001:db8::1]:0".parse().unwrap(),
            remote: SocketAddr::new("2001:db8::2".parse().unwrap(), port),
        }
    }

    #[test]
    fn rfc_6528_section_3_within_a_flow_the_number_counts_each_4_us() {
        let now = Instant::now();
        let secrets = Secrets::new([7; 16], now);
        let first = secrets.initial_sequence_number(now, &flow(80));
        let later = secrets.initial_sequence_number(now + Duration::from_millis(4), &flow(80));
        assert_eq!(later, first + 1000);
        let others: std::collections::BTreeSet<u32> =
            (0..100).map(|port| secrets.initial_sequence_number(now, &flow(port)).0).collect();
        assert_eq!(others.len(), 100);
        assert_ne!(Secrets::new([8; 16], now).initial_sequence_number(now, &flow(80)), first);
    }

    #[test]
    fn rfc_6056_section_3_3_3_ports_of_one_destination_follow_each_other_and_skip_those_taken() {
        let secrets = Secrets::new([7; 16], Instant::now());
        let mut counter = 0;
        let first = secrets.ephemeral_port(&flow(80), 49152, 65535, &mut counter, |_| true).unwrap();
        let next =
            secrets.ephemeral_port(&flow(80), 49152, 65535, &mut counter, |port| port % 2 == first % 2);
        assert!(first >= 49152 && next.unwrap() >= 49152);
        assert_eq!(next.unwrap().wrapping_sub(first) % 2, 0);
        assert_eq!(secrets.ephemeral_port(&flow(80), 49152, 49160, &mut counter, |_| false), None);
        assert_eq!(secrets.ephemeral_port(&flow(80), 5, 4, &mut counter, |_| true), None);
        let other = secrets.ephemeral_port(&flow(81), 49152, 65535, &mut 0, |_| true).unwrap();
        assert_ne!(other, first);
    }
}

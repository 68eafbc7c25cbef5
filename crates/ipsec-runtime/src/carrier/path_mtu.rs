//! What the ways to remotes carry: claims of routers on the way, which anybody can forge who has seen a packet of ours.
//!
//! So a claim counts where it quotes an SPI that we send by, it ends of itself, and it cannot go below what IPv6 demands of a
//! link. A tunnel is such a link, too: inner packets of 1280 bytes are carried whatever is claimed, in fragments outside
//! (RFC 8200 §5, RFC 2473 §7.1).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipsec::association::{Protocol, Spi};
use ipsec::key_engine::{KeyEngine, Name};
use wire::{ipv4, ipv6, protocol, udp};

use crate::outbox::{Outbox, Via, Way};

/// Ways that are narrower than their link, at most: of more, what was claimed is forgotten.
const MAX_PATHS: usize = 1024;
/// How long a claim counts (RFC 8201 §4 asks for at least five minutes, and names ten).
const LIFETIME: Duration = Duration::from_secs(600);
/// The least that IPv6 demands of a link (RFC 8200 §5), and what smaller claims are taken for.
pub(super) const MIN_MTU: u16 = 1280;
const FRAGMENT_LEN: usize = 8;

/// What is claimed of ways to remotes.
#[derive(Debug, Default)]
pub(super) struct PathMtus {
    by_remote: HashMap<IpAddr, (u16, Instant)>,
    deadline: Option<Instant>,
}

impl PathMtus {
    /// What is claimed of the way to a remote.
    pub(super) fn get(&self, remote: IpAddr) -> Option<u16> {
        self.by_remote.get(&remote).map(|(mtu, _)| *mtu)
    }

    /// The narrowest.
    pub(super) fn least(&self) -> Option<u16> {
        self.by_remote.values().map(|(mtu, _)| *mtu).min()
    }

    pub(super) fn learn(&mut self, remote: IpAddr, mtu: u16, now: Instant) {
        if self.by_remote.len() >= MAX_PATHS {
            self.by_remote.clear();
        }
        self.by_remote.insert(remote, (mtu, now + LIFETIME));
        self.deadline = Some(self.deadline.map_or(now + LIFETIME, |deadline| deadline.min(now + LIFETIME)));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Forgets what is old; whether anything was.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        let before = self.by_remote.len();
        self.by_remote.retain(|_, (_, until)| now < *until);
        self.deadline = self.by_remote.values().map(|(_, until)| *until).min();
        self.by_remote.len() < before
    }
}

/// Whether what a claim quotes can be a packet of ours to `remote`: who has not seen one does not know its SPI. UDP sockets
/// are given what is behind the UDP header, raw ones the packet from its IP header on.
pub(super) fn is_ours(engine: &KeyEngine, remote: IpAddr, via: Via, quoted: &[u8]) -> bool {
    let (next_header, rest) = match via {
        Via::Ike | Via::Nat => (protocol::ESP, quoted),
        Via::Raw => {
            let behind = |at: usize| quoted.get(at..).unwrap_or_default();
            let (next_header, rest) = match quoted {
                [first, ..] if first >> 4 == 6 => {
                    (quoted.get(6).copied().unwrap_or(0), behind(ipv6::HEADER_LEN))
                }
                [first, ..] => (quoted.get(9).copied().unwrap_or(0), behind(usize::from(first & 0xf) * 4)),
                [] => return false,
            };
            match next_header {
                protocol::FRAGMENT => {
                    (rest.first().copied().unwrap_or(0), rest.get(FRAGMENT_LEN..).unwrap_or_default())
                }
                protocol::UDP => (protocol::ESP, rest.get(udp::HEADER_LEN..).unwrap_or_default()),
                _ => (next_header, rest),
            }
        }
    };
    let (protocol, at) = match next_header {
        protocol::ESP => (Protocol::Esp, 0),
        protocol::AUTHENTICATION => (Protocol::Ah, 4),
        _ => return false,
    };
    let spi = rest.get(at..).and_then(|rest| rest.first_chunk()).map(|spi| Spi(u32::from_be_bytes(*spi)));
    spi.is_some_and(|spi| engine.by_name(&Name { destination: remote, protocol, spi }).is_some())
}

/// Puts out a whole packet that the way does not carry in one piece. The kernel cuts those of IPv4 itself, once it may.
pub(super) fn send_in_fragments(outbox: &mut Outbox, way: &Way, packet: &mut [u8]) {
    let identification = identification(packet);
    if packet.first().is_none_or(|first| first >> 4 != 6) {
        if packet.len() >= ipv4::HEADER_LEN {
            packet[6] &= !(ipv4::DONT_FRAGMENT >> 8) as u8;
        }
        return outbox.datagram(way, 0, packet.len()).copy_from_slice(packet);
    }
    let Some((header, payload)) = packet.split_at_mut_checked(ipv6::HEADER_LEN) else { return };
    let next_header = std::mem::replace(&mut header[6], protocol::FRAGMENT);
    let room = (usize::from(MIN_MTU) - ipv6::HEADER_LEN - FRAGMENT_LEN) & !7;
    let mut offset = 0;
    while offset < payload.len() {
        let piece = &payload[offset..payload.len().min(offset + room)];
        let more = u16::from(offset + piece.len() < payload.len());
        header[4..6].copy_from_slice(&((FRAGMENT_LEN + piece.len()) as u16).to_be_bytes());
        let size = ipv6::HEADER_LEN + FRAGMENT_LEN + piece.len();
        let fragment = outbox.datagram(way, 0, size);
        let (head, rest) = fragment.split_at_mut(ipv6::HEADER_LEN);
        head.copy_from_slice(header);
        // RFC 8200 §4.5; what is reserved is 0.
        rest[..2].copy_from_slice(&[next_header, 0]);
        rest[2..4].copy_from_slice(&(offset as u16 | more).to_be_bytes());
        rest[4..8].copy_from_slice(&identification);
        rest[8..].copy_from_slice(piece);
        offset += room;
    }
}

/// Bytes of the ICV, which nobody foresees (RFC 7739): that of AH is in its header, that of ESP at the end.
fn identification(packet: &[u8]) -> [u8; 4] {
    const ICV: usize = ipv6::HEADER_LEN + 12;
    let is_ah = packet.get(6) == Some(&protocol::AUTHENTICATION);
    let icv = if is_ah { packet.get(ICV..).and_then(<[u8]>::first_chunk) } else { packet.last_chunk() };
    icv.copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn a_claim_ends_of_itself_and_the_narrowest_counts() {
        let (now, [a, b]) = (Instant::now(), ["2001:db8::1", "192.0.2.1"].map(|a| a.parse().unwrap()));
        let mut mtus = PathMtus::default();
        mtus.learn(a, 1400, now);
        mtus.learn(b, 1300, now + LIFETIME / 2);
        assert_eq!((mtus.get(a), mtus.least()), (Some(1400), Some(1300)));
        assert!(!mtus.handle_timeout(now + LIFETIME - Duration::from_secs(1)));
        assert!(mtus.handle_timeout(mtus.deadline().unwrap()));
        assert_eq!((mtus.get(a), mtus.get(b)), (None, Some(1300)));
        assert!(mtus.handle_timeout(mtus.deadline().unwrap()));
        assert_eq!((mtus.least(), mtus.deadline()), (None, None));
    }

    #[test]
    fn fragments_are_together_what_was_cut() {
        let [local, remote] = ["2001:db8::1", "2001:db8::2"].map(|a| a.parse().unwrap());
        let way = Way { via: Via::Raw, local, remote: SocketAddr::new(remote, 0) };
        let mut packet: Vec<u8> = (0..1400).map(|byte| byte as u8).collect();
        packet[0] = 0x60;
        packet[6] = protocol::ESP;
        let whole = packet.clone();
        let mut outbox = Outbox::default();
        send_in_fragments(&mut outbox, &way, &mut packet);
        let mut payload: Vec<u8> = Vec::new();
        for (batch, bytes) in outbox.batches() {
            for fragment in bytes.chunks(batch.segment) {
                assert!(fragment.len() <= usize::from(MIN_MTU));
                let upper = ipv6::upper_layer(fragment[6], &fragment[ipv6::HEADER_LEN..]).unwrap();
                let place = upper.fragment.unwrap();
                assert_eq!((usize::from(place.offset), upper.protocol), (payload.len(), protocol::ESP));
                payload.extend(&fragment[ipv6::HEADER_LEN + FRAGMENT_LEN..]);
                assert_eq!(place.more, payload.len() < 1360);
            }
        }
        assert_eq!(payload, whole[ipv6::HEADER_LEN..]);
    }
}

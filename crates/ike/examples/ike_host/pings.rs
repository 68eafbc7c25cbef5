//! Echo requests in ESP in UDP, to show that both ends have the same keys: IPv6, tunnel mode.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use ike::crypto::encryption::{Encryption, Integrity};
use ike::event::{ChildAssociation, ChildKeys, Path};
use ike::negotiation::ChildIntegrity;
use ike::numbers::Spi;
use ipsec::algorithm::{Authentication, Encryption as EspEncryption, EspTransform};
use ipsec::association::{Association, Mode, Parameters, Transform};
use ipsec::esp::{self, MAX_HEADROOM, MAX_TAILROOM};
use ipsec::key::Key;
use ipsec::marks::Marks;
use ipsec::packet_buffer::PacketBuffer;

/// Packets that are kept until their child is there.
const EARLY: usize = MAX_UNANSWERED as usize;
/// So many may be on their way: where an end is without a processor for seconds, no buffer of the kernel's runs over.
const MAX_UNANSWERED: u32 = 64;
const BETWEEN: Duration = Duration::from_millis(10);
const IPV6_HEADER: usize = 40;
const ECHO: usize = 8 + 56;

/// What is sent, what has come back.
pub(crate) struct Pings {
    inner: Option<(IpAddr, IpAddr)>,
    outbound: Option<Outbound>,
    /// What the other end has asked for, and need not have yet.
    next: Option<Outbound>,
    inbound: HashMap<u32, Association>,
    /// What came by a child that this end has not yet: strongSwan uses one before its answer is on the way.
    early: VecDeque<Vec<u8>>,
    left: u32,
    unanswered: u32,
    next_at: Instant,
    sequence: u16,
}

struct Outbound {
    inbound_spi: Spi,
    association: Association,
    path: Path,
}

impl Pings {
    pub(crate) fn new(inner: Option<(IpAddr, IpAddr)>) -> Self {
        let (inbound, early) = Default::default();
        Self {
            inner,
            outbound: None,
            next: None,
            inbound,
            early,
            left: 0,
            unanswered: 0,
            next_at: Instant::now(),
            sequence: 0,
        }
    }

    pub(crate) fn begin(&mut self, count: u32, now: Instant) {
        (self.left, self.unanswered, self.next_at) = (count, 0, now);
    }

    pub(crate) fn child_up(&mut self, child: &ChildAssociation, now: Instant) {
        let (local, remote) = (child.path.local.ip(), child.path.remote.ip());
        // An outer header stands for UDP, so its addresses do not matter.
        let make = |spi: Spi, source, destination, keys: &ChildKeys| {
            let transform = Transform::Esp(transform(child, keys));
            let spi = ipsec::association::Spi(spi.0);
            let mut parameters = Parameters::new(spi, source, destination, Mode::Tunnel, transform);
            parameters.extended_sequence = child.suite.extended_sequence_numbers;
            Association::new(parameters, now).expect("an association")
        };
        let inbound = make(child.inbound_spi, remote, local, &child.inbound);
        self.inbound.insert(child.inbound_spi.0, inbound);
        let association = make(child.outbound_spi, local, remote, &child.outbound);
        let new = Outbound { inbound_spi: child.inbound_spi, association, path: child.path };
        if child.requested || self.outbound.is_none() {
            self.outbound = Some(new);
        } else {
            self.next = Some(new);
        }
        for esp in std::mem::take(&mut self.early) {
            self.receive(&esp, now);
        }
    }

    pub(crate) fn child_down(&mut self, inbound: Spi) {
        self.inbound.remove(&inbound.0);
        if self.next.as_ref().is_some_and(|next| next.inbound_spi == inbound) {
            self.next = None;
        }
        if self.outbound.as_ref().is_some_and(|outbound| outbound.inbound_spi == inbound) {
            self.outbound = self.next.take();
        }
    }

    pub(crate) fn move_to(&mut self, to: Path) {
        for outbound in [&mut self.outbound, &mut self.next].into_iter().flatten() {
            outbound.path = to;
        }
    }

    /// The next echo request, if it is time for one.
    pub(crate) fn send(&mut self, now: Instant) -> Option<(Path, Vec<u8>)> {
        let Some((IpAddr::V6(source), IpAddr::V6(destination))) = self.inner else { return None };
        if self.left == 0 || self.next_at > now || self.unanswered >= MAX_UNANSWERED {
            return None;
        }
        let Outbound { association, path, .. } = self.outbound.as_mut()?;
        self.left -= 1;
        self.unanswered += 1;
        self.next_at += BETWEEN;
        self.sequence += 1;
        let packet = echo_request(source, destination, self.sequence);
        let mut buffer = vec![0; MAX_HEADROOM + packet.len() + MAX_TAILROOM];
        let range = MAX_HEADROOM..MAX_HEADROOM + packet.len();
        buffer[range.clone()].copy_from_slice(&packet);
        let mut packet = PacketBuffer::new(&mut buffer, range)?;
        esp::seal(association, &mut packet, now).ok()?;
        Some((*path, packet.packet()[IPV6_HEADER..].to_vec()))
    }

    /// ESP has come.
    pub(crate) fn receive(&mut self, esp: &[u8], now: Instant) {
        let spi = u32::from_be_bytes([esp[0], esp[1], esp[2], esp[3]]);
        let Some(association) = self.inbound.get_mut(&spi) else {
            self.early.truncate(EARLY - 1);
            return self.early.push_front(esp.to_vec());
        };
        let mut buffer = vec![0; IPV6_HEADER + esp.len()];
        buffer[0] = 0x60;
        buffer[4..6].copy_from_slice(&(esp.len() as u16).to_be_bytes());
        (buffer[6], buffer[7]) = (50, 64);
        let parameters = association.parameters();
        for (at, address) in [(8, parameters.source), (24, parameters.destination)] {
            let IpAddr::V6(address) = address else { return println!("the outer header is of IPv6") };
            buffer[at..at + 16].copy_from_slice(&address.octets());
        }
        buffer[IPV6_HEADER..].copy_from_slice(esp);
        let all = 0..buffer.len();
        let Some(mut packet) = PacketBuffer::new(&mut buffer, all) else { return };
        match esp::open(association, &mut packet, Marks::default(), now) {
            Ok(_) if self.next.as_ref().is_some_and(|next| next.inbound_spi.0 == spi) => {
                self.outbound = self.next.take();
                self.pong();
            }
            Ok(_) if packet.packet().get(IPV6_HEADER) == Some(&129) => self.pong(),
            Ok(_) => println!("something else than a pong"),
            Err(error) => println!("ESP: {error:?}"),
        }
    }

    fn pong(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
        println!("pong");
    }
}

fn transform(child: &ChildAssociation, keys: &ChildKeys) -> EspTransform {
    let encryption = match child.suite.encryption {
        Some(Encryption::Aes128Gcm) => EspEncryption::AesGcm128,
        Some(Encryption::Aes256Gcm) => EspEncryption::AesGcm256,
        Some(Encryption::ChaCha20Poly1305) => EspEncryption::ChaCha20Poly1305,
        Some(Encryption::Aes128Cbc) => EspEncryption::AesCbc128,
        Some(Encryption::Aes256Cbc) => EspEncryption::AesCbc256,
        None => EspEncryption::Null,
    };
    let authentication = match child.suite.integrity {
        None => Authentication::None,
        Some(ChildIntegrity::Hmac(Integrity::HmacSha256)) => Authentication::HmacSha256,
        Some(ChildIntegrity::Hmac(Integrity::HmacSha384)) => Authentication::HmacSha384,
        Some(ChildIntegrity::Hmac(Integrity::HmacSha512)) => Authentication::HmacSha512,
        Some(ChildIntegrity::AesGmac128) => Authentication::AesGmac128,
        Some(ChildIntegrity::AesGmac256) => Authentication::AesGmac256,
    };
    let key = |secret: &ike::crypto::secret::Secret| Key::new(secret.as_bytes());
    EspTransform::new(encryption, &key(&keys.encryption), authentication, &key(&keys.integrity))
        .expect("keys that fit")
}

fn echo_request(source: Ipv6Addr, destination: Ipv6Addr, sequence: u16) -> Vec<u8> {
    let mut packet = vec![0; IPV6_HEADER + ECHO];
    packet[0] = 0x60;
    packet[4..6].copy_from_slice(&(ECHO as u16).to_be_bytes());
    (packet[6], packet[7]) = (58, 64);
    packet[8..24].copy_from_slice(&source.octets());
    packet[24..40].copy_from_slice(&destination.octets());
    packet[40] = 128;
    packet[46..48].copy_from_slice(&sequence.to_be_bytes());
    let sum: u32 = packet[8..].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let sum = sum + ECHO as u32 + 58;
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[42..44].copy_from_slice(&checksum.to_be_bytes());
    packet
}

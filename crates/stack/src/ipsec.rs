//! [`Security`] by IPsec (RFC 4301): the crate `ipsec`, where the stack's packets pass.
//!
//! What leaves gets the stricter of what the system, its rules and the socket ask for. An association that is missing is
//! asked for ([`Event::Acquire`] from [`Ipsec::next_event`]), and the packet waits, within the engine's bounds; where no daemon is that could make one, the caller has the error at once. What arrives is opened by the
//! association that it names, and its marks are compared with what its socket asks for. What is refused is not answered, and
//! counted here by its reason; the stack's own counter says [`Security`](crate::DropReason::Security).
//!
//! Daemons and administrators work on the engine and the policies by [`Ipsec::parts`]. After that,
//! [`Interface::deadline`](crate::interface::Interface::deadline) is to be looked at again: what waited may be free.
//!
//! A system that requires protection of everything requires it of ICMP errors, too, and routers have none. Packet Too Big
//! about protected packets then needs a rule that lets ICMPv6 type 2 in, or hosts do with 1280 octets.
//!
//! ESP in UDP (RFC 3948) is looked for at port 4500. What is for a key daemon there has four zeros before it, and reaches the
//! socket that the daemon has at that port.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Instant;

use ipsec::acquire::AcquireId;
use ipsec::association::{Association, Protocol, Spi, Transform};
use ipsec::decisions::{Decision, Decisions};
use ipsec::drops::{DropReason, Drops};
use ipsec::key_engine::{Event, KeyEngine, Name, SecurityError};
use ipsec::marks::Marks;
use ipsec::packet_buffer::PacketBuffer;
use ipsec::policy::{Bundle, Output, PolicyDatabase, Socket};
use ipsec::processing::{self, MAX_HEADROOM, MAX_TAILROOM, Progress, Step};
use ipsec::request::SocketId;
use ipsec::selector::Traffic;
use ipsec::udp_encapsulation::{self, Content};
use wire::{protocol, udp};

use crate::icmpv6::ErrorReport;
use crate::security::{Datagram, Overhead, Protected, Refused, Security, Sender};

/// The security of an interface.
#[derive(Debug)]
pub struct Ipsec {
    engine: KeyEngine,
    policies: PolicyDatabase,
    decisions: Decisions,
    drops: Drops,
    /// The latest time that was heard of.
    latest: Instant,
}

impl Ipsec {
    /// With these associations and policies.
    pub fn new(now: Instant, engine: KeyEngine, policies: PolicyDatabase) -> Self {
        Self { engine, policies, decisions: Decisions::default(), drops: Drops::default(), latest: now }
    }

    /// The engine.
    pub fn engine(&mut self) -> &mut KeyEngine {
        self.parts().0
    }

    /// The policies.
    pub fn policies(&mut self) -> &mut PolicyDatabase {
        self.parts().1
    }

    /// Engine and policies, for those that work on both.
    pub fn parts(&mut self) -> (&mut KeyEngine, &mut PolicyDatabase) {
        // Who has them may put others in their place.
        self.decisions.clear();
        (&mut self.engine, &mut self.policies)
    }

    /// What daemons are to be told next.
    pub fn next_event(&mut self) -> Option<Event> {
        self.engine.next_event()
    }

    /// A daemon has failed to make what was asked for: what waits for it is dropped.
    pub fn give_up(&mut self, acquire: AcquireId) {
        let dropped = self.engine().give_up(acquire);
        self.count_unkeyed(dropped);
    }

    /// Why packets went no further.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// So many packets that waited were dropped, since a daemon that talks with the engine itself has failed.
    pub fn count_unkeyed(&mut self, packets: usize) {
        for _ in 0..packets {
            self.drops.count(DropReason::NotKeyed);
        }
    }

    fn hides(&self, bundle: &Bundle) -> bool {
        bundle.iter().filter_map(|id| self.engine.get(id)).any(|association| {
            matches!(&association.parameters().transform, Transform::Esp(transform) if transform.hides())
        })
    }

    fn try_protect(
        &mut self,
        now: Instant,
        packet: &mut Vec<u8>,
        start: usize,
        sender: Sender<'_>,
    ) -> Result<Protected, DropReason> {
        let whole = packet.get(start..).unwrap_or_default();
        let traffic = Traffic::of(whole).map_err(|_| DropReason::Malformed)?;
        let bundle = match sender {
            Sender::Own(socket) => match self.output_policy(&traffic, socket, now)? {
                Output::Send(bundle) => bundle,
                Output::Delay(acquire) => {
                    let delayed = self.engine.delay(acquire, whole, socket.copied());
                    return if delayed { Ok(Protected::Waits) } else { Err(DropReason::TooMany) };
                }
            },
            Sender::Stranger { secret, socket } => {
                let bundle = self.output_policy_without_asking(&traffic, socket, now)?;
                if secret && !self.hides(&bundle) {
                    return Err(DropReason::Secret);
                }
                bundle
            }
        };
        let length = whole.len();
        if bundle.is_empty() {
            return Ok(Protected::Send(start..start + length));
        }
        let associations = bundle.iter().filter_map(|id| self.engine.get(id));
        let front: usize = associations.map(Association::front).sum();
        let at = if start < front { MAX_HEADROOM } else { start };
        let place = at..at + length;
        packet.resize(place.end + MAX_TAILROOM, 0);
        if place.start != start {
            packet.copy_within(start..start + length, place.start);
        }
        let mut buffer = PacketBuffer::new(packet, place).ok_or(DropReason::TooLong)?;
        let sealed = processing::seal(&mut self.engine, &bundle, &mut buffer, now);
        let range = buffer.range();
        sealed.map(|()| Protected::Send(range))
    }

    fn try_open(
        &mut self,
        now: Instant,
        packet: &mut [u8],
        progress: &mut Progress,
    ) -> Result<Range<usize>, DropReason> {
        let all = 0..packet.len();
        let mut buffer = PacketBuffer::new(packet, all).ok_or(DropReason::Malformed)?;
        let port = Some(udp_encapsulation::PORT);
        let Step::Opened(opened) = processing::open(&mut self.engine, &mut buffer, *progress, port, now)?
        else {
            return Err(DropReason::Malformed);
        };
        *progress = opened;
        Ok(buffer.range())
    }

    fn output_policy(
        &mut self,
        traffic: &Traffic,
        socket: Option<&Socket>,
        now: Instant,
    ) -> Result<Output, SecurityError> {
        self.latest = self.latest.max(now);
        self.decisions.output_policy(&self.policies, &mut self.engine, traffic, socket, now)
    }

    fn output_policy_without_asking(
        &self,
        traffic: &Traffic,
        socket: Option<&Socket>,
        now: Instant,
    ) -> Result<Bundle, SecurityError> {
        match self.decisions.get(&self.policies, &self.engine, traffic, socket, now) {
            Some(decision) => Ok(decision.bundle),
            None => self.policies.output_policy_without_asking(&self.engine, traffic, socket, now),
        }
    }
}

impl Security for Ipsec {
    type Protection = Progress;

    const HEADROOM: usize = MAX_HEADROOM;

    fn protect(
        &mut self,
        now: Instant,
        packet: &mut Vec<u8>,
        start: usize,
        sender: Sender<'_>,
    ) -> Result<Protected, Refused> {
        self.try_protect(now, packet, start, sender).map_err(|reason| {
            self.drops.count(reason);
            Refused
        })
    }

    fn passes(&self, now: Instant, traffic: &Traffic, socket: Option<&Socket>) -> bool {
        let bundle = self.output_policy_without_asking(traffic, socket, now);
        bundle.is_ok_and(|bundle| bundle.is_empty())
    }

    fn prepare(&mut self, now: Instant, traffic: &Traffic, socket: Option<&Socket>) -> Result<(), Refused> {
        self.output_policy(traffic, socket, now).map(|_| ()).map_err(|error| {
            self.drops.count(error.into());
            Refused
        })
    }

    fn open(
        &mut self,
        now: Instant,
        packet: &mut [u8],
        progress: &mut Progress,
    ) -> Result<Range<usize>, Refused> {
        self.try_open(now, packet, progress).map_err(|reason| {
            self.drops.count(reason);
            Refused
        })
    }

    fn datagram(&self, bytes: &[u8]) -> Datagram {
        let Ok(datagram) = udp::Datagram::parse(bytes) else { return Datagram::Plain };
        if datagram.destination_port() != udp_encapsulation::PORT {
            return Datagram::Plain;
        }
        match udp_encapsulation::classify(datagram.payload()) {
            Content::Esp => Datagram::Protected,
            Content::Keepalive => Datagram::Keepalive,
            Content::Ike | Content::Malformed => Datagram::Plain,
        }
    }

    fn admits(&mut self, traffic: &Traffic, progress: &Progress, socket: Option<&Socket>) -> bool {
        let admitted = self.policies.input_policy(traffic, progress.marks, socket);
        if let Err(reason) = admitted {
            self.drops.count(reason);
        }
        admitted.is_ok()
    }

    fn class(&self, progress: &Progress) -> u8 {
        let Marks { authentic, decrypted, decrypted_from_tunnel } = progress.marks;
        u8::from(authentic) | u8::from(decrypted) << 1 | u8::from(decrypted_from_tunnel) << 2
    }

    /// What it quotes names an association between these two: its SPI is a random number that only who is on the path has
    /// seen (RFC 4301 §8.2.1).
    fn has_sent(&self, report: &ErrorReport<'_>) -> bool {
        let Some((protocol, spi)) = quoted(report) else { return false };
        let canonical = |address: std::net::Ipv6Addr| IpAddr::V6(address).to_canonical();
        let name = Name { destination: canonical(report.remote), protocol, spi };
        self.engine.by_name(&name).is_some_and(|(_, association)| {
            association.parameters().source == canonical(report.local)
                && association.parameters().encapsulation.is_some() == (report.protocol == protocol::UDP)
                && association.usage().packets > 0
        })
    }

    fn overhead(&self, now: Instant, traffic: &Traffic, socket: Option<&Socket>) -> Overhead {
        if let Some(decision) = self.decisions.get(&self.policies, &self.engine, traffic, socket, now) {
            let Decision { front, overhead, far_end, .. } = *decision;
            return Overhead { front: Some(front), octets: overhead, far_end };
        }
        let (octets, far_end) = self.policies.overhead(&self.engine, traffic, socket, now);
        Overhead { front: None, octets, far_end }
    }

    fn close_socket(&mut self, socket: SocketId) {
        self.engine.close_socket(socket);
    }

    fn deadline(&self) -> Option<Instant> {
        if self.engine.has_released() {
            return Some(self.latest);
        }
        self.engine.deadline()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.latest = self.latest.max(now);
        let dropped = self.engine.handle_timeout(now);
        self.count_unkeyed(dropped);
    }

    fn next_released(&mut self, packet: &mut Vec<u8>) -> Option<Option<Socket>> {
        let released = self.engine.next_released()?;
        *packet = released.packet;
        Some(released.socket)
    }
}

/// The association that the packet names which an error quotes.
fn quoted(report: &ErrorReport<'_>) -> Option<(Protocol, Spi)> {
    let (protocol, at) = match report.protocol {
        protocol::ESP => (Protocol::Esp, 0),
        protocol::AUTHENTICATION => (Protocol::Ah, 4),
        protocol::UDP => (Protocol::Esp, udp::HEADER_LEN),
        _ => return None,
    };
    let spi = report.upper.get(at..)?.first_chunk()?;
    Some((protocol, Spi(u32::from_be_bytes(*spi))))
}

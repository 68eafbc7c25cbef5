//! Packets that raw sockets carry whole, from their IP header on: transport mode, AH, and associations by hand. What IKE
//! has agreed on as a tunnel of ESP has a way of its own (`outward`, `inward`), which copies less; here it only gets the
//! outer header that a raw socket wants.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Instant;

use ike::random::Random;
use ipsec::association::{Mode, Protocol, Spi};
use ipsec::drops::DropReason as IpsecDrop;
use ipsec::headers;
use ipsec::key_engine::Name;
use ipsec::marks::Marks;
use ipsec::packet_buffer::PacketBuffer;
use ipsec::policy::Bundle;
use ipsec::processing::{self, MAX_HEADROOM, MAX_TAILROOM, Progress, Step};
use ipsec::selector::Traffic;
use wire::ecn::Ecn;
use wire::segment::Segmenter;
use wire::{ecn, flow, icmp_error, ipv4, ipv6, mss, protocol, udp, virtio_net};

use super::Carrier;
use super::child::TELL_EVERY;
use super::inward::{hand_over, header_length};
use super::path_mtu::{self, MIN_MTU};
use super::received::Received;
use crate::deliver::Deliver;
use crate::drops::DropReason;
use crate::outbox::{Via, Way};

/// Hop limit of outer headers.
const HOP_LIMIT: u8 = 64;

impl<R: Random> Carrier<R> {
    /// Takes a packet of AH or ESP as a raw socket has received it, from its IP header on, put together if it came in
    /// fragments. Inner packets lie in `arena` when they are delivered.
    pub fn receive_packet(
        &mut self,
        arena: &mut [u8],
        at: Range<usize>,
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let packet = arena.get(at.clone()).unwrap_or_default();
        let (Ok((source, destination)), Ok(Some(found))) =
            (flow::addresses(packet), headers::find(packet, None))
        else {
            return self.drops.count(DropReason::Unreadable);
        };
        let tunnel = self.children.get(&found.spi.0).filter(|child| child.is_tunnel_of_esp());
        if found.protocol == Protocol::Esp && tunnel.is_some() {
            let esp = Received {
                at: at.start + header_length(packet)..at.end,
                segment: at.len(),
                via: Via::Raw,
                local: destination,
                remote: SocketAddr::new(source, 0),
                ecn: ecn::get(packet).unwrap_or(Ecn::NotEct),
            };
            return self.open_all(arena, &esp, now, deliver);
        }
        let Some(packet) = PacketBuffer::new(arena, at) else { return };
        if let Some(opened) = self.open_whole(packet, found.spi, now) {
            hand_over(arena, opened, deliver);
        }
    }

    /// Opens ESP that came in UDP, and is none of a tunnel of IKE's: the headers that the socket has taken away are made
    /// anew, as far as associations and checksums look at them.
    pub(super) fn open_in_udp(
        &mut self,
        arena: &mut [u8],
        at: Range<usize>,
        received: &Received,
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let esp = arena.get(at.clone()).unwrap_or_default();
        write_around(&mut scratch, esp, received, self.ports.nat);
        let spi = esp.first_chunk().map_or(0, |spi| u32::from_be_bytes(*spi));
        let whole = 0..scratch.len();
        let opened =
            PacketBuffer::new(&mut scratch, whole).and_then(|packet| self.open_whole(packet, Spi(spi), now));
        if let Some(opened) = opened {
            let (header, rest) = scratch[opened.clone()].split_at(header_length(&scratch[opened]));
            // What is behind the IP header is shorter than it was as ESP.
            let place = at.start..at.start + rest.len();
            if let Some(room) = arena.get_mut(place.clone()) {
                room.copy_from_slice(rest);
                deliver.packet(arena, header, place);
            }
        }
        self.scratch = scratch;
    }

    /// Opens all security headers of a packet to this host, and asks policy. Returns where the packet then is.
    fn open_whole(&mut self, mut packet: PacketBuffer<'_>, spi: Spi, now: Instant) -> Option<Range<usize>> {
        let (_, here) = flow::addresses(packet.packet()).ok()?;
        let mut progress = Progress::default();
        let nat = Some(self.ports.nat);
        loop {
            match processing::open(&mut self.engine, &mut packet, progress, nat, now) {
                Ok(Step::Opened(next)) => progress = next,
                Ok(Step::Plain) => break,
                Err(reason) => {
                    self.ipsec_drops.count(reason);
                    return None;
                }
            }
            // Out of a tunnel, for somebody behind this host.
            if flow::addresses(packet.packet()).is_ok_and(|(_, destination)| destination != here) {
                break;
            }
        }
        self.heard(spi, now);
        if progress.marks == Marks::NONE {
            self.drops.count(DropReason::NotSelected);
            return None;
        }
        let verdict = Traffic::of(packet.packet())
            .map_err(|_| IpsecDrop::Malformed)
            .and_then(|traffic| self.policies.input_policy(&traffic, progress.marks, None));
        if let Err(reason) = verdict {
            self.ipsec_drops.count(reason);
            return None;
        }
        Some(packet.range())
    }

    /// Something genuine has come, perhaps by a child of IKE.
    fn heard(&mut self, spi: Spi, now: Instant) {
        let Some(child) = self.children.get_mut(&spi.0) else { return };
        child.heard = Some(now);
        if child.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL_EVERY) {
            child.told = Some(now);
            self.ike.saw_traffic(now, child.ike);
        }
    }

    /// Whether there is something to open a packet of ESP with that is none of a child's.
    pub(super) fn has_by_hand(&self, spi: u32, here: IpAddr) -> bool {
        let name = Name { destination: here, protocol: Protocol::Esp, spi: Spi(spi) };
        self.engine.by_name(&name).is_some()
    }

    /// Protects the segments of a packet by a bundle of associations, and puts them out whole.
    pub(super) fn seal_whole(
        &mut self,
        bundle: &Bundle,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let Ok((_, mut far_end)) = flow::addresses(packet) else {
            return self.drops.count(DropReason::Unreadable);
        };
        let mut overhead = 0;
        for association in bundle.iter().filter_map(|id| self.engine.get(id)) {
            overhead += association.overhead();
            if association.parameters().mode == Mode::Tunnel {
                far_end = association.parameters().destination;
            }
        }
        let limit = usize::from(self.path_mtu(far_end)).saturating_sub(overhead);
        let is_ipv6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let max_mss = if is_ipv6 { mss::for_ipv6_mtu(limit as u16) } else { mss::for_ipv4_mtu(limit as u16) };
        mss::clamp(packet, max_mss, header.transport_checksum());
        let Ok(mut segmenter) = Segmenter::new(header, packet) else {
            return self.drops.count(DropReason::Unreadable);
        };
        // What is longer than the way carries is cut outside.
        let longest = if is_ipv6 { limit.max(MIN_MTU.into()) } else { limit };
        if segmenter.largest_segment() > longest {
            self.drops.count(DropReason::TooBig);
            let reason = icmp_error::Reason::PacketTooBig { mtu: longest as u32 };
            return self.tell(reason, packet, now, deliver);
        }
        while let Some(segment) = segmenter.next() {
            let length = segment.len();
            let end = MAX_HEADROOM + length;
            self.scratch.resize(end + MAX_TAILROOM, 0);
            let (head, rest) = self.scratch[MAX_HEADROOM..end].split_at_mut(segment.head.len());
            head.copy_from_slice(segment.head);
            rest.copy_from_slice(segment.payload);
            self.identification = identify(head, self.identification);
            let Some(mut whole) = PacketBuffer::new(&mut self.scratch, MAX_HEADROOM..end) else { return };
            if let Err(reason) = processing::seal(&mut self.engine, bundle, &mut whole, now) {
                return self.ipsec_drops.count(reason);
            }
            let Ok((local, remote)) = flow::addresses(whole.packet()) else { return };
            let way = Way { via: Via::Raw, local, remote: SocketAddr::new(remote, 0) };
            if length <= limit {
                self.outbox.datagram(&way, 0, whole.len()).copy_from_slice(whole.packet());
            } else {
                path_mtu::send_in_fragments(&mut self.outbox, &way, whole.packet_mut());
            }
        }
    }
}

/// Writes the header of IP that a raw socket wants before ESP of a tunnel, for `length` bytes behind it.
pub(super) fn write_outer(way: &Way, traffic_class: u8, length: usize, header: &mut [u8]) {
    if header.is_empty() {
        return;
    }
    match (way.local, way.remote.ip()) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => header.copy_from_slice(
            &ipv6::Header {
                traffic_class,
                flow_label: 0,
                payload_length: length as u16,
                next_header: protocol::ESP,
                hop_limit: HOP_LIMIT,
                source,
                destination,
            }
            .to_bytes(),
        ),
        (IpAddr::V4(source), IpAddr::V4(destination)) => header.copy_from_slice(
            &ipv4::Header {
                type_of_service: traffic_class,
                total_length: (ipv4::HEADER_LEN + length) as u16,
                // The kernel makes one.
                identification: 0,
                dont_fragment: true,
                time_to_live: HOP_LIMIT,
                protocol: protocol::ESP,
                source,
                destination,
            }
            .to_bytes(),
        ),
        _ => header.fill(0),
    }
}

/// Bytes of an outer header.
pub(super) fn outer_length(way: &Way) -> usize {
    match way.via {
        Via::Raw if way.remote.is_ipv6() => ipv6::HEADER_LEN,
        Via::Raw => ipv4::HEADER_LEN,
        Via::Ike | Via::Nat => 0,
    }
}

/// Writes a packet of ESP in UDP to `out`, as it arrived.
fn write_around(out: &mut Vec<u8>, esp: &[u8], received: &Received, port: u16) {
    out.clear();
    let length = udp::HEADER_LEN + esp.len();
    match (received.remote.ip(), received.local) {
        (IpAddr::V6(source), IpAddr::V6(destination)) => out.extend_from_slice(
            &ipv6::Header {
                traffic_class: received.ecn.bits(),
                flow_label: 0,
                payload_length: length as u16,
                next_header: protocol::UDP,
                hop_limit: HOP_LIMIT,
                source,
                destination,
            }
            .to_bytes(),
        ),
        (IpAddr::V4(source), IpAddr::V4(destination)) => out.extend_from_slice(
            &ipv4::Header {
                type_of_service: received.ecn.bits(),
                total_length: (ipv4::HEADER_LEN + length) as u16,
                identification: 0,
                dont_fragment: true,
                time_to_live: HOP_LIMIT,
                protocol: protocol::UDP,
                source,
                destination,
            }
            .to_bytes(),
        ),
        _ => return,
    }
    let header = udp::Header {
        source_port: received.remote.port(),
        destination_port: port,
        length: length as u16,
        checksum: 0,
    };
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(esp);
}

/// Gives a packet of IPv4 an identification if it has none: AH covers it, and the kernel would make one behind that. Returns
/// the next one.
fn identify(head: &mut [u8], next: u16) -> u16 {
    let length = header_length(head);
    if head.first().is_none_or(|first| first >> 4 != 4) || head.get(4..6) != Some(&[0, 0]) {
        return next;
    }
    let Some(ip) = head.get_mut(..length).filter(|ip| ip.len() >= ipv4::HEADER_LEN) else { return next };
    ip[4..6].copy_from_slice(&next.to_be_bytes());
    ipv4::write_checksum(ip);
    next.wrapping_add(1).max(1)
}

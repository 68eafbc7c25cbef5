//! Inner packets on their way out: policy, association, segments, the outbox.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use ike::random::Random;
use ipsec::association::{Mode, Protocol};
use ipsec::drops::DropReason as IpsecDrop;
use ipsec::key_engine::AssociationId;
use ipsec::policy::Output;
use ipsec::selector::Traffic;
use ipsec::tunnel_payload;
use wire::segment::Segmenter;
use wire::{ecn, flow, icmp_error, ipv4, ipv6, mss, udp, virtio_net};

use super::Carrier;
use super::child::Child;
use super::recent::Protection;
use super::whole::{outer_length, write_outer};
use crate::deliver::Deliver;
use crate::drops::DropReason;
use crate::outbox::{Via, Way};

/// Errors to inner senders have at least this time between them (RFC 4443 §2.4 f).
const BETWEEN_ERRORS: Duration = Duration::from_millis(5);
/// What is to be done with a packet.
enum Choice {
    By(Protection),
    Wait(ipsec::acquire::AcquireId),
}

impl<R: Random> Carrier<R> {
    /// Takes an inner packet or GSO packet, with the header that a TUN device puts before it.
    pub fn send(
        &mut self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let (Ok(traffic), Ok(hash)) = (Traffic::of(packet), flow::hash(packet)) else {
            return self.drops.count(DropReason::Unreadable);
        };
        let protection = match self.recent.get(hash, &traffic) {
            Some(protection) => protection,
            None => match self.choose(&traffic, now) {
                Ok(Choice::By(protection)) => {
                    self.recent.put(hash, &traffic, protection);
                    protection
                }
                Ok(Choice::Wait(acquire)) => return self.wait(acquire, header, packet, now, deliver),
                Err(()) => {
                    return self.tell(icmp_error::Reason::AdministrativelyProhibited, packet, now, deliver);
                }
            },
        };
        let has_ended = match protection {
            Protection::Tunnel(id) => {
                self.seal(id, header, packet, now, deliver);
                self.has_ended(id, now)
            }
            Protection::Whole(bundle) => {
                self.seal_whole(&bundle, header, packet, now, deliver);
                bundle.iter().any(|id| self.has_ended(id, now))
            }
        };
        if has_ended {
            // The next packet asks for another.
            self.recent.clear();
            self.settle(now, deliver);
        }
    }

    pub(super) fn has_ended(&self, id: AssociationId, now: Instant) -> bool {
        self.engine.get(id).is_none_or(|association| !association.can_send(now))
    }

    /// Takes an inner packet that is whole, its checksums complete.
    pub(super) fn send_whole(&mut self, packet: &mut [u8], now: Instant, deliver: &mut dyn Deliver) {
        self.send(&virtio_net::Header::NONE, packet, now, deliver);
    }

    /// The largest inner packet of an IP version that all children carry; what they would carry by IPv6 and AES-GCM, if there
    /// is none.
    pub fn inner_mtu(&self) -> u16 {
        let of = |child: &Child| {
            let association = self.engine.get(child.outbound_id)?;
            let path_mtu = self.path_mtu(child.way.remote.ip());
            if !child.is_tunnel_of_esp() {
                return Some(path_mtu - association.overhead() as u16);
            }
            Some(tunnel_payload::largest_packet(association, room(path_mtu, &child.way))? as u16)
        };
        // ESP header, IV, at most three bytes of padding, trailer, ICV.
        const AROUND: u16 = 8 + 8 + 3 + 2 + 16;
        const OUTER: u16 = (ipv6::HEADER_LEN + udp::HEADER_LEN) as u16;
        let without = self.link_mtu - OUTER - AROUND;
        let children = self.children.values().filter(|child| !child.is_replaced).filter_map(of);
        children.chain(self.mtu_by_hand()).min().unwrap_or(without)
    }

    /// What fits where packets go through all kinds of associations that are none of IKE's.
    fn mtu_by_hand(&self) -> Option<u16> {
        if !self.has_raw {
            return None;
        }
        let of_ike: HashSet<AssociationId> =
            self.children.values().flat_map(|child| [child.inbound_id, child.outbound_id]).collect();
        let mut longest: HashMap<(Protocol, Mode), usize> = HashMap::new();
        for (id, association) in self.engine.associations() {
            if !of_ike.contains(&id) {
                let kind = (association.protocol(), association.parameters().mode);
                let longest = longest.entry(kind).or_default();
                *longest = association.overhead().max(*longest);
            }
        }
        let mtu = self.path_mtus.values().copied().min().unwrap_or(self.link_mtu).min(self.link_mtu);
        (!longest.is_empty()).then(|| mtu - longest.values().sum::<usize>() as u16)
    }

    #[cold]
    fn choose(&mut self, traffic: &Traffic, now: Instant) -> Result<Choice, ()> {
        match self.policies.output_policy(&mut self.engine, traffic, None, now) {
            Ok(Output::Delay(acquire)) => Ok(Choice::Wait(acquire)),
            Ok(Output::Send(bundle)) => {
                let mut all = bundle.iter();
                match (all.next(), all.next()) {
                    (Some(id), None) if self.is_tunnel_of_ike(id) => Ok(Choice::By(Protection::Tunnel(id))),
                    (Some(_), _) if self.has_raw => Ok(Choice::By(Protection::Whole(bundle))),
                    _ => {
                        self.drops.count(DropReason::NoTunnel);
                        Err(())
                    }
                }
            }
            Err(error) => {
                self.ipsec_drops.count(error.into());
                Err(())
            }
        }
    }

    fn is_tunnel_of_ike(&self, id: AssociationId) -> bool {
        let child = self.by_outbound.get(&id).and_then(|spi| self.children.get(spi));
        child.is_some_and(Child::is_tunnel_of_esp)
    }

    /// Keeps the packet until there is an association for it, segment by segment.
    #[cold]
    fn wait(
        &mut self,
        acquire: ipsec::acquire::AcquireId,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let Ok(mut segmenter) = Segmenter::new(header, packet) else {
            return self.drops.count(DropReason::Unreadable);
        };
        while let Some(segment) = segmenter.next() {
            self.scratch.clear();
            self.scratch.extend_from_slice(segment.head);
            self.scratch.extend_from_slice(segment.payload);
            if !self.engine.delay(acquire, &self.scratch, None) {
                self.ipsec_drops.count(IpsecDrop::TooMany);
            }
        }
        self.settle(now, deliver);
    }

    fn seal(
        &mut self,
        id: AssociationId,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let child = self.by_outbound.get(&id).and_then(|spi| self.children.get_mut(spi));
        let (way, unanswered) = child.map(|child| (child.way, child.sends(now).then_some(child.ike))).unzip();
        let path_mtu = way.map(|way| room(self.path_mtu(way.remote.ip()), &way));
        let (Some(association), Some(way), Some(room)) = (self.engine.get_mut(id), way, path_mtu) else {
            return self.ipsec_drops.count(IpsecDrop::NoAssociation);
        };
        let limit = tunnel_payload::largest_packet(association, room).unwrap_or(0);
        let is_ipv6 = packet.first().is_some_and(|first| first >> 4 == 6);
        let max_mss = if is_ipv6 { mss::for_ipv6_mtu(limit as u16) } else { mss::for_ipv4_mtu(limit as u16) };
        mss::clamp(packet, max_mss, header.transport_checksum());
        let traffic_class = outer_traffic_class(packet);
        let Ok(mut segmenter) = Segmenter::new(header, packet) else {
            return self.drops.count(DropReason::Unreadable);
        };
        if segmenter.largest_segment() > limit {
            self.drops.count(DropReason::TooBig);
            let reason = icmp_error::Reason::PacketTooBig { mtu: limit as u32 };
            return self.tell(reason, packet, now, deliver);
        }
        while let Some(segment) = segmenter.next() {
            let Some(size) = tunnel_payload::sealed_length(association, segment.len()) else { break };
            let front = outer_length(&way);
            let outside = if front == 0 { traffic_class } else { 0 };
            let (outer, esp) = self.outbox.datagram(&way, outside, front + size).split_at_mut(front);
            write_outer(&way, traffic_class, size, outer);
            let sealed = tunnel_payload::seal(association, [segment.head, segment.payload], esp, now);
            if let Err(error) = sealed {
                self.outbox.cancel_last(front + size);
                self.ipsec_drops.count(error.into());
                break;
            }
        }
        self.engine.used(id, now);
        if let Some(ike) = unanswered.flatten() {
            // One that is about to end need not be asked.
            let _ = self.ike.check_liveness(now, ike);
            self.settle(now, deliver);
        }
    }

    /// Tells an inner sender, at a limited rate.
    #[cold]
    pub(super) fn tell(
        &mut self,
        reason: icmp_error::Reason,
        invoking: &[u8],
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        if now < self.next_error {
            return;
        }
        self.next_error = now + BETWEEN_ERRORS;
        let Ok((_, destination)) = flow::addresses(invoking) else { return };
        let same_version = |address: &&IpAddr| address.is_ipv6() == destination.is_ipv6();
        let source = self.own.iter().find(same_version).copied().unwrap_or(destination);
        let mut out = [0; icmp_error::MAX_LEN];
        if let Ok(length) = icmp_error::build(reason, source, invoking, &mut out) {
            deliver.whole_packet(&out[..length]);
        }
    }
}

/// Bytes for ESP, in UDP or not, on a path of this MTU.
fn room(path_mtu: u16, way: &Way) -> usize {
    let ip = if way.remote.is_ipv6() { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
    let udp = if way.via == Via::Raw { 0 } else { udp::HEADER_LEN };
    usize::from(path_mtu) - ip - udp
}

/// DSCP as inside, congestion by RFC 6040.
fn outer_traffic_class(packet: &[u8]) -> u8 {
    let inside = match packet {
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        [_, second, ..] => *second,
        _ => 0,
    };
    inside & !3 | ecn::encapsulate(ecn::Ecn::from_bits(inside)).bits()
}

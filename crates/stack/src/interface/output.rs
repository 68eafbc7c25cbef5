//! The way of a packet that is sent: source address, security, path MTU and fragments, next hop, neighbor, frame.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use ipsec::policy::Socket;
use ipsec::selector::Traffic;
use wire::ethernet::{self, ETHERTYPE_IPV4, ETHERTYPE_IPV6, MacAddress};
use wire::flow;
use wire::ipv6::{self, Packet};
use wire::ndp::multicast_mac;
use wire::virtio_net;

use super::{Interface, MAX_LOOPED, Medium};
use crate::DropReason;
use crate::ipv6::fragmentation;
use crate::neighbor::Resolution;
use crate::route::NextHop;
use crate::security::{Protected, Refused, Security, Sender};
use crate::source_address;

/// What an upper layer says of a packet to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outgoing {
    /// Where from; `None`: as RFC 6724 chooses. See [`Interface::source_for`], for checksums.
    pub source: Option<Ipv6Addr>,
    /// Where to.
    pub destination: Ipv6Addr,
    /// The upper layer's protocol.
    pub protocol: u8,
    /// The hop limit; `None`: that of the link.
    pub hop_limit: Option<u8>,
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The flow label.
    pub flow_label: u32,
}

/// Why a packet cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Longer than a packet can be.
    #[error("the packet is too long")]
    TooLong,
    /// No address of ours can be its source.
    #[error("no source address")]
    NoSource,
    /// Security forbids it, or there is neither an association nor a daemon to make one: NRL's `EIPSEC`
    /// ([`ipsec::key_engine::EIPSEC`]).
    #[error("security forbids the packet, or is not there")]
    Security,
    /// It was dropped on the way: no route, no room.
    #[error("dropped: {}", .0.name())]
    Dropped(DropReason),
}

/// Why a packet is sent: strangers must not push out whom we talk to by what they make us answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    OwnTraffic,
    Answer,
}

/// Where a packet goes on the link.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hop {
    /// The other end.
    OtherEnd,
    /// A group.
    Group(MacAddress),
    /// A neighbor, which may have to be asked for.
    Neighbor(Ipv6Addr),
}

impl<S: Security> Interface<S> {
    /// Sends a packet of an upper layer, whose header and data are `parts` one after the other. It may wait for its
    /// neighbor; if that does not answer, an error comes later.
    ///
    /// # Errors
    /// When it cannot be sent; see [`SendError`].
    pub fn send(&mut self, now: Instant, outgoing: &Outgoing, parts: &[&[u8]]) -> Result<(), SendError> {
        self.send_for(now, outgoing, parts, Sender::Own(None))
    }

    /// As [`Interface::send`], for a socket of an upper layer, protected as policy and socket ask, or in answer to a
    /// stranger. It may wait for an association.
    ///
    /// # Errors
    /// When it cannot be sent; see [`SendError`].
    pub fn send_for(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        parts: &[&[u8]],
        sender: Sender<'_>,
    ) -> Result<(), SendError> {
        if let Some(destination) = outgoing.destination.to_ipv4_mapped() {
            return self.send_ipv4(now, outgoing, destination, parts, sender);
        }
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let header = self.ipv6_header_of(now, outgoing, length)?;
        let mut packet = std::mem::take(&mut self.building);
        let start = self.start_packet(&mut packet);
        packet.extend_from_slice(&header.to_bytes());
        for part in parts {
            packet.extend_from_slice(part);
        }
        let sent = self.transmit(now, &mut packet, start, sender);
        self.building = packet;
        self.act(now, &mut super::NoUpper);
        sent
    }

    /// The header of a packet with so much payload.
    pub(super) fn ipv6_header_of(
        &self,
        now: Instant,
        outgoing: &Outgoing,
        length: usize,
    ) -> Result<ipv6::Header, SendError> {
        let payload_length = u16::try_from(length).map_err(|_| SendError::TooLong)?;
        let chosen = outgoing.source.or_else(|| self.source_for(now, outgoing.destination));
        let source =
            chosen.filter(|source| self.addresses.is_assigned(*source)).ok_or(SendError::NoSource)?;
        Ok(ipv6::Header {
            traffic_class: outgoing.traffic_class,
            flow_label: outgoing.flow_label,
            payload_length,
            next_header: outgoing.protocol,
            hop_limit: outgoing.hop_limit.unwrap_or(self.hop_limit),
            source,
            destination: outgoing.destination,
        })
    }

    /// Makes room for a packet's frame and protection, and returns where it begins.
    pub(super) fn start_packet(&self, packet: &mut Vec<u8>) -> usize {
        let start = self.link_header() + S::HEADROOM;
        packet.clear();
        packet.resize(start, 0);
        start
    }

    /// Octets of a frame before its packet.
    pub(super) fn link_header(&self) -> usize {
        match self.medium {
            Medium::Ethernet(_) => ethernet::HEADER_LEN,
            Medium::Ip => 0,
        }
    }

    /// As [`Interface::send_for`], for what is in a buffer from `at` on, with room for headers before it: see
    /// [`Interface::room_for_headers`]. The buffer may be another then.
    pub(crate) fn send_built(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        buffer: &mut Vec<u8>,
        at: usize,
        sender: Sender<'_>,
    ) -> Result<(), SendError> {
        let start = self.write_ip_header(now, outgoing, buffer, at)?;
        let sent = self.transmit(now, buffer, start, sender);
        self.act(now, &mut super::NoUpper);
        sent
    }

    /// How much room an upper layer's packet needs before it, so that nothing has to be moved.
    pub(crate) fn room_for_headers(&self, is_ipv4: bool) -> usize {
        self.link_header() + if is_ipv4 { wire::ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
    }

    /// Writes the IP header of what is in a buffer from `at` on before it. Returns where it begins.
    pub(super) fn write_ip_header(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        buffer: &mut [u8],
        at: usize,
    ) -> Result<usize, SendError> {
        let length = buffer.len().saturating_sub(at);
        if let Some(destination) = outgoing.destination.to_ipv4_mapped() {
            let header = self.ipv4_header_of(outgoing, destination, length)?.to_bytes();
            return Ok(write_before(buffer, at, &header));
        }
        let header = self.ipv6_header_of(now, outgoing, length)?.to_bytes();
        Ok(write_before(buffer, at, &header))
    }

    /// Whether a packet to `destination` may come from this address of ours.
    pub fn is_ours(&self, address: Ipv6Addr, destination: Ipv6Addr) -> bool {
        if destination.to_ipv4_mapped().is_some() {
            return self.ipv4.is_some_and(|ipv4| ipv4.address.addr().to_ipv6_mapped() == address);
        }
        self.addresses.is_assigned(address)
    }

    /// The address that a packet to `destination` is sent from (RFC 6724 §5).
    pub fn source_for(&self, now: Instant, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        if destination.to_ipv4_mapped().is_some() {
            return self.ipv4.map(|ipv4| ipv4.address.addr().to_ipv6_mapped());
        }
        source_address::select(destination, self.addresses.candidates(now)).map(|best| best.address)
    }

    /// A transport has had news from this destination that prove its neighbor reachable (RFC 4861 §7.3.1).
    pub fn confirm(&mut self, now: Instant, destination: Ipv6Addr) {
        if let Ok(Hop::Neighbor(neighbor)) = self.hop(now, destination) {
            self.neighbors.confirm(now, neighbor);
            self.table.reached(neighbor);
        }
    }

    /// Whether security lets packets of a kind leave, now or once there is what protects them, which is asked for. What
    /// stays on this host may.
    ///
    /// # Errors
    /// [`SendError::Security`].
    pub fn prepare(
        &mut self,
        now: Instant,
        traffic: &Traffic,
        socket: Option<&Socket>,
    ) -> Result<(), SendError> {
        let ours = match traffic.destination {
            IpAddr::V6(destination) => self.addresses.is_assigned(destination),
            IpAddr::V4(destination) => self.ipv4.is_some_and(|ipv4| ipv4.address.addr() == destination),
        };
        if ours {
            return Ok(());
        }
        self.security.prepare(now, traffic, socket).map_err(|Refused| SendError::Security)
    }

    /// Whether a packet to ourselves would find room. Those that wait are received at [`Interface::deadline`].
    pub(crate) fn has_room_for_own(&self) -> bool {
        self.looped.len() < MAX_LOOPED
    }

    /// Sends a whole packet: what is in the buffer from `start` on.
    pub(super) fn transmit(
        &mut self,
        now: Instant,
        packet: &mut Vec<u8>,
        start: usize,
        sender: Sender<'_>,
    ) -> Result<(), SendError> {
        let range = if self.is_to_ourselves(packet.get(start..).unwrap_or_default()) {
            start..packet.len()
        } else {
            match self.security.protect(now, packet, start, sender) {
                Ok(Protected::Send(range)) => range,
                Ok(Protected::Waits) => return Ok(()),
                Err(Refused) => {
                    self.drops.count(DropReason::Security);
                    return Err(SendError::Security);
                }
            }
        };
        let purpose = match sender {
            Sender::Own(_) => Purpose::OwnTraffic,
            Sender::Stranger { .. } => Purpose::Answer,
        };
        packet.truncate(range.end);
        self.route(now, packet, range.start, purpose).map_err(|reason| {
            self.drops.count(reason);
            SendError::Dropped(reason)
        })
    }

    /// Sends an answer or an error: nobody waits for it, and what goes wrong is counted.
    pub(super) fn answer(&mut self, now: Instant, packet: &mut Vec<u8>, secret: bool) {
        let _ = self.transmit(now, packet, 0, Sender::Stranger { secret, socket: None });
    }

    /// Sends what has waited for associations. What goes wrong is counted: whose call it was has returned long ago.
    pub(super) fn send_released(&mut self, now: Instant) {
        let mut packet = std::mem::take(&mut self.building);
        while let Some(socket) = self.security.next_released(&mut packet) {
            let _ = self.transmit(now, &mut packet, 0, Sender::Own(socket.as_ref()));
        }
        self.building = packet;
    }

    fn is_to_ourselves(&self, packet: &[u8]) -> bool {
        match flow::addresses(packet) {
            Ok((_, IpAddr::V6(destination))) => self.addresses.is_assigned(destination),
            Ok((_, IpAddr::V4(destination))) => {
                self.ipv4.is_some_and(|ipv4| ipv4.address.addr() == destination)
            }
            Err(_) => false,
        }
    }

    fn route(
        &mut self,
        now: Instant,
        buffer: &mut Vec<u8>,
        start: usize,
        purpose: Purpose,
    ) -> Result<(), DropReason> {
        let packet = buffer.get(start..).unwrap_or_default();
        if packet.first().is_some_and(|first| first >> 4 == 4) {
            return self.route_ipv4(now, buffer, start, purpose);
        }
        let view = Packet::parse(packet).map_err(|_| DropReason::Malformed)?;
        let destination = view.destination();
        if self.addresses.is_assigned(destination) {
            if self.looped.len() >= MAX_LOOPED {
                return Err(DropReason::QueueFull);
            }
            self.looped.push_back(packet.to_vec());
            self.looped_at = now;
            return Ok(());
        }
        let hop = self.hop(now, destination)?;
        let mtu = self.destinations.path_mtu(now, destination, self.link_mtu);
        if packet.len() <= mtu {
            return self.deliver(now, hop, buffer, start, purpose);
        }
        let identification = self.identifications.next(view.source(), destination);
        let mut result = Ok(());
        let done = fragmentation::fragment(&view, mtu, identification, |headers, data| {
            result = result.and(self.deliver_fragment(now, hop, headers, data, purpose));
        });
        if done { result } else { Err(DropReason::Malformed) }
    }

    /// Sends a fragment to its hop.
    pub(super) fn deliver_fragment(
        &mut self,
        now: Instant,
        hop: Hop,
        headers: &[u8],
        data: &[u8],
        purpose: Purpose,
    ) -> Result<(), DropReason> {
        let start = self.link_header();
        let mut fragment = std::mem::take(&mut self.fragment);
        fragment.clear();
        fragment.resize(start, 0);
        fragment.extend_from_slice(headers);
        fragment.extend_from_slice(data);
        let delivered = self.deliver(now, hop, &mut fragment, start, purpose);
        self.fragment = fragment;
        delivered
    }

    /// The first hop: as a redirect has it, or the table (RFC 4861 §5.2).
    pub(super) fn hop(&mut self, now: Instant, destination: Ipv6Addr) -> Result<Hop, DropReason> {
        if destination.is_unspecified() || destination.is_loopback() {
            return Err(DropReason::ImpossibleAddress);
        }
        if self.medium == Medium::Ip {
            return Ok(Hop::OtherEnd);
        }
        if let Some(destination) = destination.to_ipv4_mapped() {
            let first = self.ipv4.and_then(|ipv4| ipv4.first_hop(destination));
            return first.map(|first| Hop::Neighbor(first.to_ipv6_mapped())).ok_or(DropReason::NoRoute);
        }
        if destination.is_multicast() {
            return Ok(Hop::Group(multicast_mac(destination)));
        }
        self.first_hop(now, destination).map(Hop::Neighbor).ok_or(DropReason::NoRoute)
    }

    /// The neighbor that packets to a destination go to.
    pub(super) fn first_hop(&mut self, now: Instant, destination: Ipv6Addr) -> Option<Ipv6Addr> {
        if let Some(hop) = self.destinations.first_hop(now, destination) {
            return Some(hop);
        }
        let neighbors = &self.neighbors;
        let hop = self.table.next_hop(now, destination, |router| neighbors.may_be_reachable(router))?;
        if let Some(better) = self.table.better_router() {
            self.neighbors.probe(now, better);
        }
        match hop {
            NextHop::OnLink => Some(destination),
            NextHop::Router(router) => Some(router),
        }
    }

    /// Sends a packet, which is in the buffer from `start` on, to its hop. The buffer may be another then.
    pub(super) fn deliver(
        &mut self,
        now: Instant,
        hop: Hop,
        buffer: &mut Vec<u8>,
        start: usize,
        purpose: Purpose,
    ) -> Result<(), DropReason> {
        let packet = buffer.get(start..).unwrap_or_default();
        let to = match hop {
            Hop::OtherEnd => MacAddress::default(),
            Hop::Group(to) => to,
            Hop::Neighbor(neighbor) => {
                match self.neighbors.resolve(now, neighbor, packet, purpose == Purpose::OwnTraffic) {
                    Resolution::Known(to) => to,
                    Resolution::Queued => return Ok(()),
                    Resolution::Displaced => {
                        self.drops.count(DropReason::QueueFull);
                        return Ok(());
                    }
                    Resolution::Dropped(reason) => return Err(reason),
                }
            }
        };
        let sent = if start == self.link_header() {
            self.frame_around(to, buffer, virtio_net::Header::NONE)
        } else {
            self.frame(to, packet)
        };
        if sent { Ok(()) } else { Err(DropReason::QueueFull) }
    }

    /// Puts a link header before a packet that has just the room for it, and takes the buffer. Returns whether there was
    /// room.
    pub(super) fn frame_around(
        &mut self,
        destination: MacAddress,
        buffer: &mut Vec<u8>,
        header: virtio_net::Header,
    ) -> bool {
        self.write_link_header(destination, buffer);
        self.outbox.take(buffer, header)
    }

    /// Writes the link's header, where the medium has one, into the room that is kept for it.
    pub(super) fn write_link_header(&self, destination: MacAddress, buffer: &mut [u8]) {
        let Medium::Ethernet(source) = self.medium else { return };
        let is_ipv4 = buffer.get(ethernet::HEADER_LEN).is_some_and(|first| first >> 4 == 4);
        let ethertype = if is_ipv4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
        let link = ethernet::Header { destination, source, ethertype };
        if let Some(room) = buffer.first_chunk_mut() {
            *room = link.to_bytes();
        }
    }

    /// Puts a packet into a frame to `to`, where the medium has frames; returns whether there was room.
    pub(super) fn frame(&mut self, to: MacAddress, packet: &[u8]) -> bool {
        let is_ipv4 = packet.first().is_some_and(|first| first >> 4 == 4);
        self.frame_of(to, if is_ipv4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 }, packet)
    }

    pub(super) fn frame_of(&mut self, destination: MacAddress, ethertype: u16, payload: &[u8]) -> bool {
        match self.medium {
            Medium::Ip => self.outbox.push([&[], payload]),
            Medium::Ethernet(source) => {
                let header = ethernet::Header { destination, source, ethertype };
                self.outbox.push([&header.to_bytes(), payload])
            }
        }
    }

    /// Sends a message of the link's own: to the group that it is addressed to, or to `to`.
    pub(super) fn send_on_link(&mut self, packet: &[u8], to: Option<MacAddress>) {
        let Ok(view) = Packet::parse(packet) else { return };
        let to = to.unwrap_or_else(|| multicast_mac(view.destination()));
        if !self.frame(to, packet) {
            self.drops.count(DropReason::QueueFull);
        }
    }
}

/// Writes a header before what begins at `at`, and returns where it begins.
fn write_before(buffer: &mut [u8], at: usize, header: &[u8]) -> usize {
    let start = at.saturating_sub(header.len());
    if let Some(room) = buffer.get_mut(start..start + header.len()) {
        room.copy_from_slice(header);
    }
    start
}

//! What is left to the device: cutting a large packet into segments, and checksums, both ways.
//!
//! A TUN device opened with `IFF_VNET_HDR` has a header before each packet that says what is still to be done to it
//! ([`virtio_net`]); on a TAP device its places count from the frame. So one packet stands for up to 64 KB of a TCP stream,
//! and goes through the stack once. Of what is protected or in fragments, nothing is left to a device.
//!
//! Where the device has no offloads, several segments go through TCP as one all the same, and are cut here.

use std::time::Instant;

use ipsec::policy::Socket;
use ipsec::selector::Traffic;
use wire::ethernet::{ETHERTYPE_ARP, MacAddress};
use wire::segment::Segmenter;
use wire::{ipv4, protocol, tcp, virtio_net};

use super::arrival::Arrived;
use super::output::{Hop, Outgoing, SendError};
use super::upper::Upper;
use super::{Interface, Medium};
use crate::DropReason;
use crate::neighbor::Resolution;
use crate::security::{Security, Sender};

/// A TCP segment with a buffer of its own, which has room for headers before it: see [`Interface::room_for_headers`].
pub(crate) struct Built<'a> {
    pub(crate) buffer: &'a mut Vec<u8>,
    /// Where it begins there.
    pub(crate) at: usize,
    /// Octets of its header.
    pub(crate) header_len: usize,
    /// Payload octets of each segment that it stands for, if it is more than one.
    pub(crate) segment_size: Option<u16>,
    /// Its payload, if it is cut here and nothing is left to the device; it may also be in the buffer.
    pub(crate) cut: Option<&'a [u8]>,
    /// The socket for which what is cut is protected.
    pub(crate) protected: Option<Socket>,
}

impl<S: Security> Interface<S> {
    /// As [`Interface::receive`], for a device that leaves something to be done or has done something: `header` is what it
    /// says of the frame or packet. The bytes may be changed.
    pub fn receive_offloaded(
        &mut self,
        now: Instant,
        header: &virtio_net::Header,
        bytes: &mut [u8],
        upper: &mut impl Upper,
    ) {
        let (link, from) = match self.medium {
            Medium::Ip => (0, Arrived::OtherEnd),
            Medium::Ethernet(own) => match self.open_frame(bytes, own) {
                Ok((ETHERTYPE_ARP, ..)) => return self.receive(now, bytes, upper),
                Ok((_, from, _)) => (self.link_header(), from),
                Err(reason) => return self.drop(reason),
            },
        };
        let packet = bytes.get_mut(link..).unwrap_or_default();
        let is_partial = header.flags & virtio_net::NEEDS_CSUM != 0;
        let is_verified = is_partial || header.flags & virtio_net::DATA_VALID != 0 || header.is_gso();
        if is_tcp(packet) || !(is_partial || header.is_gso()) {
            self.receive_packet(now, packet, from, is_verified, upper);
        } else {
            self.receive_segments(now, &from_packet(header, link), packet, from, upper);
        }
        self.act(now, upper);
    }

    /// A packet that stands for several, or whose checksum is to be completed, of which TCP is not given all at once.
    fn receive_segments(
        &mut self,
        now: Instant,
        header: &virtio_net::Header,
        packet: &mut [u8],
        from: Arrived,
        upper: &mut impl Upper,
    ) {
        let Ok(mut segments) = Segmenter::new(header, packet) else {
            return self.drop(DropReason::Malformed);
        };
        let mut whole = std::mem::take(&mut self.building);
        while let Some(segment) = segments.next() {
            whole.clear();
            whole.extend_from_slice(segment.head);
            whole.extend_from_slice(segment.payload);
            self.receive_packet(now, &whole, from, false, upper);
        }
        self.building = whole;
    }

    /// Whether something of a packet may be left to the device: nothing protects it, and it does not wait for the neighbor's
    /// address.
    pub(crate) fn may_offload(&mut self, now: Instant, traffic: &Traffic, socket: Option<&Socket>) -> bool {
        let destination = match traffic.destination {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            std::net::IpAddr::V6(v6) => v6,
        };
        let is_ours = self.addresses.is_assigned(destination)
            || self.ipv4.is_some_and(|ipv4| ipv4.address.addr().to_ipv6_mapped() == destination);
        if is_ours || !self.security.passes(now, traffic, socket) {
            return false;
        }
        self.leaves_at_once(now, destination)
    }

    /// Whether several packets of a kind may be protected and sent one right after the other, and then the room that each
    /// needs before it: what protects them is there, and they do not wait for the neighbor's address.
    pub(crate) fn may_cut_protected(
        &mut self,
        now: Instant,
        traffic: &Traffic,
        socket: Option<&Socket>,
    ) -> Option<usize> {
        let overhead = self.security.overhead(now, traffic, socket);
        let front = overhead.front.filter(|front| *front > 0)?;
        let end = match overhead.far_end.unwrap_or(traffic.destination) {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            std::net::IpAddr::V6(v6) => v6,
        };
        self.leaves_at_once(now, end).then_some(front)
    }

    /// Whether a packet to there does not wait for the neighbor's address.
    fn leaves_at_once(&mut self, now: Instant, destination: std::net::Ipv6Addr) -> bool {
        match self.hop(now, destination) {
            Ok(Hop::OtherEnd) => true,
            Ok(Hop::Neighbor(neighbor)) => self.neighbors.link_layer(neighbor).is_some(),
            Ok(Hop::Group(_)) | Err(_) => false,
        }
    }

    /// Sends a segment, whose checksum is that of its pseudo-header, with the rest left to the device or done here. Call
    /// [`Interface::may_offload`] right before, or [`Interface::may_cut_protected`].
    pub(crate) fn send_offloaded(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        built: Built<'_>,
    ) -> Result<(), SendError> {
        let is_ipv4 = outgoing.destination.to_ipv4_mapped().is_some();
        let at = built.at;
        let start = self.write_ip_header(now, outgoing, built.buffer, at)?;
        let segment = tcp::Segment::parse(built.buffer.get(at..).unwrap_or_default());
        let flags = segment.map(|segment| segment.flags()).unwrap_or_default();
        let gso_type = match (built.segment_size, is_ipv4) {
            (None, _) => virtio_net::GSO_NONE,
            (Some(_), true) => virtio_net::GSO_TCPV4,
            (Some(_), false) => virtio_net::GSO_TCPV6,
        };
        let ecn = built.segment_size.is_some() && flags & tcp::CWR != 0;
        let header = virtio_net::Header {
            flags: virtio_net::NEEDS_CSUM,
            gso_type: gso_type | if ecn { virtio_net::GSO_ECN } else { 0 },
            hdr_len: (at + built.header_len) as u16,
            gso_size: built.segment_size.unwrap_or_default(),
            csum_start: at as u16,
            csum_offset: tcp::CHECKSUM_OFFSET as u16,
        };
        if let Some(socket) = built.protected {
            let payload = built.cut.unwrap_or_default();
            let sent = self.cut_and_protect(now, built.buffer, start, payload, &header, &socket);
            self.act(now, &mut super::NoUpper);
            return sent;
        }
        let hop = self.hop(now, outgoing.destination).map_err(SendError::Dropped)?;
        let to = match hop {
            Hop::OtherEnd => MacAddress::default(),
            Hop::Group(to) => to,
            Hop::Neighbor(neighbor) => match self.neighbors.resolve(now, neighbor, &[], true) {
                Resolution::Known(to) => to,
                _ => return Err(SendError::Dropped(DropReason::NoNeighbor)),
            },
        };
        let sent = if let Some(payload) = built.cut {
            self.cut(to, built.buffer, payload, &header)
        } else if self.frame_around(to, built.buffer, header) {
            Ok(())
        } else {
            Err(DropReason::QueueFull)
        };
        match sent {
            Ok(()) => {
                self.act(now, &mut super::NoUpper);
                Ok(())
            }
            Err(reason) => {
                self.drop(reason);
                Err(SendError::Dropped(reason))
            }
        }
    }

    /// Puts each segment that a packet stands for into a frame of its own.
    fn cut(
        &mut self,
        to: MacAddress,
        buffer: &mut [u8],
        payload: &[u8],
        header: &virtio_net::Header,
    ) -> Result<(), DropReason> {
        self.write_link_header(to, buffer);
        let link = self.link_header();
        let (frame, packet) = buffer.split_at_mut_checked(link).ok_or(DropReason::Malformed)?;
        let header = from_packet(header, link);
        let mut segments = segments(&header, packet, payload)?;
        while let Some(segment) = segments.next() {
            if !self.outbox.push([&*frame, segment.head, segment.payload]) {
                return Err(DropReason::QueueFull);
            }
        }
        Ok(())
    }

    /// Sends each segment that a packet stands for by itself, protected. The packet begins at `start`.
    fn cut_and_protect(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        start: usize,
        payload: &[u8],
        header: &virtio_net::Header,
        socket: &Socket,
    ) -> Result<(), SendError> {
        let packet = buffer.get_mut(start..).unwrap_or_default();
        let mut segments =
            segments(&from_packet(header, start), packet, payload).map_err(SendError::Dropped)?;
        let mut frame = std::mem::take(&mut self.building);
        let mut sent = Ok(());
        while sent.is_ok()
            && let Some(segment) = segments.next()
        {
            frame.clear();
            frame.resize(start, 0);
            frame.extend_from_slice(segment.head);
            frame.extend_from_slice(segment.payload);
            sent = self.transmit(now, &mut frame, start, Sender::Own(Some(socket)));
        }
        self.building = frame;
        sent
    }
}

/// The segments that a packet stands for. Its payload is `payload`, or in it.
fn segments<'a>(
    header: &virtio_net::Header,
    packet: &'a mut [u8],
    payload: &'a [u8],
) -> Result<Segmenter<'a>, DropReason> {
    let segments = if payload.is_empty() {
        Segmenter::new(header, packet)
    } else {
        Segmenter::with_payload(header, packet, payload)
    };
    segments.map_err(|_| DropReason::Malformed)
}

/// Whether a packet holds a whole TCP segment right behind its IP header.
fn is_tcp(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(6) => packet.get(6) == Some(&protocol::TCP),
        Some(4) => ipv4::Packet::parse(packet)
            .is_ok_and(|view| view.protocol() == protocol::TCP && !view.is_fragment()),
        _ => false,
    }
}

/// The header of the packet that is at `link` of a frame or a buffer.
fn from_packet(header: &virtio_net::Header, link: usize) -> virtio_net::Header {
    virtio_net::Header {
        hdr_len: header.hdr_len.saturating_sub(link as u16),
        csum_start: header.csum_start.saturating_sub(link as u16),
        ..*header
    }
}

//! Generic receive offload (GRO) in software: consecutive segments of a flow become one GSO packet, one write to a TUN
//! device.
//!
//! The mirror of [`segment`](crate::segment). Received packets stay where they are, in one large buffer (the
//! arena) of which ranges are kept; a GSO packet made here is a new head, with its [`virtio_net`] header, and the
//! list of payload pieces for one gathering write. Tables are reused from batch to batch, so nothing is
//! allocated once they have grown to the largest batch.
//!
//! # Rules
//!
//! - Coalesced are segments of one flow that follow each other and differ in nothing but what the kernel
//!   recreates when it segments the GSO packet again: lengths, checksums, sequence number, IPv4 identification
//!   and PSH.
//! - A transport checksum is verified before its segment is coalesced, as the GSO packet gets a new one.
//! - What cannot be coalesced passes through byte for byte, with its own checksum.
//! - Packets of one flow keep their order. All come out in the order of their first segments.

use std::ops::Range;

use crate::bytes::{put_u16, u16_at, u32_at};
use crate::checksum::Sum;
use crate::{flow, ipv4, ipv6, protocol, tcp, udp, virtio_net};

/// Largest GSO packet in bytes, IP header included.
pub const MAX_PACKET: usize = 65_535;
/// Most segments of a GSO packet: the kernel's limit for the datagrams of one GSO packet of UDP.
const MAX_SEGMENTS: usize = 64;
/// Most pieces of a GSO packet; far below the kernel's limit for the parts of one gathering write.
pub const MAX_PIECES: usize = 2 * MAX_SEGMENTS;
/// Flows that are watched for further segments at a time; the one begun first gives way.
const MAX_OPEN: usize = 16;

/// Which GSO packets the TUN device accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offloads {
    /// TCP over IPv4 (`TUN_F_TSO4`).
    pub tcp4: bool,
    /// TCP over IPv6 (`TUN_F_TSO6`).
    pub tcp6: bool,
    /// UDP over IPv4 (`TUN_F_USO4`).
    pub udp4: bool,
    /// UDP over IPv6 (`TUN_F_USO6`).
    pub udp6: bool,
}

/// A packet to write: `head` and then every piece, in order.
#[derive(Debug, Clone, Copy)]
pub struct Coalesced<'a> {
    /// Virtio-net header and IP header; of a packet that could be coalesced, the transport header too.
    pub head: &'a [u8],
    /// Ranges of the arena.
    pub pieces: &'a [Range<usize>],
}

impl Coalesced<'_> {
    /// Length in bytes of what is written, virtio-net header included.
    #[expect(clippy::len_without_is_empty, reason = "a packet is never empty")]
    pub fn len(&self) -> usize {
        self.head.len() + self.pieces.iter().map(ExactSizeIterator::len).sum::<usize>()
    }
}

/// Coalesces one batch of packets; see the module's description.
#[derive(Debug)]
pub struct Coalescer {
    offloads: Offloads,
    /// The packets of this batch are the first `used`; behind them are kept ones for reuse.
    groups: Vec<Group>,
    used: usize,
    /// Groups that further segments may join, the oldest first.
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    flow_hash: u32,
    group: usize,
}

#[derive(Debug, Default)]
struct Group {
    /// Virtio-net header, IP header and, of a group that was ever open, transport header.
    head: Vec<u8>,
    pieces: Vec<Range<usize>>,
    segments: usize,
    /// Payload bytes of the first segment: the size that all but the last must have.
    segment_size: usize,
    payload_len: usize,
}

impl Coalescer {
    /// A coalescer for a device with these offloads.
    pub fn new(offloads: Offloads) -> Self {
        Self { offloads, groups: Vec::new(), used: 0, open: Vec::with_capacity(MAX_OPEN) }
    }

    /// Takes one packet: `ip_header` (IPv6: the 40 bytes of the fixed header; IPv4: the header with its
    /// options) followed by `arena[rest]`.
    ///
    /// All packets between two calls of [`clear`](Self::clear) lie in the same arena. A range outside of it
    /// is the caller's fault; the packet is then dropped.
    pub fn push(&mut self, arena: &[u8], ip_header: &[u8], rest: Range<usize>) {
        let Some(bytes) = arena.get(rest.clone()) else {
            debug_assert!(false, "range outside the arena");
            return;
        };
        let Some(packet) = Candidate::read(ip_header, bytes) else {
            // Perhaps a fragment of a datagram of an open flow, which later ones must not overtake.
            self.close_flows_between(ip_header);
            self.begin(ip_header, &[], &[rest]);
            return;
        };
        let may_coalesce = packet.may_coalesce(self.offloads);
        let payload = rest.start + packet.transport_header.len()..rest.end;
        if self.join(&packet, may_coalesce, std::slice::from_ref(&payload)) {
            return;
        }
        if !may_coalesce {
            self.begin(ip_header, &[], &[rest]);
            return;
        }
        let group = self.begin(ip_header, packet.transport_header, &[payload]);
        if !packet.is_pushed() {
            self.keep_open(&packet, group);
        }
    }

    /// Takes one UDP datagram over IPv6, made here and now: `headers`, in which lengths and checksum are still to be
    /// written, and a payload in two pieces. The device completes the checksum, coalesced or not.
    pub fn push_datagram(
        &mut self,
        headers: &[u8; ipv6::HEADER_LEN + udp::HEADER_LEN],
        payload: &[Range<usize>; 2],
    ) {
        let packet = Candidate::datagram(headers, payload.iter().map(ExactSizeIterator::len).sum());
        if self.join(&packet, self.offloads.udp6, payload) {
            return;
        }
        let index = self.begin(packet.ip.0, packet.transport_header, payload);
        self.groups[index].write_headers(&packet, virtio_net::GSO_NONE);
        if self.offloads.udp6 {
            self.keep_open(&packet, index);
        }
    }

    /// Appends a packet to its flow's open group if it `may_coalesce` and continues it; else the group is closed.
    fn join(&mut self, packet: &Candidate<'_>, may_coalesce: bool, payload: &[Range<usize>]) -> bool {
        let found = self.open.iter().rposition(|open| {
            open.flow_hash == packet.flow_hash && self.groups[open.group].is_of_flow(packet)
        });
        let Some(index) = found else { return false };
        let group = &mut self.groups[self.open[index].group];
        let joins = may_coalesce && group.accepts(packet);
        if !joins || group.append(packet, payload) == Further::No {
            self.open.remove(index);
        }
        joins
    }

    /// Further segments may join the group.
    fn keep_open(&mut self, packet: &Candidate<'_>, group: usize) {
        if self.open.len() == MAX_OPEN {
            self.open.remove(0);
        }
        self.open.push(Open { flow_hash: packet.flow_hash, group });
    }

    /// The packets to write, in order.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = Coalesced<'_>> {
        self.groups[..self.used].iter().map(|group| Coalesced { head: &group.head, pieces: &group.pieces })
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Forgets the batch, so that its arena may be used again.
    pub fn clear(&mut self) {
        self.used = 0;
        self.open.clear();
    }

    /// Begins a packet; returns its index.
    fn begin(&mut self, ip_header: &[u8], transport_header: &[u8], payload: &[Range<usize>]) -> usize {
        let index = self.used;
        if index == self.groups.len() {
            self.groups.push(Group::default());
        }
        self.used += 1;
        let group = &mut self.groups[index];
        group.segments = 1;
        group.segment_size = payload.iter().map(ExactSizeIterator::len).sum();
        group.payload_len = group.segment_size;
        group.head.clear();
        group.head.extend_from_slice(&virtio_net::Header::NONE.to_bytes());
        group.head.extend_from_slice(ip_header);
        group.head.extend_from_slice(transport_header);
        group.pieces.clear();
        group.pieces.extend_from_slice(payload);
        index
    }

    fn close_flows_between(&mut self, ip_header: &[u8]) {
        let addresses = match ip_header {
            [first, ..] if first >> 4 == 6 => ip_header.get(8..40),
            _ => ip_header.get(12..20),
        };
        let groups = &self.groups;
        self.open.retain(|open| Some(groups[open.group].ip().addresses()) != addresses);
    }
}

/// Whether further segments may join a group.
#[derive(PartialEq, Eq)]
enum Further {
    Yes,
    No,
}

impl Group {
    fn ip(&self) -> IpHeader<'_> {
        IpHeader(&self.head[virtio_net::LEN..])
    }

    fn transport_header(&self) -> &[u8] {
        &self.ip().0[self.ip().len()..]
    }

    /// Same addresses, protocol and ports.
    fn is_of_flow(&self, packet: &Candidate<'_>) -> bool {
        let ip = self.ip();
        ip.protocol() == packet.ip.protocol()
            && ip.addresses() == packet.ip.addresses()
            && self.transport_header()[..4] == packet.transport_header[..4]
    }

    /// Whether `packet`, of this group's flow and fit to be coalesced, continues it.
    fn accepts(&self, packet: &Candidate<'_>) -> bool {
        let (ours, theirs) = (self.transport_header(), packet.transport_header);
        if packet.payload_len > self.segment_size
            || self.segments >= MAX_SEGMENTS
            || ours.len() != theirs.len()
            || self.ip().len() + ours.len() + self.payload_len + packet.payload_len > MAX_PACKET
            || !self.ip().is_continued_by(packet.ip, self.segments as u16)
        {
            return false;
        }
        if packet.ip.protocol() == protocol::UDP {
            return true;
        }
        // Acknowledgement and data offset; window; urgent pointer and options.
        u32_at(theirs, 4) == u32_at(ours, 4).wrapping_add(self.payload_len as u32)
            && ours[8..13] == theirs[8..13]
            && ours[14..16] == theirs[14..16]
            && ours[18..] == theirs[18..]
    }

    fn append(&mut self, packet: &Candidate<'_>, payload: &[Range<usize>]) -> Further {
        self.pieces.extend_from_slice(payload);
        self.segments += 1;
        self.payload_len += packet.payload_len;
        let gso_type = match (packet.ip.protocol(), packet.ip.is_ipv6()) {
            (protocol::TCP, true) => virtio_net::GSO_TCPV6,
            (protocol::TCP, false) => virtio_net::GSO_TCPV4,
            _ => virtio_net::GSO_UDP_L4,
        };
        self.write_headers(packet, gso_type);
        if packet.payload_len < self.segment_size || packet.is_pushed() { Further::No } else { Further::Yes }
    }

    /// Writes lengths, the part of the checksum that the device completes, and what it is to do with the packet, whose
    /// latest segment is `packet`.
    fn write_headers(&mut self, packet: &Candidate<'_>, gso_type: u8) {
        let ip_len = self.ip().len();
        let transport_len = packet.transport_header.len() + self.payload_len;
        let is_ipv6 = self.ip().is_ipv6();
        let pseudo_header = packet.flow_sum + Sum::word(transport_len as u16);
        let header_len = self.head.len() - virtio_net::LEN;
        let (virtio, ip) = self.head.split_at_mut(virtio_net::LEN);
        let (ip, transport) = ip.split_at_mut(ip_len);
        if is_ipv6 {
            put_u16(ip, 4, transport_len as u16);
        } else {
            put_u16(ip, 2, (ip_len + transport_len) as u16);
            ipv4::write_checksum(ip);
        }
        let csum_offset = if packet.ip.protocol() == protocol::TCP {
            transport[13] |= packet.transport_header[13] & tcp::PSH;
            tcp::CHECKSUM_OFFSET
        } else {
            put_u16(transport, 4, transport_len as u16);
            udp::CHECKSUM_OFFSET
        };
        put_u16(transport, csum_offset, pseudo_header.value());
        let header = virtio_net::Header {
            flags: virtio_net::NEEDS_CSUM,
            gso_type,
            hdr_len: header_len as u16,
            gso_size: if gso_type == virtio_net::GSO_NONE { 0 } else { self.segment_size as u16 },
            csum_start: ip_len as u16,
            csum_offset: csum_offset as u16,
        };
        virtio.copy_from_slice(&header.to_bytes());
    }
}

/// An IPv6 fixed header, or an IPv4 header without options; perhaps with more bytes behind it.
#[derive(Debug, Clone, Copy)]
struct IpHeader<'a>(&'a [u8]);

impl<'a> IpHeader<'a> {
    fn is_ipv6(self) -> bool {
        self.0[0] >> 4 == 6
    }

    fn len(self) -> usize {
        if self.is_ipv6() { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN }
    }

    fn protocol(self) -> u8 {
        self.0[if self.is_ipv6() { 6 } else { 9 }]
    }

    fn addresses(self) -> &'a [u8] {
        if self.is_ipv6() { &self.0[8..40] } else { &self.0[12..20] }
    }

    /// Whether `next`, of the same flow and `distance` segments later, differs in nothing that must be kept.
    fn is_continued_by(self, next: Self, distance: u16) -> bool {
        let (ours, theirs) = (self.0, next.0);
        if self.is_ipv6() {
            // Version, traffic class and flow label; hop limit.
            return ours[..4] == theirs[..4] && ours[7] == theirs[7];
        }
        // Type of service; flags; time to live. The identification means something only where the packet may
        // be fragmented (RFC 6864), and counts up when the kernel segments the packet.
        ours[1] == theirs[1]
            && ours[6..9] == theirs[6..9]
            && (u16_at(ours, 6) & ipv4::DONT_FRAGMENT != 0
                || u16_at(theirs, 4) == u16_at(ours, 4).wrapping_add(distance))
    }
}

/// A packet whose flow is known.
#[derive(Debug)]
struct Candidate<'a> {
    ip: IpHeader<'a>,
    transport_header: &'a [u8],
    payload_len: usize,
    flow_hash: u32,
    /// Sum of addresses and protocol: the pseudo-header but for the length.
    flow_sum: Sum,
    /// All behind the IP header.
    transport: &'a [u8],
}

impl<'a> Candidate<'a> {
    /// `None` for all that is not well-formed, unfragmented TCP or UDP directly behind a plain IP header.
    fn read(ip_header: &'a [u8], transport: &'a [u8]) -> Option<Self> {
        let ip = IpHeader(ip_header);
        match *ip_header.first()? {
            0x45 => {
                let fits = ip_header.len() == ipv4::HEADER_LEN
                    && usize::from(u16_at(ip_header, 2)) == ipv4::HEADER_LEN + transport.len()
                    && u16_at(ip_header, 6) & !ipv4::DONT_FRAGMENT == 0;
                fits.then_some(())?;
            }
            first if first >> 4 == 6 => {
                let fits = ip_header.len() == ipv6::HEADER_LEN
                    && usize::from(u16_at(ip_header, 4)) == transport.len();
                fits.then_some(())?;
            }
            _ => return None,
        }
        let transport_header = match ip.protocol() {
            protocol::TCP => tcp::Segment::parse(transport).ok()?.header(),
            protocol::UDP => {
                let datagram = udp::Datagram::parse(transport).ok()?;
                (usize::from(datagram.length()) == transport.len()).then_some(())?;
                &transport[..udp::HEADER_LEN]
            }
            _ => return None,
        };
        Some(Self::new(ip, transport_header, transport))
    }

    fn new(ip: IpHeader<'a>, transport_header: &'a [u8], transport: &'a [u8]) -> Self {
        let flow_hash = flow::hash_parts(ip.addresses(), ip.protocol(), u32_at(transport_header, 0));
        let payload_len = transport.len() - transport_header.len();
        let flow_sum = Sum::of(ip.addresses()) + Sum::word(u16::from(ip.protocol()));
        Self { ip, transport_header, payload_len, flow_hash, flow_sum, transport }
    }

    /// A datagram over IPv6 with a payload that lies somewhere else.
    fn datagram(headers: &'a [u8; ipv6::HEADER_LEN + udp::HEADER_LEN], payload_len: usize) -> Self {
        let (ip, transport) = headers.split_at(ipv6::HEADER_LEN);
        Self { payload_len, ..Self::new(IpHeader(ip), transport, transport) }
    }

    /// Whether the packet may be part of a GSO packet, whatever its neighbors are.
    fn may_coalesce(&self, offloads: Offloads) -> bool {
        let is_tcp = self.ip.protocol() == protocol::TCP;
        let offered = match (is_tcp, self.ip.is_ipv6()) {
            (true, true) => offloads.tcp6,
            (true, false) => offloads.tcp4,
            (false, true) => offloads.udp6,
            (false, false) => offloads.udp4,
        };
        let plain = if is_tcp {
            self.transport_header[13] & !tcp::PSH == tcp::ACK
        } else {
            u16_at(self.transport_header, udp::CHECKSUM_OFFSET) != 0
        };
        offered && plain && self.payload_len > 0 && self.has_valid_checksums()
    }

    fn has_valid_checksums(&self) -> bool {
        // The length fits 16 bits: it was compared with a length field.
        let pseudo_header = self.flow_sum + Sum::word(self.transport.len() as u16);
        (pseudo_header + Sum::of(self.transport)).is_valid()
            && (self.ip.is_ipv6() || Sum::of(self.ip.0).is_valid())
    }

    /// The sender wants it delivered at once.
    fn is_pushed(&self) -> bool {
        self.ip.protocol() == protocol::TCP && self.transport_header[13] & tcp::PSH != 0
    }
}

#[cfg(test)]
mod tests;

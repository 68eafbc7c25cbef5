//! Software segmentation: a super-packet as read from a TUN device becomes the packets it stands for.
//!
//! The kernel hands over up to 64 KB of TCP stream or of equal UDP datagrams under one set of headers
//! ([`virtio_net`]). The headers are rewritten in place before each segment, and payloads are
//! slices of the super-packet, so nothing is copied or allocated here: whoever seals a segment copies it anyway.

use crate::bytes::{put_u16, put_u32, u16_at};
use crate::checksum::{Sum, TransportChecksum};
use crate::{ParseError, ipv4, ipv6, protocol, tcp, udp, virtio_net};

/// Why a super-packet cannot be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// Its headers are malformed.
    #[error("malformed packet: {0}")]
    Malformed(#[from] ParseError),
    /// A segmentation type that was not offered to the kernel.
    #[error("unknown segmentation type {0}")]
    GsoType(u8),
    /// The segmentation type names another protocol than the packet carries, or the packet is a fragment.
    #[error("the segmentation type does not fit the packet")]
    GsoMismatch,
    /// A segment size of 0, or one that no IP packet can carry.
    #[error("impossible segment size {0}")]
    SegmentSize(u16),
    /// The place of the checksum lies outside the packet, or not where the packet's protocol has it.
    #[error("the checksum's place does not fit the packet")]
    ChecksumPlace,
}

/// One IP packet in two parts: `head` followed by `payload`, lengths and checksums final.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    /// The packet's beginning: all headers, or the whole packet.
    pub head: &'a [u8],
    /// What follows; may be empty.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// Length of the IP packet in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub fn len(&self) -> usize {
        self.head.len() + self.payload.len()
    }
}

/// Cuts one super-packet; see the module's description.
#[derive(Debug)]
pub struct Segmenter<'a> {
    /// Headers, rewritten for each segment; of a packet that needs no cutting, all of it.
    head: &'a mut [u8],
    /// What has not been handed out.
    payload: &'a [u8],
    state: State,
}

#[derive(Debug)]
enum State {
    /// The one packet, not handed out yet.
    Whole,
    Cutting(Cutting),
    Done,
}

#[derive(Debug)]
struct Cutting {
    /// Payload bytes of each segment but the last.
    size: usize,
    ip: Ip,
    /// Where the transport header begins.
    transport: usize,
    /// Sum of addresses and protocol: the pseudo-header but for the length.
    pseudo_header: Sum,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Ip {
    V6,
    V4 {
        /// Of the next segment.
        identification: u16,
    },
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Tcp {
        /// Of the next segment.
        sequence: u32,
        /// Of the super-packet, without those that only the first segment carries once that is gone.
        flags: u8,
    },
    Udp,
}

impl<'a> Segmenter<'a> {
    /// Prepares `packet`, a whole IP packet read from a TUN device behind `header`.
    ///
    /// A packet that is not to be cut has its checksum completed here, in place.
    ///
    /// # Errors
    /// [`SegmentError`], when header and packet contradict each other; the packet is then unchanged.
    pub fn new(header: &virtio_net::Header, packet: &'a mut [u8]) -> Result<Self, SegmentError> {
        if !header.is_gso() {
            check_ip_header(packet)?;
            if header.transport_checksum() == TransportChecksum::Partial {
                complete_checksum(header, packet)?;
            }
            return Ok(Self { head: packet, payload: &[], state: State::Whole });
        }

        let layout = Layout::of(packet)?;
        let expected = match (header.gso_type & !virtio_net::GSO_ECN, layout.ip) {
            (virtio_net::GSO_TCPV4, Ip::V4 { .. }) | (virtio_net::GSO_TCPV6, Ip::V6) => protocol::TCP,
            (virtio_net::GSO_UDP_L4, _) => protocol::UDP,
            (virtio_net::GSO_TCPV4 | virtio_net::GSO_TCPV6, _) => return Err(SegmentError::GsoMismatch),
            (other, _) => return Err(SegmentError::GsoType(other)),
        };
        if layout.protocol != expected {
            return Err(SegmentError::GsoMismatch);
        }
        let transport = &packet[layout.transport..];
        let (transport_header, checksum_offset, kind) = if expected == protocol::TCP {
            let segment = tcp::Segment::parse(transport)?;
            let kind = Kind::Tcp { sequence: segment.sequence(), flags: segment.flags() };
            (segment.header().len(), tcp::CHECKSUM_OFFSET, kind)
        } else if transport.len() < udp::HEADER_LEN {
            return Err(ParseError::Truncated.into());
        } else {
            (udp::HEADER_LEN, udp::CHECKSUM_OFFSET, Kind::Udp)
        };
        if header.transport_checksum() == TransportChecksum::Partial
            && (usize::from(header.csum_start), usize::from(header.csum_offset))
                != (layout.transport, checksum_offset)
        {
            return Err(SegmentError::ChecksumPlace);
        }

        let (head, payload) = packet.split_at_mut(layout.transport + transport_header);
        let size = usize::from(header.gso_size);
        let uncounted = if matches!(layout.ip, Ip::V6) { ipv6::HEADER_LEN } else { 0 };
        if size == 0 || head.len() + size.min(payload.len()) - uncounted > usize::from(u16::MAX) {
            return Err(SegmentError::SegmentSize(header.gso_size));
        }
        let addresses = if matches!(layout.ip, Ip::V6) { &head[8..40] } else { &head[12..20] };
        let cutting = Cutting {
            size,
            ip: layout.ip,
            transport: layout.transport,
            pseudo_header: Sum::of(addresses) + Sum::word(u16::from(expected)),
            kind,
        };
        Ok(Self { head, payload, state: State::Cutting(cutting) })
    }

    /// How many segments [`next`](Self::next) has yet to give.
    pub fn segment_count(&self) -> usize {
        match &self.state {
            State::Whole => 1,
            State::Cutting(cutting) => self.payload.len().div_ceil(cutting.size).max(1),
            State::Done => 0,
        }
    }

    /// Length in bytes of the largest IP packet that [`next`](Self::next) has yet to give.
    pub fn largest_segment(&self) -> usize {
        match &self.state {
            State::Whole => self.head.len(),
            State::Cutting(cutting) => self.head.len() + cutting.size.min(self.payload.len()),
            State::Done => 0,
        }
    }

    /// The next segment; it must be used before the one after it is asked for.
    #[expect(clippy::should_implement_trait, reason = "an Iterator's items cannot borrow from it")]
    pub fn next(&mut self) -> Option<Segment<'_>> {
        match &mut self.state {
            State::Done => None,
            State::Whole => {
                self.state = State::Done;
                Some(Segment { head: self.head, payload: &[] })
            }
            State::Cutting(cutting) => {
                let (payload, rest) = self.payload.split_at(cutting.size.min(self.payload.len()));
                self.payload = rest;
                cutting.write_headers(self.head, payload, rest.is_empty());
                if rest.is_empty() {
                    self.state = State::Done;
                }
                Some(Segment { head: self.head, payload })
            }
        }
    }
}

impl Cutting {
    fn write_headers(&mut self, head: &mut [u8], payload: &[u8], is_last: bool) {
        let packet_len = head.len() + payload.len();
        match &mut self.ip {
            Ip::V6 => put_u16(head, 4, (packet_len - ipv6::HEADER_LEN) as u16),
            Ip::V4 { identification } => {
                put_u16(head, 2, packet_len as u16);
                put_u16(head, 4, *identification);
                *identification = identification.wrapping_add(1);
                let header_len = ipv4_header_len(head[0]);
                ipv4::write_checksum(&mut head[..header_len]);
            }
        }

        let transport_len = packet_len - self.transport;
        let transport = &mut head[self.transport..];
        let pseudo_header = self.pseudo_header + Sum::word(transport_len as u16);
        match &mut self.kind {
            Kind::Tcp { sequence, flags } => {
                put_u32(transport, 4, *sequence);
                *sequence = sequence.wrapping_add(payload.len() as u32);
                transport[13] = if is_last { *flags } else { *flags & !(tcp::FIN | tcp::PSH) };
                *flags &= !tcp::CWR;
                put_u16(transport, tcp::CHECKSUM_OFFSET, 0);
                let sum = pseudo_header + Sum::of(transport) + Sum::of(payload);
                put_u16(transport, tcp::CHECKSUM_OFFSET, sum.checksum());
            }
            Kind::Udp => {
                put_u16(transport, 4, transport_len as u16);
                put_u16(transport, udp::CHECKSUM_OFFSET, 0);
                let sum = pseudo_header + Sum::of(transport) + Sum::of(payload);
                put_u16(transport, udp::CHECKSUM_OFFSET, sum.udp_checksum());
            }
        }
    }
}

/// Where things are in a packet to cut. Length fields are not looked at: a super-packet's may not hold its length.
struct Layout {
    ip: Ip,
    protocol: u8,
    transport: usize,
}

impl Layout {
    fn of(packet: &[u8]) -> Result<Self, SegmentError> {
        check_ip_header(packet)?;
        if packet[0] >> 4 == 6 {
            let upper = ipv6::upper_layer(packet[6], &packet[ipv6::HEADER_LEN..])?;
            if upper.fragment.is_some() {
                return Err(SegmentError::GsoMismatch);
            }
            let transport = ipv6::HEADER_LEN + upper.offset;
            return Ok(Self { ip: Ip::V6, protocol: upper.protocol, transport });
        }
        if u16_at(packet, 6) & !ipv4::DONT_FRAGMENT != 0 {
            return Err(SegmentError::GsoMismatch);
        }
        let transport = ipv4_header_len(packet[0]);
        let ip = Ip::V4 { identification: u16_at(packet, 4) };
        Ok(Self { ip, protocol: packet[9], transport })
    }
}

fn ipv4_header_len(first: u8) -> usize {
    usize::from(first & 0xf) * 4
}

/// Makes sure of a whole IP header, IPv4 options included.
fn check_ip_header(packet: &[u8]) -> Result<(), ParseError> {
    let first = *packet.first().ok_or(ParseError::Truncated)?;
    let needed = match first >> 4 {
        6 => ipv6::HEADER_LEN,
        4 if ipv4_header_len(first) < ipv4::HEADER_LEN => return Err(ParseError::Length),
        4 => ipv4_header_len(first),
        _ => return Err(ParseError::Version),
    };
    if packet.len() < needed { Err(ParseError::Truncated) } else { Ok(()) }
}

/// Replaces the pseudo-header's sum in the checksum field by the checksum.
fn complete_checksum(header: &virtio_net::Header, packet: &mut [u8]) -> Result<(), SegmentError> {
    let covered = packet.get_mut(usize::from(header.csum_start)..).ok_or(SegmentError::ChecksumPlace)?;
    let offset = usize::from(header.csum_offset);
    if covered.len() < offset + 2 {
        return Err(SegmentError::ChecksumPlace);
    }
    // The field itself is the pseudo-header's part of the sum. A result of 0 becomes its equal 0xffff: UDP needs
    // that, and other protocols do not mind.
    let checksum = Sum::of(covered).udp_checksum();
    put_u16(covered, offset, checksum);
    Ok(())
}

//! Software segmentation: a GSO packet as read from a TUN device becomes the packets it stands for.
//!
//! The kernel hands over up to 64 KB of TCP stream or of equal UDP datagrams under one set of headers
//! ([`virtio_net`]). The headers are rewritten in place before each segment, and payloads are
//! slices of the GSO packet, so nothing is copied or allocated: whoever seals a segment copies it anyway.
//!
//! ```
//! use sidestep_wire::segment::Segmenter;
//! use sidestep_wire::{ipv6, protocol, udp, virtio_net};
//!
//! // 3,000 bytes of UDP payload, which are to leave in datagrams of 1,400.
//! let ip = ipv6::Header {
//!     traffic_class: 0,
//!     flow_label: 0,
//!     payload_length: 3008,
//!     next_header: protocol::UDP,
//!     hop_limit: 64,
//!     source: "2001:db8::1".parse()?,
//!     destination: "2001:db8::2".parse()?,
//! };
//! let udp = udp::Header { source_port: 5353, destination_port: 53, length: 3008, checksum: 0 };
//! let mut packet = [&ip.to_bytes()[..], &udp.to_bytes(), &[7; 3000]].concat();
//! let header = virtio_net::Header {
//!     flags: virtio_net::NEEDS_CSUM,
//!     gso_type: virtio_net::GSO_UDP_L4,
//!     gso_size: 1400,
//!     hdr_len: 48,
//!     csum_start: 40,
//!     csum_offset: 6,
//! };
//!
//! let mut segmenter = Segmenter::new(&header, &mut packet)?;
//! let mut payloads = Vec::new();
//! while let Some(segment) = segmenter.next() {
//!     // `segment.head` has the headers of this datagram, lengths and checksum included.
//!     payloads.push(segment.payload.len());
//! }
//! assert_eq!(payloads, [1400, 1400, 200]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::bytes::{put_u16, put_u32, u16_at};
use crate::checksum::{Sum, TransportChecksum};
use crate::{ParseError, ipv4, ipv6, protocol, tcp, udp, virtio_net};

/// Why a GSO packet cannot be segmented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
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

/// Segments one GSO packet; see the module's description.
pub struct Segmenter<'a> {
    /// Headers, rewritten for each segment; of a packet that is not segmented, all of it.
    head: &'a mut [u8],
    /// What has not been handed out.
    payload: &'a [u8],
    state: State,
}

enum State {
    /// The one packet, not handed out yet.
    Whole,
    Segmenting(Segmentation),
    Done,
}

struct Segmentation {
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
        /// Of the GSO packet, without those that only the first segment carries once that is gone.
        flags: u8,
    },
    Udp,
}

impl<'a> Segmenter<'a> {
    /// Prepares `packet`, a whole IP packet read from a TUN device behind `header`.
    ///
    /// A packet that is not to be segmented has its checksum completed here, in place.
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

        let (segmentation, head_len) = Segmentation::new(header, packet, packet.len())?;
        let (head, payload) = packet.split_at_mut(head_len);
        Ok(Self { head, payload, state: State::Segmenting(segmentation) })
    }

    /// The same, of a GSO packet in two parts: its headers and, elsewhere, its payload.
    ///
    /// # Errors
    /// [`SegmentError`], also when `head` is not just the headers.
    pub fn with_payload(
        header: &virtio_net::Header,
        head: &'a mut [u8],
        payload: &'a [u8],
    ) -> Result<Self, SegmentError> {
        let (segmentation, head_len) = Segmentation::new(header, head, head.len() + payload.len())?;
        if head_len != head.len() {
            return Err(ParseError::Length.into());
        }
        Ok(Self { head, payload, state: State::Segmenting(segmentation) })
    }

    /// How many segments [`next`](Self::next) has yet to give.
    pub fn segment_count(&self) -> usize {
        match &self.state {
            State::Whole => 1,
            State::Segmenting(segmentation) => self.payload.len().div_ceil(segmentation.size).max(1),
            State::Done => 0,
        }
    }

    /// Bytes of headers that each segment begins with; of a packet that is not segmented, all of it.
    pub fn head_len(&self) -> usize {
        self.head.len()
    }

    /// Length in bytes of the largest IP packet that [`next`](Self::next) has yet to give.
    pub fn largest_segment(&self) -> usize {
        match &self.state {
            State::Whole => self.head.len(),
            State::Segmenting(segmentation) => self.head.len() + segmentation.size.min(self.payload.len()),
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
            State::Segmenting(segmentation) => {
                let (payload, rest) = self.payload.split_at(segmentation.size.min(self.payload.len()));
                self.payload = rest;
                segmentation.write_headers(self.head, payload, rest.is_empty());
                if rest.is_empty() {
                    self.state = State::Done;
                }
                Some(Segment { head: self.head, payload })
            }
        }
    }
}

impl Segmentation {
    /// That of a GSO packet of `len` bytes, all of whose headers are in `packet`; and how long they are.
    fn new(header: &virtio_net::Header, packet: &[u8], len: usize) -> Result<(Self, usize), SegmentError> {
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

        let head_len = layout.transport + transport_header;
        let size = usize::from(header.gso_size);
        let uncounted = if matches!(layout.ip, Ip::V6) { ipv6::HEADER_LEN } else { 0 };
        if size == 0 || head_len + size.min(len - head_len) - uncounted > usize::from(u16::MAX) {
            return Err(SegmentError::SegmentSize(header.gso_size));
        }
        let addresses = if matches!(layout.ip, Ip::V6) { &packet[8..40] } else { &packet[12..20] };
        let segmentation = Self {
            size,
            ip: layout.ip,
            transport: layout.transport,
            pseudo_header: Sum::of(addresses) + Sum::word(u16::from(expected)),
            kind,
        };
        Ok((segmentation, head_len))
    }

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

/// Where things are in a packet to segment. Length fields are not looked at: a GSO packet may exceed them.
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
    // The field itself is the pseudo-header's part of the sum. A result of 0 becomes its equal 0xffff: UDP
    // needs that, and other protocols do not mind.
    let checksum = Sum::of(covered).udp_checksum();
    put_u16(covered, offset, checksum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_stream::{Stream, payload};
    use crate::virtio_net::Header;
    use proptest::prelude::*;

    const DATA: u8 = tcp::ACK;

    fn segments(header: &Header, packet: &mut [u8]) -> Vec<Vec<u8>> {
        all(Segmenter::new(header, packet).unwrap())
    }

    fn all(mut segmenter: Segmenter<'_>) -> Vec<Vec<u8>> {
        let mut segments = Vec::new();
        while let Some(segment) = segmenter.next() {
            assert_eq!(segment.len(), segment.head.len() + segment.payload.len());
            segments.push([segment.head, segment.payload].concat());
        }
        segments
    }

    fn error(header: &Header, packet: &[u8]) -> SegmentError {
        let mut copy = packet.to_vec();
        let error = Segmenter::new(header, &mut copy).err().unwrap();
        assert_eq!(copy, packet, "refused, but changed");
        error
    }

    #[test]
    fn segments_are_what_the_host_would_have_sent() {
        let payload = payload(3000);
        for stream in Stream::ALL {
            for flags in [DATA, DATA | tcp::PSH, DATA | tcp::PSH | tcp::FIN | tcp::CWR | tcp::ECE] {
                let (header, mut packet) = stream.gso_packet(&payload, 1400, flags);
                assert_eq!(
                    segments(&header, &mut packet),
                    stream.segments(&payload, 1400, flags),
                    "{stream:?}"
                );
            }
        }
    }

    #[test]
    fn headers_and_payload_that_lie_apart_are_segmented_alike() {
        let payload = payload(3000);
        for stream in Stream::ALL {
            let (header, mut packet) = stream.gso_packet(&payload, 1400, DATA);
            let at = stream.headers_len();
            for wrong in [at - 1, at + 1] {
                let (head, rest) = packet.split_at_mut(wrong);
                assert!(Segmenter::with_payload(&header, head, rest).is_err());
            }
            let (head, rest) = packet.split_at_mut(at);
            let segmenter = Segmenter::with_payload(&header, head, rest).unwrap();
            assert_eq!(all(segmenter), stream.segments(&payload, 1400, DATA), "{stream:?}");
        }
    }

    #[test]
    fn the_largest_gso_packet_is_segmented() {
        for stream in Stream::ALL {
            let payload = payload(65_535 - stream.headers_len());
            let (header, mut packet) = stream.gso_packet(&payload, 1400, DATA);
            assert_eq!(segments(&header, &mut packet), stream.segments(&payload, 1400, DATA));
        }
    }

    #[test]
    fn count_and_largest_are_known_before_and_during() {
        let (header, mut packet) = Stream::TCP6.gso_packet(&payload(2900), 1400, DATA);
        let mut segmenter = Segmenter::new(&header, &mut packet).unwrap();
        let mut seen = Vec::new();
        loop {
            seen.push((segmenter.segment_count(), segmenter.largest_segment()));
            if segmenter.next().is_none() {
                break;
            }
        }
        assert_eq!(seen, [(3, 1472), (2, 1472), (1, 172), (0, 0)]);
    }

    #[test]
    fn extension_headers_and_ipv4_options_are_repeated() {
        let payload = payload(2000);
        let (mut header, mut packet) = Stream::TCP6.gso_packet(&payload, 1000, DATA);
        packet[6] = protocol::DESTINATION_OPTIONS;
        packet.splice(40..40, [protocol::TCP, 0, 1, 4, 0, 0, 0, 0]);
        header.csum_start += 8;
        let repeated = segments(&header, &mut packet);
        assert_eq!(repeated.len(), 2);
        for segment in &repeated {
            let view = ipv6::Packet::parse(segment).unwrap();
            assert_eq!(view.upper_layer().unwrap().offset, 48);
            let transport = &view.payload()[8..];
            assert!(
                (view.pseudo_header(transport.len() as u32, protocol::TCP) + Sum::of(transport)).is_valid()
            );
        }

        let (mut header, mut packet) = Stream::UDP4.gso_packet(&payload, 1000, DATA);
        packet[0] = 0x46;
        packet.splice(20..20, [1, 1, 1, 0]);
        header.csum_start += 4;
        for segment in &segments(&header, &mut packet) {
            let view = ipv4::Packet::parse(segment).unwrap();
            assert!(view.has_valid_checksum());
            assert_eq!((view.header().len(), view.payload().len()), (24, 1008));
        }
    }

    #[test]
    fn a_single_packet_has_its_checksum_completed() {
        for stream in Stream::ALL {
            let (mut header, mut packet) = stream.gso_packet(&payload(501), 0, DATA);
            header.gso_type = virtio_net::GSO_NONE;
            assert_eq!(segments(&header, &mut packet), [stream.packet(0, 0, &payload(501), DATA)]);
        }
    }

    #[test]
    fn a_udp_checksum_of_zero_becomes_its_equal() {
        // The sum of all else is the last word's complement, so that the checksum would be 0.
        let (mut header, packet) = Stream::UDP6.gso_packet(&[0; 4], 0, 0);
        header.gso_type = virtio_net::GSO_NONE;
        let rest = Sum::of(&packet[40..]);
        let mut single = packet.clone();
        single[50..52].copy_from_slice(&rest.checksum().to_be_bytes());
        let mut many = single.clone();
        assert_eq!(segments(&header, &mut single)[0][46..48], [0xff, 0xff]);
        header.gso_type = virtio_net::GSO_UDP_L4;
        header.gso_size = 100;
        assert_eq!(segments(&header, &mut many)[0][46..48], [0xff, 0xff]);
    }

    #[test]
    fn a_finished_packet_passes_unchanged() {
        let packet = Stream::UDP4.packet(0, 0, b"whatever", 0);
        assert_eq!(segments(&Header::NONE, &mut packet.clone()), [packet]);
    }

    #[test]
    fn contradictions_are_refused() {
        let (header, packet) = Stream::TCP6.gso_packet(&payload(2000), 1000, DATA);
        assert_eq!(error(&Header { gso_size: 0, ..header }, &packet), SegmentError::SegmentSize(0));
        assert_eq!(error(&Header { gso_type: 3, ..header }, &packet), SegmentError::GsoType(3));
        for gso_type in [virtio_net::GSO_TCPV4, virtio_net::GSO_UDP_L4] {
            assert_eq!(error(&Header { gso_type, ..header }, &packet), SegmentError::GsoMismatch);
        }
        assert_eq!(error(&Header { csum_start: 48, ..header }, &packet), SegmentError::ChecksumPlace);
        assert_eq!(error(&Header { csum_offset: 6, ..header }, &packet), SegmentError::ChecksumPlace);
        assert_eq!(error(&header, &packet[..60]), SegmentError::Malformed(ParseError::Truncated));
        assert_eq!(error(&header, &[]), SegmentError::Malformed(ParseError::Truncated));

        let single = Header { gso_type: 0, ..header };
        assert_eq!(error(&Header { csum_start: 9999, ..single }, &packet), SegmentError::ChecksumPlace);
        assert_eq!(error(&Header { csum_offset: 65535, ..single }, &packet), SegmentError::ChecksumPlace);
        assert_eq!(error(&single, &[0; 40]), SegmentError::Malformed(ParseError::Version));

        let (header, mut packet) = Stream::TCP4.gso_packet(&payload(2000), 1000, DATA);
        packet[6] |= 0x20;
        assert_eq!(error(&header, &packet), SegmentError::GsoMismatch, "a fragment");
    }

    #[test]
    fn a_segment_that_no_length_field_can_state_is_refused() {
        for stream in [Stream::UDP4, Stream::UDP6] {
            let (header, mut packet) = stream.gso_packet(&payload(65_000), 65_530, 0);
            packet.extend([0; 2000]);
            assert_eq!(error(&header, &packet), SegmentError::SegmentSize(65_530));
        }
    }

    proptest! {
        #[test]
        fn equals_etherparse(
            which in 0usize..4, length in 1usize..6000, size in 1u16..2000, flags: u8, sequence: u32,
            identification: u16, dont_fragment: bool,
        ) {
            let stream = Stream { sequence, identification, dont_fragment, ..Stream::ALL[which] };
            let size = size.max((length / 100) as u16);
            let flags = flags & !(tcp::SYN | tcp::RST | tcp::URG);
            let payload = payload(length);
            let (header, mut packet) = stream.gso_packet(&payload, size, flags);
            prop_assert_eq!(segments(&header, &mut packet), stream.segments(&payload, size, flags));
        }

        #[test]
        fn never_panics(
            header: [u8; virtio_net::LEN],
            gso_type in prop::sample::select(vec![0u8, 1, 3, 4, 5, 0x84]),
            first in prop::sample::select(vec![0x45u8, 0x46, 0x60]),
            next in prop::sample::select(vec![6u8, 17, 60, 44]),
            small: bool,
            mut packet in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut header = Header::from_bytes(&header);
            header.gso_type = gso_type;
            if small { header.csum_start %= 80; header.csum_offset %= 20; header.gso_size %= 100; }
            if packet.len() > 10 {
                packet[0] = first;
                packet[if first == 0x60 { 6 } else { 9 }] = next;
            }
            let total = packet.len();
            if let Ok(mut segmenter) = Segmenter::new(&header, &mut packet) {
                let (mut expected, largest) = (segmenter.segment_count(), segmenter.largest_segment());
                while let Some(segment) = segmenter.next() {
                    prop_assert!(segment.len() <= largest && segment.len() <= total);
                    expected -= 1;
                }
                prop_assert_eq!(expected, 0);
            }
        }
    }
}

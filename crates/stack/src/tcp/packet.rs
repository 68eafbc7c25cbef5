//! A packet that leaves, and the RST that answers a segment of no connection.

use wire::ecn::Ecn;
use wire::tcp::{self, Header, Segment, SegmentOptions, Timestamps};

/// A packet that was written out; IP goes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes of the TCP header, whose checksum field is 0.
    pub header_len: usize,
    /// Bytes of payload.
    pub payload_len: usize,
    /// Payload bytes of each segment but the last, if the packet stands for several: a GSO packet.
    pub segment_size: Option<u16>,
    /// The codepoint for the IP header.
    pub ecn: Ecn,
    /// Where the payload begins among what is not acknowledged.
    pub(super) offset: usize,
}

impl Transmit {
    /// Writes the header of a packet without payload behind what is in `out`.
    pub(super) fn write_header(out: &mut Vec<u8>, header: &Header) -> Self {
        let header = header.to_bytes();
        out.extend_from_slice(&header);
        Self { header_len: header.len(), payload_len: 0, segment_size: None, ecn: Ecn::NotEct, offset: 0 }
    }
}

/// The RST that answers a segment which belongs to no connection (RFC 9293 §3.10.7.1), behind what is in `out`. A RST is
/// not answered.
pub fn reset_for(segment: &Segment<'_>, out: &mut Vec<u8>) -> Option<Transmit> {
    let flags = segment.flags();
    if flags & tcp::RST != 0 {
        return None;
    }
    let header = Header {
        source_port: segment.destination_port(),
        destination_port: segment.source_port(),
        options: reset_options(SegmentOptions::of(segment).timestamps),
        ..Header::default()
    };
    let header = if flags & tcp::ACK != 0 {
        Header { sequence: segment.acknowledgement(), flags: tcp::RST, ..header }
    } else {
        let len = segment.payload().len() as u32
            + u32::from(flags & tcp::SYN != 0)
            + u32::from(flags & tcp::FIN != 0);
        let acknowledgement = segment.sequence().wrapping_add(len);
        Header { acknowledgement, flags: tcp::RST | tcp::ACK, ..header }
    };
    Some(Transmit::write_header(out, &header))
}

/// The options of a RST that answers a segment with these timestamps (RFC 7323 §5.2).
pub(super) fn reset_options(theirs: Option<Timestamps>) -> SegmentOptions {
    let timestamps = theirs.map(|theirs| Timestamps { value: 0, echo: theirs.value });
    SegmentOptions { timestamps, ..SegmentOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(flags: u8) -> Option<(u32, u32, u8)> {
        let header = Header { sequence: 100, acknowledgement: 7, flags, ..Header::default() };
        let bytes = [&header.to_bytes()[..], b"data"].concat();
        let mut out = Vec::new();
        reset_for(&Segment::parse(&bytes).unwrap(), &mut out)?;
        let reset = Segment::parse(&out).unwrap();
        Some((reset.sequence(), reset.acknowledgement(), reset.flags()))
    }

    #[test]
    fn rfc_9293_section_3_10_7_1_what_is_of_no_connection_is_reset() {
        assert_eq!(answer(tcp::RST), None);
        assert_eq!(answer(tcp::RST | tcp::ACK), None);
        assert_eq!(answer(tcp::ACK), Some((7, 0, tcp::RST)));
        assert_eq!(answer(tcp::SYN | tcp::FIN), Some((0, 106, tcp::RST | tcp::ACK)));
    }

    #[test]
    fn rfc_7323_section_5_2_a_reset_echoes_the_timestamp_of_what_it_answers() {
        let answer = |timestamps| {
            let options = SegmentOptions { timestamps, ..SegmentOptions::default() };
            let bytes = Header { flags: tcp::ACK, options, ..Header::default() }.to_bytes();
            let mut out = Vec::new();
            reset_for(&Segment::parse(&bytes).unwrap(), &mut out).unwrap();
            SegmentOptions::of(&Segment::parse(&out).unwrap()).timestamps
        };
        let theirs = Timestamps { value: 77, echo: 5 };
        assert_eq!(answer(Some(theirs)), Some(Timestamps { value: 0, echo: 77 }));
        assert_eq!(answer(None), None);
    }
}

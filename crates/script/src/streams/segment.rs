//! The segment of TCP in a packet.

use wire::checksum::TransportChecksum;
use wire::{ipv6, protocol, tcp};

use super::fault::Fault;
use crate::checksum::{Layout, transport_sum};
use crate::packet::Packet;

/// More fragments follow, in the octet of an IPv4 header that has the flags.
const MORE_FRAGMENTS: u8 = 0x20;

/// A segment, as far as streams ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Sequence number: of SYN, if that is set, otherwise of the first octet.
    pub sequence: u32,
    /// Flags of the header, such as [`tcp::SYN`].
    pub flags: u8,
    /// The octets that it carries.
    pub octets: &'a [u8],
    /// Why these may not be what the receiver takes.
    pub fault: Option<Fault>,
}

impl<'a> Segment<'a> {
    /// The segment that a packet carries; none if it carries none of TCP, or a fragment that is not the first.
    pub fn of(packet: &'a Packet) -> Option<Self> {
        let bytes = packet.bytes();
        let layout = Layout::of_frame(bytes)?;
        let transport = layout.transport.filter(|transport| transport.protocol == protocol::TCP)?;
        let Ok(segment) = tcp::Segment::parse(&bytes[transport.start..layout.end]) else {
            return Some(Self { sequence: 0, flags: 0, octets: &[], fault: Some(Fault::Cut) });
        };
        let is_wrong = || !transport_sum(bytes, &layout, &transport).is_valid();
        let fault = if is_cut(bytes, &layout) {
            Some(Fault::Cut)
        } else if packet.form() == TransportChecksum::Complete && transport.final_destination && is_wrong() {
            Some(Fault::Checksum)
        } else if segment.flags() & tcp::URG != 0 {
            Some(Fault::Urgent)
        } else {
            None
        };
        Some(Self { sequence: segment.sequence(), flags: segment.flags(), octets: segment.payload(), fault })
    }

    /// Whether this flag is set.
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Whether there is more of the segment than these bytes: in other fragments, or in a packet that is longer than what we
/// were given of it.
fn is_cut(bytes: &[u8], layout: &Layout) -> bool {
    let header = &bytes[layout.network..];
    let word = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
    let (length, has_more) = if layout.version == 4 {
        (word(2), header[6] & MORE_FRAGMENTS != 0)
    } else {
        let payload = &bytes[layout.header_end..layout.end];
        let upper = ipv6::upper_layer(header[6], payload).ok();
        let more = upper.and_then(|upper| upper.fragment).is_some_and(|fragment| fragment.more);
        (word(4) + ipv6::HEADER_LEN, more)
    };
    let nothing_said = if layout.version == 4 { 0 } else { ipv6::HEADER_LEN };
    has_more || length == nothing_said || length > header.len()
}

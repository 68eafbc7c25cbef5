//! Which checksums cover which octets of a packet, and how they follow a change.
//!
//! A checksum is changed by the difference (RFC 1624), so that one that was wrong stays wrong: a script does not
//! repair what was damaged on the way. What covers what is taken from the packet itself, as it was before the change.

use wire::checksum::{Sum, TransportChecksum, update};
use wire::{ethernet, ipv4, ipv6, protocol, tcp, udp};

const VLAN: [u16; 2] = [0x8100, 0x88a8];
/// Service and customer tag (IEEE 802.1ad).
const MAX_VLAN_TAGS: usize = 2;

/// Where the parts of an IP packet are, in octets from the beginning of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The IP header.
    pub network: usize,
    /// 4 or 6.
    pub version: u8,
    /// End of the IPv4 header with its options, or of the fixed IPv6 header.
    pub header_end: usize,
    /// Behind the last octet that the IP length counts: what follows is padding of the link.
    pub end: usize,
    /// The transport header, if it is in this packet and has a checksum that we keep.
    pub transport: Option<Transport>,
}

/// A transport header with a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transport {
    /// Its protocol number.
    pub protocol: u8,
    /// Where it begins.
    pub start: usize,
    /// Where its checksum is.
    pub checksum: usize,
    /// Whether the addresses of the IP header are those of the pseudo-header: with segments left in a routing header
    /// the destination is not (RFC 8200 §8.1).
    pub final_destination: bool,
}

impl Transport {
    /// Whether the sum includes the pseudo-header: not for ICMP in IPv4 (RFC 792).
    pub const fn has_pseudo_header(&self) -> bool {
        self.protocol != protocol::ICMPV4
    }
}

impl Layout {
    /// The layout of a frame that begins with an Ethernet header, with up to two VLAN tags; none where there is no IP
    /// packet that could be relied on.
    pub fn of_frame(bytes: &[u8]) -> Option<Self> {
        let mut network = ethernet::HEADER_LEN;
        let mut ethertype = word(bytes, network - 2)?;
        for _ in 0..MAX_VLAN_TAGS {
            if VLAN.contains(&ethertype) {
                network += 4;
                ethertype = word(bytes, network - 2)?;
            }
        }
        match ethertype {
            ethernet::ETHERTYPE_IPV4 => Self::of_ipv4(bytes, network),
            ethernet::ETHERTYPE_IPV6 => Self::of_ipv6(bytes, network),
            _ => None,
        }
    }

    /// The layout of the IPv4 packet at `network`.
    pub fn of_ipv4(bytes: &[u8], network: usize) -> Option<Self> {
        let header = bytes.get(network..network + ipv4::HEADER_LEN)?;
        let header_len = usize::from(header[0] & 15) * 4;
        if header[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN || bytes.len() < network + header_len {
            return None;
        }
        let start = network + header_len;
        // Zero in GSO packets that are larger than the field can say.
        let total = match usize::from(word(header, 2)?) {
            0 => bytes.len() - network,
            total => total.max(header_len),
        };
        let end = bytes.len().min(network + total);
        let later_fragment = word(header, 6)? & 0x1fff != 0;
        let transport =
            (!later_fragment).then(|| transport(header[9], start, end, protocol::ICMPV4, true)).flatten();
        Some(Self { network, version: 4, header_end: start, end, transport })
    }

    /// The layout of the IPv6 packet at `network`.
    pub fn of_ipv6(bytes: &[u8], network: usize) -> Option<Self> {
        let header_end = network + ipv6::HEADER_LEN;
        let header = bytes.get(network..header_end)?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let end = match usize::from(word(header, 4)?) {
            0 => bytes.len(),
            length => bytes.len().min(header_end + length),
        };
        let payload = &bytes[header_end..end];
        let transport = ipv6::upper_layer(header[6], payload).ok().and_then(|upper| {
            let final_destination = !has_segments_left(header[6], &payload[..upper.offset]);
            (!upper.is_later_fragment())
                .then(|| {
                    transport(
                        upper.protocol,
                        header_end + upper.offset,
                        end,
                        protocol::ICMPV6,
                        final_destination,
                    )
                })
                .flatten()
        });
        Some(Self { network, version: 6, header_end, end, transport })
    }

    /// Where the addresses are.
    pub const fn addresses(&self) -> (usize, usize) {
        if self.version == 4 {
            (self.network + 12, self.network + 20)
        } else {
            (self.network + 8, self.network + 40)
        }
    }

    /// Replaces the octets from `at` on by `new`, and has the checksums that cover them follow.
    ///
    /// A checksum that is itself among the octets becomes what is written, and nothing else. A UDP checksum of zero
    /// stays: it says that there is none (RFC 768).
    ///
    /// # Panics
    /// If `new` does not fit into `bytes`.
    pub fn write(&self, bytes: &mut [u8], at: usize, new: &[u8], form: TransportChecksum) {
        let end = at + new.len();
        let mut has_followed = false;
        if self.version == 4 {
            self.follow(bytes, at, new, self.network, self.header_end, self.network + 10, Form::Complement);
        }
        if let Some(transport) = self.transport {
            let field = transport.checksum;
            let none = transport.protocol == protocol::UDP && bytes[field..field + 2] == [0, 0];
            if !none && (end <= field || field + 2 <= at) {
                let form = Form::of(form, transport.protocol);
                if transport.has_pseudo_header() {
                    let (from, mut to) = self.addresses();
                    if !transport.final_destination {
                        to = self.network + if self.version == 4 { 16 } else { 24 };
                    }
                    self.follow(bytes, at, new, from, to, field, form);
                }
                if form != Form::Sum {
                    has_followed = self.follow(bytes, at, new, transport.start, self.end, field, form);
                }
            }
        }
        bytes[at..end].copy_from_slice(new);
        if has_followed {
            self.mend_sum_of_zeros(bytes);
        }
    }

    /// The sum of zeros alone is zero, and the checksum 0xffff; a difference gives 0, as for a sum of 0xffff, which is the
    /// same number (RFC 1624 §3). Only ICMP in IPv4 has no pseudo-header, and may be zeros. Its header says so: to look at
    /// all of it is more than can be done for a packet, and with a header of zeros 0xffff is right in any case.
    fn mend_sum_of_zeros(&self, bytes: &mut [u8]) {
        let Some(transport) = self.transport.filter(|transport| !transport.has_pseudo_header()) else {
            return;
        };
        let Transport { start, checksum, .. } = transport;
        let rest = start + 4..(start + 8).min(self.end);
        let rest = if rest.len() == 4 { rest } else { start..start };
        let is_zero = |octets: &[u8]| octets.iter().all(|octet| *octet == 0);
        if is_zero(&bytes[start..start + 4]) && is_zero(&bytes[rest]) {
            bytes[checksum..checksum + 2].fill(0xff);
        }
    }

    /// Has the checksum at `field`, which covers `from..to`, follow what `new` at `at` will change there, if that is
    /// anything: whether it was.
    #[allow(
        clippy::too_many_arguments,
        reason = "a range that is written, a range that is covered, and the field"
    )]
    fn follow(
        &self,
        bytes: &mut [u8],
        at: usize,
        new: &[u8],
        from: usize,
        to: usize,
        field: usize,
        form: Form,
    ) -> bool {
        let (start, end) = (at.max(from), (at + new.len()).min(to));
        if start >= end || (at < field + 2 && field < at + new.len()) {
            return false;
        }
        let odd = (start - from) % 2 == 1;
        let old = aligned(&bytes[start..end], odd);
        let new = aligned(&new[start - at..end - at], odd);
        if old != new {
            form.replace(bytes, field, old, new);
        }
        old != new
    }
}

/// How a checksum field holds the sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Its complement.
    Complement,
    /// Its complement, never zero.
    Udp,
    /// The sum itself, to be completed by somebody else.
    Sum,
}

impl Form {
    const fn of(checksum: TransportChecksum, number: u8) -> Self {
        match (checksum, number) {
            (TransportChecksum::Partial, _) => Self::Sum,
            (TransportChecksum::Complete, protocol::UDP) => Self::Udp,
            (TransportChecksum::Complete, _) => Self::Complement,
        }
    }

    fn replace(self, bytes: &mut [u8], field: usize, old: Sum, new: Sum) {
        let before = u16::from_be_bytes([bytes[field], bytes[field + 1]]);
        let after = match self {
            Self::Complement => update(before, old.value(), new.value()),
            Self::Udp => match update(before, old.value(), new.value()) {
                0 => 0xffff,
                sum => sum,
            },
            Self::Sum => (Sum::word(before) + Sum::word(!old.value()) + new).value(),
        };
        bytes[field..field + 2].copy_from_slice(&after.to_be_bytes());
    }
}

/// Inserts `count` zero octets at `at`, or removes as many from there on (negative), and sets lengths and checksums.
///
/// Behind the transport header's first octet it is the payload that grows; between it and the IPv6 header it is
/// extension headers, whose own fields are the script's.
pub fn resize(
    bytes: &mut Vec<u8>,
    at: usize,
    count: isize,
    form: TransportChecksum,
) -> Result<(), ResizeError> {
    let layout = Layout::of_frame(bytes);
    let amount = count.unsigned_abs();
    if amount % 2 == 1 {
        return Err(ResizeError::Odd);
    }
    let removed_to = if count < 0 { at.saturating_add(amount) } else { at };
    if removed_to > bytes.len() {
        return Err(ResizeError::Outside { at, count: amount, length: bytes.len() });
    }
    if let Some(layout) = layout {
        if at < layout.header_end {
            return Err(ResizeError::Header { end: layout.header_end });
        }
        if at <= layout.end && removed_to <= layout.end {
            resize_ip(bytes, &layout, at, count, form)?;
        }
    }
    if count < 0 {
        bytes.drain(at..removed_to);
        if let Some(layout) = layout.filter(|layout| removed_to <= layout.end) {
            // What was right is, and what is not zeros is as it was.
            Layout { end: layout.end - amount, ..layout }.mend_sum_of_zeros(bytes);
        }
    } else {
        bytes.splice(at..at, std::iter::repeat_n(0, amount));
    }
    Ok(())
}

/// Sets lengths and checksums for [`resize`], before the octets move. Nothing is written if it cannot be done.
fn resize_ip(
    bytes: &mut [u8],
    layout: &Layout,
    at: usize,
    count: isize,
    form: TransportChecksum,
) -> Result<(), ResizeError> {
    let ip_field = layout.network + if layout.version == 4 { 2 } else { 4 };
    let ip_length = changed(bytes, ip_field, count)?;
    if let Some(transport) = layout.transport {
        let header = match transport.protocol {
            protocol::TCP => tcp::HEADER_LEN,
            protocol::UDP => udp::HEADER_LEN,
            _ => 4,
        };
        let end = transport.start + header;
        let removed_to = if count < 0 { at + count.unsigned_abs() } else { at };
        if removed_to > transport.start && at < end {
            return Err(ResizeError::Header { end });
        }
        if at > transport.start {
            resize_transport(bytes, layout, &transport, at, count, form)?;
        }
    }
    if let Some(length) = ip_length {
        // Not the transport checksum: it has followed above.
        let network_only = Layout { transport: None, ..*layout };
        network_only.write(bytes, ip_field, &length.to_be_bytes(), form);
    }
    Ok(())
}

/// Sets the transport's length and checksum for octets that come or go within its payload.
fn resize_transport(
    bytes: &mut [u8],
    layout: &Layout,
    transport: &Transport,
    at: usize,
    count: isize,
    form: TransportChecksum,
) -> Result<(), ResizeError> {
    let is_udp = transport.protocol == protocol::UDP;
    let udp_length = if is_udp { changed(bytes, transport.start + 4, count)? } else { None };
    let before = layout.end - transport.start;
    let after = before.checked_add_signed(count).ok_or(ResizeError::TooLong)?;

    let field = transport.checksum;
    let none = is_udp && bytes[field..field + 2] == [0, 0];
    let form = Form::of(form, transport.protocol);
    if transport.has_pseudo_header() && !none {
        form.replace(bytes, field, Sum::dword(before as u32), Sum::dword(after as u32));
    }
    if let Some(length) = udp_length {
        let at = transport.start + 4;
        if !none && form != Form::Sum {
            form.replace(bytes, field, Sum::of(&bytes[at..at + 2]), Sum::word(length));
        }
        bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
    }
    if count < 0 && !none && form != Form::Sum {
        let removed = aligned(&bytes[at..at + count.unsigned_abs()], (at - transport.start) % 2 == 1);
        form.replace(bytes, field, removed, Sum::default());
    }
    Ok(())
}

/// Computes every checksum of the IP packet anew, as for one that a script has made. That of a transport header behind a
/// routing header with segments left stays as it is.
pub fn complete(bytes: &mut [u8], layout: &Layout) {
    if layout.version == 4 {
        bytes[layout.network + 10..layout.network + 12].fill(0);
        let sum = Sum::of(&bytes[layout.network..layout.header_end]);
        bytes[layout.network + 10..layout.network + 12].copy_from_slice(&sum.checksum().to_be_bytes());
    }
    let Some(transport) = layout.transport.filter(|transport| transport.final_destination) else {
        return;
    };
    bytes[transport.checksum..transport.checksum + 2].fill(0);
    let sum = transport_sum(bytes, layout, &transport);
    let value = if transport.protocol == protocol::UDP { sum.udp_checksum() } else { sum.checksum() };
    bytes[transport.checksum..transport.checksum + 2].copy_from_slice(&value.to_be_bytes());
}

/// Sum over the pseudo-header, transport header and payload.
pub fn transport_sum(bytes: &[u8], layout: &Layout, transport: &Transport) -> Sum {
    let mut sum = Sum::of(&bytes[transport.start..layout.end]);
    if transport.has_pseudo_header() {
        let (from, to) = layout.addresses();
        let length = (layout.end - transport.start) as u32;
        sum = sum + Sum::of(&bytes[from..to]) + Sum::dword(length) + Sum::word(u16::from(transport.protocol));
    }
    sum
}

/// Whether all checksums of a frame are right: those that we keep. A UDP checksum of zero is none.
pub fn are_right(frame: &[u8]) -> bool {
    let Some(layout) = Layout::of_frame(frame) else { return true };
    let header = layout.version == 6 || Sum::of(&frame[layout.network..layout.header_end]).is_valid();
    let transport = layout.transport.is_none_or(|transport| {
        let none = transport.protocol == protocol::UDP && frame[transport.checksum..][..2] == [0, 0];
        none || !transport.final_destination || transport_sum(frame, &layout, &transport).is_valid()
    });
    header && transport
}

/// Why a packet cannot grow or shrink there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResizeError {
    /// Checksums are sums of pairs of octets.
    #[error("the number of octets must be even")]
    Odd,
    /// Behind the end.
    #[error("offset {at}, {count} octets: the packet has {length}")]
    Outside {
        /// Where.
        at: usize,
        /// How many.
        count: usize,
        /// Of the packet.
        length: usize,
    },
    /// Within a header, which says itself how long it is.
    #[error("a packet grows and shrinks behind octet {end}, where its header ends")]
    Header {
        /// Where the header ends.
        end: usize,
    },
    /// The length fields have 16 bits.
    #[error("the packet would be too long, or too short, for its length fields")]
    TooLong,
}

/// What a length field becomes; none where it says nothing, as in packets that are too large for it.
fn changed(bytes: &[u8], field: usize, count: isize) -> Result<Option<u16>, ResizeError> {
    let length = u16::from_be_bytes([bytes[field], bytes[field + 1]]);
    if length == 0 {
        return Ok(None);
    }
    let changed = usize::from(length).checked_add_signed(count).and_then(|length| u16::try_from(length).ok());
    changed.map(Some).ok_or(ResizeError::TooLong)
}

fn transport(number: u8, start: usize, end: usize, icmp: u8, final_destination: bool) -> Option<Transport> {
    let offset = match number {
        protocol::TCP => tcp::CHECKSUM_OFFSET,
        protocol::UDP => udp::CHECKSUM_OFFSET,
        _ if number == icmp => 2,
        _ => return None,
    };
    let checksum = start + offset;
    (checksum + 2 <= end).then_some(Transport { protocol: number, start, checksum, final_destination })
}

/// Whether one of the extension headers is a routing header that has not done its work.
fn has_segments_left(mut next: u8, headers: &[u8]) -> bool {
    let mut at = 0;
    while let Some(header) = headers.get(at..at + 4) {
        if next == protocol::ROUTING && header[3] != 0 {
            return true;
        }
        at += match next {
            protocol::FRAGMENT => 8,
            protocol::AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        next = header[0];
    }
    false
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// The sum of octets that begin at an odd offset of what the checksum covers, or an even one.
fn aligned(bytes: &[u8], odd: bool) -> Sum {
    let sum = Sum::of(bytes);
    if odd { Sum::word(sum.value().swap_bytes()) } else { sum }
}

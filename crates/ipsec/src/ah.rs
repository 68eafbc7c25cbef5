//! AH (RFC 4302), in place: the ICV covers the payload, AH itself, and the IP headers before it with their mutable fields
//! taken as zero (§3.3.3.1), on a copy, so that nothing of the packet is changed before it is known to be genuine.
//!
//! | header | taken as zero |
//! |---|---|
//! | IPv4 | type of service, flags, fragment offset, time to live, checksum; options but those of appendix A1 that are immutable |
//! | IPv6 | traffic class, flow label, hop limit |
//! | hop-by-hop and destination options | the data of options whose type says that it may change (RFC 8200 §4.2) |
//!
//! A fragment header can only be one of a packet that is whole (RFC 6946), and is not covered (appendix A2): fragments are put
//! together before. A source route is mutable but predictable; a packet with stations left is refused when sending (nothing sends these:
//! RFC 5095, RFC 7126).
//!
//! Less was zero in 1995 (RFC 1826 §4, feature `historic`): IPv4's time to live, checksum, record route and timestamp; IPv6's
//! hop limit; and of an option that may change its type and length, too.

use std::time::Instant;

use wire::{ParseError, flow, ipv4, ipv6, protocol};

use crate::algorithm::{AhTransform, Coverage};
use crate::association::{Age, Association, Mode, Transform};
use crate::headers::{self, SecurityHeader};
use crate::marks::Marks;
use crate::outcome::{OpenError, SealError};
use crate::packet_buffer::{NoRoom, PacketBuffer};
use crate::tunnel::{self, Placement};

/// The longest headers before AH. IPv6 allows far more; what is real has less than 100 bytes, and the copy with zeros is
/// on the stack.
pub const MAX_HEADERS: usize = 512;
/// Bytes that sealing may put before a packet: outer IPv6 header, and AH with the longest ICV and padding.
pub const MAX_HEADROOM: usize = 40 + 12 + 32 + 4;

/// Protects the packet, which is one that this association is for. Nothing is allocated.
///
/// # Errors
/// [`SealError`]; packet and association are as before.
pub fn seal(
    association: &mut Association,
    packet: &mut PacketBuffer<'_>,
    now: Instant,
) -> Result<(), SealError> {
    if association.age(now) == Age::Hard {
        return Err(SealError::Expired);
    }
    let parameters = &association.parameters;
    let Transform::Ah(transform) = &parameters.transform else { return Err(SealError::Protocol) };
    headers::trim(packet)?;
    let placement = Placement::new(parameters, packet.packet())?;
    let Placement { place, kept, is_ipv6 } = placement;
    if place.offset > MAX_HEADERS {
        return Err(SealError::HeadersTooLong);
    }
    if kept > 0 {
        check_headers(&packet.packet()[..place.offset], transform.coverage())?;
    }
    let ah_length = transform.header_length(is_ipv6);
    let front = placement.outer_length() + ah_length;
    if packet.headroom() < front {
        return Err(NoRoom.into());
    }
    if packet.len() + front > headers::longest(is_ipv6) {
        return Err(SealError::TooLong);
    }
    let sequence = association.counter.advance()?;
    let packet_length = packet.len();
    let outer = tunnel::Outer::around(packet.packet(), parameters, sequence.low() as u16);
    packet.open_gap(kept, front)?;

    let bytes = packet.packet_mut();
    if let Some(outer) = outer {
        bytes[..place.offset].copy_from_slice(outer.bytes());
    }
    let ah = &mut bytes[place.offset..place.offset + ah_length];
    ah.fill(0);
    ah[0] = place.protocol;
    ah[1] = (ah_length / 4 - 2) as u8;
    ah[4..8].copy_from_slice(&parameters.spi.0.to_be_bytes());
    if transform.has_sequence() {
        ah[8..12].copy_from_slice(&sequence.low().to_be_bytes());
    }
    headers::set_type_and_length(bytes, place, protocol::AUTHENTICATION);
    let iv = sequence.0.to_be_bytes();
    let iv = &iv[..transform.iv_length()];
    let high = parameters.extended_sequence.then(|| sequence.high());
    let icv = icv(transform, bytes, place.offset, ah_length, iv, high)?;
    let field = place.offset + transform.fixed_length();
    bytes[field..field + iv.len()].copy_from_slice(iv);
    let field = field + iv.len();
    bytes[field..field + icv.bytes().len()].copy_from_slice(icv.bytes());
    association.count(packet_length, now);
    Ok(())
}

/// Verifies and takes away the first security header of the packet, which must be the association's. `marks` is what the
/// packet has been through so far; what is returned, what it has been through then.
///
/// # Errors
/// [`OpenError`]. Before the ICV is verified, nothing of the association is changed.
pub fn open(
    association: &mut Association,
    packet: &mut PacketBuffer<'_>,
    marks: Marks,
    now: Instant,
) -> Result<Marks, OpenError> {
    headers::trim(packet)?;
    let found = headers::find(packet.packet(), None)?.ok_or(OpenError::Association)?;
    open_at(association, packet, found, marks, now)
}

/// As [`open`], where the security header was found already and nothing is behind the packet.
pub(crate) fn open_at(
    association: &mut Association,
    packet: &mut PacketBuffer<'_>,
    found: SecurityHeader,
    marks: Marks,
    now: Instant,
) -> Result<Marks, OpenError> {
    let parameters = &association.parameters;
    let Transform::Ah(transform) = &parameters.transform else { return Err(OpenError::Association) };
    if found.protocol != association.protocol() || found.spi != parameters.spi {
        return Err(OpenError::Association);
    }
    if association.age(now) == Age::Hard {
        return Err(OpenError::Expired);
    }
    let place = found.place;
    if place.offset > MAX_HEADERS {
        return Err(OpenError::HeadersTooLong);
    }
    let bytes = packet.packet();
    let ah = bytes.get(place.offset..).ok_or(OpenError::Length)?;
    let &[next_header, units, ..] = ah else { return Err(OpenError::Length) };
    let ah_length = (usize::from(units) + 2) * 4;
    let ah = ah.get(..ah_length).ok_or(OpenError::Length)?;
    let base = transform.fixed_length();
    // Some pad IPv4's AH to 64 bits, too; IPv6's must be.
    let padding = ah_length.checked_sub(base + transform.icv_length()).ok_or(OpenError::Length)?;
    if padding > 4 || headers::is_ipv6(bytes) && ah_length % 8 != 0 {
        return Err(OpenError::Length);
    }
    let low = match ah.get(8..12) {
        Some(&[a, b, c, d]) if transform.has_sequence() => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    };
    let sequence = association.check_sequence(low)?;
    let field = ah.get(base..base + transform.icv_length()).ok_or(OpenError::Length)?;
    let (iv, arrived) = field.split_at_checked(transform.iv_length()).ok_or(OpenError::Length)?;
    let expected = icv(transform, bytes, place.offset, ah_length, iv, association.high(sequence))?;
    if !expected.is(arrived) {
        return Err(OpenError::Forged);
    }
    association.accept_sequence(sequence);

    let (source, _) = flow::addresses(packet.packet())?;
    let opened = match association.parameters.mode {
        Mode::Transport => {
            packet.close_gap(place.offset, ah_length);
            headers::set_type_and_length(packet.packet_mut(), place, next_header);
            Ok(())
        }
        Mode::Tunnel => tunnel::decapsulate(packet, place.offset + ah_length, next_header),
    };
    association.count(packet.len(), now);
    opened.map(|()| association.marks(marks, source, packet.packet()))
}

/// The ICV of a packet with an AH of `ah_length` bytes at `at`, whatever stands in its field. The padding behind the field
/// counts as it is.
fn icv(
    transform: &AhTransform,
    packet: &[u8],
    at: usize,
    ah_length: usize,
    iv: &[u8],
    high: Option<u32>,
) -> Result<crate::algorithm::Icv, ParseError> {
    let (before, rest) = packet.split_at_checked(at).ok_or(ParseError::Truncated)?;
    let (ah, payload) = rest.split_at_checked(ah_length).ok_or(ParseError::Truncated)?;
    let (fixed, field) = ah.split_at_checked(transform.fixed_length()).ok_or(ParseError::Truncated)?;
    let (_, padding) = field.split_at_checked(transform.icv_length()).ok_or(ParseError::Truncated)?;
    // The longest field: HMAC-SHA-512-256.
    let zeros = [0; 32];
    let zeros = zeros.get(..transform.icv_length()).ok_or(ParseError::Truncated)?;
    let high = high.map(u32::to_be_bytes);
    let high: &[u8] = high.as_ref().map_or(&[], |high| high);
    let icv = |headers: &[u8]| transform.icv(iv, &[headers, fixed, zeros, padding, payload, high]);
    if let Some(alone) = ipv6_header_alone(before) {
        let mut copy = *alone;
        zero_mutable_ipv6(&mut copy, transform.coverage());
        return Ok(icv(&copy));
    }
    let mut copy = [0; MAX_HEADERS];
    let copy = copy.get_mut(..at).ok_or(ParseError::Truncated)?;
    copy.copy_from_slice(before);
    let length = take_fragment_header_away(copy)?;
    let copy = copy.get_mut(..length).ok_or(ParseError::Truncated)?;
    zero_mutable(copy, transform.coverage())?;
    Ok(icv(copy))
}

/// The headers before AH, if that of IPv6 is the only one, as it mostly is.
fn ipv6_header_alone(before: &[u8]) -> Option<&[u8; ipv6::HEADER_LEN]> {
    before.try_into().ok().filter(|header: &&[u8; ipv6::HEADER_LEN]| headers::is_ipv6(*header))
}

fn zero_mutable_ipv6(header: &mut [u8; ipv6::HEADER_LEN], coverage: Coverage) {
    if coverage == Coverage::Rfc4302 {
        header[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    }
    header[7] = 0;
}

/// Takes away the fragment header of a whole packet (RFC 6946), and returns the length that is left: fragments are put
/// together before AH (RFC 4302 §3.4.1), and its sender did not have that header.
fn take_fragment_header_away(before: &mut [u8]) -> Result<usize, ParseError> {
    let mut end = before.len();
    let (mut at, mut type_at) = (ipv6::HEADER_LEN, 6);
    while headers::is_ipv6(before) && at < end {
        let &[next, units, ..] = before.get(at..end).unwrap_or_default() else {
            return Err(ParseError::Truncated);
        };
        if before.get(type_at) != Some(&protocol::FRAGMENT) {
            (type_at, at) = (at, at + (usize::from(units) + 1) * 8);
            continue;
        }
        if end - at < 8 {
            return Err(ParseError::Truncated);
        }
        before.copy_within(at + 8..end, at);
        end -= 8;
        before[type_at] = next;
        let length = u16::from_be_bytes([before[4], before[5]]).saturating_sub(8);
        before[4..6].copy_from_slice(&length.to_be_bytes());
    }
    Ok(end)
}

/// Sets mutable fields of the headers before AH to zero.
fn zero_mutable(before: &mut [u8], coverage: Coverage) -> Result<(), ParseError> {
    if !headers::is_ipv6(before) {
        let (fixed, options) = before.split_at_mut_checked(ipv4::HEADER_LEN).ok_or(ParseError::Truncated)?;
        let (fields, is_mutable): (&[usize], fn(u8) -> bool) = match coverage {
            Coverage::Rfc4302 => (&[1, 6, 7, 8, 10, 11], |kind| !IMMUTABLE_IPV4_OPTIONS.contains(&kind)),
            #[cfg(feature = "historic")]
            Coverage::Rfc1826 => (&[8, 10, 11], |kind| MUTABLE_IPV4_OPTIONS_OF_1995.contains(&kind)),
        };
        for field in fields {
            fixed[*field] = 0;
        }
        return for_each_ipv4_option(options, |kind, option| {
            if is_mutable(kind) {
                option.fill(0);
            }
        });
    }
    let (fixed, extensions) = before.split_first_chunk_mut().ok_or(ParseError::Truncated)?;
    zero_mutable_ipv6(fixed, coverage);
    for_each_extension(fixed[6], extensions, |protocol, header| match protocol {
        protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => zero_mutable_options(header, coverage),
        _ => Ok(()),
    })
}

/// What RFC 4302 appendix A1 lists: end, no operation, security, extended security, commercial security, router alert,
/// sender directed multi-destination delivery.
const IMMUTABLE_IPV4_OPTIONS: [u8; 7] = [0, 1, 130, 133, 134, 148, 149];

/// Record route and timestamp: of the options of 1995 those that change as no sender foresees. Unknown ones are covered
/// (RFC 1826 §4).
#[cfg(feature = "historic")]
const MUTABLE_IPV4_OPTIONS_OF_1995: [u8; 2] = [7, 68];

fn for_each_ipv4_option(options: &mut [u8], mut each: impl FnMut(u8, &mut [u8])) -> Result<(), ParseError> {
    let mut rest = options;
    while let Some(&kind) = rest.first() {
        let length = match kind {
            0 => return Ok(()),
            1 => 1,
            _ => rest.get(1).map_or(0, |length| usize::from(*length)),
        };
        if length == 0 || kind > 1 && length < 2 {
            return Err(ParseError::Length);
        }
        let (option, behind) = rest.split_at_mut_checked(length).ok_or(ParseError::Truncated)?;
        each(kind, option);
        rest = behind;
    }
    Ok(())
}

fn for_each_extension(
    first: u8,
    extensions: &mut [u8],
    mut each: impl FnMut(u8, &mut [u8]) -> Result<(), ParseError>,
) -> Result<(), ParseError> {
    let mut protocol = first;
    let mut rest = extensions;
    while let [next, units, ..] = rest {
        let next = *next;
        let length = if protocol == protocol::FRAGMENT { 8 } else { (usize::from(*units) + 1) * 8 };
        let (header, behind) = rest.split_at_mut_checked(length).ok_or(ParseError::Truncated)?;
        each(protocol, header)?;
        protocol = next;
        rest = behind;
    }
    Ok(())
}

/// Options whose type has the third bit set may change on the way (RFC 8200 §4.2): their data is taken as zero.
fn zero_mutable_options(header: &mut [u8], coverage: Coverage) -> Result<(), ParseError> {
    const PAD1: u8 = 0;
    const MAY_CHANGE: u8 = 0x20;
    let mut rest = header.get_mut(2..).unwrap_or_default();
    while let Some(&kind) = rest.first() {
        let length =
            if kind == PAD1 { 1 } else { 2 + usize::from(*rest.get(1).ok_or(ParseError::Truncated)?) };
        let (option, behind) = rest.split_at_mut_checked(length).ok_or(ParseError::Truncated)?;
        if kind & MAY_CHANGE != 0 {
            let covered = if coverage == Coverage::Rfc4302 { 2 } else { 0 };
            option.get_mut(covered..).unwrap_or_default().fill(0);
        }
        rest = behind;
    }
    Ok(())
}

/// Whether the headers of a packet to be sealed can be authenticated, which is known before anything is changed.
fn check_headers(before: &[u8], coverage: Coverage) -> Result<(), SealError> {
    const LOOSE_SOURCE_ROUTE: u8 = 131;
    const STRICT_SOURCE_ROUTE: u8 = 137;
    if ipv6_header_alone(before).is_some() {
        return Ok(());
    }
    let mut copy = [0; MAX_HEADERS];
    let copy = copy.get_mut(..before.len()).ok_or(SealError::HeadersTooLong)?;
    copy.copy_from_slice(before);
    let mut stations_left = false;
    if headers::is_ipv6(copy) {
        let (fixed, extensions) = copy.split_at_mut_checked(ipv6::HEADER_LEN).ok_or(ParseError::Truncated)?;
        for_each_extension(fixed[6], extensions, |protocol, header| {
            stations_left |= protocol == protocol::ROUTING && header.get(3).is_some_and(|left| *left > 0);
            Ok(())
        })?;
    } else {
        for_each_ipv4_option(copy.get_mut(ipv4::HEADER_LEN..).unwrap_or_default(), |kind, _| {
            stations_left |= matches!(kind, LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE);
        })?;
    }
    if stations_left {
        return Err(SealError::SourceRoute);
    }
    Ok(zero_mutable(copy, coverage)?)
}

//! The headers of a packet, as far as AH and ESP look at them: where a security header is, where one goes
//! (RFC 4302 §3.1.1, RFC 4303 §3.1.1), and the fields before it that say so.

use wire::checksum::Sum;
use wire::{ParseError, ipv4, ipv6, protocol, udp};

use crate::association::{Protocol, Spi};
use crate::packet_buffer::PacketBuffer;

/// Why the headers of a packet allow no security processing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// They are not those of an IP packet.
    #[error(transparent)]
    Malformed(#[from] ParseError),
    /// It is a fragment: on input they are put together before (RFC 4302 §3.4.1), on output cut apart behind.
    #[error("a fragment, and no whole packet")]
    Fragment,
}

/// A place between headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Where it is in the packet.
    pub(crate) offset: usize,
    /// Where the type of the header at `offset` stands.
    pub(crate) type_at: usize,
    /// That type.
    pub(crate) protocol: u8,
}

/// The first security header of a packet that has one: what [`find`] finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityHeader {
    /// AH or ESP.
    pub protocol: Protocol,
    /// The association that it names.
    pub spi: Spi,
    /// Whether it is in UDP (RFC 3948).
    pub in_udp: bool,
    pub(crate) place: Place,
}

/// Finds the first AH or ESP of a packet, behind extension headers, and also ESP in UDP to `udp_port`. `Ok(None)` if there
/// is none: it is to be looked at without.
///
/// # Errors
/// [`HeaderError`] for what is no IP packet, or a fragment of a packet with a security header.
pub fn find(packet: &[u8], udp_port: Option<u16>) -> Result<Option<SecurityHeader>, HeaderError> {
    let (place, is_fragment) = walk(packet, To::Upper)?;
    let rest = packet.get(place.offset..).unwrap_or_default();
    let (protocol, spi_at, in_udp) = match place.protocol {
        protocol::AUTHENTICATION => (Protocol::Ah, 4, false),
        protocol::ESP => (Protocol::Esp, 0, false),
        protocol::UDP if !is_fragment && udp_port.is_some() => {
            // What is wrong with a datagram is for UDP to say.
            let Ok(datagram) = udp::Datagram::parse(rest) else { return Ok(None) };
            if Some(datagram.destination_port()) != udp_port
                || crate::udp_encapsulation::classify(datagram.payload())
                    != crate::udp_encapsulation::Content::Esp
            {
                return Ok(None);
            }
            (Protocol::Esp, udp::HEADER_LEN, true)
        }
        _ => return Ok(None),
    };
    if is_fragment {
        return Err(HeaderError::Fragment);
    }
    let spi = rest.get(spi_at..).and_then(|rest| rest.first_chunk()).ok_or(ParseError::Truncated)?;
    Ok(Some(SecurityHeader { protocol, spi: Spi(u32::from_be_bytes(*spi)), in_udp, place }))
}

/// Where a security header in transport mode goes: behind the headers that routers look at, before what is for the other
/// end alone.
pub(crate) fn transport_place(packet: &[u8]) -> Result<Place, HeaderError> {
    match walk(packet, To::BehindRouters)? {
        (_, true) => Err(HeaderError::Fragment),
        (place, false) => Ok(place),
    }
}

/// Cuts off what is behind the length that the packet states.
pub(crate) fn trim(packet: &mut PacketBuffer<'_>) -> Result<(), ParseError> {
    let length = stated_length(packet.packet())?;
    packet.truncate(length);
    Ok(())
}

/// The length that a packet states; it has so many bytes at least.
pub(crate) fn stated_length(packet: &[u8]) -> Result<usize, ParseError> {
    match packet.first().map(|first| first >> 4) {
        Some(6) => {
            ipv6::Packet::parse(packet).map(|view| ipv6::HEADER_LEN + usize::from(view.payload_length()))
        }
        Some(4) => ipv4::Packet::parse(packet).map(|view| usize::from(view.total_length())),
        Some(_) => Err(ParseError::Version),
        None => Err(ParseError::Truncated),
    }
}

/// The longest packet of a version.
pub(crate) fn longest(is_ipv6: bool) -> usize {
    usize::from(u16::MAX) + if is_ipv6 { ipv6::HEADER_LEN } else { 0 }
}

/// Bytes of a header without options.
pub(crate) fn fixed_length(is_ipv6: bool) -> usize {
    if is_ipv6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN }
}

pub(crate) fn is_ipv6(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6)
}

/// Makes the header at `place` one of another type, and the packet's length field say how long it is now.
pub(crate) fn set_type_and_length(packet: &mut [u8], place: Place, protocol: u8) {
    if let Some(field) = packet.get_mut(place.type_at) {
        *field = protocol;
    }
    let length = packet.len();
    if is_ipv6(packet) {
        if let Some(field) = packet.get_mut(4..6) {
            field.copy_from_slice(&(length.saturating_sub(ipv6::HEADER_LEN) as u16).to_be_bytes());
        }
        return;
    }
    let header_length = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    let Some(header) = packet.get_mut(..header_length).filter(|header| header.len() >= ipv4::HEADER_LEN)
    else {
        return;
    };
    header[2..4].copy_from_slice(&(length as u16).to_be_bytes());
    header[10..12].fill(0);
    let checksum = Sum::of(header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// Where a walk leads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// The first header that is no extension header, or is AH or ESP.
    Upper,
    /// Behind the last header that routers look at.
    BehindRouters,
}

/// Walks over extension headers. The second value is whether the packet is a fragment.
fn walk(packet: &[u8], to: To) -> Result<(Place, bool), HeaderError> {
    if !is_ipv6(packet) {
        let view = ipv4::Packet::parse(packet)?;
        let place = Place { offset: view.header().len(), type_at: 9, protocol: view.protocol() };
        return Ok((place, view.is_fragment()));
    }
    let view = ipv6::Packet::parse(packet)?;
    let end = ipv6::HEADER_LEN + view.payload().len();
    let mut place = Place { offset: ipv6::HEADER_LEN, type_at: 6, protocol: view.next_header() };
    let mut behind_routers = place;
    let mut is_fragment = false;
    for _ in 0..=ipv6::MAX_EXTENSION_HEADERS {
        let rest = packet.get(place.offset..end).ok_or(ParseError::Truncated)?;
        let length = match place.protocol {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => {
                let [_, units, ..] = rest else { return Err(ParseError::Truncated.into()) };
                (usize::from(*units) + 1) * 8
            }
            protocol::FRAGMENT => {
                let [_, _, high, low, ..] = rest else { return Err(ParseError::Truncated.into()) };
                // Offset or more fragments; what has neither is whole (RFC 6946).
                is_fragment |= u16::from_be_bytes([*high, *low]) & 0xfff9 != 0;
                8
            }
            _ => {
                let found = if to == To::Upper { place } else { behind_routers };
                return Ok((found, is_fragment));
            }
        };
        let header = rest.get(..length).ok_or(ParseError::Truncated)?;
        let is_for_routers = place.protocol != protocol::DESTINATION_OPTIONS;
        place = Place { offset: place.offset + length, type_at: place.offset, protocol: header[0] };
        if is_for_routers {
            behind_routers = place;
        }
        if is_fragment {
            return Ok((place, true));
        }
    }
    Err(ParseError::ExtensionHeaders.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(first: u8, payload: &[u8]) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: payload.len() as u16,
            next_header: first,
            hop_limit: 64,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        };
        [&header.to_bytes()[..], payload].concat()
    }

    #[test]
    fn a_security_header_goes_behind_what_routers_look_at_and_before_destination_options() {
        let options = |next| [next, 0, 1, 4, 0, 0, 0, 0];
        // Destination options for the stations of the route, the route, options for its end.
        let payload = [
            options(protocol::DESTINATION_OPTIONS),
            options(protocol::ROUTING),
            options(protocol::DESTINATION_OPTIONS),
            options(protocol::UDP),
        ]
        .concat();
        let place = transport_place(&packet(protocol::HOP_BY_HOP, &payload)).unwrap();
        assert_eq!(place, Place { offset: 64, type_at: 56, protocol: protocol::DESTINATION_OPTIONS });
        let place = transport_place(&packet(protocol::UDP, &[0; 8])).unwrap();
        assert_eq!(place, Place { offset: 40, type_at: 6, protocol: protocol::UDP });
    }

    #[test]
    fn a_fragment_is_not_protected_but_one_that_is_whole_is() {
        let fragment = |field: u16| {
            let [high, low] = field.to_be_bytes();
            packet(protocol::FRAGMENT, &[protocol::UDP, 0, high, low, 0, 0, 0, 1, 1, 2, 3, 4])
        };
        assert_eq!(transport_place(&fragment(1)), Err(HeaderError::Fragment));
        assert_eq!(transport_place(&fragment(8)), Err(HeaderError::Fragment));
        assert_eq!(transport_place(&fragment(0)).unwrap().offset, 48);
    }

    #[test]
    fn the_first_security_header_is_found_and_a_fragment_of_one_refused() {
        let mut payload = vec![protocol::ESP, 0, 1, 4, 0, 0, 0, 0, 0, 0, 1, 2];
        let found = find(&packet(protocol::HOP_BY_HOP, &payload), None).unwrap().unwrap();
        assert_eq!((found.protocol, found.spi, found.place.offset), (Protocol::Esp, Spi(0x102), 48));
        payload[3] = 1;
        assert_eq!(find(&packet(protocol::FRAGMENT, &payload), None), Err(HeaderError::Fragment));
        assert_eq!(find(&packet(protocol::UDP, &payload), None), Ok(None));
        let truncated = find(&packet(protocol::AUTHENTICATION, &[0; 7]), None);
        assert_eq!(truncated, Err(HeaderError::Malformed(ParseError::Truncated)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), six: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if six { 0x60 } else { 0x45 };
            }
            let _ = find(&bytes, Some(4500));
            let _ = transport_place(&bytes);
            if let Ok(place) = transport_place(&bytes) {
                set_type_and_length(&mut bytes, place, 51);
            }
        }
    }
}

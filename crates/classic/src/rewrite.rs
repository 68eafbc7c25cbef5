//! Packets that are carried as they are, but for their addresses (docs/classic.md section 18).

use std::net::Ipv6Addr;

use wire::checksum::Sum;
use wire::{icmpv6, ipv6, protocol, udp};

use crate::destination_options::NEW_KEY;
use crate::routes::Path;

const ADDRESSES: std::ops::Range<usize> = 8..ipv6::HEADER_LEN;

/// Gives a packet of the local host the addresses of the path, also where it quotes one of the remote host. `hosts` are
/// the true addresses, its own first.
pub(crate) fn outgoing(path: &Path, hosts: (Ipv6Addr, Ipv6Addr), packet: &mut [u8]) {
    let (source, destination) = (path.source.address, path.destination.address);
    if let Some(message) = error_message(packet) {
        let before = Sum::of(message);
        let quote = &mut message[icmpv6::HEADER_LEN..];
        if addresses(quote) == Some((hosts.1, hosts.0)) {
            replace(quote, (destination, source));
        }
        let after = Sum::of(message);
        adjust(message, protocol::ICMPV6, before, after);
    }
    replace(packet, (source, destination));
}

/// Replaces the addresses of a packet, of which only the beginning may be there: all of its headers up to the transport
/// checksum, or some. The checksum stays as right or wrong as it was.
pub(crate) fn replace(packet: &mut [u8], (source, destination): (Ipv6Addr, Ipv6Addr)) {
    let Some((header, payload)) = packet.split_first_chunk_mut::<{ ipv6::HEADER_LEN }>() else { return };
    let before = Sum::of(&header[ADDRESSES]);
    let addresses = [source.octets(), destination.octets()];
    header[ADDRESSES].copy_from_slice(addresses.as_flattened());
    let after = Sum::of(&header[ADDRESSES]);
    if let Ok(upper) = ipv6::upper_layer(header[6], payload)
        && !upper.is_later_fragment()
    {
        adjust(&mut payload[upper.offset..], upper.protocol, before, after);
    }
}

/// Whether an outer packet belongs to the key exchange, and holds no packet of a host: UDP on the route's ports without a
/// payload, or an option with a new session key before UDP.
pub(crate) fn is_key_exchange(path: &Path, outer: &ipv6::Packet<'_>) -> bool {
    let ports = |flag| [path.source.source_port(flag), path.destination.port].map(u16::to_be_bytes);
    match (outer.next_header(), outer.payload()) {
        (protocol::UDP, payload) if payload.len() == udp::HEADER_LEN => {
            [false, true].iter().any(|flag| payload[..4] == *ports(*flag).as_flattened())
        }
        (protocol::DESTINATION_OPTIONS, [protocol::UDP, _, NEW_KEY, ..]) => true,
        _ => false,
    }
}

/// The ICMPv6 error message that a packet is, if it is one.
fn error_message(packet: &mut [u8]) -> Option<&mut [u8]> {
    let (header, message) = packet.split_first_chunk_mut::<{ ipv6::HEADER_LEN }>()?;
    let errors = icmpv6::DESTINATION_UNREACHABLE..=icmpv6::PARAMETER_PROBLEM;
    let is_error =
        header[6] == protocol::ICMPV6 && message.len() >= icmpv6::HEADER_LEN && errors.contains(&message[0]);
    is_error.then_some(message)
}

/// Source and destination of a packet of which only the beginning may be there.
fn addresses(packet: &[u8]) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>()?;
    let (&[source, destination], []) = header[ADDRESSES].as_chunks::<16>() else { return None };
    (header[0] >> 4 == 6).then(|| (source.into(), destination.into()))
}

/// Changes a transport checksum as the sum of what it covers has changed (RFC 1624).
fn adjust(transport: &mut [u8], protocol: u8, before: Sum, after: Sum) {
    let at = match protocol {
        protocol::TCP => 16,
        protocol::UDP => 6,
        protocol::ICMPV6 => icmpv6::CHECKSUM_OFFSET,
        _ => return,
    };
    let Some(field) = transport.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<2>) else { return };
    let old = u16::from_be_bytes(*field);
    let sum = Sum::word(!old) + Sum::word(!before.value()) + after;
    *field = match (protocol, old) {
        // None was computed.
        (protocol::UDP, 0) => return,
        (protocol::UDP, _) => sum.udp_checksum(),
        _ => sum.checksum(),
    }
    .to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashed::{Host, Salt};
    use crate::keys::{SESSION_KEY_LEN, SessionKey};
    use proptest::prelude::*;

    fn path() -> (Path, (Ipv6Addr, Ipv6Addr)) {
        let key = SessionKey::from_bytes([1; SESSION_KEY_LEN]);
        let hosts = ("2001:db8:a::1".parse().unwrap(), "2001:db8:b::1".parse().unwrap());
        let hashed = |address| Host { address, mac: None }.hashed(&key, Salt(1));
        (Path::new(&key, hashed(hosts.0), hashed(hosts.1)), hosts)
    }

    fn packet((source, destination): (Ipv6Addr, Ipv6Addr), next_header: u8, payload: &[u8]) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: payload.len() as u16,
            next_header,
            hop_limit: 64,
            source,
            destination,
        };
        [&header.to_bytes()[..], payload].concat()
    }

    /// Writes the checksum that is right into the transport header at `offset` of the payload.
    fn complete(packet: &mut [u8], offset: usize, protocol: u8) {
        let at = 40 + offset + [(6, 16), (17, 6), (58, 2)].iter().find(|(p, _)| *p == protocol).unwrap().1;
        packet[at..at + 2].fill(0);
        let whole = ipv6::Packet::parse(packet).unwrap();
        let transport = &whole.payload()[offset..];
        let sum = whole.pseudo_header(transport.len() as u32, protocol) + Sum::of(transport);
        let checksum = if protocol == 17 { sum.udp_checksum() } else { sum.checksum() };
        packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    proptest! {
        #[test]
        fn checksums_are_right_behind_extension_headers_too(
            protocol in prop::sample::select(vec![6u8, 17, 58]),
            options in 0usize..3,
            mut transport in prop::collection::vec(any::<u8>(), 20..300),
        ) {
            let (path, hosts) = path();
            transport[0] |= 0x80; // no ICMPv6 error
            let mut payload = Vec::new();
            for number in 0..options {
                let next = if number + 1 == options { protocol } else { 60 };
                payload.extend([next, 0, 1, 4, 0, 0, 0, 0]);
            }
            payload.extend(&transport);
            let mut inner = packet(hosts, if options == 0 { protocol } else { 60 }, &payload);
            complete(&mut inner, options * 8, protocol);
            let mut outer = inner.clone();
            outgoing(&path, hosts, &mut outer);
            prop_assert_eq!(addresses(&outer), Some((path.source.address, path.destination.address)));
            let mut expected = outer.clone();
            complete(&mut expected, options * 8, protocol);
            prop_assert_eq!(&outer, &expected);
            replace(&mut outer, hosts);
            prop_assert_eq!(outer, inner);
        }

        #[test]
        fn nothing_panics(mut bytes in prop::collection::vec(any::<u8>(), 0..200), next in prop::sample::select(vec![58u8, 60, 44, 6, 17])) {
            let (path, hosts) = path();
            if let Some(byte) = bytes.get_mut(6) {
                *byte = next;
            }
            outgoing(&path, hosts, &mut bytes);
            replace(&mut bytes, hosts);
        }
    }

    #[test]
    fn a_quoted_packet_shows_no_true_address_and_is_right() {
        let (path, hosts) = path();
        let mut quoted = packet((hosts.1, hosts.0), 17, &[1, 2, 3, 4, 0, 12, 0, 0, 9, 9, 9, 9]);
        complete(&mut quoted, 0, 17);
        let message = [&[1, 4, 0, 0, 0, 0, 0, 0], &quoted[..]].concat();
        let mut error = packet(hosts, 58, &message);
        complete(&mut error, 0, 58);
        outgoing(&path, hosts, &mut error);
        let mut expected = error.clone();
        complete(&mut expected, 0, 58);
        assert_eq!(error, expected);
        let mut quote = error.split_off(48);
        assert_eq!(addresses(&quote), Some((path.destination.address, path.source.address)));
        let as_it_is = quote.clone();
        complete(&mut quote, 0, 17);
        assert_eq!(quote, as_it_is);
    }

    #[test]
    fn what_has_no_checksum_keeps_its_bytes() {
        let (path, hosts) = path();
        let fragment = [&[17, 0, 1, 0, 0, 0, 0, 1][..], &[7; 40]].concat();
        for (next_header, payload) in [(50, vec![7; 40]), (44, fragment), (17, vec![1, 2, 3, 4, 0, 8, 0, 0])]
        {
            let mut outer = packet(hosts, next_header, &payload);
            outgoing(&path, hosts, &mut outer);
            assert_eq!(outer[40..], payload);
        }
    }
}

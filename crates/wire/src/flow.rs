//! What tells flows apart: the addresses of a packet, and a hash over addresses, protocol and ports.

use std::net::IpAddr;

use crate::bytes::{ipv4_at, ipv6_at, u16_at, u32_at};
use crate::{ParseError, ipv4, ipv6, protocol};

/// Source and destination address of an IPv4 or IPv6 packet.
///
/// # Errors
/// [`ParseError::Truncated`] when the fixed header is not there, [`ParseError::Version`] when it is neither.
pub fn addresses(packet: &[u8]) -> Result<(IpAddr, IpAddr), ParseError> {
    match version(packet)? {
        Version::V6 => Ok((ipv6_at(packet, 8).into(), ipv6_at(packet, 24).into())),
        Version::V4 => Ok((ipv4_at(packet, 12).into(), ipv4_at(packet, 16).into())),
    }
}

/// A hash of an IPv4 or IPv6 packet's flow: addresses, protocol and, where they can be seen, ports.
///
/// Fragments are hashed by addresses and protocol alone, the first one too, so that all of a packet's
/// fragments keep together. Length fields are not looked at, so a GSO packet hashes as its segments do. The
/// hash is unkeyed: good for choosing a lane, not for a table that strangers fill.
///
/// # Errors
/// As [`addresses`].
pub fn hash(packet: &[u8]) -> Result<u32, ParseError> {
    let (addresses, protocol, ports) = match version(packet)? {
        Version::V6 => {
            let payload = &packet[ipv6::HEADER_LEN..];
            let (protocol, ports) = match ipv6::upper_layer(packet[6], payload) {
                Ok(upper) if upper.fragment.is_none() => {
                    (upper.protocol, ports(upper.protocol, &payload[upper.offset..]))
                }
                Ok(upper) => (upper.protocol, 0),
                Err(_) => (packet[6], 0),
            };
            (&packet[8..40], protocol, ports)
        }
        Version::V4 => {
            let protocol = packet[9];
            let is_fragment = u16_at(packet, 6) & !ipv4::DONT_FRAGMENT != 0;
            let payload = packet.get(usize::from(packet[0] & 0xf) * 4..).unwrap_or_default();
            (&packet[12..20], protocol, if is_fragment { 0 } else { ports(protocol, payload) })
        }
    };
    Ok(finish(mix_addresses(addresses), protocol, ports))
}

/// Hash of a flow whose parts are at hand: `addresses` are source and destination as in the IP header,
/// `ports` both port fields as one integer.
pub(crate) fn hash_parts(addresses: &[u8], protocol: u8, ports: u32) -> u32 {
    finish(mix_addresses(addresses), protocol, ports)
}

enum Version {
    V4,
    V6,
}

fn version(packet: &[u8]) -> Result<Version, ParseError> {
    let (version, length) = match packet.first().ok_or(ParseError::Truncated)? >> 4 {
        6 => (Version::V6, ipv6::HEADER_LEN),
        4 => (Version::V4, ipv4::HEADER_LEN),
        _ => return Err(ParseError::Version),
    };
    if packet.len() < length { Err(ParseError::Truncated) } else { Ok(version) }
}

fn ports(protocol: u8, transport: &[u8]) -> u32 {
    match protocol {
        protocol::TCP | protocol::UDP if transport.len() >= 4 => u32_at(transport, 0),
        _ => 0,
    }
}

fn mix_addresses(addresses: &[u8]) -> u64 {
    let mut state = 0x243f_6a88_85a3_08d3;
    for chunk in addresses.as_chunks::<8>().0 {
        state = mix(state, u64::from_be_bytes(*chunk));
    }
    state
}

fn finish(state: u64, protocol: u8, ports: u32) -> u32 {
    (mix(state, u64::from(protocol) << 32 | u64::from(ports)) >> 32) as u32
}

/// A wide multiplication folded onto itself: every input bit reaches every output bit.
fn mix(state: u64, value: u64) -> u64 {
    let product = u128::from(state ^ value) * 0x9e37_79b9_7f4a_7c15;
    (product as u64) ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    fn udp6(source_port: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(source_port, 53).write(&mut bytes, payload).unwrap();
        bytes
    }

    fn udp4(source_port: u16) -> Vec<u8> {
        let mut bytes = Vec::new();
        PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
            .udp(source_port, 53)
            .write(&mut bytes, b"x")
            .unwrap();
        bytes
    }

    #[test]
    fn packets_of_a_flow_hash_alike_and_flows_apart() {
        assert_eq!(hash(&udp6(1000, b"a")), hash(&udp6(1000, b"another")));
        assert_ne!(hash(&udp6(1000, b"a")), hash(&udp6(1001, b"a")));
        assert_ne!(hash(&udp4(1000)), hash(&udp4(1001)));
    }

    #[test]
    fn an_extension_header_does_not_hide_the_ports() {
        let mut packet = udp6(1000, b"a");
        packet[6] = protocol::DESTINATION_OPTIONS;
        packet.splice(40..40, [protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(hash(&packet), hash(&udp6(1000, b"a")));
    }

    #[test]
    fn fragments_of_a_packet_keep_together() {
        let (mut first, mut later) = (udp4(1000), udp4(2000));
        first[6] = 0x20;
        later[7] = 0x55;
        assert_eq!(hash(&first), hash(&later));

        let fragment = |offset_and_more: [u8; 2], port| {
            let mut packet = udp6(port, b"a");
            packet[6] = protocol::FRAGMENT;
            let [high, low] = offset_and_more;
            packet.splice(40..40, [protocol::UDP, 0, high, low, 0, 0, 0, 9]);
            packet
        };
        assert_eq!(hash(&fragment([0, 1], 1000)), hash(&fragment([5, 0xa0], 2000)));
    }

    #[test]
    fn lanes_are_used_evenly() {
        let mut lanes = [0u32; 16];
        for port in 0..16_000 {
            lanes[hash(&udp6(port, b"")).unwrap() as usize % 16] += 1;
        }
        assert!(lanes.iter().all(|&count| (850..1150).contains(&count)), "{lanes:?}");
    }

    #[test]
    fn addresses_of_both_families() {
        assert_eq!(addresses(&udp4(1)).unwrap(), ([192, 0, 2, 1].into(), [192, 0, 2, 2].into()));
        assert_eq!(addresses(&udp6(1, b"")).unwrap(), ([1; 16].into(), [2; 16].into()));
        assert_eq!(addresses(&[]), Err(ParseError::Truncated));
        assert_eq!(addresses(&[0x60; 39]), Err(ParseError::Truncated));
        assert_eq!(addresses(&[0x50; 40]), Err(ParseError::Version));
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = (hash(&bytes), addresses(&bytes));
        }
    }
}

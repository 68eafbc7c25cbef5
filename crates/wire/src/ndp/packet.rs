//! What all messages have in common when they are sent: the groups that they go to, the IPv6 header, the checksum and the
//! Ethernet frame.

use std::net::Ipv6Addr;

use crate::bytes::put_u16;
use crate::checksum::Sum;
use crate::ethernet::{self, MacAddress};
use crate::{icmpv6, ipv6, protocol};

/// The hop limit that proves that a message comes from the link (RFC 4861 §3.1).
pub(super) const HOP_LIMIT: u8 = 255;

/// All nodes of the link.
pub const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// All routers of the link.
pub const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// The solicited-node multicast address of `address` (RFC 4291 §2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The Ethernet address that a multicast address maps to (RFC 2464 §7).
pub fn multicast_mac(group: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = group.octets();
    MacAddress([0x33, 0x33, a, b, c, d])
}

/// The IPv6 header in front of a message of that length.
pub(super) fn header(source: Ipv6Addr, destination: Ipv6Addr, message_len: usize) -> ipv6::Header {
    ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: message_len as u16,
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source,
        destination,
    }
}

/// Writes the message's checksum.
pub(super) fn write_checksum(header: &ipv6::Header, message: &mut [u8]) {
    put_u16(message, icmpv6::CHECKSUM_OFFSET, 0);
    let length = message.len() as u32;
    let pseudo = Sum::pseudo_ipv6(header.source, header.destination, length, protocol::ICMPV6);
    put_u16(message, icmpv6::CHECKSUM_OFFSET, (pseudo + Sum::of(message)).checksum());
}

/// Writes the header of the frame that carries a packet to `ipv6_destination`: to its group, or to the one neighbor that
/// has `unicast`.
pub(super) fn ethernet_header(
    ipv6_destination: Ipv6Addr,
    unicast: MacAddress,
    source: MacAddress,
) -> [u8; ethernet::HEADER_LEN] {
    let destination = if ipv6_destination.is_multicast() { multicast_mac(ipv6_destination) } else { unicast };
    ethernet::Header { destination, source, ethertype: ethernet::ETHERTYPE_IPV6 }.to_bytes()
}

/// Corrects length and checksum after a test has changed something.
#[cfg(test)]
pub(super) fn corrected(mut packet: Vec<u8>) -> Vec<u8> {
    let length = packet.len() - ipv6::HEADER_LEN;
    put_u16(&mut packet, 4, length as u16);
    let view = ipv6::Packet::parse(&packet).unwrap();
    let header = header(view.source(), view.destination(), length);
    write_checksum(&header, &mut packet[ipv6::HEADER_LEN..]);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multicast_addresses() {
        let address = "2001:db8::abcd:ef01:2345".parse().unwrap();
        assert_eq!(solicited_node(address), "ff02::1:ff01:2345".parse::<Ipv6Addr>().unwrap());
        assert_eq!(multicast_mac(solicited_node(address)), MacAddress([0x33, 0x33, 0xff, 1, 0x23, 0x45]));
        assert_eq!(multicast_mac(ALL_ROUTERS), MacAddress([0x33, 0x33, 0, 0, 0, 2]));
    }
}

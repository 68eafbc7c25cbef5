//! Router Solicitation (RFC 4861 §4.1).

use std::net::Ipv6Addr;

use super::options::SOURCE_LINK_LAYER;
use super::packet::{ALL_ROUTERS, ethernet_header, header, write_checksum};
use crate::ethernet::{self, MacAddress};
use crate::{icmpv6, ipv6};

/// A Router Solicitation to send. From the unspecified address it has no options, and says nothing about the sender but
/// the link-layer address that its frame comes from (RFC 4861 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterSolicitation;

/// Length of a [`RouterSolicitation`] packet with the sender's link-layer address.
pub const ROUTER_SOLICITATION_PACKET_LEN: usize = ipv6::HEADER_LEN + 16;
/// Length of a [`RouterSolicitation`] frame in bytes.
pub const ROUTER_SOLICITATION_FRAME_LEN: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + 8;

impl RouterSolicitation {
    /// The IPv6 packet from an address of ours, with the link-layer address, so that the router need not ask for it.
    pub fn to_packet_from(
        self,
        source: Ipv6Addr,
        source_link_layer: MacAddress,
    ) -> [u8; ROUTER_SOLICITATION_PACKET_LEN] {
        let mut packet = [0; ROUTER_SOLICITATION_PACKET_LEN];
        let (ip, message) = packet.split_at_mut(ipv6::HEADER_LEN);
        let header = header(source, ALL_ROUTERS, message.len());
        ip.copy_from_slice(&header.to_bytes());
        message[0] = icmpv6::ROUTER_SOLICITATION;
        message[8..10].copy_from_slice(&[SOURCE_LINK_LAYER, 1]);
        message[10..].copy_from_slice(&source_link_layer.0);
        write_checksum(&header, message);
        packet
    }

    /// The IPv6 packet without options, from an address of ours or the unspecified one.
    pub fn to_packet(self, source: Ipv6Addr) -> [u8; ipv6::HEADER_LEN + 8] {
        let mut packet = [0; ipv6::HEADER_LEN + 8];
        let (ip, message) = packet.split_at_mut(ipv6::HEADER_LEN);
        let header = header(source, ALL_ROUTERS, message.len());
        ip.copy_from_slice(&header.to_bytes());
        message[0] = icmpv6::ROUTER_SOLICITATION;
        write_checksum(&header, message);
        packet
    }

    /// The Ethernet frame, from this link-layer address to all routers.
    pub fn to_frame(self, source: MacAddress) -> [u8; ROUTER_SOLICITATION_FRAME_LEN] {
        let mut frame = [0; ROUTER_SOLICITATION_FRAME_LEN];
        let (ethernet, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
        ethernet.copy_from_slice(&ethernet_header(ALL_ROUTERS, source, source));
        packet.copy_from_slice(&self.to_packet(Ipv6Addr::UNSPECIFIED));
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndp::{self, Message};

    #[test]
    fn a_solicitation_tells_nothing() {
        let source = MacAddress([2, 1, 2, 3, 4, 5]);
        let frame = RouterSolicitation.to_frame(source);
        let frame = ethernet::Frame::parse(&frame).unwrap();
        let packet = ipv6::Packet::parse(frame.payload()).unwrap();
        let message = ndp::parse(&packet).unwrap();
        assert!(matches!(message, Message::RouterSolicitation { source_link_layer: None }));
        assert_eq!((frame.source(), packet.source()), (source, Ipv6Addr::UNSPECIFIED));
    }

    #[test]
    fn a_solicitation_from_an_address_tells_the_link_layer_address() {
        let (address, mac) = ("fe80::2".parse().unwrap(), MacAddress([2, 1, 2, 3, 4, 5]));
        let packet = RouterSolicitation.to_packet_from(address, mac);
        let message = ndp::parse(&ipv6::Packet::parse(&packet).unwrap()).unwrap();
        assert!(
            matches!(message, Message::RouterSolicitation { source_link_layer } if source_link_layer == Some(mac))
        );
    }
}

//! Router Solicitation (RFC 4861 §4.1).

use std::net::Ipv6Addr;

use super::packet::{ALL_ROUTERS, ethernet_header, header, write_checksum};
use crate::ethernet::{self, MacAddress};
use crate::{icmpv6, ipv6};

/// A Router Solicitation to send, from the unspecified address and without options: it says nothing about the sender
/// but the link-layer address that its frame comes from (RFC 4861 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterSolicitation;

/// Length of a [`RouterSolicitation`] frame in bytes.
pub const ROUTER_SOLICITATION_FRAME_LEN: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + 8;

impl RouterSolicitation {
    /// The Ethernet frame, from this link-layer address to all routers.
    pub fn to_frame(self, source: MacAddress) -> [u8; ROUTER_SOLICITATION_FRAME_LEN] {
        let mut frame = [0; ROUTER_SOLICITATION_FRAME_LEN];
        let (ethernet, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
        let (ip, message) = packet.split_at_mut(ipv6::HEADER_LEN);
        let header = header(Ipv6Addr::UNSPECIFIED, ALL_ROUTERS, message.len());
        ethernet.copy_from_slice(&ethernet_header(ALL_ROUTERS, source, source));
        ip.copy_from_slice(&header.to_bytes());
        message[0] = icmpv6::ROUTER_SOLICITATION;
        write_checksum(&header, message);
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
}

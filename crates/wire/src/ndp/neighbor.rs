//! Neighbor Solicitation and Neighbor Advertisement (RFC 4861 §4.3, §4.4).

use std::net::Ipv6Addr;

use super::options::{NONCE, SOURCE_LINK_LAYER, TARGET_LINK_LAYER};
use super::packet::{ALL_NODES, ethernet_header, header, solicited_node, write_checksum};
use crate::ethernet::{self, MacAddress};
use crate::{icmpv6, ipv6};

/// Length of the packets built here, from the IPv6 header on.
pub const NEIGHBOR_PACKET_LEN: usize = ipv6::HEADER_LEN + MESSAGE_LEN;
/// The same with the Ethernet header.
pub const NEIGHBOR_FRAME_LEN: usize = ethernet::HEADER_LEN + NEIGHBOR_PACKET_LEN;

const MESSAGE_LEN: usize = 32;
pub(super) const FLAG_ROUTER: u8 = 0x80;
pub(super) const FLAG_SOLICITED: u8 = 0x40;
pub(super) const FLAG_OVERRIDE: u8 = 0x20;

/// A Neighbor Solicitation to send, with its source link-layer address option.
///
/// Sent to one node instead of the group it makes that node hold an entry for `source` at once (RFC 4861
/// §7.2.3), which is how a router is prepared for an address before traffic to it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighborSolicitation {
    /// The sender's address; not the unspecified one, which must not carry the option.
    pub source: Ipv6Addr,
    /// [`solicited_node`](super::solicited_node) of the target, or the target itself.
    pub destination: Ipv6Addr,
    /// Whose link-layer address is asked for.
    pub target: Ipv6Addr,
    /// The sender's link-layer address.
    pub source_link_layer: MacAddress,
}

impl NeighborSolicitation {
    /// The IPv6 packet.
    pub fn to_packet(self) -> [u8; NEIGHBOR_PACKET_LEN] {
        packet(
            self.source,
            self.destination,
            icmpv6::NEIGHBOR_SOLICITATION,
            0,
            self.target,
            SOURCE_LINK_LAYER,
            self.source_link_layer,
        )
    }

    /// The Ethernet frame, from the sender's link-layer address; `destination` is where the frame goes when
    /// the IPv6 destination is not multicast (then [`multicast_mac`](super::multicast_mac) is used).
    pub fn to_frame(self, destination: MacAddress) -> [u8; NEIGHBOR_FRAME_LEN] {
        frame(ethernet_header(self.destination, destination, self.source_link_layer), self.to_packet())
    }
}

/// What tells a host's own solicitation, come back by a loop, from that of a host with the same address (RFC 7527 §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce(pub [u8; 6]);

/// A Neighbor Solicitation to send by a host that asks whether somebody else has its address (RFC 4862 §5.4.2): from the
/// unspecified address, and with a nonce (RFC 7527 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DuplicateSolicitation {
    /// The address.
    pub target: Ipv6Addr,
    /// Another one each time.
    pub nonce: Nonce,
}

impl DuplicateSolicitation {
    /// The IPv6 packet.
    pub fn to_packet(self) -> [u8; NEIGHBOR_PACKET_LEN] {
        packet(
            Ipv6Addr::UNSPECIFIED,
            solicited_node(self.target),
            icmpv6::NEIGHBOR_SOLICITATION,
            0,
            self.target,
            NONCE,
            MacAddress(self.nonce.0),
        )
    }
}

/// A Neighbor Advertisement to send, with its target link-layer address option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighborAdvertisement {
    /// The sender's address; usually the target.
    pub source: Ipv6Addr,
    /// Who asked, or [`ALL_NODES`] if it was the unspecified address.
    pub destination: Ipv6Addr,
    /// Whose link-layer address is told.
    pub target: Ipv6Addr,
    /// The target's link-layer address.
    pub target_link_layer: MacAddress,
    /// The sender is a router.
    pub router: bool,
    /// It answers a solicitation; must be false towards [`ALL_NODES`].
    pub solicited: bool,
    /// It replaces what is cached.
    pub r#override: bool,
}

impl NeighborAdvertisement {
    /// The answer to `asker`, who looks for `target` (RFC 4861 §7.2.4): to all nodes if it has no address yet, as in
    /// duplicate address detection. `router`: who answers is one.
    pub fn answer(asker: Ipv6Addr, target: Ipv6Addr, target_link_layer: MacAddress, router: bool) -> Self {
        let anonymous = asker.is_unspecified();
        NeighborAdvertisement {
            source: target,
            destination: if anonymous { ALL_NODES } else { asker },
            target,
            target_link_layer,
            router,
            solicited: !anonymous,
            r#override: true,
        }
    }

    /// The IPv6 packet.
    pub fn to_packet(self) -> [u8; NEIGHBOR_PACKET_LEN] {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let flags = flag(self.router, FLAG_ROUTER)
            | flag(self.solicited, FLAG_SOLICITED)
            | flag(self.r#override, FLAG_OVERRIDE);
        packet(
            self.source,
            self.destination,
            icmpv6::NEIGHBOR_ADVERTISEMENT,
            flags,
            self.target,
            TARGET_LINK_LAYER,
            self.target_link_layer,
        )
    }

    /// The Ethernet frame, from the target's link-layer address; `destination` is where the frame goes when
    /// the IPv6 destination is not multicast (then [`multicast_mac`](super::multicast_mac) is used).
    pub fn to_frame(self, destination: MacAddress) -> [u8; NEIGHBOR_FRAME_LEN] {
        frame(ethernet_header(self.destination, destination, self.target_link_layer), self.to_packet())
    }
}

fn packet(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    message_type: u8,
    flags: u8,
    target: Ipv6Addr,
    option: u8,
    link_layer: MacAddress,
) -> [u8; NEIGHBOR_PACKET_LEN] {
    let header = header(source, destination, MESSAGE_LEN);
    let mut packet = [0; NEIGHBOR_PACKET_LEN];
    let (ip, message) = packet.split_at_mut(ipv6::HEADER_LEN);
    ip.copy_from_slice(&header.to_bytes());
    message[0] = message_type;
    message[4] = flags;
    message[8..24].copy_from_slice(&target.octets());
    message[24..26].copy_from_slice(&[option, 1]);
    message[26..].copy_from_slice(&link_layer.0);
    write_checksum(&header, message);
    packet
}

fn frame(header: [u8; ethernet::HEADER_LEN], packet: [u8; NEIGHBOR_PACKET_LEN]) -> [u8; NEIGHBOR_FRAME_LEN] {
    let mut frame = [0; NEIGHBOR_FRAME_LEN];
    frame[..ethernet::HEADER_LEN].copy_from_slice(&header);
    frame[ethernet::HEADER_LEN..].copy_from_slice(&packet);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndp::packet::corrected;
    use crate::ndp::{Message, parse, solicited_node};
    use crate::{ParseError, protocol};
    use proptest::prelude::*;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0xa, 0xb]);

    fn solicitation() -> NeighborSolicitation {
        let target = "2001:db8::5678".parse().unwrap();
        NeighborSolicitation {
            source: "2001:db8::1".parse().unwrap(),
            destination: solicited_node(target),
            target,
            source_link_layer: MAC,
        }
    }

    fn advertisement() -> NeighborAdvertisement {
        NeighborAdvertisement {
            source: "2001:db8::5678".parse().unwrap(),
            destination: "2001:db8::1".parse().unwrap(),
            target: "2001:db8::5678".parse().unwrap(),
            target_link_layer: MAC,
            router: false,
            solicited: true,
            r#override: true,
        }
    }

    fn parse_bytes(bytes: &[u8]) -> Result<Message<'_>, ParseError> {
        parse(&ipv6::Packet::parse(bytes).unwrap())
    }

    #[test]
    fn a_solicitation_is_understood() {
        let packet = solicitation().to_packet();
        let Ok(Message::NeighborSolicitation { target, source_link_layer, nonce }) = parse_bytes(&packet)
        else {
            panic!("not a solicitation");
        };
        assert_eq!((target, source_link_layer, nonce), (solicitation().target, Some(MAC), None));
        assert!(etherparse::SlicedPacket::from_ip(&packet).is_ok());
    }

    #[test]
    fn a_search_for_a_duplicate_comes_from_nowhere_and_has_a_nonce() {
        let own = DuplicateSolicitation { target: solicitation().target, nonce: Nonce([1, 2, 3, 4, 5, 6]) };
        let packet = own.to_packet();
        assert_eq!(ipv6::Packet::parse(&packet).unwrap().source(), Ipv6Addr::UNSPECIFIED);
        let Ok(Message::NeighborSolicitation { target, source_link_layer: None, nonce }) =
            parse_bytes(&packet)
        else {
            panic!("not a solicitation");
        };
        assert_eq!((target, nonce), (own.target, Some(own.nonce)));
    }

    #[test]
    fn an_advertisement_is_understood() {
        let packet = advertisement().to_packet();
        let Ok(Message::NeighborAdvertisement { target, router, solicited, r#override, target_link_layer }) =
            parse_bytes(&packet)
        else {
            panic!("not an advertisement");
        };
        assert_eq!((target, target_link_layer), (advertisement().target, Some(MAC)));
        assert_eq!((router, solicited, r#override), (false, true, true));
    }

    #[test]
    fn frames_go_to_the_group_or_to_the_neighbor() {
        let neighbor = MacAddress([2, 0, 0, 0, 0, 1]);
        let bytes = solicitation().to_frame(neighbor);
        let frame = ethernet::Frame::parse(&bytes).unwrap();
        assert_eq!(frame.destination(), MacAddress([0x33, 0x33, 0xff, 0, 0x56, 0x78]));
        assert_eq!((frame.source(), frame.ethertype()), (MAC, ethernet::ETHERTYPE_IPV6));
        assert_eq!(frame.payload(), solicitation().to_packet());

        let unicast = NeighborSolicitation { destination: solicitation().target, ..solicitation() };
        let bytes = unicast.to_frame(neighbor);
        assert_eq!(ethernet::Frame::parse(&bytes).unwrap().destination(), neighbor);
        let bytes = advertisement().to_frame(neighbor);
        assert_eq!(ethernet::Frame::parse(&bytes).unwrap().destination(), neighbor);
    }

    #[test]
    fn duplicate_address_detection_is_understood() {
        let mut packet = solicitation().to_packet().to_vec();
        packet[8..24].fill(0);
        packet.truncate(64);
        let packet = corrected(packet);
        assert!(matches!(
            parse_bytes(&packet),
            Ok(Message::NeighborSolicitation { source_link_layer: None, .. })
        ));
    }

    #[test]
    fn what_the_rfc_wants_refused_is_refused() {
        let packet = solicitation().to_packet().to_vec();
        let changed = |offset: usize, value: u8| {
            let mut packet = packet.clone();
            packet[offset] = value;
            packet
        };
        let error = |packet: Vec<u8>| parse_bytes(&packet).unwrap_err();
        assert_eq!(error(changed(7, 254)), ParseError::Value, "from beyond the link");
        assert_eq!(error(changed(41, 1)), ParseError::Value, "code");
        assert_eq!(error(changed(60, 1)), ParseError::Checksum);
        assert_eq!(error(changed(40, icmpv6::ECHO_REQUEST)), ParseError::Type);
        assert_eq!(error(changed(6, protocol::UDP)), ParseError::Type);
        assert_eq!(error(corrected(changed(48, 0xff))), ParseError::Value, "multicast target");
        assert_eq!(error(corrected(changed(65, 0))), ParseError::Length, "option of length 0");
        assert_eq!(error(corrected(changed(65, 2))), ParseError::Truncated, "option that leaves the message");
        assert_eq!(error(corrected(packet[..60].to_vec())), ParseError::Truncated);
        let mut from_nobody = packet.clone();
        from_nobody[8..24].fill(0);
        assert_eq!(error(corrected(from_nobody)), ParseError::Value, "unspecified with a link-layer address");

        let solicited = NeighborAdvertisement { destination: ALL_NODES, ..advertisement() };
        assert_eq!(error(solicited.to_packet().to_vec()), ParseError::Value, "solicited by everybody");
    }

    proptest! {
        #[test]
        fn never_panics(kind in 133u8..137, body in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut packet = solicitation().to_packet()[..44].to_vec();
            packet[40] = kind;
            packet[41] = 0;
            packet[8] = 0xfe;
            packet[9] = 0x80;
            packet.extend(body);
            if let Ok(Message::RouterAdvertisement(advertisement)) = parse_bytes(&corrected(packet)) {
                prop_assert!(advertisement.prefixes().count() <= 4);
            }
        }
    }
}

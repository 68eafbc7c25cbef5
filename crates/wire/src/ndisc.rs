//! Neighbor discovery (RFC 4861): solicitations and advertisements of neighbors and routers.

use std::net::Ipv6Addr;

use crate::ParseError;
use crate::bytes::{ipv6_at, put_u16, u16_at, u32_at};
use crate::checksum::Sum;
use crate::ethernet::{self, MacAddress};
use crate::{icmpv6, ipv6, protocol};

/// Length of the neighbor solicitations and advertisements built here, from the IPv6 header on.
pub const PACKET_LEN: usize = ipv6::HEADER_LEN + MESSAGE_LEN;
/// The same with the Ethernet header.
pub const FRAME_LEN: usize = ethernet::HEADER_LEN + PACKET_LEN;

const MESSAGE_LEN: usize = 32;
/// The hop limit that proves that a message comes from the link (RFC 4861 §3.1).
const HOP_LIMIT: u8 = 255;
const OPTION_SOURCE_LINK_LAYER: u8 = 1;
const OPTION_TARGET_LINK_LAYER: u8 = 2;
const OPTION_PREFIX_INFORMATION: u8 = 3;
const OPTION_MTU: u8 = 5;
const FLAG_ROUTER: u8 = 0x80;
const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;

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

/// A message that passed the checks of RFC 4861 §6.1 and §7.1.
#[derive(Debug, Clone, Copy)]
pub enum Message<'a> {
    /// Router Solicitation.
    RouterSolicitation {
        /// Source link-layer address option.
        source_link_layer: Option<MacAddress>,
    },
    /// Router Advertisement.
    RouterAdvertisement(RouterAdvertisement<'a>),
    /// Neighbor Solicitation.
    NeighborSolicitation {
        /// Whose link-layer address is asked for.
        target: Ipv6Addr,
        /// Source link-layer address option.
        source_link_layer: Option<MacAddress>,
    },
    /// Neighbor Advertisement.
    NeighborAdvertisement {
        /// Whose link-layer address is told.
        target: Ipv6Addr,
        /// The sender is a router.
        router: bool,
        /// It answers a solicitation.
        solicited: bool,
        /// It replaces what is cached.
        r#override: bool,
        /// Target link-layer address option.
        target_link_layer: Option<MacAddress>,
    },
}

/// A Router Advertisement (RFC 4861 §4.2).
#[derive(Debug, Clone, Copy)]
pub struct RouterAdvertisement<'a> {
    /// Hop limit for hosts to use; 0 says nothing.
    pub hop_limit: u8,
    /// Addresses are given by DHCPv6.
    pub managed: bool,
    /// Other configuration is given by DHCPv6.
    pub other_configuration: bool,
    /// How long the router is a default router, in seconds; 0: it is none.
    pub router_lifetime: u16,
    /// How long a neighbor counts as reachable, in milliseconds; 0 says nothing.
    pub reachable_time: u32,
    /// Between two solicitations, in milliseconds; 0 says nothing.
    pub retransmission_timer: u32,
    /// Source link-layer address option.
    pub source_link_layer: Option<MacAddress>,
    /// MTU option.
    pub mtu: Option<u32>,
    /// The octet with `managed`, `other_configuration` and the preference (RFC 4191 section 2.2).
    pub(crate) flags: u8,
    options: &'a [u8],
}

/// A Prefix Information option (RFC 4861 §4.6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefixInformation {
    /// The prefix; bits behind its length are whatever the router sent.
    pub prefix: Ipv6Addr,
    /// Its length in bits, possibly above 128 when the router is wrong.
    pub prefix_length: u8,
    /// Addresses of the prefix are on the link.
    pub on_link: bool,
    /// Hosts may make addresses of their own in it.
    pub autonomous: bool,
    /// Seconds that it stays valid; all ones: for ever.
    pub valid_lifetime: u32,
    /// Seconds that addresses in it stay preferred; all ones: for ever.
    pub preferred_lifetime: u32,
}

impl<'a> RouterAdvertisement<'a> {
    /// The prefixes advertised.
    pub fn prefixes(&self) -> impl Iterator<Item = PrefixInformation> + use<'a> {
        self.options()
            .filter(|(kind, option)| *kind == OPTION_PREFIX_INFORMATION && option.len() == 32)
            .map(|(_, option)| PrefixInformation::read(option))
    }

    /// All options: type, and the whole option.
    pub(crate) fn options(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        Options(self.options)
    }
}

impl PrefixInformation {
    /// From a whole option of 32 octets.
    pub(crate) fn read(option: &[u8]) -> Self {
        PrefixInformation {
            prefix_length: option[2],
            on_link: option[3] & 0x80 != 0,
            autonomous: option[3] & 0x40 != 0,
            valid_lifetime: u32_at(option, 4),
            preferred_lifetime: u32_at(option, 8),
            prefix: ipv6_at(option, 16),
        }
    }
}

/// Reads the neighbor discovery message in `packet` and checks all that RFC 4861 wants checked of it.
///
/// # Errors
/// [`ParseError::Type`] when it carries something else; [`ParseError::Value`] for a hop limit other than 255,
/// a code other than 0, a multicast target, or addresses that do not fit the message; [`ParseError::Length`]
/// for an option of length 0; [`ParseError::Checksum`]; [`ParseError::Truncated`].
pub fn parse<'a>(packet: &ipv6::Packet<'a>) -> Result<Message<'a>, ParseError> {
    if packet.next_header() != protocol::ICMPV6 {
        return Err(ParseError::Type);
    }
    let bytes = packet.payload();
    let message = icmpv6::Message::parse(bytes)?;
    let (icmpv6::ROUTER_SOLICITATION
    | icmpv6::ROUTER_ADVERTISEMENT
    | icmpv6::NEIGHBOR_SOLICITATION
    | icmpv6::NEIGHBOR_ADVERTISEMENT) = message.message_type()
    else {
        return Err(ParseError::Type);
    };
    if packet.hop_limit() != HOP_LIMIT || message.code() != 0 {
        return Err(ParseError::Value);
    }
    icmpv6::Message::of_packet(packet)?;
    match message.message_type() {
        icmpv6::ROUTER_SOLICITATION => router_solicitation(packet, bytes),
        icmpv6::ROUTER_ADVERTISEMENT => router_advertisement(packet, bytes),
        icmpv6::NEIGHBOR_SOLICITATION => neighbor_solicitation(packet, bytes),
        _ => neighbor_advertisement(packet, bytes),
    }
}

fn router_solicitation<'a>(packet: &ipv6::Packet<'a>, bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
    let source_link_layer = link_layer(checked_options(&bytes[8..])?, OPTION_SOURCE_LINK_LAYER);
    if packet.source().is_unspecified() && source_link_layer.is_some() {
        return Err(ParseError::Value);
    }
    Ok(Message::RouterSolicitation { source_link_layer })
}

fn router_advertisement<'a>(packet: &ipv6::Packet<'a>, bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
    if !packet.source().is_unicast_link_local() {
        return Err(ParseError::Value);
    }
    let fixed = bytes.get(..16).ok_or(ParseError::Truncated)?;
    let options = checked_options(&bytes[16..])?;
    let mtu = Options(options).find(|(kind, option)| *kind == OPTION_MTU && option.len() == 8);
    Ok(Message::RouterAdvertisement(RouterAdvertisement {
        hop_limit: fixed[4],
        managed: fixed[5] & 0x80 != 0,
        other_configuration: fixed[5] & 0x40 != 0,
        router_lifetime: u16_at(fixed, 6),
        reachable_time: u32_at(fixed, 8),
        retransmission_timer: u32_at(fixed, 12),
        source_link_layer: link_layer(options, OPTION_SOURCE_LINK_LAYER),
        mtu: mtu.map(|(_, option)| u32_at(option, 4)),
        flags: fixed[5],
        options,
    }))
}

fn neighbor_solicitation<'a>(packet: &ipv6::Packet<'a>, bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
    let (target, options) = target_and_options(bytes)?;
    let source_link_layer = link_layer(options, OPTION_SOURCE_LINK_LAYER);
    // Duplicate address detection: to the solicited-node address, and without a link-layer address.
    if packet.source().is_unspecified()
        && (source_link_layer.is_some() || packet.destination() != solicited_node(target))
    {
        return Err(ParseError::Value);
    }
    Ok(Message::NeighborSolicitation { target, source_link_layer })
}

fn neighbor_advertisement<'a>(packet: &ipv6::Packet<'a>, bytes: &'a [u8]) -> Result<Message<'a>, ParseError> {
    let (target, options) = target_and_options(bytes)?;
    let flags = bytes[4];
    let solicited = flags & FLAG_SOLICITED != 0;
    if packet.destination().is_multicast() && solicited {
        return Err(ParseError::Value);
    }
    Ok(Message::NeighborAdvertisement {
        target,
        router: flags & FLAG_ROUTER != 0,
        solicited,
        r#override: flags & FLAG_OVERRIDE != 0,
        target_link_layer: link_layer(options, OPTION_TARGET_LINK_LAYER),
    })
}

fn target_and_options(bytes: &[u8]) -> Result<(Ipv6Addr, &[u8]), ParseError> {
    if bytes.len() < 24 {
        return Err(ParseError::Truncated);
    }
    let target = ipv6_at(bytes, 8);
    if target.is_multicast() {
        return Err(ParseError::Value);
    }
    Ok((target, checked_options(&bytes[24..])?))
}

/// Returns `bytes` if they are whole options, none of length 0 (RFC 4861 §4.6).
fn checked_options(bytes: &[u8]) -> Result<&[u8], ParseError> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let [_, units, ..] = *rest else { return Err(ParseError::Truncated) };
        if units == 0 {
            return Err(ParseError::Length);
        }
        rest = rest.get(usize::from(units) * 8..).ok_or(ParseError::Truncated)?;
    }
    Ok(bytes)
}

/// Options as (type, whole option); ends at a malformed one.
struct Options<'a>(&'a [u8]);

impl<'a> Iterator for Options<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [kind, units @ 1..=255, ..] = *self.0 else { return None };
        let (option, rest) = self.0.split_at_checked(usize::from(units) * 8)?;
        self.0 = rest;
        Some((kind, option))
    }
}

fn link_layer(options: &[u8], kind: u8) -> Option<MacAddress> {
    let (_, option) = Options(options).find(|(found, option)| *found == kind && option.len() == 8)?;
    let [_, _, address @ ..] = option.first_chunk::<8>()?;
    Some(MacAddress(*address))
}

/// A Router Solicitation to send, from the unspecified address and without options: it says nothing about the sender
/// but the link-layer address that its frame comes from (RFC 4861 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterSolicitation;

/// Length of a [`RouterSolicitation`] frame in bytes.
pub const ROUTER_SOLICITATION_FRAME_LEN: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + 8;

impl RouterSolicitation {
    /// The Ethernet frame, from this link-layer address to all routers.
    pub fn to_frame(self, source: MacAddress) -> [u8; ROUTER_SOLICITATION_FRAME_LEN] {
        const LENGTH: usize = 8;
        let ethernet = ethernet::Header {
            destination: multicast_mac(ALL_ROUTERS),
            source,
            ethertype: ethernet::ETHERTYPE_IPV6,
        };
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: LENGTH as u16,
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source: Ipv6Addr::UNSPECIFIED,
            destination: ALL_ROUTERS,
        };
        let mut frame = [0; ROUTER_SOLICITATION_FRAME_LEN];
        frame[..ethernet::HEADER_LEN].copy_from_slice(&ethernet.to_bytes());
        let packet = &mut frame[ethernet::HEADER_LEN..];
        packet[..ipv6::HEADER_LEN].copy_from_slice(&header.to_bytes());
        let message = &mut packet[ipv6::HEADER_LEN..];
        message[0] = icmpv6::ROUTER_SOLICITATION;
        let sum = Sum::pseudo_ipv6(Ipv6Addr::UNSPECIFIED, ALL_ROUTERS, LENGTH as u32, protocol::ICMPV6)
            + Sum::of(message);
        put_u16(message, icmpv6::CHECKSUM_OFFSET, sum.checksum());
        frame
    }
}

/// A Neighbor Solicitation to send, with its source link-layer address option.
///
/// Sent to one node instead of the group it makes that node hold an entry for `source` at once (RFC 4861
/// §7.2.3), which is how a router is prepared for an address before traffic to it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighborSolicitation {
    /// The sender's address; not the unspecified one, which must not carry the option.
    pub source: Ipv6Addr,
    /// [`solicited_node`] of the target, or the target itself.
    pub destination: Ipv6Addr,
    /// Whose link-layer address is asked for.
    pub target: Ipv6Addr,
    /// The sender's link-layer address.
    pub source_link_layer: MacAddress,
}

impl NeighborSolicitation {
    /// The IPv6 packet.
    pub fn to_packet(self) -> [u8; PACKET_LEN] {
        packet(
            self.source,
            self.destination,
            icmpv6::NEIGHBOR_SOLICITATION,
            0,
            self.target,
            OPTION_SOURCE_LINK_LAYER,
            self.source_link_layer,
        )
    }

    /// The Ethernet frame, from the sender's link-layer address; `destination` is where the frame goes when
    /// the IPv6 destination is not multicast (then [`multicast_mac`] is used).
    pub fn to_frame(self, destination: MacAddress) -> [u8; FRAME_LEN] {
        frame(self.destination, destination, self.source_link_layer, self.to_packet())
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
    pub fn to_packet(self) -> [u8; PACKET_LEN] {
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
            OPTION_TARGET_LINK_LAYER,
            self.target_link_layer,
        )
    }

    /// The Ethernet frame, from the target's link-layer address; `destination` is where the frame goes when
    /// the IPv6 destination is not multicast (then [`multicast_mac`] is used).
    pub fn to_frame(self, destination: MacAddress) -> [u8; FRAME_LEN] {
        frame(self.destination, destination, self.target_link_layer, self.to_packet())
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
) -> [u8; PACKET_LEN] {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: MESSAGE_LEN as u16,
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source,
        destination,
    };
    let mut packet = [0; PACKET_LEN];
    packet[..ipv6::HEADER_LEN].copy_from_slice(&header.to_bytes());
    let message = &mut packet[ipv6::HEADER_LEN..];
    message[0] = message_type;
    message[4] = flags;
    message[8..24].copy_from_slice(&target.octets());
    message[24..26].copy_from_slice(&[option, 1]);
    message[26..].copy_from_slice(&link_layer.0);
    let sum = Sum::pseudo_ipv6(source, destination, MESSAGE_LEN as u32, protocol::ICMPV6) + Sum::of(message);
    put_u16(message, icmpv6::CHECKSUM_OFFSET, sum.checksum());
    packet
}

fn frame(
    ipv6_destination: Ipv6Addr,
    unicast: MacAddress,
    source: MacAddress,
    packet: [u8; PACKET_LEN],
) -> [u8; FRAME_LEN] {
    let destination = if ipv6_destination.is_multicast() { multicast_mac(ipv6_destination) } else { unicast };
    let header = ethernet::Header { destination, source, ethertype: ethernet::ETHERTYPE_IPV6 };
    let mut frame = [0; FRAME_LEN];
    frame[..ethernet::HEADER_LEN].copy_from_slice(&header.to_bytes());
    frame[ethernet::HEADER_LEN..].copy_from_slice(&packet);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// Corrects the checksum after a test has changed something.
    fn seal(mut packet: Vec<u8>) -> Vec<u8> {
        let length = (packet.len() - 40) as u16;
        put_u16(&mut packet, 4, length);
        put_u16(&mut packet, 42, 0);
        let view = ipv6::Packet::parse(&packet).unwrap();
        let sum = view.pseudo_header(u32::from(length), protocol::ICMPV6) + Sum::of(view.payload());
        put_u16(&mut packet, 42, sum.checksum());
        packet
    }

    #[test]
    fn multicast_addresses() {
        let address = "2001:db8::abcd:ef01:2345".parse().unwrap();
        assert_eq!(solicited_node(address), "ff02::1:ff01:2345".parse::<Ipv6Addr>().unwrap());
        assert_eq!(multicast_mac(solicited_node(address)), MacAddress([0x33, 0x33, 0xff, 1, 0x23, 0x45]));
        assert_eq!(multicast_mac(ALL_ROUTERS), MacAddress([0x33, 0x33, 0, 0, 0, 2]));
    }

    #[test]
    fn a_solicitation_is_understood() {
        let packet = solicitation().to_packet();
        let Ok(Message::NeighborSolicitation { target, source_link_layer }) = parse_bytes(&packet) else {
            panic!("not a solicitation");
        };
        assert_eq!((target, source_link_layer), (solicitation().target, Some(MAC)));
        assert!(etherparse::SlicedPacket::from_ip(&packet).is_ok());
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
        let packet = seal(packet);
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
        assert_eq!(error(seal(changed(48, 0xff))), ParseError::Value, "multicast target");
        assert_eq!(error(seal(changed(65, 0))), ParseError::Length, "option of length 0");
        assert_eq!(error(seal(changed(65, 2))), ParseError::Truncated, "option that leaves the message");
        assert_eq!(error(seal(packet[..60].to_vec())), ParseError::Truncated);
        let mut from_nobody = packet.clone();
        from_nobody[8..24].fill(0);
        assert_eq!(error(seal(from_nobody)), ParseError::Value, "unspecified with a link-layer address");

        let solicited = NeighborAdvertisement { destination: ALL_NODES, ..advertisement() };
        assert_eq!(error(solicited.to_packet().to_vec()), ParseError::Value, "solicited by everybody");
    }

    #[test]
    fn a_router_advertisement_is_understood() {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: 0,
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source: "fe80::1".parse().unwrap(),
            destination: ALL_NODES,
        };
        let mut packet = header.to_bytes().to_vec();
        packet.extend([134, 0, 0, 0, 64, 0xc0, 0x07, 0x08, 0, 0, 0, 1, 0, 0, 0, 2]);
        packet.extend([1, 1, 2, 0, 0, 0, 0xa, 0xb, 5, 1, 0, 0, 0, 0, 0x05, 0xdc]);
        packet.extend([3, 4, 64, 0xc0, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 0]);
        packet.extend("2001:db8:7::".parse::<Ipv6Addr>().unwrap().octets());
        let packet = seal(packet);
        let Ok(Message::RouterAdvertisement(advertisement)) = parse_bytes(&packet) else {
            panic!("not a router advertisement");
        };
        assert_eq!((advertisement.hop_limit, advertisement.router_lifetime), (64, 1800));
        assert!(advertisement.managed && advertisement.other_configuration);
        assert_eq!((advertisement.reachable_time, advertisement.retransmission_timer), (1, 2));
        assert_eq!((advertisement.source_link_layer, advertisement.mtu), (Some(MAC), Some(1500)));
        let prefixes: Vec<_> = advertisement.prefixes().collect();
        let expected = PrefixInformation {
            prefix: "2001:db8:7::".parse().unwrap(),
            prefix_length: 64,
            on_link: true,
            autonomous: true,
            valid_lifetime: 9,
            preferred_lifetime: 8,
        };
        assert_eq!(prefixes, [expected]);

        let mut foreign = packet.clone();
        foreign[8] = 0x20;
        assert_eq!(parse_bytes(&seal(foreign)).unwrap_err(), ParseError::Value, "not link-local");
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
            if let Ok(Message::RouterAdvertisement(advertisement)) = parse_bytes(&seal(packet)) {
                prop_assert!(advertisement.prefixes().count() <= 4);
            }
        }
    }
}

//! Router discovery (RFC 4861) for who stands between hosts and their router: a solicitation that tells nothing about who
//! asks, and an advertisement with another MTU.

use std::net::Ipv6Addr;

use crate::bytes::{put_u16, u32_at};
use crate::checksum::Sum;
use crate::ethernet::{self, MacAddress};
use crate::ndisc::{self, ALL_ROUTERS};
use crate::{icmpv6, ipv6, protocol};

/// Length of the solicitation's frame.
pub const SOLICITATION_LEN: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + 8;

const HOP_LIMIT: u8 = 255;
const OPTION_MTU: u8 = 5;
/// Of an advertisement, before its options.
const FIXED_LEN: usize = 16;

/// A router solicitation from no address, without options, from that hardware address.
pub fn anonymous_solicitation(source: MacAddress) -> [u8; SOLICITATION_LEN] {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: 8,
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source: Ipv6Addr::UNSPECIFIED,
        destination: ALL_ROUTERS,
    };
    let link = ethernet::Header {
        destination: ndisc::multicast_mac(ALL_ROUTERS),
        source,
        ethertype: ethernet::ETHERTYPE_IPV6,
    };
    let mut frame = [0; SOLICITATION_LEN];
    let (ethernet, packet) = frame.split_at_mut(ethernet::HEADER_LEN);
    ethernet.copy_from_slice(&link.to_bytes());
    let (ip, message) = packet.split_at_mut(ipv6::HEADER_LEN);
    ip.copy_from_slice(&header.to_bytes());
    message[0] = icmpv6::ROUTER_SOLICITATION;
    seal(&header, message);
    frame
}

/// The packet of a router advertisement that [`ndisc::parse`] has accepted, with another MTU: what `lower` makes of the
/// one that it has, if it has one. Everything else is as it was.
pub fn with_mtu(packet: &ipv6::Packet<'_>, lower: impl Fn(Option<u32>) -> u32) -> Vec<u8> {
    let message = packet.payload();
    let (fixed, mut rest) = message.split_at(FIXED_LEN.min(message.len()));
    let mut new = fixed.to_vec();
    let mut found = None;
    while let [kind, units @ 1..=255, ..] = *rest {
        let Some((option, behind)) = rest.split_at_checked(usize::from(units) * 8) else { break };
        if kind == OPTION_MTU && option.len() == 8 {
            found.get_or_insert((new.len(), u32_at(option, 4)));
        }
        new.extend_from_slice(option);
        rest = behind;
    }
    let mtu = lower(found.map(|(_, mtu)| mtu)).to_be_bytes();
    match found {
        Some((at, _)) => new[at + 4..at + 8].copy_from_slice(&mtu),
        None => {
            new.extend([OPTION_MTU, 1, 0, 0]);
            new.extend(mtu);
        }
    }
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: new.len() as u16,
        next_header: protocol::ICMPV6,
        hop_limit: HOP_LIMIT,
        source: packet.source(),
        destination: packet.destination(),
    };
    seal(&header, &mut new);
    [&header.to_bytes()[..], &new].concat()
}

fn seal(header: &ipv6::Header, message: &mut [u8]) {
    put_u16(message, icmpv6::CHECKSUM_OFFSET, 0);
    let length = message.len() as u32;
    let pseudo = Sum::pseudo_ipv6(header.source, header.destination, length, protocol::ICMPV6);
    let checksum = (pseudo + Sum::of(message)).checksum();
    put_u16(message, icmpv6::CHECKSUM_OFFSET, checksum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndisc::Message;
    use proptest::prelude::*;

    fn advertisement(options: &[u8]) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: (FIXED_LEN + options.len()) as u16,
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source: "fe80::1".parse().unwrap(),
            destination: ndisc::ALL_NODES,
        };
        let mut message = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
        message.extend(options);
        seal(&header, &mut message);
        [&header.to_bytes()[..], &message].concat()
    }

    fn mtu_of(packet: &[u8]) -> Option<u32> {
        let packet = ipv6::Packet::parse(packet).unwrap();
        match ndisc::parse(&packet).unwrap() {
            Message::RouterAdvertisement(advertisement) => advertisement.mtu,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_mtu_is_lowered_or_added() {
        let lower = |mtu: Option<u32>| mtu.unwrap_or(1500) - 39;
        let link = [1, 1, 2, 0, 0, 0, 0, 9];
        for (options, mtu) in [
            ([&link[..], &[5, 1, 0, 0, 0, 0, 0x05, 0xc8]].concat(), 1480),
            (link.to_vec(), 1500),
            (vec![], 1500),
        ] {
            let old = advertisement(&options);
            let new = with_mtu(&ipv6::Packet::parse(&old).unwrap(), lower);
            assert_eq!(mtu_of(&new), Some(mtu - 39));
            assert!(new.windows(8).any(|part| part == link) || options.is_empty());
        }
    }

    #[test]
    fn a_solicitation_tells_nothing() {
        let source = MacAddress([2, 1, 2, 3, 4, 5]);
        let frame = anonymous_solicitation(source);
        let frame = ethernet::Frame::parse(&frame).unwrap();
        let packet = ipv6::Packet::parse(frame.payload()).unwrap();
        let message = ndisc::parse(&packet).unwrap();
        assert!(matches!(message, Message::RouterSolicitation { source_link_layer: None }));
        assert_eq!((frame.source(), packet.source()), (source, Ipv6Addr::UNSPECIFIED));
    }

    proptest! {
        #[test]
        fn any_options_are_rewritten_without_panic(options in prop::collection::vec(any::<u8>(), 0..100)) {
            let old = advertisement(&options);
            let packet = ipv6::Packet::parse(&old).unwrap();
            let valid = ndisc::parse(&packet).is_ok();
            let new = with_mtu(&packet, |_| 1400);
            if valid {
                prop_assert_eq!(mtu_of(&new), Some(1400));
            }
        }
    }
}

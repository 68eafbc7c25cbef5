//! Redirect (RFC 4861 §4.5).

use std::net::Ipv6Addr;

use super::options::TARGET_LINK_LAYER;
use super::packet::{header, write_checksum};
use crate::ethernet::MacAddress;
use crate::{icmpv6, ipv6};

/// Of the message, before its options.
pub(super) const FIXED_LEN: usize = 40;
/// The option that quotes the packet that was forwarded (RFC 4861 §4.6.3).
const REDIRECTED_HEADER: u8 = 4;
/// So much of it fits into the packet of the least MTU, behind header, message and link-layer option.
const MAX_QUOTED: usize = (ipv6::MIN_MTU - ipv6::HEADER_LEN - FIXED_LEN - 8 - 8) / 8 * 8;

/// A Redirect for a router to send: where packets to a destination should go instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redirect<'a> {
    /// The router's link-local address.
    pub source: Ipv6Addr,
    /// Whose packet was forwarded.
    pub receiver: Ipv6Addr,
    /// The better first hop: a router's link-local address, or the destination itself if it is a neighbor.
    pub target: Ipv6Addr,
    /// Where the packet went.
    pub destination: Ipv6Addr,
    /// The target's link-layer address, if known.
    pub target_link_layer: Option<MacAddress>,
    /// The packet that was forwarded; what does not fit is left away.
    pub redirected: &'a [u8],
}

impl Redirect<'_> {
    /// The IPv6 packet.
    pub fn to_packet(&self) -> Vec<u8> {
        let mut packet = vec![0; ipv6::HEADER_LEN + FIXED_LEN];
        if let Some(MacAddress(address)) = self.target_link_layer {
            packet.extend([TARGET_LINK_LAYER, 1]);
            packet.extend(address);
        }
        let quoted = &self.redirected[..self.redirected.len().min(MAX_QUOTED)];
        if !quoted.is_empty() {
            let padded = quoted.len().next_multiple_of(8);
            packet.extend([REDIRECTED_HEADER, (padded / 8 + 1) as u8, 0, 0, 0, 0, 0, 0]);
            packet.extend(quoted);
            packet.resize(packet.len() + padded - quoted.len(), 0);
        }
        let header = header(self.source, self.receiver, packet.len() - ipv6::HEADER_LEN);
        let (ip, message) = packet.split_at_mut(ipv6::HEADER_LEN);
        ip.copy_from_slice(&header.to_bytes());
        message[0] = icmpv6::REDIRECT;
        message[8..24].copy_from_slice(&self.target.octets());
        message[24..40].copy_from_slice(&self.destination.octets());
        write_checksum(&header, message);
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParseError;
    use crate::ndp::packet::corrected;
    use crate::ndp::{self, Message};
    use proptest::prelude::*;

    fn redirect(redirected: &[u8]) -> Redirect<'_> {
        Redirect {
            source: "fe80::1".parse().unwrap(),
            receiver: "2001:db8::2".parse().unwrap(),
            target: "fe80::3".parse().unwrap(),
            destination: "2001:db8:9::9".parse().unwrap(),
            target_link_layer: Some(MacAddress([2, 0, 0, 0, 0, 3])),
            redirected,
        }
    }

    fn refused(packet: &[u8]) -> ParseError {
        ndp::parse(&ipv6::Packet::parse(packet).unwrap()).unwrap_err()
    }

    #[test]
    fn the_rules_of_section_8_1_are_kept() {
        let good = redirect(&[7; 50]);
        let global = "2001:db8::1".parse().unwrap();
        assert_eq!(refused(&Redirect { source: global, ..good }.to_packet()), ParseError::Value);
        let group = "ff05::1".parse().unwrap();
        assert_eq!(refused(&Redirect { destination: group, ..good }.to_packet()), ParseError::Value);
        assert_eq!(refused(&Redirect { target: global, ..good }.to_packet()), ParseError::Value);
        let neighbor = Redirect { target: good.destination, ..good }.to_packet();
        assert!(ndp::parse(&ipv6::Packet::parse(&neighbor).unwrap()).is_ok());
        let mut far = good.to_packet();
        far[7] = 254;
        assert_eq!(refused(&far), ParseError::Value);
        let short = corrected(good.to_packet()[..79].to_vec());
        assert_eq!(refused(&short), ParseError::Truncated);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(redirected in proptest::collection::vec(any::<u8>(), 0..1500)) {
            let sent = redirect(&redirected);
            let packet = sent.to_packet();
            prop_assert!(packet.len() <= ipv6::MIN_MTU);
            let Ok(Message::Redirect { target, destination, target_link_layer }) =
                ndp::parse(&ipv6::Packet::parse(&packet).unwrap())
            else {
                panic!("not a redirect");
            };
            prop_assert_eq!(
                (target, destination, target_link_layer),
                (sent.target, sent.destination, sent.target_link_layer)
            );
        }

        #[test]
        fn any_message_is_read_without_panic(message in proptest::collection::vec(any::<u8>(), 8..100)) {
            let mut packet = redirect(&[]).to_packet();
            packet.truncate(ipv6::HEADER_LEN);
            packet.extend(message);
            packet[ipv6::HEADER_LEN..ipv6::HEADER_LEN + 2].copy_from_slice(&[icmpv6::REDIRECT, 0]);
            let _ = ndp::parse(&ipv6::Packet::parse(&corrected(packet)).unwrap());
        }
    }
}

//! Router Advertisement (RFC 4861 §4.2): as it was received, what it says, and with another MTU.

use std::net::Ipv6Addr;

use super::options::{
    AdvertisedOption, MTU, Options, Preference, PrefixInformation, SOURCE_LINK_LAYER, checked_options,
    link_layer, read_option, write_option,
};
use super::packet::{header, write_checksum};
use crate::ParseError;
use crate::bytes::{put_u16, u16_at, u32_at};
use crate::ethernet::MacAddress;
use crate::{icmpv6, ipv6};

/// Of the message, before its options.
const FIXED_LEN: usize = 16;
const FLAG_MANAGED: u8 = 0x80;
const FLAG_OTHER: u8 = 0x40;

/// A received router advertisement.
#[derive(Debug, Clone, Copy)]
pub struct RouterAdvertisementView<'a> {
    fixed: &'a [u8; FIXED_LEN],
    options: &'a [u8],
}

impl<'a> RouterAdvertisementView<'a> {
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, ParseError> {
        let (fixed, options) = message.split_first_chunk().ok_or(ParseError::Truncated)?;
        Ok(Self { fixed, options: checked_options(options)? })
    }

    /// Hop limit for hosts to use; 0 says nothing.
    pub fn hop_limit(&self) -> u8 {
        self.fixed[4]
    }

    /// Addresses are given by DHCPv6.
    pub fn managed(&self) -> bool {
        self.fixed[5] & FLAG_MANAGED != 0
    }

    /// Other configuration is given by DHCPv6.
    pub fn other_configuration(&self) -> bool {
        self.fixed[5] & FLAG_OTHER != 0
    }

    /// Which default router to take, of several (RFC 4191 §2.2).
    pub fn preference(&self) -> Preference {
        Preference::from_bits(self.fixed[5] >> 3)
    }

    /// How long the router is a default router, in seconds; 0: it is none.
    pub fn router_lifetime(&self) -> u16 {
        u16_at(self.fixed, 6)
    }

    /// How long a neighbor counts as reachable, in milliseconds; 0 says nothing.
    pub fn reachable_time(&self) -> u32 {
        u32_at(self.fixed, 8)
    }

    /// Between two solicitations, in milliseconds; 0 says nothing.
    pub fn retransmission_timer(&self) -> u32 {
        u32_at(self.fixed, 12)
    }

    /// Source link-layer address option.
    pub fn source_link_layer(&self) -> Option<MacAddress> {
        link_layer(self.options, SOURCE_LINK_LAYER)
    }

    /// MTU option.
    pub fn mtu(&self) -> Option<u32> {
        let option = Options(self.options).find(|(kind, option)| *kind == MTU && option.len() == 8);
        option.map(|(_, option)| u32_at(option, 4))
    }

    /// The prefixes advertised.
    pub fn prefixes(&self) -> impl Iterator<Item = PrefixInformation> + use<'a> {
        Options(self.options).filter_map(|(kind, option)| PrefixInformation::read(kind, option))
    }
}

/// What a router advertises. Its options are of any number and length, so that it allocates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterAdvertisement {
    /// Hop limit for hosts to use; 0 says nothing.
    pub hop_limit: u8,
    /// Addresses are given by DHCPv6.
    pub managed: bool,
    /// Other configuration is given by DHCPv6.
    pub other_configuration: bool,
    /// Which default router to take, of several.
    pub preference: Preference,
    /// How long the router is a default router, in seconds; 0: it is none.
    pub router_lifetime: u16,
    /// How long a neighbor counts as reachable, in milliseconds; 0 says nothing.
    pub reachable_time: u32,
    /// Between two solicitations, in milliseconds; 0 says nothing.
    pub retransmission_timer: u32,
    /// The options, in their order.
    pub options: Vec<AdvertisedOption>,
}

impl From<RouterAdvertisementView<'_>> for RouterAdvertisement {
    /// What somebody advertises, as far as this module knows its options: others, and those that are not well formed,
    /// are left out.
    fn from(view: RouterAdvertisementView<'_>) -> Self {
        RouterAdvertisement {
            hop_limit: view.hop_limit(),
            managed: view.managed(),
            other_configuration: view.other_configuration(),
            preference: view.preference(),
            router_lifetime: view.router_lifetime(),
            reachable_time: view.reachable_time(),
            retransmission_timer: view.retransmission_timer(),
            options: Options(view.options).filter_map(|(kind, option)| read_option(kind, option)).collect(),
        }
    }
}

impl RouterAdvertisement {
    /// The IPv6 packet from a router's link-local address, to one host or to all.
    pub fn to_packet(&self, source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
        let mut packet = vec![0; ipv6::HEADER_LEN + FIXED_LEN];
        for option in &self.options {
            write_option(&mut packet, option);
        }
        let header = header(source, destination, packet.len() - ipv6::HEADER_LEN);
        let (ip, message) = packet.split_at_mut(ipv6::HEADER_LEN);
        ip.copy_from_slice(&header.to_bytes());
        message[0] = icmpv6::ROUTER_ADVERTISEMENT;
        message[4] = self.hop_limit;
        message[5] = if self.managed { FLAG_MANAGED } else { 0 }
            | if self.other_configuration { FLAG_OTHER } else { 0 }
            | self.preference.bits() << 3;
        put_u16(message, 6, self.router_lifetime);
        message[8..12].copy_from_slice(&self.reachable_time.to_be_bytes());
        message[12..16].copy_from_slice(&self.retransmission_timer.to_be_bytes());
        write_checksum(&header, message);
        packet
    }
}

/// The packet of a router advertisement that [`parse`](super::parse) has accepted, with another MTU: what `lower` makes of the
/// one that it has, if it has one. Everything else is as it was.
pub fn with_mtu(packet: &ipv6::Packet<'_>, lower: impl Fn(Option<u32>) -> u32) -> Vec<u8> {
    let message = packet.payload();
    let (fixed, options) = message.split_at(FIXED_LEN.min(message.len()));
    let mut new = fixed.to_vec();
    let mut found = None;
    for (kind, option) in Options(options) {
        if kind == MTU && option.len() == 8 {
            found.get_or_insert((new.len(), u32_at(option, 4)));
        }
        new.extend_from_slice(option);
    }
    let mtu = lower(found.map(|(_, mtu)| mtu)).to_be_bytes();
    match found {
        Some((at, _)) => new[at + 4..at + 8].copy_from_slice(&mtu),
        None => {
            new.extend([MTU, 1, 0, 0]);
            new.extend(mtu);
        }
    }
    let header = header(packet.source(), packet.destination(), new.len());
    write_checksum(&header, &mut new);
    [&header.to_bytes()[..], &new].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ndp::options::tests::option;
    use crate::ndp::packet::corrected;
    use crate::ndp::{ALL_NODES, Message, parse};
    use proptest::prelude::*;

    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

    fn read(packet: &[u8]) -> RouterAdvertisement {
        let packet = ipv6::Packet::parse(packet).unwrap();
        match parse(&packet).unwrap() {
            Message::RouterAdvertisement(advertisement) => advertisement.into(),
            other => panic!("{other:?}"),
        }
    }

    fn advertisement(options: &[u8]) -> Vec<u8> {
        let mut message = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
        message.extend(options);
        let header = header(ROUTER, ALL_NODES, message.len());
        write_checksum(&header, &mut message);
        [&header.to_bytes()[..], &message].concat()
    }

    fn mtu_of(packet: &[u8]) -> Option<u32> {
        let packet = ipv6::Packet::parse(packet).unwrap();
        match parse(&packet).unwrap() {
            Message::RouterAdvertisement(advertisement) => advertisement.mtu(),
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
    fn a_router_advertisement_is_understood() {
        let header = header(ROUTER, ALL_NODES, 0);
        let mut packet = header.to_bytes().to_vec();
        packet.extend([134, 0, 0, 0, 64, 0xc0, 0x07, 0x08, 0, 0, 0, 1, 0, 0, 0, 2]);
        packet.extend([1, 1, 2, 0, 0, 0, 0xa, 0xb, 5, 1, 0, 0, 0, 0, 0x05, 0xdc]);
        packet.extend([3, 4, 64, 0xc0, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 0]);
        packet.extend("2001:db8:7::".parse::<Ipv6Addr>().unwrap().octets());
        let packet = corrected(packet);
        let Ok(Message::RouterAdvertisement(advertisement)) = parse(&ipv6::Packet::parse(&packet).unwrap())
        else {
            panic!("not a router advertisement");
        };
        assert_eq!((advertisement.hop_limit(), advertisement.router_lifetime()), (64, 1800));
        assert!(advertisement.managed() && advertisement.other_configuration());
        assert_eq!((advertisement.reachable_time(), advertisement.retransmission_timer()), (1, 2));
        assert_eq!(
            (advertisement.source_link_layer(), advertisement.mtu()),
            (Some(MacAddress([2, 0, 0, 0, 0xa, 0xb])), Some(1500))
        );
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
        let foreign = corrected(foreign);
        let refused = parse(&ipv6::Packet::parse(&foreign).unwrap()).unwrap_err();
        assert_eq!(refused, ParseError::Value, "not link-local");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            flags: (bool, bool),
            numbers: (u8, u16, u32, u32),
            preference in prop_oneof![Just(Preference::Low), Just(Preference::Medium), Just(Preference::High)],
            options in proptest::collection::vec(option(), 0..8),
        ) {
            let content = RouterAdvertisement {
                hop_limit: numbers.0,
                managed: flags.0,
                other_configuration: flags.1,
                preference,
                router_lifetime: numbers.1,
                reachable_time: numbers.2,
                retransmission_timer: numbers.3,
                options,
            };
            prop_assert_eq!(read(&content.to_packet(ROUTER, ALL_NODES)), content);
        }

        #[test]
        fn any_options_are_rewritten_without_panic(options in prop::collection::vec(any::<u8>(), 0..100)) {
            let old = advertisement(&options);
            let packet = ipv6::Packet::parse(&old).unwrap();
            let valid = parse(&packet).is_ok();
            let new = with_mtu(&packet, |_| 1400);
            if valid {
                prop_assert_eq!(mtu_of(&new), Some(1400));
            }
        }
    }
}

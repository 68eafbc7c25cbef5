//! Which peer an inner address is behind: the longest of all peers' allowed prefixes that contains it, unless it lies in
//! a hopping prefix. Packets to those are outer ones, which would go round for ever.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use prefix_trie::PrefixMap;

use crate::id::PeerId;

/// Tells routes from those that a node had before: what was judged by one generation is not known of another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RoutesGeneration(u64);

/// The allowed prefixes of all peers.
#[derive(Default)]
pub(crate) struct Routes {
    generation: RoutesGeneration,
    own: Option<Ipv6Net>,
    v4: PrefixMap<Ipv4Net, PeerId>,
    v6: PrefixMap<Ipv6Net, Option<PeerId>>,
}

impl Routes {
    /// From each peer's prefixes, this node's hopping prefix, and those of the peers.
    pub(crate) fn new<'a>(
        peers: impl IntoIterator<Item = (PeerId, &'a [IpNet])>,
        own: Ipv6Net,
        hop_prefixes: impl IntoIterator<Item = Ipv6Net>,
    ) -> Self {
        let mut routes = Routes { own: Some(own), ..Routes::default() };
        for prefix in hop_prefixes.into_iter().chain([own]) {
            routes.v6.insert(prefix.trunc(), None);
        }
        for (peer, prefixes) in peers {
            for prefix in prefixes {
                match prefix {
                    IpNet::V4(prefix) => drop(routes.v4.insert(prefix.trunc(), peer)),
                    IpNet::V6(prefix) => drop(routes.v6.insert(prefix.trunc(), Some(peer))),
                }
            }
        }
        routes
    }

    /// These routes take the place of `before`.
    pub(crate) fn replacing(self, before: &Routes) -> Self {
        Routes { generation: RoutesGeneration(before.generation.0 + 1), ..self }
    }

    pub(crate) fn generation(&self) -> RoutesGeneration {
        self.generation
    }

    /// Whether this node hops there.
    pub(crate) fn in_hop_prefix(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V6(address) if self.own.is_some_and(|own| own.contains(&address)))
    }

    /// The peer that `address` is behind.
    pub(crate) fn peer(&self, address: IpAddr) -> Option<PeerId> {
        match address {
            IpAddr::V4(address) => self.v4.get_lpm(&Ipv4Net::from(address)).map(|(_, peer)| *peer),
            IpAddr::V6(address) => self.v6.get_lpm(&Ipv6Net::from(address)).and_then(|(_, peer)| *peer),
        }
    }
}

/// Whether an address may be an inner packet's destination at all.
pub(crate) fn may_be_destination(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => {
            !(address.is_multicast()
                || address.is_unspecified()
                || address.is_loopback()
                || address.is_unicast_link_local())
        }
        IpAddr::V4(address) => {
            !(address.is_multicast()
                || address.is_unspecified()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_broadcast())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_counts() {
        let nets = |list: &[&str]| list.iter().map(|n| n.parse().unwrap()).collect::<Vec<IpNet>>();
        let (a, b) = (nets(&["::/0", "10.0.0.0/8"]), nets(&["2001:db8:b::/64", "10.1.0.0/16"]));
        let hop_prefix = "2001:db8:a::/64".parse().unwrap();
        let routes = Routes::new([(PeerId(3), a.as_slice()), (PeerId(5), b.as_slice())], hop_prefix, []);
        for (address, peer) in [
            ("2001:db8:b::1", Some(5)),
            ("2001:db8:c::1", Some(3)),
            ("2001:db8:a::1", None),
            ("10.1.2.3", Some(5)),
            ("10.2.2.3", Some(3)),
            ("192.0.2.1", None),
        ] {
            assert_eq!(routes.peer(address.parse().unwrap()), peer.map(PeerId), "{address}");
        }
    }
}

//! Where a node is: on a lane, or in an epoch (docs/protocol.md, "Endpoints").

use std::net::{Ipv6Addr, SocketAddrV6};

use ipnet::Ipv6Net;

use crate::id::{Epoch, LaneId};
use crate::kdf::prf;

/// The lowest port of an endpoint, and how many there are.
const PORTS: (u16, u64) = (1024, 64512);

/// What has an endpoint of its own under each address key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A lane of a session.
    Lane(LaneId),
    /// An epoch of the rendezvous.
    Epoch(Epoch),
}

/// The endpoint of an address key, in a hopping prefix.
///
/// The host part is the low `128 - plen` bits of `PRF(key, "endpoint" ‖ number ‖ retry)`; host parts that RFC 5453
/// reserves, or that are all zeros or ones, take the next retry.
pub fn derive(key: &[u8; 32], prefix: Ipv6Net, place: Place) -> SocketAddrV6 {
    let (Place::Lane(LaneId(number)) | Place::Epoch(Epoch(number))) = place;
    let (address, out) = retried(prefix, |retry| prf(key, &[b"endpoint", &number.to_be_bytes(), &[retry]]));
    let port = u64::from_be_bytes(out[16..24].try_into().expect("8 bytes")) % PORTS.1;
    SocketAddrV6::new(address, PORTS.0 + port as u16, 0, 0)
}

/// The address that packets between two hosts have in an epoch, in the place of the host's behind the node whose key and
/// hopping prefix these are (docs/protocol.md, "Replaced addresses"). `hosts` are the one behind `L` and the one behind
/// `H`.
pub fn derive_replaced(key: &[u8; 32], prefix: Ipv6Net, epoch: Epoch, hosts: [Ipv6Addr; 2]) -> Ipv6Addr {
    let [low, high] = hosts.map(|host| host.octets());
    retried(prefix, |retry| prf(key, &[b"rewrite", &epoch.0.to_be_bytes(), &low, &high, &[retry]])).0
}

/// The first of 256 outputs whose address may be used, and that address.
fn retried(prefix: Ipv6Net, mut output: impl FnMut(u8) -> [u8; 32]) -> (Ipv6Addr, [u8; 32]) {
    let host_mask = u128::from(prefix.hostmask());
    let mut retry = 0u8;
    loop {
        let out = output(retry);
        let host = u128::from_be_bytes(out[..16].try_into().expect("16 bytes")) & host_mask;
        let address = u128::from(prefix.network()) | host;
        if (host != 0 && host != host_mask && !reserved(address as u64)) || retry == u8::MAX {
            return (Ipv6Addr::from(address), out);
        }
        retry += 1;
    }
}

/// Whether an interface identifier is reserved: subnet-router anycast, the IANA Ethernet block's proxy mobile
/// identifiers, subnet anycast addresses (RFC 5453, RFC 2526).
fn reserved(identifier: u64) -> bool {
    identifier == 0
        || (0x0200_5eff_fe00_0000..=0x0200_5eff_feff_ffff).contains(&identifier)
        || (0xfdff_ffff_ffff_ff80..=0xfdff_ffff_ffff_ffff).contains(&identifier)
}

/// `address` moved to another prefix, its host bits kept.
pub(crate) fn rebase(address: Ipv6Addr, prefix: Ipv6Net) -> Ipv6Addr {
    let mask = u128::from(prefix.hostmask());
    Ipv6Addr::from((u128::from(prefix.network()) & !mask) | (u128::from(address) & mask))
}

/// The prefix of `plen` bits that `address` lies in.
pub(crate) fn prefix_of(address: Ipv6Addr, plen: u8) -> Ipv6Net {
    Ipv6Net::new(address, plen).expect("a prefix length that was one before").trunc()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn endpoints_lie_in_their_prefix(key: [u8; 32], address: u128, plen in 32u8..=112, lane: u64) {
            let prefix = Ipv6Net::new(Ipv6Addr::from(address), plen).unwrap().trunc();
            let [next, lane] = [lane.wrapping_add(1), lane].map(|lane| Place::Lane(LaneId(lane)));
            let endpoint = derive(&key, prefix, lane);
            prop_assert!(prefix.contains(endpoint.ip()));
            prop_assert!(*endpoint.ip() != prefix.network() && *endpoint.ip() != prefix.broadcast());
            prop_assert!(endpoint.port() >= 1024);
            prop_assert_eq!(endpoint, derive(&key, prefix, lane));
            prop_assert_ne!(endpoint, derive(&key, prefix, next));
        }
    }

    proptest! {
        #[test]
        fn replaced_addresses_lie_in_their_prefix_and_change(
            key: [u8; 32], address: u128, plen in 32u8..=96, epoch: u64, hosts: [u128; 2],
        ) {
            let prefix = Ipv6Net::new(Ipv6Addr::from(address), plen).unwrap().trunc();
            let hosts = hosts.map(Ipv6Addr::from);
            let (next, epoch) = (Epoch(epoch.wrapping_add(1)), Epoch(epoch));
            let replaced = derive_replaced(&key, prefix, epoch, hosts);
            prop_assert!(prefix.contains(&replaced));
            prop_assert!(replaced != prefix.network() && replaced != prefix.broadcast());
            prop_assert_ne!(replaced, derive_replaced(&key, prefix, next, hosts));
        }
    }

    #[test]
    fn reserved_identifiers() {
        for identifier in [0, 0x0200_5eff_fe00_5213, 0xfdff_ffff_ffff_ff80, 0xfdff_ffff_ffff_ffff] {
            assert!(reserved(identifier), "{identifier:x}");
        }
        assert!(!reserved(1));
    }

    #[test]
    fn rebasing_keeps_the_host() {
        let address = "2001:db8:1::abcd".parse().unwrap();
        assert_eq!(
            rebase(address, "2001:db8:2::/64".parse().unwrap()),
            "2001:db8:2::abcd".parse::<Ipv6Addr>().unwrap()
        );
    }
}

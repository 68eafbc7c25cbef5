//! Pools: networks out of which clients are given addresses, without those that are somebody's already.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ike::config::Pool;
use ipnet::IpNet;

/// The addresses of hosts in these networks, without those that are taken. IKE gives them out one by one.
pub(super) fn pools(networks: &[IpNet], taken: &[IpAddr]) -> Vec<Pool> {
    networks.iter().flat_map(|net| free(net, taken)).collect()
}

fn free(net: &IpNet, taken: &[IpAddr]) -> Vec<Pool> {
    let is_ipv4 = net.addr().is_ipv4();
    let (mut first, mut last) = (to_bits(net.network()), to_bits(net.broadcast()));
    if net.max_prefix_len() - net.prefix_len() > 1 {
        // The first one is the network's or its routers' (RFC 4291 §2.6.1), in IPv4 the last one is everybody's.
        first += 1;
        last -= u128::from(is_ipv4);
    }
    let mut inside: Vec<u128> =
        taken.iter().filter(|address| net.contains(*address)).map(|address| to_bits(*address)).collect();
    inside.sort_unstable();
    inside.dedup();
    let range = |first, last| Pool::range(to_address(first, is_ipv4)..=to_address(last, is_ipv4));
    let mut pools = Vec::new();
    for address in inside {
        if address > first {
            pools.extend(range(first, last.min(address - 1)));
        }
        let Some(next) = address.checked_add(1) else { return pools };
        first = first.max(next);
    }
    pools.extend(range(first, last).filter(|_| first <= last));
    pools
}

fn to_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn to_address(bits: u128, is_ipv4: bool) -> IpAddr {
    match u32::try_from(bits) {
        Ok(bits) if is_ipv4 => Ipv4Addr::from_bits(bits).into(),
        _ => Ipv6Addr::from_bits(bits).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(net: &str, taken: &[&str]) -> Vec<Pool> {
        let taken: Vec<IpAddr> = taken.iter().map(|address| address.parse().unwrap()).collect();
        pools(&[net.parse().unwrap()], &taken)
    }

    fn range(first: &str, last: &str) -> Pool {
        Pool::range(first.parse().unwrap()..=last.parse().unwrap()).unwrap()
    }

    #[test]
    fn clients_are_given_no_address_that_is_somebodys() {
        assert_eq!(of("10.9.0.0/24", &[]), [range("10.9.0.1", "10.9.0.254")]);
        assert_eq!(of("10.9.0.0/24", &["10.9.0.1"]), [range("10.9.0.2", "10.9.0.254")]);
        let both = [range("10.9.0.1", "10.9.0.9"), range("10.9.0.11", "10.9.0.254")];
        assert_eq!(of("10.9.0.0/24", &["10.9.0.10", "10.9.0.10", "10.8.0.1", "2001:db8::1"]), both);
        assert_eq!(of("10.9.0.0/24", &["10.9.0.255", "10.9.0.0"]), of("10.9.0.0/24", &[]));
        assert_eq!(of("10.9.0.4/32", &[]), [range("10.9.0.4", "10.9.0.4")]);
        assert_eq!(of("10.9.0.4/32", &["10.9.0.4"]), []);
        let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
        assert_eq!(of(&format!("{last}/128"), &[last]), []);
        assert_eq!(
            of("2001:db8::/126", &["2001:db8::2"]),
            [range("2001:db8::1", "2001:db8::1"), range("2001:db8::3", "2001:db8::3")]
        );
    }

    proptest! {
        #[test]
        fn no_network_panics(
            net: u128, length in 0u8..=128, taken in prop::collection::vec(any::<u128>(), 0..4), is_ipv4: bool
        ) {
            let address = |bits: u128| to_address(if is_ipv4 { bits >> 96 } else { bits }, is_ipv4);
            let length = if is_ipv4 { length / 4 } else { length };
            let net = IpNet::new(address(net), length).unwrap().trunc();
            let mut taken: Vec<IpAddr> = taken.into_iter().map(address).collect();
            taken.extend([net.network(), net.broadcast()]);
            let _ = pools(&[net], &taken);
        }
    }
}

//! Where a process beside the tunnels may listen: not at every address, and not where one of them hops, as nobody but its peer is
//! to find anything there.

use std::net::IpAddr;

use ipnet::Ipv6Net;

use crate::tunnel_status::Status;

/// Why nobody may listen at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoPlace {
    /// It is all addresses.
    Everywhere,
    /// It is a group of hosts.
    Multicast,
}

/// Whether it is one address, of one host.
///
/// # Errors
/// Where it is not.
pub fn judge(address: IpAddr) -> Result<(), NoPlace> {
    match address.to_canonical() {
        address if address.is_unspecified() => Err(NoPlace::Everywhere),
        address if address.is_multicast() => Err(NoPlace::Multicast),
        _ => Ok(()),
    }
}

/// The first of these tunnels that hops there, or whose peer does, and the prefix. No tunnel hops at loopback, whatever its
/// prefixes say.
pub fn hopped_in<'a>(
    address: IpAddr,
    tunnels: impl IntoIterator<Item = &'a Status>,
) -> Option<(&'a Status, Ipv6Net)> {
    let IpAddr::V6(address) = address.to_canonical() else { return None };
    if address.is_loopback() {
        return None;
    }
    tunnels.into_iter().find_map(|status| {
        let mut prefixes = status.peers.iter().map(|peer| peer.hop_prefix).chain([status.hop_prefix]);
        Some((status, prefixes.find(|prefix| prefix.contains(&address))?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel_status::example;

    #[test]
    fn one_address_of_one_host() {
        for everywhere in ["::", "0.0.0.0", "::ffff:0.0.0.0"] {
            assert_eq!(judge(everywhere.parse().unwrap()), Err(NoPlace::Everywhere), "{everywhere}");
        }
        for group in ["ff02::1", "224.0.0.1", "::ffff:224.0.0.1"] {
            assert_eq!(judge(group.parse().unwrap()), Err(NoPlace::Multicast), "{group}");
        }
        for one in ["::1", "127.0.0.1", "2001:db8::1", "192.0.2.1"] {
            assert_eq!(judge(one.parse().unwrap()), Ok(()), "{one}");
        }
    }

    #[test]
    fn a_tunnel_hops_in_its_own_prefix_and_in_its_peers() {
        let mut status = example();
        let hops =
            |status: &Status, address: &str| hopped_in(address.parse().unwrap(), [status]).map(|at| at.1);
        let prefixes = [status.hop_prefix, status.peers[0].hop_prefix];
        for prefix in prefixes {
            assert_eq!(hops(&status, &prefix.hosts().nth(5).unwrap().to_string()), Some(prefix));
        }
        for outside in ["2001:db8:a::1", "::1", "192.0.2.1", "::ffff:192.0.2.1"] {
            assert_eq!(hops(&status, outside), None, "{outside}");
        }
        status.hop_prefix = "::/32".parse().unwrap();
        assert_eq!(hops(&status, "::1"), None);
        assert_eq!(hops(&status, "::ffff:192.0.2.1"), None);
        assert_eq!(hops(&status, "::2"), Some(status.hop_prefix));
    }
}

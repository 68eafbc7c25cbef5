//! Who advertises, and whose places are his to take: anybody on a link can call himself a router, and any number of times.

use std::net::Ipv6Addr;

/// A router that advertises, among those that neighbor discovery has found reachable.
#[derive(Debug, Clone, Copy)]
pub struct Advertiser<'a> {
    /// Who.
    pub router: Ipv6Addr,
    /// Routers that are reachable: what they have advertised stays.
    pub reachable: &'a [Ipv6Addr],
}

impl Advertiser<'_> {
    /// Whether what another router has advertised gives way, where no place is left.
    pub(super) fn may_displace(&self, other: Ipv6Addr) -> bool {
        !self.reachable.contains(&other)
    }

    /// Whose it is from now on, if both advertise the same: what a reachable router says is not in the hands of another.
    pub(super) fn keeper_of(&self, other: Ipv6Addr) -> Ipv6Addr {
        if self.may_displace(other) { self.router } else { other }
    }
}

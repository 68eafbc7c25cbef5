//! The next hop for an address, as the kernel would route it: for the programs that send packets by themselves.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr};

use linux::netlink::{self, Link, Netlink};

/// Where packets are sent next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NextHop {
    /// The interface; 0: into this host.
    pub(super) interface: u32,
    /// The neighbor to send to, if it can be sent to at once.
    pub(super) neighbor: Option<Ipv6Addr>,
    /// The largest packet.
    pub(super) mtu: u32,
}

impl NextHop {
    /// Into this host, whose stack knows what to do.
    pub(super) const LOCAL: Self = Self { interface: 0, neighbor: None, mtu: u16::MAX as u32 };

    /// The next hop for an address. None: the stack is to say what becomes of them, as where they would come back
    /// to the TUN device `device`.
    pub(super) fn lookup(address: Ipv6Addr, device: u32, netlink: &mut Netlink) -> Option<Self> {
        let route = netlink.route_to(address.into()).ok()??;
        Self::by(&route, address, device, netlink)
    }

    fn by(route: &netlink::NextHop, address: Ipv6Addr, device: u32, netlink: &mut Netlink) -> Option<Self> {
        if route.local {
            return Some(Self::LOCAL);
        }
        if route.index == device {
            return None;
        }
        let link = netlink.link_by_index(route.index).ok()??;
        if !link.running {
            return None;
        }
        let next = route.gateway.unwrap_or(IpAddr::V6(address));
        let neighbor = netlink.neighbor(route.index, next).ok().flatten().filter(|neighbor| neighbor.usable);
        let neighbor = neighbor.and_then(|neighbor| match neighbor.address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        });
        let mtu = route.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu));
        Some(Self { interface: route.index, neighbor, mtu })
    }

    /// Whether it leads to another host.
    pub(super) fn is_remote(&self) -> bool {
        self.interface != 0
    }
}

/// How packets leave with outer addresses.
pub(super) struct Outside {
    /// The TUN device that routes into the tunnel lead to.
    pub(super) tun: u32,
    pub(super) external: Link,
    /// Whether everything leaves by the external interface, whatever routes say, as sockets do that are bound to it.
    pub(super) bound: bool,
}

impl Outside {
    /// The next hop for packets from an address of this host. None: there is no way.
    ///
    /// The largest packet is that of the interface, as for the daemon's own datagrams: a smaller MTU of a route may be what
    /// somebody has said in an ICMPv6 error, and which packets are larger than the path is told by routes into the tunnel.
    pub(super) fn next_hop(
        &self,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        netlink: &mut Netlink,
    ) -> Option<NextHop> {
        let route = self.route(source.into(), destination.into(), netlink);
        let route = route.map(|route| netlink::NextHop { mtu: None, ..route });
        let hop = route.and_then(|route| NextHop::by(&route, destination, self.tun, netlink));
        // Where all is routed into the tunnel, what is outside leaves by the external interface all the same.
        hop.filter(NextHop::is_remote).or_else(|| {
            let Link { index: interface, mtu, running, .. } = self.external;
            running.then_some(NextHop { interface, neighbor: None, mtu })
        })
    }

    fn route(&self, source: IpAddr, destination: IpAddr, netlink: &mut Netlink) -> Option<netlink::NextHop> {
        if !self.bound {
            return netlink.route_from(source, destination).ok()?;
        }
        // Asked with a source, the kernel names a route by another interface where rules lead to that first; a socket that is
        // bound passes it over, and so does the kernel when it is asked without.
        let index = self.external.index;
        let is_meant = |route: &netlink::NextHop| route.index == index;
        let route = netlink.route_by(index, source, destination).ok()?.filter(is_meant);
        route.or_else(|| netlink.route_through(index, destination).ok()?.filter(is_meant))
    }
}

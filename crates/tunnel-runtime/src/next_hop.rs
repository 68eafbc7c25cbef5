//! The next hop for an address, as the kernel would route it: for the programs that send packets by themselves.

use std::net::{IpAddr, Ipv6Addr};

use linux::netlink::Netlink;

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
        let hop = netlink.route_to(address.into()).ok()??;
        if hop.local {
            return Some(Self::LOCAL);
        }
        if hop.index == device {
            return None;
        }
        let link = netlink.link_by_index(hop.index).ok()??;
        if !link.running {
            return None;
        }
        let next = hop.gateway.unwrap_or(IpAddr::V6(address));
        let neighbor = netlink.neighbor(hop.index, next).ok().flatten().filter(|neighbor| neighbor.usable);
        let neighbor = neighbor.and_then(|neighbor| match neighbor.address {
            IpAddr::V6(address) => Some(address),
            IpAddr::V4(_) => None,
        });
        let mtu = hop.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu));
        Some(Self { interface: hop.index, neighbor, mtu })
    }

    /// Whether it leads to another host.
    pub(super) fn is_remote(&self) -> bool {
        self.interface != 0
    }
}

//! How packets leave for an address, as the programs are told that send them by themselves.

use std::net::{IpAddr, Ipv6Addr};

use linux::netlink::Netlink;

/// How packets leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The interface; 0: into this host.
    pub(super) interface: u32,
    /// The next hop, if it can be sent to at once.
    pub(super) neighbor: Option<Ipv6Addr>,
    /// The largest packet.
    pub(super) mtu: u32,
}

impl Way {
    /// Into this host, whose stack knows what to do.
    pub(super) const INTO_HOST: Self = Self { interface: 0, neighbor: None, mtu: u16::MAX as u32 };

    /// How packets leave for an address. None: the stack is to say what becomes of them, as where they would come back
    /// to the TUN device `device`.
    pub(super) fn to(address: Ipv6Addr, device: u32, netlink: &mut Netlink) -> Option<Self> {
        let hop = netlink.route_to(address.into()).ok()??;
        if hop.local {
            return Some(Self::INTO_HOST);
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
    pub(super) fn leaves(&self) -> bool {
        self.interface != 0
    }
}

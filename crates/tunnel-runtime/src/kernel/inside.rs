//! What the tunnel's interface has, the route of the hopping prefix, and those that close the tunnel: put back where another
//! program took it away, such as a network manager that takes the interface for its own, or whoever sets it down and up again.

use std::net::IpAddr;

use ipnet::IpNet;
use linux::netlink::{Change, Route, Via};
use mt6d::config::NOWHERE;
use tracing::{debug, warn};

use super::Kernel;
use super::led::Led;

impl Kernel {
    /// Gives the tunnel's interface an address. One that is another tunnel's end is the source of nothing else: no peer expects it
    /// there but the one that it leads to.
    pub(super) fn add_inside(&mut self, address: IpNet) -> linux::Result<()> {
        match self.state.own_ends.contains(&address) {
            true => self.netlink.add_deprecated_address(self.tun_index, address),
            false => self.netlink.add_address(self.tun_index, address, false),
        }
    }

    /// Leads packets to a destination into the tunnel, larger ones than `mtu` in smaller pieces.
    pub(super) fn lead_inside(&mut self, destination: IpNet, mtu: Option<u16>) -> linux::Result<()> {
        let mut route = Route::device(destination, self.tun_index);
        self.netlink.add_route(&route)?;
        match (mtu, self.source_towards(&destination)) {
            (None, None) => Ok(()),
            (mtu, source) => self.netlink.set_route(&mut route, mtu.map(u32::from), source),
        }
    }

    /// The address of this host's that packets to a destination in the tunnel get which have none yet; `None` where that is the
    /// kernel's choice. Another tunnel's packets are of its flow only with the one.
    pub(super) fn source_towards(&self, destination: &IpNet) -> Option<IpAddr> {
        let source = self.led.sources.get(destination).or_else(|| self.state.sources.get(destination));
        // The kernel takes no other.
        let is_there = |source: &IpAddr| self.state.addresses.iter().any(|own| own.addr() == *source);
        source.map(|source| IpAddr::V6(*source)).filter(is_there)
    }

    /// Leads another tunnel's packets inside as they are to be led now.
    pub(in super::super) fn lead(&mut self, led: Led) {
        let before = std::mem::replace(&mut self.led, led);
        if self.led.sources != before.sources {
            self.prefer_sources();
        }
        if self.led.strays != before.strays
            && let Some((prefix, on_link)) = self.state.hop
            && let Err(error) = self.darken(prefix, on_link)
        {
            warn!("another tunnel's packets may leave in clear: {error}");
        }
    }

    /// Has the routes to other tunnels' ends choose source addresses.
    fn prefer_sources(&mut self) {
        let ends: Vec<IpNet> = self.state.sources.keys().copied().collect();
        for end in ends.iter().filter(|end| self.state.routes.contains(end)) {
            let mut route = Route::device(*end, self.tun_index);
            let mtu = self.route_mtus.get(end).copied().map(u32::from);
            if let Err(error) = self.netlink.set_route(&mut route, mtu, self.source_towards(end)) {
                debug!("{error}");
            }
        }
    }

    /// Whether a change took away something that is to be there. What is taken away on purpose is not in the state any more.
    pub(super) fn is_loss(&self, change: &Change) -> bool {
        match change {
            Change::AddressGone(gone) => {
                gone.index == self.tun_index
                    && self.state.addresses.iter().any(|own| own.addr() == gone.address.addr())
            }
            Change::RouteGone(gone) => match gone.via {
                Via::Local => Some(gone) == self.hop_route().as_ref(),
                Via::Link { index, .. } => {
                    index == self.tun_index && self.state.routes.contains(&gone.destination)
                }
                Via::Unreachable { .. } | Via::Blackhole { .. } => self.closed.has(gone),
            },
            // The kernel says little of what an interface loses that is set down.
            Change::Link(link) => link.index == self.tun_index && link.up,
            Change::Overrun => true,
            _ => false,
        }
    }

    /// The route that makes a routed hopping prefix local.
    fn hop_route(&self) -> Option<Route> {
        let (prefix, on_link) = self.state.hop?;
        (!on_link && prefix != NOWHERE).then(|| Route::local(IpNet::V6(prefix.trunc())))
    }

    /// Puts back what is not there; true if that was something.
    pub(super) fn put_back(&mut self) -> bool {
        let mut count = 0;
        for address in self.state.addresses.clone() {
            match self.add_inside(address) {
                Ok(()) => count += 1,
                Err(error) if error.already_exists() => {}
                Err(error) => debug!("{address} is not put back: {error}"),
            }
        }
        if count > 0 {
            // With an address goes what routes say of it.
            self.prefer_sources();
        }
        let there = self.netlink.own_routes().unwrap_or_default();
        let is_inside =
            |route: &&Route| matches!(route.via, Via::Link { index, .. } if index == self.tun_index);
        let inside: std::collections::HashSet<IpNet> =
            there.iter().filter(is_inside).map(|route| route.destination).collect();
        let lost: Vec<IpNet> = self.state.routes.difference(&inside).copied().collect();
        for destination in lost {
            match self.lead_inside(destination, self.route_mtus.get(&destination).copied()) {
                Ok(()) => count += 1,
                // Set down by hand, it stays so: then it comes back with everything else.
                Err(error) => debug!("the route to {destination} is not put back: {error}"),
            }
        }
        if let Some(route) = self.hop_route().filter(|route| !there.contains(route)) {
            // It may have been the administrator's, who has taken it away: ours ends with us.
            match self.journal.add_route(&mut self.netlink, route) {
                Ok(()) => count += 1,
                Err(error) => debug!("the route of the hopping prefix is not put back: {error}"),
            }
        }
        match self.closed.put_back(&there, &mut self.netlink) {
            Ok(closed) => count += closed,
            Err(error) => debug!("what keeps the tunnel closed is not put back: {error}"),
        }
        if count > 0 {
            warn!(
                event = "interface_put_back",
                count,
                "another program took addresses or routes of the tunnel away: {count} are put back. If a network manager did, have it leave {} alone",
                self.tunnel
            );
        }
        count > 0
    }
}

//! What `ipsec up` sets up in the kernel: addresses and routes of the TUN device, which go with it; routes that refuse what the
//! tunnel is to carry while it is not there, and the way to remotes whose own address is behind a tunnel. These stay, in
//! a journal, until somebody says so, and so does what there is for hosts (see `hosts`).

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use config::ipsec::{IpsecConfig, Place};
use ike::config::Mode;
use ike::message::traffic_selector::TrafficSelector;
use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};
use ipsec::level::Level;
use ipsec::policy::{Action, Direction, Rule};
use linux::netlink::{Netlink, Route, Via};
use linux::undo::{Journal, Step};

use super::hosts::Hosts;
use crate::error::Error;

/// Behind all that others make: the kernel's own default is 1024 for IPv6 and 0 for IPv4.
pub(super) const CLOSED_METRIC: u32 = 0xf000_0000;

/// Addresses and routes.
pub(super) struct Kernel {
    netlink: Netlink,
    index: u32,
    /// Of what outlives the device.
    closed: Journal,
    hosts: Hosts,
    routes: HashSet<IpNet>,
    addresses: HashSet<IpNet>,
}

/// What a configuration asks for.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What is behind the remotes.
    pub(super) networks: HashSet<IpNet>,
    /// Addresses of the device.
    pub(super) addresses: HashSet<IpNet>,
    /// What is protected by transport mode or AH, of what this machine itself sends.
    pub(super) hosts: HashSet<IpNet>,
    /// Where remotes are.
    remotes: Vec<IpAddr>,
}

impl Wanted {
    /// Of a configuration, and of policies by hand.
    pub(super) fn of(config: &IpsecConfig, by_hand: &[Rule]) -> Self {
        let (mut networks, mut hosts) = (HashSet::new(), HashSet::new());
        let address = |remote: &config::ipsec::Remote| match remote.address {
            Some(Place::Address(address)) => Some(address),
            _ => None,
        };
        for (peer, remote) in config.ike.peers.iter().zip(&config.remotes) {
            for child in &peer.children {
                if child.mode == Mode::Transport {
                    hosts.extend(child.remote.iter().flat_map(prefixes));
                    hosts.extend(address(remote).filter(|_| child.remote.is_empty()).map(IpNet::from));
                    continue;
                }
                networks.extend(child.remote.iter().flat_map(prefixes).flat_map(halved));
                if child.remote.is_empty() {
                    networks.extend(peer.assigned.addresses.iter().map(|address| IpNet::from(*address)));
                    networks.extend(&remote.pool);
                }
            }
        }
        let mut remotes: Vec<IpAddr> = config.remotes.iter().filter_map(address).collect();
        for rule in by_hand.iter().filter(|rule| rule.direction == Direction::Out) {
            let Action::Protect { levels, tunnel } = rule.action else { continue };
            let destination = rule.selector.destination.trunc();
            if levels.tunnel_encryption > Level::None {
                networks.extend(halved(destination));
                remotes.extend(tunnel.map(|(_, there)| there));
            } else {
                hosts.insert(destination);
            }
        }
        Self { networks, addresses: config.addresses.iter().copied().collect(), hosts, remotes }
    }
}

/// The journal beside a control socket.
fn file(socket: &Path) -> PathBuf {
    socket.with_extension("closed")
}

/// Closes what the tunnel is to carry: before there is a device, so that nothing leaves in clear until then.
pub(super) fn close(wanted: &Wanted, socket: &Path, hosts: &mut Hosts) -> Result<(Netlink, Journal), Error> {
    let mut netlink = Netlink::open()?;
    let (mut closed, _) = Journal::open_keeping(&file(socket), &mut netlink, |_| true)?;
    hosts.close(&wanted.hosts, &mut netlink, &mut closed)?;
    for address in &wanted.remotes {
        keep_way_open(*address, &wanted.networks, hosts, &mut netlink, &mut closed)?;
    }
    add_closed(&wanted.networks, &mut netlink, &mut closed)?;
    Ok((netlink, closed))
}

fn add_closed(networks: &HashSet<IpNet>, netlink: &mut Netlink, closed: &mut Journal) -> Result<(), Error> {
    for network in networks {
        let via = Via::Unreachable { metric: CLOSED_METRIC, source: None };
        there_anyway(closed.add_route(netlink, Route { destination: *network, via }))?;
    }
    Ok(())
}

/// What is there already need not be added.
pub(super) fn there_anyway(added: linux::Result<()>) -> linux::Result<()> {
    match added {
        Err(error) if error.already_exists() => Ok(()),
        result => result,
    }
}

/// Where a remote's own address is behind a tunnel, datagrams to it go where they went before there was one.
fn keep_way_open(
    remote: IpAddr,
    networks: &HashSet<IpNet>,
    hosts: &Hosts,
    netlink: &mut Netlink,
    closed: &mut Journal,
) -> Result<(), Error> {
    if !networks.iter().any(|network| network.contains(&remote)) {
        return Ok(());
    }
    let destination = IpNet::from(remote);
    let has_it = |step: &Step| matches!(step, Step::Route(route) if route.destination == destination && matches!(route.via, Via::Link { .. }));
    if closed.done().iter().any(has_it) {
        return Ok(());
    }
    // No way now: the attempt will say so.
    let Some(hop) = hosts.route_to(remote, netlink)? else { return Ok(()) };
    if hop.local {
        return Ok(());
    }
    let via = Via::Link { index: hop.index, gateway: hop.gateway, mtu: None, metric: None, source: None };
    Ok(there_anyway(closed.add_route(netlink, Route { destination, via }))?)
}

impl Kernel {
    pub(super) fn new(netlink: Netlink, closed: Journal, hosts: Hosts, index: u32) -> Self {
        Self { netlink, index, closed, hosts, routes: HashSet::new(), addresses: HashSet::new() }
    }

    /// Makes addresses and routes as they are wanted. What fails leaves what was there before.
    pub(super) fn apply(&mut self, wanted: &Wanted, mtu: u16) -> Result<(), Error> {
        let before_closed = self.closed_networks();
        self.hosts.close(&wanted.hosts, &mut self.netlink, &mut self.closed)?;
        for remote in &wanted.remotes {
            keep_way_open(*remote, &wanted.networks, &self.hosts, &mut self.netlink, &mut self.closed)?;
        }
        add_closed(&wanted.networks, &mut self.netlink, &mut self.closed)?;
        self.set_mtu(mtu)?;
        let (before_addresses, before_routes) = (self.addresses.clone(), self.routes.clone());
        let added = self.add(wanted);
        let (addresses, routes, closed) = match &added {
            Ok(()) => (&wanted.addresses, &wanted.networks, &wanted.networks),
            Err(_) => (&before_addresses, &before_routes, &before_closed),
        };
        self.keep_only(addresses, routes, closed)?;
        added
    }

    fn add(&mut self, wanted: &Wanted) -> Result<(), Error> {
        for address in &wanted.addresses {
            self.add_address(*address)?;
        }
        self.netlink.set_link_up(self.index, true)?;
        for network in &wanted.networks {
            self.add_route(*network)?;
        }
        self.hosts.open(self.index, &mut self.netlink, &mut self.closed)
    }

    /// Policies by hand have changed: what they want no more goes, what is new comes.
    pub(super) fn change(&mut self, before: &Wanted, wanted: &Wanted) -> Result<(), Error> {
        self.hosts.close(&wanted.hosts, &mut self.netlink, &mut self.closed)?;
        self.hosts.open(self.index, &mut self.netlink, &mut self.closed)?;
        for remote in &wanted.remotes {
            keep_way_open(*remote, &wanted.networks, &self.hosts, &mut self.netlink, &mut self.closed)?;
        }
        add_closed(&wanted.networks, &mut self.netlink, &mut self.closed)?;
        for network in wanted.networks.difference(&before.networks) {
            self.add_route(*network)?;
        }
        let is_gone =
            |network: &IpNet| before.networks.contains(network) && !wanted.networks.contains(network);
        let kept = |networks: &HashSet<IpNet>| -> HashSet<IpNet> {
            networks.iter().copied().filter(|network| !is_gone(network)).collect()
        };
        let (addresses, routes, closed) =
            (self.addresses.clone(), kept(&self.routes), kept(&self.closed_networks()));
        self.keep_only(&addresses, &routes, &closed)
    }

    /// The mark of the tunnel's own packets; 0 for none.
    pub(super) fn mark(&self) -> u32 {
        self.hosts.mark()
    }

    /// What is refused while there is no tunnel.
    fn closed_networks(&self) -> HashSet<IpNet> {
        let network = |step: &Step| match step {
            Step::Route(route) if matches!(route.via, Via::Unreachable { .. }) => Some(route.destination),
            _ => None,
        };
        self.closed.done().iter().filter_map(network).collect()
    }

    fn keep_only(
        &mut self,
        addresses: &HashSet<IpNet>,
        routes: &HashSet<IpNet>,
        closed: &HashSet<IpNet>,
    ) -> Result<(), Error> {
        for address in self.addresses.difference(addresses).copied().collect::<Vec<_>>() {
            self.netlink.delete_address(self.index, address)?;
            self.addresses.remove(&address);
        }
        for network in self.routes.difference(routes).copied().collect::<Vec<_>>() {
            self.netlink.delete_route(&Route::device(network, self.index))?;
            self.routes.remove(&network);
        }
        for step in self.closed.done().to_vec() {
            if let Step::Route(route) = step
                && matches!(route.via, Via::Unreachable { .. })
                && !closed.contains(&route.destination)
            {
                self.closed.delete_route(&mut self.netlink, &route)?;
            }
        }
        Ok(())
    }

    /// Puts back what somebody has taken away: at the device, once it is up again, and what is refused without it.
    pub(super) fn restore(&mut self) -> Result<(), Error> {
        let refused = self.closed.done().iter().filter_map(|step| match step {
            Step::Route(route) if matches!(route.via, Via::Unreachable { .. }) => Some(route),
            _ => None,
        });
        for route in refused {
            there_anyway(self.netlink.add_route(route))?;
        }
        self.hosts.restore(&mut self.netlink)?;
        if !self.netlink.link_by_index(self.index)?.is_some_and(|link| link.up) {
            return Ok(());
        }
        for address in &self.addresses {
            there_anyway(self.netlink.add_address(self.index, *address, false))?;
        }
        for network in &self.routes {
            there_anyway(self.netlink.add_route(&Route::device(*network, self.index)))?;
        }
        self.hosts.open(self.index, &mut self.netlink, &mut self.closed)
    }

    /// An address of the device, of the configuration or given by a remote.
    pub(super) fn add_address(&mut self, address: IpNet) -> Result<(), Error> {
        if self.addresses.contains(&address) {
            return Ok(());
        }
        self.netlink.add_address(self.index, address, false)?;
        self.addresses.insert(address);
        Ok(())
    }

    /// An address that is not given any more.
    pub(super) fn delete_address(&mut self, address: IpNet) -> Result<(), Error> {
        if self.addresses.remove(&address) {
            self.netlink.delete_address(self.index, address)?;
        }
        Ok(())
    }

    /// A child is there for these networks, with a remote at this address.
    pub(super) fn add_networks(&mut self, networks: &[IpNet], remote: IpAddr) -> Result<(), Error> {
        let new: HashSet<IpNet> = networks.iter().flat_map(|network| halved(*network)).collect();
        keep_way_open(remote, &new, &self.hosts, &mut self.netlink, &mut self.closed)?;
        for network in new {
            // What is within one that is routed already needs no route.
            if !self.routes.iter().any(|routed| routed.contains(&network)) {
                self.add_route(network)?;
            }
        }
        Ok(())
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) -> Result<(), Error> {
        Ok(self.netlink.set_link_mtu(self.index, mtu.into())?)
    }

    /// MTU of the interface that leads to a remote.
    pub(super) fn mtu_towards(&mut self, remote: IpAddr) -> Option<u16> {
        let hop = self.hosts.route_to(remote, &mut self.netlink).ok()??;
        let link = self.netlink.link_by_index(hop.index).ok()??;
        u16::try_from(link.mtu.min(hop.mtu.unwrap_or(link.mtu))).ok()
    }

    fn add_route(&mut self, network: IpNet) -> Result<(), Error> {
        if self.routes.contains(&network) {
            return Ok(());
        }
        match self.netlink.add_route(&Route::device(network, self.index)) {
            // The kernel makes one for each address with a prefix.
            Err(error) if error.already_exists() => {
                let inside = network.addr();
                let leads_here = self.netlink.route_to(inside)?.is_some_and(|hop| hop.index == self.index);
                if !leads_here {
                    return Err(Error::RouteExists(network));
                }
            }
            result => result?,
        }
        self.routes.insert(network);
        Ok(())
    }
}

/// A default route as two halves, which go before the one that the machine has anyway.
fn halved(network: IpNet) -> impl Iterator<Item = IpNet> {
    let length = network.prefix_len().max(1);
    network.trunc().subnets(length).into_iter().flatten()
}

fn prefixes(selector: &TrafficSelector) -> Vec<IpNet> {
    match selector.addresses() {
        (IpAddr::V4(first), IpAddr::V4(last)) => IpSubnets::V4(Ipv4Subnets::new(first, last, 0)).collect(),
        (IpAddr::V6(first), IpAddr::V6(last)) => IpSubnets::V6(Ipv6Subnets::new(first, last, 0)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_default_route_is_halved() {
        let of = |text: &str| halved(text.parse().unwrap()).map(|net| net.to_string()).collect::<Vec<_>>();
        assert_eq!(of("::/0"), ["::/1", "8000::/1"]);
        assert_eq!(of("0.0.0.0/0"), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(of("2001:db8::1/32"), ["2001:db8::/32"]);
        assert_eq!(of("10.0.0.1/32"), ["10.0.0.1/32"]);
    }
}

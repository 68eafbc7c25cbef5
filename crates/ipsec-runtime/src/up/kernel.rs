//! What `ipsec up` sets up in the kernel: addresses and routes of the TUN device, which go with it; routes that refuse what the
//! tunnel is to carry while it is not there, and the way to remotes whose own address is behind a tunnel. These stay, in
//! a journal, until somebody says so, and with them the table of `table` and what there is for hosts (see `hosts`).

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use linux::event::Waker;
use linux::inside::table_name;
use linux::netlink::{Netlink, Route, Via};
use linux::undo::{Journal, Step};

use super::hosts::Hosts;
use super::kept::Kept;
use super::table;
use super::wanted::{Wanted, halved};
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
    wanted: Wanted,
    table: Kept,
}

/// The journal beside a control socket.
fn file(socket: &Path) -> PathBuf {
    socket.with_extension("closed")
}

/// What is there before there is a device.
pub(super) struct Closed {
    netlink: Netlink,
    journal: Journal,
    table: Kept,
    hosts: Hosts,
    wanted: Wanted,
}

impl Closed {
    /// The mark of the tunnel's own packets; 0 for none.
    pub(super) fn mark(&self) -> u32 {
        self.hosts.mark()
    }
}

/// Closes what the tunnel is to carry: before there is a device, so that nothing leaves in clear until then.
pub(super) fn close(wanted: &Wanted, socket: &Path, mut hosts: Hosts) -> Result<Closed, Error> {
    let mut netlink = Netlink::open()?;
    let (mut closed, _) = Journal::open_keeping(&file(socket), &mut netlink, |_| true)?;
    hosts.close(&wanted.hosts, &mut netlink, &mut closed)?;
    for address in &wanted.remotes {
        keep_way_open(*address, &wanted.networks, &hosts, &mut netlink, &mut closed)?;
    }
    add_closed(&wanted.networks, &mut netlink, &mut closed)?;
    let mut table = Kept::new(table_name(&wanted.tunnel));
    table.make(table::script(wanted, &wanted.networks, &mut netlink)?, &mut closed)?;
    Ok(Closed { netlink, journal: closed, table, hosts, wanted: wanted.clone() })
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
    if closed.done().iter().filter_map(way_of(destination)).next().is_some() {
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

/// The way of a remote in the journal.
fn way_of(destination: IpNet) -> impl Fn(&Step) -> Option<Route> {
    move |step| match step {
        Step::Route(route) if route.destination == destination && matches!(route.via, Via::Link { .. }) => {
            Some(route.clone())
        }
        _ => None,
    }
}

impl Kernel {
    pub(super) fn new(closed: Closed, index: u32) -> Self {
        let Closed { netlink, journal: closed, table, hosts, wanted } = closed;
        let (routes, addresses) = Default::default();
        Self { netlink, index, closed, hosts, routes, addresses, wanted, table }
    }

    /// Makes addresses and routes as they are wanted. What fails leaves what was there before.
    pub(super) fn apply(&mut self, wanted: &Wanted, mtu: u16) -> Result<(), Error> {
        let before_closed = self.closed_networks();
        // What was carried and what is to be: neither leaves in clear while one takes the other's place.
        let both = self.routes.union(&wanted.networks).copied().collect();
        self.table.make(table::script(wanted, &both, &mut self.netlink)?, &mut self.closed)?;
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
        if added.is_ok() {
            self.wanted = wanted.clone();
        }
        self.make_table()?;
        added
    }

    /// Makes the table as it should be, with the networks of this machine as they are now.
    fn make_table(&mut self) -> Result<(), Error> {
        let script = self.table_script()?;
        self.table.make(script, &mut self.closed)
    }

    /// The same soon, while packets go on.
    pub(super) fn make_table_soon(&mut self, waker: &Waker) -> Result<(), Error> {
        let script = self.table_script()?;
        self.table.make_soon(script, waker);
        Ok(())
    }

    fn table_script(&mut self) -> Result<String, Error> {
        let behind = self.routes.union(&self.wanted.networks).copied().collect();
        Ok(table::script(&self.wanted, &behind, &mut self.netlink)?)
    }

    /// Has the tables put back soon that somebody has taken away or changed.
    pub(super) fn restore_tables_soon(&mut self, waker: &Waker) {
        for table in [&mut self.table, &mut self.hosts.table] {
            table.restore_soon(waker);
        }
    }

    /// How many tables were put back since the last call, and whether nft has failed: they are to be looked at again then.
    pub(super) fn restored_tables(&mut self, waker: &Waker) -> (u64, Result<(), Error>) {
        let (mut restored, mut failure) = (0, Ok(()));
        for table in [&mut self.table, &mut self.hosts.table] {
            match table.finished(waker) {
                Ok(was_restored) => restored += u64::from(was_restored),
                Err(error) => failure = Err(error),
            }
        }
        (restored, failure)
    }

    /// Waits for what is being done with the tables.
    pub(super) fn wait_for_tables(&mut self) {
        for table in [&mut self.table, &mut self.hosts.table] {
            table.wait();
        }
    }

    /// Their names.
    pub(super) fn table_names(&self) -> [String; 2] {
        [&self.table, &self.hosts.table].map(|table| table.name().to_owned())
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
        let both = self.routes.union(&wanted.networks).copied().collect();
        self.table.make(table::script(wanted, &both, &mut self.netlink)?, &mut self.closed)?;
        self.hosts.close(&wanted.hosts, &mut self.netlink, &mut self.closed)?;
        self.hosts.open(self.index, &mut self.netlink, &mut self.closed)?;
        for remote in &wanted.remotes {
            keep_way_open(*remote, &wanted.networks, &self.hosts, &mut self.netlink, &mut self.closed)?;
        }
        add_closed(&wanted.networks, &mut self.netlink, &mut self.closed)?;
        // Also of what another route is in the way of: the table is to go on dropping what would take that one.
        self.wanted = wanted.clone();
        let mut added = Ok(());
        for network in wanted.networks.difference(&before.networks) {
            added = added.and(self.add_route(*network));
        }
        let is_gone =
            |network: &IpNet| before.networks.contains(network) && !wanted.networks.contains(network);
        let kept = |networks: &HashSet<IpNet>| -> HashSet<IpNet> {
            networks.iter().copied().filter(|network| !is_gone(network)).collect()
        };
        let (addresses, routes, closed) =
            (self.addresses.clone(), kept(&self.routes), kept(&self.closed_networks()));
        self.keep_only(&addresses, &routes, &closed)?;
        self.make_table()?;
        added
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
    pub(super) fn add_networks(
        &mut self,
        networks: &[IpNet],
        remote: IpAddr,
        waker: &Waker,
    ) -> Result<(), Error> {
        let new: HashSet<IpNet> = networks.iter().flat_map(|network| halved(*network)).collect();
        keep_way_open(remote, &new, &self.hosts, &mut self.netlink, &mut self.closed)?;
        let before = self.routes.len();
        for network in new {
            // What is within one that is routed already needs no route.
            if !self.routes.iter().any(|routed| routed.contains(&network)) {
                self.add_route(network)?;
            }
        }
        if self.routes.len() > before { self.make_table_soon(waker) } else { Ok(()) }
    }

    /// Those of these networks that have a route of their own.
    pub(super) fn routed(&self, networks: impl Iterator<Item = IpNet>) -> Vec<IpNet> {
        networks.flat_map(halved).filter(|network| self.routes.contains(network)).collect()
    }

    /// The address from which a remote is reached past the tunnel; nothing where there is no way now. Where its own address
    /// is behind a tunnel, it gets a way of its own first.
    pub(super) fn source_towards(&mut self, remote: IpAddr) -> Result<Option<IpAddr>, Error> {
        if self.routes.iter().chain(&self.wanted.networks).any(|network| network.contains(&remote)) {
            self.make_way(remote)?;
        }
        let hop = self.hosts.route_to(remote, &mut self.netlink)?;
        Ok(hop.filter(|hop| hop.index != self.index).and_then(|hop| hop.source))
    }

    /// Whether what is sent there leaves this machine by another interface than the device.
    pub(super) fn is_past(&mut self, address: IpAddr) -> bool {
        let hop = self.netlink.route_to(address).ok().flatten();
        hop.is_some_and(|hop| !hop.local && hop.index != self.index)
    }

    /// Gives a remote a way as it would have without a tunnel, in place of the one that it had.
    fn make_way(&mut self, remote: IpAddr) -> Result<(), Error> {
        let Some(past) = self.netlink.route_past(self.index, remote)? else { return Ok(()) };
        let Via::Link { index, gateway, .. } = past.via else { return Ok(()) };
        let destination = IpNet::from(remote);
        let via = Via::Link { index, gateway, mtu: None, metric: None, source: None };
        let way = Route { destination, via };
        let others: Vec<Route> = self.closed.done().iter().filter_map(way_of(destination)).collect();
        if others.contains(&way) {
            let hop = self.netlink.route_to(remote)?;
            if hop.is_some_and(|hop| (hop.index, hop.gateway) == (index, gateway)) {
                return Ok(());
            }
        }
        for other in others.iter().filter(|other| **other != way) {
            self.closed.delete_route(&mut self.netlink, other)?;
        }
        Ok(there_anyway(self.closed.add_route(&mut self.netlink, way))?)
    }

    pub(super) fn set_mtu(&mut self, mtu: u16) -> Result<(), Error> {
        Ok(self.netlink.set_link_mtu(self.index, mtu.into())?)
    }

    /// MTU of the interface that leads to a remote, or of a route. What an ICMP message has told the kernel does not count:
    /// anybody could have sent it, and what is said of our own packets is heard with them.
    pub(super) fn mtu_towards(&mut self, remote: IpAddr) -> Option<u16> {
        let hop = self.hosts.route_to(remote, &mut self.netlink).ok()??;
        let link = self.netlink.link_by_index(hop.index).ok()??;
        u16::try_from(link.mtu.min(hop.mtu.filter(|_| !hop.expires).unwrap_or(link.mtu))).ok()
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

//! Hosts that are protected by transport mode or AH: what this machine itself sends to them goes to the device by a rule,
//! and what the tunnel sends past it by its mark. A table of nftables drops what gets round the rule, and what they send
//! in clear. All of it stays, in the journal, when the tunnel ends or dies.
//!
//! This file and `kernel` need each other: that one calls this one, and has what both do with routes.

use std::collections::HashSet;
use std::net::IpAddr;

use ipnet::IpNet;
use linux::hosts::{Hosts as HostTable, table_name};
use linux::netlink::{MAIN, Netlink, Route, Rule, Selects, TableRoute, Via};
use linux::undo::{Journal, Step};

use super::kept::Kept;
use super::kernel::{CLOSED_METRIC, there_anyway};
use crate::error::Error;

/// Before the rules that others make, and behind the kernel's own for local addresses.
const PRIORITY: u32 = 5300;
/// What the marks and tables of tunnels begin with.
const NUMBERS: u32 = 0x7300_0000;

/// What there is in the kernel for a tunnel's hosts.
pub(super) struct Hosts {
    tunnel: String,
    /// The mark of the tunnel's own packets, and the number of its table.
    number: u32,
    ports: [u16; 2],
    local: Option<IpAddr>,
    wanted: HashSet<IpNet>,
    pub(super) table: Kept,
}

impl Hosts {
    /// Of a tunnel; nothing is set up.
    pub(super) fn new(tunnel: &str, ports: [u16; 2], local: Option<IpAddr>) -> Self {
        // FNV-1a: the same after a restart, another for another tunnel.
        let hash = tunnel
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let number = NUMBERS | hash & 0x00ff_ffff;
        let (wanted, table) = (HashSet::new(), Kept::new(table_name(tunnel)));
        Self { tunnel: tunnel.to_owned(), number, ports, local, wanted, table }
    }

    /// The mark that the tunnel's sockets are to have; 0 where nothing asks for one.
    pub(super) fn mark(&self) -> u32 {
        if self.wanted.is_empty() { 0 } else { self.number }
    }

    /// Sees to it that nothing goes to these hosts in clear, nor comes from them: before there is a device. What others have
    /// left of it is taken back where it is not wanted any more.
    pub(super) fn close(
        &mut self,
        wanted: &HashSet<IpNet>,
        netlink: &mut Netlink,
        journal: &mut Journal,
    ) -> Result<(), Error> {
        let is_it = |step: &Step| matches!(step, Step::Table { name, .. } if name == self.table.name());
        let had_some = journal.done().iter().any(is_it);
        if !wanted.is_empty() || had_some {
            let mut hosts: Vec<IpNet> = wanted.iter().copied().collect();
            hosts.sort();
            let hosts =
                HostTable { tunnel: &self.tunnel, hosts: &hosts, mark: self.number, ports: self.ports };
            self.table.make(hosts.render(), journal)?;
        }
        self.wanted.clone_from(wanted);
        for step in self.steps() {
            let taken = match &step {
                Step::Rule(rule) => journal.add_rule(netlink, *rule),
                Step::TableRoute(route) => journal.add_table_route(netlink, route.clone()),
                _ => Ok(()),
            };
            there_anyway(taken)?;
        }
        let steps = self.steps();
        let is_ours = |step: &&Step| match step {
            Step::Rule(Rule { selects: Selects::Marked { mark, .. }, .. }) => *mark == self.number,
            Step::Rule(rule) => rule.table == self.number,
            Step::TableRoute(route) => route.table == self.number,
            _ => false,
        };
        let unwanted: Vec<_> =
            journal.done().iter().filter(is_ours).filter(|step| !steps.contains(step)).cloned().collect();
        for step in unwanted {
            journal.undo_step(netlink, &step)?;
        }
        if wanted.is_empty() && had_some {
            journal.delete_table(netlink, "inet", self.table.name())?;
            self.table.forget();
        }
        Ok(())
    }

    /// Rules and routes that stay.
    fn steps(&self) -> Vec<Step> {
        let of_version = |is_ipv6: bool| self.wanted.iter().any(|host| host.addr().is_ipv6() == is_ipv6);
        let marked = [true, false].into_iter().filter(|is_ipv6| of_version(*is_ipv6)).map(|is_ipv6| {
            let selects = Selects::Marked { mark: self.number, mask: u32::MAX, is_ipv6 };
            Step::Rule(Rule { priority: PRIORITY, selects, table: MAIN })
        });
        let to = self.wanted.iter().flat_map(|host| {
            let rule = Rule { priority: PRIORITY + 1, selects: Selects::OwnTo(*host), table: self.number };
            let via = Via::Unreachable { metric: CLOSED_METRIC, source: None };
            let route = Route { destination: *host, via };
            let closed = TableRoute { table: self.number, route, source: None };
            [Step::TableRoute(closed), Step::Rule(rule)]
        });
        marked.chain(to).collect()
    }

    /// Routes into the device, which go with it; also those that somebody has taken away.
    pub(super) fn open(&self, index: u32, netlink: &mut Netlink, journal: &mut Journal) -> Result<(), Error> {
        for host in &self.wanted {
            let hop = self.route_to(host.addr(), netlink)?;
            if host.addr().is_ipv4()
                && let Some(hop) = hop
                && let Some(link) = netlink.link_by_index(hop.index)?
            {
                // Also of a strict filter: an answer of this machine's would leave by the device. What comes in clear is
                // dropped by the table.
                journal.loosen_reverse_path_filter(&link.name)?;
            }
            // Packets that have no source yet get the one that the tunnel's own packets have.
            let is_of_version = |address: &IpAddr| address.is_ipv6() == host.addr().is_ipv6();
            let source = match self.local.filter(is_of_version) {
                Some(local) => Some(local),
                None => hop.and_then(|hop| hop.source),
            };
            let route = TableRoute { table: self.number, route: Route::device(*host, index), source };
            there_anyway(netlink.add_table_route(&route))?;
        }
        Ok(())
    }

    /// Puts back rules and routes that somebody has taken away.
    pub(super) fn restore(&self, netlink: &mut Netlink) -> Result<(), Error> {
        for step in self.steps() {
            match &step {
                Step::Rule(rule) => there_anyway(netlink.add_rule(rule))?,
                Step::TableRoute(route) => there_anyway(netlink.add_table_route(route))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The way of the tunnel's own packets.
    pub(super) fn route_to(
        &self,
        remote: IpAddr,
        netlink: &mut Netlink,
    ) -> linux::Result<Option<linux::netlink::NextHop>> {
        match self.mark() {
            0 => netlink.route_to(remote),
            mark => netlink.marked_route_to(remote, mark),
        }
    }
}

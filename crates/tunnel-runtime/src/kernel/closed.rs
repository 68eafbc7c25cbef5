//! What stays in the kernel while there is no tunnel, so that nothing of it leaves in clear or goes around in circles: routes
//! that lead nowhere, below those of the tunnel, and the table that keeps what is behind the peers off the external
//! interface, whatever other routes there are. They go only when somebody says so.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use config::{Mode, TunnelConfig};
use ipnet::{IpNet, Ipv6Net};
use linux::netlink::{Netlink, Route, Via};
use linux::nft;
use linux::outside::{self, Outside};
use linux::undo::{Journal, Step};
use tracing::warn;

/// Behind all that others make: the kernel's own default is 1024 for IPv6 and 0 for IPv4.
pub(crate) const METRIC: u32 = 0xf000_0000;
/// Of the table.
const FAMILY: &str = "inet";

/// The routes of a tunnel, and its table, that outlive it. Their journal is a file of its own, which the end of the daemon
/// leaves.
#[derive(Debug)]
pub(crate) struct ClosedRoutes {
    /// The control socket, which the journal is beside.
    socket: PathBuf,
    journal: Journal,
    /// Those of the configuration in force; at first those of an earlier run are, whatever they were.
    in_force: Option<HashSet<Route>>,
    /// Those that an earlier run has left, or would have left at a clean end.
    left: HashSet<Route>,
    table: String,
    /// The table that an earlier run has left, as nft reads it again.
    left_table: Option<String>,
}

impl ClosedRoutes {
    /// With those that an earlier run has left.
    pub(crate) fn open(tunnel: &str, socket: &Path, netlink: &mut Netlink) -> linux::Result<Self> {
        let (journal, _) = Journal::open_keeping(&file(socket), netlink, |_| true)?;
        let left = routes_of(journal.done()).flat_map(with_halves).collect();
        let has_table = journal.done().iter().any(|step| matches!(step, Step::Table { .. }));
        let table = outside::table_name(tunnel);
        let left_table = if has_table { nft::list_inet(&table, false)? } else { None };
        let socket = socket.to_owned();
        Ok(ClosedRoutes { socket, journal, in_force: None, left, table, left_table })
    }

    /// Keeps what is behind the peers off the external interface: `make` makes the table, at once with others.
    pub(crate) fn keep_off<T>(&mut self, make: impl FnOnce() -> linux::Result<T>) -> linux::Result<T> {
        self.journal.make_table(FAMILY, &self.table, make)
    }

    /// No longer does.
    pub(crate) fn let_out(&mut self, netlink: &mut Netlink) -> linux::Result<()> {
        self.journal.delete_table(netlink, FAMILY, &self.table)
    }

    /// Before anything is taken back that an earlier run has left: with it the network may come back that a host's tunnel
    /// had taken over, and this start may fail yet.
    pub(super) fn stay(&mut self, config: &TunnelConfig, netlink: &mut Netlink) -> linux::Result<()> {
        let left = self.left.clone();
        self.add(&left, netlink)?;
        self.add(&closed_routes(config, Beside::Nothing), netlink)
    }

    /// Adds those of a new configuration to those that there are: nothing is open while one takes the other's place. One that
    /// another tunnel of ours has made, or this one by another name, is both's.
    pub(crate) fn add(&mut self, new: &HashSet<Route>, netlink: &mut Netlink) -> linux::Result<()> {
        let mut there = None;
        for route in new {
            match self.journal.add_route(netlink, route.clone()) {
                Err(error) if error.already_exists() => {
                    let there = match &mut there {
                        Some(there) => there,
                        none => none.insert(netlink.own_routes()?),
                    };
                    if there.contains(route) {
                        self.journal.adopt_route(route)?;
                    }
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// Whether there is to be such a route. One that goes on purpose is none of them any more.
    pub(super) fn has(&self, route: &Route) -> bool {
        self.in_force.as_ref().is_some_and(|in_force| in_force.contains(route))
    }

    /// Adds those that are not among the routes that are there; how many.
    pub(super) fn put_back(&mut self, there: &[Route], netlink: &mut Netlink) -> linux::Result<usize> {
        let in_force = self.in_force.iter().flatten();
        let lost: HashSet<Route> = in_force.filter(|route| !there.contains(route)).cloned().collect();
        self.add(&lost, netlink)?;
        Ok(lost.len())
    }

    /// The new configuration is in force: what it does not ask for goes.
    pub(crate) fn commit(&mut self, new: HashSet<Route>, netlink: &mut Netlink) -> linux::Result<()> {
        self.in_force = Some(new);
        self.go_back(netlink)
    }

    /// Adds what is to be closed, too, without the tunnel; or, if that was not meant, goes back to what was before the
    /// start. The file goes if it is about nothing.
    pub(super) fn end(mut self, meant: bool, after: &HashSet<Route>, netlink: &mut Netlink) {
        let mut ended = if meant { self.add(after, netlink) } else { self.take_back(netlink) };
        if ended.is_ok() && self.journal.done().is_empty() {
            ended = self.journal.undo_all(netlink);
        }
        if let Err(error) = ended {
            warn!("the routes in place of the tunnel: {error}");
        }
    }

    /// Goes back to what was before the start.
    fn take_back(&mut self, netlink: &mut Netlink) -> linux::Result<()> {
        let table = &self.table;
        match self.left_table.take() {
            Some(left) => {
                let anew = format!("add table {FAMILY} {table}\ndelete table {FAMILY} {table}\n{left}");
                self.journal.set_table(FAMILY, table, &anew)?;
            }
            None => self.journal.delete_table(netlink, FAMILY, table)?,
        }
        let left = std::mem::take(&mut self.left);
        self.add(&left, netlink)?;
        self.commit(left, netlink)
    }

    /// Goes back to the configuration in force. Where there was none yet all stays closed.
    pub(crate) fn go_back(&mut self, netlink: &mut Netlink) -> linux::Result<()> {
        let Some(in_force) = &self.in_force else { return Ok(()) };
        let mut unwanted: Vec<Route> = routes_of(self.journal.done()).collect();
        unwanted.retain(|route| !in_force.contains(route));
        if unwanted.is_empty() {
            return Ok(());
        }
        // What another tunnel keeps closed stays: nobody has said that it is to be open. But halves of a default route would
        // be in the way of the tunnel of a host, which refuses the whole.
        let halves: HashSet<Route> = in_force.iter().cloned().flat_map(with_halves).collect();
        let others: HashSet<Route> =
            others(&self.socket).iter().flat_map(|(_, steps)| routes_of(steps)).collect();
        for route in unwanted.iter().filter(|route| halves.contains(route) || !others.contains(route)) {
            self.journal.delete_route(netlink, route)?;
        }
        Ok(())
    }
}

fn routes_of(steps: &[Step]) -> impl Iterator<Item = Route> {
    steps.iter().filter_map(|step| if let Step::Route(route) = step { Some(route.clone()) } else { None })
}

/// What other tunnels in the same folder keep closed, by the paths of their sockets.
fn others(socket: &Path) -> Vec<(PathBuf, Vec<Step>)> {
    let own = file(socket);
    let entries = own.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten();
    let files = entries.flatten().map(|entry| entry.path());
    let others = files.filter(|file| *file != own && file.extension() == own.extension());
    others.map(|file| (file.with_extension("sock"), Journal::of_another(&file))).collect()
}

/// A route that refuses, and where it is a default route its halves: beside the tunnel of a host it stands alone, behind
/// every other default route.
fn with_halves(route: Route) -> impl Iterator<Item = Route> {
    let halves = destinations(route.destination, Mode::Routed).filter(|half| *half != route.destination);
    let halves: Vec<_> = halves.map(|destination| Route { destination, via: route.via.clone() }).collect();
    std::iter::once(route).chain(halves)
}

/// Whether there is a tunnel beside the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beside {
    Tunnel,
    Nothing,
}

/// What is refused without the tunnel of this configuration: what is for its peers. What is for an address of its hopping
/// prefix is dropped: the router that sends it here would get it back.
pub(crate) fn closed_routes(config: &TunnelConfig, beside: Beside) -> HashSet<Route> {
    let mode = config.node.mode;
    if config.tunnel.open_when_down || mode == Mode::Transparent {
        return HashSet::new();
    }
    // One that follows an uplink is another's to-morrow.
    let is_own = !config.is_classic() && !config.node.on_link && config.node.follows.is_none();
    let routed = is_own && mode == Mode::Routed;
    // Of two gateways of a site, the one that stands by gets what is for it just as well.
    let hop_prefix = config.standby.as_ref().map_or(config.node.hop_prefix, |standby| standby.hop_prefix);
    let own = routed.then(|| Route {
        destination: IpNet::V6(hop_prefix.trunc()),
        via: Via::Blackhole { metric: METRIC },
    });
    let classic = config.classic.iter().map(|peer| IpNet::from(IpAddr::V6(peer.stream.remote.address)));
    let prefixes = config.peers.iter().flat_map(|peer| &peer.allowed_ips).copied().chain(classic);
    // Without a tunnel the default route of others is there.
    let mode = if beside == Beside::Nothing { Mode::Routed } else { mode };
    prefixes.flat_map(|prefix| destinations(prefix, mode)).map(refused).chain(own).collect()
}

fn refused(destination: IpNet) -> Route {
    Route { destination, via: Via::Unreachable { metric: METRIC, source: None } }
}

/// Keeps ends of other tunnels closed that nothing leads to any more, since the peer has another key, or they are not wrapped any
/// more: until they are led elsewhere they send there. Nobody else has these addresses.
pub(super) fn close_ends(
    config: &TunnelConfig,
    ends: &BTreeSet<IpNet>,
    kept_off: &mut Option<KeptOff>,
    routes: [&mut HashSet<Route>; 2],
) {
    if config.tunnel.open_when_down || ends.is_empty() {
        return;
    }
    for routes in routes {
        routes.extend(ends.iter().copied().map(refused));
    }
    let behind = &mut kept_off.get_or_insert_default().behind;
    let new: Vec<IpNet> = ends.iter().filter(|end| !behind.contains(end)).copied().collect();
    behind.extend(new);
}

/// Longest prefix that is a default route, or part of one (`::/1`, `2000::/3`): what is more specific stays outside.
const PART_OF_DEFAULT: u8 = 3;

/// What neither leaves nor comes in by the external interface: what is behind the peers, but for default routes.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeptOff {
    behind: Vec<IpNet>,
    /// Networks within it that are reached by that interface all the same: its own, and those that somebody has routed there.
    /// What a router has advertised is none of them: anybody on the link can.
    here: Vec<IpNet>,
}

impl KeptOff {
    /// By the interface of this index, if it is there. `None` where it may leave, or where there is nothing.
    pub(crate) fn of(
        config: &TunnelConfig,
        external: Option<u32>,
        netlink: &mut Netlink,
    ) -> linux::Result<Option<Self>> {
        let may =
            config.tunnel.open_when_down || config.is_classic() || config.node.mode == Mode::Transparent;
        let prefixes = config.peers.iter().flat_map(|peer| &peer.allowed_ips).copied();
        let behind: Vec<_> = prefixes.filter(|prefix| prefix.prefix_len() > PART_OF_DEFAULT).collect();
        if may || behind.is_empty() {
            return Ok(None);
        }
        let Some(external) = external else {
            return Ok(Some(KeptOff { behind, here: Vec::new() }));
        };
        let routed = netlink.destinations_by(external)?;
        let own = netlink.addresses(external)?.into_iter();
        let own = own.filter(|found| found.permanent || found.address.addr().is_ipv4());
        let within = |net: &IpNet| behind.iter().any(|prefix| prefix != net && prefix.contains(net));
        let here = own.map(|found| found.address.trunc()).chain(routed).filter(within).collect();
        Ok(Some(KeptOff { behind, here }))
    }

    /// The prefix behind a peer that keeps an address off, if one does.
    pub(crate) fn keeps_off(&self, address: IpAddr) -> Option<IpNet> {
        let is_here = self.here.iter().any(|network| network.contains(&address));
        self.behind.iter().find(|prefix| !is_here && prefix.contains(&address)).copied()
    }

    /// The same, for the table.
    pub(super) fn outside<'a>(&'a self, tunnel: &'a str, external: &'a str, prefix: Ipv6Net) -> Outside<'a> {
        Outside { tunnel, external, prefix, behind: &self.behind, here: &self.here, strays: &[] }
    }
}

/// Has what is for the peers of a configuration refused, as if its tunnel had been up before: by how many routes. `None`
/// while it is up, or about to be: then journal and table are the daemon's, whose device says so.
///
/// # Errors
/// Where the kernel refuses.
pub fn close(config: &TunnelConfig, socket: &Path) -> linux::Result<Option<usize>> {
    let mut netlink = Netlink::open()?;
    if netlink.link_by_name(&config.tunnel.name)?.is_some() {
        return Ok(None);
    }
    let wanted = closed_routes(config, Beside::Nothing);
    let (tunnel, node) = (&config.tunnel.name, &config.node);
    let mut closed = ClosedRoutes::open(tunnel, socket, &mut netlink)?;
    closed.add(&wanted, &mut netlink)?;
    let external = netlink.link_by_name(&node.external)?.map(|link| link.index);
    if let Some(kept_off) = KeptOff::of(config, external, &mut netlink)? {
        let outside = kept_off.outside(tunnel, &node.external, node.hop_prefix);
        closed.keep_off(|| nft::apply(&outside.render()))?;
    }
    Ok(Some(wanted.len()))
}

/// What was opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// How many routes and tables are gone.
    pub count: usize,
    /// The sockets of other tunnels that kept some of it closed, too. One that is up closes it again.
    pub others: Vec<PathBuf>,
}

/// Removes what a tunnel has left, if it has ended.
///
/// # Errors
/// Where the kernel refuses.
pub fn open_up(socket: &Path) -> linux::Result<Opened> {
    let mut netlink = Netlink::open()?;
    let (journal, _) = Journal::open_keeping(&file(socket), &mut netlink, |_| true)?;
    let routes: HashSet<Route> = routes_of(journal.done()).collect();
    let has_some = |steps: &[Step]| routes_of(steps).any(|route| routes.contains(&route));
    let others = others(socket).into_iter().filter(|(_, steps)| has_some(steps));
    let opened = Opened { count: journal.done().len(), others: others.map(|(socket, _)| socket).collect() };
    journal.undo_all(&mut netlink)?;
    Ok(opened)
}

/// Whether a tunnel that has ended has left something closed.
#[must_use]
pub fn is_closed(socket: &Path) -> bool {
    file(socket).exists()
}

fn file(socket: &Path) -> PathBuf {
    socket.with_extension("closed")
}

/// What is routed for a prefix: a default route as two halves, which go before the one that the machine has anyway. In the
/// network of a host there is none but ours, for the sources of that network; the kernel passes over other routes to the
/// same destination where such a route is, unless that is everything.
pub(super) fn destinations(prefix: IpNet, mode: Mode) -> impl Iterator<Item = IpNet> {
    let length = if mode == Mode::Host { prefix.prefix_len() } else { prefix.prefix_len().max(1) };
    prefix.subnets(length).expect("at least as long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_has_left_is_closed_without_its_tunnel() {
        let refused = |text: &str| Route {
            destination: text.parse().unwrap(),
            via: Via::Unreachable { metric: METRIC, source: None },
        };
        let of = |text| with_halves(refused(text)).collect::<Vec<_>>();
        assert_eq!(of("::/0"), ["::/0", "::/1", "8000::/1"].map(refused));
        assert_eq!(of("8000::/1"), [refused("8000::/1")]);
    }

    #[test]
    fn only_a_default_route_is_halved() {
        let of = |text: &str, mode| -> Vec<String> {
            destinations(text.parse().unwrap(), mode).map(|prefix| prefix.to_string()).collect()
        };
        let halved = |text| of(text, Mode::Routed);
        assert_eq!(of("::/0", Mode::Host), ["::/0"]);
        assert_eq!(halved("::/0"), ["::/1", "8000::/1"]);
        assert_eq!(halved("0.0.0.0/0"), ["0.0.0.0/1", "128.0.0.0/1"]);
        assert_eq!(halved("2001:db8::/32"), ["2001:db8::/32"]);
        assert_eq!(halved("10.0.0.1/32"), ["10.0.0.1/32"]);
    }
}

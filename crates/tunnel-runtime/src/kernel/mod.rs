//! What is set up in the kernel: addresses and routes of the TUN device, the hopping prefix's local route and dark
//! table, neighbor discovery for on-link prefixes, and the endpoint sockets.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};
use linux::event::{Events, Interest, Poller, Waker};
use linux::neighbor::Responder;
use linux::netlink::{Change, Link, Monitor, NeighborState, Netlink, Route};
use linux::ruleset::RulesetMonitor;
use linux::udp::{EndpointOptions, EndpointSocket, SkLookupTable};
use linux::undo::Journal;
use mt6d::config::{NOWHERE, PeerConfig};
use mt6d::{Action, EndpointId, InnerMtu, Traffic};
use tracing::{debug, info, warn};

mod anew;
mod beside;
pub(crate) mod closed;
mod dark;
mod host_interface;
mod inside;
pub(crate) mod led;
mod network_detection;
mod prefix;
mod tables;

use closed::{Beside, ClosedRoutes, KeptOff, close_ends, closed_routes, destinations};
use led::Led;
use network_detection::{Network, RouterDiscovery};
pub(crate) use prefix::who_hops_in;
use tables::Tables;

use super::mask::Masker;
use super::rewrite::Rewriter;
use super::transparent::{Transparent, TransparentGateway};
use super::wrap::own_ends;
use crate::error::Error;
use config::{INNER_OVERHEAD as OVERHEAD, Mode, TunnelConfig};

/// How often, and for how long, the hardware address of a peer is looked for that nobody has resolved yet.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(3));
/// How often a transparent gateway asks for its router, as long as there is none.
const ASK_ROUTER: Duration = Duration::from_secs(4);

/// How often is restored at most what other programs took away: the rules that keep the prefix dark, what the tunnel's interface
/// has.
const RESTORE_EVERY: Duration = Duration::from_secs(1);
/// The same, where nothing had been lost again and again: a routing daemon may change so much that news of it get lost.
const LOOK_RARELY: Duration = Duration::from_secs(8);

/// How often it is looked how packets leave whose addresses are replaced, and which did.
const REFRESH: Duration = Duration::from_secs(1);

/// What the kernel thread is told.
pub(super) enum Command {
    Open {
        id: EndpointId,
        local: SocketAddrV6,
        remote: Option<SocketAddrV6>,
    },
    Close(Endpoint),
    /// The largest inner packets that go to these prefixes.
    Mtu {
        prefixes: Vec<IpNet>,
        mtu: InnerMtu,
    },
    /// An action of those that replace addresses or mask packets.
    Rewrite(Action),
    /// Other tunnels' packets are led inside so from now on.
    Lead(Led),
    Apply {
        config: Box<TunnelConfig>,
        answer: mpsc::Sender<Result<(), Error>>,
    },
    End,
}

/// An endpoint that is open.
pub(super) enum Endpoint {
    Dedicated(Arc<EndpointSocket>),
    /// A rendezvous endpoint, which is heard on the socket that all of them share.
    Shared(SocketAddrV6),
}

/// What the kernel thread reports.
pub(super) enum KernelEvent {
    Opened {
        id: EndpointId,
        endpoint: linux::Result<Endpoint>,
    },
    LinkMtu(u16),
    /// Packets that crossed with other addresses, or with a mask.
    Rewritten(Vec<((Ipv6Addr, Ipv6Addr), Traffic)>),
    /// The external interface was made anew, and has this index: sockets that were bound to the one before are to be bound to it.
    MadeAnew(u32),
    /// The rules that keep the prefix dark were gone or others, and are there again.
    RulesRestored,
    /// Whether they are there, as far as is known: at the start they are.
    Dark(bool),
    /// The link has this prefix now, see [`Mode::Host`](config::Mode::Host).
    PrefixChanged(Ipv6Net),
    /// The thread has ended, told to or not: no endpoint opens any more.
    Ended,
}

/// What is set up. Starts empty; [`Kernel::apply`] leads from one state to the next.
#[derive(Clone, Default)]
struct State {
    hop: Option<(Ipv6Net, bool)>,
    addresses: Vec<IpNet>,
    /// Those that other tunnels' packets have alone, if there are some.
    own_ends: Vec<IpNet>,
    routes: HashSet<IpNet>,
    /// Those of them whose packets may be as large as the link: they are to travel without the tunnel.
    whole: HashSet<IpNet>,
    /// Those of these that are the peers' ends of other tunnels.
    masked: HashSet<IpNet>,
    /// This node's end for these, unless it is said which.
    sources: HashMap<IpNet, Ipv6Addr>,
    mtu: Option<u16>,
    /// Networks of which packets come in through the tunnel alone.
    behind: Vec<Ipv6Net>,
    /// `None` where everything may leave by the external interface.
    kept_off: Option<KeptOff>,
}

impl State {
    fn of(config: &TunnelConfig, rewrites: bool, masks: bool, kept_off: Option<KeptOff>) -> Self {
        let mode = config.node.mode;
        let prefixes = |peer: &PeerConfig| -> Vec<IpNet> {
            peer.allowed_ips.iter().flat_map(|prefix| destinations(*prefix, mode)).collect()
        };
        let wrapped = config.wraps.iter().filter_map(|wrap| config.peer(&wrap.peer));
        let ends: HashSet<IpNet> =
            wrapped.flat_map(config::inner_ends).map(|end| IpAddr::V6(end).into()).collect();
        let own_ends = own_ends(config);
        let sources = ends.iter().map(|end| (*end, own_ends[0])).collect();
        let masked: HashSet<_> = ends.into_iter().filter(|_| masks).collect();
        let rewritten = config.peers.iter().filter(|peer| rewrites && peer.rewrite).flat_map(prefixes);
        State {
            hop: (!config.is_classic()).then_some((config.node.hop_prefix, config.node.on_link)),
            addresses: config.tunnel.addresses.clone(),
            own_ends: own_ends.into_iter().map(|end| IpAddr::V6(end).into()).collect(),
            routes: config.peers.iter().flat_map(prefixes).collect(),
            whole: rewritten.chain(masked.iter().copied()).collect(),
            masked,
            sources,
            mtu: config.tunnel.mtu,
            behind: if config.node.transparent.is_some() { Vec::new() } else { behind(config) },
            kept_off,
        }
    }
}

/// What is behind the peers.
fn behind(config: &TunnelConfig) -> Vec<Ipv6Net> {
    let ipv6 = |prefix: &IpNet| if let IpNet::V6(prefix) = prefix { Some(prefix.trunc()) } else { None };
    config.peers.iter().flat_map(|peer| &peer.allowed_ips).filter_map(ipv6).collect()
}

/// On-link hopping: who answers for it, and for what.
struct OnLink {
    responder: Responder,
    active: HashSet<Ipv6Addr>,
    /// Endpoints of peers on the link whose hardware address is not known yet, and since when.
    cold: Vec<(Ipv6Addr, Instant)>,
    own: Vec<Ipv6Addr>,
}

/// Tells that the thread has ended, also by a panic.
struct ReportEnd<T: Fn(KernelEvent)>(T);

impl<T: Fn(KernelEvent)> Drop for ReportEnd<T> {
    fn drop(&mut self) {
        (self.0)(KernelEvent::Ended);
    }
}

pub(super) struct Kernel {
    tunnel: String,
    tun_index: u32,
    link: Link,
    netlink: Netlink,
    journal: Journal,
    closed: ClosedRoutes,
    /// What is to be closed, too, when there is no tunnel any more.
    closed_after: HashSet<Route>,
    /// Other tunnels' ends at peers, of all configurations since the start.
    ends: BTreeSet<IpNet>,
    sockets: EndpointOptions,
    /// Where the socket of all rendezvous endpoints receives, if there is one.
    lookup_table: Option<SkLookupTable>,
    state: State,
    tables: Tables,
    on_link: Option<OnLink>,
    /// Who listens to the link's routers, and what they said last; in [`Mode::Host`](config::Mode::Host).
    discovery: Option<RouterDiscovery>,
    network: Option<Network>,
    transparent: Option<Transparent>,
    /// Replaces addresses, where that is wanted and possible.
    rewriter: Option<Rewriter>,
    /// Masks another tunnel's packets, where that is wanted and possible.
    masker: Option<Masker>,
    /// Nobody on the link is to see that this is a gateway.
    hidden: bool,
    /// Where each peer hops.
    peer_prefixes: Vec<Ipv6Net>,
    route_mtus: HashMap<IpNet, u16>,
    led: Led,
}

impl Kernel {
    /// Looks at the interfaces, and takes back what an earlier run left behind: but for what keeps the tunnel closed, which
    /// stays.
    pub(super) fn open(
        config: &TunnelConfig,
        tun_index: u32,
        sockets: EndpointOptions,
        lookup_table: Option<SkLookupTable>,
        socket: &Path,
        meant: bool,
    ) -> Result<Self, Error> {
        let mut netlink = Netlink::open()?;
        let external = &config.node.external;
        let link = netlink.link_by_name(external)?.ok_or_else(|| Error::NoInterface(external.clone()))?;
        let mut closed = ClosedRoutes::open(&config.tunnel.name, socket, &mut netlink)?;
        let opened = closed
            .stay(config, &mut netlink)
            .and_then(|()| Journal::open(&socket.with_extension("journal"), &mut netlink));
        let (journal, left) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                closed.end(meant, &HashSet::new(), &mut netlink);
                return Err(error.into());
            }
        };
        if !left.is_empty() {
            info!(
                "an earlier run did not end cleanly: removed {} things that it left in the kernel",
                left.len()
            );
        }
        Ok(Kernel {
            tunnel: config.tunnel.name.clone(),
            tun_index,
            link,
            netlink,
            journal,
            closed,
            closed_after: HashSet::new(),
            ends: BTreeSet::new(),
            sockets,
            lookup_table,
            state: State::default(),
            tables: Tables::of(&config.tunnel.name),
            on_link: None,
            discovery: None,
            network: None,
            transparent: None,
            rewriter: None,
            masker: None,
            hidden: config.node.transparent.is_some(),
            peer_prefixes: Vec::new(),
            route_mtus: HashMap::new(),
            led: Led::default(),
        })
    }

    /// Lets frames cross over, if this gateway is to be transparent. What comes of it is shared with other threads.
    pub(super) fn start_transparent(
        &mut self,
        config: &TunnelConfig,
        state_dir: &Path,
    ) -> Result<Option<Arc<TransparentGateway>>, Error> {
        let (netlink, journal) = (&mut self.netlink, &mut self.journal);
        self.transparent =
            Transparent::open(config, &self.link, self.tun_index, state_dir, netlink, journal)?;
        Ok(self.transparent.as_ref().map(|transparent| Arc::clone(&transparent.gateway)))
    }

    /// MTU of the external interface.
    pub(super) fn link_mtu(&self) -> u16 {
        let link = self.link.mtu.clamp(1280, u16::MAX.into()) as u16;
        self.network.and_then(|network| network.mtu).map_or(link, |mtu| mtu.min(link))
    }

    /// Leads to what the configuration asks for; if that fails, back to what was.
    pub(super) fn apply(&mut self, config: &TunnelConfig) -> Result<(), Error> {
        let mut kept_off = KeptOff::of(config, Some(self.link.index), &mut self.netlink)?;
        let mut closed = closed_routes(config, Beside::Tunnel);
        let mut closed_after = closed_routes(config, Beside::Nothing);
        close_ends(config, &self.ends, &mut kept_off, [&mut closed, &mut closed_after]);
        let (rewrites, masks) = (self.rewriter.is_some(), self.masker.is_some());
        let (old, new) = (self.state.clone(), State::of(config, rewrites, masks, kept_off));
        let mut result = self.closed.add(&closed, &mut self.netlink).map_err(Error::from);
        result = result.and_then(|()| self.change(new));
        if let (Ok(()), Some(transparent)) = (&result, &mut self.transparent) {
            result = transparent.apply(config, self.tun_index).map_err(Error::from);
        }
        if result.is_ok() {
            self.closed_after = closed_after;
            result = self.closed.commit(closed, &mut self.netlink).map_err(Error::from);
        }
        if result.is_ok() {
            self.peer_prefixes = config.peers.iter().map(|peer| peer.hop_prefix.trunc()).collect();
            self.ends.extend(self.state.sources.keys());
        }
        if result.is_err()
            && let Err(error) =
                self.change(old).and_then(|()| self.closed.go_back(&mut self.netlink).map_err(Error::from))
        {
            warn!("could not restore what was before: {error}");
        }
        result
    }

    fn change(&mut self, new: State) -> Result<(), Error> {
        self.state.behind.clone_from(&new.behind);
        self.state.own_ends.clone_from(&new.own_ends);
        self.state.masked.clone_from(&new.masked);
        self.state.sources.clone_from(&new.sources);
        self.state.kept_off.clone_from(&new.kept_off);
        if new.hop != self.state.hop {
            let old = self.state.hop.take();
            self.change_prefix(old, new.hop)?;
        } else if let Some((prefix, on_link)) = new.hop {
            let own = self.darken(prefix, on_link)?;
            if let Some(on_link) = &mut self.on_link {
                on_link.own = own;
            }
        }
        let inside = (self.link_mtu() - OVERHEAD).max(1280);
        let mtu = new.mtu.unwrap_or(if new.whole.is_empty() { inside } else { self.link_mtu() });
        self.netlink.set_link_mtu(self.tun_index, mtu.into())?;
        self.state.mtu = new.mtu;
        for address in
            new.addresses.iter().filter(|a| !self.state.addresses.contains(a)).copied().collect::<Vec<_>>()
        {
            self.add_inside(address)?;
            self.state.addresses.push(address);
        }
        for address in
            self.state.addresses.iter().filter(|a| !new.addresses.contains(a)).copied().collect::<Vec<_>>()
        {
            self.netlink.delete_address(self.tun_index, address)?;
            self.state.addresses.retain(|a| *a != address);
        }
        self.netlink.set_link_up(self.tun_index, true)?;
        for prefix in new.routes.difference(&self.state.routes).copied().collect::<Vec<_>>() {
            let narrow = (mtu > inside && !new.whole.contains(&prefix)).then_some(inside);
            self.lead_inside(prefix, narrow).map_err(|error| {
                if error.already_exists() { Error::RouteExists(prefix) } else { error.into() }
            })?;
            self.route_mtus.extend(narrow.map(|mtu| (prefix, mtu)));
            self.state.routes.insert(prefix);
        }
        for prefix in self.state.routes.difference(&new.routes).copied().collect::<Vec<_>>() {
            self.netlink.delete_route(&Route::device(prefix, self.tun_index))?;
            self.state.routes.remove(&prefix);
            self.route_mtus.remove(&prefix);
        }
        Ok(())
    }

    /// Moves to another hopping prefix. Half way there the state has none, so that going back begins anew.
    fn change_prefix(
        &mut self,
        old: Option<(Ipv6Net, bool)>,
        new: Option<(Ipv6Net, bool)>,
    ) -> Result<(), Error> {
        if let Some((prefix, on_link)) = new {
            let own = self.darken(prefix, on_link)?;
            if on_link {
                let mac = self.link.mac.ok_or_else(|| {
                    Error::Limit(format!(
                        "[node] on_link: {} has no hardware address to answer with",
                        self.link.name
                    ))
                })?;
                let responder = Responder::open(self.link.index, mac)?;
                self.on_link = Some(OnLink {
                    responder: if self.hidden { responder.as_host() } else { responder },
                    active: HashSet::new(),
                    cold: Vec::new(),
                    own,
                });
            } else {
                self.on_link = None;
                // Where a tunnel waits for its turn or its prefix it is nowhere, as others may be.
                if prefix != NOWHERE {
                    self.add_prefix(prefix)?;
                }
            }
        }
        if let Some((old, false)) = old.filter(|(old, _)| *old != NOWHERE) {
            self.journal.delete_route(&mut self.netlink, &Route::local(IpNet::V6(old)))?;
        }
        self.state.hop = new;
        Ok(())
    }

    /// Makes addresses local. Where somebody did already, theirs serves, and stays.
    fn add_local(&mut self, prefix: IpNet) -> Result<(), linux::Error> {
        match self.journal.add_route(&mut self.netlink, Route::local(prefix)) {
            Err(error) if error.already_exists() => Ok(()),
            result => result,
        }
    }

    /// Removes all that was set up. What keeps the tunnel closed stays, if the tunnel was meant: a start that nobody has
    /// confirmed may be what has locked its administrator out.
    pub(super) fn close(mut self, meant: bool) {
        if self.state.kept_off.is_none()
            && !self.led.strays.is_empty()
            && let Err(error) = self.closed.let_out(&mut self.netlink)
        {
            warn!("another tunnel's packets are still dropped outside: {error}");
        }
        self.closed.end(meant, &self.closed_after, &mut self.netlink);
        // Nothing crosses over any more, before anything else changes.
        self.transparent = None;
        self.rewriter = None;
        self.masker = None;
        if let Err(error) = self.journal.undo_all(&mut self.netlink) {
            warn!("not everything could be removed from the kernel, the next start tries again: {error}");
        }
    }

    /// Starts the thread.
    pub(super) fn start(
        mut self,
        report: impl Fn(KernelEvent) + Send + 'static,
    ) -> Result<(mpsc::Sender<Command>, Waker, JoinHandle<Kernel>), Error> {
        let (commands, received) = mpsc::channel();
        let waker = Waker::new()?;
        let poller = Poller::new()?;
        let mut monitor = Monitor::open()?;
        monitor.watch_own_routes()?;
        let ruleset = RulesetMonitor::open()?;
        let woken = waker.clone();
        let run = move || {
            let report = ReportEnd(report);
            if let Err(error) = self.run(&received, &woken, &poller, (&monitor, &ruleset), &report.0) {
                warn!("the kernel thread ends: {error}");
            }
            self
        };
        let thread = std::thread::Builder::new().name("kernel".into()).spawn(run)?;
        Ok((commands, waker, thread))
    }

    fn run(
        &mut self,
        commands: &mpsc::Receiver<Command>,
        waker: &Waker,
        poller: &Poller,
        (monitor, ruleset): (&Monitor, &RulesetMonitor),
        report: &dyn Fn(KernelEvent),
    ) -> Result<(), Error> {
        const WAKER: u64 = 0;
        const MONITOR: u64 = 1;
        const RESPONDER: u64 = 2;
        const INSIDE: u64 = 3;
        const OUTSIDE: u64 = 4;
        const DISCOVERY: u64 = 5;
        const RULESET: u64 = 6;
        poller.add(waker, WAKER, Interest::Readable)?;
        poller.add(monitor, MONITOR, Interest::Readable)?;
        poller.add(ruleset, RULESET, Interest::Readable)?;
        if let Some(on_link) = &self.on_link {
            poller.add(&on_link.responder, RESPONDER, Interest::Readable)?;
        }
        if let Some(discovery) = &self.discovery {
            poller.add(discovery, DISCOVERY, Interest::Readable)?;
        }
        if let Some(transparent) = &self.transparent {
            for (socket, token) in transparent.sockets().into_iter().zip(INSIDE..) {
                poller.add(socket, token, Interest::Readable)?;
            }
        }
        let mut events = Events::with_capacity(4);
        let mut asked = Instant::now();
        let mut refreshed = Instant::now();
        // When to look whether the tables are still ours, and not before when: two programs could keep each other busy.
        let mut rested = Instant::now();
        // They may have been changed before anybody was told.
        let mut restore = Some(rested);
        let mut dark = true;
        // The same for what the tunnel's interface has.
        let (mut put_back, mut put_back_rested) = (None, Instant::now());
        let mut put_back_pause = RESTORE_EVERY;
        loop {
            let cold = self.on_link.as_ref().is_some_and(|o| !o.cold.is_empty());
            let lost = self.transparent.as_ref().filter(|transparent| transparent.lacks_router());
            if let Some(transparent) = lost
                && asked.elapsed() >= ASK_ROUTER
            {
                transparent.solicit_router();
                asked = Instant::now();
            }
            let ask = lost.is_some().then_some(ASK_ROUTER);
            let discovery = self.discovery.as_ref().and_then(RouterDiscovery::timeout);
            let again = cold.then_some(LOOK_AGAIN.0);
            let rewriting = self.rewriter.as_ref().filter(|rewriter| rewriter.is_active());
            let masking = self.masker.as_ref().filter(|masker| masker.is_active());
            let refresh = (rewriting.is_some() || masking.is_some())
                .then(|| REFRESH.saturating_sub(refreshed.elapsed()));
            if self.doubts_tables() {
                restore.get_or_insert(rested);
            }
            let restoring = restore.map(|at| at.saturating_duration_since(Instant::now()));
            let putting = put_back.map(|at: Instant| at.saturating_duration_since(Instant::now()));
            let deadlines = [again, ask, discovery, refresh, restoring, putting];
            poller.wait(&mut events, deadlines.into_iter().flatten().min())?;
            if restore.is_some_and(|at| at <= Instant::now()) {
                rested = Instant::now() + RESTORE_EVERY;
                let is_dark = self.restore_dark_tables(report);
                restore = if is_dark { None } else { Some(rested) };
                if std::mem::replace(&mut dark, is_dark) != is_dark {
                    report(KernelEvent::Dark(is_dark));
                }
            }
            if put_back.is_some_and(|at| at <= Instant::now()) {
                put_back_pause =
                    if self.put_back() { RESTORE_EVERY } else { (2 * put_back_pause).min(LOOK_RARELY) };
                (put_back, put_back_rested) = (None, Instant::now() + put_back_pause);
            }
            if refreshed.elapsed() >= REFRESH {
                refreshed = Instant::now();
                let netlink = &mut self.netlink;
                let mut crossed =
                    self.rewriter.as_mut().map(|rewriter| rewriter.refresh(netlink)).unwrap_or_default();
                crossed.extend(self.masker.iter_mut().flat_map(|masker| masker.refresh(netlink)));
                if !crossed.is_empty() {
                    report(KernelEvent::Rewritten(crossed));
                }
            }
            self.warm_peers();
            self.look_for_routers(report);
            for event in events.iter() {
                match event.token {
                    WAKER => waker.drain(),
                    MONITOR => {
                        if self.changed(monitor, report) {
                            put_back.get_or_insert(put_back_rested);
                        }
                        if let Some(on_link) = &self.on_link {
                            // Another one, where the external interface was made anew.
                            let _ = poller.add(&on_link.responder, RESPONDER, Interest::Readable);
                        }
                    }
                    DISCOVERY => {}
                    RULESET => {
                        if ruleset.changed(self.tables.names())? {
                            restore.get_or_insert(rested);
                        }
                    }
                    INSIDE => self.transparent.iter_mut().for_each(Transparent::read_inside),
                    OUTSIDE => {
                        if let Some(transparent) = &mut self.transparent {
                            transparent.read_outside(&mut self.netlink, &mut self.journal);
                        }
                    }
                    _ => self.answer_solicitations(),
                }
            }
            while let Ok(command) = commands.try_recv() {
                match command {
                    Command::Open { id, local, remote } => {
                        let endpoint = self.open_endpoint(local, remote);
                        report(KernelEvent::Opened { id, endpoint });
                    }
                    Command::Close(endpoint) => self.close_endpoint(endpoint),
                    Command::Mtu { prefixes, mtu } => self.set_mtu(&prefixes, mtu),
                    Command::Rewrite(action) => self.rewrite(action),
                    Command::Lead(led) => self.lead(led),
                    Command::Apply { config, answer } => {
                        let result = self.apply(&config);
                        if let Some(on_link) = &self.on_link {
                            // A responder that is new; the old one left the poller when it was closed.
                            let _ = poller.add(&on_link.responder, RESPONDER, Interest::Readable);
                        }
                        let _ = answer.send(result);
                    }
                    Command::End => return Ok(()),
                }
            }
        }
    }

    fn open_endpoint(
        &mut self,
        local: SocketAddrV6,
        remote: Option<SocketAddrV6>,
    ) -> linux::Result<Endpoint> {
        if let Some(transparent) = &self.transparent {
            transparent.gateway.open(*local.ip(), None, remote.map(|remote| *remote.ip()))?;
        }
        if self.on_link.is_some() {
            self.add_local(IpNet::from(IpAddr::V6(*local.ip())))?;
            if let Some(remote) = remote {
                self.warm(*local.ip(), *remote.ip());
            }
        }
        // What masked packets look like, its datagrams do: no label, and none that the kernel has put together with them.
        let masked =
            remote.zip(self.masker.as_ref()).is_some_and(|(remote, masker)| masker.takes(local, remote));
        let plain = EndpointOptions { receive_offload: false, flow_label: false, ..self.sockets.clone() };
        let sockets = if masked { &plain } else { &self.sockets };
        let endpoint = match &self.lookup_table {
            Some(lookup_table) if remote.is_none() => {
                lookup_table.insert(local).map(|()| Endpoint::Shared(local))
            }
            _ => EndpointSocket::open(local, remote, sockets)
                .map(|socket| Endpoint::Dedicated(Arc::new(socket))),
        };
        match endpoint {
            Ok(endpoint) => {
                if let Some(on_link) = &mut self.on_link {
                    on_link.active.insert(*local.ip());
                }
                Ok(endpoint)
            }
            Err(error) => {
                self.forget(*local.ip(), remote.map(|r| *r.ip()));
                Err(error)
            }
        }
    }

    fn close_endpoint(&mut self, endpoint: Endpoint) {
        let (local, remote) = match &endpoint {
            Endpoint::Dedicated(socket) => (socket.local(), socket.remote().map(|r| *r.ip())),
            Endpoint::Shared(local) => (*local, None),
        };
        if let (Endpoint::Shared(_), Some(lookup_table)) = (&endpoint, &self.lookup_table)
            && let Err(error) = lookup_table.remove(local)
        {
            debug!("{error}");
        }
        drop(endpoint);
        self.forget(*local.ip(), remote);
    }

    /// Takes back what an on-link endpoint needed.
    fn forget(&mut self, local: Ipv6Addr, remote: Option<Ipv6Addr>) {
        if let Some(transparent) = &self.transparent {
            transparent.gateway.close(local, None, remote);
        }
        if self.on_link.is_some()
            && let route = Route::local(IpNet::from(IpAddr::V6(local)))
            && let Err(error) = self.journal.delete_route(&mut self.netlink, &route)
        {
            debug!("{error}");
        }
        self.forget_neighbor(local, remote);
    }

    /// Is silent about an address of ours on the link, and forgets that of the peer.
    fn forget_neighbor(&mut self, local: Ipv6Addr, remote: Option<Ipv6Addr>) {
        let Some(on_link) = &mut self.on_link else { return };
        on_link.active.remove(&local);
        on_link.cold.retain(|(cold, _)| Some(*cold) != remote);
        if let Some(remote) = remote
            && let Err(error) = self.journal.delete_neighbor(&mut self.netlink, self.link.index, remote)
        {
            debug!("{error}");
        }
    }

    /// Sees that neither end of an on-link endpoint waits for address resolution when its epoch begins: a router
    /// learns our address, and a peer on the link is entered with the hardware address that it has now.
    fn warm(&mut self, local: Ipv6Addr, remote: Ipv6Addr) {
        let hop = match self.sockets.interface {
            Some(index) => self.netlink.route_through(index, IpAddr::V6(remote)),
            None => self.netlink.route_to(IpAddr::V6(remote)),
        };
        let Ok(Some(hop)) = hop else { return };
        let Some(on_link) = self.on_link.as_mut().filter(|_| hop.index == self.link.index) else { return };
        let Some(IpAddr::V6(router)) = hop.gateway else {
            on_link.cold.push((remote, Instant::now()));
            return self.warm_peers();
        };
        let entry = self.netlink.neighbor(self.link.index, IpAddr::V6(router)).ok().flatten();
        if let Some(mac) = entry.filter(|e| e.usable).and_then(|e| e.mac)
            && let Err(error) = on_link.responder.introduce(local, router, mac)
        {
            debug!("{error}");
        }
    }

    /// Enters the next endpoints of peers on the link, with the hardware address that the peer has where it is now: in
    /// any other entry of its network, if only that of a rendezvous endpoint.
    fn warm_peers(&mut self) {
        let index = self.link.index;
        let Some(on_link) = self.on_link.as_mut().filter(|o| !o.cold.is_empty()) else { return };
        let Ok(neighbors) = self.netlink.neighbors(index) else { return };
        let known = |remote: Ipv6Addr| {
            // Of its own part of the link's network, where it has one.
            let network = self.peer_prefixes.iter().find(|prefix| prefix.contains(&remote));
            let network = network
                .copied()
                .unwrap_or_else(|| Ipv6Net::new(remote, 64).expect("64 is a prefix length").trunc());
            let same = |address| matches!(address, IpAddr::V6(a) if network.contains(&a));
            neighbors.iter().filter(|n| n.usable && same(n.address)).find_map(|n| n.mac)
        };
        let (journal, netlink) = (&mut self.journal, &mut self.netlink);
        on_link.cold.retain(|(remote, since)| {
            let Some(mac) = known(*remote) else { return since.elapsed() < LOOK_AGAIN.1 };
            if let Err(error) = journal.add_neighbor(netlink, index, *remote, mac, NeighborState::Reachable)
                && !error.already_exists()
            {
                debug!("{error}");
            }
            false
        });
    }

    fn answer_solicitations(&mut self) {
        if let Some(on_link) = &mut self.on_link
            && let Err(error) = on_link.responder.handle(|address| on_link.active.contains(&address))
        {
            debug!("{error}");
        }
    }

    fn set_mtu(&mut self, prefixes: &[IpNet], mtu: InnerMtu) {
        let device = self.state.mtu.unwrap_or(u16::MAX);
        let halves = prefixes.iter().flat_map(|prefix| destinations(*prefix, Mode::Routed));
        let prefixes: HashSet<IpNet> = prefixes.iter().copied().chain(halves).collect();
        for prefix in prefixes.iter().filter(|p| self.state.routes.contains(p)) {
            let fits = match prefix {
                IpNet::V4(_) => mtu.ipv4,
                IpNet::V6(_) if self.state.masked.contains(prefix) => mtu.masked,
                IpNet::V6(_) => mtu.ipv6,
            };
            let fits = fits.min(device);
            let mut route = Route::device(*prefix, self.tun_index);
            if self.route_mtus.insert(*prefix, fits) == Some(fits) {
                continue;
            }
            let source = self.source_towards(prefix);
            if let Err(error) = self.netlink.set_route(&mut route, Some(fits.into()), source) {
                debug!("{error}");
            }
        }
    }

    /// Follows what changed; true if the tunnel's interface may have lost something.
    fn changed(&mut self, monitor: &Monitor, report: &dyn Fn(KernelEvent)) -> bool {
        let mut changes = monitor.read().unwrap_or_else(|error| {
            debug!("{error}");
            Vec::new()
        });
        changes.extend(self.lost_among(&changes));
        let has_lost = changes.iter().any(|change| self.is_loss(change));
        for change in changes {
            match change {
                Change::LinkGone(index) if index == self.link.index => self.external_gone(),
                Change::Link(link) if self.is_external(&link) => {
                    if link.up != self.link.up {
                        let reason = if link.up { "up" } else { "down" };
                        info!(event = "link", reason, interface = link.name, "{} is {reason}", link.name);
                    }
                    if let Some(transparent) = &mut self.transparent {
                        transparent.set_link_mtu(link.mtu);
                    }
                    if let Some(rewriter) = &mut self.rewriter {
                        rewriter.set_external(&link, &mut self.netlink, &mut self.journal);
                    }
                    if let Some(masker) = &mut self.masker {
                        masker.set_external(&link, &mut self.netlink, &mut self.journal);
                    }
                    let changed = link.running != self.link.running;
                    let renamed = link.name != self.link.name;
                    let before = std::mem::replace(&mut self.link, link).index;
                    if before != self.link.index {
                        self.made_anew(before, report);
                    }
                    if renamed {
                        self.renamed();
                    }
                    if changed {
                        self.carrier_changed();
                    }
                    report(KernelEvent::LinkMtu(self.link_mtu()));
                }
                Change::Address(_) | Change::AddressGone(_) | Change::Overrun => self.refresh_own(),
                _ => {}
            }
        }
        has_lost
    }
}

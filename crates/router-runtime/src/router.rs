//! The router's own thread: events of the kernel and of interfaces, what is planned, and commands.

mod calls;
mod configuration;
mod devices;

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use linux::event::{Events, Interest, Poller, Waker};
use linux::netlink::{Change, Link, Monitor, Netlink};
use linux::process::{self, Capability};
use router::delegated_prefix;
use router::nat64::{IPV4_ONLY, Prefix};
use router::plan::{Plan, plan};
use router::site::Site;
use router::transition::Kind;
use tracing::warn;

use config::RouterConfig;
use control::Call;

use crate::autorate::Lines;
use crate::beside::dnsmasq::{Dnsmasqs, Surroundings};
use crate::beside::stubby::Stubby;
use crate::dhcp6::Dhcp6;
use crate::error::Error;
use crate::flows::Flows;
use crate::kernel::Kernel;
use crate::lookups::{self, Lookups};
use crate::needs::check;
use crate::port_mapping::{self, PortMapping};
use crate::problem::Problem;
use crate::random::{self, Uuid};
use crate::state_file::{Clock, Contents, StateFile, TIMES_EVERY};
use crate::{named, nat, nat64, network, transition, uplink};

/// How often it is looked whether all is there, and what could not be done is tried again.
const LOOK: Duration = Duration::from_secs(10);

const MONITOR: u64 = 0;
const WAKER: u64 = 1;
const FIRST_INTERFACE: u64 = 16;

/// What the router's thread is to do.
pub(super) enum Command {
    /// Another configuration, and who wants to know what became of it: the one from before.
    Reload(Box<RouterConfig>, Sender<Result<Box<RouterConfig>, Error>>),
    Call(Call),
    Stop,
}

/// The router, in a thread of its own.
pub(super) struct Router {
    pub(super) site: Site,
    pub(super) kernel: Kernel,
    poller: Poller,
    monitor: Monitor,
    pub(super) links: Vec<Link>,
    pub(super) uplinks: Vec<uplink::Interface>,
    /// Those of the uplinks that are tunnels.
    pub(super) tunnels: Vec<transition::Interface>,
    /// The other ends of those that providers name.
    aftrs: Lookups<Ipv6Addr>,
    /// The prefixes of translators that no router advertises (RFC 7050).
    translators: Lookups<Prefix>,
    /// Between IPv6 and IPv4.
    pub(super) translator: Option<nat64::Interface>,
    pub(super) networks: Vec<network::Interface>,
    /// What a configuration that is being taken has no more: until it is in force the one from before may be wanted again.
    retired: Retired,
    pub(super) plan: Plan,
    /// What answers hosts that ask for addresses and names.
    pub(super) dnsmasqs: Dnsmasqs,
    /// What asks servers elsewhere by TLS.
    pub(super) stubby: Stubby,
    /// Lines whose rates follow what they carry.
    pub(super) lines: Lines,
    /// Who is told of flows.
    pub(super) flows: Flows,
    /// Ports that hosts ask for.
    pub(super) port_mapping: PortMapping,
    /// What hosts and routers behind ask for by DHCPv6.
    pub(super) dhcp6: Dhcp6,
    /// What could not be done, or not be had; each is logged once.
    pub(super) problems: Vec<String>,
    state_file: StateFile,
    uuid: Uuid,
    /// The number of the next descriptor; none has one that another had.
    next_token: u64,
    /// Whether the plan may be another now.
    changed: bool,
    next_look: Instant,
    pub(super) started: Instant,
    /// The tunnel in the same configuration, and the prefix that it was told to hop in.
    pub(super) tunnel: Option<TunnelBeside>,
    told: Option<Ipv6Net>,
    /// The configuration that describes it.
    pub(super) file: PathBuf,
}

/// A tunnel in the same configuration.
pub struct TunnelBeside {
    /// Its control socket.
    pub socket: PathBuf,
    /// Told, on the router's thread, of the prefix to hop in when that is another, where the tunnel follows an uplink.
    pub moved: Box<dyn Fn(Option<Ipv6Net>) + Send>,
}

#[derive(Default)]
struct Retired {
    uplinks: Vec<uplink::Interface>,
    networks: Vec<network::Interface>,
}

impl Router {
    pub(super) fn set_up(
        config: RouterConfig,
        journal: &std::path::Path,
        state: PathBuf,
        tunnel: Option<TunnelBeside>,
        waker: &Waker,
    ) -> Result<Self, Error> {
        let monitor = Monitor::open()?;
        // Before anything is touched that an earlier run has left.
        let links = Netlink::open()?.links()?;
        check(&config.site, &links)?;
        let kernel = Kernel::open(journal)?;
        let (dnsmasqs, stubby) = (Dnsmasqs::new(journal, &state), Stubby::new(journal));
        let poller = Poller::new()?;
        poller.add(&monitor, MONITOR, Interest::Readable)?;
        poller.add(waker, WAKER, Interest::Readable)?;
        let state_file = StateFile::load(state);
        let uuid = state_file.contents().uuid.unwrap_or_else(random::uuid);
        let delegated = state_file.contents().delegated(state_file.clock());
        let mut router = Router {
            site: Site::default(),
            kernel,
            poller,
            monitor,
            links,
            uplinks: Vec::new(),
            tunnels: Vec::new(),
            aftrs: Lookups::new("AFTR", None, named::aftr, waker),
            translators: Lookups::new("prefix behind", Some(lookups::LONGEST), named::translator, waker),
            translator: None,
            networks: Vec::new(),
            retired: Retired::default(),
            plan: Plan::default(),
            dnsmasqs,
            stubby,
            lines: Lines::new(),
            flows: Flows::default(),
            port_mapping: PortMapping::new(journal.with_extension("mappings"), Instant::now()),
            dhcp6: Dhcp6::new(&uuid, delegated),
            problems: Vec::new(),
            uuid,
            state_file,
            next_token: FIRST_INTERFACE,
            changed: false,
            next_look: Instant::now(),
            started: Instant::now(),
            tunnel,
            told: None,
            file: PathBuf::new(),
        };
        match router.take(config) {
            Ok(()) => {
                let keep = [
                    Capability::CAP_NET_ADMIN,
                    Capability::CAP_NET_RAW,
                    Capability::CAP_NET_BIND_SERVICE,
                    // For tunnels, also those of another configuration: without PERFMON the verifier is stricter.
                    Capability::CAP_BPF,
                    Capability::CAP_PERFMON,
                ];
                process::keep_capabilities(&keep)?;
                Ok(router)
            }
            Err(error) => {
                router.kernel.give_up()?;
                Err(error)
            }
        }
    }

    /// Until it is told to stop.
    pub(super) fn run(&mut self, waker: &Waker, commands: &Receiver<Command>) -> linux::Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            let now = Instant::now();
            let interfaces = self.uplinks.iter().filter_map(uplink::Interface::deadline);
            let interfaces = interfaces.chain(self.networks.iter().filter_map(network::Interface::deadline));
            let interfaces =
                interfaces.chain(self.tunnels.iter().filter_map(transition::Interface::deadline));
            let interfaces = interfaces.chain(self.port_mapping.deadline()).chain(self.dhcp6.deadline());
            let lookups = self.aftrs.deadline().into_iter().chain(self.translators.deadline());
            let interfaces = interfaces.chain(self.lines.deadline()).chain(lookups);
            let deadline = interfaces.chain([self.next_look]).min().unwrap_or(now + LOOK);
            self.poller.wait(&mut events, Some(deadline.saturating_duration_since(now)))?;
            let now = Instant::now();
            for event in events.iter() {
                match event.token {
                    MONITOR => self.handle_changes(now),
                    WAKER => waker.drain(),
                    token => self.handle_readable(token, now),
                }
            }
            for command in commands.try_iter() {
                match command {
                    Command::Stop => return Ok(()),
                    Command::Reload(config, answer) => drop(answer.send(self.reload(*config))),
                    Command::Call(call) => self.answer(call, now),
                }
            }
            for interface in &mut self.uplinks {
                self.changed |= interface.handle_timeout(&mut self.kernel.netlink, &self.poller, now);
            }
            for interface in &mut self.tunnels {
                interface.handle_timeout(&mut self.kernel.netlink, now);
            }
            self.changed |= self.dhcp6.deadline().is_some_and(|over| now >= over);
            self.changed |= self.aftrs.take_answers(now) | self.translators.take_answers(now);
            let lookups = [self.aftrs.deadline(), self.translators.deadline()];
            self.changed |= lookups.into_iter().flatten().any(|due| now >= due);
            let mut looks = false;
            if self.changed || now >= self.next_look {
                looks = now >= self.next_look;
                if looks {
                    self.look_after_tables();
                    // What else decides where packets go, such as settings, is not announced.
                    self.follow_routes(|_| true);
                    self.next_look = now + LOOK;
                }
                self.changed = false;
                self.follow_providers(now);
                let mut problems = self.restore(now);
                problems.extend(self.renew_plan(now).into_iter().map(|problem| problem.text));
                problems.extend(self.lines.follow(&self.uplinks, &self.links, &self.poller, now));
                problems.extend(self.follow_hosts(now));
                problems.extend(self.follow_port_mapping(now));
                problems.extend(self.dhcp6.follow(&self.site, &self.links, &self.poller, now));
                problems.extend(self.flows.follow(self.site.flows.as_ref(), self.networks_behind()));
                self.log_problems(problems, now);
            }
            self.lines.handle_timeout(&mut self.kernel, &self.links, now);
            self.map_ports(looks, now);
            for interface in &mut self.networks {
                interface.handle_timeout(&mut self.kernel.netlink, now);
            }
        }
    }

    /// The kernel as it should be now. What could not be done is returned.
    fn renew_plan(&mut self, now: Instant) -> Vec<Problem> {
        for interface in &mut self.uplinks {
            interface.learn_identifier(&mut self.kernel.netlink);
        }
        let mut states: Vec<_> = self.uplinks.iter_mut().map(|interface| &mut interface.state).collect();
        let refused = delegated_prefix::sort_out(&self.site, &mut states);
        let states: Vec<_> = self.uplinks.iter().map(|interface| &interface.state).collect();
        let known = self.networks.iter().map(|interface| (&interface.network, interface.known_prefixes()));
        let formerly: Vec<_> = known
            .flat_map(|(network, known)| known.into_iter().map(|prefix| (network.interface.as_str(), prefix)))
            .collect();
        self.plan = plan(&self.site, &states, &formerly, now);
        self.plan.problems.extend(refused);
        self.dhcp6.plan(&self.site, &states, &mut self.plan, now);
        self.plan.addresses.extend(self.tunnels.iter().filter_map(transition::Interface::own_address));
        let mut problems = self.kernel.apply(&self.site, &self.plan, &self.links, now);
        problems.extend(self.move_tunnel().err());
        for interface in &mut self.uplinks {
            interface.set_addresses(&self.plan.addresses);
        }
        for (interface, offer) in self.networks.iter_mut().zip(&self.plan.offers) {
            interface.set_offer(offer.clone(), now);
        }
        self.remember(TIMES_EVERY);
        problems
    }

    /// Has hosts that ask for addresses and names answered as it is now. Only once a configuration is in force: one that is
    /// refused changes nothing for them.
    fn follow_hosts(&mut self, now: Instant) -> Vec<String> {
        let working = self.uplinks.iter().filter(|interface| interface.state.works());
        let announced = working.flat_map(|interface| {
            let servers = interface.state.dns_servers().into_iter();
            servers.map(|server| (server, interface.uplink.interface.as_str()))
        });
        let around = Surroundings {
            policy: self.kernel.firewall().map(|firewall| &firewall.policy),
            links: &self.links,
            addresses: &self.plan.addresses,
            announced: announced.collect(),
            now,
        };
        let mut problems = self.stubby.follow(&self.site);
        problems.extend(self.dnsmasqs.follow(&self.site, &around));
        problems
    }

    /// Has hosts be able to ask for ports as the configuration and the links are now.
    fn follow_port_mapping(&mut self, now: Instant) -> Vec<String> {
        let mut external = None;
        let mut problems = Vec::new();
        if self.site.maps_ports() {
            match port_mapping::external(&mut self.kernel, &self.site, &self.links) {
                Ok(found) => external = found,
                Err(error) => problems.push(error.to_string()),
            }
        }
        let policy = self.kernel.firewall().map(|firewall| &firewall.policy);
        let (site, links) = (&self.site, &self.links);
        problems.extend(self.port_mapping.follow(site, policy, links, external, &self.poller, now));
        problems
    }

    /// Does what hosts have asked for. `looks`: what somebody has taken away is put back.
    fn map_ports(&mut self, looks: bool, now: Instant) {
        let has_any = self.port_mapping.mappings().next().is_some();
        let has_lost = self.kernel.has_lost_mappings() || (looks && has_any);
        self.port_mapping.handle(&self.kernel, &self.site, &self.plan, has_lost, now);
    }

    /// Has the tunnel hop in the prefix that is planned, once the firewall lets in what comes there.
    fn move_tunnel(&mut self) -> Result<(), Problem> {
        let prefix = self.plan.hop_prefix;
        self.kernel.set_tunnel_endpoint(prefix).map_err(|error| Problem {
            text: format!("the tunnel stays where it is: {error}"),
            waits: true,
        })?;
        if prefix != std::mem::replace(&mut self.told, prefix)
            && let Some(tunnel) = &self.tunnel
        {
            (tunnel.moved)(prefix);
        }
        Ok(())
    }

    fn look_after_tables(&mut self) {
        match self.kernel.restore_tables() {
            Ok(restored) => {
                for table in restored {
                    warn!(
                        event = "rules_restored",
                        table, "the table {table}, or a rule of it, had disappeared and was restored"
                    );
                }
            }
            Err(error) => warn!(
                event = "rules_lost",
                "a table of nftables, or a rule of one, has disappeared and cannot be restored: {error}"
            ),
        }
    }

    fn log_problems(&mut self, problems: Vec<String>, now: Instant) {
        let interfaces = self.uplinks.iter().flat_map(|interface| interface.problems(now));
        let interfaces = interfaces.chain(self.networks.iter().flat_map(|interface| interface.problems(now)));
        let interfaces = interfaces.chain(self.tunnels.iter().filter_map(transition::Interface::problem));
        let lookups = self.uplinks.iter().flat_map(|below| {
            let name = &below.uplink.name;
            [self.aftrs.problem(name), self.translators.problem(name)].into_iter().flatten()
        });
        let interfaces = interfaces.chain(lookups);
        let problems: Vec<_> = problems
            .into_iter()
            .chain(self.plan.problems.iter().map(ToString::to_string))
            .chain(interfaces)
            .collect();
        for problem in problems.iter().filter(|problem| !self.problems.contains(problem)) {
            warn!(event = "problem", "{problem}");
        }
        self.problems = problems;
    }

    fn remember(&mut self, times_every: Duration) {
        let clock = Clock::read();
        let mut contents = Contents::default();
        contents.uuid = Some(self.uuid);
        for interface in &self.uplinks {
            if let Some(lease) = interface.lease() {
                contents.set_lease(&interface.uplink.name, lease, clock);
            }
        }
        for interface in &self.uplinks {
            contents
                .routers
                .extend(interface.known_router().map(|router| (interface.uplink.name.clone(), router)));
        }
        contents.set_delegated(self.dhcp6.leases(), clock);
        for interface in &self.networks {
            contents.prefixes.insert(interface.network.interface.clone(), interface.known_prefixes());
        }
        self.state_file.save(contents, clock, times_every);
    }

    fn handle_changes(&mut self, now: Instant) {
        match self.monitor.read() {
            Ok(mut changes) => {
                self.follow_routes(|interface| {
                    changes.iter().any(|change| match change {
                        Change::Route => true,
                        Change::Neighbor(index) => interface.is_over(*index),
                        _ => false,
                    })
                });
                // A DHCP client has set the router of an uplink.
                self.changed |= changes.contains(&Change::Route) && !nat::answering(&self.site).is_empty();
                changes.retain(|change| {
                    !matches!(change, Change::Route | Change::RouteGone(_) | Change::Neighbor(_))
                });
                if changes.is_empty() {
                    return;
                }
                // Addresses come and go with links, and by hand: what is ours is looked for in any case.
                self.changed = true;
                // A tunnel follows the addresses of what carries it.
                if self.tunnels.is_empty()
                    && changes.iter().all(|change| matches!(change, Change::Address(_)))
                {
                    return;
                }
            }
            Err(error) => warn!("{error}"),
        }
        match self.kernel.netlink.links() {
            Ok(links) => self.links = links,
            Err(error) => warn!("{error}"),
        }
        for interface in &mut self.tunnels {
            match self.kernel.follow(interface, &self.links, &self.poller) {
                Ok(changed) => self.changed |= changed,
                Err(error) => warn!("{error}"),
            }
        }
        self.set_links(now);
    }

    /// Tunnels use what providers tell now.
    fn follow_providers(&mut self, now: Instant) {
        let secret = random::secret(&self.uuid);
        let mut changed = false;
        let (mut with_aftr, mut with_translator) = (BTreeSet::new(), BTreeSet::new());
        for tunnel in &mut self.tunnels {
            let below = self.uplinks.iter().find(|below| below.uplink.interface == tunnel.tunnel.over);
            let mut provider = below.map(|below| below.provider(secret, now)).unwrap_or_default();
            match (&tunnel.tunnel.kind, below) {
                (Kind::FourInSix { remote: None }, Some(below)) => {
                    if let Some(name) = below.state.aftr_name() {
                        let uplink = &below.uplink.name;
                        provider.aftr = self.aftrs.value(uplink, below.question(name), now);
                        with_aftr.insert(uplink.as_str());
                    }
                }
                (Kind::Clat { plat: None }, Some(below)) if provider.plat.is_none() => {
                    let uplink = &below.uplink.name;
                    provider.plat = self.translators.value(uplink, below.question(IPV4_ONLY.0), now);
                    provider.plat_by_name = provider.plat.is_some();
                    with_translator.insert(uplink.as_str());
                }
                _ => {}
            }
            if tunnel.set_provider(provider) {
                match self.kernel.follow(tunnel, &self.links, &self.poller) {
                    Ok(followed) => changed |= followed,
                    Err(error) => warn!("{error}"),
                }
            }
        }
        self.aftrs.retain(|uplink| with_aftr.contains(uplink), now);
        self.translators.retain(|uplink| with_translator.contains(uplink), now);
        if changed {
            self.set_links(now);
        }
    }

    /// These tunnels, whose packets may leave otherwise now, look their route up.
    fn follow_routes(&mut self, concerns: impl Fn(&transition::Interface) -> bool) {
        for interface in self.tunnels.iter_mut().filter(|interface| concerns(interface)) {
            if let Err(error) = interface.follow_route(&mut self.kernel.netlink) {
                warn!("{error}");
            }
        }
    }

    fn set_links(&mut self, now: Instant) {
        let link = |name: &str| self.links.iter().find(|link| link.name == name);
        for interface in &mut self.uplinks {
            let mut found = link(&interface.uplink.interface).cloned();
            let tunnel = self.tunnels.iter().find(|tunnel| tunnel.is_of(&interface.uplink));
            if interface.uplink.tunnel.is_some() && tunnel.is_none() {
                // Of that name, but not ours.
                found = None;
            }
            if let (Some(found), Some(tunnel)) = (&mut found, tunnel) {
                found.running &= tunnel.is_up();
                self.changed |= interface.set_end(tunnel.end.as_ref());
            }
            self.changed |= interface.set_link(found.as_ref(), &self.poller, now);
        }
        for interface in &mut self.networks {
            interface.set_link(link(&interface.network.interface), &self.poller, now);
        }
    }

    fn handle_readable(&mut self, token: u64, now: Instant) {
        if let Some(interface) = self.uplinks.iter_mut().find(|interface| interface.owns(token)) {
            self.changed |= interface.handle_readable(token, now);
        } else if let Some(place) = self.tunnels.iter().position(|interface| interface.owns(token)) {
            self.tunnels[place].handle_readable(token);
            if self.tunnels[place].is_gone() {
                let interface = self.tunnels.remove(place);
                self.kernel.end_tunnel(interface, &self.poller);
                self.changed = true;
            }
        } else if let Some(translator) = self.translator.as_mut().filter(|translator| translator.owns(token))
        {
            translator.handle_readable();
            if translator.is_gone() {
                self.end_translator();
                self.changed = true;
            }
        } else if let Some(interface) = self.networks.iter_mut().find(|interface| interface.owns(token)) {
            self.changed |= interface.handle_readable(now);
        } else if self.port_mapping.owns(token) {
            self.port_mapping.handle_readable(token);
        } else if self.lines.owns(token) {
            self.lines.handle_readable(token, now);
        } else if self.dhcp6.owns(token) {
            let netlink = &mut self.kernel.netlink;
            self.changed |= self.dhcp6.handle_readable(token, &self.site, &self.plan, netlink, now);
        }
    }

    /// Hosts are told that this may be no router soon, and all is taken back.
    pub(super) fn end(mut self) {
        let now = Instant::now();
        self.remember(Duration::ZERO);
        self.dnsmasqs.end_all();
        self.stubby.end();
        self.flows.end();
        for interface in &mut self.networks {
            interface.cease(&mut self.kernel.netlink, now);
        }
        for interface in std::mem::take(&mut self.tunnels) {
            self.kernel.end_tunnel(interface, &self.poller);
        }
        self.end_translator();
        if let Err(error) = self.kernel.close() {
            warn!("not everything could be restored: {error}");
        }
        for interface in &self.uplinks {
            interface.hand_back();
        }
    }
}

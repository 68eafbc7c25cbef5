//! What the kernel has of a gateway: the firewall, addresses, routes, settings, the table that translates. All of it is in the
//! journal of [`linux::undo`]; what is missing, whoever took it away, is put back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

use ipnet::{IpNet, Ipv6Net};
use linux::event::Poller;
use linux::netlink::{Lifetimes, Link, Netlink, Route, Via};
use linux::ruleset::{self, Contents, Family, count_rules, has_chain};
use linux::undo::{Journal, Step};
use router::firewall::TABLE;
use router::lifetime::Lifetime;
use router::pcp::{Internal, Mapping};
use router::plan::{Plan, Route as PlannedRoute};
use router::site::{Site, StaticRoute, Uplink};
use tracing::{info, warn};

use super::transition;
use crate::answers::{Answers, ipv4_addresses};
use crate::firewall::{self, refuse_while_pending};
use crate::link::index_of;
use crate::offload::{self, Offload};
use crate::problem::Problem;
use crate::shaping::{Shaping, is_shaping};
use crate::{nat, nat64, neighbors, settings};
use config::Firewall;

/// The kernel, as far as it is this gateway's.
pub(super) struct Kernel {
    pub(super) netlink: Netlink,
    journal: Journal,
    /// Addresses that were given, with their lifetimes, by interface.
    addresses: BTreeMap<(u32, IpNet), (Lifetime, Lifetime)>,
    routes: Vec<Route>,
    /// The scripts of nft that are in force, if any: what translates, what guards the translator, and neighbor caches.
    nat: Option<String>,
    translator: Option<String>,
    neighbors: Option<String>,
    /// How answers to what is forwarded leave.
    answers: Answers,
    /// Short queues at the uplinks.
    pub(super) shaping: Shaping,
    /// The short way of known connections.
    pub(super) offload: Offload,
    /// The firewall that is to be in force, if any.
    firewall: Option<Firewall>,
    /// The chain that tells it from others.
    mark: String,
    /// Whether no firewall was set yet.
    starts: bool,
    /// Whether it began while a change of the firewall waited for its confirmation: another one that is in force then, or
    /// comes back later, stays until a reload.
    on_trial: bool,
    /// The tables, and what shapes, that an earlier run has left.
    kept: Vec<Step>,
    /// Where a tunnel that follows an uplink hops now.
    tunnel_endpoint: Option<Ipv6Net>,
    /// What was in a table when it was made; not known of what an earlier run has left. What somebody has added stays.
    made: BTreeMap<&'static str, Contents>,
    /// The last transaction of tables, anybody's, when all were looked at last: as long as there is no other one, all is there.
    looked_at: Option<u32>,
    /// Whether a table is another one than when ports that hosts have asked for were last written into it.
    lost_mappings: bool,
}

impl Kernel {
    /// Takes back what an earlier run has left, and begins anew. Its firewall stays until there is another: at no time
    /// is there none. So does what translates: without it, a packet of a connection that goes on is for the gateway itself,
    /// which resets it. Queues stay short.
    pub(super) fn open(journal: &Path) -> linux::Result<Self> {
        let mut netlink = Netlink::open()?;
        let is_kept_table =
            |step: &Step| [TABLE, nat::TABLE, nat64::TABLE].iter().any(|table| is_table(step, table));
        let stays = |step: &Step| is_kept_table(step) || is_shaping(step);
        let (journal, left) = Journal::open_keeping(journal, &mut netlink, stays)?;
        let has = |table| journal.done().iter().any(|step| is_table(step, table));
        // Another one than any that is wanted.
        let nat = has(nat::TABLE).then(String::new);
        let translator = has(nat64::TABLE).then(String::new);
        let kept = journal.done().to_vec();
        if !left.is_empty() {
            info!("removed {} things that an earlier run left in the kernel", left.len());
        }
        let (addresses, routes) = (BTreeMap::new(), Vec::new());
        let (neighbors, firewall, tunnel_endpoint) = (None, None, None);
        let answers = Answers::default();
        let shaping = Shaping::left(&kept);
        Ok(Kernel {
            netlink,
            journal,
            addresses,
            routes,
            nat,
            translator,
            neighbors,
            answers,
            shaping,
            offload: Offload::default(),
            firewall,
            mark: String::new(),
            starts: true,
            on_trial: false,
            kept,
            tunnel_endpoint,
            made: BTreeMap::new(),
            looked_at: None,
            lost_mappings: true,
        })
    }

    /// Has this firewall in force, whatever is there in its place.
    pub(super) fn set_firewall(&mut self, firewall: Option<&Firewall>) -> Result<(), firewall::Error> {
        if std::mem::take(&mut self.starts) {
            self.begin_on_trial(firewall.is_some())?;
        } else {
            // Also where there is to be none: the one before would come back.
            if firewall.is_some() || self.firewall.is_some() {
                refuse_while_pending()?;
            }
            self.on_trial = false;
        }
        match firewall {
            Some(firewall) => self.put_firewall(firewall)?,
            None => self.journal.delete_table(&mut self.netlink, "inet", TABLE)?,
        }
        self.firewall = firewall.cloned();
        Ok(())
    }

    /// A start is not refused while a change of the firewall waits for its confirmation, and does not make it last.
    fn begin_on_trial(&mut self, has_firewall: bool) -> Result<(), firewall::Error> {
        if has_firewall {
            self.on_trial = firewall::resume()?;
            if self.on_trial {
                warn!(
                    event = "firewall_unconfirmed",
                    "a change of the firewall awaits confirmation (`sidestep firewall confirm`): unless that comes in time, the \
                     firewall from before is restored, and stays until the configuration is read again"
                );
            }
        } else if self.journal.done().iter().any(|step| is_table(step, TABLE)) {
            // It goes, and is not to come back.
            firewall::end_trial()?;
        }
        Ok(())
    }

    /// Lets in what is for a tunnel that hops here now.
    pub(super) fn set_tunnel_endpoint(&mut self, prefix: Option<Ipv6Net>) -> Result<(), firewall::Error> {
        if prefix == self.tunnel_endpoint {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.tunnel_endpoint, prefix);
        let Some(firewall) = self.firewall.clone() else { return Ok(()) };
        let may = if self.on_trial { Ok(()) } else { refuse_while_pending() };
        let put = may.and_then(|()| self.put_firewall(&firewall));
        put.inspect_err(|_| self.tunnel_endpoint = before)
    }

    /// Connection tracking forgets no connection earlier than RFC 6092 allows.
    fn raise_timeouts(&mut self) -> linux::Result<()> {
        for (path, seconds) in settings::timeouts() {
            // Not there: a kernel that does not track the protocol.
            let Ok(found) = linux::sysctl::read_global(&path) else { continue };
            if found.parse::<u32>().is_ok_and(|found| found < seconds) {
                self.journal.set_global(&path, &seconds.to_string())?;
            }
        }
        Ok(())
    }

    /// Puts it there, unless it is there: what it has counted stays.
    fn put_firewall(&mut self, firewall: &Firewall) -> Result<(), firewall::Error> {
        let compiled = firewall::compiled(&self.with_tunnel_endpoint(firewall));
        let (mark, table) = firewall::marked(&compiled.script, firewall::UP);
        if self.on_trial && self.is_another_in_force(&mark)? {
            self.mark = mark;
            return Ok(());
        }
        if !has_chain(Family::Inet, TABLE, &mark)? || !self.is_whole(Family::Inet, TABLE)? {
            self.journal.set_table("inet", TABLE, &firewall::replacing(&table)?)?;
            self.made(Family::Inet, TABLE)?;
            self.lost_mappings = true;
        }
        self.mark = mark;
        Ok(())
    }

    /// Whether there is a firewall that is neither the one with this mark nor the one that was put there last.
    fn is_another_in_force(&self, mark: &str) -> linux::Result<bool> {
        for own in [mark, &self.mark] {
            if !own.is_empty() && has_chain(Family::Inet, TABLE, own)? {
                return Ok(false);
            }
        }
        Ok(count_rules(Family::Inet, TABLE)? > 0)
    }

    fn made(&mut self, family: Family, table: &'static str) -> linux::Result<()> {
        self.made.insert(table, Contents::of(family, table)?);
        Ok(())
    }

    /// Whether a table is as it was made by this run, and nobody has taken away or changed anything of it since.
    fn is_whole(&self, family: Family, table: &str) -> linux::Result<bool> {
        let Some(made) = self.made.get(table) else { return Ok(false) };
        let now = Contents::of(family, table)?;
        // Rules: somebody may have flushed it before it was looked at first.
        Ok(now.has_rules() && now.has_all_of(made))
    }

    /// Puts tables back that somebody has taken away, or something of, as a firewall of others does that is started anew. Which
    /// these were.
    pub(super) fn restore_tables(&mut self) -> Result<Vec<&'static str>, firewall::Error> {
        let mut restored = Vec::new();
        let last = ruleset::last_transaction()?;
        if self.looked_at == Some(last) {
            return Ok(restored);
        }
        // First: nothing else guards it where the firewall cannot be had.
        if let Some(script) = &self.translator
            && !self.is_whole(Family::Inet, nat64::TABLE)?
        {
            self.journal.set_table("inet", nat64::TABLE, script)?;
            self.made(Family::Inet, nat64::TABLE)?;
            restored.push(nat64::TABLE);
        }
        // Another one, which somebody has applied, stays until a reload.
        if let Some(firewall) = self.firewall.clone()
            && !self.is_whole(Family::Inet, TABLE)?
            && (count_rules(Family::Inet, TABLE)? == 0 || has_chain(Family::Inet, TABLE, &self.mark)?)
        {
            self.put_firewall(&firewall)?;
            restored.push(TABLE);
        }
        if let Some(script) = &self.nat
            && !self.is_whole(Family::Ip, nat::TABLE)?
        {
            self.journal.set_table("ip", nat::TABLE, script)?;
            self.made(Family::Ip, nat::TABLE)?;
            self.lost_mappings = true;
            restored.push(nat::TABLE);
        }
        if self.neighbors.is_some() && !self.is_whole(Family::Ip6, neighbors::TABLE)? {
            // Made anew with the plan, for whoever is there by now.
            self.neighbors = None;
            restored.push(neighbors::TABLE);
        }
        if self.offload.is_in_force() && count_rules(Family::Inet, offload::TABLE)? == 0 {
            self.offload.forget();
            restored.push(offload::TABLE);
        }
        self.looked_at = Some(last);
        Ok(restored)
    }

    /// The firewall that is in force, as the configuration has it.
    pub(super) fn firewall(&self) -> Option<&Firewall> {
        self.firewall.as_ref()
    }

    /// The firewall that is in force, with what it lets in for a tunnel that follows an uplink.
    pub(super) fn firewall_in_force(&self) -> Option<Firewall> {
        self.firewall.as_ref().map(|firewall| self.with_tunnel_endpoint(firewall))
    }

    fn with_tunnel_endpoint(&self, firewall: &Firewall) -> Firewall {
        let mut firewall = firewall.clone();
        if let Some(prefix) = self.tunnel_endpoint {
            firewall.policy = firewall.policy.with_tunnel_endpoint(prefix);
        }
        firewall
    }

    /// Makes a router of the machine: forwarding, and who listens to router advertisements. What is so already is left
    /// alone; an interface that is not there has no settings.
    pub(super) fn prepare(&mut self, site: &Site, links: &[Link]) -> linux::Result<()> {
        // First: a file without a router takes away what the one before it had.
        self.translate(site, links)?;
        self.guard_translator(site, links)?;
        for (path, value) in settings::wanted(site) {
            self.set_if_there(&path, value)?;
        }
        for version in settings::forwarded(site) {
            self.journal.forward(version, links.iter().map(|link| link.name.as_str()))?;
        }
        for path in settings::forwarding(site) {
            self.set_if_there(&path, "1")?;
        }
        if self.firewall.is_some() {
            self.raise_timeouts()?;
        }
        let is_there = |interface: &str| index_of(links, interface).is_some();
        // Clients are reached by another uplink now and then.
        for (_, uplink) in nat::answering(site).into_iter().filter(|(_, uplink)| is_there(&uplink.interface))
        {
            self.journal.loosen_reverse_path_filter(&uplink.interface)?;
        }
        Ok(())
    }

    fn set_if_there(&mut self, path: &str, value: &str) -> linux::Result<()> {
        if linux::sysctl::read_global(path).is_ok() { self.journal.set_global(path, value) } else { Ok(()) }
    }

    /// Has settings be again what they were that this site does not change, and another one did. Whether there were some.
    pub(super) fn release_settings(&mut self, site: &Site) -> linux::Result<bool> {
        let changed = settings::changed(site, self.firewall.is_some());
        let is_ours = |step: &Step| step.setting().is_none_or(|path| changed.contains(&path));
        let unwanted: Vec<Step> =
            self.journal.done().iter().rev().filter(|step| !is_ours(step)).cloned().collect();
        for step in &unwanted {
            self.journal.undo_step(&mut self.netlink, step)?;
        }
        Ok(!unwanted.is_empty())
    }

    fn translate(&mut self, site: &Site, links: &[Link]) -> linux::Result<()> {
        let wanted = nat::script(site, &self.uplinks_now(site, links)?);
        if wanted == self.nat {
            return Ok(());
        }
        match &wanted {
            Some(script) => {
                self.journal.set_table("ip", nat::TABLE, script)?;
                self.made(Family::Ip, nat::TABLE)?;
            }
            None => self.journal.delete_table(&mut self.netlink, "ip", nat::TABLE)?,
        }
        self.nat = wanted;
        self.lost_mappings = true;
        Ok(())
    }

    /// Has these ports open that hosts have asked for, and no others, in one step.
    pub(super) fn put_mappings<'m>(
        &self,
        site: &Site,
        mappings: impl Iterator<Item = (&'m Internal, &'m Mapping)>,
        now: Instant,
    ) -> linux::Result<()> {
        let filters = self.firewall.as_ref().is_some_and(|firewall| firewall.policy.settings().port_mapping);
        let script = nat::mapped(mappings, (site.maps_ports() && self.nat.is_some(), filters), now);
        if script.is_empty() { Ok(()) } else { linux::nft::apply(&script) }
    }

    /// Whether a table is another one than when this was last asked.
    pub(super) fn has_lost_mappings(&mut self) -> bool {
        std::mem::take(&mut self.lost_mappings)
    }

    fn guard_translator(&mut self, site: &Site, links: &[Link]) -> linux::Result<()> {
        let wanted = nat64::script(site, links);
        if wanted == self.translator {
            return Ok(());
        }
        match &wanted {
            Some(script) => {
                self.journal.set_table("inet", nat64::TABLE, script)?;
                self.made(Family::Inet, nat64::TABLE)?;
            }
            None => self.journal.delete_table(&mut self.netlink, "inet", nat64::TABLE)?,
        }
        self.translator = wanted;
        Ok(())
    }

    /// What the uplinks are now that hosts inside are reached by; of the others nothing is told.
    pub(super) fn uplinks_now(&mut self, site: &Site, links: &[Link]) -> linux::Result<Vec<nat::InKernel>> {
        let mut now = Vec::new();
        for uplink in &site.uplinks {
            let is_used = site.is_entered_by(uplink);
            let index = index_of(links, &uplink.interface).filter(|_| is_used);
            let found = index.map(|index| ipv4_addresses(&mut self.netlink, index)).transpose()?;
            let addresses = found.unwrap_or_default().into_iter().map(|net| net.addr()).collect();
            now.push(nat::InKernel { index, addresses });
        }
        Ok(now)
    }

    /// Has neighbors of networks that nobody has heard of looked for only so often, while the packets for them come from
    /// outside.
    fn guard_neighbors(&mut self, site: &Site, links: &[Link]) -> linux::Result<()> {
        let inner = neighbors::looked_for(site, links);
        let mut known = Vec::new();
        for link in &inner {
            known.extend(self.netlink.neighbors(link.index)?);
        }
        let wanted = neighbors::script(site, &inner, &neighbors::fixed(&known));
        if wanted == self.neighbors {
            return Ok(());
        }
        match &wanted {
            Some(script) => {
                // Whoever is known already is known from the start.
                let script = format!("{script}{}", neighbors::heard(known.iter()));
                self.journal.set_table("ip6", neighbors::TABLE, &script)?;
                self.made(Family::Ip6, neighbors::TABLE)?;
            }
            None => self.journal.delete_table(&mut self.netlink, "ip6", neighbors::TABLE)?,
        }
        self.neighbors = wanted;
        Ok(())
    }

    /// Has the kernel's addresses and routes as planned, as far as that can be. What cannot be is returned.
    pub(super) fn apply(&mut self, site: &Site, plan: &Plan, links: &[Link], now: Instant) -> Vec<Problem> {
        let mut problems = Vec::new();
        // Without it all works as before: no reason to refuse a configuration.
        problems.extend(self.guard_neighbors(site, links).err().map(|error| Problem {
            text: format!("packets from outside can fill the neighbor caches of the networks: {error}"),
            waits: true,
        }));
        self.remove_routes(plan, links, &mut problems);
        self.apply_addresses(plan, links, now, &mut problems);
        self.add_routes(site, plan, links, &mut problems);
        let shaping = self.shaping.follow(site, links, &mut self.netlink, &mut self.journal);
        problems.extend(shaping.into_iter().map(|text| Problem { text, waits: true }));
        match self.offload.follow(site, links, &mut self.netlink, &mut self.journal) {
            Ok(problem) => problems.extend(problem.map(|text| Problem { text, waits: true })),
            Err(error) => problems.push(error.into()),
        }
        let index = |name: &str| index_of(links, name);
        problems.extend(self.answers.follow(site, index, &mut self.netlink, &mut self.journal));
        problems
    }

    /// Has what an uplink's line carries be at these rates from now on, where it is shaped.
    pub(super) fn set_rates(&mut self, uplink: &Uplink, rates: [Option<u64>; 2], links: &[Link]) {
        self.shaping.set_rates(uplink, rates, links, &mut self.netlink, &mut self.journal);
    }

    /// Has a tunnel follow what carries it. Whether it is another now.
    pub(super) fn follow(
        &mut self,
        tunnel: &mut transition::Interface,
        links: &[Link],
        poller: &Poller,
    ) -> linux::Result<bool> {
        tunnel.follow(links, &mut self.netlink, &mut self.journal, poller)
    }

    /// A tunnel's device goes, and what was for it elsewhere.
    pub(super) fn end_tunnel(&mut self, tunnel: transition::Interface, poller: &Poller) {
        tunnel.close(&mut self.netlink, &mut self.journal, poller);
    }

    /// Takes everything back.
    pub(super) fn close(mut self) -> linux::Result<()> {
        self.interrupt_trial(|_| false);
        self.journal.undo_all(&mut self.netlink)
    }

    /// Takes back what was begun, but for what an earlier run has left on purpose: a start that fails opens nothing.
    pub(super) fn give_up(mut self) -> linux::Result<()> {
        self.interrupt_trial(|step| self.kept.contains(step));
        self.journal.undo_all_but(&mut self.netlink, |step| self.kept.contains(step))
    }

    /// With the firewall's table goes what would put one from before there.
    fn interrupt_trial(&self, stays: impl Fn(&Step) -> bool) {
        let goes = self.journal.done().iter().any(|step| is_table(step, TABLE) && !stays(step));
        if goes && let Err(error) = firewall::interrupt() {
            warn!("{error}");
        }
    }

    fn apply_addresses(&mut self, plan: &Plan, links: &[Link], now: Instant, problems: &mut Vec<Problem>) {
        let mut wanted = BTreeMap::new();
        for address in &plan.addresses {
            // When a link comes up the kernel makes the route of an address that has a lifetime only if it comes then.
            let link = links.iter().find(|link| link.name == address.interface && link.up);
            if let Some(link) = link
                && !address.valid.is_expired(now)
            {
                wanted.insert((link.index, address.address), (address.preferred, address.valid));
            }
        }
        let mut there = BTreeSet::new();
        for (index, _) in self.addresses.keys().chain(wanted.keys()) {
            let found = self.netlink.addresses(*index).unwrap_or_default();
            there.extend(found.into_iter().map(|found| (found.index, found.address)));
        }
        for ((index, address), known) in self.addresses.clone() {
            let goes_on = wanted
                .get(&(index, address))
                .is_some_and(|wanted| is_for_good(*wanted) == is_for_good(known));
            if goes_on && there.contains(&(index, address)) {
                continue;
            }
            match self.journal.delete_address(&mut self.netlink, index, address) {
                Ok(()) => {
                    self.addresses.remove(&(index, address));
                    there.remove(&(index, address));
                }
                Err(error) => problems.push(error.into()),
            }
        }
        for ((index, address), lifetimes) in wanted {
            let given = (!is_for_good(lifetimes)).then(|| Lifetimes {
                preferred: seconds(lifetimes.0, now),
                valid: seconds(lifetimes.1, now),
            });
            let result = match (self.addresses.get(&(index, address)), given) {
                (Some(known), Some(given)) if *known != lifetimes => {
                    self.netlink.set_lifetimes(index, address, given)
                }
                (Some(_), _) => Ok(()),
                // Somebody else has given it: it is there, and stays when we go.
                (None, _) if there.contains(&(index, address)) => continue,
                (None, given) => self.journal.add_address(&mut self.netlink, index, address, given),
            };
            match result {
                Ok(()) => drop(self.addresses.insert((index, address), lifetimes)),
                Err(error) => problems.push(error.into()),
            }
        }
    }

    /// Routes that are not wanted go before addresses change.
    fn remove_routes(&mut self, plan: &Plan, links: &[Link], problems: &mut Vec<Problem>) {
        let wanted: Vec<Route> = plan.routes.iter().filter_map(|route| kernel_route(route, links)).collect();
        let there = self.netlink.own_routes().unwrap_or_default();
        for route in std::mem::take(&mut self.routes) {
            if wanted.contains(&route) && there.contains(&route) {
                self.routes.push(route);
            } else if let Err(error) = self.journal.delete_route(&mut self.netlink, &route) {
                problems.push(error.into());
                self.routes.push(route);
            }
        }
    }

    /// Those that are new come after them.
    fn add_routes(&mut self, site: &Site, plan: &Plan, links: &[Link], problems: &mut Vec<Problem>) {
        for planned in &plan.routes {
            let Some(route) = kernel_route(planned, links).filter(|route| !self.routes.contains(route))
            else {
                continue;
            };
            match self.journal.add_route(&mut self.netlink, route.clone()) {
                Ok(()) => self.routes.push(route),
                Err(error) => problems.push(Problem {
                    text: format!("{}: {}", in_words(planned, site), error.source),
                    waits: error.unreachable() || planned.is_learned(site),
                }),
            }
        }
    }
}

fn is_table(step: &Step, table: &str) -> bool {
    matches!(step, Step::Table { name, .. } if name == table)
}

/// A route with what it is for.
fn in_words(route: &PlannedRoute, site: &Site) -> String {
    let from = route.from.map(|from| format!(" from {from}")).unwrap_or_default();
    let Some(via) = &route.via else { return format!("add route {}{from}, unreachable", route.to) };
    let is_own =
        |own: &StaticRoute| own.to == route.to && own.via == via.router && own.interface == via.interface;
    let uplink = site.uplinks.iter().find(|uplink| uplink.interface == via.interface);
    let owner = match uplink {
        Some(uplink) if !site.routes.iter().any(is_own) => format!("uplink {}: ", uplink.name),
        _ => String::new(),
    };
    let router = via.router.map(|router| format!(" via {router}")).unwrap_or_default();
    format!("{owner}add route {}{from}{router} dev {}", route.to, via.interface)
}

/// Addresses with a lifetime and those without are not of one kind for the kernel.
fn is_for_good(lifetimes: (Lifetime, Lifetime)) -> bool {
    lifetimes == (Lifetime::Infinite, Lifetime::Infinite)
}

/// None where its interface is not there.
fn kernel_route(route: &PlannedRoute, links: &[Link]) -> Option<Route> {
    let via = match &route.via {
        None => Via::Unreachable { metric: route.metric, source: route.from },
        Some(via) => Via::Link {
            index: links.iter().find(|link| link.name == via.interface && link.up).map(|link| link.index)?,
            gateway: via.router,
            mtu: None,
            metric: Some(route.metric),
            source: route.from,
        },
    };
    Some(Route { destination: route.to, via })
}

fn seconds(lifetime: Lifetime, now: Instant) -> u32 {
    lifetime.remaining(now).map_or(u32::MAX, |left| left.as_secs() as u32)
}

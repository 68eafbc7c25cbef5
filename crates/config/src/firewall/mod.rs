//! Tables `[[zone]]` and `[firewall]`: zones, rules, and packets that they are tested with.

mod findings;
mod hosts;
mod members;
mod reach;
pub(crate) mod table;
mod value;

use std::collections::BTreeMap;

use ipnet::Ipv6Net;
use router::firewall::address::Address;
use router::firewall::region::regions;
use router::firewall::service::Service;
use router::firewall::{Packet, Policy, Rule, Schedule, Settings, Verdict, Zone, ZoneRef, ZoneSet};
use router::forward::Forward;
use router::nat64::Nat64;
use toml::Spanned;

use crate::converter::Converter;
use crate::document::Document;
use crate::nat64::{add_embedded, join_zone};
use crate::report::Finding;
use crate::section::Given;
use crate::transition::TransitionTable;
use crate::value::{Problem, inner_prefix, interface, problem};
use hosts::Hosts;
pub(crate) use members::Tunnels;
use table::{FirewallTable, OneOrMany, RuleTable, ScheduleTable, TestTable, ZoneTable};
use value::Names;

/// The firewall that a file describes.
#[derive(Debug, Clone)]
pub struct Firewall {
    /// Its zones and rules.
    pub policy: Policy,
    /// Where each rule stands, by line from 1 on.
    pub lines: Vec<usize>,
    /// Packets, and what is to become of them.
    pub tests: Vec<Expectation>,
}

/// What is to become of a packet.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// The packet, in the words of the file.
    pub words: String,
    /// The packet.
    pub packet: Packet,
    /// What is to become of it.
    pub expect: Verdict,
    /// The comment of the rule that is to decide; `default` where none is.
    pub rule: Option<String>,
    /// Where it stands, by line from 1 on.
    pub line: usize,
}

/// The word for a decision that no rule makes.
pub const DEFAULT: &str = "default";

const ADDRESS_HELP: &str = "write addresses, prefixes, ranges (2001:db8::1-2001:db8::9), suffixes (*::10), names of [firewall.addresses], or of hosts with a fixed address ([[network.dhcp.host]])";
const SERVICE_HELP: &str = "write tcp/443, udp/8000-8010, icmpv6/echo-request, esp, proto/47, a known name like ssh, or names of [firewall.services]";

/// Where lines end, by byte: ten thousand rules are not to read the file from its beginning each.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Lines(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    /// The number of the line that the byte is in, from 1 on.
    fn number(&self, at: usize) -> usize {
        self.0.partition_point(|end| *end < at) + 1
    }
}

impl Converter<'_> {
    /// The firewall, with all that is strange about it reported; None where there is no zone, or something is wrong. Behind
    /// the rules of the file are those of the `forwards`.
    pub(crate) fn firewall(
        &mut self,
        document: &Document,
        text: &str,
        tunnels: Tunnels<'_>,
        forwards: Vec<Forward>,
        nat64: Option<&Nat64>,
    ) -> Option<Firewall> {
        let table = document.firewall.get()?;
        if !table.enabled.is_true() || document.zone.is_wrong() {
            return None;
        }
        if document.zone.list().is_empty() && document.uplink.list().is_empty() {
            if let Some(firewall) = document.firewall.given() {
                self.report(Finding::error(
                    firewall.span(),
                    "there is a firewall, and no zone",
                    "",
                    "add [[zone]] tables: name, trust and interfaces of each network",
                ));
            }
            self.no_members(document);
            return None;
        }
        let zones: Vec<_> = if document.zone.list().is_empty() {
            members::standard_zones().map(Some).into()
        } else {
            document.zone.list().iter().map(|zone| self.zone(zone.get_ref())).collect()
        };
        let settings = self.settings(document, table, tunnels.endpoints.clone());
        let mut zones: Vec<Zone> = zones.into_iter().collect::<Option<_>>()?;
        self.members(document, &tunnels, &mut zones)?;
        join_zone(document, &mut zones);
        // Without rules first: a zone that cannot be is told before rules that name it.
        let named = self.policy(document, zones, Vec::new(), Settings::default())?;
        let schedules = self.schedules(table);
        for (kind, sets) in [(Kind::Addresses, &table.addresses), (Kind::Services, &table.services)] {
            self.check_names(kind, sets);
        }
        let (addresses, services) = (table.addresses.get()?, table.services.get()?);
        let (hosts, none) = (Hosts::of(document), Hosts::default());
        let addresses = names_of_addresses(addresses, &hosts);
        let services = Names {
            named: services,
            hosts: &BTreeMap::new(),
            of_several: &none.of_several,
            literal: value::services,
            help: SERVICE_HELP,
        };
        for set in addresses.named.values() {
            if let Err(problem) = addresses.resolve(set.get_ref()) {
                self.refuse(set.span(), "addresses", problem);
            }
        }
        for host in hosts.addresses.keys().chain(hosts.of_several.keys()) {
            if let Some(set) = addresses.named.get(host) {
                let title = format!("[firewall.addresses] and a host of a network have the name {host:?}");
                let help = "rename one of them: rules that name it would be about the list";
                self.report(Finding::error(set.span(), title, "", help));
            }
        }
        for set in services.named.values() {
            if let Err(problem) = services.resolve(set.get_ref()) {
                self.refuse(set.span(), "services", problem);
            }
        }
        let means = Means { policy: &named, addresses, hosts: &hosts, services, schedules: schedules? };
        let rules: Vec<_> = table.rule.list().iter().map(|rule| self.rule(rule.get_ref(), &means)).collect();
        let rules = rules.into_iter().collect::<Option<Vec<Rule>>>()?;
        let refuse = settings.as_ref()?.refuse;
        let mut first = self.rules_of_fleet(document, refuse, named.zones().len())?;
        // Where the fleet's file is named, if that is where they come from.
        let of_fleet =
            [document.fleet.span(), document.reach.span()].into_iter().find(|span| !span.is_empty());
        let of_fleet = std::iter::repeat_n(of_fleet.unwrap_or_default(), first.len());
        let places = of_fleet.chain(table.rule.list().iter().map(Spanned::span));
        let places: Vec<_> = places.chain(document.forward.list().iter().map(Spanned::span)).collect();
        first.extend(rules);
        if let Some(nat64) = nat64 {
            add_embedded(nat64, &mut first);
        }
        first.extend(forwards.iter().map(|forward| {
            let everywhere = (0..named.zones().len()).map(ZoneRef::Zone).collect();
            let to = named.zone_of(&forward.towards, forward.to.into());
            Rule::of_forward(
                forward,
                ZoneSet::Of(everywhere),
                to.map_or(ZoneSet::Any, |zone| ZoneSet::Of(vec![zone])),
            )
        }));
        let settings = Settings { forwards, translated: nat64.map(|nat64| nat64.prefix.net()), ..settings? };
        let policy = self.policy(document, named.zones().to_vec(), first, settings)?;
        if !self.forwards_fit_rules(document, &policy, &places) {
            return None;
        }
        let tests = self.tests(table, text, &policy)?;
        self.findings(document, &policy, &places);
        let lines = Lines::of(text);
        let lines = places.iter().map(|place| lines.number(place.start)).collect();
        Some(Firewall { policy, lines, tests })
    }

    fn zone(&mut self, zone: &ZoneTable) -> Option<Zone> {
        let name = self.value(&zone.name, |name| {
            if router::firewall::policy::is_zone_name(name) {
                return Ok(name.to_owned());
            }
            problem(
                "not a name for a zone",
                "1 to 32 letters, digits, - and _, beginning with a letter; \"gateway\" is this machine",
            )
        });
        let trust = self.value(&zone.trust, value::trust);
        let interfaces = self.each(&zone.interfaces, interface);
        let networks = self.each(&zone.networks, inner_prefix);
        Some(Zone { name: name?, trust: trust?, interfaces: interfaces?, networks: networks? })
    }

    fn settings(
        &mut self,
        document: &Document,
        table: &FirewallTable,
        endpoints: Vec<Ipv6Net>,
    ) -> Option<Settings> {
        let mut tunnels = document.uplink.list().iter().filter_map(|uplink| uplink.get_ref().tunnel.get());
        let over_ipv6 = tunnels.clone().any(TransitionTable::is_ipv4_in_ipv6);
        let over_ipv4 = tunnels.any(|tunnel| !tunnel.is_ipv4_in_ipv6() && !tunnel.is_clat());
        let refuse = self.value(&table.refuse, value::refuse);
        let special = self.each(&table.accept_special, inner_prefix);
        Some(Settings {
            refuse: refuse?,
            log_refused: table.log.is_true(),
            accept_special: special?,
            tunnel_endpoints: endpoints,
            ipv6_in_ipv4: over_ipv4,
            ipv4_in_ipv6: over_ipv6,
            forwards: Vec::new(),
            port_mapping: document
                .network
                .list()
                .iter()
                .any(|network| network.get_ref().port_mapping.given().is_some()),
            translated: None,
        })
    }

    /// Zones and rules together.
    fn policy(
        &mut self,
        document: &Document,
        zones: Vec<Zone>,
        rules: Vec<Rule>,
        settings: Settings,
    ) -> Option<Policy> {
        match Policy::new(zones, rules, settings) {
            Ok(policy) => Some(policy),
            Err(error) => {
                if !members::is_told_of_links(&error, document) {
                    self.report(findings::of_zones(&error, document));
                }
                None
            }
        }
    }

    fn schedules(&mut self, table: &FirewallTable) -> Option<BTreeMap<String, Schedule>> {
        let mut schedules = BTreeMap::new();
        let mut good = true;
        for (name, schedule) in table.schedules.get()? {
            match self.schedule(name, schedule) {
                Some(schedule) => drop(schedules.insert(name.clone(), schedule)),
                None => good = false,
            }
        }
        good.then_some(schedules)
    }

    fn schedule(&mut self, name: &str, table: &Spanned<ScheduleTable>) -> Option<Schedule> {
        let schedule = table.get_ref();
        let days = self.optional(&schedule.days, value::days);
        let from = self.value(&schedule.from, value::time);
        let to = self.value(&schedule.to, value::time);
        let (from, to) = (from?, to?);
        if from == to || from == 1440 {
            self.report(Finding::error(
                table.span(),
                format!("the schedule {name:?} never applies"),
                "",
                "write two different times; from = \"22:00\", to = \"06:00\" goes past midnight",
            ));
            return None;
        }
        Some(Schedule { name: name.to_owned(), days: days?.unwrap_or_default(), from, to })
    }

    /// A name must not hide what the same word means without it.
    fn check_names(&mut self, kind: Kind, sets: &Given<BTreeMap<String, Spanned<OneOrMany>>>) {
        for (name, words) in sets.get().into_iter().flatten() {
            let (hides, help) = match kind {
                Kind::Services => {
                    (value::is_built_in(name), "the word already has a meaning; choose another")
                }
                Kind::Addresses => (
                    !name.starts_with(|c: char| c.is_ascii_alphabetic()) || name.contains(':'),
                    "a name begins with a letter and has no colon, so that it differs from an address",
                ),
            };
            if hides {
                let title = format!("[firewall.{}] cannot have the name {name:?}", sets.key.name);
                self.report(Finding::error(words.span(), title, "", help));
            }
        }
    }

    fn rule(&mut self, rule: &RuleTable, means: &Means<'_>) -> Option<Rule> {
        let from = self.optional(&rule.from, |words| means.zone_set(words));
        let to = self.optional(&rule.to, |words| means.zone_set(words));
        let source = self.optional(&rule.source, |words| means.addresses_in(words, &rule.from));
        let destination = self.optional(&rule.destination, |words| means.addresses_in(words, &rule.to));
        let service = self.optional(&rule.service, |words| means.services.resolve(words));
        let rate = self.optional(&rule.rate, value::rate);
        let schedule = self.optional(&rule.schedule, |name| means.schedule(name));
        let action = self.value(&rule.action, value::action);
        Some(Rule {
            from: from?.unwrap_or(ZoneSet::Any),
            to: to?.unwrap_or(ZoneSet::Any),
            source: source?,
            destination: destination?,
            service: service?,
            rate: rate?,
            schedule: schedule?,
            forwarded: false,
            log: rule.log.is_true(),
            comment: rule.comment.text().unwrap_or_default().to_owned(),
            action: action?,
        })
    }

    /// The table's tests.
    pub(crate) fn tests(
        &mut self,
        table: &FirewallTable,
        text: &str,
        policy: &Policy,
    ) -> Option<Vec<Expectation>> {
        let lines = Lines::of(text);
        let tests: Vec<_> = table.test.list().iter().map(|test| self.test(test, &lines, policy)).collect();
        tests.into_iter().collect()
    }

    fn test(&mut self, table: &Spanned<TestTable>, lines: &Lines, policy: &Policy) -> Option<Expectation> {
        let test = table.get_ref();
        let packet = self.value(&test.packet, |words| {
            Packet::parse(words, policy)
                .or_else(|error| problem(error.to_string(), "docs/firewall.md, \"Packets in words\""))
        });
        let expect = self.value(&test.expect, value::action);
        let rule = self.optional(&test.rule, |comment| {
            if comment == DEFAULT || policy.rules().iter().any(|rule| rule.comment == *comment) {
                return Ok(comment.to_owned());
            }
            problem("no rule has this comment", "write the comment of a rule, or \"default\"")
        });
        Some(Expectation {
            words: test.packet.text()?.to_owned(),
            packet: packet?,
            expect: expect?,
            rule: rule?,
            line: lines.number(table.span().start),
        })
    }
}

/// What words are that mean addresses, or names of `[firewall.addresses]` or of hosts.
pub(crate) fn resolve_addresses(document: &Document, words: &OneOrMany) -> Result<Vec<Address>, Problem> {
    let none = BTreeMap::new();
    let named = document.firewall.get().and_then(|table| table.addresses.get()).unwrap_or(&none);
    names_of_addresses(named, &Hosts::of(document)).resolve(words)
}

fn names_of_addresses<'t>(
    named: &'t BTreeMap<String, Spanned<OneOrMany>>,
    hosts: &'t Hosts,
) -> Names<'t, Address> {
    Names {
        named,
        hosts: &hosts.addresses,
        of_several: &hosts.of_several,
        literal: value::addresses,
        help: ADDRESS_HELP,
    }
}

/// Whether both rules can be about one packet, zones aside.
pub(crate) fn regions_meet(one: &Rule, other: &Rule) -> bool {
    let others = regions(other);
    regions(one).iter().any(|region| others.iter().any(|other| region.overlaps(other)))
}

/// Which names a list of [firewall] gives.
#[derive(Clone, Copy)]
enum Kind {
    Addresses,
    Services,
}

/// What names in rules mean.
struct Means<'t> {
    policy: &'t Policy,
    addresses: Names<'t, Address>,
    hosts: &'t Hosts,
    services: Names<'t, Service>,
    schedules: BTreeMap<String, Schedule>,
}

impl Means<'_> {
    /// What the words of a rule mean that has these zones on that side. Where they name a host by the last bits of its address,
    /// zones have to be given: a host elsewhere, or anybody outside, may choose the same.
    fn addresses_in(&self, words: &OneOrMany, zones: &Given<OneOrMany>) -> Result<Vec<Address>, Problem> {
        let words = &self.with_networks(words, zones);
        let addresses = self.addresses.resolve(words)?;
        match self.addresses.named_in(words, &self.hosts.by_suffix).filter(|_| zones.is_absent()) {
            None => Ok(addresses),
            Some(host) => problem(
                format!(
                    "`{host}` is known by the last 64 bits of its IPv6 address, which hosts elsewhere can have, too"
                ),
                format!("add `{}`, the zone of its network", zones.key.name),
            ),
        }
    }

    /// The words, where hosts of several networks have a name with the network whose zone is among these, if it is one.
    fn with_networks(&self, words: &OneOrMany, zones: &Given<OneOrMany>) -> OneOrMany {
        let zones: Vec<&str> = zones.given().into_iter().flat_map(|zones| zones.get_ref().iter()).collect();
        let has = |zone: &Zone, interface: &String| {
            zones.contains(&zone.name.as_str()) && zone.interfaces.contains(interface)
        };
        let is_meant = |interface: &String| self.policy.zones().iter().any(|zone| has(zone, interface));
        let word = |word: &str| {
            let networks = self.hosts.of_several.get(word).into_iter().flatten();
            let meant: Vec<_> = networks.filter(|(_, interface)| is_meant(interface)).collect();
            match meant[..] {
                [(network, _)] => format!("{word}.{network}"),
                _ => word.to_owned(),
            }
        };
        OneOrMany::Many(words.iter().map(word).collect())
    }

    fn zone_set(&self, words: &OneOrMany) -> Result<ZoneSet, Problem> {
        let mut zones: Vec<ZoneRef> = Vec::new();
        for word in words.iter() {
            let Some(zone) = self.policy.zone_named(word) else {
                let names: Vec<&str> = self.policy.zone_refs().map(|zone| self.policy.name(zone)).collect();
                return problem(format!("{word:?} is not a zone"), format!("there are {}", names.join(", ")));
            };
            zones.push(zone);
        }
        if zones.is_empty() {
            return problem("an empty list", "leave the key out to match any zone and the gateway");
        }
        Ok(ZoneSet::Of(zones))
    }

    fn schedule(&self, name: &str) -> Result<Schedule, Problem> {
        self.schedules.get(name).cloned().ok_or_else(|| Problem {
            label: "no such schedule".to_owned(),
            help: format!(
                "add [firewall.schedules] {name} = {{ days = \"mon-fri\", from = \"08:00\", to = \"18:00\" }}"
            ),
        })
    }
}

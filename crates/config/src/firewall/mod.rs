//! Tables `[[zone]]` and `[firewall]`: zones, rules, and packets that they are tested with.

mod findings;
mod members;
mod table;
mod value;

use std::collections::BTreeMap;
use std::ops::Range;

use ipnet::{IpNet, Ipv6Net};
use router::firewall::address::Address;
use router::firewall::service::Service;
use router::firewall::{Packet, Place, Places, Policy, Rule, Schedule, Settings, Verdict, Zone};
use toml::Spanned;

use super::convert::Converter;
use super::document::{Document, Text};
use super::report::Finding;
use super::value::Problem;
pub(super) use members::Tunnels;
pub(super) use table::{Firewall as FirewallTable, Zone as ZoneTable};
use table::{Rule as RuleTable, Schedule as ScheduleTable, Test as TestTable, Words};
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

const ADDRESS_HELP: &str = "write addresses, prefixes, ranges (2001:db8::1-2001:db8::9), last bits (*::10), or names of [firewall.addresses]";
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
    /// The firewall, with all that is strange about it reported; None where there is no zone, or something is wrong.
    pub(super) fn firewall(
        &mut self,
        document: &Document,
        text: &str,
        tunnels: Tunnels<'_>,
    ) -> Option<Firewall> {
        let empty = FirewallTable::default();
        let table = document.firewall.as_ref().map_or(&empty, Spanned::get_ref);
        if table.enabled == Some(false) {
            return None;
        }
        if document.zone.is_empty() && document.uplink.is_empty() {
            if let Some(firewall) = &document.firewall {
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
        let zones: Vec<_> = if document.zone.is_empty() {
            members::standard_zones().map(Some).into()
        } else {
            document.zone.iter().map(|zone| self.zone(zone)).collect()
        };
        let settings = self.settings(document, table, tunnels.endpoints.clone());
        let mut zones: Vec<Zone> = zones.into_iter().collect::<Option<_>>()?;
        self.members(document, &tunnels, &mut zones)?;
        // Without rules first: a zone that cannot be is told before rules that name it.
        let named = self.policy(document, zones, Vec::new(), Settings::default())?;
        let schedules = self.schedules(table);
        for (name, kind, set) in [("addresses", false, &table.addresses), ("services", true, &table.services)]
        {
            self.check_names(name, kind, set);
        }
        let addresses = Names { named: &table.addresses, literal: value::addresses, help: ADDRESS_HELP };
        let services = Names { named: &table.services, literal: value::services, help: SERVICE_HELP };
        for set in table.addresses.values() {
            self.value("addresses", Some(set), |words| addresses.resolve(words));
        }
        for set in table.services.values() {
            self.value("services", Some(set), |words| services.resolve(words));
        }
        let means = Means { policy: &named, addresses, services, schedules: schedules? };
        let rules: Vec<_> = table.rule.iter().map(|rule| self.rule(rule, &means)).collect();
        let rules = rules.into_iter().collect::<Option<Vec<Rule>>>()?;
        let lines = Lines::of(text);
        let lines = table.rule.iter().map(|rule| lines.number(rule.span().start)).collect();
        let policy = self.policy(document, named.zones().to_vec(), rules, settings?)?;
        let tests = self.tests(table, text, &policy)?;
        self.findings(document, &policy);
        Some(Firewall { policy, lines, tests })
    }

    fn zone(&mut self, table: &Spanned<ZoneTable>) -> Option<Zone> {
        let (zone, header) = (table.get_ref(), table.span());
        let owner = "[[zone]]";
        let name = self.required(&zone.name, &header, owner, "name", "what rules call it, like \"lan\"");
        let name = self.value("name", name, |name| {
            if router::firewall::policy::is_zone_name(name) {
                return Ok(name.clone());
            }
            Err(Problem {
                label: "not a name for a zone".to_owned(),
                help:
                    "1 to 32 letters, digits, - and _, beginning with a letter; \"gateway\" is this machine"
                        .to_owned(),
            })
        });
        let trust = r#""inside", "guest" or "outside""#;
        let trust = self.required(&zone.trust, &header, owner, "trust", trust);
        let trust = self.value("trust", trust, |text| value::trust(text));
        let interfaces: Vec<_> = zone
            .interfaces
            .iter()
            .map(|name| self.value("interfaces", Some(name), |name| super::value::interface(name)))
            .collect();
        let networks = self.networks("networks", &zone.networks);
        Some(Zone {
            name: name?,
            trust: trust?,
            interfaces: interfaces.into_iter().collect::<Option<_>>()?,
            networks: networks?,
        })
    }

    fn networks(&mut self, key: &str, texts: &[Spanned<String>]) -> Option<Vec<IpNet>> {
        let nets: Vec<_> = texts
            .iter()
            .map(|net| self.value(key, Some(net), |net| super::value::inner_prefix(net)))
            .collect();
        nets.into_iter().collect()
    }

    fn settings(
        &mut self,
        document: &Document,
        table: &FirewallTable,
        endpoints: Vec<Ipv6Net>,
    ) -> Option<Settings> {
        let mut tunnels = document.uplink.iter().filter_map(|uplink| uplink.get_ref().tunnel.as_ref());
        let over_ipv6 = tunnels.clone().any(|tunnel| tunnel.get_ref().is_over_ipv6());
        let over_ipv4 = tunnels.any(|tunnel| !tunnel.get_ref().is_over_ipv6());
        let refuse = self.optional("refuse", table.refuse.as_ref(), |text| value::refuse(text));
        let special = self.networks("accept_special", &table.accept_special);
        Some(Settings {
            refuse: refuse?.unwrap_or(Settings::default().refuse),
            log_refused: table.log,
            accept_special: special?,
            tunnel_endpoints: endpoints,
            ipv6_in_ipv4: over_ipv4,
            ipv4_in_ipv6: over_ipv6,
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
        for (name, schedule) in &table.schedules {
            match self.schedule(name, schedule) {
                Some(schedule) => drop(schedules.insert(name.clone(), schedule)),
                None => good = false,
            }
        }
        good.then_some(schedules)
    }

    fn schedule(&mut self, name: &str, table: &Spanned<ScheduleTable>) -> Option<Schedule> {
        let schedule = table.get_ref();
        let days = self.optional("days", schedule.days.as_ref(), value::days);
        let from = self.optional("from", schedule.from.as_ref(), |text| value::time(text));
        let to = self.optional("to", schedule.to.as_ref(), |text| value::time(text));
        let (from, to) = (from?.unwrap_or(0), to?.unwrap_or(1440));
        if from == to || from == 1440 {
            self.report(Finding::error(
                table.span(),
                format!("the schedule {name:?} never holds"),
                "",
                "it ends at another time than it begins; over midnight is from = \"22:00\", to = \"06:00\"",
            ));
            return None;
        }
        Some(Schedule { name: name.to_owned(), days: days?.unwrap_or_default(), from, to })
    }

    /// A name must not hide what the same word means without it.
    fn check_names(&mut self, table: &str, services: bool, sets: &BTreeMap<String, Spanned<Words>>) {
        for (name, words) in sets {
            let hides = if services {
                value::is_built_in(name)
            } else {
                !name.starts_with(|c: char| c.is_ascii_alphabetic()) || name.contains(':')
            };
            if hides {
                self.report(Finding::error(
                    words.span(),
                    format!("[firewall.{table}] cannot have the name {name:?}"),
                    "",
                    if services {
                        "the word has a meaning already; take another"
                    } else {
                        "a name begins with a letter and has no colon, so that it differs from an address"
                    },
                ));
            }
        }
    }

    fn rule(&mut self, table: &Spanned<RuleTable>, means: &Means<'_>) -> Option<Rule> {
        let (rule, header) = (table.get_ref(), table.span());
        let places = |words: &Words| means.places(words);
        let from = self.optional("from", rule.from.as_ref(), places);
        let to = self.optional("to", rule.to.as_ref(), places);
        let source = self.optional("source", rule.source.as_ref(), |words| means.addresses.resolve(words));
        let destination =
            self.optional("destination", rule.destination.as_ref(), |words| means.addresses.resolve(words));
        let service = self.optional("service", rule.service.as_ref(), |words| means.services.resolve(words));
        let rate = self.optional("rate", rule.rate.as_ref(), |text| value::rate(text));
        let schedule = self.optional("schedule", rule.schedule.as_ref(), |name| means.schedule(name));
        let action = r#""accept", "drop" or "reject""#;
        let action = self.required(&rule.action, &header, "[[firewall.rule]]", "action", action);
        let action = self.value("action", action, |text| value::action(text));
        Some(Rule {
            from: from?.unwrap_or(Places::Any),
            to: to?.unwrap_or(Places::Any),
            source: source?,
            destination: destination?,
            service: service?,
            rate: rate?,
            schedule: schedule?,
            log: rule.log,
            comment: text_of(&rule.comment),
            action: action?,
        })
    }

    /// The table's tests.
    pub(super) fn tests(
        &mut self,
        table: &FirewallTable,
        text: &str,
        policy: &Policy,
    ) -> Option<Vec<Expectation>> {
        let lines = Lines::of(text);
        let tests: Vec<_> = table.test.iter().map(|test| self.test(test, &lines, policy)).collect();
        tests.into_iter().collect()
    }

    fn test(&mut self, table: &Spanned<TestTable>, lines: &Lines, policy: &Policy) -> Option<Expectation> {
        let (test, header) = (table.get_ref(), table.span());
        let owner = "[[firewall.test]]";
        let example = "\"tcp from 2a02:8100:1::5 to 2a00:1450::1 port 22 in lan\"";
        let words = self.required(&test.packet, &header, owner, "packet", example);
        let packet = self.value("packet", words, |words| {
            Packet::parse(words, policy).map_err(|error| Problem {
                label: error.to_string(),
                help: "docs/firewall.md, \"Packets in words\"".to_owned(),
            })
        });
        let expect = self.required(&test.expect, &header, owner, "expect", r#""accept", "drop" or "reject""#);
        let expect = self.value("expect", expect, |text| value::action(text));
        let rule = self.optional("rule", test.rule.as_ref(), |comment| {
            if comment == DEFAULT || policy.rules().iter().any(|rule| rule.comment == *comment) {
                return Ok(comment.clone());
            }
            Err(Problem {
                label: "no rule has this comment".to_owned(),
                help: "write the comment of a rule, or \"default\"".to_owned(),
            })
        });
        Some(Expectation {
            words: text_of(&test.packet),
            packet: packet?,
            expect: expect?,
            rule: rule?,
            line: lines.number(header.start),
        })
    }
}

fn text_of(text: &Text) -> String {
    text.as_ref().map(|text| text.get_ref().clone()).unwrap_or_default()
}

/// What names in rules mean.
struct Means<'t> {
    policy: &'t Policy,
    addresses: Names<'t, Address>,
    services: Names<'t, Service>,
    schedules: BTreeMap<String, Schedule>,
}

impl Means<'_> {
    fn places(&self, words: &Words) -> Result<Places, Problem> {
        let mut places: Vec<Place> = Vec::new();
        for word in words.iter() {
            let Some(place) = self.policy.place(word) else {
                let names: Vec<&str> = self.policy.places().map(|place| self.policy.name(place)).collect();
                return Err(Problem {
                    label: format!("{word:?} is no zone"),
                    help: format!("there are {}", names.join(", ")),
                });
            };
            places.push(place);
        }
        if places.is_empty() {
            return Err(Problem {
                label: "an empty list".to_owned(),
                help: "leave it out where any zone and the gateway will do".to_owned(),
            });
        }
        Ok(Places::Of(places))
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

/// Places of tables, for reports.
fn span<T>(tables: &[Spanned<T>], index: usize) -> Range<usize> {
    tables.get(index).map_or(0..0, Spanned::span)
}

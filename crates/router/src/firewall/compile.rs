//! The policy as one transaction of nft.
//!
//! ```text
//! headers (prerouting, behind conntrack's reassembly) ─ routing header 0, incomplete first fragments
//! input ── established ── by interface ──▶ lan.gateway
//! forward ─ established ─ by interface ──▶ from-lan ─ by interface ──▶ lan.wan
//! output ─ established ── by interface ──▶ gateway.wan          (only where a rule is about what the gateway sends)
//!     lan.wan:   steps before the rules → rules-1 → steps after them → refused
//!     rules-1:   lookups in the verdict maps of each set of `lookup`: map-1-1, map-1-2 …; where that takes many of them,
//!                the packet's address is looked up in a set of first bits before, near-1-1, and the chain near-1-1 has them
//!     rule-7:    rate, schedule, log of rule 7, where it has them; only what is forwarded, where it is for that
//! ```
//! Pairs of places with the same rules share their chain. Each element of a map counts, with the number of its rule as
//! its comment ("r7"); rules with a chain of their own count there, under the same comment. The chain of two places counts
//! what comes to it ("pair lan wan"), so of a connection the first packet.
//!
//! The text needs nft 1.0.6 and Linux 6.1 (Debian 12).

mod field;
mod rule;
mod table;

use crate::nat64::DEVICE;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use ipnet::IpNet;

use super::address::Address;
use super::defaults::{Stages, Step, Test, stages};
use super::evaluate::{INCOMPLETE, ROUTING_HEADER_0};
use super::lookup::{Entry, Lookups, Relation};
use super::policy::{LINK_SOURCES, Policy, Rule, Verdict, ZoneRef, ZoneSet};
use super::region::{Detail, Region, regions};
use super::schedule::TimeZone;
use table::{NEAR, tables};

/// The table's name; its family is `inet`.
pub const TABLE: &str = "sidestep-firewall";

/// What begins the comment under which a pair of places counts.
pub const PAIR: &str = "pair ";

/// What the policy comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The table, for `nft -f`. It is to be put into an empty one; [`replace`] says how to make an old one that.
    pub script: String,
    /// Sets that a new connection's first packet is looked up in, at most. Packets of known ones are in none.
    pub lookups: usize,
    /// Elements of all sets.
    pub elements: usize,
}

/// Names of what is in the table already.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Existing {
    /// Chains.
    pub chains: Vec<String>,
    /// Verdict maps.
    pub maps: Vec<String>,
    /// Sets.
    pub sets: Vec<String>,
}

/// Chains at netfilter's hooks, which stay when the rest is replaced.
pub const BASE_CHAINS: [&str; 4] = ["headers", "input", "forward", "output"];

/// The script that makes the table empty but for its base chains, in front of one that fills it: both are one
/// transaction.
#[must_use]
pub fn replace(existing: &Existing, script: &str) -> String {
    let mut text = format!("add table inet {TABLE}\nflush table inet {TABLE}\n");
    for map in &existing.maps {
        let _ = writeln!(text, "delete map inet {TABLE} {map}");
    }
    for set in existing.sets.iter().filter(|set| set.starts_with(NEAR)) {
        let _ = writeln!(text, "delete set inet {TABLE} {set}");
    }
    for chain in existing.chains.iter().filter(|chain| !BASE_CHAINS.contains(&chain.as_str())) {
        let _ = writeln!(text, "delete chain inet {TABLE} {chain}");
    }
    text + script
}

/// Compiles the policy, for a machine in this time zone.
#[must_use]
pub fn compile(policy: &Policy, zone: TimeZone) -> Compiled {
    let mut writer = Writer {
        policy,
        regions: policy.rules().iter().map(wide_first).collect(),
        chains: HashMap::new(),
        maps: String::new(),
        rules: String::new(),
        lookups: 0,
        elements: 0,
    };
    let mut pairs = String::new();
    for from in policy.zone_refs() {
        for to in policy.zone_refs() {
            if (from, to) != (ZoneRef::Gateway, ZoneRef::Gateway) {
                let text = writer.pair(from, to);
                pairs += &text;
            }
        }
    }
    let own_chains = rule::chains(policy, zone);
    let Writer { maps, rules, lookups, elements, .. } = writer;
    let (sets, empty) = if policy.settings().port_mapping { MAPPED } else { ("", "") };
    let script = format!(
        "table inet {TABLE} {{\n{sets}{maps}{FIXED}{refused}{own_chains}{rules}{pairs}{dispatch}}}\n{empty}",
        refused = refused(policy),
        dispatch = dispatch(policy),
    );
    Compiled { script, lookups, elements }
}

/// What hosts have asked for, and what makes the sets empty: whoever fills them does so when the table is there. Of IPv4,
/// who may use it is decided where it is translated.
const MAPPED: (&str, &str) = (
    "\tset mapped4 {
\t\ttype ipv4_addr . inet_proto . inet_service
\t\tflags timeout
\t}
\tset mapped6 {
\t\ttype ipv6_addr . inet_service . ipv6_addr . inet_proto . inet_service
\t\tflags interval, timeout
\t}
",
    "flush set inet sidestep-firewall mapped4\nflush set inet sidestep-firewall mapped6\n",
);

/// What answers a packet that is rejected.
const FIXED: &str = "\tchain answer {
\t\tmeta l4proto tcp reject with tcp reset
\t\treject with icmpx admin-prohibited
\t}
";

/// The regions of a rule, those in others behind them: they are left out then.
fn wide_first(rule: &Rule) -> Vec<Region> {
    let mut regions = regions(rule);
    let size = |address: Option<Address>| match address {
        None => u128::MAX,
        Some(Address::Range(_, first, last)) => last - first,
        Some(Address::Suffix { mask, .. }) => !mask,
    };
    regions.sort_by_cached_key(|region| {
        let ports = match region.detail {
            Detail::Ports(first, last) => last - first,
            _ => 0,
        };
        Reverse((size(region.source), size(region.destination), ports))
    });
    regions
}

fn refused(policy: &Policy) -> String {
    let log = |what| {
        if policy.settings().log_refused {
            format!("\t\tlimit rate 10/second burst 20 packets log prefix \"sidestep {what}: \" level info\n")
        } else {
            String::new()
        }
    };
    format!(
        "\tchain refuse-drop {{\n{}\t\tcounter drop comment \"refused\"\n\t}}\n\
         \tchain refuse-reject {{\n{}\t\tcounter goto answer comment \"refused\"\n\t}}\n",
        log("dropped"),
        log("rejected"),
    )
}

struct Writer<'p> {
    policy: &'p Policy,
    /// Of each rule.
    regions: Vec<Vec<Region>>,
    /// Which rules have a chain together, and its number.
    chains: HashMap<Vec<usize>, usize>,
    maps: String,
    rules: String,
    lookups: usize,
    elements: usize,
}

struct Rules<'p>(&'p [Rule]);

impl Relation for Rules<'_> {
    fn is_final(&self, rule: usize) -> bool {
        self.0[rule].is_final()
    }

    fn commute(&self, rule: usize, other: usize) -> bool {
        let plain = |rule: &Rule| rule.is_final() && !rule.log;
        let (rule, other) = (&self.0[rule], &self.0[other]);
        plain(rule) && plain(other) && rule.action == other.action
    }
}

impl Writer<'_> {
    /// The chain for what goes from one place to the other.
    fn pair(&mut self, from: ZoneRef, to: ZoneRef) -> String {
        let policy = self.policy;
        let Stages { before, after, rest } = stages(policy, from, to);
        let mut text = format!(
            "\tchain {} {{\n\t\tcounter comment \"{PAIR}{} {}\"\n",
            pair_name(policy, from, to),
            policy.name(from),
            policy.name(to)
        );
        text.extend(before.iter().map(step));
        let concerned = |rule: &Rule| rule.from.contains(from) && rule.to.contains(to);
        let listed: Vec<usize> = policy
            .rules()
            .iter()
            .enumerate()
            .filter(|(index, rule)| concerned(rule) && !self.regions[*index].is_empty())
            .map(|(index, _)| index)
            .collect();
        if !listed.is_empty() {
            let chain = self.chain(listed);
            let _ = writeln!(text, "\t\tjump rules-{chain}");
        }
        text.extend(after.iter().map(step));
        text += match rest {
            Some(Verdict::Accept) => "\t\taccept\n",
            Some(Verdict::Reject) => "\t\tgoto refuse-reject\n",
            _ => "\t\tgoto refuse-drop\n",
        };
        text + "\t}\n"
    }

    /// The number of the chain for these rules, which is written if there is none.
    fn chain(&mut self, listed: Vec<usize>) -> usize {
        if let Some(number) = self.chains.get(&listed) {
            return *number;
        }
        let number = self.chains.len() + 1;
        let mut lookups = Lookups::default();
        for rule in &listed {
            for region in &self.regions[*rule] {
                lookups.push(Entry { region: *region, rule: *rule }, &Rules(self.policy.rules()));
            }
        }
        let _ = writeln!(self.rules, "\tchain rules-{number} {{");
        self.elements += lookups.sets().iter().map(|set| set.entries().len()).sum::<usize>();
        let tables = tables(self.policy, lookups.sets(), number);
        self.maps += &tables.maps;
        self.rules += &tables.rules;
        self.rules += "\t}\n";
        self.rules += &tables.chains;
        self.lookups = self.lookups.max(tables.lookups);
        self.chains.insert(listed, number);
        number
    }
}

fn pair_name(policy: &Policy, from: ZoneRef, to: ZoneRef) -> String {
    format!("{}.{}", policy.name(from), policy.name(to))
}

/// One rule of nft.
fn step(step: &Step) -> String {
    let tests: String = step.tests.iter().map(|test| test_text(test) + " ").collect();
    format!("\t\t{tests}counter {} comment \"{}\"\n", step.verdict, step.reason)
}

fn test_text(test: &Test) -> String {
    use super::address::Family;
    // One value is compared, which is cheaper than to look it up.
    let list = |mut items: Vec<String>| {
        if items.len() == 1 { items.remove(0) } else { format!("{{ {} }}", items.join(", ")) }
    };
    let nets = |field: &str, nets: &[IpNet], except: &[IpNet]| {
        let texts = |nets: &[IpNet]| list(nets.iter().map(ToString::to_string).collect());
        let version = if nets.first().is_some_and(|net| net.addr().is_ipv4()) { "ip" } else { "ip6" };
        let mut text = format!("{version} {field} {}", texts(nets));
        if !except.is_empty() {
            let _ = write!(text, " {version} {field} != {}", texts(except));
        }
        text
    };
    match test {
        Test::Family(Family::V4) => "meta nfproto ipv4".to_owned(),
        Test::Family(Family::V6) => "meta nfproto ipv6".to_owned(),
        Test::Protocol(protocols) => {
            format!("meta l4proto {}", list(protocols.iter().map(ToString::to_string).collect()))
        }
        Test::NotProtocol(protocol) => format!("meta l4proto != {protocol}"),
        Test::Port(ports) => format!("th dport {}", list(ports.iter().map(ToString::to_string).collect())),
        Test::FromPort(port) => format!("th sport {port}"),
        Test::Icmpv6(types) => {
            let range = |(first, last): &(u8, u8)| {
                if first == last { first.to_string() } else { format!("{first}-{last}") }
            };
            format!("meta nfproto ipv6 icmpv6 type {}", list(types.iter().map(range).collect()))
        }
        Test::Icmp(kind) => format!("meta nfproto ipv4 icmp type {kind}"),
        Test::HopLimit255 => "ip6 hoplimit 255".to_owned(),
        Test::Source(those, except) => nets("saddr", those, except),
        Test::Destination(those, except) => nets("daddr", those, except),
        Test::NarrowGroup => {
            let scopes = (0..=8).map(|scope| format!("ff0{scope}::")).collect();
            format!("ip6 daddr & ff0f:: {}", list(scopes))
        }
        Test::Unroutable => "fib saddr . iif oif missing".to_owned(),
        Test::RoutedTo(interfaces) => {
            let quoted = interfaces.iter().map(|name| format!("\"{name}\"")).collect();
            format!("fib saddr oifname {}", list(quoted))
        }
        Test::Invalid => "ct state invalid".to_owned(),
        Test::Mapped(Family::V4) => "ct status dnat ip daddr . meta l4proto . th dport @mapped4".to_owned(),
        Test::Mapped(Family::V6) => {
            "ip6 saddr . th sport . ip6 daddr . meta l4proto . th dport @mapped6".to_owned()
        }
    }
}

/// The base chains, and those that find a packet's zones.
///
/// Conntrack has put fragments together before (priority -400), and leaves alone what it cannot: first fragments without
/// their upper-layer header. A fragment header that is still there tells them.
fn dispatch(policy: &Policy) -> String {
    let mut text = String::new();
    for zone in policy.zone_refs().filter(|place| *place != ZoneRef::Gateway) {
        let _ = writeln!(text, "\tchain from-{} {{", policy.name(zone));
        text += &by_zone(policy, "oifname", "daddr", |to| pair_name(policy, zone, to));
        text += "\t}\n";
    }
    let known = "ct state vmap { established : accept, related : accept }";
    let (input, forward, output) = (
        by_zone(policy, "iifname", "saddr", |from| pair_name(policy, from, ZoneRef::Gateway)),
        by_zone(policy, "iifname", "saddr", |from| format!("from-{}", policy.name(from))),
        by_zone(policy, "oifname", "daddr", |to| pair_name(policy, ZoneRef::Gateway, to)),
    );
    // What the gateway sends needs no look where no rule is about it.
    let of_gateway = |rule: &Rule| {
        rule.from.contains(ZoneRef::Gateway)
            && !matches!(rule.to, ZoneSet::Of(ref to) if to[..] == [ZoneRef::Gateway])
    };
    let output = if policy.rules().iter().any(of_gateway) {
        format!("\t\toifname \"lo\" accept\n\t\t{known}\n{output}")
    } else {
        String::new()
    };
    // Its own table sees to it that nothing else comes out of it, and where to.
    let translated = match policy.settings().translated {
        Some(_) => format!(
            "\t\tiifname \"{DEVICE}\" oifname \"{DEVICE}\" accept\n\t\tiifname \"{DEVICE}\" meta nfproto ipv4 accept\n"
        ),
        None => String::new(),
    };
    let _ = write!(
        text,
        "\tchain suspicious {{\n\
         \t\trt type 0 counter drop comment \"{ROUTING_HEADER_0}\"\n\
         \t\texthdr frag exists counter drop comment \"{INCOMPLETE}\"\n\
         \t}}\n\
         \tchain headers {{\n\
         \t\ttype filter hook prerouting priority -350; policy accept;\n\
         \t\tip6 nexthdr {{ 0, 43, 44, 51, 60 }} jump suspicious\n\
         \t}}\n\
         \tchain input {{\n\
         \t\ttype filter hook input priority 0; policy drop;\n\
         \t\tiifname \"lo\" accept\n\
         \t\t{known}\n{input}\
         \t\tcounter drop comment \"through an interface of no zone\"\n\
         \t}}\n\
         \tchain forward {{\n\
         \t\ttype filter hook forward priority 0; policy drop;\n\
         \t\t{known}\n{translated}{forward}\
         \t\tcounter drop comment \"from or to an interface of no zone\"\n\
         \t}}\n\
         \tchain output {{\n\
         \t\ttype filter hook output priority 0; policy accept;\n{output}\
         \t}}\n"
    );
    text
}

/// Rules that send a packet to the chain of its zone: by interface and address where a zone is part of an interface,
/// then by interface. What is of a link that is in parts comes behind these, since a part may have it.
fn by_zone(policy: &Policy, interface: &str, field: &str, chain: impl Fn(ZoneRef) -> String) -> String {
    let (mut whole, mut parts, mut links) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (index, zone) in policy.zones().iter().enumerate() {
        let target = chain(ZoneRef::Zone(index));
        for name in &zone.interfaces {
            if zone.networks.is_empty() {
                whole.push(format!("\"{name}\" : goto {target}"));
            }
            parts.extend(
                zone.networks.iter().map(|net| (*net, format!("\"{name}\" . {net} : goto {target}"))),
            );
            if let Some(link) = policy.zone_of_link(name) {
                let target = chain(link);
                links.extend(LINK_SOURCES.map(|net| (net, format!("\"{name}\" . {net} : goto {target}"))));
            }
        }
    }
    let map = |key: &str, elements: Vec<String>| match elements.is_empty() {
        true => String::new(),
        false => format!("\t\t{key} vmap {{ {} }}\n", elements.join(", ")),
    };
    let by_address = |elements: Vec<(IpNet, String)>| {
        let (ipv4, ipv6): (Vec<_>, Vec<_>) = elements.into_iter().partition(|(net, _)| net.addr().is_ipv4());
        let texts = |elements: Vec<(IpNet, String)>| elements.into_iter().map(|(_, text)| text).collect();
        map(&format!("{interface} . ip6 {field}"), texts(ipv6))
            + &map(&format!("{interface} . ip {field}"), texts(ipv4))
    };
    by_address(parts) + &by_address(links.into_iter().collect()) + &map(interface, whole)
}

#[cfg(test)]
mod tests {
    use super::super::policy::{Settings, Trust, Zone};
    use super::*;

    fn policy(rules: Vec<Rule>) -> Policy {
        let zone = |name: &str, trust, interface: &str| Zone {
            name: name.to_owned(),
            trust,
            interfaces: vec![interface.to_owned()],
            networks: Vec::new(),
        };
        let zones = vec![zone("lan", Trust::Inside, "eth1"), zone("wan", Trust::Outside, "eth0")];
        Policy::new(zones, rules, Settings::default()).unwrap()
    }

    fn drop_rule(service: &str, source: &str) -> Rule {
        Rule {
            from: ZoneSet::Any,
            to: ZoneSet::Any,
            source: source.parse().ok().map(|address| vec![address]),
            destination: None,
            service: service.parse().ok().map(|service| vec![service]),
            rate: None,
            schedule: None,
            forwarded: false,
            log: false,
            comment: String::new(),
            action: Verdict::Drop,
        }
    }

    #[test]
    fn ten_thousand_rules_are_one_lookup() {
        let rules =
            (0..10_000).map(|n| drop_rule(&format!("tcp/{}", n % 50_000), &format!("2001:db8::{n:x}")));
        let compiled = compile(&policy(rules.collect()), TimeZone::default());
        assert_eq!((compiled.lookups, compiled.elements), (1, 10_000));
    }

    fn script(rules: &[(&str, &str)]) -> String {
        let rules = rules.iter().map(|(service, source)| drop_rule(service, source)).collect();
        compile(&policy(rules), TimeZone::default()).script
    }

    #[test]
    fn prefixes_of_one_length_are_a_hash_table() {
        let same = script(&[("tcp/22", "2001:db8:1::/64"), ("tcp/23", "2001:db8:2::/64")]);
        assert!(!same.contains("flags interval") && !same.contains("near-"), "{same}");
        assert!(same.contains("meta l4proto 6 th dport . ip6 saddr & ffff:ffff:ffff:ffff:: vmap"), "{same}");
        assert!(same.contains("23 . 2001:db8:2::"), "{same}");
        let ipv4 = script(&[("tcp/22", "192.0.2.0/25"), ("tcp/23", "10.0.0.128/25")]);
        assert!(ipv4.contains("th dport . ip saddr & 255.255.255.128 vmap"), "{ipv4}");
    }

    #[test]
    fn a_rule_alone_is_compared() {
        let alone = script(&[("tcp/22", "2001:db8::/32")]);
        assert!(
            alone.contains("meta l4proto 6 th dport 22 ip6 saddr 2001:db8::/32 counter drop comment \"r1\"")
        );
        assert!(!alone.contains("map map-1"), "{alone}");
    }

    #[test]
    fn few_lengths_and_port_ranges_are_a_hash_table_each_behind_their_first_bits() {
        let sources =
            ["2001:db8:1::/48", "2001:db8:2::/48", "2001:db9::/33", "2001:dba::/33", "2001:dbb::/40"];
        let mixed = script(&sources.map(|source| ("tcp/22", source)));
        assert!(!mixed.contains("flags interval"), "{mixed}");
        assert!(mixed.contains("ip6 saddr & ffff:ffff:c000:: @near-1-1 jump near-1-1"), "{mixed}");
        assert!(
            mixed.contains("set near-1-1 {\n\t\ttype ipv6_addr\n\t\telements = { 2001:db8::, 2001:db9::,")
        );
        assert!(mixed.contains("vmap @map-1-1-3"), "{mixed}");
        let ranges = script(&[
            ("udp/10-19", "2001:db8::1"),
            ("udp/10-19", "2001:db8::2"),
            ("udp/30-40", "2001:db8::1"),
        ]);
        assert!(!ranges.contains("flags interval"), "{ranges}");
        assert!(ranges.contains("meta l4proto 17 th dport 10-19 ip6 saddr vmap"), "{ranges}");
        assert!(ranges.contains("th dport 30-40 ip6 saddr 2001:db8::1 counter drop"), "{ranges}");
    }

    #[test]
    fn many_lengths_are_intervals_and_what_they_differ_in_most_comes_first() {
        let sources: Vec<String> = (20..40).map(|length| format!("2{length}0::/{length}")).collect();
        let rules: Vec<(&str, &str)> = sources
            .iter()
            .zip(["tcp/1", "udp/1"].into_iter().cycle())
            .map(|(source, service)| (service, &**source))
            .collect();
        let many = script(&rules);
        assert!(many.contains("type ipv6_addr . inet_proto : verdict\n\t\tflags interval"), "{many}");
        assert!(many.contains("th dport 1 ip6 saddr . meta l4proto vmap @map-1-1"), "{many}");
        assert!(many.contains("@near-1-1 jump near-1-1"), "{many}");
    }

    #[test]
    fn a_prefix_in_another_of_its_rule_is_left_out() {
        let mut rule = drop_rule("tcp/22", "2001:db8:1::/48");
        rule.source.as_mut().unwrap().push("2001:db8::/32".parse().unwrap());
        let compiled = compile(&policy(vec![rule]), TimeZone::default());
        assert_eq!((compiled.lookups, compiled.elements), (1, 1));
    }

    #[test]
    fn a_table_that_is_replaced_keeps_its_base_chains() {
        let existing = Existing {
            chains: vec!["input".into(), "rules-1".into()],
            maps: vec!["map-1-1".into()],
            sets: vec!["mapped4".into(), "near-1-1".into()],
        };
        let script = replace(&existing, "");
        assert!(script.contains("delete chain inet sidestep-firewall rules-1"));
        assert!(script.contains("delete map inet sidestep-firewall map-1-1"));
        assert!(script.contains("delete set inet sidestep-firewall near-1-1"));
        assert!(!script.contains("delete chain inet sidestep-firewall input") && !script.contains("mapped4"));
    }
}

//! Rules for the kernel tier, in Lua: what is compiled with a script asks by itself whether a packet is its own.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use wire::protocol;

use crate::matching::Rule;
use crate::trace;
use crate::vm::Script;
use crate::vm::traced::FOLLOW;

/// What that function returns for packets that are not the script's: no verdict, and nothing is counted.
pub(super) const UNMATCHED: u64 = 1 << 40;
/// The function that asks, then calls the script's.
pub(super) const NAME: &str = "sidestep_matched";

/// The method that tells it of the transport header what nft(8) looks at; Lua has none.
pub(super) const TRANSPORT: &str = "sidestep_transport";

/// The function that asks whether a packet is one that is to be followed.
pub(super) const CHOSEN: &str = "sidestep_chosen";

/// The script with a function of its own that gives it the packets of which the rule holds, and lets others pass.
/// Interfaces are the caller's to see to.
#[must_use]
pub fn matched(script: &Script, rule: &Rule) -> Script {
    with_rules(script, rule, None)
}

/// The same with [points](crate::trace::points) in the script, which tell of packets of which the other rule holds.
///
/// # Errors
/// If the script is no Lua 5.4, or too long for that.
pub fn followed(script: &Script, rule: &Rule, which: &Rule) -> Result<Script, String> {
    let source = trace::points(&script.source)?;
    Ok(with_rules(&Script { source, ..script.clone() }, rule, Some(which)))
}

fn with_rules(script: &Script, rule: &Rule, which: Option<&Rule>) -> Script {
    let asks = Rule { iif: None, oif: None, ..rule.clone() };
    if asks == Rule::default() && which.is_none() {
        return script.clone();
    }
    let (mut top, mut body) = (String::new(), String::new());
    if asks != Rule::default() {
        top = prefixes(&asks);
        body = conditions(&asks, &UNMATCHED.to_string(), Prefixes::Tables);
    }
    if let Some(which) = which {
        let conditions = conditions(which, "false", Prefixes::Octets);
        let _ = writeln!(top, "function {CHOSEN}(p)\n{conditions}return true\nend");
        let _ = writeln!(body, "if {CHOSEN}(p) then {FOLLOW}() end");
    }
    let (source, function) = (&script.source, &script.function);
    // Behind the script, so that its lines keep their numbers.
    let source = format!("{source}\n{top}function {NAME}(p)\n{body}return {function}(p)\nend\n");
    Script { source, function: NAME.to_owned(), ..script.clone() }
}

/// How an address is looked for in a prefix.
#[derive(Clone, Copy, PartialEq)]
enum Prefixes {
    /// By a table, which a program shares with the one that comes after it.
    Tables,
    /// Octet by octet.
    Octets,
}

fn addresses(rule: &Rule) -> impl Iterator<Item = (&'static str, IpNet)> {
    [("saddr", rule.saddr), ("daddr", rule.daddr)]
        .into_iter()
        .filter_map(|(field, prefix)| Some((field, prefix?)))
}

fn prefixes(rule: &Rule) -> String {
    let mut sets = String::new();
    for (field, prefix) in addresses(rule) {
        let _ = writeln!(
            sets,
            "local sidestep_{field} = nf.prefixes {{ name = 'match {field} {prefix}', limit = 1 }} \
             sidestep_{field}:add('{prefix}')"
        );
    }
    sets
}

/// Statements that return something else where the rule does not hold.
fn conditions(rule: &Rule, otherwise: &str, by: Prefixes) -> String {
    let mut body = String::new();
    let ip = match rule.family {
        Some(4) => "p:data(packet_eth):data(packet_ip)",
        Some(_) => "p:data(packet_eth):data(packet_ip6)",
        None => "p:data(packet_eth):data(packet_ip6) or p:data(packet_eth):data(packet_ip)",
    };
    if *rule == Rule::default() {
        return body;
    }
    let _ = writeln!(body, "local ip = {ip}\nif not ip then return {otherwise} end");
    for (field, prefix) in addresses(rule) {
        let condition = match by {
            Prefixes::Tables => format!("sidestep_{field}:find(ip:{field}():get())"),
            Prefixes::Octets => octets(field, prefix),
        };
        let _ = writeln!(body, "if not ({condition}) then return {otherwise} end");
    }
    let ports = [("sport", 0, &rule.source_ports), ("dport", 2, &rule.destination_ports)];
    let has_ports = ports.iter().any(|(.., ports)| !ports.is_empty());
    let protocols = match rule.protocol {
        Some(number) => Some(number.to_string()),
        None => has_ports.then(|| format!("{}, {}", protocol::TCP, protocol::UDP)),
    };
    if let Some(protocols) = protocols {
        let _ =
            writeln!(body, "local th = ip:{TRANSPORT}({protocols})\nif not th then return {otherwise} end");
    }
    if let Some(kind) = rule.icmp_type {
        let _ = writeln!(body, "if #th < 1 or th[0] ~= {kind} then return {otherwise} end");
    }
    for (field, at, ranges) in ports.iter().filter(|(.., ranges)| !ranges.is_empty()) {
        let range = |range: &RangeInclusive<u16>| {
            format!("{field} >= {} and {field} <= {}", range.start(), range.end())
        };
        let any: Vec<String> = ranges.iter().map(range).collect();
        let _ = writeln!(body, "if #th < {} then return {otherwise} end", at + 2);
        let _ = writeln!(body, "local {field} = th[{at}] << 8 | th[{}]", at + 1);
        let _ = writeln!(body, "if not ({}) then return {otherwise} end", any.join(" or "));
    }
    body
}

/// That an address is in a prefix.
fn octets(field: &str, prefix: IpNet) -> String {
    let (octets, first) = match (prefix.network(), field) {
        (IpAddr::V4(address), "saddr") => (address.octets().to_vec(), 12),
        (IpAddr::V4(address), _) => (address.octets().to_vec(), 16),
        (IpAddr::V6(address), "saddr") => (address.octets().to_vec(), 8),
        (IpAddr::V6(address), _) => (address.octets().to_vec(), 24),
    };
    let length = usize::from(prefix.prefix_len());
    let mut all = vec!["true".to_owned()];
    for (place, octet) in octets.iter().enumerate().take(length.div_ceil(8)) {
        let mask = match length - 8 * place {
            8.. => 0xff,
            bits => 0xff_u8 << (8 - bits),
        };
        all.push(format!("ip:raw({}, 1):get()[0] & {mask} == {}", first + place, octet & mask));
    }
    all.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::super::differential::{InKernel, can_be_tested, may_load};
    use super::super::interpret::{Maps, Outcome, run};
    use super::super::ir::Failure;
    use super::super::tests::RESULTS;
    use super::super::{AttachType, Results, compile};
    use super::*;
    use crate::host::NoHost;
    use crate::vm::Verdict;

    #[test]
    fn rules_are_compiled() {
        let script = Script::new("a.lua", "function process_packet(p) return NF_DROP end");
        let results =
            Results { pass: 0, drop: 2, error: 2, queue_mark: None, unseen_mark: Some(1), punt_mark: None };
        for rule in [
            "",
            "ip6 saddr 2001:db8::/32",
            "ip daddr 192.0.2.0/24 udp dport { 53, 80-90 }",
            "tcp sport 80 iif eth0",
            "icmpv6 type 128",
            "th dport 1 meta l4proto 132",
            "meta l4proto 47",
        ] {
            let rule = Rule::parse(rule).unwrap();
            let script = matched(&script, &rule);
            for has_link in [true, false] {
                if let Err(error) = compile(&script, NoHost, results, AttachType::Interface { has_link }) {
                    panic!("{rule:?}: {error}\n{}", script.source);
                }
            }
        }
    }

    /// A header of IPv6 with what comes behind it.
    fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next, 64]);
        frame.extend([1; 32]);
        frame.extend(payload);
        frame
    }

    fn ipv4(protocol: u8, offset: u16, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 20 + payload.len() as u8, 0, 9]);
        frame.extend(offset.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn what_a_rule_cannot_look_at_does_not_pass_the_script_by() {
        let script = Script::new("a.lua", "function process_packet(p) return NF_ACCEPT end");
        let options = |next: u8| [next, 0, 0, 0, 0, 0, 0, 0];
        let frame = ipv6(60, &[[options(60); 8].concat(), options(6).to_vec(), vec![0; 20]].concat());
        let outcome = |script: &Script| {
            let place = AttachType::Interface { has_link: true };
            let compiled = compile(script, NoHost, RESULTS, place).expect("it compiles");
            run(compiled.intermediate(), &mut Maps::default(), &mut frame.clone(), 0, || 0)
        };
        let rule = Rule::parse("tcp dport 22").unwrap();
        let outcome_of_rule = outcome(&matched(&script, &rule));
        assert!(matches!(outcome_of_rule, Outcome::Failed(Failure::TooDeep, _)), "{outcome_of_rule:?}");
        // Who follows packets does not change what becomes of them.
        let followed = followed(&script, &Rule::default(), &rule).unwrap();
        assert_eq!(outcome(&followed), Outcome::Verdict(Verdict::Accept.value()));
    }

    #[test]
    fn rules_hold_of_what_nft_holds_them_of() {
        let drop = Script::new("a.lua", "function process_packet(p) return NF_DROP end");
        let results = Results { unseen_mark: Some(1), ..RESULTS };
        let ports = [0, 7, 0, 22, 0, 0, 0, 1];
        let all = "tcp dport 22";
        let options = |next: u8, units: u8| {
            let mut header = vec![next, units];
            header.resize(8 + usize::from(units) * 8, 0);
            header
        };
        let with = |first: &[u8], rest: &[u8]| [first, rest].concat();
        let many: Vec<u8> = (1..=8).flat_map(|left| options(if left == 8 { 6 } else { 60 }, 0)).collect();
        for (rule, frame, holds) in [
            // A header that is not there as a whole.
            (all, ipv6(6, &ports), true),
            (all, ipv4(6, 0x2000, &ports), true),
            (all, ipv6(6, &ports[..4]), true),
            (all, ipv4(6, 0, &ports[..4]), true),
            (all, ipv6(6, &ports[..3]), false),
            ("tcp sport 7", ipv6(6, &ports[..2]), true),
            ("tcp sport 7", ipv6(6, &ports[..1]), false),
            ("meta l4proto tcp", ipv6(6, &[]), true),
            ("meta l4proto tcp", ipv4(6, 0, &[]), true),
            (all, ipv6(17, &ports), false),
            ("th dport 22", ipv6(17, &ports), true),
            ("th dport 22", ipv6(58, &ports), false),
            ("th dport 22", ipv4(6, 0, &ports), true),
            // Fragments.
            (all, ipv6(44, &with(&[6, 0, 0, 1, 0, 0, 0, 9], &ports)), true),
            (all, ipv6(44, &with(&[6, 0, 0, 8, 0, 0, 0, 9], &ports)), false),
            ("meta l4proto tcp", ipv6(44, &with(&[6, 0, 0, 8, 0, 0, 0, 9], &ports)), true),
            ("meta l4proto udp", ipv6(44, &with(&[6, 0, 0, 8, 0, 0, 0, 9], &ports)), false),
            ("meta l4proto tcp", ipv6(44, &with(&[60, 0, 0, 8, 0, 0, 0, 9], &options(6, 0))), false),
            ("meta l4proto tcp", ipv6(44, &[6, 0, 0, 8]), true),
            ("meta l4proto tcp", ipv6(44, &[6, 0, 0]), false),
            (all, ipv4(6, 1, &ports), false),
            ("meta l4proto tcp", ipv4(6, 1, &ports), true),
            ("meta l4proto 47", ipv4(47, 1, &[]), true),
            // Headers between.
            (all, ipv6(60, &with(&options(6, 1), &ports)), true),
            (all, ipv6(51, &with(&[6, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &ports)), true),
            (all, ipv6(60, &with(&many, &ports)), true),
            ("meta l4proto tcp", ipv6(60, &options(6, 3)[..8]), true),
            ("meta l4proto tcp", ipv6(60, &[6]), false),
            ("meta l4proto 59", ipv6(60, &options(59, 0)), true),
            ("icmpv6 type 128", ipv6(58, &[128]), true),
            ("icmpv6 type 128", ipv6(58, &[]), false),
            ("icmp type 8", ipv4(1, 0, &[8]), true),
        ] {
            let script = matched(&drop, &Rule::parse(rule).unwrap());
            let compiled = compile(&script, NoHost, results, AttachType::Interface { has_link: true });
            let compiled = compiled.unwrap_or_else(|error| panic!("{rule}: {error}"));
            let outcome = run(compiled.intermediate(), &mut Maps::default(), &mut frame.clone(), 0, || 0);
            let wanted = if holds { 0 } else { UNMATCHED.cast_signed() };
            assert_eq!(outcome, Outcome::Verdict(wanted), "{rule}: {}", hex::encode(&frame));
            if may_load() && can_be_tested(&frame) {
                let loaded = InKernel::load(&compiled).unwrap_or_else(|error| panic!("{rule}: {error}"));
                let wanted = if holds { RESULTS.drop } else { RESULTS.pass };
                assert_eq!(loaded.program.test_run(&frame).expect("it runs").0, wanted, "{rule}");
            }
        }
    }
}

//! Rules for the kernel tier, in Lua: what is compiled with a script asks by itself whether a packet is its own.

use std::fmt::Write as _;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use wire::protocol;

use crate::matching::Rule;
use crate::vm::Script;

/// What that function returns for packets that are not the script's: no verdict, and nothing is counted.
pub(super) const UNMATCHED: u64 = 1 << 40;
/// The function that asks, then calls the script's.
pub(super) const NAME: &str = "sidestep_matched";

/// What of a rule cannot be said in Lua, so that the script is the user tier's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatchError {
    /// A protocol that scripts have no view of.
    #[error("l4proto {0} is matched in the user tier only")]
    Protocol(u8),
    /// Ports of whatever protocol.
    #[error("th is matched in the user tier only: say tcp or udp")]
    Ports,
}

/// The script with a function of its own that gives it the packets of which the rule holds, and lets others pass.
/// Interfaces are the caller's to see to.
///
/// # Errors
/// What of the rule cannot be said in Lua.
pub fn matched(script: &Script, rule: &Rule) -> Result<Script, MatchError> {
    let asks = Rule { iif: None, oif: None, ..rule.clone() };
    if asks == Rule::default() {
        return Ok(script.clone());
    }
    let mut body = String::new();
    let ip = match asks.family {
        Some(4) => "p:data(packet_eth):data(packet_ip)",
        Some(_) => "p:data(packet_eth):data(packet_ip6)",
        None => "p:data(packet_eth):data(packet_ip6) or p:data(packet_eth):data(packet_ip)",
    };
    let mut sets = String::new();
    let _ = writeln!(body, "local ip = {ip}\nif not ip then return {UNMATCHED} end");
    for (field, prefix) in [("saddr", &asks.saddr), ("daddr", &asks.daddr)] {
        let Some(prefix) = prefix else { continue };
        let prefix: &IpNet = prefix;
        let _ = writeln!(
            sets,
            "local sidestep_{field} = nf.prefixes {{ name = 'match {field} {prefix}', limit = 1 }} \
             sidestep_{field}:add('{prefix}')"
        );
        let _ =
            writeln!(body, "if not sidestep_{field}:find(ip:{field}():get()) then return {UNMATCHED} end");
    }
    let ports = [("sport", &asks.source_ports), ("dport", &asks.destination_ports)];
    let has_ports = ports.iter().any(|(_, ports)| !ports.is_empty());
    let transport = match (asks.protocol, has_ports) {
        (Some(protocol::TCP), _) => Some("ip:data(packet_tcp)"),
        (Some(protocol::UDP), _) => Some("ip:data(packet_udp)"),
        (Some(protocol::ICMPV4), _) => Some("ip:data(packet_icmp)"),
        (Some(protocol::ICMPV6), _) => Some("ip:data(packet_icmp6)"),
        (Some(number), _) => return Err(MatchError::Protocol(number)),
        (None, true) => return Err(MatchError::Ports),
        (None, false) => None,
    };
    if let Some(transport) = transport {
        let _ = writeln!(body, "local transport = {transport}\nif not transport then return {UNMATCHED} end");
    }
    if let Some(kind) = asks.icmp_type {
        let _ = writeln!(body, "if transport:type():get() ~= {kind} then return {UNMATCHED} end");
    }
    for (field, ranges) in ports.iter().filter(|(_, ranges)| !ranges.is_empty()) {
        let range = |range: &RangeInclusive<u16>| {
            format!("{field} >= {} and {field} <= {}", range.start(), range.end())
        };
        let any: Vec<String> = ranges.iter().map(range).collect();
        let _ = writeln!(body, "local {field} = transport:{field}():get()");
        let _ = writeln!(body, "if not ({}) then return {UNMATCHED} end", any.join(" or "));
    }
    let (source, function) = (&script.source, &script.function);
    // Behind the script, so that its lines keep their numbers.
    let source = format!("{source}\n{sets}function {NAME}(p)\n{body}return {function}(p)\nend\n");
    Ok(Script { source, function: NAME.to_owned(), ..script.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::{AttachType, Results, compile};
    use super::*;
    use crate::host::NoHost;

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
        ] {
            let rule = Rule::parse(rule).unwrap();
            let script = matched(&script, &rule).unwrap();
            if let Err(error) = compile(&script, NoHost, results, AttachType::Interface { has_link: true }) {
                panic!("{rule:?}: {error}\n{}", script.source);
            }
        }
        assert_eq!(matched(&script, &Rule::parse("th dport 1").unwrap()), Err(MatchError::Ports));
    }
}

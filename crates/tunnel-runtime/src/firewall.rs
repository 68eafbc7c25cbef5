//! Chains of this machine's firewall, whoever made it, and whether they let a tunnel pass.
//!
//! A packet of the tunnel walks through the rules, which nft lists as JSON. Of a packet only that is known which holds for all
//! of them, and of rules only what decides most firewalls is read: interfaces, protocol, ports, destination and the state of the
//! connection. So a condition holds, does not, or nobody knows; and only what is refused for certain is a fault.

use std::collections::BTreeMap;

use config::TunnelConfig;
use ipnet::{IpNet, Ipv6Net};
use mt6d::config::NOWHERE;
use serde_json::Value;

/// Ports of endpoints: any of these.
const PORTS: [u64; 2] = [1024, 65535];
/// How deep chains lead to others at the most: in what the kernel takes, to 16.
const DEEPEST: usize = 16;
/// Rules that a packet is led past at the most: who has more has to look himself.
const MOST: usize = 100_000;

/// Whether a condition holds; `None` where that is not known.
type Holds = Option<bool>;

/// A chain that refuses what the tunnel needs, or may.
pub(crate) struct ClosedChain {
    /// In one word.
    pub(crate) code: &'static str,
    /// In one sentence, with what mends it.
    pub(crate) says: String,
    /// Whether it refuses it for certain.
    pub(crate) certain: bool,
}

/// Those of all tables, as nft lists them.
pub(crate) fn closed_by(ruleset: &Value, config: &TunnelConfig) -> Vec<ClosedChain> {
    let objects = || ruleset["nftables"].as_array().into_iter().flatten();
    let (prefix, tunnel) = (config.node.hop_prefix.trunc(), config.tunnel.name.as_str());
    let mut found = Vec::new();
    for chain in objects().map(|object| &object["chain"]) {
        let own = chain["table"].as_str().is_some_and(|table| table.starts_with("sidestep-"));
        if own || !matches!(chain["family"].as_str(), Some("ip6" | "inet")) {
            continue;
        }
        let of_table =
            |object: &&Value| object["family"] == chain["family"] && object["table"] == chain["table"];
        let table: Vec<_> = objects().map(|object| &object["rule"]).filter(of_table).collect();
        let sets = objects().flat_map(|object| [&object["set"], &object["map"]]).filter(of_table);
        let mut named = table.iter().copied().chain(sets);
        let (code, packets, rule, is_named) = match chain["hook"].as_str() {
            Some("input") if !config.is_classic() && config.node.hop_prefix != NOWHERE => (
                "closed_input",
                vec![Packet::Outer { external: &config.node.external, prefix }],
                format!("`ip6 daddr {prefix} udp dport 1024-65535 accept`"),
                // As nft lists it, with the length of the prefix apart.
                named.any(|rule| names(rule, &|text| text == prefix.network().to_string())),
            ),
            Some("forward") => (
                "closed_forward",
                vec![Packet::FromTunnel(tunnel), Packet::IntoTunnel(tunnel)],
                format!("`iifname \"{tunnel}\" accept` and `oifname \"{tunnel}\" accept`"),
                named.any(|rule| names(rule, &|text| covers(text, tunnel))),
            ),
            _ => continue,
        };
        // Who has thought of the tunnel has his reasons for what else he asks for.
        if is_named {
            continue;
        }
        let mut chains: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for rule in table {
            chains.entry(rule["chain"].as_str().unwrap_or_default()).or_default().push(rule);
        }
        let is_through = |packet: &Packet<'_>| is_through(&chains, chain, packet);
        let passes: Vec<Holds> = packets.iter().map(is_through).collect();
        if passes.iter().all(|passes| *passes == Some(true)) {
            continue;
        }
        let certain = passes.iter().all(|passes| *passes == Some(false));
        let word = |key: &str| chain[key].as_str().unwrap_or_default();
        let name = format!("chain {} of the table `{} {}`", word("name"), word("family"), word("table"));
        let says = match certain {
            true => format!("{name} refuses what the tunnel needs: add {rule}"),
            false => format!(
                "{name} refuses what no rule accepts, and it cannot be seen that one accepts all that the tunnel needs: if packets are lost, add {rule}"
            ),
        };
        found.push(ClosedChain { code, says, certain });
    }
    found
}

/// Whether a text within a rule is one of these.
fn names(rule: &Value, wanted: &impl Fn(&str) -> bool) -> bool {
    match rule {
        Value::String(text) => wanted(text),
        Value::Array(values) => values.iter().any(|value| names(value, wanted)),
        Value::Object(values) => values.values().any(|value| names(value, wanted)),
        _ => false,
    }
}

/// Whether a name of interfaces, which may end in a `*`, is that of this one.
fn covers(text: &str, interface: &str) -> bool {
    match text.strip_suffix('*') {
        Some(start) => !start.is_empty() && interface.starts_with(start),
        None => text == interface,
    }
}

/// What is to pass.
enum Packet<'c> {
    /// A datagram of a peer, for an endpoint.
    Outer { external: &'c str, prefix: Ipv6Net },
    /// The first packet of a connection, of whatever protocol, from the peer's networks.
    FromTunnel(&'c str),
    /// The same towards them.
    IntoTunnel(&'c str),
}

impl Packet<'_> {
    fn holds(&self, condition: &Value) -> Holds {
        let (left, right) = (&condition["left"], &condition["right"]);
        let of = |kind: &str, key: &str| left[kind][key].as_str().unwrap_or_default();
        // A field of a protocol asks for that first, whatever it is compared with.
        match of("payload", "protocol") {
            "icmp" | "icmpv6" => return Some(false),
            "tcp" | "ip" if self.is_outer() => return Some(false),
            _ => {}
        }
        let one: &dyn Fn(&Value) -> Holds =
            match (of("meta", "key"), of("payload", "protocol"), of("payload", "field")) {
                ("iif" | "iifname", ..) => &|value| self.comes_by(value),
                ("oif" | "oifname", ..) => &|value| self.leaves_by(value),
                ("l4proto", ..) | (_, "ip6", "nexthdr") => &|value| self.is_of(value),
                (_, "ip6", "daddr") => &|value| self.is_for(value),
                (_, "udp", "dport") => &|value| self.has_port(value),
                _ => match of("ct", "key") {
                    "state" => &|value| self.has_state(value),
                    // Nobody translates it.
                    "status" => &|_| Some(false),
                    _ => return None,
                },
            };
        let holds = any(right, one);
        match condition["op"].as_str() {
            Some("==" | "in") => holds,
            Some("!=") => holds.map(|holds| !holds),
            _ => None,
        }
    }

    fn is_outer(&self) -> bool {
        matches!(self, Packet::Outer { .. })
    }

    fn comes_by(&self, name: &Value) -> Holds {
        let name = name.as_str().filter(|name| !name.starts_with('@'))?;
        match self {
            Packet::Outer { external: interface, .. } | Packet::FromTunnel(interface) => {
                Some(covers(name, interface))
            }
            Packet::IntoTunnel(_) => (name == "lo").then_some(false),
        }
    }

    fn leaves_by(&self, name: &Value) -> Holds {
        let name = name.as_str().filter(|name| !name.starts_with('@'))?;
        match self {
            Packet::IntoTunnel(interface) => Some(covers(name, interface)),
            Packet::Outer { .. } | Packet::FromTunnel(_) => (name == "lo").then_some(false),
        }
    }

    fn is_of(&self, protocol: &Value) -> Holds {
        let is_icmp = matches!(protocol.as_str(), Some("icmp" | "icmpv6" | "ipv6-icmp"));
        match self.is_outer() {
            true => {
                protocol.as_str().map(|name| name == "udp").or(protocol.as_u64().map(|number| number == 17))
            }
            // Those who only ping have not said so.
            false => is_icmp.then_some(false),
        }
    }

    fn is_for(&self, destination: &Value) -> Holds {
        let Packet::Outer { prefix, .. } = self else { return None };
        let (address, length) = match destination.as_str() {
            Some(address) => (address, 128),
            None => {
                let given = &destination["prefix"];
                (given["addr"].as_str()?, u8::try_from(given["len"].as_u64()?).ok()?)
            }
        };
        let IpNet::V6(network) = IpNet::new(address.parse().ok()?, length).ok()? else { return Some(false) };
        match (network.contains(prefix), prefix.contains(&network)) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        }
    }

    fn has_port(&self, ports: &Value) -> Holds {
        if !self.is_outer() {
            return None;
        }
        match &ports["range"] {
            Value::Array(range) => {
                let [first, last] = [range.first()?.as_u64()?, range.get(1)?.as_u64()?];
                match (first <= PORTS[0] && last >= PORTS[1], last < PORTS[0]) {
                    (true, _) => Some(true),
                    (_, true) => Some(false),
                    _ => None,
                }
            }
            // One in 64,512.
            _ => ports.as_u64().map(|_| false),
        }
    }

    /// Flows of the hopping prefix are not tracked, where the kernel can do without.
    fn has_state(&self, state: &Value) -> Holds {
        match (state.as_str()?, self.is_outer()) {
            ("new", false) => Some(true),
            ("new" | "untracked", true) => None,
            _ => Some(false),
        }
    }
}

/// Whether it holds for one of the values.
fn any(values: &Value, one: &dyn Fn(&Value) -> Holds) -> Holds {
    let several = match values {
        Value::Array(values) => Some(values),
        other => other["set"].as_array(),
    };
    let Some(values) = several else { return one(values) };
    let mut known = true;
    for value in values {
        match one(value) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => known = false,
        }
    }
    known.then_some(false)
}

/// What a rule does with packets for which its conditions hold.
enum Does<'v> {
    Nothing,
    Accept,
    Refuse,
    Return,
    /// With another chain, from which packets come back, or not.
    Lead {
        to: &'v str,
        back: bool,
    },
    /// Something that is not read here.
    Other,
}

/// Whether the conditions of a rule hold, and what it does then.
fn read<'v>(rule: &'v Value, packet: &Packet<'_>) -> (Holds, Does<'v>) {
    let (mut holds, mut does) = (Some(true), Does::Nothing);
    let statements = rule["expr"].as_array().into_iter().flatten().filter_map(Value::as_object);
    for (kind, content) in statements.flatten() {
        let lead = |back| Does::Lead { to: content["target"].as_str().unwrap_or_default(), back };
        let more = match kind.as_str() {
            "match" => packet.holds(content),
            "counter" | "log" | "mangle" | "notrack" => Some(true),
            "accept" | "drop" | "reject" | "return" | "jump" | "goto" | "vmap" | "queue" => {
                does = match kind.as_str() {
                    "accept" => Does::Accept,
                    "drop" | "reject" => Does::Refuse,
                    "return" => Does::Return,
                    "jump" => lead(true),
                    "goto" => lead(false),
                    _ => Does::Other,
                };
                Some(true)
            }
            // Of iptables, as are the conditions that nft has no word for.
            "xt" if content["name"] == "REJECT" => {
                does = Does::Refuse;
                Some(true)
            }
            _ => None,
        };
        holds = match (holds, more) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (None, _) | (_, None) => None,
            _ => Some(true),
        };
    }
    (holds, does)
}

/// Whether a packet gets through a chain that hangs at a hook.
fn is_through(chains: &BTreeMap<&str, Vec<&Value>>, chain: &Value, packet: &Packet<'_>) -> Holds {
    let name = chain["name"].as_str().unwrap_or_default();
    let mut left = MOST;
    let (perhaps, end) = walk(chains, name, packet, DEEPEST, &mut left);
    let accepted = end.unwrap_or(chain["policy"] != "drop");
    if perhaps && !accepted { None } else { Some(accepted) }
}

/// Whether some rule may have accepted a packet, and whether one accepts or refuses it for certain. What may refuse it counts for
/// nothing: that is a list of strangers, or a limit.
fn walk(
    chains: &BTreeMap<&str, Vec<&Value>>,
    name: &str,
    packet: &Packet<'_>,
    depth: usize,
    left: &mut usize,
) -> (bool, Holds) {
    let mut perhaps = false;
    for rule in chains.get(name).into_iter().flatten() {
        if depth == 0 || *left == 0 {
            return (true, None);
        }
        *left -= 1;
        let (holds, does) = read(rule, packet);
        if holds == Some(false) {
            continue;
        }
        let certain = holds == Some(true);
        match does {
            Does::Accept if certain => return (perhaps, Some(true)),
            Does::Refuse if certain => return (perhaps, Some(false)),
            Does::Return if certain => return (perhaps, None),
            Does::Nothing | Does::Refuse | Does::Return => {}
            Does::Accept | Does::Other => perhaps = true,
            Does::Lead { to, back } => {
                let (more, end) = walk(chains, to, packet, depth - 1, left);
                perhaps |= more || end == Some(true) && !certain;
                if certain && (end.is_some() || !back) {
                    return (perhaps, end);
                }
            }
        }
    }
    (perhaps, None)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;

    fn config() -> TunnelConfig {
        let text = "[node]\nprivate_key = \"yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=\"\nexternal = \"eth0\"\n\
             hop_prefix = \"2001:db8:a1::/64\"\n[[peer]]\nname = \"site-b\"\n\
             public_key = \"xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=\"\nhop_prefix = \"2001:db8:b1::/64\"\n\
             allowed_ips = [\"2001:db8:b::/64\"]\n";
        let no_file = |_: &Path| Err(config::KeyFileError::Missing);
        config::parse(text, Path::new("a.toml"), &no_file).unwrap().tunnel.unwrap()
    }

    fn chain(hook: &str, policy: &str) -> Value {
        json!({"chain": {"family": "inet", "table": "filter", "name": hook, "hook": hook, "policy": policy}})
    }

    fn rule(chain: &str, expr: &Value) -> Value {
        json!({"rule": {"family": "inet", "table": "filter", "chain": chain, "expr": expr}})
    }

    fn meta(key: &str, right: &Value) -> Value {
        json!({"match": {"op": "==", "left": {"meta": {"key": key}}, "right": right}})
    }

    fn field(protocol: &str, field: &str, right: &Value) -> Value {
        json!({"match": {"op": "==", "left": {"payload": {"protocol": protocol, "field": field}}, "right": right}})
    }

    /// What is found of these chains and rules: the code, and whether it is certain.
    fn found(objects: &[Value]) -> Vec<(&'static str, bool)> {
        let found = closed_by(&json!({ "nftables": objects }), &config());
        found.into_iter().map(|found| (found.code, found.certain)).collect()
    }

    const CLOSED: [(&str, bool); 2] = [("closed_input", true), ("closed_forward", true)];

    #[test]
    fn a_firewall_that_drops_by_default_is_closed_until_it_names_the_tunnel() {
        let shut = [chain("input", "drop"), chain("forward", "drop")];
        let with = |more: &[Value]| found(&[&shut, more].concat());
        let prefix = rule(
            "of-mine",
            &json!([field("ip6", "daddr", &json!({"prefix": {"addr": "2001:db8:a1::", "len": 64}}))]),
        );
        let tunnel = |name: &str| {
            rule("of-mine", &json!([meta("iifname", &json!({"set": ["x", name]})), {"accept": null}]))
        };
        assert_eq!(
            found(&[chain("input", "accept"), chain("forward", "accept"), chain("output", "drop")]),
            []
        );
        assert_eq!(with(&[]), CLOSED);
        assert_eq!(with(std::slice::from_ref(&prefix)), [("closed_forward", true)]);
        assert_eq!(with(&[prefix.clone(), tunnel("mt6d0")]), []);
        assert_eq!(with(&[prefix.clone(), tunnel("mt6d*")]), []);
        assert_eq!(with(&[prefix, tunnel("mt6d1*")]), [("closed_forward", true)]);
        let set = json!({"set": {"family": "inet", "table": "filter", "name": "inside", "elem": ["mt6d0"]}});
        assert_eq!(with(&[set]), [("closed_input", true)]);
    }

    #[test]
    fn rules_that_let_the_tunnel_pass_in_other_words_do() {
        let accept = json!({"accept": null});
        let with = |expr: Value| found(&[chain("input", "drop"), rule("input", &expr)]);
        let ports = |range: Value| field("udp", "dport", &range);
        let but = |protocol: &str, name: &str, right: Value| {
            let mut condition = field(protocol, name, &right);
            condition["match"]["op"] = "!=".into();
            condition
        };
        let all = ports(json!({"range": [1024, 65535]}));
        for (expr, left) in [
            (json!([accept]), vec![]),
            (
                json!([meta("iifname", &"eth0".into()), all, {"counter": {"packets": 1, "bytes": 1}}, accept]),
                vec![],
            ),
            (json!([meta("l4proto", &"udp".into()), accept]), vec![]),
            (
                json!([field("ip6", "daddr", &json!({"prefix": {"addr": "2001:db8::", "len": 32}})), accept]),
                vec![],
            ),
            (json!([meta("iifname", &"eth1".into()), all, accept]), vec![("closed_input", true)]),
            (
                json!([meta("l4proto", &json!({"set": ["tcp", "ipv6-icmp"]})), accept]),
                vec![("closed_input", true)],
            ),
            (json!([ports(json!(51820)), accept]), vec![("closed_input", true)]),
            (json!([ports(json!({"range": [32768, 60999]})), accept]), vec![("closed_input", false)]),
            (json!([field("ip6", "saddr", &"@friends".into()), accept]), vec![("closed_input", false)]),
            (json!([{"limit": {"rate": 1}}, accept]), vec![("closed_input", false)]),
            (json!([but("icmpv6", "type", "echo-request".into()), accept]), vec![("closed_input", true)]),
            (json!([but("udp", "dport", 53.into()), accept]), vec![]),
            (json!([{"xt": null}, accept]), vec![("closed_input", false)]),
        ] {
            assert_eq!(with(expr.clone()), left, "{expr}");
        }
    }

    #[test]
    fn a_last_rule_that_refuses_is_a_policy() {
        let state =
            |states: Value| json!({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": states}});
        let answers =
            |chain: &str| rule(chain, &json!([state(json!(["established", "related"])), {"accept": null}]));
        let reject = json!([{"counter": {"packets": 0, "bytes": 0}}, {"reject": {"type": "icmpx", "expr": "admin-prohibited"}}]);
        let both = [chain("input", "accept"), chain("forward", "accept")];
        let with = |more: &[Value]| found(&[&both, more].concat());
        let ends = [answers("input"), answers("forward"), rule("input", &reject), rule("forward", &reject)];
        assert_eq!(with(&ends), CLOSED);
        // One that refuses only some.
        let some = rule("input", &json!([field("ip6", "saddr", &"2001:db8::1".into()), {"drop": null}]));
        assert_eq!(with(&[some]), []);
        // By way of another chain, and of one that leads back to itself.
        let lead = |to: &str, how: &str| rule("input", &json!([{how: {"target": to}}]));
        assert_eq!(with(&[lead("end", "jump"), rule("end", &reject)]), [("closed_input", true)]);
        assert_eq!(with(&[lead("none", "goto"), rule("input", &reject)]), []);
        assert_eq!(with(&[lead("input", "jump"), rule("input", &reject)]), [("closed_input", false)]);
        // What comes from inside may go out, and be answered.
        let inside = rule("forward", &json!([meta("iifname", &"eth1".into()), {"accept": null}]));
        assert_eq!(
            with(&[answers("forward"), inside, rule("forward", &reject)]),
            [("closed_forward", false)]
        );
    }

    #[test]
    fn whatever_nft_may_list_is_no_panic() {
        for object in [
            json!(null),
            json!({"rule": 1}),
            json!({"chain": []}),
            json!({"rule": {"expr": [1, {"match": 1}, {"jump": null}]}}),
            field("ip6", "daddr", &json!({"prefix": {}})),
        ] {
            assert_eq!(
                found(&[object.clone(), chain("input", "accept"), rule("input", &json!([object]))]),
                []
            );
        }
    }
}

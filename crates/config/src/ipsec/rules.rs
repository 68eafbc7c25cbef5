//! Policy: the rules of `[[policy]]`, and those that children stand for.

use std::net::IpAddr;

use ike::config::Mode;
use ike::negotiation::ChildProtocol;
use ipnet::IpNet;
use ipsec::level::{Level, Levels};
use ipsec::policy::{Action, Direction, Rule};
use ipsec::selector::{Selector, Upper};
use toml::Spanned;

use super::document::{LevelValue, PolicyTable};
use super::remote::{Child, Converted, any_of, literal};
use super::value::{self, fits_version};
use crate::converter::Converter;
use crate::report::Finding;
use crate::section::Given;
use crate::value::problem;

/// The most rules that one `[[policy]]` comes to: each packet is compared with all of them.
const MAX_RULES: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bypass,
    Discard,
    Protect,
}

impl Converter<'_> {
    /// The rules of a `[[policy]]`: one for each pair of its networks.
    pub(super) fn ipsec_policy(&mut self, table: &PolicyTable) -> Option<Vec<Rule>> {
        let direction = self.value(&table.direction, |text| match text {
            "in" => Ok(Direction::In),
            "out" => Ok(Direction::Out),
            _ => problem("not a direction", r#"write "in" or "out""#),
        });
        let is_for_some = self.not_empty(&table.source) & self.not_empty(&table.destination);
        let source = self.each(&table.source, value::network);
        let destination = self.each(&table.destination, value::network);
        let upper = self.upper(&table.protocol, &table.source_ports, &table.destination_ports);
        let action = self.value(&table.action, |text| match text {
            "bypass" => Ok(Kind::Bypass),
            "discard" => Ok(Kind::Discard),
            "protect" => Ok(Kind::Protect),
            _ => problem("not an action", r#"write "bypass", "discard" or "protect""#),
        });
        let given = [&table.authentication, &table.transport_encryption, &table.tunnel_encryption];
        let levels = self.levels(given[0], given[1], given[2]);
        let action = match (action?, levels?) {
            (Kind::Protect, Levels::NONE) => {
                self.report(Finding::error(
                    table.action.span_or_table(),
                    "protection without a level",
                    "nothing is asked for",
                    "add one, like transport_encryption = \"require\"",
                ));
                return None;
            }
            (Kind::Protect, levels) => Action::Protect { levels, tunnel: None },
            (kind, _) => {
                if let Some(level) = given.into_iter().find_map(Given::given) {
                    self.report(Finding::error(
                        level.span(),
                        "a level without protection",
                        "of no use here",
                        "levels are for action = \"protect\"",
                    ));
                    return None;
                }
                if kind == Kind::Bypass { Action::Bypass } else { Action::Discard }
            }
        };
        let (direction, source, destination, upper) = (direction?, source?, destination?, upper?);
        if !is_for_some {
            return None;
        }
        let rules: Vec<_> = selectors(&source, &destination, &upper)
            .map(|selector| Rule { direction, selector, action })
            .take(MAX_RULES + 1)
            .collect();
        let span = || table.action.table.span.clone();
        if rules.is_empty() {
            self.report(Finding::error(
                span(),
                "a policy for no packet",
                "source, destination and protocol are of different IP versions",
                "make a policy for each version",
            ));
            return None;
        }
        if rules.len() > MAX_RULES {
            self.report(Finding::error(
                span(),
                "a policy of too many networks",
                format!("more than {MAX_RULES} pairs"),
                "join neighbouring networks, or leave `source` or `destination` out",
            ));
            return None;
        }
        Some(rules)
    }

    /// Levels of the three services.
    pub(super) fn levels(
        &mut self,
        authentication: &Given<LevelValue>,
        transport_encryption: &Given<LevelValue>,
        tunnel_encryption: &Given<LevelValue>,
    ) -> Option<Levels> {
        let authentication = self.value(authentication, value::level);
        let transport_encryption = self.value(transport_encryption, value::level);
        let tunnel_encryption = self.value(tunnel_encryption, value::level);
        Some(Levels {
            authentication: authentication?,
            transport_encryption: transport_encryption?,
            tunnel_encryption: tunnel_encryption?,
        })
    }
}

/// A selector for each pair of networks of one IP version; no networks are all.
fn selectors<'a>(
    source: &'a [IpNet],
    destination: &'a [IpNet],
    upper: &'a Upper,
) -> impl Iterator<Item = Selector> + 'a {
    let sources = if source.is_empty() { any_of(destination) } else { source.to_vec() };
    let destinations = if destination.is_empty() { any_of(source) } else { destination.to_vec() };
    sources.into_iter().flat_map(move |source| {
        let is_ipv6 = source.addr().is_ipv6();
        let fitting = destinations.clone().into_iter().filter(move |destination| {
            destination.addr().is_ipv6() == is_ipv6 && fits_version(upper, is_ipv6)
        });
        fitting.map(move |destination| Selector { source, destination, upper: upper.clone() })
    })
}

/// What all children stand for: [`IpsecConfig::child_rules`](super::config::IpsecConfig::child_rules).
pub(super) fn of_children(remotes: &[Converted], own: Option<IpAddr>) -> Vec<Rule> {
    let (mut known, mut wide) = (Vec::new(), Vec::new());
    for remote in remotes {
        for child in &remote.children {
            let (local, there) = ends(child, remote, own);
            let rules = if local.is_empty() || there.is_empty() { &mut wide } else { &mut known };
            let levels = levels_of(child);
            for out in selectors(&local, &there, &child.upper) {
                let action = Action::Protect { levels, tunnel: None };
                let back = reversed(&out);
                rules.push(Rule { direction: Direction::Out, selector: out, action });
                rules.push(Rule { direction: Direction::In, selector: back, action });
            }
        }
    }
    known.append(&mut wide);
    known
}

/// What a child connects, as far as it is known; nothing, where it is not.
pub(super) fn ends(child: &Child, remote: &Converted, own: Option<IpAddr>) -> (Vec<IpNet>, Vec<IpNet>) {
    let hosts = |addresses: &[IpAddr]| addresses.iter().copied().map(IpNet::from).collect::<Vec<_>>();
    let or = |nets: &[IpNet], other: Vec<IpNet>| if nets.is_empty() { other } else { nets.to_vec() };
    let mut given = hosts(&remote.peer.assigned.addresses);
    given.extend(&remote.remote.pool);
    let there = match literal(remote.remote.address.as_ref()) {
        _ if !given.is_empty() => given,
        Some(address) => hosts(&[address]),
        None => Vec::new(),
    };
    let own = own.filter(|_| !remote.peer.request_addresses);
    (or(&child.local, hosts(own.as_slice())), or(&child.remote, there))
}

/// How well a child protects.
fn levels_of(child: &Child) -> Levels {
    let require = Level::Require;
    match (child.config.algorithms.protocol, child.config.mode) {
        (ChildProtocol::Ah, _) => Levels { authentication: require, ..Levels::NONE },
        (ChildProtocol::Esp, Mode::Transport) => Levels { transport_encryption: require, ..Levels::NONE },
        (ChildProtocol::Esp, Mode::Tunnel) => Levels { tunnel_encryption: require, ..Levels::NONE },
    }
}

/// The same packets on their way back.
fn reversed(selector: &Selector) -> Selector {
    let upper = match &selector.upper {
        Upper::Ports { protocol, source, destination } => {
            Upper::Ports { protocol: *protocol, source: destination.clone(), destination: source.clone() }
        }
        other => other.clone(),
    };
    Selector { source: selector.destination, destination: selector.source, upper }
}

/// Whether some packets are of both kinds.
pub(super) fn overlap(one: &Upper, other: &Upper) -> bool {
    fn meet<T: Ord>(one: &std::ops::RangeInclusive<T>, other: &std::ops::RangeInclusive<T>) -> bool {
        one.start() <= other.end() && other.start() <= one.end()
    }
    let number = |upper: &Upper| match upper {
        Upper::Any => None,
        Upper::Protocol(protocol) | Upper::Ports { protocol, .. } | Upper::Icmp { protocol, .. } => {
            Some(*protocol)
        }
    };
    if let (Some(one), Some(other)) = (number(one), number(other))
        && one != other
    {
        return false;
    }
    match (one, other) {
        (
            Upper::Ports { source, destination, .. },
            Upper::Ports { source: other_source, destination: other_destination, .. },
        ) => meet(source, other_source) && meet(destination, other_destination),
        (Upper::Icmp { types, codes, .. }, Upper::Icmp { types: other_types, codes: other_codes, .. }) => {
            meet(types, other_types) && meet(codes, other_codes)
        }
        _ => true,
    }
}

/// The rules of all `[[policy]]` tables, in their order; None if one of them cannot be.
pub(super) fn of_file(tables: &[Spanned<PolicyTable>], converter: &mut Converter<'_>) -> Option<Vec<Rule>> {
    let rules: Vec<_> = tables.iter().map(|table| converter.ipsec_policy(table.get_ref())).collect();
    rules.into_iter().collect::<Option<Vec<_>>>().map(|rules| rules.concat())
}

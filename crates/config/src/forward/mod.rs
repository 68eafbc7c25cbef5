//! `[[forward]]`: ports of an uplink's IPv4 address that lead to a host inside.

pub(crate) mod table;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

use ipnet::IpNet;
use router::firewall::service::{Service, protocol};
use router::firewall::{Policy, Rule, Verdict, ZoneRef, ZoneSet};
use router::forward::{Forward, Ports, Through};
use router::site::{Network, Site, Uplink};
use toml::Spanned;

use crate::converter::Converter;
use crate::document::Document;
use crate::firewall::table::OneOrMany;
use crate::firewall::{regions_meet, resolve_addresses};
use crate::report::Finding;
use crate::value::{self, Problem, problem};
use table::ForwardTable;

impl Converter<'_> {
    /// The forwards of a site that has these uplinks and networks, and routes. None where one cannot be.
    pub(crate) fn forwards(&mut self, document: &Document, site: &Site) -> Option<Vec<Forward>> {
        let tables = document.forward.list();
        let forwards: Vec<_> =
            tables.iter().map(|table| self.forward(table.get_ref(), document, site)).collect();
        let forwards = forwards.into_iter().collect::<Option<Vec<_>>>()?;
        let mut good = true;
        for (place, forward) in forwards.iter().enumerate() {
            good &= self.is_first(&forwards[..place], forward, tables);
            good &= !self.is_of_the_gateway(document, forward, &tables[place]);
        }
        good.then_some(forwards)
    }

    fn forward(&mut self, given: &ForwardTable, document: &Document, site: &Site) -> Option<Forward> {
        let name = self.optional(&given.name, value::peer_name);
        let uplinks = self.through(given, site);
        let protocols = self.value(&given.protocol, protocols);
        let ports = self.value(&given.port, |words| words.iter().map(|word| port(word)).collect());
        let to = self.value(&given.to, |text| host(text, given, document));
        let sources = self.optional(&given.from, |words| {
            let found = resolve_addresses(document, words)?;
            let sources: Vec<_> = found
                .into_iter()
                .filter(|set| set.family() == router::firewall::address::Family::V4)
                .collect();
            if sources.is_empty() {
                return problem(
                    "no IPv4 address",
                    "only IPv4 is forwarded: write who may use it, like \"198.51.100.0/24\"",
                );
            }
            Ok(sources)
        });
        let (protocols, ranges): (Vec<u8>, Vec<(u16, u16)>) = (protocols?, ports?);
        let ports: Vec<Ports> = protocols
            .iter()
            .flat_map(|protocol| {
                ranges.iter().map(|(first, last)| Ports { protocol: *protocol, first: *first, last: *last })
            })
            .collect();
        if ports.is_empty() {
            let problem =
                Problem { label: "an empty list".to_owned(), help: "write a port, like 443".to_owned() };
            let (place, key) = if ranges.is_empty() {
                (given.port.span(), "port")
            } else {
                (given.protocol.span(), "protocol")
            };
            self.refuse(place, key, problem);
            return None;
        }
        let (to, to_port) = to?;
        if to_port.is_some() && (ranges.len() > 1 || ranges[0].0 != ranges[0].1) {
            let help =
                "leave the port out of `to`, so that each keeps its number, or write a [[forward]] for each";
            let label = "one port for several".to_owned();
            self.refuse(given.to.span(), "to", Problem { label, help: help.to_owned() });
            return None;
        }
        let towards = self.towards(given, to, site)?;
        Some(Forward {
            name: name?.unwrap_or_else(|| Service::from(ports[0]).to_string()),
            uplinks: uplinks?,
            // The same port need not be written twice.
            to_port: to_port.filter(|port| *port != ranges[0].0),
            ports,
            to,
            towards,
            sources: sources?.unwrap_or_default(),
            log: given.log.is_true(),
        })
    }

    /// The uplinks that it names, or all that masquerade.
    fn through(&mut self, given: &ForwardTable, site: &Site) -> Option<Vec<Through>> {
        let through =
            |uplink: &Uplink| Through { name: uplink.name.clone(), interface: uplink.interface.clone() };
        let masquerading: Vec<&Uplink> = site.uplinks.iter().filter(|uplink| uplink.masquerade).collect();
        let named = self.optional(&given.uplink, |words| {
            let found = words.iter().map(|word| {
                let uplink = site.uplinks.iter().find(|uplink| uplink.name == word);
                match uplink {
                    Some(uplink) if uplink.masquerade => Ok(through(uplink)),
                    Some(_) => problem(
                        format!("{word:?} does not masquerade"),
                        "add `masquerade = true` to that [[uplink]]: its IPv4 address is what leads to the host",
                    ),
                    None => {
                        let names: Vec<_> = masquerading.iter().map(|uplink| uplink.name.as_str()).collect();
                        problem(format!("{word:?} is no uplink"), format!("there are {}", names.join(", ")))
                    }
                }
            });
            let found = found.collect::<Result<Vec<_>, Problem>>()?;
            if found.is_empty() {
                return problem("an empty list", "leave the key out for all that masquerade");
            }
            Ok(found)
        })?;
        if named.is_none() && masquerading.is_empty() {
            self.report(Finding::error(
                given.uplink.table.span.clone(),
                format!("{} is reached through no uplink", given.uplink.table.owner),
                "no uplink masquerades",
                "add `masquerade = true` to the [[uplink]] whose IPv4 address leads to the host",
            ));
            return None;
        }
        Some(named.unwrap_or_else(|| masquerading.into_iter().map(through).collect()))
    }

    /// The interface of the network that the host is in, or that leads to it.
    fn towards(&mut self, given: &ForwardTable, to: Ipv4Addr, site: &Site) -> Option<String> {
        let with = |network: &&Network| network.ipv4.is_some_and(|net| net.contains(&to));
        if let Some(network) = site.networks.iter().find(with) {
            let net = network.ipv4?;
            let why = if net.addr() == to {
                Some("the gateway's own address")
            } else if net.prefix_len() < 31 && [net.network(), net.broadcast()].contains(&to) {
                Some("the address of a whole network")
            } else {
                None
            };
            let Some(label) = why else { return Some(network.interface.clone()) };
            let help = "write the host's; what the gateway itself serves needs a [[firewall.rule]] with to = \"gateway\"";
            self.refuse(given.to.span(), "to", Problem { label: label.to_owned(), help: help.to_owned() });
            return None;
        }
        let inner = |interface: &str| site.networks.iter().any(|network| network.interface == interface);
        let routes = site.routes.iter().filter(|route| {
            matches!(route.to, IpNet::V4(net) if net.contains(&to)) && inner(&route.interface)
        });
        if let Some(route) = routes.max_by_key(|route| route.to.prefix_len()) {
            return Some(route.interface.clone());
        }
        let networks = site
            .networks
            .iter()
            .filter_map(|network| Some(format!("{} ({})", network.ipv4?.trunc(), network.name)));
        let networks: Vec<_> = networks.collect();
        let help = if networks.is_empty() {
            "give its [[network]] an IPv4 address: ipv4 = \"192.168.1.1/24\"".to_owned()
        } else {
            format!("the networks are {}; a [[route]] leads to others behind them", networks.join(", "))
        };
        self.refuse(
            given.to.span(),
            "to",
            Problem { label: "in no network of this gateway".to_owned(), help },
        );
        None
    }

    /// Whether none of the earlier ones has its name or takes its packets.
    fn is_first(&mut self, earlier: &[Forward], forward: &Forward, tables: &[Spanned<ForwardTable>]) -> bool {
        let second = tables[earlier.len()].get_ref();
        for (other, table) in earlier.iter().zip(tables) {
            let found = if let Some(shared) = other.clash(forward) {
                let title = format!("{} leads to two hosts", Service::from(shared));
                let help = "give one of them another port, another `uplink`, or other sources with `from`";
                Finding::error(second.port.span_or_table(), title, "the second", help)
                    .related(table.get_ref().port.span_or_table(), "the first")
            } else if other.name == forward.name {
                let title = format!("two forwards are named {:?}", forward.name);
                let help = "give each a `name` of its own";
                Finding::error(second.name.span_or_table(), title, "the second", help)
                    .related(table.get_ref().name.span_or_table(), "the first")
            } else {
                continue;
            };
            self.report(found);
            return false;
        }
        true
    }

    /// Whether it would take what is for the gateway itself.
    fn is_of_the_gateway(
        &mut self,
        document: &Document,
        forward: &Forward,
        table: &Spanned<ForwardTable>,
    ) -> bool {
        const DHCP_CLIENT: u16 = 68;
        let one = |protocol, port| Ports { protocol, first: port, last: port };
        let served = document.reach.get().map_or(&[][..], |reach| reach.serves.list());
        let served = served.iter().filter_map(|place| match place.get_ref().parse() {
            Ok(SocketAddr::V4(place)) => Some((one(protocol::TCP, place.port()), "the fleet's agent")),
            _ => None,
        });
        let client = (one(protocol::UDP, DHCP_CLIENT), "the uplink's DHCP client");
        let mut own = served.chain([client]);
        let found = own.find(|(own, _)| forward.ports.iter().any(|ports| ports.shared(*own).is_some()));
        let Some((ports, whose)) = found else { return false };
        let title = format!("{} is the gateway's own", Service::from(ports));
        let help = "forward another port: this one would not reach the gateway any more";
        self.report(Finding::error(table.get_ref().port.span_or_table(), title, whose, help));
        true
    }

    /// Refuses a forward that takes what a rule lets in to the gateway itself: something listens there. `rules`: where the
    /// policy's rules are.
    pub(crate) fn forwards_fit_rules(
        &mut self,
        document: &Document,
        policy: &Policy,
        rules: &[Range<usize>],
    ) -> bool {
        let mut good = true;
        for (forward, table) in policy.settings().forwards.iter().zip(document.forward.list()) {
            let zones = forward
                .uplinks
                .iter()
                .filter_map(|through| policy.zone_of(&through.interface, IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
            let zones: Vec<ZoneRef> = zones.collect();
            // As it comes to the gateway: its ports there, and no destination.
            let mut at_gateway = Rule::of_forward(forward, ZoneSet::Any, ZoneSet::Any);
            at_gateway.destination = Some(vec![IpNet::V4(ipnet::Ipv4Net::default()).into()]);
            at_gateway.service = Some(forward.ports.iter().copied().map(Service::from).collect());
            let own = policy.rules().iter().zip(rules).find(|(rule, _)| {
                let to_gateway = matches!(&rule.to, ZoneSet::Of(to) if to.contains(&ZoneRef::Gateway));
                let from_there = zones.iter().any(|zone| rule.from.contains(*zone));
                // One that is about every port says nothing of what listens.
                let names_ports = rule.service.as_ref().is_some_and(|services| {
                    services.iter().all(|service| matches!(service, Service::Ports(..)))
                });
                let opens = rule.action == Verdict::Accept && to_gateway && from_there && names_ports;
                opens && regions_meet(rule, &at_gateway)
            });
            let Some((_, place)) = own else { continue };
            good = false;
            let help = "forward another port, or remove the rule: what comes to this port goes to the host, and the \
                        gateway does not see it";
            self.report(
                Finding::error(
                    table.get_ref().port.span_or_table(),
                    format!(
                        "forward {:?} takes a port that a rule opens at the gateway itself",
                        forward.name
                    ),
                    "",
                    help,
                )
                .related(place.clone(), "lets it in to the gateway"),
            );
        }
        good
    }
}

fn protocols(words: &OneOrMany) -> Result<Vec<u8>, Problem> {
    let number = |word: &str| match word {
        "tcp" => Ok(protocol::TCP),
        "udp" => Ok(protocol::UDP),
        _ => problem(format!("{word:?} cannot be forwarded"), r#"write "tcp", "udp", or ["tcp", "udp"]"#),
    };
    words.iter().map(number).collect()
}

/// The first and the last port.
fn port(text: &str) -> Result<(u16, u16), Problem> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Ok((first, last)),
        _ => problem(
            format!("{text:?} is not a port or a range of ports"),
            r#"ports are 1 to 65535; a range is "8000-8010""#,
        ),
    }
}

/// The host, and the port there.
fn host(text: &str, given: &ForwardTable, document: &Document) -> Result<(Ipv4Addr, Option<u16>), Problem> {
    let (address, port) = match (text.parse::<IpAddr>(), text.parse::<SocketAddr>()) {
        (Ok(address), _) => (address, None),
        (_, Ok(place)) if place.port() > 0 => (place.ip(), Some(place.port())),
        _ if text.starts_with("*:") => return problem(TRANSLATED, rule_for(text, given, document)),
        _ => {
            return problem(
                "not an address, and none with a port",
                r#"write the host's, like "192.168.1.5", or with a port, "192.168.1.5:8443""#,
            );
        }
    };
    match address {
        IpAddr::V4(address) => Ok((address, port)),
        IpAddr::V6(address) => problem(TRANSLATED, rule_for(&address.to_string(), given, document)),
    }
}

const TRANSLATED: &str = "an IPv6 host is reached at its own address, which is not translated";

/// The rule that does for an IPv6 host what a forward does for IPv4.
fn rule_for(destination: &str, given: &ForwardTable, document: &Document) -> String {
    let zones = document.zone.list().iter().map(Spanned::get_ref);
    let outside = zones.filter(|zone| zone.trust.text() == Some("outside")).find_map(|zone| zone.name.text());
    let ports = given.port.get().map_or(&[][..], |words| &words.0[..]);
    let protocols = given.protocol.get().into_iter().flat_map(OneOrMany::iter);
    let services: Vec<_> =
        protocols.flat_map(|name| ports.iter().map(move |port| format!("\"{name}/{port}\""))).collect();
    let services = match &services[..] {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    format!(
        "write a rule in place of the forward: [[firewall.rule]] with from = \"{}\", destination = \"{destination}\", \
         service = {services}, action = \"accept\"",
        outside.unwrap_or("wan")
    )
}

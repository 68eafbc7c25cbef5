//! `[reach]`: what a fleet says of who may open connections to whom, as its agent writes it. Here it becomes rules of the firewall,
//! before those of the file: connections that the fleet does not allow no rule allows.

use std::net::SocketAddr;

use ipnet::IpNet;
use router::firewall::address::Address;
use router::firewall::service::Service;
use router::firewall::{Rule, Verdict, Zone, ZoneRef, ZoneSet};

use crate::converter::Converter;
use crate::document::Document;
use crate::value::{Problem, inner_prefix, problem};

/// TCP.
const TCP: u8 = 6;

impl Converter<'_> {
    /// Adds networks of the fleet's zones to those of the file that are free for it, with the tunnel's device.
    pub(super) fn zones_of_fleet(
        &mut self,
        document: &Document,
        device: Option<&str>,
        zones: &mut [Zone],
        is_free: &[bool],
    ) -> bool {
        let (Some(table), Some(device)) = (document.reach.get(), device) else { return true };
        let mut good = true;
        for (name, words) in table.zones.get().into_iter().flatten() {
            let networks: Result<Vec<IpNet>, Problem> = words.get_ref().iter().map(inner_prefix).collect();
            let networks = match networks {
                Ok(networks) => networks,
                Err(problem) => {
                    good = false;
                    self.refuse(words.span(), "zones", problem);
                    continue;
                }
            };
            let mut named = zones.iter_mut().zip(is_free);
            let Some((zone, _)) = named.find(|(zone, is_free)| zone.name == *name && **is_free) else {
                continue;
            };
            zone.networks.extend(networks);
            if zone.interfaces.is_empty() {
                zone.interfaces.push(device.to_owned());
            }
        }
        good
    }

    /// The rules that hold before all others; None where something is wrong. `zones`: how many there are.
    pub(super) fn rules_of_fleet(
        &mut self,
        document: &Document,
        refuse: Verdict,
        zones: usize,
    ) -> Option<Vec<Rule>> {
        let table = document.reach.get()?;
        let own = self.each(&table.own, address);
        let answers_only = self.each(&table.answers_only, address);
        let asks_only = self.each(&table.asks_only, address);
        let agents = self.each(&table.agents, address);
        let serves = self.each(&table.serves, place);
        let (own, agents) = (own?, agents?);
        // The gateway's agent asks everywhere.
        let hosts = ZoneSet::Of((0..zones).map(ZoneRef::Zone).collect());
        let mut rules = Vec::new();
        let mut add = |from, source: &[Address], destination: &[Address], service, comment: &str, action| {
            if !source.is_empty() && !destination.is_empty() {
                rules.push(Rule {
                    from,
                    to: ZoneSet::Any,
                    source: Some(source.to_vec()),
                    destination: Some(destination.to_vec()),
                    service,
                    rate: None,
                    schedule: None,
                    forwarded: false,
                    log: false,
                    comment: comment.to_owned(),
                    action,
                });
            }
        };
        for place in serves? {
            let (at, port) = (Address::from(place.ip()), place.port());
            let service = Some(vec![Service::Ports(TCP, port, port)]);
            add(ZoneSet::Any, &agents, &[at], service, "fleet: its agents", Verdict::Accept);
        }
        add(ZoneSet::Any, &answers_only?, &own, None, "fleet: sites that only answer this one", refuse);
        add(hosts, &own, &asks_only?, None, "fleet: sites that only ask this one", refuse);
        Some(rules)
    }
}

fn address(text: &str) -> Result<Address, Problem> {
    let read = text.parse::<Address>();
    read.or_else(|error| problem(error.to_string(), "write a network or an address, like fd00:1::/64"))
}

fn place(text: &str) -> Result<SocketAddr, Problem> {
    let read = text.parse::<SocketAddr>();
    read.or_else(|_| problem("no address and port", r#"write them like "[fd00:1::1]:4161""#))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use router::firewall::{Packet, evaluate};

    const FILE: &str = r#"
[node]
private_key = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
external = "eth0"
hop_prefix = "2001:db8:a1::/64"
[[peer]]
name = "hub"
public_key = "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="
hop_prefix = "2001:db8:b1::/64"
allowed_ips = ["fd00:2::/64", "fd00:3::/64", "fd00:4::/64"]
[[zone]]
name = "wan"
trust = "outside"
interfaces = ["eth0"]
[[zone]]
name = "lan"
trust = "inside"
interfaces = ["eth1"]
[[zone]]
name = "office"
trust = "inside"
[[zone]]
name = "sensors"
trust = "guest"
[[firewall.rule]]
from = "sensors"
to = "lan"
service = "tcp/443"
action = "accept"
[reach]
own = ["fd00:1::/64"]
answers_only = ["fd00:3::/64"]
asks_only = ["fd00:2::/64"]
agents = ["fd00:3::1"]
serves = ["[fd00:1::1]:4161"]
zones = { office = ["fd00:2::/64"], sensors = ["fd00:3::/64"], lan = ["fd00:4::/64"], unknown = ["fd00:4::/64"] }
"#;

    fn parse(text: &str) -> Result<crate::Config, String> {
        let read_key = |_: &Path| Err(crate::KeyFileError::Missing);
        crate::parse(text, Path::new("mt6d0.toml"), &read_key).map_err(|report| report.to_string())
    }

    #[test]
    fn a_fleet_says_who_opens_connections_and_the_file_what_its_zones_may() {
        let gateway = parse(FILE).unwrap().gateway.unwrap();
        let policy = gateway.firewall.unwrap().policy;
        let verdict =
            |words: &str| evaluate(&policy, &Packet::parse(words, &policy).unwrap()).verdict.to_string();
        for (packet, expected) in [
            ("tcp from fd00:2::5 to fd00:1::9 port 443 in office out lan", "accept"),
            ("tcp from fd00:1::9 to fd00:2::5 port 443 in lan out office", "reject"),
            ("tcp from fd00:1::9 to fd00:2::5 port 443 in lan out office established", "accept"),
            ("tcp from fd00:1::9 to fd00:3::5 port 443 in lan out sensors", "accept"),
            // The file would let it in.
            ("tcp from fd00:3::5 to fd00:1::9 port 443 in sensors out lan", "reject"),
            ("tcp from fd00:3::5 to fd00:1::9 port 443 in sensors out lan established", "accept"),
            ("tcp from fd00:3::1 to gateway port 4161 in sensors", "reject"),
            // What passes through this gateway is the business of its zones.
            ("tcp from fd00:3::5 to fd00:2::5 port 443 in sensors out office", "reject"),
            ("tcp from fd00:2::5 to fd00:3::5 port 443 in office out sensors", "accept"),
        ] {
            assert_eq!(verdict(packet), expected, "{packet}");
        }
        let agents = "tcp from fd00:3::1 to fd00:1::1 port 4161 in sensors out lan";
        assert_eq!(verdict(agents), "accept", "agents are heard");
        // Not what the agent would like to be inside.
        let networks =
            |name: &str| policy.zones().iter().find(|zone| zone.name == name).unwrap().networks.len();
        assert_eq!((networks("lan"), networks("office")), (0, 1));
    }

    #[test]
    fn what_an_agent_writes_wrongly_is_named() {
        for (from, to, said) in [
            ("fd00:3::1\"]\nserves", "x\"]\nserves", "`agents` cannot be used"),
            ("[fd00:1::1]:4161", "fd00:1::1", "`serves` cannot be used"),
            ("office = [\"fd00:2::/64\"]", "office = [\"fd00:2::5/64\"]", "`zones` cannot be used"),
            ("asks_only", "aks_only", "aks_only"),
        ] {
            let error = parse(&FILE.replace(from, to)).unwrap_err();
            assert!(error.contains(said), "{said}: {error}");
        }
    }
}

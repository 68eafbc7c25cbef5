//! What dnsmasq is told, one for each network: text that it reads as its only configuration.
//!
//! All that is written comes from values that the configuration has read: addresses, numbers, names of interfaces and
//! domains in letters, digits, `-`, `_` and dots. Nothing of it can begin another line, or mean something else to dnsmasq.

use std::fmt::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::settings::{Dhcp, Resolver};
use crate::site::{Network, Site};

/// Names that mean something special to hosts, which nobody gets by telling that it is called so (`wpad` decides about
/// proxies, VU#598349).
const NOT_FOR_HOSTS: [&str; 4] = [GATEWAY, "isatap", "localhost", "wpad"];
/// What the gateway is called in each network's domain.
pub const GATEWAY: &str = "gateway";
/// Domains that are nowhere else (RFC 8375, and what ICANN has set aside): questions about them do not go out.
const NOWHERE_ELSE: [&str; 2] = ["internal", "home.arpa"];
/// A name that has these addresses of IPv4 alone: who is told addresses of IPv6 for it knows the prefix of NAT64 (RFC 7050),
/// and who resolves names for others answers for it without asking (RFC 8880 section 7.1).
const IPV4_ONLY: (&str, [Ipv4Addr; 2]) =
    ("ipv4only.arpa", [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)]);
/// How long that holds, in seconds.
const IPV4_ONLY_TTL: u32 = 600;

/// The configuration for a network. `others`: the networks whose names its hosts may ask for. `index`: the kernel's number of
/// the interface; with another one dnsmasq has to begin anew, as its sockets are bound to that.
#[must_use]
pub fn configuration(site: &Site, network: &Network, others: &[&Network], index: u32) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_configuration(&mut text, site, network, others, index);
    text
}

fn write_configuration(
    text: &mut String,
    site: &Site,
    network: &Network,
    others: &[&Network],
    index: u32,
) -> fmt::Result {
    let interface = &network.interface;
    write!(
        text,
        "# Written by `sidestep up`, which ends dnsmasq and starts it when something here changes. Interface {index}.\n\
         user=\ngroup=\npid-file=\nlog-facility=-\nno-hosts\nno-resolv\n\
         interface={interface}\nexcept-interface=lo\nbind-dynamic\n"
    )?;
    match (&site.resolver, site.domain_of(network)) {
        (Some(resolver), Some(domain)) => write_names(text, site, network, others, resolver, &domain)?,
        _ => text.push_str("port=0\n"),
    }
    match &network.dhcp {
        Some(dhcp) => write_dhcp(text, network, dhcp),
        None => Ok(()),
    }
}

fn write_names(
    text: &mut String,
    site: &Site,
    network: &Network,
    others: &[&Network],
    resolver: &Resolver,
    domain: &str,
) -> fmt::Result {
    write!(
        text,
        "cache-size=1000\ndomain-needed\nbogus-priv\nstop-dns-rebind\n\
         domain={domain}\ninterface-name={GATEWAY}.{domain},{}\n",
        network.interface
    )?;
    if NOWHERE_ELSE
        .iter()
        .any(|known| resolver.domain == *known || resolver.domain.ends_with(&format!(".{known}")))
    {
        writeln!(text, "local=/{}/", resolver.domain)?;
    }
    for other in &site.networks {
        let Some(domain) = site.domain_of(other) else { continue };
        let asked = other.ipv4.filter(|_| others.iter().any(|known| known.name == other.name));
        let Some(net) = asked else {
            writeln!(text, "local=/{domain}/")?;
            continue;
        };
        writeln!(text, "server=/{domain}/{}\nrebind-domain-ok=/{domain}/", net.addr())?;
        // Before version 2.86 other lengths are refused; who asks then hears that there is no such name.
        if net.prefix_len() >= 8 && net.prefix_len() % 8 == 0 {
            writeln!(text, "rev-server={},{}", net.trunc(), net.addr())?;
        }
    }
    write_nat64(text, site, network)?;
    for domain in &resolver.private {
        writeln!(text, "rebind-domain-ok=/{domain}/")?;
    }
    for host in network.dhcp.iter().flat_map(|dhcp| &dhcp.hosts) {
        writeln!(text, "host-record={name}.{domain},{name},{}", host.address, name = host.name)?;
    }
    Ok(())
}

/// The prefix of NAT64 for those who ask for it by name: the network's own, or the gateway's. One that is no /96 has
/// addresses in other places, and is left to whom it belongs.
fn write_nat64(text: &mut String, site: &Site, network: &Network) -> fmt::Result {
    let own = network.advertise.as_ref().and_then(|advertise| advertise.nat64);
    let translated = site.nat64.as_ref().map(|nat64| nat64.prefix);
    let Some(prefix) = own.or(translated).filter(|prefix| prefix.prefix_len() == 96) else { return Ok(()) };
    let (name, addresses) = IPV4_ONLY;
    writeln!(text, "local=/{name}/")?;
    for address in addresses {
        let embedded = Ipv6Addr::from(prefix.network().to_bits() | u128::from(address.to_bits()));
        writeln!(text, "host-record={name},{address},{embedded},{IPV4_ONLY_TTL}")?;
    }
    Ok(())
}

fn write_dhcp(text: &mut String, network: &Network, dhcp: &Dhcp) -> fmt::Result {
    let Some(net) = network.ipv4 else { return Ok(()) };
    write!(
        text,
        "dhcp-authoritative\nquiet-dhcp\ndhcp-range={},{},{},{}\ndhcp-lease-max={}\ndhcp-ignore-names=tag:refused\n",
        dhcp.first,
        dhcp.last,
        net.netmask(),
        dhcp.lease.as_secs(),
        u64::from(dhcp.size()) + dhcp.hosts.len() as u64,
    )?;
    for name in NOT_FOR_HOSTS {
        // A host may tell its domain as well, which dnsmasq takes away only later: what ends in `*` begins so.
        write!(text, "dhcp-name-match=set:refused,{name}\ndhcp-name-match=set:refused,{name}.*\n")?;
    }
    for host in &dhcp.hosts {
        writeln!(text, "dhcp-host={},{},{}", host.mac, host.address, host.name)?;
    }
    if !dhcp.dns.is_empty() {
        writeln!(text, "dhcp-option=option:dns-server,{}", joined(&dhcp.dns))?;
    }
    let search = network.advertise.as_ref().map_or(&[][..], |advertise| &advertise.search_domains);
    if !search.is_empty() {
        writeln!(text, "dhcp-option=option:domain-search,{}", joined(search))?;
    }
    Ok(())
}

/// The file of those who are asked for other names, which dnsmasq reads again when it is told to (SIGHUP). Link-local
/// addresses come with their interface.
#[must_use]
pub fn servers(upstream: &[(SocketAddr, Option<&str>)]) -> String {
    let line = |(server, interface): &(SocketAddr, Option<&str>)| {
        let zone = interface.map(|interface| format!("%{interface}")).unwrap_or_default();
        format!("server={}{zone}#{}\n", server.ip(), server.port())
    };
    upstream.iter().map(line).collect()
}

fn joined(values: &[impl ToString]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::settings::{FixedHost, Upstream};
    use super::*;
    use crate::firewall::{Policy, Settings, Trust, Zone};
    use wire::ethernet::MacAddress;

    fn network(name: &str, number: u8) -> Network {
        let host = FixedHost {
            name: format!("printer{number}"),
            mac: MacAddress([2, 0, 0, 0, 0, number]),
            address: [192, 168, number, 5].into(),
        };
        Network {
            name: name.to_owned(),
            interface: format!("eth{number}"),
            subnet: None,
            host: 1,
            prefixes: Vec::new(),
            ipv4: Some(format!("192.168.{number}.1/24").parse().unwrap()),
            advertise: None,
            resolves: true,
            dhcp: Some(Dhcp {
                first: [192, 168, number, 128].into(),
                last: [192, 168, number, 254].into(),
                lease: Duration::from_secs(43_200),
                dns: Vec::new(),
                hosts: vec![host],
            }),
            port_mapping: None,
        }
    }

    fn site() -> Site {
        let resolver = Resolver {
            upstream: Upstream::Uplinks,
            domain: "internal".to_owned(),
            private: vec!["corp.example".to_owned()],
        };
        let networks = vec![network("office", 1), network("servers", 2), network("guests", 3)];
        Site { networks, resolver: Some(resolver), ..Site::default() }
    }

    fn policy() -> Policy {
        let zone = |name: &str, trust, interfaces: &[&str]| Zone {
            name: name.to_owned(),
            trust,
            interfaces: interfaces.iter().map(|name| (*name).to_owned()).collect(),
            networks: Vec::new(),
        };
        let zones =
            vec![zone("lan", Trust::Inside, &["eth1", "eth2"]), zone("guests", Trust::Guest, &["eth3"])];
        Policy::new(zones, Vec::new(), Settings::default()).unwrap()
    }

    fn told(site: &Site, number: usize, policy: Option<&Policy>) -> String {
        let network = &site.networks[number];
        let others: Vec<_> = site.known_to(network, policy).collect();
        configuration(site, network, &others, 7)
    }

    #[test]
    fn networks_inside_ask_each_other_and_guests_nobody() {
        let (site, policy) = (site(), policy());
        let office = told(&site, 0, Some(&policy));
        for expected in [
            "interface=eth1\n",
            "domain=office.internal\n",
            "server=/servers.internal/192.168.2.1\n",
            "rev-server=192.168.2.0/24,192.168.2.1\n",
            "local=/guests.internal/\n",
            "local=/internal/\n",
            "local=/office.internal/\n",
            "rebind-domain-ok=/corp.example/\n",
            "dhcp-range=192.168.1.128,192.168.1.254,255.255.255.0,43200\n",
            "dhcp-host=02:00:00:00:00:01,192.168.1.5,printer1\n",
            "host-record=printer1.office.internal,printer1,192.168.1.5\n",
            "dhcp-name-match=set:refused,wpad\n",
            "dhcp-name-match=set:refused,wpad.*\n",
        ] {
            assert!(office.contains(expected), "{expected}{office}");
        }
        let guests = told(&site, 2, Some(&policy));
        assert!(!guests.contains("server=/") && !guests.contains("192.168.1."), "{guests}");
        assert!(guests.contains("local=/office.internal/\n"), "{guests}");
        // Without a firewall everybody reaches everybody.
        assert!(told(&site, 2, None).contains("server=/office.internal/192.168.1.1\n"));
    }

    #[test]
    fn each_part_is_there_alone_where_the_other_is_not_wanted() {
        let mut site = site();
        site.networks[0].dhcp = None;
        let names = told(&site, 0, None);
        assert!(names.contains("stop-dns-rebind") && !names.contains("dhcp-"), "{names}");
        site.networks[1].resolves = false;
        site.networks[1].dhcp.as_mut().unwrap().dns = vec![[192, 0, 2, 53].into(), [192, 0, 2, 54].into()];
        let addresses = told(&site, 1, None);
        assert!(addresses.contains("port=0\n") && addresses.contains("dhcp-range="), "{addresses}");
        assert!(addresses.contains("dhcp-option=option:dns-server,192.0.2.53,192.0.2.54\n"), "{addresses}");
        assert!(!addresses.contains("domain="), "{addresses}");
        // A domain that is elsewhere as well is asked for there, but for its networks.
        site.resolver.as_mut().unwrap().domain = "office.example".to_owned();
        assert!(!told(&site, 0, None).contains("local=/office.example/"));
    }

    #[test]
    fn the_name_that_tells_of_nat64_is_there_where_that_is() {
        let mut site = site();
        assert!(!told(&site, 0, None).contains("ipv4only"));
        let pool = "198.18.0.0/16".parse().unwrap();
        site.nat64 = Some(crate::nat64::Nat64 { prefix: crate::nat64::WELL_KNOWN, pool });
        let told = told(&site, 0, None);
        for expected in
            ["local=/ipv4only.arpa/\n", "host-record=ipv4only.arpa,192.0.0.170,64:ff9b::c000:aa,600\n"]
        {
            assert!(told.contains(expected), "{expected}{told}");
        }
    }

    #[test]
    fn servers_have_their_port_and_link_local_ones_their_interface() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let text = servers(&[(at("[fe80::1]:53"), Some("wan0")), (at("127.0.0.1:5353"), None)]);
        assert_eq!(text, "server=fe80::1%wan0#53\nserver=127.0.0.1#5353\n");
    }
}

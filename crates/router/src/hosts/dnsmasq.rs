//! What dnsmasq is told, one for each network: text that it reads as its only configuration.
//!
//! All that is written comes from values that the configuration has read: addresses, numbers, names of interfaces and
//! domains in letters, digits, `-`, `_` and dots. Nothing of it can begin another line, or mean something else to dnsmasq.

use std::fmt::{self, Write as _};
use std::iter::once;
use std::net::SocketAddr;

use ipnet::Ipv6Net;

use super::settings::{Dhcp, Resolver};
use crate::dhcp6;
use crate::nat64::IPV4_ONLY;
use crate::site::{Network, Site};

/// Names that mean something special to hosts, which nobody gets by telling that it is called so (`wpad` decides about
/// proxies, VU#598349).
const NOT_FOR_HOSTS: [&str; 4] = [GATEWAY, "isatap", "localhost", "wpad"];
/// What the gateway is called in each network's domain.
pub const GATEWAY: &str = "gateway";
/// Domains that are nowhere else (RFC 8375, and what ICANN has set aside): questions about them do not go out.
const NOWHERE_ELSE: [&str; 2] = ["internal", "home.arpa"];
/// How long the prefix of NAT64 holds that the name for it tells, in seconds.
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
    // Where a name of `dhcp-host` has an IPv6 address and no IPv4 one, dnsmasq takes the host for one of another network, and
    // gives it neither: the short name has none itself, and leads to the whole one.
    for dhcp6::FixedHost { name, .. } in hosts_of_dhcp6(network) {
        if !is_of_dhcp(network, name) {
            writeln!(text, "cname={name},{name}.{domain}")?;
        }
    }
    Ok(())
}

fn hosts_of_dhcp6(network: &Network) -> impl Iterator<Item = &dhcp6::FixedHost> {
    network.dhcp6.iter().flat_map(|dhcp6| &dhcp6.hosts)
}

/// Whether a host of DHCP with a fixed address has this name.
fn is_of_dhcp(network: &Network, name: &str) -> bool {
    network.dhcp.iter().flat_map(|dhcp| &dhcp.hosts).any(|host| host.name.eq_ignore_ascii_case(name))
}

/// The prefix of NAT64 for those who ask for it by name (RFC 7050, RFC 8880): the network's own, or the gateway's.
fn write_nat64(text: &mut String, site: &Site, network: &Network) -> fmt::Result {
    let own = network.advertise.as_ref().and_then(|advertise| advertise.nat64);
    let translated = site.nat64.as_ref().map(|nat64| nat64.prefix);
    let Some(prefix) = own.or(translated) else { return Ok(()) };
    let (name, addresses) = IPV4_ONLY;
    writeln!(text, "local=/{name}/")?;
    for address in addresses {
        writeln!(text, "host-record={name},{address},{},{IPV4_ONLY_TTL}", prefix.embed(address))?;
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
    // A host with a name of its own has that by `dhcp-host`, whatever it says.
    for name in NOT_FOR_HOSTS.into_iter().chain(hosts_of_dhcp6(network).map(|host| host.name.as_str())) {
        // A host may tell its domain as well, which dnsmasq takes away only later: what ends in `*` begins so.
        write!(text, "dhcp-name-match=set:refused,{name}\ndhcp-name-match=set:refused,{name}.*\n")?;
    }
    for host in &dhcp.hosts {
        writeln!(text, "dhcp-host={},{},{}", host.mac, host.address, host.name)?;
    }
    for dhcp6::FixedHost { name, identity, .. } in hosts_of_dhcp6(network) {
        if let Some(mac) = identity.mac()
            && !is_of_dhcp(network, name)
            && !dhcp.hosts.iter().any(|host| host.mac == mac)
        {
            writeln!(text, "dhcp-host={mac},{name}")?;
        }
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

/// The file of names with IPv6 addresses, which dnsmasq reads again when it is told to (SIGHUP), as those change with the
/// uplinks' prefixes: of hosts of the network, and of those of `others`, which need not be asked then. `prefixes` are those in
/// which a network's hosts are to be found now.
#[must_use]
pub fn names(
    site: &Site,
    network: &Network,
    others: &[&Network],
    prefixes: impl Fn(&Network) -> Vec<Ipv6Net>,
) -> String {
    let mut text = String::new();
    for of in once(network).chain(others.iter().copied()) {
        let Some(domain) = site.domain_of(of) else { continue };
        let prefixes = prefixes(of);
        for host in hosts_of_dhcp6(of) {
            let is_short = of.name == network.name && is_of_dhcp(of, &host.name);
            // Backwards it is called by the first.
            let short = if is_short { format!(" {}", host.name) } else { String::new() };
            for address in prefixes.iter().filter_map(|prefix| host.address_in(*prefix)) {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "{address} {}.{domain}{short}", host.name);
            }
        }
    }
    text
}

/// The file of those who are asked for other names, which dnsmasq reads again, too. Link-local addresses come
/// with their interface.
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
            dhcp6: None,
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

    /// A host of DHCPv6 in each network, with the same name.
    fn with_hosts_of_dhcp6(mut site: Site) -> Site {
        for (number, network) in (1..).zip(&mut site.networks) {
            let identity = dhcp6::Identity::Mac(MacAddress([2, 0, 0, 0, 1, number]));
            let hosts = vec![dhcp6::FixedHost { name: "nas".to_owned(), identity, host: 5 }];
            network.dhcp6 = Some(dhcp6::Settings { delegate: None, hosts });
        }
        site
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
    fn hosts_of_dhcp6_have_names_in_the_prefixes_of_now_for_those_who_may_know_them() {
        let (site, policy) = (with_hosts_of_dhcp6(site()), policy());
        let prefixes = |network: &Network| {
            let number = network.interface.trim_start_matches("eth");
            [
                format!("2001:db8:{number}::/64"),
                format!("fd00:{number}::/64"),
                format!("2001:db8:{number}::/56"),
            ]
            .map(|prefix| prefix.parse().unwrap())
            .to_vec()
        };
        let names = |number: usize| {
            let network: &Network = &site.networks[number];
            let others: Vec<_> = site.known_to(network, Some(&policy)).collect();
            names(&site, network, &others, prefixes)
        };
        assert_eq!(
            names(0),
            "2001:db8:1::5 nas.office.internal\nfd00:1::5 nas.office.internal\n\
             2001:db8:2::5 nas.servers.internal\nfd00:2::5 nas.servers.internal\n"
        );
        assert_eq!(names(2), "2001:db8:3::5 nas.guests.internal\nfd00:3::5 nas.guests.internal\n");
    }

    #[test]
    fn names_of_hosts_of_dhcp6_are_nobodys_else_by_dhcp() {
        let mut site = with_hosts_of_dhcp6(site());
        let told_of = |site: &Site| told(site, 0, None);
        let office = told_of(&site);
        for expected in [
            "dhcp-name-match=set:refused,nas\n",
            "dhcp-name-match=set:refused,nas.*\n",
            "dhcp-host=02:00:00:00:01:01,nas\n",
            "cname=nas,nas.office.internal\n",
        ] {
            assert!(office.contains(expected), "{expected}{office}");
        }
        // Who has an address by one of them has it once.
        let fixed = &mut site.networks[0].dhcp.as_mut().unwrap().hosts[0];
        fixed.mac = MacAddress([2, 0, 0, 0, 1, 1]);
        let same_mac = told_of(&site);
        assert_eq!(same_mac.matches("dhcp-host=").count(), 1, "{same_mac}");
        let fixed = &mut site.networks[0].dhcp.as_mut().unwrap().hosts[0];
        (fixed.mac, fixed.name) = (MacAddress([2, 0, 0, 0, 9, 9]), "NAS".to_owned());
        let same_name = told_of(&site);
        assert!(same_name.contains("dhcp-host=02:00:00:00:09:09,192.168.1.5,NAS\n"), "{same_name}");
        assert_eq!(same_name.matches("dhcp-host=").count(), 1, "{same_name}");
        // The short name has addresses of both, as the whole one has.
        assert!(!same_name.contains("cname="), "{same_name}");
        let network = &site.networks[0];
        let names = names(&site, network, &[], |_| vec!["2001:db8::/64".parse().unwrap()]);
        assert_eq!(names, "2001:db8::5 nas.office.internal nas\n");
    }

    #[test]
    fn the_name_that_tells_of_nat64_is_there_where_that_is() {
        let mut site = site();
        assert!(!told(&site, 0, None).contains("ipv4only"));
        let pool = "198.18.0.0/16".parse().unwrap();
        site.nat64 = Some(crate::nat64::Nat64 { prefix: crate::nat64::Prefix::WELL_KNOWN, pool });
        let told = told(&site, 0, None);
        for expected in
            ["local=/ipv4only.arpa/\n", "host-record=ipv4only.arpa,192.0.0.170,64:ff9b::c000:aa,600\n"]
        {
            assert!(told.contains(expected), "{expected}{told}");
        }
        let prefix = crate::nat64::Prefix::new("2001:db8:122:344::/64".parse().unwrap()).unwrap();
        site.nat64 = Some(crate::nat64::Nat64 { prefix, pool });
        let told = super::tests::told(&site, 0, None);
        assert!(told.contains(",192.0.0.170,2001:db8:122:344:c0:0:aa00:0,600\n"), "{told}");
    }

    #[test]
    fn servers_have_their_port_and_link_local_ones_their_interface() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let text = servers(&[(at("[fe80::1]:53"), Some("wan0")), (at("127.0.0.1:5353"), None)]);
        assert_eq!(text, "server=fe80::1%wan0#53\nserver=127.0.0.1#5353\n");
    }
}

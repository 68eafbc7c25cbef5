//! `[[network]]`: a link with hosts.

use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};
use router::advertise::Settings as Advertising;
use router::hosts::Resolver;
use router::site::{Advertise, DnsServers, Network};
use toml::Spanned;
use toml::de::DeValue;
use wire::ndp::Preference;

use crate::converter::Converter;
use crate::dhcp::table::DhcpTable;
use crate::dhcp6::table::Dhcp6Table;
use crate::key::Absent::{Default, Otherwise, Required};
use crate::port_mapping::table::PortMappingTable;
use crate::report::Report;
use crate::section::{Period, Value, mismatch, section};
use crate::value::{
    self, Problem, duration, ipv6_address, ipv6_prefix, nat64_prefix, problem, routed_prefix,
};

section! {
    /// `[[network]]`, as it stands in the file.
    NetworkTable = "[[network]]" {
        /// The interface.
        interface: String = Required(r#"the interface, like "eth1""#);
        /// Its name in `status` and the log.
        name: String = Otherwise("the interface's");
        /// Its firewall [zone](firewall.md#zones).
        zone: String = Otherwise("`\"lan\"` if the file has no `[[zone]]`");
        /// Which /64 of each uplink's prefix this network uses. Set it if the order may change: a different subnet
        /// renumbers the hosts.
        subnet: i64 = Otherwise("its position in the file, from 0");
        /// `false`: use none of the uplinks' prefixes.
        delegated: bool = Default("true");
        /// The lower 64 bits of the gateway's own addresses.
        host: String = Default(r#""::1""#);
        /// Permanent /64s of this network; unique local ones (`fd…`) keep hosts connected to each other when no uplink
        /// works.
        prefixes: Vec<Spanned<String>> = Otherwise("none");
        /// The gateway's IPv4 address, with prefix length. Hosts get theirs by `dhcp`, or from [your DHCP
        /// server](gateway.md#ipv4-beside-it).
        ipv4: String = Otherwise("none");
        /// Hosts are leased [IPv4 addresses](gateway.md#networkdhcp-ipv4-addresses-for-hosts). `{}` is enough.
        dhcp: DhcpTable = Otherwise("none");
        /// Hosts are given fixed IPv6 addresses, and routers behind this one prefixes, by
        /// [DHCPv6](gateway.md#networkdhcp6-addresses-for-hosts-prefixes-for-routers).
        dhcp6: Dhcp6Table = Otherwise("none");
        /// Hosts may have [ports opened](gateway.md#networkport_mapping-ports-that-hosts-open) by PCP or NAT-PMP. `{}` is enough.
        port_mapping: PortMappingTable = Otherwise("none");
        /// `false`: send no router advertisements.
        advertise: bool = Default("true");
        /// The longest time between two advertisements, 4 s to 1800 s. Solicitations are answered within half a second,
        /// at least three seconds apart.
        advertise_interval: Period = Default(r#""600s""#);
        /// `"low"`, `"high"`: which router hosts prefer if there are several on the link.
        preference: String = Default(r#""medium""#);
        /// Hosts get addresses from your DHCPv6 server; with hosts in `dhcp6` they are told so in any case.
        managed: bool = Default("false");
        /// Hosts get other settings from your DHCPv6 server; with `dhcp6` they are told so in any case.
        other_configuration: bool = Default("false");
        /// DNS servers for hosts (RFC 8106): those of the working uplinks (except link-local ones), `"gateway"` (its
        /// own address, where the resolver of [`[dns]`](gateway.md#dns-names) listens, or one that you run), or a list.
        dns: Dns = Otherwise("`\"gateway\"` with `[dns]`, otherwise `\"uplinks\"`");
        /// DNS search domains.
        search: Vec<Spanned<String>> = Otherwise("the network's own domain with `[dns]`, otherwise none");
        /// The NAT64 prefix (RFC 8781).
        nat64: String = Otherwise("none");
        /// The link MTU to advertise.
        mtu: i64 = Otherwise("none");
        /// Networks that hosts reach through the gateway even without an uplink (RFC 4191).
        routes: Vec<Spanned<String>> = Otherwise("none");
        /// Link-local addresses of routers that are expected on the link. Any other router that advertises itself is
        /// reported as rogue in the log and by `status`.
        other_routers: Vec<Spanned<String>> = Otherwise("none");
    }
}

/// `"uplinks"`, `"gateway"`, or addresses.
#[derive(Debug)]
pub(crate) enum Dns {
    Word(String),
    Addresses(Vec<String>),
}

impl Value for Dns {
    type Seen<'v> = &'v Self;
    const EXPECTED: &'static str = "\"uplinks\", \"gateway\", or a list of addresses";

    fn read(value: &Spanned<DeValue<'_>>, report: &mut Report) -> Option<Self> {
        let text = |value: &DeValue<'_>| value.as_str().map(str::to_owned);
        let read = match value.get_ref() {
            DeValue::Array(list) => {
                list.iter().map(|address| text(address.get_ref())).collect::<Option<_>>().map(Dns::Addresses)
            }
            word => text(word).map(Dns::Word),
        };
        read.or_else(|| mismatch(value, report))
    }

    fn seen(&self) -> &Self {
        self
    }
}

impl Converter<'_> {
    /// `place` is its place among the networks, from 0 on; `resolver` that of the gateway, if there is one.
    pub(crate) fn network(
        &mut self,
        place: usize,
        given: &NetworkTable,
        resolver: Option<&Resolver>,
    ) -> Option<Network> {
        let interface = self.value(&given.interface, value::interface);
        let name = self.optional(&given.name, value::peer_name);
        let subnet = self.optional(&given.subnet, |number| {
            u64::try_from(number).or_else(|_| problem("out of range", "subnets count from 0"))
        });
        let host = self.value(&given.host, host);
        let prefixes = self.each(&given.prefixes, link_prefix);
        let ipv4 = self.optional(&given.ipv4, ipv4_with_length);
        let dhcp = match ipv4 {
            Some(ipv4) => self.dhcp(&given.dhcp, ipv4),
            None => None,
        };
        let dhcp6 = match host {
            Some(own) => self.dhcp6(&given.dhcp6, own),
            None => None,
        };
        let port_mapping = self.port_mapping(&given.port_mapping);
        let advertise = self.advertise(given, resolver.is_some());
        let interface = interface?;
        let name = name?.unwrap_or_else(|| interface.clone());
        let (mut advertise, dhcp, dhcp6) = (advertise?, dhcp?, dhcp6?);
        if let Some(dhcp6) = &dhcp6 {
            advertise.settings.managed |= !dhcp6.hosts.is_empty();
            advertise.settings.other_configuration = true;
        }
        let resolver = resolver.filter(|_| advertise.dns_servers == DnsServers::Gateway);
        if (resolver.is_some() || dhcp.is_some()) && !self.can_be_served(given, &name, &interface) {
            return None;
        }
        if let Some(resolver) = resolver
            && given.search.is_absent()
        {
            advertise.search_domains = vec![format!("{}.{}", name.to_ascii_lowercase(), resolver.domain)];
        }
        Some(Network {
            name,
            interface,
            subnet: given.delegated.is_true().then_some(subnet?.unwrap_or(place as u64)),
            host: host?,
            prefixes: prefixes?,
            ipv4: ipv4?,
            advertise: Some(advertise).filter(|_| given.advertise.is_true()),
            resolves: resolver.is_some(),
            dhcp,
            dhcp6,
            port_mapping: port_mapping?,
        })
    }

    fn advertise(&mut self, given: &NetworkTable, has_resolver: bool) -> Option<Advertise> {
        let interval = self.value(&given.advertise_interval, |text| {
            let range = Duration::from_secs(4)..=Duration::from_secs(1_800);
            duration(text, range, "write 4s to 1800s (RFC 4861)")
        });
        let preference = self.value(&given.preference, preference);
        let dns_servers = self.optional(&given.dns, dns);
        let without = if has_resolver { DnsServers::Gateway } else { DnsServers::FromUplinks };
        let search_domains = self.each(&given.search, domain);
        let nat64 = self.optional(&given.nat64, nat64_prefix);
        let mtu = self.optional(&given.mtu, value::mtu);
        let routes = self.each(&given.routes, routed_prefix);
        let other_routers = self.each(&given.other_routers, ipv6_address);
        Some(Advertise {
            settings: Advertising {
                interval: interval?,
                preference: preference?,
                managed: given.managed.is_true(),
                other_configuration: given.other_configuration.is_true(),
                ..Advertising::default()
            },
            dns_servers: dns_servers?.unwrap_or(without),
            search_domains: search_domains?,
            nat64: nat64?,
            mtu: mtu?.map(u32::from),
            routes: routes?,
            other_routers: other_routers?,
        })
    }
}

fn preference(text: &str) -> Result<Preference, Problem> {
    match text {
        "low" => Ok(Preference::Low),
        "medium" => Ok(Preference::Medium),
        "high" => Ok(Preference::High),
        _ => problem("not a preference", r#"write "low", "medium" or "high""#),
    }
}

fn link_prefix(text: &str) -> Result<Ipv6Net, Problem> {
    const HELP: &str =
        "a network has /64s, like \"fd12:3456:789a:1::/64\": hosts form addresses only in those";
    match ipv6_prefix(text, HELP)? {
        found if found.prefix_len() == 64 => Ok(found),
        _ => problem("not a /64", HELP),
    }
}

pub(crate) fn host(text: &str) -> Result<u64, Problem> {
    match ipv6_address(text)?.to_bits() {
        bits @ 1..=0xffff_ffff_ffff_ffff => Ok(bits as u64),
        _ => problem("not the low half of an address", "write the last 64 bits, like \"::1\""),
    }
}

fn ipv4_with_length(text: &str) -> Result<Ipv4Net, Problem> {
    match text.parse::<Ipv4Net>() {
        Ok(net)
            if net.addr() == Ipv4Addr::UNSPECIFIED
                || net.addr() == net.network() && net.prefix_len() < 31 =>
        {
            problem("the address of the network itself", "write the gateway's own, like \"192.168.1.1/24\"")
        }
        Ok(net) => Ok(net),
        Err(_) => problem("not an IPv4 address with a length", "write one like \"192.168.1.1/24\""),
    }
}

fn dns(given: &Dns) -> Result<DnsServers, Problem> {
    match given {
        Dns::Word(word) if word == "uplinks" => Ok(DnsServers::FromUplinks),
        Dns::Word(word) if word == "gateway" => Ok(DnsServers::Gateway),
        Dns::Word(_) => problem("not known", r#"write "uplinks", "gateway", or a list of addresses"#),
        Dns::Addresses(servers) => {
            servers.iter().map(|server| ipv6_address(server)).collect::<Result<_, _>>().map(DnsServers::Fixed)
        }
    }
}

/// A domain as RFC 1035 section 3.1 can carry it.
pub(crate) fn domain(text: &str) -> Result<String, Problem> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
    };
    if name.len() <= 253 && name.split('.').all(label) {
        Ok(name.to_owned())
    } else {
        problem("not a domain", "write one like \"office.example\"")
    }
}

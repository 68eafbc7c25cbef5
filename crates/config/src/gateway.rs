//! Tables `[[uplink]]`, `[[network]]` and `[[route]]`: a machine that is a router between networks, and its firewall.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use router::advertise::Settings as Advertising;
use router::site::{
    Advertise, Delegation, DnsServers, Network, Probing, RouterFrom, Site, StaticRoute, Uplink,
};
use router::transition::{Kind, Tunnel};
use serde::Deserialize;
use toml::Spanned;
use wire::ndp::Preference;

use super::convert::Converter;
use super::document::{Document, Text};
use super::firewall::Firewall;
use super::report::Finding;
use super::script::Configured;
use super::tunnel::TunnelTable;
use super::value::{self, Problem};

mod site;

type Texts = Vec<Spanned<String>>;

/// Prefixes of an uplink that is a tunnel: all packets are compared with them.
const MOST_PREFIXES: usize = 7;

/// `[[uplink]]`, as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UplinkTable {
    name: Text,
    pub(super) interface: Text,
    pub(super) zone: Text,
    router: Text,
    #[serde(default)]
    addresses: Texts,
    #[serde(default)]
    prefixes: Texts,
    delegation: Option<Spanned<DelegationGiven>>,
    #[serde(default)]
    probes: Texts,
    probe_interval: Text,
    ipv4_router: Text,
    #[serde(default)]
    masquerade: bool,
    pub(super) tunnel: Option<Spanned<TunnelTable>>,
}

/// Whether prefixes are asked for, or the length that is wished for.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected true, false, or the length of a prefix, like 56")]
enum DelegationGiven {
    Wanted(bool),
    Length(i64),
}

/// `[[network]]`, as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkTable {
    name: Text,
    pub(super) interface: Text,
    pub(super) zone: Text,
    subnet: Option<Spanned<i64>>,
    delegated: Option<bool>,
    host: Text,
    #[serde(default)]
    prefixes: Texts,
    ipv4: Text,
    advertise: Option<bool>,
    advertise_interval: Text,
    preference: Text,
    #[serde(default)]
    managed: bool,
    #[serde(default)]
    other_configuration: bool,
    dns: Option<Spanned<DnsGiven>>,
    #[serde(default)]
    search: Texts,
    nat64: Text,
    mtu: Option<Spanned<i64>>,
    #[serde(default)]
    routes: Texts,
    #[serde(default)]
    other_routers: Texts,
}

/// `"uplinks"`, `"gateway"`, or addresses.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected \"uplinks\", \"gateway\", or a list of addresses")]
enum DnsGiven {
    Word(String),
    Addresses(Vec<String>),
}

/// `[[route]]`, as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteTable {
    to: Text,
    via: Text,
    interface: Text,
}

/// A gateway as its configuration file describes it: a router, a firewall, or both.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// What it stands between.
    pub site: Site,
    /// How each uplink is probed.
    pub probing: Vec<Probing>,
    /// Its firewall: tables `[[zone]]`, `[firewall]`.
    pub firewall: Option<Firewall>,
    /// Tables `[[script]]` of a file without a tunnel.
    pub scripts: Vec<Configured>,
}

impl Converter<'_> {
    /// The gateway that a file describes, with this firewall; None where it describes none, or something is wrong with it.
    pub(super) fn gateway(&mut self, document: &Document, firewall: Option<Firewall>) -> Option<Gateway> {
        if !document.has_gateway() {
            return None;
        }
        let uplinks: Vec<_> = document.uplink.iter().map(|table| self.uplink(table)).collect();
        let networks = document.network.iter().enumerate();
        let networks: Vec<_> = networks.map(|(place, table)| self.network(place, table)).collect();
        let routes: Vec<_> = document.route.iter().map(|table| self.route(table)).collect();
        let uplinks = uplinks.into_iter().collect::<Option<Vec<_>>>()?;
        let (uplinks, probing): (Vec<Uplink>, Vec<Probing>) = uplinks.into_iter().unzip();
        let networks = networks.into_iter().collect::<Option<Vec<_>>>()?;
        let routes = routes.into_iter().collect::<Option<Vec<_>>>()?;
        let site = Site { uplinks, networks, routes };
        self.site_fits(document, &site);
        self.uplinks_fit(document, &site, firewall.as_ref().map(|firewall| &firewall.policy));
        Some(Gateway { site, probing, firewall, scripts: Vec::new() })
    }

    fn uplink(&mut self, table: &Spanned<UplinkTable>) -> Option<(Uplink, Probing)> {
        let (given, header) = (table.get_ref(), table.span());
        let interface = self.link(&given.interface, &header, "[[uplink]]", "the interface, like \"eth0\"");
        let name = self.optional("name", given.name.as_ref(), |text| value::peer_name(text));
        let router = self.optional("router", given.router.as_ref(), |text| router(text));
        let addresses = self.all("addresses", &given.addresses, value::interface_address);
        let prefixes = self.all("prefixes", &given.prefixes, routed_prefix);
        let delegation = self.optional("delegation", given.delegation.as_ref(), |wanted| match wanted {
            DelegationGiven::Wanted(wanted) => Ok(wanted.then(Delegation::default)),
            DelegationGiven::Length(length @ 32..=64) => Ok(Some(Delegation { length: Some(*length as u8) })),
            DelegationGiven::Length(_) => problem(
                "out of range",
                "write a length from 32 to 64, or true for whatever the provider gives",
            ),
        });
        let probes = self.all("probes", &given.probes, ipv6_address);
        let interval = self.optional("probe_interval", given.probe_interval.as_ref(), |text| {
            duration(text, Duration::from_secs(1)..=Duration::from_secs(3_600), "1s to 1h")
        });
        let ipv4_router = self.optional("ipv4_router", given.ipv4_router.as_ref(), |text| {
            text.parse().or_else(|_| problem("not an IPv4 address", "write the router's, like \"192.0.2.1\""))
        });
        let tunnel = match &given.tunnel {
            Some(table) => {
                let tunnel = self.uplink_tunnel(table);
                self.tunnel_fits(given, tunnel.as_ref());
                Some(tunnel?)
            }
            None => None,
        };
        let interface = interface?;
        let standard = if tunnel.is_some() { RouterFrom::PointToPoint } else { RouterFrom::Advertisements };
        let uplink = Uplink {
            name: name?.unwrap_or_else(|| interface.clone()),
            interface,
            router: router?.unwrap_or(standard),
            addresses: addresses?,
            prefixes: prefixes?,
            delegation: delegation?.flatten(),
            probes: probes?,
            ipv4_router: ipv4_router?,
            masquerade: given.masquerade,
            tunnel,
        };
        let standard = Probing::default();
        Some((uplink, Probing { interval: interval?.unwrap_or(standard.interval), ..standard }))
    }

    /// What an uplink cannot have that is a tunnel.
    fn tunnel_fits(&mut self, given: &UplinkTable, tunnel: Option<&Tunnel>) {
        let mut refuse = |span: Range<usize>, key: &str, label: &str, help: &str| {
            self.report(Finding::error(span, format!("`{key}` cannot be used"), label, help));
        };
        if let Some(router) = given.router.as_ref().filter(|router| router.get_ref() == "advertised") {
            let help = r#"leave it out: the other end is the router ("point-to-point")"#;
            refuse(router.span(), "router", "no router advertises itself in a tunnel", help);
        }
        if let Some(delegation) = &given.delegation {
            refuse(
                delegation.span(),
                "delegation",
                "not through a tunnel",
                "write the broker's prefix as `prefixes`",
            );
        }
        let Some(tunnel) = tunnel else { return };
        if let (Some(over), Some(interface)) = (&given.tunnel, &given.interface)
            && tunnel.over == *interface.get_ref()
        {
            let help =
                "`interface` is the tunnel's own, which `sidestep up` makes; `over` the one that is there";
            refuse(over.span(), "over", "the tunnel's own interface", help);
        }
        if let Some(prefix) = given.prefixes.get(MOST_PREFIXES) {
            refuse(prefix.span(), "prefixes", "too many for a tunnel", "write shorter prefixes, 7 at most");
        }
        if !matches!(tunnel.kind, Kind::FourInSix { .. }) {
            return;
        }
        for (key, first) in [("prefixes", given.prefixes.first()), ("probes", given.probes.first())] {
            if let Some(first) = first {
                refuse(first.span(), key, "IPv6, and the tunnel carries IPv4", "remove it");
            }
        }
    }

    fn network(&mut self, place: usize, table: &Spanned<NetworkTable>) -> Option<Network> {
        let (given, header) = (table.get_ref(), table.span());
        let interface = self.link(&given.interface, &header, "[[network]]", "the interface, like \"eth1\"");
        let name = self.optional("name", given.name.as_ref(), |text| value::peer_name(text));
        let subnet = self.optional("subnet", given.subnet.as_ref(), |number| {
            u64::try_from(*number).or_else(|_| problem("out of range", "subnets count from 0"))
        });
        let host = self.optional("host", given.host.as_ref(), |text| host(text));
        let prefixes = self.all("prefixes", &given.prefixes, link_prefix);
        let ipv4 = self.optional("ipv4", given.ipv4.as_ref(), |text| ipv4_with_length(text));
        let advertise = self.advertise(given);
        let interface = interface?;
        let numbered = given.delegated.unwrap_or(true);
        Some(Network {
            name: name?.unwrap_or_else(|| interface.clone()),
            interface,
            subnet: numbered.then_some(subnet?.unwrap_or(place as u64)),
            host: host?.unwrap_or(1),
            prefixes: prefixes?,
            ipv4: ipv4?,
            advertise: advertise?.filter(|_| given.advertise.unwrap_or(true)),
        })
    }

    fn advertise(&mut self, given: &NetworkTable) -> Option<Option<Advertise>> {
        let interval = self.optional("advertise_interval", given.advertise_interval.as_ref(), |text| {
            duration(text, Duration::from_secs(4)..=Duration::from_secs(1_800), "4s to 1800s (RFC 4861)")
        });
        let preference = self.optional("preference", given.preference.as_ref(), |text| match text.as_str() {
            "low" => Ok(Preference::Low),
            "medium" => Ok(Preference::Medium),
            "high" => Ok(Preference::High),
            _ => problem("not a preference", r#"write "low", "medium" or "high""#),
        });
        let dns_servers = self.optional("dns", given.dns.as_ref(), dns);
        let search_domains = self.all("search", &given.search, domain);
        let nat64 = self.optional("nat64", given.nat64.as_ref(), |text| nat64(text));
        let mtu = self.optional("mtu", given.mtu.as_ref(), |number| value::mtu(*number));
        let routes = self.all("routes", &given.routes, routed_prefix);
        let other_routers = self.all("other_routers", &given.other_routers, ipv6_address);
        let standard = Advertising::default();
        Some(Some(Advertise {
            settings: Advertising {
                interval: interval?.unwrap_or(standard.interval),
                preference: preference?.unwrap_or_default(),
                managed: given.managed,
                other_configuration: given.other_configuration,
                ..standard
            },
            dns_servers: dns_servers?.unwrap_or_default(),
            search_domains: search_domains?,
            nat64: nat64?,
            mtu: mtu?.map(u32::from),
            routes: routes?,
            other_routers: other_routers?,
        }))
    }

    fn route(&mut self, table: &Spanned<RouteTable>) -> Option<StaticRoute> {
        let (given, header) = (table.get_ref(), table.span());
        let owner = "[[route]]";
        let to = self.required(&given.to, &header, owner, "to", "where it leads, like \"2001:db8:5::/48\"");
        let to = self.value("to", to, |text| value::inner_prefix(text));
        let via = self.optional("via", given.via.as_ref(), |text| {
            text.parse::<IpAddr>().or_else(|_| problem("not an address", "write the next router's address"))
        });
        let interface = self.link(&given.interface, &header, owner, "the interface, like \"eth1\"");
        let (to, via): (IpNet, Option<IpAddr>) = (to?, via?);
        if let (Some(router), Some(text)) = (via, &given.via)
            && router.is_ipv6() != to.addr().is_ipv6()
        {
            let help = "route IPv6 by a router of IPv6, and IPv4 by one of IPv4";
            self.report(Finding::error(text.span(), "`via` cannot be used", "of the other IP version", help));
            return None;
        }
        Some(StaticRoute { to, via, interface: interface? })
    }

    fn link(&mut self, given: &Text, header: &Range<usize>, owner: &str, help: &str) -> Option<String> {
        let given = self.required(given, header, owner, "interface", help);
        self.value("interface", given, |text| value::interface(text))
    }

    fn all<T>(
        &mut self,
        key: &str,
        given: &[Spanned<String>],
        parse: impl Fn(&str) -> Result<T, Problem>,
    ) -> Option<Vec<T>> {
        let values: Vec<_> =
            given.iter().map(|text| self.value(key, Some(text), |text| parse(text))).collect();
        values.into_iter().collect()
    }
}

pub(super) fn problem<T>(label: &str, help: &str) -> Result<T, Problem> {
    Err(Problem { label: label.to_owned(), help: help.to_owned() })
}

fn router(text: &str) -> Result<RouterFrom, Problem> {
    match text {
        "advertised" => Ok(RouterFrom::Advertisements),
        "point-to-point" => Ok(RouterFrom::PointToPoint),
        address => address.parse().map(RouterFrom::Address).or_else(|_| {
            problem(
                "not a router",
                r#"write "advertised", "point-to-point", or the router's address, like "fe80::1""#,
            )
        }),
    }
}

fn ipv6_address(text: &str) -> Result<Ipv6Addr, Problem> {
    text.parse().or_else(|_| problem("not an IPv6 address", "write one like \"2001:db8::1\""))
}

fn prefix(text: &str, help: &str) -> Result<Ipv6Net, Problem> {
    match text.parse::<Ipv6Net>() {
        Ok(prefix) if prefix.trunc() != prefix => {
            problem("bits are set behind the prefix", &format!("write \"{}\"", prefix.trunc()))
        }
        Ok(prefix) => Ok(prefix),
        Err(_) => problem("not an IPv6 prefix", help),
    }
}

pub(super) fn routed_prefix(text: &str) -> Result<Ipv6Net, Problem> {
    prefix(text, "write a prefix, like \"2001:db8:100::/56\"")
}

fn link_prefix(text: &str) -> Result<Ipv6Net, Problem> {
    const HELP: &str = "a network has /64s, like \"fd12:3456:789a:1::/64\": hosts make addresses in no other";
    match prefix(text, HELP)? {
        found if found.prefix_len() == 64 => Ok(found),
        _ => problem("not a /64", HELP),
    }
}

fn host(text: &str) -> Result<u64, Problem> {
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
            problem("an address of the whole network", "write the gateway's own, like \"192.168.1.1/24\"")
        }
        Ok(net) => Ok(net),
        Err(_) => problem("not an IPv4 address with a length", "write one like \"192.168.1.1/24\""),
    }
}

fn dns(given: &DnsGiven) -> Result<DnsServers, Problem> {
    match given {
        DnsGiven::Word(word) if word == "uplinks" => Ok(DnsServers::FromUplinks),
        DnsGiven::Word(word) if word == "gateway" => Ok(DnsServers::Gateway),
        DnsGiven::Word(_) => problem("not known", r#"write "uplinks", "gateway", or a list of addresses"#),
        DnsGiven::Addresses(servers) => {
            servers.iter().map(|server| ipv6_address(server)).collect::<Result<_, _>>().map(DnsServers::These)
        }
    }
}

/// A domain as RFC 1035 section 3.1 can carry it.
fn domain(text: &str) -> Result<String, Problem> {
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

fn nat64(text: &str) -> Result<Ipv6Net, Problem> {
    const HELP: &str = "write a prefix of 96, 64, 56, 48, 40 or 32 bits, like \"64:ff9b::/96\" (RFC 8781)";
    match prefix(text, HELP)? {
        found if matches!(found.prefix_len(), 96 | 64 | 56 | 48 | 40 | 32) => Ok(found),
        _ => problem("not a length for NAT64", HELP),
    }
}

fn duration(text: &str, range: std::ops::RangeInclusive<Duration>, shown: &str) -> Result<Duration, Problem> {
    match value::parse_duration(text) {
        Ok(duration) if range.contains(&duration) => Ok(duration),
        Ok(_) => problem("out of range", &format!("write {shown}")),
        Err(help) => problem("not a duration", &help),
    }
}

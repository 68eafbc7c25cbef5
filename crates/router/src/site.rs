//! What a gateway stands between: uplinks to the Internet, and networks behind it. As the configuration has it; all values
//! are checked.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::advertise::Settings as Advertising;
use crate::dhcp6::settings::Settings as Dhcp6;
use crate::forward::Forward;
use crate::hosts::settings::{Dhcp, Resolver};
use crate::nat64::{Nat64, Prefix};
use crate::pcp::Limits;
use crate::transition::{Kind, Tunnel};

/// A site: all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Ways to the Internet; the first usable one is taken.
    pub uplinks: Vec<Uplink>,
    /// Links with hosts.
    pub networks: Vec<Network>,
    /// Routes that somebody has written down.
    pub routes: Vec<StaticRoute>,
    /// Ports that lead to hosts inside.
    pub forwards: Vec<Forward>,
    /// Networks that are somewhere else: behind the peers of a tunnel.
    pub elsewhere: Vec<IpNet>,
    /// Where a tunnel has its hopping prefix from.
    pub hops: Option<Hops>,
    /// The gateway's resolver.
    pub resolver: Option<Resolver>,
    /// The translator by which hosts of IPv6 reach servers of IPv4.
    pub nat64: Option<Nat64>,
    /// Who is told of flows.
    pub flows: Option<Flows>,
    /// Whether packets of known connections go past the kernel's usual way.
    pub flow_offload: Option<FlowOffload>,
}

/// Who carries packets of known connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowOffload {
    /// The kernel, at ingress.
    Software,
    /// The network card, as far as it can; the kernel the rest.
    Hardware,
}

impl FlowOffload {
    /// As the configuration and the status have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FlowOffload::Software => "software",
            FlowOffload::Hardware => "hardware",
        }
    }
}

impl Site {
    /// Whether a host of some network may have ports opened.
    #[must_use]
    pub fn maps_ports(&self) -> bool {
        self.networks.iter().any(|network| network.port_mapping.is_some())
    }

    /// Whether hosts inside may be reached by the uplink's IPv4 address.
    #[must_use]
    pub fn is_entered_by(&self, uplink: &Uplink) -> bool {
        let is_through =
            |forward: &Forward| forward.uplinks.iter().any(|through| through.name == uplink.name);
        self.forwards.iter().any(is_through) || (self.maps_ports() && uplink.masquerade)
    }
}

/// Who is told of flows of the hosts behind the gateway, by IPFIX (RFC 7011) over UDP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Where it listens.
    pub collector: SocketAddr,
    /// How often it is told of a connection that goes on.
    pub interval: Duration,
    /// What the collector knows this gateway by, among others with the same address.
    pub observation_domain: u32,
}

/// A part of an uplink's prefixes that a tunnel hops in, and no network uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hops {
    /// The uplink's name.
    pub uplink: String,
    /// Which /64 of its prefix; the last that no network has, without a number.
    pub number: Option<u64>,
    /// The prefix is that of the uplink's own link, not one that is routed here.
    pub on_link: bool,
}

/// A way to the Internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// Its name, unique among uplinks.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// Where the router and the gateway's own address come from.
    pub router: RouterFrom,
    /// Addresses of the gateway on this link, beside those of router advertisements.
    pub addresses: Vec<IpNet>,
    /// Prefixes that are routed here, for the networks behind.
    pub prefixes: Vec<Ipv6Net>,
    /// Whether prefixes are asked for by DHCPv6, and which length is wished for.
    pub delegation: Option<Delegation>,
    /// Hosts that answer echo requests as long as the uplink works; without any, a router is enough.
    pub probes: Vec<Ipv6Addr>,
    /// The router for IPv4.
    pub ipv4_router: Option<Ipv4Addr>,
    /// Whether IPv4 of the networks behind leaves with the address of the interface.
    pub masquerade: bool,
    /// What carries it, if it is a tunnel.
    pub tunnel: Option<Tunnel>,
    /// What its link carries, if queues are to be kept short.
    pub bandwidth: Option<Bandwidth>,
}

/// What the link of an uplink carries, a little less than it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// Bits per second that come in; nothing is done about them without.
    pub down: Option<u64>,
    /// Bits per second that go out; nothing is done about them without.
    pub up: Option<u64>,
    /// Where the line carries now more, now less: bits per second that come in at least, and go out. The rate is then between
    /// this and the most, as it [follows](crate::autorate) how long answers take.
    pub down_least: Option<u64>,
    /// The same for what goes out.
    pub up_least: Option<u64>,
    /// The host whose answers tell; the uplink's router without.
    pub reflector: Option<Ipv6Addr>,
    /// How much longer than usual an answer takes that is late.
    pub delay: Duration,
    /// What the link adds to each packet.
    pub overhead: Overhead,
}

impl Bandwidth {
    /// Between what the rates are that follow, down and up; nothing where none does.
    #[must_use]
    pub fn limits(&self) -> Option<[Option<RangeInclusive<u64>>; 2]> {
        let limits = [(self.down_least, self.down), (self.up_least, self.up)];
        let limits = limits.map(|(least, most)| Some(least?..=most?));
        limits.iter().any(Option::is_some).then_some(limits)
    }
}

/// Kinds of links, by what they add to each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overhead {
    /// Ethernet and fibre: preamble, header, check sequence and gap.
    #[default]
    Ethernet,
    /// Cable.
    Docsis,
    /// VDSL, with PPPoE in a VLAN.
    Ptm,
    /// ADSL: cells.
    Atm,
    /// Not considered.
    None,
}

impl Uplink {
    /// Whether it carries IPv4, if it has an address for that: a tunnel of IPv6 does not.
    #[must_use]
    pub fn may_carry_ipv4(&self) -> bool {
        self.tunnel.is_none() || self.carries_ipv4()
    }

    /// Whether its IPv4 is translated on its way (464XLAT).
    #[must_use]
    pub fn is_clat(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|tunnel| matches!(tunnel.kind, Kind::Clat { .. }))
    }

    /// Whether it carries IPv4 and nothing else.
    #[must_use]
    pub fn carries_ipv4(&self) -> bool {
        self.tunnel.as_ref().is_some_and(|tunnel| tunnel.kind.is_over_ipv6())
    }
}

/// What to ask a delegating router for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delegation {
    /// Whether the name of the provider's AFTR is asked for along with it.
    pub aftr: bool,
    /// Length of the prefix; the server's choice without one.
    pub length: Option<u8>,
}

/// Where the default router of an uplink comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterFrom {
    /// Router advertisements of the link.
    Advertisements,
    /// This one, always.
    Address(Ipv6Addr),
    /// The other end of a link between two: packets just go out.
    PointToPoint,
}

/// A link with hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its name, unique among networks.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// Which /64 of each prefix of an uplink is that of this link; none for a link without.
    pub subnet: Option<u64>,
    /// The low 64 bits of the gateway's own address in each prefix.
    pub host: u64,
    /// Prefixes of its own, /64 as a rule: unique local ones, say.
    pub prefixes: Vec<Ipv6Net>,
    /// The gateway's IPv4 address on it, with the network's length.
    pub ipv4: Option<Ipv4Net>,
    /// What is advertised on it; nothing without.
    pub advertise: Option<Advertise>,
    /// Whether the gateway's resolver listens there, for hosts that are told to ask it.
    pub resolves: bool,
    /// IPv4 addresses that its hosts are leased.
    pub dhcp: Option<Dhcp>,
    /// What hosts and routers there get by DHCPv6; nothing without.
    pub dhcp6: Option<Dhcp6>,
    /// Ports that its hosts may ask for to be opened; none without.
    pub port_mapping: Option<Limits>,
}

/// What hosts of a network are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Advertise {
    /// How.
    pub settings: Advertising,
    /// DNS servers.
    pub dns_servers: DnsServers,
    /// Domains in which names are looked up.
    pub search_domains: Vec<String>,
    /// Prefix of NAT64.
    pub nat64: Option<Prefix>,
    /// MTU of the link.
    pub mtu: Option<u32>,
    /// Networks that the gateway leads to even when no uplink works (RFC 4191).
    pub routes: Vec<Ipv6Net>,
    /// Routers that may be on the link beside this one, by their link-local addresses.
    pub other_routers: Vec<Ipv6Addr>,
}

/// Which DNS servers hosts are told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DnsServers {
    /// Those of the uplinks.
    #[default]
    FromUplinks,
    /// The gateway itself.
    Gateway,
    /// These, or none.
    Fixed(Vec<Ipv6Addr>),
}

/// A route that somebody has written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticRoute {
    /// Where it leads.
    pub to: IpNet,
    /// The next router; without one the destination is on the link.
    pub via: Option<std::net::IpAddr>,
    /// The interface.
    pub interface: String,
}

/// How uplinks are probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probing {
    /// Between two requests to the same host.
    pub interval: Duration,
    /// So many unanswered ones, of all hosts, and the uplink does not work.
    pub lost: u32,
    /// So many answered ones, and it works again.
    pub answered: u32,
}

impl Default for Probing {
    fn default() -> Self {
        Probing { interval: Duration::from_secs(5), lost: 3, answered: 3 }
    }
}

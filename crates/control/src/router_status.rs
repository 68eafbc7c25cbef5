//! What a router says about itself: the document of `sidestep status --json`. Field names are a contract: fields may be
//! added, none is renamed or removed.
//!
//! Lifetimes are in seconds; null where there is no end.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use crate::tunnel_status::State;

/// A router and its links.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Since it started.
    pub uptime_seconds: u64,
    /// Ways to the Internet, in the order of the configuration.
    pub uplinks: Vec<Uplink>,
    /// The inner networks, in the order of the configuration.
    pub networks: Vec<Network>,
    /// Its own addresses, as planned.
    pub addresses: Vec<Address>,
    /// Its routes, as planned.
    pub routes: Vec<Route>,
    /// Hosts on the inner links, as far as the kernel knows.
    pub neighbors: Vec<Neighbor>,
    /// Ports of uplinks that lead to hosts inside, in the order of the configuration.
    #[serde(default)]
    pub forwards: Vec<Forward>,
    /// Prefixes that routers behind this one have, by network.
    #[serde(default)]
    pub delegated_prefixes: Vec<DelegatedPrefix>,
    /// Ports that hosts inside have asked for, by host.
    #[serde(default)]
    pub port_mappings: Vec<PortMapping>,
    /// Null where servers elsewhere are not asked by TLS.
    #[serde(default)]
    pub dns_over_tls: Option<DnsOverTls>,
    /// Null where none is applied.
    #[serde(default)]
    pub firewall: Option<Firewall>,
    /// Connections that the kernel follows now, also those of the gateway itself.
    #[serde(default)]
    pub connections: u64,
    /// Of the hosts behind the gateway those that carry most, by their present connections.
    #[serde(default)]
    pub talkers: Vec<Talker>,
    /// Why there is less of them than there could be.
    #[serde(default)]
    pub talkers_incomplete: Option<String>,
    /// Those of the tunnel in the same configuration.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// Null where nothing is translated between IPv6 and IPv4.
    #[serde(default)]
    pub nat64: Option<Nat64>,
    /// Null where nobody is told of flows.
    #[serde(default)]
    pub flows: Option<Flows>,
    /// Null where packets of known connections are to go the usual way.
    #[serde(default)]
    pub flow_offload: Option<FlowOffload>,
    /// Where the tunnel hops that follows one of the uplinks; null where none does, or that has nothing for it yet.
    #[serde(default)]
    pub hop_prefix: Option<Ipv6Net>,
    /// What could not be done, or not be had.
    pub problems: Vec<String>,
}

/// The short way of packets of known connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FlowOffload {
    /// `software` or `hardware`, as in the configuration.
    pub configured: String,
    /// What it came to; null where packets go the usual way.
    pub in_force: Option<String>,
    /// The interfaces between which it leads.
    pub interfaces: Vec<String>,
    /// Connections that go by it now.
    pub connections: u64,
}

/// Who is told of flows, and how many records of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flows {
    /// Where it listens.
    pub collector: SocketAddr,
    /// Sent: each is one direction of a connection, for a while.
    pub records: u64,
    /// Found no room to wait while the collector could not be reached.
    pub lost: u64,
    /// Found none in a flood, since there were more than a collector is to take.
    pub left_out: u64,
    /// How often so many connections ended at once that the kernel did not tell all.
    pub missed: u64,
}

/// An uplink, and what is known of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Uplink {
    /// As in the configuration.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// Whether the link has signal.
    pub link_up: bool,
    /// Whether it leads to the Internet, as far as is known.
    pub works: bool,
    /// Null where no host is probed.
    pub probes_answered: Option<bool>,
    /// The default router, by its link-local address.
    pub router: Option<Ipv6Addr>,
    /// The rest of its router lifetime.
    pub router_seconds: Option<u64>,
    /// Prefixes that it was delegated or given.
    pub prefixes: Vec<Prefix>,
    /// Null where none is asked for, or one was given.
    pub waits_for_prefix: Option<Wait>,
    /// Recursive DNS servers that were learned from it.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Null where it is none.
    pub tunnel: Option<Tunnel>,
    /// Null where it is not given.
    #[serde(default)]
    pub bandwidth: Option<Bandwidth>,
}

/// What an uplink's link carries.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bandwidth {
    /// What comes in; null where that is not given.
    pub down: Option<Shaped>,
    /// What goes out; null where that is not given.
    pub up: Option<Shaped>,
    /// How long the host takes to answer that the rates follow; null where they are fixed.
    #[serde(default)]
    pub delay: Option<Delay>,
}

/// How long a host behind a line takes to answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delay {
    /// The host; null while none is known.
    pub reflector: Option<Ipv6Addr>,
    /// Usually, in milliseconds; null while it does not answer.
    pub usual_ms: Option<f64>,
    /// The newest answer, likewise.
    pub newest_ms: Option<f64>,
}

/// Packets that go by CAKE. Counts begin anew when it is made anew.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shaped {
    /// Bits per second, as in the configuration: the most, where the rate follows.
    pub rate_bits: u64,
    /// The least, where the rate follows.
    #[serde(default)]
    pub least_bits: Option<u64>,
    /// As the kernel has it; null where it does not shape.
    pub rate_in_force_bits: Option<u64>,
    /// Why it does not; null where it does.
    #[serde(default)]
    pub why: Option<String>,
    /// Packets that went on.
    pub sent_packets: u64,
    /// Their bytes, as the kernel counts them.
    pub sent_bytes: u64,
    /// Packets that were dropped, so that their senders slow down.
    pub dropped_packets: u64,
    /// Packets that were marked instead (ECN).
    pub marked_packets: u64,
    /// Bytes that wait now.
    pub backlog_bytes: u64,
    /// How long packets waited lately, in milliseconds; in the class of CAKE where it was longest.
    pub peak_delay_ms: f64,
}

/// A delegated prefix that does not come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// For how long.
    pub seconds: u64,
    /// What a server has answered, by the name of RFC 8415; null where none has.
    pub status: Option<String>,
    /// In words.
    pub why: String,
}

/// A transition tunnel.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tunnel {
    /// `6in4`, `6to4`, `6rd`, `4in6`, `464xlat`.
    pub kind: String,
    /// The interface below.
    pub over: String,
    /// Null where the interface below has no address for it.
    pub local: Option<IpAddr>,
    /// The other end; of 6to4 and 6rd the relay.
    pub remote: Option<IpAddr>,
    /// Where the provider's translator finds IPv4; of 464xlat alone.
    #[serde(default)]
    pub plat_prefix: Option<Ipv6Net>,
    /// Who has told that: `configuration`, `routers` (RFC 8781), `names` (RFC 7050).
    #[serde(default)]
    pub plat_from: Option<String>,
    /// The largest inner packet.
    pub mtu: u32,
    /// Packets that were decapsulated, or translated.
    pub rx_packets: u64,
    /// Their bytes, as inner packets; of 464xlat as they came.
    pub rx_bytes: u64,
    /// Packets that were encapsulated, or translated.
    pub tx_packets: u64,
    /// Their bytes, as inner packets; of 464xlat as they came.
    pub tx_bytes: u64,
    /// Packets that were not carried, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// A translator between IPv6 and IPv4.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Nat64 {
    /// Where hosts find IPv4.
    pub prefix: Ipv6Net,
    /// Private addresses for the hosts.
    pub pool: Ipv4Net,
    /// How many of these are a host's, or were one's.
    pub hosts: u64,
    /// Whether its device is there.
    pub works: bool,
    /// Packets that became IPv4.
    pub to_ipv4_packets: u64,
    /// Their bytes, as they came.
    pub to_ipv4_bytes: u64,
    /// Packets that became IPv6.
    pub to_ipv6_packets: u64,
    /// Their bytes, as they came.
    pub to_ipv6_bytes: u64,
    /// Packets that were not translated, by reason.
    pub drops: BTreeMap<String, u64>,
}

/// A prefix, with what is left of its lifetimes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prefix {
    /// Which.
    pub prefix: Ipv6Net,
    /// The rest of its preferred lifetime.
    pub preferred_seconds: Option<u64>,
    /// The rest of its valid lifetime.
    pub valid_seconds: Option<u64>,
}

/// An inner network, and what is advertised in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Network {
    /// As in the configuration.
    pub name: String,
    /// Its interface.
    pub interface: String,
    /// Whether the link has signal.
    pub link_up: bool,
    /// Whether router advertisements are sent.
    pub advertises: bool,
    /// Whether hosts are told that it leads out.
    pub default_router: bool,
    /// The prefixes that they have.
    pub prefixes: Vec<Prefix>,
    /// The recursive DNS servers that they have.
    pub dns_servers: Vec<Ipv6Addr>,
    /// How many were sent.
    pub advertisements_sent: u64,
    /// How many router solicitations have come.
    pub solicitations_received: u64,
    /// Routers that should not be there, heard in the last hour.
    pub rogue_routers: Vec<Rogue>,
    /// What answers hosts that ask the gateway for IPv4 addresses or names; null where nothing does.
    #[serde(default)]
    pub dnsmasq: Option<Dnsmasq>,
    /// What it gives by DHCPv6; null where nothing.
    #[serde(default)]
    pub dhcp6: Option<Dhcp6>,
    /// How many ports its hosts have open; null where they may not ask.
    #[serde(default)]
    pub port_mappings: Option<u64>,
}

/// What a network gives by DHCPv6.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dhcp6 {
    /// Length of the prefixes that routers get; null where none do.
    pub delegates: Option<u8>,
    /// Hosts that always have the same addresses.
    pub hosts: Vec<Dhcp6Host>,
}

/// A host that always has the same addresses, should it ask for them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dhcp6Host {
    /// As in the configuration.
    pub name: String,
    /// One in each prefix of its network, as these are now.
    pub addresses: Vec<Ipv6Addr>,
}

/// What a router behind this one has of the uplinks' prefixes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DelegatedPrefix {
    /// The network that the router is in.
    pub network: String,
    /// Its link-local address, which the prefixes are routed to.
    pub router: Ipv6Addr,
    /// Its DUID, in hexadecimal.
    pub duid: String,
    /// The prefixes, with what is left of the uplinks' lifetimes; none while the uplinks have nothing for it.
    pub prefixes: Vec<Prefix>,
    /// What is left of it, if the router does not ask again.
    pub seconds: u64,
}

/// A port that a host inside has asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMapping {
    /// The network that the host is in.
    pub network: String,
    /// `tcp` or `udp`.
    pub protocol: String,
    /// The host's address.
    pub address: IpAddr,
    /// The host's port.
    pub port: u16,
    /// Where it is reached: of IPv4 an uplink's address, null while there is none; of IPv6 its own.
    pub external_address: Option<IpAddr>,
    /// The port there.
    pub external_port: u16,
    /// Who may use it, `PREFIX` or `PREFIX port NUMBER`; everybody where empty.
    pub from: Vec<String>,
    /// `PCP` or `NAT-PMP`.
    pub asked_by: String,
    /// What is left of it.
    pub seconds: u64,
}

/// The stubby that asks servers elsewhere by TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DnsOverTls {
    /// Whether it runs.
    pub runs: bool,
    /// Null where it does; otherwise why not.
    pub why: Option<String>,
    /// How often it was started anew, because it had ended or asked nobody any more.
    pub restarts: u64,
    /// In the order of the configuration.
    pub servers: Vec<TlsServer>,
}

/// A server that is asked by TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsServer {
    /// Where it listens.
    pub address: SocketAddr,
    /// The name that its certificate has to be for.
    pub name: String,
    /// Whether it answered last; null where it was not asked yet.
    pub works: Option<bool>,
    /// Why it does not.
    pub why: Option<String>,
}

/// The dnsmasq of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dnsmasq {
    /// Whether it runs.
    pub runs: bool,
    /// Null where it does; otherwise why not.
    pub why: Option<String>,
    /// How often it was started anew, because it had ended.
    pub restarts: u64,
    /// The addresses that it leases, `FIRST-LAST`; null where it leases none.
    pub range: Option<String>,
    /// How many these are.
    pub addresses: Option<u64>,
    /// The domain that its hosts' names are in; null where it resolves none.
    pub domain: Option<String>,
    /// By address.
    pub leases: Vec<Lease>,
}

/// An IPv4 address that a host has for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The address.
    pub address: Ipv4Addr,
    /// The host's link-layer address.
    pub mac: String,
    /// Its name, with the domain if there is one; null where it has told none.
    pub name: Option<String>,
    /// Whether the configuration gives it this address.
    pub fixed: bool,
    /// What is left of it.
    pub seconds: Option<u64>,
}

/// A router that should not be there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rogue {
    /// Its link-local address.
    pub address: Ipv6Addr,
    /// Its link-layer address.
    pub mac: String,
    /// Whether it says that it leads out.
    pub default_router: bool,
    /// What it advertises.
    pub prefixes: Vec<Ipv6Net>,
    /// What it advertises.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Since its last advertisement.
    pub heard_seconds_ago: u64,
}

/// An address of the router's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Address {
    /// Where.
    pub interface: String,
    /// With the prefix length of its network.
    pub address: IpNet,
    /// The rest of its preferred lifetime.
    pub preferred_seconds: Option<u64>,
    /// The rest of its valid lifetime.
    pub valid_seconds: Option<u64>,
}

/// A route.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The destination.
    pub to: IpNet,
    /// Only for packets from there.
    pub from: Option<Ipv6Net>,
    /// Null where senders are told that there is no way.
    pub interface: Option<String>,
    /// The next hop; null where the destination is on the link.
    pub via: Option<IpAddr>,
    /// The lowest comes first.
    pub metric: u32,
}

/// A host on an inner link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Neighbor {
    /// Where.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
    /// Its link-layer address.
    pub mac: String,
}

/// Ports of uplinks that lead to a host inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forward {
    /// As in the configuration.
    pub name: String,
    /// The uplinks' names.
    pub uplinks: Vec<String>,
    /// The IPv4 addresses that these have now.
    pub addresses: Vec<Ipv4Addr>,
    /// At the gateway: `tcp/443`, `udp/8000-8010`.
    pub ports: Vec<String>,
    /// The host.
    pub to: IpAddr,
    /// Null where the port is the same there.
    pub to_port: Option<u16>,
    /// That it has taken since the rules were last made, as after a change of the addresses.
    pub connections: u64,
}

impl Status {
    /// The gateway's own addresses at an interface.
    pub fn addresses_at(&self, interface: &str) -> Vec<IpNet> {
        let addresses = self.addresses.iter().filter(|address| address.interface == interface);
        addresses.map(|address| address.address).collect()
    }
}

/// What the firewall has counted since it was applied. Packets of connections that it has let in are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firewall {
    /// Packets that were dropped.
    pub dropped_packets: u64,
    /// Packets that were answered with an error.
    pub rejected_packets: u64,
    /// Of both, those that no rule of the configuration was about.
    pub refused_by_default_packets: u64,
    /// The rules that have counted most, by their number from 1 on.
    pub rules: Vec<Rule>,
    /// What was decided by default, with what has counted most first.
    pub defaults: Vec<Fallback>,
    /// What went from one zone to another and was of no known connection, whatever became of it; what has counted most first.
    #[serde(default)]
    pub pairs: Vec<Pair>,
}

/// What went from one zone to another and was of no known connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// A zone, or `gateway`.
    pub from: String,
    /// Likewise.
    pub to: String,
    /// The first packets of connections, and those that are refused.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a rule has counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// From 1 on.
    pub number: usize,
    /// `accept`, `drop` or `reject`.
    pub verdict: Option<String>,
    /// What it is for, as the configuration says.
    #[serde(default)]
    pub comment: String,
    /// Where it stands in the configuration, by line from 1 on.
    #[serde(default)]
    pub line: Option<usize>,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What was decided by default, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// Which.
    pub reason: String,
    /// `accept`, `drop` or `reject`.
    pub verdict: Option<String>,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A host behind the gateway, with the connections that there are now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talker {
    /// Its address.
    pub address: IpAddr,
    /// How many it has.
    pub connections: u64,
    /// Null where connections are not counted, as all in this line.
    pub sent_bytes: Option<u64>,
    /// Likewise.
    pub sent_packets: Option<u64>,
    /// Likewise.
    pub received_bytes: Option<u64>,
    /// Likewise.
    pub received_packets: Option<u64>,
}

/// A peer of the tunnel of the same configuration, in short: `sidestep show` says more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// The tunnel's name.
    pub tunnel: String,
    /// As in the configuration.
    pub name: String,
    /// Whether there is a session.
    pub state: State,
    /// Round-trip time; null where it is not known.
    pub rtt_ms: Option<f64>,
    /// Until the next move; null without a session.
    pub next_rotation_ms: Option<u64>,
    /// Bytes of inner packets.
    pub sent_bytes: u64,
    /// Bytes of inner packets.
    pub received_bytes: u64,
}

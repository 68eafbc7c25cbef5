//! What a host stack says about itself: the document of `sidestep stack netstat --json`. Field names are a contract: fields
//! may be added, none is renamed or removed.
//!
//! Lifetimes are in seconds; null where there is no end.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};

/// A host on its link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// The device.
    pub device: String,
    /// Our address on the link, where it is Ethernet.
    pub link_layer: Option<String>,
    /// The largest packet on the link.
    pub mtu: usize,
    /// The addresses.
    pub addresses: Vec<Address>,
    /// Where packets go whose destinations are on no link: default routers.
    pub routers: Vec<Ipv6Addr>,
    /// What is on the link, and what leads through routers.
    pub routes: Vec<Route>,
    /// The gateway of IPv4.
    pub ipv4_gateway: Option<Ipv4Addr>,
    /// Advertised DNS servers.
    pub dns_servers: Vec<Ipv6Addr>,
    /// Destinations of which something special is known.
    pub destinations: Vec<Destination>,
    /// Who is on the link.
    pub neighbors: Vec<Neighbor>,
    /// The sockets.
    pub sockets: Vec<Socket>,
    /// Why packets went no further, by layer: `ip`, `tcp`, `ipsec`. Only reasons that occurred.
    pub drops: BTreeMap<String, BTreeMap<String, u64>>,
}

/// An address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Address {
    /// The address and its prefix.
    pub address: IpNet,
    /// `static`, `stable` or `temporary`.
    pub origin: String,
    /// `tentative`, `preferred` or `deprecated`.
    pub state: String,
    /// Until it is deprecated.
    pub preferred_seconds: Option<u64>,
    /// Until it is gone.
    pub valid_seconds: Option<u64>,
}

/// A route.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Route {
    /// Where to.
    pub destination: Ipv6Net,
    /// Through whom; null: it is on the link.
    pub router: Option<Ipv6Addr>,
    /// `low`, `medium` or `high`; null: it is on the link.
    pub preference: Option<String>,
    /// Until it is gone.
    pub valid_seconds: Option<u64>,
}

/// A destination.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Destination {
    /// Its address.
    pub address: Ipv6Addr,
    /// The largest packet that gets there, if less than the link carries.
    pub path_mtu: Option<usize>,
    /// Until a larger one is tried.
    pub path_mtu_seconds: Option<u64>,
    /// Whom a router has named as a better first hop.
    pub redirected_to: Option<Ipv6Addr>,
}

/// A neighbor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// Its address on the link, if known.
    pub link_layer: Option<String>,
    /// `incomplete`, `reachable`, `stale`, `delay` or `probe` (RFC 4861).
    pub state: String,
    /// Whether it is a router.
    pub is_router: bool,
}

/// A socket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Socket {
    /// `tcp` or `udp`.
    pub protocol: String,
    /// Our end.
    pub local: SocketAddr,
    /// The other end, if there is one.
    pub remote: Option<SocketAddr>,
    /// The state of TCP (RFC 9293), in lower case with dashes: `listen`, `established`, `time-wait`.
    pub state: Option<String>,
    /// Octets that wait to be read.
    pub receive_queue: usize,
    /// Octets that are not acknowledged; of a listener, connections that wait.
    pub send_queue: usize,
    /// The smoothed round-trip time.
    pub rtt_ms: Option<f64>,
}

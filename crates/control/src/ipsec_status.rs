//! What `sidestep ipsec up` says about itself: the document of `sidestep ipsec status --json`. Field names are a contract:
//! fields may be added, none is renamed or removed.
//!
//! Times are in the unit that a name ends in. `null` stands for what is not known (yet).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// The daemon and its remotes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub version: String,
    /// Name of the TUN device.
    pub tunnel: String,
    /// The daemon's process.
    #[serde(default)]
    pub pid: u32,
    /// Its network namespace: the number of `/proc/PID/ns/net`.
    #[serde(default)]
    pub network_namespace: u64,
    /// UDP ports of IKE, and of IKE and ESP together.
    #[serde(default)]
    pub ports: [u16; 2],
    /// Seconds since it started.
    pub uptime_s: u64,
    /// What fits inside, in bytes.
    pub mtu: u16,
    /// Addresses that remotes have given to this end.
    pub given_addresses: Vec<IpAddr>,
    /// DNS servers that remotes have named.
    pub dns: Vec<IpAddr>,
    /// Where remotes have named some: those that this machine asks all the same, past the tunnel.
    #[serde(default)]
    pub dns_past_tunnel: Vec<IpAddr>,
    /// Packets and datagrams dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// The remotes, in the order of the configuration.
    pub remotes: Vec<Remote>,
}

/// One remote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remote {
    /// Its name in the configuration.
    pub name: String,
    /// `up`, `connecting`, `waiting` for another attempt, or `idle`.
    pub state: String,
    /// Why it ended, or did not come about, last; where it is up, which of its children were refused and are not there, and
    /// why. Null if all is there.
    pub last_failure: Option<String>,
    /// IKE SAs, the newest last.
    pub ike: Vec<IkeSa>,
    /// Children, the newest last.
    pub children: Vec<Child>,
}

/// An IKE SA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IkeSa {
    /// This end's SPI, in hexadecimal digits.
    pub spi: String,
    /// Who the other end has proved to be, as the configuration writes identities.
    pub identity: String,
    /// Whether this end has begun.
    pub initiated: bool,
    /// Seconds since both ends have authenticated each other.
    pub age_s: u64,
}

/// A child: an association in each direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Child {
    /// Which one of the remote's, from 1 on.
    pub number: usize,
    /// SPI of what comes in, in hexadecimal digits.
    pub inbound_spi: String,
    /// SPI of what goes out.
    pub outbound_spi: String,
    /// Its algorithms, as the configuration names them: `aes256gcm16`, `aes256-sha256`, `sha256` for AH.
    pub algorithm: String,
    /// Where the other end is.
    pub remote: SocketAddr,
    /// What it carries at this end.
    pub local_networks: Vec<IpNet>,
    /// What it carries at the other end.
    pub remote_networks: Vec<IpNet>,
    /// What it carries between them, where that is not all.
    #[serde(default)]
    pub only: Vec<Only>,
    /// Whether another one has taken its place.
    pub replaced: bool,
    /// Seconds since it is there.
    pub age_s: u64,
    /// Milliseconds since something came by it; null if nothing has.
    pub heard_ms: Option<u64>,
    /// Inner packets sent.
    pub tx_packets: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Inner packets received.
    pub rx_packets: u64,
    /// Their bytes.
    pub rx_bytes: u64,
}

/// One protocol, or some ports of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Only {
    /// Its name, as the configuration has it: `tcp`, `proto/47`.
    pub protocol: String,
    /// Ports at this end: `443`, `8000-8010`; null for all.
    pub local_ports: Option<String>,
    /// Ports at the other end.
    pub remote_ports: Option<String>,
}

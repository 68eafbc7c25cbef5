//! What the configuration says of addresses and names for hosts.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use wire::ethernet::MacAddress;

/// IPv4 addresses that hosts of a network are leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dhcp {
    /// The first address of the pool.
    pub first: Ipv4Addr,
    /// The last one.
    pub last: Ipv4Addr,
    /// How long a lease lasts, in whole seconds.
    pub lease: Duration,
    /// DNS servers that hosts are told of; where empty, the gateway, if its resolver listens there.
    pub dns: Vec<Ipv4Addr>,
    /// Hosts that always have the same address.
    pub hosts: Vec<FixedHost>,
}

impl Dhcp {
    /// How many addresses the pool has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.last.to_bits().saturating_sub(self.first.to_bits()).saturating_add(1)
    }

    /// Whether the address is of the pool.
    #[must_use]
    pub fn has(&self, address: Ipv4Addr) -> bool {
        (self.first..=self.last).contains(&address)
    }
}

/// A host that always has the same address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedHost {
    /// Its name, a label of DNS.
    pub name: String,
    /// Its link-layer address.
    pub mac: MacAddress,
    /// Its address, of the pool or not.
    pub address: Ipv4Addr,
}

/// The gateway's resolver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    /// Who is asked for names that are not of a network here.
    pub upstream: Upstream,
    /// The domain that each network's is in.
    pub domain: String,
    /// Domains elsewhere whose names may have private addresses.
    pub private: Vec<String>,
}

/// Who is asked for other names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// Those that the uplinks announce, or else those of the machine.
    Uplinks,
    /// These; one at least.
    Servers(Vec<SocketAddr>),
    /// These by TLS, and none in the clear; one at least.
    Tls(Vec<TlsServer>),
}

/// A server that is asked by DNS over TLS (RFC 7858).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsServer {
    /// Where it listens.
    pub place: SocketAddr,
    /// The name that its certificate has to be for.
    pub name: String,
}

//! Transition tunnels: IPv6 in IPv4 (6in4, RFC 4213; 6to4, RFC 3056; 6rd, RFC 5969) and IPv4 in IPv6 (RFC 2473). A CLAT
//! (RFC 6877) is configured as one of them, though it translates and adds no header: its programs are those of NAT64, and
//! of its packets here are only errors.
//!
//! Here is what a tunnel makes of a packet in either direction, byte for byte, and what it refuses. The program runs the
//! same in the kernel, as eBPF, and compares the two in its tests; what the kernel cannot take (fragments, options) comes
//! here.
//!
//! | module | subject |
//! |---|---|
//! | `domain` | prefixes that have an IPv4 address in them: 6to4 and 6rd; which addresses are a single host's |
//! | `encapsulate` | a packet on its way into the tunnel |
//! | `decapsulate` | a packet that came out of it |
//! | `icmp_error` | errors about outer packets, passed on to whom the inner packet was from |
//! | `path_mtu` | what the path to the other end takes |
//! | `provider` | what a provider tells of its end |
//!
//! Invariants, in both directions:
//! - A packet whose inner and outer addresses do not go together is refused (RFC 3964 section 5, RFC 5969 section 12,
//!   RFC 4213 section 4).
//! - A refused packet is counted under a [`Refusal`], and nobody is answered.

mod decapsulate;
mod domain;
mod encapsulate;
mod icmp_error;
mod path_mtu;
mod provider;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

pub use decapsulate::Outer;
pub use domain::{Domain, DomainRoute};
pub use encapsulate::PROTOCOL_IPV4;
pub use icmp_error::ErrorReport;
pub use path_mtu::PathMtu;
pub use provider::{Provider, clat_address};

use crate::nat64::Prefix;

/// The least MTU of a link with IPv6 (RFC 8200 section 5).
pub const LEAST_MTU: u32 = 1_280;

/// A tunnel, as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    /// What is carried in what, and to whom.
    pub kind: Kind,
    /// The interface that carries it.
    pub over: String,
    /// The outer address of this end; without one, that of the interface.
    pub local: Option<IpAddr>,
    /// The largest inner packet; without one, what the interface leaves.
    pub mtu: Option<u32>,
    /// Hop limit, or time to live, of outer packets.
    pub hop_limit: u8,
}

/// What is carried in what, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv6 in IPv4, to one other end (RFC 4213).
    SixInFour {
        /// The other end.
        remote: Ipv4Addr,
    },
    /// IPv6 in IPv4, to whom the inner address says: 6to4 (RFC 3056) and 6rd (RFC 5969).
    Automatic(Domain),
    /// IPv4 in IPv6, to one other end (RFC 2473).
    FourInSix {
        /// The other end; without one, the AFTR that the provider names (DS-Lite).
        remote: Option<Ipv6Addr>,
    },
    /// IPv4 as IPv6, to a translator of the provider (464XLAT, RFC 6877).
    Clat {
        /// Where that translator finds IPv4 addresses; without one, what the provider tells.
        plat: Option<Prefix>,
    },
}

/// What packets of a CLAT come from before they are translated (RFC 7335).
pub const CLAT_IPV4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);

impl Kind {
    /// As the configuration calls it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Kind::SixInFour { .. } => "6in4",
            Kind::Automatic(domain) if domain.is_6to4() => "6to4",
            Kind::Automatic(_) => "6rd",
            Kind::FourInSix { .. } => "4in6",
            Kind::Clat { .. } => "464xlat",
        }
    }

    /// By how many bytes a packet grows at most: an outer header; of a CLAT, what a header of IPv6 and that of a fragment
    /// have more than one of IPv4.
    #[must_use]
    pub fn overhead(&self) -> u32 {
        match self {
            Kind::SixInFour { .. } | Kind::Automatic(_) => 20,
            Kind::FourInSix { .. } => 40,
            Kind::Clat { .. } => 28,
        }
    }

    /// The least MTU of the tunnel: what any link with IPv6 takes, inside or outside.
    #[must_use]
    pub fn min_mtu(&self) -> u32 {
        if self.is_over_ipv6() { LEAST_MTU - self.overhead() } else { LEAST_MTU }
    }

    /// Whether the outer packets are those of IPv6.
    #[must_use]
    pub fn is_over_ipv6(&self) -> bool {
        matches!(self, Kind::FourInSix { .. } | Kind::Clat { .. })
    }

    /// The other end, where there is one.
    #[must_use]
    pub fn remote(&self) -> Option<IpAddr> {
        match self {
            Kind::SixInFour { remote } => Some(IpAddr::V4(*remote)),
            Kind::Automatic(domain) => domain.relay.map(IpAddr::V4),
            Kind::FourInSix { remote } => remote.map(IpAddr::V6),
            Kind::Clat { .. } => None,
        }
    }

    /// Whether it has one next hop: that to the only other end, or to the prefix of the provider's translator.
    #[must_use]
    pub fn next_hop_towards(&self) -> Option<IpAddr> {
        match self {
            Kind::SixInFour { .. } | Kind::FourInSix { .. } => self.remote(),
            Kind::Automatic(_) => None,
            Kind::Clat { plat } => plat.map(|plat| IpAddr::V6(plat.net().network())),
        }
    }

    /// Where a CLAT's other end finds IPv4 addresses.
    #[must_use]
    pub fn plat(&self) -> Option<Prefix> {
        match self {
            Kind::Clat { plat } => *plat,
            _ => None,
        }
    }
}

/// One end of a tunnel, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What is carried, and to whom.
    pub kind: Kind,
    /// Our outer address, of the kind's family.
    pub local: IpAddr,
    /// Prefixes that are this side's: nobody on the other side has an address of them.
    pub local_prefixes: Vec<Ipv6Net>,
    /// Hop limit, or time to live, of outer packets.
    pub hop_limit: u8,
}

impl Endpoint {
    /// The tunnel's end at this outer address; none where there can be none, as for 6to4 at a private address.
    #[must_use]
    pub fn new(tunnel: &Tunnel, local: IpAddr, prefixes: &[Ipv6Net]) -> Option<Self> {
        let mut local_prefixes = prefixes.to_vec();
        match (&tunnel.kind, local) {
            (Kind::SixInFour { .. }, IpAddr::V4(_))
            | (Kind::FourInSix { remote: Some(_) } | Kind::Clat { plat: Some(_) }, IpAddr::V6(_)) => {}
            (Kind::Automatic(domain), IpAddr::V4(local)) => local_prefixes.push(domain.delegated(local)?),
            _ => return None,
        }
        let (kind, hop_limit) = (tunnel.kind.clone(), tunnel.hop_limit);
        Some(Endpoint { kind, local, local_prefixes, hop_limit })
    }

    /// The prefix that 6to4 or 6rd gives this end.
    #[must_use]
    pub fn delegated(&self) -> Option<Ipv6Net> {
        match (&self.kind, self.local) {
            (Kind::Automatic(domain), IpAddr::V4(local)) => domain.delegated(local),
            _ => None,
        }
    }

    /// The route that the tunnel has instead of one to the Internet, if it leads to its domain alone.
    #[must_use]
    pub fn domain_route(&self) -> Option<DomainRoute> {
        let Kind::Automatic(domain) = &self.kind else { return None };
        let any_source = self.is_relay();
        (any_source || domain.relay.is_none()).then_some(DomainRoute { prefix: domain.prefix, any_source })
    }

    /// Whether this end is the relay of its domain: what it gets for addresses beyond the domain goes on to the Internet.
    #[must_use]
    pub fn is_relay(&self) -> bool {
        matches!(&self.kind, Kind::Automatic(domain) if domain.relay.map(IpAddr::V4) == Some(self.local))
    }
}

/// Why a packet is not carried. The names are those of `sidestep status --json`: they may grow, none is renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// It came from somebody who is not the other end. It is left to the kernel, in case another tunnel wants it.
    Stranger,
    /// A header is cut short, or contradicts the packet.
    Malformed,
    /// The inner source is no address of a single host, or none that may cross.
    Source,
    /// Inner and outer source do not go together, or the inner one is of this side.
    Spoofed,
    /// The inner destination is not on this side of the tunnel, or has no usable address in it.
    Destination,
    /// Congestion was marked outside, and the transport inside could not be told (RFC 6040 section 4.2).
    Congestion,
    /// There is no outer address, or no other end for the destination.
    NoWay,
    /// To a group: 6to4 and 6rd carry none. The kernel's own membership reports, as a rule.
    Multicast,
}

impl Refusal {
    /// All of them, in the order of their numbers.
    pub const ALL: [Refusal; 8] = [
        Refusal::Stranger,
        Refusal::Malformed,
        Refusal::Source,
        Refusal::Spoofed,
        Refusal::Destination,
        Refusal::Congestion,
        Refusal::NoWay,
        Refusal::Multicast,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Stranger => "stranger",
            Refusal::Malformed => "malformed",
            Refusal::Source => "source",
            Refusal::Spoofed => "spoofed",
            Refusal::Destination => "destination",
            Refusal::Congestion => "congestion",
            Refusal::NoWay => "no_way",
            Refusal::Multicast => "multicast",
        }
    }
}

//! Who is in a lab: its machines, its two sites with their addresses, and the kinds of networks between them.
//!
//! ```text
//! routed     host A ── gateway A ── router ═══════════════ gateway B ── host B
//! switched   host A ── gateway A ── router's bridge ══════ gateway B ── host B
//! tunneled   host A ── gateway A ── router ═6in4═ router B ── gateway B ── host B
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::namespaces::Namespace;

/// How the two gateways are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Topology {
    /// A router between the gateways routes a hopping prefix to each.
    #[default]
    Routed,
    /// Both gateways on one link, hopping prefixes on-link.
    Switched,
    /// The path between the gateways runs through a 6in4 tunnel with MTU 1480.
    Tunneled,
}

impl Topology {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Routed, Self::Switched, Self::Tunneled];
}

/// One of the two sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Site {
    /// Host A behind gateway A.
    A,
    /// Host B behind gateway B.
    B,
}

impl Site {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// `a` or `b`.
    pub fn letter(self) -> char {
        match self {
            Self::A => 'a',
            Self::B => 'b',
        }
    }

    /// The host's IPv6 address.
    pub fn host(self) -> IpAddr {
        IpAddr::V6(match self {
            Self::A => Ipv6Addr::new(0x2001, 0xdb8, 0xa, 0, 0, 0, 0, 2),
            Self::B => Ipv6Addr::new(0x2001, 0xdb8, 0xb, 0, 0, 0, 0, 2),
        })
    }

    /// The host's IPv4 address.
    pub fn host_v4(self) -> IpAddr {
        IpAddr::V4(match self {
            Self::A => Ipv4Addr::new(10, 0, 1, 2),
            Self::B => Ipv4Addr::new(10, 0, 2, 2),
        })
    }

    /// The site's own networks.
    pub fn inner_prefixes(self) -> [&'static str; 2] {
        match self {
            Self::A => ["2001:db8:a::/64", "10.0.1.0/24"],
            Self::B => ["2001:db8:b::/64", "10.0.2.0/24"],
        }
    }

    /// The address that its gateway has outside, besides those that move.
    pub fn outer(self, topology: Topology) -> String {
        let letter = self.letter();
        if topology == Topology::Switched {
            format!("2001:db8:f0::{letter}")
        } else {
            format!("2001:db8:f{letter}::2")
        }
    }

    /// Where the site's outer endpoints move.
    pub fn hop_prefix(self) -> &'static str {
        match self {
            Self::A => "2001:db8:a1::/64",
            Self::B => "2001:db8:b1::/64",
        }
    }

    /// Whether an address lies in the hopping prefix.
    pub fn in_hop_prefix(self, address: Ipv6Addr) -> bool {
        let third = match self {
            Self::A => 0xa1,
            Self::B => 0xb1,
        };
        address.segments()[..4] == [0x2001, 0xdb8, third, 0]
    }

    /// The site's gateway.
    pub fn gateway(self) -> Node {
        match self {
            Self::A => Node::GatewayA,
            Self::B => Node::GatewayB,
        }
    }

    /// The site's host.
    pub fn host_node(self) -> Node {
        match self {
            Self::A => Node::HostA,
            Self::B => Node::HostB,
        }
    }
}

/// A machine of the lab: a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Node {
    /// Host A.
    #[value(name = "ha")]
    HostA,
    /// Gateway A: interfaces `in` and `ex`.
    #[value(name = "ga")]
    GatewayA,
    /// The router: interfaces `a` and `b` (`br` above them when switched), or `a` and `mid`.
    #[value(name = "r")]
    Router,
    /// The second router, where there is one: interfaces `mid` and `b`.
    #[value(name = "r2")]
    RouterB,
    /// The impairment relay's own namespace: interfaces `left` and `right`.
    #[value(name = "m")]
    Relay,
    /// Gateway B: interfaces `in` and `ex`.
    #[value(name = "gb")]
    GatewayB,
    /// Host B.
    #[value(name = "hb")]
    HostB,
    /// The switch between host A and a transparent gateway A.
    #[value(name = "sa")]
    SwitchInside,
    /// A host there that is not protected.
    #[value(name = "ta")]
    ThirdInside,
    /// The switch outside of a transparent gateway A.
    #[value(name = "xa")]
    SwitchOutside,
    /// A host there.
    #[value(name = "to")]
    ThirdOutside,
}

impl Node {
    /// All that a lab can have.
    pub const ALL: [Self; 11] = [
        Self::HostA,
        Self::GatewayA,
        Self::Router,
        Self::RouterB,
        Self::Relay,
        Self::GatewayB,
        Self::HostB,
        Self::SwitchInside,
        Self::ThirdInside,
        Self::SwitchOutside,
        Self::ThirdOutside,
    ];

    /// What its namespace's name ends with.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::HostA => "ha",
            Self::GatewayA => "ga",
            Self::Router => "r",
            Self::RouterB => "r2",
            Self::Relay => "m",
            Self::GatewayB => "gb",
            Self::HostB => "hb",
            Self::SwitchInside => "sa",
            Self::ThirdInside => "ta",
            Self::SwitchOutside => "xa",
            Self::ThirdOutside => "to",
        }
    }

    /// Its namespace in the lab of this prefix.
    pub fn namespace(self, prefix: &str) -> Namespace {
        Namespace::named(format!("{prefix}-{}", self.suffix()))
    }
}

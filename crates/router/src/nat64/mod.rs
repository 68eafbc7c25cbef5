//! NAT64: hosts that have IPv6 only reach servers that have IPv4 only (RFC 6146, RFC 7915).
//!
//! Translation is done twice, each time by who does it best. A host of IPv6 gets an address of a private pool, all to
//! itself, and headers are translated one for one; then the kernel translates that address, with its ports, to the uplink's
//! own, as it does for any other host with a private address. State, timeouts and the firewall are those of IPv4.

mod named;
mod prefix;

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

pub use named::{IPV4_ONLY, prefixes};
pub use prefix::{LENGTHS, Layout, NoPrefix, Prefix};

/// The translator's device.
pub const DEVICE: &str = "nat64";

/// The longest prefix of a pool: there are some sets of eight hosts in it.
pub const LONGEST_POOL: u8 = 26;
/// The shortest: as many hosts take 22 MB.
pub const SHORTEST_POOL: u8 = 12;

/// A translator, as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat64 {
    /// Where hosts find IPv4 addresses.
    pub prefix: Prefix,
    /// Private addresses for the hosts of IPv6, seen nowhere but in this machine.
    pub pool: Ipv4Net,
}

/// Why a packet is not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// It is shorter than it says, or longer.
    Malformed,
    /// It has extension headers but for that of a fragment, or options.
    Headers,
    /// An ICMP message that the other version has not, or about a packet that was not translated.
    Icmp,
    /// Its source cannot be that of one host, or is none of the Internet.
    Source,
    /// The same of its destination: private, the pool itself, a group.
    Destination,
    /// No host has this address of the pool.
    NoHost,
    /// There is no address for one more host.
    Full,
    /// A fragmented message whose checksum cannot be told from the fragment.
    NoChecksum,
}

impl Refusal {
    /// All of them, in the order of their numbers.
    pub const ALL: [Refusal; 8] = [
        Refusal::Malformed,
        Refusal::Headers,
        Refusal::Icmp,
        Refusal::Source,
        Refusal::Destination,
        Refusal::NoHost,
        Refusal::Full,
        Refusal::NoChecksum,
    ];

    /// Its name, in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::Malformed => "malformed",
            Refusal::Headers => "headers",
            Refusal::Icmp => "icmp",
            Refusal::Source => "source",
            Refusal::Destination => "destination",
            Refusal::NoHost => "no_host",
            Refusal::Full => "full",
            Refusal::NoChecksum => "no_checksum",
        }
    }
}

const fn net(a: u8, b: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), length)
}

/// What hosts do not reach through a translator: this network, private and shared addresses, loopback, link-local, what is
/// for protocols (CLAT and DS-Lite among them), benchmarks, groups, and what is reserved. RFC 6052 section 3.1 wants all that
/// is not global refused in the well-known prefix; in one of your own, these would lead back into this site, around its
/// networks' own rules. Addresses for documentation are not among them: they lead nowhere.
pub const UNREACHABLE: [Ipv4Net; 10] = [
    net(0, 0, 8),
    net(10, 0, 8),
    net(100, 64, 10),
    net(127, 0, 8),
    net(169, 254, 16),
    net(172, 16, 12),
    net(192, 0, 24),
    net(192, 168, 16),
    net(198, 18, 15),
    net(224, 0, 3),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_numbered_in_the_order_of_the_list() {
        for (number, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, number);
        }
    }
}

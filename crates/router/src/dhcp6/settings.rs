//! What the configuration says of addresses for hosts and prefixes for routers.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use wire::ethernet::MacAddress;

/// What a network's hosts and routers may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Length of the prefixes that routers get, 64 at most; none get any without.
    pub delegate: Option<u8>,
    /// Hosts that always have the same address.
    pub hosts: Vec<FixedHost>,
}

/// A host that always has the same address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedHost {
    /// What it is called.
    pub name: String,
    /// How it is known.
    pub identity: Identity,
    /// The low 64 bits of its address.
    pub host: u64,
}

impl FixedHost {
    /// Its address in a prefix of its network. In one that is no /64 hosts make none, and have none from here.
    #[must_use]
    pub fn address_in(&self, prefix: Ipv6Net) -> Option<Ipv6Addr> {
        let bits = prefix.network().to_bits() | u128::from(self.host);
        (prefix.prefix_len() == 64).then(|| Ipv6Addr::from_bits(bits))
    }
}

/// How a host is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// By its DUID (RFC 8415 section 11).
    Duid(Vec<u8>),
    /// By its link-layer address, as it is in a DUID or in its link-local address (RFC 4291 appendix A).
    Mac(MacAddress),
}

impl Identity {
    /// Its link-layer address, where it is known by that.
    #[must_use]
    pub fn mac(&self) -> Option<MacAddress> {
        match self {
            Identity::Mac(mac) => Some(*mac),
            Identity::Duid(_) => None,
        }
    }

    pub(super) fn is(&self, duid: &[u8], source: Ipv6Addr) -> bool {
        match self {
            Identity::Duid(own) => own == duid,
            Identity::Mac(mac) => {
                // DUID-LLT and DUID-LL of Ethernet.
                let in_duid = match duid {
                    [0, 1, 0, 1, _, _, _, _, rest @ ..] | [0, 3, 0, 1, rest @ ..] => rest == mac.0,
                    _ => false,
                };
                let [a, b, c, d, e, f] = mac.0;
                in_duid || source.octets()[8..] == [a ^ 2, b, c, 0xff, 0xfe, d, e, f]
            }
        }
    }
}

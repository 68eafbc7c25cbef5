//! What a provider tells of its end of a tunnel, where that is not configured.

use std::net::{IpAddr, Ipv6Addr};

use ipnet::Ipv6Net;

use super::{Kind, Tunnel};
use crate::nat64::Prefix;

/// What is known of the provider below a tunnel; all of it may change at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Provider {
    /// The address of its AFTR (RFC 6334).
    pub aftr: Option<Ipv6Addr>,
    /// The prefix of its translator, as its routers advertise it (PREF64, RFC 8781), or else by name (RFC 7050): the one goes
    /// before the other (RFC 8781 section 5.1).
    pub plat: Option<Prefix>,
    /// Whether that is by name.
    pub plat_by_name: bool,
    /// The address that this end has for a CLAT.
    pub clat: Option<Ipv6Addr>,
    /// The router by which all of it is reached.
    pub router: Option<Ipv6Addr>,
}

impl Tunnel {
    /// The tunnel with what the provider tells in the place of what is not configured.
    #[must_use]
    pub fn with(&self, provider: &Provider) -> Tunnel {
        match self.kind {
            Kind::Clat { plat } => Tunnel {
                kind: Kind::Clat { plat: plat.or(provider.plat) },
                local: self.local.or(provider.clat.map(IpAddr::V6)),
                ..self.clone()
            },
            Kind::FourInSix { remote } => {
                Tunnel { kind: Kind::FourInSix { remote: remote.or(provider.aftr) }, ..self.clone() }
            }
            _ => self.clone(),
        }
    }
}

/// The address of a CLAT in a prefix of its uplink, the same at each start: in the last /64, which networks take last, with
/// an interface identifier that nobody guesses (RFC 7217). `secret` is the machine's own.
#[must_use]
pub fn clat_address(prefix: Ipv6Net, secret: [u64; 2]) -> Ipv6Addr {
    let last = Ipv6Net::new_assert(prefix.broadcast(), prefix.prefix_len().max(64)).trunc();
    let subnet = (last.network().to_bits() >> 64) as u64;
    let mut mixed = subnet ^ secret[0];
    for round in [secret[1] | 1, 0x9e37_79b9_7f4a_7c15] {
        mixed = mixed.wrapping_mul(round);
        mixed ^= mixed >> 32;
    }
    let host = u128::from(mixed) & last.hostmask().to_bits();
    Ipv6Addr::from_bits(last.network().to_bits() | host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv6Net {
        text.parse().unwrap()
    }

    #[test]
    fn the_address_of_a_clat_is_in_the_last_subnet_and_always_the_same() {
        let address = |prefix: &str, secret| clat_address(net(prefix), secret);
        assert!(net("2001:db8:0:ff::/64").contains(&address("2001:db8::/56", [1, 2])));
        assert!(net("2001:db8:0:7::/64").contains(&address("2001:db8:0:7::/64", [1, 2])));
        assert!(net("2001:db8::1:0/112").contains(&address("2001:db8::1:0/112", [1, 2])));
        assert_eq!(address("2001:db8::/56", [1, 2]), address("2001:db8::/56", [1, 2]));
        assert_ne!(address("2001:db8::/56", [1, 2]), address("2001:db8::/56", [3, 2]));
    }

    #[test]
    fn what_is_configured_goes_before_what_the_provider_tells() {
        let provider = Provider {
            plat: Some(Prefix::WELL_KNOWN),
            plat_by_name: false,
            clat: Some(Ipv6Addr::LOCALHOST),
            aftr: Some(Ipv6Addr::LOCALHOST),
            router: None,
        };
        let tunnel = |plat| Tunnel {
            kind: Kind::Clat { plat },
            over: "eth0".into(),
            local: None,
            mtu: None,
            hop_limit: 64,
        };
        let told = tunnel(None).with(&provider);
        assert_eq!((told.kind.plat(), told.local), (provider.plat, Some(Ipv6Addr::LOCALHOST.into())));
        let own = Prefix::new(net("2001:db8:64::/48")).ok();
        assert_eq!(tunnel(own).with(&provider).kind.plat(), own);
        let dslite = Tunnel { kind: Kind::FourInSix { remote: None }, ..tunnel(None) };
        assert_eq!(dslite.with(&provider).kind.remote(), Some(Ipv6Addr::LOCALHOST.into()));
    }
}

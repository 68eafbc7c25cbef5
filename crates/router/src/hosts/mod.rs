//! What hosts of a network ask the gateway for: IPv4 addresses (DHCP, RFC 2131) and names (DNS). dnsmasq answers, one for each
//! network, so that each listens at its network alone and knows the names there. Where servers elsewhere are to be asked by TLS,
//! it asks stubby, which does so.
//!
//! Here is what they are told ([`mod@dnsmasq`], [`mod@stubby`]) and how leases are read ([`lease`]). A host's name is `HOST.NETWORK.DOMAIN`.
//! Networks inside tell each other their names, as hosts there may reach each other; a network of guests tells its own hosts
//! alone, and hears of no other's.

pub mod dnsmasq;
pub mod lease;
pub mod settings;
pub mod stubby;

use std::net::Ipv4Addr;

use crate::firewall::{Policy, Trust};
use crate::site::{Network, Site};
pub use settings::{Dhcp, FixedHost, Resolver, TlsServer, Upstream};

impl Network {
    /// Whether hosts there ask the gateway for anything.
    #[must_use]
    pub fn has_server(&self) -> bool {
        self.dhcp.is_some() || self.resolves
    }
}

impl Site {
    /// The domain of a network's hosts, if they are told to ask the gateway for names.
    #[must_use]
    pub fn domain_of(&self, network: &Network) -> Option<String> {
        let resolver = self.resolver.as_ref().filter(|_| network.resolves)?;
        Some(format!("{}.{}", network.name.to_ascii_lowercase(), resolver.domain))
    }

    /// The other networks whose names hosts of this one may ask for: both are inside, or there is no firewall.
    pub fn known_to<'s>(
        &'s self,
        network: &'s Network,
        policy: Option<&'s Policy>,
    ) -> impl Iterator<Item = &'s Network> {
        let is_inside = move |network: &Network| {
            policy.is_none_or(|policy| trust(network, policy) == Some(Trust::Inside))
        };
        let here = is_inside(network);
        let others = self.networks.iter().filter(move |other| other.name != network.name);
        others.filter(move |other| here && is_inside(other))
    }

    /// Those that are asked for names elsewhere by TLS, if there are any.
    #[must_use]
    pub fn tls_servers(&self) -> &[TlsServer] {
        match self.resolver.as_ref().map(|resolver| &resolver.upstream) {
            Some(Upstream::Tls(servers)) => servers,
            _ => &[],
        }
    }

    /// The hosts that always have the same address, each with its network.
    pub fn fixed_hosts(&self) -> impl Iterator<Item = (&Network, &FixedHost)> {
        self.networks.iter().flat_map(|network| {
            network.dhcp.iter().flat_map(|dhcp| &dhcp.hosts).map(move |host| (network, host))
        })
    }
}

/// The trust of a network's zone; None where it is in none.
#[must_use]
pub fn trust(network: &Network, policy: &Policy) -> Option<Trust> {
    let address = network.ipv4.map_or(Ipv4Addr::UNSPECIFIED, |net| net.addr());
    policy.zone_of(&network.interface, address.into()).and_then(|zone| policy.trust(zone))
}

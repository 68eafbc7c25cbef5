//! What hosts of a network ask the gateway for: IPv4 addresses (DHCP, RFC 2131) and names (DNS). dnsmasq answers, one for each
//! network, so that each listens at its network alone and knows the names there. Where servers elsewhere are to be asked by TLS,
//! it asks stubby, which does so.
//!
//! Here is what they are told ([`mod@dnsmasq`], [`mod@stubby`]) and how leases are read ([`lease`]). A host's name is `HOST.NETWORK.DOMAIN`;
//! hosts whose IPv6 addresses the gateway gives away itself ([`crate::dhcp6`]) have theirs there, too.
//! Networks inside tell each other their names, as hosts there may reach each other; a network of guests tells its own hosts
//! alone, and hears of no other's.

pub mod dnsmasq;
pub mod lease;
pub mod settings;
pub mod stubby;

use std::net::Ipv4Addr;

use crate::dhcp6;
use crate::firewall::{Policy, Trust};
use crate::site::{Network, Site};
use lease::Lease;
pub use settings::{Dhcp, FixedHost, Resolver, TlsServer, Upstream};
use wire::ethernet::MacAddress;

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

    /// Whether a lease of a network has a name that the configuration gives to another host there, as from before it did.
    #[must_use]
    pub fn is_anothers_name(&self, network: &Network, lease: &Lease) -> bool {
        let Some(name) = &lease.name else { return false };
        let in_network =
            |of: &Network, host: &str| of.name == network.name && host.eq_ignore_ascii_case(name);
        let is_its =
            |mac: Option<MacAddress>| mac.is_some_and(|mac| mac.to_string().eq_ignore_ascii_case(&lease.mac));
        let fixed = self.fixed_hosts().filter(|(of, host)| in_network(of, &host.name));
        let fixed = fixed.map(|(_, host)| Some(host.mac));
        let fixed6 = self.fixed_hosts6().filter(|(of, host)| in_network(of, &host.name));
        let macs: Vec<_> = fixed.chain(fixed6.map(|(_, host)| host.identity.mac())).collect();
        !macs.is_empty() && !macs.into_iter().any(is_its)
    }

    /// The hosts that always have the same IPv4 address, each with its network.
    pub fn fixed_hosts(&self) -> impl Iterator<Item = (&Network, &FixedHost)> {
        self.networks.iter().flat_map(|network| {
            network.dhcp.iter().flat_map(|dhcp| &dhcp.hosts).map(move |host| (network, host))
        })
    }

    /// The hosts whose IPv6 addresses have the same last bits in each prefix of their network, likewise.
    pub fn fixed_hosts6(&self) -> impl Iterator<Item = (&Network, &dhcp6::FixedHost)> {
        self.networks.iter().flat_map(|network| {
            network.dhcp6.iter().flat_map(|dhcp6| &dhcp6.hosts).map(move |host| (network, host))
        })
    }
}

/// The trust of a network's zone; None where it is in none.
#[must_use]
pub fn trust(network: &Network, policy: &Policy) -> Option<Trust> {
    let address = network.ipv4.map_or(Ipv4Addr::UNSPECIFIED, |net| net.addr());
    policy.zone_of(&network.interface, address.into()).and_then(|zone| policy.trust(zone))
}

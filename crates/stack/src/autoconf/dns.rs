//! DNS servers that routers advertise (RFC 8106 §5.1), for the caller to use.

use std::net::Ipv6Addr;
use std::time::Instant;

use super::advertiser::Advertiser;
use crate::route::Lifetime;

/// Servers that are kept, of all routers: RFC 8106 §5.3.1 wants three at least.
pub const MAX_DNS_SERVERS: usize = 8;

/// The servers, in the order in which they came.
#[derive(Debug, Default)]
pub struct DnsServers(Vec<Server>);

#[derive(Debug)]
struct Server {
    address: Ipv6Addr,
    router: Ipv6Addr,
    until: Option<Instant>,
}

impl DnsServers {
    /// A router advertises a server; a lifetime of 0: not any more. Where there is no place left, the oldest that a router
    /// advertised which has not been found reachable gives way.
    pub fn advertised(&mut self, now: Instant, address: Ipv6Addr, by: Advertiser<'_>, lifetime: Lifetime) {
        if address.is_multicast() || address.is_unspecified() || address.is_loopback() {
            return;
        }
        let until = lifetime.end(now);
        if let Some(known) = self.0.iter_mut().find(|known| known.address == address) {
            known.until = until;
            known.router = by.keeper_of(known.router);
        } else if !lifetime.is_zero() {
            if self.0.len() >= MAX_DNS_SERVERS
                && let Some(oldest) = self.0.iter().position(|known| by.may_displace(known.router))
            {
                self.0.remove(oldest);
            }
            if self.0.len() < MAX_DNS_SERVERS {
                self.0.push(Server { address, router: by.router, until });
            }
        }
        self.expire(now);
    }

    /// The servers.
    pub fn iter(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.0.iter().map(|known| known.address)
    }

    /// When one ends.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|known| known.until).min()
    }

    /// Removes those whose time is over.
    pub fn expire(&mut self, now: Instant) {
        self.0.retain(|known| known.until.is_none_or(|until| until > now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn server(number: u128) -> Ipv6Addr {
        Ipv6Addr::from_bits((0x2001_0db8 << 96) + number)
    }

    #[test]
    fn servers_live_as_long_as_said_and_are_bounded() {
        let now = Instant::now();
        let mut servers = DnsServers::default();
        let minute = Lifetime::Finite(Duration::from_secs(60));
        let router = "fe80::1".parse().unwrap();
        let by = Advertiser { router, reachable: &[router] };
        for number in 0..100 {
            servers.advertised(now, server(number), by, minute);
        }
        assert!(servers.iter().eq((0..MAX_DNS_SERVERS as u128).map(server)));
        servers.advertised(now, server(0), by, Lifetime::from_seconds(0));
        assert_eq!(servers.iter().count(), MAX_DNS_SERVERS - 1);
        servers.expire(servers.deadline().unwrap());
        assert_eq!(servers.iter().count(), 0);
    }

    #[test]
    fn servers_of_routers_that_nobody_has_reached_give_way() {
        let now = Instant::now();
        let mut servers = DnsServers::default();
        let minute = Lifetime::Finite(Duration::from_secs(60));
        let [good, forged] = ["fe80::1", "fe80::2"].map(|text| text.parse().unwrap());
        let mut advertise = |router, number| {
            servers.advertised(now, server(number), Advertiser { router, reachable: &[good] }, minute);
            servers.iter().any(|known| known == server(0))
        };
        assert!((1..100).all(|number| !advertise(forged, number)));
        assert!(advertise(good, 0));
        assert!((1..100).all(|number| advertise(forged, number)));
    }
}

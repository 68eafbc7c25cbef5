//! DNS servers that routers advertise (RFC 8106 §5.1), for the caller to use.

use std::net::Ipv6Addr;
use std::time::Instant;

use crate::route::Lifetime;

/// Servers that are kept, of all routers: RFC 8106 §5.3.1 wants three at least.
pub const MAX_DNS_SERVERS: usize = 8;

/// The servers, in the order in which they came.
#[derive(Debug, Default)]
pub struct DnsServers(Vec<(Ipv6Addr, Option<Instant>)>);

impl DnsServers {
    /// A router advertises a server; a lifetime of 0: not any more.
    pub fn advertised(&mut self, now: Instant, server: Ipv6Addr, lifetime: Lifetime) {
        if server.is_multicast() || server.is_unspecified() || server.is_loopback() {
            return;
        }
        let until = lifetime.end(now);
        if let Some(known) = self.0.iter_mut().find(|(known, _)| *known == server) {
            known.1 = until;
        } else if self.0.len() < MAX_DNS_SERVERS {
            self.0.push((server, until));
        }
        self.expire(now);
    }

    /// The servers.
    pub fn iter(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.0.iter().map(|(server, _)| *server)
    }

    /// When one ends.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|(_, until)| *until).min()
    }

    /// Removes those whose time is over.
    pub fn expire(&mut self, now: Instant) {
        self.0.retain(|(_, until)| until.is_none_or(|until| until > now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn servers_live_as_long_as_said_and_are_bounded() {
        let now = Instant::now();
        let mut servers = DnsServers::default();
        let minute = Lifetime::Finite(Duration::from_secs(60));
        for number in 0..100 {
            servers.advertised(now, Ipv6Addr::from_bits((0x2001_0db8 << 96) + number), minute);
        }
        assert_eq!(servers.iter().count(), MAX_DNS_SERVERS);
        servers.advertised(now, Ipv6Addr::from_bits(0x2001_0db8 << 96), Lifetime::from_seconds(0));
        assert_eq!(servers.iter().count(), MAX_DNS_SERVERS - 1);
        servers.expire(servers.deadline().unwrap());
        assert_eq!(servers.iter().count(), 0);
    }
}

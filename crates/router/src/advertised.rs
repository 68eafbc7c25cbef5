//! What router advertisements of an uplink name: DNS servers (RFC 8106), prefixes of NAT64 (RFC 8781). Each router has its own,
//! and says nothing of those of others: otherwise whoever is on the link could put one in front, or take the true ones away.

use std::net::Ipv6Addr;
use std::time::Instant;

use crate::lifetime::Lifetime;

/// How many of one link are remembered.
const MOST: usize = 16;

/// What one router has said of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct One<T> {
    named: T,
    router: Ipv6Addr,
    lifetime: Lifetime,
}

/// Those of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advertised<T>(Vec<One<T>>);

impl<T> Default for Advertised<T> {
    fn default() -> Self {
        Advertised(Vec::new())
    }
}

impl<T: Copy + PartialEq> Advertised<T> {
    /// A router advertises this one. `taken` is the router that packets go to; for what it names others make room.
    pub(crate) fn handle(
        &mut self,
        router: Ipv6Addr,
        (named, lifetime): (T, Lifetime),
        taken: Option<Ipv6Addr>,
        now: Instant,
    ) {
        let is_known = |known: &&mut One<T>| (known.named, known.router) == (named, router);
        if let Some(known) = self.0.iter_mut().find(is_known) {
            known.lifetime = lifetime;
            return;
        }
        if lifetime.is_expired(now) {
            return;
        }
        if self.0.len() == MOST {
            let yields = |known: &One<T>| Some(known.router) != taken;
            match self.0.iter().position(yields) {
                Some(place) if Some(router) == taken => drop(self.0.remove(place)),
                _ => return,
            }
        }
        self.0.push(One { named, router, lifetime });
    }

    /// Those of a router, in the order in which it named them first.
    pub(crate) fn of(&self, router: Option<Ipv6Addr>) -> impl Iterator<Item = T> {
        self.0.iter().filter(move |one| Some(one.router) == router).map(|one| one.named)
    }

    /// The link was down, and may lead somewhere else: what is not heard again within this time ends.
    pub(crate) fn doubt(&mut self, until: Lifetime) {
        for one in &mut self.0 {
            one.lifetime = one.lifetime.min(until);
        }
    }

    /// Forgets what has ended. Whether there was something.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        let before = self.0.len();
        self.0.retain(|one| !one.lifetime.is_expired(now));
        before != self.0.len()
    }

    /// How long each lasts.
    pub(crate) fn lifetimes(&self) -> impl Iterator<Item = Lifetime> {
        self.0.iter().map(|one| one.lifetime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number)
    }

    #[test]
    fn nobody_changes_the_servers_of_another_router() {
        let now = Instant::now();
        let (lasting, over) = (Lifetime::from_seconds(600, now), Lifetime::from_seconds(0, now));
        let mut servers = Advertised::default();
        let (own, bad) = (Some(address(1)), address(0xbad));
        servers.handle(address(1), (address(53), lasting), own, now);
        servers.handle(address(1), (address(54), lasting), own, now);
        for number in 60..100 {
            servers.handle(bad, (address(number), lasting), own, now);
        }
        servers.handle(bad, (address(53), over), own, now);
        servers.expire(now);
        assert_eq!(servers.of(own).collect::<Vec<_>>(), [53, 54].map(address));
        assert_eq!(servers.0.len(), MOST);
        // Said again, in another order, they stay where they are; and there is room for one more.
        for number in [55, 54, 53] {
            servers.handle(address(1), (address(number), lasting), own, now);
        }
        assert_eq!(servers.of(own).collect::<Vec<_>>(), [53, 54, 55].map(address));
        assert_eq!(servers.0.len(), MOST);
        servers.handle(address(1), (address(53), over), own, now);
        assert!(servers.expire(now));
        assert_eq!(servers.of(own).collect::<Vec<_>>(), [54, 55].map(address));
    }
}

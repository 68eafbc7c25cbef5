//! Prefixes on the link, default routers and routes, each with a lifetime (RFC 4861 §6.3.4 to §6.3.6, RFC 4191 §3).

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ndp::Preference;

use super::Lifetime;

/// Prefixes of one link: renumbering twice over.
pub const MAX_PREFIXES: usize = 16;
/// Default routers. RFC 4861 §6.3.4 wants two at least.
pub const MAX_ROUTERS: usize = 8;
/// Routes to networks (RFC 4191), of all routers together.
pub const MAX_ROUTES: usize = 32;

/// A better router that does not answer is asked for no oftener (RFC 4191 §3.5).
const PROBE_PAUSE: Duration = Duration::from_secs(60);

/// Where a packet goes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop {
    /// The destination is on the link.
    OnLink,
    /// To this router.
    Router(Ipv6Addr),
}

#[derive(Debug, Clone, Copy)]
struct OnLink {
    prefix: Ipv6Net,
    until: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Route {
    prefix: Ipv6Net,
    router: Ipv6Addr,
    preference: Preference,
    until: Option<Instant>,
    /// When it was last to be asked for.
    probed: Option<Instant>,
}

/// What routers and the caller have said of where things are.
#[derive(Debug, Default)]
pub struct Table {
    on_link: Vec<OnLink>,
    /// Default routers are routes to everywhere.
    routes: Vec<Route>,
    /// Which of several routers that do not answer is tried next.
    turn: usize,
    /// A router that would be better if it were reachable.
    better: Option<Ipv6Addr>,
    /// Default routers that are so no longer, until somebody asks.
    gone: Vec<Ipv6Addr>,
}

impl Table {
    /// A prefix is on the link, as long as that. Link-local prefixes are so anyway (RFC 4861 §6.3.4).
    pub fn set_on_link(&mut self, now: Instant, prefix: Ipv6Net, lifetime: Lifetime) {
        let prefix = prefix.trunc();
        if prefix.addr().is_unicast_link_local() || prefix.addr().is_multicast() {
            return;
        }
        let until = lifetime.end(now);
        if let Some(known) = self.on_link.iter_mut().find(|known| known.prefix == prefix) {
            known.until = until;
        } else if !lifetime.is_zero() && self.on_link.len() < MAX_PREFIXES {
            self.on_link.push(OnLink { prefix, until });
        }
        self.expire(now);
    }

    /// A router leads to a network; a lifetime of 0: not any more. `::/0` makes it a default router.
    pub fn set_route(
        &mut self,
        now: Instant,
        prefix: Ipv6Net,
        router: Ipv6Addr,
        preference: Preference,
        lifetime: Lifetime,
    ) {
        let prefix = prefix.trunc();
        let new = Route { prefix, router, preference, until: lifetime.end(now), probed: None };
        let known = self.routes.iter_mut().find(|known| known.prefix == prefix && known.router == router);
        if let Some(known) = known {
            *known = Route { probed: known.probed, ..new };
        } else if !lifetime.is_zero() {
            let is_default = prefix.prefix_len() == 0;
            let alike =
                self.routes.iter().filter(|route| (route.prefix.prefix_len() == 0) == is_default).count();
            if alike < if is_default { MAX_ROUTERS } else { MAX_ROUTES } {
                self.routes.push(new);
            }
        }
        self.expire(now);
    }

    /// A router is one no longer: all that leads through it is gone.
    pub fn remove_router(&mut self, router: Ipv6Addr) {
        self.routes.retain(|route| route.router != router);
    }

    /// The next hop to a destination, by the longest prefix, then by preference, of the routers that may be reachable. If
    /// none of those that lead there is, each is tried in turn (RFC 4861 §6.3.6, RFC 4191 §3.2). Ask
    /// [`Table::better_router`] afterwards.
    pub fn next_hop(
        &mut self,
        now: Instant,
        destination: Ipv6Addr,
        may_be_reachable: impl Fn(Ipv6Addr) -> bool,
    ) -> Option<NextHop> {
        if self.is_on_link(now, destination) {
            return Some(NextHop::OnLink);
        }
        let valid = |until: Option<Instant>| until.is_none_or(|until| until > now);
        let leading =
            self.routes.iter().filter(|route| route.prefix.contains(&destination) && valid(route.until));
        let rank = |route: &Route| (route.prefix.prefix_len(), route.preference);
        // The first of equals.
        let better = |a: Option<&'_ Route>, b: &Route| a.is_none_or(|a| rank(b) > rank(a));
        let (mut best, mut reachable): (Option<&Route>, Option<&Route>) = (None, None);
        for route in leading.clone() {
            if better(best, route) {
                best = Some(route);
            }
            if better(reachable, route) && may_be_reachable(route.router) {
                reachable = Some(route);
            }
        }
        let best = *best?;
        if let Some(reachable) = reachable.copied() {
            if rank(&best) > rank(&reachable) {
                self.wish_for(now, best);
            }
            return Some(NextHop::Router(reachable.router));
        }
        let count = leading.clone().count();
        let router = leading.clone().nth(self.turn.checked_rem(count)?)?.router;
        Some(NextHop::Router(router))
    }

    /// A router that would have been chosen if it were known to be reachable, and should be asked for; each only once a
    /// minute (RFC 4191 §3.5).
    pub fn better_router(&mut self) -> Option<Ipv6Addr> {
        self.better.take()
    }

    fn wish_for(&mut self, now: Instant, best: Route) {
        let same = |route: &&mut Route| route.router == best.router && route.prefix == best.prefix;
        let Some(route) = self.routes.iter_mut().find(same) else { return };
        if route.probed.is_none_or(|probed| now >= probed + PROBE_PAUSE) {
            route.probed = Some(now);
            self.better = Some(best.router);
        }
    }

    /// A router has been asked for in vain: the next one has its turn.
    pub fn next_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// Whether a destination is known to be on the link.
    pub fn is_on_link(&self, now: Instant, destination: Ipv6Addr) -> bool {
        let valid = |until: Option<Instant>| until.is_none_or(|until| until > now);
        destination.is_unicast_link_local()
            || destination.is_multicast()
            || self.on_link.iter().any(|known| known.prefix.contains(&destination) && valid(known.until))
    }

    /// Whether something leads through this router.
    pub fn is_router(&self, router: Ipv6Addr) -> bool {
        self.routes.iter().any(|route| route.router == router)
    }

    /// The default routers.
    pub fn default_routers(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.routes.iter().filter(|route| route.prefix.prefix_len() == 0).map(|route| route.router)
    }

    /// What is on the link, and until when.
    pub fn on_link(&self) -> impl Iterator<Item = (Ipv6Net, Option<Instant>)> + '_ {
        self.on_link.iter().map(|known| (known.prefix, known.until))
    }

    /// What leads through routers: where to, which, how it is preferred, and until when.
    pub fn routes(&self) -> impl Iterator<Item = (Ipv6Net, Ipv6Addr, Preference, Option<Instant>)> + '_ {
        self.routes.iter().map(|route| (route.prefix, route.router, route.preference, route.until))
    }

    /// When something ends.
    pub fn deadline(&self) -> Option<Instant> {
        let on_link = self.on_link.iter().filter_map(|known| known.until);
        on_link.chain(self.routes.iter().filter_map(|route| route.until)).min()
    }

    /// A default router whose lifetime has ended; what was redirected to it must go elsewhere (RFC 4861 §6.3.5).
    pub fn take_gone(&mut self) -> Option<Ipv6Addr> {
        self.gone.pop()
    }

    /// Removes what has ended. Ask [`Table::take_gone`] afterwards.
    pub fn expire(&mut self, now: Instant) {
        self.on_link.retain(|known| known.until.is_none_or(|until| until > now));
        let gone = &mut self.gone;
        self.routes.retain(|route| {
            let lasts = route.until.is_none_or(|until| until > now);
            if !lasts && route.prefix.prefix_len() == 0 {
                gone.push(route.router);
            }
            lasts
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FAR: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 1);
    const DAY: Lifetime = Lifetime::Finite(Duration::from_secs(86_400));

    fn router(number: u16) -> Ipv6Addr {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number)
    }

    fn prefix(text: &str) -> Ipv6Net {
        text.parse().unwrap()
    }

    fn table(now: Instant, routes: &[(&str, u16, Preference)]) -> Table {
        let mut table = Table::default();
        for (net, number, preference) in routes {
            table.set_route(now, prefix(net), router(*number), *preference, DAY);
        }
        table
    }

    #[test]
    fn rfc_4861_6_3_4_a_prefix_is_on_the_link_for_its_lifetime() {
        let now = Instant::now();
        let mut table = Table::default();
        let lifetime = Lifetime::Finite(Duration::from_secs(10));
        table.set_on_link(now, prefix("2001:db8:9::/64"), lifetime);
        assert_eq!(table.next_hop(now, FAR, |_| true), Some(NextHop::OnLink));
        let then = now + Duration::from_secs(10);
        assert_eq!(table.deadline(), Some(then));
        assert_eq!(table.next_hop(then, FAR, |_| true), None);
        table.set_on_link(then, prefix("2001:db8:9::/64"), DAY);
        table.set_on_link(then, prefix("2001:db8:9::/64"), Lifetime::Finite(Duration::ZERO));
        assert_eq!(table.next_hop(then, FAR, |_| true), None);
    }

    #[test]
    fn rfc_5942_without_a_router_only_link_local_addresses_are_on_the_link() {
        let now = Instant::now();
        let mut table = Table::default();
        assert_eq!(table.next_hop(now, router(1), |_| true), Some(NextHop::OnLink));
        assert_eq!(table.next_hop(now, FAR, |_| true), None);
        table.set_on_link(now, prefix("fe80::/10"), DAY);
        assert_eq!(table.deadline(), None);
    }

    #[test]
    fn rfc_4861_6_3_6_a_router_that_may_be_reachable_is_preferred_and_others_take_turns() {
        let now = Instant::now();
        let mut table = table(now, &[("::/0", 1, Preference::Medium), ("::/0", 2, Preference::Medium)]);
        assert_eq!(table.next_hop(now, FAR, |_| true), Some(NextHop::Router(router(1))));
        assert_eq!(table.next_hop(now, FAR, |at| at == router(2)), Some(NextHop::Router(router(2))));
        let mut tried = || {
            table.next_turn();
            table.next_hop(now, FAR, |_| false).unwrap()
        };
        assert_eq!([tried(), tried()], [NextHop::Router(router(2)), NextHop::Router(router(1))]);
    }

    #[test]
    fn rfc_4191_3_2_the_longest_prefix_then_the_preference() {
        let now = Instant::now();
        let mut table = table(
            now,
            &[
                ("::/0", 1, Preference::Low),
                ("::/0", 2, Preference::High),
                ("2001:db8:9::/48", 3, Preference::Low),
                ("2001:db8:9::/48", 4, Preference::Medium),
            ],
        );
        assert_eq!(table.next_hop(now, FAR, |_| true), Some(NextHop::Router(router(4))));
        let elsewhere = "2001:db8:1::1".parse().unwrap();
        assert_eq!(table.next_hop(now, elsewhere, |_| true), Some(NextHop::Router(router(2))));
        let all_but_4 = |at| at != router(4);
        assert_eq!(table.next_hop(now, FAR, all_but_4), Some(NextHop::Router(router(3))));
        table.remove_router(router(3));
        assert_eq!(table.next_hop(now, FAR, all_but_4), Some(NextHop::Router(router(2))));
    }

    #[test]
    fn rfc_4191_3_5_a_better_router_is_asked_for_once_a_minute() {
        let now = Instant::now();
        let mut table = table(now, &[("::/0", 1, Preference::Medium), ("::/0", 2, Preference::High)]);
        let mut better = |seconds| {
            let hop = table.next_hop(now + Duration::from_secs(seconds), FAR, |at| at == router(1));
            assert_eq!(hop, Some(NextHop::Router(router(1))));
            table.better_router()
        };
        assert_eq!([better(0), better(59), better(60)], [Some(router(2)), None, Some(router(2))]);
    }

    #[test]
    fn rfc_4861_6_3_4_a_lifetime_of_zero_ends_a_default_router_at_once() {
        let now = Instant::now();
        let mut table = table(now, &[("::/0", 1, Preference::Medium)]);
        let end = Lifetime::Finite(Duration::ZERO);
        table.set_route(now, prefix("::/0"), router(1), Preference::Medium, end);
        assert_eq!(table.next_hop(now, FAR, |_| true), None);
    }

    #[test]
    fn routers_and_routes_are_bounded_apart() {
        let now = Instant::now();
        let mut table = Table::default();
        for number in 0..1000u16 {
            let net = Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0), 48).unwrap();
            table.set_route(now, net, router(number), Preference::Medium, DAY);
            table.set_route(now, prefix("::/0"), router(number), Preference::Medium, DAY);
            table.set_on_link(now, net, DAY);
        }
        assert_eq!(
            (table.default_routers().count(), table.routes.len()),
            (MAX_ROUTERS, MAX_ROUTERS + MAX_ROUTES)
        );
        assert_eq!(table.on_link.len(), MAX_PREFIXES);
    }
}

//! Prefixes on the link, default routers and routes, each with a lifetime (RFC 4861 §6.3.4 to §6.3.6, RFC 4191 §3).
//!
//! Anybody on the link can advertise any number of routers. Where the places run out, what a router said that has not been
//! found reachable gives its place to a newcomer, the oldest first. What a reachable router said stays, and what the caller
//! set stays anyway.

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
    /// Who said so; `None`: the caller.
    router: Option<Ipv6Addr>,
}

#[derive(Debug, Clone, Copy)]
struct Route {
    prefix: Ipv6Net,
    router: Ipv6Addr,
    preference: Preference,
    until: Option<Instant>,
    /// When it was last to be asked for.
    probed: Option<Instant>,
    /// The caller has set it.
    is_static: bool,
}

impl Route {
    fn is_default(&self) -> bool {
        self.prefix.prefix_len() == 0
    }
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
    /// Routers that neighbor discovery has found reachable, and not unreachable since; only of those that are known here.
    confirmed: Vec<Ipv6Addr>,
}

impl Route {
    fn new(
        prefix: Ipv6Net,
        router: Ipv6Addr,
        preference: Preference,
        until: Option<Instant>,
        is_static: bool,
    ) -> Self {
        Self { prefix: prefix.trunc(), router, preference, until, probed: None, is_static }
    }
}

impl Table {
    /// The caller says that a prefix is on the link, as long as that. Link-local prefixes are so anyway
    /// (RFC 4861 §6.3.4).
    pub fn set_on_link(&mut self, now: Instant, prefix: Ipv6Net, lifetime: Lifetime) {
        self.put_on_link(now, prefix, None, lifetime);
    }

    /// A router says so. It changes nothing of what the caller has said.
    pub fn advertise_on_link(&mut self, now: Instant, prefix: Ipv6Net, router: Ipv6Addr, lifetime: Lifetime) {
        self.put_on_link(now, prefix, Some(router), lifetime);
    }

    /// The caller says that a router leads to a network; a lifetime of 0: not any more. `::/0` makes it a default router.
    pub fn set_route(
        &mut self,
        now: Instant,
        prefix: Ipv6Net,
        router: Ipv6Addr,
        preference: Preference,
        lifetime: Lifetime,
    ) {
        let until = lifetime.end(now);
        self.put_route(now, Route::new(prefix, router, preference, until, true), lifetime);
    }

    /// A router says so of itself. It changes nothing of what the caller has said.
    pub fn advertise_route(
        &mut self,
        now: Instant,
        prefix: Ipv6Net,
        router: Ipv6Addr,
        preference: Preference,
        lifetime: Lifetime,
    ) {
        let until = lifetime.end(now);
        self.put_route(now, Route::new(prefix, router, preference, until, false), lifetime);
    }

    fn put_on_link(&mut self, now: Instant, prefix: Ipv6Net, router: Option<Ipv6Addr>, lifetime: Lifetime) {
        let prefix = prefix.trunc();
        if prefix.addr().is_unicast_link_local() || prefix.addr().is_multicast() {
            return;
        }
        let (until, confirmed) = (lifetime.end(now), &self.confirmed);
        if let Some(known) = self.on_link.iter_mut().find(|known| known.prefix == prefix) {
            if router.is_none() || known.router.is_some() {
                known.until = until;
                // What a reachable router says, too, is not in the hands of another one.
                if router.is_none() || !known.router.is_some_and(|router| confirmed.contains(&router)) {
                    known.router = router;
                }
            }
        } else if !lifetime.is_zero() {
            let gives_way = |known: &OnLink| known.router.is_some_and(|router| !confirmed.contains(&router));
            if self.on_link.len() >= MAX_PREFIXES
                && let Some(oldest) = self.on_link.iter().position(gives_way)
            {
                self.on_link.remove(oldest);
            }
            if self.on_link.len() < MAX_PREFIXES {
                self.on_link.push(OnLink { prefix, until, router });
            }
        }
        self.expire(now);
    }

    fn put_route(&mut self, now: Instant, new: Route, lifetime: Lifetime) {
        let is_same = |known: &&mut Route| known.prefix == new.prefix && known.router == new.router;
        if let Some(known) = self.routes.iter_mut().find(is_same) {
            if new.is_static || !known.is_static {
                *known = Route { probed: known.probed, ..new };
            }
        } else if !lifetime.is_zero() {
            let most = if new.is_default() { MAX_ROUTERS } else { MAX_ROUTES };
            let is_alike = |route: &Route| route.is_default() == new.is_default();
            let gives_way = |route: &Route| {
                is_alike(route) && !route.is_static && !self.confirmed.contains(&route.router)
            };
            let mut alike = self.routes.iter().filter(|route| is_alike(route)).count();
            if alike >= most
                && let Some(oldest) = self.routes.iter().position(gives_way)
            {
                let old = self.routes.remove(oldest);
                if old.is_default() {
                    self.gone.push(old.router);
                }
                alike -= 1;
            }
            if alike < most {
                self.routes.push(new);
            }
        }
        self.expire(now);
    }

    /// Neighbor discovery has found a neighbor reachable: if it is a router, what it says stays. Returns whether it is one.
    pub fn reached(&mut self, router: Ipv6Addr) -> bool {
        let is_known = self.is_known(router);
        if is_known && !self.confirmed.contains(&router) {
            self.confirmed.push(router);
        }
        is_known
    }

    /// Neighbor discovery has found a router unreachable: what it says gives way where places run out.
    pub fn unreached(&mut self, router: Ipv6Addr) {
        self.confirmed.retain(|known| *known != router);
    }

    /// Routers that neighbor discovery has found reachable.
    pub fn confirmed(&self) -> &[Ipv6Addr] {
        &self.confirmed
    }

    /// Whether no place is left for a router, a route or a prefix, so that it matters who is reachable.
    pub fn is_full(&self) -> bool {
        let default = self.default_routers().count();
        default >= MAX_ROUTERS
            || self.routes.len() - default >= MAX_ROUTES
            || self.on_link.len() >= MAX_PREFIXES
    }

    /// All that have advertised something that is kept; some more than once.
    pub fn advertisers(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        let routes = self.routes.iter().filter(|route| !route.is_static).map(|route| route.router);
        routes.chain(self.on_link.iter().filter_map(|known| known.router))
    }

    fn is_known(&self, router: Ipv6Addr) -> bool {
        self.is_router(router) || self.on_link.iter().any(|known| known.router == Some(router))
    }

    /// A router is one no longer: all that leads through it is gone.
    pub fn remove_router(&mut self, router: Ipv6Addr) {
        self.routes.retain(|route| route.router != router);
        self.forget_strangers();
    }

    /// Of whom nothing is known here any longer, it does not matter whether he is reachable.
    fn forget_strangers(&mut self) {
        let mut confirmed = std::mem::take(&mut self.confirmed);
        confirmed.retain(|router| self.is_known(*router));
        self.confirmed = confirmed;
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
        self.routes.iter().filter(|route| route.is_default()).map(|route| route.router)
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
            if !lasts && route.is_default() {
                gone.push(route.router);
            }
            lasts
        });
        self.forget_strangers();
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

    /// Many routers that nobody has found reachable, each with a prefix and a route.
    fn flood(table: &mut Table, now: Instant) {
        for number in 100..1000 {
            let net = Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 0), 48).unwrap();
            table.advertise_route(now, prefix("::/0"), router(number), Preference::Medium, DAY);
            table.advertise_route(now, net, router(number), Preference::Medium, DAY);
            table.advertise_on_link(now, net, router(number), DAY);
        }
    }

    /// What is known of a router: it is a default router, has a route, its prefix is on the link.
    fn known(table: &Table, number: u16) -> [bool; 3] {
        let has = |default: bool| {
            table.routes.iter().any(|route| route.router == router(number) && route.is_default() == default)
        };
        [has(true), has(false), table.on_link.iter().any(|known| known.router == Some(router(number)))]
    }

    #[test]
    fn routers_that_nobody_has_reached_give_their_places_to_newcomers_and_others_do_not() {
        let now = Instant::now();
        let (near, far) = (prefix("2001:db8:1::/64"), prefix("2001:db8:2::/48"));
        let mut table = Table::default();
        let advertise = |table: &mut Table, number: u16| {
            table.advertise_route(now, prefix("::/0"), router(number), Preference::Medium, DAY);
            table.advertise_route(now, far, router(number), Preference::Medium, DAY);
            table.advertise_on_link(now, near, router(number), DAY);
        };
        flood(&mut table, now);
        assert!(table.is_full());
        advertise(&mut table, 1);
        assert_eq!(known(&table, 1), [true; 3], "a newcomer has a place");
        table.reached(router(1));
        flood(&mut table, now);
        assert_eq!(known(&table, 1), [true; 3], "who is reachable stays");
        table.advertise_on_link(now, near, router(999), DAY);
        assert_eq!(known(&table, 1), [true; 3], "and another who says the same changes nothing");
        table.unreached(router(1));
        flood(&mut table, now);
        assert_eq!(known(&table, 1), [false; 3], "who is not, does not");
        assert!(table.gone.len() >= MAX_ROUTERS, "what was redirected to them goes elsewhere");
    }

    #[test]
    fn what_the_caller_has_set_is_changed_by_no_advertisement() {
        let now = Instant::now();
        let mut table = Table::default();
        table.set_route(now, prefix("::/0"), router(1), Preference::Medium, DAY);
        table.set_on_link(now, prefix("2001:db8:9::/64"), DAY);
        flood(&mut table, now);
        table.advertise_on_link(now, prefix("2001:db8:8::/64"), router(2), DAY);
        table.reached(router(2));
        table.set_on_link(now, prefix("2001:db8:8::/64"), DAY);
        let end = Lifetime::Finite(Duration::ZERO);
        table.advertise_on_link(now, prefix("2001:db8:8::/64"), router(2), end);
        table.advertise_route(now, prefix("::/0"), router(1), Preference::Medium, end);
        table.advertise_on_link(now, prefix("2001:db8:9::/64"), router(1), end);
        flood(&mut table, now);
        assert!(table.default_routers().any(|at| at == router(1)));
        assert!(table.is_on_link(now, FAR) && table.is_on_link(now, "2001:db8:8::1".parse().unwrap()));
    }

    #[test]
    fn of_routers_that_are_all_reachable_none_gives_way_and_nothing_is_kept_of_strangers() {
        let now = Instant::now();
        let mut table = Table::default();
        for number in 0..200 {
            table.advertise_route(now, prefix("::/0"), router(number), Preference::Medium, DAY);
            table.reached(router(number));
        }
        assert!(table.default_routers().eq((0..MAX_ROUTERS as u16).map(router)));
        assert_eq!(table.confirmed().len(), MAX_ROUTERS);
        table.expire(now + Duration::from_secs(86_400));
        assert!(table.confirmed().is_empty());
    }
}

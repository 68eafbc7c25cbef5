//! Routes: the hashed addresses of a stream, one pair for each interval (thesis sections 3.1.2 and 3.2.2,
//! docs/classic.md section 5).
//!
//! A [`Table`] holds the routes of one session key. It makes them one interval ahead, tells which one to send on, sets
//! expired ones aside, and gives those up one round later.

use std::collections::VecDeque;

use crate::cipher::{self, CipherKeys, Iv};
use crate::hashed::{HashedHost, Host, Salt};
use crate::keys::SessionKey;
use crate::time::UnixTime;

/// One direction of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Who sends.
    pub source: HashedHost,
    /// Who receives.
    pub destination: HashedHost,
    /// What encryption begins with.
    pub iv: Iv,
}

impl Path {
    /// The path between two hosts under a session key.
    pub fn new(key: &SessionKey, source: HashedHost, destination: HashedHost) -> Self {
        Path { source, destination, iv: cipher::iv(key, &source, &destination) }
    }
}

/// The hashed addresses of a stream in one interval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The interval that it was made for.
    pub salt: Salt,
    /// When it ceases to receive.
    pub expires: UnixTime,
    /// For packets to the peer.
    pub outgoing: Path,
    /// For packets from the peer.
    pub incoming: Path,
}

/// A route's addresses have to be answered for, or no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A route was made: this is its way in.
    Made(Path),
    /// A route was collected.
    Collected(Path),
}

/// Between whom, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Hosts {
    /// The host on this side.
    pub local: Host,
    /// The host on the other side.
    pub remote: Host,
    /// Lifetime of a route in seconds.
    pub lifetime: u32,
}

/// The routes of one session key.
pub struct Table {
    hosts: Hosts,
    key: SessionKey,
    ciphers: CipherKeys,
    interval: u64,
    /// The first salt that routes are made for.
    first: Salt,
    /// Those that receive, the newest first.
    live: VecDeque<Route>,
    /// Those that have expired, until the next round.
    aside: Vec<Path>,
}

impl Table {
    /// An empty table with intervals of `interval` seconds, which makes no route for a salt before `first`.
    pub fn new(hosts: Hosts, key: SessionKey, interval: u32, first: Salt) -> Self {
        Table {
            hosts,
            ciphers: CipherKeys::new(&key),
            key,
            interval: u64::from(interval.max(1)),
            first,
            live: VecDeque::new(),
            aside: Vec::new(),
        }
    }

    /// The session key.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// The session key, ready for use.
    pub fn ciphers(&self) -> &CipherKeys {
        &self.ciphers
    }

    /// Length of an interval in seconds.
    pub fn interval(&self) -> u64 {
        self.interval
    }

    /// When the next interval begins.
    pub fn next_boundary(&self, now: UnixTime) -> UnixTime {
        UnixTime::from_secs((now.secs() / self.interval + 1) * self.interval)
    }

    /// When an interval begins.
    pub fn begins(&self, salt: Salt) -> UnixTime {
        UnixTime::from_secs(salt.0.saturating_mul(self.interval))
    }

    /// One round: collects what was set aside, sets aside what has expired, makes what is missing.
    pub fn rehash(&mut self, now: UnixTime, changes: &mut impl FnMut(Change)) {
        self.expire(now, changes);
        let current = now.secs() / self.interval;
        if self.live.front().is_some_and(|newest| newest.salt.0 > current + 2) {
            // The clock was set back: these would not be sent on for a long time.
            self.set_all_aside();
        }
        let missing = self.live.front().map_or(0, |newest| newest.salt.0 + 1);
        for salt in missing.max(current).max(self.first.0)..=current + 1 {
            let route = self.route(Salt(salt), now);
            // After the clock was set back a route may be one of those that were set aside just now.
            match self.aside.iter().position(|path| *path == route.incoming) {
                Some(at) => drop(self.aside.swap_remove(at)),
                None => changes(Change::Made(route.incoming)),
            }
            self.live.push_front(route);
        }
    }

    /// The first two steps of a round, for a table whose key is not in use any more.
    pub fn expire(&mut self, now: UnixTime, changes: &mut impl FnMut(Change)) {
        for path in self.aside.drain(..) {
            changes(Change::Collected(path));
        }
        while let Some(route) = self.live.pop_back_if(|oldest| oldest.expires <= now) {
            self.aside.push(route.incoming);
        }
    }

    /// No route receives any more; they are collected in the next round.
    pub fn set_all_aside(&mut self) {
        self.aside.extend(self.live.drain(..).map(|route| route.incoming));
    }

    /// Gives up everything that was set aside.
    pub fn collect(&mut self, changes: &mut impl FnMut(Change)) {
        for path in self.aside.drain(..) {
            changes(Change::Collected(path));
        }
    }

    /// The route to send on: the second newest.
    pub fn in_use(&self) -> Option<&Route> {
        self.live.get(1)
    }

    /// The newest route.
    pub fn newest(&self) -> Option<&Route> {
        self.live.front()
    }

    /// The route that a packet came on, from `source` to `destination`.
    pub fn receiving(&self, source: std::net::Ipv6Addr, destination: std::net::Ipv6Addr) -> Option<&Route> {
        self.live.iter().find(|route| {
            route.incoming.source.address == source && route.incoming.destination.address == destination
        })
    }

    /// The routes that receive, the newest first.
    pub fn live(&self) -> impl ExactSizeIterator<Item = &Route> {
        self.live.iter()
    }

    /// The ways in that are set aside.
    pub fn aside(&self) -> &[Path] {
        &self.aside
    }

    /// Whether nothing is left to give up.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.aside.is_empty()
    }

    fn route(&self, salt: Salt, now: UnixTime) -> Route {
        let local = self.hosts.local.hashed(&self.key, salt);
        let remote = self.hosts.remote.hashed(&self.key, salt);
        Route {
            salt,
            expires: UnixTime::from_millis(now.millis() + u64::from(self.hosts.lifetime) * 1000),
            outgoing: Path::new(&self.key, local, remote),
            incoming: Path::new(&self.key, remote, local),
        }
    }
}

/// The first salt of the table that follows a change of session key at the boundary `b`, in seconds: that of the first
/// boundary of the new interval at half of it or more after b (docs/classic.md section 9.2).
pub fn first_salt_after(b: u64, new_interval: u32) -> Salt {
    let interval = u64::from(new_interval.max(1));
    Salt(b.saturating_add(interval.div_ceil(2)).div_ceil(interval))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::SESSION_KEY_LEN;
    use proptest::prelude::*;

    fn table(interval: u32, lifetime: u32) -> Table {
        let host = |text: &str| Host { address: text.parse().unwrap(), mac: None };
        let hosts = Hosts { local: host("2001:db8:a::1"), remote: host("2001:db8:b::1"), lifetime };
        Table::new(hosts, SessionKey::from_bytes([1; SESSION_KEY_LEN]), interval, Salt(0))
    }

    fn rehash(table: &mut Table, seconds: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        table.rehash(UnixTime::from_secs(seconds), &mut |change| changes.push(change));
        changes
    }

    fn salts(table: &Table) -> Vec<u64> {
        table.live().map(|route| route.salt.0).collect()
    }

    #[test]
    fn two_routes_are_made_at_the_start_and_one_ahead_at_each_boundary() {
        let mut table = table(10, 30);
        rehash(&mut table, 1003);
        assert_eq!(salts(&table), [101, 100]);
        rehash(&mut table, 1010);
        assert_eq!((salts(&table), table.in_use().unwrap().salt), (vec![102, 101, 100], Salt(101)));
    }

    #[test]
    fn an_expired_route_is_collected_one_round_later() {
        let mut table = table(10, 30);
        for boundary in [1000, 1010, 1020] {
            rehash(&mut table, boundary);
        }
        let collected = |changes: Vec<Change>| changes.iter().any(|c| matches!(c, Change::Collected(_)));
        assert!(!collected(rehash(&mut table, 1030)));
        assert_eq!((salts(&table), table.aside().len()), (vec![104, 103, 102], 2));
        assert!(collected(rehash(&mut table, 1040)));
    }

    #[test]
    fn missed_intervals_get_no_routes() {
        let mut table = table(10, 30);
        rehash(&mut table, 1000);
        rehash(&mut table, 2000);
        assert_eq!(salts(&table), [201, 200]);
    }

    #[test]
    fn a_clock_set_back_begins_anew() {
        let mut table = table(10, 30);
        rehash(&mut table, 2000);
        rehash(&mut table, 1000);
        assert_eq!(salts(&table), [101, 100]);
        // By an interval: the peer has these routes too.
        rehash(&mut table, 995);
        assert_eq!(salts(&table), [101, 100]);
    }

    proptest! {
        /// Whatever the clock does: sendable after each round, no more routes than fit a lifetime, and every address
        /// that was made is collected once.
        #[test]
        fn routes_come_and_go(interval in 1u32..100, more in 0u32..300, times in prop::collection::vec(0u64..5000, 1..60)) {
            let mut table = table(interval, 3 * interval + more);
            let mut made = Vec::new();
            for now in times {
                for change in rehash(&mut table, now) {
                    match change {
                        Change::Made(path) => made.push(path),
                        Change::Collected(path) => {
                            let at = made.iter().position(|other| *other == path);
                            prop_assert!(at.is_some(), "collected what was never made");
                            made.remove(at.unwrap());
                        }
                    }
                }
                prop_assert!(table.in_use().is_some());
                prop_assert_eq!(made.len(), table.live().len() + table.aside().len());
            }
        }

        #[test]
        fn a_new_table_begins_half_an_interval_after_the_boundary(boundary in 0u64..1 << 40, interval in 1u32..3600) {
            let begins = first_salt_after(boundary, interval).0 * u64::from(interval);
            prop_assert!(begins >= boundary + u64::from(interval.div_ceil(2)));
            prop_assert!(begins < boundary + u64::from(interval.div_ceil(2)) + u64::from(interval));
        }
    }
}

//! Addresses that clients are given out of a pool (RFC 7296 §2.19): one for each identity, the same one again if it comes
//! back.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use crate::message::body::Identity;

/// Leases in all, those included that are only kept for identities that may come back. It bounds what identities that
/// somebody makes up take.
pub const MAX_LEASES: usize = 32_768;

/// Addresses of which clients are given one each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pool {
    first: IpAddr,
    last: IpAddr,
}

impl Pool {
    /// All of these addresses, unless they are of two IP versions or the wrong way round.
    pub fn range(addresses: RangeInclusive<IpAddr>) -> Option<Self> {
        let (first, last) = addresses.into_inner();
        (first.is_ipv4() == last.is_ipv4() && first <= last).then_some(Self { first, last })
    }

    /// The addresses of hosts in a prefix, whose length is cut to what the IP version has: without the first one, and in IPv4
    /// without the last one, unless there are only one or two.
    pub fn prefix(address: IpAddr, length: u8) -> Self {
        match address {
            IpAddr::V4(v4) => {
                let hosts = u32::MAX.checked_shr(length.into()).unwrap_or(0);
                let edge = u32::from(hosts > 1);
                let (first, last) = (v4.to_bits() & !hosts, v4.to_bits() | hosts);
                let address = |bits| IpAddr::V4(Ipv4Addr::from_bits(bits));
                Self { first: address(first + edge), last: address(last - edge) }
            }
            IpAddr::V6(v6) => {
                let hosts = u128::MAX.checked_shr(length.into()).unwrap_or(0);
                let edge = u128::from(hosts > 1);
                let (first, last) = (v6.to_bits() & !hosts, v6.to_bits() | hosts);
                let address = |bits| IpAddr::V6(Ipv6Addr::from_bits(bits));
                Self { first: address(first + edge), last: address(last) }
            }
        }
    }

    /// Whether its addresses are of IPv4.
    pub fn is_ipv4(&self) -> bool {
        self.first.is_ipv4()
    }

    /// How many addresses there are, less one.
    fn span(&self) -> u128 {
        match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => (last.to_bits() - first.to_bits()).into(),
            (IpAddr::V6(first), IpAddr::V6(last)) => last.to_bits() - first.to_bits(),
            _ => 0,
        }
    }

    fn nth(&self, offset: u128) -> IpAddr {
        match self.first {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits().wrapping_add(offset as u32)).into(),
            IpAddr::V6(first) => Ipv6Addr::from_bits(first.to_bits().wrapping_add(offset)).into(),
        }
    }
}

type Holder = (Pool, Identity);

#[derive(Debug)]
struct Lease {
    address: IpAddr,
    /// IKE SAs that it belongs to: more than one while they replace each other.
    held: usize,
    /// When it was given back, among others.
    given_back: u64,
}

/// Who has which address.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    of: HashMap<Holder, Lease>,
    holders: HashMap<IpAddr, Holder>,
    /// Those that were given back, the first one first.
    idle: BTreeMap<u64, Holder>,
    count: u64,
    /// Where to look for the next free address.
    next: HashMap<Pool, u128>,
}

impl Leases {
    /// An address for one more IKE SA of an identity: the one that it had before, if it is still free. None if there is none.
    pub(crate) fn acquire(&mut self, pool: Pool, identity: &Identity) -> Option<IpAddr> {
        let holder = (pool, identity.clone());
        if let Some(lease) = self.of.get_mut(&holder) {
            if lease.held == 0 {
                self.idle.remove(&lease.given_back);
            }
            lease.held += 1;
            return Some(lease.address);
        }
        if self.of.len() >= MAX_LEASES {
            let (_, oldest) = self.idle.first_key_value()?;
            self.forget(&oldest.clone());
        }
        let address = self.free(pool).or_else(|| self.reclaim(pool))?;
        self.holders.insert(address, holder.clone());
        self.of.insert(holder, Lease { address, held: 1, given_back: 0 });
        Some(address)
    }

    /// An IKE SA of the identity has ended.
    pub(crate) fn give_back(&mut self, address: IpAddr, identity: &Identity) {
        let Some(holder) = self.holders.get(&address).filter(|holder| holder.1 == *identity) else { return };
        let Some(lease) = self.of.get_mut(holder) else { return };
        lease.held = lease.held.saturating_sub(1);
        if lease.held == 0 {
            self.count += 1;
            lease.given_back = self.count;
            self.idle.insert(self.count, holder.clone());
        }
    }

    fn free(&mut self, pool: Pool) -> Option<IpAddr> {
        let span = pool.span();
        let begin = self.next.get(&pool).copied().unwrap_or(0);
        // Among so many, one is free.
        let tries = span.min(self.holders.len() as u128);
        let offset = (0..=tries)
            .map(|step| if step > span - begin { step - (span - begin) - 1 } else { begin + step })
            .find(|offset| !self.holders.contains_key(&pool.nth(*offset)))?;
        self.next.insert(pool, if offset == span { 0 } else { offset + 1 });
        Some(pool.nth(offset))
    }

    /// Takes the address of the identity that has been away for the longest time.
    fn reclaim(&mut self, pool: Pool) -> Option<IpAddr> {
        let within = |address: IpAddr| {
            address.is_ipv4() == pool.is_ipv4() && (pool.first..=pool.last).contains(&address)
        };
        let of_pool = |holder: &&Holder| self.of.get(*holder).is_some_and(|lease| within(lease.address));
        let holder = self.idle.values().find(of_pool)?.clone();
        self.forget(&holder)
    }

    fn forget(&mut self, holder: &Holder) -> Option<IpAddr> {
        let lease = self.of.remove(holder)?;
        self.idle.remove(&lease.given_back);
        self.holders.remove(&lease.address);
        Some(lease.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u32) -> Identity {
        Identity::Fqdn(number.to_string())
    }

    fn pool(first: &str, last: &str) -> Pool {
        Pool::range(first.parse().unwrap()..=last.parse().unwrap()).unwrap()
    }

    #[test]
    fn each_identity_has_an_address_of_its_own_until_there_are_no_more() {
        let (mut leases, pool) = (Leases::default(), pool("192.0.2.1", "192.0.2.3"));
        let given: Vec<_> = (0..3).map(|n| leases.acquire(pool, &name(n)).unwrap().to_string()).collect();
        assert_eq!(given, ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
        assert_eq!(leases.acquire(pool, &name(3)), None);
        leases.give_back("192.0.2.2".parse().unwrap(), &name(1));
        assert_eq!(leases.acquire(pool, &name(3)), Some("192.0.2.2".parse().unwrap()));
    }

    #[test]
    fn who_comes_back_has_the_same_address_and_who_is_away_longest_loses_it_first() {
        let (mut leases, pool) = (Leases::default(), pool("192.0.2.1", "192.0.2.3"));
        let given: Vec<_> = (0..3).map(|n| leases.acquire(pool, &name(n)).unwrap()).collect();
        for n in [2, 0, 1] {
            leases.give_back(given[n], &name(n as u32));
        }
        assert_eq!(leases.acquire(pool, &name(0)), Some(given[0]));
        assert_eq!(leases.acquire(pool, &name(9)), Some(given[2]));
        assert_eq!(leases.acquire(pool, &name(2)), Some(given[1]));
        assert_eq!(leases.acquire(pool, &name(1)), None);
    }

    #[test]
    fn an_address_is_free_when_all_ike_sas_of_its_identity_have_ended() {
        let (mut leases, pool) = (Leases::default(), pool("192.0.2.1", "192.0.2.1"));
        let address = leases.acquire(pool, &name(0)).unwrap();
        assert_eq!(leases.acquire(pool, &name(0)), Some(address));
        leases.give_back(address, &name(0));
        leases.give_back(address, &name(1));
        assert_eq!(leases.acquire(pool, &name(1)), None);
        leases.give_back(address, &name(0));
        assert_eq!(leases.acquire(pool, &name(1)), Some(address));
    }

    #[test]
    fn pools_that_overlap_give_no_address_twice() {
        let (mut leases, narrow) = (Leases::default(), pool("192.0.2.2", "192.0.2.2"));
        let wide = pool("192.0.2.1", "192.0.2.3");
        assert!(leases.acquire(narrow, &name(0)).is_some());
        let given: Vec<_> = (1..3).map(|n| leases.acquire(wide, &name(n)).unwrap().to_string()).collect();
        assert_eq!(given, ["192.0.2.1", "192.0.2.3"]);
        assert_eq!(leases.acquire(wide, &name(3)), None);
    }

    #[test]
    fn leases_are_bounded_in_the_widest_pool() {
        let (mut leases, pool) = (Leases::default(), Pool::prefix("2001:db8::".parse().unwrap(), 0));
        for n in 0..MAX_LEASES as u32 + 10 {
            let address = leases.acquire(pool, &name(n)).unwrap();
            leases.give_back(address, &name(n));
        }
        assert_eq!(leases.of.len(), MAX_LEASES);
        assert_eq!((leases.holders.len(), leases.idle.len()), (MAX_LEASES, MAX_LEASES));
        let mut held = Leases::default();
        let held_all = (0..MAX_LEASES as u32 + 1).all(|n| held.acquire(pool, &name(n)).is_some());
        assert!(!held_all);
    }

    #[test]
    fn a_prefix_has_no_addresses_that_mean_something_else() {
        let of = |text: &str, length| Pool::prefix(text.parse().unwrap(), length);
        assert_eq!(of("192.0.2.77", 24), pool("192.0.2.1", "192.0.2.254"));
        assert_eq!(of("192.0.2.1", 31), pool("192.0.2.0", "192.0.2.1"));
        assert_eq!(of("192.0.2.1", 32), pool("192.0.2.1", "192.0.2.1"));
        assert_eq!(of("2001:db8::", 126), pool("2001:db8::1", "2001:db8::3"));
        assert_eq!(of("2001:db8::7", 200), pool("2001:db8::7", "2001:db8::7"));
        assert_eq!(of("0.0.0.0", 0), pool("0.0.0.1", "255.255.255.254"));
    }
}

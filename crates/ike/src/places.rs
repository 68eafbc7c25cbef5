//! The places of initiators that have not authenticated themselves: so many for each source, so that none keeps the others
//! out.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::census::source;
use crate::numbers::IkeSpi;

/// Initiators that have not authenticated themselves. With cookies, each has shown that it receives at its address. Where
/// there are this many, the oldest one of the source that has most gives way to the next. Each takes some 2 KiB, and at the
/// very most 40 KiB, when it sends fragments.
pub const MAX_HALF_OPEN: usize = 1024;

/// Those of one address, or one /64 of IPv6: behind it may be a NAT and a large office, but each needs its place for the
/// time of a round trip only.
pub const MAX_HALF_OPEN_OF_SOURCE: usize = 16;

/// From so many of a source on, it must show that it receives: who only pretends to be there takes no more than these.
const COOKIES_FROM_OF_SOURCE: usize = MAX_HALF_OPEN_OF_SOURCE / 2;

/// For so long an initiator keeps its place among those of its source: its IKE_AUTH may be lost once. It also bounds how
/// many keys one source can try in a second.
const UNDISTURBED: Duration = Duration::from_secs(5);

/// Who has a place.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// In the order in which they have begun; none is empty.
    sources: HashMap<IpAddr, Vec<Place>>,
    len: usize,
}

#[derive(Debug)]
struct Place {
    since: Instant,
    ike: IkeSpi,
}

impl Places {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether an initiator must show that it receives at its address, where all must from `cookies_from` half-open ones
    /// on. Nobody gives way to one that has not.
    pub(crate) fn demand_cookie(&self, address: IpAddr, cookies_from: usize) -> bool {
        self.len >= cookies_from.min(MAX_HALF_OPEN) || self.of(address).len() >= COOKIES_FROM_OF_SOURCE
    }

    /// Whether there is a place for a further one from this address, be it another one's.
    pub(crate) fn is_open_to(&self, address: IpAddr, now: Instant) -> bool {
        let of_it = self.of(address);
        let is_old = |place: &Place| now.saturating_duration_since(place.since) >= UNDISTURBED;
        of_it.len() < MAX_HALF_OPEN_OF_SOURCE || of_it.first().is_some_and(is_old)
    }

    /// Who gives way to a further one from this address. Not asked before its cookie was seen: it looks at all sources.
    pub(crate) fn gives_way_to(&self, address: IpAddr) -> Option<IkeSpi> {
        let oldest = |places: &[Place]| places.first().map(|place| place.ike);
        let of_it = self.of(address);
        if of_it.len() >= MAX_HALF_OPEN_OF_SOURCE {
            return oldest(of_it);
        }
        if self.len < MAX_HALF_OPEN {
            return None;
        }
        let own = source(address);
        let most = self.sources.iter().max_by_key(|(source, places)| {
            let with_it = places.len() + usize::from(**source == own);
            (with_it, Reverse(places.first().map(|place| place.since)))
        });
        most.and_then(|(_, places)| oldest(places))
    }

    pub(crate) fn add(&mut self, address: IpAddr, since: Instant, ike: IkeSpi) {
        let of_it = self.sources.entry(source(address)).or_default();
        let at = of_it.partition_point(|place| place.since <= since);
        of_it.insert(at, Place { since, ike });
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, address: IpAddr, ike: IkeSpi) {
        let source = source(address);
        let Some(of_it) = self.sources.get_mut(&source) else { return };
        let before = of_it.len();
        of_it.retain(|place| place.ike != ike);
        self.len -= before - of_it.len();
        if of_it.is_empty() {
            self.sources.remove(&source);
        }
    }

    fn of(&self, address: IpAddr) -> &[Place] {
        self.sources.get(&source(address)).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    /// One of a /64.
    fn address(network: usize, host: usize) -> IpAddr {
        Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) + ((network as u128) << 64) + host as u128).into()
    }

    /// Comes in, if it may, and returns whether it has.
    fn comes(places: &mut Places, address: IpAddr, now: Instant, ike: u64) -> bool {
        if !places.is_open_to(address, now) {
            return false;
        }
        if let Some(other) = places.gives_way_to(address) {
            let sources: Vec<_> = places.sources.keys().copied().collect();
            sources.into_iter().for_each(|source| places.remove(source, other));
        }
        places.add(address, now, IkeSpi(ike));
        assert!(places.len() <= MAX_HALF_OPEN && places.of(address).len() <= MAX_HALF_OPEN_OF_SOURCE);
        true
    }

    #[test]
    fn one_source_has_its_places_and_each_for_some_seconds() {
        let (mut places, now) = (Places::default(), Instant::now());
        for number in 0..100 {
            let came = comes(&mut places, address(1, number), now, number as u64);
            assert_eq!(came, number < MAX_HALF_OPEN_OF_SOURCE);
        }
        assert!(places.is_open_to(address(2, 0), now));
        let later = now + UNDISTURBED;
        assert!(comes(&mut places, address(1, 0), later, 100));
        assert!(places.of(address(1, 0)).iter().all(|place| place.ike != IkeSpi(0)), "the oldest gives way");
    }

    #[test]
    fn among_many_sources_those_that_have_more_give_way() {
        let (mut places, begin) = (Places::default(), Instant::now());
        // 64 sources have all there is.
        for number in 0..MAX_HALF_OPEN {
            let (network, host) = (number / MAX_HALF_OPEN_OF_SOURCE, number % MAX_HALF_OPEN_OF_SOURCE);
            assert!(comes(&mut places, address(network, host), begin, number as u64));
        }
        let now = begin + Duration::from_millis(1);
        let newcomer = address(1000, 0);
        assert!(comes(&mut places, newcomer, now, 5000));
        // They go on, from ten times as many sources.
        for number in 0..10_000 {
            let now = now + Duration::from_millis(number);
            comes(&mut places, address(number as usize % 640, 0), now, 10_000 + number);
        }
        assert_eq!(places.len(), MAX_HALF_OPEN);
        assert_eq!(places.of(newcomer).len(), 1, "who has one place keeps it while others have two");
    }

    #[test]
    fn among_sources_with_a_place_each_the_newcomer_is_the_last_to_go() {
        let (mut places, begin) = (Places::default(), Instant::now());
        let at = |number: usize| begin + Duration::from_millis(number as u64);
        for number in 0..MAX_HALF_OPEN {
            assert!(comes(&mut places, address(number, 0), at(number), number as u64));
        }
        let newcomer = address(MAX_HALF_OPEN, 0);
        for number in MAX_HALF_OPEN..2 * MAX_HALF_OPEN {
            assert!(comes(&mut places, address(number, 0), at(number), number as u64));
            assert_eq!(places.of(newcomer).len(), 1, "after {number}");
        }
        assert!(comes(&mut places, address(1 << 20, 0), at(3 * MAX_HALF_OPEN), 1 << 20));
        assert_eq!(places.of(newcomer).len(), 0);
    }

    #[test]
    fn a_cookie_is_asked_for_before_anybody_gives_way() {
        let (mut places, now) = (Places::default(), Instant::now());
        for number in 0..MAX_HALF_OPEN {
            let (network, host) = (number / MAX_HALF_OPEN_OF_SOURCE, number % MAX_HALF_OPEN_OF_SOURCE);
            let address = address(network, host);
            assert_eq!(places.demand_cookie(address, usize::MAX), host >= COOKIES_FROM_OF_SOURCE);
            assert!(comes(&mut places, address, now, number as u64));
        }
        assert!(places.demand_cookie(address(1000, 0), usize::MAX));
    }
}

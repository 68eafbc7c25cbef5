//! One address: where it comes from, its lifetimes, and the search for somebody else who has it (RFC 4862 §5.4, §5.5.4,
//! RFC 7527).

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ndp::{DuplicateSolicitation, Nonce};

use crate::random::Random;
use crate::route::Lifetime;

/// No router advertisement shortens the rest of a valid lifetime to less (RFC 4862 §5.5.3 e): who forges one cannot take
/// addresses away at once.
pub(super) const TWO_HOURS: Duration = Duration::from_secs(7200);
/// Further questions after one's own has come back by a loop (RFC 7527 §4.1).
const MAX_MULTICAST_SOLICIT: u8 = 3;

/// Where an address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The caller has set it.
    Static,
    /// It follows from its prefix and a secret (RFC 7217); `duplicates` times it was another's.
    Stable {
        /// How many addresses before it were somebody else's.
        duplicates: u8,
    },
    /// It is random, and is replaced by another after a day (RFC 8981).
    Temporary {
        /// How many addresses before it were somebody else's.
        duplicates: u8,
        /// When it was made.
        created: Instant,
        /// How much earlier than others it is deprecated (DESYNC_FACTOR).
        desync: Duration,
        /// Another one has been made.
        replaced: bool,
    },
}

/// What an address is good for now (RFC 4862 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing: whether somebody else has it is being asked.
    Tentative,
    /// Everything.
    Preferred,
    /// What goes on already; nothing new, if there is another.
    Deprecated,
}

/// An address of the interface.
#[derive(Debug, Clone)]
pub struct Address {
    /// The address.
    pub address: Ipv6Addr,
    /// The prefix that it was made in.
    pub prefix: Ipv6Net,
    /// Where it comes from.
    pub origin: Origin,
    /// Who advertises the prefix, if anybody does.
    pub(super) router: Option<Ipv6Addr>,
    pub(super) preferred_until: Option<Instant>,
    pub(super) valid_until: Option<Instant>,
    pub(super) search: Option<Search>,
}

/// The search for a duplicate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Search {
    /// Questions still to send.
    left: u8,
    /// When the next one goes out, or the search ends.
    next: Instant,
    nonce: Option<Nonce>,
}

/// What comes of an answer to a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing: it was our own question, or none.
    Nothing,
    /// Somebody else has the address, or wants it.
    Duplicate,
}

impl Search {
    /// `transmits` questions, the first at `start`.
    pub(super) fn new(transmits: u8, start: Instant) -> Self {
        Search { left: transmits, next: start, nonce: None }
    }
}

impl Address {
    /// What it is good for.
    pub fn phase(&self, now: Instant) -> Phase {
        if self.search.is_some() {
            Phase::Tentative
        } else if self.preferred_until.is_some_and(|until| until <= now) {
            Phase::Deprecated
        } else {
            Phase::Preferred
        }
    }

    /// Whether it is one that changes.
    pub fn is_temporary(&self) -> bool {
        matches!(self.origin, Origin::Temporary { .. })
    }

    /// When it is deprecated; `None`: never.
    pub fn preferred_until(&self) -> Option<Instant> {
        self.preferred_until
    }

    /// When it is gone; `None`: never.
    pub fn valid_until(&self) -> Option<Instant> {
        self.valid_until
    }

    /// New lifetimes from a router (RFC 4862 §5.5.3 e): the valid one only ever ends in more than two hours, or when it
    /// would have anyway.
    pub(super) fn refresh(&mut self, now: Instant, preferred: Lifetime, valid: Lifetime) {
        self.preferred_until = preferred.end(now);
        let two_hours = now + TWO_HOURS;
        let Some(new) = valid.end(now) else {
            self.valid_until = None;
            return;
        };
        let rest_is_longer = self.valid_until.is_none_or(|until| until > new);
        if new > two_hours || !rest_is_longer {
            self.valid_until = Some(new);
        } else if self.valid_until.is_none_or(|until| until > two_hours) {
            self.valid_until = Some(two_hours);
        }
    }

    /// When time changes its search.
    pub(super) fn search_deadline(&self) -> Option<Instant> {
        self.search.map(|search| search.next)
    }

    /// What the search does when its time has come: a question to send, or, after the last one, nothing, and the address
    /// is ours.
    pub(super) fn search_on(
        &mut self,
        now: Instant,
        retrans_timer: Duration,
        random: &mut Random,
    ) -> Option<DuplicateSolicitation> {
        let search = self.search.as_mut()?;
        let Some(left) = search.left.checked_sub(1) else {
            self.search = None;
            return None;
        };
        let nonce = Nonce(random.octets());
        *search = Search { left, next: now + retrans_timer, nonce: Some(nonce) };
        Some(DuplicateSolicitation { target: self.address, nonce })
    }

    /// Somebody searches for duplicates of this address (RFC 4862 §5.4.3), and we do, too.
    pub(super) fn asked_for(&mut self, nonce: Option<Nonce>) -> Finding {
        let Some(search) = &mut self.search else { return Finding::Nothing };
        if nonce.is_some() && search.nonce == nonce {
            // Ours, come back by a loop: the search goes on until none does (RFC 7527 §4.1).
            search.left = MAX_MULTICAST_SOLICIT;
            return Finding::Nothing;
        }
        Finding::Duplicate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(search: Option<Search>) -> Address {
        Address {
            address: "2001:db8::1".parse().unwrap(),
            prefix: "2001:db8::/64".parse().unwrap(),
            origin: Origin::Static,
            router: None,
            preferred_until: None,
            valid_until: None,
            search,
        }
    }

    #[test]
    fn rfc_4862_5_5_3_e_a_valid_lifetime_is_cut_to_two_hours_at_least() {
        let now = Instant::now();
        let hours = |hours: u64| Lifetime::Finite(Duration::from_secs(hours * 3600));
        for (rest, said, then) in [
            (Some(10), hours(5), 5), // above two hours: as said
            (Some(1), hours(2), 2),  // longer than the rest: as said
            (Some(1), hours(0), 1),  // both below: ignored
            (Some(2), hours(1), 2),
            (Some(10), hours(0), 2), // else two hours
            (None, hours(1), 2),
        ] {
            let mut address = address(None);
            address.valid_until = rest.and_then(|rest| hours(rest).end(now));
            address.refresh(now, Lifetime::Finite(Duration::ZERO), said);
            assert_eq!(address.valid_until, hours(then).end(now), "{rest:?} {said:?}");
            assert_eq!(address.phase(now), Phase::Deprecated, "the preferred lifetime is as said");
        }
    }

    #[test]
    fn rfc_4862_5_4_a_search_without_an_answer_ends_with_the_address() {
        let now = Instant::now();
        let second = Duration::from_secs(1);
        let mut random = Random::new([1; 32]);
        let mut address = address(Some(Search::new(1, now)));
        assert_eq!(address.phase(now), Phase::Tentative);
        assert!(address.search_on(now, second, &mut random).is_some());
        assert_eq!(address.search_deadline(), Some(now + second));
        assert_eq!(address.search_on(now + second, second, &mut random), None);
        assert_eq!(address.phase(now), Phase::Preferred);
    }

    #[test]
    fn rfc_7527_4_a_question_that_comes_back_by_a_loop_is_no_duplicate() {
        let now = Instant::now();
        let mut random = Random::new([1; 32]);
        let mut address = address(Some(Search::new(1, now)));
        let sent = address.search_on(now, Duration::from_secs(1), &mut random).unwrap();
        assert_eq!(address.asked_for(Some(sent.nonce)), Finding::Nothing);
        for _ in 0..3 {
            assert!(
                address.search_on(now, Duration::from_secs(1), &mut random).is_some(),
                "the search goes on"
            );
        }
        assert_eq!(address.asked_for(Some(Nonce([9; 6]))), Finding::Duplicate);
        assert_eq!(address.asked_for(None), Finding::Duplicate);
    }
}

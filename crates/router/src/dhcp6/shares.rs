//! How many messages of a network are heard: each address has a share, and none takes that of another.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

/// So many at once, after a pause.
const BURST: u32 = 16;
/// Then one in this time: no client that keeps to RFC 8415 section 15 asks more often for long.
const EACH: Duration = Duration::from_secs(1);
/// So many addresses have a share, of strangers and in all. Only who makes up addresses needs more.
const MOST_STRANGERS: usize = 256;
const MOST: usize = 1_024;

/// The shares of a network's addresses.
#[derive(Debug, Default)]
pub(super) struct Shares {
    /// Those that are not whole.
    by_address: BTreeMap<Ipv6Addr, Share>,
    /// What strangers have together beyond the most.
    others: Option<Share>,
}

impl Shares {
    /// Whether another message of this address is heard. `is_known`: it is no stranger.
    pub(super) fn allows(&mut self, address: Ipv6Addr, is_known: bool, now: Instant) -> bool {
        let most = if is_known { MOST } else { MOST_STRANGERS };
        if self.by_address.len() >= most && !self.by_address.contains_key(&address) {
            self.by_address.retain(|_, share| share.left(now) < BURST);
            if self.by_address.len() >= most {
                return self.others.get_or_insert_with(|| Share::new(now)).allows(now);
            }
        }
        self.by_address.entry(address).or_insert_with(|| Share::new(now)).allows(now)
    }
}

/// What is left of one.
#[derive(Debug)]
struct Share {
    left: u32,
    counted_at: Instant,
}

impl Share {
    fn new(now: Instant) -> Self {
        Share { left: BURST, counted_at: now }
    }

    fn left(&mut self, now: Instant) -> u32 {
        let more = (now.saturating_duration_since(self.counted_at).as_millis() / EACH.as_millis()) as u32;
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.counted_at = now;
        }
        self.left
    }

    fn allows(&mut self, now: Instant) -> bool {
        let left = self.left(now);
        self.left = left.saturating_sub(1);
        left > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stranger(number: u32) -> Ipv6Addr {
        Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(number))
    }

    #[test]
    fn whoever_floods_has_its_own_share_and_no_more() {
        let (mut shares, start) = (Shares::default(), Instant::now());
        let (loud, quiet) = (stranger(1), stranger(2));
        let mut heard = 0;
        for tick in 0..60_000 {
            let now = start + Duration::from_millis(tick);
            heard += u32::from(shares.allows(loud, false, now));
            assert!(tick % 2_000 != 0 || shares.allows(quiet, false, now));
        }
        assert_eq!(heard, BURST + 59);
    }

    #[test]
    fn who_makes_up_addresses_shuts_out_nobody_who_is_known_and_fills_no_memory() {
        let (mut shares, start) = (Shares::default(), Instant::now());
        let heard = (0..10_000).filter(|number| shares.allows(stranger(*number), false, start)).count();
        assert_eq!(heard, MOST_STRANGERS + BURST as usize);
        for number in 0..5_000 {
            shares.allows(stranger(number), number % 2 == 0, start);
        }
        assert_eq!(shares.by_address.len(), MOST);
        // All of them are forgotten that have been silent.
        let later = start + EACH * BURST;
        assert!(shares.allows(stranger(u32::MAX), false, later));
        assert_eq!(shares.by_address.len(), 1);
        for number in 0..1_000 {
            shares.allows(stranger(number), false, later);
        }
        assert!(shares.allows(stranger(9_999), true, later), "a router that has a lease");
    }
}

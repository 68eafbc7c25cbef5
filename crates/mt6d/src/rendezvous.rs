//! Where two nodes meet that have no session: rendezvous endpoints, on Unix time, in tiers
//! (docs/protocol.md, "Rendezvous").

use std::net::SocketAddrV6;
use std::ops::RangeInclusive;

use ipnet::Ipv6Net;

use crate::endpoint::{self, Place};
use crate::id::Epoch;
use crate::keys::{PairKeys, Role};
use crate::schedule::Schedule;

pub use crate::tier::Tier;

/// The rendezvous epochs and endpoints of a pair.
pub struct Rendezvous {
    schedules: [Schedule; Tier::ALL.len()],
}

impl Rendezvous {
    /// Of the pair with these keys.
    pub fn new(keys: &PairKeys) -> Self {
        Rendezvous {
            schedules: Tier::ALL
                .map(|tier| Schedule::new(*keys.rendezvous_schedule(tier), tier.interval_ms())),
        }
    }

    /// The epoch of `tier` at `unix_ms`.
    pub fn current(&self, tier: Tier, unix_ms: u64) -> Epoch {
        self.schedules[tier as usize].current(clamp(unix_ms))
    }

    /// When `epoch` of `tier` begins, in Unix milliseconds.
    pub fn start(&self, tier: Tier, epoch: Epoch) -> u64 {
        u64::try_from(self.schedules[tier as usize].start(epoch)).unwrap_or(0)
    }

    /// The epochs of `tier` to listen in at `unix_ms`: each that a clock within the tier's tolerance calls current.
    pub fn window(&self, tier: Tier, unix_ms: u64) -> RangeInclusive<Epoch> {
        let tolerance = tier.tolerance_ms();
        self.current(tier, unix_ms.saturating_sub(tolerance))
            ..=self.current(tier, unix_ms.saturating_add(tolerance))
    }

    /// When the window of `tier` changes next after `unix_ms`.
    pub fn window_changes(&self, tier: Tier, unix_ms: u64) -> u64 {
        let tolerance = tier.tolerance_ms();
        let window = self.window(tier, unix_ms);
        let closes = self.start(tier, window.start().next()).saturating_add(tolerance);
        let opens = self.start(tier, window.end().next()).saturating_sub(tolerance);
        closes.min(opens).max(unix_ms + 1)
    }
}

/// The rendezvous endpoint of the node with `role` in the pair, which hops in `prefix`, in an epoch of a tier.
pub fn endpoint(keys: &PairKeys, role: Role, prefix: Ipv6Net, tier: Tier, epoch: Epoch) -> SocketAddrV6 {
    endpoint::derive(keys.rendezvous(tier, role), prefix, Place::Epoch(epoch))
}

fn clamp(unix_ms: u64) -> i64 {
    i64::try_from(unix_ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::PrivateKey;
    use proptest::prelude::*;

    fn rendezvous() -> Rendezvous {
        let b = PrivateKey::from_bytes([9; 32]).public();
        Rendezvous::new(&PairKeys::derive(&PrivateKey::from_bytes([3; 32]), &b, None).unwrap())
    }

    proptest! {
        #[test]
        fn a_listener_covers_clocks_within_the_tolerance(
            now in 1_600_000_000_000u64..2_000_000_000_000, offset in -3_600_000i64..=3_600_000,
        ) {
            let rendezvous = rendezvous();
            for (tier, offset) in [(Tier::Seconds, offset / 60), (Tier::Hours, offset), (Tier::Days, offset)] {
                let theirs = rendezvous.current(tier, now.saturating_add_signed(offset));
                prop_assert!(rendezvous.window(tier, now).contains(&theirs));
                let window = rendezvous.window(tier, now);
                prop_assert!(window.end().0 - window.start().0 < 6);
                let next = rendezvous.window_changes(tier, now);
                prop_assert_eq!(rendezvous.window(tier, next - 1), rendezvous.window(tier, now));
                prop_assert_ne!(rendezvous.window(tier, next), rendezvous.window(tier, now));
            }
        }
    }
}

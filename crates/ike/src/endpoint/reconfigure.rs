//! Another configuration takes the place of the one in force: what has not changed goes on.
//!
//! This file and `endpoint` need each other: it is a part of what an endpoint does.

use std::time::Instant;

use super::Endpoint;
use crate::config::{ChildIndex, Config, KeptPeer, PeerIndex};
use crate::event::{EndReason, Event};
use crate::random::Random;
use crate::table::Entry;

impl<R: Random> Endpoint<R> {
    /// Goes on with another configuration. `kept` says what becomes of each peer of the one before; IKE SAs with those that
    /// it has nothing for are deleted at both ends, as are attempts, unless all of the peer's children are kept as they
    /// are. Counters and leases stay.
    ///
    /// Whoever keeps a peer knows that it is configured as before: what was agreed on is not looked at again.
    pub fn reconfigure(&mut self, now: Instant, config: Config, kept: &[Option<KeptPeer>]) {
        let kept_of = |peer: PeerIndex| kept.get(peer.0).and_then(Option::as_ref);
        let names = self.table.names();
        for ike in &names {
            self.with_entry(now, *ike, |entry, context| match entry {
                Entry::Attempt(mut attempt) => {
                    let unchanged = kept_of(attempt.peer).filter(|kept| {
                        let indexes = (0..).map(|index| Some(ChildIndex(index)));
                        kept.children.iter().copied().zip(indexes).all(|(is, was)| is == was)
                    });
                    let Some(unchanged) = unchanged else {
                        let (ike, peer, reason) = (attempt.spi(), attempt.peer, EndReason::Deleted);
                        context.out.events.push_back(Event::InitiationFailed { ike, peer, reason });
                        return None;
                    };
                    attempt.peer = unchanged.peer;
                    Some(Entry::Attempt(attempt))
                }
                Entry::HalfOpen(half_open) => Some(Entry::HalfOpen(half_open)),
                Entry::Established(mut sa) => {
                    sa.reassign(kept_of(sa.peer), context);
                    Some(Entry::Established(sa))
                }
            });
        }
        self.surroundings.out.nat_port = config.nat_port;
        self.surroundings.config = config;
        self.table.census.forget_empty();
        for ike in names {
            self.with_entry(now, ike, |mut entry, context| {
                if let Entry::Established(sa) = &mut entry {
                    sa.begin(context);
                }
                Some(entry)
            });
        }
    }
}

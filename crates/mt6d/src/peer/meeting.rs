//! What a node remembers of meetings with one peer.

use std::time::Duration;

use ipnet::Ipv6Net;

use crate::keys::PublicKey;
use crate::limit::Limit;
use crate::time::Time;

/// Questions of a peer that are answered: so many at once, and one more after each pause.
const ANSWERS: (u32, Duration) = (16, Duration::from_millis(250));
/// Tries at places that were told: so many at once, and one more after each pause.
const TRIES: (u32, Duration) = (3, Duration::from_secs(5));

/// What a node remembers of meetings with one peer.
pub(super) struct Meeting {
    /// As who wants to meet it: when thirds are asked next, and how often they were.
    pub(super) next: Option<Time>,
    pub(super) asked: u32,
    /// As who was told of its place: where that is, and until when it is tried before other places.
    pub(super) told: Option<(Ipv6Net, Time)>,
    pub(super) tried: u32,
    /// When the newest record of its place was made that was seen, in Unix milliseconds.
    pub(super) newest_record: u64,
    pub(super) tries: Limit,
    /// As the third: whom it wants to meet, and since when.
    pub(super) wishes: Vec<(PublicKey, Time)>,
    pub(super) answers: Limit,
}

impl Meeting {
    pub(super) fn new(now: Time) -> Self {
        Meeting {
            next: None,
            asked: 0,
            told: None,
            tried: 0,
            newest_record: 0,
            tries: Limit::new(TRIES.0, TRIES.1, now),
            wishes: Vec::new(),
            answers: Limit::new(ANSWERS.0, ANSWERS.1, now),
        }
    }

    /// How often it was tried where it is said to be.
    pub(super) fn tried(&self) -> u32 {
        self.tried
    }

    /// Where the peer is said to be.
    pub(super) fn told(&self) -> Option<Ipv6Net> {
        self.told.map(|(place, _)| place)
    }
}

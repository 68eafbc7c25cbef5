//! A child, as packets need it.

use std::time::{Duration, Instant};

use ike::config::ChildIndex;
use ike::negotiation::ChildSuite;
use ike::numbers::IkeSpi;
use ipnet::IpNet;
use ipsec::association::Protocol;
use ipsec::key_engine::{AssociationId, Name};

use super::event::RemoteIndex;
use crate::outbox::Way;

/// A child, with its two associations.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) ike: IkeSpi,
    pub(super) remote: RemoteIndex,
    pub(super) index: ChildIndex,
    pub(super) is_tunnel: bool,
    pub(super) suite: ChildSuite,
    /// This end has asked for it.
    pub(super) requested: bool,
    pub(super) inbound: Name,
    pub(super) inbound_id: AssociationId,
    pub(super) outbound: Name,
    pub(super) outbound_id: AssociationId,
    pub(super) way: Way,
    pub(super) local: Vec<IpNet>,
    pub(super) networks: Vec<IpNet>,
    pub(super) since: Instant,
    /// When something came by it last.
    pub(super) heard: Option<Instant>,
    /// When IKE was told so last.
    pub(super) told: Option<Instant>,
    /// Since when something was sent by it, and nothing has come.
    pub(super) unanswered: Option<Instant>,
    /// Another one has taken its place.
    pub(super) is_replaced: bool,
    /// IKE has ended it. Where it was replaced, what was sent by it before is still received: see [`LATE_FOR`].
    pub(super) is_over: bool,
}

impl Child {
    /// Whether its packets need no more than their ESP: see `outward` and `inward`.
    pub(super) fn is_tunnel_of_esp(&self) -> bool {
        self.is_tunnel && self.inbound.protocol == Protocol::Esp
    }
}

/// How long what was sent by a child before it was deleted may take: the message that deletes it may overtake packets, as
/// those of an end that seals them in several threads.
pub(super) const LATE_FOR: Duration = Duration::from_secs(5);
/// Children that are received from so, at most: a peer may replace its own as often as it likes.
pub(super) const MAX_LATE: usize = 256;

/// How often IKE is told that something comes from the other end.
pub(super) const TELL_EVERY: Duration = Duration::from_secs(5);

/// What is sent and not answered for so long makes IKE ask whether the other end is there: sooner than silence alone does.
const UNANSWERED_FOR: Duration = Duration::from_secs(5);

impl Child {
    /// Something is sent by it. True if nothing has come for so long that the other end is to be asked.
    pub(super) fn sends(&mut self, now: Instant) -> bool {
        let since = *self.unanswered.get_or_insert(now);
        let asks = now.saturating_duration_since(since) >= UNANSWERED_FOR;
        if asks {
            self.unanswered = Some(now);
        }
        asks
    }
}

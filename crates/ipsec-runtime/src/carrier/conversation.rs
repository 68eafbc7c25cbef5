//! What there is with a remote, and when it is begun.

use std::time::{Duration, Instant};

use config::ipsec::{Remote, Start};
use ike::numbers::IkeSpi;

/// From one attempt that has failed to the next, at first; each further time twice that.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// At most.
const AGAIN_AT_LAST: Duration = Duration::from_secs(60);
/// What is wanted by packets is tried for so long after the last of them.
const WANTED_FOR: Duration = Duration::from_secs(30);

/// What there is with a remote.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) remote: Remote,
    /// IKE SAs; several, while one takes another's place, or if several clients have one configuration.
    pub(super) established: Vec<Established>,
    pub(super) attempt: Option<IkeSpi>,
    /// [`Event::Reach`](super::event::Event::Reach) was told, and not answered so far.
    pub(super) reaching: bool,
    pub(super) begin_at: Option<Instant>,
    pub(super) pause: Duration,
    /// A packet has asked for it.
    pub(super) wanted: Option<Instant>,
    pub(super) last_failure: Option<String>,
}

/// An IKE SA.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) ike: IkeSpi,
    pub(super) identity: String,
    pub(super) initiated: bool,
    pub(super) since: Instant,
}

impl Conversation {
    pub(super) fn new(remote: Remote, now: Instant) -> Self {
        let begin_at = (remote.start == Start::Always && remote.address.is_some()).then_some(now);
        Self {
            remote,
            established: Vec::new(),
            attempt: None,
            reaching: false,
            begin_at,
            pause: AGAIN_AFTER,
            wanted: None,
            last_failure: None,
        }
    }

    /// When it begins is as another configuration of it says.
    pub(super) fn is_to_begin_as(&mut self, new: &Self) {
        self.remote = new.remote.clone();
        let is_idle = self.established.is_empty() && self.attempt.is_none() && !self.reaching;
        if is_idle {
            (self.begin_at, self.pause) = (new.begin_at, AGAIN_AFTER);
        }
    }

    pub(super) fn begins_at(&self) -> Option<Instant> {
        self.begin_at.filter(|_| !self.reaching)
    }

    pub(super) fn ike_spis(&self) -> impl Iterator<Item = IkeSpi> + '_ {
        self.established.iter().map(|sa| sa.ike).chain(self.attempt)
    }

    /// What is to be said of it in one word.
    pub(super) fn state(&self) -> &'static str {
        match () {
            () if !self.established.is_empty() => "up",
            () if self.attempt.is_some() || self.reaching => "connecting",
            () if self.begin_at.is_some() => "waiting",
            () => "idle",
        }
    }

    pub(super) fn may_begin(&self) -> bool {
        self.remote.start != Start::Wait && self.remote.address.is_some()
    }

    /// An attempt has failed, or the conversation has ended: another one follows, if this end is to begin it.
    pub(super) fn again(&mut self, now: Instant) {
        let wanted = self.wanted.is_some_and(|at| now.saturating_duration_since(at) < WANTED_FOR);
        if self.may_begin() && (self.remote.start == Start::Always || wanted) {
            self.begin_at = now.checked_add(self.pause);
            self.pause = (self.pause * 2).min(AGAIN_AT_LAST);
        }
    }
}

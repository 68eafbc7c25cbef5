//! What there is with a remote, and when it is begun.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use config::ipsec::{Remote, Start};
use ike::config::ChildIndex;
use ike::message::body::Identity;
use ike::numbers::IkeSpi;

/// From one attempt that has failed to the next, at first; each further time twice that.
pub(super) const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// At most.
const AGAIN_AT_LAST: Duration = Duration::from_secs(60);
/// What is wanted by packets is tried for so long after the last of them.
const WANTED_FOR: Duration = Duration::from_secs(30);

/// An identity that takes its own place sooner than this, from elsewhere, may be two programs.
const CONTESTED_WITHIN: Duration = Duration::from_secs(120);
/// Losses of that kind in a row, at the end that has begun: one may be a restart of the other end.
const CONTESTED_AFTER: u32 = 3;
/// From one time that this is told to the next.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(600);

/// What there is with a remote.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) remote: Remote,
    /// IKE SAs; several, while one takes another's place, or if several clients have one configuration.
    pub(super) established: Vec<Established>,
    pub(super) attempt: Option<IkeSpi>,
    /// When it is told that the attempt has no answer.
    pub(super) doubt_at: Option<Instant>,
    /// [`Event::Reach`](super::event::Event::Reach) was told, and not answered so far.
    pub(super) reaching: bool,
    pub(super) begin_at: Option<Instant>,
    pub(super) pause: Duration,
    /// A packet has asked for it.
    pub(super) wanted: Option<Instant>,
    pub(super) last_failure: Option<String>,
    /// In a box, as few conversations have any.
    missing: Option<Box<Missing>>,
    /// When children that are missing are asked for.
    pub(super) children_at: Option<Instant>,
    children_pause: Duration,
    /// IKE SAs in a row that were lost soon after they were there.
    soon_lost: u32,
    contest_told: Option<Instant>,
}

/// An IKE SA.
#[derive(Debug)]
pub(super) struct Established {
    pub(super) ike: IkeSpi,
    pub(super) identity: Identity,
    pub(super) initiated: bool,
    pub(super) since: Instant,
}

/// Children that are not there, by their indices.
#[derive(Debug, Default)]
struct Missing {
    /// Packets have asked for them before there was an IKE SA.
    wanted: BTreeSet<usize>,
    /// Why they could not be had last.
    refused: BTreeMap<usize, String>,
}

impl Conversation {
    pub(super) fn new(remote: Remote, now: Instant) -> Self {
        let begin_at = (remote.start == Start::Always && remote.address.is_some()).then_some(now);
        Self {
            remote,
            established: Vec::new(),
            attempt: None,
            doubt_at: None,
            reaching: false,
            begin_at,
            pause: AGAIN_AFTER,
            wanted: None,
            last_failure: None,
            missing: None,
            children_at: None,
            children_pause: AGAIN_AFTER,
            soon_lost: 0,
            contest_told: None,
        }
    }

    /// When it begins is as another configuration of it says.
    pub(super) fn is_to_begin_as(&mut self, new: &Self) {
        self.remote = new.remote.clone();
        self.forget_children();
        let is_idle = self.established.is_empty() && self.attempt.is_none() && !self.reaching;
        if is_idle {
            (self.begin_at, self.pause) = (new.begin_at, AGAIN_AFTER);
        }
    }

    /// When there is something to begin next.
    pub(super) fn begins_at(&self) -> Option<Instant> {
        let begin_at = self.begin_at.filter(|_| !self.reaching);
        let doubt_at = self.doubt_at.filter(|_| self.attempt.is_some());
        [begin_at, doubt_at, self.children_at].into_iter().flatten().min()
    }

    /// Why it is not there, or what of it is not.
    pub(super) fn failure(&self) -> Option<String> {
        let refused = || {
            let all = &self.missing.as_ref().filter(|missing| !missing.refused.is_empty())?.refused;
            Some(all.values().map(String::as_str).collect::<Vec<_>>().join("; "))
        };
        self.last_failure.clone().or_else(refused)
    }

    pub(super) fn child_is_refused(&mut self, child: ChildIndex, why: String) {
        self.missing.get_or_insert_default().refused.insert(child.0, why);
    }

    pub(super) fn child_is_there(&mut self, child: ChildIndex) {
        if let Some(missing) = &mut self.missing {
            missing.refused.remove(&child.0);
        }
    }

    /// A packet has asked for a child before there was an IKE SA.
    pub(super) fn child_is_wanted(&mut self, child: ChildIndex) {
        self.missing.get_or_insert_default().wanted.insert(child.0);
    }

    /// Those that packets have asked for, by their indices; once.
    pub(super) fn take_wanted_children(&mut self) -> BTreeSet<usize> {
        self.missing.as_mut().map(|missing| std::mem::take(&mut missing.wanted)).unwrap_or_default()
    }

    /// A child has ended that was there for so long: it is asked for again, where it is to be there always.
    pub(super) fn child_has_ended(&mut self, lived: Duration, now: Instant) {
        if self.remote.start != Start::Always || !self.may_begin() {
            return;
        }
        self.children_pause = match lived < AGAIN_AT_LAST {
            true => (self.children_pause * 2).min(AGAIN_AT_LAST),
            false => AGAIN_AFTER,
        };
        if self.children_at.is_none() {
            self.children_at = now.checked_add(self.children_pause);
        }
    }

    /// What this end has begun was there for so long when the other end had forgotten it. True if it is to be told that
    /// another program may be this end as well.
    pub(super) fn is_lost(&mut self, lived: Duration, now: Instant) -> bool {
        self.soon_lost = if lived < CONTESTED_WITHIN { self.soon_lost.saturating_add(1) } else { 0 };
        self.soon_lost >= CONTESTED_AFTER && self.tells_of_contest(now)
    }

    /// An identity has begun anew from elsewhere when its IKE SA was there for so long. True if that is to be told.
    pub(super) fn is_taken_over(&mut self, lived: Duration, now: Instant) -> bool {
        lived < CONTESTED_WITHIN && self.tells_of_contest(now)
    }

    fn tells_of_contest(&mut self, now: Instant) -> bool {
        let tells =
            self.contest_told.is_none_or(|told| now.saturating_duration_since(told) >= TELL_AGAIN_AFTER);
        if tells {
            self.contest_told = Some(now);
        }
        tells
    }

    /// What was known of children is void.
    pub(super) fn forget_children(&mut self) {
        self.missing = None;
        self.children_at = None;
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

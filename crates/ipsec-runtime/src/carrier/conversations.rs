//! When IKE SAs are begun with a remote, and what becomes of them.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use config::ipsec::{Remote, Start};
use ike::config::{ChildIndex, PeerIndex};
use ike::event::{EndReason, Path};
use ike::numbers::IkeSpi;
use ike::random::Random;

use super::{Carrier, Event, RemoteIndex};
use crate::deliver::Deliver;

/// From one attempt that has failed to the next, at first; each further time twice that.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// At most.
const AGAIN_AT_LAST: Duration = Duration::from_secs(60);
/// What is wanted by packets is tried for so long after the last of them.
const WANTED_FOR: Duration = Duration::from_secs(30);

/// Where the two ends are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// This end's address.
    pub local: IpAddr,
    /// The other's.
    pub remote: IpAddr,
}

/// Why a remote could not be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReached(pub String);

/// What there is with a remote.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) remote: Remote,
    /// IKE SAs; several, while one takes another's place, or if several clients have one configuration.
    pub(super) established: Vec<Established>,
    attempt: Option<IkeSpi>,
    /// [`Event::Reach`] was told, and not answered so far.
    reaching: bool,
    begin_at: Option<Instant>,
    pause: Duration,
    /// A packet has asked for it.
    wanted: Option<Instant>,
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

    fn may_begin(&self) -> bool {
        self.remote.start != Start::Wait && self.remote.address.is_some()
    }

    /// An attempt has failed, or the conversation has ended: another one follows, if this end is to begin it.
    fn again(&mut self, now: Instant) {
        let wanted = self.wanted.is_some_and(|at| now.saturating_duration_since(at) < WANTED_FOR);
        if self.may_begin() && (self.remote.start == Start::Always || wanted) {
            self.begin_at = now.checked_add(self.pause);
            self.pause = (self.pause * 2).min(AGAIN_AT_LAST);
        }
    }
}

impl<R: Random> Carrier<R> {
    /// The answer to [`Event::Reach`].
    pub fn reach(
        &mut self,
        remote: RemoteIndex,
        ends: Result<Ends, NotReached>,
        now: Instant,
        deliver: &mut dyn Deliver,
    ) {
        let Some(conversation) = self.conversations.get_mut(remote.0) else { return };
        conversation.reaching = false;
        let begun = ends.and_then(|ends| {
            let theirs = conversation.remote.ports;
            let (here, there) =
                if self.ports.ike == 0 { (self.ports.nat, theirs.nat) } else { (self.ports.ike, theirs.ike) };
            let path = Path {
                local: SocketAddr::new(ends.local, here),
                remote: SocketAddr::new(ends.remote, there),
            };
            self.ike.initiate(now, PeerIndex(remote.0), path).map_err(|error| NotReached(error.to_string()))
        });
        match begun {
            Ok(ike) => conversation.attempt = Some(ike),
            Err(NotReached(why)) => self.failed(remote, why, now),
        }
        self.settle(now, deliver);
    }

    /// Begins what is due.
    pub(super) fn begin_conversations(&mut self, now: Instant) {
        if self.ending {
            return;
        }
        for (index, conversation) in self.conversations.iter_mut().enumerate() {
            if conversation.reaching || conversation.begin_at.is_none_or(|at| at > now) {
                continue;
            }
            conversation.begin_at = None;
            if conversation.attempt.is_none() && conversation.established.is_empty() {
                conversation.reaching = true;
                self.events.push_back(Event::Reach(RemoteIndex(index)));
            }
        }
    }

    /// Packets want a child. False if this end is not to begin.
    pub(super) fn want(&mut self, remote: RemoteIndex, child: ChildIndex, now: Instant) -> bool {
        let Some(conversation) = self.conversations.get_mut(remote.0) else { return false };
        if let Some(established) = conversation.established.last() {
            return self.ike.create_child(now, established.ike, child).is_ok();
        }
        if !conversation.may_begin() {
            return false;
        }
        conversation.wanted = Some(now);
        if conversation.attempt.is_none() && !conversation.reaching && conversation.begin_at.is_none() {
            conversation.begin_at = Some(now);
            self.begin_conversations(now);
        }
        true
    }

    pub(super) fn ike_is_up(&mut self, remote: RemoteIndex, established: Established, now: Instant) {
        let Some(conversation) = self.conversations.get_mut(remote.0) else { return };
        let (ike, initiated) = (established.ike, established.initiated);
        if conversation.attempt == Some(ike) {
            conversation.attempt = None;
        }
        conversation.established.push(established);
        conversation.begin_at = None;
        conversation.pause = AGAIN_AFTER;
        conversation.last_failure = None;
        // The first child came along; the others are asked for at once where the tunnel is to be there always.
        let children = self.config.peers.get(remote.0).map_or(0, |peer| peer.children.len());
        if initiated && conversation.remote.start == Start::Always {
            for child in 1..children {
                // What is refused now is asked for again by packets.
                let _ = self.ike.create_child(now, ike, ChildIndex(child));
            }
        }
    }

    pub(super) fn ike_is_rekeyed(&mut self, old: IkeSpi, new: IkeSpi) {
        for established in self.conversations.iter_mut().flat_map(|c| &mut c.established) {
            if established.ike == old {
                established.ike = new;
            }
        }
        for child in self.children.values_mut().filter(|child| child.ike == old) {
            child.ike = new;
        }
    }

    pub(super) fn ike_is_down(&mut self, ike: IkeSpi, reason: EndReason, now: Instant) {
        for (index, conversation) in self.conversations.iter_mut().enumerate() {
            let before = conversation.established.len();
            conversation.established.retain(|established| established.ike != ike);
            if conversation.established.len() == before {
                continue;
            }
            if conversation.established.is_empty() {
                let why = format!("{reason:?}");
                if !self.ending {
                    conversation.again(now);
                }
                self.events.push_back(Event::Down { remote: RemoteIndex(index), why });
            }
        }
    }

    pub(super) fn initiation_failed(&mut self, ike: IkeSpi, remote: RemoteIndex, why: String, now: Instant) {
        let Some(conversation) = self.conversations.get_mut(remote.0) else { return };
        if conversation.attempt == Some(ike) {
            conversation.attempt = None;
            self.failed(remote, why, now);
        }
    }

    fn failed(&mut self, remote: RemoteIndex, why: String, now: Instant) {
        let Some(conversation) = self.conversations.get_mut(remote.0) else { return };
        conversation.last_failure = Some(why.clone());
        if !self.ending {
            conversation.again(now);
        }
        self.events.push_back(Event::Failed { remote, why });
    }
}

//! When IKE SAs are begun with a remote, and what becomes of them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use config::ipsec::{Shown, Start};
use ike::config::{ChildIndex, PeerIndex};
use ike::event::{EndReason, Path};
use ike::numbers::IkeSpi;
use ike::random::Random;

use super::Carrier;
use super::child::Child;
use super::conversation::{AGAIN_AFTER, Conversation, Established};
use super::event::{Ends, Event, NotReached, RemoteIndex};
use crate::deliver::Deliver;

/// An attempt goes on for minutes (RFC 7296 §2.4). After so long, with four messages sent, its silence is told.
const UNANSWERED_AFTER: Duration = Duration::from_secs(7);

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
            Ok(ike) => {
                conversation.attempt = Some(ike);
                conversation.doubt_at = now.checked_add(UNANSWERED_AFTER);
            }
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
            let is_due = conversation.doubt_at.take_if(|at| *at <= now).is_some();
            if let Some(path) = conversation.attempt.filter(|_| is_due).and_then(|ike| self.ike.path(ike)) {
                let ports = conversation.remote.ports;
                let what = format!(
                    "no answer from {} so far: is it up, and does every firewall on the way let UDP {} and {} through?",
                    path.remote, ports.ike, ports.nat
                );
                conversation.last_failure = Some(what.clone());
                self.events.push_back(Event::Unanswered { remote: RemoteIndex(index), what });
            }
            if conversation.reaching || conversation.begin_at.is_none_or(|at| at > now) {
                continue;
            }
            conversation.begin_at = None;
            // One whose other end has lost its memory is begun anew beside what there is.
            let is_lost = |sa: &Established| self.ike.is_silent(sa.ike);
            if conversation.attempt.is_none() && conversation.established.iter().all(is_lost) {
                conversation.reaching = true;
                self.events.push_back(Event::Reach(RemoteIndex(index)));
            }
        }
    }

    /// Packets want a child. False if this end is not to begin, or if they fit none of the selectors that both ends agreed on:
    /// a second child would have the same.
    pub(super) fn want(&mut self, remote: RemoteIndex, child: ChildIndex, now: Instant) -> bool {
        let Some(conversation) = self.conversations.get_mut(remote.0) else { return false };
        if let Some(established) = conversation.established.last() {
            let ike = established.ike;
            return !self.has_child(ike, child, now) && self.ike.create_child(now, ike, child).is_ok();
        }
        if !conversation.may_begin() {
            return false;
        }
        conversation.wanted = Some(now);
        conversation.child_is_wanted(child);
        if conversation.attempt.is_none() && !conversation.reaching && conversation.begin_at.is_none() {
            conversation.begin_at = Some(now);
            self.begin_conversations(now);
        }
        true
    }

    fn has_child(&self, ike: IkeSpi, index: ChildIndex, now: Instant) -> bool {
        let is_it = |child: &&Child| (child.ike, child.index) == (ike, index) && !child.is_replaced;
        self.children.values().filter(is_it).any(|child| !self.has_ended(child.outbound_id, now))
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
        let wanted = conversation.take_wanted_children();
        // One beside another does not bring what that one's end has refused.
        if conversation.established.len() == 1 {
            conversation.forget_children();
        }
        if initiated {
            self.abandon_silent(remote, now);
        }
        let superfluous = self.superfluous(remote);
        if let Some(superfluous) = superfluous {
            // One that is about to end anyway need not be told.
            let _ = self.ike.delete_ike(now, superfluous);
            if superfluous == ike {
                return;
            }
        }
        let Some(conversation) = self.conversations.get(remote.0) else { return };
        // The first child came along; the others are asked for at once where the tunnel is to be there always, or a packet
        // waits for them.
        let children = self.config.peers.get(remote.0).map_or(0, |peer| peer.children.len());
        let is_always = conversation.remote.start == Start::Always;
        for child in (1..children).filter(|child| initiated && (is_always || wanted.contains(child))) {
            // What is refused now is asked for again by packets.
            let _ = self.ike.create_child(now, ike, ChildIndex(child));
        }
    }

    /// What was silent before another IKE SA has come about is not waited for any more. The other end knows nothing of it, or
    /// was told that it is gone (INITIAL_CONTACT).
    fn abandon_silent(&mut self, remote: RemoteIndex, now: Instant) {
        let Some(conversation) = self.conversations.get(remote.0) else { return };
        let silent = |sa: &&Established| self.ike.is_silent(sa.ike);
        let silent: Vec<(IkeSpi, Instant, bool)> = conversation
            .established
            .iter()
            .filter(silent)
            .map(|sa| (sa.ike, sa.since, sa.initiated))
            .collect();
        for (ike, since, initiated) in silent {
            self.ike.abandon(now, ike);
            let Some(conversation) = self.conversations.get_mut(remote.0) else { return };
            if initiated && conversation.is_lost(now.saturating_duration_since(since), now) {
                let what = "the other end forgets this one again and again: perhaps a second program, here or on another \
                            machine, has the same identity, and each ends the other's conversation: give each its own";
                self.events.push_back(Event::Contested { remote, what: what.to_owned() });
            }
        }
    }

    /// The IKE SA that this end is to delete, where both ends have begun one at once: that of the end whose identity comes
    /// first, so that one of them stays. With another implementation both may stay.
    fn superfluous(&self, remote: RemoteIndex) -> Option<IkeSpi> {
        let (peer, conversation) = (self.config.peers.get(remote.0)?, self.conversations.get(remote.0)?);
        // Several clients may have one configuration.
        peer.remote.as_ref()?;
        let ours = conversation.established.iter().find(|sa| sa.initiated)?;
        let theirs = conversation.established.iter().find(|sa| !sa.initiated)?;
        (peer.local < theirs.identity).then_some(ours.ike)
    }

    /// Children that are missing are asked for where they are to be there always, whoever has begun the IKE SA.
    pub(super) fn ask_for_children(&mut self, remote: RemoteIndex, now: Instant) {
        let Some(conversation) = self.conversations.get_mut(remote.0) else { return };
        conversation.children_at = None;
        let Some(ike) = conversation.established.last().map(|sa| sa.ike) else { return };
        if conversation.remote.start != Start::Always || !conversation.may_begin() {
            return;
        }
        let children = self.config.peers.get(remote.0).map_or(0, |peer| peer.children.len());
        for index in (0..children).map(ChildIndex) {
            let is_it = |child: &Child| child.remote == remote && child.index == index && !child.is_over;
            if !self.children.values().any(is_it) {
                // What is refused now is asked for again by packets.
                let _ = self.ike.create_child(now, ike, index);
            }
        }
    }

    /// The same for those of which some have ended a while ago.
    pub(super) fn begin_children(&mut self, now: Instant) {
        let is_due = |conversation: &Conversation| conversation.children_at.is_some_and(|at| at <= now);
        let due: Vec<_> =
            (0..self.conversations.len()).filter(|at| is_due(&self.conversations[*at])).collect();
        for index in due {
            self.ask_for_children(RemoteIndex(index), now);
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

    /// An identity has begun anew. Where it does so from elsewhere, and soon, two programs may have it.
    fn look_for_contest(&mut self, old: IkeSpi, now: Instant) {
        let found = self.conversations.iter().enumerate().find_map(|(index, conversation)| {
            let ended = conversation.established.iter().find(|sa| sa.ike == old)?;
            let is_same = |sa: &&Established| sa.ike != old && sa.identity == ended.identity;
            Some((index, ended, conversation.established.iter().rfind(is_same)?))
        });
        let Some((index, ended, new)) = found else { return };
        let paths = [ended, new].map(|sa| self.ike.last_path(sa.ike).map(|path| path.remote));
        let ([Some(before), Some(after)], false) = (paths, ended.initiated || new.initiated) else { return };
        let (lived, identity) =
            (now.saturating_duration_since(ended.since), Shown(&new.identity).to_string());
        if before != after && self.conversations[index].is_taken_over(lived, now) {
            let what = format!(
                "{identity} has begun anew from {after} after {} s at {before}, which ends what was there: if this goes on, \
                 two programs have this identity: give each its own",
                lived.as_secs()
            );
            self.events.push_back(Event::Contested { remote: RemoteIndex(index), what });
        }
    }

    pub(super) fn ike_is_down(&mut self, ike: IkeSpi, reason: EndReason, now: Instant) {
        if reason == EndReason::InitialContact {
            self.look_for_contest(ike, now);
        }
        for (index, conversation) in self.conversations.iter_mut().enumerate() {
            let before = conversation.established.len();
            conversation.established.retain(|established| established.ike != ike);
            if conversation.established.len() == before {
                continue;
            }
            if conversation.established.is_empty() {
                conversation.forget_children();
                let why = reason.to_string();
                if !self.ending {
                    conversation.again(now);
                }
                self.events.push_back(Event::Down { remote: RemoteIndex(index), why });
            }
        }
    }

    pub(super) fn initiation_failed(&mut self, ike: IkeSpi, why: String, now: Instant) {
        let is_it = |conversation: &Conversation| conversation.attempt == Some(ike);
        let Some(index) = self.conversations.iter().position(is_it) else { return };
        self.conversations[index].attempt = None;
        self.failed(RemoteIndex(index), why, now);
    }

    /// The other end has not answered for a while. Whoever begins such conversations begins anew.
    pub(super) fn ike_is_silent(&mut self, ike: IkeSpi, now: Instant) {
        let has = |conversation: &&mut Conversation| conversation.established.iter().any(|sa| sa.ike == ike);
        let Some(conversation) = self.conversations.iter_mut().find(has) else { return };
        if conversation.may_begin() && conversation.attempt.is_none() && !conversation.reaching {
            conversation.begin_at = Some(now);
            conversation.pause = AGAIN_AFTER;
            self.begin_conversations(now);
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

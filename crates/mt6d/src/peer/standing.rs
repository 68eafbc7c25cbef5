//! How it stands with a peer, and what has changed since somebody was told.

use std::time::Duration;

use super::Peer;
use crate::drops::{DropReason, Drops};
use crate::env::Env;
use crate::event::{Change, Ending, PeerState, SendFailure, Unheard};
use crate::host_interface::Meeting;
use crate::session::Phase;
use crate::time::Time;

/// What is counted where a datagram has come to an endpoint of the peer's, and is no sign of the peer. Another key is none
/// of the causes: its endpoints are elsewhere.
const UNOPENED: [DropReason; 5] = [
    DropReason::TooShort,
    DropReason::NotAuthentic,
    DropReason::Replayed,
    DropReason::TooOld,
    DropReason::NotForUs,
];

impl Peer {
    /// How it stands.
    pub(crate) fn state(&self, now: Time) -> PeerState {
        match self.in_use().map(|at| &self.sessions[at]) {
            Some(session) if session.phase == Phase::Up => {
                session.silence(now).map_or(PeerState::Established, PeerState::Silent)
            }
            Some(_) => PeerState::Handshake,
            None if self.attempts.active() || !self.sessions.is_empty() => PeerState::Handshake,
            None => PeerState::Idle,
        }
    }

    /// For how long it has stood as it does; nothing if that has just changed.
    pub(super) fn state_for(&self, now: Time) -> Duration {
        let same = self.told.state == self.state(now);
        if same { now.since(self.told.since) } else { Duration::ZERO }
    }

    /// When something that was the peer's for certain came last.
    pub(super) fn last_heard(&self) -> Option<Time> {
        let confirmed = self.sessions.iter().filter(|session| session.counted);
        confirmed.map(|session| session.activity.last_received.get()).chain(self.last_heard).max()
    }

    /// What is known of it, if it is to be reached and is not heard.
    pub(crate) fn unheard(&self, now: Time) -> Option<Unheard<'_>> {
        let state = self.state(now);
        let since = match state {
            PeerState::Silent(_) => self.state_for(now),
            PeerState::Handshake => self.attempts.status(now)?.since,
            PeerState::Idle | PeerState::Established => return None,
        };
        let in_session = self.in_use().map(|at| self.sessions[at].activity.last_sent.get());
        let sent = in_session.max(self.attempts.last_copy());
        let unopened = |drops: &Drops| UNOPENED.map(|why| drops.of(why)).iter().sum::<u64>();
        let in_sessions = self.sessions.iter().map(|session| unopened(&session.activity.drops.get()));
        Some(Unheard {
            name: &self.config.name,
            state,
            since,
            hop_prefix: self.remote_prefix,
            heard: self.last_heard().map(|at| now.since(at)),
            contact: self.contact.map(|at| now.since(at)),
            refused: self.refused.map(|(at, why)| (why, now.since(at))),
            sent: sent.map(|at| now.since(at)),
            send_failure: self
                .send_failure
                .filter(|(at, _)| sent.is_some_and(|sent| *at >= sent))
                .map(|(_, why)| why),
            source_rewritten: self.drops.of(DropReason::SourceRewritten),
            unopened: unopened(&self.drops) + in_sessions.sum::<u64>(),
        })
    }

    /// A datagram came to a rendezvous endpoint, and was dropped for this reason, if for any.
    pub(super) fn note_contact(&mut self, dropped: Option<DropReason>, now: Time) {
        use DropReason::{
            HandshakeFailed, HandshakeLate, HandshakeLimit, HandshakeOld, HandshakeRepeated, SourceRewritten,
        };
        match dropped {
            // Each is sent several times; one that is known was not refused.
            None | Some(HandshakeRepeated) => (self.contact, self.refused) = (Some(now), None),
            Some(HandshakeLimit | SourceRewritten) => self.contact = Some(now),
            Some(why @ (HandshakeOld | HandshakeLate | HandshakeFailed)) => {
                (self.contact, self.refused) = (Some(now), Some((now, why)));
            }
            // Not the peer's.
            Some(_) => {}
        }
    }

    /// Finds out whether it is there, in the session in use.
    pub(crate) fn watch(&mut self, now: Time) {
        if let Some(session) = self.sending() {
            session.watch(now);
        }
        self.next = now;
    }

    /// The kernel did not take a datagram.
    pub(crate) fn send_failed(&mut self, why: SendFailure, now: Time) {
        self.count(DropReason::SendFailed);
        self.send_failure = Some((now, why));
    }

    /// Tells that the peer is no more to be reached, if it was.
    pub(super) fn tell_end(&mut self, env: &mut Env) {
        if is_up(self.told.state) {
            let after = env.now.boot.since(self.told.established);
            env.host.tell(&self.config.name, Change::Ended { ending: Ending::Dropped, after });
        }
    }

    /// Tells what has changed.
    pub(super) fn tell(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let (state, before) = (self.state(now), self.told.state);
        let mut tell = |change| env.host.tell(&self.config.name, change);
        let made = self.told.handshakes != self.handshakes;
        if is_up(before) && !is_up(state) {
            let (ending, after) = (self.ending, now.since(self.told.established));
            tell(Change::Ended { ending, after });
        }
        if made && is_up(state) {
            tell(Change::Established { anew: is_up(before) });
            self.told.established = now;
            self.ending = Ending::Dropped;
        }
        self.told.handshakes = self.handshakes;
        match (before, state) {
            (PeerState::Silent(_), PeerState::Established) if !made => {
                tell(Change::Heard { after: now.since(self.told.since) });
            }
            (before, PeerState::Silent(silence)) if before != state => {
                let unheard = self.last_heard().map_or(Duration::ZERO, |at| now.since(at));
                tell(Change::Silent { silence, unheard });
            }
            _ => {}
        }
        if before == PeerState::Idle && state == PeerState::Handshake {
            tell(Change::Trying);
        }
        if before != state {
            (self.told.state, self.told.since) = (state, now);
        }
        let from = std::mem::replace(&mut self.told.hop_prefix, self.remote_prefix);
        let moved = from != self.remote_prefix;
        if moved {
            tell(Change::Moved { from, to: self.remote_prefix });
        }
        let session = self.in_use().map(|at| &self.sessions[at]).filter(|s| s.phase == Phase::Up);
        if let Some(to) = session.filter(|s| s.path_mtu.settled()).map(|s| s.path_mtu.get()) {
            match self.told.path_mtu.replace(to) {
                Some(from) if from != to => tell(Change::PathMtu { from, to }),
                _ => {}
            }
        }
        if (made || moved) && is_up(state) {
            env.host.meet(Meeting::Settled(self.index));
        }
    }
}

fn is_up(state: PeerState) -> bool {
    matches!(state, PeerState::Established | PeerState::Silent(_))
}

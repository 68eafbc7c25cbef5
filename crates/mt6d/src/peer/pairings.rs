//! What a peer does with its pairings: which there are, which of them tries use, what is remembered of each.

use std::collections::HashMap;
use std::time::Duration;

use super::pairing::{Pairing, Wanted};
use super::{Peer, PeerMemory, WANTED_FOR};
use crate::contact::FirstMessage;
use crate::env::Env;
use crate::host_interface::HostInterface;
use crate::id::{EndpointId, PairingId};
use crate::keys::{PublicPair, Role};
use crate::session::{Phase, Session};
use crate::tier::Tier;
use crate::time::{Now, Time};

/// Tries for a session of a better pairing go on for so long, from when the pairing is new, and again so often.
const BETTER_FOR: Duration = Duration::from_secs(60);
const BETTER_EVERY: Duration = Duration::from_secs(3600);

impl Peer {
    /// A pairing of the peer's, unless it is gone.
    pub(super) fn pairing(&self, id: PairingId) -> Option<&Pairing> {
        self.pairings.iter().find(|pairing| pairing.id == id)
    }

    pub(super) fn pairing_mut(&mut self, id: PairingId) -> Option<&mut Pairing> {
        self.pairings.iter_mut().find(|pairing| pairing.id == id)
    }

    /// The pairs of keys by which the peer is met.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = PublicPair> {
        self.pairings.iter().map(|pairing| pairing.public)
    }

    /// Begins with these.
    pub(super) fn take_pairings(
        &mut self,
        pairings: Vec<Wanted>,
        memory: &HashMap<PublicPair, PeerMemory>,
        known: &PeerMemory,
        now: Time,
    ) {
        for wanted in pairings {
            let Wanted::New(mut pairing) = wanted else { continue };
            // What was never accepted nor used by these keys is not taken from others.
            let none = || PeerMemory {
                accepted: Default::default(),
                used: Default::default(),
                turn: 0,
                ..known.clone()
            };
            pairing.remembered = memory.get(&pairing.public).cloned().unwrap_or_else(none);
            (pairing.accepted, pairing.used) = (pairing.remembered.accepted, pairing.remembered.used);
            pairing.turn = pairing.remembered.turn;
            pairing.knows_since = known.clock_offset_ms.is_some().then_some(now);
            self.add_pairing(*pairing);
        }
    }

    fn add_pairing(&mut self, mut pairing: Pairing) {
        pairing.id = self.next_pairing;
        pairing.listeners.are_of(pairing.id);
        self.next_pairing.0 += 1;
        self.pairings.push(pairing);
    }

    /// Has these from now on. What came from others ends: a key that is taken away is not good for a session any more.
    pub(super) fn change_pairings(
        &mut self,
        pairings: Vec<Wanted>,
        gone: &mut HashMap<PublicPair, PeerMemory>,
        env: &mut Env,
    ) {
        let now = env.now.boot;
        let before: Vec<_> = self.memory(env.now).collect();
        let mut had = std::mem::take(&mut self.pairings);
        for wanted in pairings {
            match wanted {
                Wanted::Known(pair) => {
                    let at = had.iter().position(|pairing| pairing.public == pair);
                    self.pairings.extend(at.map(|at| had.swap_remove(at)));
                }
                Wanted::New(mut pairing) => {
                    // It may have been there before, and what came then could come again.
                    pairing.knows_since = Some(now);
                    self.tried.clear();
                    if let Some(known) = gone.get(&pairing.public) {
                        (pairing.accepted, pairing.used) = (known.accepted, known.used);
                        pairing.turn = known.turn;
                    }
                    self.add_pairing(*pairing);
                    self.better = now;
                }
            }
        }
        for Pairing { id, public, mut listeners, .. } in had {
            gone.extend(before.iter().find(|(pair, _)| *pair == public).cloned());
            listeners.close(env.host);
            if self.attempts.current.as_ref().is_some_and(|current| current.first.pairing == id) {
                self.attempts.stop();
            }
            while let Some(session) = self.sessions.iter_mut().find(|session| session.pairing == id) {
                if session.phase == Phase::Up {
                    session.close(env);
                }
                let id = session.id;
                self.remove(id, env.host);
                // One that had made way for another is not missed.
                if self.in_use().is_none() {
                    self.reach(now, WANTED_FOR);
                }
            }
        }
    }

    pub(super) fn close_listeners(&mut self, host: &mut HostInterface) {
        for pairing in &mut self.pairings {
            pairing.listeners.close(host);
        }
    }

    /// Opens and closes what the time asks for. When to be called again.
    pub(super) fn poll_listeners(&mut self, env: &mut Env) -> Time {
        let pending = self.attempts.current.as_ref().filter(|t| t.pending.is_some());
        let pending = pending.map(|t| (t.first.pairing, t.first.at));
        let prefix = env.own.hop_prefix;
        let mut next = env.now.boot + Duration::from_secs(3600);
        for Pairing { id, keys, listeners, .. } in &mut self.pairings {
            let keep = pending.filter(|(pairing, _)| pairing == id).map(|(_, at)| at);
            next = next.min(listeners.poll(env.now, self.index, keys, prefix, keep, env.host));
        }
        next
    }

    /// The endpoint that a first message leaves from, if it is open.
    pub(super) fn open_at(&self, first: &FirstMessage) -> Option<EndpointId> {
        self.pairing(first.pairing)?.listeners.open_at(first.at)
    }

    /// The tiers in use.
    pub(super) fn tiers(&self) -> &'static [Tier] {
        self.pairings[0].listeners.tiers()
    }

    /// Whether this end chooses among sessions: `L` does. Who that is may differ between pairings: of those that have a
    /// session, the one whose keys come first decides.
    pub(super) fn chooses(&self) -> bool {
        let has_session = |pairing: &&Pairing| {
            let of_it = |session: &Session| session.pairing == pairing.id && session.may_send();
            self.sessions.iter().any(of_it)
        };
        let decides = match &self.pairings[..] {
            [only] => Some(only),
            several => several.iter().filter(has_session).min_by_key(|pairing| pairing.keys.publics),
        };
        decides.is_some_and(|pairing| pairing.keys.role == Role::L)
    }

    /// The pairing that a try uses, by its place in the row of tries, and in which round of all of them. While there is a
    /// session that is heard, and no other reason to try, as after a move, only those take turns that are to last longer than
    /// its own.
    pub(super) fn pairing_to_try(&self, number: u32, now: Time) -> (&Pairing, u32) {
        let only_better = !self.silent && now >= self.wanted;
        let choice = match self.place_in_use().filter(|place| *place > 0 && only_better) {
            Some(place) => &self.pairings[..place],
            None => &self.pairings,
        };
        // The one that has worked last comes first.
        let first = choice.iter().position(|pairing| pairing.id == self.settled).unwrap_or(0);
        let pairing = &choice[(first + number as usize) % choice.len()];
        (pairing, number / choice.len() as u32)
    }

    /// The place of the pairing in use, if there is a session.
    fn place_in_use(&self) -> Option<usize> {
        let used = self.sessions[self.in_use()?].pairing;
        self.pairings.iter().position(|pairing| pairing.id == used)
    }

    /// Whether to try for a session of a pairing that is to last longer: the other end may have learned of it.
    pub(super) fn seeks_better(&mut self, now: Time) -> bool {
        let improvable = self.is_improvable();
        if improvable && now >= self.better + BETTER_FOR {
            self.better = now + BETTER_EVERY;
            if now >= self.wanted && !self.silent {
                self.attempts.stop();
            }
        }
        improvable && now >= self.better
    }

    /// When [`Peer::seeks_better`] changes its mind.
    pub(super) fn better_deadline(&self, now: Time) -> Option<Time> {
        let changes = if now < self.better { self.better } else { self.better + BETTER_FOR };
        self.is_improvable().then_some(changes)
    }

    /// Whether the session in use is of a pairing that is not to last.
    fn is_improvable(&self) -> bool {
        self.pairings.len() > 1 && self.place_in_use().is_some_and(|place| place > 0)
    }

    /// What is known of the peer that outlives its sessions, for each pair of keys.
    pub(crate) fn memory(&self, now: Now) -> impl Iterator<Item = (PublicPair, PeerMemory)> {
        self.pairings.iter().map(move |pairing| (pairing.public, self.memory_of(pairing, now)))
    }

    fn memory_of(&self, pairing: &Pairing, now: Now) -> PeerMemory {
        PeerMemory {
            accepted: pairing.accepted,
            used: pairing.used,
            clock_offset_ms: self.clock_offset(now),
            hop_prefix: (self.remote_prefix != self.config.hop_prefix)
                .then_some((self.config.hop_prefix, self.remote_prefix)),
            turn: pairing.turn,
        }
    }

    /// What the node should remember over a restart, of what has changed since it was last asked.
    pub(crate) fn new_memory(&mut self, now: Now) -> Vec<(PublicPair, PeerMemory)> {
        let new: Vec<_> = self.memory(now).collect();
        let with_old = self.pairings.iter_mut().map(|pairing| &mut pairing.remembered).zip(new);
        let changed = with_old.filter(|(old, (_, new))| new.differs(old));
        let remember = |(old, (pair, new)): (&mut PeerMemory, (PublicPair, PeerMemory))| {
            old.clone_from(&new);
            (pair, new)
        };
        changed.map(remember).collect()
    }

    /// Whether there is such.
    pub(crate) fn memory_changed(&self, now: Now) -> bool {
        self.pairings.iter().any(|pairing| self.memory_of(pairing, now).differs(&pairing.remembered))
    }
}

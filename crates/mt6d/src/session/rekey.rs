//! New keys inside a session: the handshake's messages travel as control messages, and lanes have the new keys that are
//! born from some time on and not open yet (docs/protocol.md, "Rekey").

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Generation, Rekey, Reliable, ReliableMessage, Session, Terms};
use crate::control::Control;
use crate::drops::DropReason;
use crate::env::Env;
use crate::handshake::{self, Occasion, Parties};
use crate::host_interface::HostInterface;
use crate::keys::Role;
use crate::offer::Offer;
use crate::time::Time;

/// `H` begins a rekey if none of `L`'s came for this long after the latest time at which one is due.
const PATIENCE: RangeInclusive<Duration> = Duration::from_secs(15)..=Duration::from_secs(45);
/// From the first message to the first endpoint under the new keys: time for retransmissions.
const LEAD: Duration = Duration::from_secs(10);
/// A switch may lie so many milliseconds behind the first moment that it could be at.
const SOON: i64 = 60_000;
/// Generations that may be waiting or in use when another is asked for.
const KEPT: usize = 3;
/// A first message is repeated this often.
const REPEAT: Duration = Duration::from_secs(1);

/// When keys are due for renewal at the earliest. When they are is drawn: half of this later at most.
fn due_after(terms: &Terms) -> Duration {
    terms.rekey_after.max(terms.rotation)
}

/// When a session without new keys ends: the chances after the first are enough.
pub(super) fn hard_limit(terms: &Terms) -> Duration {
    due_after(terms) * 3
}

/// A handshake message of a rekey.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RekeyMessage {
    First(Vec<u8>),
    Answer(Vec<u8>),
}

impl Session {
    /// Begins a rekey if one is due.
    pub(crate) fn rekey_if_due(
        &mut self,
        parties: &Parties,
        mut offer: Offer,
        now: Time,
        host: &mut HostInterface,
    ) {
        match &self.rekey {
            Rekey::Asked { until, .. } | Rekey::Answered { until, .. } if now < *until => return,
            _ => {}
        }
        let due = *self.rekey_due.get_or_insert_with(|| {
            let (due, latest) = (due_after(&self.terms), due_after(&self.terms) * 3 / 2);
            self.keyed
                + match self.common.role {
                    Role::L => host.pause(due..=latest),
                    Role::H => latest + host.pause(PATIENCE),
                }
        });
        if now < due {
            return;
        }
        let switch = self.earliest_switch(now);
        offer.switch = Some(switch);
        let (message, pending) = handshake::initiate(parties, &Occasion::Rekey, &offer, host.fresh());
        let id = self.new_id();
        let until = now + LEAD;
        self.reliable.retain(|r| !matches!(r.message, ReliableMessage::RekeyFirst(_)));
        self.reliable.push(Reliable {
            id,
            message: ReliableMessage::RekeyFirst(message),
            next: now,
            pause: REPEAT,
            until,
        });
        self.rekey = Rekey::Asked { id, pending: Some(pending), switch, until };
    }

    /// Takes a handshake message of a rekey. False if it is not one that fits.
    #[must_use]
    pub(crate) fn rekey_message(
        &mut self,
        id: u32,
        message: &RekeyMessage,
        parties: &Parties,
        offer: Offer,
        env: &mut Env,
    ) -> bool {
        match message {
            RekeyMessage::First(noise) => self.rekey_first(id, noise, parties, offer, env),
            RekeyMessage::Answer(noise) => self.rekey_answer(id, noise, env.now.boot),
        }
    }

    fn rekey_first(&mut self, id: u32, noise: &[u8], parties: &Parties, offer: Offer, env: &mut Env) -> bool {
        let now = env.now.boot;
        match &self.rekey {
            Rekey::Answered { id: known, answer, .. } if *known == id => {
                let answer = answer.clone();
                self.send_control(id, &Control::RekeyAnswer(&answer), env);
                return true;
            }
            Rekey::Agreed { id: known } if *known == id => return true,
            // Both began: the one that L began goes on.
            Rekey::Asked { until, .. } if now < *until && self.common.role == Role::L => return true,
            _ => {}
        }
        if !self.rekeys_begun.take(now) {
            self.activity.drops.count(DropReason::HandshakeLimit);
            return true;
        }
        // A peer has one generation to come at a time, and one that begins soon.
        let latest = self.earliest_switch(now).saturating_add(SOON);
        if self.generations.len() > KEPT {
            return true;
        }
        let Ok((theirs, answering)) = handshake::receive(parties, &Occasion::Rekey, noise, env.host.fresh())
        else {
            return false;
        };
        let Some(switch) =
            theirs.switch.filter(|switch| *switch <= latest && self.not_opened(*switch, now + LEAD / 5))
        else {
            return true;
        };
        let (answer, secret) = answering.answer(&offer);
        self.reliable.retain(|r| !matches!(r.message, ReliableMessage::RekeyFirst(_)));
        self.send_control(id, &Control::RekeyAnswer(&answer), env);
        let generation = Some(Generation::new(switch, &secret, self.common.role));
        self.rekey = Rekey::Answered { id, answer, generation, until: now + LEAD };
        true
    }

    fn rekey_answer(&mut self, id: u32, noise: &[u8], now: Time) -> bool {
        let Rekey::Asked { id: asked, pending, switch, .. } = &mut self.rekey else { return true };
        if *asked != id {
            return true;
        }
        let switch = *switch;
        let Some(Ok((_, secret))) = pending.take().map(|p| p.finish(noise)) else { return false };
        self.answered_reliable(id, |m| matches!(m, ReliableMessage::RekeyFirst(_)));
        self.rekey = Rekey::Idle;
        // Too late, and its endpoints are open under the old keys: try anew.
        if self.not_opened(switch, now) {
            let generation = Generation::new(switch, &secret, self.common.role);
            self.change_keys(generation, now);
            self.send_reliably(id, ReliableMessage::Confirm, now, Duration::from_millis(250), now + LEAD);
        }
        true
    }

    /// The peer has the keys of rekey `id`; true if we have them too.
    pub(super) fn rekey_confirmed(&mut self, id: u32, now: Time) -> bool {
        match &mut self.rekey {
            Rekey::Answered { id: known, generation, .. } if *known == id => {
                let generation = generation.take().expect("taken once, below");
                if !self.not_opened(generation.from, now) {
                    self.rekey = Rekey::Idle;
                    return false;
                }
                self.change_keys(generation, now);
                self.rekey = Rekey::Agreed { id };
                true
            }
            Rekey::Agreed { id: known } => *known == id,
            _ => false,
        }
    }

    fn change_keys(&mut self, generation: Generation, now: Time) {
        self.generations.push(generation);
        self.keyed = now;
        self.rekey_due = None;
        self.rekeys += 1;
    }

    /// The first moment from which on nothing begins that will be open before there was time for a handshake.
    fn earliest_switch(&self, now: Time) -> i64 {
        let handshake = LEAD + self.round_trip.smoothed() * 2;
        self.clock
            .at(now + handshake)
            .saturating_add(self.overlap().before)
            .max(self.latest())
            .saturating_add(1)
    }

    /// Whether nothing opens before `then` that begins at the switch or later.
    fn not_opened(&self, switch: i64, then: Time) -> bool {
        switch.saturating_sub(self.overlap().before) > self.clock.at(then) && switch > self.latest()
    }

    /// When what begins last of all that is open begins.
    fn latest(&self) -> i64 {
        let rewriting = self.rewriting.as_ref().map_or(i64::MIN, super::Rewriting::latest_start);
        self.lanes.latest_birth().max(rewriting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Padding, Shape};
    use crate::deliver::Discard;
    use crate::env::Identity;
    use crate::handshake::SessionSecret;
    use crate::id::{PairingId, PeerId};
    use crate::keys::{PairKeys, PrivateKey};
    use crate::offer::Cipher;
    use crate::outbox::Outbox;
    use crate::routes::Routes;
    use crate::session::{Learned, NewSession, REKEYS};
    use crate::time::Now;

    const BEGIN: Time = Time::from_micros(1_000_000);
    const ROTATION: Duration = Duration::from_secs(10);

    fn session(secret: &SessionSecret, host: &mut HostInterface) -> Session {
        let terms = Terms {
            cipher: Cipher::ChaCha20Poly1305,
            rotation: ROTATION,
            lanes: 1,
            padding: Padding::None,
            shape: Shape::None,
            local_prefix: "2001:db8:b::/64".parse().unwrap(),
            remote_prefix: "2001:db8:a::/64".parse().unwrap(),
            mtu: 1500,
            contexts: 0,
            stream: None,
            rekey_after: crate::config::REKEY_AFTER,
            rewrite: false,
            mask: None,
            turn: None,
        };
        let new = NewSession {
            peer: PeerId(0),
            name: "peer",
            pairing: PairingId::default(),
            role: Role::H,
            initiated_by: Role::H,
            secret,
            terms,
            round_trip: None,
            learned: Learned::default(),
            keepalive: None,
            budget: &mut None,
            masked: Vec::new(),
        };
        Session::begin(new, BEGIN, host)
    }

    /// Each is genuine, and another: an honest peer waits ten seconds, this one is authenticated and no more.
    #[test]
    fn of_two_hundred_rekeys_that_a_peer_begins_in_a_second_few_are_answered() {
        let (ours, theirs) = (PrivateKey::from_bytes([2; 32]), PrivateKey::from_bytes([1; 32]));
        let (our_public, their_public) = (ours.public(), theirs.public());
        let our_pair = PairKeys::derive(&ours, &their_public, None).unwrap();
        let their_pair = PairKeys::derive(&theirs, &our_public, None).unwrap();
        let at_us = || Parties { own: &ours, peer: &their_public, psk: None, pair: &our_pair };
        let at_them = Parties { own: &theirs, peer: &our_public, psk: None, pair: &their_pair };
        let mut host = HostInterface::new(|| [3; 32]);
        let offer = |switch| Offer { rotation: ROTATION, switch, ..Offer::decode(&[]).unwrap() };
        let (first, _) = handshake::initiate(&at_them, &Occasion::Rekey, &offer(None), host.fresh());
        let (_, answering) = handshake::receive(&at_us(), &Occasion::Rekey, &first, host.fresh()).unwrap();
        let (_, secret) = answering.answer(&offer(None));
        let mut session = session(&secret, &mut host);

        let own = Identity {
            hop_prefix: session.terms.local_prefix,
            link_mtu: 1500,
            hardware_aes: false,
            addresses: Vec::new(),
            rekey_after: crate::config::REKEY_AFTER,
            turn: None,
        };
        let (mut outbox, routes) = (Outbox::new(), Routes::default());
        let mut begin = |host: &mut HostInterface, id: u32, ms: u64| {
            let now = Now { boot: BEGIN + Duration::from_millis(ms), unix_ms: 0 };
            let switch = offer(Some(session.earliest_switch(now.boot)));
            let (noise, _) = handshake::initiate(&at_them, &Occasion::Rekey, &switch, host.fresh());
            let env = &mut Env {
                own: &own,
                routes: &routes,
                now,
                host,
                outbox: &mut outbox,
                deliver: &mut Discard,
            };
            assert!(session.rekey_message(id, &RekeyMessage::First(noise), &at_us(), offer(None), env));
            matches!(&session.rekey, Rekey::Answered { id: answered, .. } if *answered == id)
        };
        let answered = (0..200).filter(|n| begin(&mut host, *n, u64::from(*n) * 5)).count();
        assert_eq!(answered, REKEYS.0 as usize);
        // One more after each pause, and only for a message that is new.
        assert!(begin(&mut host, 1000, 5_000) && !begin(&mut host, 1001, 5_001));
        assert_eq!(session.activity.drops.get().of(DropReason::HandshakeLimit), 196 + 1);
    }
}

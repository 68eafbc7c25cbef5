//! A peer's rendezvous: our tries, the peer's first messages, and what both agree on.

use std::net::SocketAddrV6;
use std::time::Duration;

use ipnet::Ipv6Net;
use wire::ecn::Ecn;

use super::{Answer, Pairing, Peer, UNCONFIRMED};
use crate::config::{LONGEST_REWRITE_PREFIX, Padding, Shape};
use crate::contact::{Attempt, FirstMessage};
use crate::drops::DropReason;
use crate::endpoint::{prefix_of, rebase};
use crate::env::Env;
use crate::envelope::{self, Claim, Ephemeral, Kind, Nonce};
use crate::handshake::{self, HandshakeError, InitiatorState, Occasion, ResponderState, SessionSecret};
use crate::id::{Epoch, PairingId, SessionId};
use crate::keys::PairKeys;
use crate::mask::{self, Flow};
use crate::offer::{Cipher, Offer};
use crate::received::Received;
use crate::rendezvous::endpoint;
use crate::session::{ANSWER_WITHIN, Learned, NewSession, PeerClock, Phase, SHAPE_SIZE, Session, Terms};
use crate::tier::{Tier, TierEpoch};
use crate::time::Now;
use rand_chacha::rand_core::Rng;

/// Sizes of first messages, in bytes: the smallest leaves room for an answer with all items.
const SIZES: std::ops::RangeInclusive<u64> = 216..=1200;
/// How long what told of the peer's clock was on its way, where nobody measured that: no longer than an answer may be.
pub(super) const LONGEST_DELAY: u64 = ANSWER_WITHIN.as_millis() as u64;
/// First messages of ours that the peer may name.
const TRIES_KNOWN: usize = 8;

impl Peer {
    /// Begins tries that are due and sends the copies of the one under way, each sealed anew.
    pub(super) fn poll_attempts(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let better = self.seeks_better(now);
        let unreached = self.silent || self.in_use().is_none();
        let needed = unreached && (self.kept() || self.silent || !self.queue.is_empty());
        if !(needed || better || now < self.wanted) {
            self.attempts.stop();
        } else if (unreached || better) && !self.confirming() {
            self.attempts.begin(now);
        }
        if let Some(place) = self.place_to_try(now) {
            let tier = self.attempts.beside(env.now, self.tiers());
            let id = self.pairing_to_try(self.meeting.tried(), now).0.id;
            self.begin_try_at(place, id, tier, 0, env);
        }
        if let Some((tier, number)) = self.attempts.due(env.now, self.tiers(), env.host) {
            self.begin_try(tier, number, env);
        }
        self.attempts.current.take_if(|t| t.over(now));
        if let Some(mut current) = self.attempts.current.take_if(|t| t.renewal_due(now)) {
            let FirstMessage { pairing, at, remote_prefix, .. } = current.first;
            if let Some((first, pending)) = self.first_message(pairing, at, remote_prefix, env) {
                current.replace(first, pending, now);
                self.attempts.current = Some(current);
            }
        }
        let Some(current) = &mut self.attempts.current else { return };
        let pairing = self.pairings.iter().find(|pairing| pairing.id == current.first.pairing);
        if let Some(pairing) = pairing
            && let Some(from) = pairing.listeners.open_at(current.first.at)
            && current.copy_due(now, env.host)
        {
            // One that could not be opened may have been asked for anew.
            let first = &mut current.first;
            first.from = from;
            let kind = Kind::First { receiver: pairing.keys.role.other(), at: first.at };
            let size = env.host.random(SIZES) as usize;
            let datagram = envelope::seal(&pairing.keys.handshake, &kind, &nonce(env), &first.message, size);
            if let Some(log) = &mut env.host.key_log {
                log.sealed(&pairing.keys.handshake, &kind, &datagram, &self.config.name);
            }
            env.outbox.datagram(from, Some(first.to), Ecn::NotEct, datagram.len()).copy_from_slice(&datagram);
            self.attempts.note_copy(now);
        }
    }

    fn begin_try(&mut self, tier: Tier, number: u32, env: &mut Env) {
        let (pairing, round) = self.pairing_to_try(number, env.now.boot);
        let id = pairing.id;
        // Where it was seen last may be where it was for an hour; where it is at home is tried, too, and where it is said to be.
        let places = [Some(self.remote_prefix), self.meeting.told(), Some(self.config.hop_prefix)];
        let places: Vec<_> = places.into_iter().flatten().collect();
        self.begin_try_at(places[round as usize % places.len()], id, tier, number, env);
    }

    fn begin_try_at(
        &mut self,
        remote_prefix: Ipv6Net,
        id: PairingId,
        tier: Tier,
        number: u32,
        env: &mut Env,
    ) {
        let Some(pairing) = self.pairing(id) else { return };
        let epoch = self.epoch_to_try(pairing, tier, number, env.now);
        if let Some(pairing) = self.pairing_mut(id) {
            pairing.used[tier as usize] = epoch;
        }
        if let Some((first, pending)) = self.first_message(id, TierEpoch { tier, epoch }, remote_prefix, env)
        {
            self.attempts.start(Attempt::new(first, pending, env.now.boot));
        }
    }

    /// A fresh handshake's first message.
    fn first_message(
        &mut self,
        pairing: PairingId,
        at: TierEpoch,
        remote_prefix: Ipv6Net,
        env: &mut Env,
    ) -> Option<(FirstMessage, InitiatorState)> {
        let (hop_prefix, offer) = (env.own.hop_prefix, self.offer(env));
        let pairing = self.pairings.iter_mut().find(|known| known.id == pairing)?;
        let from = pairing.listeners.listen(at, self.index, &pairing.keys, hop_prefix, env.host);
        let to = endpoint(&pairing.keys, pairing.keys.role.other(), remote_prefix, at.tier, at.epoch);
        let claim = Claim { hop_prefix, unix_ms: env.now.unix_ms, heard: self.heard };
        let (parties, occasion) = (pairing.parties(), Occasion::Contact(claim));
        let (noise, pending) = handshake::initiate(&parties, &occasion, &offer, env.host.fresh());
        let ephemeral: Ephemeral = *noise.first_chunk().expect("a Noise message begins with a key");
        if self.tried.len() == TRIES_KNOWN {
            self.tried.pop_front();
        }
        self.tried.push_back(envelope::mark(&ephemeral));
        let (pairing, message) = (pairing.id, [claim.to_bytes().as_slice(), &noise].concat());
        Some((FirstMessage { pairing, at, from, to, remote_prefix, ephemeral, message }, pending))
    }

    /// The epoch that the peer is thought to be in: by its clock as far as we know it, every other round by ours. Never
    /// one before the last used, which the peer would refuse, unless our knowledge has changed by more.
    fn epoch_to_try(&self, pairing: &Pairing, tier: Tier, number: u32, now: Now) -> Epoch {
        let round = number as usize / (3 * self.tiers().len());
        let theirs = self.clock_offset(now).filter(|_| round.is_multiple_of(2));
        let unix_ms = now.unix_ms.saturating_add_signed(theirs.unwrap_or(0));
        let estimate = pairing.listeners.epoch(tier, unix_ms);
        let used = pairing.used[tier as usize];
        if (estimate..=estimate + 2).contains(&used) { used } else { estimate }
    }

    /// Takes a datagram that came to a rendezvous endpoint.
    pub(super) fn handle_rendezvous(
        &mut self,
        pairing: PairingId,
        at: TierEpoch,
        received: &Received,
        datagram: &[u8],
        env: &mut Env,
    ) -> Result<(), DropReason> {
        if datagram.len() < envelope::OVERHEAD {
            return Err(DropReason::TooShort);
        }
        let pairing = self.pairing(pairing).ok_or(DropReason::Stale)?;
        if let Some(current) = self
            .attempts
            .current
            .as_ref()
            .filter(|t| t.first.from == received.endpoint && t.pending.is_some())
        {
            let kind = Kind::Answer { first: &current.first.ephemeral };
            if let Some(message) = envelope::open(&pairing.keys.handshake, &kind, datagram) {
                if let Some(log) = &mut env.host.key_log {
                    log.opened(&pairing.keys.handshake, &kind, datagram, &self.config.name, env.now.boot);
                }
                return self.handle_answer(received.source, &message, env);
            }
        }
        let kind = Kind::First { receiver: pairing.keys.role, at };
        let Some(message) = envelope::open(&pairing.keys.handshake, &kind, datagram) else {
            return Err(DropReason::NotForUs);
        };
        if let Some(log) = &mut env.host.key_log {
            log.opened(&pairing.keys.handshake, &kind, datagram, &self.config.name, env.now.boot);
        }
        let (claim, noise) = Claim::split(&message).ok_or(DropReason::HandshakeFailed)?;
        let ephemeral: Ephemeral = *noise.first_chunk().ok_or(DropReason::HandshakeFailed)?;
        let seen =
            self.seen_in(&pairing.keys, &claim, at, received.source).ok_or(DropReason::SourceRewritten)?;
        let newest = TierEpoch { epoch: pairing.accepted[at.tier as usize], ..at };
        if at < newest && pairing.listeners.within(newest, env.now.unix_ms) {
            return Err(DropReason::HandshakeOld);
        }
        if pairing.listeners.seen(at, &ephemeral) {
            return Err(DropReason::HandshakeRepeated);
        }
        let (id, earlier) = (pairing.id, self.may_be_of_earlier(pairing, at, &claim, env.now));
        self.heard = envelope::mark(&ephemeral);
        if earlier {
            // Nothing leaves because of it that would not have left: who replays it learns nothing.
            if let Some(current) = &mut self.attempts.current {
                current.renew();
            }
            return Err(DropReason::HandshakeOld);
        }
        if !self.handshakes_begun.take(env.now.boot) {
            return Err(DropReason::HandshakeLimit);
        }
        let pairing = self.pairing_mut(id).ok_or(DropReason::Stale)?;
        let occasion = Occasion::Contact(claim);
        let (offer, answering) =
            handshake::receive(&pairing.parties(), &occasion, noise, env.host.fresh()).map_err(failure)?;
        pairing.listeners.remember(at, ephemeral);
        if offer.turn.is_some_and(|turn| turn < pairing.turn) {
            return Err(DropReason::HandshakeOld);
        }
        let first =
            VerifiedFirst { pairing: id, at, claim, seen, ephemeral, size: datagram.len(), offer, answering };
        self.answer(first, received, env)
    }

    /// The prefix that a first message came from: the one that it claims, or any where the path translates prefixes.
    /// None if it is not from its sender's endpoint there.
    fn seen_in(
        &self,
        keys: &PairKeys,
        claim: &Claim,
        at: TierEpoch,
        source: SocketAddrV6,
    ) -> Option<Ipv6Net> {
        let inside = endpoint(keys, keys.role.other(), claim.hop_prefix, at.tier, at.epoch);
        let seen = match self.config.translated {
            true => prefix_of(*source.ip(), claim.hop_prefix.prefix_len()),
            false => claim.hop_prefix,
        };
        let same = rebase(*inside.ip(), seen) == *source.ip() && inside.port() == source.port();
        same.then_some(seen)
    }

    /// Whether a first message may be one that came before this node began to listen with these keys, so that it knows no
    /// nonce of that time: it was made earlier, by its sender's clock, for an epoch in which somebody was there to record it.
    /// What names a first message of ours was made since.
    fn may_be_of_earlier(&self, pairing: &Pairing, at: TierEpoch, claim: &Claim, now: Now) -> bool {
        let Some(knows_since) = pairing.knows_since.filter(|_| !self.tried.contains(&claim.heard)) else {
            return false;
        };
        let Some(offset) = self.clock_offset(now) else { return false };
        let listening = now.boot.since(knows_since).as_millis() as u64;
        let since = now.unix_ms.saturating_sub(listening);
        let theirs = since.saturating_add_signed(offset);
        let delay = self.clock.map_or(LONGEST_DELAY, |clock| clock.delay_ms);
        claim.unix_ms < theirs.saturating_add(delay) && pairing.listeners.within(at, since)
    }

    /// The peer begins a handshake: make a session, and answer once its endpoints are open.
    fn answer(&mut self, first: VerifiedFirst, received: &Received, env: &mut Env) -> Result<(), DropReason> {
        let VerifiedFirst { pairing, at, claim, seen, ephemeral, size, offer: theirs, answering } = first;
        let mut ours = self.offer(env);
        let terms = self.terms(&ours, &theirs, (pairing, seen), env)?;
        ours.aes = terms.cipher == Cipher::Aes256Gcm;
        (ours.rotation, ours.lanes, ours.padding) = (terms.rotation, Some(terms.lanes), terms.padding);
        ours.shape = terms.shape;
        ours.rewrite = terms.rewrite;
        ours.mask = ours.mask.filter(|_| terms.mask.is_some());
        ours.unix_ms = Some(env.now.unix_ms);
        (ours.hop_prefix, ours.observed) = (Some(env.own.hop_prefix), Some(seen));
        let keys = &self.pairing(pairing).ok_or(DropReason::Stale)?.keys;
        fit(&mut ours, size);
        let (answer, secret) = answering.answer(&ours);
        let least = (answer.len() + envelope::OVERHEAD) as u64;
        let size = env.host.random(least.min(size as u64)..=size as u64) as usize;
        let kind = Kind::Answer { first: &ephemeral };
        let datagram = envelope::seal(&keys.handshake, &kind, &nonce(env), &answer, size);
        if let Some(log) = &mut env.host.key_log {
            log.sealed(&keys.handshake, &kind, &datagram, &self.config.name);
        }

        let unconfirmed = |s: &&Session| matches!(s.phase, Phase::Responding | Phase::Unconfirmed { .. });
        if self.sessions.iter().filter(unconfirmed).count() >= UNCONFIRMED {
            let oldest =
                self.sessions.iter().filter(unconfirmed).min_by_key(|s| (s.begun, s.id)).map(|s| s.id);
            self.remove(oldest.expect("there are some"), env.host);
        }
        let learned = Learned { clock: clock(claim.unix_ms, LONGEST_DELAY, env.now), accepted: Some(at) };
        let session = self.begin(pairing, &secret, terms, None, learned, env)?;
        self.answers.push(Answer { session, from: received.endpoint, to: received.source, datagram });
        self.next = env.now.boot;
        Ok(())
    }

    /// The peer answered our try.
    fn handle_answer(
        &mut self,
        source: SocketAddrV6,
        message: &[u8],
        env: &mut Env,
    ) -> Result<(), DropReason> {
        let now = env.now.boot;
        let current = self.attempts.current.as_mut().expect("the caller has looked");
        let FirstMessage { pairing, to, remote_prefix: asked, .. } = current.first;
        if (source.ip(), source.port()) != (to.ip(), to.port()) {
            return Err(DropReason::SourceRewritten);
        }
        let pending = current.pending.take().expect("the caller has looked");
        let took = now.since(current.left.unwrap_or(now));
        if took > ANSWER_WITHIN {
            return Err(DropReason::HandshakeLate);
        }
        let (theirs, secret) = pending.finish(message).map_err(failure)?;
        if theirs.turn.is_some_and(|turn| self.is_over(turn, pairing)) {
            return Err(DropReason::HandshakeOld);
        }
        // Both ends see each other where they are, or were told that the path translates.
        let inside = theirs.hop_prefix.ok_or(DropReason::HandshakeFailed)?;
        if !self.config.translated && (inside != asked || theirs.observed != Some(env.own.hop_prefix)) {
            return Err(DropReason::SourceRewritten);
        }
        let seen = prefix_of(*to.ip(), inside.prefix_len());
        let terms = self.terms(&self.offer(env), &theirs, (pairing, seen), env)?;
        let delay = took.as_millis() as u64 + 1;
        let clock = theirs.unix_ms.and_then(|unix_ms| clock(unix_ms, delay, env.now));
        let learned = Learned { clock, accepted: None };
        self.begin(pairing, &secret, terms, Some(took), learned, env)?;
        self.attempts.stop();
        self.next = now;
        Ok(())
    }

    fn begin(
        &mut self,
        pairing: PairingId,
        secret: &SessionSecret,
        terms: Terms,
        round_trip: Option<Duration>,
        learned: Learned,
        env: &mut Env,
    ) -> Result<SessionId, DropReason> {
        let role = self.pairing(pairing).ok_or(DropReason::Stale)?.keys.role;
        // Only who began knows how long the answer took.
        let initiated_by = if round_trip.is_some() { role } else { role.other() };
        let pairs = self.pairings.iter().filter(|_| terms.mask.is_some()).map(|pairing| pairing.public);
        let masked = pairs.map(|keys| (mask::address(&keys.own), mask::address(&keys.peer))).collect();
        let new = NewSession {
            peer: self.index,
            name: &self.config.name,
            pairing,
            role,
            initiated_by,
            secret,
            terms,
            round_trip,
            learned,
            keepalive: self.config.keepalive,
            budget: &mut self.budget,
            masked,
        };
        let session = Session::begin(new, env.now.boot, env.host);
        let id = session.id;
        self.sessions.push(session);
        Ok(id)
    }

    /// What two offers come to, between these keys, with a peer that is there: the longer interval, the fewer lanes, the
    /// stronger padding.
    fn terms(
        &self,
        ours: &Offer,
        theirs: &Offer,
        (pairing, remote_prefix): (PairingId, Ipv6Net),
        env: &Env,
    ) -> Result<Terms, DropReason> {
        let keys = self.pairing(pairing).ok_or(DropReason::Stale)?.public;
        let aes = ours.aes && theirs.aes;
        let shape = ours.shape.agreed(theirs.shape);
        // All of one size, on any path, with nothing that an outer header says of what is inside.
        let (padding, mtu) = match shape {
            Shape::None => (ours.padding.max(theirs.padding), ours.receive_mtu.min(theirs.receive_mtu)),
            Shape::Adaptive(_) | Shape::Constant(_) => (Padding::Full, SHAPE_SIZE),
        };
        let roomy = |prefix: Ipv6Net| prefix.prefix_len() <= LONGEST_REWRITE_PREFIX;
        let rewrite = ours.rewrite && theirs.rewrite && roomy(env.own.hop_prefix) && roomy(remote_prefix);
        // Of these keys, whichever an end has besides: both know them, and each other's ends by them.
        let end = |key, port| SocketAddrV6::new(mask::address(key), port, 0, 0);
        let flow = ours.mask.zip(theirs.mask).map(|(own_port, peer_port)| Flow {
            local: end(&keys.own, own_port),
            remote: end(&keys.peer, peer_port),
        });
        let plain = shape == Shape::None;
        Ok(Terms {
            cipher: if aes { Cipher::Aes256Gcm } else { Cipher::ChaCha20Poly1305 },
            rotation: ours.rotation.max(theirs.rotation),
            lanes: [ours.lanes, theirs.lanes].into_iter().flatten().min().unwrap_or(shape.lanes()),
            padding,
            shape,
            local_prefix: env.own.hop_prefix,
            remote_prefix,
            mtu,
            contexts: theirs.contexts,
            stream: theirs.stream.zip(ours.stream),
            rekey_after: env.own.rekey_after,
            rewrite: plain && rewrite,
            mask: flow.filter(|_| plain && !rewrite),
            turn: theirs.turn,
        })
    }
}

/// A first message that is the peer's, made in this run of the node, from where the peer is, and comes for the first time.
struct VerifiedFirst {
    pairing: PairingId,
    at: TierEpoch,
    claim: Claim,
    seen: Ipv6Net,
    ephemeral: Ephemeral,
    /// Of its datagram.
    size: usize,
    offer: Offer,
    answering: ResponderState,
}

/// The peer's clock, if it showed `unix_ms` `delay_ms` ago at most.
pub(super) fn clock(unix_ms: u64, delay_ms: u64, now: Now) -> Option<PeerClock> {
    let ahead_ms = i64::try_from(unix_ms).ok()?.saturating_sub_unsigned(now.boot.micros() / 1000);
    Some(PeerClock { ahead_ms, delay_ms })
}

/// An answer is not longer than the first message. Who sends some that are as short as this does not know turns.
fn fit(answer: &mut Offer, first: usize) {
    if length(answer) > first {
        answer.turn = None;
    }
}

/// The length of an answer with this offer.
fn length(answer: &Offer) -> usize {
    answer.encode().len() + handshake::ANSWER + envelope::OVERHEAD
}

/// A nonce for one envelope.
fn nonce(env: &mut Env) -> Nonce {
    let mut nonce = Nonce::default();
    env.host.fresh().fill_bytes(&mut nonce);
    nonce
}

fn failure(error: HandshakeError) -> DropReason {
    match error {
        HandshakeError::Noise | HandshakeError::Payload => DropReason::HandshakeFailed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offer::tests::offer;

    #[test]
    fn an_answer_with_all_items_is_not_longer_than_the_shortest_first_message() {
        // Of the two ways of carrying packets otherwise the longer.
        let mut answer = Offer { switch: None, rewrite: false, ..offer() };
        let shortest = *SIZES.start() as usize;
        assert!(length(&answer) <= shortest, "{}", length(&answer));
        fit(&mut answer, shortest);
        assert!(answer.turn.is_some());
        // To a node from before there were turns.
        let mut answer = Offer { mask: None, ..answer };
        fit(&mut answer, 200);
        assert!(answer.turn.is_none() && length(&answer) <= 200, "{}", length(&answer));
    }
}

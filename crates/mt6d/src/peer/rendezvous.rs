//! A peer's rendezvous: our tries, the peer's first messages, and what both agree on.

use std::time::Duration;

use wire::ecn::Ecn;

use super::{Answer, Peer, UNCONFIRMED, seen_in};
use crate::config::LONGEST_REWRITE_PREFIX;
use crate::contact::{Attempt, FirstMessage};
use crate::drops::DropReason;
use crate::endpoint::rebase;
use crate::env::Env;
use crate::envelope::{self, Kind, Nonce};
use crate::handshake::{self, HandshakeError, SessionSecret};
use crate::id::{Epoch, SessionId};
use crate::keys::Role;
use crate::offer::{Cipher, Offer};
use crate::received::Received;
use crate::rendezvous::endpoint;
use crate::session::{ANSWER_WITHIN, NewSession, Phase, Session, Terms};
use crate::tier::{Tier, TierEpoch};
use crate::time::Now;
use rand_chacha::rand_core::Rng;

/// Sizes of first messages, in bytes: the smallest leaves room for an answer with all items.
const SIZES: std::ops::RangeInclusive<u64> = 200..=1200;

impl Peer {
    /// Begins tries that are due and sends the copies of the one under way.
    pub(super) fn poll_attempts(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let wanted = self.kept() || self.silent || now < self.wanted || !self.queue.is_empty();
        if !wanted {
            self.attempts.stop();
        } else if (self.silent || self.in_use().is_none()) && !self.confirming() {
            self.attempts.begin(now);
        }
        if let Some((tier, number)) = self.attempts.due(env.now, self.listeners.tiers(), env.host) {
            self.begin_try(tier, number, env);
        }
        self.attempts.current.take_if(|t| t.over(now));
        let Some(current) = &mut self.attempts.current else { return };
        if let Some(from) = self.listeners.open_at(current.first.at)
            && current.copy_due(now)
        {
            // One that could not be opened may have been asked for anew.
            let first = &mut current.first;
            first.from = from;
            let datagram = env.outbox.datagram(from, Some(first.to), Ecn::NotEct, first.datagram.len());
            datagram.copy_from_slice(&first.datagram);
        }
    }

    fn begin_try(&mut self, tier: Tier, number: u32, env: &mut Env) {
        let at = TierEpoch { tier, epoch: self.epoch_to_try(tier, number, env.now) };
        self.used[tier as usize] = at.epoch;
        let prefix = env.own.hop_prefix;
        let from = self.listeners.listen(at, self.index, &self.keys, prefix, env.host);
        let to = endpoint(&self.keys, self.keys.role.other(), self.remote_prefix, at.tier, at.epoch);
        let offer = self.offer(env);
        let mut nonce = Nonce::default();
        env.host.rng.fill_bytes(&mut nonce);
        let (message, pending) = handshake::initiate(&self.parties(env.own), &offer, &mut env.host.rng);
        let kind = Kind::First { receiver: self.keys.role.other(), at };
        let size = env.host.random(SIZES) as usize;
        let datagram = envelope::seal(&self.keys.handshake, &kind, &nonce, &message, size);
        let first = FirstMessage { at, from, to, nonce, datagram };
        self.attempts.current = Some(Box::new(Attempt::new(first, pending, env.now.boot)));
    }

    /// The epoch that the peer is thought to be in: by its clock as far as we know it, every other round by ours. Never
    /// one before the last used, which the peer would refuse, unless our knowledge has changed by more.
    fn epoch_to_try(&self, tier: Tier, number: u32, now: Now) -> Epoch {
        let boot_ms = (now.boot.micros() / 1000) as i64;
        let round = number as usize / (3 * self.listeners.tiers().len());
        let theirs = self.clock.filter(|_| round.is_multiple_of(2));
        let unix_ms = theirs.and_then(|clock| u64::try_from(clock + boot_ms).ok()).unwrap_or(now.unix_ms);
        let estimate = self.listeners.epoch(tier, unix_ms);
        let used = self.used[tier as usize];
        if (estimate..=estimate + 2).contains(&used) { used } else { estimate }
    }

    /// Takes a datagram that came to a rendezvous endpoint.
    pub(super) fn handle_rendezvous(
        &mut self,
        at: TierEpoch,
        received: &Received,
        datagram: &[u8],
        env: &mut Env,
    ) -> Result<(), DropReason> {
        if datagram.len() < envelope::OVERHEAD {
            return Err(DropReason::TooShort);
        }
        if let Some(current) = self
            .attempts
            .current
            .as_ref()
            .filter(|t| t.first.from == received.endpoint && t.pending.is_some())
        {
            let kind = Kind::Answer { first: &current.first.nonce };
            if let Some((_, message)) = envelope::open(&self.keys.handshake, &kind, datagram) {
                return self.handle_answer(&message, env);
            }
        }
        let kind = Kind::First { receiver: self.keys.role, at };
        let Some((nonce, message)) = envelope::open(&self.keys.handshake, &kind, datagram) else {
            return Err(DropReason::NotForUs);
        };
        let newest = TierEpoch { epoch: self.accepted[at.tier as usize], ..at };
        if at < newest && self.listeners.within(newest, env.now.unix_ms) {
            return Err(DropReason::HandshakeOld);
        }
        if !self.listeners.first_time(at, &nonce) {
            return Err(DropReason::HandshakeRepeated);
        }
        self.handle_first_message(at, received, &nonce, &message, datagram.len(), env)
    }

    /// The peer begins a handshake: make a session, and answer once its endpoints are open.
    fn handle_first_message(
        &mut self,
        at: TierEpoch,
        received: &Received,
        nonce: &Nonce,
        message: &[u8],
        size: usize,
        env: &mut Env,
    ) -> Result<(), DropReason> {
        let parties = self.parties(env.own);
        let (theirs, answering) =
            handshake::receive(&parties, message, &mut env.host.rng).map_err(failure)?;
        let plen = theirs.hop_prefix.map_or(self.remote_prefix.prefix_len(), |p| p.prefix_len());
        let source = received.source;
        let seen = seen_in(source, plen);
        let expected = endpoint(&self.keys, self.keys.role.other(), seen, at.tier, at.epoch);
        if rebase(*expected.ip(), seen) != *source.ip() || expected.port() != source.port() {
            return Err(DropReason::SourceRewritten);
        }
        self.accepted[at.tier as usize] = at.epoch;
        self.learn_clock(&theirs, env.now);

        let mut ours = self.offer(env);
        let terms = self.terms(&ours, &theirs, seen, env);
        ours.aes = terms.cipher == Cipher::Aes256Gcm;
        (ours.rotation, ours.lanes, ours.padding) = (terms.rotation, terms.lanes, terms.padding);
        ours.rewrite = terms.rewrite;
        ours.observed = Some(seen);
        let (answer, secret) = answering.answer(&ours);
        let mut answer_nonce = Nonce::default();
        env.host.rng.fill_bytes(&mut answer_nonce);
        let least = (answer.len() + envelope::OVERHEAD) as u64;
        let size = env.host.random(least.min(size as u64)..=size as u64) as usize;
        let kind = Kind::Answer { first: nonce };
        let datagram = envelope::seal(&self.keys.handshake, &kind, &answer_nonce, &answer, size);

        let unconfirmed = |s: &&Session| matches!(s.phase, Phase::Responding | Phase::Unconfirmed { .. });
        if self.sessions.iter().filter(unconfirmed).count() >= UNCONFIRMED {
            let oldest =
                self.sessions.iter().filter(unconfirmed).min_by_key(|s| (s.begun, s.id)).map(|s| s.id);
            self.remove(oldest.expect("there are some"), env.host);
        }
        let session = self.begin(self.keys.role.other(), &secret, terms, None, env);
        self.answers.push(Answer { session, from: received.endpoint, to: source, datagram });
        self.next = env.now.boot;
        Ok(())
    }

    /// The peer answered our try.
    fn handle_answer(&mut self, message: &[u8], env: &mut Env) -> Result<(), DropReason> {
        let now = env.now.boot;
        let current = self.attempts.current.as_mut().expect("the caller has looked");
        let (pending, to) = (current.pending.take().expect("the caller has looked"), current.first.to);
        let took = now.since(current.left.unwrap_or(now));
        if took > ANSWER_WITHIN {
            return Err(DropReason::HandshakeLate);
        }
        let (theirs, secret) = pending.finish(message).map_err(failure)?;
        self.learn_clock(&theirs, env.now);
        let plen = theirs.hop_prefix.map_or(self.remote_prefix.prefix_len(), |p| p.prefix_len());
        let terms = self.terms(&self.offer(env), &theirs, seen_in(to, plen), env);
        self.begin(self.keys.role, &secret, terms, Some(took), env);
        self.attempts.stop();
        self.next = now;
        Ok(())
    }

    fn begin(
        &mut self,
        initiated_by: Role,
        secret: &SessionSecret,
        terms: Terms,
        round_trip: Option<Duration>,
        env: &mut Env,
    ) -> SessionId {
        let new = NewSession {
            peer: self.index,
            role: self.keys.role,
            initiated_by,
            secret,
            terms,
            round_trip,
            keepalive: self.config.keepalive,
            cover: self.config.cover,
        };
        let session = Session::begin(new, env.now.boot, env.host);
        let id = session.id;
        self.sessions.push(session);
        id
    }

    /// What two offers come to: the longer interval, the fewer lanes, the stronger padding.
    fn terms(&self, ours: &Offer, theirs: &Offer, remote_prefix: ipnet::Ipv6Net, env: &Env) -> Terms {
        let aes = ours.aes && theirs.aes;
        let roomy = |prefix: ipnet::Ipv6Net| prefix.prefix_len() <= LONGEST_REWRITE_PREFIX;
        Terms {
            cipher: if aes { Cipher::Aes256Gcm } else { Cipher::ChaCha20Poly1305 },
            rotation: ours.rotation.max(theirs.rotation),
            lanes: ours.lanes.min(theirs.lanes),
            padding: ours.padding.max(theirs.padding),
            local_prefix: env.own.hop_prefix,
            remote_prefix,
            mtu: ours.receive_mtu.min(theirs.receive_mtu),
            contexts: theirs.contexts,
            stream: theirs.stream.zip(ours.stream),
            rekey_after: env.own.rekey_after,
            rewrite: ours.rewrite && theirs.rewrite && roomy(env.own.hop_prefix) && roomy(remote_prefix),
        }
    }

    fn learn_clock(&mut self, theirs: &Offer, now: Now) {
        if let Ok(unix_ms) = i64::try_from(theirs.unix_ms) {
            self.clock = Some(unix_ms.saturating_sub((now.boot.micros() / 1000) as i64));
        }
    }
}

fn failure(error: HandshakeError) -> DropReason {
    match error {
        HandshakeError::Noise | HandshakeError::Payload => DropReason::HandshakeFailed,
    }
}

//! The way in, as far as it is the session's alone: control messages take effect.

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ipnet::Ipv6Net;
use wire::ecn::Ecn;

use super::contexts;
use super::fast_in::Receiver;
use super::rekey::RekeyMessage;
use super::{Phase, ReliableMessage, Session};
use crate::control::{Control, Decoded};
use crate::deliver::DeliverCopied;
use crate::drops::DropReason;
use crate::env::Env;
use crate::keys::PublicKey;
use crate::time::Time;

/// What a datagram brought that concerns the peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// Nothing more than what the session did with it.
    Done,
    /// The first proof that the peer has the session's keys.
    Established,
    /// A handshake message for new keys.
    Rekey(u32, RekeyMessage),
    /// The peer ends the session.
    Closed,
    /// The peer wants to meet another.
    Meet(PublicKey),
    /// The peer says where another is.
    Met(PublicKey, Ipv6Net),
    /// The peer's wall clock was set, and shows this now (Unix time, ms).
    WallClock(u64),
}

impl Session {
    /// Does what the contents of a datagram say, which lie at `inner` in the arena and are no packet, or one that
    /// proves that the peer has the keys.
    pub(crate) fn receive(
        &mut self,
        receiver: &Receiver,
        arena: &mut [u8],
        inner: Range<usize>,
        ecn: Ecn,
        env: &mut Env,
    ) -> Result<Incoming, DropReason> {
        let first_proof = matches!(self.phase, Phase::Unconfirmed { .. });
        if first_proof {
            self.phase = Phase::Up;
            self.activity.unproven.store(false, Relaxed);
            self.open_firewalls(env.now.boot);
        }
        let outcome = match arena.get(inner.start).filter(|_| !inner.is_empty()).map(|b| b >> 4) {
            Some(0) => self.control(receiver, &arena[inner], ecn, env),
            Some(_) => receiver
                .packet(arena, inner, ecn, env.routes, env.now.boot, env.deliver)
                .map(|()| Incoming::Done),
            None => Err(DropReason::Malformed),
        };
        self.update_sender(env.now.boot);
        match outcome {
            Ok(Incoming::Done) if first_proof => Ok(Incoming::Established),
            Err(reason) if first_proof => {
                self.activity.drops.count(reason);
                Ok(Incoming::Established)
            }
            outcome => outcome,
        }
    }

    fn control(
        &mut self,
        receiver: &Receiver,
        inner: &[u8],
        ecn: Ecn,
        env: &mut Env,
    ) -> Result<Incoming, DropReason> {
        let Decoded::Message(id, message) = Control::decode(inner).ok_or(DropReason::Malformed)? else {
            return Ok(Incoming::Done);
        };
        let now = env.now.boot;
        let clock = self.clock.at(now);
        match message {
            Control::Padding | Control::Opener => {}
            Control::Confirm { clock: echo } => {
                if id == 0 || self.rekey_confirmed(id, now) {
                    self.send_control(id, &Control::Confirmed { echo, clock }, env);
                }
            }
            Control::Confirmed { echo, clock } => {
                if self.answered_reliable(id, |m| matches!(m, ReliableMessage::Confirm)) {
                    let first = self.phase == Phase::Confirming;
                    if first {
                        self.round_trip.restart();
                        self.phase = Phase::Up;
                    }
                    self.measured(echo, clock, now, first);
                    return Ok(if first { Incoming::Established } else { Incoming::Done });
                }
            }
            Control::RekeyFirst(noise) => {
                return Ok(Incoming::Rekey(id, RekeyMessage::First(noise.to_vec())));
            }
            Control::RekeyAnswer(noise) => {
                return Ok(Incoming::Rekey(id, RekeyMessage::Answer(noise.to_vec())));
            }
            Control::Context { context, retires, source, destination } => {
                let pair = contexts::pair(source, destination);
                let mut known = self.common.contexts.write().unwrap_or_else(PoisonError::into_inner);
                let new = known.get(context).is_none();
                let learned = known.learn(context, retires, pair);
                drop(known);
                if learned {
                    if let Some(log) = env.host.key_log.as_mut().filter(|_| new) {
                        let sender = self.common.role.other();
                        log.context(self.common.label, sender, context, source, destination);
                    }
                    self.pairs_changed();
                    self.send_control(id, &Control::ContextKnown { context }, env);
                }
            }
            Control::ContextKnown { context } => {
                self.send_contexts.known(context, now);
                self.pairs_changed();
            }
            Control::MtuProbe { size } => {
                self.send_control(id, &Control::MtuProbed { size }, env);
            }
            Control::MtuProbed { size } => {
                self.path_mtu.probed(size);
                env.deliver.mtu_changed();
            }
            Control::RoundTrip { clock: echo, overdue, keeps } => {
                let unheard = self.is_unheard(Duration::from_millis(overdue.into()));
                self.liveness.peer_asked(unheard, keeps, now);
                self.send_control(id, &Control::RoundTripAnswer { echo, clock }, env);
            }
            Control::RoundTripAnswer { echo, clock } => {
                self.liveness.peer_answered(now);
                self.measured(echo, clock, now, false);
            }
            Control::Close => return Ok(Incoming::Closed),
            Control::Meet(key) => return Ok(Incoming::Meet(key)),
            Control::Met(key, place) => return Ok(Incoming::Met(key, place)),
            Control::WallClock { zero_unix_ms } => {
                return Ok(Incoming::WallClock(zero_unix_ms.saturating_add_signed(clock)));
            }
            Control::Half { part, bytes } => {
                if let Some(mut whole) = self.reassembly.add(id, part, bytes, now)? {
                    if whole.first().is_none_or(|b| b >> 4 == 0) {
                        return Err(DropReason::Malformed);
                    }
                    let all = 0..whole.len();
                    let mut own = DeliverCopied(env.deliver);
                    receiver.packet(&mut whole, all, ecn, env.routes, now, &mut own)?;
                }
            }
        }
        Ok(Incoming::Done)
    }

    /// A round trip was measured; the initiator follows the responder's clock.
    fn measured(&mut self, echo: i64, theirs: i64, now: Time, first: bool) {
        let Some(took) = self.round_trip.answered(echo, now) else { return };
        if self.initiated_by == self.common.role && took < Duration::from_secs(5) {
            self.clock.adjust(theirs, took, now, first);
        }
    }
}

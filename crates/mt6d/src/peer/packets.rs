//! A peer's packets: those that go to it, those that wait until that can be, and those that come.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use wire::ecn::Ecn;
use wire::{icmp_error, virtio_net};

use super::rendezvous::{LONGEST_DELAY, clock};
use super::{Peer, Queued, WANTED_FOR};
use crate::drops::DropReason;
use crate::env::Env;
use crate::event::Ending;
use crate::host_interface::{Meeting, Purpose};
use crate::id::{LaneId, SessionId};
use crate::received::Received;
use crate::session::{self, Incoming, Pair, Phase, Receiver, Sender, Session, Traffic};
use crate::time::Time;

/// Packets and bytes that wait for a session.
const QUEUE: (usize, usize) = (64, 256 * 1024);
/// How long a packet waits.
pub(super) const QUEUED_FOR: Duration = Duration::from_secs(10);
/// Pairs of addresses that are new are looked at within this time, all at once: the peer waits for a second.
const PAIRS_WITHIN: Duration = Duration::from_millis(50);

impl Peer {
    /// Takes an inner packet for the peer.
    pub(crate) fn send(&mut self, header: &virtio_net::Header, packet: &mut [u8], env: &mut Env) {
        let now = env.now.boot;
        let unreachable = self.silent && self.attempts.slow();
        let Some(session) = self.sending() else {
            return self.wait(header, packet, env);
        };
        let sent = session.send(header, packet, env);
        if session.has_new_pairs() {
            self.next = self.next.min(now + PAIRS_WITHIN);
        }
        match sent {
            Ok(()) if unreachable => self.error(icmp_error::Reason::AddressUnreachable, packet, env),
            Ok(()) => {}
            Err(session::Refusal::TooBig(mtu)) => {
                self.drops.count(DropReason::TooBig);
                self.error(icmp_error::Reason::PacketTooBig { mtu: mtu.into() }, packet, env);
            }
            Err(session::Refusal::Drop(reason)) => {
                self.drops.count(reason);
                if reason == DropReason::KeyExhausted {
                    self.reach(now, WANTED_FOR);
                }
            }
        }
    }

    /// Keeps a packet until there is a session, and sees that there will be.
    #[cold]
    fn wait(&mut self, header: &virtio_net::Header, packet: &[u8], env: &mut Env) {
        let now = env.now.boot;
        if env.own.is_nowhere() {
            self.drops.count(DropReason::NoSession);
            return self.error(icmp_error::Reason::AddressUnreachable, packet, env);
        }
        self.wanted = self.wanted.max(now + WANTED_FOR);
        if !self.attempts.active() && !self.confirming() {
            self.reach(now, WANTED_FOR);
        } else if self.attempts.expedite(now) {
            self.next = now;
        }
        if self.attempts.slow() {
            self.drops.count(DropReason::NoSession);
            return self.error(icmp_error::Reason::AddressUnreachable, packet, env);
        }
        while self.queue.len() >= QUEUE.0
            || self.queue.iter().map(|q| q.packet.len()).sum::<usize>() + packet.len() > QUEUE.1
        {
            if self.queue.pop_front().is_none() {
                break;
            }
            self.drops.count(DropReason::NoSession);
        }
        self.queue.push_back(Queued { header: *header, packet: packet.to_vec(), since: now });
    }

    /// Sends what waited, if there is a session, and gives up what waited too long.
    pub(super) fn flush(&mut self, env: &mut Env) {
        while self.queue.front().is_some_and(|q| env.now.boot.since(q.since) >= QUEUED_FOR) {
            self.queue.pop_front();
            self.drops.count(DropReason::NoSession);
        }
        while self.sending().is_some()
            && let Some(mut queued) = self.queue.pop_front()
        {
            self.send(&queued.header, &mut queued.packet, env);
        }
    }

    /// Tells an inner sender, at a limited rate (RFC 4443 section 2.4 f).
    #[cold]
    fn error(&mut self, reason: icmp_error::Reason, invoking: &[u8], env: &mut Env) {
        if !self.errors.take(env.now.boot) {
            return;
        }
        let Ok((_, destination)) = wire::flow::addresses(invoking) else { return };
        let same_family = |a: &&IpAddr| a.is_ipv6() == destination.is_ipv6();
        let source = env.own.addresses.iter().find(same_family).copied().unwrap_or(destination);
        let mut out = [0; icmp_error::MAX_LEN];
        if let Ok(length) = icmp_error::build(reason, source, invoking, &mut out) {
            env.deliver.whole_packet(&out[..length]);
        }
    }

    /// Takes datagrams that came to an endpoint of the peer's together.
    pub(crate) fn receive(&mut self, purpose: Purpose, received: &Received, arena: &mut [u8], env: &mut Env) {
        match purpose {
            Purpose::Rendezvous(pairing, epoch) => {
                for at in received.each() {
                    let result = self.handle_rendezvous(pairing, epoch, received, &arena[at], env);
                    if let Err(reason) = result {
                        self.drops.count(reason);
                    }
                    self.note_contact(result.err(), env.now.boot);
                }
            }
            Purpose::Data { session, lane } => {
                let Some(receiver) = self.receiver(session, lane) else {
                    return self.drops.count(DropReason::Stale);
                };
                let mut punted = Vec::new();
                let now = env.now.boot;
                receiver.receive(arena, received, env.routes, now, env.deliver, &mut punted);
                for inner in punted {
                    self.receive_punted(&receiver, arena, inner, received.ecn, env);
                }
                self.clear_silence();
            }
        }
    }

    /// The receiving half of a session.
    pub(crate) fn receiver(&self, session: SessionId, lane: LaneId) -> Option<Arc<Receiver>> {
        self.sessions.iter().find(|s| s.id == session)?.receiver(lane).cloned()
    }

    /// The sending half of the session in use. None while what is sent has consequences.
    pub(crate) fn sender(&self) -> Option<&Sender> {
        let unreachable = self.silent && self.attempts.slow();
        let session = self.in_use().filter(|_| !unreachable).map(|at| &self.sessions[at])?;
        // What is sent at a time of its own is sent by who keeps the time.
        (!session.is_shaped()).then(|| session.sender())
    }

    /// A peer that is heard is not silent any more.
    pub(super) fn clear_silence(&mut self) {
        let answered = |s: &Session| s.phase == Phase::Up && s.activity.unanswered().is_none();
        if self.silent && self.in_use().is_some_and(|at| answered(&self.sessions[at])) {
            self.silent = false;
        }
    }

    /// Takes what a receiving half has opened, at `inner` in the arena, and left to its session.
    pub(crate) fn receive_punted(
        &mut self,
        receiver: &Receiver,
        arena: &mut [u8],
        inner: Range<usize>,
        ecn: Ecn,
        env: &mut Env,
    ) {
        let (id, now) = (receiver.session, env.now.boot);
        let Some(session) = self.session(id) else { return self.drops.count(DropReason::Stale) };
        let unproven = matches!(session.phase, Phase::Unconfirmed { .. });
        let incoming = session.receive(receiver, arena, inner, ecn, env);
        let (has_new_pairs, masks) = (session.has_new_pairs(), session.masks());
        if has_new_pairs {
            self.next = self.next.min(now + PAIRS_WITHIN);
        }
        if masks {
            // By a lane on which something was heard for the first time masked packets may leave.
            self.next = now;
        }
        if unproven || incoming == Ok(Incoming::Established) {
            self.settle(id, now);
        }
        let result = match incoming {
            Ok(Incoming::Done) => return,
            Ok(Incoming::Established) => Ok(()),
            Ok(Incoming::Closed) => {
                if let Some(session) = self.session(id) {
                    session.retire(now);
                    self.ending = Ending::Closed;
                }
                Ok(())
            }
            Ok(Incoming::Meet(key)) => return env.host.meet(Meeting::Asked { by: self.index, key }),
            Ok(Incoming::Met(key, place)) => {
                return env.host.meet(Meeting::Told { by: self.index, key, place });
            }
            Ok(Incoming::WallClock(unix_ms)) => {
                self.clock = clock(unix_ms, LONGEST_DELAY, env.now).or(self.clock);
                Ok(())
            }
            Ok(Incoming::Rekey(rekey, message)) => self.rekey(id, rekey, &message, env),
            Err(reason) => Err(reason),
        };
        match result {
            Ok(()) => self.next = now,
            Err(reason) => self.drops.count(reason),
        }
    }

    /// A packet thread has sent an address pair of a session in full.
    pub(crate) fn sent_in_full(&mut self, sender: &Sender, pair: &Pair, env: &mut Env) {
        let Some(at) = self.in_use().filter(|at| self.sessions[*at].sender().is_of_same_session(sender))
        else {
            return;
        };
        self.sessions[at].sent_in_full(pair, env);
        if self.sessions[at].has_new_pairs() {
            self.next = self.next.min(env.now.boot + PAIRS_WITHIN);
        }
    }

    /// Packets crossed between two hosts with other addresses.
    pub(crate) fn count_rewritten(&mut self, inner: (Ipv6Addr, Ipv6Addr), traffic: &Traffic, now: Time) {
        if let Some(session) = self.sending() {
            session.count_rewritten(inner, traffic, now);
        }
    }
}

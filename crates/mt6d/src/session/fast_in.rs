//! The receiving half of a session, one for each lane: data datagrams become inner packets
//! (docs/protocol.md, "Data"). What is not a packet is left to the session.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ipnet::Ipv6Net;
use wire::ecn::{self, Ecn};
use wire::flow;

use super::activity::{Activity, LaneActivity};
use super::contexts::{Pair, ReceiveContexts};
use super::seal::OpeningKey;
use crate::control::Control;
use crate::deliver::Deliver;
use crate::drops::DropReason;
use crate::id::{PeerId, SessionId};
use crate::received::Received;
use crate::routes::{Routes, RoutesGeneration, may_be_destination};
use crate::time::Time;

const IPV6_HEADER: usize = 40;
const IPV4_HEADER: usize = 20;

/// The receiving half of a session, of one lane. One thread uses it, as a rule: its locks are
/// taken once for all that came together.
pub(crate) struct Receiver {
    pub(crate) peer: PeerId,
    pub(crate) session: SessionId,
    pub(super) opening: Opening,
    pub(super) contexts: Arc<RwLock<ReceiveContexts>>,
    pub(super) remote_prefix: Ipv6Net,
    pub(super) activity: Arc<Activity>,
    pub(super) lane: Arc<LaneActivity>,
}

/// The key, and what goes with it.
pub(super) struct Opening(Mutex<(OpeningKey, Option<Admitted>)>);

impl Opening {
    pub(super) fn new(key: OpeningKey) -> Self {
        Opening(Mutex::new((key, None)))
    }
}

/// Addresses that were found good last, and by which routes: a packet thread may have others than the node for a while.
type Admitted = (RoutesGeneration, Pair);

/// Judges the addresses of inner packets: the source is behind the peer, the destination is one that may be.
struct Gate<'a> {
    receiver: &'a Receiver,
    routes: &'a Routes,
    contexts: &'a ReceiveContexts,
    admitted: &'a mut Option<Admitted>,
}

impl Receiver {
    /// Opens datagrams where they lie, and delivers the inner packets. Where the contents lie that are the session's
    /// business is added to `punted`: control messages, and everything while it is unproven.
    pub(crate) fn receive(
        &self,
        arena: &mut [u8],
        received: &Received,
        routes: &Routes,
        now: Time,
        deliver: &mut dyn Deliver,
        punted: &mut Vec<Range<usize>>,
    ) {
        let mut opening = self.opening.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (key, admitted) = &mut *opening;
        let contexts = self.contexts.read().unwrap_or_else(PoisonError::into_inner);
        let unproven = self.activity.unproven.load(Relaxed);
        let mut gate = Gate { receiver: self, routes, contexts: &contexts, admitted };
        let (mut opened, mut packets, mut bytes) = (false, 0, 0);
        for at in received.each() {
            let length = match key.open(&mut arena[at.clone()]) {
                Ok(length) => length,
                Err(reason) => {
                    self.activity.drops.count(reason);
                    continue;
                }
            };
            opened = true;
            let start = at.start + key.front();
            let inner = start..start + length;
            // Most of what comes, where there is a shape.
            if !unproven && Control::is_padding(&arena[inner.clone()]) {
                continue;
            }
            if unproven || arena.get(inner.start).is_some_and(|b| b >> 4 == 0) {
                punted.push(inner);
                continue;
            }
            match gate.packet(arena, inner, received.ecn, deliver) {
                Ok(length) => {
                    packets += 1;
                    bytes += length as u64;
                }
                Err(reason) => self.activity.drops.count(reason),
            }
        }
        if opened {
            self.activity.received(now);
            self.lane.received(now);
        }
        if packets > 0 {
            self.activity.delivered(packets, bytes, now);
        }
    }

    /// Delivers one inner packet that was opened before.
    pub(crate) fn packet(
        &self,
        arena: &mut [u8],
        at: Range<usize>,
        ecn: Ecn,
        routes: &Routes,
        now: Time,
        deliver: &mut dyn Deliver,
    ) -> Result<(), DropReason> {
        let contexts = self.contexts.read().unwrap_or_else(PoisonError::into_inner);
        let mut gate = Gate { receiver: self, routes, contexts: &contexts, admitted: &mut None };
        let length = gate.packet(arena, at, ecn, deliver)?;
        self.activity.delivered(1, length as u64, now);
        Ok(())
    }
}

impl Gate<'_> {
    /// Delivers an inner packet that lies at `at` in the arena. Its length.
    fn packet(
        &mut self,
        arena: &mut [u8],
        at: Range<usize>,
        outer_ecn: Ecn,
        deliver: &mut dyn Deliver,
    ) -> Result<usize, DropReason> {
        let inner = &mut arena[at.clone()];
        let mut rebuilt = [0; IPV6_HEADER];
        // The header, and where the rest of the packet begins within `inner`.
        let (header, rest): (&mut [u8], usize) = match inner.first().ok_or(DropReason::Malformed)? >> 4 {
            6 => (self.rebuild(inner, 0, 0, &mut rebuilt)?, 8),
            2 => {
                let context = inner.get(1..3).ok_or(DropReason::Malformed)?;
                let context = u16::from_be_bytes([context[0], context[1]]);
                (self.rebuild(inner, 3, context, &mut rebuilt)?, 3 + 8)
            }
            1 => {
                let header = inner.get_mut(3..3 + IPV6_HEADER).filter(|h| h[0] >> 4 == 6);
                (header.ok_or(DropReason::Malformed)?, 3 + IPV6_HEADER)
            }
            4 => {
                let length = usize::from(inner[0] & 15) * 4;
                if length < IPV4_HEADER {
                    return Err(DropReason::Malformed);
                }
                (inner.get_mut(..length).ok_or(DropReason::Malformed)?, length)
            }
            _ => return Err(DropReason::Malformed),
        };
        // Bytes after the stated length are padding.
        let length = if header[0] >> 4 == 6 {
            usize::from(u16::from_be_bytes([header[4], header[5]]))
        } else {
            let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
            total.checked_sub(header.len()).ok_or(DropReason::Malformed)?
        };
        let ecn = ecn::get(header).ok_or(DropReason::Malformed)?;
        let combined = ecn::decapsulate(outer_ecn, ecn).map_err(|_| DropReason::Congestion)?;
        ecn::set(header, combined);
        self.admit(header)?;
        let (header_length, mut head) = (header.len(), [0; 60]);
        head[..header_length].copy_from_slice(header);
        let rest = at.start + rest..at.start + rest + length;
        if rest.end > at.end {
            return Err(DropReason::Malformed);
        }
        deliver.packet(arena, &head[..header_length], rest);
        Ok(header_length + length)
    }

    /// The IPv6 header of a packet without addresses, whose first 8 bytes lie at `at`.
    fn rebuild<'a>(
        &self,
        inner: &[u8],
        at: usize,
        context: u16,
        out: &'a mut [u8; IPV6_HEADER],
    ) -> Result<&'a mut [u8], DropReason> {
        let fixed = inner.get(at..at + 8).ok_or(DropReason::Malformed)?;
        if fixed[0] >> 4 != 6 {
            return Err(DropReason::Malformed);
        }
        let pair = self.contexts.get(context).ok_or(DropReason::UnknownContext)?;
        out[..8].copy_from_slice(fixed);
        out[8..].copy_from_slice(pair);
        Ok(out)
    }

    /// Judges the addresses in a header; those of the packet before are known to be good.
    fn admit(&mut self, header: &[u8]) -> Result<(), DropReason> {
        let pair = || header[8..40].try_into().expect("32 bytes");
        let admitted: Option<Admitted> = (header[0] >> 4 == 6).then(|| (self.routes.generation(), pair()));
        if admitted.is_some() && admitted == *self.admitted {
            return Ok(());
        }
        let (source, destination) = flow::addresses(header).map_err(|_| DropReason::Malformed)?;
        if self.routes.peer(source) != Some(self.receiver.peer) {
            return Err(DropReason::SourceNotAllowed);
        }
        let hops = matches!(destination, IpAddr::V6(to) if self.receiver.remote_prefix.contains(&to));
        if hops || self.routes.in_hop_prefix(destination) || !may_be_destination(destination) {
            return Err(DropReason::DestinationNotAllowed);
        }
        *self.admitted = admitted;
        Ok(())
    }
}

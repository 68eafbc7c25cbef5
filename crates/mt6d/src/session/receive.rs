//! The way in: data datagrams become inner packets, control messages take effect.

use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;

use wire::ecn::{self, Ecn};
use wire::flow;

use super::contexts::{self, Pair};
use super::rekey::RekeyMessage;
use super::seal::COUNTER;
use super::{Phase, ReliableMessage, Session};
use crate::control::{Control, Decoded};
use crate::deliver::Deliver;
use crate::drops::DropReason;
use crate::host::Host;
use crate::outbox::Outbox;
use crate::time::Time;

const IPV6_HEADER: usize = 40;
const IPV4_HEADER: usize = 20;

/// Judges the addresses of an inner packet: source within the peer's prefixes, destination one that may be.
pub(crate) type Admission<'a> = &'a dyn Fn(IpAddr, IpAddr) -> Result<(), DropReason>;

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
}

/// A datagram on its way in.
pub(crate) struct Datagram<'a> {
    /// The buffer it lies in.
    pub(crate) arena: &'a mut [u8],
    /// Where.
    pub(crate) at: Range<usize>,
    pub(crate) lane: u8,
    pub(crate) generation: u32,
    /// The ECN codepoint of the outer packet.
    pub(crate) ecn: u8,
}

impl Session {
    /// Opens a datagram and does what it says; inner packets go to `deliver`.
    pub(crate) fn receive(
        &mut self,
        datagram: Datagram,
        admission: Admission,
        now: Time,
        host: &mut Host,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) -> Result<Incoming, DropReason> {
        let Datagram { arena, at, lane, generation, ecn } = datagram;
        let Some(keys) = self.generation(generation) else { return Err(DropReason::Stale) };
        let length = keys.lanes[usize::from(lane)].1.open(&mut arena[at.clone()])?;
        let inner = at.start + COUNTER..at.start + COUNTER + length;

        let first_proof = matches!(self.phase, Phase::Unconfirmed { .. });
        if first_proof {
            self.phase = Phase::Up;
            self.open_firewalls(now);
        }
        self.last_received = now;
        self.unanswered = None;
        let outcome = match arena.get(inner.start).filter(|_| !inner.is_empty()).map(|b| b >> 4) {
            Some(0) => self.control(&arena[inner], ecn, admission, now, host, outbox, deliver),
            Some(_) => self.packet(arena, inner, ecn, admission, now, deliver).map(|()| Incoming::Done),
            None => Err(DropReason::Malformed),
        };
        match outcome {
            Ok(Incoming::Done) if first_proof => Ok(Incoming::Established),
            Err(reason) if first_proof => {
                self.drops.count(reason);
                Ok(Incoming::Established)
            }
            outcome => outcome,
        }
    }

    /// Delivers an inner packet that lies at `at` in the arena.
    fn packet(
        &mut self,
        arena: &mut [u8],
        at: Range<usize>,
        outer_ecn: u8,
        admission: Admission,
        now: Time,
        deliver: &mut dyn Deliver,
    ) -> Result<(), DropReason> {
        let inner = &mut arena[at.clone()];
        let mut rebuilt = [0; IPV6_HEADER];
        // The header, and where the rest of the packet begins within `inner`.
        let (header, rest): (&mut [u8], usize) = match inner[0] >> 4 {
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
        let combined =
            ecn::decapsulate(Ecn::from_bits(outer_ecn), ecn).map_err(|_| DropReason::Congestion)?;
        ecn::set(header, combined);
        self.admit(header, admission)?;
        let (header_length, mut head) = (header.len(), [0; 60]);
        head[..header_length].copy_from_slice(header);
        let rest = at.start + rest..at.start + rest + length;
        if rest.end > at.end {
            return Err(DropReason::Malformed);
        }
        self.traffic.rx_packets += 1;
        self.traffic.rx_bytes += (header_length + length) as u64;
        self.last_inner = now;
        deliver.packet(arena, &head[..header_length], rest);
        Ok(())
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
        let pair = self.receive_contexts.get(context).ok_or(DropReason::UnknownContext)?;
        out[..8].copy_from_slice(fixed);
        out[8..].copy_from_slice(pair);
        Ok(out)
    }

    /// Judges the addresses in a header; those of the packet before are known to be good.
    fn admit(&mut self, header: &[u8], admission: Admission) -> Result<(), DropReason> {
        let pair: Option<Pair> = (header[0] >> 4 == 6).then(|| header[8..40].try_into().expect("32 bytes"));
        if pair.is_some() && pair == self.admitted {
            return Ok(());
        }
        let (source, destination) = flow::addresses(header).map_err(|_| DropReason::Malformed)?;
        admission(source, destination)?;
        self.admitted = pair;
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a control message may do anything that a datagram may")]
    fn control(
        &mut self,
        inner: &[u8],
        ecn: u8,
        admission: Admission,
        now: Time,
        host: &mut Host,
        outbox: &mut Outbox,
        deliver: &mut dyn Deliver,
    ) -> Result<Incoming, DropReason> {
        let Decoded::Message(id, message) = Control::decode(inner).ok_or(DropReason::Malformed)? else {
            return Ok(Incoming::Done);
        };
        let clock = self.clock.at(now);
        match message {
            Control::Padding | Control::Opener => {}
            Control::Confirm { clock: echo } => {
                if id == 0 || self.rekey_confirmed(id, now) {
                    self.send_control(id, &Control::Confirmed { echo, clock }, now, host, outbox);
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
                if self.receive_contexts.learn(context, retires, contexts::pair(source, destination)) {
                    self.send_control(id, &Control::ContextKnown { context }, now, host, outbox);
                }
            }
            Control::ContextKnown { context } => self.send_contexts.known(context),
            Control::Skip { lane, epoch } => {
                if let Some(lane) = self.lanes.get_mut(usize::from(lane)) {
                    lane.skip(epoch, clock, host);
                    self.send_control(id, &Control::Skipped, now, host, outbox);
                }
            }
            Control::Skipped => {
                self.answered_reliable(id, |m| matches!(m, ReliableMessage::Skip { .. }));
            }
            Control::MtuProbe { size } => {
                self.send_control(id, &Control::MtuProbed { size }, now, host, outbox);
            }
            Control::MtuProbed { size } => {
                self.path_mtu.probed(size, now);
                deliver.mtu_changed();
            }
            Control::RoundTrip { clock: echo } => {
                self.send_control(id, &Control::RoundTripAnswer { echo, clock }, now, host, outbox);
            }
            Control::RoundTripAnswer { echo, clock } => self.measured(echo, clock, now, false),
            Control::Close => return Ok(Incoming::Closed),
            Control::Half { part, bytes } => {
                let whole = self.reassembly.add(id, part, bytes, now);
                if let Some(mut whole) = whole.map_err(|()| DropReason::Reassembly)? {
                    if whole.first().is_none_or(|b| b >> 4 == 0) {
                        return Err(DropReason::Malformed);
                    }
                    let all = 0..whole.len();
                    let mut own = Own(deliver);
                    self.packet(&mut whole, all, ecn, admission, now, &mut own)?;
                }
            }
        }
        Ok(Incoming::Done)
    }

    /// A round trip was measured; the initiator follows the responder's clock.
    fn measured(&mut self, echo: i64, theirs: i64, now: Time, first: bool) {
        let Some(took) = self.round_trip.answered(echo, now) else { return };
        if self.initiated_by == self.role && took < Duration::from_secs(5) {
            self.clock.adjust(theirs, took, now, first);
        }
    }
}

/// Hands on packets that lie in memory of ours, not in the host's arena.
struct Own<'a>(&'a mut dyn Deliver);

impl Deliver for Own<'_> {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.0.own(&[header, &arena[rest]].concat());
    }

    fn own(&mut self, packet: &[u8]) {
        self.0.own(packet);
    }
}

/// Whether an address may be an inner packet's destination at all.
pub(crate) fn may_be_destination(address: IpAddr) -> bool {
    match address {
        IpAddr::V6(address) => {
            !(address.is_multicast()
                || address.is_unspecified()
                || address.is_loopback()
                || is_link_local(address))
        }
        IpAddr::V4(address) => {
            !(address.is_multicast()
                || address.is_unspecified()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_broadcast())
        }
    }
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.is_unicast_link_local()
}

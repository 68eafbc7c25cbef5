//! The way out: inner packets become data datagrams.

use std::net::IpAddr;

use wire::segment::Segmenter;
use wire::{ecn, flow, mss, virtio_net};

use super::contexts::{self, Form};
use super::path_mtu::BASE;
use super::seal::{self, COUNTER, TAG};
use super::{Phase, Session};
use crate::config::Padding;
use crate::control::{self, Control};
use crate::drops::DropReason;
use crate::host::{EndpointId, Host};
use crate::outbox::Outbox;
use crate::time::Time;

/// Outer headers: IPv6 and UDP.
const OUTER: usize = 48;
/// Sizes of outer packets that `padding = "buckets"` uses; above them, the path MTU.
const BUCKETS: [usize; 6] = [128, 256, 512, 768, 1024, 1280];
/// Control messages are padded by up to this much where sizes are not padded anyway.
const CONTROL_PADDING: u64 = 200;

/// Why an inner packet did not go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is larger than this, the inner MTU: its sender is to be told.
    TooBig(u16),
    /// For another reason.
    Drop(DropReason),
}

/// The largest inner packets that a path carries in one piece, or, for IPv6, at least [`BASE`] bytes in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerMtu {
    /// Of IPv6, in bytes.
    pub ipv6: u16,
    /// Of IPv4, in bytes: its addresses are not left out.
    pub ipv4: u16,
}

/// Where a datagram leaves from, and how long its inner part may be.
struct Way {
    endpoint: EndpointId,
    generation: u32,
    lane: u8,
    ecn: u8,
    room: usize,
}

/// The largest inner packet of this form that fits so many bytes in one piece.
fn whole_in(room: usize, form: Option<Form>) -> u16 {
    let packet = match form {
        None => room,
        Some(Form::Elided) => room + 32,
        // Before a pair has its context its packets may be split: what counts is what it will have.
        Some(_) => room + 32 - Form::Context(0).extra(),
    };
    packet as u16
}

impl Session {
    /// The inner MTU for packets of this form: what fits, but never less than IPv6 demands (then they are split).
    fn inner_mtu(&self, form: Option<Form>) -> u16 {
        let path = if self.path_mtu.settled() { self.path_mtu.get() } else { self.terms.mtu };
        Self::inner_mtu_of(path, form)
    }

    /// The same for some path MTU.
    fn inner_mtu_of(path: u16, form: Option<Form>) -> u16 {
        let whole = whole_in(usize::from(path) - OUTER - seal::OVERHEAD, form);
        if form.is_some() { whole.max(BASE) } else { whole }
    }

    /// The inner MTUs, as routes would have them.
    pub(crate) fn route_mtu(&self) -> InnerMtu {
        let form = if self.terms.stream.is_some() { Form::Elided } else { Form::Full };
        InnerMtu { ipv6: self.inner_mtu(Some(form)), ipv4: self.inner_mtu(None) }
    }

    /// Seals an inner packet or super-packet into `outbox`.
    pub(crate) fn send(
        &mut self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Time,
        host: &mut Host,
        outbox: &mut Outbox,
    ) -> Result<(), Refusal> {
        let drop = |reason| Err(Refusal::Drop(reason));
        let (Ok((source, destination)), Ok(hash)) = (flow::addresses(packet), flow::hash(packet)) else {
            return drop(DropReason::Malformed);
        };
        let form = match (source, destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let again = (self.round_trip.smoothed() * 2).max(std::time::Duration::from_millis(200));
                let pair = contexts::pair(source, destination);
                let (form, announcement) = self.send_contexts.form(&pair, now, again);
                if let Some((id, announcement)) = announcement {
                    self.send_control(id, &announcement, now, host, outbox);
                }
                Some(form)
            }
            _ => None,
        };
        let limit = self.inner_mtu(form);
        // A connection keeps the segment size that it begins with: what is known to fit, while that is being found out.
        // In whole blocks of the cipher: a broken last one costs more time than the bytes that it saves.
        let room = usize::from(self.path_mtu.get()) - OUTER - seal::OVERHEAD;
        let fits = whole_in(room - room % seal::BLOCK, form);
        let max_mss = if form.is_some() { mss::for_ipv6_mtu(fits) } else { mss::for_ipv4_mtu(fits) };
        mss::clamp(packet, max_mss, header.transport_checksum());

        let full = self.terms.padding == Padding::Full;
        let ecn = if full { ecn::Ecn::NotEct } else { ecn::get(packet).unwrap_or_default() };
        let lane = self.lane_for(hash);
        let Some((slot, endpoint)) = self.lanes[lane].current() else { return drop(DropReason::NoSession) };
        let way = Way { endpoint, generation: slot.generation, lane: lane as u8, ecn: ecn.bits(), room };

        let Ok(mut segmenter) = Segmenter::new(header, packet) else { return drop(DropReason::Malformed) };
        if segmenter.largest_segment() > usize::from(limit) {
            return Err(Refusal::TooBig(limit));
        }
        while let Some(segment) = segmenter.next() {
            self.traffic.tx_packets += 1;
            self.traffic.tx_bytes += segment.len() as u64;
            let sealed = self.send_segment(&way, form, segment.head, segment.payload, host, outbox);
            sealed.map_err(Refusal::Drop)?;
        }
        self.lane_sent[lane] = now;
        self.last_inner = now;
        self.sent(now);
        if self.unanswered.is_none() {
            self.unanswered = Some(now);
        }
        Ok(())
    }

    /// Lanes that have an endpoint share the flows; a flow keeps its lane.
    fn lane_for(&self, hash: u32) -> usize {
        let preferred = hash as usize % self.lanes.len();
        if self.lanes[preferred].ready() {
            return preferred;
        }
        self.lanes.iter().position(super::Lane::ready).unwrap_or(preferred)
    }

    pub(super) fn sent(&mut self, now: Time) {
        self.last_sent = now;
    }

    fn send_segment(
        &mut self,
        way: &Way,
        form: Option<Form>,
        head: &[u8],
        payload: &[u8],
        host: &mut Host,
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        // What stands in the place of an IPv6 packet's first 40 bytes.
        let mut prefix = [0; 3 + 8];
        let (prefix, head): (&[u8], &[u8]) = match form {
            None => (&[], head),
            Some(Form::Full) => {
                prefix[0] = 0x10;
                (&prefix[..3], head)
            }
            Some(form) => {
                let (fixed, rest) = head.split_at(8);
                let start = match form {
                    Form::Context(context) => {
                        prefix[0] = 0x20;
                        prefix[1..3].copy_from_slice(&context.to_be_bytes());
                        0
                    }
                    _ => 3,
                };
                prefix[3..].copy_from_slice(fixed);
                (&prefix[start..], &rest[32..])
            }
        };
        let length = prefix.len() + head.len() + payload.len();
        if length > way.room {
            return self.send_halves(way, [prefix, head, payload], host, outbox);
        }
        let padded = self.padded(length, way.room);
        self.seal(way, padded, outbox, |inner| {
            let (first, rest) = inner.split_at_mut(prefix.len());
            first.copy_from_slice(prefix);
            let (second, rest) = rest.split_at_mut(head.len());
            second.copy_from_slice(head);
            let (third, padding) = rest.split_at_mut(payload.len());
            third.copy_from_slice(payload);
            padding.fill(0);
        })
    }

    /// Sends an inner packet that does not fit in two halves.
    #[cold]
    fn send_halves(
        &mut self,
        way: &Way,
        parts: [&[u8]; 3],
        host: &mut Host,
        outbox: &mut Outbox,
    ) -> Result<(), DropReason> {
        let inner = parts.concat();
        let room = way.room - control::HEADER - 1;
        if inner.len() > 2 * room {
            return Err(DropReason::TooBig);
        }
        let id = host.random(0..=u64::from(u32::MAX)) as u32;
        let (first, second) = inner.split_at(inner.len().div_ceil(2));
        for (part, bytes) in [(0, first), (1, second)] {
            let half = Control::Half { part, bytes };
            let padded = self.padded(half.length(), way.room);
            self.seal(way, padded, outbox, |inner| {
                let length = half.encode(id, inner);
                inner[length..].fill(0);
            })?;
        }
        Ok(())
    }

    /// The length that an inner part of `length` bytes is padded to.
    fn padded(&self, length: usize, room: usize) -> usize {
        match self.terms.padding {
            Padding::None => length,
            Padding::Full => room.max(length),
            Padding::Buckets => BUCKETS
                .into_iter()
                .map(|outer| outer - OUTER - seal::OVERHEAD)
                .find(|bucket| *bucket >= length)
                .map_or(room, |bucket| bucket.min(room))
                .max(length),
        }
    }

    fn seal(
        &mut self,
        way: &Way,
        length: usize,
        outbox: &mut Outbox,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), DropReason> {
        let generation = self
            .generations
            .iter_mut()
            .find(|g| g.number == way.generation)
            .expect("keys outlive the endpoints that use them");
        let size = COUNTER + length + TAG;
        let datagram = outbox.datagram(way.endpoint, None, way.ecn, size);
        write(&mut datagram[COUNTER..COUNTER + length]);
        if generation.lanes[usize::from(way.lane)].0.seal(datagram) {
            return Ok(());
        }
        outbox.cancel_last(size);
        Err(DropReason::KeyExhausted)
    }

    /// Sends a control message on a lane that has an endpoint, padded as the policy asks.
    pub(super) fn send_control(
        &mut self,
        id: u32,
        message: &Control,
        now: Time,
        host: &mut Host,
        outbox: &mut Outbox,
    ) {
        self.send_on_any_lane(id, message, None, now, host, outbox);
    }

    /// The same, padded to an outer packet of `size` bytes.
    pub(super) fn send_control_sized(
        &mut self,
        id: u32,
        message: &Control,
        size: u16,
        now: Time,
        host: &mut Host,
        outbox: &mut Outbox,
    ) {
        self.send_on_any_lane(id, message, Some(size), now, host, outbox);
    }

    fn send_on_any_lane(
        &mut self,
        id: u32,
        message: &Control,
        size: Option<u16>,
        now: Time,
        host: &mut Host,
        outbox: &mut Outbox,
    ) {
        // The peer would take an answer for a sign that the session goes on.
        if matches!(self.phase, Phase::Retiring { .. }) {
            return;
        }
        let lane = self.lane_for(host.random(0..=u64::from(u8::MAX)) as u32);
        let Some((slot, endpoint)) = self.lanes[lane].current() else { return };
        let generation = slot.generation;
        self.lane_sent[lane] = now;
        self.sent(now);
        self.send_control_from(endpoint, generation, lane as u8, id, message, size, host, outbox);
    }

    /// Sends a control message from a certain endpoint.
    #[expect(clippy::too_many_arguments, reason = "where from, what, how large; each caller has them apart")]
    pub(super) fn send_control_from(
        &mut self,
        endpoint: EndpointId,
        generation: u32,
        lane: u8,
        id: u32,
        message: &Control,
        size: Option<u16>,
        host: &mut Host,
        outbox: &mut Outbox,
    ) {
        let room = usize::from(self.path_mtu.get()) - OUTER - seal::OVERHEAD;
        let length = match size {
            Some(size) => usize::from(size) - OUTER - seal::OVERHEAD,
            None if self.terms.padding == Padding::None => {
                (message.length() + host.random(0..=CONTROL_PADDING) as usize).min(room)
            }
            None => self.padded(message.length(), room),
        };
        let way = Way { endpoint, generation, lane, ecn: 0, room };
        let sealed = self.seal(&way, length.max(message.length()), outbox, |inner| {
            let length = message.encode(id, inner);
            inner[length..].fill(0);
        });
        match sealed {
            // What has a size of its own may be larger than the path takes.
            Ok(()) if size.is_some() => outbox.isolate_last(seal::OVERHEAD + length.max(message.length())),
            Ok(()) => {}
            Err(reason) => self.drops.count(reason),
        }
    }

    /// The size of a datagram of cover traffic, as an outer packet.
    pub(super) fn cover_size(&self, host: &mut Host) -> u16 {
        let path = usize::from(self.path_mtu.get());
        let size = match self.terms.padding {
            Padding::Full => path,
            Padding::Buckets => BUCKETS[host.random(0..=BUCKETS.len() as u64 - 1) as usize].min(path),
            Padding::None => host.random(BUCKETS[0] as u64..=path as u64) as usize,
        };
        size as u16
    }

    /// Whether a datagram of ours, of which an ICMPv6 error quotes the beginning, left not long ago.
    pub(crate) fn sent_recently(&mut self, lane: u8, generation: u32, quoted: &[u8]) -> bool {
        const RECENT: u32 = 1 << 16;
        let Some(generation) = self.generation(generation) else { return false };
        let sealing = &generation.lanes[usize::from(lane)].0;
        let used = sealing.used();
        sealing.counter_of(quoted).is_some_and(|c| c < used && used - c <= RECENT)
    }
}

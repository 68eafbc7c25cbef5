//! The sending half of a session: inner packets become data datagrams (docs/protocol.md, "Data").
//!
//! It decides nothing: which endpoints, keys and contexts are in use is the session's to say. So packet threads carry
//! with copies of it, and get another when something has changed.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ipnet::Ipv6Net;
use wire::ecn::{self, Ecn};
use wire::segment::Segmenter;
use wire::{flow, mss, virtio_net};

use super::activity::{Activity, LaneActivity};
use super::contexts::{self, Form, KnownContexts, Pair};
use super::lane::Tickets;
use super::path_mtu::BASE;
use super::seal::{self, SealingKey, TAG};
use crate::config::Padding;
use crate::control::{self, Control};
use crate::drops::DropReason;
use crate::id::EndpointId;
use crate::outbox::Outbox;
use crate::overhead;
use crate::time::Time;

/// Outer headers.
pub(super) const OUTER: usize = overhead::OUTER as usize;
/// What an IPv6 packet saves whose addresses are left out.
const ADDRESSES: usize = overhead::ADDRESSES as usize;
/// Sizes of outer packets that `padding = "buckets"` uses; above them, the path MTU.
pub(super) const BUCKETS: [usize; 6] = [128, 256, 512, 768, 1024, 1280];

/// Why an inner packet did not go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is larger than this, the inner MTU: its sender is to be told.
    TooBig(u16),
    /// For another reason.
    Drop(DropReason),
}

/// The largest inner packets that a path carries in one piece, or, for IPv6, at least 1280 bytes in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerMtu {
    /// Of IPv6, in bytes.
    pub ipv6: u16,
    /// Of IPv4, in bytes: its addresses are not left out.
    pub ipv4: u16,
    /// Of what travels with a mask, in bytes: all that the path carries.
    pub masked: u16,
}

/// Where the datagrams of a lane leave from.
#[derive(Clone)]
pub(super) struct LaneSender {
    /// When its time was over, if it is: then it is only used while no other works, and of those the last to die.
    pub(super) dead: Option<i64>,
    pub(super) endpoint: EndpointId,
    pub(super) key: Arc<SealingKey>,
    pub(super) activity: Arc<LaneActivity>,
    pub(super) tickets: Tickets,
}

impl LaneSender {
    /// Whether it is known to work: where nothing comes in, as behind a firewall that has not seen ours yet, nothing need
    /// arrive either.
    fn works(&self) -> bool {
        self.activity.heard() && self.key.used() < seal::SOFT_LIMIT
    }

    /// The best of its draws.
    fn draw(&self, seed: u64) -> u64 {
        let Tickets { count, salt } = self.tickets;
        let ticket = |n| mix(seed ^ salt.wrapping_add(u64::from(n)));
        (0..count).map(ticket).max().unwrap_or(0)
    }
}

/// Where the inner parts of datagrams go: sealed into the outbox, or to where they wait for their time.
pub(super) trait Place {
    /// How long one may be.
    fn room(&self) -> usize;

    /// Has one of `length` bytes written, or of more, the rest of which is padding.
    fn put(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> Result<(), DropReason>;

    /// With what was put last an inner packet of so many bytes is whole.
    fn whole(&mut self, length: usize);
}

/// The sending half of a session.
#[derive(Clone)]
pub(crate) struct Sender {
    /// Those that are alive, and those that were.
    pub(super) lanes: Vec<LaneSender>,
    pub(super) contexts: Arc<KnownContexts>,
    pub(super) padding: Padding,
    /// The largest outer packet that is known to arrive.
    pub(super) path_mtu: u16,
    /// What a datagram's payload has beside the inner packet, in bytes.
    pub(super) overhead: usize,
    /// The one that inner MTUs follow from: they do not go up and down while the path is being measured.
    pub(super) stated_mtu: u16,
    /// Where the peer hops: packets to there are outer ones.
    pub(super) remote_prefix: Ipv6Net,
    /// Packets of IPv6 may be as large as the path: they will travel without the tunnel, and until then in halves.
    pub(super) whole: bool,
    /// The same of those between these addresses, which travel with a mask, or did and will while a key changes.
    pub(super) masked: Vec<Pair>,
    pub(super) activity: Arc<Activity>,
}

/// For so long a flow keeps its lane, in microseconds.
const MOMENT: u64 = 125_000;

/// Where a datagram leaves from, and how long its inner part may be.
pub(super) struct Egress<'a> {
    pub(super) endpoint: EndpointId,
    pub(super) key: &'a SealingKey,
    pub(super) ecn: Ecn,
    pub(super) room: usize,
    pub(super) padding: Padding,
}

/// The longest inner part of a datagram on a path of this MTU, where the rest of its payload takes so many bytes.
pub(super) fn room(path_mtu: u16, overhead: usize) -> usize {
    usize::from(path_mtu) - OUTER - overhead
}

/// The largest inner packet of this form that fits so many bytes in one piece.
fn whole_in(room: usize, form: Option<Form>) -> u16 {
    let packet = match form {
        None => room,
        Some(Form::Elided) => room + ADDRESSES,
        // Before a pair has its context its packets may be split: what counts is what it will have.
        Some(_) => room + ADDRESSES - Form::Context(0).extra(),
    };
    packet as u16
}

/// The inner MTU for packets of this form: what fits, but never less than IPv6 demands (then they are split).
fn inner_mtu(path_mtu: u16, overhead: usize, form: Option<Form>) -> u16 {
    let whole = whole_in(room(path_mtu, overhead), form);
    if form.is_some() { whole.max(BASE) } else { whole }
}

impl Sender {
    /// Whether the other is a state of the same session.
    pub(crate) fn is_of_same_session(&self, other: &Sender) -> bool {
        Arc::ptr_eq(&self.activity, &other.activity)
    }

    /// Whether the other does just the same.
    pub(crate) fn is_same(&self, other: &Sender) -> bool {
        let endpoints = |s: &Sender| s.lanes.iter().map(|l| (l.endpoint, l.dead)).collect::<Vec<_>>();
        self.is_of_same_session(other)
            && Arc::ptr_eq(&self.contexts, &other.contexts)
            && (self.path_mtu, self.stated_mtu) == (other.path_mtu, other.stated_mtu)
            && endpoints(self) == endpoints(other)
    }

    /// Whether the peer may hop to this address.
    pub(crate) fn in_hop_prefix(&self, address: IpAddr) -> bool {
        matches!(address, IpAddr::V6(address) if self.remote_prefix.contains(&address))
    }

    /// Seals an inner packet or GSO packet into `outbox`. The address pair that went out in full, if it did: the
    /// session wants to know.
    pub(crate) fn send(
        &self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Time,
        outbox: &mut Outbox,
    ) -> Result<Option<Pair>, Refusal> {
        let Flow { hash, form, pair, whole } = self.prepare(header, packet, now)?;
        let full = self.padding == Padding::Full;
        let ecn = if full { Ecn::NotEct } else { ecn::get(packet).unwrap_or_default() };
        let Some(lane) = self.lane_for(hash, now) else {
            return Err(Refusal::Drop(DropReason::NoSession));
        };
        let (room, padding) = (room(self.path_mtu, self.overhead), self.padding);
        let egress = Egress { endpoint: lane.endpoint, key: &lane.key, ecn, room, padding };
        let mut sealed = Sealed { egress, outbox, packets: 0, bytes: 0, length: 0 };
        let result = self.segments(header, packet, form, whole, &mut sealed);
        self.activity.sent(sealed.packets, sealed.bytes, now);
        lane.activity.sent.set(now);
        if sealed.length > 0 {
            lane.activity.length.store(sealed.length as u32, Relaxed);
        }
        result.map(|()| pair)
    }

    /// The same, but what would be sealed goes to the place that there is for its flow.
    pub(super) fn put<P: Place>(
        &self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        now: Time,
        place: impl FnOnce(u32) -> P,
    ) -> Result<Option<Pair>, Refusal> {
        let Flow { hash, form, pair, whole } = self.prepare(header, packet, now)?;
        self.segments(header, packet, form, whole, &mut place(hash)).map(|()| pair)
    }

    /// Finds out what flow a packet is of and how it travels, and clamps the segment size that it may state.
    fn prepare(&self, header: &virtio_net::Header, packet: &mut [u8], now: Time) -> Result<Flow, Refusal> {
        let (Ok((source, destination)), Ok(hash)) = (flow::addresses(packet), flow::hash(packet)) else {
            return Err(Refusal::Drop(DropReason::Malformed));
        };
        let (form, pair, whole) = match (source, destination) {
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let pair = contexts::pair(source, destination);
                let form = self.contexts.form(&pair, now);
                let whole = self.whole || self.masked.contains(&pair);
                (Some(form), (form == Form::Full).then_some(pair), whole)
            }
            _ => (None, None, false),
        };
        // A connection keeps the segment size that it begins with: what is known to fit, while that is being found out.
        // In whole blocks of the cipher: a broken last one costs more time than the bytes that it saves.
        let room = room(self.path_mtu, self.overhead);
        let fits = match form {
            Some(_) if whole => self.path_mtu,
            form => whole_in(room - room % seal::BLOCK, form),
        };
        let max_mss = if form.is_some() { mss::for_ipv6_mtu(fits) } else { mss::for_ipv4_mtu(fits) };
        mss::clamp(packet, max_mss, header.transport_checksum());
        Ok(Flow { hash, form, pair, whole })
    }

    /// Puts each segment of a packet or GSO packet into its place, up to one that cannot be.
    fn segments(
        &self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        form: Option<Form>,
        whole: bool,
        place: &mut impl Place,
    ) -> Result<(), Refusal> {
        let limit = self.inner_mtu(form, whole);
        let Ok(mut segmenter) = Segmenter::new(header, packet) else {
            return Err(Refusal::Drop(DropReason::Malformed));
        };
        if segmenter.largest_segment() > usize::from(limit) {
            return Err(Refusal::TooBig(limit));
        }
        while let Some(segment) = segmenter.next() {
            self.segment(form, segment.head, segment.payload, place).map_err(Refusal::Drop)?;
            place.whole(segment.len());
        }
        Ok(())
    }

    /// The inner MTU for packets of this form, which may be as large as the path if they are `whole`.
    pub(super) fn inner_mtu(&self, form: Option<Form>, whole: bool) -> u16 {
        if whole && form.is_some() {
            self.stated_mtu
        } else {
            inner_mtu(self.stated_mtu, self.overhead, form)
        }
    }

    /// The lane that a flow travels on for a moment: lanes draw for it, the highest draw wins. So a burst is not torn
    /// apart, a lane is not a flow, and where one begins or ends no other goes on with what it carried.
    pub(super) fn lane_for(&self, flow: u32, now: Time) -> Option<&LaneSender> {
        // Flows change lanes at other instants.
        let moment = (now.micros() + u64::from(flow) % MOMENT) / MOMENT;
        let seed = u64::from(flow) << 32 ^ moment;
        self.lanes.iter().max_by_key(|lane| {
            let (works, draw) = (lane.works(), lane.draw(seed));
            match lane.dead {
                None if works => (3, 0, draw),
                Some(death) if works => (2, death, 0),
                None => (1, 0, draw),
                Some(_) => (0, 0, draw),
            }
        })
    }

    /// The lane that a control message travels on, by a number that was drawn. Where none that is alive is known to work it is
    /// one of those every other time: a peer that hears us on them has left the one that worked.
    pub(super) fn lane_for_control(&self, draw: u32, now: Time) -> Option<&LaneSender> {
        let best = self.lane_for(draw, now)?;
        let alive = self.lanes.iter().filter(|lane| lane.dead.is_none() && draw.is_multiple_of(2));
        let unproven = alive.max_by_key(|lane| lane.draw(draw.into()));
        best.dead.and(unproven).or(Some(best))
    }

    /// Puts one packet into its place.
    fn segment(
        &self,
        form: Option<Form>,
        head: &[u8],
        payload: &[u8],
        place: &mut impl Place,
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
        if length > place.room() {
            return self.halves([prefix, head, payload], place);
        }
        place.put(length, |inner| {
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
    fn halves(&self, parts: [&[u8]; 3], place: &mut impl Place) -> Result<(), DropReason> {
        let inner = parts.concat();
        let room = place.room() - control::HEADER - 1;
        if inner.len() > 2 * room {
            return Err(DropReason::TooBig);
        }
        let id = self.activity.next_half();
        let (first, second) = inner.split_at(inner.len().div_ceil(2));
        for (part, bytes) in [(0, first), (1, second)] {
            let half = Control::Half { part, bytes };
            place.put(half.length(), |inner| {
                let length = half.encode(id, inner);
                inner[length..].fill(0);
            })?;
        }
        Ok(())
    }
}

/// What is known of a packet before it is on its way.
struct Flow {
    hash: u32,
    form: Option<Form>,
    /// Its addresses, if they go out in full.
    pair: Option<Pair>,
    /// It may be as large as the path.
    whole: bool,
}

/// Datagrams that leave as soon as they are sealed, and what became of them.
struct Sealed<'a> {
    egress: Egress<'a>,
    outbox: &'a mut Outbox,
    packets: u64,
    bytes: u64,
    /// Of the last inner part.
    length: usize,
}

impl Place for Sealed<'_> {
    fn room(&self) -> usize {
        self.egress.room
    }

    fn put(&mut self, length: usize, write: impl FnOnce(&mut [u8])) -> Result<(), DropReason> {
        self.length = self.egress.padded(length);
        self.egress.seal(self.length, self.outbox, write)
    }

    fn whole(&mut self, length: usize) {
        self.packets += 1;
        self.bytes += length as u64;
    }
}

/// Spreads what differs in few bits over all (the finalizer of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Egress<'_> {
    /// The length that an inner part of `length` bytes is padded to.
    pub(super) fn padded(&self, length: usize) -> usize {
        match self.padding {
            Padding::None => length,
            Padding::Full => self.room.max(length),
            Padding::Buckets => BUCKETS
                .into_iter()
                .map(|outer| outer - OUTER - self.key.overhead())
                .find(|bucket| *bucket >= length)
                .map_or(self.room, |bucket| bucket.min(self.room))
                .max(length),
        }
    }

    /// Seals an inner part of `length` bytes, which `write` writes.
    pub(super) fn seal(
        &self,
        length: usize,
        outbox: &mut Outbox,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<(), DropReason> {
        let front = self.key.front();
        let size = front + length + TAG;
        let datagram = outbox.datagram(self.endpoint, None, self.ecn, size);
        write(&mut datagram[front..front + length]);
        if self.key.seal(datagram) {
            return Ok(());
        }
        outbox.cancel_last(size);
        Err(DropReason::KeyExhausted)
    }
}

//! What the protocol asks of its host: endpoints to open and close, and randomness that it was given.

use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::Ipv6Net;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use zeroize::Zeroizing;

use crate::event::{Change, PeerEvent};
use crate::id::{EndpointId, LaneId, PairingId, PeerId, SessionId};
use crate::key_log::KeyLog;
use crate::keys::PublicKey;
use crate::mask::{DrawnLane, Flow, MaskedLane};
use crate::tier::TierEpoch;

/// Events that wait for the host.
const EVENTS: usize = 4096;
/// Endpoints that were closed and are remembered: of some peers those of minutes, of hundreds those of seconds.
const CLOSED: usize = 1024;

/// What the host is to do. No action may be passed over, so the list is complete: one more is a breaking change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open a UDP socket on `local`; connected to `remote`, or unconnected for a rendezvous endpoint. To be answered
    /// with [`Node::opened`](crate::Node::opened) or [`Node::open_failed`](crate::Node::open_failed).
    Open {
        /// The endpoint's name.
        id: EndpointId,
        /// Where it is.
        local: SocketAddrV6,
        /// Who alone it hears and speaks to.
        remote: Option<SocketAddrV6>,
    },
    /// Close it. Not answered.
    Close {
        /// The endpoint's name.
        id: EndpointId,
    },
    /// Take packets that come with the outer addresses, and hand them on with the inner ones. Not answered, nor are those
    /// below.
    AddRewrite(Rewrite),
    /// No longer.
    RemoveRewrite(Rewrite),
    /// Give packets of the local host to the peer's host (`inner`, in this order) these addresses, and send them, where
    /// the host can do that; in place of those that it was told before. None: they are to come to the node.
    Replace {
        /// The true addresses.
        inner: (Ipv6Addr, Ipv6Addr),
        /// Those outside.
        outer: Option<(Ipv6Addr, Ipv6Addr)>,
    },
    /// Take masked packets that come by this lane, and hand them on as the flow's. Asked for before the lane's endpoint is. Not
    /// answered, nor are those below.
    AddMask(Box<MaskedLane>),
    /// No longer.
    RemoveMask {
        /// The lane.
        lane: Flow,
        /// What came by it.
        flow: Flow,
    },
    /// Mask packets of this flow and send them by one of these lanes, where the host can do that; in place of those that it was
    /// told before. None: they are to come to the node.
    Mask {
        /// The other tunnel, as it is inside.
        flow: Flow,
        /// From which one is to be drawn again every eighth of a second, each by its tickets.
        lanes: Vec<DrawnLane>,
    },
}

/// Addresses in the place of others (docs/protocol.md, "Replaced addresses"): on this side, and on the peer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rewrite {
    /// Of the hosts.
    pub inner: (Ipv6Addr, Ipv6Addr),
    /// Outside.
    pub outer: (Ipv6Addr, Ipv6Addr),
}

/// What an endpoint is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// First contact with a peer.
    Rendezvous(PairingId, TierEpoch),
    /// A session's lane.
    Data { session: SessionId, lane: LaneId },
}

/// What meetings ask of the node, as it concerns several peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// This peer is sought, and thirds are to be asked, as they were so often before.
    Sought(PeerId, u32),
    /// A peer wants to meet the one with this key.
    Asked { by: PeerId, key: PublicKey },
    /// A peer says where the one with this key is.
    Told { by: PeerId, key: PublicKey, place: Ipv6Net },
    /// It is certain where this peer is now, and that is news: whom it wants to meet may be told.
    Settled(PeerId),
}

struct Entry {
    serial: u32,
    used: Option<(PeerId, Purpose)>,
    local: (Ipv6Addr, u16),
}

/// The endpoints in use, the actions that wait for the host, and the random generator.
pub(crate) struct HostInterface {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Where the last were that were closed, the oldest first.
    closed: VecDeque<(Ipv6Addr, u16)>,
    actions: VecDeque<Action>,
    /// What the host may want to know, the oldest first.
    events: VecDeque<PeerEvent>,
    /// Taken by the node before it returns.
    meetings: VecDeque<Meeting>,
    next_session: SessionId,
    /// Only where secrets are to be logged.
    pub(crate) key_log: Option<KeyLog>,
    entropy: Entropy,
    rng: ChaCha20Rng,
}

/// Gives 32 bytes of the best randomness there is, others each time.
type Entropy = Box<dyn FnMut() -> [u8; 32] + Send>;

impl HostInterface {
    pub(crate) fn new(mut entropy: impl FnMut() -> [u8; 32] + Send + 'static) -> Self {
        let rng = ChaCha20Rng::from_seed(entropy());
        HostInterface {
            entries: Vec::new(),
            free: Vec::new(),
            closed: VecDeque::new(),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            meetings: VecDeque::new(),
            next_session: SessionId(0),
            key_log: None,
            entropy: Box::new(entropy),
            rng,
        }
    }

    /// Asks for an endpoint.
    pub(crate) fn open(
        &mut self,
        peer: PeerId,
        purpose: Purpose,
        local: SocketAddrV6,
        remote: Option<SocketAddrV6>,
    ) -> EndpointId {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { serial: 0, used: None, local: (Ipv6Addr::UNSPECIFIED, 0) });
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[slot as usize];
        entry.used = Some((peer, purpose));
        entry.local = (*local.ip(), local.port());
        let id = EndpointId { slot, serial: entry.serial };
        self.actions.push_back(Action::Open { id, local, remote });
        id
    }

    /// Gives an endpoint back.
    pub(crate) fn close(&mut self, id: EndpointId) {
        let entry = &mut self.entries[id.slot()];
        if entry.serial == id.serial && entry.used.take().is_some() {
            entry.serial = entry.serial.wrapping_add(1);
            self.free.push(id.slot);
            if self.closed.len() == CLOSED {
                self.closed.pop_front();
            }
            self.closed.push_back(entry.local);
            self.actions.push_back(Action::Close { id });
        }
    }

    /// Tells of a peer. Where the host does not take what it is told, the oldest makes room.
    pub(crate) fn tell(&mut self, peer: &str, change: Change) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(PeerEvent { peer: peer.to_owned(), change });
    }

    /// Has the node do something for a meeting.
    pub(crate) fn meet(&mut self, meeting: Meeting) {
        self.meetings.push_back(meeting);
    }

    /// What is to be done for meetings.
    pub(crate) fn next_meeting(&mut self) -> Option<Meeting> {
        self.meetings.pop_front()
    }

    /// What was told and not yet taken.
    pub(crate) fn next_event(&mut self) -> Option<PeerEvent> {
        self.events.pop_front()
    }

    /// Asks for something else.
    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// What an endpoint is for, unless it was closed.
    pub(crate) fn purpose(&self, id: EndpointId) -> Option<(PeerId, Purpose)> {
        self.entries.get(id.slot()).filter(|e| e.serial == id.serial)?.used
    }

    /// Whether one is there, or being opened.
    pub(crate) fn is_at(&self, local: SocketAddrV6) -> bool {
        let local = (*local.ip(), local.port());
        self.entries.iter().any(|entry| entry.used.is_some() && entry.local == local)
    }

    /// Whether one was there that was closed lately.
    pub(crate) fn was_at(&self, local: SocketAddrV6) -> bool {
        self.closed.contains(&(*local.ip(), local.port()))
    }

    /// How many endpoints are open or being opened.
    pub(crate) fn count(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    pub(crate) fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    pub(crate) fn new_session(&mut self) -> SessionId {
        self.next_session = SessionId(self.next_session.0.wrapping_add(1));
        self.next_session
    }

    /// The generator for keys and nonces, with entropy that it did not have before: a copy of this process's memory, as a
    /// snapshot of a machine is one, does not give the same. What it had stays in it, should the new be worth nothing.
    pub(crate) fn fresh(&mut self) -> &mut ChaCha20Rng {
        let mut seed = Zeroizing::new((self.entropy)());
        let mut old = Zeroizing::new([0; 32]);
        self.rng.fill_bytes(old.as_mut_slice());
        seed.iter_mut().zip(*old).for_each(|(new, old)| *new ^= old);
        self.rng = ChaCha20Rng::from_seed(*seed);
        &mut self.rng
    }

    /// A pause from a range, uniform.
    pub(crate) fn pause(&mut self, range: RangeInclusive<Duration>) -> Duration {
        let micros = |pause: &Duration| u64::try_from(pause.as_micros()).expect("pauses are short");
        Duration::from_micros(self.random(micros(range.start())..=micros(range.end())))
    }

    /// A pause from an exponential distribution that is cut off at four times its mean: between events that are so far apart,
    /// one tells nothing of when the next will be.
    pub(crate) fn exponential(&mut self, mean: Duration) -> Duration {
        const LONGEST: f64 = 4.0;
        let uniform = (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        mean.mul_f64(-(1.0 - uniform * (1.0 - (-LONGEST).exp())).ln())
    }

    /// A part of a pause: from half to all of it, uniform.
    pub(crate) fn half_or_more(&mut self) -> f64 {
        self.random(50..=100) as f64 / 100.0
    }

    /// A number from a range, near enough to uniform for sizes and pauses.
    pub(crate) fn random(&mut self, range: RangeInclusive<u64>) -> u64 {
        let span = range.end() - range.start() + 1;
        range.start() + self.rng.next_u64() % span
    }
}

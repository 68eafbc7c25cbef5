//! A shape: what leaves, and when, has nothing to do with what there is to carry (docs/protocol.md, "Shape").
//!
//! Each lane has [`Slots`] from its birth to its death. In each slot one datagram of [`SIZE`] leaves: a control message, a
//! packet out of the [`Queue`], or nothing but padding. What of these it is changes neither its size nor its time, nor those
//! of any other: `the_wire_is_the_same_whatever_is_carried` runs sessions with and without traffic and compares.

mod delays;
mod queue;
mod slots;

use std::collections::VecDeque;
use std::time::Duration;

use wire::ecn::Ecn;

use super::fast_out::{Egress, OUTER};
use super::{Phase, Session, seal};
use crate::births::mean_alive;
use crate::config::{Padding, Rate, Shape};
use crate::control::Control;
use crate::drops::DropReason;
use crate::env::Env;
use crate::host_interface::HostInterface;
use crate::id::LaneId;
use crate::time::Time;
use rand_chacha::rand_core::Rng;

pub use delays::Delay;
pub(super) use queue::{Queue, is_expedited};
use slots::Slots;

/// Size of all outer packets: what every path carries.
pub(crate) const SIZE: u16 = super::path_mtu::BASE;
/// What they have room for.
const ROOM: usize = SIZE as usize - OUTER - seal::OVERHEAD;
/// Control messages that may wait, of either kind; the oldest make room, since what matters is sent again.
const CONTROLS: usize = 64;
/// A lane whose endpoint was there in time begins at its birth, however late that is seen; another when it is there.
const LATE_BIRTH: Duration = Duration::from_millis(500);

/// What a session with a shape has.
pub(super) struct Shaping {
    rate: Rate,
    /// Mean time between two slots of a lane.
    gap: Duration,
    slots: Slots,
    pub(super) queue: Queue,
    /// Control messages: those that leave at times of the session's own, and those that leave because of what is carried.
    /// The former come first: what is measured with them, and so when lanes are born, has nothing to do with what is carried.
    controls: [VecDeque<Vec<u8>>; 2],
    datagrams: u64,
    padding: u64,
}

/// What a shape does, as the status shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShapeStatus {
    /// What was agreed on.
    pub shape: Shape,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Those that carried nothing.
    pub padding: u64,
    /// Datagrams that wait.
    pub waiting: usize,
    /// How long packets have waited for a slot within the last minute; none if none have.
    pub delay: Option<Delay>,
}

impl Shaping {
    /// As the terms want it; none if they want none.
    pub(super) fn new(shape: Shape, lanes: u8, now: Time, host: &mut HostInterface) -> Option<Self> {
        let Shape::Constant(rate) = shape else { return None };
        let mut seed = [0; 32];
        host.fresh().fill_bytes(&mut seed);
        // Of all lanes together, on average.
        let gap = u64::from(SIZE) * mean_alive(lanes) * 1_000 / u64::from(rate.bytes());
        Some(Shaping {
            rate,
            gap: Duration::from_micros(gap),
            slots: Slots::new(seed),
            queue: Queue::new(rate, now),
            controls: Default::default(),
            datagrams: 0,
            padding: 0,
        })
    }

    /// Keeps a control message until there is a slot.
    pub(super) fn control(&mut self, id: u32, message: &Control) {
        let is_of_traffic = matches!(message, Control::Context { .. } | Control::ContextKnown { .. });
        let controls = &mut self.controls[usize::from(is_of_traffic)];
        if controls.len() == CONTROLS {
            controls.pop_front();
        }
        let mut bytes = vec![0; message.length()];
        message.encode(id, &mut bytes);
        controls.push_back(bytes);
    }
}

impl Session {
    /// Whether all that is sent goes through a shape.
    pub(crate) fn is_shaped(&self) -> bool {
        self.shaping.is_some()
    }

    /// When [`Session::send_slots`] wants to be called.
    pub(crate) fn next_slot(&self) -> Option<Time> {
        self.shaping.as_ref()?.slots.deadline()
    }

    /// Brings the slots up to date with the lanes that are alive.
    pub(super) fn update_slots(&mut self, now: Time) {
        let (clock, sends) = (self.clock.at(now), self.may_send());
        let Session { shaping: Some(shaping), lanes, clock: session_clock, .. } = self else { return };
        let alive = |lane: LaneId| {
            let lane = lanes.get(lane).filter(|lane| lane.alive(clock));
            sends && lane.is_some_and(|lane| lane.endpoint().is_some())
        };
        shaping.slots.retain(alive);
        for lane in lanes.iter().map(|lane| lane.life).filter(|life| alive(life.lane)) {
            if shaping.slots.has(lane.lane) {
                continue;
            }
            let birth = session_clock.time_of(lane.birth);
            let birth = if lane.lane != LaneId::FIRST && now.since(birth) < LATE_BIRTH { birth } else { now };
            shaping.slots.add(lane.lane, birth, shaping.gap);
        }
    }

    /// Sends in all slots whose time has come.
    pub(crate) fn send_slots(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let (clock, confirming) = (self.clock.at(now), self.phase == Phase::Confirming);
        let Session { shaping: Some(shaping), lanes, activity, .. } = self else { return };
        let open = || lanes.iter().filter(|lane| lane.alive(clock) && lane.endpoint().is_some());
        let any_heard = open().any(|lane| lane.activity.heard());
        // A responder's firewall lets in what comes on the lane that its openers went out on.
        let first_only = confirming && open().any(|lane| lane.life.lane == LaneId::FIRST);
        while let Some(number) = shaping.slots.next(now) {
            let Some(lane) = open().find(|lane| lane.life.lane == number) else {
                shaping.slots.retain(|lane| lane != number);
                continue;
            };
            let Some(endpoint) = lane.endpoint() else { continue };
            let carries =
                if first_only { number == LaneId::FIRST } else { lane.activity.heard() || !any_heard };
            let control =
                if carries { shaping.controls.iter_mut().find_map(VecDeque::pop_front) } else { None };
            let packet = if carries && control.is_none() { shaping.queue.pop(now) } else { None };
            let egress =
                Egress { endpoint, key: &lane.sealing, ecn: Ecn::NotEct, room: ROOM, padding: Padding::Full };
            let sealed = egress.seal(ROOM, env.outbox, |inner| {
                let used = match (&control, &packet) {
                    (Some(control), _) => copy(control, inner),
                    (None, Some(packet)) => copy(packet.bytes(), inner),
                    (None, None) => Control::Padding.encode(0, inner),
                };
                inner[used..].fill(0);
            });
            if let Err(reason) = sealed {
                activity.drops.count(reason);
            }
            lane.activity.sent.set(now);
            activity.last_sent.set(now);
            shaping.datagrams += 1;
            shaping.padding += u64::from(control.is_none() && packet.is_none());
            if let Some(packet) = packet {
                if let Some(length) = packet.packet {
                    activity.sent(1, length as u64, now);
                }
                shaping.queue.give_back(packet);
            }
        }
        (0..shaping.queue.given_up()).for_each(|_| activity.drops.count(DropReason::ShapeFull));
    }

    /// What the shape does, if there is one.
    pub(crate) fn shape_status(&self, now: Time) -> Option<ShapeStatus> {
        let shaping = self.shaping.as_ref()?;
        Some(ShapeStatus {
            shape: Shape::Constant(shaping.rate),
            datagrams: shaping.datagrams,
            padding: shaping.padding,
            waiting: shaping.queue.len(),
            delay: shaping.queue.delays.last_minute(now),
        })
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> usize {
    to[..from.len()].copy_from_slice(from);
    from.len()
}

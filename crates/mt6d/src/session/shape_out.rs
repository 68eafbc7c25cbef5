//! The way out where there is a [shape](super::shape): what leaves in the slots.

use std::collections::VecDeque;
use std::time::Duration;

use wire::ecn::Ecn;

use super::fast_out::Egress;
use super::shape::{ROOM, ShapeStatus};
use super::{Phase, Session};
use crate::config::Padding;
use crate::control::Control;
use crate::drops::DropReason;
use crate::env::Env;
use crate::id::LaneId;
use crate::time::Time;

/// A lane whose endpoint was there in time begins at its birth, however late that is seen; another when it is there.
const LATE_BIRTH: Duration = Duration::from_millis(500);

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
        shaping.note_demand(now);
        let alive = |lane: LaneId| {
            let lane = lanes.get(lane).filter(|lane| lane.alive(clock));
            sends && lane.is_some_and(|lane| lane.endpoint().is_some())
        };
        shaping.slots.retain(alive);
        for lane in lanes.iter().map(|lane| lane.life).filter(|life| alive(life.lane)) {
            if shaping.slots.has(lane.lane) {
                continue;
            }
            let life = Duration::from_millis((lane.death - clock).max(0) as u64);
            let gap = shaping.gap(life, now);
            let birth = session_clock.time_of(lane.birth);
            let birth = if lane.lane != LaneId::FIRST && now.since(birth) < LATE_BIRTH { birth } else { now };
            shaping.slots.add(lane.lane, birth, gap);
        }
    }

    /// Sends in all slots whose time has come.
    pub(crate) fn send_slots(&mut self, env: &mut Env) {
        if !self.may_send() {
            return;
        }
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

    /// Nothing more leaves: what waits is given up.
    pub(super) fn end_slots(&mut self) {
        let Some(shaping) = &mut self.shaping else { return };
        shaping.slots.retain(|_| false);
        (0..shaping.queue.give_up()).for_each(|_| self.activity.drops.count(DropReason::ShapeFull));
    }

    /// What the shape does, if there is one.
    pub(crate) fn shape_status(&self, now: Time) -> Option<ShapeStatus> {
        Some(self.shaping.as_ref()?.status(now))
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> usize {
    to[..from.len()].copy_from_slice(from);
    from.len()
}

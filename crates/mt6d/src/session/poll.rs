//! What a session does when its time has come.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::control_out::Origin;
use super::lane::{Lane, Overlap, Slot, State};
use super::{CONFIRM_WITHIN, Common, DEAD_AFTER, Health, Phase, ReliableMessage, Session, TICK, rekey};
use crate::config::Padding;
use crate::control::Control;
use crate::endpoint;
use crate::env::Env;
use crate::host_interface::{HostInterface, Purpose};
use crate::id::{Epoch, LaneId};
use crate::kdf::Secret;
use crate::time::Time;

/// Data received and nothing sent for this long at most: padding is sent, so that the peer knows that we live.
const ANSWER_TRAFFIC_AFTER: Duration = Duration::from_secs(10);
/// Nothing received for this long: round trips are asked for often, so that one answer may be lost before the session seems
/// silent.
const ASK_AFTER: Duration = Duration::from_secs(9);
const ASK_OFTEN: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_millis(2500);
/// A session without inner traffic for this long ends.
const IDLE_AFTER: Duration = Duration::from_secs(180);
/// Traffic within this time keeps openers and probes going.
const BUSY_FOR: Duration = Duration::from_secs(60);
/// A stateful firewall forgets a flow after 30 s at the least.
const OPENER_AGAIN: Duration = Duration::from_secs(25);
/// The mean time between measurements of the round trip.
const ROUND_TRIP_EVERY: Duration = Duration::from_secs(10);
/// Cover traffic that is later than this is not caught up with.
const LATE: Duration = Duration::from_millis(100);
/// Openers that a responder sends before it is confirmed.
const OPENERS_UNCONFIRMED: u8 = 3;

/// Which part of the time that it may an end sends nothing, before it sends something just so that something is sent.
pub(super) fn quiet(host: &mut HostInterface) -> f64 {
    host.random(50..=100) as f64 / 100.0
}

impl Session {
    /// Does what is due. The outcome, and when to be called again.
    pub(crate) fn poll(&mut self, env: &mut Env) -> (Health, Time) {
        let now = env.now.boot;
        let over = match self.phase {
            Phase::Retiring { until } => now >= until,
            Phase::Responding | Phase::Unconfirmed { .. } | Phase::Confirming => {
                now.since(self.begun) >= CONFIRM_WITHIN
            }
            Phase::Up => {
                !self.kept() && now.since(self.activity.last_inner.get()) >= IDLE_AFTER
                    || now.since(self.keyed) >= rekey::hard_limit(&self.terms)
            }
        };
        if over {
            return (Health::Over, now);
        }
        let moves = self.rotations();
        self.poll_lanes(now, env.host);
        if self.rotations() != moves {
            self.path_mtu.moved(now, env.host);
        }
        self.send_openers(env);
        if matches!(self.phase, Phase::Up | Phase::Confirming) {
            self.send_due(env);
        }
        let mut health = Health::Good;
        if now >= self.next_tick {
            self.next_tick = now + env.host.pause(TICK);
            if self.phase == Phase::Up {
                self.keep_alive(env);
                if self.activity.unanswered().is_some_and(|since| now.since(since) >= DEAD_AFTER) {
                    health = Health::Silent;
                }
            }
        }
        self.forget_old_keys();
        self.update_sender();
        (health, self.deadline(now))
    }

    /// Whether the session goes on without traffic.
    fn kept(&self) -> bool {
        self.keepalive.is_some() || self.cover.is_some()
    }

    fn busy(&self, now: Time) -> bool {
        self.kept() || now.since(self.activity.last_inner.get()) < BUSY_FOR
    }

    pub(super) fn overlap(&self) -> Overlap {
        let rtt = self.round_trip.smoothed().as_millis() as i64;
        Overlap::new(self.schedule.interval_ms(), rtt)
    }

    fn deadline(&self, now: Time) -> Time {
        let now_ms = self.clock.at(now);
        let overlap = self.overlap();
        let lanes = self.lanes.iter().map(|l| self.clock.time_of(l.deadline(now_ms, overlap)));
        let phase = match self.phase {
            Phase::Retiring { until } => until,
            Phase::Up => self.path_mtu.deadline(),
            _ => self.begun + CONFIRM_WITHIN,
        };
        // What waits for the session to be one that may send is not due before.
        let due = self.reliable.iter().map(|r| r.next).chain(self.cover.map(|_| self.next_cover));
        let due = due.filter(|_| self.may_send());
        lanes.chain(due).fold(self.next_tick.min(phase), Time::min).max(now)
    }

    pub(super) fn poll_lanes(&mut self, now: Time, host: &mut HostInterface) {
        let now_ms = self.clock.at(now);
        let overlap = self.overlap();
        let retiring = matches!(self.phase, Phase::Retiring { .. });
        let Session { lanes, generations, terms, schedule, common: Common { peer, session, .. }, .. } = self;
        for lane in lanes {
            let id = lane.id;
            lane.poll(now_ms, overlap, schedule, host, |host, epoch, start| {
                let generation = generations
                    .iter()
                    .rfind(|g| g.from_epoch <= epoch)
                    .expect("the first holds from epoch 0");
                let at = |key: &Secret, prefix| endpoint::derive(key, prefix, epoch, id);
                let local = at(&generation.local_address, terms.local_prefix);
                let remote = at(&generation.remote_address, terms.remote_prefix);
                let purpose =
                    Purpose::Data { session: *session, lane: id, generation: generation.number, epoch };
                let opener = if epoch == Epoch::FIRST {
                    now_ms
                } else {
                    now_ms + host.random(overlap.before as u64 / 10..=overlap.before as u64 / 2) as i64
                };
                Slot {
                    epoch,
                    start,
                    generation: generation.number,
                    local,
                    remote,
                    state: State::Opening(host.open(*peer, purpose, local, Some(remote))),
                    opener: (!retiring).then_some(opener),
                }
            });
        }
    }

    /// Sends openers from all endpoints soon: a responder sends few before it knows that the peer is there.
    pub(super) fn open_firewalls(&mut self, now: Time) {
        let now_ms = self.clock.at(now);
        for slot in self.lanes.iter_mut().flat_map(Lane::slots_mut) {
            if matches!(slot.state, State::Open(_)) && slot.start <= now_ms {
                slot.opener = Some(now_ms);
            }
        }
    }

    /// Sends the openers that are due from endpoints whose epoch is yet to come, so that the path's stateful
    /// firewalls see the inside send first.
    fn send_openers(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let now_ms = self.clock.at(now);
        let wanted = self.busy(now);
        let mut due = Vec::new();
        for lane in &mut self.lanes {
            let lane_id = lane.id;
            for slot in lane.slots_mut().filter(|s| s.opener.is_some_and(|at| at <= now_ms)) {
                let State::Open(id) = slot.state else {
                    slot.opener = Some(now_ms + 10);
                    continue;
                };
                slot.opener = None;
                match &mut self.phase {
                    // From the first lane, which the initiator confirms on.
                    Phase::Unconfirmed { openers }
                        if lane_id == LaneId(0) && *openers < OPENERS_UNCONFIRMED =>
                    {
                        *openers += 1;
                        slot.opener = Some(now_ms + 300 * i64::from(*openers));
                    }
                    Phase::Up | Phase::Confirming if wanted => {}
                    Phase::Responding => {
                        slot.opener = Some(now_ms + 10);
                        continue;
                    }
                    _ => continue,
                }
                due.push(Origin { endpoint: id, lane: lane_id, generation: slot.generation });
            }
        }
        for origin in due {
            self.send_control_from(origin, 0, &Control::Opener, None, env);
        }
    }

    /// Repeats what was not answered, measures the path, rekeys, sends cover traffic.
    fn send_due(&mut self, env: &mut Env) {
        let now = env.now.boot;
        self.reliable.retain(|r| now < r.until);
        for index in 0..self.reliable.len() {
            if self.reliable[index].next > now || !self.may_send() {
                continue;
            }
            let clock = self.clock.at(now);
            let reliable = &mut self.reliable[index];
            reliable.next = now + env.host.pause(reliable.pause * 3 / 4..=reliable.pause * 5 / 4);
            reliable.pause = (reliable.pause * 3).min(Duration::from_secs(1)).max(reliable.pause);
            let id = reliable.id;
            // Taken out while it is sent: sending needs the whole session.
            let message = std::mem::replace(&mut reliable.message, ReliableMessage::Confirm);
            let control = match &message {
                ReliableMessage::Confirm => Control::Confirm { clock },
                ReliableMessage::RekeyFirst(noise) => Control::RekeyFirst(noise),
                ReliableMessage::Skip { lane, epoch } => Control::Skip { lane: *lane, epoch: *epoch },
            };
            if matches!(message, ReliableMessage::Confirm) {
                self.round_trip.asked(clock, now);
            }
            self.send_control(id, &control, env);
            self.reliable[index].message = message;
        }
        if self.phase == Phase::Up {
            self.probe_path(env);
        }
        while self.cover.is_some_and(|_| now >= self.next_cover) && self.may_send() {
            let pause = self.cover.expect("checked");
            self.next_cover =
                if now.since(self.next_cover) > LATE { now + pause } else { self.next_cover + pause };
            let size = self.cover_size(env.host);
            self.send_control_sized(0, &Control::Padding, size, env);
        }
    }

    fn probe_path(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let padded = self.terms.padding != Padding::None && self.busy(now);
        let large = || self.activity.take_large() || padded;
        let rtt = self.round_trip.smoothed();
        if let Some(size) = self.path_mtu.poll(now, rtt, large, env.host) {
            let id = self.new_id();
            self.send_control_sized(id, &Control::MtuProbe { size }, size, env);
        }
    }

    /// What liveness asks for, looked at about once a second. When what is sent is due is drawn.
    fn keep_alive(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let (received, sent) = (self.activity.last_received.get(), self.activity.last_sent.get());
        let owed = received > sent && now.since(sent) >= ANSWER_TRAFFIC_AFTER.mul_f64(self.quiet);
        let due = self.keepalive.is_some_and(|every| now.since(sent) >= every.mul_f64(self.quiet));
        if owed || due {
            self.send_control(0, &Control::Padding, env);
            self.quiet = quiet(env.host);
        }
        let unheard = self.activity.unanswered().is_some_and(|since| now.since(since) >= ASK_AFTER);
        if unheard && self.next_round_trip > now + *ASK_OFTEN.end() {
            self.next_round_trip = now + env.host.pause(ASK_OFTEN);
        }
        if now >= self.next_round_trip {
            self.next_round_trip = now
                + if unheard { env.host.pause(ASK_OFTEN) } else { env.host.exponential(ROUND_TRIP_EVERY) };
            if !self.busy(now) {
                return;
            }
            let id = self.new_id();
            let clock = self.clock.at(now);
            self.round_trip.asked(clock, now);
            self.send_control(id, &Control::RoundTrip { clock }, env);
            // Nothing else would tell that the peer of a session without inner traffic is gone.
            if self.kept() {
                self.activity.waits_for_answer(now);
            }
        }
        if self.busy(now) {
            for index in 0..self.lanes.len() {
                if now.since(self.activity.lane_sent[index].get()) < OPENER_AGAIN {
                    continue;
                }
                let lane = &self.lanes[index];
                if let Some((slot, endpoint)) = lane.current() {
                    let origin = Origin { endpoint, lane: lane.id, generation: slot.generation };
                    self.send_control_from(origin, 0, &Control::Opener, None, env);
                    self.activity.lane_sent[index].set(now);
                }
            }
        }
    }
}

//! What a session does when its time has come.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::fast_out::OUTER;
use super::health::BUSY_FOR;
use super::lane::Overlap;
use super::{CONFIRM_WITHIN, Health, Phase, ReliableMessage, Session, State, generation, rekey};
use crate::config::Padding;
use crate::control::Control;
use crate::env::Env;
use crate::event::Ending;
use crate::host_interface::HostInterface;
use crate::id::{EndpointId, LaneId};
use crate::kdf::wipe_stack;
use crate::time::Time;

/// A session without inner traffic for this long ends.
const IDLE_AFTER: Duration = Duration::from_secs(180);
/// A stateful firewall forgets a flow after 30 s at the least.
const OPENER_AGAIN: Duration = Duration::from_secs(25);
/// Openers that a responder sends before it is confirmed.
const OPENERS_UNCONFIRMED: u8 = 3;
/// Openers on a lane at most, while nothing is heard there.
const OPENERS: u8 = 4;
/// About so long after an opener comes the next, and the one after that as much later again; less where lanes live for
/// less than four seconds.
const OPENER_PAUSE: Duration = Duration::from_millis(250);
/// An end that has nothing else to send on a lane opens it within this time from its birth.
const LATEST_OPENER: Duration = Duration::from_secs(1);
/// Of an opener, as an outer packet: what any message takes.
const SMALLEST_OPENER: usize = 80;

impl Session {
    /// Does what is due. The outcome, and when to be called again.
    pub(crate) fn poll(&mut self, env: &mut Env) -> (Health, Time) {
        let now = env.now.boot;
        let over = match self.phase {
            Phase::Retiring { until } => now >= until,
            Phase::Responding | Phase::Unconfirmed { .. } | Phase::Confirming => {
                now.since(self.begun) >= CONFIRM_WITHIN
            }
            Phase::Up => self.ending(now).is_some(),
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
        if self.phase == Phase::Up && now >= self.liveness.next_tick {
            self.keep_alive(env);
            self.reopen(env);
            if self.seems_dead(now) {
                health = Health::Silent;
            }
        }
        self.forget_old_secrets();
        self.update_sender(now);
        self.update_slots(now);
        self.send_slots(env);
        (health, self.deadline(now))
    }

    /// Why a session that was up is over, if it is.
    pub(crate) fn ending(&self, now: Time) -> Option<Ending> {
        let idle = now.since(self.activity.last_inner.get()) >= IDLE_AFTER;
        let kept = self.kept() || now.since(self.liveness.asked) < BUSY_FOR;
        match self.phase {
            Phase::Up if now.since(self.keyed) >= rekey::hard_limit(&self.terms) => Some(Ending::Expired),
            Phase::Up if idle && !kept => Some(Ending::Idle),
            _ => None,
        }
    }

    pub(super) fn overlap(&self) -> Overlap {
        Overlap::new(self.round_trip.smoothed().as_millis() as i64)
    }

    fn deadline(&self, now: Time) -> Time {
        let now_ms = self.clock.at(now);
        let overlap = self.overlap();
        let lanes = self.clock.time_of(self.lanes.deadline(now_ms, overlap));
        let phase = match self.phase {
            Phase::Retiring { until } => until,
            Phase::Up => {
                let silent = self.silent_from().filter(|at| *at > now);
                let tick = silent.map_or(self.liveness.next_tick, |at| at.min(self.liveness.next_tick));
                self.path_mtu.deadline().min(tick)
            }
            _ => self.begun + CONFIRM_WITHIN,
        };
        // What waits for the session to be one that may send is not due before.
        let due = self.reliable.iter().map(|r| r.next).filter(|_| self.may_send());
        due.fold(phase.min(lanes), Time::min).max(now)
    }

    pub(super) fn poll_lanes(&mut self, now: Time, host: &mut HostInterface) {
        let (clock, overlap) = (self.clock.at(now), self.overlap());
        let retiring = matches!(self.phase, Phase::Retiring { .. });
        let spread = (self.terms.rotation / 8).min(LATEST_OPENER).as_millis() as u64;
        let needed = self.phase == Phase::Up && self.is_in_use(now);
        let Session { lanes, generations, terms, common, .. } = self;
        let mut made = false;
        lanes.poll(clock, overlap, needed, host, |host, life| {
            made = true;
            let mut lane = generation(generations, life.birth).lane(life, terms, common, host);
            let opener = match life.lane {
                LaneId::FIRST => clock,
                _ => life.birth.saturating_add(host.random(0..=spread) as i64),
            };
            lane.opener = (!retiring).then_some(opener);
            lane
        });
        if made {
            wipe_stack();
        }
    }

    /// Sends openers on all lanes soon: a responder sends few before it knows that the peer is there.
    pub(super) fn open_firewalls(&mut self, now: Time) {
        let clock = self.clock.at(now);
        for lane in self.lanes.iter_mut().filter(|lane| lane.alive(clock)) {
            lane.opener = Some(clock);
        }
    }

    /// Sends the openers that are due: a lane is of use to the peer once it has heard from us there, and the path's stateful
    /// firewalls must see the inside send.
    fn send_openers(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let clock = self.clock.at(now);
        let (wanted, shaped) = (self.is_in_use(now), self.is_shaped());
        let pause = (self.terms.rotation / 16).min(OPENER_PAUSE).as_millis() as u64;
        self.update_sender(now);
        let mut due = Vec::new();
        for lane in self.lanes.iter_mut().filter(|lane| lane.opener.is_some_and(|at| at <= clock)) {
            lane.opener = None;
            let Some(endpoint) = lane.endpoint() else {
                lane.opener = (lane.state != State::Failed).then_some(clock + 10);
                continue;
            };
            if !lane.alive(clock) {
                continue;
            }
            match &mut self.phase {
                // On the first lane, which the initiator confirms on.
                Phase::Unconfirmed { openers }
                    if lane.life.lane == LaneId::FIRST && *openers < OPENERS_UNCONFIRMED =>
                {
                    *openers += 1;
                    lane.opener = Some(clock + 300 * i64::from(*openers));
                }
                // What a shape sends does the same.
                Phase::Up | Phase::Confirming if shaped => continue,
                Phase::Up | Phase::Confirming if wanted => {
                    if lane.activity.answered() || lane.openers >= OPENERS {
                        continue;
                    }
                    lane.openers += 1;
                    let pause = u64::from(lane.openers) * pause;
                    lane.opener = Some(clock + env.host.random(pause / 2..=pause * 2) as i64);
                }
                Phase::Responding => {
                    lane.opener = Some(clock + 10);
                    continue;
                }
                _ => continue,
            }
            due.push(endpoint);
        }
        for endpoint in due {
            self.send_opener(endpoint, env);
        }
    }

    /// Sends an opener, of a size that data has: where there is any.
    fn send_opener(&mut self, endpoint: EndpointId, env: &mut Env) {
        let Some(lane) = self.sender.lanes.iter().find(|lane| lane.endpoint == endpoint).cloned() else {
            return;
        };
        let lengths = self.lanes.iter().map(|lane| lane.activity.length.load(Relaxed)).filter(|l| *l > 0);
        let lengths: Vec<u32> = lengths.collect();
        let size = (self.terms.padding == Padding::None && !lengths.is_empty()).then(|| {
            let length = lengths[env.host.random(0..=lengths.len() as u64 - 1) as usize] as usize;
            (length + OUTER + lane.key.overhead()).clamp(SMALLEST_OPENER, self.path_mtu.get().into()) as u16
        });
        self.send_control_on(&lane, 0, &Control::Opener, size, env);
    }

    /// Repeats what was not answered, measures the path, rekeys.
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

    /// An end that has nothing to send on a lane keeps it open in the path's stateful firewalls.
    fn reopen(&mut self, env: &mut Env) {
        let now = env.now.boot;
        if self.is_in_use(now) && !self.is_shaped() {
            let clock = self.clock.at(now);
            let (random, again) = (&mut *env.host, OPENER_AGAIN.as_secs());
            for lane in self.lanes.iter_mut().filter(|lane| lane.alive(clock) && lane.opener.is_none()) {
                let again = Duration::from_secs(random.random(again / 2..=again));
                if now.since(lane.activity.sent.get()) >= again {
                    lane.opener = Some(clock);
                    lane.openers = lane.openers.min(OPENERS - 1);
                }
            }
        }
    }
}

//! The way out, as far as it is the session's alone: control messages, and what is done about packets that need one.

use super::contexts::{Form, Pair};
use super::fast_out::LaneSender;
use super::fast_out::{self, Egress, OUTER};
use super::shape::is_expedited;
use super::{InnerMtu, Lane, Phase, Refusal, Session};
use crate::config::Padding;
use crate::control::Control;
use crate::env::Env;
use crate::id::LaneId;
use crate::time::Time;
use wire::ecn::Ecn;
use wire::virtio_net;

/// Control messages are padded by up to this much where sizes are not padded anyway.
const CONTROL_PADDING: u64 = 200;

impl Session {
    /// The inner MTUs, as routes would have them.
    pub(crate) fn route_mtu(&self) -> InnerMtu {
        let form = if self.terms.stream.is_some() { Form::Elided } else { Form::Full };
        let sender = &self.sender;
        InnerMtu {
            ipv6: sender.inner_mtu(Some(form), sender.whole),
            ipv4: sender.inner_mtu(None, false),
            masked: sender.inner_mtu(Some(form), sender.whole || !sender.masked.is_empty()),
        }
    }

    /// Seals an inner packet or GSO packet into `outbox`.
    pub(crate) fn send(
        &mut self,
        header: &virtio_net::Header,
        packet: &mut [u8],
        env: &mut Env,
    ) -> Result<(), Refusal> {
        let now = env.now.boot;
        let in_full = match &mut self.shaping {
            Some(shaping) => {
                let expedited = is_expedited(packet);
                let queue = &mut shaping.queue;
                self.sender.put(header, packet, now, move |flow| queue.of_flow(flow, expedited, now))?
            }
            None => self.sender.send(header, packet, now, env.outbox)?,
        };
        if let Some(pair) = in_full {
            self.sent_in_full(&pair, env);
        }
        Ok(())
    }

    /// A packet's addresses were sent in full: those that come often get a context.
    pub(crate) fn sent_in_full(&mut self, pair: &Pair, env: &mut Env) {
        let again = (self.round_trip.smoothed() * 2).max(std::time::Duration::from_millis(200));
        if let Some((id, announcement)) = self.send_contexts.sent_in_full(pair, env.now.boot, again) {
            if let (Some(log), Control::Context { context, source, destination, .. }) =
                (&mut env.host.key_log, &announcement)
            {
                log.context(self.common.label, self.common.role, *context, *source, *destination);
            }
            self.send_control(id, &announcement, env);
            self.pairs_changed();
        }
        self.update_sender(env.now.boot);
    }

    /// Brings the sending half up to date, after anything that may have changed what it uses.
    pub(super) fn update_sender(&mut self, now: Time) {
        let Session { sender, lanes, clock, .. } = self;
        let clock = clock.at(now);
        let dead = |lane: &Lane| Some(lane.life.death).filter(|death| *death <= clock);
        let usable = || lanes.usable(clock).map(|(lane, endpoint)| (endpoint, dead(lane)));
        if !sender.lanes.iter().map(|lane| (lane.endpoint, lane.dead)).eq(usable()) {
            sender.lanes.clear();
            sender.lanes.extend(lanes.usable(clock).map(|(lane, endpoint)| LaneSender {
                dead: dead(lane),
                endpoint,
                key: lane.sealing.clone(),
                activity: lane.activity.clone(),
                tickets: lane.tickets,
            }));
        }
        if !std::sync::Arc::ptr_eq(&self.sender.contexts, self.send_contexts.known_ones()) {
            self.sender.contexts = self.send_contexts.known_ones().clone();
        }
        (self.sender.path_mtu, self.sender.stated_mtu) = (self.path_mtu.get(), self.path_mtu.stated());
    }

    /// Sends a control message on a lane that has an endpoint, padded as the policy asks.
    pub(super) fn send_control(&mut self, id: u32, message: &Control, env: &mut Env) {
        self.send_on_any_lane(id, message, None, env);
    }

    /// Sends one that is sent again by itself where it was lost, if the session is confirmed; in a shape only if none waits for
    /// a slot.
    pub(crate) fn say(&mut self, message: &Control, env: &mut Env) {
        let waits = self.shaping.as_ref().is_some_and(|shaping| !shaping.controls[0].is_empty());
        if self.phase == Phase::Up && !waits {
            self.send_control(0, message, env);
        }
    }

    /// Says what the wall clock shows, which was set.
    pub(crate) fn say_wall_clock(&mut self, env: &mut Env) {
        let clock = self.clock.at(env.now.boot);
        let zero_unix_ms = env.now.unix_ms.saturating_add_signed(clock.saturating_neg());
        self.say(&Control::WallClock { zero_unix_ms }, env);
    }

    /// Sends a control message, padded to an outer packet of `size` bytes.
    pub(super) fn send_control_sized(&mut self, id: u32, message: &Control, size: u16, env: &mut Env) {
        self.send_on_any_lane(id, message, Some(size), env);
    }

    fn send_on_any_lane(&mut self, id: u32, message: &Control, size: Option<u16>, env: &mut Env) {
        // The peer would take an answer for a sign that the session goes on.
        if matches!(self.phase, Phase::Retiring { .. }) {
            return;
        }
        if let Some(shaping) = &mut self.shaping {
            return shaping.control(id, message);
        }
        let now = env.now.boot;
        self.update_sender(now);
        // A responder's firewall lets in what comes on the lane that its openers went out on.
        let first = self.lanes.get(LaneId::FIRST).and_then(Lane::endpoint);
        let first = first.filter(|_| self.phase == Phase::Confirming);
        let of_first = first.and_then(|id| self.sender.lanes.iter().find(|lane| lane.endpoint == id));
        let draw = env.host.random(0..=u64::from(u32::MAX)) as u32;
        let Some(lane) = of_first.or_else(|| self.sender.lane_for_control(draw, now)).cloned() else {
            return;
        };
        self.activity.last_sent.set(now);
        self.send_control_on(&lane, id, message, size, env);
    }

    /// Sends a control message on a certain lane.
    pub(super) fn send_control_on(
        &mut self,
        lane: &LaneSender,
        id: u32,
        message: &Control,
        size: Option<u16>,
        env: &mut Env,
    ) {
        lane.activity.sent.set(env.now.boot);
        let (room, padding) = (fast_out::room(self.path_mtu.get(), lane.key.overhead()), self.terms.padding);
        let egress = Egress { endpoint: lane.endpoint, key: &lane.key, ecn: Ecn::NotEct, room, padding };
        let length = match size {
            Some(size) => usize::from(size) - OUTER - lane.key.overhead(),
            None if padding == Padding::None => {
                (message.length() + env.host.random(0..=CONTROL_PADDING) as usize).min(egress.room)
            }
            None => egress.padded(message.length()),
        };
        let sealed = egress.seal(length.max(message.length()), env.outbox, |inner| {
            let length = message.encode(id, inner);
            inner[length..].fill(0);
        });
        match sealed {
            // What has a size of its own may be larger than the path takes.
            Ok(()) if size.is_some() => {
                env.outbox.isolate_last(lane.key.overhead() + length.max(message.length()));
            }
            Ok(()) => {}
            Err(reason) => self.activity.drops.count(reason),
        }
    }
}

//! Whether the peer is there: what is asked so that both ends know, and what follows from answers that do not come
//! (docs/protocol.md, "Liveness").

use std::ops::RangeInclusive;
use std::time::Duration;

use super::Session;
use super::liveness::{ANXIOUS_TICK, ROUND_TRIP_EVERY, TICK, UNHEARD};
use crate::control::Control;
use crate::env::Env;
use crate::event::Silence;
use crate::time::Time;

/// Traffic within this time keeps openers and probes going.
pub(super) const BUSY_FOR: Duration = Duration::from_secs(60);
/// Data received and nothing sent for this long at most: padding is sent, so that the peer knows that we live.
const ANSWER_TRAFFIC_AFTER: Duration = Duration::from_secs(10);
/// Unanswered for this long, or where somebody keeps the session nothing heard for this long: the peer is asked.
const ASK_AFTER: Duration = Duration::from_millis(100);
const ASK_KEPT_AFTER: Duration = Duration::from_millis(500);
/// A question that was not answered for this long, and two round trips, is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// A longer keepalive is for who counts bytes.
const WATCHFUL: Duration = Duration::from_secs(30);
/// A packet has crossed, the session has begun, the peer has said that it keeps it, or the operator wants to know: that holds
/// for this long.
const WATCHED_FOR: Duration = Duration::from_secs(10);
/// Whoever is heard has so much time to be heard again: a kept session has asked by then.
const GRACE: Duration = Duration::from_millis(1400);
/// An answer is overdue for this long, and three round trips, but for no more than the second: the peer is silent, five seconds
/// after it was heard last, unless there was no reason to ask. Five times it was asked meanwhile.
const SILENT_AFTER: RangeInclusive<Duration> = Duration::from_millis(3200)..=Duration::from_millis(3400);
/// With a shape: unless so many datagrams are missing at the lowest rate.
const MISSING: u32 = 8;
/// Silent for this long: the peer may be gone.
const DEAD_AFTER: Duration = Duration::from_secs(15);

impl Session {
    /// Which way nothing gets through, if there is one.
    pub(crate) fn silence(&self, now: Time) -> Option<Silence> {
        if self.silent_from().is_some_and(|from| now >= from) {
            return Some(Silence::NothingComes);
        }
        let told = self.liveness.unheard.is_some_and(|(_, again)| again);
        // An outage that is over has left questions, too; and in a shape they wait for long.
        let unanswered = !self.is_shaped()
            && self
                .liveness
                .question
                .zip(self.liveness.heard_since)
                .is_some_and(|(asked, heard)| now >= asked.max(heard) + GRACE + self.patience());
        (told || unanswered).then_some(Silence::NothingArrives)
    }

    /// Whether a peer does not hear us whose answer is overdue for this long. With a shape there are gaps.
    pub(super) fn is_unheard(&self, overdue: Duration) -> bool {
        overdue >= UNHEARD.max(self.gaps())
    }

    /// Whether the peer has been silent for so long that it is to be reached anew.
    pub(super) fn seems_dead(&self, now: Time) -> bool {
        self.unanswered_since().is_some_and(|since| now.since(since) >= DEAD_AFTER)
    }

    /// When it is silent, if nothing comes until then.
    pub(super) fn silent_from(&self) -> Option<Time> {
        Some(self.overdue_from()? + self.patience())
    }

    /// How long an answer may be overdue.
    fn patience(&self) -> Duration {
        let (shortest, longest) = SILENT_AFTER.into_inner();
        match &self.shaping {
            None => (self.round_trip.smoothed() * 3).clamp(shortest, longest),
            Some(_) => longest.max(self.gaps()),
        }
    }

    /// How long a shape may send nothing by chance, or because some was lost.
    fn gaps(&self) -> Duration {
        self.shaping.as_ref().map_or(Duration::ZERO, |shaping| shaping.longest_gap() * MISSING)
    }

    /// When the peer last answered a question in this session: until then both directions worked.
    pub(crate) fn last_answered(&self) -> Option<Time> {
        self.liveness.answered
    }

    /// When a sign of life is overdue, or will be.
    fn overdue_from(&self) -> Option<Time> {
        Some(self.unanswered_since()?.max(self.activity.last_received.get() + GRACE))
    }

    /// Since when the peer owes one. One with a shape always does.
    fn unanswered_since(&self) -> Option<Time> {
        match self.is_shaped() {
            true => Some(self.activity.last_received.get()),
            false => self.activity.unanswered(),
        }
    }

    /// From now on, for a while, the peer is asked whether it is there.
    pub(crate) fn watch(&mut self, now: Time) {
        self.liveness.watch = Some(now);
        (self.liveness.next_tick, self.liveness.next_round_trip) = (now, now);
    }

    /// Whether somebody wants to know at any time whether the other end is there.
    fn is_watched(&self, now: Time) -> bool {
        let lately = |at| now.since(at) < WATCHED_FOR;
        self.liveness.watch.is_some_and(lately)
            || lately(self.activity.last_inner.get())
            || self.keepalive.is_some_and(|every| every <= WATCHFUL)
    }

    /// What liveness asks for, looked at about once a second. When what is sent is due is drawn.
    pub(super) fn keep_alive(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let (received, sent) = (self.activity.last_received.get(), self.activity.last_sent.get());
        let quiet = self.liveness.quiet;
        let owed = received > sent && now.since(sent) >= ANSWER_TRAFFIC_AFTER.mul_f64(quiet);
        let due = self.keepalive.is_some_and(|every| now.since(sent) >= every.mul_f64(quiet));
        if owed || due {
            self.send_control(0, &Control::Padding, env);
            self.liveness.quiet = env.host.half_or_more();
        }
        let unanswered = match self.is_shaped() {
            // When that asks has nothing to do with what is carried.
            true => self.overdue_from().filter(|from| *from <= now),
            false => self.activity.unanswered(),
        };
        let again = ASK_AGAIN_AFTER.max(self.round_trip.smoothed() * 2);
        let asked = self.liveness.question.is_some_and(|question| now.since(question) >= again);
        let unheard = self.liveness.unheard.is_some() || asked && !self.is_shaped();
        let anxious = unheard || unanswered.is_some_and(|since| now.since(since) >= ASK_AFTER);
        // In a shape a question waits for its slot; another behind it would only hold others up.
        let anxious = anxious && self.shaping.as_ref().is_none_or(|shaping| shaping.controls[0].is_empty());
        let watched = !self.is_shaped() && self.is_watched(now) && now.since(received) >= ASK_KEPT_AFTER;
        let is_heard = now.since(received) < GRACE;
        self.liveness.heard_since = is_heard.then(|| self.liveness.heard_since.unwrap_or(now));
        let measured = now >= self.liveness.next_round_trip;
        if measured {
            self.liveness.next_round_trip = now + env.host.exponential(ROUND_TRIP_EVERY);
        }
        if anxious || watched || measured && (self.busy(now) || self.is_watched(now)) {
            self.ask(env);
        }
        let tick = if unheard || unanswered.is_some() { ANXIOUS_TICK } else { TICK };
        self.liveness.next_tick = now + env.host.pause(tick);
    }

    fn ask(&mut self, env: &mut Env) {
        let now = env.now.boot;
        let (id, clock) = (self.new_id(), self.clock.at(now));
        let overdue =
            self.overdue_from().map_or(0, |from| now.since(from).as_millis().try_into().unwrap_or(u32::MAX));
        let keeps = self.keepalive.is_some_and(|every| every <= WATCHFUL);
        self.round_trip.asked(clock, now);
        self.liveness.question.get_or_insert(now);
        self.send_control(id, &Control::RoundTrip { clock, overdue, keeps }, env);
        // Nothing else would tell that the peer of a session without inner traffic is gone.
        self.activity.waits_for_answer(now);
    }

    /// Whether the session goes on without traffic.
    pub(super) fn kept(&self) -> bool {
        self.keepalive.is_some() || self.is_shaped()
    }

    /// Whether either end has something to keep the path open for: on a lane that one end opens alone it hears nothing.
    pub(super) fn is_in_use(&self, now: Time) -> bool {
        self.busy(now) || now.since(self.liveness.asked) < BUSY_FOR
    }

    /// Whether this end does.
    pub(super) fn busy(&self, now: Time) -> bool {
        self.kept() || now.since(self.activity.last_inner.get()) < BUSY_FOR
    }
}

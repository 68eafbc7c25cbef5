//! Meeting a peer through a third that both have, or by what somebody else says of its place (docs/protocol.md, "Places that
//! others tell").
//!
//! Nothing that was told lasts: it is tried, at a bounded rate, and forgotten when there is a session. Only a handshake with the
//! peer's own key tells where it is.

use std::time::Duration;

use ipnet::Ipv6Net;

use super::Peer;
use crate::config::HOP_PREFIX_LENGTH;
use crate::contact::ATTEMPT;
use crate::control::Control;
use crate::env::Env;
use crate::event::PeerState;
use crate::host_interface::Meeting;
use crate::keys::PublicKey;
use crate::record::{Record, RecordError};
use crate::time::{Now, Time};

/// Who tries to reach a peer asks thirds after this time, again after a second some times, and then after pauses twice as long.
const FIRST_QUESTION: Duration = Duration::from_millis(300);
const QUESTIONS: u32 = 5;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Of those that a peer wants to meet so many are remembered, for so long.
const WISHES: usize = 64;
const WISHED_FOR: Duration = Duration::from_secs(120);
/// A try that waits for its answer is not given up earlier for a place that was told.
const UNDISTURBED: Duration = Duration::from_secs(1);
/// A place that was told comes before others for so long: of paths that lose, not each try gets there and back.
const FRESH_FOR: Duration = Duration::from_secs(60);

impl Peer {
    /// Has thirds asked where the peer is, when that is due. When to be called again.
    pub(super) fn poll_meeting(&mut self, env: &mut Env) -> Option<Time> {
        if self.config.meet_through.is_empty() {
            return None;
        }
        let is_heard = self.in_use().is_some() && !self.silent && env.now.boot >= self.wanted;
        if !self.attempts.active() || is_heard {
            (self.meeting.next, self.meeting.asked) = (None, 0);
            return None;
        }
        let now = env.now.boot;
        let next = *self.meeting.next.get_or_insert(now + FIRST_QUESTION);
        if now < next {
            return Some(next);
        }
        env.host.meet(Meeting::Sought(self.index, self.meeting.asked));
        let doublings = self.meeting.asked.saturating_sub(QUESTIONS - 1);
        let pause = Duration::from_secs(1u64 << doublings.min(5)).min(LONGEST_PAUSE);
        self.meeting.asked += 1;
        let next = now + env.host.pause(pause * 3 / 4..=pause * 5 / 4);
        self.meeting.next = Some(next);
        Some(next)
    }

    /// Somebody says that the peer hops here.
    pub(crate) fn told_place(&mut self, place: Ipv6Net, own: Ipv6Net, now: Time) {
        let is_sought = self.attempts.active() || self.state(now) != PeerState::Established;
        if is_sought && place != self.remote_prefix && may_be_place(place, own, self.config.hop_prefix) {
            self.meeting.told = Some((place, now + FRESH_FOR));
            self.next = now;
        }
    }

    /// A record that may be the peer's says where it hops: where that is.
    pub(crate) fn told_record(&mut self, text: &str, own: Ipv6Net, now: Now) -> Result<Ipv6Net, RecordError> {
        let newest = self.meeting.newest_record;
        let opened =
            self.pairings.iter().map(|pairing| Record::open(text, &pairing.keys, newest, now.unix_ms));
        // What one pair of keys opens is foreign to the others.
        let record = opened.reduce(|one, other| if one == Err(RecordError::Foreign) { other } else { one });
        let record = record.unwrap_or(Err(RecordError::Foreign))?;
        self.meeting.newest_record = record.unix_ms;
        self.told_place(record.place, own, now.boot);
        Ok(record.place)
    }

    /// Forgets what was told: there is a session.
    pub(super) fn met(&mut self) {
        (self.meeting.told, self.meeting.tried) = (None, 0);
    }

    /// Whether a place that was told is to be tried now, and where it is.
    pub(super) fn place_to_try(&mut self, now: Time) -> Option<Ipv6Net> {
        let (place, _) = self.meeting.told?;
        let rested = self.place_due().is_some_and(|at| at <= now);
        if !rested || !self.meeting.tries.take(now) {
            return None;
        }
        self.meeting.tried += 1;
        Some(place)
    }

    /// When it may be tried, as far as the try that is under way says.
    pub(super) fn place_due(&self) -> Option<Time> {
        let (place, fresh_until) = self.meeting.told?;
        if !self.attempts.active() || self.confirming() {
            return None;
        }
        let free = self.meeting.tries.free_from();
        let due = self.attempts.current.as_ref().map_or(free, |current| {
            let rest = if current.first.remote_prefix == place { ATTEMPT } else { UNDISTURBED };
            free.max(current.begun + rest)
        });
        Some(due).filter(|due| *due < fresh_until)
    }

    /// As the third: the peer wants to meet another. Whether that may be answered.
    pub(crate) fn wishes_to_meet(&mut self, other: PublicKey, now: Time) -> bool {
        self.meeting.wishes.retain(|(key, since)| *key != other && now.since(*since) < WISHED_FOR);
        if self.meeting.wishes.len() == WISHES {
            self.meeting.wishes.remove(0);
        }
        self.meeting.wishes.push((other, now));
        self.meeting.answers.take(now)
    }

    /// Whom it wants to meet.
    pub(crate) fn wishes(&self, now: Time) -> impl Iterator<Item = PublicKey> {
        let current = self.meeting.wishes.iter().filter(move |(_, since)| now.since(*since) < WISHED_FOR);
        current.map(|(key, _)| *key)
    }

    /// Where it hops for certain: where the session leads in which it is heard.
    pub(crate) fn certain_place(&self, now: Time) -> Option<Ipv6Net> {
        let used = &self.sessions[self.in_use()?];
        (self.state(now) == PeerState::Established).then_some(used.terms.remote_prefix)
    }

    /// Says something in the session in use, if there is one and nothing waits there.
    pub(crate) fn say(&mut self, message: &Control, env: &mut Env) {
        if let Some(session) = self.sending() {
            session.say(message, env);
        }
    }

    /// Says in the session in use that the wall clock was set.
    pub(crate) fn say_wall_clock(&mut self, env: &mut Env) {
        if let Some(session) = self.sending() {
            session.say_wall_clock(env);
        }
    }
}

/// Whether what somebody says may be a hopping prefix of a peer: not our own, not of a link, a group or a host, and of unique
/// local addresses (RFC 4193) only where the peer's configured one is, too.
fn may_be_place(place: Ipv6Net, own: Ipv6Net, configured: Ipv6Net) -> bool {
    let global = |prefix: Ipv6Net| prefix.network().segments()[0] & 0xe000 == 0x2000;
    let local = |prefix: Ipv6Net| prefix.network().is_unique_local();
    HOP_PREFIX_LENGTH.contains(&place.prefix_len())
        && place == place.trunc()
        && !own.contains(&place)
        && !place.contains(&own)
        && (global(place) || local(place) && local(configured))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_no_place_of_a_peer_is_refused() {
        let net = |text: &str| text.parse::<Ipv6Net>().unwrap();
        let (own, global, local) = (net("2001:db8:a1::/64"), net("2001:db8:b1::/64"), net("fd00:b1::/64"));
        for (place, configured, good) in [
            ("2001:db8:c1::/64", global, true),
            ("2001:db8:c1::/112", global, true),
            ("2001:db8:c1::/113", global, false),
            ("2001::/31", global, false),
            ("2001:db8:a1::/64", global, false),
            ("2001:db8:a1:0:8000::/65", global, false),
            ("2001:db8::/32", global, false),
            ("fe80::/64", global, false),
            ("ff02::/64", global, false),
            ("::/96", global, false),
            ("100::/64", global, false),
            ("fd00:1::/64", global, false),
            ("fd00:1::/64", local, true),
        ] {
            assert_eq!(may_be_place(net(place), own, configured), good, "{place}");
        }
    }
}

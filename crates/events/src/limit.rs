//! No peer that comes and goes fills the log, and none hides how it ended: of what happens to one thing, some events at once,
//! then one in a while, the newest.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use control::event::Event;

/// So many at once, and one more after each pause.
const AT_ONCE: u32 = 20;
const PAUSE: Duration = Duration::from_secs(30);
/// Things that are remembered. Where there are more, all begin anew but those of which something is held.
const REMEMBERED: usize = 10_000;

/// What was let through, and what is held, of each thing that something happens to.
#[derive(Default)]
pub(crate) struct Limits {
    seen: HashMap<(String, String), Seen>,
}

struct Seen {
    left: u32,
    since: Instant,
    /// The newest that did not pass, and how many before it did not either.
    held: Option<(Event, u64)>,
}

impl Limits {
    /// Whether it may pass. If not, it is held until its time comes, unless a newer one takes its place.
    pub(crate) fn may_pass(&mut self, event: &Event, now: Instant) -> bool {
        if self.seen.len() >= REMEMBERED {
            self.seen.retain(|_, seen| seen.held.is_some());
        }
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        let new = Seen { left: AT_ONCE, since: now, held: None };
        let seen = self.seen.entry(subject(event)).or_insert(new);
        // Nothing passes what is held.
        let left_out = seen.held.as_ref().map(|(_, left_out)| left_out + 1);
        let may_pass = left_out.is_none() && seen.takes_one(now);
        if !may_pass {
            seen.held = Some((event.clone(), left_out.unwrap_or(0)));
        }
        may_pass
    }

    /// All that is held, whether or not its time has come, with how many were left out before each.
    pub(crate) fn all(&mut self) -> Vec<(Event, u64)> {
        sorted(self.seen.values_mut().filter_map(|seen| seen.held.take()).collect())
    }

    /// Those of the held ones whose time has come, with how many were left out before them, and when the next one's comes.
    pub(crate) fn due(&mut self, now: Instant) -> (Vec<(Event, u64)>, Option<Instant>) {
        let (mut due, mut next) = (Vec::new(), None);
        for seen in self.seen.values_mut().filter(|seen| seen.held.is_some()) {
            if seen.takes_one(now) {
                due.extend(seen.held.take());
            } else {
                let at = seen.since + PAUSE;
                next = Some(next.map_or(at, |next: Instant| next.min(at)));
            }
        }
        (sorted(due), next)
    }
}

fn sorted(mut events: Vec<(Event, u64)>) -> Vec<(Event, u64)> {
    events.sort_by_key(|(event, _)| event.unix_ms);
    events
}

impl Seen {
    /// Whether one more may be told now; it counts then.
    fn takes_one(&mut self, now: Instant) -> bool {
        let pauses = (now.duration_since(self.since).as_secs() / PAUSE.as_secs()) as u32;
        self.left = self.left.saturating_add(pauses).min(AT_ONCE);
        self.since += PAUSE * pauses;
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

/// What it happens to, and of what kind that is. What follows each other is of one kind: held, none of it may be told after
/// what came later.
fn subject(event: &Event) -> (String, String) {
    let kind = match event.event.as_str() {
        "peer_trying" | "session_up" | "session_down" | "peer_silent" | "peer_heard" | "peer_unreachable" => {
            "session"
        }
        "uplink" | "lease_expired" => "uplink",
        "rules_restored" | "rules_lost" => "rules",
        "script_attached" | "script_detached" => "attached",
        other => other,
    };
    let field = |name| event.fields.get(name).map(ToString::to_string);
    let thing = event.peer.clone().or_else(|| ["uplink", "interface", "script"].into_iter().find_map(field));
    let thing =
        thing.unwrap_or_else(|| if kind == "problem" { event.message.clone() } else { String::new() });
    (kind.to_owned(), thing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, peer: &str) -> Event {
        Event {
            number: 0,
            time: String::new(),
            unix_ms: 0,
            priority: "info".to_owned(),
            event: kind.to_owned(),
            peer: Some(peer.to_owned()),
            reason: None,
            message: String::new(),
            fields: serde_json::Map::new(),
        }
    }

    #[test]
    fn some_at_once_then_one_in_a_while_and_what_was_left_out_is_counted() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let silent = event("peer_silent", "a");
        let passed = (0..50).filter(|_| limits.may_pass(&silent, start)).count();
        assert_eq!(passed, AT_ONCE as usize);
        assert!(limits.may_pass(&event("peer_silent", "b"), start), "another peer");
        assert!(limits.may_pass(&event("path_mtu", "a"), start), "another kind");
        assert_eq!(limits.due(start), (Vec::new(), Some(start + PAUSE)));
        assert_eq!(limits.due(start + PAUSE), (vec![(silent.clone(), 29)], None));
        assert!(!limits.may_pass(&silent, start + PAUSE));
        assert_eq!(limits.due(start + 2 * PAUSE), (vec![(silent.clone(), 0)], None));
        assert!(limits.may_pass(&silent, start + 3 * PAUSE));
    }

    #[test]
    fn the_last_word_is_what_is_so() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let (silent, heard) = (event("peer_silent", "a"), event("peer_heard", "a"));
        for _ in 0..100 {
            limits.may_pass(&silent, start);
            limits.may_pass(&heard, start);
        }
        // Held is what came last, and nothing passes it.
        assert!(!limits.may_pass(&silent, start + PAUSE));
        assert_eq!(limits.due(start + PAUSE).0, [(silent, 180)]);
        assert!(!limits.may_pass(&heard, start + PAUSE));
        assert_eq!(limits.all(), [(heard, 0)], "at the end of the program");
        assert_eq!(limits.due(start + 2 * PAUSE), (Vec::new(), None));
    }

    #[test]
    fn each_problem_and_each_interface_is_a_thing_of_its_own() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        for number in 0..100 {
            let mut problem = Event { peer: None, ..event("problem", "") };
            problem.message = number.to_string();
            assert!(limits.may_pass(&problem, start));
            let mut link = Event { peer: None, ..event("link", "") };
            link.fields.insert("interface".to_owned(), number.into());
            assert!(limits.may_pass(&link, start));
        }
    }

    #[test]
    fn no_number_of_things_takes_the_memory_and_none_loses_what_is_held() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let held = event("peer_silent", "held");
        assert_eq!((0..=AT_ONCE).filter(|_| limits.may_pass(&held, start)).count(), AT_ONCE as usize);
        for number in 0..3 * REMEMBERED {
            limits.may_pass(&event("name", &number.to_string()), start);
            assert!(limits.seen.len() <= REMEMBERED);
        }
        assert_eq!(limits.due(start + PAUSE).0, [(held, 0)]);
    }
}

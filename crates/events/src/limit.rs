//! No peer that comes and goes fills the log: of one kind and one peer, some events at once, then one in a while.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use control::event::Event;

/// So many at once, and one more after each pause.
const AT_ONCE: u32 = 10;
const PAUSE: Duration = Duration::from_secs(30);
/// Kinds and peers that are remembered. Where there are more, all begin anew.
const REMEMBERED: usize = 10_000;

/// What was let through, of each kind and peer.
#[derive(Default)]
pub(crate) struct Limits {
    seen: HashMap<(String, Option<String>), Seen>,
}

struct Seen {
    left: u32,
    since: Instant,
    left_out: u64,
}

impl Limits {
    /// Whether one may pass; if not, it is counted.
    pub(crate) fn may_pass(&mut self, event: &Event, now: Instant) -> bool {
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        let new = Seen { left: AT_ONCE, since: now, left_out: 0 };
        let seen = self.seen.entry(key(event)).or_insert(new);
        let pauses = (now.duration_since(seen.since).as_secs() / PAUSE.as_secs()) as u32;
        seen.left = seen.left.saturating_add(pauses).min(AT_ONCE);
        seen.since += PAUSE * pauses;
        match seen.left.checked_sub(1) {
            Some(left) => seen.left = left,
            None => {
                seen.left_out += 1;
                return false;
            }
        }
        true
    }

    /// How many of its kind were left out before it.
    pub(crate) fn take_left_out(&mut self, event: &Event) -> u64 {
        self.seen.get_mut(&key(event)).map_or(0, |seen| std::mem::take(&mut seen.left_out))
    }
}

fn key(event: &Event) -> (String, Option<String>) {
    (event.event.clone(), event.peer.clone())
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
        assert!(limits.may_pass(&event("session_up", "a"), start), "another kind");
        let later = start + PAUSE;
        assert!(limits.may_pass(&silent, later));
        assert_eq!(limits.take_left_out(&silent), 40);
        assert!(!limits.may_pass(&silent, later));
    }
}

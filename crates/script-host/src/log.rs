//! What scripts log, and their errors: the last lines of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::protocol::{LogLine, Logs};

/// Lines that are kept.
const LINES: usize = 1000;
/// Octets of a line.
const LENGTH: usize = 1000;

/// The log, for all threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Log(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<LogLine>,
    /// Number of the last line; the first has number 1.
    last: u64,
}

impl Log {
    /// Adds a line; a long one is cut.
    pub(super) fn add(&self, id: u32, text: &str) {
        let end = (0..=text.len().min(LENGTH)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let line = LogLine { unix_ms: unix_ms(), id, text: text[..end].to_owned() };
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.lines.len() == LINES {
            ring.lines.pop_front();
        }
        ring.lines.push_back(line);
        ring.last += 1;
    }

    /// The lines behind that of the number `after`.
    pub(super) fn after(&self, after: u64) -> Logs {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = ring.last.saturating_sub(after).min(ring.lines.len() as u64) as usize;
        let lines = ring.lines.iter().skip(ring.lines.len() - new).cloned().collect();
        Logs { lines, last: ring.last }
    }
}

/// The time, in milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let log = Log::default();
        assert_eq!(log.after(0).lines, []);
        for number in 1..=LINES + 2 {
            log.add(1, &number.to_string());
        }
        log.add(2, &"ä".repeat(LENGTH));
        let all = log.after(0);
        assert_eq!((all.lines.len(), all.last), (LINES, LINES as u64 + 3));
        assert_eq!(all.lines[0].text, "4");
        let new = log.after(all.last - 1);
        assert_eq!((new.lines.len(), new.lines[0].text.len()), (1, LENGTH));
        assert_eq!(log.after(all.last + 5).lines, [], "of an earlier host");
    }
}

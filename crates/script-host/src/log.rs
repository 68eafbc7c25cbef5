//! What scripts log, and their errors: the last lines of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use script::logged::{Logged, Scalar};
use serde_json::{Map, Value};

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
        self.add_line(id, text, Map::new());
    }

    /// Adds a line of a script, which may have fields.
    pub(super) fn add_logged(&self, id: u32, logged: &Logged) {
        let fields = logged.fields.iter().map(|(name, value)| (name.clone(), json(value)));
        self.add_line(id, &logged.to_string(), fields.collect());
    }

    fn add_line(&self, id: u32, text: &str, fields: Map<String, Value>) {
        let end = (0..=text.len().min(LENGTH)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        let line = LogLine { unix_ms: unix_ms(), id, text: text[..end].to_owned(), fields };
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

/// A value with the type that it has in the script; octets that are no text become U+FFFD.
fn json(value: &Scalar) -> Value {
    match value {
        Scalar::Nil => Value::Null,
        Scalar::Boolean(value) => (*value).into(),
        Scalar::Integer(number) => (*number).into(),
        // JSON has no infinite ones.
        Scalar::Float(number) if number.is_finite() => (*number).into(),
        other => other.to_string().into(),
    }
}

/// The time, in milliseconds since 1970.
pub(super) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    proptest! {
        /// Whatever a packet put into a line, it is one line of JSON, which has it with its type.
        #[test]
        fn a_line_is_json_whatever_is_in_it(
            words in prop::collection::vec(any::<u8>(), 0..300),
            octets in prop::collection::vec(prop_oneof![Just(b'"'), Just(b'\\'), Just(b'\n'), any::<u8>()], 0..600),
            number in any::<i64>(),
            float in any::<f64>(),
            truth in any::<bool>(),
        ) {
            let names = ["octets", "number", "float", "truth", "none"].map(str::to_owned);
            let values = vec![
                Scalar::Text(words),
                Scalar::Text(octets.clone()),
                Scalar::Integer(number),
                Scalar::Float(float),
                Scalar::Boolean(truth),
                Scalar::Nil,
            ];
            let log = Log::default();
            log.add_logged(7, &Logged::new(values, &names));
            let line = serde_json::to_string(&log.after(0).lines[0]).unwrap();
            prop_assert!(line.len() < 12_000 && !line.contains('\n'));
            let read: Value = serde_json::from_str(&line).unwrap();
            let fields = &read["fields"];
            prop_assert_eq!(fields["number"].as_i64(), Some(number));
            prop_assert_eq!(fields["truth"].as_bool(), Some(truth));
            prop_assert!(fields["none"].is_null() && fields.as_object().unwrap().len() == 4);
            prop_assert_eq!(fields["float"].is_number(), float.is_finite());
            let text = fields["octets"].as_str().unwrap();
            if octets.len() <= 255 {
                prop_assert_eq!(text, String::from_utf8_lossy(&octets));
            } else {
                let begins = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
                prop_assert!(String::from_utf8_lossy(&octets).starts_with(begins));
            }
            prop_assert_eq!(serde_json::from_str::<LogLine>(&line).unwrap().text, &*log.after(0).lines[0].text);
        }
    }
}

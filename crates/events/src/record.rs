//! A record of the log as an event.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use control::event::Event;
use serde_json::Value;
use tracing::Level;
use tracing::field::{Field, Visit};

/// The record as an event, with number 0. None if it has no name.
pub(crate) fn read(record: &tracing::Event<'_>) -> Option<Event> {
    let now = SystemTime::now();
    let mut event = Event {
        number: 0,
        time: humantime::format_rfc3339_millis(now).to_string(),
        unix_ms: now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
        priority: priority(*record.metadata().level()).to_owned(),
        event: String::new(),
        peer: None,
        reason: None,
        message: String::new(),
        fields: serde_json::Map::new(),
    };
    record.record(&mut Fields(&mut event));
    (!event.event.is_empty()).then_some(event)
}

fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        _ => "info",
    }
}

struct Fields<'e>(&'e mut Event);

impl Fields<'_> {
    fn put(&mut self, field: &Field, value: Value) {
        let text = || value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        match field.name() {
            "event" => self.0.event = text(),
            "message" => self.0.message = text(),
            "peer" => self.0.peer = Some(text()),
            "reason" => self.0.reason = Some(text()),
            name => drop(self.0.fields.insert(name.to_owned(), value)),
        }
    }
}

impl Visit for Fields<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

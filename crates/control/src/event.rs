//! What has happened: one document a line in `sidestep events --json`, the standard input of `on_event`. Field names are a
//! contract: fields may be added, none is renamed or removed.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number, in this run of the program; the next has the next.
    pub number: u64,
    /// When, as RFC 3339 has it, in UTC.
    pub time: String,
    /// The same, in milliseconds of Unix time.
    pub unix_ms: u64,
    /// `error`, `warning` or `info`.
    pub priority: String,
    /// What kind it is: one word, as [the manual](../../docs/operations.md#events) lists them.
    pub event: String,
    /// Whom it concerns, if it is a peer.
    #[serde(default)]
    pub peer: Option<String>,
    /// Why, in one word, where there is a reason.
    #[serde(default)]
    pub reason: Option<String>,
    /// One line for people.
    pub message: String,
    /// What else is known, by name.
    #[serde(default)]
    pub fields: Map<String, Value>,
}

/// The answer to [`Request::Events`](crate::Request::Events).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Events {
    /// Names this run: numbers begin anew with each.
    pub run: u64,
    /// The oldest first; those before are forgotten.
    pub events: Vec<Event>,
}

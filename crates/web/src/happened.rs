//! What has happened, of all that are asked: the last of it, for those who come later.

use std::collections::VecDeque;
use std::path::Path;

use control::Request;
use control::event::Events;
use serde_json::Value;

/// Events that are kept.
const KEPT: usize = 1_000;

/// Up to which event of which run somebody has told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    run: u64,
    last: u64,
}

/// Asks for what came since, as documents with their source.
pub(crate) fn ask(socket: &Path, source: &str, told: &mut Told) -> Result<Vec<Value>, control::Error> {
    let ask = |after| {
        let answer = control::ask(socket, &Request::Events { after })?;
        serde_json::from_value::<Events>(answer)
            .map_err(|error| control::Error::Malformed { path: socket.to_owned(), source: error })
    };
    let mut answer = ask(told.last)?;
    if answer.run != told.run && told.last > 0 {
        answer = ask(0)?;
    }
    let before = if answer.run == told.run { told.last } else { 0 };
    *told = Told { run: answer.run, last: answer.events.last().map_or(before, |event| event.number) };
    let with_source = |event| {
        let mut document = serde_json::to_value(event).unwrap_or_default();
        document["source"] = source.into();
        document
    };
    Ok(answer.events.into_iter().map(with_source).collect())
}

/// The last events, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Kept(VecDeque<Value>);

impl Kept {
    pub(crate) fn keep(&mut self, events: &[Value]) {
        self.0.extend(events.iter().cloned());
        let surplus = self.0.len().saturating_sub(KEPT);
        self.0.drain(..surplus);
        // Of several sources, in the order in which they happened.
        self.0.make_contiguous().sort_by_key(|event| event["unix_ms"].as_u64());
    }

    pub(crate) fn all(&self) -> Value {
        self.0.iter().cloned().collect()
    }
}

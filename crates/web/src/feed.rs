//! What is told to the browsers: everything once, then what changes.
//!
//! Each browser has a buffer of so many messages, which all share. One that does not read them is cut off: it comes back, and
//! gets everything again.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::patch;

/// Messages that may wait for a browser.
const WAITING: usize = 32;
/// Browsers that may listen.
const LISTENERS: usize = 64;

/// What was told, and to whom.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    told: Mutex<Told>,
    /// Somebody has come.
    came: Condvar,
}

#[derive(Debug, Default)]
struct Told {
    document: Value,
    listeners: Vec<Sender<Bytes>>,
}

impl Feed {
    /// Another browser: what it is to be told from now on, after everything so far, to which `more` is added. Nothing where
    /// there are too many.
    pub(crate) fn listen(&self, more: impl FnOnce(&Value) -> Value, now_ms: u64) -> Option<Receiver<Bytes>> {
        let mut told = self.told();
        told.listeners.retain(|listener| !listener.is_closed());
        if told.listeners.len() >= LISTENERS {
            return None;
        }
        let (sender, receiver) = channel(WAITING);
        let mut snapshot = more(&told.document);
        snapshot["at_ms"] = now_ms.into();
        snapshot["state"] = told.document.clone();
        sender.try_send(message("snapshot", &snapshot)).ok()?;
        told.listeners.push(sender);
        drop(told);
        self.came.notify_all();
        Some(receiver)
    }

    /// Tells how things are now: what has changed, if only that nothing has, so that a browser knows that it is heard.
    pub(crate) fn tell(&self, document: Value, now_ms: u64) {
        let mut told = self.told();
        let patch = patch::between(&told.document, &document).unwrap_or_else(|| json!({}));
        told.document = document;
        told.send(&message("patch", &json!({ "at_ms": now_ms, "patch": patch })));
    }

    /// Tells what has happened.
    pub(crate) fn tell_events(&self, events: &[Value]) {
        if !events.is_empty() {
            self.told().send(&message("events", &events.into()));
        }
    }

    /// Whether a browser listens.
    pub(crate) fn is_heard(&self) -> bool {
        self.told().listeners.iter().any(|listener| !listener.is_closed())
    }

    /// Waits, and no longer once another browser comes.
    pub(crate) fn pause(&self, time: Duration) {
        let told = self.told();
        drop(self.came.wait_timeout(told, time));
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Told {
    fn send(&mut self, message: &Bytes) {
        self.listeners.retain(|listener| listener.try_send(message.clone()).is_ok());
    }
}

/// A message of server-sent events. JSON has no line breaks but escaped ones.
fn message(event: &str, data: &Value) -> Bytes {
    Bytes::from(format!("event: {event}\ndata: {data}\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(receiver: &mut Receiver<Bytes>) -> String {
        String::from_utf8(receiver.try_recv().unwrap().to_vec()).unwrap()
    }

    #[test]
    fn everything_once_then_what_changes() {
        let feed = Feed::default();
        feed.tell(json!({"tunnels": {"a": {"rx": 1, "tx": 2}}}), 1);
        let mut browser = feed.listen(|_| json!({ "events": [] }), 2).unwrap();
        assert!(
            read(&mut browser)
                .starts_with("event: snapshot\ndata: {\"events\":[],\"at_ms\":2,\"state\":{\"tunnels\"")
        );
        feed.tell(json!({"tunnels": {"a": {"rx": 1, "tx": 3}}}), 3);
        let told = "event: patch\ndata: {\"at_ms\":3,\"patch\":{\"tunnels\":{\"a\":{\"tx\":3}}}}\n\n";
        assert_eq!(read(&mut browser), told);
        feed.tell_events(&[json!({"message": "two\nlines"})]);
        assert_eq!(read(&mut browser), "event: events\ndata: [{\"message\":\"two\\nlines\"}]\n\n");
    }

    #[test]
    fn a_browser_that_does_not_read_is_cut_off_and_others_are_not() {
        let feed = Feed::default();
        let mut stuck = feed.listen(|_| json!({}), 0).unwrap();
        let mut quick = feed.listen(|_| json!({}), 0).unwrap();
        read(&mut quick);
        for at in 0..2 * WAITING as u64 {
            feed.tell(json!({ "at": at }), at);
            read(&mut quick);
        }
        let mut waited = 0;
        while stuck.try_recv().is_ok() {
            waited += 1;
        }
        assert_eq!(waited, WAITING);
        assert!(stuck.is_closed() && !quick.is_closed());
    }

    #[test]
    fn there_are_only_so_many() {
        let feed = Feed::default();
        let mut all: Vec<_> = (0..LISTENERS).map(|_| feed.listen(|_| json!({}), 0).unwrap()).collect();
        assert!(feed.listen(|_| json!({}), 0).is_none());
        all.pop();
        assert!(feed.listen(|_| json!({}), 0).is_some());
    }
}

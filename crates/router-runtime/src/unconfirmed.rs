//! A change that is taken back unless somebody confirms it in time: one that locks its administrator out undoes itself.

use std::path::Path;
use std::time::{Duration, Instant};

use control::Reply;

/// Nobody waits longer.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

/// Why a configuration is not read again.
pub const AWAITS: &str =
    "a change awaits confirmation: run `sidestep confirm`, or wait until it is taken back";

/// What the log says of a configuration, read from this file, that nobody has confirmed.
pub fn taken_back(file: &Path) -> String {
    format!(
        "nobody has confirmed the configuration: the one from before is in force again. {} is not changed back: the next \
         reload or start will take what it has then",
        file.display()
    )
}

/// The change that waits, if one does, with what was before it; nothing was before the start of a daemon.
#[derive(Debug)]
pub struct Unconfirmed<T>(Option<Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    until: Instant,
    before: Option<T>,
}

impl<T> Unconfirmed<T> {
    /// A daemon starts, to be confirmed within this time, if any.
    #[must_use]
    pub fn start(confirm: Option<Duration>) -> Self {
        Unconfirmed(confirm.map(|time| Waiting::new(time, None)))
    }

    /// A change was made, to be confirmed within this time, if any.
    pub fn changed(&mut self, confirm: Option<Duration>, before: T) {
        self.0 = confirm.map(|time| Waiting::new(time, Some(before)));
    }

    /// Whether a change waits.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.0.is_some()
    }

    /// It stays.
    pub fn confirm(&mut self) -> Reply {
        match self.0.take() {
            Some(_) => Reply::Ok(serde_json::Value::Null),
            None => Reply::Error(
                "nothing awaits confirmation: the time is over, and the change is taken back, or there was none \
                 with --confirm"
                    .to_owned(),
            ),
        }
    }

    /// How long it waits yet.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        self.0.as_ref().map(|waiting| waiting.until.saturating_duration_since(Instant::now()))
    }

    /// What is to come back, once the time is over; within it, nothing.
    pub fn expired(&mut self) -> Option<Option<T>> {
        self.0.take_if(|waiting| waiting.until <= Instant::now()).map(|waiting| waiting.before)
    }
}

impl<T> Waiting<T> {
    fn new(time: Duration, before: Option<T>) -> Self {
        Waiting { until: Instant::now() + time.min(LONGEST), before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_stays_or_comes_back() {
        let mut start = Unconfirmed::<u8>::start(Some(Duration::MAX));
        assert!(start.waits() && start.left() > Some(Duration::from_secs(60)) && start.expired().is_none());
        assert!(matches!(start.confirm(), Reply::Ok(_)));
        assert!(!start.waits() && start.left().is_none());
        assert!(matches!(start.confirm(), Reply::Error(_)));

        start.changed(Some(Duration::ZERO), 7);
        assert_eq!(start.expired(), Some(Some(7)));
        assert_eq!(start.expired(), None, "once");
        start.changed(None, 8);
        assert!(!start.waits());
        assert_eq!(Unconfirmed::<u8>::start(Some(Duration::ZERO)).expired(), Some(None));
    }
}

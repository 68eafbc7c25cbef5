//! Who follows the events is told of the daemon's end, too.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use control::{Call, Reply, Request};

/// Who has asked twice within this asks every fifth of a second, and once more before the other is over.
const FOLLOWED: Duration = Duration::from_millis(600);
const LAST_WORD: Duration = Duration::from_millis(300);

/// When events were asked for last, and before that.
#[derive(Default)]
pub(super) struct Followers([Option<Instant>; 2]);

impl Followers {
    /// Somebody has asked.
    pub(super) fn ask(&mut self) {
        self.0 = [Some(Instant::now()), self.0[0]];
    }

    /// Whether somebody follows the events now.
    pub(super) fn are_there(&self) -> bool {
        self.0[1].is_some_and(|at| at.elapsed() < FOLLOWED)
    }
}

/// Answers them once more: what came last is among it. Their calls are among the messages.
pub(super) fn answer<M>(messages: &mpsc::Receiver<M>, call: impl Fn(M) -> Option<Call>) {
    let end = Instant::now() + LAST_WORD;
    while let Ok(message) = messages.recv_timeout(end.saturating_duration_since(Instant::now())) {
        if let Some(call) = call(message)
            && let Request::Events { after } = call.request
        {
            call.answer(Reply::of(&events::since(after)));
        }
    }
}

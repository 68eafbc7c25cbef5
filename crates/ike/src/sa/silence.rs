//! The other end does not answer, or somebody says that it knows nothing of this IKE SA (RFC 7296 §2.4).

use std::time::{Duration, Instant};

use super::{IkeSa, State, Task};
use crate::event::Event;
use crate::output::{Context, Output};

/// A request that was sent so often without an answer, over seven seconds, makes one doubt that the other end knows it.
const DOUBTED_AFTER: u32 = 4;
/// The same, where somebody says that the other end does not know it.
const DOUBTED_AFTER_HINT: u32 = 2;
/// Somebody who says that the other end knows a child no more makes this end ask, at most so often.
const BETWEEN_HINTS: Duration = Duration::from_secs(10);

impl IkeSa {
    /// Whether a request has not been answered so far.
    pub(crate) fn is_asking(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether the other end does not answer.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }

    /// Somebody says that the other end does not know one of the children: it is asked whether it is there, and nothing
    /// else comes of that.
    pub(crate) fn doubt_by_hint(&mut self, context: &mut Context<'_>) {
        let lately = |at: Instant| context.now.saturating_duration_since(at) < BETWEEN_HINTS;
        if self.in_flight.is_none() && self.tasks.is_empty() && !self.hinted_at.is_some_and(lately) {
            self.hinted_at = Some(context.now);
            self.ask(Task::Liveness, context);
        }
    }

    /// A request was sent again.
    pub(super) fn doubt_by_silence(&mut self, out: &mut Output) {
        self.doubt(DOUBTED_AFTER, out);
    }

    /// Somebody has answered that the other end does not know this IKE SA.
    pub(super) fn doubt_by_answer(&mut self, out: &mut Output) {
        self.doubt(DOUBTED_AFTER_HINT, out);
    }

    /// The host is told of it after so many tries.
    fn doubt(&mut self, tries: u32, out: &mut Output) {
        let unanswered = self.in_flight.as_ref().is_some_and(|flying| flying.tries >= tries);
        if unanswered
            && self.announced
            && self.state == State::Up
            && !std::mem::replace(&mut self.silent, true)
        {
            out.events.push_back(Event::Silent { ike: self.spi() });
        }
    }
}

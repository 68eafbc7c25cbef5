//! F-RTO (RFC 5682 §3.1): after a timeout, new data shows whether the old was lost or late. For connections without
//! timestamps, which tell that at once (RFC 3522).
//!
//! The timeout sends the first segment again and nothing else. If that is acknowledged, two new segments leave, and what is
//! acknowledged then decides: data that was not sent again had only been late.

use std::time::Instant;

use super::super::sequence::SequenceNumber;
use super::{Recovery, Sender};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// The acknowledgement of the segment that was sent again.
    First,
    /// The one after that.
    Second,
}

/// Segments of the window where the timeout turns out to be no mistake (RFC 5682 §2.1 step 3a).
const SEGMENTS_AFTER: usize = 3;

impl Sender {
    /// Whether a timeout is to be doubted: the first in a row, and there is new data to find out with.
    pub(super) fn may_doubt(&self) -> bool {
        self.sack
            && self.clock.is_none()
            && self.rtt.timeouts() == 1
            && self.unsent() > 0
            && self.window_room(self.next) >= 2 * self.mss()
    }

    /// An acknowledgement has come. `has_news`: of data from before the timeout that was not sent again. Returns whether
    /// the question is still open, in which case nothing else is to be taken for lost.
    pub(super) fn doubt(
        &mut self,
        now: Instant,
        ack: SequenceNumber,
        advanced: bool,
        has_news: bool,
    ) -> bool {
        let (Some(wait), Recovery::Timeout(point)) = (self.doubted, self.recovery) else {
            self.doubted = None;
            return false;
        };
        match wait {
            _ if ack >= point => {
                self.doubted = None;
                self.cubic.set_window(SEGMENTS_AFTER * self.mss());
            }
            Wait::First if advanced => {
                self.doubted = Some(Wait::Second);
                self.cubic.set_window(self.outstanding() + 2 * self.mss());
            }
            Wait::Second if has_news => {
                self.doubted = None;
                self.undo();
            }
            Wait::First | Wait::Second => {
                self.doubted = None;
                self.cubic.set_window(SEGMENTS_AFTER * self.mss());
                let path = self.path();
                self.rack.timed_out(now, &mut self.scoreboard, &path);
            }
        }
        self.doubted.is_some()
    }
}

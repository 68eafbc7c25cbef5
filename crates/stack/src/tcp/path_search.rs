//! The search for larger segments than those that are known to arrive: what is tried, and when (RFC 8899 §5).

use std::time::{Duration, Instant};

use super::sequence::SequenceNumber;

/// After so long larger segments are tried (PMTU_RAISE_TIMER, RFC 8899 §5.1.1).
pub(super) const RAISE_AFTER: Duration = Duration::from_secs(600);
/// Closer than this to what is known to be too large is as large as it gets.
const CLOSE_ENOUGH: usize = 32;

/// The search. Sizes are of segments, header included.
#[derive(Debug)]
pub(super) struct Search {
    /// What both ends and the path's known MTU allow.
    pub(super) ceiling: usize,
    /// What this search has found to be too large.
    pub(super) too_large: Option<usize>,
    /// When to try; `None`: once the time is known.
    pub(super) next: Option<Instant>,
    pub(super) probe: Option<Probe>,
    /// Probes of this size that were lost.
    pub(super) lost: u8,
}

/// A larger segment that is under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probe {
    pub(super) start: SequenceNumber,
    pub(super) end: SequenceNumber,
    pub(super) size: usize,
}

impl Search {
    pub(super) fn new(ceiling: usize) -> Self {
        Self { ceiling, too_large: None, next: None, probe: None, lost: 0 }
    }

    /// The size to try, above what is known to arrive: the largest first, which is right where a detour has ended, and then
    /// what is halfway to what was too large.
    pub(super) fn target(&self, known: usize) -> Option<usize> {
        let Some(too_large) = self.too_large else { return (self.ceiling > known).then_some(self.ceiling) };
        let size = known.midpoint(too_large.min(self.ceiling));
        (size >= known + CLOSE_ENOUGH).then_some(size)
    }

    /// The search is over for now.
    pub(super) fn wait(&mut self, now: Instant) {
        *self = Search { next: Some(now + RAISE_AFTER), ..Search::new(self.ceiling) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_8899_section_5_3_2_the_largest_is_tried_then_halves_until_they_are_close() {
        let mut search = Search::new(1460);
        assert_eq!(search.target(1200), Some(1460));
        search.too_large = Some(1460);
        assert_eq!(search.target(1200), Some(1330));
        assert_eq!(search.target(1330), Some(1395));
        assert_eq!(search.target(1395), Some(1427));
        assert_eq!(search.target(1427), None);
        assert_eq!(Search::new(1200).target(1200), None);
    }
}

//! The first of many points in time, without a look at each.

use std::time::Instant;

/// No later than the first of what was noted since the last look at all: some may have gone or moved away since. So a
/// table is looked at when something in it may be due, and once for nothing at most for each that was noted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Soonest(Option<Instant>);

impl Soonest {
    /// Of all that there is.
    pub(crate) fn of(all: impl Iterator<Item = Instant>) -> Self {
        Soonest(all.min())
    }

    /// Something new is due then.
    pub(crate) fn note(&mut self, at: Option<Instant>) {
        self.0 = self.0.into_iter().chain(at).min();
    }

    /// When to look.
    pub(crate) fn get(self) -> Option<Instant> {
        self.0
    }

    /// Whether to look now.
    pub(crate) fn is_due(self, now: Instant) -> bool {
        self.0.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_is_never_later_than_the_first() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let mut soonest = Soonest::of([after(9), after(7)].into_iter());
        soonest.note(Some(after(8)));
        soonest.note(None);
        assert_eq!(soonest.get(), Some(after(7)));
        soonest.note(Some(after(3)));
        assert!(soonest.is_due(after(3)) && !soonest.is_due(after(2)));
        assert!(!Soonest::default().is_due(after(1000)));
    }
}

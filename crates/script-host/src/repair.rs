//! Rules that somebody else has removed, as `nft flush ruleset` does, are put back: at once, and once a second at the most.

use std::time::{Duration, Instant};

use linux::ruleset::RulesetMonitor;

use super::rules::TABLE;

/// Whoever keeps removing rules keeps neither itself nor this host busy.
const PAUSE: Duration = Duration::from_secs(1);
/// How long until it is tried again where it has failed.
const AGAIN: Duration = Duration::from_secs(10);

/// When rules are looked at.
pub(super) struct Repair {
    monitor: RulesetMonitor,
    tables: [String; 1],
    due: Option<Instant>,
    last: Instant,
}

impl Repair {
    pub(super) fn new() -> linux::Result<Self> {
        let tables = [TABLE.to_owned()];
        Ok(Self { monitor: RulesetMonitor::open()?, tables, due: None, last: Instant::now() })
    }

    /// Tells of changes of tables of nftables.
    pub(super) const fn monitor(&self) -> &RulesetMonitor {
        &self.monitor
    }

    /// How long until rules are to be looked at.
    pub(super) fn wait(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Reads what has changed, which may have been by this host itself. Whether rules are to be looked at now.
    pub(super) fn is_due(&mut self) -> linux::Result<bool> {
        let now = Instant::now();
        if self.monitor.changed(&self.tables)? {
            self.due.get_or_insert((self.last + PAUSE).max(now));
        }
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            (self.due, self.last) = (None, now);
        }
        Ok(is_due)
    }

    /// Has them looked at again later.
    pub(super) fn again(&mut self) {
        self.due = Some(Instant::now() + AGAIN);
    }
}

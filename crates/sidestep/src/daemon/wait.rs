//! How the packet thread waits.

use std::time::{Duration, Instant};

use linux::event::{Events, Poller};

/// Waits for events; where they come in quick succession without going to sleep, if that is wanted. Falling asleep and
/// being woken takes longer than many a packet does.
pub(super) struct Wait {
    /// How long to look before sleeping; zero for not at all.
    spin: Duration,
    /// Whether the last wait was so short that looking pays.
    dense: bool,
}

impl Wait {
    pub(super) fn new(spin: Duration) -> Self {
        Wait { spin, dense: false }
    }

    /// Until there are events, or until the timeout if there is one.
    pub(super) fn wait(
        &mut self,
        poller: &Poller,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> linux::Result<()> {
        if self.spin.is_zero() || timeout.is_some_and(|timeout| timeout.is_zero()) {
            return poller.wait(events, timeout).map(drop);
        }
        let began = Instant::now();
        while self.dense && began.elapsed() < timeout.map_or(self.spin, |timeout| timeout.min(self.spin)) {
            if poller.wait(events, Some(Duration::ZERO))? > 0 {
                return Ok(());
            }
        }
        let came = poller.wait(events, timeout.map(|timeout| timeout.saturating_sub(began.elapsed())))?;
        self.dense = came > 0 && began.elapsed() <= self.spin;
        Ok(())
    }
}

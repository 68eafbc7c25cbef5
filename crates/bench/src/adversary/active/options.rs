//! What the active adversary is to do.

use std::time::Duration;

/// What is to be tried, and on what.
#[derive(Clone, Debug)]
pub(crate) struct ActiveOptions {
    /// Pairs of gateways that are attacked at the same time.
    pub(crate) pairs: u32,
    /// Tries of each kind, over all pairs.
    pub(crate) tries: u32,
    /// Beginnings of the names of kinds; all kinds, if there are none.
    pub(crate) kinds: Vec<String>,
    /// Rotation, lanes and padding of the pairs.
    pub(crate) rotation: String,
    pub(crate) lanes: u8,
    pub(crate) padding: String,
    /// What everything that is drawn is drawn from.
    pub(crate) seed: u64,
    /// Divides windows and pauses: 1, but for tests of the tool itself.
    pub(crate) scale: u32,
}

impl ActiveOptions {
    /// How long is looked on first, so that endpoints have expired.
    pub(super) fn settle(&self) -> Duration {
        Duration::from_secs(if self.scale > 1 { 3 } else { 30 })
    }
}

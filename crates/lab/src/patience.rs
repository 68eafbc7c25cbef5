//! Waiting, in tests, for what the kernel or another process brings about.

use std::time::{Duration, Instant};

/// Long for anything that is not measured, also on an emulated machine, where the first rule of nft loads a dozen modules.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// Waits until there is something.
///
/// # Panics
/// If there is nothing after a long time.
pub fn wait_for<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until something holds.
///
/// # Panics
/// If it does not after a long time.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

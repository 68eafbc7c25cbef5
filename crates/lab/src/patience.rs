//! Waiting, in tests, for what the kernel or another process brings about.

use std::time::{Duration, Instant};

use crate::scale::emulated;

/// Long for anything that is not measured. On an emulated machine the first rule of nft loads a dozen modules in ten seconds,
/// and scapy is not there before forty.
pub(crate) fn patience() -> Duration {
    Duration::from_secs(if emulated() { 120 } else { 40 })
}

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
        assert!(start.elapsed() < patience(), "not within {:?}: {what}", patience());
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

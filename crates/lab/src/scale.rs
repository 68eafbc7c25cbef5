//! How long tests last: `SIDESTEP_SCALE`.

/// `full` where `SIDESTEP_SCALE` is that, as in the full suite; else `quick`, a length that shows the property.
///
/// A test says both where it says how long, how many, or how often, so that a reader sees what the quick run leaves out.
pub fn scaled<T>(quick: T, full: T) -> T {
    match std::env::var("SIDESTEP_SCALE").as_deref() {
        Ok("full") => full,
        _ => quick,
    }
}

/// Whether this machine is emulated (`SIDESTEP_EMULATED`): it sends fewer packets, and needs more time, for the same checks.
pub fn emulated() -> bool {
    std::env::var_os("SIDESTEP_EMULATED").is_some()
}

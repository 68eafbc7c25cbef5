//! The clocks of the program.
//!
//! Sessions run on [`boottime_ms`], which never jumps and counts on through suspend; first contact and the user's
//! eyes want [`unix_ms`]; what BPF programs have written down is on [`monotonic_ms`].

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Milliseconds since boot, suspend included (CLOCK_BOOTTIME).
#[must_use]
pub fn boottime_ms() -> u64 {
    now(ClockId::CLOCK_BOOTTIME).as_millis() as u64
}

/// Microseconds since boot, suspend included (CLOCK_BOOTTIME).
#[must_use]
pub fn boottime_us() -> u64 {
    now(ClockId::CLOCK_BOOTTIME).as_micros() as u64
}

/// Milliseconds since boot, without those in suspend (CLOCK_MONOTONIC): the clock of BPF programs.
#[must_use]
pub fn monotonic_ms() -> u64 {
    now(ClockId::CLOCK_MONOTONIC).as_millis() as u64
}

/// Milliseconds since 1970 (CLOCK_REALTIME); 0 if the clock stands before that.
#[must_use]
pub fn unix_ms() -> u64 {
    now(ClockId::CLOCK_REALTIME).as_millis() as u64
}

/// Microseconds since 1970 (CLOCK_REALTIME); 0 if the clock stands before that.
#[must_use]
pub fn unix_us() -> u64 {
    now(ClockId::CLOCK_REALTIME).as_micros() as u64
}

/// What local time is ahead of UTC now, in minutes, by the time zone of this process (`TZ`, /etc/localtime).
#[must_use]
pub fn utc_offset_minutes() -> i32 {
    let now = i64::try_from(unix_ms() / 1000).unwrap_or(0);
    // SAFETY: all bytes zero are a valid `tm`: numbers, and a pointer that may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both point to variables of ours that live across the call, which keeps neither.
    let filled = unsafe { libc::localtime_r(&raw const now, &raw mut local) };
    if filled.is_null() { 0 } else { i32::try_from(local.tm_gmtoff / 60).unwrap_or(0) }
}

fn now(clock: ClockId) -> Duration {
    // These clocks exist on every kernel since 2.6.39, and the call has no other way to fail.
    let Ok(time) = clock_gettime(clock) else { return Duration::ZERO };
    match u64::try_from(time.tv_sec()) {
        Ok(seconds) => Duration::new(seconds, time.tv_nsec() as u32),
        Err(_) => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_time_is_within_a_day_of_utc() {
        // From -12:00 to +14:00, in steps of a quarter of an hour.
        assert!((-12 * 60..=14 * 60).contains(&utc_offset_minutes()) && utc_offset_minutes() % 15 == 0);
    }

    #[test]
    fn the_units_of_a_clock_agree() {
        let (ms, us) = (boottime_ms(), boottime_us());
        assert!(us / 1000 - ms < 1000);
        let (ms, us) = (unix_ms(), unix_us());
        assert!(us / 1000 - ms < 1000);
        assert!(ms > 1_600_000_000_000, "the machine's clock is not set");
    }
}

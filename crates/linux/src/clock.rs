//! The clocks of the program.
//!
//! Sessions run on [`boottime_ms`], which never jumps and counts on through suspend; first contact and the user's
//! eyes want [`unix_ms`]; what BPF programs have written down is on [`monotonic_ms`].

use std::path::Path;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::time::{ClockId, clock_gettime};

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

/// How far the kernel's own time zone is behind UTC, in minutes; 0 on most machines. `date -k` of small systems sets it when they
/// boot, and systemd where the machine's clock runs in local time. nftables' `meta day` goes by it, `meta hour` does not.
#[must_use]
pub fn kernel_minutes_behind_utc() -> i32 {
    // struct timezone: minutes west, and what nobody uses.
    let mut zone: [libc::c_int; 2] = [0; 2];
    let no_time = std::ptr::null_mut::<libc::timeval>();
    // Not by the C library, which leaves the zone out.
    // SAFETY: the kernel writes two numbers where `zone` has them, which lives across the call, and nothing at a null pointer.
    let result = unsafe { libc::syscall(libc::SYS_gettimeofday, no_time, zone.as_mut_ptr()) };
    if result == 0 { zone[0] } else { 0 }
}

/// Has this process, and programs that it starts, be in the time zone that only /etc/TZ tells, as on OpenWrt: the C library of
/// a static program does not look there. What `TZ` or /etc/localtime says counts more. Nothing is changed once there is another
/// thread, which could read the environment meanwhile.
pub fn adopt_time_zone() {
    let is_told = std::env::var_os("TZ").is_some() || Path::new("/etc/localtime").exists();
    let Some(zone) = std::fs::read_to_string("/etc/TZ").ok().filter(|_| !is_told) else { return };
    let zone = zone.trim();
    // The kernel grants this to a process with one thread alone, and it does nothing.
    let is_alone = || unshare(CloneFlags::CLONE_THREAD).is_ok();
    if !zone.is_empty() && zone.bytes().all(|byte| byte.is_ascii_graphic()) && is_alone() {
        // SAFETY: no other thread reads or changes the environment.
        unsafe { std::env::set_var("TZ", zone) };
    }
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
    fn the_kernels_time_zone_is_one() {
        assert!((-14 * 60..=12 * 60).contains(&kernel_minutes_behind_utc()));
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

//! The timers of a connection: at most one of each kind, kept as points in time.

use std::time::{Duration, Instant};

/// What is to happen then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Timer {
    /// SYN, data or FIN again (RFC 6298).
    Retransmission,
    /// RACK has waited for reordered segments, or a tail loss probe is due (RFC 8985).
    Probe,
    /// A zero-window probe (RFC 9293 §3.8.6.1).
    Persist,
    /// The delayed acknowledgement (RFC 9293 §3.8.6.3).
    DelayedAck,
    /// A keepalive probe (RFC 9293 §3.8.4).
    KeepAlive,
    /// The user's patience ends (RFC 9293 §3.8.3).
    UserTimeout,
    /// 2 MSL (RFC 9293 §3.6.1).
    TimeWait,
    /// Data that waits for its turn leaves.
    Pace,
    /// Empty buffers are given back.
    Release,
}

impl Timer {
    const ALL: [Timer; 9] = [
        Timer::UserTimeout,
        Timer::TimeWait,
        // Where both are due, the probe goes first, and the timeout begins anew (RFC 8985 §7.2).
        Timer::Probe,
        Timer::Retransmission,
        Timer::Persist,
        Timer::DelayedAck,
        Timer::KeepAlive,
        Timer::Pace,
        Timer::Release,
    ];
}

#[derive(Debug, Default)]
pub(super) struct Timers([Option<Instant>; Timer::ALL.len()]);

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Instant) {
        self.0[timer as usize] = Some(at);
    }

    /// Sets a timer by what the user has configured, which may be longer than time goes on: then it never fires.
    pub(super) fn set_after(&mut self, timer: Timer, start: Instant, wait: Duration) {
        self.0[timer as usize] = start.checked_add(wait);
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        self.0[timer as usize] = None;
    }

    pub(super) fn clear_all(&mut self) {
        *self = Self::default();
    }

    pub(super) fn get(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.get(timer).is_some()
    }

    /// When the first one is due.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.iter().flatten().min().copied()
    }

    /// A timer that is due, and is no longer set.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Timer> {
        let due = |timer: &Timer| self.get(*timer).is_some_and(|at| at <= now);
        let timer = Timer::ALL.into_iter().find(due)?;
        self.clear(timer);
        Some(timer)
    }
}

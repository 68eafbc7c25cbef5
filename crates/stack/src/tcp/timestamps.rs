//! Timestamps and protection against wrapped sequence numbers (RFC 7323 §§3-5).

use std::time::{Duration, Instant};

use wire::tcp::Timestamps;

use super::sequence::SequenceNumber;

/// A timestamp older than this says nothing: its clock may have wrapped (RFC 7323 §5.5).
const RECENT_FOR: Duration = Duration::from_secs(24 * 24 * 3600);

/// A clock of milliseconds that begins anywhere, so that it does not tell how long the host has been up
/// (RFC 7323 §7.1).
#[derive(Debug, Clone, Copy)]
pub(super) struct TimestampClock {
    pub(super) base: Instant,
    pub(super) offset: u32,
}

impl TimestampClock {
    pub(super) fn at(&self, now: Instant) -> u32 {
        let ms = now.saturating_duration_since(self.base).as_millis();
        self.offset.wrapping_add(ms as u32)
    }
}

/// Whether `a` is before `b` on the circle of timestamps.
pub(super) fn is_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// TS.Recent, on a connection that negotiated timestamps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recent {
    pub(super) value: u32,
    pub(super) since: Instant,
}

impl Recent {
    /// Whether a segment with these timestamps is from before one that has arrived (PAWS, RFC 7323 §5.3).
    pub(super) fn is_old(&self, now: Instant, timestamps: Timestamps) -> bool {
        is_before(timestamps.value, self.value) && now.saturating_duration_since(self.since) < RECENT_FOR
    }

    /// Takes the timestamp of an acceptable segment, if it spans what was acknowledged last (RFC 7323 §4.3).
    pub(super) fn update(
        &mut self,
        now: Instant,
        timestamps: Timestamps,
        sequence: SequenceNumber,
        last_ack_sent: SequenceNumber,
    ) {
        if sequence <= last_ack_sent && !self.is_old(now, timestamps) {
            *self = Self { value: timestamps.value, since: now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_7323_section_5_3_older_is_old_for_24_days() {
        let now = Instant::now();
        let recent = Recent { value: 5, since: now };
        let at = |value| Timestamps { value, echo: 0 };
        assert!(recent.is_old(now, at(u32::MAX)));
        assert!(!recent.is_old(now, at(5)) && !recent.is_old(now, at(6)));
        assert!(!recent.is_old(now + RECENT_FOR, at(4)));
    }
}

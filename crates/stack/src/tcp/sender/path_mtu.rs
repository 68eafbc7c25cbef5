//! How large segments may be (RFC 4821, RFC 8899): less when the path says so or full ones vanish, and after a while more
//! again, if a probe of that size arrives.
//!
//! A probe is a larger segment of data like other data. If it is lost, that says nothing of congestion: it is sent again in
//! segments that are known to arrive.

use std::time::{Duration, Instant};

use super::super::sequence::SequenceNumber;
use super::transmit::Packet;
use super::{LEAST_SEGMENT, Recovery, Sender};

/// After so long larger segments are tried (PMTU_RAISE_TIMER, RFC 8899 §5.1.1).
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// Probes of one size that are lost, until it is too large (MAX_PROBES, RFC 8899 §5.1.2).
const MAX_PROBES: u8 = 3;
/// Closer than this to what is known to be too large is as large as it gets.
const CLOSE_ENOUGH: usize = 32;

/// The search for larger segments.
#[derive(Debug)]
pub(super) struct Search {
    /// What both ends and the path's known MTU allow, header included.
    ceiling: usize,
    /// What was too large for the path at the last search.
    too_large: Option<usize>,
    /// When to try; `None`: once the time is known.
    next: Option<Instant>,
    probe: Option<Probe>,
    lost: u8,
}

#[derive(Debug, Clone, Copy)]
struct Probe {
    start: SequenceNumber,
    end: SequenceNumber,
    /// Of the segment, header included.
    size: usize,
}

impl Search {
    pub(super) fn new(ceiling: usize) -> Self {
        Self { ceiling, too_large: None, next: None, probe: None, lost: 0 }
    }

    /// The size to try: the largest first, which is right where a detour has ended.
    fn target(&self, known: usize) -> Option<usize> {
        let size = match self.too_large {
            Some(bound) => known.midpoint(bound.min(self.ceiling)),
            None => self.ceiling,
        };
        (size >= known + CLOSE_ENOUGH || self.too_large.is_none() && size > known).then_some(size)
    }

    fn wait(&mut self, now: Instant) {
        *self = Search { next: Some(now + RAISE_AFTER), ..Search::new(self.ceiling) };
    }
}

impl Sender {
    /// The path carries segments of at most `limit` bytes, header included. What was sent is gone if it was too long.
    pub(in super::super) fn limit_segments(&mut self, limit: usize, were_dropped: bool) {
        let limit = limit.max(LEAST_SEGMENT);
        if let Some(probe) = self.search.probe.filter(|probe| limit < probe.size) {
            self.scoreboard.mark_lost(|piece| piece.start == probe.start);
            self.search.probe = None;
        }
        if were_dropped {
            self.search.ceiling = self.search.ceiling.min(limit);
        }
        if limit >= self.segment_limit {
            return;
        }
        self.segment_limit = limit;
        self.cubic.set_mss(self.mss());
        self.search = Search::new(self.search.ceiling);
        if were_dropped {
            // No sign of congestion: the window stays (RFC 4821 would not have it grow either).
            self.scoreboard.mark_lost(|_| true);
        }
    }

    /// The path may carry segments of `limit` bytes again, if both ends do: to be tried.
    pub(in super::super) fn allow_segments(&mut self, now: Instant, limit: usize) {
        let ceiling = limit.min(self.agreed_limit);
        if ceiling > self.search.ceiling {
            self.search = Search { next: Some(now), ..Search::new(ceiling) };
        }
    }

    /// A probe, if it is time for one, and there is what it is made of and room for it.
    pub(super) fn probe_path(&mut self, now: Instant) -> Option<Packet> {
        if self.search.ceiling <= self.segment_limit || self.search.probe.is_some() {
            return None;
        }
        if *self.search.next.get_or_insert(now + RAISE_AFTER) > now {
            return None;
        }
        let Some(size) = self.search.target(self.segment_limit) else {
            self.search.wait(now);
            return None;
        };
        let bytes = size.saturating_sub(wire::tcp::HEADER_LEN + self.options_len);
        let room = self.window_room(self.next).min(self.congestion_room());
        let is_quiet = self.sack
            && self.recovery == Recovery::Open
            && self.scoreboard.sacked() + self.scoreboard.lost() == 0;
        // What follows it shows whether it has arrived.
        if !is_quiet || self.unsent() < bytes + self.mss() || room < bytes || self.scoreboard.is_full() {
            return None;
        }
        let packet = self.first(bytes, false, bytes);
        self.search.probe = Some(Probe { start: packet.start, end: self.next, size });
        Some(packet)
    }

    /// What was acknowledged may be the probe.
    pub(super) fn check_probe(&mut self, now: Instant) {
        let Some(probe) = self.search.probe else { return };
        if self.una < probe.end && !self.scoreboard.is_sacked(probe.start) {
            return;
        }
        self.search.probe = None;
        self.search.lost = 0;
        self.search.next = Some(now);
        self.segment_limit = probe.size;
        self.cubic.set_mss(self.mss());
    }

    /// Whether nothing but the probe is lost. Then that is no sign of congestion.
    pub(super) fn only_probe_is_lost(&mut self, now: Instant, lost: usize) -> bool {
        let Some(probe) = self.search.probe else { return false };
        if !self.scoreboard.is_lost(probe.start) {
            return false;
        }
        self.search.probe = None;
        self.search.lost += 1;
        if self.search.lost >= MAX_PROBES {
            self.search.lost = 0;
            self.search.too_large = Some(probe.size);
        }
        self.search.next = Some(now + self.rtt.smoothed().unwrap_or_default());
        lost == probe.end.since(probe.start)
    }

    /// A timeout ends a search.
    pub(super) fn give_probe_up(&mut self, now: Instant) {
        if self.search.probe.is_some() {
            self.search.wait(now);
        }
    }
}

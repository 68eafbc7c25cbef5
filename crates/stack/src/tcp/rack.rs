//! RACK: losses found by time (RFC 8985 §6). What was sent before something that has arrived, and for longer than a round
//! trip and a reordering window, is lost.

use std::time::{Duration, Instant};

use super::scoreboard::{Scoreboard, Sent};
use super::sequence::SequenceNumber;

/// Segments SACKed from which reordering is no longer waited for, if none was ever seen (RFC 8985 §6.2 step 4).
const DUP_THRESH: usize = 3;
/// Recoveries after which a widened reordering window is forgotten (RFC 8985 §6.2 step 4).
const PERSIST_RECOVERIES: u8 = 16;
/// The window in quarters of the minimum RTT grows no further: the smoothed RTT bounds it anyway.
const MAX_MULTIPLIER: u8 = 64;

#[derive(Debug)]
pub(super) struct Rack {
    /// RACK.xmit_ts and RACK.end_seq: of what has arrived, that which was sent last.
    newest: Option<(Instant, SequenceNumber)>,
    rtt: Duration,
    /// RACK.fack: the end of what has arrived.
    forward: SequenceNumber,
    reordering_seen: bool,
    multiplier: u8,
    persist: u8,
    dsack_round: Option<SequenceNumber>,
}

/// What is known of the path where a reordering window is chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    pub(super) minimum_rtt: Duration,
    pub(super) smoothed_rtt: Duration,
    pub(super) in_recovery: bool,
    pub(super) sacked_segments: usize,
}

impl Rack {
    pub(super) fn new(initial: SequenceNumber) -> Self {
        Self {
            newest: None,
            rtt: Duration::ZERO,
            forward: initial,
            reordering_seen: false,
            multiplier: 1,
            persist: 0,
            dsack_round: None,
        }
    }

    /// `piece` arrived (steps 2 and 3). `is_of_original` says that this acknowledges what was sent before the
    /// retransmission.
    pub(super) fn delivered(
        &mut self,
        now: Instant,
        piece: &Sent,
        least_rtt: Duration,
        is_of_original: bool,
    ) {
        let end = piece.end();
        if end > self.forward {
            self.forward = end;
        } else if end < self.forward && !piece.retransmitted {
            self.reordering_seen = true;
        }
        let rtt = now.saturating_duration_since(piece.sent_at);
        if piece.retransmitted && (is_of_original || rtt < least_rtt) {
            return;
        }
        self.rtt = rtt;
        if self.newest.is_none_or(|newest| sent_after((piece.sent_at, end), newest)) {
            self.newest = Some((piece.sent_at, end));
        }
    }

    /// The receiver reports a duplicate: what was sent again had not been lost (step 4).
    pub(super) fn duplicate_reported(&mut self, next: SequenceNumber) {
        if self.dsack_round.is_none() {
            self.dsack_round = Some(next);
            self.multiplier = self.multiplier.saturating_add(1).min(MAX_MULTIPLIER);
            self.persist = PERSIST_RECOVERIES;
        }
    }

    /// A retransmission was needless: what was taken for lost had been overtaken (RFC 8985 §6.2 step 3 cannot see that, as
    /// the segment is marked as sent again by then).
    pub(super) fn reordering_found(&mut self) {
        self.reordering_seen = true;
    }

    pub(super) fn acknowledged(&mut self, ack: SequenceNumber) {
        if self.dsack_round.is_some_and(|round| ack >= round) {
            self.dsack_round = None;
        }
    }

    pub(super) fn recovery_ended(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    fn reordering_window(&self, path: &Path) -> Duration {
        if !self.reordering_seen && (path.in_recovery || path.sacked_segments >= DUP_THRESH) {
            return Duration::ZERO;
        }
        (path.minimum_rtt / 4 * u32::from(self.multiplier)).min(path.smoothed_rtt)
    }

    /// Marks what is lost (step 5). Returns how many bytes that is, and how long to wait until more may be.
    pub(super) fn detect(
        &self,
        now: Instant,
        board: &mut Scoreboard,
        path: &Path,
    ) -> (usize, Option<Duration>) {
        let (Some(newest), Some(first)) = (self.newest, board.first()) else { return (0, None) };
        // The usual case, at no cost: pieces leave in order, so if the first one is not late, none is.
        if !first.retransmitted && !sent_after(newest, (first.sent_at, first.end())) {
            return (0, None);
        }
        let patience = self.rtt + self.reordering_window(path);
        let mut wait = None;
        let lost = board.mark_lost_as_far_as(|piece| {
            if !sent_after(newest, (piece.sent_at, piece.end())) {
                // What follows one that was sent once was sent after it, and so after the newest.
                return piece.retransmitted.then_some(false);
            }
            let left = (piece.sent_at + patience).saturating_duration_since(now);
            if !left.is_zero() {
                wait = wait.max(Some(left));
            }
            Some(left.is_zero())
        });
        (lost, wait)
    }

    /// Marks what is lost now that the retransmission timer has fired (RFC 8985 §6.3).
    pub(super) fn timed_out(&self, now: Instant, board: &mut Scoreboard, path: &Path) {
        let patience = self.rtt + self.reordering_window(path);
        let first = board.first().map(|piece| piece.start);
        board.mark_lost(|piece| Some(piece.start) == first || piece.sent_at + patience <= now);
    }
}

fn sent_after(one: (Instant, SequenceNumber), other: (Instant, SequenceNumber)) -> bool {
    one.0 > other.0 || one.0 == other.0 && one.1 > other.1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn board(now: Instant) -> Scoreboard {
        let mut board = Scoreboard::default();
        for n in 0..4 {
            board.push(SequenceNumber(n * 100), 100, now + n * MS);
        }
        board
    }

    fn path(sacked_segments: usize) -> Path {
        Path { minimum_rtt: 40 * MS, smoothed_rtt: 50 * MS, in_recovery: false, sacked_segments }
    }

    fn sack(rack: &mut Rack, board: &mut Scoreboard, now: Instant, index: u32) {
        let start = SequenceNumber(100 * index);
        board.sack(start, start + 100, |piece| rack.delivered(now, piece, 40 * MS, false));
    }

    #[test]
    fn rfc_8985_section_6_2_a_piece_is_given_a_quarter_of_the_minimum_rtt() {
        let start = Instant::now();
        let (mut board, mut rack) = (board(start), Rack::new(SequenceNumber(0)));
        sack(&mut rack, &mut board, start + 41 * MS, 1);
        assert_eq!(rack.detect(start + 41 * MS, &mut board, &path(1)), (0, Some(9 * MS)));
        assert_eq!(rack.detect(start + 50 * MS, &mut board, &path(1)), (100, None));
    }

    #[test]
    fn rfc_8985_section_6_2_three_segments_are_enough_where_no_reordering_was_seen() {
        let start = Instant::now();
        let (mut board, mut rack) = (board(start), Rack::new(SequenceNumber(0)));
        for n in 1..4 {
            sack(&mut rack, &mut board, start + (40 + n) * MS, n);
        }
        assert_eq!(rack.detect(start + 43 * MS, &mut board, &path(3)), (100, None));
    }

    #[test]
    fn rfc_8985_section_6_2_once_reordering_was_seen_three_segments_are_not_enough() {
        let start = Instant::now();
        let (mut board, mut rack) = (board(start), Rack::new(SequenceNumber(0)));
        sack(&mut rack, &mut board, start + 42 * MS, 2);
        sack(&mut rack, &mut board, start + 42 * MS, 1);
        sack(&mut rack, &mut board, start + 43 * MS, 3);
        assert_eq!(rack.detect(start + 43 * MS, &mut board, &path(3)).0, 0);
    }

    #[test]
    fn rfc_8985_section_6_2_each_round_with_a_dsack_widens_the_window_for_16_recoveries() {
        let mut rack = Rack::new(SequenceNumber(0));
        rack.duplicate_reported(SequenceNumber(100));
        rack.duplicate_reported(SequenceNumber(100));
        assert_eq!(rack.reordering_window(&path(0)), 20 * MS);
        rack.acknowledged(SequenceNumber(100));
        rack.duplicate_reported(SequenceNumber(200));
        assert_eq!(rack.reordering_window(&path(0)), 30 * MS);
        for _ in 0..16 {
            rack.recovery_ended();
        }
        assert_eq!(rack.reordering_window(&path(0)), 10 * MS);
    }

    #[test]
    fn rfc_8985_section_6_2_an_early_acknowledgement_of_a_retransmission_is_not_of_it() {
        let start = Instant::now();
        let (mut board, mut rack) = (board(start), Rack::new(SequenceNumber(0)));
        board.mark_lost(|piece| piece.start.0 == 0);
        board.retransmit(SequenceNumber(0), 100, start + 30 * MS);
        board
            .acknowledge(SequenceNumber(100), |piece| rack.delivered(start + 45 * MS, piece, 40 * MS, false));
        assert_eq!(rack.newest, None);
    }
}

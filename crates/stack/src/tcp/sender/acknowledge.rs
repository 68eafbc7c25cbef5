//! What an acknowledgement does to the sender (RFC 9293 §3.10.7.4, fifth check; RFC 5681, 6675, 8985, 6937, 3522).

use std::time::{Duration, Instant};

use wire::tcp::SackBlocks;

use super::super::cubic::Acked;
use super::super::sequence::SequenceNumber;
use super::super::timers::{Timer, Timers};
use super::super::timestamps::is_before;
use super::{Fin, Recovery, Sender};

/// Duplicate acknowledgements that mean a loss, where there is no SACK (RFC 5681 §3.2).
const DUP_THRESH: u8 = 3;

/// An acknowledgement whose number is within what was sent.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Acknowledgement {
    /// SEG.SEQ, SEG.ACK and SEG.WND, scaled.
    pub(in super::super) sequence: SequenceNumber,
    pub(in super::super) ack: SequenceNumber,
    pub(in super::super) window: usize,
    pub(in super::super) sack: SackBlocks,
    /// TSecr.
    pub(in super::super) echo: Option<u32>,
    /// ECE.
    pub(in super::super) congestion_echo: bool,
    /// Whether the segment carries nothing else.
    pub(in super::super) is_pure: bool,
}

/// What one acknowledgement says has arrived.
#[derive(Debug, Default)]
struct Delivery {
    bytes: usize,
    /// Of segments sent once: the round trip of the first and of the last one sent.
    oldest: Option<Duration>,
    newest: Option<Duration>,
    /// A retransmission is among what is acknowledged: the round trips say nothing.
    ambiguous: bool,
    /// What was sent before the timeout, and not again, is among it.
    was_late: bool,
}

impl Acknowledgement {
    /// Whether it says nothing beside its number and window.
    fn says_nothing(&self) -> bool {
        self.sack.as_slice().is_empty() && !self.congestion_echo
    }
}

impl Sender {
    /// Takes an acknowledgement with SND.UNA <= SEG.ACK <= SND.NXT.
    pub(in super::super) fn acknowledge(
        &mut self,
        now: Instant,
        acknowledgement: &Acknowledgement,
        timers: &mut Timers,
    ) {
        let ack = acknowledgement.ack;
        let before = self.una;
        let advanced = ack.since(before);
        let window_changed = self.update_window(acknowledgement);
        if advanced == 0 && self.is_at_rest() && acknowledgement.says_nothing() {
            // As each segment of a sender does to who only receives.
            return self.after_acknowledgement(now, advanced, timers);
        }
        let duplicate = self.duplicate_of(acknowledgement);

        let delivery = self.account(now, acknowledgement);
        self.take_rtt(now, &delivery, acknowledgement.echo.filter(|_| advanced > 0));
        if advanced > 0 {
            self.rtt.progressed();
            self.rack.acknowledged(ack);
            self.undo_if_original(acknowledgement);
            timers.set(Timer::Retransmission, now + self.rtt.rto());
        }
        if let Some((start, end)) = duplicate {
            self.duplicate_reported(start, end);
        }
        self.decide_tail_probe(acknowledgement, duplicate.is_some(), advanced > 0);
        self.check_probe(now);
        let is_doubted = self.doubt(now, ack, advanced > 0, delivery.was_late);
        self.end_recovery(ack);

        let lost = if is_doubted {
            false
        } else if self.sack {
            self.detect_losses(now, timers)
        } else {
            let is_duplicate =
                acknowledgement.is_pure && advanced == 0 && !window_changed && !self.scoreboard.is_empty();
            self.count_duplicates(advanced, is_duplicate)
        };
        if acknowledgement.congestion_echo {
            self.congestion_echoed(before);
        }
        let may_grow = !(acknowledgement.congestion_echo && self.ecn.enabled);
        if !is_doubted && (may_grow || self.recovery != Recovery::Open) {
            self.adapt_window(now, ack, before, &delivery, lost);
        }
        self.after_acknowledgement(now, advanced, timers);
    }

    /// Whether nothing is outstanding, nor doubted of what was.
    fn is_at_rest(&self) -> bool {
        self.scoreboard.is_empty()
            && self.recovery == Recovery::Open
            && !self.probing
            && self.doubted.is_none()
            && self.tail_probe.is_none()
    }

    /// SND.WND, unless the segment is older than one that has told it (RFC 9293 §3.10.7.4).
    fn update_window(&mut self, acknowledgement: &Acknowledgement) -> bool {
        let Acknowledgement { sequence, ack, window, .. } = *acknowledgement;
        let is_newer =
            self.window_sequence < sequence || self.window_sequence == sequence && self.window_ack <= ack;
        if !is_newer {
            return false;
        }
        (self.window_sequence, self.window_ack) = (sequence, ack);
        self.max_window = self.max_window.max(window);
        std::mem::replace(&mut self.window, window) != window
    }

    /// What the first block reports as received twice (RFC 2883 §4).
    fn duplicate_of(&self, acknowledgement: &Acknowledgement) -> Option<(SequenceNumber, SequenceNumber)> {
        let [(start, end), rest @ ..] = acknowledgement.sack.as_slice() else { return None };
        let (start, end) = (SequenceNumber(*start), SequenceNumber(*end));
        if start >= end || end > self.next {
            return None;
        }
        let within = |block: &(u32, u32)| SequenceNumber(block.0) <= start && end <= SequenceNumber(block.1);
        let is_duplicate = end <= acknowledgement.ack || rest.first().is_some_and(within);
        (self.sack && is_duplicate).then_some((start, end))
    }

    /// Takes what arrived off the buffer and the scoreboard, and shows it to RACK.
    fn account(&mut self, now: Instant, acknowledgement: &Acknowledgement) -> Delivery {
        use super::super::scoreboard::{Sent, Status};

        let ack = acknowledgement.ack;
        let least_rtt = self.rtt.minimum().unwrap_or_default();
        let mut delivery = Delivery::default();
        let (rack, clock) = (&mut self.rack, self.clock);
        let point = match self.recovery {
            Recovery::Timeout(point) => point,
            _ => self.una,
        };
        let mut delivered = |piece: &Sent, echo: Option<u32>| {
            delivery.bytes += piece.len as usize;
            let is_of_original =
                clock.zip(echo).is_some_and(|(c, echo)| is_before(echo, c.at(piece.sent_at)));
            rack.delivered(now, piece, least_rtt, is_of_original);
            if piece.retransmitted {
                delivery.ambiguous = true;
                return;
            }
            delivery.was_late |= piece.end() <= point;
            let rtt = now.saturating_duration_since(piece.sent_at);
            delivery.oldest = delivery.oldest.max(Some(rtt));
            delivery.newest = Some(delivery.newest.map_or(rtt, |least| least.min(rtt)));
        };
        self.scoreboard.acknowledge(ack, |piece| {
            if piece.status != Status::Sacked {
                delivered(piece, acknowledgement.echo);
            }
        });
        if self.sack {
            let mut blocks = acknowledgement.sack;
            // From the left to the right, so that the order of blocks is not taken for reordering.
            blocks.sort_by_distance(ack.0);
            for (start, end) in blocks.as_slice() {
                let (start, end) = (SequenceNumber(*start), SequenceNumber(*end));
                if start < end && end > ack && end <= self.next && start >= self.una {
                    // What is echoed is of the left edge, and says nothing of what was SACKed.
                    self.scoreboard.sack(start.max(ack), end, |piece| delivered(piece, None));
                }
            }
        }

        let advanced = ack.since(self.una);
        if advanced > self.buffer.len() && self.fin == Fin::Sent {
            self.fin = Fin::Acknowledged;
        }
        self.buffer.consume(advanced);
        // What lies behind stays in reach of comparisons, however much is sent until it changes again.
        for mark in [&mut self.small_end, &mut self.limited_at, &mut self.ecn.reduced_until] {
            *mark = mark.max(self.una);
        }
        self.una = ack;
        delivery
    }

    fn take_rtt(&mut self, now: Instant, delivery: &Delivery, echo: Option<u32>) {
        if let (Some(rtt), false) = (delivery.oldest, delivery.ambiguous) {
            self.rtt.sample(now, rtt);
        } else if let (true, Some(clock), Some(echo)) = (delivery.ambiguous, self.clock, echo) {
            let ticks = clock.at(now).wrapping_sub(echo).max(1);
            self.rtt.sample_echo(Duration::from_millis(ticks.into()));
        }
    }

    /// Eifel (RFC 3522 §3.2): where what was sent again first is acknowledged by an echo from before that, it had arrived
    /// as it was sent originally.
    fn undo_if_original(&mut self, acknowledgement: &Acknowledgement) {
        let Some(undo) = &mut self.undo else { return };
        let (Some((start, sent)), Some(echo)) = (undo.first, acknowledgement.echo) else { return };
        if undo.is_decided || acknowledgement.ack <= start || self.recovery == Recovery::Open {
            return;
        }
        undo.is_decided = true;
        if is_before(echo, sent) {
            self.undo();
        }
    }

    /// A DSACK: the network, or we, sent something twice (RFC 8985 §6.2 step 4). If that holds for all that was sent
    /// again, nothing was lost (RFC 3708).
    fn duplicate_reported(&mut self, start: SequenceNumber, end: SequenceNumber) {
        self.rack.duplicate_reported(self.next);
        let Some(undo) = &mut self.undo else { return };
        if undo.range.is_none_or(|(first, last)| start < first || end > last) {
            // Of an earlier retransmission, or the network's own.
            return;
        }
        undo.retransmitted = undo.retransmitted.saturating_sub(end.since(start));
        if undo.retransmitted == 0 && self.scoreboard.lost() == 0 {
            self.undo();
        }
    }

    /// The window is what it was, and what was not sent again is not lost.
    pub(super) fn undo(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        let window = self.cubic.window();
        self.cubic = undo.cubic;
        if window > self.cubic.window() {
            self.cubic.set_window(window);
        }
        self.scoreboard.unmark_lost();
        self.rack.reordering_found();
        self.recovery = Recovery::Open;
        self.statistics.undone += 1;
    }

    /// Whether a tail loss probe has shown or repaired a loss (RFC 8985 §7.4.2).
    fn decide_tail_probe(&mut self, acknowledgement: &Acknowledgement, has_duplicate: bool, advanced: bool) {
        let Some(probe) = self.tail_probe else { return };
        let ack = acknowledgement.ack;
        if ack < probe.end {
            return;
        }
        if !probe.retransmission || has_duplicate {
            self.tail_probe = None;
        } else if ack > probe.end {
            // It repaired the only loss: that is congestion like any other.
            self.tail_probe = None;
            self.cubic.reduce(self.cubic.window());
            self.cubic.recovered(usize::MAX);
            self.undo = None;
            self.ecn.tell = self.ecn.enabled;
        } else if !advanced && acknowledgement.sack.as_slice().is_empty() && acknowledgement.is_pure {
            self.tail_probe = None;
        }
    }

    fn end_recovery(&mut self, ack: SequenceNumber) {
        match self.recovery {
            Recovery::Fast(point) if ack >= point => self.cubic.recovered(self.outstanding()),
            Recovery::Timeout(point) if ack >= point => {}
            _ => return,
        }
        self.recovery = Recovery::Open;
        self.rack.recovery_ended();
    }

    /// NewReno, where there is no SACK (RFC 6582, RFC 5681 §3.2). Returns whether a loss was found.
    fn count_duplicates(&mut self, advanced: usize, is_duplicate: bool) -> bool {
        let mss = self.mss();
        if advanced > 0 {
            self.duplicate_bytes = self.duplicate_bytes.saturating_sub(advanced);
            self.duplicates = 0;
            if let Recovery::Fast(_) = self.recovery {
                // A partial acknowledgement: what follows it was lost, too.
                return self.scoreboard.mark_front_lost(mss) > 0;
            }
            self.duplicate_bytes = 0;
            return false;
        }
        if !is_duplicate {
            return false;
        }
        self.duplicates = self.duplicates.saturating_add(1);
        self.duplicate_bytes = (self.duplicate_bytes + mss).min(self.scoreboard.in_flight());
        if self.duplicates == DUP_THRESH && self.recovery == Recovery::Open {
            let lost = self.scoreboard.mark_front_lost(mss);
            self.begin_recovery();
            return lost > 0;
        }
        false
    }

    /// ECE: once in a window of data (RFC 3168 §6.1.2).
    fn congestion_echoed(&mut self, una_before: SequenceNumber) {
        if !self.ecn.enabled || self.recovery != Recovery::Open || una_before < self.ecn.reduced_until {
            return;
        }
        self.cubic.reduce(self.next.since(una_before));
        self.cubic.recovered(usize::MAX);
        self.undo = None;
        self.ecn.reduced_until = self.next;
        self.ecn.tell = true;
        self.statistics.marked += 1;
    }

    fn adapt_window(
        &mut self,
        now: Instant,
        ack: SequenceNumber,
        before: SequenceNumber,
        delivery: &Delivery,
        lost: bool,
    ) {
        let mss = self.mss();
        if let Recovery::Fast(_) = self.recovery {
            let delivered = if self.sack { delivery.bytes } else { delivery.bytes.max(mss) };
            let is_good = ack > before && !lost;
            let outstanding = self.outstanding();
            let allowed = self.prr.acknowledged(delivered, outstanding, self.cubic.ssthresh(), mss, is_good);
            self.cubic.set_window(outstanding + allowed);
            return;
        }
        if ack > before {
            let acked = Acked {
                bytes: ack.since(before),
                ack,
                next: self.next,
                rtt: delivery.newest.filter(|_| !delivery.ambiguous),
                smoothed_rtt: self.rtt.smoothed().unwrap_or_default(),
                is_limited: before < self.limited_at || self.recovery != Recovery::Open,
            };
            self.cubic.acknowledged(now, &acked);
        }
    }

    fn after_acknowledgement(&mut self, now: Instant, advanced: usize, timers: &mut Timers) {
        if self.probing && (self.window > 0 || self.scoreboard.is_empty()) {
            // The window has opened; the probe was dropped unless it is acknowledged.
            self.probing = false;
            timers.clear(Timer::Persist);
            self.rtt.reset_backoff();
            self.scoreboard.mark_lost(|_| true);
        }
        if self.scoreboard.is_empty() {
            timers.clear(Timer::Retransmission);
            timers.clear(Timer::Probe);
            self.waiting_since = None;
            return;
        }
        if advanced > 0 || self.window == 0 {
            // A closed window is no reason to give up, as long as it is told (RFC 9293 §3.8.6.1).
            self.waiting_since = Some(now);
        }
        if self.probing {
            timers.clear(Timer::Retransmission);
            return;
        }
        if !timers.is_set(Timer::Retransmission) {
            timers.set(Timer::Retransmission, now + self.rtt.rto());
        }
        self.schedule_tail_probe(now, timers);
    }
}

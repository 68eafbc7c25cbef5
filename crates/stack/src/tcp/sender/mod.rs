//! The sending half of a connection: what is to be sent, what was sent, and how much more may be.
//!
//! Sequence numbers begin behind the SYN, which is the connection's business; a FIN is the last one. Acknowledgements are
//! processed in `acknowledge`; what leaves is chosen in `transmit`.

mod acknowledge;
mod f_rto;
mod pacing;
mod path_mtu;
mod transmit;

use std::time::{Duration, Instant};

use super::cubic::Cubic;
use super::path_search::Search;
use super::prr::Prr;
use super::rack::{Path, Rack};
use super::ring::Ring;
use super::rtt::RttEstimator;
use super::scoreboard::Scoreboard;
use super::sequence::SequenceNumber;
use super::timers::{Timer, Timers};
use super::timestamps::TimestampClock;

pub(super) use acknowledge::Acknowledgement;
pub(super) use transmit::Packet;

/// How long the other end may delay an acknowledgement (TLP.max_ack_delay, RFC 8985 §7.2).
const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// Bytes that may wait to be sent, at least: enough for the first round trips.
const MIN_BUFFER: usize = 64 * 1024;
/// And at most: a millisecond's at 8 Gbit/s. With more they would leave the processor's cache before they leave the host.
const MAX_AHEAD: usize = 1 << 20;
/// The largest TCP segment, header included, that every path carries: 1280 bytes of IPv6 less its header, and less what
/// IPsec in a tunnel may add.
const BASE_SEGMENT: usize = 1140;
/// The smallest that is believed of a path, header included: 576 bytes of IPv4 less its header. An ICMP error that
/// claims less would be an attack (RFC 5927 §7.2).
const LEAST_SEGMENT: usize = 536;
/// Timeouts in a row after which full segments are taken to vanish in a black hole (RFC 4821, RFC 8899 §4.3).
const BLACK_HOLE_TIMEOUTS: u8 = 2;

#[derive(Debug)]
pub(super) struct Sender {
    /// What the user wrote and is not acknowledged: from `una` on.
    buffer: Ring,
    /// SND.UNA, SND.NXT.
    una: SequenceNumber,
    next: SequenceNumber,
    fin: Fin,
    /// SND.WND, the largest one ever, SND.WL1, SND.WL2.
    window: usize,
    max_window: usize,
    window_sequence: SequenceNumber,
    window_ack: SequenceNumber,

    scoreboard: Scoreboard,
    rtt: RttEstimator,
    rack: Rack,
    cubic: Cubic,
    prr: Prr,
    recovery: Recovery,
    undo: Option<Box<Undo>>,
    /// A timeout that may be a mistake.
    doubted: Option<Doubt>,
    tail_probe: Option<TailProbe>,
    /// What [`Timer::Probe`] is set for.
    probe_kind: ProbeKind,
    /// Something to send regardless of windows.
    forced: Option<Forced>,
    /// The window is closed, and what is outstanding probes it.
    probing: bool,
    /// Duplicate acknowledgements in a row, where there is no SACK, and what they say has left the network.
    duplicates: u8,
    duplicate_bytes: usize,
    /// Sending was held back by the congestion window when this was next.
    limited_at: SequenceNumber,
    /// The end of the last segment that was not full (Nagle).
    small_end: SequenceNumber,
    last_sent: Option<Instant>,
    /// Whether a window is spread over its round trip, and up to when what was sent is.
    paces: bool,
    paced: Option<Instant>,
    /// Since when the other end owes an acknowledgement.
    waiting_since: Option<Instant>,

    /// The largest segment, header included, and what options take in each.
    segment_limit: usize,
    /// What both ends take.
    agreed_limit: usize,
    search: Search,
    options_len: usize,
    max_buffer: usize,
    nagle: bool,
    sack: bool,
    clock: Option<TimestampClock>,
    ecn: Ecn,
    statistics: Statistics,
}

/// What the handshake agreed on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    /// The largest segment, header included.
    pub(super) segment_limit: usize,
    pub(super) sack: bool,
    pub(super) clock: Option<TimestampClock>,
    pub(super) ecn: bool,
}

/// What a sender has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Segments sent again; those of a GSO packet are counted each.
    pub retransmitted: u64,
    /// Fast recoveries.
    pub recoveries: u32,
    /// Retransmission timeouts.
    pub timeouts: u32,
    /// Tail loss probes.
    pub tail_loss_probes: u32,
    /// Recoveries and timeouts that were found to be needless, and undone.
    pub undone: u32,
    /// Reductions of the window for ECN.
    pub marked: u32,
}

/// What has become of our FIN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fin {
    None,
    /// It follows the buffer.
    Queued,
    Sent,
    Acknowledged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recovery {
    Open,
    /// Fast recovery until this is acknowledged.
    Fast(SequenceNumber),
    /// After a timeout, until this is acknowledged.
    Timeout(SequenceNumber),
}

/// What a reduction of the window is undone with (RFC 3522, RFC 4015).
#[derive(Debug)]
struct Undo {
    cubic: Cubic,
    /// From the first to the end of the last number that was sent again.
    range: Option<(SequenceNumber, SequenceNumber)>,
    /// What was sent again first, and with which TSval; `None` before that, and once it is decided.
    first: Option<(SequenceNumber, u32)>,
    is_decided: bool,
    /// Bytes sent again, less those that were reported as duplicates.
    retransmitted: usize,
}

/// What decides whether a timeout was a mistake (RFC 5682 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// The acknowledgement of the segment that was sent again.
    First,
    /// The one after that.
    Second,
}

/// A tail loss probe that is not decided (RFC 8985 §7.4).
#[derive(Debug, Clone, Copy)]
struct TailProbe {
    end: SequenceNumber,
    retransmission: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProbeKind {
    Reordering,
    TailLoss,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forced {
    TailLoss,
    Window,
}

/// ECN as the sender sees it (RFC 3168 §6.1.2).
#[derive(Debug)]
struct Ecn {
    enabled: bool,
    /// CWR goes with the next new data.
    tell: bool,
    /// No further reduction until this is acknowledged.
    reduced_until: SequenceNumber,
}

impl Sender {
    /// A sender whose first byte has the number `first`.
    pub(super) fn new(first: SequenceNumber, max_buffer: usize, nagle: bool, paces: bool) -> Self {
        Self {
            buffer: Ring::default(),
            una: first,
            next: first,
            fin: Fin::None,
            window: 0,
            max_window: 0,
            window_sequence: SequenceNumber::default(),
            window_ack: first,
            scoreboard: Scoreboard::default(),
            rtt: RttEstimator::new(),
            rack: Rack::new(first),
            cubic: Cubic::new(LEAST_SEGMENT, first),
            prr: Prr::default(),
            recovery: Recovery::Open,
            undo: None,
            doubted: None,
            tail_probe: None,
            probe_kind: ProbeKind::Reordering,
            forced: None,
            probing: false,
            duplicates: 0,
            duplicate_bytes: 0,
            limited_at: first,
            small_end: first,
            last_sent: None,
            paces,
            paced: None,
            waiting_since: None,
            segment_limit: LEAST_SEGMENT,
            agreed_limit: LEAST_SEGMENT,
            search: Search::new(LEAST_SEGMENT),
            options_len: 0,
            max_buffer,
            nagle,
            sack: false,
            clock: None,
            ecn: Ecn { enabled: false, tell: false, reduced_until: first },
            statistics: Statistics::default(),
        }
    }

    /// The handshake is complete.
    pub(super) fn agree(&mut self, agreed: &Agreed, handshake_lost: bool) {
        self.options_len = if agreed.clock.is_some() { 12 } else { 0 };
        self.segment_limit = agreed.segment_limit;
        self.agreed_limit = agreed.segment_limit;
        self.search = Search::new(agreed.segment_limit);
        self.sack = agreed.sack;
        self.clock = agreed.clock;
        self.ecn.enabled = agreed.ecn;
        self.cubic = Cubic::new(self.mss(), self.next);
        if handshake_lost {
            self.cubic.handshake_lost();
        }
    }

    /// The first window, of a segment with this sequence number.
    pub(super) fn set_window(&mut self, window: usize, sequence: SequenceNumber) {
        self.window = window;
        self.max_window = self.max_window.max(window);
        self.window_sequence = sequence;
        self.window_ack = self.una;
    }

    pub(super) fn rtt(&mut self) -> &mut RttEstimator {
        &mut self.rtt
    }

    pub(super) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Timeouts in a row.
    pub(super) fn timeouts(&self) -> u8 {
        self.rtt.timeouts()
    }

    pub(super) fn statistics(&self) -> Statistics {
        self.statistics
    }

    pub(super) fn una(&self) -> SequenceNumber {
        self.una
    }

    pub(super) fn next(&self) -> SequenceNumber {
        self.next
    }

    pub(super) fn max_window(&self) -> usize {
        self.max_window
    }

    pub(super) fn congestion_window(&self) -> usize {
        self.cubic.window()
    }

    /// Payload bytes of a full segment without SACK blocks.
    pub(super) fn mss(&self) -> usize {
        self.segment_limit.saturating_sub(wire::tcp::HEADER_LEN + self.options_len).max(1)
    }

    /// Bytes that may be written now. The buffer holds what is outstanding, and a window to follow it.
    pub(super) fn room(&self) -> usize {
        let ahead = self.cubic.window().clamp(MIN_BUFFER, MAX_AHEAD);
        let limit = (self.next.since(self.una) + ahead).min(self.max_buffer);
        if self.fin == Fin::None { limit.saturating_sub(self.buffer.len()) } else { 0 }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.buffer.write(self.buffer.len(), &bytes[..taken]);
        taken
    }

    pub(super) fn close(&mut self) {
        if self.fin == Fin::None {
            self.fin = Fin::Queued;
        }
    }

    pub(super) fn set_nagle(&mut self, nagle: bool) {
        self.nagle = nagle;
    }

    /// Bytes that are not acknowledged, sent or not.
    pub(super) fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether anything is outstanding or waits.
    pub(super) fn is_idle(&self) -> bool {
        self.scoreboard.is_empty() && !self.has_unsent()
    }

    /// Whether a FIN was sent and is acknowledged.
    pub(super) fn fin_is_acknowledged(&self) -> bool {
        self.fin == Fin::Acknowledged
    }

    /// Whether a FIN is to be sent, or was.
    pub(super) fn is_closing(&self) -> bool {
        self.fin != Fin::None
    }

    pub(super) fn set_ecn(&mut self, enabled: bool) {
        self.ecn.enabled = enabled;
    }

    /// The right edge of the receiver's window.
    pub(super) fn window_edge(&self) -> SequenceNumber {
        self.una + self.window
    }

    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.waiting_since
    }

    pub(super) fn heap(&self) -> usize {
        let undo = if self.undo.is_some() { size_of::<Undo>() } else { 0 };
        self.buffer.capacity() + self.scoreboard.heap() + undo
    }

    pub(super) fn release(&mut self) {
        self.buffer.release();
        self.scoreboard.release();
        if self.scoreboard.is_empty() {
            self.undo = None;
        }
    }

    /// The persist timer fired.
    pub(super) fn probe_window(&mut self) {
        self.rtt.back_off();
        self.scoreboard.mark_lost(|_| true);
        self.forced = Some(Forced::Window);
    }

    /// The probe timer fired.
    pub(super) fn probe(&mut self, now: Instant, timers: &mut Timers) {
        match self.probe_kind {
            ProbeKind::Reordering => {
                self.detect_losses(now, timers);
            }
            ProbeKind::TailLoss => {
                self.statistics.tail_loss_probes += 1;
                self.forced = Some(Forced::TailLoss);
                self.rtt.probed();
                // The timeout is what comes next (RFC 8985 §7.3).
                timers.set(Timer::Retransmission, now + self.rtt.rto());
            }
        }
    }

    /// The retransmission timer fired (RFC 6298 §5).
    pub(super) fn time_out(&mut self, now: Instant, timers: &mut Timers) {
        if self.scoreboard.is_empty() {
            return;
        }
        timers.clear(Timer::Probe);
        self.tail_probe = None;
        if self.window == 0 {
            // Not congestion: the receiver has closed its window, and drops what we send.
            self.probe_window();
            return;
        }
        self.statistics.timeouts += 1;
        self.give_probe_up(now);
        let is_first = !matches!(self.recovery, Recovery::Timeout(_));
        let was_open = self.recovery == Recovery::Open;
        if is_first {
            self.remember_for_undo();
        }
        self.cubic.timed_out(self.next.since(self.una), is_first);
        self.ecn.tell = self.ecn.enabled;
        self.rtt.timed_out();
        if self.rtt.timeouts() >= BLACK_HOLE_TIMEOUTS && self.segment_limit > BASE_SEGMENT {
            self.limit_segments(BASE_SEGMENT, false);
        } else if self.rtt.timeouts() >= 2 * BLACK_HOLE_TIMEOUTS {
            self.limit_segments(LEAST_SEGMENT, false);
        }
        self.duplicates = 0;
        self.duplicate_bytes = 0;
        self.doubted = None;
        if was_open && self.may_doubt() {
            self.doubted = Some(Doubt::First);
            self.scoreboard.mark_front_lost(self.mss());
            // Just that leaves.
            self.cubic.set_window(self.outstanding() + self.mss());
        } else if self.sack && self.rtt.timeouts() < BLACK_HOLE_TIMEOUTS {
            let path = self.path();
            self.rack.timed_out(now, &mut self.scoreboard, &path);
        } else {
            // What was SACKed may have been dropped since (RFC 2018 §8).
            self.scoreboard.forget_sacks();
            self.scoreboard.mark_lost(|_| true);
        }
        self.recovery = Recovery::Timeout(self.next);
        timers.set(Timer::Retransmission, now + self.rtt.rto());
    }

    fn has_unsent(&self) -> bool {
        self.unsent() > 0 || self.fin == Fin::Queued
    }

    fn unsent(&self) -> usize {
        self.data_end().since(self.next)
    }

    /// Where the data ends. A FIN that is not acknowledged has this number.
    pub(super) fn data_end(&self) -> SequenceNumber {
        self.una + self.buffer.len()
    }

    /// Bytes taken to be in the network (RFC 6675's pipe).
    fn outstanding(&self) -> usize {
        self.scoreboard.in_flight().saturating_sub(self.duplicate_bytes)
    }

    fn congestion_room(&self) -> usize {
        self.cubic.window().saturating_sub(self.outstanding())
    }

    /// From `at` to the right edge of the receiver's window.
    fn window_room(&self, at: SequenceNumber) -> usize {
        (self.una + self.window).since(at)
    }

    fn path(&self) -> Path {
        Path {
            minimum_rtt: self.rtt.minimum().unwrap_or_default(),
            smoothed_rtt: self.rtt.smoothed().unwrap_or_default(),
            in_recovery: self.recovery != Recovery::Open,
            sacked_segments: self.scoreboard.sacked() / self.mss(),
        }
    }

    fn remember_for_undo(&mut self) {
        let cubic = self.cubic.clone();
        let undo = Undo { cubic, range: None, first: None, is_decided: false, retransmitted: 0 };
        self.undo = Some(Box::new(undo));
    }

    /// A probe of the tail, earlier than the timeout (RFC 8985 §7.2).
    fn schedule_tail_probe(&mut self, now: Instant, timers: &mut Timers) {
        if self.probe_kind == ProbeKind::Reordering && timers.is_set(Timer::Probe) {
            return;
        }
        timers.clear(Timer::Probe);
        let is_allowed = self.sack
            && self.recovery == Recovery::Open
            && self.scoreboard.sacked() == 0
            && self.scoreboard.in_flight() > 0
            && self.tail_probe.is_none()
            && self.rtt.is_fresh();
        let (true, Some(smoothed)) = (is_allowed, self.rtt.smoothed()) else { return };
        let Some(timeout) = timers.get(Timer::Retransmission) else { return };
        let delayed = if self.scoreboard.in_flight() <= self.mss() { MAX_ACK_DELAY } else { Duration::ZERO };
        // In place of the timeout, where that would be earlier: a probe leaves the window as it is.
        self.probe_kind = ProbeKind::TailLoss;
        timers.set(Timer::Probe, timeout.min(now + 2 * smoothed + delayed));
    }

    /// Looks for losses by time, and begins a recovery if there are any. Returns whether there are.
    fn detect_losses(&mut self, now: Instant, timers: &mut Timers) -> bool {
        if !self.sack {
            return false;
        }
        let path = self.path();
        let (lost, wait) = self.rack.detect(now, &mut self.scoreboard, &path);
        if self.probe_kind == ProbeKind::Reordering {
            timers.clear(Timer::Probe);
        }
        if let Some(wait) = wait {
            self.probe_kind = ProbeKind::Reordering;
            timers.set(Timer::Probe, now + wait);
        }
        if lost == 0 || self.only_probe_is_lost(now, lost) {
            return false;
        }
        self.begin_recovery();
        true
    }

    /// A loss: fast recovery, unless one is under way.
    fn begin_recovery(&mut self) {
        if self.recovery != Recovery::Open {
            return;
        }
        self.statistics.recoveries += 1;
        self.remember_for_undo();
        let flight = self.next.since(self.una);
        self.cubic.reduce(flight);
        self.prr = Prr::new(flight);
        self.recovery = Recovery::Fast(self.next);
        self.ecn.tell = self.ecn.enabled;
        self.ecn.reduced_until = self.next;
        self.tail_probe = None;
        // The first retransmission leaves at once.
        self.cubic.set_window(self.outstanding() + self.mss());
    }
}

//! What the sender sends next: what was lost first, then new data, as far as the windows of congestion control and of the
//! receiver, Nagle's rule and silly window avoidance let it (RFC 9293 §3.7.4, §3.8.6.2.1).

use std::time::Instant;

use super::super::scoreboard::Sent;
use super::super::sequence::SequenceNumber;
use super::super::timers::{Timer, Timers};
use super::{Fin, Forced, Recovery, Sender, TailProbe};

/// A packet to build; it counts as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Packet {
    pub(in super::super) start: SequenceNumber,
    pub(in super::super) bytes: usize,
    /// Payload bytes of each segment.
    pub(in super::super) segment_size: usize,
    pub(in super::super) fin: bool,
    pub(in super::super) push: bool,
    pub(in super::super) cwr: bool,
    /// New data, which may carry ECT (RFC 3168 §6.1.5).
    pub(in super::super) ect: bool,
    retransmission: bool,
}

impl Sender {
    /// The next packet with at most `limit` bytes of payload, if it may leave now; more than a segment's worth makes a
    /// GSO packet. `extra_options` is what SACK blocks take.
    pub(in super::super) fn transmit(
        &mut self,
        now: Instant,
        limit: usize,
        extra_options: usize,
        timers: &mut Timers,
    ) -> Option<Packet> {
        let unit = self.mss().saturating_sub(extra_options).max(1);
        let most = (limit / unit).max(1) * unit;
        if let Some(forced) = self.forced.take()
            && let Some(packet) = self.force(forced, now, unit)
        {
            return Some(self.sent(packet, now, timers));
        }
        if let Some(until) = self.paced_until(now) {
            // Nothing leaves by itself that has nothing to say.
            if self.has_unsent() || self.scoreboard.lost() > 0 {
                timers.set(Timer::Pace, until);
            }
            return None;
        }
        let most = self.paced_most(most, unit);
        let packet = self
            .retransmission(now, unit, most)
            .or_else(|| if extra_options == 0 { self.probe_path(now) } else { None })
            .or_else(|| self.new_data(now, unit, most));
        if let Some(packet) = packet {
            self.pace(now, packet.bytes);
            return Some(self.sent(packet, now, timers));
        }
        if self.scoreboard.in_flight() == 0
            && (self.has_unsent() || self.scoreboard.lost() > 0)
            && !timers.is_set(Timer::Persist)
        {
            // Nothing is outstanding, so it can only be the window that is in the way.
            timers.set(Timer::Persist, now + self.rtt.rto());
        }
        None
    }

    /// So many bytes from `offset` behind SND.UNA, in one or two pieces.
    pub(in super::super) fn payload(&self, offset: usize, bytes: usize) -> (&[u8], &[u8]) {
        self.buffer.slices(offset, bytes)
    }

    /// What was lost, first.
    fn retransmission(&mut self, now: Instant, unit: usize, most: usize) -> Option<Packet> {
        let piece = *self.scoreboard.first_lost()?;
        let wanted = (piece.len as usize).min(self.window_room(piece.start));
        let mut room = self.congestion_room();
        if self.outstanding() == 0 {
            room = room.max(unit);
        }
        let fin = self.carries_fin(&piece);
        let data = wanted - usize::from(fin && wanted == piece.len as usize);
        let bytes = if data <= most.min(room) { data } else { most.min(room) / unit * unit };
        let fin = fin && bytes == data && wanted == piece.len as usize;
        (bytes > 0 || fin).then(|| self.again(now, piece.start, bytes, fin, unit))
    }

    /// New data, if windows, Nagle and silly window avoidance allow it (RFC 9293 §3.8.6.2.1).
    fn new_data(&mut self, now: Instant, unit: usize, most: usize) -> Option<Packet> {
        if !self.has_unsent() || self.scoreboard.is_full() || self.fin == Fin::Sent {
            return None;
        }
        let is_idle = self.scoreboard.is_empty();
        if is_idle && self.last_sent.is_some_and(|last| now.saturating_duration_since(last) > self.rtt.rto())
        {
            self.cubic.restart();
        }
        let unsent = self.unsent();
        let window_room = self.window_room(self.next);
        let congestion_room = self.congestion_room();
        let usable = window_room.min(congestion_room);
        let allowed = unsent.min(usable);
        let tail = allowed % unit;
        let whole = allowed - tail;
        let takes_tail = if allowed == unsent {
            self.may_send_small()
        } else {
            // Part of what waits: if the receiver's window leaves no more, and it is a good part of it.
            allowed == window_room
                && whole == 0
                && tail > 0
                && tail >= self.max_window / 2
                && self.may_send_small()
        };
        let bytes = if takes_tail && allowed <= most { allowed } else { whole.min(most) };
        let fin = self.fin == Fin::Queued && bytes == unsent && window_room > bytes;
        if congestion_room < window_room && congestion_room.saturating_sub(bytes) < unit && unsent > bytes {
            self.limited_at = self.next + bytes + 1;
        }
        (bytes > 0 || fin).then(|| self.first(bytes, fin, unit))
    }

    /// Nagle's rule (RFC 9293 §3.7.4) as Minshall amended it: at most one segment that is not full is outstanding. So the
    /// end of a large write does not wait for a delayed acknowledgement of what comes before it.
    fn may_send_small(&self) -> bool {
        !self.nagle || self.small_end <= self.una || self.fin == Fin::Queued
    }

    fn force(&mut self, forced: Forced, now: Instant, unit: usize) -> Option<Packet> {
        let window_room = self.window_room(self.next);
        let unsent = self.unsent();
        match forced {
            Forced::Window => {
                self.probing = self.window == 0;
                if let Some(piece) = self.scoreboard.first_lost().copied() {
                    let room = self.window_room(piece.start).clamp(1, unit);
                    let fin = self.carries_fin(&piece) && piece.len == 1;
                    let bytes = (piece.len as usize - usize::from(self.carries_fin(&piece))).min(room);
                    return Some(self.again(now, piece.start, bytes, fin, unit));
                }
                if !self.has_unsent() {
                    return None;
                }
                let bytes = unsent.min(window_room.clamp(1, unit));
                Some(self.first(bytes, unsent == 0 && self.fin == Fin::Queued, unit))
            }
            Forced::TailLoss => {
                if unsent > 0 && window_room > 0 && !self.scoreboard.is_full() {
                    let packet = self.first(unsent.min(window_room).min(unit), false, unit);
                    self.tail_probe = Some(TailProbe { end: self.next, retransmission: false });
                    return Some(packet);
                }
                let piece = *self.scoreboard.last_unsacked()?;
                let fin = self.carries_fin(&piece);
                let len = (piece.len as usize).min(unit + usize::from(fin));
                self.tail_probe = Some(TailProbe { end: self.next, retransmission: true });
                Some(self.again(now, piece.end() - len, len - usize::from(fin), fin, unit))
            }
        }
    }

    /// Whether the last number of a piece is our FIN's.
    fn carries_fin(&self, piece: &Sent) -> bool {
        self.fin == Fin::Sent && piece.end() > self.data_end()
    }

    pub(super) fn first(&mut self, bytes: usize, fin: bool, unit: usize) -> Packet {
        let start = self.next;
        self.next += bytes + usize::from(fin);
        if fin {
            self.fin = Fin::Sent;
        }
        if !bytes.is_multiple_of(unit) {
            self.small_end = self.next;
        }
        let cwr = bytes > 0 && std::mem::take(&mut self.ecn.tell);
        // A window probe is no data that a mark would be of use for (RFC 3168 §6.1.6).
        let ect = self.ecn.enabled && bytes > 0 && !self.probing;
        let push = bytes > 0 && self.next >= self.data_end();
        Packet { start, bytes, segment_size: unit, fin, push, cwr, ect, retransmission: false }
    }

    fn again(&mut self, now: Instant, start: SequenceNumber, bytes: usize, fin: bool, unit: usize) -> Packet {
        let len = bytes + usize::from(fin);
        self.statistics.retransmitted += bytes.div_ceil(unit).max(1) as u64;
        if self.recovery == Recovery::Open {
            // A probe: it is no part of the reduction that could be undone.
            self.undo = None;
        }
        let was_retransmitted = self.scoreboard.retransmit(start, len, now);
        if let Some(undo) = &mut self.undo {
            undo.retransmitted += len;
            let (first, last) = undo.range.unwrap_or((start, start));
            undo.range = Some((first.min(start), last.max(start + len)));
            if undo.first.is_none() && !undo.is_decided {
                undo.first = self.clock.map(|clock| (start, clock.at(now)));
                // Whether an earlier retransmission arrives, or the original, could not be told.
                undo.is_decided = was_retransmitted;
            }
        }
        let push = bytes > 0 && start + bytes >= self.data_end();
        Packet { start, bytes, segment_size: unit, fin, push, cwr: false, ect: false, retransmission: true }
    }

    /// Timers, now that a packet leaves.
    fn sent(&mut self, packet: Packet, now: Instant, timers: &mut Timers) -> Packet {
        let len = packet.bytes + usize::from(packet.fin);
        if matches!(self.recovery, Recovery::Fast(_)) {
            self.prr.sent(len);
        }
        if !packet.retransmission {
            self.scoreboard.push(packet.start, len, now);
        }
        self.last_sent = Some(now);
        self.waiting_since.get_or_insert(now);
        if self.probing {
            timers.clear(Timer::Retransmission);
            timers.set(Timer::Persist, now + self.rtt.rto());
            return packet;
        }
        timers.clear(Timer::Persist);
        if !timers.is_set(Timer::Retransmission) {
            timers.set(Timer::Retransmission, now + self.rtt.rto());
        }
        self.schedule_tail_probe(now, timers);
        packet
    }
}

//! SEGMENT ARRIVES (RFC 9293 §3.10.7), with the checks of RFC 5961 and RFC 7323.

use std::time::{Duration, Instant};

use wire::ecn::Ecn;
use wire::tcp::{self, SegmentOptions};

use super::super::drops::DropReason;
use super::super::sender::Acknowledgement;
use super::super::sequence::SequenceNumber;
use super::super::state::{Error, State};
use super::super::timers::Timer;
use super::{CHALLENGE_INTERVAL, CHALLENGES, Connection, EcnState, Reset, TWICE_MSL};

/// A segment, its options read.
struct Incoming<'a> {
    sequence: SequenceNumber,
    ack: SequenceNumber,
    flags: u8,
    window: u16,
    urgent_pointer: u16,
    options: SegmentOptions,
    payload: &'a [u8],
}

impl<'a> Incoming<'a> {
    fn of(segment: &tcp::Segment<'a>) -> Self {
        Self {
            sequence: SequenceNumber(segment.sequence()),
            ack: SequenceNumber(segment.acknowledgement()),
            flags: segment.flags(),
            window: segment.window(),
            urgent_pointer: segment.urgent_pointer(),
            options: SegmentOptions::of(segment),
            payload: segment.payload(),
        }
    }

    fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// SEG.LEN.
    fn len(&self) -> usize {
        self.payload.len() + usize::from(self.has(tcp::SYN)) + usize::from(self.has(tcp::FIN))
    }
}

impl Connection {
    /// Takes a segment of this connection; `ecn` is the codepoint of its packet. Its checksum has been verified. It may
    /// be a GSO packet: many segments under one header. Returns why it went no further, if so; it may have been answered
    /// all the same.
    pub fn receive(&mut self, now: Instant, segment: &tcp::Segment<'_>, ecn: Ecn) -> Option<DropReason> {
        let segment = Incoming::of(segment);
        let result = match self.state {
            State::Closed => Err(DropReason::Closed),
            State::SynSent => self.receive_in_syn_sent(now, &segment),
            _ => self.receive_in_others(now, &segment, ecn),
        };
        self.watch_patience();
        result.err()
    }

    /// §3.10.7.3.
    fn receive_in_syn_sent(&mut self, now: Instant, segment: &Incoming<'_>) -> Result<(), DropReason> {
        let has_ack = segment.has(tcp::ACK);
        if has_ack && segment.ack != self.initial + 1 {
            if !segment.has(tcp::RST) {
                self.pending.reset = Some(Reset::Answer(segment.ack, segment.options.timestamps));
            }
            return Err(DropReason::Acknowledgement);
        }
        if segment.has(tcp::RST) {
            if !has_ack {
                return Err(DropReason::Flags);
            }
            self.end(Some(Error::Refused));
            return Ok(());
        }
        if !segment.has(tcp::SYN) {
            return Err(DropReason::Flags);
        }

        self.receiver.begin(segment.sequence + 1);
        let was_retransmitted = self.handshake.attempts > 1;
        if !has_ack {
            // Simultaneous open.
            self.state = State::SynReceived;
            if segment.has(tcp::ECE) && segment.has(tcp::CWR) && self.ecn == EcnState::Wanted {
                self.ecn = EcnState::Offered;
            }
            self.agree(now, &segment.options, was_retransmitted);
            self.sender.set_window(usize::from(segment.window), segment.sequence);
            self.pending.syn = true;
            return Ok(());
        }
        let accepts_ecn = segment.has(tcp::ECE) && !segment.has(tcp::CWR);
        self.ecn = if self.ecn == EcnState::Wanted && accepts_ecn { EcnState::On } else { EcnState::Off };
        self.take_handshake_rtt(now);
        self.agree(now, &segment.options, was_retransmitted);
        self.sender.set_window(usize::from(segment.window), segment.sequence);
        self.established(now);
        let fin = segment.has(tcp::FIN);
        let accepted =
            self.receiver.accept(now, segment.sequence + 1, segment.payload, fin, &mut self.timers);
        self.receiver.acknowledge_now();
        self.check_end(now);
        accepted
    }

    /// §3.10.7.4.
    fn receive_in_others(
        &mut self,
        now: Instant,
        segment: &Incoming<'_>,
        ecn: Ecn,
    ) -> Result<(), DropReason> {
        self.check_timestamps(now, segment)?;
        self.check_window(now, segment)?;
        if segment.has(tcp::RST) {
            return self.receive_reset(now, segment);
        }
        if segment.has(tcp::SYN) {
            self.challenge(now);
            return Err(DropReason::Challenged);
        }
        if !segment.has(tcp::ACK) {
            return Err(DropReason::Flags);
        }
        if self.state == State::SynReceived {
            self.complete_handshake(now, segment)?;
        }
        self.receive_acknowledgement(now, segment)?;
        self.take_timestamps(now, segment);
        self.last_received = now;
        self.keepalive_probes = 0;
        if self.ecn == EcnState::On {
            if segment.has(tcp::CWR) {
                self.echo_congestion = false;
            }
            if ecn == Ecn::Ce && !segment.payload.is_empty() {
                self.echo_congestion = true;
            }
        }
        if segment.has(tcp::URG) || self.urgent.is_some() {
            self.take_urgent(segment);
        }
        let end = segment.sequence + segment.payload.len();
        let has_news = !segment.payload.is_empty() && end > self.receiver.next();
        if !self.state.may_receive() {
            return if has_news { Err(DropReason::AfterFin) } else { Ok(()) };
        }
        if self.is_abandoned && has_news {
            self.abort();
            return Err(DropReason::Abandoned);
        }
        let fin = segment.has(tcp::FIN);
        let accepted = self.receiver.accept(now, segment.sequence, segment.payload, fin, &mut self.timers);
        self.check_end(now);
        accepted
    }

    /// The sixth check. Bytes are delivered in their place, urgent or not (RFC 6093).
    fn take_urgent(&mut self, segment: &Incoming<'_>) {
        let read = self.read_up_to();
        let said = segment.sequence + usize::from(segment.urgent_pointer);
        let is_new = segment.has(tcp::URG) && self.state.may_receive() && said > read;
        let known = self.urgent.filter(|end| *end > read);
        self.urgent = if is_new { Some(known.map_or(said, |end| end.max(said))) } else { known };
    }

    /// RFC 7323 §5.3 R3, and the round trip as a receiver sees it.
    fn take_timestamps(&mut self, now: Instant, segment: &Incoming<'_>) {
        let has_text = !segment.payload.is_empty();
        if let (Some(recent), Some(timestamps)) = (&mut self.recent, segment.options.timestamps) {
            recent.update(now, timestamps, segment.sequence, self.receiver.last_ack());
            if has_text {
                let ms = self.clock.at(now).wrapping_sub(timestamps.echo);
                self.receiver.round_trip(now, Duration::from_millis(u64::from(ms)));
            }
        } else if let (true, Some(rtt)) = (has_text, self.sender.smoothed_rtt()) {
            self.receiver.round_trip(now, rtt);
        }
    }

    /// RFC 7323 §5.3 R1. A segment without timestamps is not of this connection (§3.2), except RST.
    fn check_timestamps(&mut self, now: Instant, segment: &Incoming<'_>) -> Result<(), DropReason> {
        let Some(recent) = self.recent else { return Ok(()) };
        if segment.has(tcp::RST) {
            return Ok(());
        }
        let Some(timestamps) = segment.options.timestamps else {
            // A SYN is of another connection: it is answered, so that its sender learns of this one (RFC 5961 §4.2).
            let may_lack = self.state == State::SynReceived || segment.has(tcp::SYN);
            return if may_lack { Ok(()) } else { Err(DropReason::NoTimestamp) };
        };
        if !recent.is_old(now, timestamps) {
            return Ok(());
        }
        if segment.len() > 0 && !segment.has(tcp::SYN) {
            self.note_repetition(segment);
            self.receiver.acknowledge_now();
        } else {
            self.challenge(now);
        }
        Err(DropReason::OldTimestamp)
    }

    /// The first check. What is outside of the window is answered, so that a lost acknowledgement is sent again.
    fn check_window(&mut self, now: Instant, segment: &Incoming<'_>) -> Result<(), DropReason> {
        if self.receiver.is_acceptable(segment.sequence, segment.len()) {
            return Ok(());
        }
        if segment.has(tcp::RST) {
            // A closed window takes no text, but a RST that may have some (RFC 9293 §3.10.7.4, MUST-66; §3.5.3).
            let is_next = segment.sequence == self.receiver.next();
            return if is_next { Ok(()) } else { Err(DropReason::OutsideWindow) };
        }
        if self.receiver.window() == 0 && segment.sequence == self.receiver.next() && !segment.has(tcp::SYN) {
            // A window probe: its acknowledgement counts, its text is cut.
            self.receiver.acknowledge_now();
            return Ok(());
        }
        if self.state == State::TimeWait && segment.has(tcp::FIN) {
            self.timers.set(Timer::TimeWait, now + TWICE_MSL);
        }
        if segment.payload.is_empty() && !segment.has(tcp::FIN) {
            // Two ends that each find the other outside of the window must not answer each other for ever.
            self.challenge(now);
        } else {
            self.note_repetition(segment);
            self.receiver.acknowledge_now();
        }
        Err(DropReason::OutsideWindow)
    }

    fn note_repetition(&mut self, segment: &Incoming<'_>) {
        self.receiver.note_duplicate(segment.sequence, segment.sequence + segment.payload.len());
    }

    /// The second check, as RFC 5961 §3.2 has it: only the very next number resets.
    fn receive_reset(&mut self, now: Instant, segment: &Incoming<'_>) -> Result<(), DropReason> {
        if segment.sequence != self.receiver.next() {
            self.challenge(now);
            return Err(DropReason::Challenged);
        }
        let error = match self.state {
            State::SynReceived => Some(Error::Refused),
            State::Closing | State::LastAck | State::TimeWait => None,
            _ => Some(Error::Reset),
        };
        self.end(error);
        Ok(())
    }

    /// An acknowledgement that asks whether they meant it (RFC 5961), in bounded number.
    fn challenge(&mut self, now: Instant) {
        let is_over = self
            .challenges_since
            .is_none_or(|since| now.saturating_duration_since(since) >= CHALLENGE_INTERVAL);
        if is_over {
            self.challenges_since = Some(now);
            self.challenges = 0;
        }
        if self.challenges < CHALLENGES {
            self.challenges += 1;
            self.receiver.acknowledge_now();
        }
    }

    /// The fifth check in SYN-RECEIVED.
    fn complete_handshake(&mut self, now: Instant, segment: &Incoming<'_>) -> Result<(), DropReason> {
        if segment.ack != self.initial + 1 {
            self.pending.reset = Some(Reset::Answer(segment.ack, segment.options.timestamps));
            return Err(DropReason::Acknowledgement);
        }
        self.pending.syn = false;
        self.take_handshake_rtt(now);
        self.ecn = if self.ecn == EcnState::Offered { EcnState::On } else { EcnState::Off };
        self.sender.set_ecn(self.ecn == EcnState::On);
        self.sender.set_window(self.scaled(segment), segment.sequence);
        self.established(now);
        Ok(())
    }

    fn take_handshake_rtt(&mut self, now: Instant) {
        match self.handshake.sent_at {
            Some(sent_at) if self.handshake.attempts == 1 => {
                self.sender.rtt().sample(now, now.saturating_duration_since(sent_at));
            }
            _ => self.sender.rtt().syn_timed_out(),
        }
    }

    fn scaled(&self, segment: &Incoming<'_>) -> usize {
        usize::from(segment.window) << self.remote_scale
    }

    /// The fifth check. If the acknowledgement is of something never sent, or too old, nothing of the segment is believed
    /// (RFC 5961 §5.2).
    fn receive_acknowledgement(&mut self, now: Instant, segment: &Incoming<'_>) -> Result<(), DropReason> {
        let (una, next) = (self.sender.una(), self.sender.next());
        let oldest = una - self.sender.max_window();
        if segment.ack > next || segment.ack < oldest {
            self.challenge(now);
            return Err(DropReason::Acknowledgement);
        }
        if segment.ack < una {
            return Ok(());
        }
        let acknowledgement = Acknowledgement {
            sequence: segment.sequence,
            ack: segment.ack,
            window: self.scaled(segment),
            sack: segment.options.sack,
            echo: segment.options.timestamps.filter(|_| self.recent.is_some()).map(|t| t.echo),
            congestion_echo: segment.has(tcp::ECE),
            is_pure: segment.len() == 0,
        };
        self.sender.acknowledge(now, &acknowledgement, &mut self.timers);
        if segment.ack > una {
            self.soft_error = None;
            self.our_urgent = self.our_urgent.filter(|end| *end > segment.ack);
        }
        if self.sender.fin_is_acknowledged() {
            match self.state {
                State::FinWait1 => {
                    self.state = State::FinWait2;
                    self.bound_fin_wait_2(now);
                }
                State::Closing => self.enter_time_wait(now),
                State::LastAck => self.end(None),
                _ => {}
            }
        }
        Ok(())
    }

    /// The eighth check: their FIN, in its turn.
    fn check_end(&mut self, now: Instant) {
        if !self.receiver.has_ended() {
            return;
        }
        match self.state {
            State::Established => self.state = State::CloseWait,
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }
}

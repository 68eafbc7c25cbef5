//! What leaves: SYN, data, acknowledgements, probes and RST.

use std::time::Instant;

use wire::ecn::Ecn;
use wire::tcp::{self, Header, SackBlocks, SegmentOptions, Timestamps};

use super::super::packet::{Transmit, reset_options};
use super::super::sender::Packet;
use super::super::sequence::SequenceNumber;
use super::super::state::State;
use super::super::timers::Timer;
use super::{Connection, EcnState, RELEASE_AFTER, Reset};

impl Connection {
    /// Writes the next packet behind what is in `out`: TCP header and payload. More payload than fits a segment makes a
    /// GSO packet, up to `max_gso` bytes; 0 means that each segment is to be a packet of its own. `None` if nothing
    /// is to be sent now.
    pub fn poll_transmit(&mut self, now: Instant, max_gso: usize, out: &mut Vec<u8>) -> Option<Transmit> {
        let packet = self.poll_transmit_header(now, max_gso, out)?;
        self.write_payload(&packet, out);
        Some(packet)
    }

    /// Writes the payload of the packet whose header was written last behind it.
    pub fn write_payload(&self, packet: &Transmit, out: &mut Vec<u8>) {
        let (first, second) = self.payload_of(packet);
        out.reserve(first.len() + second.len());
        out.extend_from_slice(first);
        out.extend_from_slice(second);
    }

    /// The payload of the packet whose header was written last, in one or two pieces.
    pub fn payload_of(&self, packet: &Transmit) -> (&[u8], &[u8]) {
        self.sender.payload(packet.offset, packet.payload_len)
    }

    /// As [`poll_transmit`](Self::poll_transmit), without the payload, which is the caller's to take before anything else is
    /// done to the connection.
    pub fn poll_transmit_header(
        &mut self,
        now: Instant,
        max_gso: usize,
        out: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some(reset) = self.pending.reset.take() {
            return Some(self.transmit_reset(now, reset, out));
        }
        if self.pending.syn {
            return Some(self.transmit_syn(now, out));
        }
        if matches!(self.state, State::SynSent | State::Closed) {
            return None;
        }
        if self.state.may_transmit() {
            let sack = self.sack_len();
            // An urgent pointer counts from its own segment.
            let max_gso = if self.our_urgent.is_some() { 0 } else { max_gso };
            if let Some(packet) = self.sender.transmit(now, max_gso, sack, &mut self.timers) {
                self.watch_patience();
                return Some(self.transmit_data(now, &packet, out));
            }
        }
        if self.receiver.owes() {
            let sequence = self.acceptable_sequence();
            return Some(self.transmit_empty(now, sequence, out));
        }
        if std::mem::take(&mut self.pending.keepalive) {
            // A number that was acknowledged: it makes them say so again (RFC 9293 §3.8.4).
            let sequence = self.sender.next() - 1;
            return Some(self.transmit_empty(now, sequence, out));
        }
        if self.holds_nothing() && self.heap() > 0 && !self.timers.is_set(Timer::Release) {
            self.timers.set(Timer::Release, now + RELEASE_AFTER);
        }
        None
    }

    fn transmit_syn(&mut self, now: Instant, out: &mut Vec<u8>) -> Transmit {
        self.pending.syn = false;
        self.handshake.attempts = self.handshake.attempts.saturating_add(1);
        self.handshake.sent_at = Some(now);
        self.timers.set(Timer::Retransmission, now + self.sender.rtt().rto());
        self.sender.rtt().back_off();

        let is_answer = self.state == State::SynReceived;
        let mut flags = tcp::SYN;
        if is_answer {
            flags |= tcp::ACK;
        }
        flags |= match self.ecn {
            EcnState::Wanted if !is_answer => tcp::ECE | tcp::CWR,
            EcnState::Offered => tcp::ECE,
            _ => 0,
        };
        // An answer takes only what was offered (RFC 7323 §§1.3, 3.2; RFC 2018 §2).
        let has_timestamps = !is_answer || self.recent.is_some();
        let options = SegmentOptions {
            maximum_segment_size: Some(self.max_segment_size),
            window_scale: (!is_answer || self.receiver.is_scaled()).then_some(self.scale),
            sack_permitted: !is_answer || self.sack,
            timestamps: has_timestamps.then(|| self.timestamps(now)),
            sack: SackBlocks::default(),
        };
        let window = self.receiver.unscaled_window();
        let header = Header { flags, window, options, ..self.header(self.initial) };
        Transmit::write_header(out, &header)
    }

    fn transmit_data(&mut self, now: Instant, packet: &Packet, out: &mut Vec<u8>) -> Transmit {
        let mut header = self.acknowledging(now, packet.start);
        if packet.fin {
            header.flags |= tcp::FIN;
        }
        if packet.push {
            header.flags |= tcp::PSH;
        }
        if packet.cwr {
            header.flags |= tcp::CWR;
        }
        let ecn = if packet.ect { Ecn::Ect0 } else { Ecn::NotEct };
        let segment_size = (packet.bytes > packet.segment_size).then_some(packet.segment_size as u16);
        let offset = packet.start.since(self.sender.una());
        Transmit {
            payload_len: packet.bytes,
            segment_size,
            ecn,
            offset,
            ..Transmit::write_header(out, &header)
        }
    }

    fn transmit_empty(&mut self, now: Instant, sequence: SequenceNumber, out: &mut Vec<u8>) -> Transmit {
        let header = self.acknowledging(now, sequence);
        Transmit::write_header(out, &header)
    }

    fn transmit_reset(&mut self, now: Instant, reset: Reset, out: &mut Vec<u8>) -> Transmit {
        let header = match reset {
            Reset::Answer(sequence, theirs) => {
                let options = reset_options(theirs);
                Header { flags: tcp::RST, acknowledgement: 0, options, ..self.header(sequence) }
            }
            Reset::Abort => {
                let header = self.acknowledging(now, self.acceptable_sequence());
                Header { flags: tcp::ACK | tcp::RST, urgent_pointer: 0, ..header }
            }
        };
        Transmit::write_header(out, &header)
    }

    /// A header that acknowledges everything; it counts as sent.
    fn acknowledging(&mut self, now: Instant, sequence: SequenceNumber) -> Header {
        let echo = if self.echo_congestion { tcp::ECE } else { 0 };
        let sack = if self.sack { self.receiver.sack_blocks() } else { SackBlocks::default() };
        let timestamps = self.recent.map(|_| self.timestamps(now));
        let options = SegmentOptions { timestamps, sack, ..SegmentOptions::default() };
        let window = self.receiver.tell(&mut self.timers);
        let mut header = Header { flags: tcp::ACK | echo, window, options, ..self.header(sequence) };
        if let Some(end) = self.our_urgent.filter(|end| *end > sequence) {
            header.flags |= tcp::URG;
            header.urgent_pointer = u16::try_from(end.since(sequence)).unwrap_or(u16::MAX);
        }
        header
    }

    fn header(&self, sequence: SequenceNumber) -> Header {
        let knows_theirs = self.state != State::SynSent;
        Header {
            source_port: self.local_port,
            destination_port: self.remote_port,
            sequence: sequence.0,
            acknowledgement: if knows_theirs { self.receiver.next().0 } else { 0 },
            ..Header::default()
        }
    }

    fn timestamps(&self, now: Instant) -> Timestamps {
        Timestamps { value: self.clock.at(now), echo: self.recent.map_or(0, |recent| recent.value) }
    }

    /// What the SACK option of the next segment takes.
    fn sack_len(&self) -> usize {
        if !self.sack || !self.receiver.has_sack_blocks() {
            return 0;
        }
        let most = if self.recent.is_some() { SackBlocks::MAX - 1 } else { SackBlocks::MAX };
        4 + 8 * most
    }

    /// SND.NXT, or the edge of their window where it has moved left of that: a number behind it would not be believed.
    fn acceptable_sequence(&self) -> SequenceNumber {
        self.sender.next().min(self.sender.window_edge())
    }
}

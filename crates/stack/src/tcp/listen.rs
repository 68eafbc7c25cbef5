//! LISTEN and the SYN-RECEIVED of a passive open (RFC 9293 §3.10.7.2 and §3.10.7.4; RFC 4987).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use wire::ecn::Ecn;
use wire::tcp::{self, Header, SackBlocks, Segment, SegmentOptions, Timestamps};

use super::config::Config;
use super::connection::{Accepted, Connection};
use super::drops::DropReason;
use super::isn::{Flow, Secrets};
use super::packet::{Transmit, reset_for};
use super::sequence::SequenceNumber;
use super::syn_cookie;

/// Half-open connections kept at most. Each holds 200 bytes until its SYN has been answered five times, so a flood of SYNs
/// takes 50 KB and no more; those that find no room get a cookie.
pub const MAX_HALF_OPEN: usize = 256;
/// The first wait for the acknowledgement of a SYN; each further one is twice as long.
const SYN_ACK_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a SYN is answered: the last wait ends after 31 s. The three minutes of RFC 9293 §3.8.3 are for who opens: it
/// asks again.
const SYN_ACK_ATTEMPTS: u8 = 5;
/// After a cookie was sent, acknowledgements are taken for answers to one for so long (twice what it is good for).
const COOKIES_RETURN_WITHIN: Duration = Duration::from_secs(128);

/// Waits for connections to one port.
#[derive(Debug)]
pub struct Listener {
    config: Config,
    secrets: Secrets,
    half_open: BTreeMap<Flow, HalfOpen>,
    cookie_sent: Option<Instant>,
    paused: bool,
}

/// A connection in SYN-RECEIVED.
#[derive(Debug)]
struct HalfOpen {
    initial: SequenceNumber,
    remote_initial: SequenceNumber,
    options: SegmentOptions,
    ecn: bool,
    attempts: u8,
    sent_at: Instant,
    /// When the SYN is to be answered again; `None` if that is now.
    again_at: Option<Instant>,
}

/// What a segment led to.
#[derive(Debug)]
pub enum Reaction {
    /// Nothing to do: a half-open connection is gone.
    None,
    /// The segment went no further.
    Dropped(DropReason),
    /// A packet to send back was written.
    Reply(Transmit),
    /// A connection is established. It has already received the segment.
    Established(Box<Connection>),
}

impl Listener {
    /// A listener whose connections have this configuration.
    pub fn new(config: Config, secrets: Secrets) -> Self {
        Self { config, secrets, half_open: BTreeMap::new(), cookie_sent: None, paused: false }
    }

    /// Whether to leave SYNs and the ends of handshakes alone: the user does not take more connections now. The other
    /// ends try again.
    pub fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Connections in SYN-RECEIVED.
    pub fn half_open(&self) -> usize {
        self.half_open.len()
    }

    /// Takes a segment to this port that belongs to no connection. A reply is written behind what is in `out`.
    pub fn receive(
        &mut self,
        now: Instant,
        flow: &Flow,
        segment: &Segment<'_>,
        ecn: Ecn,
        out: &mut Vec<u8>,
    ) -> Reaction {
        let flags = segment.flags();
        if let Some(half_open) = self.half_open.get(flow) {
            let expected = half_open.remote_initial + 1;
            let sequence = SequenceNumber(segment.sequence());
            let window = usize::from(self.config.initial_window());
            let is_in_window = expected <= sequence && sequence < expected + window.max(1);
            let is_same_syn = flags & tcp::SYN != 0 && sequence == half_open.remote_initial;
            if is_same_syn && flags & (tcp::RST | tcp::ACK) == 0 {
                return self.answer_again(now, flow, out);
            }
            if flags & tcp::RST != 0 {
                if sequence != expected {
                    // RFC 5961 §3.2: whoever sent it is asked whether that was meant, if it could have been.
                    return if is_in_window {
                        Reaction::Reply(self.acknowledge(now, flow, half_open, out))
                    } else {
                        Reaction::Dropped(DropReason::OutsideWindow)
                    };
                }
                self.half_open.remove(flow);
                return Reaction::None;
            }
            if !is_in_window {
                return Reaction::Reply(self.acknowledge(now, flow, half_open, out));
            }
            if flags & tcp::SYN != 0 {
                // Back to LISTEN.
                self.half_open.remove(flow);
                return Reaction::None;
            }
            if flags & tcp::ACK == 0 {
                return Reaction::Dropped(DropReason::Flags);
            }
            if SequenceNumber(segment.acknowledgement()) != half_open.initial + 1 {
                return reset(segment, out);
            }
            return self.complete(now, flow, segment, ecn);
        }
        if flags & tcp::RST != 0 {
            return Reaction::Dropped(DropReason::Flags);
        }
        if flags & tcp::ACK != 0 {
            return self.receive_acknowledgement(now, flow, segment, ecn, out);
        }
        if flags & tcp::SYN == 0 || flags & tcp::FIN != 0 {
            return Reaction::Dropped(DropReason::Flags);
        }
        if self.paused {
            return Reaction::Dropped(DropReason::Paused);
        }
        self.receive_syn(now, flow, segment, out)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.half_open.values().filter_map(|half_open| half_open.again_at).min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.half_open.retain(|_, half_open| {
            if half_open.again_at.is_none_or(|at| at > now) {
                return true;
            }
            half_open.again_at = None;
            half_open.attempts < SYN_ACK_ATTEMPTS
        });
    }

    /// Writes the next packet that is due behind what is in `out`, and says whose it is.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<(Flow, Transmit)> {
        let flow = *self.half_open.iter().find(|(_, half_open)| half_open.again_at.is_none())?.0;
        match self.answer_again(now, &flow, out) {
            Reaction::Reply(transmit) => Some((flow, transmit)),
            _ => None,
        }
    }

    fn receive_syn(
        &mut self,
        now: Instant,
        flow: &Flow,
        segment: &Segment<'_>,
        out: &mut Vec<u8>,
    ) -> Reaction {
        let remote_initial = SequenceNumber(segment.sequence());
        let options = SegmentOptions { sack: SackBlocks::default(), ..SegmentOptions::of(segment) };
        let asks_for_ecn = segment.flags() & (tcp::ECE | tcp::CWR) == tcp::ECE | tcp::CWR;
        let ecn = asks_for_ecn && self.config.ecn;
        if self.half_open.len() < MAX_HALF_OPEN {
            let initial = self.secrets.initial_sequence_number(now, flow);
            let half_open =
                HalfOpen { initial, remote_initial, options, ecn, attempts: 0, sent_at: now, again_at: None };
            self.half_open.insert(*flow, half_open);
            return self.answer_again(now, flow, out);
        }
        self.cookie_sent = Some(now);
        let mss = options.maximum_segment_size.unwrap_or_else(|| flow.default_mss());
        let initial = syn_cookie::make(&self.secrets, now, flow, remote_initial, mss);
        let value = syn_cookie::timestamp(self.secrets.timestamp_clock(flow).at(now), &options, ecn);
        // What only a timestamp can remember is not offered without one.
        let has_timestamps = options.timestamps.is_some();
        let offered = SegmentOptions {
            window_scale: options.window_scale.filter(|_| has_timestamps),
            sack_permitted: options.sack_permitted && has_timestamps,
            ..options
        };
        let header = self.syn_ack(flow, initial, remote_initial, &offered, value, ecn && has_timestamps);
        Reaction::Reply(Transmit::write_header(out, &header))
    }

    /// Sends the SYN-ACK of a half-open connection, first or again.
    fn answer_again(&mut self, now: Instant, flow: &Flow, out: &mut Vec<u8>) -> Reaction {
        let value = self.secrets.timestamp_clock(flow).at(now);
        let Some(half_open) = self.half_open.get_mut(flow) else { return Reaction::None };
        // As often as the other end asks, but the time until it is forgotten goes on.
        let wait = SYN_ACK_TIMEOUT * (1 << half_open.attempts.min(SYN_ACK_ATTEMPTS));
        half_open.attempts = half_open.attempts.saturating_add(1);
        half_open.sent_at = now;
        half_open.again_at = Some(now + wait);
        let HalfOpen { initial, remote_initial, options, ecn, .. } = *half_open;
        let header = self.syn_ack(flow, initial, remote_initial, &options, value, ecn);
        Reaction::Reply(Transmit::write_header(out, &header))
    }

    fn syn_ack(
        &self,
        flow: &Flow,
        initial: SequenceNumber,
        remote_initial: SequenceNumber,
        theirs: &SegmentOptions,
        value: u32,
        ecn: bool,
    ) -> Header {
        let options = SegmentOptions {
            maximum_segment_size: Some(self.config.max_segment_size),
            window_scale: theirs.window_scale.map(|_| self.config.window_scale()),
            sack_permitted: theirs.sack_permitted,
            timestamps: theirs.timestamps.map(|theirs| Timestamps { value, echo: theirs.value }),
            sack: SackBlocks::default(),
        };
        Header {
            source_port: flow.local.port(),
            destination_port: flow.remote.port(),
            sequence: initial.0,
            acknowledgement: (remote_initial + 1).0,
            flags: tcp::SYN | tcp::ACK | if ecn { tcp::ECE } else { 0 },
            window: self.config.initial_window(),
            options,
            ..Header::default()
        }
    }

    /// What a segment outside of the window is answered with.
    fn acknowledge(&self, now: Instant, flow: &Flow, half_open: &HalfOpen, out: &mut Vec<u8>) -> Transmit {
        let value = self.secrets.timestamp_clock(flow).at(now);
        let HalfOpen { initial, remote_initial, options, .. } = half_open;
        let syn_ack = self.syn_ack(flow, *initial, *remote_initial, options, value, false);
        let timestamps = syn_ack.options.timestamps;
        let header = Header {
            sequence: (*initial + 1).0,
            flags: tcp::ACK,
            options: SegmentOptions { timestamps, ..SegmentOptions::default() },
            ..syn_ack
        };
        Transmit::write_header(out, &header)
    }

    fn complete(&mut self, now: Instant, flow: &Flow, segment: &Segment<'_>, ecn: Ecn) -> Reaction {
        if self.paused {
            return Reaction::Dropped(DropReason::Paused);
        }
        let Some(half_open) = self.half_open.remove(flow) else { return Reaction::None };
        let was_lost = half_open.attempts > 1;
        let rtt = (!was_lost).then(|| now.saturating_duration_since(half_open.sent_at));
        let accepted = Accepted {
            initial: half_open.initial,
            remote_initial: half_open.remote_initial,
            options: half_open.options,
            clock: self.secrets.timestamp_clock(flow),
            ecn: half_open.ecn,
            rtt,
            was_lost,
        };
        self.established(now, flow, &accepted, segment, ecn)
    }

    /// An acknowledgement of nothing that is known: perhaps of a cookie.
    fn receive_acknowledgement(
        &mut self,
        now: Instant,
        flow: &Flow,
        segment: &Segment<'_>,
        ecn: Ecn,
        out: &mut Vec<u8>,
    ) -> Reaction {
        let recently = |at| now.saturating_duration_since(at) < COOKIES_RETURN_WITHIN;
        if segment.flags() & tcp::SYN != 0 || !self.cookie_sent.is_some_and(recently) {
            return reset(segment, out);
        }
        let initial = SequenceNumber(segment.acknowledgement()) - 1;
        let remote_initial = SequenceNumber(segment.sequence()) - 1;
        let timestamps = SegmentOptions::of(segment).timestamps;
        let remembered = syn_cookie::check(&self.secrets, now, flow, remote_initial, initial, timestamps);
        let Some(remembered) = remembered else { return reset(segment, out) };
        if self.paused {
            return Reaction::Dropped(DropReason::Paused);
        }
        let accepted = Accepted {
            initial,
            remote_initial,
            options: remembered.options,
            clock: self.secrets.timestamp_clock(flow),
            ecn: remembered.ecn && self.config.ecn,
            rtt: None,
            was_lost: false,
        };
        self.established(now, flow, &accepted, segment, ecn)
    }

    fn established(
        &self,
        now: Instant,
        flow: &Flow,
        accepted: &Accepted,
        segment: &Segment<'_>,
        ecn: Ecn,
    ) -> Reaction {
        let mut connection = Connection::accepted(now, flow, &self.config, accepted);
        connection.receive(now, segment, ecn);
        Reaction::Established(Box::new(connection))
    }
}

fn reset(segment: &Segment<'_>, out: &mut Vec<u8>) -> Reaction {
    reset_for(segment, out).map_or(Reaction::None, Reaction::Reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_open_connection_holds_200_bytes() {
        let held = size_of::<Flow>() + size_of::<HalfOpen>();
        assert!(held <= 200, "{held}");
    }
}

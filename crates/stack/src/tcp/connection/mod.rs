//! One connection: the transmission control block (RFC 9293 §3.3), its user's calls and its timers.
//!
//! Segments come in through `receive` and go out through `transmit`.

mod receive;
mod transmit;

use std::time::{Duration, Instant};

use wire::tcp::{SegmentOptions, Timestamps};

use super::config::{Config, KeepAlive, MAX_WINDOW_SCALE};
use super::isn::{Flow, Secrets};
use super::receiver::Receiver;
use super::sender::{Agreed, Sender, Statistics};
use super::sequence::SequenceNumber;
use super::state::{Error, State};
use super::timers::{Timer, Timers};
use super::timestamps::{Recent, TimestampClock};

/// Twice the maximum segment lifetime: RFC 9293 §3.4.2 proposes two minutes for one, but leaves it to be chosen; hosts
/// use half a minute, which is longer than any packet lives today.
const TWICE_MSL: Duration = Duration::from_secs(60);
/// How long a SYN is sent again (R2 of RFC 9293 §3.8.3 must be at least 3 minutes for it).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(180);
/// A SYN that asks for ECN is lost so often, and the next ones do not ask: some paths drop it (RFC 3168 §6.1.1.1).
const ECN_SYN_ATTEMPTS: u8 = 1;
/// Challenge acknowledgements, and answers to segments outside of the window, in each interval (RFC 5961 §7). The limit
/// is each connection's own: a shared one tells an attacker what others receive (CVE-2016-5696).
const CHALLENGES: u8 = 10;
const CHALLENGE_INTERVAL: Duration = Duration::from_secs(5);
/// Keepalives are no flood, whatever the configuration says.
const LEAST_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// One probe or its answer may be lost (MUST-29 of RFC 9293 §3.8.4).
const LEAST_KEEPALIVE_PROBES: u8 = 2;
/// R1 of RFC 9293 §3.8.3: segments sent again so often are worth a word to the user.
const R1: u8 = 3;
/// Buffers that are empty are kept so long for what may follow.
const RELEASE_AFTER: Duration = Duration::from_secs(1);
/// No host means less; one that says so wants us to send headers (CVE-2019-11479).
const LEAST_MSS: u16 = 64;

/// One connection, from its SYN to the end of TIME-WAIT.
///
/// Whoever holds it hands in segments ([`receive`](Self::receive)), time
/// ([`handle_timeout`](Self::handle_timeout) at [`deadline`](Self::deadline)) and data, and calls
/// [`poll_transmit`](Self::poll_transmit) after each of these calls until there is nothing more to send.
#[derive(Debug)]
pub struct Connection {
    state: State,
    error: Option<Error>,
    /// Something was heard that is no reason to give up, only one to give if we do.
    soft_error: Option<Error>,
    is_abandoned: bool,
    local_port: u16,
    remote_port: u16,
    sender: Sender,
    receiver: Receiver,
    timers: Timers,
    /// ISS.
    initial: SequenceNumber,
    handshake: HandshakeState,
    max_segment_size: u16,
    /// Our shift, offered or agreed on, and theirs.
    scale: u8,
    remote_scale: u8,
    clock: TimestampClock,
    /// RCV.UP and SND.UP: where urgent data ends, theirs until it is read, ours until it is acknowledged.
    urgent: Option<SequenceNumber>,
    our_urgent: Option<SequenceNumber>,
    /// What the other end takes if it does not say so.
    default_mss: u16,
    /// TS.Recent; `None` unless both ends use timestamps.
    recent: Option<Recent>,
    sack: bool,
    ecn: EcnState,
    /// CE was received: ECE until they answer CWR (RFC 3168 §6.1.3).
    echo_congestion: bool,
    pending: Pending,
    challenges: u8,
    challenges_since: Option<Instant>,
    user_timeout: Duration,
    keepalive: Option<KeepAlive>,
    keepalive_probes: u8,
    last_received: Instant,
}

/// What is to be sent beside data and acknowledgements.
#[derive(Debug, Default)]
struct Pending {
    syn: bool,
    keepalive: bool,
    reset: Option<Reset>,
}

/// A RST to send.
#[derive(Debug, Clone, Copy)]
enum Reset {
    /// With this sequence number, in answer to a segment with these timestamps; the connection goes on.
    Answer(SequenceNumber, Option<Timestamps>),
    /// The end.
    Abort,
}

#[derive(Debug)]
struct HandshakeState {
    /// SYN segments sent.
    attempts: u8,
    sent_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EcnState {
    Off,
    /// To be asked for, or asked for.
    Wanted,
    /// Their SYN asks for it, and we agree.
    Offered,
    On,
}

/// What a listener knows once a handshake is complete.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accepted {
    pub(super) initial: SequenceNumber,
    pub(super) remote_initial: SequenceNumber,
    /// Of their SYN, as far as both ends use them.
    pub(super) options: SegmentOptions,
    pub(super) clock: TimestampClock,
    pub(super) ecn: bool,
    /// `None` if a SYN was sent more than once, or nobody remembers when.
    pub(super) rtt: Option<Duration>,
    pub(super) was_lost: bool,
}

impl Connection {
    /// Opens a connection (RFC 9293 §3.10.1, active OPEN).
    pub fn connect(now: Instant, flow: &Flow, secrets: &Secrets, config: &Config) -> Self {
        let initial = secrets.initial_sequence_number(now, flow);
        let clock = secrets.timestamp_clock(flow);
        let mut connection = Self::new(now, flow, config, initial, clock, State::SynSent);
        connection.pending.syn = true;
        connection.timers.set(Timer::UserTimeout, now + config.user_timeout.min(CONNECT_TIMEOUT));
        connection
    }

    /// A connection whose handshake a listener has completed. The acknowledgement that completed it is to be handed to
    /// [`receive`](Self::receive).
    pub(super) fn accepted(now: Instant, flow: &Flow, config: &Config, accepted: &Accepted) -> Self {
        let mut connection =
            Self::new(now, flow, config, accepted.initial, accepted.clock, State::Established);
        connection.receiver.begin(accepted.remote_initial + 1);
        connection.ecn = if accepted.ecn { EcnState::On } else { EcnState::Off };
        match accepted.rtt {
            Some(rtt) => connection.sender.rtt().sample(now, rtt),
            None if accepted.was_lost => connection.sender.rtt().syn_timed_out(),
            None => {}
        }
        connection.agree(now, &accepted.options, accepted.was_lost);
        connection.sender.set_window(0, accepted.remote_initial);
        connection.established(now);
        connection
    }

    fn new(
        now: Instant,
        flow: &Flow,
        config: &Config,
        initial: SequenceNumber,
        clock: TimestampClock,
        state: State,
    ) -> Self {
        Self {
            state,
            error: None,
            soft_error: None,
            is_abandoned: false,
            local_port: flow.local.port(),
            remote_port: flow.remote.port(),
            sender: Sender::new(initial + 1, config.max_send_buffer, config.nagle, config.pacing),
            receiver: Receiver::new(config.max_receive_buffer, usize::from(config.max_segment_size)),
            timers: Timers::default(),
            initial,
            handshake: HandshakeState { attempts: 0, sent_at: None },
            max_segment_size: config.max_segment_size,
            scale: config.window_scale(),
            remote_scale: 0,
            clock,
            urgent: None,
            our_urgent: None,
            default_mss: flow.default_mss(),
            recent: None,
            sack: false,
            ecn: if config.ecn { EcnState::Wanted } else { EcnState::Off },
            echo_congestion: false,
            pending: Pending::default(),
            challenges: 0,
            challenges_since: None,
            user_timeout: config.user_timeout,
            keepalive: config.keepalive,
            keepalive_probes: 0,
            last_received: now,
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why the connection ended, if not because both ends closed it.
    pub fn error(&self) -> Option<Error> {
        self.error
    }

    /// What is in the way now, though the connection goes on (RFC 9293 §3.9.1.8): an ICMP error, security, or segments that
    /// had to be sent again three times. It is gone as soon as something is acknowledged.
    pub fn soft_error(&self) -> Option<Error> {
        let is_late =
            self.sender.timeouts() >= R1 || self.state == State::SynSent && self.handshake.attempts > R1;
        self.soft_error.or(is_late.then_some(Error::TimedOut)).filter(|_| self.state != State::Closed)
    }

    /// Whether there is nothing left to do: the connection can be dropped once
    /// [`poll_transmit`](Self::poll_transmit) has nothing more.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed && self.pending.reset.is_none()
    }

    /// Writes to the send buffer, and returns how many bytes found room. Before the connection is established they wait;
    /// after [`close`](Self::close) there is no room.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if self.state.may_write() { self.sender.write(bytes) } else { 0 }
    }

    /// As [`write`](Self::write), and tells the other end that it is urgent, up to where this ends (RFC 9293 §3.8.5). New
    /// applications should not need that.
    pub fn write_urgent(&mut self, bytes: &[u8]) -> usize {
        let written = self.write(bytes);
        if written > 0 {
            self.our_urgent = Some(self.sender.data_end());
        }
        written
    }

    /// How much of what is still to be read they call urgent, from where reading is (RFC 9293 §3.8.5): it may be more than
    /// has arrived. `None` if nothing is.
    pub fn urgent(&self) -> Option<usize> {
        let left = self.urgent?.since(self.read_up_to());
        // Behind their FIN there is nothing, whatever they said.
        let left = if self.receiver.has_ended() { left.min(self.receiver.readable()) } else { left };
        (left > 0).then_some(left)
    }

    /// Reads what has arrived, in order, and returns how many bytes that is. 0 means that nothing is there, or, if
    /// [`has_ended`](Self::has_ended), that nothing more comes. Urgent data is in its place in the stream.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        self.receiver.read(out)
    }

    /// Nothing more will be written: a FIN follows what is in the send buffer (RFC 9293 §3.10.4). What the other end
    /// still sends can be read; so this is a half close until it closes, too.
    pub fn close(&mut self) {
        match self.state {
            State::SynSent => self.end(None),
            State::SynReceived => self.sender.close(),
            State::Established => {
                self.sender.close();
                self.state = State::FinWait1;
            }
            State::CloseWait => {
                self.sender.close();
                self.state = State::LastAck;
            }
            _ => {}
        }
    }

    /// The user is gone: as [`close`](Self::close), but what still arrives is refused with a RST, as nobody will read it
    /// (RFC 9293 §3.6.1, RFC 2525 §2.17), and the other end has a minute to close, too.
    pub fn abandon(&mut self, now: Instant) {
        if self.receiver.readable() > 0 {
            self.abort();
            return;
        }
        self.close();
        self.is_abandoned = true;
        self.bound_fin_wait_2(now);
    }

    /// Ends the connection at once, with a RST (RFC 9293 §3.10.5). What was not sent is lost.
    pub fn abort(&mut self) {
        if self.state == State::Closed {
            return;
        }
        if !matches!(self.state, State::SynSent | State::TimeWait) {
            self.pending.reset = Some(Reset::Abort);
        }
        self.end(Some(Error::Aborted));
    }

    /// Whether [`read`](Self::read) has something to say: data, or the end.
    pub fn is_readable(&self) -> bool {
        self.receiver.readable() > 0 || self.has_ended() || self.state == State::Closed
    }

    /// Bytes that can be read now.
    pub fn readable(&self) -> usize {
        self.receiver.readable()
    }

    /// Whether the other end has closed and everything before that was read.
    pub fn has_ended(&self) -> bool {
        self.receiver.has_ended() && self.receiver.readable() == 0
    }

    /// Whether [`write`](Self::write) has room.
    pub fn is_writable(&self) -> bool {
        self.state.may_write() && self.sender.room() > 0
    }

    /// Bytes written that are not acknowledged.
    pub fn unacknowledged(&self) -> usize {
        self.sender.buffered()
    }

    /// The smoothed round-trip time.
    pub fn rtt(&self) -> Option<Duration> {
        self.sender.smoothed_rtt()
    }

    /// The congestion window, in bytes.
    pub fn congestion_window(&self) -> usize {
        self.sender.congestion_window()
    }

    /// Payload bytes of a full segment, as the path carries and the other end takes it.
    pub fn segment_payload(&self) -> usize {
        self.sender.mss()
    }

    /// What the sending half has counted.
    pub fn statistics(&self) -> Statistics {
        self.sender.statistics()
    }

    /// Whether small segments wait (RFC 896).
    pub fn set_nagle(&mut self, nagle: bool) {
        self.sender.set_nagle(nagle);
    }

    /// Bytes of memory beside the structure itself.
    pub fn heap(&self) -> usize {
        self.sender.heap() + self.receiver.heap()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn deadline(&self) -> Option<Instant> {
        self.timers.deadline()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.take_due(now) {
            match timer {
                Timer::Retransmission if !self.state.is_synchronized() => {
                    self.pending.syn = true;
                    if self.handshake.attempts > ECN_SYN_ATTEMPTS && self.ecn == EcnState::Wanted {
                        self.ecn = EcnState::Off;
                    }
                }
                Timer::Retransmission => self.sender.time_out(now, &mut self.timers),
                Timer::Probe => self.sender.probe(now, &mut self.timers),
                Timer::Persist => self.sender.probe_window(),
                Timer::DelayedAck => self.receiver.delayed_ack_due(),
                Timer::KeepAlive => self.keep_alive(now),
                // What leaves is for `poll_transmit` to say.
                Timer::Pace => {}
                Timer::UserTimeout => self.give_up(),
                Timer::TimeWait => self.end(None),
                Timer::Release => {
                    if self.holds_nothing() {
                        self.sender.release();
                        self.receiver.release();
                    }
                }
            }
        }
    }

    /// The path now carries segments of at most `largest_segment` bytes, TCP header included: its MTU less what IP and
    /// IPsec add. It grows again when a larger
    /// segment was tried and has arrived. What was sent is sent again.
    pub fn path_mtu_changed(&mut self, largest_segment: usize) {
        self.sender.limit_segments(largest_segment, true);
    }

    /// The path may carry segments of `largest_segment` bytes again, TCP header included: one is tried, and the others
    /// follow if it arrives.
    pub fn path_mtu_raised(&mut self, now: Instant, largest_segment: usize) {
        self.sender.allow_segments(now, largest_segment);
    }

    /// An ICMP error about a segment of ours with this sequence number arrived. It is believed only if such a segment is
    /// outstanding (RFC 5927 §4.1), and nothing but a refused SYN ends a connection (§5.2).
    pub fn icmp_error(&mut self, sequence: u32, error: IcmpError) {
        if !self.has_outstanding(sequence) {
            return;
        }
        if !self.state.is_synchronized() {
            match error {
                IcmpError::Hard => self.end(Some(Error::Unreachable)),
                IcmpError::Soft => self.soft_error = Some(Error::Unreachable),
                IcmpError::PacketTooBig { .. } => {}
            }
            return;
        }
        match error {
            IcmpError::Hard | IcmpError::Soft => self.soft_error = Some(Error::Unreachable),
            IcmpError::PacketTooBig { largest_segment } => self.path_mtu_changed(largest_segment),
        }
    }

    /// Security does not let segments of this connection leave. That ends one that is not established; another goes on
    /// trying, since what it lacks may come.
    pub fn security_refused(&mut self) {
        if self.state.is_synchronized() {
            self.soft_error = Some(Error::Security);
        } else {
            self.end(Some(Error::Security));
        }
    }

    /// Whether a segment that begins with this sequence number may be under way: only then is an error about it believed.
    pub fn has_outstanding(&self, sequence: u32) -> bool {
        let sequence = SequenceNumber(sequence);
        match self.state {
            State::Closed => false,
            State::SynSent | State::SynReceived => sequence == self.initial,
            _ => self.sender.una() <= sequence && sequence < self.sender.next(),
        }
    }

    /// How far the other end has acknowledged, and what it has sent is here. When either moves, it is reachable (RFC 4861
    /// §7.3.1).
    pub fn progress(&self) -> (SequenceNumber, SequenceNumber) {
        (self.sender.una(), self.receiver.next())
    }

    /// Whether a SYN may begin a new connection in place of this one, which is in TIME-WAIT (RFC 9293 §3.6.1, RFC 6191):
    /// then drop this, and hand the SYN to the listener.
    pub fn yields_to(&self, segment: &wire::tcp::Segment<'_>) -> bool {
        use super::timestamps::is_before;

        let is_new_syn =
            segment.flags() & (wire::tcp::SYN | wire::tcp::ACK | wire::tcp::RST) == wire::tcp::SYN;
        if self.state != State::TimeWait || !is_new_syn {
            return false;
        }
        match (self.recent, SegmentOptions::of(segment).timestamps) {
            (Some(recent), Some(new)) if recent.value != new.value => is_before(recent.value, new.value),
            _ => SequenceNumber(segment.sequence()) > self.receiver.next(),
        }
    }

    /// What both ends agreed on, now that their SYN is known.
    fn agree(&mut self, now: Instant, options: &SegmentOptions, was_lost: bool) {
        let remote_mss = options.maximum_segment_size.unwrap_or(self.default_mss).max(LEAST_MSS);
        let mss = remote_mss.min(self.max_segment_size);
        self.recent = options.timestamps.map(|timestamps| Recent { value: timestamps.value, since: now });
        self.sack = options.sack_permitted;
        self.remote_scale = options.window_scale.unwrap_or(0).min(MAX_WINDOW_SCALE);
        self.receiver.agree_on_scale(options.window_scale.map(|_| self.scale));
        let agreed = Agreed {
            segment_limit: usize::from(mss) + wire::tcp::HEADER_LEN,
            sack: self.sack,
            clock: self.recent.map(|_| self.clock),
            ecn: self.ecn == EcnState::On,
        };
        self.sender.agree(&agreed, was_lost);
    }

    fn established(&mut self, now: Instant) {
        self.state = State::Established;
        self.timers.clear(Timer::Retransmission);
        self.timers.clear(Timer::UserTimeout);
        self.last_received = now;
        if let Some(keepalive) = &self.keepalive {
            self.timers.set_after(Timer::KeepAlive, now, keepalive.idle);
        }
        if self.sender.is_closing() {
            self.state = State::FinWait1;
        }
    }

    /// RFC 9293 §3.8.4.
    fn keep_alive(&mut self, now: Instant) {
        let Some(keepalive) = self.keepalive else { return };
        if now.saturating_duration_since(self.last_received) < keepalive.idle {
            self.keepalive_probes = 0;
            self.timers.set_after(Timer::KeepAlive, self.last_received, keepalive.idle);
            return;
        }
        if self.keepalive_probes >= keepalive.probes.max(LEAST_KEEPALIVE_PROBES) {
            self.pending.reset = Some(Reset::Abort);
            self.end(Some(Error::TimedOut));
            return;
        }
        // While something is outstanding, its retransmission probes as well.
        if self.sender.waiting_since().is_none() {
            self.keepalive_probes += 1;
            self.pending.keepalive = true;
        }
        self.timers.set_after(Timer::KeepAlive, now, keepalive.interval.max(LEAST_KEEPALIVE_INTERVAL));
    }

    fn give_up(&mut self) {
        if self.state.is_synchronized() {
            self.pending.reset = Some(Reset::Abort);
        }
        self.end(self.soft_error.or(Some(Error::TimedOut)));
    }

    /// As long as an acknowledgement is owed, the user's patience counts.
    fn watch_patience(&mut self) {
        if !self.state.is_synchronized() {
            return;
        }
        match self.sender.waiting_since() {
            Some(since) => self.timers.set_after(Timer::UserTimeout, since, self.user_timeout),
            None => self.timers.clear(Timer::UserTimeout),
        }
    }

    /// The number of the byte that is read next.
    fn read_up_to(&self) -> SequenceNumber {
        self.receiver.next() - (self.receiver.readable() + usize::from(self.receiver.has_ended()))
    }

    fn holds_nothing(&self) -> bool {
        self.sender.is_idle() && self.receiver.readable() == 0 && !self.receiver.has_gap()
    }

    /// Nobody waits for a connection in FIN-WAIT-2 that was abandoned, and the other end may be gone.
    fn bound_fin_wait_2(&mut self, now: Instant) {
        if self.is_abandoned && self.state == State::FinWait2 {
            self.timers.set(Timer::TimeWait, now + TWICE_MSL);
        }
    }

    fn enter_time_wait(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.timers.clear_all();
        self.timers.set(Timer::TimeWait, now + TWICE_MSL);
    }

    fn end(&mut self, error: Option<Error>) {
        self.state = State::Closed;
        self.error = self.error.or(error);
        self.timers.clear_all();
        self.pending.syn = false;
        self.pending.keepalive = false;
    }
}

/// What an ICMP message says of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    /// The destination does not take it: port or protocol unreachable, administratively prohibited (RFC 1122 §4.2.3.9).
    Hard,
    /// It was not delivered this time: no route, hop limit exceeded.
    Soft,
    /// It did not fit.
    PacketTooBig {
        /// The largest TCP segment that does, header included: the MTU less what IP and IPsec add.
        largest_segment: usize,
    },
}

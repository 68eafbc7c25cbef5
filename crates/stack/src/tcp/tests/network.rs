//! A link with delay, rate, queue, loss, reordering and duplication, and two hosts at its ends; seeded.

use std::time::{Duration, Instant};

use wire::ecn::Ecn;
use wire::tcp::{self, Header, Segment, SegmentOptions};

use super::super::{Config, Connection, Flow, Listener, Reaction, Secrets, State, Transmit};
use crate::faults::{Faults, Line, Parcel};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const MSS: u16 = 1440;
/// What IP and the link add to a segment.
const OVERHEAD: usize = 54;

#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) delay: Duration,
    /// Bytes per second; 0 for no limit.
    pub(super) rate: u64,
    /// Bytes that wait at most.
    pub(super) queue: usize,
    pub(super) loss: f64,
    /// Probability of being late, and by how much.
    pub(super) reorder: (f64, Duration),
    pub(super) duplicate: f64,
    /// Bytes in the queue from which packets are marked, or dropped if they are not ECN-capable.
    pub(super) mark: Option<usize>,
}

impl Link {
    pub(super) const IDEAL: Link = Link {
        delay: Duration::from_millis(10),
        rate: 0,
        queue: usize::MAX,
        loss: 0.0,
        reorder: (0.0, Duration::ZERO),
        duplicate: 0.0,
        mark: None,
    };
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Packet {
    pub(super) bytes: Vec<u8>,
    pub(super) ecn: u8,
}

impl Packet {
    pub(super) fn segment(&self) -> Segment<'_> {
        Segment::parse(&self.bytes).unwrap()
    }
}

impl Parcel for Packet {
    fn octets_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// One direction: a line, with what a queue that knows TCP does before it.
pub(super) struct Pipe {
    mark: Option<usize>,
    line: Line<Packet>,
    /// Packets that are lost whatever the link says.
    pub(super) drop: Box<dyn FnMut(&Packet) -> bool>,
    /// What happens to the options of SYNs on the way.
    pub(super) strip: fn(&mut SegmentOptions),
    pub(super) dropped: u64,
    pub(super) marked: u64,
}

impl Pipe {
    fn new(link: Link, seed: u64) -> Self {
        let Link { delay, rate, queue, loss, reorder, duplicate, mark } = link;
        let faults = Faults { loss, reorder, duplicate, delay, rate, queue, ..Faults::default() };
        Pipe {
            mark,
            line: Line::new(faults, seed),
            drop: Box::new(|_| false),
            strip: |_| {},
            dropped: 0,
            marked: 0,
        }
    }

    fn send(&mut self, now: Instant, mut packet: Packet) {
        if packet.segment().flags() & tcp::SYN != 0 {
            let syn = packet.segment();
            let mut options = SegmentOptions::of(&syn);
            (self.strip)(&mut options);
            packet.bytes = [&with_options(&syn, options).to_bytes()[..], syn.payload()].concat();
        }
        let mut is_lost = (self.drop)(&packet);
        if self.mark.is_some_and(|mark| self.line.waiting(now) > mark) {
            if packet.ecn == Ecn::NotEct.bits() {
                is_lost = is_lost || !packet.segment().payload().is_empty();
            } else {
                packet.ecn = Ecn::Ce.bits();
                self.marked += 1;
            }
        }
        let length = packet.bytes.len() + OVERHEAD;
        if is_lost || !self.line.send(now, packet, length) {
            self.dropped += 1;
        }
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.line.next_arrival()
    }

    fn arrived(&mut self, now: Instant) -> Option<Packet> {
        self.line.receive(now)
    }
}

/// What is at one end of a link.
pub(super) trait Host {
    fn receive(&mut self, now: Instant, packet: &Packet);
    /// The user's side: reads and writes.
    fn work(&mut self, now: Instant);
    fn transmit(&mut self, now: Instant, out: &mut Vec<Packet>);
    fn deadline(&mut self, now: Instant) -> Option<Instant>;
    fn handle_timeout(&mut self, now: Instant);
    fn user(&mut self) -> &mut User;
    fn connection(&mut self) -> &mut Connection {
        unreachable!("not one of ours")
    }
}

/// Bytes that are written and read, each with a value that follows from its place.
#[derive(Debug, Clone, Default)]
pub(super) struct User {
    /// To be written in all, and so far.
    pub(super) total: u64,
    pub(super) written: u64,
    pub(super) received: u64,
    /// Whether to close after all is written.
    pub(super) closes: bool,
    pub(super) ended: bool,
    /// Whether to leave what arrives unread.
    pub(super) is_lazy: bool,
    pub(super) started: Option<Instant>,
    pub(super) finished: Option<Instant>,
}

pub(super) fn byte_at(offset: u64) -> u8 {
    (offset % 251) as u8 ^ (offset >> 16) as u8
}

impl User {
    pub(super) fn sends(total: u64) -> Self {
        User { total, closes: true, ..Self::default() }
    }

    pub(super) fn next_chunk(&self, most: usize) -> Vec<u8> {
        let end = self.total.min(self.written + most as u64);
        (self.written..end).map(byte_at).collect()
    }

    pub(super) fn take(&mut self, now: Instant, bytes: &[u8]) {
        for byte in bytes {
            assert_eq!(*byte, byte_at(self.received), "byte {} of the stream", self.received);
            self.received += 1;
        }
        if !bytes.is_empty() {
            self.started.get_or_insert(now);
            self.finished = Some(now);
        }
    }
}

/// A connection of ours, or a listener that becomes one.
pub(super) struct Ours {
    pub(super) flow: Flow,
    pub(super) listener: Option<Listener>,
    pub(super) connection: Option<Box<Connection>>,
    pub(super) user: User,
    pub(super) max_gso: usize,
    pub(super) replies: Vec<Packet>,
}

pub(super) fn flow() -> Flow {
    Flow { local: "[2001:db8::1]:4000".parse().unwrap(), remote: "[2001:db8::2]:80".parse().unwrap() }
}

pub(super) fn reversed(flow: Flow) -> Flow {
    Flow { local: flow.remote, remote: flow.local }
}

pub(super) fn secrets(now: Instant) -> Secrets {
    Secrets::new([9; 16], now)
}

impl Ours {
    pub(super) fn connecting(now: Instant, config: Config, user: User) -> Self {
        Self::connecting_with(now, config, user, &secrets(now))
    }

    pub(super) fn connecting_with(now: Instant, config: Config, user: User, secrets: &Secrets) -> Self {
        let connection = Connection::connect(now, &flow(), secrets, &config);
        Ours {
            flow: flow(),
            listener: None,
            connection: Some(Box::new(connection)),
            user,
            max_gso: 60_000,
            replies: Vec::new(),
        }
    }

    pub(super) fn listening(now: Instant, config: Config, user: User) -> Self {
        Self::listening_with(config, user, secrets(now))
    }

    pub(super) fn listening_with(config: Config, user: User, secrets: Secrets) -> Self {
        let listener = Listener::new(config, secrets);
        Ours {
            flow: reversed(flow()),
            listener: Some(listener),
            connection: None,
            user,
            max_gso: 60_000,
            replies: Vec::new(),
        }
    }
}

impl Host for Ours {
    fn receive(&mut self, now: Instant, packet: &Packet) {
        let (segment, ecn) = (packet.segment(), Ecn::from_bits(packet.ecn));
        if let Some(connection) = &mut self.connection {
            connection.receive(now, &segment, ecn);
            return;
        }
        let Some(listener) = &mut self.listener else { return };
        let mut reply = Vec::new();
        match listener.receive(now, &self.flow, &segment, ecn, &mut reply) {
            Reaction::Established(connection) => self.connection = Some(connection),
            Reaction::Reply(_) => self.replies.push(Packet { bytes: reply, ecn: 0 }),
            Reaction::None | Reaction::Dropped(_) => {}
        }
    }

    fn work(&mut self, now: Instant) {
        let Some(connection) = &mut self.connection else { return };
        let mut buffer = [0; 4096];
        while !self.user.is_lazy {
            let n = connection.read(&mut buffer);
            if n == 0 {
                break;
            }
            self.user.take(now, &buffer[..n]);
        }
        self.user.ended = connection.has_ended();
        while self.user.written < self.user.total && connection.is_writable() {
            let n = connection.write(&self.user.next_chunk(4096));
            self.user.written += n as u64;
        }
        if self.user.closes && self.user.written == self.user.total && connection.state() != State::SynSent {
            connection.close();
        }
    }

    fn transmit(&mut self, now: Instant, out: &mut Vec<Packet>) {
        out.append(&mut self.replies);
        let mut bytes = Vec::new();
        if let Some(listener) = &mut self.listener {
            while listener.poll_transmit(now, &mut bytes).is_some() {
                out.push(Packet { bytes: std::mem::take(&mut bytes), ecn: 0 });
            }
        }
        let Some(connection) = &mut self.connection else { return };
        while let Some(transmit) = connection.poll_transmit(now, self.max_gso, &mut bytes) {
            segments(&transmit, &std::mem::take(&mut bytes), out);
        }
    }

    fn deadline(&mut self, _: Instant) -> Option<Instant> {
        let listener = self.listener.as_ref().and_then(Listener::deadline);
        let connection = self.connection.as_ref().and_then(|connection| connection.deadline());
        listener.into_iter().chain(connection).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(listener) = &mut self.listener {
            listener.handle_timeout(now);
        }
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
    }

    fn user(&mut self) -> &mut User {
        &mut self.user
    }

    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("established")
    }
}

/// Cuts a GSO packet as a network interface does.
pub(super) fn segments(transmit: &Transmit, bytes: &[u8], out: &mut Vec<Packet>) {
    let ecn = transmit.ecn.bits();
    let Some(size) = transmit.segment_size else {
        out.push(Packet { bytes: bytes.to_vec(), ecn });
        return;
    };
    let whole = Segment::parse(bytes).unwrap();
    assert_eq!((whole.header().len(), whole.payload().len()), (transmit.header_len, transmit.payload_len));
    let chunks: Vec<_> = whole.payload().chunks(usize::from(size)).collect();
    for (index, chunk) in chunks.iter().enumerate() {
        let mut flags = whole.flags();
        if index > 0 {
            flags &= !tcp::CWR;
        }
        if index + 1 < chunks.len() {
            flags &= !(tcp::FIN | tcp::PSH);
        }
        let sequence = whole.sequence().wrapping_add((index * usize::from(size)) as u32);
        let header = Header { sequence, flags, ..with_options(&whole, SegmentOptions::of(&whole)) };
        out.push(Packet { bytes: [&header.to_bytes()[..], chunk].concat(), ecn });
    }
}

/// The header of a segment, with other options.
fn with_options(segment: &Segment<'_>, options: SegmentOptions) -> Header {
    Header {
        source_port: segment.source_port(),
        destination_port: segment.destination_port(),
        sequence: segment.sequence(),
        acknowledgement: segment.acknowledgement(),
        flags: segment.flags(),
        window: segment.window(),
        options,
        ..Header::default()
    }
}

/// Two hosts and what is between them.
pub(super) struct Network {
    pub(super) now: Instant,
    pub(super) start: Instant,
    pub(super) hosts: [Box<dyn Host>; 2],
    /// From the first host, and to it.
    pub(super) pipes: [Pipe; 2],
    seed: u64,
}

impl Drop for Network {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, {:?} after the start", self.seed, self.now - self.start);
        }
    }
}

impl Network {
    pub(super) fn new(start: Instant, link: Link, seed: u64, hosts: [Box<dyn Host>; 2]) -> Self {
        let pipes = [Pipe::new(link, seed), Pipe::new(link, seed ^ 0x5555)];
        Network { now: start, start, hosts, pipes, seed }
    }

    /// Ours connecting to ours.
    pub(super) fn ours(link: Link, seed: u64, configs: [Config; 2], users: [User; 2]) -> Self {
        let start = Instant::now();
        let [a, b] = users;
        let hosts: [Box<dyn Host>; 2] = [
            Box::new(Ours::connecting(start, configs[0], a)),
            Box::new(Ours::listening(start, configs[1], b)),
        ];
        Self::new(start, link, seed, hosts)
    }

    /// Whether `done` came true within `limit`.
    pub(super) fn run(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            self.settle();
            if done(self) {
                return true;
            }
            let now = self.now;
            let timers = self.hosts.iter_mut().filter_map(|host| host.deadline(now)).min();
            let arrivals = self.pipes.iter().filter_map(Pipe::next_arrival).min();
            let Some(next) = timers.into_iter().chain(arrivals).min() else {
                self.now = end;
                return false;
            };
            if next > end {
                self.now = end;
                return false;
            }
            self.now = next.max(now);
            for host in &mut self.hosts {
                host.handle_timeout(self.now);
            }
        }
    }

    /// Lets `limit` pass.
    pub(super) fn pass(&mut self, limit: Duration) {
        self.run(limit, |_| false);
    }

    fn settle(&mut self) {
        let mut out = Vec::new();
        loop {
            let mut is_quiet = true;
            for index in 0..2 {
                self.hosts[index].work(self.now);
                self.hosts[index].transmit(self.now, &mut out);
                for packet in out.drain(..) {
                    is_quiet = false;
                    self.pipes[index].send(self.now, packet);
                }
            }
            for index in 0..2 {
                if let Some(packet) = self.pipes[index].arrived(self.now) {
                    is_quiet = false;
                    self.hosts[1 - index].receive(self.now, &packet);
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    pub(super) fn connection(&mut self, index: usize) -> &mut Connection {
        self.hosts[index].connection()
    }

    pub(super) fn user(&mut self, index: usize) -> &mut User {
        self.hosts[index].user()
    }

    /// Runs until both streams are complete, and checks that they are.
    pub(super) fn transfer(&mut self, limit: Duration) -> Duration {
        let before = self.now;
        let totals = [self.user(0).total, self.user(1).total];
        let is_done = self.run(limit, |network| {
            network.user(0).received == totals[1]
                && network.user(1).received == totals[0]
                && (0..2).all(|i| network.user(i).ended || !network.user(1 - i).closes)
        });
        let received = [self.user(1).received, self.user(0).received];
        assert!(is_done, "{received:?} of {totals:?}");
        self.now - before
    }
}

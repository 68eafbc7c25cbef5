//! A carrier between the queues of a TUN device and UDP sockets, with raw sockets beside them for what does not go in UDP: one
//! thread, one epoll.
//!
//! Outwards, GSO packets of several reads gather in the outbox and leave with one call for each run of equal datagrams.
//! Inwards, the datagrams of several receives are opened where they lie in the arena, merged across receives, and written to
//! the device with one call for each merged packet. Nothing waits for a batch to fill: a turn handles what is there.

use std::io::IoSlice;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

use config::ipsec::Ports;
use linux::event::{Event, Events, Interest, Poller};
use linux::priority::Priority;
use linux::raw_host::{HostRawSocket, RawReceived, SLOT};
use linux::tun;
use linux::udp::{EndpointOptions, HostSocket, MAX_RECEIVE};
use tracing::{debug, info};
use wire::coalesce::{Coalescer, Offloads};
use wire::{protocol, virtio_net};

use crate::carrier::{Carrier, Received};
use crate::deliver::Deliver;
use crate::outbox::Via;
use crate::random::System;

/// Packets, and bytes to be sent, after which a turn reads no more from the TUN device. The more go out together, the
/// fewer wakeups they cost all the way; but what comes in must not wait for long. With one packet more, whose segments get
/// longer by what is around them, an outbox of a megabyte is not full.
const READS: (usize, usize) = (128, (1 << 20) - (1 << 17));
/// Room for what is received before it is written.
const ARENA: usize = 16 * MAX_RECEIVE;
/// Receives, and bytes, from one socket before the next has its turn.
const RECEIVES: (usize, usize) = (64, 8 * MAX_RECEIVE);
/// errno(3) of a device that is down.
const EIO: i32 = 5;
/// errno(3) of a kernel without a version of IP.
const EAFNOSUPPORT: i32 = 97;

const IKE: u64 = 0;
const NAT: u64 = 1;
/// Tokens from here on are those of raw sockets.
const RAW: u64 = 8;
/// One for each of AH and ESP, and each version of IP.
const MAX_RAW: u64 = 4;
/// Tokens from here on are those of the TUN device's queues.
const TUN: u64 = 1 << 32;

/// The sockets of IKE.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// None where all begins at the port that IKE shares with ESP.
    ike: Option<HostSocket>,
    nat: HostSocket,
    raw: Vec<HostRawSocket>,
}

impl Sockets {
    /// Opens them; port 0 of IKE is none, the other one then any that is free.
    pub(crate) fn open(local: Option<IpAddr>, ports: Ports) -> linux::Result<Self> {
        let options = EndpointOptions::default();
        let ike = match ports.ike {
            0 => None,
            port => Some(HostSocket::open(local, port, &options)?),
        };
        Ok(Self { ike, nat: HostSocket::open(local, ports.nat, &options)?, raw: Vec::new() })
    }

    /// Opens raw sockets, too, for AH and ESP as protocols of IP. Needs CAP_NET_RAW.
    pub(crate) fn with_raw(mut self, local: Option<IpAddr>) -> linux::Result<Self> {
        let buffer = EndpointOptions::default().buffer;
        for is_ipv6 in [true, false] {
            if local.is_some_and(|local| local.is_ipv6() != is_ipv6) {
                continue;
            }
            for protocol in [protocol::ESP, protocol::AUTHENTICATION] {
                match HostRawSocket::open(protocol, is_ipv6, local, buffer) {
                    Ok(socket) => self.raw.push(socket),
                    // A machine without IPv6 has no such packets.
                    Err(error) if is_ipv6 && error.raw_os_error() == Some(EAFNOSUPPORT) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(self)
    }

    /// Marks all that is sent from now on; 0: not.
    pub(crate) fn set_mark(&self, mark: u32) -> linux::Result<()> {
        for socket in self.ike.iter().chain([&self.nat]) {
            linux::mark::set(socket, mark)?;
        }
        self.raw.iter().try_for_each(|socket| linux::mark::set(socket, mark))
    }

    /// The raw socket for packets like this one.
    fn raw_for(&self, packet: &[u8]) -> Option<&HostRawSocket> {
        let is_ipv6 = packet.first()? >> 4 == 6;
        let protocol = *packet.get(if is_ipv6 { 6 } else { 9 })?;
        // Packets of UDP go by any: they have their headers.
        let of_version = || self.raw.iter().filter(move |socket| socket.kind().1 == is_ipv6);
        of_version().find(|socket| socket.kind().0 == protocol).or_else(|| of_version().next())
    }

    pub(crate) fn ports(&self) -> Ports {
        Ports { ike: self.ike.as_ref().map_or(0, HostSocket::port), nat: self.nat.port() }
    }

    fn of(&self, via: Via) -> Option<&HostSocket> {
        match via {
            Via::Ike => self.ike.as_ref(),
            Via::Nat => Some(&self.nat),
            Via::Raw => None,
        }
    }
}

pub(crate) struct Machine {
    pub(crate) carrier: Carrier<System>,
    sockets: Sockets,
    tun: Vec<tun::Queue>,
    /// The device's interface, if it is one of this network namespace: what comes in by it is no datagram of a remote's.
    pub(crate) inner_interface: Option<u32>,
    pub(crate) poller: Poller,
    events: Events,
    ready: Vec<Event>,
    readable: Vec<usize>,
    read_buffer: Vec<u8>,
    arena: Vec<u8>,
    filled: usize,
    received: Vec<RawReceived>,
    sink: Sink,
    priority: Priority,
    /// Work done in this turn.
    work: usize,
}

/// Takes what comes out of the tunnel.
pub(crate) struct Sink {
    coalescer: Coalescer,
    own: Vec<Vec<u8>>,
}

impl Deliver for Sink {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.coalescer.push(arena, header, rest);
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.own.push(packet.to_vec());
    }
}

impl Machine {
    pub(crate) fn new(carrier: Carrier<System>, sockets: Sockets) -> linux::Result<Self> {
        let poller = Poller::new()?;
        if let Some(ike) = &sockets.ike {
            poller.add(ike, IKE, Interest::Readable)?;
        }
        poller.add(&sockets.nat, NAT, Interest::Readable)?;
        for (number, raw) in sockets.raw.iter().enumerate() {
            poller.add(raw, RAW + number as u64, Interest::Readable)?;
        }
        Ok(Self {
            carrier,
            sockets,
            tun: Vec::new(),
            inner_interface: None,
            poller,
            events: Events::with_capacity(64),
            ready: Vec::with_capacity(64),
            readable: Vec::new(),
            read_buffer: vec![0; tun::MAX_READ],
            arena: vec![0; ARENA],
            filled: 0,
            received: Vec::new(),
            sink: Sink { coalescer: Coalescer::new(Offloads::default()), own: Vec::new() },
            priority: Priority::new(false),
            work: 0,
        })
    }

    /// The device's queues: before, what comes out of the tunnel has nowhere to go.
    pub(crate) fn set_tun(&mut self, queues: Vec<tun::Queue>, offloads: tun::Offloads) -> linux::Result<()> {
        for (number, queue) in queues.iter().enumerate() {
            self.poller.add(queue, TUN + number as u64, Interest::Readable)?;
        }
        let tcp = offloads >= tun::Offloads::Tcp;
        let udp = offloads >= tun::Offloads::TcpAndUdp;
        let offloads = Offloads { tcp4: tcp, tcp6: tcp, udp4: udp, udp6: udp };
        self.sink.coalescer = Coalescer::new(offloads);
        self.tun = queues;
        Ok(())
    }

    pub(crate) fn ports(&self) -> Ports {
        self.sockets.ports()
    }

    /// See [`Sockets::set_mark`].
    pub(crate) fn set_mark(&self, mark: u32) -> linux::Result<()> {
        self.sockets.set_mark(mark)
    }

    /// Goes before ordinary programs while there is a bulk flow, if the kernel allows it.
    pub(crate) fn go_first(&mut self) {
        self.priority = Priority::new(true);
    }

    /// Waits for something else, too.
    pub(crate) fn also_wait_for(&self, fd: impl AsFd, token: u64) -> linux::Result<()> {
        debug_assert!(token > NAT && token < TUN && !(RAW..RAW + MAX_RAW).contains(&token));
        self.poller.add(fd, token, Interest::Readable)
    }

    /// Waits until something happens, at most until `latest`, and carries what there is. Adds the events to `others` that are
    /// not its own.
    ///
    /// # Errors
    /// When there is no device any more.
    pub(crate) fn turn(&mut self, latest: Option<Instant>, others: &mut Vec<Event>) -> linux::Result<()> {
        let until = self.carrier.deadline().into_iter().chain(latest).min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        // What is left in the queue of a batch that was cut short is reported again at once.
        self.poller.wait(&mut self.events, timeout)?;
        let now = Instant::now();
        if self.carrier.deadline().is_some_and(|deadline| deadline <= now) {
            self.carrier.handle_timeout(now, &mut self.sink);
        }
        let mut ready = std::mem::take(&mut self.ready);
        ready.extend(self.events.iter());
        for event in ready.drain(..) {
            match event.token {
                IKE => self.receive(Via::Ike, event.error, now),
                NAT => self.receive(Via::Nat, event.error, now),
                token if token >= TUN => self.readable.push((token - TUN) as usize),
                token if (RAW..RAW + MAX_RAW).contains(&token) => {
                    self.receive_raw((token - RAW) as usize, event.error, now);
                }
                _ => others.push(event),
            }
        }
        self.ready = ready;
        self.read_tun(now)?;
        self.flush();
        if let Err(error) = self.priority.turn(std::mem::take(&mut self.work), false) {
            info!("other programs can delay packets on a busy machine: {error}");
        }
        Ok(())
    }

    /// Calls the carrier, and sends what it has to send.
    pub(crate) fn with_carrier<T>(
        &mut self,
        ask: impl FnOnce(&mut Carrier<System>, &mut Sink, Instant) -> T,
    ) -> T {
        let answer = ask(&mut self.carrier, &mut self.sink, Instant::now());
        self.flush();
        answer
    }

    /// Says goodbye to all remotes, and waits at most this long for their answers.
    pub(crate) fn end(&mut self, patience: Duration) -> linux::Result<()> {
        self.with_carrier(|carrier, sink, now| carrier.end(now, sink));
        let latest = Instant::now() + patience;
        while !self.carrier.is_quiet() && Instant::now() < latest {
            self.turn(Some(latest), &mut Vec::new())?;
            while self.carrier.poll_event().is_some() {}
        }
        Ok(())
    }

    fn read_tun(&mut self, now: Instant) -> linux::Result<()> {
        let mut readable = std::mem::take(&mut self.readable);
        let mut reads = 0;
        while !readable.is_empty() && reads < READS.0 && self.carrier.outbox().len() < READS.1 {
            let others = readable.len() > 1;
            reads += readable.len();
            let mut failure = Ok(());
            readable.retain(|queue| match self.read_packet(*queue, now) {
                Ok(more) => more,
                Err(error) => {
                    failure = Err(error);
                    false
                }
            });
            failure?;
            // A single packet does not wait until a bulk flow beside it has filled its batch.
            if others {
                self.send_outbox();
            }
        }
        readable.clear();
        self.readable = readable;
        Ok(())
    }

    /// Reads a packet from a queue of the TUN device and seals it. False if there was none.
    fn read_packet(&mut self, queue: usize, now: Instant) -> linux::Result<bool> {
        let Some(queue) = self.tun.get(queue) else { return Ok(false) };
        let length = match queue.read(&mut self.read_buffer) {
            Ok(Some(length)) if length > virtio_net::LEN => length,
            Ok(Some(_)) => return Ok(true),
            Ok(None) => return Ok(false),
            // The device is down; it may come up again.
            Err(error) if error.raw_os_error() == Some(EIO) => return Ok(false),
            Err(error) => return Err(error),
        };
        let (header, packet) = self.read_buffer[..length].split_at_mut(virtio_net::LEN);
        if let Some(header) = header.first_chunk() {
            let header = virtio_net::Header::from_bytes(header);
            self.carrier.send(&header, packet, now, &mut self.sink);
        }
        Ok(true)
    }

    fn receive(&mut self, via: Via, error: bool, now: Instant) {
        if error && let Some(socket) = self.sockets.of(via) {
            while let Ok(Some(too_big)) = socket.recv_too_big() {
                let mtu = u16::try_from(too_big.mtu).unwrap_or(u16::MAX);
                self.carrier.too_big(too_big.destination, mtu, too_big.quoted.as_deref(), via, now);
            }
        }
        let (mut receives, mut bytes) = (0, 0);
        while receives < RECEIVES.0 && bytes < RECEIVES.1 {
            if ARENA - self.filled < MAX_RECEIVE {
                self.write_tun();
            }
            let Some(socket) = self.sockets.of(via) else { return };
            let start = self.filled;
            let received = match socket.recv(&mut self.arena[start..start + MAX_RECEIVE]) {
                Ok(Some(received)) => received,
                Ok(None) => return,
                Err(error) => return debug!("{error}"),
            };
            receives += 1;
            bytes += received.len;
            self.work += work(received.len, received.segment_size);
            if self.inner_interface == Some(received.interface) {
                continue;
            }
            self.filled = start + received.len;
            let received = Received {
                at: start..self.filled,
                segment: received.segment_size,
                via,
                local: received.destination,
                remote: received.source,
                ecn: received.ecn,
            };
            self.carrier.receive(&mut self.arena, &received, now, &mut self.sink);
        }
    }

    /// The same of a raw socket.
    fn receive_raw(&mut self, number: usize, error: bool, now: Instant) {
        let Some(socket) = self.sockets.raw.get(number) else { return };
        while error && let Ok(Some(too_big)) = socket.recv_too_big() {
            let mtu = u16::try_from(too_big.mtu).unwrap_or(u16::MAX);
            self.carrier.too_big(too_big.destination, mtu, too_big.quoted.as_deref(), Via::Raw, now);
        }
        let (mut receives, mut bytes) = (0, 0);
        while receives < RECEIVES.0 && bytes < RECEIVES.1 {
            if ARENA - self.filled < SLOT {
                self.write_tun();
            }
            let Some(socket) = self.sockets.raw.get(number) else { return };
            let start = self.filled;
            if let Err(error) = socket.recv(&mut self.arena[start..], &mut self.received) {
                return debug!("{error}");
            }
            if self.received.is_empty() {
                return;
            }
            for packet in &self.received {
                receives += 1;
                bytes += packet.at.len();
                self.work += work(packet.at.len(), packet.at.len());
                let at = start + packet.at.start..start + packet.at.end;
                self.filled = at.end;
                if self.inner_interface != Some(packet.interface) {
                    self.carrier.receive_packet(&mut self.arena, at, now, &mut self.sink);
                }
            }
        }
    }

    fn flush(&mut self) {
        self.write_tun();
        self.send_outbox();
    }

    fn write_tun(&mut self) {
        for packet in self.sink.coalescer.packets() {
            let Some(queue) = self.tun.first() else { break };
            let mut pieces = [IoSlice::new(&[]); wire::coalesce::MAX_PIECES + 1];
            pieces[0] = IoSlice::new(packet.head);
            for (slot, piece) in pieces[1..].iter_mut().zip(packet.pieces) {
                *slot = IoSlice::new(&self.arena[piece.clone()]);
            }
            if let Err(error) = queue.write(&pieces[..=packet.pieces.len()]) {
                debug!("{error}");
            }
        }
        self.sink.coalescer.clear();
        self.filled = 0;
        let header = virtio_net::Header::NONE.to_bytes();
        for packet in self.sink.own.drain(..) {
            let Some(queue) = self.tun.first() else { break };
            if let Err(error) = queue.write(&[IoSlice::new(&header), IoSlice::new(&packet)]) {
                debug!("{error}");
            }
        }
    }

    fn send_outbox(&mut self) {
        for (batch, bytes) in self.carrier.outbox().batches() {
            let way = &batch.way;
            self.work += work(bytes.len(), batch.segment);
            let Some(socket) = self.sockets.of(way.via) else {
                let socket = self.sockets.raw_for(bytes);
                let sent = socket.map(|raw| raw.send(bytes, batch.segment, way.local, way.remote.ip()));
                if let Some(Err(error)) = sent {
                    debug!("{error}");
                }
                continue;
            };
            // What is lost here was lost on the way: UDP promises nothing.
            if let Err(error) = batch.send(bytes, socket) {
                debug!("{error}");
            }
        }
        self.carrier.outbox().clear();
    }
}

/// What so many bytes in datagrams of that size cost, in bytes: a datagram takes as long as some hundred bytes do.
fn work(bytes: usize, segment: usize) -> usize {
    bytes + bytes.div_ceil(segment.max(1)) * 512
}

/// Certificates are valid for a time, which a carrier is told.
pub(crate) fn tell_time(carrier: &mut Carrier<System>) {
    if let Ok(since_1970) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        carrier.set_wall_clock(Instant::now(), since_1970);
    }
}

//! A stream of numbered datagrams at a steady rate: what gets lost, doubled, reordered and how late it comes.
//!
//! Datagrams are due one by one, and leave one by one as long as the sender keeps up. Those that became due meanwhile
//! leave with one system call, up to a batch: so it reaches rates at which a call for each would be the limit.
//!
//! Batched, such a call hands them to the kernel as a single packet that it cuts late or never (`UDP_SEGMENT`, as QUIC
//! servers send), and the receiver takes them uncut (`UDP_GRO`): otherwise each is carried all the way on its own.
//!
//! The sender (`sidestep-lab udp-send`) never reads, the receiver (`sidestep-lab udp-receive`) never writes: the
//! stream is strictly one-way. The receiver prints a line of JSON per second and the report at its end.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage, recvmmsg,
    sendmmsg, sendmsg, setsockopt, sockopt,
};
use serde::{Deserialize, Serialize};

use crate::Error;

/// What every datagram begins with; others are not counted.
const MAGIC: [u8; 4] = *b"SLAB";

/// Magic, number (8), time of sending in nanoseconds of Unix time (8).
const HEADER: usize = 20;

/// Numbers beyond this are refused, so that a stray datagram cannot make the receiver allocate the world.
const MOST: u64 = 1 << 32;

/// Datagrams that one system call sends or receives at most.
const BATCH: usize = 64;

/// Bytes that the kernel takes as one packet to be cut, and some headers less.
const LONGEST_BATCH: usize = 65_000;

/// No datagram is longer, and no packet of several.
const LONGEST: usize = 65_535;

/// What may wait at the receiver: it is not what is measured, and shares its processor with what is. A gateway's threads
/// may run first, and then it waits for a quarter of a second.
const RECEIVE_BUFFER: usize = 512 << 20;

/// How long a receiver that was told to stop goes on to take what has come.
const LEFTOVERS: Duration = Duration::from_secs(1);

/// Ranges of missing numbers that a report lists at most.
const MOST_GAPS: usize = 200;

/// What the receiver saw in one second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the receiver heard the first datagram.
    pub second: u64,
    /// Datagrams, duplicates included.
    pub received: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Numbers missing so far below the highest one seen.
    pub missing: u64,
    /// Duplicates so far.
    pub duplicated: u64,
    /// One-way latency in milliseconds.
    pub latency_ms: Latency,
}

/// Latency in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the datagrams came faster.
    pub p50: f64,
    /// 99 of 100 came faster.
    pub p99: f64,
    /// 999 of 1,000 came faster.
    pub p999: f64,
    /// The slowest.
    pub max: f64,
}

impl Latency {
    /// Percentiles of these values, which get reordered. Not sorted: for the millions of a second that takes so long that
    /// the receiver's buffer runs over.
    fn of(values: &mut [f32]) -> Self {
        let mut at = |part: f64| {
            let Some(last) = values.len().checked_sub(1) else { return 0.0 };
            let index = (values.len() as f64 * part) as usize;
            f64::from(*values.select_nth_unstable_by(index.min(last), f32::total_cmp).1)
        };
        Self { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) }
    }
}

/// What the receiver saw in all.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Received {
    /// Datagrams that came for the first time.
    pub distinct: u64,
    /// Datagrams that came again.
    pub duplicated: u64,
    /// Datagrams with a lower number than one before them.
    pub reordered: u64,
    /// The highest number seen, plus one.
    pub expected: u64,
    /// The missing numbers below `expected`, as ranges (first, last); at most 200 of them.
    pub gaps: Vec<(u64, u64)>,
    /// One-way latency of all.
    pub latency_ms: Latency,
    /// The one-way latency of each datagram in milliseconds, as they came, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each_ms: Vec<f32>,
    /// Second by second.
    pub seconds: Vec<Second>,
}

/// What the sender did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams that the kernel took.
    pub sent: u64,
    /// Datagrams that the kernel refused (no route, too big); they keep their number.
    pub refused: u64,
    /// When the first one left, in milliseconds of Unix time.
    pub start_unix_ms: u64,
    /// How long it took, in microseconds: longer than asked for where the sender could not keep up.
    pub took_us: u64,
}

/// Sends datagrams of `size` bytes, `rate` per second, for so long. `batched`: those that leave together are one packet
/// to the kernel.
///
/// # Errors
/// When no socket can be had.
pub fn send(
    to: SocketAddr,
    rate: u32,
    size: usize,
    duration: Duration,
    batched: bool,
    stop: &Arc<AtomicBool>,
) -> Result<Sent, Error> {
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let failed = |source| Error::system("UDP socket", source);
    let socket = UdpSocket::bind(any).map_err(failed)?;
    let interval = Duration::from_secs(1) / rate.max(1);
    let count = u64::try_from(duration.as_nanos() / interval.as_nanos().max(1)).unwrap_or(u64::MAX);
    let mut batch = Batch::new(to, size.max(HEADER), batched);
    let start = Instant::now();
    let mut report = Sent { start_unix_ms: unix_nanos() / 1_000_000, ..Sent::default() };
    let mut number = 0;
    while number < count && !stop.load(Ordering::Relaxed) {
        if let Some(early) = interval.mul_f64(number as f64).checked_sub(start.elapsed()) {
            std::thread::sleep(early);
        }
        let due = (start.elapsed().as_nanos() / interval.as_nanos().max(1)) as u64 + 1;
        let size = due.min(count).saturating_sub(number).clamp(1, batch.most() as u64);
        let sent = batch.send(&socket, number, size as usize);
        report.sent += sent;
        report.refused += size - sent;
        number += size;
    }
    report.took_us = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(report)
}

/// Datagrams that leave with one call.
struct Batch {
    /// One behind the other.
    datagrams: Vec<u8>,
    size: usize,
    to: [Option<SockaddrStorage>; BATCH],
    /// As a single packet to the kernel.
    whole: bool,
}

impl Batch {
    fn new(to: SocketAddr, size: usize, whole: bool) -> Self {
        let mut datagram = filler(size);
        datagram[..4].copy_from_slice(&MAGIC);
        Self { datagrams: datagram.repeat(BATCH), size, to: [Some(to.into()); BATCH], whole }
    }

    /// How many can leave together.
    fn most(&self) -> usize {
        if self.whole { (LONGEST_BATCH / self.size).clamp(1, BATCH) } else { BATCH }
    }

    /// Sends datagrams of these numbers; how many the kernel took. A refused one is not tried again.
    fn send(&mut self, socket: &UdpSocket, first: u64, count: usize) -> u64 {
        let now = unix_nanos().to_be_bytes();
        for (number, datagram) in (first..first + count as u64).zip(self.datagrams.chunks_mut(self.size)) {
            datagram[4..12].copy_from_slice(&number.to_be_bytes());
            datagram[12..20].copy_from_slice(&now);
        }
        if self.whole { self.send_whole(socket, count) } else { self.send_each(socket, count) }
    }

    fn send_whole(&self, socket: &UdpSocket, count: usize) -> u64 {
        // Longer than any datagram can be: the kernel refuses it anyway.
        let Ok(size) = u16::try_from(self.size) else { return 0 };
        let slices = [IoSlice::new(&self.datagrams[..count * self.size])];
        let segments = [ControlMessage::UdpGsoSegments(&size)];
        let sent = sendmsg(socket.as_raw_fd(), &slices, &segments, MsgFlags::empty(), self.to[0].as_ref());
        match sent {
            Ok(_) => count as u64,
            // Before Linux 6.11 what leaves by a device that computes no checksums is not cut.
            Err(Errno::EIO) => self.send_each(socket, count),
            Err(_) => 0,
        }
    }

    fn send_each(&self, socket: &UdpSocket, count: usize) -> u64 {
        let slices: Vec<[IoSlice; 1]> =
            self.datagrams.chunks(self.size).take(count).map(|datagram| [IoSlice::new(datagram)]).collect();
        let mut taken = 0;
        let mut rest = &slices[..];
        while !rest.is_empty() {
            let mut headers = MultiHeaders::preallocate(rest.len(), None);
            let to = &self.to[..rest.len()];
            // The kernel stops at the first that it refuses, and says why only when that is the very first.
            match sendmmsg(socket.as_raw_fd(), &mut headers, rest, to, [], MsgFlags::empty()) {
                Ok(results) => {
                    let sent = results.count();
                    taken += sent as u64;
                    rest = &rest[sent.max(1)..];
                }
                Err(_) => rest = &rest[1..],
            }
        }
        taken
    }
}

/// Receives until `stop` is set; prints a line of JSON per second to `output`. `batched`: takes packets of several
/// datagrams uncut. `each`: the report has the latency of every datagram.
///
/// # Errors
/// When the address cannot be bound.
pub fn receive(
    at: SocketAddr,
    batched: bool,
    each: bool,
    stop: &Arc<AtomicBool>,
    mut output: impl Write,
) -> Result<Received, Error> {
    let socket =
        UdpSocket::bind(at).map_err(|source| Error::system(format!("UDP socket at {at}"), source))?;
    let what = "UDP socket options";
    setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).map_err(|errno| Error::system(what, errno))?;
    setsockopt(&socket, sockopt::UdpGroSegment, &batched).map_err(|errno| Error::system(what, errno))?;
    socket.set_read_timeout(Some(Duration::from_millis(50))).map_err(|source| Error::system(what, source))?;
    let mut tally = Tally::default();
    let mut buffers = vec![[0; LONGEST]; BATCH];
    let mut stopped = None;
    loop {
        if stop.load(Ordering::Relaxed) && stopped.is_none() {
            stopped = Some(Instant::now());
        }
        let packets = receive_batch(&socket, &mut buffers);
        // What waits already was not lost.
        if stopped.is_some_and(|at: Instant| packets.is_empty() || at.elapsed() > LEFTOVERS) {
            break;
        }
        let now = unix_nanos();
        for (buffer, packet) in buffers.iter().zip(packets) {
            for datagram in buffer[..packet.length].chunks(packet.segment) {
                if let Some((number, sent)) = parse(datagram) {
                    tally.count(number, sent, now, datagram.len());
                }
            }
        }
        if let Some(second) = tally.finished_second() {
            let line = serde_json::to_string(&second).unwrap_or_default();
            // A reader that went away is no reason to stop measuring.
            let _ = writeln!(output, "{line}");
            let _ = output.flush();
        }
    }
    Ok(tally.report(each))
}

/// Answers each datagram that comes to `at` with an empty one, so that who follows connections sees one in both directions.
///
/// # Errors
/// When the address cannot be bound.
pub fn answer(at: SocketAddr, stop: &AtomicBool) -> Result<(), Error> {
    let failed = |source| Error::system(format!("UDP socket at {at}"), source);
    let socket = UdpSocket::bind(at).map_err(failed)?;
    socket.set_read_timeout(Some(Duration::from_millis(50))).map_err(failed)?;
    while !stop.load(Ordering::Relaxed) {
        if let Ok((_, from)) = socket.recv_from(&mut [0; LONGEST]) {
            // Who has gone away needs none.
            let _ = socket.send_to(&[], from);
        }
    }
    Ok(())
}

/// What the kernel handed over at once: one datagram, or several of one length of which only the last may be shorter.
struct Packet {
    length: usize,
    /// The datagrams' length, never 0.
    segment: usize,
}

impl Packet {
    fn of(message: &RecvMsg<()>) -> Self {
        let segment = message.cmsgs().into_iter().flatten().find_map(|control| match control {
            ControlMessageOwned::UdpGroSegments(size) => usize::try_from(size).ok(),
            _ => None,
        });
        Self { length: message.bytes, segment: segment.unwrap_or(message.bytes).max(1) }
    }
}

/// The packets that are there, or the first that comes within the socket's patience.
fn receive_batch(socket: &UdpSocket, buffers: &mut [[u8; LONGEST]]) -> Vec<Packet> {
    let mut headers = MultiHeaders::<()>::preallocate(buffers.len(), Some(nix::cmsg_space!(i32)));
    let mut slices: Vec<[IoSliceMut; 1]> =
        buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
    let received = recvmmsg(socket.as_raw_fd(), &mut headers, &mut slices, MsgFlags::MSG_WAITFORONE, None);
    received.map_or_else(|_| Vec::new(), |messages| messages.map(|message| Packet::of(&message)).collect())
}

/// Bytes that are easily recognised in a capture, should they ever show up in one.
fn filler(size: usize) -> Vec<u8> {
    b"plaintext of the lab ".iter().copied().cycle().take(size).collect()
}

/// The text that every datagram of a stream repeats behind its header.
pub const PLAINTEXT: &[u8] = b"plaintext of the lab plaintext";

fn parse(datagram: &[u8]) -> Option<(u64, u64)> {
    let number = u64::from_be_bytes(datagram.get(4..12)?.try_into().ok()?);
    let sent = u64::from_be_bytes(datagram.get(12..20)?.try_into().ok()?);
    if datagram[..4] == MAGIC && number < MOST { Some((number, sent)) } else { None }
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Counts datagrams by their numbers.
#[derive(Debug, Default)]
struct Tally {
    seen: BTreeMap<u64, u64>,
    report: Received,
    current: Second,
    current_latency: Vec<f32>,
    latency: Vec<f32>,
    start: Option<Instant>,
}

impl Tally {
    fn count(&mut self, number: u64, sent: u64, now: u64, bytes: usize) {
        self.start.get_or_insert_with(Instant::now);
        self.current.received += 1;
        self.current.bytes += bytes as u64;
        let latency = (now.saturating_sub(sent)) as f32 / 1e6;
        self.current_latency.push(latency);
        self.latency.push(latency);
        if self.note(number) {
            self.report.distinct += 1;
        } else {
            self.report.duplicated += 1;
            return;
        }
        if number < self.report.expected {
            self.report.reordered += 1;
        }
        self.report.expected = self.report.expected.max(number + 1);
    }

    /// Remembers a number in a bit set of 64-bit words; false if it was there.
    fn note(&mut self, number: u64) -> bool {
        let word = self.seen.entry(number / 64).or_default();
        let bit = 1u64 << (number % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// The second that has just ended, if one has.
    fn finished_second(&mut self) -> Option<Second> {
        let elapsed = self.start?.elapsed().as_secs();
        if elapsed <= self.current.second {
            return None;
        }
        self.current.missing = self.report.expected - self.report.distinct;
        self.current.duplicated = self.report.duplicated;
        self.current.latency_ms = Latency::of(&mut self.current_latency);
        self.current_latency.clear();
        let next = Second { second: self.current.second + 1, ..Second::default() };
        let finished = std::mem::replace(&mut self.current, next);
        self.report.seconds.push(finished.clone());
        Some(finished)
    }

    fn report(mut self, each: bool) -> Received {
        if each {
            self.report.each_ms.clone_from(&self.latency);
        }
        self.report.latency_ms = Latency::of(&mut self.latency);
        self.report.gaps = self.gaps();
        self.report
    }

    fn gaps(&self) -> Vec<(u64, u64)> {
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        if self.report.distinct == self.report.expected {
            return gaps;
        }
        let missing =
            |number: &u64| self.seen.get(&(number / 64)).is_none_or(|word| word & (1 << (number % 64)) == 0);
        for number in (0..self.report.expected).filter(missing) {
            let full = gaps.len() == MOST_GAPS;
            match gaps.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ if full => break,
                _ => gaps.push((number, number)),
            }
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lost_doubled_and_reordered_datagrams_are_told_apart() {
        let mut tally = Tally::default();
        for number in [0, 1, 3, 2, 2, 6, 7, 100] {
            tally.count(number, 1_000_000, 3_000_000, 100);
        }
        let report = tally.report(true);
        assert_eq!((report.distinct, report.duplicated, report.reordered, report.expected), (7, 1, 1, 101));
        assert_eq!(report.gaps, [(4, 5), (8, 99)]);
        assert!((report.latency_ms.p50 - 2.0).abs() < 1e-6);
        assert_eq!(report.each_ms, [2.0; 8]);
    }

    #[test]
    fn percentiles_of_few_and_of_no_values() {
        assert_eq!(Latency::of(&mut []), Latency::default());
        let mut values: Vec<f32> = (0..100).rev().map(|value| value as f32).collect();
        let latency = Latency::of(&mut values);
        assert_eq!((latency.p50, latency.p99, latency.max), (50.0, 99.0, 99.0));
    }

    /// What arrives of 1,000 datagrams over loopback, of the lengths that a packet of several has to cope with.
    fn over_loopback(port: u16, size: usize, batched: [bool; 2]) {
        let at = SocketAddr::new("127.0.0.1".parse().expect("an address"), port);
        let stop = Arc::new(AtomicBool::new(false));
        let receiver = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                receive(at, batched[1], false, &stop, std::io::sink()).expect("received")
            })
        };
        std::thread::sleep(Duration::from_millis(100));
        let duration = Duration::from_millis(100);
        let sent = send(at, 10_000, size, duration, batched[0], &Arc::default()).expect("sent");
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        let received = receiver.join().expect("a report");
        let counts = (sent.sent, sent.refused, received.distinct, received.duplicated);
        assert_eq!(counts, (1_000, 0, 1_000, 0), "{size} bytes, {batched:?}");
    }

    #[test]
    fn a_stream_over_loopback_arrives_whole() {
        over_loopback(47_811, 200, [false, false]);
    }

    #[test]
    fn a_batched_stream_arrives_whole_uncut_or_cut() {
        over_loopback(47_812, 64, [true, true]);
        over_loopback(47_812, 1_200, [true, true]);
        over_loopback(47_812, 9_000, [true, true]);
        over_loopback(47_812, 64, [true, false]);
    }

    #[test]
    fn a_batch_is_no_longer_than_a_packet() {
        let most = |size, whole| Batch::new(([127, 0, 0, 1], 9).into(), size, whole).most();
        assert_eq!([64, 1_200, 9_000, 65_507].map(|size| most(size, true)), [64, 54, 7, 1]);
        assert_eq!(most(9_000, false), 64);
    }

    proptest! {
        #[test]
        fn arbitrary_datagrams_do_no_harm(datagram in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = parse(&datagram);
        }
    }
}

//! The small programs at the hosts: one that asks and one that answers, one that sends and one that takes.
//!
//! Each pair has sockets of its own, which ask for their security. The second host's program is a thread beside the first
//! one's.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ipsec::policy::Levels;
use stack::ipsec::Ipsec;
use stack::tcp;
use stack_runtime::{Stack, TcpListener, TcpOptions, TcpStream, UdpSocket};

use super::hosts::{Hosts, Side};

/// What is measured of each value in a round.
const LENGTH: Duration = Duration::from_millis(15);
/// What comes before it: connections grow, neighbours are found, caches fill.
const WARM: Duration = Duration::from_millis(5);
/// Silence after which something is lost.
const PATIENCE: Duration = Duration::from_secs(2);
const PORT: u16 = 7;
/// Datagrams that the sender is ahead of the receiver's word, which comes for half as many: fewer than a socket holds.
const AHEAD: usize = 128;
const WORD: usize = AHEAD / 2;

/// Counts what is done in the time that is measured.
struct Meter {
    begun: Instant,
    /// When it was warm.
    warm: Option<Instant>,
    done: usize,
}

impl Meter {
    fn new() -> Self {
        Self { begun: Instant::now(), warm: None, done: 0 }
    }

    /// Counts what was just done. So much a second, when the time is over.
    fn add(&mut self, done: usize) -> Option<f64> {
        let now = Instant::now();
        let Some(warm) = self.warm else {
            self.warm = (now - self.begun >= WARM).then_some(now);
            return None;
        };
        self.done += done;
        let took = now - warm;
        (took >= LENGTH).then(|| self.done as f64 / took.as_secs_f64())
    }
}

/// Microseconds of a request of so many bytes and an answer of as many.
pub(super) fn tcp_latency(hosts: &Hosts, is_ipv6: bool, levels: Levels, size: usize) -> io::Result<f64> {
    let config = tcp::Config { nagle: false, ..tcp::Config::new(u16::MAX) };
    let (mut client, mut server) = connect(hosts, is_ipv6, TcpOptions { config, levels })?;
    let (request, mut answer) = (vec![1; size], vec![0; size]);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            Side::B.pin();
            let mut data = vec![0; size];
            // Until the client has had enough.
            while server.read_exact(&mut data).and_then(|()| server.write_all(&data)).is_ok() {}
        });
        let per_second = repeat(|| {
            client.write_all(&request)?;
            client.read_exact(&mut answer)
        });
        drop(client);
        per_second
    })
    .map(|per_second| 1e6 / per_second)
}

/// The same with datagrams.
pub(super) fn udp_latency(hosts: &Hosts, is_ipv6: bool, levels: Levels, size: usize) -> io::Result<f64> {
    let (client, server) = bind(hosts, is_ipv6, levels)?;
    let (request, mut answer) = (vec![1; size], Vec::new());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            Side::B.pin();
            let mut data = Vec::new();
            while let Ok(from) = server.receive(&mut data)
                && !data.is_empty()
                && server.send_to(&data, from).is_ok()
            {}
        });
        let per_second = repeat(|| {
            client.send(&request)?;
            client.receive(&mut answer)?;
            if answer.len() == size { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
        });
        // That was all.
        client.send(&[])?;
        per_second
    })
    .map(|per_second| 1e6 / per_second)
}

/// MB/s of one connection, as they arrive, with writes and buffers of so many bytes.
pub(super) fn tcp_speed(
    hosts: &Hosts,
    is_ipv6: bool,
    levels: Levels,
    write: usize,
    buffer: usize,
) -> io::Result<f64> {
    let config =
        tcp::Config { max_receive_buffer: buffer, max_send_buffer: buffer, ..tcp::Config::new(u16::MAX) };
    let (mut client, mut server) = connect(hosts, is_ipv6, TcpOptions { config, levels })?;
    let (is_over, data) = (AtomicBool::new(false), vec![1; write]);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            Side::B.pin();
            let (mut data, mut meter) = (vec![0; 65_536], Meter::new());
            let per_second = loop {
                match server.read(&mut data) {
                    Ok(0) => break Err(ErrorKind::UnexpectedEof.into()),
                    Ok(length) => {
                        if let Some(per_second) = meter.add(length) {
                            break Ok(per_second);
                        }
                    }
                    Err(error) => break Err(error),
                }
            };
            is_over.store(true, Ordering::Relaxed);
            // The sender may wait for room.
            while server.read(&mut data).is_ok_and(|length| length > 0) {}
            per_second
        });
        let mut sent = Ok(());
        while sent.is_ok() && !is_over.load(Ordering::Relaxed) {
            sent = client.write_all(&data);
        }
        drop(client);
        let per_second = taking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.and(per_second)
    })
    .map(|per_second| per_second / 1e6)
}

/// MB/s of datagrams of so many bytes, none of which is lost: the receiver says how far it is.
pub(super) fn udp_speed(hosts: &Hosts, is_ipv6: bool, levels: Levels, size: usize) -> io::Result<f64> {
    let (client, server) = bind(hosts, is_ipv6, levels)?;
    let (is_over, data) = (AtomicBool::new(false), vec![1; size]);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| {
            Side::B.pin();
            let taken = take(&server);
            is_over.store(true, Ordering::Relaxed);
            let (per_second, from) = taken?;
            // The sender may wait for a word.
            server.send_to(&[1], from)?;
            drain(&server)?;
            server.send_to(&[], from)?;
            Ok(per_second)
        });
        let send = || {
            let (mut ahead, mut word) = (0, Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                if ahead == AHEAD {
                    client.receive(&mut word)?;
                    ahead -= WORD;
                }
                client.send(&data)?;
                ahead += 1;
            }
            client.send(&[])?;
            drain(&client)
        };
        let sent: io::Result<()> = send();
        let per_second = taking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        sent.and(per_second)
    })
    .map(|per_second| per_second / 1e6)
}

/// Takes datagrams, and gives a word for so many. Returns how many bytes there were in a second, and who has sent them.
fn take(socket: &UdpSocket<Ipsec>) -> io::Result<(f64, SocketAddr)> {
    let (mut data, mut meter, mut count) = (Vec::new(), Meter::new(), 0);
    loop {
        let from = socket.receive(&mut data)?;
        if let Some(per_second) = meter.add(data.len()) {
            return Ok((per_second, from));
        }
        count += 1;
        if count % WORD == 0 {
            socket.send_to(&[1], from)?;
        }
    }
}

/// Takes what is still on its way, up to an empty datagram: what comes to a closed socket is an error at the next one.
fn drain(socket: &UdpSocket<Ipsec>) -> io::Result<()> {
    let mut data = Vec::new();
    loop {
        socket.receive(&mut data)?;
        if data.is_empty() {
            return Ok(());
        }
    }
}

/// Does something again and again, and returns how often in a second.
fn repeat(mut once: impl FnMut() -> io::Result<()>) -> io::Result<f64> {
    let mut meter = Meter::new();
    loop {
        once()?;
        if let Some(per_second) = meter.add(1) {
            return Ok(per_second);
        }
    }
}

/// A connection from the first host to the second.
fn connect(
    hosts: &Hosts,
    is_ipv6: bool,
    options: TcpOptions,
) -> io::Result<(TcpStream<Ipsec>, TcpStream<Ipsec>)> {
    let listener = TcpListener::bind_with(&hosts.b, any(PORT), &options, 1)?;
    let client = TcpStream::connect_with(&hosts.a, Hosts::b_at(is_ipv6, PORT), &options, Some(PATIENCE))?;
    let (server, _) = listener.accept()?;
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(PATIENCE));
        stream.set_write_timeout(Some(PATIENCE));
    }
    Ok((client, server))
}

/// A socket of each host; the first one's sends to the second one's.
fn bind(hosts: &Hosts, is_ipv6: bool, levels: Levels) -> io::Result<(UdpSocket<Ipsec>, UdpSocket<Ipsec>)> {
    let open = |stack: &Stack<Ipsec>, port| -> io::Result<UdpSocket<Ipsec>> {
        let socket = UdpSocket::bind(stack, any(port))?;
        socket.set_levels(levels)?;
        socket.set_read_timeout(Some(PATIENCE));
        Ok(socket)
    };
    let (client, server) = (open(&hosts.a, 0)?, open(&hosts.b, PORT)?);
    client.connect(Hosts::b_at(is_ipv6, PORT))?;
    Ok((client, server))
}

fn any(port: u16) -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, port).into()
}

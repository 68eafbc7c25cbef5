//! What client and server of the scene do: floods of one datagram, questions and answers of UDP, and connections that
//! begin as those of TLS do.

use std::collections::BTreeMap;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use clap::Subcommand;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, SockaddrIn6, SockaddrStorage, bind, connect,
    sendmsg, socket,
};
use serde::{Deserialize, Serialize};

use crate::comparison::quantile;
use lab::Error;

/// Octets of each question in a connection, and of each answer.
const EXCHANGE: usize = 64;
/// Connections that the server takes at once.
const SERVERS: usize = 32;
/// Octets that the kernel cuts into packets, at most.
const BATCH: usize = 60_000;
/// As long as browsers' are.
const HELLO: usize = 517;
/// An answer that does not come within this was refused.
const PATIENCE: Duration = Duration::from_secs(1);
const UDP_PATIENCE: Duration = Duration::from_millis(200);

/// Commands on the machines of the scene.
#[derive(Clone, Debug, Subcommand)]
pub enum TrafficCommand {
    /// Send one datagram so often, as fast as it goes
    Flood {
        /// Destination
        #[arg(long)]
        to: SocketAddr,
        /// Its octets, in hexadecimal
        #[arg(long)]
        payload: String,
        /// How often
        #[arg(long)]
        count: usize,
    },
    /// Send a datagram, wait for the answer, and again
    Ask {
        /// Own address
        #[arg(long, default_value = "[::]:0")]
        from: SocketAddr,
        /// Destination
        #[arg(long)]
        to: SocketAddr,
        /// Its octets, in hexadecimal
        #[arg(long)]
        payload: String,
        /// How often
        #[arg(long)]
        count: usize,
    },
    /// Answer connections
    Serve {
        /// Own address
        #[arg(long)]
        listen: SocketAddr,
    },
    /// Connect, send a ClientHello, wait for the answer; exchange octets; and again
    Connect {
        /// Destination
        #[arg(long)]
        to: SocketAddrV6,
        /// The name that it asks for
        #[arg(long)]
        name: String,
        /// How many connections
        #[arg(long)]
        count: u16,
        /// How many of them side by side
        #[arg(long, default_value_t = 1)]
        threads: u16,
        /// From this port on, one for each: none is used twice
        #[arg(long)]
        first_port: u16,
        /// How often 64 octets are exchanged in each: then that is what takes time, not the connection
        #[arg(long, default_value_t = 0)]
        exchanges: usize,
        /// The ClientHello comes in two segments
        #[arg(long)]
        split: bool,
    },
}

/// What came of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Carried {
    /// Datagrams, connections or exchanges.
    pub(super) asked: usize,
    pub(super) answered: usize,
    pub(super) took_us: u64,
    /// Of those that were answered.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Connections by the last octet of the server's address.
    pub(super) servers: BTreeMap<u8, usize>,
}

impl Carried {
    fn of(asked: usize, times_us: &[f64], begun: Instant) -> Self {
        let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let time = |part| quantile(times_us, part).unwrap_or_default();
        let (p50_us, p99_us) = (time(0.5), time(0.99));
        Self { asked, answered: times_us.len(), took_us, p50_us, p99_us, ..Self::default() }
    }

    /// In a second.
    pub(super) fn rate(&self) -> f64 {
        self.answered as f64 / (self.took_us.max(1) as f64 / 1e6)
    }
}

/// Carries out a command; the server's does not end.
///
/// # Errors
/// When there is no socket, or a payload is not hexadecimal.
pub(crate) fn run(command: &TrafficCommand) -> Result<impl Serialize + use<>, Error> {
    match command {
        TrafficCommand::Flood { to, payload, count } => flood(*to, &octets(payload)?, *count),
        TrafficCommand::Ask { from, to, payload, count } => ask(*from, *to, &octets(payload)?, *count),
        TrafficCommand::Serve { listen } => serve(*listen),
        TrafficCommand::Connect { to, name, count, threads, first_port, exchanges, split } => {
            let hello = client_hello(name);
            let begun = Instant::now();
            let share = count / (*threads).max(1);
            let client = Client { to: *to, hello: &hello, exchanges: *exchanges, split: *split };
            let all: Vec<Connections> = std::thread::scope(|scope| {
                let parts = (0..*threads).map(|thread| {
                    let ports = first_port + thread * share..first_port + (thread + 1) * share;
                    scope.spawn(move || client.connections(ports))
                });
                let parts: Vec<_> = parts.collect();
                parts.into_iter().filter_map(|part| part.join().ok()).collect()
            });
            let times: Vec<f64> = all.iter().flat_map(|part| part.times_us.iter().copied()).collect();
            let asked = usize::from(share * threads) * (*exchanges).max(1);
            let mut carried = Carried::of(asked, &times, begun);
            for server in all.iter().flat_map(|part| &part.servers) {
                *carried.servers.entry(*server).or_default() += 1;
            }
            Ok(carried)
        }
    }
}

fn octets(hexadecimal: &str) -> Result<Vec<u8>, Error> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let octet = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    digits
        .map(octet)
        .collect::<Option<_>>()
        .ok_or_else(|| Error::Usage(format!("`{hexadecimal}` is not hexadecimal")))
}

/// As one writes it on a command line.
pub(super) fn hexadecimal(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn failed(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Error {
    let what = what.into();
    |source| Error::system(what, source)
}

/// The kernel cuts what leaves with one call into packets.
fn flood(to: SocketAddr, payload: &[u8], count: usize) -> Result<Carried, Error> {
    let any = if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).map_err(failed("UDP socket"))?;
    let size = u16::try_from(payload.len().max(1)).unwrap_or(u16::MAX);
    let batch = (BATCH / usize::from(size)).clamp(1, 64);
    let (datagrams, to) = (payload.repeat(batch), SockaddrStorage::from(to));
    let begun = Instant::now();
    let mut sent = 0;
    while sent < count {
        let now = batch.min(count - sent);
        let slices = [IoSlice::new(&datagrams[..now * payload.len()])];
        let segments = [ControlMessage::UdpGsoSegments(&size)];
        // What the kernel refuses is lost, as what it drops later.
        let _ = sendmsg(socket.as_raw_fd(), &slices, &segments, MsgFlags::empty(), Some(&to));
        sent += now;
    }
    let took_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(Carried { asked: sent, answered: sent, took_us, ..Carried::default() })
}

fn ask(from: SocketAddr, to: SocketAddr, payload: &[u8], count: usize) -> Result<Carried, Error> {
    let socket = UdpSocket::bind(from).map_err(failed(format!("UDP socket at {from}")))?;
    socket.connect(to).map_err(failed(format!("UDP socket to {to}")))?;
    socket.set_read_timeout(Some(UDP_PATIENCE)).map_err(failed("UDP socket"))?;
    let (begun, mut times) = (Instant::now(), Vec::with_capacity(count));
    for _ in 0..count {
        let sent = Instant::now();
        if socket.send(payload).is_ok() && socket.recv(&mut [0; 512]).is_ok() {
            times.push(sent.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(Carried::of(count, &times, begun))
}

/// Takes a record of TLS, answers, and then answers whatever comes.
fn serve(listen: SocketAddr) -> Result<Carried, Error> {
    let listener = TcpListener::bind(listen).map_err(failed(format!("TCP at {listen}")))?;
    std::thread::scope(|scope| {
        for _ in 0..SERVERS {
            scope.spawn(|| {
                for stream in listener.incoming().flatten() {
                    // A client that goes away has what it wanted.
                    let _ = serve_one(stream);
                }
            });
        }
    });
    Ok(Carried::default())
}

fn serve_one(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut answer = [0; EXCHANGE];
    if let SocketAddr::V6(own) = stream.local_addr()? {
        answer[0] = own.ip().octets()[15];
    }
    let mut header = [0; 5];
    stream.read_exact(&mut header)?;
    stream.read_exact(&mut vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))])?;
    loop {
        stream.write_all(&answer)?;
        stream.read_exact(&mut [0; EXCHANGE])?;
    }
}

#[derive(Clone, Copy)]
struct Client<'a> {
    to: SocketAddrV6,
    hello: &'a [u8],
    exchanges: usize,
    split: bool,
}

#[derive(Default)]
struct Connections {
    times_us: Vec<f64>,
    servers: Vec<u8>,
}

impl Client<'_> {
    fn connections(self, ports: std::ops::Range<u16>) -> Connections {
        let mut all = Connections::default();
        for port in ports {
            // One that is refused has no time.
            let _ = self.connection(port, &mut all);
        }
        all
    }

    fn connection(self, port: u16, all: &mut Connections) -> std::io::Result<()> {
        let begun = Instant::now();
        let socket = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        let own: SocketAddrV6 = SocketAddrV6::new(std::net::Ipv6Addr::UNSPECIFIED, port, 0, 0);
        bind(socket.as_raw_fd(), &SockaddrIn6::from(own))?;
        connect(socket.as_raw_fd(), &SockaddrIn6::from(self.to))?;
        let mut stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (first, second) = self.hello.split_at(if self.split { 100 } else { 0 });
        if self.split {
            stream.write_all(first)?;
            std::thread::sleep(Duration::from_millis(20));
        }
        stream.write_all(second)?;
        let mut answer = [0; EXCHANGE];
        stream.read_exact(&mut answer)?;
        all.servers.push(answer[0]);
        if self.exchanges == 0 {
            all.times_us.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        for _ in 0..self.exchanges {
            let begun = Instant::now();
            stream.write_all(&[1; EXCHANGE])?;
            stream.read_exact(&mut answer)?;
            all.times_us.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        Ok(())
    }
}

/// A ClientHello that asks for a name (RFC 8446 section 4.1.2, RFC 6066 section 3), with another extension before that, and
/// padding (RFC 7685).
fn client_hello(name: &str) -> Vec<u8> {
    fn with_length(octets: &[u8]) -> Vec<u8> {
        let length = u16::try_from(octets.len()).unwrap_or(u16::MAX);
        [&length.to_be_bytes()[..], octets].concat()
    }
    let extension = |kind: u16, octets: &[u8]| [&kind.to_be_bytes()[..], &with_length(octets)].concat();
    let names = with_length(&[&[0][..], &with_length(name.as_bytes())].concat());
    let mut extensions = [extension(10, &[0, 2, 0, 29]), extension(0, &names)].concat();
    // Headers of record and handshake, version, random number, no session, a cipher suite, no compression, two lengths.
    let others = 5 + 4 + 2 + 32 + 1 + 4 + 2 + 2 + 4;
    extensions.extend(extension(21, &vec![0; HELLO.saturating_sub(others + extensions.len())]));
    let version_and_random = [&[3, 3][..], &[0x72; 32]].concat();
    let body = [&version_and_random[..], &[0, 0, 2, 0x13, 1, 1, 0], &with_length(&extensions)].concat();
    let handshake = [&[1, 0][..], &with_length(&body)].concat();
    [&[0x16, 3, 1][..], &with_length(&handshake)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_hello_is_as_long_as_those_of_browsers() {
        let hello = client_hello("www.example");
        assert_eq!(hello.len(), HELLO);
        assert_eq!(usize::from(u16::from_be_bytes([hello[3], hello[4]])), HELLO - 5);
        assert!(hello.windows(11).any(|octets| octets == b"www.example"));
    }

    #[test]
    fn octets_are_read_as_they_are_written() {
        assert_eq!(octets(&hexadecimal(&[0, 10, 255])).ok(), Some(vec![0, 10, 255]));
        assert!(octets("0g").is_err());
    }
}

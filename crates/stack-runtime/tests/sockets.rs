//! Sockets of two stacks that are connected in memory.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use ipsec::key_engine::KeyEngine;
use ipsec::policy::{Level, Levels, PolicyDatabase};
use stack::faults::Faults;
use stack::interface::Event;
use stack::ipsec::Ipsec;
use stack_runtime::device::{Device, Faulty, Recorded, pair};
use stack_runtime::{Options, Stack, TcpListener, TcpOptions, TcpStream, UdpSocket, is_security};

const PATIENCE: Duration = Duration::from_secs(30);
const ANY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

/// As on a link that nobody else is on.
fn options(name: &str) -> Options {
    Options { routers: false, duplicate_transmits: 0, ..Options::new(name) }
}

/// Two stacks, and the address of the second.
fn two(faults: Faults) -> (Stack, Stack, Ipv6Addr) {
    let (a, b) = pair(1500).unwrap();
    let a = Stack::start(Faulty::new(a, faults, 1), options("a")).unwrap();
    let b = Stack::start(b, options("b")).unwrap();
    a.wait_for_address(PATIENCE).unwrap();
    let address = b.wait_for_address(PATIENCE).unwrap();
    (a, b, address)
}

fn at(address: Ipv6Addr, port: u16) -> SocketAddr {
    (address, port).into()
}

#[test]
fn a_stream_crosses_loss_and_reordering_whole() {
    let faults = Faults {
        loss: 0.01,
        reorder: (0.02, Duration::from_millis(2)),
        corrupt: 0.005,
        duplicate: 0.01,
        ..Faults::default()
    };
    let (a, b, address) = two(faults);
    let listener = TcpListener::bind(&b, at(ANY, 80)).unwrap();
    let data: Vec<u8> = (0..2_000_000_u32).map(|n| (n % 251) as u8 ^ (n >> 12) as u8).collect();
    let sent = data.clone();
    let sender = thread::spawn(move || {
        let mut stream = TcpStream::connect(&a, at(address, 80)).unwrap();
        stream.write_all(&sent).unwrap();
        stream.finish(PATIENCE).unwrap();
    });
    let (mut stream, _) = listener.accept().unwrap();
    let mut got = Vec::new();
    stream.read_to_end(&mut got).unwrap();
    assert!(got == data, "{} of {} octets", got.len(), data.len());
    drop(stream);
    sender.join().unwrap();
}

#[test]
fn both_ends_know_each_other() {
    let (a, b, address) = two(Faults::default());
    let listener = TcpListener::bind(&b, at(ANY, 80)).unwrap();
    let client = TcpStream::connect(&a, at(address, 80)).unwrap();
    client.set_nodelay(true).unwrap();
    let (server, from) = listener.accept().unwrap();
    assert_eq!(client.local_addr().unwrap(), from);
    assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
}

#[test]
fn nobody_who_listens_is_a_refusal_and_silence_a_timeout() {
    let (a, _b, address) = two(Faults::default());
    let refused = TcpStream::connect(&a, at(address, 80)).err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let nobody = "fe80::dead".parse().unwrap();
    let limit = Some(Duration::from_millis(200));
    let silence = TcpStream::connect_with(&a, at(nobody, 80), &TcpOptions::default(), limit).err().unwrap();
    assert_eq!(silence.kind(), ErrorKind::TimedOut);
}

#[test]
fn a_read_waits_no_longer_than_it_may_and_can_be_repeated() {
    let (a, b, address) = two(Faults::default());
    let listener = TcpListener::bind(&b, at(ANY, 80)).unwrap();
    let mut client = TcpStream::connect(&a, at(address, 80)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(Duration::from_millis(20)));
    let mut data = [0; 10];
    assert_eq!(server.read(&mut data).unwrap_err().kind(), ErrorKind::TimedOut);
    client.write_all(b"late").unwrap();
    server.set_read_timeout(None);
    assert_eq!(server.read(&mut data).unwrap(), 4);
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut data).unwrap(), 0);
    assert_eq!(client.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

#[test]
fn who_resets_a_connection_is_heard_by_who_reads() {
    let (a, b, address) = two(Faults::default());
    let listener = TcpListener::bind(&b, at(ANY, 80)).unwrap();
    let client = TcpStream::connect(&a, at(address, 80)).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.abort().unwrap();
    assert_eq!(server.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn datagrams_of_several_fragments_are_answered() {
    let (a, b, address) = two(Faults::default());
    let server = UdpSocket::bind(&b, at(ANY, 7)).unwrap();
    let echo = thread::spawn(move || {
        let mut data = Vec::new();
        let from = server.receive(&mut data).unwrap();
        server.send_to(&data, from).unwrap();
    });
    let client = UdpSocket::bind(&a, at(ANY, 0)).unwrap();
    client.connect(at(address, 7)).unwrap();
    client.send(&[7; 5000]).unwrap();
    client.set_read_timeout(Some(PATIENCE));
    let mut data = Vec::new();
    assert_eq!(client.receive(&mut data).unwrap(), at(address, 7));
    assert_eq!(data, [7; 5000]);
    echo.join().unwrap();
}

#[test]
fn a_port_that_nobody_has_is_an_error_of_the_socket() {
    let (a, _b, address) = two(Faults::default());
    let client = UdpSocket::bind(&a, at(ANY, 0)).unwrap();
    client.connect(at(address, 7)).unwrap();
    client.send(b"hello").unwrap();
    client.set_read_timeout(Some(PATIENCE));
    assert_eq!(client.receive(&mut Vec::new()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_ping_is_answered() {
    let (a, _b, address) = two(Faults::default());
    a.ping(IpAddr::V6(address), 1, 9, b"ping").unwrap();
    loop {
        if let Event::EchoReply { from, sequence, .. } = a.next_event(PATIENCE).unwrap().1 {
            assert_eq!((from, sequence), (address, 9));
            break;
        }
    }
}

#[test]
fn what_asks_for_security_that_is_not_there_is_told_so() {
    let (a, _b) = pair(1500).unwrap();
    let security = Ipsec::new(std::time::Instant::now(), KeyEngine::new(), PolicyDatabase::new());
    let a = Stack::start_with(a, options("a"), security).unwrap();
    a.wait_for_address(PATIENCE).unwrap();
    let socket = UdpSocket::bind(&a, at(ANY, 0)).unwrap();
    socket.set_levels(Levels { authentication: Level::Require, ..Levels::NONE }).unwrap();
    let error = socket.send_to(b"secret", at("fe80::b".parse().unwrap(), 7)).unwrap_err();
    assert!(is_security(&error), "{error}");
}

#[test]
fn what_passes_is_recorded() {
    let file = Arc::new(Mutex::new(Vec::new()));
    let (a, b) = pair(1500).unwrap();
    let medium = a.medium();
    let show = Recorded::to_pcap(Shared(Arc::clone(&file)), medium).unwrap();
    let a = Stack::start(Recorded::new(a, show), options("a")).unwrap();
    let b = Stack::start(b, options("b")).unwrap();
    a.wait_for_address(PATIENCE).unwrap();
    let address = b.wait_for_address(PATIENCE).unwrap();
    a.ping(IpAddr::V6(address), 1, 9, b"a ping that is looked for").unwrap();
    while !matches!(a.next_event(PATIENCE).unwrap().1, Event::EchoReply { .. }) {}
    drop(a);
    let file = file.lock().unwrap();
    let capture = wire::pcap::Capture::parse(&file).unwrap();
    let contains = |octets: &[u8]| octets.windows(6).any(|six| six == b"a ping");
    let pings = capture.records().filter(|record| contains(record.unwrap().octets)).count();
    assert_eq!((capture.link_type(), pings), (wire::pcap::LINKTYPE_ETHERNET, 2));
}

/// A file in memory.
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(data)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_program_holds_thousands_of_connections() {
    let count = if std::env::var("SIDESTEP_SCALE").is_ok_and(|scale| scale == "full") { 10_000 } else { 500 };
    let (a, b, address) = two(Faults::default());
    let listener = TcpListener::bind_with(&b, at(ANY, 80), &TcpOptions::default(), 1024).unwrap();
    let server = thread::spawn(move || {
        let mut streams: Vec<_> = (0..count).map(|_| listener.accept().unwrap().0).collect();
        for stream in &mut streams {
            let mut number = [0; 4];
            stream.read_exact(&mut number).unwrap();
            stream.write_all(&number).unwrap();
        }
        streams
    });
    let mut clients: Vec<_> = (0..count).map(|_| TcpStream::connect(&a, at(address, 80)).unwrap()).collect();
    for (number, stream) in clients.iter_mut().enumerate() {
        stream.write_all(&(number as u32).to_be_bytes()).unwrap();
    }
    for (number, stream) in clients.iter_mut().enumerate() {
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(u32::from_be_bytes(answer), number as u32);
    }
    server.join().unwrap();
}

#[test]
fn who_waits_is_told_when_the_device_fails() {
    let (a, b) = pair(1500).unwrap();
    let a = Stack::start(Failing(a), options("a")).unwrap();
    let listener = TcpListener::bind(&a, at(ANY, 80)).unwrap();
    let waits = thread::spawn(move || listener.accept().err().unwrap().to_string());
    // What it says of itself may be the first that arrives.
    let b = Stack::start(b, options("b")).unwrap();
    let to = at(b.wait_for_address(PATIENCE).unwrap(), 7);
    let socket = UdpSocket::bind(&b, at(ANY, 0)).unwrap();
    socket.send_to(b"anything", at("fe80::1".parse().unwrap(), 7)).unwrap();
    assert!(waits.join().unwrap().contains("the device has failed"));
    let error = UdpSocket::bind(&a, to).err().unwrap();
    assert!(error.to_string().contains("the device has failed"), "{error}");
}

/// A device that fails when something arrives.
struct Failing(stack_runtime::device::Pair);

impl stack_runtime::device::Device for Failing {
    fn medium(&self) -> stack::interface::Medium {
        self.0.medium()
    }

    fn mtu(&self) -> usize {
        self.0.mtu()
    }

    fn receive(&mut self, now: std::time::Instant, frame: &mut Vec<u8>) -> std::io::Result<bool> {
        if self.0.receive(now, frame)? { Err(std::io::Error::other("gone")) } else { Ok(false) }
    }

    fn send(&mut self, _: std::time::Instant, _: &[u8]) -> std::io::Result<bool> {
        Ok(true)
    }

    fn register(&self, poller: &linux::event::Poller, token: u64) -> std::io::Result<()> {
        self.0.register(poller, token)
    }
}

//! Clients with sockets of the kernel, a proxy, and a host at the other end of a tunnel that is a function call.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use linux::event::{Events, Waker};
use stack::host::ListenerHandle;
use stack::tcp;
use stack::udp::SocketId;

use super::*;
use crate::association::MAX_ASSOCIATIONS;

const NEAR: (&str, &str) = ("2001:db8::1", "192.0.2.1");
const FAR: (&str, &str) = ("2001:db8::2", "192.0.2.2");
/// What comes back as it was.
const ECHO: u16 = 7;
/// How much has come is told, when all has come.
const COUNT: u16 = 9;
/// As much is sent as nobody keeps for a client.
const SEND: u16 = 19;
const SENT: usize = 16 << 20;

/// The other end of the tunnel: servers on a host.
struct Far {
    host: Host,
    listeners: [(u16, ListenerHandle); 3],
    dns: SocketId,
    connections: Vec<Served>,
}

struct Served {
    port: u16,
    handle: TcpHandle,
    count: usize,
    waiting: Vec<u8>,
}

impl Far {
    fn new(now: Instant) -> Self {
        let mut host = host(1400, now).unwrap();
        host.interface_mut().add_address(now, FAR.0.parse().unwrap(), 128);
        let address = format!("{}/32", FAR.1).parse().unwrap();
        host.interface_mut().set_ipv4(Some(Ipv4 { address, gateway: None }));
        let any = |port| SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
        let listeners = [ECHO, COUNT, SEND]
            .map(|port| (port, host.tcp_listen(any(port), tcp::Config::new(u16::MAX), 1024).unwrap()));
        let dns = host.interface_mut().udp_bind(any(53)).unwrap();
        Self { host, listeners, dns, connections: Vec::new() }
    }

    fn serve(&mut self, now: Instant) {
        let mut question = Vec::new();
        while let Some(metadata) = self.host.interface_mut().udp_receive(self.dns, &mut question) {
            let known = [FAR.0.parse().unwrap(), FAR.1.parse().unwrap()];
            let reply = crate::dns::tests::reply(&question, &known);
            self.host.interface_mut().udp_send(now, self.dns, Some(metadata.from), &reply).unwrap();
            question.clear();
        }
        for (port, listener) in self.listeners {
            while let Some(handle) = self.host.tcp_accept(listener).unwrap() {
                self.connections.push(Served { port, handle, count: 0, waiting: Vec::new() });
            }
        }
        self.connections.retain_mut(|served| served.serve(&mut self.host, now));
    }
}

impl Served {
    /// Whether it goes on.
    fn serve(&mut self, host: &mut Host, now: Instant) -> bool {
        let mut bytes = vec![0; 64 << 10];
        loop {
            let written = host.write(self.handle, &self.waiting).unwrap();
            self.waiting.drain(..written);
            let length =
                if self.waiting.is_empty() { host.read(self.handle, &mut bytes).unwrap() } else { 0 };
            if length == 0 {
                break;
            }
            self.count += length;
            if self.port == ECHO {
                self.waiting.extend_from_slice(&bytes[..length]);
            }
        }
        if self.port == SEND {
            bytes.fill(b'x');
            while self.count < SENT {
                let most = (SENT - self.count).min(bytes.len());
                match host.write(self.handle, &bytes[..most]).unwrap() {
                    0 => break,
                    written => self.count += written,
                }
            }
        }
        let connection = host.tcp(self.handle).unwrap();
        if connection.error().is_some() {
            host.abort(self.handle).unwrap();
            return false;
        }
        let is_over = if self.port == SEND { self.count == SENT } else { connection.has_ended() };
        if is_over && self.waiting.is_empty() {
            if self.port == COUNT {
                host.write(self.handle, self.count.to_string().as_bytes()).unwrap();
            }
            host.close(self.handle).unwrap();
            host.release(now, self.handle).unwrap();
            return false;
        }
        true
    }
}

/// A proxy with its main loop in a thread.
struct Running {
    socks: SocketAddr,
    http: SocketAddr,
    forward: SocketAddr,
    /// 0: it runs, 1: the tunnel is up, 2: it is over.
    state: Arc<AtomicUsize>,
    /// Seconds that the clock is ahead.
    ahead: Arc<AtomicU64>,
    clients: Arc<AtomicUsize>,
    carried: Arc<AtomicUsize>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let forward = format!("0:www.example:{ECHO}").parse().unwrap();
        let entrances =
            Entrances { socks: vec![loopback.into()], http: vec![loopback.into()], forwards: vec![forward] };
        let options = Options { entrances, ..Options::default() };
        Self::with(options)
    }

    /// With a place for SOCKS, for HTTP and for a port.
    fn with(options: Options) -> Self {
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        poller.add(&waker, 0, Interest::Readable).unwrap();
        options.entrances.must_be_loopback().unwrap();
        let mut proxy = Proxy::open(options, &poller, 10, 1400, Instant::now()).unwrap();
        let places: Vec<_> = proxy.listens_at().map(|place| port(&place.unwrap())).collect();
        let (state, ahead) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let (clients, carried) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let shared = (
            Arc::clone(&state),
            Arc::clone(&ahead),
            Arc::clone(&clients),
            Arc::clone(&carried),
            waker.clone(),
        );
        let thread = std::thread::spawn(move || {
            let (state, ahead, clients, carried, waker) = shared;
            let clock = || Instant::now() + Duration::from_secs(ahead.load(Ordering::Relaxed));
            let mut far = Far::new(clock());
            let mut events = Events::with_capacity(64);
            let mut packet = Vec::new();
            let mut is_up = false;
            while state.load(Ordering::Relaxed) < 2 {
                let now = clock();
                let until = proxy.deadline().into_iter().chain(far.host.deadline()).min();
                poller.wait(&mut events, until.map(|until| until.saturating_duration_since(now))).unwrap();
                waker.drain();
                let now = clock();
                let wants_up = state.load(Ordering::Relaxed) == 1;
                if wants_up != is_up {
                    is_up = wants_up;
                    let addresses = [NEAR.0.parse().unwrap(), NEAR.1.parse().unwrap()];
                    match is_up {
                        true => proxy.tunnel_is_up(&poller, now, &addresses, &[FAR.0.parse().unwrap()]),
                        false => proxy.tunnel_is_down(),
                    }
                }
                for event in events.iter().filter(|event| Proxy::owns(10, event.token)) {
                    proxy.handle(event, &poller, now);
                }
                proxy.handle_timeout(&poller, now);
                far.host.handle_timeout(now);
                loop {
                    let mut is_quiet = true;
                    while proxy.poll_transmit(now, &mut packet) {
                        is_quiet = false;
                        if is_up {
                            far.host.receive(now, &packet);
                        }
                    }
                    far.serve(now);
                    while far.host.poll_transmit(now, &mut packet) {
                        is_quiet = false;
                        carried.fetch_add(packet.len(), Ordering::Relaxed);
                        if is_up {
                            proxy.receive(&packet, &poller, now);
                        }
                    }
                    if is_quiet {
                        break;
                    }
                }
                clients.store(proxy.clients(), Ordering::Relaxed);
            }
        });
        let (socks, http, forward) = (places[0], places[1], places[2]);
        Self { socks, http, forward, state, ahead, clients, carried, waker, thread: Some(thread) }
    }

    fn up() -> Self {
        let running = Self::start();
        running.set_tunnel(true);
        running
    }

    fn set_tunnel(&self, is_up: bool) {
        self.state.store(is_up.into(), Ordering::Relaxed);
        self.waker.wake();
    }

    /// A client that has asked by SOCKS, and what it was answered.
    fn socks(&self, host: &str, port: u16) -> (TcpStream, u8) {
        let mut client = self.greeted();
        client.write_all(&socks_request(host, port)).unwrap();
        let mut answer = [0; 10];
        client.read_exact(&mut answer).unwrap();
        (client, answer[1])
    }

    fn greeted(&self) -> TcpStream {
        let mut client = TcpStream::connect(self.socks).unwrap();
        client.write_all(&[5, 1, 0]).unwrap();
        let mut welcome = [0; 2];
        client.read_exact(&mut welcome).unwrap();
        assert_eq!(welcome, [5, 0]);
        client
    }

    fn until_no_client_is_left(&self) {
        while self.clients.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(2));
            self.waker.wake();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.state.store(2, Ordering::Relaxed);
        self.waker.wake();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The address of a port; any, of a socket.
fn port(place: &Place) -> SocketAddr {
    match place {
        Place::Port(address) => *address,
        Place::Socket(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
    }
}

fn socks_request(host: &str, port: u16) -> Vec<u8> {
    let mut request = vec![5, 1, 0, 3, host.len() as u8];
    request.extend(host.as_bytes());
    request.extend(port.to_be_bytes());
    request
}

fn echoes(client: &mut TcpStream, text: &[u8]) {
    client.write_all(text).unwrap();
    let mut heard = vec![0; text.len()];
    client.read_exact(&mut heard).unwrap();
    assert_eq!(heard, text);
}

#[test]
fn clients_reach_addresses_and_names_of_both_versions() {
    let running = Running::up();
    for host in [FAR.0, FAR.1, "www.example"] {
        let (mut client, reply) = running.socks(host, ECHO);
        assert_eq!(reply, 0, "{host}");
        echoes(&mut client, b"by SOCKS");
    }
    let mut client = TcpStream::connect(running.http).unwrap();
    client.write_all(format!("CONNECT www.example:{ECHO} HTTP/1.1\r\n\r\nearly").as_bytes()).unwrap();
    let mut answer = vec![0; crate::http_connect::ESTABLISHED.len() + 5];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [crate::http_connect::ESTABLISHED, b"early"].concat());
    echoes(&mut TcpStream::connect(running.forward).unwrap(), b"by a port");
    drop(client);
    running.until_no_client_is_left();
}

#[test]
fn an_end_is_told_to_the_other_side_which_may_still_answer() {
    let running = Running::up();
    let (mut client, _) = running.socks(FAR.0, COUNT);
    client.write_all(&[1; 100_000]).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "100000");
    running.until_no_client_is_left();
}

#[test]
fn a_slow_client_stops_its_server_and_gets_all_in_the_end() {
    let running = Running::up();
    let (mut slow, _) = running.socks(FAR.0, SEND);
    // Others are served meanwhile, until nothing more comes for the slow one.
    let mut before = usize::MAX;
    while running.carried.load(Ordering::Relaxed) != before {
        before = running.carried.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(50));
        echoes(&mut running.socks(FAR.0, ECHO).0, b"quick");
        before = running.carried.load(Ordering::Relaxed).max(before);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(before < SENT / 2, "the server was not stopped: {before}");
    let mut all = Vec::new();
    slow.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), SENT);
    assert!(all.iter().all(|byte| *byte == b'x'));
}

#[test]
fn a_refusal_is_told_in_the_words_of_each_protocol() {
    let running = Running::up();
    assert_eq!(running.socks(FAR.0, 1).1, 5);
    assert_eq!(running.socks("224.0.0.1", 80).1, 4);
    let http = |request: &str| {
        let mut client = TcpStream::connect(running.http).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n").unwrap().0.to_owned()
    };
    assert_eq!(http(&format!("CONNECT [{}]:1 HTTP/1.1\r\n\r\n", FAR.0)), "HTTP/1.1 502 Bad Gateway");
    assert_eq!(http("GET http://www.example/ HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
    let mut stranger = TcpStream::connect(running.socks).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert!(matches!(stranger.read(&mut [0]), Ok(0) | Err(_)), "it is hung up on");
    running.until_no_client_is_left();
}

#[test]
fn clients_wait_for_the_tunnel_but_not_for_ever() {
    let running = Running::start();
    let mut patient = running.greeted();
    patient.write_all(&socks_request(FAR.0, ECHO)).unwrap();
    patient.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut answer = [0; 10];
    assert_eq!(patient.read(&mut answer).unwrap_err().kind(), ErrorKind::WouldBlock);
    patient.set_read_timeout(None).unwrap();
    running.set_tunnel(true);
    patient.read_exact(&mut answer).unwrap();
    assert_eq!(answer[1], 0);
    echoes(&mut patient, b"at last");

    running.set_tunnel(false);
    let mut late = running.greeted();
    late.write_all(&socks_request(FAR.0, ECHO)).unwrap();
    // It may be heard after the clock has jumped: then it jumps again.
    late.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    while late.read_exact(&mut answer).is_err() {
        running.ahead.fetch_add(25, Ordering::Relaxed);
        running.waker.wake();
    }
    assert_eq!(answer[1], 3, "network unreachable");
}

#[test]
fn a_hundred_clients_are_served_at_once() {
    let running = Running::up();
    let mut clients: Vec<_> = (0..100).map(|_| running.socks(FAR.1, ECHO).0).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.write_all(number.to_string().as_bytes()).unwrap();
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut heard = vec![0; number.to_string().len()];
        client.read_exact(&mut heard).unwrap();
        assert_eq!(heard, number.to_string().as_bytes());
    }
    assert_eq!(running.clients.load(Ordering::Relaxed), 100);
    clients.clear();
    running.until_no_client_is_left();
}

/// A client whose datagrams are carried: its connection, its socket, and where datagrams go to.
fn associated(running: &Running) -> (TcpStream, UdpSocket, SocketAddr) {
    let mut client = running.greeted();
    client.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut answer = [0; 10];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..4], [5, 0, 0, 1]);
    let relay = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([answer[8], answer[9]])));
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    (client, socket, relay)
}

fn datagram(host: &str, port: u16, data: &[u8]) -> Vec<u8> {
    [&[0, 0, 0], &socks_request(host, port)[3..], data].concat()
}

/// Whether there is an answer to a question for a name, within a while.
fn answers(socket: &UdpSocket, relay: SocketAddr, datagram: &[u8]) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket.send_to(datagram, relay).unwrap();
    let mut bytes = [0; 2048];
    let Ok((length, from)) = socket.recv_from(&mut bytes) else { return false };
    assert_eq!(from, relay);
    let (target, start) = crate::socks5::datagram(&bytes[..length]).unwrap();
    assert_eq!(target.port, 53);
    let name = "www.example".parse().unwrap();
    crate::dns::answer(&bytes[start..length], 7, &name, Kind::A) == Some(vec![FAR.1.parse().unwrap()])
}

#[test]
fn datagrams_go_both_ways_for_the_client_alone_and_as_long_as_its_connection_lasts() {
    let running = Running::up();
    let question = crate::dns::question(7, &"www.example".parse().unwrap(), Kind::A).unwrap();
    let (client, socket, relay) = associated(&running);
    for host in [FAR.0, FAR.1, "www.example", "www.example"] {
        let to = datagram(host, 53, &question);
        // The first by name waits for the name's address.
        assert!((0..20).any(|_| answers(&socket, relay, &to)), "{host}");
    }
    let to = datagram(FAR.0, 53, &question);
    let fragment = [&[0, 0, 1], &to[3..]].concat();
    assert!(!answers(&socket, relay, &fragment), "a fragment");
    assert!(!answers(&UdpSocket::bind("127.0.0.1:0").unwrap(), relay, &to), "another socket");
    assert!(answers(&socket, relay, &to));
    drop(client);
    running.until_no_client_is_left();
    assert!(!answers(&socket, relay, &to), "after the end");
}

#[test]
fn associations_are_bounded_and_come_free() {
    let running = Running::up();
    let mut held: Vec<_> = (0..MAX_ASSOCIATIONS).map(|_| associated(&running)).collect();
    let mut late = running.greeted();
    late.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let mut answer = [0; 10];
    late.read_exact(&mut answer).unwrap();
    assert_eq!(answer[1], 1, "a failure");
    held.clear();
    drop(late);
    running.until_no_client_is_left();
    drop(associated(&running));
}

/// A proxy that wants a password for SOCKS and HTTP, and at a port none.
fn with_password(folder: &std::path::Path) -> Running {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = folder.join("passwords");
    let options = std::fs::File::options().write(true).create_new(true).mode(0o600).open(&file);
    options.unwrap().write_all(b"ann:secret\n").unwrap();
    let loopback = || vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()];
    let forwards = vec![format!("{}:{}:{ECHO}", folder.join("echo").display(), FAR.1).parse().unwrap()];
    let entrances = Entrances { socks: loopback(), http: loopback(), forwards };
    let passwords = Some(Passwords::load(&file).unwrap());
    let running = Running::with(Options { entrances, passwords, any_user: false });
    running.set_tunnel(true);
    running
}

#[test]
fn who_has_a_password_comes_in_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let running = with_password(folder.path());
    let socks = |greeting: &[u8], password: &[u8]| {
        let mut client = TcpStream::connect(running.socks).unwrap();
        client.write_all(greeting).unwrap();
        let mut answer = [0; 2];
        client.read_exact(&mut answer).unwrap();
        if answer[1] == 2 {
            client.write_all(password).unwrap();
            client.read_exact(&mut answer).unwrap();
        }
        (client, answer)
    };
    let (mut client, answer) = socks(&[5, 2, 0, 2], b"\x01\x03ann\x06secret");
    assert_eq!(answer, [1, 0]);
    client.write_all(&socks_request(FAR.0, ECHO)).unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    echoes(&mut client, b"with a password");
    assert_eq!(socks(&[5, 1, 2], b"\x01\x03ann\x06secreT").1, [1, 1]);
    assert_eq!(socks(&[5, 1, 0], b"").1, [5, 0xff]);

    let http = |field: &str| {
        let mut client = TcpStream::connect(running.http).unwrap();
        let request = format!("CONNECT [{}]:{ECHO} HTTP/1.1\r\n{field}\r\n", FAR.0);
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        client.read_exact(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[9..]).into_owned()
    };
    assert_eq!(http("Proxy-Authorization: Basic YW5uOnNlY3JldA==\r\n"), "200");
    assert_eq!(http(""), "407");
    assert_eq!(http("Proxy-Authorization: Basic YW5uOnNlY3JldDI=\r\n"), "407");

    // Who may open the socket needs none.
    let socket = folder.path().join("echo");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&socket).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let mut client = UnixStream::connect(&socket).unwrap();
    client.write_all(b"by a socket").unwrap();
    let mut heard = [0; 11];
    client.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"by a socket");
    drop(running);
    assert!(!socket.exists());
}

#[test]
fn it_listens_at_all_places_or_at_none_and_at_loopback_only() {
    let poller = Poller::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let entrances = |address: SocketAddr| Entrances { socks: vec![address.into()], ..Entrances::default() };
    let open = |entrances: Entrances| {
        let options = Options { entrances, ..Options::default() };
        Proxy::open(options, &poller, 0, 1400, Instant::now())
    };
    assert!(matches!(open(entrances(taken.local_addr().unwrap())), Err(ListenError::Io { .. })));
    assert!(matches!(open(Entrances::default()), Err(ListenError::Count(0))));
    for open in ["0.0.0.0:1080", "[::]:1080", "192.0.2.1:1080", "[::ffff:192.0.2.1]:1080"] {
        assert!(entrances(open.parse().unwrap()).must_be_loopback().is_err(), "{open}");
    }
    for closed in ["127.0.0.1:1080", "127.8.8.8:1", "[::1]:1080", "[::ffff:127.0.0.1]:1"] {
        assert!(entrances(closed.parse().unwrap()).must_be_loopback().is_ok(), "{closed}");
    }
}

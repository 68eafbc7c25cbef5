//! Streams: names that no splitting hides from a filter, on a kernel that puts segments together, and that packets of streams
//! that are done with stay in the kernel.

use std::collections::HashMap;
use std::io::Read as _;
use std::net::{Ipv6Addr, SocketAddrV6, TcpListener};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lab::scale::{emulated, scaled};
use nix::sys::socket::{
    self, AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sockopt,
};
use wire::checksum::Sum;
use wire::tcp::{ACK, PSH, RST, SYN, Segment};

use super::scene::{CLIENT, SERVER, ScriptScene, example_path};

const PORT: u16 = 443;
/// The client's initial sequence number: octets go over the end of the numbers.
const START: u32 = 0xffff_ffc0;

/// A sender of TCP that sends what it is told.
struct Sender {
    socket: OwnedFd,
}

impl Sender {
    fn new() -> Self {
        let socket =
            socket::socket(AddressFamily::Inet6, SockType::Raw, SockFlag::empty(), SockProtocol::Tcp)
                .expect("a raw socket");
        Self { socket }
    }

    fn hop_limit(&self, hops: i32) {
        socket::setsockopt(&self.socket, sockopt::Ipv6Ttl, &hops).expect("a hop limit");
    }

    fn send(&self, port: u16, flags: u8, sequence: u32, acknowledgement: u32, octets: &[u8]) {
        let mut segment = [port.to_be_bytes(), PORT.to_be_bytes()].concat();
        segment.extend([sequence.to_be_bytes(), acknowledgement.to_be_bytes()].concat());
        segment.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(octets);
        let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address");
        let sum = Sum::of(&address(CLIENT).octets())
            + Sum::of(&address(SERVER).octets())
            + Sum::dword(segment.len() as u32)
            + Sum::word(6)
            + Sum::of(&segment);
        segment[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
        let to = SockaddrIn6::from(SocketAddrV6::new(address(SERVER), 0, 0, 0));
        socket::sendto(self.socket.as_raw_fd(), &segment, &to, MsgFlags::empty()).expect("a segment");
    }

    /// Opens a connection; what its octets are acknowledged with.
    fn open(&self, port: u16) -> u32 {
        let mut bytes = [0; 2048];
        for turn in 0..30_000 {
            if turn % 1000 == 0 {
                self.send(port, SYN, START, 0, &[]);
            }
            std::thread::sleep(Duration::from_millis(1));
            while let Ok(count) = socket::recv(self.socket.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                let Ok(segment) = Segment::parse(&bytes[..count]) else { continue };
                let is_answer = (segment.source_port(), segment.destination_port()) == (PORT, port);
                if is_answer && segment.flags() & (SYN | ACK | RST) == SYN | ACK {
                    let acknowledgement = segment.sequence().wrapping_add(1);
                    self.send(port, ACK, START.wrapping_add(1), acknowledgement, &[]);
                    return acknowledgement;
                }
            }
        }
        panic!("port {port}: nobody answers");
    }
}

/// What a server got of each connection, by the client's port.
#[derive(Default)]
struct Received(Mutex<HashMap<u16, Vec<u8>>>);

impl Received {
    /// Takes what comes until it is told to end.
    fn serve(&self, listener: &TcpListener, ends: &AtomicBool) {
        listener.set_nonblocking(true).expect("non-blocking");
        let mut connections = Vec::new();
        while !ends.load(Ordering::Relaxed) {
            while let Ok((connection, from)) = listener.accept() {
                connection.set_nonblocking(true).expect("non-blocking");
                connections.push((connection, from.port()));
            }
            let mut bytes = [0; 4096];
            connections.retain_mut(|(connection, port)| match connection.read(&mut bytes) {
                Ok(0) => false,
                Ok(count) => {
                    self.lock().entry(*port).or_default().extend(&bytes[..count]);
                    true
                }
                Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
            });
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u16, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, port: u16, octets: &[u8]) -> bool {
        self.lock().get(&port).is_some_and(|received| received.starts_with(octets))
    }
}

/// Ends the server with the test, also where that fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A ClientHello, of one record.
fn client_hello(name: &str) -> Vec<u8> {
    let behind_length = |octets: &[u8]| [&(octets.len() as u16).to_be_bytes()[..], octets].concat();
    let entry = [&[0], &behind_length(name.as_bytes())[..]].concat();
    let extension = [&[0, 0], &behind_length(&behind_length(&entry))[..]].concat();
    let body = [&[3, 3], &[7; 32][..], &[0, 0, 2, 0x13, 1, 1, 0], &behind_length(&extension)].concat();
    [&[22, 3, 1], &behind_length(&[&[1, 0], &behind_length(&body)[..]].concat())[..]].concat()
}

/// A way to send a text: where its segments begin, and their octets, in the order in which they are sent.
type Way = fn(&[u8], usize, &[u8]) -> Vec<(usize, Vec<u8>)>;

/// Ways to split a text at a place, beside a decoy of the same length; each is gone twice.
const WAYS: [(&str, Way); 5] = [
    ("in order", |text, at, _| vec![(0, text[..at].to_vec()), (at, text[at..].to_vec())]),
    ("in reverse order", |text, at, _| vec![(at, text[at..].to_vec()), (0, text[..at].to_vec())]),
    ("each twice", |text, at, _| {
        let [first, second] = [(0, text[..at].to_vec()), (at, text[at..].to_vec())];
        vec![second.clone(), second.clone(), first.clone(), first, second]
    }),
    ("with overlaps", |text, at, _| {
        let before = at.saturating_sub(7);
        vec![(0, text[..at].to_vec()), (before, text[before..].to_vec()), (0, text.to_vec())]
    }),
    ("with copies that contradict", |text, at, decoy| {
        let (first, second) = ((0, text[..at].to_vec()), (at, text[at..].to_vec()));
        vec![
            first,
            second,
            (0, decoy.to_vec()),
            (at, decoy[at..].to_vec()),
            (at - 1, decoy[at - 1..].to_vec()),
        ]
    }),
];

/// Ways in which only the filter gets the decoy, or gets it first: nothing of a name that is refused may arrive, and what
/// becomes of another name is the sender's affair.
const DECOYS: [(&str, Way); 3] = [
    ("a decoy as a whole", |_, _, decoy| vec![(0, decoy.to_vec())]),
    ("a decoy's first part", |_, at, decoy| vec![(0, decoy[..at].to_vec())]),
    ("a decoy's second part", |_, at, decoy| vec![(at, decoy[at..].to_vec())]),
];

/// The client's kernel knows nothing of the connections.
fn keep_quiet(scene: &ScriptScene) {
    scene
        .client
        .nft(
            "add table inet quiet\n\
             add chain inet quiet out { type filter hook output priority 0; }\n\
             add rule inet quiet out meta l4proto tcp tcp flags & (rst|ack) == rst drop\n",
        )
        .expect("nft");
}

#[test]
fn no_splitting_hides_a_name_from_a_filter() {
    let Some(scene) = ScriptScene::new(false) else { return };
    keep_quiet(&scene);
    let file = example_path("tls_name_filter.lua");
    let [refused, allowed] = ["forbidden.example", "permitted.example"].map(client_hello);
    let listener =
        ScriptScene::within(&scene.server, || TcpListener::bind(("::", PORT))).expect("a listener");
    let (received, ends) = (Received::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| received.serve(&listener, &ends));
        let _ends = Ends(&ends);
        let sender = ScriptScene::within(&scene.client, Sender::new);
        let mut ports = 20_000..;
        for tier in scene.tiers(&file, "process_packet", "ingress") {
            scene.load(&file, "--hook prerouting --dev lan --tier", &[tier]);
            let mut passes = Vec::new();
            let mut stays = Vec::new();
            // In a quick run every eighth place, and those about the name's ends.
            let places = (1..refused.len()).filter(|at| scaled(at % 8 == 1, true));
            for at in places {
                for (name, way) in WAYS {
                    for (text, decoy, sent) in
                        [(&refused, &allowed, &mut stays), (&allowed, &refused, &mut passes)]
                    {
                        let port = ports.next().expect("a port");
                        go(&sender, port, &[way(text, at, decoy), way(text, at, decoy)].concat());
                        sent.push((port, name, at));
                    }
                }
                for (name, way) in DECOYS {
                    let port = ports.next().expect("a port");
                    let acknowledgement = sender.open(port);
                    let is_decoy_lost = at % 2 == 1;
                    if is_decoy_lost {
                        sender.hop_limit(1);
                    }
                    send(&sender, port, acknowledgement, &way(&refused, at, &allowed));
                    sender.hop_limit(64);
                    for _ in 0..2 {
                        send(&sender, port, acknowledgement, &WAYS[0].1(&refused, at, &allowed));
                    }
                    stays.push((port, name, at));
                }
            }
            let deadline = Instant::now() + Duration::from_secs(if emulated() { 120 } else { 30 });
            for (port, name, at) in &passes {
                while !received.has(*port, &allowed) {
                    assert!(Instant::now() < deadline, "{tier}: {name} at {at}: it does not pass");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            // What was sent before has come if it ever does.
            for (port, name, at) in &stays {
                assert!(!received.has(*port, &refused), "{tier}: {name} at {at}: it passes");
            }
            assert!(passes.len() > 5 && stays.len() > passes.len());
            scene.has_served(&[tier]);
            scene.sidestep(&["unload", &file]);
        }
        // Without a filter it comes: the server would have it.
        let port = ports.next().expect("a port");
        go(&sender, port, &WAYS[1].1(&refused, 20, &allowed));
        let deadline = Instant::now() + Duration::from_secs(30);
        while !received.has(port, &refused) {
            assert!(Instant::now() < deadline, "nothing comes");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
}

/// Opens a connection, and sends segments.
fn go(sender: &Sender, port: u16, segments: &[(usize, Vec<u8>)]) {
    let acknowledgement = sender.open(port);
    send(sender, port, acknowledgement, segments);
}

fn send(sender: &Sender, port: u16, acknowledgement: u32, segments: &[(usize, Vec<u8>)]) {
    for (at, octets) in segments {
        let sequence = START.wrapping_add(1 + *at as u32);
        sender.send(port, ACK | PSH, sequence, acknowledgement, octets);
    }
}

/// A connection that was accepted goes on, which a new one in its middle would not, and one that was refused stays so.
#[test]
fn what_was_decided_stays_over_a_reload() {
    let Some(scene) = ScriptScene::new(false) else { return };
    keep_quiet(&scene);
    let file = example_path("tls_name_filter.lua");
    let [refused, allowed] = ["forbidden.example", "permitted.example"].map(client_hello);
    let listener =
        ScriptScene::within(&scene.server, || TcpListener::bind(("::", PORT))).expect("a listener");
    let (received, ends) = (Received::default(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| received.serve(&listener, &ends));
        let _ends = Ends(&ends);
        let sender = ScriptScene::within(&scene.client, Sender::new);
        let arrives = |what: &str, port, octets: &[u8]| {
            let deadline = Instant::now() + Duration::from_secs(30);
            while !received.has(port, octets) {
                assert!(Instant::now() < deadline, "{what}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        for (port, tier) in (30_000..).step_by(2).zip(scene.tiers(&file, "process_packet", "ingress")) {
            scene.load(&file, "--hook prerouting --dev lan --tier", &[tier]);
            let (passing, stopped) = (sender.open(port), sender.open(port + 1));
            send(&sender, port, passing, &[(0, allowed.clone())]);
            send(&sender, port + 1, stopped, &[(0, refused.clone())]);
            arrives(tier, port, &allowed);
            scene.sidestep(&["reload", &file]);
            send(&sender, port + 1, stopped, &[(0, refused.clone())]);
            send(&sender, port, passing, &[(allowed.len(), b"and so on".to_vec())]);
            arrives(&format!("{tier}: after a reload"), port, &[&allowed[..], b"and so on"].concat());
            assert!(!received.has(port + 1, &refused), "{tier}: what was refused has passed");
            scene.sidestep(&["unload", &file]);
        }
    });
}

/// A long stream at the port that is filtered: Lua gets its beginning, and its end.
#[test]
fn the_kernel_has_the_rest_of_a_stream() {
    let Some(scene) = ScriptScene::new(false) else { return };
    let file = example_path("tls_name_filter.lua");
    if !scene.tiers(&file, "process_packet", "ingress").contains(&"both") {
        return;
    }
    scene.load(&file, "--hook ingress --dev lan --tier", &["both"]);
    let server = ["iperf3", "-s", "-1", "-p", "443"];
    let _server = scene.start(&scene.server, &server, "iperf3", || scene.listens("tcp", PORT));
    let (succeeded, said) = scene.run(&scene.client, &["iperf3", "-c", SERVER, "-p", "443", "-t", "1"]);
    assert!(succeeded, "{said}");
    let status = scene.status(1);
    let count = |name: &str| status[name].as_u64().expect("a number");
    let [packets, handed_over] = ["packets", "handed_over"].map(count);
    assert!(packets > 500 && (1..60).contains(&handed_over), "{status}");
    assert_eq!(status["errors"], 0, "{status}");
}

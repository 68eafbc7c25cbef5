//! What many peers cost a node, but for the kernel's part: `cargo run --release -p sidestep-mt6d --example peers [PEERS]`.
//!
//! Virtual time, real work: a node with so many configured peers starts, none of which answers, and is watched for some
//! minutes; then a node answers as many handshakes as it can. Printed are the time of each part, the longest single call
//! (packets wait for that long), and memory per peer.

#![allow(missing_docs, reason = "an example")]

use std::collections::HashMap;
use std::net::SocketAddrV6;
use std::ops::Range;
use std::time::{Duration, Instant};

use sidestep_mt6d::config::{NodeConfig, PeerConfig};
use sidestep_mt6d::keys::PrivateKey;
use sidestep_mt6d::{Action, Deliver, EndpointId, Node, Now, Outbox, Received, Time};
use wire::ecn::Ecn;

struct Nothing;

impl Deliver for Nothing {
    fn packet(&mut self, _: &[u8], _: &[u8], _: Range<usize>) {}
    fn whole_packet(&mut self, _: &[u8]) {}
}

fn private_key(number: usize) -> PrivateKey {
    let mut key = [7; 32];
    key[..8].copy_from_slice(&number.to_be_bytes());
    PrivateKey::from_bytes(key)
}

fn hop_prefix(number: usize) -> ipnet::Ipv6Net {
    format!("2001:db8:{number:x}::/64").parse().expect("a prefix")
}

/// The node of that number as the peer of another.
fn peer(number: usize) -> PeerConfig {
    let inside = format!("fd00:{number:x}::/64").parse().expect("a prefix");
    let key = private_key(number).public();
    PeerConfig::new(&format!("site-{number}"), key, hop_prefix(number), vec![inside])
}

fn config(number: usize, peers: Vec<PeerConfig>) -> NodeConfig {
    NodeConfig {
        private_key: private_key(number),
        previous_key: None,
        hop_prefix: hop_prefix(number),
        link_mtu: 1500,
        hardware_aes: true,
        addresses: Vec::new(),
        rekey_after: sidestep_mt6d::config::REKEY_AFTER,
        peers,
    }
}

fn now(boot: Time) -> Now {
    Now { boot, unix_ms: 1_800_000_000_000 + boot.micros() / 1000 }
}

fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

/// What is watched.
#[derive(Default)]
struct Watch {
    longest: Duration,
    worked: Duration,
    calls: u64,
    datagrams: u64,
    opened: u64,
}

impl Watch {
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        let took = began.elapsed();
        self.longest = self.longest.max(took);
        self.worked += took;
        self.calls += 1;
        result
    }
}

/// A node's endpoints: where each is.
type Endpoints = HashMap<EndpointId, SocketAddrV6>;

fn act(node: &mut Node, at: Time, endpoints: &mut Endpoints, watch: &mut Watch) {
    let mut opened = Vec::new();
    watch.time(|| {
        // As the daemon has it: a few at a time.
        for _ in 0..64 {
            match node.next_action() {
                Some(Action::Open { id, local, .. }) => opened.push((id, local)),
                Some(Action::Close { id }) => drop(endpoints.remove(&id)),
                Some(
                    Action::AddRewrite(_)
                    | Action::RemoveRewrite(_)
                    | Action::Replace { .. }
                    | Action::AddMask(_)
                    | Action::RemoveMask { .. }
                    | Action::Mask { .. },
                ) => {}
                None => break,
            }
        }
    });
    for (id, local) in opened {
        watch.opened += 1;
        endpoints.insert(id, local);
        watch.time(|| node.opened(id, now(at)));
    }
}

fn run(node: &mut Node, from: Time, time: Duration, endpoints: &mut Endpoints) -> Watch {
    let (mut at, mut watch, mut outbox) = (from, Watch::default(), Outbox::new());
    while at < from + time {
        act(node, at, endpoints, &mut watch);
        watch.time(|| node.handle_timeout(now(at), &mut outbox, &mut Nothing));
        watch.datagrams += outbox.batches().count() as u64;
        outbox.clear();
        at = node.deadline().max(at);
    }
    watch
}

fn tell(what: &str, watch: &Watch, seconds: u64) {
    println!(
        "{what}: {:.2} % of a processor, the longest of {} calls {:.2} ms, {} endpoints opened, {} datagrams",
        watch.worked.as_secs_f64() / seconds as f64 * 100.0,
        watch.calls,
        watch.longest.as_secs_f64() * 1e3,
        watch.opened,
        watch.datagrams
    );
}

pub(crate) fn main() {
    let peers: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let config_of_hub = config(0, (1..=peers).map(peer).collect());
    let (before, began) = (resident(), Instant::now());
    let start = Time::from_micros(1_000_000);
    let mut hub = Node::new(config_of_hub.clone(), &HashMap::new(), || [1; 32], now(start))
        .expect("a good configuration");
    println!("a node of {peers} peers: made in {:.2} s", began.elapsed().as_secs_f64());

    let mut endpoints = Endpoints::new();
    tell("the first minute", &run(&mut hub, start, Duration::from_secs(60), &mut endpoints), 60);
    println!("resident with all of it: {:.1} MB more", resident() - before);
    let later = start + Duration::from_secs(60);
    tell("two minutes more ", &run(&mut hub, later, Duration::from_secs(120), &mut endpoints), 120);
    let idle = start + Duration::from_secs(180);
    let grown = resident() - before;
    println!(
        "{} endpoints; resident: {grown:.1} MB more, {:.0} bytes per peer",
        hub.endpoints(),
        grown * 1e6 / peers as f64
    );
    println!("one call each:");
    let watch = |what: &str, work: &mut dyn FnMut()| {
        let mut watch = Watch::default();
        watch.time(work);
        println!("  {what}: {:.2} ms", watch.longest.as_secs_f64() * 1e3);
    };
    watch("new_mtus", &mut || {
        assert!(hub.new_mtus().count() <= peers);
    });
    watch("memory", &mut || {
        assert!(hub.memory(now(idle)).count() <= peers);
    });
    watch("memory again", &mut || {
        assert!(hub.memory(now(idle)).count() <= peers);
    });
    watch("status of 256", &mut || {
        assert!(hub.status_of(0..256, now(idle)).count() <= peers);
    });
    watch("status of all", &mut || {
        assert!(hub.status(now(idle)).count() <= peers);
    });
    watch("configuration checked", &mut || config_of_hub.check().expect("good"));
    let mut outbox = Outbox::new();
    watch("reconfigure, nothing new", &mut || {
        hub.reconfigure(config_of_hub.clone(), now(idle), &mut outbox).expect("good");
    });
    handshakes();
}

/// Handshakes that a responder answers, each with a peer of its own.
fn handshakes() {
    const MANY: usize = 1_000;
    let start = Time::from_micros(1_000_000);
    let mut hub =
        Node::new(config(0, (1..=MANY).map(peer).collect()), &HashMap::new(), || [1; 32], now(start))
            .expect("good");
    let mut endpoints = Endpoints::new();
    let (mut watch, mut outbox) = (Watch::default(), Outbox::new());
    // Listening, but nothing of its own sent.
    for _ in 0..MANY {
        hub.handle_timeout(now(start), &mut outbox, &mut Nothing);
        act(&mut hub, start, &mut endpoints, &mut watch);
    }
    let at_hub: HashMap<SocketAddrV6, EndpointId> = endpoints.iter().map(|(id, at)| (*at, *id)).collect();
    let mut first = Vec::new();
    for number in 1..=MANY {
        let mut site =
            Node::new(config(number, vec![peer(0)]), &HashMap::new(), move || [number as u8; 32], now(start))
                .expect("good");
        let mut own = Endpoints::new();
        let mut sent = Outbox::new();
        for _ in 0..3 {
            site.handle_timeout(now(start + Duration::from_millis(1)), &mut sent, &mut Nothing);
            act(&mut site, start, &mut own, &mut watch);
        }
        site.handle_timeout(now(start + Duration::from_millis(2)), &mut sent, &mut Nothing);
        for (batch, bytes) in sent.batches() {
            first.push((own[&batch.endpoint], batch.to.expect("unconnected"), bytes.to_vec()));
        }
    }
    let mut busy = Watch::default();
    let at = start + Duration::from_millis(3);
    let mut answers = 0;
    for (from, to, mut datagram) in first {
        let (id, length) = (at_hub[&to], datagram.len());
        outbox.clear();
        let received =
            Received { endpoint: id, source: from, ecn: Ecn::NotEct, at: 0..length, segment: length };
        busy.time(|| hub.receive(&received, &mut datagram, now(at), &mut outbox, &mut Nothing));
        act(&mut hub, at, &mut endpoints, &mut busy);
        busy.time(|| hub.handle_timeout(now(at), &mut outbox, &mut Nothing));
        answers += outbox.batches().filter(|(batch, _)| batch.to == Some(from)).count();
    }
    println!(
        "responder: {:.0} handshakes per second of one processor, {answers} of {MANY} answered, the longest call {:.2} ms",
        answers as f64 / busy.worked.as_secs_f64(),
        busy.longest.as_secs_f64() * 1e3
    );
}

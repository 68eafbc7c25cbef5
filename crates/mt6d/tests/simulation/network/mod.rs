//! The simulated network: nodes on virtual time, one queue of events, everything from one seed.
//!
//! Sites are numbered; a test builds a [`Network`], changes configurations, clocks and paths as its story asks, starts
//! the nodes, lets time pass, and looks at what became of the streams. The same seed gives the same run to the last
//! bit; a test that fails prints it.

mod observer;
mod path;
mod random;
mod rewritten;
mod site;
mod threads;
mod traffic;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::ops::Range;
use std::time::Duration;

use ipnet::Ipv6Net;
use prefix_trie::PrefixMap;
use sidestep_mt6d::config::PeerConfig;
use sidestep_mt6d::{
    Action, DropReason, EndpointId, Node, Now, Outbox, PeerState, PeerStatus, Received, mask,
};
use wire::ecn::Ecn;
use wire::virtio_net;

pub(crate) use observer::{Observer, Seen};
pub(crate) use path::{Firewall, Path, Translator};
pub(crate) use random::Random;
pub(crate) use site::Site;
use threads::Threads;
pub(crate) use traffic::{Flow, Stream, host};

use site::{Delivered, Socket};

/// The first two sites.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;

const SECOND: u64 = 1_000_000;

pub(crate) struct Network {
    pub(crate) seed: u64,
    /// The world's time, in microseconds.
    pub(crate) now: u64,
    /// Threads that carry packets at each site; otherwise the seed says how many.
    pub(crate) packet_threads: Option<usize>,
    pub(crate) sites: Vec<Site>,
    pub(crate) flows: Vec<Flow>,
    /// All paths but those in `paths`.
    pub(crate) path: Path,
    pub(crate) paths: HashMap<(usize, usize), Path>,
    pub(crate) observer: Observer,
    /// An attacker on the path sends a copy of each datagram this much later, in microseconds.
    pub(crate) replayed_after: Option<u64>,
    /// Packets that travelled with other addresses.
    pub(crate) rewritten: u64,
    /// Copies that the attacker sent.
    pub(crate) replays: u64,
    events: BinaryHeap<Reverse<Event>>,
    serial: u64,
    random: Random,
    attacker: Random,
    threads: Random,
    addresses: PrefixMap<Ipv6Net, usize>,
    /// Until when each path is busy, where it has a rate.
    busy: HashMap<(usize, usize), u64>,
}

struct Event {
    at: u64,
    serial: u64,
    what: What,
}

enum What {
    Timer(usize),
    Opened { site: usize, socket: Socket },
    Threads { site: usize },
    Arrives { datagram: Datagram },
    ArrivesWhole { packet: Vec<u8> },
    ArrivesMasked { lane: mask::Flow, key: mask::MaskKey, packet: Vec<u8> },
    Send { flow: usize },
}

/// A datagram on its way.
#[derive(Clone)]
struct Datagram {
    source: SocketAddrV6,
    destination: SocketAddrV6,
    ecn: Ecn,
    payload: Vec<u8>,
    replay: bool,
}

impl Datagram {
    /// As a node has it, at its endpoint.
    fn received(&self, endpoint: EndpointId, at: Range<usize>) -> Received {
        let segment = at.len();
        Received { endpoint, source: self.source, ecn: self.ecn, at, segment }
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.serial == other.serial
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.serial).cmp(&(other.at, other.serial))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the seed was {}, the time {:.3} s", self.seed, self.now as f64 / SECOND as f64);
        }
    }
}

/// The seeds to run a story with: the first `count`, fewer in a quick run, or the one that the environment variable `SEED`
/// names.
pub(crate) fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let one = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let count = if full_scale() { count } else { count.min((count / 5).max(2)) };
    one.map_or(0..count, |seed: u64| seed..seed + 1)
}

/// Whether this is the full suite (`SIDESTEP_SCALE`), which tries five times as much of what is random.
pub(crate) fn full_scale() -> bool {
    std::env::var("SIDESTEP_SCALE").is_ok_and(|scale| scale == "full")
}

/// The prefix that a site hops in at first.
pub(crate) fn hop_prefix(site: usize) -> Ipv6Net {
    Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, 0xa000, site as u16, 0, 0, 0, 0), 64).expect("a /64")
}

impl Network {
    /// Sites without peers.
    pub(crate) fn new(seed: u64, sites: usize) -> Self {
        let mut random = Random::new(seed);
        let mut network = Network {
            seed,
            now: 0,
            packet_threads: None,
            sites: Vec::new(),
            flows: Vec::new(),
            path: Path::default(),
            paths: HashMap::new(),
            observer: Observer::default(),
            replayed_after: None,
            rewritten: 0,
            replays: 0,
            events: BinaryHeap::new(),
            serial: 0,
            attacker: Random::new(!seed),
            threads: Random::new(seed.rotate_left(32)),
            addresses: PrefixMap::new(),
            busy: HashMap::new(),
            random: Random::new(0),
        };
        for index in 0..sites {
            let boot = random.between(SECOND, 400 * 86_400 * SECOND);
            network.sites.push(Site::new(index, hop_prefix(index), boot));
        }
        network.random = random;
        network
    }

    /// Two sites that know each other, each with the default of the program: 10 s, one lane.
    pub(crate) fn pair(seed: u64) -> Self {
        let mut network = Network::new(seed, 2);
        network.introduce(A, B);
        network
    }

    /// Makes two sites peers.
    pub(crate) fn introduce(&mut self, one: usize, other: usize) {
        for (site, peer) in [(one, other), (other, one)] {
            let inside = vec![
                format!("fd00:0:0:{peer:x}::/64").parse().expect("a prefix"),
                format!("10.{}.{}.0/24", peer >> 8, peer & 255).parse().expect("a prefix"),
            ];
            let (key, hop_prefix) = (self.sites[peer].key(), self.sites[peer].config.hop_prefix);
            let config = PeerConfig::new(&format!("site-{peer}"), key, hop_prefix, inside);
            self.sites[site].config.peers.push(config);
        }
    }

    /// Changes the configuration of every peer of every site.
    pub(crate) fn configure(&mut self, change: impl Fn(&mut PeerConfig)) {
        for site in &mut self.sites {
            site.config.peers.iter_mut().for_each(&change);
        }
    }

    /// Starts all nodes that are down.
    pub(crate) fn start(&mut self) {
        for site in 0..self.sites.len() {
            if self.sites[site].node.is_none() {
                self.start_site(site);
            }
        }
    }

    pub(crate) fn start_site(&mut self, index: usize) {
        let seed = self.random.bytes();
        let site = &mut self.sites[index];
        let now = site.clock.now(self.now);
        let outside = match site.translator {
            None => site.config.hop_prefix,
            Some(Translator::Prefix { outside, .. }) => outside,
            Some(Translator::Masquerade { outside, .. }) => Ipv6Net::new(outside, 128).expect("a host"),
        };
        self.addresses.insert(outside, index);
        if site.calls_allowed == 0 {
            // Each lane may want to be called some ten times in an epoch; a second has at most two of them.
            let lanes: u64 = site.config.peers.iter().map(|p| u64::from(p.most_lanes())).sum();
            site.calls_allowed = 300 + 30 * lanes;
        }
        site.node = Some(
            Node::new(site.config.clone(), &site.memory, move || seed, now).expect("a good configuration"),
        );
        // Some sites carry packets on threads of their own, others do not: nobody can tell.
        let threads = self.packet_threads.unwrap_or((self.seed as usize + index) % 3);
        self.start_threads(index, threads);
        self.with(index, |_, _, _, _| {});
    }

    /// The node ends without a word, as in a crash; what it remembers is kept.
    pub(crate) fn kill(&mut self, index: usize) {
        let site = &mut self.sites[index];
        let now = site.clock.now(self.now);
        if let Some(mut node) = site.node.take() {
            site.memory.extend(node.memory(now));
        }
        site.sockets.clear();
        site.asked.clear();
        site.heard.clear();
        site.replaced.clear();
        site.unmasked.clear();
        site.masked.clear();
        site.threads = Threads::default();
        site.timer = u64::MAX;
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time.as_micros() as u64;
        while let Some(Reverse(event)) = self.events.peek()
            && event.at <= end
        {
            self.step();
        }
        self.now = end;
    }

    pub(crate) fn run_s(&mut self, seconds: u64) {
        self.run(Duration::from_secs(seconds));
    }

    /// Lets time pass until a condition holds, looking every 10 ms; how long that took, unless `limit` did not do.
    pub(crate) fn run_until(
        &mut self,
        limit: Duration,
        holds: impl Fn(&Network) -> bool,
    ) -> Option<Duration> {
        let start = self.now;
        while !holds(self) {
            if self.now - start >= limit.as_micros() as u64 {
                return None;
            }
            self.run(Duration::from_millis(10));
        }
        Some(Duration::from_micros(self.now - start))
    }

    /// Lets time pass until both ends of the first pair have a session; how long that took.
    pub(crate) fn establish(&mut self) -> Duration {
        let both = |n: &Network| n.established(A) && n.established(B);
        self.run_until(Duration::from_secs(90), both).expect("a session within 90 s")
    }

    pub(crate) fn established(&self, site: usize) -> bool {
        self.sites[site].node.is_some() && self.status(site).state == PeerState::Established
    }

    /// A site's first peer, as its node sees it.
    pub(crate) fn status(&self, site: usize) -> PeerStatus {
        self.sites[site].status(self.now)
    }

    /// How often a site dropped something for a reason, of its first peer.
    pub(crate) fn drops(&self, site: usize, reason: DropReason) -> u64 {
        self.status(site).drops.of(reason)
    }

    /// Both directions of the path between the first two sites.
    pub(crate) fn path_between(&mut self, one: usize, other: usize, change: impl Fn(&mut Path)) {
        for pair in [(one, other), (other, one)] {
            let path = self.paths.entry(pair).or_insert_with(|| self.path.clone());
            change(path);
        }
    }

    /// Begins a stream.
    pub(crate) fn send(&mut self, from: usize, to: usize, stream: Stream) -> usize {
        let index = self.flows.len();
        self.flows.push(Flow::new(stream, index as u32, from, to));
        self.push(self.now, What::Send { flow: index });
        index
    }

    /// Ends all streams, and lets what is on its way arrive.
    pub(crate) fn stop(&mut self) {
        for flow in &mut self.flows {
            flow.running = false;
        }
        self.run_s(2);
    }

    /// Fails unless all packets of all streams arrived once, and as they were sent.
    pub(crate) fn assert_all_arrived(&mut self) {
        self.stop();
        self.assert_nothing_wrong();
        for flow in &self.flows {
            let lost: Vec<_> =
                flow.sent.iter().zip(&flow.arrived).filter(|(_, n)| **n == 0).map(|(at, _)| at).collect();
            let (count, sent) = (lost.len(), flow.sent.len());
            assert!(
                lost.is_empty(),
                "stream {}: {count} of {sent} lost, sent at {:?}",
                flow.index,
                &lost[..count.min(5)]
            );
        }
    }

    /// Fails if a packet arrived twice, or other than it was sent.
    pub(crate) fn assert_nothing_wrong(&self) {
        for flow in &self.flows {
            assert!(!flow.sent.is_empty(), "stream {} was never sent", flow.index);
            assert_eq!(flow.duplicated(), 0, "stream {}: packets arrived twice", flow.index);
            assert_eq!(flow.corrupted, 0, "stream {}: packets arrived changed", flow.index);
        }
    }

    /// Calls a site's node, and does what it asks for.
    pub(crate) fn with<R>(
        &mut self,
        index: usize,
        call: impl FnOnce(&mut Node, Now, &mut Outbox, &mut Delivered) -> R,
    ) -> R {
        let site = &mut self.sites[index];
        let now = site.clock.now(self.now);
        let mut delivered = Delivered::default();
        let mut outbox = std::mem::take(&mut site.outbox);
        let node = site.node.as_mut().expect("the node is up");
        let result = call(node, now, &mut outbox, &mut delivered);
        // What is to be sent goes first: it may leave from endpoints that are to be closed.
        for (batch, bytes) in outbox.batches() {
            for payload in bytes.chunks(batch.segment) {
                self.transmit(index, batch.endpoint, batch.to, batch.ecn, payload);
            }
        }
        outbox.clear();
        self.sites[index].outbox = outbox;
        while let Some(action) = self.sites[index].node().next_action() {
            self.act(index, action);
        }
        self.send_updates(index);
        for packet in delivered.packets {
            self.deliver(index, packet);
        }
        let site = &mut self.sites[index];
        let node = site.node.as_ref().expect("the node is up");
        site.most_endpoints = site.most_endpoints.max(node.endpoints());
        let timer = site.clock.world(node.deadline()).max(self.now);
        if timer != site.timer {
            site.timer = timer;
            self.push(timer, What::Timer(index));
        }
        result
    }

    /// Hands an inner packet to a site's node.
    pub(crate) fn inject(&mut self, site: usize, header: virtio_net::Header, mut packet: Vec<u8>) {
        if self.sends_whole(site, &header, &packet) || self.thread_sends(site, header, &mut packet) {
            return;
        }
        self.with(site, |node, now, outbox, deliver| node.send(&header, &mut packet, now, outbox, deliver));
    }

    /// Lets a datagram arrive from whoever, wherever.
    pub(crate) fn forge(&mut self, source: SocketAddrV6, destination: SocketAddrV6, payload: Vec<u8>) {
        let datagram = Datagram { source, destination, ecn: Ecn::NotEct, payload, replay: true };
        self.push(self.now, What::Arrives { datagram });
    }

    fn push(&mut self, at: u64, what: What) {
        self.serial += 1;
        self.events.push(Reverse(Event { at, serial: self.serial, what }));
    }

    fn step(&mut self) {
        let Reverse(event) = self.events.pop().expect("the caller has looked");
        self.now = event.at;
        match event.what {
            What::Timer(site) => self.timer(site, event.at),
            What::Opened { site, socket } => self.opened(site, socket),
            What::Threads { site } => self.messages_arrive(site),
            What::Arrives { datagram } => self.arrives(datagram),
            What::ArrivesWhole { packet } => self.arrives_whole(packet),
            What::ArrivesMasked { lane, key, packet } => self.arrives_masked(lane, &key, packet),
            What::Send { flow } => self.send_next(flow),
        }
    }

    fn timer(&mut self, index: usize, at: u64) {
        let site = &mut self.sites[index];
        if site.timer != at || site.node.is_none() {
            return;
        }
        site.timer = u64::MAX;
        if site.suspended {
            return;
        }
        site.wakeups += 1;
        let second = at / SECOND;
        site.calls = if site.calls.1 == second { (site.calls.0 + 1, second) } else { (1, second) };
        assert!(site.calls.0 <= site.calls_allowed, "site {index} wants to be called all the time");
        self.with(index, |node, now, outbox, deliver| {
            // At least eight peers are served by each call, and each wants it once.
            for _ in 0..=node.places() / 8 {
                node.handle_timeout(now, outbox, deliver);
                if node.deadline() > now.boot {
                    return;
                }
            }
            panic!("the deadline does not advance");
        });
    }

    fn act(&mut self, index: usize, action: Action) {
        match action {
            Action::Open { id, local, remote } => {
                let (least, most) = self.sites[index].opening;
                let delay = self.random.between(least, most);
                let socket = Socket { id, local, remote };
                self.sites[index].asked.insert(id, socket);
                self.sites[index].opens += 1;
                self.push(self.now + delay, What::Opened { site: index, socket });
            }
            Action::Close { id } => {
                self.detach(index, id);
                let site = &mut self.sites[index];
                let socket = site.asked.remove(&id).expect("only what was asked for is closed");
                if site.sockets.get(&socket.local).is_some_and(|s| s.id == id) {
                    site.sockets.remove(&socket.local);
                }
            }
            Action::AddRewrite(_) | Action::RemoveRewrite(_) | Action::Replace { .. } => {
                self.rewrites(index, action);
            }
            Action::AddMask(_) | Action::RemoveMask { .. } | Action::Mask { .. } => self.masks(index, action),
        }
    }

    fn opened(&mut self, index: usize, socket: Socket) {
        let fails = self.random.chance(self.sites[index].open_fails);
        let site = &mut self.sites[index];
        if site.suspended {
            return self.push(self.now + SECOND / 10, What::Opened { site: index, socket });
        }
        // It was closed meanwhile, or the node that asked is no more.
        if site.asked.get(&socket.id) != Some(&socket) || site.node.is_none() {
            return;
        }
        if fails || site.sockets.contains_key(&socket.local) {
            site.open_failures += 1;
            self.with(index, |node, now, _, _| node.open_failed(socket.id, now));
        } else {
            site.sockets.insert(socket.local, socket);
            self.attach(index, socket.id);
            self.with(index, |node, now, _, _| node.opened(socket.id, now));
        }
    }

    fn transmit(
        &mut self,
        index: usize,
        endpoint: EndpointId,
        to: Option<SocketAddrV6>,
        ecn: Ecn,
        payload: &[u8],
    ) {
        let site = &mut self.sites[index];
        let socket = site.asked[&endpoint];
        assert!(
            site.sockets.get(&socket.local).is_some_and(|s| s.id == endpoint),
            "sent from where nothing is open"
        );
        let destination = socket.remote.or(to).expect("an unconnected socket needs to be told where to");
        if let Some(firewall) = &mut site.firewall {
            firewall.leaves(socket.local, destination, self.now);
        }
        let source = site.translator.as_mut().map_or(socket.local, |t| t.leaves(socket.local));
        // Who has left a prefix sends no more from there.
        if self.addresses.get_lpm(&Ipv6Net::from(*source.ip())).is_none_or(|(_, owner)| *owner != index) {
            return;
        }
        self.observer.sees(self.now, source, destination, ecn, payload);
        let Some((_, &other)) = self.addresses.get_lpm(&Ipv6Net::from(*destination.ip())) else { return };
        let path = self.paths.get(&(index, other)).unwrap_or(&self.path);
        let length = observer::HEADERS + payload.len();
        // Who sent it may be told, but an ICMPv6 error changes nothing.
        if length > path.mtu {
            return;
        }
        let copies = if self.random.chance(path.duplicate) { 2 } else { 1 };
        let arrivals: Vec<u64> = (0..copies).filter_map(|_| path.delay(&mut self.random)).collect();
        let mut waits = 0;
        if let Some(rate) = path.rate {
            let busy = self.busy.entry((index, other)).or_default();
            *busy = (*busy).max(self.now) + length as u64 * 8 * SECOND / rate;
            waits = *busy - self.now;
        }
        let marks = path.congestion > 0.0 && ecn != Ecn::NotEct && self.random.chance(path.congestion)
            || self.random.chance(path.wrong_congestion);
        let ecn = if marks { Ecn::Ce } else { ecn };
        let mut payload = payload.to_vec();
        if path.alters
            && let Some(octet) = payload.last_mut()
        {
            *octet ^= 0x55;
        }
        let datagram = Datagram { source, destination, ecn, payload, replay: false };
        for delay in arrivals {
            self.push(self.now + waits + delay, What::Arrives { datagram: datagram.clone() });
        }
        if let Some(after) = self.replayed_after {
            self.replays += 1;
            let at = self.now + after + self.attacker.between(0, 2_000);
            self.push(at, What::Arrives { datagram: Datagram { replay: true, ..datagram } });
        }
    }

    fn arrives(&mut self, datagram: Datagram) {
        let Some((_, &index)) = self.addresses.get_lpm(&Ipv6Net::from(*datagram.destination.ip())) else {
            return;
        };
        let site = &mut self.sites[index];
        let destination = match &mut site.translator {
            Some(translator) => translator.enters(datagram.destination),
            None => datagram.destination,
        };
        if let Some(firewall) = &mut site.firewall
            && !firewall.lets_in(destination, datagram.source, self.now)
        {
            return;
        }
        if site.node.is_none() || site.suspended {
            return;
        }
        let socket = site.sockets.get(&destination).filter(|s| s.remote.is_none_or(|r| r == datagram.source));
        let Some(socket) = socket.copied() else {
            site.missed += u64::from(!datagram.replay);
            return;
        };
        if self.thread_receives(index, socket.id, &datagram) {
            return;
        }
        let mut arena = std::mem::take(&mut self.sites[index].arena);
        arena.clear();
        // Somewhere in the buffer, as in a batch.
        let length = datagram.payload.len();
        let at = 16..16 + length;
        arena.resize(16, 0xee);
        arena.extend_from_slice(&datagram.payload);
        self.with(index, |node, now, outbox, deliver| {
            node.receive(&datagram.received(socket.id, at), &mut arena, now, outbox, deliver);
        });
        self.sites[index].arena = arena;
    }

    fn deliver(&mut self, index: usize, packet: Vec<u8>) {
        if let Some((flow, number)) = traffic::number(&packet).filter(|(flow, _)| *flow < self.flows.len()) {
            assert_eq!(self.flows[flow].to, index, "a packet arrived somewhere else");
            return self.flows[flow].arrives(number, &packet, self.now);
        }
        let is_error = match packet[0] >> 4 {
            6 => packet[6] == wire::protocol::ICMPV6 && packet[40] < 128,
            _ => packet[9] == wire::protocol::ICMPV4 && packet[20] != 8,
        };
        if is_error {
            self.sites[index].errors.push((self.now, packet));
        } else {
            self.sites[index].others.push(packet);
        }
    }

    fn send_next(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if !flow.running {
            return;
        }
        let (from, next) = (flow.from, self.now + flow.stream.every);
        if !flow.paused && self.sites[from].node.is_some() && !self.sites[from].suspended {
            let (header, packet) = self.flows[index].next(self.now);
            self.inject(from, header, packet);
        }
        self.push(next, What::Send { flow: index });
    }

    /// The site's machine sleeps: nothing runs, CLOCK_BOOTTIME goes on.
    pub(crate) fn suspend(&mut self, index: usize) {
        self.sites[index].suspended = true;
    }

    pub(crate) fn resume(&mut self, index: usize) {
        let site = &mut self.sites[index];
        site.suspended = false;
        site.timer = self.now;
        self.push(self.now, What::Timer(index));
    }

    /// The site moves: what is sent to its old prefix is lost from now on.
    pub(crate) fn move_to(&mut self, index: usize, prefix: Ipv6Net) {
        let old = std::mem::replace(&mut self.sites[index].config.hop_prefix, prefix);
        self.addresses.remove(&old);
        self.addresses.insert(prefix, index);

        self.with(index, |node, now, _, _| node.move_to(prefix, now));
    }

    /// The site is reachable in another prefix, too.
    pub(crate) fn also_reachable(&mut self, index: usize, prefix: Ipv6Net) {
        self.addresses.insert(prefix, index);
    }

    /// Takes over the site's configuration as it is now.
    pub(crate) fn reconfigure(&mut self, index: usize) {
        let config = self.sites[index].config.clone();
        self.with(index, |node, now, outbox, _| node.reconfigure(config, now, outbox))
            .expect("a good configuration");
    }
}

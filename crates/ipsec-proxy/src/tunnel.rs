//! `sidestep ipsec proxy`: a [`Proxy`] over a [`Carrier`], in one thread with one epoll. It needs no privileges: ESP travels
//! in UDP, from any port that is free.
//!
//! What the host sends goes to the carrier, which sends nothing in clear: what no tunnel is for is dropped. Only where a
//! remote itself is, if the configuration has its name, is asked of this machine's resolver; that happens outside the
//! tunnel, as there is none yet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use config::ipsec::{IpsecConfig, Place, Ports, Start};
use ipnet::IpNet;
use ipsec_runtime::carrier::{Carrier, Ends, Event, NotReached, Received, RemoteIndex};
use ipsec_runtime::deliver::Deliver;
use ipsec_runtime::outbox::Via;
use ipsec_runtime::place;
use ipsec_runtime::random::System;
use linux::event::{Events, Interest, Poller, Request, Signals, Waker};
use linux::udp::{EndpointOptions, HostSocket, MAX_RECEIVE};
use tracing::{debug, info, warn};
use wire::virtio_net;

use crate::proxy::{Entrances, ListenError, Proxy};

/// Packets of the host after which what has gathered is sent.
const BATCH: usize = 256;
/// Receives from the socket before clients have their turn.
const RECEIVES: usize = 16;
/// How long remotes may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

const SIGNALS: u64 = 0;
const SOCKET: u64 = 1;
const WAKER: u64 = 2;
const PROXY: u64 = 1 << 10;

/// Why a proxy does not run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{0}")]
    File(#[from] config::Error),
    /// The configuration is not for a proxy.
    #[error("{0}")]
    NotCarried(&'static str),
    /// It cannot listen.
    #[error("{0}")]
    Listen(#[from] ListenError),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// The system has no randomness.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Runs until `signals` tell it to end. Call it before the first thread.
///
/// # Errors
/// [`Error`] when it cannot begin.
pub fn run(file: &Path, entrances: &Entrances, signals: &Signals) -> Result<(), Error> {
    let mut config = config::ipsec::load(file)?;
    refuse(&config)?;
    for remote in config.remotes.iter_mut().filter(|remote| remote.address.is_some()) {
        remote.start = Start::Always;
    }
    let poller = Poller::new()?;
    let socket = HostSocket::open(config.local, 0, &EndpointOptions::default())?;
    let ports = Ports { ike: 0, nat: socket.port() };
    let mut carrier = Carrier::new(&config, ports, System::new()?, Instant::now());
    tell_time(&mut carrier);
    let mtu = config.mtu.unwrap_or_else(|| carrier.inner_mtu());
    let proxy = Proxy::open(entrances, &poller, PROXY, mtu, Instant::now())?;
    for missing in linux::confine::confine([])? {
        info!("this kernel has no {missing}: the proxy is confined without it");
    }
    let waker = Waker::new()?;
    poller.add(signals, SIGNALS, Interest::Readable)?;
    poller.add(&socket, SOCKET, Interest::Readable)?;
    poller.add(&waker, WAKER, Interest::Readable)?;
    for place in proxy.listens_at() {
        info!("clients come to {}", place?);
    }
    let (send, found) = mpsc::channel();
    let mut tunnel = Tunnel {
        config,
        carrier,
        socket,
        proxy,
        poller,
        sink: Sink::default(),
        arena: vec![0; MAX_RECEIVE],
        packet: Vec::new(),
        given: HashMap::new(),
        finder: Finder { send, waker },
    };
    tunnel.run(signals, &found)
}

/// What cannot carry a proxy.
fn refuse(config: &IpsecConfig) -> Result<(), Error> {
    if config.remotes.iter().all(|remote| remote.address.is_none()) {
        return Err(Error::NotCarried(
            "`ipsec proxy` begins the conversation: a [[remote]] needs an `address`",
        ));
    }
    let is_tunnel = |child: &ike::config::ChildConfig| child.mode == ike::config::Mode::Tunnel;
    if !config.ike.peers.iter().flat_map(|peer| &peer.children).all(is_tunnel) {
        return Err(Error::NotCarried(
            "`ipsec proxy` carries tunnels: a [[remote.child]] has mode = \"transport\"",
        ));
    }
    if config.setkey.is_some() {
        return Err(Error::NotCarried(
            "`ipsec proxy` carries associations of IKE alone: leave setkey_file out, or see `ipsec up`",
        ));
    }
    Ok(())
}

struct Tunnel {
    config: IpsecConfig,
    carrier: Carrier<System>,
    socket: HostSocket,
    proxy: Proxy,
    poller: Poller,
    sink: Sink,
    arena: Vec<u8>,
    packet: Vec<u8>,
    given: HashMap<RemoteIndex, Given>,
    finder: Finder,
}

/// What a remote has given.
#[derive(Default)]
struct Given {
    addresses: Vec<IpAddr>,
    dns: Vec<IpAddr>,
    has_child: bool,
}

type Found = (RemoteIndex, Result<Ends, NotReached>);

/// Asks where remotes are that have names, in a thread that ends with the answer.
struct Finder {
    send: mpsc::Sender<Found>,
    waker: Waker,
}

/// Packets that have come out of the tunnel, one behind the other.
#[derive(Default)]
struct Sink {
    bytes: Vec<u8>,
    packets: Vec<Range<usize>>,
}

impl Deliver for Sink {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(header);
        self.bytes.extend_from_slice(&arena[rest]);
        self.packets.push(start..self.bytes.len());
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.packet(packet, &[], 0..packet.len());
    }
}

impl Tunnel {
    fn run(&mut self, signals: &Signals, found: &mpsc::Receiver<Found>) -> Result<(), Error> {
        let mut events = Events::with_capacity(256);
        loop {
            let has_more = self.carry(Instant::now());
            let until = self.carrier.deadline().into_iter().chain(self.proxy.deadline()).min();
            let until = until.map(|until| until.saturating_duration_since(Instant::now()));
            self.poller.wait(&mut events, if has_more { Some(Duration::ZERO) } else { until })?;
            let now = Instant::now();
            for event in events.iter() {
                match event.token {
                    SIGNALS => match signals.read()? {
                        Some(Request::Stop) => return self.end(),
                        Some(Request::Reload) => info!("a proxy reads its configuration when it is started"),
                        None => {}
                    },
                    SOCKET => self.receive(event.error, now),
                    WAKER => self.finder.waker.drain(),
                    _ => self.proxy.handle(event, &self.poller, now),
                }
            }
            while let Ok((remote, ends)) = found.try_recv() {
                self.reached(remote, ends, now);
            }
            self.handle_timeouts(now);
        }
    }

    fn handle_timeouts(&mut self, now: Instant) {
        if self.carrier.deadline().is_some_and(|deadline| deadline <= now) {
            self.carrier.handle_timeout(now, &mut self.sink);
        }
        if self.proxy.deadline().is_some_and(|deadline| deadline <= now) {
            self.proxy.handle_timeout(&self.poller, now);
        }
    }

    /// Hands packets over, both ways, and carries out what the carrier wishes. Returns whether there is more.
    fn carry(&mut self, now: Instant) -> bool {
        while let Some(event) = self.carrier.poll_event() {
            self.happened(event, now);
        }
        self.deliver(now);
        let mut count = 0;
        while count < BATCH && self.proxy.poll_transmit(now, &mut self.packet) {
            count += 1;
            self.carrier.send(&virtio_net::Header::NONE, &mut self.packet, now, &mut self.sink);
        }
        // Errors about what was just sent.
        self.deliver(now);
        self.send();
        count == BATCH
    }

    fn deliver(&mut self, now: Instant) {
        for packet in self.sink.packets.drain(..) {
            self.proxy.receive(&self.sink.bytes[packet], &self.poller, now);
        }
        self.sink.bytes.clear();
    }

    fn send(&mut self) {
        for (batch, bytes) in self.carrier.outbox().batches() {
            let way = &batch.way;
            // What is lost here was lost on the way: UDP promises nothing.
            if let Err(error) =
                self.socket.send(bytes, batch.segment, way.local, way.remote, batch.traffic_class)
            {
                debug!("{error}");
            }
        }
        self.carrier.outbox().clear();
    }

    fn receive(&mut self, error: bool, now: Instant) {
        while error && let Ok(Some(too_big)) = self.socket.recv_too_big() {
            let mtu = u16::try_from(too_big.mtu).unwrap_or(u16::MAX);
            self.carrier.set_path_mtu(too_big.destination, mtu);
        }
        for _ in 0..RECEIVES {
            let received = match self.socket.recv(&mut self.arena) {
                Ok(Some(received)) => received,
                Ok(None) => return,
                Err(error) => return debug!("{error}"),
            };
            let received = Received {
                at: 0..received.len,
                segment: received.segment_size,
                via: Via::Nat,
                local: received.destination,
                remote: received.source,
                ecn: received.ecn,
            };
            self.carrier.receive(&mut self.arena, &received, now, &mut self.sink);
            // The host answers before more comes, so that nothing piles up.
            self.carry(now);
        }
    }

    fn happened(&mut self, event: Event, now: Instant) {
        match event {
            Event::Reach(remote) => self.find(remote, now),
            Event::Up { remote, addresses, dns } => {
                if addresses.is_empty() && self.config.addresses.is_empty() {
                    warn!(
                        "the proxy has no address in the tunnel: set `request_addresses = true` for the [[remote]], or \
                         `addresses` in [ipsec]"
                    );
                }
                let given = self.given.entry(remote).or_default();
                (given.addresses, given.dns) = (addresses, dns);
                self.changed(now);
            }
            Event::Child { remote, address, .. } => {
                info!("the tunnel is there: a child at {address}");
                self.given.entry(remote).or_default().has_child = true;
                self.changed(now);
            }
            Event::Failed { why, .. } => warn!("the tunnel: {why}"),
            Event::Down { remote, why } => {
                warn!("the tunnel is down: {why}");
                self.given.remove(&remote);
                self.changed(now);
            }
            Event::Stranger { what } => warn!("{what}"),
            Event::Keys(_) | Event::Mtu => {}
        }
    }

    /// Tells the proxy which addresses and servers there are, of all remotes that have a child.
    fn changed(&mut self, now: Instant) {
        let own = self.config.addresses.iter().map(IpNet::addr);
        let there = || self.given.values().filter(|given| given.has_child);
        let addresses: Vec<_> =
            own.chain(there().flat_map(|given| given.addresses.iter().copied())).collect();
        let dns: Vec<_> = there().flat_map(|given| given.dns.iter().copied()).collect();
        if there().next().is_some() {
            self.proxy.tunnel_is_up(&self.poller, now, &addresses, &dns);
        } else {
            self.proxy.tunnel_is_down();
        }
    }

    fn find(&mut self, remote: RemoteIndex, now: Instant) {
        let Some(place) = self.config.remotes.get(remote.0).and_then(|remote| remote.address.clone()) else {
            return;
        };
        let local = self.config.local;
        if matches!(place, Place::Address(_)) {
            return self.reached(remote, place::ends(local, &place), now);
        }
        let (send, waker) = (self.finder.send.clone(), self.finder.waker.clone());
        let find = move || {
            let _ = send.send((remote, place::ends(local, &place)));
            waker.wake();
        };
        if let Err(error) = std::thread::Builder::new().name("finder".into()).spawn(find) {
            self.reached(remote, Err(NotReached(error.to_string())), now);
        }
    }

    fn reached(&mut self, remote: RemoteIndex, ends: Result<Ends, NotReached>, now: Instant) {
        tell_time(&mut self.carrier);
        self.carrier.reach(remote, ends, now, &mut self.sink);
    }

    /// Says goodbye to all remotes, and waits a moment for their answers.
    fn end(&mut self) -> Result<(), Error> {
        self.proxy.tunnel_is_down();
        self.carrier.end(Instant::now(), &mut self.sink);
        let latest = Instant::now() + GOODBYE;
        let goodbyes = Poller::new()?;
        goodbyes.add(&self.socket, SOCKET, Interest::Readable)?;
        let mut events = Events::with_capacity(1);
        loop {
            self.send();
            let now = Instant::now();
            if self.carrier.is_quiet() || now >= latest {
                return Ok(());
            }
            let until = self.carrier.deadline().into_iter().chain([latest]).min();
            goodbyes.wait(&mut events, until.map(|until| until.saturating_duration_since(now)))?;
            self.receive(false, Instant::now());
            self.handle_timeouts(Instant::now());
        }
    }
}

/// Certificates are valid for a time, which a carrier is told.
fn tell_time(carrier: &mut Carrier<System>) {
    if let Ok(since_1970) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        carrier.set_wall_clock(Instant::now(), since_1970);
    }
}

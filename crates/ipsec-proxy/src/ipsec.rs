//! A tunnel of IPsec below the proxy. ESP travels in UDP, from any port that is free.
//!
//! Only where a remote itself is, if the configuration has its name, is asked of this machine's resolver; that happens
//! outside the tunnel, as there is none yet.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use config::ipsec::{IpsecConfig, Place, Ports, Start};
use ipnet::IpNet;
use ipsec_runtime::carrier::{self, Ends, NotReached, Received, RemoteIndex};
use ipsec_runtime::claim::Claim;
use ipsec_runtime::moves::{self, Moves};
use ipsec_runtime::outbox::Via;
use ipsec_runtime::place;
use ipsec_runtime::random::System;
use linux::event::{Event, Events, Interest, Poller, Waker};
use linux::udp::{EndpointOptions, HostSocket, MAX_RECEIVE};
use tracing::{debug, info, warn};
use wire::virtio_net;

use crate::carrier::{Carrier, Sink, State};
use crate::error::Error;

/// How long remotes may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// Receives at once, while goodbye is said.
const RECEIVES: usize = 16;

const SOCKET: u64 = 0;
const WAKER: u64 = 1;
const MOVES: u64 = 2;

pub(crate) struct Ipsec {
    config: IpsecConfig,
    carrier: carrier::Carrier<System>,
    socket: HostSocket,
    /// None where this end's address is fixed, or the kernel tells nobody.
    moves: Option<Moves>,
    arena: Vec<u8>,
    given: HashMap<RemoteIndex, Given>,
    finder: Finder,
    found: mpsc::Receiver<Found>,
    _claim: Claim,
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

impl Ipsec {
    pub(crate) fn open(file: &Path) -> Result<Self, Error> {
        let claim = Claim::stake(file)?;
        let mut config = config::ipsec::load(file)?;
        refuse(&config)?;
        for remote in config.remotes.iter_mut().filter(|remote| remote.address.is_some()) {
            remote.start = Start::Always;
        }
        let socket = HostSocket::open(config.local, 0, &EndpointOptions::default())?;
        let ports = Ports { ike: 0, nat: socket.port() };
        let mut carrier = carrier::Carrier::new(&config, ports, System::new()?, Instant::now());
        tell_time(&mut carrier);
        let (send, found) = mpsc::channel();
        let finder = Finder { send, waker: Waker::new()? };
        let moves = Moves::open_for(&config);
        let (arena, given) = (vec![0; MAX_RECEIVE], HashMap::new());
        Ok(Self { config, carrier, socket, moves, arena, given, finder, found, _claim: claim })
    }
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

impl Carrier for Ipsec {
    const TOKENS: u64 = 3;

    fn watch(&self, poller: &Poller, first_token: u64) -> linux::Result<()> {
        poller.add(&self.socket, first_token + SOCKET, Interest::Readable)?;
        if let Some(moves) = &self.moves {
            poller.add(moves, first_token + MOVES, Interest::Readable)?;
        }
        poller.add(&self.finder.waker, first_token + WAKER, Interest::Readable)
    }

    fn mtu(&self) -> u16 {
        self.config.mtu.unwrap_or_else(|| self.carrier.inner_mtu())
    }

    fn deadline(&self) -> Option<Instant> {
        let look_at = self.moves.as_ref().and_then(Moves::deadline);
        self.carrier.deadline().into_iter().chain(look_at).min()
    }

    fn handle_timeout(&mut self, now: Instant, sink: &mut Sink) {
        if self.moves.as_mut().is_some_and(|moves| moves.is_due(now)) {
            moves::follow(&mut self.carrier, now, sink);
        }
        if self.carrier.deadline().is_some_and(|deadline| deadline <= now) {
            self.carrier.handle_timeout(now, sink);
        }
    }

    fn receive(&mut self, event: Event, now: Instant, sink: &mut Sink) -> Result<bool, Error> {
        if event.token == WAKER {
            self.finder.waker.drain();
            while let Ok((remote, ends)) = self.found.try_recv() {
                self.reached(remote, ends, now, sink);
            }
            return Ok(false);
        }
        if event.token == MOVES {
            if let Some(moves) = &mut self.moves {
                moves.read(now)?;
            }
            return Ok(false);
        }
        while event.error
            && let Ok(Some(too_big)) = self.socket.recv_too_big()
        {
            let mtu = u16::try_from(too_big.mtu).unwrap_or(u16::MAX);
            self.carrier.too_big(too_big.destination, mtu, too_big.quoted.as_deref(), Via::Nat, now);
        }
        let received = match self.socket.recv(&mut self.arena) {
            Ok(Some(received)) => received,
            Ok(None) => return Ok(false),
            Err(error) => {
                debug!("{error}");
                return Ok(false);
            }
        };
        let received = Received {
            at: 0..received.len,
            segment: received.segment_size,
            via: Via::Nat,
            local: received.destination,
            remote: received.source,
            ecn: received.ecn,
        };
        self.carrier.receive(&mut self.arena, &received, now, sink);
        Ok(true)
    }

    fn send(&mut self, packet: &mut [u8], now: Instant, sink: &mut Sink) {
        self.carrier.send(&virtio_net::Header::NONE, packet, now, sink);
    }

    fn flush(&mut self) {
        for (batch, bytes) in self.carrier.outbox().batches() {
            // What is lost here was lost on the way: UDP promises nothing.
            if let Err(error) = batch.send(bytes, &self.socket) {
                debug!("{error}");
            }
        }
        self.carrier.outbox().clear();
    }

    fn changed(&mut self, now: Instant, sink: &mut Sink) -> Option<State> {
        let mut has_changed = false;
        while let Some(event) = self.carrier.poll_event() {
            has_changed |= self.happened(event, now, sink);
        }
        has_changed.then(|| self.state())
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), Error> {
        self.carrier.end(Instant::now(), sink);
        let latest = Instant::now() + GOODBYE;
        let goodbyes = Poller::new()?;
        goodbyes.add(&self.socket, SOCKET, Interest::Readable)?;
        let mut events = Events::with_capacity(1);
        loop {
            self.flush();
            let now = Instant::now();
            if self.carrier.is_quiet() || now >= latest {
                return Ok(());
            }
            let until = self.carrier.deadline().into_iter().chain([latest]).min();
            goodbyes.wait(&mut events, until.map(|until| until.saturating_duration_since(now)))?;
            for event in events.iter() {
                for _ in 0..RECEIVES {
                    if !self.receive(event, Instant::now(), sink)? {
                        break;
                    }
                }
            }
            self.handle_timeout(Instant::now(), sink);
        }
    }
}

impl Ipsec {
    /// Returns whether the tunnel may be another now.
    fn happened(&mut self, event: carrier::Event, now: Instant, sink: &mut Sink) -> bool {
        match event {
            carrier::Event::Reach(remote) => self.find(remote, now, sink),
            carrier::Event::Up { remote, addresses, dns } => {
                if addresses.is_empty() && self.config.addresses.is_empty() {
                    warn!(
                        "the proxy has no address in the tunnel: set `request_addresses = true` for the [[remote]], or \
                         `addresses` in [ipsec]"
                    );
                }
                let given = self.given.entry(remote).or_default();
                (given.addresses, given.dns) = (addresses, dns);
                return true;
            }
            carrier::Event::Child { remote, address, .. } => {
                info!("the tunnel is there: a child at {address}");
                self.given.entry(remote).or_default().has_child = true;
                return true;
            }
            carrier::Event::Failed { why: what, .. } | carrier::Event::Unanswered { what, .. } => {
                warn!("the tunnel: {what}");
            }
            carrier::Event::Down { remote, why } => {
                warn!("the tunnel is down: {why}");
                self.given.remove(&remote);
                return true;
            }
            carrier::Event::Stranger { what } | carrier::Event::Contested { what, .. } => warn!("{what}"),
            carrier::Event::Keys(_) | carrier::Event::Mtu => {}
        }
        false
    }

    /// Which addresses and servers there are, of all remotes that have a child.
    fn state(&self) -> State {
        let own = self.config.addresses.iter().map(IpNet::addr);
        let there = || self.given.values().filter(|given| given.has_child);
        if there().next().is_none() {
            return State::Down;
        }
        let addresses = own.chain(there().flat_map(|given| given.addresses.iter().copied())).collect();
        let dns = there().flat_map(|given| given.dns.iter().copied()).collect();
        State::Up { addresses, dns }
    }

    fn find(&mut self, remote: RemoteIndex, now: Instant, sink: &mut Sink) {
        let Some(place) = self.config.remotes.get(remote.0).and_then(|remote| remote.address.clone()) else {
            return;
        };
        let local = self.config.local;
        if matches!(place, Place::Address(_)) {
            return self.reached(remote, place::ends(local, &place), now, sink);
        }
        let (send, waker) = (self.finder.send.clone(), self.finder.waker.clone());
        let find = move || {
            let _ = send.send((remote, place::ends(local, &place)));
            waker.wake();
        };
        if let Err(error) = std::thread::Builder::new().name("finder".into()).spawn(find) {
            self.reached(remote, Err(NotReached(error.to_string())), now, sink);
        }
    }

    fn reached(
        &mut self,
        remote: RemoteIndex,
        ends: Result<Ends, NotReached>,
        now: Instant,
        sink: &mut Sink,
    ) {
        tell_time(&mut self.carrier);
        self.carrier.reach(remote, ends, now, sink);
    }
}

/// Certificates are valid for a time, which a carrier is told.
fn tell_time(carrier: &mut carrier::Carrier<System>) {
    if let Ok(since_1970) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        carrier.set_wall_clock(Instant::now(), since_1970);
    }
}

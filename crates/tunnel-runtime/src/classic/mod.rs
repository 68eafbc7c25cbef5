//! Peers of the classic profile (docs/classic.md): a thread with a TUN device of its own, through which all their
//! packets pass in both directions.
//!
//! The kernel routes to the device what is for the remote hosts, which goes out under hashed addresses, and what is for
//! the hashed addresses of this side, which comes in: each has a route of its own as long as it is in use. What is
//! written to the device the kernel forwards, outwards or to the local hosts. So no socket is opened, and packets with
//! options that no kernel knows never reach one.

mod data;
mod in_place;
pub(crate) mod kernel;
mod keys;

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use classic::{Action, Drops, Node, StreamStatus, UnixTime};
use ipnet::IpNet;
use linux::bpf::attach::Attachment;
use linux::event::{Events, Interest, Poller, Waker};
use linux::netlink::{Netlink, Route};
use linux::tun;
use tracing::{info, warn};

use super::clock::Clock;
use super::transparent::TransparentGateway;
use crate::error::Error;
use config::{ClassicPeer, TunnelConfig};
use data::DataPath;
pub(super) use in_place::Traffic;
use kernel::KernelPath;
pub(super) use kernel::Loaded;
use keys::StoredKeys;

/// How often the clock is looked at, which somebody may have set.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(1);
/// Numbers of the poller's descriptors.
const TUN: u64 = 0;
const WAKER: u64 = 1;

/// What there is to know about one peer.
pub(super) struct ClassicStatus {
    pub(super) stream: StreamStatus,
    pub(super) traffic: Traffic,
    /// The number of the interval.
    pub(super) salt: u64,
    /// How often addresses have changed.
    pub(super) rotations: u64,
}

/// What the thread reports to the daemon.
pub(super) enum ThreadEvent {
    /// How the peers are, and what was dropped, by reason.
    Status(Vec<ClassicStatus>, Drops),
    /// It has ended, asked to or not.
    Ended,
}

/// The thread, as the daemon sees it.
pub(super) struct Classic {
    end: mpsc::Sender<()>,
    waker: Waker,
    thread: JoinHandle<()>,
}

impl Classic {
    /// Makes the device, attaches what was loaded for it, and starts the thread, which reports every second.
    pub(super) fn start(
        config: &TunnelConfig,
        loaded: Option<Loaded>,
        clock: &Clock,
        link_mtu: u16,
        state_dir: &Path,
        gateway: Option<Arc<TransparentGateway>>,
        report: impl Fn(ThreadEvent) + Send + 'static,
    ) -> Result<Self, Error> {
        warn!(
            "{} peer(s) of the classic profile: nothing is authenticated there: whoever sees a packet can forge others",
            config.classic.len()
        );
        let device = tun::create(&device_name(&config.tunnel.name), 1, tun::Offloads::TcpAndUdp)?;
        let mut netlink = Netlink::open()?;
        netlink.set_link_up(device.index, true)?;
        netlink.set_link_mtu(device.index, u32::from(u16::MAX))?;
        let mut peers = config.classic.clone();
        let mut keys = StoredKeys::load(state_dir, &config.tunnel.name);
        for peer in &mut peers {
            keys.recall(peer);
            peer.stream.outer_mtu = link_mtu;
        }
        let streams = peers.iter().map(|peer| peer.stream.clone()).collect();
        let now = unix(clock);
        let node = Node::new(streams, crate::machine::seed()?, now)
            .map_err(|(index, error)| Error::Classic(peers[index].name.clone(), error))?;
        let mut routes = Vec::with_capacity(peers.len());
        for peer in &peers {
            let remote = IpNet::from(IpAddr::V6(peer.stream.remote.address));
            let route = Route::device(remote, device.index);
            netlink.add_route(&route)?;
            routes.push((route, 0));
            if let Some(gateway) = &gateway {
                gateway.add_remote(peer.stream.remote.address.into(), device.index)?;
            }
        }
        let kernel = loaded.map(|loaded| loaded.attach(&peers, device.index)).transpose()?.flatten();
        let attachment = gateway.as_ref().map(|gateway| gateway.attach_to(device.index)).transpose()?;
        let (end, ended) = mpsc::channel();
        let (waker, poller) = (Waker::new()?, Poller::new()?);
        poller.add(&waker, WAKER, Interest::Readable)?;
        poller.add(&device.queues[0], TUN, Interest::Readable)?;
        let source = config.tunnel.addresses.iter().map(IpNet::addr).find(IpAddr::is_ipv6);
        let queue = device.queues.into_iter().next().expect("one was asked for");
        let mut thread = Thread {
            node,
            keys,
            clock: *clock,
            made: vec![0; peers.len()],
            index: device.index,
            gateway,
            _attachment: attachment,
            path: DataPath::new(queue, device.offloads, source, peers.len()),
            routes,
            kernel,
            seen: 0,
            peers,
            netlink,
            poller,
            waker: waker.clone(),
            ended,
        };
        thread.follow_mtus()?;
        let body = move || {
            if let Err(error) = thread.run(&report) {
                warn!("classic profile: {error}");
            }
            report(ThreadEvent::Ended);
        };
        let thread = std::thread::Builder::new().name("classic".into()).spawn(body)?;
        Ok(Classic { end, waker, thread })
    }

    /// Ends it, and waits until it has.
    pub(super) fn end(self) {
        let _ = self.end.send(());
        self.waker.wake();
        let _ = self.thread.join();
    }
}

/// The device beside that of the moving-target profile.
fn device_name(tunnel: &str) -> String {
    const LONGEST: usize = 15;
    let room = LONGEST - 2;
    format!("{}-c", &tunnel[..tunnel.len().min(room)])
}

fn unix(clock: &Clock) -> UnixTime {
    UnixTime::from_millis(clock.now().unix_ms)
}

struct Thread {
    node: Node,
    peers: Vec<ClassicPeer>,
    keys: StoredKeys,
    clock: Clock,
    /// Routes made for each peer.
    made: Vec<u64>,
    index: u32,
    /// Where this gateway is transparent: then its programs, not routes, bring what is for hashed addresses.
    gateway: Option<Arc<TransparentGateway>>,
    _attachment: Option<Attachment>,
    path: DataPath,
    /// The way to each remote host, and its MTU.
    routes: Vec<(Route, u16)>,
    kernel: Option<KernelPath>,
    /// What the node had told of changes when they were last looked at.
    seen: u64,
    netlink: Netlink,
    poller: Poller,
    waker: Waker,
    ended: mpsc::Receiver<()>,
}

impl Thread {
    fn run(&mut self, report: &impl Fn(ThreadEvent)) -> linux::Result<()> {
        let mut events = Events::with_capacity(4);
        let mut reported = UnixTime::default();
        loop {
            let now = unix(&self.clock);
            if now >= self.node.deadline() || now < reported || now >= reported.after(LOOK_AT_CLOCK) {
                self.node.handle_timeout(now);
                if now < reported || now >= reported.after(LOOK_AT_CLOCK) {
                    reported = now;
                    report(self.status(now));
                }
            }
            while let Some(action) = self.node.next_action() {
                self.act(action);
            }
            self.path.write();
            if self.node.changes() != self.seen {
                self.path.in_place.refresh(&self.node, self.peers.iter().map(|peer| &peer.stream));
                if let Err(error) = self.follow_mtus() {
                    warn!("local hosts are not told the path MTU: {error}");
                }
                if let Some(kernel) = &mut self.kernel {
                    kernel.refresh(&self.node, &mut self.netlink);
                }
                self.seen = self.node.changes();
            }
            let next = self.node.deadline().min(reported.after(LOOK_AT_CLOCK));
            let left = Duration::from_millis(next.millis().saturating_sub(now.millis()));
            self.poller.wait(&mut events, Some(left))?;
            if self.ended.try_recv().is_ok() {
                return Ok(());
            }
            self.waker.drain();
            self.path.read(&mut self.node, unix(&self.clock))?;
        }
    }

    /// Routes and connections have the inner MTU that the node knows now.
    fn follow_mtus(&mut self) -> linux::Result<()> {
        let (node, streams) = (&self.node, self.routes.len());
        self.path.set_inner_mtus((0..streams).map(|stream| node.inner_mtu(stream)));
        for (stream, (route, mtu)) in self.routes.iter_mut().enumerate() {
            let now = node.inner_mtu(stream);
            if *mtu != now {
                self.netlink.set_route_mtu(route, Some(now.into()))?;
                *mtu = now;
            }
        }
        Ok(())
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Open(endpoint) => {
                self.made[endpoint.stream] += 1;
                self.path.own.insert(endpoint.local.address);
                if let Some(gateway) = &self.gateway {
                    let (local, remote) = (endpoint.local.address, endpoint.remote.address);
                    let opened = gateway.open(local, Some(self.index), Some(remote));
                    let others = self.node.endpoints().filter(|other| other.stream == endpoint.stream);
                    let earlier = others.map(|other| other.remote.address);
                    let prepare = || gateway.prepare(remote, earlier, &mut self.netlink);
                    if let Err(error) = opened.and_then(|()| prepare()) {
                        warn!("cannot receive at a hashed address: {error}");
                    }
                    return;
                }
                let route = self.route(endpoint.local.address);
                if let Err(error) = self.netlink.add_route(&route) {
                    warn!("cannot receive at a hashed address: {error}");
                }
            }
            Action::Close(endpoint) => {
                let address = endpoint.local.address;
                // Two streams of a host may have had the same.
                if self.node.endpoints().any(|other| other.local.address == address) {
                    return;
                }
                self.path.own.remove(&address);
                if let Some(gateway) = &self.gateway {
                    gateway.forget(endpoint.remote.address, &mut self.netlink);
                    return gateway.close(address, Some(self.index), Some(endpoint.remote.address));
                }
                let _ = self.netlink.delete_route(&self.route(address));
            }
            Action::Transmit(packet) => self.path.push(&packet),
            Action::StoreKey { stream, key } => {
                let peer = &self.peers[stream];
                info!("{}: a new session key", peer.name);
                if let Err(error) = self.keys.store(peer, &key) {
                    warn!(
                        "{}: cannot store the new session key ({error}): if one end restarts, so must the other",
                        peer.name
                    );
                }
            }
        }
    }

    fn route(&self, address: Ipv6Addr) -> Route {
        Route::device(IpNet::from(IpAddr::V6(address)), self.index)
    }

    fn status(&self, now: UnixTime) -> ThreadEvent {
        let in_kernel =
            |stream| self.kernel.as_ref().map(|kernel| kernel.traffic(stream)).unwrap_or_default();
        let traffic = self.path.traffic.iter().enumerate().map(|(stream, own)| *own + in_kernel(stream));
        let peers = self.node.status().zip(traffic).zip(&self.made);
        let status = |((stream, traffic), made): ((StreamStatus, Traffic), &u64)| ClassicStatus {
            salt: now.secs() / stream.interval.max(1),
            // The first two are made at once, one for now and one for the next interval.
            rotations: made.saturating_sub(2),
            traffic,
            stream,
        };
        ThreadEvent::Status(peers.map(status).collect(), self.node.drops().clone())
    }
}

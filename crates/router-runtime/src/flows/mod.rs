//! Flows, told to a collector: what hosts behind the gateway have sent and received, connection by connection (IPFIX).
//!
//! A thread of its own hears of connections that end, and goes through those that go on now and then; what it knows is the
//! kernel's. Nothing is told of the gateway's own connections, among them the datagrams of a tunnel: where it hops is
//! nobody's business.

mod exporter;
mod message;

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use control::router_status;
use ipnet::IpNet;
use linux::clock;
use linux::conntrack::{self, Connection, Ends};
use linux::event::{Events, Interest, Poller, Waker};
use router::site::Flows as Settings;
use tracing::warn;

use crate::error::Error;
use crate::traffic::is_behind;
use exporter::Exporter;
use message::End;

const ENDS: u64 = 0;
const WAKER: u64 = 1;
/// How long records wait for others that fit into the same datagram.
const GATHER: Duration = Duration::from_secs(1);
/// How often it is looked whether packets to the collector have another source now, as of a gateway that was renumbered.
const SOURCE_EVERY: Duration = Duration::from_secs(60);

/// Tells flows, where the configuration has a collector.
#[derive(Default)]
pub(super) struct Flows {
    running: Option<Running>,
}

struct Running {
    settings: Settings,
    shared: Arc<Shared>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

/// Between the thread that tells and others.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// As in [`crate::traffic::Sources`].
    networks: Mutex<Vec<IpNet>>,
    records: AtomicU64,
    /// Records that could not be sent.
    lost: AtomicU64,
    left_out: AtomicU64,
    /// How often more connections ended than the kernel could tell.
    missed: AtomicU64,
    problem: Mutex<Option<String>>,
}

impl Flows {
    /// Has flows told as the configuration is now, of hosts in these networks, each of which is given with the gateway's own
    /// address in it. Returns what keeps them from being told.
    pub(super) fn follow(&mut self, settings: Option<&Settings>, networks: Vec<IpNet>) -> Vec<String> {
        if self.running.as_ref().map(|running| &running.settings) != settings {
            self.running = None;
            match settings.map(|settings| Running::start(settings, networks.clone())) {
                None => {}
                Some(Ok(running)) => self.running = Some(running),
                Some(Err(error)) => return vec![format!("flows are not told: {error}")],
            }
        }
        let Some(running) = &self.running else { return Vec::new() };
        *lock(&running.shared.networks) = networks;
        lock(&running.shared.problem).clone().into_iter().collect()
    }

    /// What has been told; None without a collector.
    pub(super) fn status(&self) -> Option<router_status::Flows> {
        let running = self.running.as_ref()?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Some(router_status::Flows {
            collector: running.settings.collector,
            records: count(&running.shared.records),
            lost: count(&running.shared.lost),
            left_out: count(&running.shared.left_out),
            missed: count(&running.shared.missed),
        })
    }

    /// Tells the last ones.
    pub(super) fn end(&mut self) {
        self.running = None;
    }
}

impl Running {
    fn start(settings: &Settings, networks: Vec<IpNet>) -> Result<Self, Error> {
        let shared = Arc::new(Shared { networks: Mutex::new(networks), ..Shared::default() });
        let waker = Waker::new()?;
        let mut teller = Teller::new(settings, shared.clone(), &waker)?;
        let own_waker = waker.clone();
        let run = move || {
            if let Err(error) = teller.run(&own_waker) {
                warn!("flows are not told any more: {error}");
                *lock(&teller.shared.problem) = Some(format!("flows are not told: {error}"));
            }
        };
        let thread = std::thread::Builder::new().name("flows".into()).spawn(run)?;
        Ok(Running { settings: settings.clone(), shared, waker, thread: Some(thread) })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread that tells.
struct Teller {
    settings: Settings,
    shared: Arc<Shared>,
    poller: Poller,
    ends: Ends,
    exporter: Exporter,
    socket: Option<UdpSocket>,
    next_source: Instant,
}

impl Teller {
    fn new(settings: &Settings, shared: Arc<Shared>, waker: &Waker) -> Result<Self, Error> {
        let poller = Poller::new()?;
        let ends = Ends::open()?;
        poller.add(&ends, ENDS, Interest::Readable)?;
        poller.add(waker, WAKER, Interest::Readable)?;
        let mut exporter = Exporter::new(settings.observation_domain);
        let now_ms = clock::unix_ms();
        conntrack::for_each(|connection| exporter.was_there(&connection, now_ms))?;
        let next_source = Instant::now();
        Ok(Self { settings: settings.clone(), shared, poller, ends, exporter, socket: None, next_source })
    }

    fn run(&mut self, waker: &Waker) -> linux::Result<()> {
        let mut events = Events::with_capacity(2);
        let mut next_send = Instant::now() + GATHER;
        let mut next_all = Instant::now() + self.settings.interval;
        loop {
            let wait = next_send.min(next_all).saturating_duration_since(Instant::now());
            self.poller.wait(&mut events, Some(wait))?;
            for event in events.iter() {
                match event.token {
                    ENDS => self.hear_ends()?,
                    _ => waker.drain(),
                }
            }
            let stops = self.shared.stop.load(Ordering::Relaxed);
            if stops || Instant::now() >= next_all {
                self.go_through_all(if stops { End::Forced } else { End::Active })?;
                next_all = Instant::now() + self.settings.interval;
            }
            if stops || Instant::now() >= next_send {
                self.send();
                next_send = Instant::now() + GATHER;
            }
            if stops {
                return Ok(());
            }
        }
    }

    fn hear_ends(&mut self) -> linux::Result<()> {
        let (exporter, networks, now_ms) =
            (&mut self.exporter, lock(&self.shared.networks), clock::unix_ms());
        let overruns = self.ends.read(|connection| {
            if concerns(&networks, &connection) {
                exporter.ended(&connection, now_ms);
            }
        })?;
        self.shared.missed.fetch_add(overruns, Ordering::Relaxed);
        Ok(())
    }

    fn go_through_all(&mut self, end: End) -> linux::Result<()> {
        // Not while the gateway waits for the lock.
        let networks = lock(&self.shared.networks).clone();
        let (exporter, now_ms) = (&mut self.exporter, clock::unix_ms());
        conntrack::for_each(|connection| {
            if concerns(&networks, &connection) {
                exporter.goes_on(&connection, end, now_ms);
            }
        })?;
        self.exporter.all_gone_through();
        Ok(())
    }

    /// Sends what there is. What cannot be sent is lost, as it is on the way.
    fn send(&mut self) {
        let records = self.exporter.records;
        let messages = self.exporter.take(clock::unix_ms());
        let told = u64::from(self.exporter.records.wrapping_sub(records));
        self.shared.left_out.store(self.exporter.left_out, Ordering::Relaxed);
        if messages.is_empty() {
            return;
        }
        let problem = match self.send_to_collector(&messages) {
            Ok(()) => {
                self.shared.records.fetch_add(told, Ordering::Relaxed);
                None
            }
            Err(error) => {
                self.socket = None;
                self.exporter.begin_anew();
                self.shared.lost.fetch_add(told, Ordering::Relaxed);
                Some(format!("flows do not reach the collector {}: {error}", self.settings.collector))
            }
        };
        *lock(&self.shared.problem) = problem;
    }

    fn send_to_collector(&mut self, messages: &[Vec<u8>]) -> io::Result<()> {
        let now = Instant::now();
        if now >= self.next_source {
            self.next_source = now + SOURCE_EVERY;
            let current = connect(self.settings.collector)?;
            let address = |socket: &UdpSocket| socket.local_addr().map(|place| place.ip()).ok();
            if self.socket.as_ref().is_none_or(|socket| address(socket) != address(&current)) {
                self.socket = Some(current);
            }
        }
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(connect(self.settings.collector)?),
        };
        // What an earlier message was answered with: nobody listens.
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        messages.iter().try_for_each(|message| socket.send(message).map(drop))
    }
}

/// Whether a host behind the gateway is one of its ends.
fn concerns(networks: &[IpNet], connection: &Connection) -> bool {
    let Connection { original, reply, .. } = connection;
    let ends = [original.source, original.destination, reply.source, reply.destination];
    ends.into_iter().any(|address| is_behind(networks, address))
}

fn connect(collector: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match collector {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
    }?;
    socket.connect(collector)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

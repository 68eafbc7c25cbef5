//! Flows, told to a collector: what hosts behind the gateway have sent and received, connection by connection (IPFIX).
//!
//! A thread of its own hears of connections that end, and goes through those that go on now and then; what it knows is the
//! kernel's. Nothing is told of the gateway's own connections, among them the datagrams of a tunnel: where it hops is
//! nobody's business.

mod collector;
mod exporter;
mod message;

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

use crate::error::Error;
use crate::traffic::is_behind;
use collector::Collector;
use exporter::Exporter;
use message::End;

const ENDS: u64 = 0;
const WAKER: u64 = 1;
/// How long records wait for others that fit into the same datagram.
const GATHER: Duration = Duration::from_secs(1);
/// When more is sent, where not all could be.
const SOON: Duration = Duration::from_millis(10);
/// How long it takes at most to tell the last ones.
const LAST: Duration = Duration::from_secs(2);

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
    /// Records that found no room while the collector could not be reached.
    lost: AtomicU64,
    /// And while it could.
    left_out: AtomicU64,
    /// How often more connections ended than the kernel could tell.
    missed: AtomicU64,
    problem: Mutex<Option<String>>,
}

impl Flows {
    /// Has flows told as the configuration is now, of hosts in these networks, each of which is given with the gateway's own
    /// address in it. Returns what keeps them from being told.
    pub(super) fn follow(&mut self, settings: Option<&Settings>, networks: Vec<IpNet>) -> Vec<String> {
        let mut problems = Vec::new();
        // It has ended, but not because it was to.
        let has_ended = |running: &Running| running.thread.as_ref().is_some_and(JoinHandle::is_finished);
        if let Some(running) = self.running.take_if(|running| has_ended(running)) {
            problems.extend(lock(&running.shared.problem).clone());
        }
        if self.running.as_ref().map(|running| &running.settings) != settings {
            self.running = None;
            match settings.map(|settings| Running::start(settings, networks.clone())) {
                None => {}
                Some(Ok(running)) => self.running = Some(running),
                Some(Err(error)) => problems.push(format!("flows are not told: {error}")),
            }
        }
        if let Some(running) = &self.running {
            *lock(&running.shared.networks) = networks;
            problems.extend(lock(&running.shared.problem).clone());
        }
        problems
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
                *lock(&teller.shared.problem) = Some(format!("flows were not told for a while: {error}"));
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
    collector: Collector,
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
        let collector = Collector::new(settings.collector);
        Ok(Self { settings: settings.clone(), shared, poller, ends, exporter, collector })
    }

    fn run(&mut self, waker: &Waker) -> linux::Result<()> {
        let mut events = Events::with_capacity(2);
        let mut next = Instant::now() + GATHER;
        let mut next_round = Instant::now() + self.settings.interval;
        // Whether some are still to be told of in this round; until when, once it is the last one.
        let (mut lacks_some, mut until) = (false, None);
        loop {
            self.poller.wait(&mut events, Some(next.saturating_duration_since(Instant::now())))?;
            for event in events.iter() {
                match event.token {
                    ENDS => self.hear_ends()?,
                    _ => waker.drain(),
                }
            }
            let now = Instant::now();
            if until.is_none() && self.shared.stop.load(Ordering::Relaxed) {
                (until, next, next_round) = (Some(now + LAST), now, now);
            }
            if now < next {
                continue;
            }
            self.send();
            if now >= next_round {
                self.exporter.begin_round();
                (lacks_some, next_round) = (true, now + self.settings.interval);
            }
            if lacks_some && !self.exporter.waits() {
                let end = if until.is_some() { End::Forced } else { End::Active };
                lacks_some = !self.go_through_all(end)?;
            }
            let is_reached = self.collector.is_reached();
            let waits = self.exporter.waits();
            if until.is_some_and(|until| now >= until || !is_reached || !(waits || lacks_some)) {
                return Ok(());
            }
            next = now + if is_reached && waits { SOON } else { GATHER };
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

    /// Whether there was room for all.
    fn go_through_all(&mut self, end: End) -> linux::Result<bool> {
        // Not while the gateway waits for the lock.
        let networks = lock(&self.shared.networks).clone();
        let (exporter, now_ms) = (&mut self.exporter, clock::unix_ms());
        conntrack::for_each(|connection| {
            if concerns(&networks, &connection) {
                exporter.goes_on(&connection, end, now_ms);
            }
        })?;
        Ok(self.exporter.all_gone_through())
    }

    /// Sends what waits, as far as it goes. The rest waits on.
    fn send(&mut self) {
        let shared = &self.shared;
        let counter = if self.collector.is_reached() { &shared.left_out } else { &shared.lost };
        counter.fetch_add(std::mem::take(&mut self.exporter.left_out), Ordering::Relaxed);
        let before = self.exporter.records;
        let sent = self.collector.send(&mut self.exporter, clock::unix_ms());
        let records = self.exporter.records.wrapping_sub(before);
        shared.records.fetch_add(u64::from(records), Ordering::Relaxed);
        let collector = self.settings.collector;
        match sent {
            Err(error) => {
                let problem = format!("flows do not reach the collector {collector}: {error}");
                *lock(&shared.problem) = Some(problem);
            }
            Ok(()) if self.collector.is_reached() => *lock(&shared.problem) = None,
            Ok(()) => {}
        }
    }
}

/// Whether a host behind the gateway is one of its ends.
fn concerns(networks: &[IpNet], connection: &Connection) -> bool {
    let Connection { original, reply, .. } = connection;
    let ends = [original.source, original.destination, reply.source, reply.destination];
    ends.into_iter().any(|address| is_behind(networks, address))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_ended_by_an_error_is_told_once_and_another_one_is_started() {
        let settings = Settings {
            collector: "192.0.2.1:4739".parse().unwrap(),
            interval: Duration::from_secs(60),
            observation_domain: 0,
        };
        let why = "flows were not told for a while: a test";
        let shared = Shared { problem: Mutex::new(Some(why.to_owned())), ..Shared::default() };
        let thread = std::thread::spawn(|| ());
        while !thread.is_finished() {
            std::thread::yield_now();
        }
        let running = Running {
            settings: settings.clone(),
            shared: Arc::new(shared),
            waker: Waker::new().unwrap(),
            thread: Some(thread),
        };
        let mut flows = Flows { running: Some(running) };
        assert_eq!(flows.follow(Some(&settings), Vec::new())[0], why);
        // Without privileges none can be started, and that is told.
        let is_there = flows.running.is_some();
        let problems = flows.follow(Some(&settings), Vec::new());
        assert!(!problems.contains(&why.to_owned()) && problems.is_empty() == is_there, "{problems:?}");
    }
}

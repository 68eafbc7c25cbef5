//! Packet threads: where one thread does not do, each of several has queues of the TUN device and endpoints of its own,
//! and carries what comes to them. The daemon's own thread runs the protocol then, and nothing else.
//!
//! The daemon gives orders in the sequence in which things happen: an endpoint is known to all before anybody sends from it.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use linux::event::{Events, Interest, Poller, Waker};
use linux::process;
use linux::udp::EndpointSocket;
use mt6d::{EndpointId, Notice, PacketWorker, Receiver, Update};
use tracing::{info, warn};

use super::busy_poll::BusyPoll;
use super::clock::Clock;
use super::data::DataPath;
use crate::error::Error;
use crate::token;
use config::Tunnel;
use linux::priority::Priority;

/// What a packet thread is to do.
enum Command {
    Update(Update),
    /// A session's socket, to send from; and to receive from, where its receiving half comes with it.
    Open(EndpointId, Arc<EndpointSocket>, Option<Receiver>),
    Close(EndpointId),
    End,
}

/// What packet threads report to the daemon.
pub(super) enum ThreadEvent {
    Notices(Vec<Notice>),
    /// A thread has ended, asked to or not.
    Ended,
}

/// The packet threads, as the daemon sees them.
pub(super) struct PacketThreads {
    threads: Vec<PacketThread>,
}

struct PacketThread {
    commands: mpsc::Sender<Command>,
    waker: Waker,
    handle: JoinHandle<()>,
    /// Whether it has got an order since it was last woken.
    has_commands: bool,
}

/// Reports that a thread has ended, also by a panic.
struct ReportEnd<T: Fn(ThreadEvent)>(T);

impl<T: Fn(ThreadEvent)> Drop for ReportEnd<T> {
    fn drop(&mut self) {
        (self.0)(ThreadEvent::Ended);
    }
}

impl PacketThreads {
    /// Starts a thread for each worker with its part of the device.
    pub(super) fn start(
        workers: Vec<(PacketWorker, DataPath)>,
        tunnel: &Tunnel,
        clock: &Clock,
        report: impl Fn(ThreadEvent) + Clone + Send + 'static,
    ) -> Result<Self, Error> {
        let mut threads = Vec::new();
        for (number, (worker, data)) in workers.into_iter().enumerate() {
            let (commands, received) = mpsc::channel();
            let (waker, poller) = (Waker::new()?, Poller::new()?);
            poller.add(&waker, token::WAKER, Interest::Readable)?;
            for (queue, token) in data.tun().iter().zip(token::TUN..=u64::MAX) {
                poller.add(queue, token, Interest::Readable)?;
            }
            let thread = Thread {
                worker,
                data,
                clock: *clock,
                poller,
                waker: waker.clone(),
                received,
                waiting: BusyPoll::new(tunnel.spin),
                priority: Priority::new(tunnel.realtime),
            };
            let (processor, report) = (tunnel.cpus.iter().cycle().nth(number).copied(), report.clone());
            let body = move || {
                let report = ReportEnd(report);
                if let Some(Err(error)) = processor.map(process::pin_to_processor) {
                    warn!("{error}");
                }
                if let Err(error) = thread.run(&report.0) {
                    warn!("{error}");
                }
            };
            let handle = std::thread::Builder::new().name(format!("packets-{number}")).spawn(body)?;
            threads.push(PacketThread { commands, waker, handle, has_commands: false });
        }
        Ok(PacketThreads { threads })
    }

    fn send(&mut self, number: usize, command: Command) {
        let thread = &mut self.threads[number];
        // One that has ended has reported that.
        let _ = thread.commands.send(command);
        thread.has_commands = true;
    }

    /// A session's endpoint is open; `place` says who receives from it.
    pub(super) fn open(
        &mut self,
        id: EndpointId,
        socket: &Arc<EndpointSocket>,
        receiver: &Receiver,
        place: usize,
    ) {
        let receives = place % self.threads.len();
        for number in 0..self.threads.len() {
            let receiver = (number == receives).then(|| receiver.clone());
            self.send(number, Command::Open(id, socket.clone(), receiver));
        }
    }

    pub(super) fn close(&mut self, id: EndpointId) {
        (0..self.threads.len()).for_each(|number| self.send(number, Command::Close(id)));
    }

    pub(super) fn update(&mut self, update: &Update) {
        (0..self.threads.len()).for_each(|number| self.send(number, Command::Update(update.clone())));
    }

    /// Wakes those that have got orders.
    pub(super) fn wake(&mut self) {
        for thread in &mut self.threads {
            if std::mem::take(&mut thread.has_commands) {
                thread.waker.wake();
            }
        }
    }

    /// Ends all, and waits until they have.
    pub(super) fn end(mut self) {
        (0..self.threads.len()).for_each(|number| self.send(number, Command::End));
        self.wake();
        for thread in self.threads {
            let _ = thread.handle.join();
        }
    }
}

/// One of them, as it sees itself.
struct Thread {
    worker: PacketWorker,
    data: DataPath,
    clock: Clock,
    poller: Poller,
    waker: Waker,
    received: mpsc::Receiver<Command>,
    waiting: BusyPoll,
    priority: Priority,
}

impl Thread {
    fn run(mut self, report: &impl Fn(ThreadEvent)) -> linux::Result<()> {
        let mut events = Events::with_capacity(256);
        loop {
            self.waiting.wait(&self.poller, &mut events, None)?;
            let now = self.clock.now();
            for event in events.iter() {
                match event.token {
                    queue @ token::TUN.. => self.data.readable((queue - token::TUN) as usize),
                    token::WAKER => self.waker.drain(),
                    endpoint => self.data.read_endpoint(endpoint, event.error, &mut self.worker, now),
                }
            }
            // Before packets leave by what has changed.
            while let Ok(order) = self.received.try_recv() {
                match order {
                    Command::Update(update) => self.worker.update(update),
                    Command::Open(id, socket, receiver) => {
                        let poller = receiver.is_some().then_some(&self.poller);
                        if let Some(receiver) = receiver {
                            self.worker.attach(id, receiver);
                        }
                        self.data.share(id, socket, poller);
                    }
                    Command::Close(id) => {
                        self.worker.detach(id);
                        drop(self.data.close(id, &self.poller));
                    }
                    Command::End => return Ok(()),
                }
            }
            self.data.read_tun(&mut self.worker, now)?;
            self.data.flush(&mut self.worker, now);
            let (received, sent) = self.data.work();
            self.waiting.turn(received, sent, now.boot);
            if let Err(error) = self.priority.turn(received + sent, false) {
                info!("other programs can delay packets on a busy machine: {error}");
            }
            let notices: Vec<_> = self.worker.notices().collect();
            if !notices.is_empty() {
                report(ThreadEvent::Notices(notices));
            }
        }
    }
}

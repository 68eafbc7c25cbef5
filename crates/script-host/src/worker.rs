//! A thread that runs scripts: with packets from queues, or with the work that they have put off.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError};
use std::time::{Duration, Instant};

use linux::clock::monotonic_ms;
use linux::event::{Events, Interest, Poller, Waker};
use linux::queue::{self, Batch, Socket, verdict};
use script::packet::Packet;
use script::vm::{
    Deferred, ErrorKind, Limits, Machine, Prepared, RuleId, Script, ScriptError, Tables, Verdict,
};

use super::decided::OwnMaps;
use super::protocol::Traced;
use super::statistics::{Statistics, Tally};
use super::thread_host::{Common, ThreadContext, ThreadHost};
use super::traces::{digits, lines_of};
use config::folder::Folder;

const WAKER: u64 = u64::MAX;
/// One packet of so many is timed: a look at the clock is not free.
const SAMPLE_EVERY: u64 = 64;
/// How long what still waits for a script that is unloaded may take.
const DRAIN: Duration = Duration::from_secs(1);
/// Deferred calls in a row, before commands have their turn.
const SHARE: usize = 64;

/// What the host tells a thread. Answers go where it says; nobody may wait for them any more.
pub(super) enum Command {
    /// Load a script.
    Load {
        id: u32,
        script: Script,
        folder: Folder,
        /// Whether its packets come in, or are on their way through, rather than leave.
        inward: bool,
        statistics: Arc<Statistics>,
        /// Where the kernel finds what was decided of streams.
        own: OwnMaps,
        answer: Answer,
    },
    /// Packets for it come from here.
    Listen { id: u32, socket: Socket },
    /// No more packets come for it: end what waits, and forget it.
    Remove { id: u32, answer: Answer },
    /// Say whether the state could be made anew with these texts, and do nothing else.
    Check { texts: Texts, answer: Answer },
    /// Make the state anew with other texts of its scripts, and keep it at hand.
    Prepare { texts: Texts, answer: Answer },
    /// Use it from now on.
    Commit,
    /// Or not.
    Abort,
}

/// Scripts, by their paths, and their texts.
pub(super) type Texts = Arc<[(String, String)]>;

/// Where the answer to a command goes.
pub(super) type Answer = Sender<Result<(), ScriptError>>;

/// Hands deferred calls to the thread that makes them.
#[derive(Clone)]
pub(super) struct DeferredSender {
    pub(super) calls: SyncSender<Deferred>,
    pub(super) waker: Waker,
}

/// A script, as a thread has it.
struct Loaded {
    id: u32,
    rule: RuleId,
    failure: Verdict,
    /// Packets come with the source address of their frame.
    inward: bool,
    statistics: Arc<Statistics>,
    socket: Option<Socket>,
}

/// The thread's own.
pub(super) struct Worker {
    machine: Machine,
    context: Rc<ThreadContext>,
    loaded: Vec<Loaded>,
    prepared: Option<Prepared>,
    deferred: Option<DeferredSender>,
    log: super::log::Log,
    poller: Poller,
    batch: Batch,
    packet: Packet,
    packets: u64,
}

impl Worker {
    /// A worker whose scripts hand deferred calls to `deferred`; the one without makes them itself.
    pub(super) fn new(
        common: Common,
        tables: Tables,
        deferred: Option<DeferredSender>,
        waker: &Waker,
    ) -> linux::Result<Self> {
        let context = Rc::new(ThreadContext::default());
        let log = common.log.clone();
        let poller = Poller::new()?;
        poller.add(waker, WAKER, Interest::Readable)?;
        Ok(Self {
            machine: Machine::with_tables(
                ThreadHost::new(common, Rc::clone(&context)),
                Limits::default(),
                tables,
            ),
            context,
            loaded: Vec::new(),
            prepared: None,
            deferred,
            log,
            poller,
            batch: Batch::default(),
            packet: Packet::default(),
            packets: 0,
        })
    }

    /// Works until nobody can give commands any more.
    pub(super) fn run(
        mut self,
        commands: &Receiver<Command>,
        work: Option<&Receiver<Deferred>>,
        waker: &Waker,
    ) {
        let mut events = Events::with_capacity(64);
        loop {
            let due = work.and(self.machine.next_due());
            let wait = due.map(|due| Duration::from_millis(due.saturating_sub(monotonic_ms())));
            if let Err(error) = self.poller.wait(&mut events, wait) {
                return self.log.add(0, &format!("a thread of scripts ends: {error}"));
            }
            for event in events.iter() {
                if event.token == WAKER {
                    waker.drain();
                } else if let Some(at) = self.position(event.token as u32) {
                    self.serve(at);
                }
            }
            for deferred in work.into_iter().flat_map(Receiver::try_iter) {
                if !self.machine.give(deferred) {
                    self.fail_all(
                        "nf.schedule: too many deferred calls are waiting already: this one is left out",
                    );
                }
            }
            if work.is_some() {
                self.run_due();
            }
            loop {
                match commands.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        }
    }

    fn position(&self, id: u32) -> Option<usize> {
        self.loaded.iter().position(|loaded| loaded.id == id)
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Load { id, script, folder, inward, statistics, own, answer } => {
                self.context.id.set(id);
                let known = self.context.folders.borrow().contains(&folder);
                if !known {
                    self.context.folders.borrow_mut().push(folder);
                }
                let failure = script.failure;
                let result = self.machine.load(script).map(|rule| {
                    self.context.own.borrow_mut().push((id, own));
                    self.loaded.push(Loaded { id, rule, failure, inward, statistics, socket: None });
                });
                if self.deferred.is_some() {
                    // What the text itself puts off is done once, not for each thread.
                    self.machine.take_deferred();
                }
                let _ = answer.send(result);
            }
            Command::Listen { id, socket } => {
                if let Some(at) = self.position(id) {
                    if let Err(error) = self.poller.add(&socket, u64::from(id), Interest::Readable) {
                        self.log.add(id, &format!("no packets come: {error}"));
                    }
                    self.loaded[at].socket = Some(socket);
                }
            }
            Command::Remove { id, answer } => {
                if let Some(at) = self.position(id) {
                    let deadline = Instant::now() + DRAIN;
                    while self.serve(at) > 0 && Instant::now() < deadline {}
                    let removed = self.loaded.remove(at);
                    self.machine.remove(removed.rule);
                    self.context.own.borrow_mut().retain(|(of, _)| *of != id);
                }
                let _ = answer.send(Ok(()));
            }
            Command::Check { texts, answer } => {
                let _ = answer.send(self.machine.check(0, &texts));
            }
            Command::Prepare { texts, answer } => {
                let result = self.machine.prepare(0, &texts);
                if self.deferred.is_some() {
                    self.machine.take_deferred();
                }
                let _ = answer.send(result.map(|prepared| self.prepared = Some(prepared)));
            }
            Command::Commit => {
                if let Some(prepared) = self.prepared.take() {
                    self.machine.commit(prepared);
                }
            }
            Command::Abort => self.prepared = None,
        }
    }

    /// Runs a batch of packets through a script; how many.
    fn serve(&mut self, at: usize) -> usize {
        let loaded = &self.loaded[at];
        let Some(socket) = &loaded.socket else { return 0 };
        let count = match socket.recv(&mut self.batch) {
            Ok(count) => count,
            Err(error) => {
                self.log.add(loaded.id, &error.to_string());
                0
            }
        };
        self.context.id.set(loaded.id);
        self.context.statistics.replace(Some(Arc::clone(&loaded.statistics)));
        let mut tally = Tally::default();
        for position in 0..count {
            let Some(queued) = self.batch.packet(position) else { continue };
            self.packet.fill_ip(queued.packet, queued.checksum);
            if let Some(source) = queued.source.filter(|_| loaded.inward) {
                self.packet.put_source(source);
            }
            self.context.interface.set(if queued.from == 0 { queued.to } else { queued.from });
            let (queue, id, is_whole) = (queued.queue, queued.id, queued.whole_length == queued.packet.len());
            self.context.is_whole.set(is_whole);
            self.packets += 1;
            let start = self.packets.is_multiple_of(SAMPLE_EVERY).then(Instant::now);
            let (mut verdict, mut error) = match loaded.statistics.wants(&self.packet, queue, id) {
                Some(trace) => follow(&mut self.machine, loaded, trace, &mut self.packet),
                None => self.machine.run(loaded.rule, &mut self.packet),
            };
            if let Some(start) = start {
                tally.samples += 1;
                tally.sampled_ns += start.elapsed().as_nanos() as u64;
            }
            let mut redirected = self.packet.redirected();
            let mut changed =
                self.packet.is_changed() && verdict != Verdict::Drop && verdict != Verdict::Stolen;
            if (changed || redirected.is_some())
                && error.is_none()
                && (!is_whole || self.packet.real().len() > queue::MAX_PACKET)
            {
                error = Some(too_long(self.packet.real().len()));
                verdict = loaded.failure;
            }
            if let Some(error) = &error {
                // What a script has half done to a packet is not what anybody wanted.
                (changed, redirected) = (false, None);
                loaded.statistics.failed(error);
            }
            if changed || redirected.is_some() {
                self.packet.complete_transport();
            }
            if let Some(interface) = redirected {
                let sent = self.context.targets.borrow_mut().send(self.packet.real(), interface);
                sent.unwrap_or_else(|error| self.log.add(loaded.id, &error.to_string()));
            }
            let octets = changed.then(|| self.packet.real());
            tally.verdicts[index(verdict)] += 1;
            if self.batch.put_verdict(queue, id, number(verdict), octets) {
                flush(&mut self.batch, socket, loaded.id, &self.log);
            }
        }
        flush(&mut self.batch, socket, loaded.id, &self.log);
        loaded.statistics.add(&tally);
        self.hand_over();
        count
    }

    /// Gives what scripts have put off to the thread that does it.
    fn hand_over(&mut self) {
        let Some(deferred) = &self.deferred else { return };
        let calls = self.machine.take_deferred();
        if calls.is_empty() {
            return;
        }
        let mut left_out = false;
        for call in calls {
            left_out |= deferred.calls.try_send(call).is_err();
        }
        deferred.waker.wake();
        if left_out {
            self.fail_all("nf.schedule: deferred calls come faster than they are done: some are left out");
        }
    }

    fn run_due(&mut self) {
        self.context.is_whole.set(true);
        // Which of several scripts of a state it was is not known.
        if let Some(first) = self.loaded.first() {
            self.context.id.set(first.id);
            self.context.statistics.replace(Some(Arc::clone(&first.statistics)));
        }
        for _ in 0..SHARE {
            match self.machine.run_due() {
                None => return,
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    if let Some(first) = self.loaded.first() {
                        first.statistics.failed(&error);
                    }
                }
            }
        }
    }

    fn fail_all(&self, message: &str) {
        let error =
            ScriptError { kind: ErrorKind::Budget, message: message.to_owned(), traceback: String::new() };
        if let Some(first) = self.loaded.first() {
            first.statistics.failed(&error);
        }
    }
}

fn flush(batch: &mut Batch, socket: &Socket, id: u32, log: &super::log::Log) {
    if let Err(error) = socket.flush(batch) {
        log.add(id, &error.to_string());
    }
}

/// Runs a packet, and tells the way that it took to who waits for it in the trace of this number.
fn follow(
    machine: &mut Machine,
    loaded: &Loaded,
    trace: u64,
    packet: &mut Packet,
) -> (Verdict, Option<ScriptError>) {
    let (octets, length) = (digits(packet.real()), packet.real().len());
    let (verdict, error, lines) = machine.trace(loaded.rule, packet);
    let mut files: Vec<(String, Vec<String>)> = Vec::new();
    let mut text = |path: &str, number: usize| {
        let known = files.iter().position(|(known, _)| known == path);
        let at = known.unwrap_or_else(|| {
            // Modules are read when they are loaded, and not kept.
            let loaded = machine.source(path).map(str::to_owned);
            let text = loaded.unwrap_or_else(|| std::fs::read_to_string(path).unwrap_or_default());
            files.push((path.to_owned(), text.lines().map(str::to_owned).collect()));
            files.len() - 1
        });
        files[at].1.get(number.wrapping_sub(1)).cloned().unwrap_or_default()
    };
    let traced = Traced {
        tier: "user".to_owned(),
        packet: octets,
        length,
        lines: lines_of(lines, |line| text(&line.path, line.number)),
        verdict: Some(verdict.name().to_owned()),
        changed: packet.is_written() && error.is_none(),
        error: error.as_ref().map(ToString::to_string),
    };
    loaded.statistics.traced(trace, traced);
    (verdict, error)
}

fn too_long(length: usize) -> ScriptError {
    let most = queue::MAX_PACKET;
    ScriptError {
        kind: ErrorKind::Runtime,
        message: format!(
            "a packet of {length} octets or more was changed, or redirected: up to {most} can be"
        ),
        traceback: String::new(),
    }
}

/// The kernel's value. What a script keeps is gone for the kernel; the next rule is one behind our chain.
const fn number(of: Verdict) -> u32 {
    match of {
        Verdict::Drop | Verdict::Stolen => verdict::DROP,
        Verdict::Accept | Verdict::Continue => verdict::ACCEPT,
        Verdict::Queue => verdict::QUEUE,
        Verdict::Repeat => verdict::REPEAT,
    }
}

fn index(of: Verdict) -> usize {
    Verdict::ALL.iter().position(|verdict| *verdict == of).unwrap_or(0)
}

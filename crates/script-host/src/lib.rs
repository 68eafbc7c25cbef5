//! The script host: the process that packet scripts run in, one in a network namespace.
//!
//! Nothing that a script does reaches the gateway: it has another process. This one listens on a socket for what to load
//! and unload ([`protocol`]), makes the rules that give packets to scripts ([`rules`]), and runs each group of scripts in
//! threads of its own ([`group`], [`worker`]).
//!
//! Invariants:
//! - A script's queues are listened on before a rule gives packets to them, and until none does any more.
//! - All rules are in one table of ours. What an earlier host has left goes at the start, in the step in which packets of
//!   scripts that are about to be loaded begin to be [held]; and all of it goes at the end.
//! - A script is loaded, or replaced, in all of its threads or in none.

mod agreement;
mod attach_journal;
pub mod attach_point;
mod captures;
mod changes;
mod decided;
mod error;
mod follow;
mod group;
mod held;
mod in_kernel;
mod interface;
mod interfaces;
mod keeping;
pub mod kernel;
mod kernel_table;
mod links;
mod log;
mod maps;
pub mod metric_protocol;
mod metrics;
mod mirrors;
mod order;
mod persistent;
pub mod protocol;
mod redirect;
mod repair;
mod rules;
mod runs;
mod slots;
mod statistics;
pub mod supervisor;
mod sweeps;
pub mod table_file;
pub mod table_protocol;
mod tables;
mod thread_host;
mod tier;
mod traces;
mod worker;

use std::io::{self, BufRead as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use ::script::compile::logging;
use ::script::vlan::behind_link;
use caps::Capability;
use linux::bpf::{Map, Ring};
use linux::event::{Events, Interest, Poller, Request as Signal, Signals, Waker};
use linux::netlink::{Change, Monitor};
use linux::process;
use linux::queue::raw::Sender;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::{info, warn};

use self::attach_journal::AttachJournal;
use self::attach_point::MARK;
use self::captures::Captures;
pub use self::error::Error;
use self::error::RequestError;
use self::group::{Group, Key};
use self::held::Holds;
use self::kernel::Maps;
use self::links::Links;
use self::log::Log;
use self::persistent::Persistent;
pub use self::protocol::{Request, ask};
use self::protocol::{Scripts, Source, Status};
use self::repair::Repair;
use self::runs::Runs;
use self::slots::Slots;
use self::sweeps::Sweeps;
use self::thread_host::Common;
use config::attachment::Attachment;
use config::attachment::Tier;
use config::run::Feature;
use control::{Call, Reply, Server};

/// After this, no packet is on its way to a queue whose rule is gone.
const SETTLE: Duration = Duration::from_millis(20);
/// How long a host may take to end.
const ENDING: Duration = Duration::from_secs(5);
/// Threads of a group, at most: each has a Lua state.
const MAX_THREADS: usize = 8;

/// Octets of the ring buffer for what scripts in the kernel log.
const RING: u32 = 1 << 20;
/// Records of it that are taken before what else there is to do.
const MOST_RECORDS: usize = 10_000;

/// When a host ends by itself.
#[derive(Debug, Clone, Copy)]
pub struct Life {
    /// When its last script is unloaded.
    pub background: bool,
    /// When standard input ends, whose first line is a list of the scripts that are about to be loaded, as JSON.
    pub with_parent: bool,
}

/// A script that is loaded.
struct Script {
    id: u32,
    attachment: Attachment,
    key: Key,
    /// As it was loaded: its file may have become another since.
    text: String,
    runs: Runs,
}

impl Script {
    /// What a program in the kernel means with the number of a capture, if it is this one's; and whether its packets have a
    /// link header.
    fn capture(&self, program: u32, name: usize) -> Option<(u32, &str, bool)> {
        let in_kernel = self.runs.kernel()?;
        Some((self.id, in_kernel.capture(program, name)?, in_kernel.has_link()))
    }

    /// Why it sees no packets, if its program is not attached.
    fn not_attached(&self) -> Option<&str> {
        self.runs.kernel()?.not_attached()
    }
}

/// The maps that scripts in the kernel share, by their states.
type SharedMaps = Vec<(Key, Maps)>;

struct Host {
    common: Common,
    threads: usize,
    slots: Slots,
    groups: Vec<Group>,
    /// What attaches those in the kernel.
    attach_journal: AttachJournal,
    /// Their maps.
    maps: SharedMaps,
    /// What those in the kernel log: there from the first of them on.
    ring: Option<Ring>,
    /// Where they put packets together that they capture.
    scratch: Option<Map>,
    /// Number of the last program that was loaded.
    last_program: u32,
    scripts: Vec<Script>,
    last_id: u32,
    /// Scripts that are to run, and do not yet.
    holds: Holds,
    /// Tables that outlive the host.
    persistent: Persistent,
    traces: traces::Numbers,
    sweeps: Sweeps,
    /// When it is tried again to attach what an interface has not taken.
    attach_due: Option<Instant>,
}

/// What other threads tell the host's own.
enum Message {
    /// A client asks for something.
    Request(Call<Request>),
    /// Standard input has ended.
    InputEnded,
}

/// Runs the host until it is told to end, without some features of the kernel (for tests).
pub fn serve(socket: &Path, life: Life, without: Vec<Feature>) -> Result<(), Error> {
    if !process::may_administer_network() {
        return Err(Error::Privilege);
    }
    if life.background {
        process::new_session()?;
    }
    let folders = control::folders_of(socket);
    for missing in linux::confine::confine(folders.iter().map(PathBuf::as_path))? {
        info!("this kernel has no {missing}: the script host is confined without it");
    }
    // The last two are for scripts in the kernel.
    process::keep_capabilities(&[
        Capability::CAP_NET_ADMIN,
        Capability::CAP_NET_RAW,
        Capability::CAP_BPF,
        Capability::CAP_PERFMON,
    ])?;
    let signals = Signals::new()?;
    // A host that has unloaded its last script may still be about to end.
    let _lock = control::lock_beside(&control::socket_of_scripts()?, ENDING)?.ok_or(Error::Another)?;
    process::raise_open_files()?;
    let sender = Arc::new(Sender::open(MARK)?);
    let holds = Holds::new(if life.with_parent { announced()? } else { Vec::new() });
    rules::begin(holds.chains())?;
    let result =
        AttachJournal::open(without).and_then(|journal| run(socket, life, &signals, sender, journal, holds));
    if result.is_err() && life.with_parent {
        // As if it had been killed: no packet passes that must not, until the next one is there.
        return result;
    }
    // The first error is the one to tell.
    let ended = rules::end().map_err(Error::from);
    result.and(ended)
}

/// The scripts that a parent is about to have loaded. None, if it has ended meanwhile.
fn announced() -> Result<Vec<Attachment>, Error> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line)? {
        0 => Ok(Vec::new()),
        _ => serde_json::from_str(&line).map_err(|error| Error::Socket(error.into())),
    }
}

fn run(
    socket: &Path,
    life: Life,
    signals: &Signals,
    sender: Arc<Sender>,
    attach_journal: AttachJournal,
    holds: Holds,
) -> Result<(), Error> {
    let (messenger, messages) = mpsc::channel();
    let waker = Waker::new()?;
    let (requests, woken) = (messenger.clone(), waker.clone());
    let server = Server::start(socket, move |call| {
        let _ = requests.send(Message::Request(call));
        woken.wake();
    })?;
    if life.with_parent {
        let woken = waker.clone();
        std::thread::Builder::new().name("parent".into()).spawn(move || {
            let mut stdin = io::stdin().lock();
            while stdin.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
            let _ = messenger.send(Message::InputEnded);
            woken.wake();
        })?;
    }
    info!("packet scripts: listening on {}", server.path().display());
    let log = Log::default();
    let captures = Captures::beside(server.path(), log.clone());
    let common = Common { log, captures, sender, links: Links::default() };
    let threads = process::processors().len().clamp(1, MAX_THREADS);
    let mut host = Host {
        common,
        threads,
        slots: Slots::new(threads),
        groups: Vec::new(),
        attach_journal,
        maps: Vec::new(),
        ring: None,
        scratch: None,
        last_program: 0,
        scripts: Vec::new(),
        last_id: 0,
        holds,
        persistent: Persistent::beside(server.path()),
        traces: traces::Numbers::default(),
        sweeps: Sweeps::default(),
        attach_due: None,
    };
    let ended = host.obey(life, signals, &waker, &messages);
    host.save();
    ended
}

impl Host {
    /// Does what it is told until it is to end.
    fn obey(
        &mut self,
        life: Life,
        signals: &Signals,
        waker: &Waker,
        messages: &Receiver<Message>,
    ) -> Result<(), Error> {
        let poller = Poller::new()?;
        poller.add(waker, 0, Interest::Readable)?;
        poller.add(signals, 1, Interest::Readable)?;
        let monitor = Monitor::open()?;
        poller.add(&monitor, 3, Interest::Readable)?;
        let mut repair = Repair::new()?;
        poller.add(repair.monitor(), 4, Interest::Readable)?;
        let mut events = Events::with_capacity(5);
        let mut listens = false;
        loop {
            if let Some(ring) = self.ring.as_ref().filter(|_| !listens) {
                poller.add(ring, 2, Interest::Readable)?;
                listens = true;
            }
            let due = self.persistent.due.map(|due| due.saturating_duration_since(Instant::now()));
            let attach = self.attach_due.map(|due| due.saturating_duration_since(Instant::now()));
            let swept = self.sweeps.step(self.maps.iter().flat_map(|(_, maps)| maps.all()));
            let waits = [due, attach, self.look_at_traces(), repair.wait(), swept];
            poller.wait(&mut events, waits.into_iter().flatten().min())?;
            let due = self.persistent.due.map(|due| due.saturating_duration_since(Instant::now()));
            if due.is_some_and(|due| due.is_zero()) {
                self.save();
            }
            self.read_log();
            self.end_traces();
            if events.iter().any(|event| event.token == 3) {
                self.links_changed(&monitor.read()?);
            }
            if self.attach_due.is_some_and(|due| due <= Instant::now()) {
                self.follow_interfaces(&[]);
            }
            if repair.is_due()?
                && let Err(error) = self.restore_rules()
            {
                warn!(event = "rules_lost", "rules have disappeared and cannot be restored: {error}");
                repair.again();
            }
            if matches!(signals.read()?, Some(Signal::Stop)) {
                return Ok(());
            }
            waker.drain();
            for message in messages.try_iter() {
                match message {
                    Message::InputEnded => return Ok(()),
                    Message::Request(call) => {
                        let changes = matches!(call.request, Request::Load { .. } | Request::Unload { .. });
                        let answer = self.answer(&call.request);
                        if changes || matches!(call.request, Request::Reload { .. } | Request::Have { .. }) {
                            self.keep();
                        }
                        call.answer(answer.map_or_else(|error| Reply::Error(error.to_string()), Reply::Ok));
                        if changes && life.background && self.scripts.is_empty() {
                            // The thread that serves clients writes the answer before it ends.
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// If interfaces came, went or changed, copies of packets go to those that have their names now, and programs are at them.
    fn links_changed(&mut self, changes: &[Change]) {
        let is_of_link =
            |change: &Change| matches!(change, Change::Link(_) | Change::LinkGone(_) | Change::Overrun);
        if !changes.iter().any(is_of_link) {
            return;
        }
        let gone = changes.iter().filter_map(|change| match change {
            Change::LinkGone(index) => Some(*index),
            _ => None,
        });
        self.follow_interfaces(&gone.collect::<Vec<_>>());
        match self.common.links.changed() {
            Ok(false) => {}
            Ok(true) => self.point_mirrors(),
            Err(error) => warn!("packets are copied to interfaces as they were: {error}"),
        }
    }

    /// Tells programs in the kernel which interfaces they copy packets to.
    fn point_mirrors(&mut self) {
        for script in &mut self.scripts {
            let Some(in_kernel) = script.runs.kernel_mut() else { continue };
            let news = in_kernel.point_mirrors(&self.common.links);
            for what in news.unwrap_or_else(|error| vec![error.to_string()]) {
                warn!("script {}: nf.mirror: {what}", script.id);
                self.common.log.add(script.id, &format!("nf.mirror: {what}"));
            }
        }
    }

    fn answer(&mut self, request: &Request) -> Result<Value, RequestError> {
        match request {
            Request::Load { script } => match self.load(script) {
                Ok(id) => {
                    self.holds.let_go(script);
                    Ok(json!({ "id": id }))
                }
                Err(error) => {
                    self.holds.keep(script, &error.to_string());
                    Err(error)
                }
            },
            Request::Unload { target } => {
                let ids = self.named(target)?;
                ids.iter().try_for_each(|id| self.unload(*id))?;
                Ok(json!(ids))
            }
            Request::Reload { target } => {
                let ids = self.named(target)?;
                self.reload(&ids)?;
                Ok(json!(ids))
            }
            Request::Have { scripts, instead_of } => {
                self.have(scripts, instead_of)?;
                self.holds.let_all_go();
                Ok(Value::Null)
            }
            Request::List => document(&Scripts {
                scripts: self.scripts.iter().map(|script| self.status(script)).collect(),
                metrics: self.exported()?,
                held: self.holds.list(),
            }),
            Request::Source { id } => {
                let file = &self.script(*id)?.attachment.file;
                document(&Source { file: file.clone(), text: read(file)? })
            }
            Request::Logs { after } => document(&self.common.log.after(*after)),
            Request::Events { after } => document(&events::since(*after)),
            Request::Trace { id, rule, count, time_ms } => {
                document(&self.trace(*id, rule, *count, Duration::from_millis(*time_ms))?)
            }
            Request::Tables => document(&self.table_list()?),
            Request::Table { table, operation } => self.table(table, operation),
            Request::Traced { id, trace } => document(&self.take_traced(*id, *trace)?),
        }
    }

    fn script(&self, id: u32) -> Result<&Script, RequestError> {
        let found = self.scripts.iter().find(|script| script.id == id);
        found.ok_or(RequestError::NoScript(id))
    }

    /// The numbers of the scripts that are meant.
    fn named(&self, target: &str) -> Result<Vec<u32>, RequestError> {
        if let Ok(id) = target.parse() {
            return Ok(vec![self.script(id)?.id]);
        }
        let of_file = self.scripts.iter().filter(|script| script.attachment.file == Path::new(target));
        let ids: Vec<u32> = of_file.map(|script| script.id).collect();
        if ids.is_empty() {
            return Err(RequestError::NotLoaded(target.to_owned()));
        }
        Ok(ids)
    }

    /// Takes what scripts in the kernel have logged.
    fn read_log(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        ring.read(MOST_RECORDS, |bytes| {
            if let Some((program, name, octets)) = logging::captured(bytes) {
                let found = self.scripts.iter().find_map(|script| script.capture(program, name));
                if let Some((id, name, has_link)) = found {
                    let packet = if has_link { behind_link(octets) } else { octets };
                    self.common.captures.add(id, name, packet);
                }
                return;
            }
            let Some((program, line, numbers)) = logging::record(bytes) else { return };
            let said = self.scripts.iter_mut().find_map(|script| {
                Some((script.id, script.runs.kernel_mut()?.said(program, line, &numbers)?))
            });
            if let Some((id, Some(logged))) = said {
                self.common.log.add_logged(id, &logged);
            }
        });
    }

    /// Says what has become of a script's tables.
    fn tell(&self, id: u32, told: &[String]) {
        for what in told {
            warn!("script {id}: {what}");
            self.common.log.add(id, what);
        }
    }

    fn group(&self, key: &Key) -> Option<&Group> {
        self.groups.iter().find(|group| group.key == *key)
    }

    fn end_unused(&mut self) {
        let scripts = &self.scripts;
        self.groups.retain(|group| scripts.iter().any(|script| script.key == group.key));
        self.maps.retain(|(key, _)| scripts.iter().any(|script| script.key == *key));
    }

    fn status(&self, script: &Script) -> Status {
        let file = &script.attachment.file;
        let (tier, threads, counts) = match &script.runs {
            Runs::User(threads) => (Tier::User, self.threads, threads.statistics.read()),
            Runs::Kernel(in_kernel) => (Tier::Kernel, 0, in_kernel.read(file)),
            Runs::Both(in_kernel, threads) => {
                (Tier::Both, self.threads, in_kernel.read(file).with(threads.statistics.read()))
            }
        };
        Status {
            id: script.id,
            attachment: Attachment { tier, ..script.attachment.clone() },
            threads,
            packets: counts.packets,
            verdicts: counts.verdicts,
            errors: counts.errors,
            error_lines: counts.error_lines,
            last_error: counts.last_error,
            ns_per_packet: counts.ns_per_packet,
            sent: counts.sent,
            handed_over: counts.handed_over,
            lost: counts.lost,
            traced: script.runs.kernel().is_some_and(in_kernel::InKernel::is_traced),
            xdp_mode: script.runs.kernel().and_then(in_kernel::InKernel::xdp_mode),
            not_attached: script.not_attached().map(str::to_owned),
            kernel: script.runs.kernel().and_then(|in_kernel| in_kernel.run_time().ok()),
        }
    }
}

fn read(file: &Path) -> Result<String, RequestError> {
    std::fs::read_to_string(file).map_err(|source| RequestError::File { file: file.to_owned(), source })
}

fn document(value: &impl Serialize) -> Result<Value, RequestError> {
    Ok(serde_json::to_value(value)?)
}

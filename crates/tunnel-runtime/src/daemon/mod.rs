//! The daemon: its main thread, which runs the protocol and, where it is alone, carries packets.

mod last_word;
mod reload;
mod set_up;

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use caps::Capability;
use ipnet::Ipv6Net;
use linux::event::{Events, Poller, Request as Signal, Signals, Waker};
use linux::process;
use linux::vm_generation::VmGenerationMonitor;
use mt6d::config::NOWHERE;
use mt6d::{Action, Node, Time};
use tracing::{debug, info};

use crate::busy_poll::BusyPoll;
use crate::classic::{self, Classic, ClassicStatus};
use crate::clock::Clock;
use crate::data::DataPath;
use crate::error::Error;
use crate::evidence::Evidence;
use crate::kernel::{Command, Endpoint, Kernel, KernelEvent};
use crate::key_log::{KeyLog, KeyLogFile};
use crate::load::Loaded;
use crate::names::{Named, Names};
use crate::peer_file::PeerFile;
use crate::standby::{Step, Turns};
use crate::threads::{PacketThreads, ThreadEvent};
use crate::transparent::TransparentGateway;
use crate::wrap::{Found, Wrapped};
use crate::{happened, report, surroundings, token};
use config::TunnelConfig;
use config::attachment::Tier;
use config::run::RunOptions;
use control::standby::Be;
use control::tunnel_status::Status;
use control::{Call, Reply, Request, Server};
use linux::priority::Priority;
use router_runtime::{RouterThread, TunnelBeside, Unconfirmed};
use script_host::supervisor::Scripts;

use last_word::Followers;

/// Of endpoints to open and close, messages of other threads, and peers in a status, so many have their turn before packets
/// have theirs again: a tenth of a millisecond each.
const SHARE: usize = 64;
/// How often what is to be remembered is looked at.
const REMEMBER_EVERY: Duration = Duration::from_secs(1);

/// Runs until `signals` tell it to end, with a gateway beside if there is to be one: both, or none.
pub fn run(
    options: &RunOptions,
    signals: Signals,
    config: TunnelConfig,
    gateway: Option<config::RouterConfig>,
) -> Result<(), Error> {
    if !process::may_administer_network() {
        return Err(Error::Privilege);
    }
    // Before this process is confined to its folders.
    let key_log = options.key_log.as_deref().map(KeyLogFile::open).transpose()?;
    let socket = options.socket.clone().unwrap_or_else(|| control::socket_of(&config.tunnel.name));
    router_runtime::confine(options, &socket)?;
    surroundings::refuse(&config)?;
    let mailbox = Mailbox::new()?;
    let start = |gateway| {
        let moved = mailbox.sender(Message::Followed);
        let beside = TunnelBeside { socket: socket.clone(), moved: Box::new(moved) };
        let ended = mailbox.sender(|()| Message::GatewayEnded);
        RouterThread::start(options, gateway, Some(beside), drop, move || ended(()))
    };
    let router = gateway.map(start).transpose()?;
    let mut daemon = Daemon::set_up(options, config, &socket)?;
    daemon.router = router;
    let made_ready = daemon.make_ready(options, key_log);
    if made_ready.is_err()
        && let Some(kernel) = daemon.kernel.take()
    {
        kernel.close(daemon.is_meant);
    }
    made_ready?;
    daemon.serve(options, &socket, signals, mailbox)
}

struct Daemon {
    file: PathBuf,
    config: TunnelConfig,
    node: Node,
    clock: Clock,
    peer_file: PeerFile,
    /// Where secrets go that open captures, if they do.
    key_log: Option<KeyLog>,
    data: DataPath,
    /// Of each packet thread, where there are some; until they are started.
    parts: Vec<DataPath>,
    packet_threads: Option<PacketThreads>,
    /// How peers of the classic profile are, and what was dropped of theirs.
    classic: Vec<ClassicStatus>,
    classic_drops: ::classic::Drops,
    /// What carries their packets in the kernel, until it is attached.
    classic_kernel: Option<classic::Loaded>,
    kernel: Option<Kernel>,
    /// Of a transparent gateway.
    gateway: Option<Arc<TransparentGateway>>,
    followers: Followers,
    /// The router between networks that this machine is, too.
    router: Option<RouterThread>,
    /// The prefix that it has for a tunnel that follows an uplink.
    followed: Option<Ipv6Net>,
    /// What looks after packet scripts.
    scripts: Option<Scripts>,
    started: Time,
    link_mtu: u16,
    hardware_aes: bool,
    /// Whether addresses can be replaced; not tried, where no peer wanted that at the start.
    rewrites: Option<bool>,
    /// Whether packets can be masked; none where that was not wanted at the start.
    masks: Option<bool>,
    /// The devices whose packets are.
    wrapped: Wrapped,
    /// How many rendezvous endpoints the socket takes that they share; none without it.
    shared: u32,
    status_request: Option<StatusRequest>,
    /// Whether another configuration is being taken, and who has asked for that since; see [`Daemon::reload`].
    reloading: bool,
    reload_again: Vec<Option<Call>>,
    /// A client has asked for the end.
    ending: bool,
    /// Whether the rules that keep the prefix dark are in the kernel, and how often they had to be restored.
    dark: bool,
    rules_restored: u64,
    /// What is known of peers that are not heard, and their names.
    evidence: Evidence,
    names: Names,
    /// What was before a change that nobody has confirmed yet.
    unconfirmed: Unconfirmed<Before>,
    /// Whether the tunnel is meant: a start with a time to confirm it is not, until somebody has.
    is_meant: bool,
    /// Whose turn it is, where the site has two gateways.
    turns: Turns,
}

/// The configuration before a reload: the tunnel's and, if there is one, the gateway's.
struct Before {
    tunnel: Box<TunnelConfig>,
    router: Option<Box<config::RouterConfig>>,
}

/// Why another configuration is to be in force.
enum Cause {
    /// Its file is to be read again, and who has asked for that; nobody, if it was a signal.
    Asked(Option<Call>),
    /// Nobody has confirmed the one that is in force.
    NotConfirmed,
}

/// A request for the status, which is gathered a few peers in a turn.
struct StatusRequest {
    call: Call,
    status: Status,
    /// Peers of the classic profile, which come last.
    classic: Vec<control::tunnel_status::Peer>,
    /// The place of the next peer.
    place: usize,
}

impl StatusRequest {
    /// Gathers some more. `None` when all is there, and answered.
    fn gather(mut self, node: &Node, evidence: &Evidence, wrapped: &Wrapped, now: mt6d::Now) -> Option<Self> {
        let end = self.place + SHARE;
        let peers = node.status_of(self.place..end, now);
        self.status.peers.extend(peers.map(|peer| report::peer(peer, evidence, wrapped)));
        self.place = end;
        if end < node.places() {
            return Some(self);
        }
        self.status.peers.append(&mut self.classic);
        self.call.answer_status(self.status);
        None
    }
}

/// What other threads send to the main thread.
enum Message {
    Kernel(KernelEvent),
    Call(Call),
    Packets(ThreadEvent),
    Classic(classic::ThreadEvent),
    /// Another configuration is to be in force, and why.
    Loaded(Result<Loaded, Error>, Cause),
    /// The uplink that the tunnel follows has this prefix for it now.
    Followed(Option<Ipv6Net>),
    /// The gateway beside has ended, and nobody has told it to.
    GatewayEnded,
    /// What a peer's name says.
    Named(Named),
    /// How the devices of `[[wrap]]` are.
    Wrapped(Vec<Found>),
}

/// Where messages for the main thread wait, and how it is woken for them.
struct Mailbox {
    send: mpsc::Sender<Message>,
    messages: mpsc::Receiver<Message>,
    waker: Waker,
}

impl Mailbox {
    fn new() -> linux::Result<Self> {
        let (send, messages) = mpsc::channel();
        Ok(Mailbox { send, messages, waker: Waker::new()? })
    }

    /// Sends what another thread has to say, as such a message.
    fn sender<T>(&self, message: fn(T) -> Message) -> impl Fn(T) + use<T> {
        let (send, waker) = (self.send.clone(), self.waker.clone());
        move |what| {
            let _ = send.send(message(what));
            waker.wake();
        }
    }
}

/// The threads that serve this one, and how they are reached.
struct Threads {
    messages: mpsc::Sender<Message>,
    waker: Waker,
    commands: mpsc::Sender<Command>,
    kernel_waker: Waker,
    kernel: std::thread::JoinHandle<Kernel>,
}

impl Threads {
    fn send(&self, command: Command) {
        // It ends only at its command.
        let _ = self.commands.send(command);
        self.kernel_waker.wake();
    }
}

impl Daemon {
    /// The last of what may fail before the threads are there; and what is not needed any more is given up.
    fn make_ready(&mut self, options: &RunOptions, key_log: Option<KeyLogFile>) -> Result<(), Error> {
        let now = self.clock.now();
        self.key_log = key_log.map(|file| file.start(&mut self.node, now)).transpose()?;
        let mut keep = vec![Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];
        // Where limits are not ours to raise, as in some containers.
        if self.config.tunnel.realtime && process::allow_realtime().is_err() {
            keep.push(Capability::CAP_SYS_NICE);
        }
        // The script host is a child, and loads what it has compiled.
        if self.config.scripts.iter().any(|script| script.attachment.tier != Tier::User) {
            keep.extend([Capability::CAP_BPF, Capability::CAP_PERFMON]);
        }
        process::keep_capabilities(&keep)?;
        router_runtime::start_hook(options)?;
        Ok(())
    }

    fn serve(
        &mut self,
        options: &RunOptions,
        socket: &Path,
        signals: Signals,
        mailbox: Mailbox,
    ) -> Result<(), Error> {
        let kernel = self.kernel.take().expect("set up");
        let (commands, kernel_waker, thread) = kernel.start(mailbox.sender(Message::Kernel))?;
        let Mailbox { send, messages, waker } = mailbox;
        let threads =
            Threads { messages: send.clone(), waker: waker.clone(), commands, kernel_waker, kernel: thread };
        let started = self
            .start_packet_threads(&send, &waker)
            .and_then(|()| {
                self.scripts = Some(Scripts::start(&self.config.scripts)?);
                self.start_classic(options, &send, &waker)
            })
            .and_then(|classic| {
                let for_calls = waker.clone();
                let server = Server::start(socket, move |call| {
                    let _ = send.send(Message::Call(call));
                    for_calls.wake();
                })?;
                Ok((classic, server))
            });
        let result = started.and_then(|(classic, server)| {
            if let Err(error) = linux::memory::give_back_start() {
                debug!("memory of the start stays: {error}");
            }
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
            info!(
                event = "tunnel_up",
                "{} is up, peers: {}, control socket {}",
                self.config.tunnel.name,
                self.config.peers.len() + self.config.classic.len(),
                socket.display()
            );
            let result = self.run(options, &threads, &messages, &waker, &signals);
            if let Some(classic) = classic {
                classic.end();
            }
            result.map(|()| server)
        });
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        let is_followed = self.followers.are_there();
        self.turns.end();
        self.scripts = None;
        self.node.end(self.clock.now(), &mut self.data.outbox);
        std::iter::from_fn(|| self.node.next_event()).for_each(|event| happened::tell(&event));
        self.data.flush(&mut self.node, self.clock.now());
        self.peer_file.end(&mut self.node, self.clock.now());
        if let Some(threads) = self.packet_threads.take() {
            threads.end();
        }
        threads.send(Command::End);
        if let Ok(kernel) = threads.kernel.join() {
            kernel.close(self.is_meant);
        }
        events::tell_held();
        info!(event = "tunnel_down", "{} is down", self.config.tunnel.name);
        if result.is_ok() && is_followed {
            last_word::answer(&messages, |message| match message {
                Message::Call(call) => Some(call),
                _ => None,
            });
        }
        result.map(drop)
    }

    /// Starts the threads that carry packets, where these are not carried by this one.
    fn start_packet_threads(&mut self, messages: &mpsc::Sender<Message>, waker: &Waker) -> Result<(), Error> {
        let parts = std::mem::take(&mut self.parts);
        if parts.is_empty() {
            return Ok(());
        }
        info!("packet threads: {}", parts.len());
        let workers = self.node.packet_workers(parts.len()).into_iter().zip(parts).collect();
        let (messages, waker) = (messages.clone(), waker.clone());
        let report = move |event| {
            let _ = messages.send(Message::Packets(event));
            waker.wake();
        };
        self.packet_threads = Some(PacketThreads::start(workers, &self.config.tunnel, &self.clock, report)?);
        Ok(())
    }

    /// Starts the thread for peers of the classic profile, if there are some.
    fn start_classic(
        &mut self,
        options: &RunOptions,
        messages: &mpsc::Sender<Message>,
        waker: &Waker,
    ) -> Result<Option<Classic>, Error> {
        if self.config.classic.is_empty() {
            return Ok(None);
        }
        let (messages, waker) = (messages.clone(), waker.clone());
        let report = move |event| {
            let _ = messages.send(Message::Classic(event));
            waker.wake();
        };
        let (loaded, gateway) = (self.classic_kernel.take(), self.gateway.clone());
        Classic::start(&self.config, loaded, &self.clock, self.link_mtu, &options.state_dir, gateway, report)
            .map(Some)
    }

    fn run(
        &mut self,
        options: &RunOptions,
        threads: &Threads,
        messages: &mpsc::Receiver<Message>,
        waker: &Waker,
        signals: &Signals,
    ) -> Result<(), Error> {
        let poller = Poller::new()?;
        let queues = if self.packet_threads.is_some() { &[] } else { self.data.tun() };
        for (queue, number) in queues.iter().zip(token::TUN..=u64::MAX) {
            poller.add(queue, number, linux::event::Interest::Readable)?;
        }
        poller.add(waker, token::WAKER, linux::event::Interest::Readable)?;
        poller.add(signals, token::SIGNALS, linux::event::Interest::Readable)?;
        if let Some(shared) = self.data.shared() {
            poller.add(shared, token::SHARED, linux::event::Interest::Readable)?;
        }
        let vm_generation = VmGenerationMonitor::open()
            .inspect_err(|error| info!("sessions go on if this machine is restored or cloned: {error}"))
            .ok();
        if let Some(monitor) = &vm_generation {
            poller.add(monitor, token::VM_GENERATION, linux::event::Interest::Readable)?;
        }
        // A shape says to the microsecond when something is due.
        if let Err(error) = linux::event::precise_timers() {
            debug!("{error}");
        }
        let mut events = Events::with_capacity(256);
        let mut waiting = BusyPoll::new(self.config.tunnel.spin);
        let mut priority = Priority::new(self.config.tunnel.realtime);
        let mut remember = self.clock.now().boot + REMEMBER_EVERY;
        self.lead_wrapped(threads);
        // Whether something was left to do when its share of a turn was over.
        let mut busy = false;
        loop {
            if let Some(threads) = &mut self.packet_threads {
                // Before what they still use is closed.
                std::iter::from_fn(|| self.node.next_update()).for_each(|update| threads.update(&update));
            }
            for action in std::iter::from_fn(|| self.node.next_action()).take(SHARE) {
                match action {
                    Action::Open { id, local, remote } => {
                        self.data.opening(id);
                        threads.send(Command::Open { id, local, remote });
                    }
                    Action::Close { id } => {
                        if let Some(packet_threads) = &mut self.packet_threads {
                            packet_threads.close(id);
                        }
                        if let Some(endpoint) = self.data.close(id, &poller) {
                            threads.send(Command::Close(endpoint));
                        }
                    }
                    rewrite => threads.send(Command::Rewrite(rewrite)),
                }
            }
            std::iter::from_fn(|| self.node.next_event())
                .take(SHARE)
                .for_each(|event| happened::tell(&event));
            if let Some(key_log) = &self.key_log {
                key_log.take(&mut self.node);
            }
            busy |= self.node.has_actions();
            let now = self.clock.now();
            let wait = if busy {
                Duration::ZERO
            } else {
                let looks = self.evidence.deadline().min(self.names.deadline(&self.config));
                self.node.deadline().min(remember).min(looks).since(now.boot)
            };
            let wait = self.unconfirmed.left().map_or(wait, |left| left.min(wait));
            if let Some(packet_threads) = &mut self.packet_threads {
                packet_threads.wake();
            }
            waiting.wait(&poller, &mut events, Some(wait))?;
            let now = self.clock.now();
            if now.boot >= self.node.deadline() {
                self.data.timeout(&mut self.node, now);
            }
            for event in events.iter() {
                match event.token {
                    queue @ token::TUN.. => self.data.readable((queue - token::TUN) as usize),
                    token::WAKER => waker.drain(),
                    token::SHARED => self.data.read_shared(&mut self.node, now),
                    token::SIGNALS => match signals.read()? {
                        Some(Signal::Reload) => self.reload(None, threads),
                        Some(_) => return Ok(()),
                        None => {}
                    },
                    token::VM_GENERATION => {
                        if let Some(monitor) = &vm_generation
                            && monitor.changed()?
                        {
                            info!(
                                event = "sessions_forgotten",
                                "this machine was restored or cloned: all sessions begin anew"
                            );
                            self.node.forget_sessions(now);
                        }
                    }
                    endpoint => self.data.read_endpoint(endpoint, event.error, &mut self.node, now),
                }
            }
            self.data.read_tun(&mut self.node, now)?;
            let mut handled = 0;
            for message in messages.try_iter().take(SHARE) {
                handled += 1;
                match message {
                    Message::Kernel(KernelEvent::Ended) => return Err(Error::KernelThread),
                    Message::Kernel(outcome) => self.kernel_did(outcome, &poller, threads),
                    Message::Packets(ThreadEvent::Ended) => return Err(Error::PacketThread),
                    Message::Packets(ThreadEvent::Notices(notices)) => {
                        self.data.notices(&mut self.node, notices, now);
                    }
                    Message::Classic(classic::ThreadEvent::Ended) => return Err(Error::PacketThread),
                    Message::Classic(classic::ThreadEvent::Status(peers, drops)) => {
                        (self.classic, self.classic_drops) = (peers, drops);
                    }
                    Message::Call(call) => self.answer(call, options, threads),
                    Message::Loaded(config, cause) => self.loaded(config, cause, threads),
                    Message::Followed(prefix) => self.follow(prefix, threads),
                    Message::GatewayEnded => return Err(router_runtime::Error::Ended.into()),
                    Message::Wrapped(found) => self.wrapped_found(found, threads),
                    Message::Named(named) => self.names.found(named, &self.config, &mut self.node, now),
                }
            }
            if self.ending {
                return Ok(());
            }
            self.status_request = self
                .status_request
                .take()
                .and_then(|request| request.gather(&self.node, &self.evidence, &self.wrapped, now));
            busy = handled == SHARE || self.status_request.is_some();
            self.data.flush(&mut self.node, now);
            let (received, sent) = self.data.work();
            waiting.turn(received, sent, now.boot);
            if let Err(error) = priority.turn(received + sent, self.node.keeps_slots(now.boot)) {
                info!("other programs can delay packets on a busy machine: {error}");
            }
            if self.data.mtu_changed() {
                for (prefixes, mtu) in self.node.new_mtus() {
                    threads.send(Command::Mtu { prefixes: prefixes.to_vec(), mtu });
                }
            }
            if let Some(before) = self.unconfirmed.expired() {
                self.take_back(before.ok_or(Error::NotConfirmed)?, threads);
            }
            self.evidence.look(&self.node, now);
            self.names.look(&self.config, &self.node, now, || {
                let (messages, waker) = (threads.messages.clone(), threads.waker.clone());
                Box::new(move |named| {
                    let _ = messages.send(Message::Named(named));
                    waker.wake();
                })
            });
            if now.boot >= remember {
                remember = now.boot + REMEMBER_EVERY;
                self.peer_file.save(&mut self.node, now);
            }
        }
    }

    fn kernel_did(&mut self, outcome: KernelEvent, poller: &Poller, threads: &Threads) {
        let now = self.clock.now();
        match outcome {
            KernelEvent::Opened { id, endpoint: Ok(Endpoint::Dedicated(socket)) }
                if self.packet_threads.is_some()
                    && self.data.is_opening(id)
                    && self.node.receiver(id).is_some() =>
            {
                let (Some(threads), Some((receiver, place))) =
                    (&mut self.packet_threads, self.node.receiver(id))
                else {
                    return;
                };
                threads.open(id, &socket, &receiver, place);
                self.data.share(id, socket, None);
                self.node.opened(id, now);
            }
            KernelEvent::Opened { id, endpoint: Ok(endpoint) } => {
                if let Some(unwanted) = self.data.opened(id, endpoint, poller) {
                    threads.send(Command::Close(unwanted));
                } else {
                    self.node.opened(id, now);
                }
            }
            KernelEvent::Opened { id, endpoint: Err(error) } => {
                tracing::debug!("endpoint: {error}");
                self.data.open_failed(id);
                self.node.open_failed(id, now);
            }
            KernelEvent::LinkMtu(mtu) if mtu != self.link_mtu => {
                self.link_mtu = mtu;
                info!(
                    "{} now has MTU {mtu}, which applies from the next handshake",
                    self.config.node.external
                );
                self.node.set_link_mtu(mtu);
            }
            KernelEvent::Rewritten(pairs) => {
                for (inner, traffic) in pairs {
                    self.node.count_rewritten(inner, &traffic, now);
                }
            }
            KernelEvent::MadeAnew(index) => self.data.keep_to(index),
            KernelEvent::RulesRestored => self.rules_restored += 1,
            KernelEvent::Dark(dark) => self.dark = dark,
            KernelEvent::PrefixChanged(prefix) => self.moved(prefix, threads),
            KernelEvent::LinkMtu(_) | KernelEvent::Ended => {}
        }
    }

    /// An agent says whether this one of two gateways is met.
    fn turn(&mut self, be: Option<Be>, threads: &Threads) -> Reply {
        let Some(standby) = self.config.standby.clone() else {
            return Reply::Error("there is no [standby] in the configuration".to_owned());
        };
        if let Some(be) = be {
            let until_ms = be.until_ms;
            match self.turns.told(be, &standby) {
                Step::Stay => {}
                Step::Begin(turn) => {
                    // Sessions of an earlier turn are not what peers go on with.
                    self.moved(NOWHERE, threads);
                    self.node.take_turn(Some(turn));
                    self.turns.take_addresses(until_ms, &standby);
                    let prefix = standby.hop_prefix;
                    self.moved(prefix, threads);
                    if self.config.node.hop_prefix != prefix {
                        self.turns.end();
                        return Reply::Error(format!("cannot hop in {prefix}, the log says why"));
                    }
                    self.turns.is_met();
                }
                Step::End => self.moved(NOWHERE, threads),
            }
        }
        Reply::of(&control::standby::Turn {
            turn: self.turns.turn(),
            gateways: standby.gateways,
            silence_ms: standby.silence.as_millis() as u64,
        })
    }

    fn answer(&mut self, call: Call, options: &RunOptions, threads: &Threads) {
        let reply = match call.request {
            Request::Show => {
                let now = self.clock.now();
                let mut status = report::node(
                    &self.file,
                    &self.config,
                    &self.node,
                    now,
                    self.started,
                    self.rules_restored,
                );
                status.keylog = self.key_log.is_some();
                status.standby = self.config.standby.as_ref().map(|_| self.turns.status());
                report::add_kernel(&mut status, &self.config, self.dark);
                report::add_classic_drops(&mut status, &self.classic_drops);
                let peers = self.config.classic.iter().enumerate();
                let classic =
                    peers.map(|(at, peer)| report::classic_peer(peer, self.classic.get(at))).collect();
                // One question is asked at a time, so nobody else asks.
                self.status_request = Some(StatusRequest { call, status, classic, place: 0 });
                return;
            }
            Request::Events { after } => {
                self.followers.ask();
                Reply::of(&events::since(after))
            }
            Request::Firewall => Reply::Error("a tunnel has no firewall: ask the gateway".to_owned()),
            Request::Explain { .. } => {
                Reply::Error("a tunnel has no firewall: ask the gateway on its own socket".to_owned())
            }
            Request::Reach { ref peer } => match self.node.reach(peer, self.clock.now()) {
                true => Reply::Ok(serde_json::Value::Null),
                false => Reply::Error(format!("there is no peer {peer}, or it is of the classic profile")),
            },
            Request::Turn { ref be } => self.turn(be.clone(), threads),
            Request::Reload { .. } => return self.reload(Some(call), threads),
            Request::Confirm => {
                let reply = self.unconfirmed.confirm();
                self.is_meant |= matches!(reply, Reply::Ok(_));
                reply
            }
            Request::Down => {
                self.ending = true;
                Reply::Ok(serde_json::Value::Null)
            }
            Request::TestClockOffset { ms } if options.test_clock_offset_ms.is_some() => {
                self.clock.set_offset(ms);
                Reply::Ok(serde_json::Value::Null)
            }
            Request::TestClockOffset { .. } => {
                Reply::Error("the daemon was not started with --test-clock-offset".to_owned())
            }
        };
        call.answer(reply);
    }
}

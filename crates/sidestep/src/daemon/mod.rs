//! `sidestep up`: the protocol over the kernel.
//!
//! Two threads do the work. This one carries packets and runs the protocol: it waits in one poller for the TUN device,
//! all endpoint sockets, signals and the control socket, and drives [`mt6d::Node`]. The [`kernel`] thread opens and
//! closes sockets and changes routes, so that a rotation never delays a packet. They talk over channels; no lock is
//! shared.
//!
//! Invariants:
//! - All that is set up in the kernel is in the journal of [`linux::undo`] or dies with the TUN device.
//! - A configuration is applied as a whole or not at all.

mod clock;
mod data;
mod kernel;
mod memory;
mod report;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use caps::Capability;
use linux::event::{Events, Poller, Request as Signal, Signals, Waker};
use linux::{process, tun, udp};
use mt6d::{Action, Node, Time};
use tracing::{info, warn};

use crate::cli::{Feature, UpOptions};
use crate::config::{self, Config};
use crate::control::{self, Call, Reply, Request, Server};
use crate::plan;
use clock::Clock;
use data::DataPath;
use kernel::{Command, Kernel, Outcome};
use memory::Memory;

/// Numbers of the poller's other descriptors; endpoints have their own names, which never come near.
mod token {
    pub(super) const TUN: u64 = u64::MAX;
    pub(super) const WAKER: u64 = u64::MAX - 1;
    pub(super) const SIGNALS: u64 = u64::MAX - 2;
}

/// How often what is to be remembered is looked at.
const REMEMBER_EVERY: Duration = Duration::from_secs(1);

/// Why the daemon does not run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only who may change the network can.
    #[error("`up` needs root (or CAP_NET_ADMIN and CAP_NET_RAW): try again with sudo")]
    Privilege,
    /// The external interface is not there.
    #[error("[node] external = \"{0}\": there is no such interface (`ip link` lists them)")]
    NoInterface(String),
    /// The configuration needs more sockets than may be open.
    #[error("{0}")]
    Limit(String),
    /// Somebody else has a route to what is behind a peer.
    #[error(
        "allowed_ips {0}: there is another route to it with the same metric (`ip route get` tells which): \
         remove that, or list its two halves"
    )]
    RouteExists(ipnet::IpNet),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// The protocol refuses the configuration.
    #[error("{0}")]
    Config(#[from] mt6d::config::ConfigError),
    /// The control socket.
    #[error("{0}")]
    Control(std::io::Error),
    /// The thread that opens endpoints has ended.
    #[error("no endpoint can be opened any more (the reason is above): sidestep ends")]
    KernelThread,
    /// A change that a running daemon cannot make.
    #[error("{0} changed: end sidestep and start it again for that")]
    NeedsRestart(&'static str),
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::Control(error)
    }
}

/// Runs until it is told to end.
pub fn run(options: &UpOptions, config: Config) -> Result<(), Error> {
    if !process::may_administer_network() {
        return Err(Error::Privilege);
    }
    // Times are the journal's or the terminal's business; RUST_LOG asks for more or less.
    let filter = tracing_subscriber::EnvFilter::builder().with_default_directive(tracing::Level::INFO.into());
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter.from_env_lossy())
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .without_time()
        .try_init();
    let signals = Signals::new()?;
    let files = process::raise_open_files()?;
    check_limit(&config, files)?;
    let socket = options.socket.clone().unwrap_or_else(|| control::socket_of(&config.tunnel.name));
    let mut daemon = Daemon::set_up(options, config, &socket)?;
    process::keep_capabilities(&[Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW])?;
    daemon.serve(options, &socket, signals)
}

fn check_limit(config: &Config, files: u64) -> Result<(), Error> {
    let open = plan::open_files(config);
    if open <= files {
        return Ok(());
    }
    Err(Error::Limit(format!(
        "this configuration may have {open} files open at once, {files} are allowed: raise the limit of open files \
         (ulimit -n, LimitNOFILE= of the service), rotate more slowly, or use fewer lanes"
    )))
}

struct Daemon {
    file: PathBuf,
    config: Config,
    node: Node,
    clock: Clock,
    memory: Memory,
    data: DataPath,
    kernel: Option<Kernel>,
    started: Time,
    link_mtu: u16,
    hardware_aes: bool,
}

/// What the other threads tell this one.
enum News {
    Kernel(Outcome),
    Call(Call),
}

/// The threads that serve this one, and how they are reached.
struct Threads {
    commands: mpsc::Sender<Command>,
    kernel_waker: Waker,
    kernel: std::thread::JoinHandle<Kernel>,
}

impl Threads {
    fn tell(&self, command: Command) {
        // It ends only when it is told to.
        let _ = self.commands.send(command);
        self.kernel_waker.wake();
    }
}

impl Daemon {
    fn set_up(options: &UpOptions, config: Config, socket: &Path) -> Result<Self, Error> {
        let without = |feature| options.test_without.contains(&feature);
        let offloads =
            if without(Feature::TunOffload) { tun::Offloads::None } else { tun::Offloads::TcpAndUdp };
        let device = tun::create(&config.tunnel.name, 1, offloads)?;
        let sockets = udp::Options {
            receive_offload: !without(Feature::UdpGro),
            segmentation: if without(Feature::UdpSegment) {
                udp::Segmentation::off().into()
            } else {
                udp::Segmentation::new().into()
            },
            ..udp::Options::default()
        };
        if let Some(folder) = socket.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut kernel = Kernel::open(&config, device.index, sockets, &socket.with_extension("journal"))?;
        let link_mtu = kernel.link_mtu();
        let mut clock = Clock::new(options.test_clock_offset.map(|o| o.0));
        let memory = Memory::load(&options.state_dir, &config.tunnel.name);
        clock.not_before(memory.saved_ms());
        let hardware_aes = has_aes() && !without(Feature::Aes);
        let set_up = || -> Result<Node, Error> {
            kernel.apply(&config)?;
            Ok(Node::new(
                config.to_node_config(link_mtu, hardware_aes),
                memory.peers(),
                seed()?,
                clock.now(),
            )?)
        };
        let node = match { set_up }() {
            Ok(node) => node,
            Err(error) => {
                kernel.close();
                return Err(error);
            }
        };
        let started = clock.now().boot;
        let data = DataPath::new(device)?;
        let file = options.file.clone();
        Ok(Daemon {
            file,
            config,
            node,
            clock,
            memory,
            data,
            kernel: Some(kernel),
            started,
            link_mtu,
            hardware_aes,
        })
    }

    fn serve(&mut self, options: &UpOptions, socket: &Path, signals: Signals) -> Result<(), Error> {
        let (send, news) = mpsc::channel();
        let waker = Waker::new()?;
        let kernel = self.kernel.take().expect("set up");
        let outcome = {
            let (send, waker) = (send.clone(), waker.clone());
            move |outcome| {
                let _ = send.send(News::Kernel(outcome));
                waker.wake();
            }
        };
        let (commands, kernel_waker, thread) = kernel.start(outcome)?;
        let threads = Threads { commands, kernel_waker, kernel: thread };
        let result = {
            let for_calls = waker.clone();
            let server = Server::start(socket, move |call| {
                let _ = send.send(News::Call(call));
                for_calls.wake();
            });
            server.map_err(Error::from).and_then(|server| {
                let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
                info!(
                    "{} is up, peers: {}, control socket {}",
                    self.config.tunnel.name,
                    self.config.peers.len(),
                    socket.display()
                );
                let result = self.run(options, &threads, &news, &waker, &signals);
                drop(server);
                result
            })
        };
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
        self.node.end(self.clock.now(), &mut self.data.outbox);
        self.data.flush(&mut self.node);
        self.memory.save(&mut self.node, self.clock.now(), true);
        threads.tell(Command::End);
        if let Ok(kernel) = threads.kernel.join() {
            kernel.close();
        }
        info!("{} is down", self.config.tunnel.name);
        result
    }

    fn run(
        &mut self,
        options: &UpOptions,
        threads: &Threads,
        news: &mpsc::Receiver<News>,
        waker: &Waker,
        signals: &Signals,
    ) -> Result<(), Error> {
        let poller = Poller::new()?;
        poller.add(self.data.tun(), token::TUN, linux::event::Interest::Readable)?;
        poller.add(waker, token::WAKER, linux::event::Interest::Readable)?;
        poller.add(signals, token::SIGNALS, linux::event::Interest::Readable)?;
        let mut events = Events::with_capacity(256);
        let mut remember = self.clock.now().boot + REMEMBER_EVERY;
        loop {
            while let Some(action) = self.node.next_action() {
                match action {
                    Action::Open { id, local, remote } => {
                        self.data.opening(id);
                        threads.tell(Command::Open { id, local, remote });
                    }
                    Action::Close { id } => {
                        if let Some(socket) = self.data.close(id, &poller) {
                            threads.tell(Command::Close(socket));
                        }
                    }
                }
            }
            let now = self.clock.now();
            let wait = self.node.deadline().min(remember).since(now.boot);
            poller.wait(&mut events, Some(wait))?;
            let now = self.clock.now();
            if now.boot >= self.node.deadline() {
                self.data.timeout(&mut self.node, now);
            }
            for event in events.iter() {
                match event.token {
                    token::TUN => self.data.read_tun(&mut self.node, now)?,
                    token::WAKER => waker.drain(),
                    token::SIGNALS => match signals.read()? {
                        Some(Signal::Reload) => {
                            if let Err(message) = self.reload(threads) {
                                warn!("the configuration stays as it was: {message}");
                            }
                        }
                        Some(_) => return Ok(()),
                        None => {}
                    },
                    endpoint => self.data.read_endpoint(endpoint, event.error, &mut self.node, now),
                }
            }
            while let Ok(news) = news.try_recv() {
                match news {
                    News::Kernel(Outcome::Ended) => return Err(Error::KernelThread),
                    News::Kernel(outcome) => self.kernel_did(outcome, &poller, threads),
                    News::Call(call) => self.answer(call, options, threads),
                }
            }
            self.data.flush(&mut self.node);
            if self.data.mtu_changed() {
                for (prefixes, mtu) in self.node.new_mtus() {
                    threads.tell(Command::Mtu { prefixes: prefixes.to_vec(), mtu });
                }
            }
            if now.boot >= remember {
                remember = now.boot + REMEMBER_EVERY;
                self.memory.save(&mut self.node, now, false);
            }
        }
    }

    fn kernel_did(&mut self, outcome: Outcome, poller: &Poller, threads: &Threads) {
        let now = self.clock.now();
        match outcome {
            Outcome::Opened { id, socket: Ok(socket) } => {
                if let Some(unwanted) = self.data.opened(id, socket, poller) {
                    threads.tell(Command::Close(unwanted));
                } else {
                    self.node.opened(id, now);
                }
            }
            Outcome::Opened { id, socket: Err(error) } => {
                tracing::debug!("endpoint: {error}");
                self.data.not_opened(id);
                self.node.open_failed(id, now);
            }
            Outcome::LinkMtu(mtu) if mtu != self.link_mtu => {
                self.link_mtu = mtu;
                info!("{} has MTU {mtu} now: counts from the next handshake on", self.config.node.external);
                self.node.set_link_mtu(mtu);
            }
            Outcome::LinkMtu(_) | Outcome::Ended => {}
        }
    }

    fn answer(&mut self, call: Call, options: &UpOptions, threads: &Threads) {
        let reply = match call.request {
            Request::Show => {
                let status = report::status(&self.config, &self.node, self.clock.now(), self.started);
                serde_json::to_value(status).map_or_else(|e| Reply::Error(e.to_string()), Reply::Ok)
            }
            Request::Reload => match self.reload(threads) {
                Ok(()) => Reply::Ok(serde_json::Value::Null),
                Err(message) => Reply::Error(message),
            },
            Request::TestClockOffset { ms } if options.test_clock_offset.is_some() => {
                self.clock.set_offset(ms);
                Reply::Ok(serde_json::Value::Null)
            }
            Request::TestClockOffset { .. } => {
                Reply::Error("the daemon was not started with --test-clock-offset".to_owned())
            }
        };
        call.answer(reply);
    }

    /// Reads the configuration again and applies it, all of it or nothing.
    fn reload(&mut self, threads: &Threads) -> Result<(), String> {
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Reloading]);
        let result = self.try_reload(threads);
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
        result
    }

    fn try_reload(&mut self, threads: &Threads) -> Result<(), String> {
        let new = config::load(&self.file).map_err(|e| e.to_string())?;
        let differs = |error: Error| Err(error.to_string());
        if new.tunnel.name != self.config.tunnel.name {
            return differs(Error::NeedsRestart("[tunnel] name"));
        }
        if new.node.external != self.config.node.external {
            return differs(Error::NeedsRestart("[node] external"));
        }
        if new.node.private_key.as_bytes() != self.config.node.private_key.as_bytes() {
            return differs(Error::NeedsRestart("[node] private_key"));
        }
        let node_config = new.to_node_config(self.link_mtu, self.hardware_aes);
        node_config.check().map_err(|e| e.to_string())?;
        let files = process::raise_open_files().map_err(|e| e.to_string())?;
        check_limit(&new, files).map_err(|e| e.to_string())?;
        let (answer, applied) = mpsc::channel();
        threads.tell(Command::Apply { config: Box::new(new.clone()), answer });
        applied.recv().map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
        let now = self.clock.now();
        self.node.reconfigure(node_config, now, &mut self.data.outbox).map_err(|e| e.to_string())?;
        self.config = new;
        info!("configuration read again, peers: {}", self.config.peers.len());
        Ok(())
    }
}

/// Whether the processor seals AES-256-GCM without the help of tables.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}

/// 32 bytes from the kernel's generator.
fn seed() -> std::io::Result<[u8; 32]> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(std::io::Error::other)?;
    Ok(seed)
}

//! `sidestep ipsec up`: a gateway, or a host that is a client of one.
//!
//! One thread carries and drives; another answers the control socket; one more asks the resolver where a remote with a
//! name is. The TUN device and its routes go with the process. What must not leave in clear is refused before there is
//! a device, and after it: see `kernel`.

mod carried;
mod hosts;
mod kept;
mod kernel;
mod ports;
mod resolver;
mod table;
mod wanted;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use config::ipsec::IpsecConfig;
use config::ipsec::{Place, Ports};
use control::ipsec_status::Status;
use control::{Call, Reply, Request, Server};
use ipnet::IpNet;
use linux::event::{Event as Ready, Request as Signal, Signals, Waker};
use linux::memory;
use linux::process::{self, Capability};
use linux::ruleset::RulesetMonitor;
use linux::tun;
use tracing::{debug, info, warn};

use crate::carrier::{Carrier, Ends, Event, NotReached, RemoteIndex};
use crate::claim::Claim;
use crate::error::Error;
use crate::key_socket::{KeySocket, clock};
use crate::machine::{Machine, Sockets, tell_time};
use crate::moves::Moves;
use crate::place;
use crate::random::System;
pub use carried::check;
use hosts::Hosts;
use kernel::{Closed, Kernel};
use wanted::Wanted;

/// Queues of the TUN device: as many as the moving tunnel has, for the same reason.
const TUN_QUEUES: usize = 32;
/// How long remotes may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);
/// The least MTU of a device that carries IPv6 (RFC 8200 §5).
const MIN_MTU: u16 = 1280;

const SIGNALS: u64 = 2;
const MESSAGES: u64 = 3;
const CHANGES: u64 = 4;
const RULESET: u64 = 5;
/// The first of those of the key socket.
const KEYS: u64 = 1000;
/// Between what somebody takes away and its return: whoever takes away much is not answered step by step.
const RESTORE_AFTER: Duration = Duration::from_millis(200);
/// The same, where it could not be put back.
const RESTORE_AGAIN: Duration = Duration::from_secs(5);

/// How it is run: what is said on the command line beside the configuration.
#[derive(Debug, Clone)]
pub struct UpOptions {
    /// The configuration.
    pub file: PathBuf,
    /// The control socket, by default `/run/sidestep/NAME.sock`.
    pub socket: Option<PathBuf>,
}

enum Message {
    Call(Call),
    /// Where a remote of this name, at this place, may be.
    Found(String, Place, Result<Vec<IpAddr>, NotReached>),
}

/// Runs until `signals` or a client tell it to end.
///
/// # Errors
/// [`Error`] when it cannot begin, or there is no device any more.
pub fn up(options: &UpOptions, signals: &Signals, config: IpsecConfig) -> Result<(), Error> {
    if !process::may_administer_network() {
        return Err(Error::Privilege);
    }
    carried::refuse(&config)?;
    let socket = options.socket.clone().unwrap_or_else(|| control::socket_of(&config.name));
    let folders = control::folders_of(&socket);
    for missing in linux::confine::confine(folders.iter().map(PathBuf::as_path))? {
        info!("this kernel has no {missing}: the daemon is confined without it");
    }
    // Who holds what is beside the socket is the one who answers there.
    control::remove_stale_socket(&socket)?;
    let sockets = match open(&config, &folders) {
        Ok(sockets) => sockets,
        Err(error) => {
            // Who is up already, under this name or another, may carry the same: it goes on.
            let is_ours = matches!(error, Error::PortTaken { is_ours: true, .. });
            if is_ours || Claim::stake(&options.file).is_err() {
                return Err(error);
            }
            let carrier = carried::carrier(&config, config.ports)?;
            if let Err(not_closed) = close(&config, &carrier, config.ports, &socket) {
                warn!("{not_closed}");
                return Err(error);
            }
            return Err(Error::Closed { error: Box::new(error), tunnel: config.name });
        }
    };
    let claim = Claim::stake(&options.file)?;
    let carrier = carried::carrier(&config, sockets.ports())?;
    // Whoever changes the tables from their first moment on is noticed.
    let ruleset = RulesetMonitor::open()?;
    let (wanted, closed) = close(&config, &carrier, sockets.ports(), &socket)?;
    sockets.set_mark(closed.mark())?;
    let device = tun::create(&config.name, TUN_QUEUES, tun::Offloads::TcpAndUdp)?;
    if let Some(error) = &device.unsteered {
        info!("all flows share one queue, where a large one delays the others: {error}");
    }
    let mut kernel = Kernel::new(closed, device.index);
    let mut machine = Machine::new(carrier, sockets)?;
    machine.set_tun(device.queues, device.offloads)?;
    machine.inner_interface = Some(device.index);
    kernel
        .apply(&wanted, device_mtu(&config, &machine))
        .map_err(|error| Error::Closed { error: Box::new(error), tunnel: config.name.clone() })?;
    let mut keep = vec![Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];
    // Where limits are not ours to raise, as in some containers.
    if process::allow_realtime().is_err() {
        keep.push(Capability::CAP_SYS_NICE);
    }
    process::keep_capabilities(&keep)?;
    machine.go_first();

    let (send, messages) = mpsc::channel();
    let waker = Waker::new()?;
    let (for_calls, wake_for_calls) = (send.clone(), waker.clone());
    let server = Server::start(&socket, move |call| {
        let _ = for_calls.send(Message::Call(call));
        wake_for_calls.wake();
    })?;
    let keys = KeySocket::open(&socket.with_extension("key"), &machine.poller, KEYS)?;
    machine.carrier.tell_keys();
    machine.also_wait_for(signals, SIGNALS)?;
    machine.also_wait_for(&waker, MESSAGES)?;
    let moves = Moves::open()?;
    machine.also_wait_for(&moves, CHANGES)?;
    machine.also_wait_for(&ruleset, RULESET)?;
    if let Err(error) = memory::give_back_start() {
        debug!("memory of the start stays: {error}");
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    info!(
        event = "tunnel_up",
        "{} is up, remotes: {}, control socket {}",
        config.name,
        config.remotes.len(),
        socket.display()
    );
    let mut daemon = Daemon {
        options,
        config,
        machine,
        keys,
        kernel,
        wanted,
        started: Instant::now(),
        given: HashMap::new(),
        dns: HashMap::new(),
        messages: send,
        waker,
        moves,
        ruleset,
        restore_at: None,
        tables_doubted: false,
        tables_restored: 0,
        dns_past: Vec::new(),
        _claim: claim,
        ending: false,
    };
    let result = daemon.run(signals, &messages);
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    let ended = daemon.machine.end(GOODBYE);
    // Who sees the socket gone may take the tables away.
    daemon.kernel.wait_for_tables();
    drop(server);
    info!(event = "tunnel_down", "{} is down; what it carried is refused", daemon.config.name);
    result.and(ended.map_err(Error::from))
}

fn open(config: &IpsecConfig, folders: &[PathBuf]) -> Result<Sockets, Error> {
    let sockets = Sockets::open(config.local, config.ports);
    Ok(sockets.map_err(|error| ports::taken(error, config, folders))?.with_raw(config.local)?)
}

/// Closes what the tunnel is to carry.
fn close(
    config: &IpsecConfig,
    carrier: &Carrier<System>,
    ports: Ports,
    socket: &Path,
) -> Result<(Wanted, Closed), Error> {
    let wanted = Wanted::of(config, carrier.policies_by_hand(), ports);
    let hosts = Hosts::new(&config.name, [ports.ike, ports.nat], config.local);
    let closed = kernel::close(&wanted, socket, hosts)?;
    Ok((wanted, closed))
}

fn device_mtu(config: &IpsecConfig, machine: &Machine) -> u16 {
    config.mtu.unwrap_or_else(|| machine.carrier.inner_mtu()).max(MIN_MTU)
}

struct Daemon<'a> {
    options: &'a UpOptions,
    config: IpsecConfig,
    machine: Machine,
    keys: KeySocket,
    kernel: Kernel,
    wanted: Wanted,
    started: Instant,
    given: HashMap<RemoteIndex, Vec<IpAddr>>,
    dns: HashMap<RemoteIndex, Vec<IpAddr>>,
    messages: mpsc::Sender<Message>,
    waker: Waker,
    moves: Moves,
    ruleset: RulesetMonitor,
    /// When what was taken away is put back.
    restore_at: Option<Instant>,
    /// Somebody, perhaps this process, has changed the tables that keep traffic inside.
    tables_doubted: bool,
    /// How often one was put back.
    tables_restored: u64,
    /// DNS servers of this machine's that are asked past the tunnel although remotes have given others.
    dns_past: Vec<IpAddr>,
    _claim: Claim,
    ending: bool,
}

impl Daemon<'_> {
    fn run(&mut self, signals: &Signals, messages: &mpsc::Receiver<Message>) -> Result<(), Error> {
        let mut others = Vec::new();
        while !self.ending {
            while let Some(event) = self.machine.carrier.poll_event() {
                self.happened(event);
            }
            let look_at = self.restore_at.into_iter().chain(self.moves.deadline()).min();
            self.machine.turn(look_at, &mut others)?;
            for event in others.drain(..) {
                match event.token {
                    SIGNALS => match signals.read()? {
                        Some(Signal::Stop) => self.ending = true,
                        Some(Signal::Reload) => {
                            if let Err(error) = self.reload() {
                                warn!(event = "reload_refused", "the configuration stays as it was: {error}");
                            }
                        }
                        None => {}
                    },
                    CHANGES => self.changed()?,
                    RULESET => self.ruleset_changed()?,
                    token if KeySocket::owns(KEYS, token) => self.keys_asked(event),
                    _ => self.waker.drain(),
                }
            }
            if self.restore_at.is_some_and(|at| at <= Instant::now()) {
                self.restore_at = None;
                self.restore();
            }
            self.look_after_tables();
            if self.moves.is_due(Instant::now()) {
                self.move_where();
            }
            while let Ok(message) = messages.try_recv() {
                match message {
                    Message::Call(call) => self.answer(call),
                    Message::Found(name, place, found) => self.found(&name, &place, found),
                }
            }
        }
        Ok(())
    }

    /// Somebody, perhaps this process, has changed links, addresses or routes.
    fn changed(&mut self) -> Result<(), Error> {
        let now = Instant::now();
        if self.moves.read(now)? {
            self.restore_at.get_or_insert(now + RESTORE_AFTER);
        }
        Ok(())
    }

    /// Somebody has changed tables of nftables.
    fn ruleset_changed(&mut self) -> Result<(), Error> {
        if self.ruleset.changed(&self.kernel.table_names())? {
            self.tables_doubted = true;
            self.restore_at.get_or_insert_with(|| Instant::now() + RESTORE_AFTER);
        }
        Ok(())
    }

    /// Puts back what somebody has taken away.
    fn restore(&mut self) {
        let restored = self.kernel.restore().and_then(|()| self.kernel.make_table_soon(&self.waker));
        if let Err(error) = restored {
            warn!("{error}");
        }
        if std::mem::take(&mut self.tables_doubted) {
            self.kernel.restore_tables_soon(&self.waker);
        }
    }

    /// What has become of the tables.
    fn look_after_tables(&mut self) {
        let (restored, failure) = self.kernel.restored_tables(&self.waker);
        self.tables_restored += restored;
        if let Err(error) = failure {
            // Tried again: until then, only routes keep it inside.
            self.tables_doubted = true;
            self.restore_at = Some(Instant::now() + RESTORE_AGAIN);
            warn!("{error}");
        }
    }

    /// This machine may have another address, or another way to a remote: what it has begun goes on from there.
    fn move_where(&mut self) {
        if self.config.local.is_some() {
            return;
        }
        let kernel = &mut self.kernel;
        let source = |remote| match kernel.source_towards(remote) {
            Ok(source) => source,
            Err(error) => {
                debug!("{error}");
                None
            }
        };
        self.machine.with_carrier(|carrier, sink, now| carrier.move_where(source, now, sink));
    }

    /// Somebody at the key socket has asked for something.
    fn keys_asked(&mut self, event: Ready) {
        let (engine, policies) = self.machine.carrier.keys();
        let dropped = self.keys.handle(&self.machine.poller, event, engine, policies, clock());
        self.machine.with_carrier(|carrier, sink, now| carrier.keys_changed(dropped, now, sink));
        let wanted = Wanted::of(&self.config, self.machine.carrier.policies_by_hand(), self.machine.ports());
        if wanted == self.wanted {
            return;
        }
        let changed = self.kernel.change(&self.wanted, &wanted);
        self.wanted = wanted;
        let marked = self.machine.set_mark(self.kernel.mark());
        if let Err(error) = changed.and(marked.map_err(Error::from)) {
            warn!("{error}");
        }
    }

    fn happened(&mut self, event: Event) {
        let name = |config: &IpsecConfig, remote: RemoteIndex| {
            config.remotes.get(remote.0).map_or(String::new(), |remote| remote.name.clone())
        };
        let done = match event {
            Event::Reach(remote) => {
                self.find(remote);
                Ok(())
            }
            Event::Up { remote, addresses, dns } => {
                let peer = name(&self.config, remote);
                info!(event = "session_up", peer, "{peer} is up");
                self.dns.insert(remote, dns);
                let used = self.use_given(remote, addresses);
                self.look_at_resolver();
                used
            }
            Event::Child { remote, address, networks } => {
                info!("{}: a child at {address}", name(&self.config, remote));
                if let Some(mtu) = self.kernel.mtu_towards(address) {
                    self.machine.carrier.set_link_mtu(mtu);
                }
                self.kernel.add_networks(&networks, address, &self.waker)
            }
            Event::Failed { remote, why: what }
            | Event::Unanswered { remote, what }
            | Event::Contested { remote, what } => {
                let peer = name(&self.config, remote);
                warn!(event = "peer_failed", peer, "{peer}: {what}");
                Ok(())
            }
            Event::Down { remote, why } => {
                let peer = name(&self.config, remote);
                info!(event = "session_down", peer, "{peer} is down: {why}");
                Ok(())
            }
            Event::Stranger { what } => {
                warn!("{what}");
                Ok(())
            }
            Event::Keys(event) => {
                let (engine, _) = self.machine.carrier.keys();
                self.keys.tell(&self.machine.poller, &event, engine, clock());
                Ok(())
            }
            Event::Mtu => self.kernel.set_mtu(device_mtu(&self.config, &self.machine)),
        };
        if let Err(error) = done {
            warn!("{error}");
        }
    }

    /// Addresses that a remote has given take the place of those that it gave before.
    fn use_given(&mut self, remote: RemoteIndex, addresses: Vec<IpAddr>) -> Result<(), Error> {
        for address in &addresses {
            self.kernel.add_address(IpNet::from(*address))?;
        }
        for before in self.given.insert(remote, addresses).unwrap_or_default() {
            let is_given = self.given.values().flatten().any(|address| *address == before);
            if !is_given && !self.wanted.addresses.contains(&IpNet::from(before)) {
                self.kernel.delete_address(IpNet::from(before))?;
            }
        }
        Ok(())
    }

    /// Names that are asked past the tunnel are not what a remote has given DNS servers for: that is told, once for each.
    fn look_at_resolver(&mut self) {
        let given: Vec<IpAddr> = self.dns.values().flatten().copied().collect();
        let before = std::mem::take(&mut self.dns_past);
        if given.is_empty() {
            return;
        }
        let past = |server: &IpAddr| !given.contains(server) && self.kernel.is_past(*server);
        self.dns_past = resolver::servers().into_iter().filter(past).collect();
        if self.dns_past.iter().any(|server| !before.contains(server)) {
            warn!("{}", resolver::warning(&self.config.name, &given, &self.dns_past));
        }
    }

    /// Finds out where a remote is; with a name, in a thread of its own.
    fn find(&mut self, remote: RemoteIndex) {
        let remote = self.config.remotes.get(remote.0);
        let Some((name, place)) =
            remote.and_then(|remote| Some((remote.name.clone(), remote.address.clone()?)))
        else {
            return;
        };
        if matches!(place, Place::Address(_)) {
            return self.found(&name, &place, place::addresses(&place));
        }
        let (messages, waker) = (self.messages.clone(), self.waker.clone());
        let (for_thread, at) = (name.clone(), place.clone());
        let find = move || {
            let found = place::addresses(&at);
            let _ = messages.send(Message::Found(for_thread, at, found));
            waker.wake();
        };
        if let Err(error) = std::thread::Builder::new().name("resolver".into()).spawn(find) {
            self.found(&name, &place, Err(NotReached(error.to_string())));
        }
    }

    /// A remote may be at one of these addresses. One that was configured otherwise meanwhile was asked about again.
    fn found(&mut self, name: &str, place: &Place, found: Result<Vec<IpAddr>, NotReached>) {
        let is_it =
            |remote: &config::ipsec::Remote| remote.name == name && remote.address.as_ref() == Some(place);
        let Some(remote) = self.config.remotes.iter().position(is_it).map(RemoteIndex) else { return };
        let ends = found.and_then(|addresses| self.ends(addresses));
        if let Ok(ends) = &ends
            && let Some(mtu) = self.kernel.mtu_towards(ends.remote)
        {
            self.machine.carrier.set_link_mtu(mtu);
        }
        tell_time(&mut self.machine.carrier);
        self.machine.with_carrier(|carrier, sink, now| carrier.reach(remote, ends, now, sink));
    }

    /// The first of these addresses that can be reached, and from where.
    fn ends(&mut self, addresses: Vec<IpAddr>) -> Result<Ends, NotReached> {
        let mut why = NotReached("it has no address".to_owned());
        for remote in addresses {
            let source = self.kernel.source_towards(remote).map_err(|error| NotReached(error.to_string()));
            let local = match self.config.local {
                Some(local) if local.is_ipv4() == remote.is_ipv4() => Ok(Some(local)),
                Some(local) => Err(NotReached(format!("{remote} is of another IP version than {local}"))),
                None => source,
            };
            match local {
                Ok(Some(local)) => return Ok(Ends { local, remote }),
                Ok(None) => why = NotReached(format!("there is no route to {remote}")),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Reads the configuration again: all of it is in force afterwards, or nothing. Conversations with remotes that are
    /// configured as before go on.
    fn reload(&mut self) -> Result<(), Error> {
        let new = config::ipsec::load(&self.options.file)?;
        carried::refuse(&new)?;
        let same = |new: &IpsecConfig| {
            (&new.name, new.local, new.ports, &new.setkey)
                == (&self.config.name, self.config.local, self.config.ports, &self.config.setkey)
        };
        if !same(&new) {
            let what = "interface, address, ports and setkey_file of [ipsec] are those that it was started with: start it again";
            return Err(Error::NotCarried(what.to_owned()));
        }
        // What has happened under the old one.
        while let Some(event) = self.machine.carrier.poll_event() {
            self.happened(event);
        }
        let kept = self.machine.carrier.kept(&new);
        let stay = |lists: &HashMap<RemoteIndex, Vec<IpAddr>>| -> HashMap<RemoteIndex, Vec<IpAddr>> {
            lists.iter().filter_map(|(remote, list)| Some((kept.remote(*remote)?, list.clone()))).collect()
        };
        let (given, dns) = (stay(&self.given), stay(&self.dns));
        let by_hand = self.machine.carrier.policies_by_hand();
        let wanted = Wanted::of(&new, by_hand, self.machine.ports());
        let mut with_kept = wanted.clone();
        with_kept.addresses.extend(given.values().flatten().map(|address| IpNet::from(*address)));
        with_kept.networks.extend(self.kernel.routed(self.machine.carrier.networks_of(&kept)));
        let mtu = new.mtu.unwrap_or_else(|| self.machine.carrier.inner_mtu()).max(MIN_MTU);
        self.kernel.apply(&with_kept, mtu)?;
        self.machine.set_mark(self.kernel.mark())?;
        // From here on nothing fails.
        tell_time(&mut self.machine.carrier);
        let addresses: Vec<IpAddr> = given.values().flatten().copied().collect();
        self.machine.with_carrier(|carrier, sink, now| {
            carrier.reconfigure(&new, &kept, addresses, now, sink);
        });
        (self.config, self.wanted) = (new, wanted);
        (self.given, self.dns) = (given, dns);
        info!(event = "reloaded", "configuration read again");
        Ok(())
    }

    fn answer(&mut self, call: Call) {
        let reply = match call.request {
            Request::Show => match serde_json::to_value(self.status()) {
                Ok(status) => Reply::Ok(status),
                Err(error) => Reply::Error(error.to_string()),
            },
            Request::Events { after } => Reply::of(&events::since(after)),
            Request::Down => {
                self.ending = true;
                Reply::Ok(serde_json::Value::Null)
            }
            Request::Reload { confirm_ms: None } => match self.reload() {
                Ok(()) => Reply::Ok(serde_json::Value::Null),
                Err(error) => Reply::Error(error.to_string()),
            },
            _ => Reply::Error("not for a tunnel of IPsec".to_owned()),
        };
        call.answer(reply);
    }

    fn status(&mut self) -> Status {
        self.look_at_resolver();
        let now = Instant::now();
        let of_all = |lists: &HashMap<RemoteIndex, Vec<IpAddr>>| {
            let mut all: Vec<IpAddr> = lists.values().flatten().copied().collect();
            all.sort();
            all.dedup();
            all
        };
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            tunnel: self.config.name.clone(),
            pid: std::process::id(),
            network_namespace: control::network_namespace().unwrap_or_default(),
            ports: [self.machine.ports().ike, self.machine.ports().nat],
            uptime_s: now.saturating_duration_since(self.started).as_secs(),
            mtu: device_mtu(&self.config, &self.machine),
            given_addresses: of_all(&self.given),
            dns: of_all(&self.dns),
            dns_past_tunnel: self.dns_past.clone(),
            drops: self.drops(),
            remotes: self.machine.carrier.report(now),
        }
    }

    /// What was dropped, by whomever.
    fn drops(&self) -> BTreeMap<String, u64> {
        let mut drops = self.machine.carrier.report_drops();
        let (arrived, leaving) = linux::inside::dropped(&self.config.name);
        for (reason, count) in [
            ("in_clear", linux::hosts::in_clear(&self.config.name)),
            ("outside_tunnel", arrived),
            ("past_tunnel", leaving),
            ("rules_restored", self.tables_restored),
        ] {
            if count > 0 {
                drops.insert(reason.to_owned(), count);
            }
        }
        drops
    }
}

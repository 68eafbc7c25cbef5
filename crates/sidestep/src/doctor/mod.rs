//! `doctor`: what keeps a tunnel, or one of its peers, from working, in one sentence each with what mends it.
//!
//! It walks the way of a packet: configuration and keys, the daemon, this machine (interfaces, routes, forwarding, firewall,
//! resolver), then each peer by what the daemon knows of it. Where it knows nothing yet it is asked to try, and waited for.

mod files;
pub(crate) mod finding;
mod fleet;
mod gateway;
mod names;
mod peer;
mod tunnel;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use control::tunnel_status::{Peer, State, Status};
use control::{Error, Request};
use serde::Serialize;

use crate::completion;
use crate::failure::Failure;
use crate::load::{only_tunnel, tunnel_of};
use crate::show::text::stands_by;
use crate::terminal::print;

use finding::{Finding, Level};

/// How long a peer is tried until what is known of it counts: a try of three copies, and what routers say of them.
const PATIENCE: Duration = Duration::from_secs(7);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What keeps a tunnel from working
///
/// Looks at the configuration, the keys, the daemon, this machine and each peer, and says what is wrong in one sentence each,
/// with what mends it. A peer without a session is tried, which takes some seconds. Exit status 1 if there is a fault.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep doctor\n  sidestep doctor site-b\n  \
                        sidestep doctor --config /etc/sidestep/mt6d0.toml\n  \
                        sidestep doctor --json | jq -r '.findings[] | select(.level == \"fault\") | .code'")]
pub(crate) struct DoctorCommand {
    /// Only this peer, and what all need
    #[arg(add = ArgValueCandidates::new(completion::peers))]
    peer: Option<String>,
    /// Name of the tunnel; not needed if there is only one
    #[arg(long, value_name = "NAME", conflicts_with = "socket", add = ArgValueCandidates::new(completion::tunnels))]
    tunnel: Option<String>,
    /// Its control socket, by default /run/sidestep/NAME.sock
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Its configuration, by default what the daemon reads, or /etc/sidestep/NAME.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write JSON; its fields and codes are stable
    #[arg(long)]
    json: bool,
}

/// The document of `doctor --json`.
#[derive(Serialize)]
struct Document<'f> {
    /// In the order in which they were looked at.
    findings: &'f [Finding],
}

/// What is wrong besides what the states of the peers say, as far as it is seen without asking a peer or a name server.
pub(crate) fn seen(status: &Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    // A tunnel in another network namespace has other interfaces and other rules. Who may not administer this one may not see
    // its rules, nor read the keys that the configuration names.
    let file = Path::new(&status.file);
    let is_refused = !linux::process::may_administer_network()
        || File::open(file).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    if is_here(status)
        && !is_refused
        && let Some(config) = files::look(Some(file), Some(status), &mut findings)
    {
        fleet::look(file, &mut findings);
        tunnel::look(&config, None, Some(status), &mut findings);
    }
    tunnel::look_at_status(status, &mut findings);
    for peer in status.peers.iter().filter(|_| !stands_by(status)) {
        peer::look(peer, status, &mut findings);
    }
    findings.retain(|finding| finding.level > Level::Ok);
    findings
}

/// Whether the tunnel is in this network namespace.
fn is_here(status: &Status) -> bool {
    control::network_namespace().ok() == Some(status.network_namespace)
}

impl DoctorCommand {
    /// Looks, and says what was found.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let findings = self.look()?;
        if self.json {
            print(format_args!("{}\n", serde_json::to_string_pretty(&Document { findings: &findings })?))?;
        } else {
            print(text(&findings))?;
        }
        let faulty = findings.iter().any(|finding| finding.level == Level::Fault);
        Ok(if faulty { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn look(&self) -> Result<Vec<Finding>, Failure> {
        let mut findings = Vec::new();
        let has_gateway = gateway::look(&mut findings);
        let is_about_any = self.socket.is_none() && self.config.is_none() && self.tunnel.is_none();
        if has_gateway
            && is_about_any
            && matches!(control::find(control::FOLDER.as_ref()), Err(Error::NoSocket(_)))
        {
            // There is no tunnel that could be meant.
            return Ok(findings);
        }
        let (socket, status) = self.daemon(&mut findings)?;
        let file = self.file(status.as_ref());
        let config = files::look(file.as_deref(), status.as_ref(), &mut findings);
        if let Some(file) = &file {
            fleet::look(file, &mut findings);
        }
        if let (Some(name), Some(status)) = (&self.peer, &status) {
            refuse_unknown(name, status.peers.iter().map(|peer| peer.name.as_str()))?;
        } else if let (Some(name), Some(config)) = (&self.peer, &config) {
            let classic = config.classic.iter().map(|peer| peer.name.as_str());
            refuse_unknown(name, config.peers.iter().map(|peer| peer.name.as_str()).chain(classic))?;
        }
        let is_elsewhere = status.as_ref().is_some_and(|status| !is_here(status));
        if is_elsewhere {
            findings.push(Finding::ok(
                "elsewhere",
                "the tunnel is in another network namespace: its interfaces, routes and firewall are seen from there (ip netns exec NAME sidestep doctor)",
            ));
        }
        if let Some(config) = config.as_ref().filter(|_| !is_elsewhere) {
            tunnel::look(config, self.peer.as_deref(), status.as_ref(), &mut findings);
            names::look(config, self.peer.as_deref(), status.as_ref(), &mut findings);
        }
        if let (Some(socket), Some(status)) = (socket, status) {
            let status = if stands_by(&status) { status } else { self.wait(&socket, status)? };
            tunnel::look_at_status(&status, &mut findings);
            for peer in status.peers.iter().filter(|peer| self.concerns(peer) && !stands_by(&status)) {
                peer::look_at_state(peer, &mut findings);
                peer::look(peer, &status, &mut findings);
            }
        }
        Ok(findings)
    }

    fn concerns(&self, peer: &Peer) -> bool {
        self.peer.as_ref().is_none_or(|name| *name == peer.name)
    }

    /// The daemon's socket and status, or what is wrong with it.
    fn daemon(&self, findings: &mut Vec<Finding>) -> Result<(Option<PathBuf>, Option<Status>), Failure> {
        let socket = match (&self.socket, &self.tunnel, &self.config) {
            (Some(socket), _, _) => Ok(socket.clone()),
            (None, Some(tunnel), _) => Ok(control::socket_of(tunnel)),
            (None, None, Some(file)) => match tunnel_of(file) {
                Some(tunnel) => Ok(control::socket_of(&tunnel)),
                None => return Ok((None, None)),
            },
            (None, None, None) => control::find(control::FOLDER.as_ref()),
        };
        match socket.and_then(|socket| Ok((ask(&socket)?, socket))) {
            Ok((status, socket)) => {
                let peers = status.peers.len();
                let says = format!("{} runs, version {}, peers: {peers}", status.tunnel, status.version);
                findings.push(Finding::ok("running", says));
                Ok((Some(socket), Some(status)))
            }
            Err(error @ (Error::NotRunning { .. } | Error::NoSocket(_))) => {
                findings.push(Finding::fault("not_running", error.to_string()));
                Ok((None, None))
            }
            // A name is a peer's here.
            Err(Error::Several(names)) => {
                let names = names.join(", ");
                Err(Failure::Message(format!("several tunnels are up: choose one with --tunnel: {names}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Where the configuration is.
    fn file(&self, status: Option<&Status>) -> Option<PathBuf> {
        let of_status =
            || status.map(|status| PathBuf::from(&status.file)).filter(|file| !file.as_os_str().is_empty());
        self.config.clone().or_else(of_status).or_else(|| only_tunnel(self.tunnel.as_deref()))
    }

    /// Has the daemon find out whether its peers are there, and waits until it knows.
    fn wait(&self, socket: &Path, mut status: Status) -> Result<Status, Failure> {
        let start = Instant::now();
        let concerns = |peer: &&Peer| self.concerns(peer) && !peer.is_classic();
        for peer in status.peers.iter().filter(concerns) {
            control::ask(socket, &Request::Reach { peer: peer.name.clone() })?;
        }
        // What says nothing more than that nothing comes may be followed by something that says why.
        let is_known = |peer: &Peer| match peer.state {
            State::Established => {
                peer.last_answered_s.is_some_and(|answered| answered < start.elapsed().as_secs_f64())
            }
            _ => peer.fault.as_ref().is_some_and(|fault| !peer::is_vague(&fault.code)),
        };
        while start.elapsed() < PATIENCE && !status.peers.iter().filter(concerns).all(is_known) {
            std::thread::sleep(LOOK_EVERY);
            status = ask(socket)?;
        }
        Ok(status)
    }
}

fn refuse_unknown<'n>(name: &str, mut names: impl Iterator<Item = &'n str>) -> Result<(), Failure> {
    let mut known = Vec::new();
    if names.any(|other| {
        known.push(other);
        other == name
    }) {
        return Ok(());
    }
    Err(Failure::Message(format!("there is no peer {name}: there are {}", known.join(", "))))
}

fn ask(socket: &Path) -> Result<Status, Error> {
    let value = control::ask(socket, &Request::Show)?;
    serde_json::from_value(value).map_err(|source| Error::Malformed { path: socket.to_owned(), source })
}

/// A line each: faults last, where they are seen.
fn text(findings: &[Finding]) -> String {
    let mut sorted: Vec<_> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.level);
    let mut text = String::new();
    for finding in &sorted {
        let level = match finding.level {
            Level::Ok => "ok     ",
            Level::Warning => "WARNING",
            Level::Fault => "FAULT  ",
        };
        text += &format!("{level}  {}\n", finding.whole());
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    text + &match (count(Level::Fault), count(Level::Warning)) {
        (0, 0) => "\nNothing is wrong that could be seen from here.\n".to_owned(),
        (0, _) => "\nNo fault could be seen from here, but look at what is said above.\n".to_owned(),
        (1, _) => "\nOne thing is wrong.\n".to_owned(),
        (faults, _) => format!("\n{faults} things are wrong; begin with the first.\n"),
    }
}

//! `show`: the status as a table, in full, as JSON, and a screen that follows it.

pub(crate) mod ask;
pub(crate) mod standby;
pub(crate) mod table;
pub(crate) mod text;

use std::cell::Cell;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use control::tunnel_status::Status;
use control::{Error, Request};
use serde_json::Value;

use crate::completion;
use crate::doctor;
use crate::doctor::finding::Finding;
use crate::failure::Failure;
use crate::fit;
use crate::terminal;
use crate::watch::{self, Source, Tab, Tunnels};
use ask::status_of;
use table::{Choice, Row};

/// Warnings that are told.
const MOST_WARNINGS: usize = 10;
/// Names of peers that are told to who has named one that there is not.
const MOST_NAMES: usize = 8;

/// Show the tunnels and their peers
///
/// A line for each peer, below what is wrong; --peer and --details tell all that is known. Exit status 1 if one of several
/// tunnels does not answer.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sidestep show\n  sidestep show --peer site-b\n  \
                        sidestep show mt6d0 --state silent,handshake --sort heard\n  \
                        sidestep show mt6d0 --watch\n  \
                        sidestep show --json | jq '.peers[] | {name, state, rtt_ms}'")]
pub(crate) struct ShowCommand {
    /// Name of the tunnel, by default each that is up
    #[arg(value_name = "NAME", conflicts_with = "socket", add = ArgValueCandidates::new(completion::tunnels))]
    tunnel: Option<String>,
    /// Its control socket, by default /run/sidestep/NAME.sock
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// All that is known of this peer; may be repeated
    #[arg(long = "peer", value_name = "PEER", add = ArgValueCandidates::new(completion::peers))]
    peers: Vec<String>,
    /// All that is known of each peer, instead of a line
    #[arg(long)]
    details: bool,
    #[command(flatten)]
    choice: Choice,
    /// Write JSON, of one tunnel; its fields are stable
    #[arg(long)]
    json: bool,
    /// Refresh every second; q ends it
    #[arg(long)]
    watch: bool,
}

impl ShowCommand {
    /// Shows it, once or until the user has seen enough.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.watch && !self.json && terminal::is_interactive() {
            let tunnels = match (&self.socket, &self.tunnel) {
                (None, None) => Tunnels::All,
                _ => Tunnels::At(self.only_socket()?),
            };
            let gateway = control::socket_of_gateway().ok().filter(|socket| socket.exists());
            watch::run(Source::new(tunnels, gateway), Tab::Peers, self.choice)?;
            return Ok(ExitCode::SUCCESS);
        }
        let is_all = Cell::new(true);
        terminal::repeat(self.watch, || if self.json { self.json() } else { self.text(&is_all) })?;
        Ok(if is_all.get() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The document of the one tunnel that is meant, with those of its peers that are chosen; on one line where there are many.
    fn json(&self) -> Result<String, Failure> {
        let socket = self.only_socket()?;
        let mut value = control::ask(&socket, &Request::Show)?;
        let status = status_of(&socket, value.clone())?;
        self.refuse_strangers(&[&status])?;
        value["warnings"] = serde_json::to_value(doctor::seen(&status))?;
        let mut chosen = rows(&status).map(|row| self.choice.has(&row) && self.is_named(&row));
        if let Some(Value::Array(peers)) = value.get_mut("peers") {
            peers.retain(|_| chosen.next().unwrap_or_default());
        }
        let text =
            if self.watch { serde_json::to_string(&value)? } else { serde_json::to_string_pretty(&value)? };
        Ok(text + "\n")
    }

    /// Each tunnel that is meant, for people. Where one of several does not answer, standard error has why, and it is not all.
    fn text(&self, is_all: &Cell<bool>) -> Result<String, Failure> {
        let sockets = self.sockets()?;
        let mut tunnels = Vec::new();
        let mut texts = Vec::new();
        let mut failed = Vec::new();
        for answer in ask::all(&sockets) {
            match answer {
                Ok(status) => tunnels.push(status),
                // Among others: those that can be shown are.
                Err(error @ Error::OtherKind { .. }) if sockets.len() > 1 => texts.push(format!("{error}\n")),
                Err(error) => failed.push(error),
            }
        }
        if tunnels.is_empty() && texts.is_empty() && failed.len() == 1 {
            return Err(failed.remove(0).into());
        }
        for error in failed {
            is_all.set(false);
            writeln!(io::stderr(), "sidestep: {error}")?;
        }
        self.refuse_strangers(&tunnels.iter().collect::<Vec<_>>())?;
        for status in tunnels {
            if self.peers.is_empty() || rows(&status).any(|row| self.is_named(&row)) {
                texts.push(self.describe(status));
            }
        }
        let end = if self.watch { "\n" } else { "" };
        Ok(texts.join("\n") + end)
    }

    fn describe(&self, mut status: Status) -> String {
        let width = terminal::columns();
        let mut findings = doctor::seen(&status);
        findings.retain(|finding| !is_told(finding, &status));
        let warnings = warnings(&findings, width);
        if self.peers.is_empty() && !self.details {
            return table::describe(&status, &self.choice, width) + &warnings;
        }
        let chosen = self.choice.of(rows(&status).filter(|row| self.is_named(row)));
        status.peers = chosen.into_iter().map(|row| row.peer.clone()).collect();
        text::describe(&status) + &warnings
    }

    /// The sockets of the tunnels that are meant.
    fn sockets(&self) -> Result<Vec<PathBuf>, Error> {
        match (&self.socket, &self.tunnel) {
            (Some(path), _) => Ok(vec![path.clone()]),
            (None, Some(tunnel)) => Ok(vec![control::socket_of(tunnel)]),
            (None, None) => ask::sockets(),
        }
    }

    /// The same, where it must be one.
    fn only_socket(&self) -> Result<PathBuf, Error> {
        match self.sockets()?.as_slice() {
            [socket] => Ok(socket.clone()),
            _ => control::find(control::FOLDER.as_ref()),
        }
    }

    fn is_named(&self, row: &Row<'_>) -> bool {
        self.peers.is_empty() || self.peers.contains(&row.peer.name)
    }

    /// Fails where a peer is named that none of these has.
    fn refuse_strangers(&self, tunnels: &[&Status]) -> Result<(), Failure> {
        let known: Vec<&str> =
            tunnels.iter().flat_map(|status| &status.peers).map(|peer| peer.name.as_str()).collect();
        match self.peers.iter().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(Failure::Message(no_peer(name, &known))),
            None => Ok(()),
        }
    }
}

/// That there is no such peer, and which there are.
pub(crate) fn no_peer(name: &str, known: &[&str]) -> String {
    let told = known[..known.len().min(MOST_NAMES)].join(", ");
    match known.len() {
        0 => format!("there is no peer {name:?}, nor any other"),
        all if all > MOST_NAMES => {
            format!("there is no peer {name:?}; there are: {told} and {} more", all - MOST_NAMES)
        }
        _ => format!("there is no peer {name:?}; there are: {told}"),
    }
}

fn rows(status: &Status) -> impl Iterator<Item = Row<'_>> {
    status.peers.iter().map(|peer| Row { tunnel: &status.tunnel, peer, rates: None })
}

/// Faults of peers, with findings about the machine that say the same.
const SAME: [(&str, &str); 5] = [
    ("no_route", "no_route"),
    ("link_down", "no_carrier"),
    ("link_down", "interface_down"),
    ("link_down", "interface_missing"),
    ("filtered_here", "closed_input"),
];

/// Whether the fault of a peer says it, too.
fn is_told(finding: &Finding, status: &Status) -> bool {
    let mut faults = status.peers.iter().filter_map(|peer| peer.fault.as_ref());
    faults.any(|fault| SAME.contains(&(fault.code.as_str(), finding.code.as_str())))
}

/// What is wrong besides the states of peers, for people: a paragraph each.
fn warnings(findings: &[Finding], width: usize) -> String {
    let told =
        findings.iter().take(MOST_WARNINGS).map(|finding| format!("{} ({})", finding.whole(), finding.code));
    let more = findings.len().saturating_sub(MOST_WARNINGS);
    let rest = (more > 0).then(|| format!("and {more} more, which `sidestep doctor` tells"));
    told.chain(rest)
        .map(|warning| format!("\n{}\n", fit::wrap_text(&format!("WARNING: {warning}"), width, 2)))
        .collect()
}

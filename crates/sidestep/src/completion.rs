//! Completion of the command line: the shell's script asks the program, which knows the names of tunnels and peers.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::{CompleteEnv, Shells};

use crate::load::configurations;

/// The variable that a shell asks by.
const VARIABLE: &str = "COMPLETE";

/// The script that completes the command line in `shell`.
pub(crate) fn script(shell: Shell) -> io::Result<String> {
    let shells = Shells::builtins();
    let completer = shells.completer(&shell.to_string()).ok_or(io::ErrorKind::Unsupported)?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "sidestep", "sidestep", "sidestep", &mut script)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Answers, and ends the program, where a shell has asked.
pub(crate) fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// Names of tunnels: those that are up, and those that have a configuration.
pub(crate) fn tunnels() -> Vec<CompletionCandidate> {
    let sockets = control::sockets(control::FOLDER.as_ref());
    let mut names: BTreeSet<String> = sockets.iter().filter_map(|socket| stem(socket)).collect();
    let configured = configurations().filter_map(|file| config::load(&file).ok()?.tunnel);
    names.extend(configured.map(|config| config.tunnel.name));
    candidates(names)
}

/// Names of the peers in the configurations of tunnels.
pub(crate) fn peers() -> Vec<CompletionCandidate> {
    let configured = configurations().filter_map(|file| config::load(&file).ok()?.tunnel);
    candidates(configured.flat_map(|config| config.peers).map(|peer| peer.name).collect())
}

fn candidates(names: BTreeSet<String>) -> Vec<CompletionCandidate> {
    names.into_iter().map(CompletionCandidate::new).collect()
}

fn stem(path: &Path) -> Option<String> {
    Some(path.file_stem()?.to_str()?.to_owned())
}

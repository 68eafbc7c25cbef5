//! Calling other programs and waiting for them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::Error;

/// Runs a command to its end and returns what it wrote; its failure is an error.
pub fn check(command: &mut Command) -> Result<Output, Error> {
    let output = run(command)?;
    if output.status.success() { Ok(output) } else { Err(failure(command, &output)) }
}

/// Runs a command to its end, whatever its exit status.
pub fn run(command: &mut Command) -> Result<Output, Error> {
    command.stdin(Stdio::null());
    command.output().map_err(|source| not_started(command, source))
}

/// Runs a command that reads `input`; its failure is an error.
pub fn check_with_input(command: &mut Command, input: &str) -> Result<Output, Error> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|source| not_started(command, source))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that fails early closes its input; its own message says more than our EPIPE.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|source| not_started(command, source))?;
    if output.status.success() { Ok(output) } else { Err(failure(command, &output)) }
}

/// What a command said on standard output, as text.
pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Where a program is: on the path, or in the directories that only root has on it.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|directory| directory.join(program)).find(|candidate| candidate.is_file())
}

/// The error for a program that cannot be started.
pub fn not_started(command: &Command, source: std::io::Error) -> Error {
    Error::Start { program: command.get_program().to_string_lossy().into_owned(), source }
}

/// A word as a message has room for it: programs are words, too.
fn first_line(word: &str) -> String {
    match word.split_once('\n') {
        Some((line, _)) => format!("{line}…"),
        None => word.to_owned(),
    }
}

fn failure(command: &Command, output: &Output) -> Error {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let command = words.map(|word| first_line(&word.to_string_lossy())).collect::<Vec<_>>().join(" ");
    let mut stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if stderr.is_empty() {
        stderr = text(output);
    }
    Error::Command { command, status: output.status, stderr }
}

//! What a command writes: its output, reports about a configuration, and the log of what runs.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;

/// Output of a command. Unlike other errors, a closed pipe ends the program quietly.
pub(crate) fn output(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::ClosedOutput,
        _ => Failure::Message(format!("cannot write: {error}")),
    })
}

/// Writes `text` to standard output.
pub(crate) fn print(text: impl fmt::Display) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    output(write!(stdout, "{text}").and_then(|()| stdout.flush()))
}

/// Writes a report to standard error, with colours on a terminal whose user did not refuse them.
pub(crate) fn complain(report: &config::Report) {
    if !report.is_empty() {
        let styled =
            io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let _ = writeln!(io::stderr(), "{}\n", report.render(styled));
    }
}

//! What a command writes: its output, once or again and again, and reports about a configuration.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

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

/// A text that came from elsewhere, as one line that does nothing to a terminal: what cannot be seen is `\x1b`.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            for octet in character.encode_utf8(&mut [0; 4]).bytes() {
                shown.push_str(&format!("\\x{octet:02x}"));
            }
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A message, which does not control the terminal, whatever a peer may have said of itself.
pub(crate) fn printable(message: &str) -> String {
    let characters = message.chars();
    characters
        .flat_map(|c| c.is_control().then(|| c.escape_default()).map_or(vec![c], Iterator::collect))
        .collect()
}

/// Writes a report to standard error, with colours on a terminal whose user did not refuse them.
pub(crate) fn complain(report: &config::Report) {
    if !report.is_empty() {
        let styled =
            io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let _ = writeln!(io::stderr(), "{}\n", report.render(styled));
    }
}

/// How often `--watch` asks.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Whether a user sits there who can be shown a screen.
pub(crate) fn is_interactive() -> bool {
    let can_move = std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb");
    io::stdout().is_terminal() && io::stdin().is_terminal() && can_move
}

/// How wide lines may be: as wide as the terminal, or as they like where it is none, or knows no width.
pub(crate) fn columns() -> usize {
    let size = io::stdout().is_terminal().then(crossterm::terminal::size);
    let columns = size.and_then(Result::ok).map(|(columns, _)| columns).filter(|columns| *columns > 0);
    columns.unwrap_or(u16::MAX).into()
}

/// Writes a text, and where it is watched the next after an empty line, and so on. What fails at the start is a mistake;
/// later it may be a daemon that is restarted, which is told in the place of its text.
pub(crate) fn repeat(watch: bool, text: impl Fn() -> Result<String, Failure>) -> Result<(), Failure> {
    print(text()?)?;
    if !watch {
        return Ok(());
    }
    loop {
        std::thread::sleep(INTERVAL);
        match text() {
            Ok(text) => print(text)?,
            Err(failure) => writeln!(io::stderr(), "sidestep: {failure}")?,
        }
    }
}

//! `events`: what has happened, as lines, once or for as long as the user wants to see more.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control::event::{Event, Events};
use control::{Error, Request};
use serde::Serialize;

use crate::failure::Failure;
use crate::terminal::print;

/// How often `--follow` asks.
const INTERVAL: Duration = Duration::from_millis(200);

/// An event, and what it happened to.
#[derive(Serialize)]
struct Line<'e> {
    /// The tunnel, or `gateway-…` or `scripts-…` with the number of their network namespace.
    source: &'e str,
    #[serde(flatten)]
    event: &'e Event,
}

/// Shows the events of one daemon, or of all that run.
pub(crate) fn run(socket: Option<PathBuf>, json: bool, follow: bool) -> Result<(), Failure> {
    // Of each the run and the number up to which its events were shown.
    let mut shown: BTreeMap<PathBuf, (u64, u64)> = BTreeMap::new();
    let mut first = true;
    loop {
        let sockets = socket.clone().map_or_else(all, |socket| vec![socket]);
        let mut new = Vec::new();
        // None is to be found, or not by this user.
        let missing = || control::find(control::FOLDER.as_ref()).err();
        let mut failed = (first && sockets.is_empty()).then(missing).flatten();
        for socket in sockets {
            match read(&socket, &mut shown) {
                Ok(events) => new.extend(events.into_iter().map(|event| (name(&socket), event))),
                Err(error) => failed = Some(error),
            }
        }
        // Something that is not there at the start is a mistake; later it may be one that is restarted.
        if let Some(error) = failed.filter(|_| first && shown.is_empty()) {
            return Err(error.into());
        }
        new.sort_by_key(|(_, event)| event.unix_ms);
        for (source, event) in &new {
            let line = Line { source, event };
            if json {
                print(format_args!("{}\n", serde_json::to_string(&line)?))?;
            } else {
                print(format_args!("{}\n", text(&line)))?;
            }
        }
        if !follow {
            return Ok(());
        }
        first = false;
        std::thread::sleep(INTERVAL);
    }
}

/// What came since; all, where the daemon is another than before.
pub(crate) fn read(socket: &Path, shown: &mut BTreeMap<PathBuf, (u64, u64)>) -> Result<Vec<Event>, Error> {
    let ask = |after| {
        let answer = control::ask(socket, &Request::Events { after })?;
        serde_json::from_value::<Events>(answer)
            .map_err(|source| Error::Malformed { path: socket.to_owned(), source })
    };
    let (run, last) = shown.get(socket).copied().unwrap_or_default();
    let mut answer = ask(last)?;
    if last > 0 && answer.run != run {
        answer = ask(0)?;
    }
    let last = if answer.run == run { last } else { 0 };
    let last = answer.events.last().map_or(last, |event| event.number);
    shown.insert(socket.to_owned(), (answer.run, last));
    Ok(answer.events)
}

/// All sockets that events can come from.
fn all() -> Vec<PathBuf> {
    let mut sockets = control::sockets(control::FOLDER.as_ref());
    let others = [control::socket_of_gateway(), control::socket_of_scripts()];
    sockets.extend(others.into_iter().flatten().filter(|socket| control::is_there(socket)));
    sockets.sort();
    sockets
}

/// What is told of where an event happened: the name of its socket.
pub(crate) fn name(socket: &Path) -> String {
    socket.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// A message, which does not control the terminal, whatever a peer may have said of itself.
pub(crate) fn printable(message: &str) -> String {
    let characters = message.chars();
    characters
        .flat_map(|c| c.is_control().then(|| c.escape_default()).map_or(vec![c], Iterator::collect))
        .collect()
}

/// One line.
fn text(line: &Line<'_>) -> String {
    let Line { source, event } = line;
    let shown = printable(&event.message);
    format!("{}  {:<7}  {source}  {:<14}  {shown}", event.time, event.priority, event.event)
}

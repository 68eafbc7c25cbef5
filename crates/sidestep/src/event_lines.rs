//! `events`: what has happened, as lines, once or for as long as the user wants to see more.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use control::event::{Event, Events};
use control::{Error, Request};
use serde::Serialize;

use crate::failure::Failure;
use crate::syslog::Syslog;
use crate::terminal::print;

/// How often `--follow` asks.
const INTERVAL: Duration = Duration::from_millis(200);
/// How long it waits for what one daemon says, before it shows what the others do.
const GRACE: Duration = Duration::from_secs(2);

/// An event, and what it happened to.
#[derive(Serialize)]
struct Line<'e> {
    /// The tunnel, or `gateway-…` or `scripts-…` with the number of their network namespace.
    source: &'e str,
    #[serde(flatten)]
    event: &'e Event,
}

/// The run of a daemon, and the number up to which its events were shown.
type Shown = (u64, u64);

/// What a daemon has answered: its new events, and what was shown with them.
type Answer = Result<(Vec<Event>, Shown), Error>;

/// How events are told.
pub(crate) enum To {
    /// As lines, for people.
    Text,
    /// As documents, a line each.
    Json,
    /// As messages, to a server: only what happens from now on.
    Syslog(Syslog),
}

impl To {
    fn tell(&self, line: &Line<'_>) -> Result<(), Failure> {
        match self {
            To::Text => Ok(print(format_args!("{}\n", text(line)))?),
            To::Json => Ok(print(format_args!("{}\n", serde_json::to_string(line)?))?),
            To::Syslog(syslog) => {
                // Of a network that is away for a moment there will be more to tell.
                if let Err(error) = syslog.send(line.source, line.event) {
                    writeln!(io::stderr(), "sidestep: an event was not sent: {error}")?;
                }
                Ok(())
            }
        }
    }
}

/// Shows the events of one daemon, or of all that run. Exit status 1 where one that runs does not tell its own.
pub(crate) fn run(socket: Option<PathBuf>, to: &To, follow: bool) -> Result<ExitCode, Failure> {
    let mut asked = Asked::new();
    let mut gone = BTreeSet::new();
    let mut is_all = true;
    let mut first = true;
    loop {
        let sockets = socket.clone().map_or_else(all, |socket| vec![socket]);
        // None is to be found, or not by this user.
        let missing = || control::find(control::FOLDER.as_ref()).err();
        let mut failed: Vec<_> = (first && sockets.is_empty()).then(missing).flatten().into_iter().collect();
        let mut new = Vec::new();
        for (socket, answer) in asked.ask(sockets, follow.then_some(GRACE)) {
            match answer {
                Ok(events) => {
                    gone.remove(&socket);
                    new.extend(events.into_iter().map(|event| (name(&socket), event)));
                }
                // One that is killed says nothing itself.
                Err(error) if asked.shown.contains_key(&socket) => {
                    if gone.insert(socket) {
                        writeln!(io::stderr(), "sidestep: {error}; its events go on when it is back")?;
                    }
                }
                Err(error) => failed.push(error),
            }
        }
        for socket in asked.newly_late() {
            let shown = socket.display();
            writeln!(io::stderr(), "sidestep: {shown}: no answer yet: its events come when it answers")?;
        }
        // Something that is not there at the start is a mistake; later it may be one that is restarted.
        if first && asked.nobody_has_answered() && !failed.is_empty() {
            return Err(failed.remove(0).into());
        }
        // Of one that has ended there are no events to miss.
        for error in failed.iter().filter(|error| first && !matches!(error, Error::NotRunning { .. })) {
            is_all = false;
            writeln!(io::stderr(), "sidestep: events are missing: {error}")?;
        }
        new.sort_by_key(|(_, event)| event.unix_ms);
        if first && matches!(to, To::Syslog(_)) {
            new.clear();
        }
        for (source, event) in &new {
            to.tell(&Line { source, event })?;
        }
        if !follow {
            return Ok(if is_all { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        first = false;
        std::thread::sleep(INTERVAL);
    }
}

/// Daemons that are asked, each by a thread of its own: one that hangs does not hold up what the others say.
struct Asked {
    shown: BTreeMap<PathBuf, Shown>,
    /// Those that have not answered yet.
    waits: BTreeSet<PathBuf>,
    /// Those that did not answer in time, since they last did.
    late: BTreeSet<PathBuf>,
    send: Sender<(PathBuf, Answer)>,
    answers: Receiver<(PathBuf, Answer)>,
}

impl Asked {
    fn new() -> Self {
        let (send, answers) = channel();
        let (shown, waits, late) = Default::default();
        Asked { shown, waits, late, send, answers }
    }

    /// Asks each that has nothing left to answer for what came since, and returns what was answered within this time; without
    /// one, all. Those that are late already are not waited for.
    fn ask(
        &mut self,
        sockets: Vec<PathBuf>,
        within: Option<Duration>,
    ) -> Vec<(PathBuf, Result<Vec<Event>, Error>)> {
        for socket in sockets {
            if self.waits.insert(socket.clone()) {
                let (send, shown) = (self.send.clone(), self.shown.get(&socket).copied());
                std::thread::spawn(move || {
                    let answer = ask(&socket, shown.unwrap_or_default());
                    let _ = send.send((socket, answer));
                });
            }
        }
        let end = within.map(|within| Instant::now() + within);
        let mut answered = Vec::new();
        loop {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let answer = match (self.waits.is_subset(&self.late), left) {
                (true, _) => self.answers.try_recv().ok(),
                (false, Some(left)) => self.answers.recv_timeout(left).ok(),
                (false, None) => self.answers.recv().ok(),
            };
            let Some((socket, answer)) = answer else { return answered };
            self.waits.remove(&socket);
            let events = answer.map(|(events, shown)| {
                self.late.remove(&socket);
                self.shown.insert(socket.clone(), shown);
                events
            });
            answered.push((socket, events));
        }
    }

    /// Those that are late now, and were not before.
    fn newly_late(&mut self) -> Vec<PathBuf> {
        let new: Vec<_> = self.waits.difference(&self.late).cloned().collect();
        self.late.extend(new.iter().cloned());
        new
    }

    fn nobody_has_answered(&self) -> bool {
        self.shown.is_empty()
    }
}

/// What came since; all, where the daemon is another than before.
pub(crate) fn read(socket: &Path, shown: &mut BTreeMap<PathBuf, Shown>) -> Result<Vec<Event>, Error> {
    let (events, now) = ask(socket, shown.get(socket).copied().unwrap_or_default())?;
    shown.insert(socket.to_owned(), now);
    Ok(events)
}

fn ask(socket: &Path, (run, last): Shown) -> Answer {
    let ask = |after| {
        let answer = control::ask(socket, &Request::Events { after })?;
        serde_json::from_value::<Events>(answer)
            .map_err(|source| Error::Malformed { path: socket.to_owned(), source })
    };
    let mut answer = ask(last)?;
    if last > 0 && answer.run != run {
        answer = ask(0)?;
    }
    let last = if answer.run == run { last } else { 0 };
    let last = answer.events.last().map_or(last, |event| event.number);
    Ok((answer.events, (answer.run, last)))
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

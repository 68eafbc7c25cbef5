//! Asking the script host, and starting it.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use super::list;
use super::measure::measure;
use crate::failure::Failure;
use crate::terminal::visible;
use config::attachment::Attachment;
use control::Error;
use script_host::protocol::{LogLine, Logs, Request, Scripts, Traces};
use script_host::supervisor::{answers, wait_for};

/// How often news are asked for.
const FOLLOW: Duration = Duration::from_millis(200);
/// How long a host that is ending may take before it is looked for again.
const ENDING: Duration = Duration::from_millis(20);

/// `script load`
pub(super) fn load(socket: &Path, mut attachment: Attachment, out: &mut dyn Write) -> Result<(), Failure> {
    attachment.check().map_err(|error| Failure::Message(format!("{}: {error}", error.key())))?;
    attachment.file = absolute(&attachment.file)?;
    let request = Request::Load { script: Box::new(attachment.clone()) };
    let answer = loop {
        if !answers(socket) {
            start_in_background(socket)?;
        }
        match script_host::ask(socket, &request) {
            Ok(answer) => break answer,
            // It was about to end when it was asked: another is started, when it has.
            Err(Error::NotRunning { .. } | Error::Io { .. }) if !answers(socket) => {}
            Err(Error::Refused(why)) if why == control::ENDING => std::thread::sleep(ENDING),
            Err(error) => return Err(error.into()),
        }
    };
    let id = &answer["id"];
    let (file, hook) = (attachment.file.display(), attachment.hook.name());
    writeln!(out, "{file}: script {id} at {hook}")?;
    Ok(())
}

/// `script unload`
pub(super) fn unload(socket: &Path, target: &str, out: &mut dyn Write) -> Result<(), Failure> {
    let ids: Vec<u32> = ask(socket, &Request::Unload { target: meant(target) })?;
    writeln!(out, "unloaded: {}", numbers(&ids))?;
    Ok(())
}

/// `script reload`
pub(super) fn reload(socket: &Path, target: &str, out: &mut dyn Write) -> Result<(), Failure> {
    let ids: Vec<u32> = ask(socket, &Request::Reload { target: meant(target) })?;
    writeln!(out, "loaded anew: {}", numbers(&ids))?;
    Ok(())
}

/// `script list`; without a host there are no scripts.
pub(super) fn list(
    socket: &Path,
    time: Option<Duration>,
    json: bool,
    out: &mut dyn Write,
) -> Result<io::Result<()>, Failure> {
    let ask = || match script_host::ask(socket, &Request::List) {
        Ok(scripts) => Ok(serde_json::from_value(scripts)?),
        Err(error) if is_ended(&error) => Ok(Scripts::default()),
        Err(error) => Err(Failure::from(error)),
    };
    let (scripts, measured) = match time {
        Some(time) => measure(time, ask)?,
        None => (ask()?, Vec::new()),
    };
    if !json {
        return Ok(write!(out, "{}", list::text(&scripts, &measured)));
    }
    Ok(writeln!(out, "{}", serde_json::to_string_pretty(&list::document(&scripts, &measured))?))
}

/// `script logs`
pub(super) fn logs(
    socket: &Path,
    follow: bool,
    json: bool,
    out: &mut dyn Write,
) -> Result<io::Result<()>, Failure> {
    let mut after = 0;
    loop {
        let logs = with_lost(ask(socket, &Request::Logs { after })?, after);
        after = logs.last;
        for line in &logs.lines {
            let written = match json {
                true => writeln!(out, "{}", serde_json::to_string(line)?),
                false => {
                    let text = visible(&line.text);
                    writeln!(out, "{} script {}: {text}", list::time(line.unix_ms), line.id)
                }
            };
            if written.is_err() {
                return Ok(written);
            }
        }
        if !follow {
            return Ok(out.flush());
        }
        std::thread::sleep(FOLLOW);
    }
}

/// Lines behind that of the number `after`, with one that stands for those that are kept no more.
fn with_lost(mut logs: Logs, after: u64) -> Logs {
    let lost = logs.last.saturating_sub(after).saturating_sub(logs.lines.len() as u64);
    // The first answer begins with what is kept.
    if let Some(first) = logs.lines.first().filter(|_| after > 0 && lost > 0) {
        let text = format!("{lost} lines are lost: they came faster than they were read");
        let fields = [("lost".to_owned(), lost.into())].into_iter().collect();
        logs.lines.insert(0, LogLine { unix_ms: first.unix_ms, id: 0, text, fields });
    }
    logs
}

/// Which packets are followed.
pub(super) struct Wanted {
    pub(super) id: u32,
    pub(super) rule: String,
    pub(super) count: u32,
    pub(super) timeout: Duration,
    pub(super) json: bool,
}

/// `script trace`: until all packets were followed, or the time is over.
pub(super) fn trace(socket: &Path, wanted: Wanted, out: &mut dyn Write) -> Result<io::Result<()>, Failure> {
    let Wanted { id, rule, count, timeout, json } = wanted;
    let time_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let trace: u64 = ask(socket, &Request::Trace { id, rule, count, time_ms })?;
    let deadline = Instant::now() + timeout;
    let (mut told, mut missing) = (0, 0);
    loop {
        // The host may be the first to find that it is over.
        let is_late = Instant::now() + FOLLOW >= deadline;
        let traces: Traces = ask(socket, &Request::Traced { id, trace })?;
        for traced in &traces.packets {
            let written = match json {
                true => writeln!(out, "{}", serde_json::to_string(traced)?),
                false => write!(out, "{}", list::traced(traced)),
            };
            if written.is_err() {
                return Ok(written);
            }
            // What is handed over comes again, from Lua.
            told += u32::from(traced.verdict.is_some());
        }
        if let Err(closed) = out.flush() {
            return Ok(Err(closed));
        }
        if traces.lost > missing {
            missing = traces.lost;
            eprintln!("{missing} records are lost: the kernel told them faster than they were read");
        }
        if told >= count {
            return Ok(Ok(()));
        }
        if is_late || !traces.goes_on && traces.packets.is_empty() {
            let packets =
                if told == 0 { "no packet".to_owned() } else { format!("{told} of {count} packets") };
            let when = match is_late {
                true => format!("within {timeout:?}"),
                false => "before the trace ended: the script was loaded anew, or somebody else follows it"
                    .to_owned(),
            };
            return Err(Failure::Message(format!("{packets} came to script {id} {when}")));
        }
        std::thread::sleep(FOLLOW);
    }
}

pub(super) fn ask<T: DeserializeOwned>(socket: &Path, request: &Request) -> Result<T, Failure> {
    let answer = script_host::ask(socket, request).map_err(|error| {
        if is_ended(&error) {
            let path = socket.display();
            return Failure::Message(format!("no scripts are loaded: nothing answers on {path}"));
        }
        Failure::from(error)
    })?;
    Ok(serde_json::from_value(answer)?)
}

/// Whether there is no host, or one that was about to end when it was asked.
fn is_ended(error: &Error) -> bool {
    match error {
        Error::NotRunning { .. } => true,
        Error::Refused(why) => why == control::ENDING,
        _ => false,
    }
}

/// A number, or the path of a file as the host knows it.
pub(super) fn meant(target: &str) -> String {
    match target.parse::<u32>() {
        Ok(_) => target.to_owned(),
        // A file that is gone is still known by its name.
        Err(_) => absolute(Path::new(target))
            .or_else(|_| std::path::absolute(target))
            .map_or_else(|_| target.to_owned(), |path| path.display().to_string()),
    }
}

fn absolute(file: &Path) -> io::Result<std::path::PathBuf> {
    file.canonicalize().map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", file.display())))
}

fn numbers(ids: &[u32]) -> String {
    let texts: Vec<String> = ids.iter().map(|id| format!("script {id}")).collect();
    texts.join(", ")
}

/// Starts a host that ends with its last script, and waits until it answers. What it says goes to a file beside its
/// socket.
fn start_in_background(socket: &Path) -> Result<(), Failure> {
    let path = socket.with_extension("log");
    let about = |error: io::Error| Failure::Message(format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(about)?;
    }
    let log = File::create(&path).map_err(about)?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["script", "serve", "--background", "--socket"]).arg(socket);
    let mut child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
    wait_for(socket, &mut child).map_err(|silence| {
        let said = std::fs::read_to_string(&path).unwrap_or_default();
        let last = said.lines().last().unwrap_or("it said nothing");
        Failure::Message(format!("the script host {silence}: {}", last.trim_start_matches("sidestep: ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_missed_are_told() {
        let line = LogLine { unix_ms: 5, id: 1, text: "kept".to_owned(), fields: serde_json::Map::new() };
        let logs = |last| Logs { lines: vec![line.clone(), line.clone()], last };
        for (last, after) in [(7, 0), (7, 5), (3, 9)] {
            assert_eq!(with_lost(logs(last), after).lines.len(), 2, "{last} {after}");
        }
        let told = with_lost(logs(7), 2);
        assert_eq!((told.lines.len(), told.last, &told.lines[0].fields["lost"]), (3, 7, &3.into()));
        assert!(told.lines[0].text.starts_with("3 lines are lost"));
    }
}

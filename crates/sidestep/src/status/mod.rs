//! `sidestep status`: what a gateway says about itself.

pub(crate) mod text;

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::show::table::Choice;
use crate::terminal;
use crate::watch::{self, Source, Tab, Tunnels};
use control::Request;
use control::router_status::Status;

/// Shows the status of the gateway of this network namespace, or of the one that listens at `socket`.
pub(crate) fn run(socket: Option<PathBuf>, json: bool, watch: bool) -> Result<(), Failure> {
    let socket = match socket {
        Some(socket) => socket,
        None => of_this_machine()?,
    };
    if watch && !json && terminal::is_interactive() {
        return watch::run(Source::new(Tunnels::All, Some(socket)), Tab::Gateway, Choice::default());
    }
    let end = if watch { "\n" } else { "" };
    terminal::repeat(watch, || {
        Ok(if json { shown_as_json(&socket, watch)? } else { text::describe(&ask(&socket)?) + end })
    })
}

/// The gateway's socket. Where tunnels run and no gateway does, that is no fault of theirs.
fn of_this_machine() -> Result<PathBuf, Failure> {
    let socket = control::socket_of_gateway()?;
    let tunnels = control::sockets(control::FOLDER.as_ref());
    if control::is_there(&socket) || tunnels.is_empty() {
        return Ok(socket);
    }
    let names: Vec<_> =
        tunnels.iter().filter_map(|tunnel| tunnel.file_stem()).map(|name| name.to_string_lossy()).collect();
    let names = names.join(", ");
    Err(Failure::Message(format!(
        "no gateway runs here, but tunnels do ({names}): `sidestep show` shows them"
    )))
}

/// On one line each where there are many.
fn shown_as_json(socket: &Path, one_line: bool) -> Result<String, Failure> {
    let value = control::ask(socket, &Request::Show)?;
    let text = if one_line { serde_json::to_string(&value)? } else { serde_json::to_string_pretty(&value)? };
    Ok(text + "\n")
}

fn ask(socket: &Path) -> Result<Status, control::Error> {
    let value = control::ask(socket, &Request::Show)?;
    serde_json::from_value(value)
        .map_err(|source| control::Error::Malformed { path: socket.to_owned(), source })
}

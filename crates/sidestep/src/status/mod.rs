//! `sidestep status`: what a gateway says about itself.

mod screen;
mod text;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::terminal::print;
use control::Request;
use control::router_status::Status;
use screen::View;

use crate::show::follow::INTERVAL;
use crate::show::follow::follow;

/// Shows the status of the gateway of this network namespace, or of the one that listens at `socket`.
pub(crate) fn run(socket: Option<PathBuf>, json: bool, watch: bool) -> Result<(), Failure> {
    let socket = match socket {
        Some(socket) => socket,
        None => control::socket_of_gateway()?,
    };
    if watch && !json && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return follow(View::default(), || ask(&socket));
    }
    loop {
        let shown = if json { shown_as_json(&socket, watch)? } else { text::describe(&ask(&socket)?) };
        print(&shown)?;
        if !watch {
            return Ok(());
        }
        io::stdout().flush()?;
        std::thread::sleep(INTERVAL);
    }
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

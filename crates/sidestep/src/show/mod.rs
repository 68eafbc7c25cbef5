//! `show`: the status as text, JSON, and a screen that follows it.

pub(crate) mod follow;
mod screen;
pub(crate) mod text;

use std::io::{self, IsTerminal};
use std::path::Path;

use crate::failure::Failure;
use crate::terminal::print;
use control::Request;
use control::tunnel_status::Status;

pub(crate) use text::describe;

/// Shows the status of the daemon that listens at `socket`, once or until the user has seen enough.
pub(crate) fn run(socket: &Path, json: bool, watch: bool) -> Result<(), Failure> {
    if watch && !json && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return follow::follow(screen::View::default(), || ask(socket));
    }
    loop {
        if json {
            let value = control::ask(socket, &Request::Show)?;
            // On one line each where there are many.
            let text =
                if watch { serde_json::to_string(&value)? } else { serde_json::to_string_pretty(&value)? };
            print(format_args!("{text}\n"))?;
        } else {
            let status = ask(socket)?;
            print(describe(&status))?;
            print(obstacles(&status))?;
        }
        if !watch {
            return Ok(());
        }
        std::thread::sleep(follow::INTERVAL);
        if !json {
            print("\n")?;
        }
    }
}

/// What stands in the tunnel's way on this machine, as far as its configuration can be read: a line each.
fn obstacles(status: &Status) -> String {
    let Ok(config) = config::load(status.file.as_ref()) else { return String::new() };
    let routes = config.gateway.is_some();
    let found =
        config.tunnel.map_or_else(Vec::new, |tunnel| tunnel_runtime::obstacles::find(&tunnel, routes));
    found.iter().map(|found| format!("\nWARNING: {} ({})\n", found.says, found.code)).collect()
}

fn ask(socket: &Path) -> Result<Status, control::Error> {
    let value = control::ask(socket, &Request::Show)?;
    if value.get("remotes").is_some() {
        return Err(control::Error::OtherKind { path: socket.to_owned(), command: "ipsec status" });
    }
    serde_json::from_value(value)
        .map_err(|source| control::Error::Malformed { path: socket.to_owned(), source })
}

//! `sidestep down` and `sidestep close`: what there is instead of a tunnel.

use std::path::Path;
use std::time::{Duration, Instant};

use control::Request;

use crate::failure::Failure;
use crate::load::load_tunnel;
use crate::terminal::print;

/// Longer than a daemon takes to end.
const PATIENCE: Duration = Duration::from_secs(40);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Ends the daemon at this socket if there is one. What it carried stays closed, unless it is to be open.
pub(crate) fn run(socket: &Path, open: bool) -> Result<(), Failure> {
    let ended = match control::ask(socket, &Request::Down) {
        Ok(_) => true,
        // What an ended tunnel has left can still be opened.
        Err(control::Error::NotRunning { .. }) if open => false,
        Err(error) => return Err(error.into()),
    };
    let deadline = Instant::now() + PATIENCE;
    while !matches!(control::ask(socket, &Request::Show), Err(control::Error::NotRunning { .. })) {
        if Instant::now() > deadline {
            return Err(Failure::Message(format!("{}: the daemon does not end", socket.display())));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    let name = socket.display();
    if !open {
        return print(format_args!("{name}: down; what it carried is refused (--open ends that)\n"));
    }
    let routes = tunnel_runtime::open_up(socket)?;
    match (ended, routes) {
        (false, 0) => {
            let what = "there is no tunnel of this name, and none has left anything closed: `ls /run/sidestep` shows those that there are";
            Err(Failure::Message(format!("{name}: {what}")))
        }
        _ => print(format_args!("{name}: down; what it carried leaves in clear, where other routes lead\n")),
    }
}

/// Closes what the tunnel of a configuration carries, before its first start.
pub(crate) fn close(file: &Path) -> Result<(), Failure> {
    let config = load_tunnel(file)?;
    let socket = control::socket_of(&config.tunnel.name);
    let routes = tunnel_runtime::close(&config, &socket)?;
    print(format_args!("{}: {routes} routes refuse what it is to carry\n", file.display()))
}

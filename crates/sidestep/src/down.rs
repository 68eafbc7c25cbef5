//! `sidestep down` and `sidestep close`: what there is instead of a tunnel.

use std::path::Path;
use std::time::{Duration, Instant};

use control::Request;
use tunnel_runtime::Opened;

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
    if !open && !tunnel_runtime::is_closed(socket) {
        return print(format_args!("{name}: down; it keeps nothing closed\n"));
    }
    if !open {
        return print(format_args!("{name}: down; what it carried is refused (--open ends that)\n"));
    }
    let Opened { count, others } = tunnel_runtime::open_up(socket)?;
    if !ended && count == 0 {
        let what = "there is no tunnel of this name, and none has left anything closed: `ls /run/sidestep` shows those that there are";
        return Err(Failure::Message(format!("{name}: {what}")));
    }
    print(format_args!("{name}: down; what it carried leaves in clear, where other routes lead\n"))?;
    for other in others {
        let shown = other.display();
        match control::ask(&other, &Request::Show) {
            Err(control::Error::NotRunning { .. }) => print(format_args!(
                "{shown}: had some of it closed, too, and has that no more; for the rest `sidestep down --socket {shown} --open`\n"
            ))?,
            _ => print(format_args!("{shown}: carries some of it, is up, and keeps that closed\n"))?,
        }
    }
    Ok(())
}

/// Closes what the tunnel of a configuration carries, before its first start; while it is up it does so itself.
pub(crate) fn close(file: &Path) -> Result<(), Failure> {
    let config = load_tunnel(file)?;
    let socket = control::socket_of(&config.tunnel.name);
    let file = file.display();
    match tunnel_runtime::close(&config, &socket)? {
        Some(routes) => print(format_args!("{file}: {routes} routes refuse what it is to carry\n")),
        None => {
            let name = config.tunnel.name;
            print(format_args!(
                "{file}: {name} is up, and keeps closed what it carries: nothing is changed\n"
            ))
        }
    }
}

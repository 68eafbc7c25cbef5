//! `sidestep ipsec`: tunnels of IPsec.

mod text;

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use control::Request;
use control::ipsec_status::Status;
use ipsec_proxy::forward::Forward;
use ipsec_proxy::passwords::Passwords;
use ipsec_proxy::place::Place;
use ipsec_proxy::proxy::{Entrances, Options};
use ipsec_runtime::{Error, UpOptions};
use linux::event::Signals;
use linux::jail::Jail;
use tunnel_runtime::rootless;

use crate::down;
use crate::failure::Failure;
use crate::load::not_loaded;
use crate::terminal::{INTERVAL, complain, print};

/// Run a tunnel of IPsec, with IKEv2 for its keys
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  sidestep ipsec up /etc/sidestep/site-a.toml\n  \
                        sidestep ipsec run laptop.toml -- curl https://intranet.example.org")]
pub(crate) enum IpsecCommand {
    /// Bring a tunnel up and run it, in the foreground
    ///
    /// Needs root: it makes a TUN device, and listens on UDP ports 500 and 4500. SIGHUP reads the configuration again: all of
    /// it, or nothing, is in force then. SIGTERM and SIGINT end it. What the tunnel is to carry is refused before it is up
    /// and after its end, also after a crash, so that none of it leaves in clear: `sidestep ipsec down --open` ends that.
    #[command(after_help = "Examples:\n  sidestep ipsec up /etc/sidestep/site-a.toml")]
    Up {
        /// The configuration
        file: PathBuf,
        /// The control socket, by default /run/sidestep/NAME.sock with the tunnel's name
        #[arg(long, value_name = "PATH", value_parser = crate::new_socket::parse)]
        socket: Option<PathBuf>,
    },
    /// Run a program whose only way out is the tunnel; without root
    ///
    /// The file describes a tunnel of IPsec ([ipsec], [[remote]]) or a moving one ([node], [[peer]]), whose hop_prefix is this
    /// host's own. The program has a network namespace of its own, with one device in it: addresses and DNS servers are those
    /// that the remote gives, or [tunnel] addresses and --dns. When the tunnel is not there, nothing leaves. When sidestep ends, so does the program. Exit status is the
    /// program's; 126 and 127 if it cannot be run, 1 if there is no tunnel.
    #[command(
        after_help = "Examples:\n  sidestep ipsec run laptop.toml -- curl https://intranet.example.org\n  \
                            sidestep ipsec run laptop.toml -- bash"
    )]
    Run {
        /// The configuration
        file: PathBuf,
        /// A server of names behind the tunnel, in place of those that the remote gives; may be given several times
        #[arg(long, value_name = "ADDRESS")]
        dns: Vec<IpAddr>,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        command: Vec<OsString>,
    },
    /// Let programs of this machine into the tunnel by SOCKS5, HTTP CONNECT and forwarded ports; without root
    ///
    /// The file describes a tunnel of IPsec ([ipsec], [[remote]]) or a moving one ([node], [[peer]]), whose hop_prefix is this
    /// host's own. There is no device: connections end here, and begin again in a host of sidestep's own whose only way out is
    /// the tunnel. SOCKS5 carries datagrams, too (UDP ASSOCIATE). Names are asked of the DNS servers that the remote gives.
    /// When the tunnel is not there, clients wait 20 seconds, and are refused then; nothing leaves outside it. At loopback
    /// addresses, only programs of the same user may come in. SIGTERM and SIGINT end it.
    #[command(after_help = "Examples:
  sidestep ipsec proxy laptop.toml
  sidestep ipsec proxy laptop.toml --socks ./proxy.sock
  sidestep ipsec proxy laptop.toml --http 127.0.0.1:8080 -L 8443:intranet.example.org:443
  curl --proxy socks5h://127.0.0.1:1080 https://intranet.example.org

Without --socks, --http and -L, it is --socks 127.0.0.1:1080 --http 127.0.0.1:8080.")]
    Proxy {
        /// The configuration
        file: PathBuf,
        /// Listen here for SOCKS5; may be given several times. A path, with a slash in it, is a Unix socket of mode 0600
        #[arg(long, value_name = "ADDRESS:PORT|PATH")]
        socks: Vec<Place>,
        /// Listen here for CONNECT of HTTP; may be given several times
        #[arg(long, value_name = "ADDRESS:PORT|PATH")]
        http: Vec<Place>,
        /// Listen at a port here, and connect its clients with a host behind the tunnel; may be given several times. A path in
        /// the place of the port is a Unix socket
        #[arg(short = 'L', value_name = "[BIND:]PORT:HOST:HOSTPORT")]
        forward: Vec<Forward>,
        /// Listen at other addresses than loopback, too: whoever reaches them is inside the tunnel
        #[arg(long)]
        allow_other_hosts: bool,
        /// Let programs of all users of this machine in, and not only those of the user who runs the proxy
        #[arg(long)]
        any_user: bool,
        /// A file of mode 0600 with lines NAME:PASSWORD: clients of SOCKS and HTTP have to say one, whoever they are
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// A server of names behind the tunnel, in place of those that the remote gives; may be given several times
        #[arg(long, value_name = "ADDRESS")]
        dns: Vec<IpAddr>,
    },
    /// Show a tunnel, its remotes, their IKE SAs and children
    #[command(after_help = "Examples:\n  sidestep ipsec status\n  sidestep ipsec status site-a --watch\n  \
                            sidestep ipsec status --json | jq '.remotes[] | {name, state}'")]
    Status {
        /// Name of the tunnel; not needed if only one is up
        #[arg(value_name = "NAME", conflicts_with = "socket")]
        tunnel: Option<String>,
        /// Its control socket, by default /run/sidestep/NAME.sock
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
        /// Again every second
        #[arg(long)]
        watch: bool,
    },
    /// End a tunnel; what it carried stays closed
    #[command(after_help = "Examples:\n  sidestep ipsec down site-a\n  \
                            sidestep ipsec down site-a --open      in clear from now on, also where it has ended already")]
    Down {
        /// Name of the tunnel; not needed if only one is up
        #[arg(value_name = "NAME", conflicts_with = "socket")]
        tunnel: Option<String>,
        /// Its control socket, by default /run/sidestep/NAME.sock
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Lets packets for the remotes' networks leave in clear
        #[arg(long)]
        open: bool,
    },
}

impl IpsecCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Up { file, socket } => {
                // First: who asks it to read its file again, which it is just reading, must not end it.
                let signals = Signals::new()?;
                let config = config::ipsec::load(&file).map_err(|error| not_loaded(&file, error))?;
                complain(&config.warnings);
                events::start_log();
                let options = UpOptions { file: file.clone(), socket };
                ipsec_runtime::up(&options, &signals, config).map_err(|error| told(&file, error))?;
            }
            Self::Run { file, dns, command } => {
                let signals = Signals::new()?;
                events::start_log();
                // Before a key is read, which the file may have in it.
                let jail = Jail::start(&command)?;
                let status = if config::ipsec::is_ipsec(&file) {
                    ipsec_runtime::run(jail, &file, &dns, &signals).map_err(|error| told(&file, error))?
                } else {
                    rootless::run(jail, &file, &dns, &signals)
                        .map_err(|error| told_of_moving(&file, error))?
                };
                return Ok(ExitCode::from(status));
            }
            Self::Proxy { file, socks, http, forward, allow_other_hosts, any_user, password_file, dns } => {
                let entrances = entrances(socks, http, forward);
                if !allow_other_hosts {
                    entrances.must_be_loopback().map_err(|error| {
                        Failure::Message(format!("{error}; if that is meant, say --allow-other-hosts"))
                    })?;
                }
                let passwords = password_file.as_deref().map(Passwords::load).transpose();
                let passwords = passwords.map_err(|error| Failure::Message(error.to_string()))?;
                let options = Options { entrances, passwords, any_user };
                let signals = Signals::new()?;
                events::start_log();
                ipsec_proxy::tunnel::run(&file, options, dns, &signals).map_err(|error| match error {
                    ipsec_proxy::Error::File(error) => not_loaded(&file, error),
                    ipsec_proxy::Error::Moving(error) => told_of_moving(&file, error),
                    ipsec_proxy::Error::Kernel(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                        is_not_ours(&file, &error.to_string())
                    }
                    error => error.into(),
                })?;
            }
            Self::Status { tunnel, socket, json, watch } => show(&path(tunnel, socket)?, json, watch)?,
            Self::Down { tunnel, socket, open } => down::run(&path(tunnel, socket)?, open)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Where clients come to if nothing else is said.
fn entrances(socks: Vec<Place>, http: Vec<Place>, forwards: Vec<Forward>) -> Entrances {
    if socks.is_empty() && http.is_empty() && forwards.is_empty() {
        let at = |port| vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()];
        return Entrances { socks: at(1080), http: at(8080), forwards };
    }
    Entrances { socks, http, forwards }
}

fn told(file: &Path, error: Error) -> Failure {
    match error {
        Error::File(error) => not_loaded(file, error),
        Error::Kernel(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            is_not_ours(file, &error.to_string())
        }
        Error::Io(error) if error.kind() == ErrorKind::AddrNotAvailable => {
            is_not_ours(file, &error.to_string())
        }
        error => error.into(),
    }
}

/// The kernel does not bind a socket to an address that it does not have.
fn is_not_ours(file: &Path, error: &str) -> Failure {
    Failure::Message(format!(
        "{}: `address` in [ipsec] is not an address of this machine: write one that `ip address` shows, or leave it out \
         ({error})",
        file.display()
    ))
}

fn told_of_moving(file: &Path, error: rootless::Error) -> Failure {
    match error {
        rootless::Error::File(error) => not_loaded(file, error),
        rootless::Error::NotCarried(why) => Failure::Message(format!("{}: {why}", file.display())),
        error => Failure::Message(error.to_string()),
    }
}

fn path(tunnel: Option<String>, socket: Option<PathBuf>) -> Result<PathBuf, control::Error> {
    match (socket, tunnel) {
        (Some(path), _) => Ok(path),
        (None, Some(tunnel)) => Ok(control::socket_of(&tunnel)),
        (None, None) => control::find(control::FOLDER.as_ref()),
    }
}

fn show(socket: &Path, json: bool, watch: bool) -> Result<(), Failure> {
    loop {
        let value = control::ask(socket, &Request::Show)?;
        if value.get("peers").is_some() {
            return Err(control::Error::OtherKind { path: socket.to_owned(), command: "show" }.into());
        }
        let shown = match (json, watch) {
            (true, true) => serde_json::to_string(&value)? + "\n",
            (true, false) => serde_json::to_string_pretty(&value)? + "\n",
            (false, _) => {
                let status: Status = serde_json::from_value(value)
                    .map_err(|source| control::Error::Malformed { path: socket.to_owned(), source })?;
                let clear = if watch && io::stdout().is_terminal() { "\x1b[H\x1b[2J" } else { "" };
                format!("{clear}{}", text::describe(&status))
            }
        };
        print(shown)?;
        if !watch {
            return Ok(());
        }
        io::stdout().flush()?;
        std::thread::sleep(INTERVAL);
    }
}

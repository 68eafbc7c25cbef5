//! The command line: each command and option is declared here once, and help, manual and completions come from it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use clap_complete::engine::ArgValueCandidates;

use config::DurationError;
use config::run::{Feature, RunOptions};
use control::Request;
use linux::event::Signals;

use crate::event_lines::To;
use crate::failure::Failure;
use crate::load::{load, load_tunnel};
use crate::syslog::Syslog;
use crate::terminal::{complain, print};
use crate::{
    agent, check, completion, doctor, down, event_lines, firewall, fleet_control, import_classic, ipsec, key,
    manual, metrics, page, peer, rendezvous, rotate_key, running, script, seal, setup, show, ssh, stack,
    status, tunnel_keys, wrap,
};

/// A tunnel between two IPv6 networks whose outer addresses and ports change every few seconds.
///
/// Two gateways protect two networks; hosts talk through an encrypted tunnel that uses each pair of addresses and ports
/// for some seconds and never again, without a message and without losing a packet.
#[derive(Debug, Parser)]
#[command(name = "sidestep", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Examples:
  umask 077; sidestep genkey > /etc/sidestep/node.key     make a key
  sidestep pubkey < /etc/sidestep/node.key                the public key, which the peer needs
  sidestep check /etc/sidestep/mt6d0.toml                 is the configuration right?
  sidestep up /etc/sidestep/mt6d0.toml                    run, in the foreground
  sidestep show --watch                                   watch it

`sidestep COMMAND --help` says more about each command; `sidestep man | man -l -` shows the manual.")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a private key, and write it to standard output in base64
    #[command(after_help = "Examples:\n  umask 077; sidestep genkey > /etc/sidestep/node.key")]
    Genkey,
    /// Read a private key from standard input, and write its public key
    #[command(after_help = "Examples:\n  sidestep pubkey < /etc/sidestep/node.key")]
    Pubkey,
    /// Make a pre-shared key, to be given to both ends of a pair
    #[command(after_help = "Examples:\n  umask 077; sidestep genpsk > /etc/sidestep/site-b.psk")]
    Genpsk,
    /// Validate a configuration, and say what it would do
    #[command(after_help = "Examples:\n  sidestep check /etc/sidestep/mt6d0.toml\n  \
                            sidestep check ipsec0.toml      a file with [ipsec], for `sidestep ipsec`\n  \
                            sidestep check --base /etc/sidestep - < new.toml    one that is not there yet\n  \
                            sidestep check hub.toml --peer site-b      one of a thousand peers\n\n\
                            Exit status: 0 if it is valid, 1 if not, 3 if it is, but this machine, as it is now,\n\
                            would refuse it: an interface is missing, or a network is its own.")]
    Check(check::CheckOptions),
    /// Bring a tunnel, a gateway, or both up and run them, in the foreground
    ///
    /// SIGHUP (or `sidestep reload`) reads the configuration again; sessions of peers that did not change go on.
    /// SIGTERM and SIGINT end it, which removes what it set up in the kernel, but for what keeps the tunnel closed
    /// (`sidestep down --open`).
    ///
    /// It refuses a configuration that would cut this machine off its own networks, and a firewall that closes the SSH
    /// connection which it is run over. With --confirm it only says so, and ends after this time, unless `sidestep confirm` is
    /// run.
    #[command(after_help = "Examples:\n  sidestep up /etc/sidestep/mt6d0.toml\n  \
                            sidestep up /etc/sidestep/mt6d0.toml --confirm 60s\n  \
                            sidestep up /etc/sidestep/mt6d0.toml --keylog /root/keys      for debugging: keys in a file\n  \
                            systemctl enable --now sidestep@mt6d0      the same, as a service")]
    Up(UpOptions),
    /// Have the running daemon read its configuration again
    ///
    /// With --confirm, the configuration in use comes back after this time, unless `sidestep confirm` is run: a change
    /// that locks its administrator out undoes itself. The file stays as it is. Without it, a tunnel's file is refused that
    /// would close the SSH connection which this is run over.
    #[command(
        after_help = "Examples:\n  sidestep reload\n  sidestep reload mt6d0\n  sidestep reload --confirm 60s\n  \
                            sidestep reload gateway      a gateway without a tunnel, beside a tunnel\n\n\
                            A configuration with an error is refused; the one in use stays in force."
    )]
    Reload {
        #[command(flatten)]
        daemon: Daemon,
        /// Bring back the configuration in use after this time, unless confirmed
        #[arg(long, value_name = "DURATION", value_parser = firewall::time_to_confirm)]
        confirm: Option<Duration>,
    },
    /// Keep what `up --confirm` or `reload --confirm` has brought
    #[command(after_help = "Examples:\n  sidestep confirm\n  sidestep confirm mt6d0\n\n\
                            If the time is over, it fails and says so.")]
    Confirm(Daemon),
    /// End a tunnel; what it carried stays closed
    ///
    /// Packets for the peers' networks are refused from then on, so that none leaves in clear: also after a crash, and
    /// after `systemctl stop`. With --open they go where other routes lead.
    #[command(after_help = "Examples:\n  sidestep down mt6d0\n  \
                            sidestep down mt6d0 --open      in clear from now on, also where it has ended already")]
    Down {
        #[command(flatten)]
        daemon: Daemon,
        /// Lets packets for the peers' networks leave in clear
        #[arg(long)]
        open: bool,
    },
    /// Refuse what a tunnel is to carry, as it is refused after the tunnel's end
    ///
    /// For the time before the first start after a boot: run it before there is a network.
    #[command(after_help = "Examples:\n  sidestep close /etc/sidestep/mt6d0.toml\n  \
                            systemctl enable sidestep-close@mt6d0      at each boot, before the network")]
    Close {
        /// The configuration
        file: PathBuf,
    },
    Show(show::ShowCommand),
    Doctor(doctor::DoctorCommand),
    /// Show what has happened: sessions, peers, prefixes, paths, uplinks, rules, scripts
    ///
    /// The last thousand events of each daemon that runs, of all if none is named. The journal has them, too, with their fields.
    /// Exit status 1 if one of several does not answer.
    #[command(after_help = "Examples:\n  sidestep events\n  sidestep events mt6d0 --follow\n  \
                            sidestep events --follow --json | jq -c 'select(.peer == \"site-b\") | {time, event, reason}'\n  \
                            sidestep events --follow --syslog '[2001:db8:5::10]:514'")]
    Events {
        /// Name of the tunnel
        #[arg(value_name = "NAME", conflicts_with = "socket", add = ArgValueCandidates::new(completion::tunnels))]
        tunnel: Option<String>,
        /// A control socket
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Go on with what happens from now on
        #[arg(long)]
        follow: bool,
        /// Write one JSON document a line; its fields are stable
        #[arg(long)]
        json: bool,
        /// Send what happens from now on to a server of syslog (RFC 5424), by UDP
        #[arg(long, value_name = "ADDRESS:PORT", requires = "follow", conflicts_with = "json")]
        syslog: Option<SocketAddr>,
    },
    /// Show the gateway: uplinks, prefixes, networks, neighbors, routes, firewall, talkers, peers
    #[command(after_help = "Examples:\n  sidestep status\n  sidestep status --watch\n  \
                            sidestep status --json | jq '.uplinks[] | {name, works, prefixes}'")]
    Status {
        /// Its control socket, by default that of the gateway of this network namespace
        #[arg(long, value_name = "PATH")]
        socket: Option<PathBuf>,
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
        /// Refresh every second; q ends it
        #[arg(long)]
        watch: bool,
    },
    Metrics(metrics::MetricsOptions),
    Web(page::WebOptions),
    /// Print where both ends of a pair listen for each other before they have a session
    ///
    /// Rendezvous endpoints follow from the keys and the time. Use this to look for a first contact that fails
    /// in a packet capture.
    #[command(after_help = "Examples:
  sidestep endpoints mt6d0.toml --peer site-b --at $(date +%s000)
  sidestep endpoints mt6d0.toml --peer site-b --at 1700000000000 --count 10 --json")]
    Endpoints {
        /// The configuration of one end
        file: PathBuf,
        /// Name of the peer
        #[arg(long)]
        peer: String,
        /// Time of the first epoch, in milliseconds since 1970
        #[arg(long, value_name = "UNIX_MS")]
        at: u64,
        /// How many epochs of each tier
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=10_000))]
        count: u16,
        /// Write JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a configuration from the files of the published MT6D
    ///
    /// Settings without a counterpart, and unknown ones, are named on standard error.
    #[command(
        after_help = "Examples:\n  umask 077; sidestep import-classic mt6d.ini users ethers profiles > mt6d0.toml"
    )]
    ImportClassic {
        /// Its main file
        ini: PathBuf,
        /// Host names and their IPv6 addresses
        users: PathBuf,
        /// IPv6 addresses and their MAC addresses
        ethers: PathBuf,
        /// Pairs of hosts and their session keys
        profiles: PathBuf,
    },
    /// Associations and policies of a host with IPsec, in the language of setkey(8)
    Key(key::KeyCommand),
    #[command(subcommand)]
    Control(Box<fleet_control::ControlCommand>),
    Init(setup::InitOptions),
    Invite(setup::InviteOptions),
    Join(setup::JoinOptions),
    Enroll(setup::enroll::EnrollOptions),
    Agent(agent::AgentOptions),
    #[command(subcommand)]
    Peer(peer::PeerCommand),
    Wrap(wrap::WrapOptions),
    SealPrefix(seal::SealCommand),
    RotateKey(rotate_key::RotateCommand),
    #[command(subcommand)]
    Firewall(firewall::FirewallCommand),
    #[command(subcommand)]
    Script(script::ScriptCommand),
    #[command(subcommand)]
    Ipsec(ipsec::IpsecCommand),
    #[command(subcommand)]
    Stack(Box<stack::StackCommand>),
    /// Says where the laboratory went: it was part of this program
    #[command(hide = true, disable_help_flag = true)]
    Lab {
        /// Whatever it was given
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Write a script that completes this command line
    #[command(after_help = "Examples:
  sidestep completions bash > /usr/share/bash-completion/completions/sidestep
  sidestep completions zsh > /usr/share/zsh/vendor-completions/_sidestep
  sidestep completions fish > ~/.config/fish/completions/sidestep.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual, for man(1)
    #[command(after_help = "Examples:\n  sidestep man | man -l -\n  \
                            sidestep man > /usr/local/share/man/man1/sidestep.1")]
    Man,
}

/// Which daemon is asked.
#[derive(Debug, Args)]
struct Daemon {
    /// Name of its tunnel; not needed if only one is up
    #[arg(value_name = "NAME", conflicts_with = "socket", add = ArgValueCandidates::new(completion::tunnels))]
    tunnel: Option<String>,
    /// Its control socket, by default /run/sidestep/NAME.sock
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Daemon {
    fn path(self) -> Result<PathBuf, control::Error> {
        match (self.socket, self.tunnel) {
            (Some(path), _) => Ok(path),
            (None, Some(tunnel)) => Ok(control::socket_of(&tunnel)),
            (None, None) => control::find(control::FOLDER.as_ref()),
        }
    }

    /// The same, or the socket of this namespace's gateway: where no tunnel is, or where it is asked for.
    fn path_or_gateway(self) -> Result<PathBuf, control::Error> {
        let gateway = control::socket_of_gateway().ok().filter(|socket| control::is_there(socket));
        let is_asked_for = self.tunnel.as_deref() == Some("gateway");
        match (self.path(), gateway) {
            (Ok(path), Some(gateway)) if is_asked_for && !control::is_there(&path) => Ok(gateway),
            (Err(control::Error::NoSocket(_)), Some(gateway)) => Ok(gateway),
            (result, _) => result,
        }
    }
}

/// Options of `up`.
#[derive(Debug, Clone, Args)]
pub struct UpOptions {
    /// The configuration
    pub file: PathBuf,
    /// The control socket, by default /run/sidestep/NAME.sock with the tunnel's name
    #[arg(long, value_name = "PATH", value_parser = crate::new_socket::parse)]
    pub socket: Option<PathBuf>,
    /// Folder for what is remembered from one run to the next
    #[arg(long, value_name = "DIR", default_value = "/var/lib/sidestep")]
    pub state_dir: PathBuf,
    /// End after this time, and take back what was set up, unless confirmed
    #[arg(long, value_name = "DURATION", value_parser = firewall::time_to_confirm)]
    pub confirm: Option<Duration>,
    /// Write the keys of all lanes to this file, for Wireshark: whoever has it reads the recorded traffic
    #[arg(long, value_name = "FILE")]
    pub keylog: Option<PathBuf>,
    /// Add this to the wall clock, and let the control socket change it (for tests)
    #[arg(long, hide = true, value_name = "DURATION", value_parser = signed_duration, allow_hyphen_values = true)]
    pub test_clock_offset: Option<ClockOffset>,
    /// Renew keys at this age (for tests)
    #[arg(long, hide = true, value_name = "DURATION", value_parser = config::parse_duration)]
    pub test_rekey_after: Option<Duration>,
    /// Do without these features of kernel and processor (for tests)
    #[arg(long, hide = true, value_name = "FEATURES", value_delimiter = ',')]
    pub test_without: Vec<Feature>,
}

/// What a wall clock is wrong by, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockOffset(pub i64);

impl From<UpOptions> for RunOptions {
    fn from(options: UpOptions) -> Self {
        RunOptions {
            // Who asks it where that is may be somewhere else.
            file: std::path::absolute(&options.file).unwrap_or(options.file),
            socket: options.socket,
            // Programs that it starts, such as dnsmasq, are somewhere else, too.
            state_dir: std::path::absolute(&options.state_dir).unwrap_or(options.state_dir),
            on_event: None,
            confirm: options.confirm,
            key_log: options.keylog,
            test_clock_offset_ms: options.test_clock_offset.map(|offset| offset.0),
            test_rekey_after: options.test_rekey_after,
            test_without: options.test_without,
        }
    }
}

fn signed_duration(text: &str) -> Result<ClockOffset, DurationError> {
    let (sign, amount) = match text.strip_prefix('-') {
        Some(amount) => (-1, amount),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let amount = config::parse_duration(amount)?;
    let milliseconds = i64::try_from(amount.as_millis()).map_err(|_| DurationError::TooLong)?;
    Ok(ClockOffset(sign * milliseconds))
}

/// The exit status of `check` where the configuration is valid, and `up` would refuse it on this machine as it is.
const NOT_HERE: u8 = 3;

/// The program: parses the command line, does what it says, tells what went wrong. Exit status 1 for a failure, 2 for
/// wrong usage, and [`NOT_HERE`].
pub fn main() -> ExitCode {
    // Many commands have a key in their memory.
    if let Err(error) = linux::confine::no_core_dumps() {
        let _ = writeln!(io::stderr(), "sidestep: {error}");
    }
    // Before the first thread.
    linux::clock::adopt_time_zone();
    completion::answer(Cli::command);
    let failure = match Cli::try_parse() {
        Ok(cli) => {
            let result = run(cli.command);
            events::end_hook();
            match result {
                Ok(code) => return code,
                Err(failure) => failure,
            }
        }
        Err(usage) => {
            // Help and version come this way, too. A closed pipe is no news.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
    };
    let (message, status) = match failure {
        Failure::ClosedOutput => return ExitCode::SUCCESS,
        Failure::Message(message) => (message, ExitCode::FAILURE),
        Failure::NotHere(message) => (message, ExitCode::from(NOT_HERE)),
        Failure::Report(report, message) => {
            complain(&report);
            (message, ExitCode::FAILURE)
        }
    };
    let _ = writeln!(io::stderr(), "sidestep: {message}");
    status
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Genkey => tunnel_keys::generate_private()?,
        Command::Pubkey => tunnel_keys::public_of_stdin()?,
        Command::Genpsk => tunnel_keys::generate_preshared()?,
        Command::Check(options) => check::check(&options)?,
        Command::Up(options) => {
            // First: who asks it to read its file again, which it is just reading, must not end it.
            let signals = Signals::new()?;
            let config = load(&options.file)?;
            ssh::refuse_to_lock_out(&config, &options.file, options.confirm.is_some())?;
            events::start_log();
            let options = RunOptions { on_event: config.on_event, ..RunOptions::from(options) };
            match (config.tunnel, config.gateway) {
                (Some(tunnel), gateway) => tunnel_runtime::run(&options, signals, tunnel, gateway)?,
                (None, Some(_)) if options.key_log.is_some() => {
                    return Err(Failure::Message(
                        "--keylog: the file has no tunnel, so there are no keys".to_owned(),
                    ));
                }
                (None, Some(gateway)) => router_runtime::run(&options, signals, gateway)?,
                (None, None) => return Err(config::Error::NoTunnel { path: options.file }.into()),
            }
        }
        Command::Reload { daemon, confirm } => {
            let path = daemon.path_or_gateway()?;
            // What is wrong with a file the daemon says.
            if ssh::is_used()
                && let Some((file, config)) = running::configuration(&path)
            {
                ssh::refuse_to_lock_out(&config, &file, confirm.is_some())?;
            }
            let confirm_ms = confirm.map(|time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX));
            if let Some(why) = control::reload(&path, confirm_ms)? {
                return Err(Failure::Message(why));
            }
            let shown = path.display();
            match confirm {
                None => print(format_args!("{shown}: reloaded\n"))?,
                Some(time) => print(format_args!(
                    "{shown}: reloaded; `sidestep confirm` within {}s keeps it\n",
                    time.as_secs_f64()
                ))?,
            }
        }
        Command::Confirm(daemon) => {
            let path = daemon.path_or_gateway()?;
            control::ask(&path, &Request::Confirm)?;
            print(format_args!("{}: confirmed\n", path.display()))?;
        }
        Command::Down { daemon, open } => down::run(&daemon.path()?, open)?,
        Command::Close { file } => down::close(&file)?,
        Command::Show(command) => return command.run(),
        Command::Doctor(command) => return command.run(),
        Command::Events { tunnel, socket, follow, json, syslog } => {
            let named = tunnel.map(|tunnel| control::socket_of(&tunnel));
            let to = match syslog {
                Some(server) => To::Syslog(Syslog::new(server)?),
                None if json => To::Json,
                None => To::Text,
            };
            return event_lines::run(socket.or(named), &to, follow);
        }
        Command::Status { socket, json, watch } => status::run(socket, json, watch)?,
        Command::Metrics(options) => return options.run(),
        Command::Web(options) => options.run()?,
        Command::Endpoints { file, peer, at, count, json } => {
            rendezvous::print_endpoints(&load_tunnel(&file)?, &peer, at, count, json)?;
        }
        Command::ImportClassic { ini, users, ethers, profiles } => {
            import_classic::run(&ini, &users, &ethers, &profiles)?;
        }
        Command::Key(command) => return command.run(),
        Command::Control(command) => command.run()?,
        Command::Init(options) => setup::init(&options)?,
        Command::Invite(options) => setup::invite(&options)?,
        Command::Join(options) => setup::join(&options)?,
        Command::Enroll(options) => setup::enroll::enroll(&options)?,
        Command::Agent(options) => return options.run(),
        Command::Peer(command) => return command.run(),
        Command::Wrap(options) => return options.run(),
        Command::SealPrefix(command) => command.run()?,
        Command::RotateKey(command) => command.run()?,
        Command::Firewall(command) => return command.run(),
        Command::Script(command) => return command.run(),
        Command::Ipsec(command) => return command.run(),
        Command::Stack(command) => return command.run(),
        Command::Lab { .. } => {
            let message = "the laboratory is now a separate program, `sidestep-lab`, with the same commands";
            return Err(Failure::Message(message.into()));
        }
        Command::Completions { shell } => print(completion::script(shell)?)?,
        Command::Man => print(manual::page(Cli::command())?)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_daemon_are_where_they_are_from_everywhere() {
        let cli = Cli::try_parse_from(["sidestep", "up", "home.toml", "--state-dir", "state"]).unwrap();
        let Command::Up(options) = cli.command else { panic!("another command") };
        let here = std::env::current_dir().unwrap();
        let options = RunOptions::from(options);
        assert_eq!((options.file, options.state_dir), (here.join("home.toml"), here.join("state")));
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        let cli = Cli::command();
        let of = |name| cli.find_subcommand(name).expect("a command").get_subcommands();
        let shown = cli.get_subcommands().filter(|command| !command.is_hide_set());
        let groups = ["peer", "script", "firewall", "key", "stack", "ipsec"];
        let tables = of("script").find(|command| command.get_name() == "table").expect("a command");
        for command in shown.chain(groups.into_iter().flat_map(of)).chain(tables.get_subcommands()) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:\n  "), "{}", command.get_name());
        }
    }

    #[test]
    fn test_options_of_up() {
        let parse = |arguments: &[&str]| {
            let Command::Up(options) = Cli::try_parse_from(arguments).unwrap().command else {
                panic!("not up")
            };
            options
        };
        let options = parse(&[
            "sidestep",
            "up",
            "a.toml",
            "--test-clock-offset",
            "-1h",
            "--test-without",
            "udp-gro,tun-offload,aes",
        ]);
        assert_eq!(options.test_clock_offset, Some(ClockOffset(-3_600_000)));
        assert_eq!(options.test_without, [Feature::UdpGro, Feature::TunOffload, Feature::Aes]);
        let plain = parse(&["sidestep", "up", "a.toml"]);
        assert_eq!((plain.test_clock_offset, plain.test_without.len()), (None, 0));
        assert_eq!(signed_duration("+30s"), Ok(ClockOffset(30_000)));
        assert!(signed_duration("--30s").is_err());
    }
}

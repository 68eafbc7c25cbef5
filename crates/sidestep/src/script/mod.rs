//! `sidestep script`: packet scripts, tested and checked, and let near packets.
//!
//! | module | what it is |
//! |---|---|
//! | [`capture`] | `test --pcap`: what a script makes of the packets of a capture |
//! | [`test`] | `test` and `check`: the tests that scripts carry, and what is in them |
//! | [`tiers`] | whether the kernel does with the packets of a test what Lua does |
//! | [`options`] | where a script is put, and how it is run there |
//! | [`bench`] | what a packet costs in a script |
//! | [`repl`] | expressions, with a script and packets |
//! | [`explain`] | what can run in the kernel |
//! | [`client`] | `load`, `unload`, `reload`, `list`, `logs`, `trace`: what is asked of the script host |
//! | [`list`] | the list as text |
//! | [`measure`] | how often scripts run, and for how long |
//! | [`table`] | what is in tables |
//!
//! The process that scripts run in is [`script_host`]'s.

mod bench;
mod capture;
mod client;
#[cfg(test)]
mod cookbook;
mod explain;
mod list;
mod measure;
mod options;
mod repl;
mod table;
mod test;
mod tiers;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, Subcommand};

use config::attachment::Hook;
use config::folder::Folder;
use config::run::Feature;
use script::testing::Files;
use script_host::protocol::MOST_TRACED;

use self::options::{HookName, LoadOptions};
use crate::failure::Failure;
use crate::terminal::output;

/// Packet scripts: Lua programs that look at packets and change them
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  sidestep script check nat.lua
  sidestep script test nat.lua
  sidestep script bench nat.lua
  sidestep script load nat.lua --hook postrouting --dev eth0 --function snat
  sidestep script list
  sidestep script unload nat.lua")]
pub(crate) enum ScriptCommand {
    /// Run the tests that scripts carry, functions named test_*
    ///
    /// Each runs by itself, in a fresh Lua state and on a clock that it moves. `require` finds modules beside the script.
    /// With CAP_BPF and CAP_NET_ADMIN the packets of each go through the kernel, too, if their function runs there as a whole:
    /// what comes out has to be the same.
    ///
    /// With --pcap the script is given the packets of a capture instead, and it is said what becomes of each: the verdict, and
    /// which fields and octets are others. It is the same each time: the clock is that of the capture, which starts at 0, and
    /// random numbers are always those.
    #[command(after_help = "Examples:
  sidestep script test nat.lua
  sidestep script test examples/scripts/*.lua
  sidestep script test nat.lua --pcap lan.pcapng --function snat
  sidestep script test filter.lua --pcap in.pcap --write passed.pcap
  sidestep script test filter.lua --pcap in.pcap --json | jq 'select(.verdict == \"NF_DROP\").packet'

Exit status: 0 if all pass, 1 if one fails or a script cannot be loaded; with --pcap 1 if it fails at a packet, or the
kernel makes something else of one.")]
    Test {
        /// The scripts; with --pcap one
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// A capture (pcap or pcapng) of Ethernet frames or IP packets
        #[arg(long, value_name = "FILE")]
        pcap: Option<PathBuf>,
        /// The function that gets the packets of the capture
        #[arg(long, value_name = "NAME", default_value = "process_packet", requires = "pcap")]
        function: String,
        /// Write what passes, as it is then, to a file whose name ends with .pcap or .pcapng
        #[arg(long, value_name = "FILE", requires = "pcap")]
        write: Option<PathBuf>,
        /// Write a line of JSON for each packet; its fields are stable
        #[arg(long, requires = "pcap")]
        json: bool,
    },
    /// Load a script, and say which functions, tests and protocols it has, and which names in it nothing has
    ///
    /// It is loaded as for packets, with the same limits.
    #[command(
        after_help = "Examples:\n  sidestep script check nat.lua\n\nExit status: 0 if it can be loaded, and names nothing that is not there; 1 if not."
    )]
    Check {
        /// The script
        file: PathBuf,
    },
    /// Say for each line of a script whether it can run in the kernel, and what is made of it
    ///
    /// What cannot be compiled runs in the user tier, with the same result: the packets that come to such a line are handed
    /// over to Lua where that can be, else all of the function's are. With CAP_BPF and CAP_NET_ADMIN the program is
    /// loaded, so that the kernel verifies it, and not attached.
    #[command(after_help = "Examples:\n  sidestep script explain nat.lua --function snat\n  \
                            sidestep script explain filter.lua --hook forward\n  \
                            sidestep script explain filter.lua --xdp\n\n\
                            Exit status: 0 if the kernel runs it, or as much of it as it can; 1 if not.")]
    Explain {
        /// The script
        file: PathBuf,
        /// The function that gets the packets
        #[arg(long, value_name = "NAME", default_value = "process_packet")]
        function: String,
        /// For devices whose packets have no link header, as TUN devices
        #[arg(long, conflicts_with = "hook")]
        no_link: bool,
        /// For this hook: at an interface, or at netfilter, where packets are read in another way and not changed
        #[arg(long)]
        hook: Option<HookName>,
        /// At XDP of an interface, where packets are not changed either, and all of the function has to run
        #[arg(long, conflicts_with = "no_link")]
        xdp: bool,
    },
    /// Measure what a packet costs in a script
    ///
    /// Packets are those of a capture, or those that the script's tests give to its functions. It is measured in Lua and, with
    /// CAP_BPF and CAP_NET_ADMIN, in the kernel, if a function runs there as a whole: that is how much longer its program
    /// takes than one that does nothing. What receives packets, and gives them to scripts, is not in it.
    #[command(after_help = "Examples:\n  sidestep script bench nat.lua\n  \
                            sidestep script bench nat.lua --function snat --pcap capture.pcap")]
    Bench {
        /// The script
        file: PathBuf,
        /// Only this function; with a capture process_packet if none is named
        #[arg(long)]
        function: Option<String>,
        /// A capture (pcap or pcapng) of Ethernet frames or IP packets
        #[arg(long, value_name = "FILE")]
        pcap: Option<PathBuf>,
    },
    /// Evaluate expressions of Lua, with a script that is loaded and the packets of a capture
    ///
    /// Each line of standard input is an expression, whose value is shown, or a statement, which may have several lines.
    /// `p` is the packet, at first the first one; `packet(n)` and `next_packet()` make another `p`; `run()` gives it to
    /// process_packet, `run("name")` to another function. `test` is the module of tests. Variables that are not local stay.
    #[command(after_help = "Examples:
  sidestep script repl nat.lua --pcap lan.pcap
  echo 'p:data(packet_eth):data(packet_ip):saddr():get()' | sidestep script repl nat.lua --pcap lan.pcap

Exit status: 0, or 1 if standard input is no terminal and a line has failed.")]
    Repl {
        /// The script
        file: PathBuf,
        /// A capture (pcap or pcapng) of Ethernet frames or IP packets
        #[arg(long, value_name = "FILE")]
        pcap: Option<PathBuf>,
    },
    /// Write what scripts find, as annotations for the Lua language server (LuaLS)
    ///
    /// The library with its functions, and all protocols with their fields. An editor then completes names in scripts, shows
    /// what they are, and marks what is not there. Of a script, the protocols that it declares.
    #[command(after_help = "Examples:
  sidestep script annotations > sidestep.lua
  sidestep script annotations notes.lua > notes.meta.lua

A file .luarc.json beside the scripts has the editor find them:
  { \"workspace.library\": [\"sidestep.lua\"], \"runtime.version\": \"Lua 5.4\" }")]
    Annotations {
        /// A script: only the protocols that it declares
        file: Option<PathBuf>,
    },
    /// Give packets at a hook of this network namespace to a script
    ///
    /// The script host is started in the background if there is none, and ends when its last script is unloaded.
    #[command(after_help = "Examples:
  sidestep script load filter.lua --hook forward
  sidestep script load nat.lua --hook postrouting --dev eth0 --function snat
  sidestep script load dns.lua --hook prerouting --match 'udp dport 53' --failure accept --fail-open
  sidestep script load synflood.lua --hook ingress --dev eth0 --xdp")]
    Load {
        #[command(flatten)]
        options: Box<LoadOptions>,
        #[command(flatten)]
        host: HostSocket,
    },
    /// Take a script away from its hook
    #[command(after_help = "Examples:\n  sidestep script unload 1\n  sidestep script unload nat.lua")]
    Unload {
        /// Its number in the list, or its file: then all that were loaded from it
        #[arg(value_name = "ID|FILE")]
        target: String,
        #[command(flatten)]
        host: HostSocket,
    },
    /// Put the present text of a script in the place of the one that runs
    ///
    /// No packet sees half of it, and none is lost. What is in nf.table and its like stays, globals do not. A script that
    /// cannot be loaded leaves the old one in place.
    #[command(after_help = "Examples:\n  sidestep script reload nat.lua")]
    Reload {
        /// Its number in the list, or its file
        #[arg(value_name = "ID|FILE")]
        target: String,
        #[command(flatten)]
        host: HostSocket,
    },
    /// Show the scripts that are loaded: where, what they did, what it took, what failed, what they have metrics export
    ///
    /// With --measure it looks for a while, and also says how often each script was run meanwhile, and in the kernel for how
    /// long. For that time the kernel looks at its clock twice at each run of any BPF program of the machine.
    #[command(after_help = "Examples:\n  sidestep script list\n  sidestep script list --measure 5s\n  \
                            sidestep script list --json | jq '.scripts[] | {file, packets, errors}'\n  \
                            sidestep script list --measure --json | jq '.scripts[].measured'")]
    List {
        /// Look for so long, a second if it is not said; needs root (CAP_SYS_ADMIN) for scripts in the kernel
        #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = a_while)]
        measure: Option<Duration>,
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostSocket,
    },
    /// Show what scripts have logged, and their errors
    ///
    /// With --json each line is a JSON object in a line of its own: unix_ms, id (the script's number), text, and fields,
    /// those that nf.log was given.
    #[command(after_help = "Examples:\n  sidestep script logs\n  sidestep script logs --follow\n  \
                            sidestep script logs --follow --json | jq 'select(.id == 1).text'")]
    Logs {
        /// Write JSON lines; their fields are stable
        #[arg(long)]
        json: bool,
        /// Go on with what comes
        #[arg(long, short)]
        follow: bool,
        #[command(flatten)]
        host: HostSocket,
    },
    /// Follow packets through a script, line by line, with what variables get
    ///
    /// In the kernel the program makes way for one that tells its lines, between two packets, and comes back when all
    /// packets were followed, after the time, or when this command ends. Of a packet that the kernel hands over to Lua
    /// both halves are told.
    #[command(after_help = "Examples:\n  sidestep script trace 1\n  \
                            sidestep script trace 1 --match 'icmpv6 type 128' --count 3")]
    Trace {
        /// The script's number in the list
        id: u32,
        /// Follow packets of which this holds
        #[arg(long = "match", value_name = "RULE", default_value = "", value_parser = options::rule)]
        rule: String,
        /// How many
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MOST_TRACED as i64))]
        count: u32,
        /// Give up after so long
        #[arg(long, default_value = "30s", value_parser = config::parse_duration)]
        timeout: Duration,
        /// Write JSON lines; their fields are stable
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostSocket,
    },
    #[command(subcommand)]
    Table(table::TableCommand),
    /// Run the script host in the foreground
    ///
    /// `load` and `up` do this by themselves. There is one host in a network namespace. It keeps the capabilities
    /// CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and CAP_PERFMON alone; SIGTERM and SIGINT end it, and its rules are removed.
    #[command(after_help = "Examples:\n  sidestep script serve")]
    Serve {
        #[command(flatten)]
        host: HostSocket,
        /// End when the last script is unloaded, and leave the session of the terminal
        #[arg(long)]
        background: bool,
        /// End when standard input ends, whose first line says which scripts are about to be loaded: a list, as JSON
        #[arg(long, conflicts_with = "background")]
        with_parent: bool,
        /// Do without these features of the kernel (for tests)
        #[arg(long, hide = true, value_name = "FEATURES", value_delimiter = ',')]
        test_without: Vec<Feature>,
    },
}

/// What scripts find, or what one declares.
fn annotations(file: Option<&Path>) -> Result<String, Failure> {
    let builtin = script::vm::builtin_protocols()?;
    let Some(file) = file else { return Ok(script::annotations::text(&builtin)) };
    let (path, files) = (file.display().to_string(), Rc::new(Folder::of(file)) as Rc<dyn Files>);
    let source =
        std::fs::read_to_string(file).map_err(|error| Failure::Message(format!("{path}: {error}")))?;
    let own = script::testing::protocols(&path, &source, &files)?;
    Ok(script::annotations::only_own(&own, &builtin))
}

/// How long may be measured.
fn a_while(text: &str) -> Result<Duration, String> {
    let time = config::parse_duration(text).map_err(|error| error.to_string())?;
    let (least, most) = (Duration::from_millis(10), Duration::from_secs(3600));
    if (least..=most).contains(&time) { Ok(time) } else { Err("a time from 10ms to 1h is wanted".to_owned()) }
}

/// Which script host.
#[derive(Debug, Clone, Args)]
pub(crate) struct HostSocket {
    /// The script host's socket, by default /run/sidestep/scripts-N.sock, N being this network namespace
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl HostSocket {
    fn path(&self) -> io::Result<PathBuf> {
        self.socket.clone().map_or_else(control::socket_of_scripts, Ok)
    }
}

impl ScriptCommand {
    /// Runs the command; its exit status.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut out = io::stdout().lock();
        let good = match self {
            Self::Test { files, pcap: None, .. } => test::test_all(&files, &mut out),
            Self::Test { files, pcap: Some(capture), function, write, json } => {
                let [file] = &files[..] else {
                    return Err(Failure::Message("with --pcap one script is tested".to_owned()));
                };
                let (function, capture) = (&*function, &*capture);
                capture::Test { file, function, capture, write, json }.run(&mut out)?
            }
            Self::Check { file } => test::check(&file, &mut out),
            Self::Explain { file, function, no_link, hook, xdp } => {
                let at = explain::At { no_link, hook: hook.map(Hook::from), xdp };
                explain::explain(&file, &function, at, &mut out)
            }
            Self::Bench { file, function, pcap } => {
                output(bench::run(&file, function.as_deref(), pcap.as_deref(), &mut out)?)?;
                Ok(true)
            }
            Self::Repl { file, pcap } => {
                repl::run(&file, pcap.as_deref(), &mut io::stdin().lock(), &mut out)?
            }
            Self::Annotations { file } => {
                output(out.write_all(annotations(file.as_deref())?.as_bytes()))?;
                Ok(true)
            }
            Self::Load { options, host } => {
                client::load(&host.path()?, (*options).into(), &mut out)?;
                Ok(true)
            }
            Self::Unload { target, host } => {
                client::unload(&host.path()?, &target, &mut out)?;
                Ok(true)
            }
            Self::Reload { target, host } => {
                client::reload(&host.path()?, &target, &mut out)?;
                Ok(true)
            }
            Self::List { measure, json, host } => {
                output(client::list(&host.path()?, measure, json, &mut out)?)?;
                Ok(true)
            }
            Self::Logs { json, follow, host } => {
                output(client::logs(&host.path()?, follow, json, &mut out)?)?;
                Ok(true)
            }
            Self::Trace { id, rule, count, timeout, json, host } => {
                let wanted = client::Wanted { id, rule, count, timeout, json };
                output(client::trace(&host.path()?, wanted, &mut out)?)?;
                Ok(true)
            }
            Self::Table(command) => {
                command.run(&mut out)?;
                Ok(true)
            }
            Self::Serve { host, background, with_parent, test_without } => {
                drop(out);
                events::start_log();
                script_host::serve(
                    &host.path()?,
                    script_host::Life { background, with_parent },
                    test_without,
                )?;
                Ok(true)
            }
        };
        let mut passed = true;
        output(good.map(|good| passed = good))?;
        Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

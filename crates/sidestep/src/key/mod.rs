//! `key`: associations and policies of a running host with IPsec, in setkey's language, over its PF_KEY socket.
//!
//! | module | what it is |
//! |---|---|
//! | `session` | a connection: questions and their answers |
//! | `apply` | commands, carried out as a whole or not at all |
//! | `show`, `line` | associations as `setkey -D` shows them, policies, JSON; what the monitor says |

mod apply;
mod line;
mod session;
mod show;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ipsec::setkey::{self, Command, Position};
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::terminal::print;
use session::Session;

/// The longest file, and what is read from standard input at most: the whole table is smaller.
const LONGEST: u64 = 16 << 20;

/// Options and commands of `key`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, args_conflicts_with_subcommands = false)]
#[command(after_help = "Examples:
  sidestep key -f /etc/sidestep/home.setkey           load associations and policies
  sidestep key dump                                   show all associations, without their keys
  sidestep key --name home flush esp
  echo 'spddelete ::/0 ::/0 udp -P in; spddump;' | sidestep key -f -
  sidestep key add 2001:db8::1 2001:db8::2 esp 0x1000 -E aes-gcm-16 0x$(openssl rand -hex 20)
  sidestep key monitor                                what is asked for, added, expired

The language is that of setkey(8). Others can see the arguments of a command: keys are better in a file,
or in standard input (-f -).")]
pub(crate) struct KeyCommand {
    /// The file with commands, which others must not read, or - for standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Name of the daemon; not needed if only one is up
    #[arg(long, value_name = "NAME", conflicts_with = "socket")]
    name: Option<String>,
    /// Its PF_KEY socket, by default /run/sidestep/NAME.key
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    action: Option<KeyAction>,
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// Put in an association: SOURCE DESTINATION PROTOCOL SPI, and its algorithms
    #[command(after_help = "Examples:\n  \
        sidestep key add 2001:db8::1 2001:db8::2 esp 0x1000 -m transport -E aes-gcm-16 0x$(openssl rand -hex 20)")]
    Add(Words),
    /// Show an association: SOURCE DESTINATION PROTOCOL SPI
    #[command(after_help = "Examples:\n  sidestep key get 2001:db8::1 2001:db8::2 esp 0x1000")]
    Get {
        /// Which
        #[arg(required = true, value_name = "WORD")]
        words: Vec<String>,
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
    },
    /// Take away an association: SOURCE DESTINATION PROTOCOL SPI
    #[command(after_help = "Examples:\n  sidestep key delete 2001:db8::1 2001:db8::2 esp 0x1000")]
    Delete(Words),
    /// Take away all associations, or those of a protocol
    #[command(after_help = "Examples:\n  sidestep key flush\n  sidestep key flush ah")]
    Flush {
        /// ah or esp
        protocol: Option<String>,
    },
    /// Show all associations, or those of a protocol; keys are never shown
    #[command(
        after_help = "Examples:\n  sidestep key dump\n  sidestep key dump esp --json | jq '.[].spi'\n  \
                            sidestep key dump --policies"
    )]
    Dump {
        /// ah or esp
        protocol: Option<String>,
        /// Show policies instead
        #[arg(long, conflicts_with = "protocol")]
        policies: bool,
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
    },
    /// Print what the key engine and its daemons say, a line each
    #[command(after_help = "Examples:\n  sidestep key monitor\n  sidestep key monitor | grep acquire")]
    Monitor,
}

#[derive(Debug, Args)]
struct Words {
    /// As in setkey(8)
    #[arg(required = true, value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

impl KeyCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match (&self.file, &self.action) {
            (Some(_), Some(_)) => {
                return Err(Failure::Message("give a file with -f, or a command, not both".into()));
            }
            (None, None) => {
                return Err(Failure::Message("nothing to do: give a file with -f, or a command".into()));
            }
            _ => {}
        }
        // What is wrong with the words is said before the daemon is looked for.
        let file = self.file.as_deref().map(read).transpose()?;
        let action = self.action.map(Prepared::of).transpose()?;
        let mut session = Session::open(&socket(self.socket, self.name)?)?;
        if let Some((commands, name)) = file {
            let shown =
                apply::run(&mut session, &commands, |position| format!("{name}: line {}", position.line))?;
            print(show::all(&shown))?;
        }
        if let Some(action) = action {
            action.run(&mut session)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// An action whose words are right.
enum Prepared {
    Change(Vec<(Position, Command)>),
    Show { command: Command, json: bool },
    Policies { json: bool },
    Monitor,
}

impl Prepared {
    fn of(action: KeyAction) -> Result<Self, Failure> {
        let optional =
            |name: &str, protocol: Option<String>| command(name, &protocol.into_iter().collect::<Vec<_>>());
        Ok(match action {
            KeyAction::Add(words) => Self::Change(vec![command("add", &words.words)?]),
            KeyAction::Delete(words) => Self::Change(vec![command("delete", &words.words)?]),
            KeyAction::Flush { protocol } => Self::Change(vec![optional("flush", protocol)?]),
            KeyAction::Get { words, json } => Self::Show { command: command("get", &words)?.1, json },
            KeyAction::Dump { policies: true, json, .. } => Self::Policies { json },
            KeyAction::Dump { protocol, json, .. } => {
                Self::Show { command: optional("dump", protocol)?.1, json }
            }
            KeyAction::Monitor => Self::Monitor,
        })
    }

    fn run(self, session: &mut Session) -> Result<(), Failure> {
        match self {
            Self::Change(commands) => {
                apply::run(session, &commands, |_| "the key engine refuses it".to_owned())?;
            }
            Self::Show { command, json } => {
                let shown = session.show(&command)?;
                match json {
                    true => print(show::associations_json(&shown)?)?,
                    false => print(show::associations(&shown))?,
                }
            }
            Self::Policies { json } => {
                let shown = session.policies()?;
                match json {
                    true => print(show::policies_json(&shown)?)?,
                    false => print(show::policies(&shown))?,
                }
            }
            Self::Monitor => session.monitor(|message| match line::of(message) {
                Some(line) => print(format_args!("{line}\n")),
                None => Ok(()),
            })?,
        }
        Ok(())
    }
}

/// One command out of a command line's words; it is no place for several.
fn command(name: &str, words: &[String]) -> Result<(Position, Command), Failure> {
    let text = Zeroizing::new(format!("{name} {};", words.join(" ")));
    let wrong = |message: &str| Failure::Message(format!("key {name}: {message}"));
    let mut commands = setkey::parse_placed(&text)
        .map_err(|error| wrong(&format!("{}; {}", error.message, error.remedy)))?;
    match (commands.pop(), commands.pop()) {
        (Some(command), None) => Ok(command),
        _ => Err(wrong("this is more than one command; write them into a file, for `sidestep key -f FILE`")),
    }
}

type Placed = Vec<(Position, Command)>;

fn read(path: &Path) -> Result<(Placed, String), Failure> {
    let is_standard_input = path == Path::new("-");
    let name = if is_standard_input { "standard input".to_owned() } else { path.display().to_string() };
    let failed = |error: &dyn std::fmt::Display| Failure::Message(format!("cannot read {name}: {error}"));
    let mut text = Zeroizing::new(String::new());
    let length = match is_standard_input {
        true => io::stdin().lock().take(LONGEST + 1).read_to_string(&mut text),
        // It holds keys.
        false => linux::file::open_private(path, LONGEST)
            .map_err(|error| failed(&error))?
            .read_to_string(&mut text),
    };
    if length.map_err(|error| failed(&error))? as u64 > LONGEST {
        return Err(Failure::Message(format!("{name} is longer than 16 MB: split it")));
    }
    let commands =
        setkey::parse_placed(&text).map_err(|error| Failure::Message(format!("{name}: {error}")))?;
    Ok((commands, name))
}

/// Where the daemon listens that is meant.
fn socket(socket: Option<PathBuf>, name: Option<String>) -> Result<PathBuf, Failure> {
    if let Some(path) = socket {
        return Ok(path);
    }
    let folder = control::FOLDER;
    let names = control::key_sockets(folder.as_ref()).map_err(|error| {
        Failure::Message(match error.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("only root may see which PF_KEY sockets are in {folder}: try again with sudo")
            }
            _ => format!("cannot read {folder}: {error}"),
        })
    })?;
    if let Some(name) = name {
        let path = control::key_socket_of(&name);
        if names.is_empty() || names.contains(&name) {
            return Ok(path);
        }
        let (path, names) = (path.display(), names.join(", "));
        return Err(Failure::Message(format!("{path} is not there; these hosts with IPsec are up: {names}")));
    }
    match &names[..] {
        [name] => Ok(control::key_socket_of(name)),
        [] => Err(Failure::Message(format!(
            "no PF_KEY socket is in {folder}: `sidestep ipsec up FILE` opens one there, and programs on the stack one of \
             their own, such as `sidestep stack nc --key-socket PATH`"
        ))),
        _ => Err(Failure::Message(format!(
            "several hosts with IPsec are up: name one of them with --name: {}",
            names.join(", ")
        ))),
    }
}

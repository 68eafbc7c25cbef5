//! `rotate-key`: this gateway gets another key, and keeps the one before it for a time of grace.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use config::{Source, TunnelConfig};
use control::Request;
use control::tunnel_status::Status;
use mt6d::keys::PrivateKey;
use zeroize::Zeroizing;

use crate::check::list;
use crate::failure::Failure;
use crate::load::{load_tunnel, not_loaded};
use crate::running::Running;
use crate::terminal::print;
use crate::tunnel_keys::new_private;

/// For how long a timer keeps the key before: a site that was away so long hears of the new one from others.
const GRACE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Give this gateway another key
///
/// The key before stays beside it for a time of grace, in a file whose name ends with .previous: peers that do not know the new
/// one yet are met by the old one, and no session ends. A site of a fleet says so itself, by its agent; other peers are to be told
/// the new public key, as their next_public_key. Nobody but root has either key.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sidestep rotate-key mt6d0                       another key, now
  sidestep rotate-key mt6d0 --end                 the key before is not needed any more
  sidestep rotate-key mt6d0 --every 30d           whichever of the two is due: for a timer
  systemctl enable --now sidestep-rotate@mt6d0.timer")]
pub(crate) struct RotateCommand {
    /// Name of the configuration file in /etc/sidestep, without its ending, or its path
    tunnel: String,
    /// End the time of grace: the key before is forgotten. Refused while a session was made with it
    #[arg(long, conflicts_with = "every")]
    end: bool,
    /// Only what is due: another key if this one is so old; the end of a time of grace after a week, or half of this
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    every: Option<Duration>,
}

/// The keys of a gateway, and where they are.
struct Keys {
    file: PathBuf,
    config: TunnelConfig,
    is_of_fleet: bool,
    key: PathBuf,
    previous: PathBuf,
}

impl RotateCommand {
    /// Does it.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let keys = Keys::of(match self.tunnel.contains(['/', '.']) {
            true => PathBuf::from(&self.tunnel),
            false => Path::new("/etc/sidestep").join(format!("{}.toml", self.tunnel)),
        })?;
        let before = keys.config.node.previous_key.as_ref();
        match (before, self.every) {
            (Some(before), Some(every)) if age(&keys.previous)? >= GRACE.min(every / 2) => {
                match keys.sessions_with(before)? {
                    users if users.is_empty() => keys.end(),
                    users => print(format_args!("the key before stays: {}\n", in_use(&users))),
                }
            }
            (None, Some(every)) if age(&keys.key)? >= every => keys.begin(),
            (_, Some(_)) => Ok(()),
            (Some(before), None) if self.end => match keys.sessions_with(before)? {
                users if users.is_empty() => keys.end(),
                users => Err(Failure::Message(format!(
                    "{}: wait until they have heard of the new one, or remove {} and reload to end them",
                    in_use(&users),
                    keys.previous.display()
                ))),
            },
            (None, None) if self.end => Err(Failure::Message("there is no key before this one".into())),
            (Some(_), None) => Err(Failure::Message(format!(
                "the last change is not over: `sidestep rotate-key {} --end` ends it, once all peers know the new key",
                self.tunnel
            ))),
            (None, None) => keys.begin(),
        }
    }
}

impl Keys {
    fn of(file: PathBuf) -> Result<Self, Failure> {
        let source = Source::read(&file).map_err(|error| not_loaded(&file, error))?;
        let config = load_tunnel(&file)?;
        let Some(key) = source.private_key_file() else {
            let why =
                format!("{}: the private key has no file of its own (private_key_file)", file.display());
            return Err(Failure::Message(why));
        };
        let previous = config::previous_key_file(&key);
        if config.node.previous_key.is_some() && !previous.exists() {
            let why = format!(
                "{} names the key before itself: take previous_private_key_file out when that change is over",
                file.display()
            );
            return Err(Failure::Message(why));
        }
        Ok(Keys { is_of_fleet: source.fleet().is_some(), file, config, key, previous })
    }

    /// Another key takes the place of the one that there is.
    fn begin(&self) -> Result<(), Failure> {
        let old = Zeroizing::new(linux::file::read_private(&self.key)?);
        let (new, public) = new_private()?;
        let new = Zeroizing::new(format!("{}\n", *new));
        // Where it ends between the two, both are the same key, which is as if there was one.
        self.write(&self.previous, &old)?;
        let taken = self.write(&self.key, new.as_bytes()).and_then(|()| self.reload());
        let is_running = match taken {
            Ok(is_running) => is_running,
            Err(error) => {
                self.write(&self.key, &old)?;
                self.remove(&self.previous)?;
                return Err(error);
            }
        };
        let mut text = format!("the public key is {public} now, and the one before is kept\n");
        if !is_running {
            text += "the tunnel does not run: it has them when it starts\n";
        }
        if !self.is_of_fleet {
            let _ = writeln!(text, "give it to the peers: next_public_key = \"{public}\"");
        }
        print(text)
    }

    /// The key before is forgotten.
    fn end(&self) -> Result<(), Failure> {
        let old = Zeroizing::new(linux::file::read_private(&self.previous)?);
        self.remove(&self.previous)?;
        if let Err(error) = self.reload() {
            self.write(&self.previous, &old)?;
            return Err(error);
        }
        print("the key before is forgotten\n")
    }

    /// The peers with which there is a session that was made with this key of ours.
    fn sessions_with(&self, key: &PrivateKey) -> Result<Vec<String>, Failure> {
        let socket = control::socket_of(&self.config.tunnel.name);
        let status = match control::ask_for::<Status>(&socket, &Request::Show, control::LONG) {
            Err(control::Error::NotRunning { .. }) => return Ok(Vec::new()),
            status => status?,
        };
        let key = key.public().to_string();
        let peers = status.peers.into_iter();
        let used = peers.filter(|peer| peer.session.as_ref().is_some_and(|session| session.own_key == key));
        Ok(used.map(|peer| peer.name).collect())
    }

    /// Whether the daemon runs, and has read its files again.
    fn reload(&self) -> Result<bool, Failure> {
        let name = &self.config.tunnel.name;
        match Running::find(name, &self.file)? {
            Running::No => Ok(false),
            Running::FromIt => {
                if let Some(but) = control::reload(&control::socket_of(name), None)? {
                    let _ = writeln!(io::stderr(), "sidestep: {but}");
                }
                Ok(true)
            }
            Running::From(other) => Err(Failure::Message(format!(
                "{name} runs from {}, not from {}",
                other.display(),
                self.file.display()
            ))),
        }
    }

    fn write(&self, path: &Path, content: &[u8]) -> Result<(), Failure> {
        let about = |error| Failure::Message(format!("{}: {error}", path.display()));
        linux::file::replace(path, content).map(drop).map_err(about)
    }

    fn remove(&self, path: &Path) -> Result<(), Failure> {
        std::fs::remove_file(path).map_err(|error| Failure::Message(format!("{}: {error}", path.display())))
    }
}

/// Whose sessions, in words.
fn in_use(peers: &[String]) -> String {
    format!("sessions with {} were made with it", list(peers))
}

/// How long ago a file was written.
fn age(path: &Path) -> Result<Duration, Failure> {
    let about = |error| Failure::Message(format!("{}: {error}", path.display()));
    let written = std::fs::metadata(path).and_then(|metadata| metadata.modified()).map_err(about)?;
    Ok(SystemTime::now().duration_since(written).unwrap_or_default())
}

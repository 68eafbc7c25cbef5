//! `peer`: peers added, removed and listed without an editor. Each that is added has a file of its own, in a folder that the
//! configuration includes; what would not be a valid configuration, or what the daemon refuses, is taken back.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use config::{Source, TunnelConfig};
use control::Error;
use ipnet::{IpNet, Ipv6Net};
use serde::Serialize;

use crate::failure::Failure;
use crate::load::{load_tunnel, not_loaded, only_tunnel};
use crate::running::Running;
use crate::ssh;
use crate::terminal::print;

/// The first line of files that are ours to remove.
const OURS: &str = "# Made by `sidestep peer add`; `sidestep peer remove` takes it away.";

/// Add, remove and list the peers of a tunnel
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  sidestep peer list\n  sidestep peer remove site-b")]
pub(crate) enum PeerCommand {
    /// Add a peer, and have the running daemon take it over
    ///
    /// It is written to a file of its own in the folder that the configuration includes (`include = ["mt6d0.d/*.toml"]` at its
    /// top). If the whole would not be valid, or the daemon refuses it, nothing has changed.
    #[command(after_help = "Examples:
  sidestep peer add site-b --public-key 7zJkXoPE0tJj2hoGLLeV9QT8CVQk6ZRVVaWBAsoRKDo= \\
      --hop-prefix 2001:db8:b1::/64 --allowed 2001:db8:b::/64 --keepalive 25s")]
    Add(AddOptions),
    /// Remove a peer that was added, and have the running daemon forget it
    #[command(after_help = "Examples:\n  sidestep peer remove site-b")]
    Remove {
        /// Its name
        name: String,
        #[command(flatten)]
        file: FileOption,
    },
    /// List the peers of the configuration
    #[command(after_help = "Examples:\n  sidestep peer list\n  sidestep peer list --json | jq -r '.[].name'")]
    List {
        #[command(flatten)]
        file: FileOption,
        /// Write JSON; its fields are stable
        #[arg(long)]
        json: bool,
    },
}

/// Which configuration.
#[derive(Debug, Args)]
pub(crate) struct FileOption {
    /// The configuration; not needed where /etc/sidestep has one of a tunnel only
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// What there is to say of a new peer.
#[derive(Debug, Args)]
pub(crate) struct AddOptions {
    /// Its name: letters, digits, `.`, `_` and `-`
    pub(crate) name: String,
    /// What `sidestep pubkey` prints there
    #[arg(long, value_name = "KEY")]
    pub(crate) public_key: String,
    /// The prefix that it hops in
    #[arg(long, value_name = "PREFIX")]
    pub(crate) hop_prefix: Ipv6Net,
    /// A network behind it; may be repeated
    #[arg(long, value_name = "PREFIX", required = true)]
    pub(crate) allowed: Vec<IpNet>,
    /// Keeps the session without traffic: something leaves at least this often
    #[arg(long, value_name = "DURATION")]
    pub(crate) keepalive: Option<String>,
    /// File with a secret that both have, relative to the configuration's folder
    #[arg(long, value_name = "FILE")]
    pub(crate) preshared_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) file: FileOption,
}

/// A peer in `peer list --json`. Field names are a contract.
#[derive(Serialize)]
struct Listed<'c> {
    name: &'c str,
    public_key: String,
    hop_prefix: Ipv6Net,
    allowed_ips: &'c [IpNet],
}

impl PeerCommand {
    /// Does it.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            PeerCommand::Add(options) => print(add(&options)?)?,
            PeerCommand::Remove { name, file } => print(remove(&name, &file.path()?)?)?,
            PeerCommand::List { file, json } => list(&load_tunnel(&file.path()?)?, json)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl FileOption {
    /// Where it is.
    pub(crate) fn path(&self) -> Result<PathBuf, Failure> {
        let none = "no configuration of a tunnel is in /etc/sidestep, or there are several: name one with --config FILE";
        self.config.clone().or_else(|| only_tunnel(None)).ok_or_else(|| Failure::Message(none.into()))
    }
}

/// A peer that is in the configuration, and that no daemon has taken over yet.
#[must_use]
pub(crate) struct Written {
    name: String,
    path: PathBuf,
    tunnel: String,
    running: Running,
}

/// Adds one; what to say of it.
pub(crate) fn add(options: &AddOptions) -> Result<String, Failure> {
    write(options)?.take_over()
}

/// Writes one into the configuration, if that is valid with it, and takes nobody away who runs this.
pub(crate) fn write(options: &AddOptions) -> Result<Written, Failure> {
    let file = options.file.path()?;
    let before = load_tunnel(&file)?;
    let name = &options.name;
    check_name(name)?;
    if before.peers.iter().any(|peer| peer.name == *name) {
        return Err(Failure::Message(format!("there is a peer {name} already (sidestep peer list)")));
    }
    let tunnel = before.tunnel.name;
    // A daemon may take its time, and nothing is written by then.
    let running = Running::find(&tunnel, &file)?;
    let path = made_folder(&file)?.join(format!("{name}.toml"));
    write_new(&path, &text(options))?;
    let written = Written { name: name.clone(), path, tunnel, running };
    match written.check(&file) {
        Ok(()) => Ok(written),
        Err(failure) => {
            written.undo()?;
            Err(failure)
        }
    }
}

impl Written {
    /// Refuses what the whole is not to be with it.
    fn check(&self, file: &Path) -> Result<(), Failure> {
        let Written { name, path, running, .. } = self;
        let after = config::load(file).map_err(|error| not_loaded(file, error))?;
        let Some(tunnel) = after.tunnel.filter(|tunnel| tunnel.peers.iter().any(|peer| peer.name == *name))
        else {
            return Err(Failure::Message(format!("{} does not include {}", file.display(), path.display())));
        };
        match (ssh::taken_away(&tunnel), running) {
            (Some(why), Running::FromIt) => Err(Failure::Message(why)),
            (Some(why), Running::No | Running::From(_)) => {
                let _ = writeln!(io::stderr(), "sidestep: once it is up, {why}");
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// Has the daemon take it over, if that runs; what to say of it. What is refused is no longer in the configuration.
    pub(crate) fn take_over(self) -> Result<String, Failure> {
        match reload(&self.tunnel, &self.running) {
            Ok(told) => Ok(format!("{}: {} is added{told}\n", self.path.display(), self.name)),
            Err(error) => {
                self.undo()?;
                Err(error.into())
            }
        }
    }

    /// Takes it out of the configuration again.
    pub(crate) fn undo(&self) -> Result<(), Failure> {
        fs::remove_file(&self.path).map_err(|error| about(&self.path, &error))
    }
}

/// Refuses a name that would not do for a file.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !name.is_empty() && !name.starts_with('.') && name.chars().all(is_good) {
        return Ok(());
    }
    let why = format!("{name:?} is no name for a file: take letters, digits, `.`, `_` and `-`");
    Err(Failure::Message(why))
}

/// Removes one that was added; what to say of it.
pub(crate) fn remove(name: &str, file: &Path) -> Result<String, Failure> {
    let config = load_tunnel(file)?;
    if !config.peers.iter().any(|peer| peer.name == name) {
        return Err(Failure::Message(format!("there is no peer {name} (sidestep peer list)")));
    }
    let path = folder(file).map(|folder| folder.join(format!("{name}.toml"))).ok();
    let ours = path.and_then(|path| Some((fs::read_to_string(&path).ok()?, path)));
    let Some((text, path)) = ours.filter(|(text, _)| text.starts_with(OURS)) else {
        let why = format!(
            "{name} was not added by `sidestep peer add`: take its [[peer]] out of {} or what it includes, then `sidestep reload`",
            file.display()
        );
        return Err(Failure::Message(why));
    };
    if !is_alone(&text, name) {
        let why = format!(
            "{} is not about {name} alone: take its [[peer]] out by hand, there or where it stands, then `sidestep reload`",
            path.display()
        );
        return Err(Failure::Message(why));
    }
    let running = Running::find(&config.tunnel.name, file)?;
    let told = take_away(&path, file, &config.tunnel.name, &running)?;
    Ok(format!("{}: {name} is removed{told}\n", path.display()))
}

/// Removes a file that the configuration includes, if that is valid without it, and the daemon takes it so; what to say of that.
pub(crate) fn take_away(
    path: &Path,
    file: &Path,
    tunnel: &str,
    running: &Running,
) -> Result<String, Failure> {
    // Hidden files are not included.
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.removed"));
    fs::rename(path, &aside).map_err(|error| about(path, &error))?;
    let undo = || fs::rename(&aside, path).map_err(|error| about(path, &error));
    if let Err(error) = load_tunnel(file) {
        undo()?;
        return Err(error);
    }
    match reload(tunnel, running) {
        Ok(told) => {
            fs::remove_file(&aside).map_err(|error| about(&aside, &error))?;
            Ok(told)
        }
        Err(error) => {
            undo()?;
            Err(error.into())
        }
    }
}

/// Whether the peer of this name is all that there is in the text: with the file nothing else goes.
fn is_alone(text: &str, name: &str) -> bool {
    let Ok(table) = text.parse::<toml::Table>() else { return false };
    let peers = table.get("peer").and_then(toml::Value::as_array);
    let is_named = |peer: &toml::Value| peer.get("name").and_then(toml::Value::as_str) == Some(name);
    table.len() == 1 && peers.is_some_and(|peers| peers.len() == 1 && peers.iter().all(is_named))
}

fn list(config: &TunnelConfig, json: bool) -> Result<(), Failure> {
    let peers = config.peers.iter().map(|peer| Listed {
        name: &peer.name,
        public_key: peer.public_key.to_string(),
        hop_prefix: peer.hop_prefix,
        allowed_ips: &peer.allowed_ips,
    });
    let peers: Vec<_> = peers.collect();
    if json {
        return print(format_args!("{}\n", serde_json::to_string_pretty(&peers)?));
    }
    let width = peers.iter().map(|peer| peer.name.len()).max().unwrap_or(0);
    for peer in peers {
        let networks: Vec<_> = peer.allowed_ips.iter().map(ToString::to_string).collect();
        print(format_args!("{:width$}  {}  {}\n", peer.name, peer.hop_prefix, networks.join(", ")))?;
    }
    Ok(())
}

/// Where files of peers are: the first folder that the configuration includes.
pub(crate) fn folder(file: &Path) -> Result<PathBuf, Failure> {
    let source = Source::read(file).map_err(|error| not_loaded(file, error))?;
    source.included_folder().ok_or_else(|| {
        let why = format!(
            "{} includes no folder: write `include = [\"{}.d/*.toml\"]` into its first line, where each peer that is added has a file",
            file.display(),
            file.file_stem().unwrap_or_default().display()
        );
        Failure::Message(why)
    })
}

/// The same, which is made if it is not there yet.
pub(crate) fn made_folder(file: &Path) -> Result<PathBuf, Failure> {
    let folder = folder(file)?;
    DirBuilder::new().mode(0o700).recursive(true).create(&folder).map_err(|error| about(&folder, &error))?;
    Ok(folder)
}

/// The peer, as it is written.
pub(crate) fn text(options: &AddOptions) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let networks: Vec<_> = options.allowed.iter().map(|network| format!("\"{network}\"")).collect();
    let mut text = format!(
        "{OURS}\n[[peer]]\nname        = {}\npublic_key  = {}\nhop_prefix  = \"{}\"\nallowed_ips = [{}]\n",
        quoted(&options.name),
        quoted(&options.public_key),
        options.hop_prefix,
        networks.join(", ")
    );
    if let Some(keepalive) = &options.keepalive {
        text += &format!("keepalive   = {}\n", quoted(keepalive));
    }
    if let Some(file) = &options.preshared_key_file {
        text += &format!("preshared_key_file = {}\n", quoted(&file.to_string_lossy()));
    }
    text
}

/// Writes a file that is not there yet, for its owner alone: whole, or not at all.
pub(crate) fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    linux::file::create(path, text.as_bytes()).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::Message(format!("{} exists already", path.display())),
        _ => about(path, &error),
    })
}

/// Has the tunnel's daemon read its configuration again, if it runs from it; what to say of it.
pub(crate) fn reload(tunnel: &str, running: &Running) -> Result<String, Error> {
    let is_not_running = || Ok(format!("; {tunnel} is not running"));
    match running {
        Running::No => return is_not_running(),
        Running::From(other) => {
            return Ok(format!("; {tunnel} runs from {}, and has taken nothing over", other.display()));
        }
        Running::FromIt => {}
    }
    let socket = control::socket_of(tunnel);
    match control::reload(&socket, None) {
        Ok(None) => Ok(format!(", and {tunnel} has taken it over")),
        Ok(Some(but)) => Ok(format!(", and {tunnel} has taken it over; {but}")),
        Err(Error::NotRunning { .. }) => is_not_running(),
        Err(error) => Err(error),
    }
}

pub(crate) fn about(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Message(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_alone_in_its_file_or_not() {
        let one = format!("{OURS}\n[[peer]]\nname = \"b\"\n");
        assert!(is_alone(&one, "b"));
        assert!(!is_alone(&one, "c"));
        for more in
            ["[[peer]]\nname = \"c\"\n", "[[peer]]\nname = \"b\"\n", "[[script]]\nfile = \"x\"\n", "x = ["]
        {
            assert!(!is_alone(&format!("{one}{more}"), "b"), "{more}");
        }
        assert!(!is_alone(OURS, "b"));
    }
}

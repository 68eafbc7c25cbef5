//! Where the sockets are, and whose a socket is, by its name.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::message::Effect;

/// Where the sockets are.
pub const FOLDER: &str = "/run/sidestep";
/// What names of script hosts' sockets begin with; the number of a network namespace follows.
const SCRIPTS: &str = "scripts-";
/// How the names of PF_KEY sockets end.
const KEYS: &str = "key";
/// Likewise of gateways'.
const GATEWAY: &str = "gateway-";

/// Those for whom there are sockets beside the owner's, in a folder beside that of the sockets, where the machine has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// People, and programs for them: `/run/sidestep-read`.
    Readers,
    /// The agents of fleets: `/run/sidestep-agent`.
    Agents,
}

impl Others {
    /// All kinds.
    pub(crate) const ALL: [Others; 2] = [Others::Readers, Others::Agents];

    /// The most that may come of what they ask.
    pub(crate) fn may(self) -> Effect {
        match self {
            Others::Readers => Effect::Looks,
            Others::Agents => Effect::Reloads,
        }
    }

    /// Who they are, and what they may do.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Others::Readers => "the group sidestep may look and change nothing",
            Others::Agents => "a fleet's agent may look and reload, and nothing else",
        }
    }

    /// Their folder, beside that of the sockets.
    pub(crate) fn folder(self, sockets: &Path) -> Option<PathBuf> {
        let mut name = sockets.file_name()?.to_owned();
        name.push(match self {
            Others::Readers => "-read",
            Others::Agents => "-agent",
        });
        Some(sockets.with_file_name(name))
    }

    /// Their socket that belongs to this one.
    #[must_use]
    pub fn socket(self, socket: &Path) -> Option<PathBuf> {
        Some(self.folder(socket.parent()?)?.join(socket.file_name()?))
    }
}

/// The folders that a daemon writes to for this control socket and those of its namespace.
pub fn folders_of(socket: &Path) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from(FOLDER), socket.parent().unwrap_or(socket).to_owned()];
    let of_others = |folder: &PathBuf| Others::ALL.map(|others| others.folder(folder));
    let others: Vec<_> = folders.iter().flat_map(of_others).flatten().collect();
    folders.extend(others.into_iter().filter(|folder| folder.is_dir()));
    folders
}

/// Whether there is this socket, or, for those who may not see it, the one beside it.
pub fn is_there(socket: &Path) -> bool {
    socket.exists() || Others::Readers.socket(socket).is_some_and(|socket| socket.exists())
}

/// The number of this thread's network namespace.
///
/// # Errors
/// Where /proc does not tell it.
pub fn network_namespace() -> io::Result<u64> {
    Ok(std::fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// The socket of the script host of this thread's network namespace.
///
/// # Errors
/// Where /proc does not tell which namespace that is.
pub fn socket_of_scripts() -> io::Result<PathBuf> {
    Ok(Path::new(FOLDER).join(format!("{SCRIPTS}{}.sock", network_namespace()?)))
}

/// The socket of the gateway of this thread's network namespace.
///
/// # Errors
/// Where /proc does not tell which namespace that is.
pub fn socket_of_gateway() -> io::Result<PathBuf> {
    Ok(Path::new(FOLDER).join(format!("{GATEWAY}{}.sock", network_namespace()?)))
}

/// The socket of the host stack on a device of this thread's network namespace: in a folder of the user's, that of
/// `XDG_RUNTIME_DIR`, or else `/run/user/UID`.
///
/// # Errors
/// Where /proc does not tell which namespace that is, or the user has no such folder.
pub fn socket_of_stack(device: &str) -> io::Result<PathBuf> {
    let namespace = network_namespace()?;
    let folder = match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        // Also where root has one, as after `sudo` it may be somebody else's.
        _ if nix::unistd::geteuid().is_root() => PathBuf::from(FOLDER),
        Some(folder) => Path::new(&folder).join("sidestep"),
        None => of_session(nix::unistd::geteuid())?.join("sidestep"),
    };
    Ok(folder.join("stack").join(format!("{namespace}-{device}.sock")))
}

/// Where logind puts what `XDG_RUNTIME_DIR` names, for those who come without it, as by `su`.
fn of_session(user: nix::unistd::Uid) -> io::Result<PathBuf> {
    let folder = PathBuf::from(format!("/run/user/{user}"));
    let is_theirs = |metadata: std::fs::Metadata| metadata.is_dir() && metadata.uid() == user.as_raw();
    if std::fs::symlink_metadata(&folder).is_ok_and(is_theirs) {
        return Ok(folder);
    }
    let why = format!("XDG_RUNTIME_DIR is not set, and {} is no folder of yours", folder.display());
    Err(io::Error::new(io::ErrorKind::NotFound, why))
}

/// Whether a socket is a script host's or a gateway's, by its name, rather than a tunnel's.
pub(crate) fn is_of_no_tunnel(path: &Path) -> bool {
    is_of_scripts(path) || is_of_gateway(path)
}

/// Whether a socket is a script host's, by its name.
pub fn is_of_scripts(path: &Path) -> bool {
    is_numbered(path, SCRIPTS)
}

/// Whether a socket is a gateway's, by its name.
pub fn is_of_gateway(path: &Path) -> bool {
    is_numbered(path, GATEWAY)
}

/// Whether a socket's name is this and the number of a network namespace.
fn is_numbered(path: &Path, kind: &str) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str());
    let number = name.and_then(|name| name.strip_prefix(kind));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// The socket of the tunnel of this name.
pub fn socket_of(tunnel: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{tunnel}.sock"))
}

/// The PF_KEY socket of the host with IPsec of this name.
pub fn key_socket_of(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.{KEYS}"))
}

/// The names of the PF_KEY sockets in a folder; none if it is not there.
///
/// # Errors
/// Where the folder cannot be read.
pub fn key_sockets(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let keys = paths.filter(|path| path.extension().is_some_and(|extension| extension == KEYS));
    let mut names: Vec<_> = keys.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    Ok(names)
}

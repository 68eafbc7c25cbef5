//! Why the page cannot be served.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::Ipv6Net;

/// Why the page cannot be served, or no longer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Everybody would be let in, at every address that this machine has now or later.
    #[error(
        "{0} is every address of this machine, also those that hop: give one of them, such as [::1]:8641"
    )]
    EveryAddress(SocketAddr),
    /// It is a group of hosts.
    #[error("{0} is a multicast address: give one of this machine, such as [::1]:8641")]
    Multicast(SocketAddr),
    /// A service there would give away that the prefix is in use.
    #[error(
        "{listen} is in the hopping prefix {prefix} of {tunnel} or a peer of it, where nothing may answer: give another address"
    )]
    Hopping {
        /// Where it was to listen.
        listen: SocketAddr,
        /// The prefix.
        prefix: Ipv6Net,
        /// Whose.
        tunnel: String,
    },
    /// Others on the path could read the token.
    #[error(
        "{0} can be reached from elsewhere: give --certificate and --key, or listen on [::1] and come by `ssh -L`"
    )]
    InTheClear(SocketAddr),
    /// The address cannot be had.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// Which.
        listen: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// A file or folder cannot be used.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The token's file is not only its owner's.
    #[error("{} can be read by others (mode {mode:03o}): `chmod 600` it, or remove it for a new token", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// There is something else in the token's file.
    #[error("{} has no token in it: remove it for a new one", .0.display())]
    NoToken(PathBuf),
    /// Certificate and key cannot be used.
    #[error("{}: {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// There is no fleet to be administered.
    #[error(transparent)]
    Fleet(#[from] controller::FolderError),
    /// Privileges could not be given up.
    #[error(transparent)]
    Confine(#[from] linux::Error),
    /// There is no randomness, no thread, no runtime.
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// Why it cannot be had.
        source: io::Error,
    },
}

//! Why the host does not run, or ended.

use std::io;

/// Why the host does not run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only who may change the network can.
    #[error("packet scripts need root (or CAP_NET_ADMIN and CAP_NET_RAW): try again with sudo")]
    Privilege,
    /// There is one already.
    #[error(
        "another script host runs in this network namespace: use its socket, or end it (`sidestep script list` and `unload`)"
    )]
    Another,
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// The socket.
    #[error("{0}")]
    Socket(#[from] io::Error),
}

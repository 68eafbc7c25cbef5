//! Why there is no configuration.

use std::io;
use std::path::PathBuf;

use crate::report::Report;

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file describes no tunnel, and one is asked for.
    #[error("{}: it describes no tunnel: tables [node] and [[peer]] do", path.display())]
    NoTunnel {
        /// The file.
        path: PathBuf,
    },
    /// The file describes no firewall, and one is asked for.
    #[error("{}: it describes no firewall: tables [[zone]] and [firewall] do", path.display())]
    NoFirewall {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file says something that cannot be.
    #[error("{0}")]
    Invalid(Report),
}

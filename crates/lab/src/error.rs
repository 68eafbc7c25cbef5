//! What can go wrong in a lab.

use std::path::PathBuf;

/// Why a lab, a measurement or a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that the lab needs could not be started.
    #[error(
        "cannot start `{program}`: {source}. Is its package installed (iproute2, nftables, ethtool, iperf3, iputils-ping)?"
    )]
    Start {
        /// The program as it was called.
        program: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A program that the lab called ended with a failure.
    #[error("`{command}` failed ({status}): {stderr}")]
    Command {
        /// The command line.
        command: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// What it wrote to standard error, trimmed.
        stderr: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel refused something.
    #[error(transparent)]
    Kernel(#[from] linux::Error),
    /// A program's output was not what was expected.
    #[error("{what}: cannot read its output: {detail}")]
    Output {
        /// Whose output.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A gateway did not do what it was told to in time.
    #[error("gateway {site}: {what}. End of its log:\n{log}")]
    Gateway {
        /// `a` or `b`.
        site: char,
        /// What did not happen.
        what: String,
        /// The last lines of the gateway's log.
        log: String,
    },
    /// What was asked for cannot be built.
    #[error("{0}")]
    Usage(String),
    /// Labs need root, for network namespaces and raw sockets.
    #[error("a lab needs root (network namespaces, raw sockets): run it with sudo")]
    NotRoot,
}

impl Error {
    /// A failed system call, with what was tried.
    pub fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }

    /// A failed file operation.
    pub fn file(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::File { path: path.into(), source }
    }

    /// Output that cannot be understood.
    pub fn output(what: impl Into<String>, detail: impl ToString) -> Self {
        Self::Output { what: what.into(), detail: detail.to_string() }
    }
}

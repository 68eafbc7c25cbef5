//! Why there is no tunnel without privileges.

use std::path::PathBuf;

use ipnet::Ipv6Net;

/// Why there is no tunnel without privileges.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{0}")]
    File(#[from] config::Error),
    /// The file describes neither kind of tunnel.
    #[error("{}: it describes no tunnel: [ipsec] and [[remote]] do, or [node] and [[peer]]", .0.display())]
    NoTunnel(PathBuf),
    /// It asks for what takes privileges, or does not say enough.
    #[error("{0}")]
    NotCarried(&'static str),
    /// There is no such interface.
    #[error("[node] external = \"{0}\": there is no such interface (`ip link` lists them)")]
    NoInterface(String),
    /// What is sent to the hopping prefix would not arrive.
    #[error(
        "[node] hop_prefix = \"{0}\" is not this host's own: have it routed to this host, and say so here as root, once \
         after each start: `ip -6 route add local {0} dev lo`"
    )]
    NotLocal(Ipv6Net),
    /// The same end cannot be in two places.
    #[error("{} is in use by another program, which is this end of its tunnel", .0.display())]
    InUse(PathBuf),
    /// No peer has answered, or the program cannot use the tunnel.
    #[error("{0}")]
    NotReached(String),
    /// The protocol refuses the configuration.
    #[error("{0}")]
    Config(#[from] mt6d::config::ConfigError),
    /// More sockets are needed than may be open.
    #[error("{0}")]
    Limit(#[from] crate::error::Error),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// The system has no randomness, or the file cannot be locked.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

//! Why the daemon does not run, or ended.

use router_runtime::AWAITS;

/// Why the daemon does not run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only who may change the network can.
    #[error("`up` needs root (or CAP_NET_ADMIN and CAP_NET_RAW): try again with sudo")]
    Privilege,
    /// The external interface is not there.
    #[error("[node] external = \"{0}\": there is no such interface (`ip link` lists them)")]
    NoInterface(String),
    /// Nor is the internal one.
    #[error("[node] internal = \"{0}\": there is no such interface (`ip link` lists them)")]
    NoInternal(String),
    /// What the configuration asks for would cut this machine off its own network.
    #[error("{0}")]
    CutsOff(String),
    /// Another tunnel, of this name, hops in the prefix.
    #[error(
        "[node] hop_prefix = \"{0}\": the tunnel {1} hops in it, and when one of the two ends, the other hears no more: give each \
         tunnel a prefix of its own"
    )]
    HopsAlready(ipnet::Ipv6Net, String),
    /// The configuration needs more sockets than may be open.
    #[error("{0}")]
    Limit(String),
    /// Somebody else has a route to what is behind a peer.
    #[error(
        "allowed_ips {0}: there is another route to it with the same metric (`ip route get` shows which): \
         remove that, or list its two halves"
    )]
    RouteExists(ipnet::IpNet),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// The file cannot be read again.
    #[error("{0}")]
    File(#[from] config::Error),
    /// The protocol refuses the configuration.
    #[error("{0}")]
    Config(#[from] mt6d::config::ConfigError),
    /// The control socket.
    #[error("{0}")]
    Control(std::io::Error),
    /// The thread that opens endpoints has ended.
    #[error("endpoints can no longer be opened (the reason is above): sidestep ends")]
    KernelThread,
    /// A thread that carries packets has ended.
    #[error("packets are no longer carried (the reason is above): sidestep ends")]
    PacketThread,
    /// The classic profile refuses a peer.
    #[error("peer {0:?}: {1}")]
    Classic(String, ::classic::profile::ConfigError),
    /// A packet script.
    #[error("{0}")]
    Script(#[from] script_host::supervisor::Error),
    /// The router beside.
    #[error("{0}")]
    Router(#[from] router_runtime::Error),
    /// Another change waits for its confirmation.
    #[error("{AWAITS}")]
    Unconfirmed,
    /// Nobody has confirmed its start.
    #[error("not confirmed in time (`sidestep confirm`): it ends, and takes back what it set up")]
    NotConfirmed,
    /// A change that a running daemon cannot make.
    #[error("{0} changed: restart sidestep to apply that")]
    NeedsRestart(&'static str),
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::Control(error)
    }
}

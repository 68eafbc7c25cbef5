//! Why a tunnel does not run, or ended.

/// Why a tunnel does not run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only who may change the network can.
    #[error(
        "`ipsec up` needs root (or CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE): try again with sudo, or see `ipsec run`"
    )]
    Privilege,
    /// Somebody else has a route to what is behind a remote.
    #[error(
        "{0}: there is another route to it (`ip route get` shows which): remove that, or list the two halves of {0}"
    )]
    RouteExists(ipnet::IpNet),
    /// Somebody else listens there.
    #[error("UDP port {ports} is in use: {who}")]
    PortTaken {
        /// Which ones.
        ports: String,
        /// Who has one of them, and what to do.
        who: String,
        /// Whether it is a tunnel of IPsec of ours.
        is_ours: bool,
    },
    /// Another program is this end.
    #[error("{0}")]
    Claim(#[from] crate::claim::ClaimError),
    /// It does not begin, and what it was to carry is refused all the same.
    #[error(
        "{error}; what {tunnel} is to carry is refused until it is up: `sidestep ipsec down {tunnel} --open` ends that"
    )]
    Closed {
        /// Why it does not begin.
        error: Box<Error>,
        /// Its name.
        tunnel: String,
    },
    /// What only `up` or nobody does.
    #[error("{0}")]
    NotCarried(String),
    /// No remote can be reached.
    #[error("{0}")]
    NotReached(String),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// The file cannot be read.
    #[error("{0}")]
    File(#[from] config::Error),
    /// The control socket, or the system's randomness.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

//! Why a proxy does not run, or ended.

use crate::proxy::ListenError;

/// Why a proxy does not run, or ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{0}")]
    File(#[from] config::Error),
    /// The configuration is not for a proxy.
    #[error("{0}")]
    NotCarried(&'static str),
    /// Another program is this end of the tunnel.
    #[error("{0}")]
    Claim(#[from] ipsec_runtime::claim::ClaimError),
    /// There is no moving tunnel without privileges.
    #[error("{0}")]
    Moving(#[from] tunnel_runtime::rootless::Error),
    /// It cannot listen.
    #[error("{0}")]
    Listen(#[from] ListenError),
    /// The kernel refused something.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// The system has no randomness.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

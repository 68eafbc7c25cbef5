//! Why there is no router, or it is not as the configuration says.

use std::path::PathBuf;

use crate::firewall;
use crate::unconfirmed::AWAITS;

/// Why there is no gateway.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Only who may change the network can.
    #[error("`up` needs root (or CAP_NET_ADMIN, CAP_NET_RAW and CAP_NET_BIND_SERVICE): try again with sudo")]
    Privilege,
    /// A network namespace has only one.
    #[error("another sidestep is the gateway here: stop it: a network namespace has only one gateway")]
    Another,
    /// An interface is not there.
    #[error("{owner} {name:?}: there is no interface {interface} (`ip link` lists them)")]
    NoInterface {
        /// Uplink, network or route.
        owner: &'static str,
        /// Which one.
        name: String,
        /// What it says.
        interface: String,
    },
    /// A program that hosts would ask is not installed.
    #[error(
        "network {network:?}: its hosts are to be answered by {program}, which is not installed: `apt install {package}` (the \
         package is named {program} elsewhere), or remove `dhcp` and [dns]"
    )]
    NoProgram {
        /// Which one is asked there.
        network: String,
        /// The program.
        program: &'static str,
        /// Debian's package.
        package: &'static str,
    },
    /// The program that asks servers by TLS is not installed.
    #[error(
        "[dns]: servers are to be asked by TLS (`tls://`), which stubby does, and it is not installed: `apt install stubby` (and \
         `systemctl disable --now stubby`, as the package starts one of its own)"
    )]
    NoStubby,
    /// The kernel refused something; all is as it was.
    #[error("{0}")]
    Kernel(#[from] linux::Error),
    /// The same, several times.
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
    /// The firewall cannot be in force; all is as it was.
    #[error("the firewall: {0}")]
    Firewall(#[source] firewall::Error),
    /// The file cannot be read again.
    #[error("{0}")]
    Config(#[from] config::Error),
    /// The file describes no router any more.
    #[error("{}: it no longer describes a gateway", .0.display())]
    NoRouter(PathBuf),
    /// The script host.
    #[error("{0}")]
    Script(#[from] script_host::supervisor::Error),
    /// The control socket, or a thread.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Another change waits for its confirmation.
    #[error("{AWAITS}")]
    Unconfirmed,
    /// Nobody has confirmed its start.
    #[error("not confirmed in time (`sidestep confirm`): it ends, and takes back what it set up")]
    NotConfirmed,
    /// The thread has ended.
    #[error("the gateway has stopped (the reason is above)")]
    Ended,
}

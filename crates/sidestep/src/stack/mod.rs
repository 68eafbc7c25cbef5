//! `sidestep stack`: a host of our own on a TAP or TUN device, without the kernel's network.
//!
//! | module | what it is |
//! |---|---|
//! | `options` | what all commands have: device, addresses, security, faults; the host that they describe |
//! | [`ping`], [`nc`], [`http`] | programs on it |
//! | `ending` | what is removed when a command ends, at a signal, too |
//! | [`key_socket`] | a PF_KEY socket for a host's associations and policies |
//! | [`status`] | what a host says about itself, and to whom |
//! | [`netstat`] | `netstat`, `ifconfig`, `route`: that as text |
//! | [`capture`] | packets as a file or text |

mod capture;
mod ending;
mod http;
mod http_clients;
mod http_message;
mod http_server;
mod key_socket;
mod nc;
mod netstat;
mod options;
mod ping;
mod status;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Failure;

/// A host of our own on a TAP or TUN device: IPv6, IPv4, UDP, TCP and IPsec without the kernel's
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  sudo ip tuntap add dev tap0 mode tap user $USER; sudo ip link set dev tap0 up
  sidestep stack ping --dev tap0 fe80::1
  sidestep stack http --dev tap0 --output page http://[2001:db8::1]/
  sidestep stack nc --dev tap0 --address 2001:db8::2/64 --listen 7
  sidestep stack netstat --dev tap0

A device that exists needs no privileges of its owner, and stays. Another one is made, which needs root, and goes with the
command. Destinations are addresses: no names are looked up.")]
pub(crate) enum StackCommand {
    /// Ask a host for an echo
    #[command(after_help = "Examples:\n  sidestep stack ping --dev tap0 fe80::1 -c 3\n  \
                            sidestep stack ping --dev tap0 --ipv4 192.0.2.2/24 192.0.2.1 -s 5000\n\n\
                            Exit status: 0 if somebody has answered, 1 if not.")]
    Ping(ping::PingOptions),
    /// Connect standard input and output with a port, as client or server, with levels of security
    ///
    /// Levels: 0 none, 1 where it can be had, 2 required both ways, 3 with an association of the socket's own.
    #[command(after_help = "Examples:
  sidestep stack nc --dev tap0 2001:db8::1 7
  sidestep stack nc --dev tap0 --listen 7 > received
  sidestep stack nc --dev tap0 --udp --setkey keys.conf --transport-encryption 2 2001:db8::1 7")]
    Nc(nc::NcOptions),
    /// Fetch a file by HTTP, send one, or serve a folder
    #[command(after_help = "Examples:
  sidestep stack http --dev tap0 --output page http://[2001:db8::1]/
  sidestep stack http --dev tap0 --put backup.tar http://[2001:db8::1]:8000/backup.tar
  sidestep stack http --dev tap0 --serve . --port 8000

Exit status: 0 if the server has done it, 1 if not.")]
    Http(http::HttpOptions),
    /// Show all that a host knows: addresses, routers, routes, destinations, neighbors, sockets, drops
    #[command(after_help = "Examples:\n  sidestep stack netstat --dev tap0\n  \
                            sidestep stack netstat --dev tap0 --json | jq '.neighbors[].state'\n\n\
                            Of the sidestep that holds the device, or of a host that is there just for this. They find each \
                            other\nin XDG_RUNTIME_DIR, or else in /run/user/UID; as root in /run/sidestep.")]
    Netstat(netstat::NetstatOptions),
    /// Show a host's addresses
    #[command(after_help = "Examples:\n  sidestep stack ifconfig --dev tap0")]
    Ifconfig(netstat::NetstatOptions),
    /// Show a host's routers and routes
    #[command(after_help = "Examples:\n  sidestep stack route --dev tap0")]
    Route(netstat::NetstatOptions),
    /// Show or record the packets of a host that answers
    #[command(after_help = "Examples:\n  sidestep stack capture --dev tap0\n  \
                            sidestep stack capture --dev tap0 --output tap0.pcap\n\n\
                            Every other command records with --record FILE.")]
    Capture(capture::CaptureOptions),
}

impl StackCommand {
    /// Does it.
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            StackCommand::Ping(options) => return ping::run(&options),
            StackCommand::Nc(options) => nc::run(&options)?,
            StackCommand::Http(options) => return http::run(&options),
            StackCommand::Netstat(options) => netstat::run(&options, netstat::Part::All)?,
            StackCommand::Ifconfig(options) => netstat::run(&options, netstat::Part::Addresses)?,
            StackCommand::Route(options) => netstat::run(&options, netstat::Part::Routes)?,
            StackCommand::Capture(options) => capture::run(&options)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

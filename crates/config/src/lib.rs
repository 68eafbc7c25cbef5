//! The configuration file: TOML in, values that cannot be wrong out.
//!
//! [`load`] reads a file and the key files that it names; [`parse`] is the same without touching the file system.
//! The way of a configuration is: [`document`] (its shape, as serde sees it) → [`convert`] (each value by itself) →
//! [`cross`] (what concerns several values). Each step reports everything that it finds, so that a user mends a file
//! in one round. What is found is a [`Report`]: where, what, and what to do about it. Secrets are never part of it.

pub mod attachment;
mod classic;
mod convert;
mod cross;
mod document;
mod firewall;
pub mod folder;
mod gateway;
mod report;
pub mod run;
mod script;
mod transparent;
mod tunnel;
mod value;

use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::classic::packet::inner_mtu as classic_inner_mtu;
use ipnet::{IpNet, Ipv6Net};
use mt6d::config::{NodeConfig, PeerConfig, REKEY_AFTER};
use mt6d::keys::PrivateKey;
use zeroize::Zeroizing;

pub use classic::{ClassicPeer, KernelUse};
pub use firewall::{DEFAULT, Expectation, Firewall};
pub use gateway::Gateway;
pub use mt6d::overhead::CONTEXT as INNER_OVERHEAD;
pub use report::Report;
pub use script::Configured;
pub use transparent::{ProtectedHost, Transparent};
pub use value::parse_duration;

/// All that a configuration file describes: a tunnel, a router between networks, or one machine that is both.
#[derive(Debug, Clone)]
pub struct Whole {
    /// Moving-target defense: tables `[node]`, `[tunnel]`, `[[peer]]`.
    pub tunnel: Option<Config>,
    /// A router and its firewall: tables `[[uplink]]`, `[[network]]`, `[[route]]`, `[[zone]]`, `[firewall]`.
    pub gateway: Option<Gateway>,
    /// What works, but deserves a second look.
    pub warnings: Report,
}

/// A tunnel as its configuration file describes it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Table `[node]`.
    pub node: Node,
    /// Table `[tunnel]`.
    pub tunnel: Tunnel,
    /// Tables `[[peer]]` of version 2, in the order of the file.
    pub peers: Vec<PeerConfig>,
    /// Tables `[[peer]]` of the classic profile, in the order of the file.
    pub classic: Vec<ClassicPeer>,
    /// Tables `[[script]]`, in the order of the file.
    pub scripts: Vec<Configured>,
}

/// What kind of node this is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// A router of the networks behind it.
    #[default]
    Routed,
    /// A gateway between hosts and their router that neither of them sees.
    Transparent,
    /// One machine that protects itself: the hopping prefix is that of the link which it is on, wherever it moves.
    Host,
}

/// This gateway itself.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its identity; a stand-in where all peers are of the classic profile, which has none.
    pub private_key: PrivateKey,
    /// Name of the interface that faces the public network. Whether it exists is not known here.
    pub external: String,
    /// What kind of node it is.
    pub mode: Mode,
    /// The prefix that it hops in; a stand-in where none is given, because all peers are of the classic profile or it
    /// is that of the link.
    pub hop_prefix: Ipv6Net,
    /// The hopping prefix is on the link of `external` and not routed to this gateway: neighbor solicitations are
    /// answered for open endpoints.
    pub on_link: bool,
    /// It stands between its hosts and their router, and neither sees it; it is itself a router otherwise.
    pub transparent: Option<Transparent>,
}

/// The TUN device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    /// Name of the device, `mt6d0` unless given.
    pub name: String,
    /// MTU in bytes, 1280 to 65535; it follows the path where none is given.
    pub mtu: Option<u16>,
    /// Addresses of the device, with the prefix length of their network.
    pub addresses: Vec<IpNet>,
    /// Packets go before ordinary programs where processors are short: latency stays low, and a flood is felt by them.
    pub realtime: bool,
    /// How long to look for packets before sleeping, where they go back and forth in quick succession; at most 1 ms.
    pub spin: Duration,
    /// Threads that carry packets, 1 to 16; chosen by the machine where not given.
    pub threads: Option<usize>,
    /// Processors that these keep to, one each in turn; any, where there are none.
    pub cpus: Vec<usize>,
}

impl Tunnel {
    /// How many threads carry packets: unless given, half of the processors, since the kernel's share of the work for a
    /// packet is as large as ours. Where it is one, that one runs the protocol, too.
    pub fn packet_threads(&self) -> usize {
        self.threads.unwrap_or_else(|| (linux::process::processors().len() / 2).clamp(1, 8))
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file describes no tunnel, and one is asked for.
    #[error("{}: there is no tunnel in it: tables [node] and [[peer]] describe one", path.display())]
    NoTunnel {
        /// The file.
        path: PathBuf,
    },
    /// The file describes no firewall, and one is asked for.
    #[error("{}: there is no firewall in it: tables [[zone]] and [firewall] describe one", path.display())]
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

/// Why a key file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFileError {
    /// It is not there.
    Missing,
    /// It cannot be read, or others than its owner can use it; with the remedy.
    Unusable(String),
}

/// What reads a key file.
pub type ReadKey = dyn Fn(&Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError>;

impl Config {
    /// What the protocol needs of it. `link_mtu` is the MTU of the external interface; `hardware_aes` tells whether
    /// the processor has AES instructions, `rewrites` whether this machine can replace addresses.
    pub fn to_node_config(&self, link_mtu: u16, hardware_aes: bool, rewrites: bool) -> NodeConfig {
        let peer = |peer: &PeerConfig| PeerConfig { rewrite: peer.rewrite && rewrites, ..peer.clone() };
        NodeConfig {
            private_key: self.node.private_key.clone(),
            hop_prefix: self.node.hop_prefix,
            link_mtu,
            hardware_aes,
            addresses: self.tunnel.addresses.iter().map(IpNet::addr).collect::<Vec<IpAddr>>(),
            rekey_after: REKEY_AFTER,
            peers: self.peers.iter().map(peer).collect(),
        }
    }

    /// Whether there are peers, and none of version 2.
    pub fn is_classic(&self) -> bool {
        self.peers.is_empty() && !self.classic.is_empty()
    }

    /// The largest inner packets that go to all peers, if outer ones may have so many bytes.
    pub fn inner_mtu(&self, outer: u16) -> u16 {
        let version_2 = (!self.peers.is_empty()).then(|| outer.saturating_sub(INNER_OVERHEAD));
        let version_2 = version_2.map(|mtu| mtu.min(self.tunnel.mtu.unwrap_or(u16::MAX)));
        let classic = self.classic.iter().map(|peer| classic_inner_mtu(peer.stream.cipher, outer));
        classic.chain(version_2).min().unwrap_or(outer).max(1280)
    }

    /// The peer of this name.
    pub fn peer(&self, name: &str) -> Option<&PeerConfig> {
        self.peers.iter().find(|peer| peer.name == name)
    }
}

/// Reads the configuration file at `path` and the key files that it names, which are relative to its folder.
pub fn load(path: &Path) -> Result<Whole, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(unreadable)?);
    let mode = std::fs::metadata(path).map_err(unreadable)?.permissions().mode();
    let mut whole = parse(&text, path, &read_key_file).map_err(Error::Invalid)?;
    let scripts = match (&mut whole.tunnel, &mut whole.gateway) {
        (Some(tunnel), _) => &mut tunnel.scripts[..],
        (None, Some(gateway)) => &mut gateway.scripts[..],
        (None, None) => &mut [],
    };
    script::check_files(scripts, &mut whole.warnings);
    if whole.warnings.has_errors() {
        return Err(Error::Invalid(whole.warnings));
    }
    if mode & 0o044 != 0 {
        cross::warn_of_readable_secrets(&text, path, &mut whole.warnings);
    }
    Ok(whole)
}

/// Parses a configuration. `path` is the file's name in messages and gives the folder of relative key files, which
/// are had from `read_key`. Never panics, whatever `text` is.
pub fn parse(text: &str, path: &Path, read_key: &ReadKey) -> Result<Whole, Report> {
    let mut report = Report::new(path, text);
    let whole = document::read(text, &mut report).and_then(|document| {
        let converted = convert::convert(&document, text, path, read_key, &mut report);
        cross::check(&document, converted, &mut report)
    });
    match whole {
        Some(whole) if !report.has_errors() => Ok(Whole { warnings: report, ..whole }),
        _ => Err(report),
    }
}

/// Reads the tests of another file, which has nothing but `[[firewall.test]]` tables, for this firewall.
pub fn load_tests(path: &Path, firewall: &Firewall) -> Result<Vec<Expectation>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let mut report = Report::new(path, &text);
    let document = document::read(&text, &mut report);
    let table = document.as_ref().and_then(|document| document.firewall.as_ref());
    let tests = table.and_then(|table| {
        let no_key: &ReadKey = &|_| Err(KeyFileError::Missing);
        let mut converter = convert::Converter::new(Path::new(""), no_key, &mut report);
        converter.tests(table.get_ref(), &text, &firewall.policy)
    });
    if report.has_errors() { Err(Error::Invalid(report)) } else { Ok(tests.unwrap_or_default()) }
}

fn read_key_file(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    linux::process::read_private_file(path).map(Zeroizing::new).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing,
        _ => KeyFileError::Unusable(error.source.to_string()),
    })
}

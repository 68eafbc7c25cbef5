//! What of a configuration can be had without privileges, and that nobody else has it.

use std::fs::{File, TryLockError};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use config::{Mode, TunnelConfig};
use linux::netlink::Netlink;

use super::error::Error;
use crate::limits;

/// Who has begun nothing yet is to be reached all the same: what is in between forgets slower than this.
const KEEPALIVE: Duration = Duration::from_secs(25);
/// The largest packet of IPv6 there is.
const LARGEST: u32 = 65_535;

/// This end of a tunnel, which no other program is while this lives.
#[derive(Debug)]
pub struct Claim {
    pub(super) config: TunnelConfig,
    pub(super) link_mtu: u16,
    _file: File,
}

impl Claim {
    /// Reads a configuration, and sees that a user without privileges can run it, here and now.
    ///
    /// # Errors
    /// [`Error`] says what is in the way, and what to do.
    pub fn stake(file: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::File(config::Error::Unreadable { path: file.to_owned(), source });
        let lock = File::open(file).map_err(unreadable)?;
        let config = config::load(file)?;
        let gateway = config.gateway.is_some();
        let mut config = match config.tunnel {
            Some(_) if gateway => return Err(Error::NotCarried(ROUTER)),
            Some(tunnel) => tunnel,
            None if gateway => return Err(Error::NotCarried(ROUTER)),
            None => return Err(Error::NoTunnel(file.to_owned())),
        };
        refuse(&config)?;
        // Two programs with one key would be one peer in two places: its sessions would end each other.
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::InUse(file.to_owned())),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        for peer in &mut config.peers {
            peer.keepalive.get_or_insert(KEEPALIVE);
        }
        let link_mtu = look_around(&config)?;
        limits::check(&config, 0)?;
        Ok(Self { config, link_mtu, _file: lock })
    }

    /// The largest packet that fits inside, as long as the path is as wide as the link.
    pub fn mtu(&self) -> u16 {
        self.config.inner_mtu(self.link_mtu)
    }

    /// This end's addresses inside.
    pub fn addresses(&self) -> &[ipnet::IpNet] {
        &self.config.tunnel.addresses
    }
}

const ROUTER: &str = "it describes a router or a firewall, which takes root: `sidestep up` runs it; give the tunnel a file \
                      of its own";

/// What takes privileges, and what the other programs do not need.
fn refuse(config: &TunnelConfig) -> Result<(), Error> {
    let why = match config.node.mode {
        Mode::Host => {
            "[node] mode = \"host\" takes the interface over, for which `sidestep up` needs root: without root, have a \
             prefix routed to this host and write mode = \"routed\""
        }
        Mode::Transparent => "[node] mode = \"transparent\" takes root: `sidestep up` runs it",
        Mode::Routed if config.node.on_link => {
            "[node] on_link = true: who is asked for addresses of a link has to be root (`sidestep up`): without root, have \
             a prefix routed to this host"
        }
        Mode::Routed if !config.classic.is_empty() => {
            "a [[peer]] has profile = \"classic\", which takes root: `sidestep up` runs it"
        }
        Mode::Routed if config.peers.is_empty() => "a [[peer]] is missing",
        Mode::Routed if !config.scripts.is_empty() => {
            "a [[script]] takes root: `sidestep up` runs it; leave it out here"
        }
        Mode::Routed if config.tunnel.addresses.is_empty() => {
            "[tunnel] addresses is missing: an address of this end inside, one that the other end has in its allowed_ips"
        }
        Mode::Routed => return Ok(()),
    };
    Err(Error::NotCarried(why))
}

/// Whether the prefix is this host's own, and how wide the way out is.
fn look_around(config: &TunnelConfig) -> Result<u16, Error> {
    let mut netlink = Netlink::open()?;
    let external = &config.node.external;
    let link = netlink.link_by_name(external)?.ok_or_else(|| Error::NoInterface(external.clone()))?;
    let prefix = config.node.hop_prefix.trunc();
    let inside = IpAddr::V6(Ipv6Addr::from(u128::from(prefix.network()) | 1));
    if !netlink.route_to(inside)?.is_some_and(|hop| hop.local) {
        return Err(Error::NotLocal(prefix));
    }
    Ok(u16::try_from(link.mtu.min(LARGEST)).unwrap_or(u16::MAX))
}

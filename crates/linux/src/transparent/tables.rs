//! What the programs decide by.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use wire::ethernet::MacAddress;

use crate::bpf::{Map, MapKind};
use crate::error::Result;

/// Entries of each table, at most. Endpoints of thousands of peers fit.
const ENTRIES: u32 = 1 << 16;
/// Of [`Tables::hopping`]: packets for it are for this host's sockets; packets for it are nobody's business here.
pub(super) const SOCKET: u32 = 0;
pub(super) const ELSEWHERE: u32 = u32::MAX;

/// Who an address is, to which traffic hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// This gateway's, heard on a socket.
    Socket,
    /// This gateway's, heard on the TUN device of that index.
    Device(u32),
    /// A peer's.
    Peer,
}

/// Where a remote protected host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The TUN device through which it is reached.
    pub device: u32,
    /// It is in the network of this link, so that hosts ask for it here.
    pub same_link: bool,
}

/// Hash tables and the like, shared with the programs. All of them may be changed by any thread at any time.
#[derive(Debug)]
pub struct Tables {
    /// Protected hosts of this side by address: hardware address and two bytes, the first of which is 1 if it is known.
    pub(super) protected: Map,
    /// Their hardware addresses.
    pub(super) macs: Map,
    /// Remote protected hosts and networks: device (4 bytes) and whether on this link (4).
    pub(super) remote: Map,
    /// Hopping addresses in use: [`SOCKET`], the index of a device, or [`ELSEWHERE`].
    pub(super) hopping: Map,
    /// Prefixes that are hopped in, and nothing else is there.
    pub(super) prefixes: Map,
    /// The router's hardware address, as those of protected hosts.
    pub(super) router: Map,
}

impl Tables {
    /// Empty ones.
    pub fn create() -> Result<Self> {
        Ok(Self {
            protected: Map::create(MapKind::Hash, 16, 8, ENTRIES)?,
            macs: Map::create(MapKind::Hash, 6, 1, ENTRIES)?,
            remote: Map::create(MapKind::LongestPrefix, 20, 8, ENTRIES)?,
            hopping: Map::create(MapKind::Hash, 16, 4, ENTRIES)?,
            prefixes: Map::create(MapKind::LongestPrefix, 20, 1, ENTRIES)?,
            router: Map::create(MapKind::Array, 4, 8, 1)?,
        })
    }

    /// A host is protected; its hardware address is not known before it is given.
    pub fn protect(&self, address: Ipv6Addr, mac: Option<MacAddress>) -> Result<()> {
        let old = self.protected.lookup(&address.octets())?.and_then(|value| mac_of(&value));
        self.protected.set(&address.octets(), &mac_value(mac))?;
        if let Some(mac) = mac {
            self.macs.set(&mac.0, &[1])?;
        }
        if let Some(old) = old.filter(|old| Some(*old) != mac) {
            self.macs.remove(&old.0)?;
        }
        Ok(())
    }

    /// The protected host of an address: its hardware address, if it is known. None if it is not protected.
    pub fn protected(&self, address: Ipv6Addr) -> Result<Option<Option<MacAddress>>> {
        Ok(self.protected.lookup(&address.octets())?.map(|value| mac_of(&value)))
    }

    /// Whether a hardware address is a protected host's.
    pub fn is_protected(&self, mac: MacAddress) -> Result<bool> {
        Ok(self.macs.lookup(&mac.0)?.is_some())
    }

    /// Remote hosts are reached so.
    pub fn add_remote(&self, prefix: Ipv6Net, remote: Remote) -> Result<()> {
        let value = [remote.device.to_ne_bytes(), u32::from(remote.same_link).to_ne_bytes()];
        self.remote.set(&prefix_key(prefix), value.as_flattened())
    }

    /// No longer.
    pub fn remove_remote(&self, prefix: Ipv6Net) -> Result<()> {
        self.remote.remove(&prefix_key(prefix)).map(drop)
    }

    /// Whether an address is a remote host's, and where it is.
    pub fn remote(&self, address: Ipv6Addr) -> Result<Option<Remote>> {
        let found = self.remote.lookup(&prefix_key(Ipv6Net::from(address)))?;
        let number = |value: &[u8]| value.try_into().map_or(0, u32::from_ne_bytes);
        Ok(found.map(|value| Remote { device: number(&value[..4]), same_link: number(&value[4..]) != 0 }))
    }

    /// A hopping address is in use from now on.
    pub fn add_hopping(&self, address: Ipv6Addr, end: End) -> Result<()> {
        let value = match end {
            End::Socket => SOCKET,
            End::Device(index) => index,
            End::Peer => ELSEWHERE,
        };
        self.hopping.set(&address.octets(), &value.to_ne_bytes())
    }

    /// It is no longer.
    pub fn remove_hopping(&self, address: Ipv6Addr) -> Result<()> {
        self.hopping.remove(&address.octets()).map(drop)
    }

    /// Whose hopping address it is, if it is one that is in use.
    pub fn hopping(&self, address: Ipv6Addr) -> Result<Option<End>> {
        let value = self.hopping.lookup(&address.octets())?;
        let number = value.and_then(|value| value.try_into().ok()).map(u32::from_ne_bytes);
        Ok(number.map(|number| match number {
            SOCKET => End::Socket,
            ELSEWHERE => End::Peer,
            index => End::Device(index),
        }))
    }

    /// Whatever has to do with this prefix is kept from the hosts: this gateway hops there, or a peer.
    pub fn add_hop_prefix(&self, prefix: Ipv6Net) -> Result<()> {
        self.prefixes.set(&prefix_key(prefix), &[1])
    }

    /// No longer.
    pub fn remove_hop_prefix(&self, prefix: Ipv6Net) -> Result<()> {
        self.prefixes.remove(&prefix_key(prefix)).map(drop)
    }

    /// The router has this hardware address.
    pub fn set_router(&self, mac: MacAddress) -> Result<()> {
        self.router.set(&0u32.to_ne_bytes(), &mac_value(Some(mac)))
    }
}

fn prefix_key(prefix: Ipv6Net) -> [u8; 20] {
    let mut key = [0; 20];
    key[..4].copy_from_slice(&u32::from(prefix.prefix_len()).to_ne_bytes());
    key[4..].copy_from_slice(&prefix.network().octets());
    key
}

fn mac_value(mac: Option<MacAddress>) -> [u8; 8] {
    let mut value = [0; 8];
    if let Some(mac) = mac {
        value[..6].copy_from_slice(&mac.0);
        value[6] = 1;
    }
    value
}

fn mac_of(value: &[u8]) -> Option<MacAddress> {
    let (mac, [known, ..]) = value.split_first_chunk::<6>()? else { return None };
    (*known == 1).then_some(MacAddress(*mac))
}

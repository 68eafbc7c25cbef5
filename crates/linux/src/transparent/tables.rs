//! What the programs decide by.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use wire::ethernet::MacAddress;

use programs::transparent::{ELSEWHERE, SOCKET, Tables as Maps};

use crate::bpf::Map;
use crate::error::Result;

/// Whose a hopping address is, and where its packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoppingEndpoint {
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
pub struct Tables(pub(super) Maps<Map>);

impl Tables {
    /// Empty ones.
    pub fn create() -> Result<Self> {
        Maps::create(Map::of).map(Self)
    }

    /// A host is protected; its hardware address is not known before it is given.
    pub fn protect(&self, address: Ipv6Addr, mac: Option<MacAddress>) -> Result<()> {
        let old = self.0.protected.lookup(&address.octets())?.and_then(|value| mac_of(&value));
        self.0.protected.set(&address.octets(), &mac_value(mac))?;
        if let Some(mac) = mac {
            self.0.macs.set(&mac.0, &[1])?;
        }
        if let Some(old) = old.filter(|old| Some(*old) != mac) {
            self.0.macs.remove(&old.0)?;
        }
        Ok(())
    }

    /// The protected host of an address: its hardware address, if it is known. None if it is not protected.
    pub fn protected(&self, address: Ipv6Addr) -> Result<Option<Option<MacAddress>>> {
        Ok(self.0.protected.lookup(&address.octets())?.map(|value| mac_of(&value)))
    }

    /// Whether a hardware address is a protected host's.
    pub fn is_protected(&self, mac: MacAddress) -> Result<bool> {
        Ok(self.0.macs.lookup(&mac.0)?.is_some())
    }

    /// Remote hosts are reached so.
    pub fn add_remote(&self, prefix: Ipv6Net, remote: Remote) -> Result<()> {
        let value = [remote.device.to_ne_bytes(), u32::from(remote.same_link).to_ne_bytes()];
        self.0.remote.set(&prefix_key(prefix), value.as_flattened())
    }

    /// No longer.
    pub fn remove_remote(&self, prefix: Ipv6Net) -> Result<()> {
        self.0.remote.remove(&prefix_key(prefix)).map(drop)
    }

    /// Whether an address is a remote host's, and where it is.
    pub fn remote(&self, address: Ipv6Addr) -> Result<Option<Remote>> {
        let found = self.0.remote.lookup(&prefix_key(Ipv6Net::from(address)))?;
        let number = |value: &[u8]| value.try_into().map_or(0, u32::from_ne_bytes);
        Ok(found.map(|value| Remote { device: number(&value[..4]), same_link: number(&value[4..]) != 0 }))
    }

    /// A hopping address is in use from now on.
    pub fn add_hopping(&self, address: Ipv6Addr, end: HoppingEndpoint) -> Result<()> {
        let value = match end {
            HoppingEndpoint::Socket => SOCKET,
            HoppingEndpoint::Device(index) => index,
            HoppingEndpoint::Peer => ELSEWHERE,
        };
        self.0.hopping.set(&address.octets(), &value.to_ne_bytes())
    }

    /// It is no longer.
    pub fn remove_hopping(&self, address: Ipv6Addr) -> Result<()> {
        self.0.hopping.remove(&address.octets()).map(drop)
    }

    /// Whose hopping address it is, if it is one that is in use.
    pub fn hopping(&self, address: Ipv6Addr) -> Result<Option<HoppingEndpoint>> {
        let value = self.0.hopping.lookup(&address.octets())?;
        let number = value.and_then(|value| value.try_into().ok()).map(u32::from_ne_bytes);
        Ok(number.map(|number| match number {
            SOCKET => HoppingEndpoint::Socket,
            ELSEWHERE => HoppingEndpoint::Peer,
            index => HoppingEndpoint::Device(index),
        }))
    }

    /// Whatever has to do with this prefix is kept from the hosts: this gateway hops there, or a peer.
    pub fn add_hop_prefix(&self, prefix: Ipv6Net) -> Result<()> {
        self.0.prefixes.set(&prefix_key(prefix), &[1])
    }

    /// No longer.
    pub fn remove_hop_prefix(&self, prefix: Ipv6Net) -> Result<()> {
        self.0.prefixes.remove(&prefix_key(prefix)).map(drop)
    }

    /// The router has this hardware address.
    pub fn set_router(&self, mac: MacAddress) -> Result<()> {
        self.0.router.set(&0u32.to_ne_bytes(), &mac_value(Some(mac)))
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

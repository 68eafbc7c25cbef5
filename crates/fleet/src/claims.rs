//! What each site has to itself: its identity, its keys, its networks, its agent's address. Two cannot have the same.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};

use crate::key::VerifyingKey;
use crate::name::Name;
use crate::site::{Contact, Member, TunnelKey};

/// What sites have to themselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    identities: BTreeMap<VerifyingKey, Name>,
    keys: BTreeMap<TunnelKey, Name>,
    networks: BTreeMap<IpNet, Name>,
    addresses: BTreeMap<IpAddr, Name>,
    /// Of sites that hop: several may do so in one prefix, but none among hosts.
    hops: BTreeMap<IpNet, Name>,
}

/// Two sites cannot both be as they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Collision {
    /// They have the same.
    #[error("{what} of {one} is also that of {other}")]
    Twice {
        /// What they have in common.
        what: &'static str,
        /// The one that came later.
        one: Name,
        /// The one that has it.
        other: Name,
    },
    /// One hops among the hosts of another.
    #[error("the hopping prefix {prefix} of {one} overlaps the network {network} of {other}")]
    HopsAmongHosts {
        /// Who hops.
        one: Name,
        /// Where.
        prefix: IpNet,
        /// Whose network.
        other: Name,
        /// The network.
        network: IpNet,
    },
    /// A site takes networks by itself that touch those of another.
    #[error("the network {network} of {one} overlaps {their} of {other}")]
    Overlaps {
        /// Who takes it.
        one: Name,
        /// What it takes.
        network: IpNet,
        /// Whose network.
        other: Name,
        /// The network.
        their: IpNet,
    },
}

impl Claims {
    /// Adds what a site has. One that is revoked keeps its keys, and nothing else.
    ///
    /// # Errors
    /// If another has it.
    pub(crate) fn add(&mut self, member: &Member, contact: Option<&Contact>) -> Result<(), Collision> {
        let name = &member.name;
        claim(&mut self.identities, member.identity, name, "the identity")?;
        let keys = contact.into_iter().flat_map(Contact::keys);
        for key in keys {
            claim(&mut self.keys, key, name, "the key")?;
        }
        if member.is_revoked() {
            return Ok(());
        }
        // In the documents of administrators one may lie in another: the longest prefix decides.
        for network in &member.networks {
            claim(&mut self.networks, *network, name, "a network")?;
            self.refuse_hops(name, *network)?;
        }
        if let Some(address) = member.address {
            claim(&mut self.addresses, address, name, "the address")?;
        }
        match contact {
            Some(contact) => self.add_hops(name, contact.hop_prefix),
            None => Ok(()),
        }
    }

    /// Adds how a site is met in its own words.
    ///
    /// # Errors
    /// If that collides; then nothing is added.
    pub(crate) fn add_contact(&mut self, name: &Name, contact: &Contact) -> Result<(), Collision> {
        if let Some((what, other)) = self.key_of_another(name, contact) {
            return Err(Collision::Twice { what, one: name.clone(), other });
        }
        self.add_hops(name, contact.hop_prefix)?;
        self.keys.extend(contact.keys().map(|key| (key, name.clone())));
        Ok(())
    }

    fn key_of_another(&self, name: &Name, contact: &Contact) -> Option<(&'static str, Name)> {
        let owners = contact.keys().filter_map(|key| self.keys.get(&key));
        owners.filter(|other| *other != name).map(|other| ("the key", other.clone())).next()
    }

    /// Adds networks that a site takes by itself: they do not even touch those of others.
    ///
    /// # Errors
    /// If they collide; then nothing is added.
    pub(crate) fn add_networks(&mut self, name: &Name, networks: &[IpNet]) -> Result<(), Collision> {
        for network in networks {
            let others = overlapping(&self.networks, *network).find(|(_, other)| *other != name);
            if let Some((their, other)) = others {
                let (one, other) = (name.clone(), other.clone());
                return Err(Collision::Overlaps { one, network: *network, other, their });
            }
            self.refuse_hops(name, *network)?;
        }
        self.networks.extend(networks.iter().map(|network| (*network, name.clone())));
        Ok(())
    }

    fn add_hops(&mut self, name: &Name, prefix: Ipv6Net) -> Result<(), Collision> {
        let prefix = IpNet::V6(prefix);
        let around = overlapping(&self.networks, prefix).next();
        if let Some((network, other)) = around {
            let (one, other) = (name.clone(), other.clone());
            return Err(Collision::HopsAmongHosts { one, prefix, other, network });
        }
        self.hops.insert(prefix, name.clone());
        Ok(())
    }

    /// Refuses a network that somebody hops in.
    fn refuse_hops(&self, name: &Name, network: IpNet) -> Result<(), Collision> {
        match overlapping(&self.hops, network).next() {
            Some((prefix, one)) => {
                let (one, other) = (one.clone(), name.clone());
                Err(Collision::HopsAmongHosts { one, prefix, other, network })
            }
            None => Ok(()),
        }
    }
}

/// Takes note of whose a value is, unless it is somebody else's.
fn claim<K: Ord>(
    known: &mut BTreeMap<K, Name>,
    value: K,
    name: &Name,
    what: &'static str,
) -> Result<(), Collision> {
    match known.insert(value, name.clone()) {
        Some(other) if other != *name => Err(Collision::Twice { what, one: name.clone(), other }),
        _ => Ok(()),
    }
}

/// Those that overlap a prefix. They are in the order of their addresses: one that contains the prefix is looked for by its
/// length, and those inside of it follow it.
fn overlapping(known: &BTreeMap<IpNet, Name>, prefix: IpNet) -> impl Iterator<Item = (IpNet, &Name)> {
    let around = (0..prefix.prefix_len()).rev().filter_map(move |length| {
        let wider = IpNet::new(prefix.addr(), length).ok()?.trunc();
        known.get_key_value(&wider)
    });
    let first = IpNet::new(prefix.network(), 0).expect("every address has a prefix of no bits");
    let inside = known
        .range(first..)
        .take_while(move |(network, _)| network.addr() <= prefix.broadcast())
        .filter(move |(network, _)| prefix.contains(*network));
    around.chain(inside).map(|(network, name)| (*network, name))
}

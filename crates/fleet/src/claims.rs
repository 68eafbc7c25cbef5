//! What each site has to itself: its identity, its keys, its networks, its agent's address. Two cannot have the same.
//!
//! It is kept in two parts. What the document says of members is the same for all who have it: a change of the document changes
//! a few of its entries. What is known here beside it is little at most sites, and is made anew when something of it goes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};

use crate::key::VerifyingKey;
use crate::name::Name;
use crate::site::{Contact, Member, TunnelKey};

/// What sites have to themselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    /// What the document says of members.
    members: Arc<Part>,
    /// What is known beside it: how sites are met, what they say of themselves, what delegates allow.
    beside: Part,
}

/// A part of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Part {
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

impl Part {
    /// Adds what the document says of a member. One that is revoked keeps its identity, and nothing else.
    ///
    /// # Errors
    /// If another has it.
    pub(crate) fn add(&mut self, member: &Member) -> Result<(), Collision> {
        let name = &member.name;
        claim(&mut self.identities, member.identity, name, "the identity")?;
        if member.is_revoked() {
            return Ok(());
        }
        // In the documents of administrators one may lie in another: the longest prefix decides.
        for network in &member.networks {
            claim(&mut self.networks, *network, name, "a network")?;
        }
        match member.address {
            Some(address) => claim(&mut self.addresses, address, name, "the address"),
            None => Ok(()),
        }
    }

    /// Takes out what was added of a member.
    pub(crate) fn remove(&mut self, member: &Member) {
        self.identities.remove(&member.identity);
        if member.is_revoked() {
            return;
        }
        for network in &member.networks {
            self.networks.remove(network);
        }
        if let Some(address) = &member.address {
            self.addresses.remove(address);
        }
    }
}

impl Claims {
    /// Of members, and nothing beside.
    pub(crate) fn of(members: Arc<Part>) -> Self {
        Claims { members, beside: Part::default() }
    }

    /// What the document says of members.
    pub(crate) fn members(&self) -> &Arc<Part> {
        &self.members
    }

    /// Shares the part of the members with others who have the same document.
    pub(crate) fn share(&mut self, members: &Arc<Part>) {
        self.members = Arc::clone(members);
    }

    fn parts(&self) -> [&Part; 2] {
        [&self.members, &self.beside]
    }

    /// Adds a site that is not in the document. One that is revoked keeps its keys, and nothing else.
    ///
    /// # Errors
    /// If another has what it has; then a part of it may have been added.
    pub(crate) fn add(&mut self, member: &Member, contact: Option<&Contact>) -> Result<(), Collision> {
        let name = &member.name;
        self.refuse_taken(|part| part.identities.get(&member.identity), name, "the identity")?;
        if !member.is_revoked() {
            for network in &member.networks {
                self.refuse_taken(|part| part.networks.get(network), name, "a network")?;
                self.refuse_hops(name, *network)?;
            }
            if let Some(address) = &member.address {
                self.refuse_taken(|part| part.addresses.get(address), name, "the address")?;
            }
        }
        self.beside.add(member)?;
        self.add_contact_of(member, contact)
    }

    /// Adds how a site is met, as administrators or a delegate have signed it.
    ///
    /// # Errors
    /// If that collides; then a part of it may have been added.
    pub(crate) fn add_contact_of(
        &mut self,
        member: &Member,
        contact: Option<&Contact>,
    ) -> Result<(), Collision> {
        let Some(contact) = contact else { return Ok(()) };
        for key in contact.keys() {
            claim(&mut self.beside.keys, key, &member.name, "the key")?;
        }
        if member.is_revoked() { Ok(()) } else { self.add_hops(&member.name, contact.hop_prefix) }
    }

    /// Adds how a site is met in its own words.
    ///
    /// # Errors
    /// If that collides; then nothing is added.
    pub(crate) fn add_contact(&mut self, name: &Name, contact: &Contact) -> Result<(), Collision> {
        for key in contact.keys() {
            self.refuse_taken(|part| part.keys.get(&key), name, "the key")?;
        }
        self.add_hops(name, contact.hop_prefix)?;
        self.beside.keys.extend(contact.keys().map(|key| (key, name.clone())));
        Ok(())
    }

    /// Adds networks that a site takes by itself: they do not even touch those of others.
    ///
    /// # Errors
    /// If they collide; then nothing is added.
    pub(crate) fn add_networks(&mut self, name: &Name, networks: &[IpNet]) -> Result<(), Collision> {
        for network in networks {
            let all = self.parts().into_iter().flat_map(|part| overlapping(&part.networks, *network));
            if let Some((their, other)) = all.into_iter().find(|(_, other)| *other != name) {
                let (one, other) = (name.clone(), other.clone());
                return Err(Collision::Overlaps { one, network: *network, other, their });
            }
            self.refuse_hops(name, *network)?;
        }
        self.beside.networks.extend(networks.iter().map(|network| (*network, name.clone())));
        Ok(())
    }

    fn add_hops(&mut self, name: &Name, prefix: Ipv6Net) -> Result<(), Collision> {
        let prefix = IpNet::V6(prefix);
        let around = self.parts().into_iter().find_map(|part| overlapping(&part.networks, prefix).next());
        if let Some((network, other)) = around {
            let (one, other) = (name.clone(), other.clone());
            return Err(Collision::HopsAmongHosts { one, prefix, other, network });
        }
        self.beside.hops.insert(prefix, name.clone());
        Ok(())
    }

    /// Refuses a network that somebody hops in.
    fn refuse_hops(&self, name: &Name, network: IpNet) -> Result<(), Collision> {
        match self.parts().into_iter().find_map(|part| overlapping(&part.hops, network).next()) {
            Some((prefix, one)) => {
                let (one, other) = (one.clone(), name.clone());
                Err(Collision::HopsAmongHosts { one, prefix, other, network })
            }
            None => Ok(()),
        }
    }

    /// Refuses what another has.
    fn refuse_taken<'c>(
        &'c self,
        owner: impl Fn(&'c Part) -> Option<&'c Name>,
        name: &Name,
        what: &'static str,
    ) -> Result<(), Collision> {
        match self.parts().into_iter().filter_map(owner).find(|other| *other != name) {
            Some(other) => Err(Collision::Twice { what, one: name.clone(), other: other.clone() }),
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
    let lengths = if known.is_empty() { 0 } else { prefix.prefix_len() };
    let around = (0..lengths).rev().filter_map(move |length| {
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

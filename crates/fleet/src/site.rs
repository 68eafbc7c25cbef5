//! A site, in two lines: what every member knows of it, and how to meet it.
//!
//! The second is for those who have a tunnel with it. A member that is none of them is told its digest alone, so that it can
//! verify the document, and who takes over that member does not learn where everybody else is.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};
use mt6d::config::HOP_PREFIX_LENGTH;
use mt6d::keys::PublicKey;
use serde::{Deserialize, Serialize};

use crate::key::{Digest, VerifyingKey};
use crate::line::{Line, NoLine};
use crate::name::Name;

/// The most networks that a site has, and the most that it may take networks of: it chooses them itself, and every member keeps
/// them.
const MOST_NETWORKS: usize = 256;

/// What every member knows of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name, also as a peer.
    pub name: Name,
    /// What it signs with.
    pub identity: VerifyingKey,
    /// What it is, for the rules: `hub`, `spoke`, whatever the policy speaks of.
    pub role: Name,
    /// Where it is, for the rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Name>,
    /// How it is trusted, for the rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<Name>,
    /// Gateways that stand by for each other: the name of the lease by which they tell who is active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standby: Option<Name>,
    /// The networks behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<IpNet>,
    /// What it may take networks of by itself, if its provider renumbers it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_take: Vec<IpNet>,
    /// The address inside of the tunnels at which its agent answers, one of its networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// What it has said of itself up to this number says nothing any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub notices_after: u64,
    /// Since when it is none any more, in seconds of Unix time. Its name and its keys stay taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<u64>,
}

/// How a site is met.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contact {
    /// Its key as a peer.
    pub key: TunnelKey,
    /// The key that it is going to have, or has already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_key: Option<TunnelKey>,
    /// Where it hops.
    pub hop_prefix: Ipv6Net,
}

/// The public key of a tunnel's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TunnelKey(pub PublicKey);

/// How to meet a site, as far as it is known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known {
    /// It is known.
    Contact(Line<Contact>),
    /// It is not for this member.
    Withheld(Digest),
}

/// A site in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// What every member knows.
    pub member: Line<Member>,
    /// How to meet it.
    pub contact: Known,
}

/// A site in a document, borrowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'d> {
    pub(crate) member: &'d Line<Member>,
    /// The digest of the contact's line.
    pub(crate) digest: &'d Digest,
    pub(crate) contact: Option<&'d Line<Contact>>,
}

/// A site as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteLines {
    /// The line of [`Member`].
    member: String,
    /// The line of [`Contact`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contact: Option<String>,
    /// Its digest, for those whom it is withheld from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    withheld: Option<Digest>,
}

/// Why a site is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SiteError {
    /// A line is not understood.
    #[error(transparent)]
    NoLine(#[from] NoLine),
    /// There is neither a contact nor its digest.
    #[error("site {0} has neither a contact nor the digest of one")]
    NoContact(Name),
    /// Nobody can hop there.
    #[error("site {site} cannot hop in {prefix}: the hopping prefix has {} to {} bits", HOP_PREFIX_LENGTH.start(), HOP_PREFIX_LENGTH.end())]
    HopPrefix {
        /// Whose.
        site: Name,
        /// The prefix.
        prefix: Ipv6Net,
    },
    /// No secret can be shared with it.
    #[error("site {site} cannot have the key {}: it is a point of small order", String::from(*.key))]
    Key {
        /// Whose.
        site: Name,
        /// The key.
        key: TunnelKey,
    },
    /// Bits are set after the prefix, or the network is not one that hosts are in.
    #[error("site {site} cannot have the network {network}")]
    Network {
        /// Whose.
        site: Name,
        /// The network.
        network: IpNet,
    },
    /// It has more networks than anybody needs.
    #[error(
        "site {site} has {found} networks, or may take networks of so many: {MOST_NETWORKS} are the most"
    )]
    Many {
        /// Whose.
        site: Name,
        /// How many.
        found: usize,
    },
    /// Its agent's address is not its own.
    #[error("the agent's address {address} of site {site} is in none of its networks")]
    Address {
        /// Whose.
        site: Name,
        /// The address.
        address: IpAddr,
    },
}

impl Member {
    /// Whether it is one.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.revoked.is_some()
    }

    /// Refuses what could not be configured.
    ///
    /// # Errors
    /// If it could not.
    pub fn check(&self) -> Result<(), SiteError> {
        check_number(&self.name, &self.may_take)?;
        check_networks(&self.name, &self.networks, self.address)
    }
}

fn check_number(site: &Name, networks: &[IpNet]) -> Result<(), SiteError> {
    let found = networks.len();
    if found > MOST_NETWORKS { Err(SiteError::Many { site: site.clone(), found }) } else { Ok(()) }
}

/// Refuses too many networks, those that no host could be in, and an agent that is in none of them.
pub(crate) fn check_networks(
    site: &Name,
    networks: &[IpNet],
    address: Option<IpAddr>,
) -> Result<(), SiteError> {
    check_number(site, networks)?;
    let is_network = |network: &&IpNet| {
        let first = network.addr();
        network.trunc() == **network && !first.is_multicast() && !first.is_loopback()
    };
    if let Some(network) = networks.iter().find(|network| !is_network(network)) {
        return Err(SiteError::Network { site: site.clone(), network: *network });
    }
    match address.filter(|address| !networks.iter().any(|network| network.contains(address))) {
        Some(address) => Err(SiteError::Address { site: site.clone(), address }),
        None => Ok(()),
    }
}

impl Contact {
    /// Refuses what could not be configured.
    ///
    /// # Errors
    /// If it could not.
    pub fn check(&self, site: &Name) -> Result<(), SiteError> {
        let prefix = self.hop_prefix;
        let is_good = HOP_PREFIX_LENGTH.contains(&prefix.prefix_len())
            && prefix.trunc() == prefix
            && !prefix.addr().is_multicast()
            && !prefix.addr().is_unspecified();
        if let Some(key) = self.keys().find(|key| key.0.is_of_small_order()) {
            return Err(SiteError::Key { site: site.clone(), key });
        }
        if is_good { Ok(()) } else { Err(SiteError::HopPrefix { site: site.clone(), prefix }) }
    }

    /// Its keys.
    pub fn keys(&self) -> impl Iterator<Item = TunnelKey> {
        [Some(self.key), self.next_key].into_iter().flatten()
    }
}

impl Known {
    /// The digest of the contact's line.
    #[must_use]
    pub fn digest(&self) -> &Digest {
        match self {
            Known::Contact(line) => line.digest(),
            Known::Withheld(digest) => digest,
        }
    }

    /// The contact's line, if that is known here.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Known::Contact(line) => Some(line.text()),
            Known::Withheld(_) => None,
        }
    }

    /// How to meet it, if that is known here.
    #[must_use]
    pub fn contact(&self) -> Option<&Contact> {
        match self {
            Known::Contact(line) => Some(line.value()),
            Known::Withheld(_) => None,
        }
    }
}

impl Site {
    /// A site of which all is known.
    #[must_use]
    pub fn new(member: Member, contact: Contact) -> Self {
        Site { member: Line::new(member), contact: Known::Contact(Line::new(contact)) }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.member.value().name
    }

    pub(crate) fn told(&self) -> Told<'_> {
        let contact = match &self.contact {
            Known::Contact(line) => Some(line),
            Known::Withheld(_) => None,
        };
        Told { member: &self.member, digest: self.contact.digest(), contact }
    }
}

impl<'d> Told<'d> {
    pub(crate) fn name(&self) -> &'d Name {
        &self.member.value().name
    }

    /// Whether they are the same, whatever is known of it.
    pub(crate) fn is_same(&self, other: &Told<'_>) -> bool {
        self.member == other.member && self.digest == other.digest
    }

    /// Its lines; the contact only for who may know it.
    pub(crate) fn lines(&self, with_contact: bool) -> SiteLines {
        let member = self.member.text().to_owned();
        match self.contact {
            Some(line) if with_contact => {
                SiteLines { member, contact: Some(line.text().to_owned()), withheld: None }
            }
            _ => SiteLines { member, contact: None, withheld: Some(*self.digest) },
        }
    }
}

impl From<Told<'_>> for Site {
    fn from(told: Told<'_>) -> Self {
        let contact = told.contact.cloned().map_or(Known::Withheld(*told.digest), Known::Contact);
        Site { member: told.member.clone(), contact }
    }
}

impl TryFrom<SiteLines> for Site {
    type Error = SiteError;

    fn try_from(lines: SiteLines) -> Result<Self, SiteError> {
        let member = Line::<Member>::read(lines.member)?;
        member.value().check()?;
        let name = &member.value().name;
        let contact = match (lines.contact, lines.withheld) {
            (Some(text), None) => {
                let contact = Line::<Contact>::read(text)?;
                contact.value().check(name)?;
                Known::Contact(contact)
            }
            (None, Some(digest)) => Known::Withheld(digest),
            _ => return Err(SiteError::NoContact(name.clone())),
        };
        Ok(Site { member, contact })
    }
}

impl TryFrom<String> for TunnelKey {
    type Error = mt6d::keys::KeyError;

    fn try_from(text: String) -> Result<Self, mt6d::keys::KeyError> {
        text.parse().map(TunnelKey)
    }
}

impl From<TunnelKey> for String {
    fn from(key: TunnelKey) -> String {
        key.0.to_string()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

//! Who may sign: administrators, so many of whom have to agree, and keys that they have delegated a part to.
//!
//! An authority is signed by enough administrators of the one before it, and by enough of its own. So who has any of them can
//! follow the chain to the newest, and who holds one key too few can change nothing. The first one *is* the network: its digest
//! is the network's name, which a site is given when it enrols.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::key::{Digest, VerifyingKey};
use crate::name::Name;
use crate::signed::{NotUnderstood, Signed, Statement};

/// The network: the digest of its first authority.
pub type NetworkId = Digest;

/// The most administrators, and the most delegates.
const MOST: usize = 32;

/// Who may sign.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Authority {
    /// 1 for the first; each is one more than the one before.
    pub version: u64,
    /// The network, which the first one has none of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkId>,
    /// How many administrators have to sign.
    pub threshold: usize,
    /// Those who sign documents, and the next authority.
    pub administrators: Vec<Administrator>,
    /// Those who may add sites, and perhaps take them out, within limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegates: Vec<Delegate>,
}

impl Statement for Authority {
    const KIND: &'static str = "authority 1";
}

/// A person, or a machine without a network, that signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Administrator {
    /// What others call it.
    pub name: Name,
    /// What it signs with.
    pub key: VerifyingKey,
}

/// A key that may sign a part of what administrators may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegate {
    /// What others call it.
    pub name: Name,
    /// What it signs with.
    pub key: VerifyingKey,
    /// How many sites it may add between two documents of the administrators.
    pub most: usize,
    /// The roles that they may have.
    pub roles: Vec<Name>,
    /// The zones that they may be in; without any, they are in none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<Name>,
    /// What the networks behind them lie in.
    pub within: Vec<IpNet>,
    /// Whether it may also take sites of these roles and zones out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_revoke: bool,
}

/// The authorities of a network, from its first to the newest that is known here.
#[derive(Debug, Clone)]
pub struct Chain {
    network: NetworkId,
    links: Vec<Signed<Authority>>,
    current: Authority,
}

/// Why an authority is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthorityError {
    /// It cannot be read.
    #[error(transparent)]
    NotUnderstood(#[from] NotUnderstood),
    /// It is of another network.
    #[error("it is of another network")]
    Foreign,
    /// It is not the one that comes next.
    #[error("version {found} of the authority cannot follow version {known}")]
    Sequence {
        /// What it is.
        found: u64,
        /// What is known here.
        known: u64,
    },
    /// It is not the one that somebody was told of, nor does it come after that.
    #[error("it does not follow from the authority that was in force when the site was invited")]
    Astray,
    /// It could never be used.
    #[error("{0}")]
    Senseless(&'static str),
    /// Too few have signed it.
    #[error("{found} administrators of version {version} have signed, {needed} have to")]
    Signatures {
        /// Whose administrators.
        version: u64,
        /// How many of them have signed.
        found: usize,
        /// How many have to.
        needed: usize,
    },
}

impl Authority {
    /// Refuses one that nobody could use, or that says the same key twice.
    ///
    /// # Errors
    /// If it is senseless.
    pub fn check(&self) -> Result<(), AuthorityError> {
        let refuse = |why| Err(AuthorityError::Senseless(why));
        if self.threshold == 0 || self.threshold > self.administrators.len() {
            return refuse("the threshold is from 1 to the number of administrators");
        }
        if self.administrators.len() > MOST || self.delegates.len() > MOST {
            return refuse("there are at most 32 administrators and 32 delegates");
        }
        let administrators = self.administrators.iter().map(|one| (&one.name, one.key));
        let mut known: Vec<_> =
            administrators.chain(self.delegates.iter().map(|one| (&one.name, one.key))).collect();
        let all = known.len();
        known.sort_by_key(|(name, _)| *name);
        known.dedup_by_key(|(name, _)| *name);
        let names = known.len();
        known.sort_by_key(|(_, key)| *key);
        known.dedup_by_key(|(_, key)| *key);
        if names < all || known.len() < names {
            return refuse("two administrators or delegates have the same name or key");
        }
        Ok(())
    }

    /// Whether so many administrators as have to have signed this.
    ///
    /// # Errors
    /// If too few have.
    pub fn verify<T: Statement>(&self, signed: &Signed<T>) -> Result<(), AuthorityError> {
        let found = signed.signers(self.administrators.iter().map(|one| one.key));
        let (version, needed) = (self.version, self.threshold);
        if found < needed { Err(AuthorityError::Signatures { version, found, needed }) } else { Ok(()) }
    }
}

impl Chain {
    /// The chain of a network that begins with this authority.
    ///
    /// # Errors
    /// If it is none that begins one.
    pub fn begin(first: Signed<Authority>) -> Result<Self, AuthorityError> {
        let current = first.read()?;
        if current.version != 1 || current.network.is_some() {
            return Err(AuthorityError::Sequence { found: current.version, known: 0 });
        }
        current.check()?;
        current.verify(&first)?;
        Ok(Chain { network: first.digest(), links: vec![first], current })
    }

    /// The chain of the network of this name, out of its links.
    ///
    /// # Errors
    /// If they are of another network, or one of them does not follow the one before it.
    pub fn of(
        network: NetworkId,
        links: impl IntoIterator<Item = Signed<Authority>>,
    ) -> Result<Self, AuthorityError> {
        let mut links = links.into_iter();
        let first = links.next().ok_or(AuthorityError::Foreign)?;
        // Before its signatures: what somebody else has made is not his to begin with.
        if first.digest() != network {
            return Err(AuthorityError::Foreign);
        }
        let mut chain = Chain::begin(first)?;
        for next in links {
            chain.extend(next)?;
        }
        Ok(chain)
    }

    /// Takes the next authority.
    ///
    /// # Errors
    /// If it is not the next one, or too few have signed it.
    pub fn extend(&mut self, next: Signed<Authority>) -> Result<(), AuthorityError> {
        let authority = self.next(&next)?;
        self.current.verify(&next)?;
        // Its own too: keys that nobody has would lock everybody out.
        authority.verify(&next)?;
        self.links.push(next);
        self.current = authority;
        Ok(())
    }

    /// Takes the next authority as if enough had signed it, to show what that would do.
    pub(crate) fn suppose(&mut self, next: Signed<Authority>) -> Result<(), AuthorityError> {
        self.current = self.next(&next)?;
        self.links.push(next);
        Ok(())
    }

    /// What an authority says, if it is one that comes next, whoever has signed it.
    fn next(&self, next: &Signed<Authority>) -> Result<Authority, AuthorityError> {
        let authority = next.read()?;
        if authority.network != Some(self.network) {
            return Err(AuthorityError::Foreign);
        }
        let known = self.current.version;
        if known.checked_add(1) != Some(authority.version) {
            return Err(AuthorityError::Sequence { found: authority.version, known });
        }
        authority.check()?;
        Ok(authority)
    }

    /// The delegates of an authority and of those after it.
    pub(crate) fn delegates_since(&self, version: u64) -> impl Iterator<Item = Delegate> {
        let before = usize::try_from(version.saturating_sub(1)).unwrap_or(usize::MAX);
        self.links.iter().skip(before).filter_map(|link| link.read().ok()).flat_map(|one| one.delegates)
    }

    /// The network.
    #[must_use]
    pub fn network(&self) -> NetworkId {
        self.network
    }

    /// The newest.
    #[must_use]
    pub fn current(&self) -> &Authority {
        &self.current
    }

    /// The digest of the newest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.links.last().map_or(self.network, Signed::digest)
    }

    /// Whether the authority with this digest is one of them.
    #[must_use]
    pub fn contains(&self, digest: Digest) -> bool {
        self.links.iter().any(|link| link.digest() == digest)
    }

    /// The links behind this version: what somebody who has that lacks.
    #[must_use]
    pub fn after(&self, version: u64) -> &[Signed<Authority>] {
        let known = usize::try_from(version).unwrap_or(usize::MAX).min(self.links.len());
        &self.links[known..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SigningKey;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed([seed; 32])
    }

    fn authority(version: u64, threshold: usize, seeds: &[u8]) -> Authority {
        let one =
            |seed: &u8| Administrator { name: format!("a{seed}").parse().unwrap(), key: key(*seed).public() };
        let administrators = seeds.iter().map(one).collect();
        Authority { version, network: None, threshold, administrators, delegates: Vec::new() }
    }

    fn first() -> Signed<Authority> {
        Signed::new(&authority(1, 2, &[1, 2, 3]), [&key(1), &key(3)])
    }

    fn next(chain: &Chain, version: u64, seeds: &[u8], signers: &[u8]) -> Signed<Authority> {
        let value = Authority { network: Some(chain.network()), ..authority(version, 2, seeds) };
        let keys: Vec<SigningKey> = signers.iter().map(|seed| key(*seed)).collect();
        Signed::new(&value, &keys)
    }

    #[test]
    fn the_next_one_is_signed_by_enough_of_both() {
        let mut chain = Chain::begin(first()).unwrap();
        let too_few_old = next(&chain, 2, &[3, 4, 5], &[3, 4, 5]);
        assert!(matches!(
            chain.extend(too_few_old),
            Err(AuthorityError::Signatures { version: 1, found: 1, .. })
        ));
        let too_few_new = next(&chain, 2, &[3, 4, 5], &[1, 2, 3]);
        assert!(matches!(
            chain.extend(too_few_new),
            Err(AuthorityError::Signatures { version: 2, found: 1, .. })
        ));
        chain.extend(next(&chain, 2, &[3, 4, 5], &[1, 3, 4])).unwrap();
        assert_eq!(chain.current().version, 2);
        // Those who went have no say any more.
        let by_old = next(&chain, 3, &[1, 2, 3], &[1, 2]);
        assert!(chain.extend(by_old).is_err());
    }

    #[test]
    fn who_has_an_old_one_follows_the_chain() {
        let mut chain = Chain::begin(first()).unwrap();
        chain.extend(next(&chain, 2, &[3, 4, 5], &[1, 3, 4])).unwrap();
        chain.extend(next(&chain, 3, &[4, 5, 6], &[4, 5])).unwrap();
        let mut behind = Chain::begin(first()).unwrap();
        for link in chain.after(1) {
            behind.extend(link.clone()).unwrap();
        }
        assert_eq!(behind.current(), chain.current());
        assert!(chain.after(3).is_empty() && chain.after(99).is_empty());
        let all = chain.after(0).to_vec();
        assert_eq!(Chain::of(chain.network(), all.clone()).unwrap().current(), chain.current());
        // A gap, an older one again, and another beginning.
        assert!(Chain::of(chain.network(), [all[0].clone(), all[2].clone()]).is_err());
        assert!(chain.extend(all[1].clone()).is_err());
        let other = Signed::new(&authority(1, 1, &[9]), [&key(9)]);
        assert_eq!(Chain::of(chain.network(), [other]).unwrap_err(), AuthorityError::Foreign);
    }

    #[test]
    fn what_nobody_could_use_is_refused() {
        for senseless in [authority(1, 0, &[1]), authority(1, 2, &[1]), authority(1, 1, &[])] {
            let signed = Signed::new(&senseless, [&key(1)]);
            assert!(matches!(Chain::begin(signed), Err(AuthorityError::Senseless(_))), "{senseless:?}");
        }
        let twice = Signed::new(&authority(1, 2, &[1, 1]), [&key(1)]);
        assert!(matches!(Chain::begin(twice), Err(AuthorityError::Senseless(_))));
    }
}

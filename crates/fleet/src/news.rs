//! News of a fleet: what travels between those who have it, and what came of it.

use serde::{Deserialize, Serialize};

use crate::authority::{Authority, AuthorityError};
use crate::document::{Change, ContentsError, Head, Serial};
use crate::key::Digest;
use crate::name::Name;
use crate::notice::{ContactNotice, DelegatedLines, NetworksNotice};
use crate::signed::{NotUnderstood, Signed};

/// News of a fleet, as they travel. Whoever brings them is believed nothing: each part has its signatures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct News {
    /// The authorities behind one that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<Signed<Authority>>,
    /// A document's head, and what is different in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<DocumentNews>,
    /// What delegates have allowed with the newest document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegated: Vec<DelegatedLines>,
    /// How sites are met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contacts: Vec<Signed<ContactNotice>>,
    /// Which networks are behind sites.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Signed<NetworksNotice>>,
}

/// A document that is new to somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DocumentNews {
    /// Its head.
    pub head: Signed<Head>,
    /// What is different in it.
    pub change: Change,
}

/// What came of news.
#[derive(Debug, Default)]
pub struct Taken {
    /// Whether anything is different now.
    pub is_new: bool,
    /// What was refused, with reasons. What is merely old is not among it.
    pub refused: Vec<Refusal>,
    /// Sites that have said something of themselves that was not known.
    pub said: Vec<Name>,
}

/// Why a part of news is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// An authority.
    #[error("the authority is refused: {0}")]
    Authority(AuthorityError),
    /// A document's signatures.
    #[error("the document is refused: {0}")]
    Document(AuthorityError),
    /// A document that is no document.
    #[error(transparent)]
    NotUnderstood(#[from] NotUnderstood),
    /// A document's contents.
    #[error("document {} is refused: {why}", .serial.0)]
    Contents {
        /// Which one.
        serial: Serial,
        /// Why.
        why: ContentsError,
    },
    /// A document with contents that were not signed.
    #[error("document {} is refused: its contents are not those that were signed", .0.0)]
    NotSigned(Serial),
    /// A document of an authority that is not the newest that is known here.
    #[error("document {} is refused: it was signed by version {found} of the authority, {known} is in force", .serial.0)]
    Authorship {
        /// Which one.
        serial: Serial,
        /// Of which authority it is.
        found: u64,
        /// Which one is in force.
        known: u64,
    },
    /// A change of a document that is not the one that is known here.
    #[error("document {} is told as a change of one that is not known here", .0.0)]
    Gap(Serial),
    /// A document of this serial is known, and says something else.
    #[error("there are two documents {}: the administrators have signed both", .0.0)]
    Fork(Serial),
    /// Something of another network.
    #[error("it is of another network")]
    Foreign,
    /// A notice of a site that is none, or that did not sign it.
    #[error("a notice of {0} is refused: no such site has signed it")]
    Unsigned(Name),
    /// A notice that says what its site may not say, or what collides with another site.
    #[error("a notice of {site} is refused: {why}")]
    Notice {
        /// Whose.
        site: Name,
        /// Why.
        why: String,
    },
    /// Something beyond the limits of a delegate.
    #[error("what {by} has allowed is refused: {why}")]
    Delegate {
        /// Who has.
        by: Name,
        /// Why.
        why: String,
    },
    /// Something that is signed by nobody who may.
    #[error("what a delegate is said to have allowed is signed by none")]
    NoDelegate,
}

/// What somebody knows already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Have {
    /// The version of the authority.
    #[serde(default)]
    pub authority: u64,
    /// The document.
    #[serde(default)]
    pub serial: Option<Serial>,
    /// Of what delegates have allowed with it.
    #[serde(default)]
    pub delegated: Option<Digest>,
}

impl Taken {
    pub(crate) fn note(&mut self, result: Result<bool, Refusal>) {
        match result {
            Ok(is_new) => self.is_new |= is_new,
            Err(refusal) => self.refused.push(refusal),
        }
    }

    pub(crate) fn note_said(&mut self, result: Result<Option<Name>, Refusal>) {
        match result {
            Ok(said) => {
                self.is_new |= said.is_some();
                self.said.extend(said);
            }
            Err(refusal) => self.refused.push(refusal),
        }
    }
}

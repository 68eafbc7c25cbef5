//! What the store's entries say.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fleet::document::{Head, Serial};
use fleet::enrolment::{Application, Terms};
use fleet::key::Digest;
use fleet::name::Name;
use fleet::signed::Signed;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::Entry;

use crate::error::Error;

/// The form of this layout.
pub(crate) const SCHEMA: &str = "1";

/// Which document is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InForce {
    pub(crate) serial: Serial,
    /// The digest of its head.
    pub(crate) head: Digest,
}

/// A document.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StoredDocument {
    pub(crate) head: Signed<Head>,
    /// The parts of its change from the one before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) change: Vec<Digest>,
    /// The parts of it as a whole, of some.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) whole: Vec<Digest>,
}

/// An invitation's key, which nobody has used, or somebody once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// What it is good for.
    pub terms: Terms,
    /// Until when, in seconds of Unix time.
    pub expires: u64,
    /// Who has invited.
    pub by: String,
    /// The application that it was used for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
}

/// An application as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Applied {
    /// What was signed.
    pub signed: Signed<Application>,
    /// Who has invited.
    pub invited_by: String,
    /// When it came, in seconds of Unix time.
    pub at: u64,
    /// Why it was turned down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// Who may use the interface for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Access {
    /// Who, for the log.
    pub name: Name,
    /// What for.
    pub role: Role,
    /// Until when, in seconds of Unix time; for ever without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
}

/// What somebody may do with a controller: each may what those before may. What is in force nobody of them decides: signatures
/// do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// See all of the fleet: sites, where they are met, applications, log.
    Viewer,
    /// Invite sites, and turn applications down.
    Inviter,
    /// Hand in what administrators and delegates have signed.
    Publisher,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum What {
    /// A document was published, perhaps with other administrators.
    Published {
        /// Its serial.
        serial: Serial,
        /// The digest of its head.
        head: Digest,
        /// The version of the authority that it is of.
        authority: u64,
    },
    /// Something that a delegate has signed.
    Delegated {
        /// The digests of what was signed.
        acts: Vec<Digest>,
    },
    /// A site was invited.
    Invited {
        /// The token.
        token: String,
        /// Which one, if only one.
        site: Option<Name>,
        /// Until when.
        expires: u64,
    },
    /// An invitation was taken back.
    Uninvited {
        /// The token.
        token: String,
    },
    /// A site has applied.
    Applied {
        /// Its application.
        application: String,
        /// Its name.
        site: Name,
    },
    /// An application was turned down.
    Refused {
        /// The application.
        application: String,
        /// The site's name.
        site: Name,
        /// Why.
        why: String,
    },
    /// Somebody may use the interface.
    Granted {
        /// Who.
        name: Name,
        /// What for.
        role: Role,
    },
    /// Somebody has logged in at the identity provider.
    LoggedIn {
        /// Who.
        name: Name,
        /// What for.
        role: Role,
        /// Until when, in seconds of Unix time.
        until: u64,
    },
    /// He has logged out.
    LoggedOut {
        /// Who.
        name: Name,
    },
    /// Somebody may not any more.
    Withdrawn {
        /// Who.
        name: Name,
    },
    /// All of it comes from a backup.
    Restored {},
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Published { serial, authority, .. } => {
                write!(f, "published document {} (authority {authority})", serial.0)
            }
            What::Delegated { acts } => write!(f, "handed in what a delegate has signed ({})", acts.len()),
            What::Invited { token, site, .. } => {
                let site = site.as_ref().map_or("any site", Name::as_str);
                write!(f, "invited {site} (token {})", short(token))
            }
            What::Uninvited { token } => write!(f, "took back the invitation with token {}", short(token)),
            What::Applied { application, site } => {
                write!(f, "{site} has applied (application {})", short(application))
            }
            What::Refused { application, site, why } => {
                write!(f, "turned down application {} of {site}: {why}", short(application))
            }
            What::Granted { name, role } => write!(f, "let {name} in as {role}"),
            What::LoggedIn { name, role, .. } => write!(f, "{name} has logged in as {role}"),
            What::LoggedOut { name } => write!(f, "{name} has logged out"),
            What::Withdrawn { name } => write!(f, "let {name} in no more"),
            What::Restored {} => write!(f, "restored from a backup"),
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Viewer => "viewer",
            Role::Inviter => "inviter",
            Role::Publisher => "publisher",
        })
    }
}

/// As much of an identification as people compare.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// As an entry says it.
pub(crate) fn text(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("records are maps with keys that are texts")
}

/// What an entry says.
pub(crate) fn read<T: DeserializeOwned>(entry: &Entry) -> Result<T, Error> {
    serde_json::from_slice(&entry.value).map_err(|error| Error::Broken(format!("{}: {error}", entry.key)))
}

/// Seconds of Unix time.
#[must_use]
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Unavailable(format!("the kernel's randomness: {error}")))?;
    Ok(bytes)
}

pub(crate) fn random_hex() -> Result<String, Error> {
    Ok(URL_SAFE_NO_PAD.encode(random::<16>()?))
}

//! What is signed beside documents: what a site says of itself, and what a delegate has allowed.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::authority::NetworkId;
use crate::document::Serial;
use crate::key::Digest;
use crate::name::Name;
use crate::signed::{Signed, Statement};
use crate::site::{Contact, Member};

/// How a site is met now, in its own words: it was renumbered, or has another key. For those who have a tunnel with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContactNotice {
    /// The network that it is of.
    pub network: NetworkId,
    /// Who says so.
    pub site: Name,
    /// Of two the one with the higher number counts. See [`next_number`].
    pub number: u64,
    /// How it is met.
    pub contact: Contact,
}

/// Which networks are behind a site now, in its own words, out of those that it may take. For every member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworksNotice {
    /// The network that it is of.
    pub network: NetworkId,
    /// Who says so.
    pub site: Name,
    /// Of two the one with the higher number counts.
    pub number: u64,
    /// The networks behind it.
    pub networks: Vec<IpNet>,
    /// The address inside of the tunnels at which its agent answers, one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
}

/// What a delegate has allowed, until administrators sign the next document: in that it stands or is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delegated {
    /// The network that it is of.
    pub network: NetworkId,
    /// The document that it goes with.
    pub serial: Serial,
    /// What is allowed.
    pub act: Act,
}

/// What a delegate allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// A site that is new.
    Add {
        /// What every member knows of it.
        member: Box<Member>,
        /// The digest of the line of its [`Contact`].
        contact: Digest,
    },
    /// A site that is none any more.
    Revoke {
        /// Its name.
        site: Name,
        /// Since when, in seconds of Unix time.
        since: u64,
    },
}

/// What a delegate has allowed, as it travels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelegatedLines {
    /// What was signed.
    pub signed: Signed<Delegated>,
    /// The line of the new site's [`Contact`], for those who may know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
}

impl DelegatedLines {
    /// Whether a site is added by it.
    pub(crate) fn adds(&self) -> bool {
        self.signed.read().is_ok_and(|delegated| matches!(delegated.act, Act::Add { .. }))
    }
}

impl Statement for ContactNotice {
    const KIND: &'static str = "contact 1";
}

impl Statement for NetworksNotice {
    const KIND: &'static str = "networks 1";
}

impl Statement for Delegated {
    const KIND: &'static str = "delegated 1";
}

/// What both kinds of notices have.
pub trait Notice: Statement {
    /// The network that it is of.
    fn network(&self) -> NetworkId;
    /// Who says so.
    fn site(&self) -> &Name;
    /// Of two the one with the higher number counts.
    fn number(&self) -> u64;
}

macro_rules! notice {
    ($($kind:ty),+) => {$(
        impl Notice for $kind {
            fn network(&self) -> NetworkId {
                self.network
            }

            fn site(&self) -> &Name {
                &self.site
            }

            fn number(&self) -> u64 {
                self.number
            }
        }
    )+};
}

notice!(ContactNotice, NetworksNotice);

/// The number of a site's next notice: higher than its last one, and by the clock, so that a site that has lost its memory is
/// believed again. `unix_s`: seconds of Unix time.
#[must_use]
pub fn next_number(last: u64, unix_s: u64) -> u64 {
    last.saturating_add(1).max(unix_s)
}

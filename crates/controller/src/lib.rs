//! A fleet's controller: it keeps what administrators and sites have signed in a store, and tells it to agents.
//!
//! It decides nothing. What is in force is what is signed ([`fleet`]), and is verified anew by whoever is told it, also by each
//! controller when it reads its store. It has no private key but that of its certificate. So who takes over every controller,
//! store and token can withhold news, and can neither put a site in, nor bring an old document back.
//!
//! | module | what it is |
//! |---|---|
//! | `keys`, `records` | where things are in the store, and what they say |
//! | `load`, `controller`, `waiting` | a fleet read from the store, followed, told to agents that wait |
//! | `publish` | what takes effect: documents, what delegates allow, what sites say of themselves |
//! | `enrol` | invitations and applications |
//! | `turns`, `turn_marks` | whose turn it is, of the two gateways of a site |
//! | `access`, `log` | who may ask; what was done, each record with the digest of the one before |
//! | `oidc` | people who log in at an identity provider |
//! | `backup`, `preview`, `past` | all of it as one text; what a change would do; what it did |
//! | `heard` | when each site asked last, in memory alone |
//! | `http`, `client` | how it is asked, and by whom |
//! | `folder`, `draft`, `rules` | in the hands of who administers: what is asked with, changes to be signed, rules as text |
//! | `open`, `executor` | which store; where futures run |
//!
//! Invariants:
//! - What was acknowledged was committed, in one commit with the record in the log that tells it.
//! - Whatever changes who is a member is committed under the condition that nothing else has changed it since it was verified:
//!   of documents that were made at once one is published, and serials go up by one.
//! - A document's parts are there before it names them.
//! - Any number of controllers may have the same store; none has a state that the others lack.
#![forbid(unsafe_code)]

pub mod access;
mod backup;
mod client;
mod controller;
mod draft;
mod enrol;
mod error;
mod executor;
mod folder;
mod heard;
mod http;
mod keys;
mod load;
pub mod log;
pub mod oidc;
mod open;
mod past;
mod preview;
mod publish;
mod records;
pub mod rules;
mod turn_marks;
mod turns;
mod waiting;

pub use backup::{backup, restore};
pub use client::{Client, ClientError};
pub use controller::{Controller, Figures};
pub use draft::Draft;
pub use enrol::{Invited, Waiting};
pub use error::Error;
pub use executor::{block_on, block_on_many};
pub use folder::{ACCESS, Folder, FolderError, NETWORK, Network, read_secret, verified};
pub use heard::{Heard, Hearing};
pub use http::{Identity, IdentityError, Interface, OPENAPI, Server, Session};
pub use open::{Job, NoStore, with_store};
pub use preview::{Gateway, Lines, Preview};
pub use publish::begin;
pub use records::{Access, Applied, Role, Token, What, now};

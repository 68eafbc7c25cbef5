//! The membership of a fleet of gateways, sans-IO: who is a member, who says so, what follows from it for each, and how it
//! spreads.
//!
//! # Who says so
//! Administrators sign a [document](document) with keys that are on no controller: each document has a higher serial, and a
//! member takes only higher ones with enough signatures of the [authority](authority) in force. A site signs what changes of
//! itself, its prefixes and keys, in [notices](notice), so that renumbering needs nobody. A delegate may add sites within limits
//! until administrators sign the next document. Controllers and other members pass all of this on, and are believed nothing.
//!
//! # What a member keeps
//! A [`fleet::Fleet`]: it only grows, and no clock is asked. So an attacker who has every controller can keep news from
//! members, and can neither add a site, nor bring an old document back, nor stop what runs.
//!
//! # What a member does with it
//! A [`plan::Plan`]: the peers of its gateway, and the networks behind each, which becomes a file of `[[peer]]` tables
//! (`peers`): where the gateway refuses what one site says, that site alone is left out ([`agent`]).
//!
//! # What it knows
//! Of each site what concerns all (identity, role, networks), and how to meet those that it has a tunnel with. The hopping
//! prefixes of the others are told it as digests alone: with them it verifies the document as a whole.

pub mod agent;
pub mod authority;
mod behind;
mod claims;
pub mod desk;
pub mod document;
pub mod enrolment;
pub mod exchange;
pub mod explain;
pub mod fleet;
pub mod key;
pub mod line;
pub mod name;
pub mod news;
pub mod notice;
pub mod pace;
pub mod peers;
pub mod plan;
pub mod settings;
mod shared;
pub mod signed;
pub mod signpost;
pub mod site;
pub mod standby;

pub use claims::Collision;

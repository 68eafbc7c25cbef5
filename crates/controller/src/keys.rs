//! Where things are in the store. What agents are told lies below one prefix, which all controllers watch.

use fleet::document::Serial;
use fleet::key::{Digest, VerifyingKey};
use fleet::name::Name;
use store::{Key, Prefix};

/// What agents are told.
pub(crate) fn fleet() -> Prefix {
    prefix("fleet")
}

/// The place that all controllers of this store are ([`fleet::exchange::Cursor`]). It is drawn anew where the store is
/// restored: the revisions of the new one have nothing to do with those of the old one.
pub(crate) fn place() -> Key {
    key("place")
}

/// Who brings a backup back into this store, which has no place yet: everything of it is written under the condition that it is
/// still him.
pub(crate) fn restoring() -> Key {
    key("restoring")
}

/// Which form this layout has.
pub(crate) fn schema() -> Key {
    key("schema")
}

/// An authority.
pub(crate) fn authority(version: u64) -> Key {
    key(format!("fleet/authority/{version:020}"))
}

/// All authorities.
pub(crate) fn authorities() -> Prefix {
    prefix("fleet/authority")
}

/// All documents.
pub(crate) fn documents() -> Prefix {
    prefix("fleet/document")
}

/// Which document is in force: whatever changes who is a member is written under its condition.
pub(crate) fn head() -> Key {
    key("fleet/head")
}

/// A document's head, and where its parts are.
pub(crate) fn document(serial: Serial) -> Key {
    key(format!("fleet/document/{:020}", serial.0))
}

/// A part of a document's text.
pub(crate) fn chunk(serial: Serial, digest: &Digest) -> Key {
    key(format!("chunk/{:020}/{}", serial.0, digest.hex()))
}

/// The parts of a document.
pub(crate) fn chunks(serial: Serial) -> Prefix {
    prefix(&format!("chunk/{:020}", serial.0))
}

/// How a site is met, in its own words.
pub(crate) fn contact(site: &Name) -> Key {
    key(format!("fleet/contact/{site}"))
}

/// Which networks are behind a site, in its own words.
pub(crate) fn networks(site: &Name) -> Key {
    key(format!("fleet/networks/{site}"))
}

/// Below which the turns of sites with two gateways are.
pub(crate) const TURN: &str = "fleet/turn/";

/// Whose turn it is at a site with two gateways.
pub(crate) fn turn(site: &Name) -> Key {
    key(format!("{TURN}{site}"))
}

/// What a delegate has allowed with a document.
pub(crate) fn delegated(serial: Serial, digest: &Digest) -> Key {
    key(format!("fleet/delegated/{:020}/{}", serial.0, digest.hex()))
}

/// What delegates have allowed.
pub(crate) fn all_delegated() -> Prefix {
    prefix("fleet/delegated")
}

/// An invitation's key.
pub(crate) fn token(key_of_it: VerifyingKey) -> Key {
    key(format!("token/{}", token_id(key_of_it)))
}

/// An invitation's key, as people name it.
pub(crate) fn token_id(key_of_it: VerifyingKey) -> String {
    Digest::of(key_of_it.to_string().as_bytes()).hex()
}

/// All invitations.
pub(crate) fn tokens() -> Prefix {
    prefix("token")
}

/// An application, by its number in hexadecimal; none if it is no such number.
pub(crate) fn application(id: &str) -> Option<Key> {
    is_hex(id).then(|| key(format!("application/{id}")))
}

/// All applications.
pub(crate) fn applications() -> Prefix {
    prefix("application")
}

/// What lets somebody use the interface for people.
pub(crate) fn access(digest: &Digest) -> Key {
    key(format!("access/{}", digest.hex()))
}

/// All who may use it.
pub(crate) fn accesses() -> Prefix {
    prefix("access")
}

/// The last record of the log.
pub(crate) fn log_head() -> Key {
    key("log/head")
}

/// A record of the log.
pub(crate) fn log_record(number: u64) -> Key {
    key(format!("log/record/{number:020}"))
}

/// A digest in hexadecimal.
pub(crate) fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Names, numbers and digests are all of what keys may have; a name has 63 octets at the most.
fn key(name: impl Into<String>) -> Key {
    Key::new(name).expect("a key of this layout")
}

fn prefix(name: &str) -> Prefix {
    Prefix::new(name).expect("a prefix of this layout")
}

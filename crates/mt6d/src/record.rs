//! Sealed records: where a node hops, for one peer, in a place that everybody can read (docs/protocol.md, "Sealed records").
//!
//! ```text
//! record = nonce (24) ‖ XChaCha20-Poly1305(NR_x, nonce, "", plen (1) ‖ prefix (16) ‖ Unix time (8) ‖ 0^7)
//! ```
//! To whoever does not know the pair's keys it is 72 random bytes: it does not tell what it is, nor whether two of them are of
//! one site.

use std::net::Ipv6Addr;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use chacha20poly1305::{AeadInPlace, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use ipnet::Ipv6Net;

use crate::config::HOP_PREFIX_LENGTH;
use crate::keys::PairKeys;

const NONCE: usize = 24;
const PLAIN: usize = 32;
const TAG: usize = 16;
/// Length of a record.
pub const LENGTH: usize = NONCE + PLAIN + TAG;

/// A record that is older says nothing any more, in milliseconds: 32 days.
const OLDEST: u64 = 32 * 86_400_000;
/// One from the future by no more than clocks may be apart: an hour.
const AHEAD: u64 = 3_600_000;

/// Where a node hops, and since when it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Its hopping prefix.
    pub place: Ipv6Net,
    /// Its CLOCK_REALTIME when the record was made, in milliseconds. Of two records the later one counts.
    pub unix_ms: u64,
}

/// Why a record tells nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It was not made by this peer for this node, or was changed.
    #[error("it is none that this peer has made for this node, with the keys that both have")]
    Foreign,
    /// It is too old, or older than one that was seen before.
    #[error(
        "it is old: it says since when, and is to be made anew once a month, and whenever the prefix changes"
    )]
    Old,
    /// It is from the future: a clock is wrong.
    #[error("it is from the future: one of the two clocks is wrong")]
    Future,
}

impl Record {
    /// The record for the peer that has these keys with this node, as text of 96 characters. The nonce must be fresh and
    /// random.
    #[must_use]
    pub fn seal(&self, keys: &PairKeys, nonce: &[u8; NONCE]) -> String {
        let mut bytes = [0; LENGTH];
        bytes[..NONCE].copy_from_slice(nonce);
        let end = LENGTH - TAG;
        let plain = &mut bytes[NONCE..end];
        plain[0] = self.place.prefix_len();
        plain[1..17].copy_from_slice(&self.place.network().octets());
        plain[17..25].copy_from_slice(&self.unix_ms.to_be_bytes());
        let tag = XChaCha20Poly1305::new(keys.record(keys.role).into())
            .encrypt_in_place_detached(XNonce::from_slice(nonce), b"", plain)
            .expect("a record is within the cipher's limits");
        bytes[end..].copy_from_slice(&tag);
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// What the peer that has these keys with this node says, at this Unix time in milliseconds; `newest` is the time of the
    /// newest record that was seen of it.
    ///
    /// # Errors
    /// If it tells nothing.
    pub fn open(text: &str, keys: &PairKeys, newest: u64, unix_ms: u64) -> Result<Self, RecordError> {
        let record = opened(text, keys).ok_or(RecordError::Foreign)?;
        if record.unix_ms < newest || record.unix_ms.saturating_add(OLDEST) < unix_ms {
            return Err(RecordError::Old);
        }
        if record.unix_ms > unix_ms.saturating_add(AHEAD) {
            return Err(RecordError::Future);
        }
        Ok(record)
    }
}

fn opened(text: &str, keys: &PairKeys) -> Option<Record> {
    let mut bytes = [0; LENGTH];
    // Longer ones do not fit.
    let length = BASE64_URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
    let (nonce, sealed) = bytes[..length].split_first_chunk::<NONCE>()?;
    let (plain, tag) = sealed.split_first_chunk::<PLAIN>()?;
    let (mut plain, tag) = (*plain, <[u8; TAG]>::try_from(tag).ok()?);
    XChaCha20Poly1305::new(keys.record(keys.role.other()).into())
        .decrypt_in_place_detached(XNonce::from_slice(nonce), b"", &mut plain, Tag::from_slice(&tag))
        .ok()?;
    let (plen, rest) = plain.split_first()?;
    let (network, rest) = rest.split_first_chunk::<16>()?;
    let (unix_ms, _) = rest.split_first_chunk::<8>()?;
    let place = Ipv6Net::new(Ipv6Addr::from(*network), *plen).ok()?;
    let is_place = HOP_PREFIX_LENGTH.contains(plen) && place == place.trunc();
    is_place.then_some(Record { place, unix_ms: u64::from_be_bytes(*unix_ms) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{PresharedKey, PrivateKey};
    use proptest::prelude::*;

    const NOW: u64 = 1_800_000_000_000;

    fn keys(psk: Option<u8>) -> (PairKeys, PairKeys) {
        let (a, b) = (PrivateKey::from_bytes([1; 32]), PrivateKey::from_bytes([2; 32]));
        let psk = psk.map(|byte| PresharedKey::from_bytes([byte; 32]));
        let derive = |own, peer: &PrivateKey| PairKeys::derive(own, &peer.public(), psk.as_ref()).unwrap();
        (derive(&a, &b), derive(&b, &a))
    }

    fn record() -> Record {
        Record { place: "2001:db8:c1::/64".parse().unwrap(), unix_ms: NOW }
    }

    #[test]
    fn only_the_peer_it_is_for_opens_it() {
        let (a, b) = keys(None);
        let text = record().seal(&a, &[7; NONCE]);
        assert_eq!(text.len(), 96);
        assert_eq!(Record::open(&text, &b, 0, NOW), Ok(record()));
        assert_eq!(Record::open(&text, &a, 0, NOW), Err(RecordError::Foreign), "its own");
        assert_eq!(Record::open(&text, &keys(Some(1)).1, 0, NOW), Err(RecordError::Foreign), "another psk");
        for (at, _) in text.char_indices() {
            let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
            let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            assert_eq!(Record::open(&changed, &b, 0, NOW), Err(RecordError::Foreign), "changed at {at}");
        }
    }

    #[test]
    fn an_old_one_tells_nothing() {
        let (a, b) = keys(None);
        let text = record().seal(&a, &[7; NONCE]);
        for (newest, now, expected) in [
            (NOW, NOW, Ok(record())),
            (NOW + 1, NOW, Err(RecordError::Old)),
            (0, NOW + OLDEST, Ok(record())),
            (0, NOW + OLDEST + 1, Err(RecordError::Old)),
            (0, NOW - AHEAD, Ok(record())),
            (0, NOW - AHEAD - 1, Err(RecordError::Future)),
        ] {
            assert_eq!(Record::open(&text, &b, newest, now), expected, "{newest} {now}");
        }
    }

    #[test]
    fn two_of_one_site_have_nothing_in_common() {
        let (a, _) = keys(None);
        let (one, other) = (record().seal(&a, &[7; NONCE]), record().seal(&a, &[8; NONCE]));
        let parts: Vec<_> = one.as_bytes().windows(5).collect();
        assert!(other.as_bytes().windows(5).all(|part| !parts.contains(&part)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}", now: u64) {
            let _ = Record::open(&text, &keys(None).0, 0, now);
        }

        #[test]
        fn what_was_sealed_is_opened(bits: u128, plen in 32u8..=112, unix_ms in NOW - 1000..NOW, nonce: [u8; NONCE]) {
            let (a, b) = keys(Some(3));
            let place = Ipv6Net::new(bits.into(), plen).unwrap().trunc();
            let record = Record { place, unix_ms };
            prop_assert_eq!(Record::open(&record.seal(&a, &nonce), &b, unix_ms, NOW), Ok(record));
        }
    }
}

//! Signposts: where a controller is, sealed for one site, in a place that everybody can read: DNS. For a site that was away while
//! all moved, and reaches neither controllers nor peers.
//!
//! ```text
//! name     = the first 16 bytes of SHA-256("sidestep signpost name 1" ‖ 0 ‖ network ‖ identity of the site ‖ index), in hexadecimal
//! signpost = nonce (24) ‖ XChaCha20-Poly1305(key, nonce, "", serial (8) ‖ certificate (32) ‖ length (1) ‖ place ‖ 0…), 168 bytes
//! key      = SHA-256("sidestep signpost key 1" ‖ 0 ‖ X25519(administrator, site) ‖ identity of the administrator ‖ of the site)
//! ```
//! To all others name and signpost are random; neither tells what it is, nor of which fleet. It is made with an administrator's
//! key, so nobody else can send a site somewhere. What it says is where to ask, and nothing that is answered there is believed
//! unless it is signed: an old one, put back by somebody, leads to where nobody is, or to who can say nothing.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use chacha20poly1305::{AeadInPlace, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::authority::NetworkId;
use crate::document::Serial;
use crate::key::{Digest, SigningKey, VerifyingKey};

const NONCE: usize = 24;
const PLAIN: usize = 128;
const TAG: usize = 16;
const LENGTH: usize = NONCE + PLAIN + TAG;
/// Of what a place is written in.
const LONGEST_PLACE: usize = PLAIN - 8 - 32 - 1;

/// How many controllers a site is told of at the most: each has a name of its own, since a datagram has room for two of them.
pub const MOST: usize = 4;

/// Where a controller is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signpost {
    /// The document that was in force when it was made.
    pub serial: Serial,
    /// The digest of the controller's certificate.
    pub certificate: Digest,
    /// Where it is outside: a host, or an address, and a port.
    pub place: String,
}

/// The name of a site's signpost with this number, below a domain.
#[must_use]
pub fn name(network: NetworkId, site: VerifyingKey, index: usize, domain: &str) -> String {
    let mut hash = Sha256::new_with_prefix(b"sidestep signpost name 1\0");
    hash.update(network.as_bytes());
    hash.update(site.as_bytes());
    hash.update([u8::try_from(index).unwrap_or(u8::MAX)]);
    let label: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{label}.{}", domain.trim_end_matches('.'))
}

impl Signpost {
    /// Sealed by an administrator for a site, as text of 224 characters. The nonce must be fresh and random. Nothing if the place
    /// is too long, or no secret can be shared with that site.
    #[must_use]
    pub fn seal(&self, by: &SigningKey, site: VerifyingKey, nonce: [u8; NONCE]) -> Option<String> {
        let place = Some(self.place.as_bytes()).filter(|place| place.len() <= LONGEST_PLACE)?;
        let key = shared(by, site, by.public(), site)?;
        let mut bytes = [0; LENGTH];
        bytes[..NONCE].copy_from_slice(&nonce);
        let plain = &mut bytes[NONCE..NONCE + PLAIN];
        plain[..8].copy_from_slice(&self.serial.0.to_be_bytes());
        plain[8..40].copy_from_slice(self.certificate.as_bytes());
        plain[40] = u8::try_from(place.len()).ok()?;
        plain[41..41 + place.len()].copy_from_slice(place);
        let tag = XChaCha20Poly1305::new((&*key).into())
            .encrypt_in_place_detached(XNonce::from_slice(&nonce), b"", plain)
            .ok()?;
        bytes[NONCE + PLAIN..].copy_from_slice(&tag);
        Some(BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }

    /// What a text says, if this administrator has sealed it for this site.
    #[must_use]
    pub fn open(text: &str, by: VerifyingKey, site: &SigningKey) -> Option<Self> {
        let mut bytes = [0; LENGTH];
        let length = BASE64_URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        if length != LENGTH {
            return None;
        }
        let key = shared(site, by, by, site.public())?;
        let (nonce, sealed) = bytes.split_at_mut(NONCE);
        let (plain, tag) = sealed.split_at_mut(PLAIN);
        XChaCha20Poly1305::new((&*key).into())
            .decrypt_in_place_detached(XNonce::from_slice(nonce), b"", plain, Tag::from_slice(tag))
            .ok()?;
        let (serial, rest) = plain.split_first_chunk::<8>()?;
        let (certificate, rest) = rest.split_first_chunk::<32>()?;
        let (length, rest) = rest.split_first()?;
        let place = std::str::from_utf8(rest.get(..usize::from(*length))?).ok()?;
        Some(Signpost {
            serial: Serial(u64::from_be_bytes(*serial)),
            certificate: Digest::from_bytes(*certificate),
            place: place.to_owned(),
        })
    }
}

/// The key of what an administrator seals for a site, at either end.
fn shared(
    own: &SigningKey,
    other: VerifyingKey,
    by: VerifyingKey,
    site: VerifyingKey,
) -> Option<Zeroizing<[u8; 32]>> {
    let secret = own.agree(other)?;
    let mut hash = Sha256::new_with_prefix(b"sidestep signpost key 1\0");
    hash.update(*secret);
    hash.update(by.as_bytes());
    hash.update(site.as_bytes());
    Some(Zeroizing::new(hash.finalize().into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed([seed; 32])
    }

    fn post(place: &str) -> Signpost {
        Signpost { serial: Serial(7), certificate: Digest::of(b"certificate"), place: place.to_owned() }
    }

    #[test]
    fn a_site_reads_what_an_administrator_has_sealed_for_it_and_nobody_else_does() {
        let (ada, kiel, eve) = (key(1), key(2), key(3));
        let post = post("control.example.net:4160");
        let text = post.seal(&ada, kiel.public(), [9; 24]).unwrap();
        assert_eq!(text.len(), 224);
        assert_eq!(Signpost::open(&text, ada.public(), &kiel), Some(post.clone()));
        assert_eq!(Signpost::open(&text, ada.public(), &eve), None, "another site");
        assert_eq!(Signpost::open(&text, eve.public(), &kiel), None, "somebody else's");
        // Another site, or whoever knows all public keys, cannot make one.
        let forged = post.seal(&eve, kiel.public(), [9; 24]).unwrap();
        assert_eq!(Signpost::open(&forged, ada.public(), &kiel), None);
        // What a site could make for itself leads nobody else anywhere, nor does it pass for one to the administrator.
        assert_eq!(Signpost::open(&text, kiel.public(), &ada), None);
    }

    #[test]
    fn nothing_shows_but_random_looking_bytes_of_one_length() {
        let (ada, kiel) = (key(1), key(2));
        let texts: Vec<String> = ["c1:1", "a.rather.long.name.of.a.controller.example.net:4160"]
            .iter()
            .zip(1..)
            .map(|(place, nonce)| post(place).seal(&ada, kiel.public(), [nonce; 24]).unwrap())
            .collect();
        assert_eq!(texts[0].len(), texts[1].len());
        assert_eq!(post(&"x".repeat(88)).seal(&ada, kiel.public(), [1; 24]), None);
        let network: NetworkId = Digest::of(b"network");
        let name = |index| name(network, kiel.public(), index, "r7.example.net.");
        assert_ne!(name(0), name(1));
        let (label, domain) = name(0).split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert_eq!((label.len(), domain.as_str()), (32, "r7.example.net"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,300}", at in 0usize..224, c in "[A-Za-z0-9_-]") {
            let (ada, kiel) = (key(1), key(2));
            prop_assert_eq!(Signpost::open(&text, ada.public(), &kiel), None);
            let mut changed = post("c1.example:4160").seal(&ada, kiel.public(), [9; 24]).unwrap();
            let was = changed.clone();
            changed.replace_range(at..=at, &c);
            prop_assert!(changed == was || Signpost::open(&changed, ada.public(), &kiel).is_none());
        }
    }
}

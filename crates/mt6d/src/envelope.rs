//! The random-looking envelope of rendezvous datagrams (docs/protocol.md, "Envelope").
//!
//! ```text
//! datagram = nonce (24) ‖ XChaCha20-Poly1305(HSK, nonce, AAD, length (2) ‖ message ‖ padding)
//! message  = claim ‖ Noise message, or, of an answer, the Noise message alone
//! ```
//! To whoever does not know the pair's keys it is a datagram of random bytes and random size. Opening it costs one AEAD,
//! no Diffie-Hellman.

use std::net::Ipv6Addr;

use chacha20::cipher::consts::U10;
use chacha20poly1305::{AeadInPlace, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use ipnet::Ipv6Net;
use zeroize::Zeroizing;

use crate::config::HOP_PREFIX_LENGTH;
use crate::kdf::Secret;
use crate::keys::Role;
use crate::tier::TierEpoch;

/// Length of the envelope's nonce.
pub(crate) const NONCE: usize = 24;
const TAG: usize = 16;
/// What the envelope adds to a message, at least.
pub(crate) const OVERHEAD: usize = NONCE + 2 + TAG;

pub(crate) type Nonce = [u8; NONCE];

/// The ephemeral public key that a first message's Noise message begins with. It is fresh in each, and the same in all copies of
/// one, which have another nonce and another size each: so it is what a first message is known by.
pub(crate) type Ephemeral = [u8; 32];

/// What a first message says of its sender before any Diffie-Hellman is computed: enough to tell a copy from elsewhere,
/// or of earlier. The Noise handshake is bound to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The prefix that it hops in.
    pub(crate) hop_prefix: Ipv6Net,
    /// Its CLOCK_REALTIME when it made the message, in milliseconds.
    pub(crate) unix_ms: u64,
    /// The receiver's first message that it heard last; zeros if none since it began to run.
    pub(crate) heard: Mark,
}

/// What a first message is called in the peer's: the beginning of its ephemeral key.
pub(crate) type Mark = [u8; 8];

/// The mark of the first message with this ephemeral key.
pub(crate) fn mark(ephemeral: &Ephemeral) -> Mark {
    *ephemeral.first_chunk().expect("a key is longer")
}

impl Claim {
    const LENGTH: usize = 16 + 1 + 8 + 8;

    pub(crate) fn to_bytes(self) -> [u8; Self::LENGTH] {
        let mut bytes = [0; Self::LENGTH];
        bytes[..16].copy_from_slice(&self.hop_prefix.network().octets());
        bytes[16] = self.hop_prefix.prefix_len();
        bytes[17..25].copy_from_slice(&self.unix_ms.to_be_bytes());
        bytes[25..].copy_from_slice(&self.heard);
        bytes
    }

    /// The claim at the beginning of a first message, and what follows it. None if there is none that can be true.
    pub(crate) fn split(message: &[u8]) -> Option<(Self, &[u8])> {
        let (bytes, noise) = message.split_first_chunk::<{ Self::LENGTH }>()?;
        let (address, rest) = bytes.split_first_chunk::<16>()?;
        let (plen, rest) = rest.split_first()?;
        let (unix_ms, heard) = rest.split_first_chunk::<8>()?;
        let hop_prefix = Ipv6Net::new(Ipv6Addr::from(*address), *plen).ok()?;
        let claim =
            Claim { hop_prefix, unix_ms: u64::from_be_bytes(*unix_ms), heard: heard.try_into().ok()? };
        let valid = HOP_PREFIX_LENGTH.contains(plen) && hop_prefix == hop_prefix.trunc();
        valid.then_some((claim, noise))
    }
}

/// What a datagram is, bound to it as associated data.
pub(crate) enum Kind<'a> {
    /// A first message to the endpoint of `receiver` in an epoch.
    First { receiver: Role, at: TierEpoch },
    /// The answer to the first message with this ephemeral key, whichever of its copies arrived.
    Answer { first: &'a Ephemeral },
}

impl Kind<'_> {
    /// The bytes that say so.
    pub(crate) fn associated_data(&self) -> Vec<u8> {
        match self {
            Kind::First { receiver, at } => {
                [b"1", receiver.letter(), &[at.tier.number()], &at.epoch.0.to_be_bytes()].concat()
            }
            Kind::Answer { first } => [b"2", first.as_slice()].concat(),
        }
    }
}

/// Wraps `message` into a datagram of `size` bytes (more if the message needs it).
pub(crate) fn seal(key: &[u8; 32], kind: &Kind, nonce: &Nonce, message: &[u8], size: usize) -> Vec<u8> {
    let mut datagram = vec![0; size.max(message.len() + OVERHEAD)];
    let end = datagram.len() - TAG;
    datagram[..NONCE].copy_from_slice(nonce);
    let length = u16::try_from(message.len()).expect("a handshake message fits a datagram");
    datagram[NONCE..NONCE + 2].copy_from_slice(&length.to_be_bytes());
    datagram[NONCE + 2..NONCE + 2 + message.len()].copy_from_slice(message);
    let tag = XChaCha20Poly1305::new(key.into())
        .encrypt_in_place_detached(
            XNonce::from_slice(nonce),
            &kind.associated_data(),
            &mut datagram[NONCE..end],
        )
        .expect("a datagram is within the cipher's limits");
    datagram[end..].copy_from_slice(&tag);
    datagram
}

/// The key of the one envelope with this nonce: XChaCha20 derives it, by HChaCha20, and seals with ChaCha20-Poly1305 and the
/// last 8 bytes of the nonce.
pub(crate) fn own_key(key: &[u8; 32], nonce: &Nonce) -> Secret {
    let (input, _) = nonce.split_first_chunk::<16>().expect("a nonce is longer");
    Zeroizing::new(chacha20::hchacha::<U10>(key.into(), input.into()).into())
}

/// The message of a datagram, if it is of this kind and its sender has the pair's keys.
pub(crate) fn open(key: &[u8; 32], kind: &Kind, datagram: &[u8]) -> Option<Vec<u8>> {
    if datagram.len() < OVERHEAD {
        return None;
    }
    let (nonce, sealed) = datagram.split_first_chunk::<NONCE>()?;
    let (body, tag) = sealed.split_at(sealed.len() - TAG);
    let mut plain = body.to_vec();
    XChaCha20Poly1305::new(key.into())
        .decrypt_in_place_detached(
            XNonce::from_slice(nonce),
            &kind.associated_data(),
            &mut plain,
            Tag::from_slice(tag),
        )
        .ok()?;
    let length = usize::from(u16::from_be_bytes([plain[0], plain[1]]));
    Some(plain.get(2..2 + length)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Epoch;
    use crate::tier::Tier;
    use proptest::prelude::*;

    const FIRST: Kind = first(7);

    const fn first(epoch: u64) -> Kind<'static> {
        Kind::First { receiver: Role::H, at: TierEpoch { tier: Tier::Seconds, epoch: Epoch(epoch) } }
    }

    #[test]
    fn opens_what_it_sealed_and_only_as_what_it_was() {
        let datagram = seal(&[1; 32], &FIRST, &[2; 24], b"noise", 200);
        assert_eq!(datagram.len(), 200);
        assert_eq!(open(&[1; 32], &FIRST, &datagram), Some(b"noise".to_vec()));
        assert_eq!(open(&[1; 32], &first(8), &datagram), None);
        assert_eq!(open(&[1; 32], &Kind::Answer { first: &[2; 32] }, &datagram), None);
        assert_eq!(open(&[3; 32], &FIRST, &datagram), None);
    }

    #[test]
    fn a_claim_is_read_as_it_was_written_unless_it_cannot_be_true() {
        let hop_prefix = "2001:db8:a1::/48".parse().unwrap();
        let claim = Claim { hop_prefix, unix_ms: 1_800_000_000_000, heard: [7; 8] };
        let message = [claim.to_bytes().as_slice(), b"noise"].concat();
        assert_eq!(Claim::split(&message), Some((claim, b"noise".as_slice())));
        assert_eq!(Claim::split(&message[..32]), None, "cut short");
        for (at, value, what) in
            [(16, 31, "too short"), (16, 113, "too long"), (16, 129, "no length"), (15, 1, "host bits")]
        {
            let mut message = message.clone();
            message[at] = value;
            assert_eq!(Claim::split(&message), None, "{what}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_datagrams_do_not_open(datagram in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(open(&[1; 32], &FIRST, &datagram), None);
        }
    }
}

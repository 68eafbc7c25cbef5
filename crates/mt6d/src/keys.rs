//! Long-term keys, and what a pair of nodes derives from them before it ever spoke.

use std::fmt;
use std::str::FromStr;

use base64::{Engine, prelude::BASE64_STANDARD};
use x25519_dalek::{PublicKey as X25519Public, StaticSecret};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::kdf::{Secret, expand, extract};
use crate::tier::Tier;

/// A node's X25519 private key. Never printed; wiped when dropped.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PrivateKey([u8; 32]);

/// A node's X25519 public key: its identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicKey([u8; 32]);

/// A secret that both ends of a pair were given, mixed into everything they derive. Never printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct PresharedKey([u8; 32]);

/// Why a text is not a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Not base64, or not of 32 bytes.
    #[error("not a key: 32 bytes in base64 (44 characters) are expected, as `sidestep genkey` writes them")]
    Malformed,
    /// The public key leads to an all-zero shared secret (RFC 7748 section 6.1).
    #[error("this public key is a point of small order: no secret can be shared with it")]
    SmallOrder,
    /// A node was given its own key as its peer's.
    #[error("the peer's public key is this node's own")]
    OwnKey,
}

fn decode(text: &str) -> Result<[u8; 32], KeyError> {
    let bytes = Zeroizing::new(BASE64_STANDARD.decode(text.trim()).map_err(|_| KeyError::Malformed)?);
    bytes.as_slice().try_into().map_err(|_| KeyError::Malformed)
}

impl PrivateKey {
    /// A private key from 32 random bytes, clamped as RFC 7748 section 5 (and `wg genkey`) does.
    pub fn from_bytes(mut bytes: [u8; 32]) -> Self {
        bytes[0] &= 248;
        bytes[31] = (bytes[31] & 127) | 64;
        PrivateKey(bytes)
    }

    /// The raw key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The public key that belongs to it.
    pub fn public(&self) -> PublicKey {
        PublicKey(X25519Public::from(&StaticSecret::from(self.0)).to_bytes())
    }

    /// The key in base64, for `genkey` alone.
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64_STANDARD.encode(self.0))
    }
}

impl PublicKey {
    /// A public key from its 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        PublicKey(bytes)
    }

    /// Whether every secret that is shared with it is zero (RFC 7748 section 6.1): no node has such a key.
    pub fn is_of_small_order(&self) -> bool {
        let any = StaticSecret::from(*PrivateKey::from_bytes([1; 32]).as_bytes());
        !any.diffie_hellman(&X25519Public::from(self.0)).was_contributory()
    }

    /// The raw key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl PresharedKey {
    /// A pre-shared key from 32 random bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        PresharedKey(bytes)
    }

    /// The raw key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key in base64, for `genpsk` alone.
    pub fn to_base64(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE64_STANDARD.encode(self.0))
    }
}

impl PartialEq for PresharedKey {
    fn eq(&self, other: &Self) -> bool {
        subtle::ConstantTimeEq::ct_eq(self.0.as_slice(), other.0.as_slice()).into()
    }
}

impl FromStr for PrivateKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(PrivateKey)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(PublicKey)
    }
}

impl FromStr for PresharedKey {
    type Err = KeyError;
    fn from_str(text: &str) -> Result<Self, KeyError> {
        decode(text).map(PresharedKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(…)")
    }
}

/// Which node of a pair: `L` has the lexicographically smaller public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The node with the smaller public key.
    L,
    /// The node with the larger public key.
    H,
}

impl Role {
    /// The other node's role.
    pub fn other(self) -> Role {
        match self {
            Role::L => Role::H,
            Role::H => Role::L,
        }
    }

    /// The role's letter, as it enters derivations.
    pub(crate) fn letter(self) -> &'static [u8] {
        match self {
            Role::L => b"L",
            Role::H => b"H",
        }
    }

    /// The direction of what this role sends, as it enters derivations.
    pub(crate) fn sending(self) -> &'static [u8] {
        match self {
            Role::L => b"LH",
            Role::H => b"HL",
        }
    }
}

/// The public keys of a pair of nodes, from where one of them stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PublicPair {
    /// This node's.
    pub own: PublicKey,
    /// The peer's.
    pub peer: PublicKey,
}

/// What two nodes share before they ever spoke (docs/protocol.md, "Keys").
pub struct PairKeys {
    /// This node's role in the pair.
    pub role: Role,
    /// `pub_L ‖ pub_H`.
    pub(crate) publics: [u8; 64],
    /// `HSK`: opens the envelope of rendezvous datagrams.
    pub(crate) handshake: Secret,
    rendezvous: [[Secret; 2]; Tier::ALL.len()],
    schedules: [Secret; Tier::ALL.len()],
    records: [Secret; 2],
}

impl PairKeys {
    /// Derives them from this node's private key, the peer's public key and their pre-shared key.
    pub fn derive(own: &PrivateKey, peer: &PublicKey, psk: Option<&PresharedKey>) -> Result<Self, KeyError> {
        Self::derive_as(own, &own.public(), peer, psk)
    }

    /// As [`PairKeys::derive`], with this node's public key, for many peers.
    pub(crate) fn derive_as(
        own: &PrivateKey,
        own_public: &PublicKey,
        peer: &PublicKey,
        psk: Option<&PresharedKey>,
    ) -> Result<Self, KeyError> {
        if own_public == peer {
            return Err(KeyError::OwnKey);
        }
        let dh = StaticSecret::from(own.0).diffie_hellman(&X25519Public::from(peer.0));
        if !dh.was_contributory() {
            return Err(KeyError::SmallOrder);
        }
        let role = if own_public < peer { Role::L } else { Role::H };
        let (low, high) = if role == Role::L { (own_public, peer) } else { (peer, own_public) };
        let mut publics = [0; 64];
        publics[..32].copy_from_slice(low.as_bytes());
        publics[32..].copy_from_slice(high.as_bytes());

        let mut ikm = Zeroizing::new([0u8; 64]);
        ikm[..32].copy_from_slice(dh.as_bytes());
        if let Some(psk) = psk {
            ikm[32..].copy_from_slice(&psk.0);
        }
        let ps = extract(b"sidestep/3 pair", ikm.as_slice());
        let rendezvous = Tier::ALL.map(|tier| {
            [Role::L, Role::H].map(|x| expand(&ps, &[b"rendezvous", &[tier.number()], x.letter(), &publics]))
        });
        let schedules =
            Tier::ALL.map(|tier| expand(&ps, &[b"rendezvous schedule", &[tier.number()], &publics]));
        let records = [Role::L, Role::H].map(|x| expand(&ps, &[b"sealed record", x.letter(), &publics]));
        Ok(PairKeys {
            role,
            publics,
            handshake: expand(&ps, &[b"handshake", &publics]),
            rendezvous,
            schedules,
            records,
        })
    }

    /// `RZ_t,x`: the address key of `role`'s rendezvous endpoints in `tier`.
    pub(crate) fn rendezvous(&self, tier: Tier, role: Role) -> &[u8; 32] {
        &self.rendezvous[tier as usize][role as usize]
    }

    /// `NR_x`: seals what `role` publishes for the other.
    pub(crate) fn record(&self, role: Role) -> &[u8; 32] {
        &self.records[role as usize]
    }

    /// `RS_t`: the schedule key of `tier`.
    pub(crate) fn rendezvous_schedule(&self, tier: Tier) -> &[u8; 32] {
        &self.schedules[tier as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (PrivateKey, PrivateKey) {
        (PrivateKey::from_bytes([1; 32]), PrivateKey::from_bytes([2; 32]))
    }

    #[test]
    fn both_ends_derive_the_same() {
        let (a, b) = pair();
        let psk = PresharedKey::from_bytes([7; 32]);
        let at_a = PairKeys::derive(&a, &b.public(), Some(&psk)).unwrap();
        let at_b = PairKeys::derive(&b, &a.public(), Some(&psk)).unwrap();
        assert_eq!(at_a.role, at_b.role.other());
        assert_eq!(at_a.handshake, at_b.handshake);
        for tier in Tier::ALL {
            assert_eq!(at_a.rendezvous(tier, Role::L), at_b.rendezvous(tier, Role::L));
            assert_ne!(at_a.rendezvous(tier, Role::L), at_b.rendezvous(tier, Role::H));
            assert_eq!(at_a.rendezvous_schedule(tier), at_b.rendezvous_schedule(tier));
        }
        let without = PairKeys::derive(&a, &b.public(), None).unwrap();
        assert_ne!(at_a.handshake, without.handshake);
    }

    #[test]
    fn own_key_and_points_of_small_order_are_refused() {
        let (a, _) = pair();
        assert_eq!(PairKeys::derive(&a, &a.public(), None).err(), Some(KeyError::OwnKey));
        assert_eq!(
            PairKeys::derive(&a, &PublicKey::from_bytes([0; 32]), None).err(),
            Some(KeyError::SmallOrder)
        );
    }

    /// RFC 7748 section 6.1: Alice's key pair.
    #[test]
    fn public_keys_follow_rfc_7748() {
        let public = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a";
        let alice: [u8; 32] = [
            0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1, 0x72, 0x51, 0xb2, 0x66, 0x45,
            0xdf, 0x4c, 0x2f, 0x87, 0xeb, 0xc0, 0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5, 0x1d, 0xb9, 0x2c, 0x2a,
        ];
        assert_eq!(hex::encode(PrivateKey::from_bytes(alice).public().as_bytes()), public);
    }

    #[test]
    fn text_forms() {
        let (a, _) = pair();
        assert_eq!(a.public().to_string().parse::<PublicKey>(), Ok(a.public()));
        assert_eq!("AAAA".parse::<PublicKey>(), Err(KeyError::Malformed));
        assert_eq!("not base64".parse::<PublicKey>(), Err(KeyError::Malformed));
        assert!(!format!("{a:?}").contains(a.to_base64().as_str()));
    }
}

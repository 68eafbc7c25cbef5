//! Packets of another tunnel, which has encrypted them already: they travel on a session's lanes under a mask
//! (docs/protocol.md, "Masked packets"). The node agrees on that, says by which lanes and with which keys, and marks its own
//! datagrams, so that a host tells the two apart. Masking is the host's.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddrV6};

use chacha20::ChaCha8;
use chacha20::cipher::{KeyIvInit as _, StreamCipher as _, StreamCipherSeek as _};

use crate::kdf::{Secret, prf};
use crate::keys::PublicKey;

/// Bytes of the mark in front of a node's own datagrams.
pub const MARK: usize = 8;
/// Bytes at the end of a datagram or packet that its keystream comes from.
pub const SAMPLE: usize = 16;
/// Bytes of a block of keystream.
const BLOCK: u64 = 64;

/// The address that a node's end of the other tunnel has inside of this one: it follows from the node's key, so that nobody
/// has to choose one. Of the range for unique local addresses (RFC 4193), with bits that are not random but as good.
#[must_use]
pub fn address(key: &PublicKey) -> Ipv6Addr {
    let mut octets = *prf(key.as_bytes(), &[b"mask address"]).first_chunk::<16>().expect("32 bytes");
    octets[0] = 0xfd;
    octets.into()
}

/// Two ends of a flow, ours first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Ours.
    pub local: SocketAddrV6,
    /// The peer's.
    pub remote: SocketAddrV6,
}

/// A lane by which masked packets come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaskedLane {
    /// What they are behind the mask.
    pub flow: Flow,
    /// How they come.
    pub lane: Flow,
    /// What takes the mask off.
    pub key: MaskKey,
}

/// A lane by which they leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrawnLane {
    /// How they leave.
    pub lane: Flow,
    /// What masks them.
    pub key: MaskKey,
    /// How often it takes part in a draw.
    pub tickets: u8,
}

/// The key of a lane's mask, in one direction.
#[derive(Clone, PartialEq, Eq)]
pub struct MaskKey(Secret);

impl MaskKey {
    pub(crate) fn new(secret: Secret) -> Self {
        MaskKey(secret)
    }

    /// A key that is known.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        MaskKey(bytes.into())
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Lays the keystream over some bytes, from one of its blocks on: ChaCha with eight rounds, with the sample in the place
    /// of block counter and nonce. The counter's highest bit is zero, so that it does not wrap.
    pub fn apply(&self, sample: &[u8; SAMPLE], block: u64, bytes: &mut [u8]) {
        let (counter, nonce) = sample.split_first_chunk::<4>().expect("16 bytes");
        let mut cipher = ChaCha8::new(self.bytes().into(), nonce.into());
        cipher.seek((u64::from(u32::from_le_bytes(*counter) & (u32::MAX >> 1)) + block) * BLOCK);
        cipher.apply_keystream(bytes);
    }

    /// What a node's own datagram begins with that ends like this.
    #[must_use]
    pub fn mark(&self, sample: &[u8; SAMPLE]) -> [u8; MARK] {
        let mut mark = [0; MARK];
        self.apply(sample, 0, &mut mark);
        mark
    }
}

impl fmt::Debug for MaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MaskKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_of_ones_has_a_keystream_too() {
        let key = MaskKey::from_bytes([7; 32]);
        let mut bytes = [0; 256];
        key.apply(&[0xff; SAMPLE], 0, &mut bytes);
        let mut last = [0; 64];
        key.apply(&[0xff; SAMPLE], 3, &mut last);
        assert_eq!(bytes[192..], last);
        assert_eq!(key.mark(&[0xff; SAMPLE]), bytes[..MARK]);
    }

    #[test]
    fn a_key_is_not_shown() {
        assert_eq!(format!("{:?}", MaskKey::from_bytes([7; 32])), "MaskKey(…)");
    }
}

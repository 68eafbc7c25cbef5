//! Data datagrams: one key for each lane and direction, counters hidden by header protection
//! (docs/protocol.md, "Data").
//!
//! ```text
//! datagram = C (4) ‖ AEAD(data key, nonce = 0^8 ‖ counter (4), inner) with its 16-byte tag at the end
//! C        = counter XOR the first 4 bytes of the mask of the 16 bytes that follow it (RFC 9001 section 5.4)
//! ```
//!
//! Where another tunnel's packets travel on the same lanes ("Masked packets"), a mark of 8 bytes in front says that it is none
//! of these.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use ring::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey, quic};

use super::replay::{ReplayWindow, Verdict};
use crate::drops::DropReason;
use crate::mask::{MARK, MaskKey};
use crate::offer::Cipher;

/// Bytes before the sealed inner packet.
pub(crate) const COUNTER: usize = 4;
/// Bytes behind it.
pub(crate) const TAG: usize = 16;
/// What a datagram's payload has beside the inner packet.
pub(crate) const OVERHEAD: usize = COUNTER + TAG;
const _: () = assert!(OVERHEAD == crate::overhead::SEALED as usize);
/// Bytes that the ciphers work on at a time, or a divisor of that.
pub(super) const BLOCK: usize = 16;
const SAMPLE: usize = 16;

/// From this count on a new key is asked for.
pub(crate) const SOFT_LIMIT: u32 = 1 << 30;
/// At this count a key is used up.
pub(crate) const HARD_LIMIT: u32 = 1 << 31;

struct Keys {
    aead: LessSafeKey,
    header: quic::HeaderProtectionKey,
}

impl Keys {
    fn new(cipher: Cipher, data: &[u8; 32], header: &[u8; 32]) -> Self {
        let (aead, protection) = match cipher {
            Cipher::Aes256Gcm => (&AES_256_GCM, &quic::AES_256),
            Cipher::ChaCha20Poly1305 => (&CHACHA20_POLY1305, &quic::CHACHA20),
        };
        let aead = UnboundKey::new(aead, data).expect("both ciphers take 32-byte keys");
        let header =
            quic::HeaderProtectionKey::new(protection, header).expect("both masks take 32-byte keys");
        Keys { aead: LessSafeKey::new(aead), header }
    }

    fn mask(&self, sample: &[u8]) -> [u8; 4] {
        let mask = self.header.new_mask(sample).expect("a sample of 16 bytes");
        [mask[0], mask[1], mask[2], mask[3]]
    }
}

fn nonce(counter: u32) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn xor(field: &mut [u8], mask: [u8; 4]) {
    for (byte, mask) in field.iter_mut().zip(mask) {
        *byte ^= mask;
    }
}

/// Bytes in front of a datagram, where a lane is shared with masked packets.
fn front(mask: Option<&MaskKey>) -> usize {
    if mask.is_some() { MARK } else { 0 }
}

/// Seals what this node sends on a lane.
pub(crate) struct SealingKey {
    keys: Keys,
    /// Marks datagrams, where that is wanted.
    mask: Option<MaskKey>,
    /// No two threads may ever use the same.
    next: AtomicU32,
}

impl SealingKey {
    pub(crate) fn new(cipher: Cipher, data: &[u8; 32], header: &[u8; 32], mask: Option<MaskKey>) -> Self {
        SealingKey { keys: Keys::new(cipher, data, header), mask, next: AtomicU32::new(0) }
    }

    /// Bytes before the inner packet: a mark, if there is one, and the counter.
    pub(crate) fn front(&self) -> usize {
        front(self.mask.as_ref()) + COUNTER
    }

    /// What a datagram's payload has beside the inner packet.
    pub(crate) fn overhead(&self) -> usize {
        self.front() + TAG
    }

    /// How many datagrams were sealed.
    pub(crate) fn used(&self) -> u32 {
        self.next.load(Relaxed)
    }

    /// Seals a datagram in place: `datagram[front()..len - TAG]` holds the inner packet.
    /// False if the key is used up; the datagram must not be sent then.
    #[must_use]
    pub(crate) fn seal(&self, datagram: &mut [u8]) -> bool {
        // The limit is far enough from where the counter wraps for all threads to find it passed.
        if self.next.load(Relaxed) >= HARD_LIMIT {
            return false;
        }
        let counter = self.next.fetch_add(1, Relaxed);
        let (mark, datagram) = datagram.split_at_mut(front(self.mask.as_ref()));
        let (field, rest) = datagram.split_at_mut(COUNTER);
        let (inner, tag) = rest.split_at_mut(rest.len() - TAG);
        let sealed = self
            .keys
            .aead
            .seal_in_place_separate_tag(nonce(counter), Aad::empty(), inner)
            .expect("a datagram is within the cipher's limits");
        tag.copy_from_slice(sealed.as_ref());
        field.copy_from_slice(&counter.to_be_bytes());
        xor(field, self.keys.mask(&rest[..SAMPLE]));
        if let (Some(mask), Some(sample)) = (&self.mask, rest.last_chunk()) {
            mark.copy_from_slice(&mask.mark(sample));
        }
        true
    }

    /// The counter of a datagram of ours.
    #[cfg(test)]
    pub(crate) fn counter_of(&self, quoted: &[u8]) -> Option<u32> {
        let (field, rest) = quoted.split_first_chunk::<COUNTER>()?;
        let mut field = *field;
        xor(&mut field, self.keys.mask(rest.get(..SAMPLE)?));
        Some(u32::from_be_bytes(field))
    }
}

/// Opens what the peer sends on a lane, each datagram once.
pub(crate) struct OpeningKey {
    keys: Keys,
    /// Bytes of the mark.
    mark: usize,
    window: ReplayWindow,
}

impl OpeningKey {
    pub(crate) fn new(cipher: Cipher, data: &[u8; 32], header: &[u8; 32], mask: Option<&MaskKey>) -> Self {
        let keys = Keys::new(cipher, data, header);
        OpeningKey { keys, mark: front(mask), window: ReplayWindow::new() }
    }

    /// Bytes before the inner packet: a mark, if there is one, and the counter.
    pub(crate) fn front(&self) -> usize {
        self.mark + COUNTER
    }

    /// Opens a datagram in place; the inner packet with its padding lies at `datagram[front()..][..length]`. The mark says
    /// nothing here: who reads it is the program that takes masked packets.
    pub(crate) fn open(&mut self, datagram: &mut [u8]) -> Result<usize, DropReason> {
        let datagram = datagram.get_mut(self.mark..).ok_or(DropReason::TooShort)?;
        if datagram.len() < OVERHEAD {
            return Err(DropReason::TooShort);
        }
        let (field, rest) = datagram.split_at_mut(COUNTER);
        xor(field, self.keys.mask(&rest[..SAMPLE]));
        let counter = u32::from_be_bytes(field.try_into().expect("four bytes"));
        match self.window.check(counter) {
            Verdict::Fresh => {}
            Verdict::Seen => return Err(DropReason::Replayed),
            Verdict::TooOld => {
                self.window.grow();
                return Err(DropReason::TooOld);
            }
        }
        let inner = self
            .keys
            .aead
            .open_in_place(nonce(counter), Aad::empty(), rest)
            .map_err(|_| DropReason::NotAuthentic)?;
        self.window.accept(counter);
        Ok(inner.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair(cipher: Cipher) -> (SealingKey, OpeningKey) {
        marked(cipher, None)
    }

    fn marked(cipher: Cipher, mask: Option<MaskKey>) -> (SealingKey, OpeningKey) {
        let opening = OpeningKey::new(cipher, &[1; 32], &[2; 32], mask.as_ref());
        (SealingKey::new(cipher, &[1; 32], &[2; 32], mask), opening)
    }

    fn datagram(inner: &[u8]) -> Vec<u8> {
        [&[0; COUNTER], inner, &[0; TAG]].concat()
    }

    #[test]
    fn opens_each_datagram_once() {
        for cipher in [Cipher::Aes256Gcm, Cipher::ChaCha20Poly1305] {
            let (sealing, mut opening) = pair(cipher);
            let mut sealed = datagram(b"hello");
            assert!(sealing.seal(&mut sealed));
            assert_eq!(sealing.counter_of(&sealed), Some(0));
            let mut copy = sealed.clone();
            assert_eq!(opening.open(&mut sealed), Ok(5));
            assert_eq!(&sealed[COUNTER..COUNTER + 5], b"hello");
            assert_eq!(opening.open(&mut copy), Err(DropReason::Replayed));
        }
    }

    #[test]
    fn a_marked_datagram_begins_with_what_its_end_gives() {
        let mask = MaskKey::from_bytes([3; 32]);
        let (sealing, mut opening) = marked(Cipher::Aes256Gcm, Some(mask.clone()));
        let mut sealed = [&[0; MARK], datagram(b"hello").as_slice()].concat();
        assert!(sealing.seal(&mut sealed));
        assert_eq!(sealed[..MARK], mask.mark(sealed.last_chunk().unwrap()));
        assert_eq!(opening.open(&mut sealed), Ok(5));
        assert_eq!(&sealed[opening.front()..][..5], b"hello");
        assert_eq!(opening.open(&mut sealed[..MARK - 1]), Err(DropReason::TooShort));
    }

    #[test]
    fn an_empty_inner_packet_has_a_sample() {
        let (sealing, mut opening) = pair(Cipher::Aes256Gcm);
        let mut sealed = datagram(b"");
        assert!(sealing.seal(&mut sealed));
        assert_eq!(opening.open(&mut sealed), Ok(0));
    }

    #[test]
    fn a_used_up_key_seals_no_more() {
        let (sealing, _) = pair(Cipher::Aes256Gcm);
        sealing.next.store(HARD_LIMIT - 1, Relaxed);
        assert!(sealing.seal(&mut datagram(b"last")));
        assert!(!sealing.seal(&mut datagram(b"never")));
    }

    proptest! {
        #[test]
        fn a_changed_datagram_does_not_open(at in 0usize..25, bit in 0u8..8) {
            let (sealing, mut opening) = pair(Cipher::Aes256Gcm);
            let mut sealed = datagram(b"hello");
            prop_assert!(sealing.seal(&mut sealed));
            let mut changed = sealed.clone();
            changed[at] ^= 1 << bit;
            prop_assert!(opening.open(&mut changed).is_err());
            prop_assert_eq!(opening.open(&mut sealed), Ok(5));
        }

        #[test]
        fn arbitrary_datagrams_do_not_open(mut bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(pair(Cipher::ChaCha20Poly1305).1.open(&mut bytes).is_err());
        }
    }
}

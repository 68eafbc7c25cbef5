//! The Noise handshake, `Noise_KKpsk2_25519_ChaChaPoly_BLAKE2s` (docs/protocol.md, "Handshake").

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

use crate::envelope::Claim;
use crate::id::LaneId;
use crate::kdf::{Secret, expand, extract, prf_secret};
use crate::key_log::Label;
use crate::keys::{PairKeys, PresharedKey, PrivateKey, PublicKey, Role};
use crate::offer::{Malformed, Offer};

const PATTERN: &str = "Noise_KKpsk2_25519_ChaChaPoly_BLAKE2s";
/// Longest Noise message that fits the smallest datagram's envelope and a control message.
const MESSAGE: usize = 512;

/// What a handshake is for. Its messages are good for nothing else.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Occasion {
    /// A new session, which a node with this claim begins.
    Contact(Claim),
    /// New keys for a session.
    Rekey,
}

impl Occasion {
    fn prologue(&self, parties: &Parties) -> Vec<u8> {
        let publics = &parties.pair.publics;
        match self {
            Occasion::Contact(claim) => {
                [b"sidestep/3 contact", publics.as_slice(), &claim.to_bytes()].concat()
            }
            Occasion::Rekey => [b"sidestep/3 rekey".as_slice(), publics].concat(),
        }
    }
}

/// What a handshake needs of a node and its peer.
pub(crate) struct Parties<'a> {
    pub(crate) own: &'a PrivateKey,
    pub(crate) peer: &'a PublicKey,
    pub(crate) psk: Option<&'a PresharedKey>,
    pub(crate) pair: &'a PairKeys,
}

/// Bytes of an answer beside its offer: an ephemeral key, and the tag.
pub(crate) const ANSWER: usize = 32 + 16;

/// A handshake of ours that waits for its answer.
pub(crate) struct InitiatorState(HandshakeState);

/// `EX`: what a finished handshake leaves; all session keys come from it.
pub(crate) struct SessionSecret(hkdf::Hkdf<sha2::Sha256>);

/// Why a handshake message was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeError {
    /// It does not decrypt, or is no message of this handshake.
    Noise,
    /// Its payload is not one.
    Payload,
}

impl From<snow::Error> for HandshakeError {
    fn from(_: snow::Error) -> Self {
        HandshakeError::Noise
    }
}

impl From<Malformed> for HandshakeError {
    fn from(_: Malformed) -> Self {
        HandshakeError::Payload
    }
}

fn state(parties: &Parties, occasion: &Occasion, initiator: bool, rng: &mut ChaCha20Rng) -> HandshakeState {
    let mut ephemeral = Zeroizing::new([0; 32]);
    rng.fill_bytes(ephemeral.as_mut_slice());
    // Whoever reads this process's memory later must not be able to go back to the keys of sessions that are over: the
    // generator goes on from a seed of its own making, and the state that it had is gone.
    *rng = ChaCha20Rng::from_rng(rng);
    let psk = parties.psk.map_or([0; 32], |p| *p.as_bytes());
    let psk = Zeroizing::new(psk);
    let prologue = occasion.prologue(parties);
    // The name of snow's function warns of reuse: here each handshake takes a fresh key from the generator that the
    // caller gave, which is what makes handshakes repeatable under test and lets the protocol crate do no I/O.
    let builder = Builder::new(PATTERN.parse().expect("a pattern that snow knows"))
        .prologue(&prologue)
        .and_then(|b| b.local_private_key(parties.own.as_bytes()))
        .and_then(|b| b.remote_public_key(parties.peer.as_bytes()))
        .and_then(|b| b.psk(2, &psk))
        .map(|b| b.fixed_ephemeral_key_for_testing_only(ephemeral.as_slice()));
    builder
        .and_then(|b| if initiator { b.build_initiator() } else { b.build_responder() })
        .expect("keys of the right lengths, each given once")
}

/// Starts a handshake: the first message, and what its answer is read with.
pub(crate) fn initiate(
    parties: &Parties,
    occasion: &Occasion,
    offer: &Offer,
    rng: &mut ChaCha20Rng,
) -> (Vec<u8>, InitiatorState) {
    let mut noise = state(parties, occasion, true, rng);
    let mut message = vec![0; MESSAGE];
    let length = noise.write_message(&offer.encode(), &mut message).expect("an offer fits a message");
    message.truncate(length);
    (message, InitiatorState(noise))
}

impl InitiatorState {
    /// Reads the answer.
    pub(crate) fn finish(mut self, answer: &[u8]) -> Result<(Offer, SessionSecret), HandshakeError> {
        let offer = read(&mut self.0, answer)?;
        Ok((offer, SessionSecret::of(&mut self.0)))
    }
}

/// Reads a first message. The answer is written once it is known what to say.
pub(crate) fn receive(
    parties: &Parties,
    occasion: &Occasion,
    first: &[u8],
    rng: &mut ChaCha20Rng,
) -> Result<(Offer, ResponderState), HandshakeError> {
    let mut noise = state(parties, occasion, false, rng);
    let offer = read(&mut noise, first)?;
    Ok((offer, ResponderState(noise)))
}

/// A handshake of the peer's that waits for our answer.
pub(crate) struct ResponderState(HandshakeState);

impl ResponderState {
    /// Writes the answer.
    pub(crate) fn answer(mut self, offer: &Offer) -> (Vec<u8>, SessionSecret) {
        let mut message = vec![0; MESSAGE];
        let length = self.0.write_message(&offer.encode(), &mut message).expect("an offer fits a message");
        message.truncate(length);
        (message, SessionSecret::of(&mut self.0))
    }
}

fn read(noise: &mut HandshakeState, message: &[u8]) -> Result<Offer, HandshakeError> {
    let mut payload = vec![0; message.len()];
    let length = noise.read_message(message, &mut payload)?;
    Ok(Offer::decode(&payload[..length])?)
}

impl SessionSecret {
    fn of(noise: &mut HandshakeState) -> Self {
        let (k1, k2) = noise.dangerously_get_raw_split();
        let (k1, k2) = (Zeroizing::new(k1), Zeroizing::new(k2));
        let ikm = Zeroizing::new([k1.as_slice(), k2.as_slice(), noise.get_handshake_hash()].concat());
        SessionSecret(extract(b"sidestep/3 session", &ikm))
    }

    /// What the keys come from of all lanes, for what `sender` sends.
    pub(crate) fn lanes(&self, sender: Role) -> LaneSecret {
        LaneSecret(expand(&self.0, &[b"lanes", sender.sending()]))
    }

    /// The key of `role`'s endpoints.
    pub(crate) fn address(&self, role: Role) -> Secret {
        expand(&self.0, &[b"address", role.letter()])
    }

    /// What the session is called in a key log.
    pub(crate) fn label(&self) -> Label {
        *expand(&self.0, &[b"key log"]).first_chunk().expect("32 bytes")
    }

    /// The key of the session's schedule.
    pub(crate) fn schedule(&self) -> Secret {
        expand(&self.0, &[b"schedule"])
    }
}

/// What the keys come from of all lanes, in one direction.
pub(crate) struct LaneSecret(Secret);

impl LaneSecret {
    /// The key that seals what is sent on `lane`.
    pub(crate) fn data(&self, lane: LaneId) -> Secret {
        prf_secret(&self.0, &[b"data", &lane.0.to_be_bytes()])
    }

    /// The key that hides its counters.
    pub(crate) fn header(&self, lane: LaneId) -> Secret {
        prf_secret(&self.0, &[b"header", &lane.0.to_be_bytes()])
    }

    /// The key that masks another tunnel's packets on it.
    pub(crate) fn mask(&self, lane: LaneId) -> Secret {
        prf_secret(&self.0, &[b"mask", &lane.0.to_be_bytes()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;
    use std::time::Duration;

    fn offer(switch: i64) -> Offer {
        let mut offer = Offer::decode(&[]).unwrap();
        offer.rotation = Duration::from_secs(5);
        offer.switch = Some(switch);
        offer
    }

    #[test]
    fn both_ends_come_to_the_same_secret_and_a_wrong_psk_does_not() {
        let (a, b) = (PrivateKey::from_bytes([1; 32]), PrivateKey::from_bytes([2; 32]));
        let psk = PresharedKey::from_bytes([3; 32]);
        let (pa, pb) = (a.public(), b.public());
        let at_a = PairKeys::derive(&a, &pb, Some(&psk)).unwrap();
        let at_b = PairKeys::derive(&b, &pa, Some(&psk)).unwrap();
        let parties_a = Parties { own: &a, peer: &pb, psk: Some(&psk), pair: &at_a };
        let mut rng = ChaCha20Rng::from_seed([5; 32]);
        let claim = Claim { hop_prefix: "2001:db8:a1::/48".parse().unwrap(), unix_ms: 7, heard: [0; 8] };
        let contact = Occasion::Contact(claim);

        let (first, pending) = initiate(&parties_a, &contact, &offer(1), &mut rng);
        let parties_b = Parties { own: &b, peer: &pa, psk: Some(&psk), pair: &at_b };
        let (got, answering) = receive(&parties_b, &contact, &first, &mut rng).unwrap();
        assert_eq!(got, offer(1));
        let (answer, secret_b) = answering.answer(&offer(2));
        let (got, secret_a) = pending.finish(&answer).unwrap();
        assert_eq!(got, offer(2));
        let (lanes_a, lanes_b) = (secret_a.lanes(Role::L), secret_b.lanes(Role::L));
        assert_eq!(lanes_a.data(LaneId(3)), lanes_b.data(LaneId(3)));
        assert_ne!(lanes_a.data(LaneId(3)), lanes_b.data(LaneId(4)));
        assert_ne!(lanes_a.data(LaneId(3)), secret_b.lanes(Role::H).data(LaneId(3)));
        assert_ne!(lanes_a.data(LaneId(3)), lanes_b.header(LaneId(3)));
        assert_eq!(secret_a.address(Role::H), secret_b.address(Role::H));
        assert_eq!(secret_a.schedule(), secret_b.schedule());

        let (first, pending) = initiate(&parties_a, &contact, &offer(1), &mut rng);
        let parties_b = Parties { own: &b, peer: &pa, psk: None, pair: &at_b };
        let (_, answering) = receive(&parties_b, &contact, &first, &mut rng).unwrap();
        let (answer, _) = answering.answer(&offer(2));
        assert_eq!(pending.finish(&answer).err(), Some(HandshakeError::Noise));
        let failed = |occasion: &Occasion, first: &[u8], rng: &mut ChaCha20Rng| {
            receive(&parties_b, occasion, first, rng).err() == Some(HandshakeError::Noise)
        };
        assert!(failed(&contact, &first[1..], &mut rng));
        assert!(failed(&Occasion::Rekey, &first, &mut rng), "a handshake is no rekey");
        let elsewhere = Claim { hop_prefix: "2001:db8:bad::/48".parse().unwrap(), ..claim };
        assert!(failed(&Occasion::Contact(elsewhere), &first, &mut rng), "another claim");
    }
}

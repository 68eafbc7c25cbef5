//! Keys of IKE SAs and children, and what PSK authentication computes (RFC 7296 §2.14–2.18).

use crate::crypto::encryption::{Cipher, Encryption, Integrity};
use crate::crypto::group::Group;
use crate::crypto::prf::Prf;
use crate::crypto::secret::Secret;
use crate::numbers::IkeSpi;

/// The algorithms of an IKE SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IkeSuite {
    /// Of its messages.
    pub encryption: Encryption,
    /// Of its messages, unless the encryption authenticates.
    pub integrity: Option<Integrity>,
    /// Of everything that is derived.
    pub prf: Prf,
    /// Of its key exchange.
    pub group: Group,
}

/// Which end of an IKE SA this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// The one that has sent the first message (for a rekeyed IKE SA: that has asked for the rekey).
    Initiator,
    /// The other one.
    Responder,
}

/// What both ends know of an IKE SA before there are keys.
#[derive(Debug, Clone)]
pub(crate) struct Exchanged {
    pub(crate) initiator_spi: IkeSpi,
    pub(crate) responder_spi: IkeSpi,
    pub(crate) initiator_nonce: Vec<u8>,
    pub(crate) responder_nonce: Vec<u8>,
}

impl Exchanged {
    /// The lower one of the two nonces, octet by octet (RFC 7296 §2.8.1).
    pub(crate) fn lowest_nonce(&self) -> &[u8] {
        self.initiator_nonce.as_slice().min(&self.responder_nonce)
    }
}

/// The keys of an IKE SA, from the point of view of one end.
#[derive(Debug)]
pub(crate) struct IkeKeys {
    pub(crate) prf: Prf,
    pub(crate) sk_d: Secret,
    /// SK_p of this end.
    pub(crate) own_sk_p: Secret,
    /// SK_p of the other end.
    pub(crate) peer_sk_p: Secret,
    pub(crate) outbound: Cipher,
    pub(crate) inbound: Cipher,
}

impl IkeKeys {
    /// Those of a first IKE SA.
    pub(crate) fn derive(
        suite: &IkeSuite,
        role: Role,
        shared: &Secret,
        exchanged: &Exchanged,
    ) -> Option<Self> {
        let nonces = [&exchanged.initiator_nonce[..], &exchanged.responder_nonce].concat();
        let skeyseed = suite.prf.compute(&nonces, &[shared.as_bytes()]);
        Self::expand(suite, role, &skeyseed, exchanged)
    }

    /// Those of an IKE SA in place of one whose PRF and SK_d these are (§2.18).
    pub(crate) fn rekey(
        old: &IkeKeys,
        suite: &IkeSuite,
        role: Role,
        shared: &Secret,
        exchanged: &Exchanged,
    ) -> Option<Self> {
        let skeyseed = old.prf.compute(
            old.sk_d.as_bytes(),
            &[shared.as_bytes(), &exchanged.initiator_nonce, &exchanged.responder_nonce],
        );
        Self::expand(suite, role, &skeyseed, exchanged)
    }

    fn expand(suite: &IkeSuite, role: Role, skeyseed: &Secret, exchanged: &Exchanged) -> Option<Self> {
        let prf_length = suite.prf.length();
        let integrity_length = suite.integrity.map_or(0, Integrity::key_length);
        let encryption_length = suite.encryption.key_length();
        let seed = [
            &exchanged.initiator_nonce[..],
            &exchanged.responder_nonce,
            &exchanged.initiator_spi.0.to_be_bytes(),
            &exchanged.responder_spi.0.to_be_bytes(),
        ];
        let length = 3 * prf_length + 2 * integrity_length + 2 * encryption_length;
        let stream = suite.prf.expand(skeyseed.as_bytes(), &seed, length);
        let mut rest = stream.as_bytes();
        let mut take = |length: usize| {
            let (key, after) = rest.split_at(length);
            rest = after;
            key
        };
        let sk_d = take(prf_length);
        let (sk_ai, sk_ar) = (take(integrity_length), take(integrity_length));
        let (sk_ei, sk_er) = (take(encryption_length), take(encryption_length));
        let (sk_pi, sk_pr) = (take(prf_length), take(prf_length));

        let of_initiator = Cipher::new(suite.encryption, sk_ei, suite.integrity, sk_ai)?;
        let of_responder = Cipher::new(suite.encryption, sk_er, suite.integrity, sk_ar)?;
        let secret = |key: &[u8]| Secret::new(key.to_vec());
        let (prf, sk_d) = (suite.prf, secret(sk_d));
        let (sk_pi, sk_pr) = (secret(sk_pi), secret(sk_pr));
        Some(match role {
            Role::Initiator => Self {
                prf,
                sk_d,
                own_sk_p: sk_pi,
                peer_sk_p: sk_pr,
                outbound: of_initiator,
                inbound: of_responder,
            },
            Role::Responder => Self {
                prf,
                sk_d,
                own_sk_p: sk_pr,
                peer_sk_p: sk_pi,
                outbound: of_responder,
                inbound: of_initiator,
            },
        })
    }

    /// KEYMAT of a child (§2.17), with the secret of its own key exchange if it had one.
    pub(crate) fn child(
        &self,
        shared: Option<&Secret>,
        initiator_nonce: &[u8],
        responder_nonce: &[u8],
        length: usize,
    ) -> Secret {
        let shared = shared.map_or(&[][..], Secret::as_bytes);
        self.prf.expand(self.sk_d.as_bytes(), &[shared, initiator_nonce, responder_nonce], length)
    }

    /// What an end signs or authenticates (§2.15): its first message, the other end's nonce, its identity.
    pub(crate) fn signed_octets(
        &self,
        sk_p: &Secret,
        message: &[u8],
        nonce: &[u8],
        identity: &[u8],
    ) -> Vec<u8> {
        let maced = self.prf.compute(sk_p.as_bytes(), &[identity]);
        [message, nonce, maced.as_bytes()].concat()
    }

    /// AUTH by a shared key over signed octets (§2.15).
    pub(crate) fn shared_key_auth(&self, key: &Secret, octets: &[u8]) -> Secret {
        let padded = self.prf.compute(key.as_bytes(), &[b"Key Pad for IKEv2"]);
        self.prf.compute(padded.as_bytes(), &[octets])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchanged() -> Exchanged {
        Exchanged {
            initiator_spi: IkeSpi(0x0102_0304_0506_0708),
            responder_spi: IkeSpi(0x1112_1314_1516_1718),
            initiator_nonce: (0..32).collect(),
            responder_nonce: (100..148).collect(),
        }
    }

    fn suite() -> IkeSuite {
        IkeSuite {
            encryption: Encryption::Aes256Cbc,
            integrity: Some(Integrity::HmacSha384),
            prf: Prf::HmacSha384,
            group: Group::Curve25519,
        }
    }

    /// What `reference/ike.py` prints.
    #[test]
    fn keys_and_auth_are_those_of_the_second_implementation() {
        let shared = Secret::new((50..82).collect());
        let keys = IkeKeys::derive(&suite(), Role::Initiator, &shared, &exchanged()).unwrap();
        assert_eq!(
            hex::encode(keys.sk_d.as_bytes()),
            "e0e613b3dbd1db840ded12a4727fb9a0cb244413f85d6fa11a2c2bfd7679aab613408dffd02c86601cb44f8b093c1098"
        );
        assert_eq!(
            hex::encode(keys.own_sk_p.as_bytes()),
            "eb407277f14803670dae60ecf0f45e050e7663ad3b3d39dc5217526518f257bdef370b56382503356710c395cfe2e71f"
        );
        assert_eq!(
            hex::encode(keys.peer_sk_p.as_bytes()),
            "d686b63eefee95830884e967a747a52c34622ead553368e1887b23660a5a25977a48791a26edfdae15e3084013131e96"
        );
        let octets = keys.signed_octets(&keys.own_sk_p, b"message", b"nonce", &[2, 0, 0, 0, b'a']);
        let auth = keys.shared_key_auth(&Secret::new(b"secret".to_vec()), &octets);
        assert_eq!(
            hex::encode(auth.as_bytes()),
            "533d22a0aa2b58ef53c435ae856ccb8cd5c7746c135e446f4ce95f0851f35971df0eca9c80223f24157ec80587d98d9b"
        );
        let child = keys.child(Some(&shared), &exchanged().initiator_nonce, &exchanged().responder_nonce, 72);
        assert_eq!(
            hex::encode(child.as_bytes()),
            "bc03be1f2346d0b709d6fbbea81de3adc01f9b1f2a00962f956122e30155a98c99dc58d4779789c2c23a36c9115016ccea5998690d82841791f66f7e780660563a5467c4cb5e26c3"
        );
        let rekeyed = IkeKeys::rekey(&keys, &suite(), Role::Initiator, &shared, &exchanged()).unwrap();
        assert_eq!(
            hex::encode(rekeyed.sk_d.as_bytes()),
            "906454200aceebb7a15987a8d877b2fec4ce665c6167ee16c39995a3c3450c654a0793d42770d7c46db70fe84d3d2325"
        );
    }

    #[test]
    fn both_ends_open_what_the_other_one_seals() {
        let shared = Secret::new(vec![1; 32]);
        let mut random = crate::random::Repeatable::new(1);
        for encryption in Encryption::ALL {
            let integrity = (!encryption.is_aead()).then_some(Integrity::HmacSha256);
            let suite = IkeSuite { encryption, integrity, ..suite() };
            let mut a = IkeKeys::derive(&suite, Role::Initiator, &shared, &exchanged()).unwrap();
            let mut b = IkeKeys::derive(&suite, Role::Responder, &shared, &exchanged()).unwrap();
            for (from, to) in [(&mut a.outbound, &b.inbound), (&mut b.outbound, &a.inbound)] {
                let mut sealed = Vec::new();
                from.seal(&mut sealed, b"payloads", &mut random);
                assert_eq!(to.open(b"", &sealed).unwrap(), b"payloads");
            }
        }
    }
}

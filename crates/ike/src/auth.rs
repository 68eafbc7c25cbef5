//! Who the other end is: what IKE_AUTH says and proves (RFC 7296 §2.15), the same from both ends.

use std::time::Duration;

use subtle::ConstantTimeEq;

use crate::certificate::{Certificates, HashAlgorithm, hashes_to_bytes, parse_hashes};
use crate::child::{find, notifies};
use crate::config::{Authentication, PeerConfig, PeerIndex};
use crate::keys::{IkeKeys, Role};
use crate::message::ParseError;
use crate::message::Payloads;
use crate::message::body::{Auth, Certificate, Identity};
use crate::message::builder::Builder;
use crate::numbers::{NotifyType, PayloadType};

/// What both ends have said in IKE_SA_INIT, as their proofs cover it.
#[derive(Debug, Clone)]
pub(crate) struct Transcript {
    /// The initiator's message, the last one of it that was sent.
    pub(crate) request: Vec<u8>,
    /// The responder's message.
    pub(crate) response: Vec<u8>,
    pub(crate) initiator_nonce: Vec<u8>,
    pub(crate) responder_nonce: Vec<u8>,
    /// What the other end verifies signatures with (RFC 7427); nothing if it did not say.
    pub(crate) peer_hashes: Vec<HashAlgorithm>,
}

impl Transcript {
    /// What the end of this role signs: its own message, the other end's nonce, its identity.
    fn octets(&self, keys: &IkeKeys, signer: Role, own: Role, identity: &[u8]) -> Vec<u8> {
        let sk_p = if signer == own { &keys.own_sk_p } else { &keys.peer_sk_p };
        let (message, nonce) = match signer {
            Role::Initiator => (&self.request, &self.responder_nonce),
            Role::Responder => (&self.response, &self.initiator_nonce),
        };
        keys.signed_octets(sk_p, message, nonce, identity)
    }
}

/// Appends AUTH of this end, behind its certificates if it has some. False if it has none that the other end can verify.
pub(crate) fn prove(
    to: &mut Builder,
    peer: &PeerConfig,
    keys: &IkeKeys,
    transcript: &Transcript,
    own: Role,
) -> bool {
    let octets = transcript.octets(keys, own, own, &peer.local.to_body());
    match &peer.authentication {
        Authentication::SharedKey(key) => {
            to.auth(Auth::SHARED_KEY, keys.shared_key_auth(key, &octets).as_bytes());
        }
        Authentication::Certificates(certificates) => {
            let Some(proof) = certificates.sign(&octets, &transcript.peer_hashes) else { return false };
            for certificate in certificates.chain() {
                to.certificate(PayloadType::CERT, Certificate::X509_SIGNATURE, certificate);
            }
            to.auth(Auth::DIGITAL_SIGNATURE, &proof);
        }
    }
    true
}

/// Whether the other end has proved to be who its identity payload says.
pub(crate) fn is_proved(
    payloads: Payloads<'_>,
    peer: &PeerConfig,
    keys: &IkeKeys,
    transcript: &Transcript,
    own: Role,
    unix_time: Option<Duration>,
) -> Result<bool, ParseError> {
    let (signer, kind) = match own {
        Role::Initiator => (Role::Responder, PayloadType::ID_R),
        Role::Responder => (Role::Initiator, PayloadType::ID_I),
    };
    let identity = find(payloads, kind)?;
    let auth = Auth::parse(find(payloads, PayloadType::AUTH)?)?;
    let octets = transcript.octets(keys, signer, own, identity);
    Ok(match (&peer.authentication, auth.method) {
        (Authentication::SharedKey(key), Auth::SHARED_KEY) => {
            keys.shared_key_auth(key, &octets).as_bytes().ct_eq(auth.data).into()
        }
        (Authentication::Certificates(certificates), Auth::DIGITAL_SIGNATURE) => {
            let Some(unix_time) = unix_time else { return Ok(false) };
            let identity = Identity::parse(identity)?;
            let chain = payloads.all(PayloadType::CERT).filter_map(|body| Certificate::parse(body).ok());
            certificates.verify(chain, auth.data, &octets, &identity, unix_time)
        }
        _ => false,
    })
}

/// The certificates of a peer, if it is one that has some.
pub(crate) fn certificates(peer: &PeerConfig) -> Option<&Certificates> {
    match &peer.authentication {
        Authentication::SharedKey(_) => None,
        Authentication::Certificates(certificates) => Some(certificates),
    }
}

/// Appends what the other end is to know to sign for this one: hashes, in IKE_SA_INIT (RFC 7427 §4).
pub(crate) fn announce_hashes(to: &mut Builder) {
    to.notify(NotifyType::SIGNATURE_HASH_ALGORITHMS, &hashes_to_bytes());
}

/// Appends whose certificates are believed.
pub(crate) fn request_certificates<'a>(to: &mut Builder, of: impl Iterator<Item = &'a Certificates>) {
    let hashes: Vec<u8> = of.flat_map(Certificates::authority_hashes).collect();
    if !hashes.is_empty() {
        to.certificate(PayloadType::CERTREQ, Certificate::X509_SIGNATURE, &hashes);
    }
}

/// The hashes that the other end has named.
pub(crate) fn hashes_in(payloads: Payloads<'_>) -> Vec<HashAlgorithm> {
    let said = notifies(payloads).find(|notify| notify.kind == NotifyType::SIGNATURE_HASH_ALGORITHMS);
    said.map_or(Vec::new(), |notify| parse_hashes(notify.data))
}

/// The peer that an initiator's identity is of, and the one of this end that it asks for, if it does.
pub(crate) fn find_peer<'a>(
    peers: &'a [PeerConfig],
    identity: &Identity,
    wanted: Option<&Identity>,
) -> Option<(PeerIndex, &'a PeerConfig)> {
    let fits = |peer: &PeerConfig| {
        peer.remote.as_ref().is_none_or(|remote| remote == identity)
            && wanted.is_none_or(|wanted| *wanted == peer.local)
    };
    peers.iter().enumerate().find(|(_, peer)| fits(peer)).map(|(index, peer)| (PeerIndex(index), peer))
}

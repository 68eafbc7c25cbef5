//! Who the other end is: what IKE_AUTH says and proves (RFC 7296 §2.15), the same from both ends.

use subtle::ConstantTimeEq;

use crate::child::find;
use crate::config::{PeerConfig, PeerIndex};
use crate::keys::{IkeKeys, Role};
use crate::message::ParseError;
use crate::message::Payloads;
use crate::message::body::{Auth, Identity};
use crate::message::builder::Builder;
use crate::numbers::PayloadType;

/// What both ends have said in IKE_SA_INIT, as their proofs cover it.
#[derive(Debug, Clone)]
pub(crate) struct Transcript {
    /// The initiator's message, the last one of it that was sent.
    pub(crate) request: Vec<u8>,
    /// The responder's message.
    pub(crate) response: Vec<u8>,
    pub(crate) initiator_nonce: Vec<u8>,
    pub(crate) responder_nonce: Vec<u8>,
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

/// Appends AUTH of this end.
pub(crate) fn prove(to: &mut Builder, peer: &PeerConfig, keys: &IkeKeys, transcript: &Transcript, own: Role) {
    let octets = transcript.octets(keys, own, own, &peer.local.to_body());
    to.auth(Auth::SHARED_KEY, keys.shared_key_auth(&peer.shared_key, &octets).as_bytes());
}

/// Whether the other end has proved to know the peer's key, for the identity payload that it has sent.
pub(crate) fn is_proved(
    payloads: Payloads<'_>,
    peer: &PeerConfig,
    keys: &IkeKeys,
    transcript: &Transcript,
    own: Role,
) -> Result<bool, ParseError> {
    let (signer, kind) = match own {
        Role::Initiator => (Role::Responder, PayloadType::ID_R),
        Role::Responder => (Role::Initiator, PayloadType::ID_I),
    };
    let identity = find(payloads, kind)?;
    let auth = Auth::parse(find(payloads, PayloadType::AUTH)?)?;
    let octets = transcript.octets(keys, signer, own, identity);
    let expected = keys.shared_key_auth(&peer.shared_key, &octets);
    Ok(auth.method == Auth::SHARED_KEY && expected.as_bytes().ct_eq(auth.data).into())
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

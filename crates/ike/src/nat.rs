//! NAT detection: hashes of where each end thinks that a message travels (RFC 7296 §2.23).

use std::net::{IpAddr, SocketAddr};

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use crate::event::{Nat, Path};
use crate::message::Payloads;
use crate::message::body::Notify;
use crate::message::builder::Builder;
use crate::numbers::{IkeSpi, NotifyType, PayloadType};

/// Appends the two notifies for a message on this path.
pub(crate) fn announce(builder: &mut Builder, initiator: IkeSpi, responder: IkeSpi, path: Path) {
    builder.nat_detection(&hash(initiator, responder, path.local), &hash(initiator, responder, path.remote));
}

/// What a received message tells, given the path that it came on; none if it says nothing (the other end knows no
/// NATs). An end may claim a NAT by a hash of nothing.
pub(crate) fn detect(
    initiator: IkeSpi,
    responder: IkeSpi,
    payloads: Payloads<'_>,
    path: Path,
) -> Option<Nat> {
    let hash = |address| hash(initiator, responder, address);
    let (here, there) = (hash(path.local), hash(path.remote));
    let (mut sources, mut destinations) = (Vec::new(), Vec::new());
    for notify in payloads.all(PayloadType::NOTIFY).filter_map(|body| Notify::parse(body).ok()) {
        match notify.kind {
            NotifyType::NAT_DETECTION_SOURCE_IP => sources.push(notify.data),
            NotifyType::NAT_DETECTION_DESTINATION_IP => destinations.push(notify.data),
            _ => {}
        }
    }
    if sources.is_empty() || destinations.is_empty() {
        return None;
    }
    // Several sources are the addresses that the sender may have used: one that fits is enough.
    Some(Nat {
        local: !destinations.iter().any(|data| *data == here),
        remote: !sources.iter().any(|data| *data == there),
    })
}

fn hash(initiator: IkeSpi, responder: IkeSpi, address: SocketAddr) -> [u8; 20] {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    context.update(&initiator.0.to_be_bytes());
    context.update(&responder.0.to_be_bytes());
    match address.ip() {
        IpAddr::V4(v4) => context.update(&v4.octets()),
        IpAddr::V6(v6) => context.update(&v6.octets()),
    }
    context.update(&address.port().to_be_bytes());
    let mut hash = [0; 20];
    hash.copy_from_slice(context.finish().as_ref());
    hash
}

/// The addresses and ports themselves, as NO_NATS_ALLOWED has them (RFC 4555 §4.2.6).
pub(crate) fn plain(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::new();
    for address in [source, destination] {
        match address.ip() {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
    }
    for address in [source, destination] {
        bytes.extend(address.port().to_be_bytes());
    }
    bytes
}

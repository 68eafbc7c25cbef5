//! NAT detection: hashes of where each end thinks that a message travels (RFC 7296 §2.23).

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};

use crate::event::{Nat, Path};
use crate::message::Payloads;
use crate::message::body::Notify;
use crate::message::builder::Builder;
use crate::numbers::{IkeSpi, NotifyType, PayloadType};

/// Appends the two notifies for a message on this path. `claimed`: the source is not where this end is, so that the other
/// end sees a NAT, and takes ESP in UDP.
pub(crate) fn announce(
    builder: &mut Builder,
    initiator: IkeSpi,
    responder: IkeSpi,
    path: Path,
    claimed: bool,
) {
    const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let source = if claimed { NOWHERE } else { path.local };
    builder.nat_detection(&hash(initiator, responder, source), &hash(initiator, responder, path.remote));
}

/// What a received message tells, given the path that it came on; none if it says nothing (the other end knows no
/// NATs). An end may claim a NAT by a hash of nothing; `claimed` if this one does.
pub(crate) fn detect(
    initiator: IkeSpi,
    responder: IkeSpi,
    payloads: Payloads<'_>,
    path: Path,
    claimed: bool,
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
        claimed,
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

/// Whether the other end wants no NAT, and there is one all the same (RFC 4555 §3.9).
pub(crate) fn is_unwanted(payloads: Payloads<'_>, path: Path) -> bool {
    let notifies = payloads.all(PayloadType::NOTIFY).filter_map(|body| Notify::parse(body).ok());
    let mut allowed = notifies.filter(|notify| notify.kind == NotifyType::NO_NATS_ALLOWED);
    allowed.any(|notify| notify.data != plain(path.remote, path.local))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payloads(builder: &Builder) -> Payloads<'_> {
        Payloads::parse(builder.first(), builder.bytes()).unwrap()
    }

    #[test]
    fn each_end_behind_a_nat_is_told_and_who_says_nothing_knows_none() {
        let path = |local: &str, remote: &str| Path {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        };
        let (i, r) = (IkeSpi(1), IkeSpi(2));
        let mut sent = Builder::new();
        announce(&mut sent, i, r, path("192.0.2.1:500", "198.51.100.1:500"), false);
        let at = |local, remote| detect(i, r, payloads(&sent), path(local, remote), false);
        let nat = |local, remote| Some(Nat { local, remote, claimed: false });
        assert_eq!(at("198.51.100.1:500", "192.0.2.1:500"), nat(false, false));
        assert_eq!(at("198.51.100.1:500", "192.0.2.1:501"), nat(false, true));
        assert_eq!(at("10.0.0.1:500", "192.0.2.1:500"), nat(true, false));
        assert_eq!(
            detect(i, r, payloads(&Builder::new()), path("10.0.0.1:500", "10.0.0.2:500"), false),
            None
        );
        // Hashes of another IKE SA are of nothing here: so an end claims a NAT where there is none.
        let other = detect(i, IkeSpi(3), payloads(&sent), path("198.51.100.1:500", "192.0.2.1:500"), false);
        assert_eq!(other, nat(true, true));
    }

    #[test]
    fn a_claimed_nat_is_seen_by_the_other_end_and_known_to_this_one() {
        let (i, r) = (IkeSpi(1), IkeSpi(2));
        let (a, b) = ("192.0.2.1:500".parse().unwrap(), "192.0.2.2:500".parse().unwrap());
        let mut sent = Builder::new();
        announce(&mut sent, i, r, Path { local: a, remote: b }, true);
        let nat = detect(i, r, payloads(&sent), Path { local: b, remote: a }, false);
        assert_eq!(nat, Some(Nat { remote: true, ..Nat::default() }));
        assert!(Nat { claimed: true, ..Nat::default() }.is_between());
    }

    #[test]
    fn a_nat_is_unwanted_where_addresses_or_ports_are_not_those_that_were_sent() {
        let path = |local: &str, remote: &str| Path {
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
        };
        let here = path("[2001:db8::1]:500", "[2001:db8::2]:500");
        let mut sent = Builder::new();
        assert!(!is_unwanted(payloads(&sent), here));
        // RFC 4555 §4.2.6: both addresses, then both ports.
        let mut data = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2].to_vec();
        data.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0xf4, 1, 0xf4]);
        sent.notify(NotifyType::NO_NATS_ALLOWED, &data);
        assert!(!is_unwanted(payloads(&sent), here));
        for other in [
            path("[2001:db8::1]:500", "[2001:db8::3]:500"),
            path("[2001:db8::1]:500", "[2001:db8::2]:501"),
            path("[2001:db8::9]:500", "[2001:db8::2]:500"),
            path("192.0.2.1:500", "192.0.2.2:500"),
        ] {
            assert!(is_unwanted(payloads(&sent), other));
        }
    }

    #[test]
    fn one_of_several_sources_is_enough() {
        let (i, r) = (IkeSpi(1), IkeSpi(2));
        let (a, b) = ("[2001:db8::1]:500".parse().unwrap(), "[2001:db8::2]:500".parse().unwrap());
        let mut sent = Builder::new();
        sent.notify(NotifyType::NAT_DETECTION_SOURCE_IP, &[7; 20]);
        announce(&mut sent, i, r, Path { local: a, remote: b }, false);
        let nat = detect(i, r, payloads(&sent), Path { local: b, remote: a }, false);
        assert_eq!(nat, Some(Nat::default()));
    }
}

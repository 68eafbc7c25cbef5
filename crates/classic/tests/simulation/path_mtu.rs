//! What a narrow path does to a stream.

use std::net::Ipv6Addr;
use std::time::Duration;

use classic::profile::Carry;
use classic::{DropReason, Node, Received, SendError, UnixTime};
use wire::checksum::Sum;
use wire::{icmpv6, ipv6, protocol};

use crate::CIPHERS;
use crate::network::{Setup, address};

const START: UnixTime = UnixTime::from_millis(1_800_000_000_000);

fn node(setup: &Setup) -> Node {
    let key = classic::keys::SessionKey::from_bytes([7; classic::keys::SESSION_KEY_LEN]);
    let mut node = setup.node(0, key, START);
    node.handle_timeout(START);
    node
}

/// A packet of the local host, of so many bytes.
fn inner(length: usize) -> Vec<u8> {
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: (length - ipv6::HEADER_LEN) as u16,
        next_header: 59,
        hop_limit: 64,
        source: address(0),
        destination: address(1),
    };
    [&header.to_bytes()[..], &vec![9; length - ipv6::HEADER_LEN]].concat()
}

/// What a router says of an outer packet.
fn too_big(outer: &[u8], mtu: u32) -> Vec<u8> {
    let router: Ipv6Addr = "2001:db8:ff::1".parse().expect("an address");
    let source: [u8; 16] = outer[8..24].try_into().expect("its source");
    let to = Ipv6Addr::from(source);
    let mut message = vec![icmpv6::PACKET_TOO_BIG, 0, 0, 0];
    message.extend(mtu.to_be_bytes());
    message.extend(&outer[..outer.len().min(ipv6::MIN_MTU - ipv6::HEADER_LEN - icmpv6::HEADER_LEN)]);
    let pseudo = Sum::pseudo_ipv6(router, to, message.len() as u32, protocol::ICMPV6);
    let checksum = (pseudo + Sum::of(&message)).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: message.len() as u16,
        next_header: protocol::ICMPV6,
        hop_limit: 64,
        source: router,
        destination: to,
    };
    [&header.to_bytes()[..], &message].concat()
}

#[test]
fn a_narrow_path_lowers_the_inner_mtu_for_ten_minutes() {
    let kinds = CIPHERS.map(|cipher| (cipher, Carry::Encapsulate));
    for (cipher, carry) in kinds.into_iter().chain([(None, Carry::Rewrite)]) {
        let mut node = node(&Setup { cipher, carry, ..Setup::new(1) });
        let wide = node.inner_mtu(0);
        let narrow = match (cipher, carry) {
            (_, Carry::Rewrite) => 1400,
            (None, _) => 1384,
            (Some(_), _) => 1376,
        };
        let (mut outer, mut result) = (Vec::new(), Vec::new());
        node.send(&inner(wide.into()), &mut outer).expect("it fits the link");
        let changes = node.changes();

        let received = node.receive(&too_big(&outer, 1400), START, &mut result);

        assert_eq!(received, Received::Packet { stream: 0 });
        assert_eq!(node.inner_mtu(0), narrow);
        assert_eq!(node.status().next().map(|status| status.outer_mtu), Some(1400));
        assert_eq!(node.routes(0).map(|routes| routes.outer_mtu), Some(1400));
        assert!(node.changes() > changes, "whoever carries packets for it notices");
        let refused = node.send(&inner(usize::from(narrow) + 1), &mut result);
        assert_eq!(refused, Err(SendError::TooBig { mtu: narrow }));
        node.send(&inner(narrow.into()), &mut result).expect("it fits the path");
        assert!(result.len() <= 1400);

        // A larger one is not believed: it may be of an earlier path. A smaller one counts from its own time.
        node.receive(&too_big(&outer, 1450), START, &mut result);
        assert_eq!(node.inner_mtu(0), narrow);
        let later = START.after(Duration::from_secs(10));
        node.handle_timeout(later);
        node.receive(&too_big(&outer, 1400), later, &mut result);
        node.handle_timeout(START.after(Duration::from_secs(605)));
        assert_eq!(node.inner_mtu(0), narrow);
        assert!(node.deadline() <= later.after(Duration::from_secs(600)));
        node.handle_timeout(later.after(Duration::from_secs(600)));
        assert_eq!(node.inner_mtu(0), wide);
    }
}

#[test]
fn packets_of_1280_bytes_are_sent_whatever_somebody_says_of_the_path() {
    let mut node = node(&Setup::new(2));
    let (mut outer, mut result) = (Vec::new(), Vec::new());
    node.send(&inner(1280), &mut outer).expect("it fits");
    node.receive(&too_big(&outer, 600), START, &mut result);
    assert_eq!(node.inner_mtu(0), 1280);
    node.send(&inner(1280), &mut result).expect("it fits");
}

#[test]
fn an_error_about_no_packet_of_ours_says_nothing_of_the_path() {
    let mut node = node(&Setup::new(3));
    let (mut outer, mut result) = (Vec::new(), Vec::new());
    node.send(&inner(1280), &mut outer).expect("it fits");
    let wide = node.inner_mtu(0);
    let received = node.receive(&too_big(&outer[..60], 1300), START, &mut result);
    assert_eq!(received, Received::Dropped(DropReason::MalformedError));
    let stranger = [&outer[..24], &[1; 16], &outer[40..]].concat();
    assert_eq!(node.receive(&too_big(&stranger, 1300), START, &mut result), Received::NotOurs);
    assert_eq!(node.inner_mtu(0), wide);
}

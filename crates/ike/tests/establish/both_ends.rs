//! What two ends agree on: keys, identities, modes, selectors, a first child (RFC 7296 §1.2, §2.9, §2.15).

use std::time::Duration;

use ike::config::{Authentication, Config, Mode, PeerIndex};
use ike::crypto::encryption::{Encryption, Integrity};
use ike::crypto::group::Group;
use ike::crypto::prf::Prf;
use ike::crypto::secret::Secret;
use ike::event::{EndReason, Event, Path};
use ike::message::body::Identity;
use ike::message::traffic_selector::TrafficSelector;
use ike::negotiation::{ChildAlgorithms, ChildIntegrity, ChildProtocol, IkeAlgorithms};
use ike::numbers::{NotifyType, PayloadType};

use crate::world::{Link, Side, World, config, header, identity, message, peer, prefix};
use crate::{SOON, failed};

#[test]
fn two_ends_authenticate_and_share_a_child_after_four_messages() {
    let world = World::established(1);
    assert_eq!(world.sent.len(), 4);
    let exchanges: Vec<_> = world.sent.iter().map(|(_, sent)| header(sent)).collect();
    assert_eq!(exchanges, [(34, false, 0), (34, true, 0), (35, false, 1), (35, true, 1)]);
    assert_eq!(world.a.child().local, [prefix("fd00:a::", 32)]);
    assert_eq!(world.a.child().mode, Mode::Tunnel);
    assert!(!world.a.child().nat.is_between());
    let of_b =
        |event: &Event| matches!(event, Event::IkeUp { identity: Identity::Fqdn(name), .. } if name == "b");
    assert_eq!(world.count(Side::A, of_b), 1);
}

#[test]
fn each_suite_leads_to_the_same_keys_at_both_ends() {
    for (seed, encryption) in (2..).zip(Encryption::ALL) {
        for (prf, group, integrity) in [
            (Prf::HmacSha256, Group::Curve25519, Integrity::HmacSha256),
            (Prf::HmacSha384, Group::P256, Integrity::HmacSha384),
            (Prf::HmacSha512, Group::P384, Integrity::HmacSha512),
        ] {
            let (mut a, mut b) = (config("a", "b"), config("b", "a"));
            for config in [&mut a, &mut b] {
                config.algorithms = IkeAlgorithms {
                    encryption: vec![encryption],
                    integrity: vec![integrity],
                    prf: vec![prf],
                    groups: vec![group],
                };
                config.peers[0].children[0].algorithms = ChildAlgorithms {
                    protocol: ChildProtocol::Esp,
                    encryption: vec![encryption],
                    integrity: vec![integrity.into()],
                    groups: vec![group],
                    groups_required: false,
                    extended_sequence_numbers: vec![false],
                };
            }
            let mut world = World::with(seed, a, b);
            world.initiate();
            world.run(SOON);
            world.agree();
            assert_eq!(world.a.child().suite.encryption, Some(encryption));
            let keys = &world.a.child().inbound;
            assert_eq!(keys.encryption.as_bytes().len(), encryption.key_length());
            assert_eq!(keys.integrity.as_bytes().is_empty(), encryption.is_aead());
        }
    }
}

#[test]
fn a_child_of_ah_has_integrity_keys_alone() {
    for (integrity, length) in [
        (ChildIntegrity::Hmac(Integrity::HmacSha384), 48),
        // With a salt of four bytes (RFC 4543 §5.4).
        (ChildIntegrity::AesGmac128, 20),
        (ChildIntegrity::AesGmac256, 36),
    ] {
        let (mut a, mut b) = (config("a", "b"), config("b", "a"));
        for config in [&mut a, &mut b] {
            config.peers[0].children[0].algorithms = ChildAlgorithms {
                protocol: ChildProtocol::Ah,
                encryption: Vec::new(),
                integrity: vec![integrity],
                groups: Vec::new(),
                groups_required: false,
                extended_sequence_numbers: vec![true],
            };
        }
        let mut world = World::with(1, a, b);
        world.initiate();
        world.run(SOON);
        assert_eq!((world.a.children.len(), world.b.children.len()), (1, 1));
        let (at_a, at_b) = (world.a.child(), world.b.child());
        assert_eq!(at_a.suite.integrity, Some(integrity));
        for (out, into) in [(&at_a.outbound, &at_b.inbound), (&at_b.outbound, &at_a.inbound)] {
            assert_eq!(out.integrity.as_bytes(), into.integrity.as_bytes());
            assert_eq!((out.integrity.as_bytes().len(), out.encryption.as_bytes().len()), (length, 0));
        }
        assert_ne!(at_a.outbound.integrity.as_bytes(), at_a.inbound.integrity.as_bytes());
    }
}

#[test]
fn transport_mode_is_agreed_on_by_its_notify() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    for config in [&mut a, &mut b] {
        let child = &mut config.peers[0].children[0];
        (child.mode, child.local, child.remote) = (Mode::Transport, Vec::new(), Vec::new());
    }
    let mut world = World::with(1, a, b.clone());
    world.initiate();
    world.run(SOON);
    world.agree();
    assert_eq!(world.b.child().mode, Mode::Transport);
    assert_eq!(world.b.child().remote, [TrafficSelector::host("2001:db8::a".parse().unwrap())]);

    // A responder that wants tunnel mode does not get the initiator to put up with it.
    let mut a = b;
    a.peers[0] = {
        let mut peer = peer("a", "b");
        peer.children[0].mode = Mode::Transport;
        peer
    };
    let mut world = World::with(2, a, config("b", "a"));
    world.initiate();
    world.run(SOON);
    assert_eq!((world.a.children.len(), world.b.children.len()), (0, 0));
    assert_eq!(world.count(Side::B, |event| matches!(event, Event::ChildDown { .. })), 1);
}

#[test]
fn a_wrong_key_gives_authentication_failed_and_no_child() {
    let mut a = config("a", "b");
    a.peers[0].authentication = Authentication::SharedKey(Secret::new(b"another key".to_vec()));
    let mut world = World::with(1, a, config("b", "a"));
    world.initiate();
    world.run(Duration::from_secs(10));
    assert!(failed(&world, Side::A, EndReason::AuthenticationFailed));
    assert_eq!(world.count(Side::B, |event| matches!(event, Event::AuthenticationFailed { .. })), 1);
    assert!(world.a.ikes.is_empty() && world.b.ikes.is_empty());
    world.run(Duration::from_secs(60));
    assert_eq!(world.b.endpoint.half_open(), 0);
    assert_eq!((world.a.endpoint.deadline(), world.b.endpoint.deadline()), (None, None));
}

#[test]
fn an_unknown_identity_is_not_told_from_a_wrong_key() {
    let mut a = config("a", "b");
    a.peers[0].local = identity("stranger");
    let mut world = World::with(1, a, config("b", "a"));
    world.initiate();
    world.run(Duration::from_secs(10));
    assert!(failed(&world, Side::A, EndReason::AuthenticationFailed));
}

#[test]
fn both_ends_may_begin_at_once() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.link = Link { lost: 10, repeated: 10, jitter_ms: 200, nat: None };
        let Path { local, remote } = world.path();
        let (now, path) = (world.now, Path { local: remote, remote: local });
        world.b.endpoint.initiate(now, PeerIndex(0), path).unwrap();
        world.initiate();
        world.run(Duration::from_secs(60));
        assert!(!world.a.children.is_empty(), "seed {seed}");
        world.agree();
    }
}

#[test]
fn traffic_selectors_are_narrowed_to_what_the_responder_allows() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    a.peers[0].children[0].remote = vec![TrafficSelector::ANY_IPV6, TrafficSelector::ANY_IPV4];
    b.peers[0].children[0].local = vec![prefix("fd00:b:1::", 48).of_protocol(6, 443..=443)];
    let mut world = World::with(1, a, b);
    world.initiate();
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.child().remote, [prefix("fd00:b:1::", 48).of_protocol(6, 443..=443)]);
}

#[test]
fn without_common_selectors_the_ike_sa_is_there_without_a_child() {
    let mut b = config("b", "a");
    b.peers[0].children[0].local = vec![prefix("fd00:c::", 32)];
    let mut world = World::with(1, config("a", "b"), b);
    world.initiate();
    world.run(SOON);
    assert_eq!((world.a.ikes.len(), world.b.ikes.len()), (1, 1));
    let refused = |event: &Event| matches!(event, Event::ChildRefused { notify, .. } if *notify == NotifyType::TS_UNACCEPTABLE);
    assert_eq!(world.count(Side::A, refused), 1);
    assert!(world.a.children.is_empty() && world.b.children.is_empty());
}

#[test]
fn a_lossy_link_only_delays() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        world.link = Link { lost: 30, repeated: 20, jitter_ms: 3000, nat: None };
        world.initiate();
        // The time of all tries: of the first seven of a message all are lost now and then.
        world.run(Duration::from_secs(280));
        assert_eq!((world.a.children.len(), world.b.children.len()), (1, 1), "seed {seed}");
        world.agree();
    }
}

#[test]
fn messages_that_are_too_long_for_a_path_go_in_fragments() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    let long = |byte: u8| Identity::KeyId(vec![byte; 1000]);
    (a.peers[0].local, a.peers[0].remote) = (long(1), Some(long(2)));
    (b.peers[0].local, b.peers[0].remote) = (long(2), Some(long(1)));
    for seed in 0..20 {
        let mut world = World::with(seed, a.clone(), b.clone());
        world.link = Link { lost: 20, repeated: 20, jitter_ms: 1000, nat: None };
        world.initiate();
        world.run(Duration::from_secs(60));
        world.agree();
        assert_eq!(world.a.children.len(), 1, "seed {seed}");
        assert!(world.sent.iter().all(|(_, sent)| sent.payload.len() <= 1280 - 48));
        assert!(world.sent.iter().any(|(_, sent)| message(sent)[16] == PayloadType::SKF.0));
    }
}

#[test]
fn initial_contact_ends_what_was_before_a_restart() {
    let mut world = World::established(1);
    // A restarts, and has forgotten everything.
    let fresh = World::with(77, config("a", "b"), config("b", "a"));
    world.a = fresh.a;
    world.initiate();
    world.run(SOON);
    world.agree();
    assert_eq!(world.b.ikes.len(), 1);
    let ended = |event: &Event| matches!(event, Event::IkeDown { reason: EndReason::InitialContact, .. });
    assert_eq!(world.count(Side::B, ended), 1);
}

#[test]
fn a_peer_without_a_name_of_its_own_is_anybody_who_knows_the_key() {
    let mut b: Config = config("b", "a");
    b.peers[0].remote = None;
    let mut world = World::with(1, config("a", "b"), b);
    world.initiate();
    world.run(SOON);
    world.agree();
    assert_eq!(world.b.child().peer, PeerIndex(0));
}

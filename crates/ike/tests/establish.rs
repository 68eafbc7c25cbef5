//! How an IKE SA and its first child come about (RFC 7296 §1.2, §2.4–2.7, §2.9, §2.15, §2.19, §2.21, §2.23).

mod world;

use std::time::Duration;

use ike::config::{Assigned, Authentication, Config, Mode, PeerIndex, Pool};
use ike::crypto::encryption::{Encryption, Integrity};
use ike::crypto::group::Group;
use ike::crypto::prf::Prf;
use ike::crypto::secret::Secret;
use ike::event::{EndReason, Event, Path};
use ike::message::body::Identity;
use ike::message::builder::Builder;
use ike::message::proposal::TransformType;
use ike::message::traffic_selector::TrafficSelector;
use ike::message::{Header, Message};
use ike::negotiation::{ChildAlgorithms, ChildProtocol, IkeAlgorithms};
use ike::numbers::{ExchangeType, IkeSpi, MessageId, NotifyType, PayloadType};
use ike::{DropReason, Transmit};
use world::{Dice, Link, Side, World, config, header, identity, message, prefix};

const SOON: Duration = Duration::from_secs(2);

fn failed(world: &World, side: Side, reason: EndReason) -> bool {
    world.count(side, |event| matches!(event, Event::InitiationFailed { reason: r, .. } if *r == reason)) == 1
}

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
                    integrity: vec![integrity],
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
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    for config in [&mut a, &mut b] {
        config.peers[0].children[0].algorithms = ChildAlgorithms {
            protocol: ChildProtocol::Ah,
            encryption: Vec::new(),
            integrity: vec![Integrity::HmacSha384],
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
    assert_eq!(at_a.outbound.integrity.as_bytes(), at_b.inbound.integrity.as_bytes());
    assert_eq!(
        (at_a.outbound.integrity.as_bytes().len(), at_a.outbound.encryption.as_bytes().len()),
        (48, 0)
    );
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
        let mut peer = world::peer("a", "b");
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
fn another_group_is_taken_when_the_responder_asks_for_it() {
    let mut b = config("b", "a");
    b.algorithms.groups = vec![Group::P384];
    let mut world = World::with(1, config("a", "b"), b);
    world.initiate();
    world.run(SOON);
    world.agree();
    assert_eq!(world.sent.len(), 6);
    assert_eq!(world.b.endpoint.drops().of(DropReason::Refused), 1);
}

#[test]
fn nothing_in_common_ends_the_attempt_with_no_proposal_chosen() {
    let mut b = config("b", "a");
    b.algorithms.prf = vec![Prf::HmacSha512];
    let mut a = config("a", "b");
    a.algorithms.prf = vec![Prf::HmacSha256];
    let mut world = World::with(1, a, b);
    world.initiate();
    world.run(Duration::from_secs(10));
    assert!(failed(&world, Side::A, EndReason::Refused(NotifyType::NO_PROPOSAL_CHOSEN)));
    assert_eq!(world.b.endpoint.half_open(), 0);
}

#[test]
fn nobody_there_ends_the_attempt_after_a_dozen_tries() {
    let mut world = World::new(1);
    world.filter = Some(Box::new(|_, _| true));
    world.initiate();
    world.run(Duration::from_secs(400));
    assert!(failed(&world, Side::A, EndReason::NoAnswer));
    assert_eq!(world.sent.len(), 13);
    let first = &world.sent[0].1;
    assert!(world.sent.iter().all(|(_, sent)| sent == first), "a retransmission is the same bit by bit");
}

#[test]
fn a_lossy_link_only_delays() {
    for seed in 0..60 {
        let mut world = World::new(seed);
        world.link = Link { lost: 30, repeated: 20, jitter_ms: 3000, nat: None };
        world.initiate();
        world.run(Duration::from_secs(90));
        assert_eq!((world.a.children.len(), world.b.children.len()), (1, 1), "seed {seed}");
        world.agree();
    }
}

#[test]
fn cookies_are_demanded_of_strangers_and_hold_no_state() {
    let mut b = config("b", "a");
    b.cookies_from = 0;
    let mut world = World::with(1, config("a", "b"), b);
    world.initiate();
    world.run(Duration::from_millis(25));
    assert_eq!(world.b.endpoint.half_open(), 0);
    assert_eq!(world.b.endpoint.deadline(), None);
    assert_eq!(world.b.endpoint.drops().of(DropReason::NoCookie), 1);
    world.run(SOON);
    world.agree();
    assert_eq!(world.sent.len(), 6);
    // §2.6: the cookie is the first payload, and the rest is the same.
    let (first, again) = (message(&world.sent[0].1), message(&world.sent[2].1));
    let again = Message::parse(again).unwrap();
    let cookie = again.payloads().into_iter().next().unwrap();
    assert_eq!(cookie.kind, PayloadType::NOTIFY);
    assert_eq!(cookie.body[2..4], NotifyType::COOKIE.0.to_be_bytes());
    assert!(again.bytes().ends_with(&first[28..]));
}

#[test]
fn cookies_and_another_group_go_together() {
    let mut b = config("b", "a");
    b.cookies_from = 0;
    b.algorithms.groups = vec![Group::P256];
    let mut world = World::with(1, config("a", "b"), b);
    world.initiate();
    world.run(SOON);
    world.agree();
    assert_eq!(world.sent.len(), 8);
}

#[test]
fn half_open_ike_sas_are_bounded_and_forgotten() {
    let mut b = config("b", "a");
    b.cookies_from = usize::MAX;
    let mut world = World::with(1, config("a", "b"), b);
    world.filter = Some(Box::new(|_, _| true));
    world.initiate();
    let init = message(&world.sent[0].1).to_vec();
    let path = Path { local: world::B.parse().unwrap(), remote: world::A.parse().unwrap() };
    for spi in 1..=1100u64 {
        let mut other = init.clone();
        other[..8].copy_from_slice(&spi.to_be_bytes());
        world.inject(Side::B, path, &other);
    }
    assert_eq!(world.b.endpoint.half_open(), 1024);
    assert_eq!(world.b.endpoint.drops().of(DropReason::TooManyHalfOpen), 76);
    world.run(Duration::from_secs(31));
    assert_eq!(world.b.endpoint.half_open(), 0);
    assert_eq!(world.b.endpoint.deadline(), None);
}

fn forged_init_answer(spi: IkeSpi, responder: IkeSpi, payloads: Builder) -> Vec<u8> {
    payloads.finish(&Header {
        initiator_spi: spi,
        responder_spi: responder,
        exchange: ExchangeType::IKE_SA_INIT,
        from_initiator: false,
        is_response: true,
        message_id: MessageId::ZERO,
    })
}

#[test]
fn a_forged_refusal_does_not_end_the_exchange() {
    for notify in
        [NotifyType::NO_PROPOSAL_CHOSEN, NotifyType::INVALID_SYNTAX, NotifyType::AUTHENTICATION_FAILED]
    {
        let mut world = World::new(1);
        let spi = world.initiate();
        let mut payloads = Builder::new();
        payloads.notify(notify, &[]);
        let path = world.path();
        world.inject(Side::A, path, &forged_init_answer(spi, IkeSpi::ZERO, payloads));
        world.run(SOON);
        world.agree();
        assert_eq!(world.a.children.len(), 1);
    }
}

#[test]
fn a_forged_refusal_does_not_end_the_exchange_on_a_link_that_loses() {
    let mut world = World::new(1);
    let mut lost = 0;
    // IKE_SA_INIT gets through after three seconds, IKE_AUTH long after the refusal would have been believed.
    let start = world.start;
    world.filter = Some(Box::new(move |_, _| {
        lost += 1;
        lost <= 2 || (5..=8).contains(&lost)
    }));
    let spi = world.initiate();
    let mut payloads = Builder::new();
    payloads.notify(NotifyType::NO_PROPOSAL_CHOSEN, &[]);
    let path = world.path();
    world.inject(Side::A, path, &forged_init_answer(spi, IkeSpi::ZERO, payloads));
    world.run(Duration::from_secs(60));
    world.agree();
    assert_eq!(world.a.children.len(), 1, "{:?} after {:?}", world.a.events, world.now - start);
}

#[test]
fn a_forged_answer_with_a_key_exchange_does_not_keep_the_genuine_one_out() {
    let mut world = World::new(1);
    let spi = world.initiate();
    // An attacker on the path answers first, with a genuine answer of an endpoint of its own.
    let mut attacker = World::with(9, config("b", "a"), config("b", "a"));
    let request = message(&world.sent[0].1).to_vec();
    let path = Path { local: world::B.parse().unwrap(), remote: world::A.parse().unwrap() };
    attacker.inject(Side::B, path, &request);
    let forged = message(&attacker.sent[0].1).to_vec();
    let path = world.path();
    world.inject(Side::A, path, &forged);
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.ike(), spi);
}

#[test]
fn forged_cookies_and_groups_do_not_end_the_exchange() {
    let mut world = World::new(1);
    let spi = world.initiate();
    for (notify, data) in [(NotifyType::COOKIE, vec![7; 8]), (NotifyType::INVALID_KE_PAYLOAD, vec![0, 20])] {
        let mut payloads = Builder::new();
        payloads.notify(notify, &data);
        let path = world.path();
        world.inject(Side::A, path, &forged_init_answer(spi, IkeSpi::ZERO, payloads));
    }
    world.run(Duration::from_secs(5));
    world.agree();
    assert_eq!(world.a.children.len(), 1);
}

#[test]
fn a_weaker_answer_than_was_offered_is_not_taken() {
    let mut world = World::new(1);
    world.filter = Some(Box::new(|side, _| side == Side::B));
    world.initiate();
    world.run(Duration::from_millis(50));
    let mut answer = message(&world.sent[1].1).to_vec();
    // The encryption of the answer's proposal, the first transform, becomes ENCR_3DES.
    let transform = 28 + 4 + 8;
    assert_eq!(answer[transform + 4], TransformType::ENCRYPTION.0);
    answer[transform + 7] = 3;
    let path = world.path();
    world.inject(Side::A, path, &answer);
    assert_eq!(world.a.endpoint.drops().of(DropReason::Refused), 1);
}

#[test]
fn an_end_behind_a_nat_moves_to_the_shared_port_and_keeps_the_mapping_alive() {
    let mut world = World::new(1);
    world.link.nat = Some(("2001:db8:ffff::1".parse().unwrap(), 7000));
    world.initiate();
    world.run(SOON);
    world.agree();
    let (at_a, at_b) = (world.a.child(), world.b.child());
    assert!(at_a.nat.local && !at_a.nat.remote && at_b.nat.remote && !at_b.nat.local);
    assert_eq!((at_a.path.local.port(), at_a.path.remote.port()), (4500, 4500));
    assert_eq!(at_b.path.remote, "[2001:db8:ffff::1]:11500".parse().unwrap());
    let auth = &world.sent[2].1;
    assert_eq!((auth.path.local.port(), &auth.payload[..4]), (4500, &[0; 4][..]));

    world.run(Duration::from_secs(100));
    let keepalives = |(side, sent): &&(Side, Transmit)| *side == Side::A && sent.payload == [0xff];
    assert!((4..=6).contains(&world.sent.iter().filter(keepalives).count()));
    assert_eq!((world.a.ikes.len(), world.b.ikes.len()), (1, 1));
}

#[test]
fn an_end_that_wants_udp_has_it_without_a_nat_whoever_begins() {
    for wants in [Side::A, Side::B] {
        let (mut a, mut b) = (config("a", "b"), config("b", "a"));
        let config = if wants == Side::A { &mut a } else { &mut b };
        config.peers[0].encapsulate = true;
        let mut world = World::with(1, a, b);
        world.initiate();
        world.run(SOON);
        world.agree();
        for side in [Side::A, Side::B] {
            let nat = world.end(side).child().nat;
            assert!(nat.is_between() && nat.claimed == (side == wants));
            assert_eq!(world.end(side).child().path.local.port(), 4500);
        }
    }
}

#[test]
fn an_ike_sa_may_begin_on_the_shared_port_of_either_end_and_from_any_port() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    (a.nat_port, a.peers[0].encapsulate, a.peers[0].nat_port) = (40_000, true, 14_500);
    b.nat_port = 14_500;
    let mut world = World::with(1, a, b);
    let path = Path {
        local: "[2001:db8::a]:40000".parse().unwrap(),
        remote: "[2001:db8::b]:14500".parse().unwrap(),
    };
    let now = world.now;
    world.a.endpoint.initiate(now, PeerIndex(0), path).unwrap();
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.child().path, path);
    assert!(world.a.child().nat.is_between() && world.b.child().nat.is_between());
    assert!(world.sent.iter().all(|(_, sent)| sent.payload.starts_with(&[0; 4])));
}

#[test]
fn a_nat_that_maps_anew_is_followed_by_genuine_requests_alone() {
    let mut world = World::new(1);
    let public = "2001:db8:ffff::1".parse().unwrap();
    world.link.nat = Some((public, 7000));
    world.initiate();
    world.run(SOON);
    world.link.nat = Some((public, 8000));
    let (now, ike) = (world.now, world.a.ike());
    world.a.endpoint.check_liveness(now, ike).unwrap();
    world.run(SOON);
    let moved =
        |event: &Event| matches!(event, Event::PathChanged { path, .. } if path.remote.port() == 12500);
    assert_eq!(world.count(Side::B, moved), 1);

    let (_, replayed) = world
        .sent
        .iter()
        .rev()
        .find(|(side, sent)| *side == Side::A && sent.payload.len() > 9)
        .unwrap()
        .clone();
    let path = Path { local: replayed.path.remote, remote: "[2001:db8:666::1]:4500".parse().unwrap() };
    world.inject(Side::B, path, &replayed.payload);
    assert_eq!(world.count(Side::B, |event| matches!(event, Event::PathChanged { .. })), 1);
}

#[test]
fn a_client_is_given_addresses_and_dns_and_selectors_for_them() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    a.peers[0].request_addresses = true;
    a.peers[0].children[0].local = vec![TrafficSelector::ANY_IPV4, TrafficSelector::ANY_IPV6];
    b.peers[0].assigned = Assigned {
        addresses: vec!["192.0.2.7".parse().unwrap(), "2001:db8:7::7".parse().unwrap()],
        dns: vec!["2001:db8::53".parse().unwrap()],
        ..Assigned::default()
    };
    b.peers[0].children[0].remote = Vec::new();
    let mut world = World::with(1, a, b.clone());
    world.initiate();
    world.run(SOON);
    world.agree();
    let given = world.a.events.iter().find_map(|event| match event {
        Event::IkeUp { addresses, dns, .. } => Some((addresses.clone(), dns.clone())),
        _ => None,
    });
    assert_eq!(given.unwrap(), (b.peers[0].assigned.addresses.clone(), b.peers[0].assigned.dns.clone()));
    let hosts = b.peers[0].assigned.addresses.iter().map(|address| TrafficSelector::host(*address));
    assert_eq!(world.a.child().local, hosts.collect::<Vec<_>>());
}

/// Clients of one gateway, each with the same configuration but for its name, and one address for all of them.
fn with_pool() -> (Config, Config) {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    a.peers[0].request_addresses = true;
    a.peers[0].children[0].local = vec![TrafficSelector::ANY_IPV4];
    b.peers[0].remote = None;
    let only = "192.0.2.7".parse().unwrap();
    b.peers[0].assigned.pools = vec![Pool::range(only..=only).unwrap()];
    b.peers[0].children[0].remote = Vec::new();
    (a, b)
}

#[test]
fn a_client_keeps_the_address_of_a_pool_over_rekeys_and_reauthentication() {
    let (a, b) = with_pool();
    let mut world = World::with(1, a, b);
    world.initiate();
    world.run(SOON);
    let given = [TrafficSelector::host("192.0.2.7".parse().unwrap())];
    for _ in 0..3 {
        let (now, ike) = (world.now, world.a.ike());
        world.a.endpoint.rekey_ike(now, ike).unwrap();
        world.run(SOON);
        let (now, ike, spi) = (world.now, world.b.ike(), world.b.child().inbound_spi);
        world.b.endpoint.rekey_child(now, ike, spi).unwrap();
        world.run(SOON);
        let (now, ike) = (world.now, world.a.ike());
        world.a.endpoint.reauthenticate(now, ike).unwrap();
        world.run(SOON);
        world.agree();
        assert_eq!(world.a.child().local, given);
    }
}

#[test]
fn an_address_of_a_pool_is_given_to_another_client_once_its_holder_is_gone() {
    let (a, b) = with_pool();
    let mut world = World::with(1, a.clone(), b);
    world.initiate();
    world.run(SOON);
    let mut other = a;
    other.peers[0].local = identity("another");
    let first = std::mem::replace(&mut world.a, World::with(2, other.clone(), other.clone()).a);
    world.initiate();
    world.run(SOON);
    let refused = |event: &Event| matches!(event, Event::ChildRefused { notify, .. } if *notify == NotifyType::INTERNAL_ADDRESS_FAILURE);
    assert_eq!(world.count(Side::A, refused), 1, "the address is taken");

    world.a = first;
    let (now, ike) = (world.now, world.a.ike());
    world.a.endpoint.delete_ike(now, ike).unwrap();
    world.run(SOON);
    world.a = World::with(3, other.clone(), other).a;
    world.initiate();
    world.run(SOON);
    assert_eq!(world.a.child().local, [TrafficSelector::host("192.0.2.7".parse().unwrap())]);
}

#[test]
fn a_client_that_is_to_have_an_address_and_does_not_ask_is_told_to() {
    let (mut a, b) = with_pool();
    a.peers[0].request_addresses = false;
    let mut world = World::with(1, a, b);
    world.initiate();
    world.run(SOON);
    let refused = |event: &Event| matches!(event, Event::ChildRefused { notify, .. } if *notify == NotifyType::FAILED_CP_REQUIRED);
    assert_eq!(world.count(Side::A, refused), 1);
    assert!(world.a.children.is_empty() && world.b.children.is_empty());
}

#[test]
fn transport_mode_through_a_nat_is_between_the_addresses_that_each_end_sees() {
    let (mut a, mut b) = (config("a", "b"), config("b", "a"));
    for config in [&mut a, &mut b] {
        config.peers[0].children[0].mode = Mode::Transport;
        config.peers[0].children[0].local = Vec::new();
        config.peers[0].children[0].remote = Vec::new();
    }
    let mut world = World::with(1, a, b);
    let public = "2001:db8:ffff::1".parse().unwrap();
    world.link.nat = Some((public, 7000));
    world.initiate();
    world.run(SOON);
    let host = |address: &str| [TrafficSelector::host(address.parse().unwrap())];
    for _ in 0..2 {
        let (at_a, at_b) = (world.a.child(), world.b.child());
        assert_eq!((&at_a.local[..], &at_a.remote[..]), (&host("2001:db8::a")[..], &host("2001:db8::b")[..]));
        assert_eq!(at_b.local, host("2001:db8::b"));
        assert_eq!(at_b.remote, [TrafficSelector::host(public)]);
        // The checksums of what A sends are of the addresses that A has.
        let (own, other) = ("2001:db8::a".parse().unwrap(), "2001:db8::b".parse().unwrap());
        assert_eq!(at_b.original_addresses, Some((own, other)));
        assert_eq!(at_a.original_addresses.map(|original| original.0), Some(other));
        let (now, ike, spi) = (world.now, world.b.ike(), world.b.child().inbound_spi);
        world.b.endpoint.rekey_child(now, ike, spi).unwrap();
        world.run(SOON);
    }
}

#[test]
fn a_client_for_which_there_is_no_address_has_no_child() {
    let mut a = config("a", "b");
    a.peers[0].request_addresses = true;
    let mut world = World::with(1, a, config("b", "a"));
    world.initiate();
    world.run(SOON);
    let refused = |event: &Event| matches!(event, Event::ChildRefused { notify, .. } if *notify == NotifyType::INTERNAL_ADDRESS_FAILURE);
    assert_eq!(world.count(Side::A, refused), 1);
    assert!(world.a.children.is_empty() && world.b.children.is_empty());
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
fn strangers_get_no_answer_that_is_longer_than_what_they_sent() {
    let mut world = World::new(1);
    let mut dice = Dice(5);
    let path = Path { local: world::B.parse().unwrap(), remote: world::A.parse().unwrap() };
    for _ in 0..20_000 {
        let mut bytes = vec![0; dice.below(120) as usize];
        ike::random::Random::fill(&mut dice, &mut bytes);
        if bytes.len() >= 28 {
            bytes[8..16].fill(0);
            (bytes[16], bytes[17], bytes[18], bytes[19]) = (33 + dice.below(16) as u8, 0x20, 34, 8);
            bytes[20..24].fill(0);
            let length = bytes.len() as u32;
            bytes[24..28].copy_from_slice(&length.to_be_bytes());
        }
        let before = world.sent.len();
        world.inject(Side::B, path, &bytes);
        assert!(world.sent[before..].iter().all(|(_, sent)| sent.payload.len() <= bytes.len()));
    }
    assert_eq!(world.b.endpoint.half_open(), 0);
}

#[test]
fn a_later_major_version_is_answered_with_the_one_that_is_known() {
    let mut world = World::new(1);
    world.filter = Some(Box::new(|_, _| true));
    world.initiate();
    let mut later = message(&world.sent[0].1).to_vec();
    later[17] = 0x30;
    let path = Path { local: world::B.parse().unwrap(), remote: world::A.parse().unwrap() };
    world.inject(Side::B, path, &later);
    let answer = Message::parse(message(&world.sent[1].1)).unwrap();
    let notify = answer.payloads().find(PayloadType::NOTIFY).unwrap();
    assert_eq!(notify.body, [0, 0, 0, NotifyType::INVALID_MAJOR_VERSION.0 as u8, 2]);
    assert_eq!(world.b.endpoint.drops().of(DropReason::LaterVersion), 1);
}

#[test]
fn a_repeated_request_gets_the_same_answer_and_begins_nothing_twice() {
    let mut world = World::new(1);
    world.filter = Some(Box::new(|_, _| true));
    world.initiate();
    let request = message(&world.sent[0].1).to_vec();
    let path = Path { local: world::B.parse().unwrap(), remote: world::A.parse().unwrap() };
    world.inject(Side::B, path, &request);
    world.inject(Side::B, path, &request);
    assert_eq!(world.sent[1].1, world.sent[2].1);
    assert_eq!(world.b.endpoint.half_open(), 1);
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

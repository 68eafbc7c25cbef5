//! What strangers and those who listen on the path can do to an endpoint (RFC 7296 §2.4, §2.6, §2.21, §5): nothing grows, and
//! an IKE SA that is there stays as it is.

mod world;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use ike::DropReason;
use ike::config::Authentication;
use ike::crypto::secret::Secret;
use ike::endpoint::{HINTS_PER_SECOND, MAX_HALF_OPEN_OF_SOURCE};
use ike::event::Path;
use ike::message::body::Notify;
use ike::message::builder::Builder;
use ike::message::{Header, Message};
use ike::numbers::{ExchangeType, IkeSpi, MessageId, NotifyType, PayloadType};
use proptest::prelude::*;
use world::{Side, World, config, header, message};

const SOON: Duration = Duration::from_secs(2);

/// From somewhere in the Internet to B: each from a /64 of its own.
fn from_stranger(number: u64) -> Path {
    let address = IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8_6666 << 80) + (u128::from(number) << 64)));
    Path { local: world::B.parse().unwrap(), remote: SocketAddr::new(address, 500) }
}

/// A genuine IKE_SA_INIT with the SPI of another initiator.
fn init(world: &World, spi: u64) -> Vec<u8> {
    let mut init = message(&world.sent[0].1).to_vec();
    init[..8].copy_from_slice(&spi.to_be_bytes());
    init
}

/// A stranger sends this to B, with a cookie if one is demanded. Returns whether B has begun an IKE SA with it.
fn begins(world: &mut World, path: Path, init: &[u8]) -> bool {
    let now = world.now;
    world.b.endpoint.receive(now, path, init);
    let Some(answer) = world.b.endpoint.poll_transmit() else { return false };
    let answer = Message::parse(&answer.payload).unwrap();
    let cookie = answer.payloads().find(PayloadType::NOTIFY).map(|notify| notify.body);
    let Some([_, _, kind @ ..]) = cookie else { return true };
    let Some(cookie) = kind.strip_prefix(&NotifyType::COOKIE.0.to_be_bytes()) else { return true };
    let original = Message::parse(init).unwrap();
    let mut again = Builder::new();
    again.notify(NotifyType::COOKIE, cookie);
    for payload in original.payloads() {
        again.raw(payload.kind, |body| body.extend(payload.body));
    }
    world.b.endpoint.receive(now, path, &again.finish(&original.header()));
    world.b.endpoint.poll_transmit().is_some()
}

/// Both ends can still replace what they have.
fn works(world: &mut World) {
    for side in [Side::A, Side::B] {
        let now = world.now;
        let end = world.end(side);
        let (ike, spi) = (end.ike(), end.child().inbound_spi);
        end.endpoint.rekey_child(now, ike, spi).unwrap();
        world.run(SOON);
        world.agree();
        assert_eq!(world.a.children.len(), 1);
    }
}

#[test]
fn strangers_who_cannot_receive_leave_nothing_behind() {
    let mut world = World::established(1);
    let (ike, child) = (world.b.ike(), world.b.child().inbound_spi);
    for number in 1..=50_000 {
        let bytes = init(&world, number);
        let path = from_stranger(number);
        let now = world.now;
        world.b.endpoint.receive(now, path, &bytes);
        while let Some(answer) = world.b.endpoint.poll_transmit() {
            assert!(answer.payload.len() <= bytes.len(), "nobody is flooded through us");
        }
    }
    assert_eq!(world.b.endpoint.half_open(), 16);
    assert_eq!(world.b.endpoint.drops().of(DropReason::NoCookie), 50_000 - 16);
    assert_eq!((world.b.ike(), world.b.child().inbound_spi), (ike, child));
    works(&mut world);
    world.run(Duration::from_secs(31));
    assert_eq!(world.b.endpoint.half_open(), 0);
}

#[test]
fn who_has_a_cookie_begins_an_ike_sa_during_a_flood() {
    let mut world = World::new(1);
    world.initiate();
    for number in 1..=1000 {
        let bytes = init(&world, number);
        let now = world.now;
        world.b.endpoint.receive(now, from_stranger(number), &bytes);
        while world.b.endpoint.poll_transmit().is_some() {}
    }
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.children.len(), 1);
    assert!(world.sent.iter().any(|(side, sent)| *side == Side::B && sent.payload.len() < 100), "a cookie");
}

#[test]
fn strangers_who_can_receive_are_bounded_and_an_ike_sa_outlives_them() {
    let mut world = World::established(1);
    for number in 1..=1200 {
        let bytes = init(&world, number);
        assert!(begins(&mut world, from_stranger(number), &bytes));
    }
    assert_eq!(world.b.endpoint.half_open(), 1024);
    assert_eq!(world.b.endpoint.drops().of(DropReason::GaveWay), 1200 - 1024);
    works(&mut world);
    world.run(Duration::from_secs(31));
    assert_eq!(world.b.endpoint.half_open(), 0);
}

#[test]
fn one_source_that_receives_keeps_nobody_else_out() {
    let mut other = World::new(2);
    other.initiate();
    let mut world = World::new(1);
    let mut begun = 0;
    for number in 1..=12_000 {
        let bytes = init(&other, number);
        // 400 a second from one address, or from all those of its /64.
        let mut path = from_stranger(1);
        if let IpAddr::V6(address) = path.remote.ip() {
            path.remote.set_ip(Ipv6Addr::from_bits(address.to_bits() + u128::from(number % 100)).into());
        }
        begun += u32::from(begins(&mut world, path, &bytes));
        assert!(world.b.endpoint.half_open() <= MAX_HALF_OPEN_OF_SOURCE);
        world.run(Duration::from_micros(2500));
    }
    assert!(begun <= 16 * 7, "{begun} in 30 seconds");
    world.initiate();
    world.run(Duration::from_millis(100));
    world.agree();
    assert_eq!(world.a.children.len(), 1);
    assert!(world.b.endpoint.drops().of(DropReason::TooManyHalfOpen) > 11_000);
}

#[test]
fn a_newcomer_comes_in_while_sources_without_end_take_all_places() {
    let mut world = World::new(1);
    let mut other = World::new(2);
    other.initiate();
    for number in 1..=1100 {
        let bytes = init(&other, number);
        assert!(begins(&mut world, from_stranger(number), &bytes));
    }
    world.initiate();
    for number in 1101..=1300 {
        let bytes = init(&other, number);
        assert!(begins(&mut world, from_stranger(number), &bytes));
        world.run(Duration::from_millis(1));
        assert!(world.b.endpoint.half_open() <= 1024);
    }
    world.agree();
    assert_eq!(world.a.children.len(), 1);
}

#[test]
fn a_wrong_key_is_counted_and_its_place_is_soon_free() {
    let mut a = config("a", "b");
    a.peers[0].authentication = Authentication::SharedKey(Secret::new(b"another key".to_vec()));
    let mut world = World::with(1, a, config("b", "a"));
    world.initiate();
    world.run(SOON);
    assert_eq!(world.b.endpoint.drops().of(DropReason::AuthenticationFailed), 1);
    assert_eq!(world.b.endpoint.half_open(), 1, "the answer may have been lost");
    let request = world.sent.iter().rfind(|(side, sent)| *side == Side::A && header(sent).0 == 35).unwrap();
    let request = message(&request.1).to_vec();
    let path = Path { local: world::B.parse().unwrap(), remote: world::A.parse().unwrap() };
    let before = world.sent.len();
    world.inject(Side::B, path, &request);
    assert_eq!(world.sent.len(), before + 1, "it is answered again");
    assert_eq!(world.b.endpoint.drops().of(DropReason::AuthenticationFailed), 1);
    world.filter = Some(Box::new(|side, _| side == Side::A));
    world.run(Duration::from_secs(4));
    assert_eq!(world.b.endpoint.half_open(), 0);
    assert_eq!(world.b.endpoint.deadline(), None);
}

#[test]
fn forged_messages_with_the_spis_of_an_ike_sa_do_nothing_to_it() {
    let mut world = World::established(1);
    let (own, remote) = (world.b.ike(), world.a.ike());
    let events = (world.a.events.len(), world.b.events.len());
    let sent = world.sent.len();
    for exchange in [34, 35, 36, 37, 38] {
        for flags in 0..8u8 {
            for id in 0..6 {
                let mut payloads = Builder::new();
                payloads.notify(NotifyType::AUTHENTICATION_FAILED, &[]).delete_ike();
                let forged = payloads.finish(&Header {
                    initiator_spi: remote,
                    responder_spi: own,
                    exchange: ExchangeType(exchange),
                    from_initiator: flags & 1 != 0,
                    is_response: flags & 2 != 0,
                    message_id: MessageId(id),
                });
                let path = world.path();
                let to_b = Path { local: path.remote, remote: path.local };
                world.inject(Side::A, path, &forged);
                world.inject(Side::B, to_b, &forged);
            }
        }
    }
    assert_eq!((world.a.events.len(), world.b.events.len()), events);
    let is_hint = |sent: &ike::Transmit| message(sent).len() == 36 && header(sent).1;
    assert!(
        world.sent[sent..].iter().all(|(_, sent)| is_hint(sent)),
        "what strangers are told, and nothing else"
    );
    works(&mut world);
}

#[test]
fn all_that_was_ever_sent_can_be_sent_again_to_no_effect() {
    let mut world = World::established(1);
    works(&mut world);
    let now = world.now;
    let ike = world.a.ike();
    world.a.endpoint.rekey_ike(now, ike).unwrap();
    world.run(SOON);
    works(&mut world);
    let past = world.sent.clone();
    let (at_a, at_b) = (world.a.events.len(), world.b.events.len());
    let answers_before = world.sent.len();
    for _ in 0..20 {
        for (from, sent) in &past {
            let path = Path { local: sent.path.remote, remote: from_stranger(7).remote };
            world.inject(from.other(), path, &sent.payload);
        }
    }
    assert_eq!((world.a.events.len(), world.b.events.len()), (at_a, at_b));
    // The first message begins an IKE SA that comes to nothing. The last answer of each IKE SA is repeated.
    let repeated = &world.sent[answers_before..];
    assert!(repeated.iter().all(|(_, sent)| header(sent).1), "answers alone");
    works(&mut world);
}

/// One bit, byte or piece of a message is another one.
#[derive(Debug, Clone)]
enum Mutation {
    Flip(prop::sample::Index, u8),
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Grow(Vec<u8>),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 0u8..8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
        2 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        1 => any::<prop::sample::Index>().prop_map(Mutation::Cut),
        1 => prop::collection::vec(any::<u8>(), 1..40).prop_map(Mutation::Grow),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    match mutation {
        Mutation::Flip(at, bit) if !bytes.is_empty() => {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        Mutation::Set(at, byte) if !bytes.is_empty() => {
            let at = at.index(bytes.len());
            bytes[at] = *byte;
        }
        Mutation::Cut(at) => bytes.truncate(at.index(bytes.len() + 1)),
        Mutation::Grow(more) => bytes.extend(more),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A listener on the path sends a changed copy of each message before the genuine one arrives.
    #[test]
    fn an_exchange_succeeds_among_mutated_copies_of_its_messages(
        seed in 0u64..1000,
        mutations in prop::collection::vec(prop::collection::vec(mutation(), 1..3), 1..12),
    ) {
        let mut world = World::new(seed);
        world.initiate();
        let mut seen = 0;
        for mutations in mutations.iter().cycle().take(200) {
            while seen < world.sent.len() {
                let (from, sent) = world.sent[seen].clone();
                seen += 1;
                let mut bytes = sent.payload.clone();
                for mutation in mutations {
                    mutate(&mut bytes, mutation);
                }
                if bytes != sent.payload {
                    let path = Path { local: sent.path.remote, remote: sent.path.local };
                    world.inject(from.other(), path, &bytes);
                }
            }
            world.run(Duration::from_millis(200));
        }
        prop_assert!(world.b.endpoint.half_open() <= 17);
        prop_assert_eq!(world.a.children.len(), 1, "events: {:?}", world.a.events);
        world.agree();
        works(&mut world);
    }
}

/// Somebody who changes each message on the way, answers included, would have the two ends answer each other without end.
#[test]
fn a_later_version_is_answered_so_many_times_in_a_second() {
    let mut world = World::new(1);
    let mut later = vec![0; 40];
    (later[17], later[27]) = (0x30, 40);
    for _ in 0..10 * HINTS_PER_SECOND {
        world.inject(Side::B, from_stranger(1), &later);
    }
    assert_eq!(world.sent.len(), HINTS_PER_SECOND as usize);
}

#[test]
fn an_unknown_spi_is_answered_with_a_hint_and_so_many_in_a_second() {
    let mut world = World::new(1);
    let mut payloads = Builder::new();
    payloads.delete_ike();
    let stray = payloads.finish(&Header {
        initiator_spi: IkeSpi(5),
        responder_spi: IkeSpi(6),
        exchange: ExchangeType::INFORMATIONAL,
        from_initiator: true,
        is_response: false,
        message_id: MessageId(2),
    });
    for _ in 0..10 * HINTS_PER_SECOND {
        world.inject(Side::B, from_stranger(1), &stray);
    }
    assert_eq!(world.sent.len(), HINTS_PER_SECOND as usize);
    let hint = Message::parse(message(&world.sent[0].1)).unwrap();
    let kind = Notify::parse(hint.payloads().find(PayloadType::NOTIFY).unwrap().body).unwrap().kind;
    assert_eq!((kind, hint.header().message_id), (NotifyType::INVALID_IKE_SPI, MessageId(2)));
    assert!(hint.bytes().len() <= stray.len());
    assert_eq!(world.b.endpoint.drops().of(DropReason::UnknownSpi), u64::from(10 * HINTS_PER_SECOND));
    // Nobody is told anything about an answer, or about less than what that would take.
    let answer = Message::parse(&stray).unwrap().header();
    let answer = Builder::new().finish(&Header { is_response: true, ..answer });
    world.now += Duration::from_secs(1);
    world.inject(Side::B, from_stranger(1), &answer);
    world.inject(
        Side::B,
        from_stranger(1),
        &Builder::new().finish(&Message::parse(&stray).unwrap().header()),
    );
    assert_eq!(world.sent.len(), HINTS_PER_SECOND as usize);
}

//! IKE_SA_INIT: cookies, groups, answers that are forged, strangers (RFC 7296 §1.2, §2.4–2.7, §2.21).

use std::time::Duration;

use ike::DropReason;
use ike::crypto::group::Group;
use ike::crypto::prf::Prf;
use ike::event::{EndReason, Path};
use ike::message::builder::Builder;
use ike::message::proposal::TransformType;
use ike::message::{Header, Message};
use ike::numbers::{ExchangeType, IkeSpi, MessageId, NotifyType, PayloadType};

use crate::world;
use crate::world::{Dice, Side, World, config, message};
use crate::{SOON, failed};

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
fn tries_come_at_intervals_that_grow() {
    let mut world = World::new(1);
    world.filter = Some(Box::new(|_, _| true));
    world.initiate();
    let (start, mut times) = (world.now, vec![Duration::ZERO]);
    while times.len() < 12 {
        world.run(Duration::from_millis(100));
        if world.sent.len() > times.len() {
            times.push(world.now - start);
        }
    }
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.is_sorted() && gaps[3] >= gaps[0] * 8 && gaps[10] > Duration::from_secs(20), "{gaps:?}");
}

#[test]
fn a_cookie_that_is_none_or_too_long_is_not_given_back() {
    for length in [0, 65] {
        let mut world = World::new(1);
        world.filter = Some(Box::new(|_, _| true));
        let spi = world.initiate();
        let mut payloads = Builder::new();
        payloads.notify(NotifyType::COOKIE, &vec![7; length]);
        let path = world.path();
        world.inject(Side::A, path, &forged_init_answer(spi, IkeSpi::ZERO, payloads));
        assert_eq!(world.sent.len(), 1, "of {length} bytes");
    }
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
    // Half of what one source may have: for the rest it must show that it receives.
    assert_eq!(world.b.endpoint.half_open(), 8);
    assert_eq!(world.b.endpoint.drops().of(DropReason::NoCookie), 1092);
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
    let forged = forged_answer(&world, 0, 9);
    let path = world.path();
    world.inject(Side::A, path, &forged);
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.ike(), spi);
}

/// An attacker on the path answers the request that was sent as this one: the genuine answer of an endpoint of its own.
fn forged_answer(world: &World, request: usize, seed: u64) -> Vec<u8> {
    let mut attacker = World::with(seed, config("b", "a"), config("b", "a"));
    let path = Path { local: world::B.parse().unwrap(), remote: world::A.parse().unwrap() };
    attacker.inject(Side::B, path, message(&world.sent[request].1));
    message(&attacker.sent[0].1).to_vec()
}

/// So many answers are forged to each IKE_SA_INIT, all of them before the genuine one. Returns how long it takes.
fn time_among_forgeries(forgeries: u64, seed: u64) -> Duration {
    let mut world = World::new(seed);
    world.initiate();
    let (mut seen, mut number) = (0, 1000 * seed);
    while world.a.children.is_empty() && world.now - world.start < Duration::from_secs(600) {
        while seen < world.sent.len() {
            let (side, sent) = &world.sent[seen];
            if *side == Side::A && world::header(sent).0 == ExchangeType::IKE_SA_INIT.0 {
                for _ in 0..forgeries {
                    number += 1;
                    let forged = forged_answer(&world, seen, number);
                    let path = world.path();
                    world.inject(Side::A, path, &forged);
                }
            }
            seen += 1;
        }
        world.run(Duration::from_millis(5));
    }
    let time = world.now - world.start;
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.children.len(), 1, "among {forgeries} forgeries: {:?}", world.a.events);
    time
}

#[test]
fn forged_answers_to_each_request_do_not_keep_the_genuine_one_out() {
    for forgeries in [4, 15, 16] {
        let time = time_among_forgeries(forgeries, 1);
        assert!(time < Duration::from_secs(10), "{forgeries} forgeries: {time:?}");
    }
    assert!(time_among_forgeries(4, 2) < Duration::from_millis(100), "at once");
}

#[test]
fn each_answer_has_the_same_chance_however_many_are_forged() {
    // One of four each time: of 12 attempts, few take long.
    let mut times: Vec<_> = (1..=12).map(|seed| time_among_forgeries(63, seed)).collect();
    times.sort();
    assert!(times[6] < Duration::from_secs(15), "{times:?}");
}

#[test]
fn a_forged_answer_with_the_spi_of_the_genuine_one_does_not_take_its_place() {
    let mut world = World::new(1);
    world.initiate();
    let mut forged = forged_answer(&world, 0, 9);
    world.run(Duration::from_millis(15));
    let (side, genuine) = &world.sent[1];
    assert_eq!(*side, Side::B);
    forged[8..16].copy_from_slice(&message(genuine)[8..16]);
    let path = world.path();
    world.inject(Side::A, path, &forged);
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.children.len(), 1);
}

#[test]
fn a_forged_answer_does_not_hide_a_demand_for_a_cookie() {
    let mut b = config("b", "a");
    b.cookies_from = 0;
    let mut world = World::with(1, config("a", "b"), b);
    world.initiate();
    let forged = forged_answer(&world, 0, 9);
    let path = world.path();
    world.inject(Side::A, path, &forged);
    world.run(SOON);
    world.agree();
    assert_eq!(world.a.children.len(), 1);
}

#[test]
fn answers_that_are_forged_without_end_do_not_put_off_the_next_request() {
    let mut world = World::new(1);
    world.filter = Some(Box::new(|side, _| side == Side::B));
    world.initiate();
    let requests = |world: &World| {
        let is_init = |sent: &&(Side, ike::Transmit)| {
            sent.0 == Side::A && world::header(&sent.1).0 == ExchangeType::IKE_SA_INIT.0
        };
        world.sent.iter().filter(is_init).count()
    };
    for number in 0..60 {
        let forged = forged_answer(&world, 0, 100 + number);
        let path = world.path();
        world.inject(Side::A, path, &forged);
        world.run(Duration::from_millis(500));
    }
    assert!((9..=12).contains(&requests(&world)), "{}", requests(&world));
    world.run(Duration::from_secs(600));
    assert!(failed(&world, Side::A, EndReason::NoAnswer), "it comes to an end: {:?}", world.a.events);
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
fn payloads_may_come_in_any_order_with_unknown_ones_between_them() {
    let mut world = World::new(1);
    world.filter = Some(Box::new(|_, _| true));
    world.initiate();
    let request = Message::parse(message(&world.sent[0].1)).unwrap();
    let mut payloads: Vec<_> = request.payloads().into_iter().collect();
    payloads.reverse();
    let mut other = Builder::new();
    for payload in payloads {
        other.raw(payload.kind, |body| body.extend(payload.body));
        other.raw(PayloadType(200), |body| body.extend(b"unknown"));
        other.raw(PayloadType::VENDOR_ID, |body| body.extend(b"an extension of somebody's"));
    }
    let header = Header { initiator_spi: IkeSpi(77), ..request.header() };
    let path = Path { local: world::B.parse().unwrap(), remote: world::A.parse().unwrap() };
    world.inject(Side::B, path, &other.finish(&header));
    let answer = Message::parse(message(&world.sent[1].1)).unwrap();
    assert!(answer.payloads().find(PayloadType::SA).is_some());
    // §2.5: nothing that is answered is critical, and nothing that was not understood is given back.
    for payload in answer.payloads() {
        assert!(!payload.critical && payload.kind != PayloadType(200));
    }
}

#[test]
fn a_first_message_that_is_changed_and_repeated_underway_leads_to_one_ike_sa() {
    for from_elsewhere in [false, true] {
        let mut world = World::new(1);
        world.initiate();
        world.run(Duration::from_millis(15));
        let genuine = message(&world.sent[0].1).to_vec();
        let mut changed = genuine.clone();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        let mut path = Path { local: world::B.parse().unwrap(), remote: world::A.parse().unwrap() };
        if from_elsewhere {
            path.remote.set_port(700);
        }
        for copy in [changed, genuine] {
            let before = world.sent.len();
            world.inject(Side::B, path, &copy);
            // Whoever is on the path hands the initiator each answer.
            let answers: Vec<_> = world.sent[before..].iter().map(|(_, sent)| sent.payload.clone()).collect();
            for answer in answers {
                let path = world.path();
                world.inject(Side::A, path, &answer);
            }
        }
        world.run(SOON);
        world.agree();
        assert_eq!((world.a.ikes.len(), world.a.children.len()), (1, 1), "from elsewhere: {from_elsewhere}");
        world.run(Duration::from_secs(300));
        world.agree();
        assert_eq!(world.b.children.len(), 1);
    }
}

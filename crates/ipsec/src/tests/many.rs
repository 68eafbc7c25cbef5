//! Many associations: what is looked up is what a walk over all would find, and how many there are costs nothing.

use std::cell::Cell;
use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::association::{Lifetime, Lifetimes};
use crate::decisions::Decisions;
use crate::key_engine::{AssociationId, Event, KeyEngine, Name};
use crate::offers::Offers;
use crate::policy::{Action, Direction, Level, Levels, Output, PolicyDatabase, Rule};
use crate::request::{Request, Service, SocketId};
use crate::selector::{Detail, Selector, Traffic, Upper};

const PREFIXES: [&str; 6] =
    ["2001:db8::/32", "2001:db8::1/128", "2001:db8::2/128", "::/0", "192.0.2.0/24", "0.0.0.0/0"];
const ADDRESSES: [&str; 4] = ["2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.2"];

/// What an association is made of, by number.
#[derive(Debug, Clone)]
struct Made {
    service: usize,
    ends: (usize, usize),
    selectors: Vec<(usize, usize, bool)>,
    owner: Option<u64>,
    packets: Option<u64>,
}

fn made() -> impl Strategy<Value = Made> {
    let selectors = proptest::collection::vec((0..PREFIXES.len(), 0..PREFIXES.len(), any::<bool>()), 0..3);
    (
        0..3usize,
        (0..4usize, 0..4usize),
        selectors,
        proptest::option::of(0..3u64),
        proptest::option::of(0..2u64),
    )
        .prop_map(|(service, ends, selectors, owner, packets)| Made {
            service,
            ends,
            selectors,
            owner,
            packets,
        })
}

fn wanted() -> impl Strategy<Value = Request> {
    let tunnel = proptest::option::of((0..4usize, 0..4usize));
    let ends = (0..4usize, 0..4usize)
        .prop_filter("of one version", |(from, to)| address(*from).is_ipv4() == address(*to).is_ipv4());
    (0..3usize, ends, proptest::option::of(0..3u64), any::<bool>(), tunnel, any::<bool>()).prop_map(
        |(service, (from, to), socket, is_unique, tunnel, has_ports)| Request {
            service: Service::ALL[service],
            traffic: Traffic {
                source: address(from),
                destination: address(to),
                protocol: 17,
                detail: if has_ports { Detail::Ports { source: 1, destination: 53 } } else { Detail::Opaque },
            },
            socket: socket.map(SocketId),
            is_unique: is_unique && socket.is_some(),
            tunnel: tunnel.map(|(from, to)| (address(from), address(to))),
        },
    )
}

fn address(number: usize) -> IpAddr {
    ADDRESSES[number].parse().unwrap()
}

fn association(spi: u32, made: &Made) -> Parameters {
    let service = Service::ALL[made.service];
    let suite = match service.protocol() {
        Protocol::Ah => Suite::Ah(Authentication::AesGmac128),
        Protocol::Esp => Suite::Esp(Encryption::AesGcm128, Authentication::None),
    };
    let (source, destination) = (address(made.ends.0), address(made.ends.1));
    let selectors = made.selectors.iter().map(|(from, to, is_dns)| Selector {
        upper: if *is_dns {
            Upper::Ports { protocol: 17, source: 0..=u16::MAX, destination: 53..=53 }
        } else {
            Upper::Any
        },
        ..Selector::between(PREFIXES[*from].parse().unwrap(), PREFIXES[*to].parse().unwrap())
    });
    Parameters {
        selectors: selectors.collect(),
        lifetimes: Lifetimes {
            hard: Lifetime { packets: made.packets, ..Lifetime::UNLIMITED },
            ..Lifetimes::default()
        },
        ..Parameters::new(Spi(spi), source, destination, service.mode(), suite.transform())
    }
}

/// The newest, by a walk over all.
fn walk(engine: &KeyEngine, request: &Request, now: Instant) -> Option<AssociationId> {
    let fits = |(id, association): &(AssociationId, &Association)| {
        association.can_send(now) && request.is_met_by(association, engine.owner(*id))
    };
    engine.associations().filter(fits).map(|(id, _)| id).last()
}

proptest! {
    #[test]
    fn what_is_found_is_what_a_walk_over_all_finds(
        made in proptest::collection::vec(made(), 1..40),
        gone in proptest::collection::vec(any::<proptest::sample::Index>(), 0..10),
        moved in proptest::collection::vec((any::<proptest::sample::Index>(), 0..4usize, 0..4usize), 0..10),
        closed in proptest::option::of(0..3u64),
        wanted in proptest::collection::vec(wanted(), 1..40),
    ) {
        let (mut engine, now) = (KeyEngine::new(), Instant::now());
        let mut names = Vec::new();
        for (spi, made) in (0x1000..).zip(&made) {
            let parameters = association(spi, made);
            let transform = parameters.transform.protocol();
            let name = Name { destination: parameters.destination, protocol: transform, spi: Spi(spi) };
            if engine.add(parameters, made.owner.map(SocketId), now).is_ok() {
                names.push(name);
            }
        }
        for (index, from, to) in moved {
            if !names.is_empty() {
                let name = index.index(names.len());
                if let Ok(moved) = engine.move_to(&names[name], (address(from), address(to)), None) {
                    names[name] = moved;
                }
            }
        }
        for index in gone {
            if !names.is_empty() {
                engine.delete(&names.swap_remove(index.index(names.len()))).unwrap();
            }
        }
        if let Some(socket) = closed {
            engine.close_socket(SocketId(socket));
        }
        for request in &wanted {
            prop_assert_eq!(engine.available(request, now), walk(&engine, request, now), "{:?}", request);
        }
    }

    #[test]
    fn what_is_due_is_what_a_walk_over_all_finds(
        lifetimes in proptest::collection::vec(
            [0..40u64, 0..40, 0..40, 0..40].prop_map(|seconds| seconds.map(|at| (at > 0).then_some(at))),
            1..20,
        ),
        steps in proptest::collection::vec((0..20u64, any::<proptest::sample::Index>()), 1..20),
    ) {
        let (mut engine, start) = (KeyEngine::new(), Instant::now());
        let mut told = HashMap::new();
        for (spi, seconds) in (0x1000..).zip(lifetimes) {
            let [soft_added, soft_used, hard_added, hard_used] = seconds.map(|at| at.map(Duration::from_secs));
            let lifetime = |since_added, since_used| Lifetime { since_added, since_used, ..Lifetime::UNLIMITED };
            let mut parameters = parameters(suites()[0], Mode::Transport, true, true);
            parameters.spi = Spi(spi);
            parameters.lifetimes =
                Lifetimes { soft: lifetime(soft_added, soft_used), hard: lifetime(hard_added, hard_used) };
            told.insert(engine.add(parameters, None, start).unwrap(), crate::association::Age::Fresh);
        }
        let mut now = start;
        for (seconds, index) in steps {
            now += Duration::from_secs(seconds);
            engine.handle_timeout(now);
            // Each is as told as it is old, and those that are past their end are gone.
            for (id, association) in engine.associations() {
                told.insert(id, association.age(now));
                prop_assert_ne!(association.age(now), crate::association::Age::Hard);
            }
            let due = engine.associations().filter_map(|(id, one)| one.deadline(told[&id])).min();
            prop_assert_eq!(engine.deadline(), due);
            let ids: Vec<_> = engine.associations().map(|(id, _)| id).collect();
            if !ids.is_empty() {
                let id = ids[index.index(ids.len())];
                engine.get_mut(id).unwrap().count(100, now);
                engine.used(id, now);
            }
        }
        while let Some(event) = engine.next_event() {
            prop_assert!(matches!(event, Event::SoftExpired(_) | Event::HardExpired(_)));
        }
    }
}

/// A gateway with so many peers, each with a network of its own.
fn gateway(peers: u32, now: Instant) -> (Offers, Vec<(AssociationId, Request)>) {
    let mut engine = KeyEngine::new();
    let mut requests = Vec::new();
    let mut offers = Offers::default();
    for peer in 0..peers {
        let network = format!("2001:db8:{peer:x}::/48").parse().unwrap();
        let mut parameters = parameters(suites()[0], Mode::Tunnel, true, true);
        parameters.spi = Spi(0x1000 + peer);
        parameters.selectors = vec![Selector::between("2001:db8::/48".parse().unwrap(), network)];
        let id = engine.add(parameters, None, now).unwrap();
        offers.add(id, engine.get(id).unwrap(), None);
        let traffic = Traffic {
            source: "2001:db8::1".parse().unwrap(),
            destination: format!("2001:db8:{peer:x}::1").parse().unwrap(),
            protocol: 17,
            detail: Detail::Opaque,
        };
        let service = Service::TunnelEncryption;
        requests.push((id, Request { service, traffic, socket: None, is_unique: false, tunnel: None }));
    }
    (offers, requests)
}

#[test]
fn four_thousand_associations_are_looked_at_no_more_often_than_four() {
    let now = Instant::now();
    let looks = [4, 4096].map(|peers| {
        let (offers, requests) = gateway(peers, now);
        let looks = Cell::new(0);
        for (expected, request) in requests.iter().rev().take(4) {
            let found = offers.newest(request, |id| {
                looks.set(looks.get() + 1);
                id == *expected
            });
            assert_eq!(found, Some(*expected));
        }
        (looks.get(), offers.shapes())
    });
    assert_eq!(looks, [(4, 1); 2]);
}

/// What a decision may hang on, one change at a time.
#[test]
fn a_decision_is_made_anew_when_what_it_hangs_on_has_changed() {
    let now = Instant::now();
    let (mut engine, mut policies, mut decisions) =
        (KeyEngine::new(), PolicyDatabase::new(), Decisions::default());
    policies.set_system_levels(Levels { transport_encryption: Level::Use, ..Levels::NONE });
    let traffic = Traffic::of(&packet(true, 8)).unwrap();
    let mut decide = |policies: &PolicyDatabase, engine: &mut KeyEngine, now| {
        let asked = policies.output_policy(engine, &traffic, None, now);
        for _ in 0..2 {
            let remembered = decisions.output_policy(policies, engine, &traffic, None, now);
            assert_eq!(remembered, asked);
        }
        let Ok(Output::Send(bundle)) = asked else { panic!("nothing is to wait") };
        if let Some(decision) = decisions.get(policies, engine, &traffic, None, now) {
            let (overhead, far_end) = policies.overhead(engine, &traffic, None, now);
            assert_eq!((decision.overhead, decision.far_end), (overhead, far_end));
        }
        bundle.iter().next()
    };
    let made = |spi, hard: Lifetime| Parameters {
        spi: Spi(spi),
        lifetimes: Lifetimes { hard, ..Lifetimes::default() },
        ..parameters(suites()[0], Mode::Transport, true, true)
    };
    assert_eq!(decide(&policies, &mut engine, now), None);
    let endless = engine.add(made(0x1000, Lifetime::UNLIMITED), None, now).unwrap();
    assert_eq!(decide(&policies, &mut engine, now), Some(endless), "one has come");
    let since_used = Lifetime { since_used: Some(Duration::from_secs(5)), ..Lifetime::UNLIMITED };
    let short = engine.add(made(0x1001, since_used), None, now).unwrap();
    assert_eq!(decide(&policies, &mut engine, now), Some(short), "a newer one");
    engine.get_mut(short).unwrap().count(1, now);
    engine.used(short, now);
    let later = now + Duration::from_secs(5);
    assert_eq!(decide(&policies, &mut engine, now), Some(short));
    assert_eq!(
        decide(&policies, &mut engine, later),
        Some(endless),
        "its time is over, and nobody has called"
    );
    engine.handle_timeout(later);
    let two = Lifetime { packets: Some(2), ..Lifetime::UNLIMITED };
    let few = engine.add(made(0x1002, two), None, later).unwrap();
    for expected in [few, few, endless] {
        assert_eq!(decide(&policies, &mut engine, later), Some(expected), "so many packets");
        engine.get_mut(expected).unwrap().count(1, later);
        engine.used(expected, later);
    }
    let last = engine.add(made(0x1003, Lifetime::UNLIMITED), None, later).unwrap();
    assert_eq!(decide(&policies, &mut engine, later), Some(last));
    engine.get_mut(last).unwrap().skip(u64::from(u32::MAX));
    engine.used(last, later);
    assert_eq!(decide(&policies, &mut engine, later), Some(endless), "its numbers are used up");
    engine.delete(&Name::of(engine.get(endless).unwrap())).unwrap();
    assert_eq!(decide(&policies, &mut engine, later), None, "one has gone");
    let again = engine.add(made(0x1004, Lifetime::UNLIMITED), None, later).unwrap();
    assert_eq!(decide(&policies, &mut engine, later), Some(again));
    let everything = Selector::between("::/0".parse().unwrap(), "::/0".parse().unwrap());
    policies.add(Rule { direction: Direction::Out, selector: everything.clone(), action: Action::Bypass });
    assert_eq!(decide(&policies, &mut engine, later), None, "a rule has come");
    policies.delete(Direction::Out, &everything);
    assert_eq!(decide(&policies, &mut engine, later), Some(again), "a rule has gone");
    policies.set_system_levels(Levels::NONE);
    assert_eq!(decide(&policies, &mut engine, later), None, "the levels are others");
}

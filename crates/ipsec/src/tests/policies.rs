//! What the levels of system, rules and sockets come to, and whole packets through policy and engine of two hosts.

use std::time::Duration;

use super::*;
use crate::drops::{DropReason, Drops};
use crate::key_engine::{KeyEngine, SecurityError};
use crate::policy::{Action, Direction, Level, Levels, Output, PolicyDatabase, Rule, Socket};
use crate::processing::{self, Progress, Step};
use crate::request::{DaemonId, SocketId};
use crate::selector::{Selector, Traffic};

const AH: Suite = Suite::Ah(Authentication::HmacSha256);
const GCM: Suite = Suite::Esp(Encryption::AesGcm128, Authentication::None);
const LEVELS: [Level; 4] = [Level::None, Level::Use, Level::Require, Level::Unique];

fn traffic() -> Traffic {
    Traffic::of(&packet(true, 8)).unwrap()
}

fn everything() -> Selector {
    let (from, to) = hosts(true);
    Selector::between(from.into(), to.into())
}

fn socket(levels: Levels, bypasses: bool) -> Socket {
    Socket { id: SocketId(7), levels, bypasses }
}

/// An engine with an AH association of a socket's own, or of all.
fn engine_with(suites: &[(Suite, Mode)], owner: Option<SocketId>, now: Instant) -> KeyEngine {
    let mut engine = KeyEngine::new();
    for (at, (suite, mode)) in suites.iter().enumerate() {
        let parameters = Parameters { spi: Spi(0x1000 + at as u32), ..parameters(*suite, *mode, true, true) };
        engine.add(parameters, owner, now).unwrap();
    }
    engine
}

fn lengths(output: Result<Output, SecurityError>) -> usize {
    match output {
        Ok(Output::Send(bundle)) => bundle.iter().count(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_stricter_of_system_and_socket_counts() {
    let now = Instant::now();
    for system in LEVELS {
        for of_socket in LEVELS {
            let level = system.max(of_socket);
            let levels = |authentication| Levels { authentication, ..Levels::NONE };
            let mut policy = PolicyDatabase::new();
            policy.set_system_levels(levels(system));
            let socket = socket(levels(of_socket), false);
            let output =
                |engine: &mut KeyEngine| policy.output_policy(engine, &traffic(), Some(&socket), now);

            let without = output(&mut KeyEngine::new());
            let shared = output(&mut engine_with(&[(AH, Mode::Transport)], None, now));
            let own = output(&mut engine_with(&[(AH, Mode::Transport)], Some(SocketId(7)), now));
            match level {
                Level::None => {
                    assert_eq!([lengths(without), lengths(shared), lengths(own)], [0, 0, 0]);
                }
                Level::Use => assert_eq!([lengths(without), lengths(shared), lengths(own)], [0, 1, 1]),
                Level::Require => {
                    assert_eq!(without, Err(SecurityError::NoDaemon));
                    assert_eq!([lengths(shared), lengths(own)], [1, 1]);
                }
                Level::Unique => {
                    assert_eq!(without, Err(SecurityError::NoDaemon));
                    assert_eq!(shared, Err(SecurityError::NoDaemon));
                    assert_eq!(lengths(own), 1);
                }
            }
            let authentic = Marks { authentic: true, ..Marks::NONE };
            assert_eq!(policy.input_policy(&traffic(), authentic, Some(&socket)), Ok(()));
            let bare = policy.input_policy(&traffic(), Marks::NONE, Some(&socket));
            assert_eq!(bare, if level >= Level::Require { Err(DropReason::NotAuthentic) } else { Ok(()) });
        }
    }
}

#[test]
fn each_service_has_its_own_level_and_reason() {
    let all = Marks { authentic: true, decrypted: true, decrypted_from_tunnel: true };
    for (levels, marks, reason) in [
        (
            Levels { authentication: Level::Require, ..Levels::NONE },
            Marks { authentic: false, ..all },
            DropReason::NotAuthentic,
        ),
        (
            Levels { transport_encryption: Level::Require, ..Levels::NONE },
            Marks { decrypted: false, ..all },
            DropReason::NotEncrypted,
        ),
        (
            Levels { tunnel_encryption: Level::Unique, ..Levels::NONE },
            Marks { decrypted_from_tunnel: false, ..all },
            DropReason::NotTunnelled,
        ),
    ] {
        let policy = PolicyDatabase::new();
        let socket = socket(levels, false);
        assert_eq!(policy.input_policy(&traffic(), marks, Some(&socket)), Err(reason));
        assert_eq!(policy.input_policy(&traffic(), all, Some(&socket)), Ok(()));
        assert_eq!(policy.input_policy(&traffic(), marks, None), Ok(()), "another's socket");
    }
}

#[test]
fn rules_bypass_discard_and_protect_and_a_daemon_bypasses() {
    let now = Instant::now();
    let required = Levels { authentication: Level::Require, ..Levels::NONE };
    let mut policy = PolicyDatabase::new();
    policy.set_system_levels(required);
    let mut engine = KeyEngine::new();
    let mut output = |policy: &PolicyDatabase, socket: Option<&Socket>| {
        policy.output_policy(&mut engine, &traffic(), socket, now)
    };
    assert_eq!(output(&policy, None), Err(SecurityError::NoDaemon));
    assert_eq!(lengths(output(&policy, Some(&socket(Levels::NONE, true)))), 0, "a daemon's");
    for direction in [Direction::Out, Direction::In] {
        policy.add(Rule { direction, selector: everything(), action: Action::Bypass });
    }
    assert_eq!(lengths(output(&policy, None)), 0);
    assert_eq!(policy.input_policy(&traffic(), Marks::NONE, None), Ok(()));
    assert_eq!(output(&policy, Some(&socket(required, false))), Err(SecurityError::NoDaemon));
    assert!(policy.delete(Direction::Out, &everything()));
    assert!(!policy.delete(Direction::Out, &everything()));
    policy.flush();
    for direction in [Direction::Out, Direction::In] {
        policy.add(Rule { direction, selector: everything(), action: Action::Discard });
    }
    assert_eq!(output(&policy, Some(&socket(Levels::NONE, true))), Err(SecurityError::Discarded));
    assert_eq!(policy.input_policy(&traffic(), Marks::NONE, None), Err(DropReason::Discarded));
}

#[test]
fn neighbor_discovery_passes_where_everything_else_must_be_protected() {
    let mut policy = PolicyDatabase::new();
    policy.set_system_levels(Levels { transport_encryption: Level::Require, ..Levels::NONE });
    policy.add(Rule::neighbor_discovery(Direction::In));
    let message = |kind| Traffic::of(&with_payload(true, protocol::ICMPV6, &[kind, 0, 0, 0])).unwrap();
    assert_eq!(policy.input_policy(&message(135), Marks::NONE, None), Ok(()));
    assert_eq!(policy.input_policy(&message(128), Marks::NONE, None), Err(DropReason::NotEncrypted));
}

#[test]
fn a_packet_with_all_three_services_passes_from_host_to_host() {
    let now = Instant::now();
    let (host, peer) = hosts(true);
    // The tunnel is between the hosts themselves, as a socket asks for it.
    let suites = [(GCM, Mode::Transport), (AH, Mode::Transport)];
    let mut sender = engine_with(&suites, None, now);
    let mut receiver = engine_with(&suites, None, now);
    for engine in [&mut sender, &mut receiver] {
        let tunnel = Parameters {
            spi: Spi(0x3000),
            source: host,
            destination: peer,
            ..parameters(GCM, Mode::Tunnel, true, true)
        };
        engine.add(tunnel, None, now).unwrap();
    }
    let required = Levels {
        authentication: Level::Require,
        transport_encryption: Level::Require,
        tunnel_encryption: Level::Require,
    };
    let mut policy = PolicyDatabase::new();
    policy.add(Rule {
        direction: Direction::Out,
        selector: everything(),
        action: Action::Protect { levels: required, tunnel: Some((host, peer)) },
    });
    let plain = packet(true, 100);
    let Ok(Output::Send(bundle)) = policy.output_policy(&mut sender, &traffic(), None, now) else {
        panic!("all associations are there")
    };
    let mut buffer = [&[0; processing::MAX_HEADROOM][..], &plain, &[0; processing::MAX_TAILROOM]].concat();
    let at = processing::MAX_HEADROOM;
    let mut place = PacketBuffer::new(&mut buffer, at..at + plain.len()).unwrap();
    processing::seal(&mut sender, &bundle, &mut place, now).unwrap();

    let mut progress = Progress::default();
    while let Step::Opened(next) = processing::open(&mut receiver, &mut place, progress, None, now).unwrap() {
        progress = next;
    }
    assert_eq!(place.packet(), plain);
    assert_eq!(progress.marks, Marks { authentic: true, decrypted: true, decrypted_from_tunnel: true });
    let socket = socket(required, false);
    assert_eq!(policy.input_policy(&traffic(), progress.marks, Some(&socket)), Ok(()));
}

#[test]
fn what_names_no_association_is_counted_and_what_is_plain_passes() {
    let now = Instant::now();
    let mut pair = Pair::of(GCM, Mode::Transport);
    let mut drops = Drops::default();
    let mut sealed = pair.seal(&packet(true, 8)).unwrap();
    let length = sealed.len();
    let mut place = PacketBuffer::new(&mut sealed, 0..length).unwrap();
    let step = processing::open(&mut KeyEngine::new(), &mut place, Progress::default(), None, now);
    drops.count(step.unwrap_err());
    assert_eq!(drops.of(DropReason::NoAssociation), 1);
    let mut plain = packet(true, 8);
    let length = plain.len();
    let mut place = PacketBuffer::new(&mut plain, 0..length).unwrap();
    let step = processing::open(&mut KeyEngine::new(), &mut place, Progress::default(), Some(4500), now);
    assert_eq!(step, Ok(Step::Plain));
}

#[test]
fn security_headers_within_each_other_are_opened_up_to_a_bound() {
    let now = Instant::now();
    let mut engine = engine_with(&[(AH, Mode::Transport)], None, now);
    let mut sender = engine_with(&[(AH, Mode::Transport)], None, now);
    let id = sender.associations().next().unwrap().0;
    let mut bytes = packet(true, 8);
    for _ in 0..=processing::MAX_NESTING {
        bytes = seal(sender.get_mut(id).unwrap(), &bytes, now).unwrap();
    }
    let length = bytes.len();
    let mut place = PacketBuffer::new(&mut bytes, 0..length).unwrap();
    let mut progress = Progress::default();
    for _ in 0..processing::MAX_NESTING {
        let Ok(Step::Opened(next)) = processing::open(&mut engine, &mut place, progress, None, now) else {
            panic!("it is opened")
        };
        progress = next;
    }
    assert_eq!(processing::open(&mut engine, &mut place, progress, None, now), Err(DropReason::Nesting));
}

#[test]
fn a_packet_waits_while_a_daemon_makes_its_association_and_is_dropped_if_none_does() {
    let now = Instant::now();
    let mut policy = PolicyDatabase::new();
    policy.set_system_levels(Levels { authentication: Level::Require, ..Levels::NONE });
    let mut engine = KeyEngine::new();
    engine.register(DaemonId(1), Protocol::Ah).unwrap();
    let Ok(Output::Delay(acquire)) = policy.output_policy(&mut engine, &traffic(), None, now) else {
        panic!("it is delayed")
    };
    assert!(engine.delay(acquire, &packet(true, 8), None));
    assert_eq!(engine.give_up(acquire), 1);
    let Ok(Output::Delay(again)) = policy.output_policy(&mut engine, &traffic(), None, now) else {
        panic!("it is delayed")
    };
    assert_ne!(again, acquire);
    let later = now + Duration::from_secs(5);
    engine.add(parameters(AH, Mode::Transport, true, true), None, later).unwrap();
    assert_eq!(lengths(policy.output_policy(&mut engine, &traffic(), None, later)), 1);
}

#[test]
fn a_fragment_without_ports_does_not_slip_past_a_rule_about_ports() {
    let upper =
        crate::selector::Upper::Ports { protocol: protocol::UDP, source: 0..=u16::MAX, destination: 53..=53 };
    let mut policy = PolicyDatabase::new();
    let selector = Selector { upper, ..everything() };
    policy.add(Rule { direction: Direction::Out, selector, action: Action::Discard });
    let later =
        with_payload(true, protocol::FRAGMENT, &[protocol::UDP, 0, 0, 8, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]);
    let traffic = Traffic::of(&later).unwrap();
    let output = policy.output_policy(&mut KeyEngine::new(), &traffic, None, Instant::now());
    assert_eq!(output, Err(SecurityError::Discarded));
}

#[test]
fn an_answer_to_a_stranger_makes_nobody_ask() {
    let now = Instant::now();
    let mut policy = PolicyDatabase::new();
    policy.set_system_levels(Levels { authentication: Level::Require, ..Levels::NONE });
    let mut engine = KeyEngine::new();
    engine.register(DaemonId(1), Protocol::Ah).unwrap();
    let output = policy.output_policy_without_asking(&engine, &traffic(), None, now);
    assert_eq!(output, Err(SecurityError::NotAsked));
    assert_eq!(engine.next_event(), None);
    let engine = engine_with(&[(AH, Mode::Transport)], None, now);
    let bundle = policy.output_policy_without_asking(&engine, &traffic(), None, now).unwrap();
    assert_eq!(bundle.iter().count(), 1);
}

#[test]
fn the_overhead_is_that_of_the_associations_or_the_most() {
    let now = Instant::now();
    let mut policy = PolicyDatabase::new();
    policy.set_system_levels(Levels { authentication: Level::Require, ..Levels::NONE });
    let none = KeyEngine::new();
    assert_eq!(policy.overhead(&none, &traffic(), None, now), (crate::ah::MAX_HEADROOM, None));
    let engine = engine_with(&[(AH, Mode::Transport), (GCM, Mode::Tunnel)], None, now);
    let of = |at: usize| engine.associations().nth(at).unwrap().1.overhead();
    assert_eq!(policy.overhead(&engine, &traffic(), None, now), (of(0), None));
    let used = Levels { tunnel_encryption: Level::Use, ..Levels::NONE };
    assert_eq!(policy.overhead(&none, &traffic(), Some(&socket(used, true)), now), (0, None), "it bypasses");
    policy.set_system_levels(used);
    assert_eq!(policy.overhead(&none, &traffic(), None, now), (0, None));
    let (bytes, far_end) = policy.overhead(&engine, &traffic(), None, now);
    assert_eq!((bytes, far_end.is_some()), (of(1), true));
}

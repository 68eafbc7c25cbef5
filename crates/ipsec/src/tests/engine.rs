//! The table of associations: who is asked, what waits, what ends.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::*;
use crate::acquire::{ACQUIRE_TIMEOUT, MAX_DELAYED_PACKETS, Released};
use crate::association::Lifetime;
use crate::key_engine::{
    EIPSEC, EngineError, Event, KeyEngine, LARVAL_LIFETIME, Lookup, Name, Random, SecurityError,
};
use crate::policy::{Levels, Socket};
use crate::request::{DaemonId, Request, Service, SocketId};
use crate::selector::Traffic;

struct Counting(u32);

impl Random for Counting {
    fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0
    }
}

fn esp(spi: u32) -> Parameters {
    let suite = suites().into_iter().find(|suite| matches!(suite, Suite::Esp(..))).unwrap();
    Parameters { spi: Spi(spi), ..parameters(suite, Mode::Transport, true, true) }
}

fn request(socket: Option<u64>, is_unique: bool) -> Request {
    Request {
        service: Service::TransportEncryption,
        traffic: Traffic::of(&packet(true, 8)).unwrap(),
        socket: socket.map(SocketId),
        is_unique,
        tunnel: None,
    }
}

fn name(spi: u32) -> Name {
    Name { destination: hosts(true).1, protocol: Protocol::Esp, spi: Spi(spi) }
}

#[test]
fn without_a_daemon_a_missing_association_is_eipsec() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    assert_eq!(engine.lookup(&request(None, false), now), Err(SecurityError::NoDaemon));
    assert_eq!(SecurityError::NoDaemon.errno(), EIPSEC);
    engine.register(DaemonId(1), Protocol::Ah).unwrap();
    assert_eq!(engine.lookup(&request(None, false), now), Err(SecurityError::NoDaemon), "only of AH");
}

#[test]
fn a_packet_waits_for_the_association_that_a_daemon_makes() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    engine.register(DaemonId(1), Protocol::Esp).unwrap();
    let Ok(Lookup::Delayed(acquire)) = engine.lookup(&request(None, false), now) else {
        panic!("it is delayed")
    };
    assert_eq!(engine.lookup(&request(None, false), now), Ok(Lookup::Delayed(acquire)), "asked once");
    let socket = Socket { id: SocketId(7), levels: Levels::NONE, bypasses: false };
    assert!(engine.delay(acquire, b"first", None));
    assert!(engine.delay(acquire, b"second", Some(socket)));
    assert!(matches!(engine.next_event(), Some(Event::Acquire { acquire: asked, .. }) if asked == acquire));
    assert_eq!(engine.next_event(), None);
    assert_eq!(engine.next_released(), None);
    let id = engine.add(esp(0x1000), None, now).unwrap();
    assert_eq!(engine.next_released(), Some(Released { packet: b"first".to_vec(), socket: None }));
    assert_eq!(engine.next_released().unwrap().socket, Some(socket));
    assert_eq!(engine.next_released(), None);
    assert_eq!(engine.lookup(&request(None, false), now), Ok(Lookup::Ready(id)));
    assert_eq!(engine.deadline(), None);
}

#[test]
fn what_waits_is_bounded_in_number_and_time() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    engine.register(DaemonId(1), Protocol::Esp).unwrap();
    let Ok(Lookup::Delayed(acquire)) = engine.lookup(&request(None, false), now) else {
        panic!("it is delayed")
    };
    for _ in 0..MAX_DELAYED_PACKETS {
        assert!(engine.delay(acquire, b"packet", None));
    }
    assert!(!engine.delay(acquire, b"packet", None));
    assert_eq!(engine.deadline(), Some(now + ACQUIRE_TIMEOUT));
    assert_eq!(engine.handle_timeout(now + ACQUIRE_TIMEOUT), MAX_DELAYED_PACKETS);
    assert_eq!(engine.deadline(), None);
    assert!(engine.wanted(acquire).is_none());
    assert!(!engine.delay(acquire, b"late", None));
}

#[test]
fn the_newest_is_used_and_the_old_one_still_taken_until_its_end() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    let hour = Duration::from_secs(3600);
    let mut old = esp(0x1000);
    old.lifetimes.soft = Lifetime { since_added: Some(hour), ..Lifetime::UNLIMITED };
    old.lifetimes.hard = Lifetime { since_added: Some(hour * 2), ..Lifetime::UNLIMITED };
    engine.add(old, None, now).unwrap();
    assert_eq!(engine.deadline(), Some(now + hour));
    engine.handle_timeout(now + hour);
    assert!(matches!(engine.next_event(), Some(Event::SoftExpired(ended)) if ended.name == name(0x1000)));
    let new = engine.add(esp(0x2000), None, now + hour).unwrap();
    assert_eq!(engine.available(&request(None, false), now + hour), Some(new));
    assert!(engine.by_name(&name(0x1000)).is_some());
    assert_eq!(engine.deadline(), Some(now + hour * 2));
    engine.handle_timeout(now + hour * 2);
    assert!(matches!(engine.next_event(), Some(Event::HardExpired(ended)) if ended.name == name(0x1000)));
    assert!(engine.by_name(&name(0x1000)).is_none());
    assert!(engine.next_event().is_none());
}

#[test]
fn packets_end_a_lifetime_when_they_are_noted() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    let mut parameters = esp(0x1000);
    parameters.lifetimes.soft = Lifetime { packets: Some(1), ..Lifetime::UNLIMITED };
    parameters.lifetimes.hard = Lifetime { packets: Some(2), ..Lifetime::UNLIMITED };
    let id = engine.add(parameters, None, now).unwrap();
    for _ in 0..2 {
        let association = engine.get_mut(id).unwrap();
        seal(association, &packet(true, 4), now).unwrap();
        engine.used(id, now);
    }
    assert!(matches!(engine.next_event(), Some(Event::SoftExpired(_))));
    assert!(matches!(engine.next_event(), Some(Event::HardExpired(_))));
    assert!(engine.get(id).is_none());
}

#[test]
fn an_association_of_a_sockets_own_is_for_it_alone() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    let shared = engine.add(esp(0x1000), None, now).unwrap();
    assert_eq!(engine.available(&request(Some(7), true), now), None);
    let own = engine.add(esp(0x2000), Some(SocketId(7)), now).unwrap();
    assert_eq!(engine.available(&request(Some(7), true), now), Some(own));
    assert_eq!(engine.available(&request(Some(8), false), now), Some(shared));
    assert_eq!(engine.available(&request(None, false), now), Some(shared));
}

#[test]
fn spis_are_reserved_once_and_for_a_time() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    let mut random = Counting(1);
    let mut reserve = |engine: &mut KeyEngine, range: RangeInclusive<u32>| {
        engine.reserve_spi(hosts(true).1, Protocol::Esp, range, &mut random, now)
    };
    let mut spis: Vec<_> = (0..4).map(|_| reserve(&mut engine, 0x1000..=0x1003).unwrap().0).collect();
    spis.sort_unstable();
    assert_eq!(spis, [0x1000, 0x1001, 0x1002, 0x1003]);
    assert_eq!(reserve(&mut engine, 0x1000..=0x1003), Err(EngineError::NoSpi));
    assert_eq!(reserve(&mut engine, 0..=255), Err(EngineError::NoSpi), "reserved by IANA");
    assert_eq!(reserve(&mut engine, RangeInclusive::new(0x2000, 0x1000)), Err(EngineError::NoSpi));
    assert!(reserve(&mut engine, 0..=u32::MAX).is_ok());
    engine.add(esp(0x1002), None, now).unwrap();
    assert_eq!(engine.add(esp(0x1002), None, now), Err(EngineError::Exists));
    engine.handle_timeout(now + LARVAL_LIFETIME);
    assert!(!engine.is_larval(&name(0x1000)));
    assert!(engine.by_name(&name(0x1002)).is_some());
}

#[test]
fn what_is_deleted_or_flushed_is_gone_from_all_tables() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    engine.add(esp(0x1000), None, now).unwrap();
    engine.add(esp(0x2000), None, now).unwrap();
    engine.delete(&name(0x2000)).unwrap();
    assert_eq!(engine.delete(&name(0x2000)), Err(EngineError::NotFound));
    engine.flush(Some(Protocol::Ah));
    assert_eq!(engine.associations().count(), 1);
    engine.flush(None);
    assert_eq!(engine.available(&request(None, false), now), None);
    assert_eq!(engine.associations().count(), 0);
    assert!(engine.by_name(&name(0x1000)).is_none());
}

#[test]
fn daemons_are_asked_once_for_all_flows_between_two_ends() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    engine.register(DaemonId(1), Protocol::Esp).unwrap();
    let first = request(None, false);
    let mut other = first.clone();
    other.traffic.detail = crate::selector::Detail::Ports { source: 4001, destination: 80 };
    other.socket = Some(SocketId(9));
    let Ok(Lookup::Delayed(acquire)) = engine.lookup(&first, now) else { panic!("it is delayed") };
    assert_eq!(engine.lookup(&other, now), Ok(Lookup::Delayed(acquire)));
    let unique = Request { is_unique: true, ..other };
    assert_ne!(engine.lookup(&unique, now), Ok(Lookup::Delayed(acquire)));
}

#[test]
fn ports_change_where_a_nat_has_forgotten_them() {
    let mut engine = KeyEngine::new();
    let now = Instant::now();
    let ports = |source_port| UdpEncapsulation { source_port, destination_port: 4500 };
    engine.add(Parameters { encapsulation: Some(ports(4500)), ..esp(0x1000) }, None, now).unwrap();
    engine.add(esp(0x2000), None, now).unwrap();
    engine.set_ports(&name(0x1000), ports(61_000)).unwrap();
    let (_, association) = engine.by_name(&name(0x1000)).unwrap();
    assert_eq!(association.parameters().encapsulation, Some(ports(61_000)));
    assert_eq!(engine.set_ports(&name(0x2000), ports(4500)), Err(EngineError::NotFound));
}

#[test]
fn an_association_that_only_receives_seals_nothing_whatever_its_selectors() {
    let now = Instant::now();
    let mut engine = KeyEngine::new();
    engine.add_receiving(esp(0x500), now).unwrap();
    assert_eq!(engine.lookup(&request(None, false), now), Err(SecurityError::NoDaemon));
    assert!(engine.by_name(&name(0x500)).is_some());
    engine.add(esp(0x501), None, now).unwrap();
    assert!(matches!(engine.lookup(&request(None, false), now), Ok(Lookup::Ready(_))));
}

#[test]
fn a_tunnel_whose_ends_move_has_another_name_and_goes_on() {
    let now = Instant::now();
    let suite = suites().into_iter().find(|suite| matches!(suite, Suite::Esp(..))).unwrap();
    let tunnel = |spi| Parameters { spi: Spi(spi), ..parameters(suite, Mode::Tunnel, true, true) };
    let mut engine = KeyEngine::new();
    let id = engine.add(tunnel(0x600), None, now).unwrap();
    let before = Name::of(engine.get(id).unwrap());
    let ends = ("2001:db8:1::1".parse().unwrap(), "2001:db8:1::2".parse().unwrap());
    let after = engine.move_to(&before, ends, None).unwrap();
    assert_eq!(after.destination, ends.1);
    assert_eq!(engine.by_name(&after).unwrap().0, id);
    assert!(engine.by_name(&before).is_none());
    assert_eq!(engine.move_to(&before, ends, None), Err(EngineError::NotFound));
    let mixed = (ends.0, "192.0.2.1".parse().unwrap());
    assert!(engine.move_to(&after, mixed, None).is_err());
    engine.delete(&after).unwrap();
    assert_eq!(engine.associations().count(), 0);
}

//! Addresses for clients (RFC 7296 §2.19, §3.15).

use ike::config::{Assigned, Config, Pool};
use ike::event::Event;
use ike::message::traffic_selector::TrafficSelector;
use ike::numbers::NotifyType;

use crate::SOON;
use crate::world::{Side, World, config, identity};

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

//! What keeps strangers, and peers that ask for much, within bounds.

use super::*;
use crate::census::Counted;
use crate::config::{ChildConfig, Mode, PeerConfig};
use crate::crypto::secret::Secret;
use crate::message::traffic_selector::TrafficSelector;
use crate::random::Repeatable;

fn name(name: &str) -> Identity {
    Identity::Fqdn(name.to_owned())
}

/// One that anybody with the key may talk to.
fn gateway() -> Endpoint<Repeatable> {
    Endpoint::new(Config::new(vec![peer("gateway", None)]), Repeatable::new(1))
}

fn peer(local: &str, remote: Option<&str>) -> PeerConfig {
    let mut peer = PeerConfig::new(name(local), remote.map(name), Secret::new(b"everybody's".to_vec()));
    let any = || vec![TrafficSelector::ANY_IPV6];
    peer.children.push(ChildConfig::new(Mode::Tunnel, any(), any()));
    peer
}

/// Begins as this identity, and says whether the gateway has taken it.
fn begins(gateway: &mut Endpoint<Repeatable>, identity: &str, number: u64) -> bool {
    let now = Instant::now();
    let config = Config::new(vec![peer(identity, Some("gateway"))]);
    let mut client = Endpoint::new(config, Repeatable::new(number));
    let path =
        Path { local: "[2001:db8:5::1]:500".parse().unwrap(), remote: "[2001:db8::1]:500".parse().unwrap() };
    client.initiate(now, PeerIndex(0), path).unwrap();
    while let Some(request) = client.poll_transmit() {
        gateway.receive(now, Path { local: path.remote, remote: path.local }, &request.payload);
        while let Some(answer) = gateway.poll_transmit() {
            client.receive(now, path, &answer.payload);
        }
    }
    std::iter::from_fn(|| client.poll_event()).any(|event| matches!(event, Event::IkeUp { .. }))
}

fn count(gateway: &mut Endpoint<Repeatable>, number: usize, address: impl Fn(u128) -> u128) {
    for number in 0..number {
        let address = std::net::Ipv6Addr::from_bits(address(number as u128)).into();
        let identity = name(&number.to_string());
        gateway.table.census.add(Counted { peer: PeerIndex(0), identity: &identity, address });
    }
}

#[test]
fn identities_that_somebody_invents_with_a_key_do_not_take_all_and_those_that_are_there_come_back() {
    let mut gateway = gateway();
    count(&mut gateway, MAX_OF_SHARED_KEY - 1, |number| number << 64);
    assert!(begins(&mut gateway, "first", 2));
    assert!(!begins(&mut gateway, "second", 3));
    assert_eq!(gateway.drops().of(DropReason::TooManyOfSharedKey), 1);
    assert!(begins(&mut gateway, "first", 4), "who is there already may begin anew");
}

#[test]
fn one_address_does_not_take_all() {
    let mut gateway = gateway();
    let source = 0x2001_0db8_0005_0000_u128 << 64;
    count(&mut gateway, MAX_OF_SOURCE, |number| source + number);
    assert!(!begins(&mut gateway, "first", 2));
    assert_eq!(gateway.drops().of(DropReason::TooManyOfSource), 1);
    let mut gateway = self::gateway();
    count(&mut gateway, MAX_OF_SOURCE, |number| (source + (1 << 64)) + number);
    assert!(begins(&mut gateway, "first", 2));
}

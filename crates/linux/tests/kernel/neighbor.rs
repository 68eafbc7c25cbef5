use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use linux::neighbor::{Responder, SolicitationCounts};
use linux::netlink::{Netlink, Route};
use linux::netns;
use linux::udp::{EndpointOptions, EndpointSocket, SendOutcome};

use crate::network::{A, LINK, Pair, endpoint};

const ACTIVE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0xaaaa, 1, 2, 3);
const SILENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0xaaaa, 1, 2, 4);

fn serve(responder: &mut Responder, time: Duration) -> SolicitationCounts {
    let mut total = SolicitationCounts::default();
    let start = Instant::now();
    while start.elapsed() < time {
        let counts = responder.handle(|address| address == ACTIVE).unwrap();
        total.answered += counts.answered;
        total.ignored += counts.ignored;
        total.malformed += counts.malformed;
        std::thread::sleep(Duration::from_millis(2));
    }
    total
}

#[test]
fn active_addresses_are_answered_for_and_no_others() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let link = pair.b.link();
    let mac = link.mac.unwrap();
    let mut responder = pair.b.run(|| Responder::open(link.index, mac).unwrap());
    pair.b.run(|| {
        Netlink::open().unwrap().add_route(&Route::local(format!("{ACTIVE}/128").parse().unwrap())).unwrap();
    });

    let options = EndpointOptions::default();
    let (from, to) = (endpoint("[2001:db8:1::a]:4000"), std::net::SocketAddrV6::new(ACTIVE, 5000, 0, 0));
    let at_b = pair.b.run(|| EndpointSocket::open(to, Some(from), &options).unwrap());
    let at_a = pair.a.run(|| EndpointSocket::open(from, Some(to), &options).unwrap());
    let silent =
        pair.a.run(|| EndpointSocket::open(endpoint("[2001:db8:1::a]:4001"), None, &options).unwrap());
    assert_eq!(at_a.send(b"hello", None, None, 0).unwrap(), SendOutcome::Sent);
    silent.send(b"hello", None, Some(std::net::SocketAddrV6::new(SILENT, 5000, 0, 0)), 0).unwrap();
    let counts = serve(&mut responder, Duration::from_millis(300));
    assert!(counts.answered >= 1 && counts.ignored >= 1 && counts.malformed == 0, "{counts:?}");
    assert_eq!(at_b.recv(&mut [0; 10]).unwrap().unwrap().len, 5);

    pair.a.run(|| {
        let index = pair.a.link().index;
        let mut netlink = Netlink::open().unwrap();
        assert_eq!(netlink.neighbor(index, ACTIVE.into()).unwrap().unwrap().mac, Some(mac));
        let entry = netlink.neighbor(index, SILENT.into()).unwrap();
        assert!(entry.is_none_or(|entry| !entry.usable), "{entry:?}");
    });
}

#[test]
fn duplicate_address_detection_finds_an_active_address() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let link = pair.b.link();
    let mut responder = pair.b.run(|| Responder::open(link.index, link.mac.unwrap()).unwrap());
    pair.a.must(&format!("echo 1 > /proc/sys/net/ipv6/conf/{LINK}/accept_dad"));
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        netlink.add_address(pair.a.link().index, format!("{ACTIVE}/64").parse().unwrap(), true).unwrap();
    });
    assert!(serve(&mut responder, Duration::from_millis(1500)).answered >= 1);
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let all = netlink.addresses(pair.a.link().index).unwrap();
        assert!(all.iter().any(|found| found.address.addr() == ACTIVE && found.duplicate), "{all:?}");
    });
}

#[test]
fn a_router_that_was_introduced_to_an_address_needs_not_ask_for_it() {
    if !netns::available_to_tests() {
        return;
    }
    let pair = Pair::new();
    let link = pair.b.link();
    let responder = pair.b.run(|| Responder::open(link.index, link.mac.unwrap()).unwrap());
    let router = pair.a.link();
    pair.a.run(|| {
        let mut netlink = Netlink::open().unwrap();
        assert_eq!(netlink.neighbor(router.index, ACTIVE.into()).unwrap(), None);
        assert!(responder.introduce(ACTIVE, A, router.mac.unwrap()).unwrap());
        let entry = crate::network::eventually(|| netlink.neighbor(router.index, ACTIVE.into()).unwrap());
        assert!(entry.usable && entry.mac == link.mac, "{entry:?}");
    });
}

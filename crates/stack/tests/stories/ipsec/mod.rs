//! Two hosts with IPsec on one link: what is on the wire, and what arrives.

mod floods;
mod hostile;
mod in_udp;
mod policies;
mod tcp;

use std::net::Ipv6Addr;
use std::time::Instant;

use ipsec::association::Association;
use ipsec::drops::DropReason;
use ipsec::key_engine::KeyEngine;
use ipsec::policy::{Level, Levels, PolicyDatabase};
use ipsec::setkey::{self, Command};
use stack::interface::Interface;
use stack::ipsec::Ipsec;
use stack::route::Lifetime;
use stack::udp::SocketId;
use wire::ipv6::Packet;
use wire::protocol;

use crate::link::{ANY, Link, SECOND, at, config};

pub(crate) const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xa);
pub(crate) const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xb);
const PORT: u16 = 5000;

const GCM: &str = "-E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213";
const CHACHA: &str =
    "-E chacha20-poly1305 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212223";
const CBC: &str =
    "-E aes-cbc 0x000102030405060708090a0b0c0d0e0f -A hmac-sha256 \"0123456789abcdef0123456789abcdef\"";
const SHA256: &str = "-A hmac-sha256 \"0123456789abcdef0123456789abcdef\"";
const GMAC: &str = "-A aes-gmac 0x000102030405060708090a0b0c0d0e0f10111213";

const AH: Levels = Levels { authentication: Level::Require, ..Levels::NONE };
const ESP: Levels = Levels { transport_encryption: Level::Require, ..Levels::NONE };
const TUNNEL: Levels = Levels { tunnel_encryption: Level::Require, ..Levels::NONE };

/// Associations between the two, as a file says it: ESP in transport mode, AH, ESP in tunnel mode.
fn esp(algorithms: &str) -> String {
    both_ways("esp", 0x1000, "transport", algorithms)
}

fn ah(algorithms: &str) -> String {
    both_ways("ah", 0x2000, "transport", algorithms)
}

fn tunnel(algorithms: &str) -> String {
    both_ways("esp", 0x3000, "tunnel", algorithms)
}

fn both_ways(protocol: &str, spi: u32, mode: &str, algorithms: &str) -> String {
    let one = |from, to, spi| format!("add {from} {to} {protocol} {spi} -m {mode} -r 64 {algorithms};\n");
    one(A, B, spi) + &one(B, A, spi + 1)
}

/// Puts what a file says into a host.
fn apply(now: Instant, host: &mut Interface<Ipsec>, file: &str) {
    let (engine, policies) = host.security().parts();
    setkey::apply(setkey::parse(file).unwrap(), engine, policies, now).unwrap();
}

/// One more end of the association that is the first of a file.
fn end_of(file: &str, now: Instant) -> Association {
    let Some(Command::Add(parameters, _)) = setkey::parse(file).unwrap().into_iter().next() else {
        panic!("an association first")
    };
    Association::new(*parameters, now).unwrap()
}

/// Two hosts that have these associations, A and B.
fn pair(file: &str) -> Link<Ipsec> {
    let now = Instant::now();
    let host = |number: u8, address| {
        let security = Ipsec::new(now, KeyEngine::new(), PolicyDatabase::new());
        let mut host = Interface::with_security(now, config(number), [number; 32], security);
        host.add_address(now, address, 64);
        host.set_on_link(now, "2001:db8::/64".parse().unwrap(), Lifetime::Infinite);
        apply(now, &mut host, file);
        host
    };
    let mut link = Link::with(now, vec![host(0, A), host(1, B)]);
    link.run(SECOND * 3);
    link.sent();
    link
}

fn require(link: &mut Link<Ipsec>, levels: Levels) {
    for host in &mut link.hosts {
        host.security().policies().set_system_levels(levels);
    }
}

/// A socket of a host, with levels.
fn socket(link: &mut Link<Ipsec>, host: usize, levels: Levels) -> SocketId {
    let id = link.hosts[host].udp_bind(at(ANY, PORT)).unwrap();
    link.hosts[host].udp_set_levels(id, levels).unwrap();
    id
}

/// A sends a datagram to B.
fn send(link: &mut Link<Ipsec>, id: SocketId, data: &[u8]) {
    link.hosts[0].udp_send(link.now, id, Some(at(B, PORT)), data).unwrap();
    link.run(SECOND);
}

fn received(link: &mut Link<Ipsec>, host: usize, id: SocketId) -> Vec<Vec<u8>> {
    let mut data = Vec::new();
    let mut all = Vec::new();
    while link.hosts[host].udp_receive(id, &mut data).is_some() {
        all.push(data.clone());
    }
    all
}

fn dropped(link: &mut Link<Ipsec>, host: usize, reason: DropReason) -> u64 {
    link.hosts[host].security().drops().of(reason)
}

/// Packets between the two that are not of neighbor discovery.
fn between(packets: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let is_ours = |packet: &Vec<u8>| {
        let view = Packet::parse(packet).unwrap();
        let ends = [view.source(), view.destination()];
        ends.contains(&A)
            && ends.contains(&B)
            && !matches!(packet[40..], [133..=137, ..] if packet[6] == protocol::ICMPV6)
    };
    packets.into_iter().filter(is_ours).collect()
}

/// What carries what: the levels, the associations, and the header that all packets have on the wire.
fn ways() -> Vec<(Levels, String, u8)> {
    let both = AH.stricter(ESP);
    vec![
        (ESP, esp(GCM), protocol::ESP),
        (ESP, esp(CHACHA), protocol::ESP),
        (ESP, esp(CBC), protocol::ESP),
        (AH, ah(SHA256), protocol::AUTHENTICATION),
        (AH, ah(GMAC), protocol::AUTHENTICATION),
        (both, esp(GCM) + &ah(SHA256), protocol::AUTHENTICATION),
        (both, esp(CBC) + &ah(GMAC), protocol::AUTHENTICATION),
        (TUNNEL, tunnel(GCM), protocol::ESP),
        (TUNNEL, tunnel(CBC), protocol::ESP),
        (both.stricter(TUNNEL), esp(CHACHA) + &ah(SHA256) + &tunnel(GCM), protocol::ESP),
    ]
}

#[test]
fn what_system_and_sockets_require_is_on_the_wire_and_arrives() {
    for (levels, file, header) in ways() {
        for of_system in [true, false] {
            let mut link = pair(&file);
            let of_socket = if of_system { Levels::NONE } else { levels };
            let (from, to) = (socket(&mut link, 0, of_socket), socket(&mut link, 1, of_socket));
            if of_system {
                // Neighbors are found nevertheless.
                require(&mut link, levels);
                assert!(link.ping(0, B), "{file}");
            }
            let data: Vec<u8> = (0..100).collect();
            send(&mut link, from, &data);
            assert_eq!(received(&mut link, 1, to), [&data[..]], "{file}");
            let sent = between(link.sent());
            assert!(!sent.is_empty() && sent.iter().all(|packet| packet[6] == header), "{file}");
            let shows = |packet: &Vec<u8>| packet.windows(data.len()).any(|window| window == data);
            assert_eq!(sent.iter().any(shows), levels == AH, "only AH shows what it carries");
            for host in &mut link.hosts {
                assert_eq!(host.security().drops().nonzero().count(), 0, "{file}");
            }
        }
    }
}

#[test]
fn what_is_larger_than_the_link_is_protected_first_and_fragmented_then() {
    for (levels, file, header) in ways() {
        let mut link = pair(&file);
        require(&mut link, levels);
        let (from, to) = (socket(&mut link, 0, Levels::NONE), socket(&mut link, 1, Levels::NONE));
        let data: Vec<u8> = (0..5000_u16).map(|at| (at % 251) as u8).collect();
        send(&mut link, from, &data);
        assert_eq!(received(&mut link, 1, to), [data], "{file}");
        let sent = between(link.sent());
        assert_eq!(sent.len(), 4, "{file}");
        for packet in sent {
            assert!(packet.len() <= 1500);
            assert_eq!((packet[6], packet[40]), (protocol::FRAGMENT, header), "{file}");
        }
        link.hosts[0].ping(link.now, B, 1, 9, &[7; 4000]).unwrap();
        link.run(SECOND);
        assert_eq!(link.replies(0), [(B, 9)], "{file}");
    }
}

#[test]
fn the_largest_payload_fits_the_link_with_all_that_protects_it() {
    for (levels, file, _) in ways() {
        let mut link = pair(&file);
        let (from, to) = (socket(&mut link, 0, levels), socket(&mut link, 1, levels));
        let traffic = ipsec::selector::Traffic {
            source: A.into(),
            destination: B.into(),
            protocol: protocol::UDP,
            detail: ipsec::selector::Detail::Ports { source: PORT, destination: PORT },
        };
        let policy = link.hosts[0].udp_policy(from);
        let largest = link.hosts[0].largest_payload_of(link.now, &traffic, policy.as_ref());
        assert!((1300..1460).contains(&largest), "{largest}");
        send(&mut link, from, &vec![1; largest - 8]);
        assert_eq!(received(&mut link, 1, to).len(), 1);
        let sent = between(link.sent());
        assert!(sent.len() == 1 && (1480..=1500).contains(&sent[0].len()), "{file} {}", sent[0].len());
        assert_eq!(link.hosts[0].largest_payload(link.now, B), 1460, "the system asks for nothing");
        require(&mut link, levels);
        assert_eq!(link.hosts[0].largest_payload(link.now, B), largest);
    }
}

#[test]
fn a_tunnel_may_have_other_ends_than_what_goes_through_it() {
    let inside = |host: u8| Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, host.into());
    let (from, to) = (inside(0xa), inside(0xb));
    let rules = |a, b, near, far| {
        format!(
            "spdadd {a} {b} any -P out ipsec esp/tunnel/{near}-{far}/require;
             spdadd {b} {a} any -P in ipsec esp/tunnel/{far}-{near}/require;"
        )
    };
    let now = Instant::now();
    let mut link = pair("");
    for (host, address, rules) in [(0, from, rules(from, to, A, B)), (1, to, rules(to, from, B, A))] {
        link.hosts[host].add_address(now, address, 64);
        apply(link.now, &mut link.hosts[host], &(tunnel(CHACHA) + &rules));
    }
    link.run(SECOND * 3);
    link.sent();
    let (sender, receiver) = (socket(&mut link, 0, Levels::NONE), socket(&mut link, 1, Levels::NONE));
    link.hosts[0].udp_send(link.now, sender, Some(at(to, PORT)), &[3; 3000]).unwrap();
    link.run(SECOND);
    assert_eq!(received(&mut link, 1, receiver), [[3; 3000]]);
    assert_eq!(between(link.sent()).len(), 3, "between the tunnel's ends");
    assert!(link.ping(1, from));
    send(&mut link, sender, b"beside the tunnel");
    assert_eq!(received(&mut link, 1, receiver).len(), 1);
}

#[test]
fn ipv4_has_the_same_security() {
    let address = |host: u8| std::net::Ipv4Addr::new(192, 0, 2, host).to_ipv6_mapped();
    let ways = ways().into_iter().filter(|(levels, ..)| levels.tunnel_encryption == Level::None);
    for (levels, file, header) in ways {
        let file = file.replace("2001:db8::a", "192.0.2.1").replace("2001:db8::b", "192.0.2.2");
        let mut link = pair(&file);
        for (index, host) in link.hosts.iter_mut().enumerate() {
            let net = format!("192.0.2.{}/24", index + 1).parse().unwrap();
            host.set_ipv4(Some(stack::ipv4::Ipv4 { address: net, gateway: None }));
        }
        require(&mut link, levels);
        let (from, to) = (socket(&mut link, 0, Levels::NONE), socket(&mut link, 1, Levels::NONE));
        link.hosts[0].udp_send(link.now, from, Some(at(address(2), PORT)), &[4; 3000]).unwrap();
        link.run(SECOND);
        assert_eq!(received(&mut link, 1, to), [[4; 3000]], "{file}");
        let packets = link.others.iter().filter(|frame| frame[12..14] == [8, 0]);
        assert!(packets.clone().count() == 3 && packets.clone().all(|frame| frame[14 + 9] == header));
        link.hosts[1].security().policies().set_system_levels(AH.stricter(ESP).stricter(TUNNEL));
        link.hosts[0].udp_send(link.now, from, Some(at(address(2), PORT)), b"less").unwrap();
        link.run(SECOND);
        assert_eq!(received(&mut link, 1, to), [[0; 0]; 0]);
    }
}

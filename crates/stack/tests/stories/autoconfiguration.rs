//! Addresses: RFC 4862, RFC 7527, RFC 3810.

use std::net::Ipv6Addr;
use std::time::Instant;

use stack::interface::{Config, Event, Interface, Medium};
use stack::{DropReason, autoconf};
use wire::icmpv6;
use wire::ipv6::Packet;
use wire::ndp::{self, ALL_NODES, DuplicateSolicitation, Message, Nonce, multicast_mac, solicited_node};

use crate::link::{Link, MINUTE, SECOND, advertisement, config, icmp_type, mac, prefix};

#[test]
fn rfc_4862_4_1_a_host_comes_up_by_itself() {
    let mut link = Link::new(2);
    link.add_router(1);
    link.run(SECOND * 5);
    let (a, b) = (link.global(0), link.global(1));
    assert!(a.segments()[..4] == [0x2001, 0xdb8, 1, 0] && a != b);
    assert!(link.ping(0, b));
}

#[test]
fn rfc_4862_5_4_2_the_group_is_joined_before_the_address_is_searched_for() {
    let mut link = Link::new(1);
    link.run(SECOND * 3);
    let kinds: Vec<_> = link.seen.iter().filter_map(|(_, packet)| icmp_type(packet)).collect();
    let report = kinds.iter().position(|kind| *kind == icmpv6::MULTICAST_LISTENER_REPORT).unwrap();
    let search = kinds.iter().position(|kind| *kind == icmpv6::NEIGHBOR_SOLICITATION).unwrap();
    assert!(report < search);
    let address = link.link_local(0);
    let sent = link.sent();
    let packet = Packet::parse(&sent[search]).unwrap();
    assert_eq!((packet.source(), packet.destination()), (Ipv6Addr::UNSPECIFIED, solicited_node(address)));
    assert!(matches!(ndp::parse(&packet).unwrap(), Message::NeighborSolicitation { nonce: Some(_), .. }));
}

#[test]
fn rfc_4862_5_4_2_hosts_that_start_together_do_not_report_their_groups_together() {
    let mut link = Link::new(8);
    link.run(SECOND / 20);
    let early = link.count(icmpv6::MULTICAST_LISTENER_REPORT);
    assert!(early < 4, "{early} of 8 in the first twentieth of the second");
    // What is asked in between is heard all the same.
    link.run(SECOND * 3);
    assert!(link.count(icmpv6::MULTICAST_LISTENER_REPORT) >= 8);
}

#[test]
fn rfc_4862_5_1_an_address_is_searched_for_as_often_as_is_configured() {
    for transmits in [0, 1, 3] {
        let now = Instant::now();
        let autoconf = autoconf::Config { duplicate_transmits: transmits, ..config(0).autoconf };
        let host = Interface::new(now, Config { autoconf, routers: false, ..config(0) }, [0; 32]);
        let mut link = Link::with(now, vec![host]);
        link.run(SECOND * 10);
        assert_eq!(link.count(icmpv6::NEIGHBOR_SOLICITATION), usize::from(transmits));
        assert!(link.hosts[0].addresses().link_local().is_some());
    }
}

#[test]
fn rfc_4862_5_4_of_two_hosts_with_the_same_address_one_takes_another() {
    let now = Instant::now();
    let second = Config { medium: Medium::Ethernet(mac(1)), ..config(0) };
    let hosts = vec![Interface::new(now, config(0), [1; 32]), Interface::new(now, second, [2; 32])];
    let mut link = Link::with(now, hosts);
    link.add_router(1);
    link.run(SECOND * 10);
    assert_ne!(link.link_local(0), link.link_local(1));
    assert_ne!(link.global(0), link.global(1));
    let (a, b) = (link.global(0), link.global(1));
    assert!(link.ping(0, b) && link.ping(1, a));
}

#[test]
fn rfc_4862_5_4_3_an_address_that_is_ours_is_defended() {
    let mut link = Link::new(1);
    link.run(SECOND * 3);
    link.sent();
    let target = link.link_local(0);
    let search = DuplicateSolicitation { target, nonce: Nonce([9; 6]) }.to_packet();
    link.inject(mac(9), multicast_mac(solicited_node(target)), &search);
    let sent = link.sent();
    let answer = Packet::parse(&sent[0]).unwrap();
    assert_eq!(answer.destination(), ALL_NODES);
    assert!(matches!(
        ndp::parse(&answer).unwrap(),
        Message::NeighborAdvertisement { target: of, solicited: false, r#override: true, .. } if of == target
    ));
    assert_eq!(link.link_local(0), target);
}

#[test]
fn rfc_4862_5_4_5_when_all_are_duplicates_the_caller_knows() {
    let mut link = Link::new(1);
    for _ in 0..4 {
        let target = link.hosts[0].addresses().iter().next().unwrap().address;
        let search = DuplicateSolicitation { target, nonce: Nonce([9; 6]) }.to_packet();
        link.inject(mac(9), multicast_mac(solicited_node(target)), &search);
    }
    assert_eq!(link.hosts[0].addresses().iter().count(), 0);
    let events = std::iter::from_fn(|| link.hosts[0].poll_event());
    let duplicate = |event: &Event| matches!(event, Event::Address(autoconf::Event::Duplicate(_)));
    assert_eq!(events.filter(duplicate).count(), 4);
}

#[test]
fn rfc_7527_on_a_link_with_a_loop_a_host_keeps_its_address() {
    let mut link = Link::new(1);
    link.loops = true;
    link.run(SECOND * 20);
    link.loops = false;
    assert!(link.hosts[0].addresses().link_local().is_none(), "it goes on searching");
    link.run(SECOND * 20);
    assert!(link.hosts[0].addresses().link_local().is_some());
}

#[test]
fn rfc_4862_5_5_4_a_deprecated_address_is_used_for_what_goes_on_only() {
    let mut link = Link::new(1);
    link.add_router(1);
    link.routers[0].says = Some(advertisement(vec![prefix("2001:db8:1::", 600, 7200)]));
    link.run(SECOND * 5);
    let old = link.global(0);
    link.run(MINUTE * 11);
    let to = "2001:db8:1::99".parse().unwrap();
    assert_eq!(link.hosts[0].source_for(link.now, to), Some(old), "there is no other");
    let renumbered = advertisement(vec![prefix("2001:db8:2::", 600, 7200)]);
    link.advertise(0, &renumbered);
    link.routers[0].says = Some(renumbered);
    link.run(SECOND * 5);
    let chosen = link.hosts[0].source_for(link.now, to).unwrap();
    assert_eq!(chosen.segments()[2], 2);
    link.run(MINUTE * 120);
    assert!(!link.hosts[0].addresses().is_assigned(old));
}

#[test]
fn rfc_4862_5_4_packets_to_a_tentative_address_are_dropped() {
    let mut link = Link::new(1);
    let tentative = link.hosts[0].addresses().iter().next().unwrap().address;
    let mut request = advertisement(vec![]).to_packet("fe80::1".parse().unwrap(), tentative);
    request[40] = icmpv6::ECHO_REQUEST;
    link.inject(mac(9), mac(0), &request);
    assert_eq!(link.hosts[0].drops().of(DropReason::NotForUs), 1);
}

#[test]
fn a_host_at_the_end_of_a_tunnel_has_its_address_at_once_and_says_nothing_of_groups() {
    let now = Instant::now();
    let config = Config { medium: Medium::Ip, routers: false, ..config(0) };
    let mut host = Interface::new(now, config, [1; 32]);
    assert!(host.addresses().link_local().is_some());
    host.add_address(now, "2001:db8::1".parse().unwrap(), 128);
    host.ping(now, "2001:db8::2".parse().unwrap(), 1, 1, b"").unwrap();
    let mut packet = Vec::new();
    assert!(host.poll_transmit(&mut packet));
    let view = Packet::parse(&packet).unwrap();
    assert_eq!(view.source(), "2001:db8::1".parse::<Ipv6Addr>().unwrap());
    assert!(!host.poll_transmit(&mut packet));
}

//! What a message of neighbor discovery must be like to be believed: RFC 4861 §6.1, §7.1, §8.1, check by check, and what is
//! left alone: reserved fields, unknown options (§4, §9).

use std::net::Ipv6Addr;

use wire::checksum::Sum;
use wire::ndp::{ALL_NODES, multicast_mac, solicited_node};
use wire::{icmpv6, ipv6, protocol};

use crate::link::{FAR, Link, SECOND, mac};

/// A message, and the packet that it comes in.
#[derive(Clone)]
struct Said {
    source: Ipv6Addr,
    destination: Ipv6Addr,
    hop_limit: u8,
    message: Vec<u8>,
    damage: u8,
}

impl Said {
    fn new(source: Ipv6Addr, destination: Ipv6Addr, parts: &[&[u8]]) -> Self {
        Said { source, destination, hop_limit: 255, message: parts.concat(), damage: 0 }
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut said = self.clone();
        change(&mut said);
        said
    }

    fn packet(&self) -> Vec<u8> {
        let mut message = self.message.clone();
        message[2..4].fill(0);
        let (source, destination, length) = (self.source, self.destination, message.len());
        let sum = Sum::pseudo_ipv6(source, destination, length as u32, protocol::ICMPV6) + Sum::of(&message);
        message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
        message[3] ^= self.damage;
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: length as u16,
            next_header: protocol::ICMPV6,
            hop_limit: self.hop_limit,
            source,
            destination,
        };
        [&header.to_bytes()[..], &message].concat()
    }
}

/// What is wrong with a message, by its name.
type Fault = (&'static str, fn(&mut Said));

/// What no message may be like, and what each may: the checks that all have in common.
fn check(said: &Said, fixed: usize, believed: impl Fn(&Said) -> bool) {
    assert!(believed(said));
    let unbelievable: [Fault; 5] = [
        ("hop limit", |said| said.hop_limit = 254),
        ("checksum", |said| said.damage = 1),
        ("code", |said| said.message[1] = 1),
        ("option of length 0", |said| said.message.extend([200, 0, 0, 0, 0, 0, 0, 0])),
        ("option that ends early", |said| said.message.extend([200, 2, 0, 0, 0, 0, 0, 0])),
    ];
    for (what, change) in unbelievable {
        assert!(!believed(&said.with(change)), "{what}");
    }
    assert!(!believed(&said.with(|said| said.message.truncate(fixed - 1))), "length");
    assert!(believed(&said.with(|said| said.message.extend([200, 1, 1, 2, 3, 4, 5, 6]))), "unknown option");
}

fn alone() -> Link {
    let mut link = Link::new(1);
    link.run(SECOND * 3);
    link.sent();
    link
}

const THEM: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x77);
const SOURCE: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 77];
const TARGET: [u8; 8] = [2, 1, 2, 0, 0, 0, 0, 77];

#[test]
fn rfc_4861_7_1_1_a_neighbor_solicitation_is_checked() {
    let us = alone().link_local(0);
    let answered = |said: &Said| {
        let mut link = alone();
        link.inject(mac(77), mac(0), &said.packet());
        link.count(icmpv6::NEIGHBOR_ADVERTISEMENT) > 0
    };
    let head = [icmpv6::NEIGHBOR_SOLICITATION, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let said = Said::new(THEM, us, &[&head, &us.octets(), &SOURCE]);
    check(&said, 24, answered);
    let to_a_group = said.with(|said| said.message[8..24].copy_from_slice(&ALL_NODES.octets()));
    assert!(!answered(&to_a_group), "multicast target");
    let search = Said::new(Ipv6Addr::UNSPECIFIED, solicited_node(us), &[&head, &us.octets()]);
    assert!(answered(&search));
    assert!(!answered(&search.with(|said| said.destination = ALL_NODES)), "a search goes to its group");
    assert!(!answered(&search.with(|said| said.destination = us)), "a search goes to its group");
    assert!(!answered(&search.with(|said| said.message.extend(SOURCE))), "a search tells no address");
}

#[test]
fn rfc_4861_7_2_3_a_solicitation_for_nobody_here_or_a_tentative_address_is_discarded() {
    let mut link = Link::new(1);
    let tentative = link.hosts[0].addresses().iter().next().unwrap().address;
    let head = [icmpv6::NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    let ask = |link: &mut Link, target: Ipv6Addr, source, options: &[u8]| {
        link.sent();
        let said = Said::new(source, solicited_node(target), &[&head, &target.octets(), options]);
        link.inject(mac(77), multicast_mac(solicited_node(target)), &said.packet());
        (link.count(icmpv6::NEIGHBOR_ADVERTISEMENT), link.hosts[0].neighbors().len())
    };
    assert_eq!(ask(&mut link, tentative, THEM, &SOURCE), (0, 0), "RFC 4862 §5.4.3");
    link.run(SECOND * 3);
    let ours = link.link_local(0);
    assert_eq!(ours, tentative);
    assert_eq!(ask(&mut link, THEM, THEM, &SOURCE), (0, 0));
    assert_eq!(ask(&mut link, ours, Ipv6Addr::UNSPECIFIED, &[]), (1, 0), "nothing is learnt of nobody");
    assert_eq!(ask(&mut link, ours, THEM, &SOURCE), (1, 1));
}

#[test]
fn rfc_4861_7_2_4_who_asks_without_an_address_is_asked_for_it_first() {
    let mut link = alone();
    let us = link.link_local(0);
    let head = [icmpv6::NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    link.inject(mac(77), mac(0), &Said::new(THEM, us, &[&head, &us.octets()]).packet());
    let counts = [icmpv6::NEIGHBOR_SOLICITATION, icmpv6::NEIGHBOR_ADVERTISEMENT].map(|kind| link.count(kind));
    assert_eq!(counts, [1, 0]);
    let head = [icmpv6::NEIGHBOR_ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0];
    link.inject(mac(77), mac(0), &Said::new(THEM, us, &[&head, &THEM.octets(), &TARGET]).packet());
    let (to, answer) = link.seen.last().unwrap();
    assert_eq!((*to, answer[40], answer[44]), (mac(77), icmpv6::NEIGHBOR_ADVERTISEMENT, 0x60));
}

#[test]
fn rfc_4861_7_1_2_a_neighbor_advertisement_is_checked() {
    let us = alone().link_local(0);
    let believed = |said: &Said| {
        let mut link = alone();
        assert_eq!(link.hosts[0].ping(link.now, THEM, 1, 1, b""), Ok(()));
        link.inject(mac(77), mac(0), &said.packet());
        link.hosts[0].neighbors().link_layer(THEM) == Some(mac(77))
    };
    let head = [icmpv6::NEIGHBOR_ADVERTISEMENT, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff];
    let said = Said::new(THEM, us, &[&head, &THEM.octets(), &TARGET]);
    check(&said, 24, believed);
    assert!(!believed(&said.with(|said| said.destination = ALL_NODES)), "solicited, and to all");
    let to_all = said.with(|said| (said.destination, said.message[4]) = (ALL_NODES, 0x20));
    assert!(believed(&to_all));
    let of_a_group = said.with(|said| said.message[8..24].copy_from_slice(&ALL_NODES.octets()));
    assert!(!believed(&of_a_group), "multicast target");
}

#[test]
fn rfc_4861_6_1_2_a_router_advertisement_is_checked() {
    let believed = |said: &Said| {
        let mut link = alone();
        link.inject(mac(77), multicast_mac(ALL_NODES), &said.packet());
        link.hosts[0].default_routers().next() == Some(THEM)
    };
    let fixed = [icmpv6::ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0x07, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    let said = Said::new(THEM, ALL_NODES, &[&fixed, &SOURCE]);
    check(&said, 16, believed);
    assert!(!believed(&said.with(|said| said.source = FAR)), "not of the link");
}

#[test]
fn rfc_4861_8_1_a_redirect_is_checked() {
    let routed = || {
        let mut link = Link::new(1);
        link.add_router(1);
        link.run(SECOND * 5);
        link
    };
    let (us, router) = (routed().global(0), routed().routers[0].address);
    let believed = |said: &Said| {
        let mut link = routed();
        link.inject(mac(101), mac(0), &said.packet());
        link.hosts[0].destinations().iter().any(|(to, hop, _)| to == FAR && hop == Some(THEM))
    };
    let head = [icmpv6::REDIRECT, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    let said = Said::new(router, us, &[&head, &THEM.octets(), &FAR.octets(), &TARGET]);
    check(&said, 40, believed);
    assert!(!believed(&said.with(|said| said.source = FAR)), "not of the link");
    let global: Ipv6Addr = "2001:db8:1::77".parse().unwrap();
    let to_global = said.with(|said| said.message[8..24].copy_from_slice(&global.octets()));
    let mut link = routed();
    link.inject(mac(101), mac(0), &to_global.packet());
    assert_eq!(
        link.hosts[0].destinations().iter().count(),
        0,
        "neither a router's address nor the destination"
    );
    let of_a_group = said.with(|said| said.message[24..40].copy_from_slice(&ALL_NODES.octets()));
    let mut link = routed();
    link.inject(mac(101), mac(0), &of_a_group.packet());
    assert_eq!(link.hosts[0].destinations().iter().count(), 0, "multicast destination");
    let mut link = routed();
    link.inject(mac(101), mac(0), &said.packet());
    let known = link.hosts[0].neighbors();
    assert_eq!(known.link_layer(THEM), Some(mac(77)));
    assert_eq!(known.state(THEM), Some(stack::neighbor::State::Stale), "8.3");
}

#[test]
fn rfc_4861_6_2_6_and_8_3_a_host_answers_no_solicitation_of_routers_and_redirects_nobody() {
    let mut link = alone();
    let head = [icmpv6::ROUTER_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    let all_routers = "ff02::2".parse().unwrap();
    let said = Said::new(THEM, all_routers, &[&head, &SOURCE]);
    link.inject(mac(77), multicast_mac(all_routers), &said.packet());
    link.inject(mac(77), mac(0), &said.with(|said| said.destination = link.link_local(0)).packet());
    link.run(SECOND * 60);
    let not_ours = [icmpv6::ROUTER_ADVERTISEMENT, icmpv6::REDIRECT, icmpv6::NEIGHBOR_ADVERTISEMENT];
    assert_eq!(not_ours.map(|kind| link.count(kind)), [0; 3]);
    assert_eq!(link.hosts[0].neighbors().len(), 0);
}

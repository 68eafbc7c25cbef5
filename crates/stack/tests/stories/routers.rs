//! Routers: RFC 4861 §6.3 and §8, RFC 4191, RFC 5942, RFC 8106.

use std::net::Ipv6Addr;

use stack::DropReason;
use stack::interface::SendError;
use wire::icmpv6;
use wire::ipv6::Packet;
use wire::ndp::{AdvertisedOption, NeighborAdvertisement, Preference, Redirect, RouterAdvertisement};

use crate::link::{FAR, Link, MINUTE, SECOND, advertisement, mac, prefix};

/// A host that two routers have answered.
fn routed() -> Link {
    let mut link = Link::new(1);
    link.add_router(1);
    link.add_router(2);
    link.run(SECOND * 5);
    link.sent();
    link
}

/// Which router gets a packet to far away.
fn used(link: &mut Link, to: Ipv6Addr) -> Option<usize> {
    link.routers.iter_mut().for_each(|router| router.forwarded.clear());
    link.hosts[0].ping(link.now, to, 1, 1, b"").ok()?;
    link.run(SECOND / 10);
    link.routers.iter().position(|router| !router.forwarded.is_empty())
}

#[test]
fn rfc_4861_6_3_7_routers_are_asked_for_until_one_answers() {
    let mut link = Link::new(1);
    link.run(MINUTE * 2);
    let asked = link.count(icmpv6::ROUTER_SOLICITATION);
    assert!((5..=6).contains(&asked), "at 0, 4, 12, 28, 60 seconds: {asked}");
    assert_eq!(link.hosts[0].ping(link.now, FAR, 1, 1, b""), Err(SendError::Dropped(DropReason::NoRoute)));
    link.add_router(1);
    link.run(MINUTE * 2);
    assert_eq!(link.hosts[0].default_routers().count(), 1);
    link.sent();
    link.run(MINUTE * 25);
    assert_eq!(link.count(icmpv6::ROUTER_SOLICITATION), 0);
    link.run(MINUTE * 10);
    assert!(link.count(icmpv6::ROUTER_SOLICITATION) > 0, "and again when it is gone");
}

#[test]
fn rfc_4861_6_1_2_advertisements_from_elsewhere_are_not_believed() {
    let mut link = Link::new(1);
    link.run(SECOND * 3);
    let packet = advertisement(vec![]).to_packet("fe80::1".parse().unwrap(), link.link_local(0));
    let mut far = packet.clone();
    far[7] = 254;
    let mut damaged = packet;
    damaged[50] ^= 1;
    let global = advertisement(vec![]).to_packet(FAR, link.link_local(0));
    for packet in [far, damaged, global] {
        link.inject(mac(9), mac(0), &packet);
    }
    assert_eq!(link.hosts[0].default_routers().count(), 0);
}

#[test]
fn rfc_4861_6_3_4_hop_limit_mtu_and_lifetime_are_as_said() {
    let mut link = routed();
    let said = RouterAdvertisement { hop_limit: 9, ..advertisement(vec![AdvertisedOption::Mtu(1400)]) };
    link.advertise(0, &said);
    assert_eq!(link.hosts[0].path_mtu(link.now, FAR), 1400);
    assert_eq!(used(&mut link, FAR), Some(0));
    assert_eq!(Packet::parse(&link.routers[0].forwarded[0]).unwrap().hop_limit(), 9);
    for impossible in [1279, 1501, u32::MAX] {
        link.advertise(0, &advertisement(vec![AdvertisedOption::Mtu(impossible)]));
        assert_eq!(link.hosts[0].path_mtu(link.now, FAR), 1400);
    }
    link.advertise(0, &RouterAdvertisement { router_lifetime: 0, ..said });
    assert_eq!(used(&mut link, FAR), Some(1));
}

#[test]
fn rfc_4861_6_3_4_the_mtu_of_a_router_is_within_1280_and_what_the_device_carries() {
    let mut link = routed();
    for (said, mtu) in
        [(1280, 1280), (1279, 1280), (0, 1280), (1500, 1500), (1501, 1500), (9000, 1500), (u32::MAX, 1500)]
    {
        link.advertise(0, &advertisement(vec![AdvertisedOption::Mtu(said)]));
        assert_eq!(link.hosts[0].link_mtu(), mtu, "{said}");
    }
}

#[test]
fn rfc_4861_6_3_4_what_an_advertisement_leaves_open_stays_as_it_was() {
    let mut link = routed();
    let timer = link.hosts[0].neighbors().retrans_timer();
    let said = RouterAdvertisement { hop_limit: 9, retransmission_timer: 3000, ..advertisement(vec![]) };
    link.advertise(0, &said);
    let silent = RouterAdvertisement { hop_limit: 0, retransmission_timer: 0, ..said.clone() };
    link.advertise(0, &silent);
    assert_ne!(link.hosts[0].neighbors().retrans_timer(), timer);
    assert_eq!(link.hosts[0].neighbors().retrans_timer(), SECOND * 3);
    assert_eq!(used(&mut link, FAR), Some(0));
    assert_eq!(Packet::parse(&link.routers[0].forwarded[0]).unwrap().hop_limit(), 9);
}

#[test]
fn rfc_4861_6_3_5_a_default_router_ends_with_its_lifetime() {
    let mut link = routed();
    for router in 0..2 {
        link.advertise(router, &RouterAdvertisement { router_lifetime: 60, ..advertisement(vec![]) });
        link.routers[router].says = None;
    }
    link.run(SECOND * 59);
    assert!(used(&mut link, FAR).is_some());
    link.run(SECOND * 2);
    assert_eq!(link.hosts[0].default_routers().count(), 0);
}

#[test]
fn rfc_4861_6_3_6_a_router_that_is_dead_is_left_within_eight_seconds() {
    let mut link = routed();
    let first = used(&mut link, FAR).unwrap();
    link.run(MINUTE);
    link.routers[first].alive = false;
    assert_eq!(used(&mut link, FAR), None);
    link.run(SECOND * 9);
    assert_eq!(used(&mut link, FAR), Some(1 - first));
}

#[test]
fn rfc_4861_7_3_3_a_router_that_becomes_a_host_is_left_at_once() {
    let mut link = routed();
    let first = used(&mut link, FAR).unwrap();
    let (address, from) = (link.routers[first].address, link.routers[first].mac);
    let answer = NeighborAdvertisement::answer(link.link_local(0), address, from, false);
    link.inject(from, mac(0), &answer.to_packet());
    assert_eq!(used(&mut link, FAR), Some(1 - first));
}

#[test]
fn rfc_4191_3_1_preferences_and_routes_to_networks() {
    let mut link = routed();
    link.advertise(1, &RouterAdvertisement { preference: Preference::High, ..advertisement(vec![]) });
    assert_eq!(used(&mut link, FAR), Some(1));
    let route = AdvertisedOption::Route {
        prefix: "2001:db8:9::".parse().unwrap(),
        prefix_length: 48,
        preference: Preference::Low,
        lifetime: 600,
    };
    link.advertise(0, &advertisement(vec![route]));
    assert_eq!(used(&mut link, FAR), Some(0));
    assert_eq!(used(&mut link, "2001:db8:8::1".parse().unwrap()), Some(1));
    link.run(MINUTE * 11);
    assert_eq!(used(&mut link, FAR), Some(1));
}

#[test]
fn rfc_5942_4_a_prefix_that_is_not_said_to_be_on_the_link_goes_to_the_router() {
    let mut link = Link::new(2);
    link.add_router(1);
    let AdvertisedOption::Prefix(mut said) = prefix("2001:db8:1::", 3600, 3600) else { panic!("no prefix") };
    said.on_link = false;
    link.routers[0].says = Some(advertisement(vec![AdvertisedOption::Prefix(said)]));
    link.run(SECOND * 5);
    let them = link.global(1);
    assert_eq!(used(&mut link, them), Some(0), "though both have an address in it");
}

#[test]
fn rfc_4191_3_5_a_better_router_is_asked_for_and_taken_when_it_answers() {
    let mut link = Link::new(1);
    link.add_router(1);
    link.run(SECOND * 5);
    link.add_router(2);
    assert_eq!(used(&mut link, FAR), Some(0));
    // Without a link-layer address, so that nothing is known of it.
    let said = RouterAdvertisement { preference: Preference::High, ..advertisement(vec![]) };
    let (address, from) = (link.routers[1].address, link.routers[1].mac);
    link.inject(from, mac(0), &said.to_packet(address, link.link_local(0)));
    assert_eq!(used(&mut link, FAR), Some(0), "while it is asked for");
    assert_eq!(used(&mut link, FAR), Some(1));
}

fn redirect(link: &Link, by: usize, target: Ipv6Addr, to: Ipv6Addr) -> (Vec<u8>, wire::ethernet::MacAddress) {
    let router = &link.routers[by];
    let redirect = Redirect {
        source: router.address,
        receiver: link.global(0),
        target,
        destination: to,
        target_link_layer: None,
        redirected: &[],
    };
    (redirect.to_packet(), router.mac)
}

#[test]
fn rfc_4861_8_3_a_redirect_leads_to_another_router() {
    let mut link = routed();
    let first = used(&mut link, FAR).unwrap();
    let (packet, from) = redirect(&link, first, link.routers[1 - first].address, FAR);
    link.inject(from, mac(0), &packet);
    assert_eq!(used(&mut link, FAR), Some(1 - first));
    assert_eq!(used(&mut link, "2001:db8:8::1".parse().unwrap()), Some(first), "and no other destination");
}

#[test]
fn rfc_4861_6_3_5_what_was_redirected_to_a_router_goes_elsewhere_when_its_lifetime_ends() {
    let at_once = RouterAdvertisement { router_lifetime: 0, ..advertisement(vec![]) };
    let by_itself = RouterAdvertisement { router_lifetime: 5, ..advertisement(vec![]) };
    for said in [at_once, by_itself] {
        let mut link = routed();
        let first = used(&mut link, FAR).unwrap();
        let (packet, from) = redirect(&link, first, link.routers[1 - first].address, FAR);
        link.inject(from, mac(0), &packet);
        assert_eq!(used(&mut link, FAR), Some(1 - first));
        link.routers[1 - first].says = None;
        link.advertise(1 - first, &said);
        link.run(SECOND * 6);
        assert_eq!(used(&mut link, FAR), Some(first));
    }
}

#[test]
fn rfc_4861_8_3_a_redirect_says_that_a_destination_is_on_the_link() {
    let mut link = routed();
    let first = used(&mut link, FAR).unwrap();
    let (packet, from) = redirect(&link, first, FAR, FAR);
    link.inject(from, mac(0), &packet);
    link.sent();
    assert_eq!(used(&mut link, FAR), None);
    assert_eq!(link.count(icmpv6::NEIGHBOR_SOLICITATION), 1);
    link.run(SECOND * 4);
    assert_eq!(used(&mut link, FAR), Some(first), "it is not, and the router is asked again");
}

#[test]
fn rfc_4861_8_1_a_redirect_from_who_is_not_the_first_hop_is_ignored() {
    let mut link = routed();
    let first = used(&mut link, FAR).unwrap();
    let (packet, from) = redirect(&link, 1 - first, link.routers[1 - first].address, FAR);
    link.inject(from, mac(0), &packet);
    assert_eq!(used(&mut link, FAR), Some(first));
    assert_eq!(link.hosts[0].drops().of(DropReason::ForeignRedirect), 1);
}

#[test]
fn rfc_8106_5_3_dns_servers_are_collected() {
    let mut link = routed();
    let server: Ipv6Addr = "2001:db8::53".parse().unwrap();
    let option = AdvertisedOption::DnsServers { lifetime: 600, servers: vec![server] };
    link.advertise(0, &advertisement(vec![option]));
    assert_eq!(link.hosts[0].dns_servers().collect::<Vec<_>>(), [server]);
    link.run(MINUTE * 11);
    assert_eq!(link.hosts[0].dns_servers().count(), 0);
}

//! Where security goes: a toy that puts a header before what leaves and takes it away from what comes.

use std::net::Ipv6Addr;
use std::ops::Range;
use std::time::Instant;

use ipsec::policy::Socket;
use ipsec::selector::Traffic;
use stack::DropReason;
use stack::host::Host;
use stack::icmpv6::ErrorReport;
use stack::interface::{Config, Interface, Medium};
use stack::security::{Overhead, Protected, Refused, Security, Sender};
use wire::ipv6::HEADER_LEN;
use wire::ndp::NeighborAdvertisement;
use wire::protocol;

use crate::hosts::TCP;
use crate::link::{ANY, Link, SECOND, at, config, mac};

const TOY_LEN: usize = 24;

/// Puts a header of 24 octets, of the type of ESP, between IPv6 header and upper layer: eight octets of its own, the type of
/// what follows, padding.
#[derive(Default)]
struct Toy {
    required: bool,
    forbids: bool,
}

impl Security for Toy {
    type Protection = bool;

    fn protect(
        &mut self,
        _: Instant,
        packet: &mut Vec<u8>,
        start: usize,
        _: Sender<'_>,
    ) -> Result<Protected, Refused> {
        if self.forbids {
            return Err(Refused);
        }
        let mut header = [0; TOY_LEN];
        header[8] = std::mem::replace(&mut packet[start + 6], protocol::ESP);
        packet.splice(start + HEADER_LEN..start + HEADER_LEN, header);
        let length = (packet.len() - start - HEADER_LEN) as u16;
        packet[start + 4..start + 6].copy_from_slice(&length.to_be_bytes());
        Ok(Protected::Send(start..packet.len()))
    }

    fn passes(&self, _: Instant, _: &Traffic, _: Option<&Socket>) -> bool {
        false
    }

    fn open(&mut self, _: Instant, packet: &mut [u8], opened: &mut bool) -> Result<Range<usize>, Refused> {
        if packet.len() < HEADER_LEN + TOY_LEN {
            return Err(Refused);
        }
        packet[6] = packet[HEADER_LEN + 8];
        let length = (packet.len() - HEADER_LEN - TOY_LEN) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet.copy_within(..HEADER_LEN, TOY_LEN);
        *opened = true;
        Ok(TOY_LEN..packet.len())
    }

    fn admits(&mut self, _: &Traffic, opened: &bool, _: Option<&Socket>) -> bool {
        *opened || !self.required
    }

    fn class(&self, opened: &bool) -> u8 {
        u8::from(*opened)
    }

    fn has_sent(&self, _: &ErrorReport<'_>) -> bool {
        true
    }

    fn overhead(&self, _: Instant, _: &Traffic, _: Option<&Socket>) -> Overhead {
        Overhead { front: None, octets: TOY_LEN, far_end: None }
    }
}

fn two() -> Link<Toy> {
    let now = Instant::now();
    let host = |number| Interface::with_security(now, config(number), [number; 32], Toy::default());
    let mut link = Link::with(now, vec![host(0), host(1)]);
    link.run(SECOND * 3);
    link.sent();
    link
}

#[test]
fn what_leaves_is_protected_before_it_is_fragmented_and_opened_when_it_is_whole() {
    let mut link = two();
    let them = link.link_local(1);
    link.hosts[1].security().required = true;
    link.hosts[0].ping(link.now, them, 1, 5, &vec![1; 4000]).unwrap();
    link.run(SECOND);
    assert_eq!(link.replies(0), [(them, 5)]);
    let sent = link.sent();
    let fragments: Vec<_> = sent.iter().filter(|packet| packet[6] == protocol::FRAGMENT).collect();
    assert_eq!(fragments.len(), 6, "three there and three back");
    assert!(fragments.iter().all(|packet| packet[40] == protocol::ESP));
    assert_eq!(link.hosts[0].largest_payload(link.now, them), 1500 - 40 - TOY_LEN);
}

#[test]
fn neighbor_discovery_out_of_a_tunnel_is_not_believed() {
    let mut link = two();
    let (us, them) = (link.link_local(0), link.link_local(1));
    link.hosts[0].ping(link.now, them, 1, 5, b"").unwrap();
    link.run(SECOND);
    let mut lie = NeighborAdvertisement::answer(us, them, mac(77), false).to_packet().to_vec();
    Toy::default().protect(link.now, &mut lie, 0, Sender::Own(None)).unwrap();
    link.inject(mac(77), mac(0), &lie);
    assert_eq!(link.hosts[0].drops().of(DropReason::InvalidDiscovery), 1);
    assert_eq!(link.hosts[0].neighbors().link_layer(them), Some(mac(1)));
}

#[test]
fn what_is_not_protected_is_not_admitted_but_neighbors_are_found() {
    let mut link = two();
    link.hosts[1].security().required = true;
    let mut plain = Link::new(1);
    plain.run(SECOND * 3);
    let them = link.link_local(1);
    plain.hosts[0].ping(plain.now, them, 1, 5, b"").unwrap();
    let mut frame = Vec::new();
    // Question, answer and request, carried from one link to the other.
    for _ in 0..3 {
        while plain.hosts[0].poll_transmit(&mut frame) {
            link.hosts[1].receive(link.now, &frame, &mut stack::interface::NoUpper);
        }
        while link.hosts[1].poll_transmit(&mut frame) {
            plain.hosts[0].receive(plain.now, &frame, &mut stack::interface::NoUpper);
        }
    }
    assert_eq!(link.hosts[1].drops().of(DropReason::Security), 1);
    assert_eq!(plain.replies(0), []);
}

#[test]
fn what_the_policy_forbids_is_not_sent_and_the_caller_knows() {
    let mut link = two();
    link.hosts[0].security().forbids = true;
    let them = link.link_local(1);
    assert_eq!(link.hosts[0].ping(link.now, them, 1, 5, b""), Err(stack::interface::SendError::Security));
    link.run(SECOND);
    assert!(link.sent().is_empty());
}

#[test]
fn tcp_leaves_room_for_what_security_adds() {
    let now = Instant::now();
    let mut hosts = [1, 2].map(|number| {
        let config = Config { medium: Medium::Ip, routers: false, ..config(number) };
        let toy = Toy { required: true, ..Toy::default() };
        let mut host = Host::with_security(now, config, [number; 32], toy);
        let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into());
        host.interface_mut().add_address(now, address, 64);
        host
    });
    let listener = hosts[1].tcp_listen(at(ANY, 80), TCP, 1).unwrap();
    let to = at("2001:db8::2".parse().unwrap(), 80);
    let ours = hosts[0].tcp_connect(now, to, TCP).unwrap();
    assert_eq!(hosts[0].write(ours, &[7; 50_000]), Ok(50_000));
    let (mut packet, mut largest) = (Vec::new(), 0);
    while let Some(from) = (0..2).find(|host| hosts[*host].poll_transmit(now, &mut packet)) {
        assert_eq!(packet[6], protocol::ESP, "no fragment");
        largest = largest.max(packet.len());
        hosts[1 - from].receive(now, &packet);
    }
    let theirs = hosts[1].tcp_accept(listener).unwrap().unwrap();
    assert_eq!((hosts[1].tcp(theirs).unwrap().readable(), largest), (50_000, 1500));
}

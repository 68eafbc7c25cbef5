//! Devices that cut large packets into segments and write checksums.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use ipsec::policy::{Level, Levels};
use stack::DropReason;
use stack::host::{Host, TcpHandle};
use stack::interface::{Config, Medium};
use stack::ipv4::Ipv4;
use stack::security::Security;
use wire::segment::Segmenter;
use wire::{ethernet, virtio_net};

use crate::hosts::TCP;
use crate::link::{ANY, SECOND, at, config, mac};

const MS: Duration = Duration::from_millis(1);
const A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xa);
const B: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xb);

/// What a device does with what it is given.
#[derive(Clone, Copy, PartialEq)]
enum Device {
    /// It hands it on as it is, as between two hosts of one machine.
    HandsOn,
    /// It puts segments on a wire.
    Segments,
}

/// Two hosts with offloads, one millisecond from each other.
struct Pair<S: Security> {
    now: Instant,
    hosts: [Host<S>; 2],
    link: usize,
    device: Device,
    /// Packets as hosts gave them away.
    given: Vec<(virtio_net::Header, Vec<u8>)>,
    flying: [Vec<(Instant, virtio_net::Header, Vec<u8>)>; 2],
}

impl<S: Security> Pair<S> {
    fn new(medium: [Medium; 2], device: Device, security: impl Fn(Instant) -> S) -> Self {
        let now = Instant::now();
        let host = |number: u8, address| {
            let medium = medium[usize::from(number)];
            let config = Config { medium, routers: false, ..config(number) };
            let mut host = Host::with_security(now, config, [number; 32], security(now));
            host.interface_mut().add_address(now, address, 64);
            let prefix = "2001:db8::/64".parse().unwrap();
            host.interface_mut().set_on_link(now, prefix, stack::route::Lifetime::Infinite);
            let address = format!("192.0.2.{}/24", number + 1).parse().unwrap();
            host.interface_mut().set_ipv4(Some(Ipv4 { address, gateway: None }));
            host
        };
        let hosts = [host(0, A), host(1, B)];
        let link = if medium[0] == Medium::Ip { 0 } else { ethernet::HEADER_LEN };
        let mut pair = Pair { now, hosts, link, device, given: Vec::new(), flying: Default::default() };
        pair.run(SECOND * 3);
        pair.given.clear();
        pair
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    fn step(&mut self) {
        self.now += MS;
        let mut out = Vec::new();
        for from in 0..2 {
            while let Some(header) = self.hosts[from].poll_transmit_offloaded(self.now, &mut out) {
                self.given.push((header, out.clone()));
                match self.device {
                    Device::HandsOn => self.flying[from].push((self.now + MS, header, out.clone())),
                    Device::Segments => {
                        let (frame, packet) = out.split_at_mut(self.link);
                        let inner = virtio_net::Header {
                            csum_start: header.csum_start.saturating_sub(self.link as u16),
                            ..header
                        };
                        let Ok(mut segments) = Segmenter::new(&inner, packet) else {
                            // ARP.
                            self.flying[from].push((self.now + MS, header, out.clone()));
                            continue;
                        };
                        while let Some(segment) = segments.next() {
                            assert!(segment.len() <= 1500);
                            let whole = [&*frame, segment.head, segment.payload].concat();
                            self.flying[from].push((self.now + MS, virtio_net::Header::NONE, whole));
                        }
                    }
                }
            }
        }
        for from in 0..2 {
            let there = self.flying[from].iter().take_while(|(at, ..)| *at <= self.now).count();
            for (_, header, mut bytes) in self.flying[from].drain(..there) {
                self.hosts[1 - from].receive_offloaded(self.now, &header, &mut bytes);
            }
        }
        for host in &mut self.hosts {
            if host.deadline().is_some_and(|deadline| deadline <= self.now) {
                host.handle_timeout(self.now);
            }
        }
    }

    fn connect(&mut self, to: Ipv6Addr) -> [TcpHandle; 2] {
        let listener = self.hosts[1].tcp_listen(at(ANY, 80), TCP, 1).unwrap();
        let ours = self.hosts[0].tcp_connect(self.now, at(to, 80), TCP).unwrap();
        self.run(SECOND / 10);
        let theirs = self.hosts[1].tcp_accept(listener).unwrap().expect("it is established");
        self.hosts[1].tcp_unlisten(listener).unwrap();
        [ours, theirs]
    }

    fn transfer(&mut self, [ours, theirs]: [TcpHandle; 2], octets: usize) {
        let data: Vec<u8> = (0..octets).map(|at| (at ^ at >> 8 ^ at >> 16) as u8).collect();
        let (mut written, mut read) = (0, Vec::new());
        let mut buffer = vec![0; 1 << 16];
        let end = self.now + SECOND * 60;
        while read.len() < octets {
            assert!(self.now < end, "{written} written, {} read", read.len());
            written += self.hosts[0].write(ours, &data[written..]).unwrap();
            self.step();
            let length = self.hosts[1].read(theirs, &mut buffer).unwrap();
            read.extend_from_slice(&buffer[..length]);
        }
        assert_eq!(read, data);
    }

    fn largest(&self) -> usize {
        self.given.iter().map(|(_, bytes)| bytes.len() - self.link).max().unwrap()
    }
}

fn mediums() -> [[Medium; 2]; 2] {
    [[Medium::Ip; 2], [Medium::Ethernet(mac(1)), Medium::Ethernet(mac(2))]]
}

#[test]
fn a_packet_stands_for_many_segments_and_a_megabyte_arrives() {
    for medium in mediums() {
        for device in [Device::HandsOn, Device::Segments] {
            for to in [B, Ipv4Addr::new(192, 0, 2, 2).to_ipv6_mapped()] {
                let mut pair = Pair::new(medium, device, |_| stack::security::NoSecurity);
                let ends = pair.connect(to);
                pair.transfer(ends, 1 << 20);
                assert!(pair.largest() > 50_000, "{}", pair.largest());
                let drops = |host: &Host| host.interface().drops().of(DropReason::Checksum);
                assert_eq!(pair.hosts.each_ref().map(drops), [0, 0]);
                for host in &pair.hosts {
                    assert_eq!(host.tcp_drops().nonzero().count(), 0);
                }
                let statistics = pair.hosts[0].tcp(ends[0]).unwrap().statistics();
                assert_eq!(statistics.retransmitted, 0);
            }
        }
    }
}

#[test]
fn what_is_protected_is_cut_and_sealed_by_the_host() {
    use ipsec::key_engine::KeyEngine;
    use ipsec::policy::PolicyDatabase;
    use stack::ipsec::Ipsec;
    let both = format!(
        "add {A} {B} esp 0x1000 -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
         add {B} {A} esp 0x1001 -r 64 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;"
    );
    let required = Levels { transport_encryption: Level::Require, ..Levels::NONE };
    for level in [required, Levels::NONE] {
        let mut pair = Pair::new([Medium::Ip; 2], Device::Segments, |now| {
            Ipsec::new(now, KeyEngine::new(), PolicyDatabase::new())
        });
        for host in &mut pair.hosts {
            let (engine, policies) = host.interface_mut().security().parts();
            policies.set_system_levels(level);
            let commands = ipsec::setkey::parse(&both).unwrap();
            ipsec::setkey::apply(commands, engine, policies, pair.now).unwrap();
        }
        let ends = pair.connect(B);
        pair.transfer(ends, 1 << 18);
        let is_protected = level != Levels::NONE;
        assert_eq!(pair.largest() > 1500, !is_protected);
        let all = |first: u8| pair.given.iter().all(|(_, packet)| packet[6] == first);
        assert!(if is_protected { all(wire::protocol::ESP) } else { all(wire::protocol::TCP) });
    }
}

#[test]
fn udp_of_a_device_that_leaves_checksums_or_joins_datagrams_is_whole_again() {
    let mut pair = Pair::new([Medium::Ip; 2], Device::HandsOn, |_| stack::security::NoSecurity);
    let socket = pair.hosts[1].interface_mut().udp_bind(at(ANY, 53)).unwrap();
    let datagram = |length: usize| {
        let header = wire::ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: (8 + length) as u16,
            next_header: wire::protocol::UDP,
            hop_limit: 64,
            source: A,
            destination: B,
        };
        let udp = wire::udp::Header {
            source_port: 99,
            destination_port: 53,
            length: (8 + length) as u16,
            checksum: 0,
        };
        let sum = wire::checksum::Sum::pseudo_ipv6(A, B, (8 + length) as u32, wire::protocol::UDP);
        let mut packet = [&header.to_bytes()[..], &udp.to_bytes(), &vec![3; length]].concat();
        packet[46..48].copy_from_slice(&sum.value().to_be_bytes());
        packet
    };
    let header = |gso_type, gso_size| virtio_net::Header {
        flags: virtio_net::NEEDS_CSUM,
        gso_type,
        hdr_len: 48,
        gso_size,
        csum_start: 40,
        csum_offset: 6,
    };
    let mut received = |header: virtio_net::Header, mut packet: Vec<u8>| {
        pair.hosts[1].receive_offloaded(pair.now, &header, &mut packet);
        let (interface, mut data, mut lengths) = (pair.hosts[1].interface_mut(), Vec::new(), Vec::new());
        while interface.udp_receive(socket, &mut data).is_some() {
            lengths.push(data.len());
        }
        lengths
    };
    assert_eq!(received(header(virtio_net::GSO_NONE, 0), datagram(100)), [100]);
    assert_eq!(received(header(virtio_net::GSO_UDP_L4, 400), datagram(1000)), [400, 400, 200]);
    // A header that does not fit its packet is no reason to take it.
    assert_eq!(received(header(virtio_net::GSO_UDP_L4, 0), datagram(1000)), [0; 0]);
    assert_eq!(received(virtio_net::Header { csum_start: 9999, ..header(0, 0) }, datagram(10)), [0; 0]);
    assert_eq!(pair.hosts[1].interface().drops().of(DropReason::Malformed), 2);
}

#[test]
fn no_header_and_no_bytes_of_a_device_panic() {
    let mut random = fastrand::Rng::with_seed(0);
    for medium in mediums() {
        let mut pair = Pair::new(medium, Device::HandsOn, |_| stack::security::NoSecurity);
        let ends = pair.connect(B);
        pair.transfer(ends, 100_000);
        let given = std::mem::take(&mut pair.given);
        for _ in 0..5000 {
            let (mut header, mut bytes) = given[random.usize(0..given.len())].clone();
            for _ in 0..random.usize(0..4) {
                let at = random.usize(0..bytes.len());
                bytes[at] = random.u8(..);
            }
            if random.bool() {
                bytes.truncate(random.usize(0..bytes.len()));
            }
            if random.bool() {
                header = virtio_net::Header::from_bytes(&std::array::from_fn(|_| random.u8(..)));
            }
            pair.hosts[random.usize(0..2)].receive_offloaded(pair.now, &header, &mut bytes);
        }
        pair.run(SECOND);
    }
}

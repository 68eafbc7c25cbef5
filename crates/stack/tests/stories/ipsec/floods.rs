//! What arrives by the thousand from strangers takes nothing from who is there: a protected connection keeps at least nine
//! tenths of its rate, and what is kept of strangers is bounded.

use std::time::Duration;

use fastrand::Rng;
use stack::neighbor::MAX_NEIGHBORS;
use stack::route::MAX_DESTINATIONS;
use wire::ndp::NeighborSolicitation;
use wire::{icmpv6, ipv6, tcp};

use super::tcp::{connected, pair as hosts};
use super::*;
use crate::hostile::{correct_checksum, mutated};
use crate::hosts::{Segment, TCP};
use crate::link::{frame, mac};

/// So long does the connection send.
const TIME: Duration = Duration::from_millis(250);
/// So many frames of strangers come for each millisecond.
const FLOOD: usize = 20;
/// So many frames are remembered for replays: those that have arrived are among them, and the oldest is one.
const RECORDED: usize = 2000;
/// Where B hears everybody.
const OPEN: u16 = 81;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flood {
    UnknownSpis,
    Replays,
    Forgeries,
    Syns,
    PacketTooBig,
    Fragments,
    Solicitations,
    EchoRequests,
}

const FLOODS: [Flood; 8] = [
    Flood::UnknownSpis,
    Flood::Replays,
    Flood::Forgeries,
    Flood::Syns,
    Flood::PacketTooBig,
    Flood::Fragments,
    Flood::Solicitations,
    Flood::EchoRequests,
];

/// A packet of a stranger's on the link to B.
fn packet(protocol: u8, random: &mut Rng, upper: &[u8]) -> Vec<u8> {
    let source = Ipv6Addr::from_bits(A.to_bits() & !0xffff_ffff | u128::from(random.u32(16..)));
    let header = ipv6::Header {
        traffic_class: 0,
        flow_label: 0,
        payload_length: upper.len() as u16,
        next_header: protocol,
        hop_limit: 255,
        source,
        destination: B,
    };
    [&header.to_bytes()[..], upper].concat()
}

impl Flood {
    /// Its next frame. `seen` has crossed the link before.
    fn next(self, seen: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
        let genuine = || seen.iter().find(|bytes| bytes[14 + 6] == protocol::ESP && bytes[14 + 39] == 0xb);
        let packet = match self {
            Self::UnknownSpis => {
                let esp: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(200).collect();
                packet(protocol::ESP, random, &esp)
            }
            Self::Replays => return genuine().expect("a packet of the connection").clone(),
            Self::Forgeries => return mutated(genuine().expect("a packet of the connection"), random),
            Self::Syns => {
                let header = tcp::Header {
                    source_port: random.u16(1024..),
                    destination_port: OPEN,
                    sequence: random.u32(..),
                    flags: tcp::SYN,
                    window: 1000,
                    ..tcp::Header::default()
                };
                packet(protocol::TCP, random, &header.to_bytes())
            }
            Self::PacketTooBig => {
                // As if a router had seen the connection, but not the SPI.
                let esp = random.u64(..).to_be_bytes();
                let mut quoted = packet(protocol::ESP, random, &esp);
                quoted[8..24].copy_from_slice(&B.octets());
                quoted[24..40].copy_from_slice(&A.octets());
                let error = [&[icmpv6::PACKET_TOO_BIG, 0, 0, 0, 0, 0, 5, 0][..], &quoted].concat();
                packet(protocol::ICMPV6, random, &error)
            }
            Self::Fragments => {
                // The first part of something, and nothing more.
                let id = random.u32(..).to_be_bytes();
                let part = [&[protocol::UDP, 0, 0, 1][..], &id, &[0; 1200]].concat();
                packet(protocol::FRAGMENT, random, &part)
            }
            Self::Solicitations => {
                let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 7, random.u16(..));
                let question = NeighborSolicitation {
                    source,
                    destination: B,
                    target: B,
                    source_link_layer: mac(random.u8(9..)),
                };
                question.to_packet().to_vec()
            }
            Self::EchoRequests => {
                let request = [icmpv6::ECHO_REQUEST, 0, 0, 0, 0, 1, 0, 1];
                packet(protocol::ICMPV6, random, &request)
            }
        };
        let mut bytes = frame(mac(9), mac(1), &packet);
        correct_checksum(&mut bytes);
        bytes
    }
}

/// What a connection from A to B carries in [`TIME`], with a flood or without.
fn carried(flood: Option<Flood>) -> (usize, Segment<Ipsec>) {
    let mut segment = hosts(&esp(GCM));
    segment.hosts[1].tcp_listen(at(ANY, OPEN), TCP, 10).unwrap();
    let [ours, theirs] = connected(&mut segment, ESP);
    let mut random = Rng::with_seed(1);
    let start = segment.now;
    let (mut buffer, mut carried, mut flooded) = ([0; 1 << 16], 0, 0);
    while segment.now < start + TIME {
        segment.hosts[0].write(ours, &[7; 1 << 14]).unwrap();
        segment.step(start + TIME);
        carried += segment.hosts[1].read(theirs, &mut buffer).unwrap();
        let due = (segment.now - start).as_millis() as usize * FLOOD;
        for _ in flooded..due.min(flooded + 1000) {
            let Some(flood) = flood else { break };
            let bytes = flood.next(&segment.seen, &mut random);
            segment.hosts[1].receive(segment.now, &bytes);
        }
        flooded = due;
        let old = segment.seen.len().saturating_sub(RECORDED);
        segment.seen.drain(..old);
    }
    (carried, segment)
}

#[test]
fn a_protected_connection_keeps_its_rate_in_each_flood() {
    let (alone, _) = carried(None);
    for flood in FLOODS {
        let (carried, segment) = carried(Some(flood));
        assert!(carried * 10 >= alone * 9, "{flood:?}: {carried} octets of {alone}");
        let b = &segment.hosts[1];
        assert!(b.interface().neighbors().len() <= MAX_NEIGHBORS, "{flood:?}");
        assert_eq!(b.connections().count(), 1, "{flood:?}");
        assert!(b.interface().destinations().iter().count() <= MAX_DESTINATIONS, "{flood:?}");
    }
}

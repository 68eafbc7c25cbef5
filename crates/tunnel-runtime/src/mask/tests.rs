//! What the programs make of packets: masked as the protocol says, and as they were behind the mask.

use linux::bpf::{Program, ProgramKind, verdict};
use linux::netns;
use mt6d::mask::{MARK, MaskKey, SAMPLE};
use programs::mask::{HEAD, LARGE, TRAILER};
use proptest::prelude::*;
use wire::checksum::Sum;
use wire::{ipv6, protocol};

use super::*;

const LINK: usize = 14;
const TUN: u32 = 1;
/// Where a message begins in a packet.
const MESSAGE: usize = 48;

/// Both programs as they would be at the two ends of a lane, with Ethernet.
struct Scene {
    tables: Tables<Map>,
    outgoing: Program,
    incoming: Program,
    flow: Flow,
    lane: Flow,
    key: MaskKey,
}

fn flow(local: &str, remote: &str) -> Flow {
    Flow { local: local.parse().unwrap(), remote: remote.parse().unwrap() }
}

fn swapped(Flow { local, remote }: Flow) -> Flow {
    Flow { local: remote, remote: local }
}

impl Scene {
    fn new() -> Self {
        let inner = flow("[fd01::1]:51820", "[fd02::2]:51821");
        let lane = flow("[2001:db8:a1::1234:5678]:4711", "[2001:db8:b1:0:9abc::def0]:60001");
        let key = MaskKey::from_bytes(std::array::from_fn(|at| 3 * at as u8 + 1));
        let tables = Tables::create(2, 4, Map::of).unwrap();
        tables.chance.set(&0u32.to_ne_bytes(), &[9; 32]).unwrap();
        let load = |code| Program::load(ProgramKind::SchedCls, &code).unwrap();
        let outgoing = load(program::outgoing(&tables, LINK as u8));
        let incoming = load(program::incoming(&tables, LINK as u8, TUN));
        let drawn = DrawnLane { lane, key: key.clone(), tickets: 1 };
        let hop = NextHop { interface: 1, neighbor: "fe80::1".parse().ok(), mtu: 1500 };
        tables.lanes.set(&3u32.to_ne_bytes(), lane_value(&inner, &drawn, &hop).as_slice()).unwrap();
        let mut value = [0; DRAWN];
        value.as_chunks_mut::<2>().0[..program::DRAWS].fill(3u16.to_ne_bytes());
        put(&mut value, at::NUMBER, &1u32.to_ne_bytes());
        tables.flows.set(&super::key(inner.local, inner.remote), &value).unwrap();
        // At the other end, which takes what this one sends.
        let comes = MaskedLane { flow: swapped(inner), lane: swapped(lane), key: key.clone() };
        tables
            .incoming
            .set(&super::key(lane.local, lane.remote), incoming_value(&comes, 1).as_slice())
            .unwrap();
        Scene { tables, outgoing, incoming, flow: inner, lane, key }
    }

    fn run(program: &Program, packet: &[u8]) -> (i32, Vec<u8>) {
        let mut frame = vec![2; LINK];
        frame[12..].copy_from_slice(&0x86dd_u16.to_be_bytes());
        frame.extend(packet);
        let (verdict, out) = program.test_run(&frame).unwrap();
        (verdict, out[LINK..].to_vec())
    }
}

/// A datagram with the checksum that is right.
fn datagram(Flow { local, remote }: Flow, first_word: u32, message: &[u8]) -> Vec<u8> {
    let length = message.len() + 8;
    let header = ipv6::Header {
        traffic_class: (first_word >> 20) as u8,
        flow_label: first_word & 0xf_ffff,
        payload_length: length as u16,
        next_header: protocol::UDP,
        hop_limit: 64,
        source: *local.ip(),
        destination: *remote.ip(),
    };
    let ports =
        [local.port().to_be_bytes(), remote.port().to_be_bytes(), (length as u16).to_be_bytes()].concat();
    let mut packet = [&header.to_bytes()[..], &ports, &[0; 2], message].concat();
    let pseudo = Sum::pseudo_ipv6(*local.ip(), *remote.ip(), length as u32, protocol::UDP);
    let sum = (pseudo + Sum::of(&packet[40..])).udp_checksum();
    packet[46..48].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The message in a masked datagram, as the protocol has it.
fn unmasked(key: &MaskKey, datagram: &[u8]) -> Vec<u8> {
    let sample: &[u8; SAMPLE] = datagram.last_chunk().unwrap();
    let laid_over = |bytes: &[u8]| -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (number, part) in bytes.chunks_mut(HEAD as usize).enumerate() {
            let mut block = [0; 64];
            key.apply(sample, number as u64, &mut block);
            part.iter_mut().zip(&block[MARK..]).for_each(|(byte, stream)| *byte ^= stream);
        }
        bytes
    };
    if datagram.len() >= TRAILER as usize {
        let (rest, trailer) = datagram.split_at(datagram.len() - TRAILER as usize);
        let mark: Vec<u8> = trailer.iter().zip(key.mark(sample)).map(|(byte, mark)| byte ^ mark).collect();
        if mark[..6] == [0; 6] {
            let length = usize::from(u16::from_be_bytes([mark[6], mark[7]]));
            let whole = laid_over(rest);
            let (message, padding) = whole.split_at(length);
            assert!(padding.iter().all(|byte| *byte == 0) && padding.len() < 64, "{padding:?}");
            return message.to_vec();
        }
    }
    let covered = if datagram.len() >= LARGE as usize { HEAD as usize } else { datagram.len() - SAMPLE };
    [&laid_over(&datagram[..covered]), &datagram[covered..]].concat()
}

#[test]
fn what_is_masked_at_one_end_is_at_the_other_what_it_was() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new();
    let count = std::cell::Cell::new((0, 0));
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(3_000));
    let message =
        prop_oneof![prop::collection::vec(any::<u8>(), 1..200), prop::collection::vec(any::<u8>(), 1..1452)];
    let result = runner.run(&(message, any::<u32>()), |(message, word)| {
        let word = word & 0x0fff_ffff;
        let packet = datagram(scene.flow, word, &message);
        if packet[46..48] == [0, 0] {
            return Ok(());
        }
        let (result, out) = Scene::run(&scene.outgoing, &packet);
        prop_assert_eq!(result, verdict::REDIRECT);
        // Of the first word the congestion bits stay.
        let outside = datagram(scene.lane, word & 0x0030_0000, &out[MESSAGE..]);
        prop_assert_eq!(&out, &outside);
        prop_assert_eq!(unmasked(&scene.key, &out[MESSAGE..]), message.clone());
        let masked = if message.len() >= LARGE as usize { message.len() } else { out.len() - MESSAGE };
        prop_assert_eq!(out.len() - MESSAGE, masked);
        prop_assert!(masked.is_multiple_of(2) || message.len() >= LARGE as usize);

        let (result, back) = Scene::run(&scene.incoming, &out);
        prop_assert_eq!(result, verdict::REDIRECT);
        prop_assert_eq!(back, datagram(scene.flow, word & 0x0030_0000, &message));
        let (packets, bytes) = count.get();
        count.set((packets + 1, bytes + message.len() as u64));
        Ok(())
    });
    result.unwrap();
    let (packets, bytes) = count.get();
    let sums = scene.tables.counters.sum(&1u32.to_ne_bytes()).unwrap();
    assert_eq!(sums[..4], [packets, bytes, packets, bytes]);
}

/// The head and the tail of a GSO packet of the other tunnel's come as single packets, when a device has cut it: the last one may
/// be small and have no trailer.
#[test]
fn the_last_segment_of_a_gso_packet_is_read_without_a_trailer() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new();
    for length in SAMPLE + 1..LARGE as usize {
        let message: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        let mut masked = message.clone();
        let sample = *masked.last_chunk().unwrap();
        let covered = length - SAMPLE;
        for (number, part) in masked[..covered].chunks_mut(HEAD as usize).enumerate() {
            let mut block = [0; 64];
            scene.key.apply(&sample, number as u64, &mut block);
            part.iter_mut().zip(&block[MARK..]).for_each(|(byte, stream)| *byte ^= stream);
        }
        let (result, back) = Scene::run(&scene.incoming, &datagram(scene.lane, 0, &masked));
        assert_eq!((result, back), (verdict::REDIRECT, datagram(scene.flow, 0, &message)), "{length}");
    }
}

#[test]
fn the_same_message_never_looks_the_same() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new();
    // WireGuard's first message ends in sixteen zeros.
    for message in [vec![0; 148], vec![0; 92], vec![0; 32], vec![4]] {
        let packet = datagram(scene.flow, 0, &message);
        let seen: Vec<Vec<u8>> =
            (0..200).map(|_| Scene::run(&scene.outgoing, &packet).1[MESSAGE..].to_vec()).collect();
        let lengths: HashSet<usize> = seen.iter().map(Vec::len).collect();
        assert!(lengths.len() > 16, "{lengths:?}");
        for at in 0..message.len() + TRAILER as usize {
            let bytes: HashSet<u8> = seen.iter().map(|message| message[at]).collect();
            assert!(bytes.len() > 80, "{} bytes at {at}", bytes.len());
        }
        let ends: HashSet<&[u8]> = seen.iter().map(|message| &message[message.len() - SAMPLE..]).collect();
        assert_eq!(ends.len(), seen.len());
    }
}

#[test]
fn the_daemons_own_datagrams_and_all_else_stay_as_they_are() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new();
    for length in [28, 29, 100, 159, 160, 1400] {
        let mut own: Vec<u8> = (0..length).map(|at| (at * 11) as u8).collect();
        let mark = scene.key.mark(own.last_chunk().unwrap());
        own[..MARK].copy_from_slice(&mark);
        let own = datagram(scene.lane, 0, &own);
        assert_eq!(Scene::run(&scene.incoming, &own), (verdict::NEXT, own.clone()), "{length}");
    }
    let long = [7; 200];
    let (flow, lane) = (scene.flow, scene.lane);
    let other_port = Flow { local: SocketAddrV6::new(*flow.local.ip(), 1, 0, 0), ..flow };
    let mut behind = datagram(flow, 0, &long);
    behind.push(0);
    let mut unchecked = datagram(flow, 0, &long);
    unchecked[46..48].fill(0);
    let outgoing = [
        datagram(swapped(flow), 0, &long),
        datagram(other_port, 0, &long),
        datagram(flow, 0, &[7; 1453]),
        datagram(flow, 0, &[]),
        behind,
        unchecked,
    ];
    for packet in &outgoing {
        assert_eq!(Scene::run(&scene.outgoing, packet), (verdict::NEXT, packet.clone()), "{packet:02x?}");
    }
    let incoming =
        [datagram(swapped(lane), 0, &long), datagram(flow, 0, &long), datagram(lane, 0, &long[..SAMPLE])];
    for packet in &incoming {
        assert_eq!(Scene::run(&scene.incoming, packet), (verdict::NEXT, packet.clone()), "{packet:02x?}");
    }
}

/// Whoever sees a lane can send to it: what comes so is the other tunnel's to judge, and never more than it was.
#[test]
fn what_a_stranger_sends_to_a_lane_harms_nothing() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(2_000));
    let cases = (prop::collection::vec(any::<u8>(), 0..300), any::<Option<u16>>());
    let result = runner.run(&cases, |(mut message, length)| {
        // With a trailer of any length, as only who has the key can make one.
        if let (Some(length), Some(sample)) = (length, message.last_chunk().copied())
            && message.len() >= TRAILER as usize
        {
            let at = message.len() - TRAILER as usize;
            let mut trailer = [0; MARK];
            trailer[6..].copy_from_slice(&length.to_be_bytes());
            let mark = scene.key.mark(&sample);
            trailer.iter_mut().zip(mark).for_each(|(byte, mark)| *byte ^= mark);
            message[at..at + MARK].copy_from_slice(&trailer);
        }
        let packet = datagram(scene.lane, 0, &message);
        let (result, out) = Scene::run(&scene.incoming, &packet);
        match result {
            verdict::REDIRECT => {
                prop_assert!(out.len() <= packet.len());
                // Where padding that is not of zeros was taken off the checksum is wrong: the stack drops it.
                let expected = datagram(scene.flow, 0, &out[MESSAGE..]);
                prop_assert_eq!((&out[..46], &out[MESSAGE..]), (&expected[..46], &expected[MESSAGE..]));
            }
            verdict::NEXT => prop_assert_eq!(out, packet),
            other => prop_assert_eq!(other, verdict::DROP),
        }
        Ok(())
    });
    result.unwrap();
}

#[test]
fn what_a_packet_costs_is_told() {
    if !netns::available_to_tests() {
        return;
    }
    let scene = Scene::new();
    for length in [100, 1420] {
        let packet =
            [vec![2; 12], 0x86dd_u16.to_be_bytes().to_vec(), datagram(scene.flow, 0, &vec![7; length])]
                .concat();
        let mut times: Vec<_> = (0..2_000).map(|_| scene.outgoing.time_run(&packet).unwrap()).collect();
        times.sort();
        println!("{length} bytes: {:?}", times[times.len() / 2]);
    }
}

//! TCP on hosts that know addresses, paths and neighbors.

use std::net::Ipv4Addr;

use stack::host::{Asked, ConnectError, ListenError, MAX_RELEASED, Stale, TcpEvent};
use stack::ipv4::Ipv4;
use stack::tcp::{Config, Error, State};
use stack::{DropReason, neighbor};
use wire::ethernet::Frame;
use wire::{icmpv6, tcp};

use crate::hosts::{Segment, TCP, Weather, segments, too_big};
use crate::link::{ANY, MINUTE, SECOND, at, icmp_type};

const MEGABYTE: usize = 1 << 20;

/// How many neighbor solicitations are among these frames.
fn solicitations(frames: &[Vec<u8>]) -> usize {
    let is_one = |frame: &&Vec<u8>| icmp_type(&frame[14..]) == Some(icmpv6::NEIGHBOR_SOLICITATION);
    frames.iter().filter(is_one).count()
}

#[test]
fn a_megabyte_each_way_survives_loss_reordering_and_duplication() {
    for seed in 0..4 {
        let mut segment = Segment::new(2, seed);
        segment.weather = Weather { loss: 0.01, duplicate: 0.02, reorder: 0.02, ..Weather::default() };
        let ends = segment.connect();
        segment.transfer(ends, MEGABYTE);
    }
}

#[test]
fn where_nobody_listens_a_connection_is_refused() {
    let mut segment = Segment::new(2, 0);
    let to = at(segment.address(1), 80);
    let handle = segment.hosts[0].tcp_connect(segment.now, to, TCP).unwrap();
    segment.run(SECOND);
    assert_eq!(segment.hosts[0].poll_tcp(), Some(TcpEvent::Connection(handle)));
    let connection = segment.hosts[0].tcp(handle).unwrap();
    assert_eq!((connection.state(), connection.error()), (State::Closed, Some(Error::Refused)));
    assert_eq!(segment.hosts[1].interface().drops().of(DropReason::NoSocket), 1);
}

#[test]
fn a_listener_takes_a_thousand_connections_at_once() {
    let mut segment = Segment::new(2, 0);
    let small = Config { max_receive_buffer: 10_000, max_send_buffer: 10_000, ..TCP };
    let listener = segment.hosts[1].tcp_listen(at(ANY, 80), small, 1000).unwrap();
    let to = at(segment.address(1), 80);
    for _ in 0..2 {
        let clients: Vec<_> = (0..1000u32)
            .map(|number| {
                let client = segment.hosts[0].tcp_connect(segment.now, to, small).unwrap();
                segment.hosts[0].write(client, &number.to_be_bytes()).unwrap();
                client
            })
            .collect();
        segment.run(SECOND * 5);
        assert_eq!(segment.hosts[1].poll_tcp(), Some(TcpEvent::Listener(listener)));
        let mut numbers = Vec::new();
        while let Some(server) = segment.hosts[1].tcp_accept(listener).unwrap() {
            let mut number = [0; 4];
            assert_eq!(segment.hosts[1].read(server, &mut number), Ok(4));
            numbers.push(u32::from_be_bytes(number));
            segment.hosts[1].write(server, &number).unwrap();
            segment.hosts[1].release(segment.now, server).unwrap();
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..1000));
        segment.run(SECOND);
        for (number, client) in clients.into_iter().enumerate() {
            let mut answer = [0; 5];
            assert_eq!(segment.hosts[0].read(client, &mut answer), Ok(4));
            assert_eq!(answer[..4], (number as u32).to_be_bytes());
            assert!(segment.hosts[0].tcp(client).unwrap().has_ended());
            segment.hosts[0].release(segment.now, client).unwrap();
        }
        segment.run(MINUTE * 2);
    }
}

#[test]
fn rfc_8201_4_packet_too_big_lowers_the_segments_of_all_connections_there() {
    let mut segment = Segment::new(2, 0);
    let first = segment.connect();
    let second = segment.connect();
    segment.weather.path_mtu = Some(1300);
    segment.transfer(first, 100_000);
    assert_eq!(segment.hosts[0].interface().path_mtu(segment.now, segment.address(1)), 1300);
    let largest = |frames: &[Vec<u8>]| frames.iter().map(|frame| frame.len() - 14).max();
    assert_eq!(largest(&segment.seen), Some(1500));
    segment.seen.clear();
    // Ours are that small from the start; theirs go another way.
    let data = vec![0; 20_000];
    assert_eq!(segment.hosts[0].write(second[0], &data), Ok(data.len()));
    segment.run(SECOND);
    assert_eq!(segment.hosts[1].tcp(second[1]).unwrap().readable(), data.len());
    assert_eq!(largest(&segment.seen), Some(1300));
    segment.connect();
}

#[test]
fn rfc_5927_4_1_an_error_about_what_is_not_under_way_is_not_believed() {
    let mut segment = Segment::new(2, 0);
    let [ours, _] = segment.connect();
    segment.seen.clear();
    segment.hosts[0].write(ours, &[7; 1000]).unwrap();
    segment.run(SECOND);
    // All of it is acknowledged by now.
    let sent = segment.seen.iter().max_by_key(|frame| frame.len()).unwrap().clone();
    let now = segment.now;
    segment.hosts[0].receive(now, &too_big(&sent[14..], 1300));
    assert_eq!(segment.hosts[0].interface().path_mtu(now, segment.address(1)), 1500);
    assert_eq!(segment.hosts[0].interface().drops().of(DropReason::UnrelatedError), 1);
}

#[test]
fn rfc_4861_7_2_2_who_connects_to_a_neighbor_that_is_not_there_is_told() {
    let mut segment = Segment::new(1, 0);
    let to = at("fe80::77".parse().unwrap(), 80);
    let handle = segment.hosts[0].tcp_connect(segment.now, to, TCP).unwrap();
    segment.run(SECOND * 5);
    let connection = segment.hosts[0].tcp(handle).unwrap();
    assert_eq!((connection.state(), connection.error()), (State::Closed, Some(Error::Unreachable)));
}

#[test]
fn without_address_or_route_there_is_no_connection() {
    let mut segment = Segment::new(1, 0);
    let now = segment.now;
    let host = &mut segment.hosts[0];
    let mut connect = |to: &str, port| host.tcp_connect(now, at(to.parse().unwrap(), port), TCP);
    assert_eq!(connect("::ffff:192.0.2.1", 80), Err(ConnectError::NoSource));
    for to in ["::", "ff02::1", "::ffff:255.255.255.255"] {
        assert_eq!(connect(to, 80), Err(ConnectError::Destination));
    }
    assert_eq!(connect("fe80::1", 0), Err(ConnectError::Destination));
    let routeless = connect("2001:db8:9::1", 80).unwrap();
    segment.run(SECOND);
    assert_eq!(segment.hosts[0].tcp(routeless).unwrap().error(), Some(Error::Unreachable));
}

#[test]
fn rfc_4861_7_3_1_progress_of_tcp_keeps_a_neighbor_reachable_without_probes() {
    let mut segment = Segment::new(2, 0);
    let [ours, theirs] = segment.connect();
    segment.seen.clear();
    for _ in 0..60 {
        segment.hosts[0].write(ours, b"still here").unwrap();
        segment.run(SECOND * 10);
        assert_eq!(segment.hosts[1].read(theirs, &mut [0; 100]), Ok(10));
    }
    assert_eq!(solicitations(&segment.seen), 0);
    // After a pause, too, nobody has to ask.
    segment.run(MINUTE);
    let neighbor = segment.address(1);
    let state = |segment: &Segment| segment.hosts[0].interface().neighbors().state(neighbor).unwrap();
    assert_eq!(state(&segment), neighbor::State::Stale);
    segment.hosts[0].write(ours, b"hello?").unwrap();
    segment.run(SECOND);
    assert!(matches!(state(&segment), neighbor::State::Reachable { .. }));
    segment.run(SECOND * 10);
    assert_eq!(solicitations(&segment.seen), 0, "the answer of TCP is the proof");
}

#[test]
fn rfc_3168_congestion_that_is_marked_reaches_the_sender() {
    let mut segment = Segment::new(2, 0);
    let ends = segment.connect();
    segment.weather.congestion = 0.05;
    segment.transfer(ends, 200_000);
    let has = |segment: &Segment, flag| segments(&segment.seen).any(|(_, sent)| sent.flags() & flag != 0);
    assert!(segments(&segment.seen).any(|(class, _)| class == 2), "no ECT(0)");
    segment
        .seen
        .retain(|frame| segments(std::slice::from_ref(frame)).all(|(_, s)| s.flags() & tcp::SYN == 0));
    assert!(has(&segment, tcp::ECE) && has(&segment, tcp::CWR));
}

#[test]
fn checksums_are_right_and_verified() {
    let mut segment = Segment::new(2, 0);
    let ends = segment.connect();
    segment.transfer(ends, 1000);
    assert_eq!(segment.hosts[0].interface().drops().of(DropReason::Checksum), 0);
    let mut last = segment.seen.iter().rfind(|frame| frame[20] == wire::protocol::TCP).unwrap().clone();
    *last.last_mut().unwrap() ^= 1;
    let host = usize::from(last[5]);
    segment.hosts[host].receive(segment.now, &last);
    assert_eq!(segment.hosts[host].interface().drops().of(DropReason::Checksum), 1);
}

#[test]
fn ipv4_carries_connections_too() {
    let mut segment = Segment::new(2, 0);
    for (index, host) in segment.hosts.iter_mut().enumerate() {
        let address = format!("192.0.2.{}/24", index + 1).parse().unwrap();
        host.interface_mut().set_ipv4(Some(Ipv4 { address, gateway: None }));
    }
    segment.weather.loss = 0.01;
    let listener = segment.hosts[1].tcp_listen(at(ANY, 80), TCP, 10).unwrap();
    let address = Ipv4Addr::new(192, 0, 2, 2).to_ipv6_mapped();
    let ours = segment.hosts[0].tcp_connect(segment.now, at(address, 80), TCP).unwrap();
    let theirs = segment.accept(listener);
    let client = at(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped(), 0);
    assert_eq!(segment.hosts[1].tcp_ends(theirs).unwrap().1.ip(), client.ip());
    segment.transfer([ours, theirs], 200_000);
    // Segments to a broadcast address are nobody's.
    let broadcast = Ipv4Addr::new(192, 0, 2, 255).to_ipv6_mapped();
    let nobody = segment.hosts[0].tcp_connect(segment.now, at(broadcast, 80), TCP).unwrap();
    segment.run(SECOND);
    assert_eq!(segment.hosts[0].tcp(nobody).unwrap().state(), State::SynSent);
    assert_eq!(segment.hosts[1].tcp_accept(listener), Ok(None));
}

#[test]
fn a_host_talks_to_itself() {
    let mut segment = Segment::new(1, 0);
    let to = at(segment.address(0), 80);
    let listener = segment.hosts[0].tcp_listen(to, TCP, 10).unwrap();
    let ours = segment.hosts[0].tcp_connect(segment.now, to, TCP).unwrap();
    segment.run(SECOND);
    let theirs = segment.hosts[0].tcp_accept(listener).unwrap().unwrap();
    segment.transfer_between([0, 0], [ours, theirs], 500_000);
    assert_eq!(segment.hosts[0].interface().drops().of(DropReason::QueueFull), 0);
}

#[test]
fn handles_that_were_given_up_are_errors() {
    let mut segment = Segment::new(2, 0);
    let [ours, theirs] = segment.connect();
    let now = segment.now;
    segment.hosts[0].abort(ours).unwrap();
    segment.run(SECOND);
    let error = segment.hosts[1].tcp(theirs).unwrap().error();
    assert_eq!(error, Some(Error::Reset));
    segment.hosts[1].release(now, theirs).unwrap();
    for (host, handle) in [(0, ours), (1, theirs)] {
        let host = &mut segment.hosts[host];
        assert_eq!(host.read(handle, &mut [0; 9]), Err(Stale));
        assert_eq!(host.write(handle, b"x"), Err(Stale));
        assert_eq!([host.close(handle), host.abort(handle), host.release(now, handle)], [Err(Stale); 3]);
        assert!(host.tcp(handle).is_err() && host.tcp_ends(handle).is_err());
    }
    // Their places are taken again, and the handles stay what they were.
    let again = segment.connect();
    assert!(segment.hosts[0].tcp(ours).is_err() && segment.hosts[1].tcp(theirs).is_err());
    segment.transfer(again, 1000);
    let listener = segment.hosts[1].tcp_listen(at(ANY, 81), TCP, 1).unwrap();
    assert_eq!(segment.hosts[1].tcp_listen(at(ANY, 81), TCP, 1), Err(ListenError::InUse));
    assert_eq!(segment.hosts[1].tcp_listen(at(ANY, 0), TCP, 1), Err(ListenError::Local));
    segment.hosts[1].tcp_unlisten(listener).unwrap();
    assert_eq!(segment.hosts[1].tcp_unlisten(listener), Err(Stale));
    assert_eq!(segment.hosts[1].tcp_accept(listener), Err(Stale));
}

#[test]
fn a_full_backlog_waits_and_one_that_is_closed_resets() {
    let mut segment = Segment::new(2, 0);
    let listener = segment.hosts[1].tcp_listen(at(ANY, 80), TCP, 2).unwrap();
    let to = at(segment.address(1), 80);
    let clients: Vec<_> =
        (0..4).map(|_| segment.hosts[0].tcp_connect(segment.now, to, TCP).unwrap()).collect();
    segment.run(SECOND / 2);
    assert!(segment.hosts[1].tcp_accept(listener).unwrap().is_some());
    // Half open ones come in when the other end tries again.
    for client in &clients {
        let _ = segment.hosts[0].write(*client, b"hello");
    }
    segment.run(SECOND * 10);
    segment.hosts[1].tcp_unlisten(listener).unwrap();
    // One of them has not even been half let in, and is told when it tries again.
    segment.run(MINUTE);
    let errors: Vec<_> =
        clients.iter().map(|client| segment.hosts[0].tcp(*client).unwrap().error()).collect();
    assert_eq!(errors.iter().filter(|error| error.is_none()).count(), 1, "{errors:?}");
}

#[test]
fn a_server_whose_clients_never_close_lets_the_oldest_go() {
    let mut segment = Segment::new(2, 0);
    let small = Config { max_receive_buffer: 3000, max_send_buffer: 3000, ..TCP };
    let listener = segment.hosts[1].tcp_listen(at(ANY, 80), small, 100).unwrap();
    let to = at(segment.address(1), 80);
    let mut clients = Vec::new();
    // Only a few SYNs would wait for the neighbor.
    segment.hosts[0].interface_mut().ping(segment.now, *to.ip(), 1, 1, b"").unwrap();
    segment.run(SECOND);
    while clients.len() < MAX_RELEASED + 100 {
        // Those in FIN-WAIT-2 would end by themselves after a minute.
        for _ in 0..100 {
            clients.push(segment.hosts[0].tcp_connect(segment.now, to, small).unwrap());
        }
        segment.run(SECOND / 10);
        while let Some(server) = segment.hosts[1].tcp_accept(listener).unwrap() {
            segment.hosts[1].release(segment.now, server).unwrap();
        }
    }
    segment.run(SECOND / 10);
    let error = |client: usize| segment.hosts[0].tcp(clients[client]).unwrap().error();
    let was_reset = (0..clients.len()).filter(|client| error(*client) == Some(Error::Reset)).count();
    assert_eq!(was_reset, clients.len() - MAX_RELEASED);
    assert_eq!((error(0), error(clients.len() - 1)), (Some(Error::Reset), None));
}

#[test]
fn rfc_9293_3_6_1_a_new_syn_ends_time_wait() {
    let mut segment = Segment::new(2, 0);
    let listener = segment.hosts[1].tcp_listen(at(ANY, 80), TCP, 10).unwrap();
    let to = at(segment.address(1), 80);
    let client = segment.hosts[0].tcp_connect(segment.now, to, TCP).unwrap();
    let server = segment.accept(listener);
    segment.run(SECOND);
    let syn = segment
        .seen
        .iter()
        .find(|frame| segments(std::slice::from_ref(frame)).any(|(_, sent)| sent.flags() & tcp::SYN != 0));
    let syn = syn.unwrap().clone();
    segment.hosts[1].release(segment.now, server).unwrap();
    segment.run(SECOND);
    segment.hosts[0].close(client).unwrap();
    segment.run(SECOND);
    // The client has crashed, and begins again from the same port.
    segment.hosts[0].abort(client).unwrap();
    let again = later(&syn);
    segment.seen.clear();
    segment.hosts[1].receive(segment.now, &again);
    segment.run(SECOND / 10);
    let syn_ack = tcp::SYN | tcp::ACK;
    assert!(segments(&segment.seen).any(|(_, sent)| sent.flags() & syn_ack == syn_ack));
}

/// A SYN as this one, with a later sequence number and timestamp.
fn later(syn: &[u8]) -> Vec<u8> {
    use wire::checksum::Sum;
    let packet = wire::ipv6::Packet::parse(Frame::parse(syn).unwrap().payload()).unwrap();
    let old = tcp::Segment::parse(packet.payload()).unwrap();
    let mut options = tcp::SegmentOptions::of(&old);
    if let Some(timestamps) = &mut options.timestamps {
        timestamps.value = timestamps.value.wrapping_add(100_000);
    }
    let header = tcp::Header {
        source_port: old.source_port(),
        destination_port: old.destination_port(),
        sequence: old.sequence().wrapping_add(1_000_000),
        flags: tcp::SYN,
        window: 1000,
        options,
        ..tcp::Header::default()
    };
    let mut bytes = header.to_bytes().to_vec();
    let sum = packet.pseudo_header(bytes.len() as u32, wire::protocol::TCP) + Sum::of(&bytes);
    bytes[tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.checksum().to_be_bytes());
    let mut frame = syn[..54].to_vec();
    frame[18..20].copy_from_slice(&(bytes.len() as u16).to_be_bytes());
    frame.extend(bytes);
    frame
}

#[test]
fn rfc_9293_3_9_2_3_what_is_sent_to_many_is_no_matter_of_tcp() {
    let mut segment = Segment::new(2, 0);
    let to = at(segment.address(1), 80);
    segment.hosts[0].tcp_connect(segment.now, to, TCP).unwrap();
    segment.run(SECOND);
    let is_tcp = |frame: &&Vec<u8>| segments(std::slice::from_ref(*frame)).next().is_some();
    let syn = segment.seen.iter().find(is_tcp).unwrap().clone();
    let mut answers = |frame: &[u8]| {
        segment.seen.clear();
        segment.hosts[1].receive(segment.now, frame);
        segment.run(SECOND);
        segments(&segment.seen).count()
    };
    let mut to_many = syn.clone();
    to_many[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    assert_eq!((answers(&syn), answers(&to_many)), (1, 0));
}

#[test]
fn mutated_segments_are_survived() {
    use crate::hostile::mutated;
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut segment = Segment::new(2, seed);
        let ends = segment.connect();
        segment.transfer(ends, 30_000);
        let frames = std::mem::take(&mut segment.seen);
        let live = segment.connect();
        let listener = segment.hosts[1].tcp_listen(at(ANY, 80), TCP, 10).unwrap();
        let to = at(segment.address(1), 80);
        let mut out = Vec::new();
        for round in 0..3000 {
            for (host, handle) in live.into_iter().enumerate() {
                segment.hosts[host].write(handle, &[7; 300]).unwrap();
                segment.hosts[host].read(handle, &mut [0; 1000]).unwrap();
            }
            if round % 100 == 0 {
                segment.hosts[0].tcp_connect(segment.now, to, TCP).unwrap();
            }
            let frame = &frames[random.usize(0..frames.len())];
            let bytes = mutated(frame, &mut random);
            let fresh = segment.seen.last().map(|frame| mutated(frame, &mut random));
            for bytes in std::iter::once(bytes).chain(fresh) {
                for host in &mut segment.hosts {
                    host.receive(segment.now, &bytes);
                    if random.u8(..) == 0 {
                        while host.poll_transmit(segment.now, &mut out) {}
                    }
                }
            }
            if random.u8(0..20) == 0 {
                segment.run(SECOND / 50);
            }
        }
        while segment.hosts[1].tcp_accept(listener).unwrap().is_some() {}
        segment.run(MINUTE * 6);
        segment.hosts[1].tcp_unlisten(listener).unwrap();
        let ends = segment.connect();
        segment.transfer(ends, 1000);
    }
}

#[test]
fn rfc_8201_4_after_ten_minutes_a_path_that_carries_more_again_is_used() {
    let mut segment = Segment::new(2, 0);
    let [ours, theirs] = segment.connect();
    segment.weather.path_mtu = Some(1300);
    let send = |segment: &mut Segment| {
        segment.seen.clear();
        for _ in 0..10 {
            segment.hosts[0].write(ours, &[7; 20_000]).unwrap();
            segment.run(SECOND);
            segment.hosts[1].read(theirs, &mut [0; 20_000]).unwrap();
        }
        let sizes = segments(&segment.seen).map(|(_, sent)| sent.payload().len());
        sizes.filter(|size| *size > 1300 - 40 - 32).count()
    };
    assert!(send(&mut segment) > 0, "the first are too long, and a router says so");
    assert_eq!(send(&mut segment), 0);
    // The router still says so, ten minutes later: one probe.
    segment.run(MINUTE * 10);
    assert_eq!(send(&mut segment), 1);
    segment.weather.path_mtu = None;
    segment.run(MINUTE * 10);
    assert!(send(&mut segment) > 100);
    let statistics = segment.hosts[0].tcp(ours).unwrap().statistics();
    assert_eq!((statistics.recoveries, statistics.timeouts), (0, 0));
}

#[test]
fn strangers_of_a_network_get_a_hundred_resets_a_second_and_32_at_once() {
    let mut segment = Segment::new(2, 0);
    let to = at(segment.address(1), 80);
    segment.hosts[0].tcp_connect(segment.now, to, TCP).unwrap();
    segment.run(SECOND);
    let is_tcp = |frame: &&Vec<u8>| segments(std::slice::from_ref(*frame)).next().is_some();
    let syn = segment.seen.iter().find(is_tcp).unwrap().clone();
    let now = segment.now;
    let mut resets = |count, now| {
        let mut out = Vec::new();
        let mut sent = 0;
        for _ in 0..count {
            segment.hosts[1].receive(now, &syn);
            while segment.hosts[1].poll_transmit(now, &mut out) {
                sent += segments(std::slice::from_ref(&out)).count();
            }
        }
        sent
    };
    assert_eq!(resets(100, now), 32);
    assert_eq!(resets(100, now + SECOND / 10), 10);
    assert_eq!(segment.hosts[1].interface().drops().of(DropReason::RateLimit), 68 + 90);
}

#[test]
fn rfc_9293_3_5_1_an_end_that_has_forgotten_a_connection_resets_it() {
    let mut segment = Segment::new(2, 0);
    let [ours, theirs] = segment.connect();
    // It is gone without a word, as after a crash.
    segment.weather.loss = 1.0;
    segment.hosts[1].abort(theirs).unwrap();
    segment.run(SECOND);
    segment.weather.loss = 0.0;
    assert_eq!(segment.hosts[0].tcp(ours).unwrap().state(), State::Established);
    segment.hosts[0].write(ours, b"anybody?").unwrap();
    segment.run(SECOND);
    let connection = segment.hosts[0].tcp(ours).unwrap();
    assert_eq!((connection.state(), connection.error()), (State::Closed, Some(Error::Reset)));
}

#[test]
fn rfc_9293_must_43_to_45_a_connection_comes_from_the_address_and_port_that_were_asked_for() {
    let mut segment = Segment::new(2, 0);
    let (now, to) = (segment.now, at(segment.address(1), 80));
    let mut connect = |from| segment.hosts[0].tcp_connect_from(now, from, to, TCP, Asked::default());
    let mine = "2001:db8:7::1".parse().unwrap();
    assert_eq!(connect(at(mine, 0)), Err(ConnectError::NoSource));
    segment.hosts[0].interface_mut().add_address(now, mine, 64);
    segment.run(SECOND * 3);
    let now = segment.now;
    let mut connect = |from| segment.hosts[0].tcp_connect_from(now, from, to, TCP, Asked::default());
    let chosen = connect(at(mine, 5000)).unwrap();
    assert_eq!(connect(at(mine, 5000)), Err(ConnectError::NoPort));
    let other = connect(at(ANY, 5000)).unwrap();
    let ends = |handle| segment.hosts[0].tcp_ends(handle).unwrap().0;
    assert_eq!(ends(chosen), at(mine, 5000));
    assert_eq!((ends(other).port(), *ends(other).ip() != mine), (5000, true), "MUST-44: IP chooses");
}

#[test]
fn rfc_9293_must_41_and_42_a_port_that_is_connected_from_can_be_listened_to() {
    let mut segment = Segment::new(2, 0);
    segment.hosts[1].tcp_listen(at(ANY, 80), TCP, 4).unwrap();
    let (now, to) = (segment.now, at(segment.address(1), 80));
    let client = segment.hosts[0].tcp_connect_from(now, at(ANY, 5000), to, TCP, Asked::default()).unwrap();
    segment.hosts[0].tcp_listen(at(ANY, 5000), TCP, 4).unwrap();
    segment.run(SECOND);
    assert_eq!(segment.hosts[0].tcp(client).unwrap().state(), State::Established);
    let to = at(segment.address(0), 5000);
    let second = segment.hosts[1].tcp_connect(segment.now, to, TCP).unwrap();
    segment.run(SECOND);
    assert_eq!(segment.hosts[1].tcp(second).unwrap().state(), State::Established);
}

#[test]
fn rfc_9293_must_48_and_49_codepoint_and_hop_limit_are_those_that_were_asked_for() {
    let mut segment = Segment::new(2, 0);
    let listening = Config { dscp: 10, hop_limit: Some(7), ..TCP };
    segment.hosts[1].tcp_listen(at(ANY, 80), listening, 4).unwrap();
    let to = at(segment.address(1), 80);
    let marked = Config { dscp: 46, hop_limit: Some(9), ..TCP };
    let client = segment.hosts[0].tcp_connect(segment.now, to, marked).unwrap();
    segment.run(SECOND);
    segment.hosts[0].write(client, b"more").unwrap();
    segment.run(SECOND);
    let marks = |frames: &[Vec<u8>], from| {
        let packets = frames.iter().filter_map(|frame| wire::ipv6::Packet::parse(&frame[14..]).ok());
        let ours = packets.filter(|packet| packet.source() == from && packet.next_header() == 6);
        ours.map(|packet| (packet.traffic_class() >> 2, packet.hop_limit())).collect::<Vec<_>>()
    };
    let (theirs, ours) = (marks(&segment.seen, segment.address(1)), marks(&segment.seen, segment.address(0)));
    assert!(ours.len() >= 3 && ours.iter().all(|marks| *marks == (46, 9)), "{ours:?}");
    assert!(theirs.len() >= 2 && theirs.iter().all(|marks| *marks == (10, 7)), "{theirs:?}");
    segment.seen.clear();
    segment.hosts[0].tcp_set_dscp(client, 12).unwrap();
    segment.hosts[0].write(client, b"more").unwrap();
    segment.run(SECOND);
    assert_eq!(marks(&segment.seen, segment.address(0)).first(), Some(&(12, 9)), "SHLD-21");
}

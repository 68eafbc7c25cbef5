//! Order and repetition of packets, security within security, and what happens to congestion, dummies and lifetimes.

use std::time::Duration;

use wire::ecn::{self, Ecn};
use wire::{ipv6, protocol};

use super::*;
use crate::association::{Age, Lifetime};
use crate::replay::{ReplayError, SequenceExhausted};

const GCM: Suite = Suite::Esp(Encryption::AesGcm128, Authentication::None);

#[test]
fn a_packet_that_comes_again_is_refused() {
    for suite in suites().into_iter().filter(|suite| !suite.is_historic()) {
        let mut pair = Pair::of(suite, Mode::Transport);
        let sealed: Vec<_> = (0..5).map(|_| pair.seal(&packet(true, 20)).unwrap()).collect();
        for at in [3, 0, 4, 2, 1] {
            assert!(pair.open(&sealed[at]).is_ok());
        }
        for again in &sealed {
            assert_eq!(pair.open(again), Err(OpenError::Replay(ReplayError::Replayed)));
        }
        assert_eq!(pair.receiver.usage().packets, 5);
    }
}

#[test]
fn extended_sequence_numbers_cross_two_to_the_32() {
    for suite in suites().into_iter().filter(|suite| !suite.is_historic()) {
        for mode in [Mode::Transport, Mode::Tunnel] {
            let mut pair =
                Pair::new(|| Parameters { extended_sequence: true, ..parameters(suite, mode, true, true) });
            pair.sender.skip((1 << 32) - 4);
            pair.receiver.skip((1 << 32) - 4);
            let sealed: Vec<_> = (0..8).map(|_| pair.seal(&packet(true, 20)).unwrap()).collect();
            assert_eq!(pair.sender.last_sent().0, (1 << 32) + 4);
            // The first behind the edge comes before the last ones in front of it.
            for at in [5, 0, 1, 2, 3, 4, 6, 7] {
                assert!(pair.open(&sealed[at]).is_ok(), "{suite:?} {mode:?} {at}");
            }
            for again in &sealed {
                assert_eq!(pair.open(again), Err(OpenError::Replay(ReplayError::Replayed)));
            }
            assert_eq!(pair.receiver.top(), (1 << 32) + 4);
        }
    }
}

#[test]
fn an_upper_half_that_differs_is_a_forgery() {
    for suite in suites().into_iter().filter(|suite| !suite.is_historic()) {
        let make =
            || Parameters { extended_sequence: true, ..parameters(suite, Mode::Transport, true, true) };
        let mut pair = Pair::new(make);
        pair.receiver.skip(1 << 32);
        let sealed = pair.seal(&packet(true, 20)).unwrap();
        assert_eq!(pair.open(&sealed), Err(OpenError::Forged), "{suite:?}");
    }
}

#[test]
fn without_them_the_last_number_is_the_last_packet() {
    let mut pair = Pair::of(GCM, Mode::Transport);
    pair.sender.skip(u64::from(u32::MAX) - 1);
    assert!(pair.seal(&packet(true, 20)).is_ok());
    assert_eq!(pair.seal(&packet(true, 20)), Err(SealError::Exhausted(SequenceExhausted)));
}

#[test]
fn ah_over_esp_and_a_tunnel_in_transport_open_in_turn() {
    let ah_suite = Suite::Ah(Authentication::HmacSha256);
    for mode in [Mode::Transport, Mode::Tunnel] {
        let mut inner = Pair::of(GCM, mode);
        // Around the tunnel it is the gateways that talk.
        let mut outer = Pair::new(|| {
            let mut parameters = parameters(ah_suite, Mode::Transport, true, true);
            if mode == Mode::Tunnel {
                (parameters.source, parameters.destination) = gateways(true);
                parameters.selectors.clear();
            }
            parameters
        });
        let now = inner.now;
        let plain = packet(true, 40);
        let sealed = seal(&mut inner.sender, &plain, now).unwrap();
        let sealed = seal(&mut outer.sender, &sealed, now).unwrap();
        let found = crate::headers::find(&sealed, None).unwrap().unwrap();
        assert_eq!(found.protocol, Protocol::Ah);
        let (opened, marks) = open(&mut outer.receiver, &sealed, Marks::NONE, now).unwrap();
        assert_eq!(marks, Marks { authentic: true, ..Marks::NONE });
        let (opened, marks) = open(&mut inner.receiver, &opened, marks, now).unwrap();
        assert_eq!(opened, plain);
        assert!(marks.authentic);
        assert!(marks.decrypted ^ marks.decrypted_from_tunnel);
    }
}

#[test]
fn a_packet_in_anothers_name_loses_all_marks() {
    for mode in [Mode::Transport, Mode::Tunnel] {
        for with_selector in [true, false] {
            let mut pair = Pair::new(|| {
                let mut parameters = parameters(GCM, mode, true, true);
                if !with_selector {
                    parameters.selectors.clear();
                }
                parameters
            });
            let mut forged = packet(true, 20);
            forged[23] = 0x99;
            let sealed = pair.seal(&forged).unwrap();
            let before = Marks { authentic: true, decrypted: true, decrypted_from_tunnel: true };
            let (opened, marks) = open(&mut pair.receiver, &sealed, before, pair.now).unwrap();
            assert_eq!((opened, marks), (forged, Marks::NONE), "{mode:?}");
        }
    }
}

#[test]
fn congestion_outside_is_told_inside_and_drops_where_nobody_would_understand() {
    for (inner, outer, expected) in [
        (Ecn::Ect0, Ecn::Ce, Some(Ecn::Ce)),
        (Ecn::Ect0, Ecn::Ect1, Some(Ecn::Ect1)),
        (Ecn::NotEct, Ecn::Ect0, Some(Ecn::NotEct)),
        (Ecn::NotEct, Ecn::Ce, None),
    ] {
        for suite in [GCM, Suite::Ah(Authentication::HmacSha256)] {
            for is_ipv6 in [false, true] {
                let mut pair = Pair::new(|| parameters(suite, Mode::Tunnel, is_ipv6, is_ipv6));
                let mut plain = packet(is_ipv6, 20);
                ecn::set(&mut plain, inner);
                let mut sealed = pair.seal(&plain).unwrap();
                assert_eq!(ecn::get(&sealed), Some(inner));
                ecn::set(&mut sealed, outer);
                let opened = pair.open(&sealed);
                match expected {
                    Some(expected) => {
                        ecn::set(&mut plain, expected);
                        assert_eq!(opened.unwrap().0, plain);
                    }
                    None => assert_eq!(opened, Err(OpenError::Congestion)),
                }
            }
        }
    }
}

/// An ESP packet with a payload, padding and type that no sender here would choose.
fn sealed_by_hand(pair: &mut Pair, payload: &[u8], padding: &[u8], next_header: u8) -> Vec<u8> {
    let sequence = pair.sender.counter.advance().unwrap();
    let Transform::Esp(transform) = &pair.sender.parameters().transform else { unreachable!("it is ESP") };
    let mut esp = pair.sender.parameters().spi.0.to_be_bytes().to_vec();
    esp.extend(sequence.low().to_be_bytes());
    esp.extend(vec![0; transform.iv_length()]);
    esp.extend(payload);
    esp.extend(padding);
    esp.extend([padding.len() as u8, next_header]);
    esp.extend(vec![0; transform.icv_length()]);
    transform.seal(&mut esp, sequence.0, None).unwrap();
    with_payload(true, protocol::ESP, &esp)
}

#[test]
fn dummies_and_wrong_padding_are_dropped_once_they_are_known_to_be_genuine() {
    let mut pair = Pair::of(GCM, Mode::Transport);
    let dummy = sealed_by_hand(&mut pair, &[7; 64], &[1, 2], protocol::NO_NEXT_HEADER);
    assert_eq!(pair.open(&dummy), Err(OpenError::Dummy));
    assert_eq!(pair.open(&dummy), Err(OpenError::Replay(ReplayError::Replayed)));
    let wrong = sealed_by_hand(&mut pair, &[7; 64], &[1, 3], protocol::UDP);
    assert_eq!(pair.open(&wrong), Err(OpenError::Padding));
    let mut pair = Pair::of(GCM, Mode::Tunnel);
    let none = sealed_by_hand(&mut pair, &[], &[1, 2], protocol::IPV6);
    assert_eq!(pair.open(&none), Err(OpenError::Inner));
    let other = sealed_by_hand(&mut pair, &packet(true, 2), &[], protocol::IPV4);
    assert_eq!(pair.open(&other), Err(OpenError::Inner));
    assert_eq!(pair.receiver.top(), 2);
}

#[test]
fn padding_for_traffic_flow_confidentiality_is_cut_off() {
    let mut pair = Pair::of(GCM, Mode::Tunnel);
    let plain = packet(true, 22);
    let padded = [&plain[..], &[0; 400]].concat();
    let sealed = sealed_by_hand(&mut pair, &padded, &[], protocol::IPV6);
    assert_eq!(pair.open(&sealed).unwrap().0, plain);
}

#[test]
fn a_lifetime_ends_by_time_bytes_and_packets() {
    let hour = Duration::from_secs(3600);
    let with = |soft: Lifetime, hard: Lifetime| {
        Pair::new(move || {
            let mut parameters = parameters(GCM, Mode::Transport, true, true);
            parameters.lifetimes.soft = soft;
            parameters.lifetimes.hard = hard;
            parameters
        })
    };
    let mut pair = with(
        Lifetime { packets: Some(2), ..Lifetime::UNLIMITED },
        Lifetime { packets: Some(3), ..Lifetime::UNLIMITED },
    );
    for age in [Age::Fresh, Age::Soft, Age::Hard] {
        assert!(pair.seal(&packet(true, 20)).is_ok());
        assert_eq!(pair.sender.age(pair.now), age);
    }
    assert_eq!(pair.seal(&packet(true, 20)), Err(SealError::Expired));

    let mut pair = with(
        Lifetime { since_used: Some(hour), ..Lifetime::UNLIMITED },
        Lifetime { since_added: Some(hour * 8), bytes: Some(100), ..Lifetime::UNLIMITED },
    );
    let start = pair.now;
    assert_eq!(pair.sender.deadline(Age::Fresh), Some(start + hour * 8));
    pair.now += hour * 2;
    assert!(pair.seal(&packet(true, 20)).is_ok());
    assert_eq!(pair.sender.deadline(Age::Fresh), Some(start + hour * 3));
    assert_eq!(pair.sender.age(start + hour * 3), Age::Soft);
    assert_eq!(pair.sender.age(start + hour * 8), Age::Hard);
    let sealed = pair.seal(&packet(true, 20)).unwrap();
    assert_eq!(pair.sender.age(pair.now), Age::Hard, "136 bytes");
    pair.now = start + hour * 8;
    assert_eq!(pair.open(&sealed), Err(OpenError::Expired));
}

#[test]
fn fragments_small_buffers_and_long_packets_are_refused_and_cost_no_number() {
    for suite in suites() {
        let mut pair = Pair::of(suite, Mode::Transport);
        let fragment = with_payload(true, protocol::FRAGMENT, &[17, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4]);
        let refused = SealError::Headers(crate::headers::HeaderError::Fragment);
        assert_eq!(pair.seal(&fragment), Err(refused));
        assert!(pair.seal(&packet(true, 65_527)) == Err(SealError::TooLong), "{suite:?}");
        let mut buffer = packet(true, 20);
        let length = buffer.len();
        let mut place = PacketBuffer::new(&mut buffer, 0..length).unwrap();
        let sealed = match pair.sender.protocol() {
            Protocol::Esp => esp::seal(&mut pair.sender, &mut place, pair.now),
            Protocol::Ah => ah::seal(&mut pair.sender, &mut place, pair.now),
        };
        assert_eq!(sealed, Err(SealError::NoRoom(crate::packet_buffer::NoRoom)));
        assert_eq!(pair.sender.last_sent().0, 0);
    }
}

#[test]
fn esp_in_transport_goes_behind_hop_by_hop_and_before_destination_options() {
    let mut pair = Pair::of(GCM, Mode::Transport);
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let payload = [&options(protocol::DESTINATION_OPTIONS)[..], &options(protocol::UDP), &[9; 12]].concat();
    let plain = with_payload(true, protocol::HOP_BY_HOP, &payload);
    let sealed = pair.seal(&plain).unwrap();
    let upper = ipv6::Packet::parse(&sealed).unwrap().upper_layer().unwrap();
    assert_eq!((upper.protocol, upper.offset), (protocol::ESP, 48));
    assert_eq!(pair.open(&sealed).unwrap().0, plain);
}

#[test]
fn a_sender_that_runs_out_of_numbers_says_so_in_time() {
    let mut pair = Pair::of(GCM, Mode::Transport);
    pair.sender.skip(u64::from(u32::MAX) / 8 * 7);
    assert_eq!(pair.sender.age(pair.now), Age::Fresh);
    pair.sender.skip(10);
    assert_eq!(pair.sender.age(pair.now), Age::Soft);
    assert!(pair.sender.can_send(pair.now));
    pair.sender.skip(u64::from(u32::MAX) - pair.sender.last_sent().0);
    assert!(!pair.sender.can_send(pair.now));
}

#[test]
fn no_packet_grows_by_more_than_the_overhead_that_is_told() {
    for suite in suites() {
        for (mode, outer) in [(Mode::Transport, true), (Mode::Tunnel, false), (Mode::Tunnel, true)] {
            let mut pair = Pair::new(|| parameters(suite, mode, true, outer));
            let grown: Vec<_> = (0..40)
                .map(|length| {
                    let plain = packet(true, length);
                    pair.seal(&plain).unwrap().len() - plain.len()
                })
                .collect();
            assert_eq!(grown.iter().max(), Some(&pair.sender.overhead()), "{suite:?} {mode:?}");
        }
    }
}

#[test]
fn checksums_inside_are_made_right_for_the_addresses_that_a_nat_has_given() {
    let (private, public) = (IpAddr::from([10, 0, 0, 1]), hosts(false).0);
    for protocol in [protocol::UDP, protocol::TCP] {
        let mut pair = Pair::new(|| Parameters {
            encapsulation: Some(UdpEncapsulation { source_port: 4500, destination_port: 4500 }),
            original_addresses: Some((private, hosts(false).1)),
            ..parameters(GCM, Mode::Transport, false, false)
        });
        let at = if protocol == protocol::TCP { 16 } else { 6 };
        let sum = |plain: &[u8]| {
            let view = ipv4::Packet::parse(plain).unwrap();
            view.pseudo_header(view.payload().len() as u16, protocol) + Sum::of(view.payload())
        };
        let mut plain = with_payload(false, protocol, &[7; 40]);
        plain[12..16].copy_from_slice(&[10, 0, 0, 1]);
        plain[20 + at..20 + at + 2].fill(0);
        let checksum = sum(&plain).checksum();
        plain[20 + at..20 + at + 2].copy_from_slice(&checksum.to_be_bytes());
        let mut sealed = pair.seal(&plain).unwrap();
        let IpAddr::V4(address) = public else { unreachable!("hosts are of IPv4 here") };
        sealed[12..16].copy_from_slice(&address.octets());
        let (opened, marks) = pair.open(&sealed).unwrap();
        assert!(sum(&opened).is_valid());
        assert!(marks.authentic);
    }
}

/// RFC 7296 §2.23: once both ends know NATs, each takes both forms at any time.
#[test]
fn esp_in_udp_and_without_is_taken_whichever_was_agreed_on() {
    let in_udp = Some(UdpEncapsulation { source_port: 4500, destination_port: 4500 });
    for is_ipv6 in [false, true] {
        for (sent, agreed) in [(in_udp, None), (None, in_udp)] {
            let make = |encapsulation| Parameters {
                encapsulation,
                ..parameters(GCM, Mode::Tunnel, is_ipv6, is_ipv6)
            };
            let mut sender = Pair::new(|| make(sent));
            let mut engine = crate::key_engine::KeyEngine::new();
            let now = sender.now;
            engine.add(make(agreed), None, now).unwrap();
            let plain = packet(is_ipv6, 20);
            let mut sealed = sender.seal(&plain).unwrap();
            let length = sealed.len();
            let mut place = PacketBuffer::new(&mut sealed, 0..length).unwrap();
            let opened =
                crate::processing::open(&mut engine, &mut place, Default::default(), Some(4500), now)
                    .unwrap();
            assert!(matches!(opened, crate::processing::Step::Opened(_)));
            assert_eq!(place.packet(), plain);
        }
    }
}

/// RFC 4301 §6.2.
#[test]
fn a_routers_error_about_what_an_association_is_for_comes_through_and_about_other_things_does_not() {
    use wire::icmp_error::{self, Reason};
    for is_ipv6 in [false, true] {
        let (there, here) = hosts(is_ipv6);
        let (router, stranger): (IpAddr, IpAddr) = if is_ipv6 {
            ("2001:db8:e::1".parse().unwrap(), "2001:db8:e::2".parse().unwrap())
        } else {
            ("192.0.2.77".parse().unwrap(), "192.0.2.78".parse().unwrap())
        };
        // What the receiving end has sent, or is said to have sent.
        let sent = |from: IpAddr, to: IpAddr| {
            let mut bytes = packet(is_ipv6, 1200);
            let (at, length) = if is_ipv6 { (8, 16) } else { (12, 4) };
            let octets = |address| match address {
                IpAddr::V4(v4) => v4.octets().to_vec(),
                IpAddr::V6(v6) => v6.octets().to_vec(),
            };
            bytes[at..at + length].copy_from_slice(&octets(from));
            bytes[at + length..at + 2 * length].copy_from_slice(&octets(to));
            bytes
        };
        let error = |about: &[u8]| {
            let mut out = [0; icmp_error::MAX_LEN];
            let length =
                icmp_error::build(Reason::PacketTooBig { mtu: 1280 }, router, about, &mut out).unwrap();
            out[..length].to_vec()
        };
        for (about, comes_through) in
            [(sent(here, there), true), (sent(here, stranger), false), (sent(stranger, there), false)]
        {
            let mut pair = Pair::new(|| parameters(GCM, Mode::Tunnel, is_ipv6, true));
            let plain = error(&about);
            let sealed = pair.seal(&plain).unwrap();
            let (opened, marks) = pair.open(&sealed).unwrap();
            assert_eq!((opened, marks.decrypted_from_tunnel), (plain, comes_through), "{is_ipv6}");
        }
        // It goes to whoever has sent what it quotes, and nobody else.
        let mut elsewhere = error(&sent(here, there));
        let last = if is_ipv6 { 39 } else { 19 };
        elsewhere[last] ^= 1;
        let mut pair = Pair::new(|| parameters(GCM, Mode::Tunnel, is_ipv6, true));
        let sealed = pair.seal(&elsewhere).unwrap();
        assert_eq!(pair.open(&sealed).unwrap().1, Marks::NONE);
    }
}

#[test]
fn an_association_is_for_packets_that_any_of_its_selectors_selects() {
    let selectors = ["2001:db8:c::/48", "2001:db8:a::/48"].map(|from| {
        crate::selector::Selector::between(from.parse().unwrap(), "2001:db8:b::/48".parse().unwrap())
    });
    let mut pair = Pair::new(|| Parameters {
        selectors: selectors.to_vec(),
        ..parameters(GCM, Mode::Tunnel, true, true)
    });
    let sealed = pair.seal(&packet(true, 20)).unwrap();
    assert!(pair.open(&sealed).unwrap().1.decrypted_from_tunnel);
}

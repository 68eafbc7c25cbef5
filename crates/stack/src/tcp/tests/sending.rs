//! When data and acknowledgements leave (RFC 9293 §3.7 and §3.8).

use std::time::Duration;

use wire::segment::Segmenter;
use wire::tcp::{ACK, FIN, PSH, RST, Segment, SegmentOptions, Timestamps};
use wire::{ipv6, protocol, virtio_net};

use super::super::{Config, Error, KeepAlive, State};
use super::network::MS;
use super::story::{MSS, RTT, SECOND, Story, THEIRS, config, offer};

#[test]
fn rfc_9293_section_3_7_1_segments_are_no_larger_than_they_said_with_options_counted() {
    let timestamps = Some(Timestamps { value: 1, echo: 0 });
    let options = SegmentOptions { maximum_segment_size: Some(600), timestamps, ..SegmentOptions::default() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(1000);
    assert_eq!(story.take().unwrap().payload.len(), 588, "RFC 9293 §3.7.1");
}

#[test]
fn rfc_9293_section_3_7_4_nagle_holds_what_is_small_while_something_small_is_outstanding() {
    let mut story = Story::established();
    story.write(10);
    story.write(10);
    assert_eq!(story.all(), [(1, 1, ACK | PSH, 20)]);
    story.write(10);
    assert_eq!(story.all(), []);
    story.write(MSS);
    assert_eq!(story.all(), [(21, 1, ACK, MSS)]);
    story.acknowledge(21);
    assert_eq!(story.all(), [(1021, 1, ACK | PSH, 10)]);
}

#[test]
fn rfc_9293_section_3_7_4_without_nagle_all_leaves_at_once() {
    let mut story = Story::established();
    story.connection.set_nagle(false);
    for n in 0..3 {
        story.write(10);
        assert_eq!(story.all(), [(1 + 10 * n, 1, ACK | PSH, 10)]);
    }
}

#[test]
fn a_gso_packet_has_one_header_and_the_size_of_its_segments() {
    let mut story = Story::established();
    story.max_gso = 4500;
    story.write(5500);
    let packet = story.take().unwrap();
    assert_eq!((packet.brief(), packet.segment_size), ((1, 1, ACK, 4000), Some(1000)));
    let packet = story.take().unwrap();
    assert_eq!((packet.brief(), packet.segment_size), ((4001, 1, ACK | PSH, 1500), Some(1000)));
}

#[test]
fn a_gso_packet_behind_an_ip_header_is_segmented_as_those_of_the_kernel() {
    let mut story = Story::established();
    let written: Vec<u8> = (0..3500u32).map(|n| n as u8).collect();
    story.connection.write(&written);
    story.connection.close();
    let mut packet = vec![0; ipv6::HEADER_LEN];
    let transmit = story.connection.poll_transmit(story.now, 60_000, &mut packet).unwrap();
    assert_eq!(packet.len(), ipv6::HEADER_LEN + transmit.header_len + transmit.payload_len);
    let ip = ipv6::Header {
        traffic_class: transmit.ecn.bits(),
        flow_label: 0,
        payload_length: (transmit.header_len + transmit.payload_len) as u16,
        next_header: protocol::TCP,
        hop_limit: 64,
        source: "2001:db8::1".parse().unwrap(),
        destination: "2001:db8::2".parse().unwrap(),
    };
    packet[..ipv6::HEADER_LEN].copy_from_slice(&ip.to_bytes());
    let header = virtio_net::Header {
        flags: virtio_net::NEEDS_CSUM,
        gso_type: virtio_net::GSO_TCPV6,
        gso_size: transmit.segment_size.unwrap(),
        hdr_len: 60,
        csum_start: 40,
        csum_offset: 16,
    };
    let mut segmenter = Segmenter::new(&header, &mut packet).unwrap();
    let (mut sent, mut flags) = (Vec::new(), Vec::new());
    while let Some(segment) = segmenter.next() {
        flags.push(Segment::parse(&segment.head[ipv6::HEADER_LEN..]).unwrap().flags());
        sent.extend_from_slice(segment.payload);
    }
    assert_eq!((sent, flags), (written, vec![ACK, ACK, ACK, ACK | PSH | FIN]));
}

#[test]
fn rfc_6928_section_2_ten_segments_leave_first() {
    let mut story = Story::established();
    story.write(30_000);
    assert_eq!(story.all().len(), 10);
    story.acknowledge(2001);
    assert_eq!(story.all().len(), 4, "slow start: two more for each that arrived");
}

#[test]
fn rfc_3042_section_2_a_duplicate_acknowledgement_lets_new_data_leave() {
    let options = SegmentOptions { sack_permitted: false, ..offer() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(30_000);
    story.all();
    for n in 0..2 {
        story.acknowledge(1);
        assert_eq!(story.all(), [(10_001 + 1000 * n, 1, ACK, MSS)]);
    }
}

#[test]
fn rfc_6582_section_3_2_without_sack_three_duplicates_send_again_and_partial_acknowledgements_the_next() {
    let options = SegmentOptions { sack_permitted: false, ..offer() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(10_000);
    story.all();
    for _ in 0..3 {
        assert_eq!(story.all(), []);
        story.acknowledge(1);
    }
    assert_eq!(story.take().unwrap().brief(), (1, 1, ACK, MSS));
    story.acknowledge(4001);
    assert_eq!(story.take().unwrap().brief(), (4001, 1, ACK, MSS));
    story.acknowledge(10_001);
    assert_eq!((story.all(), story.connection.statistics().recoveries), (vec![], 1));
}

#[test]
fn rfc_9293_section_3_8_6_1_a_closed_window_is_probed_for_ever_as_long_as_it_is_told() {
    let mut story = Story::established();
    story.window = 0;
    story.acknowledge(1);
    story.write(5000);
    let mut last = Duration::ZERO;
    for _ in 0..40 {
        let (waited, probe) = story.until_something_leaves();
        assert_eq!(probe.brief(), (1, 1, ACK, 1));
        assert!(waited >= last && waited <= 60 * SECOND, "{waited:?}");
        last = waited;
        story.acknowledge(1);
        assert_eq!(story.all(), []);
    }
    assert_eq!(last, 60 * SECOND);
    story.window = 3000;
    story.acknowledge(1);
    let left: usize = story.all().iter().map(|left| left.3).sum();
    assert_eq!(left, 2001, "what was probed with again, and two full segments");
    assert_eq!(story.connection.statistics().timeouts, 0);
}

#[test]
fn rfc_9293_section_3_8_6_1_a_window_that_opens_for_the_probe_goes_on_behind_it() {
    let mut story = Story::established();
    story.window = 0;
    story.acknowledge(1);
    story.write(2001);
    assert_eq!(story.until_something_leaves().1.brief(), (1, 1, ACK, 1));
    story.window = 2000;
    story.acknowledge(2);
    assert_eq!(story.all(), [(2, 1, ACK, MSS), (1002, 1, ACK | PSH, MSS)]);
}

#[test]
fn rfc_9293_section_3_8_6_2_1_a_small_window_is_not_filled_in_small_pieces() {
    let mut story = Story::established();
    story.write(5000);
    story.window = 300;
    story.acknowledge(1);
    assert_eq!(story.all(), []);
    let (_, override_) = story.until_something_leaves();
    assert_eq!(override_.brief(), (1, 1, ACK, 300), "until the override timer");
}

#[test]
fn rfc_9293_section_3_8_6_a_window_that_shrinks_does_no_harm() {
    let mut story = Story::established();
    story.write(5000);
    assert_eq!(story.all().len(), 5);
    story.window = 500;
    story.acknowledge(1001);
    story.write(1000);
    assert_eq!(story.all(), []);
    story.window = 10_000;
    story.acknowledge(5001);
    assert_eq!(story.all(), [(5001, 1, ACK | PSH, MSS)]);
}

#[test]
fn rfc_9293_section_3_8_6_2_2_a_window_that_opens_again_is_told() {
    let mut story = Story::established();
    let mut sequence = 1;
    for _ in 0..66 {
        story.give(sequence, ACK, &[1; MSS]);
        let told: usize = story.all().len();
        assert!(told <= 1);
        sequence += MSS as u32;
    }
    assert!(story.connection.readable() >= 65_000);
    let mut buffer = [0; MSS];
    let mut updates = 0;
    while story.connection.read(&mut buffer) > 0 {
        updates += story.all().len();
    }
    assert!((5..=33).contains(&updates), "{updates}");
}

#[test]
fn rfc_9293_section_3_8_6_3_an_acknowledgement_waits_40_ms_for_a_second_segment_or_data() {
    let mut story = Story::established();
    story.give(1, ACK, &[1; MSS]);
    assert_eq!(story.all(), []);
    let (waited, ack) = story.until_something_leaves();
    assert_eq!((waited, ack.brief()), (40 * MS, (1, 1001, ACK, 0)));
    story.give(1001, ACK, &[1; MSS]);
    assert_eq!(story.all(), []);
    story.give(2001, ACK, &[1; MSS]);
    assert_eq!(story.all(), [(1, 3001, ACK, 0)]);
    story.give(3001, ACK, b"request");
    story.write(8);
    assert_eq!(story.all(), [(1, 3008, ACK | PSH, 8)]);
    assert_eq!(story.pass(100 * MS), []);
}

#[test]
fn rfc_5681_section_4_2_what_is_out_of_order_is_acknowledged_at_once() {
    let mut story = Story::established();
    story.give(1001, ACK, &[1; MSS]);
    let ack = story.take().unwrap();
    assert_eq!(ack.ack, 1);
    assert_eq!(ack.options.sack.as_slice(), [(THEIRS.wrapping_add(1001), THEIRS.wrapping_add(2001))]);
    story.give(1, ACK, &[1; MSS]);
    assert_eq!(story.all(), [(1, 2001, ACK, 0)]);
}

#[test]
fn rfc_6298_section_5_the_first_segment_is_sent_again_and_the_timeout_doubles() {
    let options = SegmentOptions { sack_permitted: false, ..offer() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(3000);
    assert_eq!(story.all().len(), 3);
    let (first, again) = story.until_something_leaves();
    assert_eq!(again.brief(), (1, 1, ACK, MSS));
    assert_eq!(first, RTT + 200 * MS);
    let (second, again) = story.until_something_leaves();
    assert_eq!((second, again.brief()), (2 * first, (1, 1, ACK, MSS)));
    story.acknowledge(1001);
    assert_eq!(story.all(), [(1001, 1, ACK, MSS), (2001, 1, ACK | PSH, MSS)], "slow start");
}

#[test]
fn rfc_9293_section_3_8_3_the_user_timeout_ends_the_connection() {
    let mut story = Story::established();
    story.write(10);
    story.pass(299 * SECOND);
    assert_eq!(story.state(), State::Established);
    let left = story.pass(2 * SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::TimedOut)));
    assert!(left.last().unwrap().2 & RST != 0);
}

#[test]
fn rfc_9293_section_3_8_4_keepalives_probe_and_give_up() {
    let keepalive = KeepAlive { idle: 100 * SECOND, interval: 10 * SECOND, probes: 3 };
    let config = Config { keepalive: Some(keepalive), ..config() };
    let mut story = Story::established_with(config, offer(), 0);
    assert_eq!(story.pass(99 * SECOND), []);
    assert_eq!(story.pass(SECOND), [(0, 1, ACK, 0)]);
    story.give(1, ACK, &[]);
    assert_eq!(story.pass(99 * SECOND), [], "an answer counts");
    assert_eq!(story.pass(29 * SECOND).len(), 3);
    story.pass(2 * SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::TimedOut)));
}

#[test]
fn rfc_9293_section_3_8_4_a_keepalive_of_theirs_is_answered() {
    let mut story = Story::established();
    story.give(0, ACK, &[]);
    assert_eq!(story.all(), [(1, 1, ACK, 0)]);
}

//! Losses and congestion (RFC 8985, 6675, 3522, 3168), and the path's MTU (RFC 5927, 8899).

use wire::ecn::Ecn;
use wire::tcp::{ACK, CWR, ECE, Header, PSH, SYN, SegmentOptions, Timestamps};

use super::super::{Config, Error, IcmpError, State};
use super::network::MS;
use super::story::{MSS, SECOND, Story, config, offer, with_timestamps};

/// Ten segments have left, after an RTT of 50 ms was measured.
fn ten_outstanding() -> Story {
    let mut story = Story::established();
    story.write(MSS);
    story.all();
    story.now += 50 * MS;
    story.acknowledge(1001);
    story.write(10 * MSS);
    assert_eq!(story.all().len(), 10);
    story
}

#[test]
fn rfc_6675_section_5_what_three_sacked_segments_follow_is_sent_again_once() {
    let mut story = ten_outstanding();
    story.now += 50 * MS;
    for n in 2..=3 {
        story.sack(&[(2001, 1001 + 1000 * n)]);
        assert_eq!(story.all(), []);
    }
    story.sack(&[(2001, 5001)]);
    assert_eq!(story.all(), [(1001, 1, ACK, MSS)]);
    story.sack(&[(2001, 6001)]);
    assert_eq!(story.all(), []);
    story.acknowledge(11_001);
    assert_eq!(story.connection.statistics().recoveries, 1);
    assert_eq!(story.connection.unacknowledged(), 0);
}

#[test]
fn rfc_8985_section_6_2_fewer_wait_for_a_quarter_of_the_rtt() {
    let mut story = ten_outstanding();
    story.now += 50 * MS;
    story.sack(&[(2001, 3001)]);
    assert_eq!(story.all(), []);
    let (waited, again) = story.until_something_leaves();
    assert_eq!(again.brief(), (1001, 1, ACK, MSS));
    assert!((6 * MS..=13 * MS).contains(&waited), "{waited:?}");
}

#[test]
fn rfc_8985_section_6_a_lost_retransmission_is_found() {
    let mut story = ten_outstanding();
    story.now += 50 * MS;
    story.sack(&[(2001, 6001)]);
    assert_eq!(story.all(), [(1001, 1, ACK, MSS)]);
    story.write(5 * MSS);
    story.now += 5 * MS;
    story.sack(&[(2001, 9001)]);
    assert_ne!(story.all(), [], "new data follows the retransmission");
    story.now += 60 * MS;
    story.sack(&[(11_001, 12_001), (2001, 9001)]);
    let left = [story.all(), story.pass(20 * MS)].concat();
    assert!(left.iter().any(|left| left.0 == 1001), "{left:?}");
    assert_eq!(story.connection.statistics().timeouts, 0);
}

#[test]
fn rfc_8985_section_7_2_the_tail_is_probed_after_two_round_trips() {
    let mut story = ten_outstanding();
    let (waited, probe) = story.until_something_leaves();
    let rtt = story.connection.rtt().unwrap();
    assert_eq!((waited, probe.brief()), (2 * rtt, (10_001, 1, ACK | PSH, MSS)));
    assert_eq!(story.connection.statistics().tail_loss_probes, 1);
}

#[test]
fn rfc_8985_section_7_4_a_probe_that_repaired_the_loss_reduces_the_window() {
    let mut story = ten_outstanding();
    let before = story.connection.congestion_window();
    story.until_something_leaves();
    story.now += 50 * MS;
    story.write(MSS);
    story.acknowledge(11_001);
    story.all();
    story.acknowledge(12_001);
    assert!(story.connection.congestion_window() < before);
}

#[test]
fn rfc_8985_section_7_4_a_probe_of_what_had_arrived_does_not() {
    let mut story = ten_outstanding();
    let before = story.connection.congestion_window();
    story.until_something_leaves();
    story.acknowledge(11_001);
    story.sack(&[(10_001, 11_001)]);
    assert!(story.connection.congestion_window() >= before);
}

#[test]
fn rfc_3522_section_3_2_a_needless_timeout_is_undone() {
    let mut story = Story::established_with(config(), with_timestamps(), 0);
    story.write(3000);
    let first = story.take().unwrap().options.timestamps.unwrap().value;
    story.all();
    let before = story.connection.congestion_window();
    while story.connection.statistics().timeouts == 0 {
        story.until_something_leaves();
    }
    assert!(story.connection.congestion_window() < before);
    story.timestamps = Some(Timestamps { value: 101, echo: first });
    story.acknowledge(989);
    assert_eq!(story.connection.statistics().undone, 1);
    assert!(story.connection.congestion_window() >= before);
}

#[test]
fn rfc_3708_a_recovery_whose_retransmissions_were_all_duplicates_is_undone() {
    let mut story = ten_outstanding();
    let before = story.connection.congestion_window();
    story.now += 50 * MS;
    story.sack(&[(2001, 5001)]);
    assert_eq!(story.all(), [(1001, 1, ACK, MSS)]);
    story.acknowledge(11_001);
    assert!(story.connection.congestion_window() < before);
    story.sack(&[(3001, 4001)]);
    assert_eq!(story.connection.statistics().undone, 0, "a duplicate of the network's own");
    story.sack(&[(1001, 2001)]);
    assert_eq!(story.connection.statistics().undone, 1);
    assert!(story.connection.congestion_window() >= before);
}

#[test]
fn rfc_5681_section_3_1_a_lost_syn_leaves_one_segment_and_three_seconds() {
    let (mut story, _) = Story::connecting(config());
    story.until_something_leaves();
    story.send(Header { flags: SYN | ACK, options: offer(), ..story.header(0) }, &[]);
    assert_eq!(story.connection.congestion_window(), MSS);
    story.write(3000);
    assert_eq!(story.all(), [(1, 1, ACK, MSS)]);
    assert_eq!(story.until_something_leaves().0, 3 * SECOND, "RFC 6298 §5.7");
}

#[test]
fn rfc_8985_section_6_3_a_timeout_sends_the_first_and_what_was_late_again() {
    let mut story = ten_outstanding();
    while story.connection.statistics().timeouts == 0 {
        story.until_something_leaves();
    }
    story.write(MSS);
    story.acknowledge(2001);
    assert_eq!(story.take().unwrap().brief(), (2001, 1, ACK, MSS));
}

#[test]
fn rfc_2018_section_8_a_receiver_that_forgot_what_it_sacked_gets_it_again() {
    let mut story = ten_outstanding();
    story.now += 50 * MS;
    story.sack(&[(1001, 11_001)]);
    let mut again = Vec::new();
    for _ in 0..30 {
        again.extend(story.pass(SECOND).iter().map(|left| left.0));
        let highest = again.iter().max().map_or(1001, |last| last + 1000);
        story.acknowledge(highest);
    }
    assert_eq!(story.connection.unacknowledged(), 0);
}

#[test]
fn rfc_3168_section_6_1_2_an_echo_reduces_the_window_once_and_is_answered() {
    let config = Config { ecn: true, ..config() };
    let mut story = Story::established_with(config, offer(), ECE);
    story.write(20_000);
    assert_eq!(story.take().unwrap().ecn, Ecn::Ect0);
    story.all();
    let before = story.connection.congestion_window();
    for ack in [1001, 2001] {
        story.ack = ack;
        story.give(1, ACK | ECE, &[]);
    }
    assert_eq!(story.connection.statistics().marked, 1);
    assert_eq!(story.connection.congestion_window(), before * 7 / 10);
    story.acknowledge(9001);
    assert_ne!(story.take().unwrap().flags & CWR, 0);
    assert_eq!(story.take().unwrap().flags & CWR, 0);
}

#[test]
fn rfc_3168_section_6_1_3_a_mark_is_echoed_until_they_answer() {
    let config = Config { ecn: true, ..config() };
    let mut story = Story::established_with(config, offer(), ECE);
    story.send_marked(story.header(1), &[1; 2 * MSS], Ecn::Ce);
    let ack = story.take().unwrap();
    assert_eq!((ack.flags, ack.ecn), (ACK | ECE, Ecn::NotEct));
    story.give(2001, ACK, &[1; 2 * MSS]);
    assert_eq!(story.take().unwrap().flags, ACK | ECE);
    story.give(4001, ACK | CWR, &[1; 2 * MSS]);
    assert_eq!(story.take().unwrap().flags, ACK);
}

#[test]
fn rfc_3168_section_6_1_5_retransmissions_are_not_ecn_capable() {
    let config = Config { ecn: true, ..config() };
    let mut story = Story::established_with(config, offer(), ECE);
    story.write(10);
    assert_eq!(story.take().unwrap().ecn, Ecn::Ect0);
    assert_eq!(story.until_something_leaves().1.ecn, Ecn::NotEct);
}

#[test]
fn rfc_5927_section_4_1_an_icmp_error_counts_only_for_what_is_outstanding() {
    let mut story = Story::established();
    story.write(5000);
    story.all();
    let too_big = IcmpError::PacketTooBig { largest_segment: 620 };
    for sequence in [0, 5001] {
        story.connection.icmp_error(story.initial.wrapping_add(sequence), too_big);
        assert_eq!(story.all(), []);
    }
    story.connection.icmp_error(story.initial.wrapping_add(1001), too_big);
    let left = story.all();
    assert_eq!(left[0], (1, 1, ACK, 600));
    assert_eq!(left.iter().map(|left| left.3).sum::<usize>(), 5000);
    assert_eq!(story.connection.statistics().recoveries, 0);
}

#[test]
fn rfc_5927_section_7_2_an_icmp_error_does_not_make_segments_tiny() {
    let mut story = Story::established();
    story.write(5000);
    story.all();
    let too_big = IcmpError::PacketTooBig { largest_segment: 60 };
    story.connection.icmp_error(story.initial.wrapping_add(1), too_big);
    assert_eq!(story.take().unwrap().payload.len(), 516);
}

#[test]
fn rfc_5927_section_5_2_a_hard_error_ends_only_what_is_not_established() {
    let (mut story, _) = Story::connecting(config());
    story.connection.icmp_error(story.initial.wrapping_add(1), IcmpError::Hard);
    assert_eq!(story.state(), State::SynSent);
    story.connection.icmp_error(story.initial, IcmpError::Hard);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::Unreachable)));
    let mut story = Story::established();
    story.write(10);
    story.all();
    story.connection.icmp_error(story.initial.wrapping_add(1), IcmpError::Hard);
    assert_eq!(story.state(), State::Established);
    story.pass(301 * SECOND);
    assert_eq!(story.connection.error(), Some(Error::Unreachable), "a reason, once we give up");
}

#[test]
fn rfc_8899_section_4_3_full_segments_that_vanish_become_smaller() {
    let options = SegmentOptions { maximum_segment_size: Some(1440), ..offer() };
    let mut story = Story::established_with(Config { ecn: false, ..Config::new(1440) }, options, 0);
    story.write(10_000);
    story.all();
    let mut size = || {
        let (_, left) = story.until_something_leaves();
        story.all();
        left.payload.len()
    };
    let sizes = [size(), size(), size(), size()];
    assert_eq!(sizes, [1360, 1440, 1120, 1120]);
}

/// A timeout on a connection without timestamps, with new data waiting: the first segment has left again.
fn timed_out() -> Story {
    let mut story = ten_outstanding();
    story.write(10 * MSS);
    story.all();
    while story.connection.statistics().timeouts == 0 {
        story.until_something_leaves();
    }
    story
}

#[test]
fn rfc_5682_section_3_1_a_timeout_that_came_too_soon_is_undone_and_nothing_else_is_sent_again() {
    let mut story = timed_out();
    let before = story.connection.statistics().retransmitted;
    story.acknowledge(2001);
    let new = story.all();
    assert!(new.len() == 2 && new.iter().all(|left| left.0 > 11_000), "{new:?}");
    story.acknowledge(3001);
    story.all();
    let statistics = story.connection.statistics();
    assert_eq!((statistics.undone, statistics.retransmitted), (1, before));
    assert!(story.connection.congestion_window() >= 10 * MSS);
}

#[test]
fn rfc_5682_section_3_1_what_was_lost_is_sent_again() {
    let mut story = timed_out();
    story.acknowledge(2001);
    let new = story.all();
    // Only the new ones arrive.
    story.now += 50 * MS;
    story.sack(&[(new[0].0, new[0].0 + 1000)]);
    let again = story.all();
    assert_eq!(again[0].0, 2001, "{again:?}");
    let statistics = story.connection.statistics();
    assert_eq!((statistics.undone, statistics.timeouts), (0, 1));
    assert!(story.connection.congestion_window() <= 4 * MSS);
}

#[test]
fn rfc_5682_section_2_1_a_second_timeout_is_not_doubted() {
    let mut story = timed_out();
    while story.connection.statistics().timeouts == 1 {
        story.until_something_leaves();
    }
    story.acknowledge(2001);
    assert!(story.all().iter().any(|left| left.0 == 2001));
    assert_eq!(story.connection.statistics().undone, 0);
}

/// A path that carries 800 bytes of payload, as a router has said, and all that was sent has arrived.
fn narrowed() -> Story {
    let mut story = ten_outstanding();
    let too_big = IcmpError::PacketTooBig { largest_segment: 820 };
    story.connection.icmp_error(story.initial.wrapping_add(1001), too_big);
    story.all();
    story.now += 50 * MS;
    story.acknowledge(11_001);
    story.all();
    story
}

#[test]
fn rfc_8899_section_5_3_a_larger_segment_is_tried_once_the_path_may_carry_it() {
    let mut story = narrowed();
    story.write(2 * MSS);
    assert_eq!(story.all()[0].3, 800, "not yet");
    story.acknowledge(13_001);
    story.connection.path_mtu_raised(story.now, 5000);
    story.write(5 * MSS);
    let sizes = |left: Vec<(u32, u32, u8, usize)>| left.iter().map(|left| left.3).collect::<Vec<_>>();
    assert_eq!(sizes(story.all()), [1000, 800, 800, 800, 800, 800], "one, as large as both ends allow");
    story.now += 50 * MS;
    story.acknowledge(18_001);
    story.write(3 * MSS);
    assert_eq!(sizes(story.all()), [1000, 1000, 1000]);
}

#[test]
fn rfc_8899_section_3_a_lost_probe_is_no_congestion_and_is_sent_again_in_pieces() {
    let mut story = narrowed();
    story.connection.path_mtu_raised(story.now, 5000);
    let window = story.connection.congestion_window();
    let mut next = 11_001;
    for round in 0..3 {
        story.write(5 * MSS);
        let left = story.all();
        assert_eq!((left[0].0, left[0].3), (next, 1000), "round {round}");
        // All but the probe arrives.
        story.now += 50 * MS;
        story.sack(&[(next + 1000, next + 5000)]);
        let again = [story.all(), story.pass(30 * MS)].concat();
        assert_eq!(again.iter().map(|left| left.3).collect::<Vec<_>>(), [800, 200], "round {round}");
        story.now += 50 * MS;
        next += 5000;
        story.acknowledge(next);
    }
    let statistics = story.connection.statistics();
    assert_eq!((statistics.recoveries, statistics.timeouts), (0, 0));
    assert!(story.connection.congestion_window() >= window);
    // What is between is tried next.
    story.now += 50 * MS;
    story.write(5 * MSS);
    assert_eq!(story.all()[0].3, 900);
}

#[test]
fn rfc_8899_section_5_1_1_after_ten_minutes_the_size_that_vanished_is_tried_again() {
    let options = SegmentOptions { maximum_segment_size: Some(1440), ..offer() };
    let mut story = Story::established_with(Config { max_segment_size: 1440, ..config() }, options, 0);
    story.write(10_000);
    story.all();
    while story.until_something_leaves().1.payload.len() != 1120 {
        story.all();
    }
    story.all();
    story.acknowledge(10_001);
    // Sends so much, all of which arrives, and returns the largest.
    let mut largest_after = |pause| {
        story.now += pause;
        story.write(20_000);
        let mut largest = 0;
        while let Some(last) = story.all().into_iter().inspect(|left| largest = left.3.max(largest)).last() {
            story.now += 50 * MS;
            story.acknowledge(last.0 + last.3 as u32);
        }
        largest
    };
    let sizes = [SECOND, SECOND * 500, SECOND * 101, SECOND].map(&mut largest_after);
    assert_eq!(sizes, [1120, 1120, 1440, 1440]);
}

/// One segment is outstanding, after an RTT of 300 ms was measured.
fn one_outstanding() -> Story {
    let mut story = Story::established();
    for n in 1..=20 {
        story.write(MSS);
        story.all();
        story.now += 300 * MS;
        story.acknowledge(1 + n * MSS as u32);
    }
    story.write(MSS);
    story.all();
    story
}

#[test]
fn rfc_8985_section_7_2_a_single_segment_is_given_time_for_a_delayed_acknowledgement() {
    let mut story = one_outstanding();
    let rtt = story.connection.rtt().unwrap();
    let (waited, _) = story.until_something_leaves();
    let statistics = story.connection.statistics();
    // The timeout would come before, so that the probe takes its place.
    assert!(waited < 2 * rtt + 200 * MS, "{waited:?}");
    assert_eq!((statistics.tail_loss_probes, statistics.timeouts), (1, 0));
    // Two are probed for without that time.
    story.acknowledge(21_001);
    story.write(2 * MSS);
    story.all();
    story.now += 300 * MS;
    story.acknowledge(23_001);
    story.write(2 * MSS);
    story.all();
    let rtt = story.connection.rtt().unwrap();
    let (waited, _) = story.until_something_leaves();
    assert!(waited <= 2 * rtt, "{waited:?}");
}

#[test]
fn rfc_8985_section_7_3_new_data_is_the_probe_if_there_is_any_whatever_the_window_of_congestion() {
    let mut story = ten_outstanding();
    story.write(5 * MSS);
    let next = story.all().last().map_or(11_001, |left| left.0 + 1000);
    let (_, probe) = story.until_something_leaves();
    assert_eq!((probe.sequence, probe.payload.len()), (next, MSS));
    assert_eq!(story.connection.statistics().tail_loss_probes, 1);
}

#[test]
fn rfc_8985_section_7_3_there_is_one_probe_and_then_the_timeout() {
    let mut story = ten_outstanding();
    story.until_something_leaves();
    let (_, next) = story.until_something_leaves();
    assert_eq!(next.sequence, 1001);
    let statistics = story.connection.statistics();
    assert_eq!((statistics.tail_loss_probes, statistics.timeouts), (1, 1));
}

#[test]
fn rfc_8985_section_7_3_between_two_probes_a_round_trip_is_measured() {
    let mut story = ten_outstanding();
    story.until_something_leaves();
    // What arrives may be the probe or what it repeats, so that it says nothing of the round trip.
    story.acknowledge(11_001);
    story.write(2 * MSS);
    story.all();
    story.until_something_leaves();
    let statistics = story.connection.statistics();
    assert_eq!((statistics.tail_loss_probes, statistics.timeouts), (1, 1), "a timeout, no probe");
    story.acknowledge(13_001);
    story.write(MSS);
    story.all();
    story.now += 50 * MS;
    story.acknowledge(14_001);
    story.write(2 * MSS);
    story.all();
    story.until_something_leaves();
    assert_eq!(story.connection.statistics().tail_loss_probes, 2);
}

#[test]
fn rfc_8985_section_7_2_without_sack_nothing_is_probed_for() {
    let options = SegmentOptions { sack_permitted: false, ..offer() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(3 * MSS);
    story.all();
    story.pass(10 * SECOND);
    assert_eq!(story.connection.statistics().tail_loss_probes, 0);
}

#[test]
fn rfc_8985_section_7_1_nothing_is_probed_for_in_a_recovery() {
    let mut story = ten_outstanding();
    story.now += 50 * MS;
    story.sack(&[(2001, 6001)]);
    story.all();
    story.pass(SECOND);
    let statistics = story.connection.statistics();
    assert_eq!((statistics.tail_loss_probes, statistics.recoveries), (0, 1));
}

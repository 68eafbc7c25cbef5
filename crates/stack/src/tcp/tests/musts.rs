//! RFC 9293, requirement by requirement, where no story of a section shows it: MUST-n, SHLD-n and MAY-n are those of its
//! appendix B.

use wire::tcp::{ACK, FIN, Header, PSH, RST, SYN, SegmentOptions, URG};

use super::super::{Config, DropReason, Error, IcmpError, KeepAlive, State};
use super::network::MS;
use super::story::{MSS, RTT, SECOND, Story, config, offer, with_timestamps};

#[test]
fn rfc_9293_must_30_33_and_62_what_they_call_urgent_is_told_until_it_is_read() {
    let mut story = Story::established();
    assert_eq!(story.connection.urgent(), None);
    let urgent = |story: &mut Story, sequence, pointer, payload: &[u8]| {
        story.send(Header { flags: ACK | URG, urgent_pointer: pointer, ..story.header(sequence) }, payload);
        story.connection.urgent()
    };
    assert_eq!(urgent(&mut story, 1, 3, b"abcd"), Some(3), "the pointer is behind the last octet");
    assert_eq!(story.connection.read(&mut [0; 2]), 2);
    assert_eq!(story.connection.urgent(), Some(1));
    assert_eq!(urgent(&mut story, 5, 1000, b"ef"), Some(1002), "it may be ahead of what has arrived");
    assert_eq!(urgent(&mut story, 1, 2, b""), Some(1002), "and never moves back");
    assert_eq!(story.connection.read(&mut [0; 9]), 4, "all in its place");
    story.give(7, ACK, &[1; MSS]);
    assert_eq!(story.connection.read(&mut [0; 2000]), 1000);
    assert_eq!(story.connection.urgent(), None);
    let flags = ACK | URG | FIN;
    story.send(Header { flags, urgent_pointer: 9, ..story.header(1007) }, b"end");
    assert_eq!(story.connection.urgent(), Some(3), "behind their FIN is nothing");
    assert_eq!(story.connection.read(&mut [0; 9]), 3);
    assert_eq!(story.connection.urgent(), None);
}

#[test]
fn rfc_9293_must_66_a_closed_window_takes_urgent_pointers_and_resets_with_text() {
    let closed = || {
        let config = Config { max_receive_buffer: 2000, ..config() };
        let mut story = Story::established_with(config, offer(), 0);
        story.give(1, ACK, &[1; 2 * MSS]);
        assert_eq!(story.take().unwrap().window, 0);
        story
    };
    let mut story = closed();
    story.send(Header { flags: ACK | URG, urgent_pointer: 5, ..story.header(2001) }, b"probe");
    assert_eq!(story.connection.urgent(), Some(2005));
    let mut story = closed();
    story.give(2001, RST, b"why");
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::Reset)), "SHLD-2");
    let mut story = closed();
    story.give(2002, RST, b"why");
    assert_eq!(story.state(), State::Established, "but no other (RFC 5961)");
}

#[test]
fn rfc_9293_must_31_urgent_data_of_any_length_is_pointed_at_until_it_is_acknowledged() {
    let mut story = Story::established();
    story.max_gso = 60_000;
    assert_eq!(story.connection.write_urgent(&[7; 2500]), 2500);
    story.write(100);
    let pointers: Vec<_> = std::iter::from_fn(|| story.take_header()).collect();
    assert_eq!(pointers, [(1, ACK | URG, 2500), (1001, ACK | URG, 1500), (2001, ACK | PSH | URG, 500)]);
    story.give(1, ACK, &[1; 2 * MSS]);
    assert_eq!(story.take_header(), Some((2601, ACK, 0)), "what is behind it says nothing");
    story.ack = 2601;
    story.give(2001, ACK, &[]);
    story.write(10);
    assert_eq!(story.take_header(), Some((2601, ACK | PSH, 0)));
}

#[test]
fn rfc_9293_must_47_and_shld_9_what_is_in_the_way_is_told_until_something_arrives() {
    let mut story = Story::established();
    story.write(10);
    story.all();
    assert_eq!(story.connection.soft_error(), None);
    story.connection.icmp_error(story.initial.wrapping_add(1), IcmpError::Soft);
    assert_eq!(story.connection.soft_error(), Some(Error::Unreachable), "SHLD-25");
    assert_eq!(story.connection.error(), None, "MUST-56");
    story.acknowledge(11);
    assert_eq!(story.connection.soft_error(), None);
    story.write(10);
    story.all();
    while story.connection.statistics().timeouts < 3 {
        assert_eq!(story.connection.soft_error(), None);
        story.until_something_leaves();
    }
    assert_eq!(story.connection.soft_error(), Some(Error::TimedOut), "R1 is three retransmissions (SHLD-10)");
    story.acknowledge(21);
    assert_eq!(story.connection.soft_error(), None);
    let (mut story, _) = Story::connecting(config());
    story.pass(8 * SECOND);
    assert_eq!(story.connection.soft_error(), Some(Error::TimedOut), "MUST-22: SYN segments as well");
}

#[test]
fn rfc_9293_must_29_a_single_probe_without_an_answer_ends_nothing() {
    for probes in [0, 1] {
        let keepalive = KeepAlive { idle: 100 * SECOND, interval: 10 * SECOND, probes };
        let mut story =
            Story::established_with(Config { keepalive: Some(keepalive), ..config() }, offer(), 0);
        assert_eq!(story.pass(119 * SECOND), [(0, 1, ACK, 0), (0, 1, ACK, 0)], "SHLD-12: without data");
        assert_eq!(story.state(), State::Established);
    }
}

#[test]
fn rfc_9293_must_25_and_26_keepalives_are_asked_for_and_wait_for_silence() {
    let mut story = Story::established();
    assert_eq!(story.pass(10_000 * SECOND), [], "MUST-25: off by default");
    assert!(KeepAlive::default().idle >= 7200 * SECOND, "MUST-28");
    let keepalive = KeepAlive { idle: 100 * SECOND, interval: 10 * SECOND, probes: 3 };
    let mut story = Story::established_with(Config { keepalive: Some(keepalive), ..config() }, offer(), 0);
    story.write(10);
    story.all();
    let left = story.pass(150 * SECOND);
    assert!(left.iter().all(|left| left.3 == 10), "MUST-26: none while data is outstanding: {left:?}");
}

#[test]
fn rfc_9293_must_18_the_timeout_stays_backed_off_until_a_round_trip_is_measured() {
    let options = SegmentOptions { sack_permitted: false, ..offer() };
    let mut story = Story::established_with(config(), options, 0);
    story.write(MSS);
    story.all();
    let (first, _) = story.until_something_leaves();
    let (second, _) = story.until_something_leaves();
    assert_eq!(second, 2 * first);
    // Of which of the three this is the acknowledgement, nobody knows.
    story.acknowledge(1001);
    story.write(MSS);
    story.all();
    let (third, _) = story.until_something_leaves();
    assert_eq!(third, 4 * first);
    story.acknowledge(2001);
    story.write(MSS);
    story.all();
    story.now += RTT;
    story.acknowledge(3001);
    story.write(MSS);
    story.all();
    assert!(story.until_something_leaves().0 < 2 * first);
}

#[test]
fn rfc_7323_section_4_1_an_echo_measures_what_was_sent_again() {
    let mut story = Story::established_with(config(), with_timestamps(), 0);
    story.write(500);
    story.all();
    while story.connection.statistics().timeouts < 1 {
        story.until_something_leaves();
    }
    let (_, again) = story.until_something_leaves();
    story.now += 300 * MS;
    let echo = again.options.timestamps.unwrap().value;
    story.timestamps = Some(wire::tcp::Timestamps { value: 101, echo });
    story.acknowledge(501);
    let rtt = story.connection.rtt().unwrap();
    assert!((RTT..300 * MS).contains(&rtt) && rtt != RTT, "{rtt:?}");
}

#[test]
fn rfc_5961_section_4_2_and_rfc_9293_3_5_1_who_has_forgotten_the_connection_learns_of_it() {
    let mut story = Story::established_with(config(), with_timestamps(), 0);
    // It has restarted, and its SYN has no timestamps any more.
    story.timestamps = None;
    story.send(Header { flags: SYN, options: offer(), ..story.header(77_777) }, &[]);
    let challenge = story.take().expect("an acknowledgement, to which it answers with a RST");
    assert_eq!((challenge.flags, story.state()), (ACK, State::Established));
    story.send(Header { flags: RST, ..story.header(1) }, &[]);
    assert_eq!(story.connection.error(), Some(Error::Reset));
}

#[test]
fn rfc_9293_must_58_and_59_all_that_has_come_is_acknowledged_at_once_and_once() {
    let mut story = Story::established();
    for n in [1, 0, 2, 3, 5, 4] {
        story.give(1 + n * MSS as u32, ACK, &[1; MSS]);
    }
    assert_eq!(story.all(), [(1, 6001, ACK, 0)]);
}

#[test]
fn rfc_9293_must_61_the_last_of_what_is_written_is_pushed_and_shld_27_nothing_before_it() {
    let mut story = Story::established();
    story.connection.set_nagle(false);
    for _ in 0..5 {
        story.write(500);
    }
    let flags: Vec<_> = story.all().iter().map(|left| (left.2, left.3)).collect();
    assert_eq!(flags, [(ACK, MSS), (ACK, MSS), (ACK | PSH, 500)], "SHLD-28: in full segments");
}

#[test]
fn rfc_9293_shld_7_what_fills_a_small_window_waits_for_what_did_before_it() {
    for (nagle, more) in [(true, 0), (false, 1)] {
        let (mut story, _) = Story::connecting(Config { nagle, ..config() });
        story.window = 700;
        story.send(Header { flags: SYN | ACK, options: offer(), ..story.header(0) }, &[]);
        story.all();
        story.write(5000);
        assert_eq!(story.all(), [(1, 1, ACK, 700)], "more than half of the largest window");
        story.window = 1400;
        story.acknowledge(1);
        assert_eq!(story.all().len(), more);
        story.window = 700;
        story.acknowledge(701);
        assert!(!story.all().is_empty() || more == 1);
    }
}

#[test]
fn rfc_9293_must_65_a_maximum_segment_size_is_said_and_heard_in_syn_segments_only() {
    let mut story = Story::established();
    let options = SegmentOptions { maximum_segment_size: Some(100), ..SegmentOptions::default() };
    story.send(Header { options, ..story.header(1) }, b"text");
    story.write(MSS);
    let left = story.take().unwrap();
    assert_eq!((left.payload.len(), left.options.maximum_segment_size), (MSS, None));
}

#[test]
fn rfc_9293_must_35_and_shld_15_to_17_behind_an_edge_that_has_moved_left_nothing_new_is_sent() {
    let mut story = Story::established();
    story.write(8000);
    assert_eq!(story.all().len(), 8);
    story.window = 2000;
    story.acknowledge(1001);
    story.write(5000);
    let left = story.pass(250 * SECOND);
    assert!(left.iter().all(|left| left.0 < 8001), "SHLD-15: {left:?}");
    // The probe of the tail is what MAY-7 allows.
    let within = left.iter().filter(|left| left.0 + left.3 as u32 <= 3001).count();
    assert_eq!(within, left.len() - 1, "SHLD-16: {left:?}");
    assert!(!left.is_empty());
    story.window = 0;
    for _ in 0..5 {
        story.acknowledge(1001);
        let left = story.pass(250 * SECOND);
        assert_eq!(
            (left.iter().all(|left| left.0 == 1001), story.state()),
            (true, State::Established),
            "SHLD-17"
        );
    }
    story.window = 60_000;
    let mut arrived = 8001;
    for _ in 0..20 {
        story.acknowledge(arrived);
        arrived = story.all().iter().map(|left| left.0 + left.3 as u32).max().unwrap_or(arrived);
    }
    assert_eq!((story.connection.unacknowledged(), story.state()), (0, State::Established));
}

#[test]
fn rfc_9293_must_12_and_47_how_it_has_ended_is_told_apart() {
    let ends: [fn(&mut Story); 4] = [
        |story| story.give(1, RST, &[]),
        |story| story.connection.abort(),
        |story| drop((story.write(1), story.pass(400 * SECOND))),
        |story| {
            story.give(1, ACK | FIN, &[]);
            story.connection.close();
            story.all();
            story.ack = 2;
            story.give(2, ACK, &[]);
        },
    ];
    let told = ends.map(|end| {
        let mut story = Story::established();
        end(&mut story);
        assert_eq!(story.state(), State::Closed);
        story.connection.error()
    });
    assert_eq!(told, [Some(Error::Reset), Some(Error::Aborted), Some(Error::TimedOut), None]);
}

#[test]
fn rfc_9293_3_10_7_4_each_state_after_their_fin_takes_no_more_text() {
    let mut story = Story::established();
    story.give(1, ACK | FIN, &[]);
    story.all();
    for state in [State::CloseWait, State::LastAck] {
        assert_eq!(story.state(), state);
        story.give(2, ACK, b"text");
        assert_eq!((story.dropped, story.connection.readable()), (Some(DropReason::AfterFin), 0));
        // Their FIN again is only acknowledged again.
        story.give(1, ACK | FIN, &[]);
        assert_eq!((story.all().last().map(|left| left.1), story.state()), (Some(2), state));
        story.connection.close();
        story.all();
    }
}

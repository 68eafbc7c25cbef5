//! Checks of segments that arrive (RFC 9293 §3.10.7.4, RFC 5961, RFC 7323).

use wire::tcp::{ACK, FIN, Header, RST, SYN, Timestamps, URG};

use super::super::{Config, DropReason, Error, State};
use super::network::MS;
use super::story::{MSS, SECOND, Story, THEIRS, config, offer, with_timestamps};

#[test]
fn rfc_9293_section_3_10_7_4_first_what_is_outside_of_the_window_is_acknowledged_and_dropped() {
    let mut story = Story::established();
    story.give(1 + 65535 + 255, ACK, b"beyond");
    assert_eq!(story.all(), [(1, 1, ACK, 0)]);
    story.give(1, ACK, b"abc");
    story.pass(40 * MS);
    story.give(1, ACK, b"abc");
    let again = story.take().unwrap();
    assert_eq!(again.brief(), (1, 4, ACK, 0));
    assert_eq!(again.options.sack.as_slice(), [(THEIRS.wrapping_add(1), THEIRS.wrapping_add(4))], "RFC 2883");
    assert_eq!(story.connection.readable(), 3);
}

#[test]
fn rfc_9293_section_3_10_7_4_seventh_overlap_with_what_was_received_is_cut() {
    let mut story = Story::established();
    story.give(1, ACK, b"abc");
    story.give(2, ACK, b"bcdef");
    let mut read = [0; 10];
    assert_eq!(story.connection.read(&mut read), 6);
    assert_eq!(&read[..6], b"abcdef");
}

#[test]
fn rfc_5961_section_3_2_only_the_next_number_resets() {
    let mut story = Story::established();
    story.give(2, RST, &[]);
    assert_eq!((story.state(), story.all()), (State::Established, vec![(1, 1, ACK, 0)]));
    story.give(0, RST, &[]);
    assert_eq!((story.state(), story.all()), (State::Established, vec![]));
    story.give(1, RST, &[]);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::Reset)));
}

#[test]
fn rfc_5961_section_4_2_a_syn_is_challenged() {
    let mut story = Story::established();
    story.give(5, SYN, &[]);
    assert_eq!((story.state(), story.all()), (State::Established, vec![(1, 1, ACK, 0)]));
}

#[test]
fn rfc_5961_section_5_2_an_acknowledgement_too_old_or_of_the_future_takes_its_data_along() {
    let mut story = Story::established();
    for ack in [2, 0u32.wrapping_sub(60_001)] {
        story.ack = ack;
        story.give(1, ACK, b"injected");
        assert_eq!((story.connection.readable(), story.all()), (0, vec![(1, 1, ACK, 0)]));
    }
    story.ack = 0u32.wrapping_sub(59_000);
    story.give(1, ACK, b"old, but possible");
    assert_eq!(story.connection.readable(), 17);
}

#[test]
fn rfc_5961_section_7_challenges_are_ten_in_five_seconds() {
    let mut story = Story::established();
    let answered = |story: &mut Story| {
        (0..100)
            .filter(|_| {
                story.give(5, SYN, &[]);
                !story.all().is_empty()
            })
            .count()
    };
    assert_eq!(answered(&mut story), 10);
    story.now += 5 * SECOND;
    assert_eq!(answered(&mut story), 10);
}

#[test]
fn rfc_9293_section_3_8_5_urgent_data_is_delivered_in_its_place() {
    let mut story = Story::established();
    story.send(Header { flags: ACK | URG, urgent_pointer: 2, ..story.header(1) }, b"abcd");
    let mut read = [0; 10];
    assert_eq!(story.connection.read(&mut read), 4);
    assert_eq!(&read[..4], b"abcd");
}

#[test]
fn rfc_9293_section_3_10_7_4_eighth_a_fin_before_its_turn_waits_for_it() {
    let mut story = Story::established();
    story.give(4, ACK | FIN, b"def");
    assert_eq!(story.state(), State::Established);
    story.give(1, ACK, b"abc");
    assert_eq!((story.state(), story.connection.readable()), (State::CloseWait, 6));
    assert_eq!(story.all(), [(1, 8, ACK, 0)]);
}

#[test]
fn rfc_7323_section_2_2_windows_are_scaled_except_in_a_syn() {
    let (mut story, _) = Story::connecting(config());
    story.window = 1000;
    story.send(Header { flags: SYN | ACK, options: with_timestamps(), ..story.header(0) }, &[]);
    assert_eq!(story.take().unwrap().window, 65536u32.div_ceil(256) as u16);
    story.timestamps = with_timestamps().timestamps;
    story.write(20_000);
    assert_eq!(story.take().unwrap().payload.len(), 988);
    assert_eq!(story.all(), [], "1000 bytes are theirs so far");
    story.acknowledge(989);
    assert_eq!(story.all().len(), 8, "now 8000; eleven would be allowed by the congestion window");
}

#[test]
fn rfc_7323_section_5_3_a_segment_with_an_old_timestamp_is_acknowledged_and_dropped() {
    let mut story = Story::established_with(config(), with_timestamps(), 0);
    story.timestamps = Some(Timestamps { value: 99, echo: 0 });
    story.give(1, ACK, b"old");
    assert_eq!((story.connection.readable(), story.all().len()), (0, 1));
    story.timestamps = None;
    story.give(1, ACK, b"none");
    assert_eq!((story.connection.readable(), story.all().len()), (0, 0));
    story.timestamps = Some(Timestamps { value: 101, echo: 0 });
    story.give(1, ACK, b"new");
    assert_eq!(story.connection.readable(), 3);
    story.pass(40 * MS);
    story.write(1);
    assert_eq!(story.take().unwrap().options.timestamps.unwrap().echo, 101);
}

#[test]
fn rfc_7323_section_4_3_the_earliest_segment_that_is_not_acknowledged_is_echoed() {
    let mut story = Story::established_with(config(), with_timestamps(), 0);
    for (value, sequence) in [(200, 1), (300, 1001)] {
        story.timestamps = Some(Timestamps { value, echo: 0 });
        story.give(sequence, ACK, &[1; MSS]);
    }
    assert_eq!(story.take().unwrap().options.timestamps.unwrap().echo, 200);
}

fn syn_received() -> Story {
    let (mut story, _) = Story::connecting(config());
    story.send(Header { flags: SYN, options: offer(), ..story.header(0) }, &[]);
    assert_eq!(story.all().len(), 1);
    story
}

#[test]
fn rfc_9293_section_3_10_7_4_second_a_reset_in_syn_received_refuses() {
    let mut story = syn_received();
    story.give(1, RST, &[]);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::Refused)));
}

#[test]
fn rfc_9293_section_3_10_7_4_second_a_reset_after_both_have_closed_is_no_error() {
    let mut story = Story::established();
    story.give(1, ACK | FIN, &[]);
    story.connection.close();
    story.all();
    assert_eq!(story.state(), State::LastAck);
    story.give(2, RST, &[]);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, None));
}

#[test]
fn rfc_9293_section_3_10_7_4_fifth_what_acknowledges_no_syn_is_reset_in_syn_received() {
    let mut story = syn_received();
    story.ack = 7;
    story.give(1, ACK, &[]);
    let reset = story.take().unwrap();
    assert_eq!((reset.sequence, reset.flags, story.state()), (7, RST, State::SynReceived));
}

#[test]
fn rfc_9293_section_3_10_7_4_fifth_a_segment_without_ack_is_dropped() {
    let mut story = Story::established();
    story.give(1, 0, b"text");
    story.give(1, FIN, b"text");
    assert_eq!((story.connection.readable(), story.all(), story.state()), (0, vec![], State::Established));
}

#[test]
fn rfc_9293_section_3_10_7_4_first_a_closed_window_still_takes_acknowledgements_and_resets() {
    let config = Config { max_receive_buffer: 2000, ..config() };
    let mut story = Story::established_with(config, offer(), 0);
    story.give(1, ACK, &[1; 2 * MSS]);
    assert_eq!(story.take().unwrap().window, 0);
    story.write(10);
    story.all();
    story.ack = 11;
    story.give(2001, ACK, b"probe");
    assert_eq!((story.connection.unacknowledged(), story.connection.readable()), (0, 2000));
    assert_eq!(story.take().unwrap().brief(), (11, 2001, ACK, 0));
    story.give(2001, RST, &[]);
    assert_eq!(story.state(), State::Closed);
}

#[test]
fn what_goes_no_further_says_why() {
    let reason = |timestamps, sequence, ack, flags, payload: &[u8]| {
        let mut story = Story::established_with(config(), with_timestamps(), 0);
        story.timestamps = timestamps;
        story.ack = ack;
        story.give(sequence, flags, payload);
        story.dropped
    };
    let now = Some(Timestamps { value: 101, echo: 0 });
    let old = Some(Timestamps { value: 99, echo: 0 });
    assert_eq!(reason(now, 1, 1, ACK, b"text"), None);
    assert_eq!(reason(now, 70_000, 1, ACK, b"text"), Some(DropReason::OutsideWindow));
    assert_eq!(reason(old, 1, 1, ACK, b"text"), Some(DropReason::OldTimestamp));
    assert_eq!(reason(None, 1, 1, ACK, b"text"), Some(DropReason::NoTimestamp));
    assert_eq!(reason(now, 2, 1, RST, b""), Some(DropReason::Challenged));
    assert_eq!(reason(now, 1, 1, FIN, b""), Some(DropReason::Flags));
    assert_eq!(reason(now, 1, 9, ACK, b"text"), Some(DropReason::Acknowledgement));

    let mut story = Story::established();
    story.give(1, ACK | FIN, b"");
    story.give(2, ACK, b"more");
    assert_eq!(story.dropped, Some(DropReason::AfterFin));
    story.connection.abort();
    story.give(2, ACK, b"more");
    assert_eq!(story.dropped, Some(DropReason::Closed));

    let mut story = Story::established();
    for n in 0..1025 {
        story.give(2 + 2 * n, ACK, b"x");
    }
    assert_eq!(story.dropped, Some(DropReason::Gaps));
}

//! Opening and closing (RFC 9293 §3.5, §3.6, §3.10).

use wire::ecn::Ecn;
use wire::tcp::{ACK, CWR, ECE, FIN, Header, PSH, RST, SYN, Segment};

use super::super::{Config, Error, Flow, State};
use super::story::{SECOND, Story, config, offer};

#[test]
fn rfc_9293_section_3_10_1_active_open_sends_a_syn_with_options() {
    let (_, syn) = Story::connecting(Config { ecn: true, ..config() });
    assert_eq!((syn.flags, syn.window, syn.ecn), (SYN | ECE | CWR, 65535, Ecn::NotEct));
    assert_eq!(syn.options.maximum_segment_size, Some(1000));
    assert_eq!(syn.options.window_scale, Some(8));
    assert!(syn.options.sack_permitted && syn.options.timestamps.is_some());
}

#[test]
fn rfc_9293_section_3_5_simultaneous_open() {
    let (mut story, _) = Story::connecting(config());
    story.send(Header { flags: SYN, options: offer(), ..story.header(0) }, &[]);
    assert_eq!(story.state(), State::SynReceived);
    assert_eq!(story.all(), [(0, 1, SYN | ACK, 0)]);
    story.give(0, SYN | ACK, &[]);
    assert_eq!(story.all(), [(1, 1, ACK, 0)]);
    story.give(1, ACK, &[]);
    assert_eq!(story.state(), State::Established);
}

#[test]
fn rfc_9293_section_3_10_7_3_an_acknowledgement_of_no_syn_of_ours_is_reset() {
    let (mut story, _) = Story::connecting(config());
    story.ack = 5;
    story.give(0, SYN | ACK, &[]);
    let reset = story.take().unwrap();
    assert_eq!((reset.sequence, reset.flags), (5, RST));
    assert_eq!(story.state(), State::SynSent);
    story.give(0, RST | ACK, &[]);
    assert_eq!((story.state(), story.take()), (State::SynSent, None));
}

#[test]
fn rfc_9293_section_3_10_7_3_a_reset_that_acknowledges_our_syn_refuses() {
    let (mut story, _) = Story::connecting(config());
    story.give(0, RST, &[]);
    assert_eq!(story.state(), State::SynSent);
    story.give(0, RST | ACK, &[]);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::Refused)));
}

#[test]
fn rfc_9293_section_3_8_3_a_syn_is_sent_again_for_three_minutes() {
    let (mut story, _) = Story::connecting(Config { ecn: true, ..config() });
    let (first, again) = story.until_something_leaves();
    assert_eq!((first, again.flags), (SECOND, SYN | ECE | CWR));
    let (second, again) = story.until_something_leaves();
    assert_eq!((second, again.flags), (2 * SECOND, SYN), "the third without ECN (RFC 3168 §6.1.1.1)");
    story.pass(178 * SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, Some(Error::TimedOut)));
}

#[test]
fn rfc_9293_section_3_10_7_3_text_with_a_syn_is_taken() {
    let (mut story, _) = Story::connecting(config());
    story.send(Header { flags: SYN | ACK, options: offer(), ..story.header(0) }, b"early");
    assert_eq!(story.connection.readable(), 5);
    assert_eq!(story.all(), [(1, 6, ACK, 0)]);
}

#[test]
fn rfc_9293_section_3_6_we_close_first() {
    let mut story = Story::established();
    story.write(10);
    story.connection.close();
    assert_eq!(story.connection.write(b"more"), 0);
    assert_eq!(story.state(), State::FinWait1);
    assert_eq!(story.all(), [(1, 1, ACK | PSH | FIN, 10)]);
    story.acknowledge(12);
    assert_eq!(story.state(), State::FinWait2);
    story.give(1, ACK, b"half close");
    assert_eq!(story.connection.readable(), 10);
    story.give(11, ACK | FIN, &[]);
    assert_eq!(story.state(), State::TimeWait);
    assert_eq!(story.all(), [(12, 12, ACK, 0)]);
    story.pass(59 * SECOND);
    story.give(11, ACK | FIN, &[]);
    assert_eq!(story.all(), [(12, 12, ACK, 0)], "their FIN again is acknowledged again");
    assert_eq!(story.pass(59 * SECOND), []);
    assert_eq!(story.state(), State::TimeWait, "and the wait begins anew");
    story.pass(SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, None));
}

#[test]
fn rfc_9293_section_3_6_they_close_first() {
    let mut story = Story::established();
    story.give(1, ACK | FIN, b"bye");
    assert_eq!(story.state(), State::CloseWait);
    assert!(!story.connection.has_ended(), "there is something to read before");
    assert_eq!(story.connection.read(&mut [0; 9]), 3);
    assert!(story.connection.has_ended());
    assert_eq!(story.all(), [(1, 5, ACK, 0)]);
    story.write(20);
    assert_eq!(story.all(), [(1, 5, ACK | PSH, 20)]);
    story.connection.close();
    assert_eq!(story.state(), State::LastAck);
    assert_eq!(story.all(), [(21, 5, ACK | FIN, 0)]);
    story.ack = 22;
    story.give(5, ACK, &[]);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, None));
}

#[test]
fn rfc_9293_section_3_6_both_close_at_once() {
    let mut story = Story::established();
    story.connection.close();
    assert_eq!(story.all(), [(1, 1, ACK | FIN, 0)]);
    story.give(1, ACK | FIN, &[]);
    assert_eq!(story.state(), State::Closing);
    assert_eq!(story.all(), [(2, 2, ACK, 0)]);
    story.ack = 2;
    story.give(2, ACK, &[]);
    assert_eq!(story.state(), State::TimeWait);
}

#[test]
fn rfc_9293_section_3_6_a_lost_fin_is_sent_again() {
    let mut story = Story::established();
    story.connection.close();
    assert_eq!(story.all(), [(1, 1, ACK | FIN, 0)]);
    assert_eq!(story.until_something_leaves().1.brief(), (1, 1, ACK | FIN, 0));
}

#[test]
fn rfc_9293_section_3_6_1_a_syn_with_a_later_number_may_take_the_place_of_time_wait() {
    let mut story = Story::established();
    story.connection.close();
    story.all();
    story.ack = 2;
    story.give(1, ACK | FIN, &[]);
    assert_eq!(story.state(), State::TimeWait);
    let syn = |sequence| Header { flags: SYN, ..story.header(sequence) }.to_bytes().to_vec();
    let yields = |bytes: &[u8]| story.connection.yields_to(&Segment::parse(bytes).unwrap());
    assert!(!yields(&syn(2)) && yields(&syn(3)));
}

#[test]
fn rfc_9293_section_3_10_5_abort_sends_a_reset() {
    let mut story = Story::established();
    story.write(100);
    story.connection.abort();
    assert!(!story.connection.is_closed());
    let reset = story.take().unwrap();
    assert_eq!((reset.sequence, reset.flags & RST), (1, RST));
    assert!(story.connection.is_closed() && story.take().is_none());
    assert_eq!(story.connection.error(), Some(Error::Aborted));
}

#[test]
fn rfc_2525_section_2_17_what_nobody_will_read_is_reset() {
    let mut story = Story::established();
    story.connection.abandon(story.now);
    assert_eq!(story.all(), [(1, 1, ACK | FIN, 0)]);
    story.acknowledge(2);
    story.give(1, ACK, b"too late");
    assert_eq!(story.take().unwrap().flags & RST, RST);
    assert!(story.connection.is_closed());

    let mut story = Story::established();
    story.give(1, ACK, b"unread");
    story.connection.abandon(story.now);
    assert_eq!(story.take().unwrap().flags & RST, RST);
}

#[test]
fn a_connection_that_was_abandoned_does_not_stay_in_fin_wait_2() {
    let mut story = Story::established();
    story.connection.abandon(story.now);
    story.all();
    story.acknowledge(2);
    assert_eq!(story.state(), State::FinWait2);
    story.pass(60 * SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, None));
}

#[test]
fn rfc_9293_section_3_10_2_what_is_written_before_goes_with_the_acknowledgement_of_their_syn() {
    let (mut story, _) = Story::connecting(config());
    story.write(1500);
    assert_eq!(story.all(), []);
    story.send(Header { flags: SYN | ACK, options: offer(), ..story.header(0) }, &[]);
    assert_eq!(story.all(), [(1, 1, ACK, 1000), (1001, 1, ACK | PSH, 500)]);
}

#[test]
fn rfc_9293_section_3_10_4_close_before_the_syn_is_answered_ends_without_a_word() {
    let (mut story, _) = Story::connecting(config());
    story.connection.close();
    assert_eq!((story.state(), story.all(), story.connection.error()), (State::Closed, vec![], None));
}

#[test]
fn rfc_9293_section_3_10_4_close_in_syn_received_sends_a_fin_once_established() {
    let (mut story, _) = Story::connecting(config());
    story.send(Header { flags: SYN, options: offer(), ..story.header(0) }, &[]);
    story.all();
    story.write(10);
    story.connection.close();
    assert_eq!((story.state(), story.all()), (State::SynReceived, vec![]));
    story.give(1, ACK, &[]);
    assert_eq!((story.state(), story.all()), (State::FinWait1, vec![(1, 1, ACK | PSH | FIN, 10)]));
}

#[test]
fn rfc_9293_section_3_10_5_abort_in_syn_sent_sends_nothing() {
    let (mut story, _) = Story::connecting(config());
    story.connection.abort();
    assert_eq!((story.all(), story.connection.error()), (vec![], Some(Error::Aborted)));
}

#[test]
fn rfc_9293_section_3_10_7_1_what_arrives_after_the_end_changes_nothing() {
    let mut story = Story::established();
    story.give(1, RST, &[]);
    story.give(1, ACK, b"late");
    assert_eq!((story.state(), story.all(), story.connection.readable()), (State::Closed, vec![], 0));
    assert_eq!(story.connection.deadline(), None);
}

#[test]
fn rfc_9293_section_3_6_1_time_wait_lasts_twice_the_longest_life_of_a_segment_and_a_fin_begins_it_anew() {
    let mut story = Story::established();
    story.connection.close();
    story.all();
    story.acknowledge(2);
    story.give(1, FIN | ACK, &[]);
    assert_eq!((story.state(), story.all()), (State::TimeWait, vec![(2, 2, ACK, 0)]));
    story.pass(SECOND * 59);
    assert_eq!(story.state(), State::TimeWait);
    // Our last acknowledgement was lost.
    story.give(1, FIN | ACK, &[]);
    assert_eq!(story.all(), [(2, 2, ACK, 0)]);
    story.pass(SECOND * 59);
    assert_eq!(story.state(), State::TimeWait);
    story.pass(SECOND);
    assert_eq!((story.state(), story.connection.error()), (State::Closed, None));
}

#[test]
fn rfc_9293_section_3_7_1_who_does_not_say_how_much_it_takes_gets_what_every_host_takes() {
    let options = wire::tcp::SegmentOptions { maximum_segment_size: None, ..offer() };
    let mut story = Story::established_with(Config { max_segment_size: 1440, ..config() }, options, 0);
    story.write(2000);
    assert_eq!(story.all(), [(1, 1, ACK, 1220), (1221, 1, ACK | PSH, 780)]);
    let of_ipv4 = Flow { local: "192.0.2.1:1".parse().unwrap(), remote: "192.0.2.2:80".parse().unwrap() };
    let mapped = Flow { remote: "[::ffff:192.0.2.2]:80".parse().unwrap(), ..of_ipv4 };
    assert_eq!((of_ipv4.default_mss(), mapped.default_mss()), (536, 536));
}

#[test]
fn rfc_9293_section_3_10_3_what_came_before_their_fin_can_be_read_after_it() {
    let mut story = Story::established();
    story.give(1, FIN | ACK | PSH, b"last words");
    assert_eq!(story.state(), State::CloseWait);
    let mut read = [0; 20];
    assert!(!story.connection.has_ended());
    assert_eq!((story.connection.read(&mut read), &read[..10]), (10, &b"last words"[..]));
    assert!(story.connection.has_ended());
}

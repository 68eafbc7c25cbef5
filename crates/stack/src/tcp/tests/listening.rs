//! Listening (RFC 9293 §3.10.7.2, RFC 4987).

use std::time::Instant;

use wire::ecn::Ecn;
use wire::tcp::{ACK, FIN, Header, RST, SYN, Segment, SegmentOptions, Timestamps};

use super::super::{Config, DropReason, Listener, MAX_HALF_OPEN, Reaction, State};
use super::network::{MS, flow, reversed, secrets};
use super::story::{MSS, SECOND, with_timestamps};

struct Ear {
    now: Instant,
    listener: Listener,
}

impl Ear {
    fn new() -> Self {
        let now = Instant::now();
        Ear { now, listener: Listener::new(Config::new(MSS as u16), secrets(now)) }
    }

    fn give(&mut self, port: u16, header: Header, payload: &[u8]) -> (Reaction, Option<Header>) {
        let mut flow = reversed(flow());
        flow.remote.set_port(port);
        let bytes = [&header.to_bytes()[..], payload].concat();
        let mut out = Vec::new();
        let segment = Segment::parse(&bytes).unwrap();
        let reaction = self.listener.receive(self.now, &flow, &segment, Ecn::NotEct, &mut out);
        let reply = Segment::parse(&out).ok().map(|reply| Header {
            sequence: reply.sequence(),
            acknowledgement: reply.acknowledgement(),
            flags: reply.flags(),
            window: reply.window(),
            options: SegmentOptions::of(&reply),
            ..Header::default()
        });
        (reaction, reply)
    }

    fn syn(&mut self, port: u16) -> Header {
        let options = with_timestamps();
        let syn = Header { sequence: 100, flags: SYN, window: 5000, options, ..Header::default() };
        self.give(port, syn, &[]).1.expect("an answer")
    }
}

/// Their answer to our SYN-ACK.
fn third(syn_ack: &Header) -> Header {
    let theirs = syn_ack.options.timestamps.map(|ours| Timestamps { value: 101, echo: ours.value });
    Header {
        sequence: 101,
        acknowledgement: syn_ack.sequence.wrapping_add(1),
        flags: ACK,
        window: 5000,
        options: SegmentOptions { timestamps: theirs, ..SegmentOptions::default() },
        ..Header::default()
    }
}

#[test]
fn rfc_9293_section_3_10_7_2_a_syn_is_answered_and_its_acknowledgement_establishes() {
    let mut ear = Ear::new();
    let syn_ack = ear.syn(1);
    assert_eq!((syn_ack.flags, syn_ack.acknowledgement), (SYN | ACK, 101));
    assert_eq!(syn_ack.options.window_scale, Some(8));
    assert!(syn_ack.options.sack_permitted);
    ear.now += 30 * MS;
    let Reaction::Established(connection) = ear.give(1, third(&syn_ack), b"hello").0 else { panic!() };
    assert_eq!((connection.state(), connection.readable()), (State::Established, 5));
    assert_eq!(connection.rtt(), Some(30 * MS));
    assert_eq!(ear.listener.half_open(), 0);
}

#[test]
fn rfc_9293_section_3_10_7_2_other_segments_are_reset_or_ignored() {
    let mut ear = Ear::new();
    let stray = Header { sequence: 1, acknowledgement: 77, flags: ACK, ..Header::default() };
    let (_, reply) = ear.give(1, stray, &[]);
    assert_eq!(reply.map(|reply| (reply.sequence, reply.flags)), Some((77, RST)));
    assert_eq!(ear.give(1, Header { flags: RST, ..stray }, &[]).1, None);
    assert_eq!(ear.give(1, Header { flags: FIN, ..stray }, &[]).1, None);
    let syn_ack = ear.syn(1);
    let mut wrong = third(&syn_ack);
    wrong.acknowledgement += 1;
    assert_eq!(ear.give(1, wrong, &[]).1.unwrap().flags, RST);
    let reset = Header { sequence: 101, flags: RST, ..Header::default() };
    ear.give(1, Header { sequence: 102, ..reset }, &[]);
    assert_eq!(ear.listener.half_open(), 1);
    ear.give(1, reset, &[]);
    assert_eq!(ear.listener.half_open(), 0);
}

#[test]
fn a_syn_is_answered_five_times_in_31_seconds() {
    let mut ear = Ear::new();
    let start = ear.now;
    ear.syn(1);
    let (mut answers, mut out) = (1, Vec::new());
    while let Some(deadline) = ear.listener.deadline() {
        ear.now = deadline;
        ear.listener.handle_timeout(deadline);
        answers += usize::from(ear.listener.poll_transmit(deadline, &mut out).is_some());
    }
    assert_eq!((answers, ear.now - start, ear.listener.half_open()), (5, 31 * SECOND, 0));
}

#[test]
fn rfc_4987_section_3_6_a_flood_of_syns_leaves_room_for_those_who_answer() {
    let mut ear = Ear::new();
    for port in 1..5000 {
        ear.syn(port);
    }
    assert_eq!(ear.listener.half_open(), MAX_HALF_OPEN);
    let syn_ack = ear.syn(6000);
    assert_eq!(ear.listener.half_open(), MAX_HALF_OPEN);
    ear.now += 30 * MS;
    let Reaction::Established(mut connection) = ear.give(6000, third(&syn_ack), b"hello").0 else { panic!() };
    assert_eq!(connection.readable(), 5);
    connection.write(&[1; 30_000]);
    let mut out = Vec::new();
    let transmit = connection.poll_transmit(ear.now, 60_000, &mut out).unwrap();
    assert_eq!(transmit.segment_size, Some(524), "of the sizes that a cookie knows");
    assert_eq!(transmit.payload_len, 5240, "the initial window, of 40,000 bytes with the scale of the SYN");
    let mut forged = third(&syn_ack);
    forged.acknowledgement ^= 64;
    assert_eq!(ear.give(6001, forged, &[]).1.unwrap().flags, RST);
}

#[test]
fn a_listener_that_is_paused_leaves_handshakes_alone() {
    let mut ear = Ear::new();
    let syn_ack = ear.syn(1);
    ear.listener.set_paused(true);
    assert!(matches!(ear.give(1, third(&syn_ack), &[]), (Reaction::Dropped(DropReason::Paused), None)));
    ear.listener.set_paused(false);
    assert!(matches!(ear.give(1, third(&syn_ack), &[]).0, Reaction::Established(_)));
}

#[test]
fn rfc_5961_section_3_2_before_the_handshake_ends_too_only_the_next_number_resets() {
    let mut ear = Ear::new();
    ear.syn(1);
    let reset = |sequence| Header { sequence, flags: RST, ..Header::default() };
    assert_eq!(ear.give(1, reset(102), &[]).1.map(|challenge| challenge.flags), Some(ACK), "in the window");
    assert_eq!(ear.give(1, reset(99_999), &[]).1, None);
    assert_eq!(ear.listener.half_open(), 1);
    ear.give(1, reset(101), &[]);
    assert_eq!(ear.listener.half_open(), 0);
}

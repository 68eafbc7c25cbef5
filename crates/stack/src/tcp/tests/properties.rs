//! Whatever arrives, no connection panics, and its memory stays bounded.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use wire::ecn::Ecn;
use wire::tcp::{ACK, FIN, Header, RST, SYN, SackBlocks, Segment, SegmentOptions, Timestamps};

use super::super::{Config, Connection, IcmpError, Listener, State};
use super::network::{Link, MSS, Network, User, flow, secrets};

/// One event at a connection.
#[derive(Debug, Clone)]
enum Event {
    /// A segment whose numbers are near those of the connection.
    Segment {
        sequence: i32,
        ack: i32,
        flags: u8,
        window: u16,
        blocks: Vec<(i32, i32)>,
        len: usize,
        echo: i32,
    },
    Pass(u32),
    Write(usize),
    Read(usize),
    Close,
    Abort,
    Icmp(i32, usize),
}

fn near() -> impl Strategy<Value = i32> {
    prop_oneof![5 => -3i32..4, 3 => -3000i32..3000, 1 => -70_000i32..70_000, 1 => any::<i32>()]
}

fn event() -> impl Strategy<Value = Event> {
    let flags = prop_oneof![6 => Just(ACK), 2 => any::<u8>().prop_map(|flags| (flags | ACK) & !(RST | SYN)), 1 => any::<u8>()];
    let blocks = proptest::collection::vec((near(), near()), 0..4);
    let segment =
        (near(), near(), flags, any::<u16>(), blocks, prop_oneof![Just(0usize), 0usize..3000], near());
    prop_oneof![
        40 => segment.prop_map(|(sequence, ack, flags, window, blocks, len, echo)| {
            Event::Segment { sequence, ack, flags, window, blocks, len, echo }
        }),
        15 => prop_oneof![0u32..100, 0u32..100_000].prop_map(Event::Pass),
        10 => (0usize..200_000).prop_map(Event::Write),
        10 => (0usize..100_000).prop_map(Event::Read),
        2 => Just(Event::Close),
        3 => (near(), 0usize..2000).prop_map(|(at, size)| Event::Icmp(at, size)),
        1 => Just(Event::Abort),
    ]
}

fn config() -> Config {
    Config { max_receive_buffer: 200_000, max_send_buffer: 200_000, ..Config::new(1000) }
}

/// Buffers of 256 KB each, and 4096 pieces and ranges.
const MOST: usize = 2 * 262_144 + 4096 * 64 + 10_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn random_segments_in_any_state(
        events in proptest::collection::vec(event(), 1..120), completes: bool, options: bool, with_ack: bool
    ) {
        let mut now = Instant::now();
        let mut connection = Connection::connect(now, &flow(), &secrets(now), &config());
        let mut out = Vec::new();
        connection.poll_transmit(now, 0, &mut out);
        let (mut ours, mut theirs) = (Segment::parse(&out).unwrap().sequence().wrapping_add(1), 5000u32);
        let stamp = |value, echo| options.then_some(Timestamps { value, echo });
        if completes {
            let syn = Header {
                sequence: theirs, acknowledgement: ours, flags: if with_ack { SYN | ACK } else { SYN }, window: 9000,
                options: SegmentOptions {
                    maximum_segment_size: Some(700), sack_permitted: true, window_scale: Some(3),
                    timestamps: stamp(7, 0), ..SegmentOptions::default()
                },
                ..Header::default()
            };
            connection.receive(now, &Segment::parse(&syn.to_bytes()).unwrap(), Ecn::NotEct);
            theirs += 1;
        }
        for event in events {
            match event {
                Event::Segment { sequence, ack, flags, window, blocks, len, echo } => {
                    let mut sack = SackBlocks::default();
                    for (start, end) in blocks {
                        sack.push(ours.wrapping_add_signed(start), ours.wrapping_add_signed(end));
                    }
                    let timestamps = stamp(7u32.wrapping_add_signed(echo / 1000), echo as u32);
                    let header = Header {
                        sequence: theirs.wrapping_add_signed(sequence),
                        acknowledgement: ours.wrapping_add_signed(ack),
                        flags, window,
                        options: SegmentOptions { sack, timestamps, ..SegmentOptions::default() },
                        ..Header::default()
                    };
                    let bytes = [&header.to_bytes()[..], &vec![1; len]].concat();
                    let ecn = Ecn::from_bits(len as u8);
                    connection.receive(now, &Segment::parse(&bytes).unwrap(), ecn);
                }
                Event::Pass(ms) => {
                    now += Duration::from_millis(u64::from(ms));
                    connection.handle_timeout(now);
                }
                Event::Write(n) => { connection.write(&vec![2; n]); }
                Event::Read(n) => { connection.read(&mut vec![0; n]); }
                Event::Close => connection.close(),
                Event::Abort => connection.abort(),
                Event::Icmp(at, size) => {
                    let error = IcmpError::PacketTooBig { largest_segment: size };
                    connection.icmp_error(ours.wrapping_add_signed(at), error);
                }
            }
            let mut packets = 0;
            out.clear();
            while connection.poll_transmit(now, 30_000, &mut out).is_some() {
                let segment = Segment::parse(&out).unwrap();
                if segment.flags() & RST == 0 && connection.state() != State::SynSent {
                    let end = segment.sequence().wrapping_add(segment.payload().len() as u32);
                    ours = end.wrapping_add(u32::from(segment.flags() & (SYN | FIN) != 0));
                    theirs = segment.acknowledgement();
                }
                out.clear();
                packets += 1;
                prop_assert!(packets < 5000, "it never ends");
            }
            prop_assert!(connection.heap() <= MOST, "{}", connection.heap());
        }
    }

    #[test]
    fn random_segments_at_a_listener(
        segments in proptest::collection::vec((0u16..4, any::<(u32, u32, u8, u16)>(), 0u64..3000), 1..60)
    ) {
        let mut now = Instant::now();
        let mut listener = Listener::new(config(), secrets(now));
        let mut out = Vec::new();
        for (port, (sequence, acknowledgement, flags, window), ms) in segments {
            now += Duration::from_millis(ms);
            let mut flow = flow();
            flow.remote.set_port(port);
            let header = Header { sequence, acknowledgement, flags, window, ..Header::default() };
            listener.receive(now, &flow, &Segment::parse(&header.to_bytes()).unwrap(), Ecn::NotEct, &mut out);
            listener.handle_timeout(now);
            while listener.poll_transmit(now, &mut out).is_some() {}
            prop_assert!(listener.deadline().is_none_or(|at| at > now));
        }
    }
}

#[test]
fn an_idle_connection_holds_two_kilobytes() {
    let users = [User::sends(200_000), User::default()].map(|user| User { closes: false, ..user });
    let link = Link { loss: 0.02, ..Link::IDEAL };
    let mut network = Network::ours(link, 7, [Config::new(MSS); 2], users);
    network.transfer(Duration::from_secs(60));
    network.pass(Duration::from_secs(5));
    for index in 0..2 {
        let connection = network.connection(index);
        assert_eq!(connection.state(), State::Established);
        assert_eq!(connection.deadline(), None, "it wakes nobody");
        let held = size_of::<Connection>() + connection.heap();
        assert!(held <= 2048, "{held}, {} of them on the heap", connection.heap());
    }
}

#[test]
fn a_user_who_does_not_read_stops_the_sender() {
    let users = [User::sends(3_000_000), User { is_lazy: true, ..User::default() }];
    let config = Config { max_receive_buffer: 300_000, ..Config::new(MSS) };
    let mut network = Network::ours(Link::IDEAL, 1, [Config::new(MSS), config], users);
    network.pass(Duration::from_secs(600));
    let readable = network.connection(1).readable();
    assert!(readable <= 65_536 + 255, "the buffer does not grow for who does not read: {readable}");
    network.user(1).is_lazy = false;
    network.transfer(Duration::from_secs(120));
}

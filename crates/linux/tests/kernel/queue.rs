//! Packets given to this process by netfilter, on this machine's kernel.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use linux::event::{Events, Interest, Poller};
use linux::netns;
use linux::nft;
use linux::queue::{Batch, Queue, Socket, rule, verdict};

const TABLE: &str = "sidestep-test";

fn in_a_namespace(test: impl FnOnce() + Send) {
    if !netns::available_to_tests() {
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            netns::enter_new().expect("a namespace");
            test();
        });
    });
}

fn set_up(bypass: bool) {
    let chains = format!(
        "add table inet {TABLE}\nadd chain inet {TABLE} take\n\
         add chain inet {TABLE} in {{ type filter hook input priority 0; }}\n\
         add rule inet {TABLE} in meta l4proto udp goto take\n"
    );
    nft::apply(&chains).expect("chains");
    rule::send_to(TABLE, "take", &(40..=41), bypass).expect("the rule");
}

fn queue(number: u16) -> Queue {
    Queue { number, length: 64, fail_open: false, segmented: false }
}

fn pair() -> (UdpSocket, UdpSocket) {
    let socket = || {
        let socket = UdpSocket::bind("[::1]:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(300))).expect("a time limit");
        socket
    };
    let (one, other) = (socket(), socket());
    one.connect(other.local_addr().expect("an address")).expect("a connection");
    (one, other)
}

#[test]
fn a_packet_comes_and_goes_as_the_verdict_says() {
    in_a_namespace(|| {
        let socket = Socket::open(&[queue(40), queue(41)]).expect("queues");
        assert!(Socket::open(&[queue(40)]).is_err(), "one listens already");
        set_up(false);
        let (one, other) = pair();
        for text in ["drop", "pass", "edit"] {
            one.send(text.as_bytes()).expect("a datagram");
        }
        let poller = Poller::new().expect("a poller");
        poller.add(&socket, 0, Interest::Readable).expect("a poller");
        let (mut batch, mut seen) = (Batch::default(), 0);
        let deadline = Instant::now() + Duration::from_secs(5);
        while seen < 3 && Instant::now() < deadline {
            poller.wait(&mut Events::with_capacity(1), Some(Duration::from_millis(100))).expect("a wait");
            for place in 0..socket.recv(&mut batch).expect("packets") {
                let queued = batch.packet(place).expect("a packet");
                assert_eq!((queued.from, queued.packet.len()), (1, 40 + 8 + 4));
                let (queue, id, mut packet) = (queued.queue, queued.id, queued.packet.to_vec());
                seen += 1;
                match &packet[48..] {
                    b"drop" => batch.put_verdict(queue, id, verdict::DROP, None),
                    b"pass" => batch.put_verdict(queue, id, verdict::ACCEPT, None),
                    _ => {
                        packet[48..].copy_from_slice(b"done");
                        // No checksum was needed on loopback, nor is one now: UDP over IPv6 must have one all the same.
                        let sum = checksum(&packet);
                        packet[46..48].copy_from_slice(&sum.to_be_bytes());
                        batch.put_verdict(queue, id, verdict::ACCEPT, Some(&packet))
                    }
                };
            }
            socket.flush(&mut batch).expect("verdicts");
        }
        let mut buffer = [0; 100];
        let mut next = || other.recv(&mut buffer).map(|length| buffer[..length].to_vec());
        assert_eq!(next().expect("the second"), b"pass");
        assert_eq!(next().expect("the third"), b"done");
        assert!(next().is_err());
    });
}

#[test]
fn without_a_listener_packets_go_on_only_where_that_was_asked_for() {
    for bypass in [true, false] {
        in_a_namespace(|| {
            set_up(bypass);
            let (one, other) = pair();
            one.send(b"hello").expect("a datagram");
            assert_eq!(other.recv(&mut [0; 100]).is_ok(), bypass);
        });
    }
}

fn checksum(packet: &[u8]) -> u16 {
    use wire::checksum::Sum;
    let length = packet.len() as u32 - 40;
    let mut udp = packet[40..].to_vec();
    udp[6..8].fill(0);
    (Sum::of(&packet[8..40]) + Sum::dword(length) + Sum::word(17) + Sum::of(&udp)).udp_checksum()
}

//! `p:stream()`: what scripts see of streams, and names that nothing hides, however they are split.

use script::packet::Packet;
use script::vm::Verdict;

use crate::host::{Bench, frame, ipv6, tcp};

const START: u32 = 0xffff_fff0;

/// A segment of the stream that begins behind START.
fn segment(flags: u8, at: usize, octets: &[u8]) -> Packet {
    segment_from(5000, flags, at, octets)
}

fn segment_from(port: u16, flags: u8, at: usize, octets: &[u8]) -> Packet {
    let mut segment = tcp(port, 443, flags, &[], octets);
    let sequence = START.wrapping_add(u32::from(flags & 2 == 0)).wrapping_add(at as u32);
    segment[4..8].copy_from_slice(&sequence.to_be_bytes());
    frame(0x86dd, &[], &ipv6(6, &segment))
}

fn syn() -> Packet {
    segment(2, 0, &[])
}

/// A ClientHello for a name, in records of so many octets.
fn client_hello(name: &str, record: usize) -> Vec<u8> {
    let behind_length = |octets: &[u8]| [&(octets.len() as u16).to_be_bytes()[..], octets].concat();
    let entry = [&[0], &behind_length(name.as_bytes())[..]].concat();
    let server_name = [&[0, 0], &behind_length(&behind_length(&entry))[..]].concat();
    let groups = [&[0, 10], &behind_length(&[0, 2, 0, 29])[..]].concat();
    let extensions = behind_length(&[groups, server_name].concat());
    let body = [&[3, 3], &[7; 32][..], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
    let message = [&[1, 0], &behind_length(&body)[..]].concat();
    let records = message.chunks(record).map(|part| [&[22, 3, 1], &behind_length(part)[..]].concat());
    records.collect::<Vec<_>>().concat()
}

/// Says what it sees, and decides nothing.
fn watcher(says: &str) -> Bench {
    Bench::body(&format!("local s = p:stream()\nif s then nf.log({says}) end"))
}

/// The filter of the examples, without its resets.
fn filter() -> Bench {
    Bench::new(
        "function process_packet(p)
        local s = p:stream()
        local decided = s:decided()
        if decided then return decided end
        local fault = s:fault()
        if fault then return NF_DROP end
        local name = tls.server_name(s)
        if name == nil then return XT_CONTINUE end
        if name == 'forbidden.example' then return s:refuse() end
        return s:accept()
        end",
    )
}

/// A receiver behind a filter: the octets that it has been given.
struct Receiver<'a> {
    filter: &'a mut Bench,
    /// The sender's.
    port: u16,
    octets: Vec<Option<u8>>,
}

impl<'a> Receiver<'a> {
    fn new(filter: &'a mut Bench, port: u16) -> Self {
        let mut receiver = Self { filter, port, octets: vec![None; 4096] };
        assert!(receiver.give(2, 0, &[]));
        receiver
    }

    /// Whether the filter lets a segment pass.
    fn give(&mut self, flags: u8, at: usize, octets: &[u8]) -> bool {
        self.filter.pass(&mut segment_from(self.port, flags, at, octets)) != Verdict::Drop
    }

    /// Sends it a segment: whether it passes.
    fn send(&mut self, at: usize, octets: &[u8]) -> bool {
        let passes = self.give(0x18, at, octets);
        if passes {
            for (place, octet) in self.octets[at..].iter_mut().zip(octets) {
                *place = Some(*octet);
            }
        }
        passes
    }

    /// Sends segments again and again, as TCP does, until all or none of them pass.
    fn send_all(&mut self, segments: &[(usize, &[u8])]) {
        for _ in 0..=segments.len() {
            for (at, octets) in segments {
                self.send(*at, octets);
            }
        }
    }

    fn has(&self, octets: &[u8]) -> bool {
        octets.iter().zip(&self.octets).all(|(octet, known)| Some(*octet) == *known)
    }
}

/// Every place where a message can be split, with one that is refused and one that is not.
fn at_every_offset(way: impl Fn(&mut Receiver<'_>, &[u8], usize)) {
    let mut filter = filter();
    let mut ports = 1..;
    for record in [4000, 50, 3] {
        let [refused, allowed] =
            ["forbidden.example", "permitted.example"].map(|name| client_hello(name, record));
        for at in 1..refused.len() {
            for (text, is_allowed) in [(&refused, false), (&allowed, true)] {
                let mut receiver = Receiver::new(&mut filter, ports.next().expect("a port"));
                way(&mut receiver, text, at);
                assert_eq!(receiver.has(text), is_allowed, "split at {at}, records of {record}");
            }
        }
    }
}

#[test]
fn a_name_is_seen_wherever_its_message_is_split() {
    at_every_offset(|receiver, text, at| receiver.send_all(&[(0, &text[..at]), (at, &text[at..])]));
}

#[test]
fn a_name_is_seen_in_reverse_order() {
    at_every_offset(|receiver, text, at| receiver.send_all(&[(at, &text[at..]), (0, &text[..at])]));
}

#[test]
fn a_name_is_seen_with_each_segment_twice() {
    at_every_offset(|receiver, text, at| {
        let (first, second) = ((0, &text[..at]), (at, &text[at..]));
        receiver.send_all(&[second, second, first, first, second, second]);
    });
}

#[test]
fn a_name_is_seen_octet_by_octet_and_with_overlaps() {
    at_every_offset(|receiver, text, at| {
        let before = at.saturating_sub(5);
        receiver.send_all(&[(0, &text[..at]), (before, &text[before..]), (0, text)]);
    });
    for (name, is_allowed) in [("forbidden.example", false), ("permitted.example", true)] {
        let text = client_hello(name, 4000);
        let mut filter = filter();
        let mut receiver = Receiver::new(&mut filter, 1);
        let octets: Vec<_> = text.chunks(1).enumerate().collect();
        for (at, octet) in &octets {
            receiver.send(*at, octet);
        }
        assert_eq!(receiver.has(&text), is_allowed);
    }
}

/// What an adversary sends to have the filter see another text than the receiver: whichever copy that takes, none makes a
/// name that is refused.
#[test]
fn segments_that_contradict_show_the_receiver_nothing_that_was_not_seen() {
    let [refused, decoy] = ["forbidden.example", "permitted.example"].map(|name| client_hello(name, 4000));
    let (refused, decoy) = (&refused[..], &decoy[..]);
    let mut filter = filter();
    let mut ports = 1..;
    for at in 1..refused.len() {
        let ways: [&[(usize, &[u8])]; 6] = [
            // The decoy first or last, as a whole or in part.
            &[(0, decoy), (0, refused)],
            &[(0, decoy), (at, &refused[at..]), (0, &refused[..at])],
            &[(0, &refused[..at]), (at, &decoy[at..]), (at, &refused[at..])],
            &[(at, &decoy[at..]), (0, &refused[..at]), (at, &refused[at..])],
            &[(at, &refused[at..]), (0, &decoy[..at]), (0, &refused[..at])],
            &[(0, &refused[..at]), (at - 1, &decoy[at - 1..]), (at, &refused[at..]), (0, refused)],
        ];
        for (number, way) in ways.into_iter().enumerate() {
            // Decoys may be lost behind the filter, as by a hop limit that is too small.
            for decoys_arrive in [true, false] {
                let mut receiver = Receiver::new(&mut filter, ports.next().expect("a port"));
                for (at, octets) in [way, way].concat() {
                    let before = receiver.octets.clone();
                    receiver.send(at, octets);
                    if !decoys_arrive && !refused[at..].starts_with(octets) {
                        receiver.octets = before;
                    }
                }
                assert!(!receiver.has(refused), "way {number} at {at}");
            }
        }
    }
}

#[test]
fn what_is_behind_an_accepted_message_is_free_and_the_message_is_not() {
    let text = client_hello("permitted.example", 4000);
    let mut filter = filter();
    let mut receiver = Receiver::new(&mut filter, 5000);
    assert!(receiver.send(0, &text));
    assert!(receiver.send(text.len(), b"one") && receiver.send(text.len(), b"two"));
    assert!(receiver.send(0, &text), "it was lost on the way");
    assert!(!receiver.send(0, &client_hello("forbidden.example", 4000)));
    // In place of the beginning, and across it.
    assert!(
        !receiver.send(text.len() - 1, b"x!") && receiver.send(text.len() - 1, &[text[text.len() - 1], 9])
    );
    assert!(receiver.give(0x18, 1 << 31, b"much later"));
}

#[test]
fn another_beginning_contradicts_until_the_stream_is_over_for_long() {
    let text = client_hello("permitted.example", 4000);
    let another = |flags| {
        let mut segment = tcp(5000, 443, flags, &[], &[]);
        segment[4..8].copy_from_slice(&77_u32.to_be_bytes());
        frame(0x86dd, &[], &ipv6(6, &segment))
    };
    let mut filter = filter();
    let mut receiver = Receiver::new(&mut filter, 5000);
    assert!(receiver.send(0, &text));
    let bench = &mut *receiver.filter;
    assert_eq!(bench.pass(&mut another(2)), Verdict::Drop);
    assert_ne!(bench.pass(&mut syn()), Verdict::Drop, "the same one again");
    assert_ne!(bench.pass(&mut segment(0x11, text.len(), &[])), Verdict::Drop, "its end");
    assert_eq!(bench.pass(&mut another(2)), Verdict::Drop);
    bench.world.borrow_mut().now_ms += script::streams::QUIET_MS;
    assert_ne!(bench.pass(&mut another(2)), Verdict::Drop);
    assert!(!receiver.send(0, &text), "that was of the one before");
}

#[test]
fn a_refused_stream_stays_refused() {
    let text = client_hello("forbidden.example", 4000);
    let mut filter = filter();
    let mut receiver = Receiver::new(&mut filter, 5000);
    assert!(!receiver.send(0, &text));
    assert!(!receiver.send(0, &text) && !receiver.send(text.len(), b"x") && !receiver.send(0, b"GET"));
    assert!(!receiver.give(0x10, 0, &[]));
}

#[test]
fn a_script_sees_octets_faults_and_ends() {
    let mut bench = watcher("#s, s:fault(), s:has_ended(), tostring(s:octets())");
    let mut say = |packet: &mut Packet| {
        bench.pass(packet);
        bench.log().join("; ")
    };
    assert_eq!(say(&mut segment(0x18, 0, b"abc")), "0 unknown false ");
    assert_eq!(say(&mut segment(0x10, 0, &[])), "0 nil false ");
    assert_eq!(say(&mut syn()), "0 nil false ");
    assert_eq!(say(&mut segment(0x18, 0, b"abc")), "3 nil false abc");
    assert_eq!(say(&mut segment(0x18, 5, b"fg")), "3 early false abc");
    assert_eq!(say(&mut segment(0x18, 2, b"cX")), "4 nil false abcX");
    assert_eq!(say(&mut segment(0x18, 4, b"e")), "7 nil false abcXefg");
    assert_eq!(say(&mut segment(0x18, 3, b"d")), "7 contradicts false abcXefg");
    assert_eq!(say(&mut segment(0x38, 7, b"h")), "7 urgent false abcXefg");
    let mut wrong = segment(0x18, 7, b"h");
    let last = wrong.bytes().len() - 1;
    let mut bytes = wrong.bytes().to_vec();
    bytes[last] ^= 1;
    wrong = Packet::of_frame(bytes, wire::checksum::TransportChecksum::Complete);
    assert_eq!(say(&mut wrong), "7 checksum false abcXefg");
    assert_eq!(say(&mut segment(0x19, 7, b"h")), "8 nil true abcXefgh");
    assert_eq!(say(&mut segment(0x18, 8, b"i")), "8 contradicts true abcXefgh");
}

#[test]
fn a_fragment_has_no_stream_that_could_be_relied_on() {
    let mut bench = watcher("s:fault()");
    let text = tcp(5000, 443, 2, &[], &[]);
    for (more, said) in [(1, "cut"), (0, "")] {
        let fragment = [&[6, 0, 0, more, 0, 0, 0, 9], &text[..]].concat();
        bench.pass(&mut frame(0x86dd, &[], &ipv6(44, &fragment)));
        let log = bench.log().join("; ");
        assert!(if more == 1 { log == said } else { log == "nil" }, "{log}");
    }
    let later = [&[6, 0, 0, 8, 0, 0, 0, 9], &text[..]].concat();
    bench.pass(&mut frame(0x86dd, &[], &ipv6(44, &later)));
    assert_eq!(bench.log().len(), 0);
}

#[test]
fn protocols_are_views_over_a_stream() {
    let mut bench = Bench::body(
        "local s = p:stream()
        local h = s:data(packet_http)
        nf.log(http.host(s), h and h:host():get(), h and h:uri():get(), #dns.messages(s))",
    );
    bench.pass(&mut syn());
    bench.log();
    let mut at = 0;
    for (part, said) in [
        ("\r\nGE", "nil   0"),
        ("T /a HTTP/1.1\r\nho", "nil   0"),
        ("st:  WWW.Example.:8080 \r\nX: y\n\n", "www.example   0"),
    ] {
        bench.pass(&mut segment(0x18, at, part.as_bytes()));
        assert_eq!(bench.log().join("; "), said, "{part:?}");
        at += part.len();
    }
}

#[test]
fn a_host_is_told_as_servers_would_read_it() {
    for (text, host) in [
        ("GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example"),
        ("GET / HTTP/1.1\nHost: a.example\n\n", "a.example"),
        ("GET http://u@B.example:1/x HTTP/1.1\r\nHost: a.example\r\n\r\n", "b.example"),
        ("CONNECT [2001:DB8::1]:443 HTTP/1.1\r\nHost: a\r\n\r\n", "[2001:db8::1]"),
        ("GET / HTTP/1.0\r\n\r\n", ""),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "false"),
        ("GET / HTTP/1.1\r\nHost:\r\n a\r\n\r\n", "false"),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", "false"),
        ("GET /\r\n\r\n", "false"),
        ("\x16\x03\x01", "false"),
        ("GET / HTTP/1.1\r\nHost: a\r\n", "nil"),
        ("", "nil"),
    ] {
        let mut bench = Bench::body(&format!("nf.log(http.host({text:?}))"));
        bench.pass(&mut syn());
        assert_eq!(bench.log(), [host], "{text:?}");
    }
}

#[test]
fn names_of_tls_are_found_behind_what_servers_pass_over() {
    let hello = client_hello("a.example", 4000);
    let octets = |octets: &[u8]| octets.iter().map(|octet| format!("\\x{octet:02x}")).collect::<String>();
    for (text, name) in [
        (hello.clone(), "a.example"),
        ([&[21, 3, 1, 0, 2, 1, 0], &hello[..]].concat(), "a.example"),
        ([&[22, 3, 1, 0, 0], &hello[..]].concat(), "a.example"),
        (hello[..hello.len() - 1].to_vec(), "nil"),
        (vec![22], "nil"),
        (vec![23, 3, 3, 0, 5], "false"),
        (vec![22, 2], "nil"),
        ([&[22, 4], &hello[2..]].concat(), "a.example"),
        ([&[21, 0, 0, 0, 2, 1, 0], &hello[..]].concat(), "a.example"),
        (vec![24, 3, 3, 0, 5], "false"),
        (vec![22, 3, 1, 0, 4, 2, 0, 0, 0], "false"),
        (vec![22, 3, 1, 0, 4, 1, 0, 0, 0], ""),
        (client_hello("A.Example.", 7), "a.example"),
    ] {
        let mut bench = Bench::body(&format!("nf.log(tls.server_name('{}'))", octets(&text)));
        bench.pass(&mut syn());
        assert_eq!(bench.log(), [name], "{text:02x?}");
    }
}

#[test]
fn bounds_are_the_scripts() {
    let text = "local streams = nf.streams { name = 'few', limit = 2, octets = 10, memory = 20 }
        function process_packet(p)
          local s = p:stream(streams)
          nf.log(#s, s:fault())
          return NF_ACCEPT
        end";
    let mut bench = Bench::new(text);
    bench.pass(&mut syn());
    for (at, octets, said) in [(0, &b"01234567"[..], "8 nil"), (8, b"8901", "10 full"), (10, b"x", "10 full")]
    {
        bench.log();
        bench.pass(&mut segment(0x18, at, octets));
        assert_eq!(bench.log(), [said]);
    }
    for (declaration, wanted) in [
        ("nf.streams { name = 'a', octets = 0 }", "`octets` must be"),
        ("nf.streams { name = 'a', octets = 100, memory = 100 }", "`memory` must be"),
        ("nf.streams {}", "`name` is missing"),
    ] {
        let mut bench = Bench::body(declaration);
        assert!(bench.fails(&mut syn()).contains(wanted));
    }
}

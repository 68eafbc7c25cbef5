//! Names of DNS: the same in the VM, in the intermediate form and in the kernel, wherever a program is attached, whatever
//! stands in the packet.

use bpf::netfilter::verdict;
use wire::checksum::TransportChecksum;

use super::differential::{InKernel, Logging, may_load};
use super::generate::Random;
use super::interpret::{Maps, Outcome, run};
use super::tests::{RESULTS, compile_at};
use super::{AttachType, Results};
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script, Verdict};

const FIND_QUERY: &str = "
function process_packet(p)
  local eth = p:data(packet_eth)
  local ip = eth:data(packet_ip6) or eth:data(packet_ip)
  local udp = ip and ip:data(packet_udp)
  local query = udp and udp:data(packet_dns)
  if not query then return NF_DROP end
";

const TABLES: &str = r#"
local known = nf.table { name = "known", key = "text:40", limit = 64 }
local REFUSED = { ["ads.example"] = 3, ["www.a.long-name.with-labels.example"] = 4 }
"#;
const NAMES: &str = r#"
  local name, raw = dns.name(query), query:qname():get()
  nf.log(#raw, raw, #query:answers())
  if not name then return XT_CONTINUE end
  nf.log(#name, name, query:qtype():get(), query:qclass():get(), ip:saddr():get())
  if #name <= 40 then known:set(name, (known:get(name) or 0) + 1) nf.log(known:get(name)) end
  if name == "www.example" then nf.log("www") end
  if raw == "\3ADS\7example\0" then nf.log("in capitals") end
  nf.log(REFUSED[name])
  return REFUSED[name] and NF_DROP or NF_ACCEPT
end
"#;

/// A message whose first question is asked like this, cut to so many octets.
pub(super) fn message(questions: u16, question: &[u8]) -> Vec<u8> {
    // The identifier differs, and has no zero.
    let mut message = vec![1 | question.len() as u8, 0x34, 1, 0];
    message.extend(questions.to_be_bytes());
    message.extend([0; 6]);
    message.extend(question);
    message
}

/// A frame with UDP to port 53.
pub(super) fn frame(is_ipv6: bool, message: &[u8]) -> Vec<u8> {
    let length = (8 + message.len()) as u16;
    let mut frame = vec![2; 12];
    if is_ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([17, 64]);
        frame.extend([0xfd; 32]);
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + length).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    }
    frame.extend([0x13, 0x88, 0, 53]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(message);
    frame
}

/// Labels with their lengths, and the zero.
pub(super) fn labels(labels: &[&[u8]]) -> Vec<u8> {
    let mut name = Vec::new();
    for label in labels {
        name.push(label.len() as u8);
        name.extend(*label);
    }
    name.push(0);
    name
}

/// Type and class.
const BEHIND: [u8; 4] = [0, 28, 0, 1];

/// Questions that are well-formed, or attack who reads them.
pub(super) fn questions() -> Vec<Vec<u8>> {
    let long = [b'x'; 63];
    // With the lengths and the zero 255 octets are as many as a name has; 256 are one more.
    let of = |last: usize| labels(&[&long[..], &long, &long, &long[..last]]);
    let names = [
        labels(&[b"www", b"example"]),
        labels(&[b"WWW", b"Example"]),
        labels(&[b"ADS", b"example"]),
        labels(&[b"ads.example"]),
        labels(&[b"www", b"a", b"long-name", b"with-labels", b"example"]),
        labels(&[b"\0\x01\x2e\xff", b"\xc3\xa4"]),
        labels(&[]),
        labels(&[&b"a"[..]; 127]),
        labels(&[&b"a"[..]; 128]),
        of(61),
        of(62),
        of(60),
        // A pointer to itself, to what is before, and behind a label.
        vec![0xc0, 12],
        vec![0xc0, 0],
        b"\x03www\xc0\x0c".to_vec(),
        b"\x40aaa\0".to_vec(),
        b"\x80aaa\0".to_vec(),
        b"\x3fshort\0".to_vec(),
        b"\x03www".to_vec(),
        vec![1; 300],
        vec![63; 300],
        vec![],
    ];
    let mut questions = Vec::new();
    for name in names {
        for behind in [&BEHIND[..], &BEHIND[..3], &[], b"\0\x1c\0\x01answers"] {
            questions.push([&name[..], behind].concat());
        }
    }
    questions
}

/// Octets among which there are often lengths of labels, zeros and letters.
fn anything(random: &mut Random) -> Vec<u8> {
    let length = random.below(300);
    let octet = |random: &mut Random| match random.below(8) {
        0 => 0,
        1 | 2 => random.below(64) as u8,
        3 => random.below(256) as u8,
        4 => b'A' + random.below(26) as u8,
        _ => b'a' + random.below(26) as u8,
    };
    let mut question: Vec<u8> = (0..length).map(|_| octet(random)).collect();
    // Labels that follow one another, as far as that goes.
    let mut at = 0;
    while at < question.len() && !random.below(9) == 0 {
        let label = 1 + random.below(20);
        question[at] = label as u8;
        at += label + 1;
    }
    if at < question.len() {
        question[at] = 0;
    }
    question
}

/// All messages that programs are given.
fn messages() -> Vec<Vec<u8>> {
    let mut random = Random::new(53);
    let mut messages: Vec<_> = questions().iter().map(|question| message(1, question)).collect();
    messages.push(message(0, &labels(&[b"www", b"example"])));
    messages.push(message(256, &[labels(&[b"www", b"example"]), BEHIND.to_vec()].concat()));
    messages.push(vec![1; 11]);
    messages.push(message(1, &[]));
    messages.extend((0..600).map(|_| message(random.below(2) as u16 + 1, &anything(&mut random))));
    messages
}

/// What a script makes of all messages, in all tiers at this place.
pub(super) fn same_everywhere(text: &str, place: AttachType, results: Results) {
    let compiled =
        compile_at(text, place.clone(), results).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let mut loaded = may_load().then(|| InKernel::load(&compiled).unwrap_or_else(|error| panic!("{error}")));
    let log = Logging::default();
    let mut machine = Machine::new(log.clone(), Limits::default());
    let rule = machine.load(Script::new("test.lua", text)).expect("a script");
    let lines = &compiled.intermediate().lines;
    let mut maps = Maps::default();
    let has_link = place.has_link();
    for (number, message) in messages().iter().enumerate() {
        let frame = frame(number % 3 != 0, message);
        let mut packet = match has_link {
            true => Packet::of_frame(frame.clone(), TransportChecksum::Complete),
            false => Packet::of_ip(&frame[14..], TransportChecksum::Complete),
        };
        let given = packet.real().to_vec();
        let mut whole = packet.bytes().to_vec();
        let (verdict, error) = machine.run(rule, &mut packet);
        let logged = log.take();
        let told = || format!("{place:?} {error:?} {logged:?}\n{}\n{text}", hex::encode(message));
        let expected = match (verdict, &error) {
            (_, Some(_)) => results.error,
            (Verdict::Drop | Verdict::Stolen, None) => results.drop,
            _ => results.pass,
        };
        let result = match run(compiled.intermediate(), &mut maps, &mut whole, 0, || 0) {
            Outcome::Verdict(0 | 2) => results.drop,
            Outcome::Verdict(_) => results.pass,
            _ => results.error,
        };
        assert_eq!(result, expected, "the intermediate form: {}", told());
        let in_form: Vec<_> =
            maps.logged.drain(..).map(|(line, numbers)| lines[line].text(&numbers)).collect();
        assert_eq!(in_form, logged, "the intermediate form: {}", told());
        if let Some(loaded) = &mut loaded {
            let (got, _) =
                loaded.program.test_run(&given).unwrap_or_else(|error| panic!("{error}: {}", told()));
            assert_eq!(got, expected, "the kernel: {}", told());
            assert_eq!(loaded.logged(lines), logged, "the kernel: {}", told());
        }
    }
}

/// The same at all places.
pub(super) fn same_at_all_places(text: &str) {
    for has_link in [true, false] {
        same_everywhere(text, AttachType::Interface { has_link }, RESULTS);
    }
    let at_xdp = Results { pass: bpf::xdp::PASS, drop: bpf::xdp::DROP, error: bpf::xdp::DROP, ..RESULTS };
    same_everywhere(text, AttachType::Xdp, at_xdp);
    match linux::bpf::netfilter::layout() {
        Ok(layout) => {
            let place = AttachType::Netfilter { layout, interfaces: Vec::new() };
            // An error drops there, as a verdict may.
            let results =
                Results { pass: verdict::ACCEPT, drop: verdict::DROP, error: verdict::DROP, ..RESULTS };
            same_everywhere(text, place, results);
        }
        Err(error) => eprintln!("not at netfilter: {error}"),
    }
}

#[test]
fn names_are_the_same_at_all_places() {
    same_at_all_places(&[TABLES, FIND_QUERY, NAMES].concat());
}

#[test]
fn parts_and_searches_are_the_same_at_all_places() {
    let script = r#"
        local text = tostring(udp:data():get())
        local first, last = text:find("example", 1, true) nf.log(first, last)
        nf.log((string.find(text, "www")), (text:lower():find("ads\7example", -20)))
        nf.log((text:find("abc", #text // 2, true)), (text:sub(-4):find("\0\1", 2, true)))
        local name = dns.name(query)
        if not name then return XT_CONTINUE end
        first, last = name:find(".", 1, true) nf.log(first, last, (name:find(".example", 1, true)))
        nf.log((name:find("with-labels.example", 3, true)))
        nf.log(name:sub(3, nil), #name:sub(2, -3), name:sub(-9, -2))
        nf.log(#name:sub(0), name:sub(300), name:sub(math.mininteger, math.maxinteger), name:sub(5, 4))
        local from = udp:data():get()[0] & 127
        nf.log(name:sub(from), name:sub(from - 64, from), name:sub(-from):sub(2))
        if name:sub(-8) == ".example" or name == "example" then return NF_DROP end
        local dot = name:find(".", 1, true)
        if dot and name:sub(dot + 1) == "example" then return NF_DROP end
        return NF_ACCEPT
      end"#;
    same_at_all_places(&[FIND_QUERY, script].concat());
}

#[test]
fn what_may_be_something_else_is_refused() {
    for (body, why) in [
        ("return text:find('a.c') and 1 or 0", "by a pattern"),
        ("return text:find('', 1, true) and 1 or 0", "of an empty string"),
        ("return text:find(text, 1, true) and 1 or 0", "takes one that is known"),
        ("return text:find('a', (text:find('b'))) and 1 or 0", "where a search begins may be nil"),
        ("return #text:sub(1, (text:find('b')))", "where a part ends may be nil"),
        ("return text:match('a') and 1 or 0", "has no method 'match' in the kernel"),
        ("nf.log(text) return 1", "octets are logged that may be more than 255"),
        ("return dns.name(p) and 1 or 0", "dns.name takes a view of DNS"),
        ("return #tostring(p)", "'tostring' of a view"),
        (
            "p:get()[20] = 1 local q = p:data(packet_eth):data(packet_ip):data(packet_udp):data(packet_dns)
          return dns.name(q) and 1 or 0",
            "after something was written to the packet",
        ),
    ] {
        let text = format!("function process_packet(p) local text = tostring(p:get()) {body} end");
        let refusals = compile_at(&text, AttachType::Interface { has_link: true }, RESULTS).expect_err(body);
        assert!(refusals.iter().any(|one| one.reason.contains(why)), "{body}: {refusals:?}");
    }
}

#[test]
fn what_is_no_name_is_told() {
    let log = Logging::default();
    let mut machine = Machine::new(log.clone(), Limits::default());
    let script = "function process_packet(p)
      local query = p:data(packet_eth):data(packet_ip6):data(packet_udp):data(packet_dns)
      nf.log(dns.name(query), #query:qname())
      return NF_ACCEPT
    end";
    let rule = machine.load(Script::new("test.lua", script)).expect("a script");
    let mut said = |question: Vec<u8>| {
        let frame = frame(true, &message(1, &question));
        machine.run(rule, &mut Packet::of_frame(frame, TransportChecksum::Complete));
        log.take().concat()
    };
    let whole = |name: Vec<u8>| [name, BEHIND.to_vec()].concat();
    assert_eq!(said(whole(labels(&[b"WWW", b"example"]))), "www.example 13");
    assert_eq!(said(whole(labels(&[]))), " 1", "the root");
    assert_eq!(said(labels(&[b"www"])), "nil 0", "without type and class");
    assert_eq!(said(whole(vec![0xc0, 12])), "nil 0", "a pointer");
    assert_eq!(said(whole(labels(&[&b"a"[..]; 127]))), format!("{} 255", ["a"; 127].join(".")));
    assert_eq!(said(whole(labels(&[&b"a"[..]; 128]))), "nil 0", "257 octets");
    let long = [b'x'; 63];
    let of = |last: usize| whole(labels(&[&long[..], &long, &long, &long[..last]]));
    assert!(said(of(61)).ends_with(" 255"));
    assert_eq!(said(of(62)), "nil 0", "256 octets");
}

//! Traces: a packet that is followed takes the way that it takes otherwise, and both tiers tell the same of it.

use wire::checksum::TransportChecksum;

use super::differential::{InKernel, Logging, can_be_tested, may_load};
use super::generate::{self, Random};
use super::interpret::{Maps, Outcome, run};
use super::ir::Failure;
use super::logging::Said;
use super::tests::RESULTS;
use super::{AttachType, CompileError, Compiled, account, followed};
use crate::matching::Rule;
use crate::packet::Packet;
use crate::trace::{Lines, UNTOLD};
use crate::vm::traced::with_twins;
use crate::vm::{Limits, Machine, Script, Verdict};

fn compile(text: &str, which: &str, has_link: bool) -> Result<Compiled, CompileError> {
    let which = Rule::parse(which).expect("a rule");
    let script = followed(&Script::new("test.lua", text), &Rule::default(), &which).expect("a script");
    super::compile(&script, Logging::default(), RESULTS, AttachType::Interface { has_link })
}

/// What a record of a program says of a packet that is followed.
fn lines(said: &[Said]) -> Lines {
    let mut lines = Lines::default();
    for said in said {
        if let Said::Point { line, told, .. } = said {
            lines.add("test.lua", *line as usize, told);
        }
    }
    lines
}

/// Whether the kernel tells the same, where it tells something.
fn is_told(lua: &str, kernel: &str) -> bool {
    let mut rest = lua;
    for (place, part) in kernel.split(UNTOLD).enumerate() {
        match rest.find(part) {
            Some(at) if place > 0 || at == 0 => rest = &rest[at + part.len()..],
            // A long line is cut, and not at the same place if one of them says less.
            _ => return lua.len() > 300,
        }
    }
    rest.is_empty() || kernel.ends_with(UNTOLD) || lua.len() > 300
}

fn assert_same(lua: &Lines, kernel: &Lines, told: impl Fn() -> String) {
    let pairs = || lua.0.iter().zip(&kernel.0);
    let same = lua.0.len() == kernel.0.len()
        && pairs().all(|(one, other)| one.number == other.number && is_told(&one.told, &other.told));
    assert!(same, "Lua: {lua:#?}\nthe kernel: {kernel:#?}\n{}", told());
}

/// Random scripts and packets: the result is that without a trace, and what is told is the same.
#[test]
fn both_tiers_tell_the_same_of_a_packet() {
    let in_kernel = may_load();
    let programs = generate::cases(120);
    let mut random = Random::new(0x7ace);
    let (mut cases, mut scripts) = (0, 0);
    for number in 0..programs {
        let text = generate::script(&mut random);
        let has_link = number % 3 != 0;
        let Ok(compiled) = compile(&text, "", has_link) else { continue };
        let Ok(plain) = super::tests::compile_for(&text, has_link) else { continue };
        scripts += 1;
        let mut loaded = in_kernel
            .then(|| InKernel::load(&compiled).unwrap_or_else(|error| panic!("{number}: {error}\n{text}")));
        let program = compiled.intermediate();
        let (mut maps, mut plain_maps) = (Maps::default(), Maps::default());
        maps.follows = true;
        let mut machine = Machine::new(Logging::default(), Limits::default());
        let rule = machine.load(Script::new("test.lua", &with_twins(&text))).unwrap();
        for _ in 0..128 {
            let frame = generate::packet(&mut random);
            let (frame, mut packet) = if has_link {
                (frame.clone(), Packet::of_frame(frame, TransportChecksum::Complete))
            } else {
                let packet = Packet::of_ip(&frame[14..], TransportChecksum::Complete);
                (packet.bytes().to_vec(), packet)
            };
            let real = packet.real().to_vec();
            let can_be_tested = can_be_tested(&real);
            if !can_be_tested && !compiled.maps().is_empty() {
                continue;
            }
            let (verdict, error, lua) = machine.trace(rule, &mut packet);
            let told = || format!("{number}: {error:?}\n{}\n{text}", hex::encode(&frame));
            let [mut changed, mut plainly] = [frame.clone(), frame.clone()];
            let outcome = run(program, &mut maps, &mut changed, 0, || 0);
            let untraced = run(plain.intermediate(), &mut plain_maps, &mut plainly, 0, || 0);
            // Who returns no verdict does so at no line.
            let without_line = |outcome| match outcome {
                Outcome::Failed(Failure::NoVerdict, _) => Outcome::Failed(Failure::NoVerdict, 0),
                outcome => outcome,
            };
            let outcomes = [outcome, untraced].map(without_line);
            assert_eq!(
                (outcomes[0], &changed),
                (outcomes[1], &plainly),
                "a trace changes nothing: {}",
                told()
            );
            let said = |(line, numbers): (usize, Vec<i64>)| program.lines[line].said(&numbers);
            let said: Vec<Said> = maps.logged.drain(..).map(said).collect();
            assert!(matches!(said[0], Said::Begin { .. }), "{said:?}");
            assert_same(&lua, &lines(&said), told);
            if let Some(loaded) = loaded.as_mut().filter(|_| can_be_tested) {
                let _ = loaded.program.test_run(&real).unwrap_or_else(|error| panic!("{error}: {}", told()));
                let said = loaded.said(&program.lines);
                // The ring is small: it may be full.
                let Some(Said::Begin { octets, .. }) = said.first() else { panic!("{said:?}: {}", told()) };
                let ip = &frame[14..];
                assert_eq!(*octets, ip[..ip.len().min(128)], "{}", told());
                let Some(Said::End { place, changed, .. }) = said.last() else {
                    panic!("{said:?}: {}", told())
                };
                assert_same(&lua, &lines(&said), told);
                match (&error, Verdict::ALL.get(*place)) {
                    (Some(_), None) => assert_eq!(*place, account::ERRORS),
                    (None, Some(known)) => {
                        assert_eq!(*known, verdict, "{}", told());
                        assert_eq!(*changed, packet.is_written(), "{lua:#?} {}", told());
                    }
                    other => panic!("{other:?} {outcome:?}: {}", told()),
                }
            }
            cases += 1;
        }
    }
    println!("{scripts} scripts, {cases} cases");
    assert!(scripts * 2 > programs && cases > 20 * programs, "{scripts} scripts, {cases} cases");
}

const TEXT: &str = "local seen = nf.counter 'seen'\nlocal function twice(n) return 2 * n end\n\
    function process_packet(p)\n  local ip = p:data(packet_eth):data(packet_ip6)\n  if not ip then return NF_DROP end\n\
    \x20 local limit, far = ip:hop_limit():get(), twice(ip:hop_limit():get())\n  local text = tostring(p:raw(22, #p - 22):get())\n\
    \x20 local many = seen:add()\n  ip:hop_limit():set(limit - 1)\n  local late = text:lower()\n\
    \x20 if many == 2 then return p:get()[4000] end\n  return NF_ACCEPT\nend\n";

fn frame() -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 40, 59, 64]);
    frame.extend([0xfd; 32]);
    frame.extend([b'A'; 40]);
    frame
}

/// What there is to see, word for word.
#[test]
fn values_errors_and_what_is_not_told() {
    let compiled = compile(TEXT, "", true).unwrap();
    let program = compiled.intermediate();
    let mut maps = Maps::default();
    maps.follows = true;
    let told = |maps: &mut Maps| {
        run(program, maps, &mut frame(), 0, || 0);
        let said = |(line, numbers): (usize, Vec<i64>)| program.lines[line].said(&numbers);
        let said: Vec<Said> = maps.logged.drain(..).map(said).collect();
        let lines = lines(&said).0.into_iter().map(|line| format!("{} {}", line.number, line.told));
        lines.collect::<Vec<_>>()
    };
    let text = format!("\"{}{}\"… (72 octets)", "\\xfd".repeat(32), "A".repeat(32));
    let first = [
        "3 p = view packet_raw",
        "4 ip = view packet_ip6",
        "5 no",
        "2 n = 64",
        "6 limit = 64, far = 128",
        &format!("7 text = {text}"),
        "8 many = 1",
        "9 ",
        "10 late = …",
        "11 no",
        "12 ",
    ];
    assert_eq!(told(&mut maps), first);
    assert_eq!(told(&mut maps)[9..], ["11 yes"]);
    assert_eq!(run(program, &mut maps, &mut frame(), 0, || 0), Outcome::Verdict(1));
    maps.logged.clear();
    maps.follows = false;
    assert_eq!(told(&mut maps), [""; 0], "nobody follows it");
}

/// In the kernel: as many packets as are to be followed, of those that are meant; others cost no record.
#[test]
fn as_many_packets_are_followed_as_are_wanted() {
    if !may_load() {
        return;
    }
    for (which, follows) in [
        ("", true),
        ("ip6 saddr fdfd::/16", true),
        ("ip6 saddr fdfd:fc00::/22 ip6 daddr fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd", true),
        ("ip6 saddr fdfe::/16", false),
        ("ip saddr 0.0.0.0/0", false),
        ("udp dport 53", false),
        ("ip6 saddr ::/0 meta l4proto 59", true),
    ] {
        let compiled = compile(TEXT, which, true).unwrap_or_else(|error| panic!("{which}: {error}"));
        let mut loaded =
            InKernel::load_to_follow(&compiled, 2).unwrap_or_else(|error| panic!("{which}: {error}"));
        let mut ended = 0;
        for _ in 0..4 {
            loaded.program.test_run(&frame()).expect("it runs");
            let said = loaded.said(&compiled.intermediate().lines);
            ended += said.iter().filter(|said| matches!(said, Said::End { .. })).count();
            assert!(said.is_empty() || said.len() > 8, "{which}: {said:?}");
        }
        assert_eq!(ended, if follows { 2 } else { 0 }, "{which}");
    }
}

/// Records that find the ring full are counted.
#[test]
fn what_is_lost_is_counted() {
    if !may_load() {
        return;
    }
    let text = "function process_packet(p) nf.log(#p, #p, #p, #p) return NF_ACCEPT end";
    let compiled = super::tests::compile(text).expect("it compiles");
    let mut loaded = InKernel::load(&compiled).expect("it loads");
    let packets = 10_000;
    for _ in 0..packets {
        loaded.program.test_run(&frame()).expect("it runs");
    }
    let told = loaded.said(&compiled.intermediate().lines).len() as u64;
    assert!(told > 0 && told < packets, "{told}");
    assert_eq!(told + loaded.lost(), packets);
}

/// A script that hands over tells its way up to there.
#[test]
fn what_is_handed_over_is_followed_up_to_there() {
    let text = "function process_packet(p)\n  local length = #p\n  if length > 60 then\n    nf.log('long')\n  end\n  return NF_DROP\nend";
    let results = super::Results { punt_mark: Some(0x51df_0001), ..RESULTS };
    let which = Rule::default();
    let script = followed(&Script::new("test.lua", text), &which, &which).unwrap();
    let place = AttachType::Interface { has_link: true };
    let compiled = super::compile(&script, Logging::default(), results, place).unwrap();
    let program = compiled.intermediate();
    let mut maps = Maps::default();
    maps.follows = true;
    assert_eq!(run(program, &mut maps, &mut frame(), 0, || 0), Outcome::Punted);
    let said: Vec<Said> =
        maps.logged.iter().map(|(line, numbers)| program.lines[*line].said(numbers)).collect();
    let numbers: Vec<usize> = lines(&said).0.iter().map(|line| line.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    if may_load() {
        let mut loaded = InKernel::load(&compiled).expect("it loads");
        loaded.program.test_run(&frame()).expect("it runs");
        let said = loaded.said(&program.lines);
        assert!(matches!(said.last(), Some(Said::End { place: account::PUNTED, .. })), "{said:?}");
    }
}

//! Records that are written, added to, deleted, evicted and read by several at once: nobody ever sees a part of one and a
//! part of another, in both tiers and from outside.

use std::os::fd::AsRawFd;

use wire::checksum::TransportChecksum;

use super::differential::{create, may_load};
use super::generate::Random;
use super::shared::MapPart;
use super::tests::{RESULTS, compile};
use crate::contents::Contents as _;
use crate::host::NoHost;
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script, Tables, Verdict};

/// The octets of a packet say what is done with which key, and a number. Each record that was written as one can be told: all
/// its parts follow from the first.
const SCRIPT: &str = r#"
local kept = nf.table { name = "kept", key = "int", value = { "int", "int", "ipv6", "bool", "int" }, limit = 8 }
local few = nf.table { name = "few", key = { "int", "int" }, value = { "int", "int", "int" }, limit = 4, when_full = "oldest" }
local sums = nf.table { name = "sums", key = "int", value = { "int", "int" }, limit = 8 }
local got = nf.table { name = "got", key = { "int", "int" }, limit = 1048576 }
local ODD, EVEN = "2001:db8::1", "fd00::2"

local function step(key, what, n)
  if what == 0 then
    if n & 1 == 1 then kept:set(key, n, n * 7, ODD, true, n ~ 5) else kept:set(key, n, n * 7, EVEN, false, n ~ 5) end
  elseif what == 1 then
    kept:delete(key)
  elseif what == 2 then
    local a, b, address, odd, c = kept:get(key)
    if a then
      if b ~= a * 7 or c ~= a ~ 5 or odd ~= (a & 1 == 1) then return false end
      if odd then return address == ODD else return address == EVEN end
    end
  elseif what == 3 then
    few:set(key, n & 7, n, n * 3, n ~ 9)
  elseif what == 4 then
    local a, b, c = few:get(key, n & 7)
    return not a or b == a * 3 and c == a ~ 9
  elseif what == 5 then
    local once, thrice = sums:add(key, 1, 3)
    return once and thrice == once * 3 and got:add(key, once, 1) == 1
  else
    local once, thrice = sums:get(key)
    return not once or thrice == once * 3
  end
  return true
end

function process_packet(p)
  local octets = p:get()
  local key, what, n = octets[0], octets[1], octets[2] << 8 | octets[3]
  for turn = 1, 8 do
    if not step(key, what, n + turn) then return NF_DROP end
  end
  return NF_ACCEPT
end
"#;
const THREADS: u64 = 4;
const PACKETS: usize = 20_000;
const ADD: u8 = 5;
/// How often a packet does what it says.
const TURNS: i64 = 8;

/// Has threads run random packets, and tells how often they added.
fn at_once<R: FnMut(&[u8])>(make: impl Fn() -> R + Sync) -> i64 {
    let thread = |seed: u64| {
        let (mut run, mut random, mut added) = (make(), Random::new(seed), 0);
        for _ in 0..PACKETS {
            let mut frame = vec![0; 60];
            frame[0] = random.below(2) as u8;
            frame[1] = random.below(7) as u8;
            frame[2..4].copy_from_slice(&(random.number() as u16).to_be_bytes());
            added += if frame[1] == ADD { TURNS } else { 0 };
            run(&frame);
        }
        added
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|seed| scope.spawn(move || thread(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread")).sum()
    })
}

/// Numbers of a value of whole numbers.
fn numbers(value: &[u8]) -> Vec<i64> {
    value.as_chunks::<8>().0.iter().map(|octets| i64::from_be_bytes(*octets)).collect()
}

#[test]
fn nobody_sees_half_a_record_in_lua() {
    let tables = Tables::default();
    let added = at_once(|| {
        let mut machine = Machine::with_tables(NoHost, Limits::default(), tables.clone());
        let rule = machine.load(Script::new("test.lua", SCRIPT)).expect("a script");
        move |frame: &[u8]| {
            let mut packet = Packet::of_frame(frame.to_vec(), TransportChecksum::Complete);
            let (verdict, error) = machine.run(rule, &mut packet);
            assert!(verdict == Verdict::Accept && error.is_none(), "{frame:?}: {verdict:?} {error:?}");
        }
    });
    let entries = |name: &str| {
        let table = tables.all(0).into_iter().find(|table| table.shared().name == name).expect("a table");
        let Ok(entries) = table.entries();
        entries
    };
    let sums: Vec<i64> = entries("sums").iter().map(|entry| numbers(&entry.value)[0]).collect();
    assert_eq!(sums.iter().sum::<i64>(), added);
}

#[test]
fn nobody_sees_half_a_record_in_the_kernel() {
    if !may_load() {
        return;
    }
    let compiled = compile(SCRIPT).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let maps: Vec<_> = compiled.maps().iter().map(create).collect();
    let descriptors: Vec<_> = maps.iter().map(AsRawFd::as_raw_fd).collect();
    let emitted = compiled.assemble(&descriptors, None).expect("a program");
    let program = linux::bpf::Program::load(linux::bpf::ProgramKind::SchedCls, &emitted.code)
        .unwrap_or_else(|error| panic!("{error}"));
    let of = |name: &str| {
        let all = compiled.maps().iter().zip(&maps);
        let mut all = all.filter(|(map, _)| map.part == MapPart::Entries);
        all.find(|(map, _)| map.shared.name == name).expect("a map")
    };
    let entries = |name: &str| {
        let (meaning, map) = of(name);
        let mut entries = map.entries().expect("entries");
        entries.retain(|(key, value)| meaning.is_whole(key, value));
        let entry =
            |(key, value): &(Vec<u8>, Vec<u8>)| meaning.entry(key, value, 0).expect("it does not expire");
        entries.iter().map(entry).collect::<Vec<_>>()
    };
    let added = std::thread::scope(|scope| {
        let packets = scope.spawn(|| {
            at_once(|| {
                let program = &program;
                move |frame: &[u8]| {
                    let (result, _) = program.test_run(frame).expect("it runs");
                    assert_eq!(result, RESULTS.pass, "{frame:?}");
                }
            })
        });
        let mut seen = 0;
        while !packets.is_finished() {
            for entry in entries("sums") {
                let [once, thrice] = numbers(&entry.value)[..] else { panic!("{entry:?}") };
                assert_eq!(thrice, once * 3, "from outside");
                seen += 1;
            }
            for entry in entries("few") {
                let [a, b, c] = numbers(&entry.value)[..] else { panic!("{entry:?}") };
                assert_eq!([b, c], [a * 3, a ^ 9], "from outside");
                seen += 1;
            }
        }
        assert!(seen > 0);
        packets.join().expect("the packets")
    });
    let sums: Vec<i64> = entries("sums").iter().map(|entry| numbers(&entry.value)[0]).collect();
    assert_eq!(sums.iter().sum::<i64>(), added);
}

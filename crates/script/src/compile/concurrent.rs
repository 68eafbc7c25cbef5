//! What several processors add to one entry at the same moment is all counted, and each gets a sum of its own: in both
//! tiers.

use std::os::fd::AsRawFd;
use std::sync::Barrier;

use wire::checksum::TransportChecksum;

use super::differential::{create, may_load};
use super::tests::compile;
use crate::contents::Contents as _;
use crate::entry::integer;
use crate::host::NoHost;
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script, Tables};

/// Each packet adds to the entry of its first octet, and to that of the sum which it got.
const SCRIPT: &str = r#"
local sums = nf.table { name = "sums", key = "int", limit = 256 }
local young = nf.table { name = "young", key = "int", limit = 256, expires = 3600000 }
local got = nf.table { name = "got", key = { "int", "int" }, limit = 65536 }
local all = nf.counter "all"
local counts = nf.table { name = "counts", key = "int", limit = 65536 }
function process_packet(p)
  local key = p:get()[0]
  local sum = sums:add(key, 3)
  if not sum then return NF_DROP end
  if not young:add(key, 1) then return NF_DROP end
  if not got:add(key, sum, 1) then return NF_DROP end
  if not counts:add(all:add(), 1) then return NF_DROP end
  return NF_ACCEPT
end
"#;
const THREADS: usize = 4;
/// Packets of a thread for each key.
const PACKETS: usize = 8;
const KEYS: u8 = 200;

/// Gives all packets of all threads to `run`, a key after the other: each is new to all threads at the same moment.
fn at_once<R: FnMut(&[u8])>(make: impl Fn() -> R + Sync) {
    let barrier = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut run = make();
                for key in 0..KEYS {
                    let mut frame = vec![0; 60];
                    frame[0] = key;
                    barrier.wait();
                    (0..PACKETS).for_each(|_| run(&frame));
                }
            });
        }
    });
}

/// What is in the tables, by their names: numbers of a key, and of its value.
fn check(entries: impl Fn(&str) -> Vec<i64>) {
    let each = (THREADS * PACKETS) as i64;
    let (keys, packets) = (usize::from(KEYS), usize::from(KEYS) * THREADS * PACKETS);
    assert_eq!(entries("sums"), vec![3 * each; keys]);
    assert_eq!(entries("young"), vec![each; keys]);
    assert_eq!(entries("got"), vec![1; packets], "a sum that two packets got");
    assert_eq!(entries("counts"), vec![1; packets], "a count that two packets got");
    assert_eq!(entries("all"), [packets as i64]);
}

#[test]
fn what_threads_add_in_lua_is_all_counted() {
    let tables = Tables::default();
    at_once(|| {
        let mut machine = Machine::with_tables(NoHost, Limits::default(), tables.clone());
        let rule = machine.load(Script::new("test.lua", SCRIPT)).expect("a script");
        move |frame: &[u8]| {
            let mut packet = Packet::of_frame(frame.to_vec(), TransportChecksum::Complete);
            let (verdict, error) = machine.run(rule, &mut packet);
            assert!(error.is_none(), "{verdict:?}: {error:?}");
        }
    });
    check(|name| {
        let table = tables.all(0).into_iter().find(|table| table.shared().name == name).expect("a table");
        let Ok(entries) = table.entries();
        entries.iter().map(|entry| integer(&entry.value)).collect()
    });
}

#[test]
fn what_processors_add_in_the_kernel_is_all_counted() {
    if !may_load() {
        return;
    }
    let compiled = compile(SCRIPT).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let maps: Vec<_> = compiled.maps().iter().map(create).collect();
    let descriptors: Vec<_> = maps.iter().map(AsRawFd::as_raw_fd).collect();
    let emitted = compiled.assemble(&descriptors, None).expect("a program");
    let program = linux::bpf::Program::load(linux::bpf::ProgramKind::SchedCls, &emitted.code)
        .unwrap_or_else(|error| panic!("{error}"));
    at_once(|| {
        let program = &program;
        move |frame: &[u8]| {
            program.test_run(frame).expect("it runs");
        }
    });
    check(|name| {
        let (meaning, map) =
            compiled.maps().iter().zip(&maps).find(|(map, _)| map.shared.name == name).expect("a map");
        let entries = match name {
            "all" => vec![(vec![0; 4], map.lookup(&[0; 4]).expect("a map").expect("an entry"))],
            _ => map.entries().expect("entries"),
        };
        let value = |(key, value): &(Vec<u8>, Vec<u8>)| meaning.entry(key, value, 0).map(|entry| entry.value);
        entries.iter().filter_map(value).map(|value| integer(&value)).collect()
    });
}

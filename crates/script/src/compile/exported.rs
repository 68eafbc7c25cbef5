//! Counters and histograms that metrics export: what a packet adds, the VM, the intermediate form and the kernel count alike.

use std::os::fd::AsRawFd;

use wire::checksum::TransportChecksum;

use super::differential::{create, may_load};
use super::interpret::{Maps, Outcome, run};
use super::tests::{RESULTS, compile};
use crate::contents::Contents as _;
use crate::entry::integer;
use crate::host::NoHost;
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script, Tables};

/// The value is a number of 8 octets from the beginning of the packet.
const SCRIPT: &str = r#"
local sizes = nf.histogram { name = "sizes", help = "x", buckets = { 0, 7, 64, 1500 } }
local all = nf.counter { name = "all", help = "x" }
local free = nf.counter "free"
function process_packet(p)
  local octets, value = p:get(), 0
  for i = 0, 7 do value = value << 8 | octets[i] end
  free:add(value)
  sizes:observe(value)
  all:add(value)
  return NF_ACCEPT
end
"#;

const VALUES: [i64; 12] = [0, 1, 7, 8, 64, 65, 1500, 1501, i64::MAX >> 3, -1, i64::MIN, 9];

fn frame(value: i64) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..8].copy_from_slice(&value.to_be_bytes());
    frame
}

fn expected() -> [Vec<i64>; 3] {
    let good = || VALUES.into_iter().filter(|value| *value >= 0);
    let within = |low: i64, high: i64| good().filter(|value| (low..=high).contains(value)).count() as i64;
    let sum = good().sum();
    let buckets =
        vec![sum, within(0, 0), within(1, 7), within(8, 64), within(65, 1500), within(1501, i64::MAX)];
    [buckets, vec![sum], vec![VALUES.into_iter().fold(0, i64::wrapping_add)]]
}

#[test]
fn the_vm_counts() {
    let tables = Tables::default();
    let mut machine = Machine::with_tables(NoHost, Limits::default(), tables.clone());
    let rule = machine.load(Script::new("test.lua", SCRIPT)).expect("a script");
    for value in VALUES {
        let mut packet = Packet::of_frame(frame(value), TransportChecksum::Complete);
        let (_, error) = machine.run(rule, &mut packet);
        let refused = error.map(|error| error.message);
        assert_eq!(refused.is_some(), value < 0, "{value}: {refused:?}");
        assert!(refused.is_none_or(|error| error.contains("histogram \"sizes\" takes 0 or more: observe(")));
    }
    let named = |name: &str| {
        let table = tables.all(0).into_iter().find(|table| table.shared().name == name).expect("a table");
        assert_eq!(table.shared().metric.is_some(), name != "free");
        let Ok(entries) = table.entries();
        entries.iter().map(|entry| integer(&entry.value)).collect::<Vec<_>>()
    };
    assert_eq!(["sizes", "all", "free"].map(named), expected());
    // When its state is gone, so is what it has declared; what it has counted stays.
    drop(machine);
    let all = tables.all(0).into_iter().find(|table| table.shared().name == "all").expect("a counter");
    assert!(all.shared().metric.is_none());
}

#[test]
fn the_intermediate_form_and_the_kernel_count() {
    let compiled = compile(SCRIPT).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let mut maps = Maps::default();
    for value in VALUES {
        let outcome = run(compiled.intermediate(), &mut maps, &mut frame(value), 0, || 0);
        assert_eq!(matches!(outcome, Outcome::Failed(..)), value < 0, "{value}: {outcome:?}");
    }
    let place = |name: &str| compiled.maps().iter().position(|map| map.shared.name == name).expect("a map");
    let numbers = |name: &str| -> Vec<i64> {
        let count = compiled.maps()[place(name)].shared.limit() as i64;
        (0..count).map(|at| maps.number(place(name), at)).collect()
    };
    assert_eq!(["sizes", "all", "free"].map(numbers), expected());
    if !may_load() {
        return;
    }
    let maps: Vec<_> = compiled.maps().iter().map(create).collect();
    let descriptors: Vec<_> = maps.iter().map(AsRawFd::as_raw_fd).collect();
    let code = compiled.assemble(&descriptors, None).expect("a program").code;
    let program = linux::bpf::Program::load(linux::bpf::ProgramKind::SchedCls, &code)
        .unwrap_or_else(|error| panic!("{error}"));
    for value in VALUES {
        let (result, _) = program.test_run(&frame(value)).expect("it runs");
        assert_eq!(result, if value < 0 { RESULTS.error } else { RESULTS.pass }, "{value}");
    }
    let numbers = |name: &str| -> Vec<i64> {
        let (meaning, map) = (&compiled.maps()[place(name)], &maps[place(name)]);
        let number = |key: Vec<u8>| map.lookup(&meaning.key(&key)).expect("a map").expect("a number");
        let places = meaning.shared.places().expect("places").into_iter().map(number);
        places.map(|number| i64::from_ne_bytes(number.try_into().expect("8 octets"))).collect()
    };
    assert_eq!(["sizes", "all", "free"].map(numbers), expected());
}

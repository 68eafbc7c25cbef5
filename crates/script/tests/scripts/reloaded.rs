//! Another text in the place of a script: what is refused changes nothing, and tables keep what is in them.

use script::vm::{Limits, Machine, Script};
use wire::checksum::TransportChecksum;

use crate::host::{Bench, TestHost, ipv6, udp};
use script::packet::Packet;

fn packet() -> Packet {
    Packet::of_ip(&ipv6(17, &udp(1, 2, b"")), TransportChecksum::Complete)
}

const TABLES: &str = "local near = nf.prefixes { name = 'near', limit = 9 }
    local seen = nf.table { name = 'seen', key = 'int', limit = 9 }
    local flows = nf.flows { name = 'flows' }
    count = nf.counter 'count'
    function process_packet(p)
      local flow = p:flow(flows)
      flow.packets = flow.packets + 1
      nf.log(near:find('10.0.0.1'), near:find('::1'), near:count(), seen:get(1), seen:get(2), count:get(), flow.packets)
      return NF_ACCEPT
    end
    ";

/// What the tables have.
fn told(bench: &mut Bench) -> String {
    bench.pass(&mut packet());
    bench.log().join("; ")
}

fn reload(bench: &mut Bench, text: &str) -> Result<(), String> {
    let prepared = bench
        .machine
        .prepare(0, &[("test.lua".to_owned(), text.to_owned())])
        .map_err(|error| error.message)?;
    bench.machine.commit(prepared);
    Ok(())
}

#[test]
fn a_text_that_is_refused_changes_no_table() {
    let mut bench = Bench::new(&format!("{TABLES} near:add('10.0.0.0/8', 5) seen:set(1, 7) count:add(3)"));
    assert_eq!(told(&mut bench), "5 nil 1 7 nil 3 1");
    for (wrong, why) in [
        (
            "near:add('::/0') near:delete('10.0.0.0/8') seen:set(1, 8) seen:set(2, 1) count:add() error('no')",
            "no",
        ),
        ("nf.log('never') nf.prefixes { name = 'near', limit = 20 } x.y = 1", "index a nil value"),
        (
            "nf.table { name = 'seen', key = 'int', limit = 1 } nf.flows { name = 'flows', limit = 1 } x()",
            "call a nil",
        ),
        ("process_packet = nil", "there is no function process_packet"),
        ("count:add(9) )", "near ')'"),
    ] {
        let error = reload(&mut bench, &format!("{TABLES} {wrong}")).expect_err(wrong);
        assert!(error.contains(why), "{error}");
        let script =
            Script { function: "other".to_owned(), ..Script::new("test.lua", &format!("{TABLES} {wrong}")) };
        assert!(bench.machine.load(script).is_err(), "{wrong}");
    }
    assert_eq!(told(&mut bench), "5 nil 1 7 nil 3 2");
    // Another script of the same state.
    let other = format!("count:add(50) {TABLES} process_packet = nil seen:set(1, 9) error('no')");
    assert!(bench.machine.load(Script::new("other.lua", &other)).is_err());
    assert_eq!(told(&mut bench), "5 nil 1 7 nil 3 3");
    reload(&mut bench, &format!("{TABLES} near:add('::/0', 6) count:add(3)")).expect("it is right");
    assert_eq!(told(&mut bench), "5 6 2 7 nil 6 4");
}

#[test]
fn a_text_is_tried_out_in_silence() {
    let host = TestHost::default();
    let world = std::rc::Rc::clone(&host.0);
    let mut machine = Machine::new(host, Limits::default());
    let text = "nf.log('once') nf.schedule(nil, 'later', 1, 0)
        function later() nf.log('later') end
        function process_packet(p) return NF_ACCEPT end";
    machine.load(Script::new("test.lua", text)).expect("it is right");
    assert_eq!(std::mem::take(&mut world.borrow_mut().log), ["once"]);
    assert_eq!(machine.take_deferred().len(), 1);
    assert!(
        machine.prepare(0, &[("test.lua".to_owned(), "nf.log('never') error('no')".to_owned())]).is_err()
    );
    assert_eq!(world.borrow().log, [""; 0]);
}

#[test]
fn tables_keep_what_fits_when_their_measures_change() {
    let mut bench = Bench::new(&format!(
        "{TABLES} near:add('10.0.0.0/8', 5) near:add('::/0', 6) seen:set(1, 7) seen:set(2, 8)"
    ));
    assert_eq!(told(&mut bench), "5 6 2 7 8 0 1");
    for (from, to, wanted, said) in [
        ("limit = 9", "limit = 20", "5 6 2 7 8 0 2", ""),
        ("key = 'int', limit = 9", "key = 'int', limit = 9, expires = 100", "5 6 2 7 8 0 3", ""),
        ("key = 'int'", "key = 'int', when_full = 'oldest'", "5 6 2 7 8 0 4", ""),
        ("name = 'flows'", "name = 'flows', limit = 5, expires = 1000", "5 6 2 7 8 0 5", ""),
        (
            "key = 'int', limit = 9",
            "key = 'int', limit = 1",
            "5 6 2 nil 8 0 6",
            "table \"seen\" has room for 1 of its 2 entries",
        ),
        (
            "name = 'near', limit = 9",
            "name = 'near', limit = 1",
            "5 nil 1 nil 8 0 7",
            "table \"near\" has room for 1 of its 2 entries",
        ),
        (
            "key = 'int'",
            "key = 'int', value = 'bool'",
            "5 nil 1 nil nil 0 8",
            "table \"seen\" has other kinds than before: it begins empty",
        ),
    ] {
        reload(&mut bench, &TABLES.replace(from, to)).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert_eq!(bench.log().join(""), said, "{to}");
        assert_eq!(told(&mut bench), wanted, "{to}");
    }
}

#[test]
fn entries_expire_by_what_the_script_says_now() {
    let mut bench = Bench::new(&format!("{TABLES} seen:set(1, 7)"));
    bench.world.borrow_mut().now_ms = 500;
    reload(&mut bench, &TABLES.replace("key = 'int'", "key = 'int', expires = 1000")).expect("it is right");
    assert_eq!(told(&mut bench), "nil nil 0 7 nil 0 1");
    bench.world.borrow_mut().now_ms = 1100;
    assert_eq!(told(&mut bench), "nil nil 0 nil nil 0 2");
}

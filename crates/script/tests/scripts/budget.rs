//! What a script may not do, and that the next packet finds its state as it was.

use script::packet::Packet;
use script::vm::{ErrorKind, Limits, Machine, Script, Tables, Verdict};

use crate::host::{Bench, TestHost, frame};

fn packet() -> Packet {
    frame(0x1234, &[], &[0; 50])
}

fn limited(body: &str) -> Bench {
    let source =
        format!("count = 0 function process_packet(p) count = count + 1 {body} return NF_ACCEPT end");
    let limits = Limits { instructions: 100_000, memory: 1 << 20 };
    Bench::with(Script { failure: Verdict::Accept, ..Script::new("test.lua", &source) }, limits)
}

#[test]
fn a_script_that_fails_costs_one_packet() {
    for (body, kind) in [
        ("while true do end", ErrorKind::Budget),
        ("while true do pcall(function() while true do end end) end", ErrorKind::Budget),
        (
            "while true do xpcall(function() while true do end end, function() while true do end end) end",
            ErrorKind::Budget,
        ),
        ("local t = {} while true do t[#t + 1] = ('x'):rep(1000) end", ErrorKind::Memory),
        ("local t = {} while true do t[#t + 1] = bytes.new(100000) end", ErrorKind::Runtime),
        ("error 'my own'", ErrorKind::Runtime),
        ("return nothing.at_all", ErrorKind::Runtime),
    ] {
        let mut bench = limited(&format!("if count == 2 then {body} end"));
        assert_eq!(bench.pass(&mut packet()), Verdict::Accept);
        let (verdict, error) = bench.run(&mut packet());
        let error = error.expect(body);
        assert_eq!((verdict, error.kind), (Verdict::Accept, kind), "the verdict for failures: {error}");
        // Lua does not tell where memory was used up.
        let place = if kind == ErrorKind::Memory { "test.lua: " } else { "test.lua:1: " };
        assert!(error.message.starts_with(place), "{}", error.message);
        if !body.contains("pcall") && kind != ErrorKind::Memory {
            // One that was caught on its way has but the place where it began.
            assert!(
                error.traceback.contains("test.lua:1: in function 'process_packet'"),
                "{}",
                error.traceback
            );
        }
        assert_eq!(bench.pass(&mut packet()), Verdict::Accept, "{body}");
        let counters = bench.machine.counters(bench.rule);
        assert_eq!((counters.packets, counters.failures), (3, 1));
    }
}

#[test]
fn work_of_c_uses_up_the_budget() {
    for body in [
        "local _ = ('a'):rep(40):find(('.-'):rep(40) .. 'b')",
        "local _ = ('a'):rep(40):match(('a*'):rep(30) .. 'b')",
        "for _ in ('a'):rep(40):gmatch(('.-'):rep(40) .. 'b') do end",
        "local _ = ('a'):rep(40):gsub(('.-'):rep(40) .. 'b', '')",
        "local _ = ('pass'):rep(16000):find('pass%w*=%d+')",
        "local _ = ('('):rep(60000):find('%b()')",
        "local _ = ('a'):rep(60000):find(('a'):rep(30000) .. 'b', 1, true)",
        "pcall(string.find, ('a'):rep(40), ('.-'):rep(40) .. 'b')",
        "table.move({}, 1, 1 << 40, 1)",
        "local t = {} for i = 1, 5000 do table.insert(t, 1, i) end",
        "local t = {} for i = 1, 5000 do t[i] = -i end for i = 1, 20 do table.sort(t) end",
        "for i = 1, 3000 do local s = ('x'):rep(500000) end",
        "local s = ('x'):rep(60000) for i = 1, 3000 do local t = s:sub(2):upper() end",
    ] {
        let mut bench = limited(&format!("if count == 1 then {body} end"));
        let (_, error) = bench.run(&mut packet());
        assert_eq!(error.map(|error| error.kind), Some(ErrorKind::Budget), "{body}");
        assert_eq!(bench.pass(&mut packet()), Verdict::Accept, "{body}");
    }
}

#[test]
fn copying_octets_counts_as_work() {
    let rounds = |octets: usize| {
        let source = "rounds = nf.counter 'rounds'
            function process_packet(p)
                local all = p:get()
                while true do
                    local copy = tostring(all)
                    rounds:add()
                end
            end
            function tell() nf.log(rounds:get()) return NF_ACCEPT end";
        let mut bench = Bench::new(source);
        let (_, error) = bench.run(&mut frame(0x1234, &[], &vec![0; octets]));
        assert_eq!(error.map(|error| error.kind), Some(ErrorKind::Budget));
        let tell = Script { function: "tell".into(), ..Script::new("test.lua", source) };
        let rule = bench.machine.load(tell).expect("the same script");
        assert_eq!(bench.machine.run(rule, &mut packet()).1, None);
        bench.log()[0].parse::<u64>().expect("a number")
    };
    assert!(rounds(60_000) * 20 < rounds(60));
}

/// Of a mebibyte: sixteen calls with 65,536 octets each may wait, whichever machine of those that share tables has them.
#[test]
fn what_waits_with_deferred_calls_counts_as_memory() {
    const SOURCE: &str = "function f() end
        function process_packet(p)
            local octets = ('x'):rep(65535)
            for i = 1, 8 do nf.schedule(octets, 'f', i, 1000) end
            return NF_ACCEPT
        end";
    let limits = Limits { instructions: 1_000_000, memory: 1 << 20 };
    let script = || Script { failure: Verdict::Accept, ..Script::new("test.lua", SOURCE) };
    let tables = Tables::default();
    let [mut machine, mut other] =
        [(); 2].map(|()| Machine::with_tables(TestHost::default(), limits, tables.clone()));
    let rule = machine.load(script()).expect("a script");
    other.load(script()).expect("a script");
    assert_eq!(machine.run(rule, &mut packet()).1, None);
    for work in machine.take_deferred() {
        assert!(other.give(work));
    }
    assert_eq!(machine.run(rule, &mut packet()).1, None);
    let full = |machine: &mut Machine| {
        let error = machine.run(rule, &mut packet()).1.expect("no room");
        assert_eq!(error.message, "test.lua:4: deferred calls with 1048576 octets are waiting already");
    };
    full(&mut machine);
    // Those that are left out make room, too.
    drop(machine.take_deferred());
    assert_eq!(machine.run(rule, &mut packet()).1, None);
    full(&mut machine);
}

/// Names are for ever, and whoever sends packets may choose them.
#[test]
fn packets_make_few_names() {
    for make in [
        "nf.counter(name):add()",
        "nf.counter { name = name, persistent = true }",
        "nf.table { name = name, key = 'int' }",
        "nf.prefixes { name = name }",
        "nf.flows { name = name }",
        "nf.streams { name = name }",
    ] {
        let mut bench = Bench::new(&format!(
            "for i = 1, 500 do local name = 'early ' .. i {make} end
            seen = 0
            function process_packet(p)
                seen = seen + 1
                local name = 'early ' .. seen {make}
                name = 'late ' .. seen {make}
                {make}
                return NF_ACCEPT
            end"
        ));
        for _ in 0..256 {
            bench.pass(&mut packet());
        }
        let message = bench.fails(&mut packet());
        assert!(message.starts_with("test.lua:6: 256 tables, counters and the like"), "{make}: {message}");
    }
    let message = Bench::body("nf.counter(('x'):rep(257))").fails(&mut packet());
    assert_eq!(message, "test.lua:2: `name` has more than 256 octets");
}

#[test]
fn an_error_that_is_caught_is_a_string_with_its_place() {
    let mut bench =
        Bench::body("nf.log(pcall(p.raw, p, 99, 1)) nf.log(pcall(error, 'x')) nf.log(pcall(error, nil))");
    bench.pass(&mut packet());
    let log = bench.log();
    assert_eq!(log[0], "false test.lua:2: offset 99, length 1: the packet has 64 octets");
    assert_eq!(log[1..], ["false x".to_owned(), "false nil".into()]);
}

#[test]
fn nothing_leads_out_of_a_state() {
    for name in
        ["io", "os", "debug", "package", "dofile", "loadfile", "collectgarbage", "coroutine", "string.dump"]
    {
        let mut bench = Bench::body(&format!("assert({name} == nil)"));
        bench.pass(&mut packet());
    }
    Bench::body("assert(not load('\\27Lua')) assert(load('return 1')() == 1)").pass(&mut packet());
    let message = Bench::body("setmetatable({}, { __gc = function() end })").fails(&mut packet());
    assert!(message.contains("finalizers"), "{message}");
}

#[test]
fn what_is_no_verdict_is_an_error() {
    for returned in ["", "5", "-1", "'NF_DROP'", "true", "NF_ACCEPT + 0.5", "{}"] {
        let mut bench = Bench::new(&format!("function process_packet(p) return {returned} end"));
        let (verdict, error) = bench.run(&mut packet());
        assert_eq!(
            (verdict, error.map(|error| error.kind)),
            (Verdict::Drop, Some(ErrorKind::Verdict)),
            "{returned}"
        );
    }
    let verdicts = Verdict::ALL.map(|verdict| {
        Bench::new(&format!("function process_packet(p) return {} end", verdict.name())).pass(&mut packet())
    });
    assert_eq!(verdicts, Verdict::ALL);
}

#[test]
fn a_script_with_an_error_is_not_loaded() {
    let host = crate::host::TestHost::default();
    let mut machine = script::vm::Machine::new(host, Limits::default());
    let mut load = |source: &str| machine.load(Script::new("a.lua", source)).expect_err(source);
    let error = load("function process_packet(p");
    assert_eq!(error.kind, ErrorKind::Syntax);
    assert!(error.message.starts_with("a.lua:1: "), "{}", error.message);
    assert_eq!(load("function other(p) end").message, "a.lua: there is no function process_packet");
    assert!(load("\n\nerror 'at load'").message.starts_with("a.lua:3: at load"));
    let message =
        load("register_dynamic_protbuf { name = 'x', protocol_fields = { { 'a', 0, 65, 'int' } } }").message;
    assert_eq!(message, "a.lua:1: protocol x: protocol_fields: entry 1: a: an int has at most 64 bits");
    for name in ["nf", "print", "string", "process_packet"] {
        let source = format!(
            "function process_packet(p) end\nregister_dynamic_protbuf {{ name = '{name}', protocol_fields = {{}} }}"
        );
        let message = load(&source).message;
        assert!(message.starts_with(&format!("a.lua:2: protocol {name}: the name has another")), "{message}");
    }
}

//! The library `nf`: time, deferred work, sending, tables, modules; and states that rules share or not.

use script::packet::Packet;
use script::vm::{Limits, Machine, Script, Verdict};
use wire::checksum::TransportChecksum;

use crate::host::{Bench, TestHost, frame, ipv4, ipv6, tcp, udp};

fn packet() -> Packet {
    frame(0x0800, &[], &ipv4(17, &udp(1000, 2000, b"hello!")))
}

#[test]
fn deferred_work_runs_when_it_is_due_in_a_state_of_its_own() {
    let source = "
        seen = 0
        function later(id, handed, origin)
            nf.log(id, IS_INTERRUPT, seen, handed and handed:daddr():get(), origin and #origin, nf.get_time())
            if handed then nf.create_packet(origin, bytes.to_bytes(handed)) end
        end
        function process_packet(p)
            seen = seen + 1
            local ip = p:data(packet_eth):data(packet_ip)
            nf.schedule(nil, 'later', 2, 500)
            nf.schedule(p, 'later', 1, 100, ip, packet_ip)
            ip:daddr():set('9.9.9.9')
            nf.log(IS_INTERRUPT, nf.get_random())
            return NF_ACCEPT
        end";
    let mut bench = Bench::new(source);
    bench.world.borrow_mut().now_ms = 1000;
    bench.pass(&mut packet());
    assert_eq!(bench.machine.next_due(), Some(1100));
    assert!(bench.machine.run_due().is_none());
    bench.world.borrow_mut().now_ms = 1600;
    while let Some(done) = bench.machine.run_due() {
        done.unwrap();
    }
    assert_eq!(bench.log(), ["true 4", "1 nil 0 192.0.2.1 48 1600", "2 nil 0 nil nil 1600"]);
    assert_eq!(bench.world.borrow().sent[0][16..20], [192, 0, 2, 1]);
    assert_eq!(bench.machine.next_due(), None);
}

/// The kernel and network cards complete what they know to be partial; nobody knows that of a copy.
#[test]
fn a_copy_of_a_packet_with_a_partial_checksum_has_a_whole_one() {
    let whole = ipv6(6, &tcp(1000, 80, 0x10, &[], b"payload"));
    let parsed = wire::ipv6::Packet::parse(&whole).unwrap();
    let pseudo_header = parsed.pseudo_header(parsed.payload().len() as u32, 6).value();
    let mut ip = whole.clone();
    ip[56..58].copy_from_slice(&pseudo_header.to_be_bytes());
    let source = "
        function later(_, handed, origin) nf.create_packet(origin, handed:get()) end
        function process_packet(p)
            nf.schedule(p, 'later', 0, 10, p:data(packet_eth):data(), packet_raw)
            nf.create_packet(p, p:data(packet_eth):data():get())
            return NF_DROP
        end";
    let mut bench = Bench::new(source);
    bench.pass(&mut Packet::of_ip(&ip, TransportChecksum::Partial));
    bench.world.borrow_mut().now_ms = 10;
    bench.machine.run_due().unwrap().unwrap();
    assert_eq!(bench.world.borrow().sent, [whole.clone(), whole]);
}

#[test]
fn tables_count_expire_and_survive_a_reload() {
    let source = |extra: &str| {
        format!(
            "local hits = nf.table {{ name = 'hits', key = {{ 'ipv4', 'int' }}, value = 'int', limit = 2, expires = 100 }}
            local names = nf.table {{ name = 'names', key = 'text:8', value = 'ipv6' }}
            local total = nf.counter 'total'
            function process_packet(p)
                nf.log(hits:add('10.0.0.1', 53, 1), total:add(), hits:get('10.0.0.2', 53), names:get('a'))
                names:set('a', '2001:db8::1')
                {extra}
                return NF_ACCEPT
            end"
        )
    };
    let mut bench = Bench::new(&source(""));
    bench.pass(&mut packet());
    bench.pass(&mut packet());
    let script = Script::new(
        "test.lua",
        &source("nf.log(hits:count(), names:delete('a'), hits:set('1.2.3.4', 1, nil))"),
    );
    bench.rule = bench.machine.load(script).expect("the new text is right");
    bench.world.borrow_mut().now_ms = 99;
    bench.pass(&mut packet());
    bench.world.borrow_mut().now_ms = 300;
    bench.pass(&mut packet());
    assert_eq!(
        bench.log(),
        [
            "1 1 nil nil",
            "2 2 nil 2001:db8::1",
            "3 3 nil 2001:db8::1",
            "1 true true",
            "1 4 nil nil",
            "1 true true"
        ]
    );
}

#[test]
fn tables_refuse_what_is_not_of_their_form() {
    for (body, message) in [
        ("nf.table { name = 't', key = 'ipv4' }:get('2001:db8::1')", "ipv4 takes"),
        ("nf.table { name = 't', key = 'ipv4' }:get('10.')", "whole addresses"),
        ("nf.table { name = 't', key = 'int' }:get(1, 2)", "has 1 parts"),
        ("nf.table { name = 't', key = 'text:2' }:get('abc')", "longer than the 2 octets"),
        ("nf.table { name = 't', key = 'float' }", "is none of int"),
        ("nf.table { key = 'int' }", "`name` is missing"),
        ("nf.table { name = 't', key = 'int', limit = 0 }", "`limit` must be"),
        ("nf.prefixes { name = 'p' }:add('10.0.0.0/33')", "is not a prefix"),
        ("nf.table { name = 't', key = 'int', persistent = 1 }", "`persistent` must be true or false"),
        ("nf.counter { persistent = true }", "`name` is missing"),
        ("nf.flows { name = 'f', persistent = true }", "flows are not persistent"),
    ] {
        let said = Bench::body(body).fails(&mut packet());
        assert!(said.starts_with("test.lua:2: ") && said.contains(message), "{body}: {said}");
    }
}

#[test]
fn the_longest_prefix_is_found() {
    let mut bench = Bench::body(
        "local set = nf.prefixes { name = 'set', limit = 10 }
        set:add('10.0.0.0/8', 1) set:add('10.1.0.0/16', 2) set:add('2001:db8::1', 3)
        nf.log(set:find('10.1.2.3'), set:find('10.2.2.3'), set:find('2001:db8::1'), set:find('::1'), set:count())",
    );
    bench.pass(&mut packet());
    assert_eq!(bench.log(), ["2 1 3 nil 3"]);
}

#[test]
fn both_directions_are_one_flow() {
    let mut bench = Bench::body(
        "local flow = p:flow()
        if not flow then nf.log('none') return NF_ACCEPT end
        flow.packets = flow.packets + 1
        nf.log(flow.packets, flow.state, flow:is_reply())",
    );
    let there = frame(0x0800, &[], &ipv4(17, &udp(1000, 2000, b"")));
    let mut back = there.bytes().to_vec();
    let (source, destination) = (back[26..30].to_vec(), back[30..34].to_vec());
    back[26..30].copy_from_slice(&destination);
    back[30..34].copy_from_slice(&source);
    back[34..38].copy_from_slice(&[0x07, 0xd0, 0x03, 0xe8]);
    let mut back = Packet::of_frame(back, there.form());
    bench.pass(&mut there.clone());
    bench.pass(&mut back);
    bench.pass(&mut there.clone());
    bench.pass(&mut frame(0x86dd, &[], &ipv6(6, &tcp(1000, 2000, 2, &[], b""))));
    bench.pass(&mut frame(0x0806, &[], &[0; 28]));
    bench.world.borrow_mut().now_ms = 300_000;
    bench.pass(&mut there.clone());
    assert_eq!(bench.log(), ["1 0 false", "2 0 true", "3 0 false", "1 0 false", "none", "1 0 false"]);
}

#[test]
fn a_packet_that_is_stolen_leaves_by_the_interface_that_was_named_last() {
    let source = "
        function process_packet(p)
            local ip = p:data(packet_eth):data(packet_ip)
            local verdict = p:redirect('eth0')
            if #p > 60 then ip:redirect('eth1') end
            if #p > 70 then p:redirect(9) end
            if #p > 68 then p:redirect('eth7') end
            return #p > 50 and verdict or NF_DROP
        end";
    let mut bench = Bench::new(source);
    let sized = |octets: usize| frame(0x0800, &[], &ipv4(17, &udp(1000, 2000, &vec![0; octets - 42])));
    for (length, verdict, wanted) in
        [(44, Verdict::Drop, None), (52, Verdict::Stolen, Some(1)), (62, Verdict::Stolen, Some(2))]
    {
        let mut packet = sized(length);
        assert_eq!((bench.pass(&mut packet), packet.redirected()), (verdict, wanted), "{length}");
    }
    for (length, why) in [
        (70, "redirect: there is no interface eth7: there are eth0, eth1"),
        (72, "redirect: the name of an interface is wanted, not 9"),
    ] {
        let mut packet = sized(length);
        assert!(bench.fails(&mut packet).contains(why), "{length}");
        assert_eq!(packet.redirected(), None);
    }
    let of_array = "function process_packet(p)
        return bytes.to_packet(bytes.copy(p), packet_eth):redirect('eth0')
    end";
    assert!(Bench::new(of_array).fails(&mut sized(60)).contains("redirect"));
}

#[test]
fn octets_that_are_no_text_are_logged_as_well_as_they_can_be() {
    let mut bench = Bench::body(
        "nf.log('\\xffa', p:raw(0, 3):get(), p, p:data(packet_eth):smac()) p:get()[0] = 0xff nf.log(p:raw(0, 1):get())",
    );
    bench.pass(&mut packet());
    assert_eq!(bench.log(), ["\u{fffd}a \u{2}\0\0 view packet_raw field packet_eth:smac", "\u{fffd}"]);
}

#[test]
fn fields_are_logged_by_their_names() {
    let mut bench = Bench::body(
        "nf.log('odd', { z = 1, a = p:raw(0, 2):get(), B = nil, c = 'x y', d = 1.5, e = true }) nf.log {}",
    );
    bench.pass(&mut packet());
    assert_eq!(bench.log(), ["odd a=\"\\u{2}\\0\" c=\"x y\" d=1.5 e=true z=1", ""]);
    let many: String = (0..17).map(|number| format!("f{number} = 1,")).collect();
    for (fields, wrong) in [
        ("1, 2", "a field has a name"),
        ("['a b'] = 1", "\"a b\" names no field"),
        ("[1] = 1", "a field has a name"),
        ("t = {}", "the field t is a table, which cannot be logged"),
        ("f = print or tostring", "the field f is a function"),
        (&many, "16 fields at most"),
    ] {
        let mut bench = Bench::body(&format!("nf.log('x', {{ {fields} }})"));
        let error = bench.fails(&mut packet());
        assert!(error.contains(wrong), "{fields}: {error}");
    }
}

#[test]
fn modules_come_from_the_host() {
    let mut bench =
        Bench::body("nf.log(require('lib.adder')(2), require('lib.adder') == require('lib.adder'))");
    bench.world.borrow_mut().modules.insert("lib.adder".into(), "return function(n) return n + 1 end".into());
    bench.pass(&mut packet());
    assert_eq!(bench.log(), ["3 true"]);
    for (name, message) in [("missing", "there is no module missing"), ("../etc/passwd", "is not a name")] {
        let said = Bench::body(&format!("require '{name}'")).fails(&mut packet());
        assert!(said.starts_with("test.lua:2: require: ") && said.contains(message), "{said}");
    }
}

#[test]
fn rules_share_a_state_or_have_their_own() {
    let source = "seen = 0
        function count(p) seen = seen + 1 nf.log(seen) return NF_ACCEPT end
        function process_packet(p) return count(p) end";
    let host = TestHost::default();
    let world = host.0.clone();
    let mut machine = Machine::new(host, Limits::default());
    let script = Script::new("a.lua", source);
    let first = machine.load(script.clone()).unwrap();
    let second = machine.load(Script { function: "count".into(), ..script.clone() }).unwrap();
    let apart = machine.load(Script { state: 7, ..script.clone() }).unwrap();
    for rule in [first, second, apart] {
        assert_eq!(machine.run(rule, &mut packet()), (Verdict::Accept, None));
    }
    assert_eq!(world.borrow().log, ["1", "2", "1"]);
    let broken = Script { source: "syntax error".into(), ..script };
    machine.load(broken).expect_err("it is no Lua");
    assert_eq!(machine.run(first, &mut packet()), (Verdict::Accept, None), "what was there stays");
    assert_eq!(world.borrow().log.last().unwrap(), "3");
}

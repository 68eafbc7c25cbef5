use std::cell::RefCell;
use std::rc::Rc;

use super::differential::Logging;
use super::interpret::{Maps, Outcome, run};
use super::ir::Failure;
use super::shared::MapKind;
use super::{AttachType, CompileError, Compiled, Refusal, Results};
use crate::checksum::{self, Layout};
use crate::host::{FileError, Host, InterfaceError, Module, NoHost};
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script};
use wire::checksum::TransportChecksum;

pub(super) const RESULTS: Results =
    Results { pass: 101, drop: 102, error: 103, queue_mark: None, unseen_mark: None, punt_mark: None };

/// Packets, by the names that a script gives them to.
pub(super) type Named = Vec<(String, Vec<u8>)>;

/// A host that keeps what a script captures, and what it sends copies of.
#[derive(Clone, Default)]
pub(super) struct Keeps {
    pub(super) captured: Rc<RefCell<Named>>,
    pub(super) mirrored: Rc<RefCell<Named>>,
}

impl Host for Keeps {
    fn now_ms(&mut self) -> u64 {
        0
    }

    fn random(&mut self) -> u32 {
        0
    }

    fn send(&mut self, _: &[u8], _: Option<&Packet>) {}

    fn interface(&mut self, _: &str) -> Result<u32, InterfaceError> {
        Ok(1)
    }

    fn log(&mut self, _: &str) {}

    fn capture(&mut self, name: &str, packet: &[u8]) {
        self.captured.borrow_mut().push((name.to_owned(), packet.to_vec()));
    }

    fn mirror(&mut self, interface: &str, frame: &[u8]) {
        self.mirrored.borrow_mut().push((interface.to_owned(), frame.to_vec()));
    }

    fn module(&mut self, _: &str) -> Result<Option<Module>, FileError> {
        Ok(None)
    }
}

/// The program of `process_packet`.
pub(super) fn compile(text: &str) -> Result<Compiled, Vec<Refusal>> {
    compile_for(text, true)
}

/// The same, for packets with a link header or without.
pub(super) fn compile_for(text: &str, has_link: bool) -> Result<Compiled, Vec<Refusal>> {
    compile_at(text, AttachType::Interface { has_link }, RESULTS)
}

/// The same, for a place with these results.
pub(super) fn compile_at(text: &str, place: AttachType, results: Results) -> Result<Compiled, Vec<Refusal>> {
    super::compile(&Script::new("test.lua", text), Logging::default(), results, place).map_err(|error| {
        match error {
            CompileError::Refused(refusals) => refusals,
            CompileError::Script(error) => panic!("{error}"),
        }
    })
}

fn outcome(text: &str, packet: &mut [u8]) -> Outcome {
    let program = compile(text).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let mut octets = packet.to_vec();
    let outcome = run(program.intermediate(), &mut Maps::default(), &mut octets, 0, || 7);
    packet.copy_from_slice(&octets);
    outcome
}

fn verdict(body: &str) -> i64 {
    let text = format!("function process_packet(p)\n{body}\nend");
    match outcome(&text, &mut [1, 2, 3, 4]) {
        Outcome::Verdict(verdict) => verdict,
        failed => panic!("{failed:?}"),
    }
}

#[test]
fn integers_are_those_of_lua() {
    for (expression, value) in [
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("7 // -2", -4),
        ("-7 % 3", 2),
        ("7 % -3", -2),
        ("-8 % 4", 0),
        ("1 << 64", 0),
        ("1 << 63", i64::MIN),
        ("-1 >> 1", i64::MAX),
        ("1 << -1", 0),
        ("8 >> 2", 2),
        ("8 << -2", 2),
        ("~5", -6),
        ("2 + 3 * 4 - 1", 13),
        ("(2 | 5) & 6 ~ 1", 7),
        ("math and 1 or 2", 1),
        ("#'abc'", 3),
    ] {
        // As it is, and with operands that the compiler does not know.
        assert_eq!(verdict(&format!("return {expression}")), value, "{expression}");
        let digits = regex_digits(expression);
        assert_eq!(verdict(&format!("local o = p:get()[0] return {digits}")), value, "{digits}");
    }
}

/// Each number as a sum with what is not known before.
fn regex_digits(expression: &str) -> String {
    let mut text = String::new();
    let mut digits = expression.chars().peekable();
    while let Some(c) = digits.next() {
        if !c.is_ascii_digit() {
            text.push(c);
            continue;
        }
        let mut number = c.to_string();
        while let Some(more) = digits.next_if(char::is_ascii_digit) {
            number.push(more);
        }
        text.push_str(&format!("({number} + o - 1)"));
    }
    text
}

#[test]
fn ways_part_and_meet() {
    assert_eq!(verdict("local b = p:get() if b[0] == 1 then return 5 else return 6 end"), 5);
    assert_eq!(
        verdict("local b, x = p:get() if b[1] > 1 and b[2] < 3 or b[3] ~= 4 then x = 1 end return x or 9"),
        9
    );
    assert_eq!(verdict("local x = p:get()[0] == 1 and 3 or 4 return x"), 3);
    assert_eq!(verdict("local x if p:get()[0] == 1 then x = 8 end if not x then return 1 end return x"), 8);
    assert_eq!(
        verdict("local x if p:get()[0] == 2 then x = 8 end if x == nil then return 1 end return x"),
        1
    );
    assert_eq!(verdict("local a, b = 1, 2 a, b = b, a return a * 10 + b"), 21);
}

#[test]
fn loops_end() {
    assert_eq!(verdict("local s = 0 for i = 0, 3 do s = s + p:get()[i] end return s"), 10);
    assert_eq!(verdict("local s = 0 for i = 3, 0, -1 do s = s * 10 + p:get()[i] end return s"), 4321);
    assert_eq!(
        verdict(
            "for i = 1, 3 do for j = 1, 3 do if p:get()[j] == 3 then return i * 10 + j end end end return 0"
        ),
        12
    );
    assert_eq!(
        verdict("local s = 0 for i = 1, 9 do if i > p:get()[3] then break end s = s + i end return s"),
        10
    );
    assert_eq!(verdict("local x for i = 1, 4 do if x then x = x + i else x = 100 end end return x"), 109);
    assert_eq!(
        verdict(
            "local i, s = 0, 0 while i < 4 do s = s + p:get()[i] if s > 5 then break end i = i + 1 end return s"
        ),
        6
    );
    assert_eq!(
        verdict(
            "local i, s = 0, 0 repeat local b = p:get()[i] i = i + 1 s = s + b until b == 3 or i == 4 return s"
        ),
        6
    );
    assert_eq!(verdict("local s = 5 for i = 3, 1 do s = 1 end return s"), 5);
    assert_eq!(
        verdict("local s = 0 for i = 9223372036854775806, 9223372036854775807 do s = s + 1 end return s"),
        2
    );
}

#[test]
fn the_packet_decides_when_loops_end() {
    for (body, value) in [
        ("local s = 0 for i = 1, p:get()[2] & 15 do s = s + i end return s", 6),
        ("local s = 0 for i = p:get()[2] & 15, 1, -2 do s = s * 10 + i end return s", 31),
        ("local s = 0 for i = 1, math.min(p:get()[3] * 1000, 5) do s = s + i end return s", 15),
        ("local s, n = 0, p:get()[1] if n > 5 then n = 5 end while s < n do s = s + 1 end return s", 2),
        ("local s = 0 for i = p:get()[2], p:get()[0] do s = s + i end return s", 0),
    ] {
        assert_eq!(verdict(body), value, "{body}");
    }
    let text = "function process_packet(p)
        for i = 0, #p:get() do p:get() end
        local n = p:get()[0] * 5 while n > 0 do n = n - 1 end
        return 0
    end";
    let refusals = compile(text).unwrap_err();
    let lines: Vec<_> = refusals.iter().map(|one| one.line).collect();
    assert_eq!(lines, [2, 3]);
    for (refusal, turns) in refusals.iter().zip([1024, 256]) {
        assert!(refusal.reason.contains(&format!("more than {turns} turns")), "{refusals:?}");
    }
}

/// The largest segment that a SYN asks for, found among its options.
#[test]
fn options_of_tcp_are_walked_through() {
    let text = "function process_packet(p)
        local ip = p:data(packet_eth):data(packet_ip6)
        local tcp = ip and ip:data(packet_tcp)
        if not tcp then return 0 end
        local options = tcp:options():get()
        local at = 0
        while at < #options do
            local kind = options[at]
            if kind == 0 then break end
            if kind == 1 then at = at + 1
            else
                local length = options[at + 1]
                if length < 2 then return 0 end
                if kind == 2 then return options[at + 2] << 8 | options[at + 3] end
                at = at + length
            end
        end
        return 1
    end";
    let packet = |options: &[u8]| {
        let mut frame = vec![0; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20 + options.len() as u8, 6, 64]);
        frame.extend([1; 32]);
        frame.extend([0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50 + (options.len() as u8 / 4) * 16, 2, 0, 0]);
        frame.extend([0; 4]);
        frame.extend(options);
        frame
    };
    for (options, value) in [
        (&[2, 4, 5, 0xa0][..], 1440),
        (&[1, 1, 4, 2, 2, 4, 5, 0xa0], 1440),
        (&[1; 40], 1),
        (&[3, 3, 7, 0, 2, 4, 5, 0xa0], 1),
        (&[5, 1, 1, 1], 0),
    ] {
        assert_eq!(outcome(text, &mut packet(options)), Outcome::Verdict(value), "{options:?}");
    }
    let beyond = outcome(text, &mut packet(&[1, 1, 1, 5]));
    assert_eq!(beyond, Outcome::Failed(Failure::OutsidePacket, 12));
    println!("{} instructions", compile(text).unwrap().assemble(&[], None).unwrap().code.len());
}

#[test]
fn what_is_refused_is_told_with_its_line() {
    let text = "function process_packet(p)
        local s = p:get()[0] / 2
        for k in next, {} do s = 1.5 end
        counted = counted + 1
        return s
    end";
    let refusals = compile(text).unwrap_err();
    let lines: Vec<_> = refusals.iter().map(|refusal| refusal.line).collect();
    assert_eq!(lines, [2, 3, 4]);
    assert!(refusals[2].reason.contains("'counted' lasts from packet to packet"), "{refusals:?}");
}

#[test]
fn functions_are_followed() {
    let text = "local function two(a, b) if a == 1 then return b end return a, b end
        function helper(x) local a, b = two(x, 5) return a + (b or 100) end
        function process_packet(p) return helper(p:get()[0]) * 1000 + helper(p:get()[1]) end";
    assert_eq!(outcome(text, &mut [1, 2]), Outcome::Verdict(105_007));
}

/// Each has variables of its own, and there is one place for them.
#[test]
fn functions_that_outlive_their_block_are_refused() {
    for text in [
        "function make(n)
            return function() return n end
        end
        function process_packet(p) local a, b = make(1), make(0) return a() end",
        "function process_packet(p)
            local first
            for turn = 1, 2 do
                local function get() return turn end
                first = first or get
            end
            return first()
        end",
    ] {
        let refusals = compile(text).unwrap_err();
        assert!(refusals[0].reason.contains("made for each packet"), "{refusals:?}");
    }
    let within = "function process_packet(p)
        local sum = 0
        local function add(n) sum = sum + n end
        for turn = 1, 3 do
            local function again() add(turn) end
            again()
        end
        return sum
    end";
    assert_eq!(outcome(within, &mut [0; 4]), Outcome::Verdict(6));
}

#[test]
fn parts_of_the_packet_are_read_and_written() {
    let text = "function process_packet(p)
        local mac = p:raw(0, 6)
        mac:set(0xFF)
        mac:raw(1, 1):set(0)
        local b = mac:get()
        b[2] = b[1] + 3
        return b[0] + #b
    end";
    let mut packet = [9; 8];
    assert_eq!(outcome(text, &mut packet), Outcome::Verdict(0xff + 6));
    assert_eq!(packet, [0xff, 0, 3, 0xff, 0xff, 0xff, 9, 9]);
    let outside = "function process_packet(p)\nlocal a = p:raw(2, 4)\nreturn a:get()[3]\nend";
    assert_eq!(outcome(outside, &mut [0; 5]), Outcome::Failed(Failure::OutsidePacket, 2));
    assert_eq!(outcome(outside, &mut [3; 6]), Outcome::Verdict(3));
    let outside = "function process_packet(p)\nreturn p:get()[-1]\nend";
    assert_eq!(outcome(outside, &mut [0; 5]), Outcome::Failed(Failure::OutsidePacket, 2));
}

#[test]
fn flows_are_told_apart() {
    let text = "function process_packet(p)
        local flow = p:flow()
        if not flow then return 99 end
        flow.packets = flow.packets + 1
        if flow.packets == 3 then flow:forget() end
        return flow.packets * 10 + (flow:is_reply() and 1 or 0)
    end";
    let program = compile(text).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    assert_eq!(program.maps()[0].measures(), (MapKind::LruHash, 40, 24, 65_536));
    let packet = |from: (u8, u8), to: (u8, u8)| {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, from.0, 10, 0, 0, to.0]);
        frame.extend([0, from.1, 0, to.1, 0, 8, 0, 0]);
        frame
    };
    let mut maps = Maps::default();
    let mut run = |mut frame: Vec<u8>| run(program.intermediate(), &mut maps, &mut frame, 0, || 0);
    let [one, other] = [(1, 9), (2, 7)];
    assert_eq!(run(packet(other, one)), Outcome::Verdict(10));
    assert_eq!(run(packet(one, other)), Outcome::Verdict(21));
    assert_eq!(run(packet((1, 7), (2, 9))), Outcome::Verdict(10));
    // The third is forgotten; then the other end is the first.
    assert_eq!(run(packet(other, one)), Outcome::Verdict(0));
    assert_eq!(run(packet(one, other)), Outcome::Verdict(10));
    assert_eq!(run(packet(other, one)), Outcome::Verdict(21));
    assert_eq!(run(vec![0; 20]), Outcome::Verdict(99));
}

#[test]
fn packets_are_redirected_if_they_are_stolen() {
    let text = "
        local WAYS = { [2] = 'eth0', [3] = 'eth1' }
        function process_packet(p)
          local verdict = NF_ACCEPT
          if p:get()[0] > 1 then verdict = p:redirect(WAYS[p:get()[0]]) end
          if p:get()[1] == 0 then return NF_DROP end
          return verdict
        end";
    for (first, second, wanted) in [
        (1, 1, Outcome::Verdict(1)),
        (2, 1, Outcome::Redirected(1)),
        (3, 1, Outcome::Redirected(2)),
        (3, 0, Outcome::Verdict(0)),
        (4, 1, Outcome::Failed(Failure::NilValue, 5)),
    ] {
        assert_eq!(outcome(text, &mut [first, second]), wanted);
    }
    let refused = compile("function process_packet(p)\nreturn p:redirect('eth7')\nend").unwrap_err();
    assert_eq!(
        (refused[0].line, &*refused[0].reason),
        (2, "there is no interface eth7: there are eth0, eth1")
    );
}

/// A protocol with strings: one of three bytes, and one with its length before it.
const NAMED: &str = "
    register_dynamic_protbuf {
      name = 'packet_named',
      protocol_fields = { { 'tag', 0, 24, 'text' }, { 'size', 24, 8, 'int' }, { 'name', 32, 0, 'text' } },
      get_field_changes = { field = 'size', unit = 8, grows = 'name' },
    }
    local KNOWN = { readme = 5, ['a-string-of-more-than-16'] = 6, [''] = 7 }
    ";

#[test]
fn strings_of_the_packet_are_compared() {
    let text = format!(
        "{NAMED} function process_packet(p)
           local named = p:data(packet_named)
           if not named then return 0 end
           local name = named:name():get():lower()
           if named:tag():get() ~= 'Get' then return 1 end
           if name == 'readme!' then return 2 end
           return KNOWN[name] or 100 + #name
         end"
    );
    for (packet, wanted) in [
        ("Get\x06README", 5),
        ("get\x06README", 1),
        ("Get\x07READme!", 2),
        ("Get\x07READme1", 107),
        ("Get\x18A-string-of-more-than-16", 6),
        ("Get\x18A-string-of-more-than-17", 124),
        ("Get\x00", 7),
        ("Get\x05@[`{\u{7f}", 105),
        ("Get\x05abc", 0),
    ] {
        let mut packet = packet.as_bytes().to_vec();
        assert_eq!(outcome(&text, &mut packet), Outcome::Verdict(wanted), "{packet:?}");
    }
}

#[test]
fn a_string_of_the_packet_is_what_it_was_or_refused() {
    let refused = |body: &str| {
        let text = format!(
            "{NAMED} function process_packet(p)\nlocal named = p:data(packet_named)\n
             if not named then return 0 end\nlocal tag = named:tag():get()\n{body}\nend"
        );
        compile(&text).err().map_or(String::new(), |refusals| refusals[0].reason.clone())
    };
    assert_eq!(refused("if #p > 9 then p:get()[9] = 1 return 1 end return tag == 'abc' and 1 or 0"), "");
    let written = "a string of the packet is used after something was written to the packet";
    assert_eq!(refused("if #p > 9 then p:get()[9] = 1 end return tag == 'abc' and 1 or 0"), written);
    assert_eq!(refused("local name = named:name():get() p:get()[0] = 1 return KNOWN[name] or 0"), written);
    assert_eq!(refused("p:get()[0] = 1 return tag == 'abcd' and 1 or 0"), "", "its length says it");
    let other = refused("return tag == named:name():get() and 1 or 0");
    assert_eq!(other, "a string of the packet is compared with another");
}

#[test]
fn packets_grow_behind_a_header_that_is_known_to_be_there() {
    let refused = |body: &str| {
        let text = format!(
            "function process_packet(p)\nlocal ip = p:data(packet_eth):data(packet_ip6)\n
             if not ip then return 0 end\nlocal all = p:get()\n{body}\nreturn #p\nend"
        );
        compile(&text).err().map_or(String::new(), |refusals| refusals[0].reason.clone())
    };
    assert_eq!(refused("if #p > 99 then p:grow(54, 8) end p:get()[54] = #p & 255"), "");
    assert_eq!(refused("p:shrink(54, 8) if not p:data(packet_eth) then return 1 end"), "");
    let gone = "from before the packet grew or shrank";
    assert_eq!(refused("if #p > 99 then p:grow(54, 8) end ip:hop_limit():set(1)"), format!("a view {gone}"));
    assert_eq!(refused("p:grow(54, 8) all[54] = 1"), format!("a byte array {gone}"));
    let behind = "at 34 behind an IPv4 header, or 54 behind an IPv6 header, of which a variable has the view";
    for body in
        ["p:grow(62, 8)", "p:grow(34, 8)", "p:grow(54, 8) p:grow(54, 8)", "p:get()[20] = 1 p:grow(54, 8)"]
    {
        assert!(refused(body).ends_with(behind), "{body}");
    }
    for body in ["p:grow(54, 7)", "p:grow(54, 66)", "p:shrink(54, 0)"] {
        assert!(refused(body).contains("an even number from 2 to 64"), "{body}");
    }
    assert!(refused("p:grow(54, #p)").contains("numbers that are known"));
}

#[test]
fn flows_with_many_names_leave_room_for_values() {
    let names: Vec<_> = (0..16).map(|number| format!("flow.n{number}")).collect();
    let sum = names.join(" + ");
    let set: String = names.iter().map(|name| format!("{name} = p:get()[1]\n")).collect();
    let locals: String = (0..40).map(|n| format!("local v{n} = p:get()[{n}]\n")).collect();
    let all: Vec<_> = (0..40).map(|n| format!("v{n}")).collect();
    let text = format!(
        "function process_packet(p)\nlocal flow = p:flow()\nif not flow then return 0 end\n{set}{locals}
         if p:get()[50] == 1 then return {} end\nreturn {sum} + {}\nend",
        all.join(" - "),
        all.join(" * ")
    );
    match compile(&text) {
        Ok(compiled) if super::differential::may_load() => {
            drop(super::differential::InKernel::load(&compiled).unwrap());
        }
        Ok(_) => {}
        Err(refusals) => assert!(refusals[0].reason.contains("too many values"), "{refusals:?}"),
    }
}

/// Refusals of a function of an example; none if it is compiled.
fn example(file: &str, function: &str) -> Vec<Refusal> {
    let path = format!("{}/../../examples/scripts/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut script = Script::new(file, &std::fs::read_to_string(path).unwrap());
    script.function = function.to_owned();
    match super::compile(&script, NoHost, RESULTS, AttachType::Interface { has_link: true }) {
        Ok(compiled) => {
            println!(
                "{file} {function}: {} instructions",
                compiled.assemble(&[0; 8], None).unwrap().code.len()
            );
            Vec::new()
        }
        Err(CompileError::Refused(refusals)) => refusals,
        Err(CompileError::Script(error)) => panic!("{error}"),
    }
}

#[test]
fn examples_are_compiled() {
    for (file, function) in [
        ("seed/listing_4_1.lua", "process_packet_snat"),
        ("seed/listing_4_1.lua", "process_packet_dnat"),
        ("nat.lua", "snat"),
        ("nat.lua", "dnat"),
        ("portknock.lua", "process_packet"),
        ("synflood.lua", "process_packet"),
        ("dns_log.lua", "process_packet"),
        ("dns_amplifiers.lua", "process_packet"),
    ] {
        assert_eq!(example(file, function), [], "{file} {function}");
    }
    let lines: Vec<_> = example("dns_blocklist.lua", "process_packet").iter().map(|one| one.line).collect();
    // What is asked over UDP is compiled, and all that is refused reads a stream.
    assert!(!lines.is_empty() && lines.iter().all(|line| (16..=28).contains(line)), "{lines:?}");
}

/// What both tiers make of a packet: the verdict, and the frame.
pub(super) fn both(text: &str, frame: &[u8]) -> [(Option<i64>, Vec<u8>); 2] {
    let program = compile(text).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    let mut octets = frame.to_vec();
    let compiled = match run(program.intermediate(), &mut Maps::default(), &mut octets, 0, || 7) {
        Outcome::Verdict(verdict) => (Some(verdict), octets),
        _ => (None, octets),
    };
    let mut machine = Machine::new(NoHost, Limits::default());
    let rule = machine.load(Script::new("test.lua", text)).expect("it loads");
    let mut packet = Packet::of_frame(frame.to_vec(), TransportChecksum::Complete);
    let (verdict, error) = machine.run(rule, &mut packet);
    [compiled, (error.is_none().then_some(verdict.value()), packet.bytes().to_vec())]
}

#[test]
fn a_call_without_a_result_is_no_argument() {
    let text = |body: &str| {
        format!(
            "local function none(k) if k == 99 then return 4, 5 end end
             local function nothing(k) end
             function process_packet(p) local k = p:get()[0] {body} end"
        )
    };
    for (body, verdict) in [
        ("return math.max(1, nothing(k))", Some(1)),
        ("local a, b = none(k) return b == nil and NF_ACCEPT or NF_DROP", Some(1)),
        ("return math.max(1, (none(k)))", None),
    ] {
        let [compiled, lua] = both(&text(body), &[7; 60]);
        assert_eq!((compiled.0, lua.0), (verdict, verdict), "{body}");
    }
    for body in ["return math.max(1, none(k))", "nf.log(none(k)) return NF_ACCEPT"] {
        let refusals = compile(&text(body)).expect_err(body);
        assert!(refusals[0].reason.contains("in brackets it is one"), "{refusals:?}");
    }
}

#[test]
fn fields_that_lua_would_not_log_are_left_to_lua() {
    let many: String = (0..17).map(|number| format!("f{number} = 1,")).collect();
    let far: String = (0..9).map(|number| format!("f{number} = p:get()[{number}],")).collect();
    for (fields, reason) in [
        ("1, 2", "a table is made for each packet"),
        ("['a'] = 1", "a table is made for each packet"),
        ("a = 1, a = 2", "the field a of a log is named twice"),
        ("t = {}", "a table is made for each packet"),
        (&*many, "16 fields at most"),
        (&*far, "more than 8 numbers"),
    ] {
        let text = format!("function process_packet(p) nf.log('x', {{ {fields} }}) return NF_ACCEPT end");
        let refusals = compile(&text).expect_err(fields);
        assert!(refusals[0].reason.contains(reason), "{fields}: {refusals:?}");
    }
    assert!(compile("function process_packet(p) nf.log({ a = #p }, 1) return NF_ACCEPT end").is_err());
}

#[test]
fn a_checksum_of_zeros_is_0xffff() {
    let text = "function process_packet(p)
        p:data(packet_eth):data(packet_ip):data(packet_icmp):type():set(0)
        return NF_ACCEPT
    end";
    for (payload, wanted) in [
        // Without data; of zeros; with an identifier; of a sum of 0xffff.
        (vec![0; 4], 0xffff_u16),
        (vec![0; 14], 0xffff),
        (vec![0xff, 0xff, 0, 0], 0),
        (vec![0, 0, 0, 0, 0x12, 0x34, 0xed, 0xcb], 0xffff),
        (vec![0, 1, 0, 1, 9], !0x0902),
    ] {
        let icmp = [&[8, 0, 0, 0][..], &payload].concat();
        let mut frame = [0; 12].to_vec();
        frame.extend([
            8,
            0,
            0x45,
            0,
            0,
            20 + icmp.len() as u8,
            0,
            0,
            0,
            0,
            64,
            1,
            0,
            0,
            192,
            0,
            2,
            1,
            192,
            0,
            2,
            2,
        ]);
        frame.extend(icmp);
        let layout = Layout::of_frame(&frame).expect("IPv4");
        checksum::complete(&mut frame, &layout);
        let [compiled, lua] = both(text, &frame);
        assert_eq!(compiled, lua, "{payload:?}");
        assert_eq!(compiled.0, Some(1));
        assert_eq!(u16::from_be_bytes([lua.1[36], lua.1[37]]), wanted, "{payload:?}");
        assert!(checksum::are_right(&lua.1), "{payload:?}");
    }
}

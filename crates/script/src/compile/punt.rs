//! Scripts of which the kernel runs a part: what it decides is what Lua would have decided, and what it punts is as it
//! came in and becomes what it would have become had Lua seen all packets.

use wire::checksum::TransportChecksum;

use super::differential::{InKernel, can_be_tested, may_load};
use super::generate::{self, Random};
use super::interpret::{Maps, Outcome, run};
use super::tests::RESULTS;
use super::{AttachType, CompileError, Compiled, Refusal, Results, compile};
use crate::host::NoHost;
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script, Verdict};

pub(super) const PUNTING: Results = Results { punt_mark: Some(0x51df_0001), ..RESULTS };

fn compile_both(text: &str) -> Result<Compiled, Vec<Refusal>> {
    compile_for(text, true)
}

/// The same, for packets with a link header or without.
fn compile_for(text: &str, has_link: bool) -> Result<Compiled, Vec<Refusal>> {
    let place = AttachType::Interface { has_link };
    compile(&Script::new("test.lua", text), NoHost, PUNTING, place).map_err(|error| match error {
        CompileError::Refused(refusals) => refusals,
        CompileError::Script(error) => panic!("{error}"),
    })
}

/// Where packets are punted by a function, whose body this is.
fn punts(before: &str, body: &str) -> Vec<(u32, String)> {
    let text =
        format!("{before}\nfunction process_packet(p)\nif #p < 5 then return NF_DROP end\n{body}\nend");
    let compiled = compile_both(&text).unwrap_or_else(|refusals| panic!("{text}\n{refusals:#?}"));
    compiled.punts().iter().map(|one| (one.line, one.reason.clone())).collect()
}

#[test]
fn what_is_not_compiled_is_handed_over_and_the_rest_runs() {
    let text = "function process_packet(p)
  local first = p:get()[0]
  if first == 1 then return NF_DROP end
  if first == 2 then
    if #{ first } == 2 then return NF_DROP end
  end
  return NF_ACCEPT
end";
    let compiled = compile_both(text).unwrap();
    assert_eq!(compiled.punts().iter().map(|one| one.line).collect::<Vec<_>>(), [5]);
    for (packet, outcome) in
        [([1, 9], Outcome::Verdict(0)), ([2, 9], Outcome::Punted), ([3, 9], Outcome::Verdict(1))]
    {
        let mut packet = packet.to_vec();
        let got = run(compiled.intermediate(), &mut Maps::default(), &mut packet, 0, || 0);
        assert_eq!(got, outcome, "{packet:?}");
    }
}

#[test]
fn a_record_that_is_set_is_left_to_lua_as_another_entry_is() {
    for value in ["'int'", "{ 'int', 'int' }"] {
        let values = if value.contains('{') { "2, 3" } else { "2" };
        let table = format!("local t = nf.table {{ name = 't', key = 'int', value = {value} }}");
        let body = format!("if #p > 9 and t:set(1, {values}) then return NF_DROP end return NF_ACCEPT");
        let punts = punts(&table, &body);
        assert!(punts.len() == 1 && punts[0].0 == 4 && punts[0].1.starts_with("'t'"), "{punts:?}");
    }
}

#[test]
fn what_lasts_or_has_an_effect_is_left_to_lua() {
    for (before, body, reason) in [
        ("local seen = nf.counter 'seen'", "seen:add() return NF_DROP", "'seen': tables"),
        ("local near = nf.prefixes { name = 'near' }", "near:find('::1') return NF_DROP", "'near': tables"),
        ("", "p:flow() return NF_DROP", "flows: tables"),
        ("", "nf.log(1) return NF_DROP", "'nf.log'"),
        ("", "return nf.get_random() & 1", "'nf.get_random'"),
        ("last = 1", "last = #p return NF_DROP", "'last' lasts"),
        ("local last = 1", "last = #p return NF_DROP", "'last' lasts"),
        (
            "local function made()\nlocal n\nreturn function(x)\nn = x\nend\nend\nlocal set = made()",
            "set(#p) return NF_DROP",
            "'n' lasts",
        ),
        ("last = 1 function other() last = 2 end", "return last", "'last' lasts"),
        ("", "for i = 1, #p do local x = i end return NF_DROP", "1024 turns"),
        ("", "local x = 1 if p:get()[0] == 1 then x = {} end return x", "a table is made"),
        ("", "local x = 1 if p:get()[0] == 1 then x = p end return x + 1", "an operand"),
        (
            "local T = { 7 } function other(x) x[1] = 8 end",
            "return T[#p] or 1",
            "the table may change: see line 1",
        ),
        ("local T = { 7 } function other() table.insert(T, 1) end", "return #T", "the table may change"),
        ("local T = { 7 } local set = rawset", "return #T", "the table may change"),
        ("T = 7 local G = _G", "return T", "'T' may change"),
        ("local T = { 7 } local R = require", "return #T", "the table may change"),
        (
            "local T = { 7 } require = function() end local m = require 'm'",
            "return #T",
            "the table may change",
        ),
    ] {
        let told = punts(before, body);
        assert!(told.iter().any(|(_, told)| told.contains(reason)), "{before} {body}: {told:#?}");
    }
}

#[test]
fn what_is_fixed_stays_in_the_kernel() {
    for (before, body) in [
        ("local T = { 7, 8 } table.insert(T, 9) local L = setmetatable({}, {})", "return T[#p] or #T"),
        ("LIMIT = 7 local test = require 'test'", "if #p > LIMIT then return NF_DROP end return NF_ACCEPT"),
        ("local T = { 7 } function test_it() local t = {} t[1] = 2 end", "return T[#p] or 1"),
        ("", "local x = nf.get_time() if x > 5 then x = 2 end return x & 1"),
        ("", "p:raw(0, 1):set(3) return NF_ACCEPT"),
        ("", "local function one() return 1 end return one()"),
        (
            "",
            "local x local function set() x = 1 end if #p > 9 then set() end for i = 1, 2 do x = i end return x or 0",
        ),
    ] {
        assert_eq!(punts(before, body), []);
    }
}

#[test]
fn a_packet_that_was_changed_is_not_punted() {
    let write = "function process_packet(p)\n  if #p < 5 then return NF_DROP end\n  p:raw(0, 1):set(3)\n  nf.log(1)\n  return NF_ACCEPT\nend";
    let refusals = compile_both(write).unwrap_err();
    assert_eq!((refusals.len(), refusals[0].line), (1, 4));
    assert!(refusals[0].reason.contains("line 3 has changed the packet"), "{refusals:?}");
    // On another way that does not matter.
    let apart = write
        .replace("  nf.log", "  if #p > 0 then return NF_DROP end\n  nf.log")
        .replace("  p:raw", "  if #p > 20 then p:raw");
    let apart = apart.replace("set(3)", "set(3) return NF_ACCEPT end");
    assert_eq!(compile_both(&apart).unwrap().punts(), []);
}

#[test]
fn what_is_always_punted_is_no_program() {
    let text = "function process_packet(p)\n  nf.log(#p)\n  return NF_ACCEPT\nend";
    assert_eq!(compile_both(text).unwrap_err()[0].line, 2);
}

/// A random script with something that Lua alone has, at a random place between its statements.
fn script(random: &mut Random) -> String {
    let text = generate::script(random);
    let mut lines: Vec<&str> = text.lines().collect();
    let begin =
        lines.iter().position(|line| line.starts_with("function process_packet")).expect("a function");
    // Between statements of the function: those that are not within others.
    let outer = |line: &str| line.starts_with("  ") && !line.starts_with("   ");
    // Mostly something that one packet leaves and another finds.
    let alone = random.pick(&[
        "  if a > b and #tostring(p:get()) > 70 then return NF_DROP end",
        "  if p:get()[20] > 1 then a = a + #{ a, b } end",
        "  if p:get()[23] == 17 then last = #p return b & 1 end if last and last > 70 then return NF_DROP end",
        "  if p:get()[23] == 17 then PORTS[1] = 99 end if PORTS[1] > 60 then return NF_DROP end",
        "  if p:get()[20] == 6 then HOME = {} end if not HOME[4] then return NF_DROP end",
        "  if p:get()[20] == 17 then table.insert(PORTS, 9) end if #PORTS > 4 then a = a + #PORTS end",
        "  if p:get()[20] == 6 then count:add() end if tostring(count:get()) > \"2\" then return NF_DROP end",
        "  if p:get()[20] == 6 then near:add(\"::/0\") end if near:find(\"::5\") then return NF_DROP end",
    ]);
    let mut places: Vec<usize> = (begin + 1..lines.len()).filter(|at| outer(lines[*at])).collect();
    places.retain(|at| !lines[*at].starts_with("  end") && !lines[*at].starts_with("  else"));
    lines.insert(random.pick(&places), alone);
    lines.join("\n")
}

#[test]
fn both_tiers_together_do_what_lua_does_alone() {
    let in_kernel = may_load();
    let programs = generate::cases(120);
    let mut random = Random::new(0x51df_0001);
    let (mut scripts, mut decided, mut punted) = (0, 0, 0);
    for number in 0..40 * programs {
        if scripts == programs {
            break;
        }
        let text = script(&mut random);
        // Every third one is for devices without a link header.
        let has_link = number % 3 != 0;
        let Ok(compiled) = compile_for(&text, has_link) else { continue };
        if compiled.punts().is_empty() {
            continue;
        }
        let loaded = in_kernel
            .then(|| InKernel::load(&compiled).unwrap_or_else(|error| panic!("{number}: {error}\n{text}")));
        // One has all packets, the other those that are punted: it must not miss the rest.
        let [mut machine, mut rest] = [(); 2].map(|()| Machine::new(NoHost, Limits::default()));
        let [rule, rule_of_rest] =
            [&mut machine, &mut rest].map(|machine| machine.load(Script::new("test.lua", &text)).unwrap());
        assert!(compiled.maps().is_empty(), "{text}");
        scripts += 1;
        for _ in 0..256 {
            let frame = generate::packet(&mut random);
            let given = || match has_link {
                true => Packet::of_frame(frame.clone(), TransportChecksum::Complete),
                false => Packet::of_ip(&frame[14..], TransportChecksum::Complete),
            };
            let mut packet = given();
            let (frame, real) = (packet.bytes().to_vec(), packet.real().to_vec());
            let (verdict, error) = machine.run(rule, &mut packet);
            let expected = match (verdict, &error) {
                (_, Some(_)) => RESULTS.error,
                (Verdict::Stolen, None) if packet.redirected().is_some() => bpf::verdict::REDIRECT,
                (Verdict::Drop | Verdict::Stolen, None) => RESULTS.drop,
                _ => RESULTS.pass,
            };
            let mut changed = frame.clone();
            let outcome = run(compiled.intermediate(), &mut Maps::default(), &mut changed, 0, || 0);
            let result = match outcome {
                Outcome::Verdict(0 | 2) => RESULTS.drop,
                Outcome::Verdict(1 | 3 | 4 | 0xffff_ffff) | Outcome::Punted => RESULTS.pass,
                Outcome::Redirected(_) => bpf::verdict::REDIRECT,
                Outcome::Verdict(_) | Outcome::Failed(..) => RESULTS.error,
            };
            let is_over = outcome == Outcome::Punted;
            let told = || format!("{number}: {error:?}\n{}\n{text}", hex::encode(&frame));
            if is_over {
                let mut handed = given();
                let (got, failed) = rest.run(rule_of_rest, &mut handed);
                let same =
                    (got, failed.is_some(), handed.bytes()) == (verdict, error.is_some(), packet.bytes());
                assert!(same, "Lua has missed something: {got:?}, not {verdict:?}: {}", told());
            }
            let (expected, bytes) =
                if is_over { (RESULTS.pass, &frame[..]) } else { (expected, packet.bytes()) };
            assert_eq!((result, &changed[..]), (expected, bytes), "the intermediate form: {}", told());
            if let Some(loaded) = loaded.as_ref().filter(|_| can_be_tested(&real)) {
                let before = loaded.punted();
                let got =
                    loaded.program.test_run(&real).unwrap_or_else(|error| panic!("{error}: {}", told()));
                let bytes = &bytes[bytes.len() - real.len()..];
                assert_eq!((got.0, &got.1[..]), (expected, bytes), "the kernel: {}", told());
                assert_eq!(loaded.punted() - before, u64::from(is_over), "the kernel: {}", told());
            }
            *(if is_over { &mut punted } else { &mut decided }) += 1;
        }
    }
    println!("{scripts} scripts, {decided} packets decided, {punted} punted");
    assert!(scripts == programs && decided > punted / 10 && punted > decided / 100);
}

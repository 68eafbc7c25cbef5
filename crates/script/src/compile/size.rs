//! How long programs become: what is long takes the verifier time, and a jump reaches only so far.

use super::account::{Accounts, Log, Mirrors};
use super::differential::{InKernel, may_load};
use super::interpret::{Maps, Outcome, run};
use super::tests::RESULTS;
use super::{AttachType, compile};
use crate::host::NoHost;
use crate::packet::Packet;
use crate::vm::{Limits, Machine, Script};
use wire::checksum::TransportChecksum;

/// Instructions of a function of an example, with all that it counts in.
fn instructions(file: &str, function: &str, has_link: bool) -> usize {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scripts").join(file);
    let mut script =
        Script::new(&path.to_string_lossy(), &std::fs::read_to_string(&path).expect("it is there"));
    function.clone_into(&mut script.function);
    let compiled =
        compile(&script, NoHost, RESULTS, AttachType::Interface { has_link }).expect("it is compiled");
    let accounts = Accounts {
        mirrors: Mirrors::Sent(0),
        counters: 0,
        fault: 0,
        log: Some(Log { ring: 0, program: 0, scratch: 0, followed: 0 }),
    };
    compiled.assemble(&vec![0; compiled.maps().len()], Some(accounts)).expect("it fits").code.len()
}

#[test]
fn address_translation_takes_less_than_3000_instructions() {
    for function in ["snat", "dnat"] {
        for has_link in [true, false] {
            let count = instructions("nat.lua", function, has_link);
            println!("{function}, link header: {has_link}: {count} instructions");
            assert!(count < 3000, "{count}");
        }
    }
}

/// Instructions of the intermediate form for `process_packet` with this body.
fn of_body(body: &str) -> usize {
    let text = format!("function process_packet(p)\n{body}\nend");
    let program = super::tests::compile(&text).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
    program.intermediate().blocks.iter().map(|block| block.code.len()).sum()
}

#[test]
fn a_long_loop_is_compiled_once() {
    let sum = |turns: u32| {
        of_body(&format!(
            "local all, a = p:get(), 0
             for i = 0, {turns} do
               if i >= #all then break end
               if all[i] == 9 then a = a + 2 elseif all[i] > a then a = all[i] end
             end
             return a & 1"
        ))
    };
    let [few, many] = [sum(50), sum(300)];
    println!("50 turns: {few}, 300 turns: {many}");
    assert!(many <= few + 2 && many < 80, "{few} {many}");
}

/// Loops that are long enough to be compiled once, and what they do is what Lua does, in the kernel too.
#[test]
fn long_loops_do_what_lua_does() {
    let (may_load, mut rolled) = (may_load(), 0);
    for body in [
        // What a turn changes, among it what is nil at first, and what it does not.
        "local first, last, n, fixed = nil, p:get()[14], 0, p:get()[15]
         for i = 16, 420 do
           if i >= #p:get() then break end
           local byte = p:get()[i]
           if byte == fixed then first = first or i last = byte n = n + 1 elseif byte > last then n = n ~ i end
         end
         return ((first or 7) + last + n) & 1",
        // One within another, of which both are left early.
        "local n, all = 0, p:get()
         for i = 14, 14 + (all[14] & 31) do
           for j = i, i + (all[15] & 15) do
             if all[j % 64] == 3 then n = n + j break end
             if n > 999 then return NF_DROP end
             n = n + (all[(i + j) % 64] ~ j)
           end
         end
         return n & 1",
        // The packet is written to.
        "local all = p:get()
         for i = 40, 20, -1 do
           if i < #all and all[i] ~= 7 then all[i] = (all[i] + all[i - 1]) & 255 end
         end
         return all[20] & 1",
        // What is swapped, and what is true or not.
        "local a, b, odd, all = p:get()[14], p:get()[15], false, p:get()
         local i = 16
         while i < math.min(#all, 200) do
           a, b = b, a + all[i]
           odd = not odd
           if odd and all[i] == 9 then i = i + 3 else i = i + 1 end
           if b > 100000 then return 1 end
         end
         return (a ~ b) & 1",
        // It fails in the middle.
        "local n = 0 for i = 14, 800 do n = n + p:get()[i] if n == 77 then n = n // (n - 77) end end return n & 1",
    ] {
        let text = format!("function process_packet(p)\n{body}\nend");
        let compiled = super::tests::compile(&text).unwrap_or_else(|refusals| panic!("{refusals:#?}"));
        rolled += usize::from(!compiled.intermediate().counters.is_empty());
        let loaded = may_load.then(|| InKernel::load(&compiled).unwrap_or_else(|error| panic!("{error}\n{body}")));
        let mut machine = Machine::new(NoHost, Limits::default());
        let rule = machine.load(Script::new("test.lua", &text)).expect("it loads");
        for length in [64, 100, 280] {
            for seed in 0..6_usize {
                // An IP version of none: the kernel wants no more of it than a link header.
                let octet = |place: usize| (place * (seed * 37 + 11) % 253 % (40 * seed + 9)) as u8;
                let frame: Vec<u8> = (0..length).map(|at| if at == 12 { 0x99 } else { octet(at) }).collect();
                let mut packet = Packet::of_frame(frame.clone(), TransportChecksum::Complete);
                let (verdict, error) = machine.run(rule, &mut packet);
                let lua = (error.is_none().then_some(verdict.value()), packet.bytes().to_vec());
                let mut octets = frame.clone();
                let outcome = run(compiled.intermediate(), &mut Maps::default(), &mut octets, 0, || 7);
                let interpreted = match outcome {
                    Outcome::Verdict(verdict) => (Some(verdict), octets),
                    _ => (None, lua.1.clone()),
                };
                assert_eq!(interpreted, lua, "{length} {seed} {body}");
                let Some(loaded) = &loaded else { continue };
                let result = match lua.0 {
                    Some(0) => RESULTS.drop,
                    Some(1) => RESULTS.pass,
                    _ => RESULTS.error,
                };
                let (got, octets) = loaded.program.test_run(&frame).expect("it runs");
                assert_eq!(got, result, "{length} {seed} {body}");
                if lua.0.is_some() {
                    assert_eq!(octets, lua.1, "{length} {seed} {body}");
                }
            }
        }
    }
    assert!(rolled >= 2, "{rolled} are compiled once");
}

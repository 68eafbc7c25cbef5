//! Packets that a script has changed when it fails. Where what it fails at is to pass, Lua gives it back as it came, and a
//! program cannot: it has changed the packet in its place.

use std::collections::HashMap;

use super::ir::{End, Operand, Program, Value};
use super::matching::UNMATCHED;
use super::refusal::Refusal;
use crate::vm::Verdict;

/// Where a program may fail at a packet that it has changed.
pub(super) fn refusals(program: &Program) -> Vec<Refusal> {
    let given = arguments(program);
    let changed = changed(program);
    let mut refusals = Vec::new();
    for (number, block) in program.blocks.iter().enumerate() {
        let (Some(end), Some(before)) = (&block.end, changed[number]) else { continue };
        let failed = match end {
            End::Fail(_, line) => Some((*line, "it may fail here")),
            End::Return(verdict) if !is_verdict(*verdict, &given) => {
                Some((before, "what it returns may be no verdict"))
            }
            _ => None,
        };
        refusals.extend(failed.map(|(line, what)| Refusal {
            line,
            reason: format!(
                "{what}, after line {before} has changed the packet: what it fails at is to pass (failure = \"accept\"), \
                 and only Lua gives it back as it came"
            ),
        }));
    }
    refusals.sort();
    refusals.dedup();
    refusals
}

/// The line of the first change before the end of each block.
fn changed(program: &Program) -> Vec<Option<u32>> {
    let mut changed: Vec<Option<u32>> = vec![None; program.blocks.len()];
    let mut open = true;
    // Once more for each loop that is within another: what leads to a block comes before it, but for a turn's end.
    while std::mem::take(&mut open) {
        for (number, block) in program.blocks.iter().enumerate() {
            let mut own = block.code.iter().filter(|instruction| instruction.action.changes_packet());
            let first = own.next().map(|instruction| instruction.line);
            let Some(before) = changed[number].or(first) else { continue };
            changed[number] = Some(before);
            for target in block.end.iter().flat_map(End::targets) {
                open |= target.block.0 <= number && changed[target.block.0].is_none();
                changed[target.block.0].get_or_insert(before);
            }
        }
    }
    changed
}

/// What the parameters of blocks are given.
fn arguments(program: &Program) -> HashMap<Value, Vec<Operand>> {
    let mut given: HashMap<Value, Vec<Operand>> = HashMap::new();
    for target in program.blocks.iter().filter_map(|block| block.end.as_ref()).flat_map(End::targets) {
        for (parameter, argument) in program.blocks[target.block.0].parameters.iter().zip(&target.arguments) {
            given.entry(*parameter).or_default().push(*argument);
        }
    }
    given
}

/// Whether a number is a verdict for sure.
fn is_verdict(number: Operand, given: &HashMap<Value, Vec<Operand>>) -> bool {
    let mut open = vec![number];
    let mut seen = Vec::new();
    while let Some(operand) = open.pop() {
        match operand {
            Operand::Constant(number) => {
                let known = Verdict::ALL.iter().any(|verdict| verdict.value() == number);
                if !known && number != UNMATCHED.cast_signed() {
                    return false;
                }
            }
            Operand::Value(value) if seen.contains(&value) => {}
            Operand::Value(value) => {
                let Some(arguments) = given.get(&value) else { return false };
                seen.push(value);
                open.extend(arguments);
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::super::tests::{RESULTS, compile_at};
    use super::super::{AttachType, Results};

    #[test]
    fn what_may_fail_half_done_is_left_to_lua_where_failures_pass() {
        let accept = Results { error: RESULTS.pass, ..RESULTS };
        for (body, refused) in [
            ("ip:hop_limit():set(9) return NF_ACCEPT", None),
            ("ip:hop_limit():set(#p) return NF_ACCEPT", None),
            ("if #p < 70 then return p:get()[200] end ip:hop_limit():set(9) return NF_ACCEPT", None),
            ("local v = NF_DROP if #p > 70 then ip:hop_limit():set(9) v = XT_CONTINUE end return v", None),
            ("ip:hop_limit():set(9)\nip:tclass():set(#p)\nreturn NF_ACCEPT", Some(5)),
            ("ip:hop_limit():set(9)\nreturn p:get()[200] & 0", Some(5)),
            ("ip:hop_limit():set(9)\nreturn #p", Some(4)),
            (
                "if #p > 70 then ip:hop_limit():set(9) end\nlocal udp = ip:data(packet_udp)\nreturn udp:dport():get() == 5 and NF_DROP or NF_ACCEPT",
                Some(5),
            ),
        ] {
            let text = format!(
                "function process_packet(p)\nlocal ip = p:data(packet_eth):data(packet_ip6)\nif not ip then return NF_DROP end\n{body}\nend"
            );
            let place = AttachType::Interface { has_link: true };
            let lines = compile_at(&text, place.clone(), accept).err().map(|refusals| {
                assert!(refusals[0].reason.contains("gives it back as it came"), "{refusals:?}");
                refusals[0].line
            });
            assert_eq!(lines, refused, "{body}");
            assert!(compile_at(&text, place, RESULTS).is_ok(), "{body}");
        }
    }
}

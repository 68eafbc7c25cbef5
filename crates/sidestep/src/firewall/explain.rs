//! `sidestep firewall explain` and `test`.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use router::firewall::{Packet, Reason, evaluate};
use router_runtime::firewall::{self as table, place, reason};

use crate::failure::Failure;
use config::{DEFAULT, Expectation, Firewall};

/// What becomes of a packet, as text or JSON.
pub(super) fn explain(firewall: &Firewall, file: &Path, words: &str, json: bool) -> Result<String, Failure> {
    if json {
        return Ok(format!("{:#}\n", table::explain(firewall, file, words, |_| {})?));
    }
    let packet = Packet::parse(words, &firewall.policy)?;
    let decision = evaluate(&firewall.policy, &packet);
    let mut text = format!(
        "{}: {}\n  from {} to {}\n",
        decision.verdict,
        reason(firewall, file, &decision),
        firewall.policy.name(packet.from),
        firewall.policy.name(packet.to),
    );
    if let Some(forward) = packet.forward.and_then(|index| firewall.policy.settings().forwards.get(index)) {
        let _ = writeln!(text, "  forward {} sends it on to {forward}", forward.name);
    }
    for index in &decision.other_times {
        let rule = &firewall.policy.rules()[*index];
        let place = place(firewall, file, *index);
        if rule.rate.is_some() {
            let _ = writeln!(
                text,
                "  {place} is limited in rate: add `above-rate` to see what happens to the rest"
            );
        }
        if let Some(schedule) = &rule.schedule {
            let _ = writeln!(
                text,
                "  {place} applies only during {:?}: add `at mon 09:00` to ask about a time",
                schedule.name
            );
        }
    }
    Ok(text)
}

/// Runs the tests; whether all packets became what was expected.
pub(super) fn test(
    firewall: &Firewall,
    tests: &[Expectation],
    file: &Path,
    out: &mut dyn Write,
) -> io::Result<bool> {
    if tests.is_empty() {
        writeln!(out, "{}: there are no tests: add [[firewall.test]] tables", file.display())?;
        return Ok(true);
    }
    let mut failed = 0;
    for test in tests {
        let decision = evaluate(&firewall.policy, &test.packet);
        let comment = match decision.reason {
            Reason::Rule(index) => firewall.policy.rules()[index].comment.as_str(),
            _ => DEFAULT,
        };
        let by_another = test.rule.as_ref().is_some_and(|rule| rule != comment);
        if decision.verdict == test.expect && !by_another {
            writeln!(out, "  ok    {}: {}", test.words, decision.verdict)?;
            continue;
        }
        failed += 1;
        writeln!(
            out,
            "  FAIL  {}\n        {}:{}: expected {}",
            test.words,
            file.display(),
            test.line,
            test.expect
        )?;
        if let Some(rule) = test.rule.as_ref().filter(|_| by_another) {
            writeln!(out, "        by {rule:?}")?;
        }
        writeln!(out, "        it is {}: {}", decision.verdict, reason(firewall, file, &decision))?;
    }
    writeln!(out, "{} passed, {failed} failed", tests.len() - failed)?;
    Ok(failed == 0)
}

//! What an element of a map does: a verdict, or the chain of a rule with a rate, a schedule or a log, or for what is
//! forwarded.

use std::fmt::Write as _;

use crate::firewall::policy::{Per, Policy, Rate, Rule, Verdict};
use crate::firewall::schedule::Schedule;

/// Whether the rule has a chain of its own.
fn has_chain(rule: &Rule) -> bool {
    rule.log || !rule.is_final()
}

/// The verdict of an element of the rule of this index.
pub(super) fn verdict(policy: &Policy, index: usize) -> String {
    let rule = &policy.rules()[index];
    if rule.is_final() && !rule.log {
        return plain(rule.action).to_owned();
    }
    // What a rate, a schedule or the rule of a forward lets go on comes back to the next lookup.
    let way = if rule.is_final() { "goto" } else { "jump" };
    format!("{way} rule-{}", index + 1)
}

/// The comment that says which rule an element counts for; none where the rule's own chain counts.
pub(super) fn element_comment(policy: &Policy, index: usize) -> String {
    if has_chain(&policy.rules()[index]) { String::new() } else { format!(" comment \"r{}\"", index + 1) }
}

fn plain(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Accept => "accept",
        Verdict::Drop => "drop",
        Verdict::Reject => "goto answer",
    }
}

/// The chains of rules that have one.
pub(super) fn chains(policy: &Policy, utc_offset: i32) -> String {
    let mut text = String::new();
    for (index, rule) in policy.rules().iter().enumerate().filter(|(_, rule)| has_chain(rule)) {
        let number = index + 1;
        let does = if rule.is_final() { format!("rule-{number}") } else { format!("rule-{number}-does") };
        let _ = writeln!(text, "\tchain {does} {{");
        if rule.log {
            let _ = writeln!(
                text,
                "\t\tlimit rate 10/second burst 20 packets log prefix \"sidestep rule {number} {}: \" level info",
                rule.action
            );
        }
        let _ = writeln!(text, "\t\tcounter {} comment \"r{number}\"\n\t}}", plain(rule.action));
        if rule.is_final() {
            continue;
        }
        let _ = writeln!(text, "\tchain rule-{number} {{");
        let translated = if rule.forwarded { "ct status dnat " } else { "" };
        let limit = rule.rate.map(limit).unwrap_or_default();
        let times = rule.schedule.as_ref().map_or_else(|| vec![String::new()], |it| times(it, utc_offset));
        for time in times {
            let _ = writeln!(text, "\t\t{translated}{time}{limit}goto {does}");
        }
        text += "\t}\n";
    }
    text
}

fn limit(rate: Rate) -> String {
    let per = match rate.per {
        Per::Second => "second",
        Per::Minute => "minute",
        Per::Hour => "hour",
        Per::Day => "day",
    };
    format!("limit rate {}/{per} burst {} packets ", rate.packets, rate.burst)
}

const WEEK: i32 = 7 * 1440;
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// When a schedule holds, in UTC, one text for each time of the day.
fn times(schedule: &Schedule, utc_offset: i32) -> Vec<String> {
    let days: Vec<u8> = if schedule.days.is_empty() { (0..7).collect() } else { schedule.days.clone() };
    // Days of each time of the day.
    let mut found: Vec<((i32, i32), Vec<usize>)> = Vec::new();
    for day in days {
        for (from, to) in schedule.pieces() {
            let begin = (i32::from(day) * 1440 + i32::from(from) - utc_offset).rem_euclid(WEEK);
            let end = begin + i32::from(to - from);
            let midnight = (begin / 1440 + 1) * 1440;
            for (from, to) in [(begin, end.min(midnight)), (midnight, end)] {
                if from >= to {
                    continue;
                }
                let day = usize::try_from(from / 1440 % 7).unwrap_or(0);
                let of_day = (from % 1440, (to - 1) % 1440);
                match found.iter_mut().find(|(other, _)| *other == of_day) {
                    Some((_, days)) => days.push(day),
                    None => found.push((of_day, vec![day])),
                }
            }
        }
    }
    let text = |((from, to), days): ((i32, i32), Vec<usize>)| {
        let days: Vec<String> = days.iter().map(|day| format!("\"{}\"", DAYS[*day])).collect();
        let day =
            if days.len() == 7 { String::new() } else { format!("meta day {{ {} }} ", days.join(", ")) };
        let hour = if (from, to) == (0, 1439) {
            String::new()
        } else {
            format!(
                "meta hour \"{:02}:{:02}:00\"-\"{:02}:{:02}:59\" ",
                from / 60,
                from % 60,
                to / 60,
                to % 60
            )
        };
        day + &hour
    };
    found.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_written_in_utc() {
        let schedule =
            |days: &[u8], from, to| Schedule { name: String::new(), days: days.to_vec(), from, to };
        assert_eq!(
            times(&schedule(&[0], 8 * 60, 17 * 60), 60),
            ["meta day { \"Monday\" } meta hour \"07:00:00\"-\"15:59:59\" "]
        );
        // Half past midnight on Monday is still Sunday in London.
        assert_eq!(
            times(&schedule(&[0], 30, 120), 60),
            [
                "meta day { \"Sunday\" } meta hour \"23:30:00\"-\"23:59:59\" ",
                "meta day { \"Monday\" } meta hour \"00:00:00\"-\"00:59:59\" ",
            ]
        );
        assert_eq!(times(&schedule(&[], 0, 1440), 0), [""]);
    }
}

//! What an element of a map does: a verdict, or the chain of a rule with a rate, a schedule or a log, or for what is
//! forwarded.

use std::fmt::Write as _;

use crate::firewall::policy::{Per, Policy, Rate, Rule, Verdict};
use crate::firewall::schedule::{Schedule, TimeZone};

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
pub(super) fn chains(policy: &Policy, zone: TimeZone) -> String {
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
        let times = rule.schedule.as_ref().map_or_else(|| vec![String::new()], |it| times(it, zone));
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
fn times(schedule: &Schedule, zone: TimeZone) -> Vec<String> {
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
    pieces(schedule, zone).into_iter().map(text).collect()
}

/// The same in minutes of a day of UTC, with the first and the last, and the kernel's days of each.
fn pieces(schedule: &Schedule, zone: TimeZone) -> Vec<((i32, i32), Vec<usize>)> {
    let days: Vec<u8> = if schedule.days.is_empty() { (0..7).collect() } else { schedule.days.clone() };
    let mut found: Vec<((i32, i32), Vec<usize>)> = Vec::new();
    for day in days {
        for (from, to) in schedule.pieces() {
            let mut begin = (i32::from(day) * 1440 + i32::from(from) - zone.ahead).rem_euclid(WEEK);
            let end = begin + i32::from(to - from);
            while begin < end {
                // A piece ends where the kernel's hours begin anew, and where its days do.
                let left = |midnight: i32| 1440 - (begin - midnight).rem_euclid(1440);
                let next = end.min(begin + left(0).min(left(zone.kernel_behind)));
                let day = usize::try_from((begin - zone.kernel_behind).rem_euclid(WEEK) / 1440).unwrap_or(0);
                let of_day = (begin % 1440, (next - 1) % 1440);
                match found.iter_mut().find(|(other, _)| *other == of_day) {
                    Some((_, days)) => days.push(day),
                    None => found.push((of_day, vec![day])),
                }
                begin = next;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firewall::schedule::Moment;

    fn schedule(days: &[u8], from: u16, to: u16) -> Schedule {
        Schedule { name: String::new(), days: days.to_vec(), from, to }
    }

    #[test]
    fn schedules_are_written_in_utc() {
        let zone = |ahead| TimeZone { ahead, kernel_behind: 0 };
        assert_eq!(
            times(&schedule(&[0], 8 * 60, 17 * 60), zone(60)),
            ["meta day { \"Monday\" } meta hour \"07:00:00\"-\"15:59:59\" "]
        );
        // Half past midnight on Monday is still Sunday in London.
        assert_eq!(
            times(&schedule(&[0], 30, 120), zone(60)),
            [
                "meta day { \"Sunday\" } meta hour \"23:30:00\"-\"23:59:59\" ",
                "meta day { \"Monday\" } meta hour \"00:00:00\"-\"00:59:59\" ",
            ]
        );
        assert_eq!(times(&schedule(&[], 0, 1440), zone(0)), [""]);
        // A kernel that is told of the time zone takes it for Monday at once.
        let told = TimeZone { ahead: 60, kernel_behind: -60 };
        assert_eq!(
            times(&schedule(&[0], 30, 120), told),
            [
                "meta day { \"Monday\" } meta hour \"23:30:00\"-\"23:59:59\" ",
                "meta day { \"Monday\" } meta hour \"00:00:00\"-\"00:59:59\" ",
            ]
        );
    }

    /// What nft_meta_weekday() and nft_meta_hour() of the kernel say at each minute of a week.
    #[test]
    fn schedules_hold_in_local_time_whatever_the_kernels_time_zone_is() {
        let zones = [0, 60, 330, 840, -480, -720];
        for (ahead, kernel_behind) in zones.iter().flat_map(|ahead| zones.map(|behind| (*ahead, -behind))) {
            let zone = TimeZone { ahead, kernel_behind };
            for schedule in [
                schedule(&[0], 0, 1440),
                schedule(&[], 0, 1440),
                schedule(&[6], 22 * 60, 6 * 60),
                schedule(&[2, 3], 5, 1439),
            ] {
                let pieces = pieces(&schedule, zone);
                for utc in 0..WEEK {
                    let (day, minute) = ((utc - kernel_behind).rem_euclid(WEEK) / 1440, utc % 1440);
                    let holds = pieces.iter().any(|((first, last), days)| {
                        (first..=last).contains(&&minute) && days.contains(&usize::try_from(day).unwrap())
                    });
                    let local = (utc + ahead).rem_euclid(WEEK);
                    let local = Moment { day: (local / 1440) as u8, minute: (local % 1440) as u16 };
                    assert_eq!(holds, schedule.applies(local), "{schedule:?} {zone:?} at {utc}");
                }
            }
        }
    }
}

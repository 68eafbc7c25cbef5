//! `sidestep firewall show`: what the table in the kernel has counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gateway::firewall::TABLE;
use serde_json::{Value, json};

use crate::cli::Failure;
use crate::config::Firewall;

/// Packets and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    packets: u64,
    bytes: u64,
}

/// What was counted by rule and by default.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    rules: BTreeMap<usize, Count>,
    defaults: BTreeMap<String, Count>,
}

/// The counters, as text or JSON. With a firewall its rules are named, those that counted nothing too.
pub(super) fn show(firewall: Option<&Firewall>, json: bool) -> Result<String, Failure> {
    let Some(listing) = linux::nft::list_inet(TABLE, true)? else {
        return Err(Failure::Message("no firewall is applied: `sidestep firewall apply FILE`".to_owned()));
    };
    let listing: Value = serde_json::from_str(&listing)?;
    let mut counts = count(&listing);
    if let Some(firewall) = firewall {
        for number in 1..=firewall.policy.rules().len() {
            counts.rules.entry(number).or_default();
        }
    }
    Ok(if json { document(&counts, firewall) } else { text(&counts, firewall) })
}

/// Sums up what elements of maps and rules of chains have counted, by their comments.
fn count(listing: &Value) -> Counts {
    let mut counts = Counts::default();
    for object in listing["nftables"].as_array().into_iter().flatten() {
        for element in object["map"]["elem"].as_array().into_iter().flatten() {
            // An element is a pair, of key and verdict.
            let key = &element[0]["elem"];
            counts.add(&key["comment"], &key["counter"]);
        }
        let rule = &object["rule"];
        for counter in rule["expr"].as_array().into_iter().flatten().map(|part| &part["counter"]) {
            counts.add(&rule["comment"], counter);
        }
    }
    counts
}

impl Counts {
    fn add(&mut self, comment: &Value, counter: &Value) {
        let (Some(comment), Some(packets)) = (comment.as_str(), counter["packets"].as_u64()) else { return };
        let number = comment.strip_prefix('r').and_then(|number| number.parse().ok());
        let count = match number {
            Some(number) => self.rules.entry(number).or_default(),
            None => self.defaults.entry(comment.to_owned()).or_default(),
        };
        count.packets += packets;
        count.bytes += counter["bytes"].as_u64().unwrap_or(0);
    }
}

fn comment_and_action(firewall: Option<&Firewall>, number: usize) -> (&str, String) {
    let rule = firewall.and_then(|firewall| firewall.policy.rules().get(number - 1));
    rule.map_or(("", String::new()), |rule| (rule.comment.as_str(), rule.action.to_string()))
}

fn document(counts: &Counts, firewall: Option<&Firewall>) -> String {
    let rules: Vec<Value> = counts
        .rules
        .iter()
        .map(|(number, count)| {
            let mut rule = json!({ "number": number, "packets": count.packets, "bytes": count.bytes });
            if let Some(firewall) = firewall {
                let (comment, action) = comment_and_action(Some(firewall), *number);
                rule["action"] = action.into();
                rule["comment"] = comment.into();
                rule["line"] = firewall.lines.get(number - 1).copied().into();
            }
            rule
        })
        .collect();
    let defaults: Vec<Value> = counts
        .defaults
        .iter()
        .map(|(why, count)| json!({ "reason": why, "packets": count.packets, "bytes": count.bytes }))
        .collect();
    format!("{:#}\n", json!({ "rules": rules, "defaults": defaults }))
}

fn text(counts: &Counts, firewall: Option<&Firewall>) -> String {
    let mut text = format!("{:>12} {:>15}\n", "packets", "bytes");
    for (number, Count { packets, bytes }) in &counts.rules {
        let (comment, action) = comment_and_action(firewall, *number);
        let line = firewall.and_then(|firewall| firewall.lines.get(number - 1));
        let line = line.map_or(String::new(), |line| format!(", line {line}"));
        let row = format!("{packets:>12} {bytes:>15}  rule {number}{line}  {action} {comment}");
        let _ = writeln!(text, "{}", row.trim_end());
    }
    for (why, Count { packets, bytes }) in counts.defaults.iter().filter(|(_, count)| count.packets > 0) {
        let _ = writeln!(text, "{packets:>12} {bytes:>15}  {why}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_chains_of_a_rule_are_summed_up() {
        let counter = |packets: u64| json!({ "packets": packets, "bytes": packets * 100 });
        let listing = json!({ "nftables": [
            { "map": { "elem": [
                [{ "elem": { "val": 1, "comment": "r2", "counter": counter(3) } }, { "drop": null }],
                [{ "elem": { "val": 2, "counter": counter(9) } }, { "jump": { "target": "rule-1" } }],
            ] } },
            { "rule": { "comment": "r2", "expr": [{ "counter": counter(4) }, { "drop": null }] } },
            { "rule": { "comment": "refused", "expr": [{ "counter": counter(5) }] } },
        ] });
        let counts = count(&listing);
        assert_eq!(counts.rules, BTreeMap::from([(2, Count { packets: 7, bytes: 700 })]));
        assert_eq!(counts.defaults["refused"].packets, 5);
    }
}

//! `sidestep firewall show`: what the table in the kernel has counted.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::failure::Failure;
use config::Firewall;
use router_runtime::firewall::{Count, Counts, is_in_force};

/// The counters, as text or JSON. With a firewall and its file its rules are named, those that counted nothing too.
pub(super) fn show(of: Option<(&Firewall, &Path)>, json: bool) -> Result<String, Failure> {
    let Some(mut counts) = Counts::read()? else {
        return Err(Failure::Message(
            "no firewall is applied: run `sidestep firewall apply FILE`".to_owned(),
        ));
    };
    if let Some((firewall, file)) = of {
        if !is_in_force(firewall)? {
            let file = file.display();
            return Err(Failure::Message(format!(
                "the firewall in force is not that of {file}: `sidestep firewall apply {file}` changes that, \
                 `sidestep firewall show` without a file shows the counters of the one in force"
            )));
        }
        for number in 1..=firewall.policy.rules().len() {
            counts.rules.entry(number).or_default();
        }
    }
    let firewall = of.map(|(firewall, _)| firewall);
    Ok(if json { document(&counts, firewall) } else { text(&counts, firewall) })
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
    let pairs: Vec<Value> = counts
        .pairs
        .iter()
        .map(|((from, to), count)| {
            json!({ "from": from, "to": to, "packets": count.packets, "bytes": count.bytes })
        })
        .collect();
    format!("{:#}\n", json!({ "rules": rules, "defaults": defaults, "pairs": pairs }))
}

fn text(counts: &Counts, firewall: Option<&Firewall>) -> String {
    let mut text = format!("{:>12} {:>15}\n", "packets", "bytes");
    for (number, Count { packets, bytes, .. }) in &counts.rules {
        let (comment, action) = comment_and_action(firewall, *number);
        let line = firewall.and_then(|firewall| firewall.lines.get(number - 1));
        let line = line.map_or(String::new(), |line| format!(", line {line}"));
        let row = format!("{packets:>12} {bytes:>15}  rule {number}{line}  {action} {comment}");
        let _ = writeln!(text, "{}", row.trim_end());
    }
    for (why, Count { packets, bytes, .. }) in counts.defaults.iter().filter(|(_, count)| count.packets > 0) {
        let _ = writeln!(text, "{packets:>12} {bytes:>15}  {why}");
    }
    for ((from, to), Count { packets, bytes, .. }) in
        counts.pairs.iter().filter(|(_, count)| count.packets > 0)
    {
        let _ = writeln!(text, "{packets:>12} {bytes:>15}  from {from} to {to}");
    }
    text
}

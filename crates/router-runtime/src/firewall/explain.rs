//! What becomes of a packet that somebody describes in words, and which rule decides.

use std::path::Path;

use config::Firewall;
use router::firewall::{Decision, Packet, Reason, WordsError, evaluate};
use serde_json::{Value, json};

/// What becomes of a packet: the document of `sidestep firewall explain --json`, whose field names are a contract. `translate`:
/// what the configuration does not know of what happens to it before.
///
/// # Errors
/// Where the words describe no packet.
pub fn explain(
    firewall: &Firewall,
    file: &Path,
    words: &str,
    translate: impl FnOnce(&mut Packet),
) -> Result<Value, WordsError> {
    let mut packet = Packet::parse(words, &firewall.policy)?;
    translate(&mut packet);
    let decision = evaluate(&firewall.policy, &packet);
    let rule = match decision.reason {
        Reason::Rule(index) => json!({
            "number": index + 1,
            "line": firewall.lines.get(index),
            "comment": firewall.policy.rules()[index].comment,
        }),
        _ => Value::Null,
    };
    let forward = packet.forward.and_then(|index| firewall.policy.settings().forwards.get(index));
    let forward = forward.map(|forward| json!({ "name": forward.name, "to": forward.to_string() }));
    let others: Vec<usize> = decision.other_times.iter().map(|index| index + 1).collect();
    Ok(json!({
        "verdict": decision.verdict.to_string(),
        "from": firewall.policy.name(packet.from),
        "to": firewall.policy.name(packet.to),
        "forward": forward,
        "rule": rule,
        "reason": reason(firewall, file, &decision),
        "depends_on_rate_or_time": others,
    }))
}

/// What has decided, in words.
#[must_use]
pub fn reason(firewall: &Firewall, file: &Path, decision: &Decision) -> String {
    match decision.reason {
        Reason::Rule(index) => place(firewall, file, index),
        Reason::Connection => "its connection is known".to_owned(),
        Reason::Default(why) => format!("no rule decides; {why}"),
        Reason::Refused => "no rule decides, and the trust of its zone does not let it pass".to_owned(),
    }
}

/// Where a rule stands, and what it is for.
#[must_use]
pub fn place(firewall: &Firewall, file: &Path, index: usize) -> String {
    let line = firewall.lines.get(index).copied().unwrap_or(0);
    let comment = &firewall.policy.rules()[index].comment;
    let comment = if comment.is_empty() { String::new() } else { format!(" ({comment})") };
    format!("rule {}, {}:{line}{comment}", index + 1, file.display())
}

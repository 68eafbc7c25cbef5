//! What the table in the kernel has counted.

use std::collections::BTreeMap;

use router::firewall::{PAIR, TABLE, Verdict};
use serde_json::Value;

/// Packets and bytes, and what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// None where the kernel's listing does not say.
    pub verdict: Option<Verdict>,
}

/// What was counted by rule and by default.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By their number, from 1 on.
    pub rules: BTreeMap<usize, Count>,
    /// By their reason.
    pub defaults: BTreeMap<String, Count>,
    /// By the zones that it came from and went to, whatever became of it.
    pub pairs: BTreeMap<(String, String), Count>,
}

impl Counts {
    /// Asks the kernel; None where no firewall is applied.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    pub fn read() -> linux::Result<Option<Self>> {
        let Some(listing) = linux::nft::list_inet(TABLE, true)? else { return Ok(None) };
        // What nft writes is JSON; of anything else nothing is known.
        let listing = serde_json::from_str(&listing).unwrap_or(Value::Null);
        Ok(Some(Self::of(&listing)))
    }

    /// Sums up what elements of maps and rules of chains have counted, by their comments.
    fn of(listing: &Value) -> Self {
        let mut counts = Self::default();
        for object in listing["nftables"].as_array().into_iter().flatten() {
            for element in object["map"]["elem"].as_array().into_iter().flatten() {
                // An element is a pair, of key and verdict.
                let key = &element[0]["elem"];
                counts.add(&key["comment"], &key["counter"], verdict(&element[1]));
            }
            let rule = &object["rule"];
            let parts = || rule["expr"].as_array().into_iter().flatten();
            for counter in parts().map(|part| &part["counter"]) {
                counts.add(&rule["comment"], counter, parts().find_map(verdict));
            }
        }
        counts
    }

    fn add(&mut self, comment: &Value, counter: &Value, verdict: Option<Verdict>) {
        let (Some(comment), Some(packets)) = (comment.as_str(), counter["packets"].as_u64()) else { return };
        let number = comment.strip_prefix('r').and_then(|number| number.parse().ok());
        let pair = comment.strip_prefix(PAIR).and_then(|pair| pair.split_once(' '));
        let count = match (number, pair) {
            (Some(number), _) => self.rules.entry(number).or_default(),
            (_, Some((from, to))) => self.pairs.entry((from.to_owned(), to.to_owned())).or_default(),
            _ => self.defaults.entry(comment.to_owned()).or_default(),
        };
        if packets > 0 || count.verdict.is_none() {
            count.verdict = verdict;
        }
        count.packets += packets;
        count.bytes += counter["bytes"].as_u64().unwrap_or(0);
    }
}

fn verdict(statement: &Value) -> Option<Verdict> {
    let has = |name| statement.get(name).is_some();
    match () {
        () if has("accept") => Some(Verdict::Accept),
        () if has("drop") => Some(Verdict::Drop),
        () if statement["goto"]["target"] == "answer" => Some(Verdict::Reject),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_and_chains_of_a_rule_are_summed_up() {
        let counter = |packets: u64| json!({ "packets": packets, "bytes": packets * 100 });
        let listing = json!({ "nftables": [
            { "map": { "elem": [
                [{ "elem": { "val": 1, "comment": "r2", "counter": counter(3) } }, { "drop": null }],
                [{ "elem": { "val": 2, "counter": counter(9) } }, { "jump": { "target": "rule-1" } }],
            ] } },
            { "rule": { "comment": "r2", "expr": [{ "counter": counter(4) }, { "drop": null }] } },
            { "rule": { "comment": "refused", "expr": [{ "counter": counter(0) }, { "drop": null }] } },
            { "rule": { "comment": "pair wan lan", "expr": [{ "counter": counter(6) }] } },
            { "rule": { "comment": "refused", "expr": [{ "counter": counter(5) }, { "goto": { "target": "answer" } }] } },
        ] });
        let counts = Counts::of(&listing);
        let dropped = Count { packets: 7, bytes: 700, verdict: Some(Verdict::Drop) };
        assert_eq!(counts.rules, BTreeMap::from([(2, dropped)]));
        let pairs: Vec<_> =
            counts.pairs.iter().map(|((from, to), count)| (&**from, &**to, count.packets)).collect();
        assert_eq!(pairs, [("wan", "lan", 6)]);
        assert_eq!(counts.defaults.len(), 1);
        let refused = counts.defaults["refused"];
        assert_eq!((refused.packets, refused.verdict), (5, Some(Verdict::Reject)));
    }
}

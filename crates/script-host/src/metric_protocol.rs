//! What the script host says of counters and histograms that scripts have metrics export.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A counter or histogram that a script has metrics export. The field names are a contract.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exported {
    /// The scripts that share it.
    pub scripts: Vec<u32>,
    /// As the script has declared it, without unit and `_total`.
    pub name: String,
    /// What it is, in one line.
    pub help: String,
    /// A base unit: `bytes`, `seconds`; none where things are counted.
    pub unit: Option<String>,
    /// Names and values.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What it is now, in its unit.
    #[serde(flatten)]
    pub value: Value,
}

/// What one is now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Value {
    /// `nf.counter`
    Counter {
        /// What it has counted.
        value: f64,
    },
    /// `nf.histogram`
    Histogram {
        /// Of all values.
        sum: f64,
        /// In their order; the last has what is larger than all ends.
        buckets: Vec<Bucket>,
    },
}

/// Values of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// The largest that it takes; none: any.
    pub up_to: Option<f64>,
    /// How many there were, those of other buckets not counted.
    pub count: u64,
}

impl Exported {
    /// Whether one page of metrics can have both: of one name they are of one kind and say the same of themselves, and
    /// their labels, of which the script is one, are not the same.
    #[must_use]
    pub fn goes_with(&self, other: &Self) -> bool {
        let kind = |value: &Value| std::mem::discriminant(value);
        let same = (&self.name, &self.unit) == (&other.name, &other.unit);
        !same
            || (self.help == other.help
                && kind(&self.value) == kind(&other.value)
                && (&self.labels, self.scripts.first()) != (&other.labels, other.scripts.first()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(script: u32, name: &str, help: &str, reason: &str) -> Exported {
        Exported {
            scripts: vec![script],
            name: name.to_owned(),
            help: help.to_owned(),
            unit: None,
            labels: BTreeMap::from([("reason".to_owned(), reason.to_owned())]),
            value: Value::Counter { value: 1.0 },
        }
    }

    #[test]
    fn of_one_name_are_those_that_say_the_same_of_themselves() {
        let one = counter(1, "dropped", "Why", "late");
        let histogram = Value::Histogram { sum: 0.0, buckets: Vec::new() };
        for (other, goes) in [
            (counter(1, "dropped", "Why", "spoofed"), true),
            (counter(2, "dropped", "Why", "late"), true),
            (counter(2, "passed", "Else", "late"), true),
            (counter(2, "dropped", "Else", "late"), false),
            (counter(1, "dropped", "Why", "late"), false),
            (Exported { value: histogram, ..counter(2, "dropped", "Why", "late") }, false),
        ] {
            assert_eq!(one.goes_with(&other), goes, "{other:?}");
            assert_eq!(other.goes_with(&one), goes, "{other:?}");
        }
    }

    #[test]
    fn json_has_the_kind_beside_the_rest() {
        let text = serde_json::to_value(counter(1, "dropped", "Why", "late")).unwrap();
        assert_eq!((&text["kind"], &text["value"]), (&"counter".into(), &1.0.into()));
        assert_eq!(serde_json::from_value::<Exported>(text).unwrap(), counter(1, "dropped", "Why", "late"));
    }
}

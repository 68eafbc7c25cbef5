//! Metrics that packet scripts declare: counters and histograms with names, units and texts of their own.
//!
//! What the script host says is looked at once more here: whatever it is, the page stays one that can be read.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel as _, EncodeLabelSet, LabelSetEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use script::metric::{MOST_BUCKETS, MOST_METRICS, Metric};
use script_host::metric_protocol::{Exported, Value};

/// What their names begin with, behind `sidestep_`: none is that of a metric of ours.
const PREFIX: &str = "custom_";

/// A metric, and its samples.
#[derive(Debug)]
pub(crate) struct Family {
    name: String,
    help: String,
    unit: Option<String>,
    kind: MetricType,
    samples: Vec<Exported>,
}

/// Those that are metrics and go with each other, by name and in their order. Of others the first ones are there.
pub(crate) fn families(exported: &[Exported]) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let mut taken: Vec<&Exported> = Vec::new();
    // So many of each of a few scripts are enough for anybody.
    for one in exported.iter().filter(|one| is_good(one)).take(16 * MOST_METRICS) {
        if !taken.iter().all(|other| other.goes_with(one)) {
            continue;
        }
        taken.push(one);
        let same = |family: &&mut Family| {
            family.name.strip_prefix(PREFIX) == Some(&*one.name) && family.unit == one.unit
        };
        match families.iter_mut().find(same) {
            Some(family) => family.samples.push(one.clone()),
            None => families.push(Family {
                name: format!("{PREFIX}{}", one.name),
                help: one.help.clone(),
                kind: match one.value {
                    Value::Counter { .. } => MetricType::Counter,
                    Value::Histogram { .. } => MetricType::Histogram,
                },
                unit: one.unit.clone(),
                samples: vec![one.clone()],
            }),
        }
    }
    families
}

fn is_good(one: &Exported) -> bool {
    let buckets = match &one.value {
        Value::Counter { .. } => 1,
        Value::Histogram { buckets, .. } => buckets.len(),
    };
    let is_base = one.unit.as_deref().is_none_or(|unit| matches!(unit, "bytes" | "seconds"));
    let declared = Metric::new(&one.name, one.unit.as_deref(), &one.help, one.labels.clone());
    is_base && declared.is_ok() && !one.scripts.is_empty() && (1..=MOST_BUCKETS + 1).contains(&buckets)
}

impl Family {
    pub(crate) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let unit = self.unit.clone().map(Unit::Other);
        let mut encoder = encoder.encode_descriptor(&self.name, &self.help, unit.as_ref(), self.kind)?;
        for sample in &self.samples {
            let labels = Labels(sample);
            let mut encoder = encoder.encode_family(&labels)?;
            match &sample.value {
                Value::Counter { value } => encoder.encode_counter::<NoLabelSet, _, u64>(value, None)?,
                Value::Histogram { sum, buckets } => {
                    let count = buckets.iter().map(|bucket| bucket.count).fold(0, u64::saturating_add);
                    let end = |up_to: Option<f64>| up_to.unwrap_or(f64::INFINITY);
                    let buckets: Vec<_> = buckets.iter().map(|one| (end(one.up_to), one.count)).collect();
                    encoder.encode_histogram::<NoLabelSet>(*sum, count, &buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

/// The first script that shares it, as the other metrics of scripts have it, and those of the declaration.
struct Labels<'a>(&'a Exported);

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let script = self.0.scripts.first().copied().unwrap_or(0).to_string();
        ("script", &*script).encode(encoder.encode_label())?;
        self.0.labels.iter().try_for_each(|(name, value)| (&**name, &**value).encode(encoder.encode_label()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use script_host::metric_protocol::Bucket;

    use super::*;
    use crate::page::{Format, Page};

    fn counter(script: u32, name: &str, reason: &str) -> Exported {
        Exported {
            scripts: vec![script],
            name: name.to_owned(),
            help: "Why".to_owned(),
            unit: None,
            labels: BTreeMap::from([("reason".to_owned(), reason.to_owned())]),
            value: Value::Counter { value: 12.0 },
        }
    }

    fn page(exported: &[Exported]) -> String {
        let mut page = Page::default();
        families(exported).into_iter().for_each(|family| page.add_custom(family));
        page.text()
    }

    #[test]
    fn what_scripts_declare_is_on_the_page_in_both_formats() {
        let buckets = [(Some(0.001), 3), (Some(1.5), 0), (None, 2)];
        let buckets = buckets.map(|(up_to, count)| Bucket { up_to, count }).into();
        let histogram = Exported {
            unit: Some("seconds".to_owned()),
            labels: BTreeMap::new(),
            value: Value::Histogram { sum: 7.25, buckets },
            ..counter(3, "waited", "")
        };
        let text = page(&[counter(1, "dropped", "a \"b\""), histogram, counter(2, "dropped", "late")]);
        assert_eq!(
            text,
            "# HELP sidestep_custom_dropped Why\n\
             # TYPE sidestep_custom_dropped counter\n\
             sidestep_custom_dropped_total{script=\"1\",reason=\"a \\\"b\\\"\"} 12.0\n\
             sidestep_custom_dropped_total{script=\"2\",reason=\"late\"} 12.0\n\
             # HELP sidestep_custom_waited_seconds Why\n\
             # TYPE sidestep_custom_waited_seconds histogram\n\
             # UNIT sidestep_custom_waited_seconds seconds\n\
             sidestep_custom_waited_seconds_sum{script=\"3\"} 7.25\n\
             sidestep_custom_waited_seconds_count{script=\"3\"} 5\n\
             sidestep_custom_waited_seconds_bucket{le=\"0.001\",script=\"3\"} 3\n\
             sidestep_custom_waited_seconds_bucket{le=\"1.5\",script=\"3\"} 3\n\
             sidestep_custom_waited_seconds_bucket{le=\"+Inf\",script=\"3\"} 5\n\
             # EOF\n"
        );
        let text = Format::Text.of(text);
        assert!(text.contains("# TYPE sidestep_custom_dropped_total counter\n"), "{text}");
        assert!(text.contains("# TYPE sidestep_custom_waited_seconds histogram\n"), "{text}");
    }

    #[test]
    fn what_does_not_go_with_the_others_or_is_no_metric_is_left_out() {
        let first = counter(1, "dropped", "late");
        let other_help = Exported { help: "Else".to_owned(), ..counter(2, "dropped", "late") };
        let twice = counter(1, "dropped", "late");
        let no_name = counter(1, "sidestep_x} 1\n", "late");
        let no_unit = Exported { unit: Some("milliseconds".to_owned()), ..counter(1, "a", "late") };
        let nobodys = Exported { scripts: Vec::new(), ..counter(1, "b", "late") };
        let text = page(&[first, other_help, twice, no_name, no_unit, nobodys]);
        assert_eq!(text.lines().filter(|line| !line.starts_with('#')).count(), 1, "{text}");
    }

    proptest! {
        /// Whatever the host says: a line for each sample, and nothing else.
        #[test]
        fn nothing_breaks_out_of_its_line(
            name in "[a-z]{1,3}|\\PC{0,9}",
            help in any::<String>(),
            label in any::<String>(),
            value in any::<String>(),
            number in any::<f64>(),
        ) {
            let mut one = counter(1, &name, "late");
            one.help = help;
            one.labels.insert(label, value);
            one.value = Value::Counter { value: number };
            let text = page(&[one]);
            let samples = text.lines().filter(|line| !line.starts_with('#'));
            prop_assert!(samples.clone().all(|line| line.starts_with("sidestep_custom_")));
            prop_assert!(samples.count() <= 1);
        }
    }
}

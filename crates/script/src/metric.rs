//! Counters and histograms that metrics export: what a script declares of them.
//!
//! How many there are follows from the text of a script, never from packets: a metric has the labels that the declaration
//! has, with the values that stand there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Octets of a name, of a metric or of a label.
const LONGEST_NAME: usize = 64;
/// Octets of a text, and of a label's value.
const LONGEST_TEXT: usize = 200;
/// Labels of one metric.
const MOST_LABELS: usize = 4;
/// Buckets of a histogram, the last one not counted.
pub const MOST_BUCKETS: usize = 32;
/// Counters and histograms that the scripts of a state have metrics export.
pub const MOST_METRICS: usize = 256;

/// Ends of names that say what a sample is (OpenMetrics 1.0).
const ENDS: [&str; 6] = ["_total", "_info", "_bucket", "_count", "_sum", "_created"];
/// What the exporter itself writes.
const TAKEN_LABELS: [&str; 3] = ["script", "le", "quantile"];

/// A counter or histogram as metrics have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Without unit and `_total`.
    pub name: String,
    /// What is counted or measured.
    pub unit: Option<Unit>,
    /// In one line.
    pub help: String,
    /// Names and values.
    pub labels: BTreeMap<String, String>,
}

/// What the integers of a script are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// As they are.
    Bytes,
    /// As they are.
    Seconds,
    /// They are exported as seconds: metrics have base units.
    Milliseconds,
}

/// Why something is no metric.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MetricError {
    /// Its name.
    #[error(
        "{0:?} is no name of a metric: up to {LONGEST_NAME} of a-z, 0-9 and single _, beginning with a letter"
    )]
    Name(String),
    /// Its name ends as samples do.
    #[error("the name of metric {name:?} must not end with {end}: that is added where it belongs")]
    End {
        /// The name.
        name: String,
        /// Its end.
        end: String,
    },
    /// Its unit.
    #[error("unit {0:?} is none of bytes, seconds and milliseconds (which are exported as seconds)")]
    Unit(String),
    /// Its text.
    #[error("`help` must say in one line of up to {LONGEST_TEXT} octets, without backslashes, what {0:?} is")]
    Help(String),
    /// It has too many labels.
    #[error("metric {0:?} has more than {MOST_LABELS} labels")]
    Labels(String),
    /// A name of a label.
    #[error(
        "{0:?} is no name of a label: up to {LONGEST_NAME} of a-z, 0-9 and single _, beginning with a letter, and none of \
         script, le and quantile"
    )]
    LabelName(String),
    /// The value of a label.
    #[error("the value of label {0:?} must be one line of 1 to {LONGEST_TEXT} octets")]
    LabelValue(String),
    /// A counter or histogram of this name is another metric already.
    #[error("{0:?} was declared before, with another help, unit, label or metric")]
    Again(String),
    /// Others that are the same metric say something else of it.
    #[error(
        "metric {name:?} is that of {other:?}, too: both must have the same help, unit and names of labels, and other values \
         of these"
    )]
    Other {
        /// Of the metric.
        name: String,
        /// Who has it.
        other: String,
    },
    /// There are enough.
    #[error("more than {MOST_METRICS} counters and histograms are exported")]
    Many,
    /// The buckets of a histogram.
    #[error(
        "`buckets` must be a list of 1 to {MOST_BUCKETS} integers, each 0 or more and larger than the one before: the \
         largest value of each"
    )]
    Buckets,
}

impl Unit {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bytes, Self::Seconds, Self::Milliseconds];

    /// As a declaration has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::Milliseconds => "milliseconds",
        }
    }

    /// The base unit.
    #[must_use]
    pub const fn base(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Seconds | Self::Milliseconds => "seconds",
        }
    }

    /// A number of a script in the base unit.
    #[must_use]
    pub fn in_base(unit: Option<Self>, number: i64) -> f64 {
        match unit {
            Some(Self::Milliseconds) => number as f64 / 1000.0,
            _ => number as f64,
        }
    }
}

impl Metric {
    /// A metric, if it may be called so.
    ///
    /// # Errors
    /// What is wrong.
    pub fn new(
        name: &str,
        unit: Option<&str>,
        help: &str,
        labels: BTreeMap<String, String>,
    ) -> Result<Self, MetricError> {
        if !is_name(name) {
            return Err(MetricError::Name(name.to_owned()));
        }
        let units = Unit::ALL.map(|unit| format!("_{}", unit.name()));
        let mut ends = ENDS.iter().copied().chain(units.iter().map(String::as_str));
        if let Some(end) = ends.find(|end| name.ends_with(end)) {
            return Err(MetricError::End { name: name.to_owned(), end: end.to_owned() });
        }
        let known = |wanted: &str| Unit::ALL.into_iter().find(|unit| unit.name() == wanted);
        let unit =
            unit.map(|unit| known(unit).ok_or_else(|| MetricError::Unit(unit.to_owned()))).transpose()?;
        if !is_line(help) || help.contains('\\') {
            return Err(MetricError::Help(name.to_owned()));
        }
        if labels.len() > MOST_LABELS {
            return Err(MetricError::Labels(name.to_owned()));
        }
        for (label, value) in &labels {
            if !is_name(label) || TAKEN_LABELS.contains(&&**label) {
                return Err(MetricError::LabelName(label.clone()));
            }
            if !is_line(value) {
                return Err(MetricError::LabelValue(label.clone()));
            }
        }
        Ok(Self { name: name.to_owned(), unit, help: help.to_owned(), labels })
    }

    /// Whether two of the same name are one metric with different labels.
    fn goes_with(&self, other: &Self) -> bool {
        self.unit == other.unit
            && self.help == other.help
            && self.labels.keys().eq(other.labels.keys())
            && self.labels != other.labels
    }
}

/// What has a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MetricKind {
    Counter,
    Histogram,
}

/// What the scripts of a state have metrics export: counters and histograms by their names.
#[derive(Debug, Default)]
pub(crate) struct Declared(Vec<(String, MetricKind, Arc<Metric>)>);

impl Declared {
    /// Notes the metric of a counter or histogram, if it goes with the others.
    pub(crate) fn add(
        &mut self,
        name: &str,
        kind: MetricKind,
        metric: Metric,
    ) -> Result<Arc<Metric>, MetricError> {
        if let Some((.., known)) = self.0.iter().find(|(other, of, _)| other == name && *of == kind) {
            return match **known == metric {
                true => Ok(Arc::clone(known)),
                false => Err(MetricError::Again(name.to_owned())),
            };
        }
        let against = |(_, of, known): &&(String, MetricKind, Arc<Metric>)| {
            known.name == metric.name && (*of != kind || !known.goes_with(&metric))
        };
        if let Some((other, ..)) = self.0.iter().find(against) {
            return Err(MetricError::Other { name: metric.name, other: other.clone() });
        }
        if self.0.len() == MOST_METRICS {
            return Err(MetricError::Many);
        }
        let metric = Arc::new(metric);
        self.0.push((name.to_owned(), kind, Arc::clone(&metric)));
        Ok(metric)
    }
}

/// Words of small letters and digits with an underscore between them: a label that begins with `__` is Prometheus' own.
fn is_name(text: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    text.len() <= LONGEST_NAME
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.split('_').all(is_word)
}

fn is_line(text: &str) -> bool {
    (1..=LONGEST_TEXT).contains(&text.len()) && !text.contains(char::is_control)
}

/// How often values were in which bucket, and their sum: numbers that have their places, as in a map of the kernel.
#[derive(Debug)]
pub struct Histogram {
    bounds: Box<[i64]>,
    /// The sum, then the buckets; the last one has what is larger than all bounds.
    numbers: Box<[AtomicI64]>,
}

impl Histogram {
    /// One without values, of buckets up to these bounds.
    ///
    /// # Errors
    /// If they are not 1 to [`MOST_BUCKETS`] that grow.
    pub fn new(bounds: &[i64]) -> Result<Self, MetricError> {
        let grow = bounds.is_sorted_by(|one, next| one < next) && bounds.first() >= Some(&0);
        if !(1..=MOST_BUCKETS).contains(&bounds.len()) || !grow {
            return Err(MetricError::Buckets);
        }
        let numbers = (0..bounds.len() + 2).map(|_| AtomicI64::new(0)).collect();
        Ok(Self { bounds: bounds.into(), numbers })
    }

    /// The largest value of each bucket but the last.
    #[must_use]
    pub fn bounds(&self) -> &[i64] {
        &self.bounds
    }

    /// Adds a value, which is 0 or more.
    pub fn observe(&self, value: i64) {
        let place = 1 + self.bounds.partition_point(|bound| *bound < value);
        self.numbers[place].fetch_add(1, Ordering::Relaxed);
        self.numbers[0].fetch_add(value, Ordering::Relaxed);
    }

    /// The sum of all values.
    #[must_use]
    pub fn sum(&self) -> i64 {
        self.number(0).unwrap_or(0)
    }

    /// How many values there were.
    #[must_use]
    pub fn count(&self) -> i64 {
        (1..self.numbers.len()).filter_map(|place| self.number(place)).sum()
    }

    /// What is at a place: the sum, then the buckets.
    pub(crate) fn number(&self, place: usize) -> Option<i64> {
        self.numbers.get(place).map(|number| number.load(Ordering::Relaxed))
    }

    /// Writes what is at a place; whether there is such a one.
    pub(crate) fn set(&self, place: usize, number: i64) -> bool {
        self.numbers.get(place).map(|known| known.store(number, Ordering::Relaxed)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(
        name: &str,
        unit: Option<&str>,
        help: &str,
        labels: &[(&str, &str)],
    ) -> Result<Metric, MetricError> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Metric::new(name, unit, help, labels)
    }

    #[test]
    fn names_units_texts_and_labels_are_those_of_openmetrics() {
        assert!(metric("dropped_2", Some("milliseconds"), "Why not", &[("reason", "it's \"late\"")]).is_ok());
        for name in ["", "Dropped", "2nd", "a__b", "_a", "a_", "a-b", "ä", &"a".repeat(65)] {
            assert_eq!(metric(name, None, "x", &[]), Err(MetricError::Name(name.to_owned())), "{name}");
        }
        for name in ["seen_total", "size_bytes", "time_milliseconds", "a_count", "a_created"] {
            assert!(matches!(metric(name, None, "x", &[]), Err(MetricError::End { .. })), "{name}");
        }
        assert_eq!(metric("a", Some("octets"), "x", &[]), Err(MetricError::Unit("octets".into())));
        for help in ["", "two\nlines", "a\\b", &"x".repeat(201)] {
            assert_eq!(metric("a", None, help, &[]), Err(MetricError::Help("a".into())), "{help}");
        }
        for label in ["le", "script", "quantile", "__name", "Reason", ""] {
            assert_eq!(metric("a", None, "x", &[(label, "y")]), Err(MetricError::LabelName(label.into())));
        }
        for value in ["", "a\nb", "\u{1b}[2J"] {
            assert_eq!(metric("a", None, "x", &[("b", value)]), Err(MetricError::LabelValue("b".into())));
        }
        let many = [("a", "x"), ("b", "x"), ("c", "x"), ("d", "x"), ("e", "x")];
        assert_eq!(metric("a", None, "x", &many), Err(MetricError::Labels("a".into())));
    }

    #[test]
    fn a_value_is_in_the_first_bucket_that_takes_it() {
        let histogram = Histogram::new(&[0, 10, 100]).unwrap();
        for value in [0, 1, 10, 11, 100, 101, i64::from(u32::MAX)] {
            histogram.observe(value);
        }
        let numbers: Vec<_> = (1..5).map(|place| histogram.number(place)).collect();
        assert_eq!(numbers, [Some(1), Some(2), Some(2), Some(2)]);
        assert_eq!((histogram.count(), histogram.sum()), (7, 223 + i64::from(u32::MAX)));
        assert_eq!(histogram.number(5), None);
    }

    #[test]
    fn several_are_one_metric_if_only_their_labels_differ() {
        let mut declared = Declared::default();
        let late = || metric("dropped", None, "Why", &[("reason", "late")]).unwrap();
        let spoofed = metric("dropped", None, "Why", &[("reason", "spoofed")]).unwrap();
        assert!(declared.add("late", MetricKind::Counter, late()).is_ok());
        assert!(declared.add("late", MetricKind::Counter, late()).is_ok());
        assert!(declared.add("spoofed", MetricKind::Counter, spoofed.clone()).is_ok());
        assert_eq!(
            declared.add("late", MetricKind::Counter, spoofed),
            Err(MetricError::Again("late".into()))
        );
        for (kind, other) in [
            (MetricKind::Counter, late()),
            (MetricKind::Histogram, metric("dropped", None, "Why", &[("reason", "x")]).unwrap()),
            (MetricKind::Counter, metric("dropped", None, "Else", &[("reason", "x")]).unwrap()),
            (MetricKind::Counter, metric("dropped", Some("bytes"), "Why", &[("reason", "x")]).unwrap()),
            (MetricKind::Counter, metric("dropped", None, "Why", &[("why", "x")]).unwrap()),
        ] {
            let wanted = MetricError::Other { name: "dropped".into(), other: "late".into() };
            assert_eq!(declared.add("third", kind, other), Err(wanted));
        }
        let many = |number: usize| metric(&format!("m{number}"), None, "x", &[]).unwrap();
        let added =
            (0..300).take_while(|at| declared.add(&at.to_string(), MetricKind::Counter, many(*at)).is_ok());
        assert_eq!(added.count(), MOST_METRICS - 2);
    }

    #[test]
    fn buckets_grow() {
        for bounds in [&[][..], &[-1, 3], &[3, 3], &[5, 3], &(0..33).collect::<Vec<_>>()] {
            assert_eq!(Histogram::new(bounds).unwrap_err(), MetricError::Buckets, "{bounds:?}");
        }
    }
}

//! What is exported: samples of the metrics of the catalogue, and how they are written.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabel, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::catalogue::{ALL, Kind, Metric};
use crate::custom::Family;

/// A label's value; peers and tunnels have many samples each.
pub(crate) type Label = Arc<str>;

/// Samples, by metric in the order of the catalogue; and behind these the metrics of scripts.
#[derive(Debug)]
pub(crate) struct Page {
    samples: Vec<Vec<Sample>>,
    custom: Vec<Family>,
}

#[derive(Debug)]
struct Sample {
    labels: Vec<Label>,
    value: Value,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    Count(u64),
    Number(f64),
}

impl Default for Page {
    fn default() -> Self {
        Page { samples: ALL.iter().map(|_| Vec::new()).collect(), custom: Vec::new() }
    }
}

impl Page {
    /// Adds a sample with as many labels as the metric has.
    pub(crate) fn add(&mut self, metric: &Metric, labels: &[&Label], value: impl Into<Value>) {
        debug_assert_eq!(labels.len(), metric.labels.len(), "{}", metric.name);
        let labels = labels.iter().copied().map(Arc::clone).collect();
        self.samples[metric.index].push(Sample { labels, value: value.into() });
    }

    /// Adds a metric that a script has declared.
    pub(crate) fn add_custom(&mut self, family: Family) {
        self.custom.push(family);
    }

    /// In OpenMetrics. Metrics without samples are left out.
    pub(crate) fn text(self) -> String {
        let mut registry = Registry::with_prefix("sidestep");
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Nothing fails that is written into a string.
        let _ = text::encode(&mut text, &registry);
        text
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, samples) in ALL.iter().zip(&self.samples).filter(|(_, samples)| !samples.is_empty()) {
            let kind = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Info => MetricType::Info,
            };
            let unit = metric.unit.map(|unit| Unit::Other(unit.to_owned()));
            let mut encoder = encoder.encode_descriptor(metric.name, metric.help(), unit.as_ref(), kind)?;
            for sample in samples {
                let labels = Labels { names: metric.labels, values: &sample.labels };
                match metric.kind {
                    Kind::Info => encoder.encode_info(&labels)?,
                    _ if metric.labels.is_empty() => sample.encode(metric.kind, &mut encoder)?,
                    _ => sample.encode(metric.kind, &mut encoder.encode_family(&labels)?)?,
                }
            }
        }
        self.custom.iter().try_for_each(|family| family.encode(&mut encoder))
    }
}

impl Sample {
    fn encode(&self, kind: Kind, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        match (kind, self.value) {
            (Kind::Counter, Value::Count(count)) => {
                encoder.encode_counter::<NoLabelSet, _, u64>(&count, None)
            }
            (Kind::Counter, Value::Number(number)) => {
                encoder.encode_counter::<NoLabelSet, _, u64>(&number, None)
            }
            (_, Value::Count(count)) => encoder.encode_gauge(&count),
            (_, Value::Number(number)) => encoder.encode_gauge(&number),
        }
    }
}

struct Labels<'a> {
    names: &'static [&'static str],
    values: &'a [Label],
}

impl EncodeLabelSet for Labels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.names
            .iter()
            .zip(self.values)
            .try_for_each(|(name, value)| EncodeLabel::encode(&(*name, &**value), encoder.encode_label()))
    }
}

impl From<u64> for Value {
    fn from(count: u64) -> Self {
        Value::Count(count)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Number(number)
    }
}

impl From<usize> for Value {
    fn from(count: usize) -> Self {
        Value::Count(count as u64)
    }
}

impl From<bool> for Value {
    fn from(holds: bool) -> Self {
        Value::Count(holds.into())
    }
}

/// How a page is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus 0.0.4, which `promtool` and the textfile collector read.
    Text,
}

impl Format {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A page of OpenMetrics in this format. In the older one a metric has the name of its samples, there are no units, and
    /// what says something only is a gauge.
    pub(crate) fn of(self, page: String) -> String {
        if self == Format::OpenMetrics {
            return page;
        }
        let mut text = String::with_capacity(page.len());
        let mut help = "";
        for line in page.lines() {
            if let Some(said) = line.strip_prefix("# HELP ") {
                help = said;
            } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|of| of.split_once(' '))
            {
                let said = help.strip_prefix(name).unwrap_or_default();
                let (end, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    _ => ("", kind),
                };
                text += &format!("# HELP {name}{end}{said}\n# TYPE {name}{end} {kind}\n");
            } else if !line.starts_with('#') {
                text += line;
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::catalogue::{BUILD, PEER_DROPPED, PEER_SENT, UPLINK_WORKS};

    fn label(text: &str) -> Label {
        text.into()
    }

    #[test]
    fn a_page_in_both_formats() {
        let mut page = Page::default();
        page.add(&BUILD, &[&label("0.1.0")], true);
        page.add(&PEER_SENT, &[&label("mt6d0"), &label("site-b")], 12u64);
        page.add(&UPLINK_WORKS, &[&label("fibre"), &label("eth0")], false);
        let page = page.text();
        assert_eq!(
            page,
            "# HELP sidestep_build The program that exports these metrics\n\
             # TYPE sidestep_build info\n\
             sidestep_build_info{version=\"0.1.0\"} 1\n\
             # HELP sidestep_peer_sent_bytes Their bytes\n\
             # TYPE sidestep_peer_sent_bytes counter\n\
             # UNIT sidestep_peer_sent_bytes bytes\n\
             sidestep_peer_sent_bytes_total{tunnel=\"mt6d0\",peer=\"site-b\"} 12\n\
             # HELP sidestep_uplink_works Whether it leads to the Internet, as far as is known\n\
             # TYPE sidestep_uplink_works gauge\n\
             sidestep_uplink_works{uplink=\"fibre\",interface=\"eth0\"} 0\n\
             # EOF\n"
        );
        assert_eq!(
            Format::Text.of(page),
            "# HELP sidestep_build_info The program that exports these metrics\n\
             # TYPE sidestep_build_info gauge\n\
             sidestep_build_info{version=\"0.1.0\"} 1\n\
             # HELP sidestep_peer_sent_bytes_total Their bytes\n\
             # TYPE sidestep_peer_sent_bytes_total counter\n\
             sidestep_peer_sent_bytes_total{tunnel=\"mt6d0\",peer=\"site-b\"} 12\n\
             # HELP sidestep_uplink_works Whether it leads to the Internet, as far as is known\n\
             # TYPE sidestep_uplink_works gauge\n\
             sidestep_uplink_works{uplink=\"fibre\",interface=\"eth0\"} 0\n"
        );
    }

    #[test]
    fn names_are_those_of_the_conventions() {
        let mut seen = HashSet::new();
        for metric in ALL {
            assert!(seen.insert(metric.name), "{} is there twice", metric.name);
            // Digits are in names of protocols.
            let may_be = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            let words = |text: &str| text.bytes().all(may_be);
            assert!(words(metric.name) && metric.labels.iter().all(|label| words(label)), "{}", metric.name);
            assert!(!metric.name.ends_with("_total") && !metric.name.ends_with("_info"), "{}", metric.name);
            assert!(matches!(metric.unit, None | Some("seconds" | "bytes")), "{}", metric.name);
            assert!(!metric.help().is_empty() && !metric.help().ends_with('.'), "{}", metric.name);
            assert!(!metric.help().contains(['\\', '\n']), "{}", metric.name);
        }
    }

    /// The value of a label, as a reader takes it out of a line.
    fn read_back(line: &str, name: &str) -> Option<String> {
        let mut rest = line.split_once(&format!("{name}=\""))?.1.chars();
        let mut value = String::new();
        loop {
            match rest.next()? {
                '"' => return Some(value),
                '\\' => value.push(match rest.next()? {
                    'n' => '\n',
                    other => other,
                }),
                other => value.push(other),
            }
        }
    }

    proptest! {
        /// Whatever a name is: one line for a sample, and the name comes back.
        #[test]
        fn no_label_breaks_out_of_its_line(text in any::<String>()) {
            let mut page = Page::default();
            page.add(&PEER_DROPPED, &[&label("t"), &label("p"), &label(&text)], 1u64);
            let page = page.text();
            let line = page.split('\n').find(|line| !line.starts_with('#')).unwrap();
            prop_assert_eq!(page.split('\n').filter(|line| !line.is_empty() && !line.starts_with('#')).count(), 1);
            prop_assert!(line.ends_with(" 1"));
            prop_assert_eq!(read_back(line, "reason"), Some(text));
        }
    }
}

//! The results as tables, and these as text and as Markdown.

use crate::comparison::measure::STEADY;
use crate::comparison::results::{GROUPS, Group, Metric, Results};
use std::time::Duration;

/// A table whose first column says what a row is about.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) title: String,
    /// How it was measured, how to read it.
    pub(crate) how: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// All tables that have something to say.
pub(crate) fn all(results: &Results) -> Vec<Table> {
    let groups = GROUPS.iter().flat_map(|group| [values(results, group), ratios(results, group)]);
    groups.chain([steady(results), peers(results)]).filter(|table| !table.rows.is_empty()).collect()
}

/// Medians with the lowest and the highest repetition.
pub(crate) fn values(results: &Results, group: &Group) -> Table {
    let rows = rows(results, group, |contender, metric| {
        let Some(summary) = results.summary(contender, metric) else { return "–".into() };
        let more = if results.limited(contender, metric) { "≥ " } else { "" };
        let (median, min, max) = (number(summary.median), number(summary.min), number(summary.max));
        if min == max { format!("{more}{median}") } else { format!("{more}{median} ({min}–{max})") }
    });
    let title = format!("{}, {}", group.title, group.unit);
    Table {
        title,
        how: format!("{} Median (lowest–highest).", group.how),
        header: header(results, group),
        rows,
    }
}

/// The same as multiples of two contenders that everybody knows.
pub(crate) fn ratios(results: &Results, group: &Group) -> Table {
    let bases: Vec<&str> =
        results.bases().into_iter().filter(|base| has_values(results, group, base)).collect();
    let rows = if bases.is_empty() {
        Vec::new()
    } else {
        rows(results, group, |contender, metric| {
            let ratios = bases.iter().map(|base| {
                results
                    .ratio(contender, base, metric)
                    .map_or("–".into(), |ratio| format!("{}×", multiple(ratio)))
            });
            ratios.collect::<Vec<_>>().join(" / ")
        })
    };
    let better = if group.higher_is_better { "more" } else { "less" };
    Table {
        title: format!("{}: of {}", group.title, bases.join(" / of ")),
        how: format!("Medians of the ratios within each repetition; {better} is better."),
        header: header(results, group),
        rows,
    }
}

/// What a steady stream loses, of all repetitions together.
pub(crate) fn steady(results: &Results) -> Table {
    let columns = [("1200 bytes", "steady"), ("1200 bytes, in batches", "steady_batched")];
    let cell = |name: &str, key: &str| {
        let [lost, sent] = ["lost", "sent"].map(|what| results.sum(name, &format!("{key}_{what}")));
        let rate = results.summary(name, &format!("{key}_rate"))?.median;
        let (lost, sent) = (thousands(lost as u64), thousands(sent as u64));
        Some(format!("{lost} of {sent} ({} thousand/s)", number(rate)))
    };
    let rows = results.contenders.iter().filter_map(|entry| {
        let cells = columns.map(|(_, key)| cell(&entry.name, key));
        cells.iter().any(Option::is_some).then(|| {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or("–".into()));
            std::iter::once(entry.name.clone()).chain(cells).collect()
        })
    });
    Table {
        title: "UDP datagrams lost at 80 % of the rate without loss".into(),
        how: format!(
            "A stream of {} s at 80 % of the rate that the same repetition found above (the median is in brackets); lost \
             and sent in all repetitions.",
            STEADY.as_secs()
        ),
        header: ["contender"].into_iter().chain(columns.map(|(title, _)| title)).map(str::to_owned).collect(),
        rows: rows.collect(),
    }
}

/// One gateway with many peers.
pub(crate) fn peers(results: &Results) -> Table {
    let rows = results.peers.iter().map(|one| {
        vec![
            one.contender.clone(),
            thousands(u64::from(one.peers)),
            number(one.resident_mb),
            format!("{:.1} %", one.idle_share * 100.0),
            format!("{:.0}", one.p50_us),
            format!("{:.0}", one.p99_us),
            format!("{:.1}", one.start_s),
        ]
    });
    let header = [
        "contender",
        "peers",
        "resident MB",
        "processor, idle",
        "echo p50 µs",
        "echo p99 µs",
        "there after s",
    ];
    Table {
        title: "One gateway with many peers".into(),
        how: "Configured peers of one gateway, of whom one is there and the others never answer. Idle: without traffic. \
              Echoes go to the one that is there, every 2 ms. There after: from the start until the first packet came \
              through."
            .into(),
        header: header.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

fn header(results: &Results, group: &Group) -> Vec<String> {
    let titles = measured(results, group).map(|metric| metric.title.to_owned());
    std::iter::once("contender".to_owned()).chain(titles).collect()
}

/// What was measured of anybody: a short run has fewer columns.
fn measured<'a>(results: &'a Results, group: &'a Group) -> impl Iterator<Item = &'a Metric> {
    let of_anybody = |metric: &&Metric| {
        results.contenders.iter().any(|one| results.summary(&one.name, metric.key).is_some())
    };
    group.metrics.iter().filter(of_anybody)
}

fn rows(results: &Results, group: &Group, cell: impl Fn(&str, &str) -> String) -> Vec<Vec<String>> {
    let contenders = results.contenders.iter().map(|entry| entry.name.as_str());
    let with_values = contenders.filter(|name| has_values(results, group, name));
    with_values
        .map(|name| {
            let cells = measured(results, group).map(|metric| cell(name, metric.key));
            std::iter::once(name.to_owned()).chain(cells).collect()
        })
        .collect()
}

fn has_values(results: &Results, group: &Group, contender: &str) -> bool {
    group.metrics.iter().any(|metric| results.summary(contender, metric.key).is_some())
}

impl Table {
    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<&Vec<String>> = std::iter::once(&self.header).chain(&self.rows).collect();
        let width = |column: usize| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let lines = lines.into_iter().map(|line| {
            let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") }
            });
            cells.collect::<String>() + "\n"
        });
        format!("{}\n{}", self.title, lines.collect::<String>())
    }

    /// For a page.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rule = format!("|---|{}\n", "--:|".repeat(self.header.len() - 1));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("### {}\n\n{}\n\n{}{rule}{rows}\n", self.title, self.how, line(&self.header))
    }
}

/// A number with three digits or so that mean something.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 999.5 => thousands(value.round() as u64),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A ratio with two digits behind the point; more where it is small, none where it is large.
pub(crate) fn multiple(ratio: f64) -> String {
    match ratio {
        small if small < 0.0995 => format!("{small:.3}"),
        usual if usual < 9.995 => format!("{usual:.2}"),
        large => format!("{large:.0}"),
    }
}

/// With a comma before every three digits.
pub(crate) fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|g| str::from_utf8(g).ok()).collect();
    groups.join(",")
}

/// A time for people.
pub(crate) fn time(seconds: f64) -> String {
    let whole = Duration::from_secs_f64(seconds.clamp(0.0, 1e9)).as_secs();
    match whole {
        0..120 => format!("{whole} s"),
        120..7_200 => format!("{} min", whole / 60),
        7_200..172_800 => format!("{:.1} h", seconds / 3_600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::results::Sample;
    use crate::comparison::results::tests::example;

    #[test]
    fn medians_spread_and_ratios_are_shown() {
        let tables = all(&example());
        let text: String = tables.iter().map(Table::text).collect();
        assert!(text.contains("3,000 (2,000–4,000)") && text.contains("0.50×"), "{text}");
        assert_eq!(tables.len(), 2, "tables without values are left out");
        assert!(tables[0].markdown().contains("| sidestep | 3,000 (2,000–4,000) |"));
    }

    #[test]
    fn a_steady_streams_losses_are_added_up() {
        let mut results = example();
        for repetition in [1, 2] {
            for (metric, value) in [
                ("steady_lost", 3.0),
                ("steady_sent", 60_000.0),
                ("steady_rate", 10.0 * f64::from(repetition)),
            ] {
                let (contender, metric) = ("sidestep".into(), metric.into());
                results.samples.push(Sample { contender, metric, repetition, value, limited: false });
            }
        }
        let table = steady(&results);
        assert_eq!(table.rows, [["sidestep", "6 of 120,000 (15.0 thousand/s)", "–"]]);
    }

    #[test]
    fn numbers_have_about_three_digits() {
        let texts = [1_234_567.0, 999.7, 123.4, 12.34, 1.234, 0.1234].map(number);
        assert_eq!(texts, ["1,234,567", "1,000", "123", "12.3", "1.23", "0.123"]);
        assert_eq!([0.007, 0.42, 23.4].map(multiple), ["0.007", "0.42", "23"]);
    }
}

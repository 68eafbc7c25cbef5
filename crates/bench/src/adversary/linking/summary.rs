//! Several runs side by side: what it costs to show less (docs/unlinkability.md).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lab::Error;
use maud::Markup;

use super::options::Settings;
use super::verdict::{Run, Verdict, percent};
use crate::chart;
use crate::comparison::docs;

/// Runs, and where the table of them goes.
#[derive(Clone, Debug, Args)]
pub(crate) struct SummaryOptions {
    /// What `--json` wrote; runs that differ in nothing but the seed are one row
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Draw the areas under the curve over the bytes into this file
    #[arg(long, value_name = "SVG")]
    figure: Option<PathBuf>,
    /// Put the table between the marks of this name in `--docs`
    #[arg(long, default_value = "summary")]
    mark: String,
    /// Put the table into this Markdown page
    #[arg(long)]
    docs: Option<PathBuf>,
}

/// Writes the table of finished runs.
///
/// # Errors
/// When a file cannot be read or written.
pub(crate) fn run(options: &SummaryOptions) -> Result<ExitCode, Error> {
    let runs = options.runs.iter().map(|path| Run::open(path)).collect::<Result<Vec<_>, _>>()?;
    let rows = rows(&runs);
    let text = markdown(&rows);
    print!("{text}");
    if let Some(page) = &options.docs {
        docs::between(&options.mark, &text, page)?;
    }
    if let Some(path) = &options.figure {
        std::fs::write(path, figure(&rows)).map_err(|source| Error::file(path, source))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs of the same settings, but for the seed.
struct Row<'a> {
    settings: Settings,
    runs: Vec<&'a Run>,
    /// Bytes beside those of the same pairs and traffic without further lines of configuration, if they are among the runs.
    bytes: Option<f64>,
}

fn rows(runs: &[Run]) -> Vec<Row<'_>> {
    let mut by_settings: BTreeMap<Settings, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        by_settings.entry(Settings { seed: 0, ..run.settings.clone() }).or_default().push(run);
    }
    let rate =
        |runs: &[&Run]| mean(runs.iter().map(|run| run.found.bytes as f64 / f64::from(run.settings.seconds)));
    let plain: Vec<(Settings, f64)> = by_settings
        .iter()
        .filter(|(settings, _)| settings.peer.is_empty())
        .map(|(settings, runs)| (settings.clone(), rate(runs)))
        .collect();
    let mut rows: Vec<Row> = by_settings
        .into_iter()
        .map(|(settings, runs)| {
            let same = |other: &Settings| other.pairs == settings.pairs && other.traffic == settings.traffic;
            let plain = plain.iter().find(|(other, _)| same(other));
            let bytes = plain.map(|(_, plain)| rate(&runs) / plain);
            Row { settings, runs, bytes }
        })
        .collect();
    rows.sort_by(|a, b| {
        let key = |row: &Row| (row.settings.pairs, row.settings.traffic.clone());
        key(a).cmp(&key(b)).then(a.bytes.unwrap_or_default().total_cmp(&b.bytes.unwrap_or_default()))
    });
    rows
}

impl Row<'_> {
    fn name(&self) -> String {
        let peer: Vec<_> = self.settings.peer.iter().map(|line| format!("`{line}`")).collect();
        if peer.is_empty() { "as by default".to_owned() } else { peer.join(", ") }
    }

    /// Of each run with such a verdict.
    fn each(&self, question: &str, value: impl Fn(&Verdict) -> Option<f64>) -> Vec<f64> {
        self.runs.iter().filter_map(|run| run.found.best(question).and_then(&value)).collect()
    }

    fn cells(&self, question: &str) -> String {
        let area = self.each(question, |verdict| verdict.auc);
        let first = self.each(question, |verdict| Some(verdict.first));
        format!("{} | {}", spread(&area, |x| format!("{x:.2}"), ""), spread(&first, percent, " %"))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = values.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    sum / f64::from(count.max(1))
}

/// The mean, and the least and the greatest of several.
fn spread(values: &[f64], text: impl Fn(f64) -> String, unit: &str) -> String {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match values {
        [] => String::new(),
        [one] => format!("{}{unit}", text(*one)),
        _ => format!("{}{unit} ({} to {})", text(mean(values.iter().copied())), text(least), text(most)),
    }
}

fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| pairs | carry | shape | lanes | seeds | bytes | wait, ms: half, 99 % | given up | next flow: AUC | first choice | \
         at the same time: AUC | first choice | kind of traffic |\n\
         |---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let Settings { pairs, traffic, lanes, .. } = &row.settings;
        let bytes = row.bytes.map_or(String::new(), |bytes| format!("{bytes:.1}×"));
        let delays: Vec<_> = row.runs.iter().filter_map(|run| run.cost.delay_ms()).collect();
        let delay = |which: usize| mean(delays.iter().map(|delay| delay[which]));
        let delay =
            if delays.is_empty() { "0".to_owned() } else { format!("{:.0}, {:.0}", delay(0), delay(1)) };
        let given_up = percent(mean(row.runs.iter().map(|run| run.cost.given_up())));
        let kind = spread(&row.each("kind of traffic", |verdict| Some(verdict.first)), percent, " %");
        let _ = writeln!(
            text,
            "| {pairs} | {traffic} | {} | {lanes} | {} | {bytes} | {delay} | {given_up} % | {} | {} | {kind} |",
            row.name(),
            row.runs.len(),
            row.cells("succession"),
            row.cells("lanes"),
        );
    }
    text
}

/// The first question's area over the bytes, of the pairs and traffic that have most rows: what one buys with the other.
fn figure(rows: &[Row]) -> String {
    let like = |row: &Row| (row.settings.pairs, row.settings.traffic.clone());
    let alike = |row: &&Row| rows.iter().filter(|other| like(other) == like(row)).count();
    let Some(most) = rows.iter().max_by_key(alike).map(like) else { return String::new() };
    let points: Vec<(&Row, f64, f64)> = rows
        .iter()
        .filter(|row| like(row) == most)
        .filter_map(|row| {
            let areas = row.each("succession", |verdict| verdict.auc);
            Some((row, row.bytes?, mean(areas.into_iter())))
        })
        .collect();
    let most = points.iter().map(|(_, bytes, _)| *bytes).fold(1.0, f64::max);
    let mut drawing = chart::time::Chart::new(320.0, (0.0, most * 1.15), (0.4, 1.0)).axes(
        "bytes, beside those without a shape",
        "AUC, next flow (chance: 0.50)",
        6,
    );
    for (row, bytes, area) in points {
        let shape = row.settings.peer.first().map_or("no shape", |line| line.trim_start_matches("shape = "));
        let (class, name) = match shape.trim_matches(['{', '}', ' ']).split_once(" = ") {
            Some(("constant", rate)) => ("b", rate.trim_matches('"').to_owned()),
            Some((_, rate)) => ("a", rate.trim_matches('"').to_owned()),
            None => ("neutral", shape.to_owned()),
        };
        drawing.dot(class, (bytes, area), &name);
    }
    let said = "How well an observer finds the next flow of a pair, over the bytes that hiding it costs";
    standalone(&drawing.svg(said))
}

/// A drawing that is a file of its own, on white: pages that show it have no style for it.
fn standalone(svg: &Markup) -> String {
    const STYLE: &str = "svg { background: #fff; } text { fill: #333; font: 11px sans-serif; } \
        .grid { stroke: #ddd; } .axis { stroke: #999; } \
        .fill.a { fill: #0072b2; } .fill.b { fill: #d55e00; } .fill.neutral { fill: #666; }";
    let begin = format!(" xmlns=\"http://www.w3.org/2000/svg\"><style>{STYLE}</style>");
    svg.clone().into_string().replacen('>', &begin, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> Vec<Run> {
        let run = |shape: Option<&str>, seed: u64, bytes: u64, auc: f64| {
            let peer: Vec<_> = shape.map(|shape| format!("shape = {shape}")).into_iter().collect();
            serde_json::from_value(serde_json::json!({
                "settings": {"pairs": 16, "traffic": "g711", "peer": peer, "lanes": 3, "rotation": "10s", "seconds": 100,
                    "seed": seed},
                "cost": {"delays_ms": [[4.0, 9.0]], "sent": 90, "given_up": 10},
                "flows": 1, "datagrams": 2, "bytes": bytes, "counting": {"pairs": 16, "estimate": 16.0},
                "verdicts": [{"question": "succession", "judge": "all", "asked": 9, "auc": auc, "auc_95": [0.4, 0.6],
                    "first": 0.1, "first_95": [0.0, 0.2], "first_chance": 0.0625}]
            }))
            .unwrap()
        };
        let constant = Some("{ constant = \"2Mbit/s\" }");
        vec![run(constant, 1, 4_000, 0.5), run(None, 1, 1_000, 0.9), run(constant, 2, 4_000, 0.54)]
    }

    #[test]
    fn runs_that_differ_in_the_seed_alone_are_one_row() {
        let runs = runs();
        let text = markdown(&rows(&runs));
        assert_eq!(text.lines().count(), 4, "{text}");
        let row = text.lines().last().unwrap();
        assert!(row.contains("| 2 | 4.0× | 4, 9 | 10.0 % | 0.52 (0.50 to 0.54) | 10.0 %"), "{row}");
    }

    #[test]
    fn the_figure_has_a_point_for_each_row() {
        let runs = runs();
        let drawn = figure(&rows(&runs));
        assert_eq!(drawn.matches("<circle").count(), 2);
        assert!(drawn.starts_with("<svg") && drawn.contains("2Mbit"), "{drawn}");
    }
}

//! The results as tables, a page, and JSON.

use std::fmt::Write as _;
use std::io::Write as _;

use maud::html;

use super::job::Job;
use super::options::ScriptsOptions;
use super::outcome::{Outcome, Taken};
use crate::comparison::contender::NONE;
use crate::comparison::docs::{between, head, one_line};
use crate::comparison::results::Absence;
use crate::comparison::tables::{Table, multiple, number};
use crate::page::{self, STYLE, TABLES_STYLE, document, failed, participants};
use lab::Error;

/// What is measured of a job: the metric and its name.
type Column = (&'static str, &'static str);

const PACKETS: &[Column] =
    &[("packets", "thousand packets/s"), ("p50", "round trip p50, µs"), ("p99", "round trip p99, µs")];
const CONNECTIONS: &[Column] = &[
    ("connections", "connections/s"),
    ("exchanges", "thousand exchanges/s"),
    ("connection_p50", "connection p50, µs"),
    ("p50", "exchange p50, µs"),
];

/// Prints the results, and writes them where they are asked for.
pub(super) fn show(options: &ScriptsOptions, outcome: &Outcome) -> Result<(), Error> {
    let tables = all(outcome);
    let mut out = std::io::stdout().lock();
    for table in &tables {
        // A reader that goes away has what it wanted.
        let _ = writeln!(out, "\n{}", table.text().trim_end());
    }
    let failures = failures(outcome);
    for line in
        outcome.results.interrupted.iter().map(|how| format!("Interrupted: {how}")).chain(failures.clone())
    {
        let _ = writeln!(out, "\n{line}");
    }
    let json = serde_json::to_vec_pretty(outcome).map_err(|error| Error::output("measurements", error))?;
    if let Some(path) = &options.json {
        std::fs::write(path, &json).map_err(|source| Error::file(path, source))?;
    }
    if let Some(directory) = &options.report {
        std::fs::create_dir_all(directory).map_err(|source| Error::file(directory, source))?;
        let page = page(outcome, &tables, &failures);
        for (name, bytes) in [("data.json", json), ("index.html", page.into_bytes())] {
            let path = directory.join(name);
            std::fs::write(&path, bytes).map_err(|source| Error::file(path, source))?;
        }
    }
    options.docs.as_deref().map_or(Ok(()), |path| between("scripts", &markdown(outcome, &tables), path))
}

fn all(outcome: &Outcome) -> Vec<Table> {
    Job::ALL.into_iter().filter_map(|job| of(outcome, job)).chain(cannot(outcome)).collect()
}

/// A job's table, a row for each who does it.
fn of(outcome: &Outcome, job: Job) -> Option<Table> {
    let columns = if job.is_tcp() { CONNECTIONS } else { PACKETS };
    let does = outcome.parts.iter().filter(|part| part.job == job && part.cannot.is_none());
    let rows: Vec<Vec<String>> = does.map(|part| row(outcome, part, columns)).collect();
    let notes = outcome.parts.iter().filter(|part| part.job == job).filter_map(|part| {
        let note = part.note.as_ref()?;
        Some(format!(" `{}` {note}.", part.contender))
    });
    let how = format!("{}{}", job.about(), notes.collect::<String>());
    let titles = ["contender", "lines"].into_iter().chain(columns.iter().map(|(_, title)| *title));
    let header = titles.map(str::to_owned).collect();
    (!rows.is_empty()).then(|| Table { title: job.title().to_owned(), how, header, rows })
}

fn row(outcome: &Outcome, part: &Taken, columns: &[Column]) -> Vec<String> {
    let (name, results) = (part.contender.as_str(), &outcome.results);
    let lines = match (part.lines, part.loader_lines) {
        (0, _) => "–".to_owned(),
        (lines, None) => lines.to_string(),
        (lines, Some(loader)) => format!("{lines} + {loader}"),
    };
    let cell = |(metric, _): &Column| {
        let metric = format!("{}_{metric}", part.job.name());
        let Some(summary) = results.summary(name, &metric) else {
            return if part.failed.is_some() { "does not do it" } else { "–" }.to_owned();
        };
        let median = number(summary.median);
        if name == NONE {
            return median;
        }
        results.ratios(name, NONE, &metric).map_or(median.clone(), |ratio| {
            let [of, least, most] = [ratio.median, ratio.min, ratio.max].map(multiple);
            format!("{median}, {of}× ({least}–{most})")
        })
    };
    [name.to_owned(), lines].into_iter().chain(columns.iter().map(cell)).collect()
}

/// Who cannot do what, and why.
fn cannot(outcome: &Outcome) -> Option<Table> {
    let row = |part: &Taken| {
        let why = part.cannot.clone()?;
        Some(vec![part.contender.clone(), part.job.title().to_owned(), why])
    };
    let rows: Vec<Vec<String>> = outcome.parts.iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table {
        title: "Who cannot".to_owned(),
        how: String::new(),
        header: ["contender", "what", "why"].map(str::to_owned).to_vec(),
        rows,
    })
}

fn failures(outcome: &Outcome) -> Vec<String> {
    let line = |Absence { what, why }: &Absence| format!("{what}: {}", one_line(why));
    let of_part = |part: &Taken| {
        let why = part.failed.as_ref()?;
        Some(format!("{} does not do the job, {}: {}", part.contender, part.job.title(), one_line(why)))
    };
    outcome.parts.iter().filter_map(of_part).chain(outcome.results.failures.iter().map(line)).collect()
}

fn markdown(outcome: &Outcome, tables: &[Table]) -> String {
    let mut text = head(&outcome.results);
    tables.iter().for_each(|table| text.push_str(&table.markdown()));
    let failures = failures(outcome);
    if !failures.is_empty() {
        let _ = writeln!(text, "### What failed\n\n- {}\n", failures.join("\n- "));
    }
    text
}

fn page(outcome: &Outcome, tables: &[Table], failures: &[String]) -> String {
    let results = &outcome.results;
    let entries = results.contenders.iter().map(|entry| (entry.name.as_str(), entry.about.as_str()));
    let left_out = results.left_out.iter().map(|absence| (absence.what.as_str(), absence.why.as_str()));
    let body = html! {
        header {
            h1 { "Packet scripts beside their peers" }
            p.lead { (results.machine) ". " (results.settings) "." }
            @if let Some(how_far) = &results.interrupted { p.lead { "Interrupted: " (how_far) "." } }
        }
        (participants("Contenders", entries, left_out))
        @for table in tables { section { h2 { (table.title) } p { (page::prose(&table.how)) } (page::table(table)) } }
        (failed(failures))
        footer { "Sidestep " (results.version) ". All values are in data.json beside this page." }
    };
    document("Sidestep: packet scripts beside their peers", &[STYLE, TABLES_STYLE], &body)
}

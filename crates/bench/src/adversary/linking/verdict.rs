//! What the judges say (`reference/adversary.py`), as a table and as a page.

use std::fmt::Write as _;
use std::path::Path;

use lab::Error;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use super::cost::Cost;
use super::options::Settings;
use crate::chart::bars::{self, Bar};
use crate::{chart, page};

/// What is known of one run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) settings: Settings,
    pub(super) cost: Cost,
    #[serde(flatten)]
    pub(super) found: Verdicts,
}

/// All of a recording.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Verdicts {
    /// Flows that were seen from beginning to end.
    flows: u64,
    datagrams: u64,
    pub(super) bytes: u64,
    verdicts: Vec<Verdict>,
    counting: Counting,
}

/// What one judge finds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Verdict {
    question: String,
    judge: String,
    /// How often he was asked.
    asked: u64,
    /// The area under the curve, and where it is with 95 %; chance is 0.5.
    pub(super) auc: Option<f64>,
    auc_95: Option<[f64; 2]>,
    /// How often his first choice is right, where that is with 95 %, and what chance is.
    pub(super) first: f64,
    first_95: [f64; 2],
    first_chance: f64,
}

/// How many pairs there are, and how many he thinks.
#[derive(Debug, Serialize, Deserialize)]
struct Counting {
    pairs: u64,
    estimate: f64,
}

impl Run {
    /// From what `--json` wrote.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read(path).map_err(|source| Error::file(path, source))?;
        serde_json::from_slice(&text)
            .map_err(|error| Error::output("verdicts", format!("{}: {error}", path.display())))
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// When that cannot be done.
    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::output("verdicts", error))?;
        std::fs::write(path, text).map_err(|source| Error::file(path, source))
    }

    /// What was judged, and a table, for a Markdown page.
    pub(super) fn markdown(&self) -> String {
        format!("{}\n{}\n{}", self.settings, self.cost, self.found.markdown())
    }

    /// A page with a plot for each question.
    pub(super) fn page(&self) -> String {
        self.found.page(&format!("{} {}", self.settings, self.cost))
    }
}

impl Verdicts {
    /// What a judge found who looks at everything.
    pub(super) fn best(&self, question: &str) -> Option<&Verdict> {
        self.of(question).find(|verdict| verdict.judge == "all")
    }

    /// From what the judges printed.
    ///
    /// # Errors
    /// When it is something else.
    pub(super) fn read(text: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(text).map_err(|error| Error::output("reference/adversary.py", error))
    }

    /// A table for a Markdown page.
    fn markdown(&self) -> String {
        let mut text = format!(
            "{} flows, {} datagrams, {:.1} MB.\n\n| question | judge | asked | AUC (95 %) | first choice is right (95 %) | chance |\n\
             |---|---|---:|---:|---:|---:|\n",
            self.flows,
            self.datagrams,
            self.bytes as f64 / 1e6
        );
        for verdict in &self.verdicts {
            let Verdict { question, judge, asked, first, first_95: [low, high], first_chance, .. } = verdict;
            let auc = match (verdict.auc, verdict.auc_95) {
                (Some(auc), Some([low, high])) => format!("{auc:.2} ({low:.2} to {high:.2})"),
                _ => String::new(),
            };
            let _ = writeln!(
                text,
                "| {question} | {judge} | {asked} | {auc} | {} % ({} to {}) | {} % |",
                percent(*first),
                percent(*low),
                percent(*high),
                percent(*first_chance),
            );
        }
        let Counting { pairs, estimate } = self.counting;
        let _ = writeln!(
            text,
            "\nPairs, counted by how many flows live at a time: {estimate:.1}; there are {pairs}."
        );
        text
    }

    /// A page with a plot for each question.
    fn page(&self, settings: &str) -> String {
        let mut questions: Vec<&str> =
            self.verdicts.iter().map(|verdict| verdict.question.as_str()).collect();
        questions.dedup();
        let body = html! {
            h1 { "What an observer of the path can follow" }
            p { (page::prose(settings)) }
            div.plots {
                @for question in questions { (self.areas(question)) (self.choices(question)) }
            }
            p {
                (format!("Pairs, counted by how many flows live at a time: {:.1}; there are {}.",
                    self.counting.estimate, self.counting.pairs))
            }
        };
        page::document("Adversary", &[page::STYLE, page::TABLES_STYLE], &body)
    }

    fn of<'a>(&'a self, question: &str) -> impl Iterator<Item = &'a Verdict> {
        self.verdicts.iter().filter(move |verdict| verdict.question == question)
    }

    fn areas(&self, question: &str) -> Markup {
        let bars: Vec<Bar> = self
            .of(question)
            .filter_map(|verdict| {
                Some(bar(&verdict.judge, verdict.auc?, verdict.auc_95?, format!("{:.2}", verdict.auc?)))
            })
            .collect();
        if bars.is_empty() {
            return html! {};
        }
        let caption = format!("{question}: area under the curve (chance: 0.5)");
        chart::figure(&caption, &html! {}, &bars::svg(&bars, &caption))
    }

    fn choices(&self, question: &str) -> Markup {
        let chance = self.of(question).map(|verdict| verdict.first_chance).next().unwrap_or_default();
        let bars: Vec<Bar> = self
            .of(question)
            .map(|verdict| {
                bar(&verdict.judge, verdict.first, verdict.first_95, format!("{} %", percent(verdict.first)))
            })
            .collect();
        let caption =
            format!("{question}: how often the first choice is right (chance: {} %)", percent(chance));
        chart::figure(&caption, &html! {}, &bars::svg(&bars, &caption))
    }
}

fn bar(judge: &str, value: f64, [low, high]: [f64; 2], said: String) -> Bar {
    let hint = format!("95 % between {low:.3} and {high:.3}");
    Bar { name: judge.to_owned(), class: "a", value, range: (low, high), hint, said }
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.1}", 100.0 * part)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"{"flows": 3, "datagrams": 40, "bytes": 40000, "counting": {"pairs": 16, "estimate": 15.2},
        "verdicts": [
            {"question": "succession", "judge": "all", "asked": 3, "auc": 0.61, "auc_95": [0.55, 0.7],
             "first": 0.1, "first_95": [0.05, 0.2], "first_chance": 0.0625},
            {"question": "kind of traffic", "judge": "all", "asked": 3, "auc": null, "auc_95": null,
             "first": 0.4, "first_95": [0.2, 0.6], "first_chance": 0.1}]}"#;

    #[test]
    fn each_number_stands_beside_chance() {
        let verdicts = Verdicts::read(SAID.as_bytes()).unwrap();
        let text = verdicts.markdown();
        assert!(
            text.contains("| succession | all | 3 | 0.61 (0.55 to 0.70) | 10.0 % (5.0 to 20.0) | 6.2 % |"),
            "{text}"
        );
        assert!(text.contains("| kind of traffic | all | 3 |  | 40.0 % (20.0 to 60.0) | 10.0 % |"), "{text}");
        let page = verdicts.page("16 pairs, `padding = \"full\"`.");
        assert!(page.contains("succession: area under the curve") && !page.contains("<script"), "{page}");
        assert!(page.contains("16 pairs, <code>padding = &quot;full&quot;</code>."), "{page}");
    }

    #[test]
    fn what_is_no_verdict_is_named() {
        assert!(Verdicts::read(b"Traceback").unwrap_err().to_string().contains("adversary.py"));
    }
}

//! The report: one HTML page that needs nothing else.

use maud::{Markup, html};

use crate::chart::dots;
use crate::comparison::tables::number;
use crate::experiment::plan::{Experiment, USUAL};
use crate::experiment::store::{Place, Store};
use crate::experiment::tables;
use crate::experiment::topics::{Topic, topics};
use crate::page::{self, Card, STYLE, TABLES_STYLE, document, failed, participants, prose};

/// The page.
pub(crate) fn page(store: &Store) -> String {
    let topics = topics(store);
    let body = html! {
        (introduction(store))
        (cards(store))
        p {
            @for (number, topic) in topics.iter().enumerate() {
                @if number > 0 { " · " }
                a href={ "#t" (number) } { (topic.title) }
            }
        }
        (contenders(store))
        @for (number, topic) in topics.iter().enumerate() { (section(number, topic)) }
        (footer(store))
    };
    document("Sidestep: MT6D's test plan, repeated", &[STYLE, TABLES_STYLE, dots::STYLE], &body)
}

fn introduction(store: &Store) -> Markup {
    let experiment = match store.settings.experiment {
        Experiment::All => html! {},
        one => html! { " This run is the part " code { (one.name()) } " of it." },
    };
    let sample = |shape: Markup, text: &str| {
        html! { span { svg width="14" height="14" style="display:inline;width:14px" { (shape) } " " (text) } }
    };
    let ours = |class: &str| html! { circle class={ "dot " (class) } cx="7" cy="7" r="5" {} };
    html! {
        header {
            h1 { "MT6D's test plan, repeated" }
            p.lead {
                "The Moving Target IPv6 Defense was measured twice: as a prototype in Python on a live network ("
                i { "paper" } ", 2012), and when it was rewritten in C (" i { "thesis" } ", 2015). Here is their plan in a \
                 lab of network namespaces on one machine, for Sidestep, for the classic profile, which is MT6D as it was \
                 published, for its reference in Python, and for what people use otherwise." (experiment)
                " Their machines were more than ten years older, and their networks real: compare what rotation does to \
                 each, not milliseconds with milliseconds."
            }
            p.lead { (tables::setting(store)) }
            div.legend {
                (sample(ours("a"), "Sidestep"))
                (sample(ours("neutral"), "other tunnels"))
                (sample(ours("faint"), "no tunnel"))
                (sample(html! { path class="dot b" d="M7 1L13 7L7 13L1 7Z" {} }, "published"))
            }
            p {
                "Dots are means of the runs, black lines their 95 % confidence intervals (Student's t); grey lines reach \
                 from the least to the greatest single value."
            }
        }
    }
}

/// What most readers look for: Sidestep, and what the documents had.
fn cards(store: &Store) -> Markup {
    let topology = store.settings.topology.unwrap_or_default();
    let wanted = [
        (
            "ping_std_1k",
            "loss_percent",
            "%",
            "of pings lost while addresses rotate",
            "published: 0.11 (C), 2.32 and 10.16 (Python)",
        ),
        (
            "ping_flood_50k",
            "loss_percent",
            "%",
            "of a flood of 50,000 lost",
            "published: 0.17 (C), more than 90 (Python)",
        ),
        ("ping_flood_50k", "avg_ms", "ms", "round trip in a flood", "published: 0.43 (C); 2.7 (prototype)"),
        ("http_500M", "mb_per_s", "MB/s", "download of 500 MB", "published: 11.6 (C), 0.018 (Python)"),
        ("voip", "g711_mos", "MOS", "a call, estimated", "the most that the E-model gives is 4.4"),
        ("video", "stalls", "stalls", "of a film in 720p", "published: four in ten minutes"),
    ];
    page::cards(wanted.into_iter().filter_map(|(test, value, unit, name, detail)| {
        let place = Place { topology, rotation: USUAL, contender: "sidestep".into(), test: test.into() };
        let mean = store.mean(&place, value)?;
        let shown = if mean.value == 0.0 { "0".into() } else { number(mean.value) };
        let (value, detail) = (format!("{shown} {unit}"), format!("Sidestep; {detail}"));
        Some(Card { value, name: name.to_owned(), detail })
    }))
}

/// Who takes part, and who does not.
pub(crate) fn contenders(store: &Store) -> Markup {
    let settings = &store.settings;
    let entries = settings.contenders.iter().map(|entry| (entry.name.as_str(), entry.about.as_str()));
    let left_out = settings.left_out.iter().map(|absence| (absence.what.as_str(), absence.why.as_str()));
    participants("Who takes part", entries, left_out)
}

fn section(number: usize, topic: &Topic) -> Markup {
    html! {
        section id={ "t" (number) } {
            h2 { (topic.title) }
            p.lead { (prose(&topic.about)) }
            div.plots { @for plot in &topic.plots { (plot) } }
            @for table in &topic.tables {
                h3 { (table.title) }
                (page::table(table))
            }
        }
    }
}

fn footer(store: &Store) -> Markup {
    html! {
        (failed(&tables::failures(store)))
        section {
            h2 { "What was published" }
            p { "Every number that the documents' text still has, in the units of the tables above." }
            details { summary { "Show" } (page::table(&tables::published())) }
        }
        section {
            h2 { "What the documents' text has lost" }
            p { "No value of these is guessed here." }
            (page::table(&tables::lost()))
        }
        footer {
            "Sidestep " (store.settings.version) ". Every measurement is in a file of its own in raw/ beside this page."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::plan::Test;
    use crate::experiment::store::tests::{measurement, settings, task};

    #[test]
    fn the_page_needs_nothing_else_and_shows_theirs_beside_ours() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut store = Store::open(directory.path(), settings()).expect("a store");
        let task = task("sidestep", Test::PingStd, 1);
        let values = [("avg_ms", 1.0), ("loss_percent", 0.0)];
        store.keep(task.key(), measurement(&task, &values)).expect("kept");
        let page = page(&store);
        assert!(page.contains("paper: Python, encrypted") && page.contains("10.2"), "theirs");
        assert!(page.contains("<div class=\"value\">0 %</div>") && page.contains("left out: not installed"));
        assert!(!page.contains("<about>") && !page.contains("http://") && !page.contains("<script"));
    }
}

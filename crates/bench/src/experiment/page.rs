//! The report: one HTML page that needs nothing else.

use std::fmt::Write as _;

use crate::chart::{escape, prose};
use crate::comparison::page::{OWN_STYLE, STYLE, html};
use crate::experiment::plan::{Experiment, USUAL};
use crate::experiment::plot;
use crate::experiment::store::{Place, Store};
use crate::experiment::tables;
use crate::experiment::topics::{Topic, topics};

/// The page.
pub(crate) fn page(store: &Store) -> String {
    let topics = topics(store);
    let contents: String = topics
        .iter()
        .enumerate()
        .map(|(number, topic)| format!("<a href=\"#t{number}\">{}</a>", escape(&topic.title)))
        .collect::<Vec<_>>()
        .join(" · ");
    let sections: String = topics.iter().enumerate().map(|(number, topic)| section(number, topic)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Sidestep: MT6D's test plan, repeated</title>\n<style>\n{STYLE}{OWN_STYLE}{}</style>\n</head>\n<body>\n\
         {}{}<p>{contents}</p>\n{}{sections}{}</body>\n</html>\n",
        plot::STYLE,
        introduction(store),
        cards(store),
        contenders(store),
        footer(store),
    )
}

fn introduction(store: &Store) -> String {
    let experiment = match store.settings.experiment {
        Experiment::All => String::new(),
        one => format!(" This run is the part <code>{}</code> of it.", escape(&one.name())),
    };
    format!(
        "<header>\n<h1>MT6D's test plan, repeated</h1>\n<p class=\"lead\">The Moving Target IPv6 Defense was measured \
         twice: as a prototype in Python on a live network (<i>paper</i>, 2012), and when it was rewritten in C \
         (<i>thesis</i>, 2015). Here is their plan in a lab of network namespaces on one machine, for Sidestep, for the \
         classic profile, which is MT6D as it was published, for its reference in Python, and for what people use \
         otherwise.{experiment} Their machines were more than ten years older, and their networks real: \
         compare what rotation does to each, not milliseconds with milliseconds.</p>\n<p class=\"lead\">{}</p>\n<div class=\"legend\">\
         {}{}{}{}</div>\n<p>Dots are means of the runs, black lines their 95 % confidence intervals (Student's t); grey lines \
         reach from the least to the greatest single value.</p>\n</header>\n",
        escape(&tables::setting(store)),
        legend("a", "Sidestep"),
        legend("neutral", "other tunnels"),
        legend("faint", "no tunnel"),
        "<span><svg width=\"14\" height=\"14\" style=\"display:inline;width:14px\"><path class=\"dot b\" d=\"M7 1L13 \
         7L7 13L1 7Z\"/></svg> published</span>",
    )
}

fn legend(class: &str, text: &str) -> String {
    format!(
        "<span><svg width=\"14\" height=\"14\" style=\"display:inline;width:14px\"><circle class=\"dot {class}\" \
         cx=\"7\" cy=\"7\" r=\"5\"/></svg> {text}</span>"
    )
}

/// What most readers look for: Sidestep, and what the documents had.
fn cards(store: &Store) -> String {
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
    let mut text = String::new();
    for (test, value, unit, name, detail) in wanted {
        let place = Place { topology, rotation: USUAL, contender: "sidestep".into(), test: test.into() };
        let Some(mean) = store.mean(&place, value) else { continue };
        let shown =
            if mean.value == 0.0 { "0".into() } else { crate::comparison::tables::number(mean.value) };
        let _ = writeln!(
            text,
            "<div class=\"card\"><div class=\"value\">{shown} {unit}</div><div class=\"name\">{name}</div>\
             <div class=\"detail\">Sidestep; {detail}</div></div>"
        );
    }
    format!("<section class=\"cards\">\n{text}</section>\n")
}

pub(crate) fn contenders(store: &Store) -> String {
    let mut rows = String::new();
    for entry in &store.settings.contenders {
        let (name, about) = (escape(&entry.name), prose(&entry.about));
        let _ = writeln!(rows, "<tr><th>{name}</th><td class=\"text\">{about}</td></tr>");
    }
    for absence in &store.settings.left_out {
        let (what, why) = (escape(&absence.what), prose(&absence.why));
        let _ = writeln!(rows, "<tr><th>{what}</th><td class=\"text\">left out: {why}</td></tr>");
    }
    format!("<section>\n<h2>Who takes part</h2>\n<table>\n{rows}</table>\n</section>\n")
}

pub(crate) fn section(number: usize, topic: &Topic) -> String {
    let tables: String = topic
        .tables
        .iter()
        .map(|table| format!("<h3>{}</h3>\n{}", escape(&table.title), html(table)))
        .collect();
    format!(
        "<section id=\"t{number}\">\n<h2>{}</h2>\n<p class=\"lead\">{}</p>\n<div class=\"plots\">\n{}</div>\n{tables}</section>\n",
        escape(&topic.title),
        prose(&topic.about),
        topic.plots.concat(),
    )
}

fn footer(store: &Store) -> String {
    let failures: String =
        tables::failures(store).iter().map(|one| format!("<li>{}</li>\n", escape(one))).collect();
    let failures = if failures.is_empty() {
        String::new()
    } else {
        format!("<section>\n<h2>What failed</h2>\n<ul>\n{failures}</ul>\n</section>\n")
    };
    format!(
        "{failures}<section>\n<h2>What was published</h2>\n<p>Every number that the documents' text still has, in the \
         units of the tables above.</p>\n<details><summary>Show</summary>\n{}</details>\n</section>\n<section>\n\
         <h2>What the documents' text has lost</h2>\n<p>No value of these is guessed here.</p>\n{}</section>\n<footer>Sidestep {}. Every measurement is in a file of its own in raw/ beside this page.</footer>\n",
        html(&tables::published()),
        html(&tables::lost()),
        escape(&store.settings.version),
    )
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

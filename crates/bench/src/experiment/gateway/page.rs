//! The report: one HTML page that needs nothing else, and the same as Markdown.

use std::fmt::Write as _;

use super::lines;
use super::results::Results;
use super::sections::{Aim, Section, all_aims, sections};
use crate::chart::{escape, prose};
use crate::comparison::docs::one_line;
use crate::comparison::page::{OWN_STYLE, STYLE, html};
use crate::comparison::tables::{multiple, time};
use crate::experiment::page::contenders;
use crate::experiment::store::Store;
use crate::experiment::tables::failures;

/// The page.
pub(super) fn page(store: &Store) -> String {
    let sections: String = sections(store).iter().map(section).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Sidestep: an IPv6 gateway's measurements, repeated</title>\n<style>\n{STYLE}{OWN_STYLE}{}</style>\n\
         </head>\n<body>\n<header>\n<h1>An IPv6 gateway's measurements, repeated</h1>\n<p class=\"lead\">In 2006 an IPv6 \
         gateway for small offices was built of SnapGear Linux on a network processor, and measured as a router (T1), \
         as a firewall (T2), and as the end of an IPv6-in-IPv4 tunnel (T3). Here is that plan for Sidestep on one \
         machine, with what its paper says beside it. Its machine was twenty years older: compare what rules and \
         tunnels cost, and IPv6 with IPv4, not Mbit/s with Mbit/s.</p>\n<p class=\"lead\">{}</p>\n</header>\n{}{}{sections}{}\
         <footer>Sidestep {}. Every measurement is in a file of its own in raw/ beside this page.</footer>\n</body>\n\
         </html>\n",
        lines::STYLE,
        escape(&setting(store)),
        cards(store),
        contenders(store),
        failed(store),
        escape(&store.settings.version),
    )
}

/// Where and how all of it was measured.
fn setting(store: &Store) -> String {
    let settings = &store.settings;
    let seconds = store.all().map(|one| one.took_s).sum::<f64>();
    let runs = store.all().map(|one| one.run).max().unwrap_or(0);
    let quick = if settings.quick { " A quick run: its values say that it works, and no more." } else { "" };
    format!(
        "Sidestep {}. {}. {} rounds, {} s for a TCP flow, {} measurements, {} of measuring.{quick}",
        settings.version,
        settings.machine,
        runs,
        settings.duration_s,
        store.all().count(),
        time(seconds)
    )
}

/// The aims that tell most.
fn cards(store: &Store) -> String {
    let mut text = String::new();
    for Aim { what, ratio, .. } in all_aims(Results(store))
        .iter()
        .filter(|aim| !aim.what.ends_with("IPv4") && aim.ratio.median.is_finite())
    {
        let (part, what) = what.split_once(": ").unwrap_or(("", what));
        let (aim, what) = what.split_once(": ").or_else(|| what.split_once(", ")).unwrap_or((what, ""));
        let _ = writeln!(
            text,
            "<div class=\"card\"><div class=\"value\">{}×</div><div class=\"name\">{} {}</div>\
             <div class=\"detail\">{}</div></div>",
            multiple(ratio.median),
            escape(part),
            escape(what),
            escape(aim)
        );
    }
    format!("<section class=\"cards\">\n{text}</section>\n")
}

fn section(section: &Section) -> String {
    let statements: String = section
        .statements
        .iter()
        .map(|[theirs, ours]| {
            format!(
                "<tr><td class=\"text\">{}</td><td class=\"text\">{}</td></tr>\n",
                prose(theirs),
                prose(ours)
            )
        })
        .collect();
    let statements = if statements.is_empty() {
        String::new()
    } else {
        format!("<table>\n<tr><th>The paper</th><th>Here</th></tr>\n{statements}</table>\n<p></p>\n")
    };
    let tables: String = section
        .tables
        .iter()
        .map(|table| {
            format!("<h3>{}</h3>\n<p>{}</p>\n{}", escape(&table.title), prose(&table.how), html(table))
        })
        .collect();
    let about = if section.plots.is_empty() {
        String::new()
    } else {
        format!("<p class=\"lead\">{}</p>\n", prose(section.about))
    };
    format!(
        "<section>\n<h2>{}</h2>\n{about}{statements}<div class=\"plots\">\n{}</div>\n{tables}</section>\n",
        escape(section.title),
        section.plots.concat(),
    )
}

fn failed(store: &Store) -> String {
    let failures: String = failures(store).iter().map(|one| format!("<li>{}</li>\n", escape(one))).collect();
    if failures.is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>What failed</h2>\n<ul>\n{failures}</ul>\n</section>\n")
}

/// All of it for a Markdown page.
pub(super) fn markdown(store: &Store) -> String {
    let mut text = format!("{}\n\n| contender | what it is |\n|---|---|\n", setting(store));
    for entry in &store.settings.contenders {
        let _ = writeln!(text, "| {} | {} |", entry.name, entry.about);
    }
    for absence in &store.settings.left_out {
        let _ = writeln!(text, "| {} | left out: {} |", absence.what, one_line(&absence.why));
    }
    for section in sections(store) {
        let _ = writeln!(text, "\n### {}\n\n{}\n", section.title, section.about);
        if !section.statements.is_empty() {
            text.push_str("| the paper | here |\n|---|---|\n");
            for [theirs, ours] in &section.statements {
                let _ = writeln!(text, "| {theirs} | {ours} |");
            }
            text.push('\n');
        }
        for table in &section.tables {
            // The table's own heading would be one of the section's level; that of the aims says nothing new.
            let table_text = table.markdown();
            let (_, body) = table_text.split_once("\n\n").unwrap_or_default();
            if table.how == section.about {
                text.push_str(body.split_once("\n\n").map_or("", |(_, rows)| rows));
            } else {
                let _ = write!(text, "**{}.** {body}", table.title);
            }
        }
    }
    for failure in failures(store) {
        let _ = writeln!(text, "- failed: {}", one_line(&failure));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::results::{families, rules_cell, tunnel_cell};
    use super::super::sections::tests::example;
    use super::super::subject::{List, Part, Router, Subject, Tunnel};
    use super::super::test::{Family, Test};
    use super::*;

    #[test]
    fn the_page_needs_nothing_else_and_has_all_parts_that_were_measured() {
        let directory = tempfile::tempdir().expect("a directory");
        let [v6, v4] = families(Part::T1, Subject::Router(Router::SINGLE), Test::Echo(1_518));
        let rules = |count| rules_cell(List::Sidestep, count, Family::Ipv6, Test::Packets(86));
        let tunnel = |tunnel| tunnel_cell(tunnel, Test::Packets(1_024));
        let cells = [
            (v6, 20.0),
            (v4, 19.0),
            (rules(0), 100.0),
            (rules(10_000), 99.0),
            (tunnel(Tunnel::Native), 10.0),
            (tunnel(Tunnel::Sidestep), 9.5),
        ];
        let store = example(directory.path(), &cells);
        let page = page(&store);
        for title in
            ["What was aimed at", "T1: native router", "T2: native firewall", "T3: IPv6-in-IPv4 tunnel"]
        {
            assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
        }
        assert!(page.contains("One way takes less than 1.2 ms") && page.contains("0.95×"));
        assert!(!page.contains("<about>") && !page.contains("http://") && !page.contains("<script"));
        let markdown = markdown(&store);
        assert!(markdown.contains("| 1024 | 15.0 | 14.2 | – | – | 0.95× | – |"), "{markdown}");
    }

    #[test]
    fn what_was_not_measured_has_no_section() {
        let directory = tempfile::tempdir().expect("a directory");
        let page = page(&example(directory.path(), &[]));
        assert!(!page.contains("T1: native router") && !page.contains("NaN"));
    }
}

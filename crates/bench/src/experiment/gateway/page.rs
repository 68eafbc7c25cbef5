//! The report: one HTML page that needs nothing else, and the same as Markdown.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::results::Results;
use super::sections::{Aim, Section, all_aims, sections};
use crate::chart::steps;
use crate::comparison::docs::one_line;
use crate::comparison::tables::{multiple, time};
use crate::experiment::page::contenders;
use crate::experiment::plan::Experiment;
use crate::experiment::store::Store;
use crate::experiment::tables::failures;
use crate::page::{self, Card, STYLE, TABLES_STYLE, document, failed, prose};

/// The page.
pub(super) fn page(store: &Store) -> String {
    let is_paper = store.settings.experiment != Experiment::Nat64;
    let title = if is_paper {
        "An IPv6 gateway's measurements, repeated"
    } else {
        "NAT64 and 464XLAT beside forwarding"
    };
    let body = html! {
        header {
            h1 { (title) }
            @if is_paper {
                p.lead {
                    "In 2006 an IPv6 gateway for small offices was built of SnapGear Linux on a network processor, and measured \
                     as a router (T1), as a firewall (T2), and as the end of an IPv6-in-IPv4 tunnel (T3). Here is that plan for \
                     Sidestep on one machine, with what its paper says beside it. Its machine was twenty years older: compare \
                     what rules and tunnels cost, and IPv6 with IPv4, not Mbit/s with Mbit/s."
                }
            }
            p.lead { (setting(store)) }
        }
        (cards(store))
        (contenders(store))
        @for one in sections(store) { (section(&one)) }
        (failed(&failures(store)))
        footer {
            "Sidestep " (store.settings.version) ". Every measurement is in a file of its own in raw/ beside this page."
        }
    };
    document(&format!("Sidestep: {title}"), &[STYLE, TABLES_STYLE, steps::STYLE], &body)
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
fn cards(store: &Store) -> Markup {
    let aims = all_aims(Results(store));
    let shown = aims.iter().filter(|aim| !aim.what.ends_with("IPv4") && aim.ratio.median.is_finite());
    page::cards(shown.map(|Aim { what, ratio, .. }| {
        let (part, what) = what.split_once(": ").unwrap_or(("", what));
        let (aim, what) = what.split_once(": ").or_else(|| what.split_once(", ")).unwrap_or((what, ""));
        Card {
            value: format!("{}×", multiple(ratio.median)),
            name: format!("{part} {what}"),
            detail: aim.to_owned(),
        }
    }))
}

fn section(section: &Section) -> Markup {
    html! {
        section {
            h2 { (section.title) }
            @if !section.plots.is_empty() {
                p.lead { (prose(section.about)) }
            }
            @if !section.statements.is_empty() {
                table {
                    tr { th { "The paper" } th { "Here" } }
                    @for [theirs, ours] in &section.statements {
                        tr { td.text { (prose(theirs)) } td.text { (prose(ours)) } }
                    }
                }
                p {}
            }
            div.plots { @for plot in &section.plots { (plot) } }
            @for table in &section.tables {
                h3 { (table.title) }
                p { (prose(&table.how)) }
                (page::table(table))
            }
        }
    }
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
        assert!(markdown.contains("| 1024 | 15.0 | 14.2 | – | – | – | 0.95× | – |"), "{markdown}");
    }

    #[test]
    fn what_was_not_measured_has_no_section() {
        let directory = tempfile::tempdir().expect("a directory");
        let page = page(&example(directory.path(), &[]));
        assert!(!page.contains("T1: native router") && !page.contains("NaN"));
    }
}

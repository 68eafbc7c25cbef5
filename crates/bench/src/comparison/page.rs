//! The results as one HTML page that needs nothing else.

use maud::{Markup, html};

use crate::chart::bars::{Bar, svg};
use crate::chart::{figure, legend};
use crate::comparison::contender::{KNOWN, NONE};
use crate::comparison::results::{GROUPS, Group, ManyPeers, Metric, Results};
use crate::comparison::statistics::Summary;
use crate::comparison::tables::{self, multiple, number};
use crate::page::{self, Card, STYLE, TABLES_STYLE, document, failed, participants, prose};

/// The page.
pub(crate) fn page(results: &Results) -> String {
    let entries = results.contenders.iter().map(|entry| (entry.name.as_str(), entry.about.as_str()));
    let left_out = results.left_out.iter().map(|absence| (absence.what.as_str(), absence.why.as_str()));
    let failures: Vec<String> =
        results.failures.iter().map(|one| format!("{}: {}", one.what, one.why)).collect();
    let body = html! {
        (introduction(results))
        (headline(results))
        (participants("Contenders", entries, left_out))
        @for group in &GROUPS { (section(results, group)) }
        (steady(results))
        (peers(results))
        (failed(&failures))
        footer {
            "Sidestep " (results.version) ", " (format!("{:.0}", results.minutes)) " minutes. All values are in data.json \
             beside this page."
        }
    };
    document("Sidestep: the benchmark", &[STYLE, TABLES_STYLE], &body)
}

fn introduction(results: &Results) -> Markup {
    let interrupted = results.interrupted.as_ref();
    let interrupted = interrupted.map_or(String::new(), |how_far| format!(" Interrupted: {how_far}."));
    html! {
        header {
            h1 { "Sidestep beside other tunnels" }
            p.lead {
                "Each contender has a lab of its own: two hosts, two gateways and a router, all of them network namespaces \
                 of one machine. The measurements go from one contender to the next, several times over, so that whatever \
                 slows the machine down for a while meets all of them. Bars are medians, the thin lines reach from the \
                 lowest to the highest repetition; in brackets are multiples of no tunnel, or of wireguard-go where no \
                 tunnel has no value. Only ratios can be compared with another machine's."
            }
            p.lead { (results.machine) ". " (results.settings) "." (interrupted) }
            (legend([
                ("faint", "no tunnel"),
                ("a", "Sidestep"),
                ("neutral", "Sidestep with other settings"),
                ("b", "other tunnels"),
            ]))
            p {}
        }
    }
}

/// The ratios that most readers look for.
fn headline(results: &Results) -> Markup {
    let wanted = [
        ("tcp_1_ab", "TCP, one flow"),
        ("udp_1200_batched", "UDP in batches, 1200 bytes"),
        ("paced_p50", "latency, median"),
        ("loaded_p99", "latency under load, p99"),
        ("cpu_gb_a", "processor time per GB"),
    ];
    page::cards(wanted.into_iter().filter_map(|(metric, name)| {
        let ratio = |base| Some((base, results.ratio("sidestep", base, metric)?));
        let (base, ratio) = [KNOWN, NONE].into_iter().find_map(ratio)?;
        let of = if base == NONE { "no tunnel" } else { base };
        Some(Card {
            value: format!("{}×", multiple(ratio)),
            name: name.to_owned(),
            detail: format!("Sidestep's, as a multiple of {of}"),
        })
    }))
}

fn section(results: &Results, group: &Group) -> Markup {
    let table = tables::values(results, group);
    let ratios = tables::ratios(results, group);
    html! {
        @if !table.rows.is_empty() {
            section {
                h2 { (group.title) }
                p { (group.how) " " (if group.higher_is_better { "More" } else { "Less" }) " is better." }
                div.plots { @for metric in group.metrics { (plot(results, group, metric)) } }
                h3 { "Median (lowest–highest), " (group.unit) }
                (page::table(&table))
                @if !ratios.rows.is_empty() {
                    h3 { (ratios.title) }
                    p { (prose(&ratios.how)) }
                    (page::table(&ratios))
                }
            }
        }
    }
}

fn plot(results: &Results, group: &Group, metric: &Metric) -> Markup {
    let bars = results.contenders.iter().filter_map(|entry| {
        let Summary { median, min, max } = results.summary(&entry.name, metric.key)?;
        let more = if results.limited(&entry.name, metric.key) { "≥ " } else { "" };
        let ratio = [NONE, KNOWN].into_iter().find_map(|base| results.ratio(&entry.name, base, metric.key));
        let said = format!("{more}{}", number(median));
        let said = ratio.map_or(said.clone(), |ratio| format!("{said} ({}×)", multiple(ratio)));
        let hint = format!("{} to {}", number(min), number(max));
        let (name, class) = (entry.name.clone(), class(&entry.name));
        Some(Bar { name, class, value: median, range: (min, max), hint, said })
    });
    let bars: Vec<Bar> = bars.collect();
    if bars.is_empty() {
        return html! {};
    }
    let title = format!("{}, {}: {}", group.title, group.unit, metric.title);
    figure(&format!("{}, {}", metric.title, group.unit), &html! {}, &svg(&bars, &title))
}

fn steady(results: &Results) -> Markup {
    let table = tables::steady(results);
    html! {
        @if !table.rows.is_empty() {
            section { h2 { (table.title) } p { (table.how) } (page::table(&table)) }
        }
    }
}

fn peers(results: &Results) -> Markup {
    let table = tables::peers(results);
    let plot = |what: &str, value: fn(&ManyPeers) -> f64| {
        let bars = results.peers.iter().map(|one| {
            let value = value(one);
            Bar {
                name: format!("{}, {}", one.contender, one.peers),
                class: class(&one.contender),
                value,
                range: (value, value),
                hint: format!("{0} to {0}", number(value)),
                said: number(value),
            }
        });
        figure(what, &html! {}, &svg(&bars.collect::<Vec<_>>(), what))
    };
    html! {
        @if !table.rows.is_empty() {
            section {
                h2 { (table.title) }
                p { (table.how) }
                div.plots {
                    (plot("Resident memory, MB", |one| one.resident_mb))
                    (plot("Processor while idle, %", |one| one.idle_share * 100.0))
                }
                (page::table(&table))
            }
        }
    }
}

fn class(contender: &str) -> &'static str {
    match contender {
        NONE => "faint",
        "sidestep" => "a",
        other if other.starts_with("sidestep-") => "neutral",
        _ => "b",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::results::tests::example;

    #[test]
    fn the_page_shows_what_was_measured_and_what_was_not() {
        let page = page(&example());
        assert!(page.contains("3,000 (0.50×)") && page.contains("left out: not installed"));
        assert!(page.contains("&lt;about&gt;") && !page.contains("<about>"));
        assert!(!page.contains("Resident memory"), "nothing was measured of it");
    }
}

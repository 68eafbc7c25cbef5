//! The results as one HTML page that needs nothing else.

use maud::{Markup, PreEscaped, html};

use super::aims::{self, Aim};
use super::contender::StackContender;
use super::load::Direction;
use super::results::Results;
use super::scene::Link;
use super::tunnels;
use crate::chart::bars::{Bar, svg};
use crate::chart::{figure, legend};
use crate::comparison::statistics::Summary;
use crate::comparison::tables::number;
use crate::page::{STYLE, TABLES_STYLE, document, failed, participants, prose, table};

/// What this page has beyond the others: whether an aim is met is said by a word, and shown by its colour.
const AIMS_STYLE: &str = "
td.met { color: var(--a); font-weight: 600; }
td.missed { color: var(--b); font-weight: 600; }
.paper svg { width: 100%; max-width: 680px; height: auto; background: #fff; }
";

/// The page.
pub(super) fn page(results: &Results) -> String {
    let aims = aims::all(results);
    let body = html! {
        header {
            h1 { "Sidestep's host stack beside others" }
            p.lead {
                "Measurements go from one contender to the next, several times over, so that whatever slows the machine \
                 down for a while meets all of them. Bars are medians, the thin lines reach from the lowest to the highest \
                 repetition. Only ratios can be compared with \
                 another machine's."
            }
            p.lead { (results.machine) ". " (results.settings) "." }
            (legend([("a", "Sidestep"), ("b", "others"), ("faint", "the kernel")]))
        }
        (aims_section(&aims))
        (tunnels_section(results))
        (tcp_section(results))
        (section7(results))
        (failed(&results.failures()))
        footer { "All values are in data.json beside this page." }
    };
    document("Sidestep: the host stack", &[STYLE, TABLES_STYLE, AIMS_STYLE], &body)
}

fn aims_section(aims: &[Aim]) -> Markup {
    html! {
        @if !aims.is_empty() {
            section {
                h2 { "What was to be reached" }
                p {
                    (aims.iter().filter(|aim| aim.is_met()).count()) " of " (aims.len()) " are reached. Ratios are medians of \
                     those within each repetition."
                }
                div.wide {
                    table {
                        tr { th { "what" } th { "wanted" } th { "measured" } th { "" } }
                        @for aim in aims {
                            tr {
                                th { (prose(&aim.what)) }
                                td { (aim.wanted()) }
                                td { (aim.unit.say(aim.measured)) }
                                @if aim.is_met() { td.met { "met" } } @else { td.missed { "missed" } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn tunnels_section(results: &Results) -> Markup {
    let Some(tunnels) = &results.tunnels else { return html! {} };
    let plot = |title: &str, metric| {
        let bars = tunnels.contenders().filter_map(|(name, _)| {
            let class = if name == tunnels::LIBIPSEC { "b" } else { "a" };
            Some(bar(name, class, tunnels.summary(name, metric)?))
        });
        plot(title, bars.collect())
    };
    html! {
        (participants("Tunnels", tunnels.contenders(), tunnels.left_out()))
        section {
            div.plots {
                (plot("TCP, one flow, A→B, Mbit/s: more is better", tunnels::TCP[0]))
                (plot("TCP, one flow, B→A, Mbit/s: more is better", tunnels::TCP[1]))
                (plot("processor time of both gateways, s/GB: less is better", tunnels::PROCESSOR))
                (plot("resident memory after the traffic, MB: less is better", tunnels::AFTER))
            }
            @for one in tunnels.tables() { h3 { (one.title) } p { (prose(&one.how)) } (table(&one)) }
        }
    }
}

fn tcp_section(results: &Results) -> Markup {
    let plot = |link: Link, direction: Direction| {
        let bars = results.contenders().filter_map(|one| {
            let class = match one {
                StackContender::Kernel => "faint",
                StackContender::Sidestep | StackContender::SidestepSingle => "a",
                StackContender::Smoltcp | StackContender::Gvisor => "b",
            };
            let mut bar = bar(one.name(), class, results.summary(one, link, direction)?);
            if let Some(ratio) = results.ratio(one, StackContender::Kernel, link, direction) {
                bar.said = format!("{} ({ratio:.2}×)", bar.said);
            }
            Some(bar)
        });
        plot(&format!("{}, {}, Mbit/s", link.title(), direction.title()), bars.collect())
    };
    let about = results.contenders().map(|one| (one.name(), one.about()));
    html! {
        @if results.contenders().next().is_some() {
            (participants("TCP", about, std::iter::empty()))
            section {
                p { "One connection; its client is the kernel's. In brackets: multiples of the kernel's. More is better." }
                div.plots {
                    @for link in Link::ALL { @for direction in Direction::ALL { (plot(link, direction)) } }
                }
            }
        }
    }
}

fn section7(results: &Results) -> Markup {
    html! {
        @if let Some(section7) = &results.section7 {
            section {
                h2 { "Section 7 of the paper on NRL's IPv6, again" }
                p {
                    "Theirs: two machines and an Ethernet, 1996. Ours: two hosts of the stack, each at a TAP device without \
                     offloads, and a bridge of the kernel's between them. So only the columns in percent compare."
                }
                div.paper { (PreEscaped(section7.figure())) }
                @for one in section7.tables() { h3 { (one.title) } p { (prose(&one.how)) } (table(&one)) }
            }
        }
    }
}

fn bar(name: &str, class: &'static str, Summary { median, min, max }: Summary) -> Bar {
    let hint = format!("{} to {}", number(min), number(max));
    Bar { name: name.to_owned(), class, value: median, range: (min, max), hint, said: number(median) }
}

fn plot(title: &str, bars: Vec<Bar>) -> Markup {
    if bars.is_empty() {
        html! {}
    } else {
        figure(title, &html! {}, &svg(&bars, title))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::results::tests::example;

    #[test]
    fn the_page_shows_what_was_measured_and_what_is_met() {
        let page = page(&example());
        assert!(page.contains("4,500 (0.75×)") && page.contains("1 of 2 are reached"), "{page}");
        assert!(page.contains("&lt;machine&gt;") && !page.contains("<machine>"));
        assert!(!page.contains("Section 7") && !page.contains("libipsec"), "nothing was measured of them");
        assert!(!page.contains("<script") && !page.contains("http"), "it needs nothing else");
    }
}

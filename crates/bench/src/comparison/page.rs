//! The results as one HTML page that needs nothing else.

use std::fmt::Write as _;

use crate::chart::{ceiling, escape};
use crate::comparison::contender::{KNOWN, NONE};
use crate::comparison::results::{GROUPS, Group, Metric, Results};
use crate::comparison::statistics::Summary;
use crate::comparison::tables::{self, Table, multiple, number};

/// The style of all reports.
pub(crate) const STYLE: &str = include_str!("../report.css");

/// What pages of tables and plots have beyond that.
pub(crate) const OWN_STYLE: &str = "
.fill.faint { fill: var(--muted); }
.whisker { stroke: var(--ink); stroke-width: 1; }
.row { fill: var(--ink); font-size: 12px; }
.said { fill: var(--ink-2); font-size: 11px; font-variant-numeric: tabular-nums; }
.swatch { height: 10px; }
.swatch.neutral { background: var(--neutral); }
h2 { margin-top: 34px; }
h3 { font-size: 15px; margin: 14px 0 2px; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 14px; }
.wide { overflow-x: auto; margin-bottom: 10px; }
td { font-variant-numeric: tabular-nums; white-space: nowrap; }
td.text { white-space: normal; }
";

/// The page.
pub(crate) fn page(results: &Results) -> String {
    let sections: String = GROUPS.iter().map(|group| section(results, group)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Sidestep: the benchmark</title>\n<style>\n{STYLE}{OWN_STYLE}</style>\n</head>\n<body>\n\
         {}{}{}{sections}{}{}{}</body>\n</html>\n",
        introduction(results),
        headline(results),
        contenders(results),
        steady(results),
        peers(results),
        footer(results),
    )
}

fn introduction(results: &Results) -> String {
    let interrupted = results.interrupted.as_ref();
    let interrupted = interrupted.map_or(String::new(), |how_far| format!(" Interrupted: {how_far}."));
    format!(
        "<header>\n<h1>Sidestep beside other tunnels</h1>\n<p class=\"lead\">Each contender has a lab of its own: two \
         hosts, two gateways and a router, all of them network namespaces of one machine. The measurements go from one \
         contender to the next, several times over, so that whatever slows the machine down for a while meets all of \
         them. Bars are medians, the thin lines reach from the lowest to the highest repetition; in brackets \
         are multiples of no tunnel, or of wireguard-go where no tunnel has no value. Only ratios can be compared with \
         another machine's.</p>\n<p class=\"lead\">{}. {}.{interrupted}</p>\n<div class=\"legend\">\
         <span><i class=\"swatch faint\"></i>no tunnel</span><span><i class=\"swatch a\"></i>Sidestep</span>\
         <span><i class=\"swatch neutral\"></i>Sidestep with other settings</span>\
         <span><i class=\"swatch b\"></i>other tunnels</span></div>\n<p></p>\n</header>\n",
        escape(&results.machine),
        escape(&results.settings)
    )
}

/// The ratios that most readers look for.
fn headline(results: &Results) -> String {
    let cards = [
        ("tcp_1_ab", "TCP, one flow"),
        ("udp_1200_batched", "UDP in batches, 1200 bytes"),
        ("paced_p50", "latency, median"),
        ("loaded_p99", "latency under load, p99"),
        ("cpu_gb_a", "processor time per GB"),
    ];
    let mut text = String::new();
    for (metric, name) in cards {
        for base in [KNOWN, NONE] {
            let Some(ratio) = results.ratio("sidestep", base, metric) else { continue };
            let of = if base == NONE { "of no tunnel".into() } else { format!("of {base}") };
            let _ = writeln!(
                text,
                "<div class=\"card\"><div class=\"value\">{}×</div><div class=\"name\">{name}</div>\
                 <div class=\"detail\">Sidestep's, as a multiple {of}</div></div>",
                multiple(ratio)
            );
            break;
        }
    }
    format!("<section class=\"cards\">\n{text}</section>\n")
}

fn contenders(results: &Results) -> String {
    let mut rows = String::new();
    for entry in &results.contenders {
        let _ = writeln!(
            rows,
            "<tr><th>{}</th><td class=\"text\">{}</td></tr>",
            entry.name,
            escape(&entry.about)
        );
    }
    for absence in &results.left_out {
        let (what, why) = (escape(&absence.what), escape(&absence.why));
        let _ = writeln!(rows, "<tr><th>{what}</th><td class=\"text\">left out: {why}</td></tr>");
    }
    format!("<section>\n<h2>Contenders</h2>\n<table>\n{rows}</table>\n</section>\n")
}

fn section(results: &Results, group: &Group) -> String {
    let table = tables::values(results, group);
    if table.rows.is_empty() {
        return String::new();
    }
    let plots: String = group.metrics.iter().map(|metric| plot(results, group, metric)).collect();
    let ratios = tables::ratios(results, group);
    let ratios = if ratios.rows.is_empty() {
        String::new()
    } else {
        format!("<h3>{}</h3>\n<p>{}</p>\n{}", escape(&ratios.title), ratios.how, html(&ratios))
    };
    format!(
        "<section>\n<h2>{}</h2>\n<p>{} {} is better.</p>\n<div class=\"plots\">\n{plots}</div>\n\
         <h3>Median (lowest–highest), {}</h3>\n{}{ratios}</section>\n",
        group.title,
        escape(group.how),
        if group.higher_is_better { "More" } else { "Less" },
        group.unit,
        html(&table),
    )
}

fn plot(results: &Results, group: &Group, metric: &Metric) -> String {
    let bars = results.contenders.iter().filter_map(|entry| {
        let summary = results.summary(&entry.name, metric.key)?;
        let more = if results.limited(&entry.name, metric.key) { "≥ " } else { "" };
        let ratio = [NONE, KNOWN].into_iter().find_map(|base| results.ratio(&entry.name, base, metric.key));
        let said = format!("{more}{}", number(summary.median));
        let said = ratio.map_or(said.clone(), |ratio| format!("{said} ({}×)", multiple(ratio)));
        Some(Bar { name: entry.name.clone(), class: class(&entry.name), summary, said })
    });
    let bars: Vec<Bar> = bars.collect();
    if bars.is_empty() {
        return String::new();
    }
    let title = format!("{}, {}: {}", group.title, group.unit, metric.title);
    format!(
        "<figure>\n<figcaption>{}, {}</figcaption>\n{}\n</figure>\n",
        metric.title,
        group.unit,
        svg(&bars, &title)
    )
}

fn steady(results: &Results) -> String {
    let table = tables::steady(results);
    if table.rows.is_empty() {
        return String::new();
    }
    format!(
        "<section>\n<h2>{}</h2>\n<p>{}</p>\n{}</section>\n",
        escape(&table.title),
        escape(&table.how),
        html(&table)
    )
}

fn peers(results: &Results) -> String {
    let table = tables::peers(results);
    if table.rows.is_empty() {
        return String::new();
    }
    let plot = |what: &str, value: fn(&crate::comparison::results::ManyPeers) -> f64| {
        let bars = results.peers.iter().map(|one| {
            let value = value(one);
            Bar {
                name: format!("{}, {}", one.contender, one.peers),
                class: class(&one.contender),
                summary: Summary { median: value, min: value, max: value },
                said: number(value),
            }
        });
        let bars: Vec<Bar> = bars.collect();
        format!("<figure>\n<figcaption>{what}</figcaption>\n{}\n</figure>\n", svg(&bars, what))
    };
    format!(
        "<section>\n<h2>{}</h2>\n<p>{}</p>\n<div class=\"plots\">\n{}{}</div>\n{}</section>\n",
        table.title,
        escape(&table.how),
        plot("Resident memory, MB", |one| one.resident_mb),
        plot("Processor while idle, %", |one| one.idle_share * 100.0),
        html(&table)
    )
}

fn footer(results: &Results) -> String {
    let failures: String = results
        .failures
        .iter()
        .map(|one| format!("<li>{}: {}</li>\n", escape(&one.what), escape(&one.why)))
        .collect();
    let failures = if failures.is_empty() {
        String::new()
    } else {
        format!("<section>\n<h2>What failed</h2>\n<ul>\n{failures}</ul>\n</section>\n")
    };
    format!(
        "{failures}<footer>Sidestep {}, {:.0} minutes. All values are in data.json beside this page.</footer>\n",
        escape(&results.version),
        results.minutes
    )
}

/// A table as HTML; a wide one scrolls by itself.
pub(crate) fn html(table: &Table) -> String {
    let row = |cells: &[String], cell: &str| {
        let cells: String = cells
            .iter()
            .enumerate()
            .map(|(column, text)| {
                let cell = if column == 0 { "th" } else { cell };
                format!("<{cell}>{}</{cell}>", escape(text))
            })
            .collect();
        format!("<tr>{cells}</tr>\n")
    };
    let rows: String = table.rows.iter().map(|cells| row(cells, "td")).collect();
    format!("<div class=\"wide\"><table>\n{}{rows}</table></div>\n", row(&table.header, "th"))
}

fn class(contender: &str) -> &'static str {
    match contender {
        NONE => "faint",
        "sidestep" => "a",
        other if other.starts_with("sidestep-") => "neutral",
        _ => "b",
    }
}

/// One row of a plot.
struct Bar {
    name: String,
    class: &'static str,
    summary: Summary,
    said: String,
}

/// Horizontal bars from zero, with what is to be said at their right.
fn svg(bars: &[Bar], description: &str) -> String {
    const WIDTH: f64 = 560.0;
    const LEFT: f64 = 142.0;
    const RIGHT: f64 = 106.0;
    const ROW: f64 = 21.0;
    let most = ceiling(bars.iter().map(|bar| bar.summary.max).fold(0.0, f64::max));
    let across = |value: f64| LEFT + value.max(0.0) / most * (WIDTH - LEFT - RIGHT);
    let height = ROW * bars.len() as f64 + 4.0;
    let mut body = String::new();
    for (row, Bar { name, class, summary, said }) in bars.iter().enumerate() {
        let middle = ROW * (row as f64 + 0.5) + 2.0;
        let (low, high) = (across(summary.min), across(summary.max));
        let width = (across(summary.median) - LEFT).max(1.5);
        let _ = write!(
            body,
            r#"<text class="row" x="{:.1}" y="{:.1}" text-anchor="end">{}</text><rect class="fill {class}" x="{LEFT}" y="{:.1}" width="{width:.1}" height="13" rx="1"><title>{}: {} to {}</title></rect><line class="whisker" x1="{low:.1}" x2="{high:.1}" y1="{middle:.1}" y2="{middle:.1}"/><text class="said" x="{:.1}" y="{:.1}">{}</text>"#,
            LEFT - 7.0,
            middle + 4.0,
            escape(name),
            middle - 6.5,
            escape(name),
            number(summary.min),
            number(summary.max),
            high.max(LEFT + width) + 6.0,
            middle + 4.0,
            escape(said),
        );
    }
    format!(
        r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{}">{body}</svg>"#,
        escape(description)
    )
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

//! What the reports' pages have in common: HTML that needs nothing else, neither scripts nor outside resources.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::comparison::tables::Table;

/// The style of all reports.
pub(crate) const STYLE: &str = include_str!("report.css");

/// What pages of tables and plots have beyond that.
pub(crate) const TABLES_STYLE: &str = "
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

/// A page.
pub(crate) fn document(title: &str, styles: &[&str], body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(styles.concat())) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// A sentence; what stands between backticks is code.
pub(crate) fn prose(text: &str) -> Markup {
    html! {
        @for (number, part) in text.split('`').enumerate() {
            @if number % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

/// A number that most readers look for.
pub(crate) struct Card {
    pub(crate) value: String,
    pub(crate) name: String,
    pub(crate) detail: String,
}

/// Several of them.
pub(crate) fn cards(cards: impl IntoIterator<Item = Card>) -> Markup {
    html! {
        section.cards {
            @for Card { value, name, detail } in cards {
                div.card { div.value { (value) } div.name { (name) } div.detail { (detail) } }
            }
        }
    }
}

/// Names and what they are; then what was left out, and why.
pub(crate) fn participants<'a>(
    title: &str,
    there: impl Iterator<Item = (&'a str, &'a str)>,
    left_out: impl Iterator<Item = (&'a str, &'a str)>,
) -> Markup {
    html! {
        section {
            h2 { (title) }
            table {
                @for (name, about) in there { tr { th { (name) } td.text { (prose(about)) } } }
                @for (name, why) in left_out { tr { th { (name) } td.text { "left out: " (prose(why)) } } }
            }
        }
    }
}

/// A table; a wide one scrolls by itself.
pub(crate) fn table(table: &Table) -> Markup {
    html! {
        div.wide {
            table {
                tr { @for cell in &table.header { th { (cell) } } }
                @for row in &table.rows {
                    tr {
                        @for (column, cell) in row.iter().enumerate() {
                            @if column == 0 { th { (cell) } } @else { td { (cell) } }
                        }
                    }
                }
            }
        }
    }
}

/// What failed; nothing if nothing has.
pub(crate) fn failed(failures: &[String]) -> Markup {
    html! {
        @if !failures.is_empty() {
            section { h2 { "What failed" } ul { @for failure in failures { li { (failure) } } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_in_a_sentence_is_code() {
        assert_eq!(prose("`up` & `<x>`").into_string(), "<code>up</code> &amp; <code>&lt;x&gt;</code>");
        assert_eq!(prose("none").into_string(), "none");
    }
}

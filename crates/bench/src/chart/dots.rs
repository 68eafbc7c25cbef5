//! Values of contenders, ours and the published ones, as dots on one axis, with their confidence intervals.

use maud::{Markup, html};

use super::axis::short;
use super::{Axis, Px, Scale, WIDTH};
use crate::comparison::contender::NONE;

/// What this kind of plot needs beyond the reports' style.
pub(crate) const STYLE: &str = "
.dot { stroke: var(--surface); stroke-width: 1; }
.dot.a { fill: var(--a); }
.dot.b { fill: var(--b); }
.dot.neutral { fill: var(--surface); stroke: var(--neutral); stroke-width: 2; }
.dot.faint { fill: var(--muted); }
.interval { stroke: var(--ink); stroke-width: 1.4; }
.range { stroke: var(--axis); stroke-width: 4; stroke-linecap: round; opacity: 0.6; }
";

const LEFT: f64 = 226.0;
const RIGHT: f64 = 112.0;
const ROW: f64 = 20.0;
const AXIS: f64 = 20.0;

/// One line of a plot.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// A published value.
    pub(crate) theirs: bool,
    pub(crate) value: f64,
    /// Half of the confidence interval.
    pub(crate) margin: Option<f64>,
    /// From the least to the greatest single value.
    pub(crate) range: Option<(f64, f64)>,
    /// What stands beside it.
    pub(crate) said: String,
}

/// A plot with a caption, as a figure; nothing without rows.
pub(crate) fn figure(caption: &str, rows: &[Row], scale: Scale) -> Option<Markup> {
    if rows.is_empty() {
        return None;
    }
    Some(super::figure(caption, &html! {}, &svg(caption, rows, scale)))
}

fn svg(caption: &str, rows: &[Row], scale: Scale) -> Markup {
    let axis = axis(rows, scale);
    let across = |value: f64| LEFT + axis.part(value) * (WIDTH - LEFT - RIGHT);
    let height = ROW * rows.len() as f64 + AXIS + 4.0;
    let body = html! {
        @for value in axis.marks(2) {
            @let x = across(value);
            line.grid x1=(Px(x)) x2=(Px(x)) y1="2" y2=(Px(height - AXIS)) {}
            text.tick x=(Px(x)) y=(Px(height - 5.0)) text-anchor="middle" { (short(value)) }
        }
        @for (number, row) in rows.iter().enumerate() {
            @let y = ROW * (number as f64 + 0.5) + 2.0;
            @if let Some((low, high)) = row.range {
                line.range x1=(Px(across(low))) x2=(Px(across(high))) y1=(Px(y)) y2=(Px(y)) {}
            }
            @if let Some(margin) = row.margin {
                @let (low, high) = (across(row.value - margin), across(row.value + margin));
                line.interval x1=(Px(low)) x2=(Px(high)) y1=(Px(y)) y2=(Px(y)) {}
            }
            text.row x=(Px(LEFT - 12.0)) y=(Px(y + 4.0)) text-anchor="end" { (row.name) }
            (mark(across(row.value), y, class(row), row.theirs))
            text.said x=(Px(WIDTH - RIGHT + 12.0)) y=(Px(y + 4.0)) { (row.said) }
        }
    };
    super::svg(height, caption, &body)
}

/// Ours are round, theirs stand on a corner: colour is not all that tells them apart.
fn mark(x: f64, y: f64, class: &str, theirs: bool) -> Markup {
    if theirs {
        let [left, right, top, bottom] = [x - 6.0, x + 6.0, y - 6.0, y + 6.0].map(Px);
        let path = format!("M{0} {top}L{right} {1}L{0} {bottom}L{left} {1}Z", Px(x), Px(y));
        html! { path class={ "dot " (class) } d=(path) {} }
    } else {
        html! { circle class={ "dot " (class) } cx=(Px(x)) cy=(Px(y)) r="5" {} }
    }
}

fn class(row: &Row) -> &'static str {
    match row.name.split(',').next() {
        _ if row.theirs => "b",
        Some("sidestep") => "a",
        Some(NONE) => "faint",
        _ => "neutral",
    }
}

/// An axis that holds all values with their ranges and intervals. Of an interval that reaches below zero only the values
/// count for its beginning.
fn axis(rows: &[Row], scale: Scale) -> Axis {
    let ends = rows.iter().flat_map(|row| {
        let (low, high) = row.range.unwrap_or((row.value, row.value));
        let margin = row.margin.unwrap_or(0.0);
        [low, high, row.value - margin, row.value + margin, row.value]
    });
    let most = ends.filter(|value| value.is_finite()).fold(0.0, f64::max);
    let values = rows.iter().flat_map(|row| [row.value, row.range.map_or(row.value, |(low, _)| low)]);
    Axis::of(scale, values, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, value: f64) -> Row {
        Row { name: name.into(), theirs: false, value, margin: Some(1.0), range: None, said: "<said>".into() }
    }

    #[test]
    fn a_plot_of_zeros_can_be_drawn() {
        for scale in [Scale::Linear, Scale::Decades] {
            let drawn = figure("loss", &[Row { margin: None, ..row("none", 0.0) }], scale)
                .expect("a figure")
                .into_string();
            assert!(drawn.contains("<circle") && !drawn.contains("NaN"), "{drawn}");
        }
    }

    #[test]
    fn text_cannot_break_out() {
        assert!(
            !figure("<b>", &[row("<i>", 1.0)], Scale::Linear)
                .expect("a figure")
                .into_string()
                .contains("<said>")
        );
        assert!(figure("empty", &[], Scale::Linear).is_none());
    }
}

//! Values of contenders, ours and the published ones, as dots on one axis, with their confidence intervals.

use std::fmt::Write as _;

use crate::chart::{ceiling, escape};
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

const WIDTH: f64 = 560.0;
const LEFT: f64 = 226.0;
const RIGHT: f64 = 112.0;
const ROW: f64 = 20.0;
const AXIS: f64 = 20.0;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    /// Decades. What is not above zero is at its beginning.
    Decades,
}

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
pub(crate) fn figure(caption: &str, rows: &[Row], scale: Scale) -> String {
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n{}\n</figure>\n",
        escape(caption),
        svg(caption, rows, scale)
    )
}

fn svg(caption: &str, rows: &[Row], scale: Scale) -> String {
    let axis = Axis::of(rows, scale);
    let height = ROW * rows.len() as f64 + AXIS + 4.0;
    let base = height - AXIS;
    let mut body = String::new();
    for (value, mark) in axis.marks() {
        let x = axis.across(value);
        let _ = write!(
            body,
            r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="2" y2="{base:.1}"/><text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{mark}</text>"#,
            height - 5.0
        );
    }
    for (number, row) in rows.iter().enumerate() {
        let y = ROW * (number as f64 + 0.5) + 2.0;
        if let Some((low, high)) = row.range {
            let _ = write!(
                body,
                r#"<line class="range" x1="{:.1}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
                axis.across(low),
                axis.across(high)
            );
        }
        if let Some(margin) = row.margin {
            let _ = write!(
                body,
                r#"<line class="interval" x1="{:.1}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
                axis.across(row.value - margin),
                axis.across(row.value + margin)
            );
        }
        let (class, said) = (class(row), escape(&row.said));
        let _ = write!(
            body,
            r#"<text class="row" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>{}<text class="said" x="{:.1}" y="{:.1}">{said}</text>"#,
            LEFT - 12.0,
            y + 4.0,
            escape(&row.name),
            mark(axis.across(row.value), y, class, row.theirs),
            WIDTH - RIGHT + 12.0,
            y + 4.0,
        );
    }
    format!(
        r#"<svg viewBox="0 0 {WIDTH} {height:.0}" role="img" aria-label="{}">{body}</svg>"#,
        escape(caption)
    )
}

/// Ours are round, theirs stand on a corner: colour is not all that tells them apart.
fn mark(x: f64, y: f64, class: &str, theirs: bool) -> String {
    if theirs {
        let (left, right, top, bottom) = (x - 6.0, x + 6.0, y - 6.0, y + 6.0);
        format!(
            r#"<path class="dot {class}" d="M{x:.1} {top:.1}L{right:.1} {y:.1}L{x:.1} {bottom:.1}L{left:.1} {y:.1}Z"/>"#
        )
    } else {
        format!(r#"<circle class="dot {class}" cx="{x:.1}" cy="{y:.1}" r="5"/>"#)
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

/// Where values are.
struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Axis {
    fn of(rows: &[Row], scale: Scale) -> Self {
        let ends = rows.iter().flat_map(|row| {
            let (low, high) = row.range.unwrap_or((row.value, row.value));
            let margin = row.margin.unwrap_or(0.0);
            [low, high, row.value - margin, row.value + margin, row.value]
        });
        let ends: Vec<f64> = ends.filter(|value| value.is_finite()).collect();
        let high = ends.iter().copied().fold(0.0, f64::max);
        match scale {
            Scale::Linear => Self { low: 0.0, high: ceiling(high), scale },
            Scale::Decades => {
                // Of an interval that reaches below zero only the values count.
                let values =
                    rows.iter().flat_map(|row| [row.value, row.range.map_or(row.value, |(low, _)| low)]);
                let low = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
                let low = if low.is_finite() { low.log10().floor() } else { 0.0 };
                let top = if high > 0.0 { high.log10().ceil() } else { low };
                Self { low, high: top.max(low + 1.0), scale }
            }
        }
    }

    fn across(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear => value,
            Scale::Decades if value > 0.0 => value.log10(),
            Scale::Decades => self.low,
        };
        let part = (value.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        LEFT + part * (WIDTH - LEFT - RIGHT)
    }

    /// Values, and how they are written.
    fn marks(&self) -> Vec<(f64, String)> {
        match self.scale {
            Scale::Linear => [0.0, 0.5, 1.0].map(|part| (part * self.high, short(part * self.high))).to_vec(),
            Scale::Decades => {
                let exponents = self.low as i32..=self.high as i32;
                exponents.map(|exponent| 10f64.powi(exponent)).map(|value| (value, short(value))).collect()
            }
        }
    }
}

fn short(value: f64) -> String {
    match value {
        large if large >= 1e6 => format!("{}M", large / 1e6),
        large if large >= 1e4 => format!("{}k", large / 1e3),
        // 0.1 as a power of ten is not quite 0.1.
        usual => ((usual * 1e6).round() / 1e6).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, value: f64) -> Row {
        Row { name: name.into(), theirs: false, value, margin: Some(1.0), range: None, said: "<said>".into() }
    }

    #[test]
    fn decades_hold_all_values_and_zero_is_at_the_beginning() {
        let rows = [row("none", 0.02), row("sidestep", 300.0), row("classic", 0.0)];
        let axis = Axis::of(&rows, Scale::Decades);
        assert_eq!((axis.low, axis.high), (-2.0, 3.0));
        assert_eq!(axis.across(0.0), LEFT);
        assert!(axis.across(0.02) < axis.across(300.0));
        let marks: Vec<String> = axis.marks().into_iter().map(|(_, mark)| mark).collect();
        assert_eq!(marks, ["0.01", "0.1", "1", "10", "100", "1000"]);
    }

    #[test]
    fn a_plot_of_zeros_can_be_drawn() {
        for scale in [Scale::Linear, Scale::Decades] {
            let drawn = figure("loss", &[Row { margin: None, ..row("none", 0.0) }], scale);
            assert!(drawn.contains("<circle") && !drawn.contains("NaN"), "{drawn}");
        }
    }

    #[test]
    fn text_cannot_break_out() {
        assert!(!figure("<b>", &[row("<i>", 1.0)], Scale::Linear).contains("<said>"));
        assert_eq!(figure("empty", &[], Scale::Linear), "");
    }
}

//! Lines over steps: frame sizes, windows, numbers of rules, which stand side by side whatever lies between them.

use std::fmt::Write as _;

use crate::chart::{ceiling, escape};
use crate::comparison::tables::number;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 38.0;

/// What this kind of plot needs beyond the reports' style.
pub(super) const STYLE: &str = "
.point { stroke: var(--surface); stroke-width: 1.5; }
.point.a { fill: var(--a); }
.point.b { fill: var(--b); }
.point.neutral { fill: var(--neutral); }
.point.faint { fill: var(--muted); }
.line.dashed { stroke-dasharray: 5 4; }
.one { stroke: var(--ink-2); stroke-width: 1; stroke-dasharray: 2 3; }
figure .legend { margin: 2px 0 4px; }
";

/// The vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Height {
    /// From zero.
    Linear,
    /// Decades.
    Decades,
    /// Ratios, with a line at one.
    Ratio,
}

/// One line.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    /// Its colour, as classes of the style have it.
    pub(super) class: &'static str,
    /// One for each step, where there is one.
    pub(super) points: Vec<Option<f64>>,
}

/// A plot with a caption, as a figure; nothing without points.
pub(super) fn figure(caption: &str, axis: &str, steps: &[String], lines: &[Line], height: Height) -> String {
    let lines: Vec<&Line> = lines.iter().filter(|line| line.points.iter().any(Option::is_some)).collect();
    if lines.is_empty() {
        return String::new();
    }
    let legend: String = lines
        .iter()
        .map(|line| {
            let colour = line.class.split(' ').next().unwrap_or_default();
            format!("<span><i class=\"swatch {colour}\"></i>{}</span>", escape(&line.name))
        })
        .collect();
    format!(
        "<figure>\n<figcaption>{}</figcaption>\n<div class=\"legend\">{legend}</div>\n{}\n</figure>\n",
        escape(caption),
        svg(caption, axis, steps, &lines, height)
    )
}

fn svg(caption: &str, axis: &str, steps: &[String], lines: &[&Line], height: Height) -> String {
    let values: Vec<f64> = lines.iter().flat_map(|line| &line.points).filter_map(|point| *point).collect();
    let scale = Scale::of(&values, height);
    let base = HEIGHT - BOTTOM;
    let mut body = String::new();
    for mark in scale.marks() {
        let y = scale.up(mark);
        let _ = write!(
            body,
            r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 3.5,
            short(mark)
        );
    }
    if height == Height::Ratio {
        let y = scale.up(1.0);
        let _ = write!(
            body,
            r#"<line class="one" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/>"#,
            WIDTH - RIGHT
        );
    }
    let across =
        |step: usize| LEFT + (step as f64 + 0.5) / steps.len().max(1) as f64 * (WIDTH - LEFT - RIGHT);
    for (number, step) in steps.iter().enumerate() {
        let _ = write!(
            body,
            r#"<text class="tick" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            across(number),
            base + 14.0,
            escape(step)
        );
    }
    let _ = write!(
        body,
        r#"<line class="axis" x1="{LEFT}" x2="{:.1}" y1="{base:.1}" y2="{base:.1}"/><text class="label" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
        WIDTH - RIGHT,
        f64::midpoint(LEFT, WIDTH - RIGHT),
        HEIGHT - 6.0,
        escape(axis)
    );
    for line in lines {
        let there: Vec<(f64, f64, f64)> = line
            .points
            .iter()
            .enumerate()
            .filter_map(|(step, value)| Some((across(step), scale.up((*value)?), (*value)?)))
            .collect();
        let path: Vec<String> = there.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
        let _ = write!(body, r#"<polyline class="line {}" points="{}"/>"#, line.class, path.join(" "));
        for (x, y, value) in there {
            let _ = write!(
                body,
                r#"<circle class="point {}" cx="{x:.1}" cy="{y:.1}" r="4"><title>{}: {}</title></circle>"#,
                line.class,
                escape(&line.name),
                number(value)
            );
        }
    }
    format!(r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{}">{body}</svg>"#, escape(caption))
}

/// Where values are.
struct Scale {
    low: f64,
    high: f64,
    height: Height,
}

impl Scale {
    fn of(values: &[f64], height: Height) -> Self {
        let most = values.iter().copied().fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let (low, high) = match height {
            Height::Linear => (0.0, ceiling(most)),
            Height::Decades => {
                let low = positive.fold(f64::INFINITY, f64::min);
                let low = if low.is_finite() { low.log10().floor() } else { 0.0 };
                (low, most.max(f64::MIN_POSITIVE).log10().ceil().max(low + 1.0))
            }
            Height::Ratio => {
                let least = values.iter().copied().fold(1.0, f64::min);
                // In steps of a tenth, at least from 0.8 to 1.2.
                (((least * 10.0).floor() / 10.0).min(0.8), ((most * 10.0).ceil() / 10.0).max(1.2))
            }
        };
        Self { low, high, height }
    }

    fn up(&self, value: f64) -> f64 {
        let value = match self.height {
            Height::Linear | Height::Ratio => value,
            Height::Decades if value > 0.0 => value.log10(),
            Height::Decades => self.low,
        };
        let part = (value.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)
    }

    fn marks(&self) -> Vec<f64> {
        match self.height {
            Height::Decades => (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power)).collect(),
            Height::Linear | Height::Ratio => {
                let part = |number: u32| self.low + (self.high - self.low) * f64::from(number) / 4.0;
                (0..=4).map(part).collect()
            }
        }
    }
}

fn short(value: f64) -> String {
    match value {
        large if large >= 1e4 => format!("{}k", (large / 10.0).round() / 100.0),
        // 0.1 as a power of ten is not quite 0.1.
        usual => ((usual * 1e6).round() / 1e6).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[Option<f64>]) -> Line {
        Line { name: "<name>".into(), class: "a", points: points.to_vec() }
    }

    #[test]
    fn steps_stand_side_by_side_and_what_is_missing_is_left_out() {
        let steps = ["0", "10", "10000"].map(str::to_owned);
        let lines = [line(&[Some(1.0), None, Some(100.0)])];
        for height in [Height::Linear, Height::Decades, Height::Ratio] {
            let drawn = figure("caption", "rules", &steps, &lines, height);
            assert_eq!(drawn.matches("<circle").count(), 2);
            assert!(!drawn.contains("NaN") && !drawn.contains("inf") && !drawn.contains("<name>"), "{drawn}");
        }
    }

    #[test]
    fn nothing_to_draw_is_no_figure() {
        assert_eq!(figure("caption", "rules", &[], &[line(&[None])], Height::Linear), "");
    }

    #[test]
    fn zeros_can_be_drawn() {
        for height in [Height::Linear, Height::Decades, Height::Ratio] {
            let drawn = figure("caption", "rules", &["0".to_owned()], &[line(&[Some(0.0)])], height);
            assert!(drawn.contains("<circle") && !drawn.contains("NaN"), "{drawn}");
        }
    }
}

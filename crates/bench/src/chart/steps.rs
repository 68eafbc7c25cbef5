//! Lines over steps: frame sizes, windows, numbers of rules, which stand side by side whatever lies between them.

use maud::{Markup, html};

use super::axis::short;
use super::{Axis, Px, Scale, WIDTH};
use crate::comparison::tables::number;

const HEIGHT: f64 = 250.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 38.0;

/// What this kind of plot needs beyond the reports' style.
pub(crate) const STYLE: &str = "
.point { stroke: var(--surface); stroke-width: 1.5; }
.point.a { fill: var(--a); }
.point.b { fill: var(--b); }
.point.neutral { fill: var(--neutral); }
.point.faint { fill: var(--muted); }
.line.dashed { stroke-dasharray: 5 4; }
.one { stroke: var(--ink-2); stroke-width: 1; stroke-dasharray: 2 3; }
figure .legend { margin: 2px 0 4px; }
";

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Its colour, as classes of the style have it.
    pub(crate) class: &'static str,
    /// One for each step, where there is one.
    pub(crate) points: Vec<Option<f64>>,
}

/// A plot with a caption, as a figure; nothing without points. Ratios have a line at one.
pub(crate) fn figure(
    caption: &str,
    axis: &str,
    steps: &[String],
    lines: &[Line],
    scale: Scale,
) -> Option<Markup> {
    let lines: Vec<&Line> = lines.iter().filter(|line| line.points.iter().any(Option::is_some)).collect();
    if lines.is_empty() {
        return None;
    }
    let colours = lines.iter().map(|line| {
        let colour = line.class.split(' ').next().unwrap_or_default();
        (colour, line.name.as_str())
    });
    Some(super::figure(caption, &super::legend(colours), &svg(caption, axis, steps, &lines, scale)))
}

fn svg(caption: &str, axis: &str, steps: &[String], lines: &[&Line], scale: Scale) -> Markup {
    let values = || lines.iter().flat_map(|line| &line.points).filter_map(|point| *point);
    let values_axis = Axis::of(scale, values(), values().fold(0.0, f64::max));
    let base = HEIGHT - BOTTOM;
    let up = |value: f64| base - values_axis.part(value) * (base - TOP);
    let across =
        |step: usize| LEFT + (step as f64 + 0.5) / steps.len().max(1) as f64 * (WIDTH - LEFT - RIGHT);
    let horizontal = |class: &str, y: f64| {
        html! { line class=(class) x1=(LEFT) x2=(Px(WIDTH - RIGHT)) y1=(Px(y)) y2=(Px(y)) {} }
    };
    let body = html! {
        @for mark in values_axis.marks(4) {
            (horizontal("grid", up(mark)))
            text.tick x=(Px(LEFT - 6.0)) y=(Px(up(mark) + 3.5)) text-anchor="end" { (short(mark)) }
        }
        @if scale == Scale::Ratio {
            (horizontal("one", up(1.0)))
        }
        @for (number, step) in steps.iter().enumerate() {
            text.tick x=(Px(across(number))) y=(Px(base + 14.0)) text-anchor="middle" { (step) }
        }
        (horizontal("axis", base))
        text.label x=(Px(f64::midpoint(LEFT, WIDTH - RIGHT))) y=(Px(HEIGHT - 6.0)) text-anchor="middle" { (axis) }
        @for line in lines {
            @let there = line.points.iter().enumerate().filter_map(|(step, value)| {
                Some((Px(across(step)), Px(up((*value)?)), (*value)?))
            });
            @let there: Vec<(Px, Px, f64)> = there.collect();
            @let path: Vec<String> = there.iter().map(|(x, y, _)| format!("{x},{y}")).collect();
            polyline class={ "line " (line.class) } points=(path.join(" ")) {}
            @for (x, y, value) in &there {
                circle class={ "point " (line.class) } cx=(x) cy=(y) r="4" {
                    title { (line.name) ": " (number(*value)) }
                }
            }
        }
    };
    super::svg(HEIGHT, caption, &body)
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
        for scale in [Scale::Linear, Scale::Decades, Scale::Ratio] {
            let drawn = figure("caption", "rules", &steps, &lines, scale).expect("a figure").into_string();
            assert_eq!(drawn.matches("<circle").count(), 2);
            assert!(!drawn.contains("NaN") && !drawn.contains("inf") && !drawn.contains("<name>"), "{drawn}");
        }
    }

    #[test]
    fn nothing_to_draw_is_no_figure() {
        assert!(figure("caption", "rules", &[], &[line(&[None])], Scale::Linear).is_none());
    }

    #[test]
    fn zeros_can_be_drawn() {
        for scale in [Scale::Linear, Scale::Decades, Scale::Ratio] {
            let drawn = figure("caption", "rules", &["0".to_owned()], &[line(&[Some(0.0)])], scale)
                .expect("a figure")
                .into_string();
            assert!(drawn.contains("<circle") && !drawn.contains("NaN"), "{drawn}");
        }
    }
}

//! Charts with a linear horizontal axis, such as time, and a linear vertical one.

use maud::{Markup, PreEscaped, html};

use super::{Px, WIDTH};

const LEFT: f64 = 52.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 34.0;

/// One chart with a linear horizontal and vertical axis.
#[derive(Debug)]
pub(crate) struct Chart {
    height: f64,
    x: (f64, f64),
    y: (f64, f64),
    body: String,
}

impl Chart {
    /// An empty chart; `height` in pixels, the ranges in units of the data.
    pub(crate) fn new(height: f64, x: (f64, f64), y: (f64, f64)) -> Self {
        let widen = |(low, high): (f64, f64)| if high > low { (low, high) } else { (low, low + 1.0) };
        Self { height, x: widen(x), y: widen(y), body: String::new() }
    }

    /// Grid lines and labels on both axes; a vertical axis without marks if `marks` is zero.
    pub(crate) fn axes(mut self, x_label: &str, y_label: &str, marks: usize) -> Self {
        let base = self.height - BOTTOM;
        let marked = if marks > 0 { ticks(self.y, marks) } else { Vec::new() };
        self.draw(&html! {
            @for value in ticks(self.x, 8) {
                text.tick x=(Px(self.across(value))) y=(Px(base + 14.0)) text-anchor="middle" { (number(value)) }
            }
            @for value in marked {
                @let y = self.up(value);
                line.grid x1=(LEFT) x2=(Px(WIDTH - RIGHT)) y1=(Px(y)) y2=(Px(y)) {}
                text.tick x=(Px(LEFT - 6.0)) y=(Px(y + 3.5)) text-anchor="end" { (number(value)) }
            }
            line.axis x1=(LEFT) x2=(Px(WIDTH - RIGHT)) y1=(Px(base)) y2=(Px(base)) {}
            text.label x=(Px(f64::midpoint(LEFT, WIDTH - RIGHT))) y=(Px(self.height - 4.0)) text-anchor="middle" {
                (x_label)
            }
            @let middle = Px(f64::midpoint(TOP, base));
            text.label transform={ "translate(11 " (middle) ") rotate(-90)" } text-anchor="middle" { (y_label) }
        });
        self
    }

    /// Faint vertical lines, such as the moments of rotations.
    pub(crate) fn moments(mut self, times: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = self.x;
        for time in times.into_iter().filter(|time| (low..=high).contains(time)) {
            let x = self.across(time);
            let bottom = self.height - BOTTOM;
            self.draw(&html! { line.moment x1=(Px(x)) x2=(Px(x)) y1=(TOP) y2=(Px(bottom)) {} });
        }
        self
    }

    /// A line through points.
    pub(crate) fn line(mut self, class: &str, points: &[(f64, f64)]) -> Self {
        let path: Vec<String> =
            points.iter().map(|(x, y)| format!("{},{}", Px(self.across(*x)), Px(self.up(*y)))).collect();
        self.draw(&html! { polyline class={ "line " (class) } points=(path.join(" ")) {} });
        self
    }

    /// A horizontal bar from `from` to `to` around the height `y`, `thickness` in pixels.
    pub(crate) fn bar(&mut self, class: &str, (from, to): (f64, f64), y: f64, thickness: f64, hint: &str) {
        let x = self.across(from);
        let width = (self.across(to) - x).max(1.5);
        self.rectangle(class, (x, self.up(y) - thickness / 2.0), (width, thickness), hint);
    }

    /// A column from zero up to `value`, `from` to `to` wide.
    pub(crate) fn column(&mut self, class: &str, (from, to): (f64, f64), value: f64, hint: &str) {
        let (x, top) = (self.across(from), self.up(value));
        let width = (self.across(to) - x - 1.0).max(1.5);
        self.rectangle(class, (x, top), (width, (self.up(0.0) - top).max(0.0)), hint);
    }

    fn rectangle(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64), hint: &str) {
        self.draw(&html! {
            rect class={ "fill " (class) } x=(Px(x)) y=(Px(y)) width=(Px(width)) height=(Px(height)) rx="1" {
                title { (hint) }
            }
        });
    }

    /// A point with a name: those of class `b` have it below.
    pub(crate) fn dot(&mut self, class: &str, (x, y): (f64, f64), name: &str) {
        let (x, y) = (self.across(x), self.up(y));
        self.draw(&html! {
            circle class={ "fill " (class) } cx=(Px(x)) cy=(Px(y)) r="4" {}
            text.label x=(Px(x)) y=(Px(if class == "b" { y + 16.0 } else { y - 8.0 })) text-anchor="middle" { (name) }
        });
    }

    /// A word in the middle of the chart.
    pub(crate) fn note(mut self, text: &str) -> Self {
        let (x, y) = (f64::midpoint(LEFT, WIDTH - RIGHT), f64::midpoint(TOP, self.height - BOTTOM) + 5.0);
        self.draw(&html! { text.note x=(Px(x)) y=(Px(y)) text-anchor="middle" { (text) } });
        self
    }

    /// The finished drawing.
    pub(crate) fn svg(self, description: &str) -> Markup {
        super::svg(self.height, description, &PreEscaped(self.body))
    }

    fn draw(&mut self, more: &Markup) {
        self.body.push_str(&more.0);
    }

    /// Where a value is; one beyond the axis is at its end.
    fn across(&self, value: f64) -> f64 {
        LEFT + (value.clamp(self.x.0, self.x.1) - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn up(&self, value: f64) -> f64 {
        let bottom = self.height - BOTTOM;
        bottom - (value - self.y.0) / (self.y.1 - self.y.0) * (bottom - TOP)
    }
}

/// Round values within a range, about `count` of them.
fn ticks((low, high): (f64, f64), count: usize) -> Vec<f64> {
    let rough = (high - low) / count.max(1) as f64;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * magnitude).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|index| index as f64 * step).collect()
}

/// A number for an axis: no more digits than needed.
fn number(value: f64) -> String {
    let text =
        if value.abs() >= 10_000.0 { format!("{:.0}k", value / 1_000.0) } else { format!("{value:.2}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 30.0), 6), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert_eq!(ticks((0.0, 1.0), 5).len(), 6);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!((number(0.5), number(20.0), number(12_000.0)), ("0.5".into(), "20".into(), "12k".into()));
    }

    #[test]
    fn text_cannot_break_out_of_the_page() {
        let svg =
            Chart::new(100.0, (0.0, 1.0), (0.0, 1.0)).note("<script>").svg("a \"quoted\" <b>").into_string();
        assert!(!svg.contains("<script>") && !svg.contains("<b>"));
    }
}

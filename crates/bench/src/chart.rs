//! Small SVG charts for reports: no script, no outside resource; colours come from the page's style sheet
//! through classes, so that they follow its light or dark scheme.

use std::fmt::Write as _;

const WIDTH: f64 = 560.0;
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
        for value in ticks(self.x, 8) {
            let x = self.across(value);
            let y = self.height - BOTTOM;
            let _ = write!(
                self.body,
                r#"<text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                y + 14.0,
                number(value)
            );
        }
        if marks > 0 {
            for value in ticks(self.y, marks) {
                let y = self.up(value);
                let _ = write!(
                    self.body,
                    r#"<line class="grid" x1="{LEFT}" x2="{:.1}" y1="{y:.1}" y2="{y:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                    WIDTH - RIGHT,
                    LEFT - 6.0,
                    y + 3.5,
                    number(value)
                );
            }
        }
        let base = self.height - BOTTOM;
        let _ = write!(
            self.body,
            r#"<line class="axis" x1="{LEFT}" x2="{:.1}" y1="{base:.1}" y2="{base:.1}"/><text class="label" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text><text class="label" transform="translate(11 {:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            WIDTH - RIGHT,
            f64::midpoint(LEFT, WIDTH - RIGHT),
            self.height - 4.0,
            escape(x_label),
            f64::midpoint(TOP, base),
            escape(y_label)
        );
        self
    }

    /// Faint vertical lines, such as the moments of rotations.
    pub(crate) fn moments(mut self, times: impl IntoIterator<Item = f64>) -> Self {
        let (low, high) = self.x;
        for time in times.into_iter().filter(|time| (low..=high).contains(time)) {
            let x = self.across(time);
            let bottom = self.height - BOTTOM;
            let _ = write!(
                self.body,
                r#"<line class="moment" x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{bottom:.1}"/>"#
            );
        }
        self
    }

    /// A line through points.
    pub(crate) fn line(mut self, class: &str, points: &[(f64, f64)]) -> Self {
        let path: Vec<String> =
            points.iter().map(|(x, y)| format!("{:.1},{:.1}", self.across(*x), self.up(*y))).collect();
        let _ = write!(self.body, r#"<polyline class="line {class}" points="{}"/>"#, path.join(" "));
        self
    }

    /// A horizontal bar from `from` to `to` around the height `y`, `thickness` in pixels.
    pub(crate) fn bar(&mut self, class: &str, (from, to): (f64, f64), y: f64, thickness: f64, hint: &str) {
        let x = self.across(from);
        let width = (self.across(to) - x).max(1.5);
        let top = self.up(y) - thickness / 2.0;
        let _ = write!(
            self.body,
            r#"<rect class="fill {class}" x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{thickness:.1}" rx="1"><title>{}</title></rect>"#,
            escape(hint)
        );
    }

    /// A column from zero up to `value`, `from` to `to` wide.
    pub(crate) fn column(&mut self, class: &str, (from, to): (f64, f64), value: f64, hint: &str) {
        let x = self.across(from);
        let width = (self.across(to) - x - 1.0).max(1.5);
        let top = self.up(value);
        let height = (self.up(0.0) - top).max(0.0);
        let _ = write!(
            self.body,
            r#"<rect class="fill {class}" x="{x:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" rx="1"><title>{}</title></rect>"#,
            escape(hint)
        );
    }

    /// A word in the middle of the chart.
    pub(crate) fn note(mut self, text: &str) -> Self {
        let _ = write!(
            self.body,
            r#"<text class="note" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
            f64::midpoint(LEFT, WIDTH - RIGHT),
            f64::midpoint(TOP, self.height - BOTTOM) + 5.0,
            escape(text)
        );
        self
    }

    /// The finished SVG element.
    pub(crate) fn svg(self, description: &str) -> String {
        format!(
            r#"<svg viewBox="0 0 {WIDTH} {}" role="img" aria-label="{}">{}</svg>"#,
            self.height,
            escape(description),
            self.body
        )
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

/// A round upper end for an axis that must show `value`.
pub(crate) fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let magnitude = 10f64.powf(value.log10().floor());
    let factors = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let fits = factors.into_iter().map(|factor| factor * magnitude).find(|ceiling| *ceiling >= value);
    fits.unwrap_or(value)
}

/// A number for an axis: no more digits than needed.
fn number(value: f64) -> String {
    let text =
        if value.abs() >= 10_000.0 { format!("{:.0}k", value / 1_000.0) } else { format!("{value:.2}") };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The same of a sentence: what stands between backticks is code.
pub(crate) fn prose(text: &str) -> String {
    let mut parts = escape(text);
    for tag in ["<code>", "</code>"].into_iter().cycle() {
        match parts.find('`') {
            Some(place) => parts.replace_range(place..=place, tag),
            None => return parts,
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_in_a_sentence_is_code() {
        assert_eq!(prose("`up` & `<x>`"), "<code>up</code> &amp; <code>&lt;x&gt;</code>");
        assert_eq!(prose("none"), "none");
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks((0.0, 30.0), 6), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert_eq!(ticks((0.0, 1.0), 5).len(), 6);
        assert_eq!(ceiling(0.0), 1.0);
        assert_eq!(ceiling(23.0), 30.0);
        assert_eq!(ceiling(100.0), 100.0);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!((number(0.5), number(20.0), number(12_000.0)), ("0.5".into(), "20".into(), "12k".into()));
    }

    #[test]
    fn text_cannot_break_out_of_the_page() {
        let svg = Chart::new(100.0, (0.0, 1.0), (0.0, 1.0)).note("<script>").svg("a \"quoted\" <b>");
        assert!(!svg.contains("<script>") && !svg.contains("<b>"));
    }
}

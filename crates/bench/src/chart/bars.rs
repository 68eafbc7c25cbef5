//! Horizontal bars from zero, with what is to be said at their right.

use maud::{Markup, html};

use super::{Px, WIDTH, ceiling};

const LEFT: f64 = 142.0;
const RIGHT: f64 = 106.0;
const ROW: f64 = 21.0;

/// One row.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) class: &'static str,
    pub(crate) value: f64,
    /// From the least to the greatest single value.
    pub(crate) range: (f64, f64),
    /// What the range says.
    pub(crate) hint: String,
    pub(crate) said: String,
}

/// The drawing.
pub(crate) fn svg(bars: &[Bar], description: &str) -> Markup {
    let most = ceiling(bars.iter().map(|bar| bar.range.1).fold(0.0, f64::max));
    let across = |value: f64| LEFT + value.max(0.0) / most * (WIDTH - LEFT - RIGHT);
    let body = html! {
        @for (row, bar) in bars.iter().enumerate() {
            @let middle = ROW * (row as f64 + 0.5) + 2.0;
            @let (low, high) = (across(bar.range.0), across(bar.range.1));
            @let width = (across(bar.value) - LEFT).max(1.5);
            text.row x=(Px(LEFT - 7.0)) y=(Px(middle + 4.0)) text-anchor="end" { (bar.name) }
            rect class={ "fill " (bar.class) } x=(LEFT) y=(Px(middle - 6.5)) width=(Px(width)) height="13" rx="1" {
                title { (bar.name) ": " (bar.hint) }
            }
            line.whisker x1=(Px(low)) x2=(Px(high)) y1=(Px(middle)) y2=(Px(middle)) {}
            text.said x=(Px(high.max(LEFT + width) + 6.0)) y=(Px(middle + 4.0)) { (bar.said) }
        }
    };
    super::svg(ROW * bars.len() as f64 + 4.0, description, &body)
}

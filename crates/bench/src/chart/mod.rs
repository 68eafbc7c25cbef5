//! SVG charts for reports: no script, no outside resource; colours come from the page's style sheet through classes, so
//! that they follow its light or dark scheme.
//!
//! | module | what it is |
//! |---|---|
//! | [`time`] | lines, bars and columns over a linear axis, such as time |
//! | [`steps`] | lines over steps that stand side by side |
//! | [`dots`] | values as dots on one axis, with their intervals |
//! | [`bars`] | values as bars, with what is to be said beside them |
//! | [`axis`] | where values are on an axis |

mod axis;
pub(crate) mod bars;
pub(crate) mod dots;
pub(crate) mod steps;
pub(crate) mod time;

use std::fmt;

use maud::{Markup, html};

pub(crate) use axis::{Axis, Scale, ceiling};

/// The width of every chart, in its own pixels.
const WIDTH: f64 = 560.0;

/// A length or a place in a drawing: a tenth of a pixel is fine enough.
struct Px(f64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.0)
    }
}

/// A drawing that fills the width that it gets.
fn svg(height: f64, description: &str, body: &Markup) -> Markup {
    html! { svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" aria-label=(description) { (body) } }
}

/// A drawing with a caption, and what explains its colours.
pub(crate) fn figure(caption: &str, legend: &Markup, drawing: &Markup) -> Markup {
    html! { figure { figcaption { (caption) } (legend) (drawing) } }
}

/// What colours mean: classes of the style, and names.
pub(crate) fn legend<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Markup {
    html! {
        div.legend {
            @for (class, name) in entries { span { i class={ "swatch " (class) } {} (name) } }
        }
    }
}

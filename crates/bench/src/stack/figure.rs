//! Figure 8 as one SVG that stands alone: panels of lines, values by size.

use std::fmt::Write as _;

/// One drawing of several.
pub(super) struct Panel {
    pub(super) title: String,
    /// Each with its name and its points.
    pub(super) lines: Vec<(String, Vec<(f64, f64)>)>,
}

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 26.0;
const COLUMNS: usize = 2;
/// Dark enough on white, and told apart by those who do not see all colours.
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#666666"];

/// The drawing.
pub(super) fn svg(panels: &[Panel]) -> String {
    let rows = panels.len().div_ceil(COLUMNS);
    let (width, height) = (WIDTH * COLUMNS as f64, HEIGHT * rows as f64);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<title>Latency by size of request and answer</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    for (number, panel) in panels.iter().enumerate() {
        let (x, y) = (WIDTH * (number % COLUMNS) as f64, HEIGHT * (number / COLUMNS) as f64);
        let _ = writeln!(out, "<g transform=\"translate({x} {y})\">");
        draw(&mut out, panel);
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, panel: &Panel) {
    let points = || panel.lines.iter().flat_map(|(_, points)| points);
    let (most_x, most_y) = points().fold((1.0, 0.0), |(x, y): (f64, f64), at| (x.max(at.0), y.max(at.1)));
    let most_y = round_up(most_y);
    let (right, floor) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    let at = |(x, y): (f64, f64)| (LEFT + x / most_x * (right - LEFT), floor - y / most_y * (floor - TOP));
    let _ = writeln!(out, "<text x=\"{LEFT}\" y=\"16\" font-weight=\"bold\">{}</text>", panel.title);
    let _ = writeln!(out, "<path d=\"M{LEFT} {TOP}V{floor}H{right}\" fill=\"none\" stroke=\"#999\"/>");
    for share in [0.0, 0.5, 1.0] {
        let (x, y) = at((most_x * share, most_y * share));
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{:.1}</text>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{:.0}</text>",
            LEFT - 4.0,
            y + 4.0,
            most_y * share,
            floor + 15.0,
            most_x * share
        );
    }
    for (number, ((name, points), colour)) in panel.lines.iter().zip(COLOURS).enumerate() {
        let path: Vec<String> = points
            .iter()
            .map(|point| {
                let (x, y) = at(*point);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        let y = TOP + 12.0 + 13.0 * number as f64;
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\"/>\
             <text x=\"{}\" y=\"{y}\" fill=\"{colour}\">{name}</text>",
            path.join(" "),
            LEFT + 10.0
        );
    }
}

/// The next number that an axis can end with: its half is one that is easily read, too.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let magnitude = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0].map(|step| step * magnitude);
    steps.into_iter().find(|step| *step >= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_with_round_numbers() {
        assert_eq!(
            [22.1, 20.0, 91.8, 144.9, 3500.0, 0.0].map(round_up),
            [30.0, 20.0, 100.0, 200.0, 4000.0, 1.0]
        );
    }

    #[test]
    fn each_panel_has_its_lines_and_stays_inside() {
        let panel = |title: &str| Panel {
            title: title.to_owned(),
            lines: vec![("IPv4".to_owned(), vec![(1.0, 2.0), (8192.0, 9.0)]), ("IPv6".to_owned(), vec![])],
        };
        let drawing = svg(&[panel("a"), panel("b"), panel("c")]);
        assert_eq!(drawing.matches("<polyline").count(), 6);
        assert!(drawing.contains("viewBox=\"0 0 680 460\"") && drawing.contains(">c</text>"));
        assert!(!drawing.contains("NaN"));
    }
}

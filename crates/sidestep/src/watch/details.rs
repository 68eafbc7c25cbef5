//! All that is known of a peer: what `show --peer` says, how it has been lately, when it moves next, what has happened to it.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use super::events::Events;
use super::history::{History, Series};
use super::tunnel::{Tunnel, colour};
use crate::fit;
use crate::show::text;

/// Lines of a graph.
const HEIGHT: usize = 2;
/// Columns before a graph and a bar, in which stands what they are of.
const LABEL: usize = 24;
/// Events that are told.
const MOST_EVENTS: usize = 20;

/// Draws it in a box, without the first so many lines. Returns of how many lines there is any use in scrolling past.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    tunnel: &Tunnel,
    peer: usize,
    events: &Events,
    scrolled: usize,
    now: Instant,
) -> usize {
    let (Some(row), Some(history)) = (tunnel.row(peer), tunnel.history(peer)) else { return 0 };
    let peer = row.peer;
    let own_key = tunnel.status.as_ref().map_or("", |status| &status.public_key);
    let colour = colour(peer.state);
    let block = Block::bordered().border_style(Style::new().fg(colour));
    let inner = block.inner(area).inner(Margin::new(1, 0));
    let width = usize::from(inner.width);
    let title = Span::from(format!(" {} ", fit::cut(&peer.name, width.saturating_sub(2)))).bold();
    frame.render_widget(block.title(title), area);

    let left = peer.next_rotation_ms.map(|next| next.saturating_sub(tunnel.age_ms(now)));
    let mut lines: Vec<Line<'static>> = Vec::new();
    if let Some(left) = left {
        lines.push(countdown(left, history.longest_wait_ms, width));
    }
    lines.extend(graphs(history, width));
    // Its name is above.
    for told in text::peer(peer, own_key).lines().filter(|line| !line.is_empty()).skip(1) {
        lines.extend(fit::wrap(&with_label(told), width, 4));
    }
    let own = |source: &str, event: &control::event::Event| {
        source == tunnel.name && event.peer.as_deref() == Some(&peer.name)
    };
    let happened = events.last(MOST_EVENTS, usize::from(u16::MAX), own);
    if !happened.is_empty() {
        lines.push(Line::default());
        lines.push(Line::from("events, in UTC").bold());
        lines.extend(happened.iter().flat_map(|line| fit::wrap(line, width, 2)));
    }
    let visible = usize::from(inner.height);
    let most = lines.len().saturating_sub(visible);
    let rest: Vec<_> = lines.into_iter().skip(scrolled.min(most)).collect();
    let [texts] = Layout::vertical([Constraint::Fill(1)]).areas(inner);
    frame.render_widget(Paragraph::new(rest), texts);
    most
}

/// The time to the next birth or death of a lane, beside a bar that gets shorter with it.
fn countdown(left_ms: u64, longest_ms: u64, width: usize) -> Line<'static> {
    let label = format!("next move in {:.1} s", left_ms as f64 / 1000.0);
    let room = width.saturating_sub(LABEL);
    let filled = (left_ms as f64 / longest_ms.max(1) as f64).clamp(0.0, 1.0) * room as f64;
    let bar = "█".repeat(filled.round() as usize);
    Line::from(vec![
        Span::from(fit::pad(&label, LABEL.min(width), false)),
        Span::styled(bar, Style::new().fg(Color::Blue)),
    ])
}

/// Round trip and throughput of the last minutes, each with what is now and what was most.
fn graphs(history: &History, width: usize) -> Vec<Line<'static>> {
    let room = width.saturating_sub(LABEL);
    let graph =
        |name: &str, series: &Series, colour: Color, quantity: fn(f64) -> String| -> Vec<Line<'static>> {
            let Some(now) = series.last() else { return Vec::new() };
            let most = series.most(room.max(1));
            let labels = [format!("{name} {}", quantity(now)), format!("  at most {}", quantity(most))];
            let bars = series.bars(room, HEIGHT);
            let lines = labels.iter().zip(bars).map(|(label, bar)| {
                Line::from(vec![
                    Span::from(fit::pad(label, LABEL.min(width), false)),
                    Span::styled(bar, Style::new().fg(colour)),
                ])
            });
            lines.collect()
        };
    [
        graph("round trip", &history.rtt, Color::Magenta, text::milliseconds),
        graph("in", &history.received, Color::Cyan, text::rate),
        graph("out", &history.sent, Color::Cyan, text::rate),
    ]
    .concat()
}

/// A line of text with what stands before its colon less bright.
fn with_label(told: &str) -> Line<'static> {
    let told = told.trim_start();
    match told.split_once(": ") {
        Some((label, rest)) => {
            Line::from(vec![Span::from(format!("{label}: ")).dim(), Span::from(rest.to_owned())])
        }
        None => Line::from(told.to_owned()),
    }
}

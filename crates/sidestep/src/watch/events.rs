//! Events on the screen: the last ones below the peers, and all of them by themselves.

use std::collections::VecDeque;

use control::event::Event;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use crate::fit;
use crate::show::table::has_words;
use crate::terminal::printable;

/// Events that are kept: a daemon tells as many.
const MOST: usize = 1000;

/// What has happened, the oldest first, each with the name of where.
#[derive(Debug, Default)]
pub(super) struct Events(VecDeque<(String, Event)>);

impl Events {
    pub(super) fn extend(&mut self, new: Vec<(String, Event)>) {
        self.0.extend(new);
        self.0.drain(..self.0.len().saturating_sub(MOST));
    }

    /// The last ones of which this is so, a line each, the newest first.
    pub(super) fn last(
        &self,
        most: usize,
        width: usize,
        is_so: impl Fn(&str, &Event) -> bool,
    ) -> Vec<Line<'static>> {
        let chosen = self.0.iter().rev().filter(|(source, event)| is_so(source, event)).take(most);
        chosen.map(|(source, event)| line(source, event, width)).collect()
    }

    /// Those with these words, wrapped, the newest first.
    pub(super) fn all(&self, filter: &str, width: usize) -> Vec<Line<'static>> {
        let chosen = self.0.iter().rev();
        let lines = chosen.map(|(source, event)| line(source, event, usize::from(u16::MAX)));
        let lines = lines.filter(|line| filter.is_empty() || has_words(&line.to_string(), filter));
        lines.flat_map(|line| fit::wrap(&line, width, 2)).collect()
    }
}

/// Time of day in UTC, where it happened, and what.
fn line(source: &str, event: &Event, width: usize) -> Line<'static> {
    let colour = match event.priority.as_str() {
        "error" => Color::Red,
        "warning" => Color::Yellow,
        _ => Color::Reset,
    };
    let time = event.time.get(11..19).unwrap_or(&event.time).to_owned();
    let rest = width.saturating_sub(fit::width(&time) + 1);
    let says = fit::cut(&format!("{source}: {}", printable(&event.message)), rest);
    let dim = Style::new().fg(Color::DarkGray);
    Line::from(vec![Span::styled(time, dim), Span::raw(" "), Span::styled(says, Style::new().fg(colour))])
}

//! The peers of all tunnels in a table: sorted, filtered, one of them selected.

use std::cell::Cell;
use std::time::Instant;

use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::details;
use super::events::Events;
use super::tunnel::{Tunnel, colour};
use crate::fit;
use crate::show::table::{self, Choice, Column, Row};
use crate::show::text;

/// From so many columns on the details stand beside the table, and not in its place.
const BESIDE: u16 = 140;
/// From so many lines on the last events are below the table.
const EVENTS_FROM: u16 = 18;
/// Events that are told there.
const MOST_EVENTS: usize = 4;
/// Tunnels that are told of by a line each.
const MOST_TUNNELS: usize = 4;
/// From so many columns on what has been lately is drawn in the table.
const BARS_FROM: u16 = 100;

/// What can be sorted by, in the order of the keys.
const SORTS: [Column; 11] = [
    Column::Peer,
    Column::State,
    Column::For,
    Column::Heard,
    Column::Rtt,
    Column::In,
    Column::Out,
    Column::Received,
    Column::Sent,
    Column::Dropped,
    Column::Mtu,
];

/// What is shown of the peers.
#[derive(Debug)]
pub(super) struct Peers {
    choice: Choice,
    /// The last come first.
    reversed: bool,
    /// The chosen ones in order: the tunnel's index, and the peer's.
    order: Vec<(usize, usize)>,
    /// Names of the tunnel and of the peer: it stays selected wherever it moves to.
    selected: Option<(String, String)>,
    /// Whether all that is known of it is shown.
    details: bool,
    /// Lines of the details that were scrolled past.
    scrolled: usize,
    /// As many as there is any use in, when they were drawn last.
    most_scrolled: Cell<usize>,
    /// The first peer on the screen, and how many there are on it, when it was drawn last.
    first: Cell<usize>,
    page: Cell<usize>,
}

impl Peers {
    pub(super) fn new(choice: Choice) -> Self {
        Peers {
            choice,
            reversed: false,
            order: Vec::new(),
            selected: None,
            details: false,
            scrolled: 0,
            most_scrolled: Cell::new(0),
            first: Cell::new(0),
            page: Cell::new(1),
        }
    }

    /// Chooses and sorts anew.
    pub(super) fn arrange(&mut self, tunnels: &[Tunnel], filter: &str) {
        self.choice.filter = (!filter.is_empty()).then(|| filter.to_owned());
        let all = tunnels.iter().enumerate();
        let all = all.flat_map(|(at, tunnel)| (0..tunnel.peers().len()).map(move |peer| (at, peer)));
        let row = |(tunnel, peer): &(usize, usize)| tunnels[*tunnel].row(*peer);
        self.order = all.filter(|place| row(place).is_some_and(|row| self.choice.has(&row))).collect();
        self.order.sort_by(|one, other| {
            let (Some(one), Some(other)) = (row(one), row(other)) else { return std::cmp::Ordering::Equal };
            let order = self.choice.compare(&one, &other);
            if self.reversed { order.reverse() } else { order }
        });
        if self.place(tunnels).is_none() {
            // What was selected is gone: what has come to its place is.
            let at = self.first.get().min(self.order.len().saturating_sub(1));
            self.select(tunnels, at);
        }
    }

    /// Where the selected peer is in the order.
    fn place(&self, tunnels: &[Tunnel]) -> Option<usize> {
        let (tunnel, peer) = self.selected.as_ref()?;
        self.order.iter().position(|(at, index)| {
            tunnels[*at].name == *tunnel && tunnels[*at].peers()[*index].name == *peer
        })
    }

    fn select(&mut self, tunnels: &[Tunnel], place: usize) {
        let peer = self.order.get(place).map(|(tunnel, peer)| (&tunnels[*tunnel], *peer));
        self.selected = peer.map(|(tunnel, peer)| (tunnel.name.clone(), tunnel.peers()[peer].name.clone()));
        self.scrolled = 0;
    }

    /// Whether it draws a time that runs.
    pub(super) const fn moves(&self) -> bool {
        self.details
    }

    /// Goes one level back; false where there is none.
    pub(super) fn back(&mut self) -> bool {
        std::mem::take(&mut self.details)
    }

    /// Does what a key says.
    pub(super) fn press(&mut self, key: KeyCode, tunnels: &[Tunnel], filter: &str) {
        let at = self.place(tunnels).unwrap_or(0);
        let last = self.order.len().saturating_sub(1);
        let page = self.page.get().max(1);
        let sort = SORTS.iter().position(|column| *column == self.choice.sort).unwrap_or(0);
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.select(tunnels, at.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.select(tunnels, (at + 1).min(last)),
            KeyCode::PageUp if self.details => self.scrolled = self.scrolled.saturating_sub(page),
            KeyCode::PageDown if self.details => {
                self.scrolled = (self.scrolled + page).min(self.most_scrolled.get());
            }
            KeyCode::PageUp => self.select(tunnels, at.saturating_sub(page)),
            KeyCode::PageDown => self.select(tunnels, (at + page).min(last)),
            KeyCode::Home | KeyCode::Char('g') => self.select(tunnels, 0),
            KeyCode::End | KeyCode::Char('G') => self.select(tunnels, last),
            KeyCode::Enter => self.details = !self.details && self.selected.is_some(),
            KeyCode::Char('s') => self.choice.sort = SORTS[(sort + 1) % SORTS.len()],
            KeyCode::Char('S') => self.choice.sort = SORTS[(sort + SORTS.len() - 1) % SORTS.len()],
            KeyCode::Char('r') => self.reversed = !self.reversed,
            _ => return,
        }
        self.arrange(tunnels, filter);
        if matches!(key, KeyCode::Char('s' | 'S' | 'r')) && !self.details {
            // Who sorts wants to see what comes first.
            self.select(tunnels, 0);
        }
    }

    /// Draws them, in any size.
    pub(super) fn draw(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        tunnels: &[Tunnel],
        events: &Events,
        now: Instant,
    ) {
        let place = self.place(tunnels);
        let selected = place.map(|place| self.order[place]).filter(|_| self.details);
        let Some((tunnel, peer)) = selected else {
            return self.draw_table(frame, area, tunnels, events, place);
        };
        let area = if area.width >= BESIDE {
            let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]);
            let [left, right] = halves.areas(area);
            self.draw_table(frame, left, tunnels, events, place);
            right
        } else {
            area
        };
        let most = details::draw(frame, area, &tunnels[tunnel], peer, events, self.scrolled, now);
        self.most_scrolled.set(most);
        if area.width < BESIDE {
            self.page.set(area.height.saturating_sub(3).into());
        }
    }

    fn draw_table(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        tunnels: &[Tunnel],
        events: &Events,
        place: Option<usize>,
    ) {
        let width = usize::from(area.width);
        let head = self.head(tunnels, width);
        let below = self.below(tunnels, place, width);
        let mut last = Vec::new();
        if area.height >= EVENTS_FROM {
            last = events.last(MOST_EVENTS, width, |_, _| true);
        }
        if !last.is_empty() {
            last.insert(0, Line::from("events, in UTC").bold());
        }
        let lines = |lines: &[Line<'_>]| u16::try_from(lines.len()).unwrap_or(u16::MAX);
        let [top, body, fault, bottom] = Layout::vertical([
            Constraint::Length(lines(&head)),
            Constraint::Fill(1),
            Constraint::Length(lines(&below)),
            Constraint::Length(lines(&last)),
        ])
        .areas(area);
        frame.render_widget(Paragraph::new(head), top);
        frame.render_widget(Paragraph::new(below), fault);
        frame.render_widget(Paragraph::new(last), bottom);
        self.draw_rows(frame, body, tunnels, place);
    }

    /// The tunnels, and how their peers are.
    fn head(&self, tunnels: &[Tunnel], width: usize) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        for tunnel in tunnels {
            // Otherwise what is wrong with it is told above.
            if let (None, Some(status), true) = (&tunnel.error, &tunnel.status, tunnels.len() <= MOST_TUNNELS)
            {
                lines.push(Line::from(fit::cut(&table::summary(status), width)).bold());
            }
        }
        if tunnels.len() > MOST_TUNNELS {
            lines.push(Line::from(format!("{} tunnels", tunnels.len())).bold());
        }
        let peers = tunnels.iter().flat_map(Tunnel::peers);
        let rates = tunnels
            .iter()
            .flat_map(|tunnel| (0..tunnel.peers().len()).filter_map(|peer| tunnel.history(peer)?.rates()));
        let (received, sent) = rates.fold((0.0, 0.0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
        let mut counts = table::counts(peers.clone());
        if self.order.len() < peers.count() {
            counts += &format!("; {} shown", self.order.len());
        }
        let order = if self.reversed { ", from the end" } else { "" };
        let sorted = self.choice.sort.title().to_lowercase();
        let now = format!("in {}, out {}   by {sorted}{order}", text::rate(received), text::rate(sent));
        let all = format!("{counts}   {now}");
        let parts = if fit::width(&all) <= width { vec![all] } else { vec![counts, now] };
        lines.extend(parts.into_iter().flat_map(|part| fit::wrap(&Line::from(part), width, 2)));
        lines
    }

    /// What is wrong with the selected peer.
    fn below(&self, tunnels: &[Tunnel], place: Option<usize>, width: usize) -> Vec<Line<'static>> {
        let row = place.and_then(|place| self.row(tunnels, place));
        let Some((row, fault)) = row.and_then(|row| Some((row, row.peer.fault.as_ref()?))) else {
            return Vec::new();
        };
        let says = Line::from(vec![
            Span::from(format!("{}: ", row.peer.name)).bold(),
            Span::from(format!("{} ({})", fault.says, fault.code)),
        ]);
        fit::wrap(&says, width, 2)
    }

    fn row<'t>(&self, tunnels: &'t [Tunnel], place: usize) -> Option<Row<'t>> {
        let (tunnel, peer) = self.order.get(place)?;
        tunnels.get(*tunnel)?.row(*peer)
    }

    fn draw_rows(&self, frame: &mut Frame<'_>, area: Rect, tunnels: &[Tunnel], place: Option<usize>) {
        let bars = if area.width >= BARS_FROM { usize::from(area.width / 12) } else { 0 };
        let room = usize::from(area.width) - if bars > 0 { 2 * (bars + 2) } else { 0 };
        let mut wanted = vec![Column::Peer, Column::State, Column::For, Column::Heard, Column::Rtt];
        wanted.extend([
            Column::In,
            Column::Out,
            Column::Received,
            Column::Sent,
            Column::Dropped,
            Column::Mtu,
            Column::Fault,
        ]);
        if tunnels.len() > 1 {
            wanted.insert(1, Column::Tunnel);
        }
        let names = tunnels.iter().flat_map(Tunnel::peers).map(|peer| fit::width(&peer.name));
        let columns = table::fitting(&wanted, names.max().unwrap_or(0).max(4), room);
        let used: usize = columns.iter().map(|(_, width)| width + 2).sum();
        let mut head: Vec<Span<'static>> = Vec::new();
        for (column, width) in &columns {
            let title = Span::from(column.padded(column.title(), *width)).bold();
            let is_sorted = *column == self.choice.sort;
            head.push(if is_sorted { title.underlined() } else { title });
            head.push("  ".into());
        }
        if bars > 0 {
            let space = " ".repeat((room + 2).saturating_sub(used));
            let title = |title: &str| Span::from(fit::pad(title, bars, false)).bold();
            head.extend([Span::from(space), title("RTT"), "  ".into(), title("TRAFFIC")]);
        }
        let mut lines = vec![Line::from(head)];
        let visible = usize::from(area.height).saturating_sub(1);
        let first = first_visible(self.first.get(), place.unwrap_or(0), visible, self.order.len());
        self.first.set(first);
        self.page.set(visible);
        for at in first..(first + visible).min(self.order.len()) {
            let (tunnel, peer) = self.order[at];
            let Some(row) = tunnels[tunnel].row(peer) else { continue };
            let mut spans = Vec::new();
            for (column, width) in &columns {
                let style = match column {
                    _ if place == Some(at) => Style::new().add_modifier(Modifier::REVERSED),
                    Column::State => Style::new().fg(colour(row.peer.state)),
                    _ => Style::new(),
                };
                spans.push(Span::styled(column.padded(&column.of(&row), *width) + "  ", style));
            }
            if let Some(history) = tunnels[tunnel].history(peer).filter(|_| bars > 0) {
                spans.push(" ".repeat((room + 2).saturating_sub(used)).into());
                spans.push(Span::styled(history.rtt.bars(bars, 1).concat(), Style::new().fg(Color::Magenta)));
                spans.push("  ".into());
                spans
                    .push(Span::styled(history.traffic.bars(bars, 1).concat(), Style::new().fg(Color::Cyan)));
            }
            lines.push(Line::from(spans));
        }
        if self.order.is_empty() {
            lines = vec![Line::from("no peer, or none that is looked for").dim()];
        }
        frame.render_widget(Paragraph::new(lines), area);
    }
}

/// The first of `all` lines from which on the selected one is among `visible` ones, moved no further than needed.
fn first_visible(before: usize, selected: usize, visible: usize, all: usize) -> usize {
    let least = (selected + 1).saturating_sub(visible);
    let most = selected.min(all.saturating_sub(visible));
    before.clamp(least.min(most), most.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_line_is_visible_and_the_screen_moves_no_further_than_needed() {
        assert_eq!(first_visible(0, 0, 10, 100), 0);
        assert_eq!(first_visible(0, 9, 10, 100), 0);
        assert_eq!(first_visible(0, 10, 10, 100), 1);
        assert_eq!(first_visible(50, 55, 10, 100), 50);
        assert_eq!(first_visible(50, 3, 10, 100), 3);
        assert_eq!(first_visible(95, 99, 10, 100), 90);
        assert_eq!(first_visible(5, 2, 10, 3), 0);
        assert_eq!(first_visible(0, 7, 0, 10), 7);
    }
}

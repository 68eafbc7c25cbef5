//! A terminal screen that follows the status: endpoints, the time to their next change, throughput.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Gauge, Paragraph};

use super::follow::Screen;
use super::text;
use control::tunnel_status::{Peer, State, Status};

/// What is on the screen.
#[derive(Default)]
pub(super) struct View {
    status: Option<Status>,
    /// When the status was had.
    at: Option<Instant>,
    /// What more than one status tells of each peer.
    followed: Vec<Followed>,
    /// Why there is no newer status.
    error: Option<control::Error>,
    /// Peers scrolled past.
    first: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Followed {
    rates: Rates,
    /// The longest time to a rotation that was seen, in milliseconds: what the countdown's full bar stands for.
    longest_wait_ms: u64,
}

/// Bits and packets per second, sent and received.
#[derive(Debug, Clone, Copy, Default)]
struct Rates {
    tx_bits: f64,
    rx_bits: f64,
    tx_packets: f64,
    rx_packets: f64,
}

impl Rates {
    fn between(before: &Peer, after: &Peer, seconds: f64) -> Rates {
        let per_second = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds.max(0.001);
        Rates {
            tx_bits: 8.0 * per_second(before.tx_bytes, after.tx_bytes),
            rx_bits: 8.0 * per_second(before.rx_bytes, after.rx_bytes),
            tx_packets: per_second(before.tx_packets, after.tx_packets),
            rx_packets: per_second(before.rx_packets, after.rx_packets),
        }
    }
}

impl Screen for View {
    type Status = Status;

    fn update(&mut self, answer: Result<Status, control::Error>, now: Instant) {
        let status = match answer {
            Ok(status) => status,
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        let seconds = self.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64());
        let follow = |peer: &Peer| {
            let mut peers = self.status.iter().flat_map(|status| &status.peers).zip(&self.followed);
            let before = peers.find(|(before, _)| before.public_key == peer.public_key);
            let longest_wait_ms = before.map_or(0, |(_, followed)| followed.longest_wait_ms);
            Followed {
                rates: before.map(|(before, _)| Rates::between(before, peer, seconds)).unwrap_or_default(),
                longest_wait_ms: longest_wait_ms.max(peer.next_rotation_ms.unwrap_or(0)),
            }
        };
        self.followed = status.peers.iter().map(follow).collect();
        self.first = self.first.min(status.peers.len().saturating_sub(1));
        self.status = Some(status);
        self.at = Some(now);
        self.error = None;
    }

    fn failed(&self) -> Option<&control::Error> {
        self.error.as_ref().filter(|_| self.status.is_none())
    }

    fn scroll(&mut self, by: isize) {
        let last = self.status.as_ref().map_or(0, |status| status.peers.len().saturating_sub(1));
        self.first = self.first.saturating_add_signed(by).min(last);
    }

    fn draw(&self, frame: &mut Frame<'_>, now: Instant) {
        let Some(status) = &self.status else { return };
        let rows = Layout::vertical([Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1)]);
        let [head, body, foot] = rows.areas(frame.area());
        frame.render_widget(
            Paragraph::new(vec![
                Line::from(vec![
                    Span::from(status.tunnel.as_str()).bold(),
                    format!("  hops in {} on {}", status.hop_prefix, status.external).into(),
                ]),
                Line::from(format!(
                    "up {}, {} of {} peers established",
                    text::duration(status.uptime_s),
                    status.peers.iter().filter(|peer| peer.state == State::Established).count(),
                    status.peers.len()
                ))
                .dim(),
            ]),
            head,
        );
        let age = self.at.map_or(0, |at| now.duration_since(at).as_millis());
        let age = u64::try_from(age).unwrap_or(u64::MAX);
        let mut free = body;
        for (peer, followed) in status.peers.iter().zip(&self.followed).skip(self.first) {
            let height = peer_height(peer);
            if free.height < height.min(4) {
                break;
            }
            let [area, rest] =
                Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(free);
            draw_peer(frame, area, peer, *followed, age);
            free = rest;
        }
        let foot_line = match &self.error {
            Some(error) => Line::from(error.to_string()).red(),
            None => Line::from("q: leave   up, down: other peers").dim(),
        };
        frame.render_widget(foot_line, foot);
    }
}

/// Border, endpoints of each lane, countdown, throughput, path and drops.
fn peer_height(peer: &Peer) -> u16 {
    let lanes = u16::try_from(peer.local.len()).unwrap_or(u16::MAX);
    let drops = u16::from(peer.drops.values().any(|&count| count > 0));
    let session = if peer.session.is_some() { 2 } else { 0 };
    lanes.saturating_add(3 + session + drops + u16::from(peer.shape.is_some()))
}

fn draw_peer(frame: &mut Frame<'_>, area: Rect, peer: &Peer, followed: Followed, age_ms: u64) {
    let rates = followed.rates;
    let colour = match peer.state {
        State::Established => Color::Green,
        State::Handshake => Color::Yellow,
        State::Silent => Color::Red,
        State::Idle => Color::DarkGray,
    };
    let mut title = vec![
        Span::from(format!(" {} ", peer.name)).bold(),
        Span::styled(text::state(peer.state), Style::new().fg(colour)),
    ];
    if let Some(session) = &peer.session {
        title.push(format!(" for {}, {} ", text::duration(session.age_s), session.cipher).into());
    }
    let block = Block::bordered().title(Line::from(title)).border_style(Style::new().fg(colour));
    let inner = block.inner(area);
    frame.render_widget(block, area);

    let mut lines = Vec::new();
    for local in &peer.local {
        let remote = peer.remote.iter().find(|remote| remote.lane == local.lane);
        lines.push(Line::from(vec![
            Span::from(text::endpoint(local)).cyan(),
            " <-> ".into(),
            Span::from(remote.map_or("?".to_owned(), text::endpoint)).magenta(),
        ]));
    }
    let throughput = format!(
        "out {} ({:.0} packets/s)   in {} ({:.0} packets/s)",
        text::rate(rates.tx_bits),
        rates.tx_packets,
        text::rate(rates.rx_bits),
        rates.rx_packets
    );
    lines.push(throughput.into());
    if peer.session.is_some() {
        let rtt = peer.rtt_ms.map_or("not known yet".to_owned(), text::milliseconds);
        let offset = peer
            .clock_offset_ms
            .map_or(String::new(), |ms| format!("   clock off by {}", text::milliseconds(ms as f64)));
        lines.push(format!("round trip {rtt}   path MTU {}{offset}", peer.path_mtu).into());
    }
    if let Some(shape) = &peer.shape {
        lines.push(format!("shape: {}", text::shape(shape)).into());
    }
    let drops = text::drops(&peer.drops);
    if !drops.is_empty() {
        lines.push(Line::from(format!("dropped: {drops}")).yellow());
    }
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let [texts, gauge] = Layout::vertical([Constraint::Length(height), Constraint::Length(1)]).areas(inner);
    frame.render_widget(Paragraph::new(lines), texts);
    if let Some(next) = peer.next_rotation_ms {
        let left = next.saturating_sub(age_ms);
        let label = format!("{} rotations, next in {:.1} s", peer.rotations, left as f64 / 1000.0);
        let ratio = (left as f64 / followed.longest_wait_ms.max(1) as f64).clamp(0.0, 1.0);
        let style = Style::new().fg(Color::Blue).bg(Color::Black);
        frame.render_widget(Gauge::default().ratio(ratio).label(label).gauge_style(style), gauge);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::tunnel_status::example;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use std::time::Duration;

    fn screen(view: &View, width: u16, height: u16, now: Instant) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame, now)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn it_shows_endpoints_countdown_and_throughput() {
        let start = Instant::now();
        let mut view = View::default();
        view.update(Ok(example()), start);
        let mut later = example();
        later.peers[0].tx_bytes += 250_000_000;
        later.peers[0].tx_packets += 200_000;
        let second = start + Duration::from_secs(2);
        view.update(Ok(later), second);
        let shown = screen(&view, 90, 24, second + Duration::from_millis(500));
        for part in [
            "[2001:db8:a1::1234]:4321 <-> [2001:db8:b1::abcd]:1234",
            "next in 3.7 s",
            "out 1.0 Gbit/s (100000 packets/s)",
            "round trip 1.25 ms",
            "dropped: 3 replay",
            "site-c",
        ] {
            assert!(shown.contains(part), "{part} is missing in:\n{shown}");
        }
    }

    #[test]
    fn a_daemon_that_is_gone_leaves_the_last_status_and_the_reason() {
        let now = Instant::now();
        let mut view = View::default();
        view.update(Ok(example()), now);
        view.update(Err(control::Error::Refused("nobody answers".into())), now);
        let shown = screen(&view, 90, 24, now);
        assert!(shown.contains("site-b") && shown.contains("nobody answers"), "{shown}");
    }

    #[test]
    fn no_size_of_terminal_panics() {
        let now = Instant::now();
        let mut view = View::default();
        view.update(Ok(example()), now);
        for width in [1, 2, 3, 10, 40, 200] {
            for height in [1, 2, 3, 4, 5, 6, 8, 50] {
                screen(&view, width, height, now);
            }
        }
    }
}

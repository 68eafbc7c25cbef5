//! What is on the screen, and what keys do.

use std::time::Instant;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Stylize;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Padding, Paragraph};

use super::events::Events;
use super::gateway::Gateway;
use super::peers::Peers;
use super::source::Answer;
use super::tunnel::Tunnel;
use crate::fit;
use crate::show::table::Choice;

/// What a screen is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tab {
    Peers,
    Gateway,
    Events,
}

/// Keys, and what they do.
const KEYS: [(&str, &str); 13] = [
    ("q, Ctrl-C", "leave"),
    ("Esc", "one step back, in the end leave"),
    ("Tab", "peers, gateway, events in turn"),
    ("/", "show only what has these words; Enter keeps them, Esc drops them"),
    ("up, down, j, k", "the next one, or scroll"),
    ("PgUp, PgDn", "a page"),
    ("Home, End, g, G", "the first, the last"),
    ("Enter", "all that is known of the selected peer, or the table again"),
    ("s, S", "sort by the next column, or the one before"),
    ("r", "sort from the other end"),
    ("?, h", "this help"),
    ("", ""),
    ("underlined", "the column that is sorted by"),
];

/// What is on the screen.
pub(super) struct App {
    tunnels: Vec<Tunnel>,
    peers: Peers,
    gateway: Gateway,
    events: Events,
    tab: Tab,
    /// What is looked for, in all tabs.
    filter: String,
    /// Whether keys are letters of it.
    types: bool,
    helps: bool,
    /// Lines of events that were scrolled past.
    scrolled: usize,
}

impl App {
    pub(super) fn new(tab: Tab, choice: Choice) -> Self {
        App {
            tunnels: Vec::new(),
            filter: choice.filter.clone().unwrap_or_default(),
            peers: Peers::new(choice),
            gateway: Gateway::default(),
            events: Events::default(),
            tab,
            types: false,
            helps: false,
            scrolled: 0,
        }
    }

    /// Takes what was answered.
    pub(super) fn update(&mut self, answer: Answer) {
        for (name, status) in answer.tunnels {
            let at = self.tunnels.binary_search_by(|tunnel| tunnel.name.cmp(&name)).unwrap_or_else(|at| {
                self.tunnels.insert(at, Tunnel::named(name));
                at
            });
            self.tunnels[at].update(status, answer.at);
        }
        if let Some(gateway) = answer.gateway {
            self.gateway.update(gateway, answer.at);
        }
        self.events.extend(answer.events);
        self.peers.arrange(&self.tunnels, &self.filter);
    }

    /// Whether it changes by itself between two answers.
    pub(super) fn moves(&self) -> bool {
        self.tab == Tab::Peers && self.peers.moves()
    }

    /// Does what a key says; true where that is to leave.
    pub(super) fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return true,
            code if self.types => self.type_in(code, with_control),
            KeyCode::Char('q') => return true,
            KeyCode::Esc => return !self.back(),
            KeyCode::Char('?' | 'h') => self.helps = !self.helps,
            _ if self.helps => self.helps = false,
            KeyCode::Char('/') => self.types = true,
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(2),
            code => match self.tab {
                Tab::Peers => self.peers.press(code, &self.tunnels, &self.filter),
                Tab::Gateway => self.gateway.press(code),
                Tab::Events => self.scroll(code),
            },
        }
        false
    }

    fn type_in(&mut self, code: KeyCode, with_control: bool) {
        match code {
            KeyCode::Enter => self.types = false,
            KeyCode::Esc => {
                self.types = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char('u') if with_control => self.filter.clear(),
            KeyCode::Char(letter) if !with_control => self.filter.push(letter),
            KeyCode::Up | KeyCode::Down if self.tab == Tab::Peers => {
                self.peers.press(code, &self.tunnels, &self.filter);
            }
            _ => return,
        }
        self.peers.arrange(&self.tunnels, &self.filter);
    }

    /// One step back; false where there is none.
    fn back(&mut self) -> bool {
        if std::mem::take(&mut self.helps) || (self.tab == Tab::Peers && self.peers.back()) {
            return true;
        }
        let was_filtered = !std::mem::take(&mut self.filter).is_empty();
        self.peers.arrange(&self.tunnels, &self.filter);
        was_filtered
    }

    fn tabs(&self) -> Vec<Tab> {
        let all = [Tab::Peers, Tab::Gateway, Tab::Events];
        let is_there = |tab: &Tab| match tab {
            Tab::Peers => !self.tunnels.is_empty() || self.tab == Tab::Peers,
            Tab::Gateway => self.gateway.is_there() || self.tab == Tab::Gateway,
            Tab::Events => true,
        };
        all.into_iter().filter(is_there).collect()
    }

    fn turn(&mut self, by: usize) {
        let tabs = self.tabs();
        let at = tabs.iter().position(|tab| *tab == self.tab).unwrap_or(0);
        // Backwards is forwards by all but one.
        let by = if by == 1 { 1 } else { tabs.len() - 1 };
        self.tab = tabs[(at + by) % tabs.len()];
        self.scrolled = 0;
    }

    fn scroll(&mut self, code: KeyCode) {
        self.scrolled = match code {
            KeyCode::Up | KeyCode::Char('k') => self.scrolled.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scrolled + 1,
            KeyCode::PageUp => self.scrolled.saturating_sub(20),
            KeyCode::PageDown => self.scrolled + 20,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => usize::MAX / 2,
            _ => return,
        };
    }

    /// Draws it, in any size.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, now: Instant) {
        let gone = self.gone(frame.area().width.into());
        let height = u16::try_from(gone.len()).unwrap_or(u16::MAX);
        let rows = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(height),
            Constraint::Fill(1),
            Constraint::Length(1),
        ]);
        let [head, top, body, foot] = rows.areas(frame.area());
        frame.render_widget(self.head(), head);
        frame.render_widget(Paragraph::new(gone), top);
        match self.tab {
            _ if self.helps => draw_help(frame, body),
            Tab::Peers => self.peers.draw(frame, body, &self.tunnels, &self.events, now),
            Tab::Gateway => self.gateway.draw(frame, body, &self.filter),
            Tab::Events => {
                let lines = self.events.all(&self.filter, body.width.into());
                self.scrolled = self.scrolled.min(lines.len().saturating_sub(body.height.into()));
                let lines: Vec<_> = lines.into_iter().skip(self.scrolled).collect();
                let none = vec![Line::from("no event, or none that is looked for").dim()];
                frame.render_widget(Paragraph::new(if lines.is_empty() { none } else { lines }), body);
            }
        }
        frame.render_widget(self.foot(foot.width.into()), foot);
    }

    /// Tunnels that do not answer, above whatever is shown of them.
    fn gone(&self, width: usize) -> Vec<Line<'static>> {
        let tunnels = self.tunnels.iter().filter(|_| self.tab != Tab::Gateway);
        let errors = tunnels.filter_map(|tunnel| tunnel.error.clone());
        errors.flat_map(|error| fit::wrap(&Line::from(error).red(), width, 2)).collect()
    }

    fn head(&self) -> Line<'static> {
        let tabs = self.tabs().into_iter().map(|tab| {
            let name = Span::from(match tab {
                Tab::Peers => " peers ",
                Tab::Gateway => " gateway ",
                Tab::Events => " events ",
            });
            if tab == self.tab { name.bold().reversed() } else { name.dim() }
        });
        Line::from_iter(tabs)
    }

    /// What is looked for, or keys, as many as there is room for.
    fn foot(&self, width: usize) -> Line<'static> {
        if self.types {
            let typed = fit::cut(&self.filter, width.saturating_sub(2));
            return Line::from(vec![Span::from("/").bold(), Span::from(typed), Span::from("▏")]);
        }
        let mut keys = Vec::new();
        if !self.filter.is_empty() {
            keys.push(format!("only {} (Esc: all)", fit::cut(&self.filter, width / 3)));
        }
        keys.extend(["?: help", "q: leave", "/: find", "Tab: others"].map(str::to_owned));
        if self.tab == Tab::Peers {
            keys.extend(["Enter: details", "s: sort", "r: reverse"].map(str::to_owned));
        }
        let mut shown = String::new();
        for key in keys {
            let longer = if shown.is_empty() { key } else { format!("{shown}   {key}") };
            if fit::width(&longer) > width {
                break;
            }
            shown = longer;
        }
        Line::from(shown).dim()
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let width = usize::from(area.width.saturating_sub(4));
    let line = |(key, does): &(&str, &str)| {
        let line =
            Line::from(vec![Span::from(format!("{key:<16}  ")).bold(), Span::from((*does).to_owned())]);
        fit::wrap(&line, width, 18.min(width / 2))
    };
    let lines: Vec<Line<'static>> = KEYS.iter().flat_map(line).collect();
    let block = Block::bordered().title(" keys ").padding(Padding::horizontal(1));
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use control::event::Event;
    use control::tunnel_status::{Fault, State, Status, example};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::Map;

    use super::*;

    /// What bars and boxes are drawn with.
    const DRAWN: &str = "▁▂▃▄▅▆▇█▏│┌┐└┘─";

    /// A tunnel with so many peers, of which some are silent and some are slow.
    fn status(peers: u64) -> Status {
        let mut status = example();
        let peer = status.peers[0].clone();
        let peers = (0..peers).map(|number| {
            let mut peer = peer.clone();
            peer.name = format!("site-{number}");
            peer.rtt_ms = Some(1.25 + number as f64);
            if number % 7 == 3 {
                peer.state = State::Silent;
                let says = "nothing comes from its prefix, and a router says that there is no route to it: is the prefix routed to the gateway there (ip -6 route get 2001:db8:b1::1)?";
                peer.fault = Some(Fault { code: "unreachable".into(), says: says.into() });
            }
            peer
        });
        status.peers = peers.collect();
        status
    }

    fn event(number: u64, peer: &str, message: &str) -> (String, Event) {
        let event = Event {
            number,
            time: format!("2026-11-26T16:20:{number:02}.123Z"),
            unix_ms: number,
            priority: "warning".into(),
            event: "peer_silent".into(),
            peer: Some(peer.into()),
            reason: None,
            message: message.into(),
            fields: Map::new(),
        };
        ("mt6d0".into(), event)
    }

    fn answer(at: Instant, status: Status) -> Answer {
        Answer { at, tunnels: vec![("mt6d0".into(), Ok(status))], gateway: None, events: Vec::new() }
    }

    /// A screen after three answers.
    fn app(peers: u64) -> (App, Instant) {
        let (mut app, start) = (App::new(Tab::Peers, Choice::default()), Instant::now());
        for second in 0..3 {
            let mut status = status(peers);
            for (number, peer) in status.peers.iter_mut().enumerate() {
                peer.rx_bytes += second * 1_000 * number as u64;
                peer.tx_bytes += second * 50_000;
            }
            app.update(answer(start + Duration::from_secs(second), status));
        }
        let message = "site-3 is silent: nothing comes from its prefix, for the second time in this hour";
        app.events.extend((1..30).map(|number| event(number, "site-3", message)).collect());
        (app, start + Duration::from_secs(2))
    }

    fn lines(app: &mut App, now: Instant, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| app.draw(frame, now)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(row).collect()
    }

    fn screen(app: &mut App, now: Instant, width: u16, height: u16) -> String {
        lines(app, now, width, height).join("\n")
    }

    fn press(app: &mut App, keys: &str) {
        for key in keys.chars() {
            let code = match key {
                '\n' => KeyCode::Enter,
                '\t' => KeyCode::Tab,
                '\x1b' => KeyCode::Esc,
                '↓' => KeyCode::Down,
                '⇟' => KeyCode::PageDown,
                '⌫' => KeyCode::Backspace,
                key => KeyCode::Char(key),
            };
            assert!(!app.press(KeyEvent::from(code)), "{key:?} leaves");
        }
    }

    fn selected(app: &mut App, now: Instant) -> String {
        press(app, "\n");
        let shown = screen(app, now, 80, 40);
        press(app, "\n");
        let name =
            shown.lines().find(|line| line.starts_with('┌')).and_then(|line| line.split_whitespace().nth(1));
        name.unwrap_or_else(|| panic!("no details in:\n{shown}")).to_owned()
    }

    #[test]
    fn a_screen_of_80_columns() {
        let (mut app, now) = app(9);
        press(&mut app, "↓↓↓");
        let shown = screen(&mut app, now, 80, 24);
        let expected = "\x20peers  events
mt6d0: hops in 2001:db8:a1::/64 on eth0, running for 1 d 1 h, version 0.1.0
9 peers: 1 silent, 8 established   in 288.0 kbit/s, out 3.6 Mbit/s   by peer
PEER    STATE          HEARD      RTT            IN           OUT    RECEIVED
site-0  established    0.2 s  1.25 ms       0 bit/s  400.0 kbit/s    38.1 MiB
site-1  established    0.2 s  2.25 ms    8.0 kbit/s  400.0 kbit/s    38.1 MiB
site-2  established    0.2 s  3.25 ms   16.0 kbit/s  400.0 kbit/s    38.2 MiB
site-3  silent         0.2 s  4.25 ms   24.0 kbit/s  400.0 kbit/s    38.2 MiB
site-4  established    0.2 s  5.25 ms   32.0 kbit/s  400.0 kbit/s    38.2 MiB
site-5  established    0.2 s  6.25 ms   40.0 kbit/s  400.0 kbit/s    38.2 MiB
site-6  established    0.2 s  7.25 ms   48.0 kbit/s  400.0 kbit/s    38.2 MiB
site-7  established    0.2 s  8.25 ms   56.0 kbit/s  400.0 kbit/s    38.2 MiB
site-8  established    0.2 s  9.25 ms   64.0 kbit/s  400.0 kbit/s    38.2 MiB


site-3: nothing comes from its prefix, and a router says that there is no route
  to it: is the prefix routed to the gateway there (ip -6 route get
  2001:db8:b1::1)? (unreachable)
events, in UTC
16:20:29 mt6d0: site-3 is silent: nothing comes from its prefix, for the second…
16:20:28 mt6d0: site-3 is silent: nothing comes from its prefix, for the second…
16:20:27 mt6d0: site-3 is silent: nothing comes from its prefix, for the second…
16:20:26 mt6d0: site-3 is silent: nothing comes from its prefix, for the second…
?: help   q: leave   /: find   Tab: others   Enter: details   s: sort";
        assert_eq!(shown, expected, "\n{shown}");
    }

    #[test]
    fn the_selected_peer_stays_selected_wherever_it_moves() {
        let (mut app, now) = app(100);
        press(&mut app, "↓↓");
        assert_eq!(selected(&mut app, now), "site-2");
        app.update(answer(now, status(40)));
        assert_eq!(selected(&mut app, now), "site-2");
        press(&mut app, "\nssssr\n");
        assert_eq!(selected(&mut app, now), "site-2");
        press(&mut app, "⇟");
        assert_ne!(selected(&mut app, now), "site-2");
        // The one that is selected is gone.
        app.update(answer(now, status(1)));
        assert_eq!(selected(&mut app, now), "site-0");
    }

    #[test]
    fn it_is_filtered_as_one_types() {
        let (mut app, now) = app(100);
        press(&mut app, "/site-9");
        let shown = screen(&mut app, now, 80, 40);
        assert!(
            shown.contains("11 shown") && shown.contains("site-90") && !shown.contains("site-1 "),
            "{shown}"
        );
        press(&mut app, "⌫");
        assert!(screen(&mut app, now, 80, 40).contains("site-1 "));
        // Letters that are keys elsewhere are letters here.
        press(&mut app, "q");
        assert!(screen(&mut app, now, 80, 40).contains("no peer"));
        press(&mut app, "\x1b/silent\n");
        let shown = screen(&mut app, now, 80, 40);
        assert!(shown.contains("14 shown") && shown.contains("only silent (Esc: all)"), "{shown}");
        press(&mut app, "\x1b");
        assert!(!screen(&mut app, now, 80, 40).contains("shown"));
        assert!(app.press(KeyEvent::from(KeyCode::Esc)), "the last step back leaves");
    }

    #[test]
    fn it_is_sorted_from_either_end() {
        let (mut app, now) = app(50);
        let first = |app: &mut App| {
            let shown = screen(app, now, 80, 30);
            let after = shown.split("PEER").nth(1).and_then(|rest| rest.lines().nth(1)).map(str::to_owned);
            after.and_then(|line| line.split_whitespace().next().map(str::to_owned)).unwrap_or_default()
        };
        assert_eq!(first(&mut app), "site-0");
        press(&mut app, "s");
        assert_eq!(first(&mut app), "site-3", "what is silent first");
        press(&mut app, "sss");
        assert_eq!(first(&mut app), "site-49", "the longest round trip");
        press(&mut app, "r");
        assert_eq!(first(&mut app), "site-0");
    }

    #[test]
    fn details_tell_what_show_tells_and_how_it_has_been() {
        let (mut app, now) = app(5);
        press(&mut app, "↓↓↓\n");
        let shown = screen(&mut app, now + Duration::from_millis(500), 100, 60);
        for part in [
            "next move in 3.7 s",
            "round trip 4.25 ms",
            "in 24.0 kbit/s",
            "out 400.0 kbit/s",
            "session: silent for 1 h 2 min, AES-256-GCM, keys changed 31 times",
            "lane 0: [2001:db8:a1::1234]:4321 <-> [2001:db8:b1::abcd]:1234",
            "(unreachable)",
            "dropped: 3 replay",
            "16:20:29 mt6d0: site-3 is silent",
        ] {
            assert!(shown.contains(part), "{part} is missing in:\n{shown}");
        }
        // What does not fit is scrolled to.
        assert!(!screen(&mut app, now, 60, 14).contains("handshakes:"));
        press(&mut app, "⇟⇟⇟⇟⇟⇟");
        assert!(screen(&mut app, now, 60, 14).contains("16:20:"));
        press(&mut app, "\x1b");
        assert!(screen(&mut app, now, 60, 14).contains("PEER"));
    }

    #[test]
    fn a_daemon_that_is_gone_leaves_the_last_status_and_the_reason_until_it_is_back() {
        let (mut app, now) = app(3);
        let gone = control::Error::Refused("mt6d0 is not running: it has ended".into());
        app.update(Answer {
            at: now,
            tunnels: vec![("mt6d0".into(), Err(gone))],
            gateway: None,
            events: Vec::new(),
        });
        let shown = screen(&mut app, now, 80, 24);
        assert!(shown.contains("is not running: it has ended") && shown.contains("site-2"), "{shown}");
        for key in ["\n", "\t"] {
            press(&mut app, key);
            assert!(screen(&mut app, now, 80, 24).contains("is not running"), "after {key:?}");
        }
        press(&mut app, "\t\n");
        app.update(answer(now, status(4)));
        let shown = screen(&mut app, now, 80, 24);
        assert!(!shown.contains("not running") && shown.contains("site-3"), "{shown}");
    }

    #[test]
    fn several_tunnels_are_in_one_table() {
        let (mut app, now) = app(2);
        let mut other = status(2);
        other.tunnel = "mt6d1".into();
        let tunnels = vec![("mt6d1".into(), Ok(other))];
        app.update(Answer { at: now, tunnels, gateway: None, events: Vec::new() });
        let shown = screen(&mut app, now, 120, 24);
        assert!(
            shown.contains("TUNNEL") && shown.contains("4 peers") && shown.contains("mt6d1: hops in"),
            "{shown}"
        );
    }

    /// Whatever is shown, in any width: a word is whole, or says by an ellipsis that it is not.
    #[test]
    fn no_word_is_cut_without_an_ellipsis() {
        for keys in ["", "↓↓↓", "↓↓↓\n", "\t", "?", "/site-1"] {
            let (mut app, now) = app(20);
            press(&mut app, keys);
            let words = |lines: &[String]| -> Vec<String> {
                let text = lines.join("\n").replace(|drawn| DRAWN.contains(drawn), " ");
                text.split_whitespace().map(str::to_owned).collect()
            };
            let all: HashSet<String> = words(&lines(&mut app, now, 500, 200)).into_iter().collect();
            for width in (20..90).chain((90..260).step_by(10)) {
                let shown = lines(&mut app, now, width, 40);
                let has_ellipsis = shown.iter().any(|line| line.contains('…'));
                for word in words(&shown) {
                    let is_rest = has_ellipsis && all.iter().any(|whole| whole.ends_with(&word));
                    assert!(
                        all.contains(&word) || word.contains('…') || is_rest,
                        "{word:?} after {keys:?} in {width} columns:\n{}",
                        shown.join("\n")
                    );
                }
            }
        }
    }

    #[test]
    fn no_size_of_terminal_panics() {
        for keys in ["", "\n", "\t", "?", "/x"] {
            let (mut app, now) = app(20);
            press(&mut app, keys);
            for width in [1, 2, 3, 5, 10, 24, 40, 139, 140, 200] {
                for height in [1, 2, 3, 4, 5, 8, 17, 18, 50] {
                    screen(&mut app, now, width, height);
                }
            }
        }
    }
}

//! The gateway on the screen: links, prefixes and their lifetimes, neighbors, what the firewall refuses, who carries how
//! much, the tunnel's peers.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

use super::tunnel::colour;
use crate::fit;
use crate::show::table::has_words;
use crate::show::text as words;
use crate::status::text;
use control::router_status::{Network, Prefix, Status, Uplink};
use control::tunnel_status::State;

/// From so many columns on there are two of boxes.
const WIDE: u16 = 120;
/// Neighbors of a network that are listed.
const MOST_NEIGHBORS: usize = 8;

/// Peers that are told of, those first that need attention.
const MOST_PEERS: usize = 8;
/// What a talker's line takes.
const TALKER: u16 = 72;

/// What is known of it.
#[derive(Default)]
pub(super) struct Gateway {
    status: Option<Status>,
    /// When the status was had.
    at: Option<Instant>,
    /// What more than one status tells.
    rates: Rates,
    /// Why there is no newer status.
    error: Option<String>,
    /// Boxes scrolled past.
    first: usize,
    /// As many as there is any use in, where the screen was drawn last.
    last: Cell<usize>,
}

/// In a second, between the last two.
#[derive(Default)]
struct Rates {
    /// Bits sent and received.
    hosts: HashMap<IpAddr, (f64, f64)>,
    peers: HashMap<String, (f64, f64)>,
    /// Packets that the firewall refused.
    refused: Option<f64>,
}

impl Rates {
    fn between(before: &Status, after: &Status, seconds: f64) -> Self {
        // Counts get smaller where connections have ended, or a table is another.
        let per_second = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds.max(0.001);
        let bits = |before: (u64, u64), after: (u64, u64)| {
            (8.0 * per_second(before.0, after.0), 8.0 * per_second(before.1, after.1))
        };
        let hosts = |status: &Status| -> HashMap<IpAddr, (u64, u64)> {
            let counted = status.talkers.iter();
            counted
                .filter_map(|host| Some((host.address, (host.sent_bytes?, host.received_bytes?))))
                .collect()
        };
        let peers = |status: &Status| -> HashMap<String, (u64, u64)> {
            let peers = status.peers.iter();
            peers.map(|peer| (peer.name.clone(), (peer.sent_bytes, peer.received_bytes))).collect()
        };
        let refused =
            |status: &Status| status.firewall.as_ref().map(|all| all.dropped_packets + all.rejected_packets);
        let (known, known_peers) = (hosts(before), peers(before));
        let hosts = hosts(after).into_iter();
        let hosts = hosts.filter_map(|(host, now)| Some((host, bits(*known.get(&host)?, now))));
        let peers = peers(after).into_iter();
        let peers = peers.filter_map(|(peer, now)| {
            let before = *known_peers.get(&peer)?;
            Some((peer, bits(before, now)))
        });
        Self {
            hosts: hosts.collect(),
            peers: peers.collect(),
            refused: refused(before).zip(refused(after)).map(|(before, after)| per_second(before, after)),
        }
    }
}

/// A box of the screen.
struct Part {
    title: Line<'static>,
    colour: Color,
    lines: Vec<Line<'static>>,
}

impl Part {
    fn height(&self) -> u16 {
        u16::try_from(self.lines.len()).unwrap_or(u16::MAX).saturating_add(2)
    }

    /// With lines that are too long on several.
    fn wrapped(mut self, width: u16) -> Self {
        self.lines = self.lines.iter().flat_map(|line| fit::wrap(line, width.into(), 2)).collect();
        self
    }

    /// With those lines alone that have these words, all where its title has them; nothing where there is none.
    fn with(mut self, filter: &str) -> Option<Self> {
        if filter.is_empty() || has_words(&self.title.to_string(), filter) {
            return Some(self);
        }
        self.lines.retain(|line| has_words(&line.to_string(), filter));
        (!self.lines.is_empty()).then_some(self)
    }

    fn draw(self, frame: &mut Frame<'_>, area: Rect) {
        let title = fit::wrap(&self.title, area.width.saturating_sub(2).into(), 0);
        let block = Block::bordered()
            .title(title.into_iter().next().unwrap_or_default())
            .border_style(Style::new().fg(self.colour));
        frame.render_widget(Paragraph::new(self.lines).block(block), area);
    }
}

impl Gateway {
    /// Takes what was answered.
    pub(super) fn update(&mut self, answer: Result<Status, control::Error>, now: Instant) {
        let status = match answer {
            Ok(status) => status,
            Err(error) => {
                self.error = Some(error.to_string());
                return;
            }
        };
        if let (Some(before), Some(at)) = (&self.status, self.at) {
            self.rates = Rates::between(before, &status, now.duration_since(at).as_secs_f64());
        }
        self.status = Some(status);
        self.at = Some(now);
        self.error = None;
    }

    /// Whether one has answered.
    pub(super) const fn is_there(&self) -> bool {
        self.status.is_some()
    }

    /// Scrolls.
    pub(super) fn press(&mut self, key: KeyCode) {
        let (first, last) = (self.first.min(self.last.get()), self.last.get());
        self.first = match key {
            KeyCode::Up | KeyCode::Char('k') | KeyCode::PageUp => first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') | KeyCode::PageDown => (first + 1).min(last),
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => return,
        };
    }

    /// Draws it in any size: with a filter only lines that have its words.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect, filter: &str) {
        let width = usize::from(area.width);
        let mut head = Vec::new();
        if let Some(error) = &self.error {
            head.extend(fit::wrap(&Line::from(error.clone()).red(), width, 2));
        }
        let Some(status) = &self.status else { return frame.render_widget(Paragraph::new(head), area) };
        let working = status.uplinks.iter().filter(|uplink| uplink.works).count();
        let summary = format!(
            "gateway: running for {}, version {}, {working} of {} uplinks work",
            words::duration(status.uptime_seconds),
            status.version,
            status.uplinks.len()
        );
        head.extend(fit::wrap(&Line::from(summary).bold(), width, 2));
        let height = u16::try_from(head.len()).unwrap_or(u16::MAX);
        let [top, body] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(area);
        frame.render_widget(Paragraph::new(head), top);
        let columns = if body.width >= WIDE { body.width / 2 } else { body.width };
        let chosen = |parts: Vec<Part>| -> Vec<Part> {
            parts.into_iter().filter_map(|part| part.with(filter)).collect()
        };
        // What is looked for is found wherever it is.
        let most = |shown: usize| if filter.is_empty() { shown } else { usize::MAX };
        let links: Vec<Part> = problems(status)
            .into_iter()
            .chain(status.uplinks.iter().map(|own| uplink(status, own)))
            .chain(status.networks.iter().map(|own| network(status, own, most(MOST_NEIGHBORS))))
            .collect();
        let traffic: Vec<Part> = [
            self.firewall(status),
            Some(self.talkers(status, columns)),
            self.peers(status, most(MOST_PEERS)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let (links, traffic) = (chosen(links), chosen(traffic));
        let last = if body.width >= WIDE {
            let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(body);
            let last = draw_from(frame, left, links, self.first);
            last.max(draw_from(frame, right, traffic, self.first))
        } else {
            draw_from(frame, body, links.into_iter().chain(traffic).collect(), self.first)
        };
        self.last.set(last);
    }
}

/// Draws boxes from this one on, as many as there is room for; but not from one after the first from which on all fit,
/// which is returned.
fn draw_from(frame: &mut Frame<'_>, area: Rect, parts: Vec<Part>, first: usize) -> usize {
    let parts: Vec<_> = parts.into_iter().map(|part| part.wrapped(area.width.saturating_sub(2))).collect();
    let mut left = area.height;
    let fit = parts.iter().rev().take_while(|part| {
        let rest = left.checked_sub(part.height());
        left = rest.unwrap_or(0);
        rest.is_some()
    });
    // One that is higher than the screen is seen at its beginning.
    let last = (parts.len() - fit.count()).min(parts.len().saturating_sub(1));
    let first = first.min(last);
    let mut free = area;
    for part in parts.into_iter().skip(first) {
        let height = part.height();
        if free.height < height.min(3) {
            break;
        }
        let [area, rest] = Layout::vertical([Constraint::Length(height), Constraint::Fill(1)]).areas(free);
        part.draw(frame, area);
        free = rest;
    }
    last
}

fn title(what: &str, name: &str, state: &str, colour: Color) -> Line<'static> {
    Line::from(vec![
        format!(" {what} ").into(),
        Span::from(format!("{name} ")).bold(),
        Span::styled(format!("{state} "), Style::new().fg(colour)),
    ])
}

fn problems(status: &Status) -> Option<Part> {
    (!status.problems.is_empty()).then(|| Part {
        title: Line::from(" problems ").bold(),
        colour: Color::Red,
        lines: status.problems.iter().map(|problem| Line::from(problem.clone())).collect(),
    })
}

fn uplink(status: &Status, uplink: &Uplink) -> Part {
    let colour = if uplink.works { Color::Green } else { Color::Red };
    let mut lines: Vec<_> =
        listed("addresses", &status.addresses_at(&uplink.interface)).into_iter().collect();
    if let Some(router) = uplink.router {
        let until = uplink.router_seconds.map(|left| format!(", for {}", words::duration(left)));
        lines.push(Line::from(format!("router {router}{}", until.unwrap_or_default())));
    }
    lines.extend(uplink.prefixes.iter().map(prefix));
    let wait = uplink.waits_for_prefix.as_ref();
    lines.extend(wait.map(|wait| Line::from(format!("prefix: {}", text::waits(wait)))));
    lines.extend(listed("DNS", &uplink.dns_servers));
    let state = format!("at {}, {}", uplink.interface, text::uplink_state(uplink));
    Part { title: title("uplink", &uplink.name, &state, colour), colour, lines }
}

fn network(status: &Status, network: &Network, most: usize) -> Part {
    let colour = match network {
        Network { link_up: false, .. } => Color::Red,
        Network { rogue_routers, .. } if !rogue_routers.is_empty() => Color::Yellow,
        _ => Color::Green,
    };
    let addresses = status.addresses_at(&network.interface);
    let mut lines: Vec<Line<'static>> = listed("addresses", &addresses).into_iter().collect();
    lines.extend(network.prefixes.iter().map(prefix));
    if network.advertises {
        let leads = if network.default_router { "default router" } else { "no default router" };
        lines.push(Line::from(format!(
            "advertised: {leads}, {} sent, {} solicited",
            network.advertisements_sent, network.solicitations_received
        )));
    }
    for rogue in &network.rogue_routers {
        let line = format!(
            "ROGUE ROUTER {} ({}), heard {} ago",
            rogue.address,
            rogue.mac,
            words::duration(rogue.heard_seconds_ago)
        );
        lines.push(Line::from(line).yellow());
    }
    let neighbors: Vec<_> =
        status.neighbors.iter().filter(|neighbor| neighbor.interface == network.interface).collect();
    for neighbor in neighbors.iter().take(most) {
        lines.push(Line::from(vec![
            Span::from(format!("{:<40}", neighbor.address)).cyan(),
            Span::from(neighbor.mac.clone()).dim(),
        ]));
    }
    if neighbors.len() > most {
        lines.push(Line::from(format!("and {} more neighbors", neighbors.len() - most)).dim());
    }
    let link = if network.link_up { "link up" } else { "no link" };
    let state = format!("at {}, {link}", network.interface);
    Part { title: title("network", &network.name, &state, colour), colour, lines }
}

fn prefix(prefix: &Prefix) -> Line<'static> {
    let deprecated = prefix.preferred_seconds == Some(0);
    let name = Span::from(prefix.prefix.to_string());
    Line::from(vec![if deprecated { name.dim() } else { name.cyan() }, text::lasts(prefix).into()])
}

fn listed(what: &str, list: &[impl ToString]) -> Option<Line<'static>> {
    let list: Vec<_> = list.iter().map(ToString::to_string).collect();
    (!list.is_empty()).then(|| Line::from(format!("{what} {}", list.join(", "))))
}

impl Gateway {
    fn firewall(&self, status: &Status) -> Option<Part> {
        let firewall = status.firewall.as_ref()?;
        let now = self.rates.refused.map(|rate| format!("; {rate:.0}/s now")).unwrap_or_default();
        let mut lines = vec![Line::from(format!("{}{now}", text::refused(firewall)))];
        lines.extend(text::firewall_lines(firewall).into_iter().map(|(accepts, line)| {
            let line = Line::from(line);
            if accepts { line } else { line.yellow() }
        }));
        Some(Part { title: Line::from(" firewall ").bold(), colour: Color::Blue, lines })
    }

    fn talkers(&self, status: &Status, width: u16) -> Part {
        let mut lines = Vec::new();
        let is_wide = width >= TALKER;
        if !status.talkers.is_empty() && is_wide {
            let head = format!("{:<34}{:>6}{:>15}{:>15}", "", "conn.", "out", "in");
            lines.push(Line::from(head).dim());
        }
        for host in &status.talkers {
            let rate = |of: fn(&(f64, f64)) -> f64, bytes: Option<u64>| {
                let rate = self.rates.hosts.get(&host.address).map(of).filter(|bits| *bits > 0.0);
                rate.map(words::rate).or_else(|| Some(words::bytes(bytes? as f64))).unwrap_or_default()
            };
            let (out, back) =
                (rate(|rates| rates.0, host.sent_bytes), rate(|rates| rates.1, host.received_bytes));
            let count = host.connections;
            if is_wide {
                lines.push(Line::from(vec![
                    Span::from(format!("{:<34}", host.address)).cyan(),
                    format!("{count:>6}{out:>15}{back:>15}").into(),
                ]));
            } else {
                lines.push(Line::from(Span::from(host.address.to_string()).cyan()));
                lines.push(Line::from(format!("  {count} conn.   out {out}   in {back}")));
            }
        }
        if let Some(why) = &status.talkers_incomplete {
            lines.push(Line::from(why.clone()).dim());
        }
        let count = format!(" of {} connections ", status.connections);
        let title = Line::from(vec![Span::from(" talkers").bold(), count.into()]);
        Part { title, colour: Color::Blue, lines }
    }

    fn peers(&self, status: &Status, most: usize) -> Option<Part> {
        let tunnel = status.peers.first()?.tunnel.clone();
        let mut lines = Vec::new();
        // In the configuration's order, but those that work last: there may be hundreds.
        let mut peers: Vec<_> = status.peers.iter().collect();
        peers.sort_by_key(|peer| peer.state == State::Established);
        for peer in peers.iter().take(most) {
            lines.push(Line::from(vec![
                Span::from(format!("{} ", peer.name)).bold(),
                Span::styled(text::peer_state(peer), Style::new().fg(colour(peer.state))),
            ]));
            if let Some((out, back)) = self.rates.peers.get(&peer.name) {
                lines.push(Line::from(format!("  out {}   in {}", words::rate(*out), words::rate(*back))));
            }
        }
        if peers.len() > most {
            lines.push(Line::from(format!("and {} more peers (Tab)", peers.len() - most)).dim());
        }
        let working = peers.iter().filter(|peer| peer.state == State::Established).count();
        let title = Line::from(vec![
            " tunnel ".into(),
            Span::from(format!("{tunnel} ")).bold(),
            Span::from(format!("{working} of {} peers established ", peers.len())),
        ]);
        Some(Part { title, colour: Color::Blue, lines })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;
    use std::time::Duration;

    /// A gateway with all that there can be.
    fn example() -> Status {
        let prefix = |prefix: &str, preferred: u64| json!({ "prefix": prefix, "preferred_seconds": preferred, "valid_seconds": 5_400 });
        let uplink = |name: &str, works: bool| {
            json!({
                "name": name, "interface": "eth0", "link_up": true, "works": works, "probes_answered": works,
                "router": "fe80::1", "router_seconds": 1_750,
                "prefixes": [prefix("2001:db8:1000::/56", 3_600)], "dns_servers": ["2001:db8:ffff::53"],
                "waits_for_prefix": (!works).then(|| json!({
                    "seconds": 93, "status": "NoPrefixAvail", "why": "a server answers NoPrefixAvail: no contract",
                })),
            })
        };
        let talker = |address: &str, connections: u64, sent: u64, received: u64| {
            json!({
                "address": address, "connections": connections, "sent_bytes": sent, "sent_packets": sent / 100,
                "received_bytes": received, "received_packets": received / 1_000,
            })
        };
        serde_json::from_value(json!({
            "version": "0.1.0", "uptime_seconds": 93_600,
            "uplinks": [uplink("fibre", true), uplink("cable", false)],
            "networks": [{
                "name": "home", "interface": "eth1", "link_up": true, "advertises": true, "default_router": true,
                "prefixes": [prefix("2001:db8:1000::/64", 3_600), prefix("2001:db8:2000::/64", 0)],
                "dns_servers": ["2001:db8:ffff::53"], "advertisements_sent": 120, "solicitations_received": 7,
                "rogue_routers": [{
                    "address": "fe80::bad", "mac": "02:00:00:00:0b:ad", "default_router": true, "prefixes": [],
                    "dns_servers": [], "heard_seconds_ago": 12,
                }],
            }],
            "addresses": [
                { "interface": "eth1", "address": "2001:db8:1000::1/64", "preferred_seconds": null, "valid_seconds": null },
                { "interface": "eth1", "address": "192.168.5.1/24", "preferred_seconds": null, "valid_seconds": null },
                { "interface": "eth0", "address": "2001:db8:ffff::2/64", "preferred_seconds": null, "valid_seconds": null },
            ],
            "routes": [],
            "neighbors": [
                { "interface": "eth1", "address": "2001:db8:1000::a", "mac": "02:00:00:00:00:0a" },
                { "interface": "eth1", "address": "192.168.5.7", "mac": "02:00:00:00:00:07" },
            ],
            "firewall": {
                "dropped_packets": 1_234, "rejected_packets": 56, "refused_by_default_packets": 1_200,
                "rules": [{ "number": 3, "verdict": "accept", "packets": 812, "bytes": 81_200 }],
                "defaults": [{ "reason": "refused", "verdict": "drop", "packets": 1_178, "bytes": 90_000 }],
            },
            "connections": 41,
            "talkers": [talker("2001:db8:1000::a", 12, 5_000_000, 900_000_000), talker("192.168.5.7", 3, 1_000, 2_000)],
            "talkers_incomplete": null,
            "peers": [{
                "tunnel": "mt6d0", "name": "site-b", "state": "established", "rtt_ms": 1.25, "next_rotation_ms": 4_200,
                "sent_bytes": 1_000_000, "received_bytes": 2_000_000,
            }],
            "problems": ["route 2001:db8:5::/48: no such device"],
        }))
        .expect("a status")
    }

    fn screen(view: &Gateway, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame, frame.area(), "")).expect("a drawing");
        terminal.backend().to_string()
    }

    fn after_two_seconds() -> Gateway {
        let (start, mut view) = (Instant::now(), Gateway::default());
        view.update(Ok(example()), start);
        let mut later = example();
        later.talkers[0].received_bytes = Some(900_000_000 + 250_000_000);
        later.peers[0].sent_bytes += 2_500_000;
        if let Some(firewall) = &mut later.firewall {
            firewall.dropped_packets += 400;
        }
        view.update(Ok(later), start + Duration::from_secs(2));
        view
    }

    #[test]
    fn it_shows_links_refusals_talkers_and_peers() {
        let view = after_two_seconds();
        for shown in [screen(&view, 150, 30), screen(&view, 90, 50)] {
            for part in [
                "1 of 2 uplinks work",
                "uplink fibre at eth0, works",
                "uplink cable at eth0, no probe is answered",
                "addresses 2001:db8:ffff::2/64",
                "prefix: none yet, after 1 min 33 s of DHCPv6 requests: a server answers",
                "2001:db8:1000::/56, preferred for 1 h 0 min, valid for 1 h 30 min",
                "2001:db8:2000::/64, deprecated, valid for 1 h 30 min",
                "ROGUE ROUTER fe80::bad (02:00:00:00:0b:ad), heard 12 s ago",
                "192.168.5.7",
                "no such device",
                "1634 packets dropped, 56 rejected; 1200 of them by default; 200/s now",
                "rule 3",
                "41 connections",
                "1.0 Gbit/s",
                "site-b established, round trip 1.25 ms",
                "out 10.0 Mbit/s",
            ] {
                assert!(shown.contains(part), "{part} is missing in:\n{shown}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_scrolled_to() {
        let mut view = after_two_seconds();
        assert!(!screen(&view, 90, 16).contains("site-b"));
        for _ in 0..20 {
            view.press(KeyCode::Down);
        }
        let end = screen(&view, 90, 16);
        assert!(end.contains("site-b") && end.contains("talkers"), "past the end:\n{end}");
        view.press(KeyCode::Up);
        assert_ne!(screen(&view, 90, 16), end, "no key is lost at the end");
        for _ in 0..20 {
            view.press(KeyCode::Up);
        }
        assert!(screen(&view, 90, 16).contains("no such device"));
        // Where all fits there is nowhere to go.
        let all = screen(&view, 90, 60);
        view.press(KeyCode::Down);
        assert_eq!(screen(&view, 90, 60), all);
    }

    #[test]
    fn a_line_that_is_too_long_is_wrapped() {
        let mut view = Gateway::default();
        let mut status = example();
        status.problems = vec![format!("{} the end", "a long problem ".repeat(20))];
        view.update(Ok(status), Instant::now());
        let shown = screen(&view, 90, 60);
        assert!(shown.contains("the end"), "{shown}");
    }

    #[test]
    fn a_gateway_that_is_gone_leaves_the_last_status_and_the_reason() {
        let mut view = after_two_seconds();
        view.update(Err(control::Error::Refused("nobody answers".into())), Instant::now());
        let shown = screen(&view, 90, 50);
        assert!(shown.contains("fibre") && shown.contains("nobody answers"), "{shown}");
    }

    #[test]
    fn no_size_of_terminal_panics() {
        let view = after_two_seconds();
        for width in [1, 2, 3, 10, 40, 119, 120, 200] {
            for height in [1, 2, 3, 4, 5, 6, 8, 50] {
                screen(&view, width, height);
            }
        }
    }
}

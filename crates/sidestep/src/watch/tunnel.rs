//! A tunnel on the screen: its last status, and what was before.

use std::collections::HashMap;
use std::time::Instant;

use control::Error;
use control::tunnel_status::{Peer, State, Status};
use ratatui::style::Color;

use super::history::History;
use crate::show::table::Row;

/// A tunnel.
#[derive(Debug, Default)]
pub(super) struct Tunnel {
    pub(super) name: String,
    pub(super) status: Option<Status>,
    /// When the status was had.
    pub(super) at: Option<Instant>,
    /// Why there is no newer one.
    pub(super) error: Option<String>,
    /// One of each peer, in the status's order.
    histories: Vec<History>,
}

impl Tunnel {
    pub(super) fn named(name: String) -> Self {
        Tunnel { name, ..Tunnel::default() }
    }

    /// Takes what was answered.
    pub(super) fn update(&mut self, answer: Result<Status, Error>, now: Instant) {
        let status = match answer {
            Ok(status) => status,
            Err(error) => {
                self.error = Some(error.to_string());
                return;
            }
        };
        let before = std::mem::take(&mut self.histories).into_iter();
        let mut known: HashMap<String, History> =
            self.peers().iter().map(|peer| peer.name.clone()).zip(before).collect();
        let follow = |peer: &Peer| {
            let mut history = known.remove(&peer.name).unwrap_or_default();
            history.update(peer, now);
            history
        };
        self.histories = status.peers.iter().map(follow).collect();
        (self.status, self.at, self.error) = (Some(status), Some(now), None);
    }

    /// Its peers, as they were last.
    pub(super) fn peers(&self) -> &[Peer] {
        self.status.as_ref().map_or(&[], |status| &status.peers)
    }

    /// A peer as the table has it.
    pub(super) fn row(&self, peer: usize) -> Option<Row<'_>> {
        let rates = self.histories.get(peer).and_then(History::rates);
        Some(Row { tunnel: &self.name, peer: self.peers().get(peer)?, rates })
    }

    /// What has been so of a peer.
    pub(super) fn history(&self, peer: usize) -> Option<&History> {
        self.histories.get(peer)
    }

    /// How many milliseconds ago the status was had.
    pub(super) fn age_ms(&self, now: Instant) -> u64 {
        let age = self.at.map_or(0, |at| now.saturating_duration_since(at).as_millis());
        u64::try_from(age).unwrap_or(u64::MAX)
    }
}

/// What colour a state has.
pub(super) const fn colour(state: State) -> Color {
    match state {
        State::Established => Color::Green,
        State::Handshake => Color::Yellow,
        State::Silent => Color::Red,
        State::Idle => Color::DarkGray,
    }
}

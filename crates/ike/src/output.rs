//! What the parts of an endpoint leave behind for it: datagrams, events, and what is to be done to other IKE SAs.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::census::Census;
use crate::config::Config;
use crate::drops::Drops;
use crate::event::{Event, Path};
use crate::lease::Leases;
use crate::random::{Random, Spis};

/// What is before an IKE message on [`NAT_PORT`](crate::NAT_PORT), or what stands for it.
pub(crate) const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// A datagram to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transmit {
    /// From where, to where.
    pub path: Path,
    /// What.
    pub payload: Vec<u8>,
}

/// Datagrams, events and counters.
#[derive(Debug)]
pub(crate) struct Output {
    /// This end's port for IKE and ESP together.
    pub(crate) nat_port: u16,
    pub(crate) datagrams: VecDeque<Transmit>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) drops: Drops,
}

impl Output {
    pub(crate) fn new(nat_port: u16) -> Self {
        let (datagrams, events, drops) = Default::default();
        Self { nat_port, datagrams, events, drops }
    }

    /// Sends a message, behind a marker where one belongs.
    pub(crate) fn send(&mut self, path: Path, message: &[u8]) {
        let marker = if path.local.port() == self.nat_port { &NON_ESP_MARKER[..] } else { &[] };
        self.datagrams.push_back(Transmit { path, payload: [marker, message].concat() });
    }

    /// Sends the pieces of a message.
    pub(crate) fn send_all(&mut self, path: Path, messages: &[Vec<u8>]) {
        for message in messages {
            self.send(path, message);
        }
    }

    /// Keeps the mapping of a NAT alive (RFC 3948 §2.3).
    pub(crate) fn send_keepalive(&mut self, path: Path) {
        self.datagrams.push_back(Transmit { path, payload: vec![0xff] });
    }
}

/// What everything that happens is given.
pub(crate) struct Context<'a> {
    pub(crate) now: Instant,
    /// Time since 1970, if it is known.
    pub(crate) unix_time: Option<Duration>,
    pub(crate) config: &'a Config,
    pub(crate) random: &'a mut dyn Random,
    pub(crate) spis: &'a mut Spis,
    pub(crate) leases: &'a mut Leases,
    /// Of all IKE SAs but that which is just changed.
    pub(crate) census: &'a Census,
    pub(crate) out: &'a mut Output,
}

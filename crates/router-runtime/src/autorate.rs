//! Rates that follow what a line carries: asks a host behind it, and has CAKE let through what follows from its answers.

use std::net::Ipv6Addr;
use std::time::Instant;

use control::router_status::Delay;
use linux::echo::EchoSocket;
use linux::event::{Interest, Poller};
use linux::netlink::Link;
use router::autorate::{Autorate, Side};
use router::site::Uplink;

use crate::kernel::Kernel;
use crate::link::index_of;
use crate::random::random;
use crate::shaping::carried;
use crate::uplink;

/// Of sockets; none has one that another had.
const FIRST_TOKEN: u64 = 1 << 34;

/// The lines whose rates follow.
pub(super) struct Lines {
    lines: Vec<Line>,
    next_token: u64,
}

struct Line {
    uplink: Uplink,
    autorate: Autorate,
    /// The index of the interface that it is bound to, and its token.
    socket: Option<(EchoSocket, u32, u64)>,
    /// Whom it asks; none while nobody is known.
    host: Option<Ipv6Addr>,
}

impl Lines {
    pub(super) fn new() -> Self {
        Lines { lines: Vec::new(), next_token: FIRST_TOKEN }
    }

    /// Has the lines there that the configuration wants now; those that stay the same go on. Returns what cannot be had.
    pub(super) fn follow(
        &mut self,
        uplinks: &[uplink::Interface],
        links: &[Link],
        poller: &Poller,
        now: Instant,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        let mut before = std::mem::take(&mut self.lines);
        for interface in uplinks {
            let uplink = &interface.uplink;
            let Some(bandwidth) = uplink.bandwidth else { continue };
            let Some(limits) = bandwidth.limits() else { continue };
            let is_same = |line: &Line| {
                line.uplink.name == uplink.name
                    && line.uplink.bandwidth.is_some_and(|before| {
                        (before.limits().as_ref(), before.delay) == (Some(&limits), bandwidth.delay)
                    })
            };
            let mut line = match before.iter().position(is_same) {
                Some(place) => Line { uplink: uplink.clone(), ..before.remove(place) },
                None => Line {
                    uplink: uplink.clone(),
                    autorate: Autorate::new(limits, bandwidth.delay, now),
                    socket: None,
                    host: None,
                },
            };
            let router = || interface.state.router().and_then(|router| router.address);
            let host = bandwidth.reflector.or_else(router);
            if host.is_some() && host != line.host {
                line.host = host;
                line.autorate.ask_another(now);
            }
            let index = index_of(links, &uplink.interface);
            if line.socket.as_ref().map(|(_, index, _)| *index) != index {
                line.close(poller);
                let opened = index.map(|index| line.open(index, self.next_token, poller)).transpose();
                self.next_token += 1;
                problems.extend(
                    opened
                        .err()
                        .map(|error| format!("uplink {}: its rates do not follow: {error}", uplink.name)),
                );
            }
            self.lines.push(line);
        }
        before.iter_mut().for_each(|line| line.close(poller));
        problems.extend(self.lines.iter().filter_map(|line| line.problem(now)));
        problems
    }

    /// When somebody is to be asked next.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.lines
            .iter()
            .filter(|line| line.host.is_some() && line.socket.is_some())
            .map(|line| line.autorate.deadline())
            .min()
    }

    /// Asks, and has the kernel let through what follows from the answers so far.
    pub(super) fn handle_timeout(&mut self, kernel: &mut Kernel, links: &[Link], now: Instant) {
        for line in &mut self.lines {
            let (Some((socket, ..)), Some(host)) = (&line.socket, line.host) else { continue };
            if now < line.autorate.deadline() {
                continue;
            }
            let carried = carried(&line.uplink, links, &mut kernel.netlink);
            let sequence = line.autorate.ask(carried, now);
            // One that does not leave is not answered.
            let _ = socket.send(host, None, sequence);
            let rates = [Side::Down, Side::Up].map(|side| line.autorate.rate(side));
            kernel.set_rates(&line.uplink, rates, links);
        }
    }

    /// Whether the descriptor of this number is one of these.
    pub(super) fn owns(&self, token: u64) -> bool {
        self.lines.iter().any(|line| line.owns(token))
    }

    /// There is something to read.
    pub(super) fn handle_readable(&mut self, token: u64, now: Instant) {
        let Some(line) = self.lines.iter_mut().find(|line| line.owns(token)) else { return };
        while let Some((socket, ..)) = &line.socket
            && let Ok(Some((from, sequence))) = socket.recv()
        {
            if line.host == Some(from) {
                line.autorate.answer(sequence, now);
            }
        }
    }

    /// Who answers how fast for this uplink; nothing where its rates are fixed.
    pub(super) fn status(&self, uplink: &Uplink, now: Instant) -> Option<Delay> {
        let line = self.lines.iter().find(|line| line.uplink.name == uplink.name)?;
        let delays = line.autorate.delays().filter(|_| line.autorate.is_answered(now));
        let ms = |duration: std::time::Duration| duration.as_secs_f64() * 1e3;
        Some(Delay {
            reflector: line.host,
            usual_ms: delays.map(|(usual, _)| ms(usual)),
            newest_ms: delays.map(|(_, newest)| ms(newest)),
        })
    }
}

impl Line {
    fn owns(&self, token: u64) -> bool {
        self.socket.as_ref().is_some_and(|(_, _, own)| *own == token)
    }

    fn open(&mut self, index: u32, token: u64, poller: &Poller) -> linux::Result<()> {
        let socket = EchoSocket::open(&self.uplink.interface, random() as u16)?;
        poller.add(&socket, token, Interest::Readable)?;
        self.socket = Some((socket, index, token));
        Ok(())
    }

    fn close(&mut self, poller: &Poller) {
        if let Some((socket, ..)) = self.socket.take() {
            // It is closed, which removes it, too.
            let _ = poller.remove(&socket);
        }
    }

    fn problem(&self, now: Instant) -> Option<String> {
        let name = &self.uplink.name;
        match self.host {
            None => Some(format!(
                "uplink {name}: its rates stay at the least: it has no router to ask; write a `reflector`"
            )),
            Some(host) if self.autorate.asks_in_vain(now) => Some(format!(
                "uplink {name}: its rates stay as they are: {host} does not answer; write another `reflector`"
            )),
            Some(_) => None,
        }
    }
}

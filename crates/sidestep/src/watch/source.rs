//! What the sockets answer, once a second.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use control::event::Event;
use control::{Error, Request, router_status, tunnel_status};
use linux::event::Waker;

use crate::event_lines;
use crate::show::ask::{self, ask};
use crate::terminal::INTERVAL;

/// Which tunnels are asked.
#[derive(Debug, Clone)]
pub(crate) enum Tunnels {
    /// This one.
    At(PathBuf),
    /// Each that is up now, or was since the screen is there.
    All,
}

/// Whom to ask.
pub(crate) struct Source {
    tunnels: Tunnels,
    /// The gateway's socket, also where nothing listens.
    gateway: Option<PathBuf>,
    /// Tunnels that have answered.
    known: BTreeSet<PathBuf>,
    /// Of each the events that were read.
    read: BTreeMap<PathBuf, (u64, u64)>,
}

/// What was answered at one time.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(super) at: Instant,
    /// Each with its name.
    pub(super) tunnels: Vec<(String, Result<tunnel_status::Status, Error>)>,
    /// None where there is none.
    pub(super) gateway: Option<Result<router_status::Status, Error>>,
    /// What is new, each with the name of where it happened; the oldest first.
    pub(super) events: Vec<(String, Event)>,
}

impl Source {
    pub(crate) fn new(tunnels: Tunnels, gateway: Option<PathBuf>) -> Self {
        Source { tunnels, gateway, known: BTreeSet::new(), read: BTreeMap::new() }
    }

    /// Asks each once.
    pub(super) fn ask(&mut self) -> Answer {
        let mut tunnels = Vec::new();
        for socket in self.sockets() {
            match ask(&socket) {
                // Not one of ours, unless it was named.
                Err(Error::OtherKind { .. }) if matches!(self.tunnels, Tunnels::All) => continue,
                Ok(status) => {
                    self.known.insert(socket.clone());
                    tunnels.push((status.tunnel.clone(), Ok(status)));
                }
                Err(error) => tunnels.push((event_lines::name(&socket), Err(error))),
            }
        }
        let gateway = self.gateway.as_ref().map(|socket| gateway(socket));
        // Older ones have none to tell.
        let mut events = Vec::new();
        for socket in self.known.iter().chain(&self.gateway) {
            let new = event_lines::read(socket, &mut self.read).unwrap_or_default();
            events.extend(new.into_iter().map(|event| (event_lines::name(socket), event)));
        }
        events.sort_by_key(|(_, event)| event.unix_ms);
        Answer { at: Instant::now(), tunnels, gateway, events }
    }

    fn sockets(&self) -> BTreeSet<PathBuf> {
        match &self.tunnels {
            Tunnels::At(socket) => BTreeSet::from([socket.clone()]),
            Tunnels::All => {
                let mut sockets = self.known.clone();
                sockets.extend(ask::sockets().unwrap_or_default());
                sockets
            }
        }
    }

    /// Asks again and again in a thread, and wakes who waits for the answers. It ends when nobody does.
    pub(super) fn follow(mut self, waker: Waker) -> Receiver<Answer> {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(INTERVAL);
                if sender.send(self.ask()).is_err() {
                    return;
                }
                waker.wake();
            }
        });
        receiver
    }
}

fn gateway(socket: &Path) -> Result<router_status::Status, Error> {
    let value = control::ask(socket, &Request::Show)?;
    serde_json::from_value(value).map_err(|source| Error::Malformed { path: socket.to_owned(), source })
}

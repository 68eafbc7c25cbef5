//! Names of peers: looked up while a peer cannot be reached, by a thread that has nothing else to do, since that may take
//! seconds. What comes back is no more than where else to try ([`mt6d::Node::told_place`], [`mt6d::Node::told_record`]).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::sync::mpsc;
use std::time::Duration;

use config::{PeerName, TunnelConfig};
use dns::{Found, Kind, LookupError, lookup};
use ipnet::Ipv6Net;
use mt6d::{Node, Now, Time};
use tracing::{debug, info, warn};

/// How often it is looked whose names are to be looked up.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Between two questions about a name: as long as this at first, then twice as long each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// Questions that wait for the thread. One that finds no room is asked later.
const WAITING: usize = 64;

/// What was found of a name, or why nothing was.
pub(crate) struct Named {
    name: PeerName,
    result: Result<Vec<Found>, LookupError>,
}

/// When which name is looked up.
#[derive(Default)]
pub(crate) struct Names {
    thread: Option<mpsc::SyncSender<PeerName>>,
    next_look: Time,
    /// Of peers that are not heard: when each name is asked for next, how often it was, and what was told of it last.
    asked: BTreeMap<PeerName, Asked>,
}

#[derive(Default)]
struct Asked {
    next: Time,
    count: u32,
    told: Option<String>,
}

impl Names {
    /// When [`Names::look`] is to be called next.
    pub(crate) fn deadline(&self, config: &TunnelConfig) -> Time {
        if config.names.is_empty() { Time::from_micros(u64::MAX) } else { self.next_look }
    }

    /// Has names of peers looked up that are to be reached and are not heard; `report` is told what comes of it, on the thread
    /// that does it.
    pub(crate) fn look(
        &mut self,
        config: &TunnelConfig,
        node: &Node,
        now: Now,
        report: impl FnOnce() -> Box<dyn Fn(Named) + Send>,
    ) {
        if config.names.is_empty() || now.boot < self.next_look {
            return;
        }
        self.next_look = now.boot + LOOK_EVERY;
        let sought: Vec<_> = node.unheard(now).map(|peer| peer.name).collect();
        self.asked.retain(|name, _| sought.contains(&name.peer.as_str()) && config.names.contains(name));
        let wanted = config.names.iter().filter(|name| sought.contains(&name.peer.as_str()));
        let mut due = Vec::new();
        for name in wanted {
            let asked = self.asked.entry(name.clone()).or_default();
            if now.boot >= asked.next {
                let pause = (FIRST_PAUSE * (1 << asked.count.min(7))).min(LONGEST_PAUSE);
                asked.count += 1;
                asked.next = now.boot + pause;
                due.push(name.clone());
            }
        }
        if due.is_empty() {
            return;
        }
        if self.thread.is_none() {
            self.thread = start(report()).inspect_err(|error| warn!("names are not looked up: {error}")).ok();
        }
        for name in due {
            let _ = self.thread.as_ref().map(|thread| thread.try_send(name));
        }
    }

    /// Has the node try what was found.
    pub(crate) fn found(&mut self, named: Named, config: &TunnelConfig, node: &mut Node, now: Now) {
        let Named { name, result } = named;
        let PeerName { peer, name: shown, .. } = &name;
        let Some(prefix) = config.peer(peer).map(|peer| peer.hop_prefix) else { return };
        // It may have been taken out meanwhile.
        let Some(asked) = self.asked.get_mut(&name).filter(|_| config.names.contains(&name)) else { return };
        let told = format!("{result:?}");
        let outcome = match result {
            Ok(mut found) => {
                // One place is remembered: where there are several, each has its turn.
                found.sort();
                let first = asked.count as usize % found.len().max(1);
                found.rotate_left(first);
                let mut outcomes =
                    found.iter().map(|found| tried(found, peer, prefix.prefix_len(), node, now));
                let first = outcomes.next().unwrap_or_else(|| Err("it has nothing".to_owned()));
                first.or_else(|why| outcomes.find_map(Result::ok).ok_or(why))
            }
            Err(error) => Err(error.to_string()),
        };
        if asked.told.as_ref() == Some(&told) {
            return;
        }
        asked.told = Some(told);
        match outcome {
            Ok(place) => info!(event = "name", peer, "{peer}: {shown} says that it is in {place}"),
            Err(why) => warn!(event = "name", peer, reason = "unusable", "{peer}: {shown}: {why}"),
        }
    }
}

/// Has the node try what was found of a peer's name. Where that is, or why it is nowhere.
fn tried(found: &Found, peer: &str, length: u8, node: &mut Node, now: Now) -> Result<Ipv6Net, String> {
    match found {
        Found::Address(address) => {
            let place = prefix_of(*address, length);
            node.told_place(peer, place, now);
            Ok(place)
        }
        Found::Text(text) => node.told_record(peer, text, now).map_err(|why| why.to_string()),
    }
}

/// The prefix of this length that an address is in.
#[must_use]
pub fn prefix_of(address: Ipv6Addr, length: u8) -> Ipv6Net {
    Ipv6Net::new(address, length.min(128)).unwrap_or_default().trunc()
}

/// What to ask for.
#[must_use]
pub fn kind_of(name: &PeerName) -> Kind {
    if name.is_record { Kind::Txt } else { Kind::Aaaa }
}

fn start(report: Box<dyn Fn(Named) + Send>) -> std::io::Result<mpsc::SyncSender<PeerName>> {
    let (send, names) = mpsc::sync_channel::<PeerName>(WAITING);
    let run = move || {
        if let Err(error) = linux::process::keep_capabilities(&[]) {
            debug!("{error}");
        }
        for name in names {
            let result = lookup(&name.name, kind_of(&name));
            report(Named { name, result });
        }
    };
    std::thread::Builder::new().name("names".into()).spawn(run)?;
    Ok(send)
}

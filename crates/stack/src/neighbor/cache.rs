//! The neighbor cache (RFC 4861 §7.2, §7.3).

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use wire::ethernet::MacAddress;

use super::entry::{DELAY_FIRST_PROBE_TIME, Entry, MAX_MULTICAST_SOLICIT, MAX_UNICAST_SOLICIT, State};
use crate::DropReason;
use crate::random::Random;
use crate::soonest::Soonest;

/// Neighbors that are remembered: a large link's hosts, at some hundred octets each.
pub const MAX_NEIGHBORS: usize = 512;
/// Addresses that are asked for at once: a sweep over a prefix has no more (RFC 6583). For our own traffic, and again so
/// many for answers to strangers, so that these leave room for it.
pub const MAX_INCOMPLETE: usize = 64;
/// How long an answer counts, if no router says otherwise (RFC 4861 §10).
pub const REACHABLE_TIME: Duration = Duration::from_secs(30);
/// Between two questions, if no router says otherwise (RFC 4861 §10).
pub const RETRANS_TIMER: Duration = Duration::from_secs(1);

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// To this link-layer address.
    Known(MacAddress),
    /// It waits, and comes back in [`Action::Send`] or [`Action::Unreachable`].
    Queued,
    /// It waits in the place of the one that waited for longest, which is dropped (RFC 4861 §7.2.2).
    Displaced,
    /// It is dropped.
    Dropped(DropReason),
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Ask for an address: of all, or of the neighbor that should have it.
    Solicit {
        /// The address.
        target: Ipv6Addr,
        /// Where it should be.
        at: Option<MacAddress>,
        /// The address that the packet which waits is sent from (RFC 4861 §7.2.2).
        source: Option<Ipv6Addr>,
    },
    /// Send a packet that has waited.
    Send {
        /// Where to.
        to: MacAddress,
        /// The packet.
        packet: Vec<u8>,
    },
    /// The neighbor does not answer, and has been removed; nobody gets this packet, if there is one.
    Unreachable {
        /// The neighbor.
        neighbor: Ipv6Addr,
        /// The packet that waited for it.
        packet: Option<Vec<u8>>,
    },
    /// The neighbor says that it is a router no longer (RFC 4861 §7.2.5, §7.3.3).
    NoRouter(Ipv6Addr),
}

/// What a Neighbor Advertisement says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Advertisement {
    /// Whose link-layer address.
    pub target: Ipv6Addr,
    /// It is a router.
    pub router: bool,
    /// It answers us.
    pub solicited: bool,
    /// It replaces what is known.
    pub r#override: bool,
    /// The address.
    pub link_layer: Option<MacAddress>,
}

/// The neighbors of a link.
pub struct Neighbors {
    entries: BTreeMap<Ipv6Addr, Entry>,
    /// Of the entries' states.
    soonest: Soonest,
    actions: VecDeque<Action>,
    base_reachable_time: Duration,
    reachable_time: Duration,
    retrans_timer: Duration,
}

impl Default for Neighbors {
    fn default() -> Self {
        Neighbors {
            entries: BTreeMap::new(),
            soonest: Soonest::default(),
            actions: VecDeque::new(),
            base_reachable_time: REACHABLE_TIME,
            reachable_time: REACHABLE_TIME,
            retrans_timer: RETRANS_TIMER,
        }
    }
}

impl Neighbors {
    /// What routers say of times; `None` leaves them. The reachable time is drawn anew around its base when that changes
    /// (RFC 4861 §6.3.4).
    pub fn set_times(&mut self, reachable: Option<Duration>, retrans: Option<Duration>, random: &mut Random) {
        if let Some(base) = reachable
            && base != self.base_reachable_time
        {
            self.base_reachable_time = base;
            self.reachable_time = random.around(base);
        }
        self.retrans_timer = retrans.unwrap_or(self.retrans_timer);
    }

    /// Draws the reachable time anew, as is due every few hours (RFC 4861 §6.3.4).
    pub fn redraw(&mut self, random: &mut Random) {
        self.reachable_time = random.around(self.base_reachable_time);
    }

    /// Between two questions.
    pub fn retrans_timer(&self) -> Duration {
        self.retrans_timer
    }

    /// Where to send `packet` to reach `neighbor` (RFC 4861 §7.2.2, §7.3.3). `ours`: it is of our own traffic, no answer
    /// to a stranger.
    pub fn resolve(&mut self, now: Instant, neighbor: Ipv6Addr, packet: &[u8], ours: bool) -> Resolution {
        if let Some(entry) = self.entries.get_mut(&neighbor) {
            entry.used = now;
            entry.ours |= ours;
            let Some(link_layer) = entry.link_layer else {
                return if entry.enqueue(packet) { Resolution::Displaced } else { Resolution::Queued };
            };
            if entry.state == State::Stale {
                entry.state = State::Delay { until: now + DELAY_FIRST_PROBE_TIME };
                self.soonest.note(entry.state.deadline());
            }
            return Resolution::Known(link_layer);
        }
        if !self.ask(now, neighbor, source_of(packet), ours) {
            return Resolution::Dropped(DropReason::NeighborLimit);
        }
        if let Some(entry) = self.entries.get_mut(&neighbor) {
            entry.enqueue(packet);
        }
        Resolution::Queued
    }

    /// Asks for a neighbor of which nothing is known, though nothing waits for it: a router that would be better than the
    /// one in use (RFC 4191 §3.5).
    pub fn probe(&mut self, now: Instant, neighbor: Ipv6Addr) {
        if !self.entries.contains_key(&neighbor) {
            self.ask(now, neighbor, None, true);
        }
    }

    /// Asks a router that nothing has been sent to whether it is there: the places of those that are not are wanted. One that
    /// is being asked already is not asked again.
    pub fn verify(&mut self, now: Instant, router: Ipv6Addr) {
        let Some(entry) = self.entries.get_mut(&router) else {
            self.ask(now, router, None, false);
            return;
        };
        if entry.state == State::Stale && entry.link_layer.is_some() {
            entry.state = State::Probe { sent: 1, next: now + self.retrans_timer };
            self.soonest.note(entry.state.deadline());
            self.actions.push_back(Action::Solicit { target: router, at: entry.link_layer, source: None });
        }
    }

    /// A neighbor is a router that is there: strangers' entries do not push it out, though nothing was sent to it yet.
    pub fn keep(&mut self, router: Ipv6Addr) {
        if let Some(entry) = self.entries.get_mut(&router) {
            entry.ours = true;
        }
    }

    fn ask(&mut self, now: Instant, target: Ipv6Addr, source: Option<Ipv6Addr>, ours: bool) -> bool {
        let asked = |entry: &&Entry| entry.link_layer.is_none() && entry.ours == ours;
        let incomplete = self.entries.values().filter(asked).count();
        if incomplete >= MAX_INCOMPLETE || !self.make_room(ours) {
            return false;
        }
        let entry = Entry {
            state: State::Incomplete { sent: 1, next: now + self.retrans_timer },
            link_layer: None,
            is_router: false,
            ours,
            used: now,
            queue: VecDeque::new(),
        };
        self.soonest.note(entry.state.deadline());
        self.entries.insert(target, entry);
        self.actions.push_back(Action::Solicit { target, at: None, source });
        true
    }

    /// The link-layer address in a solicitation, router advertisement or redirect (RFC 4861 §6.3.4, §7.2.3, §8.3).
    /// `is_router`: what the message proves of its sender or target, if anything.
    pub fn learn(
        &mut self,
        now: Instant,
        neighbor: Ipv6Addr,
        link_layer: MacAddress,
        is_router: Option<bool>,
    ) {
        if link_layer.is_multicast() {
            return;
        }
        if !self.entries.contains_key(&neighbor) && !self.make_room(false) {
            return;
        }
        let entry = self.entries.entry(neighbor).or_insert_with(|| Entry {
            state: State::Stale,
            link_layer: Some(link_layer),
            is_router: false,
            ours: false,
            used: now,
            queue: VecDeque::new(),
        });
        if let Some(is_router) = is_router {
            entry.is_router = is_router;
        }
        if entry.link_layer != Some(link_layer) {
            entry.link_layer = Some(link_layer);
            entry.state = State::Stale;
            let waited = !entry.queue.is_empty();
            flush(&mut self.actions, entry, link_layer);
            if waited {
                // What has waited is sent now, from which STALE follows DELAY (RFC 4861 §7.3.3).
                entry.state = State::Delay { until: now + DELAY_FIRST_PROBE_TIME };
                self.soonest.note(entry.state.deadline());
            }
        }
    }

    /// A router has advertised without its link-layer address (RFC 4861 §6.3.4).
    pub fn mark_router(&mut self, neighbor: Ipv6Addr) {
        if let Some(entry) = self.entries.get_mut(&neighbor) {
            entry.is_router = true;
        }
    }

    /// A Neighbor Advertisement (RFC 4861 §7.2.5).
    pub fn advertised(&mut self, now: Instant, said: Advertisement) {
        // Nobody waits for it.
        let Some(entry) = self.entries.get_mut(&said.target) else { return };
        if said.link_layer.is_some_and(MacAddress::is_multicast) {
            return;
        }
        let reachable = State::Reachable { until: now + self.reachable_time };
        let Some(known) = entry.link_layer else {
            let Some(link_layer) = said.link_layer else { return };
            entry.link_layer = Some(link_layer);
            entry.is_router = said.router;
            entry.state = if said.solicited { reachable } else { State::Stale };
            let waited = !entry.queue.is_empty();
            flush(&mut self.actions, entry, link_layer);
            if waited && entry.state == State::Stale {
                entry.state = State::Delay { until: now + DELAY_FIRST_PROBE_TIME };
            }
            self.soonest.note(entry.state.deadline());
            return;
        };
        let new = said.link_layer.filter(|link_layer| *link_layer != known);
        if new.is_some() && !said.r#override {
            if matches!(entry.state, State::Reachable { .. }) {
                entry.state = State::Stale;
            }
            return;
        }
        if new.is_some() {
            entry.link_layer = new;
        }
        if said.solicited {
            entry.state = reachable;
            self.soonest.note(reachable.deadline());
        } else if new.is_some() {
            entry.state = State::Stale;
        }
        if std::mem::replace(&mut entry.is_router, said.router) && !said.router {
            self.actions.push_back(Action::NoRouter(said.target));
        }
    }

    /// A transport has news from a destination behind this neighbor that prove it reachable (RFC 4861 §7.3.1).
    pub fn confirm(&mut self, now: Instant, neighbor: Ipv6Addr) {
        if let Some(entry) = self.entries.get_mut(&neighbor)
            && entry.link_layer.is_some()
        {
            entry.state = State::Reachable { until: now + self.reachable_time };
            self.soonest.note(entry.state.deadline());
        }
    }

    /// Whether a router may be chosen (RFC 4861 §6.3.6): one that is not being asked for in vain.
    pub fn may_be_reachable(&self, neighbor: Ipv6Addr) -> bool {
        self.entries.get(&neighbor).is_some_and(|entry| entry.link_layer.is_some())
    }

    /// The state of a neighbor that is known.
    pub fn state(&self, neighbor: Ipv6Addr) -> Option<State> {
        self.entries.get(&neighbor).map(|entry| entry.state)
    }

    /// The link-layer address of a neighbor, if known.
    pub fn link_layer(&self, neighbor: Ipv6Addr) -> Option<MacAddress> {
        self.entries.get(&neighbor)?.link_layer
    }

    /// All that are known or asked for, with their states and link-layer addresses.
    pub fn iter(&self) -> impl Iterator<Item = (Ipv6Addr, State, Option<MacAddress>)> + '_ {
        self.entries.iter().map(|(neighbor, entry)| (*neighbor, entry.state, entry.link_layer))
    }

    /// How many neighbors are known or asked for.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What to do next.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Neighbors::handle_timeout`] may have something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.soonest.get()
    }

    /// What time changes (RFC 4861 §7.3.3, appendix C).
    pub fn handle_timeout(&mut self, now: Instant) {
        if !self.soonest.is_due(now) {
            return;
        }
        let (retrans, actions) = (self.retrans_timer, &mut self.actions);
        self.entries.retain(|address, entry| {
            if entry.state.deadline().is_none_or(|deadline| deadline > now) {
                return true;
            }
            let (sent, most) = match entry.state {
                State::Incomplete { sent, .. } => (sent, MAX_MULTICAST_SOLICIT),
                State::Probe { sent, .. } => (sent, MAX_UNICAST_SOLICIT),
                State::Delay { .. } => (0, MAX_UNICAST_SOLICIT),
                State::Reachable { .. } | State::Stale => {
                    entry.state = State::Stale;
                    return true;
                }
            };
            if sent >= most {
                let neighbor = *address;
                actions.push_back(Action::Unreachable { neighbor, packet: entry.queue.pop_front() });
                let others = entry.queue.drain(..);
                actions.extend(others.map(|packet| Action::Unreachable { neighbor, packet: Some(packet) }));
                return false;
            }
            let (sent, next) = (sent + 1, now + retrans);
            entry.state = match entry.link_layer {
                Some(_) => State::Probe { sent, next },
                None => State::Incomplete { sent, next },
            };
            let source = entry.queue.front().and_then(|packet| source_of(packet));
            actions.push_back(Action::Solicit { target: *address, at: entry.link_layer, source });
            true
        });
        self.soonest = Soonest::of(self.entries.values().filter_map(|entry| entry.state.deadline()));
    }

    /// Makes room for one more: strangers' entries for each other's, any for our own traffic; of these the one that has
    /// not been used for longest, and for which nothing waits.
    fn make_room(&mut self, ours: bool) -> bool {
        if self.entries.len() < MAX_NEIGHBORS {
            return true;
        }
        let oldest = |mine: bool| {
            let idle = self.entries.iter().filter(|(_, entry)| entry.ours == mine && entry.queue.is_empty());
            idle.min_by_key(|(_, entry)| entry.used).map(|(address, _)| *address)
        };
        let Some(oldest) = oldest(false).or_else(|| if ours { oldest(true) } else { None }) else {
            return false;
        };
        self.entries.remove(&oldest);
        true
    }
}

fn flush(actions: &mut VecDeque<Action>, entry: &mut Entry, to: MacAddress) {
    actions.extend(entry.queue.drain(..).map(|packet| Action::Send { to, packet }));
}

fn source_of(packet: &[u8]) -> Option<Ipv6Addr> {
    wire::ipv6::Packet::parse(packet).ok().map(|packet| packet.source())
}

#[cfg(test)]
mod tests;

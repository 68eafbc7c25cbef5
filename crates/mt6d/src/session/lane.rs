//! The lanes of a session: each a pair of endpoints with keys of its own, opened ahead of its birth and closed behind its
//! death (docs/protocol.md, "Lanes").
//!
//! Invariants: an endpoint is asked for before its lane is born, but for the first and after a sleep. One lane at least is
//! alive at any time. Whether its endpoints could be opened, and datagrams come through, is another matter: where nothing has
//! come yet on any lane that is alive, those stay open for a while that worked before.

use std::collections::VecDeque;
use std::net::SocketAddrV6;
use std::sync::Arc;

use super::activity::LaneActivity;
use super::fast_in::Receiver;
use super::seal::SealingKey;
use crate::births::{Births, Life};
use crate::host_interface::{Action, HostInterface};
use crate::id::{EndpointId, LaneId};
use crate::mask::{Flow, MaskKey};

/// Round trips above this do not keep endpoints open for longer: who delays packets must not use up our sockets.
const LONGEST_RTT: i64 = 5_000;

/// How long before its lane's birth and after its death an endpoint is open, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overlap {
    pub(crate) before: i64,
    pub(crate) after: i64,
}

impl Overlap {
    /// For a round-trip time in milliseconds. A second before and three after outlast any scheduler stall.
    pub(crate) fn new(rtt: i64) -> Self {
        let rtt = rtt.min(LONGEST_RTT);
        Overlap { before: rtt.max(1_000), after: (2 * rtt).max(3_000) }
    }
}

/// A lane and its endpoints.
pub(crate) struct Lane {
    pub(crate) life: Life,
    pub(crate) local: SocketAddrV6,
    pub(crate) remote: SocketAddrV6,
    pub(crate) state: State,
    /// Masks another tunnel's packets that leave by it, where that was agreed on.
    pub(crate) mask: Option<(Flow, MaskKey)>,
    pub(crate) sealing: Arc<SealingKey>,
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) activity: Arc<LaneActivity>,
    /// When to see whether an opener is to be sent, session clock; none when there is no need.
    pub(crate) opener: Option<i64>,
    /// How many were.
    pub(crate) openers: u8,
    /// Decides which flows travel on it ([`Sender`](super::Sender)).
    pub(crate) tickets: Tickets,
}

/// How often a lane takes part in the draw for a flow, and what makes its draws its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tickets {
    pub(crate) count: u8,
    pub(crate) salt: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Asked for.
    Opening(EndpointId),
    /// There.
    Open(EndpointId),
    /// It could not be opened. The peer does not hear from it and leaves it alone.
    Failed,
}

impl Lane {
    /// Its endpoint, if it is there.
    pub(crate) fn endpoint(&self) -> Option<EndpointId> {
        match self.state {
            State::Open(id) => Some(id),
            _ => None,
        }
    }

    /// Whether it is between birth and death.
    pub(crate) fn alive(&self, now: i64) -> bool {
        self.life.birth <= now && now < self.life.death
    }

    fn closes(&self, alone: i64, overlap: Overlap) -> i64 {
        let Life { death, .. } = self.life;
        let until = if self.activity.heard() { death.max(alone) } else { death };
        until.saturating_add(overlap.after)
    }

    fn close(&self, host: &mut HostInterface) {
        if let Some((flow, _)) = self.mask {
            let lane = Flow { local: self.local, remote: self.remote };
            host.act(Action::RemoveMask { lane, flow });
        }
        if let State::Opening(id) | State::Open(id) = self.state {
            host.close(id);
        }
    }
}

/// The lanes of a session, oldest first.
pub(crate) struct Lanes {
    births: Births,
    lanes: VecDeque<Lane>,
    /// Until when, on the session clock, nothing had come on any lane that was alive.
    alone: i64,
    /// How many have been born since the first.
    pub(crate) born: u64,
    /// How many endpoints could not be opened.
    pub(crate) failed: u64,
}

impl Lanes {
    pub(crate) fn new(births: Births) -> Self {
        Lanes { births, lanes: VecDeque::new(), alone: i64::MIN, born: 0, failed: 0 }
    }

    /// When the next lane is born that no endpoint was asked for yet.
    pub(crate) fn next_birth(&self) -> i64 {
        self.births.next_birth()
    }

    /// Opens what is due, closes what is over. `make` asks for the endpoint of a lane. `needed`: there is traffic, so that
    /// something should come on each lane.
    pub(crate) fn poll(
        &mut self,
        now: i64,
        overlap: Overlap,
        needed: bool,
        host: &mut HostInterface,
        mut make: impl FnMut(&mut HostInterface, Life) -> Lane,
    ) {
        if needed && !self.lanes.iter().any(|lane| lane.alive(now) && lane.activity.heard()) {
            self.alone = now;
        }
        let alone = self.alone;
        self.lanes.retain(|lane| {
            let stays = lane.closes(alone, overlap) > now;
            if !stays {
                lane.close(host);
            }
            stays
        });
        while self.births.next_birth().saturating_sub(overlap.before) <= now {
            let life = self.births.draw();
            // After a sleep nothing comes any more to those that are over.
            if life.death.saturating_add(overlap.after) > now {
                self.lanes.push_back(make(host, life));
            }
        }
        let born = self.lanes.iter().filter(|lane| lane.life.birth <= now).map(|lane| lane.life.lane.0);
        self.born = born.fold(self.born, u64::max);
    }

    /// When [`Lanes::poll`] has something to do next, or other lanes are alive, on the session clock.
    pub(crate) fn deadline(&self, now: i64, overlap: Overlap) -> i64 {
        let times = |lane: &Lane| {
            let Life { birth, death, .. } = lane.life;
            [Some(birth), Some(death), lane.opener].into_iter().flatten().filter(|at| *at > now).min()
        };
        let closes = self.lanes.iter().map(|lane| lane.closes(self.alone, overlap));
        let opens = self.births.next_birth().saturating_sub(overlap.before);
        self.lanes.iter().filter_map(times).chain(closes).fold(opens, i64::min)
    }

    /// An endpoint that was asked for is there. Whether it is one of these.
    pub(crate) fn opened(&mut self, id: EndpointId) -> bool {
        let lane = self.lanes.iter_mut().find(|lane| lane.state == State::Opening(id));
        lane.map(|lane| lane.state = State::Open(id)).is_some()
    }

    /// An endpoint could not be opened: its lane, if it is one of these.
    pub(crate) fn open_failed(&mut self, id: EndpointId, host: &mut HostInterface) -> Option<LaneId> {
        let lane = self.lanes.iter_mut().find(|lane| lane.state == State::Opening(id))?;
        host.close(id);
        lane.state = State::Failed;
        self.failed += 1;
        Some(lane.life.lane)
    }

    /// Whether the endpoint that a session begins with is there.
    pub(crate) fn ready(&self) -> bool {
        let opening = |lane: &Lane| lane.life.lane == LaneId::FIRST && lane.endpoint().is_none();
        self.births.next_birth() > i64::MIN && !self.lanes.iter().any(opening)
    }

    /// The lane of this number, unless it is over.
    pub(crate) fn get(&self, lane: LaneId) -> Option<&Lane> {
        self.lanes.iter().find(|l| l.life.lane == lane)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.lanes.iter_mut()
    }

    /// Those that were born and whose endpoint is there, with it.
    pub(crate) fn usable(&self, now: i64) -> impl Iterator<Item = (&Lane, EndpointId)> {
        let born = self.lanes.iter().filter(move |lane| lane.life.birth <= now);
        born.filter_map(|lane| Some((lane, lane.endpoint()?)))
    }

    /// When a lane is born or dies next.
    pub(crate) fn next_move(&self, now: i64) -> i64 {
        let moves = self.lanes.iter().flat_map(|lane| [lane.life.birth, lane.life.death]);
        moves.filter(|at| *at > now).fold(self.births.next_birth(), i64::min)
    }

    /// When the youngest is born that an endpoint was asked for.
    pub(crate) fn latest_birth(&self) -> i64 {
        self.lanes.iter().map(|lane| lane.life.birth).max().unwrap_or(i64::MIN)
    }

    /// Closes all.
    pub(crate) fn close(&mut self, host: &mut HostInterface) {
        self.lanes.drain(..).for_each(|lane| lane.close(host));
    }
}

//! A lane: the row of endpoints that one flow of a session moves along, opened early and closed late
//! (docs/protocol.md, "Endpoints and epochs").
//!
//! Invariants: an endpoint is asked for before its epoch begins, but for the first and after a sleep, and closed after a
//! later one that is open has begun. A lane goes back to an earlier epoch only if an end skips the one that it is in, and
//! is never without an endpoint once its first is open, unless the peer skips it after all others are gone.

use std::collections::VecDeque;
use std::net::SocketAddrV6;

use crate::host_interface::HostInterface;
use crate::id::{EndpointId, Epoch, Generation, LaneId};
use crate::schedule::Schedule;

/// A skip is kept for so many epochs ahead.
const SKIPS_AHEAD: u64 = 4;
/// Round trips above this do not keep endpoints open for longer: who delays packets must not use up our sockets.
const LONGEST_RTT: i64 = 5_000;

/// How long before its epoch and after its end an endpoint is open, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overlap {
    pub(crate) before: i64,
    pub(crate) after: i64,
}

impl Overlap {
    /// For a rotation interval and a round-trip time, both in milliseconds.
    ///
    /// A second before and three after outlast any scheduler stall; ten seconds before are enough for openers, skips
    /// and rekeys whatever the interval.
    pub(crate) fn new(interval: i64, rtt: i64) -> Self {
        let rtt = rtt.min(LONGEST_RTT);
        Overlap { before: interval.clamp(1_000, 10_000).max(rtt), after: (2 * rtt).max(3_000) }
    }
}

/// An endpoint of the lane.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) epoch: Epoch,
    /// When its epoch begins, session clock in milliseconds.
    pub(crate) start: i64,
    pub(crate) generation: Generation,
    pub(crate) local: SocketAddrV6,
    pub(crate) remote: SocketAddrV6,
    pub(crate) state: State,
    /// When to send an opener from it, session clock; none when sent or not wanted.
    pub(crate) opener: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Asked for.
    Opening(EndpointId),
    /// There.
    Open(EndpointId),
    /// One of the ends could not open it: both stay where they are.
    Skipped,
}

/// The endpoints of a lane, oldest first.
pub(crate) struct Lane {
    pub(crate) id: LaneId,
    slots: VecDeque<Slot>,
    /// Index of the slot that datagrams leave from.
    current: Option<usize>,
    next_epoch: Epoch,
    next_start: i64,
    /// Epochs that the peer skips and whose slot does not exist yet.
    skips_ahead: Vec<Epoch>,
    /// How often the lane has moved to another endpoint.
    pub(crate) rotations: u64,
    /// How many epochs were skipped.
    pub(crate) skips: u64,
}

impl Lane {
    /// A lane whose first slot will be of `epoch`.
    pub(crate) fn new(id: LaneId, schedule: &Schedule, epoch: Epoch) -> Self {
        Lane {
            id,
            slots: VecDeque::new(),
            current: None,
            next_epoch: epoch,
            next_start: schedule.start(epoch, id),
            skips_ahead: Vec::new(),
            rotations: 0,
            skips: 0,
        }
    }

    /// The slot that datagrams leave from.
    pub(crate) fn current(&self) -> Option<(&Slot, EndpointId)> {
        let slot = &self.slots[self.current?];
        match slot.state {
            State::Open(id) => Some((slot, id)),
            _ => None,
        }
    }

    /// The first epoch that has no slot yet.
    pub(crate) fn next_epoch(&self) -> Epoch {
        self.next_epoch
    }

    /// When the next epoch begins that has not begun at `now`.
    pub(crate) fn next_start(&self, now: i64) -> i64 {
        self.slots.iter().map(|s| s.start).find(|s| *s > now).unwrap_or(self.next_start)
    }

    /// The oldest generation that a slot still uses.
    pub(crate) fn oldest_generation(&self) -> Option<Generation> {
        self.slots.iter().map(|s| s.generation).min()
    }

    pub(crate) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }

    /// Whether its first endpoint is open.
    pub(crate) fn ready(&self) -> bool {
        self.current.is_some()
    }

    /// Opens what is due, moves on, closes what is over. `make` asks for the slot of an epoch.
    pub(crate) fn poll(
        &mut self,
        now: i64,
        overlap: Overlap,
        schedule: &Schedule,
        host: &mut HostInterface,
        mut make: impl FnMut(&mut HostInterface, Epoch, i64) -> Slot,
    ) {
        if self.next_start.saturating_add(overlap.after) < now {
            // After a sleep: nothing comes any more to the endpoints of epochs that are over.
            self.next_epoch = self.next_epoch.max(schedule.current(self.id, now - overlap.after));
            self.next_start = schedule.start(self.next_epoch, self.id);
        }
        while self.next_start.saturating_sub(overlap.before) <= now {
            let mut slot = make(host, self.next_epoch, self.next_start);
            if let Some(at) = self.skips_ahead.iter().position(|e| *e == self.next_epoch) {
                self.skips_ahead.swap_remove(at);
                self.skips += 1;
                close(&mut slot, host);
            }
            self.slots.push_back(slot);
            self.next_epoch = self.next_epoch.next();
            self.next_start = schedule.start(self.next_epoch, self.id);
        }
        self.advance(now);
        self.collect(now, overlap, host);
    }

    /// When [`Lane::poll`] has something to do next, on the session clock.
    pub(crate) fn deadline(&self, now: i64, overlap: Overlap) -> i64 {
        let opens = self.next_start.saturating_sub(overlap.before);
        let starts = self.slots.iter().map(|s| s.start).find(|s| *s > now);
        let closes = self.successor_of_oldest().map(|s| s.saturating_add(overlap.after));
        let opener = self.slots.iter().filter_map(|s| s.opener).min();
        [starts, closes, opener].into_iter().flatten().fold(opens, i64::min)
    }

    /// An endpoint that was asked for is there. False if it is none of this lane's.
    pub(crate) fn opened(&mut self, id: EndpointId, now: i64) -> bool {
        let Some(slot) = self.slots.iter_mut().find(|s| s.state == State::Opening(id)) else { return false };
        slot.state = State::Open(id);
        self.advance(now);
        true
    }

    /// An endpoint could not be opened: its epoch, if it is one of this lane's.
    pub(crate) fn open_failed(
        &mut self,
        id: EndpointId,
        now: i64,
        host: &mut HostInterface,
    ) -> Option<Epoch> {
        let slot = self.slots.iter_mut().find(|s| s.state == State::Opening(id))?;
        close(slot, host);
        let epoch = slot.epoch;
        self.skips += 1;
        self.advance(now);
        Some(epoch)
    }

    /// The peer could not open its endpoint of `epoch`. False if that lies too far ahead to be kept.
    pub(crate) fn skip(&mut self, epoch: Epoch, now: i64, host: &mut HostInterface) -> bool {
        if let Some(slot) = self.slots.iter_mut().find(|s| s.epoch == epoch) {
            if slot.state != State::Skipped {
                self.skips += 1;
                close(slot, host);
            }
            self.advance(now);
        } else if (self.next_epoch..self.next_epoch + SKIPS_AHEAD).contains(&epoch)
            && !self.skips_ahead.contains(&epoch)
        {
            self.skips_ahead.push(epoch);
        }
        epoch < self.next_epoch + SKIPS_AHEAD
    }

    /// Closes all.
    pub(crate) fn close(&mut self, host: &mut HostInterface) {
        for slot in &mut self.slots {
            close(slot, host);
        }
        self.slots.clear();
        self.current = None;
    }

    fn advance(&mut self, now: i64) {
        let open = |s: &Slot| matches!(s.state, State::Open(_));
        let newest = self.slots.iter().rposition(|s| s.start <= now && open(s));
        // A session clock that was put back a little does not lead back over a boundary.
        let newest = newest.max(self.current.filter(|current| open(&self.slots[*current])));
        if newest != self.current && self.current.is_some() && newest.is_some() {
            self.rotations += 1;
        }
        self.current = newest;
    }

    /// Drops slots from the front that nothing can come to any more.
    fn collect(&mut self, now: i64, overlap: Overlap, host: &mut HostInterface) {
        while let Some(start) = self.successor_of_oldest()
            && start.saturating_add(overlap.after) <= now
        {
            let mut oldest = self.slots.pop_front().expect("it has a successor");
            close(&mut oldest, host);
            self.current = self.current.and_then(|c| c.checked_sub(1));
        }
    }

    /// When the slot began that took over from the oldest: one that is open.
    fn successor_of_oldest(&self) -> Option<i64> {
        let mut later = self.slots.iter().skip(1);
        match self.slots.front()?.state {
            State::Skipped => later.next().map(|s| s.start),
            _ => later.find(|s| matches!(s.state, State::Open(_))).map(|s| s.start),
        }
    }
}

fn close(slot: &mut Slot, host: &mut HostInterface) {
    if let State::Opening(id) | State::Open(id) = slot.state {
        host.close(id);
    }
    slot.state = State::Skipped;
    slot.opener = None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_interface::{Action, Purpose};
    use crate::id::{PeerId, SessionId};
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::net::Ipv6Addr;

    const OVERLAP: Overlap = Overlap { before: 1_000, after: 3_000 };

    fn slot(host: &mut HostInterface, epoch: Epoch, start: i64) -> Slot {
        let at = |n: u128| SocketAddrV6::new(Ipv6Addr::from(n + u128::from(epoch.0)), 1024, 0, 0);
        let (session, lane, generation) = (SessionId(1), LaneId(0), Generation(0));
        let purpose = Purpose::Data { session, lane, generation, epoch };
        let id = host.open(PeerId(0), purpose, at(0), Some(at(1 << 32)));
        Slot {
            epoch,
            start,
            generation,
            local: at(0),
            remote: at(1 << 32),
            state: State::Opening(id),
            opener: None,
        }
    }

    /// Runs a lane for `seconds`; of the epochs in `busy` the endpoint cannot be opened. At each step every endpoint
    /// that a peer with a clock up to `skew` off could use must be open.
    fn run(key: [u8; 32], seconds: i64, busy: &[Epoch], skew: i64) -> Lane {
        let schedule = Schedule::new(key, 1_000, 1);
        let mut host = HostInterface::new(|| [0; 32]);
        let mut lane = Lane::new(LaneId(0), &schedule, Epoch::FIRST);
        let mut open = HashMap::new();
        let mut now = 0;
        while now < seconds * 1000 {
            lane.poll(now, OVERLAP, &schedule, &mut host, slot);
            while let Some(action) = host.next_action() {
                match action {
                    Action::Open { id, local, .. } => {
                        let epoch = Epoch(u128::from(*local.ip()) as u64);
                        if busy.contains(&epoch) {
                            assert_eq!(lane.open_failed(id, now, &mut host), Some(epoch));
                        } else {
                            open.insert(id, epoch);
                            assert!(lane.opened(id, now));
                        }
                    }
                    Action::Close { id } => {
                        open.remove(&id);
                    }
                    other => panic!("{other:?}"),
                }
            }
            let usable = |at: i64| {
                (0..=schedule.current(LaneId(0), at).0).rev().map(Epoch).find(|e| !busy.contains(e))
            };
            for at in [now - skew, now, now + skew] {
                let epoch = usable(at).expect("epoch 0 is never busy");
                assert!(open.values().any(|e| *e == epoch), "{now}: {epoch} is not open");
            }
            assert_eq!(lane.current().unwrap().0.epoch, usable(now).unwrap());
            assert!(open.len() <= 6 + busy.len(), "{now}: {} are open", open.len());
            now = lane.deadline(now, OVERLAP).max(now + 1);
        }
        lane
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_endpoint_in_use_is_open_at_both_ends(key: [u8; 32], busy in proptest::collection::vec(1u64..60, 0..12)) {
            let busy: Vec<Epoch> = busy.into_iter().map(Epoch).collect();
            let lane = run(key, 60, &busy, 900);
            prop_assert!(lane.rotations + lane.skips >= 58);
        }
    }

    #[test]
    fn the_peers_skips_count_before_and_after_the_slot_exists() {
        let schedule = Schedule::new([1; 32], 1_000, 1);
        let mut host = HostInterface::new(|| [0; 32]);
        let mut lane = Lane::new(LaneId(0), &schedule, Epoch::FIRST);
        assert!(lane.skip(Epoch(3), 0, &mut host));
        assert!(!lane.skip(lane.next_epoch() + SKIPS_AHEAD, 0, &mut host), "too far ahead");
        for now in 0..6_000 {
            lane.poll(now, OVERLAP, &schedule, &mut host, slot);
            while let Some(action) = host.next_action() {
                if let Action::Open { id, .. } = action {
                    lane.opened(id, now);
                }
            }
            let expected = match schedule.current(LaneId(0), now) {
                Epoch(3) => Epoch(2),
                epoch => epoch,
            };
            assert_eq!(lane.current().unwrap().0.epoch, expected);
        }
        assert_eq!(lane.skips, 1);
    }
}

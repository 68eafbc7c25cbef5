//! Packets of another tunnel on the lanes of a session (docs/protocol.md, "Masked packets"): by which they leave.
//!
//! Invariant: none leave by a lane on which nothing was heard, nor before the session is confirmed and in use.

use super::lane::Lane;
use super::{Phase, Session};
use crate::host_interface::{Action, HostInterface};
use crate::mask::{DrawnLane, Flow};
use crate::time::Time;

impl Session {
    /// Whether another tunnel's packets travel on its lanes.
    pub(crate) fn masks(&self) -> bool {
        self.terms.mask.is_some()
    }

    /// Has masked packets leave while this session is `in_use`: by all lanes that are alive and known to work, or else by the
    /// last of those that did, as the node's own datagrams do.
    pub(crate) fn mask(&mut self, in_use: bool, now: Time, host: &mut HostInterface) {
        let Some(flow) = self.terms.mask else { return };
        let clock = self.clock.at(now);
        let works = |(lane, _): &(&Lane, _)| lane.activity.heard();
        let usable = || self.lanes.usable(clock).filter(works).map(|(lane, _)| lane);
        let mut lanes: Vec<&Lane> = usable().filter(|lane| lane.alive(clock)).collect();
        if lanes.is_empty() {
            lanes.extend(usable().max_by_key(|lane| lane.life.death));
        }
        if !in_use || self.phase != Phase::Up {
            lanes.clear();
        }
        if lanes.iter().map(|lane| lane.life.lane).eq(self.masked_by.iter().copied()) {
            return;
        }
        self.masked_by = lanes.iter().map(|lane| lane.life.lane).collect();
        let drawn = lanes.iter().filter_map(|lane| {
            let Lane { local, remote, .. } = **lane;
            let (_, key) = lane.mask.clone()?;
            Some(DrawnLane { lane: Flow { local, remote }, key, tickets: lane.tickets.count })
        });
        host.act(Action::Mask { flow, lanes: drawn.collect() });
    }

    /// They come to the node again.
    pub(super) fn stop_masking(&mut self, host: &mut HostInterface) {
        if let Some(flow) = self.terms.mask
            && !std::mem::take(&mut self.masked_by).is_empty()
        {
            host.act(Action::Mask { flow, lanes: Vec::new() });
        }
    }
}

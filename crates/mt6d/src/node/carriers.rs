//! The node's side of its carriers: what they are told, and what they leave to it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Node;
use crate::carrier::{Carrier, Change, Matter, Notice, Receiver, Update};
use crate::deliver::Deliver;
use crate::drops::DropReason;
use crate::host::{EndpointId, PeerIndex, Purpose};
use crate::outbox::Outbox;
use crate::peer::Env;
use crate::session::Sender;
use crate::time::Now;

/// What carriers were told, and what they have yet to be.
#[derive(Default)]
pub(super) struct Carriers {
    senders: Vec<Option<Arc<Sender>>>,
    /// Peers of which something may have changed.
    touched: Vec<PeerIndex>,
    updates: VecDeque<Update>,
}

impl Carriers {
    pub(super) fn touch(&mut self, peer: PeerIndex) {
        if self.touched.last() != Some(&peer) {
            self.touched.push(peer);
        }
    }

    pub(super) fn routes_changed(&mut self, routes: &Arc<crate::routes::Routes>) {
        self.updates.push_back(Update(Change::Routes(routes.clone())));
    }
}

impl Node {
    /// Carriers of packets for this node, on other threads: all there ever are. Each is to be told all that
    /// [`Node::next_update`] says from now on.
    pub fn carriers(&mut self, count: usize) -> Vec<Carrier> {
        self.carriers = Some(Carriers { touched: (0..self.peers.len()).collect(), ..Carriers::default() });
        while self.next_update().is_some() {}
        let senders = &self.carriers.as_ref().expect("just made").senders;
        let carrier = |_| Carrier::new(self.routes.clone(), senders.clone(), self.drops.clone());
        (0..count).map(carrier).collect()
    }

    /// What carriers are to be told; to be asked until there is nothing, after anything was done with the node.
    pub fn next_update(&mut self) -> Option<Update> {
        let Carriers { senders, touched, updates } = self.carriers.as_mut()?;
        while let Some(peer) = touched.pop() {
            let new = self.peers.get(peer).and_then(|p| p.as_ref()?.sender());
            if senders.len() <= peer {
                senders.resize(peer + 1, None);
            }
            let same = match (&senders[peer], new) {
                (Some(old), Some(new)) => old.is_same(new),
                (old, new) => old.is_none() && new.is_none(),
            };
            if !same {
                senders[peer] = new.map(|sender| Arc::new(sender.clone()));
                updates.push_back(Update(Change::Sender(peer, senders[peer].clone())));
            }
        }
        updates.pop_front()
    }

    /// The receiving half of an endpoint, if it is one of a session's, and a number to choose its carrier by: it keeps
    /// the endpoints of a lane together, and those of lanes and peers apart.
    pub fn receiver(&self, endpoint: EndpointId) -> Option<(Receiver, usize)> {
        let (peer, purpose) = self.host.purpose(endpoint)?;
        let Purpose::Data { session, lane, generation, .. } = purpose else { return None };
        let receiver = self.peers[peer].as_ref()?.receiver(session, lane, generation)?;
        Some((Receiver(receiver), peer + usize::from(lane)))
    }

    /// Deals with what a carrier has left to the node.
    pub fn notice(&mut self, notice: Notice, now: Now, outbox: &mut Outbox, deliver: &mut dyn Deliver) {
        match notice.0 {
            Matter::Packet(header, mut packet) => self.send(&header, &mut packet, now, outbox, deliver),
            Matter::SendFailed(endpoint) => self.send_failed(endpoint),
            Matter::PathError(endpoint, quoted, too_big) => self.path_error(endpoint, &quoted, too_big, now),
            Matter::InFull(index, sender, pair) => {
                let Some(Some(peer)) = self.peers.get_mut(index) else { return };
                let mut env = Env { own: &self.own, now, host: &mut self.host, outbox };
                peer.sent_in_full(&sender, &pair, &mut env);
                self.wake(index);
            }
            Matter::Opened(receiver, ecn, mut inner) => {
                let index = receiver.peer;
                let Some(Some(peer)) = self.peers.get_mut(index) else {
                    return self.drops.count(DropReason::Stale);
                };
                let mut env = Env { own: &self.own, now, host: &mut self.host, outbox };
                let (all, mut own) = (0..inner.len(), crate::deliver::Own(deliver));
                peer.receive_rest(&receiver, &mut inner, all, ecn, &self.routes, &mut env, &mut own);
                self.wake(index);
            }
        }
    }
}

//! The node's side of its packet workers: the updates they get, and the notices they hand back.

use std::sync::Arc;

use super::Node;
use crate::deliver::{Deliver, DeliverCopied};
use crate::drops::DropReason;
use crate::env::Env;
use crate::host_interface::Purpose;
use crate::id::EndpointId;
use crate::outbox::Outbox;
use crate::packet_worker::{Change, Notice, NoticeKind, PacketWorker, Receiver, Update, Updates};
use crate::peer::Peer;
use crate::time::Now;

impl Node {
    /// Packet workers of this node, on other threads: all there ever are. Each is to be given every
    /// [`Node::next_update`] from now on.
    pub fn packet_workers(&mut self, count: usize) -> Vec<PacketWorker> {
        self.workers = Some(Updates { touched: self.peers.ids().collect(), ..Updates::default() });
        while self.next_update().is_some() {}
        let senders = &self.workers.as_ref().expect("just made").senders;
        let worker = |_| PacketWorker::new(self.routes.clone(), senders.clone(), self.drops.clone());
        (0..count).map(worker).collect()
    }

    /// The next update for every packet worker; to be asked until there is none, after anything was done with the node.
    pub fn next_update(&mut self) -> Option<Update> {
        let Updates { senders, touched, updates } = self.workers.as_mut()?;
        while let Some(peer) = touched.pop() {
            let new = self.peers.get(peer).and_then(Peer::sender);
            if senders.len() <= peer.0 {
                senders.resize(peer.0 + 1, None);
            }
            let known = &mut senders[peer.0];
            let same = match (&*known, new) {
                (Some(old), Some(new)) => old.is_same(new),
                (old, new) => old.is_none() && new.is_none(),
            };
            if !same {
                *known = new.map(|sender| Arc::new(sender.clone()));
                updates.push_back(Update(Change::Sender(peer, known.clone())));
            }
        }
        updates.pop_front()
    }

    /// The receiving half of an endpoint, if it is one of a session's, and a number to choose its worker by: it keeps
    /// those of lanes and peers apart.
    pub fn receiver(&self, endpoint: EndpointId) -> Option<(Receiver, usize)> {
        let (peer, purpose) = self.host.purpose(endpoint)?;
        let Purpose::Data { session, lane } = purpose else { return None };
        let receiver = self.peers.get(peer)?.receiver(session, lane)?;
        Some((Receiver(receiver), peer.0 + lane.0 as usize))
    }

    /// Deals with what a worker has left to the node.
    pub fn notice(&mut self, notice: Notice, now: Now, outbox: &mut Outbox, deliver: &mut dyn Deliver) {
        match notice.0 {
            NoticeKind::Packet(header, mut packet) => self.send(&header, &mut packet, now, outbox, deliver),
            NoticeKind::SendFailed(endpoint, why) => self.send_failed(endpoint, why, now),
            NoticeKind::SentInFull(index, sender, pair) => {
                let Some(peer) = self.peers.get_mut(index) else { return };
                let mut env =
                    Env { own: &self.own, routes: &self.routes, now, host: &mut self.host, outbox, deliver };
                peer.sent_in_full(&sender, &pair, &mut env);
                self.wake(index);
            }
            NoticeKind::Opened(receiver, ecn, mut inner) => {
                let index = receiver.peer;
                let Some(peer) = self.peers.get_mut(index) else {
                    return self.drops.count(DropReason::Stale);
                };
                let (all, deliver) = (0..inner.len(), &mut DeliverCopied(deliver));
                let mut env =
                    Env { own: &self.own, routes: &self.routes, now, host: &mut self.host, outbox, deliver };
                peer.receive_punted(&receiver, &mut inner, all, ecn, &mut env);
                self.wake(index);
                self.meet(now, outbox, deliver);
            }
        }
    }
}

//! Carrying packets beside the node, on other threads.
//!
//! A node decides, and carries packets too. Where one thread does not do, others have a [`PacketWorker`] each, which carries
//! the packets of sessions that exist and decides nothing: [`Node::packet_workers`](crate::Node::packet_workers) makes them,
//! [`Update`]s tell them what has changed, and what is not for them they hand to the node as [`Notice`]s. Whatever the
//! order in which these arrive, a worker does nothing that the node would not have done a moment earlier.
//!
//! All workers may send for all sessions, each flow in one of them. The datagrams of an endpoint are received by one.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use wire::ecn::Ecn;
use wire::virtio_net;

use crate::deliver::Deliver;
use crate::drops::{AtomicDrops, DropReason};
use crate::event::SendFailure;
use crate::id::{EndpointId, PeerId};
use crate::outbox::Outbox;
use crate::received::Received;
use crate::routes::{Routes, may_be_destination};
use crate::session::{self, Pair, Refusal};
use crate::time::Now;

/// Notices that may wait until somebody asks for them: what one turn of a thread can bring.
const NOTICES: usize = 256;

/// Something has changed for packet workers.
#[derive(Clone)]
pub struct Update(pub(crate) Change);

#[derive(Clone)]
pub(crate) enum Change {
    Routes(Arc<Routes>),
    Sender(PeerId, Option<Arc<session::Sender>>),
}

/// What the packet workers of a node have, and the updates on their way to them.
#[derive(Default)]
pub(crate) struct Updates {
    pub(crate) senders: Vec<Option<Arc<session::Sender>>>,
    /// Peers of which something may have changed.
    pub(crate) touched: Vec<PeerId>,
    pub(crate) updates: VecDeque<Update>,
}

impl Updates {
    pub(crate) fn touch(&mut self, peer: PeerId) {
        if self.touched.last() != Some(&peer) {
            self.touched.push(peer);
        }
    }

    pub(crate) fn routes_changed(&mut self, routes: &Arc<Routes>) {
        self.updates.push_back(Update(Change::Routes(routes.clone())));
    }
}

/// The receiving half of a session's endpoint, for the worker that receives its datagrams.
#[derive(Clone)]
pub struct Receiver(pub(crate) Arc<session::Receiver>);

/// Something that is for the node to deal with: to be given to [`Node::notice`](crate::Node::notice).
pub struct Notice(pub(crate) NoticeKind);

pub(crate) enum NoticeKind {
    /// An inner packet that cannot just be sent.
    Packet(virtio_net::Header, Vec<u8>),
    /// The contents of a datagram that is more than a packet, and its outer ECN codepoint.
    Opened(Arc<session::Receiver>, Ecn, Vec<u8>),
    /// A pair of addresses was sent in full.
    SentInFull(PeerId, Arc<session::Sender>, Pair),
    /// The kernel did not take a datagram.
    SendFailed(EndpointId, SendFailure),
}

/// Carries packets of the sessions that there are.
pub struct PacketWorker {
    routes: Arc<Routes>,
    senders: Vec<Option<Arc<session::Sender>>>,
    /// By the endpoint's slot.
    receivers: Vec<Option<(EndpointId, Arc<session::Receiver>)>>,
    notices: Vec<Notice>,
    drops: Arc<AtomicDrops>,
    punted: Vec<Range<usize>>,
}

impl PacketWorker {
    pub(crate) fn new(
        routes: Arc<Routes>,
        senders: Vec<Option<Arc<session::Sender>>>,
        drops: Arc<AtomicDrops>,
    ) -> Self {
        PacketWorker {
            routes,
            senders,
            receivers: Vec::new(),
            notices: Vec::new(),
            drops,
            punted: Vec::new(),
        }
    }

    /// Takes over a change.
    pub fn update(&mut self, update: Update) {
        match update.0 {
            Change::Routes(routes) => self.routes = routes,
            Change::Sender(peer, sender) => {
                if self.senders.len() <= peer.0 {
                    self.senders.resize(peer.0 + 1, None);
                }
                self.senders[peer.0] = sender;
            }
        }
    }

    /// From now on the datagrams of this endpoint come here.
    pub fn attach(&mut self, endpoint: EndpointId, receiver: Receiver) {
        if self.receivers.len() <= endpoint.slot() {
            self.receivers.resize(endpoint.slot() + 1, None);
        }
        self.receivers[endpoint.slot()] = Some((endpoint, receiver.0));
    }

    /// Or no longer.
    pub fn detach(&mut self, endpoint: EndpointId) {
        if let Some(receiver) = self.receivers.get_mut(endpoint.slot()) {
            receiver.take_if(|(id, _)| *id == endpoint);
        }
    }

    /// As [`Node::send`](crate::Node::send).
    pub fn send(&mut self, header: &virtio_net::Header, packet: &mut [u8], now: Now, outbox: &mut Outbox) {
        let Ok((_, destination)) = wire::flow::addresses(packet) else {
            return self.drops.count(DropReason::Malformed);
        };
        if !may_be_destination(destination) {
            return;
        }
        let Some(peer) = self.routes.peer(destination) else { return self.drops.count(DropReason::NoPeer) };
        let Some(Some(sender)) = self.senders.get(peer.0) else {
            return self.punt(NoticeKind::Packet(*header, packet.to_vec()));
        };
        if sender.in_hop_prefix(destination) {
            return self.drops.count(DropReason::NoPeer);
        }
        match sender.send(header, packet, now.boot, outbox) {
            Ok(None) => {}
            Ok(Some(pair)) => {
                let sender = sender.clone();
                self.punt(NoticeKind::SentInFull(peer, sender, pair));
            }
            Err(Refusal::Drop(DropReason::Malformed)) => self.drops.count(DropReason::Malformed),
            // It has consequences: an error to its sender, or new keys.
            Err(_) => self.punt(NoticeKind::Packet(*header, packet.to_vec())),
        }
    }

    /// As [`Node::receive`](crate::Node::receive), for an endpoint that was attached.
    pub fn receive(&mut self, received: &Received, arena: &mut [u8], now: Now, deliver: &mut dyn Deliver) {
        let attached = self.receivers.get(received.endpoint.slot()).and_then(Option::as_ref);
        let Some((_, receiver)) = attached.filter(|(id, _)| *id == received.endpoint) else {
            return self.drops.count(DropReason::Stale);
        };
        receiver.receive(arena, received, &self.routes, now.boot, deliver, &mut self.punted);
        if self.punted.is_empty() {
            return;
        }
        let receiver = receiver.clone();
        let mut punted = std::mem::take(&mut self.punted);
        for inner in punted.drain(..) {
            self.punt(NoticeKind::Opened(receiver.clone(), received.ecn, arena[inner].to_vec()));
        }
        self.punted = punted;
    }

    /// As [`Node::send_failed`](crate::Node::send_failed).
    pub fn send_failed(&mut self, endpoint: EndpointId, why: SendFailure) {
        self.punt(NoticeKind::SendFailed(endpoint, why));
    }

    fn punt(&mut self, kind: NoticeKind) {
        match kind {
            _ if self.notices.len() < NOTICES => self.notices.push(Notice(kind)),
            // There will be others of the same.
            NoticeKind::SentInFull(..) | NoticeKind::SendFailed(..) => {}
            NoticeKind::Packet(..) | NoticeKind::Opened(..) => self.drops.count(DropReason::Overload),
        }
    }

    /// What is for the node, in order.
    pub fn notices(&mut self) -> impl Iterator<Item = Notice> + '_ {
        self.notices.drain(..)
    }
}

//! What this end asks for, and the requests that it makes of that (RFC 7296 §1.3, §1.4).
//!
//! This file and `sa` need each other: an IKE SA keeps tasks and the request in flight, and is what makes them.

use super::{IkeSa, Mobility, State};
use crate::child::{ChildOffer, PeerRekey};
use crate::config::ChildIndex;
use crate::crypto::group::{Group, KeyPair};
use crate::event::Path;
use crate::message::builder::Builder;
use crate::message::proposal::Proposal;
use crate::nat;
use crate::negotiation::{ChildProtocol, offer_ike};
use crate::numbers::{ExchangeType, IkeSpi, NotifyType, Spi};
use crate::output::Context;
use crate::random;

/// Something to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    /// A child. The group is the one that the other end wants, once it has said so.
    CreateChild { index: ChildIndex, group: Option<Group> },
    /// A child in place of this one.
    RekeyChild { old: Spi, group: Option<Group> },
    /// An IKE SA in place of this one.
    RekeyIke { group: Option<Group> },
    /// The end of a child, which this end need not know any more.
    DeleteChild { protocol: ChildProtocol, spi: Spi },
    /// The end of this IKE SA.
    DeleteIke,
    /// Whether the other end is there.
    Liveness,
    /// Children go along this end's path from now on (RFC 4555 §3.5).
    Move,
    /// Whether the other end, which has moved, receives where it says that it is (RFC 4555 §3.7).
    Routability,
}

/// What a request was for, with what its response is compared with.
#[derive(Debug)]
pub(crate) enum Request {
    CreateChild {
        offer: ChildOffer,
        nonce: Vec<u8>,
        /// The group was one that the other end wanted.
        again: bool,
        old: Option<Spi>,
        /// What the other end has put in the place of the old one, which is gone already.
        rekeyed_by_peer: Option<PeerRekey<Spi>>,
    },
    RekeyIke {
        offered: Vec<Proposal>,
        spi: IkeSpi,
        key_pair: KeyPair,
        nonce: Vec<u8>,
        /// The group was one that the other end wanted.
        again: bool,
    },
    DeleteChild {
        spi: Spi,
    },
    DeleteIke,
    Liveness,
    Move {
        /// What the other end is to repeat, to show that it receives there (RFC 4555 §3.7).
        cookie: [u8; COOKIE2],
        path: Path,
        /// It is elsewhere; otherwise it only says again where it is.
        moves: bool,
    },
    Routability {
        /// What the other end is to repeat.
        cookie: [u8; COOKIE2],
    },
}

/// Length of what the other end is to repeat: 8 to 64 bytes (RFC 4555 §4.2.5).
const COOKIE2: usize = 16;

impl Request {
    /// Whether it makes, replaces or closes a child: that does not go along with a rekey of the IKE SA (§2.25.2).
    pub(super) fn is_about_child(&self) -> bool {
        matches!(self, Self::CreateChild { .. } | Self::DeleteChild { .. })
    }
}

/// Length of this end's nonces: at least half of the key of any PRF (§2.10).
pub(crate) const NONCE: usize = 32;

impl IkeSa {
    /// The request of a task; none if there is nothing to do any more.
    pub(super) fn make_request(
        &mut self,
        task: Task,
        context: &mut Context<'_>,
    ) -> Option<(ExchangeType, Builder, Request)> {
        let mut payloads = Builder::new();
        let config = context.config;
        let peer = config.peers.get(self.peer.0);
        match task {
            Task::CreateChild { index, group } => {
                let spi = context.spis.next();
                let offer = ChildOffer::new(peer?, self.path, index, false, group, spi, context)?;
                let nonce = random::bytes::<NONCE>(context.random).to_vec();
                offer.write(&mut payloads, Some(&nonce));
                let again = group.is_some();
                let request = Request::CreateChild { offer, nonce, again, old: None, rekeyed_by_peer: None };
                Some((ExchangeType::CREATE_CHILD_SA, payloads, request))
            }
            Task::RekeyChild { old, group } => {
                let child = self.children.iter_mut().find(|child| child.inbound_spi == old)?;
                if child.closing || child.rekeyed_by_peer.is_some() {
                    return None;
                }
                child.rekey_at = None;
                let spi = context.spis.next();
                let offer = ChildOffer::new(peer?, self.path, child.index, false, group, spi, context)?;
                let nonce = random::bytes::<NONCE>(context.random).to_vec();
                payloads.child_notify(NotifyType::REKEY_SA, child.protocol.id(), old);
                offer.write(&mut payloads, Some(&nonce));
                let (old, again) = (Some(old), group.is_some());
                let request = Request::CreateChild { offer, nonce, again, old, rekeyed_by_peer: None };
                Some((ExchangeType::CREATE_CHILD_SA, payloads, request))
            }
            Task::RekeyIke { group } => {
                if self.rekeyed_by_peer.is_some() {
                    return None;
                }
                let algorithms = &config.algorithms;
                let again = group.is_some();
                let group = group.or(algorithms.groups.first().copied())?;
                let spi = random::ike_spi(context.random);
                let offered = offer_ike(algorithms, &spi.0.to_be_bytes());
                let key_pair = KeyPair::generate(group, context.random);
                let nonce = random::bytes::<NONCE>(context.random).to_vec();
                payloads.sa(&offered).nonce(&nonce).key_exchange(group.id(), key_pair.public());
                let request = Request::RekeyIke { offered, spi, key_pair, nonce, again };
                Some((ExchangeType::CREATE_CHILD_SA, payloads, request))
            }
            Task::DeleteChild { protocol, spi } => {
                if let Some(child) = self.children.iter_mut().find(|child| child.inbound_spi == spi) {
                    child.closing = true;
                }
                payloads.delete_children(protocol.id(), &[spi]);
                Some((ExchangeType::INFORMATIONAL, payloads, Request::DeleteChild { spi }))
            }
            Task::DeleteIke => {
                self.state = State::Closing;
                self.tasks.clear();
                payloads.delete_ike();
                Some((ExchangeType::INFORMATIONAL, payloads, Request::DeleteIke))
            }
            // Behind a NAT that has forgotten this end, the other end does not know where it is: RFC 4555 §3.8.
            Task::Liveness if !(self.mobility == Mobility::Leads && self.nat.local) => {
                Some((ExchangeType::INFORMATIONAL, payloads, Request::Liveness))
            }
            Task::Routability => {
                let cookie = random::bytes::<COOKIE2>(context.random);
                payloads.notify(NotifyType::COOKIE2, &cookie);
                Some((ExchangeType::INFORMATIONAL, payloads, Request::Routability { cookie }))
            }
            Task::Liveness | Task::Move => {
                let (cookie, path) = (random::bytes::<COOKIE2>(context.random), self.path);
                let (initiator, responder) = (self.channel.initiator_spi, self.channel.responder_spi);
                payloads.notify(NotifyType::UPDATE_SA_ADDRESSES, &[]);
                nat::announce(&mut payloads, initiator, responder, path, self.nat.claimed);
                payloads.notify(NotifyType::COOKIE2, &cookie);
                let moves = task == Task::Move;
                Some((ExchangeType::INFORMATIONAL, payloads, Request::Move { cookie, path, moves }))
            }
        }
    }
}

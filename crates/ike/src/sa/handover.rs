//! What becomes of an IKE SA's children when another one takes its place (RFC 7296 §2.8, §2.8.1).

use std::collections::VecDeque;
use std::net::IpAddr;

use super::{FollowUp, IkeSa, REPLACED_FOR, State, Task};
use crate::child::Child;
use crate::event::{EndReason, Event};
use crate::message::body::Identity;
use crate::numbers::IkeSpi;
use crate::output::{Context, Output};

impl IkeSa {
    /// This end's rekey has succeeded: the new IKE SA takes over, unless the other end's rekey prevails.
    pub(super) fn replace_by_own(&mut self, mut new: Self, lowest_nonce: &[u8], context: &mut Context<'_>) {
        let by_peer = self.rekeyed_by_peer.as_ref();
        if by_peer.is_some_and(|by_peer| lowest_nonce < by_peer.lowest_nonce.as_slice()) {
            // Ours is the redundant one: we close it.
            new.tasks.push_back(Task::DeleteIke);
            self.follow_ups.push(FollowUp::Born(Box::new(new)));
            return self.replaced_by_peer(context);
        }
        self.rekeyed_by_peer = None;
        let to = new.spi();
        self.follow_ups.push(FollowUp::Born(Box::new(new)));
        self.hand_over(to, context.out);
        self.tasks.push_back(Task::DeleteIke);
    }

    /// The other end's rekey takes over, and the other end will close this IKE SA.
    pub(super) fn replaced_by_peer(&mut self, context: &mut Context<'_>) {
        self.hand_over_to_peers(context.out);
        self.state = State::Replaced { until: context.now + REPLACED_FOR };
    }

    /// Children go to what the other end has put in the place of this one, if it has.
    pub(super) fn hand_over_to_peers(&mut self, out: &mut Output) {
        if let Some(by_peer) = self.rekeyed_by_peer.take() {
            self.hand_over(by_peer.new, out);
        }
    }

    fn hand_over(&mut self, to: IkeSpi, out: &mut Output) {
        out.events.push_back(Event::IkeRekeyed { old: self.spi(), new: to });
        self.replaced = true;
        let mut tasks = std::mem::take(&mut self.tasks);
        tasks.extend(std::mem::take(&mut self.later).into_iter().map(|(_, task)| task));
        tasks.retain(|task| !matches!(task, Task::RekeyIke { .. } | Task::Liveness));
        let heritage = Heritage {
            children: std::mem::take(&mut self.children),
            tasks,
            given: std::mem::take(&mut self.given),
            identity: self.identity.clone(),
        };
        self.follow_ups.push(FollowUp::Adopt { to, heritage });
    }

    /// Takes over what another one had.
    pub(crate) fn adopt(&mut self, heritage: Heritage, context: &mut Context<'_>) {
        if matches!(self.state, State::Ended { .. }) {
            return heritage.orphaned(self.spi(), context);
        }
        self.children.extend(heritage.children);
        self.tasks.extend(heritage.tasks);
        self.given.extend(heritage.given);
        self.announced = true;
        self.start_next(context);
    }
}

/// What one IKE SA leaves to the one that takes its place.
#[derive(Debug)]
pub(crate) struct Heritage {
    children: Vec<Child>,
    tasks: VecDeque<Task>,
    given: Vec<IpAddr>,
    identity: Identity,
}

impl Heritage {
    /// The IKE SA that this was to move to has ended already.
    pub(crate) fn orphaned(self, ike: IkeSpi, context: &mut Context<'_>) {
        for address in self.given {
            context.leases.give_back(address, &self.identity);
        }
        let events = &mut context.out.events;
        events.extend(
            self.children.iter().map(|child| Event::ChildDown { ike, inbound_spi: child.inbound_spi }),
        );
        events.push_back(Event::IkeDown { ike, reason: EndReason::DeletedByPeer });
    }
}

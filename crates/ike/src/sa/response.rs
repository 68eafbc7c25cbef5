//! What the other end responds (RFC 7296 §1.3, §2.8.1, §2.25).

use std::time::Instant;

use super::{BUSY_FOR, Begin, GRACE, IkeSa, Request, Task};
use crate::channel::Channel;
use crate::child::{ChildOffer, PeerRekey, Refusal, error_in, find, notifies};
use crate::crypto::group::{Group, KeyPair};
use crate::event::{EndReason, Event, Path};
use crate::keys::{Exchanged, IkeKeys, Role};
use crate::message::body::{KeyExchange, Notify, parse_nonce};
use crate::message::proposal::{self, Proposal};
use crate::message::{ParseError, Payloads};
use crate::nat;
use crate::negotiation::{IkeAlgorithms, choose_ike, is_choice_of};
use crate::numbers::{IkeSpi, NotifyType, PayloadType, Spi};
use crate::output::Context;

impl IkeSa {
    /// Takes the response to a request; returns why the IKE SA ends, if it does.
    pub(super) fn take_response(
        &mut self,
        request: Request,
        payloads: Payloads<'_>,
        context: &mut Context<'_>,
    ) -> Option<EndReason> {
        let error = error_in(payloads);
        if error.is_some_and(|error| error.kind == NotifyType::INVALID_SYNTAX) {
            // §2.21.3: fatal for both ends.
            return Some(EndReason::Refused(NotifyType::INVALID_SYNTAX));
        }
        if self.is_busy(&request, error, context) {
            self.expired = true;
            self.tasks.clear();
            self.tasks.push_front(Task::DeleteIke);
            return None;
        }
        match request {
            Request::CreateChild { offer, nonce, again, old, rekeyed_by_peer } => match error {
                Some(error) => self.child_refused(&offer, old, error, again, context),
                None => self.child_accepted(offer, &nonce, old, rekeyed_by_peer, payloads, context),
            },
            Request::RekeyIke { offered, spi, key_pair, nonce, again } => {
                if let Some(error) = error {
                    self.rekey_refused(&key_pair, error, again, context);
                    return None;
                }
                match self.rekeyed(&offered, spi, &key_pair, &nonce, payloads, context) {
                    Ok((new, lowest_nonce)) => self.replace_by_own(new, &lowest_nonce, context),
                    // The other end has something that this end has not: a new beginning is all that is left.
                    Err(_) => {
                        self.hand_over_to_peers(context.out);
                        self.tasks.push_front(Task::DeleteIke);
                    }
                }
            }
            Request::DeleteChild { spi } => {
                self.remove(spi, context.out);
            }
            Request::DeleteIke => {
                return Some(if self.expired { EndReason::Expired } else { EndReason::Deleted });
            }
            Request::Liveness => {}
            Request::Routability { cookie } => {
                if !repeats(payloads, &cookie) {
                    self.tasks.push_front(Task::DeleteIke);
                }
            }
            Request::Move { cookie, path, moves } => {
                self.moved(&cookie, path, moves, payloads, context);
            }
        }
        None
    }

    /// Whether all that was asked for in the last minutes was put off by the other end.
    fn is_busy(&mut self, request: &Request, error: Option<Notify<'_>>, context: &mut Context<'_>) -> bool {
        if !matches!(request, Request::CreateChild { .. } | Request::RekeyIke { .. }) {
            return false;
        }
        if error.is_none_or(|error| error.kind != NotifyType::TEMPORARY_FAILURE) {
            self.busy = None;
            return false;
        }
        let now = context.now;
        // What was long ago has settled itself meanwhile: the other end may have done what was asked for.
        let recent = self.busy.as_deref().filter(|(_, last)| now.saturating_duration_since(*last) < BUSY_FOR);
        let since = recent.map_or(now, |(since, _)| *since);
        self.busy = Some(Box::new((since, now)));
        now.saturating_duration_since(since) >= BUSY_FOR
    }

    /// The other end has followed, or has refused to, in which case nothing is said to the host.
    fn moved(
        &mut self,
        cookie: &[u8],
        path: Path,
        moves: bool,
        payloads: Payloads<'_>,
        context: &mut Context<'_>,
    ) {
        if error_in(payloads).is_some() {
            return;
        }
        if !repeats(payloads, cookie) {
            // RFC 4555 §3.7: somebody else sent the request on, or the other end is not what it seems.
            self.tasks.push_front(Task::DeleteIke);
            return;
        }
        // It has moved on meanwhile, and asks again.
        if path != self.path {
            return;
        }
        let (initiator, responder) = (self.channel.initiator_spi, self.channel.responder_spi);
        let detected = nat::detect(initiator, responder, payloads, path, self.nat.claimed);
        let before = self.nat;
        self.nat = detected.unwrap_or(before);
        if moves || before != self.nat {
            context.out.events.push_back(Event::PathChanged { ike: self.spi(), path, nat: self.nat });
        }
    }

    fn child_accepted(
        &mut self,
        offer: ChildOffer,
        nonce: &[u8],
        old: Option<Spi>,
        rekeyed_by_peer: Option<PeerRekey<Spi>>,
        payloads: Payloads<'_>,
        context: &mut Context<'_>,
    ) {
        let (index, protocol, spi) = (offer.index, offer.protocol, offer.spi);
        let accepted = find(payloads, PayloadType::NONCE)
            .and_then(parse_nonce)
            .map_err(Refusal::from)
            .and_then(|responder_nonce| Ok((responder_nonce, offer.accept(payloads, self.path, self.nat)?)));
        let (responder_nonce, agreed) = match accepted {
            Ok(accepted) => accepted,
            Err(Refusal { notify, .. }) => {
                // The other end has a child that this end does not want.
                self.tasks.push_front(Task::DeleteChild { protocol, spi });
                context.out.events.push_back(Event::ChildRefused { ike: self.spi(), child: index, notify });
                if let Some(old) = old {
                    self.do_later(Task::RekeyChild { old, group: None }, context);
                }
                return;
            }
        };
        self.install(agreed, true, (nonce, responder_nonce), old, context);
        let Some(old) = old else { return };

        let child = self.children.iter().find(|child| child.inbound_spi == old);
        let by_peer = child.and_then(|child| child.rekeyed_by_peer.as_ref()).or(rekeyed_by_peer.as_ref());
        let lowest = nonce.min(responder_nonce);
        // §2.8.1: of two rekeys at once, the one with the lowest of the four nonces is closed by who has asked for it;
        // the other one's initiator closes what both have replaced.
        if by_peer.is_some_and(|by_peer| lowest < by_peer.lowest_nonce.as_slice()) {
            self.close(spi, context.now);
        } else {
            self.close(old, context.now);
        }
    }

    /// Deletes a child at both ends, once what is under way of it has arrived.
    fn close(&mut self, spi: Spi, now: Instant) {
        if let Some(child) = self.children.iter_mut().find(|child| child.inbound_spi == spi) {
            child.closing = true;
            child.rekey_at = None;
            self.later.push((now + GRACE, Task::DeleteChild { protocol: child.protocol, spi }));
        }
    }

    fn child_refused(
        &mut self,
        offer: &ChildOffer,
        old: Option<Spi>,
        error: Notify<'_>,
        again: bool,
        context: &mut Context<'_>,
    ) {
        let index = offer.index;
        let task = |group| match old {
            Some(old) => Task::RekeyChild { old, group },
            None => Task::CreateChild { index, group },
        };
        let peer = context.config.peers.get(self.peer.0);
        let groups = peer.and_then(|peer| peer.children.get(index.0)).map(|child| &child.algorithms.groups);
        match error.kind {
            NotifyType::INVALID_KE_PAYLOAD if !again => {
                if let Some(group) = wanted_group(error, groups.map_or(&[], Vec::as_slice)) {
                    return self.tasks.push_front(task(Some(group)));
                }
            }
            NotifyType::TEMPORARY_FAILURE => return self.do_later(task(None), context),
            NotifyType::CHILD_SA_NOT_FOUND => {
                // §2.25: what the other end has not is not kept here; unless it was replaced meanwhile, it is made anew.
                let child = self.children.iter().find(|child| Some(child.inbound_spi) == old);
                let lost = child.is_some_and(|child| child.rekeyed_by_peer.is_none());
                if let Some(old) = old.filter(|_| lost) {
                    self.remove(old, context.out);
                    self.tasks.push_back(Task::CreateChild { index, group: None });
                }
                return;
            }
            _ => {}
        }
        context.out.events.push_back(Event::ChildRefused {
            ike: self.spi(),
            child: index,
            notify: error.kind,
        });
        if let Some(old) = old {
            self.do_later(Task::RekeyChild { old, group: None }, context);
        }
    }

    fn rekey_refused(
        &mut self,
        key_pair: &KeyPair,
        error: Notify<'_>,
        again: bool,
        context: &mut Context<'_>,
    ) {
        if self.rekeyed_by_peer.is_some() {
            return self.replaced_by_peer(context);
        }
        let groups: Vec<_> =
            context.config.algorithms.groups.iter().copied().filter(|g| *g != key_pair.group()).collect();
        match wanted_group(error, &groups).filter(|_| !again) {
            Some(group) => self.tasks.push_front(Task::RekeyIke { group: Some(group) }),
            None => self.do_later(Task::RekeyIke { group: None }, context),
        }
    }

    fn rekeyed(
        &self,
        offered: &[Proposal],
        spi: IkeSpi,
        key_pair: &KeyPair,
        nonce: &[u8],
        payloads: Payloads<'_>,
        context: &mut Context<'_>,
    ) -> Result<(Self, Vec<u8>), ParseError> {
        let answer = proposal::parse(find(payloads, PayloadType::SA)?)?;
        let chosen = is_choice_of(&answer, offered).ok_or(ParseError::Malformed)?;
        let peer_spi: [u8; 8] = chosen.spi.as_slice().try_into().map_err(|_| ParseError::Malformed)?;
        if peer_spi == [0; 8] {
            return Err(ParseError::Malformed);
        }
        let everything =
            IkeAlgorithms { groups: vec![key_pair.group()], ..context.config.algorithms.clone() };
        let (_, suite) =
            choose_ike(&answer, &everything, key_pair.group().id()).ok_or(ParseError::Malformed)?;
        let exchange = KeyExchange::parse(find(payloads, PayloadType::KE)?)?;
        if exchange.group != suite.group.id() {
            return Err(ParseError::Malformed);
        }
        let shared = key_pair.agree(exchange.public).map_err(|_| ParseError::Malformed)?;
        let exchanged = Exchanged {
            initiator_spi: spi,
            responder_spi: IkeSpi(u64::from_be_bytes(peer_spi)),
            initiator_nonce: nonce.to_vec(),
            responder_nonce: parse_nonce(find(payloads, PayloadType::NONCE)?)?.to_vec(),
        };
        let keys = IkeKeys::rekey(&self.channel.keys, &suite, Role::Initiator, &shared, &exchanged)
            .ok_or(ParseError::Malformed)?;
        let lowest = exchanged.lowest_nonce().to_vec();
        Ok((self.successor(Role::Initiator, &exchanged, keys, context), lowest))
    }

    /// The IKE SA that takes the place of this one.
    pub(super) fn successor(
        &self,
        role: Role,
        exchanged: &Exchanged,
        keys: IkeKeys,
        context: &mut Context<'_>,
    ) -> Self {
        let fragments = self.channel.fragments;
        let channel = Channel::new(role, exchanged.initiator_spi, exchanged.responder_spi, keys, fragments);
        let place = (self.path, self.nat);
        let identity = self.identity.clone();
        let mut new = Self::new(channel, self.peer, identity, place, Begin::anew(), context);
        new.mobility = self.mobility;
        new
    }
}

/// The group that INVALID_KE_PAYLOAD asks for, if it is one of these.
pub(crate) fn wanted_group(error: Notify<'_>, allowed: &[Group]) -> Option<Group> {
    if error.kind != NotifyType::INVALID_KE_PAYLOAD {
        return None;
    }
    let id: [u8; 2] = error.data.try_into().ok()?;
    Group::from_id(u16::from_be_bytes(id)).filter(|group| allowed.contains(group))
}

/// Whether a response has the cookie of its request (RFC 4555 §3.7).
fn repeats(payloads: Payloads<'_>, cookie: &[u8]) -> bool {
    let repeated = notifies(payloads).find(|notify| notify.kind == NotifyType::COOKIE2);
    repeated.is_some_and(|notify| notify.data == cookie)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::ChildIndex;
    use crate::message::builder::Builder;
    use crate::numbers::ExchangeType;
    use crate::sa::fixture::Ends;

    /// Refuses whatever this end asks for until nothing is left, and returns how often it asked for a new child or IKE SA, and
    /// for how long.
    fn refuse(ends: &mut Ends, notify: NotifyType, data: &[u8]) -> (u32, Duration) {
        let (begin, mut asked) = (ends.now, 0);
        let mut payloads = Builder::new();
        payloads.notify(notify, data);
        loop {
            while let Some(exchange) = ends.respond(&payloads) {
                asked += u32::from(exchange == ExchangeType::CREATE_CHILD_SA);
                assert!(asked < 10_000);
            }
            let ended = !ends.is_up();
            if ended || ends.pass().is_none() {
                return (asked, ends.now - begin);
            }
        }
    }

    #[test]
    fn an_ike_sa_that_cannot_be_replaced_ends() {
        for (notify, data) in
            [(NotifyType::NO_ADDITIONAL_SAS, &[][..]), (NotifyType::INVALID_KE_PAYLOAD, &[0, 19])]
        {
            let mut ends = Ends::new();
            ends.sa.announced = true;
            let (asked, after) = refuse(&mut ends, notify, data);
            assert!(asked < 1000, "{asked} times");
            let hours = Duration::from_secs(4 * 3600);
            assert!(after > hours && after < hours + hours / 4, "after {after:?}");
            let expired = |event: &Event| matches!(event, Event::IkeDown { reason: EndReason::Expired, .. });
            assert!(ends.out.events.iter().any(expired), "{:?}", ends.out.events);
        }
    }

    /// §2.25.
    #[test]
    fn an_ike_sa_whose_other_end_is_busy_for_minutes_ends() {
        let mut ends = Ends::new();
        ends.sa.announced = true;
        ends.with_sa(|sa, context| assert!(sa.ask(Task::RekeyIke { group: None }, context)));
        let (asked, after) = refuse(&mut ends, NotifyType::TEMPORARY_FAILURE, &[]);
        assert!((10..100).contains(&asked), "{asked} times");
        assert!(after >= BUSY_FOR && after < BUSY_FOR * 2, "after {after:?}");
        let expired = |event: &Event| matches!(event, Event::IkeDown { reason: EndReason::Expired, .. });
        assert!(ends.out.events.iter().any(expired), "{:?}", ends.out.events);
    }

    #[test]
    fn who_is_put_off_now_and_then_keeps_its_ike_sa() {
        let mut ends = Ends::new();
        let mut payloads = Builder::new();
        payloads.notify(NotifyType::TEMPORARY_FAILURE, &[]);
        for _ in 0..5 {
            ends.with_sa(|sa, context| assert!(sa.ask(Task::RekeyIke { group: None }, context)));
            assert_eq!(ends.respond(&payloads), Some(ExchangeType::CREATE_CHILD_SA));
            assert!(ends.is_up());
            ends.now += BUSY_FOR;
        }
    }

    #[test]
    fn a_group_that_is_never_right_is_asked_for_twice() {
        let mut ends = Ends::new();
        let task = Task::CreateChild { index: ChildIndex(0), group: None };
        ends.with_sa(|sa, context| assert!(sa.ask(task, context)));
        let mut payloads = Builder::new();
        payloads.notify(NotifyType::INVALID_KE_PAYLOAD, &[0, 19]);
        assert_eq!(ends.respond(&payloads), Some(ExchangeType::CREATE_CHILD_SA));
        assert_eq!(ends.respond(&payloads), Some(ExchangeType::CREATE_CHILD_SA));
        assert_eq!(ends.respond(&payloads), None);
        let refused = |event: &Event| matches!(event, Event::ChildRefused { .. });
        assert!(ends.out.events.iter().any(refused) && ends.is_up());
    }
}

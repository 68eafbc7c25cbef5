//! What this end answers to requests inside of an IKE SA (RFC 7296 §1.3, §1.4, §2.21.3, §2.25).

use super::{IkeSa, MAX_CHILDREN, Mobility, Request, State, Task};
use crate::child::{self, Asked, PeerRekey, Refusal, find, notifies};
use crate::crypto::group::KeyPair;
use crate::event::{EndReason, Event, Path};
use crate::keys::{Exchanged, IkeKeys, Role};
use crate::message::body::{Delete, KeyExchange, parse_nonce};
use crate::message::builder::Builder;
use crate::message::proposal::{self, Proposal};
use crate::message::{Header, ParseError, Payloads};
use crate::nat;
use crate::negotiation::{ChildProtocol, choose_ike};
use crate::numbers::{ExchangeType, IkeSpi, NotifyType, PayloadType, ProtocolId, Spi};
use crate::output::Context;
use crate::random;
use crate::sa::request::NONCE;

impl IkeSa {
    /// Builds the answer; returns why the IKE SA ends, if it does.
    pub(super) fn answer_request(
        &mut self,
        header: &Header,
        payloads: Payloads<'_>,
        path: Path,
        answer: &mut Builder,
        context: &mut Context<'_>,
    ) -> Option<EndReason> {
        let refusal = match header.exchange {
            ExchangeType::INFORMATIONAL => match self.answer_informational(payloads, path, answer, context) {
                Ok(end) => return end,
                Err(malformed) => malformed.into(),
            },
            ExchangeType::CREATE_CHILD_SA => match self.answer_create(payloads, answer, context) {
                Ok(()) => return None,
                Err(refusal) => refusal,
            },
            // There is no such exchange within an IKE SA.
            _ => NotifyType::INVALID_SYNTAX.into(),
        };
        *answer = Builder::new();
        refusal.write(answer);
        // §2.21.3: fatal for both ends.
        (refusal.notify == NotifyType::INVALID_SYNTAX).then_some(EndReason::Malformed)
    }

    fn answer_informational(
        &mut self,
        payloads: Payloads<'_>,
        path: Path,
        answer: &mut Builder,
        context: &mut Context<'_>,
    ) -> Result<Option<EndReason>, ParseError> {
        for notify in notifies(payloads) {
            match notify.kind {
                NotifyType::AUTHENTICATION_FAILED => return Ok(Some(EndReason::AuthenticationFailed)),
                // §2.21.2: what the other end thinks of this end's answer to IKE_AUTH.
                NotifyType::INVALID_SYNTAX | NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD => {
                    return Ok(Some(EndReason::Refused(notify.kind)));
                }
                _ => {}
            }
        }
        if self.mobility != Mobility::None {
            self.answer_move(payloads, path, answer, context);
        }
        for body in payloads.all(PayloadType::DELETE) {
            let delete = Delete::parse(body)?;
            let protocol = match delete.protocol {
                ProtocolId::IKE => return Ok(Some(EndReason::DeletedByPeer)),
                ProtocolId::ESP => ChildProtocol::Esp,
                ProtocolId::AH => ChildProtocol::Ah,
                _ => return Err(ParseError::Malformed),
            };
            let deleted: Vec<_> =
                delete.spis().filter_map(|spi| self.delete_child(protocol, spi, context)).collect();
            if !deleted.is_empty() {
                answer.delete_children(protocol.id(), &deleted);
            }
        }
        Ok(None)
    }

    /// The other end may be elsewhere: on the path that its request came along (RFC 4555 §3.5).
    fn answer_move(
        &mut self,
        payloads: Payloads<'_>,
        path: Path,
        answer: &mut Builder,
        context: &mut Context<'_>,
    ) {
        if let Some(cookie) = notifies(payloads).find(|notify| notify.kind == NotifyType::COOKIE2) {
            answer.notify(NotifyType::COOKIE2, cookie.data);
        }
        // RFC 4555 §3.9: whatever is said of addresses.
        if nat::is_unwanted(payloads, path) {
            answer.notify(NotifyType::UNEXPECTED_NAT_DETECTED, &[]);
            return;
        }
        let moves = child::has_notify(payloads, NotifyType::UPDATE_SA_ADDRESSES);
        let (initiator, responder) = (self.channel.initiator_spi, self.channel.responder_spi);
        let claimed = self.nat.claimed;
        let detected = nat::detect(initiator, responder, payloads, path, claimed);
        if !moves || self.mobility != Mobility::Follows {
            // RFC 4555 §3.8: who asks where it is is told, and nothing more comes of it.
            if detected.is_some() {
                nat::announce(answer, initiator, responder, path, claimed);
            }
            return;
        }
        let before = (self.path, self.nat);
        if let Some(nat) = detected {
            self.nat = nat;
            nat::announce(answer, initiator, responder, path, claimed);
        }
        self.path = path;
        // RFC 4555 §3.7: it may have named another's address, so as to have that one flooded.
        if before.0 != path {
            self.tasks.retain(|task| *task != Task::Routability);
            self.tasks.push_front(Task::Routability);
        }
        // Behind a NAT, an end says again and again where it is.
        if (self.path, self.nat) != before {
            context.out.events.push_back(Event::PathChanged { ike: self.spi(), path, nat: self.nat });
        }
    }

    /// Removes the child that the other end receives with this SPI, and returns this end's SPI to be deleted, too.
    fn delete_child(
        &mut self,
        protocol: ChildProtocol,
        outbound: Spi,
        context: &mut Context<'_>,
    ) -> Option<Spi> {
        let same = |child: &&child::Child| child.protocol == protocol && child.outbound_spi == outbound;
        let spi = self.children.iter().find(same)?.inbound_spi;
        let child = self.remove(spi, context.out)?;
        if let Some(flying) = &mut self.in_flight
            && let Request::CreateChild { old, rekeyed_by_peer, .. } = &mut flying.request
            && *old == Some(spi)
        {
            *rekeyed_by_peer = child.rekeyed_by_peer;
        }
        // §1.4.1: where both ends delete at once, neither names it in its answer.
        (!child.closing).then_some(spi)
    }

    fn answer_create(
        &mut self,
        payloads: Payloads<'_>,
        answer: &mut Builder,
        context: &mut Context<'_>,
    ) -> Result<(), Refusal> {
        let proposals = proposal::parse(find(payloads, PayloadType::SA)?)?;
        let nonce = parse_nonce(find(payloads, PayloadType::NONCE)?)?;
        if proposals.iter().any(|proposal| proposal.protocol == ProtocolId::IKE) {
            return self.answer_rekey_ike(&proposals, nonce, payloads, answer, context);
        }
        // §2.25.2: no children while the IKE SA itself is replaced or closed.
        let replacing =
            self.in_flight.as_ref().is_some_and(|flying| matches!(flying.request, Request::RekeyIke { .. }));
        if self.state != State::Up || replacing || self.rekeyed_by_peer.is_some() {
            return Err(NotifyType::TEMPORARY_FAILURE.into());
        }
        let rekeyed = notifies(payloads).find(|notify| notify.kind == NotifyType::REKEY_SA);
        let old = match rekeyed {
            None => None,
            Some(notify) => {
                let named = notify.child().ok_or(NotifyType::INVALID_SYNTAX)?;
                let child = self
                    .children
                    .iter()
                    .find(|child| child.outbound_spi == named && child.protocol.id() == notify.protocol);
                let child = child.ok_or(Refusal::not_found(notify.protocol, named))?;
                if child.closing {
                    return Err(NotifyType::TEMPORARY_FAILURE.into());
                }
                Some((child.inbound_spi, child.index))
            }
        };
        if self.children.len() >= MAX_CHILDREN {
            return Err(NotifyType::NO_ADDITIONAL_SAS.into());
        }
        let peer =
            context.config.peers.get(self.peer.0).ok_or(Refusal::from(NotifyType::NO_ADDITIONAL_SAS))?;
        let own_nonce = random::bytes::<NONCE>(context.random);
        let asked = Asked {
            payloads,
            path: self.path,
            nat: self.nat,
            given: &self.given,
            rekeyed: old.map(|(_, index)| index),
            nonce: Some(&own_nonce),
        };
        let agreed = child::answer(peer, &asked, answer, context)?;
        let new = agreed.inbound_spi;
        let old = old.map(|(spi, _)| spi);
        self.install(agreed, false, (nonce, &own_nonce), old, context);
        if let Some(child) = self.children.iter_mut().find(|child| Some(child.inbound_spi) == old) {
            let lowest_nonce = nonce.min(&own_nonce).to_vec();
            child.rekeyed_by_peer = Some(PeerRekey { new, lowest_nonce });
            child.rekey_at = None;
        }
        Ok(())
    }

    fn answer_rekey_ike(
        &mut self,
        proposals: &[Proposal],
        nonce: &[u8],
        payloads: Payloads<'_>,
        answer: &mut Builder,
        context: &mut Context<'_>,
    ) -> Result<(), Refusal> {
        let about_child = self.in_flight.as_ref().is_some_and(|flying| flying.request.is_about_child());
        if self.state != State::Up || about_child || self.rekeyed_by_peer.is_some() {
            return Err(NotifyType::TEMPORARY_FAILURE.into());
        }
        let exchange = KeyExchange::parse(find(payloads, PayloadType::KE)?)?;
        let chosen = choose_ike(proposals, &context.config.algorithms, exchange.group);
        let (mut chosen, suite) = chosen.ok_or(Refusal::from(NotifyType::NO_PROPOSAL_CHOSEN))?;
        if suite.group.id() != exchange.group {
            return Err(Refusal::invalid_group(suite.group));
        }
        let malformed = || Refusal::from(NotifyType::INVALID_SYNTAX);
        let peer_spi: [u8; 8] = chosen.spi.as_slice().try_into().map_err(|_| malformed())?;
        if peer_spi == [0; 8] {
            return Err(malformed());
        }
        let key_pair = KeyPair::generate(suite.group, context.random);
        let shared = key_pair.agree(exchange.public).map_err(|_| malformed())?;
        let own_nonce = random::bytes::<NONCE>(context.random).to_vec();
        let own_spi = random::ike_spi(context.random);
        let exchanged = Exchanged {
            initiator_spi: IkeSpi(u64::from_be_bytes(peer_spi)),
            responder_spi: own_spi,
            initiator_nonce: nonce.to_vec(),
            responder_nonce: own_nonce.clone(),
        };
        let keys = IkeKeys::rekey(&self.channel.keys, &suite, Role::Responder, &shared, &exchanged)
            .ok_or_else(malformed)?;
        chosen.spi = own_spi.0.to_be_bytes().to_vec();
        answer.sa(&[chosen]).nonce(&own_nonce).key_exchange(suite.group.id(), key_pair.public());

        let new = self.successor(Role::Responder, &exchanged, keys, context);
        self.follow_ups.push(super::FollowUp::Born(Box::new(new)));
        self.rekeyed_by_peer =
            Some(PeerRekey { new: own_spi, lowest_nonce: exchanged.lowest_nonce().to_vec() });
        let collision =
            self.in_flight.as_ref().is_some_and(|flying| matches!(flying.request, Request::RekeyIke { .. }));
        if !collision {
            self.replaced_by_peer(context);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::crypto::group::Group;
    use crate::message::traffic_selector::TrafficSelector;
    use crate::numbers::MessageId;
    use crate::random::Repeatable;
    use crate::sa::fixture::Ends;

    fn create(payloads: &mut Builder) {
        let proposals = crate::negotiation::offer_child(&Default::default(), &[0, 0, 9, 9], true);
        let pair = KeyPair::generate(Group::Curve25519, &mut Repeatable::new(2));
        payloads.sa(&proposals).nonce(&[5; 32]).key_exchange(31, pair.public());
        payloads.traffic_selectors(PayloadType::TS_I, &[TrafficSelector::ANY_IPV6]);
        payloads.traffic_selectors(PayloadType::TS_R, &[TrafficSelector::ANY_IPV6]);
    }

    #[test]
    fn an_empty_request_has_an_empty_answer() {
        let mut ends = Ends::new();
        assert_eq!(ends.ask(ExchangeType::INFORMATIONAL, &Builder::new()), []);
        assert!(ends.is_up());
    }

    #[test]
    fn an_unknown_critical_payload_is_named_and_changes_nothing() {
        let mut ends = Ends::new();
        let mut payloads = Builder::new();
        payloads.raw(PayloadType(200), |_| ());
        // The critical bit of the first payload.
        let mut bytes = payloads.bytes().to_vec();
        bytes[1] = 0x80;
        let critical = Builder::of(PayloadType(200), bytes);
        let answer = ends.ask(ExchangeType::INFORMATIONAL, &critical);
        assert_eq!(answer, [(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, vec![], vec![200])]);
        assert!(ends.is_up());
    }

    #[test]
    fn notifies_that_are_not_known_are_passed_over_in_a_request() {
        let mut ends = Ends::new();
        let mut payloads = Builder::new();
        for kind in [8191, 16383, 40959, 65535] {
            payloads.notify(NotifyType(kind), b"data");
        }
        assert_eq!(ends.ask(ExchangeType::INFORMATIONAL, &payloads), []);
        create(&mut payloads);
        assert_eq!(ends.ask(ExchangeType::CREATE_CHILD_SA, &payloads), []);
        assert_eq!(ends.sa.children.len(), 1);
    }

    #[test]
    fn a_malformed_request_is_fatal_once_it_is_authentic() {
        for (exchange, kind) in [
            (ExchangeType::INFORMATIONAL, PayloadType::DELETE),
            (ExchangeType::CREATE_CHILD_SA, PayloadType::SA),
            (ExchangeType(99), PayloadType::VENDOR_ID),
        ] {
            let mut ends = Ends::new();
            let mut payloads = Builder::new();
            payloads.raw(kind, |body| body.push(1));
            let answer = ends.ask(exchange, &payloads);
            assert_eq!(answer, [(NotifyType::INVALID_SYNTAX, vec![], vec![])]);
            assert!(!ends.is_up());
        }
    }

    #[test]
    fn a_rekey_of_a_child_that_is_none_names_it() {
        let mut ends = Ends::new();
        let mut payloads = Builder::new();
        payloads.child_notify(NotifyType::REKEY_SA, ProtocolId::ESP, Spi(0x0102_0304));
        create(&mut payloads);
        let answer = ends.ask(ExchangeType::CREATE_CHILD_SA, &payloads);
        assert_eq!(answer, [(NotifyType::CHILD_SA_NOT_FOUND, vec![1, 2, 3, 4], vec![])]);
        assert!(ends.is_up());
    }

    #[test]
    fn children_are_bounded() {
        let mut ends = Ends::new();
        let mut payloads = Builder::new();
        create(&mut payloads);
        for _ in 0..MAX_CHILDREN {
            assert_eq!(ends.ask(ExchangeType::CREATE_CHILD_SA, &payloads), []);
        }
        let answer = ends.ask(ExchangeType::CREATE_CHILD_SA, &payloads);
        assert_eq!(answer, [(NotifyType::NO_ADDITIONAL_SAS, vec![], vec![])]);
    }

    #[test]
    fn an_ike_sa_ends_when_its_message_ids_do() {
        let mut ends = Ends::new();
        ends.sa.announced = true;
        ends.expect(MessageId(u32::MAX));
        assert_eq!(ends.ask(ExchangeType::INFORMATIONAL, &Builder::new()), []);
        let ended = |event: &Event| matches!(event, Event::IkeDown { reason: EndReason::Exhausted, .. });
        assert!(ends.out.events.iter().any(ended));
        assert!(!ends.is_up());
    }

    #[test]
    fn a_rekeyed_ike_sa_has_no_spi_of_zero() {
        let mut ends = Ends::new();
        let mut payloads = Builder::new();
        let pair = KeyPair::generate(Group::Curve25519, &mut Repeatable::new(2));
        let proposals = crate::negotiation::offer_ike(&Default::default(), &[0; 8]);
        payloads.sa(&proposals).nonce(&[5; 32]).key_exchange(31, pair.public());
        let answer = ends.ask(ExchangeType::CREATE_CHILD_SA, &payloads);
        assert_eq!(answer, [(NotifyType::INVALID_SYNTAX, vec![], vec![])]);
    }

    #[test]
    fn an_ike_sa_is_not_rekeyed_without_a_key_exchange() {
        let mut ends = Ends::new();
        let mut payloads = Builder::new();
        let proposals = crate::negotiation::offer_ike(&Default::default(), &[1; 8]);
        payloads.sa(&proposals).nonce(&[5; 32]);
        let answer = ends.ask(ExchangeType::CREATE_CHILD_SA, &payloads);
        assert_eq!(answer, [(NotifyType::INVALID_SYNTAX, vec![], vec![])]);
    }

    #[test]
    fn a_delete_of_what_is_not_there_is_answered_with_nothing() {
        let mut ends = Ends::new();
        let mut payloads = Builder::new();
        payloads.delete_children(ProtocolId::ESP, &[Spi(1000)]);
        assert_eq!(ends.ask(ExchangeType::INFORMATIONAL, &payloads), []);
        assert!(ends.is_up());
    }

    /// RFC 4555 §3.7.
    #[test]
    fn who_has_moved_is_asked_whether_it_receives_there() {
        let told = |ends: &mut Ends, data: &[u8]| {
            let mut response = Builder::new();
            response.notify(NotifyType::COOKIE2, data);
            assert_eq!(ends.respond(&response), Some(ExchangeType::INFORMATIONAL));
        };
        for honest in [true, false] {
            let mut ends = Ends::new();
            ends.sa.mobility = Mobility::Follows;
            let mut payloads = Builder::new();
            payloads.notify(NotifyType::UPDATE_SA_ADDRESSES, &[]);
            assert_eq!(ends.ask(ExchangeType::INFORMATIONAL, &payloads), []);
            assert_eq!(ends.asked(), None, "it is where it was");
            ends.sa.path.remote.set_port(1);
            assert_eq!(ends.ask(ExchangeType::INFORMATIONAL, &payloads), []);
            let asked = ends.asked().unwrap();
            let [(NotifyType::COOKIE2, _, cookie)] = &asked[..] else { panic!("{asked:?}") };
            assert!((8..=64).contains(&cookie.len()));
            told(&mut ends, if honest { cookie } else { b"something" });
            assert_eq!(ends.is_up(), honest);
        }
    }

    /// RFC 4555 §3.8, and §4.2.5 for the cookie.
    #[test]
    fn who_asks_where_it_is_is_told_and_nothing_changes() {
        for mobility in [Mobility::Follows, Mobility::Leads] {
            let mut ends = Ends::new();
            ends.sa.mobility = mobility;
            let there = Path { local: ends.sa.path.remote, remote: ends.sa.path.local };
            let (initiator, responder) = (ends.sa.channel.initiator_spi, ends.sa.channel.responder_spi);
            let mut payloads = Builder::new();
            payloads.notify(NotifyType::COOKIE2, b"any cookie");
            nat::announce(&mut payloads, initiator, responder, there, false);
            ends.sa.path.remote.set_port(1);
            let (before, events) = (ends.sa.path, ends.out.events.len());
            let answer = ends.ask(ExchangeType::INFORMATIONAL, &payloads);
            let kinds: Vec<_> = answer.iter().map(|(kind, ..)| *kind).collect();
            let (source, destination) =
                (NotifyType::NAT_DETECTION_SOURCE_IP, NotifyType::NAT_DETECTION_DESTINATION_IP);
            assert_eq!(kinds, [NotifyType::COOKIE2, source, destination]);
            assert_eq!(answer[0].2, b"any cookie");
            assert_eq!((ends.sa.path, ends.out.events.len()), (before, events));
        }
    }

    /// §2.21.2.
    #[test]
    fn who_could_not_take_the_answer_to_its_authentication_says_so_and_the_ike_sa_ends() {
        for kind in [
            NotifyType::AUTHENTICATION_FAILED,
            NotifyType::INVALID_SYNTAX,
            NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD,
        ] {
            let mut ends = Ends::new();
            let mut payloads = Builder::new();
            payloads.notify(kind, &[]);
            assert_eq!(ends.ask(ExchangeType::INFORMATIONAL, &payloads), []);
            assert!(!ends.is_up(), "{kind}");
        }
    }

    #[test]
    fn who_allows_no_nat_is_not_followed_through_one() {
        for (honest, told) in [(true, vec![]), (false, vec![NotifyType::UNEXPECTED_NAT_DETECTED])] {
            let mut ends = Ends::new();
            ends.sa.mobility = Mobility::Follows;
            let (there, here) = (ends.sa.path.remote, ends.sa.path.local);
            let of = if honest { there } else { here };
            let mut payloads = Builder::new();
            payloads.notify(NotifyType::UPDATE_SA_ADDRESSES, &[]);
            payloads.notify(NotifyType::NO_NATS_ALLOWED, &nat::plain(of, here));
            let events = ends.out.events.len();
            // It was somewhere else before.
            ends.sa.path.remote.set_port(1);
            let answer = ends.ask(ExchangeType::INFORMATIONAL, &payloads);
            assert_eq!(answer.into_iter().map(|(notify, ..)| notify).collect::<Vec<_>>(), told);
            assert_eq!(ends.out.events.len() > events, told.is_empty());
        }
    }

    proptest! {
        /// Whatever a peer that has proved who it is seals.
        #[test]
        fn no_request_of_a_peer_panics(
            exchange in prop_oneof![Just(36u8), Just(37), any::<u8>()],
            chain in proptest::collection::vec((33u8..=48, proptest::collection::vec(any::<u8>(), 0..60)), 0..6),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut payloads = Builder::new();
            for (kind, body) in &chain {
                payloads.raw(PayloadType(*kind), |to| to.extend(body));
            }
            let _ = Ends::new().ask(ExchangeType(exchange), &payloads);
            let mut good = Builder::new();
            create(&mut good);
            let mut damaged = good.bytes().to_vec();
            let at = at.index(damaged.len());
            damaged[at] = byte;
            let mut ends = Ends::new();
            let _ = ends.ask(ExchangeType::CREATE_CHILD_SA, &Builder::of(good.first(), damaged));
            prop_assert!(ends.sa.children.len() <= 1);
        }
    }
}

//! The initiator's side until both ends are authenticated (RFC 7296 §1.2, §2.4, §2.6, §2.7).
//!
//! What comes before that is not protected, so no answer to IKE_SA_INIT is final: each plausible one makes a *candidate*,
//! and the first candidate that proves to be the other end is the IKE SA (§2.4). A refusal only makes the attempt end
//! sooner, if nothing better comes.
//!
//! Somebody who sees the request can forge any number of answers before the genuine one comes. Each time that IKE_SA_INIT
//! is sent begins a *round*: the answers to it all have the same chance to be among the candidates, whichever comes first,
//! and those of earlier rounds give way to them. The genuine one comes again in each round.

use std::time::{Duration, Instant};

use crate::auth::{self, Transcript};
use crate::channel::{Channel, Opened};
use crate::child::{ChildOffer, Refusal, error_in, find, has_notify, notifies};
use crate::config::{ChildIndex, PeerConfig, PeerIndex};
use crate::crypto::group::KeyPair;
use crate::drops::DropReason;
use crate::event::{EndReason, Event, Nat, Path};
use crate::keys::{Exchanged, IkeKeys, Role};
use crate::message::body::{Identity, KeyExchange, parse_nonce};
use crate::message::builder::Builder;
use crate::message::configuration::{self, Attribute, ConfigurationType};
use crate::message::proposal::{self, Proposal};
use crate::message::{Header, Message, ParseError, Payloads};
use crate::nat;
use crate::negotiation::{choose_ike, is_choice_of, offer_ike};
use crate::numbers::{ExchangeType, IkeSpi, MessageId, NotifyType, PayloadType, Spi};
use crate::output::Context;
use crate::random::{self, Random};
use crate::sa::{Begin, IkeSa, Mobility, NONCE, TRIES, Task, retransmit_after, wanted_group};

/// Answers to IKE_SA_INIT that are followed up at once: the genuine one, and some that are not.
const MAX_CANDIDATES: usize = 16;
/// A longer answer is none: each candidate keeps its own.
const MAX_ANSWER: usize = 16_384;
/// With one candidate, the genuine one most likely, IKE_SA_INIT is sent again no sooner; with more, no later.
const NEXT_ROUND: Duration = Duration::from_secs(3);
/// Times in a round that IKE_SA_INIT begins anew, with a cookie or in another group.
const MAX_RESTARTS: u32 = 5;
/// After a refusal that anybody may have sent, a better answer is waited for this long.
const REFUSED_GRACE: Duration = Duration::from_secs(5);

/// An IKE SA that this end wants.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) peer: PeerIndex,
    /// The IKE SA that ends when this one is there (reauthentication, §2.8.3).
    pub(crate) replaces: Option<IkeSpi>,
    spi: IkeSpi,
    path: Path,
    nonce: Vec<u8>,
    key_pair: KeyPair,
    offered: Vec<Proposal>,
    cookie: Vec<u8>,
    restarts: u32,
    request: Vec<u8>,
    candidates: Vec<Candidate>,
    round: u32,
    /// So many different ones that could be genuine have come in this round.
    answers: u32,
    /// What packets of the first child are to come in with: the same for all candidates. One that gave way may come back,
    /// and the other end goes by the first IKE_AUTH that it has had.
    child_spi: Spi,
    tries: u32,
    again_at: Instant,
    ends_at: Instant,
    has_answer: bool,
    give_up_at: Option<Instant>,
    failure: EndReason,
}

/// Somebody who has answered IKE_SA_INIT, and is asked for a proof.
#[derive(Debug)]
struct Candidate {
    channel: Channel,
    transcript: Transcript,
    path: Path,
    nat: Nat,
    offer: Option<ChildOffer>,
    datagrams: Vec<Vec<u8>>,
    /// When it has answered last.
    round: u32,
    tries: u32,
    again_at: Instant,
}

/// What is wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) peer: PeerIndex,
    pub(crate) path: Path,
    pub(crate) replaces: Option<IkeSpi>,
}

impl Attempt {
    /// Begins; none if there is no such peer, or no group is configured.
    pub(crate) fn new(wanted: Wanted, context: &mut Context<'_>) -> Option<Self> {
        let Wanted { peer, path, replaces } = wanted;
        context.config.peers.get(peer.0)?;
        let group = *context.config.algorithms.groups.first()?;
        let mut attempt = Self {
            peer,
            replaces,
            spi: random::ike_spi(context.random),
            path,
            nonce: random::bytes::<NONCE>(context.random).to_vec(),
            key_pair: KeyPair::generate(group, context.random),
            offered: offer_ike(&context.config.algorithms, &[]),
            cookie: Vec::new(),
            restarts: 0,
            request: Vec::new(),
            candidates: Vec::new(),
            round: 0,
            answers: 0,
            child_spi: context.spis.next(),
            tries: 0,
            again_at: context.now,
            ends_at: context.now + attempt_time(),
            has_answer: false,
            give_up_at: None,
            failure: EndReason::NoAnswer,
        };
        attempt.send_init(context);
        Some(attempt)
    }

    /// This end's SPI.
    pub(crate) fn spi(&self) -> IkeSpi {
        self.spi
    }

    fn send_init(&mut self, context: &mut Context<'_>) {
        let mut payloads = Builder::new();
        if !self.cookie.is_empty() {
            payloads.notify(NotifyType::COOKIE, &self.cookie);
        }
        payloads.sa(&self.offered);
        payloads.key_exchange(self.key_pair.group().id(), self.key_pair.public());
        payloads.nonce(&self.nonce);
        let peer = context.config.peers.get(self.peer.0);
        let claimed = peer.is_some_and(|peer| peer.encapsulate);
        nat::announce(&mut payloads, self.spi, IkeSpi::ZERO, self.path, claimed);
        payloads.notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]);
        if peer.is_some_and(|peer| auth::certificates(peer).is_some()) {
            auth::announce_hashes(&mut payloads);
        }
        self.request = payloads.finish(&Header {
            initiator_spi: self.spi,
            responder_spi: IkeSpi::ZERO,
            exchange: ExchangeType::IKE_SA_INIT,
            from_initiator: true,
            is_response: false,
            message_id: MessageId::ZERO,
        });
        context.out.send(self.path, &self.request);
        self.tries = 1;
        self.again_at = context.now + retransmit_after(1);
    }

    /// Where the two ends are, as the attempt has begun.
    pub(crate) fn path(&self) -> Path {
        self.path
    }

    /// The other end may have come back: what is repeated only after long is repeated soon.
    pub(crate) fn hurry(&mut self, now: Instant) {
        let times = self.candidates.iter_mut().map(|candidate| &mut candidate.again_at);
        for again_at in times.chain([&mut self.again_at]) {
            *again_at = (*again_at).min(now + retransmit_after(1));
        }
    }

    /// When something is to be done.
    pub(crate) fn deadline(&self) -> Instant {
        let times = self.candidates.iter().map(|candidate| candidate.again_at).chain(self.give_up_at());
        times.fold(self.again_at.min(self.ends_at), Instant::min)
    }

    /// Does what is due; returns why the attempt has failed, if it has.
    pub(crate) fn handle_timeout(&mut self, context: &mut Context<'_>) -> Option<EndReason> {
        if self.give_up_at().is_some_and(|at| at <= context.now) {
            return Some(self.failure);
        }
        if self.ends_at <= context.now {
            return Some(self.failure);
        }
        if self.again_at <= context.now {
            self.begin_round(context);
        }
        for candidate in self.candidates.iter_mut().filter(|candidate| candidate.again_at <= context.now) {
            candidate.tries += 1;
            candidate.again_at = context.now + retransmit_after(candidate.tries);
            context.out.send_all(candidate.path, &candidate.datagrams);
        }
        None
    }

    /// Sends IKE_SA_INIT again: if candidates stay silent, the genuine answer may have been lost, or has given way to others.
    fn begin_round(&mut self, context: &mut Context<'_>) {
        (self.round, self.answers, self.restarts) = (self.round + 1, 0, 0);
        self.tries += 1;
        let wait = retransmit_after(self.tries);
        let is_contested = self.candidates.len() > 1;
        self.again_at = context.now + if is_contested { wait.min(NEXT_ROUND) } else { wait };
        context.out.send(self.path, &self.request);
    }

    /// A message with this end's SPI has come; returns the IKE SA if it is there now. `alone` if there is no other one with
    /// the peer.
    pub(crate) fn receive(
        &mut self,
        message: &Message<'_>,
        path: Path,
        alone: bool,
        context: &mut Context<'_>,
    ) -> Option<IkeSa> {
        let header = message.header();
        if !header.is_response || header.from_initiator {
            context.out.drops.count(DropReason::Unexpected);
            return None;
        }
        match (header.exchange, header.message_id) {
            (ExchangeType::IKE_SA_INIT, MessageId::ZERO) => {
                if let Err(reason) = self.receive_init(message, path, alone, context) {
                    context.out.drops.count(reason);
                }
                None
            }
            (ExchangeType::IKE_AUTH, MessageId(1)) => self.receive_auth(message, context),
            _ => {
                context.out.drops.count(DropReason::Unexpected);
                None
            }
        }
    }

    /// When to be content with a refusal: never while somebody else is asked for a proof.
    fn give_up_at(&self) -> Option<Instant> {
        self.give_up_at.filter(|_| self.candidates.is_empty())
    }

    /// The attempt fails for this reason, if nothing better comes.
    fn refused(&mut self, reason: EndReason, now: Instant) {
        self.failure = reason;
        self.give_up_at = self.give_up_at.or(Some(now + REFUSED_GRACE));
    }

    fn receive_init(
        &mut self,
        message: &Message<'_>,
        path: Path,
        alone: bool,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        // §2.11: who is asked answers from where it was asked.
        if path.remote != self.path.remote {
            return Err(DropReason::Unexpected);
        }
        let payloads = message.payloads();
        if payloads.find(PayloadType::SA).is_some() {
            return self.add_candidate(message, path, alone, context);
        }
        let anew = self.restarts < MAX_RESTARTS;
        if let Some(cookie) = notifies(payloads).find(|notify| notify.kind == NotifyType::COOKIE) {
            if !anew || !(1..=64).contains(&cookie.data.len()) || self.cookie == cookie.data {
                return Err(DropReason::Unexpected);
            }
            self.restarts += 1;
            self.cookie = cookie.data.to_vec();
            self.send_init(context);
            return Ok(());
        }
        let error = error_in(payloads).ok_or(DropReason::Unexpected)?;
        let groups = context.config.algorithms.groups.iter().copied();
        let current = self.key_pair.group();
        let others: Vec<_> = groups.filter(|group| *group != current).collect();
        match wanted_group(error, &others) {
            Some(group) if anew && self.candidates.is_empty() => {
                self.restarts += 1;
                self.key_pair = KeyPair::generate(group, context.random);
                self.send_init(context);
            }
            _ => self.refused(EndReason::Refused(error.kind), context.now),
        }
        Ok(())
    }

    fn add_candidate(
        &mut self,
        message: &Message<'_>,
        path: Path,
        alone: bool,
        context: &mut Context<'_>,
    ) -> Result<(), DropReason> {
        let header = message.header();
        if header.responder_spi == IkeSpi::ZERO || message.bytes().len() > MAX_ANSWER {
            return Err(DropReason::Unexpected);
        }
        let is_known = |candidate: &&mut Candidate| candidate.transcript.response == message.bytes();
        if let Some(known) = self.candidates.iter_mut().find(is_known) {
            self.answers += u32::from(known.round != self.round);
            known.round = self.round;
            return Err(DropReason::Unexpected);
        }
        let payloads = message.payloads();
        let answer = proposal::parse(find(payloads, PayloadType::SA)?)?;
        is_choice_of(&answer, &self.offered).ok_or(DropReason::Refused)?;
        let group = self.key_pair.group();
        let chosen = choose_ike(&answer, &context.config.algorithms, group.id());
        let (_, suite) = chosen.ok_or(DropReason::Refused)?;
        let exchange = KeyExchange::parse(find(payloads, PayloadType::KE)?)?;
        if exchange.group != group.id() || suite.group != group {
            return Err(DropReason::Refused);
        }
        let nonce = parse_nonce(find(payloads, PayloadType::NONCE)?)?;
        self.answers = self.answers.saturating_add(1);
        let place = self.place(context.random).ok_or(DropReason::TooManyAnswers)?;
        let shared = self.key_pair.agree(exchange.public).map_err(|_| DropReason::Refused)?;
        let exchanged = Exchanged {
            initiator_spi: self.spi,
            responder_spi: header.responder_spi,
            initiator_nonce: self.nonce.clone(),
            responder_nonce: nonce.to_vec(),
        };
        let mut keys =
            IkeKeys::derive(&suite, Role::Initiator, &shared, &exchanged).ok_or(DropReason::Refused)?;
        // A candidate that is gone and comes back has the keys that it had.
        keys.outbound.count_from(u64::from_be_bytes(random::bytes(context.random)));
        let fragments = has_notify(payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
        let channel = Channel::new(Role::Initiator, self.spi, header.responder_spi, keys, fragments);
        let peer = context.config.peers.get(self.peer.0).ok_or(DropReason::Unexpected)?;
        let detected = nat::detect(self.spi, header.responder_spi, payloads, path, peer.encapsulate);
        let nat = detected.unwrap_or_default();
        let transcript = Transcript {
            request: self.request.clone(),
            response: message.bytes().to_vec(),
            initiator_nonce: self.nonce.clone(),
            responder_nonce: nonce.to_vec(),
            peer_hashes: auth::hashes_in(payloads),
        };
        // RFC 4555 §3.3: who may move is on the shared port from the beginning.
        let floats = nat.is_between() || (peer.mobile && detected.is_some());
        let path =
            if floats { floated(self.path, context.config.nat_port, peer.nat_port) } else { self.path };
        let mut candidate = Candidate {
            channel,
            transcript,
            path,
            nat,
            offer: None,
            datagrams: Vec::new(),
            round: self.round,
            tries: 1,
            again_at: context.now + retransmit_after(1),
        };
        if !self.send_auth(&mut candidate, alone, context) {
            self.refused(EndReason::AuthenticationFailed, context.now);
            return Ok(());
        }
        match self.candidates.get_mut(place) {
            Some(other) => *other = candidate,
            None => self.candidates.push(candidate),
        }
        let next_round = context.now + NEXT_ROUND;
        if self.candidates.len() > 1 {
            self.again_at = self.again_at.min(next_round);
        } else if self.answers == 1 {
            self.again_at = self.again_at.max(next_round);
        }
        // There is time for all tries of IKE_AUTH: once, so that nobody prolongs an attempt without end.
        if !self.has_answer {
            (self.has_answer, self.ends_at) = (true, context.now + attempt_time());
        }
        Ok(())
    }

    /// Where a further candidate belongs, if it has a place: beside the others, in the place of one of an earlier round, or
    /// by lot, so that each answer of a round has the same chance (reservoir sampling).
    fn place(&self, random: &mut dyn Random) -> Option<usize> {
        let count = self.candidates.len();
        if count < MAX_CANDIDATES {
            return Some(count);
        }
        let earliest = self.candidates.iter().enumerate().min_by_key(|(_, candidate)| candidate.round)?;
        if earliest.1.round != self.round {
            return Some(earliest.0);
        }
        let lot = u64::from_be_bytes(random::bytes(random)) % u64::from(self.answers.max(1));
        usize::try_from(lot).ok().filter(|place| *place < count)
    }

    /// False if this end has no certificate that the other end can verify.
    fn send_auth(&self, candidate: &mut Candidate, alone: bool, context: &mut Context<'_>) -> bool {
        let Some(peer) = context.config.peers.get(self.peer.0) else { return false };
        let mut payloads = Builder::new();
        payloads.identity(PayloadType::ID_I, &peer.local);
        if alone {
            payloads.notify(NotifyType::INITIAL_CONTACT, &[]);
        }
        if let Some(remote) = &peer.remote {
            payloads.identity(PayloadType::ID_R, remote);
        }
        auth::request_certificates(&mut payloads, auth::certificates(peer).into_iter());
        let (keys, transcript) = (&candidate.channel.keys, &candidate.transcript);
        if !auth::prove(&mut payloads, peer, keys, transcript, Role::Initiator) {
            return false;
        }
        if peer.request_addresses {
            let wanted = [
                Attribute::Ipv4Address(None),
                Attribute::Ipv4Dns(None),
                Attribute::Ipv6Address(None),
                Attribute::Ipv6Dns(None),
            ];
            payloads.configuration(ConfigurationType::REQUEST, &wanted);
        }
        candidate.offer =
            ChildOffer::new(peer, candidate.path, ChildIndex(0), true, None, self.child_spi, context);
        if let Some(offer) = &candidate.offer {
            offer.write(&mut payloads, None);
        }
        if peer.mobile {
            payloads.notify(NotifyType::MOBIKE_SUPPORTED, &[]);
        }
        let (exchange, id) = (ExchangeType::IKE_AUTH, MessageId(1));
        candidate.datagrams = candidate.channel.seal(exchange, false, id, &payloads, context.random);
        context.out.send_all(candidate.path, &candidate.datagrams);
        true
    }

    fn receive_auth(&mut self, message: &Message<'_>, context: &mut Context<'_>) -> Option<IkeSa> {
        let header = message.header();
        // Somebody may have taken the SPI of the genuine answer for another one.
        let mut opened = Err(DropReason::UnknownSpi);
        for (position, candidate) in self.candidates.iter_mut().enumerate() {
            if candidate.channel.is_from_peer(&header) {
                opened = candidate.channel.open(message, context.now).map(|opened| (position, opened));
                if opened.is_ok() {
                    break;
                }
            }
        }
        let (position, first, content) = match opened {
            Ok((position, Opened::Whole(first, content))) => (position, first, content),
            Ok((_, Opened::Fragment)) => return None,
            Err(reason) => {
                context.out.drops.count(reason);
                return None;
            }
        };
        let candidate = self.candidates.swap_remove(position);
        let config = context.config;
        let peer = config.peers.get(self.peer.0)?;
        let outcome = Payloads::parse(first, &content)
            .and_then(|payloads| Ok((payloads, check(payloads, peer, &candidate, context.unix_time)?)));
        match outcome {
            Ok((payloads, Ok(identity))) => {
                Some(self.establish(candidate, identity, payloads, peer, context))
            }
            Ok((_, Err(Failure::Refused(reason)))) => {
                self.refused(reason, context.now);
                None
            }
            Ok((_, Err(Failure::NotProved))) => {
                self.tell_failure(candidate, &NotifyType::AUTHENTICATION_FAILED.into(), context);
                self.refused(EndReason::AuthenticationFailed, context.now);
                None
            }
            Err(error) => {
                let why = match error {
                    ParseError::UnsupportedCritical(kind) => Refusal::critical(kind),
                    other => other.into(),
                };
                self.tell_failure(candidate, &why, context);
                self.refused(EndReason::Malformed, context.now);
                None
            }
        }
    }

    /// Tells the other end, which takes the IKE SA for established, that it is not (§2.21.2). Once: it has a liveness
    /// check of its own.
    fn tell_failure(&self, mut candidate: Candidate, why: &Refusal, context: &mut Context<'_>) {
        let mut payloads = Builder::new();
        why.write(&mut payloads);
        let (exchange, id) = (ExchangeType::INFORMATIONAL, MessageId(2));
        let datagrams = candidate.channel.seal(exchange, false, id, &payloads, context.random);
        context.out.send_all(candidate.path, &datagrams);
    }

    fn establish(
        &mut self,
        candidate: Candidate,
        identity: Identity,
        payloads: Payloads<'_>,
        peer: &PeerConfig,
        context: &mut Context<'_>,
    ) -> IkeSa {
        let Candidate { channel, transcript, path, nat, offer, .. } = candidate;
        let begin = Begin { next_id: MessageId(2), expected: MessageId::ZERO, last_answer: Vec::new() };
        let mut sa = IkeSa::new(channel, self.peer, identity.clone(), (path, nat), begin, context);
        sa.announced = true;
        let mobile = peer.mobile && has_notify(payloads, NotifyType::MOBIKE_SUPPORTED);
        sa.mobility = if mobile { Mobility::Leads } else { Mobility::None };
        let (addresses, dns) = if peer.request_addresses { assigned(payloads) } else { Default::default() };
        context.out.events.push_back(Event::IkeUp {
            ike: self.spi,
            peer: self.peer,
            identity,
            initiated: true,
            addresses,
            dns,
        });
        let Some(offer) = offer else { return sa };
        let (index, protocol, spi) = (offer.index, offer.protocol, offer.spi);
        if let Some(error) = error_in(payloads) {
            let notify = error.kind;
            context.out.events.push_back(Event::ChildRefused { ike: self.spi, child: index, notify });
            return sa;
        }
        let nonces = (&transcript.initiator_nonce[..], &transcript.responder_nonce[..]);
        match offer.accept(payloads, path, nat) {
            Ok(agreed) => sa.install_first(agreed, true, nonces, context),
            Err(Refusal { notify, .. }) => {
                context.out.events.push_back(Event::ChildRefused { ike: self.spi, child: index, notify });
                sa.ask(Task::DeleteChild { protocol, spi }, context);
            }
        }
        sa
    }
}

enum Failure {
    /// The other end has refused.
    Refused(EndReason),
    /// It is not who it should be.
    NotProved,
}

/// Whether a response proves the candidate to be the peer, and who exactly that is.
fn check(
    payloads: Payloads<'_>,
    peer: &PeerConfig,
    candidate: &Candidate,
    unix_time: Option<Duration>,
) -> Result<Result<Identity, Failure>, ParseError> {
    if payloads.find(PayloadType::AUTH).is_none() {
        let reason = match error_in(payloads).map(|error| error.kind) {
            Some(NotifyType::AUTHENTICATION_FAILED) => EndReason::AuthenticationFailed,
            Some(kind) => EndReason::Refused(kind),
            None => EndReason::Malformed,
        };
        return Ok(Err(Failure::Refused(reason)));
    }
    let identity = Identity::parse(find(payloads, PayloadType::ID_R)?)?;
    let (keys, transcript) = (&candidate.channel.keys, &candidate.transcript);
    let proved = auth::is_proved(payloads, peer, keys, transcript, Role::Initiator, unix_time)?;
    let wanted = peer.remote.as_ref().is_none_or(|remote| *remote == identity);
    Ok(if proved && wanted { Ok(identity) } else { Err(Failure::NotProved) })
}

/// How long an attempt without an answer takes: the time of all tries.
fn attempt_time() -> Duration {
    (1..=TRIES).map(retransmit_after).sum()
}

/// The ports that a NAT does not meddle with (§2.23).
fn floated(mut path: Path, local: u16, remote: u16) -> Path {
    if path.local.port() != local {
        path.local.set_port(local);
        path.remote.set_port(remote);
    }
    path
}

/// The addresses and DNS servers that a configuration reply has.
fn assigned(payloads: Payloads<'_>) -> (Vec<std::net::IpAddr>, Vec<std::net::IpAddr>) {
    let reply = payloads.find(PayloadType::CONFIGURATION).and_then(|cp| configuration::parse(cp.body).ok());
    let (mut addresses, mut dns) = (Vec::new(), Vec::new());
    let Some((ConfigurationType::REPLY, attributes)) = reply else { return (addresses, dns) };
    for attribute in attributes {
        match attribute {
            Attribute::Ipv4Address(Some(address)) => addresses.push(address.into()),
            Attribute::Ipv6Address(Some((address, _))) => addresses.push(address.into()),
            Attribute::Ipv4Dns(Some(server)) => dns.push(server.into()),
            Attribute::Ipv6Dns(Some(server)) => dns.push(server.into()),
            _ => {}
        }
    }
    (addresses, dns)
}

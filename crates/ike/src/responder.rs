//! The responder's side until both ends are authenticated (RFC 7296 §1.2, §2.6, §2.7, §2.15, §2.21.1–2).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::auth::{self, Transcript};
use crate::census::MAX_OF_SHARED_KEY;
use crate::channel::{Channel, Opened};
use crate::child::{self, Agreed, Asked, Refusal, find, has_notify, notifies};
use crate::config::{Assigned, Authentication, PeerConfig, PeerIndex};
use crate::cookie::Cookies;
use crate::crypto::group::KeyPair;
use crate::drops::DropReason;
use crate::event::{Event, Nat, Path};
use crate::keys::{Exchanged, IkeKeys, Role};
use crate::lease::Leases;
use crate::message::body::{Identity, KeyExchange, parse_nonce};
use crate::message::builder::Builder;
use crate::message::configuration::{self, Attribute, ConfigurationType};
use crate::message::proposal;
use crate::message::{Header, Message, ParseError, Payloads};
use crate::nat;
use crate::negotiation::choose_ike;
use crate::numbers::{ExchangeType, IkeSpi, MessageId, NotifyType, PayloadType};
use crate::output::Context;
use crate::random;
use crate::sa::{Begin, IkeSa, Mobility, NONCE};

/// An initiator that has not authenticated itself by then is forgotten.
const HALF_OPEN_LIFETIME: Duration = Duration::from_secs(30);
/// One that has failed is kept for so long, to have its answer repeated: initiators ask again within four seconds.
const FAILED_LIFETIME: Duration = Duration::from_secs(5);

/// An initiator that has been answered, and is to prove who it is.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    channel: Channel,
    transcript: Transcript,
    nat: Nat,
    source: IpAddr,
    begun_at: Instant,
    forgotten_at: Instant,
    /// It has failed, with this answer.
    failed: Vec<Vec<u8>>,
}

/// A longer IKE_SA_INIT is refused: it is kept until the initiator has authenticated itself. All algorithms that IANA knows
/// take less than half of this.
const MAX_INIT: usize = 4096;

/// An IKE SA that has come about.
pub(crate) struct Accepted {
    pub(crate) sa: IkeSa,
    /// The other end knew of no other one with this end, when it began at that time.
    pub(crate) initial_contact: Option<Instant>,
}

/// Whether the attempt of this initiator's SPI has led to an IKE SA with this peer and identity.
pub(crate) type HasComeAbout<'a> = &'a dyn Fn(IkeSpi, PeerIndex, &Identity) -> bool;

/// Who an initiator has proved to be, and what it was answered.
struct Proved {
    peer: PeerIndex,
    identity: Identity,
    agreed: Option<Agreed>,
    given: Vec<IpAddr>,
    last_answer: Vec<Vec<u8>>,
    initial_contact: bool,
    mobile: bool,
}

/// What is answered to a request without anything being kept: the header is that of the request.
pub(crate) fn stateless_answer(
    header: &Header,
    path: Path,
    notify: NotifyType,
    data: &[u8],
    context: &mut Context<'_>,
) {
    let mut payloads = Builder::new();
    payloads.notify(notify, data);
    let answer = Header { from_initiator: !header.from_initiator, is_response: true, ..*header };
    context.out.send(path, &payloads.finish(&answer));
}

impl HalfOpen {
    /// Answers IKE_SA_INIT: with a notify alone, of which nothing is kept, or as an IKE SA in the making.
    pub(crate) fn answer_init(
        message: &Message<'_>,
        path: Path,
        cookies: Option<&mut Cookies>,
        context: &mut Context<'_>,
    ) -> Result<Self, DropReason> {
        let (header, payloads) = (message.header(), message.payloads());
        if message.bytes().len() > MAX_INIT {
            return Err(DropReason::Malformed);
        }
        let nonce = parse_nonce(find(payloads, PayloadType::NONCE)?)?;
        let proposals = find(payloads, PayloadType::SA)?;
        let exchange = KeyExchange::parse(find(payloads, PayloadType::KE)?)?;
        if let Some(cookies) = cookies {
            let (now, spi) = (context.now, header.initiator_spi);
            // §2.6: where it is, it is the first payload.
            let offered = notifies(payloads).next().filter(|notify| notify.kind == NotifyType::COOKIE);
            if !offered.is_some_and(|cookie| cookies.is_valid(now, cookie.data, path.remote, spi, nonce)) {
                let cookie = cookies.make(now, context.random, path.remote, spi, nonce);
                stateless_answer(&header, path, NotifyType::COOKIE, &cookie, context);
                return Err(DropReason::NoCookie);
            }
        }
        let proposals = proposal::parse(proposals)?;
        let Some((chosen, suite)) = choose_ike(&proposals, &context.config.algorithms, exchange.group) else {
            stateless_answer(&header, path, NotifyType::NO_PROPOSAL_CHOSEN, &[], context);
            return Err(DropReason::Refused);
        };
        if suite.group.id() != exchange.group {
            let wanted = suite.group.id().to_be_bytes();
            stateless_answer(&header, path, NotifyType::INVALID_KE_PAYLOAD, &wanted, context);
            return Err(DropReason::Refused);
        }
        let key_pair = KeyPair::generate(suite.group, context.random);
        let shared = key_pair.agree(exchange.public).map_err(|_| DropReason::Malformed)?;
        let own_nonce = random::bytes::<NONCE>(context.random).to_vec();
        let exchanged = Exchanged {
            initiator_spi: header.initiator_spi,
            responder_spi: random::ike_spi(context.random),
            initiator_nonce: nonce.to_vec(),
            responder_nonce: own_nonce.clone(),
        };
        let keys =
            IkeKeys::derive(&suite, Role::Responder, &shared, &exchanged).ok_or(DropReason::Refused)?;

        // Who it is comes out later.
        let claimed = context.config.peers.iter().any(|peer| peer.encapsulate);
        let nat = nat::detect(header.initiator_spi, header.responder_spi, payloads, path, claimed);
        let fragments = has_notify(payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED);
        let mut answer = Builder::new();
        let chosen = proposal::Proposal { spi: Vec::new(), ..chosen };
        answer.sa(&[chosen]).key_exchange(suite.group.id(), key_pair.public()).nonce(&own_nonce);
        if nat.is_some() {
            nat::announce(&mut answer, exchanged.initiator_spi, exchanged.responder_spi, path, claimed);
        }
        if fragments {
            answer.notify(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, &[]);
        }
        let peer_hashes = auth::hashes_in(payloads);
        let mut certificates = context.config.peers.iter().filter_map(auth::certificates).peekable();
        if !peer_hashes.is_empty() && certificates.peek().is_some() {
            auth::announce_hashes(&mut answer);
            auth::request_certificates(&mut answer, certificates);
        }
        let response = answer.finish(&Header {
            responder_spi: exchanged.responder_spi,
            from_initiator: false,
            is_response: true,
            ..header
        });
        context.out.send(path, &response);
        let (initiator_spi, responder_spi) = (exchanged.initiator_spi, exchanged.responder_spi);
        Ok(Self {
            channel: Channel::new(Role::Responder, initiator_spi, responder_spi, keys, fragments),
            transcript: Transcript {
                request: message.bytes().to_vec(),
                response,
                initiator_nonce: nonce.to_vec(),
                responder_nonce: own_nonce,
                peer_hashes,
            },
            nat: nat.unwrap_or_default(),
            source: path.remote.ip(),
            begun_at: context.now,
            forgotten_at: context.now + HALF_OPEN_LIFETIME,
            failed: Vec::new(),
        })
    }

    /// This end's SPI.
    pub(crate) fn spi(&self) -> IkeSpi {
        self.channel.own_spi()
    }

    /// Where it has begun.
    pub(crate) fn source(&self) -> IpAddr {
        self.source
    }

    /// When it has begun.
    pub(crate) fn begun_at(&self) -> Instant {
        self.begun_at
    }

    /// When it is forgotten.
    pub(crate) fn deadline(&self) -> Instant {
        self.forgotten_at
    }

    /// Repeats the answer if this is the request again, bit by bit (§2.1).
    pub(crate) fn repeat(&self, request: &[u8], path: Path, context: &mut Context<'_>) -> bool {
        let same = self.transcript.request == request;
        if same {
            context.out.send(path, &self.transcript.response);
        }
        same
    }

    /// A message with this end's SPI has come; returns the IKE SA if it is there now, or else what was before.
    pub(crate) fn receive(
        mut self: Box<Self>,
        message: &Message<'_>,
        path: Path,
        has_come_about: HasComeAbout<'_>,
        context: &mut Context<'_>,
    ) -> Result<Accepted, Box<Self>> {
        match self.take(message, path, has_come_about, context) {
            None => Err(self),
            Some(proved) => Ok(self.establish(proved, path, context)),
        }
    }

    fn take(
        &mut self,
        message: &Message<'_>,
        path: Path,
        has_come_about: HasComeAbout<'_>,
        context: &mut Context<'_>,
    ) -> Option<Proved> {
        let header = message.header();
        let expected = header.exchange == ExchangeType::IKE_AUTH && header.message_id == MessageId(1);
        if !self.channel.is_from_peer(&header) || header.is_response || !expected {
            context.out.drops.count(DropReason::Unexpected);
            return None;
        }
        if !self.failed.is_empty() {
            if self.channel.is_genuine_first(message) {
                context.out.send_all(path, &self.failed);
            }
            return None;
        }
        let (first, content) = match self.channel.open(message, context.now) {
            Ok(Opened::Whole(first, content)) => (first, content),
            Ok(Opened::Fragment) => return None,
            Err(reason) => {
                context.out.drops.count(reason);
                return None;
            }
        };
        let refusal = match Payloads::parse(first, &content) {
            Ok(payloads) => match self.authenticate(payloads, path, has_come_about, context) {
                Ok(proved) => return proved,
                Err(refusal) => refusal,
            },
            Err(ParseError::UnsupportedCritical(kind)) => Refusal::critical(kind),
            Err(error) => error.into(),
        };
        let mut answer = Builder::new();
        refusal.write(&mut answer);
        self.failed = self.seal(&answer, context);
        self.forgotten_at = self.forgotten_at.min(context.now + FAILED_LIFETIME);
        context.out.send_all(path, &self.failed);
        None
    }

    fn seal(&mut self, answer: &Builder, context: &mut Context<'_>) -> Vec<Vec<u8>> {
        self.channel.seal(ExchangeType::IKE_AUTH, true, MessageId(1), answer, context.random)
    }

    /// Nobody where the attempt has led to an IKE SA already.
    fn authenticate(
        &mut self,
        payloads: Payloads<'_>,
        path: Path,
        has_come_about: HasComeAbout<'_>,
        context: &mut Context<'_>,
    ) -> Result<Option<Proved>, Refusal> {
        let identity = Identity::parse(find(payloads, PayloadType::ID_I)?)?;
        let wanted = payloads.find(PayloadType::ID_R).map(|id| Identity::parse(id.body)).transpose()?;
        let config = context.config;
        let proved = auth::find_peer(&config.peers, &identity, wanted.as_ref()).filter(|(_, peer)| {
            let (keys, transcript) = (&self.channel.keys, &self.transcript);
            auth::is_proved(payloads, peer, keys, transcript, Role::Responder, context.unix_time)
                .unwrap_or(false)
        });
        let Some((index, peer)) = proved else {
            context.out.drops.count(DropReason::AuthenticationFailed);
            context
                .out
                .events
                .push_back(Event::AuthenticationFailed { remote: path.remote, claimed: Some(identity) });
            return Err(NotifyType::AUTHENTICATION_FAILED.into());
        };
        if has_come_about(self.channel.initiator_spi, index, &identity) {
            context.out.drops.count(DropReason::Unexpected);
            return Ok(None);
        }

        if peer.mobile && nat::is_unwanted(payloads, path) {
            return Err(NotifyType::UNEXPECTED_NAT_DETECTED.into());
        }
        // Whoever knows a key that is everybody's may invent identities: those that are there already go first.
        let is_anybody = peer.remote.is_none() && matches!(peer.authentication, Authentication::SharedKey(_));
        let census = context.census;
        if is_anybody
            && census.of_peer(index) >= MAX_OF_SHARED_KEY
            && census.of_identity(index, &identity) == 0
        {
            context.out.drops.count(DropReason::TooManyOfSharedKey);
            return Err(NotifyType::TEMPORARY_FAILURE.into());
        }

        let mut answer = Builder::new();
        answer.identity(PayloadType::ID_R, &peer.local);
        if !auth::prove(&mut answer, peer, &self.channel.keys, &self.transcript, Role::Responder) {
            return Err(NotifyType::AUTHENTICATION_FAILED.into());
        }
        let mut given = Vec::new();
        let agreed =
            match self.answer_child(payloads, (peer, &identity), path, &mut given, &mut answer, context) {
                Ok(agreed) => agreed,
                Err(refusal) => {
                    given.iter().for_each(|address| context.leases.give_back(*address, &identity));
                    return Err(refusal);
                }
            };
        let mobile = peer.mobile && has_notify(payloads, NotifyType::MOBIKE_SUPPORTED);
        if mobile {
            answer.notify(NotifyType::MOBIKE_SUPPORTED, &[]);
        }
        let last_answer = self.seal(&answer, context);
        context.out.send_all(path, &last_answer);
        let initial_contact = has_notify(payloads, NotifyType::INITIAL_CONTACT);
        Ok(Some(Proved { peer: index, identity, agreed, given, last_answer, initial_contact, mobile }))
    }

    fn establish(self, proved: Proved, path: Path, context: &mut Context<'_>) -> Accepted {
        let Proved { peer, identity, agreed, given, last_answer, initial_contact, mobile } = proved;
        let begin = Begin { next_id: MessageId::ZERO, expected: MessageId(2), last_answer };
        let place = (path, self.nat);
        let mut sa = IkeSa::new(self.channel, peer, identity.clone(), place, begin, context);
        sa.announced = true;
        sa.given = given;
        sa.mobility = if mobile { Mobility::Follows } else { Mobility::None };
        context.out.events.push_back(Event::IkeUp {
            ike: sa.spi(),
            peer,
            identity,
            initiated: false,
            addresses: Vec::new(),
            dns: Vec::new(),
        });
        if let Some(agreed) = agreed {
            let nonces = (&self.transcript.initiator_nonce[..], &self.transcript.responder_nonce[..]);
            sa.install_first(agreed, false, nonces, context);
        }
        Accepted { sa, initial_contact: initial_contact.then_some(self.begun_at) }
    }

    /// Appends what is answered about addresses and the first child. Without a child, the IKE SA is there all the same
    /// (§1.2).
    fn answer_child(
        &self,
        payloads: Payloads<'_>,
        (peer, identity): (&PeerConfig, &Identity),
        path: Path,
        given: &mut Vec<IpAddr>,
        answer: &mut Builder,
        context: &mut Context<'_>,
    ) -> Result<Option<Agreed>, Refusal> {
        let request =
            payloads.find(PayloadType::CONFIGURATION).map(|cp| configuration::parse(cp.body)).transpose()?;
        match request {
            Some((ConfigurationType::REQUEST, wanted)) => {
                let assigned = Assignment { peer: &peer.assigned, identity, wanted: &wanted };
                let Some(reply) = assigned.reply(given, context.leases) else {
                    // §3.15.4: nothing to give is an error about the child alone.
                    answer.notify(NotifyType::INTERNAL_ADDRESS_FAILURE, &[]);
                    return Ok(None);
                };
                answer.configuration(ConfigurationType::REPLY, &reply);
            }
            _ if !peer.assigned.pools.is_empty()
                && peer.children.iter().all(|child| child.remote.is_empty()) =>
            {
                answer.notify(NotifyType::FAILED_CP_REQUIRED, &[]);
                return Ok(None);
            }
            _ => {}
        }
        if payloads.find(PayloadType::SA).is_none() {
            return Ok(None);
        }
        let asked = Asked { payloads, path, nat: self.nat, given, rekeyed: None, nonce: None };
        match child::answer(peer, &asked, answer, context) {
            Ok(agreed) => Ok(Some(agreed)),
            Err(refusal) if refusal.notify == NotifyType::INVALID_SYNTAX => Err(refusal),
            Err(refusal) => {
                refusal.write(answer);
                Ok(None)
            }
        }
    }
}

/// What a client may be given, and what it asks for.
struct Assignment<'a> {
    peer: &'a Assigned,
    identity: &'a Identity,
    wanted: &'a [Attribute],
}

impl Assignment<'_> {
    /// What it is given, perhaps nothing; the addresses come into `given`, too. None if it wants addresses and there are none.
    fn reply(&self, given: &mut Vec<IpAddr>, leases: &mut Leases) -> Option<Vec<Attribute>> {
        let wants = |ipv4: bool| {
            self.wanted.iter().any(|attribute| match attribute {
                Attribute::Ipv4Address(_) => ipv4,
                Attribute::Ipv6Address(_) => !ipv4,
                _ => false,
            })
        };
        for ipv4 in [true, false].into_iter().filter(|ipv4| wants(*ipv4)) {
            given.extend(self.peer.addresses.iter().filter(|address| address.is_ipv4() == ipv4));
            let mut pools = self.peer.pools.iter().filter(|pool| pool.is_ipv4() == ipv4);
            given.extend(pools.find_map(|pool| leases.acquire(*pool, self.identity)));
        }
        if given.is_empty() && (wants(true) || wants(false)) {
            return None;
        }
        let addresses = given.iter().map(|address| Attribute::address(*address));
        let wants_dns = |server: &&IpAddr| {
            self.wanted.iter().any(|attribute| match attribute {
                Attribute::Ipv4Dns(_) => server.is_ipv4(),
                Attribute::Ipv6Dns(_) => server.is_ipv6(),
                _ => false,
            })
        };
        let dns = self.peer.dns.iter().filter(wants_dns).map(|server| Attribute::dns(*server));
        let reply: Vec<_> = addresses.chain(dns).collect();
        Some(reply)
    }
}

//! How two ends agree on a child: the same in IKE_AUTH and in CREATE_CHILD_SA (RFC 7296 §1.3, §2.9, §2.17).

use std::net::IpAddr;
use std::time::Instant;

use crate::config::{ChildConfig, ChildIndex, Mode, PeerConfig, PeerIndex};
use crate::crypto::group::{Group, KeyPair};
use crate::crypto::secret::Secret;
use crate::event::{ChildAssociation, ChildKeys, Nat, Path};
use crate::keys::IkeKeys;
use crate::message::body::{KeyExchange, Notify};
use crate::message::builder::Builder;
use crate::message::proposal::{self, Proposal};
use crate::message::traffic_selector::{self, MAX_SELECTORS, TrafficSelector, is_narrowed, narrow};
use crate::message::{ParseError, Payloads};
use crate::negotiation::{ChildProtocol, ChildSuite, choose_child, is_choice_of, offer_child};
use crate::numbers::{IkeSpi, NotifyType, PayloadType, ProtocolId, Spi};
use crate::output::Context;

/// A child that is there.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) index: ChildIndex,
    pub(crate) protocol: ChildProtocol,
    pub(crate) inbound_spi: Spi,
    pub(crate) outbound_spi: Spi,
    /// When it is to be replaced; nothing once that has begun.
    pub(crate) rekey_at: Option<Instant>,
    /// When it ends, replaced or not.
    pub(crate) expires_at: Option<Instant>,
    /// A Delete of it is sent or about to be.
    pub(crate) closing: bool,
    /// What the other end has put in its place, if it has.
    pub(crate) rekeyed_by_peer: Option<PeerRekey<Spi>>,
}

/// A rekey that the other end has asked for, as its outcome depends on that of our own (RFC 7296 §2.8.1).
#[derive(Debug, Clone)]
pub(crate) struct PeerRekey<T> {
    /// What came of it.
    pub(crate) new: T,
    /// The lower one of its nonces.
    pub(crate) lowest_nonce: Vec<u8>,
}

/// Why there is no child: an error notify, its data, and the child that it is about, if that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) notify: NotifyType,
    pub(crate) data: Vec<u8>,
    pub(crate) about: Option<(ProtocolId, Spi)>,
}

impl Refusal {
    pub(crate) fn critical(kind: PayloadType) -> Self {
        Self { data: vec![kind.0], ..NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD.into() }
    }

    /// The child that is to be rekeyed is none (§2.25): its SPI is that of the request.
    pub(crate) fn not_found(protocol: ProtocolId, spi: Spi) -> Self {
        Self { about: Some((protocol, spi)), ..NotifyType::CHILD_SA_NOT_FOUND.into() }
    }

    /// Appends the notify.
    pub(crate) fn write(&self, to: &mut Builder) {
        match self.about {
            Some((protocol, spi)) => to.child_notify(self.notify, protocol, spi),
            None => to.notify(self.notify, &self.data),
        };
    }

    pub(crate) fn invalid_group(group: Group) -> Self {
        Self { data: group.id().to_be_bytes().to_vec(), ..NotifyType::INVALID_KE_PAYLOAD.into() }
    }
}

impl From<NotifyType> for Refusal {
    fn from(notify: NotifyType) -> Self {
        Self { notify, data: Vec::new(), about: None }
    }
}

impl From<ParseError> for Refusal {
    fn from(_: ParseError) -> Self {
        NotifyType::INVALID_SYNTAX.into()
    }
}

/// What two ends have agreed on.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) index: ChildIndex,
    pub(crate) suite: ChildSuite,
    pub(crate) inbound_spi: Spi,
    pub(crate) outbound_spi: Spi,
    mode: Mode,
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
    original_addresses: Option<(IpAddr, IpAddr)>,
    shared: Option<Secret>,
}

/// What an association is of beside what was agreed on.
pub(crate) struct Surroundings<'a> {
    pub(crate) keys: &'a IkeKeys,
    pub(crate) ike: IkeSpi,
    pub(crate) peer: PeerIndex,
    pub(crate) path: Path,
    pub(crate) nat: Nat,
}

impl Agreed {
    /// The association; `requested` at the end that has sent the first nonce.
    pub(crate) fn associate(
        self,
        around: &Surroundings<'_>,
        requested: bool,
        initiator_nonce: &[u8],
        responder_nonce: &[u8],
    ) -> Box<ChildAssociation> {
        let (encryption, integrity) = self.suite.key_lengths();
        let length = 2 * (encryption + integrity);
        let material = around.keys.child(self.shared.as_ref(), initiator_nonce, responder_nonce, length);
        // §2.17: first what the initiator sends, encryption before integrity.
        let (of_initiator, of_responder) = material.as_bytes().split_at(encryption + integrity);
        let keys = |bytes: &[u8]| {
            let (encryption, integrity) = bytes.split_at(encryption);
            ChildKeys {
                encryption: Secret::new(encryption.to_vec()),
                integrity: Secret::new(integrity.to_vec()),
            }
        };
        let (outbound, inbound) =
            if requested { (of_initiator, of_responder) } else { (of_responder, of_initiator) };
        Box::new(ChildAssociation {
            ike: around.ike,
            peer: around.peer,
            child: self.index,
            requested,
            inbound_spi: self.inbound_spi,
            outbound_spi: self.outbound_spi,
            suite: self.suite,
            mode: self.mode,
            local: self.local,
            remote: self.remote,
            original_addresses: self.original_addresses,
            inbound: keys(inbound),
            outbound: keys(outbound),
            path: around.path,
            nat: around.nat,
        })
    }
}

/// What this end has offered, until the answer comes.
#[derive(Debug)]
pub(crate) struct ChildOffer {
    pub(crate) index: ChildIndex,
    pub(crate) protocol: ChildProtocol,
    pub(crate) spi: Spi,
    proposals: Vec<Proposal>,
    mode: Mode,
    local: Vec<TrafficSelector>,
    remote: Vec<TrafficSelector>,
    key_pair: Option<KeyPair>,
}

impl ChildOffer {
    /// An offer of a child as it is configured; none if there is no such child. `group` is what its own key exchange
    /// begins with: the first one of the configuration, if it is not said, and none at all in IKE_AUTH. `spi` is what
    /// packets are to come in with.
    pub(crate) fn new(
        peer: &PeerConfig,
        path: Path,
        index: ChildIndex,
        in_auth: bool,
        group: Option<Group>,
        spi: Spi,
        context: &mut Context<'_>,
    ) -> Option<Self> {
        let config = peer.children.get(index.0)?;
        let proposals = offer_child(&config.algorithms, &spi.0.to_be_bytes(), !in_auth);
        let group = group.or(config.algorithms.groups.first().copied()).filter(|_| !in_auth);
        let (local, remote) = selectors(peer, config, path, &[]);
        let (protocol, mode) = (config.algorithms.protocol, config.mode);
        let key_pair = group.map(|group| KeyPair::generate(group, context.random));
        Some(Self { index, protocol, spi, proposals, mode, local, remote, key_pair })
    }

    /// Appends its payloads: N(USE_TRANSPORT_MODE), SA, Ni, KEi, TSi, TSr.
    pub(crate) fn write(&self, to: &mut Builder, nonce: Option<&[u8]>) {
        if self.mode == Mode::Transport {
            to.notify(NotifyType::USE_TRANSPORT_MODE, &[]);
        }
        to.sa(&self.proposals);
        if let Some(nonce) = nonce {
            to.nonce(nonce);
        }
        if let Some(pair) = &self.key_pair {
            to.key_exchange(pair.group().id(), pair.public());
        }
        to.traffic_selectors(PayloadType::TS_I, &self.local);
        to.traffic_selectors(PayloadType::TS_R, &self.remote);
    }

    /// What was agreed on, if the answer is within the offer.
    pub(crate) fn accept(self, answer: Payloads<'_>, path: Path, nat: Nat) -> Result<Agreed, Refusal> {
        let proposals = proposal::parse(find(answer, PayloadType::SA)?)?;
        let chosen = is_choice_of(&proposals, &self.proposals).ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
        let spi: [u8; 4] = chosen.spi.as_slice().try_into().map_err(|_| NotifyType::INVALID_SYNTAX)?;
        let kinds = crate::negotiation::ChildAlgorithms {
            protocol: self.protocol,
            encryption: crate::crypto::encryption::Encryption::ALL.to_vec(),
            integrity: crate::negotiation::ChildIntegrity::ALL.to_vec(),
            groups: self.key_pair.iter().map(KeyPair::group).collect(),
            groups_required: false,
            extended_sequence_numbers: vec![true, false],
        };
        let (_, suite) = choose_child(&proposals, &kinds, None, self.key_pair.is_none())
            .ok_or(NotifyType::NO_PROPOSAL_CHOSEN)?;
        // The offer has proposals without a key exchange only where that will do.
        let shared = match (&self.key_pair, suite.group) {
            (None, _) | (Some(_), None) => None,
            (Some(pair), Some(group)) => {
                let exchange = KeyExchange::parse(find(answer, PayloadType::KE)?)?;
                if exchange.group != group.id() {
                    return Err(NotifyType::INVALID_SYNTAX.into());
                }
                Some(pair.agree(exchange.public).map_err(|_| NotifyType::INVALID_SYNTAX)?)
            }
        };
        let mut local = traffic_selector::parse(find(answer, PayloadType::TS_I)?)?;
        let mut remote = traffic_selector::parse(find(answer, PayloadType::TS_R)?)?;
        let original_addresses = match self.mode {
            Mode::Tunnel => None,
            Mode::Transport => untranslate(&mut local, &mut remote, path, nat),
        };
        if !is_narrowed(&local, &self.local) || !is_narrowed(&remote, &self.remote) {
            return Err(NotifyType::TS_UNACCEPTABLE.into());
        }
        // §1.3.1: the other end may decline transport mode, and this end need not put up with it.
        if self.mode == Mode::Transport && !has_notify(answer, NotifyType::USE_TRANSPORT_MODE) {
            return Err(NotifyType::NO_PROPOSAL_CHOSEN.into());
        }
        Ok(Agreed {
            index: self.index,
            suite,
            inbound_spi: self.spi,
            outbound_spi: Spi(u32::from_be_bytes(spi)),
            mode: self.mode,
            local,
            remote,
            original_addresses,
            shared,
        })
    }
}

/// Who asks for a child, and how.
pub(crate) struct Asked<'a> {
    pub(crate) payloads: Payloads<'a>,
    pub(crate) path: Path,
    pub(crate) nat: Nat,
    /// Addresses that the other end was given.
    pub(crate) given: &'a [IpAddr],
    /// The child that is replaced is looked at first.
    pub(crate) rekeyed: Option<ChildIndex>,
    /// The responder's nonce; none in IKE_AUTH.
    pub(crate) nonce: Option<&'a [u8]>,
}

/// Answers an offer of the other end with the first of the configured children that will do, and appends the payloads of
/// the answer: N(USE_TRANSPORT_MODE), SA, Nr, KEr, TSi, TSr.
pub(crate) fn answer(
    peer: &PeerConfig,
    asked: &Asked<'_>,
    to: &mut Builder,
    context: &mut Context<'_>,
) -> Result<Agreed, Refusal> {
    let proposals = proposal::parse(find(asked.payloads, PayloadType::SA)?)?;
    let initiators = traffic_selector::parse(find(asked.payloads, PayloadType::TS_I)?)?;
    let responders = traffic_selector::parse(find(asked.payloads, PayloadType::TS_R)?)?;
    let exchange = asked.payloads.find(PayloadType::KE).map(|ke| KeyExchange::parse(ke.body)).transpose()?;
    let transport = has_notify(asked.payloads, NotifyType::USE_TRANSPORT_MODE);

    let in_auth = asked.nonce.is_none();
    let mut refusal = Refusal::from(NotifyType::TS_UNACCEPTABLE);
    let order = asked.rekeyed.into_iter().chain((0..peer.children.len()).map(ChildIndex));
    for index in order {
        let Some(config) = peer.children.get(index.0) else { continue };
        if config.mode == Mode::Transport && !transport {
            refusal = NotifyType::NO_PROPOSAL_CHOSEN.into();
            continue;
        }
        let (local, remote) = selectors(peer, config, asked.path, asked.given);
        let (mut initiators, mut responders) = (initiators.clone(), responders.clone());
        let original_addresses = match config.mode {
            Mode::Tunnel => None,
            Mode::Transport => untranslate(&mut responders, &mut initiators, asked.path, asked.nat),
        };
        let (initiators, responders) = (narrow(&initiators, &remote), narrow(&responders, &local));
        if initiators.is_empty() || responders.is_empty() {
            continue;
        }
        let exchanged = exchange.map(|exchange| exchange.group);
        let Some((mut chosen, suite)) = choose_child(&proposals, &config.algorithms, exchanged, in_auth)
        else {
            refusal = NotifyType::NO_PROPOSAL_CHOSEN.into();
            continue;
        };
        let (public, shared) = match (suite.group, exchange) {
            (None, _) => (None, None),
            (Some(group), Some(exchange)) if exchange.group == group.id() => {
                let pair = KeyPair::generate(group, context.random);
                let shared = pair.agree(exchange.public).map_err(|_| NotifyType::INVALID_SYNTAX)?;
                (Some((group, pair.public().to_vec())), Some(shared))
            }
            (Some(group), _) => return Err(Refusal::invalid_group(group)),
        };
        let outbound: [u8; 4] = chosen.spi.as_slice().try_into().map_err(|_| NotifyType::INVALID_SYNTAX)?;
        let inbound_spi = context.spis.next();
        chosen.spi = inbound_spi.0.to_be_bytes().to_vec();

        if config.mode == Mode::Transport {
            to.notify(NotifyType::USE_TRANSPORT_MODE, &[]);
        }
        to.sa(&[chosen]);
        if let Some(nonce) = asked.nonce {
            to.nonce(nonce);
        }
        if let Some((group, public)) = public {
            to.key_exchange(group.id(), &public);
        }
        to.traffic_selectors(PayloadType::TS_I, &initiators);
        to.traffic_selectors(PayloadType::TS_R, &responders);
        return Ok(Agreed {
            index,
            suite,
            inbound_spi,
            outbound_spi: Spi(u32::from_be_bytes(outbound)),
            mode: config.mode,
            local: responders,
            remote: initiators,
            original_addresses,
            shared,
        });
    }
    Err(refusal)
}

/// The body of a payload that must be there.
pub(crate) fn find(payloads: Payloads<'_>, kind: PayloadType) -> Result<&[u8], ParseError> {
    payloads.find(kind).map(|payload| payload.body).ok_or(ParseError::Truncated)
}

/// All notifies that can be read.
pub(crate) fn notifies(payloads: Payloads<'_>) -> impl Iterator<Item = Notify<'_>> {
    payloads.all(PayloadType::NOTIFY).filter_map(|body| Notify::parse(body).ok())
}

/// Whether a notify is there.
pub(crate) fn has_notify(payloads: Payloads<'_>, kind: NotifyType) -> bool {
    notifies(payloads).any(|notify| notify.kind == kind)
}

/// The first error that a message reports.
pub(crate) fn error_in(payloads: Payloads<'_>) -> Option<Notify<'_>> {
    notifies(payloads).find(|notify| notify.kind.is_error())
}

/// What a child may carry at this end and at the other one.
fn selectors(
    peer: &PeerConfig,
    config: &ChildConfig,
    path: Path,
    given: &[IpAddr],
) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
    let hosts = |addresses: &[IpAddr]| {
        addresses.iter().map(|address| TrafficSelector::host(*address)).collect::<Vec<_>>()
    };
    let or = |configured: &[TrafficSelector], other: Vec<TrafficSelector>| {
        let mut selectors = if configured.is_empty() { other } else { configured.to_vec() };
        selectors.truncate(MAX_SELECTORS);
        selectors
    };
    let assigned = hosts(if given.is_empty() { &peer.assigned.addresses } else { given });
    let remote = if assigned.is_empty() { hosts(&[path.remote.ip()]) } else { assigned };
    (or(&config.local, hosts(&[path.local.ip()])), or(&config.remote, remote))
}

/// In transport mode each end has its own address in its selectors, and a NAT in between has made another one of it: what
/// counts is where the two are as this end sees it (§2.23.1). Selectors of more than an address are left as they are. Returns
/// the addresses as the other end has them, its own first, if a NAT is in between: its checksums are of these.
fn untranslate(
    local: &mut [TrafficSelector],
    remote: &mut [TrafficSelector],
    path: Path,
    nat: Nat,
) -> Option<(IpAddr, IpAddr)> {
    if !nat.local && !nat.remote {
        return None;
    }
    let original = remote.first()?.addresses().0;
    let original = (original, local.first()?.addresses().0);
    for (selectors, translated, address) in
        [(local, nat.local, path.local), (remote, nat.remote, path.remote)]
    {
        for selector in selectors.iter_mut().filter(|_| translated) {
            let (first, last) = selector.addresses();
            if first == last {
                *selector = selector.at(address.ip());
            }
        }
    }
    Some(original)
}

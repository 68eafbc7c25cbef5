//! Which algorithms two ends agree on: what is offered, chosen, and accepted as chosen (RFC 7296 §2.7, §3.3).
//!
//! What is configured is a set for each purpose, in the order of preference. It is offered as one proposal of the
//! encryptions that authenticate, and one of those that need an integrity algorithm beside them (RFC 5282 §8).

use crate::crypto::encryption::{Encryption, Integrity};
use crate::crypto::group::Group;
use crate::crypto::prf::Prf;
use crate::keys::IkeSuite;
use crate::message::proposal::{Proposal, Transform, TransformType};
use crate::numbers::ProtocolId;

/// What an IKE SA may be of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IkeAlgorithms {
    /// Encryptions.
    pub encryption: Vec<Encryption>,
    /// For those encryptions that do not authenticate.
    pub integrity: Vec<Integrity>,
    /// Pseudorandom functions.
    pub prf: Vec<Prf>,
    /// Groups. The first one is what the key exchange begins with.
    pub groups: Vec<Group>,
}

impl Default for IkeAlgorithms {
    /// All that there are, the shorter keys behind the longer ones.
    fn default() -> Self {
        Self {
            encryption: vec![
                Encryption::Aes256Gcm,
                Encryption::ChaCha20Poly1305,
                Encryption::Aes128Gcm,
                Encryption::Aes256Cbc,
                Encryption::Aes128Cbc,
            ],
            integrity: Integrity::ALL.to_vec(),
            prf: vec![Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512],
            groups: vec![Group::Curve25519, Group::P256, Group::P384],
        }
    }
}

/// What carries the packets of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChildProtocol {
    /// Encapsulating Security Payload.
    Esp,
    /// Authentication Header.
    Ah,
}

impl ChildProtocol {
    /// Its number in proposals.
    pub const fn id(self) -> ProtocolId {
        match self {
            Self::Esp => ProtocolId::ESP,
            Self::Ah => ProtocolId::AH,
        }
    }
}

/// An integrity algorithm of a child: those of IKE SAs, and for AH one that they do not have (RFC 4543 §5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChildIntegrity {
    /// One of IKE SAs, too.
    Hmac(Integrity),
    /// AUTH_AES_128_GMAC, for AH alone (RFC 4543 §5.3).
    AesGmac128,
    /// AUTH_AES_256_GMAC, for AH alone.
    AesGmac256,
}

impl ChildIntegrity {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Hmac(Integrity::HmacSha256),
        Self::Hmac(Integrity::HmacSha384),
        Self::Hmac(Integrity::HmacSha512),
        Self::AesGmac128,
        Self::AesGmac256,
    ];

    /// The transform. Each length of the key of GMAC has a number of its own, and no attribute.
    pub const fn transform(self) -> Transform {
        match self {
            Self::Hmac(hmac) => hmac.transform(),
            Self::AesGmac128 => Transform::new(TransformType::INTEGRITY, 9),
            Self::AesGmac256 => Transform::new(TransformType::INTEGRITY, 11),
        }
    }

    /// Length of what is derived for it: the key, and the salt of GMAC behind it (RFC 4543 §5.4).
    pub const fn key_length(self) -> usize {
        match self {
            Self::Hmac(hmac) => hmac.key_length(),
            Self::AesGmac128 => 16 + 4,
            Self::AesGmac256 => 32 + 4,
        }
    }

    /// Whether a child of this protocol may have it.
    pub const fn is_for(self, protocol: ChildProtocol) -> bool {
        matches!((self, protocol), (Self::Hmac(_), _) | (_, ChildProtocol::Ah))
    }
}

impl From<Integrity> for ChildIntegrity {
    fn from(hmac: Integrity) -> Self {
        Self::Hmac(hmac)
    }
}

/// What a child may be of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildAlgorithms {
    /// ESP or AH.
    pub protocol: ChildProtocol,
    /// Encryptions: none for AH.
    pub encryption: Vec<Encryption>,
    /// For AH, and for those encryptions that do not authenticate. What is not for the protocol is passed over.
    pub integrity: Vec<ChildIntegrity>,
    /// Groups for perfect forward secrecy. Where there are none, a child of CREATE_CHILD_SA has a key exchange of its
    /// own only if the other end insists.
    pub groups: Vec<Group>,
    /// A child of CREATE_CHILD_SA without a key exchange of its own is refused. Otherwise it is the second choice: others
    /// do without one by default.
    pub groups_required: bool,
    /// Whether extended sequence numbers may be used, and whether others may: in the order of preference.
    pub extended_sequence_numbers: Vec<bool>,
}

impl Default for ChildAlgorithms {
    /// ESP with all encryptions that authenticate, and perfect forward secrecy unless the other end wants none.
    fn default() -> Self {
        Self {
            protocol: ChildProtocol::Esp,
            encryption: vec![Encryption::Aes256Gcm, Encryption::ChaCha20Poly1305, Encryption::Aes128Gcm],
            integrity: Vec::new(),
            groups: IkeAlgorithms::default().groups,
            groups_required: false,
            extended_sequence_numbers: vec![true, false],
        }
    }
}

/// The algorithms of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildSuite {
    /// ESP or AH.
    pub protocol: ChildProtocol,
    /// None for AH.
    pub encryption: Option<Encryption>,
    /// None where the encryption authenticates.
    pub integrity: Option<ChildIntegrity>,
    /// The group of the child's own key exchange.
    pub group: Option<Group>,
    /// Whether sequence numbers have 64 bits.
    pub extended_sequence_numbers: bool,
}

impl ChildSuite {
    /// Length of the keys of one direction: encryption with its salt, integrity.
    pub fn key_lengths(&self) -> (usize, usize) {
        (
            self.encryption.map_or(0, Encryption::key_length),
            self.integrity.map_or(0, ChildIntegrity::key_length),
        )
    }
}

const NO_GROUP: u16 = 0;
const NO_INTEGRITY: u16 = 0;

/// The proposals for an IKE SA: with an SPI of 8 bytes when it is to replace another one.
pub(crate) fn offer_ike(ours: &IkeAlgorithms, spi: &[u8]) -> Vec<Proposal> {
    let mut common: Vec<_> =
        ours.prf.iter().map(|prf| Transform::new(TransformType::PRF, prf.id())).collect();
    common.extend(ours.groups.iter().map(group_transform));
    let integrity: Vec<_> = ours.integrity.iter().map(|integrity| integrity.transform()).collect();
    offer(ProtocolId::IKE, spi, &ours.encryption, &integrity, &common)
}

/// The proposals for a child, with a key exchange of its own or not: where it is not required, first with one and then
/// without.
pub(crate) fn offer_child(ours: &ChildAlgorithms, spi: &[u8], with_group: bool) -> Vec<Proposal> {
    let numbers = ours.extended_sequence_numbers.iter();
    let numbers: Vec<_> = numbers
        .map(|extended| Transform::new(TransformType::SEQUENCE_NUMBERS, u16::from(*extended)))
        .collect();
    let integrity = ours.integrity.iter().filter(|integrity| integrity.is_for(ours.protocol));
    let integrity: Vec<_> = integrity.map(|integrity| integrity.transform()).collect();
    let of = |groups: &[Group]| {
        let common: Vec<_> = groups.iter().map(group_transform).chain(numbers.iter().copied()).collect();
        offer(ours.protocol.id(), spi, &ours.encryption, &integrity, &common)
    };
    let with_group = with_group && !ours.groups.is_empty();
    let mut proposals = if with_group { of(&ours.groups) } else { Vec::new() };
    if !(with_group && ours.groups_required) {
        proposals.extend(of(&[]));
    }
    for (proposal, number) in proposals.iter_mut().zip(1..) {
        proposal.number = number;
    }
    proposals
}

fn group_transform(group: &Group) -> Transform {
    Transform::new(TransformType::GROUP, group.id())
}

fn offer(
    protocol: ProtocolId,
    spi: &[u8],
    encryption: &[Encryption],
    integrity: &[Transform],
    common: &[Transform],
) -> Vec<Proposal> {
    let of_kind = |aead: bool| {
        let matching = encryption.iter().filter(|encryption| encryption.is_aead() == aead);
        matching.map(|encryption| encryption.transform()).collect::<Vec<_>>()
    };
    let (aead, other) = (of_kind(true), of_kind(false));
    let mut sets = Vec::new();
    if !aead.is_empty() {
        sets.push(aead);
    }
    if !other.is_empty() || protocol == ProtocolId::AH {
        sets.push(other.into_iter().chain(integrity.iter().copied()).collect());
    }
    if encryption.first().is_some_and(|first| !first.is_aead()) {
        sets.reverse();
    }
    let number = |index: usize| index as u8 + 1;
    sets.into_iter()
        .enumerate()
        .map(|(index, mut transforms)| {
            transforms.extend(common);
            Proposal { number: number(index), protocol, spi: spi.to_vec(), transforms }
        })
        .collect()
}

/// What is chosen of the proposals for an IKE SA, and the proposal to answer with, whose SPI is still the other end's.
///
/// A key exchange in a group that is allowed at all is taken as it is, which saves another round.
pub(crate) fn choose_ike(
    offered: &[Proposal],
    ours: &IkeAlgorithms,
    exchanged: u16,
) -> Option<(Proposal, IkeSuite)> {
    offered.iter().filter(|proposal| proposal.protocol == ProtocolId::IKE).find_map(|proposal| {
        let mut choice = Choice::of(proposal);
        let (encryption, integrity) =
            choice.encryption(&ours.encryption, &ours.integrity, Integrity::transform)?;
        let (encryption, prf) = (encryption?, choice.known(TransformType::PRF, Prf::from_id, &ours.prf)?);
        let group = choice.group(&ours.groups, exchanged)?;
        Some((choice.finish()?, IkeSuite { encryption, integrity, prf, group }))
    })
}

/// What is chosen of the proposals for a child. In IKE_AUTH, `exchanged` is none, and groups are passed over.
pub(crate) fn choose_child(
    offered: &[Proposal],
    ours: &ChildAlgorithms,
    exchanged: Option<u16>,
    in_auth: bool,
) -> Option<(Proposal, ChildSuite)> {
    let protocol = ours.protocol;
    let fitting = |proposal: &&Proposal| proposal.protocol == protocol.id() && proposal.spi.len() == 4;
    // Where a key exchange is wanted, a proposal with one is better, wherever it stands; where none is, worse.
    let has_group = |proposal: &Proposal| {
        let real = |transform: &Transform| transform.kind == TransformType::GROUP && transform.id != NO_GROUP;
        proposal.transforms.iter().any(real)
    };
    let passes: &[bool] = match (ours.groups.is_empty(), ours.groups_required) {
        (true, _) => &[false, true],
        (false, false) => &[true, false],
        (false, true) if in_auth => &[true, false],
        (false, true) => &[true],
    };
    let in_order = passes.iter().flat_map(|with_group| {
        offered.iter().filter(fitting).filter(move |proposal| has_group(proposal) == *with_group)
    });
    let integrity: Vec<_> = ours.integrity.iter().copied().filter(|it| it.is_for(protocol)).collect();
    in_order.into_iter().find_map(|proposal| {
        let mut choice = Choice::of(proposal);
        let (encryption, integrity) =
            choice.encryption(&ours.encryption, &integrity, ChildIntegrity::transform)?;
        if encryption.is_none() != (protocol == ChildProtocol::Ah) {
            return None;
        }
        let no_group = |choice: &mut Choice<'_>| choice.take(TransformType::GROUP, |t| t.id == NO_GROUP);
        let group = if in_auth || !choice.has(TransformType::GROUP) {
            choice.pass_over(TransformType::GROUP);
            None
        } else if ours.groups.is_empty() && no_group(&mut choice).is_some() {
            None
        } else {
            let any = [Group::Curve25519, Group::P256, Group::P384];
            let allowed = if ours.groups.is_empty() { &any[..] } else { &ours.groups };
            match choice.group(allowed, exchanged.unwrap_or(NO_GROUP)) {
                Some(group) => Some(group),
                None if !ours.groups_required && no_group(&mut choice).is_some() => None,
                None => return None,
            }
        };
        // §3.3.3: mandatory, as the encryption of ESP and the integrity of AH are.
        let number = |id: u16| (id <= 1).then_some(id == 1);
        let extended_sequence_numbers =
            choice.known(TransformType::SEQUENCE_NUMBERS, number, &ours.extended_sequence_numbers)?;
        let suite = ChildSuite { protocol, encryption, integrity, group, extended_sequence_numbers };
        Some((choice.finish()?, suite))
    })
}

/// Whether an answer is one proposal that was offered, with one transform of each type (RFC 7296 §2.7).
pub(crate) fn is_choice_of<'a>(answer: &'a [Proposal], offered: &[Proposal]) -> Option<&'a Proposal> {
    let [answer] = answer else { return None };
    let offered = offered.iter().find(|offered| offered.number == answer.number)?;
    let types = |proposal: &Proposal| {
        let mut types: Vec<_> = proposal.transforms.iter().map(|transform| transform.kind).collect();
        types.sort();
        types
    };
    let mut wanted = types(offered);
    wanted.dedup();
    let of_it = answer.transforms.iter().all(|transform| offered.transforms.contains(transform));
    (answer.protocol == offered.protocol && of_it && types(answer) == wanted).then_some(answer)
}

/// A choice within one proposal, in the making.
struct Choice<'a> {
    offered: &'a Proposal,
    taken: Vec<Transform>,
    passed_over: Vec<TransformType>,
}

impl<'a> Choice<'a> {
    fn of(offered: &'a Proposal) -> Self {
        Self { offered, taken: Vec::new(), passed_over: Vec::new() }
    }

    fn has(&self, kind: TransformType) -> bool {
        self.offered.transforms.iter().any(|transform| transform.kind == kind)
    }

    fn pass_over(&mut self, kind: TransformType) {
        self.passed_over.push(kind);
    }

    /// Takes the first transform of a type that will do.
    fn take(&mut self, kind: TransformType, will_do: impl Fn(&Transform) -> bool) -> Option<Transform> {
        let of_kind = |transform: &&Transform| transform.kind == kind && !transform.has_unknown_attribute;
        let taken = *self.offered.transforms.iter().filter(of_kind).find(|transform| will_do(transform))?;
        self.taken.push(taken);
        Some(taken)
    }

    /// Takes the first one whose number is that of an allowed value.
    fn known<T: PartialEq>(
        &mut self,
        kind: TransformType,
        from_id: impl Fn(u16) -> Option<T>,
        allowed: &[T],
    ) -> Option<T> {
        let value = |transform: &Transform| from_id(transform.id).filter(|value| allowed.contains(value));
        self.take(kind, |transform| value(transform).is_some()).and_then(|transform| value(&transform))
    }

    fn group(&mut self, allowed: &[Group], exchanged: u16) -> Option<Group> {
        let same = |id: u16| Group::from_id(id).filter(|_| id == exchanged);
        self.known(TransformType::GROUP, same, allowed)
            .or_else(|| self.known(TransformType::GROUP, Group::from_id, allowed))
    }

    /// The encryption, and the integrity algorithm that goes with it.
    fn encryption<I: Copy>(
        &mut self,
        encryptions: &[Encryption],
        integrities: &[I],
        transform: impl Fn(I) -> Transform,
    ) -> Option<(Option<Encryption>, Option<I>)> {
        let mut encryption = None;
        if self.has(TransformType::ENCRYPTION) {
            let known = |offered: &Transform| encryptions.iter().find(|e| e.transform() == *offered).copied();
            encryption = known(&self.take(TransformType::ENCRYPTION, |offered| known(offered).is_some())?);
        }
        if encryption.is_some_and(Encryption::is_aead) {
            if self.has(TransformType::INTEGRITY) {
                self.take(TransformType::INTEGRITY, |offered| offered.id == NO_INTEGRITY)?;
            }
            return Some((encryption, None));
        }
        let known = |offered: &Transform| {
            integrities.iter().find(|integrity| transform(**integrity) == *offered).copied()
        };
        let integrity = known(&self.take(TransformType::INTEGRITY, |offered| known(offered).is_some())?);
        Some((encryption, integrity))
    }

    /// The proposal to answer with, unless the offer has a type of which nothing was taken (RFC 7296 §3.3.6).
    fn finish(self) -> Option<Proposal> {
        let Self { offered, taken, passed_over } = self;
        let settled = |kind| passed_over.contains(&kind) || taken.iter().any(|taken| taken.kind == kind);
        if !offered.transforms.iter().all(|transform| settled(transform.kind)) {
            return None;
        }
        Some(Proposal {
            number: offered.number,
            protocol: offered.protocol,
            spi: offered.spi.clone(),
            transforms: taken,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_both_ends_agree_on_the_first_of_each() {
        let ours = IkeAlgorithms::default();
        let offered = offer_ike(&ours, &[]);
        assert_eq!(offered.len(), 2);
        let (answer, suite) = choose_ike(&offered, &ours, 31).unwrap();
        assert_eq!(
            suite,
            IkeSuite {
                encryption: Encryption::Aes256Gcm,
                integrity: None,
                prf: Prf::HmacSha256,
                group: Group::Curve25519
            }
        );
        assert!(is_choice_of(&[answer], &offered).is_some());
    }

    #[test]
    fn a_key_exchange_in_an_allowed_group_is_taken_though_others_are_preferred() {
        let ours = IkeAlgorithms::default();
        let (_, suite) = choose_ike(&offer_ike(&ours, &[]), &ours, 20).unwrap();
        assert_eq!(suite.group, Group::P384);
        let (_, suite) = choose_ike(&offer_ike(&ours, &[]), &ours, 14).unwrap();
        assert_eq!(suite.group, Group::Curve25519);
    }

    #[test]
    fn encryption_without_authentication_gets_an_integrity_algorithm() {
        let theirs = IkeAlgorithms { encryption: vec![Encryption::Aes128Cbc], ..IkeAlgorithms::default() };
        let (_, suite) = choose_ike(&offer_ike(&theirs, &[]), &IkeAlgorithms::default(), 31).unwrap();
        assert_eq!((suite.encryption, suite.integrity), (Encryption::Aes128Cbc, Some(Integrity::HmacSha256)));
    }

    #[test]
    fn nothing_in_common_is_no_choice() {
        let theirs = IkeAlgorithms { prf: vec![Prf::HmacSha512], ..IkeAlgorithms::default() };
        let ours = IkeAlgorithms { prf: vec![Prf::HmacSha256], ..IkeAlgorithms::default() };
        assert!(choose_ike(&offer_ike(&theirs, &[]), &ours, 31).is_none());
    }

    #[test]
    fn a_proposal_with_an_unknown_type_of_transform_is_refused() {
        let ours = IkeAlgorithms::default();
        let mut offered = offer_ike(&ours, &[]);
        offered[0].transforms.push(Transform::new(TransformType(6), 36));
        let (answer, suite) = choose_ike(&offered, &ours, 31).unwrap();
        assert_eq!((answer.number, suite.encryption), (2, Encryption::Aes256Cbc));
    }

    #[test]
    fn a_proposal_without_a_mandatory_type_of_transform_is_refused() {
        let ours = IkeAlgorithms { encryption: vec![Encryption::Aes256Cbc], ..IkeAlgorithms::default() };
        let [whole] = &offer_ike(&ours, &[])[..] else { panic!("one proposal") };
        let without = |whole: &Proposal, kind| {
            let mut less = whole.clone();
            less.transforms.retain(|transform| transform.kind != kind);
            [less]
        };
        use TransformType as Type;
        for kind in [Type::ENCRYPTION, Type::INTEGRITY, Type::PRF, Type::GROUP] {
            assert!(choose_ike(&without(whole, kind), &ours, 31).is_none(), "{kind:?}");
        }
        let encryption = vec![Encryption::Aes256Cbc];
        let esp = ChildAlgorithms {
            encryption,
            integrity: ChildIntegrity::ALL.to_vec(),
            ..ChildAlgorithms::default()
        };
        let ah = ChildAlgorithms { protocol: ChildProtocol::Ah, encryption: Vec::new(), ..esp.clone() };
        for (algorithms, mandatory) in [
            (&esp, [Type::ENCRYPTION, Type::INTEGRITY, Type::SEQUENCE_NUMBERS]),
            (&ah, [Type::INTEGRITY, Type::INTEGRITY, Type::SEQUENCE_NUMBERS]),
        ] {
            let offered = offer_child(algorithms, &[0, 0, 1, 0], true);
            assert!(choose_child(&offered, algorithms, Some(31), false).is_some());
            for kind in mandatory {
                let less = without(&offered[0], kind);
                assert!(choose_child(&less, algorithms, Some(31), false).is_none(), "{kind:?}");
            }
        }
    }

    #[test]
    fn an_ike_sa_is_never_without_encryption_integrity_or_key_exchange() {
        let ours = IkeAlgorithms { encryption: vec![Encryption::Aes256Cbc], ..IkeAlgorithms::default() };
        let offered = offer_ike(&ours, &[]);
        for (kind, none) in [
            (TransformType::ENCRYPTION, 11),
            (TransformType::INTEGRITY, NO_INTEGRITY),
            (TransformType::GROUP, NO_GROUP),
        ] {
            let mut weak = offered.clone();
            weak[0].transforms.retain(|transform| transform.kind != kind);
            weak[0].transforms.push(Transform::new(kind, none));
            assert!(choose_ike(&weak, &ours, NO_GROUP).is_none(), "{kind:?}");
        }
    }

    #[test]
    fn what_is_offered_is_in_order_and_whole() {
        let every = IkeAlgorithms {
            encryption: Encryption::ALL.to_vec(),
            integrity: Integrity::ALL.to_vec(),
            ..IkeAlgorithms::default()
        };
        let child = ChildAlgorithms {
            encryption: every.encryption.clone(),
            integrity: ChildIntegrity::ALL.to_vec(),
            ..ChildAlgorithms::default()
        };
        for offered in [offer_ike(&every, &[]), offer_child(&child, &[0, 0, 1, 0], true)] {
            let numbers = offered.iter().map(|proposal| usize::from(proposal.number));
            assert!(numbers.eq(1..=offered.len()));
            for proposal in &offered {
                let of = |kind| proposal.transforms.iter().filter(move |transform| transform.kind == kind);
                let encryptions: Vec<_> = of(TransformType::ENCRYPTION).collect();
                // §3.3: an algorithm that authenticates has no other beside it, and stands with its like.
                let aead = encryptions.iter().all(|transform| matches!(transform.id, 20 | 28));
                assert_eq!(of(TransformType::INTEGRITY).count() == 0, aead);
                assert!(aead || encryptions.iter().all(|transform| transform.id == 12));
                // §3.3.5: AES has a length of its key, the others have none.
                for transform in &proposal.transforms {
                    let is_aes = transform.kind == TransformType::ENCRYPTION && transform.id != 28;
                    assert_eq!(transform.key_length.is_some(), is_aes);
                }
            }
        }
    }

    #[test]
    fn aes_without_a_length_of_its_key_is_not_chosen_and_the_others_are() {
        let ours = ChildAlgorithms { groups: Vec::new(), ..ChildAlgorithms::default() };
        let mut offered = offer_child(&ours, &[0, 0, 1, 0], false);
        let [aes, ..] = &mut offered[0].transforms[..] else { panic!("a transform") };
        assert_eq!((aes.id, aes.key_length.take()), (20, Some(256)));
        let (_, suite) = choose_child(&offered, &ours, None, false).unwrap();
        assert_eq!(suite.encryption, Some(Encryption::ChaCha20Poly1305));
    }

    #[test]
    fn forward_secrecy_that_is_demanded_is_not_left_out() {
        let ours = ChildAlgorithms { groups_required: true, ..ChildAlgorithms::default() };
        let without = ChildAlgorithms { groups: Vec::new(), ..ours.clone() };
        let offer = |of: &ChildAlgorithms| offer_child(of, &[0, 0, 1, 0], true);
        assert!(choose_child(&offer(&without), &ours, None, false).is_none());
        let (_, suite) = choose_child(&offer(&ours), &without, Some(31), false).unwrap();
        assert_eq!(suite.group, Some(Group::Curve25519));
        let (_, suite) = choose_child(&offer(&ours), &ours, None, true).unwrap();
        assert_eq!(suite.group, None);
    }

    #[test]
    fn forward_secrecy_comes_first_and_is_left_out_only_where_one_end_has_none() {
        let ours = ChildAlgorithms::default();
        let without = ChildAlgorithms { groups: Vec::new(), ..ours.clone() };
        let required = ChildAlgorithms { groups_required: true, ..ours.clone() };
        let offer = |of: &ChildAlgorithms| offer_child(of, &[0, 0, 1, 0], true);
        let group = |proposals: &[Proposal], to: &ChildAlgorithms| {
            choose_child(proposals, to, Some(31), false).map(|(_, suite)| suite.group)
        };
        assert_eq!(group(&offer(&ours), &ours), Some(Some(Group::Curve25519)));
        assert_eq!(group(&offer(&ours), &required), Some(Some(Group::Curve25519)));
        assert_eq!(group(&offer(&ours), &without), Some(None));
        assert_eq!(group(&offer(&without), &ours), Some(None));
        assert_eq!(group(&offer(&without), &required), None);
        let mut reversed = offer(&ours);
        reversed.reverse();
        assert_eq!(group(&reversed, &ours), Some(Some(Group::Curve25519)));
        // A proposal may have both in one list.
        let mut either = offer(&required);
        either[0].transforms.push(Transform::new(TransformType::GROUP, NO_GROUP));
        assert_eq!(group(&either, &without), Some(None));
        let p521 = Transform::new(TransformType::GROUP, 21);
        either[0].transforms.retain(|transform| transform.kind != TransformType::GROUP);
        either[0].transforms.extend([p521, Transform::new(TransformType::GROUP, NO_GROUP)]);
        assert_eq!(group(&either, &ours), Some(None));
        assert_eq!(group(&either, &required), None);
    }

    #[test]
    fn ah_has_integrity_alone() {
        let ours = ChildAlgorithms {
            protocol: ChildProtocol::Ah,
            encryption: Vec::new(),
            integrity: vec![Integrity::HmacSha256.into()],
            groups: Vec::new(),
            groups_required: false,
            extended_sequence_numbers: vec![false],
        };
        let (answer, suite) =
            choose_child(&offer_child(&ours, &[0, 0, 1, 0], true), &ours, None, false).unwrap();
        assert_eq!((suite.encryption, suite.integrity), (None, Some(Integrity::HmacSha256.into())));
        assert_eq!(answer.protocol, ProtocolId::AH);
    }

    /// RFC 4543 §5.3: its numbers are 9 and 11, without a length of the key, and not for ESP.
    #[test]
    fn gmac_is_offered_for_ah_and_neither_offered_nor_chosen_for_esp() {
        let gmac = [ChildIntegrity::AesGmac256, ChildIntegrity::AesGmac128];
        let ah = ChildAlgorithms {
            protocol: ChildProtocol::Ah,
            encryption: Vec::new(),
            integrity: gmac.to_vec(),
            ..ChildAlgorithms::default()
        };
        let offered = offer_child(&ah, &[0, 0, 1, 0], false);
        let of = |proposal: &Proposal| {
            let of_kind = proposal.transforms.iter().filter(|it| it.kind == TransformType::INTEGRITY);
            of_kind.map(|transform| (transform.id, transform.key_length)).collect::<Vec<_>>()
        };
        assert_eq!(of(&offered[0]), [(11, None), (9, None)]);
        let (_, suite) = choose_child(&offered, &ah, None, true).unwrap();
        assert_eq!((suite.integrity, suite.key_lengths()), (Some(gmac[0]), (0, 36)));
        let other = ChildAlgorithms { integrity: vec![gmac[1]], ..ah.clone() };
        assert_eq!(choose_child(&offered, &other, None, true).unwrap().1.key_lengths(), (0, 20));
        let mut with_length = offered.clone();
        for transform in with_length.iter_mut().flat_map(|proposal| &mut proposal.transforms) {
            if transform.kind == TransformType::INTEGRITY {
                transform.key_length = Some(256);
            }
        }
        assert!(choose_child(&with_length, &ah, None, true).is_none());

        let mut integrity = gmac.to_vec();
        integrity.push(Integrity::HmacSha256.into());
        let encryption = vec![Encryption::Aes256Cbc];
        let esp = ChildAlgorithms { integrity, encryption, ..ChildAlgorithms::default() };
        let mut offered = offer_child(&esp, &[0, 0, 1, 0], false);
        assert_eq!(of(&offered[0]), [(12, None)]);
        let hmac = offered[0].transforms.iter_mut().find(|it| it.kind == TransformType::INTEGRITY).unwrap();
        hmac.id = 11;
        assert!(choose_child(&offered, &esp, None, true).is_none());
    }

    #[test]
    fn an_answer_of_what_was_not_offered_or_of_two_of_a_type_is_refused() {
        let ours = IkeAlgorithms::default();
        let offered = offer_ike(&ours, &[]);
        let (answer, _) = choose_ike(&offered, &ours, 31).unwrap();
        let mut weaker = answer.clone();
        weaker.transforms[0] = Transform::new(TransformType::ENCRYPTION, 3);
        assert!(is_choice_of(&[weaker], &offered).is_none());
        let mut twice = answer.clone();
        twice.transforms.push(Encryption::Aes128Gcm.transform());
        assert!(is_choice_of(&[twice], &offered).is_none());
        let mut less = answer.clone();
        less.transforms.pop();
        assert!(is_choice_of(&[less], &offered).is_none());
        assert!(is_choice_of(&[answer.clone(), answer], &offered).is_none());
    }
}

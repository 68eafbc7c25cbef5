//! Algorithms, by the names that strongSwan's users know: `aes256gcm16-sha384-x25519`.
//!
//! A proposal there is one set of algorithms; here all proposals of a list come to one set for each purpose, in their
//! order, out of which the two ends take what they have in common.

use ike::crypto::encryption::{Encryption, Integrity};
use ike::crypto::group::Group;
use ike::crypto::prf::Prf;
use ike::negotiation::{ChildAlgorithms, ChildIntegrity, ChildProtocol, IkeAlgorithms};

use crate::value::{Problem, problem};

/// What one word of a proposal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Encryption(Encryption),
    /// An integrity algorithm, and where nothing else is said the pseudorandom function of the same hash.
    Hash(Integrity, Prf),
    /// An integrity algorithm of AH alone.
    Gmac(ChildIntegrity),
    Prf(Prf),
    Group(Group),
    ExtendedSequenceNumbers(bool),
}

/// Every word; of an algorithm with several names, the first is the usual one.
const WORDS: [(&str, Word); 27] = [
    ("aes256gcm16", Word::Encryption(Encryption::Aes256Gcm)),
    ("chacha20poly1305", Word::Encryption(Encryption::ChaCha20Poly1305)),
    ("aes128gcm16", Word::Encryption(Encryption::Aes128Gcm)),
    ("aes256", Word::Encryption(Encryption::Aes256Cbc)),
    ("aes128", Word::Encryption(Encryption::Aes128Cbc)),
    ("aes256gcm", Word::Encryption(Encryption::Aes256Gcm)),
    ("aes256gcm128", Word::Encryption(Encryption::Aes256Gcm)),
    ("aes128gcm", Word::Encryption(Encryption::Aes128Gcm)),
    ("aes128gcm128", Word::Encryption(Encryption::Aes128Gcm)),
    ("aes", Word::Encryption(Encryption::Aes128Cbc)),
    ("sha256", Word::Hash(Integrity::HmacSha256, Prf::HmacSha256)),
    ("sha384", Word::Hash(Integrity::HmacSha384, Prf::HmacSha384)),
    ("sha512", Word::Hash(Integrity::HmacSha512, Prf::HmacSha512)),
    ("sha2_256", Word::Hash(Integrity::HmacSha256, Prf::HmacSha256)),
    ("sha2_384", Word::Hash(Integrity::HmacSha384, Prf::HmacSha384)),
    ("sha2_512", Word::Hash(Integrity::HmacSha512, Prf::HmacSha512)),
    ("aes256gmac", Word::Gmac(ChildIntegrity::AesGmac256)),
    ("aes128gmac", Word::Gmac(ChildIntegrity::AesGmac128)),
    ("prfsha256", Word::Prf(Prf::HmacSha256)),
    ("prfsha384", Word::Prf(Prf::HmacSha384)),
    ("prfsha512", Word::Prf(Prf::HmacSha512)),
    ("x25519", Word::Group(Group::Curve25519)),
    ("curve25519", Word::Group(Group::Curve25519)),
    ("ecp256", Word::Group(Group::P256)),
    ("ecp384", Word::Group(Group::P384)),
    ("esn", Word::ExtendedSequenceNumbers(true)),
    ("noesn", Word::ExtendedSequenceNumbers(false)),
];

/// The name of an encryption.
pub fn encryption_name(encryption: Encryption) -> &'static str {
    name(Word::Encryption(encryption))
}

/// The name of an integrity algorithm.
pub fn integrity_name(integrity: impl Into<ChildIntegrity>) -> &'static str {
    let integrity = integrity.into();
    let is_it = |word: &Word| match *word {
        Word::Hash(known, _) => integrity == known.into(),
        Word::Gmac(known) => integrity == known,
        _ => false,
    };
    WORDS.iter().find(|(_, word)| is_it(word)).map_or("", |(name, _)| name)
}

/// The name of a pseudorandom function.
pub fn prf_name(prf: Prf) -> &'static str {
    name(Word::Prf(prf))
}

/// The name of a group.
pub fn group_name(group: Group) -> &'static str {
    name(Word::Group(group))
}

fn name(wanted: Word) -> &'static str {
    WORDS.iter().find(|(_, word)| *word == wanted).map_or("", |(name, _)| name)
}

/// What one proposal says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Proposed {
    encryption: Vec<Encryption>,
    integrity: Vec<Integrity>,
    gmac: Vec<ChildIntegrity>,
    prf: Vec<Prf>,
    groups: Vec<Group>,
    extended: Vec<bool>,
}

impl Proposed {
    /// What the words of a proposal say.
    fn parse(text: &str) -> Result<Self, Problem> {
        let mut proposed = Self::default();
        for name in text.split('-') {
            let Some((_, word)) = WORDS.iter().find(|(known, _)| *known == name) else {
                let known: Vec<_> = WORDS.iter().map(|(known, _)| *known).collect();
                let label = match is_weak(name) {
                    true => format!("`{name}` is too weak, and not offered"),
                    false => format!("`{name}` is not known"),
                };
                return problem(label, format!("words are joined by -: {}", known.join(", ")));
            };
            match *word {
                Word::Encryption(encryption) => add(&mut proposed.encryption, encryption),
                Word::Hash(integrity, _) => add(&mut proposed.integrity, integrity),
                Word::Gmac(gmac) => add(&mut proposed.gmac, gmac),
                Word::Prf(prf) => add(&mut proposed.prf, prf),
                Word::Group(group) => add(&mut proposed.groups, group),
                Word::ExtendedSequenceNumbers(extended) => add(&mut proposed.extended, extended),
            }
        }
        Ok(proposed)
    }

    fn authenticates(&self) -> bool {
        self.encryption.iter().all(|encryption| encryption.is_aead())
    }

    fn is_mixed(&self) -> bool {
        !self.authenticates() && self.encryption.iter().any(|encryption| encryption.is_aead())
    }
}

/// A proposal for IKE SAs.
pub(super) fn ike_proposal(text: &str) -> Result<Proposed, Problem> {
    let mut proposed = Proposed::parse(text)?;
    refuse_mixtures(&proposed)?;
    if !proposed.gmac.is_empty() {
        return problem("GMAC is for children of AH alone", "take a hash: sha256");
    }
    if proposed.encryption.is_empty() {
        return problem("no encryption in it", "write one like \"aes256gcm16-sha384-x25519\"");
    }
    if proposed.groups.is_empty() {
        return problem("no group in it", "IKE needs one: add -x25519");
    }
    if !proposed.extended.is_empty() {
        return problem("IKE has no sequence numbers to extend", "write esn with a child's algorithms");
    }
    if proposed.prf.is_empty() {
        for integrity in &proposed.integrity {
            let of_hash = WORDS.iter().find_map(|(_, word)| match word {
                Word::Hash(known, prf) if known == integrity => Some(*prf),
                _ => None,
            });
            proposed.prf.extend(of_hash);
        }
    }
    if proposed.authenticates() {
        // The hash was written for the pseudorandom function.
        proposed.integrity.clear();
    } else if proposed.integrity.is_empty() {
        return problem("encryption without authentication", "add a hash: aes256-sha256-x25519");
    }
    if proposed.prf.is_empty() {
        proposed.prf = IkeAlgorithms::default().prf;
    }
    Ok(proposed)
}

/// A proposal for children of ESP or AH.
pub(super) fn child_proposal(text: &str, protocol: ChildProtocol) -> Result<Proposed, Problem> {
    let proposed = Proposed::parse(text)?;
    refuse_mixtures(&proposed)?;
    if !proposed.prf.is_empty() {
        return problem("a child has no pseudorandom function", "leave prf… out");
    }
    match protocol {
        ChildProtocol::Esp if !proposed.gmac.is_empty() => problem(
            "GMAC is for AH alone",
            "write header = \"ah\", or encryption that authenticates: aes256gcm16",
        ),
        ChildProtocol::Esp if proposed.encryption.is_empty() => {
            problem("no encryption in it", "write one like \"aes256gcm16-x25519\"")
        }
        ChildProtocol::Esp if proposed.authenticates() && !proposed.integrity.is_empty() => {
            problem("a hash beside encryption that authenticates", "leave sha… out")
        }
        ChildProtocol::Esp if !proposed.authenticates() && proposed.integrity.is_empty() => {
            problem("encryption without authentication", "add a hash: aes256-sha256")
        }
        ChildProtocol::Ah if !proposed.encryption.is_empty() => {
            problem("AH does not encrypt", "write a hash or GMAC only, like \"sha256-x25519\"")
        }
        ChildProtocol::Ah if proposed.integrity.is_empty() && proposed.gmac.is_empty() => {
            problem("no hash in it", "write one like \"sha256-x25519\"")
        }
        _ => Ok(proposed),
    }
}

/// All sets would mix what one hash means for one encryption and for another.
fn refuse_mixtures(proposed: &Proposed) -> Result<(), Problem> {
    if proposed.is_mixed() {
        return problem(
            "encryption that authenticates beside one that does not",
            "make two proposals of it: [\"aes256gcm16-x25519\", \"aes256-sha256-x25519\"]",
        );
    }
    Ok(())
}

/// What all proposals for IKE SAs come to; everything, if there are none.
pub(super) fn ike_algorithms(proposals: Vec<Proposed>) -> IkeAlgorithms {
    if proposals.is_empty() {
        return IkeAlgorithms::default();
    }
    let Proposed { encryption, integrity, prf, groups, .. } = union(proposals);
    IkeAlgorithms { encryption, integrity, prf, groups }
}

/// What all proposals for children come to; everything, if there are none.
pub(super) fn child_algorithms(proposals: Vec<Proposed>, protocol: ChildProtocol) -> ChildAlgorithms {
    let all = ChildAlgorithms::default();
    if proposals.is_empty() {
        return match protocol {
            ChildProtocol::Esp => all,
            ChildProtocol::Ah => ChildAlgorithms {
                protocol,
                encryption: Vec::new(),
                integrity: ChildIntegrity::ALL.to_vec(),
                ..all
            },
        };
    }
    // Who writes a group in each proposal wants one; who writes one in some prefers it.
    let groups_required = proposals.iter().all(|proposed| !proposed.groups.is_empty());
    let Proposed { encryption, integrity, gmac, groups, extended, .. } = union(proposals);
    let integrity = gmac.into_iter().chain(integrity.into_iter().map(Into::into)).collect();
    let extended_sequence_numbers =
        if extended.is_empty() { all.extended_sequence_numbers } else { extended };
    ChildAlgorithms { protocol, encryption, integrity, groups, groups_required, extended_sequence_numbers }
}

fn union(proposals: Vec<Proposed>) -> Proposed {
    let mut all = Proposed::default();
    for proposed in proposals {
        proposed.encryption.into_iter().for_each(|encryption| add(&mut all.encryption, encryption));
        proposed.integrity.into_iter().for_each(|integrity| add(&mut all.integrity, integrity));
        proposed.gmac.into_iter().for_each(|gmac| add(&mut all.gmac, gmac));
        proposed.prf.into_iter().for_each(|prf| add(&mut all.prf, prf));
        proposed.groups.into_iter().for_each(|group| add(&mut all.groups, group));
        proposed.extended.into_iter().for_each(|extended| add(&mut all.extended, extended));
    }
    all
}

fn add<T: PartialEq>(list: &mut Vec<T>, value: T) {
    if !list.contains(&value) {
        list.push(value);
    }
}

/// Whether a word of strongSwan's is one that nobody should want.
fn is_weak(name: &str) -> bool {
    ["des", "3des", "md5", "sha1", "sha", "null", "modp768", "modp1024", "modp1536", "blowfish", "cast"]
        .into_iter()
        .any(|weak| {
            name.strip_prefix(weak).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
        })
        && !WORDS.iter().any(|(known, _)| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ike(proposals: &[&str]) -> IkeAlgorithms {
        ike_algorithms(proposals.iter().map(|text| ike_proposal(text).unwrap()).collect())
    }

    fn esp(proposals: &[&str]) -> ChildAlgorithms {
        let of = |text: &&str| child_proposal(text, ChildProtocol::Esp).unwrap();
        child_algorithms(proposals.iter().map(of).collect(), ChildProtocol::Esp)
    }

    #[test]
    fn a_hash_beside_encryption_that_authenticates_is_the_pseudorandom_function() {
        let algorithms = ike(&["aes256gcm16-sha384-x25519"]);
        assert_eq!(algorithms.encryption, [Encryption::Aes256Gcm]);
        assert_eq!(algorithms.prf, [Prf::HmacSha384]);
        assert!(algorithms.integrity.is_empty());
        assert_eq!(algorithms.groups, [Group::Curve25519]);
        assert_eq!(ike(&["aes256gcm16-prfsha512-ecp384"]).prf, [Prf::HmacSha512]);
    }

    #[test]
    fn a_hash_beside_other_encryption_is_both() {
        let algorithms = ike(&["aes128-sha256-ecp256"]);
        assert_eq!(
            (algorithms.integrity, algorithms.prf),
            (vec![Integrity::HmacSha256], vec![Prf::HmacSha256])
        );
    }

    #[test]
    fn several_proposals_come_to_one_set_in_their_order() {
        let algorithms = ike(&["chacha20poly1305-sha256-x25519", "aes256-sha512-x25519-ecp384"]);
        assert_eq!(algorithms.encryption, [Encryption::ChaCha20Poly1305, Encryption::Aes256Cbc]);
        assert_eq!(algorithms.groups, [Group::Curve25519, Group::P384]);
        assert_eq!(algorithms.prf, [Prf::HmacSha256, Prf::HmacSha512]);
    }

    #[test]
    fn children_have_groups_only_if_they_are_said_to() {
        assert!(esp(&["aes256gcm16"]).groups.is_empty());
        let with = esp(&["aes256gcm16-x25519"]);
        assert_eq!((with.groups, with.groups_required), (vec![Group::Curve25519], true));
        assert!(!esp(&["aes256gcm16-x25519", "aes256gcm16"]).groups_required);
        assert_eq!(esp(&["aes128gcm16-noesn"]).extended_sequence_numbers, [false]);
        assert_eq!(esp(&[]), ChildAlgorithms::default());
        let ah = child_algorithms(Vec::new(), ChildProtocol::Ah);
        assert!(ah.encryption.is_empty() && !ah.integrity.is_empty());
    }

    #[test]
    fn gmac_is_for_ah_alone_and_comes_before_hashes() {
        let of = |text: &&str| child_proposal(text, ChildProtocol::Ah).unwrap();
        let proposals = ["sha256-x25519", "aes128gmac-x25519"].iter().map(of).collect();
        let ah = child_algorithms(proposals, ChildProtocol::Ah);
        assert_eq!(ah.integrity, [ChildIntegrity::AesGmac128, Integrity::HmacSha256.into()]);
        let label = child_proposal("aes256-aes256gmac", ChildProtocol::Esp).unwrap_err().label;
        assert_eq!(label, "GMAC is for AH alone");
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for text in [
            "",
            "aes256gcm16-aes256gmac-x25519",
            "x25519",
            "aes256gcm16",
            "aes256-x25519",
            "aes256gcm16-aes256-sha256-x25519",
            "aes256gcm16-x25519-esn",
            "modp1024",
            "aes256gcm16-x25519-",
        ] {
            assert!(ike_proposal(text).is_err(), "{text}");
        }
        for text in ["sha256", "aes256", "aes256gcm16-sha256", "aes256gcm16-prfsha256", "null-sha256"] {
            assert!(child_proposal(text, ChildProtocol::Esp).is_err(), "{text}");
        }
        for text in ["aes256gcm16", "x25519", ""] {
            assert!(child_proposal(text, ChildProtocol::Ah).is_err(), "{text}");
        }
        let label = |text: &str| ike_proposal(text).unwrap_err().label;
        assert_eq!(label("3des-sha1-modp1024"), "`3des` is too weak, and not offered");
        assert_eq!(label("aes256-sha1-modp1024"), "`sha1` is too weak, and not offered");
        assert_eq!(label("aes257-x25519"), "`aes257` is not known");
    }

    #[test]
    fn every_algorithm_has_a_name() {
        assert!(Encryption::ALL.into_iter().all(|encryption| !encryption_name(encryption).is_empty()));
        assert!(ChildIntegrity::ALL.into_iter().all(|integrity| !integrity_name(integrity).is_empty()));
        let all = IkeAlgorithms::default();
        assert!(all.prf.into_iter().all(|prf| !prf_name(prf).is_empty()));
        assert!(all.groups.into_iter().all(|group| !group_name(group).is_empty()));
        assert_eq!(encryption_name(Encryption::Aes128Gcm), "aes128gcm16");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([a-z0-9-]{0,12}-?|\\PC){0,5}") {
            let _ = ike_proposal(&text);
            let _ = child_proposal(&text, ChildProtocol::Esp);
            let _ = child_proposal(&text, ChildProtocol::Ah);
        }
    }
}

//! SA payload: proposals, their transforms, and the one attribute there is (RFC 7296 §3.3).

use super::ParseError;
use crate::numbers::{ProtocolId, number};

/// More proposals than any known implementation sends. It bounds the work of choosing.
pub const MAX_PROPOSALS: usize = 64;
/// More transforms in a proposal than any known implementation sends.
pub const MAX_TRANSFORMS: usize = 128;

number! {
    /// What a transform is for (RFC 7296 §3.3.2).
    TransformType(u8) {
        /// Encryption algorithm.
        ENCRYPTION = 1,
        /// Pseudorandom function.
        PRF = 2,
        /// Integrity algorithm.
        INTEGRITY = 3,
        /// Key exchange method: a Diffie-Hellman group.
        GROUP = 4,
        /// Extended sequence numbers.
        SEQUENCE_NUMBERS = 5,
    }
}

/// One transform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transform {
    /// What it is for.
    pub kind: TransformType,
    /// Which one.
    pub id: u16,
    /// Key Length attribute, in bits.
    pub key_length: Option<u16>,
    /// It has an attribute that is not known, so it must not be chosen (RFC 7296 §3.3.6).
    pub has_unknown_attribute: bool,
}

impl Transform {
    /// One without attributes.
    pub const fn new(kind: TransformType, id: u16) -> Self {
        Self { kind, id, key_length: None, has_unknown_attribute: false }
    }

    /// One with a key length in bits.
    pub const fn with_key_length(kind: TransformType, id: u16, bits: u16) -> Self {
        Self { kind, id, key_length: Some(bits), has_unknown_attribute: false }
    }
}

/// One proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Its number: 1 for the first one, and one more for each.
    pub number: u8,
    /// What it is for.
    pub protocol: ProtocolId,
    /// The sender's SPI: empty in IKE_SA_INIT, 8 bytes for a rekeyed IKE SA, 4 for ESP and AH.
    pub spi: Vec<u8>,
    /// What may be chosen from.
    pub transforms: Vec<Transform>,
}

const KEY_LENGTH: u16 = 14;
/// The AF bit: the attribute's value is in place of its length.
const SHORT: u16 = 0x8000;

/// The proposals of an SA payload.
pub fn parse(body: &[u8]) -> Result<Vec<Proposal>, ParseError> {
    let (mut proposals, mut rest, mut more) = (Vec::new(), body, true);
    while more {
        if proposals.len() == MAX_PROPOSALS {
            return Err(ParseError::TooMany);
        }
        let (last, proposal, after) = substructure(rest, 2)?;
        let [number, protocol, spi_size, count, content @ ..] = proposal else {
            return Err(ParseError::Truncated);
        };
        let (spi, transforms) =
            content.split_at_checked(usize::from(*spi_size)).ok_or(ParseError::Truncated)?;
        let transforms = parse_transforms(transforms, *count)?;
        proposals.push(Proposal {
            number: *number,
            protocol: ProtocolId(*protocol),
            spi: spi.to_vec(),
            transforms,
        });
        (rest, more) = (after, !last);
    }
    if rest.is_empty() { Ok(proposals) } else { Err(ParseError::Malformed) }
}

fn parse_transforms(bytes: &[u8], count: u8) -> Result<Vec<Transform>, ParseError> {
    if usize::from(count) > MAX_TRANSFORMS {
        return Err(ParseError::TooMany);
    }
    let (mut transforms, mut rest) = (Vec::with_capacity(usize::from(count)), bytes);
    for position in 1..=count {
        let (last, transform, after) = substructure(rest, 3)?;
        if last != (position == count) {
            return Err(ParseError::Malformed);
        }
        let [kind, _, high, low, attributes @ ..] = transform else { return Err(ParseError::Truncated) };
        let mut parsed = Transform::new(TransformType(*kind), u16::from_be_bytes([*high, *low]));
        parse_attributes(attributes, &mut parsed)?;
        transforms.push(parsed);
        rest = after;
    }
    if rest.is_empty() { Ok(transforms) } else { Err(ParseError::Malformed) }
}

fn parse_attributes(mut bytes: &[u8], transform: &mut Transform) -> Result<(), ParseError> {
    while !bytes.is_empty() {
        let [a, b, c, d, after @ ..] = bytes else { return Err(ParseError::Truncated) };
        let (kind, value) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        bytes = after;
        if kind & SHORT == 0 {
            bytes = after.get(usize::from(value)..).ok_or(ParseError::Truncated)?;
        }
        if kind == SHORT | KEY_LENGTH && transform.key_length.is_none() {
            transform.key_length = Some(value);
        } else {
            transform.has_unknown_attribute = true;
        }
    }
    Ok(())
}

/// Splits off a proposal or transform: whether it is the last one, what is behind its first four bytes, the rest.
fn substructure(bytes: &[u8], more: u8) -> Result<(bool, &[u8], &[u8]), ParseError> {
    let [mark, _, high, low, ..] = *bytes else { return Err(ParseError::Truncated) };
    if mark != 0 && mark != more {
        return Err(ParseError::Malformed);
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (this, rest) = bytes.split_at_checked(length).ok_or(ParseError::Truncated)?;
    Ok((mark == 0, this.get(4..).ok_or(ParseError::Malformed)?, rest))
}

/// Appends the body of an SA payload.
pub(crate) fn write(to: &mut Vec<u8>, proposals: &[Proposal]) {
    for (index, proposal) in proposals.iter().enumerate() {
        let start = to.len();
        to.extend([if index + 1 == proposals.len() { 0 } else { 2 }, 0, 0, 0]);
        to.extend([proposal.number, proposal.protocol.0]);
        to.extend([proposal.spi.len() as u8, proposal.transforms.len() as u8]);
        to.extend(&proposal.spi);
        for (index, transform) in proposal.transforms.iter().enumerate() {
            let last = index + 1 == proposal.transforms.len();
            let length: u16 = if transform.key_length.is_some() { 12 } else { 8 };
            to.extend([if last { 0 } else { 3 }, 0]);
            to.extend(length.to_be_bytes());
            to.extend([transform.kind.0, 0]);
            to.extend(transform.id.to_be_bytes());
            if let Some(bits) = transform.key_length {
                to.extend((SHORT | KEY_LENGTH).to_be_bytes());
                to.extend(bits.to_be_bytes());
            }
        }
        let length = (to.len() - start) as u16;
        to[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn transform() -> impl Strategy<Value = Transform> {
        (1u8..=5, any::<u16>(), proptest::option::of(any::<u16>())).prop_map(|(kind, id, key_length)| {
            Transform { kind: TransformType(kind), id, key_length, has_unknown_attribute: false }
        })
    }

    fn proposals() -> impl Strategy<Value = Vec<Proposal>> {
        let proposal = (
            any::<u8>(),
            1u8..=3,
            proptest::collection::vec(any::<u8>(), 0..9),
            proptest::collection::vec(transform(), 0..12),
        );
        proptest::collection::vec(proposal, 1..6).prop_map(|proposals| {
            proposals
                .into_iter()
                .map(|(number, protocol, spi, transforms)| Proposal {
                    number,
                    protocol: ProtocolId(protocol),
                    spi,
                    transforms,
                })
                .collect()
        })
    }

    #[test]
    fn a_transform_with_an_unknown_attribute_is_marked() {
        // One proposal, ESP, one transform ENCR 20 with attribute 99 of two bytes in the long form.
        let body = [0, 0, 0, 26, 1, 3, 4, 1, 0, 0, 1, 0, 0, 0, 0, 14, 1, 0, 0, 20, 0, 99, 0, 2, 7, 7];
        let proposals = parse(&body).unwrap();
        assert!(proposals[0].transforms[0].has_unknown_attribute);
    }

    #[test]
    fn a_count_of_transforms_that_is_not_theirs_is_malformed() {
        let mut body = Vec::new();
        let transforms = vec![Transform::new(TransformType::PRF, 5), Transform::new(TransformType::PRF, 6)];
        write(&mut body, &[Proposal { number: 1, protocol: ProtocolId::IKE, spi: Vec::new(), transforms }]);
        assert!(parse(&body).is_ok());
        body[7] = 1;
        assert_eq!(parse(&body), Err(ParseError::Malformed));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&body);
        }

        #[test]
        fn no_damage_panics(proposals in proposals(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut body = Vec::new();
            write(&mut body, &proposals);
            let at = at.index(body.len());
            body[at] = byte;
            let _ = parse(&body);
        }

        #[test]
        fn proposals_come_back_as_they_were(proposals in proposals()) {
            let mut body = Vec::new();
            write(&mut body, &proposals);
            prop_assert_eq!(parse(&body).unwrap(), proposals);
        }
    }
}

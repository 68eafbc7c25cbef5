//! Messages of IKEv2 (RFC 7296 §3): views that borrow, and builders.
//!
//! A [`Message`] checks once that the header is whole and that the generic headers of its payloads tile it; walking
//! them then cannot fail. Each payload's body has a view of its own, in the module that is named after what it says.
//!
//! | module | payloads |
//! |---|---|
//! | [`proposal`] | SA |
//! | [`body`] | KE, IDi and IDr, CERT, CERTREQ, AUTH, N, D |
//! | [`traffic_selector`] | TSi, TSr |
//! | [`configuration`] | CP |
//! | [`builder`] | all of them, to send |
//!
//! SK and SKF (RFC 7383) end the chain, as the RFC has it: their Next Payload names the first one *inside*.

pub mod body;
pub mod builder;
pub mod configuration;
pub mod proposal;
pub mod traffic_selector;

use crate::numbers::{ExchangeType, IkeSpi, MessageId, PayloadType};

/// Length of the IKE header.
pub const HEADER: usize = 28;
/// Length of the generic header of a payload.
pub const PAYLOAD_HEADER: usize = 4;
/// More payloads than a genuine message has: a few dozen CERTREQ and N at most. It bounds the work for one message.
pub const MAX_PAYLOADS: usize = 64;

/// Why bytes are not a message, or not the payload that they were taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// They end before a field that must be there.
    #[error("truncated")]
    Truncated,
    /// A length or count contradicts the rest.
    #[error("malformed")]
    Malformed,
    /// More of something than this end takes.
    #[error("too many")]
    TooMany,
    /// A major version above 2.
    #[error("a later major version of IKE")]
    LaterVersion,
    /// A major version below 2.
    #[error("an earlier major version of IKE")]
    EarlierVersion,
    /// A payload that is not known has its critical bit set.
    #[error("unknown critical payload {0:?}")]
    UnsupportedCritical(PayloadType),
}

/// The IKE header (RFC 7296 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// SPI of the IKE SA's initiator.
    pub initiator_spi: IkeSpi,
    /// SPI of the IKE SA's responder.
    pub responder_spi: IkeSpi,
    /// What the exchange is for.
    pub exchange: ExchangeType,
    /// Whether the *IKE SA's* initiator sends this.
    pub from_initiator: bool,
    /// Whether this is the response of an exchange.
    pub is_response: bool,
    /// Which exchange it belongs to.
    pub message_id: MessageId,
}

const FLAG_INITIATOR: u8 = 0x08;
const FLAG_RESPONSE: u8 = 0x20;
const VERSION: u8 = 0x20;

impl Header {
    /// The header of bytes that may be of a later version: its layout stays what it is (RFC 7296 §2.5).
    pub fn of_any_version(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(Self::read)
    }

    fn read(header: &[u8; HEADER]) -> Self {
        Self {
            initiator_spi: IkeSpi(u64_of(&header[..8])),
            responder_spi: IkeSpi(u64_of(&header[8..16])),
            exchange: ExchangeType(header[18]),
            from_initiator: header[19] & FLAG_INITIATOR != 0,
            is_response: header[19] & FLAG_RESPONSE != 0,
            message_id: MessageId(u32_of(&header[20..24])),
        }
    }

    /// The header's bytes, for a message of a first payload and a length in all.
    pub fn to_bytes(&self, first: PayloadType, length: u32) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.initiator_spi.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.responder_spi.0.to_be_bytes());
        bytes[16] = first.0;
        bytes[17] = VERSION;
        bytes[18] = self.exchange.0;
        bytes[19] = if self.from_initiator { FLAG_INITIATOR } else { 0 }
            | if self.is_response { FLAG_RESPONSE } else { 0 };
        bytes[20..24].copy_from_slice(&self.message_id.0.to_be_bytes());
        bytes[24..].copy_from_slice(&length.to_be_bytes());
        bytes
    }
}

/// A message, its payloads found.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    bytes: &'a [u8],
    header: Header,
    payloads: Payloads<'a>,
}

impl<'a> Message<'a> {
    /// The header alone, and the type of the first payload. Its length must be that of the bytes.
    pub fn parse_header(bytes: &[u8]) -> Result<(Header, PayloadType), ParseError> {
        let header: &[u8; HEADER] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
        match header[17] >> 4 {
            0 | 1 => return Err(ParseError::EarlierVersion),
            2 => {}
            _ => return Err(ParseError::LaterVersion),
        }
        match usize::try_from(u32_of(&header[24..])) {
            Ok(length) if length == bytes.len() => {}
            _ => return Err(ParseError::Malformed),
        }
        Ok((Header::read(header), PayloadType(header[16])))
    }

    /// The message that the bytes are, whole.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, first) = Self::parse_header(bytes)?;
        let payloads = Payloads::parse(first, &bytes[HEADER..])?;
        Ok(Self { bytes, header, payloads })
    }

    /// The header.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The payloads.
    pub fn payloads(&self) -> Payloads<'a> {
        self.payloads
    }

    /// All bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// One payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a> {
    /// What it is.
    pub kind: PayloadType,
    /// Whether a receiver that does not know it must refuse the message.
    pub critical: bool,
    /// The type that its Next Payload field names: of SK and SKF, that of the first one inside.
    pub next: PayloadType,
    /// What is behind the generic header.
    pub body: &'a [u8],
}

/// A chain of payloads that was checked to be whole. Iterating it again begins anew.
#[derive(Debug, Clone, Copy)]
pub struct Payloads<'a> {
    first: PayloadType,
    rest: &'a [u8],
}

impl<'a> Payloads<'a> {
    /// The chain that begins with a payload of this type and ends with the bytes.
    pub fn parse(first: PayloadType, bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (mut kind, mut rest, mut count) = (first, bytes, 0);
        while kind != PayloadType::NONE {
            count += 1;
            if count > MAX_PAYLOADS {
                return Err(ParseError::TooMany);
            }
            let (payload, after) = split(kind, rest)?;
            if payload.critical && !kind.is_known() {
                return Err(ParseError::UnsupportedCritical(kind));
            }
            rest = after;
            kind = if is_encrypted(kind) { PayloadType::NONE } else { payload.next };
        }
        if !rest.is_empty() {
            return Err(ParseError::Malformed);
        }
        Ok(Self { first, rest: bytes })
    }

    /// The first one of this type.
    pub fn find(&self, kind: PayloadType) -> Option<Payload<'a>> {
        self.into_iter().find(|payload| payload.kind == kind)
    }

    /// All of this type.
    pub fn all(&self, kind: PayloadType) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.into_iter().filter(move |payload| payload.kind == kind).map(|payload| payload.body)
    }
}

impl<'a> IntoIterator for Payloads<'a> {
    type Item = Payload<'a>;
    type IntoIter = PayloadIter<'a>;

    fn into_iter(self) -> PayloadIter<'a> {
        PayloadIter { kind: self.first, rest: self.rest }
    }
}

/// Walks a chain of payloads.
#[derive(Debug, Clone)]
pub struct PayloadIter<'a> {
    kind: PayloadType,
    rest: &'a [u8],
}

impl<'a> Iterator for PayloadIter<'a> {
    type Item = Payload<'a>;

    fn next(&mut self) -> Option<Payload<'a>> {
        if self.kind == PayloadType::NONE {
            return None;
        }
        let (payload, rest) = split(self.kind, self.rest).ok()?;
        self.rest = rest;
        self.kind = if is_encrypted(self.kind) { PayloadType::NONE } else { payload.next };
        Some(payload)
    }
}

fn split(kind: PayloadType, bytes: &[u8]) -> Result<(Payload<'_>, &[u8]), ParseError> {
    let [next, flags, high, low, ..] = *bytes else { return Err(ParseError::Truncated) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let (payload, rest) = bytes.split_at_checked(length).ok_or(ParseError::Truncated)?;
    let body = payload.get(PAYLOAD_HEADER..).ok_or(ParseError::Malformed)?;
    Ok((Payload { kind, critical: flags & 0x80 != 0, next: PayloadType(next), body }, rest))
}

fn is_encrypted(kind: PayloadType) -> bool {
    matches!(kind, PayloadType::SK | PayloadType::SKF)
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn u64_of(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::builder::Builder;
    use super::*;

    fn header() -> Header {
        Header {
            initiator_spi: IkeSpi(1),
            responder_spi: IkeSpi(2),
            exchange: ExchangeType::INFORMATIONAL,
            from_initiator: true,
            is_response: false,
            message_id: MessageId(7),
        }
    }

    #[test]
    fn a_header_comes_back_as_it_was_and_an_empty_message_is_one() {
        let bytes = Builder::new().finish(&header());
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(message.header(), header());
        assert_eq!(message.payloads().into_iter().count(), 0);
    }

    #[test]
    fn an_unknown_payload_is_passed_over_unless_its_critical_bit_is_set() {
        let mut chain = Builder::new();
        chain.raw(PayloadType(200), |body| body.push(1));
        chain.raw(PayloadType::NONCE, |body| body.extend([2; 16]));
        let mut bytes = chain.finish(&header());
        assert!(Message::parse(&bytes).unwrap().payloads().find(PayloadType::NONCE).is_some());
        bytes[HEADER + 1] |= 0x80;
        assert_eq!(Message::parse(&bytes).unwrap_err(), ParseError::UnsupportedCritical(PayloadType(200)));
    }

    #[test]
    fn the_critical_bit_of_a_known_payload_means_nothing() {
        let mut chain = Builder::new();
        chain.raw(PayloadType::NONCE, |body| body.extend([2; 16]));
        let mut bytes = chain.finish(&header());
        bytes[HEADER + 1] |= 0x80;
        assert!(Message::parse(&bytes).is_ok());
    }

    #[test]
    fn what_is_reserved_is_sent_as_zero_and_means_nothing() {
        let mut chain = Builder::new();
        chain.raw(PayloadType::NONCE, |body| body.extend([2; 16]));
        let bytes = chain.finish(&header());
        // §3.1: version 2.0, and of the flags the initiator's alone. §3.2: neither the critical bit nor those behind it.
        assert_eq!((bytes[17], bytes[19], bytes[HEADER + 1]), (0x20, 0x08, 0));
        let mut later = bytes.clone();
        later[19] |= !(FLAG_INITIATOR | FLAG_RESPONSE);
        later[HEADER + 1] |= 0x7f;
        let (known, meant) = (Message::parse(&bytes).unwrap(), Message::parse(&later).unwrap());
        assert_eq!(known.header(), meant.header());
        assert!(known.payloads().into_iter().eq(meant.payloads()));
        let answer = Header { is_response: true, from_initiator: false, ..header() };
        assert_eq!(Builder::new().finish(&answer)[19], 0x20);
    }

    #[test]
    fn versions_are_told_apart_and_a_minor_one_is_ignored() {
        let mut bytes = Builder::new().finish(&header());
        bytes[17] = 0x2f;
        assert!(Message::parse(&bytes).is_ok());
        bytes[17] = 0x10;
        assert_eq!(Message::parse(&bytes).unwrap_err(), ParseError::EarlierVersion);
        bytes[17] = 0x30;
        assert_eq!(Message::parse(&bytes).unwrap_err(), ParseError::LaterVersion);
    }

    #[test]
    fn more_payloads_than_anybody_sends_are_refused() {
        let mut chain = Builder::new();
        for _ in 0..=MAX_PAYLOADS {
            chain.raw(PayloadType::VENDOR_ID, |_| ());
        }
        assert_eq!(Message::parse(&chain.finish(&header())).unwrap_err(), ParseError::TooMany);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), first in any::<u8>()) {
            let _ = Message::parse(&bytes);
            if let Ok(payloads) = Payloads::parse(PayloadType(first), &bytes) {
                let length: usize = payloads.into_iter().map(|payload| payload.body.len() + PAYLOAD_HEADER).sum();
                prop_assert_eq!(length, bytes.len());
            }
        }

        #[test]
        fn a_chain_comes_back_as_it_was_built(
            chain in proptest::collection::vec((33u8..=45, proptest::collection::vec(any::<u8>(), 0..40)), 0..20)
        ) {
            let mut builder = Builder::new();
            for (kind, body) in &chain {
                builder.raw(PayloadType(*kind), |to| to.extend(body));
            }
            let bytes = builder.finish(&header());
            let back: Vec<_> = Message::parse(&bytes).unwrap().payloads().into_iter()
                .map(|payload| (payload.kind.0, payload.body.to_vec())).collect();
            prop_assert_eq!(back, chain);
        }
    }
}

//! Bodies of the smaller payloads: KE, IDi and IDr, CERT and CERTREQ, AUTH, N, D (RFC 7296 §3.4–3.8, §3.10, §3.11).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ParseError;
use crate::numbers::{NotifyType, ProtocolId, Spi};

/// Key Exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyExchange<'a> {
    /// Diffie-Hellman group.
    pub group: u16,
    /// The sender's public value.
    pub public: &'a [u8],
}

impl<'a> KeyExchange<'a> {
    /// Of a payload's body.
    pub fn parse(body: &'a [u8]) -> Result<Self, ParseError> {
        let [a, b, _, _, public @ ..] = body else { return Err(ParseError::Truncated) };
        Ok(Self { group: u16::from_be_bytes([*a, *b]), public })
    }
}

/// Who an end claims to be (RFC 7296 §3.5).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// ID_IPV4_ADDR or ID_IPV6_ADDR.
    Address(IpAddr),
    /// ID_FQDN.
    Fqdn(String),
    /// ID_RFC822_ADDR.
    Email(String),
    /// ID_DER_ASN1_DN: the DER encoding of a distinguished name.
    DistinguishedName(Vec<u8>),
    /// ID_KEY_ID: bytes that mean something to both ends.
    KeyId(Vec<u8>),
}

/// Longer identities are refused: they are kept for as long as an IKE SA is.
pub const MAX_IDENTITY: usize = 1024;

impl Identity {
    /// Of a payload's body.
    pub fn parse(body: &[u8]) -> Result<Self, ParseError> {
        let [kind, _, _, _, data @ ..] = body else { return Err(ParseError::Truncated) };
        if data.len() > MAX_IDENTITY {
            return Err(ParseError::TooMany);
        }
        // §3.5: no terminators.
        let text = || match String::from_utf8(data.to_vec()) {
            Ok(text) if !text.contains(char::is_control) => Ok(text),
            _ => Err(ParseError::Malformed),
        };
        match kind {
            1 => {
                let octets: [u8; 4] = data.try_into().map_err(|_| ParseError::Malformed)?;
                Ok(Self::Address(Ipv4Addr::from(octets).into()))
            }
            2 => Ok(Self::Fqdn(text()?)),
            3 => Ok(Self::Email(text()?)),
            5 => {
                let octets: [u8; 16] = data.try_into().map_err(|_| ParseError::Malformed)?;
                Ok(Self::Address(Ipv6Addr::from(octets).into()))
            }
            9 => Ok(Self::DistinguishedName(data.to_vec())),
            11 => Ok(Self::KeyId(data.to_vec())),
            _ => Err(ParseError::Malformed),
        }
    }

    /// The payload's body, which is also what is authenticated of it.
    pub fn to_body(&self) -> Vec<u8> {
        let (kind, data) = match self {
            Self::Address(IpAddr::V4(address)) => (1, address.octets().to_vec()),
            Self::Fqdn(name) => (2, name.clone().into_bytes()),
            Self::Email(name) => (3, name.clone().into_bytes()),
            Self::Address(IpAddr::V6(address)) => (5, address.octets().to_vec()),
            Self::DistinguishedName(name) => (9, name.clone()),
            Self::KeyId(id) => (11, id.clone()),
        };
        [vec![kind, 0, 0, 0], data].concat()
    }
}

/// Certificate, or Certificate Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certificate<'a> {
    /// How it is encoded.
    pub encoding: u8,
    /// The certificate, or hashes of the keys of authorities.
    pub data: &'a [u8],
}

impl<'a> Certificate<'a> {
    /// X.509 certificate, for signatures.
    pub const X509_SIGNATURE: u8 = 4;

    /// Of a payload's body.
    pub fn parse(body: &'a [u8]) -> Result<Self, ParseError> {
        let (encoding, data) = body.split_first().ok_or(ParseError::Truncated)?;
        Ok(Self { encoding: *encoding, data })
    }
}

/// Authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Auth<'a> {
    /// How: [`Auth::SHARED_KEY`], [`Auth::DIGITAL_SIGNATURE`], or one that is not known here.
    pub method: u8,
    /// The proof.
    pub data: &'a [u8],
}

impl<'a> Auth<'a> {
    /// Shared Key Message Integrity Code.
    pub const SHARED_KEY: u8 = 2;
    /// Digital Signature (RFC 7427).
    pub const DIGITAL_SIGNATURE: u8 = 14;

    /// Of a payload's body.
    pub fn parse(body: &'a [u8]) -> Result<Self, ParseError> {
        let [method, _, _, _, data @ ..] = body else { return Err(ParseError::Truncated) };
        Ok(Self { method: *method, data })
    }
}

/// A nonce's length must be within these bounds (RFC 7296 §3.9).
pub fn parse_nonce(body: &[u8]) -> Result<&[u8], ParseError> {
    if (16..=256).contains(&body.len()) { Ok(body) } else { Err(ParseError::Malformed) }
}

/// Notify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Notify<'a> {
    /// What the SPI is of.
    pub protocol: ProtocolId,
    /// The SPI, empty where the notify is about no child.
    pub spi: &'a [u8],
    /// What it says.
    pub kind: NotifyType,
    /// More of that.
    pub data: &'a [u8],
}

impl<'a> Notify<'a> {
    /// Of a payload's body.
    pub fn parse(body: &'a [u8]) -> Result<Self, ParseError> {
        let [protocol, spi_size, a, b, rest @ ..] = body else { return Err(ParseError::Truncated) };
        let (spi, data) = rest.split_at_checked(usize::from(*spi_size)).ok_or(ParseError::Truncated)?;
        Ok(Self {
            protocol: ProtocolId(*protocol),
            spi,
            kind: NotifyType(u16::from_be_bytes([*a, *b])),
            data,
        })
    }

    /// The child that it is about.
    pub fn child(&self) -> Option<Spi> {
        self.spi.try_into().ok().map(|spi| Spi(u32::from_be_bytes(spi)))
    }
}

/// Delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delete<'a> {
    /// The IKE SA itself, or the protocol of the children.
    pub protocol: ProtocolId,
    spis: &'a [u8],
}

impl<'a> Delete<'a> {
    /// Of a payload's body.
    pub fn parse(body: &'a [u8]) -> Result<Self, ParseError> {
        let [protocol, spi_size, a, b, spis @ ..] = body else { return Err(ParseError::Truncated) };
        let wanted = if *protocol == ProtocolId::IKE.0 { 0 } else { 4 };
        let length = usize::from(u16::from_be_bytes([*a, *b])) * usize::from(*spi_size);
        if *spi_size != wanted || length != spis.len() {
            return Err(ParseError::Malformed);
        }
        Ok(Self { protocol: ProtocolId(*protocol), spis })
    }

    /// The SPIs that their sender received with.
    pub fn spis(&self) -> impl Iterator<Item = Spi> + use<'a> {
        self.spis.chunks_exact(4).filter_map(|spi| Some(Spi(u32::from_be_bytes(spi.try_into().ok()?))))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::Payloads;
    use crate::message::builder::Builder;
    use crate::numbers::PayloadType;

    fn only(builder: &Builder) -> Vec<u8> {
        let payloads = Payloads::parse(builder.first(), builder.bytes()).unwrap();
        payloads.into_iter().next().unwrap().body.to_vec()
    }

    #[test]
    fn deletes_and_notifies_come_back_as_they_were() {
        let mut builder = Builder::new();
        builder.delete_children(ProtocolId::ESP, &[Spi(1000), Spi(2000)]);
        let body = only(&builder);
        let delete = Delete::parse(&body).unwrap();
        assert_eq!((delete.protocol, delete.spis().collect()), (ProtocolId::ESP, vec![Spi(1000), Spi(2000)]));

        let mut builder = Builder::new();
        builder.child_notify(NotifyType::REKEY_SA, ProtocolId::AH, Spi(7));
        let body = only(&builder);
        let notify = Notify::parse(&body).unwrap();
        assert_eq!(
            (notify.kind, notify.protocol, notify.child()),
            (NotifyType::REKEY_SA, ProtocolId::AH, Some(Spi(7)))
        );

        let mut builder = Builder::new();
        builder.delete_ike();
        assert_eq!(only(&builder), [1, 0, 0, 0]);
        assert_eq!(builder.first(), PayloadType::DELETE);
    }

    #[test]
    fn a_delete_of_more_spis_than_it_has_is_malformed() {
        assert_eq!(Delete::parse(&[3, 4, 0, 2, 0, 0, 1, 0]), Err(ParseError::Malformed));
        assert_eq!(Delete::parse(&[3, 8, 0, 0]), Err(ParseError::Malformed));
    }

    #[test]
    fn a_nonce_has_16_to_256_bytes() {
        assert!(parse_nonce(&[0; 15]).is_err());
        assert!(parse_nonce(&[0; 16]).is_ok());
        assert!(parse_nonce(&[0; 256]).is_ok());
        assert!(parse_nonce(&[0; 257]).is_err());
    }

    #[test]
    fn names_have_no_terminators() {
        for kind in [2, 3] {
            let of = |name: &[u8]| Identity::parse(&[&[kind, 0, 0, 0], name].concat());
            assert!(of(b"a.example").is_ok());
            for name in [b"a.example\0", b"a.example\r", b"a\nexample.", b"\x7f.example."] {
                assert_eq!(of(name), Err(ParseError::Malformed));
            }
        }
    }

    fn identity() -> impl Strategy<Value = Identity> {
        prop_oneof![
            any::<IpAddr>().prop_map(Identity::Address),
            "\\PC{0,40}".prop_map(Identity::Fqdn),
            "\\PC{0,40}".prop_map(Identity::Email),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Identity::DistinguishedName),
            proptest::collection::vec(any::<u8>(), 0..40).prop_map(Identity::KeyId),
        ]
    }

    proptest! {
        #[test]
        fn identities_come_back_as_they_were(identity in identity()) {
            prop_assert_eq!(Identity::parse(&identity.to_body()).unwrap(), identity);
        }

        #[test]
        fn no_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = KeyExchange::parse(&body);
            let _ = Identity::parse(&body);
            let _ = Certificate::parse(&body);
            let _ = Auth::parse(&body);
            let _ = parse_nonce(&body);
            let _ = Notify::parse(&body).map(|notify| notify.child());
            let _ = Delete::parse(&body).map(|delete| delete.spis().count());
        }
    }
}

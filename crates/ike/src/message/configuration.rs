//! CP: what a client asks of a gateway, and is given (RFC 7296 §3.15).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ParseError;
use crate::numbers::number;

/// More attributes than any known implementation sends.
pub const MAX_ATTRIBUTES: usize = 64;

number! {
    /// What the payload is (RFC 7296 §3.15).
    ConfigurationType(u8) {
        /// A client asks.
        REQUEST = 1,
        /// A gateway answers.
        REPLY = 2,
        /// One end sets something at the other.
        SET = 3,
        /// The other end has taken it.
        ACK = 4,
    }
}

/// An attribute. In a request, the value is what is wished for, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attribute {
    /// INTERNAL_IP4_ADDRESS.
    Ipv4Address(Option<Ipv4Addr>),
    /// INTERNAL_IP6_ADDRESS, with the length of its prefix.
    Ipv6Address(Option<(Ipv6Addr, u8)>),
    /// INTERNAL_IP4_DNS.
    Ipv4Dns(Option<Ipv4Addr>),
    /// INTERNAL_IP6_DNS.
    Ipv6Dns(Option<Ipv6Addr>),
    /// One that is not known here.
    Other(u16),
}

impl Attribute {
    /// A DNS server.
    pub fn dns(server: IpAddr) -> Self {
        match server {
            IpAddr::V4(v4) => Self::Ipv4Dns(Some(v4)),
            IpAddr::V6(v6) => Self::Ipv6Dns(Some(v6)),
        }
    }

    /// An address for the client.
    pub fn address(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::Ipv4Address(Some(v4)),
            IpAddr::V6(v6) => Self::Ipv6Address(Some((v6, 128))),
        }
    }
}

/// The type and attributes of a payload's body.
pub fn parse(body: &[u8]) -> Result<(ConfigurationType, Vec<Attribute>), ParseError> {
    let [kind, _, _, _, rest @ ..] = body else { return Err(ParseError::Truncated) };
    let (mut attributes, mut rest) = (Vec::new(), rest);
    while !rest.is_empty() {
        if attributes.len() == MAX_ATTRIBUTES {
            return Err(ParseError::TooMany);
        }
        let [a, b, c, d, after @ ..] = rest else { return Err(ParseError::Truncated) };
        let length = usize::from(u16::from_be_bytes([*c, *d]));
        let (value, after) = after.split_at_checked(length).ok_or(ParseError::Truncated)?;
        // The first bit of the type is reserved.
        attributes.push(attribute(u16::from_be_bytes([*a, *b]) & 0x7fff, value)?);
        rest = after;
    }
    Ok((ConfigurationType(*kind), attributes))
}

fn attribute(kind: u16, value: &[u8]) -> Result<Attribute, ParseError> {
    let v4 = || match value {
        [] => Ok(None),
        _ => <[u8; 4]>::try_from(value).map(|octets| Some(octets.into())).map_err(|_| ParseError::Malformed),
    };
    Ok(match kind {
        1 => Attribute::Ipv4Address(v4()?),
        3 => Attribute::Ipv4Dns(v4()?),
        8 => Attribute::Ipv6Address(match value {
            [] => None,
            [address @ .., length] => {
                let octets: [u8; 16] = address.try_into().map_err(|_| ParseError::Malformed)?;
                Some((octets.into(), *length))
            }
        }),
        10 => Attribute::Ipv6Dns(match value {
            [] => None,
            _ => Some(<[u8; 16]>::try_from(value).map_err(|_| ParseError::Malformed)?.into()),
        }),
        _ => Attribute::Other(kind),
    })
}

/// Appends the body of a payload.
pub(crate) fn write(to: &mut Vec<u8>, kind: ConfigurationType, attributes: &[Attribute]) {
    to.extend([kind.0, 0, 0, 0]);
    for attribute in attributes {
        let (kind, value): (u16, Vec<u8>) = match attribute {
            Attribute::Ipv4Address(address) => (1, address.map_or(Vec::new(), |a| a.octets().to_vec())),
            Attribute::Ipv4Dns(address) => (3, address.map_or(Vec::new(), |a| a.octets().to_vec())),
            Attribute::Ipv6Address(None) => (8, Vec::new()),
            Attribute::Ipv6Address(Some((address, length))) => {
                (8, [&address.octets()[..], &[*length]].concat())
            }
            Attribute::Ipv6Dns(address) => (10, address.map_or(Vec::new(), |a| a.octets().to_vec())),
            Attribute::Other(kind) => (*kind, Vec::new()),
        };
        to.extend(kind.to_be_bytes());
        to.extend((value.len() as u16).to_be_bytes());
        to.extend(value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_attribute() -> impl Strategy<Value = Attribute> {
        prop_oneof![
            any::<Option<Ipv4Addr>>().prop_map(Attribute::Ipv4Address),
            any::<Option<(Ipv6Addr, u8)>>().prop_map(Attribute::Ipv6Address),
            any::<Option<Ipv4Addr>>().prop_map(Attribute::Ipv4Dns),
            any::<Option<Ipv6Addr>>().prop_map(Attribute::Ipv6Dns),
            (11u16..0x7fff).prop_map(Attribute::Other),
        ]
    }

    proptest! {
        #[test]
        fn attributes_come_back_as_they_were(attributes in proptest::collection::vec(any_attribute(), 0..10)) {
            let mut body = Vec::new();
            write(&mut body, ConfigurationType::REPLY, &attributes);
            prop_assert_eq!(parse(&body).unwrap(), (ConfigurationType::REPLY, attributes));
        }

        #[test]
        fn no_bytes_panic(body in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&body);
        }
    }
}

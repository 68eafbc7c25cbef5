//! Ethernet II frames (RFC 894, RFC 2464).

use std::fmt;

use crate::ParseError;
use crate::bytes::u16_at;

/// Length of the header in bytes.
pub const HEADER_LEN: usize = 14;
/// Ethernet type of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// Ethernet type of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// Ethernet type of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;

/// A 48-bit link-layer address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// All stations of the link.
    pub const BROADCAST: MacAddress = MacAddress([0xff; 6]);

    /// Whether the group bit is set (multicast or broadcast).
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A frame without its check sequence.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Views `bytes` as a frame. The payload may end in link padding.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when shorter than the header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, payload) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        Ok(Self { header, payload })
    }

    /// Destination address.
    pub fn destination(&self) -> MacAddress {
        let [a, b, c, d, e, f, ..] = *self.header;
        MacAddress([a, b, c, d, e, f])
    }

    /// Source address.
    pub fn source(&self) -> MacAddress {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        MacAddress([a, b, c, d, e, f])
    }

    /// Ethernet type of the payload.
    pub fn ethertype(&self) -> u16 {
        u16_at(self.header, 12)
    }

    /// What follows the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The header of a frame to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// Ethernet type of the payload.
    pub ethertype: u16,
}

impl Header {
    /// The header as sent.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..6].copy_from_slice(&self.destination.0);
        bytes[6..12].copy_from_slice(&self.source.0);
        bytes[12..].copy_from_slice(&self.ethertype.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_round_trip() {
        let header = Header {
            destination: MacAddress([0x33, 0x33, 0xff, 1, 2, 3]),
            source: MacAddress([2, 0, 0, 0, 0, 9]),
            ethertype: ETHERTYPE_IPV6,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.push(0x60);
        let frame = Frame::parse(&bytes).unwrap();
        assert_eq!(frame.destination(), header.destination);
        assert!(frame.destination().is_multicast());
        assert_eq!(frame.source(), header.source);
        assert_eq!(frame.ethertype(), ETHERTYPE_IPV6);
        assert_eq!(frame.payload(), [0x60]);
        assert_eq!(frame.source().to_string(), "02:00:00:00:00:09");
    }

    #[test]
    fn short_frame_is_refused() {
        assert_eq!(Frame::parse(&[0; 13]).unwrap_err(), ParseError::Truncated);
    }
}

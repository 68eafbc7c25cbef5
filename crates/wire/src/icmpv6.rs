//! ICMPv6 (RFC 4443): the message header, types and codes.

use crate::ParseError;
use crate::bytes::{u16_at, u32_at};
use crate::checksum::Sum;
use crate::{ipv6, protocol};

/// Length of the header that all messages we handle share: type, code, checksum and a 32-bit body.
pub const HEADER_LEN: usize = 8;
/// Where the checksum field is in the header.
pub const CHECKSUM_OFFSET: usize = 2;

/// Destination Unreachable; see [`code`].
pub const DESTINATION_UNREACHABLE: u8 = 1;
/// Packet Too Big; the body is the MTU.
pub const PACKET_TOO_BIG: u8 = 2;
/// Time Exceeded.
pub const TIME_EXCEEDED: u8 = 3;
/// Parameter Problem; the body is a pointer. See [`problem`].
pub const PARAMETER_PROBLEM: u8 = 4;
/// Multicast Listener Query (RFC 3810 §5.1, RFC 2710).
pub const MULTICAST_LISTENER_QUERY: u8 = 130;
/// Multicast Listener Report of version 1 (RFC 2710).
pub const MULTICAST_LISTENER_REPORT_V1: u8 = 131;
/// Multicast Listener Done of version 1 (RFC 2710).
pub const MULTICAST_LISTENER_DONE: u8 = 132;
/// Multicast Listener Report of version 2 (RFC 3810 §5.2).
pub const MULTICAST_LISTENER_REPORT: u8 = 143;
/// Echo Request; the body is identifier and sequence number.
pub const ECHO_REQUEST: u8 = 128;
/// Echo Reply.
pub const ECHO_REPLY: u8 = 129;
/// Router Solicitation (RFC 4861 §4.1).
pub const ROUTER_SOLICITATION: u8 = 133;
/// Router Advertisement (RFC 4861 §4.2).
pub const ROUTER_ADVERTISEMENT: u8 = 134;
/// Neighbor Solicitation (RFC 4861 §4.3).
pub const NEIGHBOR_SOLICITATION: u8 = 135;
/// Neighbor Advertisement (RFC 4861 §4.4).
pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
/// Redirect (RFC 4861 §4.5).
pub const REDIRECT: u8 = 137;

/// Codes of Parameter Problem.
pub mod problem {
    /// Erroneous header field.
    pub const ERRONEOUS_FIELD: u8 = 0;
    /// Unrecognized Next Header type.
    pub const UNRECOGNIZED_NEXT_HEADER: u8 = 1;
    /// Unrecognized IPv6 option.
    pub const UNRECOGNIZED_OPTION: u8 = 2;
    /// A first fragment without the whole header chain (RFC 7112).
    pub const INCOMPLETE_HEADER_CHAIN: u8 = 3;
}

/// Codes of Destination Unreachable.
pub mod code {
    /// No route to destination.
    pub const NO_ROUTE: u8 = 0;
    /// Communication administratively prohibited.
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 1;
    /// Beyond scope of source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// Address unreachable.
    pub const ADDRESS_UNREACHABLE: u8 = 3;
    /// Port unreachable.
    pub const PORT_UNREACHABLE: u8 = 4;
}

/// A message.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Views `bytes`, what follows the IPv6 headers, as a message. The checksum is not verified.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when shorter than the header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, payload) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        Ok(Self { header, payload })
    }

    /// Finds the message in a packet, behind extension headers too, and verifies its checksum.
    ///
    /// # Errors
    /// [`ParseError::Type`] when the packet carries something else or is a fragment,
    /// [`ParseError::Checksum`], and those of the parsers involved.
    pub fn of_packet(packet: &ipv6::Packet<'a>) -> Result<Self, ParseError> {
        let upper = packet.upper_layer()?;
        if upper.protocol != protocol::ICMPV6 || upper.fragment.is_some() {
            return Err(ParseError::Type);
        }
        let bytes = &packet.payload()[upper.offset - ipv6::HEADER_LEN..];
        let message = Self::parse(bytes)?;
        if !(packet.pseudo_header(bytes.len() as u32, protocol::ICMPV6) + Sum::of(bytes)).is_valid() {
            return Err(ParseError::Checksum);
        }
        Ok(message)
    }

    /// Type, such as [`PACKET_TOO_BIG`].
    pub fn message_type(&self) -> u8 {
        self.header[0]
    }

    /// Code.
    pub fn code(&self) -> u8 {
        self.header[1]
    }

    /// Checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.header, CHECKSUM_OFFSET)
    }

    /// The 32 bits behind the checksum: MTU, pointer, identifier and sequence number, flags.
    pub fn body(&self) -> u32 {
        u32_at(self.header, 4)
    }

    /// Whether this reports an error (RFC 4443 §2.1).
    pub fn is_error(&self) -> bool {
        self.message_type() < 128
    }

    /// What follows the first 8 bytes; of an error: the packet that it is about, perhaps cut.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn echo() -> Vec<u8> {
        let builder = PacketBuilder::ipv6([1; 16], [2; 16], 64).icmpv6_echo_request(0x1234, 7);
        let mut bytes = Vec::new();
        builder.write(&mut bytes, b"odd").unwrap();
        bytes
    }

    #[test]
    fn message_of_a_packet() {
        let bytes = echo();
        let message = Message::of_packet(&ipv6::Packet::parse(&bytes).unwrap()).unwrap();
        assert_eq!((message.message_type(), message.code()), (ECHO_REQUEST, 0));
        assert_eq!(message.body(), 0x1234_0007);
        assert_eq!(message.payload(), b"odd");
        assert!(!message.is_error());
    }

    #[test]
    fn damage_is_found() {
        let mut bytes = echo();
        bytes[49] ^= 1;
        let packet = ipv6::Packet::parse(&bytes).unwrap();
        assert_eq!(Message::of_packet(&packet).unwrap_err(), ParseError::Checksum);
        bytes[6] = protocol::UDP;
        let packet = ipv6::Packet::parse(&bytes).unwrap();
        assert_eq!(Message::of_packet(&packet).unwrap_err(), ParseError::Type);
        assert_eq!(Message::parse(&[0; 7]).unwrap_err(), ParseError::Truncated);
    }
}

//! ICMP for IPv4 (RFC 792): the message header, types and codes.

use crate::ParseError;
use crate::bytes::{u16_at, u32_at};

/// Length of the header that all messages we handle share: type, code, checksum and a 32-bit body.
pub const HEADER_LEN: usize = 8;
/// Where the checksum field is in the header.
pub const CHECKSUM_OFFSET: usize = 2;

/// Echo Reply.
pub const ECHO_REPLY: u8 = 0;
/// Destination Unreachable; see [`code`].
pub const DESTINATION_UNREACHABLE: u8 = 3;
/// Source Quench (deprecated by RFC 6633).
pub const SOURCE_QUENCH: u8 = 4;
/// Redirect.
pub const REDIRECT: u8 = 5;
/// Echo Request; the body is identifier and sequence number.
pub const ECHO_REQUEST: u8 = 8;
/// Time Exceeded.
pub const TIME_EXCEEDED: u8 = 11;
/// Parameter Problem.
pub const PARAMETER_PROBLEM: u8 = 12;

/// Codes of Destination Unreachable.
pub mod code {
    /// Network unreachable.
    pub const NETWORK_UNREACHABLE: u8 = 0;
    /// Host unreachable.
    pub const HOST_UNREACHABLE: u8 = 1;
    /// Protocol unreachable.
    pub const PROTOCOL_UNREACHABLE: u8 = 2;
    /// Port unreachable.
    pub const PORT_UNREACHABLE: u8 = 3;
    /// Fragmentation needed and "don't fragment" set; the body's low half is the MTU (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Communication administratively prohibited (RFC 1812 §5.2.7.1).
    pub const ADMINISTRATIVELY_PROHIBITED: u8 = 13;
}

/// A message.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Message<'a> {
    /// Views `bytes`, an IPv4 packet's payload, as a message. The checksum is not verified.
    ///
    /// # Errors
    /// [`ParseError::Truncated`] when shorter than the header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (header, payload) = bytes.split_first_chunk().ok_or(ParseError::Truncated)?;
        Ok(Self { header, payload })
    }

    /// Type, such as [`DESTINATION_UNREACHABLE`].
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

    /// The 32 bits behind the checksum.
    pub fn body(&self) -> u32 {
        u32_at(self.header, 4)
    }

    /// Whether this reports an error (RFC 1122 §3.2.2).
    pub fn is_error(&self) -> bool {
        is_error(self.message_type())
    }

    /// What follows the first 8 bytes; of an error: the packet that it is about, perhaps cut.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

pub(crate) fn is_error(message_type: u8) -> bool {
    matches!(
        message_type,
        DESTINATION_UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_an_error() {
        let bytes = [3, 4, 0x12, 0x34, 0, 0, 0x05, 0x78, 0x45];
        let message = Message::parse(&bytes).unwrap();
        assert_eq!(
            (message.message_type(), message.code()),
            (DESTINATION_UNREACHABLE, code::FRAGMENTATION_NEEDED)
        );
        assert_eq!((message.checksum(), message.body()), (0x1234, 1400));
        assert!(message.is_error());
        assert_eq!(message.payload(), [0x45]);
        assert_eq!(Message::parse(&bytes[..7]).unwrap_err(), ParseError::Truncated);
    }
}

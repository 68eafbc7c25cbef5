//! ARP for IPv4 over Ethernet (RFC 826).

use std::net::Ipv4Addr;

use crate::ParseError;
use crate::bytes::{ipv4_at, u16_at};
use crate::ethernet::MacAddress;

/// Length of a message in bytes.
pub const LEN: usize = 28;
/// Ethernet, IPv4, and the lengths of their addresses.
const KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target's address?
    Request,
    /// The sender has it.
    Reply,
}

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub operation: Operation,
    /// The sender's link-layer address.
    pub sender_link_layer: MacAddress,
    /// The sender's address; 0.0.0.0 if it has none yet (RFC 5227).
    pub sender: Ipv4Addr,
    /// The target's link-layer address; of a request: anything.
    pub target_link_layer: MacAddress,
    /// The target's address.
    pub target: Ipv4Addr,
}

impl Message {
    /// Reads a message. What follows is padding of the link.
    ///
    /// # Errors
    /// [`ParseError::Truncated`]; [`ParseError::Type`] for other addresses or operations.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; LEN] = bytes.first_chunk().ok_or(ParseError::Truncated)?;
        let operation = match u16_at(bytes, 6) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return Err(ParseError::Type),
        };
        if bytes[..6] != KIND {
            return Err(ParseError::Type);
        }
        let link_layer = |at: usize| {
            let mut address = [0; 6];
            address.copy_from_slice(&bytes[at..at + 6]);
            MacAddress(address)
        };
        Ok(Message {
            operation,
            sender_link_layer: link_layer(8),
            sender: ipv4_at(bytes, 14),
            target_link_layer: link_layer(18),
            target: ipv4_at(bytes, 24),
        })
    }

    /// The message as sent.
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..6].copy_from_slice(&KIND);
        bytes[7] = if self.operation == Operation::Request { 1 } else { 2 };
        bytes[8..14].copy_from_slice(&self.sender_link_layer.0);
        bytes[14..18].copy_from_slice(&self.sender.octets());
        bytes[18..24].copy_from_slice(&self.target_link_layer.0);
        bytes[24..].copy_from_slice(&self.target.octets());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_networks_and_operations_are_refused() {
        let message = Message {
            operation: Operation::Request,
            sender_link_layer: MacAddress([2, 0, 0, 0, 0, 1]),
            sender: Ipv4Addr::new(192, 0, 2, 1),
            target_link_layer: MacAddress::default(),
            target: Ipv4Addr::new(192, 0, 2, 2),
        };
        let good = message.to_bytes();
        assert_eq!(Message::parse(&good[..27]), Err(ParseError::Truncated));
        for (at, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 3)] {
            let mut other = good;
            other[at] = value;
            assert_eq!(Message::parse(&other), Err(ParseError::Type));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(reply: bool, link_layer: [[u8; 6]; 2], addresses: [[u8; 4]; 2]) {
            let message = Message {
                operation: if reply { Operation::Reply } else { Operation::Request },
                sender_link_layer: MacAddress(link_layer[0]),
                sender: addresses[0].into(),
                target_link_layer: MacAddress(link_layer[1]),
                target: addresses[1].into(),
            };
            prop_assert_eq!(Message::parse(&message.to_bytes()), Ok(message));
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = Message::parse(&bytes);
        }
    }
}

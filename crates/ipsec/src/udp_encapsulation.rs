//! ESP in UDP, for a NAT on the way (RFC 3948).

use std::net::IpAddr;

use wire::checksum::Sum;
use wire::{flow, ipv4, ipv6, protocol, udp};

use crate::association::Spi;

/// The port of IKE and ESP behind a NAT (RFC 3948 §2).
pub const PORT: u16 = 4500;
/// Zeros where an SPI would be: the datagram is one of IKE (RFC 3948 §2.2).
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];
/// What keeps a NAT's state alive (RFC 3948 §2.3).
pub const KEEPALIVE: [u8; 1] = [0xff];

/// What a datagram to [`PORT`] has inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// An ESP packet.
    Esp,
    /// A message of IKE, behind the marker.
    Ike,
    /// Nothing; it is dropped.
    Keepalive,
    /// Neither: too short.
    Malformed,
}

/// What a datagram with this payload has inside.
pub fn classify(payload: &[u8]) -> Content {
    match payload.first_chunk() {
        Some(&NON_ESP_MARKER) => Content::Ike,
        Some(spi) if Spi(u32::from_be_bytes(*spi)).is_reserved() => Content::Malformed,
        Some(_) => Content::Esp,
        None if payload == KEEPALIVE => Content::Keepalive,
        None => Content::Malformed,
    }
}

/// Makes the TCP or UDP checksum of a packet in transport mode right for the addresses that a NAT has given it, where
/// `original` are those that it was made with (RFC 3948 §3.1.2).
pub(crate) fn correct_checksum(packet: &mut [u8], original: (IpAddr, IpAddr)) {
    let Ok(current) = flow::addresses(packet) else { return };
    let Some((protocol, offset)) = upper_layer(packet) else { return };
    let at = offset
        + match protocol {
            protocol::TCP => 16,
            protocol::UDP => udp::CHECKSUM_OFFSET,
            _ => return,
        };
    let Some([high, low]) = packet.get_mut(at..at + 2) else { return };
    let before = u16::from_be_bytes([*high, *low]);
    if before == 0 && protocol == protocol::UDP {
        return;
    }
    let of = |(source, destination)| sum(source) + sum(destination);
    let after = Sum::word(!before) + Sum::word(!of(original).value()) + of(current);
    let after = if protocol == protocol::UDP { after.udp_checksum() } else { after.checksum() };
    [*high, *low] = after.to_be_bytes();
}

fn sum(address: IpAddr) -> Sum {
    match address {
        IpAddr::V4(address) => Sum::of(&address.octets()),
        IpAddr::V6(address) => Sum::of(&address.octets()),
    }
}

fn upper_layer(packet: &[u8]) -> Option<(u8, usize)> {
    if let Ok(view) = ipv4::Packet::parse(packet) {
        return Some((view.protocol(), view.header().len()));
    }
    let upper = ipv6::Packet::parse(packet).ok()?.upper_layer().ok()?;
    Some((upper.protocol, upper.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_to_port_4500_are_told_apart() {
        assert_eq!(classify(&[0, 0, 1, 0, 9]), Content::Esp);
        assert_eq!(classify(&[0, 0, 0, 0, 9]), Content::Ike);
        assert_eq!(classify(&[0, 0, 0, 9, 9]), Content::Malformed);
        assert_eq!(classify(&[0xff]), Content::Keepalive);
        assert_eq!(classify(&[0xff, 0xff]), Content::Malformed);
        assert_eq!(classify(&[]), Content::Malformed);
    }
}

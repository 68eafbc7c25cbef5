//! ESP in UDP, for a NAT on the way (RFC 3948).

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

//! The virtio-net header that precedes each packet of a TUN device opened with `IFF_VNET_HDR`
//! (virtio 1.2 §5.1.6, without the `num_buffers` field: 10 bytes).
//!
//! A TUN device speaks the legacy dialect: integers are in the machine's own byte order.

use crate::checksum::TransportChecksum;

/// Length of the header in bytes.
pub const LEN: usize = 10;

/// Flag: the transport checksum is partial; who receives the packet completes it from `csum_start` on.
pub const NEEDS_CSUM: u8 = 1;
/// Flag: the transport checksum has been verified.
pub const DATA_VALID: u8 = 2;

/// One packet, not to be segmented.
pub const GSO_NONE: u8 = 0;
/// TCP over IPv4, to become segments of `gso_size` payload bytes.
pub const GSO_TCPV4: u8 = 1;
/// UDP to be cut into IP fragments; deprecated, never offered by us.
pub const GSO_UDP: u8 = 3;
/// TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// UDP over either IP, to become datagrams of `gso_size` payload bytes.
pub const GSO_UDP_L4: u8 = 5;
/// Or'ed to a TCP type: the packet carries CWR, which belongs to the first segment alone.
pub const GSO_ECN: u8 = 0x80;

/// What the kernel says of a packet that it hands over, or we of one that we hand to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    /// [`NEEDS_CSUM`], [`DATA_VALID`].
    pub flags: u8,
    /// One of the `GSO_` constants, perhaps with [`GSO_ECN`].
    pub gso_type: u8,
    /// Length of IP and transport headers together, in bytes; a hint.
    pub hdr_len: u16,
    /// Payload bytes of each segment but the last.
    pub gso_size: u16,
    /// Where the bytes covered by the transport checksum begin, from the IP header's start.
    pub csum_start: u16,
    /// Where the checksum field is, from `csum_start`.
    pub csum_offset: u16,
}

impl Header {
    /// A complete packet with complete checksums.
    pub const NONE: Self =
        Self { flags: 0, gso_type: GSO_NONE, hdr_len: 0, gso_size: 0, csum_start: 0, csum_offset: 0 };

    /// Reads the header; any 10 bytes are one.
    pub const fn from_bytes(bytes: &[u8; LEN]) -> Self {
        let [flags, gso_type, h0, h1, g0, g1, s0, s1, o0, o1] = *bytes;
        Self {
            flags,
            gso_type,
            hdr_len: u16::from_ne_bytes([h0, h1]),
            gso_size: u16::from_ne_bytes([g0, g1]),
            csum_start: u16::from_ne_bytes([s0, s1]),
            csum_offset: u16::from_ne_bytes([o0, o1]),
        }
    }

    /// The header as the kernel wants it.
    pub const fn to_bytes(self) -> [u8; LEN] {
        let [h0, h1] = self.hdr_len.to_ne_bytes();
        let [g0, g1] = self.gso_size.to_ne_bytes();
        let [s0, s1] = self.csum_start.to_ne_bytes();
        let [o0, o1] = self.csum_offset.to_ne_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    /// State of the packet's transport checksum field.
    pub const fn transport_checksum(self) -> TransportChecksum {
        if self.flags & NEEDS_CSUM == 0 { TransportChecksum::Complete } else { TransportChecksum::Partial }
    }

    /// Whether the packet stands for several segments.
    pub const fn is_gso(self) -> bool {
        self.gso_type & !GSO_ECN != GSO_NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        let header = Header {
            flags: NEEDS_CSUM,
            gso_type: GSO_TCPV6 | GSO_ECN,
            hdr_len: 60,
            gso_size: 1412,
            csum_start: 40,
            csum_offset: 16,
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes[..2], [1, 0x84]);
        assert_eq!(bytes[2..4], 60u16.to_ne_bytes());
        assert_eq!(Header::from_bytes(&bytes), header);
        assert!(header.is_gso());
        assert_eq!(header.transport_checksum(), TransportChecksum::Partial);
    }

    #[test]
    fn none_is_ten_zeros() {
        assert_eq!(Header::NONE.to_bytes(), [0; LEN]);
        assert!(!Header::NONE.is_gso());
        assert_eq!(Header::NONE.transport_checksum(), TransportChecksum::Complete);
    }
}

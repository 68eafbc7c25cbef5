//! Explicit congestion notification (RFC 3168), and how a tunnel carries it (RFC 6040).

use crate::bytes::{put_u16, u16_at};
use crate::{checksum, ipv4, ipv6};

/// The two low bits of the traffic class or type of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Ecn {
    /// The transport does not take part.
    #[default]
    NotEct = 0,
    /// ECN-capable transport, ECT(1).
    Ect1 = 1,
    /// ECN-capable transport, ECT(0).
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// The codepoint in the two low bits of `traffic_class`; the others are ignored.
    pub const fn from_bits(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// The codepoint as the two low bits of a byte.
    pub const fn bits(self) -> u8 {
        self as u8
    }
}

/// The codepoint of an IPv4 or IPv6 packet; `None` when it is neither.
pub fn get(packet: &[u8]) -> Option<Ecn> {
    match packet {
        [first, second, ..] if first >> 4 == 6 && packet.len() >= ipv6::HEADER_LEN => {
            Some(Ecn::from_bits(second >> 4))
        }
        [first, second, ..] if first >> 4 == 4 && packet.len() >= ipv4::HEADER_LEN => {
            Some(Ecn::from_bits(*second))
        }
        _ => None,
    }
}

/// Sets the codepoint of an IPv4 or IPv6 packet, with the IPv4 header checksum. `packet` may be the IP header
/// alone. What is neither is left alone, and `false` returned.
pub fn set(packet: &mut [u8], ecn: Ecn) -> bool {
    let Some(current) = get(packet) else { return false };
    if current == ecn {
        return true;
    }
    if packet[0] >> 4 == 6 {
        packet[1] = packet[1] & !0x30 | ecn.bits() << 4;
        return true;
    }
    let old = u16_at(packet, 0);
    packet[1] = packet[1] & !3 | ecn.bits();
    let checksum = checksum::update(u16_at(packet, 10), old, u16_at(packet, 0));
    put_u16(packet, 10, checksum);
    true
}

/// The outer codepoint for an inner one, normal mode (RFC 6040 §4.1): a copy.
pub const fn encapsulate(inner: Ecn) -> Ecn {
    inner
}

/// The outer codepoint in compatibility mode, for a peer that does not decapsulate as here: always Not-ECT.
pub const fn encapsulate_compatibility(_inner: Ecn) -> Ecn {
    Ecn::NotEct
}

/// The packet must be dropped: congestion was marked outside, and there is no other way to tell inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("congestion experienced outside, transport inside not ECN-capable")]
pub struct CongestionDrop;

/// The codepoint of the packet that leaves the tunnel (RFC 6040 §4.2, figure 4).
///
/// # Errors
/// [`CongestionDrop`] for CE outside and Not-ECT inside.
pub const fn decapsulate(outer: Ecn, inner: Ecn) -> Result<Ecn, CongestionDrop> {
    match (inner, outer) {
        (Ecn::NotEct, Ecn::Ce) => Err(CongestionDrop),
        (Ecn::NotEct, _) => Ok(Ecn::NotEct),
        (Ecn::Ce, _) | (_, Ecn::Ce) => Ok(Ecn::Ce),
        (Ecn::Ect0, Ecn::Ect1) => Ok(Ecn::Ect1),
        (inner, _) => Ok(inner),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Ecn::{Ce, Ect0, Ect1, NotEct};

    #[test]
    fn decapsulation_table_of_rfc_6040() {
        let outer = [NotEct, Ect0, Ect1, Ce];
        let table = [
            (NotEct, [Some(NotEct), Some(NotEct), Some(NotEct), None]),
            (Ect0, [Some(Ect0), Some(Ect0), Some(Ect1), Some(Ce)]),
            (Ect1, [Some(Ect1), Some(Ect1), Some(Ect1), Some(Ce)]),
            (Ce, [Some(Ce), Some(Ce), Some(Ce), Some(Ce)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in outer.into_iter().zip(row) {
                assert_eq!(decapsulate(outer, inner).ok(), expected, "outer {outer:?}, inner {inner:?}");
            }
        }
    }

    #[test]
    fn ipv6_keeps_everything_else() {
        let mut packet = [0; ipv6::HEADER_LEN];
        packet[..4].copy_from_slice(&0x6b91_2345_u32.to_be_bytes());
        assert_eq!(get(&packet), Some(Ect1));
        assert!(set(&mut packet, Ce));
        assert_eq!(packet[..4], 0x6bb1_2345_u32.to_be_bytes());
        assert_eq!(get(&packet), Some(Ce));
    }

    #[test]
    fn ipv4_keeps_its_checksum_right() {
        let header = ipv4::Header {
            type_of_service: 0xb8,
            total_length: 20,
            identification: 1,
            dont_fragment: true,
            time_to_live: 64,
            protocol: 17,
            source: [192, 0, 2, 1].into(),
            destination: [192, 0, 2, 2].into(),
        };
        let mut packet = header.to_bytes();
        for ecn in [Ect0, Ce, Ect1, NotEct, NotEct] {
            assert!(set(&mut packet, ecn));
            assert_eq!(packet, ipv4::Header { type_of_service: 0xb8 | ecn.bits(), ..header }.to_bytes());
        }
    }

    #[test]
    fn what_is_not_ip_is_left_alone() {
        for mut bytes in [vec![], vec![0x60], vec![0x45; 19], vec![0x60; 39], vec![0x70; 60]] {
            let before = bytes.clone();
            assert_eq!(get(&bytes), None);
            assert!(!set(&mut bytes, Ce));
            assert_eq!(bytes, before);
        }
    }
}

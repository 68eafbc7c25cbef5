//! Clamping of the TCP maximum segment size (RFC 9293 §3.7.1): so that the two ends of a connection through
//! the tunnel agree on segments that fit, without waiting for Packet Too Big.

use crate::bytes::{put_u16, u16_at};
use crate::checksum::{self, TransportChecksum};
use crate::{ipv4, ipv6, protocol, tcp};

/// The segment size that fits IPv6 packets of `mtu` bytes.
pub const fn for_ipv6_mtu(mtu: u16) -> u16 {
    mtu.saturating_sub((ipv6::HEADER_LEN + tcp::HEADER_LEN) as u16)
}

/// The segment size that fits IPv4 packets of `mtu` bytes.
pub const fn for_ipv4_mtu(mtu: u16) -> u16 {
    mtu.saturating_sub((ipv4::HEADER_LEN + tcp::HEADER_LEN) as u16)
}

/// Lowers the maximum segment size that a SYN announces to `max_mss`, in place.
///
/// `state` says what the packet's TCP checksum field holds: a complete checksum is corrected, a partial one
/// does not cover the option and stays. Returns whether the packet was changed; anything but a SYN with a
/// greater value is left alone.
pub fn clamp(packet: &mut [u8], max_mss: u16, state: TransportChecksum) -> bool {
    let Some(transport) = tcp_offset(packet) else { return false };
    let segment = &mut packet[transport..];
    // The cheap test first: nearly every packet ends here.
    if segment.get(13).is_none_or(|flags| flags & tcp::SYN == 0) {
        return false;
    }
    let Ok(view) = tcp::Segment::parse(segment) else { return false };
    let option = view
        .options()
        .find(|option| option.kind == tcp::TcpOption::MAXIMUM_SEGMENT_SIZE && option.data.len() == 2);
    let Some(offset) = option.map(|option| option.data_offset) else { return false };
    let old = u16_at(segment, offset);
    if old <= max_mss {
        return false;
    }
    put_u16(segment, offset, max_mss);
    if state == TransportChecksum::Complete {
        // Padding may put the option at an odd offset, where it straddles two words.
        let (old, new) =
            if offset % 2 == 0 { (old, max_mss) } else { (old.swap_bytes(), max_mss.swap_bytes()) };
        let checksum = u16_at(segment, tcp::CHECKSUM_OFFSET);
        put_u16(segment, tcp::CHECKSUM_OFFSET, checksum::update(checksum, old, new));
    }
    true
}

/// Where the TCP header of an unfragmented packet, or of a first fragment, begins.
fn tcp_offset(packet: &[u8]) -> Option<usize> {
    match packet.first()? >> 4 {
        6 => {
            let upper = ipv6::Packet::parse(packet).ok()?.upper_layer().ok()?;
            (upper.protocol == protocol::TCP && !upper.is_later_fragment()).then_some(upper.offset)
        }
        4 => {
            let view = ipv4::Packet::parse(packet).ok()?;
            (view.protocol() == protocol::TCP && view.fragment_offset() == 0).then_some(view.header().len())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, TcpOptionElement::*};
    use proptest::prelude::*;

    fn syn(ipv6: bool, mss: u16, options_before: usize) -> Vec<u8> {
        let mut options = vec![Noop; options_before];
        options.push(MaximumSegmentSize(mss));
        let builder = if ipv6 {
            PacketBuilder::ipv6([1; 16], [2; 16], 64)
        } else {
            PacketBuilder::ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64)
        };
        let mut bytes = Vec::new();
        let tcp = builder.tcp(40000, 443, 7, 64240).syn().options(&options).unwrap();
        tcp.write(&mut bytes, b"early").unwrap();
        bytes
    }

    #[test]
    fn a_greater_value_is_lowered_at_even_and_odd_offsets() {
        for ipv6 in [true, false] {
            for before in 0..4 {
                let mut packet = syn(ipv6, 8940, before);
                assert!(clamp(&mut packet, 1340, TransportChecksum::Complete));
                assert_eq!(packet, syn(ipv6, 1340, before), "as if sent so");
                assert!(!clamp(&mut packet, 1340, TransportChecksum::Complete));
            }
        }
    }

    #[test]
    fn a_partial_checksum_is_not_touched() {
        let mut packet = syn(true, 1460, 0);
        let before = packet.clone();
        assert!(clamp(&mut packet, 1340, TransportChecksum::Partial));
        assert_eq!(packet[56..58], before[56..58]);
        assert_eq!(packet[62..64], 1340u16.to_be_bytes());
    }

    #[test]
    fn all_but_a_syn_is_left_alone() {
        let mut no_syn = syn(true, 1460, 0);
        no_syn[53] = tcp::ACK;
        let mut later_fragment = syn(false, 1460, 0);
        later_fragment[7] = 1;
        let mut no_option = syn(true, 1460, 0);
        no_option[60] = tcp::TcpOption::SACK;
        for mut packet in [no_syn, later_fragment, no_option, syn(true, 1200, 0)] {
            let before = packet.clone();
            assert!(!clamp(&mut packet, 1340, TransportChecksum::Complete));
            assert_eq!(packet, before);
        }
    }

    #[test]
    fn sizes_for_an_mtu() {
        assert_eq!((for_ipv6_mtu(1464), for_ipv4_mtu(1432)), (1404, 1392));
        assert_eq!(for_ipv6_mtu(10), 0);
    }

    proptest! {
        #[test]
        fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), first in 0x40u8..0x70) {
            if let Some(byte) = bytes.first_mut() { *byte = first; }
            clamp(&mut bytes, 500, TransportChecksum::Complete);
        }
    }
}

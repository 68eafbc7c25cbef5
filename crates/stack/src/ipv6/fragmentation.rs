//! Fragmentation of packets that are too large for their path (RFC 8200 §4.5), with identifications that an attacker
//! cannot guess (RFC 7739 §5.3).

use std::net::Ipv6Addr;

use wire::ipv6::{HEADER_LEN, Packet};
use wire::protocol;

use crate::random::{Key, Random};

const FRAGMENT_HEADER_LEN: usize = 8;
/// Counters of identifications. More of them leak less of how much is sent to others (RFC 7739 §5.3).
const COUNTERS: usize = 64;

/// Chooses identifications: a keyed hash of both addresses, plus a counter that few destinations share. So they grow for
/// each destination, do not come again soon, and tell others nothing.
pub struct Identifications {
    offset: Key,
    counter: Key,
    counters: [u32; COUNTERS],
}

impl Identifications {
    /// With secrets of its own.
    pub fn new(random: &mut Random) -> Self {
        Identifications {
            offset: Key::new(random.octets()),
            counter: Key::new(random.octets()),
            counters: std::array::from_fn(|_| random.u32()),
        }
    }

    /// The next one from `source` to `destination`.
    pub fn next(&mut self, source: Ipv6Addr, destination: Ipv6Addr) -> u32 {
        let (source, destination) = (source.octets(), destination.octets());
        let parts = [&source[..], &destination[..]];
        let slot = self.counter.hash(&parts) as usize % COUNTERS;
        let counter = &mut self.counters[slot];
        *counter = counter.wrapping_add(1);
        counter.wrapping_add(self.offset.hash(&parts) as u32)
    }
}

/// The fragments of `packet`, none longer than `mtu`, each as parts that follow each other: `emit` is called for each with
/// the headers that all have, and the data. The MTU is that of a link, so at least 1280.
///
/// Returns whether it could be done: not for a packet whose headers alone fill the MTU.
pub fn fragment(
    packet: &Packet<'_>,
    mtu: usize,
    identification: u32,
    mut emit: impl FnMut(&[u8], &[u8]),
) -> bool {
    let Some((length, next_header, pointer)) = unfragmentable(packet) else { return false };
    let (head, data) = packet.payload().split_at(length - HEADER_LEN);
    let Some(room) = mtu.checked_sub(length + FRAGMENT_HEADER_LEN).map(|room| room / 8 * 8) else {
        return false;
    };
    if room == 0 {
        return false;
    }
    // Headers are few and short: one vector for all fragments of a packet.
    let mut headers = Vec::with_capacity(length + FRAGMENT_HEADER_LEN);
    headers.extend_from_slice(packet.header());
    headers.extend_from_slice(head);
    headers[pointer] = protocol::FRAGMENT;
    headers.extend([next_header, 0, 0, 0]);
    headers.extend(identification.to_be_bytes());
    let mut chunks = data.chunks(room).enumerate().peekable();
    while let Some((index, chunk)) = chunks.next() {
        let offset = (index * room) as u16 | u16::from(chunks.peek().is_some());
        headers[length + 2..length + 4].copy_from_slice(&offset.to_be_bytes());
        let payload_length = (length - HEADER_LEN + FRAGMENT_HEADER_LEN + chunk.len()) as u16;
        headers[4..6].copy_from_slice(&payload_length.to_be_bytes());
        emit(&headers, chunk);
    }
    true
}

/// The headers that each fragment must have, up to a routing header or else Hop-by-Hop Options: their length, the type of
/// what follows, and where that is named.
fn unfragmentable(packet: &Packet<'_>) -> Option<(usize, u8, usize)> {
    let payload = packet.payload();
    let (mut next, mut length, mut pointer) = (packet.next_header(), HEADER_LEN, 6);
    let mut found = (length, next, pointer);
    while matches!(next, protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS | protocol::ROUTING) {
        let [following, units, ..] = payload.get(length - HEADER_LEN..)? else { return None };
        let kind = next;
        (next, pointer) = (*following, length);
        length += (usize::from(*units) + 1) * 8;
        if kind != protocol::DESTINATION_OPTIONS {
            found = (length, next, pointer);
        }
    }
    (found.0 - HEADER_LEN <= payload.len()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::ipv6::Header;

    fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let header = Header {
            traffic_class: 3,
            flow_label: 7,
            payload_length: payload.len() as u16,
            next_header,
            hop_limit: 64,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        };
        [&header.to_bytes()[..], payload].concat()
    }

    fn fragments(packet: &[u8], mtu: usize) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let packet = Packet::parse(packet).unwrap();
        assert!(fragment(&packet, mtu, 0x0102_0304, |head, data| out.push([head, data].concat())));
        out
    }

    #[test]
    fn fragments_are_as_large_as_the_mtu_allows_in_units_of_8_octets() {
        let data: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
        let sent = fragments(&packet(protocol::UDP, &data), 1280);
        assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [1280, 1280, 40 + 8 + 3000 - 2 * 1232]);
        let mut together: Vec<u8> = Vec::new();
        for (index, bytes) in sent.iter().enumerate() {
            let view = Packet::parse(bytes).unwrap();
            assert_eq!(
                (view.traffic_class(), view.flow_label(), view.payload().len() + 40),
                (3, 7, bytes.len())
            );
            let upper = view.upper_layer().unwrap();
            let fragment = upper.fragment.unwrap();
            assert_eq!((upper.protocol, fragment.identification), (protocol::UDP, 0x0102_0304));
            assert_eq!((usize::from(fragment.offset), fragment.more), (together.len(), index < 2));
            together.extend(&bytes[48..]);
        }
        assert_eq!(together, data);
    }

    #[test]
    fn headers_for_routers_are_in_each_fragment_and_options_for_the_destination_are_not() {
        let mut payload = vec![protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0];
        payload.extend([protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
        payload.extend([9; 2000]);
        for bytes in fragments(&packet(protocol::HOP_BY_HOP, &payload), 1280) {
            assert_eq!(bytes[6], protocol::HOP_BY_HOP);
            assert_eq!(bytes[40], protocol::FRAGMENT);
            assert_eq!(bytes[48], protocol::DESTINATION_OPTIONS);
        }
    }

    #[test]
    fn rfc_7739_identifications_of_two_destinations_have_nothing_in_common() {
        let mut ids = Identifications::new(&mut Random::new([3; 32]));
        let at = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
        let first = ids.next(at(1), at(2));
        assert_eq!(ids.next(at(1), at(2)), first.wrapping_add(1));
        assert!(ids.next(at(1), at(3)).abs_diff(first) > 1000);
    }
}

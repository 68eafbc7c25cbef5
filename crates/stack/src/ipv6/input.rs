//! The header chain of a received packet, parsed once into a small description (RFC 8200 §4).
//!
//! Where no extension header is, which is nearly always, this is one comparison. Extension headers are taken in any
//! order, as a receiver must (RFC 8200 §4.1), but Hop-by-Hop Options only first, and no more of them than
//! [`MAX_EXTENSION_HEADERS`].

use wire::ipv6::{self, Fragment, HEADER_LEN, MAX_EXTENSION_HEADERS, Packet};
use wire::protocol;

use super::options;
use super::refusal::{Refusal, erroneous, unknown};
use crate::DropReason;

/// What the headers of a packet lead to. Offsets count from the start of the IPv6 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// What is at `offset`.
    pub next: Next,
    /// Where it begins.
    pub offset: usize,
    /// Where the field is that names it.
    pub pointer: usize,
    /// Whether the packet came as a fragment, if only as a single one (RFC 6946).
    pub fragmented: bool,
}

/// What a header chain leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// An upper-layer protocol, known here or not.
    Upper(u8),
    /// A Fragment header of a packet in several parts.
    Fragment(Fragment),
    /// ESP or AH, whichever the number says.
    Security(u8),
}

/// Parses the chain of `packet`.
///
/// # Errors
/// When the packet must go no further: a malformed header, a routing header that is not used up, an option that must be
/// known, nothing behind the headers.
pub fn parse(packet: &Packet<'_>) -> Result<Chain, Refusal> {
    let next = packet.next_header();
    if matches!(next, protocol::TCP | protocol::UDP | protocol::ICMPV6) {
        return Ok(Chain { next: Next::Upper(next), offset: HEADER_LEN, pointer: 6, fragmented: false });
    }
    walk(packet, next)
}

fn walk(view: &Packet<'_>, first: u8) -> Result<Chain, Refusal> {
    let malformed = Refusal::Silent(DropReason::MalformedHeader);
    let payload = view.payload();
    let (mut kind, mut offset, mut pointer, mut fragmented) = (first, HEADER_LEN, 6, false);
    for _ in 0..=MAX_EXTENSION_HEADERS {
        let rest = payload.get(offset - HEADER_LEN..).ok_or(malformed)?;
        let header = rest.first_chunk::<8>();
        let next = match kind {
            protocol::HOP_BY_HOP if offset == HEADER_LEN => None,
            protocol::HOP_BY_HOP => return Err(unknown(pointer)),
            protocol::DESTINATION_OPTIONS | protocol::ROUTING => None,
            protocol::FRAGMENT => {
                let [_, _, high, low, identification @ ..] = *header.ok_or(malformed)?;
                let field = u16::from_be_bytes([high, low]);
                let fragment = Fragment {
                    offset: field & !7,
                    more: field & 1 == 1,
                    identification: u32::from_be_bytes(identification),
                };
                fragmented = true;
                if fragment.offset != 0 || fragment.more { Some(Next::Fragment(fragment)) } else { None }
            }
            protocol::ESP | protocol::AUTHENTICATION => Some(Next::Security(kind)),
            protocol::NO_NEXT_HEADER => return Err(Refusal::Silent(DropReason::NoNextHeader)),
            upper => Some(Next::Upper(upper)),
        };
        if let Some(next) = next {
            return Ok(Chain { next, offset, pointer, fragmented });
        }
        let [next_header, units, _, segments_left, ..] = *header.ok_or(malformed)?;
        let length = if kind == protocol::FRAGMENT { 8 } else { (usize::from(units) + 1) * 8 };
        let whole = rest.get(..length).ok_or(malformed)?;
        match kind {
            // No type is known here; type 0 must not be (RFC 5095). Used up, a header of any type is skipped.
            protocol::ROUTING if segments_left != 0 => {
                return Err(erroneous(DropReason::UnknownNextHeader, offset + 2));
            }
            protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => {
                options::check(whole, offset)?;
            }
            _ => {}
        }
        (kind, pointer, offset) = (next_header, offset, offset + length);
    }
    Err(Refusal::Silent(DropReason::TooManyHeaders))
}

/// Whether a first fragment holds the whole header chain, with the upper layer's own header (RFC 7112): `bytes` is what
/// follows the Fragment header, a header of type `next_header` first.
pub(super) fn holds_all_headers(next_header: u8, bytes: &[u8]) -> bool {
    ipv6::upper_layer(next_header, bytes).is_ok_and(|upper| {
        let least = match upper.protocol {
            protocol::TCP => 20,
            protocol::UDP | protocol::ICMPV6 | protocol::ESP => 8,
            protocol::IPV6 => HEADER_LEN,
            _ => 0,
        };
        bytes.len() >= upper.offset + least
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::icmp_error::Reason;

    fn packet(next_header: u8, payload: &[u8]) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: payload.len() as u16,
            next_header,
            hop_limit: 64,
            source: "2001:db8::1".parse().unwrap(),
            destination: "2001:db8::2".parse().unwrap(),
        };
        [&header.to_bytes()[..], payload].concat()
    }

    fn chain(next_header: u8, payload: &[u8]) -> Result<Chain, Refusal> {
        parse(&Packet::parse(&packet(next_header, payload)).unwrap())
    }

    fn upper(protocol: u8, offset: usize, pointer: usize) -> Result<Chain, Refusal> {
        Ok(Chain { next: Next::Upper(protocol), offset, pointer, fragmented: false })
    }

    #[test]
    fn a_packet_without_extension_headers_is_taken_at_once() {
        assert_eq!(chain(protocol::TCP, &[0; 20]), upper(protocol::TCP, 40, 6));
    }

    #[test]
    fn rfc_8200_4_1_headers_are_taken_in_any_order() {
        let mut payload = vec![protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0];
        payload.extend([protocol::ROUTING, 0, 1, 4, 0, 0, 0, 0]);
        payload.extend([protocol::DESTINATION_OPTIONS, 0, 4, 0, 0, 0, 0, 0]);
        payload.extend([protocol::UDP, 0, 1, 4, 0, 0, 0, 0]);
        payload.extend([0; 8]);
        assert_eq!(chain(protocol::HOP_BY_HOP, &payload), upper(protocol::UDP, 72, 64));
    }

    #[test]
    fn rfc_8200_4_hop_by_hop_options_are_first_or_unknown() {
        let payload = [[protocol::HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0], [protocol::UDP, 0, 1, 4, 0, 0, 0, 0]];
        assert_eq!(chain(protocol::DESTINATION_OPTIONS, payload.as_flattened()), Err(unknown(40)));
    }

    #[test]
    fn rfc_8200_4_2_the_pointer_of_an_unknown_option_counts_from_the_ipv6_header() {
        let payload = [protocol::UDP, 0, 0x9e, 0, 0, 0, 0, 0];
        let reason = Reason::UnrecognizedOption { pointer: 42, even_if_multicast: true };
        let refusal = Refusal::Answered(DropReason::UnknownOption, reason);
        assert_eq!(chain(protocol::HOP_BY_HOP, &payload), Err(refusal));
    }

    #[test]
    fn rfc_8200_4_4_and_rfc_5095_a_routing_header_is_skipped_or_refused_at_its_type() {
        for routing_type in [0, 2, 4, 253] {
            let used_up = [protocol::UDP, 0, routing_type, 0, 0, 0, 0, 0];
            assert_eq!(chain(protocol::ROUTING, &used_up), upper(protocol::UDP, 48, 40));
            let left = [protocol::UDP, 0, routing_type, 1, 0, 0, 0, 0];
            let refusal = erroneous(DropReason::UnknownNextHeader, 42);
            assert_eq!(chain(protocol::ROUTING, &left), Err(refusal));
        }
    }

    #[test]
    fn rfc_6946_an_atomic_fragment_is_a_packet_by_itself() {
        let atomic = chain(protocol::FRAGMENT, &[protocol::UDP, 0, 0, 0, 0, 0, 0, 7]).unwrap();
        assert_eq!(atomic, Chain { fragmented: true, ..upper(protocol::UDP, 48, 40).unwrap() });
        let first = chain(protocol::FRAGMENT, &[protocol::UDP, 0, 0, 1, 0, 0, 0, 7]).unwrap();
        let fragment = Fragment { offset: 0, more: true, identification: 7 };
        assert_eq!((first.next, first.offset), (Next::Fragment(fragment), 40));
    }

    #[test]
    fn security_headers_and_the_end_are_told_apart() {
        assert_eq!(chain(protocol::ESP, &[0; 16]).unwrap().next, Next::Security(protocol::ESP));
        let nothing = Refusal::Silent(DropReason::NoNextHeader);
        assert_eq!(chain(protocol::NO_NEXT_HEADER, &[]), Err(nothing));
    }

    #[test]
    fn headers_that_leave_the_packet_and_floods_of_them_are_refused() {
        let malformed = Err(Refusal::Silent(DropReason::MalformedHeader));
        assert_eq!(chain(protocol::HOP_BY_HOP, &[protocol::UDP, 1, 1, 4, 0, 0, 0, 0]), malformed);
        assert_eq!(chain(protocol::DESTINATION_OPTIONS, &[protocol::UDP]), malformed);
        let many = [protocol::DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(9);
        let refusal = Refusal::Silent(DropReason::TooManyHeaders);
        assert_eq!(chain(protocol::DESTINATION_OPTIONS, &many), Err(refusal));
    }

    #[test]
    fn rfc_7112_a_first_fragment_holds_all_headers() {
        let options = [protocol::UDP, 0, 1, 4, 0, 0, 0, 0];
        assert!(holds_all_headers(protocol::DESTINATION_OPTIONS, &[&options[..], &[0; 8]].concat()));
        assert!(!holds_all_headers(protocol::DESTINATION_OPTIONS, &options));
        assert!(!holds_all_headers(protocol::TCP, &[0; 16]));
    }

    proptest! {
        #[test]
        fn any_packet_is_parsed_without_panic(
            next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 50, 51, 58, 59, 60, 135]),
            payload in proptest::collection::vec(any::<u8>(), 0..120),
        ) {
            if let Ok(chain) = chain(next, &payload) {
                prop_assert!(chain.offset <= HEADER_LEN + payload.len() && chain.pointer < chain.offset);
            }
        }
    }
}

//! What has become of a packet: which fields are others, and which octets besides.

use std::fmt::Write as _;
use std::ops::Range;

use wire::checksum::TransportChecksum;

use crate::kind::{Kind, Value, read_bits};
use crate::packet::Packet;
use crate::protocol::Protocols;
use crate::store::{Header, Store};

/// Octets that are shown of one difference.
const SHOWN: usize = 32;

/// Something that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// A field (`packet_ip ttl`), or octets by their numbers, from 0 on.
    pub what: String,
    /// What it was: as `get` gives it, octets in hexadecimal digits.
    pub before: String,
    /// What it is.
    pub after: String,
}

/// What differs between two frames, from the outermost header in: fields first, then octets that are in none of these. What a
/// checksum covers and what it is are both told.
///
/// `link` is how many octets at the beginning are made up: those that are told are counted behind them.
#[must_use]
pub fn differences(protocols: &Protocols, before: &[u8], after: &[u8], link: usize) -> Vec<Difference> {
    if before == after {
        return Vec::new();
    }
    let (old, new) = (headers(protocols, before), headers(protocols, after));
    let same: Vec<&Header> =
        old.iter().zip(&new).take_while(|(one, other)| one == other).map(|(one, _)| one).collect();
    let mut told: Vec<Range<usize>> = Vec::new();
    let mut all = Vec::new();
    for header in &same {
        let Some(protocol) = protocols.get(header.protocol) else { continue };
        let changed: Vec<usize> = (0..protocol.fields.len())
            .filter(|at| protocol.payload != Some(*at) && differs(before, after, &header.fields[*at]))
            .collect();
        for at in &changed {
            let bits = &header.fields[*at];
            // Of a field and a part of it, the part says it better.
            let has_part = |other: &usize| {
                let part = &header.fields[*other];
                part.len() < bits.len() && bits.start <= part.start && part.end <= bits.end
            };
            if changed.iter().any(has_part) {
                continue;
            }
            let field = &protocol.fields[*at];
            let value = |bytes: &[u8]| shown(bytes, bits, field.kind());
            let what = format!("{} {}", protocol.name, field.name);
            all.push(Difference { what, before: value(before), after: value(after) });
            told.push(bits.clone());
        }
    }
    let is_told = |octet: usize| told.iter().any(|bits| bits.start <= octet * 8 && octet * 8 + 8 <= bits.end);
    if before.len() == after.len() {
        let mut at = 0;
        while at < before.len() {
            let begin = at;
            while at < before.len() && before[at] != after[at] && !is_told(at) {
                at += 1;
            }
            // What lies in a field in part has been told, too.
            if at > begin && !told.iter().any(|bits| bits.start / 8 <= begin && at <= bits.end.div_ceil(8)) {
                all.push(octets(begin, &before[begin..at], &after[begin..at], link));
            }
            at = at.max(begin + 1);
        }
        return all;
    }
    // Octets have moved: what is before them, and behind them, is the same.
    let from = same.last().map_or(0, |header| end_of(header) / 8);
    let (before, after) = (&before[from.min(before.len())..], &after[from.min(after.len())..]);
    let equal = |pair: &(&u8, &u8)| pair.0 == pair.1;
    let first = before.iter().zip(after).take_while(equal).count();
    let (before, after) = (&before[first..], &after[first..]);
    let last = before.iter().rev().zip(after.iter().rev()).take_while(equal).count();
    let (before, after) = (&before[..before.len() - last], &after[..after.len() - last]);
    all.push(octets(from + first, before, after, link));
    all
}

fn headers(protocols: &Protocols, frame: &[u8]) -> Vec<Header> {
    let Some(outermost) = protocols.known("packet_eth") else { return Vec::new() };
    let packet = Packet::of_frame(frame.to_vec(), TransportChecksum::Complete);
    Store::of_packet(packet).0.headers(protocols, outermost)
}

/// Where the fields end that have a length of their own: what is behind may have moved.
fn end_of(header: &Header) -> usize {
    header.fields.iter().map(|bits| bits.start).max().unwrap_or(0)
}

fn differs(before: &[u8], after: &[u8], bits: &Range<usize>) -> bool {
    let octets = bits.start / 8..bits.end.div_ceil(8);
    let (Some(one), Some(other)) = (before.get(octets.clone()), after.get(octets)) else { return false };
    if bits.is_empty() || one == other {
        return false;
    }
    match bits.len() {
        length @ 1..=64 => {
            read_bits(before, bits.start, length as u32) != read_bits(after, bits.start, length as u32)
        }
        _ => true,
    }
}

fn shown(bytes: &[u8], bits: &Range<usize>, kind: Kind) -> String {
    let number = || read_bits(bytes, bits.start, bits.len() as u32);
    match kind {
        Kind::Int if bits.len() <= 64 => number().to_string(),
        Kind::Bool if bits.len() <= 64 => (number() != 0).to_string(),
        kind @ (Kind::Mac | Kind::Ipv4 | Kind::Ipv6) => match kind.read(&bytes[bits.start / 8..bits.end / 8])
        {
            Value::Text(text) => String::from_utf8_lossy(&text).into_owned(),
            Value::Int(_) | Value::Bool(_) => String::new(),
        },
        Kind::Text | Kind::Raw | Kind::Int | Kind::Bool => hexadecimal(&bytes[bits.start / 8..bits.end / 8]),
    }
}

fn octets(at: usize, before: &[u8], after: &[u8], link: usize) -> Difference {
    let (at, count) = (at.saturating_sub(link), before.len().max(after.len()));
    let what = match count {
        0 | 1 => format!("octet {at}"),
        _ if before.len() == after.len() => format!("octets {at} to {}", at + count - 1),
        _ => format!("octets from {at} on"),
    };
    Difference { what, before: hexadecimal(before), after: hexadecimal(after) }
}

/// In pairs of digits; a long one is cut, with how many there are.
fn hexadecimal(octets: &[u8]) -> String {
    let mut text = String::new();
    for octet in octets.iter().take(SHOWN) {
        // A string takes whatever is written to it.
        let _ = write!(text, "{octet:02x}");
    }
    match octets.len() {
        0 => "nothing".to_owned(),
        count if count > SHOWN => format!("{text}… ({count} octets)"),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::vm::builtin_protocols;

    /// UDP over IPv6 in an Ethernet frame.
    fn frame() -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 13, 17, 64]);
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        frame.extend([0, 7, 0, 53, 0, 13, 0xab, 0xcd]);
        frame.extend(b"hello");
        frame
    }

    fn told(before: &[u8], after: &[u8]) -> Vec<String> {
        let protocols = builtin_protocols().expect("protocols");
        let differences = differences(&protocols, before, after, 14);
        differences.iter().map(|one| format!("{}: {} -> {}", one.what, one.before, one.after)).collect()
    }

    #[test]
    fn fields_are_told_by_their_names_and_the_rest_by_its_place() {
        let before = frame();
        assert_eq!(told(&before, &before), [""; 0]);
        let mut after = before.clone();
        after[14] |= 1; // the upper half of the traffic class
        after[21] = 63;
        after[53] = 9;
        after[57] = 54;
        after[60] = 0;
        after[63..65].copy_from_slice(b"XY");
        assert_eq!(
            told(&before, &after),
            [
                "packet_ip6 tclass: 0 -> 16",
                "packet_ip6 hop_limit: 64 -> 63",
                "packet_ip6 daddr: fd00::2 -> fd00::9",
                "packet_udp dport: 53 -> 54",
                "packet_udp check: 43981 -> 205",
                "octets 49 to 50: 656c -> 5859",
            ]
        );
    }

    #[test]
    fn of_a_field_and_its_parts_the_parts_are_told() {
        let mut before = frame();
        before[20] = 6;
        before.extend([0; 20]);
        before[18..20].copy_from_slice(&33_u16.to_be_bytes());
        before[66] = 0x50;
        let mut after = before.clone();
        after[67] = 0x12;
        assert_eq!(told(&before, &after), ["packet_tcp ack: false -> true", "packet_tcp syn: false -> true"]);
    }

    #[test]
    fn octets_that_have_come_are_told_where_they_are() {
        let before = frame();
        let mut after = before.clone();
        after.splice(64..64, *b"ABCD");
        after[19] = 17;
        after[59] = 17;
        assert_eq!(
            told(&before, &after),
            [
                "packet_ip6 payload_len: 13 -> 17",
                "packet_udp len: 13 -> 17",
                "octets from 50 on: nothing -> 41424344"
            ]
        );
        let mut long = before.clone();
        long.extend([7; 100]);
        let last = told(&before, &long).pop().unwrap();
        assert!(last.ends_with("… (100 octets)"), "{last}");
    }

    proptest! {
        /// Something is told of each change, whatever the packets are.
        #[test]
        fn what_differs_is_told(
            one in prop_oneof![Just(frame()), proptest::collection::vec(any::<u8>(), 0..90)],
            at in proptest::collection::vec((0..90_usize, any::<u8>()), 0..5),
            more in proptest::collection::vec(any::<u8>(), 0..4),
        ) {
            let mut other = one.clone();
            for (at, octet) in at {
                if let Some(known) = other.get_mut(at) {
                    *known = octet;
                }
            }
            other.extend(more);
            prop_assert_eq!(told(&one, &other).is_empty(), one == other);
        }
    }
}

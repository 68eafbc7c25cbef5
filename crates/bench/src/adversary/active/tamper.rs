//! A datagram that is changed on its way.

use rand_chacha::ChaCha8Rng;

use super::draw::{below, draw};
use super::kind::Place;
use super::packet::Datagram;

/// Bytes of a datagram's header, which its counter is in, and of its tag.
const HEADER: usize = 8;
const TAG: usize = 16;

/// The frame without the end of its payload, whole otherwise.
pub(super) fn truncated(datagram: &Datagram, random: &mut ChaCha8Rng) -> Vec<u8> {
    let payload = datagram.payload();
    datagram.with_payload(&payload[..below(random, payload.len().max(1))])
}

/// The frame with something else in this place. A changed bit has a right UDP checksum: otherwise it would end in the
/// receiver's kernel.
pub(super) fn changed(datagram: &Datagram, place: Place, random: &mut ChaCha8Rng) -> Vec<u8> {
    let length = datagram.payload().len();
    let range = match place {
        Place::Counter => 0..HEADER.min(length),
        Place::Body => HEADER.min(length)..length.saturating_sub(TAG),
        Place::Tag => length.saturating_sub(TAG)..length,
        Place::Ecn => return datagram.with_ecn(1 + below(random, 3) as u8),
        Place::HopLimit => return datagram.with_hop_limit(2 + below(random, 254) as u8),
        Place::FlowLabel => return datagram.with_flow_label(draw(random)),
    };
    // What is too short for a body is changed somewhere.
    let range = if range.is_empty() { 0..length } else { range };
    let mut payload = datagram.payload().to_vec();
    if !range.is_empty() {
        payload[range.start + below(random, range.len())] ^= 1 << below(random, 8);
    }
    datagram.with_payload(&payload)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand_chacha::rand_core::SeedableRng;

    use super::super::packet::tests::datagram;
    use super::*;

    #[test]
    fn one_bit_is_changed_and_in_its_place() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for length in [0, 5, 20, 200] {
            let whole = datagram(Duration::ZERO, 0, 1, &vec![0; length]);
            for (place, range) in [(Place::Counter, 0..8), (Place::Body, 8..184), (Place::Tag, 184..200)] {
                let frame = changed(&whole, place, &mut random);
                let payload = Datagram::parse(Duration::ZERO, 0, &frame).expect("one").payload().to_vec();
                let bits: u32 = payload.iter().map(|byte| byte.count_ones()).sum();
                assert_eq!((payload.len(), bits), (length, u32::from(length > 0)));
                if length == 200 {
                    assert!(payload[range].iter().any(|byte| *byte != 0), "{place:?}");
                }
            }
            assert!(truncated(&whole, &mut random).len() <= whole.frame.len());
        }
    }
}

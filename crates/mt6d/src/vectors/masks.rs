//! What another tunnel's packets look like under a mask.

use serde_json::{Value, json};

use super::case;
use crate::keys::PublicKey;
use crate::mask::{MARK, MaskKey, SAMPLE, address};

/// Messages of this size and above keep it.
const LARGE: usize = 160;
/// What one block masks.
const PART: usize = 56;

/// Lays the keystream over some bytes, but for what each of its blocks begins with.
fn lay_over(key: &MaskKey, sample: &[u8; SAMPLE], bytes: &mut [u8]) {
    for (number, part) in bytes.chunks_mut(PART).enumerate() {
        let mut block = [0; MARK + PART];
        key.apply(sample, number as u64, &mut block);
        part.iter_mut().zip(&block[MARK..]).for_each(|(byte, stream)| *byte ^= stream);
    }
}

/// Bytes of padding and a sample, which a small message has.
type Small = (usize, [u8; SAMPLE]);

/// The payload of a message.
fn payload(key: &MaskKey, message: &[u8], small: Option<Small>) -> Vec<u8> {
    let mut payload = message.to_vec();
    let Some((padding, sample)) = small else {
        let sample = *message.last_chunk().expect("it is long enough");
        let covered = if message.len() >= LARGE { PART } else { message.len() - SAMPLE };
        lay_over(key, &sample, &mut payload[..covered]);
        return payload;
    };
    payload.resize(message.len() + padding, 0);
    lay_over(key, &sample, &mut payload);
    let mut trailer = [0; MARK];
    trailer[MARK - 2..].copy_from_slice(&(message.len() as u16).to_be_bytes());
    trailer.iter_mut().zip(key.mark(&sample)).for_each(|(byte, mark)| *byte ^= mark);
    [payload.as_slice(), &trailer, &sample].concat()
}

pub(super) fn masks() -> Vec<Value> {
    let (key, public) = ([0x35; 32], [0x79; 32]);
    let mask = MaskKey::from_bytes(key);
    let message = |length: usize| (0..length).map(|at| (at * 5 + 4) as u8).collect::<Vec<_>>();
    let sample = |first: u8| std::array::from_fn::<u8, SAMPLE, _>(|at| first.wrapping_sub(at as u8));
    let cases = [
        (160, None),
        (1_420, None),
        (17, None),
        (159, None),
        (32, Some((0, sample(3)))),
        (92, Some((62, sample(0xff)))),
        (159, Some((1, sample(0x7f)))),
    ];
    let case = |(length, small): (usize, Option<Small>)| {
        let message = message(length);
        let end = small.map_or_else(|| *message.last_chunk().expect("long enough"), |(_, sample)| sample);
        let given = json!({
            "mask_key": hex::encode(key),
            "public_key": hex::encode(public),
            "message": hex::encode(&message),
            "padding": small.map(|(padding, _)| padding),
            "sample": small.map(|(_, sample)| hex::encode(sample)),
        });
        let then = json!({
            "inner_end": address(&PublicKey::from_bytes(public)).to_string(),
            "mark": hex::encode(mask.mark(&end)),
            "payload": hex::encode(payload(&mask, &message, small)),
        });
        case(given, then)
    };
    cases.map(case).into()
}

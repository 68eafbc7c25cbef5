//! SYN cookies (RFC 4987 §3.6): while the queue of half-open connections is full, a SYN is answered and forgotten. What is
//! needed later is in the sequence number of the answer, and, if there are timestamps, in the low bits of that.

use std::time::Instant;

use wire::tcp::{SegmentOptions, Timestamps};

use super::isn::{Flow, Purpose, Secrets};
use super::sequence::SequenceNumber;

/// Segment sizes that a cookie can tell of: the three high bits. Those of small links, of IPv6's least MTU without and with
/// tunnels, of tunnels, of Ethernet in both IP versions, and of jumbo frames.
const SIZES: [u16; 8] = [216, 536, 1140, 1220, 1360, 1440, 1460, 8940];
/// The other 29 bits authenticate.
const HASH_BITS: u32 = 29;
/// A cookie is good for this long, and up to twice as long: longer than a handshake takes, too short to guess one of
/// 2^29.
const PERIOD_SECS: u64 = 64;
/// Low bits of a timestamp: four of the window scale, one for SACK, one for ECN.
const OPTION_BITS: u32 = 6;
const NO_SCALE: u32 = 15;

/// What a cookie tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Remembered {
    pub(super) options: SegmentOptions,
    pub(super) ecn: bool,
}

/// The initial sequence number that stands for a SYN.
pub(super) fn make(
    secrets: &Secrets,
    now: Instant,
    flow: &Flow,
    remote_initial: SequenceNumber,
    mss: u16,
) -> SequenceNumber {
    let index = SIZES.iter().rposition(|size| *size <= mss).unwrap_or(0);
    cookie(secrets, flow, remote_initial, period(secrets, now), index as u32)
}

/// The timestamp that goes with it: no later than `clock`, so that the flow's timestamps go on from there.
pub(super) fn timestamp(clock: u32, options: &SegmentOptions, ecn: bool) -> u32 {
    let scale = options.window_scale.map_or(NO_SCALE, |scale| u32::from(scale.min(14)));
    let bits = scale | u32::from(options.sack_permitted) << 4 | u32::from(ecn) << 5;
    let value = clock >> OPTION_BITS << OPTION_BITS | bits;
    if value > clock { value.wrapping_sub(1 << OPTION_BITS) } else { value }
}

/// What the acknowledgement of a cookie tells; `None` if it is of none.
pub(super) fn check(
    secrets: &Secrets,
    now: Instant,
    flow: &Flow,
    remote_initial: SequenceNumber,
    initial: SequenceNumber,
    timestamps: Option<Timestamps>,
) -> Option<Remembered> {
    let index = initial.0 >> HASH_BITS;
    let current = period(secrets, now);
    let is_ours = [current, current.wrapping_sub(1)]
        .into_iter()
        .any(|period| cookie(secrets, flow, remote_initial, period, index) == initial);
    if !is_ours {
        return None;
    }
    let mut options = SegmentOptions {
        maximum_segment_size: SIZES.get(index as usize).copied(),
        timestamps,
        ..SegmentOptions::default()
    };
    let Some(Timestamps { echo, .. }) = timestamps else { return Some(Remembered { options, ecn: false }) };
    let scale = echo & 15;
    options.window_scale = (scale != NO_SCALE).then_some(scale as u8);
    options.sack_permitted = echo >> 4 & 1 == 1;
    Some(Remembered { options, ecn: echo >> 5 & 1 == 1 })
}

fn period(secrets: &Secrets, now: Instant) -> u64 {
    secrets.elapsed(now).as_secs() / PERIOD_SECS
}

fn cookie(
    secrets: &Secrets,
    flow: &Flow,
    remote_initial: SequenceNumber,
    period: u64,
    index: u32,
) -> SequenceNumber {
    let mut more = [0; 13];
    more[..4].copy_from_slice(&remote_initial.0.to_be_bytes());
    more[4..12].copy_from_slice(&period.to_be_bytes());
    more[12] = index as u8;
    let hash = secrets.hash(Purpose::Cookie, flow, &more) as u32 & ((1 << HASH_BITS) - 1);
    SequenceNumber(index << HASH_BITS | hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_cookie_tells_what_the_syn_said_for_a_minute_and_nobody_else() {
        let now = Instant::now();
        let secrets = Secrets::new([3; 16], now);
        let flow = Flow {
            local: "[2001:db8::1]:80".parse().unwrap(),
            remote: "[2001:db8::2]:4000".parse().unwrap(),
        };
        let options =
            SegmentOptions { window_scale: Some(7), sack_permitted: true, ..SegmentOptions::default() };
        let remote = SequenceNumber(77);
        let initial = make(&secrets, now, &flow, remote, 1450);
        let value = timestamp(1000, &options, true);
        assert!(value <= 1000 && value > 1000 - 64);
        let timestamps = Some(Timestamps { value: 5, echo: value });
        let check =
            |now, flow: &Flow, remote, initial| check(&secrets, now, flow, remote, initial, timestamps);

        let remembered = check(now + Duration::from_secs(60), &flow, remote, initial).unwrap();
        let expected = SegmentOptions { maximum_segment_size: Some(1440), timestamps, ..options };
        assert_eq!(remembered, Remembered { options: expected, ecn: true });

        assert_eq!(check(now + Duration::from_secs(128), &flow, remote, initial), None);
        assert_eq!(check(now, &flow, remote + 1, initial), None);
        assert_eq!(check(now, &flow, remote, initial + 1), None);
        let other = Flow { remote: "[2001:db8::2]:4001".parse().unwrap(), ..flow };
        assert_eq!(check(now, &other, remote, initial), None);
    }
}

//! What an observer sees of how exactly slots are kept: gaps that no lane draws, and lanes that send together.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::time::Duration;

use lab::capture::Packet;
use serde::Serialize;

/// Gaps are drawn between a half and one and a half of their mean; one that is off by more than this was not kept.
const TOLERANCE: Duration = Duration::from_micros(100);
/// Datagrams that are no further apart are together.
const TOGETHER: Duration = Duration::from_micros(50);
/// Later than a standstill's traces, within a lane's life: what is together then is so by chance.
const LATER_MS: [u64; 8] = [41, 47, 53, 59, 67, 73, 83, 97];

/// What a gateway sent, or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Seen {
    pub(super) datagrams: u64,
    /// Gaps between two datagrams of a lane.
    gaps: u64,
    /// Those that are too short or too long.
    off: u64,
    /// Pairs of datagrams of two lanes that are together.
    together: u64,
    /// The same some time later, on average.
    by_chance: f64,
    /// The longest gap, milliseconds.
    longest_ms: f64,
}

impl Seen {
    /// Of the datagrams in a capture that come from one gateway.
    pub(super) fn of(packets: &[Packet], own: impl Fn(Ipv6Addr) -> bool) -> Self {
        let mut lanes = BTreeMap::new();
        let mut sent = Vec::new();
        for packet in packets.iter().filter(|packet| packet.is_udp() && own(packet.source)) {
            let number = lanes.len();
            let lane = *lanes.entry((packet.source, packet.ports.0)).or_insert(number);
            sent.push((packet.time, lane));
        }
        sent.sort_unstable();
        let mut last = vec![None; lanes.len()];
        let mut gaps: Vec<Duration> = Vec::new();
        for (time, lane) in &sent {
            gaps.extend(last[*lane].replace(*time).map(|before| *time - before));
        }
        gaps.sort_unstable();
        // What is drawn evenly has its mean in the middle, and a few that are off do not move that.
        let mean = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
        let drawn = (mean / 2).saturating_sub(TOLERANCE)..mean * 3 / 2 + TOLERANCE;
        Seen {
            datagrams: sent.len() as u64,
            gaps: gaps.len() as u64,
            off: gaps.iter().filter(|gap| !drawn.contains(gap)).count() as u64,
            together: pairs(&sent, Duration::ZERO..TOGETHER),
            by_chance: LATER_MS
                .map(Duration::from_millis)
                .map(|later| pairs(&sent, later..later + TOGETHER) as f64)
                .iter()
                .sum::<f64>()
                / LATER_MS.len() as f64,
            longest_ms: gaps.last().map_or(0.0, |gap| gap.as_secs_f64() * 1e3),
        }
    }

    /// Of both.
    pub(super) fn and(self, other: Seen) -> Seen {
        Seen {
            datagrams: self.datagrams + other.datagrams,
            gaps: self.gaps + other.gaps,
            off: self.off + other.off,
            together: self.together + other.together,
            by_chance: self.by_chance + other.by_chance,
            longest_ms: self.longest_ms.max(other.longest_ms),
        }
    }

    /// Gaps that are off, as part of all.
    pub(super) fn off_part(&self) -> f64 {
        self.off as f64 / self.gaps.max(1) as f64
    }

    /// How often datagrams are together, as a multiple of chance; none where too few are to say it.
    pub(super) fn together_by_chance(&self) -> Option<f64> {
        (self.by_chance >= 10.0).then(|| self.together as f64 / self.by_chance)
    }
}

/// Pairs of datagrams of different lanes whose distance is in the range; in order of time.
fn pairs(sent: &[(Duration, usize)], distance: Range<Duration>) -> u64 {
    let (mut first, mut count) = (0, 0);
    for (number, (time, lane)) in sent.iter().enumerate() {
        first = first.max(number + 1);
        while sent.get(first).is_some_and(|(other, _)| *other < *time + distance.start) {
            first += 1;
        }
        let near =
            sent[first.min(sent.len())..].iter().take_while(|(other, _)| *other < *time + distance.end);
        count += near.filter(|(_, other)| other != lane).count() as u64;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(micros: u64, lane: u16) -> Packet {
        Packet {
            time: Duration::from_micros(1_000_000 + micros),
            source: Ipv6Addr::LOCALHOST,
            destination: Ipv6Addr::UNSPECIFIED,
            next_header: 17,
            ports: (lane, 1),
            length: 1280,
            payload: Vec::new(),
        }
    }

    #[test]
    fn gaps_that_nobody_draws_are_found() {
        let times = [0, 10_000, 20_000, 30_000, 35_000, 50_000, 50_100, 60_000, 80_000];
        let packets: Vec<_> = times.map(|time| packet(time, 1)).into();
        let seen = Seen::of(&packets, |_| true);
        assert_eq!((seen.datagrams, seen.gaps, seen.off), (9, 8, 2), "0.1 ms and 20 ms");
        assert_eq!(seen.longest_ms, 20.0);
        assert_eq!(Seen::of(&packets, |_| false).datagrams, 0);
    }

    #[test]
    fn lanes_that_send_together_are_found() {
        // One lane follows the other at once, a third goes its own way.
        let three =
            |n: u64| [packet(n * 10_000, 1), packet(n * 10_000 + 20, 2), packet(n * 9_973 % 9_999_000, 3)];
        let seen = Seen::of(&(0..1_000).flat_map(three).collect::<Vec<_>>(), |_| true);
        assert!(seen.together >= 1_000, "{seen:?}");
        let alone = |n: u64| [packet(n * 10_000, 1), packet(n * 9_973, 2)];
        let seen = Seen::of(&(0..1_000).flat_map(alone).collect::<Vec<_>>(), |_| true);
        assert!(seen.together < 30, "{seen:?}");
    }
}

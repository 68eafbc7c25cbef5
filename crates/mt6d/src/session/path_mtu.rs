//! The path MTU of a pair, found with padded probes (RFC 8899), never taken from ICMPv6 on trust
//! (docs/protocol.md, "Path MTU"). Sizes are of outer IPv6 packets, in bytes.

use std::time::Duration;

use crate::time::Time;

/// What every IPv6 path carries (RFC 8200 section 5).
pub(crate) const BASE: u16 = 1280;
/// Sizes tried at once at first, below the ceiling: Ethernet behind PPPoE, behind a 6in4 tunnel, behind many VPNs.
const COMMON: [u16; 3] = [1492, 1480, 1400];
/// A search ends when what fits and what does not are this close.
const RESOLUTION: u16 = 8;
/// Losses of one probe until its size is taken as too big.
const TRIES: u8 = 3;
/// How often the size in use is confirmed, while there is traffic.
const CONFIRM_EVERY: Duration = Duration::from_secs(10);
/// How often a larger size is tried again (RFC 8899 section 5.1.1, PMTU_RAISE_TIMER).
const RAISE_EVERY: Duration = Duration::from_secs(600);

/// The state of the search.
pub(crate) struct PathMtu {
    ceiling: u16,
    /// The largest size known to arrive.
    fits: u16,
    /// The smallest size that seems not to, one above the ceiling if none.
    too_big: u16,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// The common sizes are on their way; `round` of two.
    First { round: u8, until: Time },
    /// A size between `fits` and `too_big` is being tried.
    Search { size: u16, tries: u8, until: Time },
    /// Nothing to find out before `until`; then the size in use is confirmed.
    Settled { until: Time, raise: Time },
    /// The size in use is being confirmed.
    Confirm { tries: u8, until: Time, raise: Time },
}

impl PathMtu {
    /// Begins the search; `ceiling` is what the links of both ends take.
    pub(crate) fn new(ceiling: u16, now: Time) -> Self {
        let ceiling = ceiling.max(BASE);
        let phase = Phase::First { round: 0, until: now };
        PathMtu { ceiling, fits: BASE, too_big: ceiling.saturating_add(1), phase }
    }

    /// The largest packet that is known to arrive.
    pub(crate) fn get(&self) -> u16 {
        self.fits
    }

    /// Whether the search is over for now; until then [`PathMtu::get`] is a cautious guess that no sender should be
    /// told about.
    pub(crate) fn settled(&self) -> bool {
        !matches!(self.phase, Phase::First { .. })
    }

    /// When [`PathMtu::poll`] wants to be called.
    pub(crate) fn deadline(&self) -> Time {
        match self.phase {
            Phase::First { until, .. }
            | Phase::Search { until, .. }
            | Phase::Settled { until, .. }
            | Phase::Confirm { until, .. } => until,
        }
    }

    /// Sizes to probe now. `busy`: there was traffic since the last confirmation.
    pub(crate) fn poll(&mut self, now: Time, rtt: Duration, busy: bool, mut probe: impl FnMut(u16)) {
        if now < self.deadline() {
            return;
        }
        let patience = (rtt * 3).max(Duration::from_millis(300));
        match self.phase {
            Phase::First { round, .. } if round < 2 && self.fits < self.ceiling => {
                for size in self.first_sizes().filter(|s| *s > self.fits) {
                    probe(size);
                }
                self.phase = Phase::First { round: round + 1, until: now + patience };
            }
            Phase::First { .. } => {
                let smallest_lost = self.first_sizes().filter(|s| *s > self.fits).min();
                self.too_big = smallest_lost.unwrap_or(self.ceiling.saturating_add(1));
                self.search(now, patience, probe);
            }
            Phase::Search { size, tries, .. } if tries < TRIES => {
                probe(size);
                self.phase = Phase::Search { size, tries: tries + 1, until: now + patience };
            }
            Phase::Search { size, .. } => {
                self.too_big = size;
                self.search(now, patience, probe);
            }
            Phase::Settled { raise, .. } if now >= raise && self.fits < self.ceiling => {
                self.too_big = self.ceiling.saturating_add(1);
                self.search(now, patience, probe);
            }
            Phase::Settled { raise, .. } if busy && self.fits > BASE => {
                probe(self.fits);
                self.phase = Phase::Confirm { tries: 1, until: now + patience, raise };
            }
            Phase::Settled { raise, .. } => {
                self.phase = Phase::Settled { until: now + CONFIRM_EVERY, raise };
            }
            Phase::Confirm { tries, raise, .. } if tries < TRIES => {
                probe(self.fits);
                self.phase = Phase::Confirm { tries: tries + 1, until: now + patience, raise };
            }
            // A black hole: what fitted does not any more, and nobody said so.
            Phase::Confirm { .. } => *self = PathMtu::new(self.ceiling, now),
        }
    }

    /// A probe of this size arrived.
    pub(crate) fn probed(&mut self, size: u16, now: Time) {
        if size > self.ceiling {
            return;
        }
        self.fits = self.fits.max(size);
        self.too_big = self.too_big.max(self.fits.saturating_add(1));
        match self.phase {
            Phase::First { .. } if self.fits == self.ceiling => self.settle(now),
            Phase::Search { size: probing, .. } if size >= probing => {
                self.phase = Phase::Search { size: probing, tries: TRIES, until: now };
                self.too_big = self.too_big.max(self.fits + 1);
                self.next_size(now);
            }
            Phase::Confirm { raise, .. } if size == self.fits => {
                self.phase = Phase::Settled { until: now + CONFIRM_EVERY, raise };
            }
            _ => {}
        }
    }

    /// Somebody claims that packets of the size in use do not fit: find out.
    pub(crate) fn doubt(&mut self, now: Time) {
        if let Phase::Settled { raise, .. } = self.phase
            && self.fits > BASE
        {
            self.phase = Phase::Confirm { tries: 0, until: now, raise };
        }
    }

    fn first_sizes(&self) -> impl Iterator<Item = u16> + use<> {
        let ceiling = self.ceiling;
        std::iter::once(ceiling).chain(COMMON.into_iter().filter(move |s| *s < ceiling)).filter(|s| *s > BASE)
    }

    /// Probes the next size between what fits and what does not, or settles.
    fn search(&mut self, now: Time, patience: Duration, mut probe: impl FnMut(u16)) {
        self.next_size(now);
        if let Phase::Search { size, .. } = self.phase {
            probe(size);
            self.phase = Phase::Search { size, tries: 1, until: now + patience };
        }
    }

    fn next_size(&mut self, now: Time) {
        if self.too_big - self.fits <= RESOLUTION && self.too_big <= self.ceiling || self.fits == self.ceiling
        {
            self.settle(now);
            return;
        }
        // The ceiling first: where a probe was lost to chance it is still the likeliest.
        let size = if self.too_big > self.ceiling { self.ceiling } else { self.fits.midpoint(self.too_big) };
        self.phase = Phase::Search { size, tries: 0, until: now };
    }

    fn settle(&mut self, now: Time) {
        self.phase = Phase::Settled { until: now + CONFIRM_EVERY, raise: now + RAISE_EVERY };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs the search over a path that carries up to `path` bytes; the size found and the probes it took.
    fn run(mtu: &mut PathMtu, path: u16, now: &mut Time, seconds: u64) -> usize {
        let (end, mut probes) = (*now + Duration::from_secs(seconds), 0);
        while mtu.deadline() < end {
            *now = (*now).max(mtu.deadline());
            let mut sent = Vec::new();
            mtu.poll(*now, Duration::from_millis(20), true, |size| sent.push(size));
            probes += sent.len();
            *now = *now + Duration::from_millis(20);
            for size in sent.into_iter().filter(|s| *s <= path) {
                mtu.probed(size, *now);
            }
        }
        probes
    }

    proptest! {
        #[test]
        fn finds_what_the_path_carries(path in 1280u16..=1500, ceiling in 1280u16..=9000) {
            let mut now = Time::default();
            let mut mtu = PathMtu::new(ceiling, now);
            let probes = run(&mut mtu, path, &mut now, 60);
            prop_assert!(mtu.settled());
            prop_assert!(mtu.get() <= path.min(ceiling));
            prop_assert!(mtu.get() + RESOLUTION >= path.min(ceiling), "{}", mtu.get());
            prop_assert!(probes < 80, "{probes}");
        }
    }

    #[test]
    fn settles_on_common_paths_after_one_round_trip() {
        for path in [1280, 1400, 1480, 1492, 1500] {
            let mut mtu = PathMtu::new(path, Time::default());
            let mut sizes = Vec::new();
            mtu.poll(Time::default(), Duration::from_millis(20), true, |s| sizes.push(s));
            for size in sizes {
                mtu.probed(size, Time::from_micros(20_000));
            }
            mtu.poll(Time::from_micros(400_000), Duration::from_millis(20), true, |_| {});
            assert!(mtu.settled());
            assert_eq!(mtu.get(), path);
        }
    }

    #[test]
    fn leaves_a_black_hole_and_comes_back() {
        let mut now = Time::default();
        let mut mtu = PathMtu::new(1500, now);
        run(&mut mtu, 1500, &mut now, 5);
        assert_eq!(mtu.get(), 1500);
        run(&mut mtu, 1400, &mut now, 30);
        assert_eq!(mtu.get(), 1400);
        run(&mut mtu, 1500, &mut now, 700);
        assert_eq!(mtu.get(), 1500);
    }

    #[test]
    fn a_forged_packet_too_big_costs_a_probe_and_nothing_else() {
        let mut now = Time::default();
        let mut mtu = PathMtu::new(1500, now);
        run(&mut mtu, 1500, &mut now, 5);
        mtu.doubt(now);
        run(&mut mtu, 1500, &mut now, 5);
        assert_eq!(mtu.get(), 1500);
    }
}

//! The path MTU of a pair, found with padded probes (RFC 8899), never taken from ICMPv6 (docs/protocol.md, "Path MTU").
//! Sizes are of outer IPv6 packets, in bytes.
//!
//! What an observer sees of it says nothing about the session: one probe at a time, each at a moment that is drawn, whether
//! or not the one before was answered; sizes in an order that is drawn. Once the search is over the size in use is confirmed
//! at moments of a Poisson process, and only where large datagrams are sent anyway.

use std::time::Duration;

use crate::host_interface::HostInterface;
use crate::time::Time;

/// What every IPv6 path carries (RFC 8200 section 5).
pub(crate) const BASE: u16 = 1280;
/// Likely sizes: Ethernet, the same behind PPPoE, behind a 6in4 tunnel, behind many VPNs.
const COMMON: [u16; 4] = [1500, 1492, 1480, 1400];
/// A search ends when what fits and what does not are this close.
const RESOLUTION: u16 = 8;
/// Losses of one size until it is taken as too big.
const TRIES: u8 = 3;
/// The mean time from the beginning to the first probe, and by which a probe under way is put off when lanes change.
const BEGIN: Duration = Duration::from_millis(250);
/// How long an answer is waited for at least, or two round trips if these take longer; twice as long at most.
const PATIENCE: Duration = Duration::from_millis(250);
/// The mean time between confirmations of the size in use.
const CONFIRM: Duration = Duration::from_secs(5);
/// How often a larger size is tried again (RFC 8899 section 5.1.1, PMTU_RAISE_TIMER).
const RAISE: std::ops::RangeInclusive<Duration> = Duration::from_secs(450)..=Duration::from_secs(750);
/// What two halves of a packet take more than the packet, at most: headers of a control message, and of a datagram.
const HALVES: u16 = 100;

/// The state of the search.
pub(crate) struct PathMtu {
    ceiling: u16,
    /// The largest size known to arrive.
    fits: u16,
    /// Larger ones that were lost, the smallest first, and how often.
    lost: Vec<(u16, u8)>,
    /// Whether a search has come to an end.
    settled: bool,
    phase: Phase,
    /// When something is to be done.
    next: Time,
    /// Until when the answer to the last probe is waited for, whatever happens.
    patient: Time,
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Not begun.
    Waiting,
    /// What fits is looked for; the size that was probed last, unless it has come back.
    Search { probed: Option<u16> },
    /// Nothing to find out for now; from `raise` on larger sizes may be tried.
    Settled { raise: Time },
    /// The size in use is being confirmed, and was lost so often.
    Confirm { lost: u8, answered: bool, raise: Time },
}

impl PathMtu {
    /// A search that begins when it is polled first; `ceiling` is what the links of both ends take.
    pub(crate) fn new(ceiling: u16, now: Time) -> Self {
        let (ceiling, lost, phase) = (ceiling.max(BASE), Vec::new(), Phase::Waiting);
        PathMtu { ceiling, fits: BASE, lost, settled: ceiling == BASE, phase, next: now, patient: now }
    }

    /// The largest packet that is known to arrive.
    pub(crate) fn get(&self) -> u16 {
        self.fits
    }

    /// Whether a search has come to an end; until then [`PathMtu::get`] is a cautious guess that no sender should be told
    /// about.
    pub(crate) fn settled(&self) -> bool {
        self.settled
    }

    /// The size that senders are told about: until the search is over the largest that it may come to, as far as packets that
    /// do not fit can go in two halves.
    pub(crate) fn stated(&self) -> u16 {
        if self.settled { self.fits } else { self.ceiling.min(2 * self.fits.min(u16::MAX / 2) - HALVES) }
    }

    /// When [`PathMtu::poll`] wants to be called.
    pub(crate) fn deadline(&self) -> Time {
        self.next
    }

    /// The size to probe now, if any. `large` tells, and is asked once each time that matters, whether large datagrams were
    /// sent since it was last asked: without any, nobody suffers from a path that became narrower.
    pub(crate) fn poll(
        &mut self,
        now: Time,
        rtt: Duration,
        large: impl FnOnce() -> bool,
        host: &mut HostInterface,
    ) -> Option<u16> {
        if now < self.next {
            return None;
        }
        let patience = (rtt * 2).max(PATIENCE);
        match self.phase {
            Phase::Waiting => {
                self.phase = Phase::Search { probed: None };
                self.next = now + host.exponential(BEGIN);
                None
            }
            Phase::Search { probed } => {
                if let Some(size) = probed {
                    self.miss(size);
                }
                self.search(now, patience, host)
            }
            Phase::Settled { raise } => {
                self.next = now + host.exponential(CONFIRM);
                if !large() || self.fits == BASE && now < raise {
                    return None;
                }
                if now >= raise && self.fits < self.ceiling {
                    self.lost.clear();
                    return self.search(now, patience, host);
                }
                self.confirm(0, raise, now, patience, host)
            }
            Phase::Confirm { answered: true, raise, .. } => {
                self.phase = Phase::Settled { raise };
                self.next = now + host.exponential(CONFIRM);
                None
            }
            Phase::Confirm { lost, raise, .. } if lost + 1 < TRIES => {
                self.confirm(lost + 1, raise, now, patience, host)
            }
            // A black hole: what fitted does not any more, and nobody said so.
            Phase::Confirm { .. } => {
                *self = PathMtu::new(self.ceiling, now);
                self.search(now, patience, host)
            }
        }
    }

    /// A probe of this size arrived.
    pub(crate) fn probed(&mut self, size: u16) {
        if size > self.ceiling {
            return;
        }
        self.fits = self.fits.max(size);
        self.lost.retain(|(lost, _)| *lost > size);
        self.settled |= self.fits == self.ceiling;
        match &mut self.phase {
            Phase::Search { probed } => *probed = probed.filter(|probed| *probed > size),
            Phase::Confirm { answered, .. } => *answered |= size >= self.fits,
            Phase::Waiting | Phase::Settled { .. } => {}
        }
    }

    /// Lanes have changed: when the next probe leaves is drawn anew, so that nothing goes on that was seen on another lane.
    pub(crate) fn moved(&mut self, now: Time, host: &mut HostInterface) {
        match self.phase {
            Phase::Waiting => {}
            Phase::Settled { .. } => self.next = now + host.exponential(CONFIRM),
            Phase::Search { .. } | Phase::Confirm { .. } => {
                self.next = self.patient.max(now + host.exponential(BEGIN));
            }
        }
    }

    fn confirm(
        &mut self,
        lost: u8,
        raise: Time,
        now: Time,
        patience: Duration,
        host: &mut HostInterface,
    ) -> Option<u16> {
        self.phase = Phase::Confirm { lost, answered: false, raise };
        self.wait(now, patience, host);
        Some(self.fits)
    }

    fn wait(&mut self, now: Time, patience: Duration, host: &mut HostInterface) {
        (self.patient, self.next) = (now + patience, now + host.pause(patience..=patience * 2));
    }

    fn miss(&mut self, size: u16) {
        match self.lost.binary_search_by_key(&size, |(lost, _)| *lost) {
            Ok(at) => self.lost[at].1 = self.lost[at].1.saturating_add(1),
            Err(at) => self.lost.insert(at, (size, 1)),
        }
    }

    /// Probes the next size, or ends the search.
    fn search(&mut self, now: Time, patience: Duration, host: &mut HostInterface) -> Option<u16> {
        let size = self.next_size(host);
        if size.is_some() {
            self.phase = Phase::Search { probed: size };
            self.wait(now, patience, host);
        } else {
            self.settled = true;
            self.phase = Phase::Settled { raise: now + host.pause(RAISE) };
            self.next = now + host.exponential(CONFIRM);
        }
        size
    }

    /// A size between what fits and the smallest that was lost; that one itself when the two are close, until it was lost
    /// often enough to be no accident.
    fn next_size(&self, host: &mut HostInterface) -> Option<u16> {
        if self.fits == self.ceiling {
            return None;
        }
        let bound = match self.lost.first() {
            Some((size, losses)) if size - self.fits <= RESOLUTION => {
                return Some(*size).filter(|_| *losses < TRIES);
            }
            Some((size, _)) => *size,
            None => self.ceiling.saturating_add(1),
        };
        let likely: Vec<u16> = std::iter::once(self.ceiling)
            .chain(COMMON)
            .filter(|size| (self.fits + 1..bound).contains(size))
            .collect();
        if likely.is_empty() {
            let quarter = (bound - self.fits) / 4;
            return Some(self.fits + host.random(quarter.max(1).into()..=(3 * quarter).max(1).into()) as u16);
        }
        // The largest is the likeliest: as often as all together.
        let number = host.random(0..=2 * likely.len() as u64 - 1) as usize;
        Some(*likely.get(number).unwrap_or(&likely[0]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RTT: Duration = Duration::from_millis(20);

    fn host(seed: u8) -> HostInterface {
        HostInterface::new(move || [seed; 32])
    }

    /// Runs the search over a path that carries up to `path` bytes; when it sent which probes.
    fn run(
        mtu: &mut PathMtu,
        path: u16,
        now: &mut Time,
        seconds: u64,
        large: bool,
        host: &mut HostInterface,
    ) -> Vec<(Time, u16)> {
        let (end, mut probes) = (*now + Duration::from_secs(seconds), Vec::new());
        while mtu.deadline() < end {
            *now = (*now).max(mtu.deadline());
            if let Some(size) = mtu.poll(*now, RTT, || large, host) {
                probes.push((*now, size));
                if size <= path {
                    mtu.probed(size);
                }
            }
        }
        *now = end;
        probes
    }

    proptest! {
        #[test]
        fn finds_what_the_path_carries(path in 1280u16..=1500, ceiling in 1280u16..=9000, seed: u8) {
            let (mut now, mut host) = (Time::default(), host(seed));
            let mut mtu = PathMtu::new(ceiling, now);
            let probes = run(&mut mtu, path, &mut now, 60, false, &mut host);
            prop_assert!(mtu.settled());
            prop_assert!(mtu.get() <= path.min(ceiling));
            prop_assert!(mtu.get() + RESOLUTION >= path.min(ceiling), "{}", mtu.get());
            prop_assert!(probes.len() < 40, "{probes:?}");
        }
    }

    #[test]
    fn what_is_lost_by_accident_is_found_all_the_same() {
        for seed in 0..100 {
            let (mut now, mut host) = (Time::default(), host(seed));
            let mut mtu = PathMtu::new(1500, now);
            while !mtu.settled() {
                now = mtu.deadline();
                // One in ten.
                if let Some(size) = mtu.poll(now, RTT, || true, &mut host)
                    && host.random(0..=9) > 0
                    && size <= 1492
                {
                    mtu.probed(size);
                }
            }
            assert_eq!(mtu.get(), 1492, "{seed}");
        }
    }

    #[test]
    fn leaves_a_black_hole_and_comes_back() {
        for seed in 0..20 {
            let (mut now, mut host) = (Time::default(), host(seed));
            let mut mtu = PathMtu::new(1500, now);
            run(&mut mtu, 1500, &mut now, 5, true, &mut host);
            assert_eq!(mtu.get(), 1500);
            run(&mut mtu, 1400, &mut now, 30, true, &mut host);
            assert_eq!(mtu.get(), 1400);
            run(&mut mtu, 1500, &mut now, 800, true, &mut host);
            assert_eq!(mtu.get(), 1500);
        }
    }

    #[test]
    fn nothing_is_probed_where_nothing_large_is_sent() {
        let (mut now, mut host) = (Time::default(), host(1));
        let mut mtu = PathMtu::new(1500, now);
        run(&mut mtu, 1400, &mut now, 20, false, &mut host);
        assert_eq!(mtu.get(), 1400);
        assert_eq!(run(&mut mtu, 1400, &mut now, 3600, false, &mut host), []);
        assert_ne!(run(&mut mtu, 1400, &mut now, 30, true, &mut host), []);
    }

    /// By the times of its confirmations no session is known again: the pauses are those of events that happen at random.
    #[test]
    fn a_confirmation_says_nothing_of_the_next() {
        let (mut now, mut host) = (Time::default(), host(1));
        let mut mtu = PathMtu::new(1500, now);
        run(&mut mtu, 1500, &mut now, 5, true, &mut host);
        let probes = run(&mut mtu, 1500, &mut now, 20_000, true, &mut host);
        let pauses: Vec<f64> =
            probes.windows(2).map(|pair| pair[1].0.since(pair[0].0).as_secs_f64()).collect();
        let mean = pauses.iter().sum::<f64>() / pauses.len() as f64;
        assert!((4.5..5.5).contains(&mean), "{mean}");
        // Of those that have taken so long already, each takes as much longer.
        for after in [1.0, 3.0, 6.0] {
            let left: Vec<f64> = pauses.iter().filter(|p| **p > after).map(|p| p - after).collect();
            let mean = left.iter().sum::<f64>() / left.len() as f64;
            assert!((3.2..5.5).contains(&mean), "after {after} s: {mean}");
        }
    }

    #[test]
    fn however_often_lanes_change_a_search_comes_to_its_end() {
        for path in [1280, 1433, 1500] {
            let (mut now, mut host) = (Time::default(), host(2));
            let mut mtu = PathMtu::new(1500, now);
            for _ in 0..60 * 16 {
                let end = now + Duration::from_micros(62_500);
                while mtu.deadline() <= end {
                    now = now.max(mtu.deadline());
                    if let Some(size) = mtu.poll(now, RTT, || true, &mut host)
                        && size <= path
                    {
                        mtu.probed(size);
                    }
                }
                now = end;
                mtu.moved(now, &mut host);
            }
            assert!(mtu.settled());
            assert!(mtu.get() <= path && mtu.get() + RESOLUTION >= path, "{path}: {}", mtu.get());
        }
    }
}

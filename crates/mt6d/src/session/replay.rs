//! The replay window: which counters of a lane and direction have been seen (RFC 6479's ring of blocks).

/// Counters behind the highest that are still told apart, at first and at most.
const SIZES: (u32, u32) = (32_768, 131_072);

/// A window of counters of one key.
pub(crate) struct ReplayWindow {
    /// One bit for each counter, at `counter % bits`.
    blocks: Box<[u64]>,
    /// One more than the highest counter accepted.
    next: u32,
}

/// What the window says of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fresh,
    Seen,
    TooOld,
}

impl ReplayWindow {
    pub(crate) fn new() -> Self {
        ReplayWindow { blocks: blocks(SIZES.0), next: 0 }
    }

    fn size(&self) -> u32 {
        self.blocks.len() as u32 * 64
    }

    /// Whether a datagram with this counter may be opened.
    pub(crate) fn check(&self, counter: u32) -> Verdict {
        if counter >= self.next {
            return Verdict::Fresh;
        }
        // The block that the highest counter lies in is cleared as a whole, so the last 64 do not count.
        if self.next - counter > self.size() - 64 {
            return Verdict::TooOld;
        }
        let (block, bit) = self.position(counter);
        if self.blocks[block] & bit == 0 { Verdict::Fresh } else { Verdict::Seen }
    }

    /// Marks the counter of a datagram that opened.
    pub(crate) fn accept(&mut self, counter: u32) {
        if counter >= self.next {
            let (first, last) = (self.next.div_ceil(64), counter / 64);
            let count = self.blocks.len() as u32;
            for block in first..=last.min(first.saturating_add(count)) {
                self.blocks[(block % count) as usize] = 0;
            }
            if last > first.saturating_add(count) {
                self.blocks.fill(0);
            }
            self.next = counter.saturating_add(1);
        }
        let (block, bit) = self.position(counter);
        self.blocks[block] |= bit;
    }

    /// Makes the window as large as it gets: the path reorders more than it was made for. What was too old stays so.
    pub(crate) fn grow(&mut self) {
        if self.size() == SIZES.1 {
            return;
        }
        let old = std::mem::replace(&mut self.blocks, blocks(SIZES.1));
        let count = old.len() as u32;
        let newest = self.next.saturating_sub(1) / 64;
        for block in newest.saturating_sub(count - 1)..=newest {
            let to = (block % self.blocks.len() as u32) as usize;
            self.blocks[to] = old[(block % count) as usize];
        }
        // Older than that nothing is known: as if all had been seen.
        let known = newest.saturating_sub(count - 1);
        for block in newest.saturating_sub(self.blocks.len() as u32 - 1)..known {
            let to = (block % self.blocks.len() as u32) as usize;
            self.blocks[to] = u64::MAX;
        }
    }

    fn position(&self, counter: u32) -> (usize, u64) {
        ((counter / 64) as usize % self.blocks.len(), 1 << (counter % 64))
    }
}

fn blocks(bits: u32) -> Box<[u64]> {
    vec![0; bits as usize / 64].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn order_does_not_matter_within_the_window() {
        let mut window = ReplayWindow::new();
        for counter in [5, 3, 4, 0, 40_000, 39_999, 7_300] {
            assert_eq!(window.check(counter), Verdict::Fresh, "{counter}");
            window.accept(counter);
            assert_eq!(window.check(counter), Verdict::Seen, "{counter}");
        }
        assert_eq!(window.check(5), Verdict::TooOld);
        assert_eq!(window.check(20_000), Verdict::Fresh);
        window.grow();
        assert_eq!(window.check(5), Verdict::Seen, "forgotten is as good as seen");
        assert_eq!(window.check(20_000), Verdict::Fresh);
        assert_eq!(window.check(39_999), Verdict::Seen);
        window.accept(100_000);
        assert_eq!(window.check(20_000), Verdict::Fresh);
        assert_eq!(window.check(7_300), Verdict::Seen);
    }

    #[test]
    fn the_last_counter_does_not_wrap() {
        let mut window = ReplayWindow::new();
        window.accept(u32::MAX);
        assert_eq!(window.check(0), Verdict::TooOld);
    }

    proptest! {
        /// Against a set that never forgets: nothing is accepted twice, everything recent once.
        #[test]
        fn accepts_each_recent_counter_exactly_once(
            steps in proptest::collection::vec((0u32..80_000, any::<bool>(), 0u8..40), 1..400),
        ) {
            let mut window = ReplayWindow::new();
            let mut seen = HashSet::new();
            let mut highest = 0u32;
            for (value, relative, grow) in steps {
                let counter = if relative { highest.saturating_sub(value % 40_000) } else { highest + value % 3_000 };
                if grow == 0 {
                    window.grow();
                }
                match window.check(counter) {
                    Verdict::Fresh => {
                        prop_assert!(seen.insert(counter), "{} twice", counter);
                        window.accept(counter);
                    }
                    Verdict::Seen => {}
                    Verdict::TooOld => prop_assert!(highest - counter >= SIZES.0 - 128),
                }
                highest = highest.max(counter);
                if highest - counter < SIZES.0 - 128 {
                    prop_assert!(seen.contains(&counter));
                }
            }
        }
    }
}

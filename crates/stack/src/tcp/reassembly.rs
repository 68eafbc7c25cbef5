//! Which bytes arrived out of order: ranges, bounded in number; and the SACK blocks that tell of them (RFC 2018).

use wire::tcp::SackBlocks;

use super::sequence::SequenceNumber;

/// Ranges kept at most, 8 KB. Each loss of a window leaves one: 1024 are a sixth of a window of 8 MB, as a slow start that
/// overshoots may lose. A sender that leaves more gaps sends again what finds no room here, and cannot make us walk long
/// lists.
const MAX_RANGES: usize = 1024;

/// Bytes from `start` up to but not including `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) start: SequenceNumber,
    pub(super) end: SequenceNumber,
}

/// Ranges behind a gap, in order, none touching another.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    ranges: Vec<Range>,
    /// Starts of what arrived last, the latest first; each range is reported in the order of these.
    recent: [SequenceNumber; SackBlocks::MAX],
}

/// What [`Reassembly::insert`] made of a range.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// At least some of it is new.
    New,
    /// All of it was there.
    Duplicate,
    /// There is no room for another range.
    Full,
}

impl Reassembly {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Where the last range ends.
    pub(super) fn last_end(&self) -> Option<SequenceNumber> {
        self.ranges.last().map(|range| range.end)
    }

    pub(super) fn heap(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>()
    }

    /// Adds a range, which is not empty.
    pub(super) fn insert(&mut self, new: Range) -> Inserted {
        // Those that overlap or touch it become one with it.
        let first = self.ranges.partition_point(|range| range.end < new.start);
        let behind = first + self.ranges[first..].partition_point(|range| range.start <= new.end);
        if let Some(only) = self.ranges[first..behind].first()
            && only.start <= new.start
            && new.end <= only.end
        {
            self.note(new.start);
            return Inserted::Duplicate;
        }
        let touched = &self.ranges[first..behind];
        let merged = Range {
            start: touched.first().map_or(new.start, |range| range.start.min(new.start)),
            end: touched.last().map_or(new.end, |range| range.end.max(new.end)),
        };
        if touched.is_empty() {
            if self.ranges.len() >= MAX_RANGES {
                return Inserted::Full;
            }
            self.ranges.insert(first, merged);
        } else {
            self.ranges[first] = merged;
            self.ranges.drain(first + 1..behind);
        }
        self.note(new.start);
        Inserted::New
    }

    /// Everything before `next` has arrived: returns up to where there is no gap, and forgets the ranges before that.
    pub(super) fn advance(&mut self, next: SequenceNumber) -> SequenceNumber {
        let passed = self.ranges.partition_point(|range| range.start <= next);
        let end = self.ranges[..passed].last().map_or(next, |range| range.end.max(next));
        self.ranges.drain(..passed);
        if self.ranges.is_empty() {
            self.ranges = Vec::new();
        }
        end
    }

    /// The blocks to report: first that of what arrived last (RFC 2018 §4).
    pub(super) fn sack_blocks(&self, blocks: &mut SackBlocks) {
        if self.ranges.is_empty() {
            return;
        }
        for (index, start) in self.recent.iter().enumerate() {
            let Some(range) = self.containing(*start) else { continue };
            let earlier = &self.recent[..index];
            if !earlier.iter().any(|other| range.start <= *other && *other < range.end) {
                blocks.push(range.start.0, range.end.0);
            }
        }
    }

    fn containing(&self, at: SequenceNumber) -> Option<Range> {
        let index = self.ranges.partition_point(|range| range.end <= at);
        self.ranges.get(index).copied().filter(|range| range.start <= at)
    }

    /// Puts the range at `start` first; what was first in the same range goes.
    fn note(&mut self, start: SequenceNumber) {
        let Some(range) = self.containing(start) else { return };
        let same = |at: &SequenceNumber| range.start <= *at && *at < range.end;
        let last = self.recent.iter().position(same).unwrap_or(self.recent.len() - 1);
        self.recent[..=last].rotate_right(1);
        self.recent[0] = start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(start: u32, end: u32) -> Range {
        Range { start: SequenceNumber(start), end: SequenceNumber(end) }
    }

    fn blocks(reassembly: &Reassembly) -> Vec<(u32, u32)> {
        let mut blocks = SackBlocks::default();
        reassembly.sack_blocks(&mut blocks);
        blocks.as_slice().to_vec()
    }

    #[test]
    fn rfc_2018_section_4_the_block_of_the_latest_segment_comes_first() {
        let mut reassembly = Reassembly::default();
        for start in [5500, 6500, 7500, 8500] {
            assert_eq!(reassembly.insert(range(start, start + 500)), Inserted::New);
        }
        assert_eq!(blocks(&reassembly), [(8500, 9000), (7500, 8000), (6500, 7000), (5500, 6000)]);
        assert_eq!(reassembly.insert(range(7000, 7500)), Inserted::New);
        assert_eq!(blocks(&reassembly), [(6500, 8000), (8500, 9000), (5500, 6000)]);
        assert_eq!(reassembly.insert(range(8600, 8700)), Inserted::Duplicate);
        assert_eq!(blocks(&reassembly), [(8500, 9000), (6500, 8000), (5500, 6000)]);
    }

    #[test]
    fn more_ranges_than_are_kept_are_refused() {
        let mut reassembly = Reassembly::default();
        for n in 0..MAX_RANGES as u32 {
            assert_eq!(reassembly.insert(range(10 * n, 10 * n + 1)), Inserted::New);
        }
        assert_eq!(reassembly.insert(range(100_000, 100_001)), Inserted::Full);
        assert_eq!(reassembly.insert(range(0, 100_001)), Inserted::New, "what joins some has room");
        assert_eq!(reassembly.len(), 1);
    }

    proptest! {
        #[test]
        fn equals_a_set_of_bytes(
            base: u32, inserts in proptest::collection::vec((1u32..200, 1u32..30), 1..80), advance in 0u32..250
        ) {
            let (mut reassembly, mut model) = (Reassembly::default(), std::collections::BTreeSet::new());
            for (start, len) in inserts {
                let new = (start..start + len).filter(|at| model.insert(*at)).count();
                let at = base.wrapping_add(start);
                let inserted = reassembly.insert(range(at, at.wrapping_add(len)));
                prop_assert_eq!(inserted == Inserted::New, new > 0);
            }
            let mut end = advance;
            while model.contains(&end) { end += 1; }
            let got = reassembly.advance(SequenceNumber(base.wrapping_add(advance)));
            prop_assert_eq!(got.0.wrapping_sub(base), end);
            let left: usize = reassembly.ranges.iter().map(|r| r.end.since(r.start)).sum();
            prop_assert_eq!(left, model.range(end..).count());
        }
    }
}

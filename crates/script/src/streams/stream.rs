//! The octets of one stream, by their sequence numbers.

use std::ops::Range;

use super::fault::Fault;

/// Parts that are known apart from each other, at most: a sender that leaves more holes than this is not waited for.
const MOST_PARTS: usize = 16;

/// What is known of one direction of a connection. Of an octet that comes more than once, the first copy counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stream {
    /// The sequence number of the first octet.
    start: u32,
    /// Known octets, zeros between them.
    octets: Vec<u8>,
    /// Which octets are known: in order, with holes between them.
    known: Vec<Range<usize>>,
    /// Where FIN says that it ends.
    end: Option<usize>,
}

impl Stream {
    /// A stream of which nothing is known but its first sequence number.
    pub(super) const fn new(start: u32) -> Self {
        Self { start, octets: Vec::new(), known: Vec::new(), end: None }
    }

    pub(super) const fn start(&self) -> u32 {
        self.start
    }

    /// The octets from the beginning to the first hole.
    pub(super) fn octets(&self) -> &[u8] {
        &self.octets[..self.length()]
    }

    /// How many these are.
    pub(super) fn length(&self) -> usize {
        self.known.first().filter(|first| first.start == 0).map_or(0, |first| first.end)
    }

    /// Whether all octets up to FIN are known.
    pub(super) fn is_complete(&self) -> bool {
        self.end == Some(self.length())
    }

    /// Octets of memory.
    pub(super) const fn size(&self) -> usize {
        self.octets.capacity()
    }

    /// Forgets what is behind the first hole.
    pub(super) fn truncate(&mut self) {
        let length = self.length();
        self.known.truncate(usize::from(length > 0));
        self.octets.truncate(length);
        self.octets.shrink_to_fit();
    }

    /// How far behind the first octet a sequence number is, modulo 2^32 (RFC 9293 section 3.4).
    fn distance(&self, sequence: u32) -> i64 {
        i64::from(sequence.wrapping_sub(self.start).cast_signed())
    }

    /// Takes the octets from a sequence number on, and FIN behind them, as far as there is room up to `limit`.
    ///
    /// # Errors
    /// Why the receiver must not have them. What contradicts, or begins before the stream, changes nothing.
    pub(super) fn take(
        &mut self,
        sequence: u32,
        octets: &[u8],
        fin: bool,
        limit: usize,
    ) -> Result<(), Fault> {
        if octets.is_empty() && !fin {
            return Ok(());
        }
        let Ok(at) = usize::try_from(self.distance(sequence)) else { return Err(Fault::Contradicts) };
        let end = at + octets.len();
        self.check(at, octets)?;
        let is_end_wrong = match self.end {
            Some(known) => end > known || fin && end != known,
            None => fin && self.known.last().is_some_and(|last| last.end > end),
        };
        if is_end_wrong {
            return Err(Fault::Contradicts);
        }
        let is_early = at > self.length();
        if fin {
            self.end = Some(end);
        }
        self.learn(at, &octets[..octets.len().min(limit.saturating_sub(at))]);
        if end > limit {
            Err(Fault::Full)
        } else if is_early {
            Err(Fault::Early)
        } else {
            Ok(())
        }
    }

    /// Compares octets with those that are known.
    ///
    /// # Errors
    /// One is another.
    pub(super) fn check(&self, at: usize, octets: &[u8]) -> Result<(), Fault> {
        let end = at + octets.len();
        for known in self.known.iter().filter(|known| known.start < end && at < known.end) {
            let both = known.start.max(at)..known.end.min(end);
            if self.octets[both.clone()] != octets[both.start - at..both.end - at] {
                return Err(Fault::Contradicts);
            }
        }
        Ok(())
    }

    /// Notes octets that contradict none; if that made too many parts of the stream, nothing.
    fn learn(&mut self, at: usize, octets: &[u8]) {
        let mut part = at..at + octets.len();
        let joins = |known: &Range<usize>| known.start <= part.end && part.start <= known.end;
        let first = self.known.iter().position(joins);
        // The beginning has its place in any case: what is not early is known from here on.
        if octets.is_empty() || first.is_none() && at > 0 && self.known.len() >= MOST_PARTS {
            return;
        }
        if self.octets.len() < part.end {
            self.octets.resize(part.end, 0);
        }
        self.octets[part.clone()].copy_from_slice(octets);
        let place = match first {
            Some(first) => {
                let count = self.known[first..].iter().take_while(|known| joins(known)).count();
                let joined = &self.known[first..first + count];
                part = part.start.min(joined[0].start)..part.end.max(joined[count - 1].end);
                self.known.drain(first..first + count);
                first
            }
            None => self.known.partition_point(|known| known.start < part.start),
        };
        self.known.insert(place, part);
    }
}

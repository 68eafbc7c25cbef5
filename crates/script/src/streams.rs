//! Streams of TCP, put together from segments for who decides about them: a script that looks for a name, say, which a
//! sender may have split over segments in any way.
//!
//! # What a receiver can be shown
//!
//! Receivers differ in which copy of an octet they take where segments overlap, and in what they leave out; a filter that
//! guesses is passed by who knows better (T. Ptacek, T. Newsham, "Insertion, Evasion, and Denial of Service", 1998). So
//! nothing is guessed here, but told which segments a receiver may have: those without a [`Fault`]. **If only these reach
//! it, whatever it does with them, what it has in its order is the beginning of [`Streams::octets`]**
//! (the normaliser of M. Handley, V. Paxson, C. Kreibich, "Network Intrusion Detection: Evasion, Traffic Normalization, and
//! End-to-End Protocol Semantics", 2001):
//!
//! - The first copy of an octet counts. A segment with another one in its place [contradicts](Fault::Contradicts),
//!   whether the first copy has reached the receiver or not.
//! - A segment behind a hole is [early](Fault::Early). Its octets are kept, so that the hole's end shows them; the sender
//!   sends it again. If it went on, its place in the receiver's stream would be taken on trust.
//! - The stream begins behind the SYN that was seen first. Another SYN contradicts, until [`QUIET_MS`] after the stream has
//!   ended or was refused, or after the last segment of one that has no octets.
//! - Octets that the receiver may leave out or never get as they are here, for their checksum, urgency or fragments, are
//!   faults, too.
//!
//! Who decides keeps what was examined: a copy of it that comes later is compared with it, also after the stream was
//! accepted. What follows it is free. A refused stream stays refused. Sequence numbers come back after 4 GiB, and what
//! has them then is no copy: so once 2 GiB but a little have passed in the half of them that begins 2 GiB behind a stream's
//! beginning, nothing of it is compared any more. A sender that does not mean these octets has to send as many.
//!
//! # Bounds
//!
//! A stream has at most [`Limits::octets`], all of a table [`Limits::memory`], and there are [`Limits::streams`] of which
//! nothing was seen but SYN, as many with octets, and as many that are decided: a flood of one kind evicts none of another
//! kind. What was used longest ago goes first. A segment with octets whose stream is not known makes none: it is
//! [unknown](Fault::Unknown).

mod fault;
mod segment;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use fault::Fault;
pub use segment::Segment;
use stream::Stream;
use wire::tcp;

use crate::tables::{Shape, Table, WhenFull};

/// For how long no other stream may take the place of one that has ended: RFC 9293 section 3.4.3, maximum segment lifetime.
pub const QUIET_MS: u64 = 120_000;

/// Octets that have passed in the upper half of the sequence numbers once a stream is about to come to its first numbers again.
/// What is left is more than may be examined, and one segment.
pub const AROUND: u64 = (1 << 31) - (1 << 21);

/// What scripts know a stream by: protocol, addresses and ports of its flow, and the direction.
pub type StreamKey = [u8; 38];

/// Bounds of a table of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Streams of each kind: with nothing but SYN, with octets, decided.
    pub streams: usize,
    /// Octets of one stream.
    pub octets: usize,
    /// Octets of all.
    pub memory: usize,
    /// Milliseconds after which a stream that nothing was seen of is forgotten.
    pub expires_ms: u64,
}

impl Default for Limits {
    /// 65,536 streams of 16 KiB, the largest record of TLS, in 16 MiB; 2 hours and 4 minutes (RFC 5382, REQ-5).
    fn default() -> Self {
        Self { streams: 65_536, octets: 16 << 10, memory: 16 << 20, expires_ms: 124 * 60 * 1000 }
    }
}

/// What becomes of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// What follows passes.
    Accept,
    /// Nothing of it passes any more.
    Refuse,
}

/// A stream that was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decided {
    /// How.
    pub decision: Decision,
    /// The sequence number of its first octet.
    pub start: u32,
    /// How many octets were examined: no others may come in their place.
    pub examined: u32,
    /// Octets that have passed in the upper half of the sequence numbers, see [`AROUND`].
    pub upper: u64,
    has_ended: bool,
    seen_ms: u64,
}

/// What a segment is to its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Why the receiver must not have it.
    pub fault: Option<Fault>,
    /// Whether its stream was decided before.
    pub decided: Option<Decided>,
    /// It begins a stream: what was decided of one with this key before is void.
    pub begins: bool,
}

/// Streams by their keys: the addresses and ports of one direction.
#[derive(Debug)]
pub struct Streams {
    limits: Limits,
    /// Those of which nothing was seen but SYN.
    opening: Table<Entry>,
    /// Those with octets, also of accepted ones.
    open: Table<Entry>,
    decided: Table<Decided>,
    /// Octets in all of them.
    held: Arc<AtomicUsize>,
}

/// A stream in a table.
#[derive(Debug)]
struct Entry {
    stream: Stream,
    has_ended: bool,
    seen_ms: u64,
    held: Held,
}

/// Octets that count, until it is dropped.
#[derive(Debug)]
struct Held {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Held {
    fn set(&mut self, own: usize) {
        self.all.fetch_add(own, Ordering::Relaxed);
        self.all.fetch_sub(self.own, Ordering::Relaxed);
        self.own = own;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Streams {
    /// A table without streams.
    pub fn new(limits: Limits) -> Self {
        let shape =
            Shape { limit: limits.streams, expires_ms: Some(limits.expires_ms), when_full: WhenFull::Oldest };
        Self {
            limits,
            opening: Table::new(shape),
            open: Table::new(shape),
            decided: Table::new(shape),
            held: Arc::default(),
        }
    }

    /// Its bounds.
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Octets that it holds.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Takes a segment to its stream.
    pub fn take(&mut self, key: &[u8], segment: &Segment<'_>, now_ms: u64) -> Seen {
        let mut begins = false;
        // A reset may have the flag, too, but begins nothing.
        if segment.has(tcp::SYN) && !segment.has(tcp::RST) && segment.fault.is_none() {
            let start = segment.sequence.wrapping_add(1);
            match self.known(key, now_ms) {
                Some((known, _)) if known == start => {}
                Some((_, seen_ms)) if seen_ms.is_none_or(|seen| now_ms < seen.saturating_add(QUIET_MS)) => {
                    let decided = self.decided.get(key, now_ms).copied();
                    return Seen { fault: Some(Fault::Contradicts), decided, begins: false };
                }
                _ => {
                    self.forget(key, now_ms);
                    self.opening.entry(key, now_ms, || Entry::new(start, now_ms, &self.held));
                    begins = true;
                }
            }
        }
        let (fault, decided) = match self.decided.get(key, now_ms).copied() {
            Some(decided) => (self.take_decided(key, segment, decided, now_ms), Some(decided)),
            None => (self.take_open(key, segment, now_ms), None),
        };
        Seen { fault, decided, begins }
    }

    /// The octets of a stream from its beginning to the first hole.
    pub fn octets(&self, key: &[u8], now_ms: u64) -> &[u8] {
        self.open.get(key, now_ms).map_or(&[], |entry| entry.stream.octets())
    }

    /// Whether no octets of it can follow: all are there up to FIN, or it was reset.
    pub fn has_ended(&self, key: &[u8], now_ms: u64) -> bool {
        self.open
            .get(key, now_ms)
            .or_else(|| self.opening.get(key, now_ms))
            .is_some_and(|entry| entry.has_ended)
            || self.decided.get(key, now_ms).is_some_and(|decided| decided.has_ended)
    }

    /// Decides what becomes of a stream from here on, known or not.
    pub fn decide(&mut self, key: &[u8], decision: Decision, now_ms: u64) -> Decided {
        let entry = self.open.get(key, now_ms).or_else(|| self.opening.get(key, now_ms));
        let new = match (self.decided.get(key, now_ms), entry) {
            // What an accepted stream began with is still to be compared.
            (Some(before), None) => Decided { decision, seen_ms: now_ms, ..*before },
            (_, Some(entry)) => Decided {
                decision,
                start: entry.stream.start(),
                examined: entry.stream.length() as u32,
                upper: 0,
                has_ended: entry.has_ended,
                seen_ms: now_ms,
            },
            (None, None) => Decided { seen_ms: now_ms, ..Decided::known(decision, 0, 0, 0) },
        };
        self.opening.remove(key, now_ms);
        if decision == Decision::Refuse || new.examined == 0 {
            self.open.remove(key, now_ms);
        } else if self.open.get(key, now_ms).is_some()
            && let Some(entry) = self.open.entry(key, now_ms, || Entry::new(new.start, now_ms, &self.held))
        {
            entry.stream.truncate();
            entry.held.set(entry.stream.size());
        }
        if let Some(decided) = self.decided.entry(key, now_ms, || new) {
            *decided = new;
        }
        new
    }

    /// Takes over what somebody else still knows of a stream that is forgotten here.
    pub fn restore(&mut self, key: &[u8], decided: Decided, now_ms: u64) {
        if self.known(key, now_ms).is_none() {
            self.decided.entry(key, now_ms, || Decided { seen_ms: now_ms, ..decided });
        }
    }

    /// The first sequence number of a stream and, if another one may follow it, when something was seen of it.
    fn known(&self, key: &[u8], now_ms: u64) -> Option<(u32, Option<u64>)> {
        if let Some(decided) = self.decided.get(key, now_ms) {
            let is_over = decided.has_ended || decided.decision == Decision::Refuse;
            return Some((decided.start, is_over.then_some(decided.seen_ms)));
        }
        if let Some(entry) = self.open.get(key, now_ms) {
            return Some((entry.stream.start(), entry.has_ended.then_some(entry.seen_ms)));
        }
        self.opening.get(key, now_ms).map(|entry| (entry.stream.start(), Some(entry.seen_ms)))
    }

    fn forget(&mut self, key: &[u8], now_ms: u64) {
        self.decided.remove(key, now_ms);
        self.open.remove(key, now_ms);
        self.opening.remove(key, now_ms);
    }

    /// A segment of a stream that nothing was decided of yet.
    fn take_open(&mut self, key: &[u8], segment: &Segment<'_>, now_ms: u64) -> Option<Fault> {
        let is_open = self.open.get(key, now_ms).is_some();
        let Some(start) = self.known(key, now_ms).map(|(start, _)| start) else {
            // Without octets there is nothing that a receiver could take for another thing.
            return segment.fault.or((!segment.octets.is_empty()).then_some(Fault::Unknown));
        };
        if segment.fault.is_some() {
            return segment.fault;
        }
        let is_reset = segment.has(tcp::RST);
        let carries = !is_reset && (!segment.octets.is_empty() || segment.has(tcp::FIN));
        if carries && !is_open {
            self.opening.remove(key, now_ms);
        }
        let table = if carries || is_open { &mut self.open } else { &mut self.opening };
        let entry = table.entry(key, now_ms, || Entry::new(start, now_ms, &self.held));
        let Some(entry) = entry else { return Some(Fault::Unknown) };
        entry.seen_ms = now_ms;
        if !carries {
            entry.has_ended |= is_reset;
            return None;
        }
        let sequence = segment.sequence.wrapping_add(u32::from(segment.has(tcp::SYN)));
        let result = entry.stream.take(sequence, segment.octets, segment.has(tcp::FIN), self.limits.octets);
        entry.held.set(entry.stream.size());
        entry.has_ended |= entry.stream.is_complete();
        // The one that was used last is this.
        while self.held() > self.limits.memory && self.open.forget_oldest() {}
        result.err()
    }

    /// A segment of a stream that was decided.
    fn take_decided(
        &mut self,
        key: &[u8],
        segment: &Segment<'_>,
        decided: Decided,
        now_ms: u64,
    ) -> Option<Fault> {
        let sequence = segment.sequence.wrapping_add(u32::from(segment.has(tcp::SYN)));
        let at = i64::from(sequence.wrapping_sub(decided.start).cast_signed());
        if let Some(entry) = self.decided.entry(key, now_ms, || decided) {
            if segment.has(tcp::FIN) || segment.has(tcp::RST) {
                (entry.has_ended, entry.seen_ms) = (true, now_ms);
            }
            if at < 0 {
                entry.upper += segment.octets.len() as u64;
            }
        }
        if decided.decision == Decision::Refuse || segment.octets.is_empty() || segment.has(tcp::RST) {
            return None;
        }
        if decided.upper >= AROUND
            || at >= i64::from(decided.examined)
            || at + segment.octets.len() as i64 <= 0
        {
            return None;
        }
        if segment.fault.is_some() {
            return segment.fault;
        }
        // What the octets were has been forgotten, or they were never part of it.
        let entry = self.open.get(key, now_ms).filter(|entry| entry.stream.start() == decided.start);
        match (entry, usize::try_from(at)) {
            (Some(entry), Ok(at)) => entry.stream.check(at, segment.octets).err(),
            _ => Some(Fault::Contradicts),
        }
    }
}

impl Decided {
    /// A stream of which so much is known: how it was decided, the first sequence number, how many octets were examined, and how
    /// many have passed in the upper half.
    pub(crate) const fn known(decision: Decision, start: u32, examined: u32, upper: u64) -> Self {
        Self { decision, start, examined, upper, has_ended: false, seen_ms: 0 }
    }
}

impl Entry {
    fn new(start: u32, seen_ms: u64, held: &Arc<AtomicUsize>) -> Self {
        let held = Held { all: Arc::clone(held), own: 0 };
        Self { stream: Stream::new(start), has_ended: false, seen_ms, held }
    }
}

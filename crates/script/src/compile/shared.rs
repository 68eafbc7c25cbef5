//! What outlives a packet: tables of the library as plain data, and the maps of the kernel that stand for them.
//!
//! All numbers in a map are in the order of the machine but in prefixes. A key has 8 bytes for each of its parts, 16 for an
//! IPv6 address; a value has the milliseconds when it was written before it (`CLOCK_MONOTONIC`; 0 if it does not expire).
//! That of a flow has the direction of its first packet next, and then its integers. That of a
//! record, a value of several parts, ends with its [`seal`]. Counters and histograms are arrays
//! of numbers: of a histogram the sum of its values comes first, then its buckets.

use std::sync::Arc;

use ipnet::IpNet;

use crate::kind::Kind;
use crate::metric::Metric;
use crate::tables::{Shape, WhenFull};

/// A table, counter, histogram or set of prefixes of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Shared {
    /// Its name: the same one in all scripts.
    pub name: String,
    /// What it is.
    pub form: Form,
    /// Whether what is in it is to outlive the process that runs the scripts.
    pub persistent: bool,
    /// What metrics export it as.
    pub metric: Option<Arc<Metric>>,
}

/// What there is.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// `nf.table`
    Table {
        /// The parts of a key.
        key: Vec<Part>,
        /// The parts of a value: several are a record, which is read and written as one.
        value: Vec<Part>,
        /// Its limit, expiry, and what happens when it is full.
        shape: Shape,
    },
    /// `nf.flows`
    Flows {
        /// As that of a table.
        shape: Shape,
        /// Names of the integers of a flow, as far as they are known.
        names: Vec<Arc<str>>,
    },
    /// `nf.counter`
    Counter,
    /// `nf.histogram`
    Histogram {
        /// The largest value of each bucket but the last.
        bounds: Arc<[i64]>,
    },
    /// `nf.prefixes`
    Prefixes {
        /// Prefixes at most.
        limit: usize,
        /// Those that the top level has put there, with their integers.
        entries: Vec<(IpNet, i64)>,
    },
}

/// A part of a key, or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Of a kind that is no string.
    Kind(Kind),
    /// A string of so many bytes at most: its length, then its bytes, filled up with zeros.
    Text(usize),
}

/// A map that a program needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    /// What it stands for.
    pub shared: Arc<Shared>,
    /// What of that.
    pub part: MapPart,
}

/// What of a table is in a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapPart {
    /// All entries; of a set of prefixes, those of IPv4.
    Entries,
    /// The IPv6 prefixes of a set.
    Ipv6,
    /// The locks of records: a program that reads or writes one has that of its key ([`lock`]).
    Locks,
}

/// Kinds of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the kernel's names")]
pub enum MapKind {
    Hash,
    LruHash,
    Array,
    LongestPrefix,
    Locks,
}

/// The locks of a table, a power of two, and how large each is: a line of a processor's cache.
const LOCKS: u32 = 64;
const LOCK_SIZE: usize = 64;
/// By how much a product is shifted that says which.
pub(super) const LOCK_SHIFT: i32 = 64 - LOCKS.trailing_zeros() as i32;
/// Odd: nothing is lost of what is multiplied by it.
pub(super) const SEAL: u64 = 0x9e37_79b9_7f4a_7c15;
pub(super) const SEAL_SHIFT: i32 = 29;

/// Numbers in the key of a flow: protocol and ports, and two for each address.
pub(super) const FLOW_KEY: usize = 5;

impl Map {
    /// Whether one map does for both: they have one name, and what is in them means the same.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let same = match (&self.shared.form, &other.shared.form) {
            (Form::Flows { names, .. }, Form::Flows { names: others, .. }) => names == others,
            (Form::Flows { .. }, _) | (_, Form::Flows { .. }) => false,
            (Form::Histogram { bounds }, Form::Histogram { bounds: others }) => bounds == others,
            (Form::Histogram { .. }, _) | (_, Form::Histogram { .. }) => false,
            // Of one size they may be, and mean something else.
            (Form::Table { key, value, .. }, Form::Table { key: keys, value: values, .. }) => {
                key == keys && value == values
            }
            _ => true,
        };
        same && self.shared.name == other.shared.name
            && self.part == other.part
            && self.measures() == other.measures()
    }

    /// Where the seal of a record is in its value, in bytes.
    #[must_use]
    pub fn seal_place(&self) -> Option<usize> {
        match &self.shared.form {
            Form::Table { value, .. } if value.len() > 1 => Some(8 + words_of(value) * 8),
            _ => None,
        }
    }

    /// The kind of map, the sizes of a key and a value in bytes, and how many entries it has at most.
    #[must_use]
    pub fn measures(&self) -> (MapKind, usize, usize, u32) {
        let entries = |limit: usize| u32::try_from(limit).unwrap_or(u32::MAX);
        let kind_of = |shape: &Shape| match shape.when_full {
            WhenFull::Refuse => MapKind::Hash,
            WhenFull::Oldest => MapKind::LruHash,
        };
        match &self.shared.form {
            _ if self.part == MapPart::Locks => (MapKind::Locks, 4, LOCK_SIZE, LOCKS),
            Form::Table { key, value, shape } => {
                let key = words_of(key);
                let seal = usize::from(self.seal_place().is_some());
                (kind_of(shape), key * 8, (1 + words_of(value) + seal) * 8, entries(shape.limit))
            }
            Form::Flows { shape, names } => {
                (kind_of(shape), FLOW_KEY * 8, (2 + names.len()) * 8, entries(shape.limit))
            }
            Form::Counter | Form::Histogram { .. } => (MapKind::Array, 4, 8, entries(self.shared.limit())),
            Form::Prefixes { limit, .. } => {
                // One more than there may be: before Linux 6.13 a full one refuses to change what is in it.
                (
                    MapKind::LongestPrefix,
                    if self.part == MapPart::Ipv6 { 20 } else { 8 },
                    8,
                    entries(*limit + 1),
                )
            }
        }
    }
}

/// What is behind a record, of the numbers of its key and those before it. The kernel gives the place of an entry that
/// goes to another at once, also while a program still looks at it; and from outside an entry is read without its lock. Who
/// finds another seal has found no record, and looks again.
pub(crate) fn seal(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, |seal, number| {
        let product = (seal ^ number).wrapping_mul(SEAL);
        product ^ product >> SEAL_SHIFT
    })
}

/// Numbers of 64 bits that parts take.
pub(crate) fn words_of(parts: &[Part]) -> usize {
    parts.iter().map(|part| words(*part)).sum()
}

/// Numbers of 64 bits that it takes.
pub(crate) fn words(part: Part) -> usize {
    match part {
        Part::Kind(Kind::Ipv6) => 2,
        Part::Kind(_) => 1,
        Part::Text(longest) => 1 + longest.div_ceil(8),
    }
}

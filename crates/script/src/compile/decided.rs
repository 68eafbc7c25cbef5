//! What was decided of streams, in a map of the kernel: Lua writes it, and a program that finds a stream there need not
//! hand its segments over.
//!
//! A key has the numbers of a flow's, and the direction in the first one. A value has octets in the place of the time, those
//! of [`AROUND`](crate::streams::AROUND), which the program counts with their headers. Behind them is a number: 0 for a
//! stream that was refused, otherwise the sequence number from which on segments are still Lua's to look at, and in the
//! upper half how many sequence numbers are: those of the octets that were examined, and those of a segment before that may
//! reach into them.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::shared::{FLOW_KEY, Form, Map, Part, Shared};
use crate::kind::Kind;
use crate::streams::{Decided, Decision, StreamKey};
use crate::tables::{Shape, WhenFull};

/// Where the direction is in the first number of a key.
pub(super) const DIRECTION: u32 = 40;
/// Octets of the longest segment, GSO packets among them.
const LONGEST: u32 = 1 << 16;

/// The map of a table of streams.
pub(crate) fn shared(name: &str, limit: usize) -> Shared {
    let int = Part::Kind(Kind::Int);
    let shape = Shape { limit, expires_ms: None, when_full: WhenFull::Oldest };
    let form = Form::Table { key: vec![int; FLOW_KEY], value: vec![int], shape };
    Shared { name: name.to_owned(), form, persistent: false, metric: None }
}

/// Whether a map of a program that hands over is one of streams, of the table of this name. Such a program has no other
/// tables: those are Lua's.
pub fn is_of(map: &Map, name: &str) -> bool {
    matches!(map.shared.form, Form::Table { .. }) && map.shared.name == name
}

/// A stream's key there.
pub fn key(stream: &StreamKey) -> Vec<u8> {
    let number = |at: usize, length: usize| {
        stream[at..at + length].iter().fold(0, |number, octet| number << 8 | u64::from(*octet))
    };
    let first = number(37, 1) << DIRECTION | number(0, 1) << 32 | number(17, 2) << 16 | number(35, 2);
    let numbers = [first, number(1, 8), number(9, 8), number(19, 8), number(27, 8)];
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// What is there of a stream.
pub fn value(decided: &Decided) -> Vec<u8> {
    let number = match decided.decision {
        Decision::Refuse => 0,
        Decision::Accept => {
            u64::from(decided.examined + LONGEST) << 32 | u64::from(decided.start.wrapping_sub(LONGEST))
        }
    };
    [decided.upper, number].iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// The stream that this is there of.
pub fn of_value(value: &[u8]) -> Option<Decided> {
    let [upper, number] = value.as_chunks().0 else { return None };
    let (upper, number) = (u64::from_ne_bytes(*upper), u64::from_ne_bytes(*number));
    let (from, count) = (number as u32, (number >> 32) as u32);
    Some(match number {
        0 => Decided::known(Decision::Refuse, 0, 0, upper),
        _ => {
            let start = from.wrapping_add(LONGEST);
            Decided::known(Decision::Accept, start, count.saturating_sub(LONGEST), upper)
        }
    })
}

/// The map that a call without a table is about.
pub(super) fn default() -> Arc<Shared> {
    Arc::new(shared("", crate::streams::Limits::default().streams))
}

//! What a program counts where it is attached, how long it takes, and where it logs.

use std::os::fd::RawFd;

use super::ir::Failure;
use super::logging;
use crate::vm::Verdict;

/// Maps that a program counts in, each with one entry of the number 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accounts {
    /// Where copies of packets go.
    pub mirrors: Mirrors,
    /// Values for each processor: 64-bit integers, packets by verdict in the order of [`Verdict::ALL`], then
    /// [errors](ERRORS), packets that were [punted](PUNTED), packets that began, and [times](SAMPLES).
    pub counters: RawFd,
    /// The last error: [`fault`] reads it.
    pub fault: RawFd,
    /// Where it logs; without it, it does not.
    pub log: Option<Log>,
}

/// A ring buffer for `nf.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Its descriptor.
    pub ring: RawFd,
    /// What the program is called in its [records](super::logging::record).
    pub program: u32,
    /// Where a packet is put together for a [capture](super::logging::captured): a map of the kind and size that
    /// [`SCRATCH`] says.
    pub scratch: RawFd,
    /// How many packets may yet be followed: an array with one value of [`FOLLOWED`] bytes, for a program with
    /// [points](crate::trace::points).
    pub followed: RawFd,
}

/// What becomes of the copies of packets that a program makes for other interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mirrors {
    /// Nothing is sent: each is told as a [capture](super::logging::captured), with a number behind those of the captures.
    Told,
    /// They are sent to the interfaces whose numbers are in this map, an array of the size that [`MIRROR`] says, in the
    /// order of the program's names; 0: there is none.
    Sent(RawFd),
}

/// Bytes of the number of an interface that packets are copied to.
pub const MIRROR: usize = 4;

/// Bytes of the only value, for each processor, of a map that packets are captured through: when a second began, and how many
/// were captured in it; the head of a record; and the packet.
pub const SCRATCH: usize = 16 + logging::HEAD + logging::CAPTURED;
/// Packets that one processor captures in a second: more would keep the ring from what is logged.
pub const CAPTURES_A_SECOND: i32 = 1000;

/// Place of the errors among the counters.
pub const ERRORS: usize = Verdict::ALL.len();
/// Place of the packets that the user tier has.
pub const PUNTED: usize = ERRORS + 1;
/// Place of the packets whose time was taken, and behind it of these times in nanoseconds.
pub const SAMPLES: usize = ERRORS + 3;
/// Place of the records that found the ring full.
pub const LOST: usize = SAMPLES + 2;
/// Bytes of the counters, and of the last error.
pub const SIZES: (usize, usize) = (8 * (LOST + 1), 8);
/// Bytes of the number of packets that may yet be followed.
pub const FOLLOWED: usize = 8;

/// The line and the reason of the last error; none as long as there was none.
#[must_use]
pub fn fault(value: u64) -> Option<(u32, Failure)> {
    let failure = Failure::ALL.get((value & 0xff).checked_sub(1)? as usize)?;
    Some(((value >> 8) as u32, *failure))
}

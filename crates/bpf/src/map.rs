//! Maps: what programs and user space both read and write.

/// What a map holds. The numbers of an array's entries are keys of four bytes in the order of this machine; all of them
/// are there from the start, zeros at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    /// Any keys and values; an entry takes memory when it is made, its bucket (16 bytes) always.
    Hash,
    /// Values by number.
    Array,
    /// Values by number, each processor its own: for counters.
    PerCpuArray,
    /// Programs by number, for a tail call; values are descriptors of four bytes.
    Programs,
    /// Any keys and values, of which the least used go first when it is full.
    LruHash,
    /// Values by the longest prefix that matches. A key is the prefix's length in bits (four bytes in the order of this
    /// machine), and the prefix.
    LongestPrefix,
    /// Locks by number: each value begins with one (`struct bpf_spin_lock`), which programs alone take.
    Locks,
    /// Sockets by number; values are descriptors of eight bytes.
    Sockets,
    /// What programs tell, in the order in which they do. No keys and values; `entries` is its size in bytes, a power of
    /// two of whole pages.
    RingBuffer,
}

/// What a map is like: declared beside the programs that use it, so that user space makes it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    /// What it holds.
    pub kind: MapKind,
    /// Bytes of a key.
    pub key: usize,
    /// Bytes of a value.
    pub value: usize,
    /// Entries, at most.
    pub entries: u32,
}

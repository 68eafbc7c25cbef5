//! What programs and daemon agree on: the form of masked packets, and where things are in the tables.

use std::os::fd::{AsRawFd, RawFd};

use bpf::{MapKind, MapShape};

/// Of ChaCha: docs/protocol.md section 9.6 says why so many.
pub const ROUNDS: usize = 8;

/// Messages that are at least so long keep their size, and have their first [`HEAD`] bytes masked.
pub const LARGE: i32 = 160;
/// What a block masks: what is left of it behind [`MARK`].
pub const HEAD: i32 = 56;
/// The bytes at a message's end that its mask comes from.
pub const SAMPLE: i32 = 16;
/// Of a block, what says of a packet whose it is.
pub const MARK: i32 = 8;
/// What a small message has behind itself and its padding: whether it is one, how long it is, a sample.
pub const TRAILER: i32 = MARK + SAMPLE;

/// Key of the tables of flows: source and destination address, source and destination port, as packets have them.
pub const FLOW: usize = 36;
/// How many draws a flow knows ahead, each for 2^[`MOMENT`] nanoseconds of CLOCK_MONOTONIC.
pub const DRAWS: usize = 64;
/// About an eighth of a second, for which the daemon's own draws hold, too.
pub const MOMENT: i32 = 27;
/// Value of the table of flows: the numbers of the lanes that were drawn (2 bytes each, [`NO_LANE`] for none), the flow's own
/// (4 bytes), and by how much its draws begin earlier than others' (4 bytes).
pub const DRAWN: usize = 2 * DRAWS + 8;
/// Where no lane was drawn packets are the daemon's.
pub const NO_LANE: u16 = u16::MAX;
/// Value of the table of lanes that packets leave by.
pub const LANE: usize = 120;
/// Value of the table of lanes that packets come by.
pub const INCOMING: usize = 96;
/// Of what padding and samples come from.
pub const CHANCE: usize = 32;
/// Counters of a flow, 8 bytes each: packets and bytes out, packets and bytes in.
pub const COUNTERS: usize = 32;

/// Where things are in the values.
pub mod at {
    /// Of a flow: its number, 4 bytes.
    pub const NUMBER: i16 = 2 * super::DRAWS as i16;
    /// By how many nanoseconds its draws begin earlier, 4 bytes.
    pub const EARLIER: i16 = NUMBER + 4;

    /// Of a lane by which packets leave: the interface, 4 bytes; 0: none, packets are the daemon's.
    pub const INTERFACE: i16 = 0;
    /// The largest packet that leaves, 4 bytes.
    pub const MTU: i16 = 4;
    /// Zero, 4 bytes; programs do not know that it is.
    pub const ZERO: i16 = 8;
    /// The next hop: [`next_hop`](bpf::next_hop).
    pub const NEIGHBOR: i16 = 16;
    /// How the sum of the addresses changes, 4 bytes.
    pub const ADDRESSES_DIFFERENCE: i16 = 40;
    /// And that of the ports.
    pub const PORTS_DIFFERENCE: i16 = 44;
    /// Source and destination address, 32 bytes, and their ports, 4 bytes.
    pub const ADDRESSES: i16 = 48;
    /// Of 32 bytes.
    pub const KEY: i16 = 88;

    /// The same of a lane by which packets come, with the flow's addresses.
    pub mod incoming {
        /// The flow's number.
        pub const NUMBER: i16 = 0;
        /// Zero, 4 bytes.
        pub const ZERO: i16 = 4;
        /// How the sum of the addresses changes, 4 bytes.
        pub const ADDRESSES_DIFFERENCE: i16 = 8;
        /// And that of the ports.
        pub const PORTS_DIFFERENCE: i16 = 12;
        /// Source and destination address, and their ports.
        pub const ADDRESSES: i16 = 16;
        /// Of 32 bytes.
        pub const KEY: i16 = 56;
    }
}

/// What programs and daemon share.
#[derive(Debug)]
pub struct Tables<M> {
    /// Packets of the other tunnel, by their addresses and ports.
    pub flows: M,
    /// The lanes that they leave by, by number.
    pub lanes: M,
    /// Packets from outside, by their addresses and ports.
    pub incoming: M,
    /// What was carried, by the number of the flow.
    pub counters: M,
    /// A key that nobody else has: samples and lengths of padding come from it.
    pub chance: M,
}

/// As programs name them.
pub(super) type Descriptors = Tables<RawFd>;

impl<M> Tables<M> {
    /// Tables for so many flows, with so many lanes in each direction, each made by `create`.
    ///
    /// # Errors
    /// Those of `create`.
    pub fn create<E>(flows: u32, lanes: u32, create: impl Fn(MapShape) -> Result<M, E>) -> Result<Self, E> {
        let table = |kind, key, value, entries| create(MapShape { kind, key, value, entries });
        Ok(Tables {
            flows: table(MapKind::Hash, FLOW, DRAWN, flows)?,
            lanes: table(MapKind::Array, 4, LANE, lanes)?,
            incoming: table(MapKind::Hash, FLOW, INCOMING, lanes)?,
            counters: table(MapKind::PerCpuArray, 4, COUNTERS, flows)?,
            chance: table(MapKind::Array, 4, CHANCE, 1)?,
        })
    }
}

impl<M: AsRawFd> Tables<M> {
    pub(super) fn descriptors(&self) -> Descriptors {
        Tables {
            flows: self.flows.as_raw_fd(),
            lanes: self.lanes.as_raw_fd(),
            incoming: self.incoming.as_raw_fd(),
            counters: self.counters.as_raw_fd(),
            chance: self.chance.as_raw_fd(),
        }
    }
}

//! Packets that are looked up by their pair of addresses, changed, and sent on at once by the interface that is written
//! down for them: what the programs of the classic profile ([`crate::classic`]) and of the moving-target protocol
//! ([`crate::rewrite`]) have in common.
//!
//! They run where a device hands packets to the daemon, and where packets come in from outside. What they do not take goes
//! on as if they were not there: they drop nothing but what they have changed already.

mod replace;

use std::os::fd::{AsRawFd, RawFd};

use bpf::{Assembler, Condition, Label, MapKind, MapShape, Operation, Register, Size, context};

use crate::snippet::{LINK_HEADER, Snippets as _};

pub(crate) use replace::{INFORMATIONAL, PSEUDO_HEADER};

/// Key of both tables: source and destination.
pub const KEY: usize = 32;
/// Value of the table of outgoing packets.
pub const OUTGOING: usize = 96;
/// Value of the table of incoming ones.
pub const INCOMING: usize = 80;
/// Counters of a stream, 8 bytes each: packets and bytes out, packets and bytes in.
pub const COUNTERS: usize = 32;
/// When the last GSO packet of a stream was seen, in nanoseconds.
const GSO_PACKETS: usize = 8;

/// Where things are in the values. Both begin with the next hop.
pub mod at {
    /// The interface, 4 bytes; 0: to this host itself.
    pub const INTERFACE: i16 = 0;
    /// Which stream, 4 bytes.
    pub const STREAM: i16 = 4;
    /// The largest packet that leaves by the interface, 4 bytes.
    pub const MTU: i16 = 8;
    /// Not zero: addresses are replaced, packets are not encapsulated. 4 bytes.
    pub const REWRITE: i16 = 12;
    /// The next hop, where it is a neighbor that can be sent to at once: [`next_hop`](bpf::next_hop). Otherwise
    /// zeros.
    pub const NEIGHBOR: i16 = 16;
    /// Outgoing: IPv6 and UDP header of the outer packet, 48 bytes, lengths and checksum zero.
    pub const HEADERS: i16 = 40;
    /// Outgoing: what does not change of the checksum, 4 bytes; where addresses are replaced, how the sum of what it
    /// covers changes.
    pub const SUM: i16 = 88;
    /// Incoming: source and destination of the inner packet, 32 bytes.
    pub const ADDRESSES: i16 = 40;
    /// Incoming: source and destination port, 4 bytes.
    pub const PORTS: i16 = 72;
    /// Incoming, where addresses are replaced: how the sum of what the checksum covers changes, 4 bytes.
    pub const DIFFERENCE: i16 = 76;
}

/// What programs and daemon share.
#[derive(Debug)]
pub struct Tables<M> {
    /// Packets of this side's hosts, by source and destination.
    pub outgoing: M,
    /// Packets from outside, likewise.
    pub incoming: M,
    /// What was carried, by the number of the stream.
    pub counters: M,
    /// When the last GSO packet was seen, by the number of the stream.
    pub(crate) gso_packets: M,
}

/// As programs name them.
pub(crate) type Descriptors = Tables<RawFd>;

impl<M> Tables<M> {
    /// Tables for so many streams, with so many routes that receive, each made by `create`.
    ///
    /// # Errors
    /// Those of `create`.
    pub fn create<E>(
        streams: u32,
        routes: u32,
        create: impl Fn(MapShape) -> Result<M, E>,
    ) -> Result<Self, E> {
        let table = |kind, key, value, entries| create(MapShape { kind, key, value, entries });
        Ok(Tables {
            outgoing: table(MapKind::Hash, KEY, OUTGOING, streams)?,
            incoming: table(MapKind::Hash, KEY, INCOMING, routes)?,
            counters: table(MapKind::PerCpuArray, 4, COUNTERS, streams)?,
            gso_packets: table(MapKind::Array, 4, GSO_PACKETS, streams)?,
        })
    }
}

impl<M: AsRawFd> Tables<M> {
    pub(crate) fn descriptors(&self) -> Descriptors {
        Tables {
            outgoing: self.outgoing.as_raw_fd(),
            incoming: self.incoming.as_raw_fd(),
            counters: self.counters.as_raw_fd(),
            gso_packets: self.gso_packets.as_raw_fd(),
        }
    }
}

// Places on the stack: the packet's beginning, what takes its place, the number of the stream.
pub(crate) const PACKET: i16 = -64;
pub(crate) const NEW: i16 = -120;
pub(crate) const NUMBER: i16 = -124;
pub(crate) const BYTE: i16 = -128;

// Offsets in IPv6, UDP and TCP headers.
pub(crate) const PAYLOAD_LENGTH: i16 = 4;
pub(crate) const NEXT_HEADER: i16 = 6;
pub(crate) const HOP_LIMIT: i16 = 7;
/// Where the source address is in an IPv6 header.
pub const SOURCE: i16 = 8;
pub(crate) const IPV6: i16 = 40;
pub(crate) const UDP_LENGTH: i16 = 4;
pub(crate) const UDP_CHECKSUM: i16 = 6;
pub(crate) const TCP_FLAGS: i16 = 13;
pub(crate) const TCP_SYN: i32 = 2;

pub(crate) use Condition::{Equal, Greater, Less, NotEqual};
pub(crate) use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
pub(crate) use Size::{Byte, Double, Half, Word};

/// In all of it R6 is the context, R7 the payload length of the packet as it came, R8 the table's value.
pub(crate) struct Code {
    pub(crate) code: Assembler,
    pub(crate) link: i32,
}

impl Code {
    /// Reads the first 48 bytes of a whole IPv6 packet.
    pub(crate) fn begin(&mut self, leave: Label) {
        let code = &mut self.code;
        code.copy(R6, R1);
        code.load(Word, R1, R6, context::PROTOCOL);
        code.jump_if(R1, NotEqual, i32::from(wire::ethernet::ETHERTYPE_IPV6.to_be()), leave);
        self.read(0, PACKET, 48, leave);
        let code = &mut self.code;
        code.load(Half, R7, R10, PACKET + PAYLOAD_LENGTH);
        code.network_order(R7, 16);
        code.load(Word, R1, R6, context::LEN);
        code.calculate(Operation::Subtract, R1, self.link + i32::from(IPV6));
        code.jump_if(R1, NotEqual, R7, leave);
    }

    /// Looks up a key on the stack: R0.
    pub(crate) fn look_up(&mut self, map: &RawFd, key: i16) {
        self.code.look_up(map, key);
    }

    /// Reads a part of the packet, from its IPv6 header, to the stack.
    pub(crate) fn read(&mut self, offset: i16, to: i16, length: i32, leave: Label) {
        self.code.load_bytes(self.link + i32::from(offset), to, length, leave);
    }

    /// Leaves a packet of R1 bytes if it is larger than what the interface takes.
    pub(crate) fn fits(&mut self, leave: Label) {
        self.code.load(Word, R2, R8, at::MTU);
        self.code.jump_if(R1, Greater, R2, leave);
    }

    /// Writes what is on the stack over the packet, at an offset from its IPv6 header, or loses it.
    pub(crate) fn write(&mut self, offset: i16, from: i16, length: i32) {
        self.code.store_bytes(self.link + i32::from(offset), from, length);
        self.code.or_drop();
    }

    /// Counts an inner packet of R7 bytes of payload, or the segments of a GSO packet.
    pub(crate) fn count(&mut self, tables: &Descriptors, direction: i16) {
        self.look_up(&tables.counters, NUMBER);
        let code = &mut self.code;
        let uncounted = code.label();
        code.jump_if(R0, Equal, 0, uncounted);
        code.segments();
        code.count(direction);
        code.copy(R1, R7);
        code.add(R1, i32::from(IPV6));
        code.count(direction + 8);
        code.bind(uncounted);
    }

    /// Sends the packet on, by its interface or into this host by the way that it would have come from us.
    pub(crate) fn send(&mut self) {
        let here = self.code.label();
        self.code.load(Word, R1, R8, at::INTERFACE);
        self.code.jump_if(R1, Equal, 0, here);
        if self.link == 0 {
            self.code.change_head(LINK_HEADER);
            self.code.or_drop();
        }
        self.send_by_interface();
        let code = &mut self.code;
        code.bind(here);
        code.load(Word, R1, R6, context::INTERFACE);
        code.redirect_into_host();
    }

    /// Sends the packet, with a link header in front, to the next hop that the interface's routes have for it.
    pub(crate) fn send_by_interface(&mut self) {
        self.code.load(Word, R1, R8, at::INTERFACE);
        self.code.redirect_to_known_neighbor(R8, at::NEIGHBOR);
    }
}

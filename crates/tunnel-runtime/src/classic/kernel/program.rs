//! The programs that carry packets of unencrypted streams in the kernel (docs/classic.md section 17); those whose addresses
//! are replaced, see `rewrite` and [`super::super::super::rewrite`].
//!
//! One runs where the device hands packets to us, in both directions: the stack has routed them there, has counted down
//! the hop limit and refused what is too big. What it takes it sends on at once, by the interface that we have written
//! down. What it does not take goes on to us as if it were not there: so it drops nothing, and what is wrong with a
//! packet is found and counted in one place.
//!
//! The other runs at the external interface, where there are links of the kind tcx: what comes from outside and is to be
//! forwarded it sends on before the stack has had to do with it. What it does not take comes to the device.

use linux::bpf::{
    Assembler, Condition, Helper, Label, Map, MapKind, NEXT_HOP, Operation, Register, Size, context, verdict,
};
use wire::protocol;

/// Key of both tables: source and destination.
pub(crate) const KEY: usize = 32;
/// Value of the table of outgoing packets.
pub(crate) const OUTGOING: usize = 96;
/// Value of the table of incoming ones.
pub(crate) const INCOMING: usize = 80;
/// Counters of a stream, 8 bytes each: packets and bytes out, packets and bytes in.
pub(super) const COUNTERS: usize = 32;
/// When the last super-packet of a stream was seen, in nanoseconds.
const SUPER_PACKETS: usize = 8;

/// Where things are in the values. Both begin with the next hop.
pub(crate) mod at {
    /// The interface, 4 bytes; 0: to this host itself.
    pub(crate) const INTERFACE: i16 = 0;
    /// Which stream, 4 bytes.
    pub(crate) const STREAM: i16 = 4;
    /// The largest packet that leaves by the interface, 4 bytes.
    pub(crate) const MTU: i16 = 8;
    /// Not zero: addresses are replaced, packets are not encapsulated. 4 bytes.
    pub(crate) const REWRITE: i16 = 12;
    /// The next hop, where it is a neighbor that can be sent to at once: [`next_hop`](linux::bpf::next_hop). Otherwise
    /// zeros.
    pub(crate) const NEIGHBOR: i16 = 16;
    /// Outgoing: IPv6 and UDP header of the outer packet, 48 bytes, lengths and checksum zero.
    pub(crate) const HEADERS: i16 = 40;
    /// Outgoing: what does not change of the checksum, 4 bytes; where addresses are replaced, how the sum of what it
    /// covers changes.
    pub(crate) const SUM: i16 = 88;
    /// Incoming: source and destination of the inner packet, 32 bytes.
    pub(crate) const ADDRESSES: i16 = 40;
    /// Incoming: source and destination port, 4 bytes.
    pub(crate) const PORTS: i16 = 72;
    /// Incoming, where addresses are replaced: how the sum of what the checksum covers changes, 4 bytes.
    pub(crate) const DIFFERENCE: i16 = 76;
}

/// A stream whose hosts send super-packets, which only we can take apart, is ours altogether until so long after the last
/// one, in nanoseconds: packets would overtake each other, and acknowledgements that come back too soon have a sender
/// send more at once than our queue holds.
const AFTER_SUPER_PACKET: i32 = 100_000_000;
/// Bytes that a link header has, where there is none and the next device wants one.
const LINK_HEADER: i32 = 14;
/// UDP header and what is left of the inner IPv6 header: what the tunnel adds to the inner payload.
const ADDED: i32 = 16;

/// What program and daemon share.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) outgoing: Map,
    pub(crate) incoming: Map,
    pub(crate) counters: Map,
    super_packets: Map,
}

impl Tables {
    /// Tables for so many streams, with so many routes that receive.
    pub(crate) fn new(streams: u32, routes: u32) -> linux::Result<Self> {
        Ok(Tables {
            outgoing: Map::create(MapKind::Hash, KEY, OUTGOING, streams)?,
            incoming: Map::create(MapKind::Hash, KEY, INCOMING, routes)?,
            counters: Map::create(MapKind::PerCpuArray, 4, COUNTERS, streams)?,
            super_packets: Map::create(MapKind::Array, 4, SUPER_PACKETS, streams)?,
        })
    }
}

// Places on the stack: the packet's beginning, what takes its place, the number of the stream.
pub(crate) const PACKET: i16 = -64;
pub(crate) const NEW: i16 = -120;
pub(crate) const NUMBER: i16 = -124;
const BYTE: i16 = -128;

// Offsets in IPv6, UDP and TCP headers.
const PAYLOAD_LENGTH: i16 = 4;
pub(crate) const NEXT_HEADER: i16 = 6;
pub(crate) const HOP_LIMIT: i16 = 7;
pub(crate) const SOURCE: i16 = 8;
pub(crate) const IPV6: i16 = 40;
const UDP_LENGTH: i16 = 4;
pub(crate) const UDP_CHECKSUM: i16 = 6;
const TCP_FLAGS: i16 = 13;
const TCP_SYN: i32 = 2;

pub(crate) use Condition::{Equal, Greater, Less, NotEqual};
pub(crate) use Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
pub(crate) use Size::{Byte, Double, Half, Word};

/// The program, for devices with a link header of so many bytes.
pub(super) fn program(tables: &Tables, link: u8) -> Assembler {
    let mut code = Code { code: Assembler::default(), link: link.into() };
    let [leave, outgoing, rewrite_incoming, rewrite_outgoing] = std::array::from_fn(|_| code.code.label());
    code.begin(leave);
    code.look_up(&tables.outgoing, PACKET + SOURCE);
    code.code.jump_if(R0, NotEqual, 0, outgoing);
    code.look_up(&tables.incoming, PACKET + SOURCE);
    code.code.jump_if(R0, Equal, 0, leave);
    code.take_value(rewrite_incoming);
    code.decapsulate(tables, leave);
    code.code.bind(outgoing);
    code.take_value(rewrite_outgoing);
    code.encapsulate(tables, leave);
    code.code.bind(rewrite_incoming);
    code.rewrite_incoming(tables, leave);
    code.code.bind(rewrite_outgoing);
    code.rewrite_outgoing(tables, leave);
    code.code.bind(leave);
    code.code.exit_with(verdict::NEXT);
    code.code
}

/// The part of it for the external interface, which has a link header of so many bytes: what comes from outside and goes on
/// by another interface does so before the stack. What it leaves comes to the device.
pub(super) fn incoming(tables: &Tables, link: u8) -> Assembler {
    const PACKET_HOST: i32 = 0;
    let mut code = Code { code: Assembler::default(), link: link.into() };
    let [leave, rewrite] = std::array::from_fn(|_| code.code.label());
    code.code.load(Word, R2, R1, context::PACKET_TYPE);
    code.code.jump_if(R2, NotEqual, PACKET_HOST, leave);
    code.begin(leave);
    code.look_up(&tables.incoming, PACKET + SOURCE);
    code.code.jump_if(R0, Equal, 0, leave);
    code.code.load(Word, R1, R0, at::INTERFACE);
    code.code.jump_if(R1, Equal, 0, leave);
    code.take_value(rewrite);
    code.decapsulate(tables, leave);
    code.code.bind(rewrite);
    code.rewrite_incoming(tables, leave);
    code.code.bind(leave);
    code.code.exit_with(verdict::NEXT);
    code.code
}

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

    /// R8 = the value that was found; goes on at the label where addresses are replaced.
    fn take_value(&mut self, rewrite: Label) {
        self.code.copy(R8, R0);
        self.code.load(Word, R1, R8, at::REWRITE);
        self.code.jump_if(R1, NotEqual, 0, rewrite);
    }

    /// A packet of a local host: addresses away, headers before it.
    fn encapsulate(&mut self, tables: &Tables, leave: Label) {
        self.not_beside_super_packets(tables, leave);
        self.code.copy(R1, R7);
        self.code.add(R1, i32::from(IPV6) + ADDED);
        self.fits(leave);
        self.has_checksum(PACKET, leave);
        // We tell TCP at the beginning of a connection what fits.
        let other = self.code.label();
        self.code.load(Byte, R1, R10, PACKET + NEXT_HEADER);
        self.code.jump_if(R1, NotEqual, i32::from(protocol::TCP), other);
        self.read(IPV6 + TCP_FLAGS, BYTE, 1, leave);
        self.code.load(Byte, R1, R10, BYTE);
        self.code.jump_if(R1, Condition::AnyBit, TCP_SYN, leave);
        self.code.bind(other);

        self.outer_headers();
        // Room for all that is new at once, the next device's link header too.
        self.change_head(ADDED + LINK_HEADER - self.link);
        self.code.jump_if(R0, NotEqual, 0, leave);
        self.write_at(LINK_HEADER, NEW, i32::from(IPV6) + 8 + 8);
        self.count(tables, 0);
        self.send_by_interface();
    }

    /// Writes IPv6 header, UDP header and the short inner header to the stack.
    ///
    /// The inner payload's sum is known without a look at it: with its pseudo-header it is zero, or the inner checksum is
    /// wrong, and then the outer one may be as well. That is so too where the device is still to fill it in.
    fn outer_headers(&mut self) {
        let code = &mut self.code;
        for part in 0..6 {
            code.load(Double, R1, R8, at::HEADERS + 8 * part);
            code.store(Double, R10, NEW + 8 * part, R1);
        }
        code.load(Double, R1, R10, PACKET);
        code.store(Double, R10, NEW + 48, R1);
        code.copy(R2, R7);
        code.add(R2, ADDED);
        code.network_order(R2, 16);
        code.store(Half, R10, NEW + PAYLOAD_LENGTH, R2);
        code.store(Half, R10, NEW + IPV6 + UDP_LENGTH, R2);
        // R1 is the sum, of 16-bit words as they are in memory. What is subtracted is added as its complement.
        code.load(Word, R1, R8, at::SUM);
        code.add(R1, R2);
        code.add(R1, R2);
        for word in 0..4 {
            code.load(Half, R2, R10, PACKET + 2 * word);
            code.add(R1, R2);
        }
        code.load(Half, R2, R10, PACKET + PAYLOAD_LENGTH);
        code.calculate(Operation::Xor, R2, 0xffff);
        code.add(R1, R2);
        code.load(Byte, R2, R10, PACKET + NEXT_HEADER);
        code.network_order(R2, 16);
        code.calculate(Operation::Xor, R2, 0xffff);
        code.add(R1, R2);
        for _ in 0..2 {
            code.copy(R2, R1);
            code.shift_right(R2, 16);
            code.and(R1, 0xffff);
            code.add(R1, R2);
        }
        code.calculate(Operation::Xor, R1, 0xffff);
        let some = code.label();
        code.jump_if(R1, NotEqual, 0, some);
        code.set(R1, 0xffff);
        code.bind(some);
        code.store(Half, R10, NEW + IPV6 + UDP_CHECKSUM, R1);
    }

    /// A packet from outside: headers away, true addresses in their place.
    fn decapsulate(&mut self, tables: &Tables, leave: Label) {
        const UDP: i16 = PACKET + IPV6;
        const INNER: i16 = PACKET + IPV6 + 8;
        self.not_beside_super_packets(tables, leave);
        // With a flag in the source port, with other headers, or without a payload: not the ports that are expected, or
        // too short.
        let code = &mut self.code;
        code.load(Byte, R1, R10, PACKET + NEXT_HEADER);
        code.jump_if(R1, NotEqual, i32::from(protocol::UDP), leave);
        code.load(Word, R1, R10, UDP);
        code.load(Word, R2, R8, at::PORTS);
        code.jump_if(R1, NotEqual, R2, leave);
        self.has_checksum(PACKET, leave);
        self.read(IPV6 + 8, INNER, 16, leave);
        let code = &mut self.code;
        code.load(Byte, R1, R10, INNER);
        code.shift_right(R1, 4);
        code.jump_if(R1, NotEqual, 6, leave);
        code.load(Half, R1, R10, INNER + PAYLOAD_LENGTH);
        code.network_order(R1, 16);
        code.add(R1, ADDED);
        code.jump_if(R1, NotEqual, R7, leave);
        // Of the inner transport header the first 8 bytes are there, behind the short header.
        self.has_checksum_at(INNER + NEXT_HEADER, INNER + PAYLOAD_LENGTH, INNER + 8, leave);
        self.code.copy(R1, R7);
        self.code.add(R1, i32::from(IPV6) - ADDED);
        self.fits(leave);

        // It is forwarded, unless it is for this host.
        let code = &mut self.code;
        let here = code.label();
        code.load(Word, R1, R8, at::INTERFACE);
        code.jump_if(R1, Equal, 0, here);
        code.load(Byte, R1, R10, INNER + HOP_LIMIT);
        code.jump_if(R1, Less, 2, leave);
        code.add(R1, -1);
        code.store(Byte, R10, INNER + HOP_LIMIT, R1);
        code.bind(here);
        code.load(Double, R1, R10, INNER);
        code.store(Double, R10, NEW, R1);
        for part in 0..4 {
            code.load(Double, R1, R8, at::ADDRESSES + 8 * part);
            code.store(Double, R10, NEW + 8 + 8 * part, R1);
        }
        self.code.add(R7, -ADDED);
        self.adjust_room(-ADDED, leave);
        self.write(0, NEW, IPV6.into());
        self.count(tables, 16);
        self.send();
    }

    /// The value of a key on the stack: R0.
    pub(crate) fn look_up(&mut self, map: &Map, key: i16) {
        self.code.load_map(R1, map);
        self.code.copy(R2, R10);
        self.code.add(R2, i32::from(key));
        self.code.call(Helper::MapLookup);
    }

    /// Reads a part of the packet, from its IPv6 header, to the stack.
    pub(crate) fn read(&mut self, offset: i16, to: i16, length: i32, leave: Label) {
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, self.link + i32::from(offset));
        code.copy(R3, R10);
        code.add(R3, i32::from(to));
        code.set(R4, length);
        code.call(Helper::SkbLoadBytes);
        code.jump_if(R0, NotEqual, 0, leave);
    }

    /// Leaves a packet of R1 bytes if it is larger than what the interface takes.
    pub(crate) fn fits(&mut self, leave: Label) {
        self.code.load(Word, R2, R8, at::MTU);
        self.code.jump_if(R1, Greater, R2, leave);
    }

    /// Leaves a packet whose checksum cannot be computed from what is in its headers.
    fn has_checksum(&mut self, header: i16, leave: Label) {
        self.has_checksum_at(header + NEXT_HEADER, header + PAYLOAD_LENGTH, header + IPV6, leave);
    }

    /// The same, with next header, payload length and transport header at these places of the stack.
    fn has_checksum_at(&mut self, next_header: i16, payload_length: i16, transport: i16, leave: Label) {
        let code = &mut self.code;
        let [udp, checksummed] = std::array::from_fn(|_| code.label());
        code.load(Byte, R1, R10, next_header);
        code.jump_if(R1, Equal, i32::from(protocol::UDP), udp);
        code.jump_if(R1, Equal, i32::from(protocol::TCP), checksummed);
        code.jump_if(R1, NotEqual, i32::from(protocol::ICMPV6), leave);
        code.jump(checksummed);
        code.bind(udp);
        code.load(Half, R1, R10, transport + UDP_CHECKSUM);
        code.jump_if(R1, Equal, 0, leave);
        code.load(Half, R1, R10, transport + UDP_LENGTH);
        code.load(Half, R2, R10, payload_length);
        code.jump_if(R1, NotEqual, R2, leave);
        code.bind(checksummed);
    }

    /// Leaves super-packets, and for a while all others of the stream.
    fn not_beside_super_packets(&mut self, tables: &Tables, leave: Label) {
        self.code.load(Word, R1, R8, at::STREAM);
        self.code.store(Word, R10, NUMBER, R1);
        self.look_up(&tables.super_packets, NUMBER);
        let code = &mut self.code;
        code.jump_if(R0, Equal, 0, leave);
        code.copy(R9, R0);
        let [single, alone] = std::array::from_fn(|_| code.label());
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, Equal, 0, single);
        code.call(Helper::KtimeGetCoarseNs);
        code.store(Double, R9, 0, R0);
        code.jump(leave);
        code.bind(single);
        // Without one for long, nobody has to know the time.
        code.load(Double, R1, R9, 0);
        code.jump_if(R1, Equal, 0, alone);
        code.call(Helper::KtimeGetCoarseNs);
        code.load(Double, R1, R9, 0);
        code.calculate(Operation::Subtract, R0, R1);
        code.jump_if(R0, Less, AFTER_SUPER_PACKET, leave);
        code.store_value(Double, R9, 0, 0);
        code.bind(alone);
    }

    /// Room behind the IPv6 header, or less of it.
    fn adjust_room(&mut self, difference: i32, leave: Label) {
        const AT_NETWORK_HEADER: i32 = 0;
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, difference);
        code.set(R3, AT_NETWORK_HEADER);
        code.set(R4, 0);
        code.call(Helper::SkbAdjustRoom);
        code.jump_if(R0, NotEqual, 0, leave);
    }

    /// Writes what is on the stack over the packet, at an offset from its IPv6 header.
    pub(crate) fn write(&mut self, offset: i16, from: i16, length: i32) {
        self.write_at(self.link + i32::from(offset), from, length);
    }

    /// The same, at an offset from the packet's very beginning.
    fn write_at(&mut self, offset: i32, from: i16, length: i32) {
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, offset);
        code.copy(R3, R10);
        code.add(R3, i32::from(from));
        code.set(R4, length);
        code.set(R5, 0);
        code.call(Helper::SkbStoreBytes);
        self.or_drop();
    }

    /// Counts an inner packet of R7 bytes of payload, or the segments of a super-packet.
    pub(crate) fn count(&mut self, tables: &Tables, direction: i16) {
        self.look_up(&tables.counters, NUMBER);
        let code = &mut self.code;
        let [uncounted, some] = std::array::from_fn(|_| code.label());
        code.jump_if(R0, Equal, 0, uncounted);
        code.load(Word, R2, R6, context::GSO_SEGMENTS);
        code.jump_if(R2, NotEqual, 0, some);
        code.set(R2, 1);
        code.bind(some);
        code.load(Double, R1, R0, direction);
        code.add(R1, R2);
        code.store(Double, R0, direction, R1);
        code.load(Double, R1, R0, direction + 8);
        code.add(R1, R7);
        code.add(R1, i32::from(IPV6));
        code.store(Double, R0, direction + 8, R1);
        code.bind(uncounted);
    }

    /// Sends the packet on, by its interface or into this host by the way that it would have come from us.
    pub(crate) fn send(&mut self) {
        const INGRESS: i32 = 1;
        let here = self.code.label();
        self.code.load(Word, R1, R8, at::INTERFACE);
        self.code.jump_if(R1, Equal, 0, here);
        if self.link == 0 {
            self.change_head(LINK_HEADER);
            self.or_drop();
        }
        self.send_by_interface();
        let code = &mut self.code;
        code.bind(here);
        code.load(Word, R1, R6, context::INTERFACE);
        code.set(R2, INGRESS);
        code.call(Helper::Redirect);
        code.exit();
    }

    /// Room in front of all.
    fn change_head(&mut self, length: i32) {
        let code = &mut self.code;
        code.copy(R1, R6);
        code.set(R2, length);
        code.set(R3, 0);
        code.call(Helper::SkbChangeHead);
    }

    /// Sends the packet, with a link header in front, to the next hop that the interface's routes have for it.
    fn send_by_interface(&mut self) {
        let code = &mut self.code;
        let [lookup, redirect] = std::array::from_fn(|_| code.label());
        code.load(Word, R1, R8, at::NEIGHBOR);
        code.jump_if(R1, Equal, 0, lookup);
        code.copy(R2, R8);
        code.add(R2, i32::from(at::NEIGHBOR));
        code.set(R3, NEXT_HOP as i32);
        code.jump(redirect);
        // By a lookup of the route. A neighbor that is still to be resolved takes that: the packet waits with its route,
        // and that which led to the device would lose it.
        code.bind(lookup);
        code.set(R2, 0);
        code.set(R3, 0);
        code.bind(redirect);
        code.load(Word, R1, R8, at::INTERFACE);
        code.set(R4, 0);
        code.call(Helper::RedirectNeighbor);
        code.exit();
    }

    /// Goes on if the last call went well. The packet has been changed already: else it is lost.
    pub(crate) fn or_drop(&mut self) {
        let well = self.code.label();
        self.code.jump_if(R0, Equal, 0, well);
        self.code.exit_with(verdict::DROP);
        self.code.bind(well);
    }
}

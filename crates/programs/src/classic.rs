//! The programs that carry packets of unencrypted streams in the kernel (docs/classic.md section 17); those whose addresses
//! are replaced, too (section 18).
//!
//! One runs where the device hands packets to us, in both directions: the stack has routed them there, has counted down
//! the hop limit and refused what is too big. What it takes it sends on at once, by the interface that we have written
//! down. What it does not take goes on to us as if it were not there: so it drops nothing, and what is wrong with a
//! packet is found and counted in one place.
//!
//! The other runs at the external interface, where there are links of the kind tcx: what comes from outside and is to be
//! forwarded it sends on before the stack has had to do with it. What it does not take comes to the device.

use std::os::fd::AsRawFd;

use bpf::{Assembler, Condition, Helper, Label, Operation, context, verdict};
use wire::protocol;

use crate::pair::{
    BYTE, Byte, Code, Descriptors, Double, Equal, HOP_LIMIT, Half, IPV6, Less, NEW, NEXT_HEADER, NUMBER,
    NotEqual, PACKET, PAYLOAD_LENGTH, R0, R1, R2, R6, R7, R8, R9, R10, SOURCE, TCP_FLAGS, TCP_SYN, Tables,
    UDP_CHECKSUM, UDP_LENGTH, Word, at,
};
use crate::snippet::{LINK_HEADER, Snippets as _};

/// A stream whose hosts send GSO packets, which only we can take apart, is ours altogether until so long after the last
/// one, in nanoseconds: packets would overtake each other, and acknowledgements that come back too soon have a sender
/// send more at once than our queue holds.
const AFTER_GSO_PACKET: i32 = 100_000_000;
/// UDP header and what is left of the inner IPv6 header: what the tunnel adds to the inner payload.
const ADDED: i32 = 16;
/// Of skb_adjust_room: behind the network header.
const ROOM_NETWORK: i32 = 0;

/// The program, for devices with a link header of so many bytes.
pub fn program(tables: &Tables<impl AsRawFd>, link: u8) -> Assembler {
    let tables = &tables.descriptors();
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
pub fn incoming(tables: &Tables<impl AsRawFd>, link: u8) -> Assembler {
    let tables = &tables.descriptors();
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

impl Code {
    /// R8 = the value that was found; goes on at the label where addresses are replaced.
    fn take_value(&mut self, rewrite: Label) {
        self.code.copy(R8, R0);
        self.code.load(Word, R1, R8, at::REWRITE);
        self.code.jump_if(R1, NotEqual, 0, rewrite);
    }

    /// A packet of a local host: addresses away, headers before it.
    fn encapsulate(&mut self, tables: &Descriptors, leave: Label) {
        self.not_beside_gso_packets(tables, leave);
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
        self.code.change_head(ADDED + LINK_HEADER - self.link);
        self.code.jump_if(R0, NotEqual, 0, leave);
        self.code.store_bytes(LINK_HEADER, NEW, i32::from(IPV6) + 8 + 8);
        self.code.or_drop();
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
    fn decapsulate(&mut self, tables: &Descriptors, leave: Label) {
        const UDP: i16 = PACKET + IPV6;
        const INNER: i16 = PACKET + IPV6 + 8;
        self.not_beside_gso_packets(tables, leave);
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
        self.code.adjust_room(-ADDED, ROOM_NETWORK, 0);
        self.code.jump_if(R0, NotEqual, 0, leave);
        self.write(0, NEW, IPV6.into());
        self.count(tables, 16);
        self.send();
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

    /// Leaves GSO packets, and for a while all others of the stream.
    fn not_beside_gso_packets(&mut self, tables: &Descriptors, leave: Label) {
        self.code.load(Word, R1, R8, at::STREAM);
        self.code.store(Word, R10, NUMBER, R1);
        self.look_up(&tables.gso_packets, NUMBER);
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
        code.jump_if(R0, Less, AFTER_GSO_PACKET, leave);
        code.store_value(Double, R9, 0, 0);
        code.bind(alone);
    }

    /// Replaces the addresses of a packet from outside.
    fn rewrite_incoming(&mut self, tables: &Descriptors, leave: Label) {
        let code = &mut self.code;
        // One without payload may belong to the key exchange.
        let [data, here] = std::array::from_fn(|_| code.label());
        code.load(Byte, R1, R10, PACKET + NEXT_HEADER);
        code.jump_if(R1, NotEqual, i32::from(protocol::UDP), data);
        code.jump_if(R7, Equal, 8, leave);
        code.bind(data);
        self.checksum_place(leave);
        let code = &mut self.code;
        code.load(Byte, R1, R10, PACKET + HOP_LIMIT);
        code.load(Word, R2, R8, at::INTERFACE);
        code.jump_if(R2, Equal, 0, here);
        code.jump_if(R1, Less, 2, leave);
        code.add(R1, -1);
        code.bind(here);
        self.replace(tables, at::ADDRESSES, at::DIFFERENCE, 16, leave);
        self.send();
    }
}

//! Instructions that replace the addresses of a packet and change its checksum as they do; GSO packets stay whole. The
//! classic profile (docs/classic.md section 18) and the moving-target protocol (docs/protocol.md section 9.5) both have them.

use bpf::{Helper, Label, Operation, context};
use wire::protocol;

use super::{
    Byte, Code, Descriptors, Double, Equal, HOP_LIMIT, Half, IPV6, Less, NEW, NEXT_HEADER, NUMBER, NotEqual,
    PACKET, R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, SOURCE, UDP_CHECKSUM, Word, at,
};

/// Of l4_csum_replace: the pseudo-header has changed.
pub(crate) const PSEUDO_HEADER: i32 = 0x10;
/// And a checksum of zero is none.
const NOT_ZERO: i32 = 0x20;
/// The first ICMPv6 type that is no error: those quote packets, and are the daemon's.
pub(crate) const INFORMATIONAL: i32 = 128;

impl Code {
    /// Replaces the addresses of a packet of a local host.
    pub(crate) fn rewrite_outgoing(&mut self, tables: &Descriptors, leave: Label) {
        self.checksum_place(leave);
        self.code.load(Byte, R1, R10, PACKET + HOP_LIMIT);
        self.replace(tables, at::HEADERS + SOURCE, at::SUM, 0, leave);
        self.send();
    }

    /// R9 = where the checksum is behind the IPv6 header; 0 in ESP, which has none.
    pub(crate) fn checksum_place(&mut self, leave: Label) {
        let code = &mut self.code;
        let [udp, tcp, done] = std::array::from_fn(|_| code.label());
        code.set(R9, 0);
        code.load(Byte, R1, R10, PACKET + NEXT_HEADER);
        code.jump_if(R1, Equal, i32::from(protocol::TCP), tcp);
        code.jump_if(R1, Equal, i32::from(protocol::UDP), udp);
        code.jump_if(R1, Equal, i32::from(protocol::ESP), done);
        code.jump_if(R1, NotEqual, i32::from(protocol::ICMPV6), leave);
        code.load(Byte, R1, R10, PACKET + IPV6);
        code.jump_if(R1, Less, INFORMATIONAL, leave);
        code.set(R9, 2);
        code.jump(done);
        code.bind(udp);
        code.load(Half, R1, R10, PACKET + IPV6 + UDP_CHECKSUM);
        code.jump_if(R1, Equal, 0, leave);
        code.set(R9, UDP_CHECKSUM.into());
        code.jump(done);
        code.bind(tcp);
        code.set(R9, 16);
        code.bind(done);
    }

    /// Writes hop limit (R1) and addresses, changes the checksum (R9), and counts.
    pub(crate) fn replace(
        &mut self,
        tables: &Descriptors,
        addresses: i16,
        difference: i16,
        direction: i16,
        leave: Label,
    ) {
        let code = &mut self.code;
        code.store(Byte, R10, NEW + HOP_LIMIT, R1);
        for part in 0..4 {
            code.load(Double, R1, R8, addresses + 8 * part);
            code.store(Double, R10, NEW + SOURCE + 8 * part, R1);
        }
        // Segments of a GSO packet fit: the stack has seen to that.
        let whole = code.label();
        code.load(Word, R1, R6, context::GSO_SIZE);
        code.jump_if(R1, NotEqual, 0, whole);
        code.copy(R1, R7);
        code.add(R1, i32::from(IPV6));
        self.fits(leave);
        self.code.bind(whole);

        let code = &mut self.code;
        let [replace, replaced] = std::array::from_fn(|_| code.label());
        code.jump_if(R9, Equal, 0, replaced);
        code.copy(R1, R6);
        code.copy(R2, R9);
        code.add(R2, self.link + i32::from(IPV6));
        code.set(R3, 0);
        code.load(Word, R4, R8, difference);
        code.set(R5, PSEUDO_HEADER);
        code.jump_if(R9, NotEqual, i32::from(UDP_CHECKSUM), replace);
        code.calculate(Operation::Or, R5, NOT_ZERO);
        code.bind(replace);
        code.call(Helper::L4ChecksumReplace);
        code.jump_if(R0, NotEqual, 0, leave);
        code.bind(replaced);
        self.write(HOP_LIMIT, NEW + HOP_LIMIT, 33);
        self.code.load(Word, R1, R8, at::STREAM);
        self.code.store(Word, R10, NUMBER, R1);
        self.count(tables, direction);
    }
}

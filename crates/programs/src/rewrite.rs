//! The two programs for peers whose packets travel as they are but for their addresses (docs/protocol.md section 9.5).
//!
//! One runs where the TUN device would hand a packet to us: the stack has routed it there, counted down its hop limit and
//! refused it if it is too big. The other runs at the external interface, before the stack. What they do not take goes on
//! as if they were not there: to us and into the tunnel, or to the stack, where hopping addresses are dark.

use std::os::fd::AsRawFd;

use bpf::{Assembler, Helper, Label, verdict};
use wire::protocol;

use crate::pair::{
    Byte, Code, Descriptors, Double, Equal, Greater, HOP_LIMIT, INFORMATIONAL, IPV6, Less, NEW, NEXT_HEADER,
    NotEqual, PACKET, PSEUDO_HEADER, R0, R1, R2, R3, R4, R5, R6, R8, R10, SOURCE, Tables, Word, at,
};

use crate::snippet::Snippets as _;

/// Where the table of incoming packets has how the sum of what the checksum of an error covers changes, 4 bytes.
pub const ERROR_DIFFERENCE: i16 = at::PORTS;
/// Source and destination of a packet that an error quotes, the other way round: places on the stack.
const REVERSED: i16 = -160;
/// The header of that packet.
const QUOTED: i16 = -200;
/// Where an ICMPv6 message has what it quotes, from the IPv6 header on; and its checksum.
const QUOTE: i16 = IPV6 + 8;
const CHECKSUM: i16 = IPV6 + 2;
const DESTINATION: i16 = SOURCE + 16;

/// The program at the TUN device, which has a link header of so many bytes.
pub fn outgoing(tables: &Tables<impl AsRawFd>, link: u8) -> Assembler {
    let tables = &tables.descriptors();
    let mut code = Code { code: Assembler::default(), link: link.into() };
    let leave = code.code.label();
    code.begin(leave);
    code.look_up(&tables.outgoing, PACKET + SOURCE);
    code.code.jump_if(R0, Equal, 0, leave);
    code.code.copy(R8, R0);
    code.rewrite_outgoing(tables, leave);
    code.code.bind(leave);
    code.code.exit_with(verdict::NEXT);
    code.code
}

/// The program at the external interface, which has a link header of so many bytes. What cannot be sent on at once goes
/// to the stack by the device `tun`, as if it came out of the tunnel.
pub fn incoming(tables: &Tables<impl AsRawFd>, link: u8, tun: u32) -> Assembler {
    let tables = &tables.descriptors();
    let mut code = Code { code: Assembler::default(), link: link.into() };
    let [leave, error, stack] = std::array::from_fn(|_| code.code.label());
    code.begin(leave);
    code.look_up(&tables.incoming, PACKET + SOURCE);
    code.code.jump_if(R0, Equal, 0, error);
    code.code.copy(R8, R0);
    code.checksum_place(leave);
    code.code.load(Word, R2, R8, at::INTERFACE);
    code.code.jump_if(R2, Equal, 0, stack);
    code.code.load(Byte, R1, R10, PACKET + HOP_LIMIT);
    code.code.jump_if(R1, Less, 2, stack);
    code.code.add(R1, -1);
    code.replace(tables, at::ADDRESSES, at::DIFFERENCE, 16, leave);
    code.send();

    // Its hop limit is the stack's to count down, and it knows what to do about one that is used up.
    code.code.bind(stack);
    code.code.load(Byte, R1, R10, PACKET + HOP_LIMIT);
    code.replace(tables, at::ADDRESSES, at::DIFFERENCE, 16, leave);
    code.sum_stays(at::DIFFERENCE);
    code.hand_to_stack(tun);

    code.code.bind(error);
    code.error(tables, leave);
    code.hand_to_stack(tun);
    code.code.bind(leave);
    code.code.exit_with(verdict::NEXT);
    code.code
}

impl Code {
    /// An ICMPv6 error about a packet of ours gets the true addresses, and so does what it quotes. Its source, a router on
    /// the path, stays.
    fn error(&mut self, tables: &Descriptors, leave: Label) {
        let code = &mut self.code;
        code.load(Byte, R1, R10, PACKET + NEXT_HEADER);
        code.jump_if(R1, NotEqual, i32::from(protocol::ICMPV6), leave);
        code.load(Byte, R1, R10, PACKET + IPV6);
        code.jump_if(R1, Equal, 0, leave);
        code.jump_if(R1, Greater, INFORMATIONAL - 1, leave);
        self.read(QUOTE, QUOTED, IPV6.into(), leave);
        let code = &mut self.code;
        for part in 0..2 {
            // It came back to who sent it.
            code.load(Double, R1, R10, QUOTED + SOURCE + 8 * part);
            code.load(Double, R2, R10, PACKET + DESTINATION + 8 * part);
            code.jump_if(R1, NotEqual, R2, leave);
            code.store(Double, R10, REVERSED + 16 + 8 * part, R1);
            code.load(Double, R1, R10, QUOTED + DESTINATION + 8 * part);
            code.store(Double, R10, REVERSED + 8 * part, R1);
        }
        self.look_up(&tables.incoming, REVERSED);
        let code = &mut self.code;
        code.jump_if(R0, Equal, 0, leave);
        code.copy(R8, R0);
        // Our host, and the two as the quoted packet has them.
        for (to, from) in [(0, 16), (8, 24), (16, 16), (24, 24), (32, 0), (40, 8)] {
            code.load(Double, R1, R8, at::ADDRESSES + from);
            code.store(Double, R10, NEW + to, R1);
        }
        code.copy(R1, R6);
        code.set(R2, self.link + i32::from(CHECKSUM));
        code.set(R3, 0);
        code.load(Word, R4, R8, ERROR_DIFFERENCE);
        code.set(R5, PSEUDO_HEADER);
        code.call(Helper::L4ChecksumReplace);
        code.jump_if(R0, NotEqual, 0, leave);
        self.write(DESTINATION, NEW, 16);
        self.write(QUOTE + SOURCE, NEW + 16, 32);
        self.sum_stays(ERROR_DIFFERENCE);
    }

    /// What a device has summed up of an incoming packet covers its IPv6 header: what was changed there and in the
    /// checksum comes to nothing, and l4_csum_replace has reckoned with the one alone.
    fn sum_stays(&mut self, difference: i16) {
        self.code.copy(R1, R6);
        self.code.load(Word, R2, R8, difference);
        self.code.call(Helper::ChecksumUpdate);
    }

    /// Hands the packet to the stack.
    fn hand_to_stack(&mut self, tun: u32) {
        self.code.set(R1, tun as i32);
        self.code.redirect_into_host();
    }
}

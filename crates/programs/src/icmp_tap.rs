//! ICMP messages as they come in by an interface, copied to a ring: the packets go on as they are.

use std::os::fd::AsRawFd;

use bpf::{Assembler, Condition, Helper, Register, Size, context, verdict};
use wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use wire::protocol;

use Condition::{AnyBit, Equal, Greater, Less, NotEqual};
use Register::{R0, R1, R2, R3, R4, R6, R8, R9, R10};
use Size::{Byte, Half, Word};

use crate::snippet::Snippets as _;

/// Bytes of a record in the ring.
const RECORD: i32 = 2048;
/// Those of them in front of the frame: its length, 4 bytes, and 4 of nothing.
pub const FRAME: usize = 8;
/// Whatever is longer is cut off there.
const LONGEST: i32 = RECORD - FRAME as i32;
/// Shorter than any message.
const SHORTEST: i32 = 14;
/// Of a VLAN tag what says which; a frame in no VLAN may have a tag all the same, for its priority (IEEE 802.1Q).
const VLAN: i32 = 0xfff;
/// Where on the stack what is looked at.
const FIELD: i16 = -8;

/// Which messages: in packets in no VLAN, without extension headers and options, and not in fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Messages {
    /// Router advertisements (RFC 4861).
    RouterAdvertisements,
    /// Router solicitations and advertisements.
    RouterDiscovery,
    /// ICMPv4: destination unreachable and time exceeded (RFC 792).
    Icmpv4Errors,
    /// ICMPv6: all errors (RFC 4443).
    Icmpv6Errors,
}

impl Messages {
    /// Of types, the first and the last of each range.
    fn types(self) -> &'static [(i32, i32)] {
        match self {
            Self::RouterAdvertisements => &[(134, 134)],
            Self::RouterDiscovery => &[(133, 134)],
            Self::Icmpv4Errors => &[(3, 3), (11, 11)],
            Self::Icmpv6Errors => &[(0, 127)],
        }
    }
}

/// Copies what is asked for, and leaves every packet as it is.
pub fn program(link: u8, messages: Messages, ring: &impl AsRawFd) -> Assembler {
    let link = i32::from(link);
    let (ethertype, next_header, protocol, header) = match messages {
        Messages::Icmpv4Errors => (ETHERTYPE_IPV4, 9, protocol::ICMPV4, 20),
        _ => (ETHERTYPE_IPV6, 6, protocol::ICMPV6, 40),
    };
    let mut code = Assembler::default();
    let [leave, discard, untagged, ours, fits] = std::array::from_fn(|_| code.label());
    let field = |code: &mut Assembler, offset, size: Size, length| {
        code.load_bytes(link + offset, FIELD, length, leave);
        code.load(size, R1, R10, FIELD);
    };
    code.copy(R6, R1);
    code.load(Word, R1, R6, context::PROTOCOL);
    code.jump_if(R1, NotEqual, i32::from(ethertype.to_be()), leave);
    field(&mut code, next_header, Byte, 1);
    code.jump_if(R1, NotEqual, i32::from(protocol), leave);
    code.load(Word, R1, R6, context::VLAN_PRESENT);
    code.jump_if(R1, Equal, 0, untagged);
    code.load(Word, R1, R6, context::VLAN_TCI);
    code.jump_if(R1, AnyBit, VLAN, leave);
    code.bind(untagged);
    if messages == Messages::Icmpv4Errors {
        field(&mut code, 0, Byte, 1);
        code.jump_if(R1, NotEqual, 0x45, leave);
        field(&mut code, 6, Half, 2);
        code.jump_if(R1, AnyBit, i32::from(0x1fff_u16.to_be()), leave);
    }
    field(&mut code, header, Byte, 1);
    for (first, last) in messages.types() {
        let other = code.label();
        code.jump_if(R1, Less, *first, other);
        code.jump_if(R1, Greater, *last, other);
        code.jump(ours);
        code.bind(other);
    }
    code.jump(leave);
    code.bind(ours);
    code.load(Word, R8, R6, context::LEN);
    code.jump_if(R8, Less, SHORTEST, leave);
    code.jump_if(R8, Less, LONGEST + 1, fits);
    code.set(R8, LONGEST);
    code.bind(fits);
    code.load_map(R1, ring);
    code.set(R2, RECORD);
    code.set(R3, 0);
    code.call(Helper::RingBufferReserve);
    code.jump_if(R0, Equal, 0, leave);
    code.copy(R9, R0);
    code.store(Word, R9, 0, R8);
    code.copy(R1, R6);
    code.set(R2, 0);
    code.copy(R3, R9);
    code.add(R3, FRAME as i32);
    code.copy(R4, R8);
    code.call(Helper::SkbLoadBytes);
    code.jump_if(R0, NotEqual, 0, discard);
    for (end, label) in [(Helper::RingBufferSubmit, None), (Helper::RingBufferDiscard, Some(discard))] {
        if let Some(label) = label {
            code.bind(label);
        }
        code.copy(R1, R9);
        code.set(R2, 0);
        code.call(end);
        code.jump(leave);
    }
    code.bind(leave);
    code.exit_with(verdict::NEXT);
    code
}

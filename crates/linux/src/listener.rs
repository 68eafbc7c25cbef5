//! ICMP messages as they come in by an interface, before any firewall, and without a socket that is asked about every
//! packet that a router forwards.
//!
//! A program at tcx ingress copies them, whole, to a ring. Where the kernel has no tcx (before Linux 6.6), or takes no
//! programs, a packet socket with a filter receives them.

use std::os::fd::{AsFd, BorrowedFd};

use wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use wire::protocol;

use crate::bpf::attach::{Attachment, Direction};
use crate::bpf::{
    Assembler, Condition, Helper, Program, ProgramKind, Register, Ring, Size, context, verdict,
};
use crate::error::Result;
use crate::packet::{self, Filter, Options, PacketSocket};

use Condition::{AnyBit, Equal, Greater, Less, NotEqual};
use Register::{R0, R1, R2, R3, R4, R6, R8, R9, R10};
use Size::{Byte, Half, Word};

/// Bytes of the ring, of a record in it, and of those what is in front of the frame: its length, 4 bytes, and 4 of nothing.
const RING: u32 = 1 << 16;
const RECORD: i32 = 2048;
const FRAME: i32 = 8;
/// Whatever is longer is cut off there.
const LONGEST: i32 = RECORD - FRAME;
/// Shorter than any message.
const SHORTEST: i32 = 14;
/// The protocol number of ICMP for IPv4 (RFC 792).
const ICMPV4: u8 = 1;
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
    fn filter(self) -> &'static Filter {
        match self {
            Self::RouterAdvertisements => packet::ROUTER_ADVERTISEMENTS,
            Self::RouterDiscovery => packet::ROUTER_DISCOVERY,
            Self::Icmpv4Errors => packet::ICMPV4_ERRORS,
            Self::Icmpv6Errors => packet::ICMPV6_ERRORS,
        }
    }

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

/// Hears messages that come in by one interface, and sends frames out by it. Non-blocking.
#[derive(Debug)]
pub struct Listener {
    socket: PacketSocket,
    heard: Option<(Ring, Attachment)>,
}

impl Listener {
    /// Listens at the interface of that index, whose link header has so many bytes. Add it to a
    /// [`crate::event::Poller`] as readable.
    pub fn open(index: u32, link_header: u8, messages: Messages) -> Result<Self> {
        match Self::with_program(index, link_header, messages) {
            Ok(listener) => Ok(listener),
            Err(_) => Self::with_socket(index, messages),
        }
    }

    /// The same, as kernels do it that have tcx.
    pub fn with_program(index: u32, link_header: u8, messages: Messages) -> Result<Self> {
        let ring = Ring::create(RING)?;
        let program = Program::load(ProgramKind::SchedCls, &program(link_header.into(), messages, &ring))?;
        let attachment = Attachment::tcx_in_front(&program, index, Direction::Ingress)?;
        let socket = PacketSocket::open(index, &Options { only_sends: true, ..Options::default() })?;
        Ok(Self { socket, heard: Some((ring, attachment)) })
    }

    /// The same, as older kernels do it.
    pub fn with_socket(index: u32, messages: Messages) -> Result<Self> {
        let options = Options { filter: Some(messages.filter()), ..Options::default() };
        Ok(Self { socket: PacketSocket::open(index, &options)?, heard: None })
    }

    /// The next message, from its link header on, and its length. `None` when there is none now.
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        let Some((ring, _)) = &mut self.heard else { return self.socket.recv(buffer) };
        let mut received = None;
        ring.read(1, |record| {
            let Some((length, frame)) = record.split_first_chunk::<{ FRAME as usize }>() else { return };
            let length = u32::from_ne_bytes([length[0], length[1], length[2], length[3]]) as usize;
            let length = length.min(frame.len()).min(buffer.len());
            buffer[..length].copy_from_slice(&frame[..length]);
            received = Some(length);
        });
        Ok(received)
    }

    /// Sends a frame. `false` when the interface's queue is full, and the frame was not sent.
    pub fn send(&self, frame: &[u8]) -> Result<bool> {
        self.socket.send(frame)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.heard {
            Some((ring, _)) => ring.as_fd(),
            None => self.socket.as_fd(),
        }
    }
}

/// Copies what is asked for, and leaves every packet as it is.
fn program(link: i32, messages: Messages, ring: &Ring) -> Assembler {
    let (ethertype, next_header, protocol, header) = match messages {
        Messages::Icmpv4Errors => (ETHERTYPE_IPV4, 9, ICMPV4, 20),
        _ => (ETHERTYPE_IPV6, 6, protocol::ICMPV6, 40),
    };
    let mut code = Assembler::default();
    let [leave, discard, untagged, ours, fits] = std::array::from_fn(|_| code.label());
    let field = |code: &mut Assembler, offset, size: Size, length| {
        code.copy(R1, R6);
        code.set(R2, link + offset);
        code.copy(R3, R10);
        code.add(R3, i32::from(FIELD));
        code.set(R4, length);
        code.call(Helper::SkbLoadBytes);
        code.jump_if(R0, NotEqual, 0, leave);
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
    code.add(R3, FRAME);
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

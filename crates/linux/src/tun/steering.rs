//! Which queue of a TUN device a packet waits in: one that its flow has to itself, but for chance.
//!
//! Left alone, the kernel has the answers to a flow wait where the flow was last written, so that all flows end up in the
//! queue of who writes.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::bpf::{self, PacketField, Program, Register};
use crate::error::{Error, Result};

/// Odd, with its bits well spread: the golden ratio's first 31.
const FACTOR: i32 = 0x4f1b_bcdd;

/// Has the kernel choose queues by flow. Needs CAP_BPF and Linux 4.16.
pub(super) fn by_flow(queue: &OwnedFd) -> Result<()> {
    let program = bpf::load_socket_filter(&program())?;
    let fd = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads one int, the descriptor of a program; the device then keeps the program.
    let result = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETSTEERINGEBPF, &raw const fd) };
    if result < 0 { Err(Error::last("TUNSETSTEERINGEBPF")) } else { Ok(()) }
}

/// A hash over addresses, protocol and, where they are in the usual place, ports; the kernel takes its remainder by the
/// number of queues. A packet that is too short goes to the first queue: a load beyond the end returns 0 at once.
fn program() -> Program {
    const HASH: Register = Register::R7;
    const PROTOCOL: Register = Register::R8;
    let mut program = Program::default();
    let mix = |program: &mut Program, field: PacketField| {
        program.load_packet(field);
        program.multiply(HASH, FACTOR);
        program.add_register(HASH, Register::R0);
    };
    // Where loads of packet fields look for it.
    program.copy(Register::R6, Register::R1);
    program.set(HASH, 0);
    program.load_packet(PacketField::Byte(0));
    program.shift_right(Register::R0, 4);
    let is_ipv4 = program.jump_if(Register::R0, 4);

    for word in (8..40).step_by(4) {
        mix(&mut program, PacketField::Word(word));
    }
    mix(&mut program, PacketField::Byte(6));
    program.copy(PROTOCOL, Register::R0);
    let tcp = program.jump_if(PROTOCOL, libc::IPPROTO_TCP);
    let other = program.jump_unless(PROTOCOL, libc::IPPROTO_UDP);
    program.land(tcp);
    mix(&mut program, PacketField::Word(40));
    let done_ipv6 = program.jump();

    program.land(is_ipv4);
    for word in [12, 16] {
        mix(&mut program, PacketField::Word(word));
    }
    mix(&mut program, PacketField::Byte(9));
    program.copy(PROTOCOL, Register::R0);
    // All fragments of a packet go where those go that have no ports.
    program.load_packet(PacketField::Half(6));
    program.and(Register::R0, 0x3fff);
    let fragment = program.jump_unless(Register::R0, 0);
    let tcp = program.jump_if(PROTOCOL, libc::IPPROTO_TCP);
    let other_ipv4 = program.jump_unless(PROTOCOL, libc::IPPROTO_UDP);
    program.land(tcp);
    program.load_packet(PacketField::Byte(0));
    program.and(Register::R0, 0xf);
    program.multiply(Register::R0, 4);
    mix(&mut program, PacketField::WordAt(Register::R0));

    for jump in [other, done_ipv6, fragment, other_ipv4] {
        program.land(jump);
    }
    // The upper half is the one that all of the input has reached.
    program.multiply(HASH, FACTOR);
    program.shift_right(HASH, 32);
    program.end_with(HASH)
}

//! Which queue of a TUN device a packet waits in: one that its flow has to itself, but for chance.
//!
//! Left alone, the kernel has the answers to a flow wait where the flow was last written, so that all flows end up in the
//! queue of who writes.

use std::os::fd::{AsRawFd, OwnedFd};

use crate::bpf::{Program, ProgramKind};
use crate::error::{Error, Result};

/// Has the kernel choose queues by flow. Needs CAP_BPF and Linux 4.16.
pub(super) fn by_flow(queue: &OwnedFd) -> Result<()> {
    let program = Program::load(ProgramKind::SocketFilter, &programs::steering::program())?;
    let fd = program.as_raw_fd();
    // SAFETY: TUNSETSTEERINGEBPF reads one int, the descriptor of a program; the device then keeps the program.
    let result = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETSTEERINGEBPF, &raw const fd) };
    if result < 0 { Err(Error::last("TUNSETSTEERINGEBPF")) } else { Ok(()) }
}

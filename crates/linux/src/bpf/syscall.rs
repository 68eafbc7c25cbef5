//! bpf(2).

use std::io::{Error, Result};
use std::os::fd::{FromRawFd as _, OwnedFd};

/// A command that makes a descriptor.
///
/// # Safety
/// As [`call`]; and the command is one that returns a descriptor.
pub(super) unsafe fn bpf<T>(command: i32, attributes: &T) -> Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = unsafe { call(command, attributes) }?;
    // SAFETY: a descriptor just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A command.
///
/// # Safety
/// `T` is a `repr(C)` structure of what the command takes, without padding, every pointer in it points to as much memory
/// as the command reads and writes there, and the command does not write to the structure itself.
pub(super) unsafe fn call<T>(command: i32, attributes: &T) -> Result<i32> {
    let size = size_of::<T>();
    // SAFETY: pointer and length describe `attributes`, which lives across the call and which the kernel only reads;
    // what it points to is the caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size) };
    if result < 0 { Err(Error::last_os_error()) } else { Ok(result as i32) }
}

/// A command that answers in its structure.
///
/// # Safety
/// As [`call`], but that the structure may be written to.
pub(super) unsafe fn exchange<T>(command: i32, attributes: &mut T) -> Result<()> {
    let size = size_of::<T>();
    // SAFETY: as in `call`, and nobody else has the structure.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size) };
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

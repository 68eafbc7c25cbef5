//! News that this virtual machine is another one: restored from a snapshot, cloned, or rolled back.
//!
//! The hypervisor changes the machine's generation identifier (vmgenid), and the kernel (Linux 6.10 or later) tells it by a
//! uevent with `NEW_VMGENID=1`, after it has reseeded its own random numbers.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_KOBJECT_UEVENT};

use crate::error::{Context, Error, Result};

/// The group of the kernel's own events; in the other one udev repeats them for its clients.
const KERNEL_EVENTS: u32 = 1;

/// A socket that hears of it.
pub struct VmGenerationMonitor {
    socket: Socket,
}

impl std::fmt::Debug for VmGenerationMonitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VmGenerationMonitor").finish_non_exhaustive()
    }
}

impl VmGenerationMonitor {
    /// Hears of it from now on. Add it to a [`crate::event::Poller`] as readable.
    pub fn open() -> Result<Self> {
        let mut socket = Socket::new(NETLINK_KOBJECT_UEVENT).context(|| "socket for uevents")?;
        socket.bind(&SocketAddr::new(0, KERNEL_EVENTS)).context(|| "bind the socket for uevents")?;
        socket.set_non_blocking(true).context(|| "fcntl O_NONBLOCK")?;
        Ok(Self { socket })
    }

    /// Whether the machine is another one since the last call. Also `true` where there were more events than the socket
    /// has room for (`ENOBUFS`), so that it may be.
    pub fn changed(&self) -> Result<bool> {
        let mut changed = false;
        loop {
            match self.socket.recv_from_full() {
                Ok((event, sender)) => changed |= sender.port_number() == 0 && is_new_generation(&event),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EINTR) => return Ok(changed),
                    Some(libc::ENOBUFS) => changed = true,
                    _ => return Err(Error::new("recvfrom on the socket for uevents", error)),
                },
            }
        }
    }
}

impl AsFd for VmGenerationMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket owns the descriptor and lives as long as the borrow of `self`.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }
}

/// `ACTION@PATH`, and variables, each ended by a zero byte.
fn is_new_generation(event: &[u8]) -> bool {
    event.split(|octet| *octet == 0).skip(1).any(|variable| variable == b"NEW_VMGENID=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_event_of_a_new_generation_is_one() {
        let event = |variable: &str| {
            format!(
                "change@/devices/LNXSYSTM:00/VMGENCTR:00\0ACTION=change\0SUBSYSTEM=acpi\0{variable}\0SEQNUM=7\0"
            )
        };
        assert!(is_new_generation(event("NEW_VMGENID=1").as_bytes()));
        // What `echo "change … NEW_VMGENID=1" > …/uevent` makes.
        assert!(!is_new_generation(event("SYNTH_ARG_NEW_VMGENID=1").as_bytes()));
        assert!(!is_new_generation(event("NEW_VMGENID=10").as_bytes()));
        assert!(!is_new_generation(b"NEW_VMGENID=1\0ACTION=change\0"), "a path");
        assert!(!is_new_generation(b""));
    }
}

//! TUN and TAP devices: whole packets or frames and GSO packets, each behind a 10-byte virtio-net header.
//!
//! A device that is made here lives as long as its queues: nothing is left behind by a crash. One that was there before
//! ([`attach`]) stays as it was.

mod attached;
mod steering;

pub use attached::{Attached, Kind, attach, create_single};

use std::fs::OpenOptions;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::error::{Context, Error, Result};

/// Bytes of the virtio-net header before every packet, in both directions (`struct virtio_net_hdr`).
pub const VNET_HEADER: usize = 10;

/// The longest packet or frame: a GSO packet of 64 KB, and the header of an Ethernet.
const MAX_PACKET: usize = 65_535 + 14;

/// The longest that [`Queue::read`] hands over of a TUN device: a header and a GSO packet of 64 KB.
pub const MAX_READ: usize = VNET_HEADER + 65_535;

const CLONE_DEVICE: &str = "/dev/net/tun";
/// Packets that wait in a queue until they are read; beyond that they are lost. The kernel's 500 are 7 ms of single
/// packets, which a busy processor easily takes to wake the reader; as many as an Ethernet device has are not.
const QUEUE_LENGTH: libc::c_int = 1000;
// Not in libc either, for Linux.
const SIOCSIFTXQLEN: libc::Ioctl = 0x8943;
// Not in libc: make the device, or fail if there is one of that name already.
const IFF_TUN_EXCL: i32 = 0x8000;

/// Which GSO packets the kernel hands to us and takes from us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Offloads {
    /// None: single packets with complete checksums.
    None,
    /// None, but checksums are left to us. A program that encapsulates packets at the device needs this: without it the
    /// kernel (6.18) drops UDP GSO packets of this host's, once a header is put before them, for a checksum that is not
    /// where it was.
    Checksums,
    /// TCP over IPv4 and IPv6, and checksums left to us.
    Tcp,
    /// The same, and UDP. Needs Linux 6.2.
    TcpAndUdp,
}

impl Offloads {
    fn flags(self) -> libc::c_uint {
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        match self {
            Offloads::None => 0,
            Offloads::Checksums => libc::TUN_F_CSUM,
            Offloads::Tcp => tcp,
            Offloads::TcpAndUdp => tcp | libc::TUN_F_USO4 | libc::TUN_F_USO6,
        }
    }
}

/// A TUN device that was just made. It is down and has no address: see [`crate::netlink`].
#[derive(Debug)]
pub struct Device {
    /// Its interface index.
    pub index: u32,
    /// What the kernel took of the offloads that were asked for.
    pub offloads: Offloads,
    /// Its queues. A flow stays in one of them. The device goes when the last one is dropped.
    pub queues: Vec<Queue>,
    /// Why there is but one queue, where more were asked for: without BPF the kernel does not keep flows apart.
    pub unsteered: Option<Error>,
}

/// Makes the TUN device `name` with so many queues (1 … 256) that share its flows, and the best offloads up to
/// `offloads`. Where the kernel cannot keep flows in their queues there is one.
pub fn create(name: &str, queues: usize, offloads: Offloads) -> Result<Device> {
    check_name(name)?;
    let mut made = Vec::with_capacity(queues.max(1));
    for number in 0..queues.max(1) {
        let exclusive = number == 0;
        let mut flags = libc::IFF_TUN;
        if queues > 1 {
            flags |= libc::IFF_MULTI_QUEUE;
        }
        if exclusive {
            flags |= IFF_TUN_EXCL;
        }
        made.push(open_queue(name, flags).map_err(|error| {
            let remedy = match error.raw_os_error() {
                Some(libc::EBUSY | libc::EEXIST | libc::EINVAL) => {
                    " (an interface of that name exists already: stop the program that holds it, or choose another name)"
                }
                Some(libc::EPERM) => " (needs CAP_NET_ADMIN)",
                _ => "",
            };
            Error::new(format!("{}{remedy}", error.what), error.source)
        })?);
    }
    let mut unsteered = None;
    if made.len() > 1
        && let Err(error) = steering::by_flow(&made[0].fd)
    {
        unsteered = Some(error);
        made.truncate(1);
    }
    let offloads = set_offloads(&made, offloads, name)?;
    set_queue_length(name)?;
    let index = nix::net::if_::if_nametoindex(name).context(|| format!("if_nametoindex {name}"))?;
    Ok(Device { index, offloads, queues: made, unsteered })
}

/// Keeps the device, which is not up yet, without a link-local address. Where there is one, a router that passes packets on from
/// one peer to another, in by this device and out by it, sends redirects from it (RFC 4861 section 8.2) as if all peers were on
/// one link.
pub fn without_link_address(name: &str) -> Result<()> {
    crate::sysctl::write(name, "addr_gen_mode", "1")
}

/// Has a device take IPv4 packets from sources that are reached elsewhere, also where the machine is strict (`rp_filter`). The
/// setting goes with the device.
pub fn with_any_source(name: &str) -> Result<()> {
    crate::sysctl::write_global(&format!("ipv4/conf/{name}/rp_filter"), "2")
}

/// Why nothing was read, where that is no matter of now.
fn not_read(error: nix::errno::Errno) -> Error {
    let what = match error {
        nix::errno::Errno::EBADFD => "somebody has deleted the TUN device (`ip link delete`): start it again",
        _ => "read from the TUN device",
    };
    Error::new(what, error)
}

/// One queue of a TUN device. Non-blocking; add it to a [`crate::event::Poller`].
#[derive(Debug)]
pub struct Queue {
    fd: OwnedFd,
}

impl Queue {
    /// The next packet behind its virtio-net header, and how long both are. `None` when there is none now.
    pub fn read(&self, buffer: &mut [u8]) -> Result<Option<usize>> {
        match nix::unistd::read(&self.fd, buffer) {
            Ok(length) => Ok(Some(length)),
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => Ok(None),
            Err(error) => Err(not_read(error)),
        }
    }

    /// As [`Queue::read`], with the packet in place of what is in `packet`, and its virtio-net header apart: it lies where it
    /// is used, and is not moved again.
    pub fn read_packet(&self, packet: &mut Vec<u8>) -> Result<Option<[u8; VNET_HEADER]>> {
        packet.clear();
        packet.reserve(MAX_PACKET);
        let mut header = [0; VNET_HEADER];
        let room = packet.spare_capacity_mut();
        let pieces = [
            libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
            libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() },
        ];
        // SAFETY: the queue is open, and both pieces are memory of these lengths that nobody else uses meanwhile; the kernel
        // writes to them and reads nothing from them.
        let length =
            unsafe { libc::readv(self.fd.as_raw_fd(), pieces.as_ptr(), pieces.len() as libc::c_int) };
        let length = match nix::errno::Errno::result(length) {
            Ok(length) => length as usize,
            Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => return Ok(None),
            Err(error) => return Err(not_read(error)),
        };
        // SAFETY: behind the header the kernel has written so many octets into the room, and no more than there was.
        unsafe { packet.set_len(length.saturating_sub(VNET_HEADER)) };
        Ok(Some(header))
    }

    /// Hands the kernel one packet: a virtio-net header and the packet, in any number of pieces.
    ///
    /// `EINVAL` means that this packet or header makes no sense to the kernel, `EIO` that the device is down;
    /// neither says anything about the next packet.
    pub fn write(&self, pieces: &[IoSlice<'_>]) -> Result<()> {
        nix::sys::uio::writev(&self.fd, pieces).map(drop).context(|| "write to the TUN device")
    }
}

impl Queue {
    /// Another handle of the same queue, for another thread to write to.
    pub fn try_clone(&self) -> Result<Self> {
        Ok(Queue { fd: self.fd.try_clone().map_err(|error| Error::new("dup of a TUN queue", error))? })
    }
}

impl From<OwnedFd> for Queue {
    /// The descriptor of a queue that another process has made, non-blocking.
    fn from(fd: OwnedFd) -> Self {
        Queue { fd }
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '%', ' ', '\0']) {
        return Err(Error::other(
            format!("TUN device {name}"),
            "not a name for an interface: 1 to 15 characters, no / % or space",
        ));
    }
    Ok(())
}

/// Opens a queue of a device with these flags, beside those that all have.
fn open_queue(name: &str, flags: libc::c_int) -> Result<Queue> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(CLONE_DEVICE)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Error::new(
                format!("open {CLONE_DEVICE} (the kernel needs CONFIG_TUN: try `modprobe tun`)"),
                error,
            ),
            _ => Error::new(format!("open {CLONE_DEVICE}"), error),
        })?;
    let mut request = request(name);
    request.ifr_ifru.ifru_flags = (flags | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(Error::last(format!("TUNSETIFF {name}")));
    }
    let header = VNET_HEADER as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one int.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const header) } < 0 {
        return Err(Error::last(format!("TUNSETVNETHDRSZ {name}")));
    }
    Ok(Queue { fd: file.into() })
}

/// What a request about an interface begins with.
pub(crate) fn request(name: &str) -> libc::ifreq {
    // SAFETY: a structure of integers and byte arrays, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn set_queue_length(name: &str) -> Result<()> {
    let mut request = request(name);
    request.ifr_ifru.ifru_metric = QUEUE_LENGTH;
    let what = || format!("SIOCSIFTXQLEN {name}");
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet6,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )
    .context(what)?;
    // SAFETY: SIOCSIFTXQLEN reads one `ifreq`, which `request` is.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCSIFTXQLEN, &raw const request) };
    match Error::last(what()) {
        _ if result == 0 => Ok(()),
        // In a namespace of a user's it is not to be had: the kernel's own length stays.
        error if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        error => Err(error),
    }
}

fn set_offloads(queues: &[Queue], wanted: Offloads, name: &str) -> Result<Offloads> {
    let mut offloads = wanted;
    for queue in queues {
        loop {
            // SAFETY: TUNSETOFFLOAD takes its argument by value.
            let result = unsafe {
                libc::ioctl(queue.fd.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(offloads.flags()))
            };
            if result == 0 {
                break;
            }
            offloads = match offloads {
                Offloads::TcpAndUdp => Offloads::Tcp,
                Offloads::Tcp | Offloads::Checksums => Offloads::None,
                Offloads::None => return Err(Error::last(format!("TUNSETOFFLOAD {name}"))),
            };
        }
    }
    Ok(offloads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_refused() {
        for name in ["", "a-name-of-16-byte", "a/b", "tun%d", "a b"] {
            let error = create(name, 1, Offloads::None).unwrap_err();
            assert!(error.to_string().contains("not a name"), "{name}: {error}");
        }
    }
}

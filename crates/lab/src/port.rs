//! Raw Ethernet frames of one interface (packet(7) sockets).

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrLike,
    bind, recv, recvmsg, send, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::Error;

/// The largest frame that an interface hands over: a 64 KiB super-packet and its Ethernet header.
pub(crate) const MAXIMUM_FRAME: usize = 65_535 + 14;

/// A packet socket on one interface, which sees all its frames, in both directions but for its own.
#[derive(Debug)]
pub(crate) struct Port {
    socket: OwnedFd,
    address: [u8; 6],
}

impl Port {
    /// Opens the interface of this name in the caller's network namespace.
    pub(crate) fn open(interface: &str) -> Result<Self, Error> {
        let what = || format!("packet socket on {interface}");
        let link = link_address(interface)?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)
            .map_err(|errno| Error::system(what(), errno))?;
        bind(socket.as_raw_fd(), &link).map_err(|errno| Error::system(what(), errno))?;
        // A burst must wait in the buffer rather than be lost in our own tool.
        for result in [
            setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20)),
            setsockopt(&socket, sockopt::SndBufForce, &(8 << 20)),
        ] {
            result.map_err(|errno| Error::system(what(), errno))?;
        }
        Ok(Self { socket, address: link.addr().unwrap_or_default() })
    }

    /// The interface's own Ethernet address.
    pub(crate) fn address(&self) -> [u8; 6] {
        self.address
    }

    /// The next frame, if one waits.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, Error> {
        match recv(self.socket.as_raw_fd(), buffer, MsgFlags::empty()) {
            Ok(length) => Ok(Some(&buffer[..length])),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => Ok(None),
            Err(errno) => Err(Error::system("receive a frame", errno)),
        }
    }

    /// Has the kernel note the time of each frame, for [`Self::receive_stamped`].
    pub(crate) fn stamp(&self) -> Result<(), Error> {
        setsockopt(&self.socket, sockopt::ReceiveTimestampns, &true)
            .map_err(|errno| Error::system("frame timestamps", errno))
    }

    /// The next frame and its time (Unix time), if one waits.
    pub(crate) fn receive_stamped<'a>(
        &self,
        buffer: &'a mut [u8],
    ) -> Result<Option<(&'a [u8], Duration)>, Error> {
        let mut control = nix::cmsg_space!(TimeSpec);
        let mut vectors = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::empty();
        let (length, time) =
            match recvmsg::<()>(self.socket.as_raw_fd(), &mut vectors, Some(&mut control), flags) {
                Ok(message) => {
                    let mut messages =
                        message.cmsgs().map_err(|errno| Error::system("frame timestamps", errno))?;
                    let time = messages.find_map(|message| match message {
                        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
                        _ => None,
                    });
                    (message.bytes, time.unwrap_or_default())
                }
                Err(Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN) => return Ok(None),
                Err(errno) => return Err(Error::system("receive a frame", errno)),
            };
        Ok(Some((&buffer[..length], time)))
    }

    /// Sends a frame; one that the interface cannot take now (too long, queue full, down) is lost, as on a cable.
    pub(crate) fn send(&self, frame: &[u8]) {
        let _ = send(self.socket.as_raw_fd(), frame, MsgFlags::empty());
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until one of two ports has a frame, or the time is up.
pub(crate) fn wait(ports: [&Port; 2], limit: Duration) -> Result<(), Error> {
    let mut descriptors = ports.map(|port| PollFd::new(port.as_fd(), PollFlags::POLLIN));
    match ppoll(&mut descriptors, Some(TimeSpec::from_duration(limit)), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(Error::system("wait for frames", errno)),
    }
}

/// The link-layer socket address of an interface: what a packet socket is bound to.
fn link_address(interface: &str) -> Result<LinkAddr, Error> {
    nix::ifaddrs::getifaddrs()
        .map_err(|errno| Error::system("list interfaces", errno))?
        .filter(|entry| entry.interface_name == interface)
        .filter_map(|entry| entry.address)
        .filter(|address| address.family() == Some(AddressFamily::Packet))
        .find_map(|address| address.as_link_addr().copied())
        .ok_or_else(|| Error::Usage(format!("no interface `{interface}` here")))
}

//! Raw Ethernet frames of one interface (packet(7) sockets).

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use linux::netlink::Netlink;
use linux::packet::{PacketOptions, PacketSocket};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use wire::ethernet::MacAddress;

use crate::Error;

/// The largest frame that an interface hands over: a 64 KiB GSO packet and its Ethernet header.
pub(crate) const MAXIMUM_FRAME: usize = 65_535 + 14;

/// A packet socket on one interface, which sees all its frames but for those that it sends itself.
#[derive(Debug)]
pub(crate) struct FrameSocket {
    socket: PacketSocket,
    address: MacAddress,
}

impl FrameSocket {
    /// Opens the interface of this name in the caller's network namespace; `outgoing` frames are those that the
    /// kernel sends there.
    pub(crate) fn open(interface: &str, outgoing: bool) -> Result<Self, Error> {
        let link = Netlink::open()?.link_by_name(interface)?;
        let link = link.ok_or_else(|| Error::Usage(format!("no interface `{interface}` here")))?;
        let socket = PacketSocket::open(
            link.index,
            &PacketOptions { promiscuous: true, outgoing, ..PacketOptions::default() },
        )?;
        // A burst must wait in the buffer rather than be lost in our own tool.
        for result in [
            setsockopt(&socket, sockopt::RcvBufForce, &(32 << 20)),
            setsockopt(&socket, sockopt::SndBufForce, &(8 << 20)),
        ] {
            result.map_err(|errno| Error::system(format!("socket buffer on {interface}"), errno))?;
        }
        Ok(Self { socket, address: link.mac.unwrap_or(MacAddress([0; 6])) })
    }

    /// The interface's own Ethernet address.
    pub(crate) fn address(&self) -> MacAddress {
        self.address
    }

    /// The next frame, if one waits.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<&'a [u8]>, Error> {
        let length = self.socket.recv(buffer)?;
        Ok(length.map(|length| &buffer[..length]))
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
            match recvmsg::<()>(self.socket.as_fd().as_raw_fd(), &mut vectors, Some(&mut control), flags) {
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
        let _ = self.socket.send(frame);
    }
}

impl AsFd for FrameSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Waits until one of two ports has a frame, or the time is up.
pub(crate) fn wait(ports: [&FrameSocket; 2], limit: Duration) -> Result<(), Error> {
    let mut descriptors = ports.map(|port| PollFd::new(port.as_fd(), PollFlags::POLLIN));
    match ppoll(&mut descriptors, Some(TimeSpec::from_duration(limit)), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(errno) => Err(Error::system("wait for frames", errno)),
    }
}

//! TAP and TUN devices of Linux: the kernel is at the other end.
//!
//! A device that exists is used and stays, so that an administrator can make one for a user without privileges:
//! `ip tuntap add dev tap0 mode tap user alice`. Another one is made, which needs CAP_NET_ADMIN, and goes with the process,
//! however that ends.

use std::io::{self, IoSlice};
use std::time::Instant;

use linux::event::{Interest, Poller};
use linux::netlink::Netlink;
use linux::tun::{self, Attached, Kind, Offloads};
use stack::interface::Medium;
use wire::ethernet::MacAddress;
use wire::virtio_net;

use super::Device;

/// A TAP or TUN device.
#[derive(Debug)]
pub struct Kernel {
    attached: Attached,
    mac: MacAddress,
    mtu: usize,
    refused: u64,
}

/// Takes the device of this name, or makes one of this kind. `mac` is our end's address, where it carries Ethernet.
///
/// # Errors
/// When it is somebody else's, in use, down, or can neither be found nor made; the message says what to do.
pub fn open(name: &str, new: Kind, mac: MacAddress) -> io::Result<Kernel> {
    let mut netlink = Netlink::open().map_err(io::Error::other)?;
    let attached = match tun::attach(name, Offloads::None).map_err(said)? {
        Some(attached) => attached,
        None => {
            let made = tun::create_single(name, new, Offloads::None).map_err(said)?;
            netlink.set_link_up(made.index, true).map_err(said)?;
            made
        }
    };
    let link = netlink.link_by_index(attached.index).map_err(said)?;
    let link = link.ok_or_else(|| io::Error::other(format!("interface {name} has just gone")))?;
    if !link.up {
        let remedy = format!("interface {name} is down: `ip link set dev {name} up`");
        return Err(io::Error::new(io::ErrorKind::NetworkDown, remedy));
    }
    Ok(Kernel { attached, mac, mtu: link.mtu as usize, refused: 0 })
}

impl Kernel {
    /// Leaves it to the kernel to cut large packets of TCP into segments and to write checksums, and takes such from it: fewer
    /// packets, less work. Not for a device beneath another one, which sees packets as they are on a link.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn with_offloads(mut self) -> io::Result<Self> {
        self.attached.ask_for(Offloads::Tcp).map_err(said)?;
        Ok(self)
    }

    /// Frames or packets that the kernel did not take.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

impl Device for Kernel {
    fn medium(&self) -> Medium {
        match self.attached.kind {
            Kind::Ethernet => Medium::Ethernet(self.mac),
            Kind::Ip => Medium::Ip,
        }
    }

    fn mtu(&self) -> usize {
        self.mtu
    }

    fn receive(&mut self, now: Instant, frame: &mut Vec<u8>) -> io::Result<bool> {
        Ok(self.receive_offloaded(now, frame)?.is_some())
    }

    fn send(&mut self, now: Instant, frame: &[u8]) -> io::Result<bool> {
        self.send_offloaded(now, &virtio_net::Header::NONE, frame)
    }

    fn offloads(&self) -> bool {
        self.attached.offloads >= Offloads::Tcp
    }

    fn receive_offloaded(
        &mut self,
        _: Instant,
        frame: &mut Vec<u8>,
    ) -> io::Result<Option<virtio_net::Header>> {
        let header = self.attached.queue.read_packet(frame).map_err(said)?;
        Ok(header.map(|header| virtio_net::Header::from_bytes(&header)))
    }

    fn send_offloaded(&mut self, _: Instant, header: &virtio_net::Header, frame: &[u8]) -> io::Result<bool> {
        match self.attached.queue.write(&[IoSlice::new(&header.to_bytes()), IoSlice::new(frame)]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // The interface has been deleted.
            Err(error) if error.raw_os_error() == Some(GONE) => Err(said(error)),
            // It is down, or has no use for this packet: lost, as on any link.
            Err(_) => {
                self.refused += 1;
                Ok(true)
            }
        }
    }

    fn register(&self, poller: &Poller, token: u64) -> io::Result<()> {
        poller.add(&self.attached.queue, token, Interest::Readable).map_err(said)
    }
}

/// EBADFD, which the kernel says of a queue whose device is no more.
const GONE: i32 = 77;

fn said(error: linux::Error) -> io::Error {
    io::Error::new(error.kind(), error.to_string())
}

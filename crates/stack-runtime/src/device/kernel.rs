//! TAP and TUN devices of Linux: the kernel is at the other end.
//!
//! A device that exists is used and stays, so that an administrator can make one for a user without privileges:
//! `ip tuntap add dev tap0 mode tap user alice`. Another one is made, which needs CAP_NET_ADMIN, and goes with the process,
//! however that ends.

use std::io::{self, IoSlice};
use std::time::Instant;

use linux::event::{Interest, Poller};
use linux::netlink::Netlink;
use linux::tun::{self, Attached, Kind, MAX_READ, Offloads, VNET_HEADER};
use stack::interface::Medium;
use wire::ethernet::MacAddress;

use super::Device;

/// Goes before packets that are complete, with complete checksums.
const PLAIN: [u8; VNET_HEADER] = [0; VNET_HEADER];

/// A TAP or TUN device.
#[derive(Debug)]
pub struct Kernel {
    attached: Attached,
    mac: MacAddress,
    mtu: usize,
    buffer: Box<[u8]>,
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
    Ok(Kernel {
        attached,
        mac,
        mtu: link.mtu as usize,
        buffer: vec![0; MAX_READ + wire::ethernet::HEADER_LEN].into(),
        refused: 0,
    })
}

impl Kernel {
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

    fn receive(&mut self, _: Instant, frame: &mut Vec<u8>) -> io::Result<bool> {
        let Some(length) = self.attached.queue.read(&mut self.buffer).map_err(said)? else {
            return Ok(false);
        };
        frame.clear();
        frame.extend_from_slice(self.buffer.get(VNET_HEADER..length).unwrap_or_default());
        Ok(true)
    }

    fn send(&mut self, _: Instant, frame: &[u8]) -> io::Result<bool> {
        match self.attached.queue.write(&[IoSlice::new(&PLAIN), IoSlice::new(frame)]) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            // The interface has been deleted (EBADFD).
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

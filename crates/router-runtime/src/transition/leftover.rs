//! The socket for packets that the programs of a tunnel leave.

use linux::event::{Interest, Poller};
use linux::netlink::Link;
use linux::packet::{PacketOptions, PacketSocket};
use linux::raw::RawSocket;
use router::transition::{Kind, PROTOCOL_IPV4};

/// By the kind of tunnel.
pub(super) enum Leftover {
    /// Outer packets: in, those that came in fragments or with options; out, all that this process has made.
    Tunnel(RawSocket),
    /// Where packets leave by the CLAT's own device, and so come to its program: those that have what they lacked.
    Clat(PacketSocket),
}

impl Leftover {
    /// For the device of that index, over this link.
    pub(super) fn open(kind: &Kind, device: u32, link: &Link) -> linux::Result<Self> {
        match kind {
            Kind::Clat { .. } => {
                let options = PacketOptions { only_sends: true, ..PacketOptions::default() };
                PacketSocket::open(device, &options).map(Leftover::Clat)
            }
            Kind::FourInSix { .. } => RawSocket::ipv6(PROTOCOL_IPV4, &link.name).map(Leftover::Tunnel),
            _ => RawSocket::ipv4(wire::protocol::IPV6, &link.name).map(Leftover::Tunnel),
        }
    }

    /// Is read, if there is something to read, under that number.
    pub(super) fn join(&self, poller: &Poller, token: u64) -> linux::Result<()> {
        match self {
            Leftover::Tunnel(socket) => poller.add(socket, token, Interest::Readable),
            Leftover::Clat(_) => Ok(()),
        }
    }

    pub(super) fn leave(&self, poller: &Poller) {
        if let Leftover::Tunnel(socket) = self {
            let _ = poller.remove(socket);
        }
    }
}

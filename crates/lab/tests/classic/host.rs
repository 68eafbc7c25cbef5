//! The smallest host of `classic::Node`: a TUN device, a packet socket to hear, a raw socket to speak.

use std::io::IoSlice;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use classic::profile::StreamConfig;
use classic::{Action, Node, Received, UnixTime};
use lab::namespaces::Namespace;
use linux::event::{Events, Interest, Poller};
use linux::packet::{self, PacketSocket};
use linux::{clock, tun};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, socket,
};

const ETHERNET: usize = 14;
const VNET: usize = wire::virtio_net::LEN;

/// What a run came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) keys_adopted: u64,
    pub(crate) drops: Vec<(&'static str, u64)>,
    /// Routes that were made.
    pub(crate) routes: u64,
}

struct Host {
    node: Node,
    tun: tun::Device,
    hears: PacketSocket,
    speaks: OwnedFd,
    routes: u64,
}

/// Runs a stream in `namespace` until `stop`, over its interface `ex`, with the TUN device `classic`.
pub(crate) fn run(namespace: &Namespace, stream: StreamConfig, stop: &AtomicBool) -> Outcome {
    let kernel = linux::netns::Namespace::open(namespace.name()).expect("the namespace");
    kernel.run(|| Host::new(namespace, stream).run(stop)).expect("a thread in the namespace")
}

impl Host {
    fn new(namespace: &Namespace, stream: StreamConfig) -> Self {
        let tun = tun::create("classic", 1, tun::Offloads::None).expect("a TUN device");
        let remote = stream.remote.address;
        let node =
            Node::new(vec![stream], [7; 32], now()).map_err(|(_, error)| error).expect("a good stream");
        let mtu = node.inner_mtu(0);
        namespace
            .ip(&format!("link set classic mtu {mtu} up\nroute replace {remote}/128 dev classic"))
            .expect("ip");
        let index = nix::net::if_::if_nametoindex("ex").expect("the interface");
        let hears = PacketSocket::open(index, &packet::Options::default()).expect("a packet socket");
        // IPPROTO_RAW: whole packets, with whatever source address.
        let speaks = socket(AddressFamily::Inet6, SockType::Raw, SockFlag::SOCK_NONBLOCK, SockProtocol::Raw)
            .expect("a raw socket");
        Host { node, tun, hears, speaks, routes: 0 }
    }

    fn run(mut self, stop: &AtomicBool) -> Outcome {
        let poller = Poller::new().expect("epoll");
        poller.add(&self.tun.queues[0], 0, Interest::Readable).expect("epoll");
        poller.add(&self.hears, 1, Interest::Readable).expect("epoll");
        let (mut events, mut buffer) = (Events::with_capacity(4), vec![0; 70_000]);
        let (mut inner, mut outer) = (Vec::new(), Vec::new());
        while !stop.load(Ordering::Relaxed) {
            if self.node.deadline() <= now() {
                self.node.handle_timeout(now());
            }
            self.act();
            let wait = self.node.deadline().millis().saturating_sub(now().millis()).min(100);
            poller.wait(&mut events, Some(Duration::from_millis(wait))).expect("epoll");
            while let Some(length) = self.tun.queues[0].read(&mut buffer).expect("the TUN device") {
                if self.node.send(&buffer[VNET..length], &mut outer).is_ok() {
                    self.transmit(&outer);
                }
            }
            while let Some(length) = self.hears.recv(&mut buffer).expect("the packet socket") {
                let frame = &buffer[..length];
                if length < ETHERNET || frame[12..ETHERNET] != [0x86, 0xdd] {
                    continue;
                }
                if let Received::Packet { .. } = self.node.receive(&frame[ETHERNET..], now(), &mut inner) {
                    let header = wire::virtio_net::Header::NONE.to_bytes();
                    self.tun.queues[0]
                        .write(&[IoSlice::new(&header), IoSlice::new(&inner)])
                        .expect("the TUN device");
                }
                self.act();
            }
        }
        let status = self.node.status().next().expect("a stream");
        // What is not for any route, such as neighbor discovery, is no fault.
        let drops = self.node.drops().nonzero().map(|(reason, count)| (reason.name(), count));
        let drops = drops.filter(|(name, _)| !matches!(*name, "no_route" | "no_stream")).collect();
        Outcome { keys_adopted: status.keys_adopted, drops, routes: self.routes }
    }

    fn act(&mut self) {
        while let Some(action) = self.node.next_action() {
            match action {
                // The prefix is routed here, so there is nothing to answer for.
                Action::Open(_) => self.routes += 1,
                Action::Close(_) | Action::StoreKey { .. } => {}
                Action::Transmit(outer) => self.transmit(&outer),
            }
        }
    }

    fn transmit(&self, outer: &[u8]) {
        let destination: [u8; 16] = outer[24..40].try_into().expect("a whole header");
        let to = SockaddrIn6::from(SocketAddrV6::new(Ipv6Addr::from(destination), 0, 0, 0));
        sendto(self.speaks.as_raw_fd(), outer, &to, MsgFlags::empty()).expect("the raw socket");
    }
}

fn now() -> UnixTime {
    UnixTime::from_millis(clock::unix_ms())
}

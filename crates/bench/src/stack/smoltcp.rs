//! smoltcp as a contender.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer};
use smoltcp::time::Instant as At;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use super::device::{Stack, TURN};
use super::load::{SINK, SOURCE};
use super::scene;

/// Of each socket, each way: more than the product of bandwidth and delay of any link here.
const BUFFER: usize = 4 << 20;

/// Packets on their way between the device and smoltcp.
#[derive(Default)]
struct Wire {
    received: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sent<'a>(&'a mut Wire);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, take: F) -> R {
        take(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, fill: F) -> R {
        let mut packet = self.0.spare.pop().unwrap_or_default();
        packet.clear();
        packet.resize(length, 0);
        let result = fill(&mut packet);
        self.0.sent.push_back(packet);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: At) -> Option<(Received, Sent<'_>)> {
        let packet = self.received.pop_front()?;
        Some((Received(packet), Sent(self)))
    }

    fn transmit(&mut self, _: At) -> Option<Sent<'_>> {
        (self.sent.len() < TURN).then_some(Sent(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

pub(super) struct Smoltcp {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    ports: [(u16, SocketHandle); 2],
    begun: Instant,
}

impl Smoltcp {
    pub(super) fn new() -> Self {
        let mut wire = Wire::default();
        let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut wire, At::ZERO);
        interface.update_ip_addrs(|addresses| {
            let address: std::net::Ipv6Addr = scene::ADDRESS.parse().unwrap_or(std::net::Ipv6Addr::LOCALHOST);
            let _ = addresses.push(IpCidr::new(IpAddress::Ipv6(address), 64));
        });
        if let Ok(router) = scene::ROUTER.parse() {
            let _ = interface.routes_mut().add_default_ipv6_route(router);
        }
        let mut sockets = SocketSet::new(Vec::new());
        let ports = [SINK, SOURCE].map(|port| {
            let buffer = || SocketBuffer::new(vec![0; BUFFER]);
            let mut socket = Socket::new(buffer(), buffer());
            socket.set_congestion_control(CongestionControl::Cubic);
            (port, sockets.add(socket))
        });
        Self { wire, interface, sockets, ports, begun: Instant::now() }
    }

    fn at(&self, now: Instant) -> At {
        At::from_micros(
            i64::try_from(now.saturating_duration_since(self.begun).as_micros()).unwrap_or(i64::MAX),
        )
    }
}

impl Stack for Smoltcp {
    fn receive(&mut self, _: Instant, packet: &[u8]) {
        let mut own = self.wire.spare.pop().unwrap_or_default();
        own.clear();
        own.extend_from_slice(packet);
        self.wire.received.push_back(own);
    }

    fn run(&mut self, now: Instant) {
        let at = self.at(now);
        self.interface.poll(at, &mut self.wire, &mut self.sockets);
        for (port, handle) in self.ports {
            let socket = self.sockets.get_mut::<Socket<'_>>(handle);
            if !socket.is_open() {
                let _ = socket.listen(port);
            }
            if port == SINK {
                while socket.can_recv() && socket.recv(|data| (data.len(), ())).is_ok() {}
                if !socket.may_recv() && socket.may_send() {
                    socket.close();
                }
            } else if socket.may_send() {
                while socket.can_send() && socket.send(|room| (room.len(), ())).is_ok_and(|()| true) {}
                if !socket.may_recv() {
                    socket.abort();
                }
            }
        }
        self.interface.poll(at, &mut self.wire, &mut self.sockets);
    }

    fn transmit(&mut self, _: Instant, packet: &mut Vec<u8>) -> bool {
        let Some(next) = self.wire.sent.pop_front() else { return false };
        self.wire.spare.push(std::mem::replace(packet, next));
        true
    }

    fn deadline(&mut self, now: Instant) -> Option<Instant> {
        let delay = self.interface.poll_delay(self.at(now), &self.sockets)?;
        Some(now + Duration::from_micros(delay.total_micros()))
    }
}

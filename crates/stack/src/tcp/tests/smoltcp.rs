//! smoltcp at the other end, in both roles.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use smoltcp::iface::{Config as InterfaceConfig, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use wire::checksum::Sum;
use wire::{ipv6, protocol, tcp};

use super::super::{Config, State};
use super::network::{Host, Link, MS, MSS, Network, Ours, Packet, User};
use super::smoltcp_wire::Wire;

const OURS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const THEIRS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

struct Theirs {
    start: Instant,
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    user: User,
}

impl Theirs {
    fn new(start: Instant, connects: bool, user: User) -> Self {
        let mut wire = Wire::default();
        let config = InterfaceConfig::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut wire, SmolInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::Ipv6(THEIRS), 64)).unwrap();
        });
        let buffer = || SocketBuffer::new(vec![0; 200_000]);
        let mut socket = Socket::new(buffer(), buffer());
        let mut sockets = SocketSet::new(Vec::new());
        if connects {
            socket.connect(interface.context(), (IpAddress::Ipv6(OURS), 80), 4000).unwrap();
        } else {
            socket.listen(80).unwrap();
        }
        let socket = sockets.add(socket);
        Theirs { start, wire, interface, sockets, socket, user }
    }

    fn time(&self, now: Instant) -> SmolInstant {
        SmolInstant::from_micros((now - self.start).as_micros() as i64)
    }

    fn poll(&mut self, now: Instant) {
        let time = self.time(now);
        self.interface.poll(time, &mut self.wire, &mut self.sockets);
    }
}

impl Host for Theirs {
    fn receive(&mut self, now: Instant, packet: &Packet) {
        let mut segment = packet.bytes.clone();
        let len = segment.len() as u32;
        let sum = Sum::pseudo_ipv6(OURS, THEIRS, len, protocol::TCP) + Sum::of(&segment);
        segment[tcp::CHECKSUM_OFFSET..][..2].copy_from_slice(&sum.checksum().to_be_bytes());
        let header = ipv6::Header {
            traffic_class: packet.ecn,
            flow_label: 0,
            payload_length: segment.len() as u16,
            next_header: protocol::TCP,
            hop_limit: 64,
            source: OURS,
            destination: THEIRS,
        };
        self.wire.received.push_back([&header.to_bytes()[..], &segment].concat());
        self.poll(now);
    }

    fn work(&mut self, now: Instant) {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = socket.recv_slice(&mut buffer) {
            self.user.take(now, &buffer[..n]);
        }
        self.user.ended = !socket.may_recv();
        while self.user.written < self.user.total && socket.can_send() {
            let n = socket.send_slice(&self.user.next_chunk(4096)).unwrap();
            self.user.written += n as u64;
        }
        if self.user.closes && self.user.written == self.user.total && socket.may_send() {
            socket.close();
        }
    }

    fn transmit(&mut self, now: Instant, out: &mut Vec<Packet>) {
        self.poll(now);
        for packet in self.wire.sent.drain(..) {
            let view = ipv6::Packet::parse(&packet).unwrap();
            if view.next_header() == protocol::TCP {
                out.push(Packet { bytes: view.payload().to_vec(), ecn: 0 });
            }
        }
    }

    fn deadline(&mut self, now: Instant) -> Option<Instant> {
        let time = self.time(now);
        let delay = self.interface.poll_delay(time, &self.sockets)?;
        // A deadline that has come is one microsecond away: smoltcp was polled just now.
        Some(now + Duration::from_micros(delay.total_micros().max(1)))
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.poll(now);
    }

    fn user(&mut self) -> &mut User {
        &mut self.user
    }
}

fn links(seed: u64) -> Link {
    match seed % 3 {
        0 => Link { rate: 2_000_000, queue: 100_000, ..Link::IDEAL },
        1 => Link { loss: 0.02, rate: 2_000_000, queue: 100_000, ..Link::IDEAL },
        _ => Link { loss: 0.01, reorder: (0.05, 8 * MS), duplicate: 0.01, ..Link::IDEAL },
    }
}

fn exchange(seed: u64, we_connect: bool, ours: User, theirs: User) {
    let start = Instant::now();
    let config = Config { nagle: seed.is_multiple_of(2), ..Config::new(MSS) };
    let ours =
        if we_connect { Ours::connecting(start, config, ours) } else { Ours::listening(start, config, ours) };
    let theirs = Theirs::new(start, !we_connect, theirs);
    let mut network = Network::new(start, links(seed), seed, [Box::new(ours), Box::new(theirs)]);
    network.transfer(Duration::from_secs(600));
    network.pass(Duration::from_secs(120));
    assert_eq!((network.connection(0).state(), network.connection(0).error()), (State::Closed, None));
}

#[test]
fn we_connect_to_smoltcp_and_send() {
    for seed in 0..6 {
        exchange(seed, true, User::sends(200_000), User::sends(10));
    }
}

#[test]
fn we_connect_to_smoltcp_and_receive() {
    for seed in 0..6 {
        exchange(seed, true, User::sends(10), User::sends(200_000));
    }
}

#[test]
fn smoltcp_connects_to_us_and_both_send() {
    for seed in 0..6 {
        exchange(seed, false, User::sends(150_000), User::sends(150_000));
    }
}

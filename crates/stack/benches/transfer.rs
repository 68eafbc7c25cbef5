//! What a byte of a TCP stream costs between two hosts in memory, beside smoltcp: `cargo bench -p stack`.

#![allow(missing_docs, reason = "benchmarks")]

#[path = "../tests/fixture/smoltcp_wire.rs"]
mod smoltcp_wire;

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use divan::Bencher;
use divan::counter::BytesCount;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use stack::host::{Host, TcpHandle};
use stack::interface::{Config, Medium};
use stack::random::Key;
use stack::{autoconf, tcp};

use smoltcp_wire::Wire;
use wire::virtio_net;

const OCTETS: usize = 16 << 20;
/// Packets that are handed over at once.
const BATCH: usize = 32;
const CHUNK: usize = 65_536;
/// Of each end, each way.
const BUFFER: usize = 1 << 20;

fn main() {
    divan::main();
}

fn address(number: u8) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number.into())
}

fn host(now: Instant, number: u8) -> Host {
    let config = Config {
        medium: Medium::Ip,
        mtu: 1500,
        autoconf: autoconf::Config {
            stable_key: Key::new([number; 16]),
            interface: b"tun0".to_vec(),
            temporary: false,
            duplicate_transmits: 0,
        },
        routers: false,
    };
    let mut host = Host::new(now, config, [number; 32]);
    host.interface_mut().add_address(now, address(number), 64);
    host
}

/// Two hosts with a connection.
struct Pair {
    now: Instant,
    hosts: [Host; 2],
    ends: [TcpHandle; 2],
    packets: Vec<(Vec<u8>, virtio_net::Header)>,
    offloads: bool,
}

impl Pair {
    fn new(offloads: bool) -> Self {
        let now = Instant::now();
        let mut hosts = [host(now, 1), host(now, 2)];
        let config =
            tcp::Config { max_receive_buffer: BUFFER, max_send_buffer: BUFFER, ..tcp::Config::new(u16::MAX) };
        let at = |number, port| SocketAddrV6::new(address(number), port, 0, 0);
        let listener = hosts[1].tcp_listen(at(2, 80), config, 1).unwrap();
        let ours = hosts[0].tcp_connect(now, at(2, 80), config).unwrap();
        let mut packet = Vec::new();
        while let Some(from) = (0..2).find(|host| hosts[*host].poll_transmit(now, &mut packet)) {
            hosts[1 - from].receive(now, &packet);
        }
        let theirs = hosts[1].tcp_accept(listener).unwrap().unwrap();
        Pair {
            now,
            hosts,
            ends: [ours, theirs],
            packets: vec![(Vec::new(), virtio_net::Header::NONE); BATCH],
            offloads,
        }
    }

    /// Sends so much from the first to the second, who reads it.
    fn transfer(&mut self, data: &[u8], read: &mut [u8]) {
        let (mut written, mut arrived) = (0, 0);
        while arrived < OCTETS {
            self.now += Duration::from_micros(50);
            written += self.hosts[0].write(self.ends[0], &data[..data.len().min(OCTETS - written)]).unwrap();
            for from in 0..2 {
                self.carry(from);
            }
            loop {
                let length = self.hosts[1].read(self.ends[1], read).unwrap();
                arrived += length;
                if length < read.len() {
                    break;
                }
            }
            for host in &mut self.hosts {
                if host.deadline().is_some_and(|deadline| deadline <= self.now) {
                    host.handle_timeout(self.now);
                }
            }
        }
    }

    fn carry(&mut self, from: usize) {
        let now = self.now;
        let mut count = 0;
        for (packet, header) in &mut self.packets {
            let host = &mut self.hosts[from];
            let sent = if self.offloads {
                host.poll_transmit_offloaded(now, packet)
            } else {
                host.poll_transmit(now, packet).then_some(virtio_net::Header::NONE)
            };
            let Some(sent) = sent else { break };
            *header = sent;
            count += 1;
        }
        for (packet, header) in &mut self.packets[..count] {
            self.hosts[1 - from].receive_offloaded(now, header, packet);
        }
    }
}

#[divan::bench(sample_count = 20)]
fn with_offloads(bencher: Bencher) {
    transfer(bencher, Pair::new(true));
}

#[divan::bench(sample_count = 20)]
fn without_offloads(bencher: Bencher) {
    transfer(bencher, Pair::new(false));
}

fn transfer(bencher: Bencher, mut pair: Pair) {
    let (data, mut read) = (vec![7; CHUNK], vec![0; CHUNK]);
    bencher.counter(BytesCount::new(OCTETS)).bench_local(|| pair.transfer(&data, &mut read));
}

/// One end with smoltcp.
struct Smol {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Smol {
    fn new(number: u8, connects_to: Option<u8>) -> Self {
        let mut wire = Wire::default();
        let config = smoltcp::iface::Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut wire, smoltcp::time::Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::Ipv6(address(number)), 64)).unwrap();
        });
        let buffer = || SocketBuffer::new(vec![0; BUFFER]);
        let mut socket = Socket::new(buffer(), buffer());
        match connects_to {
            Some(other) => {
                let to = (IpAddress::Ipv6(address(other)), 80);
                socket.connect(interface.context(), to, 4000).unwrap();
            }
            None => socket.listen(80).unwrap(),
        }
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Smol { wire, interface, sockets, socket }
    }

    fn poll(&mut self, time: smoltcp::time::Instant) {
        self.interface.poll(time, &mut self.wire, &mut self.sockets);
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }
}

#[divan::bench(sample_count = 20)]
fn with_smoltcp(bencher: Bencher) {
    let mut ends = [Smol::new(1, Some(2)), Smol::new(2, None)];
    let (data, mut read) = (vec![7; CHUNK], vec![0; CHUNK]);
    let mut micros = 0;
    bencher.counter(BytesCount::new(OCTETS)).bench_local(|| {
        let (mut written, mut arrived) = (0, 0);
        while arrived < OCTETS {
            micros += 50;
            let time = smoltcp::time::Instant::from_micros(micros);
            if ends[0].socket().may_send() {
                written += ends[0].socket().send_slice(&data[..data.len().min(OCTETS - written)]).unwrap();
            }
            for from in 0..2 {
                ends[from].poll(time);
                let sent = std::mem::take(&mut ends[from].wire.sent);
                ends[1 - from].wire.received.extend(sent);
            }
            while ends[1].socket().can_recv() {
                arrived += ends[1].socket().recv_slice(&mut read).unwrap();
            }
        }
    });
}

//! What a byte of a TCP stream costs between two hosts in memory, beside smoltcp: `cargo bench -p stack`.

#![allow(missing_docs, reason = "benchmarks")]

#[path = "fixture/pair.rs"]
mod pair;
#[path = "../tests/fixture/smoltcp_wire.rs"]
mod smoltcp_wire;

use divan::Bencher;
use divan::counter::BytesCount;
use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use stack::security::NoSecurity;

use pair::{BUFFER, CHUNK, Handover, OCTETS, Pair, address};
use smoltcp_wire::Wire;

fn main() {
    divan::main();
}

#[divan::bench(sample_count = 20)]
fn with_offloads(bencher: Bencher) {
    Pair::new(Handover { offloads: true, batch: 32 }, |_| NoSecurity).measure(bencher);
}

#[divan::bench(sample_count = 20)]
fn without_offloads(bencher: Bencher) {
    Pair::new(Handover { offloads: false, batch: 32 }, |_| NoSecurity).measure(bencher);
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

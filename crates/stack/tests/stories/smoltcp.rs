//! smoltcp at the other end of a tunnel, in both roles.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fastrand::Rng;
use smoltcp::iface::{Config as InterfaceConfig, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State as SmolState};
use smoltcp::time::Instant as SmolInstant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use stack::host::{Host, TcpHandle};
use stack::interface::{Config, Medium};
use stack::tcp::State;

use crate::hosts::TCP;
use crate::link::{ANY, SECOND, at, config};
use crate::smoltcp_wire::Wire;

const OURS: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const THEIRS: std::net::Ipv6Addr = std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const OCTETS: usize = 300_000;

struct Theirs {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl Theirs {
    fn new(connects: bool) -> Self {
        let mut wire = Wire::default();
        let mut interface =
            Interface::new(InterfaceConfig::new(HardwareAddress::Ip), &mut wire, SmolInstant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(IpAddress::Ipv6(THEIRS), 64)).unwrap();
        });
        let buffer = || SocketBuffer::new(vec![0; 60_000]);
        let mut socket = Socket::new(buffer(), buffer());
        let mut sockets = SocketSet::new(Vec::new());
        if connects {
            socket.connect(interface.context(), (IpAddress::Ipv6(OURS), 80), 4000).unwrap();
        } else {
            socket.listen(80).unwrap();
        }
        let socket = sockets.add(socket);
        Theirs { wire, interface, sockets, socket }
    }
}

/// Both send so much and close; what arrives must be what was sent.
fn exchange(we_connect: bool, loss: f64) {
    let start = Instant::now();
    let mut random = Rng::with_seed(loss.to_bits());
    let mut ours = Host::new(start, Config { medium: Medium::Ip, routers: false, ..config(1) }, [1; 32]);
    ours.interface_mut().add_address(start, OURS, 64);
    let mut theirs = Theirs::new(!we_connect);
    let listener = ours.tcp_listen(at(ANY, 80), TCP, 1).unwrap();
    let mut handle: Option<TcpHandle> = None;
    if we_connect {
        handle = Some(ours.tcp_connect(start, at(THEIRS, 80), TCP).unwrap());
    }
    let pattern: Vec<u8> = (0..OCTETS).map(|at| (at ^ at >> 8) as u8).collect();
    let (mut written, mut read) = ([0; 2], [0; 2]);
    let mut buffer = [0; 4096];
    let mut flying: VecDeque<(Instant, bool, Vec<u8>)> = VecDeque::new();
    let mut now = start;
    loop {
        handle = handle.or_else(|| ours.tcp_accept(listener).unwrap());
        if let Some(handle) = handle {
            written[0] += ours.write(handle, &pattern[written[0]..]).unwrap();
            if written[0] == OCTETS {
                ours.close(handle).unwrap();
            }
            while let length @ 1.. = ours.read(handle, &mut buffer).unwrap() {
                assert_eq!(buffer[..length], pattern[read[0]..read[0] + length]);
                read[0] += length;
            }
        }
        let socket = theirs.sockets.get_mut::<Socket<'_>>(theirs.socket);
        while let Ok(length @ 1..) = socket.recv_slice(&mut buffer) {
            assert_eq!(buffer[..length], pattern[read[1]..read[1] + length]);
            read[1] += length;
        }
        if socket.can_send() {
            written[1] += socket.send_slice(&pattern[written[1]..]).unwrap();
        }
        if written[1] == OCTETS && socket.may_send() {
            socket.close();
        }
        let ended = [
            handle.is_some_and(|handle| ours.tcp(handle).unwrap().has_ended()),
            !socket.is_open() || socket.state() == SmolState::TimeWait,
        ];
        if ended == [true; 2] && read == [OCTETS; 2] {
            break;
        }
        let time = SmolInstant::from_micros((now - start).as_micros() as i64);
        theirs.interface.poll(time, &mut theirs.wire, &mut theirs.sockets);
        let (mut sent, mut out) = (Vec::new(), Vec::new());
        while ours.poll_transmit(now, &mut out) {
            sent.push((true, out.clone()));
        }
        sent.extend(theirs.wire.sent.drain(..).map(|packet| (false, packet)));
        for (to_them, packet) in sent {
            if random.f64() >= loss {
                flying.push_back((now + Duration::from_millis(5), to_them, packet));
            }
        }
        let delay = theirs.interface.poll_delay(time, &theirs.sockets);
        // What smoltcp calls due has been done just now.
        let theirs_due = delay.map(|delay| now + Duration::from_micros(delay.total_micros().max(1)));
        let next = [ours.deadline(), theirs_due, flying.front().map(|(at, _, _)| *at)];
        now = next.into_iter().flatten().min().unwrap().max(now);
        assert!(now < start + SECOND * 600, "{written:?} written, {read:?} read");
        while flying.front().is_some_and(|(at, _, _)| *at <= now) {
            let (_, to_them, packet) = flying.pop_front().unwrap();
            if to_them {
                theirs.wire.received.push_back(packet);
            } else {
                ours.receive(now, &packet);
            }
        }
        if ours.deadline().is_some_and(|deadline| deadline <= now) {
            ours.handle_timeout(now);
        }
    }
    let connection = ours.tcp(handle.unwrap()).unwrap();
    assert!(matches!(connection.state(), State::TimeWait | State::LastAck | State::Closing | State::Closed));
    assert_eq!(connection.error(), None);
}

#[test]
fn we_connect_to_smoltcp() {
    for loss in [0.0, 0.01, 0.03] {
        exchange(true, loss);
    }
}

#[test]
fn smoltcp_connects_to_us() {
    for loss in [0.0, 0.01, 0.03] {
        exchange(false, loss);
    }
}

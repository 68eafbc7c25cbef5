//! Any frames, one after the other and with time between them, to a host with an address, a UDP socket, a listener and a
//! connection.

#![no_main]

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use stack::autoconf;
use stack::host::Host;
use stack::interface::{Config, Medium};
use stack::ipv4::Ipv4;
use stack::random::Key;
use stack::tcp;
use wire::ethernet::MacAddress;

fuzz_target!(|frames: Vec<(u8, Vec<u8>)>| {
    let mut now = Instant::now();
    let config = Config {
        medium: Medium::Ethernet(MacAddress([2, 0, 0, 0, 0, 1])),
        mtu: 1500,
        autoconf: autoconf::Config {
            stable_key: Key::new([1; 16]),
            interface: b"eth0".to_vec(),
            temporary: true,
            duplicate_transmits: 0,
        },
        routers: true,
    };
    let mut host = Host::new(now, config, [1; 32]);
    let interface = host.interface_mut();
    interface.add_address(now, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 64);
    interface.set_ipv4(Some(Ipv4 { address: "192.0.2.1/24".parse().unwrap(), gateway: None }));
    let _ = interface.udp_bind(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 53, 0, 0));
    let config = tcp::Config::new(u16::MAX);
    let listener = host.tcp_listen(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 80, 0, 0), config, 4).unwrap();
    let neighbor = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
    let _ = host.tcp_connect(now, SocketAddrV6::new(neighbor, 80, 0, 0), config);
    let mut out = Vec::new();
    for (seconds, frame) in frames {
        host.receive(now, &frame);
        while host.poll_transmit(now, &mut out) {}
        now += Duration::from_secs(seconds.into());
        host.handle_timeout(now);
        while host.poll_transmit(now, &mut out) {}
        while let Ok(Some(accepted)) = host.tcp_accept(listener) {
            let _ = host.write(accepted, b"hello");
        }
    }
});

//! Any frames, one after the other and with time between them, to a host with an address and a socket.

#![no_main]

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use stack::autoconf;
use stack::interface::{Config, Interface, Medium, NoUpper};
use stack::ipv4::Ipv4;
use stack::random::Key;
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
    let mut host = Interface::new(now, config, [1; 32]);
    host.add_address(now, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 64);
    host.set_ipv4(Some(Ipv4 { address: "192.0.2.1/24".parse().unwrap(), gateway: None }));
    let _ = host.udp_bind(SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, 53, 0, 0));
    let mut out = Vec::new();
    for (seconds, frame) in frames {
        host.receive(now, &frame, &mut NoUpper);
        while host.poll_transmit(&mut out) {}
        now += Duration::from_secs(seconds.into());
        host.handle_timeout(now, &mut NoUpper);
        while host.poll_transmit(&mut out) {}
    }
});

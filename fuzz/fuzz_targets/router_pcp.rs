//! Datagrams of hosts that ask for ports: any octets are answered or not, requests are written as they are read, and limits
//! hold.
#![no_main]

use std::net::IpAddr;
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use router::pcp::{Limits, Link, Server, message, nat_pmp};

fuzz_target!(|datagrams: Vec<(bool, u8, Vec<u8>)>| {
    let mut now = Instant::now();
    let mut server = Server::new(now);
    server.set_external(Some([192, 0, 2, 2].into()), now);
    let own = ["192.168.1.1/24", "2001:db8::1/64"].map(|net| net.parse().expect("a network"));
    let limits = Limits { per_host: 4, ..Limits::default() };
    let link = Link { network: "lan", limits, own: &own, taken: &|_, port| port == 8_443 };
    for (is_ipv4, host, datagram) in datagrams {
        if let Ok(request) = message::parse(&datagram) {
            assert_eq!(message::parse(&request.to_bytes()), Ok(request));
        }
        if let Some(Ok(nat_pmp::Request::Map(map))) = nat_pmp::parse(&datagram) {
            assert_eq!(nat_pmp::parse(&map.to_bytes()), Some(Ok(nat_pmp::Request::Map(map))));
        }
        let source = match is_ipv4 {
            true => IpAddr::from([192, 168, 1, host]),
            false => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)]),
        };
        now += Duration::from_secs(u64::from(host));
        server.retain(|_, _| true, now);
        let answer = server.handle(&datagram, source, &link, now);
        assert!(answer.is_none_or(|answer| answer.len() <= message::MAX && answer[1] & 0x80 != 0));
        for (internal, mapping) in server.mappings() {
            assert!(internal.port >= 1_024 && mapping.external_port >= 1_024);
            let same = server.mappings().filter(|(other, _)| other.address == internal.address);
            assert!(same.count() <= 4);
        }
    }
});

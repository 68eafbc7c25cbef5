//! Datagrams of hosts and routers behind: any octets are answered or not, answers can be read, nobody has what another has,
//! and limits hold.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use router::dhcp6::{FixedHost, Identity, Link, Pool, Server, Settings};
use router::plan::Plan;
use router::site::{Probing, RouterFrom, Site, Uplink};
use router::uplink::UplinkState;
use wire::dhcpv6::{Builder, Message};
use wire::ethernet::MacAddress;

fuzz_target!(|datagrams: Vec<(u8, Vec<u8>)>| {
    let mut now = Instant::now();
    let uplink = Uplink {
        name: "fibre".to_owned(),
        interface: "eth0".to_owned(),
        router: RouterFrom::PointToPoint,
        addresses: Vec::new(),
        prefixes: vec!["2001:db8::/52".parse().expect("a prefix")],
        delegation: None,
        probes: Vec::new(),
        ipv4_router: None,
        masquerade: false,
        tunnel: None,
        bandwidth: None,
    };
    let mut server = Server::new(vec![0, 4, 1, 2], Vec::new());
    server.set_pool(Pool::new(
        &Site::default(),
        &[&UplinkState::new(&uplink, Probing::default())],
        &Plan::default(),
    ));
    let identity = Identity::Mac(MacAddress([2, 0, 0, 0, 0, 5]));
    let hosts = vec![FixedHost { name: "nas".to_owned(), identity, host: 5 }];
    let settings = Settings { delegate: Some(60), hosts };
    let own = std::net::Ipv6Addr::from([0xfe80, 0, 0, 0, 0, 0, 0, 0xff]);
    let link = Link { network: "lan", settings: &settings, prefixes: &[], dns_servers: &[], own: &[own] };
    for (router, datagram) in datagrams {
        if let Ok(message) = Message::parse(&datagram) {
            if let Some(name) = message.aftr_name() {
                let built =
                    Builder::new(message.message_type(), message.transaction()).aftr_name(&name).finish();
                assert_eq!(Message::parse(&built).expect("what was built").aftr_name(), Some(name));
            }
            for asked in message.delegations() {
                let built =
                    Builder::new(message.message_type(), message.transaction()).delegation(&asked).finish();
                let read = Message::parse(&built).expect("what was built");
                assert_eq!(read.delegations().next(), Some(asked));
            }
            for asked in message.assignments() {
                let built =
                    Builder::new(message.message_type(), message.transaction()).assignment(&asked).finish();
                let read = Message::parse(&built).expect("what was built");
                assert_eq!(read.assignments().next(), Some(asked));
            }
        }
        now += Duration::from_secs(u64::from(router));
        server.retain(|_| true, now);
        let source = std::net::Ipv6Addr::from([0xfe80, 0, 0, 0, 0, 0, 0, u16::from(router)]);
        if let Some(answer) = server.handle(&datagram, source, &link, now) {
            assert!(Message::parse(&answer).is_ok() && answer.len() <= 2_048 + datagram.len());
        }
        let of_router = server.leases().iter().filter(|lease| lease.router == source);
        assert!(of_router.count() <= 2 && server.leases().len() <= 256);
        assert!(server.leases().iter().all(|lease| lease.router != own));
        let mut numbers: Vec<_> = server.leases().iter().map(|lease| lease.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), server.leases().len());
    }
});

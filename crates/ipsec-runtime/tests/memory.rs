//! What a gateway's memory grows by for each client: an IKE SA, and a child with its two associations.

use std::alloc::System;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::time::Instant;

use cap::Cap;
use config::ipsec::{IpsecConfig, Place, Ports, Remote, Start};
use ike::config::{ChildConfig, Config, Mode, PeerConfig};
use ike::crypto::secret::Secret;
use ike::message::body::Identity;
use ike::message::traffic_selector::TrafficSelector;
use ipsec::level::Levels;
use ipsec_runtime::carrier::{Carrier, Ends, Event, Received};
use ipsec_runtime::deliver::Deliver;
use ipsec_runtime::outbox::Via;
use wire::ecn::Ecn;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const CLIENTS: u16 = 64;
const PORTS: Ports = Ports { ike: 500, nat: 4500 };
/// What a client may cost: 4 KB for each of its two associations, with their share of the IKE SA.
const MOST: usize = 2 * 4096;

struct Repeatable(u64);

impl ike::random::Random for Repeatable {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (self.0 >> 56) as u8;
        }
    }
}

struct Nothing;

impl Deliver for Nothing {
    fn packet(&mut self, _: &[u8], _: &[u8], _: Range<usize>) {}
    fn whole_packet(&mut self, _: &[u8]) {}
}

/// The gateway is number 0, outside and inside.
fn outside(number: u16) -> IpAddr {
    Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, number]).into()
}

fn behind(number: u16) -> TrafficSelector {
    TrafficSelector::prefix(Ipv6Addr::from([0xfd00, number, 0, 0, 0, 0, 0, 0]).into(), 64)
}

fn peer(own: u16, other: u16) -> PeerConfig {
    let name = |number| Identity::Fqdn(format!("{number}.example"));
    let mut peer = PeerConfig::new(name(own), Some(name(other)), Secret::new(b"known to both".to_vec()));
    peer.children.push(ChildConfig::new(Mode::Tunnel, vec![behind(own)], vec![behind(other)]));
    peer
}

fn config(own: u16, others: Range<u16>) -> IpsecConfig {
    let (place, start) =
        if own == 0 { (None, Start::Wait) } else { (Some(Place::Address(outside(0))), Start::Always) };
    let remote = |number| Remote {
        name: format!("{number}"),
        address: place.clone(),
        ports: PORTS,
        start,
        encapsulate: true,
        pool: Vec::new(),
    };
    IpsecConfig {
        name: "test".to_owned(),
        local: None,
        ports: PORTS,
        addresses: Vec::new(),
        mtu: None,
        ike: Config::new(others.clone().map(|other| peer(own, other)).collect()),
        remotes: others.map(remote).collect(),
        rules: Vec::new(),
        child_rules: Vec::new(),
        levels: Levels::NONE,
        setkey: None,
        warnings: config::Report::default(),
    }
}

/// Hands everything over that one has for the other; returns whether there was anything.
fn carry(
    (from, number): (&mut Carrier<Repeatable>, u16),
    to: (&mut Carrier<Repeatable>, u16),
    now: Instant,
) -> bool {
    let batches = from.outbox().batches().map(|(batch, bytes)| (*batch, bytes.to_vec())).collect::<Vec<_>>();
    from.outbox().clear();
    for (batch, mut bytes) in batches.iter().cloned() {
        let received = Received {
            at: 0..bytes.len(),
            segment: batch.segment,
            via: if batch.way.remote.port() == PORTS.nat { Via::Nat } else { Via::Ike },
            local: outside(to.1),
            remote: SocketAddr::new(
                outside(number),
                if batch.way.via == Via::Nat { PORTS.nat } else { PORTS.ike },
            ),
            ecn: Ecn::NotEct,
        };
        to.0.receive(&mut bytes, &received, now, &mut Nothing);
    }
    !batches.is_empty()
}

/// A client comes, and is gone without a word.
fn come(gateway: &mut Carrier<Repeatable>, number: u16, now: Instant) {
    let mut client = Carrier::new(&config(number, 0..1), PORTS, Repeatable(number.into()), now);
    client.handle_timeout(now, &mut Nothing);
    loop {
        while let Some(event) = client.poll_event() {
            if let Event::Reach(remote) = event {
                let ends = Ends { local: outside(number), remote: outside(0) };
                client.reach(remote, Ok(ends), now, &mut Nothing);
            }
        }
        let told = carry((&mut client, number), (gateway, 0), now);
        let answered = carry((gateway, 0), (&mut client, number), now);
        while gateway.poll_event().is_some() {}
        if !told && !answered {
            return;
        }
    }
}

#[test]
fn a_client_costs_a_gateway_no_more_than_four_kilobytes_an_association() {
    let now = Instant::now();
    let mut gateway = Carrier::new(&config(0, 1..2 * CLIENTS + 1), PORTS, Repeatable(0), now);
    let mut allocated = Vec::new();
    for clients in [1..CLIENTS + 1, CLIENTS + 1..2 * CLIENTS + 1] {
        for number in clients {
            come(&mut gateway, number, now);
        }
        allocated.push(ALLOCATOR.allocated());
    }
    let report = gateway.report(now);
    assert!(report.iter().all(|remote| remote.state == "up" && remote.children.len() == 1));
    drop(report);
    let each = (allocated[1] - allocated[0]) / usize::from(CLIENTS);
    println!("{each} bytes for each client");
    assert!(each <= MOST, "{each} bytes for each client, more than {MOST}");
}

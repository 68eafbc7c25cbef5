//! Any datagrams at the two ends of an IKE SA: none makes anything panic, and none ends it.

#![no_main]

use std::time::{Duration, Instant};

use ike::Endpoint;
use ike::config::{ChildConfig, Config, Mode, PeerConfig, PeerIndex};
use ike::crypto::secret::Secret;
use ike::event::{Event, Path};
use ike::message::body::Identity;
use ike::message::traffic_selector::{self, TrafficSelector};
use ike::message::{Message, body, configuration, proposal};
use ike::random::Random;
use libfuzzer_sys::fuzz_target;

struct Counter(u8);

impl Random for Counter {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(5).wrapping_add(1);
            *byte = self.0;
        }
    }
}

fn endpoint(local: &str, remote: &str, seed: u8) -> Endpoint<Counter> {
    let name = |name: &str| Identity::Fqdn(name.to_owned());
    let mut peer = PeerConfig::new(name(local), Some(name(remote)), Secret::new(b"key".to_vec()));
    let any = || vec![TrafficSelector::ANY_IPV6];
    peer.children.push(ChildConfig::new(Mode::Tunnel, any(), any()));
    Endpoint::new(Config::new(vec![peer]), Counter(seed))
}

fuzz_target!(|datagrams: Vec<(bool, Vec<u8>)>| {
    let (mut a, mut b) = (endpoint("a", "b", 1), endpoint("b", "a", 2));
    let path =
        Path { local: "[2001:db8::a]:500".parse().unwrap(), remote: "[2001:db8::b]:500".parse().unwrap() };
    let back = Path { local: path.remote, remote: path.local };
    let mut now = Instant::now();
    let _ = a.initiate(now, PeerIndex(0), path);
    for (early, datagram) in &datagrams {
        if *early {
            a.receive(now, path, datagram);
            b.receive(now, back, datagram);
        }
    }
    for _ in 0..4 {
        while let Some(sent) = a.poll_transmit() {
            b.receive(now, back, &sent.payload);
        }
        while let Some(sent) = b.poll_transmit() {
            a.receive(now, path, &sent.payload);
        }
    }
    for (_, datagram) in &datagrams {
        a.receive(now, path, datagram);
        b.receive(now, back, datagram);
        now += Duration::from_millis(1);
        if let Ok(message) = Message::parse(datagram) {
            for payload in message.payloads() {
                let _ = proposal::parse(payload.body);
                let _ = traffic_selector::parse(payload.body);
                let _ = configuration::parse(payload.body);
                let _ = body::Identity::parse(payload.body);
                let _ = body::Delete::parse(payload.body).map(|delete| delete.spis().count());
            }
        }
    }
    for end in [&mut a, &mut b] {
        while let Some(event) = end.poll_event() {
            assert!(!matches!(event, Event::IkeDown { .. } | Event::ChildDown { .. }));
        }
    }
});

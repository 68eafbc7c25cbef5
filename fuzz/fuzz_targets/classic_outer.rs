//! Any outer packets from anybody who has seen the hashed addresses: nothing panics, and nothing of another length or
//! between other hosts than the stream's is delivered.

#![no_main]

use std::cell::RefCell;

use classic::hashed::{Host, Rotation};
use classic::keys::{SESSION_KEY_LEN, SessionKey};
use classic::profile::{Carry, KeyExchange, StreamConfig};
use classic::{Node, Received, UnixTime};
use libfuzzer_sys::fuzz_target;

const START: u64 = 1_800_000_000_000;

/// A stream of each mode, and the time.
struct Scene {
    node: Node,
    now: u64,
}

fn scene() -> Scene {
    let (wrapped, rewritten) = (Carry::Encapsulate, Carry::Rewrite);
    let ciphers = [Some(classic::cipher::Cipher::Aes256Cbc), Some(classic::cipher::Cipher::Aes128Cbc)];
    let modes = [(None, wrapped), (ciphers[0], wrapped), (ciphers[1], wrapped), (None, rewritten)];
    let host = |side: &str, number: usize| Host {
        address: format!("2001:db8:{side}::{}", number + 1).parse().expect("an address"),
        mac: None,
    };
    let streams = modes.into_iter().enumerate().map(|(number, (cipher, carry))| StreamConfig {
        local: host("a", number),
        remote: host("b", number),
        key: SessionKey::from_bytes([7; SESSION_KEY_LEN]),
        cipher,
        carry,
        rotation: Rotation::Fixed(10),
        lifetime: 30,
        key_exchange: Some(KeyExchange { interval: 100, window: 10 }),
        outer_mtu: 1500,
    });
    let now = UnixTime::from_millis(START);
    let mut node = Node::new(streams.collect(), [1; 32], now).expect("a good configuration");
    node.handle_timeout(now);
    Scene { node, now: START }
}

thread_local! {
    static SCENE: RefCell<Scene> = scene().into();
}

fuzz_target!(|packets: Vec<(u8, u16, u8, Vec<u8>)>| {
    SCENE.with_borrow_mut(|Scene { node, now }| {
        let mut inner = Vec::new();
        for (which, later, next_header, mut payload) in packets {
            *now += u64::from(later);
            let time = UnixTime::from_millis(*now);
            node.handle_timeout(time);
            while node.next_action().is_some() {}
            let endpoints: Vec<_> = node.endpoints().collect();
            let endpoint = endpoints[usize::from(which >> 1) % endpoints.len()];
            // Ports and checksum are right: without that, the fuzzer would find nothing behind them.
            let (local, remote) = (endpoint.local, endpoint.remote);
            let udp_at = match next_header & 1 {
                0 => 0,
                _ => payload.get(1).map_or(0, |units| (usize::from(*units) + 1) * 8),
            };
            if let Some(datagram) = payload.get_mut(udp_at..).filter(|rest| rest.len() >= 8) {
                datagram[..2].copy_from_slice(&remote.source_port(which & 1 == 1).to_be_bytes());
                datagram[2..4].copy_from_slice(&local.port.to_be_bytes());
                let length = datagram.len();
                datagram[4..6].copy_from_slice(&(length as u16).to_be_bytes());
                datagram[6..8].fill(0);
                let pseudo =
                    wire::checksum::Sum::pseudo_ipv6(remote.address, local.address, length as u32, 17);
                let checksum = (pseudo + wire::checksum::Sum::of(datagram)).udp_checksum();
                datagram[6..8].copy_from_slice(&checksum.to_be_bytes());
            }
            let header = wire::ipv6::Header {
                traffic_class: 0,
                flow_label: 0,
                payload_length: payload.len() as u16,
                next_header: [17, 60, 58, 0][usize::from(next_header & 3)],
                hop_limit: 64,
                source: remote.address,
                destination: local.address,
            };
            let outer = [&header.to_bytes()[..], &payload].concat();
            if let Received::Packet { stream } = node.receive(&outer, time, &mut inner) {
                let packet = wire::ipv6::Packet::parse(&inner).expect("a whole packet");
                assert_eq!(packet.payload().len() + 40, inner.len());
                let hosts = node.status().nth(stream).expect("the stream").hosts;
                assert_eq!((packet.destination(), packet.source()), hosts);
            }
        }
    });
});

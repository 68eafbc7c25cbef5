//! What several fuzz targets need: two nodes that have a session, on virtual time, joined by a path that loses nothing.

use std::collections::HashMap;
use std::net::SocketAddrV6;
use std::ops::Range;
use std::time::Duration;

use mt6d::config::{NodeConfig, PeerConfig};
use mt6d::keys::PrivateKey;
use mt6d::{Action, Deliver, EndpointId, Node, Now, Outbox, Received, Time};
use wire::ecn::Ecn;
use wire::virtio_net;

type Endpoint = (EndpointId, SocketAddrV6, Option<SocketAddrV6>);

/// The two nodes.
pub struct Pair {
    nodes: [Node; 2],
    open: [Vec<Endpoint>; 2],
    now: u64,
    delivered: Delivered,
}

/// What the nodes delivered: whole packets.
#[derive(Default)]
struct Delivered(Vec<Vec<u8>>);

impl Deliver for Delivered {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.0.push([header, &arena[rest]].concat());
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.0.push(packet.to_vec());
    }
}

fn config(own: usize) -> NodeConfig {
    let key = |n: usize| PrivateKey::from_bytes([n as u8 + 1; 32]);
    let hop_prefix = |n: usize| format!("2001:db8:{n:x}::/64").parse().expect("a prefix");
    let peer = 1 - own;
    NodeConfig {
        private_key: key(own),
        previous_key: None,
        hop_prefix: hop_prefix(own),
        link_mtu: 1500,
        hardware_aes: true,
        addresses: Vec::new(),
        rekey_after: mt6d::config::REKEY_AFTER,
        peers: vec![PeerConfig {
            rotation: Duration::from_secs(1),
            lanes: Some(2),
            clockless: true,
            rewrite: true,
            ..PeerConfig::new(
                "peer",
                key(peer).public(),
                hop_prefix(peer),
                vec![format!("fd00:0:0:{peer}::/64").parse().expect("a prefix")],
            )
        }],
    }
}

impl Pair {
    /// Two nodes that have just agreed on a session.
    pub fn established() -> Self {
        let nodes = [0, 1].map(|n| {
            Node::new(config(n), &HashMap::new(), move || [n as u8; 32], at(0)).expect("a good configuration")
        });
        let mut pair =
            Pair { nodes, open: [Vec::new(), Vec::new()], now: 0, delivered: Delivered::default() };
        pair.run(50_000);
        pair
    }

    /// Lets time pass.
    pub fn run(&mut self, micros: u64) {
        let end = self.now + micros;
        while self.now < end {
            self.now =
                self.nodes.iter().map(|n| n.deadline().micros()).min().expect("two").clamp(self.now, end);
            for node in [0, 1] {
                let mut outbox = Outbox::new();
                self.nodes[node].handle_timeout(at(self.now), &mut outbox, &mut self.delivered);
                self.exchange(node, outbox);
            }
            self.now += 100;
        }
    }

    /// Carries datagrams to and fro until there are no more.
    fn exchange(&mut self, from: usize, outbox: Outbox) {
        let mut waiting = vec![(from, outbox)];
        while let Some((from, outbox)) = waiting.pop() {
            let to = 1 - from;
            for (batch, bytes) in outbox.batches() {
                for datagram in bytes.chunks(batch.segment) {
                    let (_, source, remote) = self.endpoint(from, batch.endpoint);
                    let destination = remote.or(batch.to).expect("an unconnected endpoint is told where to");
                    let receiver = self.open[to]
                        .iter()
                        .find(|(_, l, r)| *l == destination && r.is_none_or(|r| r == source));
                    if let Some((id, ..)) = receiver.copied() {
                        waiting.push((to, self.receive(to, id, source, datagram)));
                    }
                }
            }
            for node in [from, to] {
                while let Some(action) = self.nodes[node].next_action() {
                    match action {
                        Action::Open { id, local, remote } => {
                            self.open[node].push((id, local, remote));
                            self.nodes[node].opened(id, at(self.now));
                        }
                        Action::Close { id } => self.open[node].retain(|(other, ..)| *other != id),
                        Action::AddRewrite(_)
                        | Action::RemoveRewrite(_)
                        | Action::Replace { .. }
                        | Action::AddMask(_)
                        | Action::RemoveMask { .. }
                        | Action::Mask { .. } => {}
                    }
                }
            }
        }
    }

    fn endpoint(&self, node: usize, id: EndpointId) -> Endpoint {
        *self.open[node].iter().find(|(other, ..)| *other == id).expect("an open endpoint")
    }

    /// A datagram comes to one of a node's endpoints, from its peer if it has one: what the node sends then.
    pub fn assail(&mut self, node: usize, endpoint: usize, datagram: &[u8]) -> Outbox {
        let endpoints = &self.open[node];
        let (id, _, remote) = endpoints[endpoint % endpoints.len()];
        let stranger = SocketAddrV6::new("2001:db8:bad::1".parse().expect("an address"), 4711, 0, 0);
        self.receive(node, id, remote.unwrap_or(stranger), datagram)
    }

    /// A node's host sends an inner packet.
    pub fn send(&mut self, node: usize, header: &virtio_net::Header, packet: &mut [u8]) {
        let mut outbox = Outbox::new();
        self.nodes[node].send(header, packet, at(self.now), &mut outbox, &mut self.delivered);
        self.exchange(node, outbox);
    }

    /// What was delivered since the last time.
    pub fn delivered(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.delivered.0)
    }

    fn receive(&mut self, node: usize, id: EndpointId, source: SocketAddrV6, datagram: &[u8]) -> Outbox {
        let (mut outbox, mut arena) = (Outbox::new(), datagram.to_vec());
        let (length, ecn) = (arena.len(), Ecn::NotEct);
        let received = Received { endpoint: id, source, ecn, at: 0..length, segment: length.max(1) };
        self.nodes[node].receive(&received, &mut arena, at(self.now), &mut outbox, &mut self.delivered);
        outbox
    }
}

fn at(micros: u64) -> Now {
    Now { boot: Time::from_micros(micros), unix_ms: 1_800_000_000_000 + micros / 1000 }
}

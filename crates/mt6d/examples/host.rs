//! A host for two nodes, over plain UDP sockets on the loopback interface: `cargo run -p sidestep-mt6d --example host`.
//!
//! The nodes make a session, and a packet from behind the first comes out behind the second. A real host has prefixes that
//! are routed to it, and opens each endpoint where it is asked to. Here an endpoint is a socket with any port, and a
//! directory, which stands in for the routers between the two, knows whose that is.

use std::collections::HashMap;
use std::error::Error;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use sidestep_mt6d::config::{NodeConfig, PeerConfig, REKEY_AFTER};
use sidestep_mt6d::keys::PrivateKey;
use sidestep_mt6d::{Action, Deliver, Ecn, EndpointId, Node, Now, Outbox, Received, Time, virtio_net};

/// Which socket has which endpoint.
type Directory = HashMap<SocketAddrV6, SocketAddr>;

/// Where a TUN device would be.
#[derive(Default)]
struct Inside(Vec<Vec<u8>>);

impl Deliver for Inside {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.0.push([header, &arena[rest]].concat());
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.0.push(packet.to_vec());
    }
}

struct Endpoint {
    socket: UdpSocket,
    local: SocketAddrV6,
    /// The only one that it hears, once there is a session.
    remote: Option<SocketAddrV6>,
}

struct Host {
    node: Node,
    endpoints: HashMap<EndpointId, Endpoint>,
    outbox: Outbox,
    inside: Inside,
}

impl Host {
    fn new(own: &Site, peer: &Site, now: Now) -> Result<Self, Box<dyn Error>> {
        let key = peer.key.public();
        let peer = PeerConfig::new("the other", key, peer.hop_prefix.parse()?, vec![peer.inside.parse()?]);
        let config = NodeConfig {
            private_key: own.key.clone(),
            previous_key: None,
            hop_prefix: own.hop_prefix.parse()?,
            link_mtu: 1500,
            hardware_aes: false,
            addresses: Vec::new(),
            rekey_after: REKEY_AFTER,
            peers: vec![peer],
        };
        let entropy = || random().expect("the kernel's randomness");
        let node = Node::new(config, &HashMap::new(), entropy, now)?;
        Ok(Host { node, endpoints: HashMap::new(), outbox: Outbox::new(), inside: Inside::default() })
    }

    /// One turn: what came, what is due, what is to be sent, what is to be opened and closed.
    fn turn(&mut self, directory: &mut Directory, now: Now) -> Result<(), Box<dyn Error>> {
        let mut arena = [0; 2048];
        for (id, endpoint) in &self.endpoints {
            while let Ok((length, from)) = endpoint.socket.recv_from(&mut arena) {
                let Some((source, _)) = directory.iter().find(|(_, socket)| **socket == from) else {
                    continue;
                };
                if endpoint.remote.is_none_or(|remote| remote == *source) {
                    let (endpoint, source, ecn) = (*id, *source, Ecn::NotEct);
                    let received = Received { endpoint, source, ecn, at: 0..length, segment: length };
                    self.node.receive(&received, &mut arena, now, &mut self.outbox, &mut self.inside);
                }
            }
        }
        if self.node.deadline() <= now.boot {
            self.node.handle_timeout(now, &mut self.outbox, &mut self.inside);
        }
        for (batch, bytes) in self.outbox.batches() {
            let Some(endpoint) = self.endpoints.get(&batch.endpoint) else { continue };
            let to = batch.to.or(endpoint.remote).ok_or("a rendezvous endpoint is told where to send")?;
            // Nobody may be there.
            let Some(to) = directory.get(&to) else { continue };
            for datagram in bytes.chunks(batch.segment) {
                endpoint.socket.send_to(datagram, to)?;
            }
        }
        self.outbox.clear();
        while let Some(action) = self.node.next_action() {
            match action {
                Action::Open { id, local, remote } => {
                    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
                    socket.set_nonblocking(true)?;
                    directory.insert(local, socket.local_addr()?);
                    self.endpoints.insert(id, Endpoint { socket, local, remote });
                    self.node.opened(id, now);
                }
                Action::Close { id } => {
                    self.endpoints.remove(&id).and_then(|endpoint| directory.remove(&endpoint.local));
                }
                // Asked for only where the configuration says `rewrite`.
                Action::AddRewrite(_)
                | Action::RemoveRewrite(_)
                | Action::Replace { .. }
                | Action::AddMask(_)
                | Action::RemoveMask { .. }
                | Action::Mask { .. } => {}
            }
        }
        Ok(())
    }
}

struct Site {
    key: PrivateKey,
    hop_prefix: &'static str,
    inside: &'static str,
}

fn random() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// An IPv6 packet without contents (59: no next header) from behind the first node to behind the second.
fn packet() -> Result<Vec<u8>, Box<dyn Error>> {
    let address = |text: &str| text.parse().map(|address: std::net::Ipv6Addr| address.octets());
    Ok([&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &address("fd00:a::1")?, &address("fd00:b::1")?].concat())
}

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let now = || {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now {
            boot: Time::from_micros(start.elapsed().as_micros() as u64 + 1),
            unix_ms: unix.as_millis() as u64,
        }
    };
    let key = || random().map(PrivateKey::from_bytes);
    let a = Site { key: key()?, hop_prefix: "2001:db8:a::/64", inside: "fd00:a::/64" };
    let b = Site { key: key()?, hop_prefix: "2001:db8:b::/64", inside: "fd00:b::/64" };
    let mut hosts = [Host::new(&a, &b, now())?, Host::new(&b, &a, now())?];
    let mut directory = Directory::new();

    let Host { node, outbox, inside, .. } = &mut hosts[0];
    node.send(&virtio_net::Header::NONE, &mut packet()?, now(), outbox, inside);
    while hosts[1].inside.0.is_empty() {
        if start.elapsed() > Duration::from_secs(30) {
            return Err("no packet has crossed".into());
        }
        for host in &mut hosts {
            host.turn(&mut directory, now())?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(hosts[1].inside.0, [packet()?]);
    for lane in hosts[1].node.status(now()).flat_map(|peer| peer.lanes) {
        println!("a packet crossed after {:?}, to {} from {}", start.elapsed(), lane.local, lane.remote);
    }
    Ok(())
}

#[test]
fn a_packet_crosses_between_two_nodes_over_plain_sockets() {
    main().unwrap();
}

//! IKE on the host of `crates/stack`: the crate `ike` speaks through the host's own UDP, and what it agrees on becomes
//! associations of the host's `Ipsec`.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Instant;

use ike::config::{ChildConfig, Config, Mode as IkeMode, PeerConfig, PeerIndex};
use ike::crypto::encryption::{Encryption as IkeEncryption, Integrity};
use ike::crypto::secret::Secret;
use ike::event::{ChildAssociation, ChildKeys, Event, Path};
use ike::message::body::Identity;
use ike::negotiation::{ChildIntegrity, ChildProtocol};
use ike::numbers::{IkeSpi, Spi as ChildSpi};
use ike::random::Random;
use ike::{Endpoint, NAT_PORT};
use ipsec::algorithm::{AhTransform, Authentication, Encryption, EspTransform};
use ipsec::association::{Mode, Parameters, Protocol, Spi, Transform, UdpEncapsulation};
use ipsec::key::Key;
use ipsec::key_engine::Name;
use stack::host::Host;
use stack::ipsec::Ipsec;
use stack::udp::SocketId;

use super::scene::{Way, ends};

pub(super) const KEY: &str = "a key that both know";
const IKE_PORT: u16 = 500;

struct System(File);

impl Random for System {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.read_exact(bytes).expect("the system's randomness");
    }
}

pub(super) struct KeyDaemon {
    endpoint: Endpoint<System>,
    sockets: [(u16, SocketId); 2],
    path: Path,
    ike: Option<IkeSpi>,
    children: HashMap<ChildSpi, [Name; 2]>,
    child: Option<ChildAssociation>,
    /// What has happened, in words.
    pub(super) told: Vec<String>,
}

impl KeyDaemon {
    /// For one child, of this kind. From now on the host's sockets of IKE bypass security.
    pub(super) fn new(host: &mut Host<Ipsec>, way: &Way) -> Self {
        let interface = host.interface_mut();
        interface.permit_bypass();
        let sockets = [IKE_PORT, NAT_PORT].map(|port| {
            let local = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
            let socket = interface.udp_bind(local).expect("the port");
            interface.udp_bypass_security(socket).expect("a permission");
            (port, socket)
        });
        let (kernel, host) = ends(way.is_ipv6);
        let path = Path { local: SocketAddr::new(host, IKE_PORT), remote: SocketAddr::new(kernel, IKE_PORT) };
        let random = System(File::open("/dev/urandom").expect("the system's randomness"));
        let (ike, child, children) = Default::default();
        let endpoint = Endpoint::new(config(way), random);
        Self { endpoint, sockets, path, ike, children, child, told: Vec::new() }
    }

    pub(super) fn initiate(&mut self) {
        self.endpoint.initiate(Instant::now(), PeerIndex(0), self.path).expect("an attempt");
    }

    pub(super) fn rekey_child(&mut self) {
        let (ike, child) = (self.ike.expect("an IKE SA"), self.child.as_ref().expect("a child"));
        self.endpoint.rekey_child(Instant::now(), ike, child.inbound_spi).expect("a rekey");
    }

    pub(super) fn rekey_ike(&mut self) {
        self.endpoint.rekey_ike(Instant::now(), self.ike.expect("an IKE SA")).expect("a rekey");
    }

    pub(super) fn delete(&mut self) {
        self.endpoint.delete_ike(Instant::now(), self.ike.expect("an IKE SA")).expect("a deletion");
    }

    /// The child of now.
    pub(super) fn child(&self) -> &ChildAssociation {
        self.child.as_ref().expect("a child")
    }

    pub(super) fn count(&self, what: &str) -> usize {
        self.told.iter().filter(|told| told.starts_with(what)).count()
    }

    /// Everything that can be done now.
    pub(super) fn turn(&mut self, now: Instant, host: &mut Host<Ipsec>) {
        let interface = host.interface_mut();
        let mut datagram = Vec::new();
        for (port, socket) in self.sockets {
            while let Some(about) = interface.udp_receive(socket, &mut datagram) {
                let local = SocketAddr::new(IpAddr::V6(about.to).to_canonical(), port);
                let remote = SocketAddr::new(IpAddr::V6(*about.from.ip()).to_canonical(), about.from.port());
                self.endpoint.receive(now, Path { local, remote }, &datagram);
            }
        }
        if self.endpoint.deadline().is_some_and(|deadline| deadline <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.happens(event, now, host);
        }
        let interface = host.interface_mut();
        while let Some(transmit) = self.endpoint.poll_transmit() {
            let port = transmit.path.local.port();
            let socket = self.sockets.iter().find(|(own, _)| *own == port).expect("its port").1;
            let to = match transmit.path.remote.ip() {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            let to = SocketAddrV6::new(to, transmit.path.remote.port(), 0, 0);
            interface.udp_send(now, socket, Some(to), &transmit.payload).expect("to be sent");
        }
    }

    fn happens(&mut self, event: Event, now: Instant, host: &mut Host<Ipsec>) {
        let engine = host.interface_mut().security().engine();
        match event {
            Event::IkeUp { ike, .. } => {
                self.ike = Some(ike);
                self.told.push("IKE SA up".to_owned());
            }
            Event::IkeRekeyed { new, .. } => {
                self.ike = Some(new);
                self.told.push("IKE SA rekeyed".to_owned());
            }
            Event::ChildUp(new) | Event::ChildRekeyed { new, .. } => {
                let names = parameters(&new).map(|parameters| {
                    let id = engine.add(parameters, None, now).expect("an association");
                    Name::of(engine.get(id).expect("the association"))
                });
                self.children.insert(new.inbound_spi, names);
                self.child = Some(*new);
                self.told.push("child up".to_owned());
            }
            Event::ChildDown { inbound_spi, .. } => {
                for name in self.children.remove(&inbound_spi).into_iter().flatten() {
                    engine.delete(&name).expect("an association");
                }
                self.told.push("child down".to_owned());
            }
            Event::IkeDown { reason, .. } => self.told.push(format!("IKE SA down: {reason:?}")),
            other => self.told.push(format!("{other:?}")),
        }
    }
}

fn config(way: &Way) -> Config {
    let name = |name: &str| Identity::Fqdn(name.to_owned());
    let key = Secret::new(KEY.as_bytes().to_vec());
    let mut peer = PeerConfig::new(name("host.example"), Some(name("kernel.example")), key);
    peer.encapsulate = way.in_udp;
    let mode = if way.mode == Mode::Tunnel { IkeMode::Tunnel } else { IkeMode::Transport };
    let mut child = ChildConfig::new(mode, Vec::new(), Vec::new());
    child.algorithms.extended_sequence_numbers = vec![way.extended];
    if way.suite.protocol() == Protocol::Ah {
        child.algorithms.protocol = ChildProtocol::Ah;
        child.algorithms.encryption.clear();
        child.algorithms.integrity = vec![Integrity::HmacSha256.into()];
    }
    peer.children.push(child);
    Config::new(vec![peer])
}

/// Of what comes in, and of what goes out.
fn parameters(child: &ChildAssociation) -> [Parameters; 2] {
    let (here, there) = (child.path.local, child.path.remote);
    let mode = if child.mode == IkeMode::Tunnel { Mode::Tunnel } else { Mode::Transport };
    let make = |spi: ChildSpi, from: SocketAddr, to: SocketAddr, keys: &ChildKeys| {
        let mut made = Parameters::new(Spi(spi.0), from.ip(), to.ip(), mode, transform(child, keys));
        made.extended_sequence = child.suite.extended_sequence_numbers;
        made.encapsulation = child
            .nat
            .is_between()
            .then(|| UdpEncapsulation { source_port: from.port(), destination_port: to.port() });
        made
    };
    [
        make(child.inbound_spi, there, here, &child.inbound),
        make(child.outbound_spi, here, there, &child.outbound),
    ]
}

fn transform(child: &ChildAssociation, keys: &ChildKeys) -> Transform {
    let authentication = match child.suite.integrity {
        None => Authentication::None,
        Some(ChildIntegrity::Hmac(Integrity::HmacSha256)) => Authentication::HmacSha256,
        Some(other) => panic!("{other:?} was not offered"),
    };
    let [cipher, integrity] = [&keys.encryption, &keys.integrity].map(|secret| Key::new(secret.as_bytes()));
    let encryption = match child.suite.encryption {
        None => return Transform::Ah(AhTransform::new(authentication, &integrity).expect("a key that fits")),
        Some(IkeEncryption::Aes256Gcm) => Encryption::AesGcm256,
        Some(other) => panic!("{other:?} was not chosen"),
    };
    let made = EspTransform::new(encryption, &cipher, authentication, &integrity);
    Transform::Esp(made.expect("keys that fit"))
}

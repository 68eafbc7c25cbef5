//! A host for IKEv2 over plain UDP sockets, ports 500 and 4500: it makes children and tells of them, and carries nothing.
//!
//!     cargo run -p ike --example ike_host -- LOCAL REMOTE OWN-NAME PEER-NAME KEY initiate|wait
//!
//! LOCAL and REMOTE are addresses, both names domain names, KEY the key that both know. The child is one of tunnel mode
//! between all addresses of that IP version. An initiator replaces the child after a second, then the IKE SA, begins anew,
//! deletes what there is, and ends. The acceptance tests let it talk to strongSwan (`ike`).

#![allow(missing_docs, reason = "an example")]

use std::error::Error;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ike::Endpoint;
use ike::config::{ChildConfig, Config, Mode, PeerConfig, PeerIndex};
use ike::crypto::secret::Secret;
use ike::event::{Event, Path};
use ike::message::body::Identity;
use ike::message::traffic_selector::TrafficSelector;
use ike::numbers::{IkeSpi, Spi};
use ike::random::Random;

struct System(File);

impl Random for System {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.read_exact(bytes).expect("the system's randomness");
    }
}

/// How often it looks for datagrams.
const TURN: Duration = Duration::from_millis(5);
/// From one step of an initiator to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// What an initiator does in the course of time.
#[derive(Clone, Copy)]
enum Step {
    RekeyChild,
    RekeyIke,
    Reauthenticate,
    Delete,
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [local, remote, own, peer, key, role] = words.as_slice() else {
        return Err("LOCAL REMOTE OWN-NAME PEER-NAME KEY initiate|wait".into());
    };
    let (local, remote): (IpAddr, IpAddr) = (local.parse()?, remote.parse()?);
    let initiates = role == "initiate";

    let name = |name: &String| Identity::Fqdn(name.clone());
    let all = if local.is_ipv6() { TrafficSelector::ANY_IPV6 } else { TrafficSelector::ANY_IPV4 };
    let mut config = PeerConfig::new(name(own), Some(name(peer)), Secret::new(key.clone().into_bytes()));
    config.children.push(ChildConfig::new(Mode::Tunnel, vec![all], vec![all]));
    let mut endpoint = Endpoint::new(Config::new(vec![config]), System(File::open("/dev/urandom")?));

    let sockets = [500, 4500].map(|port| UdpSocket::bind(SocketAddr::new(local, port)));
    let [at_500, at_4500] = sockets;
    let sockets = [at_500?, at_4500?];
    for socket in &sockets {
        socket.set_nonblocking(true)?;
    }
    if initiates {
        let path = Path { local: SocketAddr::new(local, 500), remote: SocketAddr::new(remote, 500) };
        endpoint.initiate(Instant::now(), PeerIndex(0), path)?;
    }

    let steps = [Step::RekeyChild, Step::RekeyIke, Step::Reauthenticate, Step::Delete];
    let mut steps = steps.into_iter().filter(|_| initiates).peekable();
    let mut next_step = Instant::now() + PAUSE;
    let (mut ike, mut child) = (None, None);
    let mut datagram = vec![0; 65_536];
    loop {
        let now = Instant::now();
        for socket in &sockets {
            match socket.recv_from(&mut datagram) {
                Ok((length, remote)) => {
                    endpoint.receive(now, Path { local: socket.local_addr()?, remote }, &datagram[..length]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => println!("{error}"),
            }
        }
        if endpoint.deadline().is_some_and(|deadline| deadline <= now) {
            endpoint.handle_timeout(now);
        }
        if let (Some(ike), Some(child), true) = (ike, child, now >= next_step) {
            match steps.next() {
                Some(Step::RekeyChild) => endpoint.rekey_child(now, ike, child)?,
                Some(Step::RekeyIke) => endpoint.rekey_ike(now, ike)?,
                Some(Step::Reauthenticate) => drop(endpoint.reauthenticate(now, ike)?),
                Some(Step::Delete) => endpoint.delete_ike(now, ike)?,
                None => {}
            }
            next_step = now + PAUSE;
        }
        while let Some(event) = endpoint.poll_event() {
            tell(&event, &mut ike, &mut child);
        }
        while let Some(transmit) = endpoint.poll_transmit() {
            let socket = &sockets[usize::from(transmit.path.local.port() == 4500)];
            socket.send_to(&transmit.payload, transmit.path.remote)?;
        }
        if initiates && ike.is_none() && steps.peek().is_none() {
            return Ok(());
        }
        std::thread::sleep(TURN);
    }
}

/// Prints an event, and remembers which IKE SA and which child there are.
fn tell(event: &Event, ike: &mut Option<IkeSpi>, child: &mut Option<Spi>) {
    match event {
        Event::IkeUp { ike: name, identity, .. } => {
            *ike = Some(*name);
            println!("IKE SA up: {identity:?}");
        }
        Event::IkeRekeyed { new, .. } => {
            *ike = Some(*new);
            println!("IKE SA rekeyed");
        }
        Event::ChildUp(new) => {
            *child = Some(new.inbound_spi);
            println!("child up: {:?} in UDP: {}", new.suite, new.nat.is_between());
        }
        Event::ChildRekeyed { new, .. } => {
            *child = Some(new.inbound_spi);
            println!("child rekeyed: {:?}", new.suite);
        }
        Event::IkeDown { ike: name, reason } => {
            if *ike == Some(*name) {
                *ike = None;
            }
            println!("IKE SA down: {reason:?}");
        }
        other => println!("{other:?}"),
    }
}

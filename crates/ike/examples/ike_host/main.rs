//! A host for IKEv2 over plain UDP sockets, for tests: it does what it is told, tells what happens, and carries pings.
//!
//!     cargo run -p ike --example ike_host -- SETTINGS COMMANDS
//!
//! SETTINGS is a file of lines, a key and its value (`settings` has them). COMMANDS is a file to which commands are appended
//! while it runs, one a line: `initiate`, `rekey-child`, `rekey-ike`, `reauthenticate`, `delete-ike`, `delete-child`,
//! `liveness`, `move ADDRESS`, `ping COUNT`, `quit`. What happens goes to standard output.
//!
//! Without a name it listens on ports 500 and 4500, as a host does that has them. The acceptance tests let it talk to
//! strongSwan (`ike`).

#![allow(missing_docs, reason = "an example")]

mod pings;
mod settings;

use std::error::Error;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant, SystemTime};

use ike::Endpoint;
use ike::config::PeerIndex;
use ike::event::{Event, Path};
use ike::numbers::{IkeSpi, Spi};
use ike::random::Random;
use pings::Pings;
use settings::Settings;

struct System(File);

impl Random for System {
    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.read_exact(bytes).expect("the system's randomness");
    }
}

/// How often it looks for datagrams.
const TURN: Duration = Duration::from_millis(2);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [settings, commands] = words.as_slice() else { return Err("SETTINGS COMMANDS".into()) };
    let settings = Settings::read(settings)?;
    let mut host = Host::new(settings)?;
    let mut commands = BufReader::new(File::open(commands)?);
    let mut line = String::new();
    loop {
        // A line may come in pieces.
        commands.read_line(&mut line)?;
        if let Some(command) = line.strip_suffix('\n') {
            if command == "quit" {
                return Ok(());
            }
            if let Err(error) = host.obey(command) {
                println!("{command}: {error}");
            }
            line.clear();
        }
        host.turn()?;
        std::thread::sleep(TURN);
    }
}

struct Host {
    endpoint: Endpoint<System>,
    settings: Settings,
    sockets: Vec<UdpSocket>,
    pings: Pings,
    ike: Option<IkeSpi>,
    child: Option<Spi>,
}

impl Host {
    fn new(settings: Settings) -> Result<Self, Box<dyn Error>> {
        let mut endpoint = Endpoint::new(settings.config.clone(), System(File::open("/dev/urandom")?));
        endpoint.set_wall_clock(Instant::now(), SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?);
        let pings = Pings::new(settings.inner);
        let mut host = Self { endpoint, settings, sockets: Vec::new(), pings, ike: None, child: None };
        host.bind(host.settings.local)?;
        Ok(host)
    }

    fn bind(&mut self, address: IpAddr) -> Result<(), Box<dyn Error>> {
        for port in [500, 4500] {
            let socket = UdpSocket::bind(SocketAddr::new(address, port))?;
            socket.set_nonblocking(true)?;
            self.sockets.push(socket);
        }
        Ok(())
    }

    fn path(&self, port: u16) -> Path {
        Path {
            local: SocketAddr::new(self.settings.local, port),
            remote: SocketAddr::new(self.settings.remote, port),
        }
    }

    fn obey(&mut self, command: &str) -> Result<(), Box<dyn Error>> {
        let now = Instant::now();
        let (verb, object) = command.split_once(' ').unwrap_or((command, ""));
        let ike = || self.ike.ok_or("no IKE SA");
        let child = || self.child.ok_or("no child");
        match verb {
            "initiate" => drop(self.endpoint.initiate(now, PeerIndex(0), self.path(500))?),
            "rekey-child" => self.endpoint.rekey_child(now, ike()?, child()?)?,
            "rekey-ike" => self.endpoint.rekey_ike(now, ike()?)?,
            "reauthenticate" => drop(self.endpoint.reauthenticate(now, ike()?)?),
            "delete-ike" => self.endpoint.delete_ike(now, ike()?)?,
            "delete-child" => self.endpoint.delete_child(now, ike()?, child()?)?,
            "liveness" => self.endpoint.check_liveness(now, ike()?)?,
            "ping" => self.pings.begin(object.parse()?, now),
            "move" => {
                let ike = ike()?;
                self.settings.local = object.parse()?;
                self.bind(self.settings.local)?;
                self.endpoint.move_to(now, ike, self.path(4500))?;
            }
            _ => return Err("no such command".into()),
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<(), Box<dyn Error>> {
        let now = Instant::now();
        let mut datagram = vec![0; 65_536];
        for socket in &self.sockets {
            while let Some((length, remote)) = received(socket, &mut datagram) {
                let (local, bytes) = (socket.local_addr()?, &datagram[..length]);
                let is_esp = local.port() == 4500 && bytes.len() > 4 && bytes[..4] != [0; 4];
                if is_esp {
                    self.pings.receive(bytes, now);
                } else {
                    self.endpoint.receive(now, Path { local, remote }, bytes);
                }
            }
        }
        if self.endpoint.deadline().is_some_and(|deadline| deadline <= now) {
            self.endpoint.handle_timeout(now);
        }
        while let Some(event) = self.endpoint.poll_event() {
            self.tell(&event, now);
        }
        while let Some(transmit) = self.endpoint.poll_transmit() {
            send(&self.sockets, transmit.path, &transmit.payload);
        }
        while let Some((path, esp)) = self.pings.send(now) {
            send(&self.sockets, path, &esp);
        }
        std::io::stdout().flush()?;
        Ok(())
    }

    /// Prints an event, and remembers which IKE SA and which child there are.
    fn tell(&mut self, event: &Event, now: Instant) {
        match event {
            Event::IkeUp { ike, identity, addresses, dns, .. } => {
                self.ike = Some(*ike);
                println!("IKE SA up: {identity:?} addresses {addresses:?} dns {dns:?}");
            }
            Event::IkeRekeyed { new, .. } => {
                self.ike = Some(*new);
                println!("IKE SA rekeyed");
            }
            Event::ChildUp(new) => {
                self.child = Some(new.inbound_spi);
                self.pings.child_up(new, now);
                println!("child up: {:?} in UDP: {}", new.suite, new.nat.is_between());
                println!("selectors: {:?} to {:?}", new.local, new.remote);
            }
            Event::ChildRekeyed { new, .. } => {
                self.child = Some(new.inbound_spi);
                self.pings.child_up(new, now);
                println!("child rekeyed: {:?}", new.suite);
            }
            Event::ChildDown { inbound_spi, .. } => {
                self.pings.child_down(*inbound_spi);
                println!("child down");
            }
            Event::IkeDown { ike, reason } => {
                if self.ike == Some(*ike) {
                    self.ike = None;
                }
                println!("IKE SA down: {reason:?}");
            }
            Event::PathChanged { path, .. } => {
                self.pings.move_to(*path);
                println!("path: {} to {}", path.local, path.remote);
            }
            other => println!("{other:?}"),
        }
    }
}

fn received(socket: &UdpSocket, datagram: &mut [u8]) -> Option<(usize, SocketAddr)> {
    match socket.recv_from(datagram) {
        Ok(received) => Some(received),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => {
            println!("receive: {error}");
            None
        }
    }
}

fn send(sockets: &[UdpSocket], path: Path, payload: &[u8]) {
    let socket = sockets.iter().find(|socket| socket.local_addr().is_ok_and(|local| local == path.local));
    // An address that is gone is what some tests are about.
    let sent = socket.map(|socket| socket.send_to(payload, path.remote));
    if let Some(Err(error)) = sent {
        eprintln!("{} to {}: {error}", path.local, path.remote);
    }
}

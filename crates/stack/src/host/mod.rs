//! A host: an [`Interface`] with TCP on it.
//!
//! The caller gives it time and what the device has received, and sends what it has to send:
//!
//! 1. [`Host::receive`] for each frame or packet, [`Host::handle_timeout`] when the time of [`Host::deadline`] has come,
//!    the functions for sockets at any time.
//! 2. [`Host::poll_transmit`] until there is nothing more.
//! 3. [`Host::poll_tcp`] for the sockets that something has happened to.
//! 4. Sleep until something arrives or the deadline.
//!
//! UDP, echo, addresses and routes are the interface's: [`Host::interface_mut`].
//!
//! ```
//! use std::time::Instant;
//! use stack::host::Host;
//! use stack::interface::{Config, Medium};
//! use stack::{autoconf, random::Key, tcp};
//!
//! // Two hosts, one at each end of a tunnel.
//! let now = Instant::now();
//! let host = |number: u8| {
//!     let config = Config {
//!         medium: Medium::Ip,
//!         mtu: 1500,
//!         autoconf: autoconf::Config {
//!             stable_key: Key::new([number; 16]),
//!             interface: b"tun0".to_vec(),
//!             temporary: false,
//!             duplicate_transmits: 1,
//!         },
//!         routers: false,
//!     };
//!     // Not like this: 32 bytes of the best randomness there is, others each time.
//!     Host::new(now, config, [number; 32])
//! };
//! let (mut a, mut b) = (host(1), host(2));
//! a.interface_mut().add_address(now, "2001:db8::a".parse()?, 64);
//! b.interface_mut().add_address(now, "2001:db8::b".parse()?, 64);
//!
//! let config = tcp::Config::new(u16::MAX); // As large as the path carries.
//! let listener = b.tcp_listen("[::]:80".parse()?, config, 16)?;
//! let client = a.tcp_connect(now, "[2001:db8::b]:80".parse()?, config)?;
//! a.write(client, b"question")?;
//!
//! let mut packet = Vec::new();
//! while a.poll_transmit(now, &mut packet) || b.poll_transmit(now, &mut packet) {
//!     // What comes back to its sender is dropped there.
//!     a.receive(now, &packet);
//!     b.receive(now, &packet);
//! }
//! let server = b.tcp_accept(listener)?.expect("it is established");
//! let mut data = [0; 100];
//! let length = b.read(server, &mut data)?;
//! assert_eq!(&data[..length], b"question");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! The interface hands what is of TCP to the transport, which finds its connection by a table whose hash is keyed, so that
//! nobody outside can choose flows that collide. Connections that have changed stand in a queue; each visit sends one
//! packet, which may stand for several segments, and whoever has more to send stands at the end again. Packets are made when
//! there is room for them, not before: nothing piles up below. The path's MTU is asked for before each, so that what one
//! connection has learned holds for all.
//!
//! Sockets may ask for security ([`Host::tcp_connect_asking`], [`Host::tcp_listen_asking`]). What comes with less than its
//! connection or listener asks for is dropped in silence before TCP sees it, and what cannot have it is an error at the call.
//!
//! What TCP learns, the layers below hear of: an acknowledgement of something new, or new data, proves that the neighbor on
//! the way is reachable (RFC 4861 §7.3.1), and errors and path MTUs are believed only if they quote a segment that is
//! under way (RFC 5927 §4.1).
//!
//! | file | subject |
//! |---|---|
//! | `calls` | sockets, as the caller uses them |
//! | `input` | what arrives for TCP |
//! | `output` | what TCP sends |
//! | `transport` | TCP as the interface sees it |
//! | `sockets` | who holds the sockets, and how segments find them |
//! | `agenda` | which of them have something to do |

mod agenda;
mod calls;
mod input;
mod output;
mod sockets;
mod transport;

pub use calls::{Asked, ConnectError, ListenError, MAX_BACKLOG, TcpEvent, WriteError};
pub use sockets::{ListenerHandle, Stale, TcpHandle};
pub use transport::MAX_RELEASED;

use std::time::Instant;

use crate::interface::{Config, Interface};
use crate::random::Random;
use crate::security::{NoSecurity, Security};
use crate::tcp;
use transport::Transport;
use wire::virtio_net;

/// A host on one link, with TCP.
pub struct Host<S: Security = NoSecurity> {
    interface: Interface<S>,
    tcp: Transport,
    /// Segments are built here.
    segment: Vec<u8>,
}

impl Host<NoSecurity> {
    /// A host without security. `seed` is 32 bytes of the best randomness there is, each time others.
    pub fn new(now: Instant, config: Config, seed: [u8; 32]) -> Self {
        Self::with_security(now, config, seed, NoSecurity)
    }
}

impl<S: Security> Host<S> {
    /// A host whose packets go through `security`.
    pub fn with_security(now: Instant, config: Config, seed: [u8; 32], security: S) -> Self {
        let mut random = Random::new(seed);
        let tcp = Transport::new(now, &mut random);
        let interface = Interface::with_security(now, config, random.octets(), security);
        Host { interface, tcp, segment: Vec::new() }
    }

    /// Takes what the device has received: a frame or an IP packet, as the medium has it.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) {
        self.interface.receive(now, bytes, &mut self.tcp);
        self.follow_up(now);
    }

    /// As [`Host::receive`], for a device with offloads; see [`Interface::receive_offloaded`].
    pub fn receive_offloaded(&mut self, now: Instant, header: &virtio_net::Header, bytes: &mut [u8]) {
        self.interface.receive_offloaded(now, header, bytes, &mut self.tcp);
        self.follow_up(now);
    }

    /// When [`Host::handle_timeout`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        [self.interface.deadline(), self.tcp.agenda.deadline()].into_iter().flatten().min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.interface.handle_timeout(now, &mut self.tcp);
        self.follow_up(now);
        self.tcp.handle_timeout(now);
    }

    /// What is below TCP.
    pub fn interface(&self) -> &Interface<S> {
        &self.interface
    }

    /// What is below TCP: UDP and echo, addresses and routes. Packets go in and out by the functions of the host.
    pub fn interface_mut(&mut self) -> &mut Interface<S> {
        &mut self.interface
    }

    /// Why segments of connections and listeners went no further; what found neither is among the drops of the interface.
    pub fn tcp_drops(&self) -> &tcp::Drops {
        &self.tcp.drops
    }
}

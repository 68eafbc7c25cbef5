//! The crate `stack` as a contender.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Instant;

use stack::host::{Host, ListenerHandle, TcpHandle};
use stack::interface::{Config, Medium};
use stack::{autoconf, random, tcp};

use super::device::Stack;
use super::load::{SINK, SOURCE};
use super::scene;
use lab::Error;

pub(super) struct Ours {
    host: Host,
    listeners: [(u16, ListenerHandle); 2],
    open: Vec<(u16, TcpHandle)>,
    chunk: Vec<u8>,
}

/// A host at a TUN device, without anything.
pub(super) fn config() -> Config {
    Config {
        medium: Medium::Ip,
        mtu: 1500,
        autoconf: autoconf::Config {
            stable_key: random::Key::new([7; 16]),
            interface: scene::DEVICE.as_bytes().to_vec(),
            temporary: false,
            duplicate_transmits: 0,
        },
        routers: false,
    }
}

impl Ours {
    pub(super) fn new() -> Result<Self, Error> {
        let mut host = Host::new(Instant::now(), config(), [9; 32]);
        let address = scene::ADDRESS.parse().map_err(|error| Error::output("address", error))?;
        host.interface_mut().add_address(Instant::now(), address, 64);
        let mut listen = |port| {
            let at = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
            let listener = host.tcp_listen(at, tcp::Config::new(u16::MAX), 16);
            listener.map(|listener| (port, listener)).map_err(|error| Error::output("listener", error))
        };
        let listeners = [listen(SINK)?, listen(SOURCE)?];
        Ok(Self { host, listeners, open: Vec::new(), chunk: vec![0x5a; 64 * 1024] })
    }

    /// Takes or gives what there is. `false`: it is over.
    fn serve(host: &mut Host, chunk: &mut [u8], (port, handle): (u16, TcpHandle), now: Instant) -> bool {
        let moved = if port == SINK { host.read(handle, chunk) } else { host.write(handle, chunk) };
        let ended = host.tcp(handle).map(|connection| connection.has_ended() || connection.is_closed());
        let Ok(false) = ended else {
            let _ = host.release(now, handle);
            return false;
        };
        // There may be more.
        match moved {
            Ok(length) if length == chunk.len() => Self::serve(host, chunk, (port, handle), now),
            _ => true,
        }
    }
}

impl Stack for Ours {
    fn receive(&mut self, now: Instant, packet: &[u8]) {
        self.host.receive(now, packet);
    }

    fn run(&mut self, now: Instant) {
        if self.host.deadline().is_some_and(|deadline| deadline <= now) {
            self.host.handle_timeout(now);
        }
        while self.host.poll_tcp().is_some() {}
        for (port, listener) in self.listeners {
            while let Ok(Some(handle)) = self.host.tcp_accept(listener) {
                self.open.push((port, handle));
            }
        }
        let (host, chunk) = (&mut self.host, &mut self.chunk);
        self.open.retain(|one| Self::serve(host, chunk, *one, now));
    }

    fn transmit(&mut self, now: Instant, packet: &mut Vec<u8>) -> bool {
        self.host.poll_transmit(now, packet)
    }

    fn deadline(&mut self, _: Instant) -> Option<Instant> {
        self.host.deadline()
    }
}

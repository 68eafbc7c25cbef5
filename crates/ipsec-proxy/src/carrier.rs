//! What carries the packets of the host: one small interface for both kinds of tunnel.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Instant;

use linux::event::{Event, Poller};

use crate::error::Error;

/// A tunnel and its sockets. It sends nothing in clear: what it has no tunnel for it drops.
pub(crate) trait Carrier {
    /// How many tokens of the poller it needs.
    const TOKENS: u64;

    /// Waits for its sockets, with tokens from this one on.
    fn watch(&self, poller: &Poller, first_token: u64) -> linux::Result<()>;

    /// The largest packet that fits inside.
    fn mtu(&self) -> u16;

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    fn deadline(&self) -> Option<Instant>;

    fn handle_timeout(&mut self, now: Instant, sink: &mut Sink);

    /// Takes some of what an event is about, whose token is the number of that socket. Returns whether there may be more.
    fn receive(&mut self, event: Event, now: Instant, sink: &mut Sink) -> Result<bool, Error>;

    /// Takes a packet of the host.
    fn send(&mut self, packet: &mut [u8], now: Instant, sink: &mut Sink);

    /// Sends what has gathered.
    fn flush(&mut self);

    /// Carries on what has happened, and says how the tunnel is, if that has changed.
    fn changed(&mut self, now: Instant, sink: &mut Sink) -> Option<State>;

    /// Says goodbye to the other ends.
    fn end(&mut self, sink: &mut Sink) -> Result<(), Error>;
}

/// How the tunnel is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// There is one.
    Up {
        /// This end's addresses inside.
        addresses: Vec<IpAddr>,
        /// Servers of names that the other end has named.
        dns: Vec<IpAddr>,
    },
    /// There is none.
    Down,
}

/// Packets that have come out of the tunnel, one behind the other.
#[derive(Default)]
pub(crate) struct Sink {
    bytes: Vec<u8>,
    packets: Vec<Range<usize>>,
}

impl Sink {
    /// Takes them out.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&[u8])) {
        for packet in self.packets.drain(..) {
            each(&self.bytes[packet]);
        }
        self.bytes.clear();
    }

    fn put(&mut self, header: &[u8], rest: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(header);
        self.bytes.extend_from_slice(rest);
        self.packets.push(start..self.bytes.len());
    }
}

impl ipsec_runtime::deliver::Deliver for Sink {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.put(header, &arena[rest]);
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.put(packet, &[]);
    }
}

impl mt6d::Deliver for Sink {
    fn packet(&mut self, arena: &[u8], header: &[u8], rest: Range<usize>) {
        self.put(header, &arena[rest]);
    }

    fn whole_packet(&mut self, packet: &[u8]) {
        self.put(packet, &[]);
    }
}

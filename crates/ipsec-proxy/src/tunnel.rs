//! `sidestep ipsec proxy`: a [`Proxy`] over a tunnel, in one thread with one epoll. It needs no privileges.
//!
//! What the host sends goes to the carrier, which sends nothing in clear: what no tunnel is for is dropped.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use linux::event::{Event, Events, Interest, Poller, Request, Signals};
use tracing::info;

use crate::carrier::{Carrier, Sink, State};
use crate::error::Error;
use crate::ipsec::Ipsec;
use crate::moving::Moving;
use crate::proxy::{Options, Proxy};

/// Packets of the host after which what has gathered is sent.
const BATCH: usize = 256;
/// Receives from the tunnel before clients have their turn.
const RECEIVES: usize = 16;

const SIGNALS: u64 = 0;
const CARRIER: u64 = 1;
const PROXY: u64 = 1 << 10;

/// Runs over the tunnel that `file` describes until `signals` tell it to end. `dns`: servers of names, in place of those
/// that the other end names. Call it before the first thread.
///
/// # Errors
/// [`Error`] when it cannot begin.
pub fn run(file: &Path, options: Options, dns: Vec<IpAddr>, signals: &Signals) -> Result<(), Error> {
    // A client has one, and one more for its datagrams.
    linux::process::raise_open_files()?;
    if config::ipsec::is_ipsec(file) {
        Tunnel::open(Ipsec::open(file)?, options, dns, signals)?.run(signals)
    } else {
        Tunnel::open(Moving::open(file)?, options, dns, signals)?.run(signals)
    }
}

struct Tunnel<C> {
    carrier: C,
    proxy: Proxy,
    poller: Poller,
    dns: Vec<IpAddr>,
    sink: Sink,
    packet: Vec<u8>,
}

impl<C: Carrier> Tunnel<C> {
    fn open(carrier: C, options: Options, dns: Vec<IpAddr>, signals: &Signals) -> Result<Self, Error> {
        let poller = Poller::new()?;
        poller.add(signals, SIGNALS, Interest::Readable)?;
        carrier.watch(&poller, CARRIER)?;
        let folders = options.entrances.folders();
        let proxy = Proxy::open(options, &poller, PROXY, carrier.mtu(), Instant::now())?;
        for missing in linux::confine::confine(folders.iter().map(std::path::PathBuf::as_path))? {
            info!("this kernel has no {missing}: the proxy is confined without it");
        }
        for place in proxy.listens_at() {
            info!("clients come to {}", place?);
        }
        Ok(Self { carrier, proxy, poller, dns, sink: Sink::default(), packet: Vec::new() })
    }

    fn run(&mut self, signals: &Signals) -> Result<(), Error> {
        let mut events = Events::with_capacity(256);
        loop {
            let has_more = self.carry(Instant::now());
            let until = self.carrier.deadline().into_iter().chain(self.proxy.deadline()).min();
            let until = until.map(|until| until.saturating_duration_since(Instant::now()));
            self.poller.wait(&mut events, if has_more { Some(Duration::ZERO) } else { until })?;
            let now = Instant::now();
            for event in events.iter() {
                match event.token {
                    SIGNALS => match signals.read()? {
                        Some(Request::Stop) => {
                            self.proxy.tunnel_is_down();
                            return self.carrier.end(&mut self.sink);
                        }
                        Some(Request::Reload) => info!("a proxy reads its configuration when it is started"),
                        None => {}
                    },
                    token if token < CARRIER + C::TOKENS => {
                        self.receive(Event { token: token - CARRIER, ..event }, now)?;
                    }
                    _ => self.proxy.handle(event, &self.poller, now),
                }
            }
            self.carrier.handle_timeout(now, &mut self.sink);
            if self.proxy.deadline().is_some_and(|deadline| deadline <= now) {
                self.proxy.handle_timeout(&self.poller, now);
            }
        }
    }

    /// The host answers before more comes, so that nothing piles up.
    fn receive(&mut self, event: Event, now: Instant) -> Result<(), Error> {
        for _ in 0..RECEIVES {
            let has_more = self.carrier.receive(event, now, &mut self.sink)?;
            self.carry(now);
            if !has_more {
                break;
            }
        }
        Ok(())
    }

    /// Hands packets over, both ways, and carries out what the carrier wishes. Returns whether there is more.
    fn carry(&mut self, now: Instant) -> bool {
        match self.carrier.changed(now, &mut self.sink) {
            Some(State::Up { addresses, dns }) => {
                let dns = if self.dns.is_empty() { &dns } else { &self.dns };
                self.proxy.tunnel_is_up(&self.poller, now, &addresses, dns);
            }
            Some(State::Down) => self.proxy.tunnel_is_down(),
            None => {}
        }
        self.deliver(now);
        let mut count = 0;
        while count < BATCH && self.proxy.poll_transmit(now, &mut self.packet) {
            count += 1;
            self.carrier.send(&mut self.packet, now, &mut self.sink);
        }
        // Errors about what was just sent.
        self.deliver(now);
        self.carrier.flush();
        count == BATCH
    }

    fn deliver(&mut self, now: Instant) {
        let (proxy, poller) = (&mut self.proxy, &self.poller);
        self.sink.drain(|packet| proxy.receive(packet, poller, now));
    }
}

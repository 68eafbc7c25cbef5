//! A moving tunnel below the proxy.

use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use ipnet::IpNet;
use linux::event::{Event, Interest, Poller};
use tunnel_runtime::rootless;
use wire::virtio_net;

use crate::carrier::{Carrier, Sink, State};
use crate::error::Error;

/// A node that hops, and the sockets that it has at the moment.
pub(crate) struct Moving {
    carrier: rootless::Carrier,
    mtu: u16,
    was_up: bool,
}

impl Moving {
    pub(crate) fn open(file: &Path) -> Result<Self, Error> {
        let claim = rootless::Claim::stake(file)?;
        let mtu = claim.mtu();
        Ok(Self { carrier: rootless::Carrier::open(claim)?, mtu, was_up: false })
    }
}

impl Carrier for Moving {
    const TOKENS: u64 = 1;

    fn watch(&self, poller: &Poller, first_token: u64) -> linux::Result<()> {
        poller.add(&self.carrier, first_token, Interest::Readable)
    }

    fn mtu(&self) -> u16 {
        self.mtu
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.carrier.deadline())
    }

    fn handle_timeout(&mut self, _: Instant, sink: &mut Sink) {
        self.carrier.handle_timeout(sink);
    }

    fn receive(&mut self, _: Event, _: Instant, sink: &mut Sink) -> Result<bool, Error> {
        Ok(self.carrier.receive(sink)?)
    }

    fn send(&mut self, packet: &mut [u8], _: Instant, sink: &mut Sink) {
        self.carrier.send(&virtio_net::Header::NONE, packet, sink);
    }

    fn flush(&mut self) {
        self.carrier.flush();
    }

    fn changed(&mut self, _: Instant, _: &mut Sink) -> Option<State> {
        let is_up = self.carrier.is_up();
        if std::mem::replace(&mut self.was_up, is_up) == is_up {
            return None;
        }
        let addresses: Vec<IpAddr> = self.carrier.claim().addresses().iter().map(IpNet::addr).collect();
        // The protocol has no word for servers of names.
        Some(if is_up { State::Up { addresses, dns: Vec::new() } } else { State::Down })
    }

    fn end(&mut self, _: &mut Sink) -> Result<(), Error> {
        self.carrier.end();
        Ok(())
    }
}

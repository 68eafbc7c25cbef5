//! An interface: a device of one link, with all that the host does on it.
//!
//! The caller gives it time and what the device has received, and sends what it has to send:
//!
//! 1. [`Interface::receive`] for each frame or packet, [`Interface::handle_timeout`] when the time of
//!    [`Interface::deadline`] has come, the functions for sockets at any time.
//! 2. [`Interface::poll_transmit`] until there is nothing more.
//! 3. Sleep until something arrives or the deadline.
//!
//! | file | subject |
//! |---|---|
//! | `input`, `arrival` | the way of a received packet, and how it came |
//! | `icmpv6` | ICMPv6 messages, and what errors do |
//! | `ipv4` | ARP, ICMP and packets of IPv4 |
//! | `output` | the way of a packet that is sent |
//! | `offload` | what is left to the device |
//! | `discovery` | messages of neighbor discovery, and what follows from them |
//! | `sockets` | UDP and echo |
//! | `upper` | transports of the caller |
//! | `outbox` | frames that wait |

mod arrival;
mod discovery;
mod icmpv6;
mod input;
mod ipv4;
mod offload;
mod outbox;
mod output;
mod sockets;
mod upper;

pub(crate) use offload::Built;
pub use output::{Outgoing, SendError};
pub use sockets::UdpError;
pub use upper::{NoUpper, Received, Upper, Verdict};

use std::collections::VecDeque;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::ops::Range;
use std::time::{Duration, Instant};

use ipnet::Ipv6Net;
use wire::ethernet::MacAddress;
use wire::icmp_error::Reason;
use wire::ipv6::MIN_MTU;
use wire::ndp::{Preference, RouterSolicitation};
use wire::virtio_net;

use crate::autoconf::{self, Addresses, DnsServers, Solicitation};
use crate::fragments::Fragments;
use crate::icmpv6::{ErrorKind, Errors};
use crate::ipv4::Ipv4;
use crate::ipv6::fragmentation::Identifications;
use crate::mld::Listener;
use crate::neighbor::Neighbors;
use crate::random::Random;
use crate::route::{Destinations, Lifetime, Table};
use crate::security::{NoSecurity, Security};
use crate::udp::Sockets;
use crate::{DropReason, Drops};
use arrival::Arrived;
use outbox::Outbox;

/// Events that wait for the caller; of more, the oldest are lost.
const MAX_EVENTS: usize = 64;
/// Packets to ourselves that wait for their reception.
const MAX_LOOPED: usize = 64;
/// The reachable time is drawn anew after so long, though routers keep saying the same (RFC 4861 §6.3.4).
const REDRAW: Duration = Duration::from_secs(2 * 3600);
/// What packets start with if no router says otherwise.
const HOP_LIMIT: u8 = 64;

/// What the device carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Ethernet frames, from this address (TAP).
    Ethernet(MacAddress),
    /// IP packets to the only other end (TUN): there are no link-layer addresses, and nobody could have ours.
    Ip,
}

/// What an interface is given.
#[derive(Clone)]
pub struct Config {
    /// What the device carries.
    pub medium: Medium,
    /// The largest IP packet that the device carries; less than 1280 counts as that.
    pub mtu: usize,
    /// How addresses are made.
    pub autoconf: autoconf::Config,
    /// Whether routers are asked for, and their advertisements and redirects are taken. If not, the caller sets addresses
    /// and routes.
    pub routers: bool,
}

/// What the caller may want to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An address has come or gone.
    Address(autoconf::Event),
    /// Somebody has answered an echo request.
    EchoReply {
        /// Who.
        from: Ipv6Addr,
        /// The request's identifier.
        identifier: u16,
        /// The request's sequence number.
        sequence: u16,
    },
    /// An echo request did not get there.
    EchoError {
        /// Who says so: this host's own address, if the neighbor does not answer.
        from: Ipv6Addr,
        /// Why.
        kind: ErrorKind,
        /// The request's identifier.
        identifier: u16,
        /// The request's sequence number.
        sequence: u16,
    },
}

/// The host on one link.
pub struct Interface<S: Security = NoSecurity> {
    medium: Medium,
    device_mtu: usize,
    link_mtu: usize,
    hop_limit: u8,
    routers: bool,
    random: Random,
    addresses: Addresses,
    solicitation: Solicitation,
    dns: DnsServers,
    neighbors: Neighbors,
    redraw: Instant,
    table: Table,
    destinations: Destinations,
    listener: Listener,
    fragments: Fragments,
    identifications: Identifications,
    errors: Errors,
    udp: Sockets,
    /// How many sockets have had a number for the policy.
    numbered: u64,
    /// Sockets may bypass security.
    may_bypass: bool,
    /// Where an echo request went last, with its identifier.
    pinged: Option<(Ipv6Addr, u16)>,
    ipv4: Option<Ipv4>,
    security: S,
    outbox: Outbox,
    looped: VecDeque<Vec<u8>>,
    looped_at: Instant,
    events: VecDeque<Event>,
    drops: Drops,
    /// A packet that was reassembled or opened, and is to be looked at again.
    inner: Vec<u8>,
    /// Where in `inner` it is.
    inner_at: Range<usize>,
    /// The layer around it, whose buffer is used again.
    spare: Vec<u8>,
    /// Packets are built here.
    building: Vec<u8>,
    /// A fragment that is being made.
    fragment: Vec<u8>,
}

impl Interface<NoSecurity> {
    /// An interface without security. `seed` is 32 bytes of the best randomness there is, each time others.
    pub fn new(now: Instant, config: Config, seed: [u8; 32]) -> Self {
        Self::with_security(now, config, seed, NoSecurity)
    }
}

impl<S: Security> Interface<S> {
    /// An interface whose packets go through `security`.
    pub fn with_security(now: Instant, mut config: Config, seed: [u8; 32], security: S) -> Self {
        let mut random = Random::new(seed);
        if config.medium == Medium::Ip {
            config.autoconf.duplicate_transmits = 0;
        }
        let mtu = config.mtu.max(MIN_MTU);
        let mut neighbors = Neighbors::default();
        neighbors.redraw(&mut random);
        let mut addresses = Addresses::new(config.autoconf);
        addresses.start(now, &mut random);
        let mut solicitation = Solicitation::default();
        if config.routers {
            solicitation.start(now, &mut random);
        }
        let mut interface = Interface {
            medium: config.medium,
            device_mtu: mtu,
            link_mtu: mtu,
            hop_limit: HOP_LIMIT,
            routers: config.routers,
            addresses,
            solicitation,
            dns: DnsServers::default(),
            neighbors,
            redraw: now + REDRAW,
            table: Table::default(),
            destinations: Destinations::default(),
            listener: Listener::default(),
            fragments: Fragments::default(),
            identifications: Identifications::new(&mut random),
            errors: Errors::new(now),
            udp: Sockets::new(&mut random),
            numbered: 0,
            may_bypass: false,
            pinged: None,
            ipv4: None,
            security,
            outbox: Outbox::default(),
            looped: VecDeque::new(),
            looped_at: now,
            events: VecDeque::new(),
            drops: Drops::default(),
            inner: Vec::new(),
            inner_at: 0..0,
            spare: Vec::new(),
            building: Vec::new(),
            fragment: Vec::new(),
            random,
        };
        interface.act(now, &mut NoUpper);
        interface
    }

    /// When [`Interface::handle_timeout`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let looped = (!self.looped.is_empty()).then_some(self.looped_at);
        [
            looped,
            Some(self.redraw),
            self.addresses.deadline(),
            self.solicitation.deadline(),
            self.dns.deadline(),
            self.neighbors.deadline(),
            self.table.deadline(),
            self.destinations.deadline(),
            self.listener.deadline(),
            self.fragments.deadline(),
            self.security.deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant, upper: &mut impl Upper) {
        for _ in 0..self.looped.len() {
            let Some(packet) = self.looped.pop_front() else { break };
            self.receive_packet(now, &packet, Arrived::Ourselves, false, upper);
        }
        if self.redraw <= now {
            self.redraw = now + REDRAW;
            self.neighbors.redraw(&mut self.random);
        }
        self.security.handle_timeout(now);
        self.send_released(now);
        self.neighbors.handle_timeout(now);
        self.addresses.handle_timeout(now, self.neighbors.retrans_timer(), &mut self.random);
        self.table.expire(now);
        self.forget_gone_routers();
        self.destinations.expire(now);
        self.dns.expire(now);
        self.give_fragments_up(now);
        self.solicit_routers(now);
        self.act(now, upper);
    }

    /// Puts the next frame or packet to send into `out`, whose buffer is used again; `false` if there is none.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        self.outbox.pop(out).is_some()
    }

    /// As [`Interface::poll_transmit`], with what the device has to do to it.
    pub(crate) fn poll_transmit_offloaded(&mut self, out: &mut Vec<u8>) -> Option<virtio_net::Header> {
        self.outbox.pop(out)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Sets an address, beside those that come by themselves. It says nothing of what is on the link: see
    /// [`Interface::set_on_link`].
    pub fn add_address(&mut self, now: Instant, address: Ipv6Addr, prefix_length: u8) {
        self.addresses.add_static(now, address, prefix_length);
        self.act(now, &mut NoUpper);
    }

    /// Takes an address away.
    pub fn remove_address(&mut self, now: Instant, address: Ipv6Addr) {
        self.addresses.remove(address);
        self.act(now, &mut NoUpper);
    }

    /// A prefix is on the link, as long as that.
    pub fn set_on_link(&mut self, now: Instant, prefix: Ipv6Net, lifetime: Lifetime) {
        self.table.set_on_link(now, prefix, lifetime);
    }

    /// A router leads to a network; `::/0`: to all others. A lifetime of 0 ends it.
    pub fn set_route(&mut self, now: Instant, prefix: Ipv6Net, router: Ipv6Addr, lifetime: Lifetime) {
        self.table.set_route(now, prefix, router, Preference::Medium, lifetime);
        self.forget_gone_routers();
    }

    /// Takes packets to a group. Each time counts. Returns whether there was room.
    pub fn join(&mut self, now: Instant, group: Ipv6Addr) -> bool {
        let joined = group.is_multicast() && self.listener.join(now, group);
        self.act(now, &mut NoUpper);
        joined
    }

    /// Takes one [`Interface::join`] back.
    pub fn leave(&mut self, now: Instant, group: Ipv6Addr) {
        self.listener.leave(now, group);
        self.act(now, &mut NoUpper);
    }

    /// The addresses.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The neighbors.
    pub fn neighbors(&self) -> &Neighbors {
        &self.neighbors
    }

    /// What is on the link, and what leads through routers.
    pub fn routes(&self) -> &Table {
        &self.table
    }

    /// Destinations of which something special is known.
    pub fn destinations(&self) -> &Destinations {
        &self.destinations
    }

    /// Our end of each UDP socket, and the other one of those that are connected.
    pub fn udp_sockets(&self) -> impl Iterator<Item = (SocketAddrV6, Option<SocketAddrV6>)> + '_ {
        self.udp.iter()
    }

    /// IPv4, if it is set.
    pub fn ipv4(&self) -> Option<&Ipv4> {
        self.ipv4.as_ref()
    }

    /// The default routers.
    pub fn default_routers(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.table.default_routers()
    }

    /// The DNS servers that routers have advertised.
    pub fn dns_servers(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.dns.iter()
    }

    /// How large a packet on the link may be.
    pub fn link_mtu(&self) -> usize {
        self.link_mtu
    }

    /// How large a packet to this destination may be.
    pub fn path_mtu(&self, now: Instant, destination: Ipv6Addr) -> usize {
        self.destinations.path_mtu(now, destination, self.link_mtu)
    }

    /// The security. If it is changed, [`Interface::deadline`] may be another.
    pub fn security(&mut self) -> &mut S {
        &mut self.security
    }

    /// Why packets went no further.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    fn drop(&mut self, reason: DropReason) {
        self.drops.count(reason);
    }

    fn event(&mut self, event: Event) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The time for reassembly is over: the sender is told if the first fragment had arrived (RFC 8200 §4.5).
    fn give_fragments_up(&mut self, now: Instant) {
        let mut first = std::mem::take(&mut self.inner);
        while self.fragments.expire(now, &mut first) {
            self.drop(DropReason::ReassemblyTimeout);
            if !first.is_empty() {
                self.send_error(now, Reason::ReassemblyTimeExceeded, &first, false);
            }
        }
        self.inner = first;
    }

    fn solicit_routers(&mut self, now: Instant) {
        if !self.routers {
            return;
        }
        if self.table.default_routers().next().is_none() {
            self.solicitation.start(now, &mut self.random);
        }
        if !self.solicitation.is_due(now, &mut self.random) {
            return;
        }
        match (self.addresses.link_local(), self.medium) {
            (Some(source), Medium::Ethernet(own)) => {
                self.send_on_link(&RouterSolicitation.to_packet_from(source, own), None);
            }
            (source, _) => {
                let source = source.unwrap_or(Ipv6Addr::UNSPECIFIED);
                self.send_on_link(&RouterSolicitation.to_packet(source), None);
            }
        }
    }
}

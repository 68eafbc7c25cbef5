//! The translator between IPv6 and IPv4: its device, the program there ([`programs::nat64`]), and routes that lead to it.
//!
//! Invariants:
//! - The device, its program and its routes go with the process, also when it crashes. Below them are routes that say
//!   "unreachable", as planned, which stay: what is to be translated never leaves as it is.
//! - Nothing leads to the device before the firewall and the table that guards it ([`rules`]) are in force.
//! - What comes out of the device is what the program made, and what this process puts back for it.

mod rules;
#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use linux::bpf::attach::{Attachment, Direction, attach_to_own_device};
use linux::bpf::{Map, Program, ProgramKind};
use linux::event::{Interest, Poller};
use linux::netlink::{Link, Netlink, Route, Via};
use linux::tun::{self, Offloads, Queue, VNET_HEADER};
use programs::nat64::{self, Counts, Settings, translator};
use router::nat64::{DEVICE, Nat64, Refusal};
use router::site::Site;
use tracing::warn;
use wire::protocol;
use wire::segment::Segmenter;
use wire::virtio_net;

pub(super) use rules::{TABLE, ipv4_mtu, script};

use super::link::BATCH;

/// The device takes whatever networks and uplinks do, and the 28 bytes by which a packet may grow.
const DEVICE_MTU: u32 = 65_535;
/// The address that is nobody's (RFC 7600 section 4.8).
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// Longer than any packet.
const LONGEST: usize = 1 << 16;

/// A translator, from its device's making to its end.
pub(super) struct Interface {
    nat64: Nat64,
    index: u32,
    queue: Queue,
    token: u64,
    tables: nat64::Tables<Map>,
    _attachment: Attachment,
    /// The one for IPv4.
    route: Route,
    mtu: u32,
    gone: bool,
    buffer: Vec<u8>,
}

impl Interface {
    /// Makes the device, with packets to the prefix and the pool led there. `secret` is what it was at the last start, so
    /// that most hosts get the address again that connections know.
    pub(super) fn open(
        nat64: &Nat64,
        mtu: u32,
        secret: [u64; 2],
        poller: &Poller,
        netlink: &mut Netlink,
        token: u64,
    ) -> linux::Result<Self> {
        let mut device = tun::create(DEVICE, 1, Offloads::Checksums)?;
        let Some(queue) = device.queues.pop() else { unreachable!("a device has a queue") };
        let index = device.index;
        // A packet goes in and out by the device, and no host is to be told of a better way.
        tun::without_link_address(DEVICE)?;
        netlink.set_link_mtu(index, DEVICE_MTU)?;
        // What this process puts back has a source that is reached by an uplink. A device without an address takes no such
        // packets even where the machine is not strict.
        tun::with_any_source(DEVICE)?;
        netlink.add_address(index, IpNet::from(IpAddr::V4(DUMMY)), false)?;
        let tables = nat64::Tables::create(nat64.pool, Map::of)?;
        let code = translator(&Settings { nat64, device: (index, 0), secret }, &tables);
        let program = Program::load(ProgramKind::SchedCls, &code)?;
        let attachment = attach_to_own_device(&program, index, Direction::Egress)?;
        netlink.set_link_up(index, true)?;
        poller.add(&queue, token, Interest::Readable)?;
        let mut route = Route::device(nat64.pool.into(), index);
        if let Via::Link { mtu: of_route, .. } = &mut route.via {
            *of_route = Some(mtu);
        }
        netlink.add_route(&route)?;
        netlink.add_route(&Route::device(IpNet::V6(nat64.prefix.net()), index))?;
        Ok(Interface {
            nat64: nat64.clone(),
            index,
            queue,
            token,
            tables,
            _attachment: attachment,
            route,
            mtu,
            gone: false,
            buffer: vec![0; VNET_HEADER + LONGEST],
        })
    }

    /// Whether it is that of this site, as it is configured.
    pub(super) fn is_of(&self, site: &Site) -> bool {
        site.nat64.as_ref() == Some(&self.nat64)
    }

    /// Links may have another MTU; somebody may have taken the routes, the address or a setting, or the device down.
    pub(super) fn follow(&mut self, site: &Site, links: &[Link], netlink: &mut Netlink) -> linux::Result<()> {
        // Without it: it is made anew once its descriptor tells.
        let Some(own) = links.iter().find(|link| link.index == self.index) else { return Ok(()) };
        if own.mtu != DEVICE_MTU {
            netlink.set_link_mtu(self.index, DEVICE_MTU)?;
        }
        if !own.up {
            netlink.set_link_up(self.index, true)?;
        }
        tun::with_any_source(DEVICE)?;
        let dummy = IpNet::from(IpAddr::V4(DUMMY));
        if netlink.addresses(self.index)?.iter().all(|found| found.address != dummy) {
            netlink.add_address(self.index, dummy, false)?;
        }
        // After what takes routes along.
        let there = netlink.own_routes()?;
        let is_there = |route: &Route| {
            let by = |via: &Via| matches!(via, Via::Link { index, .. } if *index == self.index);
            there.iter().any(|found| found.destination == route.destination && by(&found.via))
        };
        let prefix = Route::device(IpNet::V6(self.nat64.prefix.net()), self.index);
        for route in [&prefix, &self.route] {
            if !is_there(route) {
                netlink.add_route(route)?;
            }
        }
        let mtu = ipv4_mtu(site, links);
        if mtu != self.mtu {
            netlink.set_route_mtu(&mut self.route, Some(mtu))?;
            self.mtu = mtu;
        }
        Ok(())
    }

    /// What has crossed, and what has not.
    pub(super) fn counts(&self) -> Counts {
        nat64::counts(|number| self.tables.counters.sum(&number.to_ne_bytes()).unwrap_or_default())
    }

    /// Whether the descriptor of this number is the device's.
    pub(super) fn owns(&self, token: u64) -> bool {
        token == self.token
    }

    /// Packets that the program left: segments of what the kernel does not translate as GSO packets, and UDP that has no
    /// checksum. They get what they lack, and go in once more.
    pub(super) fn handle_readable(&mut self) {
        for _ in 0..BATCH {
            let length = match self.queue.read(&mut self.buffer) {
                Ok(Some(length)) => length,
                Ok(None) => return,
                Err(error) => {
                    warn!("{DEVICE} is gone, and is made anew: {error}");
                    self.gone = true;
                    return;
                }
            };
            let Some((header, packet)) =
                self.buffer.get_mut(..length).and_then(|read| read.split_first_chunk_mut::<VNET_HEADER>())
            else {
                continue;
            };
            if Segmenter::new(&virtio_net::Header::from_bytes(header), packet).is_err() {
                continue;
            }
            add_checksum(packet);
            // A packet that makes no sense to the kernel is lost.
            let _ = self.queue.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(packet)]);
        }
    }

    /// Whether somebody has deleted the device.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Its descriptors leave the set; the rest goes with it.
    pub(super) fn close(self, poller: &Poller) {
        let _ = poller.remove(&self.queue);
    }
}

/// Gives UDP over IPv4 the checksum that it may be without there.
pub(super) fn add_checksum(packet: &mut [u8]) {
    let Ok(parsed) = wire::ipv4::Packet::parse(packet) else { return };
    let (header, length) = (parsed.header().len(), parsed.payload().len() as u16);
    let is_udp = parsed.protocol() == protocol::UDP && !parsed.is_fragment();
    if !is_udp || parsed.payload().get(6..8) != Some(&[0, 0]) {
        return;
    }
    let sum = parsed.pseudo_header(length, protocol::UDP) + wire::checksum::Sum::of(parsed.payload());
    packet[header + 6..header + 8].copy_from_slice(&sum.udp_checksum().to_be_bytes());
}

/// Names of what was refused, with how often.
pub(super) fn refused(counts: &Counts) -> impl Iterator<Item = (&'static str, u64)> {
    Refusal::ALL.into_iter().map(|refusal| (refusal.name(), counts.refused[refusal as usize]))
}

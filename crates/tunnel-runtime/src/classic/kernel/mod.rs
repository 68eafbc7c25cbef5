//! Packets of unencrypted streams, carried in the kernel (docs/classic.md section 17): what a program at the device needs
//! to know is kept as the node has it.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::net::Ipv6Addr;

use classic::profile::Carry;
use classic::routes::Path;
use classic::{KeyState, Node, StreamRoutes};
use linux::bpf::attach::{Attachment, Direction, Filter, attach_to_own_device};
use linux::bpf::{Map, Program, ProgramKind, next_hop};
use linux::netlink::Netlink;
use tracing::{debug, info};
use wire::{ethernet, ipv6, protocol};

use super::super::next_hop::NextHop;
use super::in_place::Traffic;
use config::{ClassicPeer, KernelUse, Mode, TunnelConfig};
use programs::classic::{incoming, program};
use programs::pair::{INCOMING, KEY, OUTGOING, Tables, at};

/// Routes of a stream beyond those that a lifetime holds: one ahead, and those of a session key that ends.
const MORE_ROUTES: u32 = 8;

/// The programs, loaded, for whoever may attach them later with less privilege.
pub(in super::super) struct Loaded {
    tables: Tables<Map>,
    program: Program,
    /// That for the external interface, and the interface.
    entrance: Option<(Program, u32)>,
    tcx: bool,
    required: bool,
}

impl Loaded {
    /// Loads the programs, if there is a stream for them, to be attached by links of the kind tcx if the kernel has them.
    /// Needs CAP_BPF.
    ///
    /// # Errors
    /// Why this kernel cannot do it, where a peer has `kernel = "required"`.
    pub(in super::super) fn new(config: &TunnelConfig, tcx: bool) -> linux::Result<Option<Self>> {
        let peers = &config.classic;
        let streams: Vec<_> = peers.iter().filter(|peer| may_carry(peer)).map(|peer| &peer.stream).collect();
        if streams.is_empty() {
            return Ok(None);
        }
        let routes = streams
            .iter()
            .map(|stream| 2 * (stream.lifetime / stream.rotation.shortest().max(1) + MORE_ROUTES));
        let required = peers.iter().any(|peer| peer.kernel == KernelUse::Required);
        let loaded = Tables::create(peers.len() as u32, routes.sum(), Map::of).and_then(|tables| {
            let program = Program::load(ProgramKind::SchedCls, &program(&tables, 0))?;
            // A transparent gateway has programs there already.
            let external = match config.node.mode {
                Mode::Routed if tcx => Netlink::open()?.link_by_name(&config.node.external)?,
                _ => None,
            };
            let entrance = external.map(|link| {
                let header = if link.mac.is_some() { ethernet::HEADER_LEN } else { 0 };
                let code = incoming(&tables, header as u8);
                Program::load(ProgramKind::SchedCls, &code).map(|program| (program, link.index))
            });
            Ok(Loaded { entrance: entrance.transpose()?, tables, program, tcx, required })
        });
        or_without(loaded, required)
    }

    /// Attaches them to the device and to the external interface. They carry nothing before the first [`refresh`](KernelPath::refresh).
    ///
    /// # Errors
    /// As above.
    pub(super) fn attach(self, peers: &[ClassicPeer], device: u32) -> linux::Result<Option<KernelPath>> {
        let attached = if self.tcx {
            attach_to_own_device(&self.program, device, Direction::Egress)
        } else {
            Attachment::clsact(&self.program, Filter::new(device, Direction::Egress))
        };
        let Some(attachment) = or_without(attached, self.required)? else { return Ok(None) };
        // Before Linux 6.6 packets from outside take the way through the stack.
        let entrance = self.entrance.and_then(|(program, external)| {
            Attachment::tcx(&program, external, Direction::Ingress)
                .inspect_err(|error| {
                    info!("packets of unencrypted streams come in through the stack: {error}");
                })
                .ok()
        });
        let may = peers.iter().enumerate().filter(|(_, peer)| may_carry(peer));
        let streams = may.map(|(number, peer)| Stream {
            number,
            hosts: (peer.stream.local.address, peer.stream.remote.address),
            carry: peer.stream.carry,
        });
        let path = KernelPath {
            tables: self.tables,
            _attachments: (attachment, entrance),
            device,
            streams: streams.collect(),
            outgoing: Written::default(),
            incoming: Written::default(),
        };
        info!("{} unencrypted stream(s) are carried in the kernel", path.streams.len());
        Ok(Some(path))
    }
}

fn may_carry(peer: &ClassicPeer) -> bool {
    peer.kernel != KernelUse::Off && peer.stream.cipher.is_none()
}

/// What went wrong is an error where it is required.
fn or_without<T>(result: linux::Result<T>, required: bool) -> linux::Result<Option<T>> {
    match result {
        Err(error) if !required => {
            info!("unencrypted streams are not carried in the kernel: {error}");
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// The programs, attached, and what they know.
pub(super) struct KernelPath {
    tables: Tables<Map>,
    /// At the device, and at the external interface.
    _attachments: (Attachment, Option<Attachment>),
    /// The device.
    device: u32,
    /// The streams that it may carry.
    streams: Vec<Stream>,
    outgoing: Written<OUTGOING>,
    incoming: Written<INCOMING>,
}

impl KernelPath {
    /// Writes down the routes that the node has now, and where they lead.
    pub(super) fn refresh(&mut self, node: &Node, netlink: &mut Netlink) {
        let (mut outgoing, mut incoming) = (HashMap::new(), HashMap::new());
        for stream in &self.streams {
            let Some(routes) = node.routes(stream.number) else { continue };
            // A key exchange is the node's: what comes in may decide it. Replaced addresses have no part in it.
            if routes.key != KeyState::Idle && stream.carry == Carry::Encapsulate {
                continue;
            }
            self.add_stream(stream, &routes, netlink, &mut outgoing, &mut incoming);
        }
        self.outgoing.change(outgoing, &self.tables.outgoing);
        self.incoming.change(incoming, &self.tables.incoming);
    }

    fn add_stream(
        &self,
        stream: &Stream,
        routes: &StreamRoutes,
        netlink: &mut Netlink,
        outgoing: &mut HashMap<[u8; KEY], [u8; OUTGOING]>,
        incoming: &mut HashMap<[u8; KEY], [u8; INCOMING]>,
    ) {
        let (local, remote) = stream.hosts;
        if let Some((path, flag)) = &routes.outgoing
            && let Some(mut hop) = NextHop::lookup(path.destination.address, self.device, netlink)
            && hop.is_remote()
        {
            hop.mtu = hop.mtu.min(routes.outer_mtu.into());
            outgoing.insert(key(local, remote), outgoing_value(stream, &hop, path, *flag));
        }
        if let Some(hop) = NextHop::lookup(local, self.device, netlink) {
            for path in &routes.incoming {
                let key = key(path.source.address, path.destination.address);
                incoming.insert(key, incoming_value(stream, &hop, path));
            }
        }
    }

    /// What it has carried of a stream.
    pub(super) fn traffic(&self, stream: usize) -> Traffic {
        let counted = self.tables.counters.sum(&(stream as u32).to_ne_bytes());
        match counted.as_deref() {
            Ok(&[tx_packets, tx_bytes, rx_packets, rx_bytes]) => {
                Traffic { tx_packets, tx_bytes, rx_packets, rx_bytes }
            }
            _ => Traffic::default(),
        }
    }
}

/// A stream that may be carried.
struct Stream {
    /// Its place in the configuration.
    number: usize,
    /// True addresses of the local and the remote host.
    hosts: (Ipv6Addr, Ipv6Addr),
    carry: Carry,
}

/// The part that both values begin with: the next hop, and the number that is counted under.
pub(crate) fn write_next_hop(value: &mut [u8], number: u32, hop: &NextHop) {
    put(value, at::INTERFACE, &hop.interface.to_ne_bytes());
    put(value, at::STREAM, &number.to_ne_bytes());
    put(value, at::MTU, &hop.mtu.to_ne_bytes());
    if let Some(neighbor) = hop.neighbor {
        put(value, at::NEIGHBOR, &next_hop(neighbor.into()));
    }
}

fn begin(value: &mut [u8], stream: &Stream, hop: &NextHop) {
    write_next_hop(value, stream.number as u32, hop);
    put(value, at::REWRITE, &u32::from(stream.carry == Carry::Rewrite).to_ne_bytes());
}

pub(crate) fn put(value: &mut [u8], at: i16, bytes: &[u8]) {
    value[at as usize..][..bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn key(source: Ipv6Addr, destination: Ipv6Addr) -> [u8; KEY] {
    let mut key = [0; KEY];
    put(&mut key, 0, &source.octets());
    put(&mut key, 16, &destination.octets());
    key
}

fn outgoing_value(stream: &Stream, hop: &NextHop, path: &Path, flag: bool) -> [u8; OUTGOING] {
    let headers = classic::packet::headers(path, flag);
    let mut value = [0; OUTGOING];
    begin(&mut value, stream, hop);
    put(&mut value, at::HEADERS, &headers);
    // The inner pseudo-header's addresses are gone, the outer ones are there; and of the outer pseudo-header and header
    // what is known.
    let mut sum = difference(stream.hosts, (path.source.address, path.destination.address));
    if stream.carry == Carry::Encapsulate {
        sum += words(&headers[ipv6::HEADER_LEN..]) + words(&u16::from(protocol::UDP).to_be_bytes());
    }
    put(&mut value, at::SUM, &sum.to_ne_bytes());
    value
}

fn incoming_value(stream: &Stream, hop: &NextHop, path: &Path) -> [u8; INCOMING] {
    let (local, remote) = stream.hosts;
    let mut value = [0; INCOMING];
    begin(&mut value, stream, hop);
    put(&mut value, at::ADDRESSES, &key(remote, local));
    put(&mut value, at::PORTS, &path.source.source_port(false).to_be_bytes());
    put(&mut value, at::PORTS + 2, &path.destination.port.to_be_bytes());
    let sum = difference((path.source.address, path.destination.address), (remote, local));
    put(&mut value, at::DIFFERENCE, &sum.to_ne_bytes());
    value
}

/// What to add to a sum, for other addresses in place of these.
pub(crate) fn difference(from: (Ipv6Addr, Ipv6Addr), to: (Ipv6Addr, Ipv6Addr)) -> u32 {
    words(&key(from.0, from.1).map(|byte| !byte)) + words(&key(to.0, to.1))
}

/// The sum of 16-bit words as they are in memory.
pub(crate) fn words(bytes: &[u8]) -> u32 {
    bytes.as_chunks::<2>().0.iter().map(|word| u32::from(u16::from_ne_bytes(*word))).sum()
}

/// What was written to a map.
struct Written<const VALUE: usize>(HashMap<[u8; KEY], [u8; VALUE]>);

impl<const VALUE: usize> Default for Written<VALUE> {
    fn default() -> Self {
        Written(HashMap::new())
    }
}

impl<const VALUE: usize> Written<VALUE> {
    /// Makes the map what it is to be. What cannot be written is not carried in the kernel.
    fn change(&mut self, wanted: HashMap<[u8; KEY], [u8; VALUE]>, map: &Map) {
        self.0.retain(|key, _| {
            let stays = wanted.contains_key(key);
            if !stays && let Err(error) = map.remove(key) {
                debug!("a route stays in the kernel: {error}");
            }
            stays
        });
        for (key, value) in wanted {
            if self.0.get(&key) == Some(&value) {
                continue;
            }
            match map.set(&key, &value) {
                Ok(()) => drop(self.0.insert(key, value)),
                Err(error) => debug!("a route is not in the kernel: {error}"),
            }
        }
    }
}

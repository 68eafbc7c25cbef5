//! Ports that hosts ask for ([`router::pcp`]): a socket at each network where they may, and what the kernel has of them.
//!
//! A socket is bound to its network's interface, so that nothing is heard that comes in elsewhere. Requests that come at once
//! are one transaction of nft; they are answered once it is done, and not at all where it failed: clients ask again. However
//! many come, there is a pause after each.
//!
//! What is mapped, with what clients are told of it, is in a file beside the journal: it outlives the process, as the kernel's
//! sets do, and not the machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use linux::event::{Interest, Poller};
use linux::netlink::{Link as KernelLink, Via};
use linux::udp::{EndpointOptions, HostSocket, Segmentation};
use router::firewall::policy::ZoneSet;
use router::firewall::service::{Service, protocol};
use router::firewall::{Packet, Policy, Trust, Verdict, ZoneRef};
use router::forward::Ports;
use router::pcp::{Internal, Link, Mapping, PORT, Server, Transport, message};
use router::plan::Plan;
use router::site::{Network, Site};
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::kernel::Kernel;
use crate::link::index_of;

/// At least so long is between two transactions.
const PAUSE: Duration = Duration::from_millis(100);
/// After one that has failed.
const AGAIN: Duration = Duration::from_secs(10);
/// So many requests wait for the next one, of one host and of a network.
const MOST_OF_A_HOST: usize = 8;
const MOST_WAITING: usize = 64;
/// Tokens of the sockets, beside those of interfaces.
const FIRST_TOKEN: u64 = 1 << 32;
/// Where a DHCP client of the gateway listens, now and then.
const DHCP_CLIENT: Ports = Ports { protocol: protocol::UDP, first: 68, last: 68 };

/// The server, its sockets, and requests that are not answered yet.
pub(super) struct PortMapping {
    server: Server,
    /// The revision that the kernel has been told, and whether it has lost that.
    in_kernel: u64,
    stale: bool,
    sockets: Vec<Socket>,
    /// Why the last transaction has failed.
    failed: Option<String>,
    waiting: Vec<Waiting>,
    not_before: Instant,
    next_token: u64,
    file: PathBuf,
}

struct Socket {
    network: String,
    index: u32,
    token: u64,
    socket: HostSocket,
}

struct Waiting {
    token: u64,
    from: SocketAddr,
    to: IpAddr,
    datagram: Vec<u8>,
}

/// The IPv4 address that hosts are reached at by what they ask for: of the uplinks that masquerade, that of the one by which
/// IPv4 leaves now, which says nothing of IPv6; without such a one, any there is.
pub(super) fn external(
    kernel: &mut Kernel,
    site: &Site,
    links: &[KernelLink],
) -> linux::Result<Option<Ipv4Addr>> {
    let found = kernel.uplinks_now(site, links)?;
    let mut best: Option<(u64, Ipv4Addr)> = None;
    for (_, found) in site.uplinks.iter().zip(found).filter(|(uplink, _)| uplink.masquerade) {
        let (Some(index), Some(address)) = (found.index, found.addresses.first()) else { continue };
        let runs = links.iter().any(|link| link.index == index && link.running);
        let route = kernel.netlink.default_ipv4_route_by(index)?.filter(|_| runs);
        let metric = route.map(|route| match route.via {
            Via::Link { metric, .. } => metric.unwrap_or(0),
            _ => 0,
        });
        let rank = metric.map_or(u64::MAX, u64::from);
        if best.is_none_or(|(least, _)| rank < least) {
            best = Some((rank, *address));
        }
    }
    Ok(best.map(|(_, address)| address))
}

impl PortMapping {
    /// Goes on with what the file remembers.
    pub(super) fn new(file: PathBuf, now: Instant) -> Self {
        let remembered = std::fs::read(&file).ok().and_then(|bytes| {
            let read = serde_json::from_slice::<Remembered>(&bytes);
            read.inspect_err(|error| warn!("{}: {error}: starting without it", file.display())).ok()
        });
        let server = remembered.map_or_else(|| Server::new(now), |remembered| remembered.server(now));
        PortMapping {
            server,
            in_kernel: 0,
            stale: true,
            sockets: Vec::new(),
            failed: None,
            waiting: Vec::new(),
            not_before: now,
            next_token: FIRST_TOKEN,
            file,
        }
    }

    /// What is mapped.
    pub(super) fn mappings(&self) -> impl Iterator<Item = (&Internal, &Mapping)> {
        self.server.mappings()
    }

    /// The IPv4 address that hosts are reached at, if there is one.
    pub(super) fn external(&self) -> Option<Ipv4Addr> {
        self.server.external()
    }

    /// Listens where hosts may ask, as the site and the links are now, and ends what may be no more. What cannot be done is
    /// returned.
    pub(super) fn follow(
        &mut self,
        site: &Site,
        policy: Option<&Policy>,
        links: &[KernelLink],
        external: Option<Ipv4Addr>,
        poller: &Poller,
        now: Instant,
    ) -> Vec<String> {
        let wanted =
            |network: &Network| network.port_mapping.and_then(|_| index_of(links, &network.interface));
        let (stay, go): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.sockets).into_iter().partition(|socket| {
                let network = site.networks.iter().find(|network| network.name == socket.network);
                network.and_then(wanted) == Some(socket.index)
            });
        self.sockets = stay;
        go.iter().for_each(|socket| drop(poller.remove(&socket.socket)));
        let mut problems: Vec<_> = self.failed.iter().cloned().collect();
        for network in &site.networks {
            let Some(index) = wanted(network) else { continue };
            if self.sockets.iter().any(|socket| socket.network == network.name) {
                continue;
            }
            match Socket::open(network, index, self.next_token, poller) {
                Ok(socket) => self.sockets.push(socket),
                Err(error) => problems.push(format!(
                    "network {}: hosts cannot ask for ports to be opened: {error}",
                    network.name
                )),
            }
            self.next_token += 1;
        }
        self.server.set_external(external, now);
        let reserved = reserved(site, policy);
        self.server.retain(|internal, mapping| may_be(site, &reserved, internal, mapping), now);
        problems
    }

    /// When [`PortMapping::handle`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let waits = !self.waiting.is_empty() || self.stale || self.server.revision() != self.in_kernel;
        self.server.deadline().into_iter().chain(waits.then_some(self.not_before)).min()
    }

    /// Whether the descriptor of this number is one of these.
    pub(super) fn owns(&self, token: u64) -> bool {
        self.sockets.iter().any(|socket| socket.token == token)
    }

    /// There is something to read.
    pub(super) fn handle_readable(&mut self, token: u64) {
        let Some(socket) = self.sockets.iter().find(|socket| socket.token == token) else { return };
        // What the network says of answers does not matter, but it has to be read.
        while let Ok(Some(_)) = socket.socket.recv_too_big() {}
        // What is longer than any message is as long then: too long.
        let mut buffer = [0; message::MAX + 4];
        for _ in 0..MOST_WAITING {
            let Ok(Some(received)) = socket.socket.recv(&mut buffer) else { break };
            let (from, to) = (received.source, received.destination);
            let of_network = self.waiting.iter().filter(|other| other.token == token);
            let of_same = of_network.clone().filter(|other| other.from.ip() == from.ip()).count();
            if of_network.count() < MOST_WAITING && of_same < MOST_OF_A_HOST && !to.is_multicast() {
                let datagram = buffer[..received.len].to_vec();
                self.waiting.push(Waiting { token, from, to, datagram });
            }
        }
    }

    /// Ends what is over, does what was asked for, and answers. `kernel_lost`: it has to be told all again. What it does not
    /// take [`PortMapping::follow`] tells.
    pub(super) fn handle(
        &mut self,
        kernel: &Kernel,
        site: &Site,
        plan: &Plan,
        kernel_lost: bool,
        now: Instant,
    ) {
        self.server.retain(|_, _| true, now);
        self.stale |= kernel_lost;
        let has_changed = |of: &Self| of.server.revision() != of.in_kernel;
        if now < self.not_before || (self.waiting.is_empty() && !self.stale && !has_changed(self)) {
            return;
        }
        let before = self.server.clone();
        let answers = self.answers(kernel, site, plan, now);
        let has_changed = has_changed(self);
        if has_changed || self.stale {
            if let Err(error) = kernel.put_mappings(site, self.server.mappings(), now) {
                self.server = before;
                (self.stale, self.not_before) = (true, now + AGAIN);
                self.failed = Some(format!("ports that hosts ask for cannot be opened: {error}"));
                return;
            }
            (self.stale, self.in_kernel, self.failed) = (false, self.server.revision(), None);
            // A thousand elements take half a second, in which this thread does nothing else.
            let done = Instant::now();
            self.not_before = done + PAUSE.max(4 * done.saturating_duration_since(now));
        }
        if has_changed {
            self.remember(now);
        }
        for (token, from, to, answer) in answers {
            if let Some(socket) = self.sockets.iter().find(|socket| socket.token == token) {
                // Whoever does not get it asks again.
                let _ = socket.socket.send(&answer, answer.len(), to, from, 0);
            }
        }
    }

    fn answers(
        &mut self,
        kernel: &Kernel,
        site: &Site,
        plan: &Plan,
        now: Instant,
    ) -> Vec<(u64, SocketAddr, IpAddr, Vec<u8>)> {
        let policy = kernel.firewall().map(|firewall| &firewall.policy);
        let reserved = reserved(site, policy);
        let taken = |transport: Transport, port| {
            is_among(&reserved, transport, port) || linux::port::is_taken(Ipv4Addr::UNSPECIFIED.into(), port)
        };
        let mut answers = Vec::new();
        for Waiting { token, from, to, datagram } in std::mem::take(&mut self.waiting) {
            let Some(socket) = self.sockets.iter().find(|socket| socket.token == token) else { continue };
            let network = site.networks.iter().find(|network| network.name == socket.network);
            let Some((network, limits)) = network.and_then(|found| Some((found, found.port_mapping?))) else {
                continue;
            };
            let there = plan.addresses.iter().filter(|address| address.interface == network.interface);
            let own: Vec<IpNet> = there.map(|address| address.address).collect();
            let link = Link { network: &network.name, limits, own: &own, taken: &taken };
            if let Some(answer) = self.server.handle(&datagram, from.ip(), &link, now) {
                answers.push((token, from, to, answer));
            }
        }
        answers
    }

    /// What a packet to the gateway becomes, and whether a host has asked for it.
    pub(super) fn translate(&self, site: &Site, policy: &Policy, packet: &mut Packet) {
        let Some(transport) = Transport::of(packet.protocol) else { return };
        let may = |mapping: &Mapping| {
            let from = |(net, port): &(IpNet, u16)| {
                net.contains(&packet.source) && (*port == 0 || *port == packet.ports.0)
            };
            mapping.peers.is_empty() || mapping.peers.iter().any(from)
        };
        let to_gateway = packet.to == ZoneRef::Gateway && policy.trust(packet.from) == Some(Trust::Outside);
        let is_meant = |internal: &Internal, mapping: &Mapping| {
            internal.transport == transport
                && internal.address.is_ipv4() == packet.source.is_ipv4()
                && match internal.address {
                    IpAddr::V4(_) => to_gateway && mapping.external_port == packet.ports.1,
                    IpAddr::V6(_) => {
                        (internal.address, internal.port) == (packet.destination, packet.ports.1)
                    }
                }
        };
        let Some((internal, mapping)) =
            self.mappings().find(|(internal, mapping)| is_meant(internal, mapping) && may(mapping))
        else {
            return;
        };
        let network = site.networks.iter().find(|network| network.name == mapping.network);
        let Some(zone) = network.and_then(|network| policy.zone_of(&network.interface, internal.address))
        else {
            return;
        };
        (packet.mapped, packet.to) = (true, zone);
        (packet.destination, packet.ports.1) = (internal.address, internal.port);
    }

    fn remember(&self, now: Instant) {
        let remembered = Remembered::of(&self.server, now);
        let written = serde_json::to_vec(&remembered).map_err(std::io::Error::from);
        if let Err(error) = written.and_then(|bytes| linux::file::replace(&self.file, &bytes).map(drop)) {
            warn!("{}: {error}: a restart will end the ports that hosts have opened", self.file.display());
        }
    }
}

impl Socket {
    fn open(network: &Network, index: u32, token: u64, poller: &Poller) -> linux::Result<Self> {
        let segmentation = Arc::new(Segmentation::off());
        let options = EndpointOptions {
            buffer: 1 << 17,
            receive_offload: false,
            flow_label: true,
            interface: Some(index),
            segmentation,
        };
        let socket = HostSocket::open(None, PORT, &options)?;
        poller.add(&socket, token, Interest::Readable)?;
        Ok(Socket { network: network.name.clone(), index, token, socket })
    }
}

/// Whether a mapping is one that could be asked for now.
fn may_be(site: &Site, reserved: &[Ports], internal: &Internal, mapping: &Mapping) -> bool {
    let network = site.networks.iter().find(|network| network.name == mapping.network);
    let Some((network, limits)) = network.and_then(|found| Some((found, found.port_mapping?))) else {
        return false;
    };
    internal.port >= limits.lowest_port
        && mapping.external_port >= limits.lowest_port
        && match internal.address {
            IpAddr::V4(address) => {
                network.ipv4.is_some_and(|net| net.contains(&address) && net.addr() != address)
                    && !is_among(reserved, internal.transport, mapping.external_port)
            }
            // Whose prefix comes and goes.
            IpAddr::V6(_) => true,
        }
}

/// Ports of the gateway of which the configuration says where they lead: to a host, or to the gateway itself.
fn reserved(site: &Site, policy: Option<&Policy>) -> Vec<Ports> {
    let rules = policy.map_or(&[][..], Policy::rules).iter();
    let opened = rules.filter(|rule| {
        let to_gateway = match &rule.to {
            ZoneSet::Of(to) => to.contains(&ZoneRef::Gateway),
            ZoneSet::Any => true,
        };
        rule.action == Verdict::Accept && to_gateway
    });
    let opened = opened.flat_map(|rule| rule.service.iter().flatten()).filter_map(|service| match *service {
        Service::Ports(protocol, first, last) => Some(Ports { protocol, first, last }),
        _ => None,
    });
    site.forwards
        .iter()
        .flat_map(|forward| forward.ports.iter().copied())
        .chain(opened)
        .chain([DHCP_CLIENT])
        .collect()
}

fn is_among(reserved: &[Ports], transport: Transport, port: u16) -> bool {
    let meant = Ports { protocol: transport.number(), first: port, last: port };
    reserved.iter().any(|ports| ports.shared(meant).is_some())
}

/// What the file has. Times are milliseconds since boot.
#[derive(Serialize, Deserialize)]
struct Remembered {
    epoch: u64,
    external: Option<Ipv4Addr>,
    mappings: Vec<RememberedMapping>,
}

#[derive(Serialize, Deserialize)]
struct RememberedMapping {
    address: IpAddr,
    protocol: u8,
    port: u16,
    network: String,
    external_port: u16,
    nonce: Option<message::Nonce>,
    peers: Vec<(IpNet, u16)>,
    until: u64,
}

impl Remembered {
    fn of(server: &Server, now: Instant) -> Self {
        let boottime = linux::clock::boottime_ms();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mappings = server.mappings().map(|(internal, mapping)| RememberedMapping {
            address: internal.address,
            protocol: internal.transport.number(),
            port: internal.port,
            network: mapping.network.clone(),
            external_port: mapping.external_port,
            nonce: mapping.nonce,
            peers: mapping.peers.clone(),
            until: boottime + ms(mapping.until.saturating_duration_since(now)),
        });
        Remembered {
            epoch: boottime.saturating_sub(ms(now.saturating_duration_since(server.epoch()))),
            external: server.last_external(),
            mappings: mappings.collect(),
        }
    }

    fn server(self, now: Instant) -> Server {
        let boottime = linux::clock::boottime_ms();
        let mappings = self.mappings.into_iter().filter_map(|remembered| {
            let RememberedMapping { address, protocol, port, network, external_port, nonce, peers, until } =
                remembered;
            let left = Duration::from_millis(until.saturating_sub(boottime).min(u32::MAX.into()));
            let internal = Internal { address, transport: Transport::of(protocol)?, port };
            Some((internal, Mapping { network, external_port, nonce, peers, until: now + left }))
        });
        let passed = Duration::from_millis(boottime.saturating_sub(self.epoch));
        Server::going_on(mappings, self.external, now.checked_sub(passed).unwrap_or(now))
    }
}

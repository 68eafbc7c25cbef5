//! A transition tunnel of an uplink: its device, the programs that carry packets in the kernel ([`programs::transition`]; of a
//! CLAT [`programs::nat64::clat`]), and the socket for those that they leave.
//!
//! Invariants:
//! - The device, the programs and the sockets go with the process, also when it crashes.
//! - A packet that the programs leave is judged by the same rules (`router::transition`).
//! - The outer address is that of the interface below, from one change of it to the next; a CLAT's is one of its own, which the
//!   plan gives that interface.

mod leftover;
mod tables;
#[cfg(test)]
mod tests;

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};
use linux::bpf::attach::{Attachment, Direction, attach_to_own_device};
use linux::bpf::{Program, ProgramKind};
use linux::event::{Interest, Poller};
use linux::icmp_tap::{IcmpTap, Messages};
use linux::netlink::{Address, Link, Netlink};
use linux::tun::{self, Offloads, Queue, VNET_HEADER};
use linux::undo::Journal;
use router::lifetime::Lifetime;
use router::plan;
use router::site::Uplink;
use router::transition::{Endpoint, ErrorReport, Kind, PathMtu, Provider, Refusal, Tunnel};
use tracing::{info, warn};
use wire::segment::Segmenter;
use wire::virtio_net;

use super::link::BATCH;
use super::random::random;
use leftover::{Leftover, fitting};
use programs::nat64::{self, Clat};
use programs::transition::{Counts, Settings, incoming, outgoing};
use tables::{Tables, Traffic, kernel_decapsulates};

/// Bytes of an Ethernet header.
const ETHERNET: u8 = 14;
/// Longer than any packet.
const LONGEST: usize = 1 << 16;
/// Of the descriptors of a tunnel, what is added to its number.
const TOKENS: u64 = 4;
/// Errors that inner senders get in a second.
const MOST_ERRORS: u32 = 100;

/// A tunnel, from its device's making to its end.
pub(super) struct Interface {
    uplink: String,
    interface: String,
    /// As it is configured, and what the provider tells beside that.
    pub(super) tunnel: Tunnel,
    provider: Provider,
    prefixes: Vec<Ipv6Net>,
    /// Addresses of ours in the tunnel, to answer from.
    addresses: Vec<IpAddr>,
    index: u32,
    queue: Queue,
    token: u64,
    tables: Tables,
    over: Option<Over>,
    pub(super) end: Option<Endpoint>,
    /// To whom packets for the only other end are given, where the next hop is known and need not be looked up for each.
    neighbor: Option<IpAddr>,
    /// Whether the kernel does not have all of what is so: what it refused is tried again.
    is_behind: bool,
    pub(super) mtu: u32,
    path_mtu: PathMtu,
    /// A router has just said something about the path.
    learned: bool,
    /// Packets that the programs left to this process.
    slow_path: Counts,
    /// Errors that inner senders got since then.
    errors_sent: (Instant, u32),
    /// There is no device any more.
    gone: bool,
    buffer: Vec<u8>,
}

/// What there is of a tunnel at the interface that carries it.
struct Over {
    link: Link,
    incoming: Attachment,
    _outgoing: Attachment,
    leftover: Leftover,
    errors: IcmpTap,
}

impl Over {
    fn leave(&self, poller: &Poller) {
        // What is closed leaves the set by itself.
        self.leftover.leave(poller);
        let _ = poller.remove(&self.errors);
    }
}

impl Interface {
    /// Makes the device of an uplink that is a tunnel. `first` is the number of its first descriptor, of
    /// [`Interface::tokens`].
    pub(super) fn open(
        uplink: &Uplink,
        tunnel: &Tunnel,
        poller: &Poller,
        netlink: &mut Netlink,
        first: u64,
    ) -> linux::Result<Self> {
        let mut device = tun::create(&uplink.interface, 1, Offloads::Checksums)?;
        let Some(queue) = device.queues.pop() else { unreachable!("a device has a queue") };
        let mtu = tunnel.mtu.unwrap_or(tunnel.kind.min_mtu());
        netlink.set_link_mtu(device.index, mtu)?;
        netlink.set_link_up(device.index, true)?;
        poller.add(&queue, first, Interest::Readable)?;
        Ok(Interface {
            uplink: uplink.name.clone(),
            interface: uplink.interface.clone(),
            tunnel: tunnel.clone(),
            provider: Provider::default(),
            prefixes: uplink.prefixes.clone(),
            addresses: uplink.addresses.iter().map(IpNet::addr).collect(),
            index: device.index,
            queue,
            token: first,
            tables: Tables::new(&tunnel.kind)?,
            over: None,
            end: None,
            neighbor: None,
            is_behind: false,
            mtu,
            path_mtu: PathMtu::default(),
            learned: false,
            slow_path: Counts::default(),
            errors_sent: (Instant::now(), 0),
            gone: false,
            buffer: vec![0; VNET_HEADER + LONGEST],
        })
    }

    /// How many numbers a tunnel takes.
    pub(super) const fn tokens() -> u64 {
        TOKENS
    }

    /// Whether it is that of this uplink, as it is configured.
    pub(super) fn is_of(&self, uplink: &Uplink) -> bool {
        self.uplink == uplink.name
            && self.interface == uplink.interface
            && self.addresses.iter().copied().eq(uplink.addresses.iter().map(IpNet::addr))
            && self.prefixes == uplink.prefixes
            && uplink.tunnel.as_ref() == Some(&self.tunnel)
    }

    /// Whether packets can leave.
    pub(super) fn is_up(&self) -> bool {
        self.end.is_some() && self.over.as_ref().is_some_and(|over| over.link.running)
    }

    /// The provider tells this now. Whether it is something else than before: then the tunnel is to [follow](Self::follow).
    pub(super) fn set_provider(&mut self, provider: Provider) -> bool {
        self.is_behind |= std::mem::replace(&mut self.provider, provider) != provider;
        self.is_behind
    }

    /// Who has told the prefix of the provider's translator, of a CLAT that has an end.
    pub(super) fn plat_from(&self) -> Option<&'static str> {
        self.end.as_ref()?.kind.plat()?;
        Some(match (self.tunnel.kind.plat(), self.provider.plat_by_name) {
            (Some(_), _) => "configuration",
            (None, false) => "routers",
            (None, true) => "names",
        })
    }

    /// The address that a CLAT has at the interface below. Nothing that begins here comes from it.
    pub(super) fn own_address(&self) -> Option<plan::Address> {
        let (Kind::Clat { .. }, Some(end)) = (&self.tunnel.kind, &self.end) else { return None };
        Some(plan::Address {
            interface: self.tunnel.over.clone(),
            address: IpNet::from(end.local),
            preferred: Lifetime::Expired,
            valid: Lifetime::Infinite,
        })
    }

    /// Interfaces or addresses may have changed: the tunnel follows. Whether it is another now.
    ///
    /// # Errors
    /// What the kernel refused; it is tried again the next time.
    pub(super) fn follow(
        &mut self,
        links: &[Link],
        netlink: &mut Netlink,
        journal: &mut Journal,
        poller: &Poller,
    ) -> linux::Result<bool> {
        self.is_behind = true;
        let was_up = self.is_up();
        let link = links.iter().find(|link| link.name == self.tunnel.over);
        let known = self.over.as_ref().map(|over| (over.link.index, over.link.mac));
        if known != link.map(|link| (link.index, link.mac)) {
            if let Some(over) = self.over.take() {
                over.leave(poller);
                journal.detach(netlink, over.incoming)?;
            }
            if let Some(link) = link {
                self.over = Some(self.attach(link, journal, poller)?);
            }
        }
        if let (Some(over), Some(link)) = (&mut self.over, link) {
            over.link = link.clone();
        }
        let end = match link {
            Some(link) => {
                let before = self.end.as_ref().map(|end| end.local);
                end_at(
                    &self.tunnel.with(&self.provider),
                    &self.prefixes,
                    &netlink.addresses(link.index)?,
                    before,
                )
            }
            None => None,
        };
        let neighbor = self.find_neighbor(end.as_ref(), netlink);
        if end != self.end || neighbor != self.neighbor {
            self.tables.set_end(end.as_ref(), neighbor)?;
            self.neighbor = neighbor;
        }
        if end != self.end {
            self.path_mtu.forget();
            match &end {
                Some(end) => info!("uplink {}: tunnel from {}", self.uplink, end.local),
                None => warn!("uplink {}: the tunnel has no end: {}", self.uplink, self.without_end()),
            }
        }
        let is_another = std::mem::replace(&mut self.end, end.clone()) != end;
        self.set_mtu(netlink)?;
        self.is_behind = false;
        Ok(is_another || self.is_up() != was_up)
    }

    /// Routes or neighbors may have changed: packets go where they lead now.
    pub(super) fn follow_route(&mut self, netlink: &mut Netlink) -> linux::Result<()> {
        let neighbor = self.find_neighbor(self.end.as_ref(), netlink);
        if neighbor != self.neighbor {
            self.tables.set_end(self.end.as_ref(), neighbor)?;
            self.neighbor = neighbor;
        }
        Ok(())
    }

    /// The neighbor that packets to the only other end are given to. None where there are many ends, where the kernel would
    /// not send them by the interface below, and where the neighbor is not known yet or any more.
    ///
    /// The kernel sends elsewhere what a CLAT sends to the prefix that is `[nat64]`'s here, too: its way is by the router below.
    fn find_neighbor(&self, end: Option<&Endpoint>, netlink: &mut Netlink) -> Option<IpAddr> {
        let (over, end) = (self.over.as_ref()?.link.index, end?);
        let remote = end.kind.next_hop_towards()?;
        let hop = netlink.route_by(over, end.local, remote).ok()?;
        let Some(hop) = hop.filter(|hop| !hop.local && hop.index == over) else {
            return self.provider.router.filter(|_| end.kind.plat().is_some()).map(IpAddr::V6);
        };
        let next = hop.gateway.unwrap_or(remote);
        netlink.neighbor(over, next).ok()?.filter(|neighbor| neighbor.usable).map(|_| next)
    }

    /// Whether packets leave by the interface of that index.
    pub(super) fn is_over(&self, index: u32) -> bool {
        self.over.as_ref().is_some_and(|over| over.link.index == index)
    }

    fn attach(&self, link: &Link, journal: &mut Journal, poller: &Poller) -> linux::Result<Over> {
        let over = (link.index, if link.mac.is_some() { ETHERNET } else { 0 });
        let device = (self.index, 0);
        let load = |code| Program::load(ProgramKind::SchedCls, &code);
        let (incoming, outgoing) = match &self.tables {
            Tables::Tunnel(tables) => {
                let settings = Settings {
                    kind: &self.tunnel.kind,
                    hop_limit: self.tunnel.hop_limit,
                    over,
                    device,
                    decapsulates: kernel_decapsulates()?,
                };
                (load(incoming(&settings, tables))?, load(outgoing(&settings, tables))?)
            }
            Tables::Clat(tables) => {
                let settings = Clat { device, over };
                (load(nat64::steering(&settings, tables))?, load(nat64::clat(&settings, tables))?)
            }
        };
        let leftover = Leftover::open(&self.tunnel.kind, self.index, link)?;
        leftover.join(poller, self.token + 1)?;
        let messages =
            if self.tunnel.kind.is_over_ipv6() { Messages::Icmpv6Errors } else { Messages::Icmpv4Errors };
        let errors = IcmpTap::open(link.index, over.1, messages)?;
        poller.add(&errors, self.token + 2, Interest::Readable)?;
        Ok(Over {
            link: link.clone(),
            incoming: journal.attach(&incoming, link.index, Direction::Ingress)?,
            _outgoing: attach_to_own_device(&outgoing, self.index, Direction::Egress)?,
            leftover,
            errors,
        })
    }

    /// What all of the way takes, as far as is known.
    fn wanted_mtu(&self) -> u32 {
        let kind = &self.tunnel.kind;
        let below = self.over.as_ref().map(|over| over.link.mtu.saturating_sub(kind.overhead()));
        let limits = below.into_iter().chain(self.tunnel.mtu).chain(self.path_mtu.limit());
        limits.min().unwrap_or(0).max(kind.min_mtu())
    }

    fn set_mtu(&mut self, netlink: &mut Netlink) -> linux::Result<()> {
        let mtu = self.wanted_mtu();
        if mtu != self.mtu {
            netlink.set_link_mtu(self.index, mtu)?;
            self.mtu = mtu;
        }
        Ok(())
    }

    /// Why it cannot carry what it should, in words for who runs the gateway.
    pub(super) fn problem(&self) -> Option<String> {
        let Interface { uplink, tunnel: Tunnel { kind, over, .. }, .. } = self;
        let Some(below) = &self.over else {
            return Some(format!("uplink {uplink}: there is no interface {over} to carry its tunnel"));
        };
        let needed = kind.min_mtu() + kind.overhead();
        if self.end.is_none() {
            return Some(format!("uplink {uplink}: {}", self.without_end()));
        }
        (below.link.mtu < needed).then(|| {
            format!(
                "uplink {uplink}: {over} carries packets of {} bytes, and its tunnel needs {needed}",
                below.link.mtu
            )
        })
    }

    /// Why there is no end of it here.
    fn without_end(&self) -> String {
        let Tunnel { kind, over, .. } = self.tunnel.with(&self.provider);
        if matches!(kind, Kind::Clat { plat: None }) {
            return format!(
                "no router at {over} names a prefix for NAT64 (RFC 8781), nor do its name servers (RFC 7050): write the \
                 provider's as `prefix`"
            );
        }
        if matches!(kind, Kind::FourInSix { remote: None }) {
            return format!(
                "no AFTR is known: DHCPv6 at {over} has brought no name, or it has no address yet"
            );
        }
        let version = if kind.is_over_ipv6() { "IPv6" } else { "IPv4" };
        let what = if kind.plat().is_some() { "prefix" } else { "address" };
        format!("{over} has no {what} of {version} that {} can use", kind.name())
    }

    /// What has crossed, in the kernel and by way of us.
    pub(super) fn traffic(&self) -> Traffic {
        self.tables.traffic(&self.slow_path)
    }

    /// Whether the descriptor of this number is one of the tunnel's.
    pub(super) fn owns(&self, token: u64) -> bool {
        (self.token..self.token + TOKENS).contains(&token)
    }

    /// The descriptor of this number, of the tunnel's own, can be read.
    pub(super) fn handle_readable(&mut self, token: u64) {
        for _ in 0..BATCH {
            let more = match token - self.token {
                0 => self.encapsulate_next(),
                1 => self.decapsulate_next(),
                _ => self.receive_error(),
            };
            if !more {
                break;
            }
        }
    }

    /// A packet that the kernel did not encapsulate. Whether there was one.
    fn encapsulate_next(&mut self) -> bool {
        let length = match self.queue.read(&mut self.buffer) {
            Ok(Some(length)) => length,
            Ok(None) => return false,
            // Somebody has deleted the device (EBADFD): it can be read for ever, and nothing will come.
            Err(error) => {
                warn!("uplink {}: {} is gone, and is made anew: {error}", self.uplink, self.interface);
                self.gone = true;
                return false;
            }
        };
        let (Some((header, packet)), Some(end), Some(over)) = (
            self.buffer.get_mut(..length).and_then(|read| read.split_first_chunk_mut::<VNET_HEADER>()),
            &self.end,
            &self.over,
        ) else {
            return true;
        };
        // Its checksum may be left to us.
        if Segmenter::new(&virtio_net::Header::from_bytes(header), packet).is_err() {
            self.slow_path.refused[Refusal::Malformed as usize] += 1;
            return true;
        }
        let socket = match &over.leftover {
            Leftover::Tunnel(socket) => socket,
            // It gets what it lacked, and leaves by the device once more. What that does not take, being down, is lost.
            Leftover::Clat(device) => {
                crate::nat64::add_checksum(packet);
                for piece in fitting(packet, self.mtu as usize, random() as u32) {
                    let _ = device.send(&piece);
                }
                return true;
            }
        };
        let mut outer = Vec::new();
        match end.encapsulate(packet, random() as u16, &mut outer) {
            Ok(()) => {
                match socket.send(&outer) {
                    Ok(true) => {
                        self.slow_path.tx_packets += 1;
                        self.slow_path.tx_bytes += packet.len() as u64;
                    }
                    // As any packet for which there is no room.
                    Ok(false) => {}
                    Err(error) => warn!("uplink {}: {error}", self.uplink),
                }
            }
            Err(refusal) => self.slow_path.refused[refusal as usize] += 1,
        }
        true
    }

    /// A packet that the program did not take: it came in fragments, or with options. Whether there was one.
    fn decapsulate_next(&mut self) -> bool {
        let Some(Over { leftover: Leftover::Tunnel(socket), .. }) = &self.over else { return false };
        let Ok(Some(length)) = socket.recv(&mut self.buffer) else { return false };
        let Some(end) = &self.end else { return true };
        match end.decapsulate(&self.buffer[..length]) {
            Ok(Some(inner)) => {
                // A packet that makes no sense to the kernel is lost.
                let _ = self.queue.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&inner)]);
                self.slow_path.rx_packets += 1;
                self.slow_path.rx_bytes += inner.len() as u64;
            }
            Ok(None) => {}
            // The program has counted it.
            Err(Refusal::Stranger) => {}
            Err(refusal) => self.slow_path.refused[refusal as usize] += 1,
        }
        true
    }

    /// An error about a packet of ours, perhaps. Whether there was one.
    fn receive_error(&mut self) -> bool {
        let Some(over) = &mut self.over else { return false };
        let Ok(Some(length)) = over.errors.recv(&mut self.buffer) else { return false };
        let link = if over.link.mac.is_some() { usize::from(ETHERNET) } else { 0 };
        let (Some(packet), Some(end)) = (self.buffer.get(link..length), &self.end) else { return true };
        let Some(ErrorReport { path_mtu, answer }) = end.handle_icmp_error(packet, self.answers_from(end))
        else {
            return true;
        };
        // Where there are many other ends, each packet that is too large is answered by itself.
        if let (Some((_, mtu)), true) = (path_mtu, end.kind.next_hop_towards().is_some()) {
            self.path_mtu.learn(mtu, Instant::now());
            self.learned = true;
        }
        if let Some(answer) = answer.filter(|_| self.may_send_error()) {
            let _ = self.queue.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&answer)]);
        }
        true
    }

    /// Our address that errors come from.
    fn answers_from(&self, end: &Endpoint) -> IpAddr {
        let ipv4 = self.tunnel.kind.is_over_ipv6();
        let own = end
            .local_prefixes
            .first()
            .map(|own| IpAddr::V6(Ipv6Addr::from_bits(own.network().to_bits() | 1)));
        // The dummy address of RFC 7600, of hosts without one of IPv4.
        let standard = if ipv4 {
            IpAddr::V4(Ipv4Addr::new(192, 0, 0, 8))
        } else {
            own.unwrap_or(Ipv6Addr::LOCALHOST.into())
        };
        self.addresses.iter().copied().find(|address| address.is_ipv4() == ipv4).unwrap_or(standard)
    }

    /// Whether one more error may be sent to an inner sender (RFC 4443 section 2.4 f).
    fn may_send_error(&mut self) -> bool {
        let now = Instant::now();
        if now.saturating_duration_since(self.errors_sent.0) >= Duration::from_secs(1) {
            self.errors_sent = (now, 0);
        }
        self.errors_sent.1 += 1;
        self.errors_sent.1 <= MOST_ERRORS
    }

    /// When [`Interface::handle_timeout`] wants to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.learned { Some(Instant::now()) } else { self.path_mtu.deadline() }
    }

    /// Has the device take what the path takes.
    pub(super) fn handle_timeout(&mut self, netlink: &mut Netlink, now: Instant) {
        self.learned = false;
        self.path_mtu.expire(now);
        if let Err(error) = self.set_mtu(netlink) {
            warn!("uplink {}: {error}", self.uplink);
        }
    }

    /// Whether somebody has deleted the device.
    pub(super) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Detaches what would outlive the device on kernels before Linux 6.6.
    pub(super) fn close(self, netlink: &mut Netlink, journal: &mut Journal, poller: &Poller) {
        let _ = poller.remove(&self.queue);
        if let Some(over) = self.over {
            over.leave(poller);
            if let Err(error) = journal.detach(netlink, over.incoming) {
                warn!("uplink {}: {error}", self.uplink);
            }
        }
    }
}

/// The end of a tunnel: at the address that is configured, or at the first one of the interface that is good for it.
fn end_at(
    tunnel: &Tunnel,
    prefixes: &[Ipv6Net],
    found: &[Address],
    before: Option<IpAddr>,
) -> Option<Endpoint> {
    let end = |local| Endpoint::new(tunnel, local, prefixes);
    if let Kind::Clat { .. } = tunnel.kind {
        return tunnel.local.and_then(end);
    }
    // What it had stays as long as it is there, whatever else comes.
    let kept = before.filter(|before| found.iter().any(|found| found.address.addr() == *before));
    if let Some(local) = tunnel.local.or(kept) {
        return end(local);
    }
    let usable = |deprecated| {
        let usable = found
            .iter()
            .filter(move |found| found.global && !found.tentative && found.deprecated == deprecated);
        usable.map(|found| found.address.addr())
    };
    usable(false).chain(usable(true)).find_map(end)
}

//! The transparent mode: this gateway stands between its hosts and their router, and neither sees it.
//!
//! Frames cross over in the kernel ([`linux::transparent`]); what decides over them are tables that are kept here. The
//! kernel thread deals with neighbor and router discovery ([`discovery`]), and makes the routes by which outer packets
//! find the router that was learned.

mod discovery;
mod link_file;

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};
use linux::bpf::attach::Attachment;
use linux::netlink::{Link, NeighborState, Netlink, Route, Via};
use linux::packet::{PacketOptions, PacketSocket, SOLICITATIONS_AND_ROUTERS};
use linux::transparent::{FramePrograms, HoppingEndpoint, Remote, Settings, Tables, TunnelProgram};
use linux::undo::Journal;
use tracing::{debug, info, warn};
use wire::ethernet::MacAddress;
use wire::ndp::NeighborSolicitation;

use crate::error::Error;
use config::TunnelConfig;
use link_file::LinkFile;

/// What keeps the outer interface quiet, and the inner one silent.
const OUTSIDE: [(&str, &str); 5] = [
    ("accept_ra", "0"),
    ("autoconf", "0"),
    ("router_solicitations", "0"),
    ("dad_transmits", "0"),
    ("accept_redirects", "0"),
];
const INSIDE: [(&str, &str); 1] = [("disable_ipv6", "1")];

/// How long hopping addresses of the classic profile are kept from the hosts when they are not in use any more: longer
/// than a neighbor is asked for.
const RETIRE: Duration = Duration::from_secs(120);

/// A router of the link, as it advertises itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Router {
    address: Ipv6Addr,
    mac: MacAddress,
}

/// What all threads share.
pub(super) struct TransparentGateway {
    settings: Settings,
    tables: Tables,
    tunnel: TunnelProgram,
    inside: PacketSocket,
    outside: PacketSocket,
    /// Networks of the link.
    link: Vec<Ipv6Net>,
    router: Mutex<Option<Router>>,
    /// Hopping addresses that are not in use any more, and since when.
    retired: Mutex<VecDeque<(Instant, Ipv6Addr)>>,
}

impl TransparentGateway {
    /// Has what is written to a TUN device of ours go where it belongs, as long as what is returned lives.
    pub(super) fn attach_to(&self, device: u32) -> linux::Result<Attachment> {
        self.tunnel.attach(device)
    }

    /// What is for a remote host or network goes to that TUN device.
    pub(super) fn add_remote(&self, prefix: Ipv6Net, device: u32) -> linux::Result<()> {
        let same_link = self.link.iter().any(|link| link.contains(&prefix));
        self.tables.add_remote(prefix, Remote { device, same_link })
    }

    /// No longer.
    pub(super) fn remove_remote(&self, prefix: Ipv6Net) -> linux::Result<()> {
        self.tables.remove_remote(prefix)
    }

    /// Two hopping addresses are in use, one of this side, heard on a device or on a socket, and one of a peer.
    pub(super) fn open(
        &self,
        local: Ipv6Addr,
        device: Option<u32>,
        remote: Option<Ipv6Addr>,
    ) -> linux::Result<()> {
        self.tables.add_hopping(local, device.map_or(HoppingEndpoint::Socket, HoppingEndpoint::Device))?;
        if let Some(remote) = remote {
            self.tables.add_hopping(remote, HoppingEndpoint::Peer)?;
        }
        if device.is_some() {
            self.introduce(local);
        }
        Ok(())
    }

    /// Sees that a peer's hopping address, if it is on this link, need not be found when something is to be sent to it:
    /// the peer has the hardware address that it has at its earlier ones. It may not answer for the new one yet.
    pub(super) fn prepare(
        &self,
        remote: Ipv6Addr,
        earlier: impl Iterator<Item = Ipv6Addr>,
        netlink: &mut Netlink,
    ) -> linux::Result<()> {
        if !self.link.iter().any(|link| link.contains(&remote)) {
            return Ok(());
        }
        let index = self.settings.outside.0;
        for earlier in earlier.filter(|earlier| *earlier != remote) {
            let entry = netlink.neighbor(index, IpAddr::V6(earlier))?;
            if let Some(mac) = entry.filter(|entry| entry.usable).and_then(|entry| entry.mac) {
                return match netlink.add_neighbor(index, remote, mac, NeighborState::Reachable) {
                    Err(error) if error.already_exists() => Ok(()),
                    result => result,
                };
            }
        }
        // The kernel finds the first one when there is a packet for it: by then the peer answers, and nobody else is
        // asked for an address that nobody has yet.
        Ok(())
    }

    /// Takes back what was prepared.
    pub(super) fn forget(&self, remote: Ipv6Addr, netlink: &mut Netlink) {
        if let Err(error) = netlink.delete_neighbor(self.settings.outside.0, remote) {
            debug!("{error}");
        }
    }

    /// They are no longer. Those of the classic profile, which any address of the link could be, are kept from the hosts
    /// for a while: somebody may still ask for them.
    pub(super) fn close(&self, local: Ipv6Addr, device: Option<u32>, remote: Option<Ipv6Addr>) {
        let result = [Some(local), remote].into_iter().flatten().try_for_each(|address| match device {
            Some(_) => self.retire(address),
            None => self.tables.remove_hopping(address),
        });
        if let Err(error) = result {
            debug!("{error}");
        }
    }

    fn retire(&self, address: Ipv6Addr) -> linux::Result<()> {
        let mut retired = self.retired.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, old)) = retired.front().filter(|(since, _)| since.elapsed() > RETIRE) {
            self.tables.remove_hopping(*old)?;
            retired.pop_front();
        }
        retired.push_back((Instant::now(), address));
        self.tables.add_hopping(address, HoppingEndpoint::Peer)
    }

    /// Makes the router hold an entry for an address before traffic for it comes.
    fn introduce(&self, from: Ipv6Addr) {
        let Some(router) = self.router() else { return };
        let solicitation = NeighborSolicitation {
            source: from,
            destination: router.address,
            target: router.address,
            source_link_layer: self.settings.outside.1,
        };
        if let Err(error) = self.outside.send(&solicitation.to_frame(router.mac)) {
            debug!("{error}");
        }
    }

    fn router(&self) -> Option<Router> {
        *self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the kernel thread has of it.
pub(super) struct Transparent {
    pub(super) gateway: Arc<TransparentGateway>,
    _frame_programs: FramePrograms,
    _tunnel: Attachment,
    link_file: LinkFile,
    /// Networks behind the router that outer packets go to, and the router that the routes lead to.
    remote: Vec<Ipv6Net>,
    routed_by: Option<Ipv6Addr>,
    /// Hosts whose hardware address the configuration has.
    configured: HashSet<Ipv6Addr>,
    link_mtu: u32,
    /// Tells the inner MTU.
    config: Box<TunnelConfig>,
}

impl Transparent {
    /// Sets it up. `device` is the TUN device of the moving-target profile.
    pub(super) fn open(
        config: &TunnelConfig,
        external: &Link,
        device: u32,
        state_dir: &Path,
        netlink: &mut Netlink,
        journal: &mut Journal,
    ) -> Result<Option<Self>, Error> {
        let Some(transparent) = &config.node.transparent else { return Ok(None) };
        let internal = &transparent.internal;
        let internal = netlink.link_by_name(internal)?.ok_or_else(|| Error::NoInternal(internal.clone()))?;
        let mac = |link: &Link| {
            let no_mac = || Error::Limit(format!("[node]: {} is not an Ethernet interface", link.name));
            link.mac.ok_or_else(no_mac)
        };
        let settings = Settings {
            inside: (internal.index, mac(&internal)?),
            outside: (external.index, mac(external)?),
            pass_others: transparent.pass_others,
        };
        if internal.mtu != external.mtu {
            warn!(
                "{} has MTU {} and {} {}: frames that are too long for one of them are lost",
                internal.name, internal.mtu, external.name, external.mtu
            );
        }
        for (link, parameters) in [(&internal, &INSIDE[..]), (external, &OUTSIDE)] {
            for (name, value) in parameters {
                journal.set_parameter(&link.name, name, value)?;
            }
            netlink.set_link_up(link.index, true)?;
        }
        let tables = Tables::create()?;
        let link_file = LinkFile::load(state_dir, &config.tunnel.name);
        let hosts = transparent.hosts(&config.classic);
        for host in &hosts {
            tables.protect(host.address, host.mac.or_else(|| link_file.host(host.address)))?;
        }
        let options = PacketOptions {
            filter: Some(SOLICITATIONS_AND_ROUTERS),
            promiscuous: true,
            all_multicast: true,
            ..PacketOptions::default()
        };
        let tunnel = TunnelProgram::load(&settings, &tables)?;
        let attached = tunnel.attach(device)?;
        let gateway = TransparentGateway {
            inside: PacketSocket::open(internal.index, &options)?,
            outside: PacketSocket::open(external.index, &options)?,
            settings,
            tables,
            tunnel,
            link: config.link_networks(),
            router: Mutex::default(),
            retired: Mutex::default(),
        };
        for prefix in config.peers.iter().flat_map(|peer| &peer.allowed_ips) {
            if let IpNet::V6(prefix) = prefix {
                gateway.add_remote(prefix.trunc(), device)?;
            }
        }
        for prefix in hop_prefixes(config) {
            gateway.tables.add_hop_prefix(prefix)?;
        }
        for network in &gateway.link {
            let route = Route::device(IpNet::V6(*network), external.index);
            add_route(netlink, journal, route)?;
        }
        let frame_programs = FramePrograms::open(&gateway.settings, &gateway.tables, journal)?;
        let mut this = Transparent {
            gateway: Arc::new(gateway),
            _frame_programs: frame_programs,
            _tunnel: attached,
            remote: config.remote_networks(),
            routed_by: None,
            configured: hosts.iter().filter(|host| host.mac.is_some()).map(|host| host.address).collect(),
            link_mtu: external.mtu,
            config: Box::new(config.clone()),
            link_file,
        };
        if let Some((address, mac)) = this.link_file.router() {
            this.learn_router(Router { address, mac }, netlink, journal);
        }
        this.solicit_router();
        info!("transparent between {} and {}", internal.name, external.name);
        Ok(Some(this))
    }

    /// What there is to wait for.
    pub(super) fn sockets(&self) -> [&PacketSocket; 2] {
        [&self.gateway.inside, &self.gateway.outside]
    }

    /// The outer interface has another MTU.
    pub(super) fn set_link_mtu(&mut self, mtu: u32) {
        self.link_mtu = mtu;
    }

    /// Another configuration: other peers.
    pub(super) fn apply(&mut self, config: &TunnelConfig, device: u32) -> linux::Result<()> {
        let remote = |config: &TunnelConfig| -> HashSet<Ipv6Net> {
            let all = config.peers.iter().flat_map(|peer| &peer.allowed_ips);
            all.filter_map(|net| if let IpNet::V6(net) = net { Some(net.trunc()) } else { None }).collect()
        };
        let (old, new) = (remote(&self.config), remote(config));
        new.difference(&old).try_for_each(|prefix| self.gateway.add_remote(*prefix, device))?;
        old.difference(&new).try_for_each(|prefix| self.gateway.remove_remote(*prefix))?;
        let (old, new) = (hop_prefixes(&self.config), hop_prefixes(config));
        new.difference(&old).try_for_each(|prefix| self.gateway.tables.add_hop_prefix(*prefix))?;
        old.difference(&new).try_for_each(|prefix| self.gateway.tables.remove_hop_prefix(*prefix))?;
        *self.config = config.clone();
        Ok(())
    }

    /// Whether the router is not known yet.
    pub(super) fn lacks_router(&self) -> bool {
        self.gateway.router().is_none()
    }

    /// What is for a peer goes by the router that was heard of last.
    fn learn_router(&mut self, router: Router, netlink: &mut Netlink, journal: &mut Journal) {
        let known = self.gateway.router.lock().unwrap_or_else(PoisonError::into_inner).replace(router);
        if known == Some(router) {
            return;
        }
        info!("the router of this link is {}, at {}", router.address, router.mac);
        if let Err(error) = self.gateway.tables.set_router(router.mac) {
            warn!("{error}");
        }
        self.link_file.remember_router(router.address, router.mac);
        let index = self.gateway.settings.outside.0;
        let route = |network: &Ipv6Net, address: Ipv6Addr| Route {
            destination: IpNet::V6(*network),
            via: Via::Link {
                index,
                gateway: Some(IpAddr::V6(address)),
                mtu: None,
                metric: None,
                source: None,
            },
        };
        if self.routed_by == Some(router.address) {
            return;
        }
        for network in &self.remote {
            if let Some(before) = self.routed_by
                && let Err(error) = journal.delete_route(netlink, &route(network, before))
            {
                debug!("{error}");
            }
            if let Err(error) = add_route(netlink, journal, route(network, router.address)) {
                warn!("{error}");
            }
        }
        self.routed_by = Some(router.address);
    }
}

/// Where this gateway hops and its peers do, but for the classic profile, whose addresses could be any of the link.
fn hop_prefixes(config: &TunnelConfig) -> HashSet<Ipv6Net> {
    let own = (!config.is_classic()).then_some(config.node.hop_prefix);
    config.peers.iter().map(|peer| peer.hop_prefix).chain(own).map(|prefix| prefix.trunc()).collect()
}

/// Adds a route; where somebody did already, theirs serves, and stays.
fn add_route(netlink: &mut Netlink, journal: &mut Journal, route: Route) -> linux::Result<()> {
    match journal.add_route(netlink, route) {
        Err(error) if error.already_exists() => Ok(()),
        result => result,
    }
}

//! Before the first turn: the device, what the kernel is to have, and a node. Or nothing of it.

use std::path::Path;
use std::time::{Duration, Instant};

use config::run::{Feature, RunOptions};
use config::{Mode, TunnelConfig};
use ipnet::{IpNet, Ipv6Net};
use linux::netlink::Netlink;
use linux::{tun, udp};
use mt6d::Node;
use mt6d::config::NOWHERE;
use router_runtime::Unconfirmed;
use tracing::info;

use super::Daemon;
use super::last_word::Followers;
use crate::clock::Clock;
use crate::data::{DataPath, TUN_QUEUES};
use crate::error::Error;
use crate::evidence::Evidence;
use crate::kernel::Kernel;
use crate::names::Names;
use crate::peer_file::PeerFile;
use crate::standby::Turns;
use crate::wrap::Wrapped;
use crate::{classic, limits, machine};

/// A daemon that was killed while it started a program leaves its device to that for a moment.
const DEVICE_HELD: Duration = Duration::from_secs(1);

impl Daemon {
    pub(super) fn set_up(
        options: &RunOptions,
        mut config: TunnelConfig,
        socket: &Path,
    ) -> Result<Self, Error> {
        if config.standby.is_some() {
            // Until it is its turn.
            config.node.hop_prefix = NOWHERE;
        }
        let without = |feature| options.test_without.contains(&feature);
        let offloads = match () {
            () if without(Feature::TunOffload) => tun::Offloads::None,
            () if without(Feature::TunUdpOffload) => tun::Offloads::Tcp,
            () => tun::Offloads::TcpAndUdp,
        };
        let queues = if without(Feature::TunQueues) { 1 } else { TUN_QUEUES };
        let device = create(&config.tunnel.name, queues, offloads)?;
        if let Some(error) = &device.unsteered {
            info!("all flows share one queue, where a large one delays the others: {error}");
        }
        let interface = if is_bound(&config) {
            Netlink::open()?.link_by_name(&config.node.external)?.map(|link| link.index)
        } else {
            None
        };
        let sockets = udp::EndpointOptions {
            interface,
            receive_offload: !without(Feature::UdpGro),
            segmentation: if without(Feature::UdpSegment) {
                udp::Segmentation::off().into()
            } else {
                udp::Segmentation::new().into()
            },
            ..udp::EndpointOptions::default()
        };
        let capacity = limits::shared_endpoints(&config);
        let shared = if without(Feature::SkLookup) {
            None
        } else {
            udp::SharedSocket::open(capacity, &sockets)
                .inspect_err(|error| info!("each rendezvous endpoint needs a socket of its own: {error}"))
                .ok()
        };
        let (capacity, lookup_table) = match &shared {
            Some(shared) => (capacity, Some(shared.lookup_table().clone())),
            None => (0, None),
        };
        limits::check(&config, capacity)?;
        let classic_kernel = classic::Loaded::new(&config, !without(Feature::Tcx))?;
        if let Some(folder) = socket.parent() {
            std::fs::create_dir_all(folder)?;
        }
        // The journal is that of a daemon that has died, not of one in another network namespace.
        control::remove_stale_socket(socket)?;
        let is_meant = options.confirm.is_none();
        let mut kernel = Kernel::open(&config, device.index, sockets, lookup_table, socket, is_meant)?;
        let link_mtu = kernel.link_mtu();
        let mut clock = Clock::new(options.test_clock_offset_ms);
        let mut peer_file =
            PeerFile::load(&options.state_dir, &config.tunnel.name, config.node.private_key.public());
        clock.not_before(peer_file.saved_ms());
        let hardware_aes = machine::has_aes() && !without(Feature::Aes);
        let mut gateway = None;
        let (mut rewrites, mut masks) = (None, None);
        let mut wrapped = Wrapped::default();
        let mut set_up = || -> Result<Node, Error> {
            kernel.take_over_link(&config)?;
            let wanted = config.peers.iter().any(|peer| peer.rewrite);
            rewrites = wanted.then(|| kernel.prepare_rewriting(&config, &without));
            masks = (!config.wraps.is_empty()).then(|| kernel.prepare_masking(&without));
            kernel.apply(&config)?;
            if !config.wraps.is_empty() {
                kernel.lead(wrapped.prepare(&mut config));
            }
            gateway = kernel.start_transparent(&config, &options.state_dir)?;
            let mut node_config =
                config.to_node_config(link_mtu, hardware_aes, rewrites == Some(true), masks == Some(true));
            if let Some(age) = options.test_rekey_after {
                node_config.rekey_after = age;
            }
            Ok(Node::new(node_config, &peer_file.take_peers(), machine::entropy()?, clock.now())?)
        };
        let node = match { set_up }() {
            Ok(node) => node,
            Err(error) => {
                kernel.close(is_meant);
                return Err(error);
            }
        };
        let started = clock.now().boot;
        let (data, parts) = match divided(device, config.tunnel.packet_threads()) {
            Ok((own, parts, offloads)) => {
                let part = |queues| DataPath::new(queues, offloads, None);
                (DataPath::new(own, offloads, shared), parts.into_iter().map(part).collect())
            }
            Err(error) => {
                kernel.close(is_meant);
                return Err(error.into());
            }
        };
        let evidence = Evidence::new(&config.node.external, config.node.hop_prefix);
        Ok(Daemon {
            file: options.file.clone(),
            config,
            node,
            clock,
            peer_file,
            key_log: None,
            data,
            parts,
            packet_threads: None,
            classic: Vec::new(),
            classic_drops: ::classic::Drops::default(),
            classic_kernel,
            kernel: Some(kernel),
            gateway,
            router: None,
            followed: None,
            turns: Turns::new(),
            scripts: None,
            started,
            link_mtu,
            shared: capacity,
            status_request: None,
            reloading: false,
            reload_again: Vec::new(),
            ending: false,
            dark: true,
            rules_restored: 0,
            followers: Followers::default(),
            evidence,
            names: Names::default(),
            unconfirmed: Unconfirmed::start(options.confirm),
            is_meant,
            hardware_aes,
            rewrites,
            masks,
            wrapped,
        })
    }
}

/// A device of this name, when nobody has it any longer.
fn create(name: &str, queues: usize, offloads: tun::Offloads) -> linux::Result<tun::Device> {
    let begin = Instant::now();
    loop {
        match tun::create(name, queues, offloads) {
            Err(error)
                if error.kind() == std::io::ErrorKind::ResourceBusy && begin.elapsed() < DEVICE_HELD =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            made => {
                // Where the kernel's parameters cannot be written, peers count what comes of it as drops.
                let _ = tun::without_link_address(name);
                return made;
            }
        }
    }
}

/// Whether the tunnel's own datagrams leave by the external interface, whatever routes and rules say: where a route into the
/// tunnel leads to the peers themselves, or may, as everywhere in the network of a host; and where one into a tunnel that
/// travels in this one does, as wg-quick's rule for everything that is not WireGuard's own.
pub(super) fn is_bound(config: &TunnelConfig) -> bool {
    config.node.mode == Mode::Host || !config.wraps.is_empty() || leads_to_peers(config)
}

/// Whether the hopping prefix of a peer, or a part of it, is behind the tunnel, too.
pub(super) fn leads_to_peers(config: &TunnelConfig) -> bool {
    let ipv6 = |prefix: &IpNet| if let IpNet::V6(prefix) = prefix { Some(*prefix) } else { None };
    let behind: Vec<_> = config.peers.iter().flat_map(|peer| &peer.allowed_ips).filter_map(ipv6).collect();
    // In order, and apart from each other.
    let behind = Ipv6Net::aggregate(&behind);
    let covered = |prefix: Ipv6Net| {
        let next = behind.partition_point(|network| network.broadcast() < prefix.network());
        behind.get(next).is_some_and(|network| network.network() <= prefix.broadcast())
    };
    config.peers.iter().any(|peer| covered(peer.hop_prefix))
}

/// The device's queues for this thread, and for each of so many packet threads, if it is more than one: then this one
/// reads none, but has one to write to. What the kernel does not divide by flows is not divided.
fn divided(
    device: tun::Device,
    threads: usize,
) -> linux::Result<(Vec<tun::Queue>, Vec<Vec<tun::Queue>>, tun::Offloads)> {
    let (mut queues, offloads) = (device.queues, device.offloads);
    if threads == 1 || queues.len() < threads {
        return Ok((queues, Vec::new(), offloads));
    }
    let own = vec![queues[0].try_clone()?];
    let mut parts: Vec<_> = (0..threads).map(|_| Vec::new()).collect();
    for (number, queue) in queues.drain(..).enumerate() {
        parts[number % threads].push(queue);
    }
    Ok((own, parts, offloads))
}

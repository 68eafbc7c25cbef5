//! What a configuration file describes.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use classic::packet::inner_mtu as classic_inner_mtu;
use ipnet::{IpNet, Ipv6Net};
use mt6d::config::{NodeConfig, PeerConfig, REKEY_AFTER};
use mt6d::overhead::CONTEXT;

use crate::classic::ClassicPeer;
use crate::names::PeerName;
use crate::node::Node;
use crate::report::Report;
use crate::router::RouterConfig;
use crate::script::Configured;
use crate::standby::Standby;
use crate::tunnel::Tunnel;
use crate::wrap::Wrap;

/// All that a configuration file describes: a tunnel, a router between networks, or one machine that is both.
#[derive(Debug, Clone)]
pub struct Config {
    /// Moving-target defense: tables `[node]`, `[tunnel]`, `[[peer]]`.
    pub tunnel: Option<TunnelConfig>,
    /// A router and its firewall: tables `[[uplink]]`, `[[network]]`, `[[route]]`, `[[zone]]`, `[firewall]`.
    pub gateway: Option<RouterConfig>,
    /// A program that is run at each event: table `[events]`.
    pub on_event: Option<PathBuf>,
    /// What works, but deserves a second look.
    pub warnings: Report,
}

/// A tunnel as its configuration file describes it.
#[derive(Debug, Clone)]
pub struct TunnelConfig {
    /// Table `[node]`.
    pub node: Node,
    /// Table `[tunnel]`.
    pub tunnel: Tunnel,
    /// Tables `[[peer]]` of the moving-target profile, in the order of the file.
    pub peers: Vec<PeerConfig>,
    /// Tables `[[wrap]]`.
    pub wraps: Vec<Wrap>,
    /// Names of those under which their places are published.
    pub names: Vec<PeerName>,
    /// Tables `[[peer]]` of the classic profile, in the order of the file.
    pub classic: Vec<ClassicPeer>,
    /// Tables `[[script]]`, in the order of the file.
    pub scripts: Vec<Configured>,
    /// Table `[standby]`: another machine has the same key and prefix, and one of them is met at a time.
    pub standby: Option<Standby>,
    /// Where an uplink of the same file makes the external interface, as a tunnel of its own: the interface below it.
    pub external_over: Option<String>,
    /// Of all that was read for it, in hexadecimal digits; it may be shown. Empty where it is of no file.
    pub digest: String,
}

impl TunnelConfig {
    /// What the protocol needs of it. `link_mtu` is the MTU of the external interface; `hardware_aes` tells whether
    /// the processor has AES instructions, `rewrites` whether this machine can replace addresses, `masks` whether it can mask
    /// packets.
    pub fn to_node_config(
        &self,
        link_mtu: u16,
        hardware_aes: bool,
        rewrites: bool,
        masks: bool,
    ) -> NodeConfig {
        let wrapped = |peer: &PeerConfig| self.wraps.iter().find(|wrap| masks && wrap.peer == peer.name);
        let peer = |peer: &PeerConfig| PeerConfig {
            rewrite: peer.rewrite && rewrites,
            mask: wrapped(peer).and_then(Wrap::port),
            ..peer.clone()
        };
        NodeConfig {
            private_key: self.node.private_key.clone(),
            previous_key: self.node.previous_key.clone(),
            hop_prefix: self.node.hop_prefix,
            link_mtu,
            hardware_aes,
            addresses: self.tunnel.addresses.iter().map(IpNet::addr).collect::<Vec<IpAddr>>(),
            rekey_after: REKEY_AFTER,
            peers: self.peers.iter().map(peer).collect(),
        }
    }

    /// Whether there are peers, and none of the moving-target profile.
    pub fn is_classic(&self) -> bool {
        self.peers.is_empty() && !self.classic.is_empty()
    }

    /// The largest inner packets that go to all peers, if outer ones may have so many bytes.
    pub fn inner_mtu(&self, outer: u16) -> u16 {
        let moving = (!self.peers.is_empty()).then(|| outer.saturating_sub(CONTEXT));
        let moving = moving.map(|mtu| mtu.min(self.tunnel.mtu.unwrap_or(u16::MAX)));
        let classic = self.classic.iter().map(|peer| classic_inner_mtu(peer.stream.cipher, outer));
        classic.chain(moving).min().unwrap_or(outer).max(1280)
    }

    /// The peer of this name.
    pub fn peer(&self, name: &str) -> Option<&PeerConfig> {
        self.peers.iter().find(|peer| peer.name == name)
    }

    /// The networks of the link that a transparent gateway is on: that of the hopping prefix, and those of its hosts.
    pub fn link_networks(&self) -> Vec<Ipv6Net> {
        let Some(transparent) = &self.node.transparent else { return Vec::new() };
        let hosts = transparent.hosts(&self.classic).into_iter().map(|host| host.address);
        let hopping = (!self.is_classic()).then(|| self.node.hop_prefix.addr());
        let mut networks: Vec<_> = hosts.chain(hopping).map(network).collect();
        networks.sort_unstable();
        networks.dedup();
        networks
    }

    /// Where a transparent gateway's outer packets go: the networks of its peers that are not on its link.
    pub fn remote_networks(&self) -> Vec<Ipv6Net> {
        let links = self.link_networks();
        let moving = self.peers.iter().map(|peer| peer.hop_prefix.trunc());
        let classic = self.classic.iter().map(|peer| network(peer.stream.remote.address));
        let mut networks: Vec<_> = moving.chain(classic).collect();
        networks.retain(|remote| !links.iter().any(|link| link.contains(remote)));
        networks.sort_unstable();
        networks.dedup();
        networks
    }
}

/// The /64 of an address.
fn network(address: Ipv6Addr) -> Ipv6Net {
    Ipv6Net::new(address, 64).expect("64 is a prefix length").trunc()
}

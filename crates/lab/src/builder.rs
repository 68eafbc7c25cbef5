//! What a lab is to be like.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::impairment::Impairment;
use crate::namespaces::Namespace;
use crate::prefix::{self, directory};
use crate::topology::{Node, Topology};

/// What the gateways are to hosts and routers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Gateways {
    /// Routers, which the hosts send to.
    #[default]
    Routing,
    /// Nothing: neither knows of them.
    Transparent,
}

/// What the gateways speak with each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// The moving-target protocol.
    #[default]
    MovingTarget,
    /// MT6D as it was published, encrypted as the configuration's default is.
    Classic,
}

/// What impairs the middle link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Impairer {
    /// A process of the lab's own
    #[default]
    Relay,
    /// examples/scripts/impair.lua on the router of the routed lab: delay, jitter, loss and reordering
    Script,
}

/// The options of a lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Builder {
    pub(crate) program: PathBuf,
    pub(crate) prefix: String,
    pub(crate) topology: Topology,
    pub(crate) gateways: Gateways,
    pub(crate) profile: Profile,
    pub(crate) rotation: String,
    pub(crate) lanes: u8,
    pub(crate) threads: Option<u8>,
    pub(crate) padding: String,
    pub(crate) shape: String,
    pub(crate) carry: String,
    pub(crate) preshared: bool,
    pub(crate) tunnel: bool,
    pub(crate) tunnel_mtu: Option<u16>,
    pub(crate) impairment: Impairment,
    pub(crate) impairment_back: Option<Impairment>,
    #[serde(default)]
    pub(crate) impairer: Impairer,
    #[serde(default)]
    pub(crate) man_in_the_middle: Vec<String>,
    pub(crate) firewall: bool,
    pub(crate) middle_mtu: Option<u16>,
    pub(crate) filter_too_big: bool,
    pub(crate) whole_packets: bool,
    pub(crate) offloads: bool,
    pub(crate) sit: bool,
}

impl Builder {
    /// The prefix of the lab that `sidestep-lab up` builds if it is told none.
    pub const DEFAULT_PREFIX: &'static str = "sidestep";

    /// Options with their defaults; `program` is the `sidestep` executable.
    pub(crate) fn new(program: PathBuf) -> Self {
        Self {
            program,
            prefix: prefix::unique(),
            topology: Topology::default(),
            gateways: Gateways::default(),
            profile: Profile::default(),
            rotation: "1s".into(),
            lanes: 1,
            threads: None,
            padding: "none".into(),
            shape: "\"none\"".into(),
            carry: "encapsulate".into(),
            preshared: false,
            tunnel: true,
            tunnel_mtu: None,
            impairment: Impairment::default(),
            impairment_back: None,
            impairer: Impairer::default(),
            man_in_the_middle: Vec::new(),
            firewall: false,
            middle_mtu: None,
            filter_too_big: false,
            whole_packets: false,
            offloads: true,
            sit: false,
        }
    }

    /// What every namespace's name begins with, before `-ha`, `-ga` and so on; labs with different prefixes
    /// exist side by side. At most 13 characters. Default: one that no other lab has.
    pub fn prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// How the gateways are connected. Default routed.
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// What the gateways are to hosts and routers. Default routing.
    pub fn gateways(mut self, gateways: Gateways) -> Self {
        self.gateways = gateways;
        self
    }

    /// What they speak with each other. Default the moving-target protocol.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Rotation interval as in the configuration file. Default `1s`.
    pub fn rotation(mut self, rotation: &str) -> Self {
        rotation.clone_into(&mut self.rotation);
        self
    }

    /// Lanes. Default 1.
    pub fn lanes(mut self, lanes: u8) -> Self {
        self.lanes = lanes;
        self
    }

    /// Threads of each gateway that carry packets. Default: as many as it chooses.
    pub fn threads(mut self, threads: u8) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Padding policy: `none`, `buckets` or `full`. Default none.
    pub fn padding(mut self, padding: &str) -> Self {
        padding.clone_into(&mut self.padding);
        self
    }

    /// Shape, as in the configuration file: `{ constant = "2Mbit/s" }`. Default `"none"`.
    pub fn shape(mut self, shape: &str) -> Self {
        shape.clone_into(&mut self.shape);
        self
    }

    /// How packets travel: `encapsulate`, `rewrite`, or `mask`, where the tunnel has nothing to carry but another one, which
    /// `[[wrap]]` in the configurations is to name. Default `encapsulate`.
    #[must_use]
    pub fn carry(mut self, carry: &str) -> Self {
        carry.clone_into(&mut self.carry);
        self
    }

    /// Gives the pair a pre-shared key. Default no.
    pub fn preshared(mut self, preshared: bool) -> Self {
        self.preshared = preshared;
        self
    }

    /// Without a tunnel the routers route the inner networks: the baseline. Default with.
    pub fn tunnel(mut self, tunnel: bool) -> Self {
        self.tunnel = tunnel;
        self
    }

    /// Fixes the tunnel's MTU. Default: it follows the path.
    pub fn tunnel_mtu(mut self, mtu: u16) -> Self {
        self.tunnel_mtu = Some(mtu);
        self
    }

    /// Impairs the middle link, in both directions unless [`Self::impairment_back`] says otherwise.
    pub fn impairment(mut self, impairment: Impairment) -> Self {
        self.impairment = impairment;
        self
    }

    /// Impairs the direction from B to A in another way.
    pub fn impairment_back(mut self, impairment: Impairment) -> Self {
        self.impairment_back = Some(impairment);
        self
    }

    /// What impairs the middle link. Default: the relay.
    pub fn impairer(mut self, impairer: Impairer) -> Self {
        self.impairer = impairer;
        self
    }

    /// What carries the frames of the middle link in place of the relay: a command of `sidestep-lab` that calls
    /// [`crate::relay::carry`] for the interfaces `left` and `right`. Default: nobody.
    pub fn man_in_the_middle(mut self, command: Vec<String>) -> Self {
        self.man_in_the_middle = command;
        self
    }

    /// A stateful firewall before each site that lets in only what was opened from inside. Default none.
    pub fn firewall(mut self, firewall: bool) -> Self {
        self.firewall = firewall;
        self
    }

    /// MTU of the middle link. Default 1500. In the switched lab a bridge drops longer frames silently; elsewhere
    /// the routers at its ends send Packet Too Big.
    pub fn middle_mtu(mut self, mtu: u16) -> Self {
        self.middle_mtu = Some(mtu);
        self
    }

    /// Drops the routers' Packet Too Big messages. Default no.
    pub fn filter_too_big(mut self, filter: bool) -> Self {
        self.filter_too_big = filter;
        self
    }

    /// Turns segmentation offload off on the outer links, so that a capture shows the packets that a cable would
    /// carry. Slower. Default no.
    pub fn whole_packets(mut self, whole: bool) -> Self {
        self.whole_packets = whole;
        self
    }

    /// Without them no interface takes or makes GSO packets, or leaves checksums to the next one: every packet is
    /// carried by itself, as without such hardware. Default with them.
    pub fn offloads(mut self, offloads: bool) -> Self {
        self.offloads = offloads;
        self
    }

    /// Uses the kernel's `sit` for the 6in4 tunnel in place of our own process. Default no.
    pub fn sit(mut self, sit: bool) -> Self {
        self.sit = sit;
        self
    }

    /// Whether anything is on the middle link that carries its frames.
    pub(crate) fn impaired(&self) -> bool {
        let plain = Impairment { seed: self.impairment.seed, ..Impairment::default() };
        self.impairment != plain || self.impairment_back.is_some() || !self.man_in_the_middle.is_empty()
    }

    /// The smallest middle MTU that still carries IPv6's minimum of 1280.
    pub(crate) fn minimum_mtu(&self) -> u16 {
        if self.topology == Topology::Tunneled { 1300 } else { 1280 }
    }

    pub(crate) fn namespace(&self, node: Node) -> Namespace {
        node.namespace(&self.prefix)
    }

    pub(crate) fn directory(&self) -> PathBuf {
        directory(&self.prefix)
    }
}

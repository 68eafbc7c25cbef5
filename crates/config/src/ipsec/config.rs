//! What a file with `[ipsec]` describes.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use ipsec::level::Levels;
use ipsec::policy::Rule;

use crate::report::Report;

/// All that a file with `[ipsec]` describes.
#[derive(Debug)]
pub struct IpsecConfig {
    /// Of the TUN device and of the control socket: `interface`, or else the file's name, or else `ipsec0`.
    pub name: String,
    /// Where this end listens and sends from; `None`: at all of its addresses, from the one that the route to a peer has.
    pub local: Option<IpAddr>,
    /// UDP ports.
    pub ports: Ports,
    /// Addresses of the device, beside those that a peer gives.
    pub addresses: Vec<IpNet>,
    /// MTU of the device; `None`: what the path to the peers leaves.
    pub mtu: Option<u16>,
    /// For IKE: its peers are the `[[remote]]`s, in their order.
    pub ike: ike::config::Config,
    /// What IKE does not know of each of its peers.
    pub remotes: Vec<Remote>,
    /// The rules of `[[policy]]`, in the order of the file.
    pub rules: Vec<Rule>,
    /// What the children stand for, to be put behind `rules` by a host that sends what no rule selects in clear: what goes
    /// between the ends of a child is protected as the child does it, or does not go, out and in. Where an end is not known
    /// before the child is there (addresses that a remote gives, a remote that comes from anywhere), it is every address of
    /// the IP version, and such rules stand last. Neighbor discovery is not in it.
    pub child_rules: Vec<Rule>,
    /// The system's levels.
    pub levels: Levels,
    /// Associations and policies in setkey's language, loaded at the start.
    pub setkey: Option<PathBuf>,
    /// What works, but deserves a second look.
    pub warnings: Report,
}

/// UDP ports of IKE; 0: any that is free, for programs without privileges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// Of IKE.
    pub ike: u16,
    /// Of IKE and ESP where a NAT is between the ends.
    pub nat: u16,
}

/// A `[[remote]]`, beside what IKE knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    /// Its name, for the status.
    pub name: String,
    /// Where it is; `None`: it comes to us.
    pub address: Option<Place>,
    /// Its ports.
    pub ports: Ports,
    /// When this end begins.
    pub start: Start,
    /// Whether ESP goes in UDP even where no NAT is on the way.
    pub encapsulate: bool,
    /// What its clients' addresses are out of. IKE's pools are these networks without what is somebody's already.
    pub pool: Vec<IpNet>,
}

/// Where a peer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// At this address.
    Address(IpAddr),
    /// Where this name leads, asked for at each attempt.
    Name(String),
}

/// When this end begins a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At once, and again whenever it has ended.
    Always,
    /// When there is something to carry.
    Traffic,
    /// Never.
    Wait,
}

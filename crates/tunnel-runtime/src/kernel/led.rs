//! How other tunnels' packets are led into this one.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use ipnet::IpNet;
use linux::outside::Stray;

/// How they are led.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Led {
    /// With which of this node's inner ends they leave for one of a peer's: the one that its session has.
    pub(crate) sources: HashMap<IpNet, Ipv6Addr>,
    /// Where they go, or come from, past it, and are dropped.
    pub(crate) strays: Vec<Stray>,
}

//! What a call into the protocol is given of the node around it.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::Ipv6Net;

use crate::config::NOWHERE;
use crate::deliver::Deliver;
use crate::host_interface::HostInterface;
use crate::outbox::Outbox;
use crate::routes::Routes;
use crate::time::Now;

/// Who we are, when it is, who does the work and draws the randomness, where datagrams and inner packets go.
pub(crate) struct Env<'a> {
    pub(crate) own: &'a Identity,
    pub(crate) routes: &'a Routes,
    pub(crate) now: Now,
    pub(crate) host: &'a mut HostInterface,
    pub(crate) outbox: &'a mut Outbox,
    pub(crate) deliver: &'a mut dyn Deliver,
}

/// This node, as its peers' code sees it.
pub(crate) struct Identity {
    pub(crate) hop_prefix: Ipv6Net,
    pub(crate) link_mtu: u16,
    pub(crate) hardware_aes: bool,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) rekey_after: Duration,
    /// The node's turn, if it takes turns with another of the same key.
    pub(crate) turn: Option<u64>,
}

impl Identity {
    /// Whether the node has no prefix to hop in.
    pub(crate) fn is_nowhere(&self) -> bool {
        self.hop_prefix == NOWHERE
    }
}

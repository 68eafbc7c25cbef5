//! `[[wrap]]`: another tunnel, such as WireGuard's, whose packets travel with a peer's and are masked (`carry = "mask"`).

use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use mt6d::config::{PeerConfig, Shape};
use mt6d::mask;
use toml::Spanned;

use crate::converter::Converter;
use crate::key::Absent::{Otherwise, Required};
use crate::node::Node;
use crate::peer::PeerTable;
use crate::report::Finding;
use crate::section::section;
use crate::tunnel::Tunnel;
use crate::value::{self, Problem, problem};

section! {
    /// `[[wrap]]`, as it stands in the file.
    WrapTable = "[[wrap]]" {
        /// The peer that the other tunnel leads to, by its name. It has no `shape`.
        peer: String = Required("the name of the [[peer]] that the other tunnel leads to");
        /// The other tunnel's device, of WireGuard: its port is asked for, and its peer's endpoint is kept where the peer is.
        interface: String = Otherwise("`port` is there");
        /// Which of the device's peers, by its public key.
        public_key: String = Otherwise("the only one");
        /// UDP port of the other tunnel on this machine.
        port: i64 = Otherwise("the device's");
    }
}

/// Another tunnel whose packets are masked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrap {
    /// The name of the peer that it leads to.
    pub peer: String,
    /// WireGuard's device.
    pub interface: Option<String>,
    /// Which of the device's peers, in base64.
    pub public_key: Option<String>,
    /// Its UDP port on this machine, if that is written down.
    pub port: Option<u16>,
    /// The port that the device has; not known as long as nobody has asked it.
    pub asked: Option<u16>,
}

impl Wrap {
    /// Its UDP port on this machine, if it is known.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port.or(self.asked)
    }

    /// Whether it may be about the same peer of the same device as another.
    fn may_lead_as(&self, other: &Self) -> bool {
        let keys = self.public_key.as_ref().zip(other.public_key.as_ref());
        self.interface.is_some()
            && self.interface == other.interface
            && keys.is_none_or(|(one, other)| one == other)
    }
}

impl Converter<'_> {
    /// All tables, which belong to these peers, as `given` and as they are; None if one of them cannot be used.
    pub(crate) fn wraps(
        &mut self,
        tables: &[Spanned<WrapTable>],
        given: &[Spanned<PeerTable>],
        peers: &[(usize, PeerConfig)],
    ) -> Option<Vec<Wrap>> {
        let mut wraps = Some(Vec::<Wrap>::new());
        for table in tables.iter().map(Spanned::get_ref) {
            let wrap = self.wrap(table, peers);
            let twice =
                wraps.iter().flatten().any(|other| wrap.as_ref().is_some_and(|wrap| wrap.peer == other.peer));
            if twice {
                let help = "one tunnel may travel with a peer: leave the other out".to_owned();
                self.refuse(
                    table.peer.span(),
                    "peer",
                    Problem { label: "it has one already".to_owned(), help },
                );
            }
            let same_device = !twice
                && wrap
                    .as_ref()
                    .is_some_and(|wrap| wraps.iter().flatten().any(|other| wrap.may_lead_as(other)));
            if same_device {
                let label = "another [[wrap]] leads this device's peer elsewhere".to_owned();
                let help =
                    "each is to be about another of the device's peers: write which, public_key = \"…\"";
                self.refuse(table.interface.span(), "interface", Problem { label, help: help.to_owned() });
            }
            match (wrap, &mut wraps) {
                (Some(wrap), Some(wraps)) if !twice && !same_device => wraps.push(wrap),
                (_, wraps) => *wraps = None,
            }
        }
        let tables = tables.iter().map(Spanned::get_ref);
        let wrapped: Vec<_> = tables.filter_map(|table| table.peer.text()).collect();
        for peer in given.iter().map(Spanned::get_ref).filter(|peer| peer.carry.text() == Some("mask")) {
            if !peer.name.text().is_some_and(|name| wrapped.contains(&name)) {
                let label = "nothing says which packets".to_owned();
                let help = "add [[wrap]] with the peer's name and the other tunnel's device".to_owned();
                self.refuse(peer.carry.span(), "carry", Problem { label, help });
                wraps = None;
            }
        }
        wraps
    }

    fn wrap(&mut self, table: &WrapTable, peers: &[(usize, PeerConfig)]) -> Option<Wrap> {
        let peer = self.value(&table.peer, |name| {
            let known = peers.iter().find(|(_, peer)| peer.name == name);
            known.map(|(_, peer)| peer.clone()).map_or_else(
                || {
                    problem(
                        "no such peer",
                        "write the name of a [[peer]] of this file that is not of the classic profile",
                    )
                },
                Ok,
            )
        });
        let interface = self.optional(&table.interface, value::interface);
        let public_key = self.optional(&table.public_key, |key| Ok(key.to_owned()));
        let port = self.optional(&table.port, port);
        let (peer, interface, public_key, port) = (peer?, interface?, public_key?, port?);
        let mut refuse =
            |title: &str, help: &str| self.report(Finding::error(table.peer.span(), title, "", help));
        if interface.is_none() && port.is_none() {
            refuse(
                "[[wrap]] does not say what is carried",
                "write interface = \"wg0\", or the tunnel's port = 51820",
            );
            return None;
        }
        if peer.shape != Shape::None {
            refuse("packets with a mask have no shape", "leave the peer's `shape` out");
            return None;
        }
        if peer.rewrite {
            refuse("the peer's packets have replaced addresses already", "leave its carry = \"rewrite\" out");
            return None;
        }
        Some(Wrap { peer: peer.name, interface, public_key, port, asked: None })
    }
}

/// Makes room for what is wrapped: addresses of this node's for the other tunnel, and some of each peer's. Nobody writes them
/// down: they follow from the keys. Sessions may be of any key that either has, in a time of grace.
pub(crate) fn prepare(wraps: &[Wrap], node: &Node, tunnel: &mut Tunnel, peers: &mut [PeerConfig]) {
    let host = |address| IpNet::from(IpAddr::V6(address));
    if !wraps.is_empty() {
        let keys = std::iter::once(&node.private_key).chain(&node.previous_key);
        tunnel.addresses.extend(keys.map(|key| host(mask::address(&key.public()))));
    }
    for wrap in wraps {
        for peer in peers.iter_mut().filter(|peer| peer.name == wrap.peer) {
            peer.allowed_ips.extend(inner_ends(peer).map(host));
        }
    }
}

/// Where the other tunnel's end at a peer is, for each key that this has, the one that it certainly has first.
pub fn inner_ends(peer: &PeerConfig) -> impl Iterator<Item = Ipv6Addr> + use<> {
    [Some(peer.public_key), peer.next_key].into_iter().flatten().map(|key| mask::address(&key))
}

fn port(number: i64) -> Result<u16, Problem> {
    match u16::try_from(number) {
        Ok(port) if port != 0 => Ok(port),
        _ => problem("not a port", "write the tunnel's UDP port on this machine, 1 to 65535"),
    }
}

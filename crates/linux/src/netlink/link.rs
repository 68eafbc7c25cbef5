//! Interfaces.

use std::collections::HashMap;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage};
use wire::ethernet::MacAddress;

use super::Netlink;
use crate::error::{Error, Result};

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// The longest packet it takes.
    pub mtu: u32,
    /// Its hardware address, if it is an Ethernet-like interface.
    pub mac: Option<MacAddress>,
    /// The operator wants it up.
    pub up: bool,
    /// It is up, and there is a carrier.
    pub running: bool,
    /// Neighbors are looked for on it: it is not the end of a link between two, nor one without link-layer addresses.
    pub resolves: bool,
}

/// What a port of a bridge is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// A device that what runs on this machine has: `veth`, `tun` and `tap`, or one that leads nowhere (`dummy`).
    OfThisMachine,
    /// Another, such as an Ethernet card or a VLAN.
    Other,
}

impl Netlink {
    /// All bridges by their index, with their ports.
    pub fn bridges(&mut self) -> Result<HashMap<u32, Vec<Port>>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.dump(request, || "RTM_GETLINK".into())?;
        let mut bridges = HashMap::new();
        let mut ports = Vec::new();
        for answer in answers {
            let RouteNetlinkMessage::NewLink(message) = answer else { continue };
            let kind = kind_of(&message);
            let controller = message.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::Controller(index) => Some(*index),
                _ => None,
            });
            ports.extend(controller.map(|controller| (controller, Port::of(kind))));
            if kind == Some(&InfoKind::Bridge) {
                bridges.insert(message.header.index, Vec::new());
            }
        }
        for (controller, port) in ports {
            bridges.entry(controller).and_modify(|ports| ports.push(port));
        }
        Ok(bridges)
    }

    /// All interfaces.
    pub fn links(&mut self) -> Result<Vec<Link>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.dump(request, || "RTM_GETLINK".into())?;
        Ok(answers.into_iter().filter_map(Link::from_message).collect())
    }

    /// An interface, and those that what it receives comes in by first: ports of a bridge or bond, what a VLAN is over.
    pub fn link_and_below(&mut self, index: u32) -> Result<Vec<Link>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.dump(request, || "RTM_GETLINK".into())?;
        let ways = answers.iter().flat_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(message) => ways_up(message),
            _ => Vec::new(),
        });
        let ways: Vec<(u32, u32)> = ways.collect();
        let mut found = vec![index];
        let mut at = 0;
        while let Some(above) = found.get(at).copied() {
            let below = ways.iter().filter(|(_, over)| *over == above).map(|(below, _)| *below);
            let new: Vec<u32> = below.filter(|below| !found.contains(below)).collect();
            found.extend(new);
            at += 1;
        }
        let links = answers.into_iter().filter_map(Link::from_message);
        Ok(links.filter(|link| found.contains(&link.index)).collect())
    }

    /// The interface of that name, if there is one.
    pub fn link_by_name(&mut self, name: &str) -> Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        self.one_link(message, || format!("RTM_GETLINK {name}"))
    }

    /// The interface of that index, if there is one.
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.one_link(message, || format!("RTM_GETLINK {index}"))
    }

    /// Sets an interface up or down.
    pub fn set_link_up(&mut self, index: u32, up: bool) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.change_mask = LinkFlags::Up;
        if up {
            message.header.flags = LinkFlags::Up;
        }
        let direction = if up { "up" } else { "down" };
        self.change(RouteNetlinkMessage::SetLink(message), 0, || format!("set link {index} {direction}"))
    }

    /// Sets an interface's MTU.
    pub fn set_link_mtu(&mut self, index: u32, mtu: u32) -> Result<()> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(RouteNetlinkMessage::SetLink(message), 0, || format!("set link {index} mtu {mtu}"))
    }

    fn one_link(&mut self, message: LinkMessage, what: impl Fn() -> String) -> Result<Option<Link>> {
        match self.get(RouteNetlinkMessage::GetLink(message), what) {
            Ok(answer) => Ok(Link::from_message(answer)),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(None),
            // A name that no interface can have.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ERANGE | libc::EINVAL)) => Ok(None),
            Err(Error { what, source }) => Err(Error { what, source }),
        }
    }
}

impl Port {
    fn of(kind: Option<&InfoKind>) -> Port {
        match kind {
            Some(InfoKind::Veth | InfoKind::Tun | InfoKind::Dummy) => Port::OfThisMachine,
            _ => Port::Other,
        }
    }
}

/// From which interface to which other what comes in goes up, as far as this one says it.
fn ways_up(message: &LinkMessage) -> Vec<(u32, u32)> {
    let own = message.header.index;
    // What is in another namespace, or the other end of a cable, has another way.
    let has = |wanted: fn(&LinkAttribute) -> bool| message.attributes.iter().any(wanted);
    let is_over =
        kind_of(message) != Some(&InfoKind::Veth) && !has(|one| matches!(one, LinkAttribute::LinkNetNsId(_)));
    let way = |attribute: &LinkAttribute| match attribute {
        LinkAttribute::Controller(above) => Some((own, *above)),
        LinkAttribute::Link(below) if is_over => Some((*below, own)),
        _ => None,
    };
    message.attributes.iter().filter_map(way).collect()
}

/// The kind that an interface was made as; hardware has none.
pub(super) fn kind_of(message: &LinkMessage) -> Option<&InfoKind> {
    message.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::LinkInfo(infos) => infos.iter().find_map(|info| match info {
            LinkInfo::Kind(kind) => Some(kind),
            _ => None,
        }),
        _ => None,
    })
}

impl Link {
    pub(super) fn from_message(message: RouteNetlinkMessage) -> Option<Link> {
        let (RouteNetlinkMessage::NewLink(message) | RouteNetlinkMessage::DelLink(message)) = message else {
            return None;
        };
        let flags = message.header.flags;
        let mut link = Link {
            index: message.header.index,
            name: String::new(),
            mtu: 0,
            mac: None,
            up: flags.contains(LinkFlags::Up),
            running: flags.contains(LinkFlags::Running | LinkFlags::Up),
            resolves: !flags.intersects(LinkFlags::Noarp | LinkFlags::Pointopoint | LinkFlags::Loopback),
        };
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name = name,
                LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                LinkAttribute::Address(bytes) => link.mac = bytes.try_into().ok().map(MacAddress),
                _ => {}
            }
        }
        Some(link)
    }
}

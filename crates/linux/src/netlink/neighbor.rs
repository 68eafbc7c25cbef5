//! Neighbor entries: which hardware address an address of a link has.

use std::net::{IpAddr, Ipv6Addr};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteProtocol, RouteType};
use wire::ethernet::MacAddress;

use super::{Netlink, PROTOCOL, family};
use crate::error::Result;

/// What the kernel knows of a neighbor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbor {
    /// The interface it is behind.
    pub index: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address, if it is known.
    pub mac: Option<MacAddress>,
    /// The kernel may send to it now: the entry is neither unresolved nor failed.
    pub usable: bool,
    /// It has answered a short while ago, or need not (RFC 4861 section 7.3.2, REACHABLE).
    pub confirmed: bool,
    /// Somebody has written it down: the kernel does not ask for it.
    pub fixed: bool,
    /// It has not answered.
    pub failed: bool,
    /// The entry carries our mark.
    pub own: bool,
}

/// How long an entry is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborState {
    /// As if just confirmed: the kernel uses it at once, verifies it later, and collects it when unused.
    Reachable,
    /// Until it is removed.
    Permanent,
    /// The same, replacing any entry that is there: for an interface that is all ours.
    PermanentReplacing,
}

impl Netlink {
    /// The neighbor entry of an address, if there is one.
    pub fn neighbor(&mut self, index: u32, address: IpAddr) -> Result<Option<Neighbor>> {
        let message = neighbor_message(index, address);
        let what = || format!("RTM_GETNEIGH {address} on link {index} (needs Linux 5.0)");
        match self.get(RouteNetlinkMessage::GetNeighbour(message), what) {
            Ok(answer) => Ok(Neighbor::from_message(answer)),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All neighbor entries of a link.
    pub fn neighbors(&mut self, index: u32) -> Result<Vec<Neighbor>> {
        let mut message = NeighbourMessage::default();
        message.header.ifindex = index;
        let answers = self.dump(RouteNetlinkMessage::GetNeighbour(message), || "RTM_GETNEIGH".into())?;
        let all = answers.into_iter().filter_map(Neighbor::from_message);
        Ok(all.filter(|neighbor| neighbor.index == index).collect())
    }

    /// Adds a neighbor entry, marked as ours. If the kernel has a usable one for the address already, the error
    /// [already exists](crate::Error::already_exists), and that entry stays as it is; one that the kernel has not
    /// resolved is replaced.
    pub fn add_neighbor(
        &mut self,
        index: u32,
        address: Ipv6Addr,
        mac: MacAddress,
        state: NeighborState,
    ) -> Result<()> {
        let mut message = neighbor_message(index, address.into());
        message.header.state = match state {
            NeighborState::Reachable => NeighbourState::Reachable,
            NeighborState::Permanent | NeighborState::PermanentReplacing => NeighbourState::Permanent,
        };
        message.attributes.push(NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()));
        message.attributes.push(NeighbourAttribute::Protocol(RouteProtocol::Other(PROTOCOL)));
        let known = self.neighbor(index, address.into())?.is_some_and(|entry| entry.usable);
        let stays = known && state != NeighborState::PermanentReplacing;
        let flags = NLM_F_CREATE | if stays { NLM_F_EXCL } else { NLM_F_REPLACE };
        self.change(RouteNetlinkMessage::NewNeighbour(message), flags, || {
            format!("add neighbor {address} on link {index}")
        })
    }

    /// Has the kernel find out whether a neighbor answers, as if there were a packet for it. It takes some seconds;
    /// [`Netlink::neighbor`] then says what was found.
    pub fn solicit_neighbor(&mut self, index: u32, address: IpAddr) -> Result<()> {
        let mut message = neighbor_message(index, address);
        message.header.flags = NeighbourFlags::Use;
        self.change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE, || {
            format!("solicit neighbor {address} on link {index}")
        })
    }

    /// Removes a neighbor entry if it is there and ours. Returns whether it was.
    pub fn delete_neighbor(&mut self, index: u32, address: Ipv6Addr) -> Result<bool> {
        match self.neighbor(index, address.into()) {
            Ok(Some(entry)) if entry.own => {}
            Ok(_) => return Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(false),
            Err(error) => return Err(error),
        }
        let message = neighbor_message(index, address.into());
        let result = self.change(RouteNetlinkMessage::DelNeighbour(message), 0, || {
            format!("delete neighbor {address} on link {index}")
        });
        match result {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Neighbor {
    fn from_message(message: RouteNetlinkMessage) -> Option<Neighbor> {
        let RouteNetlinkMessage::NewNeighbour(message) = message else { return None };
        let (mut address, mut mac, mut own) = (None, None, false);
        for attribute in message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => address = Some(v4.into()),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => address = Some(v6.into()),
                NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.try_into().ok().map(MacAddress),
                NeighbourAttribute::Protocol(protocol) => own = protocol == RouteProtocol::Other(PROTOCOL),
                _ => {}
            }
        }
        let usable = !matches!(
            message.header.state,
            NeighbourState::Incomplete | NeighbourState::Failed | NeighbourState::None
        );
        let fixed = matches!(message.header.state, NeighbourState::Permanent | NeighbourState::Noarp);
        let confirmed = fixed || message.header.state == NeighbourState::Reachable;
        let failed = message.header.state == NeighbourState::Failed;
        Some(Neighbor {
            index: message.header.ifindex,
            address: address?,
            mac,
            usable,
            confirmed,
            fixed,
            failed,
            own,
        })
    }
}

fn neighbor_message(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.kind = RouteType::Unspec;
    message.attributes.push(NeighbourAttribute::Destination(match address {
        IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
        IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
    }));
    message
}

//! What the sockets of uplinks, networks and tunnels have in common.

use std::net::{IpAddr, Ipv6Addr};

use linux::netlink::{Link, Netlink};
use wire::ethernet;
use wire::ndp::{self, Message, RouterAdvertisement};

/// Longer than any advertisement or DHCPv6 message on an Ethernet link.
pub(crate) const FRAME: usize = 1_600;
/// Frames of one socket in a turn.
pub(crate) const BATCH: usize = 64;

/// The index of the interface of that name.
pub(super) fn index_of(links: &[Link], name: &str) -> Option<u32> {
    links.iter().find(|link| link.name == name).map(|link| link.index)
}

/// The link-local address of an interface, once it can be used.
pub(super) fn link_local(netlink: &mut Netlink, index: u32) -> Option<Ipv6Addr> {
    let addresses = netlink.addresses(index).ok()?;
    addresses.into_iter().find_map(|found| match found.address.addr() {
        IpAddr::V6(address) if address.is_unicast_link_local() && !found.tentative => Some(address),
        _ => None,
    })
}

/// Who advertises what, from a frame.
pub(super) fn advertisement(frame: &[u8]) -> Option<(Ipv6Addr, RouterAdvertisement)> {
    let packet = wire::ipv6::Packet::parse(frame.get(ethernet::HEADER_LEN..)?).ok()?;
    match ndp::parse(&packet).ok()? {
        Message::RouterAdvertisement(advertisement) => Some((packet.source(), advertisement.into())),
        _ => None,
    }
}

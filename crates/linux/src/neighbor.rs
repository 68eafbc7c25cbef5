//! The neighbor responder of an on-link hopping prefix (RFC 4861).
//!
//! The addresses of endpoints are on no interface, so the kernel does not answer for them. This does, for the active
//! ones only: an address is silent before its endpoint opens and after it closes. Solicitations arrive by a packet
//! socket that lets all multicast in: joining the solicited-node groups of coming addresses would announce them.

use std::net::Ipv6Addr;
use std::os::fd::{AsFd, BorrowedFd};

use wire::ethernet::{self, MacAddress};
use wire::ndp::{self, Message, NeighborAdvertisement, NeighborSolicitation};

use crate::error::Result;
use crate::packet::{NEIGHBOR_SOLICITATIONS, PacketOptions, PacketSocket};

/// Longer than any solicitation with the options that exist; a longer frame is cut off and does not parse.
const FRAME: usize = 1_514;
/// Frames of one call, so that a flood of solicitations does not keep the caller from its other work.
const BATCH: usize = 64;

/// What one call of [`Responder::handle`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SolicitationCounts {
    /// Solicitations for active addresses, answered.
    pub answered: u64,
    /// Solicitations for anything else, passed over in silence.
    pub ignored: u64,
    /// Frames that are no valid solicitation.
    pub malformed: u64,
}

/// Answers neighbor solicitations on one interface.
#[derive(Debug)]
pub struct Responder {
    socket: PacketSocket,
    mac: MacAddress,
    /// What the answers say about us.
    router: bool,
    buffer: Vec<u8>,
}

impl Responder {
    /// A responder on the interface `index`, whose hardware address is `mac`.
    /// Add it to a [`crate::event::Poller`] as readable.
    pub fn open(index: u32, mac: MacAddress) -> Result<Self> {
        let options = PacketOptions {
            filter: Some(NEIGHBOR_SOLICITATIONS),
            all_multicast: true,
            ..PacketOptions::default()
        };
        Ok(Self { socket: PacketSocket::open(index, &options)?, mac, router: true, buffer: vec![0; FRAME] })
    }

    /// Answers as a host would, where this gateway is not to be seen.
    #[must_use]
    pub fn as_host(mut self) -> Self {
        self.router = false;
        self
    }

    /// Answers what has arrived, up to 64 frames: solicitations for addresses that `is_active`.
    pub fn handle(&mut self, is_active: impl Fn(Ipv6Addr) -> bool) -> Result<SolicitationCounts> {
        let mut counts = SolicitationCounts::default();
        for _ in 0..BATCH {
            let Some(length) = self.socket.recv(&mut self.buffer)? else { break };
            let Some(solicitation) = Solicitation::parse(&self.buffer[..length]) else {
                counts.malformed += 1;
                continue;
            };
            if !is_active(solicitation.target) {
                counts.ignored += 1;
                continue;
            }
            // A full queue loses the answer; who asked will ask again.
            self.socket.send(&solicitation.answer(self.mac, self.router))?;
            counts.answered += 1;
        }
        Ok(counts)
    }

    /// Makes `router` hold a neighbor entry for `from`, an address of ours, before traffic for it arrives: by a
    /// unicast solicitation for the router's own address, with our link-layer address as an option (RFC 4861
    /// §7.2.3). Returns whether it was sent.
    pub fn introduce(&self, from: Ipv6Addr, router: Ipv6Addr, router_mac: MacAddress) -> Result<bool> {
        let solicitation = NeighborSolicitation {
            source: from,
            destination: router,
            target: router,
            source_link_layer: self.mac,
        };
        self.socket.send(&solicitation.to_frame(router_mac))
    }
}

/// Tells the nodes of a link that an address is here now, whatever they have for it (RFC 4861 §7.2.6). Returns whether it was
/// sent.
///
/// # Errors
/// If there is no such link any more.
pub fn announce(index: u32, mac: MacAddress, address: Ipv6Addr) -> Result<bool> {
    let advertisement = NeighborAdvertisement {
        source: address,
        destination: ndp::ALL_NODES,
        target: address,
        target_link_layer: mac,
        router: true,
        solicited: false,
        r#override: true,
    };
    let options = PacketOptions { only_sends: true, ..PacketOptions::default() };
    PacketSocket::open(index, &options)?.send(&advertisement.to_frame(mac))
}

impl AsFd for Responder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Who asks for whom.
struct Solicitation {
    target: Ipv6Addr,
    source: Ipv6Addr,
    source_link_layer: MacAddress,
}

impl Solicitation {
    fn parse(frame: &[u8]) -> Option<Self> {
        let frame = ethernet::Frame::parse(frame).ok()?;
        let packet = wire::ipv6::Packet::parse(frame.payload()).ok()?;
        let Ok(Message::NeighborSolicitation { target, source_link_layer, .. }) = ndp::parse(&packet) else {
            return None;
        };
        Some(Self {
            target,
            source: packet.source(),
            source_link_layer: source_link_layer.unwrap_or(frame.source()),
        })
    }

    /// The frame that answers it. A gateway is a router, and says so wherever the kernel answers for it.
    fn answer(&self, mac: MacAddress, router: bool) -> [u8; ndp::NEIGHBOR_FRAME_LEN] {
        NeighborAdvertisement::answer(self.source, self.target, mac, router).to_frame(self.source_link_layer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::ndp::ALL_NODES;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const THEIRS: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
    const TARGET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7);
    const SOURCE: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);

    #[test]
    fn an_answer_goes_to_who_asked_and_tells_our_link_layer_address() {
        let group = ndp::solicited_node(TARGET);
        let ask = NeighborSolicitation {
            source: SOURCE,
            destination: group,
            target: TARGET,
            source_link_layer: THEIRS,
        };
        let answer = Solicitation::parse(&ask.to_frame(THEIRS)).unwrap().answer(MAC, true);
        let frame = ethernet::Frame::parse(&answer).unwrap();
        assert_eq!((frame.source(), frame.destination()), (MAC, THEIRS));
        let packet = wire::ipv6::Packet::parse(frame.payload()).unwrap();
        assert_eq!((packet.source(), packet.destination()), (TARGET, SOURCE));
        let message = ndp::parse(&packet).unwrap();
        assert!(matches!(
            message,
            Message::NeighborAdvertisement {
                target: TARGET,
                solicited: true,
                r#override: true,
                target_link_layer: Some(MAC),
                ..
            }
        ));
    }

    #[test]
    fn duplicate_address_detection_is_answered_to_all_nodes() {
        let ask = Solicitation { target: TARGET, source: Ipv6Addr::UNSPECIFIED, source_link_layer: THEIRS };
        let answer = ask.answer(MAC, true);
        let frame = ethernet::Frame::parse(&answer).unwrap();
        assert_eq!(frame.destination(), MacAddress([0x33, 0x33, 0, 0, 0, 1]));
        let packet = wire::ipv6::Packet::parse(frame.payload()).unwrap();
        assert_eq!(packet.destination(), ALL_NODES);
        let message = ndp::parse(&packet).unwrap();
        assert!(matches!(message, Message::NeighborAdvertisement { solicited: false, .. }));
    }

    proptest! {
        #[test]
        fn any_frame_is_read_without_panic(frame: Vec<u8>) {
            Solicitation::parse(&frame);
        }
    }
}

//! What a site's kernel does with packets whose addresses are replaced, or that are masked: such packets pass nodes and threads by.

use std::net::SocketAddrV6;

use ipnet::Ipv6Net;
use sidestep_mt6d::mask::{Flow, MaskKey};
use sidestep_mt6d::{Action, Rewrite};
use wire::segment::Segmenter;
use wire::{flow, virtio_net};

use super::site::Addresses;
use super::{Network, What};

/// Where an IPv6 header has its addresses.
const ADDRESSES: std::ops::Range<usize> = 8..40;

impl Network {
    /// The node asks for something of this.
    pub(super) fn rewrites(&mut self, index: usize, action: Action) {
        let site = &mut self.sites[index];
        match action {
            Action::AddRewrite(Rewrite { inner, outer }) => {
                let before = site.heard.insert((outer.1, outer.0), (inner.1, inner.0));
                assert_eq!(before, None, "heard twice");
            }
            Action::RemoveRewrite(Rewrite { inner, outer }) => {
                let before = site.heard.remove(&(outer.1, outer.0));
                assert_eq!(before, Some((inner.1, inner.0)), "what is heard no more was heard");
            }
            Action::Replace { inner, outer: Some(outer) } => drop(site.replaced.insert(inner, outer)),
            Action::Replace { inner, outer: None } => {
                assert!(site.replaced.remove(&inner).is_some(), "what ends has begun");
            }
            _ => unreachable!("others' business"),
        }
    }

    /// The node asks for something of this.
    pub(super) fn masks(&mut self, index: usize, action: Action) {
        let site = &mut self.sites[index];
        match action {
            Action::AddMask(masked) => {
                let before = site.unmasked.insert(swapped(masked.lane), (masked.flow, masked.key));
                assert!(before.is_none(), "heard twice");
            }
            Action::RemoveMask { lane, flow } => {
                let before = site.unmasked.remove(&swapped(lane));
                assert_eq!(before.map(|(flow, _)| flow), Some(flow), "what is heard no more was heard");
            }
            Action::Mask { flow, lanes } if lanes.is_empty() => {
                assert!(site.masked.remove(&flow).is_some(), "what ends has begun");
            }
            Action::Mask { flow, lanes } => drop(site.masked.insert(flow, lanes)),
            _ => unreachable!("others' business"),
        }
    }

    /// Sends an inner packet by a lane, masked, if it is of a flow that has some.
    fn sends_masked(&mut self, index: usize, packet: &[u8]) -> bool {
        let Some(flow) = ends(packet) else { return false };
        let now = self.sites[index].clock.now(self.now);
        let Some(lanes) = self.sites[index].masked.get(&flow) else { return false };
        let lane = &lanes[(now.boot.micros() / 125_000) as usize % lanes.len()];
        let (lane, key) = (lane.lane, lane.key.clone());
        self.rewritten += 1;
        let inner = (*flow.local.ip(), *flow.remote.ip());
        let (tx_packets, tx_bytes) = (1, packet.len() as u64);
        let crossed = sidestep_mt6d::Traffic { tx_packets, tx_bytes, ..sidestep_mt6d::Traffic::default() };
        self.with(index, |node, _, _, _| node.count_rewritten(inner, &crossed, now));
        let Some((_, &other)) = self.addresses.get_lpm(&Ipv6Net::from(*lane.remote.ip())) else {
            return true;
        };
        let path = self.paths.get(&(index, other)).unwrap_or(&self.path);
        if let Some(delay) = path.delay(&mut self.random).filter(|_| packet.len() <= path.mtu) {
            self.push(self.now + delay, What::ArrivesMasked { lane, key, packet: packet.to_vec() });
        }
        true
    }

    pub(super) fn arrives_masked(&mut self, lane: Flow, key: &MaskKey, packet: Vec<u8>) {
        let Some((_, &index)) = self.addresses.get_lpm(&Ipv6Net::from(*lane.remote.ip())) else { return };
        let site = &mut self.sites[index];
        if site.node.is_none() || site.suspended {
            return;
        }
        let now = site.clock.now(self.now);
        // The key of one end is that of the other, and what comes by a lane is the flow's.
        let Some((flow, _)) = site.unmasked.get(&lane).filter(|(_, known)| known == key) else {
            site.missed += 1;
            return;
        };
        let inner = (*flow.local.ip(), *flow.remote.ip());
        assert_eq!(ends(&packet).map(swapped), Some(*flow));
        let (rx_packets, rx_bytes) = (1, packet.len() as u64);
        let crossed = sidestep_mt6d::Traffic { rx_packets, rx_bytes, ..sidestep_mt6d::Traffic::default() };
        self.with(index, |node, _, _, _| node.count_rewritten(inner, &crossed, now));
        self.deliver(index, packet);
    }

    /// Sends an inner packet or GSO packet with other addresses. False if it has none.
    pub(super) fn sends_whole(&mut self, index: usize, header: &virtio_net::Header, packet: &[u8]) -> bool {
        if self.sends_masked(index, packet) {
            return true;
        }
        let Some(inner) = addresses(packet) else { return false };
        let site = &mut self.sites[index];
        let Some(&outer) = site.replaced.get(&inner) else { return false };
        let now = site.clock.now(self.now);
        let mut segments = Vec::new();
        let mut whole = packet.to_vec();
        let mut segmenter = Segmenter::new(header, &mut whole).expect("a packet");
        while let Some(segment) = segmenter.next() {
            segments.push([segment.head, segment.payload].concat());
        }
        self.rewritten += segments.len() as u64;
        for mut packet in segments {
            let (tx_packets, tx_bytes) = (1, packet.len() as u64);
            let crossed =
                sidestep_mt6d::Traffic { tx_packets, tx_bytes, ..sidestep_mt6d::Traffic::default() };
            self.with(index, |node, _, _, _| node.count_rewritten(inner, &crossed, now));
            replace(&mut packet, outer);
            if self.addresses.get_lpm(&Ipv6Net::from(outer.0)).is_none_or(|(_, owner)| *owner != index) {
                continue;
            }
            let Some((_, &other)) = self.addresses.get_lpm(&Ipv6Net::from(outer.1)) else { continue };
            let path = self.paths.get(&(index, other)).unwrap_or(&self.path);
            // What is repeated on the way arrives as often as it does without a gateway: streams count on less.
            let Some(delay) = path.delay(&mut self.random).filter(|_| packet.len() <= path.mtu) else {
                continue;
            };
            self.push(self.now + delay, What::ArrivesWhole { packet });
        }
        true
    }

    pub(super) fn arrives_whole(&mut self, mut packet: Vec<u8>) {
        let outer = addresses(&packet).expect("it was sent");
        let Some((_, &index)) = self.addresses.get_lpm(&Ipv6Net::from(outer.1)) else { return };
        let site = &mut self.sites[index];
        if site.node.is_none() || site.suspended {
            return;
        }
        let now = site.clock.now(self.now);
        let Some(&inner) = site.heard.get(&outer) else {
            site.missed += 1;
            return;
        };
        replace(&mut packet, inner);
        let (rx_packets, rx_bytes) = (1, packet.len() as u64);
        let crossed = sidestep_mt6d::Traffic { rx_packets, rx_bytes, ..sidestep_mt6d::Traffic::default() };
        self.with(index, |node, _, _, _| node.count_rewritten((inner.1, inner.0), &crossed, now));
        self.deliver(index, packet);
    }
}

fn addresses(packet: &[u8]) -> Option<Addresses> {
    match flow::addresses(packet) {
        Ok((std::net::IpAddr::V6(source), std::net::IpAddr::V6(destination))) => Some((source, destination)),
        _ => None,
    }
}

/// The ends of a UDP packet, the sender's first.
fn ends(packet: &[u8]) -> Option<Flow> {
    let (source, destination) = addresses(packet).filter(|_| packet[6] == wire::protocol::UDP)?;
    let port = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk()?));
    let end = |address, port| SocketAddrV6::new(address, port, 0, 0);
    Some(Flow { local: end(source, port(40)?), remote: end(destination, port(42)?) })
}

fn swapped(Flow { local, remote }: Flow) -> Flow {
    Flow { local: remote, remote: local }
}

/// The transport checksum is the kernel's to change: here it stays, and is right again in the end.
fn replace(packet: &mut [u8], (source, destination): Addresses) {
    packet[ADDRESSES].copy_from_slice([source.octets(), destination.octets()].as_flattened());
}

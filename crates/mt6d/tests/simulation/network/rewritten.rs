//! What a site's kernel does with packets whose addresses are replaced: such packets pass nodes and threads by.

use ipnet::Ipv6Net;
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
            Action::Open { .. } | Action::Close { .. } => unreachable!("endpoints are others' business"),
        }
    }

    /// Sends an inner packet or GSO packet with other addresses. False if it has none.
    pub(super) fn sends_whole(&mut self, index: usize, header: &virtio_net::Header, packet: &[u8]) -> bool {
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

/// The transport checksum is the kernel's to change: here it stays, and is right again in the end.
fn replace(packet: &mut [u8], (source, destination): Addresses) {
    packet[ADDRESSES].copy_from_slice([source.octets(), destination.octets()].as_flattened());
}

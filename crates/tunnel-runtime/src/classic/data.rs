//! The packets of the classic profile: from the device through the node and back to the device.

use std::collections::HashSet;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use classic::{Node, Received, SendError, UnixTime};
use linux::tun;
use wire::coalesce::{Coalescer, MAX_PIECES, Offloads};
use wire::segment::Segmenter;
use wire::{icmp_error, ipv6, mss, virtio_net};

use super::in_place::{InPlaceForwarder, Traffic};

/// Packets that a turn reads before it writes, and bytes from which on it reads no more: what was read is to be in a
/// near cache still when it is written.
const READS: (usize, usize) = (128, 128 * 1024);
/// What there is behind a packet for the headers of its segments.
const ROOM_FOR_HEADERS: usize = 16 * 1024;
/// errno(3) of a device that is down.
const EIO: i32 = 5;

pub(super) struct DataPath {
    pub(super) queue: tun::Queue,
    /// Hashed addresses of this side.
    pub(super) own: HashSet<Ipv6Addr>,
    /// Where errors to local hosts come from.
    source: Option<IpAddr>,
    /// The largest TCP segments that fit all streams.
    max_mss: u16,
    pub(super) in_place: InPlaceForwarder,
    /// A packet that the node is to cut, one segment of it, and what becomes of that.
    read: Vec<u8>,
    packet: Vec<u8>,
    result: Vec<u8>,
    /// Packets that were read or are to be written, up to `used`, and how they merge.
    arena: Vec<u8>,
    used: usize,
    merged: Coalescer,
    pub(super) traffic: Vec<Traffic>,
}

impl DataPath {
    pub(super) fn new(
        queue: tun::Queue,
        offloads: tun::Offloads,
        source: Option<IpAddr>,
        streams: usize,
    ) -> Self {
        let (tcp, udp) = (offloads >= tun::Offloads::Tcp, offloads >= tun::Offloads::TcpAndUdp);
        DataPath {
            queue,
            own: HashSet::new(),
            source,
            max_mss: u16::MAX,
            in_place: InPlaceForwarder::default(),
            read: Vec::new(),
            packet: Vec::new(),
            result: Vec::new(),
            arena: Vec::new(),
            used: 0,
            merged: Coalescer::new(Offloads { tcp4: tcp, tcp6: tcp, udp4: udp, udp6: udp }),
            traffic: vec![Traffic::default(); streams],
        }
    }

    /// Inner packets of each stream may have so many bytes.
    pub(super) fn set_inner_mtus(&mut self, mtus: impl Iterator<Item = u16>) {
        self.max_mss = mss::for_ipv6_mtu(mtus.min().unwrap_or(u16::MAX));
    }

    /// Reads what there is, up to a batch, and writes what becomes of it.
    pub(super) fn read(&mut self, node: &mut Node, now: UnixTime) -> linux::Result<()> {
        for _ in 0..READS.0 {
            if self.used >= READS.1 {
                break;
            }
            self.make_room(tun::MAX_READ + ROOM_FOR_HEADERS);
            let length = match self.queue.read(&mut self.arena[self.used..][..tun::MAX_READ]) {
                Ok(Some(length)) if length > virtio_net::LEN => length,
                Ok(Some(_)) => continue,
                Ok(None) => break,
                // The device is down; it may come up again.
                Err(error) if error.raw_os_error() == Some(EIO) => break,
                Err(error) => return Err(error),
            };
            let (header, packet) = self.arena[self.used..][..length].split_at_mut(virtio_net::LEN);
            let header = virtio_net::Header::from_bytes((&*header).try_into().expect("its length"));
            // A connection keeps the segment size that it begins with.
            mss::clamp(packet, self.max_mss, header.transport_checksum());
            let range = self.used + virtio_net::LEN..self.used + length;
            let (arena, merged) = (&mut self.arena, &mut self.merged);
            match self.in_place.carry(&header, arena, range.clone(), merged, &mut self.traffic) {
                Some(end) => self.used = end,
                None => self.cut(&header, range, node, now),
            }
        }
        self.write();
        Ok(())
    }

    /// Takes a packet, or the segments of a GSO packet, through the node.
    fn cut(&mut self, header: &virtio_net::Header, packet: Range<usize>, node: &mut Node, now: UnixTime) {
        let mut read = std::mem::take(&mut self.read);
        read.clear();
        read.extend_from_slice(&self.arena[packet]);
        if let Ok(mut segments) = Segmenter::new(header, &mut read) {
            while let Some(segment) = segments.next() {
                self.packet.clear();
                self.packet.extend_from_slice(segment.head);
                self.packet.extend_from_slice(segment.payload);
                self.carry(node, now);
            }
        }
        self.read = read;
    }

    /// Takes one packet through the node.
    fn carry(&mut self, node: &mut Node, now: UnixTime) {
        let Ok(packet) = ipv6::Packet::parse(&self.packet) else { return };
        // The kernel says hello on every device (router solicitations, multicast listener reports): no news.
        if packet.destination().is_multicast() {
            return;
        }
        if self.own.contains(&packet.destination()) {
            if let Received::Packet { stream } = node.receive(&self.packet, now, &mut self.result) {
                self.traffic[stream].rx_packets += 1;
                self.traffic[stream].rx_bytes += self.result.len() as u64;
                self.push_result();
            }
            return;
        }
        match node.send(&self.packet, &mut self.result) {
            Ok(stream) => {
                self.traffic[stream].tx_packets += 1;
                self.traffic[stream].tx_bytes += self.packet.len() as u64;
                self.push_result();
            }
            Err(SendError::TooBig { mtu }) => {
                let mut error = [0; icmp_error::MAX_LEN];
                let source = self.source.unwrap_or(IpAddr::V6(packet.destination()));
                let reason = icmp_error::Reason::PacketTooBig { mtu: mtu.into() };
                if let Ok(length) = icmp_error::build(reason, source, &self.packet, &mut error) {
                    self.push(&error[..length]);
                }
            }
            Err(SendError::NoStream | SendError::Malformed) => {}
        }
    }

    fn push_result(&mut self) {
        let result = std::mem::take(&mut self.result);
        self.push(&result);
        self.result = result;
    }

    /// A packet is to be written.
    pub(super) fn push(&mut self, packet: &[u8]) {
        self.make_room(packet.len());
        let start = self.used + ipv6::HEADER_LEN;
        self.arena[self.used..][..packet.len()].copy_from_slice(packet);
        self.used += packet.len();
        self.merged.push(&self.arena, &packet[..ipv6::HEADER_LEN], start..self.used);
    }

    /// Makes the arena so much longer than it is used; it keeps the size that it once needed.
    fn make_room(&mut self, bytes: usize) {
        if self.arena.len() < self.used + bytes {
            self.arena.resize(self.used + bytes, 0);
        }
    }

    pub(super) fn write(&mut self) {
        for packet in self.merged.packets() {
            let mut pieces = [IoSlice::new(&[]); MAX_PIECES + 1];
            pieces[0] = IoSlice::new(packet.head);
            for (slot, piece) in pieces[1..].iter_mut().zip(packet.pieces) {
                *slot = IoSlice::new(&self.arena[piece.clone()]);
            }
            if let Err(error) = self.queue.write(&pieces[..=packet.pieces.len()]) {
                tracing::debug!("{error}");
            }
        }
        self.merged.clear();
        self.used = 0;
    }
}

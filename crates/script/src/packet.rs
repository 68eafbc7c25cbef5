//! A packet as a script gets it.

use std::net::IpAddr;
use std::ops::Range;

use wire::checksum::{Sum, TransportChecksum};
use wire::ethernet;

use crate::checksum::{self, Layout, ResizeError};

/// Where the addresses of an Ethernet header are: the source, and the end of both.
const SOURCE: usize = 6;
const ADDRESSES: usize = 12;

/// A packet that begins with an Ethernet header, a true one or one that is made up.
///
/// It owns its bytes so that it can grow; a caller that keeps one and fills it again allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    bytes: Vec<u8>,
    /// Octets at the beginning that exist for the script only.
    made_up: usize,
    /// Whether the source address among them is that of the frame.
    has_source: bool,
    form: TransportChecksum,
    /// Whether a script has written into what is real, since it was filled.
    changed: bool,
    /// The same, also where that wrote what was there.
    written: bool,
    /// Number of the interface that it leaves through.
    redirected: Option<u32>,
    /// The tag of its VLAN, if it is beside the packet.
    pub(crate) vlan: Option<u16>,
}

impl Default for Packet {
    fn default() -> Self {
        Self {
            bytes: Vec::new(),
            made_up: 0,
            has_source: false,
            form: TransportChecksum::Complete,
            changed: false,
            written: false,
            redirected: None,
            vlan: None,
        }
    }
}

impl Packet {
    /// A frame with its own Ethernet header.
    pub fn of_frame(frame: Vec<u8>, form: TransportChecksum) -> Self {
        Self { bytes: frame, form, ..Self::default() }
    }

    /// An IP packet from where there are no frames. The Ethernet header before it has the EtherType that the packet's
    /// version says, and no addresses: a script that reads them, or writes there, fails.
    pub fn of_ip(packet: &[u8], form: TransportChecksum) -> Self {
        let mut new = Self::default();
        new.fill_ip(packet, form);
        new
    }

    /// Becomes an [IP packet](Self::of_ip), in the memory that it has.
    pub fn fill_ip(&mut self, packet: &[u8], form: TransportChecksum) {
        let ethertype = match packet.first() {
            Some(first) if first >> 4 == 4 => ethernet::ETHERTYPE_IPV4,
            Some(first) if first >> 4 == 6 => ethernet::ETHERTYPE_IPV6,
            _ => 0,
        };
        self.bytes.clear();
        self.bytes.extend_from_slice(&[0; ethernet::HEADER_LEN - 2]);
        self.bytes.extend_from_slice(&ethertype.to_be_bytes());
        self.bytes.extend_from_slice(packet);
        self.made_up = ethernet::HEADER_LEN;
        self.has_source = false;
        self.form = form;
        (self.changed, self.written) = (false, false);
        self.redirected = None;
        self.vlan = None;
    }

    /// Puts the source address of the frame that an [IP packet](Self::fill_ip) came in into its header.
    pub fn put_source(&mut self, address: [u8; 6]) {
        if self.made_up > 0 {
            self.bytes[SOURCE..ADDRESSES].copy_from_slice(&address);
            self.has_source = true;
        }
    }

    /// Whether these octets, by their places, are of addresses that there are not, and of nothing but the link header:
    /// who takes the whole packet gets zeros.
    pub(crate) fn lacks(&self, start: usize, end: usize) -> bool {
        let known = if self.has_source { SOURCE } else { ADDRESSES };
        start < known && start < end && end <= self.made_up
    }

    /// Whether these octets would change a link header that there is not.
    pub(crate) fn changes_made_up(&self, start: usize, octets: &[u8]) -> bool {
        let within = start..self.made_up.min(start + octets.len());
        !within.is_empty() && self.bytes[within.clone()] != octets[..within.len()]
    }

    /// Everything, with the Ethernet header.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What came from the network, and goes there again: without a header that was made up.
    pub fn real(&self) -> &[u8] {
        &self.bytes[self.made_up..]
    }

    /// Whether a script has changed what goes to the network again.
    pub const fn is_changed(&self) -> bool {
        self.changed
    }

    /// Whether a script has written to what goes to the network again, also if it is the same as before.
    pub const fn is_written(&self) -> bool {
        self.written
    }

    /// Something is written to it that is there already.
    pub(crate) const fn write_same(&mut self) {
        self.written = true;
    }

    /// The interface that a script has redirected it to. Whoever carries it on its way sends it there, as it is.
    pub const fn redirected(&self) -> Option<u32> {
        self.redirected
    }

    pub(crate) const fn redirect(&mut self, interface: Option<u32>) {
        self.redirected = interface;
    }

    /// Whether it has a link header, and not one that is made up.
    pub(crate) const fn has_link(&self) -> bool {
        self.made_up == 0
    }

    /// Takes octets out of the link header, which no checksum covers.
    pub(crate) fn remove_from_link(&mut self, octets: Range<usize>) {
        self.bytes.drain(octets);
        (self.changed, self.written) = (true, true);
    }

    /// Completes a partial transport checksum, as the kernel or a network card would: it is no longer known to be
    /// partial to whoever gets these octets.
    pub fn complete_transport(&mut self) {
        if self.form == TransportChecksum::Complete {
            return;
        }
        self.form = TransportChecksum::Complete;
        let Some(layout) = Layout::of_frame(&self.bytes) else { return };
        let Some(transport) = layout.transport else { return };
        // The field holds the sum of the pseudo-header, so it is part of what is summed.
        let sum = Sum::of(&self.bytes[transport.start..layout.end]);
        let value =
            if transport.protocol == wire::protocol::UDP { sum.udp_checksum() } else { sum.checksum() };
        self.bytes[transport.checksum..transport.checksum + 2].copy_from_slice(&value.to_be_bytes());
    }

    /// Whether the transport checksum is whole.
    pub const fn form(&self) -> TransportChecksum {
        self.form
    }

    /// Writes octets, which must be in the packet, and has its checksums follow.
    pub(crate) fn write(&mut self, at: usize, octets: &[u8]) {
        let skip = self.made_up.saturating_sub(at).min(octets.len());
        let (at, octets) = (at + skip, &octets[skip..]);
        if octets.is_empty() {
            return;
        }
        (self.changed, self.written) = (true, true);
        match Layout::of_frame(&self.bytes) {
            Some(layout) => layout.write(&mut self.bytes, at, octets, self.form),
            None => self.bytes[at..at + octets.len()].copy_from_slice(octets),
        }
    }

    /// Writes octets into what is not taken for a packet.
    pub(crate) fn write_plain(&mut self, at: usize, octets: &[u8]) {
        (self.changed, self.written) = (true, true);
        self.bytes[at..at + octets.len()].copy_from_slice(octets);
    }

    /// Makes room at `at`, or takes octets away.
    pub(crate) fn resize(&mut self, at: usize, count: isize) -> Result<(), ResizeError> {
        if at < self.made_up {
            return Err(ResizeError::Header { end: self.made_up });
        }
        checksum::resize(&mut self.bytes, at, count, self.form)?;
        (self.changed, self.written) = (true, true);
        Ok(())
    }

    /// Which flow it belongs to; none without an IP header.
    pub fn flow(&self) -> Option<Flow> {
        let layout = Layout::of_frame(&self.bytes)?;
        let (from, to) = layout.addresses();
        let addresses = &self.bytes[from..to];
        let (source, destination) = addresses.split_at(addresses.len() / 2);
        let (protocol, ports) = match layout.transport {
            Some(transport) if matches!(transport.protocol, wire::protocol::TCP | wire::protocol::UDP) => {
                let ports = &self.bytes[transport.start..transport.start + 4];
                (transport.protocol, (word(ports, 0), word(ports, 2)))
            }
            Some(transport) => (transport.protocol, (0, 0)),
            None if layout.version == 4 => (self.bytes[layout.network + 9], (0, 0)),
            None => (self.bytes[layout.network + 6], (0, 0)),
        };
        let source = (address(source)?, ports.0);
        let destination = (address(destination)?, ports.1);
        let reversed = source > destination;
        let (low, high) = if reversed { (destination, source) } else { (source, destination) };
        Some(Flow { protocol, low, high, reversed })
    }
}

/// Both directions of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Transport protocol; behind extension headers of a later fragment, the first next header.
    pub protocol: u8,
    /// The lesser end: address and port, port 0 where there is none.
    pub low: (IpAddr, u16),
    /// The greater end.
    pub high: (IpAddr, u16),
    /// Whether this packet goes from the greater to the lesser.
    pub reversed: bool,
}

fn address(octets: &[u8]) -> Option<IpAddr> {
    match octets.len() {
        4 => Some(<[u8; 4]>::try_from(octets).ok()?.into()),
        _ => Some(<[u8; 16]>::try_from(octets).ok()?.into()),
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_checksum_is_completed_over_what_it_covers() {
        let mut udp = vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1];
        udp.extend([0x10, 0, 0, 53, 0, 10, 0, 0, 1, 2]);
        let layout = Layout::of_ipv4(&udp, 0).expect("a layout");
        let mut whole = udp.clone();
        checksum::complete(&mut whole, &layout);
        let pseudo = Sum::of(&udp[12..20]) + Sum::dword(10) + Sum::word(17);
        udp[26..28].copy_from_slice(&pseudo.value().to_be_bytes());
        let mut packet = Packet::of_ip(&udp, TransportChecksum::Partial);
        assert!(!packet.is_changed());
        packet.write(14 + 28, &[1]);
        assert!(packet.is_changed());
        packet.complete_transport();
        assert_eq!((&packet.real()[20..], packet.form()), (&whole[20..], TransportChecksum::Complete));
    }
}

//! Reads captures ([`wire::pcap`]) of Ethernet frames and of IP packets.

use wire::pcap::{Capture, LINKTYPE_ETHERNET, Record};

/// What a captured packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header (link type 1).
    Ethernet,
    /// An IP header (link types 12, 101, 228 and 229).
    Ip,
}

/// A packet of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// What it begins with.
    pub link: Link,
    /// What was captured of it.
    pub octets: Vec<u8>,
}

/// Why a capture cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// Another format, such as pcapng.
    #[error(
        "no capture in the format of libpcap (`tcpdump -w` writes it, `editcap -F pcap` makes it of pcapng)"
    )]
    Format,
    /// Packets that begin with something else.
    #[error("link type {0}: only Ethernet and IP are read")]
    Link(u16),
    /// The file ends within a packet.
    #[error("the file ends within packet {0}")]
    Truncated(usize),
}

/// All packets of a capture, in their order.
///
/// # Errors
/// What is wrong with it.
pub fn read(file: &[u8]) -> Result<Vec<Captured>, PcapError> {
    let capture = Capture::parse(file).map_err(|_| PcapError::Format)?;
    let link = match capture.link_type() {
        LINKTYPE_ETHERNET => Link::Ethernet,
        12 | 101 | 228 | 229 => Link::Ip,
        other => return Err(PcapError::Link(other)),
    };
    let packet = |(at, record): (usize, Result<Record<'_>, _>)| {
        let record = record.map_err(|_| PcapError::Truncated(at + 1))?;
        Ok(Captured { link, octets: record.octets.to_vec() })
    };
    capture.records().enumerate().map(packet).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use wire::pcap::Header;

    fn capture(link_type: u16, packets: &[&[u8]]) -> Vec<u8> {
        let mut file = Header { link_type, longest: 65_535 }.to_bytes().to_vec();
        for octets in packets {
            file.extend(Record { time: Duration::ZERO, octets }.header());
            file.extend(*octets);
        }
        file
    }

    #[test]
    fn a_capture_of_ip_packets_is_read() {
        let packets = read(&capture(101, &[b"one", b"", b"three"])).unwrap();
        let octets: Vec<_> = packets.iter().map(|packet| &packet.octets[..]).collect();
        assert_eq!(octets, [&b"one"[..], b"", b"three"]);
        assert_eq!(packets[0].link, Link::Ip);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let mut file = capture(1, &[b"one", b"two"]);
        file.pop();
        assert_eq!(read(&file), Err(PcapError::Truncated(2)));
        assert_eq!(read(&capture(113, &[])), Err(PcapError::Link(113)));
        assert_eq!(read(&[0x0a; 40]), Err(PcapError::Format));
    }
}

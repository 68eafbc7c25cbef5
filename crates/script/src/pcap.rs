//! Reads and writes captures ([`wire::pcap`], [`wire::pcapng`]) of Ethernet frames and of IP packets.

use std::path::Path;
use std::time::Duration;

use wire::ParseError;
use wire::checksum::TransportChecksum;
use wire::pcap::{self, LINKTYPE_ETHERNET, LINKTYPE_RAW, Record};
use wire::pcapng;

use crate::packet::Packet;

/// What is said in files: no packet has more octets.
const LONGEST: u32 = 1 << 18;

/// Octets of the name of a capture that scripts write.
const LONGEST_NAME: usize = 32;

/// A capture that scripts write: its name, and how it is written. It is a word of small letters, digits, `_` and `-`, and may
/// end with `.pcap` or `.pcapng`: nothing that could lead out of a folder.
///
/// # Errors
/// What it has to be.
pub fn capture_name(name: &str) -> Result<(&str, Format), CaptureName> {
    let (word, format) = match name.rsplit_once('.') {
        None => (name, Format::Pcapng),
        Some((word, "pcap")) => (word, Format::Pcap),
        Some((word, "pcapng")) => (word, Format::Pcapng),
        Some(_) => return Err(CaptureName(name.to_owned())),
    };
    let is_good =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    match (1..=LONGEST_NAME).contains(&word.len()) && word.bytes().all(is_good) {
        true => Ok((word, format)),
        false => Err(CaptureName(name.to_owned())),
    }
}

/// It is no name of a capture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a capture: up to {LONGEST_NAME} of a-z, 0-9, _ and -, and .pcap or .pcapng behind it if wanted"
)]
pub struct CaptureName(String);

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
    /// When it was captured, in Unix time.
    pub time: Duration,
    /// What was captured of it.
    pub octets: Vec<u8>,
}

/// Why a capture cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// Another format.
    #[error("no capture in the format pcap or pcapng (as `tcpdump -w` and Wireshark write them)")]
    Format,
    /// Packets that begin with something else.
    #[error("packet {0} is of link type {1}: only Ethernet and IP are read")]
    Link(usize, u16),
    /// The file ends within a packet.
    #[error("the file ends within packet {0}")]
    Truncated(usize),
    /// Something else is wrong.
    #[error("behind packet {0}: {1}")]
    Block(usize, ParseError),
}

/// Why packets cannot be in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a file of the format pcap has packets of one link type, and there are two: write pcapng")]
pub struct MixedLinks;

/// How a capture is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// That of libpcap, with nanoseconds.
    Pcap,
    /// That of Wireshark.
    Pcapng,
}

impl Captured {
    /// As a script gets it.
    #[must_use]
    pub fn packet(&self) -> Packet {
        match self.link {
            Link::Ethernet => Packet::of_frame(self.octets.clone(), TransportChecksum::Complete),
            Link::Ip => Packet::of_ip(&self.octets, TransportChecksum::Complete),
        }
    }
}

impl Link {
    const fn number(self) -> u16 {
        match self {
            Self::Ethernet => LINKTYPE_ETHERNET,
            Self::Ip => LINKTYPE_RAW,
        }
    }

    const fn of(number: u16) -> Option<Self> {
        match number {
            LINKTYPE_ETHERNET => Some(Self::Ethernet),
            12 | LINKTYPE_RAW | 228 | 229 => Some(Self::Ip),
            _ => None,
        }
    }
}

impl Format {
    /// That of a file, by the end of its name.
    #[must_use]
    pub fn of(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()? {
            "pcap" | "cap" => Some(Self::Pcap),
            "pcapng" | "ntar" => Some(Self::Pcapng),
            _ => None,
        }
    }

    /// A file with these packets.
    ///
    /// # Errors
    /// If the format does not take them together.
    pub fn write(self, packets: &[Captured]) -> Result<Vec<u8>, MixedLinks> {
        let first = packets.first().map_or(Link::Ethernet, |packet| packet.link);
        let record = |packet: &'_ Captured| Record { time: packet.time, octets: &packet.octets }.header();
        match self {
            Self::Pcap if packets.iter().any(|packet| packet.link != first) => Err(MixedLinks),
            Self::Pcap => {
                let header = pcap::Header { link_type: first.number(), longest: LONGEST };
                let mut file = header.to_bytes().to_vec();
                for packet in packets {
                    file.extend(record(packet));
                    file.extend(&packet.octets);
                }
                Ok(file)
            }
            Self::Pcapng => {
                let mut file = pcapng::section();
                let mut links = Vec::new();
                for packet in packets {
                    let known = links.iter().position(|link| *link == packet.link);
                    let interface = known.unwrap_or_else(|| {
                        file.extend(pcapng::interface(packet.link.number(), LONGEST));
                        links.push(packet.link);
                        links.len() - 1
                    });
                    let record = Record { time: packet.time, octets: &packet.octets };
                    file.extend(pcapng::enhanced_packet(interface as u32, &record));
                }
                Ok(file)
            }
        }
    }
}

/// All packets of a capture, in their order.
///
/// # Errors
/// What is wrong with it.
pub fn read(file: &[u8]) -> Result<Vec<Captured>, PcapError> {
    if let Ok(capture) = pcap::Capture::parse(file) {
        let link = capture.link_type();
        return collect(capture.records().map(|record| record.map(|record| (link, record))), link);
    }
    let capture = pcapng::Capture::parse(file).map_err(|_| PcapError::Format)?;
    collect(capture.records(), LINKTYPE_ETHERNET)
}

/// The packets; `link` is that of all, where the file says so at its beginning.
fn collect<'a>(
    records: impl Iterator<Item = Result<(u16, Record<'a>), ParseError>>,
    link: u16,
) -> Result<Vec<Captured>, PcapError> {
    Link::of(link).ok_or(PcapError::Link(1, link))?;
    let packet = |(at, record): (usize, Result<(u16, Record<'a>), ParseError>)| {
        let (number, record) = record.map_err(|error| match error {
            ParseError::Truncated => PcapError::Truncated(at + 1),
            other => PcapError::Block(at, other),
        })?;
        let link = Link::of(number).ok_or(PcapError::Link(at + 1, number))?;
        Ok(Captured { link, time: record.time, octets: record.octets.to_vec() })
    };
    records.enumerate().map(packet).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(link: Link, octets: &[&[u8]]) -> Vec<Captured> {
        let packet = |(at, octets): (u64, &&[u8])| Captured {
            link,
            time: Duration::from_nanos(1_700_000_000_000_000_001 + at),
            octets: octets.to_vec(),
        };
        (0..).zip(octets).map(packet).collect()
    }

    #[test]
    fn what_is_written_in_either_format_is_read_back() {
        for format in [Format::Pcap, Format::Pcapng] {
            for link in [Link::Ethernet, Link::Ip] {
                let all = packets(link, &[b"one", b"", b"three"]);
                assert_eq!(read(&format.write(&all).unwrap()), Ok(all));
            }
            assert_eq!(read(&format.write(&[]).unwrap()), Ok(Vec::new()));
        }
        let mixed = [packets(Link::Ip, &[b"one"]), packets(Link::Ethernet, &[b"two"])].concat();
        assert_eq!(Format::Pcap.write(&mixed), Err(MixedLinks));
        assert_eq!(read(&Format::Pcapng.write(&mixed).unwrap()), Ok(mixed));
    }

    #[test]
    fn names_of_captures_lead_nowhere_else() {
        assert_eq!(capture_name("odd-1_a"), Ok(("odd-1_a", Format::Pcapng)));
        assert_eq!(capture_name("odd.pcap"), Ok(("odd", Format::Pcap)));
        assert_eq!(capture_name("odd.pcapng"), Ok(("odd", Format::Pcapng)));
        for name in
            ["", ".", "..", "../a", "a/b", "a.txt", ".pcap", "a.b.pcap", "A", "a\0", "a b", &"a".repeat(33)]
        {
            assert_eq!(capture_name(name), Err(CaptureName(name.to_owned())), "{name:?}");
        }
    }

    #[test]
    fn a_format_is_that_of_the_name() {
        for (name, format) in [
            ("a.pcap", Some(Format::Pcap)),
            ("b/c.pcapng", Some(Format::Pcapng)),
            ("a.txt", None),
            ("pcap", None),
        ] {
            assert_eq!(Format::of(Path::new(name)), format, "{name}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        for format in [Format::Pcap, Format::Pcapng] {
            let mut file = format.write(&packets(Link::Ethernet, &[b"one", b"two"])).unwrap();
            file.pop();
            assert_eq!(read(&file), Err(PcapError::Truncated(2)));
        }
        let header = pcap::Header { link_type: 113, longest: 65_535 };
        assert_eq!(read(&header.to_bytes()), Err(PcapError::Link(1, 113)));
        let record = Record { time: Duration::ZERO, octets: b"one" };
        let file =
            [pcapng::section(), pcapng::interface(113, 0), pcapng::enhanced_packet(0, &record)].concat();
        assert_eq!(read(&file), Err(PcapError::Link(1, 113)));
        let nobodys = [pcapng::section(), pcapng::enhanced_packet(0, &record)].concat();
        assert_eq!(read(&nobodys), Err(PcapError::Block(0, ParseError::Value)));
        assert_eq!(read(&[0x0a; 40]), Err(PcapError::Format));
    }
}

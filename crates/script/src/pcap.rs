//! Reads captures in the classic format of libpcap (draft-ietf-opsawg-pcap), of Ethernet frames and of IP packets.

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
    Link(u32),
    /// The file ends within a packet.
    #[error("the file ends within packet {0}")]
    Truncated(usize),
}

/// All packets of a capture, in their order.
///
/// # Errors
/// What is wrong with it.
pub fn read(file: &[u8]) -> Result<Vec<Captured>, PcapError> {
    let (header, mut rest) = file.split_first_chunk::<24>().ok_or(PcapError::Format)?;
    // Times are in microseconds or nanoseconds, numbers in the byte order of the machine that wrote.
    let little = match header[..4] {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => true,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => false,
        _ => return Err(PcapError::Format),
    };
    let number = |bytes: [u8; 4]| if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) };
    let field = |bytes: &[u8], at: usize| number([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    // The upper bits tell of frame check sequences.
    let link = match field(header, 20) & 0xffff {
        1 => Link::Ethernet,
        12 | 101 | 228 | 229 => Link::Ip,
        other => return Err(PcapError::Link(other)),
    };
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let truncated = PcapError::Truncated(packets.len() + 1);
        let (record, behind) = rest.split_first_chunk::<16>().ok_or(truncated.clone())?;
        let length = field(record, 8) as usize;
        let (octets, behind) = behind.split_at_checked(length).ok_or(truncated)?;
        packets.push(Captured { link, octets: octets.to_vec() });
        rest = behind;
    }
    Ok(packets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capture(link: u32, packets: &[&[u8]], little: bool) -> Vec<u8> {
        let word = |value: u32| if little { value.to_le_bytes() } else { value.to_be_bytes() };
        let mut file = word(0xa1b2_c3d4).to_vec();
        for value in [0x0004_0002, 0, 0, 65535, link] {
            file.extend(word(value));
        }
        for packet in packets {
            for value in [1, 2, packet.len() as u32, packet.len() as u32] {
                file.extend(word(value));
            }
            file.extend(*packet);
        }
        file
    }

    #[test]
    fn captures_of_both_byte_orders_are_read() {
        for little in [true, false] {
            let packets = read(&capture(101, &[b"one", b"", b"three"], little)).unwrap();
            assert_eq!(
                packets.iter().map(|packet| &packet.octets[..]).collect::<Vec<_>>(),
                [&b"one"[..], b"", b"three"]
            );
            assert_eq!(packets[0].link, Link::Ip);
        }
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let mut file = capture(1, &[b"one", b"two"], true);
        file.pop();
        assert_eq!(read(&file), Err(PcapError::Truncated(2)));
        assert_eq!(read(&capture(113, &[], true)), Err(PcapError::Link(113)));
        assert_eq!(read(&[0x0a; 40]), Err(PcapError::Format));
    }

    proptest! {
        #[test]
        fn no_file_makes_it_panic(tail in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut file = capture(1, &[], true);
            file.extend(&tail);
            let _ = read(&file);
            let _ = read(&tail);
        }
    }
}

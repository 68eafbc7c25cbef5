//! What comes in by an interface from some networks before any firewall of this host sees it: whether a peer that is not heard
//! sends at all, and what routers say of what is sent to it.

use std::net::{Ipv6Addr, SocketAddrV6};

use ipnet::Ipv6Net;

use crate::error::Result;
use crate::netlink::Link;
use crate::packet::{
    AND, AT_NETWORK, Instruction, JUMP_IF_AT_LEAST, JUMP_IF_EQUAL, LOAD_BYTE, LOAD_HALF, LOAD_WORD, PROTOCOL,
    PacketOptions, PacketSocket, RETURN,
};

/// Networks that one socket looks for.
pub const SOURCES: usize = 8;
const ETHERNET: usize = 14;
const IPV6: usize = 40;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
/// The first type of ICMPv6 that is no error.
const NO_ERROR: u32 = 128;

/// Something that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// A UDP datagram from one of the networks.
    Datagram {
        /// Where from.
        source: SocketAddrV6,
        /// Where to.
        destination: SocketAddrV6,
    },
    /// An ICMPv6 error that quotes a UDP datagram. Anybody can send one about anything; a true one comes `to` the address of
    /// this host that the datagram was sent from (RFC 4443, 2.2), its `source`.
    Error {
        /// Who says so.
        from: Ipv6Addr,
        /// To whom.
        to: Ipv6Addr,
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
        /// Where what it is about came from.
        source: SocketAddrV6,
        /// Where that was to go.
        destination: SocketAddrV6,
    },
}

/// Sees what comes in from some networks. Non-blocking; what is not read soon is lost.
#[derive(Debug)]
pub struct Witness {
    socket: PacketSocket,
    link_header: usize,
}

impl Witness {
    /// Looks at what comes in by `link`: datagrams from the first [`SOURCES`] of `sources`, and all ICMPv6 errors.
    pub fn open(link: &Link, sources: &[Ipv6Net]) -> Result<Self> {
        let filter = filter(&sources[..sources.len().min(SOURCES)]);
        let socket = PacketSocket::open(
            link.index,
            &PacketOptions { filter: Some(&filter), ..PacketOptions::default() },
        )?;
        Ok(Witness { socket, link_header: if link.mac.is_some() { ETHERNET } else { 0 } })
    }

    /// The next; none when there is none now. What cannot be understood is passed over.
    pub fn next(&self) -> Result<Option<Sighting>> {
        let mut frame = [0; 256];
        while let Some(length) = self.socket.recv(&mut frame)? {
            let packet = frame.get(self.link_header..length.min(frame.len())).unwrap_or(&[]);
            if let Some(sighting) = read(packet) {
                return Ok(Some(sighting));
            }
        }
        Ok(None)
    }
}

/// Lets through UDP from these networks and errors of ICMPv6, without extension headers.
fn filter(sources: &[Ipv6Net]) -> Vec<Instruction> {
    const ALL: Instruction = (RETURN, 0, 0, 0x40000);
    const NOTHING: Instruction = (RETURN, 0, 0, 0);
    let mut of_sources = Vec::new();
    for source in sources {
        let (network, mask) = (source.network().octets(), source.netmask().octets());
        let word = |bytes: &[u8; 16], at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let words: Vec<_> = (0..16).step_by(4).filter(|at| word(&mask, *at) != 0).collect();
        for (number, at) in words.iter().enumerate() {
            // To the next source, past the words that are left and the return.
            let past = (3 * (words.len() - number - 1) + 1) as u8;
            of_sources.push((LOAD_WORD, 0, 0, AT_NETWORK + 8 + *at as u32));
            of_sources.push((AND, 0, 0, word(&mask, *at)));
            of_sources.push((JUMP_IF_EQUAL, 0, past, word(&network, *at)));
        }
        of_sources.push(ALL);
    }
    of_sources.push(NOTHING);
    let mut filter = vec![
        (LOAD_HALF, 0, 0, PROTOCOL),
        (JUMP_IF_EQUAL, 1, 0, 0x86dd),
        NOTHING,
        (LOAD_BYTE, 0, 0, AT_NETWORK + 6), // next header
        (JUMP_IF_EQUAL, 0, 4, ICMPV6.into()),
        (LOAD_BYTE, 0, 0, AT_NETWORK + 40), // type
        (JUMP_IF_AT_LEAST, 1, 0, NO_ERROR),
        ALL,
        NOTHING,
        (JUMP_IF_EQUAL, 1, 0, UDP.into()),
        NOTHING,
    ];
    filter.append(&mut of_sources);
    filter
}

fn read(packet: &[u8]) -> Option<Sighting> {
    match *packet.get(6)? {
        UDP => {
            let (source, destination) = ends(packet)?;
            Some(Sighting::Datagram { source, destination })
        }
        ICMPV6 => {
            let (source, destination) = ends(packet.get(IPV6 + 8..)?)?;
            let (from, to) = (address(packet, 8)?, address(packet, 24)?);
            let (kind, code) = (*packet.get(IPV6)?, *packet.get(IPV6 + 1)?);
            Some(Sighting::Error { from, to, kind, code, source, destination })
        }
        _ => None,
    }
}

/// Source and destination of a UDP datagram in IPv6 without extension headers, of which there may be the beginning only.
fn ends(packet: &[u8]) -> Option<(SocketAddrV6, SocketAddrV6)> {
    let port = |at: usize| Some(u16::from_be_bytes(*packet.get(at..)?.first_chunk::<2>()?));
    let source = SocketAddrV6::new(address(packet, 8)?, port(IPV6)?, 0, 0);
    let destination = SocketAddrV6::new(address(packet, 24)?, port(IPV6 + 2)?, 0, 0);
    (packet[0] >> 4 == 6 && packet[6] == UDP).then_some((source, destination))
}

fn address(packet: &[u8], at: usize) -> Option<Ipv6Addr> {
    Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter as the kernel does, on a packet without a link header; whether it lets it through.
    fn passes(filter: &[Instruction], packet: &[u8]) -> bool {
        let (mut at, mut value) = (0, 0u32);
        loop {
            let (code, yes, no, number) = filter[at];
            at += 1;
            let byte = |offset: u32| u32::from(packet[(number - AT_NETWORK + offset) as usize]);
            let jump = |condition: bool| usize::from(if condition { yes } else { no });
            match code {
                LOAD_HALF => value = 0x86dd,
                LOAD_BYTE => value = byte(0),
                LOAD_WORD => value = (0..4).fold(0, |word, offset| word << 8 | byte(offset)),
                AND => value &= number,
                JUMP_IF_EQUAL => at += jump(value == number),
                JUMP_IF_AT_LEAST => at += jump(value >= number),
                _ => return number != 0,
            }
        }
    }

    fn packet(next: u8, source: &str, payload: &[u8]) -> Vec<u8> {
        let address = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
        packet.extend(address(source));
        packet.extend(address("2001:db8:a1::1"));
        packet.extend(payload);
        packet
    }

    #[test]
    fn datagrams_of_the_networks_and_errors_are_seen() {
        let nets =
            ["2001:db8:b1::/64", "2001:db8:c000::/35", "2001:db8:d1::80/121"].map(|net| net.parse().unwrap());
        let filter = filter(&nets);
        let sees = |next, source, payload: &[u8]| passes(&filter, &packet(next, source, payload));
        for inside in ["2001:db8:b1::1", "2001:db8:b1::ffff:1", "2001:db8:dfff::1", "2001:db8:d1::ff"] {
            assert!(sees(UDP, inside, &[0; 8]), "{inside}");
            assert!(!sees(6, inside, &[0; 8]), "{inside}");
        }
        for outside in ["2001:db8:b2::1", "2001:db8:e000::1", "2001:db8:d1::7f", "2001:db9:b1::1"] {
            assert!(!sees(UDP, outside, &[0; 8]), "{outside}");
            assert!(sees(ICMPV6, outside, &[1, 3]), "an error from {outside}");
            assert!(!sees(ICMPV6, outside, &[128, 0]), "an echo request from {outside}");
        }
    }

    #[test]
    fn what_is_seen_is_understood_and_what_is_cut_short_is_passed_over() {
        let datagram = packet(UDP, "2001:db8:b1::1", &[0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0]);
        let source = "[2001:db8:b1::1]:4660".parse().unwrap();
        let destination = "[2001:db8:a1::1]:22136".parse().unwrap();
        assert_eq!(read(&datagram), Some(Sighting::Datagram { source, destination }));
        let about =
            |quoted: &[u8]| packet(ICMPV6, "2001:db8::1", &[&[1, 5, 0, 0, 0, 0, 0, 0], quoted].concat());
        let error = about(&datagram);
        let (from, to) = ("2001:db8::1".parse().unwrap(), "2001:db8:a1::1".parse().unwrap());
        let expected = Sighting::Error { from, to, kind: 1, code: 5, source, destination };
        assert_eq!(read(&error), Some(expected));
        for length in 0..IPV6 + 8 + IPV6 + 4 {
            assert_eq!(read(&error[..length]), None, "{length}");
        }
        let (mut tcp, mut no_ipv6) = (datagram.clone(), datagram.clone());
        (tcp[6], no_ipv6[0]) = (6, 0x45);
        for other in [tcp, no_ipv6] {
            assert_eq!(read(&about(&other)), None, "{other:?}");
        }
        for length in 0..IPV6 + 4 {
            assert_eq!(read(&datagram[..length]), None, "{length}");
        }
    }
}

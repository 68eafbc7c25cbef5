//! A 6in4 tunnel endpoint (RFC 4213 §3) in user space, for kernels without `sit`.
//!
//! Inner IPv6 comes and goes as Ethernet frames of a veth whose other end the router's kernel routes over;
//! outer IPv4 comes and goes on the router's middle interface, to the one peer whose Ethernet address is known.
//! The kernel has no IPv4 address there, so it does not answer for us.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Frame, Header, MacAddress};
use wire::{ipv4, ipv6};

use crate::Error;
use crate::frame_socket::{FrameSocket, MAXIMUM_FRAME, wait};

const PROTOCOL_IPV6: u8 = 41;
const TTL: u8 = 64;

/// One end of the tunnel.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The interface on which the kernel's IPv6 packets arrive.
    pub inner: String,
    /// Ethernet address of the kernel's end of that link.
    pub inner_mac: MacAddress,
    /// The interface of the IPv4 network.
    pub outer: String,
    /// Ethernet address of the peer on it.
    pub outer_mac: MacAddress,
    /// Our IPv4 address.
    pub local: Ipv4Addr,
    /// The peer's.
    pub remote: Ipv4Addr,
}

/// Carries packets through the tunnel until `stop` is set.
///
/// # Errors
/// When an interface does not exist or a socket fails.
pub fn run(endpoint: &Endpoint, stop: &Arc<AtomicBool>) -> Result<(), Error> {
    let inner = FrameSocket::open(&endpoint.inner, false)?;
    let outer = FrameSocket::open(&endpoint.outer, false)?;
    let mut buffer = vec![0; MAXIMUM_FRAME];
    let mut frame = Vec::with_capacity(MAXIMUM_FRAME + ipv4::HEADER_LEN);
    while !stop.load(Ordering::Relaxed) {
        wait([&inner, &outer], Duration::from_millis(200))?;
        while let Some(received) = inner.receive(&mut buffer)? {
            if let Some(packet) = ipv6_packet(received) {
                encapsulate(endpoint, outer.address(), packet, &mut frame);
                outer.send(&frame);
            }
        }
        while let Some(received) = outer.receive(&mut buffer)? {
            if let Some(packet) = decapsulate(endpoint, received) {
                ethernet(&mut frame, endpoint.inner_mac, inner.address(), ETHERTYPE_IPV6);
                frame.extend_from_slice(packet);
                inner.send(&frame);
            }
        }
    }
    Ok(())
}

/// The IPv6 packet of an Ethernet frame, without padding.
fn ipv6_packet(frame: &[u8]) -> Option<&[u8]> {
    let frame = Frame::parse(frame).ok()?;
    if frame.ethertype() == ETHERTYPE_IPV6 { whole_ipv6(frame.payload()) } else { None }
}

/// An IPv6 packet cut to the length that it states.
fn whole_ipv6(bytes: &[u8]) -> Option<&[u8]> {
    let packet = ipv6::Packet::parse(bytes).ok()?;
    bytes.get(..ipv6::HEADER_LEN + usize::from(packet.payload_length()))
}

/// Puts an IPv6 packet into an IPv4 one. Fragmentation is not needed: the tunnel's MTU is the link's less 20.
fn encapsulate(endpoint: &Endpoint, source: MacAddress, packet: &[u8], frame: &mut Vec<u8>) {
    let header = ipv4::Header {
        type_of_service: 0,
        total_length: u16::try_from(ipv4::HEADER_LEN + packet.len()).unwrap_or(u16::MAX),
        identification: 0,
        dont_fragment: false,
        time_to_live: TTL,
        protocol: PROTOCOL_IPV6,
        source: endpoint.local,
        destination: endpoint.remote,
    };
    ethernet(frame, endpoint.outer_mac, source, ETHERTYPE_IPV4);
    frame.extend_from_slice(&header.to_bytes());
    frame.extend_from_slice(packet);
}

/// The IPv6 packet inside a frame that our peer sent to us.
fn decapsulate<'a>(endpoint: &Endpoint, frame: &'a [u8]) -> Option<&'a [u8]> {
    let frame = Frame::parse(frame).ok()?;
    if frame.ethertype() != ETHERTYPE_IPV4 {
        return None;
    }
    let packet = ipv4::Packet::parse(frame.payload()).ok()?;
    let ours = packet.protocol() == PROTOCOL_IPV6
        && (packet.source(), packet.destination()) == (endpoint.remote, endpoint.local)
        && !packet.is_fragment();
    if ours { whole_ipv6(packet.payload()) } else { None }
}

fn ethernet(frame: &mut Vec<u8>, destination: MacAddress, source: MacAddress, ethertype: u16) {
    let header = Header { destination, source, ethertype };
    frame.clear();
    frame.extend_from_slice(&header.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoint(local: [u8; 4], remote: [u8; 4]) -> Endpoint {
        Endpoint {
            inner: "t".into(),
            inner_mac: MacAddress([2; 6]),
            outer: "mid".into(),
            outer_mac: MacAddress([4; 6]),
            local: local.into(),
            remote: remote.into(),
        }
    }

    #[test]
    fn what_one_end_wraps_the_other_unwraps() {
        let here = endpoint([192, 0, 2, 1], [192, 0, 2, 2]);
        let there = endpoint([192, 0, 2, 2], [192, 0, 2, 1]);
        let mut packet = vec![0u8; 60];
        packet[0] = 0x60;
        packet[5] = 20;
        let mut frame = Vec::new();
        encapsulate(&here, MacAddress([6; 6]), &packet, &mut frame);
        assert!(ipv4::Packet::parse(&frame[14..]).expect("an IPv4 packet").has_valid_checksum());
        assert_eq!(decapsulate(&there, &frame), Some(&packet[..]));
        assert_eq!(decapsulate(&here, &frame), None, "a packet to somebody else");
        frame[20] = 0x20;
        assert_eq!(decapsulate(&there, &frame), None, "a fragment");
    }

    proptest! {
        #[test]
        fn arbitrary_frames_do_no_harm(frame in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = ipv6_packet(&frame);
            let _ = decapsulate(&endpoint([192, 0, 2, 1], [192, 0, 2, 2]), &frame);
        }
    }
}

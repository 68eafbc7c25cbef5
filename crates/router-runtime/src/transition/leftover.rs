//! The socket for packets that the programs of a tunnel leave.

use std::borrow::Cow;

use linux::event::{Interest, Poller};
use linux::netlink::Link;
use linux::packet::{PacketOptions, PacketSocket};
use linux::raw::RawSocket;
use router::transition::{Kind, PROTOCOL_IPV4};
use wire::{ipv6, protocol};

/// By the kind of tunnel.
pub(super) enum Leftover {
    /// Outer packets: in, those that came in fragments or with options; out, all that this process has made.
    Tunnel(RawSocket),
    /// Where packets leave by the CLAT's own device, and so come to its program: those that have what they lacked.
    Clat(PacketSocket),
}

impl Leftover {
    /// For the device of that index, over this link.
    pub(super) fn open(kind: &Kind, device: u32, link: &Link) -> linux::Result<Self> {
        match kind {
            Kind::Clat { .. } => {
                let options = PacketOptions { only_sends: true, ..PacketOptions::default() };
                PacketSocket::open(device, &options).map(Leftover::Clat)
            }
            Kind::FourInSix { .. } => RawSocket::ipv6(PROTOCOL_IPV4, &link.name).map(Leftover::Tunnel),
            _ => RawSocket::ipv4(protocol::IPV6, &link.name).map(Leftover::Tunnel),
        }
    }

    /// Is read, if there is something to read, under that number.
    pub(super) fn join(&self, poller: &Poller, token: u64) -> linux::Result<()> {
        match self {
            Leftover::Tunnel(socket) => poller.add(socket, token, Interest::Readable),
            Leftover::Clat(_) => Ok(()),
        }
    }

    pub(super) fn leave(&self, poller: &Poller) {
        if let Leftover::Tunnel(socket) = self {
            let _ = poller.remove(socket);
        }
    }
}

/// A packet as it leaves by a CLAT's device, in fragments where it is of IPv6 and longer than that takes: the device is for
/// packets of IPv4, and the interface below takes longer ones of IPv6 ([`Kind::overhead`]).
pub(super) fn fitting(packet: &[u8], mtu: usize, identification: u32) -> Vec<Cow<'_, [u8]>> {
    const FRAGMENT: usize = 8;
    let room = mtu.saturating_sub(ipv6::HEADER_LEN + FRAGMENT) / 8 * 8;
    let (Ok(parsed), true) = (ipv6::Packet::parse(packet), packet.len() > mtu && room > 0) else {
        return vec![packet.into()];
    };
    let pieces = parsed.payload().chunks(room);
    let last = pieces.len().saturating_sub(1);
    let fragment = |(number, piece): (usize, &[u8])| {
        let mut header = *parsed.header();
        header[4..6].copy_from_slice(&((FRAGMENT + piece.len()) as u16).to_be_bytes());
        header[6] = protocol::FRAGMENT;
        let place = (number * room) as u16 | u16::from(number < last);
        let [next, reserved] = [parsed.next_header(), 0];
        let of_fragment =
            [&[next, reserved][..], &place.to_be_bytes(), &identification.to_be_bytes()].concat();
        Cow::Owned([&header[..], &of_fragment, piece].concat())
    };
    pieces.enumerate().map(fragment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(length: usize) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: length as u16,
            next_header: protocol::UDP,
            hop_limit: 60,
            source: "64:ff9b::c000:201".parse().unwrap(),
            destination: "2001:db8::5".parse().unwrap(),
        };
        let payload: Vec<u8> = (0..length).map(|place| place as u8).collect();
        [&header.to_bytes()[..], &payload].concat()
    }

    #[test]
    fn what_is_longer_than_the_device_takes_is_the_same_in_fragments() {
        assert_eq!(fitting(&packet(1_432), 1_472, 7), [packet(1_432)]);
        for length in [1_433, 1_460, 5_000] {
            let whole = packet(length);
            let mut found = Vec::new();
            let fragments = fitting(&whole, 1_472, 0x0102_0304);
            for (number, fragment) in fragments.iter().enumerate() {
                assert!(fragment.len() <= 1_472);
                let parsed = ipv6::Packet::parse(fragment).unwrap();
                assert_eq!(parsed.payload().len() + ipv6::HEADER_LEN, fragment.len());
                assert_eq!((parsed.next_header(), parsed.hop_limit()), (protocol::FRAGMENT, 60));
                let upper = parsed.upper_layer().unwrap();
                assert_eq!(upper.protocol, protocol::UDP);
                let place = u16::from_be_bytes([fragment[42], fragment[43]]);
                assert_eq!(usize::from(place & !7), found.len());
                assert_eq!(place & 7, u16::from(number + 1 < fragments.len()));
                assert_eq!(fragment[44..48], [1, 2, 3, 4]);
                found.extend_from_slice(&fragment[48..]);
            }
            assert!(fragments.len() > 1 && found == whole[ipv6::HEADER_LEN..]);
        }
        // Nothing else is touched.
        let four = [0x45; 2_000];
        assert_eq!(fitting(&four, 1_472, 7), [&four[..]]);
    }
}

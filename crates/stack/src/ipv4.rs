//! IPv4 (RFC 791, RFC 1122) beside IPv6: what a received packet may be, fragments, fragmentation.
//!
//! To sockets and neighbors IPv4 addresses are IPv4-mapped ones (RFC 4291 §2.5.5.2). There is one address, which the caller
//! sets, and one gateway.

use std::net::Ipv4Addr;
use std::time::Instant;

use ipnet::Ipv4Net;
use wire::ecn::Ecn;
use wire::ipv4::{HEADER_LEN, MORE_FRAGMENTS, Packet, write_checksum};

use crate::DropReason;
use crate::fragments::{Fragments, Id, Part};

const LARGEST_PACKET: usize = 65_535;
const END_OF_OPTIONS: u8 = 0;
const NO_OPERATION: u8 = 1;
/// Loose and strict source routes lead packets around what should see them: a host takes none (RFC 7126).
const SOURCE_ROUTES: [u8; 2] = [131, 137];

/// The IPv4 of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4 {
    /// The address, and the prefix that is on the link.
    pub address: Ipv4Net,
    /// Where all else goes.
    pub gateway: Option<Ipv4Addr>,
}

impl Ipv4 {
    /// Whether packets to this address go to all hosts of the link.
    pub fn is_broadcast(&self, address: Ipv4Addr) -> bool {
        address.is_broadcast() || self.address.prefix_len() < 31 && address == self.address.broadcast()
    }

    /// The neighbor that packets to a destination go to.
    pub fn first_hop(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        if self.address.contains(&destination) { Some(destination) } else { self.gateway }
    }

    /// Whether a packet from the link may have these addresses and options, and is for us.
    pub(crate) fn check(&self, packet: &Packet<'_>) -> Result<(), DropReason> {
        let (source, destination) = (packet.source(), packet.destination());
        if source.octets()[0] == 0
            || source.is_loopback()
            || source.is_multicast()
            || self.is_broadcast(source)
            || destination.is_loopback()
        {
            return Err(DropReason::ImpossibleAddress);
        }
        if destination != self.address.addr() && !self.is_broadcast(destination) {
            return Err(DropReason::NotForUs);
        }
        check_options(packet.header().get(HEADER_LEN..).unwrap_or_default())
    }
}

/// Refuses source routes, and options that leave the header. Others are of no use here and are skipped.
fn check_options(mut options: &[u8]) -> Result<(), DropReason> {
    loop {
        match *options {
            [] | [END_OF_OPTIONS, ..] => return Ok(()),
            [NO_OPERATION, ref rest @ ..] => options = rest,
            [kind, _, ..] if SOURCE_ROUTES.contains(&kind) => return Err(DropReason::UnknownOption),
            [_, length @ 2..=255, ..] => {
                options = options.get(usize::from(length)..).ok_or(DropReason::MalformedHeader)?;
            }
            _ => return Err(DropReason::MalformedHeader),
        }
    }
}

/// Takes a fragment (RFC 791 §3.2). If that completes its packet, it is written to `out`, and `true` returned.
///
/// # Errors
/// When the fragment is impossible, overlaps another, or has no room.
pub fn insert(
    fragments: &mut Fragments,
    now: Instant,
    packet: &Packet<'_>,
    protection: u8,
    out: &mut Vec<u8>,
) -> Result<bool, DropReason> {
    let (offset, data, header) = (usize::from(packet.fragment_offset()), packet.payload(), packet.header());
    let more = packet.more_fragments();
    if data.is_empty()
        || more && !data.len().is_multiple_of(8)
        || header.len() + offset + data.len() > LARGEST_PACKET
    {
        return Err(DropReason::ImpossibleFragment);
    }
    let id = Id {
        source: packet.source().into(),
        destination: packet.destination().into(),
        identification: packet.identification().into(),
        protocol: Some(packet.protocol()),
        protection,
    };
    let part = Part {
        offset,
        more,
        data,
        ecn: Ecn::from_bits(packet.type_of_service()),
        headers: [header, &[]],
        kept: header.len(),
        // The first fragment has no offset: without flags the whole field is 0.
        changed: (6, 0),
    };
    if !fragments.insert(now, id, &part, out)? {
        return Ok(false);
    }
    let header_len = usize::from(out[0] & 0xf) * 4;
    let length = u16::try_from(out.len()).map_err(|_| DropReason::ImpossibleFragment)?;
    out[2..4].copy_from_slice(&length.to_be_bytes());
    let header = out.get_mut(..header_len).ok_or(DropReason::ImpossibleFragment)?;
    write_checksum(header);
    Ok(true)
}

/// The fragments of `packet`, which has no options, none longer than `mtu`: `emit` is called for each with header and data.
/// Returns whether it could be done.
pub(crate) fn fragment(packet: &Packet<'_>, mtu: usize, mut emit: impl FnMut(&[u8], &[u8])) -> bool {
    let Some(header) = packet.header().first_chunk::<HEADER_LEN>() else { return false };
    let room = mtu.saturating_sub(HEADER_LEN) / 8 * 8;
    if packet.header().len() != HEADER_LEN || room == 0 || packet.dont_fragment() {
        return false;
    }
    let mut chunks = packet.payload().chunks(room).enumerate().peekable();
    while let Some((index, chunk)) = chunks.next() {
        let mut header = *header;
        let more = if chunks.peek().is_some() { MORE_FRAGMENTS } else { 0 };
        let field = (index * room / 8) as u16 | more;
        header[2..4].copy_from_slice(&((HEADER_LEN + chunk.len()) as u16).to_be_bytes());
        header[6..8].copy_from_slice(&field.to_be_bytes());
        write_checksum(&mut header);
        emit(&header, chunk);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use wire::ipv4::Header;
    use wire::protocol;

    fn packet(data: &[u8]) -> Vec<u8> {
        let header = Header {
            type_of_service: 0,
            total_length: (HEADER_LEN + data.len()) as u16,
            identification: 7,
            dont_fragment: false,
            time_to_live: 64,
            protocol: protocol::UDP,
            source: Ipv4Addr::new(192, 0, 2, 1),
            destination: Ipv4Addr::new(192, 0, 2, 2),
        };
        [&header.to_bytes()[..], data].concat()
    }

    fn ipv4() -> Ipv4 {
        Ipv4 { address: "192.0.2.2/24".parse().unwrap(), gateway: Some(Ipv4Addr::new(192, 0, 2, 254)) }
    }

    #[test]
    fn rfc_1122_3_2_1_3_impossible_sources_are_dropped() {
        let check = |source: [u8; 4], destination: [u8; 4]| {
            let mut bytes = packet(&[]);
            bytes[12..16].copy_from_slice(&source);
            bytes[16..20].copy_from_slice(&destination);
            ipv4().check(&Packet::parse(&bytes).unwrap())
        };
        let us = [192, 0, 2, 2];
        assert_eq!(check([198, 51, 100, 1], us), Ok(()));
        assert_eq!(check([198, 51, 100, 1], [192, 0, 2, 255]), Ok(()));
        assert_eq!(check([198, 51, 100, 1], [192, 0, 2, 3]), Err(DropReason::NotForUs));
        for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4], [192, 0, 2, 255]] {
            assert_eq!(check(source, us), Err(DropReason::ImpossibleAddress));
        }
    }

    #[test]
    fn rfc_7126_source_routes_are_dropped() {
        assert_eq!(check_options(&[1, 1, 7, 4, 0, 0, 0, 9]), Ok(()));
        assert_eq!(check_options(&[1, 131, 3, 4]), Err(DropReason::UnknownOption));
        assert_eq!(check_options(&[7, 1, 0, 0]), Err(DropReason::MalformedHeader));
        assert_eq!(check_options(&[7, 9, 0, 0]), Err(DropReason::MalformedHeader));
    }

    proptest! {
        #[test]
        fn what_is_fragmented_is_whole_again(
            data in proptest::collection::vec(any::<u8>(), 600..5000), mtu in 68usize..1500, seed: u64
        ) {
            let whole = packet(&data);
            let mut fragments = Vec::new();
            let done = fragment(&Packet::parse(&whole).unwrap(), mtu, |header, data| {
                fragments.push([header, data].concat());
            });
            prop_assert!(done);
            prop_assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
            if fragments.len() < 2 || fragments.len() > crate::fragments::MAX_FRAGMENTS { return Ok(()); }
            fastrand::Rng::with_seed(seed).shuffle(&mut fragments);
            let (mut kept, mut out, now) = (Fragments::default(), Vec::new(), Instant::now());
            let last = fragments.pop().unwrap();
            for fragment in fragments {
                let packet = Packet::parse(&fragment).unwrap();
                prop_assert!(packet.has_valid_checksum());
                prop_assert_eq!(insert(&mut kept, now, &packet, 0, &mut out), Ok(false));
            }
            prop_assert_eq!(insert(&mut kept, now, &Packet::parse(&last).unwrap(), 0, &mut out), Ok(true));
            prop_assert_eq!(out, whole);
        }

        #[test]
        fn any_options_are_checked(options in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = check_options(&options);
        }
    }
}

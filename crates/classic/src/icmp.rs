//! ICMPv6 errors about outer packets, made into errors about inner ones (thesis sections 2.6.3 and 3.2.3,
//! docs/classic.md section 10).

use std::net::Ipv6Addr;

use wire::checksum::Sum;
use wire::{icmpv6, ipv6, protocol, udp};

use crate::cipher::{BLOCK, Cipher, CipherKeys};
use crate::packet::{SHORT_HEADER, inner_mtu};
use crate::routes::Path;

const HOP_LIMIT: u8 = 64;
const DESTINATION_OPTIONS: u8 = 60;

/// An error message: type, code, the 4 bytes that follow, and the packet that caused it, as far as it is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Error<'a> {
    message_type: u8,
    code: u8,
    body: u32,
    invoking: &'a [u8],
}

impl<'a> Error<'a> {
    /// Reads an outer packet as an error of the four types of RFC 4443 whose checksum is right.
    pub(crate) fn parse(outer: &ipv6::Packet<'a>) -> Option<Self> {
        let message = outer.payload();
        if outer.next_header() != protocol::ICMPV6 {
            return None;
        }
        let (&[message_type, code, _, _, a, b, c, d], invoking) =
            message.split_first_chunk::<{ icmpv6::HEADER_LEN }>()?;
        let pseudo =
            Sum::pseudo_ipv6(outer.source(), outer.destination(), message.len() as u32, protocol::ICMPV6);
        let known = (icmpv6::DESTINATION_UNREACHABLE..=icmpv6::PARAMETER_PROBLEM).contains(&message_type);
        if !known || !(pseudo + Sum::of(message)).is_valid() {
            return None;
        }
        Some(Error { message_type, code, body: u32::from_be_bytes([a, b, c, d]), invoking })
    }

    /// Source and destination of the packet that caused it.
    pub(crate) fn addresses(&self) -> Option<(Ipv6Addr, Ipv6Addr)> {
        let header = self.invoking.first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let address = |at: usize| {
            let octets: [u8; 16] = std::array::from_fn(|i| header[at + i]);
            Ipv6Addr::from(octets)
        };
        (header[0] >> 4 == 6).then(|| (address(8), address(24)))
    }

    /// Writes the error for the local host, about the packet that it sent to the remote one, over whatever is in
    /// `inner`. `None` if too little of it is there.
    pub(crate) fn translate(
        &self,
        path: &Path,
        ciphers: &CipherKeys,
        cipher: Option<Cipher>,
        (local, remote): (Ipv6Addr, Ipv6Addr),
        inner: &mut Vec<u8>,
    ) -> Option<()> {
        let payload = payload(self.invoking)?;
        inner.clear();
        inner.resize(ipv6::HEADER_LEN, 0);
        inner.extend([self.message_type, self.code, 0, 0]);
        inner.extend(match self.message_type {
            icmpv6::PACKET_TOO_BIG => {
                let outer_mtu = u16::try_from(self.body).unwrap_or(u16::MAX);
                u32::from(inner_mtu(cipher, outer_mtu)).max(ipv6::MIN_MTU as u32).to_be_bytes()
            }
            _ => [0; 4],
        });
        let quote = inner.len();
        match cipher {
            None => inner.extend(payload),
            Some(cipher) => {
                inner.extend(&payload[..payload.len() - payload.len() % BLOCK]);
                ciphers.decrypt(cipher, &path.iv, &mut inner[quote..]);
            }
        }
        if inner.len() < quote + SHORT_HEADER || inner[quote] >> 4 != 6 {
            return None;
        }
        let addresses = [local.octets(), remote.octets()];
        let at = quote + SHORT_HEADER;
        inner.splice(at..at, addresses.as_flattened().iter().copied());
        inner.truncate(ipv6::MIN_MTU);

        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: (inner.len() - ipv6::HEADER_LEN) as u16,
            next_header: protocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            source: remote,
            destination: local,
        };
        inner[..ipv6::HEADER_LEN].copy_from_slice(&header.to_bytes());
        let message = &inner[ipv6::HEADER_LEN..];
        let pseudo = Sum::pseudo_ipv6(remote, local, message.len() as u32, protocol::ICMPV6);
        let checksum = (pseudo + Sum::of(message)).checksum();
        let at = ipv6::HEADER_LEN + icmpv6::CHECKSUM_OFFSET;
        inner[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        Some(())
    }
}

/// The UDP payload of an outer packet of which only the beginning may be there.
fn payload(outer: &[u8]) -> Option<&[u8]> {
    let (header, rest) = outer.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
    let rest = match header[6] {
        protocol::UDP => rest,
        DESTINATION_OPTIONS => {
            let [protocol::UDP, units, ..] = *rest else { return None };
            rest.get((usize::from(units) + 1) * 8..)?
        }
        _ => return None,
    };
    rest.get(udp::HEADER_LEN..)
}

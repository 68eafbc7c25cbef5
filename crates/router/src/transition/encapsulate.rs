//! A packet on its way into the tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::{ipv4, ipv6, protocol};

use super::domain::{Domain, is_single_host_ipv4};
use super::{Endpoint, Kind, LEAST_MTU, Refusal};

impl Endpoint {
    /// Puts an inner packet behind its outer header, in `out`. `identification` is random.
    ///
    /// # Errors
    /// Why it is not carried.
    pub fn encapsulate(&self, inner: &[u8], identification: u16, out: &mut Vec<u8>) -> Result<(), Refusal> {
        out.clear();
        match (&self.kind, self.local) {
            (Kind::FourInSix { remote: Some(remote) }, IpAddr::V6(local)) => {
                self.in_six(inner, local, *remote, out)
            }
            (kind, IpAddr::V4(local)) => self.in_four(inner, kind, local, identification, out),
            (_, IpAddr::V6(_)) => Err(Refusal::NoWay),
        }
    }

    fn in_four(
        &self,
        inner: &[u8],
        kind: &Kind,
        local: Ipv4Addr,
        identification: u16,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let packet = ipv6::Packet::parse(inner).map_err(|_| Refusal::Malformed)?;
        if ipv6::HEADER_LEN + packet.payload().len() != inner.len() {
            return Err(Refusal::Malformed);
        }
        let destination = match kind {
            Kind::SixInFour { remote } => *remote,
            Kind::Automatic(domain) => self.next_end(domain, packet.source(), packet.destination(), local)?,
            Kind::FourInSix { .. } | Kind::Clat { .. } => return Err(Refusal::NoWay),
        };
        let header = ipv4::Header {
            type_of_service: packet.traffic_class(),
            total_length: u16::try_from(ipv4::HEADER_LEN + inner.len()).map_err(|_| Refusal::Malformed)?,
            identification,
            // RFC 4213 section 3.2.2: what every path with IPv6 takes may be cut.
            dont_fragment: inner.len() > LEAST_MTU as usize,
            time_to_live: self.hop_limit,
            protocol: protocol::IPV6,
            source: local,
            destination,
        };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(inner);
        Ok(())
    }

    /// Who gets a packet in 6to4 or 6rd: whose address is in the destination, or else the relay.
    fn next_end(
        &self,
        domain: &Domain,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        local: Ipv4Addr,
    ) -> Result<Ipv4Addr, Refusal> {
        if destination.is_multicast() {
            return Err(Refusal::Multicast);
        }
        // A relay carries packets of the whole Internet.
        if !self.is_relay() && !self.local_prefixes.iter().any(|own| own.contains(&source)) {
            return Err(Refusal::Source);
        }
        match domain.embedded(destination, local) {
            Some(end) if domain.is_usable(end) && end != local => Ok(end),
            Some(_) => Err(Refusal::Destination),
            None => domain.relay.filter(|relay| *relay != local).ok_or(Refusal::NoWay),
        }
    }

    fn in_six(
        &self,
        inner: &[u8],
        local: Ipv6Addr,
        remote: Ipv6Addr,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let packet = ipv4::Packet::parse(inner).map_err(|_| Refusal::Malformed)?;
        if usize::from(packet.total_length()) != inner.len() {
            return Err(Refusal::Malformed);
        }
        if !is_single_host_ipv4(packet.source()) {
            return Err(Refusal::Source);
        }
        let header = ipv6::Header {
            traffic_class: packet.type_of_service(),
            flow_label: 0,
            payload_length: packet.total_length(),
            next_header: PROTOCOL_IPV4,
            hop_limit: self.hop_limit,
            source: local,
            destination: remote,
        };
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(inner);
        Ok(())
    }
}

/// IPv4 inside (RFC 2473 section 3).
pub const PROTOCOL_IPV4: u8 = 4;

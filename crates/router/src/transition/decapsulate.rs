//! A packet that came out of the tunnel.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use wire::ecn::{self, Ecn};
use wire::{ipv4, ipv6, protocol};

use super::domain::{Domain, is_single_host, is_single_host_ipv4};
use super::encapsulate::PROTOCOL_IPV4;
use super::{Endpoint, Kind, Refusal};

/// What is needed of the outer header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outer {
    /// Who sent it.
    pub source: IpAddr,
    /// Whether congestion was marked.
    pub ecn: Ecn,
}

impl Endpoint {
    /// The inner packet of an outer one, from its IP header on; none if that is not the tunnel's at all, or a fragment.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn decapsulate(&self, outer: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        match self.local {
            IpAddr::V4(local) => {
                let Ok(packet) = ipv4::Packet::parse(outer) else { return Ok(None) };
                if packet.protocol() != protocol::IPV6
                    || packet.destination() != local
                    || packet.is_fragment()
                {
                    return Ok(None);
                }
                if let Kind::SixInFour { remote } = self.kind
                    && packet.source() != remote
                {
                    return Err(Refusal::Stranger);
                }
                if !packet.has_valid_checksum() {
                    return Err(Refusal::Malformed);
                }
                let ecn = Ecn::from_bits(packet.type_of_service());
                self.accept(Outer { source: packet.source().into(), ecn }, packet.payload()).map(Some)
            }
            IpAddr::V6(local) => {
                let Ok(packet) = ipv6::Packet::parse(outer) else { return Ok(None) };
                if packet.destination() != local {
                    return Ok(None);
                }
                // The encapsulation limit (RFC 2473 section 4.1) is about tunnels in tunnels, which this one does not make.
                let payload = match (packet.next_header(), packet.payload()) {
                    (PROTOCOL_IPV4, payload) => payload,
                    (protocol::DESTINATION_OPTIONS, [PROTOCOL_IPV4, 0, _, _, _, _, _, _, payload @ ..]) => {
                        payload
                    }
                    _ => return Ok(None),
                };
                let ecn = Ecn::from_bits(packet.traffic_class());
                self.accept(Outer { source: packet.source().into(), ecn }, payload).map(Some)
            }
        }
    }

    /// The inner packet of what an outer one carried to us.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn accept(&self, outer: Outer, inner: &[u8]) -> Result<Vec<u8>, Refusal> {
        match (&self.kind, outer.source) {
            (Kind::SixInFour { remote }, IpAddr::V4(source)) => {
                if source != *remote {
                    return Err(Refusal::Stranger);
                }
                self.check_broker(whole_ipv6(inner)?)?;
            }
            (Kind::Automatic(domain), IpAddr::V4(source)) => {
                self.check_domain(domain, source, whole_ipv6(inner)?)?;
            }
            (Kind::FourInSix { remote: Some(remote) }, IpAddr::V6(source)) => {
                if source != *remote {
                    return Err(Refusal::Stranger);
                }
                from_other_end(inner)?;
            }
            _ => return Err(Refusal::Stranger),
        }
        let inside = ecn::get(inner).ok_or(Refusal::Malformed)?;
        let marked = ecn::decapsulate(outer.ecn, inside).map_err(|_| Refusal::Congestion)?;
        let mut inner = inner.to_vec();
        ecn::set(&mut inner, marked);
        Ok(inner)
    }

    /// RFC 4213 section 4: addresses that cannot be a source; link-local ones stay on the link.
    fn check_broker(&self, Header { source, destination }: Header) -> Result<(), Refusal> {
        let on_link = destination.is_unicast_link_local() || destination.is_multicast();
        if !is_single_host(source) || source.is_unicast_link_local() && !on_link {
            return Err(Refusal::Source);
        }
        if self.local_prefixes.iter().any(|own| own.contains(&source)) {
            return Err(Refusal::Spoofed);
        }
        if destination.to_bits() >> 64 == 0 {
            return Err(Refusal::Destination);
        }
        Ok(())
    }

    /// RFC 3964 section 5, RFC 5969 section 12: who is of the domain has sent it himself, all others come by the relay.
    fn check_domain(
        &self,
        domain: &Domain,
        from: Ipv4Addr,
        Header { source, destination }: Header,
    ) -> Result<(), Refusal> {
        let IpAddr::V4(local) = self.local else { return Err(Refusal::Stranger) };
        match domain.embedded(source, local) {
            Some(end) if end != from || !domain.is_usable(end) || end == local => {
                return Err(Refusal::Spoofed);
            }
            Some(_) => {}
            None if domain.relay != Some(from) || from == local => return Err(Refusal::Stranger),
            None if !is_single_host(source) || source.is_unicast_link_local() => return Err(Refusal::Source),
            None => {}
        }
        let for_us = if self.is_relay() {
            is_single_host(destination) && !destination.is_unicast_link_local()
        } else {
            self.local_prefixes.iter().any(|own| own.contains(&destination))
        };
        if for_us { Ok(()) } else { Err(Refusal::Destination) }
    }
}

/// Source and destination of an inner packet.
struct Header {
    source: Ipv6Addr,
    destination: Ipv6Addr,
}

/// The header of an inner packet that is as long as it says.
fn whole_ipv6(inner: &[u8]) -> Result<Header, Refusal> {
    let packet = ipv6::Packet::parse(inner).map_err(|_| Refusal::Malformed)?;
    if ipv6::HEADER_LEN + packet.payload().len() != inner.len() {
        return Err(Refusal::Malformed);
    }
    Ok(Header { source: packet.source(), destination: packet.destination() })
}

fn from_other_end(inner: &[u8]) -> Result<(), Refusal> {
    let packet = ipv4::Packet::parse(inner).map_err(|_| Refusal::Malformed)?;
    if usize::from(packet.total_length()) != inner.len() {
        return Err(Refusal::Malformed);
    }
    if !is_single_host_ipv4(packet.source()) {
        return Err(Refusal::Source);
    }
    if !is_single_host_ipv4(packet.destination()) {
        return Err(Refusal::Destination);
    }
    Ok(())
}

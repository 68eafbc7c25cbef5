//! IPv4 on the interface: ARP, ICMP, and the way of packets in both directions.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};
use std::time::Instant;

use ipsec::policy::Socket;
use ipsec::selector::Traffic;
use wire::arp::{self, Operation};
use wire::checksum::Sum;
use wire::ethernet::{ETHERTYPE_ARP, MacAddress};
use wire::icmp_error::Reason;
use wire::icmpv4::{self, Message};
use wire::ipv4::{HEADER_LEN, Header, Packet};
use wire::{icmpv6, protocol};

use super::arrival::{Arrival, Arrived, Evidence};
use super::output::{Hop, Outgoing, Purpose, SendError};
use super::upper::{Received, Upper, Verdict};
use super::{Event, Interface, MAX_LOOPED, Medium};
use crate::DropReason;
use crate::icmpv6::{ErrorKind, ErrorReport};
use crate::ipv4::{self, Ipv4};
use crate::neighbor::Advertisement;
use crate::route::MIN_MTU_IPV4;
use crate::security::{Datagram, Security, Sender};
use crate::udp::Metadata;

impl<S: Security> Interface<S> {
    /// Sets or takes away IPv4. To sockets its addresses are IPv4-mapped ones.
    pub fn set_ipv4(&mut self, ipv4: Option<Ipv4>) {
        self.ipv4 = ipv4;
    }

    /// RFC 826: who asks for us is answered and remembered, of others only what is known is corrected.
    pub(super) fn receive_arp(&mut self, now: Instant, bytes: &[u8]) {
        let (Ok(message), Some(ipv4), Medium::Ethernet(own)) =
            (arp::Message::parse(bytes), self.ipv4, self.medium)
        else {
            return self.drop(DropReason::NotForUs);
        };
        let us = ipv4.address.addr();
        let (sender, link_layer) = (message.sender, message.sender_link_layer);
        // Somebody else says that they have our address, or one that no host has.
        if sender == us || ipv4.is_broadcast(sender) || sender.is_multicast() || link_layer.is_multicast() {
            return self.drop(DropReason::InvalidDiscovery);
        }
        let for_us = message.target == us;
        match message.operation {
            Operation::Request if for_us => {
                if !sender.is_unspecified() {
                    self.neighbors.learn(now, sender.to_ipv6_mapped(), link_layer, None);
                }
                let reply = arp::Message {
                    operation: Operation::Reply,
                    sender_link_layer: own,
                    sender: us,
                    target_link_layer: link_layer,
                    target: sender,
                };
                self.send_arp(reply, link_layer);
            }
            Operation::Request | Operation::Reply => {
                let said = Advertisement {
                    target: sender.to_ipv6_mapped(),
                    router: false,
                    solicited: for_us,
                    r#override: true,
                    link_layer: Some(link_layer),
                };
                self.neighbors.advertised(now, said);
            }
        }
    }

    /// Asks for a neighbor: of all, or at the link-layer address that it should have (RFC 1122 §2.3.2.1).
    pub(super) fn ask_by_arp(&mut self, target: Ipv4Addr, at: Option<MacAddress>) {
        let (Some(ipv4), Medium::Ethernet(own)) = (self.ipv4, self.medium) else { return };
        let request = arp::Message {
            operation: Operation::Request,
            sender_link_layer: own,
            sender: ipv4.address.addr(),
            target_link_layer: MacAddress::default(),
            target,
        };
        self.send_arp(request, at.unwrap_or(MacAddress::BROADCAST));
    }

    fn send_arp(&mut self, message: arp::Message, to: MacAddress) {
        if !self.frame_of(to, ETHERTYPE_ARP, &message.to_bytes()) {
            self.drop(DropReason::QueueFull);
        }
    }

    /// As `examine`, for an IPv4 packet.
    pub(super) fn examine_ipv4(
        &mut self,
        now: Instant,
        bytes: &[u8],
        arrival: &mut Arrival<S::Protection>,
        upper: &mut impl Upper,
    ) -> bool {
        match self.look_at(now, bytes, arrival, upper) {
            Ok(again) => again,
            Err(reason) => {
                self.drop(reason);
                false
            }
        }
    }

    fn look_at(
        &mut self,
        now: Instant,
        bytes: &[u8],
        arrival: &mut Arrival<S::Protection>,
        upper: &mut impl Upper,
    ) -> Result<bool, DropReason> {
        let packet = Packet::parse(bytes).map_err(|_| DropReason::Malformed)?;
        let bytes = bytes.get(..usize::from(packet.total_length())).ok_or(DropReason::Malformed)?;
        if !packet.has_valid_checksum() {
            return Err(DropReason::Checksum);
        }
        let ipv4 = self.ipv4.ok_or(DropReason::NotForUs)?;
        ipv4.check(&packet)?;
        if packet.source() == ipv4.address.addr() && arrival.from != Arrived::Ourselves {
            return Err(DropReason::ImpossibleAddress);
        }
        if ipv4.is_broadcast(packet.destination()) {
            arrival.from = Arrived::LinkToMany;
        }
        if packet.is_fragment() {
            let protection = self.way(arrival);
            let mut whole = std::mem::take(&mut self.inner);
            let inserted = ipv4::insert(&mut self.fragments, now, &packet, protection, &mut whole);
            self.inner = whole;
            self.inner_at = 0..self.inner.len();
            return inserted;
        }
        if matches!(packet.protocol(), protocol::ESP | protocol::AUTHENTICATION) {
            return Ok(self.open(now, bytes, packet.protocol(), arrival));
        }
        if packet.protocol() == protocol::UDP {
            match self.security.datagram(packet.payload()) {
                Datagram::Plain => {}
                Datagram::Protected => return Ok(self.open(now, bytes, protocol::ESP, arrival)),
                Datagram::Keepalive => return Ok(false),
            }
        }
        self.dispatch_ipv4(now, bytes, &packet, arrival, upper)?;
        Ok(false)
    }

    fn dispatch_ipv4(
        &mut self,
        now: Instant,
        bytes: &[u8],
        packet: &Packet<'_>,
        arrival: &Arrival<S::Protection>,
        upper: &mut impl Upper,
    ) -> Result<(), DropReason> {
        let (source, destination) = (packet.source().into(), packet.destination().into());
        let traffic = Traffic::of_upper(source, destination, packet.protocol(), packet.payload());
        let (from, evidence) = (arrival.from, Evidence { traffic, arrival });
        let refused = match packet.protocol() {
            protocol::ICMPV4 => return self.receive_icmpv4(now, packet, &evidence, upper),
            protocol::UDP => {
                let metadata = Metadata {
                    from: SocketAddrV6::new(packet.source().to_ipv6_mapped(), 0, 0, 0),
                    to: packet.destination().to_ipv6_mapped(),
                    hop_limit: packet.time_to_live(),
                    traffic_class: packet.type_of_service(),
                };
                let security = &mut self.security;
                let admits = |socket: Option<&Socket>| evidence.suffices(security, socket);
                match self.udp.deliver(metadata, packet.payload(), admits) {
                    Err(DropReason::NoSocket) => (DropReason::NoSocket, Reason::PortUnreachable),
                    other => return other,
                }
            }
            protocol => {
                let received = Received {
                    source,
                    destination,
                    hop_limit: packet.time_to_live(),
                    traffic_class: packet.type_of_service(),
                    to_many: from == Arrived::LinkToMany || packet.destination().is_multicast(),
                    protocol,
                    verified: arrival.is_verified(),
                    payload: packet.payload(),
                };
                let socket = if S::HAS_POLICY { upper.socket(&received) } else { None };
                if !evidence.suffices(&mut self.security, socket.as_ref()) {
                    return Err(DropReason::Security);
                }
                match upper.receive(now, &received) {
                    Verdict::Taken => return Ok(()),
                    Verdict::Dropped(reason) => return Err(reason),
                    Verdict::Unknown => {
                        (DropReason::UnknownNextHeader, Reason::UnrecognizedNextHeader { pointer: 9 })
                    }
                }
            }
        };
        if from != Arrived::LinkToMany {
            self.send_error(now, refused.1, bytes, arrival.secret);
        }
        Err(refused.0)
    }

    /// RFC 792, RFC 1122 §3.2.2.
    fn receive_icmpv4(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        evidence: &Evidence<'_, S::Protection>,
        upper: &mut impl Upper,
    ) -> Result<(), DropReason> {
        if !evidence.suffices(&mut self.security, None) {
            return Err(DropReason::Security);
        }
        let from = evidence.arrival.from;
        let bytes = packet.payload();
        let message = Message::parse(bytes).map_err(|_| DropReason::Malformed)?;
        if !Sum::of(bytes).is_valid() {
            return Err(DropReason::Checksum);
        }
        let source = packet.source().to_ipv6_mapped();
        match message.message_type() {
            // Broadcasts are not answered (RFC 1122 §3.2.2.6).
            icmpv4::ECHO_REQUEST if from != Arrived::LinkToMany => {
                self.answer_echo_ipv4(now, packet, evidence.arrival.secret);
                Ok(())
            }
            icmpv4::ECHO_REPLY => {
                let (identifier, sequence) = ((message.body() >> 16) as u16, message.body() as u16);
                if self.pinged != Some((source, identifier)) {
                    return Err(DropReason::UnknownMessage);
                }
                self.event(Event::EchoReply { from: source, identifier, sequence });
                Ok(())
            }
            icmpv4::DESTINATION_UNREACHABLE | icmpv4::TIME_EXCEEDED | icmpv4::PARAMETER_PROBLEM => {
                let report = report_of(source, &message).ok_or(DropReason::UnrelatedError)?;
                self.receive_error(now, &report, Some(evidence), upper);
                Ok(())
            }
            _ => Err(DropReason::UnknownMessage),
        }
    }

    fn answer_echo_ipv4(&mut self, now: Instant, request: &Packet<'_>, secret: bool) {
        let mut reply = std::mem::take(&mut self.building);
        reply.clear();
        let header = self.ipv4_header(
            request.destination(),
            request.source(),
            protocol::ICMPV4,
            request.type_of_service() & !3,
            request.payload().len() as u16,
        );
        reply.extend_from_slice(&header.to_bytes());
        reply.extend_from_slice(request.payload());
        let message = &mut reply[HEADER_LEN..];
        message[..4].copy_from_slice(&[icmpv4::ECHO_REPLY, 0, 0, 0]);
        let checksum = Sum::of(message).checksum();
        message[icmpv4::CHECKSUM_OFFSET..icmpv4::CHECKSUM_OFFSET + 2]
            .copy_from_slice(&checksum.to_be_bytes());
        self.answer(now, &mut reply, secret);
        self.building = reply;
    }

    /// Writes the header of a packet to send; its payload, whose length this is, follows.
    fn ipv4_header(
        &mut self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        protocol: u8,
        type_of_service: u8,
        length: u16,
    ) -> Header {
        let (from, to) = (source.to_ipv6_mapped(), destination.to_ipv6_mapped());
        Header {
            type_of_service,
            total_length: HEADER_LEN as u16 + length,
            identification: self.identifications.next(from, to) as u16,
            dont_fragment: false,
            time_to_live: self.hop_limit,
            protocol,
            source,
            destination,
        }
    }

    /// The header of a packet with so much payload.
    pub(super) fn ipv4_header_of(
        &mut self,
        outgoing: &Outgoing,
        destination: Ipv4Addr,
        length: usize,
    ) -> Result<Header, SendError> {
        let source = self.ipv4.map(|ipv4| ipv4.address.addr()).ok_or(SendError::NoSource)?;
        if outgoing.source.is_some_and(|wanted| wanted != source.to_ipv6_mapped()) {
            return Err(SendError::NoSource);
        }
        let length = u16::try_from(length).ok().filter(|length| *length <= u16::MAX - HEADER_LEN as u16);
        let length = length.ok_or(SendError::TooLong)?;
        let header = self.ipv4_header(source, destination, outgoing.protocol, outgoing.traffic_class, length);
        Ok(Header {
            time_to_live: outgoing.hop_limit.unwrap_or(header.time_to_live),
            // TCP makes its segments as large as the path carries, and wants to know (RFC 1191 §3).
            dont_fragment: outgoing.protocol == protocol::TCP,
            ..header
        })
    }

    /// As `send`, to an IPv4 address.
    pub(super) fn send_ipv4(
        &mut self,
        now: Instant,
        outgoing: &Outgoing,
        destination: Ipv4Addr,
        parts: &[&[u8]],
        sender: Sender<'_>,
    ) -> Result<(), SendError> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let header = self.ipv4_header_of(outgoing, destination, length)?;
        let mut packet = std::mem::take(&mut self.building);
        let start = self.start_packet(&mut packet);
        packet.extend_from_slice(&header.to_bytes());
        for part in parts {
            packet.extend_from_slice(part);
        }
        let sent = self.transmit(now, &mut packet, start, sender);
        self.building = packet;
        self.act(now, &mut super::NoUpper);
        sent
    }

    pub(super) fn route_ipv4(
        &mut self,
        now: Instant,
        buffer: &mut Vec<u8>,
        start: usize,
        purpose: Purpose,
    ) -> Result<(), DropReason> {
        let bytes = buffer.get(start..).unwrap_or_default();
        let packet = Packet::parse(bytes).map_err(|_| DropReason::Malformed)?;
        let destination = packet.destination();
        let ipv4 = self.ipv4.ok_or(DropReason::NoRoute)?;
        if destination == ipv4.address.addr() {
            if self.looped.len() >= MAX_LOOPED {
                return Err(DropReason::QueueFull);
            }
            self.looped.push_back(bytes.to_vec());
            self.looped_at = now;
            return Ok(());
        }
        if destination.is_multicast() || destination.is_unspecified() || destination.is_loopback() {
            return Err(DropReason::NoRoute);
        }
        let hop = if self.medium == Medium::Ip {
            Hop::OtherEnd
        } else if ipv4.is_broadcast(destination) {
            Hop::Group(MacAddress::BROADCAST)
        } else {
            let first = ipv4.first_hop(destination).ok_or(DropReason::NoRoute)?;
            Hop::Neighbor(first.to_ipv6_mapped())
        };
        if bytes.len() <= self.device_mtu {
            return self.deliver(now, hop, buffer, start, purpose);
        }
        let mut result = Ok(());
        let done = ipv4::fragment(&packet, self.device_mtu, |header, data| {
            result = result.and(self.deliver_fragment(now, hop, header, data, purpose));
        });
        if done { result } else { Err(DropReason::Malformed) }
    }
}

/// What an ICMP error says, in ICMPv6's terms.
fn report_of<'a>(reporter: Ipv6Addr, message: &Message<'a>) -> Option<ErrorReport<'a>> {
    let kind = match (message.message_type(), message.code()) {
        // Routers from before RFC 1191 do not say how much they carry: then it is little.
        (icmpv4::DESTINATION_UNREACHABLE, icmpv4::code::FRAGMENTATION_NEEDED) => {
            ErrorKind::PacketTooBig((message.body() & 0xffff).max(MIN_MTU_IPV4 as u32))
        }
        (icmpv4::DESTINATION_UNREACHABLE, code) => ErrorKind::Unreachable(unreachable(code)?),
        (icmpv4::TIME_EXCEEDED, code) => ErrorKind::TimeExceeded(code),
        (icmpv4::PARAMETER_PROBLEM, code) => ErrorKind::ParameterProblem(code, message.body() >> 24),
        _ => return None,
    };
    report_about(kind, reporter, message.payload())
}

/// A code of Destination Unreachable, of RFC 792 or RFC 1122 §3.2.2.1, as ICMPv6 has it (RFC 7915 §4.2).
fn unreachable(code: u8) -> Option<u8> {
    Some(match code {
        // Network, source route, and what is unknown or isolated.
        0 | 5 | 6 | 8 | 11 => icmpv6::code::NO_ROUTE,
        1 | 7 | 12 => icmpv6::code::ADDRESS_UNREACHABLE,
        // That nobody there knows the protocol means as much as that nobody has the port.
        2 | 3 => icmpv6::code::PORT_UNREACHABLE,
        9 | 10 | 13 => icmpv6::code::ADMINISTRATIVELY_PROHIBITED,
        _ => return None,
    })
}

/// An error about an IPv4 packet of ours, of which the end may be missing.
pub(super) fn report_about(kind: ErrorKind, reporter: Ipv6Addr, quoted: &[u8]) -> Option<ErrorReport<'_>> {
    let header = quoted.first_chunk::<HEADER_LEN>()?;
    let [first, _, _, _, _, _, high, low, _, protocol, ..] = *header;
    let header_len = usize::from(first & 0xf) * 4;
    if first >> 4 != 4 || header_len < HEADER_LEN {
        return None;
    }
    let address = |at: usize| {
        let octets: Option<&[u8; 4]> = header.get(at..)?.first_chunk();
        octets.map(|octets| Ipv4Addr::from(*octets).to_ipv6_mapped())
    };
    let is_later = u16::from_be_bytes([high, low]) & 0x1fff != 0;
    let upper = if is_later { &[] } else { quoted.get(header_len..)? };
    Some(ErrorReport { kind, reporter, local: address(12)?, remote: address(16)?, protocol, upper })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_9293_must_54_to_56_what_each_icmp_message_says_and_that_source_quench_says_nothing() {
        let mut quoted = [0; HEADER_LEN + 8];
        quoted[0] = 0x45;
        let kind = |message_type, code| {
            let bytes = [&[message_type, code, 0, 0, 12, 0, 0, 0], &quoted[..]].concat();
            report_of(Ipv6Addr::UNSPECIFIED, &Message::parse(&bytes).unwrap()).map(|report| report.kind)
        };
        for (codes, means) in [
            (&[0, 5, 6, 8, 11][..], icmpv6::code::NO_ROUTE),
            (&[1, 7, 12], icmpv6::code::ADDRESS_UNREACHABLE),
            (&[2, 3], icmpv6::code::PORT_UNREACHABLE),
            (&[9, 10, 13], icmpv6::code::ADMINISTRATIVELY_PROHIBITED),
        ] {
            for code in codes {
                let said = kind(icmpv4::DESTINATION_UNREACHABLE, *code);
                assert_eq!(said, Some(ErrorKind::Unreachable(means)), "{code}");
            }
        }
        assert_eq!(kind(icmpv4::DESTINATION_UNREACHABLE, 4), Some(ErrorKind::PacketTooBig(576)));
        assert_eq!(kind(icmpv4::TIME_EXCEEDED, 1), Some(ErrorKind::TimeExceeded(1)));
        assert_eq!(kind(icmpv4::PARAMETER_PROBLEM, 0), Some(ErrorKind::ParameterProblem(0, 12)));
        assert_eq!(kind(icmpv4::SOURCE_QUENCH, 0), None);
        assert_eq!(kind(icmpv4::DESTINATION_UNREACHABLE, 99), None);
    }
}

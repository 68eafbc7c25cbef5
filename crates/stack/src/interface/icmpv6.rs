//! ICMPv6 messages that are received, and errors that are sent (RFC 4443).

use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use ipsec::policy::Socket;
use ipsec::selector::{Detail, Traffic};
use wire::checksum::Sum;
use wire::icmp_error::Reason;
use wire::icmpv6::{self, Message};
use wire::ipv6::{self, Packet};
use wire::{icmpv4, ipv4, mld, protocol};

use super::arrival::Evidence;
use super::upper::Upper;
use super::{Event, Interface};
use crate::DropReason;
use crate::icmpv6::{ErrorKind, ErrorReport, echo_reply};
use crate::security::{Overhead, Security};

/// Messages of neighbor discovery and multicast listeners: see [`crate::security`].
pub(super) fn bypasses_security(payload: &[u8]) -> bool {
    payload.first().is_some_and(|message_type| {
        matches!(
            *message_type,
            icmpv6::MULTICAST_LISTENER_QUERY..=icmpv6::REDIRECT | icmpv6::MULTICAST_LISTENER_REPORT
        )
    })
}

/// What has become of an error.
enum Heard {
    /// It is about something that was sent.
    Related,
    /// The socket's policy does not believe it.
    Refused,
    /// Nobody has sent what it quotes.
    Unrelated,
}

impl<S: Security> Interface<S> {
    pub(super) fn receive_icmpv6(
        &mut self,
        now: Instant,
        packet: &Packet<'_>,
        bytes: &[u8],
        evidence: &Evidence<'_, S::Protection>,
        upper: &mut impl Upper,
    ) {
        let Ok(message) = Message::parse(bytes) else { return self.drop(DropReason::Malformed) };
        let sum = packet.pseudo_header(bytes.len() as u32, protocol::ICMPV6) + Sum::of(bytes);
        if !sum.is_valid() {
            return self.drop(DropReason::Checksum);
        }
        let from_link = !evidence.arrival.fragmented && !evidence.arrival.opened;
        match message.message_type() {
            // Never in fragments (RFC 6980), and never out of a tunnel, where hop limits prove nothing.
            icmpv6::MULTICAST_LISTENER_QUERY..=icmpv6::REDIRECT if !from_link => {
                self.drop(DropReason::InvalidDiscovery);
            }
            icmpv6::ROUTER_SOLICITATION..=icmpv6::REDIRECT => self.receive_discovery(now, packet),
            icmpv6::MULTICAST_LISTENER_QUERY => match mld::Query::parse(packet, bytes) {
                Ok(query) => self.listener.asked(now, &query, &mut self.random),
                Err(_) => self.drop(DropReason::Malformed),
            },
            icmpv6::MULTICAST_LISTENER_REPORT_V1 => {
                if let Some(group) = mld::reported_v1(bytes)
                    && packet.destination() == group
                    && packet.hop_limit() == 1
                {
                    self.listener.heard(now, group);
                }
            }
            icmpv6::ECHO_REQUEST => self.answer_echo(now, packet, bytes, evidence.arrival.secret),
            icmpv6::ECHO_REPLY => {
                let (identifier, sequence) = ((message.body() >> 16) as u16, message.body() as u16);
                let from = packet.source();
                let asked = self
                    .pinged
                    .is_some_and(|(to, sent)| sent == identifier && (to == from || to.is_multicast()));
                if !asked {
                    return self.drop(DropReason::UnknownMessage);
                }
                self.event(Event::EchoReply { from, identifier, sequence });
            }
            0..128 => match ErrorReport::parse(packet.source(), &message) {
                Some(report) => self.receive_error(now, &report, Some(evidence), upper),
                None => self.drop(DropReason::UnrelatedError),
            },
            _ => self.drop(DropReason::UnknownMessage),
        }
    }

    /// Hands an error to who may have sent what it is about, if its protection suffices for that socket; only then is a
    /// path MTU believed (RFC 8201 §4). Without `evidence` it is of our own making.
    pub(super) fn receive_error(
        &mut self,
        now: Instant,
        report: &ErrorReport<'_>,
        evidence: Option<&Evidence<'_, S::Protection>>,
        upper: &mut impl Upper,
    ) {
        let was_protected = self.security.has_sent(report);
        // What is authenticated can be seen, and so whose it is; of what is encrypted, nobody can say.
        let inside = if was_protected { report.behind_authentication() } else { None };
        let owner = if was_protected { inside.as_ref() } else { Some(report) };
        let heard = owner.map_or(Heard::Unrelated, |report| self.tell(now, report, evidence, upper));
        match heard {
            Heard::Refused if !was_protected => return self.drop(DropReason::Security),
            Heard::Unrelated if !was_protected => return self.drop(DropReason::UnrelatedError),
            Heard::Refused => self.drop(DropReason::Security),
            Heard::Related | Heard::Unrelated => {}
        }
        if let ErrorKind::PacketTooBig(mtu) = report.kind {
            let changed = self.destinations.packet_too_big(now, report.remote, mtu, self.link_mtu);
            if changed && was_protected {
                upper.path_changed();
            }
        }
    }

    /// Tells the one whose packet an error quotes.
    fn tell(
        &mut self,
        now: Instant,
        report: &ErrorReport<'_>,
        evidence: Option<&Evidence<'_, S::Protection>>,
        upper: &mut impl Upper,
    ) -> Heard {
        let (security, mut refused) = (&mut self.security, false);
        let mut admits = |socket: Option<&Socket>| {
            let admitted = evidence.is_none_or(|evidence| evidence.suffices(security, socket));
            refused |= !admitted;
            admitted
        };
        let ours = self.ipv4.is_some_and(|ipv4| ipv4.address.addr().to_ipv6_mapped() == report.local)
            || self.addresses.is_assigned(report.local);
        let related = ours
            && match report.protocol {
                protocol::UDP => self.udp.error(report, &mut admits),
                // The host itself: its policy has let the error in.
                protocol::ICMPV6 | protocol::ICMPV4 => match pinged(self.pinged, report) {
                    Some((identifier, sequence)) => {
                        let (from, kind) = (report.reporter, report.kind);
                        self.event(Event::EchoError { from, kind, identifier, sequence });
                        true
                    }
                    None => false,
                },
                protocol::ESP | protocol::AUTHENTICATION => false,
                _ => {
                    let socket = upper.socket_of_error(report);
                    socket.is_none_or(|socket| admits(Some(&socket))) && upper.error(now, report)
                }
            };
        match (related, refused) {
            (true, _) => Heard::Related,
            (false, true) => Heard::Refused,
            (false, false) => Heard::Unrelated,
        }
    }

    fn answer_echo(&mut self, now: Instant, request: &Packet<'_>, bytes: &[u8], secret: bool) {
        let to_many = request.destination().is_multicast();
        if request.source().is_unspecified() {
            return self.drop(DropReason::ImpossibleAddress);
        }
        // A question to many that all answer is worth bounding.
        if to_many && !self.errors.may_send(now) {
            return self.drop(DropReason::RateLimit);
        }
        let source =
            if to_many { self.source_for(now, request.source()) } else { Some(request.destination()) };
        let Some(source) = source else { return self.drop(DropReason::NoRoute) };
        let mut packet = std::mem::take(&mut self.building);
        echo_reply(request, bytes, source, self.hop_limit, &mut packet);
        self.answer(now, &mut packet, secret);
        self.building = packet;
    }

    /// Sends an error about `invoking`, unless the rules want silence. What came encrypted is not quoted in clear.
    pub(super) fn send_error(&mut self, now: Instant, reason: Reason, invoking: &[u8], secret: bool) {
        let source: Option<IpAddr> = match Packet::parse(invoking) {
            Ok(packet) if self.addresses.is_assigned(packet.destination()) => {
                Some(packet.destination().into())
            }
            Ok(packet) => self.source_for(now, packet.source()).map(IpAddr::from),
            Err(_) => self.ipv4.map(|ipv4| ipv4.address.addr().into()),
        };
        let Some(source) = source else { return };
        let mut error = std::mem::take(&mut self.building);
        match self.errors.build(now, reason, source, invoking, &mut error) {
            Ok(()) if error.is_empty() => {}
            Ok(()) => {
                if let (IpAddr::V6(_), Some(hop_limit)) = (source, error.get_mut(7)) {
                    *hop_limit = self.hop_limit;
                }
                self.answer(now, &mut error, secret);
            }
            Err(reason) => self.drop(reason),
        }
        self.building = error;
    }

    /// A neighbor does not answer: who sent this packet is told, which is one of ours (RFC 4861 §7.2.2).
    pub(super) fn address_unreachable(&mut self, now: Instant, packet: &[u8], upper: &mut impl Upper) {
        self.drop(DropReason::NoNeighbor);
        let kind = ErrorKind::Unreachable(icmpv6::code::ADDRESS_UNREACHABLE);
        let Ok(view) = Packet::parse(packet) else {
            // Of IPv4, then.
            if let Some(report) = super::ipv4::report_about(kind, Ipv6Addr::UNSPECIFIED, packet) {
                self.receive_error(now, &ErrorReport { reporter: report.local, ..report }, None, upper);
            }
            return;
        };
        let Ok(found) = view.upper_layer() else { return };
        let later = found.is_later_fragment();
        let bytes = if later { &[] } else { packet.get(found.offset..).unwrap_or_default() };
        let report = ErrorReport {
            kind,
            reporter: view.source(),
            local: view.source(),
            remote: view.destination(),
            protocol: found.protocol,
            upper: bytes,
        };
        self.receive_error(now, &report, None, upper);
    }

    /// The most that an upper layer may send in one packet to a destination, without fragmentation, as far as the host's
    /// policy for all protocols says; see [`Interface::largest_payload_of`].
    pub fn largest_payload(&self, now: Instant, destination: Ipv6Addr) -> usize {
        let source = self.source_for(now, destination).unwrap_or(Ipv6Addr::UNSPECIFIED);
        let traffic = Traffic {
            source: IpAddr::V6(source).to_canonical(),
            destination: IpAddr::V6(destination).to_canonical(),
            protocol: protocol::NO_NEXT_HEADER,
            detail: Detail::Opaque,
        };
        self.largest_payload_of(now, &traffic, None)
    }

    /// The most that an upper layer may send in one packet of this kind without fragmentation, with the protection that
    /// policy and socket ask for.
    pub fn largest_payload_of(&self, now: Instant, traffic: &Traffic, socket: Option<&Socket>) -> usize {
        self.largest_and_overhead(now, traffic, socket).0
    }

    /// The same, and what protection costs.
    pub(crate) fn largest_and_overhead(
        &self,
        now: Instant,
        traffic: &Traffic,
        socket: Option<&Socket>,
    ) -> (usize, Overhead) {
        let header = if traffic.destination.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let overhead = self.security.overhead(now, traffic, socket);
        let mapped = |address: IpAddr| match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let end = overhead.far_end.unwrap_or(traffic.destination);
        let largest = self.path_mtu(now, mapped(end)).saturating_sub(header + overhead.octets);
        (largest, overhead)
    }
}

/// Identifier and sequence number of the echo request that an error is about, if it went where the last one did.
fn pinged(pinged: Option<(Ipv6Addr, u16)>, report: &ErrorReport<'_>) -> Option<(u16, u16)> {
    let request =
        if report.protocol == protocol::ICMPV4 { icmpv4::ECHO_REQUEST } else { icmpv6::ECHO_REQUEST };
    let [kind, _, _, _, a, b, c, d] = *report.upper.first_chunk::<8>()?;
    let (identifier, sequence) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    (kind == request && pinged == Some((report.remote, identifier))).then_some((identifier, sequence))
}

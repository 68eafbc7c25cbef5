//! ICMPv6 (RFC 4443): errors that are received, errors that are sent, echo.
//!
//! What an error quotes is a packet that we are told we have sent. It is taken apart here; whether we did send it, a socket
//! decides ([`crate::udp`], or a transport of the caller's). Errors that are sent are built by [`wire::icmp_error`], which
//! keeps the rules of §2.4 e about when to stay silent; the rate of §2.4 f is limited here.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use wire::checksum::Sum;
use wire::icmp_error::{self, Reason};
use wire::icmpv6::{self, Message};
use wire::ipv6::{self, Packet};
use wire::protocol;

use crate::DropReason;
use crate::limit::Limit;

/// Errors at once (RFC 4443 §2.4 f suggests ten).
const BURST: u32 = 10;
/// Between two errors after that: ten a second.
const PAUSE: Duration = Duration::from_millis(100);

/// What an error says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Destination Unreachable, with its code ([`wire::icmpv6::code`]).
    Unreachable(u8),
    /// Packet Too Big, with the MTU. The route knows it already.
    PacketTooBig(u32),
    /// Time Exceeded, with its code.
    TimeExceeded(u8),
    /// Parameter Problem, with its code ([`wire::icmpv6::problem`]) and pointer.
    ParameterProblem(u8, u32),
    /// Something that nobody had thought of yet: its type and code.
    Unknown(u8, u8),
}

/// An error about a packet from `local` to `remote`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorReport<'a> {
    /// What it says.
    pub kind: ErrorKind,
    /// Who sent it: any router, or the destination.
    pub reporter: Ipv6Addr,
    /// Our address.
    pub local: Ipv6Addr,
    /// Where the packet went.
    pub remote: Ipv6Addr,
    /// The packet's upper-layer protocol.
    pub protocol: u8,
    /// What is quoted of the upper layer, perhaps nothing.
    pub upper: &'a [u8],
}

impl<'a> ErrorReport<'a> {
    /// Takes apart an error whose checksum has been verified. `None` for quotations that are too short to say whose packet
    /// it was.
    pub fn parse(reporter: Ipv6Addr, message: &Message<'a>) -> Option<Self> {
        let kind = match message.message_type() {
            icmpv6::DESTINATION_UNREACHABLE => ErrorKind::Unreachable(message.code()),
            icmpv6::PACKET_TOO_BIG => ErrorKind::PacketTooBig(message.body()),
            icmpv6::TIME_EXCEEDED => ErrorKind::TimeExceeded(message.code()),
            icmpv6::PARAMETER_PROBLEM => ErrorKind::ParameterProblem(message.code(), message.body()),
            // They are the upper layer's to know (§2.4 a).
            other => ErrorKind::Unknown(other, message.code()),
        };
        let quoted = message.payload();
        let (header, payload) = quoted.split_first_chunk::<{ ipv6::HEADER_LEN }>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let address = |at: usize| {
            let octets: Option<&[u8; 16]> = header[at..].first_chunk();
            octets.map(|octets| Ipv6Addr::from(*octets))
        };
        // The end of the packet is missing, so that its length field says nothing.
        let upper = ipv6::upper_layer(header[6], payload).ok()?;
        let bytes = if upper.is_later_fragment() { &[] } else { payload.get(upper.offset..)? };
        Some(ErrorReport {
            kind,
            reporter,
            local: address(8)?,
            remote: address(24)?,
            protocol: upper.protocol,
            upper: bytes,
        })
    }
}

impl ErrorReport<'_> {
    /// The same about what is behind the Authentication Header that the packet begins with, if so much is quoted of it.
    pub(crate) fn behind_authentication(&self) -> Option<Self> {
        if self.protocol != protocol::AUTHENTICATION {
            return None;
        }
        let &[next_header, units, ..] = self.upper else { return None };
        // In units of four octets, less two (RFC 4302 §2.2).
        let rest = self.upper.get((usize::from(units) + 2) * 4..)?;
        let (protocol, upper) = if self.local.to_ipv4_mapped().is_some() {
            (next_header, rest)
        } else {
            let found = ipv6::upper_layer(next_header, rest).ok()?;
            (found.protocol, rest.get(found.offset..)?)
        };
        Some(ErrorReport { protocol, upper, ..*self })
    }
}

/// Errors to send, no more than RFC 4443 §2.4 f allows.
pub(crate) struct Errors(Limit);

impl Errors {
    pub(crate) fn new(now: Instant) -> Self {
        Errors(Limit::new(BURST, PAUSE, now))
    }

    /// Whether one more may be sent.
    pub(crate) fn may_send(&mut self, now: Instant) -> bool {
        self.0.take(now)
    }

    /// Writes the error about `invoking` to `out`.
    pub(crate) fn build(
        &mut self,
        now: Instant,
        reason: Reason,
        source: IpAddr,
        invoking: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), DropReason> {
        out.clear();
        out.resize(icmp_error::MAX_LEN, 0);
        // What is refused here is no error that is missing: the rules want silence.
        let Ok(length) = icmp_error::build(reason, source, invoking, out) else {
            out.clear();
            return Ok(());
        };
        if !self.may_send(now) {
            out.clear();
            return Err(DropReason::RateLimit);
        }
        out.truncate(length);
        Ok(())
    }
}

/// Writes the answer to an echo request to `out` (RFC 4443 §4.2). `message` is the whole message.
pub(crate) fn echo_reply(
    request: &Packet<'_>,
    message: &[u8],
    source: Ipv6Addr,
    hop_limit: u8,
    out: &mut Vec<u8>,
) {
    let (destination, length) = (request.source(), message.len());
    let header = ipv6::Header {
        traffic_class: request.traffic_class() & !3,
        flow_label: request.flow_label(),
        payload_length: length as u16,
        next_header: protocol::ICMPV6,
        hop_limit,
        source,
        destination,
    };
    out.clear();
    out.extend_from_slice(&header.to_bytes());
    out.extend_from_slice(message);
    let reply = &mut out[ipv6::HEADER_LEN..];
    reply[..4].copy_from_slice(&[icmpv6::ECHO_REPLY, 0, 0, 0]);
    write_checksum(source, destination, reply);
}

/// Writes the checksum of a message.
fn write_checksum(source: Ipv6Addr, destination: Ipv6Addr, message: &mut [u8]) {
    let sum =
        Sum::pseudo_ipv6(source, destination, message.len() as u32, protocol::ICMPV6) + Sum::of(message);
    message[icmpv6::CHECKSUM_OFFSET..icmpv6::CHECKSUM_OFFSET + 2]
        .copy_from_slice(&sum.checksum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const US: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    const ROUTER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xff);
    const THEM: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9);

    fn sent(payload: &[u8]) -> Vec<u8> {
        let header = ipv6::Header {
            traffic_class: 0,
            flow_label: 0,
            payload_length: payload.len() as u16,
            next_header: protocol::UDP,
            hop_limit: 64,
            source: US,
            destination: THEM,
        };
        [&header.to_bytes()[..], payload].concat()
    }

    #[test]
    fn rfc_4443_2_4_an_error_says_whose_packet_it_is_about() {
        let packet = sent(&[7; 1460]);
        let mut errors = Errors::new(Instant::now());
        let mut out = Vec::new();
        errors
            .build(Instant::now(), Reason::PacketTooBig { mtu: 1400 }, ROUTER.into(), &packet, &mut out)
            .unwrap();
        let view = Packet::parse(&out).unwrap();
        let report = ErrorReport::parse(ROUTER, &Message::of_packet(&view).unwrap()).unwrap();
        assert_eq!((report.kind, report.local, report.remote), (ErrorKind::PacketTooBig(1400), US, THEM));
        assert_eq!((report.protocol, report.upper.len()), (protocol::UDP, 1280 - 88));
    }

    #[test]
    fn rfc_4443_2_4_f_errors_are_sent_no_oftener_than_allowed() {
        let now = Instant::now();
        let packet = sent(&[7; 20]);
        let mut errors = Errors::new(now);
        let mut out = Vec::new();
        let mut build = |at| errors.build(at, Reason::PortUnreachable, US.into(), &packet, &mut out);
        assert_eq!((0..100).filter(|_| build(now).is_ok()).count(), BURST as usize);
        assert_eq!(build(now), Err(DropReason::RateLimit));
        assert_eq!(build(now + PAUSE), Ok(()));
    }

    #[test]
    fn rfc_4443_4_2_an_echo_is_answered_with_what_it_brought() {
        let mut request = vec![icmpv6::ECHO_REQUEST, 0, 0, 0, 0x12, 0x34, 0, 7];
        request.extend(b"data");
        let mut packet = sent(&request);
        packet[6] = protocol::ICMPV6;
        let mut out = Vec::new();
        echo_reply(&Packet::parse(&packet).unwrap(), &request, THEM, 64, &mut out);
        let view = Packet::parse(&out).unwrap();
        let message = Message::of_packet(&view).unwrap();
        assert_eq!((view.source(), view.destination()), (THEM, US));
        assert_eq!((message.message_type(), message.body()), (icmpv6::ECHO_REPLY, 0x1234_0007));
        assert_eq!(message.payload(), b"data");
    }

    proptest! {
        #[test]
        fn any_error_is_taken_apart_without_panic(mut bytes in proptest::collection::vec(any::<u8>(), 8..200)) {
            bytes[0] &= 7;
            if let Some(first) = bytes.get_mut(8) { *first = 0x60; }
            let _ = ErrorReport::parse(ROUTER, &Message::parse(&bytes).unwrap());
        }
    }
}

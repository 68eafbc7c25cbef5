//! What arrives for TCP: segments find their connection, a listener, or nobody; errors find what they are about.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use ipsec::policy;
use wire::checksum::Sum;
use wire::ecn::Ecn;
use wire::icmpv6::code;
use wire::protocol;
use wire::tcp::Segment;

use super::sockets::{Holder, Listening, Marks, end, flow, mapped};
use super::transport::{Answer, Answers, Transport, addresses};
use crate::DropReason;
use crate::icmpv6::{ErrorKind, ErrorReport};
use crate::interface::{Received, Upper, Verdict};
use crate::tcp::{Connection, Flow, IcmpError, Reaction, Transmit, reset_for};

/// Neighbor discovery hears of each connection's progress this often at most: well before it would probe, five seconds
/// after it has begun to doubt (DELAY_FIRST_PROBE_TIME of RFC 4861 §10).
const CONFIRM_AGAIN: Duration = Duration::from_secs(1);

impl Upper for Transport {
    fn receive(&mut self, now: Instant, received: &Received<'_>) -> Verdict {
        if received.protocol != protocol::TCP {
            return Verdict::Unknown;
        }
        self.take(now, received).map_or_else(Verdict::Dropped, |()| Verdict::Taken)
    }

    fn socket(&self, received: &Received<'_>) -> Option<policy::Socket> {
        if received.protocol != protocol::TCP {
            return None;
        }
        let &[a, b, c, d] = received.payload.first_chunk()?;
        let [remote, local] = [[a, b], [c, d]].map(u16::from_be_bytes);
        self.sockets.policy(&flow((received.destination, local), (received.source, remote)))
    }

    fn socket_of_error(&self, report: &ErrorReport<'_>) -> Option<policy::Socket> {
        let (flow, _) = quoted(report)?;
        self.sockets.policy(&flow)
    }

    fn error(&mut self, _: Instant, report: &ErrorReport<'_>) -> bool {
        let Some((flow, sequence)) = quoted(report) else { return false };
        let Some(index) = self.sockets.find(&flow) else { return false };
        let Some(endpoint) = self.sockets.connection(index) else { return false };
        if !endpoint.connection.has_outstanding(sequence) {
            return false;
        }
        // A smaller packet is a matter of the path, whose MTU each connection asks for before it sends.
        if let Some(error) = meaning(report) {
            endpoint.connection.icmp_error(sequence, error);
        }
        self.agenda.ready(index);
        self.agenda.changed(index);
        self.settle(index);
        true
    }

    fn path_changed(&mut self) {
        for index in self.sockets.connections() {
            self.agenda.ready(index);
        }
    }
}

impl Transport {
    fn take(&mut self, now: Instant, received: &Received<'_>) -> Result<(), DropReason> {
        let (local, remote) = (mapped(received.destination), mapped(received.source));
        // TCP is between two (RFC 9293 §3.9.2.3).
        if received.to_many || local.is_multicast() {
            return Err(DropReason::NotForUs);
        }
        if remote.is_unspecified() {
            return Err(DropReason::ImpossibleAddress);
        }
        let bytes = received.payload;
        if !received.verified && !(pseudo_header(remote, local, bytes.len()) + Sum::of(bytes)).is_valid() {
            return Err(DropReason::Checksum);
        }
        let segment = Segment::parse(bytes).map_err(|_| DropReason::Malformed)?;
        let ends = ((local, segment.destination_port()), (remote, segment.source_port()));
        let flow = || flow((local.into(), ends.0.1), (remote.into(), ends.1.1));
        let ecn = Ecn::from_bits(received.traffic_class);
        let Some(index) = self.sockets.find_ends(ends.0, ends.1) else {
            let flow = flow();
            return match self.sockets.listener_at(end(flow.local)) {
                Some(listener) => self.receive_at_listener(now, listener, &flow, &segment, ecn),
                None => self.refuse(now, &flow, &segment),
            };
        };
        if self.sockets.connection(index).is_some_and(|known| known.connection.yields_to(&segment))
            && let flow = flow()
            && let Some(listener) = self.sockets.listener_at(end(flow.local))
        {
            self.replace(index);
            return self.receive_at_listener(now, listener, &flow, &segment, ecn);
        }
        self.receive_in_connection(now, index, &segment, ecn);
        Ok(())
    }

    fn receive_in_connection(&mut self, now: Instant, index: u32, segment: &Segment<'_>, ecn: Ecn) {
        let Some(endpoint) = self.sockets.connection(index) else { return };
        let before = endpoint.connection.progress();
        if let Some(reason) = endpoint.connection.receive(now, segment, ecn) {
            self.drops.count(reason);
        }
        if endpoint.connection.progress() != before
            && endpoint.confirmed.is_none_or(|at| now.saturating_duration_since(at) >= CONFIRM_AGAIN)
        {
            endpoint.confirmed = Some(now);
            self.confirmed.push(addresses(&endpoint.flow).1);
        }
        self.agenda.ready(index);
        self.agenda.changed(index);
        self.settle(index);
    }

    fn receive_at_listener(
        &mut self,
        now: Instant,
        index: u32,
        flow: &Flow,
        segment: &Segment<'_>,
        ecn: Ecn,
    ) -> Result<(), DropReason> {
        let Some(listening) = self.sockets.listener(index) else { return Err(DropReason::NoSocket) };
        match listening.listener.receive(now, flow, segment, ecn, &mut self.answers.bytes) {
            Reaction::None => {}
            Reaction::Dropped(reason) => self.drops.count(reason),
            Reaction::Reply(reply) => {
                let (policy, marks) = (listening.answering(), listening.marks);
                self.answers.add(*flow, &reply, Some(policy), marks);
            }
            Reaction::Established(connection) => self.established(now, index, flow, *connection),
        }
        let has_changed = |listening: &mut Listening| listening.listener.half_open() != listening.half_open;
        if self.sockets.listener(index).is_some_and(has_changed) {
            self.schedule_listener(index);
        }
        Ok(())
    }

    fn established(&mut self, now: Instant, listener: u32, flow: &Flow, connection: Connection) {
        let Some(listening) = self.sockets.listener(listener) else { return };
        let (policy, marks) = (listening.policy, listening.marks);
        let policy = policy::Socket { id: self.number(), ..policy };
        let (index, _) = self.add(*flow, connection, Holder::Backlog(listener), policy, marks, usize::MAX);
        if let Some(endpoint) = self.sockets.connection(index) {
            endpoint.confirmed = Some(now);
        }
        self.confirmed.push(addresses(flow).1);
        if let Some(listening) = self.sockets.listener(listener) {
            listening.backlog.push_back(index);
            listening.pause_if_full();
        }
        self.agenda.changed(listener);
        self.settle(index);
    }

    /// A connection in TIME-WAIT makes room for its successor. Who holds it may still read.
    fn replace(&mut self, index: u32) {
        match self.sockets.connection(index).map(|endpoint| endpoint.holder) {
            Some(Holder::Nobody) => self.remove(index),
            _ => self.sockets.detach(index),
        }
    }

    fn refuse(&mut self, now: Instant, flow: &Flow, segment: &Segment<'_>) -> Result<(), DropReason> {
        let is_reset = segment.flags() & wire::tcp::RST != 0;
        if !is_reset && !self.may_reset(now, addresses(flow).1) {
            return Err(DropReason::RateLimit);
        }
        if let Some(reset) = reset_for(segment, &mut self.answers.bytes) {
            self.answers.add(*flow, &reset, None, Marks::default());
        }
        Err(DropReason::NoSocket)
    }
}

impl Answers {
    /// What was written last goes there.
    pub(super) fn add(
        &mut self,
        flow: Flow,
        answer: &Transmit,
        policy: Option<policy::Socket>,
        marks: Marks,
    ) {
        self.list.push(Answer { flow, length: answer.header_len + answer.payload_len, policy, marks });
    }
}

/// The flow and sequence number of the segment that an error quotes: every error has so much of it (RFC 792).
fn quoted(report: &ErrorReport<'_>) -> Option<(Flow, u32)> {
    if report.protocol != protocol::TCP {
        return None;
    }
    let &[a, b, c, d, e, f, g, h] = report.upper.first_chunk()?;
    let [local, remote] = [[a, b], [c, d]].map(u16::from_be_bytes);
    let flow = flow((report.local.into(), local), (report.remote.into(), remote));
    Some((flow, u32::from_be_bytes([e, f, g, h])))
}

/// What an error means to a connection (RFC 9293 §3.9.2.2, RFC 5461), if it is not about the packet's length.
fn meaning(report: &ErrorReport<'_>) -> Option<IcmpError> {
    // That our own neighbor does not answer we know from ourselves: nobody could have forged it.
    let is_ours = report.reporter == report.local;
    Some(match report.kind {
        ErrorKind::PacketTooBig(_) => return None,
        ErrorKind::Unreachable(_) if is_ours => IcmpError::Hard,
        ErrorKind::Unreachable(code::NO_ROUTE | code::BEYOND_SCOPE | code::ADDRESS_UNREACHABLE) => {
            IcmpError::Soft
        }
        ErrorKind::Unreachable(_) => IcmpError::Hard,
        ErrorKind::TimeExceeded(_) | ErrorKind::ParameterProblem(..) | ErrorKind::Unknown(..) => {
            IcmpError::Soft
        }
    })
}

/// The pseudo-header of either IP version.
pub(super) fn pseudo_header(source: Ipv6Addr, destination: Ipv6Addr, length: usize) -> Sum {
    match (source.to_ipv4_mapped(), destination.to_ipv4_mapped()) {
        (Some(source), Some(destination)) => {
            Sum::pseudo_ipv4(source, destination, length as u16, protocol::TCP)
        }
        _ => Sum::pseudo_ipv6(source, destination, length as u32, protocol::TCP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_9293_3_9_2_2_what_is_soft_and_what_is_hard() {
        use ErrorKind::{PacketTooBig, ParameterProblem, TimeExceeded, Unknown, Unreachable};

        let of = |kind, reporter: &str| {
            let report = ErrorReport {
                kind,
                reporter: reporter.parse().unwrap(),
                local: "2001:db8::1".parse().unwrap(),
                remote: "2001:db8::2".parse().unwrap(),
                protocol: protocol::TCP,
                upper: &[],
            };
            meaning(&report)
        };
        let router = "2001:db8::7";
        let soft = [
            Unreachable(code::NO_ROUTE),
            Unreachable(code::ADDRESS_UNREACHABLE),
            TimeExceeded(0),
            TimeExceeded(1),
            ParameterProblem(0, 40),
            ParameterProblem(1, 6),
            ParameterProblem(2, 40),
            Unknown(100, 0),
        ];
        for kind in soft {
            assert_eq!(of(kind, router), Some(IcmpError::Soft), "{kind:?}");
        }
        for code in [code::ADMINISTRATIVELY_PROHIBITED, code::PORT_UNREACHABLE] {
            assert_eq!(of(Unreachable(code), router), Some(IcmpError::Hard), "{code}");
        }
        assert_eq!(of(PacketTooBig(1280), router), None);
        assert_eq!(
            of(Unreachable(code::ADDRESS_UNREACHABLE), "2001:db8::1"),
            Some(IcmpError::Hard),
            "our own"
        );
    }
}

//! What TCP sends: one packet of one socket at a time, in turn.

use std::time::Instant;

use wire::checksum::Sum;
use wire::ecn::Ecn;
use wire::{protocol, tcp};

use super::Host;
use super::input::pseudo_header;
use super::sockets::{Endpoint, Socket};
use super::transport::{Answer, addresses};
use crate::DropReason;
use crate::interface::{Interface, Outgoing, SendError};
use crate::security::{Security, Sender};
use crate::tcp::{Flow, IcmpError};

impl<S: Security> Host<S> {
    /// Puts the next frame or packet to send into `out`, whose buffer is used again; `false` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        loop {
            if self.interface.poll_transmit(out) {
                return true;
            }
            if !self.interface.has_room_for_own() {
                return false;
            }
            let Some(index) = self.tcp.agenda.next_ready() else { return false };
            self.visit(now, index);
        }
    }

    /// Sends one packet of a socket, if it has one; then it has to wait for its next turn.
    fn visit(&mut self, now: Instant, index: u32) {
        let segment = &mut self.segment;
        segment.clear();
        match self.tcp.sockets.get(index) {
            Some(Socket::Connection(endpoint)) => {
                if transmit(&mut self.interface, now, endpoint, segment) {
                    self.tcp.agenda.ready(index);
                }
                self.tcp.settle(index);
            }
            Some(Socket::Listener(listening)) => {
                if let Some((flow, packet)) = listening.listener.poll_transmit(now, segment) {
                    let policy = listening.answering();
                    let outgoing = outgoing(&flow, packet.ecn, self.tcp.flow_label(&flow));
                    let sender = Sender::Stranger { secret: false, socket: Some(&policy) };
                    // A stranger who does not answer, or has no route, is no concern of ours.
                    let _ = send(&mut self.interface, now, &outgoing, segment, sender);
                    self.tcp.agenda.ready(index);
                } else {
                    self.tcp.schedule_listener(index);
                }
            }
            None => {}
        }
    }

    /// Does what calls of the transport have led to.
    pub(super) fn follow_up(&mut self, now: Instant) {
        for destination in self.tcp.confirmed.drain(..) {
            self.interface.confirm(now, destination);
        }
        let mut answers = std::mem::take(&mut self.tcp.answers);
        let mut rest = &mut answers.bytes[..];
        for Answer { flow, length, policy } in &answers.list {
            let Some((segment, behind)) = rest.split_at_mut_checked(*length) else { break };
            rest = behind;
            let outgoing = outgoing(flow, Ecn::NotEct, self.tcp.flow_label(flow));
            let sender = Sender::Stranger { secret: false, socket: policy.as_ref() };
            let _ = send(&mut self.interface, now, &outgoing, segment, sender);
        }
        answers.bytes.clear();
        answers.list.clear();
        self.tcp.answers = answers;
    }
}

/// Sends the next packet of a connection. Returns whether there was one.
fn transmit<S: Security>(
    interface: &mut Interface<S>,
    now: Instant,
    endpoint: &mut Endpoint,
    segment: &mut Vec<u8>,
) -> bool {
    let policy = endpoint.policy;
    let largest = interface.largest_payload_of(now, &endpoint.traffic(), Some(&policy));
    // Before, there are no segments that could be too large.
    if largest < endpoint.largest && endpoint.connection.state().is_synchronized() {
        endpoint.largest = largest;
        endpoint.connection.path_mtu_changed(largest);
    }
    let Some(packet) = endpoint.connection.poll_transmit(now, 0, segment) else { return false };
    let outgoing = outgoing(&endpoint.flow, packet.ecn, endpoint.flow_label);
    let sent = send(interface, now, &outgoing, segment, Sender::Own(Some(&policy)));
    // What found no room, or no association yet, is lost like others that are lost. Without address or route there is no
    // connection, and those that there are hope for better.
    if let Err(SendError::NoSource | SendError::Dropped(DropReason::NoRoute | DropReason::ImpossibleAddress)) =
        sent
        && let Some(&[_, _, _, _, a, b, c, d]) = segment.first_chunk()
    {
        endpoint.connection.icmp_error(u32::from_be_bytes([a, b, c, d]), IcmpError::Hard);
    }
    // It may also be that too much waits already.
    if sent == Err(SendError::Security) && interface.prepare(now, &endpoint.traffic(), Some(&policy)).is_err()
    {
        endpoint.connection.security_refused();
    }
    true
}

fn outgoing(flow: &Flow, ecn: Ecn, flow_label: u32) -> Outgoing {
    let (local, remote) = addresses(flow);
    Outgoing {
        source: Some(local),
        destination: remote,
        protocol: protocol::TCP,
        hop_limit: None,
        traffic_class: ecn.bits(),
        flow_label,
    }
}

/// Sends a segment, whose checksum it writes.
fn send<S: Security>(
    interface: &mut Interface<S>,
    now: Instant,
    outgoing: &Outgoing,
    segment: &mut [u8],
    sender: Sender<'_>,
) -> Result<(), SendError> {
    let source = outgoing.source.unwrap_or(outgoing.destination);
    let sum = pseudo_header(source, outgoing.destination, segment.len()) + Sum::of(segment);
    if let Some(field) = segment.get_mut(tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2) {
        field.copy_from_slice(&sum.checksum().to_be_bytes());
    }
    interface.send_for(now, outgoing, &[segment], sender)
}

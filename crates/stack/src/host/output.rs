//! What TCP sends: one packet of one socket at a time, in turn. It may stand for several segments, so that what a packet costs
//! is paid once for them; who cuts it is the device, or the interface where the device does not.

use std::time::Instant;

use ipsec::policy;
use wire::checksum::Sum;
use wire::ecn::Ecn;
use wire::{protocol, tcp, virtio_net};

use super::Host;
use super::input::pseudo_header;
use super::sockets::{Endpoint, Marks, Socket};
use super::transport::{Answer, addresses};
use crate::DropReason;
use crate::interface::{Built, Interface, Outgoing, SendError};
use crate::security::{Security, Sender};
use crate::tcp::{Flow, IcmpError, Transmit};

/// Payload octets of a packet that a device cuts into segments: what the length field of IPv4 leaves behind the longest
/// headers.
const MAX_LARGE: usize = 65_535 - 20 - 60;
/// Full segments of one that is cut here. More would save little, and let others wait for their turn.
const MAX_CUT: usize = 16;

impl<S: Security> Host<S> {
    /// Puts the next frame or packet to send into `out`, whose buffer is used again; `false` if there is none.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> bool {
        self.poll(now, false, out).is_some()
    }

    /// As [`Host::poll_transmit`], for a device that cuts large packets into segments and writes checksums, as a TUN or
    /// TAP device with `IFF_VNET_HDR` does: returns what it has to do. Whoever uses this uses nothing else.
    pub fn poll_transmit_offloaded(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<virtio_net::Header> {
        self.poll(now, true, out)
    }

    fn poll(&mut self, now: Instant, offloads: bool, out: &mut Vec<u8>) -> Option<virtio_net::Header> {
        loop {
            if let Some(header) = self.interface.poll_transmit_offloaded(out) {
                return Some(header);
            }
            if !self.interface.has_room_for_own() {
                return None;
            }
            let index = self.tcp.agenda.next_ready()?;
            self.visit(now, index, offloads);
            for socket in self.tcp.closed.drain(..) {
                self.interface.security().close_socket(socket);
            }
        }
    }

    /// Sends one packet of a socket, if it has one; then it has to wait for its next turn.
    fn visit(&mut self, now: Instant, index: u32, offloads: bool) {
        let segment = &mut self.segment;
        segment.clear();
        match self.tcp.sockets.get(index) {
            Some(Socket::Connection(endpoint)) => {
                if transmit(&mut self.interface, now, endpoint, segment, offloads) {
                    self.tcp.agenda.ready(index);
                }
                self.tcp.settle(index);
            }
            Some(Socket::Listener(listening)) => {
                if let Some((flow, packet)) = listening.listener.poll_transmit(now, segment) {
                    let (policy, marks) = (listening.answering(), listening.marks);
                    let outgoing = outgoing(&flow, packet.ecn, self.tcp.flow_label(&flow), marks);
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
        for socket in self.tcp.closed.drain(..) {
            self.interface.security().close_socket(socket);
        }
        for destination in self.tcp.confirmed.drain(..) {
            self.interface.confirm(now, destination);
        }
        let mut answers = std::mem::take(&mut self.tcp.answers);
        let mut rest = &mut answers.bytes[..];
        for Answer { flow, length, policy, marks } in &answers.list {
            let Some((segment, behind)) = rest.split_at_mut_checked(*length) else { break };
            rest = behind;
            let outgoing = outgoing(flow, Ecn::NotEct, self.tcp.flow_label(flow), *marks);
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
    offloads: bool,
) -> bool {
    let policy = endpoint.policy;
    let traffic = endpoint.traffic();
    let (largest, overhead) = interface.largest_and_overhead(now, &traffic, Some(&policy));
    // Before, there are no segments that could be too large.
    if largest != endpoint.largest && endpoint.connection.state().is_synchronized() {
        if largest < endpoint.largest {
            endpoint.connection.path_mtu_changed(largest);
        } else {
            endpoint.connection.path_mtu_raised(now, largest);
        }
        endpoint.largest = largest;
    }
    let is_plain = overhead.octets == 0 && interface.may_offload(now, &traffic, Some(&policy));
    let room = interface.room_for_headers(addresses(&endpoint.flow).1.to_ipv4_mapped().is_some());
    let protection = if is_plain { None } else { interface.may_cut_protected(now, &traffic, Some(&policy)) };
    let cut = MAX_LARGE.min(MAX_CUT * endpoint.connection.segment_payload());
    let (start, most) = match (is_plain, protection) {
        (true, _) if offloads => (room, MAX_LARGE),
        (true, _) => (room, cut),
        (false, Some(front)) => (room + front, cut),
        (false, None) => (room + S::HEADROOM, 0),
    };
    segment.resize(start, 0);
    let Some(packet) = endpoint.connection.poll_transmit_header(now, most, segment) else { return false };
    let sequence = segment.get(start + 4..).and_then(|rest| rest.first_chunk().copied());
    let outgoing = outgoing(&endpoint.flow, packet.ecn, endpoint.flow_label, endpoint.marks);
    // Only what is plain for certain, or will be protected, is cut.
    let is_cut = packet.segment_size.is_some() && (is_plain && !offloads || protection.is_some());
    let protected = protection.map(|_| policy);
    let sent = if is_cut && let (payload, []) = endpoint.connection.payload_of(&packet) {
        // From the connection's buffer to the frames.
        send_offloaded(interface, now, &outgoing, segment, start, &packet, Some(payload), protected)
    } else if is_cut || is_plain && offloads {
        endpoint.connection.write_payload(&packet, segment);
        send_offloaded(interface, now, &outgoing, segment, start, &packet, is_cut.then_some(&[]), protected)
    } else {
        endpoint.connection.write_payload(&packet, segment);
        write_checksum(&outgoing, segment.get_mut(start..).unwrap_or_default());
        interface.send_built(now, &outgoing, segment, start, Sender::Own(Some(&policy)))
    };
    // What found no room, or no association yet, is lost like others that are lost. Without address or route there is no
    // connection, and those that there are hope for better.
    if let Err(SendError::NoSource | SendError::Dropped(DropReason::NoRoute | DropReason::ImpossibleAddress)) =
        sent
        && let Some(sequence) = sequence
    {
        endpoint.connection.icmp_error(u32::from_be_bytes(sequence), IcmpError::Hard);
    }
    // It may also be that too much waits already.
    if sent == Err(SendError::Security) && interface.prepare(now, &traffic, Some(&policy)).is_err() {
        endpoint.connection.security_refused();
    }
    true
}

/// Sends a segment, or one that stands for many, behind the room for its headers; the rest is the device's to do, or done
/// here: see [`Built::cut`].
#[expect(clippy::too_many_arguments, reason = "all of them are of the one packet that is on its way")]
fn send_offloaded<S: Security>(
    interface: &mut Interface<S>,
    now: Instant,
    outgoing: &Outgoing,
    buffer: &mut Vec<u8>,
    start: usize,
    packet: &Transmit,
    cut: Option<&[u8]>,
    protected: Option<policy::Socket>,
) -> Result<(), SendError> {
    let source = outgoing.source.unwrap_or(outgoing.destination);
    let sum = pseudo_header(source, outgoing.destination, packet.header_len + packet.payload_len);
    let at = start + tcp::CHECKSUM_OFFSET;
    if let Some(field) = buffer.get_mut(at..at + 2) {
        field.copy_from_slice(&sum.value().to_be_bytes());
    }
    let (header_len, segment_size) = (packet.header_len, packet.segment_size);
    let built = Built { buffer, at: start, header_len, segment_size, cut, protected };
    interface.send_offloaded(now, outgoing, built)
}

fn outgoing(flow: &Flow, ecn: Ecn, flow_label: u32, marks: Marks) -> Outgoing {
    let (local, remote) = addresses(flow);
    Outgoing {
        source: Some(local),
        destination: remote,
        protocol: protocol::TCP,
        hop_limit: marks.hop_limit,
        traffic_class: marks.dscp << 2 | ecn.bits(),
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
    write_checksum(outgoing, segment);
    interface.send_for(now, outgoing, &[segment], sender)
}

fn write_checksum(outgoing: &Outgoing, segment: &mut [u8]) {
    let source = outgoing.source.unwrap_or(outgoing.destination);
    let sum = pseudo_header(source, outgoing.destination, segment.len()) + Sum::of(segment);
    if let Some(field) = segment.get_mut(tcp::CHECKSUM_OFFSET..tcp::CHECKSUM_OFFSET + 2) {
        field.copy_from_slice(&sum.checksum().to_be_bytes());
    }
}

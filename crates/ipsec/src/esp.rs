//! ESP (RFC 4303), in place: transport and tunnel mode, around and over IPv6 and IPv4, in UDP (RFC 3948) where a NAT is on
//! the way.
//!
//! ```text
//! transport  IP │ hop-by-hop, routing │ [UDP] │ SPI, sequence │ IV │ payload │ padding, its length, type │ ICV
//! tunnel     outer IP                 │ [UDP] │ SPI, sequence │ IV │ packet  │ padding, its length, type │ ICV
//!                                               └──────────────────── authenticated ──────────────────┘
//!                                                                    └──────── encrypted ────────┘
//! ```
//!
//! Security headers within each other are sealed and opened one call each, the inner one first when sealing.

use std::time::Instant;

use wire::checksum::Sum;
use wire::{flow, ipv6, protocol, udp};

use crate::association::{Age, Association, Mode, Transform};
use crate::esp_packet::{self, Around};
use crate::headers::{self, SecurityHeader};
use crate::marks::Marks;
use crate::outcome::{OpenError, SealError};
use crate::packet_buffer::{NoRoom, PacketBuffer};
use crate::tunnel::{self, Placement};
use crate::udp_encapsulation;

/// Bytes that sealing may put before a packet: outer IPv6 header, UDP, SPI and sequence number, the longest IV.
pub const MAX_HEADROOM: usize = 40 + 8 + 8 + 16;
/// Bytes that sealing may put behind a packet: padding to 16 bytes with its length and the type, the longest ICV.
pub const MAX_TAILROOM: usize = 15 + 2 + 32;

/// Protects the packet, which is one that this association is for. Nothing is allocated.
///
/// # Errors
/// [`SealError`]; packet and association are as before.
pub fn seal(
    association: &mut Association,
    packet: &mut PacketBuffer<'_>,
    now: Instant,
) -> Result<(), SealError> {
    if association.age(now) == Age::Hard {
        return Err(SealError::Expired);
    }
    let parameters = &association.parameters;
    let Transform::Esp(transform) = &parameters.transform else { return Err(SealError::Protocol) };
    headers::trim(packet)?;
    let placement = Placement::new(parameters, packet.packet())?;
    let Placement { place, kept, is_ipv6 } = placement;
    let payload_length = packet.len() - kept;
    let udp_length = if parameters.encapsulation.is_some() { udp::HEADER_LEN } else { 0 };
    let around = Around::payload(transform, payload_length);
    let (front, behind) = (placement.outer_length() + udp_length + around.front, around.behind);
    if packet.headroom() < front || packet.tailroom() < behind {
        return Err(NoRoom.into());
    }
    if packet.len() + front + behind > headers::longest(is_ipv6) {
        return Err(SealError::TooLong);
    }
    let sequence = association.counter.advance()?;
    let length = packet.len();
    let outer = tunnel::Outer::around(packet.packet(), parameters, sequence.low() as u16);
    packet.open_gap(kept, front)?;
    packet.extend(behind)?;

    let bytes = packet.packet_mut();
    let (before, rest) = bytes.split_at_mut(place.offset);
    if let Some(outer) = outer {
        before.copy_from_slice(outer.bytes());
    }
    let (udp_header, esp) = rest.split_at_mut(udp_length);
    esp_packet::seal(association, sequence, esp, payload_length, place.protocol)?;
    let protocol = match parameters.encapsulation {
        Some(ports) => {
            let header = udp::Header {
                source_port: ports.source_port,
                destination_port: ports.destination_port,
                length: (udp_length + esp.len()) as u16,
                checksum: 0,
            };
            udp_header.copy_from_slice(&header.to_bytes());
            protocol::UDP
        }
        None => protocol::ESP,
    };
    headers::set_type_and_length(bytes, place, protocol);
    if protocol == protocol::UDP && is_ipv6 {
        write_udp_checksum(bytes, place.offset);
    }
    association.count(length, now);
    Ok(())
}

/// Verifies and opens the first security header of the packet, which must be the association's. `marks` is what the packet
/// has been through so far; what is returned, what it has been through then.
///
/// # Errors
/// [`OpenError`]. Before the ICV is verified, nothing of the association is changed.
pub fn open(
    association: &mut Association,
    packet: &mut PacketBuffer<'_>,
    marks: Marks,
    now: Instant,
) -> Result<Marks, OpenError> {
    headers::trim(packet)?;
    let encapsulation = association.parameters.encapsulation;
    let udp_port = encapsulation.map(|ports| ports.destination_port);
    let found = headers::find(packet.packet(), udp_port)?.ok_or(OpenError::Association)?;
    open_at(association, packet, found, marks, now)
}

/// As [`open`], where the security header was found already and nothing is behind the packet.
pub(crate) fn open_at(
    association: &mut Association,
    packet: &mut PacketBuffer<'_>,
    found: SecurityHeader,
    marks: Marks,
    now: Instant,
) -> Result<Marks, OpenError> {
    // Whether it is in UDP does not matter: RFC 7296 §2.23 has both forms taken at any time.
    if found.protocol != association.protocol() {
        return Err(OpenError::Association);
    }
    let place = found.place;
    let esp_at = place.offset + if found.in_udp { trim_udp(packet, place.offset)? } else { 0 };
    let (source, _) = flow::addresses(packet.packet())?;
    let esp = packet.packet_mut().get_mut(esp_at..).ok_or(OpenError::Length)?;
    let esp_packet::Opened { payload, next_header } = esp_packet::open(association, esp, now)?;

    let (front, payload_length) = (esp_at + payload.start, payload.len());
    packet.truncate(front + payload_length);
    let opened = match association.parameters.mode {
        _ if next_header == protocol::NO_NEXT_HEADER => Err(OpenError::Dummy),
        Mode::Transport => {
            packet.close_gap(place.offset, front - place.offset);
            headers::set_type_and_length(packet.packet_mut(), place, next_header);
            if let Some(original) = association.parameters.original_addresses {
                udp_encapsulation::correct_checksum(packet.packet_mut(), original);
            }
            Ok(())
        }
        Mode::Tunnel => tunnel::decapsulate(packet, front, next_header),
    };
    association.count(if opened.is_ok() { packet.len() } else { payload_length }, now);
    opened.map(|()| association.marks(marks, source, packet.packet()))
}

/// Cuts off what is behind the datagram at `at`, and returns the length of its header.
fn trim_udp(packet: &mut PacketBuffer<'_>, at: usize) -> Result<usize, OpenError> {
    let datagram = udp::Datagram::parse(packet.packet().get(at..).ok_or(OpenError::Length)?)?;
    packet.truncate(at + usize::from(datagram.length()));
    Ok(udp::HEADER_LEN)
}

/// IPv6 has no UDP without a checksum (RFC 8200 §8.1); in IPv4 it is zero (RFC 3948 §2.1).
fn write_udp_checksum(packet: &mut [u8], at: usize) {
    let Ok(view) = ipv6::Packet::parse(packet) else { return };
    let datagram = &packet[at..];
    let sum = view.pseudo_header(datagram.len() as u32, protocol::UDP) + Sum::of(datagram);
    let field = at + udp::CHECKSUM_OFFSET;
    packet[field..field + 2].copy_from_slice(&sum.udp_checksum().to_be_bytes());
}

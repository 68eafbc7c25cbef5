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
use crate::headers;
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
    let header_length = transform.header_length() + transform.iv_length();
    let padding = padding(payload_length, transform.alignment());
    let behind = padding + 2 + transform.icv_length();
    let front = placement.outer_length() + udp_length + header_length;
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
    write_header(esp, parameters.spi.0, transform.has_sequence().then(|| sequence.low()));
    write_trailer(&mut esp[header_length + payload_length..], padding, place.protocol);
    let high = parameters.extended_sequence.then(|| sequence.high());
    // Lengths are those that the transform has asked for, so that it has nothing to refuse.
    transform.seal(esp, sequence.0, high).map_err(|_| SealError::TooLong)?;
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
    let parameters = &association.parameters;
    let udp_port = parameters.encapsulation.map(|ports| ports.destination_port);
    let found = headers::find(packet.packet(), udp_port)?.ok_or(OpenError::Association)?;
    let Transform::Esp(transform) = &parameters.transform else { return Err(OpenError::Association) };
    if found.protocol != association.protocol()
        || found.spi != parameters.spi
        || found.in_udp != parameters.encapsulation.is_some()
    {
        return Err(OpenError::Association);
    }
    if association.age(now) == Age::Hard {
        return Err(OpenError::Expired);
    }
    let place = found.place;
    let esp_at = place.offset + if found.in_udp { trim_udp(packet, place.offset)? } else { 0 };
    let header_length = transform.header_length() + transform.iv_length();
    let esp = packet.packet_mut().get_mut(esp_at..).ok_or(OpenError::Length)?;
    let hidden = esp.len().checked_sub(header_length + transform.icv_length()).ok_or(OpenError::Length)?;
    if hidden < 2 || hidden % transform.alignment() != 0 {
        return Err(OpenError::Length);
    }
    let low = match esp.get(4..8) {
        Some(&[a, b, c, d]) if transform.has_sequence() => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    };
    let sequence = association.check_sequence(low)?;
    transform.open(esp, association.high(sequence)).map_err(|_| OpenError::Forged)?;
    let payload = esp.get(transform.payload(esp.len())).ok_or(OpenError::Length)?;
    let trailer = read_trailer(payload, transform.checks_padding());
    association.accept_sequence(sequence);
    let Trailer { payload_length, next_header } = match trailer {
        Ok(trailer) => trailer,
        Err(error) => {
            association.count(0, now);
            return Err(error);
        }
    };

    let front = esp_at + header_length;
    let (source, _) = flow::addresses(packet.packet())?;
    let opened = match association.parameters.mode {
        _ if next_header == protocol::NO_NEXT_HEADER => Err(OpenError::Dummy),
        Mode::Transport => {
            packet.truncate(front + payload_length);
            packet.close_gap(place.offset, front - place.offset);
            headers::set_type_and_length(packet.packet_mut(), place, next_header);
            if let Some(original) = association.parameters.original_addresses {
                udp_encapsulation::correct_checksum(packet.packet_mut(), original);
            }
            Ok(())
        }
        Mode::Tunnel => {
            packet.truncate(front + payload_length);
            tunnel::decapsulate(packet, front, next_header)
        }
    };
    association.count(if opened.is_ok() { packet.len() } else { payload_length }, now);
    opened.map(|()| association.marks(marks, source, packet.packet()))
}

/// Bytes of padding so that payload, padding and the two bytes of the trailer are a multiple of `alignment`.
pub(crate) fn padding(payload_length: usize, alignment: usize) -> usize {
    (payload_length + 2).next_multiple_of(alignment) - (payload_length + 2)
}

pub(crate) fn write_header(esp: &mut [u8], spi: u32, sequence: Option<u32>) {
    esp[..4].copy_from_slice(&spi.to_be_bytes());
    if let Some(sequence) = sequence {
        esp[4..8].copy_from_slice(&sequence.to_be_bytes());
    }
}

pub(crate) fn write_trailer(behind_payload: &mut [u8], padding: usize, next_header: u8) {
    for (byte, number) in behind_payload.iter_mut().take(padding).zip(1..) {
        *byte = number;
    }
    behind_payload[padding] = padding as u8;
    behind_payload[padding + 1] = next_header;
}

pub(crate) struct Trailer {
    pub(crate) payload_length: usize,
    pub(crate) next_header: u8,
}

pub(crate) fn read_trailer(payload: &[u8], checks_padding: bool) -> Result<Trailer, OpenError> {
    let (&next_header, rest) = payload.split_last().ok_or(OpenError::Padding)?;
    let (&padding, rest) = rest.split_last().ok_or(OpenError::Padding)?;
    let payload_length = rest.len().checked_sub(usize::from(padding)).ok_or(OpenError::Padding)?;
    let padding = rest.get(payload_length..).unwrap_or_default();
    if checks_padding && !padding.iter().copied().eq((1..=u8::MAX).take(padding.len())) {
        return Err(OpenError::Padding);
    }
    Ok(Trailer { payload_length, next_header })
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

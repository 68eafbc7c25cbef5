//! ESP of tunnel mode as a socket carries it: from the SPI to the ICV. The outer headers are the kernel's, those of UDP where
//! a NAT may be on the way (RFC 3948), or of IP alone in a raw socket.
//!
//! What [`esp`](crate::esp) does to whole packets is done here without their outer headers: sealing copies the inner packet
//! once, to where the datagram is to be, and opening leaves it where it has arrived.

use std::ops::Range;
use std::time::Instant;

use wire::ecn::{self, Ecn};
use wire::{ipv4, ipv6, protocol};

use crate::algorithm::EspTransform;
use crate::association::{Age, Association, Mode, Transform};
use crate::esp::{Trailer, padding, read_trailer, write_header, write_trailer};
use crate::marks::Marks;
use crate::outcome::{OpenError, SealError};
use crate::packet_buffer::NoRoom;

/// Bytes from SPI to ICV around a packet of so many bytes. `None` for what is no tunnel of ESP.
pub fn sealed_length(association: &Association, packet_length: usize) -> Option<usize> {
    let transform = transform(association)?;
    let padding = padding(packet_length, transform.alignment());
    let around = transform.header_length() + transform.iv_length() + 2 + transform.icv_length();
    Some(packet_length + padding + around)
}

/// The largest packet that fits `room` bytes from SPI to ICV. `None` for what is no tunnel of ESP.
pub fn largest_packet(association: &Association, room: usize) -> Option<usize> {
    let transform = transform(association)?;
    let around = transform.header_length() + transform.iv_length() + transform.icv_length();
    let hidden = room.saturating_sub(around);
    Some((hidden - hidden % transform.alignment()).saturating_sub(2))
}

/// Writes an inner packet, given in two parts, to `out`, and protects it there. `out` is as long as [`sealed_length`] says.
///
/// # Errors
/// [`SealError`]; the association is as before, what is in `out` is nobody's.
pub fn seal(
    association: &mut Association,
    parts: [&[u8]; 2],
    out: &mut [u8],
    now: Instant,
) -> Result<(), SealError> {
    if association.age(now) == Age::Hard {
        return Err(SealError::Expired);
    }
    let length = parts[0].len() + parts[1].len();
    if sealed_length(association, length).ok_or(SealError::Protocol)? != out.len() {
        return Err(NoRoom.into());
    }
    let version = parts[0].first().map(|first| first >> 4);
    let next_header = if version == Some(6) { protocol::IPV6 } else { protocol::IPV4 };
    let sequence = association.counter.advance()?;
    let parameters = &association.parameters;
    let Transform::Esp(transform) = &parameters.transform else { return Err(SealError::Protocol) };
    let header_length = transform.header_length() + transform.iv_length();
    write_header(out, parameters.spi.0, transform.has_sequence().then(|| sequence.low()));
    let (packet, trailer) = out[header_length..].split_at_mut(length);
    let (first, second) = packet.split_at_mut(parts[0].len());
    first.copy_from_slice(parts[0]);
    second.copy_from_slice(parts[1]);
    write_trailer(trailer, padding(length, transform.alignment()), next_header);
    let high = parameters.extended_sequence.then(|| sequence.high());
    // The length is the one that the transform has asked for, so that it has nothing to refuse.
    transform.seal(out, sequence.0, high).map_err(|_| SealError::TooLong)?;
    association.count(length, now);
    Ok(())
}

/// An inner packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Where it is in what was opened.
    pub packet: Range<usize>,
    /// What it has been through: nothing, if the association is not for such packets (RFC 4301 §5.2 step 4).
    pub marks: Marks,
}

/// Verifies and opens what arrived, from the SPI on; congestion that `outer` tells of is told inside, too (RFC 6040).
///
/// # Errors
/// [`OpenError`]. Before the ICV is verified, nothing of the association is changed.
pub fn open(
    association: &mut Association,
    esp: &mut [u8],
    outer: Ecn,
    now: Instant,
) -> Result<Opened, OpenError> {
    let parameters = &association.parameters;
    let transform = transform(association).ok_or(OpenError::Association)?;
    if esp.first_chunk() != Some(&parameters.spi.0.to_be_bytes()) {
        return Err(OpenError::Association);
    }
    if association.age(now) == Age::Hard {
        return Err(OpenError::Expired);
    }
    let front = transform.header_length() + transform.iv_length();
    let hidden = esp.len().checked_sub(front + transform.icv_length()).ok_or(OpenError::Length)?;
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
    let opened = trailer.and_then(|trailer| inner_packet(esp, front, trailer, outer));
    association.count(opened.as_ref().map_or(0, ExactSizeIterator::len), now);
    let packet = opened?;
    let source = association.parameters.source;
    let marks = association.marks(Marks::NONE, source, &esp[packet.clone()]);
    Ok(Opened { packet, marks })
}

fn transform(association: &Association) -> Option<&EspTransform> {
    match &association.parameters.transform {
        Transform::Esp(transform) if association.parameters.mode == Mode::Tunnel => Some(transform),
        _ => None,
    }
}

/// Where the inner packet is, without what is behind its end: padding for traffic flow confidentiality (RFC 4303 §2.7).
fn inner_packet(
    esp: &mut [u8],
    front: usize,
    trailer: Trailer,
    outer: Ecn,
) -> Result<Range<usize>, OpenError> {
    let Trailer { payload_length, next_header } = trailer;
    let inner = esp.get_mut(front..front + payload_length).ok_or(OpenError::Inner)?;
    let stated = match next_header {
        protocol::NO_NEXT_HEADER => return Err(OpenError::Dummy),
        protocol::IPV6 => {
            let packet = ipv6::Packet::parse(inner).map_err(|_| OpenError::Inner)?;
            ipv6::HEADER_LEN + packet.payload().len()
        }
        protocol::IPV4 => {
            let packet = ipv4::Packet::parse(inner).map_err(|_| OpenError::Inner)?;
            packet.header().len() + packet.payload().len()
        }
        _ => return Err(OpenError::Inner),
    };
    let combined = ecn::decapsulate(outer, ecn::get(inner).ok_or(OpenError::Inner)?);
    ecn::set(inner, combined.map_err(|_| OpenError::Congestion)?);
    Ok(front..front + stated)
}

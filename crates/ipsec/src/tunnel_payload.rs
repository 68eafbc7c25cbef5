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
use crate::esp_packet::{self, Around};
use crate::marks::Marks;
use crate::outcome::{OpenError, SealError};
use crate::packet_buffer::NoRoom;

/// Bytes from SPI to ICV around a packet of so many bytes. `None` for what is no tunnel of ESP.
pub fn sealed_length(association: &Association, packet_length: usize) -> Option<usize> {
    let transform = transform(association)?;
    let Around { front, behind } = Around::payload(transform, packet_length);
    Some(front + packet_length + behind)
}

/// The largest packet that fits `room` bytes from SPI to ICV. `None` for what is no tunnel of ESP.
pub fn largest_packet(association: &Association, room: usize) -> Option<usize> {
    Some(esp_packet::largest_payload(transform(association)?, room))
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
    let transform = transform(association).ok_or(SealError::Protocol)?;
    let Around { front, behind } = Around::payload(transform, length);
    if front + length + behind != out.len() {
        return Err(NoRoom.into());
    }
    let version = parts[0].first().map(|first| first >> 4);
    let next_header = if version == Some(6) { protocol::IPV6 } else { protocol::IPV4 };
    let sequence = association.counter.advance()?;
    let (first, second) = out[front..front + length].split_at_mut(parts[0].len());
    first.copy_from_slice(parts[0]);
    second.copy_from_slice(parts[1]);
    esp_packet::seal(association, sequence, out, length, next_header)?;
    association.count(length, now);
    Ok(())
}

/// Writes a packet that holds nothing to `out`, for those who count packets: its receiver drops it without an error (RFC 4303
/// §2.6). `out` may be of any length that [`sealed_length`] gives.
///
/// # Errors
/// [`SealError`], as of [`seal`].
pub fn seal_dummy(association: &mut Association, out: &mut [u8], now: Instant) -> Result<(), SealError> {
    if association.age(now) == Age::Hard {
        return Err(SealError::Expired);
    }
    let transform = transform(association).ok_or(SealError::Protocol)?;
    let length = esp_packet::largest_payload(transform, out.len());
    let Around { front, behind } = Around::payload(transform, length);
    if front + length + behind != out.len() {
        return Err(NoRoom.into());
    }
    let sequence = association.counter.advance()?;
    out[front..front + length].fill(0);
    esp_packet::seal(association, sequence, out, length, protocol::NO_NEXT_HEADER)?;
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
    if association.parameters.mode != Mode::Tunnel {
        return Err(OpenError::Association);
    }
    let opened = esp_packet::open(association, esp, now)?;
    let opened = inner_packet(esp, opened, outer);
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
fn inner_packet(esp: &mut [u8], opened: esp_packet::Opened, outer: Ecn) -> Result<Range<usize>, OpenError> {
    let esp_packet::Opened { payload, next_header } = opened;
    let front = payload.start;
    let inner = esp.get_mut(payload).ok_or(OpenError::Inner)?;
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

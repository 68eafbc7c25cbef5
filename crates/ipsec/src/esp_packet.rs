//! An ESP packet (RFC 4303 §2), the bytes from SPI to ICV: what [`esp`](crate::esp) puts into whole packets and
//! [`tunnel_payload`](crate::tunnel_payload) into datagrams.

use std::ops::Range;
use std::time::Instant;

use crate::algorithm::EspTransform;
use crate::association::{Age, Association, Transform};
use crate::outcome::{OpenError, SealError};
use crate::replay::SequenceNumber;

/// The bytes around a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Around {
    /// SPI, sequence number, IV.
    pub(crate) front: usize,
    /// Padding, its length, the type of the payload, ICV.
    pub(crate) behind: usize,
}

impl Around {
    /// A payload of so many bytes.
    pub(crate) fn payload(transform: &EspTransform, length: usize) -> Self {
        let behind = padding(transform, length) + 2 + transform.icv_length();
        Self { front: transform.front(), behind }
    }
}

/// Protects the payload of `length` bytes that lies in `esp` with the room [around](Around::payload) it. `sequence` is what
/// the association's counter has just given out.
pub(crate) fn seal(
    association: &Association,
    sequence: SequenceNumber,
    esp: &mut [u8],
    length: usize,
    next_header: u8,
) -> Result<(), SealError> {
    let parameters = &association.parameters;
    let Transform::Esp(transform) = &parameters.transform else { return Err(SealError::Protocol) };
    esp[..4].copy_from_slice(&parameters.spi.0.to_be_bytes());
    if transform.has_sequence() {
        esp[4..8].copy_from_slice(&sequence.low().to_be_bytes());
    }
    let padding = padding(transform, length);
    let trailer = &mut esp[transform.front() + length..];
    for (byte, number) in trailer.iter_mut().take(padding).zip(1..) {
        *byte = number;
    }
    trailer[padding] = padding as u8;
    trailer[padding + 1] = next_header;
    // The lengths are those that the transform has asked for, so that it has nothing to refuse.
    transform.seal(esp, sequence.0, association.high(sequence)).map_err(|_| SealError::TooLong)
}

/// What was in an ESP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    /// Where the payload is in it.
    pub(crate) payload: Range<usize>,
    /// Its type.
    pub(crate) next_header: u8,
}

/// Verifies and opens an ESP packet. Who calls it [counts](Association::count) it, if it is not an error.
///
/// # Errors
/// [`OpenError`]. Before the ICV is verified, nothing of the association is changed.
pub(crate) fn open(association: &mut Association, esp: &mut [u8], now: Instant) -> Result<Opened, OpenError> {
    let parameters = &association.parameters;
    let Transform::Esp(transform) = &parameters.transform else { return Err(OpenError::Association) };
    if esp.first_chunk() != Some(&parameters.spi.0.to_be_bytes()) {
        return Err(OpenError::Association);
    }
    if association.age(now) == Age::Hard {
        return Err(OpenError::Expired);
    }
    let front = transform.front();
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
    let hidden = esp.get(front..front + hidden).ok_or(OpenError::Length)?;
    let opened = read_trailer(hidden, transform.checks_padding());
    association.accept_sequence(sequence);
    let Ok((length, next_header)) = opened else {
        association.count(0, now);
        return Err(OpenError::Padding);
    };
    Ok(Opened { payload: front..front + length, next_header })
}

/// The largest payload that fits `room` bytes from SPI to ICV.
pub(crate) fn largest_payload(transform: &EspTransform, room: usize) -> usize {
    let hidden = room.saturating_sub(transform.front() + transform.icv_length());
    (hidden - hidden % transform.alignment()).saturating_sub(2)
}

/// Bytes of padding so that payload, padding and the two bytes of the trailer are a multiple of the alignment.
fn padding(transform: &EspTransform, payload_length: usize) -> usize {
    (payload_length + 2).next_multiple_of(transform.alignment()) - (payload_length + 2)
}

/// The length of the payload before padding and trailer, and its type.
fn read_trailer(hidden: &[u8], checks_padding: bool) -> Result<(usize, u8), OpenError> {
    let (&next_header, rest) = hidden.split_last().ok_or(OpenError::Padding)?;
    let (&padding, rest) = rest.split_last().ok_or(OpenError::Padding)?;
    let length = rest.len().checked_sub(usize::from(padding)).ok_or(OpenError::Padding)?;
    let padding = rest.get(length..).unwrap_or_default();
    if checks_padding && !padding.iter().copied().eq((1..=u8::MAX).take(padding.len())) {
        return Err(OpenError::Padding);
    }
    Ok((length, next_header))
}

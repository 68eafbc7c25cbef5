//! A packet in a caller's buffer, with room before and behind it, so that headers come and go without a copy of the
//! payload: what moves is the headers in front of the place, never what is behind it.

use std::ops::Range;

/// The buffer has not the room that the headers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the buffer has too little room around the packet")]
pub struct NoRoom;

/// A packet, and the room around it.
#[derive(Debug)]
pub struct PacketBuffer<'a> {
    buffer: &'a mut [u8],
    start: usize,
    end: usize,
}

impl<'a> PacketBuffer<'a> {
    /// The packet that is at `range` of `buffer`; `None` when that is not inside.
    pub fn new(buffer: &'a mut [u8], range: Range<usize>) -> Option<Self> {
        buffer.get(range.clone())?;
        Some(Self { buffer, start: range.start, end: range.end })
    }

    /// The packet.
    pub fn packet(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The packet, to be changed.
    pub fn packet_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Where the packet is in the buffer.
    pub fn range(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Bytes of the packet.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Free bytes before the packet.
    pub fn headroom(&self) -> usize {
        self.start
    }

    /// Free bytes behind the packet.
    pub fn tailroom(&self) -> usize {
        self.buffer.len() - self.end
    }

    /// Puts `length` bytes before byte `at` of the packet, of any content, by moving what is in front.
    pub(crate) fn open_gap(&mut self, at: usize, length: usize) -> Result<(), NoRoom> {
        if length > self.start || at > self.len() {
            return Err(NoRoom);
        }
        self.buffer.copy_within(self.start..self.start + at, self.start - length);
        self.start -= length;
        Ok(())
    }

    /// Takes away `length` bytes from byte `at` of the packet on, by moving what is in front. More than there are: all.
    pub(crate) fn close_gap(&mut self, at: usize, length: usize) {
        let at = at.min(self.len());
        let length = length.min(self.len() - at);
        self.buffer.copy_within(self.start..self.start + at, self.start + length);
        self.start += length;
    }

    /// Puts `length` bytes behind the packet, of any content.
    pub(crate) fn extend(&mut self, length: usize) -> Result<(), NoRoom> {
        if length > self.tailroom() {
            return Err(NoRoom);
        }
        self.end += length;
        Ok(())
    }

    /// Takes away what is behind the first `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.end = self.end.min(self.start.saturating_add(length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_opens_and_closes_and_leaves_the_payload_where_it_is() {
        let mut buffer = *b"....headpayload..";
        let mut packet = PacketBuffer::new(&mut buffer, 4..15).unwrap();
        packet.open_gap(4, 3).unwrap();
        packet.packet_mut()[4..7].copy_from_slice(b"new");
        packet.extend(2).unwrap();
        assert_eq!((packet.packet(), packet.range()), (&b"headnewpayload.."[..], 1..17));
        packet.truncate(14);
        packet.close_gap(4, 3);
        assert_eq!((packet.packet(), packet.range()), (&b"headpayload"[..], 4..15));
        assert_eq!(packet.open_gap(0, 5), Err(NoRoom));
        assert_eq!(packet.extend(3), Err(NoRoom));
        packet.close_gap(8, 100);
        assert_eq!(packet.packet(), b"headpayl");
        assert!(PacketBuffer::new(&mut buffer, 4..18).is_none());
    }
}

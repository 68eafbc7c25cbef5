//! The scoreboard (RFC 6675): what was sent and not acknowledged, in order, and what is known of each piece.
//!
//! A piece is what left in one packet, a GSO packet counting as one; it is split where an acknowledgement, a SACK block
//! or a retransmission ends inside of it. Neighbors that were both selectively acknowledged become one.

use std::collections::VecDeque;
use std::time::Instant;

use super::sequence::SequenceNumber;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    /// Taken to be in the network or at the receiver.
    InFlight,
    /// Taken to be lost, to be sent again.
    Lost,
    /// Selectively acknowledged.
    Sacked,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    pub(super) start: SequenceNumber,
    pub(super) len: u32,
    pub(super) status: Status,
    pub(super) retransmitted: bool,
    /// When it was sent last.
    pub(super) sent_at: Instant,
}

impl Sent {
    pub(super) fn end(&self) -> SequenceNumber {
        self.start + self.len as usize
    }

    fn len(&self) -> usize {
        self.len as usize
    }
}

/// Pieces kept at most, where each byte is sent for itself, or a receiver SACKs each second one: 150 KB. So many GSO packets
/// are 256 MB.
const MAX_PIECES: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Scoreboard {
    pieces: VecDeque<Sent>,
    /// Bytes of the pieces of each status; those in flight are RFC 6675's pipe.
    in_flight: usize,
    lost: usize,
    sacked: usize,
}

impl Scoreboard {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether nothing new should be sent until some is acknowledged.
    pub(super) fn is_full(&self) -> bool {
        self.pieces.len() >= MAX_PIECES
    }

    pub(super) fn heap(&self) -> usize {
        self.pieces.capacity() * size_of::<Sent>()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn lost(&self) -> usize {
        self.lost
    }

    pub(super) fn sacked(&self) -> usize {
        self.sacked
    }

    /// New data or FIN was sent.
    pub(super) fn push(&mut self, start: SequenceNumber, len: usize, now: Instant) {
        self.in_flight += len;
        let status = Status::InFlight;
        self.pieces.push_back(Sent { start, len: len as u32, status, retransmitted: false, sent_at: now });
    }

    /// Everything before `ack` arrived. Hands over each piece that this acknowledges, also if it was already SACKed.
    pub(super) fn acknowledge(&mut self, ack: SequenceNumber, mut acknowledged: impl FnMut(&Sent)) {
        while let Some(front) = self.pieces.front_mut() {
            if front.start >= ack {
                return;
            }
            let mut part = *front;
            if front.end() <= ack {
                self.pieces.pop_front();
            } else {
                part.len = ack.since(front.start) as u32;
                front.start = ack;
                front.len -= part.len;
            }
            *self.counter(part.status) -= part.len();
            acknowledged(&part);
        }
    }

    /// Gives the memory back, if there is nothing in it.
    pub(super) fn release(&mut self) {
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
    }

    /// The receiver has `start..end`. Hands over each piece that this is news of.
    ///
    /// Where there are [`MAX_PIECES`] already, only whole ones count.
    pub(super) fn sack(&mut self, start: SequenceNumber, end: SequenceNumber, mut sacked: impl FnMut(&Sent)) {
        let mut index = self.pieces.partition_point(|piece| piece.end() <= start);
        while let Some(piece) = self.pieces.get(index).copied()
            && piece.start < end
        {
            if piece.status == Status::Sacked {
                index += 1;
                continue;
            }
            let first = start.since(piece.start);
            let last = end.since(piece.start).min(piece.len());
            if last - first < piece.len() && self.is_full() {
                index += 1;
                continue;
            }
            self.split(index, last);
            index += usize::from(self.split(index, first));
            self.set_status(index, Status::Sacked);
            sacked(&self.pieces[index]);
            index = self.merge(index) + 1;
        }
    }

    /// Marks pieces that are in flight as lost, if `is_lost` says so. Returns how many bytes were marked.
    pub(super) fn mark_lost(&mut self, mut is_lost: impl FnMut(&Sent) -> bool) -> usize {
        self.mark_lost_as_far_as(|piece| Some(is_lost(piece)))
    }

    /// The same, up to the first piece that it says nothing of.
    pub(super) fn mark_lost_as_far_as(&mut self, mut is_lost: impl FnMut(&Sent) -> Option<bool>) -> usize {
        let before = self.lost;
        for piece in self.pieces.iter_mut().filter(|piece| piece.status == Status::InFlight) {
            let Some(is_lost) = is_lost(piece) else { break };
            if is_lost {
                piece.status = Status::Lost;
                self.in_flight -= piece.len();
                self.lost += piece.len();
            }
        }
        self.lost - before
    }

    /// Marks the first `len` bytes as lost, if they are in flight. Returns how many were marked.
    pub(super) fn mark_front_lost(&mut self, len: usize) -> usize {
        let Some(front) = self.pieces.front().filter(|piece| piece.status == Status::InFlight) else {
            return 0;
        };
        let len = len.min(front.len());
        self.split(0, len);
        self.set_status(0, Status::Lost);
        len
    }

    /// Takes what is marked as lost, and was not sent again, to be in flight after all.
    pub(super) fn unmark_lost(&mut self) {
        for piece in self.pieces.iter_mut().filter(|piece| piece.status == Status::Lost) {
            piece.status = Status::InFlight;
        }
        self.in_flight += std::mem::take(&mut self.lost);
    }

    /// The receiver is no longer believed to have what it SACKed (RFC 2018 §8).
    pub(super) fn forget_sacks(&mut self) {
        for piece in self.pieces.iter_mut().filter(|piece| piece.status == Status::Sacked) {
            piece.status = Status::InFlight;
        }
        self.in_flight += std::mem::take(&mut self.sacked);
    }

    /// The first piece that is to be sent again.
    pub(super) fn first_lost(&self) -> Option<&Sent> {
        if self.lost == 0 {
            return None;
        }
        self.pieces.iter().find(|piece| piece.status == Status::Lost)
    }

    /// Whether the receiver has what begins there, behind a gap.
    pub(super) fn is_sacked(&self, start: SequenceNumber) -> bool {
        self.status_at(start) == Some(Status::Sacked)
    }

    /// Whether what begins there is to be sent again.
    pub(super) fn is_lost(&self, start: SequenceNumber) -> bool {
        self.status_at(start) == Some(Status::Lost)
    }

    fn status_at(&self, at: SequenceNumber) -> Option<Status> {
        let index = self.pieces.partition_point(|piece| piece.end() <= at);
        self.pieces.get(index).filter(|piece| piece.start <= at).map(|piece| piece.status)
    }

    pub(super) fn first(&self) -> Option<&Sent> {
        self.pieces.front()
    }

    /// The last piece, if it is not SACKed.
    pub(super) fn last_unsacked(&self) -> Option<&Sent> {
        self.pieces.iter().rev().find(|piece| piece.status != Status::Sacked)
    }

    /// `len` bytes at `start` are sent again, all of one piece. Returns whether they had been before.
    pub(super) fn retransmit(&mut self, start: SequenceNumber, len: usize, now: Instant) -> bool {
        let mut index = self.pieces.partition_point(|piece| piece.end() <= start);
        let Some(piece) = self.pieces.get(index) else { return false };
        let offset = start.since(piece.start);
        index += usize::from(self.split(index, offset));
        self.split(index, len);
        self.set_status(index, Status::InFlight);
        let Some(piece) = self.pieces.get_mut(index) else { return false };
        piece.sent_at = now;
        std::mem::replace(&mut piece.retransmitted, true)
    }

    fn counter(&mut self, status: Status) -> &mut usize {
        match status {
            Status::InFlight => &mut self.in_flight,
            Status::Lost => &mut self.lost,
            Status::Sacked => &mut self.sacked,
        }
    }

    fn set_status(&mut self, index: usize, status: Status) {
        let Some(piece) = self.pieces.get_mut(index) else { return };
        let (old, len) = (std::mem::replace(&mut piece.status, status), piece.len());
        *self.counter(old) -= len;
        *self.counter(status) += len;
    }

    /// Makes two pieces of one, the first `len` long. `false` if there is nothing to split.
    fn split(&mut self, index: usize, len: usize) -> bool {
        let Some(piece) = self.pieces.get_mut(index) else { return false };
        if len == 0 || len >= piece.len() {
            return false;
        }
        let rest = Sent { start: piece.start + len, len: piece.len - len as u32, ..*piece };
        piece.len = len as u32;
        self.pieces.insert(index + 1, rest);
        true
    }

    /// Joins a SACKed piece with SACKed neighbors; returns where it is then.
    fn merge(&mut self, index: usize) -> usize {
        let sacked = |piece: Option<&Sent>| piece.is_some_and(|piece| piece.status == Status::Sacked);
        if sacked(self.pieces.get(index + 1))
            && let Some(next) = self.pieces.remove(index + 1)
        {
            self.pieces[index].len += next.len;
        }
        if index > 0
            && sacked(self.pieces.get(index - 1))
            && let Some(this) = self.pieces.remove(index)
        {
            self.pieces[index - 1].len += this.len;
            return index - 1;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn statuses(board: &Scoreboard) -> Vec<(u32, u32, Status)> {
        board.pieces.iter().map(|piece| (piece.start.0, piece.len, piece.status)).collect()
    }

    #[test]
    fn a_gso_packet_is_split_where_sack_blocks_end() {
        use Status::{InFlight, Lost, Sacked};
        let now = Instant::now();
        let mut board = Scoreboard::default();
        board.push(SequenceNumber(0), 1000, now);
        let mut news = Vec::new();
        board.sack(SequenceNumber(200), SequenceNumber(300), |piece| news.push(piece.start.0));
        board.sack(SequenceNumber(300), SequenceNumber(450), |piece| news.push(piece.start.0));
        assert_eq!(news, [200, 300]);
        assert_eq!(statuses(&board), [(0, 200, InFlight), (200, 250, Sacked), (450, 550, InFlight)]);
        assert_eq!(board.mark_lost(|piece| piece.start.0 < 200), 200);
        board.retransmit(SequenceNumber(0), 100, now);
        assert_eq!(
            statuses(&board),
            [(0, 100, InFlight), (100, 100, Lost), (200, 250, Sacked), (450, 550, InFlight)]
        );
        let mut acknowledged = 0;
        board.acknowledge(SequenceNumber(500), |piece| acknowledged += piece.len);
        assert_eq!((acknowledged, board.in_flight(), board.lost(), board.sacked()), (500, 500, 0, 0));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_pieces(
            base: u32, steps in proptest::collection::vec((0u8..7, 0usize..5000, 0usize..3000), 1..100)
        ) {
            let now = Instant::now();
            let (mut board, mut una, mut next) =
                (Scoreboard::default(), SequenceNumber(base), SequenceNumber(base));
            for (what, a, b) in steps {
                let at = (una + a).min(next);
                match what {
                    0 | 1 => { board.push(next, b + 1, now); next += b + 1; }
                    2 => { board.acknowledge(at, |_| {}); una = una.max(at); }
                    3 => board.sack(at, (at + b).min(next), |_| {}),
                    4 => { board.mark_lost(|piece| piece.start < at); }
                    5 => {
                        let lost = board.first_lost().map(|piece| (piece.start, piece.len));
                        if let Some((start, len)) = lost { board.retransmit(start, (len as usize).min(b + 1), now); }
                    }
                    _ => { board.mark_front_lost(b); }
                }
                let sum = |status| board.pieces.iter().filter(|p| p.status == status).map(Sent::len).sum::<usize>();
                prop_assert_eq!(board.in_flight, sum(Status::InFlight));
                prop_assert_eq!(board.lost, sum(Status::Lost));
                prop_assert_eq!(board.sacked, sum(Status::Sacked));
                let mut end = una;
                for piece in &board.pieces {
                    prop_assert_eq!(piece.start, end);
                    prop_assert!(piece.len > 0);
                    end = piece.end();
                }
                prop_assert_eq!(end, next);
            }
        }
    }
}

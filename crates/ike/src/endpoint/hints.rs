//! Hints that an end has lost its memory: those that this end gives, and what becomes of those that it is given.
//!
//! This file and `endpoint` need each other: it is a part of what an endpoint does.

use std::time::Instant;

use super::Endpoint;
use crate::child::Child;
use crate::drops::DropReason;
use crate::event::{EndReason, Path};
use crate::hint;
use crate::initiator::Attempt;
use crate::message::Message;
use crate::numbers::{IkeSpi, NotifyType, Spi};
use crate::random::Random;
use crate::responder::stateless_answer;
use crate::sa::IkeSa;
use crate::table::Entry;

impl<R: Random> Endpoint<R> {
    /// Ends an IKE SA at this end alone, without a word: the other end has lost its memory, and another one is there.
    pub fn abandon(&mut self, now: Instant, ike: IkeSpi) {
        self.with_entry(now, ike, |mut entry, context| {
            if let Entry::Established(sa) = &mut entry {
                sa.end(EndReason::Replaced, context);
            }
            Some(entry)
        });
    }

    /// Whether the other end does not answer, so that it may have lost its memory: [`Event::Silent`] was told of it, and
    /// nothing has come since.
    pub fn is_silent(&self, ike: IkeSpi) -> bool {
        self.table.established(ike).is_some_and(IkeSa::is_silent)
    }

    /// Says that a packet of ESP or AH has come, of so many bytes and with an SPI that is of no child. The other end is told,
    /// as it may have outlived this one's memory (RFC 7296 §1.5); so many in a second at most ([`HINTS_PER_SECOND`]).
    pub fn saw_unknown_spi(&mut self, now: Instant, path: Path, spi: Spi, length: usize) {
        if let Some(message) = hint::unknown_spi(spi, length).filter(|_| self.hints_sent.take(now)) {
            self.surroundings.out.send(path, &message);
        }
    }

    /// A request of an IKE SA that is not there: the other end is told, unless that would be longer than what it has sent, or
    /// too many were told in this second.
    pub(super) fn answer_unknown(&mut self, now: Instant, path: Path, message: &Message<'_>) {
        self.surroundings.out.drops.count(DropReason::UnknownSpi);
        let header = message.header();
        let is_worth_it = !header.is_response && message.bytes().len() >= hint::UNKNOWN_IKE_SPI_LENGTH;
        if is_worth_it && self.hints_sent.take(now) {
            let mut context = self.surroundings.context(now, &self.table.census);
            stateless_answer(&header, path, NotifyType::INVALID_IKE_SPI, &[], &mut context);
        }
    }

    /// Somebody says that the other end has no child of this SPI, from where that end is: it is asked whether it is there.
    pub(super) fn take_hint(&mut self, now: Instant, path: Path, spi: Spi) {
        self.surroundings.out.drops.count(DropReason::Hint);
        if !self.hints_taken.take(now) {
            return;
        }
        let is_meant = |sa: &&IkeSa| {
            let of_it = |child: &Child| child.outbound_spi == spi;
            sa.path.remote.ip() == path.remote.ip() && sa.is_live() && sa.children.iter().any(of_it)
        };
        let Some((ike, peer)) = self.table.all_established().find(is_meant).map(|sa| (sa.spi(), sa.peer))
        else {
            return;
        };
        let mut waits_for_another = false;
        self.with_entry(now, ike, |mut entry, context| {
            if let Entry::Established(sa) = &mut entry {
                sa.doubt_by_hint(context);
                waits_for_another = sa.is_silent();
            }
            Some(entry)
        });
        // The other end is there again, as it seems: an attempt need not wait for long.
        let of_peer = |attempt: &Attempt| waits_for_another && attempt.peer == peer;
        for ike in self.table.attempts(of_peer) {
            self.with_entry(now, ike, |mut entry, _| {
                if let Entry::Attempt(attempt) = &mut entry {
                    attempt.hurry(now);
                }
                Some(entry)
            });
        }
    }
}

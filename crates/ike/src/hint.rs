//! Notifies outside of an IKE SA that say that an SPI is unknown (RFC 7296 §1.5, §2.4): hints that the other end has lost its
//! memory, which anybody can forge. They make this end ask, and nothing else.

use std::time::{Duration, Instant};

use crate::child::notifies;
use crate::message::builder::Builder;
use crate::message::{HEADER, Header, Message};
use crate::numbers::{ExchangeType, IkeSpi, MessageId, NotifyType, Spi};
use crate::output::NON_ESP_MARKER;

/// Hints that are sent in a second, and, apart from these, that are looked at: whoever sends rubbish makes this end do no
/// more than that.
pub const HINTS_PER_SECOND: u32 = 20;
/// Header and notify, without data.
pub(crate) const UNKNOWN_IKE_SPI_LENGTH: usize = HEADER + 8;
const UNKNOWN_SPI_LENGTH: usize = UNKNOWN_IKE_SPI_LENGTH + 4;

/// How many hints are left of a second.
#[derive(Debug, Default)]
pub(crate) struct Budget {
    second: Option<Instant>,
    used: u32,
}

impl Budget {
    /// Whether there is one left, which is used then.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.second.is_none_or(|begun| now.saturating_duration_since(begun) >= Duration::from_secs(1)) {
            (self.second, self.used) = (Some(now), 0);
        }
        self.used = self.used.saturating_add(1);
        self.used <= HINTS_PER_SECOND
    }
}

/// What is said of a packet of ESP or AH of this length with an SPI that is of no child; nothing if that would be longer
/// than what it is about.
pub(crate) fn unknown_spi(spi: Spi, length: usize) -> Option<Vec<u8>> {
    let mut payloads = Builder::new();
    payloads.notify(NotifyType::INVALID_SPI, &spi.0.to_be_bytes());
    // §1.5: no SPI of IKE would mean anything to the other end, and it is an initiator who sends this.
    let header = Header {
        initiator_spi: IkeSpi::ZERO,
        responder_spi: IkeSpi::ZERO,
        exchange: ExchangeType::INFORMATIONAL,
        from_initiator: true,
        is_response: false,
        message_id: MessageId::ZERO,
    };
    (length >= UNKNOWN_SPI_LENGTH + NON_ESP_MARKER.len()).then(|| payloads.finish(&header))
}

/// The SPI that somebody says to know no child of.
pub(crate) fn spi_of(message: &Message<'_>) -> Option<Spi> {
    let header = message.header();
    let outside = header.responder_spi == IkeSpi::ZERO || header.initiator_spi == IkeSpi::ZERO;
    if header.exchange != ExchangeType::INFORMATIONAL || header.is_response || !outside {
        return None;
    }
    let notify = notifies(message.payloads()).find(|notify| notify.kind == NotifyType::INVALID_SPI)?;
    Some(Spi(u32::from_be_bytes(notify.data.try_into().ok()?)))
}

/// Whether somebody says in answer to a request that the IKE SA is unknown.
pub(crate) fn is_of_unknown_ike_spi(message: &Message<'_>) -> bool {
    notifies(message.payloads()).any(|notify| notify.kind == NotifyType::INVALID_IKE_SPI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_comes_back_as_it_was_built_and_is_not_longer_than_what_it_is_about() {
        let built = unknown_spi(Spi(0x1234_5678), 60).unwrap();
        assert_eq!(built.len(), UNKNOWN_SPI_LENGTH);
        assert_eq!(spi_of(&Message::parse(&built).unwrap()), Some(Spi(0x1234_5678)));
        assert_eq!(unknown_spi(Spi(1), UNKNOWN_SPI_LENGTH + 3), None);
    }

    #[test]
    fn a_second_has_so_many_hints_and_the_next_one_as_many_again() {
        let (now, mut budget) = (Instant::now(), Budget::default());
        let taken = |budget: &mut Budget, now| (0..1000).filter(|_| budget.take(now)).count();
        assert_eq!(taken(&mut budget, now), HINTS_PER_SECOND as usize);
        assert_eq!(taken(&mut budget, now + Duration::from_millis(999)), 0);
        assert_eq!(taken(&mut budget, now + Duration::from_secs(1)), HINTS_PER_SECOND as usize);
    }
}

//! Who offers a new session key, and when both ends agree on it (docs/classic.md section 9.1).
//!
//! The change itself, which follows an agreement, is [`stream`](crate::stream)'s.

use std::net::Ipv6Addr;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::Rng;

use crate::drops::DropReason;
use crate::keys::{SESSION_KEY_LEN, SessionKey};
use crate::packet::Offer;
use crate::profile::KeyExchange;
use crate::time::UnixTime;

/// A change is at most this far ahead, in seconds: the longest interval of key exchanges, and a day for clocks.
const FARTHEST_CHANGE: u64 = 32 * 86_400;
/// Eighths of the time between two exchanges: the first offer, and the change.
const FIRST_OFFER: u64 = 4;
const CHANGE: u64 = 8;

/// A packet of the exchange, without payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyMessage {
    /// With option 204: an offer, or the acknowledgement of one.
    Offer(Offer),
    /// Flag alone.
    Flag,
}

/// How far the exchange has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Idle,
    /// This end offers.
    Offered(Offer),
    /// The peer acknowledged this end's offer.
    Agreed(Offer),
    /// This end acknowledged the peer's offer.
    Accepted(Offer),
    /// And the peer knows.
    Confirmed(Offer),
}

pub(crate) struct Exchange {
    /// True addresses of this end and of the peer: the lower one wins if both offer for the same time.
    addresses: (Ipv6Addr, Ipv6Addr),
    timing: Option<KeyExchange>,
    state: State,
    /// When this wait began, and how many seconds it is to the next change.
    since: UnixTime,
    wait: u32,
    /// Eighths of the wait after which the next offer is due.
    next_offer: u64,
}

impl Exchange {
    pub(crate) fn new(
        addresses: (Ipv6Addr, Ipv6Addr),
        timing: Option<KeyExchange>,
        now: UnixTime,
        rng: &mut ChaCha20Rng,
    ) -> Self {
        let mut exchange =
            Exchange { addresses, timing, state: State::Idle, since: now, wait: 0, next_offer: FIRST_OFFER };
        exchange.restart(now, rng);
        exchange
    }

    /// Begins to wait for the next exchange.
    pub(crate) fn restart(&mut self, now: UnixTime, rng: &mut ChaCha20Rng) {
        self.state = State::Idle;
        self.since = now;
        self.next_offer = FIRST_OFFER;
        if let Some(KeyExchange { interval, window }) = self.timing {
            let offset = rng.next_u64() % (2 * u64::from(window) + 1);
            self.wait = interval.saturating_sub(window).saturating_add(offset as u32);
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// The flag of packets under the session key in use.
    pub(crate) fn flag(&self) -> bool {
        matches!(self.state, State::Offered(_) | State::Accepted(_))
    }

    /// The key that both ends are about to change to: offer, and whether the peer is known to have it.
    pub(crate) fn agreed(&self) -> Option<(&Offer, bool)> {
        match &self.state {
            State::Agreed(offer) | State::Confirmed(offer) => Some((offer, true)),
            State::Accepted(offer) => Some((offer, false)),
            State::Idle | State::Offered(_) => None,
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub(crate) fn deadline(&self) -> UnixTime {
        match (&self.state, self.timing) {
            (State::Idle, Some(_)) | (State::Offered(_), _) => self.at(self.next_offer),
            _ => UnixTime::NEVER,
        }
    }

    fn at(&self, eighths: u64) -> UnixTime {
        UnixTime::from_millis(self.since.millis() + u64::from(self.wait) * 1000 * eighths / CHANGE)
    }

    /// Offers, repeats an offer, or gives one up.
    pub(crate) fn handle_timeout(&mut self, now: UnixTime, rng: &mut ChaCha20Rng) -> Option<KeyMessage> {
        if now < self.deadline() {
            return None;
        }
        let change = self.since.secs() + u64::from(self.wait);
        if self.next_offer >= CHANGE || now.secs() >= change {
            self.restart(now, rng);
            return None;
        }
        while self.next_offer < CHANGE && self.at(self.next_offer) <= now {
            self.next_offer += 1;
        }
        if self.state == State::Idle {
            let mut key = [0; SESSION_KEY_LEN];
            rng.fill_bytes(&mut key);
            let key = SessionKey::from_bytes(key);
            self.state = State::Offered(Offer { change: u32::try_from(change).ok()?, key });
        }
        match &self.state {
            State::Offered(offer) => Some(KeyMessage::Offer(offer.clone())),
            _ => None,
        }
    }

    /// Takes an option 204 from the peer: what to answer.
    ///
    /// # Errors
    /// Why it is dropped, and what to say nevertheless.
    pub(crate) fn receive_offer(
        &mut self,
        offer: Offer,
        in_use: &SessionKey,
        now: UnixTime,
    ) -> Result<Option<KeyMessage>, (DropReason, Option<KeyMessage>)> {
        match &self.state {
            State::Offered(own) | State::Agreed(own) if *own == offer => {
                self.state = State::Agreed(offer);
                return Ok(Some(KeyMessage::Flag));
            }
            State::Accepted(accepted) | State::Confirmed(accepted) if *accepted == offer => {
                return Ok(Some(KeyMessage::Offer(offer)));
            }
            _ => {}
        }
        let change = u64::from(offer.change);
        let acceptable = now.secs() < change && change <= now.secs() + FARTHEST_CHANGE;
        if !acceptable || offer.key == *in_use {
            return Err((DropReason::OfferRefused, None));
        }
        let (own_address, peer_address) = self.addresses;
        match &self.state {
            State::Offered(own) | State::Agreed(own)
                if (own.change, own_address) < (offer.change, peer_address) =>
            {
                let again = matches!(self.state, State::Offered(_)).then(|| KeyMessage::Offer(own.clone()));
                Err((DropReason::OfferCollision, again))
            }
            _ => {
                self.state = State::Accepted(offer.clone());
                Ok(Some(KeyMessage::Offer(offer)))
            }
        }
    }

    /// Takes the flag of any packet from the peer.
    pub(crate) fn receive_flag(&mut self, flag: bool) {
        if let State::Accepted(offer) = &self.state
            && !flag
        {
            self.state = State::Confirmed(offer.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::rand_core::SeedableRng;

    struct End {
        exchange: Exchange,
        rng: ChaCha20Rng,
    }

    const IN_USE: SessionKey = SessionKey::from_bytes([0; SESSION_KEY_LEN]);

    fn end(own: u16, peer: u16, interval: u32) -> End {
        let address = |n| Ipv6Addr::new(0x2001, 0xdb8, n, 0, 0, 0, 0, 1);
        let mut rng = ChaCha20Rng::from_seed([own as u8; 32]);
        let timing = Some(KeyExchange { interval, window: 0 });
        let now = UnixTime::from_secs(1000);
        End { exchange: Exchange::new((address(own), address(peer)), timing, now, &mut rng), rng }
    }

    impl End {
        fn timeout(&mut self, seconds: u64) -> Option<KeyMessage> {
            self.exchange.handle_timeout(UnixTime::from_secs(seconds), &mut self.rng)
        }

        fn hear(&mut self, say: Option<KeyMessage>, seconds: u64) -> Option<KeyMessage> {
            let Some(KeyMessage::Offer(offer)) = say else { panic!("nothing was offered") };
            match self.exchange.receive_offer(offer, &IN_USE, UnixTime::from_secs(seconds)) {
                Ok(answer) | Err((_, answer)) => answer,
            }
        }
    }

    #[test]
    fn an_offer_is_acknowledged_and_confirmed() {
        let (mut a, mut b) = (end(1, 2, 80), end(2, 1, 96));
        let offer = a.timeout(1040);
        let acknowledgement = b.hear(offer.clone(), 1040);
        assert!(b.exchange.flag());
        assert_eq!(
            (&acknowledgement, a.hear(acknowledgement.clone(), 1041)),
            (&offer, Some(KeyMessage::Flag))
        );
        assert!(!a.exchange.flag());
        b.exchange.receive_flag(false);
        assert!(!b.exchange.flag());
        let Some(KeyMessage::Offer(offer)) = offer else { panic!() };
        assert_eq!(offer.change, 1080);
        assert_eq!((a.exchange.agreed(), b.exchange.agreed()), (Some((&offer, true)), Some((&offer, true))));
        // Its own wait does not make the responder start.
        assert_eq!(b.timeout(1090), None);
    }

    #[test]
    fn an_offer_is_made_four_times_and_then_given_up() {
        let mut a = end(1, 2, 80);
        let first = a.timeout(1040);
        for repeated in [1050, 1060, 1070] {
            assert_eq!((a.timeout(repeated - 1), a.timeout(repeated)), (None, first.clone()));
        }
        assert_eq!(a.timeout(1080), None);
        assert_eq!(*a.exchange.state(), State::Idle);
        assert_eq!(a.exchange.deadline(), UnixTime::from_secs(1120));
    }

    #[test]
    fn of_two_that_start_together_the_earlier_change_wins() {
        let (mut a, mut b) = (end(1, 2, 80), end(2, 1, 80));
        let (of_a, of_b) = (a.timeout(1040), b.timeout(1040));
        // The same time: the lower address wins, and says so again.
        assert_eq!(a.hear(of_b, 1041), of_a);
        assert_eq!(b.hear(of_a.clone(), 1041), of_a);
        assert!(matches!(b.exchange.state(), State::Accepted(_)));

        let (mut a, mut b) = (end(1, 2, 82), end(2, 1, 80));
        let (of_a, of_b) = (a.timeout(1041), b.timeout(1041));
        assert_eq!(b.hear(of_a, 1042), of_b);
        assert_eq!(a.hear(of_b.clone(), 1042), of_b);
    }

    #[test]
    fn what_cannot_be_accepted_is_refused() {
        let mut a = end(1, 2, 80);
        let key = SessionKey::from_bytes([5; SESSION_KEY_LEN]);
        for (change, key) in [(1000, &key), (999, &key), (1000 + 33 * 86_400, &key), (1080, &IN_USE)] {
            let offer = Offer { change, key: key.clone() };
            let answer = a.exchange.receive_offer(offer, &IN_USE, UnixTime::from_secs(1000));
            assert_eq!(answer, Err((DropReason::OfferRefused, None)));
        }
        assert_eq!(*a.exchange.state(), State::Idle);
    }

    #[test]
    fn a_damaged_acknowledgement_is_none() {
        let mut a = end(1, 2, 80);
        let Some(KeyMessage::Offer(mut offer)) = a.timeout(1040) else { panic!() };
        offer.key = SessionKey::from_bytes([5; SESSION_KEY_LEN]);
        a.hear(Some(KeyMessage::Offer(offer)), 1041);
        assert!(matches!(a.exchange.state(), State::Offered(_)));
    }

    proptest! {
        /// Messages lost, repeated and late in any way: both ends never agree on different keys for the same time.
        #[test]
        fn no_two_keys_are_agreed(
            intervals in (60u32..100, 60u32..100),
            events in prop::collection::vec((0usize..4, any::<prop::sample::Index>(), 0u64..8), 1..60),
        ) {
            let mut ends = [end(1, 2, intervals.0), end(2, 1, intervals.1)];
            let mut sent: [Vec<(KeyMessage, bool)>; 2] = [Vec::new(), Vec::new()];
            let mut now = 1030;
            for (event, which, later) in events {
                let (node, peer) = (event % 2, 1 - event % 2);
                let say = if event < 2 {
                    now += later;
                    ends[node].timeout(now)
                } else if sent[peer].is_empty() {
                    None
                } else {
                    let (say, flag) = which.get(&sent[peer]).clone();
                    let exchange = &mut ends[node].exchange;
                    exchange.receive_flag(flag);
                    match say {
                        KeyMessage::Flag => None,
                        KeyMessage::Offer(offer) => {
                            match exchange.receive_offer(offer, &IN_USE, UnixTime::from_secs(now)) {
                                Ok(say) | Err((_, say)) => say,
                            }
                        }
                    }
                };
                if let Some(say) = say {
                    let flag = ends[node].exchange.flag();
                    sent[node].push((say, flag));
                }
                if let (State::Agreed(a), State::Agreed(b)) = (ends[0].exchange.state(), ends[1].exchange.state()) {
                    prop_assert!(false, "both are initiators: {} {}", a.change, b.change);
                }
            }
        }
    }
}

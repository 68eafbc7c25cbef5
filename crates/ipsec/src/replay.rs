//! Sequence numbers: how a sender gives them out (RFC 4303 §3.3.3), and the window in which a receiver takes each once
//! (§3.4.3), with extended sequence numbers (ESN, §2.2.1, appendix A).
//!
//! The window is a ring of 64-bit words (RFC 6479): moving it on clears whole words and shifts nothing. One word is more
//! than the size asks for, so that the word of the highest number can be begun while the window still has its size.

/// A sequence number in full: of an association without ESN the upper half is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// What is sent.
    pub const fn low(self) -> u32 {
        self.0 as u32
    }

    /// What is not sent.
    pub const fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The sender's numbers are used up: the association must be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the association's sequence numbers are used up")]
pub struct SequenceExhausted;

/// Gives out numbers, from 1 on, each once.
#[derive(Debug)]
pub struct SequenceCounter {
    last: u64,
    limit: u64,
}

impl SequenceCounter {
    /// Before the first packet.
    pub const fn new(extended: bool) -> Self {
        Self { last: 0, limit: if extended { u64::MAX } else { u32::MAX as u64 } }
    }

    /// The number that was given out last; 0 if none was.
    pub const fn last(&self) -> SequenceNumber {
        SequenceNumber(self.last)
    }

    /// Another number than all before.
    ///
    /// # Errors
    /// [`SequenceExhausted`] after the last one: it never begins again (RFC 4303 §3.3.3).
    pub fn advance(&mut self) -> Result<SequenceNumber, SequenceExhausted> {
        if self.last == self.limit {
            return Err(SequenceExhausted);
        }
        self.last += 1;
        Ok(SequenceNumber(self.last))
    }

    /// Whether an eighth is left, or less: time for another association.
    pub const fn is_running_out(&self) -> bool {
        self.limit - self.last <= self.limit / 8
    }

    /// Whether none is left.
    pub const fn is_used_up(&self) -> bool {
        self.last == self.limit
    }

    /// As after so many packets more, for tests of what happens near the end.
    #[cfg(test)]
    pub(crate) fn skip(&mut self, numbers: u64) {
        self.last += numbers;
    }
}

/// Why a number is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// It was taken before.
    #[error("the sequence number came before")]
    Replayed,
    /// It is left of the window, or no sender would give it out.
    #[error("the sequence number is left of the window")]
    Old,
}

/// Which numbers were taken.
#[derive(Debug)]
pub struct ReplayWindow {
    words: Box<[u64]>,
    size: u32,
    top: u64,
    extended: bool,
}

impl ReplayWindow {
    /// Packets that overtake each other by less are all taken. More than the 64 of RFC 4303 §3.4.3, since several
    /// processors at a sender, and several queues on the way, reorder by hundreds.
    pub const DEFAULT_SIZE: u32 = 1024;
    /// 8 KiB for each association; far below the 2³¹ that extended sequence numbers could bear (RFC 4303 A2.1).
    pub const MAX_SIZE: u32 = 65_536;
    /// The smallest that RFC 4303 §3.4.3 allows.
    pub const MIN_SIZE: u32 = 32;

    /// A window of `size` numbers, brought between [`MIN_SIZE`](Self::MIN_SIZE) and [`MAX_SIZE`](Self::MAX_SIZE).
    pub fn new(size: u32, extended: bool) -> Self {
        let size = size.clamp(Self::MIN_SIZE, Self::MAX_SIZE);
        let words = size.div_ceil(64) as usize + 1;
        Self { words: vec![0; words].into(), size, top: 0, extended }
    }

    /// Its size.
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The highest number that was taken; 0 if none was.
    pub const fn top(&self) -> SequenceNumber {
        SequenceNumber(self.top)
    }

    /// What number a packet has whose lower half is `low`, if it may be taken. Nothing is changed: that is for
    /// [`accept`](Self::accept), when the packet is known to be genuine.
    ///
    /// # Errors
    /// [`ReplayError`] when it may not.
    pub fn check(&self, low: u32) -> Result<SequenceNumber, ReplayError> {
        let number = if self.extended { self.extend(low).ok_or(ReplayError::Old)? } else { u64::from(low) };
        if number == 0 || self.top.saturating_sub(number) >= u64::from(self.size) {
            return Err(ReplayError::Old);
        }
        if number <= self.top && self.words[self.word(number)] & bit(number) != 0 {
            return Err(ReplayError::Replayed);
        }
        Ok(SequenceNumber(number))
    }

    /// Takes a number that [`check`](Self::check) has returned.
    pub fn accept(&mut self, number: SequenceNumber) {
        let number = number.0;
        if number > self.top {
            let steps = (number / 64 - self.top / 64).min(self.words.len() as u64);
            for step in 0..steps {
                let word = self.word(number - step * 64);
                self.words[word] = 0;
            }
            self.top = number;
        }
        let word = self.word(number);
        self.words[word] |= bit(number);
    }

    /// The number with this lower half that is nearest to the window (RFC 4303 A2.1). `None` if it would be below zero
    /// or beyond the last one.
    fn extend(&self, low: u32) -> Option<u64> {
        let (top_high, top_low) = ((self.top >> 32) as u32, self.top as u32);
        let bottom = top_low.wrapping_sub(self.size - 1);
        let high = if top_low >= self.size - 1 {
            if low >= bottom { top_high } else { top_high.checked_add(1)? }
        } else if low >= bottom {
            top_high.checked_sub(1)?
        } else {
            top_high
        };
        Some(u64::from(high) << 32 | u64::from(low))
    }

    fn word(&self, number: u64) -> usize {
        (number / 64 % self.words.len() as u64) as usize
    }
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn a_sender_never_wraps() {
        let mut counter = SequenceCounter::new(false);
        assert_eq!(counter.advance(), Ok(SequenceNumber(1)));
        counter.skip(u64::from(u32::MAX) - 2);
        assert_eq!(counter.advance(), Ok(SequenceNumber(u64::from(u32::MAX))));
        assert_eq!(counter.advance(), Err(SequenceExhausted));
        assert_eq!(counter.advance(), Err(SequenceExhausted));

        let mut counter = SequenceCounter::new(true);
        counter.skip(u64::from(u32::MAX));
        assert_eq!(counter.advance(), Ok(SequenceNumber(1 << 32)));
        counter.skip(u64::MAX - (1 << 32));
        assert_eq!(counter.advance(), Err(SequenceExhausted));
    }

    #[test]
    fn a_window_without_esn_ends_with_its_last_number() {
        let mut window = ReplayWindow::new(64, false);
        window.accept(window.check(u32::MAX).unwrap());
        assert_eq!(window.check(u32::MAX), Err(ReplayError::Replayed));
        assert_eq!(window.check(0), Err(ReplayError::Old));
        assert_eq!(window.check(1), Err(ReplayError::Old));
        assert_eq!(window.check(u32::MAX - 63), Ok(SequenceNumber(u64::from(u32::MAX) - 63)));
        assert_eq!(window.check(u32::MAX - 64), Err(ReplayError::Old));
    }

    #[test]
    fn esn_crosses_two_to_the_32_and_takes_what_is_late_from_before() {
        let mut window = ReplayWindow::new(1024, true);
        let edge = 1u64 << 32;
        // No peer jumps so far, but a window may be half of the numbers ahead.
        window.accept(SequenceNumber(edge - 10));
        assert_eq!(window.check(5), Ok(SequenceNumber(edge + 5)));
        window.accept(SequenceNumber(edge + 5));
        assert_eq!(window.check((edge - 3) as u32), Ok(SequenceNumber(edge - 3)), "late, from before");
        assert_eq!(window.check((edge - 10) as u32), Err(ReplayError::Replayed));
        assert_eq!(window.check(0), Ok(SequenceNumber(edge)));
        assert_eq!(window.check(5), Err(ReplayError::Replayed));
    }

    #[test]
    fn a_first_packet_far_from_one_is_not_taken_for_one_before_zero() {
        let window = ReplayWindow::new(1024, true);
        assert_eq!(window.check(u32::MAX), Err(ReplayError::Old));
        assert_eq!(window.check(0), Err(ReplayError::Old));
        assert_eq!(window.check(1), Ok(SequenceNumber(1)));
    }

    #[test]
    fn esn_ends_with_its_last_number() {
        let mut window = ReplayWindow::new(1024, true);
        window.accept(SequenceNumber(u64::MAX));
        assert_eq!(window.check(3), Err(ReplayError::Old), "there is no 2⁶⁴ + 3");
        assert_eq!(window.check(u32::MAX - 1), Ok(SequenceNumber(u64::MAX - 1)));
    }

    /// Numbers as a network delivers them: mostly in order, some late, some twice, some after a gap.
    fn arrivals() -> impl Strategy<Value = Vec<i64>> {
        proptest::collection::vec(
            prop_oneof![5 => 0i64..4, 3 => -70i64..70, 1 => -3000i64..3000, 1 => 0i64..300_000],
            1..400,
        )
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_model(
            steps in arrivals(),
            size in prop_oneof![Just(32u32), Just(64), Just(100), Just(1024)],
            start in prop_oneof![Just(0u64), Just((1 << 32) - 200), Just((5 << 32) - 1500)],
        ) {
            let mut window = ReplayWindow::new(size, true);
            let mut taken = HashSet::new();
            let mut top = start;
            if start > 0 {
                window.accept(SequenceNumber(start));
                taken.insert(start);
            }
            for step in steps {
                let Some(number) = top.checked_add_signed(step) else { continue };
                let expected = if number == 0 || number + u64::from(size) <= top {
                    // Below the window the lower half reads as a number far ahead, whose ICV will not fit.
                    None
                } else {
                    Some(!taken.contains(&number))
                };
                let checked = window.check(number as u32);
                match expected {
                    None => prop_assert_ne!(checked, Ok(SequenceNumber(number))),
                    Some(false) => prop_assert_eq!(checked, Err(ReplayError::Replayed)),
                    Some(true) => {
                        prop_assert_eq!(checked, Ok(SequenceNumber(number)));
                        window.accept(SequenceNumber(number));
                        taken.insert(number);
                        top = top.max(number);
                    }
                }
                prop_assert_eq!(window.top().0, top);
            }
        }

        #[test]
        fn without_esn_no_number_is_taken_twice_and_none_left_of_the_window(
            numbers in proptest::collection::vec(prop_oneof![0u32..3000, any::<u32>()], 1..400),
        ) {
            let mut window = ReplayWindow::new(ReplayWindow::DEFAULT_SIZE, false);
            let mut taken = HashSet::new();
            let mut top = 0;
            for low in numbers {
                let old = low == 0 || u64::from(low) + 1024 <= u64::from(top);
                match window.check(low) {
                    Ok(number) => {
                        prop_assert!(!old && taken.insert(low));
                        window.accept(number);
                        top = top.max(low);
                    }
                    Err(ReplayError::Old) => prop_assert!(old),
                    Err(ReplayError::Replayed) => prop_assert!(!old && taken.contains(&low)),
                }
            }
        }
    }
}

//! Proportional rate reduction (RFC 6937): during recovery, sending is clocked by what arrives.

/// Segments that may leave later of what could have been sent at an acknowledgement, but was not, because the receiver's
/// window or the user was in the way. Without a bound they would overflow the queue that has just overflowed.
const MAX_BURST: usize = 10;

/// State of one recovery.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Prr {
    /// RecoverFS: bytes outstanding when it began.
    flight: usize,
    delivered: usize,
    out: usize,
    /// What the last acknowledgement allowed and was not sent.
    unused: usize,
}

impl Prr {
    pub(super) fn new(flight: usize) -> Self {
        Self { flight: flight.max(1), delivered: 0, out: 0, unused: 0 }
    }

    pub(super) fn sent(&mut self, bytes: usize) {
        self.out += bytes;
        self.unused = self.unused.saturating_sub(bytes);
    }

    /// `delivered` bytes have arrived; returns how many may be sent now. `is_good` says that the acknowledgement moved
    /// forward without news of a loss: then it may grow by a segment each (slow start reduction bound), otherwise
    /// not at all (conservative reduction bound), as Linux and RFC 9937 choose.
    pub(super) fn acknowledged(
        &mut self,
        delivered: usize,
        in_flight: usize,
        ssthresh: usize,
        mss: usize,
        is_good: bool,
    ) -> usize {
        self.delivered += delivered;
        self.out += self.unused.saturating_sub(MAX_BURST * mss);
        let mut allowed = if in_flight > ssthresh {
            let share = self.delivered as u128 * ssthresh as u128;
            usize::try_from(share.div_ceil(self.flight as u128))
                .unwrap_or(usize::MAX)
                .saturating_sub(self.out)
        } else {
            let mut limit = self.delivered.saturating_sub(self.out);
            if is_good {
                limit = limit.max(delivered) + mss;
            }
            limit.min(ssthresh - in_flight)
        };
        if self.out == 0 {
            // The first retransmission leaves at once.
            allowed = allowed.max(mss);
        }
        self.unused = allowed;
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: usize = 1000;

    #[test]
    fn rfc_6937_section_3_1_one_lost_of_20_sends_seven_for_ten_delivered() {
        // ssthresh is 70 % of 20 segments, as CUBIC has it.
        let mut prr = Prr::new(20 * MSS);
        let mut in_flight = 19 * MSS - MSS;
        let mut sent = 0;
        for _ in 0..18 {
            let allowed = prr.acknowledged(MSS, in_flight, 14 * MSS, MSS, false) / MSS * MSS;
            prr.sent(allowed);
            in_flight = in_flight + allowed - MSS;
            sent += allowed;
        }
        assert!((12 * MSS..=14 * MSS).contains(&sent), "{sent}");
    }

    #[test]
    fn rfc_6937_section_3_1_below_ssthresh_no_more_is_sent_than_arrives() {
        let mut prr = Prr::new(20 * MSS);
        prr.acknowledged(MSS, 2 * MSS, 14 * MSS, MSS, false);
        prr.sent(MSS);
        assert_eq!(prr.acknowledged(MSS, 2 * MSS, 14 * MSS, MSS, false), MSS);
        assert_eq!(prr.acknowledged(MSS, 2 * MSS, 14 * MSS, MSS, true), 3 * MSS);
    }
}

//! The search for the highest rate at which nothing is lost (RFC 2544, section 26.1): short trials find it, longer ones
//! show that it lasts, because what is too much fills queues for a while before anything is lost.

use lab::Error;

/// Below this the search is given up.
const LEAST: f64 = 500.0;

/// Trials of one search, at most.
const TRIALS: u32 = 14;

/// The search ends when what passes and what fails are this close to each other.
const PRECISION: f64 = 0.06;

/// A sender that reaches less than this part of the rate that was asked for is at its own end.
const KEEPS_UP: f64 = 0.95;

/// A rate that does not last is lowered to this part of it, so often at most.
const STEP_DOWN: f64 = 0.88;
const STEPS_DOWN: u32 = 8;

/// How long a trial is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// For the search.
    Short,
    /// Longer than all queues on the way hold.
    Long,
}

/// One trial's outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Trial {
    /// Datagrams per second that were really sent.
    pub(crate) rate: f64,
    /// Datagrams lost.
    pub(crate) lost: u64,
}

/// What a search found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// The highest rate without loss; 0 if there was none.
    pub(crate) rate: f64,
    /// The sender could go no faster: the true limit is higher.
    pub(crate) limited: bool,
}

/// Searches with trials at rates of its choice, datagrams per second. Begins at `start`, doubles until something is lost,
/// then halves the interval; where an earlier search found something (`near`), it begins close to that. What loses, or is
/// slow to send, gets a second chance, because a busy machine only ever makes things worse. What was found is lowered
/// until it lasts.
pub(crate) fn highest_without_loss(
    start: f64,
    near: Option<f64>,
    mut trial: impl FnMut(f64, Length) -> Result<Trial, Error>,
) -> Result<Found, Error> {
    let found = search(start, near, |rate| trial(rate, Length::Short))?;
    let mut rate = found.rate;
    for _ in 0..=STEPS_DOWN {
        if rate < LEAST {
            break;
        }
        for _ in 0..2 {
            let outcome = trial(rate, Length::Long)?;
            if outcome.lost == 0 {
                let limited = found.limited && rate >= found.rate;
                return Ok(Found { rate: outcome.rate, limited });
            }
        }
        rate *= STEP_DOWN;
    }
    Ok(Found::default())
}

fn search(
    start: f64,
    near: Option<f64>,
    mut trial: impl FnMut(f64) -> Result<Trial, Error>,
) -> Result<Found, Error> {
    let near = near.filter(|rate| *rate > LEAST);
    let (mut rate, mut factor) = near.map_or((start, 2.0), |near| (near, 1.25));
    let (mut passed, mut failed): (Option<f64>, Option<f64>) = (None, None);
    let mut found = Found::default();
    let mut chances = 2;
    for _ in 0..TRIALS {
        let outcome = trial(rate)?;
        let limited = outcome.rate < rate * KEEPS_UP;
        if outcome.lost == 0 && outcome.rate > found.rate {
            found = Found { rate: outcome.rate, limited };
        }
        chances -= 1;
        if (outcome.lost > 0 || limited) && chances > 0 {
            continue;
        }
        if outcome.lost == 0 && limited {
            break;
        }
        if outcome.lost == 0 {
            passed = Some(rate);
        } else {
            // What the sender did not reach was not tried.
            failed = Some(outcome.rate.clamp(passed.unwrap_or(0.0), rate));
        }
        chances = 2;
        rate = match (passed, failed) {
            (None, Some(high)) => high / factor,
            (Some(low), None) => low * factor,
            (Some(low), Some(high)) if high - low > PRECISION * high => f64::midpoint(low, high),
            _ => break,
        };
        // An earlier result that is far off costs a few trials, not all of them.
        factor = (factor * factor).min(2.0);
        if rate < LEAST {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Something that carries so much, behind a sender that manages so much; and how often it was tried.
    fn search(near: Option<f64>, capacity: f64, sender: f64) -> (Found, u32) {
        let mut trials = 0;
        let found = highest_without_loss(20_000.0, near, |rate, length| {
            trials += u32::from(length == Length::Short);
            let rate = rate.min(sender);
            Ok(Trial { rate, lost: u64::from(rate > capacity) })
        });
        (found.expect("no trial fails"), trials)
    }

    #[test]
    fn a_search_near_the_last_result_is_short() {
        let (found, trials) = search(Some(100_000.0), 110_000.0, 1e9);
        assert!((100_000.0..=110_000.0).contains(&found.rate) && !found.limited && trials <= 6, "{trials}");
    }

    #[test]
    fn a_search_near_a_wrong_result_finds_the_limit_all_the_same() {
        for near in [5_000.0, 1_000_000.0] {
            let (found, _) = search(Some(near), 100_000.0, 1e9);
            assert!((85_000.0..=100_000.0).contains(&found.rate), "{} from {near}", found.rate);
        }
    }

    #[test]
    fn the_senders_own_limit_is_told() {
        let (found, _) = search(None, 1e9, 230_000.0);
        assert_eq!(found, Found { rate: 230_000.0, limited: true });
    }

    #[test]
    fn one_unlucky_trial_changes_nothing() {
        let mut first = true;
        let found = highest_without_loss(20_000.0, Some(50_000.0), |rate, _| {
            let unlucky = std::mem::take(&mut first);
            Ok(Trial { rate, lost: u64::from(unlucky || rate > 50_000.0) })
        });
        assert_eq!(found.expect("no trial fails").rate, 50_000.0);
    }

    #[test]
    fn what_queues_hold_for_a_while_is_not_taken_for_a_rate() {
        let found = highest_without_loss(20_000.0, None, |rate, length| {
            let capacity = if length == Length::Short { 100_000.0 } else { 60_000.0 };
            Ok(Trial { rate, lost: u64::from(rate > capacity) })
        });
        let found = found.expect("no trial fails").rate;
        assert!((52_000.0..=60_000.0).contains(&found), "{found}");
    }

    #[test]
    fn what_carries_nothing_ends_the_search() {
        assert_eq!(search(None, 0.0, 1e9).0, Found::default());
    }

    proptest! {
        #[test]
        fn the_limit_is_found_within_the_precision(capacity in 1_000.0..2e6f64) {
            let (found, _) = search(None, capacity, 1e9);
            prop_assert!(found.rate <= capacity && found.rate >= capacity * 0.85, "{} of {capacity}", found.rate);
        }
    }
}

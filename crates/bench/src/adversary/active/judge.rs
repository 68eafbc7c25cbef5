//! Can what follows a try be told from what follows none?
//!
//! Two samples of many numbers each: for every number the rank-sum test, whose statistic is the AUC. The number that
//! differs most, in standard deviations, is the judge's statistic; how much it differs by chance is learned from random
//! permutations, so that having looked at all of them is accounted for.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::Serialize;

use super::draw::below;

/// Random permutations; one more is the smallest p that can be found.
const PERMUTATIONS: usize = 9_999;

/// Quantile of the normal distribution for intervals of 95 %.
const TWO_SIDED: f64 = 1.96;

/// What the judge says of two samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    /// Which number differs most.
    pub(super) feature: usize,
    /// The probability that it is larger after a try than after none, ties half.
    pub(super) auc: f64,
    /// 95 % confidence interval of that (`DeLong`), as if no other number had been looked at.
    pub(super) interval: [f64; 2],
    /// How often chance alone makes any of the numbers differ as much.
    pub(super) p: f64,
}

/// Judges; `None` if a sample is empty. All have the same number of numbers.
pub(super) fn judge(tries: &[&[f64]], baseline: &[&[f64]], seed: u64) -> Option<Verdict> {
    let features = tries.first()?.len();
    let (tried, all) = (tries.len(), tries.len() + baseline.len());
    if baseline.is_empty() {
        return None;
    }
    let columns: Vec<Column> = (0..features)
        .map(|feature| Column::of(tries.iter().chain(baseline).map(|one| one[feature]).collect(), tried))
        .collect();
    let mut order: Vec<usize> = (0..all).collect();
    let (feature, strongest) = strongest(&columns, &order[..tried]);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut as_strong = 0;
    for _ in 0..PERMUTATIONS {
        for place in 0..tried {
            let other = place + below(&mut random, all - place);
            order.swap(place, other);
        }
        // The same sum in another order differs in the last bit.
        as_strong += usize::from(self::strongest(&columns, &order[..tried]).1 >= strongest - 1e-9);
    }
    let p = (as_strong + 1) as f64 / (PERMUTATIONS + 1) as f64;
    let values = |sample: &[&[f64]]| sample.iter().map(|one| one[feature]).collect::<Vec<_>>();
    let (auc, interval) = auc(&values(tries), &values(baseline));
    Some(Verdict { feature, auc, interval, p })
}

/// The number that differs most, and by how many standard deviations.
fn strongest(columns: &[Column], chosen: &[usize]) -> (usize, f64) {
    let scores = columns.iter().map(|column| column.score(chosen)).enumerate();
    scores.fold((0, 0.0), |best, next| if next.1 > best.1 { next } else { best })
}

/// The ranks of one number in both samples.
struct Column {
    ranks: Vec<f64>,
    expected: f64,
    deviation: f64,
}

impl Column {
    fn of(values: Vec<f64>, tried: usize) -> Self {
        let count = values.len() as f64;
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
        let mut ranks = vec![0.0; values.len()];
        let mut ties = 0.0;
        for equal in order.chunk_by(|&one, &other| values[one] == values[other]) {
            let before = values.iter().filter(|value| **value < values[equal[0]]).count() as f64;
            let size = equal.len() as f64;
            for &place in equal {
                ranks[place] = before + size.midpoint(1.0);
            }
            ties += size.powi(3) - size;
        }
        let (tried, rest) = (tried as f64, count - tried as f64);
        let spread = count + 1.0 - ties / (count * (count - 1.0)).max(1.0);
        let deviation = (tried * rest / 12.0 * spread).max(0.0).sqrt();
        Self { ranks, expected: tried * count.midpoint(1.0), deviation }
    }

    fn score(&self, chosen: &[usize]) -> f64 {
        // All the same: nothing differs.
        if self.deviation < 1e-9 {
            return 0.0;
        }
        (chosen.iter().map(|&place| self.ranks[place]).sum::<f64>() - self.expected).abs() / self.deviation
    }
}

/// The AUC of one number and its 95 % interval by `DeLong`'s variance.
pub(super) fn auc(tries: &[f64], baseline: &[f64]) -> (f64, [f64; 2]) {
    let placed = |value: f64, among: &[f64], sign: f64| {
        let wins = among.iter().map(|other| match (sign * value).total_cmp(&(sign * other)) {
            std::cmp::Ordering::Greater => 1.0,
            std::cmp::Ordering::Equal => 0.5,
            std::cmp::Ordering::Less => 0.0,
        });
        wins.sum::<f64>() / among.len() as f64
    };
    let of_tries: Vec<f64> = tries.iter().map(|value| placed(*value, baseline, 1.0)).collect();
    let of_baseline: Vec<f64> = baseline.iter().map(|value| placed(*value, tries, -1.0)).collect();
    let auc = of_tries.iter().sum::<f64>() / of_tries.len() as f64;
    let variance = |placed: &[f64]| {
        let count = placed.len() as f64;
        placed.iter().map(|one| (one - auc).powi(2)).sum::<f64>() / (count - 1.0).max(1.0) / count
    };
    let margin = TWO_SIDED * (variance(&of_tries) + variance(&of_baseline)).sqrt();
    (auc, [(auc - margin).max(0.0), (auc + margin).min(1.0)])
}

#[cfg(test)]
mod tests {
    use super::super::draw::uniform;
    use super::*;

    /// Moments of twenty independent numbers, the last of them something else in a part of all moments.
    fn sample(count: usize, part: f64, seed: u64) -> Vec<Vec<f64>> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut moment = || {
            let mut numbers: Vec<f64> = (0..20).map(|_| (uniform(&mut random) * 8.0).floor()).collect();
            numbers[19] = if uniform(&mut random) < part { 0.001 } else { 2.0 };
            numbers
        };
        (0..count).map(|_| moment()).collect()
    }

    fn judged(tries: &[Vec<f64>], baseline: &[Vec<f64>]) -> Verdict {
        let slices = |sample: &[Vec<f64>]| sample.to_vec();
        let (tries, baseline) = (slices(tries), slices(baseline));
        let tries: Vec<&[f64]> = tries.iter().map(Vec::as_slice).collect();
        let baseline: Vec<&[f64]> = baseline.iter().map(Vec::as_slice).collect();
        judge(&tries, &baseline, 7).expect("two samples")
    }

    #[test]
    fn a_reaction_each_time_is_found_and_named() {
        let verdict = judged(&sample(40, 1.0, 1), &sample(100, 0.0, 2));
        assert_eq!((verdict.feature, verdict.auc), (19, 0.0));
        assert!(verdict.p < 0.001);
    }

    #[test]
    fn a_reaction_in_one_of_ten_is_found_with_enough_tries() {
        let verdict = judged(&sample(200, 0.1, 1), &sample(200, 0.0, 2));
        assert_eq!(verdict.feature, 19);
        assert!(verdict.p < 0.001, "{verdict:?}");
    }

    #[test]
    fn where_nothing_differs_p_is_even() {
        let found: Vec<f64> =
            (0..20).map(|round| judged(&sample(20, 0.2, round), &sample(40, 0.2, 100 + round)).p).collect();
        assert!(found.iter().filter(|p| **p < 0.05).count() <= 4, "{found:?}");
        assert!(found.iter().any(|p| *p > 0.5), "{found:?}");
    }

    #[test]
    fn an_auc_counts_pairs_and_its_interval_holds_it() {
        let (value, [low, high]) = auc(&[1.0, 2.0, 3.0], &[1.0, 2.0]);
        assert!((value - 4.0 / 6.0).abs() < 1e-9, "{value}");
        assert!(low < value && value < high);
        assert_eq!(auc(&[2.0, 2.0], &[2.0]).0, 0.5);
        assert_eq!(judge(&[], &[], 1), None);
    }
}

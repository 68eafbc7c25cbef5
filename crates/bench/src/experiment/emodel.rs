//! What a call sounds like: the E-model of ITU-T G.107, with what the standard leaves to its default values.
//!
//! `R = R0 - Id - Ie,eff` (G.107 (06/2015), equation 7-1, where `R0` stands for `Ro - Is + A`). Simplified as follows:
//!
//! - `R0` is 93.2: the result of all default values (table 2 of the standard), without an advantage factor.
//! - Of the impairment by delay only the part of the absolute delay counts, `Idd` (7-27, 7-28): echo is cancelled
//!   perfectly, so that `Idte` and `Idle` are zero.
//! - Losses are independent of each other: `BurstR` is 1 (7-29).
//!
//! `Ie` and `Bpl` are G.113's (appendix I) for G.711 with packet loss concealment: 0 and 25.1. It has none for Opus; the
//! same are taken, which conceals losses too. That is an assumption, and the same for all who are compared.

/// The rating of a call without any impairment beyond the default values.
const R0: f64 = 93.2;

/// Impairment by the equipment, and its robustness against loss.
const IE: f64 = 0.0;
const BPL: f64 = 25.1;

/// The rating of a call, 0 to 93.2: `delay_ms` from mouth to ear, `loss_percent` of the packets lost or too late.
pub(crate) fn rating(delay_ms: f64, loss_percent: f64) -> f64 {
    (R0 - delay_impairment(delay_ms) - loss_impairment(loss_percent)).max(0.0)
}

/// The mean opinion score, 1 to 4.5, of a rating (G.107, annex B).
pub(crate) fn mean_opinion(rating: f64) -> f64 {
    match rating {
        low if low <= 0.0 => 1.0,
        high if high >= 100.0 => 4.5,
        r => (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0),
    }
}

/// `Idd`: nothing up to 100 ms.
fn delay_impairment(ms: f64) -> f64 {
    if ms <= 100.0 {
        return 0.0;
    }
    let x = (ms / 100.0).log2();
    let sixth = |value: f64| (1.0 + value.powi(6)).powf(1.0 / 6.0);
    25.0 * (sixth(x) - 3.0 * sixth(x / 3.0) + 2.0)
}

/// `Ie,eff`.
fn loss_impairment(percent: f64) -> f64 {
    IE + (95.0 - IE) * percent / (percent + BPL)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64, by: f64) {
        assert!((value - expected).abs() < by, "{value} is not {expected}");
    }

    #[test]
    fn opinions_of_ratings_are_those_of_the_standards_table() {
        // G.107, table B.1.
        for (r, mos) in [(90.0, 4.34), (80.0, 4.03), (70.0, 3.60), (60.0, 3.10), (50.0, 2.58)] {
            near(mean_opinion(r), mos, 0.01);
        }
        near(mean_opinion(R0), 4.41, 0.005);
        assert_eq!([mean_opinion(-5.0), mean_opinion(101.0)], [1.0, 4.5]);
    }

    #[test]
    fn delay_counts_from_100_ms() {
        assert_eq!([0.0, 100.0].map(delay_impairment), [0.0; 2]);
        // By hand: x = 1 and x = 2.
        near(delay_impairment(200.0), 3.044, 0.001);
        near(delay_impairment(400.0), 24.07, 0.01);
        assert!(delay_impairment(150.0) < 0.2, "what G.114 recommends is hardly heard");
    }

    #[test]
    fn loss_counts_as_for_concealed_g711() {
        near(loss_impairment(1.0), 95.0 / 26.1, 1e-9);
        near(rating(50.0, 0.0), 93.2, 1e-9);
        near(mean_opinion(rating(50.0, 2.0)), 4.23, 0.01);
    }

    #[test]
    fn a_call_gets_no_better_by_delay_or_loss() {
        let mut last = f64::INFINITY;
        for step in 0..100 {
            let now = rating(f64::from(step) * 10.0, f64::from(step) / 2.0);
            assert!(now <= last && now >= 0.0);
            last = now;
        }
    }
}

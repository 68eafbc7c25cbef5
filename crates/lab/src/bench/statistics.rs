//! Medians and quantiles.

/// What repeated measurements say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of these values; nothing, if there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let (min, max) = (quantile(values, 0.0)?, quantile(values, 1.0)?);
        Some(Self { median: quantile(values, 0.5)?, min, max })
    }
}

/// The value below which this part (0 to 1) of the values lies, between two values in proportion.
pub(crate) fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let position = (sorted.len().checked_sub(1)?) as f64 * part;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    Some(below + (above - below) * position.fract())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn medians() {
        let median = |values: &[f64]| quantile(values, 0.5);
        assert_eq!((median(&[]), median(&[3.0]), median(&[4.0, 1.0])), (None, Some(3.0), Some(2.5)));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
    }

    #[test]
    fn quantiles_of_a_hundred_values() {
        let values: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!((quantile(&values, 0.99), quantile(&values, 0.25)), (Some(99.0), Some(25.0)));
        let summary = Summary::of(&values).expect("values");
        assert_eq!((summary.min, summary.median, summary.max), (0.0, 50.0, 100.0));
    }

    proptest! {
        #[test]
        fn a_quantile_lies_between_the_ends(values in proptest::collection::vec(-1e9..1e9f64, 1..50), part in 0.0..=1.0f64) {
            let value = quantile(&values, part).expect("values");
            prop_assert!(quantile(&values, 0.0).expect("values") <= value);
            prop_assert!(value <= quantile(&values, 1.0).expect("values"));
        }
    }
}

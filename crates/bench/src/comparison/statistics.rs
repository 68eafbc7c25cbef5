//! Medians and quantiles; means and how far they can be trusted.

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

/// What repeated measurements say of the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mean {
    pub(crate) value: f64,
    /// Half of the width of the 95 % confidence interval (Student's t, two-sided); nothing to say of a single value.
    pub(crate) margin: Option<f64>,
    /// How many values.
    pub(crate) count: usize,
}

impl Mean {
    /// Of these values; nothing, if there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let value = values.iter().sum::<f64>() / count as f64;
        let margin = (count > 1).then(|| {
            let freedom = (count - 1) as f64;
            let variance = values.iter().map(|one| (one - value).powi(2)).sum::<f64>() / freedom;
            student(count - 1) * (variance / count as f64).sqrt()
        });
        Some(Self { value, margin, count })
    }
}

/// The 97.5 % quantile of Student's t distribution with so many degrees of freedom, at least one: from the usual table, and
/// beyond it an expansion that is right to three digits.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    let degrees = freedom as f64;
    TABLE.get(freedom.saturating_sub(1)).copied().unwrap_or(1.96 + 2.372 / degrees + 2.82 / degrees.powi(2))
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

    #[test]
    fn the_mean_of_three_has_students_margin() {
        let mean = Mean::of(&[1.0, 2.0, 3.0]).expect("values");
        // 4.303 · 1 / √3
        assert!((mean.value - 2.0).abs() < 1e-12 && (mean.margin.expect("a margin") - 2.4843).abs() < 1e-3);
        assert_eq!(Mean::of(&[5.0]), Some(Mean { value: 5.0, margin: None, count: 1 }));
        assert_eq!(Mean::of(&[]), None);
    }

    #[test]
    fn the_table_of_t_goes_on_where_it_ends() {
        for (freedom, expected) in
            [(1, 12.706), (9, 2.262), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980)]
        {
            assert!((student(freedom) - expected).abs() < 1.5e-3, "{freedom}: {}", student(freedom));
        }
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

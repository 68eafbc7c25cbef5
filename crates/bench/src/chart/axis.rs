//! Where values are on an axis.

/// How an axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    /// Decades. What is not above zero is at its beginning.
    Decades,
    /// Ratios, in steps of a tenth, at least from 0.8 to 1.2.
    Ratio,
}

/// An axis, from its low end to its high one; of decades the exponents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
}

impl Axis {
    /// One that begins where these values do, and ends with `most`.
    pub(crate) fn of(scale: Scale, values: impl Iterator<Item = f64>, most: f64) -> Self {
        let (low, high) = match scale {
            Scale::Linear => (0.0, ceiling(most)),
            Scale::Decades => {
                let low = values.filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
                let low = if low.is_finite() { low.log10().floor() } else { 0.0 };
                (low, most.max(f64::MIN_POSITIVE).log10().ceil().max(low + 1.0))
            }
            Scale::Ratio => {
                let least = values.fold(1.0, f64::min);
                (((least * 10.0).floor() / 10.0).min(0.8), ((most * 10.0).ceil() / 10.0).max(1.2))
            }
        };
        Self { low, high, scale }
    }

    /// How far along a value is, from 0 to 1.
    pub(crate) fn part(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Linear | Scale::Ratio => value,
            Scale::Decades if value > 0.0 => value.log10(),
            Scale::Decades => self.low,
        };
        (value.clamp(self.low, self.high) - self.low) / (self.high - self.low)
    }

    /// Values to be marked: the ends of so many parts, or the decades.
    pub(crate) fn marks(&self, parts: u32) -> Vec<f64> {
        match self.scale {
            Scale::Decades => (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power)).collect(),
            Scale::Linear | Scale::Ratio => {
                let end = |number| self.low + (self.high - self.low) * f64::from(number) / f64::from(parts);
                (0..=parts).map(end).collect()
            }
        }
    }
}

/// A round upper end for an axis that must show `value`.
pub(crate) fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let magnitude = 10f64.powf(value.log10().floor());
    let factors = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let fits = factors.into_iter().map(|factor| factor * magnitude).find(|ceiling| *ceiling >= value);
    fits.unwrap_or(value)
}

/// A mark as it is written.
pub(crate) fn short(value: f64) -> String {
    match value {
        large if large >= 1e6 => format!("{}M", large / 1e6),
        large if large >= 1e4 => format!("{}k", (large / 10.0).round() / 100.0),
        // 0.1 as a power of ten is not quite 0.1.
        usual => ((usual * 1e6).round() / 1e6).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decades_hold_all_values_and_zero_is_at_the_beginning() {
        let axis = Axis::of(Scale::Decades, [0.02, 300.0, 0.0].into_iter(), 300.0);
        assert_eq!((axis.low, axis.high), (-2.0, 3.0));
        assert_eq!(axis.part(0.0), 0.0);
        assert!(axis.part(0.02) < axis.part(300.0));
        let marks: Vec<String> = axis.marks(4).into_iter().map(short).collect();
        assert_eq!(marks, ["0.01", "0.1", "1", "10", "100", "1000"]);
    }

    #[test]
    fn an_axis_ends_with_a_round_number() {
        assert_eq!([0.0, 23.0, 100.0].map(ceiling), [1.0, 30.0, 100.0]);
    }
}

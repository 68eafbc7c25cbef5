//! What is remembered of a peer for a time: six numbers, as they lie in the store.

use serde_json::{Value, json};

/// Octets of a sample.
const LENGTH: usize = 4 * COLUMNS.len();
/// No chunk has more samples.
pub(crate) const SLOTS_AT_MOST: usize = 60;
/// The numbers of a sample, by the names that the page knows them by.
const COLUMNS: [&str; 6] = ["rtt_ms", "tx", "rx", "drops", "rotations", "up"];

/// A minute or an hour of a peer. What is not known is not a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Round trip in milliseconds.
    pub(crate) rtt_ms: f32,
    /// Octets of inner packets sent in a second.
    pub(crate) tx: f32,
    /// Octets of inner packets received in a second.
    pub(crate) rx: f32,
    /// Packets and datagrams dropped in a minute.
    pub(crate) drops: f32,
    /// Lanes that were born in a minute.
    pub(crate) rotations: f32,
    /// Which part of the time there was a session that worked, from 0 to 1; not a number where nobody looked.
    pub(crate) up: f32,
}

impl Sample {
    /// Nobody looked.
    pub(crate) const ABSENT: Sample = Sample {
        rtt_ms: f32::NAN,
        tx: f32::NAN,
        rx: f32::NAN,
        drops: f32::NAN,
        rotations: f32::NAN,
        up: f32::NAN,
    };

    fn columns(self) -> [f32; COLUMNS.len()] {
        [self.rtt_ms, self.tx, self.rx, self.drops, self.rotations, self.up]
    }

    pub(crate) fn of([rtt_ms, tx, rx, drops, rotations, up]: [f32; COLUMNS.len()]) -> Sample {
        Sample { rtt_ms, tx, rx, drops, rotations, up }
    }
}

impl PartialEq for Sample {
    fn eq(&self, other: &Sample) -> bool {
        self.columns().map(f32::to_bits) == other.columns().map(f32::to_bits)
    }
}

/// Samples by columns: null for what is not known, three or four digits of the rest.
pub(crate) fn by_columns(samples: &[Sample]) -> Value {
    let column = |at: usize| samples.iter().map(|sample| short(sample.columns()[at])).collect::<Value>();
    COLUMNS
        .iter()
        .enumerate()
        .map(|(at, name)| ((*name).to_owned(), column(at)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// What several have together: rates and counts are added, round trip and share of time are means.
pub(crate) fn sum(samples: impl Iterator<Item = Sample>) -> Sample {
    let chunk = Chunk { samples: samples.collect() };
    let mean = chunk.mean();
    let known = |of: fn(&Sample) -> f32| {
        chunk.samples.iter().filter(move |sample| of(sample).is_finite()).count() as f32
    };
    Sample {
        tx: mean.tx * known(|sample| sample.tx),
        rx: mean.rx * known(|sample| sample.rx),
        drops: mean.drops * known(|sample| sample.drops),
        rotations: mean.rotations * known(|sample| sample.rotations),
        ..mean
    }
}

fn short(number: f32) -> Value {
    match f64::from(number) {
        number if !number.is_finite() => Value::Null,
        number if number >= 1000.0 => json!(number.round() as u64),
        number => json!((number * 1000.0).round() / 1000.0),
    }
}

/// Some samples, one after the other.
#[derive(Debug, PartialEq)]
pub(crate) struct Chunk {
    samples: Vec<Sample>,
}

impl Chunk {
    /// A chunk as it lies in the store; what is missing of it is absent.
    pub(crate) fn parse(octets: &[u8], slots: usize) -> Chunk {
        let mut samples: Vec<_> = octets.chunks_exact(LENGTH).take(slots).map(parse).collect();
        samples.resize(slots, Sample::ABSENT);
        Chunk { samples }
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Puts a sample in its place.
    pub(crate) fn set(&mut self, place: usize, sample: Sample) {
        if let Some(slot) = self.samples.get_mut(place) {
            *slot = sample;
        }
    }

    pub(crate) fn octets(&self) -> Vec<u8> {
        self.samples.iter().flat_map(|sample| sample.columns()).flat_map(f32::to_le_bytes).collect()
    }

    /// What the samples are on average, each number for itself.
    pub(crate) fn mean(&self) -> Sample {
        let column = |at: usize| {
            let known =
                self.samples.iter().map(|sample| sample.columns()[at]).filter(|number| number.is_finite());
            let (sum, count) =
                known.fold((0.0_f64, 0_u32), |(sum, count), number| (sum + f64::from(number), count + 1));
            // Without any it is not a number.
            (sum / f64::from(count)) as f32
        };
        Sample::of(std::array::from_fn(column))
    }
}

fn parse(octets: &[u8]) -> Sample {
    let (numbers, _) = octets.as_chunks::<4>();
    Sample::of(std::array::from_fn(|at| {
        numbers.get(at).map_or(f32::NAN, |number| f32::from_le_bytes(*number))
    }))
}

/// Gathers what is seen of a peer within a minute.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Minute {
    looks: u32,
    up: u32,
    rtt_sum: f64,
    rtts: u32,
    tx: u64,
    rx: u64,
    drops: u64,
    rotations: u64,
}

/// What is seen of a peer at once. The numbers are those since the look before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    pub(crate) up: bool,
    pub(crate) rtt_ms: Option<f64>,
    pub(crate) tx: u64,
    pub(crate) rx: u64,
    pub(crate) drops: u64,
    pub(crate) rotations: u64,
}

impl Minute {
    pub(crate) fn add(&mut self, look: &Look) {
        self.looks += 1;
        self.up += u32::from(look.up);
        if let Some(rtt) = look.rtt_ms.filter(|_| look.up) {
            self.rtt_sum += rtt;
            self.rtts += 1;
        }
        self.tx += look.tx;
        self.rx += look.rx;
        self.drops += look.drops;
        self.rotations += look.rotations;
    }

    /// The minute's sample; absent where nobody looked.
    pub(crate) fn sample(&self) -> Sample {
        if self.looks == 0 {
            return Sample::ABSENT;
        }
        let per_second = |octets: u64| (octets as f64 / 60.0) as f32;
        Sample {
            rtt_ms: (self.rtt_sum / f64::from(self.rtts)) as f32,
            tx: per_second(self.tx),
            rx: per_second(self.rx),
            drops: self.drops as f32,
            rotations: self.rotations as f32,
            up: (f64::from(self.up) / f64::from(self.looks)) as f32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_octets_are_a_chunk_and_a_chunk_survives_its_octets(octets: Vec<u8>, slots in 1..60_usize) {
            let chunk = Chunk::parse(&octets, slots);
            prop_assert_eq!(chunk.samples().len(), slots);
            prop_assert_eq!(Chunk::parse(&chunk.octets(), slots).octets(), chunk.octets());
            by_columns(chunk.samples());
        }
    }

    #[test]
    fn a_mean_leaves_out_what_is_not_known() {
        let mut chunk = Chunk::parse(&[], 3);
        assert!(chunk.mean().up.is_nan());
        chunk.set(0, Sample { rtt_ms: 10.0, tx: 1.0, rx: 2.0, drops: 0.0, rotations: 6.0, up: 1.0 });
        chunk.set(2, Sample { rtt_ms: f32::NAN, tx: 3.0, rx: 2.0, drops: 4.0, rotations: 0.0, up: 0.0 });
        let mean = Sample { rtt_ms: 10.0, tx: 2.0, rx: 2.0, drops: 2.0, rotations: 3.0, up: 0.5 };
        assert_eq!(chunk.mean(), mean);
    }

    #[test]
    fn a_minute_is_what_was_seen_in_it() {
        let mut minute = Minute::default();
        assert_eq!(minute.sample(), Sample::ABSENT);
        minute.add(&Look { up: true, rtt_ms: Some(4.0), tx: 600, rx: 0, drops: 1, rotations: 2 });
        minute.add(&Look { up: false, rtt_ms: Some(99.0), tx: 0, rx: 60, drops: 0, rotations: 0 });
        let expected = Sample { rtt_ms: 4.0, tx: 10.0, rx: 1.0, drops: 1.0, rotations: 2.0, up: 0.5 };
        assert_eq!(minute.sample(), expected);
        let columns = by_columns(&[expected, Sample::ABSENT]);
        assert_eq!(columns["rtt_ms"], json!([4.0, null]));
        assert_eq!(columns["up"], json!([0.5, null]));
    }
}

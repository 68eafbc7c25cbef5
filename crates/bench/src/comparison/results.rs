//! What was measured: every value of every repetition, and what they say together.

use serde::{Deserialize, Serialize};

use crate::comparison::contender::{KNOWN, NONE};
use crate::comparison::statistics::Summary;

/// One quantity.
#[derive(Debug)]
pub(crate) struct Metric {
    /// Its name in the JSON.
    pub(crate) key: &'static str,
    /// Its name in tables.
    pub(crate) title: &'static str,
}

/// Quantities of one kind and unit.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    /// How it was measured.
    pub(crate) how: &'static str,
    pub(crate) higher_is_better: bool,
    pub(crate) metrics: &'static [Metric],
}

const fn metric(key: &'static str, title: &'static str) -> Metric {
    Metric { key, title }
}

/// All that tables show. The JSON has more.
pub(crate) const GROUPS: [Group; 10] = [
    Group {
        title: "TCP throughput",
        unit: "Mbit/s",
        how: "iperf3 between the hosts, unlimited; what the receiver got.",
        higher_is_better: true,
        metrics: &[
            metric("tcp_1_ab", "1 flow A→B"),
            metric("tcp_1_ba", "1 flow B→A"),
            metric("tcp_8_ab", "8 flows A→B"),
            metric("tcp_8_ba", "8 flows B→A"),
        ],
    },
    Group {
        title: "Small packets",
        unit: "thousand/s",
        how: "A million datagrams of 64 bytes, each a packet of its own, as fast as a host sends them: those that arrive in \
              a second.",
        higher_is_better: true,
        metrics: &[metric("packets_64", "64 bytes")],
    },
    Group {
        title: "UDP without loss",
        unit: "thousand datagrams/s",
        how: "The highest rate from A to B at which not one datagram of a trial was lost, found by halving. The sizes are \
              of the payload; each datagram is a packet of its own (no segmentation offload). ≥ where the \
              sender got no faster: without a tunnel its processor carries each packet all the way, so that its speed is \
              the limit, and a tunnel, whose work is shared by several processors, may reach more; or the tunnel took the \
              processors that it shares with the sender.",
        higher_is_better: true,
        metrics: &[
            metric("udp_64", "64 bytes"),
            metric("udp_512", "512 bytes"),
            metric("udp_1200", "1200 bytes"),
        ],
    },
    Group {
        title: "UDP in batches without loss",
        unit: "thousand datagrams/s",
        how: "The same, sent as a QUIC server sends: datagrams that are due together leave in batches of up to 64 with \
              UDP_SEGMENT, at most 65,000 bytes. Where a tunnel's device does not take such packets, the kernel cuts \
              them before it.",
        higher_is_better: true,
        metrics: &[metric("udp_64_batched", "64 bytes"), metric("udp_1200_batched", "1200 bytes")],
    },
    Group {
        title: "Latency under a flood of echoes",
        unit: "µs",
        how: "Round trips; the next request leaves when the answer is there.",
        higher_is_better: false,
        metrics: &[metric("flood_p50", "p50"), metric("flood_p99", "p99"), metric("flood_p999", "p99.9")],
    },
    Group {
        title: "Latency of paced echoes",
        unit: "µs",
        how: "Round trips; a request every 2 ms, nothing else on the way.",
        higher_is_better: false,
        metrics: &[metric("paced_p50", "p50"), metric("paced_p99", "p99"), metric("paced_p999", "p99.9")],
    },
    Group {
        title: "Latency under load",
        unit: "µs",
        how: "Round trips; a request every 2 ms, beside one unlimited TCP flow in the same direction.",
        higher_is_better: false,
        metrics: &[metric("loaded_p50", "p50"), metric("loaded_p99", "p99"), metric("loaded_p999", "p99.9")],
    },
    Group {
        title: "Processor time for TCP",
        unit: "s/GB",
        how: "What the gateway's process used while one TCP flow went from A to B. None where the kernel does the work.",
        higher_is_better: false,
        metrics: &[metric("cpu_gb_a", "sending gateway"), metric("cpu_gb_b", "receiving gateway")],
    },
    Group {
        title: "Processor time for small datagrams",
        unit: "s/million",
        how: "What the gateway's process used for datagrams of 64 bytes, at the highest rate without loss.",
        higher_is_better: false,
        metrics: &[
            metric("cpu_mp_64_a", "sending gateway"),
            metric("cpu_mp_64_b", "receiving gateway"),
            metric("cpu_mp_64_batched_a", "sending gateway, in batches"),
            metric("cpu_mp_64_batched_b", "receiving gateway, in batches"),
        ],
    },
    Group {
        title: "Resident memory",
        unit: "MB",
        how: "Of the gateway's process, after the traffic of a repetition.",
        higher_is_better: false,
        metrics: &[metric("rss_a", "gateway A"), metric("rss_b", "gateway B")],
    },
];

/// One value.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) contender: String,
    pub(crate) metric: String,
    pub(crate) repetition: u32,
    pub(crate) value: f64,
    /// The sender got no faster: the true value may be higher.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) limited: bool,
}

/// One that took part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) about: String,
}

/// One that did not, or a measurement that failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Absence {
    pub(crate) what: String,
    pub(crate) why: String,
}

/// One gateway with many peers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ManyPeers {
    pub(crate) contender: String,
    pub(crate) peers: u32,
    /// Seconds from its start until the first packet came through.
    pub(crate) start_s: f64,
    pub(crate) resident_mb: f64,
    /// Processor time per second without traffic.
    pub(crate) idle_share: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// Everything; also what goes into the JSON.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) version: String,
    pub(crate) machine: String,
    /// How the run was set up.
    pub(crate) settings: String,
    pub(crate) minutes: f64,
    /// How far it came, if it was interrupted: it has only what was measured up to then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) interrupted: Option<String>,
    /// The contenders that the others are compared with: [`NONE`] and [`KNOWN`], if it names none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) bases: Vec<String>,
    pub(crate) contenders: Vec<Entry>,
    pub(crate) left_out: Vec<Absence>,
    pub(crate) failures: Vec<Absence>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) peers: Vec<ManyPeers>,
}

impl Results {
    /// The contenders that the others are compared with.
    pub(crate) fn bases(&self) -> Vec<&str> {
        if self.bases.is_empty() {
            vec![NONE, KNOWN]
        } else {
            self.bases.iter().map(String::as_str).collect()
        }
    }

    /// What the repetitions say together.
    pub(crate) fn summary(&self, contender: &str, metric: &str) -> Option<Summary> {
        Summary::of(&self.of(contender, metric).map(|sample| sample.value).collect::<Vec<_>>())
    }

    /// Whether the generator was the limit in at least half of the repetitions.
    pub(crate) fn limited(&self, contender: &str, metric: &str) -> bool {
        let (limited, all) = self
            .of(contender, metric)
            .fold((0, 0), |(limited, all), sample| (limited + u32::from(sample.limited), all + 1));
        limited > 0 && 2 * limited >= all
    }

    /// The median of the ratios to another contender within a repetition.
    pub(crate) fn ratio(&self, contender: &str, base: &str, metric: &str) -> Option<f64> {
        self.ratios(contender, base, metric).map(|ratios| ratios.median)
    }

    /// The ratios to another contender within a repetition: what slows the whole machine down for a while, slows both.
    pub(crate) fn ratios(&self, contender: &str, base: &str, metric: &str) -> Option<Summary> {
        let ratios: Vec<f64> = self
            .of(contender, metric)
            .filter_map(|sample| {
                let base = self.of(base, metric).find(|other| other.repetition == sample.repetition)?;
                (base.value > 0.0).then_some(sample.value / base.value)
            })
            .collect();
        Summary::of(&ratios)
    }

    /// The highest value of the earlier repetitions.
    pub(crate) fn best(&self, contender: &str, metric: &str) -> Option<f64> {
        self.summary(contender, metric).map(|summary| summary.max)
    }

    /// The value of one repetition.
    pub(crate) fn value(&self, contender: &str, metric: &str, repetition: u32) -> Option<f64> {
        self.of(contender, metric).find(|sample| sample.repetition == repetition).map(|sample| sample.value)
    }

    /// What all repetitions add up to.
    pub(crate) fn sum(&self, contender: &str, metric: &str) -> f64 {
        self.of(contender, metric).map(|sample| sample.value).sum()
    }

    /// Whether nothing was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.peers.is_empty()
    }

    /// Whether a contender of this name took part.
    pub(crate) fn has(&self, contender: &str) -> bool {
        self.contenders.iter().any(|entry| entry.name == contender)
    }

    fn of<'a>(&'a self, contender: &'a str, metric: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.contender == contender && sample.metric == metric)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Two repetitions of two contenders; in the second one the machine is half as fast.
    pub(crate) fn example() -> Results {
        let sample = |contender: &str, repetition, value| Sample {
            contender: contender.into(),
            metric: "tcp_1_ab".into(),
            repetition,
            value,
            limited: false,
        };
        let entry = |name: &str| Entry { name: name.into(), about: "<about>".into() };
        Results {
            contenders: vec![entry("none"), entry("sidestep")],
            left_out: vec![Absence { what: "openvpn".into(), why: "not installed".into() }],
            samples: vec![
                sample("none", 1, 8_000.0),
                sample("sidestep", 1, 4_000.0),
                sample("none", 2, 4_000.0),
                sample("sidestep", 2, 2_000.0),
            ],
            ..Results::default()
        }
    }

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let results = example();
        assert_eq!(results.ratio("sidestep", "none", "tcp_1_ab"), Some(0.5));
        let summary = results.summary("sidestep", "tcp_1_ab").expect("values");
        assert_eq!((summary.min, summary.median, summary.max), (2_000.0, 3_000.0, 4_000.0));
        assert_eq!(results.ratio("sidestep", "wireguard-go", "tcp_1_ab"), None);
    }

    #[test]
    fn metrics_have_names_of_their_own() {
        let mut keys: Vec<&str> =
            GROUPS.iter().flat_map(|group| group.metrics).map(|metric| metric.key).collect();
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }
}

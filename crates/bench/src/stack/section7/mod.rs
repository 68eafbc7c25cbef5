//! Section 7 of the paper on NRL's IPv6 again: two hosts of the crates `stack` and `stack-runtime` with an Ethernet between
//! them, as the paper had.
//!
//! | file | what it is |
//! |---|---|
//! | `paper` | what the paper measured |
//! | `hosts` | two hosts, each at a TAP device, and a bridge |
//! | `programs` | the small programs at the hosts, which measure |
//! | `tables` | tables 1 to 5 and figure 8, theirs beside ours |
//!
//! What is compared is measured within a round, one after the other, and hosts are new in each round. So whatever slows the
//! machine down for a while meets all that is compared, and medians of the ratios within a round do not show it.

mod hosts;
mod paper;
mod programs;
mod tables;

use std::sync::atomic::{AtomicBool, Ordering};

use ipsec::policy::{Level, Levels};
use lab::Error;
use serde::Serialize;

use self::hosts::{Hosts, Link, Side};
use crate::comparison::quantile;

/// After so many rounds it is said how far it is.
const PROGRESS: u32 = 25;
/// Table 5 is about the algorithms: no write or buffer is to be a limit.
const LARGE_WRITE: usize = 32_768;
const LARGE_BUFFER: usize = 1 << 20;

/// How packets are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Security {
    None,
    Authentication,
    Encryption,
    Both,
}

impl Security {
    /// As table 5 has them.
    const ALL: [Self; 4] = [Self::None, Self::Authentication, Self::Encryption, Self::Both];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Authentication => "authentication",
            Self::Encryption => "encryption",
            Self::Both => "both",
        }
    }

    const fn algorithm(self) -> &'static str {
        match self {
            Self::None => "–",
            Self::Authentication => "AH, AES-128-GMAC",
            Self::Encryption => "ESP, AES-128-GCM",
            Self::Both => "AH around ESP",
        }
    }

    fn levels(self) -> Levels {
        let level = |is_so| if is_so { Level::Require } else { Level::None };
        Levels {
            authentication: level(matches!(self, Self::Authentication | Self::Both)),
            transport_encryption: level(matches!(self, Self::Encryption | Self::Both)),
            ..Levels::NONE
        }
    }
}

/// What two programs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Work {
    TcpLatency { size: usize },
    UdpLatency { size: usize },
    TcpSpeed { write: usize, buffer: usize },
    UdpSpeed { size: usize },
}

impl Work {
    const LARGE: Self = Self::TcpSpeed { write: LARGE_WRITE, buffer: LARGE_BUFFER };

    /// Less is better.
    const fn is_latency(self) -> bool {
        matches!(self, Self::TcpLatency { .. } | Self::UdpLatency { .. })
    }
}

/// One thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Measurement {
    work: Work,
    is_ipv6: bool,
    security: Security,
}

impl Measurement {
    const fn plain(work: Work, is_ipv6: bool) -> Self {
        Self { work, is_ipv6, security: Security::None }
    }

    /// Over IPv6.
    const fn secured(work: Work, security: Security) -> Self {
        Self { work, is_ipv6: true, security }
    }

    fn run(self, hosts: &Hosts) -> std::io::Result<f64> {
        let Self { work, is_ipv6, security } = self;
        let levels = security.levels();
        match work {
            Work::TcpLatency { size } => programs::tcp_latency(hosts, is_ipv6, levels, size),
            Work::UdpLatency { size } => programs::udp_latency(hosts, is_ipv6, levels, size),
            Work::TcpSpeed { write, buffer } => programs::tcp_speed(hosts, is_ipv6, levels, write, buffer),
            Work::UdpSpeed { size } => programs::udp_speed(hosts, is_ipv6, levels, size),
        }
    }
}

/// One value: microseconds, or MB/s.
#[derive(Clone, Debug, Serialize)]
struct Value {
    #[serde(flatten)]
    of: Measurement,
    round: u32,
    value: f64,
}

/// What was measured.
#[derive(Debug, Default, Serialize)]
pub(super) struct Section7 {
    values: Vec<Value>,
    /// What could not be measured, and why.
    pub(super) failures: Vec<String>,
}

/// Measures everything in each of so many rounds.
pub(super) fn measure(rounds: u32, prefix: &str, stop: &AtomicBool) -> Section7 {
    let mut all = Section7::default();
    // The thread is the first host's program, and has its processor.
    let measured = std::thread::scope(|scope| {
        let measure = || {
            Side::A.pin();
            all.measure(rounds, prefix, stop)
        };
        scope.spawn(measure).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    if let Err(error) = measured {
        all.failures.push(format!("section 7: {error}"));
    }
    all
}

/// What is compared with each other.
fn groups() -> Vec<Vec<Measurement>> {
    let versions = |work| [false, true].map(|is_ipv6| Measurement::plain(work, is_ipv6)).to_vec();
    let secured = |work| Security::ALL.map(|security| Measurement::secured(work, security)).to_vec();
    let mut all = Vec::new();
    for (size, _) in paper::LATENCY {
        for work in [Work::TcpLatency { size }, Work::UdpLatency { size }] {
            all.push([vec![Measurement::plain(work, false)], secured(work)].concat());
        }
    }
    all.extend(paper::TCP.map(|(write, buffer, _)| versions(Work::TcpSpeed { write, buffer })));
    all.extend(paper::UDP.map(|(size, _)| versions(Work::UdpSpeed { size })));
    all.push(secured(Work::LARGE));
    all
}

impl Section7 {
    fn measure(&mut self, rounds: u32, prefix: &str, stop: &AtomicBool) -> Result<(), Error> {
        let link = Link::new(prefix)?;
        let mut groups = groups();
        for round in 1..=rounds {
            let hosts = Hosts::start(&link)?;
            for group in &mut groups {
                // Another one first, each time.
                group.rotate_left(1);
                for of in group {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    match of.run(&hosts) {
                        Ok(value) => self.values.push(Value { of: *of, round, value }),
                        Err(error) => self.fail(format!("section 7, {of:?}: {error}")),
                    }
                }
            }
            if round % PROGRESS == 0 {
                eprintln!("section 7: round {round} of {rounds}");
            }
        }
        Ok(())
    }

    /// What fails in each round is said once.
    fn fail(&mut self, said: String) {
        if !self.failures.contains(&said) {
            self.failures.push(said);
        }
    }

    fn median(&self, of: Measurement) -> Option<f64> {
        let values = self.values.iter().filter(|value| value.of == of).map(|value| value.value);
        quantile(&values.collect::<Vec<_>>(), 0.5)
    }

    /// The median of the ratios within each round.
    fn ratio(&self, of: Measurement, base: Measurement) -> Option<f64> {
        let values = |of| self.values.iter().filter(move |value| value.of == of);
        let ratios = values(of).filter_map(|value| {
            let base = values(base).find(|base| base.round == value.round)?;
            Some(value.value / base.value)
        });
        quantile(&ratios.collect::<Vec<_>>(), 0.5)
    }

    /// IPv6's multiple of IPv4.
    fn version_ratio(&self, work: Work) -> Option<f64> {
        self.ratio(Measurement::plain(work, true), Measurement::plain(work, false))
    }

    /// What is left of plain TCP over IPv6.
    fn share(&self, security: Security) -> Option<f64> {
        let of = |security| Measurement::secured(Work::LARGE, security);
        self.ratio(of(security), of(Security::None))
    }

    /// What is left of plain TCP over IPv6 with each kind of security, and what was to be left.
    pub(super) fn shares(&self) -> Vec<(String, f64, f64)> {
        let wanted = [(Security::Authentication, 0.55), (Security::Encryption, 0.70), (Security::Both, 0.45)];
        let share = |(security, wanted): (Security, f64)| {
            let name = format!("{} ({})", security.name(), security.algorithm());
            Some((name, self.share(security)?, wanted))
        };
        wanted.into_iter().filter_map(share).collect()
    }

    /// What IPv6 does of IPv4's work in the same time, in the worst row of each of tables 1 to 4.
    pub(super) fn versions(&self) -> Vec<(&'static str, f64)> {
        let worst = |rows: Vec<Work>| {
            let done = |work: &Work| {
                let ratio = self.version_ratio(*work)?;
                Some(if work.is_latency() { 1.0 / ratio } else { ratio })
            };
            rows.iter().filter_map(done).reduce(f64::min)
        };
        let sizes = paper::LATENCY.map(|(size, _)| size);
        let all = [
            ("latency of TCP", worst(sizes.map(|size| Work::TcpLatency { size }).to_vec())),
            ("latency of UDP", worst(sizes.map(|size| Work::UdpLatency { size }).to_vec())),
            (
                "throughput of TCP",
                worst(paper::TCP.map(|(write, buffer, _)| Work::TcpSpeed { write, buffer }).to_vec()),
            ),
            ("throughput of UDP", worst(paper::UDP.map(|(size, _)| Work::UdpSpeed { size }).to_vec())),
        ];
        all.into_iter().filter_map(|(name, ratio)| Some((name, ratio?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round_and_the_worst_row_is_the_one_that_counts() {
        let mut all = Section7::default();
        let mut keep = |work, is_ipv6, round, value| {
            all.values.push(Value { of: Measurement::plain(work, is_ipv6), round, value });
        };
        // In the second round the machine is half as fast, and in the third one half is missing.
        for (size, four, six) in [(64, 100.0, 90.0), (1024, 200.0, 220.0)] {
            for (round, slower) in [(1, 1.0), (2, 0.5)] {
                keep(Work::UdpSpeed { size }, false, round, four * slower);
                keep(Work::UdpSpeed { size }, true, round, six * slower);
                keep(Work::UdpLatency { size }, false, round, 10.0 / slower);
                keep(Work::UdpLatency { size }, true, round, 8.0 / slower);
            }
            keep(Work::UdpSpeed { size }, true, 3, 1.0);
        }
        assert_eq!(all.versions(), [("latency of UDP", 1.25), ("throughput of UDP", 0.9)]);
        assert_eq!(all.shares(), []);
    }

    #[test]
    fn each_row_of_the_paper_is_measured_in_both_versions() {
        let all = groups().concat();
        for (size, _) in paper::LATENCY {
            for is_ipv6 in [false, true] {
                assert!(all.contains(&Measurement::plain(Work::TcpLatency { size }, is_ipv6)));
                assert!(all.contains(&Measurement::plain(Work::UdpLatency { size }, is_ipv6)));
            }
        }
        let distinct = all.iter().enumerate().filter(|(at, one)| !all[..*at].contains(one));
        assert_eq!(distinct.count(), all.len(), "nothing is measured twice");
    }
}

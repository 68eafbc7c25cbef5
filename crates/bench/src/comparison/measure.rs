//! The single measurements: what each does, how long it takes, which values it gives.

use std::time::Duration;

use crate::comparison::search::{Length, Trial, highest_without_loss};
use crate::comparison::statistics::quantile;
use lab::Error;
use lab::accounting::{cpu_seconds, resident};
use lab::topology::Site;
use lab::traffic::{
    Hosts, PingOptions, RoundTrips, TcpOptions, TcpTransfer, UdpOptions, UdpStream, round_trips, tcp,
};

/// Time between two paced echoes.
const PACE: Duration = Duration::from_millis(2);

/// The first rate of a search, datagrams per second, when nothing is known.
pub(crate) const START: f64 = 20_000.0;

/// The same of one with batches.
const START_BATCHED: f64 = 200_000.0;

/// Bytes of a steady stream's datagrams.
const STEADY_SIZE: usize = 1200;

/// How long a stream's last datagrams may take.
pub(crate) const DRAIN: Duration = Duration::from_millis(150);

/// How long a rate without loss has to last before it counts.
pub(crate) const LASTS: Duration = Duration::from_millis(1500);

/// How long a steady stream is, whatever else the lengths are: at a rotation of a second, five or more lie in it.
pub(crate) const STEADY: Duration = Duration::from_secs(6);

/// Its part of the highest rate without loss.
const STEADY_PART: f64 = 0.8;

/// How long each measurement takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lengths {
    /// Seconds of TCP.
    pub(crate) tcp: u32,
    /// One trial of a search.
    pub(crate) trial: Duration,
    /// Echoes: flooded; half as many paced.
    pub(crate) echoes: u32,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measurement {
    Tcp {
        flows: u32,
        from: Site,
    },
    Udp {
        size: usize,
        batched: bool,
    },
    /// Of 1200 bytes.
    Steady {
        batched: bool,
    },
    Flood,
    Paced,
    Loaded,
    Memory,
}

/// A value, its metric's name, and whether the generator was the limit.
pub(crate) type Value = (String, f64, bool);

impl Measurement {
    /// The kind, as `--only` has it.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Tcp { .. } => "tcp",
            Self::Udp { .. } => "udp",
            Self::Steady { .. } => "steady",
            Self::Flood | Self::Paced => "ping",
            Self::Loaded => "load",
            Self::Memory => "memory",
        }
    }

    /// For the progress line.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Tcp { flows, from } => {
                let (from, to) = (from.letter().to_uppercase(), from.other().letter().to_uppercase());
                format!("TCP, {flows} flow{}, {from}→{to}", if flows == 1 { "" } else { "s" })
            }
            Self::Udp { size, batched } => {
                format!("UDP, {size} bytes{}", if batched { ", batched" } else { "" })
            }
            Self::Steady { batched } => format!("UDP, steady{}", if batched { ", batched" } else { "" }),
            Self::Flood => "flood of echoes".into(),
            Self::Paced => "paced echoes".into(),
            Self::Loaded => "echoes under load".into(),
            Self::Memory => "memory".into(),
        }
    }

    /// The name of its first value, which the progress line shows.
    pub(crate) fn key(self) -> String {
        match self {
            Self::Tcp { flows, from } => format!("tcp_{flows}_{}{}", from.letter(), from.other().letter()),
            Self::Udp { size, batched } => format!("udp_{size}{}", if batched { "_batched" } else { "" }),
            Self::Steady { batched } => format!("steady{}_lost", if batched { "_batched" } else { "" }),
            Self::Flood => "flood_p50".into(),
            Self::Paced => "paced_p50".into(),
            Self::Loaded => "loaded_p50".into(),
            Self::Memory => "rss_a".into(),
        }
    }

    /// The unit of that value.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Tcp { .. } => "Mbit/s",
            Self::Udp { .. } => "thousand/s",
            Self::Steady { .. } => "lost",
            Self::Flood | Self::Paced | Self::Loaded => "µs",
            Self::Memory => "MB",
        }
    }

    /// Which value of this repetition it builds upon, if any.
    pub(crate) fn builds_upon(self) -> Option<String> {
        match self {
            Self::Steady { batched } => Some(Self::Udp { size: STEADY_SIZE, batched }.key()),
            _ => None,
        }
    }

    /// Carries it out between two hosts. `known` is what the measurement that it builds upon gave in this
    /// repetition, or what the same measurement gave before.
    pub(crate) fn run(
        self,
        hosts: &dyn Hosts,
        processes: Option<[u32; 2]>,
        lengths: Lengths,
        known: Option<f64>,
    ) -> Result<Vec<Value>, Error> {
        match self {
            Self::Tcp { flows, from } => {
                let used = Used::begin(processes)?;
                let options =
                    TcpOptions { seconds: lengths.tcp, parallel: flows, from, ..TcpOptions::default() };
                let report = tcp(hosts, options)?;
                let mut values = vec![
                    (self.key(), report.bits_per_second / 1e6, false),
                    (format!("retransmits_{}", self.key()), report.retransmits as f64, false),
                ];
                let gigabytes = report.bits_per_second * f64::from(lengths.tcp) / 8e9;
                if flows == 1 && from == Site::A && gigabytes > 0.0 {
                    values.extend(used.since("cpu_gb", gigabytes)?);
                }
                Ok(values)
            }
            Self::Udp { size, batched } => udp(self, hosts, processes, lengths, (size, batched), known),
            Self::Steady { batched } => steady(hosts, lengths, batched, known),
            Self::Flood => echoes("flood", hosts, lengths.echoes, None),
            Self::Paced => echoes("paced", hosts, lengths.echoes / 2, Some(PACE)),
            Self::Loaded => {
                let count = lengths.echoes / 2;
                let seconds = (PACE * count).as_secs_f64().ceil() as u32 + 2;
                let transfer = TcpTransfer::start(hosts, TcpOptions { seconds, ..TcpOptions::default() })?;
                // The flow gets half a second to reach its speed.
                std::thread::sleep(Duration::from_millis(500));
                let values = echoes("loaded", hosts, count, Some(PACE));
                let report = transfer.finish()?;
                let mut values = values?;
                values.push(("loaded_tcp".into(), report.bits_per_second / 1e6, false));
                Ok(values)
            }
            Self::Memory => {
                let Some(processes) = processes else { return Ok(Vec::new()) };
                let both = ["rss_a", "rss_b"].into_iter().zip(processes);
                both.map(|(key, id)| Ok((key.to_owned(), resident(id)? as f64 / 1e6, false))).collect()
            }
        }
    }
}

/// Those of a whole comparison, or of a quick one.
pub(crate) fn all(quick: bool) -> Vec<Measurement> {
    let tcp = |flows, from| Measurement::Tcp { flows, from };
    let udp = |size, batched| Measurement::Udp { size, batched };
    let mut all = vec![tcp(1, Site::A), tcp(1, Site::B), tcp(8, Site::A)];
    if !quick {
        all.push(tcp(8, Site::B));
    }
    all.extend([udp(64, false), udp(1200, false), udp(64, true), udp(1200, true)]);
    if !quick {
        all.extend([false, true].map(|batched| Measurement::Steady { batched }));
    }
    all.extend([Measurement::Flood, Measurement::Paced, Measurement::Loaded, Measurement::Memory]);
    all
}

/// Whether it says something about a variant: what the other ones add would be the same again.
pub(crate) fn tells_variants_apart(measurement: Measurement) -> bool {
    match measurement {
        Measurement::Tcp { from, .. } => from == Site::A,
        // Single ones the hosts' own work limits, too much to see small differences.
        Measurement::Udp { batched, .. } => batched,
        Measurement::Steady { .. } | Measurement::Paced | Measurement::Memory => true,
        Measurement::Flood | Measurement::Loaded => false,
    }
}

fn udp(
    measurement: Measurement,
    hosts: &dyn Hosts,
    processes: Option<[u32; 2]>,
    lengths: Lengths,
    (size, batched): (usize, bool),
    best: Option<f64>,
) -> Result<Vec<Value>, Error> {
    let mut costs = Vec::new();
    let costs_key = measurement.key().replace("udp", "cpu_mp");
    let start = if batched { START_BATCHED } else { START };
    let found = highest_without_loss(start, best.map(|thousands| thousands * 1e3), |rate, length| {
        let used = Used::begin(processes)?;
        let duration = match length {
            Length::Short => lengths.trial,
            Length::Long => LASTS,
        };
        let options = UdpOptions { rate: rate as u32, size, duration, batched, ..UdpOptions::default() };
        let report = UdpStream::start(hosts, options)?.finish(DRAIN)?;
        let lost = report.lost + report.sent.refused;
        if lost == 0 {
            costs = used.since(&costs_key, report.sent.sent as f64 / 1e6)?;
        }
        let rate = report.sent.sent as f64 / (report.sent.took_us.max(1) as f64 / 1e6);
        Ok(Trial { rate, lost })
    })?;
    let mut values = vec![(measurement.key(), found.rate / 1e3, found.limited)];
    values.append(&mut costs);
    Ok(values)
}

/// A stream at a part of the highest rate without loss, which is looked for if it is not known.
fn steady(
    hosts: &dyn Hosts,
    lengths: Lengths,
    batched: bool,
    known: Option<f64>,
) -> Result<Vec<Value>, Error> {
    let search = Measurement::Udp { size: STEADY_SIZE, batched };
    let thousands = match known {
        Some(thousands) => thousands,
        None => search.run(hosts, None, lengths, None)?.first().map_or(0.0, |(_, thousands, _)| *thousands),
    };
    let rate = (thousands * 1e3 * STEADY_PART) as u32;
    let options = UdpOptions { rate, size: STEADY_SIZE, duration: STEADY, batched, ..UdpOptions::default() };
    let report = UdpStream::start(hosts, options)?.finish(DRAIN)?;
    let (lost, sent) = (report.lost + report.sent.refused, report.sent.sent + report.sent.refused);
    let key = |what: &str| Measurement::Steady { batched }.key().replace("lost", what);
    Ok(vec![
        (key("lost"), lost as f64, false),
        (key("sent"), sent as f64, false),
        (key("rate"), sent as f64 / report.sent.took_us.max(1) as f64 * 1e3, false),
    ])
}

fn echoes(
    name: &str,
    hosts: &dyn Hosts,
    count: u32,
    interval: Option<Duration>,
) -> Result<Vec<Value>, Error> {
    let RoundTrips { sent, times_ms } =
        round_trips(hosts, PingOptions { count, interval, ..PingOptions::default() })?;
    let mut values = Vec::new();
    for (suffix, part) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
        let time = quantile(&times_ms, part).ok_or_else(|| Error::output("ping", "no echo came back"))?;
        values.push((format!("{name}_{suffix}"), time * 1e3, false));
    }
    values.push((format!("{name}_lost"), sent.saturating_sub(times_ms.len() as u64) as f64, false));
    Ok(values)
}

/// Processor time of the two gateways' processes up to a moment.
struct Used(Option<[(u32, f64); 2]>);

impl Used {
    fn begin(processes: Option<[u32; 2]>) -> Result<Self, Error> {
        let Some([a, b]) = processes else { return Ok(Self(None)) };
        Ok(Self(Some([(a, cpu_seconds(a)?), (b, cpu_seconds(b)?)])))
    }

    /// What each has used since, for each of `units`.
    fn since(&self, name: &str, units: f64) -> Result<Vec<Value>, Error> {
        let Some(both) = self.0 else { return Ok(Vec::new()) };
        let values = ['a', 'b'].into_iter().zip(both);
        values
            .map(|(site, (id, before))| {
                Ok((format!("{name}_{site}"), (cpu_seconds(id)? - before) / units, false))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::results::GROUPS;

    #[test]
    fn what_the_progress_shows_is_in_a_table() {
        for measurement in all(false) {
            let key = measurement.key();
            let known = GROUPS.iter().flat_map(|group| group.metrics).any(|metric| metric.key == key);
            // Streams have a table of their own.
            assert!(known || measurement.builds_upon().is_some(), "{key}");
        }
    }
}

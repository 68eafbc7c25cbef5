//! `sidestep lab bench`: TCP throughput and latency through Sidestep, beside no tunnel and wireguard-go, in the
//! same routed lab on the same machine. Measurements alternate, so that a change of the machine's speed meets
//! all of them; medians are compared.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::Error;
use crate::lab::Lab;
use crate::traffic::{self, PingOptions, TcpOptions};
use crate::wireguard::WireGuard;

/// Echoes per measurement of latency.
const PINGS: u32 = 5_000;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The labs' prefix; a digit is appended.
    pub prefix: String,
    /// Rotation interval.
    pub rotation: String,
    /// Seconds of TCP per measurement.
    pub seconds: u32,
    /// Measurements of each.
    pub repetitions: u32,
    /// The wireguard-go program, if it is not on the path.
    pub wireguard_go: Option<PathBuf>,
    /// Where the measurements go.
    pub json: Option<PathBuf>,
}

/// What was measured of one contender.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Its name.
    pub name: &'static str,
    /// TCP, one stream, megabits per second.
    pub tcp_mbit_s: Vec<f64>,
    /// Retransmitted segments.
    pub retransmits: Vec<u64>,
    /// Average round trip of flooded echoes, microseconds.
    pub rtt_us: Vec<f64>,
    /// Lost echoes.
    pub lost: Vec<u64>,
}

/// A lab with one contender in it.
struct Contender {
    lab: Lab,
    wireguard: Option<WireGuard>,
    measured: Measured,
}

/// Runs the comparison.
///
/// # Errors
/// When a lab or a measurement fails.
pub fn run(options: &Options, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let mut contenders = vec![plain(options, program)?, sidestep(options, program)?];
    match WireGuard::find(options.wireguard_go.as_deref()) {
        Some(found) => contenders.push(wireguard(options, program, &found)?),
        None => println!("wireguard-go is not installed: left out (see --help)"),
    }
    for repetition in 1..=options.repetitions {
        for contender in &mut contenders {
            if stop.load(Ordering::Relaxed) {
                return Ok(ExitCode::from(130));
            }
            contender.measure(options.seconds)?;
            let (name, measured) = (contender.measured.name, &contender.measured);
            let (tcp, rtt) = (measured.tcp_mbit_s.last(), measured.rtt_us.last());
            let (tcp, rtt) = (tcp.copied().unwrap_or(0.0), rtt.copied().unwrap_or(0.0));
            println!("{repetition} of {}: {name:<14} {tcp:7.0} Mbit/s  {rtt:6.0} us", options.repetitions);
        }
    }
    let measured: Vec<Measured> = contenders.iter().map(|contender| contender.measured.clone()).collect();
    for contender in contenders {
        if let Some(wireguard) = contender.wireguard {
            wireguard.stop();
        }
    }
    println!("\n{}", table(&measured));
    if let Some(path) = &options.json {
        let json = serde_json::to_vec_pretty(&measured).map_err(|error| Error::output("bench", error))?;
        std::fs::write(path, json).map_err(|source| Error::file(path, source))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn plain(options: &Options, program: &Path) -> Result<Contender, Error> {
    let mut lab = Lab::builder(program).prefix(&format!("{}0", options.prefix)).tunnel(false).build()?;
    lab.start()?;
    Ok(Contender { lab, wireguard: None, measured: Measured::nothing("no tunnel") })
}

fn sidestep(options: &Options, program: &Path) -> Result<Contender, Error> {
    let builder = Lab::builder(program).prefix(&format!("{}1", options.prefix)).rotation(&options.rotation);
    let mut lab = builder.build()?;
    lab.start()?;
    Ok(Contender { lab, wireguard: None, measured: Measured::nothing("sidestep") })
}

fn wireguard(options: &Options, program: &Path, wireguard_go: &Path) -> Result<Contender, Error> {
    let mut lab = Lab::builder(program).prefix(&format!("{}2", options.prefix)).tunnel(false).build()?;
    let wireguard = WireGuard::start(&lab, wireguard_go)?;
    lab.start()?;
    Ok(Contender { lab, wireguard: Some(wireguard), measured: Measured::nothing("wireguard-go") })
}

impl Contender {
    fn measure(&mut self, seconds: u32) -> Result<(), Error> {
        let tcp = traffic::tcp(&self.lab, TcpOptions { seconds, ..TcpOptions::default() })?;
        let ping =
            traffic::ping(&self.lab, PingOptions { count: PINGS, interval: None, ..PingOptions::default() })?;
        self.measured.tcp_mbit_s.push(tcp.bits_per_second / 1e6);
        self.measured.retransmits.push(tcp.retransmits);
        self.measured.rtt_us.push(ping.avg_ms * 1e3);
        self.measured.lost.push(ping.sent - ping.received.min(ping.sent));
        Ok(())
    }
}

impl Measured {
    fn nothing(name: &'static str) -> Self {
        Self { name, tcp_mbit_s: Vec::new(), retransmits: Vec::new(), rtt_us: Vec::new(), lost: Vec::new() }
    }
}

fn table(measured: &[Measured]) -> String {
    let mut lines =
        vec!["median            TCP Mbit/s   of no tunnel   retransmits   flood RTT us   lost".to_owned()];
    let whole = measured.first().map_or(0.0, |plain| median(&plain.tcp_mbit_s));
    for one in measured {
        let tcp = median(&one.tcp_mbit_s);
        lines.push(format!(
            "{:<16} {tcp:11.0} {:13.0}% {:13.0} {:14.0} {:6}",
            one.name,
            if whole > 0.0 { tcp / whole * 100.0 } else { 0.0 },
            median(&one.retransmits.iter().map(|count| *count as f64).collect::<Vec<_>>()),
            median(&one.rtt_us),
            one.lost.iter().sum::<u64>(),
        ));
    }
    lines.join("\n")
}

/// The middle value; of an even number of values, the mean of the two in the middle.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(
            (median(&[]), median(&[3.0]), median(&[4.0, 1.0]), median(&[9.0, 1.0, 5.0])),
            (0.0, 3.0, 2.5, 5.0)
        );
    }

    #[test]
    fn the_table_compares_with_the_first() {
        let mut plain = Measured::nothing("no tunnel");
        plain.tcp_mbit_s = vec![8_000.0];
        let mut other = Measured::nothing("sidestep");
        other.tcp_mbit_s = vec![4_000.0];
        assert!(table(&[plain, other]).contains(" 50%"));
    }
}

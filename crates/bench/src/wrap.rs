//! `sidestep-lab bench wrap`: what it costs WireGuard to travel masked, between the same two gateways
//! (docs/performance.md, "WireGuard that moves").
//!
//! In turn WireGuard's packets go masked on Sidestep's lanes, and their own way: only the endpoint that WireGuard has of its
//! peer is another. So what differs is the mask, and not what else Sidestep has on a gateway; `bench --against
//! wireguard-go,wireguard-go-mask` has WireGuard alone beside it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;

use crate::comparison::contender::Contender as _;
use crate::comparison::docs::between;
use crate::comparison::masked::Masked;
use crate::comparison::measure::{Lengths, Measurement};
use crate::comparison::running::Running;
use crate::comparison::statistics::quantile;
use crate::comparison::tables::{Table, number};
use crate::comparison::{INTERRUPTED, machine};
use crate::wireguard::PORT;
use lab::command::{check, text};
use lab::topology::Site;
use lab::{Error, Lab};

/// How long packets may take to come through after the endpoint has changed.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is underway has arrived by then.
const SETTLE: Duration = Duration::from_millis(100);

/// What is measured, and where it goes.
#[derive(Clone, Debug, Args)]
pub struct WrapOptions {
    /// Rounds, each of all measurements both ways
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..=1000))]
    repetitions: u32,
    /// Seconds of each measurement of TCP
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Flooded echoes of each measurement
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    echoes: u32,
    /// Rotation of the tunnel
    #[arg(long, default_value = "10s")]
    rotation: String,
    /// The kernel's WireGuard, rather than that in user space
    #[arg(long)]
    kernel: bool,
    /// Put the table into this Markdown page, between `<!-- wrap:begin -->` and `<!-- wrap:end -->` (`wrap-kernel`)
    #[arg(long, value_name = "FILE")]
    docs: Option<PathBuf>,
    /// What the names of the namespaces begin with
    #[arg(long, default_value = "wrap")]
    prefix: String,
}

/// What WireGuard has of the peer of a gateway.
struct Peer {
    device: String,
    key: String,
    masked: String,
    clear: String,
}

impl Peer {
    fn way(&self, is_masked: bool) -> &str {
        if is_masked { &self.masked } else { &self.clear }
    }
}

/// A measurement, and what it came to, masked and not, in each round.
struct Compared {
    measurement: Measurement,
    rounds: Vec<[f64; 2]>,
}

/// Runs the measurements; `program` is `sidestep`.
///
/// # Errors
/// When the lab does not come up, packets do not come through, WireGuard leaves the endpoint that it was given, or the results
/// cannot be written.
pub fn run(options: &WrapOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let over = if options.kernel { Masked::in_the_kernel } else { Masked::in_user_space };
    let masked = over(&options.rotation).by_port(PORT);
    if let Some(why) = masked.missing() {
        return Err(Error::Usage(why));
    }
    let about = masked.about();
    let running = Running::start(Box::new(masked), Lab::builder(program).prefix(&options.prefix))?;
    let peers = [peer(&running, Site::A)?, peer(&running, Site::B)?];
    let lengths = Lengths { tcp: options.seconds, trial: Duration::ZERO, echoes: options.echoes };
    let tcp = |from| Measurement::Tcp { flows: 1, from };
    let mut all = [tcp(Site::A), tcp(Site::B), Measurement::Flood]
        .map(|measurement| Compared { measurement, rounds: Vec::new() });
    'rounds: for round in 0..options.repetitions {
        for Compared { measurement, rounds } in &mut all {
            let mut values = [0.0; 2];
            // What comes first may have it better, or worse.
            for is_masked in [round % 2 == 0, round % 2 == 1] {
                if stop.load(Ordering::Relaxed) {
                    break 'rounds;
                }
                lead(&running.lab, &peers, is_masked)?;
                let measured = measurement.run(&running.lab, None, lengths, None)?;
                if !is_led(&running.lab, &peers, is_masked)? {
                    return Err(Error::output(
                        "wg show",
                        "WireGuard has left the endpoint that it was given",
                    ));
                }
                values[usize::from(!is_masked)] = measured.first().map_or(f64::NAN, |(_, value, _)| *value);
            }
            let [masked, clear] = values;
            eprintln!("{}: {}: {masked:.1} masked, {clear:.1} not", round + 1, measurement.title());
            rounds.push(values);
        }
    }
    let table = table(options, &about, &all);
    // A reader that goes away has what it wanted.
    let _ = writeln!(std::io::stdout().lock(), "{}", table.text().trim_end());
    if stop.load(Ordering::Relaxed) {
        eprintln!("interrupted: {} of {} rounds", all[2].rounds.len(), options.repetitions);
        return Ok(INTERRUPTED.into());
    }
    if let Some(path) = &options.docs {
        between(if options.kernel { "wrap-kernel" } else { "wrap" }, &table.markdown(), path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What a gateway's WireGuard may be told.
fn peer(running: &Running, site: Site) -> Result<Peer, Error> {
    let device = running.contender.device(&running.lab, site).unwrap_or_default();
    let (key, _) = endpoint(&running.lab, site, &device)?;
    let deadline = Instant::now() + PATIENCE;
    let masked = loop {
        let status = running.lab.show(site)?;
        match status["peers"][0]["masked"]["remote"].as_str() {
            Some(remote) => break remote.to_owned(),
            None if Instant::now() > deadline => {
                return Err(Error::output("sidestep show", &status));
            }
            None => std::thread::sleep(SETTLE),
        }
    };
    let clear = format!("[{}]:{PORT}", site.other().outer(running.lab.topology()));
    Ok(Peer { device, key, masked, clear })
}

/// The peer's key, and where it is.
fn endpoint(lab: &Lab, site: Site, device: &str) -> Result<(String, String), Error> {
    let told = text(&check(lab.command(site.gateway(), "wg")?.args(["show", device, "endpoints"]))?);
    let (key, endpoint) = told.trim().split_once('\t').ok_or_else(|| Error::output("wg show", &told))?;
    Ok((key.to_owned(), endpoint.to_owned()))
}

/// Has both send by this way, and waits until packets come through.
fn lead(lab: &Lab, peers: &[Peer; 2], is_masked: bool) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        for (site, peer) in [Site::A, Site::B].into_iter().zip(peers) {
            let mut command = lab.command(site.gateway(), "wg")?;
            check(command.args(["set", &peer.device, "peer", &peer.key, "endpoint", peer.way(is_masked)]))?;
        }
        lab.wait_connected(PATIENCE)?;
        // A packet that was underway has WireGuard go back to where it came from.
        std::thread::sleep(SETTLE);
        if is_led(lab, peers, is_masked)? {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::output(
                "wg show",
                "WireGuard does not stay with the endpoint that it was given",
            ));
        }
    }
}

/// Whether both send by this way.
fn is_led(lab: &Lab, peers: &[Peer; 2], is_masked: bool) -> Result<bool, Error> {
    for (site, peer) in [Site::A, Site::B].into_iter().zip(peers) {
        if endpoint(lab, site, &peer.device)?.1 != *peer.way(is_masked) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn table(options: &WrapOptions, about: &str, all: &[Compared]) -> Table {
    let measured = all.iter().filter(|one| !one.rounds.is_empty());
    let rows = measured.map(|Compared { measurement, rounds }| {
        let of = |value: fn(&[f64; 2]) -> f64| rounds.iter().map(value).collect::<Vec<_>>();
        let middle = |values: &[f64]| quantile(values, 0.5).map_or("–".into(), number);
        let quarters = |values: &[f64], digits: usize| {
            let [low, median, high] =
                [0.25, 0.5, 0.75].map(|part| quantile(values, part).unwrap_or(f64::NAN));
            format!("{median:.digits$} ({low:.digits$}–{high:.digits$})")
        };
        let difference = match measurement {
            Measurement::Flood => quarters(&of(|[masked, clear]| (masked - clear) / 2.0), 1),
            _ => "–".to_owned(),
        };
        vec![
            format!("{}, {}", measurement.title(), measurement.unit()),
            middle(&of(|[_, clear]| *clear)),
            middle(&of(|[masked, _]| *masked)),
            quarters(&of(|[masked, clear]| masked / clear), 3),
            difference,
        ]
    });
    let header = ["", "its own way", "masked", "masked / its own way", "more for each gateway, µs"];
    Table {
        title: "WireGuard masked and not, between the same gateways".into(),
        how: format!(
            "{}; {about}. {} rounds, in each of which both ways were measured one after the other, in turn the one and the \
             other first; {} s of TCP, {} flooded echoes. Medians, and of ratios and differences within a round the quarters \
             (25–75 %).",
            machine("all five machines"),
            options.repetitions,
            options.seconds,
            options.echoes
        ),
        header: header.map(str::to_owned).to_vec(),
        rows: rows.collect(),
    }
}

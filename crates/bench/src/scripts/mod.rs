//! `sidestep-lab bench scripts`: the same six jobs by packet scripts, nftables, eBPF written by hand in C, Suricata and a
//! proxy: lines of code, packets or connections in a second, latency (docs/scripting-performance.md, "Beside the peers").
//!
//! | file | what it is |
//! |---|---|
//! | `job` | what is to be done, and who does it |
//! | `peers/` | rules, configurations and C of the others; the scripts are those of `examples/scripts` |
//! | `scene` | client, gateway and server |
//! | `start` | how each is set to work |
//! | `probe` | whether it does the job |
//! | `traffic` | what client and server do |
//! | `lines` | lines of code |
//! | `options`, `outcome`, `tables` | what the command is told, what was found, how it is shown |
//!
//! Job by job, all who can do it are started, and shown to do it; who fails has no figures. Then each measurement is made of
//! all of them before the next one, and all of that is repeated, in another order each time. Ratios to forwarding alone are
//! taken within a repetition.

mod job;
mod lines;
mod options;
mod outcome;
mod probe;
mod scene;
mod start;
mod tables;
pub(crate) mod traffic;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::comparison::measure::Value;
use crate::comparison::results::{Absence, Entry, Results};
use crate::comparison::run::record;
use crate::comparison::{INTERRUPTED, machine, version};
use crate::nat::packets;
use job::{Job, Part, Peer};
use lab::Error;
pub use options::ScriptsOptions;
use outcome::{Outcome, Taken};
use probe::{HIGH, LOW};
use scene::{CLIENT, Scene};

/// Connections side by side.
const SIDE_BY_SIDE: u16 = 16;

/// Runs the comparison; `program` is `sidestep`.
///
/// # Errors
/// When the scene does not come up, a contender that was asked for is not installed, or the results cannot be written.
pub fn run(options: &ScriptsOptions, program: &Path, stop: &Arc<AtomicBool>) -> Result<ExitCode, Error> {
    let begun = Instant::now();
    let results = Results {
        version: version(program),
        machine: machine("all three machines"),
        settings: settings(options),
        ..Results::default()
    };
    let mut outcome = Outcome { results, parts: Vec::new() };
    let peers = choose(options, &mut outcome.results)?;
    for job in Job::ALL.into_iter().filter(|job| options.only.is_empty() || options.only.contains(job)) {
        let scenes = start(options, job, &peers, program, &mut outcome)?;
        measure(options, scenes, &mut outcome.results, stop);
        if stop.load(Ordering::Relaxed) {
            outcome.results.interrupted = Some(format!("it ended at {}", job.title()));
            break;
        }
    }
    outcome.results.minutes = begun.elapsed().as_secs_f64() / 60.0;
    tables::show(options, &outcome)?;
    let failed = outcome.parts.iter().any(|part| part.failed.is_some());
    Ok(match outcome.results.interrupted {
        Some(_) => INTERRUPTED.into(),
        None if outcome.results.failures.is_empty() && !failed => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    })
}

fn settings(options: &ScriptsOptions) -> String {
    let lengths = Lengths::of(options);
    format!(
        "{} repetitions; {} small packets, {} questions one after the other; {} connections and {} exchanges, {SIDE_BY_SIDE} \
         side by side",
        options.repetitions,
        lengths.packets,
        lengths.questions,
        lengths.connections,
        lengths.exchanges * usize::from(SIDE_BY_SIDE)
    )
}

/// Those that are to take part.
fn choose(options: &ScriptsOptions, results: &mut Results) -> Result<Vec<Peer>, Error> {
    let mut peers = Vec::new();
    for peer in Peer::ALL {
        let asked_for = options.against.contains(&peer);
        if peer != Peer::None && !options.against.is_empty() && !asked_for {
            continue;
        }
        match start::missing(peer) {
            Some(why) if asked_for => return Err(Error::Usage(format!("{}: {why}", peer.name()))),
            Some(why) => {
                eprintln!("{} is left out: {why}", peer.name());
                results.left_out.push(Absence { what: peer.name().to_owned(), why });
            }
            None => {
                peers.push(peer);
                let (name, about) = (peer.name().to_owned(), peer.about().to_owned());
                results.contenders.push(Entry { name, about });
            }
        }
    }
    Ok(peers)
}

/// Starts who can do a job, and has them show it.
fn start(
    options: &ScriptsOptions,
    job: Job,
    peers: &[Peer],
    program: &Path,
    outcome: &mut Outcome,
) -> Result<Vec<Scene>, Error> {
    let mut scenes = Vec::new();
    for (number, peer) in peers.iter().copied().enumerate() {
        let mut taken = Taken {
            job,
            contender: peer.name().to_owned(),
            lines: 0,
            loader_lines: None,
            cannot: None,
            failed: None,
            note: None,
        };
        match peer.part(job) {
            Part::Absent => continue,
            Part::Cannot(why) => taken.cannot = Some(why.to_owned()),
            Part::Does(texts) => {
                (taken.lines, taken.loader_lines) = lines::of(texts);
                let prefix = format!("{}{number}", options.prefix);
                let shown = Scene::start(&prefix, (job, peer), LOW, program).and_then(|scene| {
                    let note = scene.probe()?;
                    Ok((scene, note))
                });
                match shown {
                    Ok((scene, note)) => {
                        taken.note = note.map(str::to_owned);
                        let scene = if job == Job::Limit {
                            drop(scene);
                            Scene::start(&prefix, (job, peer), HIGH, program)?
                        } else {
                            scene
                        };
                        scenes.push(scene);
                    }
                    // Without the forwarding alone there is nothing to compare with.
                    Err(error) if peer == Peer::None => return Err(error),
                    Err(error) => {
                        eprintln!("{}: {} does not do it: {error}", job.title(), peer.name());
                        taken.failed = Some(error.to_string());
                    }
                }
            }
        }
        outcome.parts.push(taken);
    }
    Ok(scenes)
}

/// All repetitions of a job's measurements, or as far as it comes.
fn measure(options: &ScriptsOptions, mut scenes: Vec<Scene>, results: &mut Results, stop: &AtomicBool) {
    let lengths = Lengths::of(options);
    for repetition in 1..=options.repetitions {
        // What a machine has left depends on what it did a moment ago, so each of them is once the first.
        if repetition > 1 {
            scenes.rotate_left(1);
        }
        for what in What::of(scenes.first().map(|scene| scene.job)) {
            for scene in &scenes {
                let measured = what.measure(scene, lengths);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let (name, title) = (scene.peer.name(), scene.job.title());
                let outcome = record(name, title, what.unit(), repetition, measured, results);
                eprintln!("{title}, {repetition} of {}: {name:<14} {outcome}", options.repetitions);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Lengths {
    packets: u32,
    questions: u32,
    connections: u16,
    /// Of each connection.
    exchanges: usize,
}

impl Lengths {
    fn of(options: &ScriptsOptions) -> Self {
        let packets = options.packets;
        let side_by_side = u32::from(SIDE_BY_SIDE);
        let connections = (packets / 400).max(side_by_side) / side_by_side * side_by_side;
        Self {
            packets,
            questions: (packets / 40).max(100),
            connections: connections as u16,
            exchanges: (packets / 400).max(10) as usize,
        }
    }
}

/// What one measurement is.
#[derive(Clone, Copy, Debug)]
enum What {
    Packets,
    RoundTrip,
    Connections,
    Exchanges,
    /// One after the other.
    Connection,
    Exchange,
}

impl What {
    fn of(job: Option<Job>) -> &'static [Self] {
        match job.is_some_and(Job::is_tcp) {
            true => &[Self::Connections, Self::Exchanges, Self::Connection, Self::Exchange],
            false => &[Self::Packets, Self::RoundTrip],
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Packets => "thousand packets/s",
            Self::Connections => "connections/s",
            Self::Exchanges => "thousand exchanges/s",
            Self::RoundTrip | Self::Connection | Self::Exchange => "µs",
        }
    }

    fn measure(self, scene: &Scene, lengths: Lengths) -> Result<Vec<Value>, Error> {
        let value = |what: &str, value| (format!("{}_{what}", scene.job.name()), value, false);
        let parallel = ["--threads", &SIDE_BY_SIDE.to_string()];
        let exchanges = lengths.exchanges.to_string();
        let exchanging = ["--exchanges", &exchanges];
        // Names that are not on the list.
        let connect = |count: u16, more: &[&[&str]]| {
            let carried = scene.connect("www.example", count, &more.concat())?;
            let lost = carried.asked - carried.answered;
            if lost > 0 {
                let asked = carried.asked;
                return Err(Error::Usage(format!("of {asked} questions {lost} were not answered")));
            }
            Ok(carried)
        };
        Ok(match self {
            Self::Packets => {
                let rate = packets::arriving(scene, || Ok(scene.flood(lengths.packets)?.took_us))?;
                vec![value("packets", rate / 1e3)]
            }
            Self::RoundTrip => {
                let carried = scene.ask(CLIENT, lengths.questions)?;
                if carried.answered == 0 {
                    return Err(Error::Usage("nothing was answered".to_owned()));
                }
                let lost = (carried.asked - carried.answered) as f64;
                vec![value("p50", carried.p50_us), value("p99", carried.p99_us), value("lost", lost)]
            }
            Self::Connections => {
                vec![value("connections", connect(lengths.connections, &[&parallel])?.rate())]
            }
            Self::Exchanges => {
                let carried = connect(SIDE_BY_SIDE, &[&parallel, &exchanging])?;
                vec![value("exchanges", carried.rate() / 1e3)]
            }
            Self::Connection => {
                let carried = connect(lengths.connections / 4, &[])?;
                vec![value("connection_p50", carried.p50_us), value("connection_p99", carried.p99_us)]
            }
            Self::Exchange => {
                let carried = connect(1, &[&exchanging])?;
                vec![value("p50", carried.p50_us), value("p99", carried.p99_us)]
            }
        })
    }
}

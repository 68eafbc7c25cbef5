//! `ipsec up` beside strongSwan's IPsec in user space and the moving tunnel: speed, processor time, memory.
//!
//! | file | what it is |
//! |---|---|
//! | `ipsec_up`, `libipsec` | those two; the moving tunnel is `bench`'s |
//! | `agreed` | what both gateways know: the key, the networks of each child |
//!
//! They run in the labs of `bench`: two hosts, two gateways and a router each, and their measurements are those of `bench`.

mod agreed;
mod ipsec_up;
mod libipsec;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lab::accounting::{anonymous, resident};
use lab::topology::Site;
use lab::{Builder, Error, Lab};
use serde::Serialize;

use crate::comparison::contender::Contender;
use crate::comparison::measure::{Lengths, Measurement};
use crate::comparison::results::{Absence, Entry, Results, Sample};
use crate::comparison::run::record;
use crate::comparison::running::Running;
use crate::comparison::sidestep::Sidestep;
use crate::comparison::statistics::Summary;
use crate::comparison::tables::{self, Table, number, thousands};
use ipsec_up::IpsecUp;
use libipsec::Libipsec;

/// Its name among the contenders.
pub(super) const IPSEC_UP: &str = "ipsec-up";
pub(super) const LIBIPSEC: &str = "libipsec";
pub(super) const MOVING: &str = "sidestep";
/// One flow from A to B, and from B to A.
pub(super) const TCP: [&str; 2] = ["tcp_1_ab", "tcp_1_ba"];
/// Seconds of the processor for each gigabyte, of both gateways together.
pub(super) const PROCESSOR: &str = "cpu_gb";
/// Megabytes of a gateway that has carried nothing yet, and of one after the traffic: the mean of the two.
pub(super) const FRESH: &str = "fresh";
pub(super) const AFTER: &str = "after";
/// The same of a fresh one, without what is of files: the program and its libraries.
const OWN: &str = "fresh_own";
/// Bytes for each association beyond those of the first child.
pub(super) const ASSOCIATION: &str = "association";

/// The moving tunnel's, as `bench` has it.
const ROTATION: &str = "10s";
/// Between the last message and a look at the memory.
const SETTLE: Duration = Duration::from_millis(500);

/// Who is measured, anew.
fn contenders(children: u16) -> [Box<dyn Contender>; 3] {
    [Box::new(Sidestep::new(ROTATION)), Box::new(IpsecUp::new(children)), Box::new(Libipsec::new(children))]
}

/// What was measured.
#[derive(Debug, Serialize)]
pub(super) struct Tunnels {
    /// How many children the two with associations had to see how much memory one takes.
    children: u16,
    results: Results,
}

/// How long, how often, how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) repetitions: u32,
    pub(super) seconds: u32,
    pub(super) children: u16,
}

/// Measures all.
pub(super) fn measure(extent: Extent, prefix: &str, program: &Path, stop: &AtomicBool) -> Tunnels {
    let bases = vec![LIBIPSEC.to_owned(), MOVING.to_owned()];
    let mut all = Tunnels { children: extent.children, results: Results { bases, ..Results::default() } };
    let mut running = Vec::new();
    for (number, contender) in contenders(1).into_iter().enumerate() {
        let entry = Entry { name: contender.name().to_owned(), about: contender.about() };
        if let Some(why) = contender.missing() {
            all.results.left_out.push(Absence { what: entry.name, why });
            continue;
        }
        eprintln!("starting {}: {}", entry.name, entry.about);
        match Running::start(contender, builder(program, prefix, number)) {
            Ok(one) => {
                running.push(one);
                all.results.contenders.push(entry);
            }
            Err(error) => {
                all.results.failures.push(Absence { what: entry.name, why: error.to_string() });
            }
        }
    }
    for one in &mut running {
        for (metric, of_process) in [(FRESH, resident as OfProcess), (OWN, anonymous as OfProcess)] {
            let fresh = memory(one, of_process);
            all.keep(one.name(), metric, 1, fresh.map(|bytes| bytes / 1e6));
        }
    }
    for repetition in 1..=extent.repetitions {
        // What a machine has left depends on what it did a moment ago, so each of them is once the first.
        if repetition > 1 {
            running.rotate_left(1);
        }
        for from in [Site::A, Site::B] {
            for one in &mut running {
                if stop.load(Ordering::Relaxed) {
                    return all;
                }
                all.carry(one, from, repetition, extent.seconds);
            }
        }
        for one in &mut running {
            let after = memory(one, resident);
            all.keep(one.name(), AFTER, repetition, after.map(|bytes| bytes / 1e6));
        }
    }
    drop(running);
    if extent.children > 1 {
        all.grow(prefix, program, stop);
    }
    all
}

fn builder(program: &Path, prefix: &str, number: usize) -> Builder {
    Lab::builder(program).prefix(&format!("{prefix}{number}")).rotation(ROTATION)
}

/// A kind of memory of a process, bytes.
type OfProcess = fn(u32) -> Result<u64, Error>;

/// Bytes of a gateway, the mean of the two.
fn memory(one: &mut Running, of_process: OfProcess) -> Result<f64, Error> {
    let nothing = || Error::Usage("no processes".into());
    let processes = one.contender.processes(&mut one.lab).ok_or_else(nothing)?;
    let [a, b] = processes.map(of_process);
    Ok((a? + b?) as f64 / 2.0)
}

impl Tunnels {
    /// One flow, which is a measurement of `bench`.
    fn carry(&mut self, one: &mut Running, from: Site, repetition: u32, seconds: u32) {
        let measurement = Measurement::Tcp { flows: 1, from };
        let lengths = Lengths { tcp: seconds, trial: Duration::ZERO, echoes: 0 };
        let processes = one.contender.processes(&mut one.lab);
        let measured = measurement.run(&one.lab, processes, lengths, None);
        let (title, unit) = (measurement.title(), measurement.unit());
        let name = one.name().to_owned();
        let said = record(&name, &title, unit, repetition, measured, &mut self.results);
        eprintln!("{repetition}: {name}, {title}: {said}");
        if from == Site::A {
            let both = ["cpu_gb_a", "cpu_gb_b"].map(|key| self.results.value(&name, key, repetition));
            if let [Some(a), Some(b)] = both {
                self.keep(&name, PROCESSOR, repetition, Ok(a + b));
            }
        }
    }

    /// How much memory an association takes.
    fn grow(&mut self, prefix: &str, program: &Path, stop: &AtomicBool) {
        for (number, contender) in contenders(self.children).into_iter().enumerate() {
            let name = contender.name().to_owned();
            let is_with_associations = name != MOVING && self.results.has(&name);
            if stop.load(Ordering::Relaxed) || !is_with_associations {
                continue;
            }
            let measured = Running::start(contender, builder(program, prefix, number)).and_then(|mut one| {
                std::thread::sleep(SETTLE);
                memory(&mut one, anonymous)
            });
            let fresh = self.results.value(&name, OWN, 1).unwrap_or_default() * 1e6;
            // A child is two of them.
            let more = f64::from(2 * (self.children - 1));
            let each = measured.map(|bytes| (bytes - fresh).max(0.0) / more);
            if let Ok(each) = &each {
                eprintln!("{name}: {each:.0} bytes for an association");
            }
            self.keep(&name, ASSOCIATION, 1, each);
        }
    }

    fn keep(&mut self, contender: &str, metric: &str, repetition: u32, value: Result<f64, Error>) {
        let (contender, metric) = (contender.to_owned(), metric.to_owned());
        match value {
            Ok(value) => {
                self.results.samples.push(Sample { contender, metric, repetition, value, limited: false });
            }
            Err(error) => {
                let what = format!("{contender}, {metric}");
                self.results.failures.push(Absence { what, why: error.to_string() });
            }
        }
    }

    pub(super) fn contenders(&self) -> impl Iterator<Item = (&str, &str)> {
        self.results.contenders.iter().map(|one| (one.name.as_str(), one.about.as_str()))
    }

    pub(super) fn left_out(&self) -> impl Iterator<Item = (&str, &str)> {
        self.results.left_out.iter().map(|one| (one.what.as_str(), one.why.as_str()))
    }

    pub(super) fn failures(&self) -> impl Iterator<Item = String> {
        self.results.failures.iter().map(|one| format!("{}: {}", one.what, one.why))
    }

    /// What the repetitions say together.
    pub(super) fn summary(&self, contender: &str, metric: &str) -> Option<Summary> {
        self.results.summary(contender, metric)
    }

    pub(super) fn median(&self, contender: &str, metric: &str) -> Option<f64> {
        self.summary(contender, metric).map(|summary| summary.median)
    }

    /// The median of the ratios to another contender within a repetition.
    pub(super) fn ratio(&self, metric: &str, contender: &str, base: &str) -> Option<f64> {
        self.results.ratio(contender, base, metric)
    }

    pub(super) fn tables(&self) -> Vec<Table> {
        let mut all = tables::all(&self.results);
        for table in &mut all {
            table.title = format!("Tunnels: {}", table.title);
        }
        all.push(self.memory());
        all
    }

    fn memory(&self) -> Table {
        let megabytes = |contender: &str, metric| self.median(contender, metric).map_or("–".into(), number);
        let rows = self.results.contenders.iter().map(|one| {
            let association = self.median(&one.name, ASSOCIATION);
            vec![
                one.name.clone(),
                megabytes(&one.name, FRESH),
                megabytes(&one.name, AFTER),
                association.map_or("–".into(), |bytes| thousands(bytes.round() as u64)),
            ]
        });
        Table {
            title: "Tunnels: resident memory of a gateway".into(),
            how: format!(
                "Megabytes before and after the traffic, with one child, and bytes of a gateway's own memory for each further \
                 association, of {} children with two each. Means of both gateways.",
                self.children
            ),
            header: ["contender", "fresh, MB", "after traffic, MB", "association, bytes"]
                .map(str::to_owned)
                .to_vec(),
            rows: rows.collect(),
        }
    }
}

//! The run: labs for all contenders side by side, and the measurements one after the other, each for all contenders
//! before the next one, in another order in each repetition.

use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::comparison::choice::{Choice, choose};
use crate::comparison::measure::{self, Lengths, Measurement, Value, tells_variants_apart};
use crate::comparison::options::BenchOptions;
use crate::comparison::peers;
use crate::comparison::results::{Absence, Entry, Results, Sample};
use crate::comparison::running::Running;
use lab::Error;
use lab::Lab;

/// Measures everything; if interrupted, what it came to.
pub(crate) fn run(options: &BenchOptions, program: &Path, stop: &AtomicBool) -> Result<Results, Error> {
    let begun = Instant::now();
    let Choice { contenders, left_out } = choose(&options.against, options.quick, &options.rotation)?;
    let mut results = Results { settings: options.settings(), ..Results::default() };
    for absence in &left_out {
        eprintln!("{} is left out: {}", absence.what, absence.why);
    }
    results.left_out = left_out;
    let mut running = Vec::new();
    for (number, contender) in contenders.into_iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            results.interrupted = Some("nothing was measured".to_owned());
            return Ok(results);
        }
        let entry = Entry { name: contender.name().to_owned(), about: contender.about() };
        eprintln!("starting {}: {}", entry.name, entry.about);
        let builder = Lab::builder(program)
            .prefix(&format!("{}{number}", options.prefix))
            .offloads(!options.no_offloads);
        match Running::start(contender, builder) {
            Ok(one) => {
                running.push(one);
                results.contenders.push(entry);
            }
            // A tunnel that was asked for by name, and no tunnel and our own, are not to be missing silently.
            Err(error) if number < 2 || !options.against.is_empty() => return Err(error),
            Err(error) => {
                eprintln!("{} is left out: it does not start: {error}", entry.name);
                results.left_out.push(Absence { what: entry.name, why: format!("does not start: {error}") });
            }
        }
    }
    repetitions(options, &mut running, &mut results, stop);
    drop(running);
    if options.measures("peers") && results.interrupted.is_none() {
        many_peers(options, program, &mut results, stop)?;
    }
    results.minutes = begun.elapsed().as_secs_f64() / 60.0;
    Ok(results)
}

/// All repetitions of all measurements, or as far as it comes.
fn repetitions(options: &BenchOptions, running: &mut [Running], results: &mut Results, stop: &AtomicBool) {
    // A quick run leaves it out, unless it is asked for by name.
    let quick = options.quick && !options.only.iter().any(|kind| kind == "steady");
    let measurements: Vec<Measurement> =
        measure::all(quick).into_iter().filter(|measurement| options.measures(measurement.kind())).collect();
    let wanted = |one: &Running, measurement| {
        options.everything || !one.contender.is_variant() || tells_variants_apart(measurement)
    };
    let pairs =
        measurements.iter().flat_map(|measurement| running.iter().map(|one| wanted(one, *measurement)));
    let total = pairs.filter(|wanted| *wanted).count() * options.repetitions() as usize;
    let begun = Instant::now();
    let mut done = 0;
    for repetition in 1..=options.repetitions() {
        // What a machine has left depends on what it did a moment ago, so each of them is once the first.
        if repetition > 1 {
            running.rotate_left(1);
        }
        for measurement in &measurements {
            for one in running.iter_mut().filter(|one| wanted(one, *measurement)) {
                let measured = measure(one, *measurement, options.lengths(), repetition, results);
                // What was under way may have been cut short, too: Ctrl-C reaches gateways and generators.
                if stop.load(Ordering::Relaxed) {
                    results.interrupted = Some(format!("{done} of {total} measurements were made"));
                    return;
                }
                let (name, title, unit) = (one.name(), measurement.title(), measurement.unit());
                let outcome = record(name, &title, unit, repetition, measured, results);
                done += 1;
                let left = begun.elapsed().as_secs_f64() / f64::from(done) * (total as f64 - f64::from(done));
                eprintln!(
                    "[{done:>3} of {total}, {:>4.1} min left] {repetition}: {:<20} {:<18} {outcome}",
                    left / 60.0,
                    name,
                    title,
                );
            }
        }
    }
}

/// One measurement of one contender.
fn measure(
    one: &mut Running,
    measurement: Measurement,
    lengths: Lengths,
    repetition: u32,
    results: &Results,
) -> Result<Vec<Value>, Error> {
    let processes = one.contender.processes(&mut one.lab);
    let known = match measurement.builds_upon() {
        Some(key) => results.value(one.name(), &key, repetition),
        None => results.best(one.name(), &measurement.key()),
    };
    measurement.run(&one.lab, processes, lengths, known)
}

/// Keeps what a measurement came to, of which the first value is in `unit`; what to say about it.
pub(crate) fn record(
    name: &str,
    title: &str,
    unit: &str,
    repetition: u32,
    measured: Result<Vec<Value>, Error>,
    results: &mut Results,
) -> String {
    let values = match measured {
        Ok(values) => values,
        // One that fails in one discipline may still take part in the others.
        Err(error) => {
            let what = format!("{name}, {title}, repetition {repetition}");
            results.failures.push(Absence { what, why: error.to_string() });
            return format!("failed: {error}");
        }
    };
    let said = values.first().map_or("not applicable".into(), |(_, value, limited)| {
        let more = if *limited { "at least " } else { "" };
        format!("{more}{value:.1} {unit}")
    });
    results.samples.extend(values.into_iter().map(|(metric, value, limited)| Sample {
        contender: name.to_owned(),
        metric,
        repetition,
        value,
        limited,
    }));
    said
}

/// The part with many peers, or as far as it comes.
fn many_peers(
    options: &BenchOptions,
    program: &Path,
    results: &mut Results,
    stop: &AtomicBool,
) -> Result<(), Error> {
    for peers in options.peers() {
        let choice = choose(&options.against, options.quick, &options.rotation)?;
        for mut contender in choice.contenders {
            let name = contender.name().to_owned();
            if !contender.has_peers() || contender.is_variant() || !results.has(&name) {
                continue;
            }
            eprint!("{name} with {peers} peers: ");
            let _ = std::io::stderr().flush();
            let builder = Lab::builder(program)
                .prefix(&format!("{}p", options.prefix))
                .rotation(&options.rotation)
                .offloads(!options.no_offloads);
            let measured = peers::measure(contender.as_mut(), builder, peers);
            if stop.load(Ordering::Relaxed) {
                results.interrupted =
                    Some(format!("the part with many peers ended before {name} with {peers}"));
                return Ok(());
            }
            match measured {
                Ok(measured) => {
                    eprintln!(
                        "{:.1} MB, {:.1} % of a processor, p50 {:.0} µs, there after {:.1} s",
                        measured.resident_mb,
                        measured.idle_share * 100.0,
                        measured.p50_us,
                        measured.start_s
                    );
                    results.peers.push(measured);
                }
                Err(error) => {
                    eprintln!("failed: {error}");
                    // Often the machine's own limits, of which the error tells.
                    let what = format!("{name} with {peers} peers");
                    results.left_out.push(Absence { what, why: error.to_string() });
                }
            }
        }
    }
    Ok(())
}
